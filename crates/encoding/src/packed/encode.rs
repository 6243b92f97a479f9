//! Writing packed values.
//!
//! What is written depends on all columns at once, the bitmaps that are needed and the width of the ends, and comes
//! before the first of them. So a column is asked for more than once ([`PackedLayout::encode_source`]), or, where that
//! is dear, once, and what it gave is kept ([`PackedLayout::encode_once`]). Rows of whole slots need neither
//! ([`PackedLayout::encode_slots`]).

#[cfg(doc)]
use mycelium_base::ErrorKind;
use mycelium_base::limits::MAX_VALUE_LEN;
use mycelium_base::{Error, Result};

use super::{ColumnState, FORMAT_VERSION, HAS_NULLS, HAS_PRESENCE, HEADER_LEN, PackedLayout, put_datum};
use crate::DatumRef;

impl PackedLayout {
    /// Appends the packed form of a whole row: one value per column of the schema; those of the primary key, and of
    /// columns that were dropped, are ignored. Allocates nothing if `out` has room.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`]: wrong number of values, a value its column cannot hold, or a row over
    /// [`MAX_VALUE_LEN`]; `out` is then unchanged.
    pub fn encode_row(&self, row: &[DatumRef<'_>], out: &mut Vec<u8>) -> Result<()> {
        self.check_arity(row.len())?;
        let columns = self.schema.columns();
        let slot = |column: usize| {
            let datum = row[column];
            datum.to_bits().filter(|_| datum.is_of(&columns[column].ty)).map(|bits| bits as u64)
        };
        match self.encode_slots(slot, out) {
            Some(()) => Ok(()),
            None => self.encode_with(|column| row[column].into(), out),
        }
    }

    /// As [`PackedLayout::encode_row`], for a patch: columns may be absent.
    ///
    /// # Errors
    /// As [`PackedLayout::encode_row`].
    pub fn encode_patch(&self, patch: &[ColumnState<'_>], out: &mut Vec<u8>) -> Result<()> {
        self.check_arity(patch.len())?;
        self.encode_with(|column| patch[column], out)
    }

    /// As [`PackedLayout::encode_patch`], where `state` is asked, more than once, for each column outside the primary
    /// key.
    ///
    /// # Errors
    /// As [`PackedLayout::encode_row`].
    pub fn encode_with<'d>(&self, state: impl Fn(usize) -> ColumnState<'d>, out: &mut Vec<u8>) -> Result<()> {
        for place in &self.columns {
            let column = place.column as usize;
            let datum = match state(column) {
                ColumnState::Absent => continue,
                ColumnState::Null => DatumRef::Null,
                ColumnState::Value(datum) => datum,
            };
            datum.check(&self.schema.columns()[column])?;
        }
        self.encode_source(&Datums { layout: self, state }, out)
    }

    fn check_arity(&self, found: usize) -> Result<()> {
        let expected = self.schema.columns().len();
        if found == expected {
            return Ok(());
        }
        Err(Error::invalid(format!("a row has {expected} values, not {found}")))
    }

    /// Writes what `source` holds:
    /// 1. One pass over the columns finds which bitmaps are needed and how long the variable columns are.
    /// 2. The bitmaps are filled while the slots and ends are appended.
    /// 3. The bytes of the variable columns follow.
    pub(crate) fn encode_source(&self, source: &impl Source, out: &mut Vec<u8>) -> Result<()> {
        let (mut absent, mut nulls, mut variable_len) = (false, false, 0);
        for index in 0..self.columns.len() {
            match source.shape(index) {
                Shape::Absent => absent = true,
                Shape::Null => nulls = true,
                Shape::Value(len) => variable_len += len,
            }
        }
        let width_code = width_code(variable_len);
        self.reserve(variable_len, out)?;
        out.push(
            FORMAT_VERSION << 4
                | if nulls { HAS_NULLS } else { 0 }
                | if absent { HAS_PRESENCE } else { 0 }
                | width_code,
        );
        out.push(self.schema.version());
        let presence_at = out.len();
        out.resize(presence_at + if absent { self.bitmap_len } else { 0 }, 0);
        let nulls_at = out.len();
        out.resize(nulls_at + if nulls { self.bitmap_len } else { 0 }, 0);
        let mut end = 0;
        for (index, place) in self.columns.iter().enumerate() {
            let shape = source.shape(index);
            if matches!(shape, Shape::Absent) {
                continue;
            }
            if absent {
                out[presence_at + index / 8] |= 1 << (index % 8);
            }
            match shape {
                Shape::Null => {
                    out[nulls_at + index / 8] |= 1 << (index % 8);
                    out.resize(out.len() + place.width as usize, 0);
                }
                Shape::Value(len) if place.width == 0 => end += len,
                _ => source.write(index, out),
            }
            if place.width == 0 {
                out.extend_from_slice(&(end as u32).to_le_bytes()[..1 << width_code]);
            }
        }
        for index in self.class_ends[4]..self.columns.len() {
            if matches!(source.shape(index), Shape::Value(_)) {
                source.write(index, out);
            }
        }
        Ok(())
    }

    /// As [`PackedLayout::encode_source`], of columns that are dear to ask for: `put` is asked for each once, in
    /// physical order, and appends its slot or its bytes unless it is absent or null. Returns whether there is a column
    /// in the value.
    pub(crate) fn encode_once(
        &self,
        mut put: impl FnMut(usize, &mut Vec<u8>) -> Result<Appended>,
        scratch: &mut PackedScratch,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        scratch.begin(self.bitmap_len);
        let PackedScratch { presence, nulls, ends, bytes } = scratch;
        let (mut absent, mut some_null, mut slots_len) = (0, false, 0);
        for (index, place) in self.columns.iter().enumerate() {
            match put(index, bytes)? {
                Appended::Absent => {
                    absent += 1;
                    presence[index / 8] &= !(1 << (index % 8));
                    continue;
                }
                Appended::Null => {
                    some_null = true;
                    nulls[index / 8] |= 1 << (index % 8);
                    bytes.resize(bytes.len() + place.width as usize, 0);
                }
                Appended::Value => {}
            }
            match place.width {
                0 => ends.push((bytes.len() - slots_len) as u32),
                _ => slots_len = bytes.len(),
            }
        }
        let variable_len = bytes.len() - slots_len;
        let width_code = width_code(variable_len);
        self.reserve(variable_len, out)?;
        let nulls_flag = if some_null { HAS_NULLS } else { 0 };
        let presence_flag = if absent > 0 { HAS_PRESENCE } else { 0 };
        out.extend_from_slice(&[FORMAT_VERSION << 4 | nulls_flag | presence_flag | width_code, self.schema.version()]);
        if absent > 0 {
            clear_padding(presence, self.columns.len());
            out.extend_from_slice(presence);
        }
        if some_null {
            out.extend_from_slice(nulls);
        }
        out.extend_from_slice(&bytes[..slots_len]);
        for end in ends {
            out.extend_from_slice(&end.to_le_bytes()[..1 << width_code]);
        }
        out.extend_from_slice(&bytes[slots_len..]);
        Ok(absent < self.columns.len())
    }

    /// As [`PackedLayout::encode_patch`], of columns that are dear to ask for: `cell` is asked for each once, in
    /// physical order, and shows what it is; one that it does not show is absent. Their values must be of the columns'
    /// types.
    ///
    /// # Errors
    /// Those of `cell`; [`ErrorKind::InvalidArgument`] for a row over [`MAX_VALUE_LEN`].
    pub fn encode_cells(
        &self,
        mut cell: impl FnMut(usize, &mut dyn FnMut(ColumnState<'_>)) -> Result<()>,
        scratch: &mut PackedScratch,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let put = |index: usize, out: &mut Vec<u8>| {
            let mut appended = Appended::Absent;
            cell(self.column(index), &mut |state| match state {
                ColumnState::Absent => {}
                ColumnState::Null | ColumnState::Value(DatumRef::Null) => appended = Appended::Null,
                ColumnState::Value(datum) => {
                    put_datum(datum, out);
                    appended = Appended::Value;
                }
            })?;
            Ok(appended)
        };
        self.encode_once(put, scratch, out).map(drop)
    }

    /// Appends a whole row of which no column is null, where all are of fixed width up to eight bytes: `slot` is asked
    /// for each, in physical order, and gives its bytes, little-endian, and anything behind them. `None`, and nothing
    /// appended, where there are other columns or it gives none.
    #[inline]
    pub fn encode_slots(&self, mut slot: impl FnMut(usize) -> Option<u64>, out: &mut Vec<u8>) -> Option<()> {
        if self.class_ends[0] > 0 || self.class_ends[4] < self.columns.len() {
            return None;
        }
        let start = out.len();
        let slots = start + HEADER_LEN;
        // Every slot is written as eight bytes, and the next one over what is behind it.
        out.resize(slots + self.slots_len + size_of::<u64>(), 0);
        out[start..slots].copy_from_slice(&[FORMAT_VERSION << 4, self.schema.version()]);
        for place in &self.columns {
            let Some(bytes) = slot(place.column as usize) else {
                out.truncate(start);
                return None;
            };
            let at = slots + place.slot as usize;
            out[at..at + size_of::<u64>()].copy_from_slice(&bytes.to_le_bytes());
        }
        out.truncate(slots + self.slots_len);
        Some(())
    }

    /// The length of a packed value of this shape, without making it.
    #[inline]
    pub fn packed_len(&self, shape: &PackedShape) -> usize {
        let variable_len = shape.variable_len as usize;
        let variables = self.columns.len() - self.class_ends[4] - shape.absent_variables as usize;
        let bitmaps = usize::from(shape.has_absent) + usize::from(shape.has_nulls);
        let slots = self.slots_len - shape.absent_slots as usize;
        HEADER_LEN + bitmaps * self.bitmap_len + slots + (variables << width_code(variable_len)) + variable_len
    }

    /// Makes room for a value with so many bytes of variable columns.
    fn reserve(&self, variable_len: usize, out: &mut Vec<u8>) -> Result<()> {
        let len_bound = HEADER_LEN + 2 * self.bitmap_len + self.slots_len + 4 * self.columns.len() + variable_len;
        if len_bound > MAX_VALUE_LEN {
            return Err(Error::invalid(format!(
                "the row has about {len_bound} bytes; at most {MAX_VALUE_LEN} are possible"
            )));
        }
        out.reserve(len_bound);
        Ok(())
    }

    /// Starts a value: header, schema version, and `nulls` if some column is null.
    pub(crate) fn begin_whole(&self, nulls: Option<&[u8]>, variable_len: usize, out: &mut Vec<u8>) -> usize {
        let width_code = width_code(variable_len);
        out.push(FORMAT_VERSION << 4 | if nulls.is_some() { HAS_NULLS } else { 0 } | width_code);
        out.push(self.schema.version());
        out.extend_from_slice(nulls.unwrap_or_default());
        1 << width_code
    }
}

/// The narrowest width whose offsets reach `len`, coded as in the header.
fn width_code(len: usize) -> u8 {
    match len {
        0..=0xff => 0,
        0x100..=0xffff => 1,
        _ => 2,
    }
}

/// What the length of a packed value depends on, beside its layout.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PackedShape {
    /// Bytes of its variable columns.
    pub variable_len: u32,
    /// Bytes of the slots that absent columns would have.
    pub absent_slots: u32,
    /// Variable columns that are absent.
    pub absent_variables: u32,
    /// Whether a column is absent.
    pub has_absent: bool,
    /// Whether a column is null.
    pub has_nulls: bool,
}

impl PackedShape {
    /// A column of this width, `None` if it is variable, is absent.
    pub fn lack(&mut self, width: Option<usize>) {
        self.has_absent = true;
        match width {
            Some(width) => self.absent_slots += width as u32,
            None => self.absent_variables += 1,
        }
    }
}

/// What an encoder needs to know of a column before it writes.
pub(crate) enum Shape {
    Absent,
    Null,
    /// The length if the column is variable, else 0.
    Value(usize),
}

/// What [`PackedLayout::encode_once`] is given of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Appended {
    Absent,
    Null,
    Value,
}

/// Memory of [`PackedLayout::encode_cells`], reused for every row.
#[derive(Clone, Default, Debug)]
pub struct PackedScratch {
    presence: Vec<u8>,
    nulls: Vec<u8>,
    ends: Vec<u32>,
    /// The slots, then the bytes of the variable columns.
    bytes: Vec<u8>,
}

impl PackedScratch {
    fn begin(&mut self, bitmap_len: usize) {
        for (bitmap, byte) in [(&mut self.presence, 0xff), (&mut self.nulls, 0)] {
            bitmap.clear();
            bitmap.resize(bitmap_len, byte);
        }
        self.ends.clear();
        self.bytes.clear();
    }
}

/// Clears the bits of a bitmap from bit `count` on.
fn clear_padding(bitmap: &mut [u8], count: usize) {
    if let Some(last) = bitmap.last_mut()
        && !count.is_multiple_of(8)
    {
        *last &= (1 << (count % 8)) - 1;
    }
}

/// Where [`PackedLayout::encode_source`] gets columns from, by physical index. Values must fit their columns.
pub(crate) trait Source {
    fn shape(&self, index: usize) -> Shape;
    /// Appends the slot or the bytes; called only for a `Shape::Value`.
    fn write(&self, index: usize, out: &mut Vec<u8>);
}

struct Datums<'a, F> {
    layout: &'a PackedLayout,
    state: F,
}

impl<'d, F: Fn(usize) -> ColumnState<'d>> Datums<'_, F> {
    fn state(&self, index: usize) -> ColumnState<'d> {
        (self.state)(self.layout.columns[index].column as usize)
    }
}

impl<'d, F: Fn(usize) -> ColumnState<'d>> Source for Datums<'_, F> {
    #[inline]
    fn shape(&self, index: usize) -> Shape {
        match self.state(index) {
            ColumnState::Absent => Shape::Absent,
            ColumnState::Null | ColumnState::Value(DatumRef::Null) => Shape::Null,
            ColumnState::Value(DatumRef::Utf8(text)) => Shape::Value(text.len()),
            ColumnState::Value(DatumRef::Binary(bytes)) => Shape::Value(bytes.len()),
            ColumnState::Value(_) => Shape::Value(0),
        }
    }

    #[inline]
    fn write(&self, index: usize, out: &mut Vec<u8>) {
        if let ColumnState::Value(datum) = self.state(index) {
            put_datum(datum, out);
        }
    }
}
