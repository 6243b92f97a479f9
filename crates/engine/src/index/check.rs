//! Table and index compared, for verification.
//!
//! At a snapshot, of one state of both:
//! 1. An entry that may be trusted, because the table has nothing newer for its row, is what its row says.
//! 2. As many entries hold as there are rows. A row has but one derived key, so that no row lacks its entry then.

use std::sync::Arc;

use mycelium_base::{Error, Result};

use super::read::{Held, check_entries};
use crate::database::Inner;
use crate::iterator::TableIterator;
use crate::options::ReadOptions;
use crate::table::TableShared;

impl Inner {
    /// Compares every table with its indexes, as far as these are built; `found` is told of each fault.
    pub(crate) fn verify_indexes(&self, mut found: impl FnMut(&str, Error)) -> Result<()> {
        let tables: Vec<Arc<TableShared>> = self.core.lock().tables.values().cloned().collect();
        for table in tables {
            let snapshot = self.take_snapshot();
            let state = table.state.load_full();
            let mut rows = None;
            for index in state.indexes.iter().filter(|index| index.status.is_built) {
                let expected = match rows {
                    Some(rows) => rows,
                    None => *rows.insert(self.count_rows(&table, &ReadOptions::at(&snapshot))?),
                };
                let Held { rows: held, untrue } = check_entries(&table, &state, index, snapshot.sequence())?;
                let name = &index.table.name;
                if let Some(key) = untrue.first() {
                    let message =
                        format!("{} entries are not what their rows say, the first at {key:02x?}", untrue.len());
                    found(name, Error::corruption(message));
                }
                if held != expected {
                    let error = Error::corruption("the index does not hold every row of its table once");
                    found(name, error.expected(format!("{expected} rows"), held));
                }
            }
        }
        Ok(())
    }

    fn count_rows(&self, table: &Arc<TableShared>, options: &ReadOptions) -> Result<u64> {
        let options = ReadOptions { fill_cache: false, read_ahead: 256 << 10, ..options.clone() };
        let mut rows = TableIterator::new(self, table, &options)?;
        let mut count = 0;
        rows.seek_to_first()?;
        while rows.valid() {
            count += 1;
            rows.next()?;
        }
        Ok(count)
    }
}
