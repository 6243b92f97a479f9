//! Bringing blocks of a file into the block cache before anybody asks for them.
//!
//! 1. [`SstFile::cached_keys`] says which keys lie in cached blocks: of a file that reads are about to leave.
//!    [`SstFile::cached_bytes_within`] says how much that is.
//! 2. [`SstFile::forget`] lets go of those that reads have left, where the file itself stays.
//! 3. [`SstFile::warm`] reads the wanted blocks that are not cached in file order, as many near each other at once as
//!    fit a window, and caches each. It takes the place of as many others, so it is for few blocks, or for a cache that
//!    holds nearly everything.

use mycelium_base::{Error, Result};

use crate::block::{BlockCursor, BlockPosition, Step, payload_in_memory};
use crate::columnar::{ColumnPosition, WantedColumns};
use crate::compression::Decompressor;
use crate::index::IndexEntry;
use crate::reader::SstFile;

/// Bytes read at once, at most.
const WINDOW: u64 = 256 << 10;
/// Bytes of blocks nobody wants that are read along with their neighbours: less than they cost a disk that has to seek.
const GAP: u64 = 64 << 10;

/// The keys above one key, if there is one, up to another: those that a block may hold.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KeyInterval {
    /// All keys are above it.
    pub above: Option<Vec<u8>>,
    /// The last that there may be.
    pub last: Vec<u8>,
}

impl KeyInterval {
    /// Of keys in ascending order those that are in the interval. O(log keys).
    pub fn among<'a>(&self, keys: &'a [Vec<u8>]) -> &'a [Vec<u8>] {
        let from = self.above.as_ref().map_or(0, |above| keys.partition_point(|key| key <= above));
        let rest = &keys[from..];
        &rest[..rest.partition_point(|key| *key <= self.last)]
    }
}

impl SstFile {
    /// The keys in the data blocks that are cached now, ascending; none if the index is not in memory. Counts as no use
    /// of the blocks. O(blocks + keys).
    pub fn cached_keys(&self) -> Result<Vec<Vec<u8>>> {
        match self.is_columnar() {
            true => self.keys_of_cached(ColumnPosition::over(self, &WantedColumns::All)),
            false => self.keys_of_cached(BlockCursor::over(self, &())),
        }
    }

    /// Bytes in the file of the cached data blocks that may hold keys of a range; 0 if the index is not in memory.
    /// Counts as no use of them. O(blocks of the range).
    pub fn cached_bytes_within(&self, smallest: &[u8], ends_before: impl Fn(&[u8]) -> bool) -> u64 {
        let Some(framed) = &self.index else { return 0 };
        let index = self.index_of(framed);
        let mut bytes = 0;
        for at in index.seek(smallest)..index.block_count() {
            let entry = index.entry(at);
            if self.cache.contains(self.cache_key(entry.offset)) {
                bytes += entry.len;
            }
            if ends_before(&index.separator(at)) {
                break;
            }
        }
        bytes
    }

    fn keys_of_cached<B: BlockPosition>(&self, mut block: B) -> Result<Vec<Vec<u8>>> {
        let Some(framed) = &self.index else { return Ok(Vec::new()) };
        let index = self.index_of(framed);
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for at in 0..index.block_count() {
            let Some(bytes) = self.cache.peek(self.cache_key(index.entry(at).offset)) else { continue };
            let end = payload_in_memory(&bytes).len();
            block.take_up(self, bytes, 0, end)?;
            let mut is_there = block.seek_to_first()?;
            while is_there {
                if keys.last().is_none_or(|last| last != block.key()) {
                    keys.push(block.key().to_vec());
                }
                is_there = match block.step() {
                    Step::Moved => true,
                    Step::End => false,
                    Step::Malformed => return Err(block.malformed_here().in_file(&self.path)),
                };
            }
            drop(block.release());
        }
        Ok(keys)
    }

    /// Lets go of the cached data blocks whose intervals nobody asks this file for any more; none if the index is not
    /// in memory. O(blocks).
    pub fn forget(&self, mut is_left: impl FnMut(&KeyInterval) -> bool) {
        let Some(framed) = &self.index else { return };
        let index = self.index_of(framed);
        let mut above = None;
        for at in 0..index.block_count() {
            let interval = KeyInterval { above, last: index.separator(at) };
            if is_left(&interval) {
                self.cache.remove(self.cache_key(index.entry(at).offset));
            }
            above = Some(interval.last);
        }
    }

    /// Caches the data blocks whose intervals are wanted; how many were read. `wants` is asked in ascending order.
    pub fn warm(&self, mut wants: impl FnMut(&KeyInterval) -> bool) -> Result<usize> {
        let mut held = None;
        let index = self.index(&mut held)?;
        let (mut window, mut read): (Vec<IndexEntry>, usize) = (Vec::new(), 0);
        let mut above = None;
        for at in 0..index.block_count() {
            let entry = index.entry(at);
            let interval = KeyInterval { above, last: index.separator(at) };
            if wants(&interval) && !self.cache.contains(self.cache_key(entry.offset)) {
                let fits = |first: &IndexEntry, last: &IndexEntry| {
                    entry.offset.saturating_sub(last.offset + last.len) <= GAP
                        && entry.offset + entry.len - first.offset <= WINDOW
                };
                if !window.first().zip(window.last()).is_some_and(|(first, last)| fits(first, last)) {
                    read += self.warm_window(&window)?;
                    window.clear();
                }
                window.push(entry);
            }
            above = Some(interval.last);
        }
        Ok(read + self.warm_window(&window)?)
    }

    /// Reads blocks that lie near each other at once and caches them.
    fn warm_window(&self, window: &[IndexEntry]) -> Result<usize> {
        let (Some(first), Some(last)) = (window.first(), window.last()) else { return Ok(0) };
        let len = usize::try_from(last.offset + last.len - first.offset)
            .map_err(|_| Error::corruption("block too long").at(last.offset).in_file(&self.path))?;
        let mut bytes = vec![0; len];
        self.file.read_at(first.offset, &mut bytes).map_err(|error| error.in_file(&self.path))?;
        let mut decompressor = Decompressor::default();
        for entry in window {
            let from = (entry.offset - first.offset) as usize;
            let (payload, kind) = self.check_block(&bytes[from..from + entry.len as usize], entry.offset)?;
            let block = self.decompressed(payload, kind, entry.offset, &mut decompressor)?;
            self.keep_block(entry.offset, &block);
        }
        Ok(window.len())
    }
}
