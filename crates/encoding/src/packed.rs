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

use std::ops::Range;
use std::sync::Arc;

use mycelium_base::limits::MAX_VALUE_LEN;
use mycelium_base::{ColumnSet, Error, ErrorKind, Result};

use crate::{ColumnType, DatumRef, Schema};

const FORMAT_VERSION: u8 = 1;
const HAS_NULLS: u8 = 1 << 3;
const HAS_PRESENCE: u8 = 1 << 2;
const OFFSET_WIDTH: u8 = 0b11;
const HEADER_LEN: usize = 2;
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

/// Where the columns of a schema stand in packed values. Built once per table; immutable.
#[derive(Debug)]
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

#[derive(Clone, Copy, Debug)]
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

    /// Appends the packed form of a whole row: one value per column of the schema; those of the primary key, and of
    /// columns that were dropped, are ignored. Allocates nothing if `out` has room.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`]: wrong number of values, a value its column cannot hold, or a row over
    /// [`MAX_VALUE_LEN`]; `out` is then unchanged.
    pub fn encode_row(&self, row: &[DatumRef<'_>], out: &mut Vec<u8>) -> Result<()> {
        self.check_arity(row.len())?;
        self.encode_with(|column| row[column].into(), out)
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

    /// Reads the header of a packed value. O(1) for a row, O(columns / 64) for a patch.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for another format or schema version, [`ErrorKind::Corruption`] if the value is too
    /// short for what its header announces. Columns are checked when they are read.
    #[inline]
    pub fn row<'a>(&'a self, bytes: &'a [u8]) -> Result<PackedRow<'a>> {
        let kind = self.kind_of(bytes)?;
        let mut position = HEADER_LEN;
        let mut bitmap = |flag: u8| -> Result<&'a [u8]> {
            if kind & flag == 0 {
                return Ok(&[]);
            }
            let bitmap = bytes.get(position..position + self.bitmap_len);
            position += self.bitmap_len;
            bitmap.ok_or_else(|| cut_short(position, bytes.len()))
        };
        let presence = bitmap(HAS_PRESENCE)?;
        let nulls = bitmap(HAS_NULLS)?;
        let is_patch = kind & HAS_PRESENCE != 0;
        let (slots_len, variables) = if is_patch {
            let fixed = self.class_ends[4];
            (self.patch_slot(presence, fixed), rank(presence, self.columns.len()) - rank(presence, fixed))
        } else {
            (self.slots_len, self.columns.len() - self.class_ends[4])
        };
        let ends = position + slots_len;
        let data = ends + (variables << (kind & OFFSET_WIDTH));
        if data > bytes.len() {
            return Err(cut_short(data, bytes.len()));
        }
        Ok(PackedRow {
            layout: self,
            bytes,
            presence,
            nulls,
            slots: position as u32,
            ends: ends as u32,
            data: data as u32,
            width_code: kind & OFFSET_WIDTH,
            is_patch,
        })
    }

    /// The first byte of a packed value of the schema's version.
    #[inline]
    fn kind_of(&self, bytes: &[u8]) -> Result<u8> {
        let [kind, version, ..] = *bytes else { return Err(cut_short(HEADER_LEN, bytes.len())) };
        if kind >> 4 != FORMAT_VERSION || kind & OFFSET_WIDTH == 3 || version != self.schema.version() {
            return Err(self.refuse(kind, version));
        }
        Ok(kind)
    }

    /// The columns of a set that the layout has, as [`PackedLayout::has_some`] takes them.
    pub fn bitmap_of(&self, columns: &ColumnSet) -> Vec<u8> {
        let mut bitmap = vec![0; self.bitmap_len];
        for index in (0..self.len()).filter(|&index| columns.contains(self.column(index))) {
            bitmap[index / 8] |= 1 << (index % 8);
        }
        bitmap
    }

    /// What a value of this layout, which may be a patch, says something of: [`marks_of`] its columns.
    ///
    /// # Errors
    /// As [`PackedLayout::row`].
    pub fn marks(&self, bytes: &[u8]) -> Result<u64> {
        Ok(marks_of(self.row(bytes)?.columns()))
    }

    /// Whether a value of this layout, which may be a patch, has some column of a bitmap. Looks at no more than its
    /// head, so that it costs less than [`PackedLayout::row`].
    ///
    /// # Errors
    /// As that, as far as it looks.
    #[inline]
    pub fn has_some(&self, bytes: &[u8], bitmap: &[u8]) -> Result<bool> {
        if self.kind_of(bytes)? & HAS_PRESENCE == 0 {
            return Ok(bitmap.iter().any(|&byte| byte != 0));
        }
        let presence = bytes.get(HEADER_LEN..HEADER_LEN + self.bitmap_len);
        let presence = presence.ok_or_else(|| cut_short(HEADER_LEN + self.bitmap_len, bytes.len()))?;
        Ok(presence.iter().zip(bitmap).any(|(present, wanted)| present & wanted != 0))
    }

    /// Where the slot of physical column `index` starts among the slots of a patch.
    fn patch_slot(&self, presence: &[u8], index: usize) -> usize {
        let (mut slot, mut below) = (0, 0);
        for (&end, width) in self.class_ends.iter().zip(WIDTHS) {
            let upto = rank(presence, end.min(index));
            slot += (upto - below) * width;
            below = upto;
            if end >= index {
                break;
            }
        }
        slot
    }

    #[cold]
    fn refuse(&self, kind: u8, version: u8) -> Error {
        if kind >> 4 == FORMAT_VERSION && kind & OFFSET_WIDTH == 3 {
            return Error::corruption("malformed packed row").at(0).expected("offset width 0 to 2", 3);
        }
        let (what, expected, found) = if kind >> 4 == FORMAT_VERSION {
            ("schema", self.schema.version(), version)
        } else {
            ("packed format", FORMAT_VERSION, kind >> 4)
        };
        Error::new(ErrorKind::Unsupported, format!("{what} version {found} of a row is unknown"))
            .expected(expected, found)
    }

    /// Checks every byte: the value is exactly what [`PackedLayout::encode_patch`] writes for some patch.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] or [`ErrorKind::Unsupported`] says what is wrong.
    pub fn validate(&self, bytes: &[u8]) -> Result<()> {
        let row = self.row(bytes)?;
        let mut states = Vec::with_capacity(self.schema.columns().len());
        for column in 0..self.schema.columns().len() {
            let state = if self.physical[column] == NOT_PACKED { ColumnState::Absent } else { row.get(column)? };
            states.push(state);
        }
        let mut canonical = Vec::new();
        self.encode_patch(&states, &mut canonical)
            .map_err(|e| Error::corruption("a packed row holds what its columns cannot").caused_by(e))?;
        if canonical == bytes {
            return Ok(());
        }
        let at = canonical.iter().zip(bytes).take_while(|(a, b)| a == b).count();
        let show = |bytes: &[u8]| bytes.get(at).map_or("the end".to_owned(), |byte| format!("{byte:02X}"));
        Err(Error::corruption(format!("packed row is not canonical at byte {at}"))
            .expected(show(&canonical), show(bytes)))
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

/// One bits of `bitmap` below `bit`.
#[inline]
fn rank(bitmap: &[u8], bit: usize) -> usize {
    let mut count = 0;
    let mut words = bitmap[..bit.div_ceil(8).min(bitmap.len())].chunks(8);
    let mut left = bit;
    for word in &mut words {
        let mut bytes = [0; 8];
        bytes[..word.len()].copy_from_slice(word);
        let mut value = u64::from_le_bytes(bytes);
        if left < 64 {
            value &= (1 << left) - 1;
        }
        count += value.count_ones() as usize;
        left = left.saturating_sub(64);
    }
    count
}

#[cold]
fn cut_short(expected: usize, found: usize) -> Error {
    Error::corruption("packed row is cut short").expected(format_args!("at least {expected} bytes"), found)
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

/// Appends the slot or the bytes of a value.
#[inline]
pub(crate) fn put_datum(datum: DatumRef<'_>, out: &mut Vec<u8>) {
    match datum {
        DatumRef::Null => {}
        DatumRef::Bool(v) => out.push(u8::from(v)),
        DatumRef::Int8(v) => out.push(v as u8),
        DatumRef::Int16(v) => out.extend_from_slice(&v.to_le_bytes()),
        DatumRef::Int32(v) | DatumRef::Date32(v) => out.extend_from_slice(&v.to_le_bytes()),
        DatumRef::Int64(v) | DatumRef::Timestamp(v) => out.extend_from_slice(&v.to_le_bytes()),
        DatumRef::UInt8(v) => out.push(v),
        DatumRef::UInt16(v) => out.extend_from_slice(&v.to_le_bytes()),
        DatumRef::UInt32(v) => out.extend_from_slice(&v.to_le_bytes()),
        DatumRef::UInt64(v) => out.extend_from_slice(&v.to_le_bytes()),
        DatumRef::Float32(v) => out.extend_from_slice(&v.to_bits().to_le_bytes()),
        DatumRef::Float64(v) => out.extend_from_slice(&v.to_bits().to_le_bytes()),
        DatumRef::Utf8(v) => out.extend_from_slice(v.as_bytes()),
        DatumRef::Binary(v) => out.extend_from_slice(v),
        DatumRef::Decimal128(v) => out.extend_from_slice(&v.to_le_bytes()),
    }
}

/// A packed value whose header was read. Any column is read without the others.
#[derive(Clone, Copy, Debug)]
pub struct PackedRow<'a> {
    layout: &'a PackedLayout,
    bytes: &'a [u8],
    presence: &'a [u8],
    nulls: &'a [u8],
    slots: u32,
    ends: u32,
    data: u32,
    width_code: u8,
    is_patch: bool,
}

impl<'a> PackedRow<'a> {
    /// Whether every column is there; a `Put` must be.
    pub fn is_complete(&self) -> bool {
        !self.is_patch
    }

    /// The columns that are in the value, null or not. O(columns).
    pub fn present(&self) -> ColumnSet {
        let is_present = |index: &usize| !self.is_patch || self.presence[index / 8] >> (index % 8) & 1 == 1;
        (0..self.layout.len()).filter(is_present).map(|index| self.layout.column(index)).collect()
    }

    /// What the value says about a column, given by its schema index.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the column is in the primary key or does not exist,
    /// [`ErrorKind::Corruption`] if its bytes are malformed.
    #[inline]
    pub fn get(&self, column: usize) -> Result<ColumnState<'a>> {
        let index = self.layout.physical_index(column)?;
        Ok(match self.raw(index)? {
            RawColumn::Absent => ColumnState::Absent,
            RawColumn::Null => ColumnState::Null,
            RawColumn::Value(bytes) => {
                ColumnState::Value(decode_datum(&self.layout.schema.columns()[column].ty, bytes)?)
            }
        })
    }

    /// What comes before the columns. Values of one layout that begin with the same bytes have the slots of the same
    /// columns, at the same places.
    pub fn head(&self) -> &'a [u8] {
        &self.bytes[..self.slots as usize]
    }

    /// Where the value of a column of fixed width lies, little-endian; `None` for other columns, null, and what is
    /// absent.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the column is in the primary key or does not exist.
    pub fn slot(&self, column: usize) -> Result<Option<Range<usize>>> {
        let index = self.layout.physical_index(column)?;
        let width = self.layout.columns[index].width as usize;
        let RawColumn::Value(slot) = self.raw(index)? else { return Ok(None) };
        Ok((width > 0).then(|| {
            let start = slot.as_ptr() as usize - self.bytes.as_ptr() as usize;
            start..start + width
        }))
    }

    /// The columns that are in the value, null or not, by position in the schema. O(columns / 8 + those in it).
    #[inline]
    pub fn columns(&self) -> impl Iterator<Item = usize> + '_ {
        let all = if self.is_patch { 0 } else { self.layout.len() };
        let present = self.presence.iter().enumerate().flat_map(|(at, &byte)| {
            let mut left = byte;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(8 * at + bit)
            })
        });
        let len = self.layout.len();
        (0..all).chain(present).filter(move |&index| index < len).map(|index| self.layout.column(index))
    }

    /// As [`PackedRow::get`], with null as a value and `None` for an absent column.
    ///
    /// # Errors
    /// As [`PackedRow::get`].
    #[inline]
    pub fn datum(&self, column: usize) -> Result<Option<DatumRef<'a>>> {
        Ok(match self.get(column)? {
            ColumnState::Absent => None,
            ColumnState::Null => Some(DatumRef::Null),
            ColumnState::Value(datum) => Some(datum),
        })
    }

    /// The bytes of physical column `index`, which must exist.
    #[inline]
    pub(crate) fn raw(&self, index: usize) -> Result<RawColumn<'a>> {
        let bit = |bitmap: &[u8]| bitmap.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1);
        if self.is_patch && !bit(self.presence) {
            return Ok(RawColumn::Absent);
        }
        if bit(self.nulls) {
            return Ok(RawColumn::Null);
        }
        let place = &self.layout.columns[index];
        if place.width == 0 {
            return self.variable(index);
        }
        let slot = if self.is_patch { self.layout.patch_slot(self.presence, index) } else { place.slot as usize };
        let start = self.slots as usize + slot;
        // In bounds: `PackedLayout::row` checked that all slots are there.
        Ok(RawColumn::Value(&self.bytes[start..start + place.width as usize]))
    }

    /// The layout it was read with.
    pub(crate) fn layout(&self) -> &'a PackedLayout {
        self.layout
    }

    /// The slots of a whole row.
    pub(crate) fn slots(&self) -> &'a [u8] {
        &self.bytes[self.slots as usize..self.ends as usize]
    }

    /// The null bitmap; empty if no column is null.
    pub(crate) fn nulls(&self) -> &'a [u8] {
        self.nulls
    }

    /// Where the bytes of a variable column of a whole row begin and end; `ordinal` counts these columns.
    #[inline]
    pub(crate) fn variable_range(&self, ordinal: usize) -> Range<usize> {
        let start = if ordinal == 0 { 0 } else { self.end(ordinal - 1) };
        start..self.end(ordinal)
    }

    /// The bytes of neighbouring variable columns of a whole row, checked column by column.
    #[inline]
    pub(crate) fn variable_bytes(&self, ordinals: Range<usize>) -> Result<&'a [u8]> {
        let (start, mut end) = match ordinals.is_empty() {
            true => return Ok(&[]),
            false => (self.variable_range(ordinals.start).start, 0),
        };
        for ordinal in ordinals {
            let range = self.variable_range(ordinal);
            if range.start > range.end {
                return Err(self.bad_offsets(range.start, range.end));
            }
            end = range.end;
        }
        self.bytes[self.data as usize..].get(start..end).ok_or_else(|| self.bad_offsets(start, end))
    }

    #[inline]
    fn variable(&self, index: usize) -> Result<RawColumn<'a>> {
        let fixed = self.layout.class_ends[4];
        let ordinal =
            if self.is_patch { rank(self.presence, index) - rank(self.presence, fixed) } else { index - fixed };
        let start = if ordinal == 0 { 0 } else { self.end(ordinal - 1) };
        let end = self.end(ordinal);
        match self.bytes[self.data as usize..].get(start..end) {
            Some(bytes) => Ok(RawColumn::Value(bytes)),
            None => Err(self.bad_offsets(start, end)),
        }
    }

    #[inline]
    fn end(&self, ordinal: usize) -> usize {
        let at = self.ends as usize + (ordinal << self.width_code);
        // In bounds: `PackedLayout::row` checked that all ends are there.
        match self.width_code {
            0 => usize::from(self.bytes[at]),
            1 => usize::from(u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])),
            _ => {
                let bytes = &self.bytes[at..at + 4];
                u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize
            }
        }
    }

    #[cold]
    fn bad_offsets(&self, start: usize, end: usize) -> Error {
        let len = self.bytes.len() - self.data as usize;
        Error::corruption("malformed end offset in a packed row").expected(format_args!("{start} to {len}"), end)
    }
}

impl PackedLayout {
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

    /// The value of a column of fixed width, from the bytes that [`PackedRow::slot`] is the place of.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the column does not exist, [`ErrorKind::Corruption`] if the bytes are not such
    /// a value.
    #[inline]
    pub fn slot_value<'a>(&self, column: usize, slot: &'a [u8]) -> Result<DatumRef<'a>> {
        let known = self.schema.columns().get(column);
        decode_datum(&known.ok_or_else(|| Error::invalid(format!("there is no column {column}")))?.ty, slot)
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
    pub(crate) fn slot(&self, index: usize) -> std::ops::Range<usize> {
        let place = self.columns[index];
        place.slot as usize..(place.slot + place.width) as usize
    }

    /// Number of columns of fixed width, which come first.
    pub(crate) fn fixed_len(&self) -> usize {
        self.class_ends[4]
    }

    /// Starts a value: header, schema version, and `nulls` if some column is null.
    pub(crate) fn begin_whole(&self, nulls: Option<&[u8]>, variable_len: usize, out: &mut Vec<u8>) -> usize {
        let width_code = width_code(variable_len);
        out.push(FORMAT_VERSION << 4 | if nulls.is_some() { HAS_NULLS } else { 0 } | width_code);
        out.push(self.schema.version());
        out.extend_from_slice(nulls.unwrap_or_default());
        1 << width_code
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

/// The value of a slot or of variable bytes.
#[inline]
pub(crate) fn decode_datum<'a>(ty: &ColumnType, bytes: &'a [u8]) -> Result<DatumRef<'a>> {
    Ok(match ty {
        ColumnType::Bool => match array::<1>(bytes)?[0] {
            0 => DatumRef::Bool(false),
            1 => DatumRef::Bool(true),
            other => return Err(Error::corruption("malformed bool in a packed row").expected("0 or 1", other)),
        },
        ColumnType::Int8 => DatumRef::Int8(i8::from_le_bytes(array(bytes)?)),
        ColumnType::Int16 => DatumRef::Int16(i16::from_le_bytes(array(bytes)?)),
        ColumnType::Int32 => DatumRef::Int32(i32::from_le_bytes(array(bytes)?)),
        ColumnType::Int64 => DatumRef::Int64(i64::from_le_bytes(array(bytes)?)),
        ColumnType::UInt8 => DatumRef::UInt8(array::<1>(bytes)?[0]),
        ColumnType::UInt16 => DatumRef::UInt16(u16::from_le_bytes(array(bytes)?)),
        ColumnType::UInt32 => DatumRef::UInt32(u32::from_le_bytes(array(bytes)?)),
        ColumnType::UInt64 => DatumRef::UInt64(u64::from_le_bytes(array(bytes)?)),
        ColumnType::Float32 => DatumRef::Float32(f32::from_le_bytes(array(bytes)?)),
        ColumnType::Float64 => DatumRef::Float64(f64::from_le_bytes(array(bytes)?)),
        ColumnType::Utf8 => DatumRef::Utf8(
            std::str::from_utf8(bytes)
                .map_err(|e| Error::corruption("text in a packed row is not UTF-8").caused_by(e))?,
        ),
        ColumnType::Binary => DatumRef::Binary(bytes),
        ColumnType::Date32 => DatumRef::Date32(i32::from_le_bytes(array(bytes)?)),
        ColumnType::Timestamp(..) => DatumRef::Timestamp(i64::from_le_bytes(array(bytes)?)),
        ColumnType::Decimal128(..) => DatumRef::Decimal128(i128::from_le_bytes(array(bytes)?)),
    })
}

#[inline]
pub(crate) fn array<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| cut_short(N, bytes.len()))
}
