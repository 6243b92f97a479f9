//! `mycelium scan`: rows in key order.

use std::sync::Arc;

use mycelium::rows::{PackedLayout, RecordBatchBuilder};
use mycelium::{ReadOptions, TableIterator};
use serde_json::json;

use super::{interval, open_to_read, print_counters, projection, table};
use crate::args::ScanArgs;
use crate::failure::Failure;
use crate::output::{Output, escape_bytes};

/// Rows of a record batch; the widths of the text form are those of the first.
const BATCH_ROWS: usize = 1024;
const READ_AHEAD: usize = 1 << 20;

/// Prints the rows, or their number.
pub(crate) fn run(args: &ScanArgs, out: &mut Output) -> Result<(), Failure> {
    if let Some(index) = &args.index {
        return super::index::scan(index, args, out);
    }
    let database = open_to_read(&args.at.database)?;
    let table = table(&database, &args.at.table)?;
    let interval = interval(table.schema().map(|schema| &**schema), &args.range)?;
    let read_ahead = if args.limit.is_some() { 0 } else { READ_AHEAD };
    let options = ReadOptions {
        lower: interval.from,
        upper: interval.to,
        fill_cache: false,
        read_ahead,
        expected_rows: args.limit,
        ..ReadOptions::default()
    };
    if table.schema().is_none() && !args.columns.is_empty() {
        return Err(Failure::usage("--columns is for typed tables; rows of this one are bytes"));
    }
    // Counting rows needs no column but the key's.
    let columns = match table.schema() {
        Some(_) if args.count => Some(Vec::new()),
        Some(schema) => Some(projection(schema, &args.columns)?),
        None => None,
    };
    let (found, layout) = match &columns {
        Some(columns) => table.iter_packed(Some(columns), &options).map(|(rows, layout)| (rows, Some(layout)))?,
        None => (table.iter(&options)?, None),
    };
    let mut rows = Rows { rows: found, reverse: args.reverse, left: args.limit.unwrap_or(u64::MAX) };
    rows.start()?;
    match (columns, layout) {
        _ if args.count => count(&mut rows, out)?,
        (Some(columns), Some(layout)) => typed(layout, &mut rows, &columns, out)?,
        _ => bytes(&mut rows, out)?,
    }
    if args.counters { print_counters(&rows.rows.counters(), out) } else { Ok(()) }
}

/// The rows still to come, in the direction asked for.
struct Rows {
    rows: TableIterator,
    reverse: bool,
    left: u64,
}

impl Rows {
    fn start(&mut self) -> mycelium::Result<()> {
        if self.reverse { self.rows.seek_to_last() } else { self.rows.seek_to_first() }
    }

    fn valid(&self) -> bool {
        self.left > 0 && self.rows.valid()
    }

    fn advance(&mut self) -> mycelium::Result<()> {
        self.left -= 1;
        match (self.left, self.reverse) {
            (0, _) => Ok(()),
            (_, true) => self.rows.prev(),
            (_, false) => self.rows.next(),
        }
    }
}

fn count(rows: &mut Rows, out: &mut Output) -> Result<(), Failure> {
    let mut count = 0_u64;
    while rows.valid() {
        count += 1;
        rows.advance()?;
    }
    if out.is_json() { out.object(&json!({ "rows": count })) } else { out.line(count) }
}

fn typed(layout: Arc<PackedLayout>, rows: &mut Rows, columns: &[usize], out: &mut Output) -> Result<(), Failure> {
    let mut builder = RecordBatchBuilder::new(layout, columns, BATCH_ROWS)?;
    while rows.valid() {
        while rows.valid() && !builder.is_full() {
            builder.append(rows.rows.key(), rows.rows.value())?;
            rows.advance()?;
        }
        out.rows(&builder.finish()?)?;
    }
    Ok(())
}

fn bytes(rows: &mut Rows, out: &mut Output) -> Result<(), Failure> {
    while rows.valid() {
        let (key, value) = (escape_bytes(rows.rows.key()), escape_bytes(rows.rows.value()));
        if out.is_json() {
            out.object(&json!({ "key": key, "value": value }))?;
        } else {
            out.line(format_args!("{key}  {value}"))?;
        }
        rows.advance()?;
    }
    Ok(())
}
