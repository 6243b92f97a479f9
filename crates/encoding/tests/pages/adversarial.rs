//! Columns that are made to break an encoding, each by its name, against a naive twin: what was put in, and comparisons
//! of the standard library.

use std::cmp::Ordering;
use std::ops::Bound;

use mycelium_encoding::page::{Bitmap, Cells, Page, PageTest, Test};
use mycelium_encoding::{ColumnType, Datum};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::{Cell, File, gather, kind, kinds, same, state, write};

const ABSENT: Cell = Err(true);
const NULL: Cell = Err(false);

/// A column: its name, its type, and the cell of each row.
struct Column {
    name: &'static str,
    kind: ColumnType,
    cell: Box<dyn Fn(usize) -> Cell>,
}

fn column(name: &'static str, kind_name: &str, cell: impl Fn(usize) -> Datum + 'static) -> Column {
    Column { name, kind: kind(kind_name), cell: Box::new(move |row| Ok(cell(row))) }
}

/// One of these, in turn.
fn cycle(name: &'static str, kind_name: &str, all: Vec<Datum>) -> Column {
    column(name, kind_name, move |row| all[row % all.len()].clone())
}

fn text(name: &'static str, of: impl Fn(usize) -> String + 'static) -> Column {
    column(name, "utf8", move |row| Datum::Utf8(of(row)))
}

fn binary(name: &'static str, of: impl Fn(usize) -> Vec<u8> + 'static) -> Column {
    column(name, "binary", move |row| Datum::Binary(of(row)))
}

fn integers(name: &'static str, of: impl Fn(usize) -> i64 + 'static) -> Column {
    column(name, "int64", move |row| Datum::Int64(of(row)))
}

fn scrambled(row: usize) -> u64 {
    (row as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23)
}

/// Both zeros, both infinities, NaN of both signs and with other bits, the smallest and the largest, decimals and their
/// edge.
fn floats() -> Vec<f64> {
    let edge = (1_u64 << 53) as f64;
    let bits = [0x7FF0_0000_0000_0001, 0xFFF8_0000_0000_0000, 0xFFFF_FFFF_FFFF_FFFF, 0x7FFF_FFFF_FFFF_FFFF, 1];
    let mut all = vec![0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::MIN, f64::MAX, f64::MIN_POSITIVE];
    all.extend(bits.map(f64::from_bits));
    all.extend([0.1, -0.1, 1e15 + 0.3, 1e-15, edge, edge + 2.0, -edge, 123.45]);
    all
}

fn without_values() -> Vec<Column> {
    let mut columns = Vec::new();
    for kind in kinds() {
        let mut add = |name, cell: fn(usize) -> Cell| {
            columns.push(Column { name, kind: kind.clone(), cell: Box::new(cell) });
        };
        add("all null", |_| NULL);
        add("all absent", |_| ABSENT);
        add("null and absent", |row| if row % 3 == 0 { NULL } else { ABSENT });
    }
    columns
}

fn of_texts() -> Vec<Column> {
    vec![
        text("empty texts", |_| String::new()),
        text("NUL", |_| "\0".into()),
        text("more and more NUL", |row| "\0".repeat(row % 7)),
        text("all texts distinct", |row| format!("{:016x}", scrambled(row))),
        text("ascending distinct texts", |row| format!("{row:09}")),
        text("one text among empty ones", |row| if row == 1 { "x".into() } else { String::new() }),
        text("the last character many times", |row| "\u{10ffff}".repeat(20 + row % 3)),
        text("a long shared beginning", |row| format!("{}{}", "é".repeat(40), row % 5)),
        text("a surrogate's neighbours", |row| ["\u{d7ff}", "\u{e000}"][row % 2].repeat(30)),
        text("few texts", |row| ["b", "a", "", "ab", "\0"][row % 5].into()),
        binary("bytes that are no UTF-8", |row| [&[0xC0, 0x80][..], &[0xFF], &[0xED, 0xA0, 0x80], &[]][row % 4].into()),
        binary("every byte alone", |row| vec![row as u8]),
        binary("0xFF, so many that no zone can be cut", |row| vec![0xFF; 60 + row % 20]),
        binary("0xFF for longer than a zone, then others", |row| [&[0xFF; 70][..], &[row as u8; 90]].concat()),
        text("the last character for longer than a zone", |row| format!("{}{row}", "\u{10ffff}".repeat(17))),
        binary("all bytes distinct", |row| scrambled(row).to_le_bytes().into()),
        binary("a long shared beginning of bytes", |row| [&[0x41; 64][..], &[0xFF; 3][..row % 4]].concat()),
        binary("empty bytes", |_| Vec::new()),
    ]
}

fn of_integers() -> Vec<Column> {
    let mut columns = vec![
        integers("i64::MIN", |_| i64::MIN),
        integers("i64::MAX", |_| i64::MAX),
        integers("from i64::MIN to i64::MAX and back", |row| if row % 2 == 0 { i64::MIN } else { i64::MAX }),
        integers("i64::MAX comes once", |row| if row == 1 { i64::MAX } else { i64::MIN }),
        integers("ascending from i64::MIN", |row| i64::MIN + row as i64),
        integers("descending to i64::MIN", |row| i64::MIN + (1_000_000 - row as i64)),
        integers("as steep as it gets", |row| i64::MIN.saturating_add((row as i64).saturating_mul(1 << 61))),
        integers("all distinct", |row| scrambled(row) as i64),
        integers("one value", |_| -42),
        integers("runs", |row| (row / 300) as i64 - 1),
        integers("runs of extremes", |row| [i64::MAX, 0, i64::MIN][row / 100 % 3]),
        integers("57 bits", |row| (scrambled(row) >> 7) as i64),
        integers("33 bits", |row| (scrambled(row) >> 31) as i64),
        integers("a line with one value far off", |row| if row == 40 { i64::MIN } else { row as i64 }),
        cycle("uint64 edges", "uint64", [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1].map(Datum::UInt64).into()),
        cycle("int8 edges", "int8", [i8::MIN, -1, 0, i8::MAX].map(Datum::Int8).into()),
        cycle("uint32 edges", "uint32", [0, u32::MAX, 1 << 31].map(Datum::UInt32).into()),
        cycle("dates", "date32", [i32::MIN, 0, i32::MAX].map(Datum::Date32).into()),
        cycle("instants", "timestamp(us)", [i64::MIN, 0, i64::MAX].map(Datum::Timestamp).into()),
        cycle("both truths", "bool", [true, false].map(Datum::Bool).into()),
        column("one truth", "bool", |_| Datum::Bool(true)),
        cycle("decimals over 64 bits", "decimal(38,2)", [i128::MIN, -1, 0, i128::MAX].map(Datum::Decimal128).into()),
        cycle(
            "decimals of just 64 bits",
            "decimal(38,2)",
            [i128::from(i64::MIN), i128::from(i64::MAX)].map(Datum::Decimal128).into(),
        ),
    ];
    columns.extend([2, 7, 8, 15, 16, 25, 26, 31, 32].map(|bits| {
        let offset = move |row: usize| scrambled(row) & ((1 << bits) - 1);
        integers("packed", move |row| (offset(row) as i64).wrapping_add(i64::MAX - (1 << 33)))
    }));
    columns
}

fn of_floats() -> Vec<Column> {
    let singles: Vec<Datum> = floats().into_iter().map(|float| Datum::Float32(float as f32)).collect();
    vec![
        cycle("float64 of all kinds", "float64", floats().into_iter().map(Datum::Float64).collect()),
        cycle("float32 of all kinds", "float32", singles),
        cycle("both zeros", "float64", [0.0, -0.0].map(Datum::Float64).into()),
        column("-0.0", "float64", |_| Datum::Float64(-0.0)),
        column("NaN", "float64", |_| Datum::Float64(f64::NAN)),
        column("a price, once NaN", "float64", |row| {
            Datum::Float64(if row == 63 { f64::NAN } else { (row % 997) as f64 / 100.0 })
        }),
        column("prices", "float64", |row| Datum::Float64((row % 997) as f64 / 100.0)),
        column("prices up to the edge", "float64", |row| {
            Datum::Float64((if row % 2 == 0 { 1_i64 << 53 } else { -(1 << 53) }) as f64 / 100.0)
        }),
        column("small prices", "float32", |row| Datum::Float32((row % 997) as f32 / 8.0)),
        column("bits at random", "float64", |row| Datum::Float64(f64::from_bits(scrambled(row)))),
    ]
}

fn columns() -> Vec<Column> {
    let mut columns: Vec<Column> =
        [without_values(), of_texts(), of_integers(), of_floats()].into_iter().flatten().collect();
    // The same with holes, for all whose cells are values.
    let holed: Vec<Column> = [of_texts(), of_integers(), of_floats()]
        .into_iter()
        .flatten()
        .map(|column| {
            let cell = column.cell;
            let with_holes = move |row: usize| match row % 7 {
                0 => NULL,
                5 => ABSENT,
                _ => cell(row),
            };
            Column { name: column.name, kind: column.kind, cell: Box::new(with_holes) }
        })
        .collect();
    columns.extend(holed);
    columns
}

/// How two values compare, by what the standard library says.
fn order(a: &Datum, b: &Datum) -> Ordering {
    match (a, b) {
        (Datum::Bool(a), Datum::Bool(b)) => a.cmp(b),
        (Datum::Int8(a), Datum::Int8(b)) => a.cmp(b),
        (Datum::Int16(a), Datum::Int16(b)) => a.cmp(b),
        (Datum::Int32(a), Datum::Int32(b)) | (Datum::Date32(a), Datum::Date32(b)) => a.cmp(b),
        (Datum::Int64(a), Datum::Int64(b)) | (Datum::Timestamp(a), Datum::Timestamp(b)) => a.cmp(b),
        (Datum::UInt8(a), Datum::UInt8(b)) => a.cmp(b),
        (Datum::UInt16(a), Datum::UInt16(b)) => a.cmp(b),
        (Datum::UInt32(a), Datum::UInt32(b)) => a.cmp(b),
        (Datum::UInt64(a), Datum::UInt64(b)) => a.cmp(b),
        (Datum::Float32(a), Datum::Float32(b)) => a.total_cmp(b),
        (Datum::Float64(a), Datum::Float64(b)) => a.total_cmp(b),
        (Datum::Utf8(a), Datum::Utf8(b)) => a.cmp(b),
        (Datum::Binary(a), Datum::Binary(b)) => a.cmp(b),
        (Datum::Decimal128(a), Datum::Decimal128(b)) => a.cmp(b),
        _ => panic!("{a:?} and {b:?} are of different types"),
    }
}

/// The naive twin of [`Test::passes`].
fn passes(test: &Test, cell: &Cell) -> bool {
    let Ok(value) = cell else { return *test == Test::IsNull && *cell == NULL };
    let above = |bound: &Bound<Datum>| match bound {
        Bound::Unbounded => true,
        Bound::Included(bound) => order(value, bound).is_ge(),
        Bound::Excluded(bound) => order(value, bound).is_gt(),
    };
    let below = |bound: &Bound<Datum>| match bound {
        Bound::Unbounded => true,
        Bound::Included(bound) => order(value, bound).is_le(),
        Bound::Excluded(bound) => order(value, bound).is_lt(),
    };
    match test {
        Test::Equal(other) => order(value, other).is_eq(),
        Test::NotEqual(other) => order(value, other).is_ne(),
        Test::Range { lower, upper } => above(lower) && below(upper),
        Test::In(others) => others.iter().any(|other| order(value, other).is_eq()),
        Test::Prefix(prefix) => match value {
            Datum::Utf8(text) => text.as_bytes().starts_with(prefix),
            Datum::Binary(bytes) => bytes.starts_with(prefix),
            _ => false,
        },
        Test::IsNull => false,
        Test::IsNotNull => true,
    }
}

/// Tests with values of the column, in all their forms.
fn tests(all: &[Cell]) -> Vec<Test> {
    let mut values: Vec<&Datum> = all.iter().flatten().take(300).collect();
    values.sort_by(|a, b| order(a, b));
    values.dedup_by(|a, b| order(a, b).is_eq());
    let step = values.len().div_ceil(4).max(1);
    let some: Vec<Datum> = values.iter().step_by(step).chain(values.last()).map(|&value| value.clone()).collect();
    let mut tests = vec![Test::IsNull, Test::IsNotNull, Test::In(Vec::new()), Test::In(some.clone())];
    tests.push(Test::Range { lower: Bound::Unbounded, upper: Bound::Unbounded });
    for value in &some {
        tests.extend([Test::Equal(value.clone()), Test::NotEqual(value.clone())]);
        for other in &some {
            for (lower, upper) in [
                (Bound::Included(value.clone()), Bound::Included(other.clone())),
                (Bound::Excluded(value.clone()), Bound::Excluded(other.clone())),
                (Bound::Excluded(value.clone()), Bound::Unbounded),
                (Bound::Unbounded, Bound::Excluded(other.clone())),
            ] {
                tests.push(Test::Range { lower, upper });
            }
        }
        if let Datum::Utf8(_) | Datum::Binary(_) = value {
            let bytes = super::bytes_of(value);
            tests.extend([0, 1, bytes.len()].map(|len| Test::Prefix(bytes[..len.min(bytes.len())].to_vec())));
            tests.push(Test::Prefix([&bytes[..], &[0xFF]].concat()));
        }
    }
    tests
}

/// Filters, zones and tests against the twin, page by page.
fn check_tests(file: &File, column: &Column, all: &[Cell], context: &str) {
    for test in tests(all) {
        let compiled = PageTest::new(&test, &column.kind, file.coding.as_ref());
        let mut first = 0;
        for page in file.pages(&column.kind) {
            let mut selection = Bitmap::new(page.rows(), true);
            page.filter(&compiled, &mut selection).unwrap();
            for (row, cell) in all[first..first + page.rows()].iter().enumerate() {
                let expected = passes(&test, cell);
                assert_eq!(test.passes(state(cell)), expected, "{context}: {test:?} of {cell:?}");
                assert_eq!(selection.get(row), expected, "{context}: {test:?} of {cell:?}, {:?}", page.encoding());
            }
            first += page.rows();
        }
    }
}

/// The zone of all rows holds every value, and rules out no test that one passes.
fn check_zone(column: &Column, all: &[Cell], context: &str) {
    let zone = gather(&column.kind, all).finish().encode(0..all.len(), &mut Vec::new()).unwrap();
    let (values, nulls) = (all.iter().flatten(), all.iter().filter(|cell| **cell == NULL).count());
    assert_eq!(zone.null_count() as usize, nulls, "{context}");
    for value in values {
        let (least, greatest) = (zone.least().unwrap(), zone.greatest().unwrap());
        assert!(order(least, value).is_le() && order(value, greatest).is_le(), "{context}: {value:?}, {zone:?}");
    }
    for test in tests(all) {
        assert!(test.may_pass(&zone) || !all.iter().any(|cell| passes(&test, cell)), "{context}: {test:?}, {zone:?}");
    }
}

#[test]
fn adversarial_columns_come_back_and_are_filtered() {
    for (seed, column) in columns().iter().enumerate() {
        for rows in [1, 2, 65, 1000] {
            let context = format!("{} of {:?}, {rows} rows, seed {seed}", column.name, column.kind);
            let all: Vec<Cell> = (0..rows).map(&column.cell).collect();
            let mut rng = SmallRng::seed_from_u64(seed as u64);
            let file = write(gather(&column.kind, &all), &mut rng);
            file.check(&column.kind, &all, &context);
            check_tests(&file, column, &all, &context);
            check_zone(column, &all, &context);
            let mut merged = Cells::new(&column.kind);
            for page in file.pages(&column.kind) {
                merged.append(&page, 0..page.rows()).unwrap();
            }
            write(merged, &mut rng).check(&column.kind, &all, &format!("{context}, gathered again"));
        }
    }
}

/// All of a value was kept that begins with as many of the greatest bytes as a zone has: megabytes for every block of
/// blobs.
#[test]
fn a_zone_is_short_where_a_long_value_begins_with_the_greatest_bytes() {
    let bytes = |last: u8| Datum::Binary([&[0xFF; 64][..], vec![last; 1 << 16].as_slice()].concat());
    let text = |last: &str| Datum::Utf8("\u{10ffff}".repeat(16) + &last.repeat(1 << 16));
    for (name, values) in [("binary", [bytes(0), bytes(0xFE)]), ("utf8", [text("a"), text("é")])] {
        let (kind, all) = (kind(name), Vec::from(values.clone().map(Cell::Ok)));
        let zone = gather(&kind, &all).finish().encode(0..all.len(), &mut Vec::new()).unwrap();
        for bound in [zone.least().unwrap(), zone.greatest().unwrap()] {
            assert!(super::bytes_of(bound).len() <= 70, "{name}: {bound:?}");
        }
        assert!(values.iter().all(|value| zone.contains(value.borrowed())), "{name}");
    }
}

#[test]
fn a_page_of_no_rows_has_no_cell() {
    for kind in kinds() {
        let finished = Cells::new(&kind).finish();
        let coding = finished.coding();
        let mut bytes = Vec::new();
        let zone = finished.encode(0..0, &mut bytes).unwrap();
        assert!(zone.least().is_none() && zone.null_count() == 0);
        let page = Page::parse(&bytes, 0, &kind, coding.as_ref()).unwrap();
        assert!(page.rows() == 0 && page.cell(0).is_err(), "{kind:?}");
        let mut selection = Bitmap::new(0, true);
        page.filter(&PageTest::new(&Test::IsNotNull, &kind, coding.as_ref()), &mut selection).unwrap();
        assert!(selection.is_empty());
    }
}

#[test]
fn pages_of_a_million_rows_come_back_and_are_filtered() {
    const ROWS: usize = 1_000_000;
    let all = [of_texts(), of_integers(), of_floats()].into_iter().flatten();
    let wanted =
        ["few texts", "all bytes distinct", "runs", "all distinct", "a price, once NaN", "ascending from i64::MIN"];
    let mut found = 0;
    for column in all.filter(|column| wanted.contains(&column.name)) {
        found += 1;
        let cells: Vec<Cell> = (0..ROWS).map(&column.cell).collect();
        let finished = gather(&column.kind, &cells).finish();
        let (coding, mut text) = (finished.coding(), Vec::new());
        let mut bytes = Vec::new();
        finished.encode(0..ROWS, &mut bytes).unwrap();
        let page = Page::parse(&bytes, ROWS, &column.kind, coding.as_ref()).unwrap();
        for (row, cell) in cells.iter().enumerate() {
            assert!(same(page.expanded_cell(row, &mut text).unwrap(), state(cell)), "{}: row {row}", column.name);
        }
        let middle = cells[ROWS / 3].clone().unwrap();
        let test = Test::Range { lower: Bound::Included(middle), upper: Bound::Unbounded };
        let mut selection = Bitmap::new(ROWS, true);
        page.filter(&PageTest::new(&test, &column.kind, coding.as_ref()), &mut selection).unwrap();
        let expected = cells.iter().enumerate().filter(|(_, cell)| passes(&test, cell)).map(|(row, _)| row);
        assert!(selection.rows().eq(expected), "{}", column.name);
    }
    assert_eq!(found, wanted.len());
}
