//! Columns as SQL has them: as Arrow has them, but for decimals of negative scale.
//!
//! Those count hundreds, say. DataFusion takes a scale for a number without a sign, and panics or compares with other
//! numbers. So they are whole numbers in SQL, with their zeros written out, and a value that has more than 38 digits
//! then is refused when it is read. The engine goes on comparing what is stored.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, DataType, Field};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use mycelium_base::{Error, Result};
use mycelium_encoding::{Column, TextArrays};

/// Texts are views: those of one dictionary are not copied for each row, and DataFusion groups and joins by short ones
/// as by integers.
pub(crate) const TEXTS: TextArrays = TextArrays::Views;

/// The most digits of a `Decimal128`.
const MOST_DIGITS: u8 = 38;

/// The type of a column in SQL, if it is not Arrow's.
fn other_type(ty: &DataType) -> Option<DataType> {
    match ty {
        DataType::Decimal128(precision, scale) if *scale < 0 => {
            Some(DataType::Decimal128(precision.saturating_add(scale.unsigned_abs()).min(MOST_DIGITS), 0))
        }
        _ => None,
    }
}

fn converted(field: &Field) -> Field {
    match other_type(field.data_type()) {
        Some(ty) => field.clone().with_data_type(ty),
        None => field.clone(),
    }
}

/// A column as a field of a batch of SQL's.
pub(crate) fn sql_field(column: &Column) -> Field {
    converted(&column.to_arrow_with(TEXTS))
}

/// A batch of the engine's as one of SQL's.
pub(crate) fn to_sql(batch: RecordBatch) -> Result<RecordBatch> {
    if batch.columns().iter().all(|column| other_type(column.data_type()).is_none()) {
        return Ok(batch);
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let columns = batch.columns().iter().map(|column| match other_type(column.data_type()) {
        Some(ty) => cast_with_options(column, &ty, &options),
        None => Ok(column.clone()),
    });
    let fields: Vec<Field> = batch.schema_ref().fields().iter().map(|field| converted(field)).collect();
    let schema = Arc::new(arrow_schema::Schema::new(fields));
    let batch =
        columns.collect::<Result<Vec<_>, ArrowError>>().and_then(|columns| RecordBatch::try_new(schema, columns));
    batch.map_err(|error| Error::invalid("a decimal that has more than 38 digits as a whole number").caused_by(error))
}
