//! `mycelium sql`: statements from the command line, a file or standard input, or a shell.
//!
//! The database is opened read-only, beside a process that may be writing it. The shell catches up with that before
//! each statement, the others where they are told to follow; else all their statements read one state.

mod completion;
mod shell;
mod statements;

use std::io::{IsTerminal, Read};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use mycelium::{Database, ErrorKind};
use mycelium_sql::{ReadSummary, Session};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinHandle;

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
    let workers = started(Builder::new_multi_thread().thread_stack_size(STACK_BYTES))?;
    let mut runner = Runner {
        session: Arc::new(Session::open(&database)),
        workers: workers.handle().clone(),
        front: started(&mut Builder::new_current_thread())?,
        is_csv: args.csv,
        follows: args.follow.then(|| database.clone()),
        is_shell: false,
        unfinished: None,
        interrupt: interrupt(),
    };
    let result = run_statements(&mut runner, args, &database, out);
    // A statement that was interrupted may still be at work.
    workers.shutdown_background();
    result
}

/// As much as a main thread has.
const STACK_BYTES: usize = 8 << 20;

fn started(builder: &mut Builder) -> Result<Runtime, Failure> {
    let runtime = builder.enable_all().build();
    runtime.map_err(|error| Failure::new(FailureKind::Disk, format!("cannot start: {error}")))
}

fn run_statements(runner: &mut Runner, args: &SqlArgs, database: &Database, out: &mut Output) -> Result<(), Failure> {
    if !args.command.is_empty() {
        return args.command.iter().try_for_each(|text| runner.run_all(text, out));
    }
    if let Some(file) = args.file.as_deref().filter(|&file| file != Path::new("-")) {
        let text = std::fs::read_to_string(file);
        let text = text.map_err(|error| Failure::input(format!("cannot read {}: {error}", file.display())))?;
        return runner.run_all(&text, out);
    }
    if args.file.is_none() && std::io::stdin().is_terminal() {
        runner.is_shell = true;
        runner.follows = Some(database.clone());
        return shell::run(runner, database, out);
    }
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(|error| Failure::input(format!("cannot read standard input: {error}")))?;
    runner.run_all(&text, out)
}

/// Runs statements and prints their answers.
struct Runner {
    session: Arc<Session>,
    /// Where statements run. What runs there need not yield for long.
    workers: Handle,
    /// Where this thread waits for rows and for Ctrl-C.
    front: Runtime,
    is_csv: bool,
    /// The database, if it is to catch up before each statement.
    follows: Option<Database>,
    is_shell: bool,
    /// The statement that failed or was interrupted last.
    unfinished: Option<JoinHandle<Finished>>,
    /// The same for all statements: once it was waited for the program no longer ends at Ctrl-C by itself, not between
    /// statements either.
    interrupt: Interrupt,
}

/// Ctrl-C, from when it was first waited for.
type Interrupt = Pin<Box<dyn Future<Output = std::io::Result<()>>>>;

fn interrupt() -> Interrupt {
    Box::pin(tokio::signal::ctrl_c())
}

/// What is known when a statement has given all its rows.
type Finished = mycelium::Result<(SchemaRef, ReadSummary)>;

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

    /// One statement. In the shell Ctrl-C ends it, and not the program.
    fn run(&mut self, statement: &str, out: &mut Output) -> Result<Spent, Failure> {
        if let Some(database) = &self.follows {
            database.catch_up()?;
        }
        let (sender, rows) = mpsc::channel(1);
        let mut task = self.workers.spawn(answer(self.session.clone(), statement.to_owned(), sender));
        let mut interrupted = std::mem::replace(&mut self.interrupt, interrupt());
        let work = async {
            tokio::select! {
                biased;
                _ = &mut interrupted => Err(self.interruption()),
                done = self.print_answer(&mut task, rows, out) => done,
            }
        };
        let done = self.front.block_on(work);
        // In the shell one that came behind a statement is not meant for the next.
        if !self.is_shell {
            self.interrupt = interrupted;
        }
        if done.is_err() {
            task.abort();
            self.unfinished = Some(task);
        }
        done
    }

    fn interruption(&self) -> Failure {
        Failure::new(if self.is_shell { FailureKind::Negative } else { FailureKind::Interrupted }, "interrupted")
    }

    /// Whether a statement that was interrupted has not ended yet: it ends where it waits for something.
    fn is_at_work(&self) -> bool {
        self.unfinished.as_ref().is_some_and(|task| !task.is_finished())
    }

    async fn print_answer(
        &self,
        task: &mut JoinHandle<Finished>,
        mut batches: Receiver<RecordBatch>,
        out: &mut Output,
    ) -> Result<Spent, Failure> {
        let (start, mut rows) = (Instant::now(), 0);
        out.begin_rows();
        while let Some(batch) = batches.recv().await {
            if batch.num_rows() > 0 {
                self.print(&batch, rows == 0, out)?;
                rows += batch.num_rows();
            }
        }
        let (schema, read) = match task.await {
            Ok(finished) => finished.map_err(refusal)?,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => return Err(self.interruption()),
        };
        if rows == 0 && !schema.fields().is_empty() {
            self.print(&RecordBatch::new_empty(schema), true, out)?;
        }
        out.flush()?;
        Ok(Spent { rows, time: start.elapsed(), read })
    }

    fn print(&self, batch: &RecordBatch, is_first: bool, out: &mut Output) -> Result<(), Failure> {
        match plan_text(batch) {
            _ if self.is_csv => out.csv_rows(batch, is_first),
            Some(plans) if !out.is_json() => plans.into_iter().try_for_each(|plan| out.line(plan)),
            _ => out.rows(batch),
        }
    }
}

/// Runs a statement and sends its rows, as long as someone takes them.
async fn answer(session: Arc<Session>, statement: String, rows: Sender<RecordBatch>) -> Finished {
    let mut answer = session.query(&statement).await?;
    while let Some(batch) = answer.next().await {
        if rows.send(batch?).await.is_err() {
            break;
        }
    }
    Ok((answer.schema(), answer.read_summary()))
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
