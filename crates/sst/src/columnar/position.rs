//! Positions in columnar blocks.
//!
//! An entry's value is the packed fragment of the wanted columns that the file has, put together from their cells. The
//! other columns' pages are not looked at.

use std::sync::Arc;

use mycelium_base::{Error, Operation, Result, SequenceNumber, Trailer};
use mycelium_encoding::page::{Page, TextCoding};
use mycelium_encoding::{ColumnState, PackedLayout, PackedScratch};

use super::block::{ColumnBlock, prefetch_pages};
use super::file::FileColumns;
use super::picks::Pick;
use crate::block::{BlockFacts, BlockPosition, KeyBuffer, Step};
use crate::reader::SstFile;

/// What is wanted of every entry of a columnar file.
#[derive(Clone, Debug)]
pub enum WantedColumns {
    /// Fragments of all columns of the file.
    All,
    /// Fragments of the columns of this layout, which the file must have.
    Of(Arc<PackedLayout>),
    /// The same, but only when they are asked for ([`ColumnPosition::fragment`]): who reads whole blocks does not.
    Blocks(Arc<PackedLayout>),
}

impl WantedColumns {
    fn layout(&self) -> Option<&Arc<PackedLayout>> {
        match self {
            Self::All => None,
            Self::Of(layout) | Self::Blocks(layout) => Some(layout),
        }
    }
}

/// Memory of making fragments.
#[derive(Default, Debug)]
struct FragmentScratch {
    packed: PackedScratch,
    /// A text that was expanded.
    text: Vec<u8>,
}

/// The wanted columns of one file.
#[derive(Debug)]
struct Wanted {
    layout: Arc<PackedLayout>,
    /// Positions among the file's columns, in the layout's order of columns.
    positions: Vec<usize>,
    /// By schema column, its place in `positions`.
    places: Vec<usize>,
}

/// In place of a column that is not wanted.
const NOT_WANTED: usize = usize::MAX;

impl Wanted {
    fn of(columns: &FileColumns, wanted: Option<&Arc<PackedLayout>>) -> Self {
        let layout = wanted.unwrap_or_else(|| columns.layout()).clone();
        let mut places = vec![NOT_WANTED; layout.schema().columns().len()];
        let mut positions = Vec::new();
        for column in layout.columns() {
            if let Some(position) = columns.position(column) {
                places[column] = positions.len();
                positions.push(position);
            }
        }
        Self { layout, positions, places }
    }

    /// Appends the fragment of a row.
    fn fragment(&self, pages: &[Page<'_>], row: usize, scratch: &mut FragmentScratch, out: &mut Vec<u8>) -> Result<()> {
        let page_of = |column: usize| self.places.get(column).and_then(|&place| pages.get(place));
        write_cells(&self.layout, page_of, row, scratch, out)
    }
}

/// Appends the packed fragment of a row, whose cells are in these pages.
fn write_cells<'p>(
    layout: &PackedLayout,
    page_of: impl Fn(usize) -> Option<&'p Page<'p>>,
    row: usize,
    scratch: &mut FragmentScratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let FragmentScratch { packed, text } = scratch;
    let show = |column: usize, put: &mut dyn FnMut(ColumnState<'_>)| match page_of(column) {
        Some(page) => page.expanded_cell(row, text).map(put),
        None => Err(lacking(column)),
    };
    layout.encode_cells(show, packed, out)
}

/// Appends the fragment of a pick, which its cursor's value would have been: for who kept it and needs the value after
/// all. `layout` is that of the cursor. O(columns²).
///
/// # Errors
/// `ErrorKind::Corruption` where a cell is malformed.
pub fn write_fragment(layout: &PackedLayout, (block, row): Pick<'_>, out: &mut Vec<u8>) -> Result<()> {
    block.read(|pages| {
        let page_of = |column| layout.columns().position(|found| found == column).and_then(|place| pages.get(place));
        write_cells(layout, page_of, row, &mut FragmentScratch::default(), out)
    })
}

pub(super) fn has_columns(trailer: Trailer) -> bool {
    matches!(trailer.operation(), Operation::Put | Operation::Patch)
}

/// A position in one columnar block at a time.
#[derive(Debug)]
pub struct ColumnPosition {
    /// `None` over a file of rows, whose blocks are refused.
    wanted: Option<Wanted>,
    block: Option<Arc<ColumnBlock>>,
    codings: Option<Arc<[Option<TextCoding>]>>,
    /// Takes the place of all sequence numbers.
    number: Option<SequenceNumber>,
    row: usize,
    rows: usize,
    key: KeyBuffer,
    /// The key as the page gives it.
    written: Vec<u8>,
    trailer: Trailer,
    value: Vec<u8>,
    scratch: FragmentScratch,
    /// Whether every entry's fragment is made at once.
    makes_fragments: bool,
    valid: bool,
    same_key: bool,
    /// What the last step ran into.
    failure: Option<Error>,
}

impl ColumnPosition {
    /// Stands on a row of the block.
    fn stand(&mut self, row: usize) -> Result<bool> {
        self.valid = false;
        self.same_key = false;
        let (Some(block), Some(wanted)) = (&self.block, &self.wanted) else { return Ok(false) };
        let Self { number, written, value, scratch, makes_fragments, .. } = self;
        self.trailer = block.with_pages(|pages| {
            let trailer = pages.trailers.get(row, *number)?;
            pages.keys.write(row, written)?;
            value.clear();
            if *makes_fragments && has_columns(trailer) {
                wanted.fragment(&pages.columns, row, scratch, value)?;
            }
            Ok::<_, Error>(trailer)
        })?;
        self.key.set(&self.written);
        (self.row, self.valid) = (row, true);
        Ok(true)
    }

    /// The entry's fragment, where it was not made at once.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where a cell is malformed.
    pub fn fragment(&mut self) -> Result<&[u8]> {
        if let (Some(block), Some(wanted), false, true) = (&self.block, &self.wanted, self.makes_fragments, self.valid)
        {
            let Self { value, scratch, row, trailer, .. } = self;
            value.clear();
            if has_columns(*trailer) {
                block.with_pages(|pages| wanted.fragment(&pages.columns, *row, scratch, value))?;
            }
        }
        Ok(&self.value)
    }

    /// Appends the entry's fragment, whether it was made at once or not.
    pub(crate) fn write_fragment(&self, out: &mut Vec<u8>) -> Result<()> {
        match (&self.block, &self.wanted) {
            (Some(block), Some(wanted)) if self.valid && has_columns(self.trailer) => {
                let mut scratch = FragmentScratch::default();
                block.with_pages(|pages| wanted.fragment(&pages.columns, self.row, &mut scratch, out))
            }
            _ => Ok(()),
        }
    }

    /// The block, and the row in it that the position is on.
    pub fn block(&self) -> Option<(&ColumnBlock, usize)> {
        self.shared_block().map(|(block, row)| (&**block, row))
    }

    /// The same, of a block that may be kept.
    #[inline]
    pub(crate) fn shared_block(&self) -> Option<Pick<'_>> {
        self.block.as_ref().filter(|_| self.valid).map(|block| (block, self.row))
    }

    /// To a row of the block; invalid if it has no such row.
    pub(crate) fn go_to(&mut self, row: usize) -> Result<bool> {
        if row < self.rows {
            return self.stand(row);
        }
        self.invalidate();
        Ok(false)
    }

    fn step_to_next(&mut self) -> Result<Step> {
        let next = self.row + 1;
        if next >= self.rows || self.block.is_none() {
            self.valid = false;
            return Ok(Step::End);
        }
        let repeats = match &self.block {
            Some(block) if !block.header().facts.unique_keys => block.with_pages(|pages| pages.keys.repeats(next))?,
            _ => false,
        };
        self.stand(next)?;
        self.same_key = repeats;
        Ok(Step::Moved)
    }
}

impl BlockPosition for ColumnPosition {
    type Wanted = WantedColumns;

    fn over(file: &SstFile, wanted: &WantedColumns) -> Self {
        Self {
            wanted: file.columns.as_ref().map(|columns| Wanted::of(columns, wanted.layout())),
            block: None,
            codings: None,
            number: file.options.sequence_override,
            row: 0,
            rows: 0,
            key: KeyBuffer::default(),
            written: Vec::new(),
            trailer: Trailer::OLDEST,
            value: Vec::new(),
            scratch: FragmentScratch::default(),
            makes_fragments: !matches!(wanted, WantedColumns::Blocks(_)),
            valid: false,
            same_key: false,
            failure: None,
        }
    }

    fn take_up(&mut self, file: &SstFile, bytes: Arc<[u8]>, start: usize, end: usize) -> Result<()> {
        drop(self.release());
        let columns = file.columns()?;
        let Some(wanted) = &self.wanted else { return Err(Error::corruption("a file without columns")) };
        let codings = match &self.codings {
            Some(codings) => codings.clone(),
            None => self.codings.insert(file.codings(columns, &wanted.layout)?).clone(),
        };
        let block = ColumnBlock::load(columns, codings, (bytes, start, end), (&wanted.positions, self.number))?;
        self.rows = block.rows();
        self.block = Some(Arc::new(block));
        Ok(())
    }

    fn prefetch(&self, bytes: &[u8]) {
        if let Some(wanted) = &self.wanted {
            prefetch_pages(bytes, &wanted.positions);
        }
    }

    fn release(&mut self) -> Option<Arc<[u8]>> {
        (self.valid, self.same_key) = (false, false);
        self.block.take().and_then(Arc::into_inner).map(ColumnBlock::into_bytes)
    }

    fn is_loaded(&self) -> bool {
        self.block.is_some()
    }

    fn facts(&self) -> Option<BlockFacts> {
        self.block.as_ref().map(|block| block.facts())
    }

    fn value_area(&self) -> Option<usize> {
        None
    }

    #[inline]
    fn valid(&self) -> bool {
        self.valid
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.key.get()
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.trailer
    }

    #[inline]
    fn value(&self) -> &[u8] {
        &self.value
    }

    #[inline]
    fn same_key(&self) -> bool {
        self.same_key
    }

    fn set_same_key(&mut self, same: bool) {
        self.same_key = same;
    }

    fn invalidate(&mut self) {
        (self.valid, self.same_key) = (false, false);
    }

    #[inline]
    fn at_end(&self) -> bool {
        self.block.is_none() || self.row + 1 >= self.rows
    }

    fn swap_key(&mut self, other: &mut KeyBuffer) {
        std::mem::swap(&mut self.key, other);
    }

    fn seek_to_first(&mut self) -> Result<bool> {
        self.stand(0)
    }

    fn seek_to_last(&mut self) -> Result<bool> {
        self.stand(self.rows.saturating_sub(1))
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<bool> {
        self.valid = false;
        let Some(block) = &self.block else { return Ok(false) };
        let number = self.number;
        let row = block.with_pages(|pages| {
            let mut row = pages.keys.seek(key)?;
            // Versions of the key that are newer than the place are passed over.
            let mut at = Vec::new();
            while row < block.rows() && pages.trailers.get(row, number)? > trailer {
                pages.keys.write(row, &mut at)?;
                if at != key {
                    break;
                }
                row += 1;
            }
            Ok::<_, Error>(row)
        })?;
        if row < self.rows { self.stand(row) } else { Ok(false) }
    }

    fn step(&mut self) -> Step {
        match self.step_to_next() {
            Ok(step) => step,
            Err(error) => {
                self.failure = Some(error);
                Step::Malformed
            }
        }
    }

    fn prev(&mut self) -> Result<bool> {
        match self.row.checked_sub(1) {
            Some(row) => self.stand(row),
            None => {
                self.invalidate();
                Ok(false)
            }
        }
    }

    #[cold]
    fn malformed_here(&mut self) -> Error {
        self.failure.take().unwrap_or_else(|| Error::corruption(format!("row {} of the block", self.row)))
    }
}

#[cold]
pub(super) fn lacking(column: usize) -> Error {
    Error::corruption(format!("a columnar file lacks column {column}"))
}
