//! Comparisons that say what they read like: an analyzer rule before DataFusion's own coercion of types.
//!
//! DataFusion brings both sides of a comparison to one type, which changes the value of some literals, and answers some
//! predicates over nulls wrongly. The rule rewrites, wherever they stand in a plan:
//!
//! 1. A number with a point beside a decimal (`price = 4.48`): it was a double, whose nearest decimal of fifteen places is not
//!    4.48. It becomes the decimal that was written.
//! 2. A moment between two ticks of a column's clock (`seconds >= timestamp '2020-01-01 00:00:00.5'`): it was cut off to
//!    the tick before. It becomes that tick, with the operator that says the same of ticks.
//! 3. `x NOT IN (2, NULL)`: becomes `x NOT IN (2) AND NULL`. Beside `x IN (1, 2)` the null was forgotten.
//!
//! And it refuses a `NOT IN` of a subquery that may hold nulls below an `OR`: DataFusion forgets the nulls there, too.

use std::cmp::Ordering;

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

/// An `IN` of a subquery is right where it is a conjunct by itself, negated or not.
fn check_subqueries(conjunct: &Expr, schema: &DFSchema) -> Result<()> {
    if matches!(conjunct, Expr::InSubquery(_)) {
        return Ok(());
    }
    let is_forgetful = |inner: &Expr| match inner {
        Expr::InSubquery(InSubquery { expr, subquery, negated: true }) => {
            let gives_nulls = subquery.subquery.schema().fields().iter().any(|field| field.is_nullable());
            Ok(gives_nulls || expr.nullable(schema).unwrap_or(true))
        }
        _ => Ok(false),
    };
    if conjunct.exists(is_forgetful)? {
        let message = "NOT IN of a subquery that may hold nulls, below an OR; NOT EXISTS says it without them";
        return Err(DataFusionError::NotImplemented(message.to_owned()));
    }
    Ok(())
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(binary) if is_comparison(binary.op) => Ok(rewrite_comparison(binary, schema)),
        Expr::Between(between) => Ok(rewrite_between(between, schema)),
        Expr::InList(list) => Ok(rewrite_list(list, schema)),
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
    Transformed::no(comparison(left, op, *right))
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

fn rewrite_list(InList { expr, list, negated }: InList, schema: &DFSchema) -> Transformed<Expr> {
    let is_null = |item: &Expr| matches!(item, Expr::Literal(value, _) if value.is_null());
    let has_null = negated && list.iter().any(is_null);
    let mut changed = has_null;
    let list: Vec<Expr> = list
        .into_iter()
        .filter(|item| !(has_null && is_null(item)))
        .map(|item| match exact_beside(&expr, &item, schema) {
            Some(Exact { value, order: Ordering::Equal }) => {
                changed = true;
                lit(value)
            }
            _ => item,
        })
        .collect();
    let is_empty = list.is_empty();
    let rest = Expr::InList(InList { expr, list, negated });
    let rewritten = match has_null {
        true if is_empty => lit(ScalarValue::Boolean(None)),
        true => rest.and(lit(ScalarValue::Boolean(None))),
        false => rest,
    };
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
    let value = constant(literal)?;
    match (expr.get_type(schema).ok()?, value) {
        (DataType::Decimal128(..) | DataType::Decimal256(..), ScalarValue::Float64(Some(number))) => {
            Some(Exact { value: as_decimal(number)?, order: Ordering::Equal })
        }
        (DataType::Timestamp(unit, None), ScalarValue::TimestampNanosecond(Some(moment), None)) => {
            as_ticks(moment, unit)
        }
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

/// The decimal of the shortest text that reads as this number: what was written, if it had at most fifteen digits.
fn as_decimal(number: f64) -> Option<ScalarValue> {
    if !number.is_finite() {
        return None;
    }
    let text = number.to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let count = digits.unsigned_abs().checked_ilog10().map_or(1, |log| log as usize + 1).max(fraction.len());
    if count > MOST_DIGITS {
        return None;
    }
    Some(ScalarValue::Decimal128(Some(digits), count as u8, fraction.len() as i8))
}

fn as_ticks(moment: i64, unit: TimeUnit) -> Option<Exact> {
    let nanoseconds = match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => return None,
    };
    let tick = Some(moment.div_euclid(nanoseconds));
    let value = match unit {
        TimeUnit::Second => ScalarValue::TimestampSecond(tick, None),
        TimeUnit::Millisecond => ScalarValue::TimestampMillisecond(tick, None),
        _ => ScalarValue::TimestampMicrosecond(tick, None),
    };
    Some(Exact { value, order: moment.rem_euclid(nanoseconds).cmp(&0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_the_decimals_that_were_written() {
        let decimal = |digits, precision, scale| Some(ScalarValue::Decimal128(Some(digits), precision, scale));
        assert_eq!(as_decimal(4.48), decimal(448, 3, 2));
        assert_eq!(as_decimal(-0.05), decimal(-5, 2, 2));
        assert_eq!(as_decimal(100.0), decimal(100, 3, 0));
        assert_eq!(as_decimal(0.0), decimal(0, 1, 0));
        assert_eq!(
            as_decimal(1e37).map(|value| value.to_string()),
            Some("10000000000000000000000000000000000000".into())
        );
        assert_eq!(as_decimal(1e40), None);
        assert_eq!(as_decimal(f64::NAN), None);
    }

    #[test]
    fn moments_become_the_tick_before_them() {
        let half_past = as_ticks(-500_000_000, TimeUnit::Second).unwrap();
        assert_eq!(half_past, Exact { value: ScalarValue::TimestampSecond(Some(-1), None), order: Ordering::Greater });
        let exact = as_ticks(3_000_000, TimeUnit::Millisecond).unwrap();
        assert_eq!(exact, Exact { value: ScalarValue::TimestampMillisecond(Some(3), None), order: Ordering::Equal });
    }
}
