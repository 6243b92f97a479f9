//! The decimal that somebody wrote.

use datafusion::common::ScalarValue;

/// The most digits of a `Decimal128`.
const MOST_DIGITS: usize = 38;

/// The decimal that a text of digits writes, if it has a place in 38 of them. The shortest text of a double is what was
/// written, if that had at most fifteen digits.
pub(crate) fn as_decimal(text: &str) -> Option<ScalarValue> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = whole.strip_prefix(['-', '+']).unwrap_or(whole);
    if !is_digits(unsigned) || !is_digits(fraction) || unsigned.len() + fraction.len() == 0 {
        return None;
    }
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let count = digits.unsigned_abs().checked_ilog10().map_or(1, |log| log as usize + 1).max(fraction.len());
    if count > MOST_DIGITS {
        return None;
    }
    Some(ScalarValue::Decimal128(Some(digits), count as u8, fraction.len() as i8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_the_decimals_that_were_written() {
        let decimal = |digits, precision, scale| Some(ScalarValue::Decimal128(Some(digits), precision, scale));
        assert_eq!(as_decimal("4.48"), decimal(448, 3, 2));
        assert_eq!(as_decimal("-0.05"), decimal(-5, 2, 2));
        assert_eq!(as_decimal("100"), decimal(100, 3, 0));
        assert_eq!(as_decimal(".5"), decimal(5, 1, 1));
        assert_eq!(as_decimal("0"), decimal(0, 1, 0));
        assert_eq!(as_decimal(&1e37.to_string()), decimal(10_i128.pow(37), 38, 0));
        for none in [&1e40.to_string(), "NaN", "inf", "", ".", "-", "1e5", "1.2.3", "0x1"] {
            assert_eq!(as_decimal(none), None, "{none}");
        }
    }
}
