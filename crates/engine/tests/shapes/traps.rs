//! Traps that the prototypes of the papers fell into, those of tables and layouts: one test each, named for the trap.
//! Those of indexes are in `indexes.rs`; docs/invariants.md lists all.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use mycelium_base::ColumnSet;
use mycelium_encoding::{Datum, DatumRef, Schema};
use mycelium_engine::{
    Background, Database, Durability, Layout, Options, ReadOptions, ScanOptions, Table, TableOptions,
};
use mycelium_vfs::{AccessPattern, Disk, MemoryDisk};

const PARTED: &str = "L0 tiered: * packed\nL1 leveled: 1 packed | 2 json | 3 packed";

fn options(disk: &MemoryDisk) -> Options {
    Options { disk: Arc::new(disk.clone()), background: Background::Manual, ..Options::default() }
}

fn schema() -> Schema {
    Schema::parse("id int64 not null, name utf8, note utf8, score int32, primary key (id)").unwrap()
}

fn create(database: &Database) -> Table {
    let layout = Layout::parse(PARTED, &ColumnSet::from_iter([1, 2, 3])).unwrap();
    database
        .create_typed_table("t", schema(), TableOptions { layout: Some(layout), ..TableOptions::default() })
        .unwrap()
}

fn row<'a>(id: i64, name: DatumRef<'a>, note: DatumRef<'a>, score: i32) -> [DatumRef<'a>; 4] {
    [DatumRef::Int64(id), name, note, DatumRef::Int32(score)]
}

fn read(table: &Table, id: i64) -> Option<Vec<Datum>> {
    table.get_row(&[DatumRef::Int64(id)], None, &ReadOptions::default()).unwrap()
}

fn fill(table: &Table, ids: std::ops::Range<i64>) {
    for id in ids {
        let name = format!("name {id}");
        table.insert_row(&row(id, DatumRef::Utf8(&name), DatumRef::Null, id as i32), Durability::Os).unwrap();
    }
}

/// The prototypes kept which columns a level holds in their options: a database opened without them read wrong columns.
#[test]
fn a_layout_is_not_kept_in_options_alone() {
    let disk = MemoryDisk::new();
    let database = Database::open("db", options(&disk)).unwrap();
    let table = create(&database);
    fill(&table, 0..100);
    database.compact(&table).unwrap();
    let (layout, before) = (table.layout(), read(&table, 42));
    drop(table);
    database.close().unwrap();

    let database = Database::open("db", options(&disk)).unwrap();
    let table = database.table("t").unwrap();
    assert_eq!((table.layout().to_string(), read(&table, 42)), (layout.to_string(), before));
    // Nor does a layout given later decide how files are read that are there.
    database
        .set_layout(
            &table,
            Layout::parse("L0 tiered: * packed\nL1 leveled: 1 packed | 2-3 packed", &ColumnSet::from_iter([1, 2, 3]))
                .unwrap(),
        )
        .unwrap();
    assert_eq!(read(&table, 42).unwrap()[1], Datum::Utf8("name 42".into()));
}

/// The manifest had figures of benchmark runs in it: what is read and measured must leave it as it is.
#[test]
fn reading_and_measuring_write_nothing_to_the_manifest() {
    let disk = MemoryDisk::new();
    let database = Database::open("db", options(&disk)).unwrap();
    let table = create(&database);
    fill(&table, 0..100);
    database.compact(&table).unwrap();
    let before = manifests(&disk);
    for id in 0..200 {
        read(&table, id);
    }
    for batch in table.scan_batches(ScanOptions { projection: Some(vec![3]), ..ScanOptions::default() }).unwrap() {
        batch.unwrap();
    }
    database.metrics();
    database.verify(|_, _| ()).unwrap();
    while database.step().unwrap() {}
    assert!(!before.is_empty());
    assert_eq!(manifests(&disk), before);
}

/// Name and bytes of all manifests.
fn manifests(disk: &MemoryDisk) -> Vec<(String, Vec<u8>)> {
    let names = disk.list(Path::new("db")).unwrap();
    let mut manifests = Vec::new();
    for name in names.into_iter().filter(|name| name.contains("MANIFEST")) {
        let file = disk.open(&Path::new("db").join(&name), AccessPattern::Sequential).unwrap();
        let mut bytes = vec![0; file.len() as usize];
        file.read_at(0, &mut bytes).unwrap();
        manifests.push((name, bytes));
    }
    manifests
}

/// An empty string stood for a missing value, and values were padded with NUL.
#[test]
fn an_empty_string_is_not_a_missing_one_nor_is_nul_padding() {
    let disk = MemoryDisk::new();
    let database = Database::open("db", options(&disk)).unwrap();
    let table = create(&database);
    let rows = [
        row(1, DatumRef::Utf8(""), DatumRef::Null, 0),
        row(2, DatumRef::Null, DatumRef::Utf8(""), 0),
        row(3, DatumRef::Utf8("a\0"), DatumRef::Utf8("\0"), 0),
        row(4, DatumRef::Utf8("a"), DatumRef::Utf8("\0\0"), 0),
    ];
    for row in &rows {
        table.insert_row(row, Durability::Os).unwrap();
    }
    // A patch that says nothing of a column leaves it, one that says "" makes it empty.
    table.patch_row(&[DatumRef::Int64(4)], &[("name", DatumRef::Utf8(""))], Durability::Os).unwrap();
    for _ in 0..2 {
        for expected in &rows[..3] {
            let DatumRef::Int64(id) = expected[0] else { unreachable!("keys are numbers") };
            let expected: Vec<Datum> = expected.iter().map(|datum| datum.to_datum()).collect();
            assert_eq!(read(&table, id), Some(expected));
        }
        let patched = row(4, DatumRef::Utf8(""), DatumRef::Utf8("\0\0"), 0);
        assert_eq!(read(&table, 4), Some(patched.iter().map(|datum| datum.to_datum()).collect()));
        database.compact(&table).unwrap();
    }
}

/// Of rows 0 to 50, deleted ones are gone by key and in ranges, but for 20 to 25, and 60 to 70 are there.
fn check_deleted(table: &Table) {
    for id in 0..50 {
        assert_eq!(read(table, id).is_some(), (20..25).contains(&id), "row {id}");
    }
    for projection in [vec![1], vec![2], vec![3], vec![0]] {
        let options = ScanOptions { projection: Some(projection), ..ScanOptions::default() };
        let rows: usize = table.scan_batches(options).unwrap().map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(rows, 15);
    }
}

/// Deletes 50 rows that lie in the last level, five of which come again, and writes ten others.
fn delete_rows(database: &Database, table: &Table) {
    for id in 0..50 {
        table.delete_row(&[DatumRef::Int64(id)], Durability::Os).unwrap();
    }
    fill(table, 20..25);
    let snapshot = database.snapshot();
    fill(table, 60..70);
    database.flush().unwrap();
    check_deleted(table);
    while database.step().unwrap() {
        check_deleted(table);
    }
    drop(snapshot);
}

/// A tombstone was dropped when the last level of one column group had seen it, while another group still held the key.
#[test]
fn a_tombstone_outlives_the_key_in_every_column_group() {
    let disk = MemoryDisk::new();
    let database = Database::open("db", options(&disk)).unwrap();
    let table = create(&database);
    fill(&table, 0..50);
    database.compact(&table).unwrap();
    delete_rows(&database, &table);
    database.compact(&table).unwrap();
    check_deleted(&table);
    let left = database.metrics().tables.iter().flat_map(|table| &table.levels).map(|level| level.entries).sum::<u64>();
    assert_eq!(left, 3 * 15, "nothing is left of what was deleted, in any group");
}

/// The same where the key lies in runs of groups that the layout does not have any more.
#[test]
fn a_tombstone_outlives_the_key_in_a_run_under_an_older_layout() {
    for groups in ["1-2 packed | 3 json", "* packed", "1-3 columnar"] {
        let disk = MemoryDisk::new();
        let database = Database::open("db", options(&disk)).unwrap();
        let table = create(&database);
        fill(&table, 0..50);
        database.compact(&table).unwrap();
        let newer = format!("L0 tiered: * packed\nL1 leveled: {groups}");
        let newer = Layout::parse(&newer, &ColumnSet::from_iter([1, 2, 3])).unwrap();
        database.set_layout(&table, newer).unwrap();
        delete_rows(&database, &table);
        let older = Layout::parse(PARTED, &ColumnSet::from_iter([1, 2, 3])).unwrap();
        database.set_layout(&table, older).unwrap();
        check_deleted(&table);
        while database.step().unwrap() {
            check_deleted(&table);
        }
        database.compact(&table).unwrap();
        check_deleted(&table);
    }
}

/// A range over one column read the files of all.
#[test]
fn a_range_reads_the_column_groups_that_it_asks_for() {
    let disk = MemoryDisk::new();
    let database = Database::open("db", options(&disk)).unwrap();
    let table = create(&database);
    fill(&table, 0..5000);
    database.compact(&table).unwrap();
    let blocks = |projection: Vec<usize>| {
        let lower = Bound::Included(vec![Datum::Int64(1000)]);
        let options = ScanOptions { projection: Some(projection), lower, ..ScanOptions::default() };
        let mut scan = table.scan_batches(options).unwrap();
        let rows: usize = scan.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(rows, 4000);
        let counters = scan.counters();
        counters.blocks_read + counters.block_cache_hits
    };
    let each = [blocks(vec![1]), blocks(vec![2]), blocks(vec![3])];
    let all = blocks(vec![1, 2, 3]);
    assert!(each.iter().all(|blocks| *blocks > 0 && *blocks < all), "{each:?} of {all}");
    assert_eq!(each.iter().sum::<u64>(), all);
}
