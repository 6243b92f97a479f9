//! `mycelium view`: materialised views, created, dropped, listed and read.

use mycelium::{ReadOptions, View, ViewCounters, ViewOptions};
use serde_json::json;

use super::{interval, open_to_read, open_to_write, table};
use crate::args::{TableArgs, ViewCommand, ViewCreateArgs, ViewReadArgs};
use crate::failure::Failure;
use crate::output::Output;

/// Does what the command says.
pub(crate) fn run(command: &ViewCommand, out: &mut Output) -> Result<(), Failure> {
    match command {
        ViewCommand::Create(args) => create(args, out),
        ViewCommand::Drop { at, name } => {
            let database = open_to_write(&at.database, false)?;
            database.drop_view(&table(&database, &at.table)?, name)?;
            done(out, &format!("dropped view {name} of table {}", at.table), name)
        }
        ViewCommand::List(at) => list(at, out),
        ViewCommand::Read(args) => read(args, out),
    }
}

fn done(out: &mut Output, text: &str, name: &str) -> Result<(), Failure> {
    if out.is_json() { out.object(&json!({ "view": name })) } else { out.line(text) }
}

fn create(args: &ViewCreateArgs, out: &mut Output) -> Result<(), Failure> {
    let database = open_to_write(&args.at.database, false)?;
    let table = table(&database, &args.at.table)?;
    let options = ViewOptions { name: args.name.clone(), group_by: args.by.clone(), aggregates: args.compute.clone() };
    database.create_view(&table, &options)?;
    if args.compact {
        database.compact(&table)?;
    }
    done(out, &format!("created view {} of table {}", args.name, args.at.table), &args.name)
}

fn list(at: &TableArgs, out: &mut Output) -> Result<(), Failure> {
    let database = open_to_read(&at.database)?;
    for view in table(&database, &at.table)?.views() {
        let aggregation = view.aggregation();
        if !out.is_json() {
            out.line(format_args!("{}  {aggregation}", view.name()))?;
            continue;
        }
        let schema = aggregation.schema();
        let by: Vec<&str> = aggregation.group_by().iter().map(|&column| &*schema.columns()[column].name).collect();
        let compute: Vec<String> = aggregation.aggregates().iter().map(|aggregate| aggregate.to_text(schema)).collect();
        out.object(&json!({ "view": view.name(), "by": by, "compute": compute }))?;
    }
    Ok(())
}

fn read(args: &ViewReadArgs, out: &mut Output) -> Result<(), Failure> {
    let database = open_to_read(&args.at.database)?;
    let table = table(&database, &args.at.table)?;
    let view: View = table.view(&args.name).map_err(|error| {
        let names: Vec<String> = table.views().iter().map(|view| view.name().to_owned()).collect();
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Failure::from(error).hint(format!("views: {known}"))
    })?;
    let interval = interval(table.schema().map(|schema| &**schema), &args.range)?;
    let options = ReadOptions { lower: interval.from, upper: interval.to, ..ReadOptions::default() };
    let found = view.read(&options)?;
    let batch = view.aggregation().to_batch(&found.rows)?;
    if batch.num_rows() > 0 {
        out.rows(&batch)?;
    }
    if args.counters { print_counters(&found.counters, out) } else { Ok(()) }
}

fn print_counters(counters: &ViewCounters, out: &mut Output) -> Result<(), Failure> {
    let ViewCounters { files, pages, blocks, rows, reads } = counters;
    if out.is_json() {
        let reads = super::counters(reads);
        let all = json!({ "files": files, "pages": pages, "blocks": blocks, "rows": rows, "reads": reads });
        return out.object(&json!({ "counters": all }));
    }
    out.line(format_args!(
        "partial aggregates of {files} files, {pages} pages and {blocks} blocks; {rows} rows; {} blocks read",
        reads.blocks_read
    ))
}
