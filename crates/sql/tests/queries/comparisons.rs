//! Comparisons of columns of every type: drawn ones against DataFusion over the same rows in memory, and those of which
//! DataFusion says something else than they read like, as PostgreSQL answers them.

use std::collections::BTreeMap;
use std::sync::Arc;

use mycelium_base::ErrorKind;
use mycelium_encoding::batch::batch_of;
use mycelium_encoding::{Datum, DatumRef, TextArrays};
use mycelium_engine::{Durability, IndexOptions, Table};
use mycelium_sql::datafusion::physical_plan::collect;
use mycelium_sql::datafusion::prelude::SessionContext;
use mycelium_sql::{CATALOG, Catalog};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::twin::{Form, Twin};

const SCHEMA: &str = "k int64 not null, t utf8, x binary, r float32, f float64, d decimal(10, 2), day date32, \
                      s timestamp(s), z timestamp(ms, \"+00:00\"), n timestamp(ns), u uint64, y int8, p bool, \
                      primary key (k)";
const COLUMNS: [&str; 13] = ["k", "t", "x", "r", "f", "d", "day", "s", "z", "n", "u", "y", "p"];
const OPERATORS: [&str; 6] = ["=", "<>", "<", "<=", ">", ">="];

fn seed() -> u64 {
    std::env::var("MYCELIUM_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(68)
}

fn one_of<T: Clone>(random: &mut SmallRng, values: &[T]) -> T {
    values[random.random_range(0..values.len())].clone()
}

fn text(random: &mut SmallRng) -> String {
    one_of(random, &["", "a", "ab", "Ab", "b%", "b_x", "\u{e4}", "z\0z"]).to_owned()
}

fn row(random: &mut SmallRng, k: i64) -> Vec<Datum> {
    let binary: &[u8] = one_of(random, &[&b""[..], b"\0", b"a", b"\xff", b"\xff\0", b"\xff\xff"]);
    let values = [
        Datum::Utf8(text(random)),
        Datum::Binary(binary.to_vec()),
        Datum::Float32(one_of(random, &[0.0, -0.0, 1.5, -2.25, f32::NAN, f32::INFINITY])),
        Datum::Float64(one_of(random, &[0.0, -0.0, 1.5, -2.25, f64::NAN, f64::NEG_INFINITY])),
        Datum::Decimal128(random.random_range(-500..500)),
        Datum::Date32(one_of(random, &[-1, 0, 18_990, 19_000, 19_010, 2_932_896])),
        Datum::Timestamp(random.random_range(480..520)),
        Datum::Timestamp(random.random_range(0..6) * 500),
        Datum::Timestamp(random.random_range(0..6) * 250),
        Datum::UInt64(one_of(random, &[0, 1, i64::MAX as u64, u64::MAX])),
        Datum::Int8(one_of(random, &[i8::MIN, -1, 0, 1, 2, i8::MAX])),
        Datum::Bool(random.random()),
    ];
    let values = values.into_iter().map(|value| if random.random_ratio(1, 6) { Datum::Null } else { value });
    [Datum::Int64(k)].into_iter().chain(values).collect()
}

fn borrowed(row: &[Datum]) -> Vec<DatumRef<'_>> {
    row.iter().map(Datum::borrowed).collect()
}

fn fill<'v>(table: &Table, rows: impl IntoIterator<Item = Vec<DatumRef<'v>>>) {
    for row in rows {
        table.insert_row(&row, Durability::Buffered).expect("in memory");
    }
}

/// A table with rows in files, over them, patched and deleted, two indexes, and the same rows in memory.
fn written(random: &mut SmallRng, form: Form) -> Twin {
    let twin = Twin::new();
    let table = twin.create("t", SCHEMA, form);
    for (name, on) in [("by_t", &["t"][..]), ("by_d_day", &["d", "day"])] {
        let on = on.iter().map(ToString::to_string).collect();
        let options = IndexOptions { name: name.into(), on, ..IndexOptions::default() };
        twin.database.create_index(&table, &options).expect("a new index");
    }
    let mut rows: BTreeMap<i64, Vec<Datum>> = BTreeMap::new();
    for round in 0..3 {
        for _ in 0..120 {
            let k = random.random_range(-20..180);
            let row = row(random, k);
            table.insert_row(&borrowed(&row), Durability::Buffered).expect("in memory");
            rows.insert(k, row);
        }
        for _ in 0..20 {
            let (k, value) = (random.random_range(-20..180), text(random));
            let key = [DatumRef::Int64(k)];
            if random.random() {
                table.delete_row(&key, Durability::Buffered).expect("in memory");
                rows.remove(&k);
            } else {
                table.patch_row(&key, &[("t", DatumRef::Utf8(&value))], Durability::Buffered).expect("in memory");
                if let Some(known) = rows.get_mut(&k) {
                    known[1] = Datum::Utf8(value);
                }
            }
        }
        if round == 1 {
            twin.database.flush().expect("in memory");
            twin.database.compact(&table).expect("in memory");
        }
    }
    let columns = table.schema().expect("a typed table").columns().to_vec();
    let batch =
        batch_of(&columns, TextArrays::Plain, rows.values().map(|row| borrowed(row))).expect("rows of the table");
    twin.teach("t", vec![batch]);
    twin
}

/// A predicate over this column.
fn atom(random: &mut SmallRng, column: &str) -> String {
    let operator = one_of(random, &OPERATORS);
    let number = random.random_range(-25..200);
    let any_null = format!("{column} IS {}NULL", one_of(random, &["", "NOT "]));
    let choices: Vec<String> = match column {
        "k" => vec![
            format!("k {operator} {number}"),
            format!("k + 1 {operator} {number}"),
            format!("k BETWEEN {number} AND {}", number - 9),
            format!("k IN ({number}, {}, {})", number + 3, number - 50),
            format!("k NOT IN ({number}, 7, 8, 9)"),
            format!("k % 7 {operator} 3"),
        ],
        "t" => vec![
            format!("t {operator} '{}'", text(random)),
            one_of(random, &["t LIKE 'a%'", "t NOT LIKE 'a%'", "t LIKE '%b'", "t LIKE 'b\\_%'", "t LIKE '_'"]).into(),
            one_of(random, &["t ILIKE 'A%'", "t ILIKE 'ab'", "t BETWEEN 'b' AND 'a'", "t LIKE '%'"]).into(),
            one_of(random, &["t IN ('a', 'ab')", "t NOT IN ('a', 'ab', '', 'b%')", "(t IS DISTINCT FROM 'a')"]).into(),
        ],
        "x" => vec![format!("x {operator} X'{}'", one_of(random, &["00", "61", "ff", "ff00", "ffff"]))],
        "r" => vec![
            format!("r {operator} {}", one_of(random, &["1", "1.5", "-2.25", "0.1", "CAST('NaN' AS REAL)"])),
            "r IN (1.5, -2.25, 3, 4)".into(),
        ],
        "f" => vec![
            format!("f {operator} {}", one_of(random, &["1", "1.5", "-0.0", "0", "CAST('NaN' AS DOUBLE)"])),
            "f BETWEEN 2 AND -3".into(),
            "f NOT BETWEEN -3 AND 1.5".into(),
        ],
        "d" => vec![
            format!("d {operator} {}", one_of(random, &["3", "-1", "CAST('1.05' AS DECIMAL(10, 2))"])),
            "d BETWEEN 3 AND -3".into(),
            "d IN (1, -2, CAST('0.07' AS DECIMAL(10, 2)))".into(),
        ],
        "day" => vec![
            format!("day {operator} DATE '{}'", one_of(random, &["1970-01-01", "2022-01-08", "9999-12-31"])),
            "day BETWEEN DATE '2022-02-01' AND DATE '2021-01-01'".into(),
        ],
        "s" => vec![format!("s {operator} TIMESTAMP '1970-01-01 00:08:20'")],
        "z" => vec![format!("z {operator} TIMESTAMP '1970-01-01 00:00:01.5'")],
        "n" => vec![format!("n {operator} TIMESTAMP '1970-01-01 00:00:00.000000500'")],
        "u" => vec![
            format!("u {operator} {}", one_of(random, &["1", "9223372036854775807", "18446744073709551615"])),
            "u > -1".into(),
        ],
        "y" => {
            vec![format!("y {operator} {}", one_of(random, &["-128", "0", "127", "1000"])), "y IN (1, 2, NULL)".into()]
        }
        _ => vec![one_of(random, &["p", "NOT p", "p IS NOT TRUE", "p IS UNKNOWN", "p = false"]).into()],
    };
    if random.random_ratio(1, 8) { any_null } else { one_of(random, &choices) }
}

/// Predicates over some columns, of each at most one: of several lists DataFusion forgets nulls.
fn predicate(random: &mut SmallRng) -> String {
    let mut columns = COLUMNS.to_vec();
    let mut text = String::new();
    for at in 0..random.random_range(1..5) {
        let column = columns.remove(random.random_range(0..columns.len()));
        let atom = atom(random, column);
        let atom = if random.random_ratio(1, 5) { format!("NOT ({atom})") } else { atom };
        text = match at {
            0 => atom,
            _ if random.random_ratio(1, 4) => format!("({text} OR {atom})"),
            _ => format!("{text} AND {atom}"),
        };
    }
    text
}

#[test]
fn drawn_predicates_on_columns_of_every_type_answer_as_over_memory() {
    for form in Form::ALL {
        let seed = seed();
        println!("MYCELIUM_TEST_SEED={seed} {form:?}");
        let random = &mut SmallRng::seed_from_u64(seed);
        let twin = written(random, form);
        let mut found = 0;
        for _ in 0..150 {
            let filter = predicate(random);
            let (query, is_ordered) = match random.random_range(0..8) {
                0 | 1 => (format!("SELECT * FROM t WHERE {filter}"), false),
                2 => (format!("SELECT count(*) FROM t WHERE {filter}"), false),
                3 => (format!("SELECT count(*) FROM (SELECT 1 FROM t WHERE {filter} LIMIT 7 OFFSET 3)"), false),
                4 => (format!("SELECT k, t FROM t WHERE {filter} ORDER BY k LIMIT 5"), true),
                5 => (format!("SELECT t, count(*), min(d), max(n) FROM t WHERE {filter} GROUP BY t"), false),
                6 => (format!("SELECT k + 1 AS w, x FROM t WHERE {filter} ORDER BY w LIMIT 4 OFFSET 1"), true),
                _ => {
                    let side = format!("(SELECT * FROM t WHERE {filter})");
                    (format!("SELECT a.k, b.k FROM {side} a JOIN t b ON a.t = b.t AND a.day = b.day"), false)
                }
            };
            found += twin.check(&query, is_ordered);
        }
        assert!(found > 500, "{found} rows in all");
    }
}

/// The cast was moved to the literal: 5.30 was not found as 5, and was more than 5.
#[test]
fn a_cast_that_loses_something_stays_where_it_is() {
    const LARGE: i64 = 1_000_000_000_000;
    let twin = Twin::new();
    let table = twin.create("t", "k int64 not null, v decimal(8, 2), i int64, primary key (k)", Form::Columns);
    let row = |k, v, i| vec![DatumRef::Int64(k), DatumRef::Decimal128(v), DatumRef::Int64(i)];
    fill(&table, [row(1, 530, 5), row(2, 500, LARGE), row(3, -530, -LARGE)]);
    fill(&table, [vec![DatumRef::Int64(4), DatumRef::Null, DatumRef::Null]]);
    let found = |predicate: &str| twin.rows(&format!("SELECT k FROM t WHERE {predicate} ORDER BY k")).concat();
    for ty in ["INT", "BIGINT", "DECIMAL(8, 0)"] {
        assert_eq!(found(&format!("CAST(v AS {ty}) = 5")), "12", "{ty}");
        assert_eq!(found(&format!("CAST(v AS {ty}) > 5")), "", "{ty}");
        assert_eq!(found(&format!("-5 = CAST(v AS {ty})")), "3", "{ty}");
        assert_eq!(found(&format!("CAST(v AS {ty}) IN (5, 7)")), "12", "{ty}");
        assert_eq!(found(&format!("CAST(v AS {ty}) NOT IN (5, 7, 8, 9)")), "3", "{ty}");
    }
    assert_eq!(found("TRY_CAST(i AS INT) < 6"), "1");
    assert_eq!(found("TRY_CAST(i AS INT) IS NULL"), "234");
    assert_eq!(twin.rows("SELECT k FROM (SELECT k, CAST(v AS INT) AS w FROM t) WHERE w = 5 ORDER BY k"), ["1", "2"]);
    assert_eq!(
        twin.rows("SELECT CAST(v AS INT), count(*) FROM t GROUP BY CAST(v AS INT) ORDER BY 1"),
        ["-5 | 1", "5 | 2", "null | 1"]
    );
    // One that loses nothing still is storage's to decide.
    assert!(twin.plan("SELECT k FROM t WHERE CAST(k AS DECIMAL(20, 0)) = 3").contains("look-ups=(3)"));
}

/// Moments of seconds, of nanoseconds and dates, some of them after 2262, where nanoseconds end.
fn moments() -> Twin {
    let twin = Twin::new();
    let schema = "k int64 not null, s timestamp(s), n timestamp(ns), day date32, primary key (k)";
    let table = twin.create("t", schema, Form::Columns);
    let row = |k, s, n, day| vec![DatumRef::Int64(k), DatumRef::Timestamp(s), n, DatumRef::Date32(day)];
    fill(
        &table,
        [
            row(0, 0, DatumRef::Timestamp(500_000_000), 0),
            row(1, 1, DatumRef::Timestamp(1_000_000_000), 1),
            row(2, 32_503_680_000, DatumRef::Null, 376_200),
        ],
    );
    twin
}

/// A literal between two seconds was cut off to the one before it where seconds were cast, as in a `UNION`, or was
/// compared with the type of the first of several values.
#[test]
fn seconds_that_become_nanoseconds_are_compared_as_those() {
    let twin = moments();
    let either = "SELECT k, s AS m FROM t WHERE k < 2 UNION ALL SELECT k + 10, n FROM t";
    let united =
        |predicate: &str| twin.rows(&format!("SELECT k FROM ({either}) WHERE {predicate} ORDER BY k")).join(" ");
    assert_eq!(united("m = timestamp '1970-01-01 00:00:00.5'"), "10");
    assert_eq!(united("m > timestamp '1970-01-01 00:00:00.5'"), "1 11");
    assert_eq!(united("m <= timestamp '1970-01-01 00:00:00.5'"), "0 10");
    assert_eq!(united("m = timestamp '1970-01-01 00:00:01'"), "1 11");
    let found = |predicate: &str| twin.rows(&format!("SELECT k FROM t WHERE {predicate} ORDER BY k")).concat();
    assert_eq!(found("CASE WHEN k = 1 THEN s ELSE n END = timestamp '1970-01-01 00:00:00.5'"), "0");
    let cast = |operator: &str| format!("CAST(s AS TIMESTAMP) {operator} timestamp '1970-01-01 00:00:00.5'");
    assert_eq!(found(&format!("k < 2 AND {}", cast("="))), "");
    assert_eq!(found(&format!("k < 2 AND {}", cast(">="))), "1");
    assert_eq!(found(&format!("k < 2 AND {}", cast("<>"))), "01");
    // The column's own ticks are what storage is asked of.
    let plan = twin.plan(&format!("SELECT k FROM t WHERE {}", cast(">")));
    assert!(!plan.contains("FilterExec"), "{plan}");
}

/// Both became nanoseconds, which end in 2262: an error.
#[test]
fn seconds_and_dates_beside_nanoseconds_are_compared_after_2262() {
    let twin = moments();
    let found = |predicate: &str| twin.rows(&format!("SELECT k FROM t WHERE {predicate} ORDER BY k")).concat();
    assert_eq!(found("s <= n"), "01");
    assert_eq!(found("s = n"), "1");
    assert_eq!(found("n BETWEEN s AND s"), "1");
    assert_eq!(found("day = s"), "02");
    assert_eq!(found("day > n"), "1");
    assert_eq!(found("s IN (SELECT n FROM t)"), "1");
    assert_eq!(found("s IN (n, day)"), "012");
    assert_eq!(twin.rows("SELECT a.k, b.k FROM t a JOIN t b ON a.s = b.n"), ["1 | 1"]);
    let using = "SELECT count(*) FROM (SELECT s AS m FROM t) a JOIN (SELECT n AS m FROM t) b USING (m)";
    assert_eq!(twin.rows(using), ["1"]);
    assert_eq!(twin.rows("SELECT s FROM t INTERSECT SELECT n FROM t"), ["1970-01-01T00:00:01"]);
    let either = "SELECT day AS m FROM t UNION ALL SELECT s FROM t";
    let late = format!("SELECT count(*) FROM ({either}) WHERE m > timestamp '2999-12-31 00:00:00'");
    assert_eq!(twin.rows(&late), ["2"]);
}

/// The float became a decimal of fifteen places: NaN and 1e300 were errors, and 1e-20 was 0.
#[test]
fn decimals_beside_floats_are_doubles() {
    let twin = Twin::new();
    let table = twin.create("t", "k int64 not null, d decimal(10, 2), f float64, primary key (k)", Form::Columns);
    let row = |k, d, f| vec![DatumRef::Int64(k), DatumRef::Decimal128(d), DatumRef::Float64(f)];
    fill(&table, [row(1, 10, 0.1), row(2, 30, 0.1 + 0.2), row(3, 100, f64::NAN), row(4, 100, 1e300), row(5, 0, 1e-20)]);
    fill(&table, [vec![DatumRef::Int64(6), DatumRef::Null, DatumRef::Float64(1.0)]]);
    let found = |predicate: &str| twin.rows(&format!("SELECT k FROM t WHERE {predicate} ORDER BY k")).concat();
    assert_eq!(found("d = f"), "1");
    assert_eq!(found("d < f"), "2345");
    assert_eq!(found("f BETWEEN d AND d"), "1");
    assert_eq!(found("d IN (f, 7)"), "1");
    assert_eq!(found("CASE f WHEN d THEN true END"), "1");
    assert_eq!(found("nullif(f, d) IS NULL"), "1");
    assert_eq!(found("coalesce(f, d) = 1e-20"), "5");
    assert_eq!(found("CASE WHEN k > 2 THEN d ELSE f END = 0.1"), "1");
    assert_eq!(found("f IN (SELECT d FROM t)"), "16");
    assert_eq!(twin.rows("SELECT count(*) FROM t a JOIN t b ON a.d = b.f"), ["3"]);
    let either = "SELECT d AS x FROM t UNION ALL SELECT f FROM t";
    assert_eq!(twin.rows(&format!("SELECT count(*) FROM ({either}) WHERE x > 0 AND x < 0.00001")), ["1"]);
    // Literals alone are no floats: here the nearest decimal is meant.
    assert_eq!(found("d >= 0.2 + 0.1 AND d < 1"), "2");
}

/// Both became floats of 32 bits.
#[test]
fn integers_beside_small_floats_keep_their_digits() {
    let twin = Twin::new();
    let table = twin.create("t", "k int64 not null, r float32, primary key (k)", Form::Rows);
    fill(&table, [vec![DatumRef::Int64(16_777_217), DatumRef::Float32(16_777_216.0)]]);
    let count = |predicate: &str| twin.rows(&format!("SELECT count(*) FROM t WHERE {predicate}")).concat();
    assert_eq!(count("r = 16777217"), "0");
    assert_eq!(count("r = 16777216"), "1");
    assert_eq!(count("k = r"), "0");
    assert_eq!(count("k > r"), "1");
    assert_eq!(count("r IN (1, 2, 3, 16777217)"), "0");
    assert_eq!(count("r IN (1, 2, 3, 16777216)"), "1");
}

/// A list of more than three values was compared by bits.
#[test]
fn a_zero_in_a_list_has_both_signs() {
    let twin = Twin::new();
    let table = twin.create("t", "k int64 not null, f float64, primary key (k)", Form::Columns);
    let values = [-0.0, 0.0, 1.5, f64::NAN].map(DatumRef::Float64).into_iter().chain([DatumRef::Null]);
    fill(&table, (1..).zip(values).map(|(k, value)| vec![DatumRef::Int64(k), value]));
    let found = |predicate: &str| twin.rows(&format!("SELECT k FROM t WHERE {predicate} ORDER BY k")).concat();
    assert_eq!(found("f IN (0.0, 1.5, 2.5, 7.5)"), "123");
    assert_eq!(found("f IN (-0.0, 3.5, 2.5, 7.5)"), "12");
    assert_eq!(found("f IN (0, 1, 2, 3)"), "12");
    assert_eq!(found("f NOT IN (0.0, 2.5, 3.5, 7.5)"), "34");
}

/// The lists stood in a subquery and beside it, and met when the optimizer put both together.
#[test]
fn lists_that_meet_later_do_not_forget_nulls() {
    let twin = Twin::new();
    let table = twin.create("t", "k int64 not null, v int32, primary key (k)", Form::Rows);
    let values = [DatumRef::Int32(1), DatumRef::Int32(2), DatumRef::Null];
    fill(&table, (1..).zip(values).map(|(k, v)| vec![DatumRef::Int64(k), v]));
    let told = |told: &str, p: &str, q: &str| {
        twin.rows(&format!("SELECT {told} FROM (SELECT k, {p} AS p, {q} AS q FROM t) ORDER BY k"))
    };
    assert_eq!(told("p AND q", "v IN (1, 2)", "v IN (3)"), ["false", "false", "null"]);
    assert_eq!(told("p OR q", "v NOT IN (1)", "v NOT IN (2)"), ["true", "true", "null"]);
    assert_eq!(told("p AND q", "v IN (1, 2, 5, 6)", "v IN (3, 7, 8, 9)"), ["false", "false", "null"]);
    assert_eq!(told("p OR q", "v NOT IN (1, 5, 6, 7)", "v NOT IN (2, 8, 9, 10)"), ["true", "true", "null"]);
    assert_eq!(told("(p AND q) IS NULL", "v IN (1, 2)", "v IN (3)"), ["false", "false", "true"]);
    let found = |predicate: &str, p: &str, q: &str| {
        let rows = format!("SELECT k, {p} AS p, {q} AS q FROM t");
        twin.rows(&format!("SELECT k FROM ({rows}) WHERE {predicate} ORDER BY k")).concat()
    };
    assert_eq!(found("p OR q", "v NOT IN (1)", "v NOT IN (2)"), "12");
    assert_eq!(found("p OR q", "v NOT IN (1, 5, 6, 7)", "v NOT IN (2, 8, 9, 10)"), "12");
    assert_eq!(found("NOT (p AND q)", "v IN (1, 2)", "v IN (3)"), "12");
    assert_eq!(found("p AND q", "v IN (1, 2)", "v IN (2, 3)"), "2");
}

/// What left was taken away from the sums of squares, and what rounding had lost stayed lost.
#[test]
fn statistics_over_a_moving_frame_forget_what_left_it() {
    let twin = Twin::new();
    let table = twin.create("t", "k int64 not null, f float64, g float64, primary key (k)", Form::Rows);
    let random = &mut SmallRng::seed_from_u64(seed());
    let value = |random: &mut SmallRng| match random.random_range(0..6) {
        0 => DatumRef::Null,
        _ => DatumRef::Float64(f64::from(random.random_range(-9..9))),
    };
    let row = |k, f, g| vec![DatumRef::Int64(k), DatumRef::Float64(f), DatumRef::Float64(g)];
    fill(&table, [row(0, 1e160, f64::INFINITY), row(1, 1.0, 2.0)]);
    fill(&table, (2..60).map(|k| vec![DatumRef::Int64(k), value(random), value(random)]));
    let numbers = |query: String| -> Vec<Option<f64>> {
        let number = |row: &String| (row != "null").then(|| row.parse().expect("a number"));
        twin.rows(&query).iter().map(number).collect()
    };
    let moving = |call: String| {
        let frame = "ORDER BY k ROWS BETWEEN 6 PRECEDING AND CURRENT ROW";
        numbers(format!("SELECT {call} OVER ({frame}) FROM t ORDER BY k"))
    };
    let still = |call: String| {
        let frames = "t a JOIN t b ON b.k BETWEEN a.k - 6 AND a.k";
        numbers(format!("SELECT {call} FROM {frames} WHERE a.k > 6 GROUP BY a.k ORDER BY a.k"))
    };
    let of_one = ["var", "var_pop", "stddev", "stddev_pop"].map(|function| (function, false));
    let of_two = ["covar_samp", "covar_pop", "corr", "regr_slope", "regr_intercept", "regr_r2"];
    let of_pairs = ["regr_avgx", "regr_avgy", "regr_sxx", "regr_syy", "regr_sxy"];
    let of_two = of_two.into_iter().chain(of_pairs).map(|function| (function, true));
    for (function, has_two) in of_one.into_iter().chain(of_two) {
        let [here, joined] = if has_two { ["f, g", "b.f, b.g"] } else { ["f", "b.f"] };
        let (moving, still) = (moving(format!("{function}({here})")), still(format!("{function}({joined})")));
        assert_eq!(moving.len(), still.len() + 7, "{function}");
        for (at, (moving, still)) in moving[7..].iter().zip(&still).enumerate() {
            let is_same = match (moving, still) {
                (Some(one), Some(other)) => (one - other).abs() < 1e-6 * (1.0 + other.abs()),
                (one, other) => one.is_none() && other.is_none(),
            };
            assert!(is_same, "{function} at {at}: {moving:?}, and not {still:?}");
        }
    }
    let with_infinity = moving("stddev(g)".to_owned());
    assert!(with_infinity[3].is_some_and(f64::is_nan), "{with_infinity:?}");
}

/// A checked formula had no order, so that what is sorted by its key was sorted again.
#[test]
fn sums_of_keys_are_in_the_order_of_the_keys() {
    let twin = Twin::new();
    let table = twin.create("t", "a int64 not null, b int64 not null, v int32, primary key (a, b)", Form::Rows);
    fill(
        &table,
        (0..40).map(|n| vec![DatumRef::Int64(n / 4), DatumRef::Int64(n % 4 * 7 % 4), DatumRef::Int32(n as i32)]),
    );
    for query in [
        "SELECT a + 1 AS x FROM t ORDER BY x LIMIT 3",
        "SELECT v, a + 1 AS x FROM t ORDER BY a + 1 LIMIT 3",
        "SELECT a + 1 AS x, b FROM t ORDER BY x, b LIMIT 3",
        "SELECT 5 - a AS x FROM t ORDER BY x DESC LIMIT 3",
        "SELECT a, b, v + 1 AS x FROM t ORDER BY a, b LIMIT 3",
    ] {
        let plan = twin.plan(query);
        assert!(!plan.contains("SortExec"), "{query}\n{plan}");
    }
    assert_eq!(
        twin.rows("SELECT a + 1 AS x, b FROM t ORDER BY x, b LIMIT 5"),
        ["1 | 0", "1 | 1", "1 | 2", "1 | 3", "2 | 0"]
    );
    assert!(twin.plan("SELECT a * 2 AS x, b FROM t ORDER BY a - b").contains("SortExec"));
}

/// Intervals were compared months first, then days, then hours: 25 hours were less than a day.
#[test]
fn intervals_are_compared_by_their_lengths() {
    const DAY: i64 = 86_400;
    let twin = Twin::new();
    let table = twin.create("t", "k int64 not null, s timestamp(s), e timestamp(s), primary key (k)", Form::Columns);
    let row = |k, length| vec![DatumRef::Int64(k), DatumRef::Timestamp(1_000), DatumRef::Timestamp(1_000 + length)];
    fill(&table, [row(1, DAY + 3_600), row(2, DAY - 3_600), row(3, 45 * DAY), row(4, -DAY)]);
    fill(&table, [vec![DatumRef::Int64(5), DatumRef::Timestamp(0), DatumRef::Null]]);
    let found = |predicate: &str| twin.rows(&format!("SELECT k FROM t WHERE {predicate} ORDER BY k")).concat();
    assert_eq!(found("e - s > interval '1 day'"), "13");
    assert_eq!(found("interval '1 day' >= e - s"), "24");
    assert_eq!(found("e - s < interval '1 month'"), "124");
    assert_eq!(found("e - s = interval '1 day 1 hour'"), "1");
    assert_eq!(found("e - s <> interval '25 hours'"), "234");
    assert_eq!(found("e - s BETWEEN interval '0 days' AND interval '2 days'"), "12");
    assert_eq!(found("e - s IN (interval '25 hours', interval '1 month 15 days')"), "13");
    assert_eq!(found("e - s NOT IN (interval '25 hours', interval '23 hours')"), "34");
    assert_eq!(found("e - s < s - e"), "4");
    let told = |comparison: &str| twin.rows(&format!("SELECT {comparison}")).concat();
    assert_eq!(told("interval '24 hours' = interval '1 day'"), "true");
    assert_eq!(told("interval '1 month' > interval '31 days'"), "false");
    assert_eq!(told("interval '1 month' = interval '30 days'"), "true");
}

/// What stood behind the point was cut off.
#[test]
fn casts_to_integers_round() {
    let twin = Twin::new();
    let table =
        twin.create("t", "k int64 not null, f float64, r float32, d decimal(6, 2), primary key (k)", Form::Rows);
    let values = [(1, 1.5, 150), (2, 2.5, 250), (3, -1.7, -170), (4, 0.4, 49), (5, -2.5, -250)];
    fill(
        &table,
        values.map(|(k, f, d)| {
            vec![DatumRef::Int64(k), DatumRef::Float64(f), DatumRef::Float32(f as f32), DatumRef::Decimal128(d)]
        }),
    );
    fill(&table, [vec![DatumRef::Int64(6), DatumRef::Null, DatumRef::Null, DatumRef::Null]]);
    // Floats half to even, decimals half away from zero, as PostgreSQL.
    let cast = "SELECT CAST(f AS INT) AS a, CAST(r AS BIGINT) AS b, CAST(d AS INT) AS c, TRY_CAST(f AS INT) AS e FROM t \
                ORDER BY k";
    let expected = ["2 | 2 | 2 | 2", "2 | 2 | 3 | 2", "-2 | -2 | -2 | -2", "0 | 0 | 0 | 0", "-2 | -2 | -3 | -2"]
        .map(str::to_owned);
    let rows = twin.rows(cast);
    assert_eq!((&rows[..5], rows[5].as_str()), (&expected[..], "null | null | null | null"));
    let found = |predicate: &str| twin.rows(&format!("SELECT k FROM t WHERE {predicate} ORDER BY k")).concat();
    assert_eq!(found("CAST(f AS INT) = 2"), "12");
    assert_eq!(found("CAST(d AS INT) = 3"), "2");
    assert_eq!(found("k = CAST(2.5 AS BIGINT)"), "3", "a decimal, as it is written");
    assert_eq!(found("f IN (CAST(0.7 AS INT), 0.4, 7, 8)"), "4");
    assert_eq!(twin.rows("SELECT CAST(1.7 AS INT), CAST(-1.5 AS INT), CAST('3' AS INT)"), ["2 | -2 | 3"]);
    let failing = twin
        .runtime
        .block_on(async { twin.session.query("SELECT CAST(f * 1e300 AS INT) FROM t").await?.collect().await });
    assert!(failing.is_err(), "out of range");
}

/// Bits were counted: both zeros, and every NaN.
#[test]
fn floats_that_are_equal_count_once() {
    let twin = Twin::new();
    let table = twin.create("t", "k int64 not null, f float64, primary key (k)", Form::Columns);
    let values = [0.0, -0.0, 1.5, f64::NAN, -f64::NAN].map(DatumRef::Float64).into_iter().chain([DatumRef::Null]);
    fill(&table, (1..).zip(values).map(|(k, value)| vec![DatumRef::Int64(k), value]));
    assert_eq!(twin.rows("SELECT count(DISTINCT f) FROM t"), ["3"]);
    assert_eq!(twin.rows("SELECT count(DISTINCT f), count(DISTINCT k) FROM t"), ["3 | 6"]);
    assert_eq!(twin.rows("SELECT avg(DISTINCT f), count(DISTINCT k) FROM t WHERE k < 4"), ["0.75 | 3"]);
    assert_eq!(
        twin.rows("SELECT k % 2, count(DISTINCT f), count(DISTINCT k) FROM t WHERE k < 4 GROUP BY k % 2 ORDER BY 1"),
        ["0 | 1 | 1", "1 | 2 | 2"]
    );
    let having = "SELECT count(DISTINCT f) AS n, count(DISTINCT k) FROM t HAVING count(DISTINCT f) = 3 ORDER BY n";
    assert_eq!(twin.rows(having), ["3 | 6"]);
    let partitions = "SELECT k, count(*) OVER (PARTITION BY f) FROM t ORDER BY k";
    assert_eq!(twin.rows(partitions), ["1 | 2", "2 | 2", "3 | 1", "4 | 2", "5 | 2", "6 | 1"]);
}

/// They were cut off to whole ones.
#[test]
fn seconds_have_what_is_behind_the_point() {
    let twin = Twin::new();
    let table = twin.create("t", "k int64 not null, u timestamp(us), s timestamp(s), primary key (k)", Form::Rows);
    let row = |k, micros, second| vec![DatumRef::Int64(k), DatumRef::Timestamp(micros), DatumRef::Timestamp(second)];
    fill(&table, [row(1, 88_500_001, 88), row(2, 28_000_000, 28)]);
    fill(&table, [vec![DatumRef::Int64(3), DatumRef::Null, DatumRef::Null]]);
    let parts = "SELECT EXTRACT(SECOND FROM u), date_part('milliseconds', u), EXTRACT(MICROSECOND FROM u), \
                 EXTRACT(SECOND FROM s), EXTRACT(MINUTE FROM u) FROM t ORDER BY k";
    let expected = [
        "28.500001 | 28500.001 | 28500001 | 28.000000 | 1",
        "28.000000 | 28000.000 | 28000000 | 28.000000 | 0",
        "null | null | null | null | null",
    ];
    assert_eq!(twin.rows(parts), expected);
    let found = |predicate: &str| twin.rows(&format!("SELECT k FROM t WHERE {predicate} ORDER BY k")).concat();
    assert_eq!(found("EXTRACT(SECOND FROM u) > 28.5"), "1");
    assert_eq!(found("EXTRACT(SECOND FROM u) = 28"), "2");
    assert_eq!(found("EXTRACT(SECOND FROM s) IN (28, 7)"), "12");
}

/// The ends of a year that nanoseconds do not reach were null, and with them all comparisons.
#[test]
fn years_beyond_nanoseconds_are_compared() {
    let twin = Twin::new();
    let table = twin.create("t", "k int64 not null, n timestamp(ns), primary key (k)", Form::Columns);
    let moments = [0, i64::MAX - 7, i64::MIN + 7].map(DatumRef::Timestamp).into_iter().chain([DatumRef::Null]);
    fill(&table, (1..).zip(moments).map(|(k, moment)| vec![DatumRef::Int64(k), moment]));
    let found = |predicate: &str| twin.rows(&format!("SELECT k FROM t WHERE {predicate} ORDER BY k")).concat();
    let year = "EXTRACT(YEAR FROM n)";
    for (operator, far, last, first, early) in [
        ("=", "", "2", "3", ""),
        ("<>", "123", "13", "12", "123"),
        ("<", "123", "13", "", ""),
        ("<=", "123", "123", "3", ""),
        (">", "", "", "12", "123"),
        (">=", "", "2", "123", "123"),
    ] {
        assert_eq!(found(&format!("{year} {operator} 3000")), far, "{operator}");
        assert_eq!(found(&format!("date_part('year', n) {operator} 2262")), last, "{operator}");
        assert_eq!(found(&format!("{year} {operator} 1677")), first, "{operator}");
        assert_eq!(found(&format!("{year} {operator} -5")), early, "{operator}");
    }
    assert_eq!(found(&format!("{year} = 1970")), "1");
    assert_eq!(found(&format!("3000 > {year}")), "123");
    assert_eq!(found(&format!("{year} BETWEEN 1600 AND 2262")), "123");
    assert_eq!(found(&format!("{year} IN (1677, 3000)")), "3");
    assert_eq!(found(&format!("{year} NOT IN (1970, 3000, 100000)")), "23");
    assert_eq!(found(&format!("({year} IS DISTINCT FROM 3000)")), "1234");
}

#[test]
fn days_and_hours_are_stretches_of_moments() {
    const DAY: i64 = 86_400_000_000;
    let twin = Twin::new();
    let schema = "k int64 not null, u timestamp(us), z timestamp(us, \"+00:00\"), primary key (k)";
    let table = twin.create("t", schema, Form::Columns);
    let moments = [18_262 * DAY, 18_263 * DAY - 1, 18_263 * DAY, -3_600_000_000].map(DatumRef::Timestamp);
    let moments = moments.into_iter().chain([DatumRef::Null]);
    fill(&table, (1..).zip(moments).map(|(k, moment)| vec![DatumRef::Int64(k), moment, moment]));
    let found = |predicate: &str| twin.rows(&format!("SELECT k FROM t WHERE {predicate} ORDER BY k")).concat();
    for (operator, expected) in [("=", "12"), ("<>", "34"), ("<", "4"), ("<=", "124"), (">", "3"), (">=", "123")] {
        assert_eq!(found(&format!("date_trunc('day', u) {operator} timestamp '2020-01-01'")), expected, "{operator}");
        assert_eq!(found(&format!("date_trunc('DAY', u) {operator} date '2020-01-01'")), expected, "{operator}");
        assert_eq!(found(&format!("date_trunc('day', z) {operator} timestamp '2020-01-01'")), expected, "{operator}");
    }
    assert_eq!(found("date_trunc('day', u) = '2020-01-01'"), "12");
    assert_eq!(found("timestamp '1969-12-31 23:00:00' = date_trunc('hour', u)"), "4");
    assert_eq!(found("date_trunc('second', u) >= timestamp '2020-01-01 23:59:59'"), "23");
    assert_eq!(found("date_trunc('day', u) IN (timestamp '2020-01-02', timestamp '1969-12-31')"), "34");
    assert_eq!(found("date_trunc('day', u) BETWEEN timestamp '1970-01-01' AND timestamp '2020-01-01'"), "12");
    assert_eq!(found("(date_trunc('day', u) IS DISTINCT FROM timestamp '2020-01-01')"), "345");
    // No day begins then, and months have no one length.
    assert_eq!(found("date_trunc('day', u) = timestamp '2020-01-01 01:00:00'"), "");
    assert_eq!(found("date_trunc('day', u) > timestamp '2020-01-01 01:00:00'"), "3");
    assert_eq!(found("date_trunc('month', u) = timestamp '2020-01-01'"), "123");
    let plan = twin.plan("SELECT k FROM t WHERE date_trunc('day', u) = timestamp '2020-01-01'");
    assert!(!plan.contains("FilterExec"), "{plan}");
}

/// What bounds a column is asked of storage, and tested again.
#[test]
fn predicates_that_bound_a_column_answer_as_over_memory() {
    for form in Form::ALL {
        let twin = written(&mut SmallRng::seed_from_u64(seed()), form);
        let mut found = 0;
        for filter in [
            "k BETWEEN 3 AND 9 OR k BETWEEN 120 AND 130",
            "(k = 3 AND y > 0) OR (k = 40 AND p) OR k = 41",
            "(k = 3 OR k > 170) AND NOT (k > 100 AND k < 110)",
            "k < 10 OR k IS NULL OR k >= 150",
            "t LIKE 'a%b' OR t = 'ab'",
            "t LIKE 'a%b'",
            "t LIKE 'b\\_%'",
            "t LIKE 'b\\%'",
            "t NOT LIKE 'b\\%'",
            "t LIKE 'a_' OR t LIKE 'b%x'",
            "starts_with(t, 'b_')",
            "starts_with(t, 'b%')",
            "d < 0 AND day > DATE '2022-01-01' OR d BETWEEN 3 AND 4",
            "n IS NULL OR n > TIMESTAMP '1970-01-01 00:00:00.000000500'",
            "(u = 1 OR u > 5) AND k > 50",
            "f > 1 AND k < 90 OR f < -1",
            "(y = 1 AND f > 0) OR (y = 2 AND f < 0) OR (y = 0 AND r > 1)",
        ] {
            found += twin.check(&format!("SELECT * FROM t WHERE {filter}"), false);
            found += twin.check(&format!("SELECT count(*) FROM t WHERE {filter}"), false);
        }
        assert!(found > 100, "{found} rows in all");
        let plan = twin.plan("SELECT k, t FROM t WHERE k BETWEEN 3 AND 9 OR k BETWEEN 120 AND 130");
        assert!(plan.contains("key ranges=[(3), (130)]") && plan.contains("FilterExec"), "{plan}");
        let plan = twin.plan("SELECT k FROM t WHERE (k = 3 AND y > 0) OR (k = 40 AND p)");
        assert!(plan.contains("2 look-ups=(3) (40)") && plan.contains("FilterExec"), "{plan}");
        let plan = twin.plan("SELECT k FROM t WHERE t LIKE 'b\\_%'");
        assert!(!plan.contains("FilterExec"), "{plan}");
    }
}

/// The predicate that refers outside was taken out of the subquery, past what has to be computed of its rows alone.
#[test]
fn subqueries_that_would_lose_what_they_say_are_refused() {
    let twin = Twin::new();
    let outer = twin.create("t", "k int64 not null, primary key (k)", Form::Rows);
    fill(&outer, (1..4).map(|k| vec![DatumRef::Int64(k)]));
    let inner = twin.create("u", "id int64 not null, k int64, v int32, primary key (id)", Form::Rows);
    let row = |id, k, v| vec![DatumRef::Int64(id), DatumRef::Int64(k), DatumRef::Int32(v)];
    fill(&inner, [row(1, 1, 10), row(2, 2, 20), row(3, 2, 30)]);
    for query in [
        "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k OFFSET 1)",
        "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM (SELECT v FROM u WHERE u.k = t.k LIMIT 1) x WHERE v > 10)",
        "SELECT k FROM t WHERE EXISTS (SELECT count(*) FROM u WHERE u.k = t.k)",
        "SELECT k FROM t WHERE 0 IN (SELECT count(*) FROM u WHERE u.k = t.k)",
        "SELECT k FROM t WHERE k NOT IN (SELECT max(u.k) FROM u WHERE u.k = t.k)",
        "SELECT k FROM t WHERE NOT (k IN (SELECT max(u.k) FROM u WHERE u.k = t.k))",
        "SELECT k FROM t WHERE k IN (SELECT coalesce(max(u.k), 3) FROM u WHERE u.k = t.k)",
        "SELECT k, (SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY v) AS r FROM u WHERE u.k = t.k) x) FROM t",
        "SELECT t.k, x.r FROM t, LATERAL (SELECT row_number() OVER (ORDER BY v) AS r FROM u WHERE u.k = t.k) x",
        "SELECT k, (SELECT count(*) FROM t a LEFT JOIN (SELECT * FROM u WHERE u.k = t.k) b ON a.k = b.k) FROM t",
        "SELECT k, (SELECT sum(c) FROM (SELECT count(*) AS c FROM u WHERE u.k = t.k) x) FROM t",
    ] {
        let answer = twin.runtime.block_on(async { twin.session.query(query).await?.collect().await });
        assert_eq!(answer.expect_err(query).kind(), ErrorKind::Unsupported, "{query}");
    }
    let found = |predicate: &str| twin.rows(&format!("SELECT k FROM t WHERE {predicate} ORDER BY k")).concat();
    assert_eq!(found("EXISTS (SELECT 1 FROM u WHERE u.k = t.k LIMIT 1)"), "12");
    assert_eq!(found("NOT EXISTS (SELECT v FROM u WHERE u.k = t.k)"), "3");
    assert_eq!(found("EXISTS (SELECT u.k FROM u WHERE u.k = t.k GROUP BY u.k HAVING count(*) > 1)"), "2");
    assert_eq!(found("k IN (SELECT max(k) FROM u)"), "2");
    // Null is as good as no row there.
    assert_eq!(found("k IN (SELECT max(u.k) FROM u WHERE u.k = t.k)"), "12");
    assert_eq!(found("10 * k IN (SELECT max(v) AS w FROM u WHERE u.k = t.k) AND k < 9"), "1");
    assert_eq!(found("EXISTS (SELECT v FROM u WHERE v > 10 LIMIT 5 OFFSET 1)"), "123");
    assert_eq!(found("k = (SELECT max(u.k) FROM u WHERE u.k = t.k)"), "12");
    let counts = "SELECT k, (SELECT count(*) FROM u WHERE u.k = t.k) FROM t ORDER BY k";
    assert_eq!(twin.rows(counts), ["1 | 1", "2 | 2", "3 | 0"]);
}

/// A link more, and the plan was twice as large: the fortieth never ended.
#[test]
fn a_chain_of_queries_that_doubles_is_refused() {
    let twin = Twin::new();
    let table = twin.create("t", "k int64 not null, primary key (k)", Form::Rows);
    fill(&table, (0..4).map(|k| vec![DatumRef::Int64(k)]));
    let chain = |links: usize| {
        let link = |at: usize| format!("x{} AS (SELECT a.k FROM x{at} a JOIN x{at} b ON a.k = b.k)", at + 1);
        let queries: Vec<String> = (0..links).map(link).collect();
        format!("WITH x0 AS (SELECT k FROM t), {} SELECT count(*) FROM x{links}", queries.join(", "))
    };
    assert_eq!(twin.rows(&chain(3)), ["4"]);
    let refused = twin.runtime.block_on(twin.session.query(&chain(40))).map(drop).expect_err("too large");
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
}

/// A look-up of nothing gave a row.
#[test]
fn a_scan_of_no_rows_looks_nothing_up() {
    let twin = Twin::new();
    let table = twin.create("t", "k int64 not null, v int32, primary key (k)", Form::Rows);
    fill(&table, [vec![DatumRef::Int64(1), DatumRef::Int32(1)]]);
    let context = SessionContext::new();
    context.register_catalog(CATALOG, Arc::new(Catalog::new(&twin.database, twin.database.snapshot())));
    let rows = twin.runtime.block_on(async {
        let frame = context.sql("SELECT * FROM mycelium.public.t WHERE k = 1").await?;
        let scan = frame.create_physical_plan().await?;
        let mut rows = Vec::new();
        for limit in [Some(1), Some(0)] {
            let scan = scan.with_fetch(limit).expect("a scan takes a limit");
            let batches = collect(scan, context.task_ctx()).await?;
            rows.push(batches.iter().map(|batch| batch.num_rows()).sum::<usize>());
        }
        Ok::<_, mycelium_sql::datafusion::error::DataFusionError>(rows)
    });
    assert_eq!(rows.expect("in memory"), [1, 0]);
}
