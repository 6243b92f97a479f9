//! Rows between the form that the model has them in, which is packed, and the one in which a table stores them.

use mycelium_base::{Result, RowFormatKind};
use mycelium_encoding::row_format::{RowFormat, RowScratch};
use mycelium_engine::{Table, TableIterator, TransactionIterator};

use crate::model::Row;
use crate::tables::{TableKind, changes_of};
use crate::transformers::{is_mapped, unmapped};

/// The row on which an iterator stands, as the model has it.
pub(crate) fn current_row(table: &Table, rows: &TableIterator) -> Result<Option<Row>> {
    if !rows.valid() {
        return Ok(None);
    }
    Ok(Some((rows.key().to_vec(), packed(table, rows.value().to_vec())?)))
}

/// The same of a transaction's iterator.
pub(crate) fn current_row_within(table: &Table, rows: &TransactionIterator<'_>) -> Result<Option<Row>> {
    if !rows.valid() {
        return Ok(None);
    }
    Ok(Some((rows.key().to_vec(), packed(table, rows.value().to_vec())?)))
}

/// The format of a typed table's stored values, if it is not packed, and packed rows of its schema.
pub(crate) fn formats(table: &Table) -> Result<Option<(RowFormat, RowFormat)>> {
    let definition = &table.options().row_format;
    match table.schema() {
        Some(schema) if definition.kind != RowFormatKind::Packed => {
            let own = RowFormat::new(definition.kind, schema.clone(), &definition.definition, &definition.root)?;
            Ok(Some((own, RowFormat::packed(schema.clone()))))
        }
        _ => Ok(None),
    }
}

/// The model's packed value as a table of this kind stores it.
pub(crate) fn stored(table: &Table, kind: TableKind, value: &[u8]) -> Result<Vec<u8>> {
    let value = match table.schema() {
        Some(schema) if is_mapped(table) => unmapped(&RowFormat::packed(schema.clone()), value)?,
        Some(schema) => kind.fitted(value, changes_of(schema)),
        None => value.to_vec(),
    };
    let Some((own, packed)) = formats(table)? else { return Ok(value) };
    let mut out = Vec::new();
    packed.convert(&own, &value, None, &mut RowScratch::default(), &mut out)?;
    Ok(out)
}

/// The table's stored value as the model has it.
pub(crate) fn packed(table: &Table, value: Vec<u8>) -> Result<Vec<u8>> {
    packed_by(formats(table)?.as_ref(), value)
}

/// The same, of a table with these formats.
pub(crate) fn packed_by(formats: Option<&(RowFormat, RowFormat)>, value: Vec<u8>) -> Result<Vec<u8>> {
    let Some((own, packed)) = formats else { return Ok(value) };
    let mut out = Vec::new();
    own.convert(packed, &value, None, &mut RowScratch::default(), &mut out)?;
    Ok(out)
}
