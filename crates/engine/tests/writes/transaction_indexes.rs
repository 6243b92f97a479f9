//! Lookups through indexes inside transactions, compared with what the transaction's own rows say.

use std::ops::Bound;

use mycelium_encoding::{Datum, DatumRef, Schema};
use mycelium_engine::{
    Database, Durability, ErrorKind, Index, IndexOptions, IsolationLevel, Result, Table, Transaction,
};
use mycelium_vfs::MemoryDisk;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::common::{assert_verified, small_options, small_table};

const CITIES: [&str; 5] = ["Bonn", "Graz", "Linz", "Ulm", "Wien"];

struct Setup {
    database: Database,
    table: Table,
}

impl Setup {
    fn new() -> Self {
        let database = Database::open("db", small_options(&MemoryDisk::new())).unwrap();
        let schema = Schema::parse("id int64 not null, city utf8, year int32, note utf8, primary key (id)").unwrap();
        let table = database.create_typed_table("people", schema, small_table()).unwrap();
        Self { database, table }
    }

    fn indexed() -> (Self, Index) {
        let setup = Self::new();
        let index = setup.index();
        (setup, index)
    }

    fn index(&self) -> Index {
        let on = vec!["city".into(), "year".into()];
        let options =
            IndexOptions { name: "by_city".into(), on, cover: vec!["note".into()], ..IndexOptions::default() };
        self.database.create_index(&self.table, &options).unwrap()
    }

    fn put(&self, id: i64, city: &str) {
        self.table.insert_row(&row(id, city), Durability::Os).unwrap();
    }

    fn begin(&self) -> Transaction {
        self.database.begin(IsolationLevel::Serializable)
    }

    /// Writes something that no lookup sees, and commits.
    fn end(&self, mut transaction: Transaction) -> Result<u64> {
        transaction.insert_row(&self.table, &row(1_000, "elsewhere")).unwrap();
        transaction.commit(Durability::Os)
    }
}

fn row(id: i64, city: &str) -> [DatumRef<'_>; 4] {
    [DatumRef::Int64(id), DatumRef::Utf8(city), DatumRef::Int32(0), DatumRef::Null]
}

fn id_of(row: &[Datum]) -> i64 {
    match row[0] {
        Datum::Int64(id) => id,
        ref other => panic!("{other:?}"),
    }
}

fn ids(transaction: &Transaction, index: &Index, city: &str) -> Vec<i64> {
    let found = transaction.index_get(index, &[DatumRef::Utf8(city)], Some(&[0])).unwrap();
    found.map(|row| id_of(&row.unwrap().values)).collect()
}

fn assert_conflict(outcome: Result<u64>) {
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Conflict);
}

/// All rows that the transaction sees in the order of the index, read without it.
fn straight(transaction: &Transaction, table: &Table, rows: i64) -> Vec<Vec<Datum>> {
    let read = |id| transaction.get_row(table, &[DatumRef::Int64(id)], None).unwrap();
    let mut all: Vec<Vec<Datum>> = (0..rows).filter_map(read).collect();
    let text = |datum: &Datum| match datum {
        Datum::Utf8(text) => Some(text.clone()),
        _ => None,
    };
    let number = |datum: &Datum| match datum {
        Datum::Int32(number) => Some(*number),
        _ => None,
    };
    all.sort_by_key(|row| (text(&row[1]), number(&row[2]), id_of(row)));
    all
}

fn check(transaction: &Transaction, table: &Table, index: &Index, rows: i64) {
    let expected = straight(transaction, table, rows);
    let all = (Bound::Unbounded, Bound::Unbounded);
    for projection in [None, Some(&[0, 1, 2, 3][..]), Some(&[2, 0])] {
        let project = |row: &Vec<Datum>| -> Vec<Datum> {
            projection.map_or_else(|| row.clone(), |columns| columns.iter().map(|&c: &usize| row[c].clone()).collect())
        };
        let found: Vec<_> =
            transaction.index_range(index, all, projection).unwrap().map(|r| r.unwrap().values).collect();
        assert_eq!(found, expected.iter().map(project).collect::<Vec<_>>());
    }
    for city in CITIES {
        let of_city = |row: &&Vec<Datum>| row[1] == Datum::Utf8(city.into());
        assert_eq!(
            ids(transaction, index, city),
            expected.iter().filter(of_city).map(|r| id_of(r)).collect::<Vec<_>>()
        );
        let above = [DatumRef::Utf8(city)];
        let above = (Bound::Excluded(&above[..]), Bound::Unbounded);
        let found = transaction.index_range(index, above, Some(&[0])).unwrap();
        let is_above = |row: &&Vec<Datum>| matches!(&row[1], Datum::Utf8(found) if found.as_str() > city);
        let expected: Vec<i64> = expected.iter().filter(is_above).map(|row| id_of(row)).collect();
        assert_eq!(found.map(|row| id_of(&row.unwrap().values)).collect::<Vec<_>>(), expected);
    }
}

fn committed(outcome: Result<u64>) {
    outcome.unwrap();
}

const ROWS: i64 = 60;

/// One write, in the transaction or beside it.
fn write(setup: &Setup, transaction: Option<&mut Transaction>, rng: &mut SmallRng) {
    let (id, city) = (rng.random_range(0..ROWS), CITIES[rng.random_range(0..CITIES.len())]);
    let key = [DatumRef::Int64(id)];
    let city = if rng.random_bool(0.1) { DatumRef::Null } else { DatumRef::Utf8(city) };
    let whole = [DatumRef::Int64(id), city, DatumRef::Int32(rng.random_range(0..4)), DatumRef::Utf8("note")];
    let change = if rng.random_bool(0.5) { ("city", city) } else { ("note", DatumRef::Utf8("changed")) };
    let kind = rng.random_range(0..20);
    let table = &setup.table;
    let end = table.key_of(&[DatumRef::Int64(id + 5)]);
    match (transaction, kind) {
        (Some(t), 0..10) => t.insert_row(table, &whole).unwrap(),
        (Some(t), 10..16) => t.patch_row(table, &key, &[change]).unwrap(),
        (Some(t), 16..19) => t.delete_row(table, &key).unwrap(),
        (Some(t), _) => t.delete_range(table, &table.key_of(&key), &end).unwrap(),
        (None, 0..10) => committed(table.insert_row(&whole, Durability::Os)),
        (None, 10..16) => committed(table.patch_row(&key, &[change], Durability::Os)),
        (None, 16..19) => committed(table.delete_row(&key, Durability::Os)),
        (None, _) => committed(table.delete_range(&table.key_of(&key), &end, Durability::Os)),
    }
}

trait KeyOf {
    fn key_of(&self, values: &[DatumRef<'_>]) -> Vec<u8>;
}

impl KeyOf for Table {
    fn key_of(&self, values: &[DatumRef<'_>]) -> Vec<u8> {
        let mut key = Vec::new();
        mycelium_encoding::key::encode_key(self.schema().unwrap(), values, &mut key).unwrap();
        key
    }
}

#[test]
fn lookups_in_a_transaction_find_its_rows_and_those_of_its_snapshot() {
    for seed in 0..24 {
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let setup = Setup::new();
        let mut index = (seed % 2 == 0).then(|| setup.index());
        (0..100).for_each(|_| write(&setup, None, &mut rng));
        for _ in 0..4 {
            let mut transaction = setup.begin();
            let savepoint = transaction.savepoint();
            for step in 0..12 {
                write(&setup, Some(&mut transaction), &mut rng);
                (0..3).for_each(|_| write(&setup, None, &mut rng));
                match rng.random_range(0..8) {
                    0 => setup.database.flush().unwrap(),
                    1 => setup.database.compact(&setup.table).unwrap(),
                    2 if step > 6 => transaction.rollback_to(savepoint).unwrap(),
                    _ => {}
                }
                // One that is created while the transaction runs is not built at first.
                let index = index.get_or_insert_with(|| setup.index());
                check(&transaction, &setup.table, index, ROWS + 5);
            }
            if let Err(error) = transaction.commit(Durability::Os) {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            }
        }
        setup.database.wait_idle().unwrap();
        assert_verified(&setup.database);
    }
}

#[test]
fn a_row_that_comes_into_the_bounds_of_a_lookup_conflicts() {
    let (setup, index) = Setup::indexed();
    (0..4).for_each(|id| setup.put(id, CITIES[id as usize]));
    let city = |city| [("city", city)];
    let writes: [&dyn Fn(); 2] = [&|| setup.put(9, "Graz"), &|| {
        committed(setup.table.patch_row(&[DatumRef::Int64(3)], &city(DatumRef::Utf8("Graz")), Durability::Os));
    }];
    for (n, write) in writes.into_iter().enumerate() {
        for flushes in [false, true] {
            let transaction = setup.begin();
            let before = ids(&transaction, &index, "Graz").len();
            assert_eq!(before, 1 + n);
            write();
            if flushes {
                setup.database.compact(&setup.table).unwrap();
            }
            assert_eq!(ids(&transaction, &index, "Graz").len(), before);
            assert_conflict(setup.end(transaction));
            let key = if n == 0 { 9 } else { 3 };
            setup.table.delete_row(&[DatumRef::Int64(key)], Durability::Os).unwrap();
            setup.put(3, "Ulm");
        }
        setup.put(10 + n as i64, "Graz");
    }
    // Under snapshot isolation what was read may change.
    let transaction = setup.database.begin(IsolationLevel::Snapshot);
    ids(&transaction, &index, "Graz");
    setup.put(20, "Graz");
    setup.end(transaction).unwrap();
}

#[test]
fn a_row_that_leaves_the_bounds_of_a_lookup_or_changes_conflicts() {
    let (setup, index) = Setup::indexed();
    let key = [DatumRef::Int64(1)];
    let patch = |column, value| {
        committed(setup.table.patch_row(&key, &[(column, value)], Durability::Os));
    };
    let (start, end) = (setup.table.key_of(&key), setup.table.key_of(&[DatumRef::Int64(2)]));
    let writes: [&dyn Fn(); 4] = [
        &|| patch("city", DatumRef::Utf8("Linz")),
        &|| patch("note", DatumRef::Utf8("changed")),
        &|| committed(setup.table.delete_row(&key, Durability::Os)),
        &|| committed(setup.table.delete_range(&start, &end, Durability::Os)),
    ];
    for write in writes {
        for flushes in [false, true] {
            (0..4).for_each(|id| setup.put(id, CITIES[id as usize]));
            let transaction = setup.begin();
            assert_eq!(ids(&transaction, &index, "Graz"), [1]);
            write();
            if flushes {
                setup.database.compact(&setup.table).unwrap();
            }
            assert_conflict(setup.end(transaction));
        }
    }
}

#[test]
fn writes_outside_the_bounds_of_a_lookup_do_not_conflict() {
    let (setup, index) = Setup::indexed();
    (0..4).for_each(|id| setup.put(id, CITIES[id as usize]));
    let transaction = setup.begin();
    assert_eq!(ids(&transaction, &index, "Graz"), [1]);
    setup.put(9, "Linz");
    setup.put(2, "Wien");
    setup.table.delete_row(&[DatumRef::Int64(0)], Durability::Os).unwrap();
    setup.database.compact(&setup.table).unwrap();
    setup.end(transaction).unwrap();
}

/// What was written between the two put no entry into the index.
#[test]
fn a_transaction_older_than_its_index_misses_no_row_that_came_before_the_index() {
    let setup = Setup::new();
    setup.put(1, "Graz");
    let transaction = setup.begin();
    setup.put(2, "Graz");
    let index = setup.index();
    assert_eq!(ids(&transaction, &index, "Graz"), [1]);
    assert_conflict(setup.end(transaction));
    setup.database.wait_idle().unwrap();
    assert!(index.is_built());
}

const VALUES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];

/// The unique value of each row.
type Rows = std::collections::BTreeMap<i64, Option<&'static str>>;

/// A change of the rows, in a transaction or beside it.
#[derive(Clone, Copy)]
enum Change {
    Put(i64, Option<&'static str>),
    Patch(i64, Option<&'static str>),
    Delete(i64),
    DeleteRange(i64, i64),
}

impl Change {
    fn draw(rng: &mut SmallRng) -> Self {
        let id = rng.random_range(0..16);
        let value = rng.random_bool(0.9).then(|| VALUES[rng.random_range(0..VALUES.len())]);
        match rng.random_range(0..10) {
            0..5 => Self::Put(id, value),
            5..7 => Self::Patch(id, value),
            7..9 => Self::Delete(id),
            _ => Self::DeleteRange(id, id + rng.random_range(0..4)),
        }
    }

    fn apply(self, rows: &mut Rows) {
        match self {
            Self::Put(id, city) => {
                rows.insert(id, city);
            }
            Self::Patch(id, city) => {
                rows.entry(id).and_modify(|known| *known = city);
            }
            Self::Delete(id) => {
                rows.remove(&id);
            }
            Self::DeleteRange(from, to) => rows.retain(|id, _| !(from..to).contains(id)),
        }
    }

    fn write(self, transaction: &mut Transaction, table: &Table) {
        let datum = |city: Option<&'static str>| city.map_or(DatumRef::Null, DatumRef::Utf8);
        let key = |id| table.key_of(&[DatumRef::Int64(id)]);
        let written = match self {
            Self::Put(id, city) => {
                let row = [DatumRef::Int64(id), datum(city), DatumRef::Int32(0), DatumRef::Null];
                transaction.insert_row(table, &row)
            }
            Self::Patch(id, city) => transaction.patch_row(table, &[DatumRef::Int64(id)], &[("city", datum(city))]),
            Self::Delete(id) => transaction.delete_row(table, &[DatumRef::Int64(id)]),
            Self::DeleteRange(from, to) => transaction.delete_range(table, &key(from), &key(to)),
        };
        written.unwrap();
    }
}

fn has_equal_values(rows: &Rows) -> bool {
    let mut values: Vec<&str> = rows.values().flatten().copied().collect();
    values.sort_unstable();
    values.windows(2).any(|pair| pair[0] == pair[1])
}

/// A transaction that is open, the rows that it sees, and what it did to them.
struct Open {
    transaction: Transaction,
    rows: Rows,
    changes: Vec<Change>,
}

/// Several transactions at once over few values, which they free, take over from rows that they delete, and roll back:
/// each that sees equal values is refused, and whatever others did meanwhile, no two rows ever have the same.
#[test]
fn values_stay_unique_whatever_transactions_meet() {
    let (mut committed, mut duplicates, mut conflicts) = (0, 0, 0);
    for seed in 0..24 {
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let setup = Setup::new();
        let by_city =
            IndexOptions { name: "unique".into(), on: vec!["city".into()], unique: true, ..IndexOptions::default() };
        let index = setup.database.create_index(&setup.table, &by_city).unwrap();
        let (mut rows, mut open) = (Rows::new(), Vec::<Open>::new());
        for _ in 0..300 {
            match rng.random_range(0..12) {
                0..3 if open.len() < 4 => {
                    let level = [IsolationLevel::Snapshot, IsolationLevel::Serializable][rng.random_range(0..2)];
                    let transaction = setup.database.begin(level);
                    open.push(Open { transaction, rows: rows.clone(), changes: Vec::new() });
                }
                0..8 if !open.is_empty() => {
                    let at = rng.random_range(0..open.len());
                    let Open { transaction, rows, changes } = &mut open[at];
                    let change = Change::draw(&mut rng);
                    if rng.random_bool(0.2) {
                        let savepoint = transaction.savepoint();
                        Change::draw(&mut rng).write(transaction, &setup.table);
                        transaction.rollback_to(savepoint).unwrap();
                    }
                    change.write(transaction, &setup.table);
                    change.apply(rows);
                    changes.push(change);
                }
                8..11 if !open.is_empty() => {
                    let Open { transaction, rows: seen, changes } = open.swap_remove(rng.random_range(0..open.len()));
                    match transaction.commit(Durability::Os) {
                        Ok(_) => {
                            assert!(!has_equal_values(&seen));
                            changes.iter().for_each(|change| change.apply(&mut rows));
                            assert!(!has_equal_values(&rows));
                            committed += 1;
                        }
                        Err(error) if error.kind() == ErrorKind::Duplicate => {
                            assert!(has_equal_values(&seen), "{error}");
                            duplicates += 1;
                        }
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                            conflicts += 1;
                        }
                    }
                }
                _ if rng.random_bool(0.3) => setup.database.compact(&setup.table).unwrap(),
                _ => setup.database.flush().unwrap(),
            }
        }
        drop(open);
        for value in VALUES {
            let holders: Vec<i64> = rows.iter().filter(|(_, held)| **held == Some(value)).map(|(id, _)| *id).collect();
            let found = index.get(&[DatumRef::Utf8(value)], Some(&[0]), None).unwrap();
            assert_eq!(found.map(|row| id_of(&row.unwrap().values)).collect::<Vec<_>>(), holders);
        }
        assert_verified(&setup.database);
    }
    println!("{committed} committed, {duplicates} with equal values, {conflicts} conflicts");
    assert!(committed > 100 && duplicates > 20 && conflicts > 20);
}
