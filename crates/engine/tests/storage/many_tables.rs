//! A database of many tables against a model of it: rows in some of them, a snapshot across, half of them dropped, and
//! opened again.

use std::collections::BTreeMap;

use mycelium_engine::{Database, Durability, ErrorKind, Options, ReadOptions, TableOptions, WriteBatch};
use mycelium_vfs::MemoryDisk;

use crate::common::{Rows, scan, scan_with, small_options};

const TABLES: usize = 2_000;

/// What each table holds, by name.
type Model = BTreeMap<String, Rows>;

fn name(n: usize) -> String {
    format!("table {n}")
}

fn open(disk: &MemoryDisk) -> Database {
    Database::open("db", Options { memory_budget: 8 << 20, ..small_options(disk) }).unwrap()
}

/// Every table of which the number is divisible by `every` gets the same row, in batches of many tables.
fn write(database: &Database, model: &mut Model, every: usize, value: &[u8]) {
    let numbers: Vec<usize> = (0..TABLES).step_by(every).filter(|n| model.contains_key(&name(*n))).collect();
    for some in numbers.chunks(300) {
        let mut batch = WriteBatch::new();
        for n in some {
            let table = database.table(&name(*n)).unwrap();
            batch.put(&table, &every.to_be_bytes(), value);
            model.entry(name(*n)).or_default().insert(every.to_be_bytes().to_vec(), value.to_vec());
        }
        database.write(&batch, Durability::Os).unwrap();
    }
}

/// The rows of one table in seven are compared, and the names of all.
fn check(database: &Database, model: &Model, options: &ReadOptions) {
    for (name, rows) in model.iter().step_by(7) {
        assert_eq!(scan_with(&database.table(name).unwrap(), options), *rows, "{name}");
    }
}

fn check_names(database: &Database, model: &Model) {
    let mut names = database.table_names();
    names.sort_unstable();
    assert!(names.iter().eq(model.keys()));
}

#[test]
fn thousands_of_tables_are_as_a_few() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let mut model: Model = (0..TABLES).map(|n| (name(n), Rows::new())).collect();
    for n in 0..TABLES {
        database.create_table(&name(n), TableOptions::default()).unwrap();
    }
    assert_eq!(
        database.create_table(&name(77), TableOptions::default()).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    check_names(&database, &model);
    write(&database, &mut model, 5, b"first");
    database.flush().unwrap();
    write(&database, &mut model, 7, b"second");
    let (snapshot, past) = (database.snapshot(), model.clone());
    write(&database, &mut model, 5, b"third");
    database.flush().unwrap();
    write(&database, &mut model, 11, b"fourth");
    check(&database, &model, &ReadOptions::default());
    check(&database, &past, &ReadOptions::at(&snapshot));
    drop(snapshot);

    // Opened with files and a log.
    database.close().unwrap();
    let database = open(&disk);
    check_names(&database, &model);
    check(&database, &model, &ReadOptions::default());

    let snapshot = database.snapshot();
    for n in (0..TABLES).step_by(2) {
        database.drop_table(&name(n)).unwrap();
        model.remove(&name(n));
    }
    assert_eq!(database.table(&name(0)).unwrap_err().kind(), ErrorKind::NotFound);
    check(&database, &model, &ReadOptions::at(&snapshot));
    // A name that is free again is another table's.
    let again = database.create_table(&name(0), TableOptions::default()).unwrap();
    model.insert(name(0), Rows::new());
    assert_eq!(scan(&again), Rows::new());
    write(&database, &mut model, 3, b"fifth");
    check(&database, &model, &ReadOptions::default());
    drop((snapshot, again));
    database.wait_idle().unwrap();
    database.close().unwrap();
    let database = open(&disk);
    check_names(&database, &model);
    check(&database, &model, &ReadOptions::default());
}
