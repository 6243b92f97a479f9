//! `mycelium sql`: statements from the command line or from standard input, or a shell.

mod completion;
mod shell;
mod statements;

use std::io::{IsTerminal, Read};
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use mycelium::ErrorKind;
use mycelium_sql::{ReadSummary, Session};
use tokio::runtime::Runtime;

use super::open_to_read;
use crate::args::SqlArgs;
use crate::failure::{Failure, FailureKind};
use crate::output::Output;
use crate::render::units;

/// Runs the statements given, or those of standard input, or opens a shell where that is a terminal.
pub(crate) fn run(args: &SqlArgs, out: &mut Output) -> Result<(), Failure> {
    if args.csv && out.is_json() {
        return Err(Failure::usage("--csv and --json exclude each other"));
    }
    let database = open_to_read(&args.database)?;
    let runtime = Runtime::new().map_err(|error| Failure::new(FailureKind::Disk, format!("cannot start: {error}")))?;
    let session = Session::open(&database);
    let mut runner = Runner { session, runtime, is_csv: args.csv };
    if !args.command.is_empty() {
        return args.command.iter().try_for_each(|text| runner.run_all(text, out));
    }
    if std::io::stdin().is_terminal() {
        return shell::run(&mut runner, &database, out);
    }
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(|error| Failure::input(format!("cannot read standard input: {error}")))?;
    runner.run_all(&text, out)
}

/// Runs statements and prints their answers.
struct Runner {
    session: Session,
    runtime: Runtime,
    is_csv: bool,
}

/// What a statement took.
struct Spent {
    rows: usize,
    time: Duration,
    read: ReadSummary,
}

impl Runner {
    /// All statements of a text, up to the first that fails.
    fn run_all(&mut self, text: &str, out: &mut Output) -> Result<(), Failure> {
        statements::split(text).try_for_each(|statement| self.run(statement, out).map(drop))
    }

    /// One statement. Ctrl-C ends it, and not the program.
    fn run(&mut self, statement: &str, out: &mut Output) -> Result<Spent, Failure> {
        let work = async {
            tokio::select! {
                done = self.answer(statement, out) => done,
                _ = tokio::signal::ctrl_c() => Err(Failure::new(FailureKind::Negative, "interrupted")),
            }
        };
        self.runtime.block_on(work)
    }

    async fn answer(&self, statement: &str, out: &mut Output) -> Result<Spent, Failure> {
        let start = Instant::now();
        let mut answer = self.session.query(statement).await.map_err(refusal)?;
        let (schema, mut rows) = (answer.schema(), 0);
        out.begin_rows();
        while let Some(batch) = answer.next().await {
            let batch = batch.map_err(refusal)?;
            if batch.num_rows() > 0 {
                self.print(&batch, rows == 0, out)?;
                rows += batch.num_rows();
            }
        }
        if rows == 0 && !schema.fields().is_empty() {
            self.print(&RecordBatch::new_empty(schema), true, out)?;
        }
        out.flush()?;
        Ok(Spent { rows, time: start.elapsed(), read: answer.read_summary() })
    }

    fn print(&self, batch: &RecordBatch, is_first: bool, out: &mut Output) -> Result<(), Failure> {
        match plan_text(batch) {
            _ if self.is_csv => out.csv_rows(batch, is_first),
            Some(plans) if !out.is_json() => plans.into_iter().try_for_each(|plan| out.line(plan)),
            _ => out.rows(batch),
        }
    }
}

/// The plans that `EXPLAIN` answers with, which have lines of their own.
fn plan_text(batch: &RecordBatch) -> Option<Vec<String>> {
    let schema = batch.schema();
    let names: Vec<_> = schema.fields().iter().map(|field| (field.name().as_str(), field.data_type())).collect();
    if names != [("plan_type", &DataType::Utf8), ("plan", &DataType::Utf8)] {
        return None;
    }
    let (kinds, plans) = (batch.column(0).as_string::<i32>(), batch.column(1).as_string::<i32>());
    Some((0..kinds.len()).map(|row| format!("{}:\n{}", kinds.value(row), plans.value(row).trim_end())).collect())
}

/// A statement that is refused is wrong usage.
fn refusal(error: mycelium::Error) -> Failure {
    match error.kind() {
        ErrorKind::ReadOnly => Failure::usage(error.to_string()),
        _ => error.into(),
    }
}

impl Spent {
    /// A line for people.
    fn line(&self) -> String {
        let read = &self.read;
        let mut parts = vec![
            format!("{} {}", units::count(self.rows as u64), if self.rows == 1 { "row" } else { "rows" }),
            format!("{:.1} ms", self.time.as_secs_f64() * 1e3),
        ];
        let scanned = read.rows > 0 || read.blocks_read + read.blocks_cached > 0;
        if scanned || read.files_skipped > 0 {
            parts.push(format!("{} rows scanned", units::count(read.rows)));
            parts.push(format!("{} blocks read ({})", units::count(read.blocks_read), units::bytes(read.bytes_read)));
            parts.push(format!("{} cached", units::count(read.blocks_cached)));
            parts.push(format!("{} skipped", units::count(read.blocks_skipped)));
            parts.push(format!("{} files skipped", units::count(read.files_skipped)));
        }
        parts.join(", ")
    }
}
