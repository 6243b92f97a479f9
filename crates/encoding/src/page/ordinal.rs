//! Ordinals: values of fixed width as `i64` in the same order.
//!
//! | type | ordinal |
//! |---|---|
//! | bool, integers, date, timestamp | the value |
//! | uint64 | the value with its highest bit flipped |
//! | float32, float64 | the bits, as a total order: negative values reversed, NaN at both ends (IEEE 754 totalOrder, as Arrow compares) |
//! | decimal | the integer, if it fits |
//!
//! Values of other types, and decimals that do not fit, are compared as they are ([`compare`]).

use std::cmp::Ordering;

use crate::{ColumnType, DatumRef};

const HIGHEST: u64 = 1 << 63;

#[inline]
fn ordered32(bits: u32) -> i64 {
    let signed = bits as i32;
    i64::from(signed ^ ((signed >> 31) as u32 >> 1) as i32)
}

#[inline]
fn ordered64(bits: u64) -> i64 {
    let signed = bits as i64;
    signed ^ ((signed >> 63) as u64 >> 1) as i64
}

/// The ordinal of a value; `None` for text, bytes, null, and decimals that do not fit.
#[inline]
pub(crate) fn ordinal(datum: DatumRef<'_>) -> Option<i64> {
    Some(match datum {
        DatumRef::Bool(v) => i64::from(v),
        DatumRef::Int8(v) => i64::from(v),
        DatumRef::Int16(v) => i64::from(v),
        DatumRef::Int32(v) | DatumRef::Date32(v) => i64::from(v),
        DatumRef::Int64(v) | DatumRef::Timestamp(v) => v,
        DatumRef::UInt8(v) => i64::from(v),
        DatumRef::UInt16(v) => i64::from(v),
        DatumRef::UInt32(v) => i64::from(v),
        DatumRef::UInt64(v) => (v ^ HIGHEST) as i64,
        DatumRef::Float32(v) => ordered32(v.to_bits()),
        DatumRef::Float64(v) => ordered64(v.to_bits()),
        DatumRef::Decimal128(v) => i64::try_from(v).ok()?,
        DatumRef::Null | DatumRef::Utf8(_) | DatumRef::Binary(_) => return None,
    })
}

/// How two values of one type compare; `None` for values of different types, and null.
pub fn compare(a: DatumRef<'_>, b: DatumRef<'_>) -> Option<Ordering> {
    match (a, b) {
        (DatumRef::Utf8(a), DatumRef::Utf8(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
        (DatumRef::Binary(a), DatumRef::Binary(b)) => Some(a.cmp(b)),
        (DatumRef::Decimal128(a), DatumRef::Decimal128(b)) => Some(a.cmp(&b)),
        _ if std::mem::discriminant(&a) == std::mem::discriminant(&b) => Some(ordinal(a)?.cmp(&ordinal(b)?)),
        _ => None,
    }
}

/// The value of an ordinal; bits that its type does not have are left out.
#[inline]
pub(crate) fn datum(kind: &ColumnType, ordinal: i64) -> DatumRef<'static> {
    match kind {
        ColumnType::Bool => DatumRef::Bool(ordinal & 1 == 1),
        ColumnType::Int8 => DatumRef::Int8(ordinal as i8),
        ColumnType::Int16 => DatumRef::Int16(ordinal as i16),
        ColumnType::Int32 => DatumRef::Int32(ordinal as i32),
        ColumnType::Int64 => DatumRef::Int64(ordinal),
        ColumnType::UInt8 => DatumRef::UInt8(ordinal as u8),
        ColumnType::UInt16 => DatumRef::UInt16(ordinal as u16),
        ColumnType::UInt32 => DatumRef::UInt32(ordinal as u32),
        ColumnType::UInt64 => DatumRef::UInt64(ordinal as u64 ^ HIGHEST),
        ColumnType::Float32 => DatumRef::Float32(f32::from_bits(slot32(kind, ordinal))),
        ColumnType::Float64 => DatumRef::Float64(f64::from_bits(slot64(kind, ordinal))),
        ColumnType::Date32 => DatumRef::Date32(ordinal as i32),
        ColumnType::Timestamp(..) => DatumRef::Timestamp(ordinal),
        ColumnType::Decimal128(..) => DatumRef::Decimal128(i128::from(ordinal)),
        ColumnType::Utf8 | ColumnType::Binary => DatumRef::Null,
    }
}

/// The four bytes of a value of that width.
#[inline]
pub(crate) fn slot32(kind: &ColumnType, ordinal: i64) -> u32 {
    let signed = ordinal as i32;
    if *kind == ColumnType::Float32 { (signed ^ ((signed >> 31) as u32 >> 1) as i32) as u32 } else { signed as u32 }
}

/// The eight bytes of a value of that width.
#[inline]
pub(crate) fn slot64(kind: &ColumnType, ordinal: i64) -> u64 {
    match kind {
        ColumnType::UInt64 => ordinal as u64 ^ HIGHEST,
        ColumnType::Float64 => (ordinal ^ ((ordinal >> 63) as u64 >> 1) as i64) as u64,
        _ => ordinal as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinals_are_in_the_order_of_values() {
        let floats = [f64::NEG_INFINITY, -1.5, -0.0, 0.0, 1e-300, 2.0, f64::INFINITY, f64::NAN];
        let ordinals: Vec<i64> = floats.iter().map(|&v| ordinal(DatumRef::Float64(v)).unwrap()).collect();
        assert!(ordinals.is_sorted_by(|a, b| a < b), "{ordinals:?}");
        for &v in &floats {
            let back = datum(&ColumnType::Float64, ordinal(DatumRef::Float64(v)).unwrap());
            assert!(matches!(back, DatumRef::Float64(found) if found.to_bits() == v.to_bits()));
            let short = v as f32;
            let back = datum(&ColumnType::Float32, ordinal(DatumRef::Float32(short)).unwrap());
            assert!(matches!(back, DatumRef::Float32(found) if found.to_bits() == short.to_bits()));
        }
        let integers = [0, 1, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX];
        assert!(integers.is_sorted_by_key(|&v| ordinal(DatumRef::UInt64(v))));
        for v in integers {
            assert_eq!(datum(&ColumnType::UInt64, ordinal(DatumRef::UInt64(v)).unwrap()), DatumRef::UInt64(v));
        }
    }
}
