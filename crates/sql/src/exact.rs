//! Comparisons that say what they read like: an analyzer rule before DataFusion's own coercion of types.
//!
//! DataFusion brings both sides of a comparison to one type, which changes the value of some literals, and answers some
//! predicates over nulls wrongly. The rule rewrites, wherever they stand in a plan:
//!
//! 1. A number with a point or a text beside a decimal (`price = 4.48`): the number was a double, whose nearest decimal of
//!    fifteen places is not 4.48, and the text was rounded to the column's places. It becomes the decimal that was written.
//!    Beside a 64-bit integer, which was made a double, likewise.
//! 2. A moment between two ticks of a column's clock (`seconds >= timestamp '2020-01-01 00:00:00.5'`, or as a text): it was
//!    cut off to the tick before. It becomes that tick, with the operator that says the same of ticks.
//! 3. `x NOT IN (2, NULL)`: becomes `x NOT IN (2) AND NULL`. Beside `x IN (1, 2)` the null was forgotten.
//! 4. A literal on the left goes to the right (`'a' = x`): beside another bound of `x` the sides were mixed up.
//!
//! And it refuses an `IN` of a subquery that may hold nulls where their sense is asked for and DataFusion forgets it: negated
//! below an `OR`, and below anything but `AND` and `OR`. As a conjunct by itself it is right, negated or not.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_schema::{DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::{Between, InList, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{merge_schema, split_conjunction};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, lit};
use datafusion::optimizer::AnalyzerRule;

/// The most digits of a `Decimal128`.
const MOST_DIGITS: usize = 38;

/// The rule.
#[derive(Debug)]
pub(crate) struct ExactComparisons;

impl AnalyzerRule for ExactComparisons {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(rewrite_plan)?.data)
    }

    fn name(&self) -> &'static str {
        "exact_comparisons"
    }
}

fn rewrite_plan(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = &plan {
        schema.merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?);
    }
    if let LogicalPlan::Filter(filter) = &plan {
        split_conjunction(&filter.predicate)
            .into_iter()
            .try_for_each(|conjunct| check_subqueries(conjunct, &schema))?;
    }
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let rewritten = expr.transform_up(|expr| rewrite(expr, &schema))?;
        Ok(rewritten.update_data(|expr| name.restore(expr)))
    })
}

/// See the module.
fn check_subqueries(conjunct: &Expr, schema: &DFSchema) -> Result<()> {
    match conjunct {
        Expr::InSubquery(_) => Ok(()),
        Expr::Not(inner) if matches!(&**inner, Expr::InSubquery(_)) => Ok(()),
        other => check_below(other, schema),
    }
}

fn check_below(expr: &Expr, schema: &DFSchema) -> Result<()> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) => {
            check_below(left, schema)?;
            check_below(right, schema)
        }
        Expr::InSubquery(InSubquery { negated: false, .. }) => Ok(()),
        other if other.exists(|inner| Ok(may_be_null(inner, schema)))? => {
            let message = "IN of a subquery that may hold nulls, negated below an OR or as a part of an expression; EXISTS \
                           says it without them";
            Err(DataFusionError::NotImplemented(message.to_owned()))
        }
        _ => Ok(()),
    }
}

fn may_be_null(expr: &Expr, schema: &DFSchema) -> bool {
    let Expr::InSubquery(InSubquery { expr, subquery, .. }) = expr else { return false };
    let gives_nulls = subquery.subquery.schema().fields().iter().any(|field| field.is_nullable());
    gives_nulls || expr.nullable(schema).unwrap_or(true)
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(binary) if is_comparison(binary.op) => Ok(rewrite_comparison(binary, schema)),
        Expr::Between(between) => Ok(rewrite_between(between, schema)),
        Expr::InList(list) => Ok(rewrite_list(list, schema)),
        Expr::Not(inner) => match *inner {
            Expr::InList(list @ InList { negated: false, .. }) if list.list.iter().any(is_null) => {
                Ok(rewrite_list(InList { negated: true, ..list }, schema))
            }
            inner => Ok(Transformed::no(Expr::Not(Box::new(inner)))),
        },
        other => Ok(Transformed::no(other)),
    }
}

fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

fn rewrite_comparison(BinaryExpr { left, op, right }: BinaryExpr, schema: &DFSchema) -> Transformed<Expr> {
    let comparison = |left: Box<Expr>, op, right: Expr| Expr::BinaryExpr(BinaryExpr::new(left, op, Box::new(right)));
    if let Some(exact) = exact_beside(&left, &right, schema) {
        return Transformed::yes(exact.compared(*left, op));
    }
    if let (Some(exact), Some(swapped)) = (exact_beside(&right, &left, schema), op.swap()) {
        return Transformed::yes(exact.compared(*right, swapped));
    }
    match op.swap() {
        Some(swapped) if constant(&left).is_some() && constant(&right).is_none() => {
            Transformed::yes(comparison(right, swapped, *left))
        }
        _ => Transformed::no(comparison(left, op, *right)),
    }
}

fn rewrite_between(between: Between, schema: &DFSchema) -> Transformed<Expr> {
    let Between { expr, negated, low, high } = &between;
    let [from, to] = [low, high].map(|bound| exact_beside(expr, bound, schema));
    if from.is_none() && to.is_none() {
        return Transformed::no(Expr::Between(between));
    }
    let compared = |exact: Option<Exact>, op, bound: &Expr| match exact {
        Some(exact) => exact.compared((**expr).clone(), op),
        None => Expr::BinaryExpr(BinaryExpr::new(expr.clone(), op, Box::new(bound.clone()))),
    };
    let within = compared(from, Operator::GtEq, low).and(compared(to, Operator::LtEq, high));
    Transformed::yes(if *negated { !within } else { within })
}

fn is_null(expr: &Expr) -> bool {
    constant(expr).is_some_and(|value| value.is_null())
}

fn rewrite_list(InList { expr, list, negated }: InList, schema: &DFSchema) -> Transformed<Expr> {
    let count = list.len();
    let has_null = negated && list.iter().any(is_null);
    let mut changed = has_null;
    let mut kept = Vec::with_capacity(count);
    for item in list.into_iter().filter(|item| !(has_null && is_null(item))) {
        match exact_beside(&expr, &item, schema) {
            Some(Exact { value, order: Ordering::Equal }) => kept.push(lit(value)),
            // What lies between two values is none of them.
            Some(_) => {}
            None => {
                kept.push(item);
                continue;
            }
        }
        changed = true;
    }
    let null = || lit(ScalarValue::Boolean(None));
    let rest = match (kept.is_empty() && count > 0, negated) {
        (false, _) => Expr::InList(InList { expr, list: kept, negated }),
        // Of no list: null of a null.
        (true, true) => expr.is_not_null().or(null()),
        (true, false) => expr.is_null().and(null()),
    };
    let rewritten = if has_null { rest.and(null()) } else { rest };
    if changed { Transformed::yes(rewritten) } else { Transformed::no(rewritten) }
}

/// A literal as a value of the type that it is compared with.
#[derive(Clone, PartialEq, Debug)]
struct Exact {
    value: ScalarValue,
    /// Of the literal to the value: equal, or greater where it lies before the next value that the type has.
    order: Ordering,
}

impl Exact {
    /// `expr op literal`, said of the value.
    fn compared(self, expr: Expr, op: Operator) -> Expr {
        use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
        let Self { value, order } = self;
        let said = |op| Expr::BinaryExpr(BinaryExpr::new(Box::new(expr.clone()), op, Box::new(lit(value.clone()))));
        if order == Ordering::Equal {
            return said(op);
        }
        match op {
            Lt | LtEq => said(LtEq),
            Gt | GtEq => said(Gt),
            // No value equals it; a null still gives null.
            Eq => said(Lt).and(said(Gt)),
            NotEq => said(LtEq).or(said(Gt)),
            IsDistinctFrom => lit(true),
            IsNotDistinctFrom => lit(false),
            other => said(other),
        }
    }
}

/// The literal beside an expression, if it must be changed to be compared exactly.
fn exact_beside(expr: &Expr, literal: &Expr, schema: &DFSchema) -> Option<Exact> {
    let value = constant(literal).filter(|value| !value.is_null())?;
    let equal = |value| Some(Exact { value, order: Ordering::Equal });
    match (expr.get_type(schema).ok()?, &value) {
        (DataType::Decimal128(..) | DataType::Decimal256(..), ScalarValue::Float64(Some(number))) => {
            equal(as_decimal(&number.to_string())?)
        }
        (DataType::Decimal128(..) | DataType::Decimal256(..), value) => equal(as_decimal(text_of(value)?.trim())?),
        (DataType::Int64 | DataType::UInt64, ScalarValue::Float64(Some(number))) => {
            equal(as_decimal(&number.to_string())?)
        }
        (DataType::Timestamp(unit, zone), value)
            if text_of(value).is_some() || matches!(value, ScalarValue::TimestampNanosecond(..)) =>
        {
            match value.cast_to(&DataType::Timestamp(TimeUnit::Nanosecond, zone)).ok()? {
                ScalarValue::TimestampNanosecond(Some(moment), zone) => as_ticks(moment, unit, zone),
                _ => None,
            }
        }
        _ => None,
    }
}

fn text_of(value: &ScalarValue) -> Option<&str> {
    match value {
        ScalarValue::Utf8(text) | ScalarValue::LargeUtf8(text) | ScalarValue::Utf8View(text) => text.as_deref(),
        _ => None,
    }
}

/// What a literal says: `timestamp '…'` is the cast of a text.
fn constant(expr: &Expr) -> Option<ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value.clone()),
        Expr::Cast(cast) => match &*cast.expr {
            Expr::Literal(value, _) => value.cast_to(cast.field.data_type()).ok(),
            _ => None,
        },
        Expr::Negative(inner) => constant(inner)?.arithmetic_negate().ok(),
        _ => None,
    }
}

/// The decimal that a text of digits writes, if it has a place in 38 of them. The shortest text of a double is what was written, if
/// that had at most fifteen digits.
fn as_decimal(text: &str) -> Option<ScalarValue> {
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

fn as_ticks(moment: i64, unit: TimeUnit, zone: Option<Arc<str>>) -> Option<Exact> {
    let nanoseconds = match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => return None,
    };
    let tick = Some(moment.div_euclid(nanoseconds));
    let value = match unit {
        TimeUnit::Second => ScalarValue::TimestampSecond(tick, zone),
        TimeUnit::Millisecond => ScalarValue::TimestampMillisecond(tick, zone),
        _ => ScalarValue::TimestampMicrosecond(tick, zone),
    };
    Some(Exact { value, order: moment.rem_euclid(nanoseconds).cmp(&0) })
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

    #[test]
    fn moments_become_the_tick_before_them() {
        let half_past = as_ticks(-500_000_000, TimeUnit::Second, None).unwrap();
        assert_eq!(half_past, Exact { value: ScalarValue::TimestampSecond(Some(-1), None), order: Ordering::Greater });
        let exact = as_ticks(3_000_000, TimeUnit::Millisecond, None).unwrap();
        assert_eq!(exact, Exact { value: ScalarValue::TimestampMillisecond(Some(3), None), order: Ordering::Equal });
    }
}
