//! Salvage of databases whose manifest does not know any more which indexes there were.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mycelium_encoding::{Datum, DatumRef, Schema};
use mycelium_engine::{
    Database, Durability, IndexOptions, Options, ReadOptions, SalvageOptions, SalvageReport, Table, TableOptions,
    salvage,
};
use mycelium_manifest::read_edits;
use mycelium_vfs::MemoryDisk;

use crate::common::{assert_verified, rows_at_every_level, small_options, small_table};

const DIRECTORY: &str = "/db";
const SAVED: &str = "/saved";

fn on(name: &str, columns: &[&str], unique: bool) -> IndexOptions {
    let on = columns.iter().map(|&column| column.to_owned()).collect();
    IndexOptions { name: name.into(), on, unique, ..IndexOptions::default() }
}

fn put(table: &Table, id: i64, city: &str, year: i32) {
    let row = [DatumRef::Int64(id), DatumRef::Utf8(city), DatumRef::Int32(year)];
    table.insert_row(&row, Durability::Sync).unwrap();
}

fn manifest(disk: &MemoryDisk) -> PathBuf {
    let is_one = |path: &PathBuf| path.to_string_lossy().starts_with("/db/MANIFEST");
    disk.paths().into_iter().find(is_one).unwrap()
}

/// Where the first edit begins that drops something.
fn first_drop(disk: &MemoryDisk, path: &Path) -> u64 {
    let mut found = None;
    read_edits(disk, path, &mut |offset, edit| {
        if !edit.dropped_tables.is_empty() {
            found.get_or_insert(offset);
        }
        Ok(())
    })
    .unwrap();
    found.unwrap()
}

fn salvaged(disk: &MemoryDisk) -> SalvageReport {
    let options = SalvageOptions { disk: Arc::new(disk.clone()), ..SalvageOptions::default() };
    salvage(DIRECTORY, SAVED, &options, |_, _| {}).unwrap()
}

/// Two indexes were dropped, and the manifest lost it. The log was taken to have all that they read: patches lack
/// columns, so that the saved database could not be opened, some have no row, and values come twice that a unique index
/// held to be free.
#[test]
fn the_log_went_on_without_indexes_whose_drop_the_manifest_lost() {
    for has_rows in [false, true] {
        let disk = MemoryDisk::new();
        let database = Database::open(DIRECTORY, small_options(&disk)).unwrap();
        let schema = Schema::parse("id int64 not null, city utf8, year int32, primary key (id)").unwrap();
        let table = database.create_typed_table("people", schema, small_table()).unwrap();
        if has_rows {
            (0..20).for_each(|id| put(&table, id, "Graz", id as i32));
        }
        for index in [on("by_city", &["city", "year"], false), on("by_year", &["year"], true)] {
            database.create_index(&table, &index).unwrap().wait_built().unwrap();
        }
        put(&table, 30, "Graz", 30);
        database.wait_idle().unwrap();
        ["by_city", "by_year"].iter().for_each(|name| database.drop_index(&table, name).unwrap());
        table.patch_row(&[DatumRef::Int64(30)], &[("city", DatumRef::Utf8("Linz"))], Durability::Sync).unwrap();
        put(&table, 31, "Linz", 30);
        // There is no such row, and no index any more to find that out.
        for year in [1, 2] {
            let change = [("city", DatumRef::Utf8("Linz")), ("year", DatumRef::Int32(year))];
            table.patch_row(&[DatumRef::Int64(77)], &change, Durability::Sync).unwrap();
        }
        drop(table);
        database.close().unwrap();
        let path = manifest(&disk);
        // A manifest that merely ends earlier tells of no loss.
        disk.flip_bit(&path, (first_drop(&disk, &path) + 12) * 8).unwrap();

        let report = salvaged(&disk);
        assert!(report.lost_edits && !report.lost_log && report.lost.is_empty(), "{report:?}");
        assert_eq!(report.emptied_indexes, ["people/by_city"], "{report:?}");
        assert_eq!(report.dropped_indexes, ["people/by_year"], "{report:?}");
        let options = Options { create_if_missing: false, ..small_options(&disk) };
        let database = Database::open(SAVED, options).unwrap();
        let table = database.table("people").unwrap();
        let index = table.index("by_city").unwrap();
        for is_built in [false, true] {
            assert_eq!(index.is_built(), is_built);
            let found = index.get(&[DatumRef::Utf8("Linz")], Some(&[0]), None).unwrap();
            let ids: Vec<Datum> = found.map(|row| row.unwrap().values.remove(0)).collect();
            assert_eq!(ids, [Datum::Int64(30), Datum::Int64(31)]);
            database.wait_idle().unwrap();
        }
        let row = table.get_row(&[DatumRef::Int64(30)], None, &ReadOptions::default()).unwrap().unwrap();
        assert_eq!(row, [Datum::Int64(30), Datum::Utf8("Linz".into()), Datum::Int32(30)]);
        assert_verified(&database);
    }
}

/// The log had two patches of a row that was lost. They were folded when the saved database was opened, and the index
/// said that there was the row.
#[test]
fn patches_of_lost_rows_did_not_make_entries_of_indexes() {
    let disk = MemoryDisk::new();
    let database = Database::open(DIRECTORY, small_options(&disk)).unwrap();
    let schema = Schema::parse("id int64 not null, city utf8, year int32, primary key (id)").unwrap();
    let options = TableOptions { layout: rows_at_every_level("1-2"), ..small_table() };
    let table = database.create_typed_table("people", schema, options).unwrap();
    database.create_index(&table, &on("by_city", &["city", "year"], false)).unwrap();
    (0..60).for_each(|id| put(&table, id, "Graz", 1));
    database.flush().unwrap();
    for year in [2, 3] {
        for id in 0..60 {
            let change = [("city", DatumRef::Utf8("Linz")), ("year", DatumRef::Int32(year))];
            table.patch_row(&[DatumRef::Int64(id)], &change, Durability::Sync).unwrap();
        }
    }
    drop(table);
    database.close().unwrap();
    let is_sst = |path: &PathBuf| path.starts_with(DIRECTORY) && path.extension().is_some_and(|e| e == "sst");
    for path in disk.paths().into_iter().filter(is_sst) {
        disk.flip_bit(&path, 60 * 8).unwrap();
    }
    let report = salvaged(&disk);
    assert!(!report.lost.is_empty() && !report.lost_edits && !report.lost_log, "{report:?}");
    let database = Database::open(SAVED, small_options(&disk)).unwrap();
    let table = database.table("people").unwrap();
    let is_there = |id: &i64| {
        let row = table.get_row(&[DatumRef::Int64(*id)], None, &ReadOptions::default()).unwrap();
        row.inspect(|row| assert_eq!(row[1..], [Datum::Utf8("Linz".into()), Datum::Int32(3)])).is_some()
    };
    let left: Vec<i64> = (0..60).filter(is_there).collect();
    assert!(!left.is_empty() && left.len() < 60, "{left:?}");
    for _ in 0..2 {
        let found = table.index("by_city").unwrap().get(&[DatumRef::Utf8("Linz")], Some(&[0]), None).unwrap();
        let mut found: Vec<Datum> = found.map(|row| row.unwrap().values.remove(0)).collect();
        found.sort();
        assert_eq!(found, left.iter().map(|id| Datum::Int64(*id)).collect::<Vec<_>>());
        database.wait_idle().unwrap();
    }
    assert_verified(&database);
}
