//! Values as text: what the shell prints and reads.
//!
//! `true`; `-12`; `1.5`, `NaN`, `inf`; text as it is; binary as `\x00ff`; `2024-02-29`; `2024-02-29T12:00:00.5`, with a
//! `Z` where the column has a time zone (values are UTC); decimals with the column's scale. Null prints as `null` but
//! is never read: the caller decides what stands for it.
//!
//! Floats are read as the nearest one. A number that overflows to infinity is refused, so is one that is not zero and
//! would become zero.

use std::fmt;

use mycelium_base::{Error, Result};

use crate::datum::decimal_fits;
use crate::{ColumnType, Datum, DatumRef, TimeUnit};

/// Prints a value as one of a type; made by [`DatumRef::display_as`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct DisplayAs<'a> {
    datum: DatumRef<'a>,
    ty: Option<&'a ColumnType>,
}

impl<'a> DatumRef<'a> {
    /// Prints the value as one of type `ty`, which gives timestamps their unit and decimals their scale.
    pub fn display_as(self, ty: &'a ColumnType) -> impl fmt::Display + 'a {
        DisplayAs { datum: self, ty: Some(ty) }
    }
}

/// Prints timestamps as ticks and decimals unscaled; see [`DatumRef::display_as`].
impl fmt::Display for DatumRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&DisplayAs { datum: *self, ty: None }, f)
    }
}

/// As [`DatumRef`].
impl fmt::Display for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.borrowed(), f)
    }
}

impl fmt::Display for DisplayAs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.datum, self.ty) {
            (DatumRef::Null, _) => f.write_str("null"),
            (DatumRef::Bool(v), _) => write!(f, "{v}"),
            (DatumRef::Int8(v), _) => write!(f, "{v}"),
            (DatumRef::Int16(v), _) => write!(f, "{v}"),
            (DatumRef::Int32(v), _) => write!(f, "{v}"),
            (DatumRef::Int64(v), _) => write!(f, "{v}"),
            (DatumRef::UInt8(v), _) => write!(f, "{v}"),
            (DatumRef::UInt16(v), _) => write!(f, "{v}"),
            (DatumRef::UInt32(v), _) => write!(f, "{v}"),
            (DatumRef::UInt64(v), _) => write!(f, "{v}"),
            (DatumRef::Float32(v), _) => write!(f, "{v}"),
            (DatumRef::Float64(v), _) => write!(f, "{v}"),
            (DatumRef::Utf8(v), _) => f.write_str(v),
            (DatumRef::Binary(v), _) => {
                f.write_str("\\x")?;
                v.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            (DatumRef::Date32(v), _) => write_date(f, i64::from(v)),
            (DatumRef::Timestamp(v), Some(ColumnType::Timestamp(unit, zone))) => {
                write_timestamp(f, v, *unit, zone.is_some())
            }
            (DatumRef::Timestamp(v), _) => write!(f, "{v}"),
            (DatumRef::Decimal128(v), Some(ColumnType::Decimal128(_, scale))) => write_decimal(f, v, *scale),
            (DatumRef::Decimal128(v), _) => write!(f, "{v}"),
        }
    }
}

fn write_date(f: &mut fmt::Formatter<'_>, days: i64) -> fmt::Result {
    let (year, month, day) = civil_from_days(days);
    if (0..=9999).contains(&year) {
        write!(f, "{year:04}-{month:02}-{day:02}")
    } else {
        write!(f, "{year:+05}-{month:02}-{day:02}")
    }
}

fn write_timestamp(f: &mut fmt::Formatter<'_>, ticks: i64, unit: TimeUnit, zone: bool) -> fmt::Result {
    let per_second = 10i64.pow(unit.digits());
    let (seconds, fraction) = (ticks.div_euclid(per_second), ticks.rem_euclid(per_second));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    write_date(f, days)?;
    write!(f, "T{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)?;
    if fraction > 0 {
        let digits = format!("{fraction:0width$}", width = unit.digits() as usize);
        write!(f, ".{}", digits.trim_end_matches('0'))?;
    }
    if zone { f.write_str("Z") } else { Ok(()) }
}

fn write_decimal(f: &mut fmt::Formatter<'_>, value: i128, scale: i8) -> fmt::Result {
    let sign = if value < 0 { "-" } else { "" };
    let digits = value.unsigned_abs().to_string();
    let places = usize::from(scale.unsigned_abs());
    if scale <= 0 {
        let zeros = if value == 0 { 0 } else { places };
        return write!(f, "{sign}{digits}{:0<zeros$}", "");
    }
    let padded = format!("{digits:0>width$}", width = places + 1);
    let (whole, fraction) = padded.split_at(padded.len() - places);
    write!(f, "{sign}{whole}.{fraction}")
}

impl Datum {
    /// Reads the text of a value of type `ty`; the reverse of [`DatumRef::display_as`]. Timestamps may have a space for
    /// the `T`, and `Z` or an offset such as `+02:00`.
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::InvalidArgument`] gives the text and the type.
    pub fn parse(text: &str, ty: &ColumnType) -> Result<Self> {
        parse(text, ty).ok_or_else(|| Error::invalid(format!("\"{text}\" is not a value of type {ty}")))
    }
}

fn parse(text: &str, ty: &ColumnType) -> Option<Datum> {
    Some(match ty {
        ColumnType::Bool => Datum::Bool(text.parse().ok()?),
        ColumnType::Int8 => Datum::Int8(text.parse().ok()?),
        ColumnType::Int16 => Datum::Int16(text.parse().ok()?),
        ColumnType::Int32 => Datum::Int32(text.parse().ok()?),
        ColumnType::Int64 => Datum::Int64(text.parse().ok()?),
        ColumnType::UInt8 => Datum::UInt8(text.parse().ok()?),
        ColumnType::UInt16 => Datum::UInt16(text.parse().ok()?),
        ColumnType::UInt32 => Datum::UInt32(text.parse().ok()?),
        ColumnType::UInt64 => Datum::UInt64(text.parse().ok()?),
        ColumnType::Float32 => {
            let value: f32 = text.parse().ok()?;
            Datum::Float32(is_float_of(text, value.into()).then_some(value)?)
        }
        ColumnType::Float64 => {
            let value: f64 = text.parse().ok()?;
            Datum::Float64(is_float_of(text, value).then_some(value)?)
        }
        ColumnType::Utf8 => Datum::Utf8(text.to_owned()),
        ColumnType::Binary => Datum::Binary(parse_hex(text.strip_prefix("\\x")?)?),
        ColumnType::Date32 => Datum::Date32(i32::try_from(parse_date(text)?).ok()?),
        ColumnType::Timestamp(unit, _) => Datum::Timestamp(parse_timestamp(text, *unit)?),
        ColumnType::Decimal128(precision, scale) => Datum::Decimal128(parse_decimal(text, *precision, *scale)?),
    })
}

/// Whether a float is what its text says, but for rounding: neither infinite nor zero where the text is another number.
fn is_float_of(text: &str, value: f64) -> bool {
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let is_number = mantissa.bytes().any(|byte| byte.is_ascii_digit());
    let is_zero = !mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    !is_number || value.is_finite() && (value != 0.0 || is_zero)
}

fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.as_bytes().chunks(2).map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8)).collect()
}

fn parse_date(text: &str) -> Option<i64> {
    let (body, negative) = match text.strip_prefix('-') {
        Some(body) => (body, true),
        None => (text.strip_prefix('+').unwrap_or(text), false),
    };
    let mut parts = body.split('-');
    let year: i64 = parse_digits(parts.next()?, 4..=12)?;
    let month: i64 = parse_digits(parts.next()?, 2..=2)?;
    let day: i64 = parse_digits(parts.next()?, 2..=2)?;
    if parts.next().is_some() {
        return None;
    }
    let year = if negative { -year } else { year };
    let days = days_from_civil(year, month, day);
    (civil_from_days(days) == (year, month, day)).then_some(days)
}

fn parse_digits(text: &str, lengths: std::ops::RangeInclusive<usize>) -> Option<i64> {
    // No length is of numbers beyond 64 bits.
    let digit = |value: i64, byte: u8| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0'));
    lengths.contains(&text.len()).then(|| text.bytes().try_fold(0, digit))?
}

fn parse_timestamp(text: &str, unit: TimeUnit) -> Option<i64> {
    if let Some(seconds) = usual_instant(text.as_bytes()) {
        return seconds.checked_mul(10i64.pow(unit.digits()));
    }
    let (date, time) = match text.split_once(['T', ' ']) {
        Some(halves) => halves,
        None => (text, "00:00:00"),
    };
    let (time, offset) = match time.find(['Z', '+', '-']) {
        Some(at) => (&time[..at], parse_offset(&time[at..])?),
        None => (time, 0),
    };
    let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut parts = clock.split(':');
    let hour = parse_digits(parts.next()?, 2..=2).filter(|h| *h < 24)?;
    let minute = parse_digits(parts.next()?, 2..=2).filter(|m| *m < 60)?;
    let seconds = parts.next();
    let second = parse_digits(seconds.unwrap_or("00"), 2..=2).filter(|s| *s < 60)?;
    // A fraction is one of a second.
    if parts.next().is_some() || time.ends_with('.') || seconds.is_none() && time.contains('.') {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let digits = unit.digits() as usize;
    if fraction.len() > digits || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let fraction: i128 = if digits == 0 { 0 } else { format!("{fraction:0<digits$}").parse().ok()? };
    let seconds = i128::from(parse_date(date)?) * 86_400 + i128::from(hour * 3600 + minute * 60 + second - offset);
    i64::try_from(seconds * 10i128.pow(unit.digits()) + fraction).ok()
}

/// The seconds of an instant as it is mostly written: `2024-02-29T12:00:00`, with `Z` or without it.
fn usual_instant(text: &[u8]) -> Option<i64> {
    let ([clock @ .., b'Z'] | clock) = text;
    let &[y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2, b'T', h1, h2, b':', n1, n2, b':', s1, s2] = clock else {
        return None;
    };
    let number = |digits: &[u8]| {
        digits.iter().try_fold(0, |value, digit| digit.is_ascii_digit().then(|| value * 10 + i64::from(digit - b'0')))
    };
    let (year, month, day) = (number(&[y1, y2, y3, y4])?, number(&[m1, m2])?, number(&[d1, d2])?);
    let (hour, minute, second) = (number(&[h1, h2])?, number(&[n1, n2])?, number(&[s1, s2])?);
    let days = days_from_civil(year, month, day);
    let is_one = hour < 24 && minute < 60 && second < 60 && civil_from_days(days) == (year, month, day);
    is_one.then(|| days * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Seconds east of UTC.
fn parse_offset(text: &str) -> Option<i64> {
    if text == "Z" {
        return Some(0);
    }
    let (sign, clock) = match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(clock), _) => (1, clock),
        (_, Some(clock)) => (-1, clock),
        _ => return None,
    };
    let (hours, minutes) = clock.split_once(':').unwrap_or((clock, "00"));
    let hours = parse_digits(hours, 2..=2).filter(|h| *h < 24)?;
    let minutes = parse_digits(minutes, 2..=2).filter(|m| *m < 60)?;
    Some(sign * (hours * 3600 + minutes * 60))
}

fn parse_decimal(text: &str, precision: u8, scale: i8) -> Option<i128> {
    let (body, negative) = match text.strip_prefix('-') {
        Some(body) => (body, true),
        None => (text, false),
    };
    let (whole, fraction) = body.split_once('.').unwrap_or((body, ""));
    let fraction = fraction.trim_end_matches('0');
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    let places = usize::from(scale.unsigned_abs());
    let digits = if scale > 0 {
        if fraction.len() > places {
            return None;
        }
        format!("{whole}{fraction:0<places$}")
    } else if whole.is_empty() && fraction.is_empty() {
        String::new()
    } else {
        let (digits, zeros) = whole.split_at_checked(whole.len().checked_sub(places)?)?;
        if !fraction.is_empty() || zeros.bytes().any(|b| b != b'0') {
            return None;
        }
        digits.to_owned()
    };
    let magnitude: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    let value = if negative { -magnitude } else { magnitude };
    decimal_fits(value, precision).then_some(value)
}

/// Days since 1970-01-01 of a day of the proleptic Gregorian calendar (eras of 400 years, years starting in March).
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The reverse of [`days_from_civil`]: (year, month, day).
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn both_ways(text: &str, ty: ColumnType) {
        let datum = Datum::parse(text, &ty).unwrap();
        assert_eq!(datum.borrowed().display_as(&ty).to_string(), text);
    }

    #[test]
    fn text_both_ways() {
        use ColumnType::*;
        let utc = || Some("UTC".into());
        for (text, ty) in [
            ("true", Bool),
            ("-128", Int8),
            ("18446744073709551615", UInt64),
            ("NaN", Float64),
            ("-inf", Float32),
            ("0.1", Float32),
            ("-0", Float64),
            ("", Utf8),
            ("null", Utf8),
            ("\\x", Binary),
            ("\\x00ff", Binary),
            ("1970-01-01", Date32),
            ("2024-02-29", Date32),
            ("0000-03-01", Date32),
            ("-0001-12-31", Date32),
            ("+12345-01-01", Date32),
            ("1969-12-31T23:59:59.999999999", Timestamp(TimeUnit::Nanosecond, None)),
            ("2024-02-29T12:30:00.5Z", Timestamp(TimeUnit::Microsecond, utc())),
            ("2024-02-29T12:30:00", Timestamp(TimeUnit::Second, None)),
            ("-0.01", Decimal128(5, 2)),
            ("123.45", Decimal128(5, 2)),
            ("1200", Decimal128(5, -2)),
            ("0", Decimal128(5, -2)),
        ] {
            both_ways(text, ty);
        }
        let timestamp = Timestamp(TimeUnit::Second, utc());
        let offset = Datum::parse("2024-01-01 01:30:00+01:30", &timestamp).unwrap();
        assert_eq!(offset.borrowed().display_as(&timestamp).to_string(), "2024-01-01T00:00:00Z");
    }

    #[test]
    fn nonsense_is_refused() {
        use ColumnType::*;
        for (text, ty) in [
            ("1", Bool),
            ("256", UInt8),
            ("ff", Binary),
            ("\\xf", Binary),
            ("\\xgg", Binary),
            ("\\xé", Binary),
            ("2023-02-29", Date32),
            ("2023-13-01", Date32),
            ("2023-00-01", Date32),
            ("2023-1-1", Date32),
            ("2024-01-01T24:00:00", Timestamp(TimeUnit::Second, None)),
            ("2024-01-01T00:00:00.5", Timestamp(TimeUnit::Second, None)),
            ("2024-01-01T00:00:00+é", Timestamp(TimeUnit::Second, None)),
            ("2024-01-01T00:00:00Z05", Timestamp(TimeUnit::Second, None)),
            ("2024-01-01T00:00:00Z01:00", Timestamp(TimeUnit::Second, None)),
            ("2024-01-01T12:30.5", Timestamp(TimeUnit::Millisecond, None)),
            ("999999999999-01-01T00:00:00", Timestamp(TimeUnit::Nanosecond, None)),
            ("1.234", Decimal128(5, 2)),
            ("1234", Decimal128(5, 2)),
            ("1", Decimal128(5, -2)),
            (".5", Decimal128(5, 2)),
            ("", Decimal128(5, 2)),
            ("", Int8),
        ] {
            let error = Datum::parse(text, &ty).unwrap_err();
            assert!(error.to_string().contains(&ty.to_string()), "{text}: {error}");
        }
    }

    /// `mycelium put` made 1e400 infinity.
    #[test]
    fn floats_that_overflow_or_vanish_are_refused() {
        use ColumnType::*;
        for (text, ty) in
            [("1e400", Float64), ("-1e400", Float64), ("1e-400", Float64), ("1e39", Float32), ("1e-60", Float32)]
        {
            assert!(Datum::parse(text, &ty).is_err(), "{text}");
        }
        for text in ["0", "-0", "0e5", "0.000", "inf", "-inf", "NaN", "5e-324", "1.7976931348623157e308", "1e23"] {
            assert!(Datum::parse(text, &Float64).is_ok(), "{text}");
        }
        for value in [f64::MAX, f64::MIN_POSITIVE, 5e-324, f64::NEG_INFINITY] {
            let text = DatumRef::Float64(value).to_string();
            let read = Datum::parse(&text, &Float64).unwrap();
            assert!(matches!(read, Datum::Float64(read) if read.to_bits() == value.to_bits()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn temporal_values_round_trip(ticks: i64, days: i32, decimal in -99_999i128..=99_999, scale in -3i8..=5) {
            for unit in TimeUnit::ALL {
                let ty = ColumnType::Timestamp(unit, None);
                let text = DatumRef::Timestamp(ticks).display_as(&ty).to_string();
                // Years are read up to twelve digits, which seconds reach.
                prop_assert_eq!(Datum::parse(&text, &ty).unwrap(), Datum::Timestamp(ticks), "{}", text);
            }
            let text = DatumRef::Date32(days).to_string();
            prop_assert_eq!(Datum::parse(&text, &ColumnType::Date32).unwrap(), Datum::Date32(days));
            let ty = ColumnType::Decimal128(5, scale);
            let text = DatumRef::Decimal128(decimal).display_as(&ty).to_string();
            prop_assert_eq!(Datum::parse(&text, &ty).unwrap(), Datum::Decimal128(decimal), "{}", text);
        }

        #[test]
        fn parsing_never_panics(text: String, precision in 1u8..=38, scale in -38i8..=38) {
            use ColumnType::*;
            for ty in [Bool, Int8, Float64, Binary, Date32, Timestamp(TimeUnit::Nanosecond, None), Decimal128(precision, scale)] {
                let parsed = Datum::parse(&text, &ty);
                prop_assert!(parsed.is_err() || parsed.unwrap().borrowed().is_of(&ty));
            }
        }
    }
}
