//! The engine's threads under thousands of drawn schedules (shuttle): every lock and every atomic of the engine and the
//! memtable is a point where another thread may go on.
//!
//! `cargo test -p mycelium-engine --features schedule-tests --test schedules`; `testkit/tests/schedules.rs` runs this
//! along with the other tests. Half of the schedules are random, half have at most three preemptions (PCT).

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use mycelium_encoding::{DatumRef, Schema};
use mycelium_engine::{
    Background, Database, Durability, ErrorKind, Expiry, IndexOptions, IsolationLevel, LeveledOptions, ManualClock,
    Options, Policy, ReadOptions, Snapshot, Table, TableOptions, TransactionOptions, WriteBatch,
};
use mycelium_vfs::{Disk, MemoryDisk};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};

const SCHEDULES: usize = 10_000;

/// What the stack of a thread takes: shuttle's is 60 KiB, and an opening that flushes needs more where nothing is
/// optimised.
const STACK_BYTES: usize = 256 << 10;

/// Runs a scenario under all its schedules.
fn explore(scenario: fn()) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    Runner::new(RandomScheduler::new(SCHEDULES / 2), config.clone()).run(scenario);
    Runner::new(PctScheduler::new(3, SCHEDULES / 2), config).run(scenario);
    println!("schedules: {SCHEDULES}, failures: 0");
}

/// A database whose generations are full after a few values of [`PADDING`], whose level 0 is due at one file, and whose
/// cache holds a few blocks.
struct Setup {
    disk: MemoryDisk,
    database: Database,
    table: Table,
}

const PADDING: usize = 700;

impl Setup {
    fn new() -> Self {
        let disk = MemoryDisk::new();
        let database = Database::open("db", options(&disk)).unwrap();
        let policy = LeveledOptions { level0_trigger: 1, target_file_size: 4096, ..LeveledOptions::default() };
        let options = TableOptions { policy: Policy::Leveled(policy), block_size: 1024, ..TableOptions::default() };
        let table = database.create_table("t", options).unwrap();
        Self { disk, database, table }
    }

    /// With keys 0 to `count`, each of value 0, in a file.
    fn filled(count: u8) -> Self {
        let setup = Self::new();
        (0..count).for_each(|key| put(&setup.table, key, 0));
        setup.database.flush().unwrap();
        setup
    }
}

fn options(disk: &MemoryDisk) -> Options {
    Options {
        disk: Arc::new(disk.clone()),
        background: Background::Manual,
        memory_budget: 8192,
        cache_bytes: 8192,
        ..Options::default()
    }
}

fn value(number: u8) -> Vec<u8> {
    let mut value = vec![number];
    value.resize(PADDING, number);
    value
}

fn put(table: &Table, key: u8, number: u8) {
    table.put(&[key], &value(number), Durability::Os).unwrap();
}

/// The number in a value, all bytes of which must be it.
fn number(value: &[u8]) -> u8 {
    assert!(value.len() == PADDING && value.iter().all(|&byte| byte == value[0]), "a torn value");
    value[0]
}

fn get(table: &Table, key: u8) -> Option<u8> {
    table.get(&[key]).unwrap().map(|value| number(&value))
}

fn at(snapshot: &Snapshot) -> ReadOptions {
    ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() }
}

/// All rows as (key, number), by an iterator.
fn rows(table: &Table, options: &ReadOptions) -> Vec<(u8, u8)> {
    let mut rows = table.iter(options).unwrap();
    let mut found = Vec::new();
    rows.seek_to_first().unwrap();
    while rows.valid() {
        found.push((rows.key()[0], number(rows.value())));
        rows.next().unwrap();
    }
    found
}

/// Does background work as long as there is some, at most `jobs`.
fn work(database: Database, jobs: usize) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for _ in 0..jobs {
            database.step().unwrap();
        }
    })
}

fn join_all(threads: Vec<thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn concurrent_batches_are_seen_whole_or_not_at_all() {
    explore(|| {
        let setup = Setup::new();
        let mut threads = Vec::new();
        for writer in 1..=3_u8 {
            let (database, table) = (setup.database.clone(), setup.table.clone());
            threads.push(thread::spawn(move || {
                for round in 0..2 {
                    let mut batch = WriteBatch::new();
                    let tag = value(10 * writer + round);
                    batch.put(&table, b"x", &tag).put(&table, b"y", &tag);
                    let durability = if round == 0 { Durability::Sync } else { Durability::Buffered };
                    let sequence = database.write(&batch, durability).unwrap();
                    assert!(database.last_sequence() >= sequence, "acknowledged before it was visible");
                }
            }));
        }
        for _ in 0..4 {
            let snapshot = setup.database.snapshot();
            let both = setup.table.multi_get(&[b"x", b"y"], &at(&snapshot)).unwrap();
            assert_eq!(both[0], both[1], "half a batch");
        }
        join_all(threads);
        assert_eq!(setup.database.last_sequence(), 12);
        setup.database.close().unwrap();
    });
}

#[test]
fn a_writer_reads_its_own_writes_beside_flushes() {
    explore(|| {
        let setup = Setup::new();
        let mut threads: Vec<_> = (0..2_u8)
            .map(|writer| {
                let table = setup.table.clone();
                thread::spawn(move || {
                    for number in 1..=4 {
                        put(&table, writer, number);
                        assert_eq!(get(&table, writer), Some(number));
                    }
                })
            })
            .collect();
        threads.push(work(setup.database.clone(), 3));
        setup.database.flush().unwrap();
        join_all(threads);
        assert_eq!(rows(&setup.table, &ReadOptions::default()), [(0, 4), (1, 4)]);
    });
}

#[test]
fn a_snapshot_reads_the_same_beside_writes_and_compactions() {
    explore(|| {
        let setup = Setup::filled(4);
        let writer = {
            let table = setup.table.clone();
            thread::spawn(move || {
                for number in 1..=3 {
                    put(&table, number, number);
                    table.delete(&[number - 1], Durability::Os).unwrap();
                }
            })
        };
        let worker = work(setup.database.clone(), 4);
        for _ in 0..2 {
            let snapshot = setup.database.snapshot();
            let first = rows(&setup.table, &at(&snapshot));
            for &(key, number) in &first {
                let row = setup.table.multi_get(&[&[key]], &at(&snapshot)).unwrap().remove(0);
                assert_eq!(row, Some(value(number)));
            }
            assert_eq!(rows(&setup.table, &at(&snapshot)), first);
        }
        join_all(vec![writer, worker]);
        setup.database.compact(&setup.table).unwrap();
        assert_eq!(rows(&setup.table, &ReadOptions::default()), [(3, 3)]);
    });
}

#[test]
fn an_iterator_keeps_its_files_until_it_is_dropped() {
    explore(|| {
        let setup = Setup::filled(6);
        let mut before = setup.table.iter(&ReadOptions::default()).unwrap();
        let compaction = {
            let (database, table) = (setup.database.clone(), setup.table.clone());
            thread::spawn(move || {
                put(&table, 9, 9);
                database.compact(&table).unwrap();
                database.wait_idle().unwrap();
            })
        };
        before.seek_to_first().unwrap();
        for key in 0..6 {
            assert_eq!((before.key(), number(before.value())), (&[key][..], 0));
            before.next().unwrap();
            // The iterator itself takes no lock.
            thread::yield_now();
        }
        drop(before);
        join_all(vec![compaction]);
        setup.database.wait_idle().unwrap();
        let named = setup.database.verify(|_, _| ()).unwrap().files as usize;
        let there = setup.disk.list("db".as_ref()).unwrap();
        assert_eq!(there.iter().filter(|name| name.ends_with(".sst")).count(), named, "files left: {there:?}");
    });
}

#[test]
fn cached_blocks_are_the_right_ones_beside_compactions() {
    explore(|| {
        let setup = Setup::filled(5);
        let mut threads: Vec<_> = (0..2)
            .map(|_| {
                let table = setup.table.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        let found = rows(&table, &ReadOptions::default());
                        assert!(found.iter().map(|(key, _)| *key).eq(0..5), "{found:?}");
                        assert!(found.iter().all(|&(key, number)| number == 0 || number == key));
                    }
                })
            })
            .collect();
        threads.push(work(setup.database.clone(), 2));
        put(&setup.table, 2, 2);
        setup.database.flush().unwrap();
        join_all(threads);
        assert_eq!(get(&setup.table, 2), Some(2));
    });
}

#[test]
fn concurrent_increments_conflict_or_count() {
    explore(|| {
        let setup = Setup::filled(1);
        let threads = (0..3)
            .map(|_| {
                let (database, table) = (setup.database.clone(), setup.table.clone());
                thread::spawn(move || {
                    loop {
                        let mut transaction = database.begin(IsolationLevel::Snapshot);
                        let before = number(&transaction.get(&table, &[0]).unwrap().unwrap());
                        transaction.put(&table, &[0], &value(before + 1)).unwrap();
                        match transaction.commit(Durability::Sync) {
                            Ok(_) => return,
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
                        }
                    }
                })
            })
            .collect();
        setup.database.flush().unwrap();
        join_all(threads);
        assert_eq!(get(&setup.table, 0), Some(3));
    });
}

#[test]
fn concurrent_increments_of_a_locked_row_only_count() {
    explore(|| {
        let setup = Setup::filled(1);
        let threads = [IsolationLevel::Snapshot, IsolationLevel::Serializable, IsolationLevel::Snapshot].map(|level| {
            let (database, table) = (setup.database.clone(), setup.table.clone());
            thread::spawn(move || {
                let options =
                    TransactionOptions { isolation: level, lock_timeout: Duration::MAX, ..Default::default() };
                let mut transaction = database.begin_with(options);
                let before = number(&transaction.get_for_update(&table, &[0]).unwrap().unwrap());
                transaction.put(&table, &[0], &value(before + 1)).unwrap();
                transaction.commit(Durability::Sync).unwrap();
            })
        });
        setup.database.flush().unwrap();
        join_all(threads.into());
        assert_eq!(get(&setup.table, 0), Some(3));
    });
}

#[test]
fn serializable_transactions_do_not_skew_writes() {
    explore(|| {
        let setup = Setup::new();
        (0..2).for_each(|key| put(&setup.table, key, 1));
        let threads = (0..2_u8)
            .map(|own| {
                let (database, table) = (setup.database.clone(), setup.table.clone());
                thread::spawn(move || {
                    let mut transaction = database.begin(IsolationLevel::Serializable);
                    let read = |key: u8| number(&transaction.get(&table, &[key]).unwrap().unwrap());
                    if read(0) + read(1) == 2 {
                        transaction.put(&table, &[own], &value(0)).unwrap();
                        if let Err(error) = transaction.commit(Durability::Os) {
                            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                        }
                    }
                })
            })
            .collect();
        join_all(threads);
        let left = get(&setup.table, 0).unwrap() + get(&setup.table, 1).unwrap();
        assert_eq!(left, 1, "both saw two and both took one");
    });
}

/// Whoever compacts flushes in the middle of it, beside another who does the same.
#[test]
fn compactions_that_make_way_for_flushes_lose_none() {
    explore(|| {
        let setup = Setup::filled(2);
        let workers = (0..2).map(|_| work(setup.database.clone(), 3)).collect();
        for number in 1..=3 {
            put(&setup.table, number % 2, number);
            setup.database.flush().unwrap();
            assert_eq!(get(&setup.table, number % 2), Some(number));
        }
        join_all(workers);
        setup.database.wait_idle().unwrap();
        assert_eq!(rows(&setup.table, &ReadOptions::default()), [(0, 2), (1, 3)]);
    });
}

/// Each takes one key if both are there, and finds that out by reading all of them: what the other commits meanwhile is
/// shown to it.
#[test]
fn serializable_transactions_that_read_all_rows_do_not_skew_writes() {
    explore(|| {
        let setup = Setup::new();
        (0..2).for_each(|key| put(&setup.table, key, 1));
        let threads = (0..2_u8)
            .map(|own| {
                let (database, table) = (setup.database.clone(), setup.table.clone());
                thread::spawn(move || {
                    let mut transaction = database.begin(IsolationLevel::Serializable);
                    let mut left = 0;
                    let mut rows = transaction.iter(&table, &ReadOptions::default()).unwrap();
                    rows.seek_to_first().unwrap();
                    while rows.valid() {
                        left += number(rows.value());
                        rows.next().unwrap();
                    }
                    drop(rows);
                    if left == 2 {
                        transaction.put(&table, &[own], &value(0)).unwrap();
                        if let Err(error) = transaction.commit(Durability::Os) {
                            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                        }
                    }
                })
            })
            .collect();
        setup.database.flush().unwrap();
        join_all(threads);
        let left = get(&setup.table, 0).unwrap() + get(&setup.table, 1).unwrap();
        assert_eq!(left, 1, "both saw two and both took one");
    });
}

#[test]
fn a_checkpoint_beside_writes_holds_a_prefix() {
    explore(|| {
        let setup = Setup::new();
        let writer = {
            let table = setup.table.clone();
            thread::spawn(move || (0..5).for_each(|key| put(&table, key, key)))
        };
        let worker = work(setup.database.clone(), 2);
        let before = setup.database.last_sequence();
        setup.database.checkpoint("copy").unwrap();
        let after = setup.database.last_sequence();
        join_all(vec![writer, worker]);
        let copy = Database::open("copy", options(&setup.disk)).unwrap();
        let found = rows(&copy.table("t").unwrap(), &ReadOptions::default());
        assert!(found.iter().copied().eq((0..found.len() as u8).map(|key| (key, key))), "{found:?}");
        assert!((before..=after).contains(&(found.len() as u64)), "{found:?} not from {before} to {after}");
    });
}

#[test]
fn a_table_dropped_beside_writes_takes_nothing_along() {
    explore(|| {
        let setup = Setup::new();
        let other = setup.database.create_table("other", TableOptions::default()).unwrap();
        let writer = {
            let (table, other) = (setup.table.clone(), other.clone());
            thread::spawn(move || {
                for key in 0..4 {
                    put(&table, key, key);
                    let is_dropped = matches!(other.get(&[key]), Err(error) if error.kind() == ErrorKind::NotFound);
                    match other.put(&[key], b"in vain", Durability::Os) {
                        Ok(_) => assert!(!is_dropped, "a write begun after the drop is acknowledged"),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
                    }
                }
            })
        };
        let worker = work(setup.database.clone(), 3);
        setup.database.drop_table("other").unwrap();
        assert_eq!(other.get(&[0]).unwrap_err().kind(), ErrorKind::NotFound);
        join_all(vec![writer, worker]);
        setup.database.close().unwrap();
        let again = Database::open("db", options(&setup.disk)).unwrap();
        assert_eq!(again.table_names(), ["t"]);
        assert_eq!(rows(&again.table("t").unwrap(), &ReadOptions::default()), [(0, 0), (1, 1), (2, 2), (3, 3)]);
    });
}

#[test]
fn the_newer_of_an_ingestion_and_a_write_wins() {
    explore(|| {
        let setup = Setup::filled(3);
        let ingestion = {
            let table = setup.table.clone();
            thread::spawn(move || table.ingest((0..3).map(|key| Ok(([key], value(1))))).unwrap().sequence.unwrap())
        };
        let worker = work(setup.database.clone(), 2);
        let written = setup.table.put(&[1], &value(2), Durability::Os).unwrap();
        let ingested = ingestion.join().unwrap();
        worker.join().unwrap();
        let newer = if written > ingested { 2 } else { 1 };
        assert_eq!(rows(&setup.table, &ReadOptions::default()), [(0, 1), (1, newer), (2, 1)]);
    });
}

#[test]
fn a_unique_index_created_beside_writers_of_one_value_holds_it_once() {
    explore(|| {
        let database = Database::open("db", options(&MemoryDisk::new())).unwrap();
        let schema = Schema::parse("id int64 not null, city utf8, primary key (id)").unwrap();
        let table = database.create_typed_table("people", schema, TableOptions::default()).unwrap();
        let writers = [1, 2].map(|id| {
            let table = table.clone();
            thread::spawn(move || table.insert_row(&[DatumRef::Int64(id), DatumRef::Utf8("Graz")], Durability::Os))
        });
        let by_city =
            IndexOptions { name: "by_city".into(), on: vec!["city".into()], unique: true, ..IndexOptions::default() };
        let created = database.create_index(&table, &by_city);
        let written = writers.map(|writer| writer.join().unwrap());
        let refused: Vec<_> = written.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
        assert!(refused.iter().all(|error| error.kind() == ErrorKind::Duplicate), "{refused:?}");
        match created {
            Ok(index) => {
                let found = index.get(&[DatumRef::Utf8("Graz")], Some(&[0]), None).unwrap().count();
                assert_eq!((found, refused.len()), (1, 1));
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Duplicate, "{error}");
                assert!(refused.is_empty(), "refused for an index that there never was: {refused:?}");
            }
        }
        assert_eq!(rows_of(&table), 2 - refused.len());
    });
}

fn rows_of(table: &Table) -> usize {
    let mut rows = table.iter(&ReadOptions::default()).unwrap();
    let mut count = 0;
    rows.seek_to_first().unwrap();
    while rows.valid() {
        count += 1;
        rows.next().unwrap();
    }
    count
}

#[test]
fn a_snapshot_beside_an_ingestion_and_its_compaction_keeps_its_rows() {
    explore(|| {
        let setup = Setup::filled(3);
        let ingestion = {
            let table = setup.table.clone();
            thread::spawn(move || {
                table.ingest((0..3).map(|key| Ok(([key], value(1))))).unwrap();
            })
        };
        let worker = work(setup.database.clone(), 3);
        let snapshot = setup.database.snapshot();
        let first = rows(&setup.table, &at(&snapshot));
        assert_eq!(first.len(), 3);
        join_all(vec![ingestion, worker]);
        assert_eq!(rows(&setup.table, &at(&snapshot)), first);
    });
}

/// The reader's state was older than the load and its sequence number newer than the write after it.
#[test]
fn who_sees_a_write_sees_the_load_before_it() {
    explore(|| {
        let setup = Setup::filled(3);
        let loader = {
            let table = setup.table.clone();
            thread::spawn(move || {
                table.ingest((0..3).map(|key| Ok(([key], value(1))))).unwrap();
                put(&table, 3, 2);
            })
        };
        let seen = rows(&setup.table, &ReadOptions::default());
        if seen.len() == 4 {
            assert_eq!(seen, [(0, 1), (1, 1), (2, 1), (3, 2)]);
        }
        join_all(vec![loader]);
    });
}

/// The table was compacted, and the call failed for the index that was no more.
#[test]
fn a_table_compacted_while_its_index_is_dropped_is_compacted() {
    explore(|| {
        let database = Database::open("db", options(&MemoryDisk::new())).unwrap();
        let schema = Schema::parse("id int64 not null, city utf8, primary key (id)").unwrap();
        let table = database.create_typed_table("people", schema, TableOptions::default()).unwrap();
        let by_city = IndexOptions { name: "by_city".into(), on: vec!["city".into()], ..IndexOptions::default() };
        database.create_index(&table, &by_city).unwrap();
        table.insert_row(&[DatumRef::Int64(1), DatumRef::Utf8("Graz")], Durability::Os).unwrap();
        let compaction = {
            let (database, table) = (database.clone(), table.clone());
            thread::spawn(move || database.compact(&table).unwrap())
        };
        database.drop_index(&table, "by_city").unwrap();
        compaction.join().unwrap();
        assert_eq!(rows_of(&table), 1);
    });
}

#[test]
fn an_index_dropped_beside_its_compaction_leaves_the_database_writable() {
    explore(|| {
        let database = Database::open("db", options(&MemoryDisk::new())).unwrap();
        let schema = Schema::parse("id int64 not null, city utf8, primary key (id)").unwrap();
        let policy = Policy::Leveled(LeveledOptions { level0_trigger: 1, ..LeveledOptions::default() });
        let table =
            database.create_typed_table("people", schema, TableOptions { policy, ..TableOptions::default() }).unwrap();
        let by_city = IndexOptions { name: "by_city".into(), on: vec!["city".into()], ..IndexOptions::default() };
        database.create_index(&table, &by_city).unwrap();
        let insert = |id| table.insert_row(&[DatumRef::Int64(id), DatumRef::Utf8("Graz")], Durability::Os);
        insert(1).unwrap();
        database.flush().unwrap();
        insert(2).unwrap();
        database.flush().unwrap();
        let worker = {
            let database = database.clone();
            thread::spawn(move || {
                for _ in 0..4 {
                    database.step().unwrap();
                }
            })
        };
        database.drop_index(&table, "by_city").unwrap();
        worker.join().unwrap();
        insert(3).unwrap();
        assert_eq!(rows_of(&table), 3);
    });
}

#[test]
fn a_table_created_beside_a_close_is_there_or_refused() {
    explore(|| {
        let setup = Setup::new();
        let creator = {
            let database = setup.database.clone();
            thread::spawn(move || database.create_table("u", TableOptions::default()).is_ok())
        };
        setup.database.close().unwrap();
        let reopened = Database::open("db", options(&setup.disk)).unwrap();
        let created = creator.join().unwrap();
        reopened.close().unwrap();
        let again = Database::open("db", options(&setup.disk)).unwrap();
        assert!(!created || again.table("u").is_ok(), "acknowledged, and gone");
    });
}

/// It returned at once, while the first was still at the log and held the directory.
#[test]
fn a_second_close_waits_for_the_first() {
    explore(|| {
        let setup = Setup::new();
        put(&setup.table, 1, 1);
        let closer = {
            let database = setup.database.clone();
            thread::spawn(move || database.close().unwrap())
        };
        setup.database.close().unwrap();
        let reopened = Database::open("db", options(&setup.disk)).unwrap();
        closer.join().unwrap();
        assert_eq!(get(&reopened.table("t").unwrap(), 1), Some(1));
    });
}

/// However the update falls between the scan that finds the row expired and the delete.
#[test]
fn a_row_that_is_renewed_beside_its_expiry_is_kept() {
    explore(|| {
        let clock = Arc::new(ManualClock::at(Duration::from_secs(1_000)));
        let database = Database::open("db", Options { clock, ..options(&MemoryDisk::new()) }).unwrap();
        let schema = Schema::parse("id int64 not null, at timestamp(s), primary key (id)").unwrap();
        let expiry = Some(Expiry::new("at", Duration::from_secs(100)));
        let options = TableOptions { expiry, ..TableOptions::default() };
        let table = database.create_typed_table("t", schema, options).unwrap();
        let insert = |table: &Table, id, at| {
            table.insert_row(&[DatumRef::Int64(id), DatumRef::Timestamp(at)], Durability::Os).unwrap();
        };
        (0..3).for_each(|id| insert(&table, id, 1));
        let renewal = {
            let table = table.clone();
            thread::spawn(move || insert(&table, 1, 990))
        };
        let deleted = database.expire_rows(&table).unwrap();
        renewal.join().unwrap();
        let is_there = |id| table.get_row(&[DatumRef::Int64(id)], None, &ReadOptions::default()).unwrap().is_some();
        assert_eq!([0, 1, 2].map(is_there), [false, true, false]);
        assert!(deleted == 2 || deleted == 3, "{deleted} of three");
    });
}
