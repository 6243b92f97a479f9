//! Bulk load against a `BTreeMap`: where files land, what is visible when, and crashes at every disk operation.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mycelium_engine::{
    Background, Database, Durability, Error, ErrorKind, Options, Policy, ReadOptions, ScanOptions, TableOptions,
    TieredOptions,
};
use mycelium_vfs::{CrashDraw, MemoryDisk};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::common::{Rows, assert_verified, key, scan, scan_with, small_options, small_table};

type Row = (Vec<u8>, Vec<u8>);

fn rows(range: impl Iterator<Item = u32>, mark: &str) -> Vec<Row> {
    range.map(|n| (key(n), format!("{mark}-{n}-{}", "x".repeat(40)).into_bytes())).collect()
}

fn feed(rows: &[Row]) -> impl Iterator<Item = Result<Row, Error>> + '_ {
    rows.iter().cloned().map(Ok)
}

fn files_by_level(database: &Database) -> Vec<usize> {
    database.metrics().tables[0].levels.iter().map(|level| level.files).collect()
}

#[test]
fn an_empty_table_takes_files_at_its_deepest_level() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", small_options(&disk)).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    let loaded = rows(0..5000, "a");
    let summary = table.ingest(feed(&loaded)).unwrap();
    assert_eq!((summary.rows, summary.sequence), (5000, Some(1)));
    assert!(summary.files > 3);
    assert_eq!(files_by_level(&database), [0, 0, 0, 0, 0, 0, summary.files as usize]);
    assert_eq!(database.metrics().ingested_bytes, summary.bytes);
    assert_eq!(scan(&table), loaded.iter().cloned().collect());
    assert_verified(&database);
    // Next to it, not over it: the same level again. Over it: level 0.
    table.ingest(feed(&rows(5000..5100, "b"))).unwrap();
    assert_eq!(files_by_level(&database)[0], 0);
    table.ingest(feed(&rows(100..110, "c"))).unwrap();
    assert_eq!(files_by_level(&database)[0], 1);
    assert_eq!(table.get(&key(105)).unwrap().unwrap()[..2], *b"c-");
    drop(table);
    database.close().unwrap();
    let database = Database::open("/db", small_options(&disk)).unwrap();
    let table = database.table("t").unwrap();
    assert_eq!(database.last_sequence(), 3);
    assert_eq!(scan(&table).len(), 5100);
    database.compact(&table).unwrap();
    assert_eq!(table.get(&key(105)).unwrap().unwrap()[..2], *b"c-");
    assert_verified(&database);
}

#[test]
fn bad_input_loads_nothing_and_leaves_nothing() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", small_options(&disk)).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    let before = disk.paths();
    let mut unordered = rows(0..3000, "a");
    unordered.push((key(2999), b"again".to_vec()));
    assert_eq!(table.ingest(feed(&unordered)).unwrap_err().kind(), ErrorKind::OutOfOrder);
    let failing = feed(&unordered[..2500]).chain([Err(Error::invalid("source failed"))]);
    assert!(table.ingest(failing).is_err());
    assert_eq!(table.ingest(feed(&[(vec![0; 70_000], vec![])])).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(table.ingest(feed(&[])).unwrap().sequence, None);
    assert_eq!((scan(&table).len(), database.last_sequence()), (0, 0));
    assert_eq!(disk.paths(), before);
}

#[test]
fn rows_land_between_older_and_newer_writes_under_every_policy() {
    for (seed, tiered) in [(1, false), (2, true), (3, false), (4, true)] {
        println!("seed {seed} tiered {tiered}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let disk = MemoryDisk::new();
        let database = Database::open("/db", small_options(&disk)).unwrap();
        let mut options = small_table();
        if tiered {
            let tiers = TieredOptions { runs_per_level: 3, target_file_size: 16 << 10, ..TieredOptions::default() };
            options.policy = Policy::Tiered(tiers);
        }
        let table = database.create_table("t", options).unwrap();
        let mut expected = Rows::new();
        let mut held = Vec::new();
        for round in 0..60 {
            match rng.random_range(0..6) {
                0 | 1 => {
                    let from = rng.random_range(0..8000);
                    let step = rng.random_range(1..5);
                    let loaded = rows((from..from + rng.random_range(1..900)).step_by(step), &format!("r{round}"));
                    table.ingest(feed(&loaded)).unwrap();
                    expected.extend(loaded);
                }
                2 => {
                    let from = rng.random_range(0..8000);
                    let (start, end) = (key(from), key(from + rng.random_range(1..500)));
                    table.delete_range(&start, &end, Durability::Os).unwrap();
                    expected.retain(|key, _| !(start <= *key && *key < end));
                }
                3 => held.push((database.snapshot(), expected.clone())),
                _ => {
                    for _ in 0..rng.random_range(1..300) {
                        let key = key(rng.random_range(0..9000));
                        let value = round.to_string().into_bytes();
                        table.put(&key, &value, Durability::Os).unwrap();
                        expected.insert(key, value);
                    }
                }
            }
            for _ in 0..rng.random_range(0..3) {
                database.step().unwrap();
            }
            assert_eq!(scan(&table), expected, "round {round}");
            for (snapshot, rows) in &held {
                assert_eq!(&scan_with(&table, &ReadOptions::at(snapshot)), rows, "round {round}");
            }
            for _ in 0..20 {
                let key = key(rng.random_range(0..9000));
                assert_eq!(table.get(&key).unwrap().as_ref(), expected.get(&key));
            }
            if held.len() > 4 {
                held.remove(0);
            }
        }
        assert_verified(&database);
    }
}

#[test]
fn typed_rows_come_as_record_batches() {
    use mycelium_encoding::{DatumRef, Schema};
    let disk = MemoryDisk::new();
    let database = Database::open("/db", small_options(&disk)).unwrap();
    let schema = Schema::parse("id int64 not null, name utf8, primary key (id)").unwrap();
    let source = database.create_typed_table("source", schema.clone(), TableOptions::default()).unwrap();
    for n in -500..500_i64 {
        let name = format!("row {n}");
        source.insert_row(&[DatumRef::Int64(n), DatumRef::Utf8(&name)], Durability::Os).unwrap();
    }
    let target = database.create_typed_table("target", schema, TableOptions::default()).unwrap();
    let batches = source.scan_batches(ScanOptions { batch_rows: 77, ..ScanOptions::default() }).unwrap();
    assert_eq!(target.ingest_batches(batches).unwrap().rows, 1000);
    assert_eq!(scan(&source), scan(&target));
    let backwards: Vec<_> = source.scan_batches(ScanOptions::default()).unwrap().collect();
    let twice = backwards.into_iter().map(Result::unwrap).flat_map(|batch| [batch.clone(), batch]).map(Ok);
    assert_eq!(target.ingest_batches(twice).unwrap_err().kind(), ErrorKind::OutOfOrder);
}

/// The workload of the crash test: the states after each commit, and how many of them the caller knows to be durable.
fn scripted_load(disk: &MemoryDisk) -> (Vec<Rows>, usize) {
    let mut states = vec![Rows::new()];
    let mut durable = 0;
    // An error is the power loss: what was acknowledged before it counts.
    let _unfinished = (|| {
        let database = Database::open("/db", small_options(disk))?;
        let table = database.create_table("t", small_table())?;
        let mut commit = |change: &dyn Fn(&mut Rows)| {
            let mut next = states[states.len() - 1].clone();
            change(&mut next);
            states.push(next);
            states.len() - 1
        };
        for n in 0..20 {
            commit(&|rows| drop(rows.insert(key(n * 7), b"before".to_vec())));
            table.put(&key(n * 7), b"before", Durability::Buffered)?;
        }
        let loaded = rows(30..400, "loaded");
        let at = commit(&|rows| rows.extend(loaded.iter().cloned()));
        table.ingest(feed(&loaded))?;
        durable = at;
        let at = commit(&|rows| drop(rows.insert(key(33), b"after".to_vec())));
        table.put(&key(33), b"after", Durability::Sync)?;
        durable = at;
        let second = rows(5000..5100, "second");
        let at = commit(&|rows| rows.extend(second.iter().cloned()));
        table.ingest(feed(&second))?;
        durable = at;
        database.compact(&table)?;
        Ok::<(), Error>(())
    })();
    (states, durable)
}

#[test]
fn a_crash_at_any_operation_leaves_a_prefix_of_commits() {
    let disk = MemoryDisk::new();
    let (states, durable) = scripted_load(&disk);
    assert_eq!(durable, states.len() - 1);
    let total = disk.operations();
    println!("{total} operations");
    for n in 0..total {
        let disk = MemoryDisk::new();
        disk.power_off_after(Some(n));
        let (states, durable) = scripted_load(&disk);
        for seed in 0..4 {
            let image = disk.crash_image(&CrashDraw::from_seed(n * 4 + seed));
            let database = Database::open("/db", small_options(&image)).unwrap();
            let Ok(table) = database.table("t") else {
                assert_eq!(durable, 0, "operation {n}, seed {seed}: the table is gone");
                continue;
            };
            let found = scan(&table);
            let Some(at) = states.iter().rposition(|state| *state == found) else {
                panic!("operation {n}, seed {seed}: {} rows are no prefix", found.len())
            };
            assert!(at >= durable, "operation {n}, seed {seed}: state {at}, but {durable} was durable");
            if n % 16 == seed {
                assert_verified(&database);
            }
        }
    }
}

#[test]
fn ingestion_goes_on_beside_writers_and_compactions() {
    let disk = MemoryDisk::new();
    let options = Options { background: Background::Threads(2), ..small_options(&disk) };
    let database = Database::open("/db", options).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = SmallRng::seed_from_u64(9);
            while !stop.load(Ordering::Relaxed) {
                table.put(&key(100_000 + rng.random_range(0..3000)), &[7; 100], Durability::Os).unwrap();
            }
        });
        let mut expected = Rows::new();
        let mut rng = SmallRng::seed_from_u64(10);
        for round in 0..40 {
            let from = rng.random_range(0..5000);
            let loaded = rows(from..from + 300, &format!("r{round}"));
            table.ingest(feed(&loaded)).unwrap();
            expected.extend(loaded);
            let mut found = scan(&table);
            found.split_off(&key(100_000));
            assert_eq!(found, expected, "round {round}");
        }
        stop.store(true, Ordering::Relaxed);
    });
    database.wait_idle().unwrap();
    assert_verified(&database);
}

#[test]
fn an_ingestion_that_outlives_its_database_harms_no_later_one() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", small_options(&disk)).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    let loaded = rows(0..5000, "a");
    let mut database = Some(database);
    let slow = loaded.iter().enumerate().map(|(at, row)| {
        if at == 2500 {
            database.take().unwrap().close().unwrap();
            // What it has written so far has numbers that a database opened now would give to its own files.
            assert_eq!(Database::open("/db", small_options(&disk)).unwrap_err().kind(), ErrorKind::Locked);
        }
        Ok(row.clone())
    });
    assert_eq!(table.ingest(slow).unwrap_err().kind(), ErrorKind::Closed);
    drop(table);
    let database = Database::open("/db", small_options(&disk)).unwrap();
    let table = database.table("t").unwrap();
    assert!(scan(&table).is_empty());
    table.ingest(feed(&loaded)).unwrap();
    assert_eq!(scan(&table).len(), 5000);
    assert_verified(&database);
}
