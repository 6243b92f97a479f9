//! Transactions that wait for a lock while what they wait for goes away.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mycelium_encoding::{Column, ColumnType, Schema};
use mycelium_vfs::MemoryDisk;

use crate::{
    Background, Database, Durability, Error, ErrorKind, IsolationLevel, Options, Table, TableOptions,
    TransactionOptions,
};

fn open() -> (Database, Table) {
    let options = Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
    let database = Database::open("db", options).unwrap();
    let schema = Schema::parse("id int64 not null, city utf8, primary key (id)").unwrap();
    let table = database.create_typed_table("t", schema, TableOptions::default()).unwrap();
    (database, table)
}

/// How a wait for a lock ends during which `end` is called; its holder keeps it.
fn wait_beside(end: impl FnOnce(Database, &Table)) -> ErrorKind {
    let (database, table) = open();
    let mut holder = database.begin(IsolationLevel::Snapshot);
    holder.lock(&table, b"row").unwrap();
    let options = TransactionOptions { lock_timeout: Duration::MAX, ..TransactionOptions::default() };
    let mut waiter = database.begin_with(options);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| waiter.lock(&table, b"row").unwrap_err().kind());
        while holder.database.locks.waiting_count() == 0 {
            thread::yield_now();
        }
        end(database, &table);
        waiting.join().unwrap()
    })
}

#[test]
fn who_waits_for_a_lock_is_told_that_the_database_was_closed() {
    assert_eq!(wait_beside(|database, _| database.close().unwrap()), ErrorKind::Closed);
}

#[test]
fn who_waits_for_a_lock_is_told_that_the_last_handle_was_dropped() {
    assert_eq!(wait_beside(|database, _| drop(database)), ErrorKind::Closed);
}

#[test]
fn who_waits_for_a_lock_is_told_that_the_table_was_dropped() {
    assert_eq!(wait_beside(|database, _| database.drop_table("t").unwrap()), ErrorKind::NotFound);
}

#[test]
fn who_waits_for_a_lock_is_told_that_the_columns_changed() {
    let change = |database: Database, table: &Table| {
        database.add_column(table, Column::new("zip", ColumnType::Int64)).unwrap();
    };
    assert_eq!(wait_beside(change), ErrorKind::NotFound);
}

/// It got the lock, or its timeout, and was told at the commit.
#[test]
fn who_waits_for_a_lock_is_told_that_an_error_latched_the_database() {
    let mut kept = None;
    let latch = |database: Database, _: &Table| {
        database.inner.latch(&Error::new(ErrorKind::Io, "the disk is gone"));
        kept = Some(database);
    };
    assert_eq!(wait_beside(latch), ErrorKind::ReadOnly);
    assert_eq!(kept.and_then(|database| database.failure()).map(|error| error.kind()), Some(ErrorKind::Io));
}

/// There was nothing to tell a hot row by.
#[test]
fn locks_and_waits_are_counted() {
    let (database, table) = open();
    let options = TransactionOptions { lock_timeout: Duration::ZERO, ..TransactionOptions::default() };
    let [mut first, mut second] = [(); 2].map(|()| database.begin_with(options));
    first.lock(&table, b"a").unwrap();
    first.lock(&table, b"b").unwrap();
    assert_eq!(second.lock(&table, b"a").unwrap_err().kind(), ErrorKind::LockTimeout);
    let metrics = database.metrics();
    assert_eq!((metrics.row_locks, metrics.row_lock_waiters), (2, 0));
    assert_eq!((metrics.row_lock_waits, metrics.row_lock_timeouts, metrics.row_lock_deadlocks), (1, 1, 0));
    drop(first);
    let mut patient = database.begin_with(TransactionOptions { lock_timeout: Duration::MAX, ..options });
    patient.lock(&table, b"a").unwrap();
    second.lock(&table, b"b").unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| patient.lock(&table, b"b"));
        while database.metrics().row_lock_waiters == 0 {
            thread::yield_now();
        }
        assert_eq!(second.lock(&table, b"a").unwrap_err().kind(), ErrorKind::Deadlock);
        drop(second);
        waiting.join().unwrap().unwrap();
    });
    drop(patient);
    let metrics = database.metrics();
    assert_eq!((metrics.row_locks, metrics.row_lock_waiters), (0, 0));
    assert!(metrics.row_lock_wait_seconds > 0.0);
    assert_eq!((metrics.row_lock_waits, metrics.row_lock_timeouts, metrics.row_lock_deadlocks), (2, 1, 1));
}

/// The lock of a table that is gone is let go like any other, and its transaction fails as any other does.
#[test]
fn a_lock_outlives_its_table_until_its_transaction_ends() {
    let (database, table) = open();
    let mut holder = database.begin(IsolationLevel::Serializable);
    holder.lock(&table, b"row").unwrap();
    let other = database.create_table("other", TableOptions::default()).unwrap();
    holder.put(&other, b"key", b"value").unwrap();
    database.drop_table("t").unwrap();
    assert_eq!(holder.commit(Durability::Os).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(other.get(b"key").unwrap(), None);
    let mut next = database.begin(IsolationLevel::Serializable);
    next.lock(&other, b"key").unwrap();
}
