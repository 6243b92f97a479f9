//! Transactions against naive models: their own view, conflicts predicted exactly, anomalies, threads.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mycelium_encoding::{DatumRef, Schema};
use mycelium_engine::{
    Background, Database, Durability, ErrorKind, IsolationLevel, Options, ReadOptions, Result, Table, TableOptions,
    Transaction, TransactionOptions,
};
use mycelium_vfs::{CrashDraw, MemoryDisk};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::common::{Append, Rows, assert_verified, key, scan, small_options, small_table};

fn open(disk: &MemoryDisk) -> (Database, Table) {
    let options = Options { merge_operators: vec![Arc::new(Append)], ..small_options(disk) };
    let database = Database::open("/db", options).unwrap();
    let options = TableOptions { merge_operator: Some("append".into()), ..small_table() };
    let table = database.create_table("t", options).unwrap();
    (database, table)
}

fn walk(transaction: &Transaction, table: &Table, options: &ReadOptions, backward: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = transaction.iter(table, options).unwrap();
    if backward {
        rows.seek_to_last().unwrap()
    } else {
        rows.seek_to_first().unwrap()
    }
    let mut found = Vec::new();
    while rows.valid() {
        found.push((rows.key().to_vec(), rows.value().to_vec()));
        if backward { rows.prev().unwrap() } else { rows.next().unwrap() }
    }
    if backward {
        found.reverse();
    }
    found
}

fn random_range(rng: &mut SmallRng, keys: u32) -> (Vec<u8>, Vec<u8>) {
    let from = rng.random_range(0..keys);
    (key(from), key(from + rng.random_range(0..keys / 8)))
}

/// Writes something to the transaction and to the model.
fn random_write(rng: &mut SmallRng, transaction: &mut Transaction, table: &Table, rows: &mut Rows, keys: u32) {
    let key = key(rng.random_range(0..keys));
    let value = rng.random::<u16>().to_be_bytes();
    match rng.random_range(0..10) {
        0..4 => {
            transaction.put(table, &key, &value).unwrap();
            rows.insert(key, value.to_vec());
        }
        4..6 => {
            transaction.delete(table, &key).unwrap();
            rows.remove(&key);
        }
        6..9 => {
            transaction.merge(table, &key, &value).unwrap();
            rows.entry(key).or_default().extend(value);
        }
        _ => {
            let (start, end) = random_range(rng, keys);
            transaction.delete_range(table, &start, &end).unwrap();
            rows.retain(|key, _| !(start <= *key && *key < end));
        }
    }
}

/// Random moves of one iterator, against the model's rows.
fn check_moves(rng: &mut SmallRng, transaction: &Transaction, table: &Table, rows: &Rows, keys: u32) {
    let (lower, upper) = random_range(rng, keys);
    let bounded = rng.random_bool(0.5);
    let mut options = ReadOptions::default();
    let mut within = rows.clone();
    if bounded {
        within.retain(|key, _| lower <= *key && *key < upper);
        (options.lower, options.upper) = (Some(lower), Some(upper));
    }
    let mut found = transaction.iter(table, &options).unwrap();
    let mut at: Option<Vec<u8>> = None;
    for _ in 0..12 {
        let to = key(rng.random_range(0..keys));
        let first = |from: &[u8]| within.range(from.to_vec()..).next().map(|(key, _)| key.clone());
        let last = |to: &[u8]| within.range(..=to.to_vec()).next_back().map(|(key, _)| key.clone());
        match rng.random_range(0..8) {
            0 => (found.seek_to_first().unwrap(), at = within.keys().next().cloned()),
            1 => (found.seek_to_last().unwrap(), at = within.keys().next_back().cloned()),
            2 => (found.seek(&to).unwrap(), at = first(&to)),
            3 => (found.seek_for_prev(&to).unwrap(), at = last(&to)),
            4 | 5 => {
                let next = |key: &Vec<u8>| first(&[key.as_slice(), &[0]].concat());
                (found.next().unwrap(), at = at.as_ref().and_then(next))
            }
            _ => {
                let before = |key: &Vec<u8>| within.range(..key.clone()).next_back().map(|(key, _)| key.clone());
                (found.prev().unwrap(), at = at.as_ref().and_then(before))
            }
        };
        assert_eq!(found.valid().then(|| found.key().to_vec()), at);
        if let Some(key) = &at {
            assert_eq!(found.value(), within[key]);
        }
    }
}

#[test]
fn a_transaction_sees_its_snapshot_below_its_own_writes() {
    for seed in 0..12 {
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let disk = MemoryDisk::new();
        let (database, table) = open(&disk);
        let keys = 120;
        let mut committed = Rows::new();
        for round in 0..30 {
            let mut transaction = database.begin(IsolationLevel::Snapshot);
            let mut rows = committed.clone();
            let mut savepoints = Vec::new();
            // What others write meanwhile is not there for the transaction.
            table.put(&key(1000 + round), b"other", Durability::Os).unwrap();
            committed.insert(key(1000 + round), b"other".to_vec());
            for _ in 0..rng.random_range(1..40) {
                match rng.random_range(0..12) {
                    0 => savepoints.push((transaction.savepoint(), rows.clone())),
                    1 if !savepoints.is_empty() => {
                        let at = rng.random_range(0..savepoints.len());
                        savepoints.truncate(at + 1);
                        transaction.rollback_to(savepoints[at].0).unwrap();
                        rows.clone_from(&savepoints[at].1);
                    }
                    2 if !savepoints.is_empty() => {
                        let at = rng.random_range(0..savepoints.len());
                        transaction.release(savepoints[at].0).unwrap();
                        assert!(transaction.rollback_to(savepoints[at].0).is_err());
                        savepoints.truncate(at);
                    }
                    3 => check_moves(&mut rng, &transaction, &table, &rows, keys),
                    _ => random_write(&mut rng, &mut transaction, &table, &mut rows, keys),
                }
                let key = key(rng.random_range(0..keys));
                assert_eq!(transaction.get(&table, &key).unwrap().as_ref(), rows.get(&key));
            }
            let all = ReadOptions::default();
            let expected: Vec<_> = rows.clone().into_iter().collect();
            assert_eq!(walk(&transaction, &table, &all, false), expected);
            assert_eq!(walk(&transaction, &table, &all, true), expected);
            assert_eq!(scan(&table), committed, "nothing is visible before the commit");
            if rng.random_bool(0.7) {
                transaction.commit(Durability::Os).unwrap();
                committed = rows;
                committed.insert(key(1000 + round), b"other".to_vec());
            } else {
                transaction.rollback();
            }
            assert_eq!(scan(&table), committed);
            for _ in 0..rng.random_range(0..2) {
                database.flush().unwrap();
                database.step().unwrap();
            }
        }
    }
}

/// Keys `k` with `from <= k < to`.
type Interval = (Vec<u8>, Vec<u8>);

/// What the oracle of conflicts knows of a running transaction.
struct Running {
    transaction: Transaction,
    rows: Rows,
    written: Vec<Interval>,
    read: Vec<Interval>,
}

/// What was written, with its last sequence number.
type Commit = (u64, Vec<Interval>);

impl Running {
    /// Writes to a key or to a range of them.
    fn write(&mut self, table: &Table, rng: &mut SmallRng, keys: u32) {
        let Self { transaction, rows, written, .. } = self;
        let key = key(rng.random_range(0..keys));
        match rng.random_range(0..8) {
            0 => {
                let (start, end) = random_range(rng, keys / 4);
                transaction.delete_range(table, &start, &end).unwrap();
                rows.retain(|key, _| !(start <= *key && *key < end));
                written.push((start, end));
                return;
            }
            1 | 2 => {
                transaction.delete(table, &key).unwrap();
                rows.remove(&key);
            }
            3 => {
                transaction.merge(table, &key, b"+").unwrap();
                rows.entry(key.clone()).or_default().push(b'+');
            }
            _ => {
                transaction.put(table, &key, b"v").unwrap();
                rows.insert(key.clone(), b"v".to_vec());
            }
        }
        written.push(single(&key));
    }

    /// Reads a key, or some rows from one on, which must be what it sees.
    fn read(&mut self, table: &Table, rng: &mut SmallRng, keys: u32) {
        let Self { transaction, rows, read, written } = self;
        let from = key(rng.random_range(0..keys));
        if rng.random_bool(0.7) {
            let found = transaction.get(table, &from).unwrap();
            assert_eq!(found.as_ref(), rows.get(&from));
            // A row that own writes settle is not read; one that they cover is a conflict anyway.
            if !written.iter().any(|interval| overlap(interval, &single(&from))) {
                read.push(single(&from));
            }
            return;
        }
        let mut found = transaction.iter(table, &ReadOptions::default()).unwrap();
        found.seek(&from).unwrap();
        let mut expected = rows.range(from.clone()..);
        for _ in 0..rng.random_range(0..5) {
            assert_eq!(found.valid().then(|| found.key()), expected.next().map(|(key, _)| key.as_slice()));
            found.next().unwrap();
        }
        read.push((from, if found.valid() { single(found.key()).1 } else { vec![0xff] }));
    }

    /// Commits, which must fail if and only if a newer commit overlaps what it guards. The rows after it, and the
    /// commit if it wrote anything; `None` if it failed.
    fn commit(
        self,
        database: &Database,
        table: &Table,
        rows: &Rows,
        history: &[Commit],
    ) -> Option<(Rows, Option<Commit>)> {
        let Self { transaction, written, read, .. } = self;
        let since = transaction.snapshot().sequence();
        let mut guarded = written.clone();
        if transaction.isolation() == IsolationLevel::Serializable && !written.is_empty() {
            guarded.extend(read);
        }
        let mut newer = history.iter().filter(|(sequence, _)| *sequence > since).flat_map(|(_, theirs)| theirs);
        let is_conflict = newer.any(|theirs| guarded.iter().any(|ours| overlap(ours, theirs)));
        let after = rows_after(&transaction, table, rows, &written);
        match transaction.commit(Durability::Os) {
            Ok(sequence) => {
                assert!(!is_conflict, "a conflict was missed");
                assert!(written.is_empty() || sequence == database.last_sequence());
                Some((after, (!written.is_empty()).then_some((sequence, written))))
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                assert!(is_conflict, "no conflict, but {error}");
                None
            }
        }
    }
}

fn single(key: &[u8]) -> Interval {
    (key.to_vec(), [key, &[0]].concat())
}

fn overlap(a: &Interval, b: &Interval) -> bool {
    (&a.0).max(&b.0) < (&a.1).min(&b.1)
}

/// Many transactions in one thread, interleaved at random with plain writes, ingestions, flushes and compactions: every
/// commit must fail if and only if the oracle says so.
#[test]
fn conflicts_are_seen_exactly() {
    let (mut conflicts, mut commits) = (0, 0);
    for seed in 0..24 {
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let disk = MemoryDisk::new();
        let (database, table) = open(&disk);
        let keys = 400;
        let mut rows = Rows::new();
        let mut history: Vec<Commit> = Vec::new();
        let mut running: Vec<Running> = Vec::new();
        for _ in 0..800 {
            let chosen = rng.random_range(0..running.len().max(1));
            match rng.random_range(0..20) {
                0..3 => {
                    let level = [IsolationLevel::Snapshot, IsolationLevel::Serializable][rng.random_range(0..2)];
                    let transaction = database.begin(level);
                    running.push(Running { transaction, rows: rows.clone(), written: vec![], read: vec![] });
                }
                3..9 if !running.is_empty() => running[chosen].write(&table, &mut rng, keys),
                9..13 if !running.is_empty() => running[chosen].read(&table, &mut rng, keys),
                13..15 if !running.is_empty() => {
                    match running.swap_remove(chosen).commit(&database, &table, &rows, &history) {
                        Some((after, commit)) => {
                            rows = after;
                            history.extend(commit);
                            commits += 1;
                        }
                        None => conflicts += 1,
                    }
                }
                15 => {
                    let key = key(rng.random_range(0..keys));
                    let sequence = table.delete(&key, Durability::Os).unwrap();
                    rows.remove(&key);
                    history.push((sequence, vec![single(&key)]));
                }
                16 => {
                    let from = rng.random_range(0..keys);
                    let loaded: Vec<_> = (from..from + 5).map(|n| (key(n), b"in".to_vec())).collect();
                    let sequence = table.ingest(loaded.iter().cloned().map(Ok)).unwrap().sequence.unwrap();
                    history.push((sequence, loaded.iter().map(|(key, _)| single(key)).collect()));
                    rows.extend(loaded);
                }
                17 => database.flush().unwrap(),
                18 => drop(database.step().unwrap()),
                _ if rng.random_bool(0.2) => database.compact(&table).unwrap(),
                _ => {}
            }
        }
        drop(running);
        assert_eq!(scan(&table), rows);
        assert_verified(&database);
    }
    println!("{conflicts} conflicts, {commits} commits");
    assert!(conflicts > 100 && commits > 100);
}

/// The committed rows as they will be if the transaction commits: of what it wrote, what it sees now where nobody else
/// wrote meanwhile.
fn rows_after(transaction: &Transaction, table: &Table, rows: &Rows, written: &[Interval]) -> Rows {
    let mut after = rows.clone();
    after.retain(|key, _| !written.iter().any(|interval| overlap(interval, &single(key))));
    for (key, _) in written.iter().filter(|interval| single(&interval.0) == **interval) {
        if let Some(value) = transaction.get(table, key).unwrap() {
            after.insert(key.clone(), value);
        }
    }
    after
}

#[test]
fn merged_reads_still_find_every_conflict() {
    let disk = MemoryDisk::new();
    let (database, table) = open(&disk);
    for n in 0..2000 {
        table.put(&key(n), b"v", Durability::Os).unwrap();
    }
    for changed in [0, 2, 500, 1998] {
        let options = TransactionOptions { tracked_read_bytes: 2000, ..TransactionOptions::default() };
        let mut transaction = database.begin_with(options);
        for n in (0..2000).step_by(2) {
            transaction.get(&table, &key(n)).unwrap();
        }
        transaction.put(&table, b"mine", b"v").unwrap();
        table.put(&key(changed), b"changed", Durability::Os).unwrap();
        assert_eq!(transaction.commit(Durability::Os).unwrap_err().kind(), ErrorKind::Conflict, "{changed}");
    }
}

#[test]
fn misuse_is_refused_and_leaves_the_transaction_as_it_was() {
    let disk = MemoryDisk::new();
    let (database, table) = open(&disk);
    let plain = database.create_table("plain", small_table()).unwrap();
    let elsewhere = Database::open("/elsewhere", small_options(&disk)).unwrap();
    let foreign = elsewhere.create_table("t", small_table()).unwrap();
    let mut transaction = database.begin(IsolationLevel::Serializable);
    let mut other = database.begin(IsolationLevel::Snapshot);
    transaction.put(&table, b"k", b"v").unwrap();
    let snapshot = database.snapshot();
    let foreign_savepoint = other.savepoint();
    let refused = [
        transaction.put(&foreign, b"k", b"v"),
        transaction.get(&foreign, b"k").map(drop),
        transaction.merge(&plain, b"k", b"v"),
        transaction.patch(&plain, b"k", b"v"),
        transaction.put(&table, &[0; 70_000], b"v"),
        transaction.delete_range(&table, b"a", &[0; 70_000]),
        transaction.rollback_to(foreign_savepoint),
        transaction.iter(&table, &ReadOptions::at(&snapshot)).map(drop),
    ];
    for (i, result) in refused.into_iter().enumerate() {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidArgument, "call {i}");
    }
    assert_eq!(transaction.len(), 1);
    transaction.commit(Durability::Os).unwrap();
    assert_eq!(scan(&table).len(), 1);
    let mut late = database.begin(IsolationLevel::Snapshot);
    late.put(&plain, b"k", b"v").unwrap();
    database.drop_table("plain").unwrap();
    assert_eq!(late.commit(Durability::Os).unwrap_err().kind(), ErrorKind::NotFound);
    let mut closed = database.begin(IsolationLevel::Snapshot);
    closed.put(&table, b"k", b"w").unwrap();
    database.close().unwrap();
    assert_eq!(closed.commit(Durability::Os).unwrap_err().kind(), ErrorKind::Closed);
}

/// Dropping a table takes no sequence number, and what was read of it was looked at only where something newer was
/// committed.
#[test]
fn a_transaction_that_read_a_dropped_table_committed_if_nothing_else_did() {
    let (database, table) = open(&MemoryDisk::new());
    for is_committed_beside in [false, true] {
        let source = database.create_table("source", small_table()).unwrap();
        source.put(b"k", b"v", Durability::Os).unwrap();
        let mut transaction = database.begin(IsolationLevel::Serializable);
        let copied = transaction.get(&source, b"k").unwrap().unwrap();
        transaction.put(&table, b"copy", &copied).unwrap();
        database.drop_table("source").unwrap();
        if is_committed_beside {
            table.put(b"other", b"", Durability::Os).unwrap();
        }
        assert_eq!(transaction.commit(Durability::Os).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(table.get(b"copy").unwrap(), None);
    }
}

#[test]
fn typed_rows_are_read_and_patched() {
    use mycelium_encoding::{Datum, DatumRef, Schema};
    let disk = MemoryDisk::new();
    let database = Database::open("/db", small_options(&disk)).unwrap();
    let schema = Schema::parse("id int64 not null, name utf8, visits int32, primary key (id)").unwrap();
    let table = database.create_typed_table("people", schema, TableOptions::default()).unwrap();
    table.insert_row(&[DatumRef::Int64(1), DatumRef::Utf8("Ada"), DatumRef::Int32(1)], Durability::Os).unwrap();
    let mut transaction = database.begin(IsolationLevel::Serializable);
    transaction.patch_row(&table, &[DatumRef::Int64(1)], &[("visits", DatumRef::Int32(2))]).unwrap();
    transaction.patch_row(&table, &[DatumRef::Int64(2)], &[("visits", DatumRef::Int32(9))]).unwrap();
    transaction.insert_row(&table, &[DatumRef::Int64(3), DatumRef::Null, DatumRef::Null]).unwrap();
    transaction.patch_row(&table, &[DatumRef::Int64(3)], &[("name", DatumRef::Utf8("Grace"))]).unwrap();
    let ada = transaction.get_row(&table, &[DatumRef::Int64(1)], None).unwrap().unwrap();
    assert_eq!(ada, [Datum::Int64(1), Datum::Utf8("Ada".into()), Datum::Int32(2)]);
    assert_eq!(transaction.get_row(&table, &[DatumRef::Int64(2)], None).unwrap(), None);
    let grace = transaction.get_row(&table, &[DatumRef::Int64(3)], Some(&[1])).unwrap().unwrap();
    assert_eq!(grace, [Datum::Utf8("Grace".into())]);
    transaction.commit(Durability::Os).unwrap();
    let options = ReadOptions::default();
    assert_eq!(table.get_row(&[DatumRef::Int64(1)], None, &options).unwrap().unwrap(), ada);
    assert_eq!(table.get_row(&[DatumRef::Int64(2)], None, &options).unwrap(), None);
    let mut transaction = database.begin(IsolationLevel::Snapshot);
    transaction.delete_row(&table, &[DatumRef::Int64(1)]).unwrap();
    transaction.commit(Durability::Os).unwrap();
    assert_eq!(table.get_row(&[DatumRef::Int64(1)], None, &options).unwrap(), None);
}

#[test]
fn a_crash_leaves_all_of_a_commit_or_nothing() {
    let run = |disk: &MemoryDisk| -> Result<u32> {
        let database = Database::open("/db", small_options(disk))?;
        let left = database.create_table("left", small_table())?;
        let right = database.create_table("right", small_table())?;
        for n in 0..6 {
            let mut transaction = database.begin(IsolationLevel::Serializable);
            transaction.put(&left, &key(n), b"v")?;
            transaction.put(&right, &key(n), b"v")?;
            if transaction.commit(Durability::Sync).is_err() {
                return Ok(n);
            }
        }
        Ok(6)
    };
    let disk = MemoryDisk::new();
    assert_eq!(run(&disk).unwrap(), 6);
    for n in 0..=disk.operations() {
        let disk = MemoryDisk::new();
        disk.power_off_after(Some(n));
        let acknowledged = run(&disk).unwrap_or(0);
        let image = disk.crash_image(&CrashDraw::from_seed(n));
        let database = Database::open("/db", small_options(&image)).unwrap();
        let (Ok(left), Ok(right)) = (database.table("left"), database.table("right")) else {
            assert_eq!(acknowledged, 0);
            continue;
        };
        let rows = scan(&left);
        assert_eq!(rows, scan(&right));
        assert!(rows.len() >= acknowledged as usize && rows.keys().eq(expected_keys(rows.len()).iter()));
    }
}

fn expected_keys(count: usize) -> Vec<Vec<u8>> {
    (0..count as u32).map(key).collect()
}

// Anomalies, after Hermitage (M. Kleppmann): rows 1 => 10 and 2 => 20.

struct Stage {
    database: Database,
    table: Table,
}

fn stage() -> Stage {
    let (database, table) = open(&MemoryDisk::new());
    table.put(b"1", b"10", Durability::Os).unwrap();
    table.put(b"2", b"20", Durability::Os).unwrap();
    Stage { database, table }
}

impl Stage {
    fn pair(&self, level: IsolationLevel) -> (Transaction, Transaction) {
        (self.database.begin(level), self.database.begin(level))
    }

    fn read(&self, transaction: &Transaction, key: &str) -> String {
        String::from_utf8(transaction.get(&self.table, key.as_bytes()).unwrap().unwrap_or_default()).unwrap()
    }

    fn write(&self, transaction: &mut Transaction, key: &str, value: &str) {
        transaction.put(&self.table, key.as_bytes(), value.as_bytes()).unwrap();
    }

    fn rows(&self) -> String {
        let rows = scan(&self.table).into_iter();
        let texts = rows.map(|(k, v)| format!("{}={}", String::from_utf8_lossy(&k), String::from_utf8_lossy(&v)));
        texts.collect::<Vec<_>>().join(" ")
    }

    fn with_value(&self, transaction: &Transaction, value: &str) -> usize {
        let rows = walk(transaction, &self.table, &ReadOptions::default(), false);
        rows.iter().filter(|(_, v)| v == value.as_bytes()).count()
    }
}

fn commit(transaction: Transaction) -> bool {
    match transaction.commit(Durability::Os) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            false
        }
    }
}

const LEVELS: [IsolationLevel; 2] = [IsolationLevel::Snapshot, IsolationLevel::Serializable];

#[test]
fn g0_write_cycles_are_refused() {
    for level in LEVELS {
        let s = stage();
        let (mut a, mut b) = s.pair(level);
        s.write(&mut a, "1", "11");
        s.write(&mut b, "1", "12");
        s.write(&mut a, "2", "21");
        assert!(commit(a));
        s.write(&mut b, "2", "22");
        assert!(!commit(b));
        assert_eq!(s.rows(), "1=11 2=21");
    }
}

#[test]
fn g1_aborted_intermediate_and_circular_reads_do_not_happen() {
    for level in LEVELS {
        let s = stage();
        let (mut a, b) = s.pair(level);
        s.write(&mut a, "1", "101");
        assert_eq!(s.read(&b, "1"), "10");
        a.rollback();
        assert_eq!(s.read(&b, "1"), "10");
        assert!(commit(b));

        let (mut a, b) = s.pair(level);
        s.write(&mut a, "1", "101");
        assert_eq!(s.read(&b, "1"), "10");
        s.write(&mut a, "1", "11");
        assert!(commit(a));
        assert_eq!(s.read(&b, "1"), "10");
        assert!(commit(b));

        let (mut a, mut b) = s.pair(level);
        s.write(&mut a, "1", "12");
        s.write(&mut b, "2", "22");
        assert_eq!((s.read(&a, "2"), s.read(&b, "1")), ("20".into(), "11".into()));
        assert!(commit(a));
        // Each would have to come before the other.
        assert_eq!(commit(b), level == IsolationLevel::Snapshot);
    }
}

#[test]
fn otv_an_observed_transaction_does_not_vanish() {
    for level in LEVELS {
        let s = stage();
        let (mut a, mut b) = s.pair(level);
        s.write(&mut a, "1", "11");
        s.write(&mut a, "2", "19");
        s.write(&mut b, "1", "12");
        assert!(commit(a));
        let c = s.database.begin(level);
        assert_eq!(s.read(&c, "1"), "11");
        s.write(&mut b, "2", "18");
        assert!(!commit(b));
        assert_eq!((s.read(&c, "2"), s.read(&c, "1")), ("19".into(), "11".into()));
        assert!(commit(c));
    }
}

#[test]
fn pmp_a_predicate_gives_the_same_rows_again() {
    for level in LEVELS {
        let s = stage();
        let (a, mut b) = s.pair(level);
        assert_eq!(s.with_value(&a, "30"), 0);
        s.write(&mut b, "3", "30");
        assert!(commit(b));
        assert_eq!(s.with_value(&a, "30"), 0);
        assert!(commit(a));
    }
    // With a write the reader depends on the predicate.
    for (level, passes) in [(IsolationLevel::Snapshot, true), (IsolationLevel::Serializable, false)] {
        let s = stage();
        let (mut a, mut b) = s.pair(level);
        assert_eq!(s.with_value(&a, "30"), 0);
        s.write(&mut a, "sum", "0");
        s.write(&mut b, "3", "30");
        assert!(commit(b));
        assert_eq!(commit(a), passes);
    }
}

#[test]
fn p4_a_lost_update_is_refused() {
    for level in LEVELS {
        let s = stage();
        let (mut a, mut b) = s.pair(level);
        assert_eq!((s.read(&a, "1"), s.read(&b, "1")), ("10".into(), "10".into()));
        s.write(&mut a, "1", "11");
        s.write(&mut b, "1", "11");
        assert!(commit(a));
        assert!(!commit(b));
    }
}

#[test]
fn g_single_read_skew_does_not_happen() {
    for level in LEVELS {
        let s = stage();
        let (a, mut b) = s.pair(level);
        assert_eq!(s.read(&a, "1"), "10");
        s.write(&mut b, "1", "12");
        s.write(&mut b, "2", "18");
        assert!(commit(b));
        assert_eq!(s.read(&a, "2"), "20");
        assert!(commit(a));
        // A delete that depends on the skewed read meets the newer write.
        let (mut a, mut b) = s.pair(level);
        assert_eq!(s.read(&a, "1"), "12");
        s.write(&mut b, "2", "17");
        assert!(commit(b));
        a.delete(&s.table, b"2").unwrap();
        assert!(!commit(a));
    }
}

#[test]
fn g2_write_skew_is_allowed_under_snapshot_only() {
    for (level, passes) in [(IsolationLevel::Snapshot, true), (IsolationLevel::Serializable, false)] {
        let s = stage();
        let (mut a, mut b) = s.pair(level);
        for transaction in [&a, &b] {
            assert_eq!((s.read(transaction, "1"), s.read(transaction, "2")), ("10".into(), "20".into()));
        }
        s.write(&mut a, "1", "11");
        s.write(&mut b, "2", "21");
        assert!(commit(a));
        assert_eq!(commit(b), passes, "G2-item");

        // Anti-dependency cycles through a predicate: both look for rows of value 30, then insert one.
        let (mut a, mut b) = s.pair(level);
        assert_eq!((s.with_value(&a, "30"), s.with_value(&b, "30")), (0, 0));
        s.write(&mut a, "3", "30");
        s.write(&mut b, "4", "30");
        assert!(commit(a));
        assert_eq!(commit(b), passes, "G2");

        // Fekete's read-only anomaly: a reader between two writers.
        let s = stage();
        let (mut a, mut b) = s.pair(level);
        let _ = (s.read(&a, "1"), s.read(&a, "2"));
        s.write(&mut b, "2", "25");
        assert!(commit(b));
        let c = s.database.begin(level);
        assert_eq!((s.read(&c, "1"), s.read(&c, "2")), ("10".into(), "25".into()));
        assert!(commit(c));
        s.write(&mut a, "1", "0");
        assert_eq!(commit(a), passes, "read-only anomaly");
    }
}

#[test]
fn transfers_between_threads_keep_the_sum() {
    let disk = MemoryDisk::new();
    let options = Options { background: Background::Threads(2), memory_budget: 16 << 10, ..small_options(&disk) };
    let database = Database::open("/db", options).unwrap();
    let accounts = database.create_table("accounts", small_table()).unwrap();
    let (count, start) = (20, 1000_i64);
    for n in 0..count {
        accounts.put(&key(n), &start.to_be_bytes(), Durability::Os).unwrap();
    }
    let amount_of = |bytes: &[u8]| i64::from_be_bytes(bytes.try_into().unwrap());
    let (done, refused, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let checker = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let transaction = database.begin(IsolationLevel::Serializable);
                let rows = walk(&transaction, &accounts, &ReadOptions::default(), false);
                let sum: i64 = rows.iter().map(|(_, value)| amount_of(value)).sum();
                assert_eq!(sum, start * i64::from(count));
                transaction.commit(Durability::Os).unwrap();
            }
        });
        let movers: Vec<_> = (0..4_u64)
            .map(|thread| {
                let (database, accounts, done, refused) = (&database, &accounts, &done, &refused);
                scope.spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(thread);
                    for _ in 0..400 {
                        let level = LEVELS[rng.random_range(0..2)];
                        let (from, to) = (key(rng.random_range(0..count)), key(rng.random_range(0..count)));
                        let mut transaction = database.begin(level);
                        let source = amount_of(&transaction.get(accounts, &from).unwrap().unwrap()) - 7;
                        transaction.put(accounts, &from, &source.to_be_bytes()).unwrap();
                        let target = amount_of(&transaction.get(accounts, &to).unwrap().unwrap()) + 7;
                        transaction.put(accounts, &to, &target.to_be_bytes()).unwrap();
                        std::thread::yield_now();
                        let counter = if commit(transaction) { done } else { refused };
                        counter.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        movers.into_iter().for_each(|mover| mover.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        checker.join().unwrap();
    });
    println!("{done:?} transfers, {refused:?} refused");
    assert!(done.load(Ordering::Relaxed) > 0);
    let sum: i64 = scan(&accounts).values().map(|value| amount_of(value)).sum();
    assert_eq!(sum, start * i64::from(count));
}

/// Rows found from one key to before another.
type Scan = (u32, u32, Vec<(Vec<u8>, Vec<u8>)>);

/// What one committed transaction of the history test saw and did.
struct Record {
    /// Its place in the serial order: commits by their sequence number, readers after the commit they saw last.
    place: (u64, bool),
    gets: Vec<(u32, Option<Vec<u8>>)>,
    scans: Vec<Scan>,
    appends: Vec<(u32, u8)>,
}

/// Serializable transactions of several threads, replayed one after the other in the order of their commits, must see
/// the same again.
#[test]
fn histories_of_threads_are_serializable() {
    for seed in 0..6_u64 {
        let disk = MemoryDisk::new();
        let options = Options { background: Background::Threads(2), memory_budget: 16 << 10, ..small_options(&disk) };
        let database = Database::open("/db", options).unwrap();
        let table = database.create_table("t", small_table()).unwrap();
        let keys = 12;
        let mut records: Vec<Record> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4_u64)
                .map(|thread| {
                    let (database, table) = (&database, &table);
                    scope.spawn(move || run_random_transactions(database, table, keys, seed * 100 + thread))
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        records.sort_by_key(|record| record.place);
        let mut rows: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        let mut places = BTreeSet::new();
        for record in &records {
            for (n, value) in &record.gets {
                assert_eq!(rows.get(n), value.as_ref(), "seed {seed}");
            }
            for (from, to, found) in &record.scans {
                let expected: Vec<_> = rows.range(from..to).map(|(n, value)| (key(*n), value.clone())).collect();
                assert_eq!(&expected, found, "seed {seed}");
            }
            for (n, mark) in &record.appends {
                rows.entry(*n).or_default().push(*mark);
            }
            assert!(record.place.1 || places.insert(record.place.0));
        }
        let found: Rows = rows.into_iter().map(|(n, value)| (key(n), value)).collect();
        assert_eq!(scan(&table), found, "seed {seed}");
        println!("seed {seed}: {} commits", records.len());
    }
}

fn run_random_transactions(database: &Database, table: &Table, keys: u32, seed: u64) -> Vec<Record> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut records = Vec::new();
    for _ in 0..150 {
        let mut transaction = database.begin(IsolationLevel::Serializable);
        let mut record = Record { place: (0, false), gets: vec![], scans: vec![], appends: vec![] };
        let mut touched = BTreeSet::new();
        for _ in 0..rng.random_range(1..5) {
            let n = rng.random_range(0..keys);
            match rng.random_range(0..3) {
                // Reads of what it wrote itself would not be reads of the history.
                0 if !touched.contains(&n) => record.gets.push((n, transaction.get(table, &key(n)).unwrap())),
                1 if touched.is_empty() => {
                    let to = n + rng.random_range(0..4);
                    let options = ReadOptions { lower: Some(key(n)), upper: Some(key(to)), ..ReadOptions::default() };
                    record.scans.push((n, to, walk(&transaction, table, &options, rng.random_bool(0.5))));
                }
                _ => {
                    if touched.insert(n) {
                        let mut value = transaction.get(table, &key(n)).unwrap();
                        record.gets.push((n, value.clone()));
                        let mark = rng.random();
                        value.get_or_insert_default().push(mark);
                        transaction.put(table, &key(n), &value.unwrap()).unwrap();
                        record.appends.push((n, mark));
                    }
                }
            }
        }
        let is_reader = transaction.is_empty();
        match transaction.commit(Durability::Os) {
            Ok(sequence) => {
                record.place = (sequence, is_reader);
                records.push(record);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
        }
    }
    records
}

#[test]
fn a_value_that_is_no_row_is_refused_at_once_and_spoils_no_transaction() {
    let database = Database::open("/db", small_options(&MemoryDisk::new())).unwrap();
    let schema = Schema::parse("id int64 not null, name utf8, primary key (id)").unwrap();
    let people = database.create_typed_table("people", schema, TableOptions::default()).unwrap();
    let mut transaction = database.begin(IsolationLevel::Snapshot);
    transaction.insert_row(&people, &[DatumRef::Int64(1), DatumRef::Utf8("Ada")]).unwrap();
    let savepoint = transaction.savepoint();
    let row_key = people.row_key(&[DatumRef::Int64(2)]).unwrap();
    let refused = transaction.put(&people, &row_key, b"no row").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert_eq!(transaction.get(&people, &row_key).unwrap(), None);
    transaction.rollback_to(savepoint).unwrap();
    transaction.commit(Durability::Os).unwrap();
    assert_eq!(scan(&people).len(), 1);
}
