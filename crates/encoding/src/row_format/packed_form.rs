//! Packed rows as pieces: what [`super`] needs of [`crate::packed`] to treat them as the other formats.

use mycelium_base::Result;

use super::span::{Piece, Pieces, Scan, Span};
use crate::PackedLayout;
use crate::packed::{RawColumn, Shape, Source};

/// Finds the columns of a packed value.
pub(super) fn locate(layout: &PackedLayout, value: &[u8], scan: Scan<'_>, spans: &mut [Span]) -> Result<()> {
    let row = layout.row(value)?;
    for index in 0..layout.len() {
        let column = layout.column(index);
        if !scan.wants(column) {
            continue;
        }
        spans[column] = match row.raw(index)? {
            RawColumn::Absent => Span::Absent,
            RawColumn::Null => Span::Null,
            RawColumn::Value(bytes) => {
                let start = bytes.as_ptr().addr().saturating_sub(value.as_ptr().addr());
                Span::at(start, start + bytes.len())
            }
        };
    }
    Ok(())
}

/// Appends the packed value of `pieces`, slots and bytes as they are.
pub(super) fn emit(layout: &PackedLayout, pieces: &Pieces<'_>, out: &mut Vec<u8>) -> Result<()> {
    layout.encode_source(&PackedPieces { layout, pieces }, out)
}

struct PackedPieces<'a> {
    layout: &'a PackedLayout,
    pieces: &'a Pieces<'a>,
}

impl Source for PackedPieces<'_> {
    fn shape(&self, index: usize) -> Shape {
        match self.pieces.get(self.layout.column(index)) {
            Piece::Absent => Shape::Absent,
            Piece::Null | Piece::Default => Shape::Null,
            Piece::Bytes(bytes) => Shape::Value(if self.layout.is_variable(index) { bytes.len() } else { 0 }),
        }
    }

    fn write(&self, index: usize, out: &mut Vec<u8>) {
        if let Piece::Bytes(bytes) = self.pieces.get(self.layout.column(index)) {
            out.extend_from_slice(bytes);
        }
    }
}
