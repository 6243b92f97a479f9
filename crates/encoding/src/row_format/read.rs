//! From a stored value to what a user gets: its payload, or typed values.

#[cfg(doc)]
use mycelium_base::ErrorKind;
use mycelium_base::{ColumnSet, Result};

#[cfg(doc)]
use super::Covers;
use super::codec::Plain;
use super::span::{Fault, Located, Pieces, Scan, Span};
use super::{Presence, RowFormat, RowScratch, start_of};
use crate::ColumnState;

impl RowFormat {
    /// Appends the payload of a stored value, and returns what the payload does not say: storing it with
    /// [`Covers::Columns`] and these nulls gives the value again.
    ///
    /// # Errors
    /// As [`RowFormat::read`].
    pub fn to_user(&self, value: &[u8], scratch: &mut RowScratch, out: &mut Vec<u8>) -> Result<Presence> {
        let payload_at = self.locate(value, Scan::Trusted(None), &mut scratch.spans)?;
        let mut presence = Presence::default();
        for &column in &self.0.columns {
            if scratch.spans[column] != Span::Absent {
                presence.columns.insert(column);
            }
            if scratch.spans[column] == Span::Null {
                presence.nulls.insert(column);
            }
        }
        out.extend_from_slice(&value[payload_at..]);
        Ok(presence)
    }

    /// The columns that are in a stored value, null or not. O(columns and, for JSON and Protobuf, bytes).
    ///
    /// # Errors
    /// As [`RowFormat::read`].
    pub fn present(&self, value: &[u8], scratch: &mut RowScratch) -> Result<ColumnSet> {
        self.locate(value, Scan::Trusted(None), &mut scratch.spans)?;
        Ok(self.0.columns.iter().copied().filter(|&column| scratch.spans[column] != Span::Absent).collect())
    }

    /// Finds the wanted columns of a stored value (`None`: all). Others read as absent, so reading one column of many
    /// builds nothing of the others: `packed` and `flatbuffers` go straight to it, `json` and `protobuf` walk up to it.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] if the value is malformed, [`ErrorKind::Unsupported`] if it is of another format or
    /// schema version.
    pub fn read<'a>(
        &'a self,
        value: &'a [u8],
        columns: Option<&'a ColumnSet>,
        scratch: &'a mut RowScratch,
    ) -> Result<RowColumns<'a>> {
        self.forget(columns, &mut scratch.spans);
        let payload_at = self.find(value, Scan::Trusted(columns), &mut scratch.spans)?;
        Ok(RowColumns { format: self, value, payload_at, columns, spans: &scratch.spans, text: &mut scratch.text })
    }

    /// The columns of a payload that [`RowFormat::store`] took with this memory just before: where they stand is known.
    pub fn stored_columns<'a>(&'a self, payload: &'a [u8], scratch: &'a mut RowScratch) -> RowColumns<'a> {
        if scratch.spans.len() != self.schema().columns().len() {
            self.reset(&mut scratch.spans);
        }
        let RowScratch { spans, text, .. } = scratch;
        RowColumns { format: self, value: payload, payload_at: 0, columns: None, spans, text }
    }

    /// One column of a stored value: what [`RowFormat::read`] of it alone gives. A Protobuf field that is written as
    /// the column holds it is found and read in one pass. Text that must be decoded is built in `scratch`.
    ///
    /// # Errors
    /// As [`RowFormat::read`] and [`RowColumns::get`].
    pub fn read_column<'a>(
        &'a self,
        value: &'a [u8],
        column: usize,
        scratch: &'a mut RowScratch,
    ) -> Result<ColumnState<'a>> {
        self.0.layout.physical_index(column)?;
        let plain = self.find_plain(value, column);
        if let Some(datum) = plain.and_then(|plain| plain.datum(&self.schema().columns()[column].ty)) {
            return Ok(ColumnState::Value(datum));
        }
        let RowScratch { spans, text, alone, .. } = scratch;
        if alone.len() != 1 || !alone.contains(column) {
            *alone = ColumnSet::from_iter([column]);
        }
        self.forget(Some(alone), spans);
        let payload_at = self.find(value, Scan::Trusted(Some(alone)), spans)?;
        let located = Located { spans, bytes: value.get(payload_at..).unwrap_or_default() };
        let at = payload_at + start_of(spans[column]);
        self.state(column, located.piece(column), text).map_err(|fault| fault.corrupt(at))
    }

    /// Makes the wanted columns absent; what the row before left of others is not looked at.
    fn forget(&self, columns: Option<&ColumnSet>, spans: &mut Vec<Span>) {
        match columns {
            Some(columns) if spans.len() == self.schema().columns().len() => {
                for column in columns.iter() {
                    spans.get_mut(column).into_iter().for_each(|span| *span = Span::Absent);
                }
            }
            _ => self.reset(spans),
        }
    }

    /// A column that is found and needs no decoding; `None` says nothing of it.
    #[inline]
    pub(crate) fn find_plain<'a>(&self, value: &'a [u8], column: usize) -> Option<Plain<'a>> {
        let codec = self.0.codec.as_ref()?;
        let frame = self.frame().parse(value).ok()?;
        codec.find_plain(value.get(frame.payload_at..)?, column)
    }

    /// Shows `visit` columns that need no decoding, in the order in which they lie, each once: as many as are found so.
    #[inline]
    pub(crate) fn visit_plain(
        &self,
        value: &[u8],
        visit: &mut dyn FnMut(usize, Plain<'_>) -> Result<()>,
    ) -> Result<()> {
        let (Some(codec), Ok(frame)) = (&self.0.codec, self.frame().parse(value)) else { return Ok(()) };
        codec.visit_plain(value.get(frame.payload_at..).unwrap_or_default(), visit)
    }

    /// Checks every byte of a stored value: its frame is canonical, and its payload one that [`RowFormat::store`]
    /// takes.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] or [`ErrorKind::Unsupported`] says what is wrong.
    pub fn validate(&self, value: &[u8]) -> Result<()> {
        let mut scratch = RowScratch::default();
        if self.0.codec.is_none() {
            return self.0.layout.validate(value);
        }
        let payload_at = self.locate(value, Scan::Strict, &mut scratch.spans)?;
        let payload = &value[payload_at..];
        let pieces = Pieces::one(&scratch.spans, payload);
        for &column in &self.0.columns {
            let at = payload_at + start_of(scratch.spans[column]);
            let state = self.state(column, pieces.get(column), &mut scratch.text).map_err(|fault| fault.corrupt(at))?;
            if state == ColumnState::Null && !self.schema().columns()[column].nullable {
                return Err(Fault::new(0, "may not be null").in_column(self.name(column)).corrupt(at));
            }
        }
        let mut frame = Vec::new();
        self.frame().write(&pieces, &mut frame);
        match frame.iter().zip(value).position(|(a, b)| a != b) {
            None if frame.len() == payload_at => Ok(()),
            at => Err(Fault::new(at.unwrap_or(payload_at), "its frame is not canonical").corrupt(0)),
        }
    }
}

/// The columns found in a stored value; made by [`RowFormat::read`].
#[derive(Debug)]
pub struct RowColumns<'a> {
    format: &'a RowFormat,
    value: &'a [u8],
    payload_at: usize,
    /// Those that were looked for; all if `None`.
    columns: Option<&'a ColumnSet>,
    spans: &'a [Span],
    text: &'a mut Vec<u8>,
}

impl<'a> RowColumns<'a> {
    /// A column that was found and needs no decoding.
    #[inline]
    pub(crate) fn plain(&self, column: usize) -> Option<Plain<'a>> {
        let (Some(codec), Span::At { start, end }) = (&self.format.0.codec, self.spans.get(column)?) else {
            return None;
        };
        if self.columns.is_some_and(|columns| !columns.contains(column)) {
            return None;
        }
        let payload = self.value.get(self.payload_at..)?;
        codec.plain(column, payload.get(*start as usize..*end as usize)?)
    }

    /// The columns that were found, null or not, ascending.
    pub fn present(&self) -> impl Iterator<Item = usize> {
        let is_wanted = |column: &usize| self.columns.is_none_or(|columns| columns.contains(*column));
        (0..self.spans.len()).filter(is_wanted).filter(|&column| self.spans[column] != Span::Absent)
    }

    /// What the value says about a column, given by its schema position. Decoded now; text with escapes and binary from
    /// JSON are kept until the next call.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the column is in the primary key or does not exist, [`ErrorKind::Corruption`]
    /// if its bytes are malformed.
    pub fn get(&mut self, column: usize) -> Result<ColumnState<'_>> {
        self.format.0.layout.physical_index(column)?;
        if self.columns.is_some_and(|columns| !columns.contains(column)) {
            return Ok(ColumnState::Absent);
        }
        let located = Located { spans: self.spans, bytes: self.value.get(self.payload_at..).unwrap_or_default() };
        let at = self.payload_at + start_of(self.spans[column]);
        self.format.state(column, located.piece(column), self.text).map_err(|fault| fault.corrupt(at))
    }
}
