//! Time series: readings of sensors that are kept for a day, the extremes of each site as a view that costs no scan,
//! and the hottest readings by an index. All are exact at every snapshot, before and after rows expire.
//!
//! ```sh
//! cargo run --example time_series
//! ```

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use mycelium::{
    Database, Datum, DatumRef, Durability, Expiry, IndexOptions, ManualClock, Options, ReadOptions, Result,
    ScanOptions, Schema, Table, TableOptions, View, ViewOptions, WriteBatch,
};

/// The key begins with the sensor, so the readings of one lie together, in the order of their times.
const SCHEMA: &str = "sensor utf8 not null, at timestamp(s) not null, site utf8 not null, celsius decimal(5, 1), \
                      primary key (sensor, at)";
const SENSOR: usize = 0;
const AT: usize = 1;
const CELSIUS: usize = 3;
const HOUR: i64 = 3_600;
const DAY: Duration = Duration::from_secs(86_400);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    // Half an hour before the end of the second day. Without this it is the clock of the machine that counts.
    let clock = Arc::new(ManualClock::at(2 * DAY - Duration::from_secs(1_800)));
    let database = Database::open(directory.path().join("db"), Options { clock, ..Options::default() })?;
    // A scan within one sensor passes over files that have nothing of it.
    let options = TableOptions { prefix_filter: Some(1), ..TableOptions::default() };
    let readings = database.create_typed_table("readings", Schema::parse(SCHEMA)?, options)?;
    let extremes = ViewOptions {
        name: "extremes".into(),
        group_by: vec!["site".into()],
        aggregates: vec!["count(*)".into(), "min(celsius)".into(), "max(celsius)".into()],
    };
    let extremes = database.create_view(&readings, &extremes)?;
    let by_celsius = IndexOptions { name: "by_celsius".into(), on: vec!["celsius".into()], ..IndexOptions::default() };
    let by_celsius = database.create_index(&readings, &by_celsius)?;
    record(&database, &readings)?;

    // The last two readings of one sensor, the last one first.
    let newest = ScanOptions {
        lower: Bound::Included(vec![Datum::Utf8("s1".into())]),
        upper: Bound::Included(vec![Datum::Utf8("s1".into())]),
        limit: Some(2),
        descending: true,
        ..ScanOptions::default()
    };
    let counts: Vec<usize> =
        readings.scan_batches(newest)?.map(|batch| batch.map(|batch| batch.num_rows())).collect::<Result<_>>()?;
    println!("last readings of s1: {}", counts.iter().sum::<usize>());
    assert_eq!(counts.iter().sum::<usize>(), 2);

    // The hottest, by the index; `None` reads the newest state.
    let from = [DatumRef::Decimal128(222)];
    let hottest = (Bound::Included(&from[..]), Bound::Unbounded);
    for row in by_celsius.range(hottest, Some(&[SENSOR, AT, CELSIUS]), None)? {
        println!("hot: {}", shown(&readings, [SENSOR, AT, CELSIUS], &row?.values));
    }

    let all = database.snapshot();
    println!("of two days:");
    assert_eq!(read(&extremes, &ReadOptions::at(&all))?, [48, 96]);

    // From now on readings go when they are a day old. The database looks for them from time to time; this does so now.
    database.set_expiry(&readings, Some(Expiry::new("at", DAY)))?;
    database.expire_rows(&readings)?;
    println!("of one day:");
    assert_eq!(read(&extremes, &ReadOptions::default())?, [24, 48]);
    assert_eq!(by_celsius.range(hottest, Some(&[AT]), None)?.count(), 2);
    assert_eq!(by_celsius.range(hottest, Some(&[AT]), Some(&all))?.count(), 4);
    database.close()?;
    Ok(())
}

/// Two days of three sensors, a reading an hour.
fn record(database: &Database, readings: &Table) -> Result<()> {
    let mut batch = WriteBatch::new();
    for hour in 0..48 {
        for (sensor, site, coolest) in [("s0", "roof", 180), ("s1", "cellar", 120), ("s2", "roof", 200)] {
            batch.insert_row(
                readings,
                &[
                    DatumRef::Utf8(sensor),
                    DatumRef::Timestamp(hour * HOUR),
                    DatumRef::Utf8(site),
                    DatumRef::Decimal128(i128::from(coolest + hour % 24)),
                ],
            )?;
        }
    }
    database.write(&batch, Durability::Sync).map(drop)
}

/// Prints the groups of the view, ascending, and returns how many rows each has.
fn read(view: &View, options: &ReadOptions) -> Result<Vec<i64>> {
    let mut counts = Vec::new();
    for group in view.read(options)?.rows {
        let [Datum::Int64(count), least, greatest] = &group.aggregates[..] else { continue };
        let (site, extremes) = (&group.group[0], [least.clone(), greatest.clone()]);
        println!("  {site}: {count} readings, {}", shown(view.table(), [CELSIUS, CELSIUS], &extremes));
        counts.push(*count);
    }
    Ok(counts)
}

/// Values as those of these columns.
fn shown<const N: usize>(readings: &Table, columns: [usize; N], values: &[Datum]) -> String {
    let Some(schema) = readings.schema() else { return String::new() };
    let texts = columns.iter().zip(values).map(|(&column, value)| {
        let ty = &schema.columns()[column].ty;
        value.borrowed().display_as(ty).to_string()
    });
    texts.collect::<Vec<_>>().join(", ")
}

#[test]
fn views_and_indexes_are_exact_before_and_after_rows_expire() -> Result<(), Box<dyn std::error::Error>> {
    main()
}
