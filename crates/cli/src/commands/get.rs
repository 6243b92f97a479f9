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
    let options = ReadOptions::default();
    let found = match columns {
        Some(columns) => {
            let row = table.get_packed(&key, Some(&columns), &options, &mut counters)?;
            let found = row.is_some();
            if let Some((layout, value)) = row {
                let mut builder = RecordBatchBuilder::new(layout, &columns, 1)?;
                builder.append(&key, &value)?;
                out.record(&builder.finish()?)?;
            }
            found
        }
        None => {
            let row = table.get_with(&key, &options, &mut counters)?;
            match &row {
                Some(value) if out.is_json() => {
                    out.object(&json!({ "key": escape_bytes(&key), "value": escape_bytes(value) }))?;
                }
                Some(value) => out.line(escape_bytes(value))?,
                None => {}
            }
            row.is_some()
        }
    };
    if args.counters {
        print_counters(&counters, out)?;
    }
    if found { Ok(()) } else { Err(Failure::negative("there is no row with this key")) }
}
