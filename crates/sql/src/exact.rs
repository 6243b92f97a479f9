//! Comparisons that say what they read like: an analyzer rule before DataFusion's own coercion of types.
//!
//! DataFusion brings both sides of a comparison to one type, which changes the value of some literals, and answers some
//! predicates over nulls wrongly. The rule rewrites, wherever they stand in a plan:
//!
//! 1. A number with a point or a text beside a decimal (`price = 4.48`): the number was a double, whose nearest decimal
//!    of fifteen places is not 4.48, and the text was rounded to the column's places. It becomes the decimal that was
//!    written. Beside a 64-bit integer, which was made a double, likewise. One of many digits, which is a decimal,
//!    becomes the double next to it beside floats. Where no decimal has room for the places of both, it lies between
//!    two values of the column, as in 2.
//! 2. A moment between two ticks of a column's clock (`seconds >= timestamp '2020-01-01 00:00:00.5'`, or as a text, or
//!    beside a date): it was cut off to the tick before. It becomes that tick, with the operator that says the same of
//!    ticks. So it does after 2262, where nanoseconds end.
//! 3. `x NOT IN (2, NULL)`: becomes `x NOT IN (2) AND NULL`. Beside `x IN (1, 2)` the null was forgotten. More of lists
//!    is in [`crate::null_lists`].
//! 4. A literal on the left goes to the right (`'a' = x`): beside another bound of `x` the sides were mixed up.
//! 5. What compares without saying so says so, where a literal needs it: `CASE price WHEN 4.48` becomes `CASE WHEN
//!    price = 4.48`, and `nullif(price, 4.48)` becomes `CASE WHEN price = 4.48 THEN NULL ELSE price END`. A subquery of
//!    nothing but literals becomes those (`= (SELECT 4.48)`, `IN (VALUES (4.48))`).
//! 6. Two sides, neither of them a literal, whose common type would lose something are brought to another
//!    ([`crate::alike`]): in comparisons, of joins too, and, of decimals beside floats, where a `CASE`, `coalesce`,
//!    `greatest`, `least` or `UNION` gives one of several values.
//! 7. A zero in a list of floats has both signs, as it has beside `=`.
//! 8. The year of nanoseconds, beside one that they do not reach or that they end in (`EXTRACT(YEAR FROM n) < 2300`),
//!    becomes a comparison of the nanoseconds with its ends, which DataFusion takes for null. So does a day, hour,
//!    minute or second (`date_trunc('day', t) = '2020-01-01'`), so that storage decides it.
//! 9. The seconds and milliseconds of a moment have what is behind the point: `EXTRACT(SECOND FROM t)` becomes a
//!    decimal of its microseconds.
//!
//! In arithmetic a number with a point is a decimal beside decimals and integers ([`crate::decimal_arithmetic`]).
//! Elsewhere it is a double.
//!
//! And it refuses an `IN` of a subquery that may hold nulls where their sense is asked for and DataFusion forgets it:
//! negated below an `OR`, and below anything but `AND` and `OR`. As a conjunct by itself it is right, negated or not.
//! It refuses casts to decimals of negative scale, on which DataFusion panics.

use std::cmp::Ordering;
use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow_schema::{DataType, TimeUnit};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::compute::kernels::cast_utils::string_to_datetime;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::{Between, Case, InList, InSubquery, ScalarFunction};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    BinaryExpr, Distinct, Expr, ExprSchemable, Join, JoinConstraint, LogicalPlan, LogicalPlanBuilder, Operator,
    Subquery, cast, lit,
};
use datafusion::optimizer::AnalyzerRule;

use crate::alike::{alike, one_of, type_of, united};
use crate::decimal_arithmetic::division;
use crate::kept_cast::is_rounded;
use crate::moment::{nanoseconds, ticks_of, timestamp};
use crate::null_lists::{chained, keep_nulls};
use crate::plan_rewrite::{columns_of, rewrite_expressions};
use crate::written_decimal::{as_double, beside_decimals, written};

/// Functions that give one of their arguments.
const ONE_OF_SEVERAL: [&str; 5] = ["coalesce", "nvl", "ifnull", "greatest", "least"];
/// Functions of a part and a moment.
const OF_MOMENTS: [&str; 2] = ["date_part", "date_trunc"];
/// Digits of any integer.
const INTEGER_DIGITS: u8 = 20;
/// What `date_part` calls a year.
const YEAR: [&str; 5] = ["year", "years", "y", "yr", "yrs"];

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
    if let LogicalPlan::Filter(filter) = &plan {
        let columns = columns_of(&plan)?;
        split_conjunction(&filter.predicate)
            .into_iter()
            .try_for_each(|conjunct| check_subqueries(conjunct, &columns))?;
    }
    let plan = match plan {
        LogicalPlan::Join(join) => LogicalPlan::Join(with_keys_alike(join)),
        LogicalPlan::Union(union) => united(union.inputs)?,
        other => other,
    };
    let is_filter = matches!(plan, LogicalPlan::Filter(_) | LogicalPlan::Join(_) | LogicalPlan::TableScan(_));
    rewrite_expressions(plan, |expr, columns| {
        let exact = expr.transform_up(|expr| rewrite(expr, columns))?;
        Ok(keep_nulls(exact.data, is_filter, columns)?.data)
    })
}

/// What `USING`, `NATURAL`, `INTERSECT` and `EXCEPT` compare.
fn with_keys_alike(mut join: Join) -> Join {
    let columns: [&DFSchema; 2] = [join.left.schema(), join.right.schema()];
    for (left, right) in &mut join.on {
        if let Some(both) = alike(left, right, columns) {
            (*left, *right) = both;
            // `USING` has columns alone.
            join.join_constraint = JoinConstraint::On;
        }
    }
    join
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
        // One whose sides became decimals since it was planned.
        Expr::BinaryExpr(binary) if matches!(binary.op, Operator::Divide | Operator::Modulo) => {
            let divided = division(&binary.left, binary.op, &binary.right, schema);
            Ok(divided.map_or_else(|| Transformed::no(Expr::BinaryExpr(binary)), Transformed::yes))
        }
        Expr::Between(between) => Ok(rewrite_between(between, schema)),
        Expr::InList(list) => Ok(rewrite_list(list, schema)),
        Expr::Not(inner) => match *inner {
            Expr::InList(list @ InList { negated: false, .. }) if list.list.iter().any(is_null) => {
                Ok(rewrite_list(InList { negated: true, ..list }, schema))
            }
            inner => Ok(Transformed::no(Expr::Not(Box::new(inner)))),
        },
        Expr::Case(case) => Ok(rewrite_case(case, schema)),
        Expr::ScalarFunction(function) if function.name() == "nullif" => Ok(rewrite_nullif(function, schema)),
        Expr::ScalarFunction(function) if function.name() == "date_part" => Ok(rewrite_seconds(function, schema)),
        Expr::ScalarFunction(ScalarFunction { func, args }) if ONE_OF_SEVERAL.contains(&func.name()) => {
            one_of(args, schema).map_data(|args| Ok(Expr::ScalarFunction(ScalarFunction { func, args })))
        }
        Expr::ScalarSubquery(subquery) => Ok(match constants_of(&subquery.subquery).as_deref() {
            Some([constant]) => Transformed::yes(constant.clone()),
            _ => Transformed::no(Expr::ScalarSubquery(subquery)),
        }),
        Expr::InSubquery(subquery) => rewrite_subquery(subquery, schema),
        Expr::Cast(cast) if has_negative_scale(cast.field.data_type()) => Err(no_negative_scale()),
        Expr::TryCast(cast) if has_negative_scale(cast.field.data_type()) => Err(no_negative_scale()),
        other => Ok(Transformed::no(other)),
    }
}

fn has_negative_scale(ty: &DataType) -> bool {
    matches!(ty, DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) if *scale < 0)
}

fn no_negative_scale() -> DataFusionError {
    DataFusionError::NotImplemented("a cast to a decimal of negative scale; round() does without".to_owned())
}

fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

fn rewrite_comparison(BinaryExpr { left, op, right }: BinaryExpr, schema: &DFSchema) -> Transformed<Expr> {
    let comparison = |left: Box<Expr>, op, right: Expr| Expr::BinaryExpr(BinaryExpr::new(left, op, Box::new(right)));
    let stretch = Stretch::of(&left, &right, schema).map(|stretch| (stretch, Some(op)));
    let stretch = stretch.or_else(|| Stretch::of(&right, &left, schema).map(|stretch| (stretch, op.swap())));
    if let Some((stretch, Some(op))) = stretch {
        return Transformed::yes(stretch.compared(op));
    }
    if let Some(exact) = exact_beside(&left, &right, schema) {
        return Transformed::yes(exact.compared(*left, op));
    }
    if let (Some(exact), Some(swapped)) = (exact_beside(&right, &left, schema), op.swap()) {
        return Transformed::yes(exact.compared(*right, swapped));
    }
    if let Some((left, right)) = alike(&left, &right, [schema; 2]) {
        return Transformed::yes(comparison(Box::new(left), op, right));
    }
    match op.swap() {
        Some(swapped) if constant(&left).is_some() && constant(&right).is_none() => {
            Transformed::yes(comparison(right, swapped, *left))
        }
        _ => Transformed::no(comparison(left, op, *right)),
    }
}

/// Whether one of the two must be changed to be compared exactly with the other.
fn is_inexact(left: &Expr, right: &Expr, schema: &DFSchema) -> bool {
    exact_beside(left, right, schema).is_some()
        || exact_beside(right, left, schema).is_some()
        || is_compared_alone(left, right, schema)
}

/// Whether comparing the two takes more than another literal.
fn is_compared_alone(left: &Expr, right: &Expr, schema: &DFSchema) -> bool {
    Stretch::of(left, right, schema).is_some()
        || Stretch::of(right, left, schema).is_some()
        || alike(left, right, [schema; 2]).is_some()
}

fn equality(left: Box<Expr>, right: Box<Expr>, schema: &DFSchema) -> Box<Expr> {
    Box::new(rewrite_comparison(BinaryExpr::new(left, Operator::Eq, right), schema).data)
}

fn rewrite_case(case: Case, schema: &DFSchema) -> Transformed<Expr> {
    let Case { expr, when_then_expr, else_expr } = case;
    let is_inexact_base = expr.as_ref().is_some_and(|base| {
        !base.is_volatile() && when_then_expr.iter().any(|(when, _)| is_inexact(base, when, schema))
    });
    let (mut whens, thens): (Vec<_>, Vec<_>) = when_then_expr.into_iter().unzip();
    let (base, compared) = if is_inexact_base { (None, expr) } else { (expr, None) };
    if let Some(compared) = compared {
        whens = whens.into_iter().map(|when| equality(compared.clone(), when, schema)).collect();
    }
    let count = thens.len();
    let values = thens.into_iter().chain(else_expr).map(|value| *value).collect();
    let values = one_of(values, schema);
    let is_changed = is_inexact_base || values.transformed;
    let mut values = values.data.into_iter().map(Box::new);
    let branches = whens.into_iter().zip(values.by_ref().take(count)).collect();
    let case = Expr::Case(Case::new(base, branches, values.next()));
    Transformed::new_transformed(case, is_changed)
}

fn rewrite_nullif(function: ScalarFunction, schema: &DFSchema) -> Transformed<Expr> {
    match &function.args[..] {
        [value, other] if !value.is_volatile() && is_inexact(value, other, schema) => {
            let is_equal = equality(Box::new(value.clone()), Box::new(other.clone()), schema);
            let branches = vec![(is_equal, Box::new(lit(ScalarValue::Null)))];
            Transformed::yes(Expr::Case(Case::new(None, branches, Some(Box::new(value.clone())))))
        }
        _ => Transformed::no(Expr::ScalarFunction(function)),
    }
}

fn rewrite_seconds(function: ScalarFunction, schema: &DFSchema) -> Transformed<Expr> {
    let places = match &function.args[..] {
        [part, moment] if has_fraction(moment, schema) => match part_of(part).as_deref() {
            Some("s" | "sec" | "secs" | "second" | "seconds") => Some(6),
            Some("ms" | "msec" | "msecs" | "msecond" | "mseconds" | "millisecond" | "milliseconds") => Some(3),
            _ => None,
        },
        _ => None,
    };
    let Some(places) = places else { return Transformed::no(Expr::ScalarFunction(function)) };
    let ScalarFunction { func, args } = function;
    let args = [lit("microsecond")].into_iter().chain(args.into_iter().skip(1)).collect();
    let microseconds = cast(Expr::ScalarFunction(ScalarFunction { func, args }), DataType::Decimal128(8, 0));
    Transformed::yes(microseconds * lit(ScalarValue::Decimal128(Some(1), places, places as i8)))
}

/// Whether a moment may lie between two seconds.
fn has_fraction(moment: &Expr, schema: &DFSchema) -> bool {
    matches!(type_of(moment, schema), Some(DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_)))
}

/// What `date_part` or `date_trunc` is asked for.
fn part_of(part: &Expr) -> Option<String> {
    Some(text_of(&constant(part)?)?.to_ascii_lowercase())
}

/// The rows of a subquery that has one column and says all its values: `SELECT 4.48`, `VALUES (1), (2)`, unions of
/// them.
fn constants_of(plan: &LogicalPlan) -> Option<Vec<Expr>> {
    let constant_of = |row: &[Expr]| match row {
        [Expr::Alias(alias)] => constant(&alias.expr).map(|_| (*alias.expr).clone()),
        [value] => constant(value).map(|_| value.clone()),
        _ => None,
    };
    match plan {
        LogicalPlan::Projection(projection) => match &*projection.input {
            LogicalPlan::EmptyRelation(relation) if relation.produce_one_row => {
                constant_of(&projection.expr[..]).map(|constant| vec![constant])
            }
            _ => None,
        },
        LogicalPlan::Values(values) => values.values.iter().map(|row| constant_of(&row[..])).collect(),
        LogicalPlan::Union(union) => {
            let inputs = union.inputs.iter().map(|input| constants_of(input)).collect::<Option<Vec<_>>>()?;
            Some(inputs.concat())
        }
        LogicalPlan::Distinct(Distinct::All(input)) => constants_of(input),
        _ => None,
    }
}

fn rewrite_between(between: Between, schema: &DFSchema) -> Transformed<Expr> {
    let Between { expr, negated, low, high } = &between;
    let is_inexact_bound = [low, high].into_iter().any(|bound| is_inexact(expr, bound, schema));
    if !is_inexact_bound || expr.is_volatile() {
        return Transformed::no(Expr::Between(between));
    }
    let compared =
        |op, bound: &Expr| rewrite_comparison(BinaryExpr::new(expr.clone(), op, Box::new(bound.clone())), schema).data;
    let within = compared(Operator::GtEq, low).and(compared(Operator::LtEq, high));
    Transformed::yes(if *negated { !within } else { within })
}

fn rewrite_subquery(in_subquery: InSubquery, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let InSubquery { expr, subquery, negated } = in_subquery;
    if let Some(list) = constants_of(&subquery.subquery) {
        return Ok(Transformed::yes(rewrite_list(InList { expr, list, negated }, schema).data));
    }
    let columns: &DFSchema = subquery.subquery.schema();
    let column = columns.iter().next().map(|(qualifier, field)| Expr::Column(Column::from((qualifier, field))));
    let both = column.and_then(|column| alike(&expr, &column, [schema, columns]));
    let Some((expr, column)) = both else {
        return Ok(Transformed::no(Expr::InSubquery(InSubquery { expr, subquery, negated })));
    };
    let plan = LogicalPlanBuilder::from(Arc::unwrap_or_clone(subquery.subquery)).project([column])?.build()?;
    let subquery = Subquery { subquery: Arc::new(plan), ..subquery };
    Ok(Transformed::yes(Expr::InSubquery(InSubquery { expr: Box::new(expr), subquery, negated })))
}

fn is_null(expr: &Expr) -> bool {
    constant(expr).is_some_and(|value| value.is_null())
}

fn is_zero(expr: &Expr) -> bool {
    let number = constant(expr).and_then(|value| value.cast_to(&DataType::Float64).ok());
    matches!(number, Some(ScalarValue::Float64(Some(0.0))))
}

fn rewrite_list(list: InList, schema: &DFSchema) -> Transformed<Expr> {
    let ty = type_of(&list.expr, schema);
    if !list.list.iter().any(|item| is_compared_alone(&list.expr, item, schema)) {
        return rewrite_alike(list, ty.is_some_and(|ty| ty.is_floating()), schema);
    }
    if list.expr.is_volatile() {
        return Transformed::no(Expr::InList(list));
    }
    let InList { expr, list, negated } = list;
    if ty == Some(DataType::Float32) {
        let expr = Box::new(cast(*expr, DataType::Float64));
        return Transformed::yes(rewrite_list(InList { expr, list, negated }, schema).data);
    }
    let equal = list.into_iter().map(|item| *equality(expr.clone(), Box::new(item), schema)).collect();
    let either = chained(equal, Operator::Or);
    Transformed::yes(if negated { !either } else { either })
}

/// A list beside an expression whose comparison with each item is exact, or becomes so.
fn rewrite_alike(InList { expr, list, negated }: InList, is_float: bool, schema: &DFSchema) -> Transformed<Expr> {
    let count = list.len();
    let has_null = negated && list.iter().any(is_null);
    let has_zero = is_float && list.iter().any(is_zero);
    let mut changed = has_null || has_zero;
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
    if has_zero {
        kept.extend([lit(0.0), lit(-0.0)]);
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

/// The stretch of moments of which a function has the value that it is compared with.
struct Stretch {
    moment: Expr,
    ty: DataType,
    /// In nanoseconds.
    from: i128,
    /// The next one begins here.
    to: i128,
}

impl Stretch {
    /// Of a function of a moment on the left, and its value on the right.
    fn of(left: &Expr, right: &Expr, schema: &DFSchema) -> Option<Self> {
        let Expr::ScalarFunction(ScalarFunction { func, args }) = left else { return None };
        let [part, moment] = &args[..] else { return None };
        if !OF_MOMENTS.contains(&func.name()) || moment.is_volatile() {
            return None;
        }
        let ty = type_of(moment, schema)?;
        let DataType::Timestamp(unit, zone) = &ty else { return None };
        let is_of_utc = zone.as_deref().is_none_or(|zone| matches!(zone, "UTC" | "Z" | "+00:00"));
        let part = part_of(part)?;
        let (from, to) = match func.name() {
            "date_part" if is_of_utc && *unit == TimeUnit::Nanosecond && YEAR.contains(&&*part) => far_year(right)?,
            "date_trunc" if is_of_utc => truncated(&part, right, zone.as_ref())?,
            _ => return None,
        };
        Some(Self { moment: moment.clone(), from, to, ty })
    }

    fn compared(self, op: Operator) -> Expr {
        use Operator::{Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
        let within = |this: &Self| this.beside(GtEq, this.from).and(this.beside(Lt, this.to));
        let outside = |this: &Self| this.beside(Lt, this.from).or(this.beside(GtEq, this.to));
        match op {
            Lt | GtEq => self.beside(op, self.from),
            LtEq => self.beside(Lt, self.to),
            Gt => self.beside(GtEq, self.to),
            NotEq => outside(&self),
            IsDistinctFrom => outside(&self).or(self.moment.is_null()),
            IsNotDistinctFrom => within(&self).and(self.moment.is_not_null()),
            _ => within(&self),
        }
    }

    /// The comparison with an end, which may lie before or after all that the type counts.
    fn beside(&self, op: Operator, end: i128) -> Expr {
        let first = match &self.ty {
            DataType::Timestamp(unit, zone) => timestamp(i64::MIN, *unit, zone.clone()),
            _ => ScalarValue::Null,
        };
        let exact = as_ticks(end, &self.ty).unwrap_or(Exact { value: first, order: Ordering::Equal });
        exact.compared(self.moment.clone(), op)
    }
}

/// The ends of a year that nanoseconds do not have as a whole. DataFusion knows those of others.
fn far_year(year: &Expr) -> Option<(i128, i128)> {
    const WHOLE: RangeInclusive<i64> = 1678..=2261;
    let year = constant(year).filter(|value| value.data_type().is_integer())?.cast_to(&DataType::Int64).ok()?;
    let ScalarValue::Int64(Some(year)) = year else { return None };
    let beginning = |year: i64| parse_moment(&format!("{:04}-01-01", year.clamp(1, 9999)), None);
    if WHOLE.contains(&year) { None } else { Some((beginning(year)?, beginning(year.saturating_add(1))?)) }
}

/// What `date_trunc` makes this moment of, if it makes it of any.
fn truncated(part: &str, moment: &Expr, zone: Option<&Arc<str>>) -> Option<(i128, i128)> {
    let second = nanoseconds(TimeUnit::Second);
    let length = match part {
        "second" => second,
        "minute" => 60 * second,
        "hour" => 3_600 * second,
        "day" => 86_400 * second,
        _ => return None,
    };
    let from = match constant(moment)? {
        ScalarValue::Date32(day) => i128::from(day?) * 86_400 * second,
        _ => moment_of(moment, zone)?,
    };
    (from.rem_euclid(length) == 0).then_some((from, from + length))
}

/// The literal beside an expression, if it must be changed to be compared exactly.
fn exact_beside(expr: &Expr, literal: &Expr, schema: &DFSchema) -> Option<Exact> {
    // The type of an expression takes as long as it is deep.
    if !matches!(literal, Expr::Literal(..) | Expr::Cast(_) | Expr::Negative(_)) {
        return None;
    }
    let ty = type_of(expr, schema)?;
    let (value, order) = match &ty {
        DataType::Timestamp(_, zone) => return as_ticks(moment_of(literal, zone.as_ref())?, &ty),
        DataType::Date32 => {
            let is_moment = matches!(literal.get_type(schema), Ok(DataType::Timestamp(_, None)));
            return if is_moment { as_ticks(moment_of(literal, None)?, &ty) } else { None };
        }
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            beside_decimals(&number_of(literal)?, *precision, *scale)?
        }
        DataType::Float32 | DataType::Float64 => (ScalarValue::Float64(Some(as_double(literal)?)), Ordering::Equal),
        DataType::Int64 | DataType::UInt64 => match constant(literal)? {
            ScalarValue::Float64(Some(number)) => beside_decimals(&number.to_string(), INTEGER_DIGITS, 0)?,
            _ => beside_decimals(&written(literal)?, INTEGER_DIGITS, 0)?,
        },
        ty if ty.is_integer() => beside_decimals(&written(literal)?, INTEGER_DIGITS, 0)?,
        _ => return None,
    };
    Some(Exact { value, order })
}

/// The text of a literal beside a decimal: of a number, or one that says a number.
fn number_of(literal: &Expr) -> Option<String> {
    match constant(literal)? {
        ScalarValue::Float64(Some(number)) => Some(number.to_string()),
        value => text_of(&value).map(|text| text.trim().to_owned()).or_else(|| written(literal)),
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
            // It would be cut off.
            Expr::Literal(value, _) if is_rounded(&value.data_type(), cast.field.data_type()) => None,
            Expr::Literal(value, _) => value.cast_to(cast.field.data_type()).ok(),
            _ => None,
        },
        Expr::Negative(inner) => constant(inner)?.arithmetic_negate().ok(),
        _ => None,
    }
}

/// The moment that a literal says beside a column of this zone, in nanoseconds, which may be more than 64 bits hold.
fn moment_of(literal: &Expr, zone: Option<&Arc<str>>) -> Option<i128> {
    // The cast itself ends in 2262.
    if let Expr::Cast(cast) = literal
        && let DataType::Timestamp(TimeUnit::Nanosecond, of_cast) = cast.field.data_type()
        && let Expr::Literal(value, _) = &*cast.expr
        && let Some(text) = text_of(value)
        && of_cast.as_ref() == zone
    {
        return parse_moment(text, zone);
    }
    let value = constant(literal)?;
    if let Some(text) = text_of(&value) {
        return parse_moment(text, zone);
    }
    let DataType::Timestamp(unit, _) = value.data_type() else { return None };
    let ticks = ticks_of(&value.cast_to(&DataType::Timestamp(unit, zone.cloned())).ok()?)?;
    Some(i128::from(ticks) * nanoseconds(unit))
}

/// As a cast of the text has it.
fn parse_moment(text: &str, zone: Option<&Arc<str>>) -> Option<i128> {
    let zone: Tz = zone.map_or("+00:00", |zone| &**zone).parse().ok()?;
    let moment = string_to_datetime(&zone, text).ok()?;
    let seconds = i128::from(moment.timestamp()) * nanoseconds(TimeUnit::Second);
    Some(seconds + i128::from(moment.timestamp_subsec_nanos()))
}

/// A moment as a timestamp or date of this type: the last that is not after it.
fn as_ticks(moment: i128, ty: &DataType) -> Option<Exact> {
    let (tick_length, last) = match ty {
        DataType::Timestamp(unit, _) => (nanoseconds(*unit), i128::from(i64::MAX)),
        DataType::Date32 => (86_400 * nanoseconds(TimeUnit::Second), i128::from(i32::MAX)),
        _ => return None,
    };
    let tick = moment.div_euclid(tick_length);
    let order = if tick > last { Ordering::Greater } else { moment.rem_euclid(tick_length).cmp(&0) };
    // What lies before the first of the type has none.
    let tick = i64::try_from(tick.min(last)).ok()?;
    let value = match ty {
        DataType::Timestamp(unit, zone) => timestamp(tick, *unit, zone.clone()),
        _ => ScalarValue::Date32(Some(i32::try_from(tick).ok()?)),
    };
    Some(Exact { value, order })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_become_the_tick_before_them() {
        use Ordering::{Equal, Greater};
        let seconds = DataType::Timestamp(TimeUnit::Second, None);
        let nanos = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let second = |tick| ScalarValue::TimestampSecond(Some(tick), None);
        let found = |moment, ty| as_ticks(moment, ty).map(|Exact { value, order }| (value, order));
        assert_eq!(found(-500_000_000, &seconds), Some((second(-1), Greater)));
        assert_eq!(found(3_000_000_000, &seconds), Some((second(3), Equal)));
        assert_eq!(found(i128::from(i64::MAX) * 10, &seconds), Some((second(92_233_720_368), Greater)));
        assert_eq!(found(-1, &DataType::Date32), Some((ScalarValue::Date32(Some(-1)), Greater)));
        // After the last and before the first that the type has.
        let last = ScalarValue::TimestampNanosecond(Some(i64::MAX), None);
        assert_eq!(found(i128::from(i64::MAX) + 1, &nanos), Some((last, Greater)));
        assert_eq!(found(i128::from(i64::MIN) - 1, &nanos), None);
    }

    #[test]
    fn texts_become_moments_beyond_64_bits_of_nanoseconds() {
        let second = nanoseconds(TimeUnit::Second);
        assert_eq!(parse_moment("1970-01-01 00:00:01.5", None), Some(second * 3 / 2));
        assert_eq!(parse_moment("3000-01-01", None), Some(32_503_680_000 * second));
        assert_eq!(parse_moment("1970-01-01", Some(&"+01:00".into())), Some(-3600 * second));
        assert_eq!(parse_moment("tomorrow", None), None);
    }
}
