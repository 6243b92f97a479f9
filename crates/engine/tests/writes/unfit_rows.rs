//! Rows that an index cannot hold, because their key in it would be too long: refused when they are written, and the
//! end of an index that meets them when it is made.

use std::ops::Bound;
use std::sync::Arc;

use mycelium_encoding::{DatumRef, Schema};
use mycelium_engine::{
    Background, Database, Durability, Error, ErrorKind, Index, IndexOptions, IsolationLevel, Options, Table, WriteBatch,
};
use mycelium_vfs::{CrashDraw, MemoryDisk};

use crate::common::{assert_verified, scan, small_options, small_table};

const SCHEMA: &str = "id int64 not null, city utf8, year int32, note utf8, primary key (id)";

fn open(disk: &MemoryDisk) -> Database {
    Database::open("db", small_options(disk)).unwrap()
}

fn create(database: &Database) -> Table {
    database.create_typed_table("people", Schema::parse(SCHEMA).unwrap(), small_table()).unwrap()
}

fn by_city(cover: &[&str]) -> IndexOptions {
    let cover = cover.iter().map(|&column| column.to_owned()).collect();
    IndexOptions { name: "by_city".into(), on: vec!["city".into()], cover, ..IndexOptions::default() }
}

fn unique() -> IndexOptions {
    IndexOptions { unique: true, ..by_city(&[]) }
}

fn long() -> String {
    "x".repeat(70_000)
}

fn row(id: i64, city: &str) -> [DatumRef<'_>; 4] {
    [DatumRef::Int64(id), DatumRef::Utf8(city), DatumRef::Int32(0), DatumRef::Null]
}

fn put(table: &Table, id: i64, city: &str) {
    table.insert_row(&row(id, city), Durability::Os).unwrap();
}

fn patch(table: &Table, id: i64, column: &str, value: DatumRef<'_>) -> Result<u64, Error> {
    table.patch_row(&[DatumRef::Int64(id)], &[(column, value)], Durability::Os)
}

fn count(index: &Index) -> usize {
    index.range((Bound::Unbounded, Bound::Unbounded), Some(&[0]), None).unwrap().map(Result::unwrap).count()
}

/// Refused for its length, with all that one needs to know.
fn assert_refused<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let text = error.to_string();
    // The codes of the values are a few bytes longer than these.
    for part in ["people/by_city", "65535 bytes", "found 700"] {
        assert!(text.contains(part), "{text}");
    }
    text
}

/// Every way of writing a row that the index cannot hold, with one beside it that it could.
fn write_in_every_way(database: &Database, table: &Table) {
    let long = long();
    assert_refused(table.insert_row(&row(1, &long), Durability::Sync));
    assert_refused(patch(table, 2, "city", DatumRef::Utf8(&long)));
    let mut batch = WriteBatch::new();
    batch.insert_row(table, &row(3, "Linz")).unwrap().insert_row(table, &row(4, &long)).unwrap();
    assert_refused(database.write(&batch, Durability::Sync));
    let mut batch = WriteBatch::new();
    batch.insert_row(table, &row(3, "Linz")).unwrap();
    batch.patch_row(table, &[DatumRef::Int64(3)], &[("city", DatumRef::Utf8(&long))]).unwrap();
    assert_refused(database.write(&batch, Durability::Sync));
    for isolation in [IsolationLevel::Snapshot, IsolationLevel::Serializable] {
        let mut transaction = database.begin(isolation);
        transaction.insert_row(table, &row(3, "Linz")).unwrap();
        transaction.insert_row(table, &row(4, &long)).unwrap();
        assert_refused(transaction.commit(Durability::Sync));
    }
    let key = |id: i64| table.row_key(&[DatumRef::Int64(id)]).unwrap();
    let source = database.create_typed_table("source", Schema::parse(SCHEMA).unwrap(), small_table()).unwrap();
    put(&source, 5, &long);
    let value = source.get(&key(5)).unwrap().unwrap();
    assert_refused(table.ingest([Ok((key(5), value))]));
    // A patch of no row makes no row, and one of other columns no key.
    patch(table, 77, "city", DatumRef::Utf8(&long)).unwrap();
    patch(table, 2, "note", DatumRef::Utf8(&long)).unwrap();
}

/// The row had been deleted when the index met it, but by nothing that the log had: it came back, and the index did not
/// have it.
#[test]
fn a_crash_brought_a_row_back_that_the_index_cannot_hold() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let table = create(&database);
    put(&table, 1, "Graz");
    put(&table, 2, &long());
    database.flush().unwrap();
    let index = database.create_index(&table, &by_city(&[])).unwrap();
    table.delete_row(&[DatumRef::Int64(2)], Durability::Buffered).unwrap();
    assert_refused(index.wait_built());
    let restarted = open(&disk.kill_image());
    let table = restarted.table("people").unwrap();
    assert_eq!(scan(&table).len(), 2);
    restarted.wait_idle().unwrap();
    assert!(!table.index("by_city").is_ok_and(|index| index.is_built()), "it lacks a row");
}

#[test]
fn a_write_that_an_index_refuses_leaves_nothing_in_the_log() {
    for (is_built, options) in [(true, by_city(&["year"])), (false, by_city(&["year"])), (true, unique())] {
        let disk = MemoryDisk::new();
        let database = open(&disk);
        let table = create(&database);
        put(&table, 2, "Graz");
        let index = database.create_index(&table, &options).unwrap();
        if is_built {
            index.wait_built().unwrap();
        }
        assert_eq!(index.is_built(), is_built);
        write_in_every_way(&database, &table);
        let rows = scan(&table);
        assert_eq!((rows.len(), count(&index)), (1, 1));
        drop((index, table, database));
        // What there is of the log is replayed.
        let database = open(&disk);
        let table = database.table("people").unwrap();
        assert_eq!(scan(&table), rows);
        let index = table.index("by_city").unwrap();
        index.wait_built().unwrap();
        assert_eq!((count(&index), index.failure().is_none()), (1, true));
        assert_verified(&database);
    }
}

#[test]
fn an_index_that_cannot_hold_a_row_of_its_table_is_dropped() {
    let database = open(&MemoryDisk::new());
    let table = create(&database);
    put(&table, 7, &long());
    put(&table, 8, "Graz");
    let index = database.create_index(&table, &by_city(&[])).unwrap();
    assert_eq!((count(&index), index.failure().is_none()), (2, true), "exact as long as it is there");
    let text = assert_refused(index.wait_built());
    assert!(text.contains("primary key [Int64(7)]"), "{text}");
    assert_eq!(index.failure().unwrap().to_string(), text);
    database.wait_idle().unwrap();
    assert!(table.indexes().is_empty());
    let Err(gone) = index.get(&[DatumRef::Utf8("Graz")], None, None) else { panic!("it was dropped") };
    assert!(gone.kind() == ErrorKind::NotFound && gone.to_string().contains(&text), "{gone}");
    // The table goes on, and once the row has gone there can be the index.
    put(&table, 9, &long());
    table.delete_row(&[DatumRef::Int64(7)], Durability::Os).unwrap();
    table.delete_row(&[DatumRef::Int64(9)], Durability::Os).unwrap();
    let index = database.create_index(&table, &by_city(&[])).unwrap();
    index.wait_built().unwrap();
    assert_eq!(count(&index), 1);
    assert_verified(&database);
}

#[test]
fn a_unique_index_that_cannot_hold_a_row_is_not_made() {
    let database = open(&MemoryDisk::new());
    let table = create(&database);
    put(&table, 7, &long());
    assert!(assert_refused(database.create_index(&table, &unique())).contains("Int64(7)"));
    assert!(table.indexes().is_empty());
    put(&table, 7, "Graz");
    assert!(database.create_index(&table, &unique()).unwrap().is_unique());
}

/// Nobody waits by hand: a thread drops it, though others write all the time.
#[test]
fn an_index_that_failed_is_dropped_beside_writers() {
    let (disk, background) = (Arc::new(MemoryDisk::new()), Background::Threads(2));
    let options = Options { disk, memory_budget: 256 << 10, background, ..Options::default() };
    let database = Database::open("db", options).unwrap();
    let table = create(&database);
    put(&table, 0, &long());
    let index = database.create_index(&table, &by_city(&[])).unwrap();
    std::thread::scope(|scope| {
        let writers = [1, 2].map(|part| {
            let table = &table;
            scope.spawn(move || (1..2_000).for_each(|id| put(table, 2 * id + part, "Graz")))
        });
        assert_refused(index.wait_built());
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    database.wait_idle().unwrap();
    assert!(table.indexes().is_empty());
    assert_eq!(scan(&table).len(), 3_999);
}

/// Whatever the moment of the crash, the index goes again, and the rows stay.
#[test]
fn an_index_that_failed_is_dropped_after_a_crash() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let table = create(&database);
    put(&table, 7, &long());
    put(&table, 8, "Graz");
    database.flush().unwrap();
    let rows = scan(&table);
    let images = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (kept, hooked) = (images.clone(), disk.clone());
    disk.on_operation(move |index, _| kept.lock().unwrap().push(hooked.crash_image(&CrashDraw::from_seed(index))));
    assert_refused(database.create_index(&table, &by_city(&[])).unwrap().wait_built());
    database.wait_idle().unwrap();
    disk.clear_hook();
    images.lock().unwrap().push(disk.crash_image(&CrashDraw::from_seed(0)));
    let mut found = 0;
    for image in std::mem::take(&mut *images.lock().unwrap()) {
        let database = open(&image);
        let table = database.table("people").unwrap();
        if let Ok(index) = table.index("by_city") {
            assert_eq!(count(&index), 2);
            assert_refused(index.wait_built());
            found += 1;
        }
        database.wait_idle().unwrap();
        assert_eq!((table.indexes().len(), scan(&table)), (0, rows.clone()));
        put(&table, 9, &long());
    }
    assert!(found > 0);
}

/// The patch is not at fault: it completes with a value that the row had before there was the index.
#[test]
fn a_patch_of_a_covered_column_is_not_refused_for_the_row_it_meets() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let table = create(&database);
    put(&table, 7, &long());
    put(&table, 8, "Graz");
    let index = database.create_index(&table, &by_city(&["year"])).unwrap();
    patch(&table, 7, "year", DatumRef::Int32(1)).unwrap();
    assert_refused(index.failure().map_or(Ok(()), Err));
    assert_eq!(count(&index), 2);
    let rows = scan(&table);
    drop((index, table, database));
    // The patch is replayed, with what completed it.
    let database = open(&disk);
    let table = database.table("people").unwrap();
    let index = table.index("by_city").unwrap();
    assert_refused(index.wait_built());
    database.wait_idle().unwrap();
    assert_eq!((table.indexes().len(), scan(&table)), (0, rows));
}

/// What a patch made known of the index must not be lost because the row goes before the index is built.
#[test]
fn an_index_that_failed_for_a_row_that_went_is_not_taken_for_built() {
    let database = open(&MemoryDisk::new());
    let table = create(&database);
    put(&table, 7, &long());
    let index = database.create_index(&table, &by_city(&["year"])).unwrap();
    patch(&table, 7, "year", DatumRef::Int32(1)).unwrap();
    put(&table, 8, &long());
    table.delete_row(&[DatumRef::Int64(7)], Durability::Os).unwrap();
    assert_refused(index.wait_built());
    database.wait_idle().unwrap();
    assert!(!index.is_built() && table.indexes().is_empty());
    assert_eq!(scan(&table).len(), 1);
}

/// A compaction makes a newer row of an old one and a patch, which derived nothing when it was written.
#[test]
fn a_row_folded_before_the_index_is_built_is_not_missed() {
    let database = open(&MemoryDisk::new());
    let table = create(&database);
    put(&table, 7, &long());
    put(&table, 8, "Graz");
    database.flush().unwrap();
    let index = database.create_index(&table, &by_city(&[])).unwrap();
    patch(&table, 7, "note", DatumRef::Utf8("folded")).unwrap();
    database.compact(&table).unwrap();
    let text = assert_refused(index.wait_built());
    assert!(text.contains("Int64(7)"), "{text}");
}

#[test]
fn a_row_that_nobody_sees_does_not_keep_an_index_from_being_built() {
    for is_seen in [false, true] {
        let database = open(&MemoryDisk::new());
        let table = create(&database);
        put(&table, 7, &long());
        database.flush().unwrap();
        let snapshot = database.snapshot();
        put(&table, 7, "Graz");
        let kept = is_seen.then_some(snapshot);
        let index = database.create_index(&table, &by_city(&[])).unwrap();
        match kept {
            None => {
                index.wait_built().unwrap();
                assert_eq!(count(&index), 1);
                assert_verified(&database);
            }
            Some(_) => drop(assert_refused(index.wait_built())),
        }
    }
}

/// The writer of a row that a failed index cannot hold derives nothing for it, and so met nobody who had looked there.
#[test]
fn a_transaction_that_looked_through_a_failed_index_missed_a_row_that_came() {
    let database = open(&MemoryDisk::new());
    let table = create(&database);
    put(&table, 7, &long());
    let index = database.create_index(&table, &by_city(&["year"])).unwrap();
    patch(&table, 7, "year", DatumRef::Int32(1)).unwrap();
    assert!(index.failure().is_some());
    let mut transaction = database.begin(IsolationLevel::Serializable);
    let all = (Bound::Unbounded, Bound::Unbounded);
    let found = transaction.index_range(&index, all, Some(&[0])).unwrap().map(Result::unwrap).count();
    assert_eq!(found, 1);
    transaction.insert_row(&table, &row(9, "there was one row")).unwrap();
    put(&table, 8, &long());
    assert!(!table.indexes().is_empty(), "it is dropped later");
    assert_eq!(transaction.commit(Durability::Os).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(scan(&table).len(), 2);
}
