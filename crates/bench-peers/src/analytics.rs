//! DuckDB under analytical queries in SQL (`tpch`): the process of `duckdb.rs`.
//!
//! 1. It loads the table from the Parquet file in the order of its rows, that of their key, into a file of its own, and
//!    makes a checkpoint: its best case. It has as many threads as there are cores.
//! 2. A query's seconds are measured in its process, until all rows are Python's; the pipe is not in them.

use std::path::Path;

use mycelium_bench::Result;
use mycelium_bench::experiments::analytics::{AnalyticsRival, AnalyticsRivalFactory, RivalAnswer};
use serde::Deserialize;
use serde_json::json;

use crate::duckdb::DuckDb;

/// All of them.
pub(crate) const RIVALS: [AnalyticsRivalFactory<'static>; 1] = [AnalyticsRivalFactory { name: "DuckDB", load: &load }];

struct DuckTable(Option<DuckDb>);

/// As `duckdb.py` answers when all rows are asked for.
#[derive(Deserialize)]
struct Rows {
    seconds: f64,
    rows: Vec<Vec<String>>,
}

fn load(directory: &Path, table: &str, file: &Path) -> Result<Box<dyn AnalyticsRival>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut database = DuckDb::open(directory, threads)?;
    for statement in
        [format!("CREATE TABLE {table} AS SELECT * FROM read_parquet('{}')", file.display()), "CHECKPOINT".to_owned()]
    {
        database.ask(&json!({ "sql": statement, "parameters": [] }))?;
    }
    Ok(Box::new(DuckTable(Some(database))))
}

impl AnalyticsRival for DuckTable {
    fn ask(&mut self, text: &str) -> Result<RivalAnswer> {
        let database = self.0.as_mut().ok_or("it has ended")?;
        let answer = database.ask(&json!({ "sql": text, "parameters": [], "all": true }))?;
        let Rows { seconds, rows } = serde_json::from_value(answer)?;
        Ok(RivalAnswer { seconds, rows })
    }
}

impl Drop for DuckTable {
    /// It ends with its input; what it kept goes with the experiment's directory.
    fn drop(&mut self) {
        if let Some(database) = self.0.take() {
            drop(database.close());
        }
    }
}
