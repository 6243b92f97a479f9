//! A typed table as DataFusion sees it: [`MyceliumTable`].
//!
//! An index is looked into only if that is worth it: a look-up costs far more than a row of a scan. Before a scan is
//! planned, the index is asked how many rows its ranges have, up to a sixteenth of the table's entries
//! ([`most_lookups`]); a unique index with all its columns given is not asked. What it read for that is not counted.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Constraint, Constraints, Statistics, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use mycelium_encoding::Schema;
use mycelium_engine::{Index, Snapshot, Table};

use crate::failure::outward;
use crate::key_range::KeyRange;
use crate::pushdown::{Pushed, plan_filters};
use crate::read::index_rows;
use crate::scan::{MyceliumScan, ScanRequest, most_rows, statistics};
use crate::sql_type::sql_field;

/// A typed table at a snapshot.
#[derive(Debug)]
pub struct MyceliumTable {
    table: Table,
    snapshot: Snapshot,
    schema: Arc<Schema>,
    arrow: SchemaRef,
    constraints: Constraints,
    /// Those on columns that hold all rows.
    indexes: Vec<Index>,
}

impl MyceliumTable {
    /// The rows of a table that the snapshot sees.
    ///
    /// # Errors
    /// A key-value table has no columns.
    pub fn new(table: Table, snapshot: Snapshot) -> mycelium_base::Result<Self> {
        let schema = table.packed_layout()?.schema().clone();
        let fields = schema.live_columns().map(|(_, column)| sql_field(column));
        let arrow = Arc::new(arrow_schema::Schema::new(fields.collect::<Vec<_>>()));
        let key = schema.live_columns().enumerate().filter(|(_, (column, _))| schema.is_primary_key(*column));
        let key = Constraint::PrimaryKey(key.map(|(at, _)| at).collect());
        let mut indexes = table.indexes();
        indexes.retain(|index| index.is_built() && !index.on().is_empty());
        let constraints = Constraints::new_unverified(vec![key]);
        Ok(Self { table, snapshot, schema, arrow, constraints, indexes })
    }

    /// The position of each column of the Arrow schema in the table's.
    fn columns(&self) -> Vec<usize> {
        self.schema.live_columns().map(|(column, _)| column).collect()
    }

    fn plan(&self, filters: &[&Expr]) -> Pushed {
        let indexed: Vec<&[usize]> = self.indexes.iter().map(Index::on).collect();
        plan_filters(&self.schema, &indexed, filters)
    }

    /// Where the rows are: ranges of keys, or of an index.
    async fn access(&self, pushed: Pushed) -> Result<(Option<Index>, Vec<KeyRange>)> {
        let everything = || (None, vec![KeyRange::ALL]);
        match (pushed.keys, pushed.index) {
            (Some(ranges), _) => Ok((None, ranges)),
            (None, None) => Ok(everything()),
            (None, Some((at, ranges))) => {
                let Some(index) = self.indexes.get(at).cloned() else { return Ok(everything()) };
                let (is_worth, ranges) = self.is_worth(index.clone(), ranges).await?;
                Ok(if is_worth { (Some(index), ranges) } else { everything() })
            }
        }
    }

    /// Whether the ranges of the index hold few rows; gives the ranges back.
    async fn is_worth(&self, index: Index, ranges: Vec<KeyRange>) -> Result<(bool, Vec<KeyRange>)> {
        let columns = index.on().len();
        let most = most_lookups(self.table.extent(None, None).entries);
        if index.is_unique() && ranges.len() <= most && ranges.iter().all(|range| range.point(columns).is_some()) {
            return Ok((true, ranges));
        }
        let snapshot = self.snapshot.clone();
        let count = move || {
            let mut left = most;
            for range in &ranges {
                for row in index_rows(&index, range, &[], &snapshot).map_err(outward)? {
                    row.map_err(outward)?;
                    left -= 1;
                    if left == 0 {
                        return Ok((false, ranges));
                    }
                }
            }
            Ok((true, ranges))
        };
        tokio::task::spawn_blocking(count).await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?
    }
}

/// Rows from which on a scan of so many entries is preferred to looking rows up.
fn most_lookups(entries: u64) -> usize {
    const SHARE: u64 = 16;
    (entries / SHARE).clamp(64, 16_384) as usize
}

#[async_trait]
impl TableProvider for MyceliumTable {
    fn schema(&self) -> SchemaRef {
        self.arrow.clone()
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(self.plan(filters).support)
    }

    fn statistics(&self) -> Option<Statistics> {
        let extent = self.table.extent(None, None);
        let columns = self.columns();
        let estimates = self.table.distinct_estimates().ok();
        Some(statistics(&self.schema, &columns, most_rows(&extent), &extent, estimates.as_deref()))
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut pushed = self.plan(&filters.iter().collect::<Vec<_>>());
        // What was taken over as exact is tested nowhere else.
        if let Some(at) = pushed.support.iter().position(|support| *support == TableProviderFilterPushDown::Unsupported)
        {
            return internal_err!("the predicate {} was changed into one that a scan cannot decide", filters[at]);
        }
        let tests = std::mem::take(&mut pushed.tests);
        let (index, ranges) = self.access(pushed).await?;
        let columns = self.columns();
        let request = ScanRequest {
            table: self.table.clone(),
            schema: self.schema.clone(),
            snapshot: self.snapshot.clone(),
            index,
            ranges,
            projection: match projection {
                Some(projection) => projection.iter().filter_map(|&at| columns.get(at).copied()).collect(),
                None => columns,
            },
            tests,
            limit,
            partitions: state.config().target_partitions(),
        };
        Ok(Arc::new(MyceliumScan::new(request)?))
    }
}
