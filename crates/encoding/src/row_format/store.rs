//! From what a user gives to a stored value: a payload, which is checked and kept, or typed values.

#[cfg(doc)]
use mycelium_base::ErrorKind;
use mycelium_base::limits::MAX_VALUE_LEN;
use mycelium_base::{ColumnSet, Error, Result};

use super::span::{Fault, Piece, Pieces, Scan, Span};
use super::{Covers, RowFormat, RowFormatKind, RowScratch, packed_form, says_null};
use crate::{ColumnState, DatumRef};

impl RowFormat {
    /// Checks that `payload` is one that [`RowFormat::store`] takes as a whole row, or as a patch of the columns it
    /// has.
    ///
    /// # Errors
    /// As [`RowFormat::store`].
    pub fn check(&self, payload: &[u8], whole_row: bool) -> Result<()> {
        let covers = if whole_row { Covers::Row } else { Covers::Said };
        self.accept(payload, covers, &ColumnSet::new(), &mut RowScratch::default()).map(drop)
    }

    /// Appends the stored value of a user's payload, which is checked to the last byte and kept as it is. `nulls` are
    /// columns that are null though the format cannot say so, or does not need to; the payload has no value for them.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] says what is wrong at which byte: see the rules of [all formats](super) and
    /// those of this one.
    pub fn store(
        &self,
        payload: &[u8],
        covers: Covers<'_>,
        nulls: &ColumnSet,
        scratch: &mut RowScratch,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let nulls_filled_in = self.accept(payload, covers, nulls, scratch)?;
        let pieces = Pieces::one(&scratch.spans, payload);
        let has_absent = self.0.columns.iter().any(|&column| scratch.spans[column] == Span::Absent);
        match self.0.kind {
            RowFormatKind::Packed => out.extend_from_slice(payload),
            // A patch in JSON says its nulls in the text.
            RowFormatKind::Json if nulls_filled_in && has_absent => return self.emit(&pieces, out),
            _ => {
                self.frame().write(&pieces, out);
                out.extend_from_slice(payload);
            }
        }
        Ok(())
    }

    /// Checks a user's payload and finds its columns. Returns whether some column is null without the payload saying
    /// so.
    ///
    /// 1. The whole payload is read.
    /// 2. Every value is decoded.
    /// 3. Per column, what the payload and what the caller say are made one.
    fn accept(&self, payload: &[u8], covers: Covers<'_>, nulls: &ColumnSet, scratch: &mut RowScratch) -> Result<bool> {
        let header_bound = 16 + self.0.columns.len() / 4;
        if payload.len() + header_bound > MAX_VALUE_LEN {
            let message = format!("the row has {} bytes; at most {MAX_VALUE_LEN} are possible", payload.len());
            return Err(Error::invalid(message).at((MAX_VALUE_LEN - header_bound) as u64));
        }
        if !self.takes_patches() && !matches!(covers, Covers::Row) {
            return Err(Error::invalid("a table of raw rows takes no patches").at(0));
        }
        if let Some(column) = nulls.iter().find(|column| self.0.columns.binary_search(column).is_err()) {
            return Err(Error::invalid(format!("column {column}, said to be null, is not in the row")).at(0));
        }
        self.reset(&mut scratch.spans);
        match &self.0.codec {
            Some(codec) => codec.scan(payload, Scan::Strict, &mut scratch.spans).map(drop).map_err(Fault::refused)?,
            None => self.accept_packed(payload, &mut scratch.spans)?,
        }
        let mut nulls_filled_in = false;
        for &column in &self.0.columns {
            let span = scratch.spans[column];
            let settled = self.settle_payload(column, span, payload, covers, nulls.contains(column))?;
            nulls_filled_in |= span == Span::Absent && settled == Span::Null;
            scratch.spans[column] = settled;
            let piece = Pieces::one(&scratch.spans, payload).get(column);
            if let (Span::At { start, .. }, Piece::Bytes(_)) = (settled, piece) {
                scratch.text.clear();
                self.state(column, piece, &mut scratch.text)
                    .map_err(|fault| fault.shifted(start as usize).refused())?;
            }
        }
        Ok(nulls_filled_in)
    }

    fn accept_packed(&self, payload: &[u8], spans: &mut [Span]) -> Result<()> {
        let refuse = |e: Error| {
            let refused = Error::invalid("malformed packed row");
            let refused = if let Some(offset) = e.offset() { refused.at(offset) } else { refused };
            refused.caused_by(e)
        };
        self.0.layout.validate(payload).map_err(refuse)?;
        packed_form::locate(&self.0.layout, payload, Scan::Strict, spans).map_err(refuse)
    }

    /// What a column of a user's payload is; see [`Covers`].
    fn settle_payload(
        &self,
        column: usize,
        span: Span,
        payload: &[u8],
        covers: Covers<'_>,
        said_null: bool,
    ) -> Result<Span> {
        let in_payload = span != Span::Absent;
        let is_null = span == Span::Null || (self.0.kind == RowFormatKind::Json && says_null(span, payload));
        let covered = match covers {
            Covers::Row => true,
            Covers::Columns(columns) => columns.contains(column),
            Covers::Said => in_payload || said_null,
        };
        if in_payload && covered && !is_null && !said_null {
            return Ok(span);
        }
        let at = match span {
            Span::At { start, .. } => start as u64,
            _ => payload.len() as u64,
        };
        let nullable = self.schema().columns()[column].nullable;
        let default = self.0.codec.as_ref().and_then(|codec| codec.default_piece(column));
        let refused = match (in_payload, covered) {
            (_, false) if in_payload || said_null => "is in the payload or said to be null, but not covered",
            (false, false) => return Ok(Span::Absent),
            (true, _) if !is_null => "is said to be null, but has a value",
            _ if (is_null || said_null) && !nullable => "may not be null",
            _ if is_null || said_null => return Ok(Span::Null),
            _ if default.is_some() => return Ok(Span::Default),
            _ if nullable && self.0.kind != RowFormatKind::Packed => return Ok(Span::Null),
            _ => "is missing",
        };
        Err(Error::invalid(format!("column \"{}\" {refused}", self.name(column))).at(at))
    }

    /// Appends the stored value of typed columns; `state` is asked once for each column outside the primary key.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if a column cannot hold its value or the row is over [`MAX_VALUE_LEN`].
    pub fn encode_with<'d>(
        &self,
        mut state: impl FnMut(usize) -> ColumnState<'d>,
        scratch: &mut RowScratch,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.reset(&mut scratch.piece_spans);
        scratch.pieces.clear();
        for &column in &self.0.columns {
            let state = state(column);
            match state {
                ColumnState::Absent => {}
                ColumnState::Null => DatumRef::Null.check(&self.schema().columns()[column])?,
                ColumnState::Value(datum) => datum.check(&self.schema().columns()[column])?,
            }
            scratch.piece_spans[column] = self.put(column, state, &mut scratch.pieces);
        }
        self.emit(&Pieces::one(&scratch.piece_spans, &scratch.pieces), out)
    }
}
