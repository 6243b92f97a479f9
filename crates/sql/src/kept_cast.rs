//! Casts that DataFusion must not move, and casts that round.
//!
//! It makes `x = 5`, with 5 as a value of `x`'s type, of `CAST(x AS t) = 5`. Where the cast loses something, or moves
//! the value, that says something else:
//!
//! - of decimals, to integers or fewer places: 5.30 is 5 as an integer, and is not 5.00;
//! - with `TRY_CAST`: a number that the type has no place for is null, and is less than 5;
//! - to finer ticks, as beside a finer column or in a `UNION` with one: half a second was cut off to none;
//! - of timestamps to a zone that is not UTC: the hours were left out.
//!
//! A text of a decimal with more digits than its type would lack some. Such a decimal is refused.
//!
//! And it cuts off what floats and decimals have behind the point where they become integers. Here they are rounded, as
//! in PostgreSQL, and as decimals are that become ones of fewer places: decimals half away from zero, floats half to
//! even.
//!
//! A number of many digits, which is a decimal, is the double next to it where it becomes one: Arrow divides two
//! doubles for that, and rounds twice.
//!
//! An analyzer rule after the coercion of types, which adds casts, puts a function in the place of these. Of finer
//! ticks it tells which ticks of the column a comparison is about ([`KeptCast::ticks_before`]), so that storage still
//! decides it.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::arrow::compute::{CastOptions, cast};
use datafusion::common::config::ConfigOptions;
use datafusion::common::format::DEFAULT_CAST_OPTIONS;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, lit,
};
use datafusion::optimizer::AnalyzerRule;

use crate::decimal_arithmetic::check_digits;
use crate::moment::{nanoseconds, ticks_of, timestamp};
use crate::plan_rewrite::rewrite_expressions;
use crate::written_decimal::as_double;

/// The rule.
#[derive(Debug)]
pub(crate) struct KeptCasts;

impl AnalyzerRule for KeptCasts {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewrite_plan = |plan| {
            rewrite_expressions(plan, |expr, columns| Ok(expr.transform_up(|expr| rewrite(expr, columns))?.data))
        };
        Ok(plan.transform_up_with_subqueries(rewrite_plan)?.data)
    }

    fn name(&self) -> &'static str {
        "kept_casts"
    }
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let (inner, to, is_try) = match &expr {
        Expr::Cast(Cast { expr, field }) => (expr, field.data_type(), false),
        Expr::TryCast(TryCast { expr, field }) => (expr, field.data_type(), true),
        _ => return Ok(Transformed::no(expr)),
    };
    if let Some(number) = as_double(inner).filter(|_| to.is_floating()) {
        return Ok(Transformed::yes(with_operand(expr, lit(number))));
    }
    let is_other = to.is_integer() || to.is_decimal() || to.is_string() || matches!(to, DataType::Timestamp(..));
    if !is_other {
        return Ok(Transformed::no(expr));
    }
    let from = inner.get_type(schema)?;
    if !says_another(&from, to, is_try) {
        return Ok(Transformed::no(expr));
    }
    let (is_literal, whole) = match &**inner {
        // What is written with a point is a decimal to PostgreSQL.
        Expr::Literal(ScalarValue::Float64(Some(number)), _) if is_rounded(&from, to) => (true, Some(number.round())),
        Expr::Literal(..) => (true, None),
        _ => (false, None),
    };
    if is_literal {
        return Ok(match whole {
            Some(whole) => Transformed::yes(with_operand(expr, lit(whole))),
            None => Transformed::no(expr),
        });
    }
    let function = Arc::new(ScalarUDF::new_from_impl(KeptCast::new(from, to.clone(), is_try)));
    match expr {
        Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) => {
            Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![*expr]))))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// The same cast of something else.
fn with_operand(of: Expr, operand: Expr) -> Expr {
    let expr = Box::new(operand);
    match of {
        Expr::Cast(Cast { field, .. }) => Expr::Cast(Cast { expr, field }),
        Expr::TryCast(TryCast { field, .. }) => Expr::TryCast(TryCast { expr, field }),
        other => other,
    }
}

/// Whether a comparison with what is cast may say another thing of what it is cast from.
fn says_another(from: &DataType, to: &DataType, is_try: bool) -> bool {
    match (from, to) {
        (DataType::Timestamp(unit, zone), DataType::Timestamp(to, to_zone)) => {
            nanoseconds(*to) < nanoseconds(*unit) || !is_same_clock(zone.as_ref(), to_zone.as_ref())
        }
        (from, to) if is_rounded(from, to) || is_full(from) && to.is_string() => true,
        (from, to) if scale_of(to).is_some() && scale_of(to) < scale_of(from) => true,
        (from, to) => is_try && from != to && from.is_numeric() && to.is_numeric(),
    }
}

/// The places of a decimal.
fn scale_of(ty: &DataType) -> Option<i8> {
    match ty {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => Some(*scale),
        _ => None,
    }
}

/// Whether arithmetic may give a decimal more digits than this type has.
fn is_full(ty: &DataType) -> bool {
    matches!(ty, DataType::Decimal128(38, _) | DataType::Decimal256(76, _))
}

/// Whether a cast takes the nearest integer.
pub(crate) fn is_rounded(from: &DataType, to: &DataType) -> bool {
    let has_fraction = from.is_floating() || scale_of(from).is_some_and(|scale| scale > 0);
    has_fraction && to.is_integer()
}

/// The nearest integer, in a type that may have a point.
fn rounded(value: &ColumnarValue, from: &DataType) -> Result<ColumnarValue> {
    match from {
        DataType::Decimal128(precision, _) => return value.cast_to(&DataType::Decimal128(*precision, 0), None),
        DataType::Decimal256(precision, _) => return value.cast_to(&DataType::Decimal256(*precision, 0), None),
        _ => {}
    }
    let round = |values: &ArrayRef| -> Result<ArrayRef> {
        let values = cast(values, &DataType::Float64)?;
        Ok(Arc::new(values.as_primitive::<Float64Type>().unary::<_, Float64Type>(f64::round_ties_even)))
    };
    match value {
        ColumnarValue::Array(values) => Ok(ColumnarValue::Array(round(values)?)),
        ColumnarValue::Scalar(value) => {
            Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&round(&value.to_array()?)?, 0)?))
        }
    }
}

/// Whether both zones have the same ticks for a moment.
fn is_same_clock(one: Option<&Arc<str>>, other: Option<&Arc<str>>) -> bool {
    let is_utc = |zone: Option<&Arc<str>>| zone.is_none_or(|zone| matches!(&**zone, "UTC" | "Z" | "+00:00"));
    one.is_some() == other.is_some() || (is_utc(one) && is_utc(other))
}

/// The function.
#[derive(PartialEq, Eq, Hash, Debug)]
struct KeptCast {
    name: String,
    from: DataType,
    to: DataType,
    is_try: bool,
    signature: Signature,
}

impl KeptCast {
    fn new(from: DataType, to: DataType, is_try: bool) -> Self {
        let name = format!("{}cast to {to}", if is_try { "try_" } else { "" });
        Self { name, from, to, is_try, signature: Signature::any(1, Volatility::Immutable) }
    }

    /// The ticks that a literal equals, from the first bound to before the second; none, where it lies between two.
    fn ticks_before(&self, literal: &ScalarValue) -> Option<Interval> {
        let (DataType::Timestamp(unit, zone), DataType::Timestamp(to, to_zone)) = (&self.from, &self.to) else {
            return None;
        };
        if self.is_try || !is_same_clock(zone.as_ref(), to_zone.as_ref()) {
            return None;
        }
        let (moment, length) = (i128::from(ticks_of(literal)?) * nanoseconds(*to), nanoseconds(*unit));
        let next = moment.div_euclid(length) + 1;
        let first = if moment.rem_euclid(length) == 0 { next - 1 } else { next };
        let bound = |ticks: i128| Some(timestamp(i64::try_from(ticks).ok()?, *unit, zone.clone()));
        Interval::try_new(bound(first)?, bound(next)?).ok()
    }
}

impl ScalarUDFImpl for KeptCast {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let is_nullable = self.is_try || args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(&self.name, self.to.clone(), is_nullable)))
    }

    /// DataFusion takes what is strict for no null of what is none.
    fn is_strict(&self) -> bool {
        !self.is_try
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = &args.args[..] else {
            return Err(DataFusionError::Internal(format!("{} takes one value", self.name)));
        };
        if self.to.is_string() {
            check_digits(&value.to_array(1)?)?;
        }
        let options = CastOptions { safe: self.is_try, ..DEFAULT_CAST_OPTIONS };
        match is_rounded(&self.from, &self.to) {
            true => rounded(value, &self.from)?.cast_to(&self.to, Some(&options)),
            false => value.cast_to(&self.to, Some(&options)),
        }
    }

    fn preimage(&self, args: &[Expr], literal: &Expr, _: &SimplifyContext) -> Result<PreimageResult> {
        let ([arg], Expr::Literal(value, _)) = (args, literal) else { return Ok(PreimageResult::None) };
        Ok(match self.ticks_before(value) {
            Some(interval) => PreimageResult::Range { expr: arg.clone(), interval: Box::new(interval) },
            None => PreimageResult::None,
        })
    }

    fn evaluate_bounds(&self, _: &[&Interval]) -> Result<Interval> {
        Interval::make_unbounded(&self.to)
    }

    /// What is greater is no less afterwards, but where a zone has an hour twice, or a value becomes null or a text.
    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        let is_kept = match (&self.from, &self.to) {
            _ if self.is_try || self.to.is_string() => false,
            (DataType::Timestamp(_, zone), DataType::Timestamp(_, to)) => is_same_clock(zone.as_ref(), to.as_ref()),
            _ => true,
        };
        let order = inputs.first().map(|input| input.sort_properties);
        Ok(order.filter(|_| is_kept).unwrap_or_default())
    }

    /// Of finer ticks: what is equal afterwards was equal.
    fn strictly_order_preserving(&self, inputs: &[ExprProperties]) -> Result<bool> {
        let is_finer = match (&self.from, &self.to) {
            (DataType::Timestamp(unit, zone), DataType::Timestamp(to, to_zone)) => {
                nanoseconds(*to) <= nanoseconds(*unit) && is_same_clock(zone.as_ref(), to_zone.as_ref())
            }
            _ => false,
        };
        Ok(is_finer && !self.is_try && inputs.iter().all(|input| input.strictly_order_preserving))
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::{SortOptions, TimeUnit};

    use super::*;

    fn moment(unit: TimeUnit, zone: Option<&str>) -> DataType {
        DataType::Timestamp(unit, zone.map(Arc::from))
    }

    #[test]
    fn casts_that_lose_or_move_something_are_kept() {
        use DataType::{Decimal128, Decimal256, Float32, Float64, Int32, Int64};
        use TimeUnit::{Microsecond, Nanosecond, Second};
        for (from, to, is_kept) in [
            (Decimal128(10, 2), Decimal128(10, 0), true),
            (Decimal128(10, 2), Decimal128(12, 4), false),
            (Decimal256(40, 20), Decimal128(38, 2), true),
            (Decimal128(38, 2), Decimal256(76, 4), false),
            (Decimal128(10, 2), Int32, true),
            (Decimal256(40, 20), Int32, true),
            (Decimal128(38, 2), DataType::Utf8View, true),
            (Decimal128(37, 2), DataType::Utf8View, false),
            (Float64, DataType::Utf8View, false),
            (Decimal128(10, 0), Int32, false),
            (Float64, Int32, true),
            (Float32, Int64, true),
            (Float64, Decimal128(10, 2), false),
            (Int64, Int32, false),
            (Int64, Decimal128(20, 0), false),
            (moment(Second, None), moment(Nanosecond, None), true),
            (moment(Microsecond, None), moment(Microsecond, Some("+00:00")), false),
            (moment(Microsecond, None), moment(Microsecond, Some("Europe/Vienna")), true),
            (moment(Microsecond, Some("+02:00")), moment(Microsecond, Some("Europe/Vienna")), false),
            (DataType::Date32, moment(Nanosecond, None), false),
        ] {
            assert_eq!(says_another(&from, &to, false), is_kept, "{from} {to}");
        }
        assert!(says_another(&Int64, &Int32, true));
    }

    #[test]
    fn orders_are_kept_where_values_keep_theirs() {
        let order = SortProperties::Ordered(SortOptions { descending: false, nulls_first: false });
        let column = ExprProperties::new_unknown().with_order(order).with_strictly_order_preserving(true);
        let kept = |from, to, is_try| {
            let cast = KeptCast::new(from, to, is_try);
            let inputs = std::slice::from_ref(&column);
            let is_ordered = cast.output_ordering(inputs).expect("known") == order;
            (is_ordered, cast.strictly_order_preserving(inputs).expect("known"))
        };
        let (second, milli) = (moment(TimeUnit::Second, None), moment(TimeUnit::Millisecond, None));
        let vienna = moment(TimeUnit::Millisecond, Some("Europe/Vienna"));
        assert_eq!(kept(second.clone(), milli, false), (true, true));
        assert_eq!(kept(second, vienna, false), (false, false));
        assert_eq!(kept(DataType::Decimal128(10, 2), DataType::Int32, false), (true, false));
        assert_eq!(kept(DataType::Int64, DataType::Int32, true), (false, false));
        assert_eq!(kept(DataType::Decimal128(38, 2), DataType::Utf8View, false), (false, false));
    }

    #[test]
    fn a_literal_lies_at_a_tick_or_between_two() {
        let cast = KeptCast::new(moment(TimeUnit::Second, None), moment(TimeUnit::Millisecond, None), false);
        let second = |tick| ScalarValue::TimestampSecond(Some(tick), None);
        let bounds = |millis| {
            let interval = cast.ticks_before(&ScalarValue::TimestampMillisecond(Some(millis), None)).expect("ticks");
            (interval.lower().clone(), interval.upper().clone())
        };
        assert_eq!(bounds(3000), (second(3), second(4)));
        assert_eq!(bounds(3500), (second(4), second(4)));
        assert_eq!(bounds(-500), (second(0), second(0)));
        assert_eq!(bounds(-1000), (second(-1), second(0)));
        assert_eq!(cast.ticks_before(&ScalarValue::TimestampMillisecond(None, None)), None);
    }
}
