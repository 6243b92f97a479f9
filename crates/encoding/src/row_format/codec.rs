//! What a row format whose values have a frame must be able to do: [`Codec`].

use std::fmt;

use mycelium_base::ColumnSet;

use super::span::{Fault, Pieces, Scan, Span};
use crate::DatumRef;

/// What a format with a frame does with its payloads. Columns are schema positions.
pub(super) trait Codec: Send + Sync + fmt::Debug {
    /// Finds the columns of a payload; `spans` has one entry per column, all absent. Says `Null` only if the payload
    /// does.
    fn scan(&self, payload: &[u8], scan: Scan<'_>, spans: &mut [Span]) -> Result<(), Fault>;

    /// The value of a piece, checked against the column's type; text may be built in `scratch`.
    fn decode<'a>(&self, column: usize, piece: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<DatumRef<'a>, Fault>;

    /// Appends the piece of a value, which is one of the column's type.
    fn encode(&self, column: usize, datum: DatumRef<'_>, out: &mut Vec<u8>);

    /// The piece that a column has if its payload leaves it out; `None` if leaving out does not mean a value.
    fn default_piece(&self, column: usize) -> Option<&[u8]>;

    /// Appends a payload of the columns that have bytes (for JSON: or are null).
    fn emit(&self, pieces: &Pieces<'_>, out: &mut Vec<u8>);

    /// Whether [`Codec::copy`] is worth trying.
    fn copies(&self) -> bool {
        false
    }

    /// Appends the payload of the wanted columns that `emit` would make of a payload that was checked when it was
    /// written, if all of them are in it and it is made of parts of it. Else says `false`, and may have appended
    /// something.
    fn copy(&self, _payload: &[u8], _wanted: &ColumnSet, _out: &mut Vec<u8>) -> bool {
        false
    }
}
