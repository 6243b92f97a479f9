//! The schema of a table, and what is found in the input, brought together.
//!
//! 1. A schema that is not given follows from what was found ([`inferred`]).
//! 2. Readers of text read with a schema of their own ([`in_text`]), so that nothing is lost before it is looked at.
//! 3. Columns are compared once, before the first batch ([`compare_columns`]); each batch is then brought to the schema
//!    ([`conform`]).

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::wrong_rows::WrongRows;
use crate::exact;
use crate::failure::Failure;
use crate::output::in_utc;

fn no_columns() -> Failure {
    Failure::input("it has no columns").hint("is it empty?")
}

/// The schema of a table for what was found: plain types, key columns not null, all else nullable.
pub(super) fn inferred(found: &Schema, key: &[String]) -> Result<SchemaRef, Failure> {
    if key.is_empty() {
        return Err(Failure::usage("which columns are the primary key?").hint("--key COLUMN,COLUMN…"));
    }
    if found.fields().is_empty() {
        return Err(no_columns());
    }
    for name in key {
        if found.field_with_name(name).is_err() {
            let names: Vec<_> = found.fields().iter().map(|field| field.name().as_str()).collect();
            return Err(Failure::usage(format!("--key: the input has no column {name:?}"))
                .hint(format!("it has {}", names.join(", "))));
        }
    }
    let fields = found.fields().iter().map(|field| {
        let ty = stored_type(field.data_type()).ok_or_else(|| {
            Failure::input(format!(
                "column {:?} is of type {}, which tables cannot store",
                field.name(),
                field.data_type()
            ))
            .hint("--schema with the columns wanted leaves it out")
        })?;
        Ok(Field::new(field.name(), ty, !key.contains(field.name())))
    });
    Ok(Arc::new(Schema::new(fields.collect::<Result<Vec<_>, Failure>>()?)))
}

/// The type that a table stores values of `ty` as.
fn stored_type(ty: &DataType) -> Option<DataType> {
    Some(match ty {
        // Nothing but nulls so far.
        DataType::Null | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Date64 => DataType::Date32,
        DataType::Float16 => DataType::Float32,
        DataType::Dictionary(_, values) => stored_type(values)?,
        DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32
        | DataType::UInt64
        | DataType::Float32
        | DataType::Float64
        | DataType::Utf8
        | DataType::Binary
        | DataType::Date32
        | DataType::Timestamp(..)
        | DataType::Decimal128(..) => ty.clone(),
        _ => return None,
    })
}

/// The schema as a reader of text is to read it: with every column nullable, so that a null in a key column is found
/// here and named.
pub(super) fn in_text(schema: &SchemaRef, as_text: impl Fn(&DataType) -> bool) -> SchemaRef {
    let field = |field: &Field| field.clone().with_nullable(true).with_data_type(read_as(field.data_type(), &as_text));
    let fields: Vec<_> = schema.fields().iter().map(|found| field(found)).collect();
    Arc::new(Schema::new(fields))
}

/// The type to be read for values of type `ty`: text, where it says so.
pub(super) fn read_as(ty: &DataType, as_text: impl Fn(&DataType) -> bool) -> DataType {
    if as_text(ty) { DataType::Utf8 } else { ty.clone() }
}

pub(super) fn distinct(schema: &Schema) -> Result<(), Failure> {
    let mut names: Vec<_> = schema.fields().iter().map(|field| field.name()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Failure::input(format!("two columns are named {:?}", pair[0]))),
        None => Ok(()),
    }
}

/// Says which columns the input lacks, and which of its own are passed over, also where it has no rows. One that may
/// not be null must be there, unless it has a default.
pub(super) fn compare_columns(found: &SchemaRef, schema: &SchemaRef, defaults: &RecordBatch) -> Result<(), Failure> {
    let is_missing = |field: &Arc<Field>| found.field_with_name(field.name()).is_err();
    let has_default = |field: &Arc<Field>| defaults.column_by_name(field.name()).is_some();
    let lacks = |field: &&Arc<Field>| !field.is_nullable() && !has_default(field) && is_missing(field);
    if let Some(field) = schema.fields().iter().find(lacks) {
        if found.fields().is_empty() {
            return Err(no_columns());
        }
        let columns = found.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ");
        let message = format!("it has no column {:?}, which may not be null", field.name());
        return Err(Failure::input(message).hint(format!("its columns: {columns}")));
    }
    let (with_default, without): (Vec<_>, Vec<_>) =
        schema.fields().iter().filter(|field| is_missing(field)).partition(|field| has_default(field));
    for (columns, what) in [(with_default, "have their defaults"), (without, "are null")] {
        if !columns.is_empty() {
            let names: Vec<&str> = columns.iter().map(|field| field.name().as_str()).collect();
            eprintln!("mycelium: columns that the input lacks {what}: {}", names.join(", "));
        }
    }
    let unknown = found.fields().iter().map(|field| field.name().as_str());
    let unknown: Vec<&str> = unknown.filter(|name| schema.field_with_name(name).is_err()).collect();
    tell_passed_over(&unknown.join(", "));
    Ok(())
}

pub(super) fn tell_passed_over(names: &str) {
    if !names.is_empty() {
        eprintln!("mycelium: columns of the input that the table lacks are passed over: {names}");
    }
}

/// The batch in the form of `schema`: columns by name, missing ones null, or left out if they have a default, types by
/// a cast that loses nothing.
pub(super) fn conform(
    batch: &RecordBatch,
    schema: &SchemaRef,
    defaults: &RecordBatch,
) -> Result<RecordBatch, WrongRows> {
    let column = |field: &Arc<Field>| -> Result<ArrayRef, WrongRows> {
        let column = match batch.column_by_name(field.name()) {
            None => new_null_array(field.data_type(), batch.num_rows()),
            Some(column) => typed(column, field)?,
        };
        if !field.is_nullable() && column.null_count() > 0 {
            let message = format!("column {:?} must not be null, and is in some row", field.name());
            return Err(WrongRows::Other(Failure::input(message)));
        }
        Ok(column)
    };
    let is_given = |field: &&Arc<Field>| {
        let is_in = |batch: &RecordBatch| batch.column_by_name(field.name()).is_some();
        is_in(batch) || !is_in(defaults)
    };
    let fields: Vec<Arc<Field>> = schema.fields().iter().filter(is_given).cloned().collect();
    let columns = fields.iter().map(column).collect::<Result<Vec<_>, _>>()?;
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(WrongRows::from)
}

/// Values as those of a column. Instants without a zone are in UTC.
pub(super) fn typed(values: &ArrayRef, column: &Field) -> Result<ArrayRef, WrongRows> {
    if values.data_type() == column.data_type() {
        return Ok(values.clone());
    }
    exact::cast(values, &in_utc(column.data_type()))
        .and_then(|values| exact::cast(&values, column.data_type()))
        .map_err(|e| WrongRows::Type(format!("column {:?}: {e}", column.name())))
}
