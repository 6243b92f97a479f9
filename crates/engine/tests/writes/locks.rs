//! Locks on rows in transactions: against a model, in threads, and how each way to be refused ends.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use mycelium_encoding::{Datum, DatumRef, Schema};
use mycelium_engine::{
    Database, Durability, ErrorKind, IndexOptions, IsolationLevel, Options, ReadOptions, Result, Savepoint, Table,
    TableOptions, Transaction, TransactionOptions,
};
use mycelium_vfs::MemoryDisk;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::common::{Rows, assert_verified, key, scan, scan_with, small_options, small_table};

const ISOLATIONS: [IsolationLevel; 2] = [IsolationLevel::Snapshot, IsolationLevel::Serializable];

fn open() -> (Database, Table) {
    let database = Database::open("/db", small_options(&MemoryDisk::new())).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    (database, table)
}

/// One that waits for ever.
fn patient(database: &Database, isolation: IsolationLevel) -> Transaction {
    database.begin_with(TransactionOptions { isolation, lock_timeout: Duration::MAX, ..TransactionOptions::default() })
}

/// One that does not wait.
fn hasty(database: &Database, isolation: IsolationLevel) -> Transaction {
    database.begin_with(TransactionOptions { isolation, lock_timeout: Duration::ZERO, ..TransactionOptions::default() })
}

fn number(row: Option<Vec<u8>>) -> i64 {
    row.map_or(0, |bytes| i64::from_be_bytes(bytes.try_into().unwrap()))
}

#[track_caller]
fn kind<T: std::fmt::Debug>(outcome: Result<T>) -> ErrorKind {
    outcome.unwrap_err().kind()
}

/// Optimistic transactions on one row fail for all but one of those who run at once, again and again.
#[test]
fn a_counter_that_is_read_for_update_never_conflicts() {
    const THREADS: i64 = 4;
    const INCREMENTS: i64 = 100;
    let (database, table) = open();
    let hot = [key(1), key(2)];
    thread::scope(|scope| {
        for n in 0..THREADS {
            let (database, table, hot) = (&database, &table, &hot);
            scope.spawn(move || {
                for _ in 0..INCREMENTS {
                    let mut transaction = patient(database, ISOLATIONS[n as usize % 2]);
                    // The second lock finds a row that changed since the first, too.
                    for key in hot {
                        let next = number(transaction.get_for_update(table, key).unwrap()) + 1;
                        transaction.put(table, key, &next.to_be_bytes()).unwrap();
                        assert_eq!(number(transaction.get(table, key).unwrap()), next);
                    }
                    transaction.commit(Durability::Os).unwrap();
                }
            });
        }
    });
    for key in hot {
        assert_eq!(number(table.get(&key).unwrap()), THREADS * INCREMENTS);
    }
    assert_verified(&database);
}

const ACCOUNTS: u32 = 6;
const OPENING: i64 = 1000;

/// Moves money; locks are taken in any order.
fn transfer(database: &Database, table: &Table, rng: &mut SmallRng) -> Result<()> {
    let mut transaction = patient(database, ISOLATIONS[rng.random_range(0..2)]);
    let from = rng.random_range(0..ACCOUNTS);
    let to = (from + rng.random_range(1..ACCOUNTS)) % ACCOUNTS;
    let (source, target) =
        (number(transaction.get_for_update(table, &key(from))?), number(transaction.get_for_update(table, &key(to))?));
    let amount = rng.random_range(0..=source);
    transaction.put(table, &key(from), &(source - amount).to_be_bytes())?;
    transaction.put(table, &key(to), &(target + amount).to_be_bytes())?;
    transaction.commit(Durability::Os).map(drop)
}

#[test]
fn transfers_between_locked_accounts_keep_their_sum_and_meet_only_deadlocks() {
    let (database, table) = open();
    for account in 0..ACCOUNTS {
        table.put(&key(account), &OPENING.to_be_bytes(), Durability::Os).unwrap();
    }
    let sum = |rows: Rows| -> i64 { rows.into_values().map(|value| number(Some(value))).sum() };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (database, table, is_over) = (&database, &table, &is_over);
        let threads: Vec<_> = (0..4)
            .map(|seed| {
                scope.spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(seed);
                    let mut done = 0;
                    while done < 60 {
                        match transfer(database, table, &mut rng) {
                            Ok(()) => done += 1,
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}"),
                        }
                    }
                })
            })
            .collect();
        scope.spawn(move || {
            while !is_over.load(Ordering::Acquire) {
                let at = ReadOptions::at(&database.snapshot());
                assert_eq!(sum(scan_with(table, &at)), i64::from(ACCOUNTS) * OPENING);
            }
        });
        let outcomes: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Release);
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    });
    assert_eq!(sum(scan(&table)), i64::from(ACCOUNTS) * OPENING);
    assert_verified(&database);
}

/// What committed transactions and plain writes did.
struct Model {
    /// The rows after each commit.
    history: Vec<BTreeMap<u32, u16>>,
    /// The commit that wrote to a key last.
    changed: BTreeMap<u32, usize>,
}

#[derive(Clone, Default)]
struct Own {
    writes: BTreeMap<u32, Option<u16>>,
    locks: BTreeSet<u32>,
}

/// A transaction beside what it should see.
struct Open {
    transaction: Transaction,
    /// The commit that it sees last.
    at: usize,
    /// Keys that it has noted.
    noted: BTreeSet<u32>,
    has_read_more: bool,
    own: Own,
    savepoint: Option<(Savepoint, Own)>,
}

impl Model {
    fn commit(&mut self, writes: &BTreeMap<u32, Option<u16>>) {
        let mut rows = self.history.last().unwrap().clone();
        for (&key, &value) in writes {
            rows.remove(&key);
            if let Some(value) = value {
                rows.insert(key, value);
            }
            self.changed.insert(key, self.history.len());
        }
        self.history.push(rows);
    }

    fn is_changed(&self, key: u32, since: usize) -> bool {
        self.changed.get(&key).is_some_and(|&at| at > since)
    }

    /// Whether anything that a transaction has touched was committed to since its snapshot.
    fn conflicts(&self, open: &Open) -> bool {
        open.noted.iter().chain(open.own.writes.keys()).any(|&key| self.is_changed(key, open.at))
    }
}

impl Open {
    fn new(transaction: Transaction, model: &Model) -> Self {
        let at = model.history.len() - 1;
        Self { transaction, at, noted: BTreeSet::new(), has_read_more: false, own: Own::default(), savepoint: None }
    }

    fn is_serializable(&self) -> bool {
        self.transaction.isolation() == IsolationLevel::Serializable
    }

    /// What it should read; notes that it did.
    fn read(&mut self, model: &Model, n: u32) -> Option<u16> {
        if let Some(own) = self.own.writes.get(&n) {
            return *own;
        }
        if self.is_serializable() {
            self.noted.insert(n);
        } else if self.own.locks.is_empty() || !self.noted.contains(&n) {
            self.has_read_more = true;
        }
        model.history[self.at].get(&n).copied()
    }

    /// How an attempt to lock a key should end, if not well.
    fn lock(&mut self, model: &Model, n: u32, is_held: bool) -> Option<ErrorKind> {
        if self.own.locks.contains(&n) {
            return None;
        }
        if is_held {
            return Some(ErrorKind::LockTimeout);
        }
        if model.is_changed(n, self.at) {
            if self.has_read_more || model.conflicts(self) {
                return Some(ErrorKind::Conflict);
            }
            self.at = model.history.len() - 1;
        }
        self.own.locks.insert(n);
        self.noted.insert(n);
        None
    }
}

/// One step of a transaction beside its model; `is_held` says which locks others hold.
fn step(rng: &mut SmallRng, table: &Table, model: &Model, open: &mut Open, is_held: &BTreeSet<u32>) {
    let n = rng.random_range(0..KEYS);
    match rng.random_range(0..12) {
        0..2 => {
            let row = open.transaction.get(table, &key(n)).unwrap();
            assert_eq!(row, open.read(model, n).map(|value| value.to_be_bytes().to_vec()));
        }
        2..4 => {
            let value = rng.random();
            open.transaction.put(table, &key(n), &u16::to_be_bytes(value)).unwrap();
            open.own.writes.insert(n, Some(value));
        }
        4 => {
            open.transaction.delete(table, &key(n)).unwrap();
            open.own.writes.insert(n, None);
        }
        5 => {
            let savepoint = open.transaction.savepoint();
            open.savepoint = Some((savepoint, open.own.clone()));
        }
        6 => {
            if let Some((savepoint, own)) = &open.savepoint {
                open.transaction.rollback_to(*savepoint).unwrap();
                open.own = own.clone();
            }
        }
        7 => {
            let expected = open.lock(model, n, is_held.contains(&n));
            let outcome = open.transaction.lock(table, &key(n));
            assert_eq!(outcome.err().map(|error| error.kind()), expected);
        }
        _ => {
            let expected = open.lock(model, n, is_held.contains(&n));
            let outcome = open.transaction.get_for_update(table, &key(n));
            match expected {
                Some(expected) => assert_eq!(kind(outcome), expected),
                None => {
                    let expected = open.read(model, n).map(|value| value.to_be_bytes().to_vec());
                    assert_eq!(outcome.unwrap(), expected);
                }
            }
        }
    }
}

const KEYS: u32 = 16;

fn run_history(seed: u64) {
    let (database, table) = open();
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut model = Model { history: vec![BTreeMap::new()], changed: BTreeMap::new() };
    let mut all: Vec<Open> = Vec::new();
    for _ in 0..1200 {
        match rng.random_range(0..20) {
            0..2 if all.len() < 4 => {
                let isolation = ISOLATIONS[rng.random_range(0..2)];
                all.push(Open::new(hasty(&database, isolation), &model));
            }
            2 => {
                let (n, value) = (rng.random_range(0..KEYS), rng.random());
                table.put(&key(n), &u16::to_be_bytes(value), Durability::Os).unwrap();
                model.commit(&BTreeMap::from([(n, Some(value))]));
            }
            3 if !all.is_empty() => {
                let open = all.swap_remove(rng.random_range(0..all.len()));
                let conflicts = !open.own.writes.is_empty() && model.conflicts(&open);
                match open.transaction.commit(Durability::Os) {
                    Ok(_) => assert!(!conflicts, "seed {seed}"),
                    Err(error) => assert!(conflicts && error.kind() == ErrorKind::Conflict, "seed {seed}: {error}"),
                }
                if !conflicts && !open.own.writes.is_empty() {
                    model.commit(&open.own.writes);
                }
            }
            4 if rng.random_bool(0.3) && !all.is_empty() => {
                drop(all.swap_remove(rng.random_range(0..all.len())));
            }
            5 if rng.random_bool(0.1) => {
                database.compact(&table).unwrap();
            }
            _ if !all.is_empty() => {
                let at = rng.random_range(0..all.len());
                let others = all.iter().enumerate().filter(|(other, _)| *other != at);
                let is_held = others.flat_map(|(_, open)| open.own.locks.iter().copied()).collect();
                step(&mut rng, &table, &model, &mut all[at], &is_held);
            }
            _ => {}
        }
    }
    drop(all);
    let expected: Rows = model.history[model.history.len() - 1]
        .iter()
        .map(|(&n, value)| (key(n), value.to_be_bytes().to_vec()))
        .collect();
    assert_eq!(scan(&table), expected, "seed {seed}");
}

#[test]
fn locked_reads_and_commits_end_as_the_model_says() {
    (0..30).for_each(run_history);
}

#[test]
fn a_lock_waited_for_in_vain_is_named_and_nothing_is_lost() {
    let (database, table) = open();
    let mut holder = database.begin(IsolationLevel::Serializable);
    holder.lock(&table, b"alice").unwrap();
    for timeout in [Duration::ZERO, Duration::from_millis(2)] {
        let options = TransactionOptions { lock_timeout: timeout, ..TransactionOptions::default() };
        let mut waiter = database.begin_with(options);
        waiter.put(&table, b"bob", b"1").unwrap();
        let error = waiter.get_for_update(&table, b"alice").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LockTimeout);
        let message = error.to_string();
        assert!(message.contains("\"alice\" in table t"), "{message}");
        // It goes on.
        waiter.lock(&table, b"carol").unwrap();
        waiter.commit(Durability::Os).unwrap();
    }
    assert_eq!(table.get(b"bob").unwrap().as_deref(), Some(&b"1"[..]));
    holder.rollback();
    hasty(&database, IsolationLevel::Snapshot).lock(&table, b"alice").unwrap();
}

#[test]
fn a_deadlock_is_told_before_any_timeout_and_names_the_keys() {
    let (database, table) = open();
    let [mut first, mut second] = [0; 2].map(|_| patient(&database, IsolationLevel::Serializable));
    first.lock(&table, b"alice").unwrap();
    second.lock(&table, b"bob").unwrap();
    thread::scope(|scope| {
        let table = &table;
        let other = scope.spawn(move || {
            let outcome = second.lock(table, b"alice");
            drop(second);
            outcome
        });
        // Whoever comes second; both wait for ever otherwise.
        let outcome = first.lock(table, b"bob");
        drop(first);
        let outcomes = [outcome, other.join().unwrap()];
        let errors: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        let [error] = errors.as_slice() else { panic!("{errors:?}") };
        assert_eq!(error.kind(), ErrorKind::Deadlock);
        let message = error.to_string();
        assert!(message.contains("\"alice\" in table t") && message.contains("\"bob\" in table t"), "{message}");
    });
}

#[test]
fn a_row_is_read_for_update_as_it_is_now() {
    for isolation in ISOLATIONS {
        let (database, table) = open();
        table.put(b"row", b"old", Durability::Os).unwrap();
        table.put(b"other", b"old", Durability::Os).unwrap();
        let mut transaction = database.begin(isolation);
        let before = transaction.snapshot().clone();
        table.put(b"row", b"new", Durability::Os).unwrap();
        table.put(b"other", b"new", Durability::Os).unwrap();
        assert_eq!(transaction.get_for_update(&table, b"row").unwrap().unwrap(), b"new");
        // It is at one moment, which is now another.
        assert_eq!(transaction.get(&table, b"other").unwrap().unwrap(), b"new");
        let mut rows = transaction.iter(&table, &ReadOptions::default()).unwrap();
        rows.seek(b"row").unwrap();
        assert_eq!(rows.value(), b"new");
        drop(rows);
        assert!(transaction.snapshot().sequence() > before.sequence());
        transaction.put(&table, b"row", b"newer").unwrap();
        transaction.commit(Durability::Os).unwrap();
        assert_eq!(table.get(b"row").unwrap().unwrap(), b"newer");
    }
}

/// What was read before stands, or the transaction is told that it does not: it never sees two moments.
#[test]
fn a_lock_on_a_row_that_changed_does_not_tear_what_was_read_before() {
    for isolation in ISOLATIONS {
        let (database, table) = open();
        let put = |key: &[u8], value: &[u8]| table.put(key, value, Durability::Os).unwrap();
        put(b"read", b"0");
        // The row that was read is as it was.
        let mut transaction = database.begin(isolation);
        transaction.get(&table, b"read").unwrap();
        put(b"hot", b"1");
        let outcome = transaction.get_for_update(&table, b"hot");
        match isolation {
            IsolationLevel::Serializable => assert_eq!(outcome.unwrap().unwrap(), b"1"),
            IsolationLevel::Snapshot => assert_eq!(kind(outcome), ErrorKind::Conflict, "it cannot know"),
        }
        drop(transaction);
        // It is not.
        let mut transaction = database.begin(isolation);
        transaction.get(&table, b"read").unwrap();
        put(b"hot", b"2");
        put(b"read", b"1");
        assert_eq!(kind(transaction.get_for_update(&table, b"hot")), ErrorKind::Conflict);
        assert_eq!(transaction.get(&table, b"read").unwrap().unwrap(), b"0");
        // Who was refused holds nothing.
        hasty(&database, isolation).lock(&table, b"hot").unwrap();
        // Nothing changed of what is locked: there is nothing to decide.
        transaction.lock(&table, b"cold").unwrap();
        drop(transaction);
        // Own writes count as what was read does.
        let mut transaction = database.begin(isolation);
        transaction.put(&table, b"read", b"2").unwrap();
        put(b"read", b"3");
        put(b"hot", b"3");
        assert_eq!(kind(transaction.lock(&table, b"hot")), ErrorKind::Conflict);
    }
}

#[test]
fn writes_without_locks_pass_and_the_commit_finds_them() {
    for isolation in ISOLATIONS {
        let (database, table) = open();
        let mut holder = database.begin(isolation);
        assert_eq!(holder.get_for_update(&table, b"guard").unwrap(), None);
        holder.put(&table, b"other", b"1").unwrap();
        // Neither waits.
        table.put(b"guard", b"1", Durability::Os).unwrap();
        let mut optimistic = database.begin(isolation);
        optimistic.put(&table, b"guard", b"2").unwrap();
        optimistic.commit(Durability::Os).unwrap();
        assert_eq!(holder.get_for_update(&table, b"guard").unwrap(), None, "it reads what it read");
        assert_eq!(kind(holder.commit(Durability::Os)), ErrorKind::Conflict);
        assert_eq!(table.get(b"other").unwrap(), None);
        // Who only looked was at one moment, and is right.
        let mut reader = database.begin(isolation);
        reader.lock(&table, b"guard").unwrap();
        table.put(b"guard", b"3", Durability::Os).unwrap();
        reader.commit(Durability::Os).unwrap();
    }
}

#[test]
fn a_rollback_to_a_savepoint_lets_go_of_what_was_locked_since() {
    let (database, table) = open();
    let mut transaction = database.begin(IsolationLevel::Snapshot);
    transaction.lock(&table, b"before").unwrap();
    let savepoint = transaction.savepoint();
    transaction.lock(&table, b"after").unwrap();
    transaction.lock(&table, b"before").unwrap();
    let mut other = hasty(&database, IsolationLevel::Snapshot);
    assert_eq!(kind(other.lock(&table, b"after")), ErrorKind::LockTimeout);
    transaction.rollback_to(savepoint).unwrap();
    other.lock(&table, b"after").unwrap();
    assert_eq!(kind(other.lock(&table, b"before")), ErrorKind::LockTimeout, "it was held before the savepoint");
    transaction.release(savepoint).unwrap();
    assert_eq!(kind(other.lock(&table, b"before")), ErrorKind::LockTimeout, "a release lets go of nothing");
    transaction.commit(Durability::Os).unwrap();
    other.lock(&table, b"before").unwrap();
}

#[test]
fn a_transaction_that_a_panic_drops_lets_go() {
    let (database, table) = open();
    let panicked = thread::scope(|scope| {
        let (database, table) = (&database, &table);
        let thread = scope.spawn(move || {
            let mut transaction = database.begin(IsolationLevel::Serializable);
            transaction.lock(table, b"row").unwrap();
            panic!("on purpose");
        });
        thread.join().is_err()
    });
    assert!(panicked);
    hasty(&database, IsolationLevel::Serializable).lock(&table, b"row").unwrap();
}

#[test]
fn locks_beyond_the_limit_are_refused_and_the_others_held() {
    let (database, table) = open();
    let options = TransactionOptions { lock_limit: 2, ..TransactionOptions::default() };
    let mut transaction = database.begin_with(options);
    transaction.lock(&table, b"1").unwrap();
    transaction.lock(&table, b"2").unwrap();
    assert_eq!(kind(transaction.lock(&table, b"3")), ErrorKind::LockLimit);
    transaction.lock(&table, b"1").unwrap();
    let mut other = hasty(&database, IsolationLevel::Serializable);
    other.lock(&table, b"3").unwrap();
    assert_eq!(kind(other.lock(&table, b"2")), ErrorKind::LockTimeout);
}

#[test]
fn what_cannot_be_written_cannot_be_locked() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", small_options(&disk)).unwrap();
    let table = database.create_table("t", TableOptions::default()).unwrap();
    let foreign = open().1;
    let mut transaction = database.begin(IsolationLevel::Serializable);
    assert_eq!(kind(transaction.lock(&foreign, b"row")), ErrorKind::InvalidArgument);
    assert_eq!(kind(transaction.lock(&table, &[0; 1 << 16])), ErrorKind::InvalidArgument);
    database.drop_table("t").unwrap();
    assert_eq!(kind(transaction.lock(&table, b"row")), ErrorKind::NotFound);
    let table = database.create_table("t", TableOptions::default()).unwrap();
    transaction.lock(&table, b"row").unwrap();
    database.close().unwrap();
    assert_eq!(kind(transaction.lock(&table, b"other")), ErrorKind::Closed);
    drop(transaction);
    let shown = Database::open("/db", Options { read_only: true, ..small_options(&disk) }).unwrap();
    let table = shown.table("t").unwrap();
    assert_eq!(kind(shown.begin(IsolationLevel::Snapshot).lock(&table, b"row")), ErrorKind::ReadOnly);
}

/// The entries of indexes were derived from the row that was locked, not from the one at the beginning.
#[test]
fn an_index_follows_a_row_that_was_patched_for_update() {
    let (database, _) = open();
    let schema = Schema::parse("id int64 not null, city utf8, visits int64, primary key (id)").unwrap();
    let people = database.create_typed_table("people", schema, TableOptions::default()).unwrap();
    let on = vec!["city".into(), "visits".into()];
    let by_city = IndexOptions { name: "by_city".into(), on, unique: true, ..IndexOptions::default() };
    let by_city = database.create_index(&people, &by_city).unwrap();
    let id = [DatumRef::Int64(1)];
    let insert = |city: &str| {
        let row = [DatumRef::Int64(1), DatumRef::Utf8(city), DatumRef::Int64(1)];
        people.insert_row(&row, Durability::Os).unwrap();
    };
    insert("Graz");
    for isolation in ISOLATIONS {
        let mut transaction = database.begin(isolation);
        insert("Linz");
        let row = transaction.get_row_for_update(&people, &id, Some(&[1])).unwrap().unwrap();
        assert_eq!(row, [Datum::Utf8("Linz".into())]);
        transaction.patch_row(&people, &id, &[("visits", DatumRef::Int64(2))]).unwrap();
        let now = [DatumRef::Utf8("Linz"), DatumRef::Int64(2)];
        assert_eq!(transaction.index_get(&by_city, &now, None).unwrap().count(), 1);
        transaction.commit(Durability::Os).unwrap();
        for (city, visits, count) in [("Linz", 2, 1), ("Linz", 1, 0), ("Graz", 1, 0), ("Graz", 2, 0)] {
            let values = [DatumRef::Utf8(city), DatumRef::Int64(visits)];
            assert_eq!(by_city.get(&values, None, None).unwrap().count(), count, "{city} {visits}");
        }
        insert("Graz");
    }
    let mut holder = database.begin(IsolationLevel::Snapshot);
    holder.lock_row(&people, &id).unwrap();
    assert_eq!(kind(hasty(&database, IsolationLevel::Snapshot).lock_row(&people, &id)), ErrorKind::LockTimeout);
    assert_verified(&database);
}
