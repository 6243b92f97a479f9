//! The row format `raw`: the bytes of the table's one column outside the primary key, which is binary.
//!
//! Every byte string is a row. There are no fields: nothing can be unknown or twice. A patch is refused, for a part of
//! an opaque value means nothing; null is said by the caller and kept in the frame, and differs from empty.

use mycelium_base::{Error, Result};

use super::codec::Codec;
use super::span::{Fault, Piece, Pieces, Scan, Span};
use crate::{ColumnType, DatumRef, Schema};

/// Where the one column stands.
#[derive(Debug)]
pub(super) struct Raw {
    column: usize,
}

impl Raw {
    pub(super) fn new(schema: &Schema) -> Result<Self> {
        let outside_key = schema.value_columns();
        let mut columns = outside_key.iter();
        match (columns.next(), columns.next()) {
            (Some(column), None) if schema.columns()[column].ty == ColumnType::Binary => Ok(Self { column }),
            (Some(column), None) => Err(Error::invalid(format!(
                "column \"{}\" of a table of raw rows must be binary, not {}",
                schema.columns()[column].name,
                schema.columns()[column].ty
            ))),
            _ => Err(Error::invalid("a table of raw rows needs exactly one column outside the primary key")),
        }
    }
}

impl Codec for Raw {
    fn scan(&self, payload: &[u8], scan: Scan<'_>, spans: &mut [Span]) -> Result<bool, Fault> {
        // An empty payload is also what stands behind null or absent; the frame tells them apart.
        if scan.wants(self.column) && !payload.is_empty() {
            spans[self.column] = Span::at(0, payload.len());
        }
        Ok(false)
    }

    fn decode<'a>(&self, _column: usize, piece: &'a [u8], _: &'a mut Vec<u8>) -> Result<DatumRef<'a>, Fault> {
        Ok(DatumRef::Binary(piece))
    }

    fn encode(&self, _column: usize, datum: DatumRef<'_>, out: &mut Vec<u8>) {
        if let DatumRef::Binary(bytes) = datum {
            out.extend_from_slice(bytes);
        }
    }

    fn default_piece(&self, _column: usize) -> Option<&[u8]> {
        Some(&[])
    }

    fn emit(&self, pieces: &Pieces<'_>, out: &mut Vec<u8>) {
        if let Piece::Bytes(bytes) = pieces.get(self.column) {
            out.extend_from_slice(bytes);
        }
    }
}
