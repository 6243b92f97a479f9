//! Tables of keys alone, whose files have no columns: they have the keys that a set would have, whatever the layout is.

use std::collections::BTreeSet;

use mycelium_base::{ColumnSet, ReadCounters, RowFormatKind};
use mycelium_encoding::{DatumRef, Schema};
use mycelium_engine::{
    Database, Durability, Layout, LeveledOptions, Policy, ReadOptions, RowFormatDefinition, ScanOptions, Table,
    TableOptions,
};
use mycelium_vfs::MemoryDisk;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::common::{assert_verified, small_options};

const KEYS: i64 = 1_500;

fn open(kind: RowFormatKind, layout: &str) -> (Database, Table) {
    let database = Database::open("/db", small_options(&MemoryDisk::new())).unwrap();
    let options = TableOptions {
        policy: Policy::Leveled(LeveledOptions {
            level0_trigger: 2,
            base_level_bytes: 2 << 10,
            target_file_size: 1 << 10,
            fanout: 2.0,
            level_count: 4,
            ..LeveledOptions::default()
        }),
        block_size: 256,
        row_format: RowFormatDefinition { kind, ..RowFormatDefinition::default() },
        layout: Some(Layout::parse(layout, &ColumnSet::new()).unwrap()),
        ..TableOptions::default()
    };
    let schema = Schema::parse("id int64 not null, primary key (id)").unwrap();
    let table = database.create_typed_table("t", schema, options).unwrap();
    (database, table)
}

fn key(table: &Table, id: i64) -> Vec<u8> {
    table.row_key(&[DatumRef::Int64(id)]).unwrap()
}

fn insert(table: &Table, id: i64) {
    table.insert_row(&[DatumRef::Int64(id)], Durability::Buffered).unwrap();
}

/// The keys of a table, walked forwards, each with the row that a point read gives.
fn walked(table: &Table, options: &ReadOptions) -> Vec<Vec<u8>> {
    let mut rows = table.iter(options).unwrap();
    let mut found = Vec::new();
    rows.seek_to_first().unwrap();
    while rows.valid() {
        let row = table.get_with(rows.key(), options, &mut ReadCounters::default()).unwrap();
        assert_eq!(row.as_deref(), Some(rows.value()));
        found.push(rows.key().to_vec());
        rows.next().unwrap();
    }
    found
}

fn check(table: &Table, ids: &BTreeSet<i64>, options: &ReadOptions) {
    let expected: Vec<Vec<u8>> = ids.iter().map(|&id| key(table, id)).collect();
    assert_eq!(walked(table, options), expected);
    let mut rows = table.iter(options).unwrap();
    let mut backwards = Vec::new();
    rows.seek_to_last().unwrap();
    while rows.valid() {
        backwards.push(rows.key().to_vec());
        rows.prev().unwrap();
    }
    backwards.reverse();
    assert_eq!(backwards, expected);
    let scan = ScanOptions { snapshot: options.snapshot.clone(), ..ScanOptions::default() };
    let scanned: usize = table.scan_batches(scan).unwrap().map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(scanned, expected.len());
    for id in (0..KEYS).step_by(7) {
        let row = table.get_with(&key(table, id), options, &mut ReadCounters::default()).unwrap();
        assert_eq!(row.is_some(), ids.contains(&id), "{id}");
    }
}

/// Deletes were dropped above the rows that they delete, and levels were given files over those that they had: their
/// files seemed to have nothing in common.
#[test]
fn keys_alone_are_a_set_under_every_layout() {
    let layouts = [
        (RowFormatKind::Packed, "L0 tiered: * packed\nL1 leveled: * packed"),
        (RowFormatKind::Packed, "L0 tiered: * packed\nL1 leveled: * columnar"),
        (RowFormatKind::Packed, "L0 tiered: * columnar\nL1 leveled: * columnar"),
        (RowFormatKind::Packed, "L0-1 tiered: * packed\nL2 tiered: * columnar\nL3 leveled: * columnar"),
        (RowFormatKind::Packed, "L0 tiered: * packed\nL1-2 two-phase: * columnar\nL3 leveled: * packed"),
        (RowFormatKind::Json, "L0 tiered: * json\nL1 leveled: * packed"),
        (RowFormatKind::Json, "L0-1 tiered: * json\nL2 leveled: * columnar"),
    ];
    for (seed, (kind, layout)) in (0..).zip(layouts) {
        println!("{kind:?}, {layout}");
        let (database, table) = open(kind, layout);
        let mut rng = SmallRng::seed_from_u64(seed);
        let (mut ids, mut snapshots, mut deepest) = (BTreeSet::new(), Vec::new(), 0);
        for step in 1..=1_200 {
            let id = rng.random_range(0..KEYS);
            match rng.random_range(0..24) {
                0 => {
                    let end = id + rng.random_range(1..60);
                    table.delete_range(&key(&table, id), &key(&table, end), Durability::Buffered).unwrap();
                    ids.retain(|known| !(id..end).contains(known));
                }
                1..=5 => {
                    table.delete_row(&[DatumRef::Int64(id)], Durability::Buffered).unwrap();
                    ids.remove(&id);
                }
                6 | 7 => database.flush().unwrap(),
                8..=10 => {
                    database.step().unwrap();
                }
                11 if step % 5 == 0 => {
                    let (from, to) = (key(&table, id), key(&table, id + 100));
                    database.compact_range(&table, Some(&from), Some(&to)).unwrap();
                }
                12 if snapshots.len() < 3 => snapshots.push((database.snapshot(), ids.clone())),
                12 => drop(snapshots.remove(0)),
                _ => {
                    for id in [id, (id * 7 + 3) % KEYS, (id * 11 + 5) % KEYS] {
                        insert(&table, id);
                        ids.insert(id);
                    }
                }
            }
            if step % 60 == 0 {
                check(&table, &ids, &ReadOptions::default());
                for (snapshot, ids) in &snapshots {
                    check(&table, ids, &ReadOptions::at(snapshot));
                }
                let metrics = database.metrics();
                let filled = metrics.tables.iter().flat_map(|table| &table.levels).filter(|level| level.files > 0);
                deepest = filled.map(|level| level.level).max().unwrap_or(0).max(deepest);
            }
        }
        assert!(deepest >= 2, "level {deepest}");
        drop(snapshots);
        while database.step().unwrap() {}
        check(&table, &ids, &ReadOptions::default());
        database.compact(&table).unwrap();
        check(&table, &ids, &ReadOptions::default());
        assert_verified(&database);
    }
}

#[test]
fn range_deletes_of_keys_alone_were_passed_over_by_scans() {
    let (database, table) = open(RowFormatKind::Packed, "L0 tiered: * packed\nL1 leveled: * columnar");
    (0..10).for_each(|id| insert(&table, id));
    database.compact(&table).unwrap();
    table.delete_range(&key(&table, 3), &key(&table, 5), Durability::Os).unwrap();
    let left: BTreeSet<i64> = (0..10).filter(|id| !(3..5).contains(id)).collect();
    check(&table, &left, &ReadOptions::default());
}

/// What a walk gave was the row as the first place had it, which was taken for a packed one.
#[test]
fn rows_of_keys_alone_were_given_in_the_format_of_where_they_lay() {
    let (database, table) = open(RowFormatKind::Json, "L0 tiered: * json\nL1 leveled: * packed");
    insert(&table, 1);
    database.compact(&table).unwrap();
    insert(&table, 2);
    check(&table, &BTreeSet::from([1, 2]), &ReadOptions::default());
}

/// Two groups without columns would each have every row.
#[test]
fn a_level_of_keys_alone_has_one_group() {
    let parse = |text: &str| Layout::parse(text, &ColumnSet::new());
    assert!(parse("L0 tiered: * packed\nL1 leveled: * packed").is_ok());
    let refused = parse("L0 tiered: * packed\nL1 leveled: * packed | * columnar").unwrap_err();
    assert!(refused.to_string().contains("level 1"), "{refused}");
}
