//! Point reads of columnar files, in steps.
//!
//! A whole row lies in one file for each group, and in each in a page for every column, so that a read waits for memory far
//! longer than it computes. Each step asks the processor for what the next one looks at; who reads several files takes each
//! step in all of them before the next, and their cache misses overlap.
//!
//! 1. [`SstFile::start_cells`] finds the block that may hold the key and asks for its slot.
//! 2. [`CellLookup::advance`] asks for the block that is in the slot.
//! 3. Again, it takes the block out of the cache, reads its header and asks for the heads of the pages of keys, trailers and
//!    wanted columns.
//! 4. Again, it guesses the row from the smallest and the largest key and asks for the keys about it.
//! 5. Again, it finds the row in the keys and asks for its cells.
//! 6. [`CellLookup::visit`] gives the row's versions, as packed fragments put together from the cells. They go on in the next
//!    blocks where the key is also the separator behind the block.

use std::ops::ControlFlow;
use std::sync::Arc;

use mycelium_base::{Error, ReadCounters, Result, SequenceNumber, Trailer};
use mycelium_encoding::{PackedLayout, PackedScratch};

use super::block::BlockHeader;
use super::file::FileColumns;
use super::position::{has_columns, lacking};
use crate::get::{FoundBlock, GetScratch};
use crate::reader::{SstFile, malformed_part};

/// Memory of point reads, reused.
#[derive(Default, Debug)]
pub(crate) struct ColumnScratch {
    value: Vec<u8>,
    packed: PackedScratch,
}

/// How far a lookup is.
#[derive(Debug)]
enum Step {
    Slot,
    Block,
    Header(HeldBlock),
    Keys(HeldBlock),
    /// The row from which on versions of the key lie, if it is there.
    Row(HeldBlock, Option<usize>),
}

/// A block in memory.
#[derive(Debug)]
struct HeldBlock {
    bytes: Arc<[u8]>,
    header: BlockHeader,
}

/// A lookup of one key in a columnar file.
#[derive(Debug)]
pub struct CellLookup<'a> {
    file: &'a SstFile,
    columns: &'a FileColumns,
    layout: &'a PackedLayout,
    key: &'a [u8],
    snapshot: SequenceNumber,
    found: FoundBlock,
    step: Step,
}

impl SstFile {
    /// Finds the block of a columnar file that may hold versions of `key` whose sequence number is at most `snapshot`; `None` if
    /// there is none. `wanted` are columns of the file (`None`: all).
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where the file is damaged or not columnar; failures to read.
    pub fn start_cells<'a>(
        &'a self,
        (key, snapshot): (&'a [u8], SequenceNumber),
        wanted: Option<&'a PackedLayout>,
        scratch: &GetScratch,
        counters: &mut ReadCounters,
    ) -> Result<Option<CellLookup<'a>>> {
        let columns = self.columns()?;
        let layout = wanted.unwrap_or_else(|| columns.layout());
        let Some(found) = self.block_of((key, snapshot), None, scratch, counters)? else {
            return Ok(None);
        };
        if let Some(slots) = &self.slots {
            slots.prefetch(found.number);
        }
        Ok(Some(CellLookup { file: self, columns, layout, key, snapshot, found, step: Step::Slot }))
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
        let next = match std::mem::replace(&mut self.step, Step::Slot) {
            Step::Slot => {
                if let Some(slots) = &self.file.slots {
                    slots.prefetch_block(self.found.number);
                }
                Ok(Step::Block)
            }
            Step::Block => {
                let bytes = self.file.found_block(self.found, scratch, counters)?;
                self.read_header(bytes).map(Step::Header)
            }
            Step::Header(block) => self.guess_row(&block).map(|()| Step::Keys(block)),
            Step::Keys(block) => self.find_row(&block).map(|row| Step::Row(block, row)),
            last @ Step::Row(..) => Ok(last),
        };
        self.step = next.map_err(|e| self.malformed(e))?;
        Ok(())
    }

    #[cold]
    fn malformed(&self, cause: Error) -> Error {
        malformed_part(self.file.path(), "data block", self.found.entry.offset, cause)
    }

    fn read_header(&self, bytes: Arc<[u8]>) -> Result<HeldBlock> {
        let header = BlockHeader::parse_in_memory(&bytes, self.columns.parts().len())?;
        header.prefetch_heads(&bytes, self.positions());
        Ok(HeldBlock { bytes, header })
    }

    fn guess_row(&self, HeldBlock { bytes, header }: &HeldBlock) -> Result<()> {
        header.keys(bytes)?.prefetch(self.key);
        Ok(())
    }

    fn find_row(&self, HeldBlock { bytes, header }: &HeldBlock) -> Result<Option<usize>> {
        let (row, is_there) = header.keys(bytes)?.find(self.key)?;
        if is_there {
            header.prefetch_cells(bytes, row, self.positions());
        }
        Ok(is_there.then_some(row))
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
            self.advance(scratch, counters)?;
            let Step::Row(block, row) = &self.step else { continue };
            let Some(row) = row else { return Ok(()) };
            let is_done = self.visit_rows((block, *row), &mut scratch.columns, visit);
            let is_done = is_done.map_err(|e| self.malformed(e))?;
            let Some(next) = self.found.next.filter(|_| is_done.is_continue()) else { return Ok(()) };
            let found = self.file.block_of((self.key, self.snapshot), Some(next), scratch, counters)?;
            let Some(found) = found else { return Ok(()) };
            (self.found, self.step) = (found, Step::Slot);
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
        let HeldBlock { bytes, header } = block;
        for row in first..header.rows() {
            if row > first && (header.facts.unique_keys || !header.keys(bytes)?.repeats(row)?) {
                return Ok(ControlFlow::Break(()));
            }
            let trailer = header.trailer(bytes, row, self.file.options.sequence_override)?;
            if trailer.sequence() > self.snapshot {
                continue;
            }
            scratch.value.clear();
            if has_columns(trailer) {
                self.put_fragment(block, row, scratch)?;
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

    fn put_fragment(&self, block: &HeldBlock, row: usize, scratch: &mut ColumnScratch) -> Result<()> {
        let HeldBlock { bytes, header } = block;
        let slot = |column: usize| {
            let position = self.columns.position(column)?;
            header.slot(bytes, (position, row), &self.columns.parts()[position].kind)
        };
        if self.layout.encode_slots(slot, &mut scratch.value).is_some() {
            return Ok(());
        }
        let dictionaries = self.file.dictionaries(self.columns, self.layout)?;
        let cell = |column: usize| {
            let position = self.columns.position(column).ok_or_else(|| lacking(column))?;
            let dictionary = dictionaries.get(position).and_then(Option::as_ref);
            header.cell(bytes, (position, row), &self.columns.parts()[position].kind, dictionary)
        };
        self.layout.encode_cells(cell, &mut scratch.packed, &mut scratch.value)
    }
}
