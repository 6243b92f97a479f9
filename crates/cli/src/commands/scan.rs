//! `mycelium scan`: rows in key order.

use mycelium::rows::RecordBatchBuilder;
use mycelium::{ReadOptions, Table, TableIterator};
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
    let database = open_to_read(&args.at.database)?;
    let table = table(&database, &args.at.table)?;
    let interval = interval(table.schema().map(|schema| &**schema), &args.range)?;
    let read_ahead = if args.limit.is_some() { 0 } else { READ_AHEAD };
    let options = ReadOptions {
        lower: interval.from,
        upper: interval.to,
        fill_cache: false,
        read_ahead,
        ..ReadOptions::default()
    };
    let mut rows = Rows { rows: table.iter(&options)?, reverse: args.reverse, left: args.limit.unwrap_or(u64::MAX) };
    rows.start()?;
    if args.count {
        count(&mut rows, out)?;
    } else if table.schema().is_some() {
        typed(&table, &mut rows, args, out)?;
    } else {
        if !args.columns.is_empty() {
            return Err(Failure::usage("--columns is for typed tables; rows of this one are bytes"));
        }
        bytes(&mut rows, out)?;
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

fn typed(table: &Table, rows: &mut Rows, args: &ScanArgs, out: &mut Output) -> Result<(), Failure> {
    let layout = table.packed_layout()?.clone();
    let columns = projection(layout.schema(), &args.columns)?;
    let mut builder = RecordBatchBuilder::new(layout, &columns, BATCH_ROWS)?;
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
