//! `mycelium column`: columns of a typed table, added, dropped and renamed.

use mycelium::{Column, Error, ErrorKind, Table};
use serde_json::json;

use super::{open_to_write, table};
use crate::args::ColumnCommand;
use crate::failure::Failure;
use crate::output::Output;

/// Does what the command says, and shows the columns that there are then.
pub(crate) fn run(command: &ColumnCommand, out: &mut Output) -> Result<(), Failure> {
    let (ColumnCommand::Add { at, .. } | ColumnCommand::Drop { at, .. } | ColumnCommand::Rename { at, .. }) = command;
    let database = open_to_write(&at.database, false)?;
    let before = table(&database, &at.table)?;
    let after = match command {
        ColumnCommand::Add { column, .. } => database.add_column(&before, column.parse::<Column>()?),
        ColumnCommand::Drop { column, .. } => database.drop_column(&before, column),
        ColumnCommand::Rename { from, to, .. } => database.rename_column(&before, from, to),
    };
    let after = after.map_err(|error| refused(error, &before))?;
    let schema = after.schema().map(|schema| schema.to_string()).unwrap_or_default();
    if out.is_json() {
        return out.object(&json!({ "table": after.name(), "schema": schema }));
    }
    out.line(format_args!("{}: {schema}", after.name()))
}

/// Of a column that is not there, with those that are.
fn refused(error: Error, table: &Table) -> Failure {
    let is_missing = error.kind() == ErrorKind::NotFound;
    let failure = Failure::from(error);
    match table.schema().filter(|_| is_missing) {
        Some(schema) => {
            let names: Vec<&str> = schema.live_columns().map(|(_, column)| column.name.as_str()).collect();
            failure.hint(format!("its columns: {}", names.join(", ")))
        }
        None => failure,
    }
}
