//! Transformations that wait while compaction is behind (docs/decisions/0026): bounded, shown, made up for, and never
//! seen in an answer.

use mycelium_base::ColumnSet;
use mycelium_encoding::{DatumRef, Schema};
use mycelium_engine::{Background, Database, Durability, Layout, Options, ReadOptions, Table, TableOptions};
use mycelium_vfs::MemoryDisk;

use crate::common::{Rows, assert_verified, scan, small_options, small_table};

const LAYOUT: &str = "L0 tiered: * packed\nL1 tiered: 1 packed | 2 packed\nL2 leveled: 1 packed | 2 packed";

fn create(database: &Database) -> Table {
    let schema = Schema::parse("id int64 not null, a int64, b utf8, primary key (id)").unwrap();
    let layout = Layout::parse(LAYOUT, &ColumnSet::from_iter([1, 2])).unwrap();
    database.create_typed_table("t", schema, TableOptions { layout: Some(layout), ..small_table() }).unwrap()
}

/// Writes `files` files of level 0, each of rows that lie among those of the others.
fn pile_up(database: &Database, table: &Table, files: i64, round: i64) {
    for file in 0..files {
        for row in 0..40 {
            let id = row * 97 + file + round * 10_000;
            let text = format!("{round} {file} {}", "x".repeat(60));
            let values = [DatumRef::Int64(id), DatumRef::Int64(round), DatumRef::Utf8(&text)];
            table.insert_row(&values, Durability::Os).unwrap();
        }
        database.flush().unwrap();
    }
}

fn deferred_and_all(database: &Database) -> (u64, u64) {
    let metrics = database.metrics();
    let table = metrics.tables.iter().find(|table| table.name == "t").unwrap();
    (table.deferred_bytes, table.levels.iter().map(|level| level.bytes).sum())
}

fn options(disk: &MemoryDisk, deferral_percent: u8) -> Options {
    Options { deferral_percent, slowdown_level0_runs: 8, stop_level0_runs: 1_000, ..small_options(disk) }
}

/// What waits never exceeds the limit, is the same to every reader, and is made up for at rest.
#[test]
fn transformations_wait_up_to_the_limit_and_are_made_at_rest() {
    let disk = MemoryDisk::new();
    let database = Database::open("db", options(&disk, 20)).unwrap();
    let table = create(&database);
    pile_up(&database, &table, 40, 0);
    database.compact(&table).unwrap();
    assert_eq!(deferred_and_all(&database).0, 0);
    let mut most = 0;
    for round in 1..6 {
        pile_up(&database, &table, 4, round);
        let expected: Rows = scan(&table);
        while database.step().unwrap() {
            let (deferred, all) = deferred_and_all(&database);
            assert!(deferred * 100 <= all * 20, "{deferred} of {all} bytes wait");
            most = most.max(deferred);
        }
        assert_eq!(scan(&table), expected);
        assert_verified(&database);
    }
    assert!(most > 0 && database.metrics().deferring_compactions > 0, "nothing waited");
    let expected = scan(&table);
    drop(table);
    database.close().unwrap();

    let threads = Options { background: Background::Threads(1), ..options(&disk, 20) };
    let database = Database::open("db", threads).unwrap();
    database.wait_idle().unwrap();
    assert_eq!(deferred_and_all(&database).0, 0, "at rest");
    let table = database.table("t").unwrap();
    assert_eq!(scan(&table), expected);
    assert_verified(&database);
}

#[test]
fn nothing_waits_where_the_limit_is_zero() {
    let disk = MemoryDisk::new();
    let database = Database::open("db", options(&disk, 0)).unwrap();
    let table = create(&database);
    for round in 0..4 {
        pile_up(&database, &table, 6, round);
        while database.step().unwrap() {
            assert_eq!(deferred_and_all(&database).0, 0);
        }
    }
    assert_eq!(database.metrics().deferring_compactions, 0);
}

/// A crash in the middle of deferring: what waits is told by the files alone.
#[test]
fn what_waits_is_known_after_a_reopening() {
    let disk = MemoryDisk::new();
    let database = Database::open("db", options(&disk, 100)).unwrap();
    let table = create(&database);
    pile_up(&database, &table, 6, 0);
    assert!(database.step().unwrap());
    let (deferred, all) = deferred_and_all(&database);
    assert_eq!(deferred, all, "all of it lies in level 1 as rows");
    let expected = scan(&table);
    drop((table, database));
    let database = Database::open("db", options(&disk, 100)).unwrap();
    assert_eq!(deferred_and_all(&database), (deferred, all));
    let table = database.table("t").unwrap();
    assert_eq!(scan(&table), expected);
    let id = [DatumRef::Int64(97)];
    assert!(table.get_row(&id, Some(&[1]), &ReadOptions::default()).unwrap().is_some());
    database.compact(&table).unwrap();
    assert_eq!(deferred_and_all(&database).0, 0);
    assert_eq!(scan(&table), expected);
}
