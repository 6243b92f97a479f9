//! Keys against the order of values, for every type and composites.

use std::cmp::Ordering;

use crate::common;
use mycelium_encoding::key::{
    decode_key, encode_key, encode_key_prefix, encode_row_key, key_successor, prefix_successor,
};
use mycelium_encoding::{ColumnType, Datum, DatumRef, Schema};
use proptest::prelude::*;

/// The order of two values, written without the library's: integers through i128, floats through their rank.
fn naive_order(a: &Datum, b: &Datum) -> Ordering {
    fn integer(datum: &Datum) -> Option<i128> {
        Some(match datum {
            Datum::Bool(v) => i128::from(*v),
            Datum::Int8(v) => i128::from(*v),
            Datum::Int16(v) => i128::from(*v),
            Datum::Int32(v) | Datum::Date32(v) => i128::from(*v),
            Datum::Int64(v) | Datum::Timestamp(v) => i128::from(*v),
            Datum::UInt8(v) => i128::from(*v),
            Datum::UInt16(v) => i128::from(*v),
            Datum::UInt32(v) => i128::from(*v),
            Datum::UInt64(v) => i128::from(*v),
            Datum::Decimal128(v) => *v,
            _ => return None,
        })
    }
    fn float(datum: &Datum) -> Option<f64> {
        match datum {
            Datum::Float32(v) => Some(f64::from(*v)),
            Datum::Float64(v) => Some(*v),
            _ => None,
        }
    }
    if let (Some(a), Some(b)) = (integer(a), integer(b)) {
        return a.cmp(&b);
    }
    if let (Some(a), Some(b)) = (float(a), float(b)) {
        return match (a.is_nan(), b.is_nan()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) if a < b => Ordering::Less,
            (false, false) if a > b => Ordering::Greater,
            (false, false) => Ordering::Equal,
        };
    }
    match (a, b) {
        (Datum::Utf8(a), Datum::Utf8(b)) => a.bytes().cmp(b.bytes()),
        (Datum::Binary(a), Datum::Binary(b)) => a.iter().cmp(b.iter()),
        _ => panic!("values of different types: {a:?} {b:?}"),
    }
}

fn key_of(schema: &Schema, row: &[common::Cell]) -> Vec<u8> {
    let mut key = Vec::new();
    encode_row_key(schema, &common::row(row), &mut key).unwrap();
    key
}

fn key_values(schema: &Schema, row: &[common::Cell]) -> Vec<Datum> {
    schema.primary_key().iter().map(|&i| row[i].clone().unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn byte_order_is_value_order(
        (schema, a, b, shared) in common::schema(4).prop_flat_map(|schema| {
            let row = || common::cells(&schema, true);
            (Just(schema.clone()), row(), row(), 0..3usize)
        })
    ) {
        // Often share leading columns, so that later ones decide.
        let mut b = b;
        for &column in schema.primary_key().iter().take(shared) {
            b[column] = a[column].clone();
        }
        let (a_values, b_values) = (key_values(&schema, &a), key_values(&schema, &b));
        let (a_key, b_key) = (key_of(&schema, &a), key_of(&schema, &b));
        let naive = a_values.iter().zip(&b_values).map(|(a, b)| naive_order(a, b)).find(|o| o.is_ne());
        prop_assert_eq!(a_key.cmp(&b_key), naive.unwrap_or(Ordering::Equal));
        prop_assert_eq!(a_values.cmp(&b_values), naive.unwrap_or(Ordering::Equal));

        let decoded = decode_key(&schema, &a_key).unwrap();
        prop_assert_eq!(&decoded, &a_values);
        let borrowed: Vec<DatumRef<'_>> = decoded.iter().map(Datum::borrowed).collect();
        let mut again = Vec::new();
        encode_key(&schema, &borrowed, &mut again).unwrap();
        prop_assert_eq!(&again, &a_key);

        // The first k columns select exactly the keys with these values.
        for k in 0..=borrowed.len() {
            let mut prefix = Vec::new();
            encode_key_prefix(&schema, &borrowed[..k], &mut prefix).unwrap();
            let equal = a_values[..k] == b_values[..k];
            prop_assert_eq!(b_key.starts_with(&prefix), equal);
            let below_end = prefix_successor(&prefix).is_none_or(|end| b_key < end);
            prop_assert_eq!(prefix <= b_key && below_end, equal);
        }
    }

    #[test]
    fn any_bytes_decode_to_their_own_key_or_fail(
        (schema, mut key, position, byte) in common::schema(3).prop_flat_map(|schema| {
            let key = common::cells(&schema, true).prop_map({
                let schema = schema.clone();
                move |row| key_of(&schema, &row)
            });
            (Just(schema), key, any::<prop::sample::Index>(), any::<u8>())
        }),
        random in proptest::collection::vec(any::<u8>(), 0..24),
    ) {
        let at = position.index(key.len());
        for damaged in [key[..at].to_vec(), { key[at] = byte; key }, random] {
            if let Ok(values) = decode_key(&schema, &damaged) {
                let borrowed: Vec<DatumRef<'_>> = values.iter().map(Datum::borrowed).collect();
                let mut again = Vec::new();
                encode_key(&schema, &borrowed, &mut again).unwrap();
                prop_assert_eq!(again, damaged);
            }
        }
    }

    #[test]
    fn successors_are_tight(a in proptest::collection::vec(0xfdu8.., 0..4), b in proptest::collection::vec(any::<u8>(), 0..5)) {
        let successor = key_successor(&a);
        prop_assert!(a < successor);
        prop_assert!(b <= a || b >= successor);
        if let Some(end) = prefix_successor(&a) {
            prop_assert_eq!(b.starts_with(&a), a <= b && b < end);
        } else {
            prop_assert!(b.starts_with(&a) == (a <= b));
        }
    }
}

#[test]
fn golden_keys() {
    fn code(ty: &str, text: &str) -> String {
        let schema = Schema::parse(&format!("k {ty} not null, primary key (k)")).unwrap();
        let datum = Datum::parse(text, &schema.columns()[0].ty).unwrap();
        let mut key = Vec::new();
        encode_key(&schema, &[datum.borrowed()], &mut key).unwrap();
        key.iter().map(|byte| format!("{byte:02x}")).collect()
    }
    for (ty, text, expected) in [
        ("bool", "false", "00"),
        ("bool", "true", "01"),
        ("int8", "-128", "00"),
        ("int16", "-1", "7fff"),
        ("int32", "0", "80000000"),
        ("int64", "-9223372036854775808", "0000000000000000"),
        ("int64", "258", "8000000000000102"),
        ("uint8", "255", "ff"),
        ("uint16", "1", "0001"),
        ("uint32", "1", "00000001"),
        ("uint64", "1", "0000000000000001"),
        ("float32", "1.5", "bfc00000"),
        ("float32", "-1.5", "403fffff"),
        ("float64", "-0", "8000000000000000"),
        ("float64", "0", "8000000000000000"),
        ("float64", "NaN", "fff8000000000000"),
        ("float64", "-inf", "000fffffffffffff"),
        ("utf8", "", "0001"),
        ("utf8", "a\0b", "6100ff620001"),
        ("binary", "\\x00ff", "00ffff0001"),
        ("date32", "1970-01-02", "80000001"),
        ("timestamp(ms)", "1970-01-01T00:00:01", "80000000000003e8"),
        ("decimal(5, 2)", "-0.01", "7fffffffffffffffffffffffffffffff"),
    ] {
        assert_eq!(code(ty, text), expected, "{ty} {text:?}");
    }
}

#[test]
fn refused_keys() {
    let schema = Schema::parse("a utf8 not null, b int32 not null, c int8, primary key (b, a)").unwrap();
    let mut out = Vec::new();
    let long = "x".repeat(70_000);
    assert!(encode_key(&schema, &[DatumRef::Int32(1)], &mut out).is_err());
    assert!(encode_key(&schema, &[DatumRef::Utf8("x"), DatumRef::Int32(1)], &mut out).is_err());
    assert!(encode_key(&schema, &[DatumRef::Null, DatumRef::Utf8("x")], &mut out).is_err());
    assert!(encode_key_prefix(&schema, &[DatumRef::Int32(1); 3], &mut out).is_err());
    assert!(encode_row_key(&schema, &[DatumRef::Utf8("x"), DatumRef::Int32(1)], &mut out).is_err());
    let error = encode_key(&schema, &[DatumRef::Int32(1), DatumRef::Utf8(&long)], &mut out).unwrap_err();
    assert!(error.to_string().contains("65535"), "{error}");
    assert_eq!(schema.columns()[0].ty, ColumnType::Utf8);
}
