//! Schemas, rows and formats drawn from a seed.

use std::sync::Arc;

use mycelium_encoding::row_format::{RowFormat, RowFormatKind, RowScratch};
use mycelium_encoding::{Column, ColumnState, ColumnType, Datum, DatumRef, Schema, TimeUnit};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::definitions::{binary_schema, descriptor_set, drawn};

/// Runs `test` with `count` generators; a failure prints the seed of its own.
pub(crate) fn for_seeds(count: u64, mut test: impl FnMut(&mut SmallRng)) {
    let base = std::env::var("MYCELIUM_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for seed in base..base + count {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            test(&mut SmallRng::seed_from_u64(seed));
        }));
        if let Err(panic) = outcome {
            println!("failed with MYCELIUM_TEST_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

fn column_type(rng: &mut SmallRng) -> ColumnType {
    use ColumnType::*;
    let units = [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];
    match rng.random_range(0..20) {
        0 => Timestamp(*units.choose(rng).unwrap(), rng.random::<bool>().then(|| "UTC".into())),
        1 | 2 => {
            let precision = rng.random_range(1..=38);
            Decimal128(precision, rng.random_range(-38..=precision as i8))
        }
        _ => [
            Bool, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float32, Float64, Utf8, Utf8, Binary,
            Date32,
        ]
        .choose(rng)
        .unwrap()
        .clone(),
    }
}

/// A schema whose first column is the key, or one in between.
pub(crate) fn schema(rng: &mut SmallRng) -> Arc<Schema> {
    let names = ["a", "b\"\\", "é", "n\n", "x y", "c5", "c6", "c7", "c8", "c9", "c10", "c11"];
    let count = rng.random_range(1..names.len());
    let mut columns: Vec<Column> = names[..count]
        .iter()
        .map(|name| Column { name: (*name).into(), ty: column_type(rng), nullable: rng.random(), default: None })
        .collect();
    let key = rng.random_range(0..=count);
    columns.insert(key, Column::new("key", ColumnType::Int64).not_null());
    Arc::new(Schema::new(columns, vec![key]).unwrap().with_version(rng.random_range(0..3)))
}

/// A value of a type, often an extreme or the type's zero.
pub(crate) fn value(rng: &mut SmallRng, ty: &ColumnType) -> Datum {
    macro_rules! integer {
        ($ty:ty, $kind:ident) => {
            Datum::$kind(match rng.random_range(0..6) {
                0 => 0,
                1 => <$ty>::MIN,
                2 => <$ty>::MAX,
                3 => 7,
                _ => rng.random(),
            })
        };
    }
    macro_rules! float {
        ($ty:ident, $kind:ident, $bits:ty) => {{
            let special = [
                0.0,
                -0.0,
                7.0,
                $ty::NAN,
                $ty::INFINITY,
                $ty::NEG_INFINITY,
                $ty::MAX,
                $ty::MIN_POSITIVE,
                $ty::from_bits(1),
                1e16,
                0.1,
            ];
            let drawn = $ty::from_bits(rng.random::<$bits>());
            Datum::$kind(if rng.random() { drawn } else { *special.choose(rng).unwrap() })
        }};
    }
    match ty {
        ColumnType::Bool => Datum::Bool(rng.random()),
        ColumnType::Int8 => integer!(i8, Int8),
        ColumnType::Int16 => integer!(i16, Int16),
        ColumnType::Int32 => integer!(i32, Int32),
        ColumnType::Int64 => integer!(i64, Int64),
        ColumnType::UInt8 => integer!(u8, UInt8),
        ColumnType::UInt16 => integer!(u16, UInt16),
        ColumnType::UInt32 => integer!(u32, UInt32),
        ColumnType::UInt64 => integer!(u64, UInt64),
        ColumnType::Date32 => integer!(i32, Date32),
        ColumnType::Timestamp(..) => integer!(i64, Timestamp),
        ColumnType::Float32 => float!(f32, Float32, u32),
        ColumnType::Float64 => float!(f64, Float64, u64),
        ColumnType::Utf8 => {
            let parts = ["\0", "\u{1}", "a", "\"", "\\", "\n", "\u{7f}", "é", "\u{ffff}", "😀", "null", "long enough"];
            let len = rng.random_range(0..6);
            Datum::Utf8((0..len).map(|_| *parts.choose(rng).unwrap()).collect())
        }
        ColumnType::Binary => {
            let len = *[0, 0, 1, 3, 8, 300].choose(rng).unwrap();
            Datum::Binary((0..len).map(|_| rng.random()).collect())
        }
        ColumnType::Decimal128(precision, _) => {
            let bound = 10i128.pow(u32::from(*precision)) - 1;
            Datum::Decimal128(match rng.random_range(0..5) {
                0 => 0,
                1 => bound,
                2 => -bound,
                3 => -1,
                _ => rng.random_range(-bound..=bound),
            })
        }
    }
}

/// A cell per column; `None` is absent, as are columns of the key.
pub(crate) type Cells = Vec<Option<Datum>>;

pub(crate) fn cells(rng: &mut SmallRng, schema: &Schema, whole: bool) -> Cells {
    let mut cells = Vec::new();
    for (position, column) in schema.columns().iter().enumerate() {
        let cell = if schema.is_primary_key(position) || (!whole && rng.random_ratio(1, 3)) {
            None
        } else if column.nullable && rng.random_ratio(1, 4) {
            Some(Datum::Null)
        } else {
            Some(value(rng, &column.ty))
        };
        cells.push(cell);
    }
    cells
}

pub(crate) fn state(cells: &Cells, column: usize) -> ColumnState<'_> {
    cells[column].as_ref().map_or(ColumnState::Absent, |datum| datum.borrowed().into())
}

/// The formats of a schema, with drawn definitions; raw where the schema allows it.
pub(crate) fn formats(rng: &mut SmallRng, schema: &Arc<Schema>) -> Vec<RowFormat> {
    let declared = drawn(schema, rng);
    let binary = binary_schema(&declared, rng.random::<bool>().then_some("ROWS"));
    let mut formats = vec![
        RowFormat::packed(schema.clone()),
        RowFormat::json(schema.clone()),
        RowFormat::new(RowFormatKind::Protobuf, schema.clone(), &descriptor_set(&declared), "test.Row").unwrap(),
        RowFormat::new(RowFormatKind::FlatBuffers, schema.clone(), &binary, "test.Row").unwrap(),
    ];
    formats.extend(RowFormat::raw(schema.clone()).ok());
    formats
}

/// The canonical stored value of cells.
pub(crate) fn stored(format: &RowFormat, cells: &Cells) -> Vec<u8> {
    let mut out = Vec::new();
    format.encode_with(|column| state(cells, column), &mut RowScratch::default(), &mut out).unwrap();
    out
}

/// The cells of a stored value, read together; each read alone must be the same.
pub(crate) fn read(format: &RowFormat, value: &[u8]) -> mycelium_base::Result<Cells> {
    let cells = read_together(format, value)?;
    let mut scratch = RowScratch::default();
    for (column, cell) in cells.iter().enumerate().filter(|(column, _)| !format.schema().is_primary_key(*column)) {
        let alone = match format.read_column(value, column, &mut scratch)? {
            ColumnState::Absent => None,
            ColumnState::Null => Some(Datum::Null),
            ColumnState::Value(datum) => Some(datum.to_datum()),
        };
        // A NaN is not equal to itself.
        assert_eq!(format!("{alone:?}"), format!("{cell:?}"), "column {column}");
    }
    Ok(cells)
}

fn read_together(format: &RowFormat, value: &[u8]) -> mycelium_base::Result<Cells> {
    let mut scratch = RowScratch::default();
    let mut row = format.read(value, None, &mut scratch)?;
    let schema = format.schema();
    let mut cells = Vec::new();
    for column in 0..schema.columns().len() {
        let state = if schema.is_primary_key(column) { ColumnState::Absent } else { row.get(column)? };
        cells.push(match state {
            ColumnState::Absent => None,
            ColumnState::Null => Some(Datum::Null),
            ColumnState::Value(datum) => Some(datum.to_datum()),
        });
    }
    Ok(cells)
}

/// Equality that tells -0.0 from 0.0.
pub(crate) fn assert_same(found: &Cells, expected: &Cells) {
    assert_eq!(found.len(), expected.len());
    for (column, (found, expected)) in found.iter().zip(expected).enumerate() {
        let same = match (found, expected) {
            (Some(Datum::Float32(a)), Some(Datum::Float32(b))) => a.to_bits() == b.to_bits(),
            (Some(Datum::Float64(a)), Some(Datum::Float64(b))) => a.to_bits() == b.to_bits(),
            (a, b) => a == b,
        };
        assert!(same, "column {column}: {found:?}, not {expected:?}");
    }
}

/// `DatumRef` of text, for rules.
pub(crate) fn text(text: &str) -> ColumnState<'_> {
    ColumnState::Value(DatumRef::Utf8(text))
}
