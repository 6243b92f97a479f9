//! Point reads of columnar files, in steps.
//!
//! A whole row lies in one file for each group, and in each in a page for every column, so that a read waits for memory
//! far longer than it computes. Each step asks the processor for what the next one looks at; who reads several files
//! takes each step in all of them before the next, and their cache misses overlap.
//!
//! 1. [`SstFile::start_cells`] searches the heads of the index until few are left, and asks for these.
//! 2. [`CellLookup::advance`] finds the number of the block that may hold the key and asks for its entry in the index
//!    and its slot.
//! 3. Again, it reads the entry and asks for the block that is in the slot.
//! 4. Again, it takes the block out of the cache, with the heads of its pages ([`HeadedBlock`]), and asks for the keys
//!    about the row where the key would be if they were spread evenly.
//! 5. Again, it finds the row in the keys and asks for its cells.
//! 6. [`CellLookup::visit`] gives the row's versions, as packed fragments put together from the cells. They go on in
//!    the next blocks where the key is also the separator behind the block. Or [`CellLookup::whole_row`] lends the
//!    cells of the newest version, so that who has looked in all groups packs the row once, from where its cells lie.

use std::ops::ControlFlow;

use mycelium_base::{Error, Operation, ReadCounters, Result, SequenceNumber, Trailer};
use mycelium_encoding::{ColumnState, PackedLayout};

use super::file::FileColumns;
use super::heads::HeadedBlock;
use super::position::{has_columns, lacking};
use crate::get::{ColumnScratch, FoundBlock, GetScratch};
use crate::index::HeadRange;
use crate::reader::{SstFile, malformed_part};

/// Room for a fragment at first: most need no more.
const FIRST_BYTES: usize = 256;

/// How far a lookup is.
#[derive(Debug)]
enum Step {
    Heads(HeadRange),
    /// The first block that may hold versions of the key.
    Entry(usize),
    Block(FoundBlock),
    Keys(HeldBlock),
    /// The row from which on versions of the key lie, if it is there.
    Row(HeldBlock, Option<usize>),
    /// There are no more versions.
    Done,
}

/// A block in memory.
#[derive(Debug)]
struct HeldBlock {
    number: usize,
    offset: u64,
    block: HeadedBlock,
}

/// The cells of one version of a row in a columnar file.
#[derive(Clone, Copy, Debug)]
pub struct RowCells<'a> {
    block: &'a HeadedBlock,
    columns: &'a FileColumns,
    row: usize,
}

impl RowCells<'_> {
    /// That of a column as packed rows have it in its slot, and anything behind it; `None` where the file has no such
    /// column, or its cells are no integers or may be absent. O(1).
    #[inline]
    pub fn slot(&self, column: usize) -> Option<u64> {
        let position = self.columns.position(column)?;
        self.block.slot((position, self.row), &self.columns.parts()[position].kind)
    }
}

/// A lookup of one key in a columnar file.
#[derive(Debug)]
pub struct CellLookup<'a> {
    file: &'a SstFile,
    columns: &'a FileColumns,
    layout: &'a PackedLayout,
    key: &'a [u8],
    snapshot: SequenceNumber,
    step: Step,
}

impl SstFile {
    /// Begins to look for the versions of `key` in a columnar file whose sequence number is at most `snapshot`.
    /// `wanted` are columns of the file (`None`: all).
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where the file is damaged or not columnar; failures to read.
    pub fn start_cells<'a>(
        &'a self,
        (key, snapshot): (&'a [u8], SequenceNumber),
        wanted: Option<&'a PackedLayout>,
    ) -> Result<CellLookup<'a>> {
        let columns = self.columns()?;
        let layout = wanted.unwrap_or_else(|| columns.layout());
        let range = self.index(&mut None)?.narrow(key);
        Ok(CellLookup { file: self, columns, layout, key, snapshot, step: Step::Heads(range) })
    }
}

impl CellLookup<'_> {
    /// Steps before [`CellLookup::visit`], each of which looks at memory that the one before it asked for.
    pub const STEPS: usize = 4;

    /// Takes the next step, if there is one before [`CellLookup::visit`].
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where the block is malformed; failures to read.
    #[inline]
    pub fn advance(&mut self, scratch: &mut GetScratch, counters: &mut ReadCounters) -> Result<()> {
        self.step = match std::mem::replace(&mut self.step, Step::Done) {
            Step::Heads(range) => Step::Entry(self.find_entry(range)?),
            Step::Entry(number) => self.find_block(number, scratch, counters)?,
            Step::Block(found) => Step::Keys(self.take_block(found, scratch, counters)?),
            Step::Keys(block) => {
                let row = self.find_row(&block).map_err(|e| self.malformed(&block, e))?;
                Step::Row(block, row)
            }
            last @ (Step::Row(..) | Step::Done) => last,
        };
        Ok(())
    }

    #[cold]
    fn malformed(&self, block: &HeldBlock, cause: Error) -> Error {
        malformed_part(self.file.path(), "data block", block.offset, cause)
    }

    fn find_entry(&self, range: HeadRange) -> Result<usize> {
        let mut held = None;
        let index = self.file.index(&mut held)?;
        let number = index.seek_among(self.key, range);
        index.prefetch_entry(number);
        if let Some(slots) = &self.file.slots {
            slots.prefetch(number);
        }
        Ok(number)
    }

    fn find_block(&self, from: usize, scratch: &GetScratch, counters: &mut ReadCounters) -> Result<Step> {
        let Some(found) = self.file.block_of((self.key, self.snapshot), Some(from), scratch, counters)? else {
            return Ok(Step::Done);
        };
        if let Some(slots) = &self.file.slots {
            slots.prefetch_block(found.number);
        }
        Ok(Step::Block(found))
    }

    fn take_block(
        &self,
        found: FoundBlock,
        scratch: &mut GetScratch,
        counters: &mut ReadCounters,
    ) -> Result<HeldBlock> {
        let (number, offset) = (found.number, found.entry.offset);
        let open = |bytes| {
            let opened = HeadedBlock::open(bytes, self.columns);
            opened.map_err(|e| malformed_part(self.file.path(), "data block", offset, e))
        };
        let held = HeldBlock { number, offset, block: self.file.opened_block(found, open, scratch, counters)? };
        let keys = held.block.prefetch_keys(self.key, self.positions());
        keys.map_err(|e| self.malformed(&held, e))?;
        Ok(held)
    }

    fn find_row(&self, HeldBlock { block, .. }: &HeldBlock) -> Result<Option<usize>> {
        let row = block.row_of(self.key)?;
        if let Some(row) = row {
            block.prefetch_cells(row, self.positions());
        }
        Ok(row)
    }

    /// The newest version of the key in the file, if the snapshot sees it, it is a whole row, and the steps before
    /// [`CellLookup::visit`] are taken.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where the block is malformed.
    #[inline]
    pub fn whole_row(&self) -> Result<Option<RowCells<'_>>> {
        let Step::Row(held, Some(row)) = &self.step else { return Ok(None) };
        let (block, row) = (&held.block, *row);
        let trailer = block.header().trailer(block.bytes(), row, self.file.options.sequence_override);
        let trailer = trailer.map_err(|e| self.malformed(held, e))?;
        let is_whole = trailer.operation() == Operation::Put && trailer.sequence() <= self.snapshot;
        Ok(is_whole.then_some(RowCells { block, columns: self.columns, row }))
    }

    /// The versions of the key that the snapshot sees, newest first, until `visit` breaks.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where a block is malformed; failures to read.
    #[inline]
    pub fn visit<F>(mut self, scratch: &mut GetScratch, counters: &mut ReadCounters, visit: &mut F) -> Result<()>
    where
        F: FnMut(Trailer, &[u8]) -> ControlFlow<()> + ?Sized,
    {
        loop {
            let (block, row) = match &self.step {
                Step::Row(block, Some(row)) => (block, *row),
                Step::Row(_, None) | Step::Done => return Ok(()),
                _ => {
                    self.advance(scratch, counters)?;
                    continue;
                }
            };
            let is_done = self.visit_rows((block, row), &mut scratch.columns, visit);
            let is_done = is_done.map_err(|e| self.malformed(block, e))?;
            let next = if is_done.is_continue() { self.file.block_after(block.number, self.key)? } else { None };
            let Some(next) = next else { return Ok(()) };
            self.step = Step::Entry(next);
        }
    }

    fn visit_rows<F>(
        &self,
        (block, first): (&HeldBlock, usize),
        scratch: &mut ColumnScratch,
        visit: &mut F,
    ) -> Result<ControlFlow<()>>
    where
        F: FnMut(Trailer, &[u8]) -> ControlFlow<()> + ?Sized,
    {
        let (bytes, header) = (block.block.bytes(), block.block.header());
        for row in first..header.rows() {
            if row > first && (header.facts.unique_keys || !header.keys(bytes)?.repeats(row)?) {
                return Ok(ControlFlow::Break(()));
            }
            let trailer = header.trailer(bytes, row, self.file.options.sequence_override)?;
            if trailer.sequence() > self.snapshot {
                continue;
            }
            scratch.value.clear();
            if scratch.value.capacity() == 0 {
                scratch.value.reserve(FIRST_BYTES);
            }
            if has_columns(trailer) {
                self.put_fragment(&block.block, row, scratch)?;
            }
            if visit(trailer, &scratch.value).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Where the wanted columns lie among the file's.
    fn positions(&self) -> impl Iterator<Item = usize> {
        self.layout.columns().filter_map(|column| self.columns.position(column))
    }

    fn put_fragment(&self, block: &HeadedBlock, row: usize, scratch: &mut ColumnScratch) -> Result<()> {
        let cells = RowCells { block, columns: self.columns, row };
        if self.layout.encode_slots(|column| cells.slot(column), &mut scratch.value).is_some() {
            return Ok(());
        }
        let codings = self.file.codings(self.columns, self.layout)?;
        let ColumnScratch { value, packed, text } = scratch;
        let show = |column: usize, put: &mut dyn FnMut(ColumnState<'_>)| {
            let position = self.columns.position(column).ok_or_else(|| lacking(column))?;
            let coding = codings.get(position).and_then(Option::as_ref);
            let kind = &self.columns.parts()[position].kind;
            block.header().cell(block.bytes(), (position, row), (kind, coding), text).map(put)
        };
        self.layout.encode_cells(show, packed, value)
    }
}
