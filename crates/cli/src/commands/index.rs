//! `mycelium index`: secondary indexes, created, dropped and listed; and rows printed through one.

use std::ops::Bound;
use std::sync::Arc;

use mycelium::rows::{ColumnState, PackedLayout, RecordBatchBuilder};
use mycelium::{Datum, Index, IndexOptions, IndexRow, IndexRows, Schema, Table};
use serde_json::json;

use super::{borrowed, open_to_read, open_to_write, projection, separated, table, value};
use crate::args::{IndexCommand, IndexCreateArgs, ScanArgs, TableArgs};
use crate::failure::Failure;
use crate::output::Output;

/// Rows of a record batch; the widths of the text form are those of the first.
const BATCH_ROWS: usize = 1024;

/// Does what the command says.
pub(crate) fn run(command: &IndexCommand, out: &mut Output) -> Result<(), Failure> {
    match command {
        IndexCommand::Create(args) => create(args, out),
        IndexCommand::Drop { at, name } => {
            let database = open_to_write(&at.database, false)?;
            database.drop_index(&table(&database, &at.table)?, name)?;
            done(out, &format!("dropped index {name} of table {}", at.table), name)
        }
        IndexCommand::List(at) => list(at, out),
    }
}

fn done(out: &mut Output, text: &str, name: &str) -> Result<(), Failure> {
    if out.is_json() { out.object(&json!({ "index": name })) } else { out.line(text) }
}

/// Creates an index and waits until it is built: the command's process would else take the unfinished work with it.
fn create(args: &IndexCreateArgs, out: &mut Output) -> Result<(), Failure> {
    let database = open_to_write(&args.at.database, false)?;
    let table = table(&database, &args.at.table)?;
    let options = IndexOptions {
        name: args.name.clone(),
        on: args.on.clone(),
        cover: args.cover.clone(),
        unique: args.unique,
        ..IndexOptions::default()
    };
    let index = database.create_index(&table, &options)?;
    // An index that cannot be built is dropped by then.
    database.wait_idle()?;
    if let Some(failure) = index.failure() {
        return Err(Failure::negative(format!("the index {} was not made: {failure}", args.name)));
    }
    done(out, &format!("created index {} of table {}", args.name, args.at.table), &args.name)
}

fn list(at: &TableArgs, out: &mut Output) -> Result<(), Failure> {
    let database = open_to_read(&at.database)?;
    let table = table(&database, &at.table)?;
    for index in table.indexes() {
        let schema = schema(&table)?;
        let name = |column: usize| schema.columns()[column].name.as_str();
        let on: Vec<&str> = index.on().iter().copied().map(name).collect();
        let cover: Vec<&str> = index.cover().iter().map(name).collect();
        if out.is_json() {
            out.object(&json!({
                "index": index.name(), "on": on, "cover": cover, "unique": index.is_unique(),
                "built": index.is_built(), "fraction_built": index.fraction_built(),
            }))?;
            continue;
        }
        let kind = if index.is_unique() { "unique on" } else { "on" };
        let covered = if cover.is_empty() { String::new() } else { format!(" cover {}", cover.join(", ")) };
        let state =
            if index.is_built() { String::new() } else { format!("  ({:.0} % built)", index.fraction_built() * 100.0) };
        out.line(format_args!("{}  {kind} {}{covered}{state}", index.name(), on.join(", ")))?;
    }
    Ok(())
}

fn schema(table: &Table) -> Result<&Arc<Schema>, Failure> {
    table.schema().ok_or_else(|| Failure::usage(format!("table {} holds bytes and has no indexes", table.name())))
}

/// Values of the first indexed columns, separated as in CSV.
fn values(schema: &Schema, index: &Index, text: &str) -> Result<Vec<Datum>, Failure> {
    let texts = separated(text)?;
    if texts.len() > index.on().len() {
        let names: Vec<_> = index.on().iter().map(|&column| schema.columns()[column].name.as_str()).collect();
        return Err(Failure::usage(format!(
            "the index has {} columns, and {} values were given",
            names.len(),
            texts.len()
        ))
        .hint(format!("the index is on ({})", names.join(", "))));
    }
    texts.iter().zip(index.on()).map(|(text, &column)| value(schema, column, text)).collect()
}

/// `mycelium scan --index`: rows in the order of an index.
pub(crate) fn scan(name: &str, args: &ScanArgs, out: &mut Output) -> Result<(), Failure> {
    let database = open_to_read(&args.at.database)?;
    let table = table(&database, &args.at.table)?;
    let schema = schema(&table)?;
    let index = table.index(name).map_err(|error| {
        let names: Vec<String> = table.indexes().iter().map(|index| index.name().to_owned()).collect();
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Failure::from(error).hint(format!("indexes: {known}"))
    })?;
    let columns = if args.count { Vec::new() } else { projection(schema, &args.columns)? };
    let read = |text: &Option<String>| text.as_deref().map(|text| values(schema, &index, text)).transpose();
    let (prefix, from, to) = (read(&args.range.prefix)?, read(&args.range.from)?, read(&args.range.to)?);
    let rows = match &prefix {
        Some(prefix) => index.get(&borrowed(prefix), Some(&columns), None)?,
        None => {
            let (from, to) = (from.as_deref().map(borrowed), to.as_deref().map(borrowed));
            let lower = from.as_deref().map_or(Bound::Unbounded, Bound::Included);
            let upper = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            index.range((lower, upper), Some(&columns), None)?
        }
    };
    print(rows, schema, &columns, args, out)
}

fn print(
    mut rows: IndexRows,
    schema: &Arc<Schema>,
    columns: &[usize],
    args: &ScanArgs,
    out: &mut Output,
) -> Result<(), Failure> {
    let limit = usize::try_from(args.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    let held = columns.iter().copied().filter(|&column| !schema.is_primary_key(column)).collect();
    let layout = Arc::new(PackedLayout::of(schema.clone(), &held));
    let mut builder = RecordBatchBuilder::new(layout.clone(), columns, BATCH_ROWS)?;
    let mut count = 0_u64;
    for row in rows.by_ref().take(limit) {
        let row = row?;
        count += 1;
        if args.count {
            continue;
        }
        builder.append(&row.key, &packed(&layout, columns, &row)?)?;
        if builder.is_full() {
            out.rows(&builder.finish()?)?;
        }
    }
    if !builder.is_empty() {
        out.rows(&builder.finish()?)?;
    }
    if args.count {
        if out.is_json() { out.object(&json!({ "rows": count })) } else { out.line(count) }?;
    }
    if args.counters { super::print_counters(&rows.counters(), out) } else { Ok(()) }
}

/// The columns of a row that are not in its key, packed.
fn packed(layout: &PackedLayout, columns: &[usize], row: &IndexRow) -> Result<Vec<u8>, Failure> {
    let state = |column: usize| match columns.iter().position(|&wanted| wanted == column) {
        Some(at) => ColumnState::from(row.values[at].borrowed()),
        None => ColumnState::Absent,
    };
    let mut out = Vec::new();
    layout.encode_with(state, &mut out)?;
    Ok(out)
}
