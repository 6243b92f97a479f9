//! Views compared with the rows of their tables, for verification.

use std::sync::Arc;

use mycelium_base::{Error, Result};

use crate::database::Inner;
use crate::read_options::ReadOptions;
use crate::table::TableShared;

impl Inner {
    /// Reads every view through its partial aggregates and from rows, at one snapshot; `found` is told of each
    /// difference. How many it compared.
    pub(crate) fn verify_views(&self, mut found: impl FnMut(&str, Error)) -> Result<u64> {
        let mut compared = 0;
        let tables: Vec<Arc<TableShared>> = self.core.lock().tables.values().cloned().collect();
        for table in tables {
            let snapshot = self.take_snapshot();
            let options = ReadOptions { fill_cache: false, read_ahead: 256 << 10, ..ReadOptions::at(&snapshot) };
            for view in table.views.load().iter() {
                let by_summaries = self.read_view(&table, view, &options, true)?.rows;
                let by_rows = self.read_view(&table, view, &options, false)?.rows;
                compared += 1;
                if by_summaries != by_rows {
                    let name = format!("{}/{}", table.name, view.name);
                    found(&name, Error::corruption("the partial aggregates of the view are not those of its rows"));
                }
            }
        }
        Ok(compared)
    }
}
