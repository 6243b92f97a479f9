//! Whole rows by key from column groups, at every snapshot, are those of a model: rows that lie whole in all groups are
//! packed at once, and what is patched, deleted, newer than the snapshot or null in some of them is not.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use mycelium_encoding::{Datum, DatumRef, Schema};
use mycelium_engine::{Background, Database, Durability, Layout, Options, ReadOptions, Snapshot, Table, TableOptions};
use mycelium_vfs::MemoryDisk;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const SCHEMA: &str = "id int64 not null, a int32 not null, b int64 not null, c int32 not null, d int32, e int64 not \
                      null, primary key (id)";
const LAYOUTS: [&str; 3] = [
    "L0 tiered: * packed\nL1 leveled: 1 columnar | 2-3 columnar | 4-5 columnar",
    "L0 tiered: * columnar\nL1 leveled: 1 columnar | 2 columnar | 3 columnar | 4 columnar | 5 columnar",
    "L0 tiered: * packed\nL1 leveled: 1-2 columnar | 3-5 packed",
];
const KEYS: i64 = 300;

/// The columns outside the key.
type Row = [Option<i64>; 5];
type Model = BTreeMap<i64, Row>;

fn datum(column: usize, value: Option<i64>) -> DatumRef<'static> {
    match (value, column) {
        (None, _) => DatumRef::Null,
        (Some(value), 2 | 5) => DatumRef::Int64(value),
        (Some(value), _) => DatumRef::Int32(value as i32),
    }
}

fn drawn(column: usize, rng: &mut SmallRng) -> Option<i64> {
    (column != 4 || rng.random_bool(0.5)).then(|| rng.random_range(-1000..1000))
}

/// Deletes a row from a table and its model.
pub(crate) fn delete<R>(table: &Table, model: &mut BTreeMap<i64, R>, id: i64) {
    table.delete_row(&[DatumRef::Int64(id)], Durability::Buffered).unwrap();
    model.remove(&id);
}

/// Deletes the rows of a range of keys from both.
pub(crate) fn delete_range<R>(table: &Table, model: &mut BTreeMap<i64, R>, ids: Range<i64>) {
    let key = |id| table.row_key(&[DatumRef::Int64(id)]).unwrap();
    table.delete_range(&key(ids.start), &key(ids.end), Durability::Buffered).unwrap();
    model.retain(|id, _| !ids.contains(id));
}

/// One random write to the table and the model.
fn write(table: &Table, model: &mut Model, rng: &mut SmallRng) {
    let id = rng.random_range(0..KEYS);
    let key = [DatumRef::Int64(id)];
    match rng.random_range(0..100) {
        0 => {
            let to = (id + rng.random_range(1..20)).min(KEYS);
            delete_range(table, model, id..to);
        }
        1..15 => {
            delete(table, model, id);
        }
        15..40 if model.contains_key(&id) => {
            let column = rng.random_range(1..6);
            let value = drawn(column, rng);
            let name = ["a", "b", "c", "d", "e"][column - 1];
            table.patch_row(&key, &[(name, datum(column, value))], Durability::Buffered).unwrap();
            model.entry(id).and_modify(|row| row[column - 1] = value);
        }
        _ => {
            let row: Row = std::array::from_fn(|at| drawn(at + 1, rng));
            let mut cells = vec![key[0]];
            cells.extend(row.iter().enumerate().map(|(at, value)| datum(at + 1, *value)));
            table.insert_row(&cells, Durability::Buffered).unwrap();
            model.insert(id, row);
        }
    }
}

/// That the rows of all keys, whole and in part, are the model's.
fn check(table: &Table, snapshot: &Snapshot, model: &Model, context: &str) {
    let options = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
    for id in 0..KEYS {
        for columns in [&[0, 1, 2, 3, 4, 5][..], &[1, 3], &[2, 4, 5], &[0]] {
            let found = table.get_row(&[DatumRef::Int64(id)], Some(columns), &options).unwrap();
            let cell = |row: &Row, column: usize| match column {
                0 => Datum::Int64(id),
                _ => datum(column, row[column - 1]).to_datum(),
            };
            let expected = model.get(&id).map(|row| columns.iter().map(|&column| cell(row, column)).collect());
            assert_eq!(found, expected, "{context}, row {id}, columns {columns:?}");
        }
    }
}

#[test]
fn rows_of_several_groups_are_the_models_at_every_snapshot() {
    for (seed, layout) in LAYOUTS.into_iter().cycle().take(12).enumerate() {
        let mut rng = SmallRng::seed_from_u64(seed as u64);
        let options =
            Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
        let database = Database::open("db", options).unwrap();
        let schema = Schema::parse(SCHEMA).unwrap();
        let layout_of = Layout::parse(layout, &schema.value_columns()).unwrap();
        let options = TableOptions { layout: Some(layout_of), ..TableOptions::default() };
        let table = database.create_typed_table("t", schema, options).unwrap();
        let (mut model, mut moments) = (Model::new(), Vec::new());
        for round in 0..8 {
            // Few writes leave most rows whole in all groups, many leave some of everything.
            for _ in 0..[1200, 40][round % 2] {
                write(&table, &mut model, &mut rng);
            }
            moments.push((database.snapshot(), model.clone()));
            if rng.random_bool(0.7) {
                database.flush().unwrap();
            }
            if rng.random_bool(0.7) {
                database.compact(&table).unwrap();
            }
            for (age, (snapshot, model)) in moments.iter().enumerate() {
                check(&table, snapshot, model, &format!("{layout}, seed {seed}, round {round}, moment {age}"));
            }
            // Without an old snapshot its versions go.
            if moments.len() > 2 {
                moments.remove(rng.random_range(0..moments.len()));
            }
        }
    }
}
