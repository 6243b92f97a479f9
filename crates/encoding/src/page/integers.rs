//! Integers of a page, each with an encoding of its own.
//!
//! ```text
//! u8   form
//!      0 constant     i64 value
//!      1 packed       i64 base, u8 width, offsets from the base (see `kernels`)
//!      2 linear       i64 base, i64 slope, u8 width, offsets: value i is base + (i * slope >> 16) + offset i
//!      3 run-length   u32 runs, u32 length of what follows first; the runs' values and where they end, as integers
//! ```
//!
//! *Packed* is a frame of reference: the smallest value, and how far each is above it in as few bits as the largest
//! needs. Widths: up to 25 bits as they are, 26 to 32 as 32, up to 56 as they are, else 64; one that is rounded up to
//! 8, 16 or 32 with at most a seventh more bytes is, since whole bytes are compared without unpacking.
//!
//! *Linear* is for ascending values, such as keys and ends of texts: a dense sequence takes no bits at all, and unlike
//! a chain of differences any value is found at once.
//!
//! *Run-length* is taken where runs are long enough that it is clearly smaller: finding a value in it takes a search.

use std::ops::Range;

use mycelium_base::coding::Reader;
use mycelium_base::prefetch::{CACHE_LINE, prefetch};
use mycelium_base::{Error, Result};

use super::bitmap::Bitmap;
use super::kernels::{filter, get, map_eight, mask, pack, packed_len, unpack};
use super::ordinal::{slot32, slot64};
use super::window::for_each_window;
use crate::ColumnType;

const CONSTANT: u8 = 0;
const PACKED: u8 = 1;
const LINEAR: u8 = 2;
const RUN_LENGTH: u8 = 3;

/// Bits behind the point of a slope.
pub(super) const SLOPE_BITS: u32 = 16;

/// Of some rows the packed offsets between the first and the last are unpacked together where at least one in so many
/// is wanted.
const DENSE: usize = 8;

/// So many values tell that the others are on no line.
const LINE_SAMPLES: usize = 16;

/// Run-length must be so many times smaller than what else would be taken.
const RUN_LENGTH_GAIN: usize = 2;

/// How integers are encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Constant,
    Packed,
    Linear,
    RunLength,
}

/// The width that is used for offsets of so many bits.
fn rounded(bits: u32) -> u32 {
    match bits {
        7 => 8,
        14 | 15 => 16,
        26..=32 => 32,
        57..=64 => 64,
        bits => bits,
    }
}

fn bits_of(span: u64) -> u32 {
    64 - span.leading_zeros()
}

/// Where the line is at `index`.
#[inline]
pub(super) fn on_line(slope: i64, index: usize) -> i64 {
    // Of signed integers of 64 bits it is one multiplication.
    ((i128::from(slope) * i128::from(index as i64)) >> SLOPE_BITS) as i64
}

/// The line through the first and the last value: its slope, the least distance from it and the width of the others
/// above that; `None` if it is too steep, or packed offsets from it would not take fewer bytes than `packed`, the slope
/// included.
fn line(values: &[i64], packed: usize) -> Option<(i64, i64, u32)> {
    let (first, last) = (*values.first()?, *values.last()?);
    let steps = values.len().checked_sub(1).filter(|&steps| steps > 0)? as i128;
    let slope = ((i128::from(last) - i128::from(first)) << SLOPE_BITS) / steps;
    let slope = i64::try_from(slope).ok()?;
    let distances = |step: usize| {
        let (mut least, mut greatest) = (i64::MAX, i64::MIN);
        for (index, &value) in values.iter().enumerate().step_by(step) {
            let distance = value.checked_sub(on_line(slope, index))?;
            (least, greatest) = (least.min(distance), greatest.max(distance));
        }
        let width = rounded(bits_of(greatest.wrapping_sub(least) as u64));
        (packed_len(width, values.len()) + size_of::<i64>() < packed).then_some((least, width))
    };
    // Most values are on no line: a few of them tell, since all together need no fewer bits.
    distances((values.len() / LINE_SAMPLES).max(1))?;
    distances(1).map(|(least, width)| (slope, least, width))
}

/// Appends integers in the form that takes the fewest bytes.
pub(crate) fn encode(values: &[i64], out: &mut Vec<u8>) {
    encode_among(values, true, out);
}

fn encode_among(values: &[i64], may_run: bool, out: &mut Vec<u8>) {
    let (mut least, mut greatest) = (i64::MAX, i64::MIN);
    for &value in values {
        (least, greatest) = (least.min(value), greatest.max(value));
    }
    let runs = 1 + values.array_windows().filter(|[a, b]| a != b).count();
    if runs == 1 {
        out.push(CONSTANT);
        out.extend_from_slice(&values.first().copied().unwrap_or_default().to_le_bytes());
        return;
    }
    let width = rounded(bits_of(greatest.wrapping_sub(least) as u64));
    let packed = packed_len(width, values.len());
    if may_run && runs * 12 * RUN_LENGTH_GAIN < packed {
        return put_runs(values, out);
    }
    match line(values, packed) {
        Some((slope, base, width)) => {
            out.push(LINEAR);
            out.extend_from_slice(&base.to_le_bytes());
            out.extend_from_slice(&slope.to_le_bytes());
            out.push(width as u8);
            let offset =
                |(index, value): (usize, &i64)| value.wrapping_sub(on_line(slope, index)).wrapping_sub(base) as u64;
            pack(values.iter().enumerate().map(offset), width, out);
        }
        None => {
            out.push(PACKED);
            out.extend_from_slice(&least.to_le_bytes());
            out.push(width as u8);
            pack(values.iter().map(|&value| value.wrapping_sub(least) as u64), width, out);
        }
    }
}

fn put_runs(values: &[i64], out: &mut Vec<u8>) {
    let (mut run_values, mut ends) = (Vec::new(), Vec::new());
    for run in values.chunk_by(|a, b| a == b) {
        run_values.push(run[0]);
        ends.push(ends.last().copied().unwrap_or(0) + run.len() as i64);
    }
    out.push(RUN_LENGTH);
    out.extend_from_slice(&(ends.len() as u32).to_le_bytes());
    let len_at = out.len();
    out.extend_from_slice(&[0; 4]);
    encode_among(&run_values, false, out);
    let len = (out.len() - len_at - 4) as u32;
    out[len_at..len_at + 4].copy_from_slice(&len.to_le_bytes());
    encode_among(&ends, false, out);
}

/// Parsed integers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Integers<'a> {
    pub(super) kind: Kind<'a>,
    rows: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind<'a> {
    Constant(i64),
    Packed(Line<'a>),
    Linear {
        line: Line<'a>,
        slope: i64,
    },
    /// The bodies of values and ends, parsed when they are needed: `Line`s or constants.
    Runs {
        values: Flat<'a>,
        ends: Flat<'a>,
        count: usize,
    },
}

/// What finds an integer of a page in the block that the page lies in, without the page: most of what a page begins
/// with. It is parsed once, and small enough to be kept.
#[derive(Clone, Copy, Debug)]
pub struct IntegersHead {
    base: i64,
    /// 0 of integers that lie on no line.
    slope: i64,
    /// Where the offsets begin in the block.
    start: u32,
    /// Bits of an offset.
    width: u8,
    is_on_line: bool,
}

impl IntegersHead {
    /// The integer of a row, which the page must have. `block` is the one that the page lies in.
    #[inline]
    fn integer(&self, block: &[u8], row: usize) -> i64 {
        let bits = block.get(self.start as usize..).unwrap_or_default();
        let offset = get(bits, u32::from(self.width), row) as i64;
        self.base.wrapping_add(offset).wrapping_add(on_line(self.slope, row))
    }

    /// The value of this type of a row, which the page must have, as packed rows have it in its slot, and anything
    /// behind it.
    #[inline]
    pub fn slot(&self, block: &[u8], row: usize, kind: &ColumnType) -> u64 {
        let integer = self.integer(block, row);
        match kind {
            ColumnType::UInt64 | ColumnType::Float64 => slot64(kind, integer),
            ColumnType::Float32 => u64::from(slot32(kind, integer)),
            _ => integer as u64,
        }
    }

    /// The first of so many rows of ascending integers with one at or after `value`, and whether it has the value
    /// itself.
    #[inline]
    pub fn seek(&self, block: &[u8], rows: usize, value: i64) -> (usize, bool) {
        let row = self.integers(block, rows).seek(value, false);
        (row, row < rows && self.integer(block, row) == value)
    }

    /// Asks the processor for what [`IntegersHead::seek`] will look at first.
    #[inline]
    pub fn prefetch_about(&self, block: &[u8], rows: usize, value: i64) {
        self.integers(block, rows).prefetch_about(value);
    }

    /// Asks the processor for the integer of a row.
    #[inline]
    pub fn prefetch(&self, block: &[u8], row: usize) {
        if let Some(byte) = block.get(self.start as usize + row * usize::from(self.width) / 8) {
            prefetch(byte);
        }
    }

    /// The page's integers, of so many rows.
    #[inline]
    fn integers<'a>(&self, block: &'a [u8], rows: usize) -> Integers<'a> {
        let bits = block.get(self.start as usize..).unwrap_or_default();
        let line = Line { base: self.base, width: u32::from(self.width), bits };
        let kind = if self.is_on_line { Kind::Linear { line, slope: self.slope } } else { Kind::Packed(line) };
        Integers { kind, rows }
    }
}

/// Packed offsets from a base.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    pub(super) base: i64,
    pub(super) width: u32,
    pub(super) bits: &'a [u8],
}

/// Integers that are not runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Flat<'a> {
    Constant(i64),
    Packed(Line<'a>),
    Linear(Line<'a>, i64),
}

fn malformed(what: &str) -> Error {
    Error::corruption(format!("malformed integers: {what}"))
}

impl<'a> Line<'a> {
    fn parse(reader: &mut Reader<'a>, rows: usize, base: i64) -> Result<Self> {
        let width = u32::from(reader.u8()?);
        if width > 56 && width != 64 {
            return Err(malformed("width"));
        }
        let bits = reader.take(packed_len(width, rows))?;
        Ok(Self { base, width, bits })
    }

    #[inline]
    pub(super) fn get(&self, row: usize) -> i64 {
        self.base.wrapping_add(get(self.bits, self.width, row) as i64)
    }

    /// What `of` makes of each of eight rows, the first of which is a multiple of eight, and its integer; past the end
    /// of the bits the base.
    #[inline(always)]
    pub(super) fn map_eight(&self, first: usize, of: impl Fn(usize, i64) -> i64) -> [i64; 8] {
        map_eight(self.bits, self.width, first, |row, offset| of(row, self.base.wrapping_add(offset as i64)))
    }
}

impl<'a> Flat<'a> {
    fn parse(reader: &mut Reader<'a>, form: u8, rows: usize) -> Result<Self> {
        let mut integer = || Ok::<_, Error>(reader.u64()? as i64);
        match form {
            CONSTANT => Ok(Self::Constant(integer()?)),
            PACKED => {
                let base = integer()?;
                Ok(Self::Packed(Line::parse(reader, rows, base)?))
            }
            LINEAR => {
                let (base, slope) = (integer()?, integer()?);
                Ok(Self::Linear(Line::parse(reader, rows, base)?, slope))
            }
            _ => Err(malformed("form").expected("0 to 2", form)),
        }
    }

    #[inline]
    fn get(&self, row: usize) -> i64 {
        match self {
            Self::Constant(value) => *value,
            Self::Packed(line) => line.get(row),
            Self::Linear(line, slope) => line.get(row).wrapping_add(on_line(*slope, row)),
        }
    }
}

impl<'a> Integers<'a> {
    /// Parses the integers of so many rows, and nothing behind them.
    pub(crate) fn parse(bytes: &'a [u8], rows: usize) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let integers = Self::read(&mut reader, rows)?;
        reader.finish()?;
        Ok(integers)
    }

    /// As [`Integers::parse`], with something behind them.
    pub(crate) fn read(reader: &mut Reader<'a>, rows: usize) -> Result<Self> {
        let form = reader.u8()?;
        let kind = if form == RUN_LENGTH {
            let (count, len) = (reader.u32()? as usize, reader.u32()? as usize);
            let mut body = Reader::new(reader.take(len)?);
            let form = body.u8()?;
            let values = Flat::parse(&mut body, form, count)?;
            body.finish()?;
            let form = reader.u8()?;
            let ends = Flat::parse(reader, form, count)?;
            // Each run has a row at least.
            if count == 0 || count > rows || ends.get(count - 1) != rows as i64 {
                return Err(malformed("ends of runs"));
            }
            Kind::Runs { values, ends, count }
        } else {
            match Flat::parse(reader, form, rows)? {
                Flat::Constant(value) => Kind::Constant(value),
                Flat::Packed(line) => Kind::Packed(line),
                Flat::Linear(line, slope) => Kind::Linear { line, slope },
            }
        };
        Ok(Self { kind, rows })
    }

    pub(crate) fn form(&self) -> Form {
        match self.kind {
            Kind::Constant(_) => Form::Constant,
            Kind::Packed(_) => Form::Packed,
            Kind::Linear { .. } => Form::Linear,
            Kind::Runs { .. } => Form::RunLength,
        }
    }

    /// The integer of a row.
    #[inline]
    pub(crate) fn get(&self, row: usize) -> i64 {
        match &self.kind {
            Kind::Constant(value) => *value,
            Kind::Packed(line) => line.get(row),
            Kind::Linear { line, slope } => line.get(row).wrapping_add(on_line(*slope, row)),
            Kind::Runs { values, ends, count } => values.get(run_of(ends, *count, row)),
        }
    }

    /// What finds an integer in the `block` that these lie in; `None` of runs.
    pub(super) fn head(&self, block: &[u8]) -> Option<IntegersHead> {
        let of_line = |line: &Line<'_>, slope, is_on_line| {
            let start = line.bits.as_ptr().addr().checked_sub(block.as_ptr().addr())?;
            Some(IntegersHead {
                base: line.base,
                slope,
                start: u32::try_from(start).ok()?,
                width: line.width as u8,
                is_on_line,
            })
        };
        match &self.kind {
            Kind::Constant(value) => {
                Some(IntegersHead { base: *value, slope: 0, start: 0, width: 0, is_on_line: false })
            }
            Kind::Packed(line) => of_line(line, 0, false),
            Kind::Linear { line, slope } => of_line(line, *slope, true),
            Kind::Runs { .. } => None,
        }
    }

    /// The first row of ascending integers with one at or after `value`, or `after` it; the number of rows if there is
    /// none.
    pub(crate) fn seek(&self, value: i64, after: bool) -> usize {
        let is_before = |row: usize| {
            let found = self.get(row);
            found < value || after && found == value
        };
        // A bound is behind most blocks of a scan.
        if self.rows.checked_sub(1).is_none_or(is_before) {
            return self.rows;
        }
        let (mut low, mut high) = (0, self.rows);
        if let Some(guess) = self.guess(value) {
            let mut step = 4;
            if is_before(guess) {
                low = guess + 1;
                while low + step < high && is_before(low + step) {
                    (low, step) = (low + step + 1, step * 4);
                }
                high = high.min(low + step);
            } else {
                high = guess;
                while high > step && !is_before(high - step) {
                    (high, step) = (high - step, step * 4);
                }
                low = high.saturating_sub(step);
            }
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(middle) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// About where a value would be among ascending integers, if they lie on a line: as if it were as far above the
    /// line's base as half of the greatest offset.
    pub(crate) fn guess(&self, value: i64) -> Option<usize> {
        let Kind::Linear { line, slope } = &self.kind else { return None };
        let middle = line.base.saturating_add_unsigned(mask(line.width) / 2);
        let at = value.saturating_sub(middle) as f64 * (1_u64 << SLOPE_BITS) as f64 / *slope as f64;
        Some((at as usize).min(self.rows.saturating_sub(1)))
    }

    /// Asks the processor for the offsets about the row where a value is guessed.
    #[inline]
    pub(crate) fn prefetch_about(&self, value: i64) {
        let (Some(row), Kind::Linear { line, .. }) = (self.guess(value), &self.kind) else { return };
        let at = row * line.width as usize / 8;
        let around = line.bits.get(at.saturating_sub(CACHE_LINE)..).unwrap_or_default();
        around.iter().step_by(CACHE_LINE).take(3).for_each(|byte| prefetch(byte));
    }

    /// Appends what `of` makes of the integers of rows.
    #[inline]
    pub(crate) fn append<T>(
        &self,
        rows: Range<usize>,
        scratch: &mut Vec<u32>,
        out: &mut Vec<T>,
        of: impl Fn(i64) -> T,
    ) {
        match &self.kind {
            Kind::Packed(Line { base, width: 32, bits }) => {
                let chunks = bits.as_chunks::<4>().0.get(rows).unwrap_or_default();
                out.extend(chunks.iter().map(|&chunk| of(base.wrapping_add(i64::from(u32::from_le_bytes(chunk))))));
            }
            Kind::Packed(line) if line.width < 32 => {
                scratch.clear();
                unpack(line.bits, line.width, rows.start, rows.len(), scratch);
                out.extend(scratch.iter().map(|&offset| of(line.base.wrapping_add(i64::from(offset)))));
            }
            Kind::Packed(_) | Kind::Linear { .. } => {
                out.reserve(rows.len());
                for_each_window(*self, self.rows, rows, |integers| out.extend(integers.iter().map(|&value| of(value))));
            }
            Kind::Constant(_) | Kind::Runs { .. } => self.for_each(rows, scratch, |value| out.push(of(value))),
        }
    }

    /// Appends what `of` makes of the integers of some rows, ascending; of rows that do not ascend, as in a block whose
    /// keys do not, anything.
    #[inline]
    pub(crate) fn gather<T>(&self, rows: &[u32], scratch: &mut Vec<u32>, out: &mut Vec<T>, of: impl Fn(i64) -> T) {
        let (Some(&first), Some(&last)) = (rows.first(), rows.last()) else { return };
        // Groups of eight are unpacked together.
        let start = first - first % 8;
        let span = (last as usize + 1).saturating_sub(start as usize);
        match &self.kind {
            Kind::Constant(value) => out.extend(rows.iter().map(|_| of(*value))),
            Kind::Packed(line) if line.width <= 32 && rows.len() * DENSE >= span => {
                scratch.clear();
                unpack(line.bits, line.width, start as usize, span, scratch);
                let offset =
                    |row: &u32| scratch.get(row.wrapping_sub(start) as usize).map_or(0, |&offset| i64::from(offset));
                out.extend(rows.iter().map(|row| of(line.base.wrapping_add(offset(row)))));
            }
            Kind::Runs { values, ends, count } => {
                let mut run = run_of(ends, *count, first as usize);
                out.extend(rows.iter().map(|&row| {
                    while run + 1 < *count && ends.get(run) <= i64::from(row) {
                        run += 1;
                    }
                    of(values.get(run))
                }));
            }
            Kind::Packed(_) | Kind::Linear { .. } => out.extend(rows.iter().map(|&row| of(self.get(row as usize)))),
        }
    }

    /// Calls `each` with the integers of rows, in order.
    #[inline]
    pub(crate) fn for_each(&self, rows: Range<usize>, scratch: &mut Vec<u32>, mut each: impl FnMut(i64)) {
        match &self.kind {
            Kind::Constant(value) => rows.for_each(|_| each(*value)),
            Kind::Packed(line) if line.width <= 32 => {
                scratch.clear();
                unpack(line.bits, line.width, rows.start, rows.len(), scratch);
                scratch.iter().for_each(|&offset| each(line.base.wrapping_add(i64::from(offset))));
            }
            Kind::Runs { values, ends, count } => {
                let mut run = run_of(ends, *count, rows.start);
                let mut row = rows.start;
                while row < rows.end && run < *count {
                    let end = usize::try_from(ends.get(run)).unwrap_or(0).clamp(row, rows.end);
                    let value = values.get(run);
                    (row..end).for_each(|_| each(value));
                    (row, run) = (end, run + 1);
                }
                // Only of a page whose runs do not add up.
                (row..rows.end).for_each(|_| each(0));
            }
            _ => rows.for_each(|row| each(self.get(row))),
        }
    }

    /// Clears in `selection` the rows whose integer is in none of the ranges, both ends included.
    pub(crate) fn filter(&self, ranges: &[(i64, i64)], selection: &mut Bitmap, scratch: &mut Vec<u32>) {
        let within = |value: i64| ranges.iter().any(|&(least, greatest)| least <= value && value <= greatest);
        match (&self.kind, ranges) {
            (Kind::Constant(value), _) => {
                if !within(*value) {
                    selection.reset(self.rows, false);
                }
            }
            (Kind::Packed(line), &[range]) if line.width <= 32 => match offsets(line, range) {
                Some(offsets) => filter(line.bits, line.width, offsets, selection.words_mut(), self.rows),
                None => selection.reset(self.rows, false),
            },
            _ => {
                let mut row = 0;
                self.for_each(0..self.rows, scratch, |value| {
                    if !within(value) {
                        selection.clear(row);
                    }
                    row += 1;
                });
            }
        }
    }
}

/// The integer of a row of packed ones, which are all that there is; `None` if they are something else.
#[inline]
pub(crate) fn packed_at(bytes: &[u8], rows: usize, row: usize) -> Option<i64> {
    let (&[form, base @ .., width], bits) = bytes.split_first_chunk::<10>()?;
    let width = u32::from(width);
    let fits = form == PACKED && width <= 56 && bits.len() == packed_len(width, rows);
    fits.then(|| i64::from_le_bytes(base).wrapping_add(get(bits, width, row) as i64))
}

/// A range as the least offset and the span above it; `None` if no offset of the line's width lies within.
fn offsets(line: &Line<'_>, (least, greatest): (i64, i64)) -> Option<(u32, u32)> {
    let most = mask(line.width) as i128;
    let from = (i128::from(least) - i128::from(line.base)).max(0);
    let to = (i128::from(greatest) - i128::from(line.base)).min(most);
    (from <= to).then(|| (from as u32, (to - from) as u32))
}

/// The run in which a row lies.
fn run_of(ends: &Flat<'_>, count: usize, row: usize) -> usize {
    let (mut low, mut high) = (0, count - 1);
    while low < high {
        let middle = low + (high - low) / 2;
        if ends.get(middle) <= row as i64 { low = middle + 1 } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn check(values: &[i64]) -> Form {
        let mut bytes = Vec::new();
        encode(values, &mut bytes);
        let integers = Integers::parse(&bytes, values.len()).unwrap();
        let mut found = Vec::new();
        integers.for_each(0..values.len(), &mut Vec::new(), |value| found.push(value));
        assert_eq!(found, values);
        let middle = values.len() / 2;
        found.clear();
        integers.for_each(middle..values.len(), &mut Vec::new(), |value| found.push(value));
        assert_eq!(found, values[middle..]);
        found.clear();
        integers.append(middle / 2..middle, &mut Vec::new(), &mut found, |value| value);
        assert_eq!(found, values[middle / 2..middle]);
        for step in [1, 3, 11] {
            let rows: Vec<u32> = (middle as u32 / 2..values.len() as u32).step_by(step).collect();
            found.clear();
            integers.gather(&rows, &mut Vec::new(), &mut found, |value| value);
            assert!(found.iter().eq(rows.iter().map(|&row| &values[row as usize])), "every {step}th");
        }
        for (row, &value) in values.iter().enumerate() {
            assert_eq!(integers.get(row), value, "row {row}");
            let packed = packed_at(&bytes, values.len(), row);
            assert!(packed.is_none() || packed == Some(value));
            assert!(packed.is_some() || integers.form() != Form::Packed || bytes[9] == 64);
        }
        let block = [&[0xff; 3][..], &bytes, &[0xff; 11]].concat();
        let within = Integers::parse(&block[3..3 + bytes.len()], values.len()).unwrap();
        let head = within.head(&block);
        assert_eq!(head.is_none(), integers.form() == Form::RunLength);
        for (row, &value) in values.iter().enumerate() {
            assert!(head.is_none_or(|head| head.integer(&block, row) == value), "row {row}, by the head");
        }
        if let Some(head) = head.filter(|_| values.is_sorted()) {
            for value in values.iter().flat_map(|&value| [value.saturating_sub(1), value, value.saturating_add(1)]) {
                let row = values.partition_point(|&other| other < value);
                let expected = (row, values.get(row) == Some(&value));
                assert_eq!(head.seek(&block, values.len(), value), expected, "{value}");
            }
        }
        let mut ranges = vec![(i64::MIN, i64::MAX)];
        ranges.extend(values.first().map(|&v| (v, v)));
        ranges.extend(values.get(middle).map(|&v| (v.saturating_sub(3), v.saturating_add(1000))));
        for range in &ranges {
            for ranges in [&[*range][..], &[*range, (5, 6)]] {
                let mut selection = Bitmap::new(values.len(), true);
                integers.filter(ranges, &mut selection, &mut Vec::new());
                let passes = |v: i64| ranges.iter().any(|&(a, b)| (a..=b).contains(&v));
                let expected: Vec<usize> = (0..values.len()).filter(|&row| passes(values[row])).collect();
                assert_eq!(selection.rows().collect::<Vec<_>>(), expected, "{ranges:?}");
            }
        }
        integers.form()
    }

    #[test]
    fn every_form_gives_what_was_put_in() {
        let mut rng = SmallRng::seed_from_u64(1);
        assert_eq!(check(&[7; 1000]), Form::Constant);
        assert_eq!(check(&[i64::MIN]), Form::Constant);
        assert_eq!(check(&(0..1000).map(|i| i * 3 - 17).collect::<Vec<_>>()), Form::Linear);
        assert_eq!(check(&(0..1000).map(|i| i / 100).collect::<Vec<_>>()), Form::RunLength);
        assert_eq!(check(&[i64::MIN, i64::MAX, 0, -1, i64::MIN]), Form::Packed);
        let (step, rows) = if cfg!(miri) { (9, 40) } else { (1, 500) };
        for bits in (1..=64).step_by(step) {
            let values: Vec<i64> = (0..rows).map(|_| (rng.random::<u64>() & mask(bits)) as i64).collect();
            check(&values);
            let shifted: Vec<i64> = values.iter().map(|v| v.wrapping_sub(1 << 40)).collect();
            check(&shifted);
        }
        let mut keys: Vec<i64> = (0..700).map(|_| rng.random_range(0..100_000)).collect();
        keys.sort_unstable();
        assert_eq!(check(&keys), Form::Linear);
    }

    #[test]
    fn a_dense_sequence_takes_no_bits() {
        let mut bytes = Vec::new();
        let rows = if cfg!(miri) { 1000 } else { 100_000 };
        encode(&(1_000_000..1_000_000 + rows).collect::<Vec<_>>(), &mut bytes);
        assert_eq!(bytes.len(), 18);
    }
}
