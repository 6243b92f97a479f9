//! The packed row format: the columns of a row outside its primary key, or some of them (a patch), as one value.
//!
//! Columns stand in *physical order*: those of width 16 first, then 8, 4, 2 and 1, then the variable ones (`utf8`,
//! `binary`), each class in schema order. n is the number of all these columns, B = ceil(n / 8).
//!
//! ```text
//! 1 byte   bits 7-4  format version, 1
//!          bit 3     a null bitmap follows
//!          bit 2     a presence bitmap follows (the value is a patch without some columns)
//!          bits 1-0  width of an end offset: 0 = 1 byte, 1 = 2 bytes, 2 = 4 bytes
//! 1 byte   schema version
//! B bytes  presence bitmap, if bit 2: bit i (of byte i / 8, lowest first) is 1 if physical column i is in the value
//! B bytes  null bitmap, if bit 3: bit i is 1 if physical column i is null
//! slots    one per fixed-width column in the value, little-endian, zero if null
//! ends     one per variable column in the value: where its bytes end, counted from the first byte of the first
//!          variable column; a null column ends where it starts
//! bytes    of the variable columns, back to back, to the end of the value
//! ```
//!
//! The coding is canonical: a bitmap is there only if needed (some column absent, some column null), padding bits are
//! zero, end offsets are as narrow as possible. Equal rows have equal bytes.
//!
//! Access to a column of a whole row is two bit tests and one or two loads at offsets known from the schema. In a patch
//! the offset is a count of presence bits below the column, class by class: O(n / 64).
//!
//! [`PackedLayout`] says where the columns are; `encode` writes values by it, `row` reads them, and `value` has what a
//! slot and the bytes of a variable column hold.

mod encode;
mod row;
mod value;

use std::ops::Range;
use std::sync::Arc;

use mycelium_base::{ColumnSet, Error, Result};

pub(crate) use self::encode::{Appended, Shape, Source};
pub use self::encode::{PackedScratch, PackedShape};
pub use self::row::PackedRow;
pub(crate) use self::value::{array, decode_datum, put_datum};
use crate::{DatumRef, Schema};

const FORMAT_VERSION: u8 = 1;
const HAS_NULLS: u8 = 1 << 3;
const HAS_PRESENCE: u8 = 1 << 2;
const OFFSET_WIDTH: u8 = 0b11;
const HEADER_LEN: usize = 2;
/// Bytes of a bitmap of columns that are looked at together.
const BITMAP_WORD: usize = size_of::<u64>();
const WIDTHS: [usize; 5] = [16, 8, 4, 2, 1];
const NOT_PACKED: u32 = u32::MAX;

/// What a packed value says about a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnState<'a> {
    /// The column is not in this patch: it keeps the value it has.
    Absent,
    /// The column is null.
    Null,
    /// The column has this value, which is never [`DatumRef::Null`] when read.
    Value(DatumRef<'a>),
}

impl<'a> From<DatumRef<'a>> for ColumnState<'a> {
    fn from(datum: DatumRef<'a>) -> Self {
        if datum.is_null() { Self::Null } else { Self::Value(datum) }
    }
}

/// A column's undecoded bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RawColumn<'a> {
    Absent,
    Null,
    /// The slot, or the bytes of a variable column.
    Value(&'a [u8]),
}

/// Where the columns of a schema stand in packed values. Built once per table; immutable. Values of one layout are
/// values of another that is equal to it.
#[derive(PartialEq, Eq, Debug)]
pub struct PackedLayout {
    schema: Arc<Schema>,
    /// By physical index.
    columns: Vec<Place>,
    /// By schema column; [`NOT_PACKED`] for the primary key.
    physical: Vec<u32>,
    /// Where each class of [`WIDTHS`] ends, as a physical index; the last is the number of fixed-width columns.
    class_ends: [usize; 5],
    /// Bytes of all slots.
    slots_len: usize,
    bitmap_len: usize,
    /// Columns with a default, by physical index, and its slot or bytes.
    defaults: Vec<(usize, Vec<u8>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    /// Schema column.
    column: u32,
    /// Bytes of a slot; 0 if variable.
    width: u32,
    /// Where the slot starts among the slots of a whole row.
    slot: u32,
}

/// A set of columns in one word: a bit for each, of which those that are 64 apart share one. Sets without a bit in
/// common have no column in common.
pub fn marks_of(columns: impl IntoIterator<Item = usize>) -> u64 {
    columns.into_iter().fold(0, |marks, column| marks | 1 << (column % 64))
}

impl PackedLayout {
    /// The layout of a schema's rows: all columns outside the primary key, but those that were dropped. O(columns).
    pub fn new(schema: Arc<Schema>) -> Self {
        let all = schema.value_columns();
        Self::of(schema, &all)
    }

    /// The layout of the values of a column group: those of `columns` that are not in the primary key, as if the table
    /// had no others. O(columns).
    pub fn of(schema: Arc<Schema>, columns: &ColumnSet) -> Self {
        let packed = |&column: &usize| !schema.is_primary_key(column) && columns.contains(column);
        let of_width = |width: Option<usize>| {
            let schema = &schema;
            (0..schema.columns().len())
                .filter(packed)
                .filter(move |&column| schema.columns()[column].ty.fixed_width() == width)
        };
        let mut places = Vec::new();
        let mut class_ends = [0; 5];
        let mut slots_len = 0;
        for (class, &width) in WIDTHS.iter().enumerate() {
            for column in of_width(Some(width)) {
                places.push(Place { column: column as u32, width: width as u32, slot: slots_len as u32 });
                slots_len += width;
            }
            class_ends[class] = places.len();
        }
        places.extend(of_width(None).map(|column| Place { column: column as u32, width: 0, slot: 0 }));
        let mut physical = vec![NOT_PACKED; schema.columns().len()];
        for (index, place) in places.iter().enumerate() {
            physical[place.column as usize] = index as u32;
        }
        let bitmap_len = places.len().div_ceil(8);
        let default = |(index, place): (usize, &Place)| {
            let default = schema.columns()[place.column as usize].default.as_ref()?;
            let mut bytes = Vec::new();
            put_datum(default.borrowed(), &mut bytes);
            Some((index, bytes))
        };
        let defaults = places.iter().enumerate().filter_map(default).collect();
        Self { schema, columns: places, physical, class_ends, slots_len, bitmap_len, defaults }
    }

    /// Whether both are layouts of the same columns of one schema, or of one that has got more columns since.
    pub fn is_same(&self, other: &Self) -> bool {
        let known = self.physical.len().min(other.physical.len());
        let ((ours, our_rest), (theirs, their_rest)) = (self.physical.split_at(known), other.physical.split_at(known));
        ours == theirs && our_rest.iter().chain(their_rest).all(|&index| index == NOT_PACKED)
    }

    /// The schema.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// What a whole row that says nothing of the column of a physical index has in it: its default, or null.
    pub(crate) fn default_of(&self, index: usize) -> RawColumn<'_> {
        let default = self.defaults.iter().find(|(column, _)| *column == index);
        default.map_or(RawColumn::Null, |(_, bytes)| RawColumn::Value(bytes))
    }

    /// The columns, by position in the schema, in physical order.
    pub fn columns(&self) -> impl Iterator<Item = usize> + '_ {
        self.columns.iter().map(|place| place.column as usize)
    }

    /// The columns of a set that the layout has, as [`PackedLayout::has_some`] takes them: a bit for each, and zeros up
    /// to a word.
    pub fn bitmap_of(&self, columns: &ColumnSet) -> Vec<u8> {
        let mut bitmap = vec![0; self.bitmap_len.max(BITMAP_WORD)];
        for index in (0..self.len()).filter(|&index| columns.contains(self.column(index))) {
            bitmap[index / 8] |= 1 << (index % 8);
        }
        bitmap
    }

    /// The physical index of a schema column.
    #[inline]
    pub(crate) fn physical_index(&self, column: usize) -> Result<usize> {
        match self.physical.get(column) {
            Some(&index) if index != NOT_PACKED => Ok(index as usize),
            Some(_) => Err(Error::invalid(format!(
                "column \"{}\" is in the primary key or another column group, not in the value",
                self.schema.columns()[column].name
            ))),
            None => Err(Error::invalid(format!("there is no column {column}"))),
        }
    }

    /// The name of physical column `index`, for messages.
    pub(crate) fn name(&self, index: usize) -> &str {
        &self.schema.columns()[self.columns[index].column as usize].name
    }

    /// The physical index of a schema column, `None` if the column is not in the value.
    #[inline]
    pub(crate) fn physical(&self, column: usize) -> Option<usize> {
        self.physical.get(column).filter(|&&index| index != NOT_PACKED).map(|&index| index as usize)
    }

    /// The schema column of physical column `index`.
    pub(crate) fn column(&self, index: usize) -> usize {
        self.columns[index].column as usize
    }

    /// Where the slot of a column of fixed width lies among the slots of a whole row.
    pub(crate) fn slot(&self, index: usize) -> Range<usize> {
        let place = self.columns[index];
        place.slot as usize..(place.slot + place.width) as usize
    }

    /// Number of columns of fixed width, which come first.
    pub(crate) fn fixed_len(&self) -> usize {
        self.class_ends[4]
    }

    /// Number of physical columns.
    pub(crate) fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether physical column `index` has no fixed width.
    pub(crate) fn is_variable(&self, index: usize) -> bool {
        index >= self.class_ends[4]
    }
}

#[cold]
fn cut_short(expected: usize, found: usize) -> Error {
    Error::corruption("packed row is cut short").expected(format_args!("at least {expected} bytes"), found)
}
