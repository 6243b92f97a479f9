//! `+`, `-`, `*`, `/` and `%` of decimals, as they were written: literals with a point are decimals, and quotients keep
//! their digits.
//!
//! To DataFusion a literal with a point is a double, and with it whatever it stands beside; its quotients of decimals
//! have four places more than the dividend, cut off. Here, while a statement is planned, so that types are right from
//! the start:
//!
//! 1. A literal with a point beside a decimal, an integer or another such literal becomes the decimal that was written.
//!    Beside floats it stays a double, as does one of more than [`LONGEST_LITERAL`] digits (`1e30`).
//! 2. A product that would have more places than a `Decimal128` holds is one of `Decimal256`.
//! 3. A quotient of decimals, or of a decimal and an integer, becomes a function ([`Division`]), which rounds half away
//!    from zero, and fails where it divides by zero. Its type follows from those of both sides ([`quotient_type`]).
//! 4. So does a remainder: to DataFusion `x % 1` is 0 of whatever is never null.
//!
//! Of two integers the quotient is one, as in PostgreSQL. What leaves the bits of its type is an error of Arrow's
//! kernels. What has more digits than its type has bits for all the same is the number that it is, and an error where
//! it leaves arithmetic: as an answer or as a text ([`check_digits`]).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Decimal256Type, DecimalType};
use arrow_array::{Array, ArrayRef, ArrowNativeTypeOp, Datum, PrimitiveArray};
use arrow_schema::{ArrowError, DataType, Field, FieldRef};
use datafusion::arrow::compute::kernels::numeric::{div, rem};
use datafusion::arrow::compute::try_binary;
use datafusion::arrow::datatypes::ArrowNativeType;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::binary::BinaryTypeCoercer;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, cast, lit,
};
use datafusion::physical_expr_common::datum::apply;
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::written_decimal::as_decimal;

/// Digits of a literal that is taken for a decimal at most: a double keeps fifteen to seventeen of those written.
const LONGEST_LITERAL: i32 = 18;
/// Digits that a quotient has at least, unless its type has no room for them, as in PostgreSQL.
const SIGNIFICANT_DIGITS: i32 = 16;
/// Places of a quotient whose type has no room for all of them.
const USUAL_PLACES: i32 = 20;
/// The most digits of a `Decimal128` and of a `Decimal256`.
const MOST_DIGITS: [i32; 2] = [38, 76];

/// Plans them.
#[derive(Debug)]
pub(crate) struct DecimalArithmetic;

impl ExprPlanner for DecimalArithmetic {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let RawBinaryExpr { op, left, right } = expr;
        let is_arithmetic = matches!(
            op,
            BinaryOperator::Plus
                | BinaryOperator::Minus
                | BinaryOperator::Multiply
                | BinaryOperator::Divide
                | BinaryOperator::Modulo
        );
        if !is_arithmetic {
            return Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }));
        }
        let (left, right) = as_written(left, right, schema);
        let divided = match op {
            BinaryOperator::Divide => division(&left, Operator::Divide, &right, schema),
            BinaryOperator::Modulo => division(&left, Operator::Modulo, &right, schema),
            _ => None,
        };
        if let Some(divided) = divided {
            return Ok(PlannerResult::Planned(divided));
        }
        let (left, right) = match op {
            BinaryOperator::Multiply => with_room(left, right, schema),
            _ => (left, right),
        };
        Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }))
    }
}

/// Both sides, whose literals with a point are decimals, unless one side is something else.
fn as_written(left: Expr, right: Expr, schema: &DFSchema) -> (Expr, Expr) {
    match (decimal_of(&left), decimal_of(&right)) {
        (Some(left), Some(right)) => (left, right),
        (Some(decimal), None) if digits_of_expr(&right, schema).is_some() => (decimal, right),
        (None, Some(decimal)) if digits_of_expr(&left, schema).is_some() => (left, decimal),
        _ => (left, right),
    }
}

/// The decimal that a literal with a point writes.
fn decimal_of(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Literal(ScalarValue::Float64(Some(number)), _) => {
            let decimal = as_decimal(&number.to_string())?;
            let (digits, _) = digits_of(&decimal.data_type())?;
            (digits <= LONGEST_LITERAL).then(|| lit(decimal))
        }
        Expr::Negative(inner) => Some(Expr::Negative(Box::new(decimal_of(inner)?))),
        _ => None,
    }
}

/// Factors, which are wide decimals if a narrow product had no room for their places.
fn with_room(left: Expr, right: Expr, schema: &DFSchema) -> (Expr, Expr) {
    let types = left.get_type(schema).ok().zip(right.get_type(schema).ok());
    let Some((left_type, right_type)) = types else { return (left, right) };
    let (Some((_, places)), Some((_, more_places))) = (digits_of(&left_type), digits_of(&right_type)) else {
        return (left, right);
    };
    let is_one_wide = is_wide(&left_type) != is_wide(&right_type);
    if is_one_wide || (left_type.is_decimal() && right_type.is_decimal() && places + more_places > MOST_DIGITS[0]) {
        (widened(left, &left_type), widened(right, &right_type))
    } else {
        (left, right)
    }
}

fn is_wide(ty: &DataType) -> bool {
    matches!(ty, DataType::Decimal256(..))
}

/// An expression of this type as a wide decimal. DataFusion would bring it to the places of what it stands beside.
fn widened(expr: Expr, ty: &DataType) -> Expr {
    match ty {
        DataType::Decimal128(precision, scale) => cast(expr, DataType::Decimal256(*precision, *scale)),
        _ => expr,
    }
}

/// The quotient or the remainder, as the operator says, of a decimal and a decimal or integer, if both sides are that.
pub(crate) fn division(left: &Expr, op: Operator, right: &Expr, schema: &DFSchema) -> Option<Expr> {
    let part = match op {
        Operator::Divide => Part::Quotient,
        Operator::Modulo => Part::Remainder,
        _ => return None,
    };
    let types = [left.get_type(schema).ok()?, right.get_type(schema).ok()?];
    if !types.iter().any(DataType::is_decimal) || !types.iter().all(|ty| digits_of(ty).is_some()) {
        return None;
    }
    let function = Arc::new(ScalarUDF::new_from_impl(Division::of(part)));
    let args = vec![with_own_digits(left), with_own_digits(right)];
    Some(Expr::ScalarFunction(ScalarFunction::new_udf(function, args)))
}

/// A literal integer with no more digits than it has.
fn with_own_digits(expr: &Expr) -> Expr {
    match expr {
        Expr::Literal(value, _) if value.data_type().is_integer() && !value.is_null() => {
            as_decimal(&value.to_string()).map_or_else(|| expr.clone(), lit)
        }
        _ => expr.clone(),
    }
}

fn digits_of_expr(expr: &Expr, schema: &DFSchema) -> Option<(i32, i32)> {
    digits_of(&expr.get_type(schema).ok()?)
}

/// The digits of a decimal or an integer, and how many of them are behind the point.
fn digits_of(ty: &DataType) -> Option<(i32, i32)> {
    Some(match ty {
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) if *scale >= 0 => {
            (i32::from(*precision), i32::from(*scale))
        }
        DataType::Int8 | DataType::UInt8 => (3, 0),
        DataType::Int16 | DataType::UInt16 => (5, 0),
        DataType::Int32 | DataType::UInt32 => (10, 0),
        DataType::Int64 => (19, 0),
        DataType::UInt64 => (20, 0),
        _ => return None,
    })
}

/// The type of a quotient.
///
/// Before its point it has as many digits as the largest dividend over the smallest divisor. Behind it, so many that
/// [`SIGNIFICANT_DIGITS`] are left of the smallest dividend over the largest divisor, if a `Decimal128` has room for
/// all of these. Otherwise it has up to [`USUAL_PLACES`], in the larger `Decimal256` if fewer than
/// [`SIGNIFICANT_DIGITS`] fit in the smaller. It never has fewer places than one of its sides.
fn quotient_type(left: &DataType, right: &DataType) -> Option<DataType> {
    let ((digits, places), (of_digits, of_places)) = (digits_of(left)?, digits_of(right)?);
    let [narrow, wide] = MOST_DIGITS;
    let whole = digits - places + of_places;
    let wanted = (SIGNIFICANT_DIGITS + places + of_digits - of_places).max(of_places);
    let room = narrow - whole;
    let usual = if room < SIGNIFICANT_DIGITS { USUAL_PLACES } else { room.min(USUAL_PLACES) };
    let places = match wanted <= room {
        true => wanted,
        false => wanted.min(usual).max(places).max(of_places),
    };
    let digits = (whole + places).clamp(1, wide) as u8;
    let has_room = whole + places <= narrow && !is_wide(left) && !is_wide(right);
    Some(match has_room {
        true => DataType::Decimal128(digits, places as i8),
        false => DataType::Decimal256(digits, places as i8),
    })
}

/// A value with the type that it was planned to have.
type Side<'v> = (&'v ColumnarValue, &'v DataType);

/// What of a division is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Part {
    Quotient,
    Remainder,
}

/// The function. Its type is that of its arguments, which may be others than when it was planned: a column of a `UNION`
/// has its type later. Of floats it is a double.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Division {
    part: Part,
    signature: Signature,
}

impl Division {
    fn of(part: Part) -> Self {
        Self { part, signature: Signature::any(2, Volatility::Immutable) }
    }

    fn operator(&self) -> Operator {
        match self.part {
            Part::Quotient => Operator::Divide,
            Part::Remainder => Operator::Modulo,
        }
    }

    fn type_of(&self, left: &DataType, right: &DataType) -> Result<DataType> {
        match quotient_type(left, right).filter(|_| self.part == Part::Quotient) {
            Some(ty) => Ok(ty),
            None => BinaryTypeCoercer::new(left, &self.operator(), right).get_result_type(),
        }
    }

    /// As DataFusion has it, and Arrow.
    fn with_kernel(&self, [(left, left_type), (right, right_type)]: [Side<'_>; 2]) -> Result<ColumnarValue> {
        let op = self.operator();
        let (left_type, right_type) = BinaryTypeCoercer::new(left_type, &op, right_type).get_input_types()?;
        let kernel = if self.part == Part::Quotient { div } else { rem };
        apply(&left.cast_to(&left_type, None)?, &right.cast_to(&right_type, None)?, kernel)
    }
}

impl ScalarUDFImpl for Division {
    fn name(&self) -> &str {
        match self.part {
            Part::Quotient => "quotient",
            Part::Remainder => "remainder",
        }
    }

    /// The name of a column is what was written.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        match args {
            [left, right] => Ok(format!("{} {} {}", left.schema_name(), self.operator(), right.schema_name())),
            _ => Err(takes_two()),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [left, right] => self.type_of(left, right),
            _ => Err(takes_two()),
        }
    }

    /// As an operator's: null where an operand is.
    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, is_nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let ([left, right], [left_field, right_field]) = (&args.args[..], &args.arg_fields[..]) else {
            return Err(takes_two());
        };
        // What the values say of themselves may have more digits than what was planned.
        let sides = [(left, left_field.data_type()), (right, right_field.data_type())];
        match quotient_type(sides[0].1, sides[1].1).filter(|_| self.part == Part::Quotient) {
            Some(DataType::Decimal128(precision, scale)) => divide::<Decimal128Type>(sides, precision, scale),
            Some(DataType::Decimal256(precision, scale)) => divide::<Decimal256Type>(sides, precision, scale),
            _ => self.with_kernel(sides),
        }
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        let types: Vec<DataType> = inputs.iter().map(|input| input.data_type()).collect();
        Interval::make_unbounded(&self.return_type(&types)?)
    }
}

fn takes_two() -> DataFusionError {
    DataFusionError::Internal("a division takes two numbers".to_owned())
}

/// Both sides divided as decimals of this width.
fn divide<T: DecimalType>([left, right]: [Side<'_>; 2], precision: u8, scale: i8) -> Result<ColumnarValue> {
    let operand = |(value, ty): Side<'_>| -> Result<(ColumnarValue, i32)> {
        let (digits, places) = digits_of(ty).ok_or_else(takes_two)?;
        Ok((value.cast_to(&(T::TYPE_CONSTRUCTOR)(digits as u8, places as i8), None)?, places))
    };
    let [(left, places), (right, of_places)] = [operand(left)?, operand(right)?];
    // It has no fewer places than the dividend.
    let shift = (i32::from(scale) - places + of_places).max(0) as u32;
    let factor = <T::Native as ArrowNativeType>::usize_as(10).pow_checked(shift)?;
    apply(&left, &right, |left, right| {
        let quotients = quotients::<T>(left, right, factor)?.with_precision_and_scale(precision, scale)?;
        Ok(Arc::new(quotients) as ArrayRef)
    })
}

/// The quotients of dividends times a factor.
fn quotients<T: DecimalType>(
    left: &dyn Datum,
    right: &dyn Datum,
    factor: T::Native,
) -> Result<PrimitiveArray<T>, ArrowError> {
    let ((left, is_left_one), (right, is_right_one)) = (left.get(), right.get());
    let no_decimals = || ArrowError::CastError(format!("quotient of {} and {}", left.data_type(), right.data_type()));
    let dividends = left.as_primitive_opt::<T>().ok_or_else(no_decimals)?;
    let divisors = right.as_primitive_opt::<T>().ok_or_else(no_decimals)?;
    match (is_left_one, is_right_one) {
        (false, true) if divisors.is_valid(0) => {
            let divisor = divisors.value(0);
            dividends.try_unary(|dividend| rounded_quotient(dividend, factor, divisor))
        }
        (true, false) if dividends.is_valid(0) => {
            let dividend = dividends.value(0);
            divisors.try_unary(|divisor| rounded_quotient(dividend, factor, divisor))
        }
        (false, true) => Ok(PrimitiveArray::new_null(dividends.len())),
        (true, false) => Ok(PrimitiveArray::new_null(divisors.len())),
        _ => try_binary(dividends, divisors, |dividend, divisor| rounded_quotient(dividend, factor, divisor)),
    }
}

/// Refuses decimals with more digits than their type: sums, differences and products look at its bits alone.
pub(crate) fn check_digits(values: &ArrayRef) -> Result<(), ArrowError> {
    if let Some(decimals) = values.as_primitive_opt::<Decimal128Type>() {
        decimals.validate_decimal_precision(decimals.precision())?;
    }
    if let Some(decimals) = values.as_primitive_opt::<Decimal256Type>() {
        decimals.validate_decimal_precision(decimals.precision())?;
    }
    Ok(())
}

/// The integer nearest to the quotient of `dividend * factor` and the divisor; of two the one farther from zero.
fn rounded_quotient<N: ArrowNativeTypeOp>(dividend: N, factor: N, divisor: N) -> Result<N, ArrowError> {
    let dividend = dividend.mul_checked(factor)?;
    let quotient = dividend.div_checked(divisor)?;
    let rest = dividend.sub_wrapping(quotient.mul_wrapping(divisor));
    // Numbers below zero have no smaller range than those above.
    let below = |number: N| if number.is_gt(N::ZERO) { number.neg_wrapping() } else { number };
    let (rest_below, divisor_below) = (below(rest), below(divisor));
    if rest_below.is_gt(divisor_below.sub_wrapping(rest_below)) {
        return Ok(quotient);
    }
    match dividend.is_lt(N::ZERO) == divisor.is_lt(N::ZERO) {
        true => quotient.add_checked(N::ONE),
        false => quotient.sub_checked(N::ONE),
    }
}

#[cfg(test)]
mod tests {
    use DataType::{Decimal128, Decimal256, Float64, Int64, Utf8};
    use arrow_schema::Schema;
    use datafusion::logical_expr::col;

    use super::*;

    fn schema() -> DFSchema {
        let fields = [("d", Decimal128(10, 2)), ("w", Decimal128(38, 20)), ("k", Int64), ("f", Float64), ("t", Utf8)];
        DFSchema::try_from(Schema::new(fields.map(|(name, ty)| Field::new(name, ty, true)).to_vec())).expect("valid")
    }

    /// The type of an operation as it is planned.
    fn planned(left: Expr, op: BinaryOperator, right: Expr) -> DataType {
        let raw = RawBinaryExpr { op, left, right };
        let expr = match DecimalArithmetic.plan_binary_op(raw, &schema()).expect("valid") {
            PlannerResult::Planned(expr) => expr,
            PlannerResult::Original(RawBinaryExpr { op: BinaryOperator::Multiply, left, right }) => left * right,
            PlannerResult::Original(RawBinaryExpr { op: BinaryOperator::Divide, left, right }) => left / right,
            PlannerResult::Original(RawBinaryExpr { op: BinaryOperator::Modulo, left, right }) => left % right,
            PlannerResult::Original(RawBinaryExpr { left, right, .. }) => left + right,
        };
        expr.get_type(&schema()).expect("known")
    }

    #[test]
    fn literals_are_decimals_beside_decimals_and_integers() {
        use BinaryOperator::{Divide, Multiply, Plus};
        assert_eq!(planned(col("d"), Multiply, lit(1.1)), Decimal128(13, 3));
        assert_eq!(planned(lit(-1.1), Plus, col("d")), Decimal128(11, 2));
        assert_eq!(planned(lit(0.06), Plus, lit(0.01)), Decimal128(3, 2));
        assert_eq!(planned(lit(1.5), Plus, lit(2_i64)), Decimal128(22, 1));
        assert_eq!(planned(lit(1.0), Divide, lit(3_i64)), Decimal128(18, 17));
        assert_eq!(planned(col("d"), Divide, col("d")), Decimal128(36, 26));
        assert_eq!(planned(col("d"), BinaryOperator::Modulo, lit(0.3)), Decimal128(2, 2));
        assert_eq!(planned(col("k"), BinaryOperator::Modulo, lit(2_i64)), Int64);
    }

    #[test]
    fn beside_floats_and_of_many_digits_literals_are_doubles() {
        use BinaryOperator::{Divide, Multiply, Plus};
        assert_eq!(planned(col("f"), Multiply, lit(1.1)), Float64);
        assert_eq!(planned(lit(1.1), Divide, col("f")), Float64);
        assert_eq!(planned(col("d"), Plus, lit(1e30)), Float64);
        assert_eq!(planned(col("d"), Multiply, lit(f64::NAN)), Float64);
        assert_eq!(planned(col("d"), Divide, col("f")), Float64);
        assert_eq!(planned(col("k"), Divide, lit(2_i64)), Int64);
    }

    #[test]
    fn products_of_many_places_are_wide() {
        let multiply = |left: &str, right: &str| planned(col(left), BinaryOperator::Multiply, col(right));
        assert_eq!(multiply("w", "w"), Decimal256(76, 40));
        assert_eq!(multiply("d", "w"), Decimal128(38, 22));
        assert_eq!(multiply("d", "k"), Decimal128(31, 2));
    }

    #[test]
    fn quotients_have_room_for_what_they_may_be() {
        for (left, right, expected) in [
            (Decimal128(10, 2), Decimal128(1, 0), Decimal128(27, 19)),
            (Decimal128(10, 2), Int64, Decimal128(28, 20)),
            (Decimal128(22, 0), Int64, Decimal128(38, 16)),
            (Decimal128(38, 4), Decimal128(38, 4), Decimal256(58, 20)),
            (Decimal128(1, 1), Decimal128(1, 0), Decimal128(18, 18)),
            (Int64, Decimal128(38, 30), Decimal256(76, 30)),
            (Decimal256(50, 40), Decimal128(3, 1), Decimal256(51, 40)),
        ] {
            assert_eq!(quotient_type(&left, &right), Some(expected), "{left} / {right}");
        }
        assert_eq!(quotient_type(&Decimal128(10, 2), &Float64), None);
        assert!(Division::of(Part::Quotient).type_of(&Utf8, &DataType::Boolean).is_err());
    }

    #[test]
    fn quotients_are_rounded_away_from_zero() {
        for dividend in -40_i128..40 {
            for divisor in (-9_i128..10).filter(|divisor| *divisor != 0) {
                // Twice the quotient, and one more, cut off at half of it.
                let twice = 2 * dividend.abs() / divisor.abs();
                let expected = (twice + 1) / 2 * dividend.signum() * divisor.signum();
                assert_eq!(rounded_quotient(dividend, 1, divisor).ok(), Some(expected), "{dividend} / {divisor}");
            }
        }
        assert_eq!(rounded_quotient(1_i128, 1000, 3).ok(), Some(333));
        assert_eq!(rounded_quotient(-2_i128, 1000, 3).ok(), Some(-667));
        assert!(matches!(rounded_quotient(1_i128, 10, 0), Err(ArrowError::DivideByZero)));
        assert!(matches!(rounded_quotient(i128::MAX, 10, 3), Err(ArrowError::ArithmeticOverflow(_))));
    }
}
