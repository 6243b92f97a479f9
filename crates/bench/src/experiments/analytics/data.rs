//! What the experiment needs to know of a set of data.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_cast::cast;
use mycelium_encoding::Schema;
use mycelium_engine::Table;

use crate::store::Result;

/// A query by its name.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// As its benchmark calls it.
    pub name: &'static str,
    /// In SQL.
    pub text: &'static str,
}

/// A table's worth of data.
pub(super) trait Data: Sync {
    /// The table's name.
    fn name(&self) -> &'static str;
    /// Its columns, in the engine's words.
    fn schema(&self) -> &'static str;
    /// Its layout: rows above, columns below.
    fn layout(&self) -> &'static str;
    /// What is asked.
    fn questions(&self) -> &'static [Question];
    /// All rows.
    fn batches(&self) -> &[RecordBatch];
    /// Changes a column of the row at a place of a batch, the `row`th of all.
    fn update(&self, table: &Table, batch: &RecordBatch, at: usize, row: u64) -> Result<()>;
    /// A batch with these rows changed so.
    fn updated(&self, batch: &RecordBatch, rows: &[(usize, u64)]) -> Result<RecordBatch>;
    /// Inserts a new row, the `row`th of those.
    fn insert(&self, table: &Table, row: u64) -> Result<()>;
}

/// A batch in the types of a schema.
pub(super) fn cast_to(schema: &str, batch: &RecordBatch) -> Result<RecordBatch> {
    let schema = Arc::new(Schema::parse(schema)?.to_arrow());
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| cast(column, field.data_type()));
    Ok(RecordBatch::try_new(schema.clone(), columns.collect::<std::result::Result<_, _>>()?)?)
}
