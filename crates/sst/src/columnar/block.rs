//! A columnar block.
//!
//! ```text
//!  0  u8         0xC1
//!  1  u8         flags: bit 0 no key occurs twice, bit 1 every entry is a `Put`
//!  2  u16        columns of the file's group
//!  4  u32        rows
//!  8  u64        smallest sequence number
//! 16  u64        largest
//! 24  u32 each   where the pages begin, counted from the block's first byte: keys, trailers, each column in ascending order;
//!                then where the last one ends, which is the block's length
//! ..  pages      keys (see `keys`), trailers (uint64: sequence number and operation), columns; cells of a `Delete` and those
//!                that a patch does not touch are absent (see `mycelium_encoding::page`)
//! ```
//!
//! A page is parsed when it is wanted, so that a block costs its header and the pages that are read.

use std::ops::Range;
use std::sync::Arc;

use mycelium_base::coding::Reader;
use mycelium_base::prefetch::{CACHE_LINE, prefetch};
use mycelium_base::{Error, MAX_SEQUENCE_NUMBER, Operation, Result, SequenceNumber, Trailer};
use mycelium_encoding::page::{IntegersHead, Page, TextCoding};
use mycelium_encoding::{ColumnState, ColumnType, DatumRef};
use self_cell::self_cell;

use super::directory::Directory;
use super::file::FileColumns;
use super::key_window::KeyWindow;
use super::keys::{KeyPage, integer_of_ordinal};
use crate::block::BlockFacts;
use crate::writer::MAX_BLOCK_SIZE;

/// The first byte; no block of rows begins with it.
pub(crate) const MARK: u8 = 0xC1;
pub(crate) const UNIQUE_KEYS: u8 = 1;
pub(crate) const ALL_PUTS: u8 = 2;
pub(crate) const HEADER_LEN: usize = 24;

/// What is before the first cell of a packed page (see `mycelium_encoding::page`); behind its last one there may be a
/// word.
const PACKED_HEAD_LEN: usize = 12;

/// The header of a block, and where its pages lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockHeader {
    start: usize,
    columns: usize,
    pub(crate) facts: BlockFacts,
}

fn malformed(what: &str) -> Error {
    Error::corruption(format!("malformed columnar block: {what}"))
}

impl BlockHeader {
    /// Bytes of the header of a block of so many columns.
    pub(crate) fn len(columns: usize) -> usize {
        HEADER_LEN + 4 * (columns + 3)
    }

    /// Of a block in memory, which may have a few bytes behind its end: how many its last byte tells, which lies far
    /// from the header, so that it is not asked.
    pub(crate) fn parse_in_memory(bytes: &[u8], columns: &FileColumns) -> Result<Self> {
        let end = Self::len(columns.parts().len()) - 4;
        let end = bytes.get(end..).and_then(|rest| rest.first_chunk::<4>()).copied().map_or(0, u32::from_le_bytes);
        Self::parse(bytes, 0, end as usize, columns)
    }

    /// Of the block `bytes[start..end]` of a file with these columns.
    pub(crate) fn parse(bytes: &[u8], start: usize, end: usize, file: &FileColumns) -> Result<Self> {
        let columns = file.parts().len();
        let block = bytes.get(start..end).unwrap_or_default();
        let mut reader = Reader::new(block);
        let (mark, flags) = (reader.u8()?, reader.u8()?);
        if mark != MARK || flags & !(UNIQUE_KEYS | ALL_PUTS) != 0 {
            return Err(malformed("mark and flags").expected(MARK, mark));
        }
        let found = usize::from(reader.u16()?);
        if found != columns {
            return Err(malformed("columns").expected(columns, found));
        }
        let rows = reader.u32()?;
        let (min_sequence, max_sequence) = (reader.u64()?, reader.u64()?);
        if rows as usize > file.most_rows() {
            return Err(malformed("rows").expected(format_args!("at most {}", file.most_rows()), rows));
        }
        if rows == 0 || min_sequence > max_sequence || max_sequence > MAX_SEQUENCE_NUMBER {
            return Err(malformed("rows and sequence numbers"));
        }
        let (unique_keys, all_puts) = (flags & UNIQUE_KEYS != 0, flags & ALL_PUTS != 0);
        let facts = BlockFacts { rows, min_sequence, max_sequence, unique_keys, all_puts };
        let mut before = Self::len(columns);
        for page in 0..=columns + 2 {
            let at = reader.u32()? as usize;
            if at < before || page == 0 && at != before {
                return Err(malformed("places of pages").expected(before, at));
            }
            before = at;
        }
        if before != block.len() {
            return Err(malformed("length").expected(before, block.len()));
        }
        Ok(Self { start, columns, facts })
    }

    pub(crate) fn rows(&self) -> usize {
        self.facts.rows as usize
    }

    /// Bytes of the block: where its last page ends.
    fn block_len(&self, bytes: &[u8]) -> usize {
        self.page(bytes, self.columns + 1).end - self.start
    }

    /// The same of a file whose sequence numbers are all this one, if it has one.
    fn numbered(mut self, number: Option<SequenceNumber>) -> Self {
        if let Some(number) = number {
            (self.facts.min_sequence, self.facts.max_sequence) = (number, number);
        }
        self
    }

    /// Where page `number` lies: 0 is keys, 1 trailers, the columns follow.
    fn page(&self, bytes: &[u8], number: usize) -> Range<usize> {
        page_of(bytes, self.start, number)
    }

    /// Bytes of page `number`.
    pub(crate) fn page_len(&self, bytes: &[u8], number: usize) -> usize {
        self.page(bytes, number).len()
    }

    /// Asks the processor for the heads of the pages of these columns, which a cell is read from, and of trailers,
    /// unless the header tells them.
    #[inline]
    pub(crate) fn prefetch_heads(&self, bytes: &[u8], columns: impl Iterator<Item = usize>) {
        let trailers = self.common_trailer(None).is_none().then_some(1);
        for number in trailers.into_iter().chain(columns.map(|column| 2 + column)) {
            if let Some(byte) = bytes.get(self.page(bytes, number).start) {
                prefetch(byte);
            }
        }
    }

    /// Asks the processor for the whole page of keys.
    pub(crate) fn prefetch_keys(&self, bytes: &[u8]) {
        let page = bytes.get(self.page(bytes, 0)).unwrap_or_default();
        page.iter().step_by(CACHE_LINE).for_each(|byte| prefetch(byte));
    }

    /// Asks the processor for the place, about, of a row's cell of the group's column at this position.
    #[inline]
    pub(crate) fn prefetch_cell(&self, bytes: &[u8], row: usize, position: usize) {
        let page = self.page(bytes, 2 + position);
        let cells = page.len().saturating_sub(PACKED_HEAD_LEN + size_of::<u64>());
        let share = row as f32 / self.rows() as f32;
        if let Some(byte) = bytes.get(page.start + PACKED_HEAD_LEN + (cells as f32 * share) as usize) {
            prefetch(byte);
        }
    }

    /// What finds a cell of the group's column at this position in the block, as [`Page::head`] gives it.
    pub(crate) fn head(&self, bytes: &[u8], position: usize, kind: &ColumnType) -> Option<IntegersHead> {
        Page::head(bytes, self.page(bytes, 2 + position), self.rows(), kind)
    }

    /// The cell of a row of the group's column at this position, as [`Page::cell_at`] gives it.
    #[inline]
    pub(crate) fn cell<'a>(
        &self,
        bytes: &'a [u8],
        (position, row): (usize, usize),
        (kind, coding): (&ColumnType, Option<&'a TextCoding>),
        text: &'a mut Vec<u8>,
    ) -> Result<ColumnState<'a>> {
        Page::cell_at(&bytes[self.page(bytes, 2 + position)], (self.rows(), row), (kind, coding), text)
    }

    pub(crate) fn keys<'a>(&self, bytes: &'a [u8]) -> Result<KeyPage<'a>> {
        KeyPage::parse(&bytes[self.page(bytes, 0)], self.rows())
    }

    /// The trailer of a row that is looked at alone, as [`TrailerPage::get`] gives it.
    pub(crate) fn trailer(&self, bytes: &[u8], row: usize, number: Option<SequenceNumber>) -> Result<Trailer> {
        if let Some(trailer) = self.common_trailer(number) {
            return Ok(trailer);
        }
        self.trailers(bytes)?.get(row, number)
    }

    /// The trailer of all rows, if they have but one.
    #[inline]
    fn common_trailer(&self, number: Option<SequenceNumber>) -> Option<Trailer> {
        let BlockFacts { min_sequence, max_sequence, all_puts, .. } = self.facts;
        let is_common = all_puts && min_sequence == max_sequence;
        is_common.then(|| Trailer::new(number.unwrap_or(min_sequence), Operation::Put))
    }

    pub(crate) fn trailers<'a>(&self, bytes: &'a [u8]) -> Result<TrailerPage<'a>> {
        Ok(TrailerPage { page: Page::parse(&bytes[self.page(bytes, 1)], self.rows(), &ColumnType::UInt64, None)? })
    }

    /// The page of the group's column at this position.
    pub(crate) fn column<'a>(
        &self,
        bytes: &'a [u8],
        position: usize,
        kind: &ColumnType,
        coding: Option<&'a TextCoding>,
    ) -> Result<Page<'a>> {
        debug_assert!(position < self.columns);
        Page::parse(&bytes[self.page(bytes, 2 + position)], self.rows(), kind, coding)
    }
}

/// Lines of a page that are asked for before it is parsed. What follows them comes by itself, as the processor sees it
/// read in order; that takes it a few lines.
const LINES_OF_PAGE: usize = 16;

/// Asks the processor for the beginnings of the pages that are read of a whole block: keys, trailers and these columns,
/// by position. For who is about to read many rows of it; a single row takes [`BlockHeader::prefetch_heads`].
pub(super) fn prefetch_pages(bytes: &[u8], columns: &[usize]) {
    for number in [0, 1].into_iter().chain(columns.iter().map(|column| 2 + column)) {
        let page = bytes.get(page_of(bytes, 0, number)).unwrap_or_default();
        page.iter().step_by(CACHE_LINE).take(LINES_OF_PAGE).for_each(|byte| prefetch(byte));
    }
}

/// Where page `number` of the block at `start` lies, by its header.
fn page_of(bytes: &[u8], start: usize, number: usize) -> Range<usize> {
    let place = |number: usize| {
        let at = start + HEADER_LEN + 4 * number;
        let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()).copied().unwrap_or_default();
        start + u32::from_le_bytes(bytes) as usize
    };
    place(number)..place(number + 1)
}

/// The trailers of a block.
#[derive(Debug)]
pub(crate) struct TrailerPage<'a> {
    page: Page<'a>,
}

impl TrailerPage<'_> {
    /// Appends what each of these rows does.
    fn append_operations(&self, rows: Range<usize>, scratch: &mut Vec<u32>, out: &mut Vec<Operation>) -> Result<()> {
        let (first, count) = (out.len(), rows.len());
        // No entry of a block deletes a range.
        let operation = |raw| Trailer::from_u64(raw).map_or(Operation::RangeDelete, Trailer::operation);
        let unpacked = self.page.append_integers(rows, scratch, out, |ordinal| operation(integer_of_ordinal(ordinal)));
        match unpacked.is_some() && out.len() == first + count && !out[first..].contains(&Operation::RangeDelete) {
            true => Ok(()),
            false => Err(malformed("trailer")),
        }
    }

    /// Of a row; `number` takes the place of its sequence number, if there is one.
    pub(crate) fn get(&self, row: usize, number: Option<SequenceNumber>) -> Result<Trailer> {
        let ColumnState::Value(DatumRef::UInt64(raw)) = self.page.cell(row)? else {
            return Err(malformed("a trailer is missing"));
        };
        let trailer = Trailer::from_u64(raw).filter(|trailer| trailer.operation() != Operation::RangeDelete);
        let trailer = trailer.ok_or_else(|| malformed("trailer"))?;
        Ok(number.map_or(trailer, |number| Trailer::new(number, trailer.operation())))
    }
}

/// A block in memory and how the texts of its file are coded.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) header: BlockHeader,
    codings: Arc<[Option<TextCoding>]>,
}

/// The parsed pages of a block.
#[derive(Debug)]
pub(crate) struct Pages<'a> {
    pub(crate) keys: KeyPage<'a>,
    pub(crate) trailers: TrailerPage<'a>,
    /// Of the wanted columns, in their order.
    pub(crate) columns: Vec<Page<'a>>,
}

self_cell! {
    struct Loaded {
        owner: Held,
        #[not_covariant]
        dependent: Pages,
    }
    impl {Debug}
}

/// A block of a columnar file, with the pages of some columns parsed. Owns what it needs.
#[derive(Debug)]
pub struct ColumnBlock(Loaded);

impl ColumnBlock {
    /// The block `bytes[start..end]`; `wanted` are positions among the file's columns. `number` takes the place of all
    /// sequence numbers, if there is one.
    pub(crate) fn load(
        columns: &FileColumns,
        codings: Arc<[Option<TextCoding>]>,
        (bytes, start, end): (Arc<[u8]>, usize, usize),
        (wanted, number): (&[usize], Option<SequenceNumber>),
    ) -> Result<Self> {
        let header = BlockHeader::parse(&bytes, start, end, columns)?.numbered(number);
        header.prefetch_heads(&bytes, wanted.iter().copied());
        let held = Held { bytes, header, codings };
        let loaded = Loaded::try_new(held, |held| {
            let (bytes, header) = (&held.bytes, held.header);
            let mut pages = Vec::with_capacity(wanted.len());
            for &position in wanted {
                let coding = held.codings.get(position).and_then(Option::as_ref);
                pages.push(header.column(bytes, position, &columns.parts()[position].kind, coding)?);
            }
            Ok(Pages { keys: header.keys(bytes)?, trailers: header.trailers(bytes)?, columns: pages })
        })?;
        Ok(Self(loaded))
    }

    /// The payload of a block of a file with this directory and, by column, these codings of texts; all columns are
    /// wanted. For who has a block without its file.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where it is malformed.
    pub fn of(directory: &Directory, codings: Arc<[Option<TextCoding>]>, payload: Arc<[u8]>) -> Result<Self> {
        let columns = FileColumns::new(directory.clone(), MAX_BLOCK_SIZE as u64);
        let all: Vec<usize> = (0..columns.parts().len()).collect();
        let end = payload.len();
        Self::load(&columns, codings, (payload, 0, end), (&all, None))
    }

    pub(crate) fn header(&self) -> &BlockHeader {
        &self.0.borrow_owner().header
    }

    /// Rows of the block.
    pub fn rows(&self) -> usize {
        self.header().rows()
    }

    /// What the header says of its entries, with the number that takes the place of all of theirs, if one does.
    pub fn facts(&self) -> BlockFacts {
        self.header().facts
    }

    /// Bytes of the block.
    pub(crate) fn byte_len(&self) -> usize {
        let Held { bytes, header, .. } = self.0.borrow_owner();
        header.block_len(bytes)
    }

    /// The first row whose key is at or after `key`; the number of rows if there is none.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where a key is malformed.
    pub fn seek(&self, key: &[u8]) -> Result<usize> {
        self.with_pages(|pages| pages.keys.seek(key))
    }

    /// As [`ColumnBlock::seek`], and whether the row has the key.
    pub fn find(&self, key: &[u8]) -> Result<(usize, bool)> {
        self.with_pages(|pages| pages.keys.find(key))
    }

    /// The length of the keys, where it is known that all have the same. O(1).
    pub fn common_key_len(&self) -> Option<usize> {
        self.with_pages(|pages| pages.keys.common_len())
    }

    /// Appends the windows of the keys of rows. `scratch` is reused. About a nanosecond a key where keys are integers,
    /// else ten.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where a key is malformed, or there are no such rows.
    pub fn append_key_windows(
        &self,
        rows: Range<usize>,
        window: KeyWindow,
        scratch: &mut Vec<u32>,
        windows: &mut Vec<u128>,
    ) -> Result<()> {
        self.with_pages(|pages| pages.keys.append_windows(rows, window, scratch, windows))
    }

    /// The first of these rows that is no `Put`; their end if all are. `scratch` and `operations` are reused. O(1)
    /// where the header says that all of the block's rows are, else about a nanosecond a row.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where a trailer is malformed.
    pub fn first_but_puts(
        &self,
        rows: Range<usize>,
        scratch: &mut Vec<u32>,
        operations: &mut Vec<Operation>,
    ) -> Result<usize> {
        if self.facts().all_puts {
            return Ok(rows.end);
        }
        operations.clear();
        self.append_operations(rows.clone(), scratch, operations)?;
        let first = operations.iter().position(|operation| *operation != Operation::Put);
        Ok(first.map_or(rows.end, |at| rows.start + at))
    }

    /// Asks the processor for the keys, for who will look for many of them: their cache misses overlap then.
    pub fn prefetch_keys(&self) {
        let Held { bytes, header, .. } = self.0.borrow_owner();
        header.prefetch_keys(bytes);
    }

    /// Calls `each` with the first row from `row` on whose key is at or after each of these keys, which ascend, and
    /// whether it has the key; with the number of rows if there is none. Until `each` says, by `false`, that this is
    /// enough. O(log of how far the keys are apart) each where keys are integers. Errors as [`ColumnBlock::seek`].
    pub fn seek_each<'k>(
        &self,
        row: usize,
        keys: impl Iterator<Item = &'k [u8]>,
        each: impl FnMut(usize, bool) -> bool,
    ) -> Result<()> {
        self.with_pages(|pages| pages.keys.seek_each(row, keys, each))
    }

    /// Calls `each` with each of these rows of another block, whose keys are unique as those of this one are, and with
    /// the first row of this block whose key is not before its key, the number of rows if there is none, and whether it
    /// has the key. O(log of how far the keys are apart) each where keys are integers.
    pub(crate) fn seek_rows(
        &self,
        (other, rows): (&Self, Range<usize>),
        each: impl FnMut(usize, usize, bool),
    ) -> Result<()> {
        self.with_pages(|pages| other.with_pages(|others| pages.keys.seek_rows((&others.keys, rows), each)))
    }

    /// Appends what each of these rows does. `scratch` is reused. About a nanosecond a row.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where a trailer is malformed.
    pub(crate) fn append_operations(
        &self,
        rows: Range<usize>,
        scratch: &mut Vec<u32>,
        operations: &mut Vec<Operation>,
    ) -> Result<()> {
        if self.facts().all_puts {
            operations.resize(operations.len() + rows.len(), Operation::Put);
            return Ok(());
        }
        self.with_pages(|pages| pages.trailers.append_operations(rows, scratch, operations))
    }

    /// Makes `key` the key of a row. Errors as [`ColumnBlock::seek`].
    pub fn write_key(&self, row: usize, key: &mut Vec<u8>) -> Result<()> {
        self.with_pages(|pages| pages.keys.write(row, key))
    }

    /// Calls `each` with the keys of neighbouring rows, in their order, each made in `key`. Errors as
    /// [`ColumnBlock::seek`], and those of `each`.
    pub fn write_keys(
        &self,
        rows: Range<usize>,
        key: &mut Vec<u8>,
        each: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.with_pages(|pages| pages.keys.write_each(rows, key, each))
    }

    /// How many rows from `row` on have the keys of the rows of another block from `other_row` on; at most `count`,
    /// which both must have. Errors as [`ColumnBlock::seek`].
    pub fn same_keys(&self, row: usize, (other, other_row): (&Self, usize), count: usize) -> Result<usize> {
        self.with_pages(|pages| other.with_pages(|others| pages.keys.same(row, (&others.keys, other_row), count)))
    }

    /// Lends the pages of the wanted columns, in the order of their layout.
    pub fn read<T>(&self, read: impl FnOnce(&[Page<'_>]) -> T) -> T {
        self.with_pages(|pages| read(&pages.columns))
    }

    pub(crate) fn with_pages<T>(&self, read: impl FnOnce(&Pages<'_>) -> T) -> T {
        self.0.with_dependent(|_, pages| read(pages))
    }

    pub(crate) fn into_bytes(self) -> Arc<[u8]> {
        self.0.into_owner().bytes
    }
}
