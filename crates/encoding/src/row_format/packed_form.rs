//! Packed rows as pieces: what [`super`] needs of [`crate::packed`] to treat them as the other formats.

use mycelium_base::Result;

use super::span::{Piece, Pieces, Scan, Span};
use crate::PackedLayout;
use crate::packed::{RawColumn, Shape, Source};

/// Finds the columns of a packed value.
pub(super) fn locate(layout: &PackedLayout, value: &[u8], scan: Scan<'_>, spans: &mut [Span]) -> Result<()> {
    let row = layout.row(value)?;
    let mut find = |index: usize| -> Result<()> {
        spans[layout.column(index)] = match row.raw(index)? {
            RawColumn::Absent => Span::Absent,
            RawColumn::Null => Span::Null,
            RawColumn::Value(bytes) => {
                let start = bytes.as_ptr().addr().saturating_sub(value.as_ptr().addr());
                Span::at(start, start + bytes.len())
            }
        };
        Ok(())
    };
    match scan {
        // Columns of the primary key, and such that do not exist, are not in the value.
        Scan::Trusted(Some(wanted)) => wanted.iter().filter_map(|column| layout.physical(column)).try_for_each(find),
        _ => (0..layout.len()).try_for_each(&mut find),
    }
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
