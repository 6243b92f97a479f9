//! Snapshots held while the database is overwritten at full speed: nothing they see may change, and the space they keep
//! must come back.
//!
//! A value is a function of its key and version, so the expected rows of a snapshot are a version number per key.
//! `MYCELIUM_TEST_SCALE=release` runs the counts of a release.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mycelium_engine::{
    Background, Database, Durability, LeveledOptions, Options, Policy, ReadCounters, ReadOptions, Snapshot, Table,
    TableOptions, WriteBatch,
};
use mycelium_testkit::{Scale, grouped};
use mycelium_vfs::MemoryDisk;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const SEED: u64 = 19;
const KEYS: usize = 2_000;
const SNAPSHOTS: usize = 64;
const VALUE_LEN: usize = 96;

fn key(index: usize) -> Vec<u8> {
    format!("user{index:08}").into_bytes()
}

fn value(index: usize, version: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(VALUE_LEN);
    let mut rng = SmallRng::seed_from_u64((index as u64) << 32 | u64::from(version));
    bytes.resize_with(VALUE_LEN, || rng.random());
    bytes
}

/// The version of every key, 0 where there is no row.
type Versions = Vec<u32>;

/// Overwrites, deletes or range-deletes a few keys.
fn overwrite(database: &Database, table: &Table, rng: &mut SmallRng, versions: &mut Versions, next: &mut u32) {
    let mut batch = WriteBatch::new();
    for _ in 0..20 {
        *next += 1;
        let index = rng.random_range(0..KEYS);
        match rng.random_range(0..100) {
            0 => {
                let end = (index + 5).min(KEYS);
                batch.delete_range(table, &key(index), &key(end));
                versions[index..end].fill(0);
            }
            1..10 => {
                batch.delete(table, &key(index));
                versions[index] = 0;
            }
            _ => {
                batch.put(table, &key(index), &value(index, *next));
                versions[index] = *next;
            }
        }
    }
    database.write(&batch, Durability::Os).unwrap();
}

/// Reads until `reads` rows were compared, points mostly, now and then a whole scan. Returns the rows compared.
fn reread(table: &Table, held: &[(Snapshot, Versions)], reads: u64, seed: u64) -> u64 {
    let mut rng = SmallRng::seed_from_u64(seed);
    let (mut done, mut counters) = (0, ReadCounters::default());
    while done < reads {
        let (snapshot, versions) = &held[rng.random_range(0..held.len())];
        let options = ReadOptions::at(snapshot);
        if rng.random_range(0..4_000) == 0 {
            let mut rows = table.iter(&options).unwrap();
            rows.seek_to_first().unwrap();
            for (index, &version) in versions.iter().enumerate().filter(|(_, version)| **version > 0) {
                assert!(rows.valid() && rows.key() == key(index), "scan at {}: row {index}", snapshot.sequence());
                assert_eq!(rows.value(), value(index, version), "scan at {}: row {index}", snapshot.sequence());
                rows.next().unwrap();
                done += 1;
            }
            assert!(!rows.valid());
        } else {
            let index = rng.random_range(0..KEYS);
            let expected = (versions[index] > 0).then(|| value(index, versions[index]));
            let found = table.get_with(&key(index), &options, &mut counters).unwrap();
            assert_eq!(found, expected, "seed {seed}, snapshot {}, row {index}", snapshot.sequence());
            done += 1;
        }
    }
    done
}

fn open(disk: &MemoryDisk) -> (Database, Table) {
    let options = Options {
        disk: Arc::new(disk.clone()),
        memory_budget: 512 << 10,
        cache_bytes: 4 << 20,
        background: Background::Threads(2),
        ..Options::default()
    };
    let leveled = LeveledOptions {
        base_level_bytes: 512 << 10,
        target_file_size: 128 << 10,
        fanout: 4.0,
        ..LeveledOptions::default()
    };
    let table_options = TableOptions { policy: Policy::Leveled(leveled), ..TableOptions::default() };
    let database = Database::open("/database", options).unwrap();
    let table = database.create_table("users", table_options).unwrap();
    (database, table)
}

fn entries(database: &Database) -> u64 {
    database.metrics().tables[0].levels.iter().map(|level| level.entries).sum()
}

#[test]
fn snapshots_stay_the_same_under_ingest_and_give_their_space_back() {
    let reads: u64 = Scale::from_environment().pick(1_000_000, 100_000_000);
    let disk = MemoryDisk::new();
    let (database, table) = open(&disk);
    let mut rng = SmallRng::seed_from_u64(SEED);
    let (mut versions, mut next) = (vec![0; KEYS], 0);
    let mut held = Vec::new();
    for _ in 0..SNAPSHOTS {
        for _ in 0..50 {
            overwrite(&database, &table, &mut rng, &mut versions, &mut next);
        }
        held.push((database.snapshot(), versions.clone()));
    }
    let (stop, batches, compared) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                overwrite(&database, &table, &mut rng, &mut versions, &mut next);
                batches.fetch_add(1, Ordering::Relaxed);
            }
        });
        let readers: Vec<_> = [SEED + 1, SEED + 2]
            .into_iter()
            .map(|seed| {
                let (table, held) = (&table, &held);
                scope.spawn(move || reread(table, held, reads / 2, seed))
            })
            .collect();
        let counts: Vec<_> = readers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        for count in counts {
            compared.fetch_add(count.expect("a reader found a difference"), Ordering::Relaxed);
        }
    });
    let metrics = database.metrics();
    println!(
        "seed: {SEED}, snapshots: {SNAPSHOTS}, reads: {}, changed: 0, batches meanwhile: {}, flushes: {}, compactions: {}",
        grouped(compared.into_inner()),
        grouped(batches.into_inner()),
        metrics.flushes,
        metrics.compactions
    );

    database.compact(&table).unwrap();
    database.wait_idle().unwrap();
    let (pinned, pinned_bytes) = (entries(&database), disk.used_space());
    let live = versions.iter().filter(|version| **version > 0).count() as u64;
    assert!(pinned > 10 * live, "{pinned} entries for {live} rows: the snapshots should keep versions");
    drop(held);
    let released = Instant::now();
    database.compact(&table).unwrap();
    database.wait_idle().unwrap();
    let (left, left_bytes) = (entries(&database), disk.used_space());
    println!(
        "entries: {} with snapshots, {} without; bytes: {} and {}; released in {:?}",
        grouped(pinned),
        grouped(left),
        grouped(pinned_bytes),
        grouped(left_bytes),
        released.elapsed()
    );
    assert_eq!(left, live);
    assert!(left_bytes * 5 < pinned_bytes, "{left_bytes} bytes are left of {pinned_bytes}");
    assert!(released.elapsed() < Duration::from_secs(10));
}
