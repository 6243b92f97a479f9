//! The last rows by their keys: `SELECT * FROM events ORDER BY at DESC LIMIT 10`.
//!
//! [`LastRows`], a rule over physical plans, looks for a sort that keeps a few rows ([`MOST_ROWS`]) right over a
//! [`MyceliumScan`] that tests nothing and has no limit of its own, or over a projection of one. Where the rows would
//! be in order if the last came first, the scan reads them so, one by one from the end, in place of all rows, and
//! nothing is sorted.
//!
//! A scan with tests is left to the sort: who looks for a few rows among many finds them sooner block by block and in
//! several threads.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::scan::MyceliumScan;

/// Rows that are worth to be read one by one.
const MOST_ROWS: usize = 1024;

/// The rule: see the module.
#[derive(Debug)]
pub(crate) struct LastRows;

impl PhysicalOptimizerRule for LastRows {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_down(|plan| {
            let read_so = plan.downcast_ref::<SortExec>().map(read_from_the_end).transpose()?.flatten();
            Ok(read_so.map_or_else(|| Transformed::no(plan), Transformed::yes))
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        "last_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What gives the same rows in the same order, read from the end; `None` if that does not.
fn read_from_the_end(sort: &SortExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(rows) = sort.fetch().filter(|&rows| rows <= MOST_ROWS) else { return Ok(None) };
    let Some(plan) = last_first(sort.input(), rows)? else { return Ok(None) };
    let is_in_order = plan.equivalence_properties().ordering_satisfy(sort.expr().iter().cloned())?;
    Ok(is_in_order.then_some(plan))
}

/// The scan below, whose last row comes first, with what is projected of it.
fn last_first(plan: &Arc<dyn ExecutionPlan>, rows: usize) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = plan.downcast_ref::<MyceliumScan>() {
        let read_so = scan.last_first(rows)?;
        return Ok(read_so.map(|scan| Arc::new(scan) as Arc<dyn ExecutionPlan>));
    }
    let Some(projection) = plan.downcast_ref::<ProjectionExec>() else { return Ok(None) };
    let input = last_first(projection.input(), rows)?;
    input.map(|input| replace_children_if_necessary(plan.clone(), vec![input])).transpose()
}
