//! Point reads of columnar files, in steps.
//!
//! A whole row lies in one file for each group, and in each in a page for every column, so that a read waits for memory far
//! longer than it computes. Each step asks the processor for what the next one looks at; who reads several files takes each
//! step in all of them before the next, and their cache misses overlap.
//!
//! 1. [`SstFile::start_cells`] finds the block that may hold the key and asks for its header.
//! 2. [`CellLookup::advance`] reads the header and asks for the heads of the pages of keys, trailers and wanted columns.
//! 3. Again, it guesses the row from the smallest and the largest key and asks for the keys about it.
//! 4. Again, it finds the row in the keys and asks for its cells.
//! 5. [`CellLookup::visit`] gives the row's versions, as packed fragments put together from the cells. They go on in the next
//!    blocks where the key is also the separator behind the block.

use std::ops::ControlFlow;

use mycelium_base::prefetch::{CACHE_LINE, prefetch};
use mycelium_base::{ReadCounters, Result, SequenceNumber, Trailer};
use mycelium_encoding::{ColumnState, PackedLayout, PackedScratch};

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
    /// A text that was expanded.
    text: Vec<u8>,
}

/// How far a lookup is.
#[derive(Debug)]
enum Step {
    Block,
    Header(BlockHeader),
    Keys(BlockHeader),
    /// The row from which on versions of the key lie, if it is there.
    Row(BlockHeader, Option<usize>),
}

/// A lookup of one key in a columnar file.
#[derive(Debug)]
pub struct CellLookup<'a> {
    file: &'a SstFile,
    columns: &'a FileColumns,
    layout: &'a PackedLayout,
    key: &'a [u8],
    snapshot: SequenceNumber,
    block: FoundBlock,
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
        scratch: &mut GetScratch,
        counters: &mut ReadCounters,
    ) -> Result<Option<CellLookup<'a>>> {
        let columns = self.columns()?;
        let layout = wanted.unwrap_or_else(|| columns.layout());
        let Some(block) = self.block_of((key, snapshot), None, scratch, counters)? else {
            return Ok(None);
        };
        prefetch_header(&block.bytes, columns.parts().len());
        Ok(Some(CellLookup { file: self, columns, layout, key, snapshot, block, step: Step::Block }))
    }
}

/// Asks for the lines of a header behind the first, which came with the block's reference count.
#[inline]
fn prefetch_header(block: &[u8], columns: usize) {
    let header = block.get(..BlockHeader::len(columns)).unwrap_or_default();
    header.iter().step_by(CACHE_LINE).skip(1).for_each(|byte| prefetch(byte));
}

impl CellLookup<'_> {
    /// Steps before [`CellLookup::visit`], each of which looks at memory that the one before it asked for.
    pub const STEPS: usize = 3;

    /// Takes the next step, if there is one before [`CellLookup::visit`].
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where the block is malformed.
    #[inline]
    pub fn advance(&mut self) -> Result<()> {
        let next = match &self.step {
            Step::Block => self.read_header().map(Step::Header),
            Step::Header(header) => self.guess_row(header).map(|()| Step::Keys(*header)),
            Step::Keys(header) => self.find_row(header).map(|row| Step::Row(*header, row)),
            Step::Row(..) => return Ok(()),
        };
        self.step = next.map_err(|e| malformed_part(self.file.path(), "data block", self.block.offset, e))?;
        Ok(())
    }

    fn read_header(&self) -> Result<BlockHeader> {
        let header = BlockHeader::parse_in_memory(&self.block.bytes, self.columns.parts().len())?;
        header.prefetch_heads(&self.block.bytes, self.positions());
        Ok(header)
    }

    fn guess_row(&self, header: &BlockHeader) -> Result<()> {
        header.keys(&self.block.bytes)?.prefetch(self.key);
        Ok(())
    }

    fn find_row(&self, header: &BlockHeader) -> Result<Option<usize>> {
        let (row, is_there) = header.keys(&self.block.bytes)?.find(self.key)?;
        if is_there {
            header.prefetch_cells(&self.block.bytes, row, self.positions());
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
            self.advance()?;
            let Step::Row(header, row) = &self.step else { continue };
            let Some(row) = row else { return Ok(()) };
            let is_done = self.visit_rows((header, *row), &mut scratch.columns, visit);
            let is_done = is_done.map_err(|e| malformed_part(self.file.path(), "data block", self.block.offset, e))?;
            let Some(next) = self.block.next.filter(|_| is_done.is_continue()) else { return Ok(()) };
            let found = self.file.block_of((self.key, self.snapshot), Some(next), scratch, counters)?;
            let Some(block) = found else { return Ok(()) };
            (self.block, self.step) = (block, Step::Block);
        }
    }

    fn visit_rows<F>(
        &self,
        (header, first): (&BlockHeader, usize),
        scratch: &mut ColumnScratch,
        visit: &mut F,
    ) -> Result<ControlFlow<()>>
    where
        F: FnMut(Trailer, &[u8]) -> ControlFlow<()> + ?Sized,
    {
        for row in first..header.rows() {
            if row > first && (header.facts.unique_keys || !header.keys(&self.block.bytes)?.repeats(row)?) {
                return Ok(ControlFlow::Break(()));
            }
            let trailer = header.trailer(&self.block.bytes, row, self.file.options.sequence_override)?;
            if trailer.sequence() > self.snapshot {
                continue;
            }
            scratch.value.clear();
            if has_columns(trailer) {
                self.put_fragment(header, row, scratch)?;
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

    fn put_fragment(&self, header: &BlockHeader, row: usize, scratch: &mut ColumnScratch) -> Result<()> {
        let slot = |column: usize| {
            let position = self.columns.position(column)?;
            header.slot(&self.block.bytes, (position, row), &self.columns.parts()[position].kind)
        };
        if self.layout.encode_slots(slot, &mut scratch.value).is_some() {
            return Ok(());
        }
        let codings = self.file.codings(self.columns, self.layout)?;
        let ColumnScratch { value, packed, text } = scratch;
        let show = |column: usize, put: &mut dyn FnMut(ColumnState<'_>)| {
            let position = self.columns.position(column).ok_or_else(|| lacking(column))?;
            let coding = codings.get(position).and_then(Option::as_ref);
            let kind = &self.columns.parts()[position].kind;
            header.cell(&self.block.bytes, (position, row), (kind, coding), text).map(put)
        };
        self.layout.encode_cells(show, packed, value)
    }
}
