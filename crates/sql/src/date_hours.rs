//! Dates and hours: `date '2020-01-01' + interval '5 hours'` is a moment, as in PostgreSQL.
//!
//! To DataFusion it is a date, and the hours are lost. A date beside an interval that may be no whole days is made a
//! timestamp while the statement is planned. Beside whole days, and months, it stays a date.

use arrow_schema::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;

const NANOSECONDS_PER_DAY: i64 = 86_400_000_000_000;
const MILLISECONDS_PER_DAY: i32 = 86_400_000;

/// Plans them.
#[derive(Debug)]
pub(crate) struct DatesWithHours;

impl ExprPlanner for DatesWithHours {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let RawBinaryExpr { op, mut left, mut right } = expr;
        let is_date = |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::Date32));
        match op {
            BinaryOperator::Plus | BinaryOperator::Minus if has_hours(&right, schema) && is_date(&left) => {
                left = moment(left);
            }
            BinaryOperator::Plus if is_date(&right) && has_hours(&left, schema) => right = moment(right),
            _ => {}
        }
        Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }))
    }
}

/// Whether it is an interval that may be no whole days.
fn has_hours(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(interval), _) => {
            interval.is_some_and(|interval| interval.nanoseconds % NANOSECONDS_PER_DAY != 0)
        }
        Expr::Literal(ScalarValue::IntervalDayTime(interval), _) => {
            interval.is_some_and(|interval| interval.milliseconds % MILLISECONDS_PER_DAY != 0)
        }
        other => match other.get_type(schema) {
            Ok(DataType::Interval(unit)) => unit != IntervalUnit::YearMonth,
            _ => false,
        },
    }
}

fn moment(date: Expr) -> Expr {
    cast(date, DataType::Timestamp(TimeUnit::Microsecond, None))
}
