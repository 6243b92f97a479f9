//! The workloads, and the loop that drives them.
//!
//! A phase is one workload run by some threads against an open store. [`run_phase`]:
//!
//! 1. a warm-up (reading phases only): the same operations, not measured;
//! 2. resets the peak of memory, reads the counters;
//! 3. every thread runs its operations until its share is done or the time is up, timing every n-th of them;
//! 4. writing phases then flush and wait until no compaction is due: `settle_seconds`;
//! 5. reads the counters again. Amplification covers 3 and 4.
//!
//! Rates are the sum of each thread's own rate, so that a thread that ends late does not dilute the others.

mod db_bench;
mod ycsb;

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::keys::{KEY_LEN, KeyOrder, ValueKind, Values};
use crate::measure::{Counters, Latencies, LatencySummary, Usage, peak_memory, reset_peak_memory};
use crate::store::{BenchError, KeyValueStore, Result, directory_bytes};

/// What is stored.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Dataset {
    /// Entries that a fill stores.
    pub entries: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// What values are made of.
    pub values: ValueKind,
}

impl Dataset {
    /// Bytes of all keys and values.
    pub fn bytes(&self) -> u64 {
        self.entries * (KEY_LEN + self.value_bytes) as u64
    }
}

/// A workload by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Puts every index once in key order.
    FillSeq,
    /// Puts every index once in random key order, one put a call.
    FillRandom,
    /// As `FillRandom` in batches of 1,000 puts.
    FillBatch,
    /// Puts random stored keys anew.
    Overwrite,
    /// Gets random stored keys.
    ReadRandom,
    /// Gets keys that were never stored and lie between stored ones.
    ReadMissing,
    /// Seeks to a random stored key and reads one entry.
    SeekRandom,
    /// Seeks to a random stored key and reads 100 entries.
    Range100,
    /// Reads every entry in key order.
    Scan,
    /// Gets random stored keys while one more thread overwrites at a fixed rate.
    ReadWhileWriting,
    /// Deletes random stored keys.
    DeleteRandom,
    /// YCSB A: half reads, half updates, Zipfian.
    YcsbA,
    /// YCSB B: 95 % reads, 5 % updates, Zipfian.
    YcsbB,
    /// YCSB C: reads, Zipfian.
    YcsbC,
    /// YCSB D: 95 % reads of the latest, 5 % inserts.
    YcsbD,
    /// YCSB E: 95 % scans of 1 to 100 entries, 5 % inserts, Zipfian.
    YcsbE,
    /// YCSB F: half reads, half read-modify-writes, Zipfian.
    YcsbF,
}

const NAMES: [(Workload, &str); 17] = [
    (Workload::FillSeq, "fillseq"),
    (Workload::FillRandom, "fillrandom"),
    (Workload::FillBatch, "fillbatch"),
    (Workload::Overwrite, "overwrite"),
    (Workload::ReadRandom, "readrandom"),
    (Workload::ReadMissing, "readmissing"),
    (Workload::SeekRandom, "seekrandom"),
    (Workload::Range100, "range100"),
    (Workload::Scan, "scan"),
    (Workload::ReadWhileWriting, "readwhilewriting"),
    (Workload::DeleteRandom, "deleterandom"),
    (Workload::YcsbA, "ycsb-a"),
    (Workload::YcsbB, "ycsb-b"),
    (Workload::YcsbC, "ycsb-c"),
    (Workload::YcsbD, "ycsb-d"),
    (Workload::YcsbE, "ycsb-e"),
    (Workload::YcsbF, "ycsb-f"),
];

impl Workload {
    /// The word used on the command line and in reports.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(workload, _)| *workload == self).map_or("?", |(_, name)| name)
    }

    /// All names, for help texts.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(_, name)| *name)
    }

    /// Whether it stores the data set that other workloads need.
    pub fn fills(self) -> bool {
        matches!(self, Self::FillSeq | Self::FillRandom | Self::FillBatch)
    }

    /// Whether it only writes; such a phase ends with the store settled, and runs a number of operations, not a time.
    pub fn only_writes(self) -> bool {
        self.fills() || matches!(self, Self::Overwrite | Self::DeleteRandom)
    }
}

impl FromStr for Workload {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Self> {
        let found = NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(workload, _)| *workload).ok_or_else(|| {
            let known: Vec<_> = Self::names().collect();
            format!("there is no workload {text:?}; there are {}", known.join(", ")).into()
        })
    }
}

/// A workload with its threads. As text: `readrandom` or, with two threads, `readrandom@2`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Phase {
    /// What the threads do.
    pub workload: Workload,
    /// How many threads do it, at least one.
    pub threads: u32,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.workload.name())?;
        if self.threads > 1 {
            write!(f, "@{}", self.threads)?;
        }
        Ok(())
    }
}

impl FromStr for Phase {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Self> {
        let (name, threads) = match text.split_once('@') {
            Some((name, threads)) => {
                (name, threads.parse().ok().filter(|&n| n > 0).ok_or_else(|| format!("bad thread count in {text:?}"))?)
            }
            None => (text, 1),
        };
        Ok(Self { workload: name.parse()?, threads })
    }
}

/// How long phases run and how the writer of `readwhilewriting` behaves.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Pace {
    /// Seconds of every phase that is not a fill, overwrite or delete.
    pub seconds: f64,
    /// Seconds of its warm-up.
    pub warmup_seconds: f64,
    /// Key and value bytes that the writer of `readwhilewriting` puts in a second: a fixed rate, so that a faster store
    /// does not have to serve its readers beside more writes. 0 is no limit.
    pub writer_bytes_per_second: u64,
    /// Seed of every random draw.
    pub seed: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { seconds: 5.0, warmup_seconds: 1.0, writer_bytes_per_second: 5_000_000, seed: 1 }
    }
}

/// What one phase showed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PhaseResult {
    /// The phase, as text.
    pub phase: String,
    /// Operations done; entries for `scan`.
    pub operations: u64,
    /// Wall seconds of the operations.
    pub seconds: f64,
    /// Operations (entries for `scan`) in a second.
    pub rate: f64,
    /// Seconds from the last operation until no compaction was due (writing phases).
    pub settle_seconds: Option<f64>,
    /// Operations in a second with the settling counted in (writing phases).
    pub settled_rate: Option<f64>,
    /// Latency of one operation.
    pub latency: Option<LatencySummary>,
    /// Puts of the background writer of `readwhilewriting`.
    pub background_writes: u64,
    /// Key and value bytes that were put (or, for a delete, named).
    pub user_bytes_written: u64,
    /// Key and value bytes that were returned.
    pub user_bytes_read: u64,
    /// What the process used.
    pub usage: Usage,
    /// Bytes written for each byte put, log included.
    pub write_amplification: Option<f64>,
    /// Bytes read for each byte returned; 0 where the page cache was mapped.
    pub read_amplification: Option<f64>,
    /// Bytes of the store's files after the phase.
    pub disk_bytes: u64,
    /// Bytes of the store's files for each byte of the data set.
    pub space_amplification: f64,
    /// Peak of resident memory during the phase, in bytes.
    pub peak_memory_bytes: u64,
}

/// The data set of a store and how much of it is there; shared by all phases of a process.
pub struct State {
    dataset: Dataset,
    order: KeyOrder,
    values: Values,
    /// Indexes below this were put.
    inserted: AtomicU64,
    /// Set by deletes: from then on a key may be missing.
    holes: AtomicBool,
}

impl State {
    /// The state of a store that holds the whole data set (`filled`) or nothing.
    pub fn new(dataset: Dataset, order: KeyOrder, filled: bool) -> Self {
        let values = Values::new(dataset.values, dataset.value_bytes);
        let inserted = AtomicU64::new(if filled { dataset.entries } else { 0 });
        Self { dataset, order, values, inserted, holes: AtomicBool::new(false) }
    }

    fn pair_bytes(&self) -> u64 {
        (KEY_LEN + self.dataset.value_bytes) as u64
    }
}

/// What one operation did.
#[derive(Clone, Copy, Default)]
struct Step {
    /// What the rate counts.
    units: u64,
    bytes_written: u64,
    bytes_read: u64,
}

/// One thread's share of a workload.
trait Worker: Send {
    /// Does the next operation; `None` when this thread's share is done.
    fn step(&mut self) -> Result<Option<Step>>;
}

/// How a workload is driven.
struct Plan<'a> {
    workers: Vec<Box<dyn Worker + 'a>>,
    /// Runs beside the workers until they end, unmeasured except for its writes.
    background: Option<Box<dyn Worker + 'a>>,
    /// Time one operation out of so many.
    sample_every: u64,
    /// Look at the clock once in so many operations.
    check_every: u64,
}

/// Runs a phase. `directory` is where the store's files lie.
pub fn run_phase(
    store: &dyn KeyValueStore,
    directory: &Path,
    state: &State,
    phase: Phase,
    pace: &Pace,
) -> Result<PhaseResult> {
    let plan = |seed| -> Result<Plan<'_>> {
        match phase.workload {
            Workload::YcsbA
            | Workload::YcsbB
            | Workload::YcsbC
            | Workload::YcsbD
            | Workload::YcsbE
            | Workload::YcsbF => ycsb::plan(store, state, phase, seed),
            _ => db_bench::plan(store, state, phase, pace, seed),
        }
    };
    let only_writes = phase.workload.only_writes();
    if !only_writes && pace.warmup_seconds > 0.0 && phase.workload != Workload::Scan {
        drive(plan(pace.seed ^ 0x5eed)?, Some(pace.warmup_seconds))?;
    }
    reset_peak_memory();
    let before = Counters::now();
    let outcome = drive(plan(pace.seed)?, (!only_writes).then_some(pace.seconds))?;
    let settle_seconds = if only_writes {
        let started = Instant::now();
        store.settle()?;
        Some(started.elapsed().as_secs_f64())
    } else {
        None
    };
    if phase.workload.fills() {
        state.inserted.store(state.dataset.entries, Ordering::Release);
    }
    if phase.workload == Workload::DeleteRandom {
        state.holes.store(true, Ordering::Release);
    }
    let usage = Counters::now().since(&before);
    let disk_bytes = directory_bytes(directory);
    let ratio = |a: u64, b: u64| (b > 0).then(|| a as f64 / b as f64);
    Ok(PhaseResult {
        phase: phase.to_string(),
        operations: outcome.total.units,
        seconds: outcome.seconds,
        rate: outcome.rate,
        settle_seconds,
        settled_rate: settle_seconds.map(|settle| outcome.total.units as f64 / (outcome.seconds + settle)),
        latency: outcome.latency,
        background_writes: outcome.background_writes,
        user_bytes_written: outcome.total.bytes_written,
        user_bytes_read: outcome.total.bytes_read,
        usage,
        write_amplification: ratio(usage.bytes_written, outcome.total.bytes_written),
        read_amplification: ratio(usage.bytes_read, outcome.total.bytes_read),
        disk_bytes,
        space_amplification: disk_bytes as f64 / state.dataset.bytes().max(1) as f64,
        peak_memory_bytes: peak_memory(),
    })
}

struct Outcome {
    total: Step,
    seconds: f64,
    rate: f64,
    latency: Option<LatencySummary>,
    background_writes: u64,
}

struct ThreadOutcome {
    total: Step,
    elapsed: Duration,
    latencies: Latencies,
}

fn drive(plan: Plan<'_>, seconds: Option<f64>) -> Result<Outcome> {
    let Plan { workers, background, sample_every, check_every } = plan;
    let limit = seconds.map(Duration::from_secs_f64);
    let stop = AtomicBool::new(false);
    let barrier = Barrier::new(workers.len());
    let (outcomes, background_total) = std::thread::scope(|scope| {
        let background = background.map(|worker| scope.spawn(|| drive_background(worker, &stop)));
        let threads: Vec<_> = workers
            .into_iter()
            .map(|worker| {
                scope.spawn(|| {
                    barrier.wait();
                    drive_thread(worker, limit, sample_every, check_every)
                })
            })
            .collect();
        let outcomes: Vec<_> = threads.into_iter().map(join).collect();
        stop.store(true, Ordering::Release);
        (outcomes, background.map(join))
    });
    let mut total = Step::default();
    let (mut rate, mut longest) = (0.0, Duration::ZERO);
    let mut latencies = Latencies::new()?;
    for outcome in outcomes {
        let outcome = outcome?;
        add(&mut total, outcome.total);
        rate += outcome.total.units as f64 / outcome.elapsed.as_secs_f64().max(1e-9);
        longest = longest.max(outcome.elapsed);
        latencies.merge(&outcome.latencies)?;
    }
    let mut background_writes = 0;
    if let Some(background) = background_total {
        let background = background?;
        background_writes = background.units;
        total.bytes_written += background.bytes_written;
    }
    Ok(Outcome { total, seconds: longest.as_secs_f64(), rate, latency: latencies.summary(), background_writes })
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err("a workload thread panicked".into()))
}

fn add(total: &mut Step, step: Step) {
    total.units += step.units;
    total.bytes_written += step.bytes_written;
    total.bytes_read += step.bytes_read;
}

fn drive_thread(
    mut worker: Box<dyn Worker + '_>,
    limit: Option<Duration>,
    sample_every: u64,
    check_every: u64,
) -> Result<ThreadOutcome> {
    let mut latencies = Latencies::new()?;
    let mut total = Step::default();
    let started = Instant::now();
    for operation in 0u64.. {
        if operation.is_multiple_of(check_every) && limit.is_some_and(|limit| started.elapsed() >= limit) {
            break;
        }
        let step = if operation.is_multiple_of(sample_every) {
            let before = Instant::now();
            let step = worker.step()?;
            latencies.record(before.elapsed());
            step
        } else {
            worker.step()?
        };
        match step {
            Some(step) => add(&mut total, step),
            None => break,
        }
    }
    Ok(ThreadOutcome { total, elapsed: started.elapsed(), latencies })
}

fn drive_background(mut worker: Box<dyn Worker + '_>, stop: &AtomicBool) -> Result<Step> {
    let mut total = Step::default();
    while !stop.load(Ordering::Acquire) {
        match worker.step()? {
            Some(step) => add(&mut total, step),
            None => break,
        }
    }
    Ok(total)
}
