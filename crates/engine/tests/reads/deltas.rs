//! What files and a settled part of a memtable change in the blocks below, which scans find out once and keep, is what
//! a model has: the first time and again, at every snapshot, under whatever is younger, and when some of it is gone.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use mycelium_encoding::page::{ColumnTest, Filter, Test};
use mycelium_encoding::{Datum, DatumRef, Schema};
use mycelium_engine::{
    Background, Database, Durability, Layout, LeveledOptions, Options, Policy, ReadCounters, ScanOptions, Snapshot,
    Table, TableOptions,
};
use mycelium_vfs::MemoryDisk;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use crate::whole_rows::{delete, delete_range};

const SCHEMA: &str =
    "id int64 not null, a int32 not null, b int64 not null, c int32 not null, d int64 not null, primary key (id)";
const NAMES: [&str; 5] = ["id", "a", "b", "c", "d"];
const LAYOUTS: [&str; 4] = [
    "L0 tiered: * packed\nL1 leveled: * columnar",
    "L0 tiered: * packed\nL1 leveled: 1-2 columnar | 3 columnar | 4 columnar",
    "L0 tiered: * columnar\nL1 leveled: 1 columnar | 2-4 columnar",
    "L0 tiered: * packed\nL1 leveled: * columnar\nL2 leveled: 1-2 columnar | 3-4 columnar\nL3 leveled: 1-2 columnar | \
     3-4 columnar",
];

/// The columns outside the key.
type Row = [i64; 4];
type Model = BTreeMap<i64, Row>;

fn create(layout: &str, block_size: usize, cache_bytes: u64) -> (Database, Table) {
    let disk = Arc::new(MemoryDisk::new());
    let options = Options { disk, cache_bytes, background: Background::Manual, ..Options::default() };
    let database = Database::open("db", options).unwrap();
    let schema = Schema::parse(SCHEMA).unwrap();
    let layout = Some(Layout::parse(layout, &schema.value_columns()).unwrap());
    // Three levels of columns for some hundred rows.
    let policy = Policy::Leveled(LeveledOptions {
        level0_trigger: 2,
        level_count: 4,
        base_level_bytes: 4 << 10,
        target_file_size: 2 << 10,
        fanout: 3.0,
        ..LeveledOptions::default()
    });
    let options = TableOptions { layout, block_size, policy, ..TableOptions::default() };
    let table = database.create_typed_table("t", schema, options).unwrap();
    (database, table)
}

fn datum(column: usize, value: i64) -> DatumRef<'static> {
    if column.is_multiple_of(2) { DatumRef::Int64(value) } else { DatumRef::Int32(value as i32) }
}

fn insert(table: &Table, model: &mut Model, id: i64, rng: &mut SmallRng) {
    // Wider ones now and then: a delta has values of one width.
    let row: Row = std::array::from_fn(|column| match column % 2 {
        1 if rng.random_bool(0.02) => rng.random_range(i64::MIN..i64::MAX),
        _ => rng.random_range(-1000..1000),
    });
    let mut cells = vec![DatumRef::Int64(id)];
    cells.extend((1..5).map(|column| datum(column, row[column - 1])));
    table.insert_row(&cells, Durability::Buffered).unwrap();
    model.insert(id, row);
}

fn patch(table: &Table, model: &mut Model, id: i64, rng: &mut SmallRng) {
    let columns: &[usize] = [&[1][..], &[1, 2], &[3], &[2, 3, 4], &[4]][rng.random_range(0..5)];
    let value = rng.random_range(-1000..1000);
    let changes: Vec<_> = columns.iter().map(|&column| (NAMES[column], datum(column, value))).collect();
    table.patch_row(&[DatumRef::Int64(id)], &changes, Durability::Buffered).unwrap();
    if let Some(row) = model.get_mut(&id) {
        columns.iter().for_each(|&column| row[column - 1] = value);
    }
}

fn value(batch: &RecordBatch, place: usize, column: usize, row: usize) -> i64 {
    match column % 2 {
        0 => batch.column(place).as_primitive::<Int64Type>().value(row),
        _ => i64::from(batch.column(place).as_primitive::<Int32Type>().value(row)),
    }
}

/// A test of a column, and between which values it is.
type Within = (usize, i64, i64);

fn test_of((column, from, to): Within) -> ColumnTest {
    let value = |value: i64| if column.is_multiple_of(2) { Datum::Int64(value) } else { Datum::Int32(value as i32) };
    let test = Test::Range { lower: Bound::Included(value(from)), upper: Bound::Excluded(value(to)) };
    ColumnTest { column, test }
}

/// A random scan gives the rows that the model has; what it read.
fn check(table: &Table, snapshot: Option<&Snapshot>, model: &Model, rng: &mut SmallRng, context: &str) -> ReadCounters {
    // Few projections, so that most of them come again.
    let mut projection =
        [vec![1], vec![0, 1, 2], vec![1, 2, 3, 4], vec![4, 0], vec![3, 3]][rng.random_range(0..5)].clone();
    if rng.random_bool(0.1) {
        projection.shuffle(rng);
    }
    let most = model.last_key_value().map_or(10, |(last, _)| last + 1);
    let (from, to) = match rng.random_bool(0.6) {
        true => (None, None),
        false => (Some(rng.random_range(0..most / 2)), Some(rng.random_range(most / 2..most + 5))),
    };
    let bound = |id: i64| vec![Datum::Int64(id)];
    let limit = rng.random_bool(0.2).then(|| rng.random_range(1000..1_000_000));
    let tests: Vec<Within> = match rng.random_range(0..10) {
        0 => vec![(1, -200, 200)],
        1 => vec![(2, -500, 900), (3, -1000, 0)],
        2 => vec![(0, most / 3, most / 3 * 2), (4, -900, 5000)],
        3 => vec![(3, 990, 1000)],
        4 => vec![(0, most / 2, most / 2 + 9)],
        _ => Vec::new(),
    };
    let options = ScanOptions {
        filter: (!tests.is_empty()).then(|| Filter { conjuncts: tests.iter().map(|&test| test_of(test)).collect() }),
        projection: Some(projection.clone()),
        lower: from.map_or(Bound::Unbounded, |id| Bound::Included(bound(id))),
        upper: to.map_or(Bound::Unbounded, |id| Bound::Excluded(bound(id))),
        snapshot: snapshot.cloned(),
        batch_rows: [1, 7, 100, 8192][rng.random_range(0..4)],
        limit,
        ..ScanOptions::default()
    };
    let context = format!("{context}, {options:?}");
    let rows = model.range(from.unwrap_or(i64::MIN)..to.unwrap_or(i64::MAX));
    let passes = |id: &i64, row: &Row| {
        let value = |column: usize| if column == 0 { *id } else { row[column - 1] };
        tests.iter().all(|&(column, from, to)| (from..to).contains(&value(column)))
    };
    let rows = rows.filter(|(id, row)| passes(id, row));
    let mut expected = rows.take(limit.map_or(usize::MAX, |limit| limit as usize));
    let mut scan = table.scan_batches(options).unwrap();
    for batch in scan.by_ref() {
        let batch = batch.unwrap();
        for row in 0..batch.num_rows() {
            let (id, cells) = expected.next().unwrap_or_else(|| panic!("more rows: {context}"));
            for (place, &column) in projection.iter().enumerate() {
                let cell = if column == 0 { *id } else { cells[column - 1] };
                assert_eq!(value(&batch, place, column, row), cell, "{id}, column {column}: {context}");
            }
        }
    }
    assert_eq!(expected.next(), None, "{context}");
    scan.counters()
}

/// A cache that keeps all deltas, some, and none.
const CACHES: [u64; 3] = [64 << 20, 20_000, 0];

/// One random write, behind the last of the blocks, too: of all how many are no patches, and of these, how many are no
/// new rows.
fn write(table: &Table, model: &mut Model, keys: i64, (rare, rarer): (f64, f64), rng: &mut SmallRng) {
    let id = rng.random_range(-3..keys + 3);
    match (rng.random_bool(rare), rng.random_bool(rarer)) {
        (false, _) => patch(table, model, id, rng),
        (true, false) => insert(table, model, id, rng),
        (true, true) => delete(table, model, id),
    }
}

/// A history of writes, flushes and compactions, with scans of several moments after each; what they read.
fn scans_of_a_history(seed: u64) -> ReadCounters {
    let mut rng = SmallRng::seed_from_u64(seed);
    let (layout, cache_bytes) = (LAYOUTS[seed as usize % 4], CACHES[seed as usize / 4 % 3]);
    let (database, table) = create(layout, [256, 1024, 65536][seed as usize % 3], cache_bytes);
    let (mut model, mut moments, mut reads) = (Model::new(), Vec::new(), ReadCounters::default());
    let keys = [300, 3000][rng.random_range(0..2)];
    for id in (0..keys).step_by(2) {
        insert(&table, &mut model, id, &mut rng);
    }
    database.flush().unwrap();
    database.compact(&table).unwrap();
    let shares = ([0.0, 0.02, 0.5][rng.random_range(0..3)], [0.05, 0.5][rng.random_range(0..2)]);
    for round in 0..6 {
        for _ in 0..rng.random_range(1..keys / 4) {
            write(&table, &mut model, keys, shares, &mut rng);
        }
        if seed % 8 == 7 && round == 4 {
            delete_range(&table, &mut model, keys / 3..keys / 3 + 9);
        }
        moments.push((database.snapshot(), model.clone()));
        if rng.random_bool(0.7) {
            database.flush().unwrap();
        }
        match rng.random_range(0..10) {
            0 => database.compact(&table).unwrap(),
            1..4 => database.wait_idle().unwrap(),
            _ => {}
        }
        for (age, (snapshot, model)) in moments.iter().enumerate() {
            for number in 0..8 {
                let context = format!("seed {seed}, {layout}, round {round}, moment {age}, scan {number}");
                reads += check(&table, Some(snapshot), model, &mut rng, &context);
            }
        }
        if moments.len() > 3 {
            moments.remove(rng.random_range(0..moments.len()));
        }
    }
    reads
}

#[test]
fn what_files_change_is_the_models_whatever_is_younger() {
    let mut reads = [ReadCounters::default(); 3];
    (0..48).for_each(|seed| reads[seed as usize / 4 % 3] += scans_of_a_history(seed));
    let [kept, some, none] = reads.map(|reads| (reads.block_deltas_found, reads.block_deltas_reused));
    assert!(kept.1 > 1000 && 2 * kept.1 > kept.0 && some.1 > 100 && none.0 > 1000, "{kept:?}, {some:?}, {none:?}");
    assert_eq!(none.1, 0, "they are kept in the cache");
}

/// The file before a block was another than when the block's delta was found out, and ended with another key.
#[test]
fn a_delta_was_taken_for_that_of_a_block_behind_another_gap() {
    assert!(scans_of_a_history(384).block_deltas_reused > 0);
}

/// A memtable of many entries, of which scans settle a part, and again when more were inserted.
#[test]
fn what_a_settled_memtable_changes_is_the_models_while_it_grows() {
    for seed in 0..4 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (database, table) = create(LAYOUTS[seed as usize % 2], 8192, 64 << 20);
        let (mut model, keys) = (Model::new(), 40_000);
        for id in (0..keys).step_by(2) {
            insert(&table, &mut model, id, &mut rng);
        }
        database.flush().unwrap();
        database.compact(&table).unwrap();
        let write = |model: &mut Model, rng: &mut SmallRng, count: i64| {
            (0..count).for_each(|_| write(&table, model, keys, (0.15, 0.3), rng));
        };
        write(&mut model, &mut rng, 3000);
        database.flush().unwrap();
        write(&mut model, &mut rng, 12_000);
        let (old, old_model) = (database.snapshot(), model.clone());
        let mut reads = ReadCounters::default();
        for round in 0..12 {
            for number in 0..4 {
                reads += check(&table, None, &model, &mut rng, &format!("seed {seed}, round {round}, scan {number}"));
            }
            check(&table, Some(&old), &old_model, &mut rng, &format!("seed {seed}, round {round}, old"));
            write(&mut model, &mut rng, [10, 1000, 5000, 9000, 40_000][round % 5]);
            if round == 9 {
                database.flush().unwrap();
            }
        }
        assert!(reads.block_deltas_reused > 100, "seed {seed}: {reads:?}");
    }
}
