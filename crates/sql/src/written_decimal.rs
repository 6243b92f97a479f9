//! The decimal that somebody wrote.
//!
//! DataFusion makes a double of a number with a point, and of one beyond 64 bits. Up to [`DIGITS_OF_A_DOUBLE`] digits
//! the double still tells what was written ([`as_decimal`]). What has more would lose some: before the statement is
//! planned it becomes a cast of its text to a decimal that has room for all of them ([`keep_digits`]), as in
//! PostgreSQL. Where a double is asked for it is the one next to what was written ([`as_double`]), as it was; beside
//! decimals with which it has no room in one type, it lies between two of them ([`beside_decimals`]).

use std::cmp::Ordering;
use std::convert::Infallible;
use std::ops::ControlFlow;

use arrow_schema::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::Cast;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType as AstType, ExactNumberInfo, Expr as AstExpr, Statement, UnaryOperator, Value, ValueWithSpan,
    VisitMut, VisitorMut,
};

/// The most digits of a `Decimal128`.
const MOST_DIGITS: usize = 38;
/// The most digits of a `Decimal256`.
const MOST_WIDE_DIGITS: usize = 76;
/// Digits of a number that the double next to it still tells.
const DIGITS_OF_A_DOUBLE: usize = 15;

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

/// Makes decimals of the numbers of a statement that a double would not keep.
pub(crate) fn keep_digits(statement: &mut Statement) {
    // Settings are read as they are written.
    if !matches!(statement, Statement::Set(_)) {
        let ControlFlow::Continue(()) = statement.visit(&mut Numbers);
    }
}

/// Finds them.
struct Numbers;

impl VisitorMut for Numbers {
    type Break = Infallible;

    fn pre_visit_expr(&mut self, expr: &mut AstExpr) -> ControlFlow<Infallible> {
        let number = match &*expr {
            AstExpr::UnaryOp { op: UnaryOperator::Minus, expr } => digits_of(expr).map(|digits| format!("-{digits}")),
            other => digits_of(other).map(str::to_owned),
        };
        if let Some(cast) = number.and_then(cast_of) {
            *expr = cast;
        }
        ControlFlow::Continue(())
    }
}

/// The text of a number without a sign.
fn digits_of(expr: &AstExpr) -> Option<&str> {
    match expr {
        AstExpr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => Some(digits),
        _ => None,
    }
}

/// The cast of a number's text, if a double would lose some of its digits and a decimal keeps all.
fn cast_of(number: String) -> Option<AstExpr> {
    let (digits, places) = digits_and_places(&number)?;
    let is_kept = match number.contains('.') {
        true => digits <= DIGITS_OF_A_DOUBLE,
        false => number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok(),
    };
    if is_kept || digits > MOST_WIDE_DIGITS {
        return None;
    }
    Some(AstExpr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(AstExpr::Value(Value::SingleQuotedString(number).with_empty_span())),
        data_type: AstType::Decimal(ExactNumberInfo::PrecisionAndScale(digits as u64, places as i64)),
        array: false,
        format: None,
    })
}

/// How many digits a number has, and how many of them are behind the point, if it is made of digits alone.
fn digits_and_places(number: &str) -> Option<(usize, usize)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.strip_prefix(['-', '+']).unwrap_or(whole);
    let is_number = whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
    let digits = whole.trim_start_matches('0').len() + fraction.len();
    is_number.then_some((digits.max(1), fraction.len()))
}

/// The text of a number of more digits than doubles have, if that is what an expression is.
pub(crate) fn written(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Negative(inner) => {
            let number = written(inner)?;
            Some(number.strip_prefix('-').map_or_else(|| format!("-{number}"), str::to_owned))
        }
        Expr::Cast(Cast { expr, field }) => match (&**expr, field.data_type()) {
            (Expr::Literal(ScalarValue::Utf8(Some(text)), _), ty) if Some(ty) == type_of_all(text).as_ref() => {
                Some(text.clone())
            }
            _ => None,
        },
        _ => None,
    }
}

/// The double next to such a number.
pub(crate) fn as_double(expr: &Expr) -> Option<f64> {
    written(expr)?.parse().ok()
}

/// The decimal that a text writes, to be compared with decimals of so many digits and places. Where 38 digits have no
/// room for the places of both, it is the last with places of theirs that is not after it, and the text is greater.
pub(crate) fn beside_decimals(text: &str, precision: u8, scale: i8) -> Option<(ScalarValue, Ordering)> {
    let places = usize::try_from(scale).unwrap_or(0);
    let whole_digits = usize::from(precision).saturating_sub(places);
    match text.split_once('.') {
        Some((whole, fraction)) if fraction.len() > places && whole_digits + fraction.len() > MOST_DIGITS => {
            floor(text, whole, fraction, places)
        }
        _ => Some((as_decimal(text)?, Ordering::Equal)),
    }
}

/// The last decimal of so many places that is not after a text, whose parts these are.
fn floor(text: &str, whole: &str, fraction: &str, places: usize) -> Option<(ScalarValue, Ordering)> {
    digits_and_places(text)?;
    let (head, rest) = fraction.split_at_checked(places)?;
    let ScalarValue::Decimal128(Some(digits), precision, scale) = as_decimal(&format!("{whole}.{head}"))? else {
        return None;
    };
    if rest.bytes().all(|byte| byte == b'0') {
        return Some((ScalarValue::Decimal128(Some(digits), precision, scale), Ordering::Equal));
    }
    let (digits, precision) = match whole.starts_with('-') {
        true => (digits - 1, (precision + 1).min(MOST_DIGITS as u8)),
        false => (digits, precision),
    };
    let has_room = digits.unsigned_abs() < 10_u128.pow(u32::from(precision));
    has_room.then_some((ScalarValue::Decimal128(Some(digits), precision, scale), Ordering::Greater))
}

/// The decimals that have room for all digits of a number, and for no more.
fn type_of_all(number: &str) -> Option<DataType> {
    let (digits, places) = digits_and_places(number)?;
    let (precision, scale) = (digits as u8, places as i8);
    match digits {
        _ if digits > MOST_WIDE_DIGITS => None,
        _ if digits > MOST_DIGITS => Some(DataType::Decimal256(precision, scale)),
        _ => Some(DataType::Decimal128(precision, scale)),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{cast, lit};
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    /// The statement as it is planned.
    fn kept(text: &str) -> String {
        let mut statement = Parser::parse_sql(&GenericDialect {}, text).expect("it parses").remove(0);
        keep_digits(&mut statement);
        statement.to_string()
    }

    #[test]
    fn numbers_that_a_double_tells_stay_numbers() {
        for text in [
            "SELECT 1.5, -0.25, 123456.123456789",
            "SELECT 9223372036854775807, -9223372036854775808, 18446744073709551615, 1000000000000000000",
            "SELECT 1e30, 12345678901234567890123456789012345678901234567890123456789012345678901234567.5",
            "SELECT a FROM t LIMIT 10",
            "SET datafusion.execution.batch_size = 0.12345678901234567890",
        ] {
            assert_eq!(kept(text), text);
        }
    }

    #[test]
    fn numbers_that_a_double_would_round_become_decimals() {
        assert_eq!(kept("SELECT 1.234567890123456"), "SELECT CAST('1.234567890123456' AS DECIMAL(16,15))");
        assert_eq!(kept("SELECT -0.1234567890123456"), "SELECT CAST('-0.1234567890123456' AS DECIMAL(16,16))");
        assert_eq!(kept("SELECT 00.00000000000000001"), "SELECT CAST('00.00000000000000001' AS DECIMAL(17,17))");
        assert_eq!(kept("SELECT 18446744073709551616"), "SELECT CAST('18446744073709551616' AS DECIMAL(20,0))");
        assert_eq!(kept("SELECT -9223372036854775809"), "SELECT CAST('-9223372036854775809' AS DECIMAL(19,0))");
        let wide = format!("{}.5", "9".repeat(75));
        assert_eq!(kept(&format!("SELECT {wide}")), format!("SELECT CAST('{wide}' AS DECIMAL(76,1))"));
        let within = "SELECT a FROM t WHERE b IN (SELECT 0.12345678901234567 + c FROM u)";
        assert!(kept(within).contains("SELECT CAST('0.12345678901234567' AS DECIMAL(17,17)) + c FROM u"));
    }

    #[test]
    fn a_number_lies_between_decimals_where_no_type_has_its_places_and_theirs() {
        use Ordering::{Equal, Greater};
        let decimal = |digits, precision, scale| ScalarValue::Decimal128(Some(digits), precision, scale);
        // Within 38 digits it is what was written.
        assert_eq!(beside_decimals("1.055", 10, 2), Some((decimal(1055, 4, 3), Equal)));
        assert_eq!(beside_decimals("-1.05", 38, 2), Some((decimal(-105, 3, 2), Equal)));
        assert_eq!(beside_decimals("+1.055", 38, 2), Some((decimal(105, 3, 2), Greater)));
        assert_eq!(beside_decimals("1.055", 38, 2), Some((decimal(105, 3, 2), Greater)));
        assert_eq!(beside_decimals("-1.055", 38, 2), Some((decimal(-106, 4, 2), Greater)));
        assert_eq!(beside_decimals("-0.001", 38, 2), Some((decimal(-1, 3, 2), Greater)));
        assert_eq!(beside_decimals("-1.0500", 38, 2), Some((decimal(-105, 3, 2), Equal)));
        let many = "0".repeat(40);
        assert_eq!(beside_decimals(&format!("7.{many}1"), 20, 0), Some((decimal(7, 1, 0), Greater)));
        assert_eq!(beside_decimals(&format!("-7.{many}1"), 20, 0), Some((decimal(-8, 2, 0), Greater)));
        let most = "9".repeat(38);
        assert_eq!(beside_decimals(&format!("-{most}.5"), 38, 0), None, "39 digits");
        for none in ["1.x55", "1.05x", "NaN", "1.0.5"] {
            assert_eq!(beside_decimals(none, 38, 2), None, "{none}");
        }
    }

    #[test]
    fn what_is_kept_is_a_double_where_one_is_asked_for() {
        let decimal = |text: &str, ty| cast(lit(text), ty);
        let number = decimal("0.30000000000000004", DataType::Decimal128(17, 17));
        assert_eq!(as_double(&number), Some(0.300_000_000_000_000_04));
        assert_eq!(as_double(&Expr::Negative(Box::new(number))), Some(-0.300_000_000_000_000_04));
        // A cast that rounds is one that somebody wrote.
        assert_eq!(as_double(&decimal("0.30000000000000004", DataType::Decimal128(17, 2))), None);
        assert_eq!(as_double(&lit(0.5)), None);
    }

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
