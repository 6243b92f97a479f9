//! `mycelium delete`: one row, or all rows of a key range.

use mycelium::{ReadOptions, Table, WriteBatch};
use serde_json::json;

use super::{durability, interval, key, open_to_write, table};
use crate::args::DeleteArgs;
use crate::failure::Failure;
use crate::output::Output;

/// Deletes and prints the sequence number; deleting what is not there is no failure.
pub(crate) fn run(args: &DeleteArgs, out: &mut Output) -> Result<(), Failure> {
    let database = open_to_write(&args.at.database, false)?;
    let table = table(&database, &args.at.table)?;
    let schema = table.schema().cloned();
    let mut batch = WriteBatch::new();
    if args.key.is_empty() {
        if args.range.prefix.as_deref() == Some("") {
            return Err(Failure::usage("all keys begin with an empty --prefix").hint("--from '' deletes all rows"));
        }
        let interval = interval(schema.as_deref(), &args.range)?;
        let end = match interval.to {
            Some(end) => Some(end),
            None => after_last(&table)?,
        };
        if let Some(end) = end {
            batch.delete_range(&table, &interval.from.unwrap_or_default(), &end);
        }
    } else {
        batch.delete(&table, &key(schema.as_deref(), &args.key)?);
    }
    let sequence = database.write(&batch, durability(args.durability))?;
    database.close()?;
    if out.is_json() {
        out.object(&json!({ "sequence": sequence }))
    } else {
        out.line(format_args!("deleted as of sequence number {sequence}"))
    }
}

/// The smallest key after the table's last; `None` if it is empty. Range deletes need an end.
fn after_last(table: &Table) -> Result<Option<Vec<u8>>, Failure> {
    let mut rows = table.iter(&ReadOptions::default())?;
    rows.seek_to_last()?;
    Ok(rows.valid().then(|| [rows.key(), &[0]].concat()))
}
