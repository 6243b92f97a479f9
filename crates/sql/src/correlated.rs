//! Subqueries that refer to the statement around them, where DataFusion would lose what they say.
//!
//! It makes joins of such subqueries, and takes the predicates that refer outside (`u.k = t.k`) out of them. What
//! stands between such a predicate and the join is then computed of all rows and not of those of one outer row. It
//! looks after `GROUP BY`, and refuses `ORDER BY` and `UNION`; the others it passes by:
//!
//! | above the predicate | was |
//! |---|---|
//! | a window function | numbers, ranks and sums over the rows of all outer rows |
//! | `LIMIT`, `OFFSET` in an `EXISTS` | left out |
//! | `DISTINCT ON` | the first row of all outer rows |
//! | the optional side of an outer join | rows without a partner lost |
//! | an aggregate without `GROUP BY`, which has a row of no rows, too | no row where there were none |
//!
//! They are refused, but for what does no harm: a `LIMIT` that ends an `EXISTS`; the one aggregate of a scalar or
//! `LATERAL` subquery, whose row of no rows DataFusion adds again; and, where a `WHERE` asks whether a value is among
//! them, one that is null of no rows (`x IN (SELECT max(y) …)`), for null is as good there as no row. Subqueries that
//! do not refer outside are as they were.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Distinct, Expr, Join, JoinType, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

/// Aggregates that are null of no rows.
const NULL_OF_NO_ROWS: [&str; 4] = ["min", "max", "sum", "avg"];

/// The rule.
#[derive(Debug)]
pub(crate) struct CorrelatedSubqueries;

impl AnalyzerRule for CorrelatedSubqueries {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.apply_with_subqueries(|node| {
            // Those in expressions are handed here, too, by themselves.
            for input in node.inputs() {
                if let LogicalPlan::Subquery(lateral) = input {
                    check(&lateral.subquery, Purpose::Rows)?;
                }
            }
            match node {
                LogicalPlan::Filter(filter) => {
                    split_conjunction(&filter.predicate).into_iter().try_for_each(check_conjunct)?;
                }
                node => {
                    node.apply_expressions(|expr| expr.apply(check_expr))?;
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(plan)
    }

    fn name(&self) -> &'static str {
        "correlated_subqueries"
    }
}

/// What is asked of a subquery.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Purpose {
    /// Whether it has rows.
    Existence,
    /// Whether a value is among its rows.
    Membership,
    /// Its rows, or its one row.
    Rows,
}

fn check_conjunct(conjunct: &Expr) -> Result<()> {
    match conjunct {
        Expr::InSubquery(within) if !within.negated && is_null_of_no_rows(&within.subquery.subquery) => {
            within.expr.apply(check_expr)?;
            check(&within.subquery.subquery, Purpose::Rows)
        }
        other => {
            other.apply(check_expr)?;
            Ok(())
        }
    }
}

/// Whether a subquery is one aggregate of all rows, which is null where there are none.
fn is_null_of_no_rows(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Projection(projection) = plan else { return false };
    let LogicalPlan::Aggregate(aggregate) = &*projection.input else { return false };
    let is_column = |expr: &Expr| match expr {
        Expr::Alias(alias) => matches!(&*alias.expr, Expr::Column(_)),
        other => matches!(other, Expr::Column(_)),
    };
    let is_null = |expr: &Expr| match expr {
        Expr::AggregateFunction(function) => NULL_OF_NO_ROWS.contains(&function.func.name()),
        _ => false,
    };
    let is_all = aggregate.group_expr.is_empty() && aggregate.aggr_expr.iter().all(is_null);
    is_all && projection.expr.iter().all(is_column)
}

fn check_expr(expr: &Expr) -> Result<TreeNodeRecursion> {
    match expr {
        Expr::Exists(exists) => check(&exists.subquery.subquery, Purpose::Existence)?,
        Expr::InSubquery(within) => check(&within.subquery.subquery, Purpose::Membership)?,
        Expr::SetComparison(comparison) => check(&comparison.subquery.subquery, Purpose::Membership)?,
        Expr::ScalarSubquery(subquery) => check(&subquery.subquery, Purpose::Rows)?,
        _ => {}
    }
    Ok(TreeNodeRecursion::Continue)
}

/// Goes down from the top of a subquery as far as it does no harm.
fn check(plan: &LogicalPlan, purpose: Purpose) -> Result<()> {
    match plan {
        LogicalPlan::Projection(projection) => check(&projection.input, purpose),
        LogicalPlan::SubqueryAlias(alias) => check(&alias.input, purpose),
        LogicalPlan::Limit(limit) if purpose == Purpose::Existence && limit.skip.is_none() => check_below(&limit.input),
        LogicalPlan::Filter(filter) if purpose == Purpose::Rows => check(&filter.input, purpose),
        LogicalPlan::Aggregate(aggregate) if purpose == Purpose::Rows => check_below(&aggregate.input),
        other => check_below(other),
    }
}

fn check_below(plan: &LogicalPlan) -> Result<()> {
    let between = match plan {
        LogicalPlan::Window(window) => refers_outside(&window.input).then_some("a window function"),
        LogicalPlan::Limit(limit) => refers_outside(&limit.input).then_some("LIMIT or OFFSET"),
        LogicalPlan::Distinct(Distinct::On(distinct)) => refers_outside(&distinct.input).then_some("DISTINCT ON"),
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => {
            refers_outside(&aggregate.input).then_some("an aggregate without GROUP BY")
        }
        LogicalPlan::Join(join) => has_optional_reference(join).then_some("an outer join"),
        // It is looked at by itself.
        LogicalPlan::Subquery(_) => return Ok(()),
        _ => None,
    };
    match between {
        Some(what) => Err(DataFusionError::NotImplemented(format!(
            "a subquery with {what} over a predicate that refers to the statement around it: a join with a subquery that \
             does not refer outside says it"
        ))),
        None => plan.inputs().into_iter().try_for_each(check_below),
    }
}

/// Whether what refers outside stands on a side whose rows need no partner, or are none of the join's.
fn has_optional_reference(join: &Join) -> bool {
    match join.join_type {
        JoinType::Inner => false,
        JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => refers_outside(&join.right),
        JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => refers_outside(&join.left),
        JoinType::Full => refers_outside(&join.left) || refers_outside(&join.right),
    }
}

/// Whether an expression of a plan names a column of a statement around it; those of subqueries in it do not count.
fn refers_outside(plan: &LogicalPlan) -> bool {
    let is_lateral = matches!(plan, LogicalPlan::Subquery(_));
    !is_lateral && (plan.contains_outer_reference() || plan.inputs().into_iter().any(refers_outside))
}
