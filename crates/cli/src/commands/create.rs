//! `mycelium create`: a new table, and the database where there is none.

use mycelium::Schema;
use serde_json::json;

use super::{open_to_write, table_options};
use crate::args::CreateArgs;
use crate::failure::Failure;
use crate::output::Output;

/// Creates the table.
pub(crate) fn run(args: &CreateArgs, out: &mut Output) -> Result<(), Failure> {
    // Before a database is made for it.
    let schema = args.schema.as_deref().map(Schema::parse).transpose()?;
    let shown = schema.as_ref().map(ToString::to_string);
    let options = table_options(&args.options, schema.as_ref())?;
    let database = open_to_write(&args.at.database, true)?;
    match schema {
        Some(schema) => database.create_typed_table(&args.at.table, schema, options)?,
        None => database.create_table(&args.at.table, options)?,
    };
    database.close()?;
    if out.is_json() {
        out.object(&json!({ "table": args.at.table, "schema": shown }))
    } else {
        out.line(format_args!("created table {}", args.at.table))
    }
}
