//! Table and index compared, for verification.
//!
//! At a snapshot, of one state of both:
//! 1. An entry that may be trusted, because the table has nothing newer for its row, is what its row says.
//! 2. As many entries hold as the rows derive, which is one for each row if the index is on columns: so no row lacks
//!    one.

use std::sync::Arc;

use mycelium_base::{Error, Operation, Result};

use super::read::{Held, check_entries};
use crate::database::Inner;
use crate::iterator::TableIterator;
use crate::read_options::ReadOptions;
use crate::table::{IndexState, TableShared};

impl Inner {
    /// Compares every table with its indexes, as far as these are built; `found` is told of each fault. How many it
    /// compared.
    pub(crate) fn verify_indexes(&self, mut found: impl FnMut(&str, Error)) -> Result<u64> {
        let mut compared = 0;
        let tables: Vec<Arc<TableShared>> = self.core.lock().tables.values().cloned().collect();
        for table in tables {
            let snapshot = self.take_snapshot();
            // A table that was dropped meanwhile has nothing to compare.
            let Ok((state, sequence)) = self.read_moment(&table, Some(&snapshot)) else { continue };
            let built = || state.indexes.iter().filter(|index| index.status.is_built);
            let counts = self.count_entries(&table, built(), &ReadOptions::at(&snapshot))?;
            for (index, expected) in built().zip(counts) {
                let Held { held, untrue } = check_entries(&table, &state, index, sequence)?;
                compared += 1;
                let name = &index.table.name;
                if let Some(key) = untrue.first() {
                    let message =
                        format!("{} entries are not what their rows say, the first at {key:02x?}", untrue.len());
                    found(name, Error::corruption(message));
                }
                if held != expected {
                    let error = Error::corruption("the index does not hold what the rows of its table derive");
                    found(name, error.expected(format!("{expected} entries"), held));
                }
            }
        }
        Ok(compared)
    }

    /// How many entries the rows derive for each index.
    fn count_entries<'i>(
        &self,
        table: &Arc<TableShared>,
        indexes: impl Iterator<Item = &'i IndexState>,
        options: &ReadOptions,
    ) -> Result<Vec<u64>> {
        let mut derivers = Vec::new();
        for index in indexes {
            let formats = table.typed_formats()?;
            derivers.push(index.index.source.deriver(formats.for_transformers(), &formats.whole_group())?);
        }
        let mut counts = vec![0; derivers.len()];
        if derivers.is_empty() {
            return Ok(counts);
        }
        let options = ReadOptions { fill_cache: false, read_ahead: 256 << 10, ..options.clone() };
        let mut rows = TableIterator::new(self, table, None, &options)?;
        rows.seek_to_first()?;
        while rows.valid() {
            for (deriver, count) in derivers.iter_mut().zip(&mut counts) {
                *count += deriver.derive(rows.key(), Operation::Put, rows.value())?.entries().count() as u64;
            }
            rows.next()?;
        }
        Ok(counts)
    }
}
