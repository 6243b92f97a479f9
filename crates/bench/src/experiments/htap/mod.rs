//! Both halves of a workload in one table: LASER's narrow table (§7), rows above and columns below, in one database,
//! one layout and one run.
//!
//! 1. Rows of a random 8-byte key and 30 columns of 4 bytes are inserted one by one, until every compaction is done;
//!    then the table is compacted.
//! 2. Q2 reads whole rows by key, Q5 changes one column of one row, Q1 inserts single rows: a thread, as fast as it
//!    can. Q2 takes turns with the same reads of the same rows in a table whose levels are all rows, compacted too, in
//!    the same cache.
//! 3. Q3 is the greatest value of three columns over half of the keys, Q4 the sums of ten columns over a twentieth,
//!    through the engine's scan in as many threads as there are cores: on the compacted table, after a tenth of its
//!    rows at random were changed in a column that Q3 reads and in one that Q4 reads, while 10,000 rows a second are
//!    inserted, and after a twentieth of its rows came anew, at random keys. Those on the changed table take turns with
//!    the same on a second table of the same rows, which is compacted and stays so; while rows are inserted, one scan
//!    after the other for seconds, half of these come before and half after.
//!
//! Where level 0 is columnar, too, flushes encode, and what is younger than the columns below is laid over them.
//!
//! Q2 and the scans come first and Q5 and Q1 last, so that all of them find the same rows. Rivals (`rivals`) come after
//! all that and take turns with ours: at reads with the table that stayed compacted, at writes with the other.

mod rivals;

use std::collections::BTreeMap;
use std::fs;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use mycelium_base::ColumnSet;
use mycelium_encoding::{Datum, DatumRef, Schema};
use mycelium_engine::{
    Background, Database, Durability, Layout, LeveledOptions, Options, Policy, ReadCounters, ReadOptions, ScanOptions,
    Table, TableOptions,
};
use mycelium_vfs::LocalDisk;
use serde::{Deserialize, Serialize};

pub use self::rivals::{OverRival, RivalFigures};
use crate::experiments::laser::{HybridRival, Rows};
use crate::experiments::sst_bytes;
use crate::keys::mix;
use crate::statistics::Spread;
use crate::store::Result;

/// Rows at scale 1.
const ROWS: u64 = 10_000_000;
const COLUMNS: usize = 30;
/// Rows above, columns below: the groups that Q3, Q4 and the rest tell apart.
const LAYOUT: &str = "L0 tiered: * packed\nL1 leveled: 1-3 columnar | 4-13 columnar | 14-30 columnar";
/// The same where flushes encode.
const COLUMNAR_LAYOUT: &str = "L0 tiered: * columnar\nL1 leveled: 1-3 columnar | 4-13 columnar | 14-30 columnar";
/// The layout of the table that Q2 is compared with.
const ROW_LAYOUT: &str = "L0 tiered: * packed\nL1 leveled: * packed";
/// Turns that each table takes at Q2.
const TURNS: u64 = 7;
const WRITE_BUFFER: usize = 64 << 20;
/// Times that a scan is measured.
const SCANS: usize = 21;
/// Rows a second that are inserted beside the last scans.
const PACE: u64 = 10_000;
/// Of a workload of single rows; of scans while rows are inserted.
const SECONDS: f64 = 5.0;
const SECONDS_WHILE_WRITING: f64 = 10.0;

/// How it is run.
#[derive(Clone, Debug)]
pub struct HtapSettings {
    /// Where the database is made and removed.
    pub directory: PathBuf,
    /// Of the rows.
    pub scale: f64,
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// Whether flushes encode, so that level 0 is columnar, too.
    pub columnar_level0: bool,
    /// Whether to tell what is being done.
    pub progress: bool,
}

impl HtapSettings {
    /// The settings of the claims.
    pub fn new(directory: &Path) -> Self {
        let directory = directory.to_path_buf();
        Self { directory, scale: 1.0, cache_bytes: 4 << 30, columnar_level0: false, progress: true }
    }

    fn layout(&self) -> &'static str {
        if self.columnar_level0 { COLUMNAR_LAYOUT } else { LAYOUT }
    }
}

/// Times of a scan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ScanFigures {
    /// Milliseconds.
    pub milliseconds: Spread,
    /// Those of the first one after what came before, which is not among them.
    pub first: f64,
    /// Of its rows, those that were taken many at a time, in percent.
    pub passed_through_percent: f64,
    /// Its median over that on the table beside that stays compacted, taken in turns.
    pub over_compacted: f64,
}

/// Q3 and Q4 at one time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Scans {
    /// The greatest value of three columns over half of the keys.
    pub q3: ScanFigures,
    /// The sums of ten columns over a twentieth of them.
    pub q4: ScanFigures,
}

/// All that the experiment showed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HtapReport {
    /// Rows.
    pub rows: u64,
    /// The table's layout.
    pub layout: String,
    /// Threads of a scan.
    pub threads: usize,
    /// Bytes of its SSTs when it was compacted.
    pub sst_bytes: u64,
    /// Rows a second, until every compaction is done.
    pub load: f64,
    /// Whole rows a second by key.
    pub q2_points: f64,
    /// The time of such a read over that of the same read where all levels are rows, turn by turn.
    pub q2_over_rows: Spread,
    /// On the compacted table.
    pub compacted: Scans,
    /// With a tenth of the rows changed since, each in a column of Q3 and in one of Q4.
    pub updated: Scans,
    /// While rows are inserted.
    pub while_writing: Scans,
    /// Rows that were inserted meanwhile, a second.
    pub written: f64,
    /// With a twentieth of the rows inserted since, too.
    pub inserted: Scans,
    /// Changes of one column of one row a second.
    pub q5_updates: f64,
    /// Single inserts a second.
    pub q1_inserts: f64,
    /// Other databases.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub rivals: BTreeMap<String, RivalFigures>,
    /// How many times as fast as they ours is, in turns.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub over: BTreeMap<String, OverRival>,
    /// Why others have no figures.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub failed: BTreeMap<String, String>,
}

/// What some scans took.
#[derive(Default)]
struct ScanTimes {
    first: f64,
    milliseconds: Vec<f64>,
    reads: ReadCounters,
}

impl ScanTimes {
    fn figures(self, beside: &Self) -> Result<ScanFigures> {
        let Self { first, milliseconds, reads } = self;
        let all = (reads.rows_passed_through + reads.rows_interleaved + reads.rows_merged).max(1);
        let spread = |times: Vec<f64>| Spread::of(times).ok_or("nothing was measured");
        let milliseconds = spread(milliseconds)?;
        Ok(ScanFigures {
            over_compacted: milliseconds.median / spread(beside.milliseconds.clone())?.median,
            milliseconds,
            first,
            passed_through_percent: reads.rows_passed_through as f64 * 100.0 / all as f64,
        })
    }
}

struct Htap<'a> {
    settings: &'a HtapSettings,
    database: Database,
    table: Table,
    rows: u64,
    threads: usize,
}

/// The rows, which rivals have, too.
const TABLE_ROWS: Rows = Rows { columns: COLUMNS };

fn key(index: u64) -> u64 {
    TABLE_ROWS.key(index)
}

fn value(index: u64, column: usize) -> i32 {
    TABLE_ROWS.value(index, column)
}

#[derive(Clone, Copy, Debug)]
enum Query {
    Q3,
    Q4,
}

impl Query {
    fn columns(self) -> Vec<usize> {
        match self {
            Self::Q3 => (1..=3).collect(),
            Self::Q4 => (4..=13).collect(),
        }
    }

    /// Its keys: from a quarter of them on.
    fn keys(self) -> (u64, u64) {
        let from = u64::MAX / 4;
        match self {
            Self::Q3 => (from, from + u64::MAX / 2),
            Self::Q4 => (from, from + u64::MAX / 20),
        }
    }

    fn fold(self, batch: &RecordBatch, answer: &mut [i64]) {
        for (column, answer) in batch.columns().iter().zip(answer) {
            let values = column.as_primitive::<Int32Type>().values();
            match self {
                Self::Q3 => *answer = (*answer).max(values.iter().copied().max().map_or(i64::MIN, i64::from)),
                Self::Q4 => *answer += values.iter().map(|&value| i64::from(value)).sum::<i64>(),
            }
        }
    }

    fn join(self, answers: &[Vec<i64>]) -> Vec<i64> {
        let of = |column: usize| answers.iter().map(move |answer| answer[column]);
        let columns = 0..self.columns().len();
        match self {
            Self::Q3 => columns.map(|column| of(column).max().unwrap_or(i64::MIN)).collect(),
            Self::Q4 => columns.map(|column| of(column).sum()).collect(),
        }
    }

    fn start(self) -> Vec<i64> {
        vec![if matches!(self, Self::Q3) { i64::MIN } else { 0 }; self.columns().len()]
    }
}

fn create_table(database: &Database, name: &str, layout: &str) -> Result<Table> {
    let columns: String = (1..=COLUMNS).map(|column| format!("a{column} int32 not null, ")).collect();
    let schema = Schema::parse(&format!("a0 uint64 not null, {columns}primary key (a0)"))?;
    let options = TableOptions {
        layout: Some(Layout::parse(layout, &ColumnSet::from_iter(1..=COLUMNS))?),
        policy: Policy::Leveled(LeveledOptions::default()),
        ..TableOptions::default()
    };
    Ok(database.create_typed_table(name, schema, options)?)
}

fn insert(table: &Table, index: u64) -> Result<()> {
    let mut row = [DatumRef::Null; COLUMNS + 1];
    row[0] = DatumRef::UInt64(key(index));
    for (column, cell) in row.iter_mut().enumerate().skip(1) {
        *cell = DatumRef::Int32(value(index, column));
    }
    table.insert_row(&row, Durability::Os)?;
    Ok(())
}

fn read(table: &Table, index: u64) -> Result<()> {
    let key = table.row_key(&[DatumRef::UInt64(key(index))])?;
    let row = table.get_packed(&key, None, &ReadOptions::default(), &mut ReadCounters::default())?;
    let (layout, row) = row.ok_or("a row is not there")?;
    match layout.row(&row)?.datum(COLUMNS)? {
        Some(DatumRef::Int32(found)) if found == value(index, COLUMNS) => Ok(()),
        found => Err(format!("row {index} has {found:?}").into()),
    }
}

fn scan_part(table: &Table, query: Query, (from, to): (u64, u64)) -> Result<(Vec<i64>, ReadCounters)> {
    let mut scan = table.scan_batches(ScanOptions {
        projection: Some(query.columns()),
        lower: Bound::Included(vec![Datum::UInt64(from)]),
        upper: Bound::Excluded(vec![Datum::UInt64(to)]),
        ..ScanOptions::default()
    })?;
    let mut answer = query.start();
    for batch in scan.by_ref() {
        query.fold(&batch?, &mut answer);
    }
    Ok((answer, scan.counters()))
}

/// Runs the experiment, with rivals beside it.
pub fn run(settings: &HtapSettings, rivals: &[HybridRival<'_>]) -> Result<HtapReport> {
    let directory = settings.directory.join(format!("htap-{}", std::process::id()));
    let htap = Htap::create(settings, &directory.join("mycelium"))?;
    let settled = create_table(&htap.database, "settled", settings.layout())?;
    let mut report = htap.run(&settled)?;
    let beside = rivals::Beside::new(&htap, &settled, &directory)?;
    for (number, rival) in (1..).zip(rivals) {
        report.add(rival.name, beside.compare(rival, number), settings.progress);
    }
    htap.database.close()?;
    fs::remove_dir_all(&directory)?;
    Ok(report)
}

/// Operations a second of one thread; each gets a number drawn.
fn for_so_long(seconds: f64, mut operation: impl FnMut(u64) -> Result<()>) -> Result<f64> {
    let (started, mut count) = (Instant::now(), 0);
    while started.elapsed().as_secs_f64() < seconds {
        for _ in 0..100 {
            operation(mix(count ^ 0x5eed) >> 1)?;
            count += 1;
        }
    }
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

impl<'a> Htap<'a> {
    fn create(settings: &'a HtapSettings, directory: &Path) -> Result<Self> {
        fs::create_dir_all(directory)?;
        let database = Database::open(
            directory,
            Options {
                disk: Arc::new(LocalDisk),
                memory_budget: WRITE_BUFFER,
                cache_bytes: settings.cache_bytes,
                background: Background::Threads(2),
                ..Options::default()
            },
        )?;
        let table = create_table(&database, "table", settings.layout())?;
        let rows = ((ROWS as f64 * settings.scale) as u64).max(1000);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self { settings, database, table, rows, threads })
    }

    fn tell(&self, text: std::fmt::Arguments<'_>) {
        if self.settings.progress {
            eprintln!("  {text}");
        }
    }

    /// Everything but the rivals. The table that stays compacted is filled on the way.
    fn run(&self, settled: &Table) -> Result<HtapReport> {
        let load = self.load(&self.table)?;
        self.tell(format_args!("loaded {load:.0} rows/s, compacted to {:.0} MB", self.sst_bytes() as f64 / 1e6));
        let sst_bytes = self.sst_bytes();
        let compacted = self.scans("compacted", &self.table)?;
        let (q2_points, q2_over_rows) = self.points()?;
        self.tell(format_args!("Q2 {q2_points:.0} rows/s, {:.2}x as long as of rows", q2_over_rows.median));
        self.load(settled)?;
        for draw in 0..self.rows / 10 {
            self.update(mix(draw + 1) % self.rows, ["a2", "a5"])?;
        }
        self.database.wait_idle()?;
        let updated = self.scans("with a tenth updated", settled)?;
        let (while_writing, written) = self.scans_while_writing(settled)?;
        for draw in 0..self.rows / 20 {
            insert(&self.table, self.rows * 3 + draw)?;
        }
        self.database.wait_idle()?;
        let inserted = self.scans("with a twentieth new", settled)?;
        let q5_updates = self.for_a_while(|draw| self.update(draw % self.rows, ["a5"]))?;
        let next = self.rows * 2;
        let q1_inserts = self.for_a_while(|draw| insert(&self.table, next + draw))?;
        self.tell(format_args!("Q5 {q5_updates:.0} updates/s, Q1 {q1_inserts:.0} inserts/s"));
        self.database.wait_idle()?;
        Ok(HtapReport {
            rows: self.rows,
            layout: self.settings.layout().to_owned(),
            threads: self.threads,
            sst_bytes,
            load,
            q2_points,
            q2_over_rows,
            compacted,
            updated,
            while_writing,
            written,
            inserted,
            q5_updates,
            q1_inserts,
            rivals: BTreeMap::new(),
            over: BTreeMap::new(),
            failed: BTreeMap::new(),
        })
    }

    fn update<const N: usize>(&self, index: u64, columns: [&str; N]) -> Result<()> {
        let changes = columns.map(|column| (column, DatumRef::Int32(index as i32)));
        self.table.patch_row(&[DatumRef::UInt64(key(index))], &changes, Durability::Os)?;
        Ok(())
    }

    fn load(&self, table: &Table) -> Result<f64> {
        let started = Instant::now();
        for index in 0..self.rows {
            insert(table, index)?;
        }
        self.database.flush()?;
        self.database.wait_idle()?;
        let rate = self.rows as f64 / started.elapsed().as_secs_f64();
        self.database.compact(table)?;
        Ok(rate)
    }

    /// Whole rows a second by key, and how many times as long one takes as in a table of rows, which is made for this.
    fn points(&self) -> Result<(f64, Spread)> {
        let rows = create_table(&self.database, "rows", ROW_LAYOUT)?;
        self.load(&rows)?;
        self.fill_cache(&rows)?;
        let seconds = self.seconds() / TURNS as f64;
        let turn = |table, number| for_so_long(seconds, |draw| read(table, mix(draw + number) % self.rows));
        let (mut rates, mut ratios) = (Vec::new(), Vec::new());
        for number in 0..TURNS {
            let rate = turn(&self.table, number)?;
            rates.push(rate);
            ratios.push(turn(&rows, number)? / rate);
        }
        self.database.drop_table("rows")?;
        let of = |values| Spread::of(values).ok_or("nothing was measured");
        Ok((of(rates)?.median, of(ratios)?))
    }

    /// Reads both tables: a long scan of columns leaves its blocks in the cache if there is room, one of rows is asked
    /// to.
    fn fill_cache(&self, rows: &Table) -> Result<()> {
        self.table.scan_batches(ScanOptions::default())?.try_for_each(|batch| batch.map(drop))?;
        let mut entries = rows.iter(&ReadOptions::default())?;
        entries.seek_to_first()?;
        while entries.valid() {
            entries.next()?;
        }
        Ok(())
    }

    fn sst_bytes(&self) -> u64 {
        sst_bytes(&self.database)
    }

    /// Operations a second of one thread.
    fn for_a_while(&self, operation: impl FnMut(u64) -> Result<()>) -> Result<f64> {
        for_so_long(self.seconds(), operation)
    }

    fn seconds(&self) -> f64 {
        self.scaled(SECONDS)
    }

    /// So many seconds, or fewer where there are few rows.
    fn scaled(&self, seconds: f64) -> f64 {
        seconds.min(seconds * self.settings.scale * 10.0)
    }

    /// Q3 and Q4, in turns with those of the table that stays compacted.
    fn scans(&self, when: &str, settled: &Table) -> Result<Scans> {
        let in_turns = |query| {
            let (mut times, mut beside) = (self.times(&self.table, query, 0)?, self.times(settled, query, 0)?);
            for _ in 0..SCANS {
                self.time(settled, query, &mut beside)?;
                self.time(&self.table, query, &mut times)?;
            }
            times.figures(&beside)
        };
        self.told(when, Scans { q3: in_turns(Query::Q3)?, q4: in_turns(Query::Q4)? })
    }

    /// Likewise, but one after the other while rows are inserted, and how many are a second; those of the other table
    /// come before and after, when none are.
    fn scans_while_writing(&self, settled: &Table) -> Result<(Scans, f64)> {
        let (seconds, mut inserted, mut written_for) = (self.scaled(SECONDS_WHILE_WRITING), 0, 0.0);
        let mut while_writing = |query| {
            let (mut times, mut beside) = (self.times(&self.table, query, 0)?, self.times(settled, query, SCANS / 2)?);
            let started = Instant::now();
            inserted = self.while_writing(inserted, || {
                while started.elapsed().as_secs_f64() < seconds {
                    self.time(&self.table, query, &mut times)?;
                }
                Ok(())
            })?;
            written_for += started.elapsed().as_secs_f64();
            (0..SCANS / 2).try_for_each(|_| self.time(settled, query, &mut beside))?;
            times.figures(&beside)
        };
        let scans = Scans { q3: while_writing(Query::Q3)?, q4: while_writing(Query::Q4)? };
        let written = inserted as f64 / written_for;
        self.database.wait_idle()?;
        self.tell(format_args!("{written:.0} rows/s inserted"));
        Ok((self.told("while writing", scans)?, written))
    }

    /// Those of so many scans, after one that fills the cache.
    fn times(&self, table: &Table, query: Query, scans: usize) -> Result<ScanTimes> {
        let mut times = ScanTimes::default();
        self.time(table, query, &mut times)?;
        let first = times.milliseconds.pop().unwrap_or_default();
        times = ScanTimes { first, ..ScanTimes::default() };
        (0..scans).try_for_each(|_| self.time(table, query, &mut times))?;
        Ok(times)
    }

    fn told(&self, when: &str, scans: Scans) -> Result<Scans> {
        let line = |scan: &ScanFigures| {
            let ScanFigures { milliseconds, first, passed_through_percent, over_compacted } = scan;
            format!(
                "{:.1} ms, first {first:.1} ({passed_through_percent:.1} % passed through, {over_compacted:.2}x)",
                milliseconds.median
            )
        };
        self.tell(format_args!("{when}: Q3 {}, Q4 {}", line(&scans.q3), line(&scans.q4)));
        Ok(scans)
    }

    fn time(&self, table: &Table, query: Query, times: &mut ScanTimes) -> Result<()> {
        let started = Instant::now();
        let answers = self.scan(table, query, &mut times.reads)?.len();
        times.milliseconds.push(started.elapsed().as_secs_f64() * 1e3);
        if answers == query.columns().len() { Ok(()) } else { Err("a scan gave another number of answers".into()) }
    }

    fn scan(&self, table: &Table, query: Query, reads: &mut ReadCounters) -> Result<Vec<i64>> {
        let (from, to) = query.keys();
        let step = (to - from) / self.threads as u64;
        let part = |thread: u64| {
            let last = thread + 1 == self.threads as u64;
            scan_part(table, query, (from + thread * step, if last { to } else { from + (thread + 1) * step }))
        };
        let parts: Vec<Result<(Vec<i64>, ReadCounters)>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..self.threads as u64).map(|thread| scope.spawn(move || part(thread))).collect();
            let own = part(0);
            let others =
                threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a scan panicked".into())));
            std::iter::once(own).chain(others).collect()
        });
        let mut answers = Vec::new();
        for part in parts {
            let (answer, counters) = part?;
            *reads += counters;
            answers.push(answer);
        }
        Ok(query.join(&answers))
    }

    /// Runs something while rows are inserted at the pace, the next of which has this number, and begins when one was;
    /// the number of the next one then.
    fn while_writing(&self, first: u64, run: impl FnOnce() -> Result<()>) -> Result<u64> {
        let (done, (begins, begun)) = (AtomicBool::new(false), mpsc::channel());
        std::thread::scope(|scope| {
            let done = &done;
            let writer = scope.spawn(move || {
                let (started, mut next) = (Instant::now(), first);
                while !done.load(Ordering::Relaxed) {
                    while next - first <= (started.elapsed().as_secs_f64() * PACE as f64) as u64 {
                        insert(&self.table, self.rows + next)?;
                        next += 1;
                    }
                    begins.send(())?;
                    std::thread::park_timeout(Duration::from_millis(1));
                }
                Ok::<u64, Box<dyn std::error::Error + Send + Sync>>(next)
            });
            // Nobody begins if the writer failed, which is told below.
            let result = if begun.recv().is_ok() { run() } else { Ok(()) };
            done.store(true, Ordering::Relaxed);
            let next = writer.join().map_err(|_| "the writer panicked")?;
            result.and(next)
        })
    }
}

impl HtapReport {
    /// One that failed leaves the figures of ours and of the others standing.
    fn add(&mut self, name: &str, compared: Result<(RivalFigures, OverRival)>, tells: bool) {
        let line = match compared {
            Ok((figures, over)) => {
                let line = format!("{}\n  {}", figures.line(name), over.line(name));
                self.over.insert(name.to_owned(), over);
                self.rivals.insert(name.to_owned(), figures);
                line
            }
            Err(error) => {
                self.failed.insert(name.to_owned(), error.to_string());
                format!("{name} failed: {error}")
            }
        };
        if tells {
            eprintln!("  {line}");
        }
    }

    /// The report as a person reads it.
    pub fn table(&self) -> String {
        let mut out = format!(
            "both halves of a workload: {} rows of {COLUMNS} columns, {:.0} MB, {} threads\n  {}\n",
            self.rows,
            self.sst_bytes as f64 / 1e6,
            self.threads,
            self.layout.replace('\n', "\n  ")
        );
        for (name, rate) in [
            ("load, until idle", self.load),
            ("Q1 single inserts", self.q1_inserts),
            ("Q2 whole rows by key", self.q2_points),
            ("Q5 one column of one row", self.q5_updates),
        ] {
            out += &format!("  {name:<26} {rate:>10.0} a second\n");
        }
        let Spread { median, least, greatest, .. } = self.q2_over_rows;
        out += &format!("  Q2 over the same of row levels  {median:.2}x as long ({least:.2} to {greatest:.2})\n");
        let times = [
            ("compacted", &self.compacted),
            ("a tenth updated", &self.updated),
            ("while writing", &self.while_writing),
            ("a twentieth new", &self.inserted),
        ];
        out += &format!("  {:<26} {:>10.0} a second\n", "inserted while scanning", self.written);
        for (when, scans) in times {
            for (name, scan) in [("Q3", &scans.q3), ("Q4", &scans.q4)] {
                let Spread { median, least, greatest, .. } = scan.milliseconds;
                out += &format!(
                    "  {name} {when:<22} {median:>8.1} ms ({least:.1} to {greatest:.1}, first {:.1}), {:.2}x, {:.1} % passed \
                     through\n",
                    scan.first, scan.over_compacted, scan.passed_through_percent
                );
            }
        }
        for (name, figures) in &self.rivals {
            out += &format!("  {}\n", figures.line(name));
        }
        for (name, over) in &self.over {
            out += &format!("  {}\n", over.line(name));
        }
        for (name, why) in &self.failed {
            out += &format!("  {name}: no figures, since it failed: {why}\n");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::laser::{Aggregate, HybridTable};

    /// A table in memory, which answers as a rival must.
    struct Twin {
        rows: Rows,
        values: BTreeMap<u64, Vec<i32>>,
    }

    fn twin(_: &Path, rows: Rows, count: u64, _: u64) -> Result<Box<dyn HybridTable>> {
        let mut twin = Twin { rows, values: BTreeMap::new() };
        (0..count).try_for_each(|index| twin.insert(index))?;
        Ok(Box::new(twin))
    }

    impl HybridTable for Twin {
        fn insert(&mut self, index: u64) -> Result<()> {
            let values = (1..=self.rows.columns).map(|column| self.rows.value(index, column));
            self.values.insert(self.rows.key(index), values.collect());
            Ok(())
        }

        fn update(&mut self, index: u64, column: usize, value: i32) -> Result<()> {
            self.values.get_mut(&self.rows.key(index)).ok_or("no such row")?[column - 1] = value;
            Ok(())
        }

        fn point(&mut self, index: u64, projection: &[usize], _: &mut ReadCounters) -> Result<i64> {
            let row = self.values.get(&self.rows.key(index)).ok_or("no such row")?;
            Ok(projection.iter().map(|&column| i64::from(row[column - 1])).sum())
        }

        fn scan(
            &mut self,
            (from, to): (u64, u64),
            projection: &[usize],
            aggregate: Aggregate,
            _: &mut ReadCounters,
        ) -> Result<i64> {
            let of = |column: usize| self.values.range(from..to).map(move |(_, row)| i64::from(row[column - 1]));
            let answers = projection.iter().map(|&column| match aggregate {
                Aggregate::Maxima => of(column).max().unwrap_or(i64::MIN),
                Aggregate::Sums => of(column).sum(),
            });
            Ok(answers.sum())
        }

        fn remove(self: Box<Self>) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_small_table_answers_all_queries() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let settings = HtapSettings { scale: 0.002, progress: false, ..HtapSettings::new(directory.path()) };
        let rival = HybridRival { name: "twin", load: &twin };
        let broken = HybridRival { name: "broken", load: &|_, _, _, _| Err("it does not start".into()) };
        let report = run(&settings, &[broken, rival]).expect("experiment");
        assert!(!report.rivals.contains_key("broken") && report.table().contains("broken: no figures"));
        assert!(report.rivals["twin"].q1_inserts > 0.0 && report.over["twin"].q3 > 0.0, "{}", report.table());
        assert!(report.table().contains("times as fast as twin: Q1 "), "{}", report.table());
        assert_eq!(report.rows, 20_000);
        assert_eq!(report.compacted.q3.passed_through_percent, 100.0, "{}", report.table());
        assert!(report.updated.q4.passed_through_percent < 95.0, "{}", report.table());
        assert!(
            report.q2_points > 0.0 && report.q2_over_rows.least > 0.0 && report.table().contains("Q4 while writing")
        );
        let encoding = run(&HtapSettings { columnar_level0: true, ..settings }, &[]).expect("experiment");
        assert!(encoding.table().contains("L0 tiered: * columnar"), "{}", encoding.table());
    }
}
