//! DuckDB under LASER's workload HW, and in both halves of the workload of `htap`: the Python package, in a process
//! that reads a line of JSON and answers with one (`duckdb.py`): its C++ sources would take longer to compile than
//! everything else here.
//!
//! 1. The rows are loaded in the order of their keys, which is its best case: what bounds a key then bounds a place.
//! 2. Writes are gathered in transactions that end before the next scan, since each commit costs it several writes; or
//!    each statement commits itself, in one way there and back.
//! 3. It has one thread, as ours has, or as many as are asked for, and reads from files that the page cache holds.
//!
//! The way there and back is in its latencies: some tens of microseconds, of a point read's thousand.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use mycelium_bench::Result;
use mycelium_bench::experiments::laser::{Aggregate, HybridTable, Rows};
use mycelium_engine::ReadCounters;
use serde_json::{Value, json};

use crate::sql::{self, sql_key};

/// Names a Python that has the package; `cargo xtask peers` makes one.
const PYTHON_VARIABLE: &str = "MYCELIUM_PEERS_PYTHON";
const PROGRAM: &str = include_str!("duckdb.py");

/// The process.
pub(crate) struct DuckDb {
    process: Child,
    requests: BufWriter<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

struct DuckTable {
    database: DuckDb,
    directory: PathBuf,
    rows: Rows,
    /// Whether writes are gathered in transactions, or commit themselves.
    gathers: bool,
    /// Writes wait for their commit.
    writing: bool,
}

/// A loaded table, of one thread.
pub(crate) fn load(directory: &Path, rows: Rows, count: u64, _: u64) -> Result<Box<dyn HybridTable>> {
    Ok(Box::new(DuckTable { gathers: true, ..DuckTable::load(directory, rows, count, 1)? }))
}

/// A loaded table of so many threads, whose writes commit themselves.
pub(crate) fn load_committing(
    directory: &Path,
    rows: Rows,
    count: u64,
    threads: usize,
) -> Result<Box<dyn HybridTable>> {
    Ok(Box::new(DuckTable::load(directory, rows, count, threads)?))
}

impl DuckTable {
    fn load(directory: &Path, rows: Rows, count: u64, threads: usize) -> Result<Self> {
        let database = DuckDb::open(directory, threads)?;
        let mut table =
            DuckTable { database, directory: directory.to_path_buf(), rows, gathers: false, writing: false };
        let csv = directory.join("rows.csv");
        write_csv(&csv, rows, count)?;
        table.execute(&sql::create_table(rows), &[])?;
        table.execute(
            &format!("INSERT INTO t SELECT * FROM read_csv('{}', header = false) ORDER BY 1", csv.display()),
            &[],
        )?;
        table.execute("ALTER TABLE t ADD PRIMARY KEY (a0)", &[])?;
        table.execute("CHECKPOINT", &[])?;
        fs::remove_file(csv)?;
        Ok(table)
    }
}

fn write_csv(path: &Path, rows: Rows, count: u64) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut line = String::new();
    for index in 0..count {
        sql::write_line(rows, index, ',', &mut line);
        file.write_all(line.as_bytes())?;
    }
    Ok(file.flush()?)
}

impl DuckDb {
    /// An empty database of so many threads.
    pub(crate) fn open(directory: &Path, threads: usize) -> Result<Self> {
        let python = std::env::var(PYTHON_VARIABLE).unwrap_or_else(|_| "python3".to_owned());
        let mut command = Command::new(&python);
        command.args(["-c", PROGRAM]).arg(directory.join("duckdb")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().map_err(|error| format!("{python}: {error}"))?;
        let (Some(requests), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("the process has no pipes".into());
        };
        let (requests, answers) = (BufWriter::new(requests), BufReader::new(answers));
        let mut database = Self { process, requests, answers };
        database.ask(&json!({ "sql": format!("SET threads = {threads}"), "parameters": [] }))?;
        Ok(database)
    }

    /// What it answers to a request (`duckdb.py`), if that is no error.
    pub(crate) fn ask(&mut self, request: &Value) -> Result<Value> {
        writeln!(self.requests, "{request}")?;
        self.requests.flush()?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let answer: Value =
            serde_json::from_str(&line).map_err(|error| format!("DuckDB answered {line:?}: {error}"))?;
        match answer.get("error") {
            Some(error) => Err(format!("DuckDB: {error}; {}", request["sql"]).into()),
            None => Ok(answer),
        }
    }

    /// Ends it.
    pub(crate) fn close(self) -> Result<()> {
        let Self { mut process, requests, .. } = self;
        drop(requests);
        process.wait()?;
        Ok(())
    }
}

impl DuckTable {
    /// Runs a statement; its first row, if it has any.
    fn execute(&mut self, text: &str, parameters: &[i64]) -> Result<Vec<Option<i64>>> {
        match self.database.ask(&json!({ "sql": text, "parameters": parameters }))? {
            Value::Array(values) => Ok(values.iter().map(Value::as_i64).collect()),
            other => Err(format!("DuckDB: {other}; {text}").into()),
        }
    }

    fn write(&mut self, text: &str, parameters: &[i64]) -> Result<()> {
        if self.gathers && !self.writing {
            self.execute("BEGIN TRANSACTION", &[])?;
            self.writing = true;
        }
        self.execute(text, parameters).map(drop)
    }
}

impl HybridTable for DuckTable {
    fn insert(&mut self, index: u64) -> Result<()> {
        let values = (1..=self.rows.columns).map(|column| i64::from(self.rows.value(index, column)));
        let parameters: Vec<i64> = std::iter::once(sql_key(self.rows.key(index))).chain(values).collect();
        let places = vec!["?"; parameters.len()].join(", ");
        self.write(&format!("INSERT INTO t VALUES ({places})"), &parameters)
    }

    fn update(&mut self, index: u64, column: usize, value: i32) -> Result<()> {
        let key = sql_key(self.rows.key(index));
        self.write(&format!("UPDATE t SET a{column} = ? WHERE a0 = ?"), &[i64::from(value), key])
    }

    fn point(&mut self, index: u64, projection: &[usize], _: &mut ReadCounters) -> Result<i64> {
        let text = format!("SELECT {} FROM t WHERE a0 = ?", sql::columns(projection));
        let row = self.execute(&text, &[sql_key(self.rows.key(index))])?;
        if row.len() != projection.len() {
            return Err(format!("row {index} is not there").into());
        }
        Ok(row.into_iter().flatten().sum())
    }

    fn scan(
        &mut self,
        (from, to): (u64, u64),
        projection: &[usize],
        aggregate: Aggregate,
        _: &mut ReadCounters,
    ) -> Result<i64> {
        let text = format!("SELECT {} FROM t WHERE a0 >= ? AND a0 < ?", sql::aggregates(projection, aggregate));
        Ok(sql::folded(self.execute(&text, &[sql_key(from), sql_key(to)])?, aggregate))
    }

    fn commit(&mut self) -> Result<()> {
        if std::mem::take(&mut self.writing) {
            self.execute("COMMIT", &[])?;
        }
        Ok(())
    }

    fn remove(mut self: Box<Self>) -> Result<()> {
        self.commit()?;
        let Self { database, directory, .. } = *self;
        database.close()?;
        Ok(fs::remove_dir_all(directory)?)
    }
}
