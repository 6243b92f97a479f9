//! Values of DataFusion as values of columns: without loss, or not at all.
//!
//! A predicate on a column is pushed down only if its literal is a value that the column could hold, so that comparing
//! it with stored values says the same as DataFusion comparing both after its casts:
//!
//! 1. Casts around the column are looked through where they keep values and their order apart ([`keeps_order`]).
//! 2. The literal is brought to the column's type, or refused if that would change its value ([`to_datum`]).

use arrow_schema::{DataType, TimeUnit as ArrowUnit};
use datafusion::common::ScalarValue;
use mycelium_encoding::{ColumnType, Datum};

/// The literal as a value of a column, if it is one; never null.
pub(crate) fn to_datum(value: &ScalarValue, ty: &ColumnType) -> Option<Datum> {
    if let ScalarValue::Dictionary(_, value) = value {
        return to_datum(value, ty);
    }
    Some(match ty {
        ColumnType::Bool => match value {
            ScalarValue::Boolean(value) => Datum::Bool((*value)?),
            _ => return None,
        },
        ColumnType::Int8 => Datum::Int8(integer(value)?.try_into().ok()?),
        ColumnType::Int16 => Datum::Int16(integer(value)?.try_into().ok()?),
        ColumnType::Int32 => Datum::Int32(integer(value)?.try_into().ok()?),
        ColumnType::Int64 => Datum::Int64(integer(value)?.try_into().ok()?),
        ColumnType::UInt8 => Datum::UInt8(integer(value)?.try_into().ok()?),
        ColumnType::UInt16 => Datum::UInt16(integer(value)?.try_into().ok()?),
        ColumnType::UInt32 => Datum::UInt32(integer(value)?.try_into().ok()?),
        ColumnType::UInt64 => Datum::UInt64(integer(value)?.try_into().ok()?),
        ColumnType::Float32 => {
            let wide = float(value)?;
            let narrow = wide as f32;
            (f64::from(narrow).to_bits() == wide.to_bits()).then_some(Datum::Float32(narrow))?
        }
        ColumnType::Float64 => Datum::Float64(float(value)?),
        ColumnType::Utf8 => Datum::Utf8(text(value)?.to_owned()),
        ColumnType::Binary => Datum::Binary(binary(value)?.to_owned()),
        ColumnType::Date32 => match value {
            ScalarValue::Date32(value) => Datum::Date32((*value)?),
            _ => return None,
        },
        ColumnType::Timestamp(..) => Datum::Timestamp(timestamp(value, ty)?),
        ColumnType::Decimal128(precision, scale) => {
            let (digits, from) = decimal(value)?;
            let digits = rescale(digits, from, *scale)?;
            let is_fit = 10_u128.checked_pow((*precision).into()).is_none_or(|limit| digits.unsigned_abs() < limit);
            is_fit.then_some(Datum::Decimal128(digits))?
        }
    })
}

/// Whether casting a column to `to` gives distinct values for distinct values, in the same order.
pub(crate) fn keeps_order(from: &ColumnType, to: &DataType) -> bool {
    let bits = |ty: &ColumnType| ty.fixed_width().unwrap_or(0) * 8;
    let is_signed = matches!(from, ColumnType::Int8 | ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64);
    let is_unsigned = matches!(from, ColumnType::UInt8 | ColumnType::UInt16 | ColumnType::UInt32 | ColumnType::UInt64);
    let digits = |scale: i8, precision: u8| i16::from(precision) - i16::from(scale);
    match to {
        to if *to == from.to_arrow() => true,
        to if to.is_signed_integer() => {
            let to = to.primitive_width().unwrap_or(0) * 8;
            (is_signed && bits(from) <= to) || (is_unsigned && bits(from) < to)
        }
        to if to.is_unsigned_integer() => is_unsigned && bits(from) <= to.primitive_width().unwrap_or(0) * 8,
        DataType::Float64 => {
            ((is_signed || is_unsigned) && bits(from) <= 32)
                || matches!(from, ColumnType::Float32 | ColumnType::Float64)
        }
        DataType::Decimal128(precision, scale) => match from {
            // Any integer of n bits has at most this many digits.
            _ if is_signed || is_unsigned => {
                *scale >= 0 && digits(*scale, *precision) >= [3, 5, 10, 20][bits(from).trailing_zeros() as usize - 3]
            }
            ColumnType::Decimal128(old, old_scale) => {
                scale >= old_scale && digits(*scale, *precision) >= digits(*old_scale, *old)
            }
            _ => false,
        },
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => *from == ColumnType::Utf8,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            matches!(from, ColumnType::Binary | ColumnType::Utf8)
        }
        DataType::Timestamp(to, zone) => match (from, from.to_arrow()) {
            (ColumnType::Timestamp(..), DataType::Timestamp(unit, old)) => {
                per_second(&unit) <= per_second(to) && old.is_some() == zone.is_some()
            }
            _ => false,
        },
        _ => false,
    }
}

fn integer(value: &ScalarValue) -> Option<i128> {
    Some(match value {
        ScalarValue::Int8(v) => (*v)?.into(),
        ScalarValue::Int16(v) => (*v)?.into(),
        ScalarValue::Int32(v) => (*v)?.into(),
        ScalarValue::Int64(v) => (*v)?.into(),
        ScalarValue::UInt8(v) => (*v)?.into(),
        ScalarValue::UInt16(v) => (*v)?.into(),
        ScalarValue::UInt32(v) => (*v)?.into(),
        ScalarValue::UInt64(v) => (*v)?.into(),
        ScalarValue::Decimal128(v, _, scale) => rescale((*v)?, *scale, 0)?,
        ScalarValue::Float64(Some(v)) if v.fract() == 0.0 && v.abs() <= (1_u64 << 53) as f64 => *v as i128,
        _ => return None,
    })
}

fn float(value: &ScalarValue) -> Option<f64> {
    match value {
        ScalarValue::Float32(v) => (*v).map(f64::from),
        ScalarValue::Float64(v) => *v,
        _ => None,
    }
}

fn text(value: &ScalarValue) -> Option<&str> {
    match value {
        ScalarValue::Utf8(v) | ScalarValue::LargeUtf8(v) | ScalarValue::Utf8View(v) => v.as_deref(),
        _ => None,
    }
}

fn binary(value: &ScalarValue) -> Option<&[u8]> {
    match value {
        ScalarValue::Binary(v)
        | ScalarValue::LargeBinary(v)
        | ScalarValue::BinaryView(v)
        | ScalarValue::FixedSizeBinary(_, v) => v.as_deref(),
        _ => None,
    }
}

/// Ticks of the column's unit. An instant is compared with instants alone: with a time zone, or without.
fn timestamp(value: &ScalarValue, ty: &ColumnType) -> Option<i64> {
    let (ticks, zone, unit) = match value {
        ScalarValue::TimestampSecond(v, zone) => ((*v)?, zone, ArrowUnit::Second),
        ScalarValue::TimestampMillisecond(v, zone) => ((*v)?, zone, ArrowUnit::Millisecond),
        ScalarValue::TimestampMicrosecond(v, zone) => ((*v)?, zone, ArrowUnit::Microsecond),
        ScalarValue::TimestampNanosecond(v, zone) => ((*v)?, zone, ArrowUnit::Nanosecond),
        _ => return None,
    };
    let DataType::Timestamp(wanted, wanted_zone) = ty.to_arrow() else { return None };
    if zone.is_some() != wanted_zone.is_some() {
        return None;
    }
    let scaled = i128::from(ticks) * per_second(&wanted);
    let per_second = per_second(&unit);
    (scaled % per_second == 0).then(|| i64::try_from(scaled / per_second).ok())?
}

fn per_second(unit: &ArrowUnit) -> i128 {
    match unit {
        ArrowUnit::Second => 1,
        ArrowUnit::Millisecond => 1_000,
        ArrowUnit::Microsecond => 1_000_000,
        ArrowUnit::Nanosecond => 1_000_000_000,
    }
}

fn decimal(value: &ScalarValue) -> Option<(i128, i8)> {
    match value {
        ScalarValue::Decimal128(v, _, scale) => Some(((*v)?, *scale)),
        other => Some((integer(other)?, 0)),
    }
}

/// The digits of the same number at another scale.
fn rescale(digits: i128, from: i8, to: i8) -> Option<i128> {
    let shift = i32::from(to) - i32::from(from);
    let power = 10_i128.checked_pow(shift.unsigned_abs())?;
    if shift >= 0 { digits.checked_mul(power) } else { (digits % power == 0).then_some(digits / power) }
}

#[cfg(test)]
mod tests {
    use mycelium_encoding::TimeUnit;

    use super::*;

    #[test]
    fn numbers_become_values_of_columns_without_loss() {
        let int = |v| ScalarValue::Int64(Some(v));
        assert_eq!(to_datum(&int(127), &ColumnType::Int8), Some(Datum::Int8(127)));
        assert_eq!(to_datum(&int(128), &ColumnType::Int8), None);
        assert_eq!(to_datum(&int(-1), &ColumnType::UInt64), None);
        assert_eq!(to_datum(&ScalarValue::Float64(Some(3.0)), &ColumnType::Int32), Some(Datum::Int32(3)));
        assert_eq!(to_datum(&ScalarValue::Float64(Some(3.5)), &ColumnType::Int32), None);
        assert_eq!(to_datum(&ScalarValue::Int64(None), &ColumnType::Int64), None);
        let decimal = ScalarValue::Decimal128(Some(1250), 10, 2);
        assert_eq!(to_datum(&decimal, &ColumnType::Decimal128(10, 1)), Some(Datum::Decimal128(125)));
        assert_eq!(to_datum(&decimal, &ColumnType::Decimal128(10, 0)), None);
        assert_eq!(to_datum(&int(12), &ColumnType::Decimal128(4, 2)), Some(Datum::Decimal128(1200)));
        assert_eq!(to_datum(&int(100), &ColumnType::Decimal128(4, 2)), None, "too many digits");
    }

    #[test]
    fn floats_keep_their_bits() {
        let float = |v| ScalarValue::Float64(Some(v));
        assert_eq!(to_datum(&float(0.1), &ColumnType::Float64), Some(Datum::Float64(0.1)));
        assert_eq!(to_datum(&float(0.1), &ColumnType::Float32), None);
        assert_eq!(to_datum(&float(0.5), &ColumnType::Float32), Some(Datum::Float32(0.5)));
        let zero = to_datum(&float(-0.0), &ColumnType::Float64);
        assert!(matches!(zero, Some(Datum::Float64(zero)) if zero.is_sign_negative()));
        assert!(matches!(to_datum(&float(f64::NAN), &ColumnType::Float64), Some(Datum::Float64(nan)) if nan.is_nan()));
    }

    #[test]
    fn instants_keep_their_unit_and_zone() {
        let millis = ColumnType::Timestamp(TimeUnit::Millisecond, None);
        let nanos = |v| ScalarValue::TimestampNanosecond(Some(v), None);
        assert_eq!(to_datum(&nanos(5_000_000), &millis), Some(Datum::Timestamp(5)));
        assert_eq!(to_datum(&nanos(5_000_001), &millis), None);
        assert_eq!(to_datum(&ScalarValue::TimestampSecond(Some(2), None), &millis), Some(Datum::Timestamp(2000)));
        assert_eq!(to_datum(&ScalarValue::TimestampSecond(Some(2), Some("UTC".into())), &millis), None);
        assert!(keeps_order(&millis, &DataType::Timestamp(ArrowUnit::Nanosecond, None)));
        assert!(!keeps_order(&millis, &DataType::Timestamp(ArrowUnit::Second, None)));
    }

    #[test]
    fn casts_that_lose_values_or_order_are_told() {
        for (from, to, keeps) in [
            (ColumnType::Int32, DataType::Int64, true),
            (ColumnType::Int64, DataType::Int32, false),
            (ColumnType::UInt32, DataType::Int32, false),
            (ColumnType::UInt32, DataType::Int64, true),
            (ColumnType::Int8, DataType::UInt64, false),
            (ColumnType::Int32, DataType::Float64, true),
            (ColumnType::Int64, DataType::Float64, false),
            (ColumnType::Int64, DataType::Decimal128(20, 0), true),
            (ColumnType::Int64, DataType::Decimal128(20, 2), false),
            (ColumnType::Int8, DataType::Decimal128(3, 0), true),
            (ColumnType::Decimal128(10, 2), DataType::Decimal128(12, 4), true),
            (ColumnType::Decimal128(10, 2), DataType::Decimal128(12, 5), false),
            (ColumnType::Int64, DataType::Utf8, false),
            (ColumnType::Utf8, DataType::Utf8View, true),
            (ColumnType::Date32, DataType::Utf8, false),
        ] {
            assert_eq!(keeps_order(&from, &to), keeps, "{from} to {to}");
        }
    }
}
