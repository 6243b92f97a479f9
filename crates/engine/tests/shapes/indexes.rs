//! Secondary indexes: each test is named for what could go wrong, most of it by what went wrong elsewhere.

use std::ops::Bound;
use std::sync::Arc;

use mycelium_base::ColumnSet;
use mycelium_encoding::{Datum, DatumRef, Schema};
use mycelium_engine::{
    Background, Database, Durability, ErrorKind, Index, IndexOptions, IsolationLevel, Layout, LeveledOptions, Options,
    Policy, Snapshot, Table, TableOptions, WriteBatch,
};
use mycelium_vfs::{CrashDraw, MemoryDisk};

use crate::common::{assert_verified, small_options, small_table};

const SCHEMA: &str = "id int64 not null, city utf8, year int32, note utf8, primary key (id)";

fn open(disk: &MemoryDisk) -> Database {
    Database::open("db", small_options(disk)).unwrap()
}

/// A database in memory that two threads work for.
fn open_with_threads(memory_budget: usize) -> Database {
    let (disk, background) = (Arc::new(MemoryDisk::new()), Background::Threads(2));
    Database::open("db", Options { disk, memory_budget, background, ..Options::default() }).unwrap()
}

fn create(database: &Database) -> Table {
    database.create_typed_table("people", Schema::parse(SCHEMA).unwrap(), small_table()).unwrap()
}

fn options(name: &str, on: &[&str], cover: &[&str]) -> IndexOptions {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    IndexOptions { name: name.into(), on: owned(on), cover: owned(cover), ..IndexOptions::default() }
}

fn unique(name: &str, on: &[&str]) -> IndexOptions {
    IndexOptions { unique: true, ..options(name, on, &[]) }
}

fn put(table: &Table, id: i64, city: &str, year: i32) {
    table.insert_row(&row(id, city, year), Durability::Os).unwrap();
}

fn row(id: i64, city: &str, year: i32) -> [DatumRef<'_>; 4] {
    [DatumRef::Int64(id), DatumRef::Utf8(city), DatumRef::Int32(year), DatumRef::Null]
}

fn delete(table: &Table, id: i64) {
    table.delete_row(&[DatumRef::Int64(id)], Durability::Os).unwrap();
}

/// The ids of the rows with a city.
fn ids_at(index: &Index, city: &str, snapshot: Option<&Snapshot>) -> Vec<i64> {
    let found = index.get(&[DatumRef::Utf8(city)], Some(&[0]), snapshot).unwrap();
    found
        .map(|row| match row.unwrap().values[..] {
            [Datum::Int64(id)] => id,
            ref other => panic!("{other:?}"),
        })
        .collect()
}

fn ids(index: &Index, city: &str) -> Vec<i64> {
    ids_at(index, city, None)
}

/// Entries of an index in files.
fn entries(database: &Database, index: &str) -> u64 {
    let metrics = database.metrics();
    let table = metrics.tables.iter().find(|table| table.name == format!("people/{index}")).unwrap();
    table.levels.iter().map(|level| level.entries).sum()
}

#[test]
fn index_output_is_not_lost_on_its_way_down() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let table = create(&database);
    let index = database.create_index(&table, &options("by_city", &["city"], &[])).unwrap();
    let cities = ["Graz", "Linz", "Wien", ""];
    for id in 0..4_000 {
        put(&table, id, cities[id as usize % 4], 0);
    }
    let expected: Vec<i64> = (0..4_000).filter(|id| id % 4 == 1).collect();
    assert_eq!(ids(&index, "Linz"), expected, "partly in memory");
    database.flush().unwrap();
    database.wait_idle().unwrap();
    assert_eq!(ids(&index, "Linz"), expected, "in files");
    database.compact(&table).unwrap();
    assert_eq!(ids(&index, "Linz"), expected, "in one run");
    assert_eq!(entries(&database, "by_city"), 4_000);
    assert_verified(&database);
    drop((index, table));
    database.close().unwrap();
    let database = open(&disk);
    let index = database.table("people").unwrap().index("by_city").unwrap();
    assert_eq!((ids(&index, "Linz"), index.is_built()), (expected, true));
}

/// Values that contain each other, as text and as keys.
#[test]
fn a_value_is_not_lost_because_another_one_contains_it() {
    let database = open(&MemoryDisk::new());
    let table = create(&database);
    let index = database.create_index(&table, &options("by_city", &["city"], &[])).unwrap();
    let cities = ["10", "1", "", "\0", "1\0", "\x001", "100", "01"];
    for _ in 0..2 {
        for (id, city) in cities.iter().enumerate() {
            put(&table, id as i64, city, 0);
        }
        database.compact(&table).unwrap();
        for (id, city) in cities.iter().enumerate() {
            assert_eq!(ids(&index, city), [id as i64], "{city:?}");
        }
    }
    assert_eq!(entries(&database, "by_city"), cities.len() as u64);
}

/// The old version is dropped, and its entry removed, after the same value came back.
#[test]
fn a_late_removal_does_not_hide_a_newer_equal_entry() {
    let database = open(&MemoryDisk::new());
    let table = create(&database);
    let index = database.create_index(&table, &options("by_city", &["city"], &["year"])).unwrap();
    put(&table, 1, "Graz", 1);
    database.compact(&table).unwrap();
    put(&table, 1, "Linz", 2);
    database.flush().unwrap();
    put(&table, 1, "Graz", 3);
    database.flush().unwrap();
    database.compact(&table).unwrap();
    let years = |city| {
        index.get(&[DatumRef::Utf8(city)], Some(&[2]), None).unwrap().map(|r| r.unwrap().values).collect::<Vec<_>>()
    };
    assert_eq!(years("Graz"), [[Datum::Int32(3)]]);
    assert!(years("Linz").is_empty());
    assert_eq!(entries(&database, "by_city"), 1, "what was superseded is gone");
    delete(&table, 1);
    assert!(ids(&index, "Graz").is_empty());
    database.compact(&table).unwrap();
    assert!(ids(&index, "Graz").is_empty());
    assert_eq!(entries(&database, "by_city"), 0);
}

/// Removals reach the index with the edit that drops the rows: at no operation of the disk may one be there without the
/// other, or an entry of a row long gone would be trusted.
#[test]
fn removals_and_rows_leave_together_whatever_the_crash() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let table = create(&database);
    database.create_index(&table, &options("by_city", &["city"], &["year"])).unwrap();
    for id in 0..300 {
        put(&table, id, ["Graz", "Linz"][id as usize % 2], 1);
    }
    database.compact(&table).unwrap();
    for id in 0..300 {
        match id % 3 {
            0 => delete(&table, id),
            1 => put(&table, id, "Wien", 2),
            _ => {}
        }
    }
    database.flush().unwrap();
    let images = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (kept, hooked) = (images.clone(), disk.clone());
    disk.on_operation(move |index, _| kept.lock().unwrap().push(hooked.crash_image(&CrashDraw::from_seed(index))));
    database.compact(&table).unwrap();
    disk.clear_hook();
    let images = std::mem::take(&mut *images.lock().unwrap());
    assert!(images.len() > 10, "{} operations", images.len());
    for image in images {
        let database = Database::open("db", small_options(&image)).unwrap();
        let index = database.table("people").unwrap().index("by_city").unwrap();
        let expected = |r: i64| -> Vec<i64> { (0..300).filter(|id| id % 3 == 2 && id % 2 == r).collect() };
        assert_eq!(ids(&index, "Graz"), expected(0));
        assert_eq!(ids(&index, "Linz"), expected(1));
        assert_eq!(ids(&index, "Wien"), (0..300).filter(|id| id % 3 == 1).collect::<Vec<_>>());
        assert_verified(&database);
    }
}

#[test]
fn an_index_made_in_mid_life_is_exact_from_the_first_moment() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let table = create(&database);
    for id in 0..1_000 {
        put(&table, id, ["Graz", "Linz"][id as usize % 2], 1);
    }
    let before = database.snapshot();
    for id in 0..500 {
        put(&table, id, "Wien", 2);
    }
    table.patch_row(&[DatumRef::Int64(999)], &[("city", DatumRef::Utf8("Graz"))], Durability::Os).unwrap();
    let index = database.create_index(&table, &options("by_city", &["city", "year"], &[])).unwrap();
    assert!(!index.is_built());
    for id in 500..600 {
        put(&table, id, "Wien", 2);
    }
    let check = |index: &Index| {
        assert_eq!(ids(index, "Wien"), (0..600).collect::<Vec<_>>());
        assert_eq!(ids(index, "Graz"), (600..1_000).filter(|id| id % 2 == 0 || *id == 999).collect::<Vec<_>>());
        assert_eq!(ids_at(index, "Linz", Some(&before)), (0..1_000).filter(|id| id % 2 == 1).collect::<Vec<_>>());
    };
    check(&index);
    database.wait_idle().unwrap();
    assert!(index.is_built());
    check(&index);
    assert_verified(&database);
    database.compact(&table).unwrap();
    check(&index);
    assert_verified(&database);
}

#[test]
fn a_crash_while_an_index_is_built_begins_again() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let table = create(&database);
    for id in 0..500 {
        put(&table, id, ["Graz", "Linz"][id as usize % 2], 1);
    }
    database.flush().unwrap();
    database.wait_idle().unwrap();
    database.create_index(&table, &options("by_city", &["city"], &[])).unwrap();
    let images = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (kept, hooked) = (images.clone(), disk.clone());
    disk.on_operation(move |index, _| kept.lock().unwrap().push(hooked.crash_image(&CrashDraw::from_seed(index))));
    database.wait_idle().unwrap();
    disk.clear_hook();
    for image in std::mem::take(&mut *images.lock().unwrap()) {
        let database = Database::open("db", small_options(&image)).unwrap();
        let index = database.table("people").unwrap().index("by_city").unwrap();
        assert_eq!(ids(&index, "Linz").len(), 250);
        database.wait_idle().unwrap();
        assert!(index.is_built());
        assert_eq!(ids(&index, "Linz").len(), 250);
        assert_verified(&database);
    }
}

#[test]
fn a_patch_is_completed_with_the_other_columns_of_its_index() {
    let database = open(&MemoryDisk::new());
    let table = create(&database);
    let index = database.create_index(&table, &options("by_city", &["city", "year"], &["note"])).unwrap();
    put(&table, 1, "Graz", 1);
    let mut batch = WriteBatch::new();
    batch.insert_row(&table, &row(2, "Graz", 2)).unwrap();
    // The second sees the first, and one without a row changes nothing.
    batch.patch_row(&table, &[DatumRef::Int64(2)], &[("city", DatumRef::Utf8("Linz"))]).unwrap();
    batch.patch_row(&table, &[DatumRef::Int64(2)], &[("year", DatumRef::Int32(7))]).unwrap();
    batch.patch_row(&table, &[DatumRef::Int64(3)], &[("city", DatumRef::Utf8("Graz"))]).unwrap();
    database.write(&batch, Durability::Os).unwrap();
    table.patch_row(&[DatumRef::Int64(1)], &[("note", DatumRef::Utf8("x"))], Durability::Os).unwrap();
    let mut transaction = database.begin(IsolationLevel::Serializable);
    transaction.patch_row(&table, &[DatumRef::Int64(1)], &[("year", DatumRef::Int32(9))]).unwrap();
    transaction.commit(Durability::Os).unwrap();
    for _ in 0..2 {
        let all = index.range((Bound::Unbounded, Bound::Unbounded), Some(&[1, 2, 0, 3]), None).unwrap();
        let all: Vec<Vec<Datum>> = all.map(|row| row.unwrap().values).collect();
        let text = |text: &str| Datum::Utf8(text.into());
        let first = vec![text("Graz"), Datum::Int32(9), Datum::Int64(1), text("x")];
        let second = vec![text("Linz"), Datum::Int32(7), Datum::Int64(2), Datum::Null];
        assert_eq!(all, [first, second]);
        assert_verified(&database);
        database.compact(&table).unwrap();
    }
    assert_eq!(entries(&database, "by_city"), 2);
}

/// Patches from before the index, of rows that do not exist: nothing completed them, and nothing says that they changed
/// nothing. Neither what is built of them nor what a compaction makes of several may be taken for a row.
#[test]
fn a_patch_without_a_row_that_is_older_than_the_index_makes_no_row() {
    let database = open(&MemoryDisk::new());
    let table = create(&database);
    put(&table, 9, "Wien", 1);
    database.compact(&table).unwrap();
    let patch =
        |id, column: &str, datum| table.patch_row(&[DatumRef::Int64(id)], &[(column, datum)], Durability::Os).unwrap();
    for (id, note) in [(1, "a"), (2, "b")] {
        patch(id, "city", DatumRef::Utf8("Graz"));
        database.flush().unwrap();
        patch(id, "note", DatumRef::Utf8(note));
        database.flush().unwrap();
    }
    let index = database.create_index(&table, &options("by_city", &["city"], &[])).unwrap();
    patch(2, "note", DatumRef::Utf8("c"));
    database.flush().unwrap();
    assert!(ids(&index, "Graz").is_empty());
    while !index.is_built() {
        assert!(ids(&index, "Graz").is_empty());
        assert!(database.step().unwrap());
    }
    for _ in 0..3 {
        assert_eq!((ids(&index, "Graz"), ids(&index, "Wien")), (vec![], vec![9]));
        assert_verified(&database);
        database.compact(&table).unwrap();
    }
}

#[test]
fn a_snapshot_sees_the_index_as_it_was_across_compactions() {
    let database = open(&MemoryDisk::new());
    let table = create(&database);
    let index = database.create_index(&table, &options("by_city", &["city"], &["year"])).unwrap();
    let mut snapshots = Vec::new();
    for round in 0..5 {
        for id in 0..50 {
            put(&table, id, &format!("city {}", (id + round) % 5), round as i32);
        }
        snapshots.push(database.snapshot());
        if round == 3 {
            table.delete_range(&table.row_key(&[DatumRef::Int64(0)]).unwrap(), &[0xff; 9], Durability::Os).unwrap();
        }
        if round % 2 == 0 {
            database.compact(&table).unwrap();
        }
    }
    for _ in 0..2 {
        for (round, snapshot) in snapshots.iter().enumerate() {
            let expected: Vec<i64> = (0..50).filter(|id| (id + round as i64) % 5 == 2).collect();
            assert_eq!(ids_at(&index, "city 2", Some(snapshot)), expected, "round {round}");
        }
        database.compact(&table).unwrap();
    }
    snapshots.clear();
    database.compact(&table).unwrap();
    assert_eq!(entries(&database, "by_city"), 50);
    assert_verified(&database);
}

#[test]
fn a_range_delete_takes_its_rows_out_of_the_index() {
    let database = open(&MemoryDisk::new());
    let table = create(&database);
    let index = database.create_index(&table, &options("by_city", &["city"], &[])).unwrap();
    for id in 0..100 {
        put(&table, id, "Graz", 0);
    }
    database.compact(&table).unwrap();
    let key = |id| table.row_key(&[DatumRef::Int64(id)]).unwrap();
    table.delete_range(&key(10), &key(90), Durability::Os).unwrap();
    put(&table, 50, "Graz", 1);
    let expected: Vec<i64> = (0..100).filter(|id| !(10..90).contains(id) || *id == 50).collect();
    assert_eq!(ids(&index, "Graz"), expected);
    database.compact(&table).unwrap();
    assert_eq!(ids(&index, "Graz"), expected);
    assert_eq!(entries(&database, "by_city"), 21);
    assert_verified(&database);
}

/// Where a layout takes the columns of an index apart, its entries never answer alone; they stay exact.
#[test]
fn column_groups_that_part_the_columns_of_an_index_do_not_make_it_lie() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let layout = Layout::parse(
        "L0 tiered: * packed\nL1 leveled: 1 packed | 2 packed | 3 packed",
        &ColumnSet::from_iter([1, 2, 3]),
    );
    let table_options = TableOptions { layout: Some(layout.unwrap()), ..small_table() };
    let table = database.create_typed_table("people", Schema::parse(SCHEMA).unwrap(), table_options).unwrap();
    let apart = database.create_index(&table, &options("apart", &["city"], &["year"])).unwrap();
    let together = database.create_index(&table, &options("together", &["city"], &[])).unwrap();
    for round in 0..3 {
        for id in 0..100 {
            put(&table, id, ["Graz", "Linz"][(id as usize + round) % 2], round as i32);
        }
        for id in 0..10 {
            delete(&table, id);
        }
        database.compact(&table).unwrap();
        let expected: Vec<i64> = (10..100).filter(|id| (*id as usize + round).is_multiple_of(2)).collect();
        assert_eq!(ids(&apart, "Graz"), expected);
        assert_eq!(ids(&together, "Graz"), expected);
        assert_verified(&database);
    }
    assert_eq!(entries(&database, "together"), 90);
    // Deleted, and dropped from all groups: nothing of the rows is left that could contradict the entries.
    for id in 0..100 {
        delete(&table, id);
    }
    database.compact(&table).unwrap();
    assert!(ids(&apart, "Graz").is_empty() && ids(&apart, "Linz").is_empty());
}

/// Nothing names the entries of versions that went where the columns of an index lie apart: they leave when the derived
/// table is compacted, but for those that a snapshot needs.
#[test]
fn stale_entries_of_columns_that_lie_apart_leave_later() {
    let database = open(&MemoryDisk::new());
    let table = create(&database);
    database.set_layout(&table, groups("1 packed | 2-3 packed")).unwrap();
    let index = database.create_index(&table, &options("by_city_and_year", &["city", "year"], &[])).unwrap();
    let round = |round: i32| {
        (0..400).for_each(|id| put(&table, id, &format!("city{}", (id + i64::from(round)) % 50), round));
        database.compact(&table).unwrap();
    };
    round(0);
    let snapshot = database.snapshot();
    (1..6).for_each(round);
    delete(&table, 7);
    database.compact(&table).unwrap();
    let found = |snapshot: Option<&Snapshot>| {
        let rows = index.range((Bound::Unbounded, Bound::Unbounded), Some(&[1, 2, 0]), snapshot).unwrap();
        rows.map(|row| row.unwrap().values).collect::<Vec<_>>()
    };
    let expected = |round: i32| {
        let rows = (0..400).filter(|id| round == 0 || *id != 7);
        let city = |id: i64| Datum::Utf8(format!("city{}", (id + i64::from(round)) % 50));
        let mut rows: Vec<_> = rows.map(|id| (city(id), id)).collect();
        rows.sort_by_key(|(city, id)| (format!("{city:?}"), *id));
        rows.into_iter().map(|(city, id)| vec![city, Datum::Int32(round), Datum::Int64(id)]).collect::<Vec<_>>()
    };
    assert!(found(Some(&snapshot)) == expected(0) && found(None) == expected(5));
    assert_eq!(entries(&database, "by_city_and_year"), 399 + 400, "of the present and of the snapshot");
    drop(snapshot);
    database.compact(&table).unwrap();
    assert_eq!(entries(&database, "by_city_and_year"), 399);
    assert_eq!(found(None), expected(5));
    assert_verified(&database);
}

/// Its row had been deleted when the derived table was compacted, but by nothing that the log had: the row came back,
/// and its entry did not.
#[test]
fn an_entry_went_with_a_delete_that_a_crash_took_back() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let table = create(&database);
    database.set_layout(&table, groups("1 packed | 2-3 packed")).unwrap();
    database.create_index(&table, &options("by_city_and_year", &["city", "year"], &[])).unwrap();
    let rounds = |ids: std::ops::Range<i64>, year: fn(i64, i32) -> i32| {
        for round in 0..8 {
            ids.clone().for_each(|id| put(&table, id, "Graz", year(id, round)));
            database.flush().unwrap();
        }
    };
    // Entries that only their rows tell to be stale, and later ones around them, to be compacted with them.
    rounds(0..100, |_, round| round);
    database.wait_idle().unwrap();
    rounds(100..102, |id, _| if id == 100 { -1 } else { 1000 });
    for id in 0..100 {
        table.delete_row(&[DatumRef::Int64(id)], Durability::Buffered).unwrap();
    }
    database.wait_idle().unwrap();
    let restarted = open(&disk.kill_image());
    let index = restarted.table("people").unwrap().index("by_city_and_year").unwrap();
    let found = ids(&index, "Graz");
    assert_eq!(found.len(), 102, "{found:?}");
    assert_verified(&restarted);
}

/// Two patches are fused before the index is built: one older than it that changes an indexed column, and a newer one
/// that changes none. What comes of them is newer than the index, and was derived neither when it was written nor when
/// it was made.
#[test]
fn an_index_is_built_of_old_patches_that_were_fused_with_newer_ones() {
    let database = open(&MemoryDisk::new());
    let table = create(&database);
    put(&table, 1, "Graz", 1990);
    database.flush().unwrap();
    let snapshot = database.snapshot();
    let patch = |column, value: &str| {
        table.patch_row(&[DatumRef::Int64(1)], &[(column, DatumRef::Utf8(value))], Durability::Os).unwrap();
        database.flush().unwrap();
    };
    patch("city", "Linz");
    let index = database.create_index(&table, &options("by_city", &["city", "year"], &[])).unwrap();
    patch("note", "moved");
    database.compact(&table).unwrap();
    assert!(!index.is_built(), "only steps build it");
    database.wait_idle().unwrap();
    assert!(index.is_built());
    let check = |city: &str, expected: &[i64]| assert_eq!(ids(&index, city), expected, "{city}");
    assert_eq!(ids_at(&index, "Graz", Some(&snapshot)), [1]);
    check("Graz", &[]);
    check("Linz", &[1]);
    drop(snapshot);
    delete(&table, 1);
    database.compact(&table).unwrap();
    check("Linz", &[]);
    put(&table, 2, "Linz", 2000);
    database.compact(&table).unwrap();
    check("Linz", &[2]);
    assert_verified(&database);
}

/// A layout of column groups from level 1 on.
fn groups(text: &str) -> Layout {
    Layout::parse(&format!("L0 tiered: * packed\nL1 leveled: {text}"), &ColumnSet::from_iter([1, 2, 3])).unwrap()
}

fn patch_year(table: &Table, id: i64, year: i32) {
    table.patch_row(&[DatumRef::Int64(id)], &[("year", DatumRef::Int32(year))], Durability::Os).unwrap();
}

/// A row that is put together from groups has the sequence number of its newest part, by which no entry named it: the
/// removal of an older version took the only entry along.
#[test]
fn a_row_joined_from_groups_does_not_lose_its_entry_with_an_older_version() {
    let database = open(&MemoryDisk::new());
    let table_options = TableOptions { layout: Some(groups("1 packed | 2 packed | 3 packed")), ..small_table() };
    let table = database.create_typed_table("people", Schema::parse(SCHEMA).unwrap(), table_options).unwrap();
    let index = database.create_index(&table, &options("by_city", &["city"], &[])).unwrap();
    let mut snapshots = vec![database.snapshot()];
    put(&table, 1, "Graz", 0);
    snapshots.push(database.snapshot());
    database.compact(&table).unwrap();
    patch_year(&table, 1, 1);
    database.compact(&table).unwrap();
    database.set_layout(&table, groups("* packed")).unwrap();
    put(&table, 2, "Linz", 0);
    database.compact(&table).unwrap();
    snapshots.clear();
    put(&table, 2, "Graz", 0);
    database.compact(&table).unwrap();
    assert_eq!(ids(&index, "Graz"), [1, 2]);
    assert_verified(&database);
}

/// An index of key columns alone was fed from whichever group a layout named first: rows that another group had folded
/// left their entries behind.
#[test]
fn an_index_of_the_key_does_not_keep_deleted_rows_when_groups_change_places() {
    let database = open(&MemoryDisk::new());
    let table_options = TableOptions { layout: Some(groups("1 packed | 2-3 packed")), ..small_table() };
    let table = database.create_typed_table("people", Schema::parse(SCHEMA).unwrap(), table_options).unwrap();
    let index = database.create_index(&table, &options("by_id", &["id"], &[])).unwrap();
    let found = |id: i64| index.get(&[DatumRef::Int64(id)], Some(&[0]), None).unwrap().count();
    put(&table, 1, "Graz", 0);
    database.compact(&table).unwrap();
    table.patch_row(&[DatumRef::Int64(1)], &[("city", DatumRef::Utf8("Linz"))], Durability::Os).unwrap();
    database.compact(&table).unwrap();
    database.set_layout(&table, groups("2-3 packed | 1 packed")).unwrap();
    assert_eq!(found(1), 1);
    delete(&table, 1);
    put(&table, 2, "Graz", 0);
    database.compact(&table).unwrap();
    assert_eq!((found(1), found(2)), (0, 1));
    assert_eq!(entries(&database, "by_id"), 1);
    assert_verified(&database);
}

/// One part of a row has the number of its patch, the other that of the row: an index of the key, built then, had an
/// entry for the one and was told that the other left.
#[test]
fn an_index_of_the_key_that_is_built_over_groups_does_not_keep_deleted_rows() {
    let database = open(&MemoryDisk::new());
    let table_options = TableOptions { layout: Some(groups("1 packed | 2-3 packed")), ..small_table() };
    let table = database.create_typed_table("people", Schema::parse(SCHEMA).unwrap(), table_options).unwrap();
    let keeps_numbers = database.snapshot();
    put(&table, 1, "Graz", 0);
    database.compact(&table).unwrap();
    table.patch_row(&[DatumRef::Int64(1)], &[("year", DatumRef::Int32(1))], Durability::Os).unwrap();
    database.compact(&table).unwrap();
    drop(keeps_numbers);
    let index = database.create_index(&table, &options("by_id", &["id"], &[])).unwrap();
    index.wait_built().unwrap();
    let found = |id: i64| index.get(&[DatumRef::Int64(id)], Some(&[0]), None).unwrap().count();
    assert_eq!(found(1), 1);
    delete(&table, 1);
    database.compact(&table).unwrap();
    assert_eq!(found(1), 0);
    assert_verified(&database);
}

/// What leaves an index with its rows is sorted piece by piece. Each piece was a file of level 0 over the whole index,
/// and writers stopped for as many.
#[test]
fn what_leaves_an_index_in_pieces_holds_nobody_back() {
    let disk = MemoryDisk::new();
    let limits = Options { slowdown_level0_runs: 3, stop_level0_runs: 3, ..small_options(&disk) };
    let database = Database::open("db", limits).unwrap();
    let policy = Policy::Leveled(LeveledOptions { level0_trigger: 1, ..LeveledOptions::default() });
    let table_options = TableOptions { policy, ..small_table() };
    let table = database.create_typed_table("people", Schema::parse(SCHEMA).unwrap(), table_options).unwrap();
    let index = database.create_index(&table, &options("by_city", &["city"], &[])).unwrap();
    let city = |id: i64, round: i64| format!("{:0>200}", (id * 37 + round) % 61);
    let write = |round| (0..60).for_each(|id| put(&table, id, &city(id, round), 0));
    write(0);
    database.flush().unwrap();
    database.wait_idle().unwrap();
    write(1);
    // The index by itself is compacted only with all of its table.
    database.compact_range(&table, Some(&[]), None).unwrap();
    assert_eq!(database.metrics().slowed_bytes_per_second, None);
    let check = || {
        assert_eq!(index.range((Bound::Unbounded, Bound::Unbounded), Some(&[0]), None).unwrap().count(), 60);
        (0..60).for_each(|id| assert_eq!(ids(&index, &city(id, 1)), [id]));
        assert_verified(&database);
    };
    check();
    database.compact(&table).unwrap();
    check();
    assert_eq!(entries(&database, "by_city"), 60);
}

/// While an index waited to be built, a compaction folded one part of a row with a patch that the index does not read:
/// no entry was ever made for the number that this part has now, and the row could not be put together for the number
/// of the other.
#[test]
fn an_index_is_built_of_rows_of_which_one_part_is_newer_than_the_index() {
    let database = open(&MemoryDisk::new());
    let table_options = TableOptions { layout: Some(groups("1,3 packed | 2 packed")), ..small_table() };
    let table = database.create_typed_table("people", Schema::parse(SCHEMA).unwrap(), table_options).unwrap();
    let _keeps_numbers = database.snapshot();
    put(&table, 1, "Graz", 7);
    database.compact(&table).unwrap();
    let index = database.create_index(&table, &options("by_city", &["city"], &["year"])).unwrap();
    assert!(!index.is_built());
    table.patch_row(&[DatumRef::Int64(1)], &[("note", DatumRef::Utf8("x"))], Durability::Os).unwrap();
    database.compact(&table).unwrap();
    while database.step().unwrap() {}
    assert!(index.is_built());
    assert_eq!(ids(&index, "Graz"), [1]);
    assert_verified(&database);
}

#[test]
fn lookups_that_the_index_covers_do_not_read_the_table() {
    let database = open(&MemoryDisk::new());
    let table = create(&database);
    let index = database.create_index(&table, &options("by_city", &["city"], &["year"])).unwrap();
    for id in 0..1_000 {
        put(&table, id, ["Graz", "Linz"][id as usize % 2], 1);
    }
    database.compact(&table).unwrap();
    put(&table, 1, "Graz", 2);
    let before = database.metrics();
    let found: Vec<_> = index.get(&[DatumRef::Utf8("Linz")], Some(&[0, 2]), None).unwrap().collect();
    assert_eq!(found.len(), 499);
    let after = database.metrics();
    assert_eq!(after.index_candidates - before.index_candidates, 500);
    assert_eq!(after.index_only - before.index_only, 499);
    assert_eq!(after.index_stale - before.index_stale, 1);
}

#[test]
fn an_index_and_its_files_go_when_it_or_its_table_is_dropped() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let table = create(&database);
    let index = database.create_index(&table, &options("by_city", &["city"], &[])).unwrap();
    let second = database.create_index(&table, &options("by_year", &["year"], &[])).unwrap();
    for id in 0..1_000 {
        put(&table, id, "Graz", 1);
    }
    database.flush().unwrap();
    assert!(database.table("people/by_city").is_err(), "an index is no table");
    assert_eq!(database.table_names(), ["people"]);
    let mut begun = index.get(&[DatumRef::Utf8("Graz")], None, None).unwrap();
    database.drop_index(&table, "by_city").unwrap();
    assert_eq!(begun.by_ref().count(), 1_000);
    drop(begun);
    let refused = index.get(&[DatumRef::Utf8("Graz")], None, None).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    assert_eq!(table.indexes().len(), 1);
    assert_eq!(database.drop_index(&table, "by_city").unwrap_err().kind(), ErrorKind::NotFound);
    drop((index, second, table));
    database.drop_table("people").unwrap();
    database.wait_idle().unwrap();
    let files = disk.paths().iter().filter(|path| path.extension().is_some_and(|e| e == "sst")).count();
    assert_eq!(files, 0, "{:?}", disk.paths());
    database.close().unwrap();
    assert!(open(&disk).table_names().is_empty());
}

#[test]
fn bulk_loads_are_indexed() {
    let database = open(&MemoryDisk::new());
    let table = create(&database);
    let index = database.create_index(&table, &options("by_city", &["city"], &["year"])).unwrap();
    for id in 0..100 {
        put(&table, id, "Wien", 0);
    }
    let source = create_copy(&database);
    for id in 50..2_000 {
        source.insert_row(&row(id, ["Graz", "Linz"][id as usize % 2], 1), Durability::Os).unwrap();
    }
    let batches = source.scan_batches(mycelium_engine::ScanOptions::default()).unwrap();
    table.ingest_batches(batches).unwrap();
    for _ in 0..2 {
        assert_eq!(ids(&index, "Wien"), (0..50).collect::<Vec<_>>());
        assert_eq!(ids(&index, "Graz"), (50..2_000).filter(|id| id % 2 == 0).collect::<Vec<_>>());
        assert_verified(&database);
        database.compact(&table).unwrap();
    }
    assert_eq!(entries(&database, "by_city"), 2_000);
}

fn create_copy(database: &Database) -> Table {
    database.create_typed_table("source", Schema::parse(SCHEMA).unwrap(), small_table()).unwrap()
}

#[test]
fn two_rows_cannot_have_the_same_values_in_a_unique_index() {
    let database = open(&MemoryDisk::new());
    let table = create(&database);
    let index = database.create_index(&table, &unique("by_city", &["city", "year"])).unwrap();
    assert!(index.is_unique());
    put(&table, 1, "Graz", 1);
    put(&table, 2, "Graz", 2);
    put(&table, 1, "Graz", 1);
    let refused = |result: mycelium_engine::Result<u64>| assert_eq!(result.unwrap_err().kind(), ErrorKind::Duplicate);
    refused(table.insert_row(&row(3, "Graz", 1), Durability::Os));
    refused(table.patch_row(&[DatumRef::Int64(2)], &[("year", DatumRef::Int32(1))], Durability::Os));
    // Nulls are equal to nothing.
    for id in 10..12 {
        table
            .insert_row(&[DatumRef::Int64(id), DatumRef::Null, DatumRef::Int32(1), DatumRef::Null], Durability::Os)
            .unwrap();
    }
    let mut batch = WriteBatch::new();
    batch.insert_row(&table, &row(4, "Linz", 1)).unwrap();
    batch.insert_row(&table, &row(5, "Linz", 1)).unwrap();
    refused(database.write(&batch, Durability::Os));
    // What counts is how rows are after the batch: two may change places, and values may move on.
    let mut batch = WriteBatch::new();
    batch.insert_row(&table, &row(1, "Graz", 2)).unwrap();
    batch.insert_row(&table, &row(2, "Graz", 1)).unwrap();
    database.write(&batch, Durability::Os).unwrap();
    delete(&table, 2);
    put(&table, 3, "Graz", 1);
    assert_eq!(ids(&index, "Graz"), [3, 1]);
    database.compact(&table).unwrap();
    refused(table.insert_row(&row(9, "Graz", 1), Durability::Os));
    let source = create_copy(&database);
    source.insert_row(&row(7, "Graz", 1), Durability::Os).unwrap();
    let batches = source.scan_batches(mycelium_engine::ScanOptions::default()).unwrap();
    assert_eq!(table.ingest_batches(batches).unwrap_err().kind(), ErrorKind::Duplicate);
    source.insert_row(&row(3, "Wien", 1), Durability::Os).unwrap();
    let batches = source.scan_batches(mycelium_engine::ScanOptions::default()).unwrap();
    table.ingest_batches(batches).unwrap();
    assert_eq!((ids(&index, "Graz"), ids(&index, "Wien")), (vec![7, 1], vec![3]));
    assert_verified(&database);
}

/// The time that a batch took grew with the product of its range deletes and its rows.
#[test]
fn a_batch_of_many_range_deletes_frees_the_values_of_their_rows() {
    const ROWS: i64 = 3_000;
    let database = open_with_threads(64 << 20);
    let table = create(&database);
    let index = database.create_index(&table, &unique("by_city", &["city"])).unwrap();
    let mut batch = WriteBatch::new();
    for id in 0..ROWS {
        batch.insert_row(&table, &row(id, &format!("city {id}"), 0)).unwrap();
    }
    database.write(&batch, Durability::Os).unwrap();
    // Every row gives its city to the one of the same place among those that come.
    let mut batch = WriteBatch::new();
    for id in 0..ROWS {
        batch.delete_range(&table, &key_of(&table, id), &key_of(&table, id + 1));
        batch.insert_row(&table, &row(ROWS + id, &format!("city {id}"), 0)).unwrap();
    }
    database.write(&batch, Durability::Os).unwrap();
    assert_eq!(ids(&index, "city 7"), [ROWS + 7]);
    assert_eq!(index.get(&[], Some(&[0]), None).unwrap().count(), ROWS as usize);
    // One that was put before its interval was deleted is gone; one that was put after it is not.
    let mut batch = WriteBatch::new();
    batch.insert_row(&table, &row(1, "city 7", 0)).unwrap();
    batch.delete_range(&table, &key_of(&table, 0), &key_of(&table, ROWS + 8));
    batch.insert_row(&table, &row(2, "city 7", 0)).unwrap();
    database.write(&batch, Durability::Os).unwrap();
    assert_eq!(ids(&index, "city 7"), [2]);
    let mut batch = WriteBatch::new();
    batch.delete_range(&table, &key_of(&table, 3), &key_of(&table, 4));
    batch.insert_row(&table, &row(3, "city 7", 0)).unwrap();
    assert_eq!(database.write(&batch, Durability::Os).unwrap_err().kind(), ErrorKind::Duplicate);
}

#[test]
fn an_index_of_rows_with_equal_values_cannot_be_made_unique() {
    let database = open(&MemoryDisk::new());
    let table = create(&database);
    for id in 0..100 {
        put(&table, id, &format!("city {}", id % 99), 0);
    }
    let refused = database.create_index(&table, &unique("by_city", &["city"])).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Duplicate);
    assert!(refused.to_string().contains("city 0"), "{refused}");
    assert!(table.indexes().is_empty());
    delete(&table, 99);
    let index = database.create_index(&table, &unique("by_city", &["city"])).unwrap();
    assert!(index.is_unique() && index.is_built());
    assert_eq!(table.insert_row(&row(500, "city 7", 0), Durability::Os).unwrap_err().kind(), ErrorKind::Duplicate);
}

/// Whatever the moment of the crash: there is no index, or a unique one.
#[test]
fn a_crash_while_an_index_is_made_unique_undoes_it() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let table = create(&database);
    for id in 0..300 {
        put(&table, id, &format!("city {id}"), 1);
    }
    database.flush().unwrap();
    let images = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (kept, hooked) = (images.clone(), disk.clone());
    disk.on_operation(move |index, _| kept.lock().unwrap().push(hooked.crash_image(&CrashDraw::from_seed(index))));
    database.create_index(&table, &unique("by_city", &["city"])).unwrap();
    disk.clear_hook();
    images.lock().unwrap().push(disk.crash_image(&CrashDraw::from_seed(0)));
    let (mut undone, mut made) = (0, 0);
    for image in std::mem::take(&mut *images.lock().unwrap()) {
        // Twice: what is undone stays so.
        for _ in 0..2 {
            let database = Database::open("db", small_options(&image)).unwrap();
            let table = database.table("people").unwrap();
            if let Ok(index) = table.index("by_city") {
                assert!(index.is_unique() && index.is_built());
                let refused = table.insert_row(&row(500, "city 7", 0), Durability::Os).unwrap_err();
                assert_eq!((refused.kind(), ids(&index, "city 7")), (ErrorKind::Duplicate, vec![7]));
                made += 1;
            } else {
                undone += 1;
            }
            assert_verified(&database);
            database.close().unwrap();
        }
        let database = Database::open("db", small_options(&image)).unwrap();
        let table = database.table("people").unwrap();
        if table.index("by_city").is_err() {
            assert!(database.create_index(&table, &unique("by_city", &["city"])).unwrap().is_unique());
        }
    }
    assert!(undone > 4 && made > 0, "{undone} undone, {made} made");
}

/// Threads that all want the same few values: of each exactly one gets it.
#[test]
fn threads_that_want_the_same_unique_value_get_it_once() {
    let database = open_with_threads(256 << 10);
    let table = create(&database);
    let index = database.create_index(&table, &unique("by_city", &["city"])).unwrap();
    let got: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread: i64| {
                let table = &table;
                scope.spawn(move || {
                    let mut got = 0;
                    for n in 0..300_i64 {
                        let city = format!("city {n}");
                        match table.insert_row(&row(thread * 1_000 + n, &city, 0), Durability::Os) {
                            Ok(_) => got += 1,
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Duplicate, "{error}"),
                        }
                    }
                    got
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(got, 300);
    assert_eq!(index.range((Bound::Unbounded, Bound::Unbounded), Some(&[0]), None).unwrap().count(), 300);
    assert_verified(&database);
}

/// Patches of one row by several threads: each is completed with what the row is when it takes effect.
#[test]
fn patches_that_meet_are_completed_with_what_is_there() {
    let database = open_with_threads(256 << 10);
    let table = create(&database);
    let index = database.create_index(&table, &self::options("by_city", &["city", "year"], &["note"])).unwrap();
    for id in 0..4 {
        put(&table, id, "Graz", 0);
    }
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let table = &table;
            scope.spawn(move || {
                for n in 0..400 {
                    let text = format!("{n}");
                    let change = match thread {
                        0 => ("city", DatumRef::Utf8(&text)),
                        1 => ("year", DatumRef::Int32(n)),
                        _ => ("note", DatumRef::Utf8(&text)),
                    };
                    table.patch_row(&[DatumRef::Int64(i64::from(n % 4))], &[change], Durability::Os).unwrap();
                }
            });
        }
    });
    let all = index.range((Bound::Unbounded, Bound::Unbounded), None, None).unwrap();
    let mut all: Vec<Vec<Datum>> = all.map(|row| row.unwrap().values).collect();
    all.sort_by_key(|row| format!("{:?}", row[0]));
    for (id, row) in all.iter().enumerate() {
        let last = 396 + id as i32;
        let text = Datum::Utf8(last.to_string());
        assert_eq!(*row, [Datum::Int64(id as i64), text.clone(), Datum::Int32(last), text]);
    }
    assert_eq!(all.len(), 4);
    assert_verified(&database);
}

/// A reader looks rows up while they are moved about, flushed and compacted: each row is somewhere, once.
#[test]
fn readers_find_every_row_once_while_compactions_run() {
    let database = open_with_threads(64 << 10);
    let table = create(&database);
    let index = database.create_index(&table, &self::options("by_city", &["city"], &["year"])).unwrap();
    for id in 0..200 {
        put(&table, id, "Graz", 0);
    }
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0..6_000_i64 {
                put(&table, n % 200, ["Graz", "Linz", "Wien"][(n / 200) as usize % 3], n as i32);
            }
        });
        while !writer.is_finished() {
            let all = index.range((Bound::Unbounded, Bound::Unbounded), Some(&[0, 2]), None).unwrap();
            let mut seen: Vec<Vec<Datum>> = all.map(|row| row.unwrap().values[..1].to_vec()).collect();
            seen.sort_by_key(|row| format!("{row:?}"));
            seen.dedup();
            assert_eq!(seen.len(), 200);
        }
        writer.join().unwrap();
    });
    database.compact(&table).unwrap();
    assert_verified(&database);
}

/// Numbers of tables are those of a database: the call dropped another table, or changed its layout.
#[test]
fn tables_of_another_database_are_refused_and_nothing_changes() {
    let (one, other) = (open(&MemoryDisk::new()), open(&MemoryDisk::new()));
    let table = create(&one);
    one.create_index(&table, &options("by_city", &["city"], &[])).unwrap();
    put(&table, 1, "Graz", 0);
    let foreign = create(&other);
    other.create_index(&foreign, &options("by_city", &["city"], &[])).unwrap();
    put(&foreign, 2, "Linz", 0);
    let refused = [
        one.drop_index(&foreign, "by_city"),
        one.set_layout(&foreign, groups("1 packed | 2-3 packed")),
        one.compact(&foreign),
        one.compact_range(&foreign, Some(b"a"), None),
        one.create_index(&foreign, &options("by_year", &["year"], &[])).map(drop),
    ];
    for (call, result) in refused.into_iter().enumerate() {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidArgument, "call {call}");
    }
    for (database, table, city, id) in [(&one, &table, "Graz", 1), (&other, &foreign, "Linz", 2)] {
        database.compact(table).unwrap();
        assert_eq!(ids(&table.index("by_city").unwrap(), city), [id]);
        assert_verified(database);
    }
}

/// A scan, or the building of an index, met the key later: the one failed, the other made the database read-only.
#[test]
fn keys_and_rows_that_a_typed_table_cannot_have_are_refused() {
    let database = open(&MemoryDisk::new());
    let table = create(&database);
    put(&table, 1, "Graz", 0);
    let (key, value) = (table.row_key(&[DatumRef::Int64(2)]).unwrap(), table.get(&key_of(&table, 1)).unwrap().unwrap());
    let wrong_keys: [&[u8]; 3] = [b"7", b"", &[0; 9]];
    for wrong in wrong_keys {
        let mut transaction = database.begin(IsolationLevel::Serializable);
        let mut patching = WriteBatch::new();
        patching.patch(&table, wrong, &value);
        let refused = [
            table.put(wrong, &value, Durability::Os).map(drop),
            transaction.put(&table, wrong, &value),
            database.write(&patching, Durability::Os).map(drop),
            table.ingest([Ok((wrong, value.as_slice()))]).map(drop),
        ];
        for (call, result) in refused.into_iter().enumerate() {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidArgument, "{wrong:?}, call {call}");
        }
    }
    let error = table.ingest([Ok((key.as_slice(), b"no row".as_slice()))]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert_eq!(table.ingest([Ok((key, value))]).unwrap().rows, 1);
    database.compact(&table).unwrap();
    assert_verified(&database);
}

fn key_of(table: &Table, id: i64) -> Vec<u8> {
    table.row_key(&[DatumRef::Int64(id)]).unwrap()
}
