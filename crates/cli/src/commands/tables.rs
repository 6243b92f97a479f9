//! `mycelium tables`: the tables of a database.

use serde_json::json;

use super::open_to_read;
use crate::args::DatabaseArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::render::units;

/// Lists the tables, in order of creation.
pub(crate) fn run(args: &DatabaseArgs, out: &mut Output) -> Result<(), Failure> {
    let database = open_to_read(&args.database)?;
    let metrics = database.metrics();
    for name in database.table_names() {
        let table = database.table(&name)?;
        let found = metrics.tables.iter().find(|metrics| metrics.name == name);
        let files: usize = found.iter().flat_map(|found| &found.levels).map(|level| level.files).sum();
        let bytes: u64 = found.iter().flat_map(|found| &found.levels).map(|level| level.bytes).sum();
        let in_log = found.map_or(0, |found| found.memtable_entries);
        let schema = table.schema().map(ToString::to_string);
        if out.is_json() {
            out.object(&json!({
                "table": name, "schema": schema, "files": files, "bytes": bytes, "entries_in_log": in_log,
            }))?;
        } else {
            let kind = schema.unwrap_or_else(|| "keys and values are bytes".to_owned());
            let held = format!("{} files, {}, {} entries in the log", files, units::bytes(bytes), units::count(in_log));
            out.line(format_args!("{name}  {held}\n    {kind}"))?;
        }
    }
    Ok(())
}
