//! Lists beside lists of one expression, which keep their nulls.
//!
//! DataFusion unites them: `x IN (1, 2) AND x IN (3)` to `false`, and `x NOT IN (1) OR x NOT IN (2)` to `true`. Of a
//! null both are null. And a null within a list is taken for a value of it. [`keep_nulls`] goes over chains of `AND`
//! and `OR`:
//!
//! 1. Operands are put together that are made of lists and equalities of one expression alone ([`subject_of`]). Of a
//!    null all of them are null.
//! 2. Where uniting them could tell ([`forgets`]), they are only asked of what is no null: `(x IS NOT NULL AND …) OR (x
//!    IS NULL AND NULL)`. What is asked only of that already stays as it is.
//!
//! In a filter null is as good as `false`, so that what storage decides stays as it is.
//!
//! The analyzer sees what was written side by side. Predicates of a subquery and of what is around it meet later, when
//! the optimizer puts projections and filters together: [`NullsOfLists`] is a rule of its own before the one that
//! unites lists.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{split_binary, split_binary_owned};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Join, LogicalPlan, Operator, lit};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use crate::plan_rewrite::columns_of;

/// The rule. It has to run before each `simplify_expressions`.
#[derive(Debug)]
pub(crate) struct NullsOfLists;

impl OptimizerRule for NullsOfLists {
    fn name(&self) -> &'static str {
        "nulls_of_lists"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let columns = columns_of(&plan)?;
        match plan {
            // What storage decides is no chain of lists that could tell.
            LogicalPlan::TableScan(_) => Ok(Transformed::no(plan)),
            LogicalPlan::Join(join) => in_join(join, &columns),
            plan => {
                let (is_filter, names) = (matches!(plan, LogicalPlan::Filter(_)), NamePreserver::new(&plan));
                plan.map_expressions(|expr| {
                    if matches!(expr, Expr::GroupingSet(_)) || !expr.exists(|inner| Ok(is_chain(inner)))? {
                        return Ok(Transformed::no(expr));
                    }
                    let name = names.save(&expr);
                    let kept = keep_nulls(expr, is_filter, &columns)?;
                    Ok(if kept.transformed { kept.update_data(|expr| name.restore(expr)) } else { kept })
                })
            }
        }
    }
}

fn is_chain(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryExpr(BinaryExpr { op: Operator::And | Operator::Or, .. }))
}

/// Of the keys of a join null is one value, and `false` another.
fn in_join(mut join: Join, columns: &DFSchema) -> Result<Transformed<LogicalPlan>> {
    let mut is_changed = false;
    let mut kept = |expr: Expr, is_filter| -> Result<Expr> {
        let kept = keep_nulls(expr, is_filter, columns)?;
        is_changed |= kept.transformed;
        Ok(kept.data)
    };
    join.filter = join.filter.map(|filter| kept(filter, true)).transpose()?;
    let keys = join.on.into_iter().map(|(left, right)| Ok((kept(left, false)?, kept(right, false)?)));
    join.on = keys.collect::<Result<_>>()?;
    Ok(Transformed::new_transformed(LogicalPlan::Join(join), is_changed))
}

/// An expression that DataFusion does not forget nulls of. Of a filter, where null is as good as `false`, unless
/// negated.
pub(crate) fn keep_nulls(expr: Expr, is_filter: bool, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Keeper { is_filter, values: Vec::new(), schema }.keep(expr, None)
}

/// What is known of where an expression stands.
struct Keeper<'s> {
    is_filter: bool,
    /// What is no null wherever the expression tells.
    values: Vec<Expr>,
    schema: &'s DFSchema,
}

impl Keeper<'_> {
    /// `chain` is the operator of which the expression is an operand, if its chain was looked through from its top.
    fn keep(&self, expr: Expr, chain: Option<Operator>) -> Result<Transformed<Expr>> {
        let op = match &expr {
            Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) => *op,
            _ => {
                let within = Self { is_filter: false, values: self.values.clone(), schema: self.schema };
                return expr.map_children(|child| within.keep(child, None));
            }
        };
        if chain == Some(op) {
            return expr.map_children(|child| self.keep(child, chain));
        }
        let mut values = self.values.clone();
        if op == Operator::And {
            values.extend(split_binary(&expr, op).into_iter().filter_map(of_no_null).cloned());
        }
        let within = Self { is_filter: self.is_filter, values, schema: self.schema };
        let forgotten = within.forgotten(&expr, op);
        if forgotten.is_empty() {
            return expr.map_children(|child| within.keep(child, Some(op)));
        }
        let mut groups: Vec<(Expr, Vec<Expr>)> = forgotten.into_iter().map(|subject| (subject, Vec::new())).collect();
        let mut operands = Vec::new();
        for operand in split_binary_owned(expr, op) {
            let group = groups.iter_mut().find(|(subject, _)| subject_of(&operand) == Some(subject));
            match group {
                Some((_, members)) => members.push(operand),
                None => operands.push(within.keep(operand, Some(op))?.data),
            }
        }
        for (subject, members) in groups {
            operands.push(of_values(subject, chained(members, op))?);
        }
        Ok(Transformed::yes(chained(operands, op)))
    }

    /// The expressions of whose nulls a chain would be forgetful.
    fn forgotten(&self, expr: &Expr, op: Operator) -> Vec<Expr> {
        let mut groups: Vec<(&Expr, Vec<&Expr>)> = Vec::new();
        for operand in split_binary(expr, op) {
            let Some(subject) = subject_of(operand) else { continue };
            match groups.iter_mut().find(|(known, _)| *known == subject) {
                Some((_, members)) => members.push(operand),
                None => groups.push((subject, vec![operand])),
            }
        }
        groups.retain(|(subject, members)| {
            members.len() > 1
                && forgets(op, members, self.is_filter)
                && !self.values.contains(subject)
                && subject.nullable(self.schema).unwrap_or(true)
        });
        groups.into_iter().map(|(subject, _)| subject.clone()).collect()
    }
}

/// What is no null where a predicate is true.
fn of_no_null(predicate: &Expr) -> Option<&Expr> {
    match predicate {
        Expr::IsNotNull(inner) => Some(&**inner),
        _ => None,
    }
}

/// Whether operands of one expression, united, could be `true` or `false` where they are null, and that matters.
fn forgets(op: Operator, members: &[&Expr], is_filter: bool) -> bool {
    let has = |test: fn(&Expr) -> bool| members.iter().any(|member| member.exists(|e| Ok(test(e))).unwrap_or(true));
    let is_negated = |e: &Expr| matches!(e, Expr::InList(InList { negated: true, .. }) | Expr::Not(_));
    let is_and = |e: &Expr| matches!(e, Expr::BinaryExpr(BinaryExpr { op: Operator::And, .. }));
    match op {
        Operator::And => !is_filter,
        _ => has(is_negated) || (!is_filter && has(is_and)),
    }
}

/// The expression that a predicate is all about, and of whose null it is null.
fn subject_of(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::InList(list) if !list.list.is_empty() => Some(&*list.expr),
        Expr::Not(inner) => subject_of(inner),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            matches!(**right, Expr::Literal(..)).then_some(&**left)
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) => {
            subject_of(left).filter(|subject| subject_of(right) == Some(*subject))
        }
        _ => None,
    }
}

fn null() -> Expr {
    lit(ScalarValue::Boolean(None))
}

/// A predicate of an expression that is asked only of what is no null, and null of a null.
fn of_values(subject: Expr, predicate: Expr) -> Result<Expr> {
    let predicate = predicate.transform_up(|expr| Ok(without_null(expr)))?.data;
    let of_null = subject.clone().is_null().and(null());
    Ok(subject.is_not_null().and(predicate).or(of_null))
}

/// `x IN (1, NULL)` as `x IN (1) OR NULL`.
fn without_null(expr: Expr) -> Transformed<Expr> {
    let is_null = |item: &Expr| matches!(item, Expr::Literal(value, _) if value.is_null());
    match expr {
        Expr::InList(InList { expr, list, negated: false }) if list.iter().any(is_null) => {
            let list: Vec<Expr> = list.into_iter().filter(|item| !is_null(item)).collect();
            let is_empty = list.is_empty();
            let rest = Expr::InList(InList { expr, list, negated: false });
            Transformed::yes(if is_empty { null() } else { rest.or(null()) })
        }
        other => Transformed::no(other),
    }
}

/// A chain as a tree that is hardly deep. There is at least one operand.
pub(crate) fn chained(mut operands: Vec<Expr>, op: Operator) -> Expr {
    if operands.len() < 2 {
        return operands.pop().unwrap_or_else(|| lit(op == Operator::And));
    }
    let right = operands.split_off(operands.len() / 2);
    Expr::BinaryExpr(BinaryExpr::new(Box::new(chained(operands, op)), op, Box::new(chained(right, op))))
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field, Schema};
    use datafusion::logical_expr::col;

    use super::*;

    fn schema() -> DFSchema {
        let field = |name: &str, nullable| Field::new(name, DataType::Int64, nullable);
        DFSchema::try_from(Schema::new(vec![field("x", true), field("y", true), field("k", false)])).expect("valid")
    }

    fn within(column: &str, value: i64) -> Expr {
        col(column).in_list(vec![lit(value)], false)
    }

    fn is_guarded(expr: Expr, is_filter: bool) -> bool {
        let kept = keep_nulls(expr, is_filter, &schema()).expect("valid").data;
        let again = keep_nulls(kept.clone(), is_filter, &schema()).expect("valid");
        assert!(!again.transformed, "{kept}");
        kept.exists(|inner| Ok(matches!(inner, Expr::IsNotNull(_)))).expect("nothing fails")
    }

    #[test]
    fn lists_beside_lists_are_guarded_where_null_matters() {
        let both = within("x", 1).and(within("x", 2));
        assert!(is_guarded(both.clone(), false));
        assert!(!is_guarded(both.clone(), true));
        assert!(is_guarded(!both.clone(), true), "below a NOT");
        assert!(is_guarded(both.is_null(), true), "within another expression");
        let negated = col("x").in_list(vec![lit(1_i64)], true).or(col("x").in_list(vec![lit(2_i64)], true));
        assert!(is_guarded(negated.clone(), true) && is_guarded(negated, false));
        let apart = within("x", 1).and(col("y").gt(lit(3_i64))).and(within("x", 2));
        assert!(is_guarded(apart, false), "with another between");
    }

    #[test]
    fn what_forgets_nothing_stays_as_it_is() {
        for expr in [
            within("x", 1),
            within("x", 1).or(within("x", 2)),
            col("x").eq(lit(1_i64)).or(col("x").eq(lit(2_i64))),
            within("x", 1).and(within("y", 2)),
            within("k", 1).and(within("k", 2)),
        ] {
            let kept = keep_nulls(expr.clone(), false, &schema()).expect("valid");
            assert_eq!((kept.data, kept.transformed), (expr, false));
        }
    }
}
