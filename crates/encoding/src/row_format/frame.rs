//! The frame of a stored value that is not packed: what its format cannot say itself.
//!
//! n is the number of columns outside the primary key, B = ceil(n / 8); column i of a bitmap is the i-th of them in
//! schema order.
//!
//! ```text
//! 1 byte   bits 7-4  format: 2 json, 3 protobuf, 4 flatbuffers, 5 raw (1 is a packed value, which has no frame)
//!          bit 3     a null bitmap follows (never for json)
//!          bit 2     some column is absent: a presence bitmap follows (none for json)
//!          bits 1-0  0
//! 1 byte   schema version
//! B bytes  presence bitmap, if bit 2: bit i (of byte i / 8, lowest first) is 1 if column i is in the value
//! B bytes  null bitmap, if bit 3: bit i is 1 if column i is null
//! ...      the payload, to the end of the value
//! ```
//!
//! JSON needs no bitmaps: a member that is missing is absent if bit 2 is set and null if not, `null` is null. In the
//! other formats a column that is in the value, not null and not in the payload has its field's default.
//!
//! A bitmap is there only if a bit of it says something, and padding bits are zero.

use mycelium_base::{Error, ErrorKind, Result};

use super::RowFormatKind;
use super::span::{Piece, Pieces};

const HAS_NULLS: u8 = 1 << 3;
const HAS_ABSENT: u8 = 1 << 2;
const UNUSED: u8 = 0b11;
const HEADER_LEN: usize = 2;

/// What frames of a table have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameShape<'a> {
    pub(super) kind: RowFormatKind,
    pub(super) schema_version: u8,
    /// Schema positions of the columns outside the primary key, ascending.
    pub(super) columns: &'a [usize],
}

/// A frame that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    pub(super) has_absent: bool,
    presence: &'a [u8],
    nulls: &'a [u8],
    pub(super) payload_at: usize,
}

impl Frame<'_> {
    /// Whether the column of this ordinal is absent, by the presence bitmap.
    pub(super) fn is_absent(&self, ordinal: usize) -> bool {
        self.has_absent && !bit(self.presence, ordinal)
    }

    /// Whether the column of this ordinal is null, by the null bitmap.
    pub(super) fn is_null(&self, ordinal: usize) -> bool {
        bit(self.nulls, ordinal)
    }
}

fn bit(bitmap: &[u8], index: usize) -> bool {
    bitmap.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1)
}

impl FrameShape<'_> {
    fn says_presence_itself(&self) -> bool {
        self.kind == RowFormatKind::Json
    }

    /// Reads the frame of a stored value. O(1).
    pub(super) fn parse<'a>(&self, value: &'a [u8]) -> Result<Frame<'a>> {
        let [first, version, ..] = *value else { return Err(cut_short(HEADER_LEN, value.len())) };
        if first == self.kind.tag() << 4 && version == self.schema_version {
            return Ok(Frame { has_absent: false, presence: &[], nulls: &[], payload_at: HEADER_LEN });
        }
        if first >> 4 != self.kind.tag() || version != self.schema_version {
            return Err(self.refuse(first, version));
        }
        if first & UNUSED != 0 || (self.says_presence_itself() && first & HAS_NULLS != 0) {
            return Err(Error::corruption("malformed frame at byte 0 of a row").expected("known flags", first & 0xf));
        }
        let mut payload_at = HEADER_LEN;
        let mut bitmap = |wanted: bool| -> Result<&'a [u8]> {
            if !wanted {
                return Ok(&[]);
            }
            let start = payload_at;
            payload_at += self.columns.len().div_ceil(8);
            value.get(start..payload_at).ok_or_else(|| cut_short(payload_at, value.len()))
        };
        let has_absent = first & HAS_ABSENT != 0;
        let presence = bitmap(has_absent && !self.says_presence_itself())?;
        let nulls = bitmap(first & HAS_NULLS != 0)?;
        Ok(Frame { has_absent, presence, nulls, payload_at })
    }

    #[cold]
    fn refuse(&self, first: u8, version: u8) -> Error {
        let (what, at, expected, found) = if first >> 4 == self.kind.tag() {
            ("schema version", 1, self.schema_version, version)
        } else {
            ("format", 0, self.kind.tag(), first >> 4)
        };
        Error::new(ErrorKind::Unsupported, format!("another {what} at byte {at} of a row")).expected(expected, found)
    }

    /// Appends the frame of a value made of `pieces`.
    pub(super) fn write(&self, pieces: &Pieces<'_>, out: &mut Vec<u8>) {
        let (mut has_absent, mut has_nulls) = (false, false);
        for &column in self.columns {
            match pieces.get(column) {
                Piece::Absent => has_absent = true,
                Piece::Null => has_nulls = true,
                Piece::Default | Piece::Bytes(_) => {}
            }
        }
        has_nulls &= !self.says_presence_itself();
        let flags = if has_absent { HAS_ABSENT } else { 0 } | if has_nulls { HAS_NULLS } else { 0 };
        out.extend_from_slice(&[self.kind.tag() << 4 | flags, self.schema_version]);
        if has_absent && !self.says_presence_itself() {
            self.write_bitmap(out, |column| pieces.get(column) != Piece::Absent);
        }
        if has_nulls {
            self.write_bitmap(out, |column| pieces.get(column) == Piece::Null);
        }
    }

    /// What frames of values of only these columns, by their ordinals, have in common.
    pub(super) fn part(&self, ordinals: impl Iterator<Item = usize>) -> PartFrame {
        let mut mask = vec![0; self.columns.len().div_ceil(8)];
        let mut count = 0;
        for ordinal in ordinals {
            mask[ordinal / 8] |= 1 << (ordinal % 8);
            count += 1;
        }
        let mut of_all = vec![self.kind.tag() << 4, self.schema_version];
        if count < self.columns.len() {
            of_all[0] |= HAS_ABSENT;
            of_all.extend_from_slice(&mask);
        }
        PartFrame { of_all, mask, is_empty: count == 0 }
    }

    /// Bytes of the longest frame.
    pub(super) fn longest(&self) -> usize {
        HEADER_LEN + 2 * self.columns.len().div_ceil(8)
    }

    fn write_bitmap(&self, out: &mut Vec<u8>, says: impl Fn(usize) -> bool) {
        let start = out.len();
        out.resize(start + self.columns.len().div_ceil(8), 0);
        for (ordinal, &column) in self.columns.iter().enumerate() {
            out[start + ordinal / 8] |= u8::from(says(column)) << (ordinal % 8);
        }
    }
}

/// How the frame of a value becomes that of a part of its columns, in a format that does not say itself which columns
/// it has.
#[derive(Debug)]
pub(super) struct PartFrame {
    /// The frame of a value that has all these columns, none of them null.
    of_all: Vec<u8>,
    /// The presence bitmap of these columns.
    mask: Vec<u8>,
    is_empty: bool,
}

impl PartFrame {
    /// Appends the frame of the part of a value with this frame. `false` if the value has none of the part's columns,
    /// although that has some.
    #[inline]
    pub(super) fn write(&self, of: &Frame<'_>, out: &mut Vec<u8>) -> bool {
        let has = |(mask, present): (&u8, &u8)| present & mask == *mask;
        let lacks_none = !of.has_absent || self.mask.iter().zip(of.presence).all(has);
        if lacks_none && of.nulls.is_empty() {
            out.extend_from_slice(&self.of_all);
            return true;
        }
        self.write_masked(of, out)
    }

    fn write_masked(&self, of: &Frame<'_>, out: &mut Vec<u8>) -> bool {
        let present = |at: usize| if of.has_absent { of.presence[at] & self.mask[at] } else { self.mask[at] };
        let nulls = |at: usize| of.nulls.get(at).map_or(0, |nulls| nulls & self.mask[at]);
        let bytes = 0..self.mask.len();
        if !self.is_empty && bytes.clone().all(|at| present(at) == 0) {
            return false;
        }
        let is_whole = self.of_all[0] & HAS_ABSENT == 0 && bytes.clone().all(|at| present(at) == self.mask[at]);
        let has_nulls = bytes.clone().any(|at| nulls(at) != 0);
        let flags = if is_whole { 0 } else { HAS_ABSENT } | if has_nulls { HAS_NULLS } else { 0 };
        out.extend_from_slice(&[self.of_all[0] & !HAS_ABSENT | flags, self.of_all[1]]);
        if !is_whole {
            out.extend(bytes.clone().map(present));
        }
        if has_nulls {
            out.extend(bytes.map(nulls));
        }
        true
    }
}

#[cold]
fn cut_short(expected: usize, found: usize) -> Error {
    Error::corruption(format!("a row is cut short at byte {found}"))
        .expected(format_args!("at least {expected} bytes"), found)
}
