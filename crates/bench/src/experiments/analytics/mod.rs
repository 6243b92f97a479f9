//! Analytical queries in SQL over a table of rows above and columns below, beside databases made for them.
//!
//! 1. The rows are inserted, and the table is compacted. The same rows lie in memory as Arrow, as DataFusion would have
//!    them; rivals outside this process load them, too (`rivals`).
//! 2. Every query is asked of each in turn, a number of times, in as many threads as there are cores: on the compacted
//!    table; after one column of a tenth of the rows was changed at random, in Arrow as well; and while 10,000 rows a
//!    second are inserted. But for the last, the answers of Mycelium and of DataFusion over Arrow must be the same.

mod data;
mod flights;
mod rivals;
mod tpch;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use mycelium_base::ColumnSet;
use mycelium_encoding::{BatchRows, Schema};
use mycelium_engine::{
    Background, Database, Durability, Layout, LeveledOptions, Options, Policy, Table, TableOptions, WriteBatch,
};
use mycelium_sql::Session;
use mycelium_sql::datafusion::datasource::MemTable;
use mycelium_sql::datafusion::prelude::{SessionConfig, SessionContext};
use mycelium_vfs::LocalDisk;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use self::data::Data;
pub use self::data::Question;
use self::rivals::Rivals;
pub use self::rivals::{AnalyticsRival, AnalyticsRivalFactory, LoadAnalyticsTable, RivalAnswer};
use crate::experiments::sst_bytes;
use crate::keys::mix;
use crate::statistics::Spread;
use crate::store::Result;

const WRITE_BUFFER: usize = 64 << 20;
/// Times that a query is asked of each.
const REPETITIONS: usize = 7;
/// Rows a second that are inserted beside the last queries.
const PACE: u64 = 10_000;
/// Rows of a batch of inserts.
const INSERTED_TOGETHER: usize = 1000;

/// How it is run.
#[derive(Clone, Debug)]
pub struct AnalyticsSettings {
    /// Where the databases are made and removed.
    pub directory: PathBuf,
    /// Where data from the network are kept.
    pub data_directory: PathBuf,
    /// TPC-H's scale factor, or the share of the flights.
    pub scale: f64,
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// Whether to tell what is being done.
    pub progress: bool,
}

impl AnalyticsSettings {
    /// The settings of the claims.
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_path_buf(),
            data_directory: PathBuf::from(".cache"),
            scale: 1.0,
            cache_bytes: 4 << 30,
            progress: true,
        }
    }
}

/// A query's times in milliseconds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct QuestionFigures {
    /// The query.
    pub name: String,
    /// `compacted`, `updated` or `while_writing`.
    pub when: String,
    /// Of Mycelium.
    pub mycelium: Spread,
    /// Of DataFusion over the same rows in memory.
    pub arrow: Spread,
    /// Of other databases, over the rows as they were loaded; while writing, as they were on the compacted table.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub rivals: BTreeMap<String, Spread>,
    /// Medians: Mycelium's over DataFusion's.
    pub over_arrow: f64,
    /// Mycelium's over the others'.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub over: BTreeMap<String, f64>,
    /// Mycelium's over its own on the compacted table.
    pub over_compacted: f64,
}

/// All that the experiment showed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AnalyticsReport {
    /// Rows.
    pub rows: u64,
    /// The table's layout.
    pub layout: String,
    /// Bytes of its SSTs when it was compacted.
    pub sst_bytes: u64,
    /// Bytes of the rows in memory.
    pub arrow_bytes: u64,
    /// All queries at all times.
    pub questions: Vec<QuestionFigures>,
    /// Why other databases have no figures, or not all.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub failed: BTreeMap<String, String>,
}

impl AnalyticsReport {
    /// The figures of a query at a time.
    pub fn of(&self, name: &str, when: &str) -> Option<&QuestionFigures> {
        self.questions.iter().find(|figures| figures.name == name && figures.when == when)
    }

    /// The report as a person reads it.
    pub fn table(&self) -> String {
        let mut out = format!(
            "queries in SQL: {} rows, {:.0} MB of SSTs, {:.0} MB in memory as Arrow\n  {}\n",
            self.rows,
            self.sst_bytes as f64 / 1e6,
            self.arrow_bytes as f64 / 1e6,
            self.layout.replace('\n', "\n  ")
        );
        for figures in &self.questions {
            let QuestionFigures { name, when, mycelium, arrow, over_arrow, over_compacted, .. } = figures;
            out += &format!(
                "  {name:<8} {when:<14} {:>8.1} ms ({over_compacted:.2}x)   Arrow {:>8.1} ms ({over_arrow:.2}x)",
                mycelium.median, arrow.median
            );
            for (rival, over) in &figures.over {
                let median = figures.rivals.get(rival).map_or(f64::NAN, |times| times.median);
                out += &format!("   {rival} {median:>8.1} ms ({over:.2}x)");
            }
            out.push('\n');
        }
        for (name, why) in &self.failed {
            out += &format!("  {name}: not all figures, since it failed: {why}\n");
        }
        out
    }
}

/// Runs TPC-H's queries 1 and 6, with rivals beside ours.
pub fn run_tpch(settings: &AnalyticsSettings, rivals: &[AnalyticsRivalFactory<'_>]) -> Result<AnalyticsReport> {
    run(settings, &tpch::LineItem::generate(settings.scale)?, rivals)
}

/// Asks for flights by their origin, their time and their delay, with rivals beside ours. Downloads them (14 MB) the
/// first time.
pub fn run_flights(settings: &AnalyticsSettings, rivals: &[AnalyticsRivalFactory<'_>]) -> Result<AnalyticsReport> {
    run(settings, &flights::Flights::fetch(&settings.data_directory, settings.scale)?, rivals)
}

fn run(settings: &AnalyticsSettings, data: &dyn Data, rivals: &[AnalyticsRivalFactory<'_>]) -> Result<AnalyticsReport> {
    let directory = settings.directory.join(format!("analytics-{}", std::process::id()));
    fs::create_dir_all(&directory)?;
    let report = Analytics::create(settings, data, &directory, rivals)?.run()?;
    fs::remove_dir_all(&directory)?;
    Ok(report)
}

const COMPACTED: &str = "compacted";

/// The state in which a table is asked.
#[derive(Clone, Copy, PartialEq, Debug)]
enum When {
    Compacted,
    Updated,
    WhileWriting,
}

impl When {
    fn name(self) -> &'static str {
        match self {
            Self::Compacted => COMPACTED,
            Self::Updated => "updated",
            Self::WhileWriting => "while_writing",
        }
    }
}

struct Analytics<'a> {
    settings: &'a AnalyticsSettings,
    data: &'a dyn Data,
    runtime: Runtime,
    database: Database,
    table: Table,
    session: Session,
    arrow: SessionContext,
    rivals: Rivals,
    rows: u64,
}

/// Rows in memory, in a partition for each thread.
fn in_memory(name: &str, batches: &[RecordBatch], threads: usize) -> Result<SessionContext> {
    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(threads));
    let Some(first) = batches.first() else { return Err("no rows".into()) };
    let partitions = batches.chunks(batches.len().div_ceil(threads)).map(<[RecordBatch]>::to_vec).collect();
    context.register_table(name, Arc::new(MemTable::try_new(first.schema(), partitions)?))?;
    Ok(context)
}

impl<'a> Analytics<'a> {
    fn create(
        settings: &'a AnalyticsSettings,
        data: &'a dyn Data,
        directory: &Path,
        rivals: &[AnalyticsRivalFactory<'_>],
    ) -> Result<Self> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let options = Options {
            disk: Arc::new(LocalDisk),
            memory_budget: WRITE_BUFFER,
            cache_bytes: settings.cache_bytes,
            background: Background::Threads(2),
            ..Options::default()
        };
        let database = Database::open(directory.join("mycelium"), options)?;
        let schema = Schema::parse(data.schema())?;
        let columns = (0..schema.columns().len()).filter(|column| !schema.primary_key().contains(column));
        let options = TableOptions {
            layout: Some(Layout::parse(data.layout(), &ColumnSet::from_iter(columns))?),
            policy: Policy::Leveled(LeveledOptions::default()),
            ..TableOptions::default()
        };
        let table = database.create_typed_table(data.name(), schema, options)?;
        Ok(Self {
            settings,
            data,
            runtime: Runtime::new()?,
            session: Session::open(&database),
            arrow: in_memory(data.name(), data.batches(), threads)?,
            rivals: Rivals::load(directory, data, rivals)?,
            rows: data.batches().iter().map(|batch| batch.num_rows() as u64).sum(),
            database,
            table,
        })
    }

    fn tell(&self, text: std::fmt::Arguments<'_>) {
        if self.settings.progress {
            eprintln!("  {text}");
        }
    }

    fn run(mut self) -> Result<AnalyticsReport> {
        for (name, why) in &self.rivals.failed {
            self.tell(format_args!("{name} failed: {why}"));
        }
        self.load()?;
        let sst_bytes = sst_bytes(&self.database);
        let arrow_bytes = self.data.batches().iter().map(|batch| batch.get_array_memory_size() as u64).sum();
        self.tell(format_args!("{} rows loaded and compacted to {:.0} MB", self.rows, sst_bytes as f64 / 1e6));
        let mut questions = Vec::new();
        self.ask_all(When::Compacted, &mut questions)?;
        self.update_a_tenth()?;
        self.ask_all(When::Updated, &mut questions)?;
        self.while_writing(&mut questions)?;
        self.database.close()?;
        let layout = self.data.layout().to_owned();
        let failed = self.rivals.failed;
        Ok(AnalyticsReport { rows: self.rows, layout, sst_bytes, arrow_bytes, questions, failed })
    }

    fn load(&self) -> Result<()> {
        let layout = self.table.packed_layout()?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for batch in self.data.batches() {
            let rows = BatchRows::new(layout, batch)?;
            for first in (0..rows.len()).step_by(INSERTED_TOGETHER) {
                let mut writes = WriteBatch::new();
                for row in first..(first + INSERTED_TOGETHER).min(rows.len()) {
                    key.clear();
                    value.clear();
                    rows.encode_row(row, &mut key, &mut value)?;
                    writes.put_packed(&self.table, layout, &key, &value)?;
                }
                self.database.write(&writes, Durability::Buffered)?;
            }
        }
        self.database.flush()?;
        self.database.wait_idle()?;
        Ok(self.database.compact(&self.table)?)
    }

    /// Changes random rows, here and in memory.
    fn update_a_tenth(&mut self) -> Result<()> {
        let (data, batches) = (self.data, self.data.batches());
        let mut starts: Vec<u64> = vec![0];
        for batch in batches {
            starts.push(starts.last().unwrap_or(&0) + batch.num_rows() as u64);
        }
        let place = |row: u64| {
            let batch = starts.partition_point(|&start| start <= row) - 1;
            (batch, (row - starts[batch]) as usize)
        };
        let mut by_batch: Vec<Vec<(usize, u64)>> = vec![Vec::new(); batches.len()];
        for draw in 0..self.rows / 10 {
            let row = mix(draw + 1) % self.rows;
            let (batch, at) = place(row);
            data.update(&self.table, &batches[batch], at, row)?;
            by_batch[batch].push((at, row));
        }
        let updated = batches.iter().zip(&by_batch).map(|(batch, rows)| data.updated(batch, rows));
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        self.arrow = in_memory(data.name(), &updated.collect::<Result<Vec<_>>>()?, threads)?;
        Ok(())
    }

    fn ask_all(&mut self, when: When, figures: &mut Vec<QuestionFigures>) -> Result<()> {
        for question in self.data.questions() {
            let asked = self.ask(question, when, figures)?;
            self.tell(format_args!(
                "{} {}: {:.1} ms, {:.2}x DataFusion over Arrow",
                question.name,
                when.name(),
                asked.mycelium.median,
                asked.over_arrow
            ));
            figures.push(asked);
        }
        Ok(())
    }

    /// Asks each in turn; the first time fills caches and is not counted.
    fn ask(&mut self, question: &Question, when: When, before: &[QuestionFigures]) -> Result<QuestionFigures> {
        let (mut own, mut arrow, mut rivals) = (Vec::new(), Vec::new(), BTreeMap::<String, Vec<f64>>::new());
        for repetition in 0..=REPETITIONS {
            let (answer, own_seconds) = self.ask_mycelium(question.text)?;
            let (expected, arrow_seconds) = self.ask_arrow(question.text)?;
            if when != When::WhileWriting && printed(&answer)? != printed(&expected)? {
                let (answer, expected) = (printed(&answer)?, printed(&expected)?);
                return Err(format!("{}: {answer}\nand over Arrow: {expected}", question.name).into());
            }
            let of_rivals = match when {
                When::Compacted => self.rivals.ask(question, Some(&expected))?,
                When::Updated => self.rivals.ask(question, None)?,
                When::WhileWriting => BTreeMap::new(),
            };
            if repetition > 0 {
                own.push(own_seconds * 1e3);
                arrow.push(arrow_seconds * 1e3);
                for (name, seconds) in of_rivals {
                    rivals.entry(name).or_default().push(seconds * 1e3);
                }
            }
        }
        rivals.retain(|name, _| !self.rivals.failed.contains_key(name));
        let compacted = before.iter().find(|figures| figures.name == question.name && figures.when == COMPACTED);
        figures(question, when, [own, arrow], rivals, compacted)
    }

    fn ask_mycelium(&self, text: &str) -> Result<(Vec<RecordBatch>, f64)> {
        let started = Instant::now();
        let answer = self.runtime.block_on(async { self.session.query(text).await?.collect().await })?;
        Ok((answer, started.elapsed().as_secs_f64()))
    }

    fn ask_arrow(&self, text: &str) -> Result<(Vec<RecordBatch>, f64)> {
        let started = Instant::now();
        let answer = self.runtime.block_on(async { self.arrow.sql(text).await?.collect().await })?;
        Ok((answer, started.elapsed().as_secs_f64()))
    }

    /// Asks while rows are inserted at the pace.
    fn while_writing(&mut self, figures: &mut Vec<QuestionFigures>) -> Result<()> {
        let done = AtomicBool::new(false);
        let (data, table) = (self.data, self.table.clone());
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| write_at_pace(data, &table, &done));
            let result = self.ask_all(When::WhileWriting, figures);
            done.store(true, Ordering::Relaxed);
            writer.join().map_err(|_| "the writer panicked")??;
            result
        })
    }
}

/// Of Mycelium and DataFusion the `times` in milliseconds; of rivals, too.
fn figures(
    question: &Question,
    when: When,
    [own, arrow]: [Vec<f64>; 2],
    rivals: BTreeMap<String, Vec<f64>>,
    compacted: Option<&QuestionFigures>,
) -> Result<QuestionFigures> {
    let spread = |times| Spread::of(times).ok_or("nothing was measured");
    let (mycelium, arrow) = (spread(own)?, spread(arrow)?);
    let rivals: BTreeMap<String, Spread> = match compacted {
        Some(compacted) if when == When::WhileWriting => compacted.rivals.clone(),
        _ => rivals.into_iter().filter_map(|(name, times)| Some((name, Spread::of(times)?))).collect(),
    };
    Ok(QuestionFigures {
        name: question.name.to_owned(),
        when: when.name().to_owned(),
        over_arrow: mycelium.median / arrow.median,
        over: rivals.iter().map(|(name, times)| (name.clone(), mycelium.median / times.median)).collect(),
        over_compacted: compacted.map_or(1.0, |compacted| mycelium.median / compacted.mycelium.median),
        mycelium,
        arrow,
        rivals,
    })
}

fn write_at_pace(data: &dyn Data, table: &Table, done: &AtomicBool) -> Result<()> {
    let (started, mut written) = (Instant::now(), 0);
    while !done.load(Ordering::Relaxed) {
        while written < (started.elapsed().as_secs_f64() * PACE as f64) as u64 {
            data.insert(table, written)?;
            written += 1;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    Ok(())
}

fn printed(batches: &[RecordBatch]) -> Result<String> {
    Ok(mycelium_sql::datafusion::arrow::util::pretty::pretty_format_batches(batches)?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rival that answers as DataFusion does over what it was given.
    struct Twin {
        runtime: Runtime,
        context: SessionContext,
    }

    impl AnalyticsRival for Twin {
        fn ask(&mut self, text: &str) -> Result<RivalAnswer> {
            let answer = self.runtime.block_on(async { self.context.sql(text).await?.collect().await })?;
            Ok(RivalAnswer { seconds: 1e-3, rows: rivals::cells(&answer)? })
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the rivals' file, which the engine never touches")]
    fn twin(_: &Path, name: &str, file: &Path) -> Result<Box<dyn AnalyticsRival>> {
        let batches = parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(fs::File::open(file)?, 8192)?;
        let batches = batches.collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(Box::new(Twin { runtime: Runtime::new()?, context: in_memory(name, &batches, 2)? }))
    }

    /// A rival that answers every query by nothing.
    struct Silent;

    impl AnalyticsRival for Silent {
        fn ask(&mut self, _: &str) -> Result<RivalAnswer> {
            Ok(RivalAnswer { seconds: 1e-3, rows: Vec::new() })
        }
    }

    const RIVALS: [AnalyticsRivalFactory<'static>; 3] = [
        AnalyticsRivalFactory { name: "twin", load: &twin },
        AnalyticsRivalFactory { name: "silent", load: &|_, _, _| Ok(Box::new(Silent)) },
        AnalyticsRivalFactory { name: "broken", load: &|_, _, _| Err("it does not start".into()) },
    ];

    #[test]
    fn a_small_table_answers_as_arrow_and_rivals_do() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let settings = AnalyticsSettings { scale: 0.005, progress: false, ..AnalyticsSettings::new(directory.path()) };
        let report = run_tpch(&settings, &RIVALS).expect("experiment");
        assert_eq!(report.questions.len(), 6, "{}", report.table());
        let last = report.of("Q6", "while_writing").expect("figures");
        assert!(report.rows > 20_000 && last.over_arrow > 0.0 && last.over["twin"] > 0.0, "{}", report.table());
        assert!(report.failed.keys().eq(["broken", "silent"]), "{:?}", report.failed);
        assert!(report.failed["silent"].contains("Q1") && !last.rivals.contains_key("silent"));
    }
}
