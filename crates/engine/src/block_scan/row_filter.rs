//! A filter of rows that are put together.

use std::sync::Arc;

use mycelium_base::Result;
use mycelium_encoding::PackedLayout;
use mycelium_encoding::key::KeyReader;
use mycelium_encoding::page::{ColumnTest, Filter};

/// What a filter asks of rows that are put together.
#[derive(Debug)]
pub(crate) struct RowFilter {
    layout: Arc<PackedLayout>,
    /// Of columns outside the primary key.
    pub(super) value_tests: Vec<ColumnTest>,
    /// Of columns of it, by their place in the key.
    pub(super) key_tests: Vec<ColumnTest>,
}

impl RowFilter {
    /// `layout` is that of the rows, which must have the tested columns.
    pub(crate) fn new(layout: Arc<PackedLayout>, filter: &Filter) -> Self {
        let schema = layout.schema().clone();
        let (mut value_tests, mut key_tests) = (Vec::new(), Vec::new());
        for test in &filter.conjuncts {
            match schema.primary_key().iter().position(|&column| column == test.column) {
                Some(place) => key_tests.push(ColumnTest { column: place, test: test.test.clone() }),
                None => value_tests.push(test.clone()),
            }
        }
        Self { layout, value_tests, key_tests }
    }

    /// Whether a row passes.
    pub(crate) fn passes(&self, key: &[u8], row: &[u8]) -> Result<bool> {
        if !self.value_tests.is_empty() {
            let row = self.layout.row(row)?;
            for ColumnTest { column, test } in &self.value_tests {
                if !test.passes(row.get(*column)?) {
                    return Ok(false);
                }
            }
        }
        self.passes_key(key)
    }

    /// Whether a row with this key passes what the filter asks of the key, which is read up to the last tested column
    /// or the first that fails. Allocates nothing, but for texts with NUL bytes.
    pub(super) fn passes_key(&self, key: &[u8]) -> Result<bool> {
        let (schema, mut reader, mut scratch) = (self.layout.schema(), KeyReader::new(key), Vec::new());
        let tested = self.key_tests.iter().map(|test| test.column + 1).max().unwrap_or(0);
        for (place, &column) in schema.primary_key().iter().enumerate().take(tested) {
            let value = reader.next(&schema.columns()[column].ty, &mut scratch)?;
            let mut tests = self.key_tests.iter().filter(|test| test.column == place);
            if !tests.all(|test| test.test.passes(value.into())) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
