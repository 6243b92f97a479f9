//! `mycelium tables`: the tables of a database.

use serde_json::json;

use super::{expire, held, open_to_read};
use crate::args::DatabaseArgs;
use crate::failure::Failure;
use crate::output::Output;

/// Lists the tables, in order of creation.
pub(crate) fn run(args: &DatabaseArgs, out: &mut Output) -> Result<(), Failure> {
    let database = open_to_read(&args.database)?;
    for name in database.table_names() {
        let table = database.table(&name)?;
        let held = held(&database, &name);
        let schema = table.schema().map(ToString::to_string);
        if out.is_json() {
            out.object(&json!({
                "table": name, "schema": schema,
                "files": held.files, "bytes": held.bytes, "entries_in_log": held.in_log,
                "expiry": expire::as_json(table.expiry().as_ref()),
            }))?;
        } else {
            let kind = schema.unwrap_or_else(|| "keys and values are bytes".to_owned());
            out.line(format_args!("{name}  {held}\n    {kind}"))?;
            if let Some(expiry) = table.expiry() {
                out.line(format_args!("    {}", expire::described(Some(&expiry))))?;
            }
        }
    }
    Ok(())
}
