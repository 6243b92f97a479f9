//! Point reads of recent data while everything moves (dLSM §VII-B1): what the compaction buffer is for.
//!
//! 1. Rows of 1 KB are loaded and compacted; then updates over all keys fill the upper levels. The data are 20 times the cache, what
//!    is read is nine tenths of it, reads pass the page cache by.
//! 2. One thread updates 1,000 rows a second, drawn from all keys alike. Another reads rows, as fast as it can:
//!    *range-hot*, all rows of one range of keys; *zipfian*, rows by how lately they were updated, Zipfian with 0.99; *uniform*, the rows
//!    updated last, all alike.
//! 3. The cache is warmed by the same reads first. Then, second by second: reads, the share of them that needed no block from the disk,
//!    and how many cached blocks compactions made useless, by level.
//! 4. Two regimes: random reads limited to 300 a second, as on the hard disks of the paper, by [`SlowDisk`]; and the disk as it is.
//! 5. Contenders: leveled; two-phase, without and with the buffer; stepped merge (Jagadish et al. 1997): r runs a level, never merged within it.
//!    Leveled again, where compactions cache the successors of cached blocks, or all that they write. And read-only: leveled, without the updates. Each has a database of its own, in its turn.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mycelium_engine::{
    Background, Buffering, CompactionCaching, Database, Durability, LeveledOptions, Options, Policy, ReadCounters,
    ReadOptions, Table, TableOptions, TieredOptions, Warm,
};
use mycelium_vfs::LocalDisk;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::bench_disk::BenchDisk;
use crate::distribution::{Chooser, Skew, YCSB_THETA};
use crate::keys::{KeyOrder, ValueKind, Values, key};
use crate::plot::{Axis, LinePlot, Series, Stroke};
use crate::slow_disk::SlowDisk;
use crate::store::Result;

/// Bytes of the block cache at scale 1.
const CACHE_BYTES: u64 = 32 << 20;
/// The data over the cache.
const DATA_TO_CACHE: u64 = 20;
const ROW_BYTES: u64 = 1_000;
/// Of the cache, what is read, in percent.
const HOT_PERCENT: u64 = 90;
const UPDATES_PER_SECOND: u64 = 1_000;
const FANOUT: u64 = 10;
/// Level 0 and three below, as in the paper.
const LEVELS: usize = 4;
const SLOW_READS_PER_SECOND: u64 = 300;

/// How it is run.
#[derive(Clone, Debug)]
pub struct BufferSettings {
    /// Where databases are made and removed.
    pub directory: PathBuf,
    /// Of cache and data.
    pub scale: f64,
    /// Seconds that each contender is measured.
    pub seconds: u64,
    /// Only these contenders; all if there are none.
    pub contenders: Vec<String>,
    /// Only these cells, `slowed/range-hot` and so on: those whose names contain one of them; all if there are none.
    pub cells: Vec<String>,
    /// Where plots are written, as SVG.
    pub svg_directory: Option<PathBuf>,
    /// Seed of all draws.
    pub seed: u64,
    /// Whether to tell what is being done.
    pub progress: bool,
}

impl BufferSettings {
    /// The settings of the claims.
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_path_buf(),
            scale: 1.0,
            seconds: 120,
            contenders: Vec::new(),
            cells: Vec::new(),
            svg_directory: None,
            seed: 1,
            progress: true,
        }
    }

    fn cache_bytes(&self) -> u64 {
        ((CACHE_BYTES as f64 * self.scale) as u64).max(256 << 10)
    }

    fn rows(&self) -> u64 {
        self.cache_bytes() * DATA_TO_CACHE / ROW_BYTES
    }

    fn hot_rows(&self) -> u64 {
        self.cache_bytes() * HOT_PERCENT / 100 / ROW_BYTES
    }
}

/// Which rows are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reads {
    RangeHot,
    Zipfian,
    Uniform,
}

impl Reads {
    const ALL: [Self; 3] = [Self::RangeHot, Self::Zipfian, Self::Uniform];

    fn name(self) -> &'static str {
        match self {
            Self::RangeHot => "range-hot",
            Self::Zipfian => "zipfian",
            Self::Uniform => "uniform",
        }
    }
}

/// Who is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Contender {
    ReadOnly,
    Leveled,
    TwoPhase,
    Buffer,
    SteppedMerge,
    Successors,
    WarmEverything,
}

impl Contender {
    const ALL: [Self; 7] = [
        Self::ReadOnly,
        Self::Leveled,
        Self::TwoPhase,
        Self::Buffer,
        Self::SteppedMerge,
        Self::Successors,
        Self::WarmEverything,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Leveled => "leveled",
            Self::TwoPhase => "two-phase",
            Self::Buffer => "buffer",
            Self::SteppedMerge => "stepped-merge",
            Self::Successors => "successors",
            Self::WarmEverything => "warm-everything",
        }
    }

    fn caching(self) -> CompactionCaching {
        let warm = match self {
            Self::Successors => Warm::Successors,
            Self::WarmEverything => Warm::Everything,
            _ => Warm::Nothing,
        };
        CompactionCaching { warm, ..CompactionCaching::default() }
    }

    /// A write buffer is a file and a tenth of level 1; the last level takes about all data.
    fn table_options(self, data_bytes: u64) -> TableOptions {
        let base_level_bytes = data_bytes / (FANOUT * FANOUT);
        let target_file_size = (base_level_bytes / 8).max(64 << 10);
        let leveled = LeveledOptions {
            base_level_bytes,
            fanout: FANOUT as f64,
            level_count: LEVELS,
            target_file_size,
            max_compaction_bytes: 25 * target_file_size,
            dynamic_levels: false,
            ..LeveledOptions::default()
        };
        let tiered = TieredOptions {
            runs_per_level: FANOUT as usize,
            level_count: LEVELS,
            target_file_size,
            max_space_amplification_percent: 100_000,
        };
        TableOptions {
            policy: match self {
                Self::ReadOnly | Self::Leveled | Self::Successors | Self::WarmEverything => Policy::Leveled(leveled),
                Self::TwoPhase | Self::Buffer => Policy::TwoPhase(leveled),
                Self::SteppedMerge => Policy::Tiered(tiered),
            },
            buffer: if self == Self::Buffer { Buffering::Full } else { Buffering::Off },
            // The paper's 15, for all, so that the buffer's is no advantage.
            filter_bits: vec![if self == Self::Buffer { 10 } else { 15 }],
            ..TableOptions::default()
        }
    }
}

/// One second.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Second {
    /// Rows read.
    pub reads: u64,
    /// Of the blocks that they needed, those that were cached, in percent.
    pub hit_percent: f64,
    /// Cached blocks that compactions made useless, by level.
    pub invalidated: Vec<u64>,
}

/// A contender under one workload.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct BufferRun {
    /// Of the blocks needed, those that were cached, in percent, over all seconds.
    pub hit_percent: f64,
    /// Rows read a second.
    pub reads_per_second: f64,
    /// The second with the fewest reads, in percent of the mean.
    pub worst_second_percent: f64,
    /// Blocks from the disk per read.
    pub blocks_read_per_lookup: f64,
    /// Tables of the buffer considered per read.
    pub segments_per_lookup: f64,
    /// Microseconds.
    pub p50_micros: f64,
    /// Microseconds.
    pub p99_micros: f64,
    /// Cached blocks that compactions made useless, a second.
    pub invalidated_per_second: f64,
    /// Bytes that flushes and compactions wrote for each byte updated, meanwhile.
    pub write_amplification: f64,
    /// The most bytes that the compaction buffer took.
    pub buffer_bytes: u64,
    /// All seconds.
    pub seconds: Vec<Second>,
}

/// All that the experiment showed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct BufferReport {
    /// Rows of the table.
    pub rows: u64,
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// By regime, workload and contender.
    pub runs: BTreeMap<String, BTreeMap<String, BTreeMap<String, BufferRun>>>,
}

/// Runs the experiment.
pub fn run(settings: &BufferSettings) -> Result<BufferReport> {
    let mut report =
        BufferReport { rows: settings.rows(), cache_bytes: settings.cache_bytes(), ..BufferReport::default() };
    for (regime, limit) in [("slowed", Some(SLOW_READS_PER_SECOND)), ("disk", None)] {
        for reads in Reads::ALL {
            let cell = format!("{regime}/{}", reads.name());
            if !settings.cells.is_empty() && !settings.cells.iter().any(|wanted| cell.contains(wanted.as_str())) {
                continue;
            }
            let wanted = |contender: &Contender| {
                settings.contenders.is_empty() || settings.contenders.iter().any(|name| name == contender.name())
            };
            for contender in Contender::ALL.into_iter().filter(wanted) {
                let run = Bed::create(settings, contender, reads)?.measure(limit)?;
                if settings.progress {
                    eprintln!("  {cell} {}", run.line(contender.name()));
                }
                let workloads = report.runs.entry(regime.to_owned()).or_default();
                workloads.entry(reads.name().to_owned()).or_default().insert(contender.name().to_owned(), run);
            }
        }
    }
    if let Some(directory) = &settings.svg_directory {
        report.plot(directory)?;
    }
    Ok(report)
}

/// The keys updated last, in a ring.
struct Recent {
    keys: Vec<AtomicU64>,
    updates: AtomicU64,
}

impl Recent {
    fn new(capacity: u64) -> Self {
        Self { keys: (0..capacity).map(|_| AtomicU64::new(0)).collect(), updates: AtomicU64::new(0) }
    }

    fn note(&self, row: u64) {
        let at = self.updates.load(Ordering::Relaxed);
        self.keys[(at % self.keys.len() as u64) as usize].store(row, Ordering::Relaxed);
        self.updates.store(at + 1, Ordering::Release);
    }

    /// The row updated before `rank` others, as far as the ring reaches.
    fn nth_newest(&self, rank: u64) -> u64 {
        let updates = self.updates.load(Ordering::Acquire);
        let rank = rank % updates.min(self.keys.len() as u64).max(1);
        let at = updates.saturating_sub(1 + rank) % self.keys.len() as u64;
        self.keys[at as usize].load(Ordering::Relaxed)
    }
}

/// A loaded database and what is done to it.
struct Bed<'a> {
    settings: &'a BufferSettings,
    contender: Contender,
    reads: Reads,
    directory: PathBuf,
    disk: SlowDisk,
    database: Database,
    table: Table,
    values: Values,
    recent: Recent,
    chooser: Chooser,
    versions: AtomicU64,
}

/// What the reader has done so far.
#[derive(Default)]
struct Progress {
    reads: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    segments: AtomicU64,
}

impl Progress {
    fn take(&self) -> [u64; 4] {
        [&self.reads, &self.hits, &self.misses, &self.segments].map(|counter| counter.load(Ordering::Relaxed))
    }
}

impl<'a> Bed<'a> {
    fn create(settings: &'a BufferSettings, contender: Contender, reads: Reads) -> Result<Self> {
        let directory = settings.directory.join(format!("buffer-{}-{}", contender.name(), std::process::id()));
        fs::create_dir_all(&directory)?;
        let disk = SlowDisk::new(Arc::new(BenchDisk::new(Arc::new(LocalDisk), true, false)));
        let rows = settings.rows();
        let options = contender.table_options(rows * ROW_BYTES);
        let database = Database::open(
            &directory,
            Options {
                disk: Arc::new(disk.clone()),
                memory_budget: usize::try_from((rows * ROW_BYTES / (FANOUT * FANOUT * 4)).max(128 << 10))?,
                cache_bytes: settings.cache_bytes(),
                buffer_bytes: rows * ROW_BYTES / 4,
                compaction_caching: contender.caching(),
                background: Background::Threads(2),
                ..Options::default()
            },
        )?;
        let table = database.create_table("rows", options)?;
        let values = Values::new(ValueKind::Random, ROW_BYTES as usize - crate::keys::KEY_LEN);
        let recent = Recent::new(rows);
        let chooser = Chooser::new(Skew::Zipfian(YCSB_THETA), rows);
        let versions = AtomicU64::new(1);
        let bed =
            Self { settings, contender, reads, directory, disk, database, table, values, recent, chooser, versions };
        bed.load()?;
        Ok(bed)
    }

    fn put(&self, row: u64, value: &mut Vec<u8>) -> Result<()> {
        value.clear();
        self.values.fill(row, self.versions.fetch_add(1, Ordering::Relaxed), value);
        self.table.put(&key(row, KeyOrder::Ordered), value, Durability::Buffered)?;
        Ok(())
    }

    /// Step 1 of the module.
    fn load(&self) -> Result<()> {
        let (rows, mut value) = (self.settings.rows(), Vec::new());
        for row in 0..rows {
            self.put(row, &mut value)?;
        }
        self.database.flush()?;
        self.database.compact(&self.table)?;
        let mut rng = SmallRng::seed_from_u64(self.settings.seed);
        // Levels 1 and 2, and part of a round.
        for _ in 0..rows * 15 / 100 {
            self.update(&mut rng, &mut value)?;
        }
        self.database.flush()?;
        Ok(())
    }

    fn update(&self, rng: &mut SmallRng, value: &mut Vec<u8>) -> Result<()> {
        let row = rng.random_range(0..self.settings.rows());
        self.put(row, value)?;
        self.recent.note(row);
        Ok(())
    }

    fn draw(&self, rng: &mut SmallRng) -> u64 {
        let (rows, hot) = (self.settings.rows(), self.settings.hot_rows());
        match self.reads {
            Reads::RangeHot => rows / 3 + rng.random_range(0..hot),
            Reads::Zipfian => self.recent.nth_newest(self.chooser.rank(rng)),
            Reads::Uniform => self.recent.nth_newest(rng.random_range(0..hot)),
        }
    }

    /// Steps 2 to 4.
    fn measure(self, limit: Option<u64>) -> Result<BufferRun> {
        let (done, progress) = (AtomicBool::new(false), Progress::default());
        let run = std::thread::scope(|scope| {
            let writer = scope.spawn(|| match self.contender {
                Contender::ReadOnly => Ok(()),
                _ => self.write(&done),
            });
            let reader = scope.spawn(|| self.read(&done, &progress));
            // Warm once every hot block could have been read several times.
            while progress.reads.load(Ordering::Relaxed) < 8 * self.settings.hot_rows() && !reader.is_finished() {
                std::thread::park_timeout(Duration::from_millis(10));
            }
            self.disk.limit(limit);
            let run = self.watch(&progress);
            done.store(true, Ordering::Relaxed);
            self.disk.limit(None);
            writer.join().map_err(|_| "the writer panicked")??;
            let mut latencies = reader.join().map_err(|_| "the reader panicked")??;
            let mut run = run?;
            latencies.sort_unstable();
            let at =
                |share: f64| latencies.get((latencies.len() as f64 * share) as usize).map_or(0.0, |&n| n as f64 / 1e3);
            (run.p50_micros, run.p99_micros) = (at(0.5), at(0.99));
            Result::Ok(run)
        })?;
        self.database.close()?;
        fs::remove_dir_all(&self.directory)?;
        Ok(run)
    }

    fn write(&self, done: &AtomicBool) -> Result<()> {
        let mut rng = SmallRng::seed_from_u64(self.settings.seed ^ 0x77);
        let (started, mut written, mut value) = (Instant::now(), 0, Vec::new());
        while !done.load(Ordering::Relaxed) {
            while written < (started.elapsed().as_secs_f64() * UPDATES_PER_SECOND as f64) as u64 {
                self.update(&mut rng, &mut value)?;
                written += 1;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Reads until `done`; nanoseconds of every sixteenth read.
    fn read(&self, done: &AtomicBool, progress: &Progress) -> Result<Vec<u64>> {
        let mut rng = SmallRng::seed_from_u64(self.settings.seed ^ 0x99);
        let mut latencies = Vec::new();
        let options = ReadOptions::default();
        for count in 0u64.. {
            if done.load(Ordering::Relaxed) {
                break;
            }
            let key = key(self.draw(&mut rng), KeyOrder::Ordered);
            let mut counters = ReadCounters::default();
            let started = (count % 16 == 0).then(Instant::now);
            if self.table.get_with(&key, &options, &mut counters)?.is_none() {
                return Err("a row is not there".into());
            }
            latencies.extend(started.map(|started| started.elapsed().as_nanos() as u64));
            progress.hits.fetch_add(counters.block_cache_hits, Ordering::Relaxed);
            progress.misses.fetch_add(counters.blocks_read, Ordering::Relaxed);
            progress.segments.fetch_add(counters.segments_considered, Ordering::Relaxed);
            progress.reads.fetch_add(1, Ordering::Relaxed);
        }
        Ok(latencies)
    }

    /// Takes stock every second.
    fn watch(&self, progress: &Progress) -> Result<BufferRun> {
        let (mut seconds, mut buffer_bytes) = (Vec::new(), 0);
        let (first, before) = (progress.take(), self.database.metrics());
        let (mut last, mut invalidated) = (first, before.invalidated_blocks_by_level.clone());
        let started = Instant::now();
        for second in 1..=self.settings.seconds {
            let until = started + Duration::from_secs(second);
            while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                std::thread::park_timeout(left);
            }
            let (now, metrics) = (progress.take(), self.database.metrics());
            let levels = metrics.invalidated_blocks_by_level.iter().zip(&invalidated).take(LEVELS);
            let invalidated_now = levels.map(|(now, before)| now - before).collect();
            let (hits, misses) = (now[1] - last[1], now[2] - last[2]);
            seconds.push(Second {
                reads: now[0] - last[0],
                hit_percent: percent(hits, hits + misses),
                invalidated: invalidated_now,
            });
            buffer_bytes = buffer_bytes.max(metrics.tables.iter().map(|table| table.buffer.bytes).sum());
            (last, invalidated) = (now, metrics.invalidated_blocks_by_level.clone());
        }
        let after = self.database.metrics();
        let elapsed = started.elapsed().as_secs_f64();
        let written = |metrics: &mycelium_engine::Metrics| {
            metrics.flush_bytes + metrics.compaction_written_by_level.iter().sum::<u64>()
        };
        let [reads, hits, misses, segments]: [u64; 4] = std::array::from_fn(|i| last[i] - first[i]);
        let mean = reads as f64 / self.settings.seconds as f64;
        let least = seconds.iter().map(|second| second.reads).min().unwrap_or(0);
        Ok(BufferRun {
            hit_percent: percent(hits, hits + misses),
            reads_per_second: reads as f64 / elapsed,
            worst_second_percent: 100.0 * least as f64 / mean.max(1.0),
            blocks_read_per_lookup: misses as f64 / (reads as f64).max(1.0),
            segments_per_lookup: segments as f64 / (reads as f64).max(1.0),
            invalidated_per_second: seconds.iter().flat_map(|second| &second.invalidated).sum::<u64>() as f64 / elapsed,
            write_amplification: (written(&after) - written(&before)) as f64
                / (elapsed * (UPDATES_PER_SECOND * ROW_BYTES) as f64),
            buffer_bytes,
            seconds,
            ..BufferRun::default()
        })
    }
}

fn percent(part: u64, all: u64) -> f64 {
    if all == 0 { 100.0 } else { 100.0 * part as f64 / all as f64 }
}

impl BufferRun {
    fn line(&self, name: &str) -> String {
        format!(
            "{name:<14} hits {:>5.1} %  {:>8.0} reads/s  worst second {:>3.0} %  p99 {:>7.0} us  {:>6.1} invalidated/s  {:.3} \
             blocks, {:.2} segments a read  written {:.1}x  buffer {:.0} MB",
            self.hit_percent,
            self.reads_per_second,
            self.worst_second_percent,
            self.p99_micros,
            self.invalidated_per_second,
            self.blocks_read_per_lookup,
            self.segments_per_lookup,
            self.write_amplification,
            self.buffer_bytes as f64 / 1e6,
        )
    }
}

impl BufferReport {
    /// The report as a person reads it.
    pub fn table(&self) -> String {
        let mut out = format!(
            "compaction buffer: {} rows of {ROW_BYTES} bytes, cache {:.1} MB, {UPDATES_PER_SECOND} updates a second\n",
            self.rows,
            self.cache_bytes as f64 / 1e6
        );
        for (regime, workloads) in &self.runs {
            for (workload, runs) in workloads {
                out += &format!("  {regime}, {workload}\n");
                for contender in Contender::ALL {
                    if let Some(run) = runs.get(contender.name()) {
                        out += &format!("    {}\n", run.line(contender.name()));
                    }
                }
            }
        }
        out
    }

    /// Writes hit ratios over time, a plot for each regime and workload.
    fn plot(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory)?;
        for (regime, workloads) in &self.runs {
            for (workload, runs) in workloads {
                let series = Contender::ALL.iter().enumerate().filter_map(|(colour, contender)| {
                    let run = runs.get(contender.name())?;
                    let points =
                        run.seconds.iter().enumerate().map(|(at, second)| (at as f64 + 1.0, second.hit_percent));
                    let name = contender.name().to_owned();
                    Some(Series { name, points: points.collect(), stroke: Stroke::Solid, colour })
                });
                let plot = LinePlot {
                    title: format!("Latest {workload}, {regime}"),
                    note: format!("{UPDATES_PER_SECOND} updates/s of {ROW_BYTES} bytes, free-running point reads"),
                    x: Axis::linear("seconds"),
                    y: Axis::linear("blocks found in the cache, %"),
                    series: series.collect(),
                };
                fs::write(directory.join(format!("buffer-{regime}-{workload}.svg")), plot.to_svg())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_database_is_measured() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let settings = BufferSettings {
            scale: 0.02,
            seconds: 1,
            cells: vec!["disk/zipfian".into()],
            progress: false,
            ..BufferSettings::new(directory.path())
        };
        let report = run(&settings).expect("experiment");
        let runs = &report.runs["disk"]["zipfian"];
        assert_eq!(runs.len(), Contender::ALL.len());
        assert!(runs.values().all(|run| run.reads_per_second > 0.0), "{}", report.table());
        assert!(runs["buffer"].segments_per_lookup > 0.0, "{}", report.table());
    }
}
