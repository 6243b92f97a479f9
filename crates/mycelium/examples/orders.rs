//! Orders in one process: bookings that do not lose each other's numbers, a lookup by customer, sums over all rows as
//! of this moment, and a backup.
//!
//! ```sh
//! cargo run --example orders -- /tmp/orders                    # as often as you like: it goes on where it was
//! cargo run --example orders -- /tmp/orders /tmp/orders-monday # and makes a backup, a database like the first
//! ```

use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use mycelium::{
    Database, DatumRef, Durability, ErrorKind, IndexOptions, IsolationLevel, Options, Result, ScanOptions, Schema,
    Table, TableOptions,
};

const SCHEMA: &str =
    "number int64 not null, customer utf8 not null, cents int64 not null, note utf8, primary key (number)";
const NUMBER: usize = 0;
const CENTS: usize = 2;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("which directory? It is made if it is not there")?;
    run(directory.as_ref(), arguments.next().as_deref().map(Path::new))?;
    Ok(())
}

fn run(directory: &Path, backup: Option<&Path>) -> Result<()> {
    let database = Database::open(directory, Options::default())?;
    let orders = existing_or(database.table("orders"), || {
        database.create_typed_table("orders", Schema::parse(SCHEMA)?, TableOptions::default())
    })?;
    let by_customer =
        IndexOptions { name: "by_customer".into(), on: vec!["customer".into()], ..IndexOptions::default() };
    let by_customer = existing_or(orders.index("by_customer"), || database.create_index(&orders, &by_customer))?;
    let counters =
        existing_or(database.table("counters"), || database.create_table("counters", TableOptions::default()))?;

    for (customer, cents) in [("Ada", 1250), ("Grace", 300), ("Ada", 99)] {
        let number = book(&database, &orders, &counters, customer, cents)?;
        println!("order {number}: {customer}, {cents} cents");
    }
    // One column of one row; the rest of it is not read.
    orders.patch_row(&[DatumRef::Int64(1)], &[("note", DatumRef::Utf8("by hand"))], Durability::Os)?;

    for row in by_customer.get(&[DatumRef::Utf8("Ada")], Some(&[NUMBER, CENTS]), None)? {
        println!("of Ada: {:?}", row?.values);
    }

    let (mut rows, mut cents) = (0, 0);
    for batch in orders.scan_batches(ScanOptions { projection: Some(vec![CENTS]), ..ScanOptions::default() })? {
        let batch = batch?;
        rows += batch.num_rows();
        cents += batch.column(0).as_primitive::<Int64Type>().values().iter().sum::<i64>();
    }
    println!("all {rows} orders: {cents} cents");

    if let Some(backup) = backup {
        let summary = database.checkpoint(backup)?;
        println!("{}: {} files, {} bytes", backup.display(), summary.files, summary.bytes);
    }
    database.close()
}

/// What was found, or what `create` makes if there is nothing.
fn existing_or<T>(found: Result<T>, create: impl FnOnce() -> Result<T>) -> Result<T> {
    match found {
        Err(error) if error.kind() == ErrorKind::NotFound => create(),
        found => found,
    }
}

/// Books an order under the next number. Who comes second finds a conflict, and begins anew.
fn book(database: &Database, orders: &Table, counters: &Table, customer: &str, cents: i64) -> Result<i64> {
    loop {
        let mut transaction = database.begin(IsolationLevel::Serializable);
        let last: [u8; 8] =
            transaction.get(counters, b"orders")?.and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
        let number = i64::from_be_bytes(last) + 1;
        transaction.put(counters, b"orders", &number.to_be_bytes())?;
        let row = [DatumRef::Int64(number), DatumRef::Utf8(customer), DatumRef::Int64(cents), DatumRef::Null];
        transaction.insert_row(orders, &row)?;
        match transaction.commit(Durability::Sync) {
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            committed => return committed.map(|_| number),
        }
    }
}

#[test]
fn the_second_run_goes_on_where_the_first_was() -> Result<(), Box<dyn std::error::Error>> {
    use mycelium::{Datum, ReadOptions};

    let directory = tempfile::tempdir()?;
    let (orders, backup) = (directory.path().join("orders"), directory.path().join("backup"));
    run(&orders, None)?;
    run(&orders, Some(&backup))?;
    let copy = Database::open(&backup, Options::default())?.table("orders")?;
    let last = copy.get_row(&[DatumRef::Int64(6)], Some(&[CENTS]), &ReadOptions::default())?;
    assert_eq!(last, Some(vec![Datum::Int64(99)]));
    Ok(())
}
