//! Writers that ask for far more than compaction sustains: writing slows down, memory and level 0 stay bounded, reads
//! go on, and afterwards the backlog is worked off.
//!
//! 20 seconds; with `MYCELIUM_TEST_SCALE=release` two minutes.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mycelium_engine::{Database, Durability, LeveledOptions, Options, Policy, TableOptions, WriteBatch};
use mycelium_testkit::Scale;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Together the default budgets. Small memtables, so that there are many flushes and that one takes well below a
/// second.
const MEMORY: usize = 8 << 20;
const CACHE: u64 = 376 << 20;
/// What flushes and compactions together may write: a fifth of it, about, is what a leveled tree sustains.
const RATE: u64 = 24 << 20;
const VALUE: usize = 400;
const BATCH: usize = 10;
const KEYS: u64 = 4_000_000;

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn value(n: u64) -> Vec<u8> {
    let mut rng = SmallRng::seed_from_u64(n);
    (0..VALUE).map(|_| rng.random()).collect()
}

#[derive(Default)]
struct Seen {
    memory: AtomicU64,
    memtables: AtomicU64,
    cache: AtomicU64,
    level0: AtomicU64,
    reads: AtomicU64,
}

fn percentile(sorted: &[Duration], share: f64) -> Duration {
    sorted
        .get(((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}

/// Writes until the time is over; how long each batch took.
fn write(database: &Database, seed: u64, end: Instant, seen: &Seen) -> Vec<Duration> {
    let table = database.table("t").unwrap();
    let mut rng = SmallRng::seed_from_u64(seed);
    let (mut took, mut batch) = (Vec::new(), WriteBatch::new());
    while Instant::now() < end {
        batch.clear();
        for _ in 0..BATCH {
            let n = rng.random_range(0..KEYS);
            batch.put(&table, &key(n), &value(n));
        }
        let started = Instant::now();
        database.write(&batch, Durability::Os).unwrap();
        took.push(started.elapsed());
        if took.len() % 64 == 0 {
            let metrics = database.metrics();
            let level0 = metrics.tables[0].levels.first().map_or(0, |level| level.runs);
            seen.level0.fetch_max(level0 as u64, Ordering::Relaxed);
            seen.memory.fetch_max(resident_bytes(), Ordering::Relaxed);
            seen.memtables.fetch_max(metrics.tables[0].memtable_bytes, Ordering::Relaxed);
            seen.cache.fetch_max(metrics.cache.used, Ordering::Relaxed);
        }
    }
    took
}

fn read(database: &Database, seed: u64, done: &AtomicBool, seen: &Seen) -> Vec<Duration> {
    let table = database.table("t").unwrap();
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut took = Vec::new();
    while !done.load(Ordering::Relaxed) {
        let n = rng.random_range(0..KEYS);
        let started = Instant::now();
        let found = table.get(&key(n)).unwrap();
        // Some are enough, and cost no memory that would be taken for the engine's.
        if n % 64 == 0 {
            took.push(started.elapsed());
        }
        if let Some(found) = found {
            assert_eq!(found, value(n), "row {n} is wrong");
            seen.reads.fetch_add(1, Ordering::Relaxed);
        }
    }
    took
}

#[test]
fn overload_slows_writers_and_nothing_else() {
    let seed = std::env::var("MYCELIUM_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let load = Duration::from_secs(Scale::from_environment().pick(20, 120));
    println!("overload: seed {seed}, {load:?}");
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        memory_budget: MEMORY,
        cache_bytes: CACHE,
        rate_limit_bytes_per_second: Some(RATE),
        slowdown_debt_bytes: 256 << 20,
        ..Options::default()
    };
    let stop_runs = options.stop_level0_runs as u64;
    let database = Database::open(directory.path(), options).unwrap();
    let policy = Policy::Leveled(LeveledOptions {
        base_level_bytes: 32 << 20,
        target_file_size: 4 << 20,
        ..LeveledOptions::default()
    });
    database.create_table("t", TableOptions { policy, ..TableOptions::default() }).unwrap();
    let before = resident_bytes();
    let (seen, done) = (Seen::default(), AtomicBool::new(false));
    let end = Instant::now() + load;
    let (mut writes, mut reads) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&database, seed + 100, &done, &seen));
        let (database, seen) = (&database, &seen);
        let writers: Vec<_> = (0..2).map(|w| scope.spawn(move || write(database, seed + w, end, seen))).collect();
        let writes: Vec<Duration> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        done.store(true, Ordering::Relaxed);
        (writes, reader.join().unwrap())
    });
    let started = Instant::now();
    database.wait_idle().unwrap();
    let caught_up = started.elapsed();
    writes.sort_unstable();
    reads.sort_unstable();
    let metrics = database.metrics();
    let ingested = (writes.len() * BATCH * (VALUE + 8)) as u64;
    let memory = seen.memory.load(Ordering::Relaxed).saturating_sub(before);
    let level0 = seen.level0.load(Ordering::Relaxed);
    let stalls: Vec<Duration> = writes.iter().copied().filter(|took| *took >= Duration::from_millis(1)).collect();
    println!("ingested {} MiB in {load:?}; caught up in {caught_up:?}", ingested >> 20);
    println!("writes: p99 {:?}, slowest {:?}", percentile(&writes, 0.99), percentile(&writes, 1.0));
    println!("{} stalls of 1 ms and more: p99 {:?}", stalls.len(), percentile(&stalls, 0.99));
    println!(
        "{} reads timed, {} found: p99 {:?}",
        reads.len(),
        seen.reads.load(Ordering::Relaxed),
        percentile(&reads, 0.99)
    );
    println!("memory {} MiB over {} MiB, level 0 up to {level0} runs", memory >> 20, before >> 20);
    let mebibytes = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed) >> 20;
    println!("memtables up to {} MiB, cache up to {} MiB", mebibytes(&seen.memtables), mebibytes(&seen.cache));
    println!("stops {}, slowdowns {}", metrics.stops, metrics.slowdowns);
    assert!(metrics.stops + metrics.slowdowns > 0, "the load was no overload");
    let budget = MEMORY as u64 + CACHE;
    assert!(memory <= budget + budget / 5, "memory {memory} exceeds the budget of {budget} by more than a fifth");
    assert!(percentile(&stalls, 0.99) <= Duration::from_secs(1), "stalls too long");
    assert!(level0 <= stop_runs + 1, "level 0 has {level0} runs");
    assert!(seen.reads.load(Ordering::Relaxed) > 100, "reads were not served");
    assert!(caught_up <= 2 * load, "the backlog took {caught_up:?}");
}
