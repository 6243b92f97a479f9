//! What a row format whose values have a frame must be able to do: [`Codec`].

use std::fmt;

use mycelium_base::Result;

use super::span::{Fault, Pieces, Scan, Span};
use super::split::{Cuts, PartNumber};
use crate::{ColumnType, DatumRef};

/// A value that is as its column holds it, and needs no decoding.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Plain<'a> {
    /// The bits of a column of four or eight bytes, the lowest of the number.
    Number(u64),
    /// Of text, which may not be UTF-8, or binary.
    Bytes(&'a [u8]),
}

impl<'a> Plain<'a> {
    /// As a value of a column of this type; `None` if it is none, as text that is not UTF-8.
    pub(super) fn datum(self, ty: &ColumnType) -> Option<DatumRef<'a>> {
        Some(match (self, ty) {
            (Self::Number(bits), ColumnType::Int64) => DatumRef::Int64(bits as i64),
            (Self::Number(bits), ColumnType::Timestamp(..)) => DatumRef::Timestamp(bits as i64),
            (Self::Number(bits), ColumnType::UInt64) => DatumRef::UInt64(bits),
            (Self::Number(bits), ColumnType::Float64) => DatumRef::Float64(f64::from_bits(bits)),
            (Self::Number(bits), ColumnType::Int32) => DatumRef::Int32(bits as i32),
            (Self::Number(bits), ColumnType::Date32) => DatumRef::Date32(bits as i32),
            (Self::Number(bits), ColumnType::UInt32) => DatumRef::UInt32(bits as u32),
            (Self::Number(bits), ColumnType::Float32) => DatumRef::Float32(f32::from_bits(bits as u32)),
            (Self::Bytes(bytes), ColumnType::Utf8) => DatumRef::Utf8(std::str::from_utf8(bytes).ok()?),
            (Self::Bytes(bytes), ColumnType::Binary) => DatumRef::Binary(bytes),
            _ => return None,
        })
    }
}

/// What a format with a frame does with its payloads. Columns are schema positions.
pub(super) trait Codec: Send + Sync + fmt::Debug {
    /// Finds the columns of a payload; `spans` has one entry per column, all absent. Says `Null` only if the payload
    /// does. Whether it surely found a value of each column that the scan wants, so that the frame says nothing more.
    fn scan(&self, payload: &[u8], scan: Scan<'_>, spans: &mut [Span]) -> Result<bool, Fault>;

    /// The value of a piece, checked against the column's type; text may be built in `scratch`.
    fn decode<'a>(&self, column: usize, piece: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<DatumRef<'a>, Fault>;

    /// As [`Codec::decode`], where that is little more than to copy the piece; `None` where it is more, or it fails.
    fn plain<'a>(&self, _column: usize, _piece: &'a [u8]) -> Option<Plain<'a>> {
        None
    }

    /// A column of a payload that was checked when it was written, found and read at once where [`Codec::plain`] reads
    /// it. `None` says nothing of the column.
    fn find_plain<'a>(&self, _payload: &'a [u8], _column: usize) -> Option<Plain<'a>> {
        None
    }

    /// Shows `visit` columns of a payload that was checked when it was written, as they lie, as far as
    /// [`Codec::plain`] reads them; some may be left out.
    fn visit_plain(&self, _payload: &[u8], _visit: &mut dyn FnMut(usize, Plain<'_>) -> Result<()>) -> Result<()> {
        Ok(())
    }

    /// Appends the piece of a value, which is one of the column's type.
    fn encode(&self, column: usize, datum: DatumRef<'_>, out: &mut Vec<u8>);

    /// The piece that a column has if its payload leaves it out; `None` if leaving out does not mean a value.
    fn default_piece(&self, column: usize) -> Option<&[u8]>;

    /// Appends a payload of the columns that have bytes (for JSON: or are null).
    fn emit(&self, pieces: &Pieces<'_>, out: &mut Vec<u8>);

    /// Whether [`Codec::cut`] is worth trying.
    fn can_cut(&self) -> bool {
        false
    }

    /// Finds which pieces of a payload that was checked when it was written make up, side by side, what `emit` would
    /// write of the columns of each part; `part_of` has one entry per column. Says `false` if it is not made of such
    /// pieces, and may have added some.
    fn cut(&self, _payload: &[u8], _part_of: &[PartNumber], _cuts: &mut Cuts) -> bool {
        false
    }
}
