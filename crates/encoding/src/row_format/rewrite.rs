//! From stored values to a stored value: other columns, a newer patch, another format.

use std::sync::Arc;

#[cfg(doc)]
use mycelium_base::ErrorKind;
use mycelium_base::{ColumnSet, Error, Result};

use super::span::{Located, Pieces, Scan, Span};
use super::{RowFormat, RowScratch, start_of};
use crate::packed::{Appended, PackedScratch, put_datum};
use crate::{ColumnState, DatumRef, PackedLayout};

impl RowFormat {
    /// Appends the stored value of only these columns of a stored value: what was null or absent stays so.
    ///
    /// # Errors
    /// As [`RowFormat::read`].
    pub fn project(
        &self,
        value: &[u8],
        columns: &ColumnSet,
        scratch: &mut RowScratch,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let payload_at = self.locate(value, Scan::Trusted(Some(columns)), &mut scratch.spans)?;
        self.emit(&Pieces::one(&scratch.spans, &value[payload_at..]), out)
    }

    /// Appends the stored value of a patch over an older value, whole or itself a patch: each column is the newer one's
    /// if it is in it.
    ///
    /// # Errors
    /// As [`RowFormat::read`].
    pub fn overlay(&self, newer: &[u8], older: &[u8], scratch: &mut RowScratch, out: &mut Vec<u8>) -> Result<()> {
        let all = Scan::Trusted(None);
        let newer_at = self.locate(newer, all, &mut scratch.spans)?;
        let older_at = self.locate(older, all, &mut scratch.older)?;
        let newer = Located { spans: &scratch.spans, bytes: &newer[newer_at..] };
        let older = Located { spans: &scratch.older, bytes: &older[older_at..] };
        self.emit(&Pieces { newer, older: Some(older) }, out)
    }

    /// Appends a stored value in the format `to` of these columns of a stored value (`None`: all of them). `to` must be
    /// of the same schema. Returns whether the value says anything of these columns: `false` for a patch of others.
    ///
    /// # Errors
    /// As [`RowFormat::read`]; [`ErrorKind::InvalidArgument`] if the schemas differ, or if the row is over
    /// [`MAX_VALUE_LEN`] in the other format.
    pub fn convert(
        &self,
        to: &Self,
        value: &[u8],
        columns: Option<&ColumnSet>,
        scratch: &mut RowScratch,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        if !Arc::ptr_eq(self.schema(), to.schema()) && self.schema() != to.schema() {
            return Err(Error::invalid("rows are converted between formats of one schema"));
        }
        let is_same = self.is_same(to);
        let payload_at = self.locate(value, Scan::Trusted(columns), &mut scratch.spans)?;
        let located = Located { spans: &scratch.spans, bytes: &value[payload_at..] };
        if is_same {
            self.emit(&Pieces { newer: located, older: None }, out)?;
            return Ok(scratch.spans.iter().any(|&span| span != Span::Absent));
        }
        if to.0.codec.is_none() {
            return self.pack(&to.0.layout, located, payload_at, (&mut scratch.text, &mut scratch.packed), out);
        }
        to.reset(&mut scratch.piece_spans);
        scratch.pieces.clear();
        let mut says_something = false;
        for (_, column) in self.columns_of(columns) {
            let state = self
                .state(column, located.piece(column), &mut scratch.text)
                .map_err(|fault| fault.corrupt(payload_at + start_of(located.spans[column])))?;
            let span = to.put(column, state, &mut scratch.pieces);
            says_something |= span != Span::Absent;
            scratch.piece_spans[column] = span;
        }
        to.emit(&Pieces::one(&scratch.piece_spans, &scratch.pieces), out)?;
        Ok(says_something)
    }

    /// Appends the packed value of the columns located. Returns whether there is one of them in it.
    fn pack(
        &self,
        layout: &PackedLayout,
        located: Located<'_>,
        payload_at: usize,
        (text, packed): (&mut Vec<u8>, &mut PackedScratch),
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let put = |index: usize, bytes: &mut Vec<u8>| {
            let column = layout.column(index);
            let state = self
                .state(column, located.piece(column), text)
                .map_err(|fault| fault.corrupt(payload_at + start_of(located.spans[column])))?;
            Ok(match state {
                ColumnState::Absent => Appended::Absent,
                ColumnState::Null | ColumnState::Value(DatumRef::Null) => Appended::Null,
                ColumnState::Value(datum) => {
                    put_datum(datum, bytes);
                    Appended::Value
                }
            })
        };
        layout.encode_once(put, packed, out)
    }
}
