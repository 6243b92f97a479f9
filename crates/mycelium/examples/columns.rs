//! Rows and columns at once: one thread writes transfers, row by row, while another adds up columns of all rows. Each
//! transfer takes from the one region what it gives to the other, so at every snapshot the two sums are opposite: what
//! is a second old is as right as what is a day old, and there is no copy to wait for.
//!
//! ```sh
//! cargo run --example columns
//! ```

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use mycelium::filter::{ColumnTest, Filter, Test};
use mycelium::{
    Database, Datum, DatumRef, Durability, Options, ReadOptions, Result, ScanOptions, Schema, Snapshot, Table,
    TableOptions, WriteBatch,
};

const SCHEMA: &str =
    "number int64 not null, region utf8 not null, cents int64 not null, note utf8, primary key (number)";
const REGION: usize = 1;
const CENTS: usize = 2;
const TRANSFERS: i64 = 2_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let database = Database::open(directory.path().join("db"), Options::default())?;
    // Rows where they are written, columns below: the layout that a typed table begins with.
    let ledger = database.create_typed_table("ledger", Schema::parse(SCHEMA)?, TableOptions::default())?;
    println!("{}", ledger.layout());

    std::thread::scope(|scope| -> Result<()> {
        let writer = scope.spawn(|| write(&database, &ledger));
        loop {
            let is_last = writer.is_finished();
            let snapshot = database.snapshot();
            let (east, west) = (sum(&ledger, "east", &snapshot)?, sum(&ledger, "west", &snapshot)?);
            assert_eq!((east.rows, east.cents), (west.rows, -west.cents));
            if is_last {
                println!("east: {} cents, west: {} cents, in {} rows each", east.cents, west.cents, east.rows);
                return writer.join().expect("the writer does not panic");
            }
        }
    })?;

    // One row of the same table, by its key; and one column of it written anew, without the rest being read.
    let key = [DatumRef::Int64(7)];
    ledger.patch_row(&key, &[("note", DatumRef::Utf8("asked for"))], Durability::Sync)?;
    let row = ledger.get_row(&key, None, &ReadOptions::default())?;
    println!("{row:?}");
    assert_eq!(row.and_then(|row| row.into_iter().nth(3)), Some(Datum::Utf8("asked for".into())));

    // Compactions bring rows into columns by themselves, sooner or later; this does so now.
    database.compact(&ledger)?;
    let total = sum(&ledger, "east", &database.snapshot())?;
    println!("{} rows of {} were taken from columns many at a time", total.from_columns, total.rows);
    assert_eq!(total.rows, TRANSFERS as usize);
    database.close()?;
    Ok(())
}

/// Books transfers, each as two rows that take effect together.
fn write(database: &Database, ledger: &Table) -> Result<()> {
    for transfer in 0..TRANSFERS {
        let cents = 1 + transfer % 500;
        let mut batch = WriteBatch::new();
        for (number, region, cents) in [(2 * transfer, "east", -cents), (2 * transfer + 1, "west", cents)] {
            let row = [DatumRef::Int64(number), DatumRef::Utf8(region), DatumRef::Int64(cents), DatumRef::Null];
            batch.insert_row(ledger, &row)?;
        }
        database.write(&batch, Durability::Os)?;
    }
    Ok(())
}

/// What the rows of a region add up to.
struct Total {
    rows: usize,
    cents: i64,
    from_columns: u64,
}

/// `SELECT count(*), sum(cents) FROM ledger WHERE region = …`, at a snapshot: the filter is decided on the row that the
/// snapshot sees, and only the two columns are read. (In SQL: the example `fresh_rows` of the crate `mycelium-sql`.)
fn sum(ledger: &Table, region: &str, snapshot: &Snapshot) -> Result<Total> {
    let test = Test::Equal(Datum::Utf8(region.into()));
    let mut scan = ledger.scan_batches(ScanOptions {
        projection: Some(vec![CENTS]),
        filter: Some(Filter { conjuncts: vec![ColumnTest { column: REGION, test }] }),
        snapshot: Some(snapshot.clone()),
        ..ScanOptions::default()
    })?;
    let (mut rows, mut cents) = (0, 0);
    for batch in scan.by_ref() {
        let batch = batch?;
        rows += batch.num_rows();
        cents += batch.column(0).as_primitive::<Int64Type>().values().iter().sum::<i64>();
    }
    Ok(Total { rows, cents, from_columns: scan.counters().rows_passed_through })
}

#[test]
fn sums_over_columns_are_right_while_rows_are_written() -> Result<(), Box<dyn std::error::Error>> {
    main()
}
