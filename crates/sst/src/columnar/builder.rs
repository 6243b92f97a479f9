//! Builds the blocks of a columnar file (see `block`).
//!
//! 1. `add` takes a packed fragment apart: key, trailer and each cell go to buffers of their own. A block ends where
//!    its entries, packed, would have come nearest to the block size. `add_cells` takes a row of another file's block
//!    instead, whose cells are gathered with those of others (see `picks`), and `add_among_cells` a fragment that comes
//!    between such; where blocks end is the same.
//! 2. When a block ends its pages are encoded, each with what suits its cells best, but for those of texts: whether
//!    these get a dictionary is known only when the file is complete (LSM-OPD §3). Keys and cells that were encoded are
//!    forgotten.
//! 3. When the file is complete its dictionaries are made, and the blocks put together one after the other.
//! 4. What values there are of a column is noted beside (see `statistics`): of texts with a dictionary each value once.
//!
//! Memory: the file's texts, each once where they repeat, with four bytes a row; all other pages as they are encoded;
//! what is still to be encoded of a block or of [`Picks`]. It is counted at every block
//! ([`ColumnarBuilder::memory_usage`]). At its limit what inputs lent of their dictionaries is let go, if that is most
//! of it; else the file [is full](ColumnarBuilder::is_full).

use std::ops::Range;
use std::sync::Arc;

use mycelium_base::{ColumnSet, Error, Operation, Result, Trailer};
use mycelium_encoding::page::Cells;
use mycelium_encoding::{ColumnState, ColumnType, DatumRef, PackedLayout};

use super::finished::{EncodedBlock, FinishedColumns};
use super::keys::encode_keys;
use super::picks::{Pick, Picks};
use super::zones::ZoneMapBuilder;
use crate::block::BlockFacts;

/// Gathers the entries of one file.
#[derive(Debug)]
pub(crate) struct ColumnarBuilder {
    layout: Arc<PackedLayout>,
    block_size: usize,
    memory_limit: usize,
    /// Schema columns, ascending.
    columns: Vec<usize>,
    /// Those of texts of all complete entries, others of those that are not encoded yet.
    cells: Vec<Cells>,
    zones: Vec<ZoneMapBuilder>,
    /// Entries that are not encoded yet.
    entries: Entries,
    blocks: Vec<EncodedBlock>,
    /// Entries whose blocks are encoded.
    encoded: usize,
    /// Entries that are forgotten: as many, but while picks are gathered.
    forgotten: usize,
    /// The last entries, whose cells are still to be gathered.
    picks: Picks,
    /// By column: which of a block's pages it has.
    pages: Vec<usize>,
    /// Entries whose cells are there.
    complete: usize,
    /// Bytes of all keys.
    key_bytes: usize,
    /// About the bytes of the complete entries' pages.
    cells_bytes: usize,
    /// Bytes of the unfinished block's entries.
    block_bytes: usize,
    /// Bytes of the encoded blocks.
    encoded_bytes: usize,
    /// Bytes in memory when the last block ended.
    memory_usage: usize,
}

fn has_columns(trailer: Trailer) -> bool {
    matches!(trailer.operation(), Operation::Put | Operation::Patch)
}

/// Keys and trailers of entries.
#[derive(Debug, Default)]
struct Entries {
    keys: Vec<u8>,
    key_ends: Vec<usize>,
    trailers: Vec<Trailer>,
}

impl Entries {
    fn key(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.key_ends[before]);
        &self.keys[start..self.key_ends[at]]
    }

    /// Forgets the first entries, so many.
    fn forget(&mut self, count: usize) {
        let Some(key_bytes) = count.checked_sub(1).map(|last| self.key_ends[last]) else { return };
        self.keys.drain(..key_bytes);
        self.key_ends.drain(..count);
        self.key_ends.iter_mut().for_each(|end| *end -= key_bytes);
        self.trailers.drain(..count);
    }
}

impl ColumnarBuilder {
    /// A builder of files with these columns, whose values come packed as `layout` says. Blocks are to have
    /// `block_size` bytes of entries; all of it is full at `memory_limit` bytes.
    pub(crate) fn new(layout: Arc<PackedLayout>, columns: &ColumnSet, block_size: usize, memory_limit: usize) -> Self {
        let columns: Vec<usize> = columns.iter().collect();
        let cells = columns.iter().map(|&column| Cells::new(&layout.schema().columns()[column].ty)).collect();
        // A block's pages are in the physical order of its layout.
        let page_of = |&column: &usize| layout.columns().position(|found| found == column).unwrap_or_default();
        let pages = columns.iter().map(page_of).collect();
        let zones = columns.iter().map(|&column| ZoneMapBuilder::new(&layout.schema().columns()[column].ty)).collect();
        Self {
            layout,
            block_size,
            memory_limit,
            columns,
            cells,
            zones,
            entries: Entries::default(),
            blocks: Vec::new(),
            encoded: 0,
            forgotten: 0,
            picks: Picks::default(),
            pages,
            complete: 0,
            key_bytes: 0,
            cells_bytes: 0,
            block_bytes: 0,
            encoded_bytes: 0,
            memory_usage: 0,
        }
    }

    /// Whether the block is to end before an entry of so many bytes.
    pub(crate) fn ends_block(&self, len: usize) -> bool {
        let over = (self.block_bytes + len).saturating_sub(self.block_size);
        over > 0 && self.block_bytes > 0 && over > self.block_size.saturating_sub(self.block_bytes)
    }

    /// Ends the block, if it has an entry; the bytes of its entries.
    pub(crate) fn end_block(&mut self) -> Result<Option<u64>> {
        let ended = self.encode_block()?;
        self.forget_encoded();
        self.count_memory();
        Ok(ended)
    }

    /// Encodes what of the block need not wait for the file, and says how many bytes its entries take packed.
    fn encode_block(&mut self) -> Result<Option<u64>> {
        let bytes = std::mem::take(&mut self.block_bytes);
        if bytes == 0 {
            return Ok(None);
        }
        let held = self.encoded - self.forgotten..self.complete - self.forgotten;
        let (entries, rows) = (&self.entries, self.encoded..self.complete);
        let mut block =
            EncodedBlock::new(facts(entries, held.clone()), rows, entries.key(held.start), entries.key(held.end - 1));
        block.has_gap = block.put_page(|out| encode_keys(held.clone().map(|at| entries.key(at)), out))?;
        block.put_page(|out| encode_trailers(&entries.trailers[held.clone()], out))?;
        for (cells, zones) in self.cells.iter().zip(&mut self.zones).filter(|(cells, _)| !cells.waits_for_all()) {
            block.put_page(|out| zones.push(&cells.encode(held.clone(), out)?))?;
            cells.note_distinct(held.clone(), &mut zones.statistics.distinct)?;
        }
        block.trim();
        self.encoded_bytes += block.memory_usage();
        self.blocks.push(block);
        self.encoded = self.complete;
        Ok(Some(bytes as u64))
    }

    fn forget_encoded(&mut self) {
        let count = self.encoded - self.forgotten;
        self.entries.forget(count);
        self.cells.iter_mut().for_each(|cells| cells.forget(count));
        self.forgotten = self.encoded;
    }

    /// What is held until the file is complete. At the limit, what inputs lent is let go if it is most of it: else each
    /// block would go over all rows for little.
    fn count_memory(&mut self) {
        self.memory_usage = self.encoded_bytes + self.cells.iter().map(Cells::memory_usage).sum::<usize>();
        if self.is_full() && 2 * self.cells.iter().map(Cells::input_bytes).sum::<usize>() >= self.memory_usage {
            self.cells.iter_mut().for_each(Cells::let_inputs_go);
            self.memory_usage = self.encoded_bytes + self.cells.iter().map(Cells::memory_usage).sum::<usize>();
        }
    }

    /// Bytes in memory when the last block ended. O(1).
    #[inline]
    pub(crate) fn memory_usage(&self) -> usize {
        self.memory_usage
    }

    /// Whether the file should be finished, for it has come to the limit of its memory. O(1).
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.memory_usage >= self.memory_limit
    }

    /// Adds an entry. The caller keeps entries in order and lengths within the limits, and has gathered what was
    /// picked.
    pub(crate) fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        debug_assert!(self.picks.is_empty(), "entries before it are complete");
        if has_columns(trailer) {
            let row = self.layout.row(value)?;
            for (&column, cells) in self.columns.iter().zip(&mut self.cells) {
                cells.push(row.get(column)?)?;
            }
        } else {
            self.cells.iter_mut().try_for_each(|cells| cells.push(ColumnState::Absent))?;
        }
        self.push_entry(key, trailer)?;
        self.complete_entry(key.len() + value.len());
        self.cells_bytes = self.cells.iter().map(Cells::estimated_bytes).sum();
        Ok(())
    }

    /// Adds an entry whose cells are those of a row of a block. Its block has the columns of this file; rows of one
    /// block come in order. Whether they should be gathered now.
    #[inline]
    pub(crate) fn add_cells(&mut self, key: &[u8], trailer: Trailer, pick: Pick<'_>) -> Result<bool> {
        self.push_entry(key, trailer)?;
        self.picks.push(pick);
        Ok(self.picks.are_due(self.complete))
    }

    /// As [`ColumnarBuilder::add`] behind entries whose cells are still to be gathered, with which its own are. Whether
    /// they should be gathered now.
    pub(crate) fn add_among_cells(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<bool> {
        let fragment = match has_columns(trailer) {
            true => self.layout.row(value).map(|_| value)?,
            false => &[],
        };
        self.push_entry(key, trailer)?;
        self.picks.push_fragment(fragment);
        Ok(self.picks.are_due(self.complete))
    }

    /// Whether some entries' cells are still to be gathered.
    pub(crate) fn has_picks(&self) -> bool {
        !self.picks.is_empty()
    }

    /// Gathers the cells of what was picked, column by column, and ends blocks where they end. What the values would
    /// take packed is returned.
    pub(crate) fn gather(&mut self) -> Result<u64> {
        let mut picks = std::mem::take(&mut self.picks);
        let columns = self.columns.iter().zip(&self.pages).zip(&mut self.cells);
        picks.gather(&self.layout, columns.map(|((&column, &page), cells)| (column, page, cells)))?;
        let (layout, mut value_bytes) = (self.layout.clone(), 0);
        for packed_len in picks.packed_lens(&layout) {
            let at = self.complete - self.forgotten;
            let value_len = if has_columns(self.entries.trailers[at]) { packed_len } else { 0 };
            let len = self.entries.key(at).len() + value_len;
            if self.ends_block(len) {
                self.encode_block()?;
            }
            self.complete_entry(len);
            value_bytes += value_len as u64;
        }
        self.forget_encoded();
        self.count_memory();
        self.cells_bytes = self.cells.iter().map(Cells::estimated_bytes).sum();
        picks.clear();
        self.picks = picks;
        Ok(value_bytes)
    }

    #[inline]
    fn push_entry(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        if trailer.operation() == Operation::Merge {
            return Err(Error::invalid("columnar files hold no merge operands"));
        }
        self.entries.keys.extend_from_slice(key);
        self.entries.key_ends.push(self.entries.keys.len());
        self.entries.trailers.push(trailer);
        self.key_bytes += key.len();
        Ok(())
    }

    /// The next entry, which takes so many bytes packed, has all of its cells.
    #[inline]
    fn complete_entry(&mut self, len: usize) {
        self.complete += 1;
        // An entry counts even if key and value are empty.
        self.block_bytes += len.max(1);
    }

    /// About the bytes of the blocks. Entries still to be gathered count as those before them.
    #[inline]
    pub(crate) fn estimated_bytes(&self) -> u64 {
        let waiting = self.cells_bytes * self.picks.len() / self.complete.max(1);
        (self.cells_bytes + waiting + self.key_bytes + self.complete + self.picks.len()) as u64
    }

    /// All entries are in, and the last block was ended: makes the dictionaries.
    pub(crate) fn finish(self) -> FinishedColumns {
        debug_assert!(self.block_bytes == 0 && self.picks.is_empty(), "the last block was ended");
        let finish = |cells: Cells| if cells.waits_for_all() { Some(cells.finish()) } else { None };
        FinishedColumns::new(self.cells.into_iter().map(finish).collect(), self.zones, self.blocks)
    }
}

/// What the header of a block says of these entries.
fn facts(entries: &Entries, held: Range<usize>) -> BlockFacts {
    let trailers = &entries.trailers[held.clone()];
    let sequences = trailers.iter().map(|trailer| trailer.sequence());
    let (min_sequence, max_sequence) =
        (sequences.clone().min().unwrap_or_default(), sequences.max().unwrap_or_default());
    let repeats = held.clone().skip(1).any(|at| entries.key(at) == entries.key(at - 1));
    let all_puts = trailers.iter().all(|trailer| trailer.operation() == Operation::Put);
    BlockFacts { rows: held.len() as u32, min_sequence, max_sequence, unique_keys: !repeats, all_puts }
}

fn encode_trailers(trailers: &[Trailer], out: &mut Vec<u8>) -> Result<()> {
    let mut cells = Cells::new(&ColumnType::UInt64);
    for trailer in trailers {
        cells.push(ColumnState::Value(DatumRef::UInt64(trailer.to_u64())))?;
    }
    cells.encode_page(0..trailers.len(), out)
}
