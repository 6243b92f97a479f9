//! Scans of columnar levels under whole rows that are younger, new ones and such as replace others, are those of a
//! model at every snapshot: in any projection, with filters, limits, bounds and batches of any size.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use mycelium_encoding::page::{ColumnTest, Filter, Test};
use mycelium_encoding::{Datum, DatumRef, Schema, TextArrays};
use mycelium_engine::{
    Background, Database, Durability, FilterPlan, Layout, Options, ScanOptions, Snapshot, Table, TableOptions,
};
use mycelium_vfs::MemoryDisk;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use crate::whole_rows::{delete, delete_range};

const SCHEMA: &str = "id int64 not null, a int32 not null, b int64 not null, c int16 not null, d int32, name utf8 not \
                      null, flag bool not null, primary key (id)";
const LAYOUTS: [&str; 3] = [
    "L0 tiered: * packed\nL1 leveled: 1-2 columnar | 3-6 columnar",
    "L0 tiered: * packed\nL1 leveled: * columnar",
    "L0 tiered: * columnar\nL1 leveled: 1 columnar | 2-6 columnar",
];
const COLUMNS: usize = 7;
/// Keys lie between 0 and this.
const KEYS: i64 = 3000;

type Row = [Datum; COLUMNS];
type Model = BTreeMap<i64, Row>;

/// An empty table of this layout.
fn create(layout: &str, block_size: usize) -> (Database, Table) {
    let options = Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
    let database = Database::open("db", options).unwrap();
    let schema = Schema::parse(SCHEMA).unwrap();
    let layout = Some(Layout::parse(layout, &schema.value_columns()).unwrap());
    let options = TableOptions { layout, block_size, ..TableOptions::default() };
    let table = database.create_typed_table("t", schema, options).unwrap();
    (database, table)
}

fn drawn(id: i64, rng: &mut SmallRng) -> Row {
    [
        Datum::Int64(id),
        Datum::Int32(rng.random_range(-50..50)),
        Datum::Int64(rng.random_range(-1_000_000..1_000_000)),
        Datum::Int16(rng.random_range(-9..9)),
        if rng.random_bool(0.9) { Datum::Int32(rng.random_range(0..100)) } else { Datum::Null },
        Datum::Utf8("n".repeat(rng.random_range(0..6))),
        Datum::Bool(rng.random_bool(0.5)),
    ]
}

fn insert(table: &Table, model: &mut Model, id: i64, rng: &mut SmallRng) {
    let row = drawn(id, rng);
    let cells: Vec<DatumRef<'_>> = row.iter().map(Datum::borrowed).collect();
    table.insert_row(&cells, Durability::Buffered).unwrap();
    model.insert(id, row);
}

/// One random write to the table and the model: mostly a whole row.
fn write(table: &Table, model: &mut Model, rng: &mut SmallRng) {
    let id = rng.random_range(0..KEYS);
    match rng.random_range(0..1000) {
        0 => {
            let to = (id + rng.random_range(1..20)).min(KEYS);
            delete_range(table, model, id..to);
        }
        1..80 => {
            delete(table, model, id);
        }
        80..250 => patch(table, model, rng),
        _ => insert(table, model, id, rng),
    }
}

/// Changes some columns of a row, if it is there.
fn patch(table: &Table, model: &mut Model, rng: &mut SmallRng) {
    let id = rng.random_range(0..KEYS);
    let row = drawn(id, rng);
    let columns: &[usize] = [&[1][..], &[1, 2], &[3], &[2, 3, 4], &[5], &[6]][rng.random_range(0..6)];
    let name = |column: usize| ["id", "a", "b", "c", "d", "name", "flag"][column];
    let changes: Vec<_> = columns.iter().map(|&column| (name(column), row[column].borrowed())).collect();
    table.patch_row(&[DatumRef::Int64(id)], &changes, Durability::Buffered).unwrap();
    // A patch of a row that is not there is nothing.
    if let Some(old) = model.get_mut(&id) {
        columns.iter().for_each(|&column| old[column] = row[column].clone());
    }
}

fn cell(batch: &RecordBatch, place: usize, column: usize, row: usize) -> Datum {
    let array = batch.column(place);
    if array.is_null(row) {
        return Datum::Null;
    }
    match column {
        0 | 2 => Datum::Int64(array.as_primitive::<Int64Type>().value(row)),
        3 => Datum::Int16(array.as_primitive::<Int16Type>().value(row)),
        5 => Datum::Utf8(match array.as_string_view_opt() {
            Some(views) => views.value(row).to_owned(),
            None => array.as_string::<i32>().value(row).to_owned(),
        }),
        6 => Datum::Bool(array.as_boolean().value(row)),
        _ => Datum::Int32(array.as_primitive::<Int32Type>().value(row)),
    }
}

/// What a test is of, and within which bounds its values are.
type Within = (usize, i64, i64);

fn test_of((column, from, to): Within) -> ColumnTest {
    let value = |value: i64| match column {
        0 | 2 => Datum::Int64(value),
        3 => Datum::Int16(value as i16),
        _ => Datum::Int32(value as i32),
    };
    let test = Test::Range { lower: Bound::Included(value(from)), upper: Bound::Excluded(value(to)) };
    ColumnTest { column, test }
}

fn passes(row: &Row, (column, from, to): Within) -> bool {
    match row[column] {
        Datum::Int64(value) => (from..to).contains(&value),
        Datum::Int32(value) => (from..to).contains(&i64::from(value)),
        Datum::Int16(value) => (from..to).contains(&i64::from(value)),
        _ => false,
    }
}

/// A random scan gives the rows that the model has.
fn check(table: &Table, snapshot: &Snapshot, model: &Model, rng: &mut SmallRng, context: &str) {
    let keys = model.last_key_value().map_or(KEYS, |(last, _)| last + 1);
    // Texts and booleans are put between others in another way.
    let mut projection: Vec<usize> = (0..if rng.random_bool(0.5) { COLUMNS } else { 5 }).collect();
    projection.shuffle(rng);
    projection.truncate(rng.random_range(1..=projection.len()));
    let tests: Vec<Within> = match rng.random_range(0..6) {
        0 => vec![(1, -20, 20)],
        1 => vec![(0, 500, 2500), (2, -1_000_000, 500_000)],
        2 => vec![(3, 0, 4), (1, -40, 40)],
        3 => vec![(0, 700, 720)],
        _ => Vec::new(),
    };
    let (from, to) = match rng.random_bool(0.5) {
        true => (0, keys),
        false => (rng.random_range(0..keys / 2), rng.random_range(keys / 2..keys)),
    };
    let limit = rng.random_bool(0.3).then(|| rng.random_range(0..KEYS as u64));
    let filter_plan = [FilterPlan::Automatic, FilterPlan::MergeFirst, FilterPlan::FilterFirst][rng.random_range(0..3)];
    let options = ScanOptions {
        projection: Some(projection.clone()),
        lower: Bound::Included(vec![Datum::Int64(from)]),
        upper: Bound::Excluded(vec![Datum::Int64(to)]),
        snapshot: Some(snapshot.clone()),
        batch_rows: [1, 7, 100, 8192][rng.random_range(0..4)],
        limit,
        filter: (!tests.is_empty()).then(|| Filter { conjuncts: tests.iter().map(|&test| test_of(test)).collect() }),
        filter_plan,
        texts: [TextArrays::Plain, TextArrays::Views][rng.random_range(0..2)],
        batch_bytes: [64 << 20, 100][rng.random_range(0..2)],
        ..ScanOptions::default()
    };
    let context = format!("{context}, {options:?}");
    let most = limit.map_or(usize::MAX, |limit| limit as usize);
    let rows = model.range(from..to).map(|(_, row)| row);
    let mut expected = rows.filter(|row| tests.iter().all(|&test| passes(row, test))).take(most);
    for batch in table.scan_batches(options).unwrap() {
        let batch = batch.unwrap();
        for row in 0..batch.num_rows() {
            let found: Vec<Datum> =
                projection.iter().enumerate().map(|(place, &column)| cell(&batch, place, column, row)).collect();
            let row = expected.next().map(|row| projection.iter().map(|&column| row[column].clone()).collect());
            assert_eq!(Some(found), row, "{context}");
        }
    }
    assert_eq!(expected.next(), None, "{context}");
}

#[test]
fn scans_among_new_rows_are_the_models_at_every_snapshot() {
    for (seed, layout) in LAYOUTS.into_iter().cycle().take(18).enumerate() {
        let mut rng = SmallRng::seed_from_u64(seed as u64);
        let (database, table) = create(layout, [512, 4096, 65536][seed % 3]);
        let (mut model, mut moments) = (Model::new(), Vec::new());
        // Every third key lies below.
        for id in (0..KEYS).step_by(3) {
            insert(&table, &mut model, id, &mut rng);
        }
        database.flush().unwrap();
        database.compact(&table).unwrap();
        for round in 0..6 {
            // Few of them lie far apart.
            for _ in 0..[3, 20, 200, 1500][rng.random_range(0..4)] {
                write(&table, &mut model, &mut rng);
            }
            moments.push((database.snapshot(), model.clone()));
            if rng.random_bool(0.5) {
                database.flush().unwrap();
            }
            for (age, (snapshot, model)) in moments.iter().enumerate() {
                for number in 0..12 {
                    let context = format!("{layout}, seed {seed}, round {round}, moment {age}, scan {number}");
                    check(&table, snapshot, model, &mut rng, &context);
                }
            }
            if moments.len() > 2 {
                moments.remove(rng.random_range(0..moments.len()));
            }
        }
    }
}

/// Under a columnar level 0 patches lie in columnar runs, some of which have others for the same rows.
#[test]
fn scans_under_columnar_runs_of_patches_are_the_models_at_every_snapshot() {
    for seed in 0..12 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (database, table) = create(LAYOUTS[2], [512, 4096, 65536][seed as usize % 3]);
        let (mut model, mut moments) = (Model::new(), Vec::new());
        for id in (0..KEYS).step_by(2) {
            insert(&table, &mut model, id, &mut rng);
        }
        database.flush().unwrap();
        database.compact(&table).unwrap();
        // Of how many rows one is replaced, new or gone; of the others columns are changed.
        let rare = [usize::MAX, 100, 10][seed as usize / 3 % 3];
        for round in 0..4 {
            for number in 0..rng.random_range(50..800) {
                match number % rare == rare - 1 {
                    true => write(&table, &mut model, &mut rng),
                    false => patch(&table, &mut model, &mut rng),
                }
            }
            moments.push((database.snapshot(), model.clone()));
            if rng.random_bool(0.8) {
                database.flush().unwrap();
            }
            for (age, (snapshot, model)) in moments.iter().enumerate() {
                for number in 0..12 {
                    let context = format!("seed {seed}, round {round}, moment {age}, scan {number}");
                    check(&table, snapshot, model, &mut rng, &context);
                }
            }
        }
    }
}

/// Stretches of thousands of rows are appended in pieces between them.
#[test]
fn scans_among_few_rows_that_are_new_or_gone_are_the_models() {
    for (seed, layout) in LAYOUTS.into_iter().cycle().take(9).enumerate() {
        let mut rng = SmallRng::seed_from_u64(seed as u64);
        let (database, table) = create(layout, 1 << 18);
        let mut model = Model::new();
        for id in (0..12_000).step_by(2) {
            insert(&table, &mut model, id, &mut rng);
        }
        database.flush().unwrap();
        database.compact(&table).unwrap();
        for round in 0..4 {
            for _ in 0..rng.random_range(1..3) {
                let id = rng.random_range(0..12_000);
                match rng.random_bool(0.3) {
                    true => delete(&table, &mut model, id),
                    false => insert(&table, &mut model, id, &mut rng),
                }
            }
            if rng.random_bool(0.5) {
                database.flush().unwrap();
            }
            for number in 0..8 {
                let context = format!("{layout}, seed {seed}, round {round}, scan {number}");
                check(&table, &database.snapshot(), &model, &mut rng, &context);
            }
        }
    }
}

/// The deleted row's text filled the batch, and a batch without rows was taken for the end.
#[test]
fn a_scan_ended_where_the_only_row_of_a_batch_was_deleted() {
    let options = Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
    let database = Database::open("db", options).unwrap();
    let schema = Schema::parse(SCHEMA).unwrap();
    let layout = Some(Layout::parse(LAYOUTS[1], &schema.value_columns()).unwrap());
    let table = database.create_typed_table("t", schema, TableOptions { layout, ..TableOptions::default() }).unwrap();
    let mut rng = SmallRng::seed_from_u64(1);
    for id in 0..1000 {
        let mut row = drawn(id, &mut rng);
        // Behind many in one batch, so that stretches are taken, some that fill one each.
        row[5] = Datum::Utf8("text".repeat(if id < 900 { 1 } else { 3000 }));
        let cells: Vec<DatumRef<'_>> = row.iter().map(Datum::borrowed).collect();
        table.insert_row(&cells, Durability::Buffered).unwrap();
    }
    database.flush().unwrap();
    database.compact(&table).unwrap();
    for id in (1..1000).step_by(100) {
        table.delete_row(&[DatumRef::Int64(id)], Durability::Buffered).unwrap();
    }
    for texts in [TextArrays::Plain, TextArrays::Views] {
        for batch_bytes in [50, 1000, 10_000] {
            let options = ScanOptions { texts, batch_bytes, ..ScanOptions::default() };
            let rows = table.scan_batches(options).unwrap().map(|batch| batch.unwrap().num_rows());
            assert_eq!(rows.sum::<usize>(), 1000 - 10, "{texts:?}, {batch_bytes} bytes");
        }
    }
}

/// What patches change is found out once for all stretches without nulls, and does not hold where there are some.
#[test]
fn patches_reach_blocks_with_nulls_behind_such_without() {
    let options = Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
    let database = Database::open("db", options).unwrap();
    let schema = Schema::parse(SCHEMA).unwrap();
    let layout = Some(Layout::parse(LAYOUTS[0], &schema.value_columns()).unwrap());
    let options = TableOptions { layout, block_size: 512, ..TableOptions::default() };
    let table = database.create_typed_table("t", schema, options).unwrap();
    let (mut rng, mut expected) = (SmallRng::seed_from_u64(1), Vec::new());
    for id in 0..2000 {
        let mut row = drawn(id, &mut rng);
        // None, some, and none again.
        row[4] = if (700..1300).contains(&id) && id % 3 == 0 { Datum::Null } else { Datum::Int32(id as i32) };
        let cells: Vec<DatumRef<'_>> = row.iter().map(Datum::borrowed).collect();
        table.insert_row(&cells, Durability::Buffered).unwrap();
        expected.push(row[4].clone());
    }
    database.flush().unwrap();
    database.compact(&table).unwrap();
    for id in (0..2000).step_by(15) {
        let change = [("d", DatumRef::Int32(-1))];
        table.patch_row(&[DatumRef::Int64(id)], &change, Durability::Buffered).unwrap();
        expected[id as usize] = Datum::Int32(-1);
    }
    let options = ScanOptions { projection: Some(vec![4]), ..ScanOptions::default() };
    let batches = table.scan_batches(options).unwrap().map(Result::unwrap);
    let found = batches.flat_map(|batch| (0..batch.num_rows()).map(|row| cell(&batch, 0, 4, row)).collect::<Vec<_>>());
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

/// The stretch ended at the patch, behind the row of the memtable, and the row of the file came after both.
#[test]
fn a_new_row_of_a_file_came_behind_one_of_the_memtable_before_the_same_row() {
    let (database, table) = create(LAYOUTS[2], 4096);
    let (mut rng, mut model) = (SmallRng::seed_from_u64(1), Model::new());
    let put = |model: &mut Model, rng: &mut SmallRng, id: i64| insert(&table, model, id, rng);
    (0..100).for_each(|id| put(&mut model, &mut rng, 10 * id));
    database.flush().unwrap();
    database.compact(&table).unwrap();
    [41, 42, 71, 991].into_iter().for_each(|id| put(&mut model, &mut rng, id));
    database.flush().unwrap();
    put(&mut model, &mut rng, 43);
    for id in [45, 46] {
        table.patch_row(&[DatumRef::Int64(id)], &[("a", DatumRef::Int32(1))], Durability::Buffered).unwrap();
    }
    let options = ScanOptions { projection: Some(vec![0]), ..ScanOptions::default() };
    let batches = table.scan_batches(options).unwrap().map(Result::unwrap);
    let ids = batches.flat_map(|batch| (0..batch.num_rows()).map(|row| cell(&batch, 0, 0, row)).collect::<Vec<_>>());
    assert_eq!(ids.collect::<Vec<_>>(), model.keys().map(|&id| Datum::Int64(id)).collect::<Vec<_>>());
    for number in 0..20 {
        check(&table, &database.snapshot(), &model, &mut rng, &format!("scan {number}"));
    }
}
