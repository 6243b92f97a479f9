//! `mycelium load`: CSV, JSON lines or Arrow IPC into a typed table, with progress.
//!
//! 1. Open the input, so that a wrong name makes no database.
//! 2. The table gives the schema if it exists; else `--schema` does, or the first rows do and `--key` names the key.
//! 3. Batch by batch, each atomically; with `--sorted` as one bulk ingestion past the log.
//! 4. Flush, so that what was loaded lies in files. A load that fails before its first row leaves no table that it
//!    made.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::RecordBatch;
use indicatif::{ProgressBar, ProgressStyle};
use mycelium::rows::{BatchRows, ColumnState, PackedLayout, RecordBatchBuilder};
use mycelium::{Database, Durability, Error, ErrorKind, Schema, Table, WriteBatch};
use serde_json::json;

use super::{durability, is_database, open_to_write, table_options};
use crate::args::LoadArgs;
use crate::failure::Failure;
use crate::input::{self, Rows, Target};
use crate::output::Output;
use crate::render::units;

/// Loads and prints how much.
pub(crate) fn run(args: &LoadArgs, out: &mut Output) -> Result<(), Failure> {
    let (raw, size) = input::open(&args.file)?;
    let progress = progress_bar(size);
    let given = args.schema.as_deref().map(Schema::parse).transpose()?;
    let mut database = existing(&args.database)?;
    let found = database.as_ref().and_then(|database| database.table(&args.table).ok());
    let target = target(args, given.as_ref(), found.as_ref())?;
    let rows = input::rows(raw, &args.file, &args.input, &target, &progress)?;
    let started = Instant::now();
    let database = match database.take() {
        Some(database) => database,
        None => open_to_write(&args.database, true)?,
    };
    let is_new = found.is_none();
    let table = match (found, given) {
        (Some(table), _) => table,
        (None, Some(schema)) => {
            database.create_typed_table(&args.table, schema.clone(), table_options(&args.options, Some(&schema))?)?
        }
        (None, None) => {
            let key: Vec<&str> = args.key.iter().map(String::as_str).collect();
            let schema = Schema::from_arrow(&rows.schema, &key)?;
            let options = table_options(&args.options, Some(&schema))?;
            database.create_typed_table(&args.table, schema, options)?
        }
    };
    let mut loaded = 0;
    let result = if args.sorted {
        ingest(&table, rows).map(|rows| loaded = rows)
    } else {
        write(&database, &table, rows, durability(args.durability), &mut loaded)
    };
    if let Err(failure) = result {
        progress.finish_and_clear();
        return Err(after_failure(failure, database, args, is_new, loaded));
    }
    database.flush()?;
    database.close()?;
    progress.finish_and_clear();
    report(args, loaded, started.elapsed().as_secs_f64(), out)
}

fn existing(directory: &Path) -> Result<Option<Database>, Failure> {
    if is_database(directory)? { open_to_write(directory, false).map(Some) } else { Ok(None) }
}

/// The schema that rows are read with.
fn target<'a>(args: &'a LoadArgs, given: Option<&Schema>, found: Option<&Table>) -> Result<Target<'a>, Failure> {
    let Some(table) = found else {
        return Ok(match given {
            Some(schema) => rows_of(schema)?,
            None => Target::Inferred { key: &args.key },
        });
    };
    let Some(schema) = table.schema() else {
        return Err(Failure::usage(format!("rows of table {} are bytes; load is for typed tables", args.table)));
    };
    // What a column that was dropped leaves in a schema has no text.
    if given.is_some_and(|given| given.to_string() != schema.to_string()) {
        return Err(Failure::usage(format!("table {} exists with another schema", args.table)).hint(schema.to_string()));
    }
    let key = schema.primary_key().iter().map(|&column| schema.columns()[column].name.as_str());
    if !args.key.is_empty() && !key.eq(args.key.iter().map(String::as_str)) {
        return Err(Failure::usage(format!("table {} exists with another key", args.table)).hint(schema.to_string()));
    }
    rows_of(schema)
}

/// Rows of a table with this schema.
fn rows_of(schema: &Schema) -> Result<Target<'static>, Failure> {
    Ok(Target::Given { columns: Arc::new(schema.to_arrow()), defaults: defaults_of(schema)? })
}

/// The columns that have a default, with it, as one row.
fn defaults_of(schema: &Schema) -> Result<RecordBatch, Error> {
    let layout = Arc::new(PackedLayout::new(Arc::new(schema.clone())));
    let defaults = schema.columns().iter().map(|column| match &column.default {
        Some(default) => ColumnState::Value(default.borrowed()),
        None => ColumnState::Absent,
    });
    let mut packed = Vec::new();
    layout.encode_patch(&defaults.collect::<Vec<_>>(), &mut packed)?;
    let with_default = schema.live_columns().filter(|(_, column)| column.default.is_some());
    let projection: Vec<usize> = with_default.map(|(at, _)| at).collect();
    let mut row = RecordBatchBuilder::new(layout, &projection, 1)?;
    row.append(&[], &packed)?;
    row.finish()
}

/// A table that this load made and wrote nothing to goes again; else the failure says how many rows were written.
fn after_failure(failure: Failure, database: Database, args: &LoadArgs, is_new: bool, loaded: u64) -> Failure {
    // What cannot be dropped or closed now failed for the reason that is reported.
    if loaded == 0 && is_new {
        drop(database.drop_table(&args.table));
    }
    drop(database.close());
    match loaded {
        0 => failure,
        _ => failure.and(format_args!("{} rows before it are in table {}", units::count(loaded), args.table)),
    }
}

/// Batch by batch; `loaded` counts the rows of those that were written, also when a later one fails.
fn write(
    database: &Database,
    table: &Table,
    rows: Rows,
    durability: Durability,
    loaded: &mut u64,
) -> Result<(), Failure> {
    let layout = table.packed_layout()?.clone();
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let mut batch = WriteBatch::new();
    for found in rows.batches {
        let found = found?;
        let encoder = BatchRows::new(&layout, &found)?;
        batch.clear();
        for row in 0..encoder.len() {
            key.clear();
            value.clear();
            encoder.encode_row(row, &mut key, &mut value)?;
            batch.put_packed(table, &layout, &key, &value)?;
        }
        database.write(&batch, durability)?;
        *loaded += encoder.len() as u64;
    }
    Ok(())
}

fn ingest(table: &Table, rows: Rows) -> Result<u64, Failure> {
    // The engine passes its own errors through; what went wrong with the input is kept beside them.
    let mut wrong_input = None;
    let batches = rows.batches.map(|batch| {
        batch.map_err(|failure| {
            let error = Error::invalid(failure.to_string());
            wrong_input = Some(failure);
            error
        })
    });
    let result = table.ingest_batches(batches);
    match (wrong_input, result) {
        (Some(failure), _) => Err(failure),
        (None, Ok(summary)) => Ok(summary.rows),
        (None, Err(error)) if error.kind() == ErrorKind::OutOfOrder => {
            Err(Failure::from(error).hint("--sorted needs rows in ascending key order, each key once"))
        }
        (None, Err(error)) => Err(error.into()),
    }
}

fn progress_bar(size: Option<u64>) -> ProgressBar {
    let (bar, template) = match size {
        Some(size) => (ProgressBar::new(size), "{bar:40} {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left"),
        None => (ProgressBar::no_length(), "{spinner} {bytes}  {bytes_per_sec}"),
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn report(args: &LoadArgs, rows: u64, seconds: f64, out: &mut Output) -> Result<(), Failure> {
    let rate = rows as f64 / seconds.max(1e-9);
    if out.is_json() {
        return out.object(&json!({
            "table": args.table, "rows": rows, "seconds": seconds, "rows_per_second": rate.round(),
        }));
    }
    let rate = units::count(rate as u64);
    out.line(format_args!("{} rows into {} in {seconds:.2} s: {rate} a second", units::count(rows), args.table))
}
