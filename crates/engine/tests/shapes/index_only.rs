//! Answers from an index alone, and what is read to know that they are still true.

use std::ops::Bound;

use mycelium_encoding::{Datum, DatumRef, Schema};
use mycelium_engine::{Database, Durability, Index, IndexOptions, Layout, Snapshot, Table, TableOptions};
use mycelium_vfs::MemoryDisk;

use crate::common::{assert_verified, rows_at_every_level, small_options, small_table};

const ROWS: i64 = 2_000;

/// Level 1 of a table: the indexed column with the other one, in rows and columnar, and apart from it.
const GROUPS: [&str; 3] = ["* packed", "* columnar", "1 packed | 2 columnar"];

fn put(table: &Table, id: i64, year: i32) {
    let row = [DatumRef::Int64(id), DatumRef::Int32(year), DatumRef::Utf8("a note of some length")];
    table.insert_row(&row, Durability::Os).unwrap();
}

/// The ids and years that the index has, sorted by id, and how many blocks were looked at for them.
fn look_up(index: &Index, snapshot: Option<&Snapshot>) -> (Vec<(i64, i32)>, u64) {
    let mut rows = index.range((Bound::Unbounded, Bound::Unbounded), Some(&[0, 1]), snapshot).unwrap();
    let mut found: Vec<(i64, i32)> = rows
        .by_ref()
        .map(|row| match row.unwrap().values[..] {
            [Datum::Int64(id), Datum::Int32(year)] => (id, year),
            ref other => panic!("{other:?}"),
        })
        .collect();
    found.sort_unstable();
    let counters = rows.counters();
    (found, counters.blocks_read + counters.block_cache_hits)
}

/// Rows that are older than the index share the number 0, and some of them were changed since: one in a block. The
/// block of each row was read to find that it had not changed.
#[test]
fn blocks_without_newer_rows_were_read_for_entries_that_answer_alone() {
    let database = Database::open("db", small_options(&MemoryDisk::new())).unwrap();
    let schema = Schema::parse("id int64 not null, year int32, note utf8, primary key (id)").unwrap();
    let options = TableOptions { layout: rows_at_every_level("1-2"), ..small_table() };
    let table = database.create_typed_table("people", schema, options).unwrap();
    // The last ones lie over all others: files that lie apart would be moved as they are.
    (0..ROWS).chain([0, ROWS - 1]).for_each(|id| put(&table, id, id as i32 % 50));
    database.compact(&table).unwrap();
    let by_year = IndexOptions { name: "by_year".into(), on: vec!["year".into()], ..IndexOptions::default() };
    let index = database.create_index(&table, &by_year).unwrap();
    index.wait_built().unwrap();
    let before = database.snapshot();
    let was: Vec<(i64, i32)> = (0..ROWS).map(|id| (id, id as i32 % 50)).collect();
    let mut is = was.clone();
    for id in (0..ROWS).step_by(200) {
        put(&table, id, 99);
        is[id as usize].1 = 99;
    }
    table.delete_row(&[DatumRef::Int64(7)], Durability::Os).unwrap();
    is.remove(7);
    for is_compacted in [false, true] {
        let (found, blocks) = look_up(&index, None);
        assert_eq!(found, is);
        assert!(!is_compacted || blocks < ROWS as u64 / 2, "{blocks} blocks");
        assert_eq!(look_up(&index, Some(&before)).0, was);
        database.compact(&table).unwrap();
    }
    drop(before);
    database.compact(&table).unwrap();
    assert_eq!(look_up(&index, None).0, is);
    assert_verified(&database);
}

/// A table with such levels below level 0, and its index by year.
fn people(database: &Database, groups: &str) -> (Table, Index) {
    let schema = Schema::parse("id int64 not null, year int32, note utf8, primary key (id)").unwrap();
    let layout = Layout::parse(&format!("L0 tiered: * packed\nL1 leveled: {groups}"), &"1-2".parse().unwrap()).unwrap();
    let options = TableOptions { layout: Some(layout), ..small_table() };
    let table = database.create_typed_table("people", schema, options).unwrap();
    let by_year = IndexOptions { name: "by_year".into(), on: vec!["year".into()], ..IndexOptions::default() };
    let index = database.create_index(&table, &by_year).unwrap();
    (table, index)
}

/// Rows in no order of their numbers: each file, and each block, has some that are newer than any other row's entry.
#[test]
fn the_block_of_each_row_was_read_though_one_file_alone_could_hold_it() {
    for groups in GROUPS {
        let database = Database::open("db", small_options(&MemoryDisk::new())).unwrap();
        let (table, index) = people(&database, groups);
        (0..ROWS).for_each(|at| put(&table, at * 1_237 % ROWS, (at * 1_237 % ROWS) as i32 % 50));
        let all: Vec<(i64, i32)> = (0..ROWS).map(|id| (id, id as i32 % 50)).collect();
        for _ in 0..2 {
            database.flush().unwrap();
            let (found, blocks) = look_up(&index, None);
            assert_eq!(found, all, "{groups}");
            // Those of the index, and those where a filter is wrong.
            assert!(blocks < ROWS as u64 / 4, "{groups}: {blocks} blocks");
            database.compact(&table).unwrap();
            // Newer than most, and alone in its file.
            put(&table, 1, 1);
        }
        assert_verified(&database);
    }
}

/// The only file that may hold a row says nothing of which of its versions is the newest, if it has several.
#[test]
fn a_file_with_two_versions_of_a_row_is_searched() {
    for groups in GROUPS {
        search_two_versions(groups);
    }
}

fn search_two_versions(groups: &str) {
    let database = Database::open("db", small_options(&MemoryDisk::new())).unwrap();
    let (table, index) = people(&database, groups);
    (0..ROWS).for_each(|id| put(&table, id, 1));
    let before = database.snapshot();
    for id in 0..ROWS {
        if id % 3 == 0 {
            table.delete_row(&[DatumRef::Int64(id)], Durability::Os).unwrap();
        } else if id % 3 == 1 {
            put(&table, id, 2);
        }
    }
    let was: Vec<(i64, i32)> = (0..ROWS).map(|id| (id, 1)).collect();
    let year = |id: i64| if id % 3 == 1 { 2 } else { 1 };
    let is: Vec<(i64, i32)> = (0..ROWS).filter(|id| id % 3 > 0).map(|id| (id, year(id))).collect();
    database.flush().unwrap();
    for _ in 0..2 {
        assert_eq!(look_up(&index, None).0, is, "{groups}");
        assert_eq!(look_up(&index, Some(&before)).0, was, "{groups}");
        database.compact(&table).unwrap();
    }
    assert_verified(&database);
}
