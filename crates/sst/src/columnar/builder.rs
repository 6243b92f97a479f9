//! Builds the blocks of a columnar file (see `block`).
//!
//! 1. `add` takes a packed fragment apart: key, trailer and each cell go to buffers of their own. A block ends where its
//!    entries, packed, would have come nearest to the block size. `add_cells` takes a row of another file's block instead,
//!    whose cells are gathered with those of others (see `picks`); where blocks end is the same.
//! 2. When the file is complete its dictionaries are made, which need all of its values (LSM-OPD §3).
//! 3. Then the blocks are encoded one after the other, each page with what suits its cells best.
//!
//! Memory: the file's entries, hence as much as a file may grow to.

use std::ops::Range;
use std::sync::Arc;

use mycelium_base::{ColumnSet, Error, Operation, Result, Trailer};
use mycelium_encoding::page::{Cells, Dictionary, FinishedCells};
use mycelium_encoding::{ColumnState, ColumnType, DatumRef, PackedLayout};

use super::block::{ALL_PUTS, HEADER_LEN, MARK, UNIQUE_KEYS};
use super::keys::encode_keys;
use super::picks::{Pick, Picks};
use super::zones::ZoneMapBuilder;
use crate::block::BlockFacts;

/// Gathers the entries of one file.
#[derive(Debug)]
pub(crate) struct ColumnarBuilder {
    layout: Arc<PackedLayout>,
    block_size: usize,
    /// Schema columns, ascending.
    columns: Vec<usize>,
    cells: Vec<Cells>,
    entries: Entries,
    /// The last entries, whose cells are still to be gathered.
    picks: Picks,
    /// By column: which of a block's pages it has.
    pages: Vec<usize>,
    /// Entries whose cells are there.
    complete: usize,
    /// About the bytes of their pages.
    cells_bytes: usize,
    /// Bytes of the unfinished block's entries.
    block_bytes: usize,
}

fn has_columns(trailer: Trailer) -> bool {
    matches!(trailer.operation(), Operation::Put | Operation::Patch)
}

/// Keys and trailers of all entries, and where blocks end.
#[derive(Debug, Default)]
struct Entries {
    keys: Vec<u8>,
    key_ends: Vec<usize>,
    trailers: Vec<Trailer>,
    /// Rows at which blocks end.
    block_ends: Vec<usize>,
}

impl Entries {
    fn key(&self, row: usize) -> &[u8] {
        let start = row.checked_sub(1).map_or(0, |before| self.key_ends[before]);
        &self.keys[start..self.key_ends[row]]
    }

    fn block(&self, block: usize) -> Range<usize> {
        let start = block.checked_sub(1).map_or(0, |before| self.block_ends[before]);
        start..self.block_ends[block]
    }
}

impl ColumnarBuilder {
    /// A builder of files with these columns, whose values come packed as `layout` says.
    pub(crate) fn new(layout: Arc<PackedLayout>, columns: &ColumnSet, block_size: usize) -> Self {
        let columns: Vec<usize> = columns.iter().collect();
        let cells = columns.iter().map(|&column| Cells::new(&layout.schema().columns()[column].ty)).collect();
        // A block's pages are in the physical order of its layout.
        let page_of = |&column: &usize| layout.columns().position(|found| found == column).unwrap_or_default();
        let pages = columns.iter().map(page_of).collect();
        let (entries, picks) = (Entries::default(), Picks::default());
        Self { layout, block_size, columns, cells, entries, picks, pages, complete: 0, cells_bytes: 0, block_bytes: 0 }
    }

    /// Whether the block is to end before an entry of so many bytes.
    pub(crate) fn ends_block(&self, len: usize) -> bool {
        let over = (self.block_bytes + len).saturating_sub(self.block_size);
        over > 0 && self.block_bytes > 0 && over > self.block_size.saturating_sub(self.block_bytes)
    }

    /// Ends the block, if it has an entry; the bytes of its entries.
    pub(crate) fn end_block(&mut self) -> Option<u64> {
        let bytes = std::mem::take(&mut self.block_bytes);
        if bytes > 0 {
            self.entries.block_ends.push(self.complete);
        }
        (bytes > 0).then_some(bytes as u64)
    }

    /// Adds an entry. The caller keeps entries in order and lengths within the limits, and has gathered what was picked.
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

    /// Adds an entry whose cells are those of a row of a block. Its block has the columns of this file; rows of one block come
    /// in order. Whether they should be gathered now.
    #[inline]
    pub(crate) fn add_cells(&mut self, key: &[u8], trailer: Trailer, pick: Pick<'_>) -> Result<bool> {
        self.push_entry(key, trailer)?;
        self.picks.push(pick);
        Ok(self.picks.are_due(self.complete))
    }

    /// Gathers the cells of what was picked, column by column, and ends blocks where they end. What the values would take
    /// packed is returned.
    pub(crate) fn gather(&mut self) -> Result<u64> {
        if self.picks.is_empty() {
            return Ok(0);
        }
        let mut picks = std::mem::take(&mut self.picks);
        picks.place();
        for (&page, cells) in self.pages.iter().zip(&mut self.cells) {
            picks.gather(page, cells)?;
        }
        let mut value_bytes = 0;
        for shape in picks.shapes() {
            let has_value = has_columns(self.entries.trailers[self.complete]);
            let value_len = if has_value { self.layout.packed_len(shape) } else { 0 };
            let len = self.entries.key(self.complete).len() + value_len;
            if self.ends_block(len) {
                self.end_block();
            }
            self.complete_entry(len);
            value_bytes += value_len as u64;
        }
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
        (self.cells_bytes + waiting + self.entries.keys.len() + self.entries.trailers.len()) as u64
    }

    /// All entries are in: makes the dictionaries.
    pub(crate) fn finish(mut self) -> FinishedColumns {
        debug_assert!(self.block_bytes == 0 && self.picks.is_empty(), "the last block was ended");
        let schema = self.layout.schema().clone();
        let zones = self.columns.iter().map(|&column| ZoneMapBuilder::new(&schema.columns()[column].ty)).collect();
        let cells = std::mem::take(&mut self.cells).into_iter().map(Cells::finish).collect();
        FinishedColumns { cells, entries: self.entries, zones }
    }
}

/// The complete entries of a file, to be encoded block by block.
#[derive(Debug)]
pub(crate) struct FinishedColumns {
    cells: Vec<FinishedCells>,
    entries: Entries,
    zones: Vec<ZoneMapBuilder>,
}

impl FinishedColumns {
    pub(crate) fn block_count(&self) -> usize {
        self.entries.block_ends.len()
    }

    pub(crate) fn first_key(&self, block: usize) -> &[u8] {
        self.entries.key(self.entries.block(block).start)
    }

    pub(crate) fn last_key(&self, block: usize) -> &[u8] {
        self.entries.key(self.entries.block(block).end - 1)
    }

    /// Appends a block. To be called once for each, in order.
    pub(crate) fn encode(&mut self, block: usize, out: &mut Vec<u8>) -> Result<BlockFacts> {
        let rows = self.entries.block(block);
        let start = out.len();
        let facts = self.put_header(rows.clone(), out);
        let mut place = start + HEADER_LEN;
        let mut begin_page = |out: &mut Vec<u8>| {
            let at = (out.len() - start) as u32;
            out[place..place + 4].copy_from_slice(&at.to_le_bytes());
            place += 4;
        };
        begin_page(out);
        encode_keys(rows.clone().map(|row| self.entries.key(row)), out)?;
        begin_page(out);
        let mut trailers = Cells::new(&ColumnType::UInt64);
        for trailer in &self.entries.trailers[rows.clone()] {
            trailers.push(ColumnState::Value(DatumRef::UInt64(trailer.to_u64())))?;
        }
        trailers.finish().encode(0..rows.len(), out)?;
        for (cells, zones) in self.cells.iter().zip(&mut self.zones) {
            begin_page(out);
            zones.push(&cells.encode(rows.clone(), out)?)?;
        }
        begin_page(out);
        Ok(facts)
    }

    /// The header, and room for the places of the pages.
    fn put_header(&self, rows: Range<usize>, out: &mut Vec<u8>) -> BlockFacts {
        let trailers = &self.entries.trailers[rows.clone()];
        let sequences = trailers.iter().map(|trailer| trailer.sequence());
        let (min_sequence, max_sequence) =
            (sequences.clone().min().unwrap_or_default(), sequences.max().unwrap_or_default());
        let repeats = rows.clone().skip(1).any(|row| self.entries.key(row) == self.entries.key(row - 1));
        let all_puts = trailers.iter().all(|trailer| trailer.operation() == Operation::Put);
        let facts = BlockFacts { rows: rows.len() as u32, min_sequence, max_sequence, unique_keys: !repeats, all_puts };
        let flags = if repeats { 0 } else { UNIQUE_KEYS } | if all_puts { ALL_PUTS } else { 0 };
        out.extend_from_slice(&[MARK, flags]);
        out.extend_from_slice(&(self.cells.len() as u16).to_le_bytes());
        out.extend_from_slice(&(rows.len() as u32).to_le_bytes());
        out.extend_from_slice(&min_sequence.to_le_bytes());
        out.extend_from_slice(&max_sequence.to_le_bytes());
        out.resize(out.len() + 4 * (self.cells.len() + 3), 0);
        facts
    }

    /// The dictionary of each column, and its zone map encoded.
    pub(crate) fn into_parts(self) -> Result<Vec<(Option<Dictionary>, Vec<u8>)>> {
        let columns = self.cells.into_iter().zip(self.zones);
        columns.map(|(cells, zones)| Ok((cells.dictionary().cloned(), zones.encode()?))).collect()
    }
}
