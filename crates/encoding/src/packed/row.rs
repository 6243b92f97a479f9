//! Reading packed values: the header once, then any column without the others.

use std::ops::Range;

use mycelium_base::{ColumnSet, Error, ErrorKind, Result};

use super::{
    BITMAP_WORD, ColumnState, FORMAT_VERSION, HAS_NULLS, HAS_PRESENCE, HEADER_LEN, NOT_PACKED, OFFSET_WIDTH,
    PackedLayout, RawColumn, WIDTHS, cut_short, decode_datum, marks_of,
};
use crate::DatumRef;

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

    /// The bytes of a [slot](Self::slot), which may have been found in another value with the same head; none where the
    /// value is shorter.
    #[inline]
    pub fn slot_bytes(&self, slot: &Range<usize>) -> &'a [u8] {
        self.bytes.get(slot.clone()).unwrap_or_default()
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

    /// What a value of this layout, which may be a patch, says something of: [`marks_of`] its columns.
    ///
    /// # Errors
    /// As [`PackedLayout::row`].
    pub fn marks(&self, bytes: &[u8]) -> Result<u64> {
        Ok(marks_of(self.row(bytes)?.columns()))
    }

    /// Whether a value of this layout, which may be a patch, has some column of a [bitmap](Self::bitmap_of). Looks at
    /// no more than its head, so that it costs less than [`PackedLayout::row`].
    ///
    /// # Errors
    /// As that, as far as it looks.
    #[inline]
    pub fn has_some(&self, bytes: &[u8], bitmap: &[u8]) -> Result<bool> {
        if self.kind_of(bytes)? & HAS_PRESENCE == 0 {
            return Ok(bitmap.iter().any(|&byte| byte != 0));
        }
        // Behind a shorter bitmap, as most are, the wanted one has zeros.
        if self.bitmap_len <= BITMAP_WORD
            && let (Some(present), Some(wanted)) = (bytes[HEADER_LEN..].first_chunk(), bitmap.first_chunk())
        {
            return Ok(u64::from_le_bytes(*present) & u64::from_le_bytes(*wanted) != 0);
        }
        let presence = bytes.get(HEADER_LEN..HEADER_LEN + self.bitmap_len);
        let presence = presence.ok_or_else(|| cut_short(HEADER_LEN + self.bitmap_len, bytes.len()))?;
        Ok(presence.iter().zip(bitmap).any(|(present, wanted)| present & wanted != 0))
    }

    /// The bytes at the beginning of a patch that [`PackedLayout::has_some`] looks at.
    pub fn patch_head_len(&self) -> usize {
        HEADER_LEN + self.bitmap_len
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
