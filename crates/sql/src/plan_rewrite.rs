//! Expressions of a plan, rewritten one by one: what the analyzer rules of this crate have in common.

use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// The columns that expressions of a plan may name.
pub(crate) fn columns_of(plan: &LogicalPlan) -> Result<DFSchema> {
    let mut columns = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = plan {
        columns.merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?);
    }
    Ok(columns)
}

/// Rewrites every expression of a plan. Columns of its rows keep their names; their types may change.
pub(crate) fn rewrite_expressions(
    plan: LogicalPlan,
    mut rewrite: impl FnMut(Expr, &DFSchema) -> Result<Expr>,
) -> Result<Transformed<LogicalPlan>> {
    let columns = columns_of(&plan)?;
    let names = NamePreserver::new(&plan);
    let mut rewrite_named = |expr: Expr| -> Result<Transformed<Expr>> {
        let name = names.save(&expr);
        Ok(Transformed::yes(name.restore(rewrite(expr, &columns)?)))
    };
    plan.map_expressions(|expr| match expr {
        // No column itself: those that it is made of are.
        Expr::GroupingSet(_) => expr.map_children(&mut rewrite_named),
        expr => rewrite_named(expr),
    })?
    .map_data(LogicalPlan::recompute_schema)
}
