//! Mini-pages: the cells of one column of one block of a columnar file, encoded (LSM-OPD §3, DESIGN §5).
//!
//! ```text
//! u8      encoding
//!         0 integers     ordinals (see `ordinal`) as integers (see `integers`)
//!         1 decimals     u8 exponent e, then integers: each value is one of them divided by 10^e
//!         2 wide         16 bytes each, little-endian: decimals of which one does not fit 64 bits
//!         3 codes        codes of the file's dictionary (see `dictionary`), as integers
//!         4 plain        where the bytes of each value end, as integers, then the bytes
//!         5 compressed   where the codes of each value end, as integers, then the codes, of the file's symbol table
//!                        (see `symbol_table`)
//! u8      flags: bit 0 some cells are null, bit 1 some are absent
//! bytes   a bit per row that is 1 where it is null, lowest first, if bit 0
//! bytes   the same of absent cells, if bit 1
//! ..      as the encoding says; where there is no value, anything
//! ```
//!
//! Absent cells are those of entries that say nothing of the column: deletes, and patches of others.
//!
//! What a page can do: give one [`Page::cell`], append many to Arrow buffers, test all against a predicate without
//! decoding values ([`PageTest`]), and be gathered again, as codes and integers, for the next file ([`Cells::unpack`],
//! [`Cells::pick`]).
//!
//! Every encoding but runs finds a cell in O(1). Nothing here panics on malformed bytes, and no cell comes from outside
//! them.
//!
//! ```
//! use mycelium_encoding::page::{Bitmap, Cells, Page, PageTest, Test};
//! use mycelium_encoding::{ColumnState, ColumnType, Datum, DatumRef};
//!
//! let mut cells = Cells::new(&ColumnType::Int32);
//! for value in [3, 1, 4, 1, 5] {
//!     cells.push(ColumnState::Value(DatumRef::Int32(value)))?;
//! }
//! let (cells, mut bytes) = (cells.finish(), Vec::new());
//! let zone = cells.encode(0..5, &mut bytes)?;
//! assert_eq!(zone.greatest(), Some(&Datum::Int32(5)));
//!
//! let page = Page::parse(&bytes, 5, &ColumnType::Int32, None)?;
//! assert_eq!(page.cell(2)?, ColumnState::Value(DatumRef::Int32(4)));
//! let mut selection = Bitmap::new(5, true);
//! page.filter(&PageTest::new(&Test::Equal(Datum::Int32(1)), &ColumnType::Int32, None), &mut selection)?;
//! assert_eq!(selection.rows().collect::<Vec<_>>(), [1, 3]);
//! # Ok::<(), mycelium_base::Error>(())
//! ```

mod ascending;
mod bitmap;
mod cell_state;
mod cells;
mod coding;
mod decimal;
mod dictionary;
mod distinct;
mod encode;
mod filter;
mod gather;
mod integers;
mod kernels;
mod ordinal;
mod symbol_table;
mod symbols;
mod window;
mod zone;

use std::ops::Range;

use mycelium_base::coding::Reader;
use mycelium_base::{Error, Result};

use self::bitmap::bit;
use self::cell_state::State;
use self::filter::Compiled;
use self::integers::{Form, Integers};
use self::symbol_table::LONGEST_SYMBOL;
use crate::{ColumnState, ColumnType, DatumRef};

pub use ascending::AscendingSearch;
pub use bitmap::Bitmap;
pub use cells::{Cells, FinishedCells};
pub use coding::TextCoding;
pub use dictionary::Dictionary;
pub use distinct::{DistinctSketch, REGISTERS};
pub use filter::{ColumnTest, Filter, PageTest, Test};
pub use gather::Unpacked;
pub use integers::IntegersHead;
pub use kernels::Kernel;
pub use ordinal::compare;
pub(crate) use ordinal::{slot32, slot64};
pub use symbol_table::SymbolTable;
pub use zone::{Zone, join_bounds};

const INTEGERS: u8 = 0;
const DECIMALS: u8 = 1;
const WIDE: u8 = 2;
const CODES: u8 = 3;
const PLAIN: u8 = 4;
const COMPRESSED: u8 = 5;
const SOME_NULL: u8 = 1;
const SOME_ABSENT: u8 = 2;
const WIDE_LEN: usize = 16;

/// How the cells of a page are encoded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Encoding {
    /// One value for all rows.
    Constant,
    /// Bit-packed distances from the smallest value.
    Packed,
    /// Bit-packed distances from a line.
    Linear,
    /// Runs of equal values.
    RunLength,
    /// Floats as integers divided by a power of ten.
    Decimal,
    /// 16 bytes each.
    Wide,
    /// Codes of the file's dictionary.
    Dictionary,
    /// Bytes as they are.
    Plain,
    /// Codes of the file's symbol table.
    Compressed,
}

impl Encoding {
    /// The name, as people read it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Packed => "packed",
            Self::Linear => "linear",
            Self::RunLength => "run-length",
            Self::Decimal => "decimal",
            Self::Wide => "wide",
            Self::Dictionary => "dictionary",
            Self::Plain => "plain",
            Self::Compressed => "compressed",
        }
    }
}

/// Where the values of a page are.
#[derive(Clone, Copy, Debug)]
enum Body<'a> {
    Ordinals(Integers<'a>),
    Decimals(Integers<'a>, u8),
    Wide(&'a [u8]),
    Codes(Integers<'a>, &'a Dictionary),
    Plain(Integers<'a>, &'a [u8]),
    Compressed(Integers<'a>, &'a [u8], &'a SymbolTable),
}

/// Rows of a page, ascending.
#[derive(Clone, Debug)]
pub(crate) enum PageRows<'r> {
    Range(Range<usize>),
    Some(&'r [u32]),
}

impl PageRows<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Range(rows) => rows.len(),
            Self::Some(rows) => rows.len(),
        }
    }

    /// Past the last row.
    pub(crate) fn end(&self) -> usize {
        match self {
            Self::Range(rows) => rows.end,
            Self::Some(rows) => rows.last().map_or(0, |&last| last as usize + 1),
        }
    }

    #[inline]
    pub(crate) fn try_each(&self, mut each: impl FnMut(usize) -> Result<()>) -> Result<()> {
        match self {
            Self::Range(rows) => rows.clone().try_for_each(each),
            Self::Some(rows) => rows.iter().try_for_each(|&row| each(row as usize)),
        }
    }

    #[inline]
    pub(crate) fn append<T>(
        &self,
        integers: &Integers<'_>,
        scratch: &mut Vec<u32>,
        out: &mut Vec<T>,
        of: impl Fn(i64) -> T,
    ) {
        match self {
            Self::Range(rows) => integers.append(rows.clone(), scratch, out, of),
            Self::Some(rows) => integers.gather(rows, scratch, out, of),
        }
    }
}

/// A parsed page. Parsing looks at its header only.
#[derive(Clone, Debug)]
pub struct Page<'a> {
    rows: usize,
    kind: ColumnType,
    nulls: &'a [u8],
    absent: &'a [u8],
    body: Body<'a>,
}

fn malformed(what: &str) -> Error {
    Error::corruption(format!("malformed page: {what}"))
}

impl<'a> Page<'a> {
    /// Parses the page of a column of this type and so many rows, in a file where its texts have this coding.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where it is malformed.
    pub fn parse(bytes: &'a [u8], rows: usize, kind: &ColumnType, coding: Option<&'a TextCoding>) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let (encoding, flags) = (reader.u8()?, reader.u8()?);
        if flags & !(SOME_NULL | SOME_ABSENT) != 0 {
            return Err(malformed("flags").expected("0 to 3", flags));
        }
        let mut bitmap = |flag| if flags & flag == 0 { Ok(&[][..]) } else { reader.take(rows.div_ceil(8)) };
        let (nulls, absent) = (bitmap(SOME_NULL)?, bitmap(SOME_ABSENT)?);
        let is_text = matches!(kind, ColumnType::Utf8 | ColumnType::Binary);
        let body = match (encoding, kind, coding) {
            (INTEGERS, _, _) if !is_text => Body::Ordinals(Integers::parse(reader.rest(), rows)?),
            (DECIMALS, ColumnType::Float32 | ColumnType::Float64, _) => {
                let exponent = reader.u8()?;
                if exponent > decimal::MAX_EXPONENT {
                    return Err(malformed("exponent").expected(decimal::MAX_EXPONENT, exponent));
                }
                Body::Decimals(Integers::parse(reader.rest(), rows)?, exponent)
            }
            (WIDE, ColumnType::Decimal128(..), _) if reader.rest().len() == rows * WIDE_LEN => {
                Body::Wide(reader.rest())
            }
            (CODES, _, Some(TextCoding::Dictionary(dictionary))) if is_text => {
                Body::Codes(Integers::parse(reader.rest(), rows)?, dictionary)
            }
            (COMPRESSED, _, Some(TextCoding::SymbolTable(table))) if is_text => {
                let ends = Integers::read(&mut reader, rows)?;
                Body::Compressed(ends, reader.rest(), table)
            }
            (PLAIN, _, coding) if is_text && !matches!(coding, Some(TextCoding::Dictionary(_))) => {
                let ends = Integers::read(&mut reader, rows)?;
                Body::Plain(ends, reader.rest())
            }
            _ => return Err(malformed("encoding").expected("one of the column's", encoding)),
        };
        Ok(Self { rows, kind: kind.clone(), nulls, absent, body })
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How its cells are encoded.
    pub fn encoding(&self) -> Encoding {
        match &self.body {
            Body::Ordinals(integers) => match integers.form() {
                Form::Constant => Encoding::Constant,
                Form::Packed => Encoding::Packed,
                Form::Linear => Encoding::Linear,
                Form::RunLength => Encoding::RunLength,
            },
            Body::Decimals(..) => Encoding::Decimal,
            Body::Wide(_) => Encoding::Wide,
            Body::Codes(..) => Encoding::Dictionary,
            Body::Plain(..) => Encoding::Plain,
            Body::Compressed(..) => Encoding::Compressed,
        }
    }

    /// Whether some cells are absent.
    pub fn has_absent(&self) -> bool {
        !self.absent.is_empty()
    }

    /// Whether a cell is absent.
    #[inline]
    pub fn is_absent(&self, row: usize) -> bool {
        bit(self.absent, row)
    }

    /// Whether all cells of these rows are absent. O(rows / 8).
    pub fn lacks_all(&self, rows: Range<usize>) -> bool {
        if !self.has_absent() {
            return false;
        }
        let (first, last) = (rows.start.div_ceil(8), rows.end / 8);
        let Some(bytes) = self.absent.get(first..last) else {
            return rows.into_iter().all(|row| self.is_absent(row));
        };
        bytes.iter().all(|&byte| byte == u8::MAX)
            && (rows.start..first * 8).chain(last * 8..rows.end).all(|row| self.is_absent(row))
    }

    /// Whether all cells are values.
    pub fn has_only_values(&self) -> bool {
        self.nulls.is_empty() && self.absent.is_empty()
    }

    /// The cell of a row, of a page that was parsed without a coding of texts; of others [`Page::expanded_cell`].
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where it is malformed, or if there is no such row; `ErrorKind::InvalidArgument` of a
    /// compressed text.
    #[inline]
    pub fn cell(&self, row: usize) -> Result<ColumnState<'a>> {
        match self.checked_state(row)? {
            State::Absent => Ok(ColumnState::Absent),
            State::Null => Ok(ColumnState::Null),
            State::Value => self.value(row).map(ColumnState::Value),
        }
    }

    /// The cell of a row. A compressed text is expanded to `text`, which is overwritten then.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where it is malformed, or if there is no such row.
    #[inline]
    pub fn expanded_cell<'t>(&self, row: usize, text: &'t mut Vec<u8>) -> Result<ColumnState<'t>>
    where
        'a: 't,
    {
        match &self.body {
            Body::Compressed(ends, codes, table) if self.checked_state(row)? == State::Value => {
                text.clear();
                table.expand(plain(ends, codes, row).ok_or_else(|| malformed("end of a value"))?, text)?;
                self.text(text).map(ColumnState::Value)
            }
            _ => self.cell(row),
        }
    }

    #[inline]
    fn checked_state(&self, row: usize) -> Result<State> {
        if row >= self.rows {
            return Err(malformed("row").expected(format_args!("below {}", self.rows), row));
        }
        Ok(self.state(row))
    }

    /// The integer of a page of integers that has only values: what keys and trailers are.
    #[inline]
    pub fn integer(&self, row: usize) -> Option<i64> {
        match &self.body {
            Body::Ordinals(integers) if row < self.rows => Some(integers.get(row)),
            _ => None,
        }
    }

    /// The ordinal of a row's value, of a page that has its values as they are ordered.
    #[inline]
    pub(crate) fn ordinal(&self, row: usize) -> Option<i64> {
        self.integer(row).filter(|_| self.has_only_values() || self.state(row) == State::Value)
    }

    /// The first row whose integer is not below `value`, or not up to it if `after`, of a page of ascending integers.
    /// O(log rows); where they lie on a line it is found close to its place.
    pub fn seek_integer(&self, value: i64, after: bool) -> Option<usize> {
        let Body::Ordinals(integers) = &self.body else { return None };
        Some(integers.seek(value, after))
    }

    /// Appends what `of` makes of the integers of rows, many at a time, of a page that has its values as they are
    /// ordered; `None` of any other, and where there are no such rows. `scratch` is reused.
    #[inline]
    pub fn append_integers<T>(
        &self,
        rows: Range<usize>,
        scratch: &mut Vec<u32>,
        out: &mut Vec<T>,
        of: impl Fn(i64) -> T,
    ) -> Option<()> {
        let Body::Ordinals(integers) = &self.body else { return None };
        (rows.start <= rows.end && rows.end <= self.rows).then(|| integers.append(rows, scratch, out, of))
    }

    /// What finds an integer in the block that the page lies in, of a page of integers that are all there.
    pub fn integers_head(&self, block: &[u8]) -> Option<IntegersHead> {
        let Body::Ordinals(integers) = &self.body else { return None };
        integers.head(block).filter(|_| self.has_only_values())
    }

    /// Asks the processor for what [`Page::seek_integer`] will look at first.
    #[inline]
    pub fn prefetch_about(&self, value: i64) {
        if let Body::Ordinals(integers) = &self.body {
            integers.prefetch_about(value);
        }
    }

    /// Looks for values in a page of ascending integers, from a row on.
    pub fn search_ascending(&self, row: usize) -> Option<AscendingSearch<'a>> {
        let Body::Ordinals(integers) = &self.body else { return None };
        Some(AscendingSearch::new(*integers, row, self.rows))
    }

    /// The cell of a row of a page that is looked at but once: what [`Page::parse`] and [`Page::expanded_cell`] give
    /// together, in fewer steps where it is packed.
    ///
    /// # Errors
    /// As those two.
    #[inline]
    pub fn cell_at(
        bytes: &'a [u8],
        (rows, row): (usize, usize),
        (kind, coding): (&ColumnType, Option<&'a TextCoding>),
        text: &'a mut Vec<u8>,
    ) -> Result<ColumnState<'a>> {
        if let [INTEGERS, 0, body @ ..] = bytes
            && kind.fixed_width().is_some()
            && row < rows
            && let Some(integer) = integers::packed_at(body, rows, row)
        {
            return Ok(ColumnState::Value(ordinal::datum(kind, integer)));
        }
        Self::parse(bytes, rows, kind, coding)?.expanded_cell(row, text)
    }

    /// What finds a value in the block that a page lies in at this place, of a page of values of at most eight bytes
    /// that are all there; `None` of other pages, and where it is malformed.
    pub fn head(block: &[u8], place: Range<usize>, rows: usize, kind: &ColumnType) -> Option<IntegersHead> {
        let [INTEGERS, 0, body @ ..] = block.get(place)? else { return None };
        if matches!(kind, ColumnType::Bool | ColumnType::Utf8 | ColumnType::Binary | ColumnType::Decimal128(..)) {
            return None;
        }
        Integers::parse(body, rows).ok()?.head(block)
    }

    #[inline]
    fn value(&self, row: usize) -> Result<DatumRef<'a>> {
        Ok(match &self.body {
            Body::Ordinals(integers) => ordinal::datum(&self.kind, integers.get(row)),
            Body::Decimals(integers, exponent) => {
                ordinal::datum(&self.kind, decimal::ordinal(&self.kind, integers.get(row), *exponent))
            }
            Body::Wide(bytes) => DatumRef::Decimal128(wide(bytes, row)),
            Body::Codes(codes, dictionary) => {
                let code = u32::try_from(codes.get(row)).ok();
                let value = code.and_then(|code| dictionary.value(code));
                return self.text(value.ok_or_else(|| malformed("code").expected(dictionary.len(), codes.get(row)))?);
            }
            Body::Plain(ends, bytes) => {
                return self.text(plain(ends, bytes, row).ok_or_else(|| malformed("end of a value"))?);
            }
            Body::Compressed(..) => return Err(Error::invalid("a text that must be expanded")),
        })
    }

    fn text<'t>(&self, bytes: &'t [u8]) -> Result<DatumRef<'t>> {
        if self.kind == ColumnType::Binary {
            return Ok(DatumRef::Binary(bytes));
        }
        std::str::from_utf8(bytes).map(DatumRef::Utf8).map_err(|_| malformed("text that is not UTF-8"))
    }

    /// Appends what `of` makes of the ordinals of rows; `None` if the page has none.
    #[inline]
    pub(crate) fn append_ordinals<T>(
        &self,
        rows: &PageRows<'_>,
        scratch: &mut Vec<u32>,
        out: &mut Vec<T>,
        of: impl Fn(i64) -> T,
    ) -> Option<()> {
        match &self.body {
            Body::Ordinals(integers) => rows.append(integers, scratch, out, of),
            Body::Decimals(integers, exponent) => {
                let of_integer = |integer| of(decimal::ordinal(&self.kind, integer, *exponent));
                rows.append(integers, scratch, out, of_integer);
            }
            _ => return None,
        }
        Some(())
    }

    /// Appends the decimals of rows; `None` if the page has none.
    pub(crate) fn append_wides(&self, rows: Range<usize>, scratch: &mut Vec<u32>, out: &mut Vec<i128>) -> Option<()> {
        match &self.body {
            Body::Ordinals(integers) => integers.append(rows, scratch, out, i128::from),
            Body::Wide(bytes) => out.extend(rows.map(|row| wide(bytes, row))),
            _ => return None,
        }
        Some(())
    }

    /// Calls `each` with the ordinals of rows, in order; `None` if the page has none.
    pub(crate) fn each_ordinal(&self, rows: Range<usize>, scratch: &mut Vec<u32>, each: impl FnMut(i64)) -> Option<()> {
        match &self.body {
            Body::Ordinals(integers) => integers.for_each(rows, scratch, each),
            _ => return None,
        }
        Some(())
    }

    /// Calls `each` with the binaries of neighbouring rows of a page that has a value in each; `None` of any other, and
    /// where there are no such rows.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where a value is malformed; those of `each`.
    #[inline]
    pub fn each_binary(&self, rows: Range<usize>, each: impl FnMut(&[u8]) -> Result<()>) -> Result<Option<()>> {
        let is_whole = rows.start <= rows.end && rows.end <= self.rows && self.has_only_values();
        if is_whole { self.each_text(&PageRows::Range(rows), each) } else { Ok(None) }
    }

    /// In how many rows from `row` on there is `before` and then the binary that another page has in its rows from
    /// `other_row` on; at most `count`. `None` unless both have the binaries of so many rows as they are.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where a value is malformed.
    pub fn same_binaries(
        &self,
        (row, before): (usize, &[u8]),
        (other, other_row): (&Page<'_>, usize),
        count: usize,
    ) -> Result<Option<usize>> {
        let has_rows = |page: &Page<'_>, row: usize| page.has_only_values() && row.saturating_add(count) <= page.rows;
        let (Body::Plain(ends, values), Body::Plain(other_ends, other_values)) = (&self.body, &other.body) else {
            return Ok(None);
        };
        if !has_rows(self, row) || !has_rows(other, other_row) {
            return Ok(None);
        }
        let mut values = NeighbouringValues::new(ends, values, row);
        let mut others = NeighbouringValues::new(other_ends, other_values, other_row);
        for at in 0..count {
            let (value, other) = (values.next(count - at)?, others.next(count - at)?);
            if value.strip_prefix(before) != Some(other) {
                return Ok(Some(at));
            }
        }
        Ok(Some(count))
    }

    /// Calls `each` with the bytes of the texts or binaries of rows, of null ones any or none; `None` if the page holds
    /// something else. Whether text is UTF-8 is left to the caller.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where a value is malformed; those of `each`.
    #[inline]
    pub(crate) fn each_text(
        &self,
        rows: &PageRows<'_>,
        mut each: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<Option<()>> {
        match &self.body {
            Body::Compressed(ends, codes, table) => {
                let (mut text, mut values) = (Vec::new(), PlainValues::new(ends, codes));
                rows.try_each(|row| {
                    text.clear();
                    table.expand(values.get(row)?, &mut text)?;
                    each(&text)
                })?
            }
            Body::Plain(ends, values) => match rows {
                PageRows::Range(rows) if rows.len() >= LEAST_UNPACKED => {
                    NeighbouringValues::new(ends, values, rows.start).try_each(rows.len(), each)?
                }
                _ => {
                    let mut values = PlainValues::new(ends, values);
                    rows.try_each(|row| each(values.get(row)?))?
                }
            },
            Body::Codes(codes, dictionary) => rows.try_each(|row| {
                let code = codes.get(row);
                match u32::try_from(code).ok().and_then(|code| dictionary.value(code)) {
                    Some(value) => each(value),
                    None if bit(self.nulls, row) => each(&[]),
                    None => Err(self.no_such_code(code)),
                }
            })?,
            _ => return Ok(None),
        }
        Ok(Some(()))
    }

    /// A row has a code that its dictionary lacks.
    #[cold]
    pub(crate) fn no_such_code(&self, code: i64) -> Error {
        malformed("code").expected(self.codes().map_or(0, |(_, dictionary)| dictionary.len()), code)
    }

    /// Bytes that the texts or binaries of neighbouring rows have together at most; 0 of a page of anything else. O(1):
    /// for each code of a dictionary the longest text is taken.
    pub fn text_bound(&self, rows: Range<usize>) -> usize {
        if rows.is_empty() || rows.end > self.rows {
            return 0;
        }
        match &self.body {
            Body::Plain(ends, _) => stored_len(ends, &rows),
            Body::Compressed(ends, ..) => stored_len(ends, &rows).saturating_mul(LONGEST_SYMBOL),
            Body::Codes(_, dictionary) => rows.len().saturating_mul(dictionary.longest()),
            Body::Ordinals(_) | Body::Decimals(..) | Body::Wide(_) => 0,
        }
    }

    /// As [`Page::text_bound`], of one row, and exact but for compressed texts.
    pub fn text_bound_at(&self, row: usize) -> usize {
        match &self.body {
            Body::Codes(codes, dictionary) if row < self.rows => {
                let code = u32::try_from(codes.get(row)).ok();
                code.and_then(|code| dictionary.value(code)).map_or(0, <[u8]>::len)
            }
            _ => self.text_bound(row..row + 1),
        }
    }

    /// Whether a cell is null.
    #[inline]
    pub(crate) fn is_null(&self, row: usize) -> bool {
        bit(self.nulls, row)
    }

    /// Whether some cells are null.
    pub fn has_nulls(&self) -> bool {
        !self.nulls.is_empty()
    }

    /// The codes of a page that has them, and what they are codes of.
    pub(crate) fn codes(&self) -> Option<(&Integers<'a>, &'a Dictionary)> {
        match &self.body {
            Body::Codes(codes, dictionary) => Some((codes, dictionary)),
            _ => None,
        }
    }

    /// Whether a cell is a value.
    #[inline]
    fn state(&self, row: usize) -> State {
        match (bit(self.absent, row), bit(self.nulls, row)) {
            (true, _) => State::Absent,
            (false, true) => State::Null,
            (false, false) => State::Value,
        }
    }

    /// Clears in `selection`, which has as many rows, those that do not pass.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where a value that is looked at is malformed.
    pub fn filter(&self, test: &PageTest, selection: &mut Bitmap) -> Result<()> {
        if selection.len() != self.rows {
            return Err(Error::invalid("a selection of another number of rows"));
        }
        match &test.0 {
            Compiled::Null if self.nulls.is_empty() => selection.reset(self.rows, false),
            Compiled::Null => selection.remove(self.nulls, false),
            _ => {
                selection.remove(self.nulls, true);
                selection.remove(self.absent, true);
            }
        }
        match &test.0 {
            Compiled::Null | Compiled::NotNull => Ok(()),
            _ if selection.is_none() => Ok(()),
            Compiled::Decimals(_, test) if matches!(self.body, Body::Wide(_)) => self.filter_each(test, selection),
            Compiled::Ranges(ranges) | Compiled::Decimals(ranges, _) => self.filter_ranges(ranges, selection),
            Compiled::Each(test) => self.filter_each(test, selection),
        }
    }

    fn filter_ranges(&self, ranges: &[(i64, i64)], selection: &mut Bitmap) -> Result<()> {
        let mut scratch = Vec::new();
        match &self.body {
            Body::Ordinals(integers) | Body::Codes(integers, _) => integers.filter(ranges, selection, &mut scratch),
            Body::Decimals(integers, exponent) => {
                let ranges: Vec<_> =
                    ranges.iter().filter_map(|&range| decimal::range(&self.kind, range, *exponent)).collect();
                integers.filter(&ranges, selection, &mut scratch);
            }
            Body::Wide(_) | Body::Plain(..) | Body::Compressed(..) => {
                return Err(Error::invalid("a test that was made for another page"));
            }
        }
        Ok(())
    }

    fn filter_each(&self, test: &Test, selection: &mut Bitmap) -> Result<()> {
        let rows: Vec<usize> = selection.rows().collect();
        let mut text = Vec::new();
        for row in rows {
            if !test.passes(self.expanded_cell(row, &mut text)?) {
                selection.clear(row);
            }
        }
        Ok(())
    }
}

fn wide(bytes: &[u8], row: usize) -> i128 {
    let chunk = bytes.get(row * WIDE_LEN..).and_then(|rest| rest.first_chunk::<WIDE_LEN>());
    chunk.map_or(0, |&chunk| i128::from_le_bytes(chunk))
}

/// Values that are looked at one after the other: where one ends the next begins.
struct PlainValues<'p, 'a> {
    ends: &'p Integers<'a>,
    bytes: &'a [u8],
    /// The row behind the last one, and where it begins.
    next: usize,
    start: i64,
}

impl<'p, 'a> PlainValues<'p, 'a> {
    fn new(ends: &'p Integers<'a>, bytes: &'a [u8]) -> Self {
        Self { ends, bytes, next: 0, start: 0 }
    }

    #[inline]
    fn get(&mut self, row: usize) -> Result<&'a [u8]> {
        let start = match row.checked_sub(1) {
            _ if row == self.next => self.start,
            Some(before) => self.ends.get(before),
            None => 0,
        };
        let end = self.ends.get(row);
        (self.next, self.start) = (row + 1, end);
        let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
        let value = range.and_then(|(start, end)| self.bytes.get(start..end));
        value.ok_or_else(|| malformed("end of a value"))
    }
}

/// The values of neighbouring rows, whose ends are unpacked many at once.
struct NeighbouringValues<'p, 'a> {
    ends: &'p Integers<'a>,
    bytes: &'a [u8],
    /// The row behind the last one whose end is unpacked, and where the next value begins.
    behind: usize,
    start: i64,
    unpacked: Vec<i64>,
    at: usize,
    scratch: Vec<u32>,
}

/// Rows from which on it pays to make room for their ends.
const LEAST_UNPACKED: usize = 32;

/// Ends that are unpacked at once.
const MOST_UNPACKED: usize = 512;

impl<'p, 'a> NeighbouringValues<'p, 'a> {
    /// From a row on.
    fn new(ends: &'p Integers<'a>, bytes: &'a [u8], row: usize) -> Self {
        let start = row.checked_sub(1).map_or(0, |before| ends.get(before));
        Self { ends, bytes, behind: row, start, unpacked: Vec::new(), at: 0, scratch: Vec::new() }
    }

    /// Calls `each` with so many of them.
    fn try_each(mut self, count: usize, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        (0..count).try_for_each(|at| each(self.next(count - at)?))
    }

    /// The next one; the page has `left` more rows.
    #[inline]
    fn next(&mut self, left: usize) -> Result<&'a [u8]> {
        if self.at == self.unpacked.len() {
            self.unpack(left.min(MOST_UNPACKED));
        }
        let range = self.unpacked.get(self.at).map(|&end| (self.start, end));
        let value = range.and_then(|(start, end)| {
            (self.at, self.start) = (self.at + 1, end);
            self.bytes.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
        });
        value.ok_or_else(|| malformed("end of a value"))
    }

    fn unpack(&mut self, count: usize) {
        self.unpacked.clear();
        self.at = 0;
        let rows = self.behind..self.behind + count;
        self.behind = rows.end;
        self.ends.append(rows, &mut self.scratch, &mut self.unpacked, |end| end);
    }
}

/// Bytes that neighbouring rows have, of which there are some, where `ends` says where each of them ends.
fn stored_len(ends: &Integers<'_>, rows: &Range<usize>) -> usize {
    let start = rows.start.checked_sub(1).map_or(0, |before| ends.get(before));
    usize::try_from(ends.get(rows.end - 1).wrapping_sub(start)).unwrap_or(0)
}

fn plain<'a>(ends: &Integers<'_>, bytes: &'a [u8], row: usize) -> Option<&'a [u8]> {
    let start = row.checked_sub(1).map_or(0, |before| ends.get(before));
    bytes.get(usize::try_from(start).ok()?..usize::try_from(ends.get(row)).ok()?)
}
