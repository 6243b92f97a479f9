//! Casts that lose nothing unseen: what a column cannot hold as it is is refused, and the value named.
//!
//! 1. *Text* of a number has no more digits than the column keeps, however it is spelled (`2.50` and `25e-1` fit one
//!    place); that of a date no time of day; that of an instant no finer fraction than the column's unit.
//! 2. *Numbers and instants* come back the same when they are cast back. Of floats the nearest is taken, as every
//!    reader does, but no number becomes infinite, or 0 if it is not.

use std::borrow::Cow;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, Float64Array, StringArray};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DECIMAL128_MAX_PRECISION, DataType, TimeUnit};

/// The most zeros that an exponent may stand for: more digits than any column has.
const MOST_ZEROS: usize = 64;

/// Whether readers of text lose digits, or whole numbers, of values of this type, so that they are to be read as text.
pub(crate) fn loses_digits(ty: &DataType) -> bool {
    matches!(
        ty,
        DataType::Date32 | DataType::Timestamp(..) | DataType::Decimal128(..) | DataType::Float32 | DataType::Float64
    )
}

/// The values as others of type `ty`.
pub(crate) fn cast(column: &ArrayRef, ty: &DataType) -> Result<ArrayRef, ArrowError> {
    match column.data_type() {
        DataType::Dictionary(_, values) => cast(&strict(column, values)?, ty),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View if ty.is_integer() || loses_digits(ty) => {
            cast_texts(strict(column, &DataType::Utf8)?.as_string(), ty)
        }
        from => {
            let found = strict(column, ty)?;
            match (from.is_floating(), ty.is_floating()) {
                (true, true) => check_floats(&as_doubles(column)?, &as_doubles(&found)?, column, ty)?,
                _ if is_number(from) && is_number(ty) => check_same(column, &strict(&found, from)?, ty)?,
                _ => {}
            }
            Ok(found)
        }
    }
}

fn strict(column: &dyn Array, ty: &DataType) -> Result<ArrayRef, ArrowError> {
    cast_with_options(column, ty, &CastOptions { safe: false, ..CastOptions::default() })
}

fn is_number(ty: &DataType) -> bool {
    ty.is_numeric() || ty.is_temporal()
}

fn refused(value: &str, ty: &DataType) -> ArrowError {
    ArrowError::CastError(format!("{value} is not held in full by a column of type {ty}"))
}

fn check_same(before: &ArrayRef, back: &ArrayRef, ty: &DataType) -> Result<(), ArrowError> {
    if before == back {
        return Ok(());
    }
    let differs = |&row: &usize| before.slice(row, 1) != back.slice(row, 1);
    let row = (0..before.len()).find(differs).unwrap_or_default();
    let text = arrow_cast::display::array_value_to_string(before, row)?;
    Err(refused(&text, ty))
}

fn as_doubles(floats: &dyn Array) -> Result<Float64Array, ArrowError> {
    Ok(strict(floats, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
}

/// Fails if a float of `before` is finite and infinite after, or not 0 and 0 after; `column` is what is shown.
fn check_floats(
    before: &Float64Array,
    after: &Float64Array,
    column: &dyn Array,
    ty: &DataType,
) -> Result<(), ArrowError> {
    let is_lost = |&row: &usize| {
        let (before, after) = (before.value(row), after.value(row));
        after.is_infinite() && before.is_finite() || after == 0.0 && before != 0.0
    };
    match (0..before.len()).filter(|&row| before.is_valid(row)).find(is_lost) {
        Some(row) => Err(refused(&arrow_cast::display::array_value_to_string(column, row)?, ty)),
        None => Ok(()),
    }
}

/// The texts as floats.
fn cast_texts_of_floats(texts: &StringArray, ty: &DataType) -> Result<ArrayRef, ArrowError> {
    let found = strict(texts, ty)?;
    let is_other = |(row, value): (usize, Option<f64>)| {
        let value = value.filter(|value| value.is_infinite() || *value == 0.0)?;
        // `inf` has no digits.
        let mantissa = texts.value(row).split(['e', 'E']).next().unwrap_or_default();
        let is_zero = !mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
        let is_number = mantissa.bytes().any(|byte| byte.is_ascii_digit());
        (is_number && (value.is_infinite() || !is_zero)).then_some(row)
    };
    match as_doubles(&found)?.iter().enumerate().find_map(is_other) {
        Some(row) => Err(refused(texts.value(row), ty)),
        None => Ok(found),
    }
}

fn cast_texts(texts: &StringArray, ty: &DataType) -> Result<ArrayRef, ArrowError> {
    if ty.is_floating() {
        return cast_texts_of_floats(texts, ty);
    }
    let plain: StringArray = match ty {
        DataType::Date32 | DataType::Timestamp(..) => texts.clone(),
        _ => texts.iter().map(|text| text.map(spelled_out)).collect(),
    };
    let fits = |text: &str| match ty {
        DataType::Decimal128(_, scale) => fits_scale(text, *scale),
        DataType::Timestamp(unit, _) => fraction(text).len() <= digits(*unit),
        DataType::Date32 => is_midnight(text),
        _ => true,
    };
    for (row, text) in plain.iter().enumerate() {
        if text.is_some_and(|text| !fits(text)) {
            return Err(refused(texts.value(row), ty));
        }
    }
    match ty {
        // Arrow reads no text of tens and hundreds.
        DataType::Decimal128(_, ..0) => {
            let units = strict(&plain, &DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0))?;
            strict(&units, ty)
        }
        _ => strict(&plain, ty),
    }
}

/// A decimal number without exponent, and without a fraction of zeros; any other text as it is.
fn spelled_out(text: &str) -> Cow<'_, str> {
    let (sign, body) = match text.strip_prefix('-') {
        Some(body) => ("-", body),
        None => ("", text),
    };
    let (mantissa, exponent) = body.split_once(['e', 'E']).unwrap_or((body, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_number = !whole.is_empty() && whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
    let exponent = exponent.parse::<i64>().ok().filter(|exponent| exponent.unsigned_abs() <= MOST_ZEROS as u64);
    let (true, true, Some(exponent)) = (is_number, body.len() > whole.len(), exponent) else { return text.into() };
    // The point stands behind so many of the digits, of which there are enough on both sides of it.
    let digits = format!("{:0>MOST_ZEROS$}{whole}{fraction}{:0>MOST_ZEROS$}", "", "");
    let point = (MOST_ZEROS + whole.len()).saturating_add_signed(exponent as isize);
    let (whole, fraction) = digits.split_at(point);
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    let whole = if whole.is_empty() { "0" } else { whole };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{whole}{point}{fraction}").into()
}

/// Whether a number that is spelled out has no digit below the last one of the scale.
fn fits_scale(text: &str, scale: i8) -> bool {
    let places = usize::from(scale.unsigned_abs());
    match scale {
        0.. => fraction(text).len() <= places,
        _ => {
            let digits = text.trim_start_matches(['-', '0']);
            let zeros = digits.len() - digits.trim_end_matches('0').len();
            fraction(text).is_empty() && (digits.is_empty() || zeros >= places)
        }
    }
}

/// The digits behind the point, without zeros at the end.
fn fraction(text: &str) -> &str {
    let Some((_, behind)) = text.split_once('.') else { return "" };
    let end = behind.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(behind.len());
    behind[..end].trim_end_matches('0')
}

fn digits(unit: TimeUnit) -> usize {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

/// Whether text that spells a date, perhaps with a time of day in some zone, spells the beginning of a day.
fn is_midnight(text: &str) -> bool {
    let Some((_, time)) = text.split_once(['T', 't', ' ']) else { return true };
    let clock = time.split(['Z', 'z', '+', '-', ' ']).next().unwrap_or_default();
    let zone = time[clock.len()..].trim_start();
    let is_zero = |text: &str| text.bytes().all(|byte| !byte.is_ascii_digit() || byte == b'0');
    is_zero(clock) && is_zero(zone)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Float64Array, Int64Array, TimestampNanosecondArray};

    use super::*;

    fn of_text(text: &str, ty: &DataType) -> Option<String> {
        let column: ArrayRef = Arc::new(StringArray::from(vec![None, Some(text)]));
        let found = cast(&column, ty).ok()?;
        assert!(found.is_null(0));
        Some(arrow_cast::display::array_value_to_string(&found, 1).expect("printable"))
    }

    #[test]
    fn texts_are_held_in_full_or_refused() {
        let cents = DataType::Decimal128(9, 2);
        let thousands = DataType::Decimal128(9, -3);
        let millis = DataType::Timestamp(TimeUnit::Millisecond, None);
        for (text, ty, expected) in [
            ("2", &DataType::Int64, Some("2")),
            ("-2.000", &DataType::Int64, Some("-2")),
            ("1.2e1", &DataType::Int64, Some("12")),
            ("9007199254740993", &DataType::Int64, Some("9007199254740993")),
            ("2.7", &DataType::Int64, None),
            ("25e-1", &DataType::Int8, None),
            ("1e64", &DataType::Int8, None),
            ("1e999999999999", &DataType::Int64, None),
            ("300", &DataType::Int8, None),
            ("1.5", &cents, Some("1.50")),
            ("-1.2300", &cents, Some("-1.23")),
            ("25e-1", &cents, Some("2.50")),
            ("-5e-2", &cents, Some("-0.05")),
            ("1.239", &cents, None),
            ("1e-3", &cents, None),
            ("0", &cents, Some("0.00")),
            ("7000", &thousands, Some("7000")),
            ("7500", &thousands, None),
            ("2024-02-29", &DataType::Date32, Some("2024-02-29")),
            ("2024-02-29T00:00:00Z", &DataType::Date32, Some("2024-02-29")),
            ("2024-02-29T23:00:00Z", &DataType::Date32, None),
            ("2024-02-29T00:00:00+02:00", &DataType::Date32, None),
            ("2024-02-29 05:00:00.1230", &millis, Some("2024-02-29T05:00:00.123")),
            ("2024-02-29 05:00:00.1234", &millis, None),
            ("2024-02-29T05:00:00.000001Z", &millis, None),
            ("never", &millis, None),
            ("NaN", &DataType::Int64, None),
        ] {
            assert_eq!(of_text(text, ty).as_deref(), expected, "{text} as {ty}");
        }
    }

    #[test]
    fn numbers_and_instants_come_back_or_are_refused() {
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![None, Some(2.0), Some(1.9)]));
        let error = cast(&floats, &DataType::Int64).expect_err("1.9 is no integer").to_string();
        assert!(error.contains("1.9 is not held in full"), "{error}");
        assert_eq!(cast(&floats.slice(0, 2), &DataType::Int64).expect("integers").null_count(), 1);
        assert!(cast(&floats, &DataType::Float32).is_ok());
        for lost in [1e300, -1e300, 1e-300] {
            let floats: ArrayRef = Arc::new(Float64Array::from(vec![None, Some(f64::INFINITY), Some(0.0), Some(lost)]));
            assert!(cast(&floats, &DataType::Float32).is_err(), "{lost}");
            assert!(cast(&floats.slice(0, 3), &DataType::Float32).is_ok());
        }
        let large: ArrayRef = Arc::new(Int64Array::from(vec![(1 << 53) + 1]));
        assert!(cast(&large, &DataType::Float64).is_err());
        let instants: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![1_000_001]));
        assert!(cast(&instants, &DataType::Timestamp(TimeUnit::Microsecond, None)).is_err());
        let whole: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![1_000_000]));
        assert!(cast(&whole, &DataType::Timestamp(TimeUnit::Microsecond, None)).is_ok());
    }
}
