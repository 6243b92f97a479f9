//! What a cursor over a file needs of a position in one data block, whatever the blocks hold.

use std::fmt;
use std::sync::Arc;

use mycelium_base::{Error, Result, SequenceNumber, Trailer};

use super::{KeyBuffer, Step};
use crate::reader::SstFile;

/// What a block's header says of its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockFacts {
    /// Entries.
    pub rows: u32,
    /// The smallest sequence number.
    pub min_sequence: SequenceNumber,
    /// The largest.
    pub max_sequence: SequenceNumber,
    /// Whether no key occurs twice.
    pub unique_keys: bool,
    /// Whether every entry is a `Put`.
    pub all_puts: bool,
}

impl BlockFacts {
    /// Whether the snapshot sees all entries, each of another key. As for [`BlockFacts::is_plain`], another version of
    /// the first or last key may be in the block beside it.
    #[inline]
    pub fn is_seen_once(&self, snapshot: SequenceNumber) -> bool {
        self.unique_keys && self.max_sequence <= snapshot
    }

    /// Whether all entries are whole rows that the snapshot sees, each key once. Another version of the block's first
    /// or last key may still be in the block beside it.
    #[inline]
    pub fn is_plain(&self, snapshot: SequenceNumber) -> bool {
        self.all_puts && self.unique_keys && self.max_sequence <= snapshot
    }
}

/// A position in one data block at a time; [`SstCursor`](crate::SstCursor) makes of it one over all blocks of a file.
pub trait BlockPosition: Sized + fmt::Debug {
    /// What is wanted of every entry.
    type Wanted: Clone + fmt::Debug;

    /// A position in no block of this file.
    fn over(file: &SstFile, wanted: &Self::Wanted) -> Self;
    /// Takes up the block `bytes[start..end]` of the file; invalid until positioned.
    fn take_up(&mut self, file: &SstFile, bytes: Arc<[u8]>, start: usize, end: usize) -> Result<()>;
    /// Asks the processor for what will be read of a block that is taken up next, whose first lines are in its caches.
    fn prefetch(&self, bytes: &[u8]);
    /// Lets go of the block and gives its bytes.
    fn release(&mut self) -> Option<Arc<[u8]>>;
    /// Whether there is a block.
    fn is_loaded(&self) -> bool;
    /// What its header says.
    fn facts(&self) -> Option<BlockFacts>;
    /// How many bytes all values of the block take in it, if they have an area of their own.
    fn value_area(&self) -> Option<usize>;
    /// Whether it is on an entry.
    fn valid(&self) -> bool;
    /// The entry's key.
    fn key(&self) -> &[u8];
    /// Its sequence number and operation.
    fn trailer(&self) -> Trailer;
    /// Its value.
    fn value(&self) -> &[u8];
    /// Whether the last move was forward to an entry with the same key.
    fn same_key(&self) -> bool;
    /// Says whether it was, where the move came from another block.
    fn set_same_key(&mut self, same: bool);
    /// Off all entries.
    fn invalidate(&mut self);
    /// Whether there is no entry after the current one.
    fn at_end(&self) -> bool;
    /// Exchanges the key buffer, to keep the last key of a block while the next one is loaded.
    fn swap_key(&mut self, other: &mut KeyBuffer);
    /// To the first entry.
    fn seek_to_first(&mut self) -> Result<bool>;
    /// To the last entry.
    fn seek_to_last(&mut self) -> Result<bool>;
    /// To the first entry at or after (`key`, `trailer`); `false` and invalid if there is none.
    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<bool>;
    /// To the next entry.
    fn step(&mut self) -> Step;
    /// To the previous entry; `false` and invalid at the beginning.
    fn prev(&mut self) -> Result<bool>;
    /// The error of a step that found a malformed entry.
    fn malformed_here(&mut self) -> Error;
}
