//! `mycelium drop`: a table goes with all its rows, indexes and views. Only with `--yes`, for nothing brings it back.

use mycelium::Database;
use serde_json::json;

use super::{Held, held, open_to_read, open_to_write, table};
use crate::args::DropArgs;
use crate::failure::Failure;
use crate::output::Output;

/// Drops the table and prints what it held; without `--yes` it fails and says what it would remove.
pub(crate) fn run(args: &DropArgs, out: &mut Output) -> Result<(), Failure> {
    let name = &args.at.table;
    if !args.yes {
        let found = contents(&open_to_read(&args.at.database)?, name)?;
        return Err(Failure::usage(format!("table {name} would be gone for good: {}", found.text()))
            .hint("--yes drops it; `mycelium checkpoint` makes a copy before"));
    }
    let database = open_to_write(&args.at.database, false)?;
    let found = contents(&database, name)?;
    database.drop_table(name)?;
    database.close()?;
    if !out.is_json() {
        return out.line(format_args!("dropped table {name}: {}", found.text()));
    }
    let Contents { held, indexes, views } = found;
    out.object(&json!({
        "table": name, "files": held.files, "bytes": held.bytes, "entries_in_log": held.in_log,
        "indexes": indexes, "views": views,
    }))
}

/// What goes with a table.
struct Contents {
    held: Held,
    indexes: usize,
    views: usize,
}

fn contents(database: &Database, name: &str) -> Result<Contents, Failure> {
    let table = table(database, name)?;
    Ok(Contents { held: held(database, name), indexes: table.indexes().len(), views: table.views().len() })
}

impl Contents {
    fn text(&self) -> String {
        format!("{}, {} indexes, {} views", self.held, self.indexes, self.views)
    }
}
