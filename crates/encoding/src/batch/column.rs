//! One column of a batch that is being built: its buffers.
//!
//! Values are kept by physical width, as Arrow has them. Room is made for as many rows as a batch is expected to have,
//! and for texts, where they come one by one, for as many as there is room for rows, each as long as the one that found
//! no room.

use std::sync::Arc;

use arrow_array::builder::BooleanBufferBuilder;
use arrow_array::types::*;
use arrow_array::{ArrayRef, BinaryArray, BooleanArray, PrimitiveArray, StringArray};
use arrow_buffer::{Buffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;
use mycelium_base::{Error, Result};

#[cfg(doc)]
use super::RecordBatchBuilder;
use super::TextArrays;
use crate::cell_moves::{arrange, laid, lay, make_room, remove, remove_texts, weave, weave_texts, without, woven};
use crate::packed::{RawColumn, array};
use crate::page::{Page, PageRows, slot32, slot64};
use crate::row_format::Plain;
use crate::text_codes::{TextCodes, too_much_text};
use crate::{ColumnState, ColumnType, DatumRef, PackedLayout, TimeUnit};

#[cold]
pub(super) fn absent(name: &str) -> Error {
    Error::corruption(format!("a whole row lacks column \"{name}\""))
}

/// Bytes of text or binary for which room is made at once, at most.
const MOST_ROOM: usize = 1 << 20;

/// The buffers of one column.
#[derive(Debug)]
pub(super) struct ColumnBuilder {
    ty: ColumnType,
    nullable: bool,
    texts: TextArrays,
    values: Values,
    nulls: NullBufferBuilder,
    /// Bytes of text or binary that the last batch had.
    last_bytes: usize,
}

/// Values by physical width: Arrow types of one width share a buffer layout.
#[derive(Debug)]
enum Values {
    Bits(BooleanBufferBuilder),
    Width1(Vec<u8>),
    Width2(Vec<u16>),
    Width4(Vec<u32>),
    Width8(Vec<u64>),
    Width16(Vec<u128>),
    Variable { ends: Vec<i32>, bytes: Vec<u8> },
    Codes(TextCodes),
}

impl Values {
    fn new(ty: &ColumnType, texts: TextArrays) -> Self {
        match (ty, ty.fixed_width()) {
            (ColumnType::Bool, _) => Self::Bits(BooleanBufferBuilder::new(0)),
            (_, Some(1)) => Self::Width1(Vec::new()),
            (_, Some(2)) => Self::Width2(Vec::new()),
            (_, Some(4)) => Self::Width4(Vec::new()),
            (_, Some(8)) => Self::Width8(Vec::new()),
            (_, Some(_)) => Self::Width16(Vec::new()),
            (ColumnType::Utf8, None) if texts != TextArrays::Plain => Self::Codes(TextCodes::with_capacity(0)),
            (_, None) => Self::Variable { ends: vec![0], bytes: Vec::new() },
        }
    }

    /// Makes room for so many rows with so many bytes of text or binary between them.
    fn reserve(&mut self, rows: usize, text: usize) {
        match self {
            Self::Bits(bits) => bits.reserve(rows),
            Self::Width1(values) => values.reserve(rows),
            Self::Width2(values) => values.reserve(rows),
            Self::Width4(values) => values.reserve(rows),
            Self::Width8(values) => values.reserve(rows),
            Self::Width16(values) => values.reserve(rows),
            Self::Variable { ends, bytes } => {
                ends.reserve(rows);
                bytes.reserve(text.min(MOST_ROOM));
            }
            Self::Codes(codes) => codes.codes_mut().reserve(rows),
        }
    }

    /// Rows.
    fn len(&self) -> usize {
        match self {
            Self::Bits(bits) => bits.len(),
            Self::Width1(values) => values.len(),
            Self::Width2(values) => values.len(),
            Self::Width4(values) => values.len(),
            Self::Width8(values) => values.len(),
            Self::Width16(values) => values.len(),
            Self::Variable { ends, .. } => ends.len() - 1,
            Self::Codes(codes) => codes.len(),
        }
    }

    /// Bytes of text or binary.
    fn bytes(&self) -> usize {
        match self {
            Self::Variable { bytes, .. } => bytes.len(),
            Self::Codes(codes) => codes.bytes(),
            _ => 0,
        }
    }
}

/// Appends a text, where texts come one by one.
#[inline]
fn push_text(ends: &mut Vec<i32>, bytes: &mut Vec<u8>, text: &[u8]) -> Result<()> {
    if bytes.capacity() - bytes.len() < text.len() {
        make_text_room(bytes, text.len(), ends.capacity() - ends.len());
    }
    bytes.extend_from_slice(text);
    ends.push(i32::try_from(bytes.len()).map_err(|_| too_much_text())?);
    Ok(())
}

/// Makes room for a text of this length, and for as long ones in as many rows.
#[cold]
fn make_text_room(bytes: &mut Vec<u8>, len: usize, rows: usize) {
    bytes.reserve(len.max(len.saturating_mul(rows).min(MOST_ROOM)));
}

impl ColumnBuilder {
    pub(super) fn new(ty: &ColumnType, nullable: bool, texts: TextArrays) -> Self {
        let (ty, values) = (ty.clone(), Values::new(ty, texts));
        Self { ty, nullable, texts, values, nulls: NullBufferBuilder::new(0), last_bytes: 0 }
    }

    /// Rows.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Bytes of text or binary collected.
    pub(super) fn bytes(&self) -> usize {
        self.values.bytes()
    }

    /// Makes room for so many rows, and as much text as the last batch had.
    pub(super) fn reserve(&mut self, rows: usize) {
        self.values.reserve(rows, self.last_bytes);
    }

    /// Appends what a packed whole row of this layout has of its column `index`. Returns as
    /// [`ColumnBuilder::push_raw`].
    #[inline]
    pub(super) fn push_packed(&mut self, layout: &PackedLayout, index: usize, raw: RawColumn<'_>) -> Result<usize> {
        match raw {
            RawColumn::Value(bytes) => self.push_raw(Some(bytes)),
            RawColumn::Null => self.push_raw(None),
            RawColumn::Absent => Err(absent(layout.name(index))),
        }
    }

    /// Appends a packed slot or variable bytes; returns the bytes of text or binary collected.
    #[inline]
    fn push_raw(&mut self, raw: Option<&[u8]>) -> Result<usize> {
        match raw {
            Some(_) => self.nulls.append_non_null(),
            None if self.nullable => self.nulls.append_null(),
            None => return Err(Error::corruption("a column that may not be null is null")),
        }
        match &mut self.values {
            Values::Bits(bits) => bits.append(match raw {
                None => false,
                Some(slot) => match array::<1>(slot)?[0] {
                    bit @ (0 | 1) => bit == 1,
                    other => return Err(Error::corruption("malformed bool in a packed row").expected("0 or 1", other)),
                },
            }),
            Values::Width1(values) => values.push(raw.map_or(Ok([0]), array)?[0]),
            Values::Width2(values) => values.push(u16::from_le_bytes(raw.map_or(Ok([0; 2]), array)?)),
            Values::Width4(values) => values.push(u32::from_le_bytes(raw.map_or(Ok([0; 4]), array)?)),
            Values::Width8(values) => values.push(u64::from_le_bytes(raw.map_or(Ok([0; 8]), array)?)),
            Values::Width16(values) => values.push(u128::from_le_bytes(raw.map_or(Ok([0; 16]), array)?)),
            Values::Variable { ends, bytes } => push_text(ends, bytes, raw.unwrap_or_default())?,
            Values::Codes(codes) => codes.push(raw)?,
        }
        Ok(self.values.bytes())
    }

    /// Appends a value that was not decoded; returns as [`ColumnBuilder::push_raw`].
    #[inline]
    pub(super) fn push_plain(&mut self, plain: Plain<'_>) -> Result<usize> {
        self.nulls.append_non_null();
        match (&mut self.values, plain) {
            (Values::Width8(values), Plain::Number(number)) => values.push(number),
            (Values::Width4(values), Plain::Number(number)) => values.push(number as u32),
            (Values::Variable { ends, bytes }, Plain::Bytes(text)) => push_text(ends, bytes, text)?,
            (Values::Codes(codes), Plain::Bytes(text)) => codes.push(Some(text))?,
            _ => return Err(Error::corruption("a value is of another kind than its column")),
        }
        Ok(self.values.bytes())
    }

    /// Appends a key column.
    #[inline]
    pub(super) fn push_datum(&mut self, datum: DatumRef<'_>) -> Result<usize> {
        match datum {
            DatumRef::Null => self.push_raw(None),
            DatumRef::Bool(v) => self.push_raw(Some(&[u8::from(v)])),
            DatumRef::Int8(v) => self.push_raw(Some(&v.to_le_bytes())),
            DatumRef::Int16(v) => self.push_raw(Some(&v.to_le_bytes())),
            DatumRef::Int32(v) | DatumRef::Date32(v) => self.push_raw(Some(&v.to_le_bytes())),
            DatumRef::Int64(v) | DatumRef::Timestamp(v) => self.push_raw(Some(&v.to_le_bytes())),
            DatumRef::UInt8(v) => self.push_raw(Some(&[v])),
            DatumRef::UInt16(v) => self.push_raw(Some(&v.to_le_bytes())),
            DatumRef::UInt32(v) => self.push_raw(Some(&v.to_le_bytes())),
            DatumRef::UInt64(v) => self.push_raw(Some(&v.to_le_bytes())),
            DatumRef::Float32(v) => self.push_raw(Some(&v.to_bits().to_le_bytes())),
            DatumRef::Float64(v) => self.push_raw(Some(&v.to_bits().to_le_bytes())),
            DatumRef::Utf8(v) => self.push_raw(Some(v.as_bytes())),
            DatumRef::Binary(v) => self.push_raw(Some(v)),
            DatumRef::Decimal128(v) => self.push_raw(Some(&v.to_le_bytes())),
        }
    }

    /// Appends a cell; returns the bytes of text or binary collected.
    pub(super) fn push_cell(&mut self, cell: ColumnState<'_>) -> Result<usize> {
        match cell {
            ColumnState::Value(datum) => self.push_datum(datum),
            ColumnState::Null => self.push_raw(None),
            ColumnState::Absent => Err(Error::corruption("a row lacks a column")),
        }
    }

    /// Appends cells of a page, all of them at once unless one is absent, where they fail; returns the bytes of text or
    /// binary collected.
    pub(super) fn push_cells(&mut self, page: &Page<'_>, rows: &PageRows<'_>, scratch: &mut Vec<u32>) -> Result<usize> {
        let may_be_null = self.nullable || !page.has_nulls();
        let is_there = |row: &u32| !page.is_absent(*row as usize);
        let are_there = match rows {
            PageRows::Some(rows) => !page.has_absent() || rows.iter().all(is_there),
            PageRows::Range(_) => !page.has_absent(),
        };
        if !are_there || !may_be_null || rows.end() > page.rows() || !self.push_values(page, rows, scratch)? {
            let mut text = Vec::new();
            rows.try_each(|row| self.push_cell(page.expanded_cell(row, &mut text)?).map(drop))?;
            return Ok(self.values.bytes());
        }
        match page.has_nulls() {
            true => rows.try_each(|row| {
                self.nulls.append(!page.is_null(row));
                Ok(())
            })?,
            false => self.nulls.append_n_non_nulls(rows.len()),
        }
        Ok(self.values.bytes())
    }

    /// Appends values of a page, of null cells anything; whether it could.
    fn push_values(&mut self, page: &Page<'_>, rows: &PageRows<'_>, scratch: &mut Vec<u32>) -> Result<bool> {
        let ty = &self.ty;
        let done = match &mut self.values {
            Values::Width1(values) => page.append_ordinals(rows, scratch, values, |value| value as u8),
            Values::Width2(values) => page.append_ordinals(rows, scratch, values, |value| value as u16),
            Values::Width4(values) if *ty == ColumnType::Float32 => {
                page.append_ordinals(rows, scratch, values, |value| slot32(ty, value))
            }
            Values::Width4(values) => page.append_ordinals(rows, scratch, values, |value| value as u32),
            Values::Width8(values) if matches!(ty, ColumnType::Float64 | ColumnType::UInt64) => {
                page.append_ordinals(rows, scratch, values, |value| slot64(ty, value))
            }
            Values::Width8(values) => page.append_ordinals(rows, scratch, values, |value| value as u64),
            Values::Width16(values) => page.append_ordinals(rows, scratch, values, |value| i128::from(value) as u128),
            Values::Variable { ends, bytes } => page.each_text(rows, |text| {
                bytes.extend_from_slice(text);
                ends.push(i32::try_from(bytes.len()).map_err(|_| too_much_text())?);
                Ok(())
            })?,
            Values::Codes(codes) => codes.append(page, rows, scratch)?,
            Values::Bits(bits) => match rows {
                PageRows::Range(rows) => page.each_ordinal(rows.clone(), scratch, |value| bits.append(value != 0)),
                PageRows::Some(_) => None,
            },
        };
        Ok(done.is_some())
    }

    /// Whether cells can be overwritten.
    pub(super) fn can_overwrite(&self) -> bool {
        !matches!(self.values, Values::Bits(_) | Values::Variable { .. } | Values::Codes(_))
    }

    /// See [`RecordBatchBuilder::overwrite`]; `None` if there is no such row, or cells cannot be overwritten.
    pub(super) fn overwrite(&mut self, cells: impl Iterator<Item = (usize, u128)>) -> Option<()> {
        match &mut self.values {
            Values::Width1(values) => put_each(values, cells, |value| value as u8),
            Values::Width2(values) => put_each(values, cells, |value| value as u16),
            Values::Width4(values) => put_each(values, cells, |value| value as u32),
            Values::Width8(values) => put_each(values, cells, |value| value as u64),
            Values::Width16(values) => put_each(values, cells, |value| value),
            Values::Bits(_) | Values::Variable { .. } | Values::Codes(_) => None,
        }
    }

    /// See [`RecordBatchBuilder::make_room`]; all places are there. `None` if cells cannot be overwritten.
    pub(super) fn make_room(&mut self, first: usize, places: &[u32]) -> Option<()> {
        match &mut self.values {
            Values::Width1(values) => make_room(values, first, places),
            Values::Width2(values) => make_room(values, first, places),
            Values::Width4(values) => make_room(values, first, places),
            Values::Width8(values) => make_room(values, first, places),
            Values::Width16(values) => make_room(values, first, places),
            Values::Bits(_) | Values::Variable { .. } | Values::Codes(_) => return None,
        }
        self.nulls.append_n_non_nulls(places.len());
        Some(())
    }

    /// See [`RecordBatchBuilder::arrange`]; all places are there.
    pub(super) fn arrange(&mut self, first: usize, places: &[u32]) {
        let at = |place: u32| first + place as usize;
        match &mut self.values {
            Values::Bits(bits) => {
                let kept: Vec<bool> = places.iter().map(|&place| bits.get_bit(at(place))).collect();
                bits.truncate(first);
                kept.into_iter().for_each(|bit| bits.append(bit));
            }
            Values::Width1(values) => arrange(values, first, places),
            Values::Width2(values) => arrange(values, first, places),
            Values::Width4(values) => arrange(values, first, places),
            Values::Width8(values) => arrange(values, first, places),
            Values::Width16(values) => arrange(values, first, places),
            Values::Variable { ends, bytes } => {
                let start = ends[first] as usize;
                let appended = bytes.split_off(start);
                let appended_ends = ends.split_off(first + 1);
                for &place in places {
                    let place = place as usize;
                    let from = place.checked_sub(1).map_or(start, |before| appended_ends[before] as usize);
                    bytes.extend_from_slice(&appended[from - start..appended_ends[place] as usize - start]);
                    // No more than they were, unless a place is there twice.
                    ends.push(bytes.len() as i32);
                }
            }
            Values::Codes(codes) => arrange(codes.codes_mut(), first, places),
        }
        self.arrange_nulls(first, places);
    }

    /// See [`RecordBatchBuilder::remove`]; all places are there.
    pub(super) fn remove(&mut self, first: usize, places: &[u32]) {
        let cells = self.values.len() - first;
        match &mut self.values {
            Values::Bits(_) => return self.arrange(first, &without(cells, places)),
            Values::Width1(values) => remove(values, first, places),
            Values::Width2(values) => remove(values, first, places),
            Values::Width4(values) => remove(values, first, places),
            Values::Width8(values) => remove(values, first, places),
            Values::Width16(values) => remove(values, first, places),
            Values::Variable { ends, bytes } => remove_texts(ends, bytes, first, places),
            Values::Codes(codes) => remove(codes.codes_mut(), first, places),
        }
        match self.nulls.as_slice().is_some() {
            true => self.arrange_nulls(first, &without(cells, places)),
            false => self.nulls.truncate(first + cells - places.len()),
        }
    }

    fn arrange_nulls(&mut self, first: usize, places: &[u32]) {
        if self.nulls.len() > first && self.nulls.as_slice().is_some() {
            let kept: Vec<bool> = places.iter().map(|&place| self.nulls.is_valid(first + place as usize)).collect();
            self.nulls.truncate(first);
            kept.into_iter().for_each(|is_valid| self.nulls.append(is_valid));
        } else {
            self.nulls.truncate(first);
            self.nulls.append_n_non_nulls(places.len());
        }
    }

    /// See [`RecordBatchBuilder::weave`]; all places are there.
    pub(super) fn weave(&mut self, first: usize, places: &[u32]) {
        let cells = self.values.len() - first - places.len();
        match &mut self.values {
            // Bits are moved one by one in any case.
            Values::Bits(_) => return self.arrange(first, &woven(cells, places)),
            Values::Width1(values) => weave(values, first, places),
            Values::Width2(values) => weave(values, first, places),
            Values::Width4(values) => weave(values, first, places),
            Values::Width8(values) => weave(values, first, places),
            Values::Width16(values) => weave(values, first, places),
            Values::Variable { ends, bytes } => weave_texts(ends, bytes, first, places),
            Values::Codes(codes) => weave(codes.codes_mut(), first, places),
        }
        if self.nulls.as_slice().is_some() {
            self.arrange_nulls(first, &woven(cells, places));
        }
    }

    /// See [`RecordBatchBuilder::lay`]; all places are there.
    pub(super) fn lay(&mut self, first: usize, places: &[u32]) {
        let cells = self.values.len() - first - places.len();
        match &mut self.values {
            // Texts of other lengths move all that follow them.
            Values::Bits(_) | Values::Variable { .. } => return self.arrange(first, &laid(cells, places)),
            Values::Width1(values) => lay(values, first, places),
            Values::Width2(values) => lay(values, first, places),
            Values::Width4(values) => lay(values, first, places),
            Values::Width8(values) => lay(values, first, places),
            Values::Width16(values) => lay(values, first, places),
            Values::Codes(codes) => lay(codes.codes_mut(), first, places),
        }
        match self.nulls.as_slice().is_some() {
            true => self.arrange_nulls(first, &laid(cells, places)),
            false => self.nulls.truncate(first + cells),
        }
    }

    pub(super) fn finish(&mut self) -> std::result::Result<ArrayRef, ArrowError> {
        let nulls = self.nulls.finish();
        self.last_bytes = self.values.bytes();
        let buffer = match std::mem::replace(&mut self.values, Values::new(&self.ty, self.texts)) {
            Values::Bits(mut bits) => return Ok(Arc::new(BooleanArray::new(bits.finish(), nulls))),
            Values::Variable { ends, bytes } => {
                let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
                let bytes = Buffer::from_vec(bytes);
                return Ok(if self.ty == ColumnType::Utf8 {
                    Arc::new(StringArray::try_new(offsets, bytes, nulls)?)
                } else {
                    Arc::new(BinaryArray::try_new(offsets, bytes, nulls)?)
                });
            }
            Values::Codes(codes) if self.texts == TextArrays::Dictionaries => return codes.finish_dictionary(nulls),
            Values::Codes(codes) => return codes.finish_views(nulls),
            Values::Width1(values) => Buffer::from_vec(values),
            Values::Width2(values) => Buffer::from_vec(values),
            Values::Width4(values) => Buffer::from_vec(values),
            Values::Width8(values) => Buffer::from_vec(values),
            Values::Width16(values) => Buffer::from_vec(values),
        };
        macro_rules! primitive {
            ($ty:ty) => {{
                let len = buffer.len() / size_of::<<$ty as ArrowPrimitiveType>::Native>();
                let values = PrimitiveArray::<$ty>::try_new(ScalarBuffer::new(buffer, 0, len), nulls)?;
                Arc::new(values.with_data_type(self.ty.to_arrow())) as ArrayRef
            }};
        }
        Ok(match &self.ty {
            ColumnType::Int8 => primitive!(Int8Type),
            ColumnType::Int16 => primitive!(Int16Type),
            ColumnType::Int32 => primitive!(Int32Type),
            ColumnType::Int64 => primitive!(Int64Type),
            ColumnType::UInt8 => primitive!(UInt8Type),
            ColumnType::UInt16 => primitive!(UInt16Type),
            ColumnType::UInt32 => primitive!(UInt32Type),
            ColumnType::UInt64 => primitive!(UInt64Type),
            ColumnType::Float32 => primitive!(Float32Type),
            ColumnType::Float64 => primitive!(Float64Type),
            ColumnType::Date32 => primitive!(Date32Type),
            ColumnType::Timestamp(TimeUnit::Second, _) => primitive!(TimestampSecondType),
            ColumnType::Timestamp(TimeUnit::Millisecond, _) => primitive!(TimestampMillisecondType),
            ColumnType::Timestamp(TimeUnit::Microsecond, _) => primitive!(TimestampMicrosecondType),
            ColumnType::Timestamp(TimeUnit::Nanosecond, _) => primitive!(TimestampNanosecondType),
            ColumnType::Decimal128(..) => primitive!(Decimal128Type),
            ColumnType::Bool | ColumnType::Utf8 | ColumnType::Binary => {
                return Err(ArrowError::ComputeError("a column changed its type".into()));
            }
        })
    }
}

/// Puts values in their places; `None` if there is no such place.
#[inline]
fn put_each<T>(values: &mut [T], mut cells: impl Iterator<Item = (usize, u128)>, of: impl Fn(u128) -> T) -> Option<()> {
    cells.try_for_each(|(row, value)| values.get_mut(row).map(|place| *place = of(value)))
}
