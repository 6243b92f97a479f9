//! Scans and reads of columnar levels: what is taken as it lies, what is put together, and that both say the same.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use mycelium_base::hash::mix;
use mycelium_base::{ColumnSet, ReadCounters};
use mycelium_encoding::page::{ColumnTest, Filter, Test};
use mycelium_encoding::{ColumnState, Datum, DatumRef, Schema};
use mycelium_engine::{
    Background, Database, Durability, ErrorKind, Layout, LeveledOptions, Options, Policy, ReadOptions, ScanOptions,
    Snapshot, Table, TableOptions, ViewOptions,
};
use mycelium_vfs::MemoryDisk;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

pub(super) const ROWS: i64 = 20_000;

fn schema() -> Schema {
    Schema::parse("id int64 not null, kind utf8 not null, amount int64, note utf8, primary key (id)").unwrap()
}

/// A table of `id, kind, amount, note`, filled and compacted.
pub(super) fn table(layout: &str) -> (Database, Table) {
    let options = Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
    let database = Database::open("db", options).unwrap();
    let columns = ColumnSet::from_iter([1, 2, 3]);
    let options = TableOptions { layout: Some(Layout::parse(layout, &columns).unwrap()), ..TableOptions::default() };
    let table = database.create_typed_table("t", schema(), options).unwrap();
    for id in 0..ROWS {
        insert(&table, id, &format!("kind {}", id % 10), id * 2);
    }
    database.flush().unwrap();
    database.compact(&table).unwrap();
    (database, table)
}

pub(super) fn insert(table: &Table, id: i64, kind: &str, amount: i64) {
    let note = format!("note {id}");
    let row = [DatumRef::Int64(id), DatumRef::Utf8(kind), DatumRef::Int64(amount), DatumRef::Utf8(&note)];
    table.insert_row(&row, Durability::Buffered).unwrap();
}

/// How many rows pass, the sum of their amounts, and what was read.
fn scan(table: &Table, filter: Vec<ColumnTest>, snapshot: Option<&Snapshot>) -> (usize, i64, ReadCounters) {
    let options = ScanOptions {
        projection: Some(vec![2]),
        filter: Some(Filter { conjuncts: filter }),
        snapshot: snapshot.cloned(),
        ..ScanOptions::default()
    };
    let mut batches = table.scan_batches(options).unwrap();
    let (mut rows, mut sum) = (0, 0);
    for batch in batches.by_ref() {
        let batch = batch.unwrap();
        rows += batch.num_rows();
        sum += batch.column(0).as_primitive::<Int64Type>().iter().flatten().sum::<i64>();
    }
    (rows, sum, batches.counters())
}

pub(super) fn kind_is(kind: &str) -> ColumnTest {
    ColumnTest { column: 1, test: Test::Equal(Datum::Utf8(kind.into())) }
}

pub(super) const COLUMNAR: &str = "L0 tiered: * packed\nL1 leveled: * columnar";
/// Compactions once wrote rows under it: a group like level 0's counted as whole rows.
pub(super) const ENCODED: &str = "L0 tiered: * columnar\nL1 leveled: * columnar";
pub(super) const GROUPS: &str = "L0 tiered: * columnar\nL1 leveled: 1 columnar | 2 columnar | 3 columnar";

#[test]
fn untouched_blocks_pass_through_and_touched_keys_are_put_together() {
    for layout in [COLUMNAR, ENCODED, GROUPS] {
        let (_database, table) = table(layout);
        let all = ROWS * (ROWS - 1);
        let (rows, sum, counters) = scan(&table, vec![], None);
        assert_eq!((rows as i64, sum, counters.rows_passed_through as i64, counters.rows_merged), (ROWS, all, ROWS, 0));
        for id in (0..ROWS).step_by(1000) {
            table.patch_row(&[DatumRef::Int64(id)], &[("amount", DatumRef::Int64(-1))], Durability::Buffered).unwrap();
        }
        table.delete_row(&[DatumRef::Int64(7)], Durability::Buffered).unwrap();
        insert(&table, ROWS, "kind 0", 1);
        let (rows, sum, counters) = scan(&table, vec![], None);
        let patched: i64 = (0..ROWS).step_by(1000).map(|id| id * 2 + 1).sum();
        assert_eq!((rows as i64, sum), (ROWS, all - patched - 14 + 1), "{layout}");
        assert_eq!((counters.rows_merged, counters.rows_passed_through as i64), (22, ROWS - 21), "{layout}");
    }
}

/// Runs above the last one, too, where they are columnar: each of them up to the next key of another.
#[test]
fn runs_of_neighbouring_keys_pass_one_after_the_other() {
    for layout in [ENCODED, GROUPS] {
        let (database, table) = table(layout);
        let mut sum: i64 = ROWS * (ROWS - 1);
        for (ids, amount) in [(ROWS..2 * ROWS, 1), (2 * ROWS..3 * ROWS, 2)] {
            ids.for_each(|id| insert(&table, id, "late", amount));
            sum += ROWS * amount;
            database.flush().unwrap();
        }
        let check = |sum: i64, merged: u64, passed: i64| {
            let (rows, found, counters) = scan(&table, vec![], None);
            assert_eq!((rows as i64, found), (3 * ROWS, sum), "{layout}");
            // Where runs interleave, some of those that would be put together one by one are merged by their keys
            // instead.
            let many = (counters.rows_passed_through + counters.rows_interleaved) as i64;
            assert!(counters.rows_merged <= merged, "{layout}: {counters:?}");
            assert_eq!(counters.rows_merged as i64 + many, merged as i64 + passed, "{layout}: {counters:?}");
        };
        check(sum, 0, 3 * ROWS);
        // A run of rows that are in two older runs, of a patch of each, of a row that is deleted, and of a new one.
        insert(&table, 5, "kind 5", 0);
        insert(&table, ROWS + 5, "late", 0);
        for id in [7, ROWS + 7, 2 * ROWS + 7] {
            table.patch_row(&[DatumRef::Int64(id)], &[("amount", DatumRef::Int64(0))], Durability::Buffered).unwrap();
        }
        table.delete_row(&[DatumRef::Int64(9)], Durability::Buffered).unwrap();
        insert(&table, -1, "new", 0);
        sum -= 10 + 1 + 14 + 1 + 2 + 18;
        check(sum, 7, 3 * ROWS - 6);
        database.flush().unwrap();
        check(sum, 7, 3 * ROWS - 6);
        let passing = scan(&table, vec![kind_is("late")], None);
        assert_eq!((passing.0 as i64, passing.1), (2 * ROWS, 3 * ROWS - 4), "{layout}");
        database.compact(&table).unwrap();
        check(sum, 0, 3 * ROWS);
    }
}

#[test]
fn filters_are_decided_on_visible_rows() {
    for layout in [COLUMNAR, ENCODED, GROUPS] {
        let (database, table) = table(layout);
        let before = database.snapshot();
        let expected: i64 = (0..ROWS).filter(|id| id % 10 == 3).map(|id| id * 2).sum();
        let (rows, sum, _) = scan(&table, vec![kind_is("kind 3")], None);
        assert_eq!((rows as i64, sum), (ROWS / 10, expected));
        assert_eq!(scan(&table, vec![kind_is("kind 33")], None).0, 0);
        // A row that stops passing, one that begins to, and a new one.
        let patch = |id: i64, kind: &str| {
            table.patch_row(&[DatumRef::Int64(id)], &[("kind", DatumRef::Utf8(kind))], Durability::Buffered).unwrap();
        };
        patch(3, "kind 4");
        patch(4, "kind 3");
        insert(&table, -1, "kind 3", 5);
        let (rows, sum, counters) = scan(&table, vec![kind_is("kind 3")], None);
        assert_eq!((rows as i64, sum), (ROWS / 10 + 1, expected - 6 + 8 + 5), "{layout}");
        assert_eq!(counters.rows_merged, 3);
        let (rows, sum, _) = scan(&table, vec![kind_is("kind 3")], Some(&before));
        assert_eq!((rows as i64, sum), (ROWS / 10, expected), "the snapshot sees none of it");
        database.flush().unwrap();
        database.compact(&table).unwrap();
        let (rows, sum, counters) = scan(&table, vec![kind_is("kind 3")], Some(&before));
        assert_eq!((rows as i64, sum), (ROWS / 10, expected), "{layout}");
        assert!(counters.rows_merged > 0, "the blocks with versions that it does not see do not pass");
        drop(before);
    }
}

/// A snapshot keeps two versions of a key; where a block ends between them both were taken for rows.
#[test]
fn versions_of_a_key_in_two_blocks_were_two_rows() {
    let options = Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
    let database = Database::open("db", options).unwrap();
    let columns = ColumnSet::from_iter([1, 2, 3]);
    let layout = Some(Layout::parse(ENCODED, &columns).unwrap());
    let options = TableOptions { layout, block_size: 64, ..TableOptions::default() };
    let schema =
        Schema::parse("id int64 not null, kind utf8 not null, amount int64, note utf8, primary key (id)").unwrap();
    let table = database.create_typed_table("t", schema, options).unwrap();
    let long = "k".repeat(600);
    for id in 0..20 {
        insert(&table, id, &long, 1);
    }
    let before = database.snapshot();
    for id in 0..20 {
        insert(&table, id, &long, 100);
    }
    for moment in ["memtable", "level 0", "level 1"] {
        assert_eq!((scan(&table, vec![], None).0, scan(&table, vec![], None).1), (20, 2000), "{moment}");
        assert_eq!(
            (scan(&table, vec![], Some(&before)).0, scan(&table, vec![], Some(&before)).1),
            (20, 20),
            "{moment}"
        );
        database.flush().unwrap();
        if moment == "level 0" {
            database.compact(&table).unwrap();
        }
    }
}

#[test]
fn zones_rule_blocks_out() {
    let (_database, table) = table(COLUMNAR);
    let few = Test::Range { lower: Bound::Included(Datum::Int64(100)), upper: Bound::Excluded(Datum::Int64(120)) };
    let (rows, sum, counters) = scan(&table, vec![ColumnTest { column: 2, test: few }], None);
    assert_eq!((rows, sum), (10, (100..120).step_by(2).sum()));
    assert!(counters.blocks_skipped_by_zone > 10, "{counters:?}");
    assert!(
        (counters.rows_passed_through as i64) < ROWS / 10,
        "blocks that are ruled out are not looked at: {counters:?}"
    );
}

/// The newest version of a key, in a block that was ruled out, was passed over, and an older one in the next block,
/// which passes, was found.
#[test]
fn a_block_that_is_ruled_out_hides_older_versions_in_the_next_one() {
    const WANTED: i64 = 7;
    let options = Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
    let database = Database::open("db", options).unwrap();
    let layout = Layout::parse(COLUMNAR, &ColumnSet::from_iter([1, 2, 3])).unwrap();
    let options = TableOptions { layout: Some(layout), block_size: 64, ..TableOptions::default() };
    let table = database.create_typed_table("t", schema(), options).unwrap();
    let often = || (0..ROWS).step_by(307);
    let mut snapshots = Vec::new();
    for version in 0..12 {
        often().for_each(|id| insert(&table, id, "often", if version == 0 { WANTED } else { 1 }));
        snapshots.push(database.snapshot());
    }
    (0..ROWS).for_each(|id| insert(&table, id, "once", 1));
    database.compact(&table).unwrap();
    let wanted = || vec![ColumnTest { column: 2, test: Test::Equal(Datum::Int64(WANTED)) }];
    let (rows, _, counters) = scan(&table, wanted(), None);
    assert_eq!(rows, 0, "{counters:?}");
    assert!(counters.blocks_skipped_by_zone > 100, "{counters:?}");
    assert_eq!(scan(&table, wanted(), snapshots.first()).0, often().count());
}

/// A patch and the row below it lay in two blocks, each of which was ruled out, and the row that they make was not met.
#[test]
fn two_tests_rule_out_blocks_with_halves_of_a_row_that_passes_both() {
    const WANTED: i64 = 7;
    let options = Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
    let database = Database::open("db", options).unwrap();
    let layout = Layout::parse("L0 tiered: * columnar\nL1 leveled: * columnar", &ColumnSet::from_iter([1, 2, 3]));
    let options = TableOptions { layout: Some(layout.unwrap()), block_size: 64, ..TableOptions::default() };
    let table = database.create_typed_table("t", schema(), options).unwrap();
    let (no, yes) = (format!("no{}", "x".repeat(2000)), format!("yes{}", "x".repeat(2000)));
    (0..ROWS).for_each(|id| insert(&table, id, "no", 1));
    let halves = || (100..ROWS - 100).step_by(307);
    halves().for_each(|id| insert(&table, id, &no, WANTED));
    let _snapshot = database.snapshot();
    for id in halves() {
        table.patch_row(&[DatumRef::Int64(id)], &[("kind", DatumRef::Utf8(&yes))], Durability::Buffered).unwrap();
    }
    let wanted = || {
        let amount = ColumnTest { column: 2, test: Test::Equal(Datum::Int64(WANTED)) };
        vec![amount, kind_is(&yes)]
    };
    database.flush().unwrap();
    let (rows, _, counters) = scan(&table, wanted(), None);
    assert_eq!(rows, halves().count(), "{counters:?}");
    assert!(counters.blocks_skipped_by_zone > 100, "{counters:?}");
}

/// Blocks were read before their zones were asked.
#[test]
fn blocks_that_zones_rule_out_are_not_read() {
    let (database, table) = table(COLUMNAR);
    for id in ROWS..40 * ROWS {
        insert(&table, id, &format!("kind {}", id % 7), 2 * id);
    }
    database.compact(&table).unwrap();
    let of_ids = |from: i64, to: i64| {
        let between = Test::Range {
            lower: Bound::Included(Datum::Int64(2 * from)),
            upper: Bound::Excluded(Datum::Int64(2 * to)),
        };
        scan(&table, vec![ColumnTest { column: 2, test: between }], None)
    };
    let (from, to) = (30 * ROWS, 31 * ROWS);
    let expected = (ROWS as usize, (from..to).map(|id| 2 * id).sum());
    let (rows, sum, few) = of_ids(from, to);
    assert_eq!((rows, sum), expected);
    // What is younger than the blocks, in memory and in a file, is found among those that are ruled out.
    insert(&table, 5 * ROWS, "new", 2 * from);
    database.flush().unwrap();
    table
        .patch_row(&[DatumRef::Int64(9 * ROWS)], &[("amount", DatumRef::Int64(2 * from))], Durability::Buffered)
        .unwrap();
    table.delete_row(&[DatumRef::Int64(from)], Durability::Buffered).unwrap();
    let (rows, sum, _) = of_ids(from, to);
    assert_eq!((rows, sum), (expected.0 + 1, expected.1 + 2 * from));
    let (rows, _, all) = scan(&table, vec![], None);
    assert_eq!(rows as i64, 40 * ROWS - 1);
    assert!(few.bytes_read * 3 < all.bytes_read, "{few:?} {all:?}");
}

#[test]
fn range_deletes_and_key_bounds_cut_stretches() {
    for layout in [COLUMNAR, ENCODED, GROUPS] {
        let (database, table) = table(layout);
        let key = |id: i64| table.row_key(&[DatumRef::Int64(id)]).unwrap();
        table.delete_range(&key(1000), &key(2000), Durability::Buffered).unwrap();
        insert(&table, 1500, "kind 0", 1);
        for flushed in [false, true] {
            let options = ScanOptions {
                projection: Some(vec![2]),
                lower: Bound::Included(vec![Datum::Int64(500)]),
                upper: Bound::Excluded(vec![Datum::Int64(2500)]),
                ..ScanOptions::default()
            };
            let rows: usize = table.scan_batches(options).unwrap().map(|batch| batch.unwrap().num_rows()).sum();
            assert_eq!(rows, 1001, "{layout}, flushed: {flushed}");
            database.flush().unwrap();
        }
        let row = table.get_row(&[DatumRef::Int64(1500)], Some(&[1]), &ReadOptions::default()).unwrap();
        assert_eq!(row, Some(vec![Datum::Utf8("kind 0".into())]));
        assert_eq!(table.get_row(&[DatumRef::Int64(1501)], None, &ReadOptions::default()).unwrap(), None);
    }
}

/// A scan past the last file of the columnar run once found no run that has its columns.
/// What the last compaction did: entries handed out, and those of them whose values stayed encoded.
fn compacted(database: &Database, table: &Table) -> (u64, u64) {
    let figures = || {
        let metrics = database.metrics();
        (metrics.compaction_entries.entries_out, metrics.compaction_entries_encoded)
    };
    let before = figures();
    database.compact(table).unwrap();
    let after = figures();
    (after.0 - before.0, after.1 - before.1)
}

/// Of columns alone all stay encoded; where rows come down to columns, those stay that nothing younger or older meets.
#[test]
fn compactions_leave_values_encoded() {
    let rows = ROWS as u64;
    for layout in [ENCODED, COLUMNAR, GROUPS] {
        let (database, table) = table(layout);
        let before = scan(&table, vec![kind_is("kind 3")], None);
        let snapshot = database.snapshot();
        for id in 0..ROWS / 2 {
            insert(&table, id, "kind of the younger run", 1);
        }
        table.delete_row(&[DatumRef::Int64(ROWS - 1)], Durability::Buffered).unwrap();
        database.flush().unwrap();
        let groups = if layout == GROUPS { 3 } else { 1 };
        let (entries, untouched) = (groups * (rows + rows / 2 + 1), groups * (rows - rows / 2 - 1));
        // The snapshot keeps the older versions and the tombstone. What younger rows lie over is looked at.
        let encoded = if layout == ENCODED { entries } else { untouched };
        assert_eq!(compacted(&database, &table), (entries, encoded), "{layout}");
        let old = scan(&table, vec![kind_is("kind 3")], Some(&snapshot));
        assert_eq!((old.0, old.1), (before.0, before.1), "{layout}");
        drop(snapshot);
        // A patch is folded with its row, which must be put together; what lies beside them need not.
        table.patch_row(&[DatumRef::Int64(5)], &[("amount", DatumRef::Int64(7))], Durability::Buffered).unwrap();
        database.flush().unwrap();
        let (entries, encoded) = compacted(&database, &table);
        assert_eq!(encoded, entries - 1, "{layout}");
        let (found, sum, _) = scan(&table, vec![], None);
        let older: i64 = (ROWS / 2..ROWS - 1).map(|id| id * 2).sum();
        assert_eq!((found as i64, sum), (ROWS - 1, older + ROWS / 2 + 6), "{layout}");
        assert_eq!(scan(&table, vec![kind_is("kind of the younger run")], None).0 as i64, ROWS / 2, "{layout}");
        database.verify(|_, _| ()).unwrap().into_result().unwrap();
    }
}

#[test]
fn partial_aggregates_need_the_values() {
    let (database, table) = table(ENCODED);
    let wanted = ViewOptions {
        name: "by_kind".into(),
        group_by: vec!["kind".into()],
        aggregates: vec!["count(*)".into(), "sum(amount)".into()],
    };
    database.create_view(&table, &wanted).unwrap();
    insert(&table, 1, "kind 1", 5);
    database.flush().unwrap();
    assert_eq!(compacted(&database, &table), (ROWS as u64, 0));
}

#[test]
fn rows_past_all_files_were_an_error() {
    for layout in [COLUMNAR, ENCODED, GROUPS] {
        let (_database, table) = table(layout);
        insert(&table, 2 * ROWS, "new", 5);
        let lower = Bound::Included(vec![Datum::Int64(ROWS)]);
        let options = ScanOptions { projection: Some(vec![2, 0]), lower, ..ScanOptions::default() };
        let rows: usize = table.scan_batches(options).unwrap().map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(rows, 1, "{layout}");
    }
}

/// Rows of each part between these cuts.
fn rows_between(table: &Table, cuts: &[Vec<Datum>]) -> Vec<usize> {
    let lowers = std::iter::once(Bound::Unbounded).chain(cuts.iter().cloned().map(Bound::Included));
    let uppers = cuts.iter().cloned().map(Bound::Excluded).chain([Bound::Unbounded]);
    let rows = |(lower, upper)| {
        let options = ScanOptions { projection: Some(Vec::new()), lower, upper, ..ScanOptions::default() };
        table.scan_batches(options).unwrap().map(|batch| batch.unwrap().num_rows()).sum()
    };
    lowers.zip(uppers).map(rows).collect()
}

/// A row at the upper bound came along if a younger run had a patch of it, and was then in two parts of a scan.
#[test]
fn a_patch_at_the_upper_bound_does_not_take_its_row_along() {
    for (layout, step) in [(ENCODED, 10), (ENCODED, 1), (GROUPS, 10)] {
        let (database, table) = table(layout);
        for id in (0..ROWS).step_by(step) {
            let changes = [("amount", DatumRef::Int64(-1))];
            table.patch_row(&[DatumRef::Int64(id)], &changes, Durability::Buffered).unwrap();
        }
        database.flush().unwrap();
        for cut in [10, 500, 505, 5000] {
            let upper = Bound::Excluded(vec![Datum::Int64(cut)]);
            let options = ScanOptions { projection: Some(vec![0, 2]), upper, ..ScanOptions::default() };
            let rows: usize = table.scan_batches(options).unwrap().map(|batch| batch.unwrap().num_rows()).sum();
            assert_eq!(rows as i64, cut, "{layout}, every {step}th patched");
        }
        let cuts: Vec<_> = (1..20).map(|n| vec![Datum::Int64(n * 1000)]).collect();
        assert_eq!(rows_between(&table, &cuts), vec![1000; 20], "{layout}, every {step}th patched");
    }
}

#[test]
fn one_file_is_cut_between_its_blocks_into_parts_of_about_as_many_rows() {
    let (_database, table) = table("L0 tiered: * packed\nL1 leveled: * columnar");
    for parts in 1..=6 {
        let cuts = table.split_points(parts, None, None).unwrap();
        assert_eq!(cuts.len(), parts - 1);
        let rows = rows_between(&table, &cuts);
        assert_eq!(rows.iter().sum::<usize>(), ROWS as usize);
        let share = ROWS as usize / parts;
        assert!(rows.iter().all(|rows| rows.abs_diff(share) < share / 3), "{parts} parts: {rows:?}");
    }
    let key = |id| table.row_key(&[DatumRef::Int64(id)]).unwrap();
    let cuts = table.split_points(2, Some(&key(10_000)), Some(&key(16_000))).unwrap();
    assert!(matches!(&cuts[..], [cut] if matches!(cut[..], [Datum::Int64(12_000..14_000)])), "{cuts:?}");
}

/// All that was written lately was in one part, which took many times as long as the others: of memtables nothing was
/// known, and of files only their bytes.
#[test]
fn rows_that_are_merged_one_by_one_weigh_more_than_those_in_columns() {
    let (database, table) = table("L0 tiered: * packed\nL1 leveled: * columnar");
    for id in ROWS..ROWS + ROWS / 4 {
        insert(&table, id, "new", id);
    }
    for place in ["in the memtable", "in a file"] {
        let cuts = table.split_points(4, None, None).unwrap();
        let rows = rows_between(&table, &cuts);
        assert_eq!(rows.iter().sum::<usize>(), (ROWS + ROWS / 4) as usize);
        assert!(rows.len() == 4 && rows[0] > ROWS as usize, "{place}: {rows:?}");
        assert!(rows[1..].iter().all(|&rows| rows < (ROWS / 8) as usize), "{place}: {rows:?}");
        database.flush().unwrap();
    }
}

#[test]
fn what_lies_between_blocks_need_not_be_a_key_to_cut_there() {
    let options = Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
    let database = Database::open("db", options).unwrap();
    let layout = Layout::parse("L0 tiered: * packed\nL1 leveled: * columnar", &ColumnSet::from_iter([3])).unwrap();
    let options = TableOptions { layout: Some(layout), ..TableOptions::default() };
    let text = "name utf8 not null, price decimal(9, 2) not null, day date32 not null, note utf8, primary key (name, price, day)";
    let table = database.create_typed_table("t", Schema::parse(text).unwrap(), options).unwrap();
    for row in 0..ROWS as i32 {
        let name = format!("{}é\0{}", "name ".repeat(row as usize % 3), row % 500);
        let price = DatumRef::Decimal128(i128::from(row % 7 - 3) * 333_333_333);
        let row =
            [DatumRef::Utf8(&name), price, DatumRef::Date32(row), DatumRef::Utf8("as long as it is to fill blocks")];
        table.insert_row(&row, Durability::Buffered).unwrap();
    }
    database.flush().unwrap();
    database.compact(&table).unwrap();
    let cuts = table.split_points(5, None, None).unwrap();
    let rows = rows_between(&table, &cuts);
    assert!(rows.len() == 5 && rows.iter().sum::<usize>() == ROWS as usize, "{rows:?} between {cuts:?}");
    assert!(rows.iter().all(|&rows| rows > 2000), "{rows:?} between {cuts:?}");
}

/// An empty table.
fn create(schema: &str, layout: &str, levels: LeveledOptions) -> (Database, Table) {
    let options = Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
    let database = Database::open("db", options).unwrap();
    let schema = Schema::parse(schema).unwrap();
    let layout = Some(Layout::parse(layout, &schema.value_columns()).unwrap());
    let options = TableOptions { layout, policy: Policy::Leveled(levels), ..TableOptions::default() };
    let table = database.create_typed_table("t", schema, options).unwrap();
    (database, table)
}

/// A file begins with a whole key, and what lies between its blocks has a first column alone, which lies before that:
/// parts from and to such cuts had rows in common.
#[test]
fn cuts_ascend_where_files_begin_within_a_first_column() {
    let schema = "tenant int64 not null, name utf8 not null, note utf8, primary key (tenant, name)";
    let levels = LeveledOptions { target_file_size: 16 << 10, ..LeveledOptions::default() };
    let (database, table) = create(schema, "L0 tiered: * packed\nL1 leveled: * packed", levels);
    for half in 0..2_u64 {
        for row in (half..5_000).step_by(2) {
            let name = format!("{row:06}");
            let note: String = (0..4).map(|n| format!("{:016x}", mix(4 * row + n))).collect();
            let row = [DatumRef::Int64(1), DatumRef::Utf8(&name), DatumRef::Utf8(&note)];
            table.insert_row(&row, Durability::Buffered).unwrap();
        }
        database.flush().unwrap();
    }
    database.compact(&table).unwrap();
    let cuts = table.split_points(8, None, None).unwrap();
    assert!(cuts.len() > 2 && cuts.windows(2).all(|pair| pair[0] < pair[1]), "{cuts:?}");
    assert_eq!(rows_between(&table, &cuts).iter().sum::<usize>(), 5_000, "between {cuts:?}");
}

/// They counted as files without entries, so that whoever asked concluded that there are no rows.
#[test]
fn columnar_files_of_keys_alone_count() {
    for layout in [COLUMNAR, ENCODED] {
        let (database, table) = create("id int64 not null, primary key (id)", layout, LeveledOptions::default());
        for id in 0..10 {
            table.insert_row(&[DatumRef::Int64(id)], Durability::Buffered).unwrap();
        }
        database.flush().unwrap();
        assert_eq!(table.extent(None, None).entries, 10, "{layout}");
        database.compact(&table).unwrap();
        assert_eq!(table.extent(None, None).entries, 10, "{layout}, compacted");
    }
}

/// Patches of columns that are tested, read, both or neither, beside values that are null and texts, which are not
/// overwritten.
#[test]
fn patched_rows_of_filtered_blocks_are_decided_by_themselves() {
    let below = |amount| {
        let upper = Bound::Excluded(Datum::Int64(amount));
        ColumnTest { column: 2, test: Test::Range { lower: Bound::Unbounded, upper } }
    };
    for layout in [COLUMNAR, ENCODED, GROUPS] {
        let (database, table) = table(layout);
        let mut model: Vec<(String, Option<i64>)> =
            (0..ROWS).map(|id| (format!("kind {}", id % 10), Some(id * 2))).collect();
        let check = |model: &[(String, Option<i64>)]| {
            for (kind, limit) in
                [(None, Some(9_000)), (Some("kind 3"), None), (Some("kind 3"), Some(9_000)), (None, None)]
            {
                let tests = kind.map(kind_is).into_iter().chain(limit.map(below)).collect();
                let passes = |(of, amount): &&(String, Option<i64>)| {
                    kind.is_none_or(|kind| kind == of)
                        && limit.is_none_or(|limit| amount.is_some_and(|amount| amount < limit))
                };
                let (rows, sum, counters) = scan(&table, tests, None);
                let passing: Vec<_> = model.iter().filter(passes).collect();
                let expected: i64 = passing.iter().filter_map(|(_, amount)| *amount).sum();
                assert_eq!((rows, sum), (passing.len(), expected), "{layout}: {kind:?}, {limit:?}");
                assert!(counters.rows_merged < ROWS as u64 / 4, "{layout}: {counters:?}");
            }
        };
        for round in 0..6 {
            // Every key gets three patches, of one column or of several.
            for id in (round % 2..ROWS).step_by(23) {
                let (kind, amount) = (format!("kind {}", (id + round) % 4), (id + round) * 7 % 20_000);
                let row = &mut model[id as usize];
                let choice = (id + round * (id % 2)) % 5;
                let change = match choice {
                    0 => ("note", DatumRef::Utf8("changed")),
                    1 => ("amount", DatumRef::Null),
                    2 => ("kind", DatumRef::Utf8(&kind)),
                    _ => ("amount", DatumRef::Int64(amount)),
                };
                match choice {
                    0 => {}
                    1 => row.1 = None,
                    2 => row.0.clone_from(&kind),
                    _ => row.1 = Some(amount),
                }
                table.patch_row(&[DatumRef::Int64(id)], &[change], Durability::Buffered).unwrap();
            }
            check(&model);
            if round == 3 {
                database.flush().unwrap();
                check(&model);
            }
        }
        database.compact(&table).unwrap();
        check(&model);
    }
}

#[test]
fn memtables_and_files_of_patches_of_other_columns_take_no_part() {
    for layout in [COLUMNAR, GROUPS] {
        let (database, table) = table(layout);
        let all = ROWS * (ROWS - 1);
        let check = |sum: i64, searched: bool, context: &str| {
            let (rows, found, counters) = scan(&table, vec![], None);
            let found = (rows as i64, found, counters.memtables_searched > 0);
            assert_eq!(found, (ROWS, sum, searched), "{layout}: {context}");
        };
        let patch = |id: i64, change: (&str, DatumRef<'_>)| {
            table.patch_row(&[DatumRef::Int64(id)], &[change], Durability::Buffered).unwrap();
        };
        (0..ROWS).step_by(3).for_each(|id| patch(id, ("note", DatumRef::Utf8("changed"))));
        check(all, false, "patches of a column that is not read");
        let tests = |note: &str| vec![ColumnTest { column: 3, test: Test::Equal(Datum::Utf8(note.into())) }];
        assert_eq!(scan(&table, tests("changed"), None).0 as i64, (ROWS + 2) / 3, "{layout}: a column that is tested");
        let snapshot = database.snapshot();
        patch(3, ("amount", DatumRef::Int64(0)));
        check(all - 6, true, "a patch of it");
        assert_eq!(scan(&table, vec![], Some(&snapshot)).1, all);
        drop(snapshot);
        database.flush().unwrap();
        check(all - 6, false, "the same in a file");
        patch(4, ("note", DatumRef::Utf8("changed")));
        database.flush().unwrap();
        check(all - 6, false, "another file");
        assert_eq!(scan(&table, tests("changed"), None).0 as i64, (ROWS + 2) / 3 + 1);
        patch(5, ("note", DatumRef::Utf8("changed")));
        table.delete_row(&[DatumRef::Int64(5)], Durability::Buffered).unwrap();
        insert(&table, ROWS, "new", 10);
        check(all - 6, true, "a row that is deleted, and another for it");
    }
}

/// What files say something of was forgotten when the database was opened anew, and unknown of what compactions wrote:
/// all of their patches were read by scans of other columns.
#[test]
fn files_of_patches_of_other_columns_take_no_part_however_they_came() {
    let disk = Arc::new(MemoryDisk::new());
    let open = || {
        let options = Options { disk: disk.clone(), background: Background::Manual, ..Options::default() };
        Database::open("db", options).unwrap()
    };
    let database = open();
    let columns = ColumnSet::from_iter([1, 2, 3]);
    let layout = "L0 tiered: * packed\nL1 tiered: * packed\nL2 leveled: * columnar";
    let options = TableOptions {
        layout: Some(Layout::parse(layout, &columns).unwrap()),
        policy: Policy::Leveled(LeveledOptions {
            level0_trigger: 2,
            base_level_bytes: 256 << 10,
            ..LeveledOptions::default()
        }),
        ..TableOptions::default()
    };
    let table = database.create_typed_table("t", schema(), options).unwrap();
    for part in 0..20 {
        (0..ROWS).filter(|id| id % 20 == part).for_each(|id| insert(&table, id, "kind", id * 2));
        database.flush().unwrap();
        database.wait_idle().unwrap();
    }
    database.compact(&table).unwrap();
    let blocks = |table: &Table, sum: i64| {
        let (rows, found, counters) = scan(table, vec![], None);
        assert_eq!((rows as i64, found), (ROWS, sum));
        counters.blocks_read + counters.block_cache_hits
    };
    let (all, files) = (ROWS * (ROWS - 1), |database: &Database, level: usize| {
        let metrics = database.metrics();
        metrics.tables[0].levels.iter().filter(|of| of.level == level).map(|of| of.files).sum::<usize>()
    });
    let patch = |table: &Table, column: &str, value: DatumRef<'_>, start: i64| {
        for id in (start..ROWS).step_by(3) {
            table.patch_row(&[DatumRef::Int64(id)], &[(column, value)], Durability::Buffered).unwrap();
        }
    };
    let few = blocks(&table, all);
    patch(&table, "note", DatumRef::Utf8("changed"), 0);
    database.flush().unwrap();
    assert_eq!((files(&database, 0), blocks(&table, all)), (1, few));
    drop((table, database));
    let database = open();
    let table = database.table("t").unwrap();
    assert_eq!(blocks(&table, all), few, "opened anew");
    patch(&table, "kind", DatumRef::Utf8("other"), 1);
    database.flush().unwrap();
    database.wait_idle().unwrap();
    assert_eq!((files(&database, 0), files(&database, 1)), (0, 1), "{:?}", database.metrics().tables);
    assert_eq!(blocks(&table, all), few, "compacted");
    patch(&table, "amount", DatumRef::Int64(0), 0);
    database.flush().unwrap();
    let changed = (0..ROWS).step_by(3).map(|id| id * 2).sum::<i64>();
    assert!(blocks(&table, all - changed) > few, "its own column");
    database.compact(&table).unwrap();
    assert_eq!(blocks(&table, all - changed), few, "all of it compacted");
}

/// Every scan of changed rows read the same files above from the disk again, and checked their blocks, beside columnar
/// runs whose blocks were in the cache. Where these would have to make room they are not kept.
#[test]
fn blocks_above_columnar_runs_stay_in_the_cache_if_there_is_room() {
    for (cache_bytes, stay) in [(64 << 20, true), (128 << 10, false)] {
        let disk = Arc::new(MemoryDisk::new());
        let open = || {
            let options = Options { disk: disk.clone(), background: Background::Manual, ..Options::default() };
            Database::open("db", Options { cache_bytes, ..options }).unwrap()
        };
        let database = open();
        let layout = Layout::parse(COLUMNAR, &ColumnSet::from_iter([1, 2, 3])).unwrap();
        let options = TableOptions { layout: Some(layout), ..TableOptions::default() };
        let table = database.create_typed_table("t", schema(), options).unwrap();
        (0..ROWS).for_each(|id| insert(&table, id, "kind", id * 2));
        database.flush().unwrap();
        database.compact(&table).unwrap();
        for id in (0..ROWS).step_by(2) {
            table.patch_row(&[DatumRef::Int64(id)], &[("amount", DatumRef::Int64(0))], Durability::Buffered).unwrap();
        }
        database.flush().unwrap();
        drop((table, database));
        let database = open();
        let table = database.table("t").unwrap();
        let sum = (1..ROWS).step_by(2).map(|id| id * 2).sum::<i64>();
        for turn in 0..3 {
            let (rows, found, counters) = scan(&table, vec![], None);
            assert_eq!((rows as i64, found), (ROWS, sum));
            assert_eq!(counters.blocks_read == 0, stay && turn > 0, "{turn} with {cache_bytes}: {counters:?}");
        }
    }
}

/// A key between two of the block, patches of one key in several places, and patches that a run and the memtables have
/// side by side end stretches or not; what is read is the same.
#[test]
fn patches_of_several_ages_are_written_over_one_another() {
    for (seed, layout) in [COLUMNAR, ENCODED, GROUPS].into_iter().cycle().take(9).enumerate() {
        let mut rng = SmallRng::seed_from_u64(seed as u64);
        let (database, table) = table(layout);
        let mut model: BTreeMap<i64, Option<i64>> = (0..ROWS).map(|id| (id, Some(id * 2))).collect();
        // Gaps, to insert into.
        for id in (0..ROWS).step_by(50) {
            table.delete_row(&[DatumRef::Int64(id)], Durability::Buffered).unwrap();
            model.remove(&id);
        }
        database.flush().unwrap();
        database.compact(&table).unwrap();
        for round in 0..4 {
            for _ in 0..ROWS / 10 {
                // A few keys often, so that they have several patches.
                let id = if rng.random_bool(0.3) { rng.random_range(0..200) } else { rng.random_range(0..ROWS) };
                let amount = rng.random_bool(0.9).then(|| rng.random_range(0..50_000));
                let value = amount.map_or(DatumRef::Null, DatumRef::Int64);
                let patch = |changes: &[(&str, DatumRef<'_>)]| {
                    table.patch_row(&[DatumRef::Int64(id)], changes, Durability::Buffered).unwrap();
                };
                match (rng.random_range(0..100), model.contains_key(&id)) {
                    (0, true) => {
                        table.delete_row(&[DatumRef::Int64(id)], Durability::Buffered).unwrap();
                        model.remove(&id);
                        continue;
                    }
                    (1..10, true) => patch(&[("note", DatumRef::Utf8("changed")), ("amount", value)]),
                    (_, true) => patch(&[("amount", value)]),
                    (0..10, false) => insert(&table, id, "kind 1", amount.unwrap_or(0)),
                    (_, false) => continue,
                }
                let amount = if model.contains_key(&id) { amount } else { Some(amount.unwrap_or(0)) };
                model.insert(id, amount);
            }
            check_amounts(&table, &model, &format!("{layout}, seed {seed}, round {round}"));
            if round % 2 == 0 {
                database.flush().unwrap();
                check_amounts(&table, &model, &format!("{layout}, seed {seed}, round {round}, flushed"));
            }
        }
    }
}

/// That all rows, and those with an amount below a bound, are what the model has; in batches of any size, and up to a
/// limit.
fn check_amounts(table: &Table, model: &BTreeMap<i64, Option<i64>>, context: &str) {
    let upper = Bound::Excluded(Datum::Int64(20_000));
    let below = ColumnTest { column: 2, test: Test::Range { lower: Bound::Unbounded, upper } };
    for (batch_rows, limit, tests) in
        [(8192, None, vec![]), (100, None, vec![]), (8192, Some(3333), vec![]), (1000, None, vec![below])]
    {
        let is_tested = !tests.is_empty();
        let filter = Some(Filter { conjuncts: tests });
        let options = ScanOptions { projection: Some(vec![0, 2]), batch_rows, limit, filter, ..ScanOptions::default() };
        let mut found = Vec::new();
        for batch in table.scan_batches(options).unwrap() {
            let batch = batch.unwrap();
            let of = |column: usize| batch.column(column).as_primitive::<Int64Type>().iter();
            found.extend(of(0).zip(of(1)).map(|(id, amount)| (id.unwrap(), amount)));
        }
        let passes = |(_, amount): &(&i64, &Option<i64>)| !is_tested || amount.is_some_and(|amount| amount < 20_000);
        let expected = model.iter().filter(passes).map(|(id, amount)| (*id, *amount));
        let expected: Vec<_> = expected.take(limit.unwrap_or(u64::MAX) as usize).collect();
        assert!(found == expected, "{context}, batches of {batch_rows}, limit {limit:?}, tested {is_tested}");
    }
}

/// Lookups in several groups go on together; the search ended at the range delete of a group's file, before that file's
/// own row, which is newer, was seen: the row then lacked its other groups.
#[test]
fn a_row_newer_than_the_range_delete_beside_it_lacked_its_other_groups() {
    let (database, table) = table(GROUPS);
    let _snapshot = database.snapshot();
    let id = [DatumRef::Int64(4711)];
    let key = table.row_key(&id).unwrap();
    table.delete_range(&key, &[0xff; 9], Durability::Buffered).unwrap();
    insert(&table, 4711, "again", 1);
    database.flush().unwrap();
    database.compact(&table).unwrap();
    let row = table.get_row(&id, None, &ReadOptions::default()).unwrap().expect("the row");
    assert_eq!(row[1..3], [Datum::Utf8("again".into()), Datum::Int64(1)]);
    assert!(table.get_row(&[DatumRef::Int64(4712)], None, &ReadOptions::default()).unwrap().is_none());
}

/// A scan for keys alone took a column of whichever run was the smallest, be it a few rows above a level where that
/// column has the largest files of all.
#[test]
fn keys_alone_are_read_from_the_files_with_the_fewest_bytes() {
    let disk = Arc::new(MemoryDisk::new());
    let options = Options { disk, cache_bytes: 0, background: Background::Manual, ..Options::default() };
    let database = Database::open("db", options).unwrap();
    let layout = "L0 tiered: * packed\nL1 leveled: * columnar\nL2 leveled: 1 columnar | 2 columnar | 3 columnar";
    let policy = LeveledOptions {
        level0_trigger: 2,
        level_count: 3,
        base_level_bytes: 16 << 10,
        target_file_size: 8 << 10,
        ..LeveledOptions::default()
    };
    let options = TableOptions {
        layout: Some(Layout::parse(layout, &ColumnSet::from_iter([1, 2, 3])).unwrap()),
        policy: Policy::Leveled(policy),
        ..TableOptions::default()
    };
    let schema = "id int64 not null, kind utf8 not null, amount int64, note utf8, primary key (id)";
    let table = database.create_typed_table("t", Schema::parse(schema).unwrap(), options).unwrap();
    let mut rng = SmallRng::seed_from_u64(1);
    let mut fill = |ids: std::ops::Range<i64>| {
        for id in ids {
            let kind: String = (0..6).map(|_| format!("{:032x}", rng.random::<u128>())).collect();
            insert(&table, id, &kind, rng.random());
        }
        database.flush().unwrap();
    };
    let settle = || while database.step().unwrap() {};
    [0..1000, 1000..2000, 2000..3000].into_iter().for_each(&mut fill);
    settle();
    database.compact(&table).unwrap();
    [3000..3015, 3015..3030].into_iter().for_each(&mut fill);
    settle();
    let bytes_read = |column: usize| {
        let options = ScanOptions { projection: Some(vec![column]), ..ScanOptions::default() };
        let mut batches = table.scan_batches(options).unwrap();
        assert_eq!(batches.by_ref().map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 3030);
        batches.counters().bytes_read
    };
    let (keys, kinds) = (bytes_read(0), bytes_read(1));
    assert!(keys * 3 < kinds, "{keys} bytes for the keys, {kinds} for the widest column");
}

/// Notes are all different and much alike: they lie compressed, and are tested, patched and read as if they did not.
#[test]
fn compressed_texts_are_filtered_and_read_like_others() {
    for layout in [COLUMNAR, ENCODED, GROUPS] {
        let (database, table) = table(layout);
        let mut model: BTreeMap<i64, String> = (0..ROWS).map(|id| (id, format!("note {id}"))).collect();
        let check = |model: &BTreeMap<i64, String>, context: &str| {
            let tests = [
                Test::Equal(Datum::Utf8("note 777".into())),
                Test::NotEqual(Datum::Utf8("note 777".into())),
                Test::Prefix(b"note 19".to_vec()),
                Test::Range { lower: Bound::Excluded(Datum::Utf8("note 5".into())), upper: Bound::Unbounded },
                Test::In(vec![Datum::Utf8("no note".into()), Datum::Utf8("note 12".into())]),
            ];
            for test in tests {
                let passes = |note: &&String| test.passes(ColumnState::Value(DatumRef::Utf8(note)));
                let expected = model.values().filter(passes).count();
                let (rows, ..) = scan(&table, vec![ColumnTest { column: 3, test: test.clone() }], None);
                assert_eq!(rows, expected, "{layout}, {context}: {test:?}");
            }
            for id in [0, 12, 777, ROWS - 1] {
                let row = table.get_row(&[DatumRef::Int64(id)], Some(&[3]), &ReadOptions::default()).unwrap();
                assert_eq!(row.unwrap(), [Datum::Utf8(model[&id].clone())], "{layout}, {context}");
            }
            let all = table.scan_batches(ScanOptions { projection: Some(vec![3]), ..ScanOptions::default() }).unwrap();
            let found = all.flat_map(|batch| {
                let batch = batch.unwrap();
                let notes = batch.column(0).as_string::<i32>().iter().map(|note| note.unwrap().to_owned());
                notes.collect::<Vec<_>>()
            });
            assert!(found.eq(model.values().cloned()), "{layout}, {context}");
        };
        check(&model, "compacted");
        for id in [12, 777, 1900] {
            let note = "no note".to_owned();
            table.patch_row(&[DatumRef::Int64(id)], &[("note", DatumRef::Utf8(&note))], Durability::Buffered).unwrap();
            model.insert(id, note);
        }
        check(&model, "patched");
        database.flush().unwrap();
        database.compact(&table).unwrap();
        check(&model, "compacted again");
    }
}

/// The second copy had the value from before the patch.
#[test]
fn a_column_that_is_asked_for_twice_is_patched_in_both_places() {
    let (_database, table) = table("L0 tiered: * packed\nL1 leveled: * columnar");
    for id in (0..ROWS).step_by(7) {
        table.patch_row(&[DatumRef::Int64(id)], &[("amount", DatumRef::Int64(-id))], Durability::Buffered).unwrap();
    }
    let options = ScanOptions { projection: Some(vec![2, 0, 2]), ..ScanOptions::default() };
    let mut rows = 0;
    for batch in table.scan_batches(options).unwrap() {
        let batch = batch.unwrap();
        let column = |at: usize| batch.column(at).as_primitive::<Int64Type>().values();
        for row in 0..batch.num_rows() {
            let (id, first, second) = (column(1)[row], column(0)[row], column(2)[row]);
            let expected = if id % 7 == 0 { -id } else { id * 2 };
            assert_eq!((first, second), (expected, expected), "row {id}");
        }
        rows += batch.num_rows();
    }
    assert_eq!(rows as i64, ROWS);
}

/// Whether such a test passed depended on how the file at hand kept its texts.
#[test]
fn a_filter_whose_value_is_not_of_the_columns_type_is_refused() {
    let (_database, table) = table("L0 tiered: * packed\nL1 leveled: * columnar");
    for (column, test) in [
        (1, Test::NotEqual(Datum::Binary(b"kind 1".to_vec()))),
        (2, Test::Equal(Datum::Int32(4))),
        (2, Test::In(vec![Datum::Int64(4), Datum::Utf8("4".into())])),
        (2, Test::Prefix(b"4".to_vec())),
        (0, Test::Range { lower: Bound::Excluded(Datum::Float64(1.0)), upper: Bound::Unbounded }),
    ] {
        let filter = Some(Filter { conjuncts: vec![ColumnTest { column, test: test.clone() }] });
        let refused = table.scan_batches(ScanOptions { filter, ..ScanOptions::default() });
        assert_eq!(refused.map(drop).unwrap_err().kind(), ErrorKind::InvalidArgument, "{test:?}");
    }
}

/// Nothing shorter comes after such a value than the value itself: its block's zone keeps all of it.
#[test]
fn zones_of_values_of_the_greatest_bytes_rule_out_nothing_that_passes() {
    const GREATEST: &str = "\u{10ffff}";
    let schema = "id int64 not null, bytes binary, text utf8, primary key (id)";
    let (database, table) = create(schema, "L0 tiered: * packed\nL1 leveled: * columnar", LeveledOptions::default());
    // Blocks of values that a zone cuts, of such that it cannot cut, and of both.
    let bytes_of = |id: i64| match id / 100 {
        0 => vec![0xff; 60 + id as usize % 20],
        1 => [&[0xff; 70][..], &id.to_be_bytes()].concat(),
        _ => [&id.to_be_bytes()[7..], &[0xff; 80]].concat(),
    };
    let text_of = |id: i64| match id / 100 {
        0 => GREATEST.repeat(15 + id as usize % 5),
        1 => format!("{}{id}", GREATEST.repeat(17)),
        _ => format!("{id}{}", GREATEST.repeat(20)),
    };
    for id in 0..300 {
        let (bytes, text) = (bytes_of(id), text_of(id));
        let row = [DatumRef::Int64(id), DatumRef::Binary(&bytes), DatumRef::Utf8(&text)];
        table.insert_row(&row, Durability::Buffered).unwrap();
    }
    database.compact(&table).unwrap();
    let matching = |column: usize, test: Test| -> Vec<i64> {
        let filter = Some(Filter { conjuncts: vec![ColumnTest { column, test }] });
        let options = ScanOptions { projection: Some(vec![0]), filter, ..ScanOptions::default() };
        let batches = table.scan_batches(options).unwrap().map(Result::unwrap);
        batches.flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
    };
    let from = |value: Datum| Test::Range { lower: Bound::Included(value), upper: Bound::Unbounded };
    for id in (0..300).step_by(7) {
        let (bytes, text) = (bytes_of(id), text_of(id));
        let ids = |passes: &dyn Fn(i64) -> bool| (0..300).filter(|id| passes(*id)).collect::<Vec<i64>>();
        let (binary, utf8) = (Datum::Binary(bytes.clone()), Datum::Utf8(text.clone()));
        assert_eq!(matching(1, Test::Equal(binary.clone())), ids(&|id| bytes_of(id) == bytes), "{id}");
        assert_eq!(matching(1, from(binary)), ids(&|id| bytes_of(id) >= bytes), "{id}");
        assert_eq!(matching(1, Test::Prefix(bytes.clone())), ids(&|id| bytes_of(id).starts_with(&bytes)), "{id}");
        assert_eq!(matching(2, Test::Equal(utf8.clone())), ids(&|id| text_of(id) == text), "{id}");
        assert_eq!(matching(2, from(utf8)), ids(&|id| text_of(id) >= text), "{id}");
    }
}
