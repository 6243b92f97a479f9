//! Strategies: schemas of every type, and values that are hard for formats.

use std::sync::Arc;

use mycelium_encoding::{Column, ColumnState, ColumnType, Datum, DatumRef, Schema, TimeUnit};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Any column type.
pub(crate) fn column_type() -> impl Strategy<Value = ColumnType> {
    use ColumnType::*;
    let units = select(vec![TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond]);
    let simple = vec![
        Bool, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float32, Float64, Utf8, Utf8, Binary, Binary,
        Date32,
    ];
    prop_oneof![
        8 => select(simple),
        1 => (units, any::<bool>()).prop_map(|(unit, zone)| Timestamp(unit, zone.then(|| "UTC".into()))),
        1 => (1u8..=38).prop_flat_map(|p| (Just(p), -38i8..=p as i8)).prop_map(|(p, s)| Decimal128(p, s)),
    ]
}

/// A value of a type, never null, with a liking for extremes.
pub(crate) fn value(ty: &ColumnType) -> BoxedStrategy<Datum> {
    macro_rules! integer {
        ($ty:ty, $kind:ident) => {
            prop_oneof![select(vec![<$ty>::MIN, <$ty>::MAX, 0, 1, (0 as $ty).wrapping_sub(1)]), any::<$ty>()]
                .prop_map(Datum::$kind)
                .boxed()
        };
    }
    macro_rules! float {
        ($float:ident, $kind:ident) => {{
            let special = vec![
                0.0,
                -0.0,
                $float::NAN,
                -$float::NAN,
                $float::INFINITY,
                $float::NEG_INFINITY,
                $float::MIN_POSITIVE,
                -$float::MIN_POSITIVE,
                $float::from_bits(1),
                -$float::from_bits(1),
                $float::MAX,
                $float::MIN,
            ];
            prop_oneof![select(special), proptest::num::$float::ANY].prop_map(Datum::$kind).boxed()
        }};
    }
    match ty {
        ColumnType::Bool => any::<bool>().prop_map(Datum::Bool).boxed(),
        ColumnType::Int8 => integer!(i8, Int8),
        ColumnType::Int16 => integer!(i16, Int16),
        ColumnType::Int32 => integer!(i32, Int32),
        ColumnType::Int64 => integer!(i64, Int64),
        ColumnType::UInt8 => integer!(u8, UInt8),
        ColumnType::UInt16 => integer!(u16, UInt16),
        ColumnType::UInt32 => integer!(u32, UInt32),
        ColumnType::UInt64 => integer!(u64, UInt64),
        ColumnType::Float32 => float!(f32, Float32),
        ColumnType::Float64 => float!(f64, Float64),
        ColumnType::Utf8 => vec(select(vec!['\0', '\u{1}', 'a', 'b', '\u{7f}', 'é', '\u{ffff}', '😀']), 0..8)
            .prop_map(|chars| Datum::Utf8(chars.into_iter().collect()))
            .boxed(),
        ColumnType::Binary => prop_oneof![
            6 => vec(select(vec![0u8, 1, 2, 0x7f, 0x80, 0xfe, 0xff]), 0..8),
            1 => vec(any::<u8>(), 200..300),
        ]
        .prop_map(Datum::Binary)
        .boxed(),
        ColumnType::Date32 => integer!(i32, Date32),
        ColumnType::Timestamp(..) => integer!(i64, Timestamp),
        ColumnType::Decimal128(precision, _) => {
            let bound = 10i128.pow(u32::from(*precision)) - 1;
            prop_oneof![select(vec![-bound, -1, 0, 1, bound]), -bound..=bound].prop_map(Datum::Decimal128).boxed()
        }
    }
}

/// A schema of 1 to 3 primary key columns among up to `max` columns, in any order.
pub(crate) fn schema(max: usize) -> impl Strategy<Value = Arc<Schema>> {
    (vec((column_type(), any::<bool>()), 1..=max), vec(any::<prop::sample::Index>(), 1..=3)).prop_map(
        |(columns, picks)| {
            let mut primary_key: Vec<usize> = Vec::new();
            for pick in picks {
                let column = pick.index(columns.len());
                if !primary_key.contains(&column) {
                    primary_key.push(column);
                }
            }
            let columns = columns
                .into_iter()
                .enumerate()
                .map(|(i, (ty, nullable))| Column {
                    name: format!("c{i}"),
                    ty,
                    nullable: nullable && !primary_key.contains(&i),
                    default: None,
                })
                .collect();
            Arc::new(Schema::new(columns, primary_key).unwrap())
        },
    )
}

/// A cell as the tests keep it: `None` is absent.
pub(crate) type Cell = Option<Datum>;

/// Cells for every column: never absent if `whole`, null only where allowed, values in the primary key.
pub(crate) fn cells(schema: &Arc<Schema>, whole: bool) -> BoxedStrategy<Vec<Cell>> {
    let schema = schema.clone();
    let cells: Vec<BoxedStrategy<Cell>> = schema
        .columns()
        .iter()
        .enumerate()
        .map(|(index, column)| {
            let present = if column.nullable {
                prop_oneof![1 => Just(Datum::Null), 3 => value(&column.ty)].boxed()
            } else {
                value(&column.ty)
            };
            if whole || schema.is_primary_key(index) {
                present.prop_map(Some).boxed()
            } else {
                proptest::option::of(present).boxed()
            }
        })
        .collect();
    cells.boxed()
}

/// The cells as the encoder takes them.
pub(crate) fn states(cells: &[Cell]) -> Vec<ColumnState<'_>> {
    cells.iter().map(|cell| cell.as_ref().map_or(ColumnState::Absent, |datum| datum.borrowed().into())).collect()
}

/// The cells of a whole row as the encoder takes them.
pub(crate) fn row(cells: &[Cell]) -> Vec<DatumRef<'_>> {
    cells.iter().map(|cell| cell.as_ref().unwrap().borrowed()).collect()
}

/// Equality that tells -0.0 from 0.0 and NaNs apart.
pub(crate) fn identical(a: DatumRef<'_>, b: DatumRef<'_>) -> bool {
    match (a, b) {
        (DatumRef::Float32(a), DatumRef::Float32(b)) => a.to_bits() == b.to_bits(),
        (DatumRef::Float64(a), DatumRef::Float64(b)) => a.to_bits() == b.to_bits(),
        (a, b) => a == b,
    }
}
