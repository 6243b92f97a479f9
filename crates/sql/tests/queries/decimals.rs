//! Arithmetic of decimals, as PostgreSQL answers it: literals with a point are decimals, quotients keep their digits,
//! and what leaves a type is an error.

use mycelium_base::ErrorKind;
use mycelium_encoding::batch::batch_of;
use mycelium_encoding::{DatumRef, TextArrays};
use mycelium_engine::{Durability, Table};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::twin::{Form, Twin};

fn seed() -> u64 {
    std::env::var("MYCELIUM_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(85)
}

fn fill<'v>(table: &Table, rows: impl IntoIterator<Item = Vec<DatumRef<'v>>>) {
    for row in rows {
        table.insert_row(&row, Durability::Buffered).expect("in memory");
    }
}

/// The kind of error that a statement ends with.
fn failure(twin: &Twin, query: &str) -> ErrorKind {
    let answer = twin.runtime.block_on(async { twin.session.query(query).await?.collect().await });
    answer.expect_err(query).kind()
}

/// A table `t` of a thousand prices `d` of one cent more each, and one that is null; `f` is a float of 1.1.
fn prices(form: Form) -> Twin {
    let twin = Twin::new();
    let table = twin.create("t", "k int64 not null, d decimal(10, 2), f float64, primary key (k)", form);
    let row = |k| vec![DatumRef::Int64(k), DatumRef::Decimal128(k.into()), DatumRef::Float64(1.1)];
    fill(&table, (0..1000).map(row));
    fill(&table, [vec![DatumRef::Int64(1000), DatumRef::Null, DatumRef::Null]]);
    twin.database.flush().expect("in memory");
    twin.database.compact(&table).expect("in memory");
    twin
}

/// They were doubles: `1.10 * 1.1` was 1.2100000000000002, and `0.1 + 0.2` no 0.3.
#[test]
fn literals_in_arithmetic_are_the_decimals_that_were_written() {
    for form in Form::ALL {
        let twin = prices(form);
        let told = |formula: &str| twin.rows(&format!("SELECT {formula} FROM t WHERE k = 110")).concat();
        assert_eq!(told("d * 1.1"), "1.210");
        assert_eq!(told("-1.1 * d"), "-1.210");
        assert_eq!(told("d + 0.1"), "1.20");
        assert_eq!(told("d - 0.105"), "0.995");
        assert_eq!(told("d % 0.3"), "0.20");
        assert_eq!(told("k * 1.5"), "165.0");
        assert_eq!(told("0.1 + 0.2"), "0.3");
        assert_eq!(told("2 * 1.5 - -(0.5)"), "3.5");
        assert_eq!(told("(SELECT sum(x.d * 0.1) FROM t x WHERE x.k < 10)"), "0.045");
        // Beside floats they are doubles.
        assert_eq!(told("f * 1.1"), "1.2100000000000002");
        assert_eq!(told("d * f"), "1.2100000000000002");
        let count = |predicate: &str| twin.rows(&format!("SELECT count(*) FROM t WHERE {predicate}")).concat();
        assert_eq!(count("d = 0.1 + 0.2"), "1");
        assert_eq!(count("d * 1.1 = 1.21"), "1");
        assert_eq!(count("d < 0.1 * d + 0.09"), "10");
        assert_eq!(count("d BETWEEN 0.06 - 0.01 AND 0.06 + 0.01"), "3");
        assert_eq!(count("k * 0.1 >= 99.9"), "2");
        // Storage decides them.
        let plan = twin.plan("SELECT k FROM t WHERE d BETWEEN 0.06 - 0.01 AND 0.06 + 0.01");
        assert!(!plan.contains("FilterExec"), "{plan}");
    }
}

/// Of a column that is never null it was 0.
#[test]
fn the_remainder_of_one_is_what_is_behind_the_point() {
    let twin = Twin::new();
    let table = twin.create("t", "d decimal(5, 2) not null, k int64 not null, primary key (d)", Form::Rows);
    fill(&table, [[530, 7], [-199, 8]].map(|[d, k]| vec![DatumRef::Decimal128(d.into()), DatumRef::Int64(k)]));
    let remainders = "SELECT d % 1, d % 1.0, d % (3 - 2), d % 2, k % 1, (k * 0.5) % 1 FROM t ORDER BY k";
    let expected = ["0.30 | 0.30 | 0.30 | 1.30 | 0 | 0.5", "-0.99 | -0.99 | -0.99 | -1.99 | 0 | 0.0"];
    assert_eq!(twin.rows(remainders), expected);
    assert_eq!(twin.rows("SELECT k FROM t WHERE d % 1 > 0"), ["7"]);
}

/// `numerator / denominator` with so many places, half away from zero.
fn quotient_text(numerator: i128, denominator: i128, places: u32) -> String {
    let (digits, divisor) = (numerator.abs() * 10_i128.pow(places), denominator.abs());
    let rounded = (2 * digits + divisor) / (2 * divisor);
    let sign = if rounded != 0 && (numerator < 0) != (denominator < 0) { "-" } else { "" };
    let (whole, fraction) = (rounded / 10_i128.pow(places), rounded % 10_i128.pow(places));
    format!("{sign}{whole}.{fraction:0places$}", places = places as usize)
}

/// They had four places more than the dividend, cut off.
#[test]
fn quotients_keep_their_digits() {
    let seed = seed();
    println!("MYCELIUM_TEST_SEED={seed}");
    let random = &mut SmallRng::seed_from_u64(seed);
    let twin = Twin::new();
    let schema = "k int64 not null, a decimal(12, 2), b decimal(9, 3), primary key (k)";
    let table = twin.create("q", schema, Form::Columns);
    let mut number = |digits: u32| {
        let limit = 10_i64.pow(random.random_range(1..=digits));
        random.random_range(1 - limit..limit)
    };
    let pairs: Vec<(i64, i64)> = (0..200).map(|_| (number(12), number(9))).filter(|(_, b)| *b != 0).collect();
    let row = |(k, (a, b)): (i64, &(i64, i64))| {
        vec![DatumRef::Int64(k), DatumRef::Decimal128((*a).into()), DatumRef::Decimal128((*b).into())]
    };
    let rows: Vec<Vec<DatumRef<'_>>> = (0..).zip(&pairs).map(row).collect();
    fill(&table, rows.clone());
    let found = twin.rows("SELECT a / b FROM q ORDER BY k");
    assert_eq!(found.len(), pairs.len());
    for (found, (a, b)) in found.iter().zip(&pairs) {
        assert_eq!(*found, quotient_text(i128::from(*a) * 10, (*b).into(), 24), "{a} / {b}");
    }
    // What else is done with decimals is as DataFusion has it.
    twin.teach("q", vec![batch_of(table.schema().expect("typed").columns(), TextArrays::Plain, rows).expect("rows")]);
    for formula in ["a + b", "a - b", "a * b", "a * (1 - b)", "sum(a * b)", "sum(a) - avg(b)", "a % b", "max(-a)"] {
        twin.check(&format!("SELECT {formula} FROM q"), false);
    }
}

#[test]
fn quotients_have_the_type_that_their_sides_ask_for() {
    let twin = prices(Form::Rows);
    let told = |formula: &str| twin.rows(&format!("SELECT {formula}")).concat();
    assert_eq!(told("1.0 / 3"), "0.33333333333333333");
    assert_eq!(told("-2 / 3.0"), "-0.66666666666666667");
    assert_eq!(told("7 / 2"), "3", "of integers it is one");
    assert_eq!(told("CAST(1 AS DECIMAL(38, 4)) / CAST(3 AS DECIMAL(38, 4))"), "0.33333333333333333333");
    assert_eq!(told("CAST(1.0 / 3 * (1.0 / 3) * (1.0 / 3) AS DECIMAL(10, 6))"), "0.037037");
    assert_eq!(told("CAST(2.5 / 1 AS INT)"), "3");
    assert_eq!(told("CAST(CAST(-5 AS DECIMAL(38, 4)) / 2 AS BIGINT)"), "-3");
    assert_eq!(told("CAST(CAST(-5 AS DECIMAL(38, 4)) / 3 AS DECIMAL(10, 2))"), "-1.67");
    let of_prices = |formula: &str| twin.rows(&format!("SELECT {formula} FROM t WHERE k IN (110, 1000) ORDER BY k"));
    assert_eq!(of_prices("d / 3"), ["0.3666666666666666667", "null"]);
    assert_eq!(of_prices("CAST(1 / d AS DECIMAL(6, 4))"), ["0.9091", "null"]);
    assert_eq!(twin.rows("SELECT CAST(sum(d) / sum(k) AS DECIMAL(6, 4)) FROM t WHERE k < 1000"), ["0.0100"]);
    assert_eq!(twin.rows("SELECT count(*) FROM t WHERE d / 3 > 1.5"), ["549"]);
    let groups = "SELECT count(*) FROM t WHERE k < 4 GROUP BY d / 2 HAVING d / 2 > 0.004 ORDER BY d / 2";
    assert_eq!(twin.rows(groups), ["1", "1", "1"]);
    // A column of a `UNION` has its type later than the quotient was planned.
    let either = "SELECT 7 AS x UNION ALL SELECT d FROM t WHERE k = 110";
    let halves = format!("SELECT CAST(x / 2 AS DECIMAL(6, 3)) AS h FROM ({either}) ORDER BY h");
    assert_eq!(twin.rows(&halves), ["0.550", "3.500"]);
}

#[test]
fn division_by_zero_is_an_error_but_of_floats() {
    let twin = prices(Form::Columns);
    for query in [
        "SELECT d / 0 FROM t",
        "SELECT d / 0.0 FROM t",
        "SELECT 1.5 / 0",
        "SELECT 1 / (d - d) FROM t",
        "SELECT d / k FROM t",
        "SELECT d % 0.0 FROM t",
        "SELECT k / 0 FROM t",
        "SELECT CAST(1 AS DECIMAL(38, 4)) / (d - d) FROM t",
    ] {
        assert_eq!(failure(&twin, query), ErrorKind::InvalidArgument, "{query}");
    }
    assert_eq!(twin.rows("SELECT d / 0 FROM t WHERE k = 1000"), ["null"]);
    assert_eq!(twin.rows("SELECT f / 0, -f / (k - k) FROM t WHERE k = 110"), ["inf | -inf"]);
}

/// A text of 39 digits lacked the last.
#[test]
fn decimals_that_leave_their_type_are_errors() {
    let twin = Twin::new();
    let table = twin.create("t", "k int64 not null, v decimal(38, 2), w decimal(38, 2), primary key (k)", Form::Rows);
    let row = |k, v, w| vec![DatumRef::Int64(k), DatumRef::Decimal128(v), DatumRef::Decimal128(w)];
    fill(&table, [row(1, 10_i128.pow(38) - 1, 5 * 10_i128.pow(36)), row(2, 150, 250)]);
    for query in [
        "SELECT v * 10 FROM t",
        "SELECT v + v FROM t",
        "SELECT v * 1.1 FROM t",
        "SELECT v + w FROM t",
        "SELECT CAST(v + w AS TEXT) FROM t",
        "SELECT k FROM t WHERE CAST(v + w AS TEXT) LIKE '1%'",
        "SELECT CAST(v / 0.0001 AS DECIMAL(38, 2)) FROM t",
    ] {
        assert_eq!(failure(&twin, query), ErrorKind::InvalidArgument, "{query}");
    }
    // On the way it may be larger, and is what it is.
    assert_eq!(twin.rows("SELECT v + w - v FROM t WHERE v + w > v ORDER BY k")[1], "2.50");
    assert_eq!(
        twin.rows("SELECT CAST(v + w AS TEXT), CAST(v / 0.0001 AS DECIMAL(38, 2)) FROM t WHERE k = 2"),
        ["4.00 | 15000.00"]
    );
}

/// They were the doubles next to them.
#[test]
fn literals_of_many_digits_are_what_was_written() {
    for form in Form::ALL {
        let twin = prices(form);
        let told = |formula: &str| twin.rows(&format!("SELECT {formula} FROM t WHERE k = 110")).concat();
        assert_eq!(told("1234567890123456.78"), "1234567890123456.78");
        assert_eq!(told("-0.12345678901234567890123456789012345678"), "-0.12345678901234567890123456789012345678");
        assert_eq!(told("d + 0.1234567890123456789"), "1.2234567890123456789");
        assert_eq!(told("0.12345678901234567 * 2"), "0.24691357802469134");
        assert_eq!(told("100000000000000000000 - 1"), "99999999999999999999");
        assert_eq!(told("CAST(2.5000000000000000 AS INT)"), "3");
        assert_eq!(told("CAST(0.30000000000000004 AS DOUBLE) = CAST('0.30000000000000004' AS DOUBLE)"), "true");
        let (wide, more) = (format!("1{}.5", "0".repeat(60)), format!("1{}.75", "0".repeat(60)));
        assert_eq!(told(&format!("{wide} + 0.25")), more);
        // Beside floats they are doubles, the next ones.
        assert_eq!(told("f * 1.0000000000000000"), "1.1");
        let count = |predicate: &str| twin.rows(&format!("SELECT count(*) FROM t WHERE {predicate}")).concat();
        assert_eq!(count("f = 1.1000000000000001"), "1000");
        assert_eq!(count("1.1000000000000001 >= f AND f IN (0.0, 1.10000000000000010000)"), "1000");
        assert_eq!(count("f < 1.10000000000000000000000000000001"), "0");
        assert_eq!(count("d = 1.1000000000000001"), "0");
        assert_eq!(count("d > 1.0999999999999999999 AND d < 1.1000000000000000001"), "1");
        assert_eq!(count("d IN (1.1000000000000000, 1.2000000000000001)"), "1");
        assert_eq!(count("k < 10.000000000000000001"), "11");
        assert_eq!(count("k < 18446744073709551616 AND k > -9223372036854775809"), "1001");
        assert_eq!(count(&format!("k < {wide} AND d < {wide}")), "1000");
        // No type has room for so many places and for what stands before the point of `d` and `k`.
        let many = "0".repeat(70);
        assert_eq!(count(&format!("d > 1.09{many}1 AND d <= 1.10{many}1")), "1");
        assert_eq!(count(&format!("d = 1.10{many}1 OR d IN (1.10{many}1, 1.10{many})")), "1");
        assert_eq!(count(&format!("k > -0.{many}1 AND k < 10.{many}1")), "11");
    }
}

/// Columns that DataFusion names alike were refused.
#[test]
fn columns_of_one_name_are_answered() {
    let twin = prices(Form::Columns);
    for (query, expected) in [
        ("SELECT d % 1, d % 1.0 FROM t WHERE k = 110", "0.10 | 0.10"),
        ("SELECT k, k, t.k FROM t WHERE k = 110", "110 | 110 | 110"),
        ("SELECT CAST(d AS INT), d, CAST(d AS DOUBLE) FROM t WHERE k = 110 ORDER BY d", "1 | 1.10 | 1.1"),
        ("SELECT *, d FROM t WHERE k = 110", "110 | 1.10 | 1.1 | 1.10"),
        ("SELECT count(*), count(*), 1, 1 FROM t", "1001 | 1001 | 1 | 1"),
        ("SELECT d, d, count(*) FROM t WHERE k = 110 GROUP BY d ORDER BY d", "1.10 | 1.10 | 1"),
        ("SELECT * FROM (SELECT k, k FROM t WHERE k = 7) x", "7 | 7"),
        ("WITH x (a, b) AS (SELECT k, k FROM t WHERE k = 7) SELECT b + a FROM x", "14"),
        ("SELECT 1, 1 UNION ALL SELECT k, k FROM t WHERE k = 1", "1 | 1"),
    ] {
        assert_eq!(twin.rows(query)[0], expected, "{query}");
    }
    assert_eq!(failure(&twin, "SELECT k AS x, d AS x FROM t"), ErrorKind::InvalidArgument);
    assert_eq!(failure(&twin, "SELECT k, k, nothing FROM t"), ErrorKind::InvalidArgument);
}

/// It wrapped around within 256 bits, or had 77 digits until it was in an answer.
#[test]
fn a_sum_of_more_than_76_digits_fails() {
    let twin = Twin::new();
    let most = "9".repeat(76);
    let row = |k: u64, value: &str| format!("SELECT {k} AS k, {} AS g, CAST('{value}' AS DECIMAL(76, 0)) AS v", k % 2);
    let few = [row(1, &most), row(2, &format!("-{most}")), row(3, "5"), row(4, "-7")];
    let large = (0..8).map(|at| row(5 + 2 * at, &most));
    let rows: Vec<String> = few.into_iter().chain(large).collect();
    let told = |query: &str| format!("WITH t AS ({}) {query}", rows.join(" UNION ALL "));
    let pairs = "OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)";
    assert_eq!(twin.rows(&told("SELECT sum(v), sum(DISTINCT v) FROM t WHERE k < 5")), ["-2 | -2"]);
    assert_eq!(twin.rows(&told("SELECT sum(v), sum(DISTINCT v) FROM t WHERE k > 99")), ["null | null"]);
    let groups = "SELECT g, sum(v) FROM t WHERE k IN (3, 4) GROUP BY g ORDER BY g";
    assert_eq!(twin.rows(&told(groups)), ["0 | -7", "1 | 5"]);
    let moving = format!("SELECT sum(v) {pairs} FROM t WHERE k BETWEEN 2 AND 4");
    assert_eq!(twin.rows(&told(&moving))[2], "-2");
    for query in [
        // Of 77 digits, and of more than 256 bits.
        "SELECT sum(v) FROM t WHERE k IN (1, 3)",
        "SELECT sum(v) FROM t WHERE k > 4",
        "SELECT g, sum(v) FROM t WHERE k > 4 GROUP BY g",
        "SELECT g, sum(v) FROM t WHERE k IN (1, 3, 4) GROUP BY g",
        "SELECT count(*) FROM (SELECT g FROM t GROUP BY g HAVING sum(v) > 0)",
        "SELECT sum(DISTINCT v - k) FROM t WHERE k > 4",
        "SELECT sum(v) OVER (ORDER BY k) FROM t",
        &format!("SELECT sum(v) {pairs} FROM t"),
    ] {
        assert_eq!(failure(&twin, &told(query)), ErrorKind::InvalidArgument, "{query}");
    }
}
