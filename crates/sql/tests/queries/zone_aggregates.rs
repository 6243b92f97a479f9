//! Counts, minima and maxima that zones know: the answers are DataFusion's, and few blocks are read.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray, TimestampMicrosecondArray, UInt64Array,
};
use mycelium_encoding::{Datum, DatumRef};
use mycelium_engine::{Durability, Table};

use super::twin::{Form, Twin};

const ROWS: i64 = 60_000;
const SCHEMA: &str = "id int64 not null, small int32, amount int64 not null, share float64, flag bool, day date32, \
                      at timestamp(us), price decimal(12, 2), large uint64, name utf8, primary key (id)";

/// The values of a row, from its number and which version of it it is.
fn row(id: i64, version: i64) -> Vec<Datum> {
    let n = (id * 7919 + version * 104_729) % 100_003;
    let or_null = |datum: Datum, every: i64| if n % every == 0 { Datum::Null } else { datum };
    let share = [f64::NAN, -0.0, 0.0, f64::INFINITY, -f64::NAN][(n % 5) as usize];
    vec![
        Datum::Int64(id),
        or_null(Datum::Int32((n - 50_000) as i32), 11),
        Datum::Int64(n * 1_000_000_007),
        or_null(Datum::Float64(if id < ROWS / 2 { n as f64 / 7.0 - 1000.0 } else { share }), 13),
        or_null(Datum::Bool(n % 2 == 0), 3),
        or_null(Datum::Date32(n as i32), 17),
        or_null(Datum::Timestamp(n * 1_000), 19),
        or_null(Datum::Decimal128(i128::from(n) - 5), 23),
        or_null(Datum::UInt64(u64::MAX - n as u64), 29),
        or_null(Datum::Utf8(format!("name {n}")), 31),
    ]
}

fn insert(table: &Table, values: &[Datum]) {
    let values: Vec<DatumRef<'_>> = values.iter().map(Datum::borrowed).collect();
    table.insert_row(&values, Durability::Buffered).expect("a row");
}

fn batch(rows: &[Vec<Datum>]) -> RecordBatch {
    macro_rules! column {
        ($at:literal, $datum:ident, $array:ty) => {{
            let values = rows.iter().map(|row| match &row[$at] {
                Datum::$datum(value) => Some(value.to_owned()),
                _ => None,
            });
            values.collect::<$array>()
        }};
    }
    let price = column!(7, Decimal128, Decimal128Array).with_precision_and_scale(12, 2).expect("it fits");
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(column!(0, Int64, Int64Array))),
        ("small", Arc::new(column!(1, Int32, Int32Array))),
        ("amount", Arc::new(column!(2, Int64, Int64Array))),
        ("share", Arc::new(column!(3, Float64, Float64Array))),
        ("flag", Arc::new(column!(4, Bool, BooleanArray))),
        ("day", Arc::new(column!(5, Date32, Date32Array))),
        ("at", Arc::new(column!(6, Timestamp, TimestampMicrosecondArray))),
        ("price", Arc::new(price)),
        ("large", Arc::new(column!(8, UInt64, UInt64Array))),
        ("name", Arc::new(column!(9, Utf8, StringArray))),
    ];
    RecordBatch::try_from_iter(columns).expect("columns of one length")
}

const ALL: &str = "SELECT count(*), count(1), count(small), count(amount), count(id), min(small), max(small), \
                   min(amount), max(amount), min(share), max(share), count(flag), min(flag), max(flag), min(day), \
                   max(day), min(at), max(at), min(price), max(price), min(large), max(large) FROM t";

/// Compares the answers over everything, and over parts; how many of the plans have an aggregate by zones.
fn check(twin: &Twin) -> usize {
    let parts = ["", " WHERE id >= 100 AND id < 41000", " WHERE id > 59990", " WHERE id < -5", " WHERE id = 77"];
    let mut told = 0;
    for part in parts {
        let query = format!("{ALL}{part}");
        twin.check(&query, true);
        told += usize::from(twin.plan(&query).contains("MyceliumAggregate"));
    }
    told
}

#[test]
fn zones_answer_as_rows_do() {
    for form in Form::ALL {
        let twin = Twin::new();
        let table = twin.create("t", SCHEMA, form);
        let mut rows: Vec<Vec<Datum>> = (0..ROWS).map(|id| row(id, 0)).collect();
        rows.iter().for_each(|row| insert(&table, row));
        twin.database.compact(&table).expect("compacted");
        twin.teach("t", vec![batch(&rows)]);
        let told = check(&twin);
        assert_eq!(told > 1, matches!(form, Form::Columns), "{told} plans");

        // Younger rows, and rows that went.
        for id in (0..ROWS).step_by(1009) {
            rows[id as usize] = row(id, 1);
            insert(&table, &rows[id as usize]);
        }
        rows.remove(5000);
        table.delete_row(&[DatumRef::Int64(5000)], Durability::Buffered).expect("a delete");
        twin.teach("t", vec![batch(&rows)]);
        check(&twin);
        twin.database.flush().expect("flushed");
        check(&twin);
    }
}

#[test]
fn what_zones_do_not_know_is_left_to_scans() {
    let twin = Twin::new();
    let table = twin.create("t", SCHEMA, Form::Columns);
    let rows: Vec<Vec<Datum>> = (0..ROWS).map(|id| row(id, 0)).collect();
    rows.iter().for_each(|row| insert(&table, row));
    twin.database.compact(&table).expect("compacted");
    twin.teach("t", vec![batch(&rows)]);
    let others = [
        "SELECT min(name), max(name), count(*) FROM t",
        "SELECT count(name), min(id) FROM t",
        "SELECT sum(small), count(*) FROM t",
        "SELECT count(DISTINCT small) FROM t",
        "SELECT count(*) FILTER (WHERE flag), max(small) FROM t",
        "SELECT min(small) FROM t WHERE flag",
        "SELECT min(small + 1) FROM t",
        "SELECT count(small) FROM (SELECT small FROM t ORDER BY id LIMIT 10)",
        "SELECT flag, count(*) FROM t GROUP BY flag",
    ];
    for query in others {
        twin.check(query, false);
        assert!(!twin.plan(query).contains("MyceliumAggregate"), "{query}");
    }
    twin.check("SELECT (SELECT max(day) FROM t), count(*) FROM t WHERE small = (SELECT min(small) FROM t)", true);
}

/// The first and the last row of a range say what its keys lie between, in files of rows and of columns.
#[test]
fn extremes_of_keys_are_those_of_the_first_and_the_last_row() {
    for form in Form::ALL {
        let twin = Twin::new();
        let schema = "day date32 not null, part utf8 not null, n int64, primary key (day, part)";
        let table = twin.create("t", schema, form);
        let mut rows = Vec::new();
        for day in 0..400 {
            for part in ["a", "b\u{e9}", "c"] {
                rows.push((day - 200, part, i64::from(day) % 7));
                let values = [DatumRef::Date32(day - 200), DatumRef::Utf8(part), DatumRef::Int64(i64::from(day) % 7)];
                table.insert_row(&values, Durability::Buffered).expect("a row");
            }
        }
        let batch = |rows: &[(i32, &str, i64)]| {
            let days = rows.iter().map(|row| Some(row.0)).collect::<Date32Array>();
            let parts = rows.iter().map(|row| Some(row.1)).collect::<StringArray>();
            let numbers = rows.iter().map(|row| Some(row.2)).collect::<Int64Array>();
            let columns: Vec<(&str, ArrayRef)> =
                vec![("day", Arc::new(days)), ("part", Arc::new(parts)), ("n", Arc::new(numbers))];
            RecordBatch::try_from_iter(columns).expect("columns of one length")
        };
        twin.database.compact(&table).expect("compacted");
        for _ in 0..2 {
            twin.teach("t", vec![batch(&rows)]);
            for part in ["", " WHERE day >= '1970-02-01'", " WHERE day < '1969-07-01'", " WHERE day > '1990-01-01'"] {
                let query = format!("SELECT min(day), max(day) FROM t{part}");
                twin.check(&query, true);
                assert!(twin.plan(&query).contains("MyceliumAggregate"), "{query}");
                twin.check(&format!("SELECT count(*), max(day), min(n), max(n) FROM t{part}"), true);
                // Not the key's first column.
                twin.check(&format!("SELECT min(part), max(part) FROM t{part}"), true);
            }
            // The first and the last day go, and one comes before all.
            for day in [-200, 199] {
                for part in ["a", "b\u{e9}", "c"] {
                    table
                        .delete_row(&[DatumRef::Date32(day), DatumRef::Utf8(part)], Durability::Buffered)
                        .expect("gone");
                }
                rows.retain(|row| row.0 != day);
            }
            let values = [DatumRef::Date32(-999), DatumRef::Utf8("z"), DatumRef::Int64(9)];
            table.insert_row(&values, Durability::Buffered).expect("a row");
            rows.retain(|row| row.0 != -999);
            rows.push((-999, "z", 9));
        }
    }
}

/// A count of all rows reads the first and the last block of each file, and what is younger.
#[test]
fn a_count_reads_few_blocks() {
    let twin = Twin::new();
    let table = twin.create("t", SCHEMA, Form::Columns);
    (0..ROWS).for_each(|id| insert(&table, &row(id, 0)));
    twin.database.compact(&table).expect("compacted");
    let read = |query: &str| {
        twin.runtime.block_on(async {
            let mut answer = twin.session.query(query).await.expect("a plan");
            while let Some(batch) = answer.next().await {
                batch.expect("rows");
            }
            answer.read_summary()
        })
    };
    let blocks = |query: &str| read(query).blocks_read + read(query).blocks_cached;
    let (told, scanned) = (blocks("SELECT count(*), max(amount) FROM t"), blocks("SELECT sum(amount) FROM t"));
    assert!(told > 0 && told * 2 < scanned, "{told} of {scanned} blocks");
    assert!(read("SELECT count(*), max(amount) FROM t").blocks_skipped > 0);
}

/// The optimizer is told how many values there are.
#[test]
fn estimates_of_distinct_values_reach_the_planner() {
    let twin = Twin::new();
    let table = twin.create("t", SCHEMA, Form::Columns);
    (0..ROWS).for_each(|id| insert(&table, &row(id, 0)));
    twin.database.compact(&table).expect("compacted");
    let estimates = table.distinct_estimates().expect("estimates");
    let within = |column: usize, from: u64, to: u64| {
        let estimate = estimates[column].expect("a columnar file has it");
        assert!((from..=to).contains(&estimate), "column {column}: {estimate}");
    };
    within(1, 20_000, 60_000);
    within(4, 2, 2);
    within(9, 20_000, 60_000);
    assert_eq!(estimates[0], None, "the key is in no group");
    let plan = twin.rows("EXPLAIN (FORMAT TREE) SELECT flag, count(*) FROM t GROUP BY flag").join("\n");
    assert!(plan.contains("MyceliumScan"), "{plan}");
}
