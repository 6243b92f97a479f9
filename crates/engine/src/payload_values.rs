//! The values of a row that is given as a payload, for who makes index entries of it: where its columns are was found
//! by the check that it had before.

use mycelium_base::{Error, Result};
use mycelium_encoding::row_format::{RowColumns, RowFormat, RowScratch};
use mycelium_encoding::{ColumnState, DatumRef, Schema};
use mycelium_transform::RowValues;

/// The values of a row that was stored a moment ago: those of its key, and those that its payload was found to have.
pub(crate) struct PayloadValues<'a> {
    schema: &'a Schema,
    key_values: &'a [DatumRef<'a>],
    columns: RowColumns<'a>,
}

impl<'a> PayloadValues<'a> {
    /// `scratch` is what the row was stored with.
    pub(crate) fn new(
        rows: &'a RowFormat,
        key_values: &'a [DatumRef<'a>],
        payload: &'a [u8],
        scratch: &'a mut RowScratch,
    ) -> Self {
        Self { schema: rows.schema(), key_values, columns: rows.stored_columns(payload, scratch) }
    }
}

impl RowValues for PayloadValues<'_> {
    fn value(&mut self, column: usize) -> Result<DatumRef<'_>> {
        let missing = || Error::invalid(format!("the row has no column {column}"));
        if let Some(position) = self.schema.primary_key().iter().position(|&of_key| of_key == column) {
            return self.key_values.get(position).copied().ok_or_else(missing);
        }
        match self.columns.get(column)? {
            ColumnState::Value(datum) => Ok(datum),
            ColumnState::Null => Ok(DatumRef::Null),
            ColumnState::Absent => Err(missing()),
        }
    }
}
