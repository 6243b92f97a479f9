//! `mycelium get`: one row.

use mycelium::rows::RecordBatchBuilder;
use mycelium::{ReadCounters, ReadOptions};
use serde_json::json;

use super::{key, open_to_read, print_counters, projection, table};
use crate::args::GetArgs;
use crate::failure::Failure;
use crate::output::{Output, escape_bytes};

/// Prints the row, or fails if there is none.
pub(crate) fn run(args: &GetArgs, out: &mut Output) -> Result<(), Failure> {
    let database = open_to_read(&args.at.database)?;
    let table = table(&database, &args.at.table)?;
    let schema = table.schema().map(|schema| &**schema);
    if schema.is_none() && !args.columns.is_empty() {
        return Err(Failure::usage("--columns is for typed tables; rows of this one are bytes"));
    }
    let columns = schema.map(|schema| projection(schema, &args.columns)).transpose()?;
    let key = key(schema, &args.key)?;
    let mut counters = ReadCounters::default();
    let found = table.get_with(&key, &ReadOptions::default(), &mut counters)?;
    match (&found, columns) {
        (None, _) => {}
        (Some(value), Some(columns)) => {
            let mut builder = RecordBatchBuilder::new(table.packed_layout()?.clone(), &columns, 1)?;
            builder.append(&key, value)?;
            out.record(&builder.finish()?)?;
        }
        (Some(value), None) if out.is_json() => {
            out.object(&json!({ "key": escape_bytes(&key), "value": escape_bytes(value) }))?;
        }
        (Some(value), None) => out.line(escape_bytes(value))?,
    }
    if args.counters {
        print_counters(&counters, out)?;
    }
    if found.is_some() { Ok(()) } else { Err(Failure::negative("there is no row with this key")) }
}
