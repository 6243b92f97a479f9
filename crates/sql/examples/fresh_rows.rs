//! SQL over rows that are seconds old: a thread writes transfers, row by row, while statements add them up, each at a
//! snapshot of its own or at one that was taken before. Nothing is copied for that, and nothing waits.
//!
//! ```sh
//! cargo run --package mycelium-sql --example fresh_rows
//! ```
//!
//! On the command line, beside the process that writes: `mycelium sql ./db -c 'SELECT …'`.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use mycelium::{Database, DatumRef, Durability, Options, Result, Schema, Table, TableOptions, WriteBatch};
use mycelium_sql::Session;

const SCHEMA: &str = "number int64 not null, region utf8 not null, cents int64 not null, primary key (number)";
const TRANSFERS: i64 = 500;

/// Each transfer takes from the one region what it gives to the other.
const TOTALS: &str = "SELECT count(*) AS bookings, sum(cents) AS cents FROM ledger";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let database = Database::open(directory.path().join("db"), Options::default())?;
    let ledger = database.create_typed_table("ledger", Schema::parse(SCHEMA)?, TableOptions::default())?;
    write(&database, &ledger, 0..TRANSFERS)?;

    let session = Session::open(&database);
    session.query("TAKE SNAPSHOT morning").await?;
    let writer = std::thread::spawn({
        let (database, ledger) = (database.clone(), ledger.clone());
        move || write(&database, &ledger, TRANSFERS..2 * TRANSFERS)
    });
    while !writer.is_finished() {
        let [bookings, cents] = ask(&session, TOTALS).await?;
        assert_eq!((bookings % 2, cents), (0, 0));
    }
    writer.join().expect("the writer does not panic")?;
    println!("bookings and their sum now: {:?}", ask(&session, TOTALS).await?);
    assert_eq!(ask(&session, TOTALS).await?, [4 * TRANSFERS, 0]);

    // A point of history that stays, for as long as the session or until `DROP SNAPSHOT`.
    session.query("USE SNAPSHOT morning").await?;
    println!("bookings and their sum in the morning: {:?}", ask(&session, TOTALS).await?);
    assert_eq!(ask(&session, TOTALS).await?, [2 * TRANSFERS, 0]);
    session.query("USE LATEST").await?;

    // Predicates on the key become ranges of it; those on columns are tested where these lie, encoded.
    let first = "SELECT count(*), max(cents) FROM ledger WHERE region = 'west' AND number < 100";
    assert_eq!(ask(&session, first).await?, [50, 50]);
    database.close()?;
    Ok(())
}

/// The one row of two integers that a statement gives.
async fn ask(session: &Session, statement: &str) -> Result<[i64; 2]> {
    let batches = session.query(statement).await?.collect().await?;
    Ok([0, 1].map(|column| batches[0].column(column).as_primitive::<Int64Type>().value(0)))
}

/// Books transfers, each as two rows that take effect together.
fn write(database: &Database, ledger: &Table, transfers: std::ops::Range<i64>) -> Result<()> {
    for transfer in transfers {
        let cents = 1 + transfer;
        let mut batch = WriteBatch::new();
        for (number, region, cents) in [(2 * transfer, "east", -cents), (2 * transfer + 1, "west", cents)] {
            let row = [DatumRef::Int64(number), DatumRef::Utf8(region), DatumRef::Int64(cents)];
            batch.insert_row(ledger, &row)?;
        }
        database.write(&batch, Durability::Os)?;
    }
    Ok(())
}

#[test]
fn statements_read_rows_while_they_are_written() -> Result<(), Box<dyn std::error::Error>> {
    main()
}
