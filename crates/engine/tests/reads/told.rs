//! What scans give of columnar files without looking at values: counts and bounds that zones tell, texts as codes.

use std::ops::Bound;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt32Type};
use arrow_array::{Array, StringArray};
use mycelium_base::ReadCounters;
use mycelium_encoding::page::Filter;
use mycelium_encoding::{Datum, DatumRef, TextArrays};
use mycelium_engine::{Durability, ErrorKind, ScanOptions, Table};

use super::columnar::{COLUMNAR, ENCODED, GROUPS, ROWS, insert, kind_is, table};

/// Codes of the file's dictionary, moved by nothing where a batch has rows of one file; texts of younger rows behind
/// them.
#[test]
fn texts_leave_as_the_codes_that_their_file_has() {
    for layout in [COLUMNAR, GROUPS] {
        let (_database, table) = table(layout);
        let batches = || {
            let texts = TextArrays::Dictionaries;
            let options = ScanOptions { projection: Some(vec![1]), texts, ..ScanOptions::default() };
            let batches: Vec<_> = table.scan_batches(options).unwrap().map(|batch| batch.unwrap()).collect();
            batches
        };
        let kinds: Vec<String> = (0..10).map(|kind| format!("kind {kind}")).collect();
        let mut id = 0;
        for batch in batches() {
            let column = batch.column(0).as_dictionary::<UInt32Type>();
            assert!(
                column.values().as_string::<i32>().iter().flatten().eq(kinds.iter().map(String::as_str)),
                "{layout}"
            );
            for code in column.keys().values() {
                assert_eq!(i64::from(*code), id % 10, "{layout}");
                id += 1;
            }
        }
        assert_eq!(id, ROWS);
        insert(&table, 5, "another kind", 1);
        let batches = batches();
        let texts = batches[0].column(0).as_dictionary::<UInt32Type>().downcast_dict::<StringArray>().unwrap();
        let found: Vec<&str> = texts.into_iter().take(7).flatten().collect();
        assert_eq!(found, ["kind 0", "kind 1", "kind 2", "kind 3", "kind 4", "another kind", "kind 6"], "{layout}");
    }
}

/// Rows that a scan for amounts gives and is told, their sum of nulls and their bounds, and what it read.
fn told(table: &Table, options: ScanOptions) -> (u64, u64, Option<(i64, i64)>, u64, ReadCounters) {
    let options = ScanOptions { projection: Some(vec![2]), tell_zones: true, ..options };
    let mut scan = table.scan_batches(options).unwrap();
    let (mut rows, mut nulls, mut values) = (0, 0, Vec::new());
    for batch in scan.by_ref() {
        let batch = batch.unwrap();
        rows += batch.num_rows() as u64;
        nulls += batch.column(0).null_count() as u64;
        values.extend(batch.column(0).as_primitive::<Int64Type>().iter().flatten());
    }
    let told = scan.told().cloned().unwrap_or_default();
    for column in &told.columns {
        nulls += column.nulls;
        if let Some((Datum::Int64(least), Datum::Int64(greatest))) = column.bounds {
            values.extend([least, greatest]);
        }
    }
    let bounds = values.iter().copied().min().zip(values.iter().copied().max());
    (rows + told.rows, nulls, bounds, told.blocks, scan.counters())
}

/// How many rows there are, and what lies between, is told by zones; what younger entries change is read.
#[test]
fn blocks_that_nothing_touches_are_told_and_not_read() {
    for layout in [COLUMNAR, ENCODED, GROUPS] {
        let (database, table) = table(layout);
        let before = database.snapshot();
        let most = 2 * (ROWS - 1);
        let all = || ScanOptions::default();
        let (rows, nulls, bounds, blocks, read) = told(&table, all());
        assert_eq!((rows as i64, nulls, bounds), (ROWS, 0, Some((0, most))), "{layout}");
        assert!(blocks > 2 && read.rows_passed_through < ROWS as u64, "{layout}: {blocks} blocks told, {read:?}");
        assert_eq!(read.blocks_skipped_by_zone, blocks, "{layout}");

        // A row that goes, one that has a new value, one whose value goes, and a new one.
        table.delete_row(&[DatumRef::Int64(ROWS - 1)], Durability::Buffered).unwrap();
        let patch = |id: i64, amount: DatumRef<'_>| {
            table.patch_row(&[DatumRef::Int64(id)], &[("amount", amount)], Durability::Buffered).unwrap();
        };
        patch(ROWS / 2, DatumRef::Int64(-7));
        patch(ROWS / 3, DatumRef::Null);
        insert(&table, -1, "new", 1);
        let (rows, nulls, bounds, blocks, _) = told(&table, all());
        assert_eq!((rows as i64, nulls, bounds), (ROWS, 1, Some((-7, most - 2))), "{layout}");
        assert!(blocks > 0, "{layout}");
        let at_before = || ScanOptions { snapshot: Some(before.clone()), ..all() };
        let (rows, nulls, bounds, ..) = told(&table, at_before());
        assert_eq!((rows as i64, nulls, bounds), (ROWS, 0, Some((0, most))), "{layout}");

        // Rewritten, blocks have versions that the snapshot does not see.
        database.compact(&table).unwrap();
        for (options, expected) in [(all(), (1, Some((-7, most - 2)))), (at_before(), (0, Some((0, most))))] {
            let (rows, nulls, bounds, ..) = told(&table, options);
            assert_eq!((rows as i64, (nulls, bounds)), (ROWS, expected), "{layout}");
        }

        let key = |id: i64| table.row_key(&[DatumRef::Int64(id)]).unwrap();
        table.delete_range(&key(100), &key(ROWS - 100), Durability::Buffered).unwrap();
        let (rows, nulls, bounds, ..) = told(&table, all());
        assert_eq!((rows, nulls, bounds), (200, 0, Some((0, most - 2))), "{layout}");
        let part = ScanOptions {
            lower: Bound::Included(vec![Datum::Int64(50)]),
            upper: Bound::Excluded(vec![Datum::Int64(ROWS - 50)]),
            ..all()
        };
        let (rows, _, bounds, ..) = told(&table, part);
        assert_eq!((rows, bounds), (100, Some((100, 2 * (ROWS - 51)))), "{layout}");
    }
}

#[test]
fn zones_tell_nothing_of_texts_keys_filters_and_limits() {
    let (_database, table) = table(COLUMNAR);
    for projection in [vec![1], vec![0], vec![2, 3]] {
        let options = ScanOptions { projection: Some(projection), tell_zones: true, ..ScanOptions::default() };
        let mut scan = table.scan_batches(options).unwrap();
        let rows: usize = scan.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!((rows as i64, scan.told()), (ROWS, None));
    }
    let count = ScanOptions { projection: Some(vec![]), tell_zones: true, ..ScanOptions::default() };
    let mut scan = table.scan_batches(count.clone()).unwrap();
    let rows: usize = scan.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
    assert!(rows as i64 + scan.told().unwrap().rows as i64 == ROWS && (rows as i64) < ROWS / 2, "{rows}");
    let filter = Some(Filter { conjuncts: vec![kind_is("kind 1")] });
    for refused in [ScanOptions { limit: Some(1), ..count.clone() }, ScanOptions { filter, ..count }] {
        assert_eq!(table.scan_batches(refused).err().unwrap().kind(), ErrorKind::InvalidArgument);
    }
}
