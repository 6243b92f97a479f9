//! Filters of prefixes of keys: scans and lookups pass files without them, and say what they would say with them.

use std::ops::Bound;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use mycelium_base::{ColumnSet, ReadCounters};
use mycelium_encoding::key::encode_key_prefix;
use mycelium_encoding::{Datum, DatumRef, Schema};
use mycelium_engine::{
    Database, Durability, ErrorKind, IndexOptions, Layout, ReadOptions, ScanOptions, Table, TableOptions, View,
    ViewOptions,
};
use mycelium_vfs::MemoryDisk;

use crate::common::{Rows, assert_verified, scan_with, small_options, small_table};

const SCHEMA: &str = "origin utf8 not null, dest utf8 not null, id int64 not null, note utf8, delay int64, \
     primary key (origin, dest, id)";
/// Files of level 0, each with flights from one place that no other has.
const FILES: i64 = 10;
const FLIGHTS: i64 = 20;

fn open() -> Database {
    Database::open("db", small_options(&MemoryDisk::new())).unwrap()
}

fn insert(table: &Table, origin: &str, dest: &str, id: i64) {
    let note = format!("{origin} to {dest}");
    let row = [
        DatumRef::Utf8(origin),
        DatumRef::Utf8(dest),
        DatumRef::Int64(id),
        DatumRef::Utf8(&note),
        DatumRef::Int64(id % 7),
    ];
    table.insert_row(&row, Durability::Buffered).unwrap();
}

/// Flights from `place 0`, `place 1` and so on, a file each, whose fences hold all places.
fn flights(layout: Option<&str>, prefix_filter: Option<usize>) -> (Database, Table) {
    let database = open();
    let layout = layout.map(|layout| Layout::parse(layout, &ColumnSet::from_iter([3, 4])).unwrap());
    let options = TableOptions { layout, prefix_filter, ..small_table() };
    let table = database.create_typed_table("flights", Schema::parse(SCHEMA).unwrap(), options).unwrap();
    fill(&database, &table);
    (database, table)
}

fn fill(database: &Database, table: &Table) {
    for file in 0..FILES {
        for id in 0..FLIGHTS {
            insert(table, &format!("place {file}"), &format!("place {}", id % 3), id);
        }
        insert(table, "a place", "nowhere", file);
        insert(table, "some place", "nowhere", file);
        database.flush().unwrap();
    }
}

/// The ids of the flights with these first values of the key, and what was read.
fn ids_of(table: &Table, prefix: &[&str]) -> (Vec<i64>, ReadCounters) {
    let values: Vec<Datum> = prefix.iter().map(|value| Datum::Utf8((*value).to_owned())).collect();
    let (lower, upper) = (Bound::Included(values.clone()), Bound::Included(values));
    let options = ScanOptions { projection: Some(vec![2, 4]), lower, upper, ..ScanOptions::default() };
    let mut batches = table.scan_batches(options).unwrap();
    let mut ids = Vec::new();
    for batch in batches.by_ref() {
        ids.extend(batch.unwrap().column(0).as_primitive::<Int64Type>().values().iter().copied());
    }
    (ids, batches.counters())
}

fn datums(ids: impl IntoIterator<Item = i64>) -> Vec<Datum> {
    ids.into_iter().map(Datum::Int64).collect()
}

const LAYOUTS: [Option<&str>; 3] = [
    None,
    Some("L0 tiered: * columnar\nL1 leveled: * columnar"),
    Some("L0 tiered: * columnar\nL1 leveled: 3 columnar | 4 columnar"),
];

#[test]
fn a_scan_within_a_prefix_opens_the_files_that_have_it() {
    for layout in LAYOUTS {
        let (database, table) = flights(layout, Some(2));
        let (_plain_database, plain) = flights(layout, None);
        for file in 0..FILES {
            let name = format!("place {file}");
            let origin = name.as_str();
            for prefix in [&[origin][..], &[origin, "place 1"][..], &[origin, "nowhere"][..], &["nowhere"][..]] {
                let (ids, counters) = ids_of(&table, prefix);
                let (expected, without) = ids_of(&plain, prefix);
                assert_eq!(ids, expected, "{prefix:?}");
                assert_eq!(without.files_skipped_by_prefix, 0);
                let least = FILES as u64 - u64::from(!expected.is_empty()) - 3;
                assert!(counters.files_skipped_by_prefix >= least, "{prefix:?}: {counters:?}");
                let blocks = |counters: &ReadCounters| counters.blocks_read + counters.block_cache_hits;
                assert!(blocks(&counters) < blocks(&without), "{prefix:?}: {counters:?} {without:?}");
            }
        }
        // What is in all of them, and what is in no prefix.
        assert_eq!(ids_of(&table, &["a place"]).0, (0..FILES).collect::<Vec<_>>());
        assert_eq!(ids_of(&table, &["a place"]).1.files_skipped_by_prefix, 0);
        let (all, counters) = ids_of(&table, &[]);
        assert_eq!((all.len() as i64, counters.files_skipped_by_prefix), (FILES * (FLIGHTS + 2), 0));
        database.compact(&table).unwrap();
        for file in 0..FILES {
            let origin = format!("place {file}");
            assert_eq!(ids_of(&table, &[&origin]).0, ids_of(&plain, &[&origin]).0);
        }
        assert_verified(&database);
    }
}

#[test]
fn levels_pass_files_before_and_behind_a_prefix() {
    let database = open();
    let table = database.create_table("t", TableOptions { prefix_filter: Some(4), ..small_table() }).unwrap();
    // Every other prefix: those between them lie within the fences of a file, or between two.
    let key = |group: u32, member: u32| [group.to_be_bytes(), member.to_be_bytes()].concat();
    for group in (0..2000).step_by(2) {
        for member in 0..4 {
            table.put(&key(group, member), &[7; 40], Durability::Buffered).unwrap();
        }
    }
    database.compact(&table).unwrap();
    let (mut skipped, mut read) = (0, 0);
    for group in 0..2000_u32 {
        let options = ReadOptions { prefix: Some(group.to_be_bytes().to_vec()), ..ReadOptions::default() };
        let mut rows = table.iter(&options).unwrap();
        rows.seek_to_first().unwrap();
        let mut found = 0;
        while rows.valid() {
            assert_eq!(rows.key(), key(group, found));
            found += 1;
            rows.next().unwrap();
        }
        assert_eq!(found, if group % 2 == 0 { 4 } else { 0 }, "{group}");
        let counters = rows.counters();
        if group % 2 == 1 {
            skipped += counters.files_skipped_by_prefix;
            read += counters.blocks_read + counters.block_cache_hits;
        }
    }
    assert!(skipped > 900, "{skipped}");
    assert!(read < 100, "{read}");
}

#[test]
fn a_range_delete_counts_in_a_file_without_the_prefix() {
    let database = open();
    let table = database.create_table("t", TableOptions { prefix_filter: Some(4), ..small_table() }).unwrap();
    for key in ["aaaa1", "bbbb1", "bbbb2", "cccc1"] {
        table.put(key.as_bytes(), b"old", Durability::Os).unwrap();
    }
    database.flush().unwrap();
    let before = database.snapshot();
    table.put(b"zzzz1", b"new", Durability::Os).unwrap();
    table.delete_range(b"bbbb", b"bbbb2", Durability::Os).unwrap();
    database.flush().unwrap();
    let within = |options: ReadOptions| -> Rows {
        scan_with(&table, &ReadOptions { prefix: Some(b"bbbb".to_vec()), ..options })
    };
    let rows = |keys: &[&str]| -> Rows { keys.iter().map(|key| (key.as_bytes().to_vec(), b"old".to_vec())).collect() };
    assert_eq!(within(ReadOptions::default()), rows(&["bbbb2"]));
    assert_eq!(within(ReadOptions::at(&before)), rows(&["bbbb1", "bbbb2"]));
    database.compact(&table).unwrap();
    assert_eq!(within(ReadOptions::default()), rows(&["bbbb2"]));
    assert_eq!(within(ReadOptions::at(&before)), rows(&["bbbb1", "bbbb2"]));
}

#[test]
fn a_lookup_in_an_index_opens_the_files_that_have_the_value() {
    let database = open();
    let table = database.create_typed_table("flights", Schema::parse(SCHEMA).unwrap(), small_table()).unwrap();
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let options = IndexOptions { name: "by_note".into(), on: names(&["note", "delay"]), ..IndexOptions::default() };
    let index = database.create_index(&table, &options).unwrap();
    for file in 0..FILES {
        for id in 0..FLIGHTS {
            insert(&table, &format!("place {file}"), "somewhere", id);
        }
        insert(&table, "a place", "somewhere", file);
        insert(&table, "some place", "somewhere", file);
        database.flush().unwrap();
    }
    let look_up = |values: &[DatumRef<'_>]| {
        let mut found = index.get(values, Some(&[2]), None).unwrap();
        let mut ids: Vec<Datum> = found.by_ref().flat_map(|row| row.unwrap().values).collect();
        ids.sort_by_key(|id| match id {
            Datum::Int64(id) => *id,
            other => panic!("{other:?}"),
        });
        (ids, found.counters().files_skipped_by_prefix)
    };
    for file in 0..FILES {
        let note = format!("place {file} to somewhere");
        let (ids, skipped) = look_up(&[DatumRef::Utf8(&note)]);
        assert_eq!(ids, datums(0..FLIGHTS));
        assert!(skipped >= FILES as u64 - 4, "{skipped}");
        let (ids, skipped) = look_up(&[DatumRef::Utf8(&note), DatumRef::Int64(3)]);
        assert_eq!(ids, datums((0..FLIGHTS).filter(|id| id % 7 == 3)));
        assert!(skipped >= FILES as u64 - 4, "{skipped}");
    }
    assert_eq!(look_up(&[DatumRef::Utf8("a place to somewhere")]), (datums(0..FILES), 0));
    let (ids, skipped) = look_up(&[DatumRef::Utf8("nowhere to somewhere")]);
    assert!(ids.is_empty() && skipped >= FILES as u64 - 3, "{skipped}");
    // Entries leave with their rows.
    table
        .patch_row(
            &[DatumRef::Utf8("place 1"), DatumRef::Utf8("somewhere"), DatumRef::Int64(5)],
            &[("note", DatumRef::Null)],
            Durability::Os,
        )
        .unwrap();
    for _ in 0..2 {
        assert_eq!(look_up(&[DatumRef::Null]).0, datums([5]));
        let rest = look_up(&[DatumRef::Utf8("place 1 to somewhere")]).0;
        assert_eq!(rest, datums((0..FLIGHTS).filter(|id| *id != 5)));
        database.compact(&table).unwrap();
        database.wait_idle().unwrap();
    }
    assert_verified(&database);
}

/// A view asked every run for its next key, whatever its filter said.
#[test]
fn a_view_of_a_prefix_opens_the_files_that_have_it() {
    let create = |prefix_filter| {
        let database = open();
        let options = TableOptions { prefix_filter, ..small_table() };
        let table = database.create_typed_table("flights", Schema::parse(SCHEMA).unwrap(), options).unwrap();
        let (group_by, aggregates) = (vec!["dest".into()], vec!["count(*)".into(), "sum(id)".into()]);
        let view = ViewOptions { name: "by_dest".into(), group_by, aggregates };
        let view = database.create_view(&table, &view).unwrap();
        fill(&database, &table);
        (database, view)
    };
    let read = |view: &View, place: &str| {
        let mut prefix = Vec::new();
        encode_key_prefix(view.table().schema().unwrap(), &[DatumRef::Utf8(place)], &mut prefix).unwrap();
        view.read(&ReadOptions { prefix: Some(prefix), ..ReadOptions::default() }).unwrap()
    };
    let ((_filtered_database, filtered), (_plain_database, plain)) = (create(Some(2)), create(None));
    for file in 0..FILES {
        let place = format!("place {file}");
        let (found, expected) = (read(&filtered, &place), read(&plain, &place));
        assert_eq!(found.rows, expected.rows);
        assert_eq!(found.rows.len(), 3);
        let blocks = found.counters.reads.blocks_read + found.counters.reads.block_cache_hits;
        assert!(blocks < FILES as u64, "{:?}", found.counters);
    }
    for place in ["a place", "nowhere"] {
        assert_eq!(read(&filtered, place).rows, read(&plain, place).rows);
    }
}

#[test]
fn prefixes_of_more_than_there_is_are_refused() {
    let database = open();
    let refused = |prefix_filter, is_typed: bool| {
        let options = TableOptions { prefix_filter: Some(prefix_filter), ..TableOptions::default() };
        let created = match is_typed {
            true => database.create_typed_table("t", Schema::parse(SCHEMA).unwrap(), options),
            false => database.create_table("t", options),
        };
        created.map(|_| ()).unwrap_err().kind()
    };
    for prefix_filter in [0, 4, usize::MAX] {
        assert_eq!(refused(prefix_filter, true), ErrorKind::InvalidArgument);
    }
    for prefix_filter in [0, 256] {
        assert_eq!(refused(prefix_filter, false), ErrorKind::InvalidArgument);
    }
    assert!(database.table_names().is_empty());
}
