//! [`MyceliumScan`], the leaf of a physical plan.
//!
//! 1. A scan has ranges: of keys, or of an index. They are dealt to partitions in ascending order; one long range is
//!    cut into about equal parts where the fences of files and blocks say ([`mycelium_engine::Table::split_points`]).
//! 2. Rows of a partition come in key order, unless an index gives them. The order is declared as far as the key's
//!    columns are projected, and key columns that have one value are declared constant, so that `WHERE a = 1 ORDER BY
//!    b` sorts nothing. Where a few of the last rows are wanted, the last comes first ([`crate::last_rows`]).
//! 3. A partition is read in a thread of the runtime's for blocking work ([`crate::read`]), which hands batches over
//!    through a channel that holds two: it is at most so far ahead. When the stream is dropped, the channel is closed,
//!    and the reader stops at its next batch. A few look-ups of whole keys are done on the spot: they take less time
//!    than to wake a thread.

use std::fmt;
use std::sync::Arc;

use arrow_schema::{SchemaRef, SortOptions};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Constraint, Constraints, Statistics};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column as ColumnExpr;
use datafusion::physical_expr::{ConstExpr, EquivalenceProperties, Partitioning, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::{RecordBatchReceiverStreamBuilder, RecordBatchStreamAdapter};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{TryStreamExt, stream};
use mycelium_encoding::Schema;
use mycelium_encoding::page::ColumnTest;
use mycelium_engine::{Extent, Index, Snapshot, Table};

use crate::column_test::describe;
use crate::failure::outward;
use crate::key_range::KeyRange;
use crate::read::{ScanCounts, Work};
use crate::sql_type::sql_field;

/// Batches that a reader is ahead.
const AHEAD: usize = 2;
/// Rows up to which a limit makes one partition of a scan.
const SHORT: usize = 1024;
/// Look-ups of whole keys up to which they are one partition.
const FEW_POINTS: usize = 64;
/// Partitions of a scan at most: each has a thread for as long as it is read, and a merge by key reads all of them at
/// once.
const MOST_PARTITIONS: usize = 64;
/// Bytes of files below which a partition is not worth its thread.
const LEAST_BYTES: u64 = 1 << 20;
/// One row in so many is taken to pass tests of which nothing is known: what DataFusion takes for its filters.
const SELECTIVITY: usize = 5;
/// Ranges that a plan shows.
const SHOWN: usize = 3;

/// What a scan reads, before it is dealt to partitions.
#[derive(Debug)]
pub(crate) struct ScanRequest {
    pub(crate) table: Table,
    pub(crate) schema: Arc<Schema>,
    pub(crate) snapshot: Snapshot,
    /// Where the ranges are ranges of an index, that index.
    pub(crate) index: Option<Index>,
    /// Disjoint, ascending.
    pub(crate) ranges: Vec<KeyRange>,
    pub(crate) projection: Vec<usize>,
    /// What rows have to pass.
    pub(crate) tests: Vec<ColumnTest>,
    pub(crate) limit: Option<usize>,
    /// Partitions at most.
    pub(crate) partitions: usize,
}

/// Rows of a table at a snapshot: within key ranges, by whole keys, or through an index.
#[derive(Clone, Debug)]
pub struct MyceliumScan {
    request: Arc<ScanRequest>,
    /// Of every partition.
    ranges: Arc<Vec<Vec<KeyRange>>>,
    limit: Option<usize>,
    /// Whether the last row comes first.
    descending: bool,
    extent: Extent,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl MyceliumScan {
    pub(crate) fn new(request: ScanRequest) -> Result<Self> {
        let extent = extent_of(&request).map_err(outward)?;
        let ranges = deal(&request, &extent).map_err(outward)?;
        let fields: Result<Vec<_>, _> = request.projection.iter().map(|&at| field(&request.schema, at)).collect();
        let arrow = Arc::new(arrow_schema::Schema::new(fields?));
        let properties = properties(&request, arrow, ranges.len(), false)?;
        Ok(Self {
            limit: request.limit,
            descending: false,
            request: Arc::new(request),
            ranges: Arc::new(ranges),
            extent,
            properties,
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// The index that it looks into, by name.
    pub fn index(&self) -> Option<&str> {
        self.request.index.as_ref().map(Index::name)
    }

    /// The key ranges of every partition, or ranges of the index.
    pub fn ranges(&self) -> &[Vec<KeyRange>] {
        &self.ranges
    }

    /// Rows of a partition at most.
    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// How many whole keys it looks up, if it does nothing else.
    fn points(&self) -> Option<usize> {
        points_of(&self.request)
    }

    /// The column of the table that is projected here.
    pub(crate) fn column(&self, at: usize) -> Option<(&Schema, usize)> {
        Some((self.request.schema.as_ref(), *self.request.projection.get(at)?))
    }

    /// Whether it scans ranges of keys and gives all rows of them.
    pub(crate) fn is_of_all_rows(&self) -> bool {
        let request = &self.request;
        let is_all = request.index.is_none() && request.tests.is_empty() && self.limit.is_none();
        is_all && self.points().is_none()
    }

    /// The last of these rows, so many at most, the last one first, in one partition; `None` if the scan has no order
    /// by key, or may have to look at many rows to find one.
    pub(crate) fn last_first(&self, rows: usize) -> Result<Option<Self>> {
        if !self.is_of_all_rows() {
            return Ok(None);
        }
        Ok(Some(Self {
            limit: Some(rows),
            descending: true,
            ranges: Arc::new(vec![self.request.ranges.clone()]),
            properties: properties(&self.request, self.schema(), 1, true)?,
            metrics: ExecutionPlanMetricsSet::new(),
            ..self.clone()
        }))
    }

    /// Whether most entries are in columnar files.
    pub(crate) fn is_mostly_columnar(&self) -> bool {
        self.extent.columnar_entries * 2 >= self.extent.entries.max(1)
    }

    /// Counts what is read of a partition.
    pub(crate) fn counts(&self, partition: usize) -> ScanCounts {
        ScanCounts::new(&self.metrics, partition)
    }

    /// Writes which rows of which table it reads.
    pub(crate) fn fmt_range(&self, separator: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table={}", self.request.table.name())?;
        if self.request.ranges != [KeyRange::ALL] {
            write!(f, "{separator}key ranges={}", shown(&self.request.ranges))?;
        }
        write!(f, "{separator}partitions={}", self.ranges.len())
    }

    pub(crate) fn work(&self, partition: usize, batch_rows: usize) -> Result<Work> {
        let ranges = self.ranges.get(partition).cloned();
        let mut ranges =
            ranges.ok_or_else(|| DataFusionError::Internal(format!("there is no partition {partition}")))?;
        if self.descending {
            ranges.reverse();
        }
        Ok(Work {
            table: self.request.table.clone(),
            snapshot: self.request.snapshot.clone(),
            index: self.request.index.clone(),
            ranges,
            descending: self.descending,
            projection: self.request.projection.as_slice().into(),
            tests: self.request.tests.as_slice().into(),
            batch_rows,
            limit: self.limit,
        })
    }
}

fn field(schema: &Schema, at: usize) -> Result<arrow_schema::Field> {
    let column = schema.columns().get(at);
    let column = column.ok_or_else(|| DataFusionError::Internal(format!("there is no column {at}")))?;
    Ok(sql_field(column))
}

fn points_of(request: &ScanRequest) -> Option<usize> {
    let columns = request.schema.primary_key().len();
    let all = request.index.is_none() && request.ranges.iter().all(|range| range.point(columns).is_some());
    all.then_some(request.ranges.len())
}

/// The bytes of the first key and of the end of all ranges.
fn ends(request: &ScanRequest) -> mycelium_base::Result<(Vec<u8>, Option<Vec<u8>>)> {
    let (Some(first), Some(last)) = (request.ranges.first(), request.ranges.last()) else {
        return Ok((Vec::new(), Some(Vec::new())));
    };
    Ok((first.encode(&request.schema)?.0, last.encode(&request.schema)?.1))
}

/// What the table holds where the scan reads, or, read through an index, all that it holds.
fn extent_of(request: &ScanRequest) -> mycelium_base::Result<Extent> {
    match (&request.index, request.ranges.is_empty()) {
        (_, true) => Ok(Extent::default()),
        (Some(_), false) => Ok(request.table.extent(None, None)),
        (None, false) => {
            let (from, to) = ends(request)?;
            Ok(request.table.extent(Some(&from), to.as_deref()))
        }
    }
}

/// The ranges of every partition; at least one, though it may be empty.
fn deal(request: &ScanRequest, extent: &Extent) -> mycelium_base::Result<Vec<Vec<KeyRange>>> {
    let ranges = request.ranges.clone();
    let is_short = (request.tests.is_empty() && request.limit.is_some_and(|limit| limit <= SHORT))
        || points_of(request).is_some_and(|points| points <= FEW_POINTS)
        || request.index.is_some();
    let worth = usize::try_from(extent.bytes / LEAST_BYTES).unwrap_or(usize::MAX).max(1);
    let parts = if is_short { 1 } else { request.partitions.min(worth).min(MOST_PARTITIONS) };
    if parts <= 1 {
        return Ok(vec![ranges]);
    }
    let (from, to) = ends(request)?;
    let cuts = request.table.split_points(parts, Some(&from), to.as_deref())?;
    let mut pieces = Vec::new();
    for range in ranges {
        pieces.extend(range.split(&request.schema, &cuts)?);
    }
    let size = pieces.len().div_ceil(parts).max(1);
    Ok(pieces.chunks(size).map(<[KeyRange]>::to_vec).collect())
}

fn properties(
    request: &ScanRequest,
    arrow: SchemaRef,
    partitions: usize,
    descending: bool,
) -> Result<Arc<PlanProperties>> {
    let equivalences = equivalences(request, arrow, descending)?;
    let partitioning = Partitioning::UnknownPartitioning(partitions);
    let properties = PlanProperties::new(equivalences, partitioning, EmissionType::Incremental, Boundedness::Bounded);
    Ok(Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative)))
}

/// The order of the rows, the columns that have one value, and the primary key.
fn equivalences(request: &ScanRequest, arrow: SchemaRef, descending: bool) -> Result<EquivalenceProperties> {
    let mut properties = EquivalenceProperties::new(arrow.clone());
    let place = |column: usize| request.projection.iter().position(|&at| at == column);
    let key = request.schema.primary_key();
    if let Some(places) = key.iter().map(|&column| place(column)).collect::<Option<Vec<_>>>() {
        properties.set_constraints(Constraints::new_unverified(vec![Constraint::PrimaryKey(places)]));
    }
    if request.index.is_some() {
        return Ok(properties);
    }
    let fixed = if let [range] = &request.ranges[..] { range.fixed_columns() } else { 0 };
    // Key columns have no nulls.
    let options = SortOptions { descending, nulls_first: descending };
    let expression = |at: usize| -> Arc<dyn PhysicalExpr> { Arc::new(ColumnExpr::new(arrow.field(at).name(), at)) };
    let mut order = Vec::new();
    let mut constants = Vec::new();
    for (position, &column) in key.iter().enumerate() {
        match (place(column), position < fixed) {
            (Some(at), true) => constants.push(ConstExpr::from(expression(at))),
            (Some(at), false) => order.push(PhysicalSortExpr::new(expression(at), options)),
            (None, true) => {}
            (None, false) => break,
        }
    }
    properties.add_ordering(order);
    properties.add_constants(constants)?;
    Ok(properties)
}

/// The first ranges, and how many more there are.
fn shown(ranges: &[KeyRange]) -> String {
    let first: Vec<String> = ranges.iter().take(SHOWN).map(ToString::to_string).collect();
    match ranges.len().saturating_sub(SHOWN) {
        0 => first.join(" "),
        more => format!("{} and {more} more", first.join(" ")),
    }
}

impl DisplayAs for MyceliumScan {
    fn fmt_as(&self, style: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (request, tree) = (&self.request, matches!(style, DisplayFormatType::TreeRender));
        let (separator, start) = if tree { ("\n", "") } else { (", ", "MyceliumScan: ") };
        let columns: Vec<&str> =
            request.projection.iter().map(|&at| request.schema.columns()[at].name.as_str()).collect();
        write!(f, "{start}table={}{separator}columns=[{}]", request.table.name(), columns.join(", "))?;
        let ranges = shown(&request.ranges);
        match (&request.index, self.points()) {
            (Some(index), _) => write!(f, "{separator}index {}={ranges}", index.name())?,
            (None, Some(0)) => write!(f, "{separator}nothing can match")?,
            (None, Some(points)) => write!(f, "{separator}{points} look-ups={ranges}")?,
            (None, None) if request.ranges == [KeyRange::ALL] => {}
            (None, None) => write!(f, "{separator}key ranges={ranges}")?,
        }
        if !request.tests.is_empty() {
            let tests: Vec<String> = request.tests.iter().map(|test| describe(&request.schema, test)).collect();
            write!(f, "{separator}filter={}", tests.join(" AND "))?;
        }
        if self.descending {
            write!(f, "{separator}order=descending")?;
        }
        if let Some(limit) = self.limit {
            write!(f, "{separator}limit={limit}")?;
        }
        write!(f, "{separator}partitions={}", self.ranges.len())
    }
}

impl ExecutionPlan for MyceliumScan {
    fn name(&self) -> &str {
        "MyceliumScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let work = self.work(partition, context.session_config().batch_size())?;
        let counts = self.counts(partition);
        if work.is_brief() {
            let batches = stream::once(async move {
                let mut batches = Vec::new();
                work.run(&counts, &mut |batch| {
                    batches.extend(batch.map(Ok));
                    true
                })
                .map_err(outward)?;
                Ok::<_, DataFusionError>(stream::iter(batches))
            });
            return Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches.try_flatten())));
        }
        let mut receiver = RecordBatchReceiverStreamBuilder::new(self.schema(), AHEAD);
        let sender = receiver.tx();
        receiver.spawn_blocking(move || {
            let mut send = |batch| match batch {
                Some(batch) => sender.blocking_send(Ok(batch)).is_ok(),
                None => !sender.is_closed(),
            };
            work.run(&counts, &mut send).map_err(outward)
        });
        Ok(receiver.build())
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let share = if args.partition().is_some() { self.ranges.len().max(1) } else { 1 };
        let rows = most_rows(&self.extent).min(self.points().unwrap_or(usize::MAX)).div_ceil(share);
        let rows = if self.request.tests.is_empty() { rows } else { rows.div_ceil(SELECTIVITY) };
        let rows = rows.min(self.limit.unwrap_or(usize::MAX));
        let request = &self.request;
        // Of a few rows nothing is worth to be asked for.
        let estimates = if rows > SHORT { request.table.distinct_estimates().ok() } else { None };
        Ok(Arc::new(statistics(&request.schema, &request.projection, rows, &self.extent, estimates.as_deref())))
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(Self { limit, metrics: ExecutionPlanMetricsSet::new(), ..self.clone() }))
    }
}

/// The rows of an extent, as an estimate, and one at least. It is what the table holds now: at an older snapshot of a
/// database that follows another process there may be rows where it has no entries.
pub(crate) fn most_rows(extent: &Extent) -> usize {
    usize::try_from(extent.entries).unwrap_or(usize::MAX).max(1)
}

/// What is known of so many rows of an extent, with about how many values each column of the table has. Entries count
/// superseded versions and deletes, so that they are an estimate; that no rows are asked for is exact.
pub(crate) fn statistics(
    schema: &Schema,
    projection: &[usize],
    rows: usize,
    extent: &Extent,
    distinct: Option<&[Option<u64>]>,
) -> Statistics {
    let columns = projection.iter().filter_map(|&at| schema.columns().get(at));
    let arrow: Vec<_> = columns.clone().map(sql_field).collect();
    let mut known = Statistics::new_unknown(&arrow_schema::Schema::new(arrow));
    if rows == 0 {
        known.num_rows = Precision::Exact(0);
        known.total_byte_size = Precision::Exact(0);
        return known;
    }
    known.num_rows = Precision::Inexact(rows);
    if extent.bytes > 0 && extent.entries > 0 {
        let share = projection.len() as f64 / schema.columns().len() as f64;
        let per_row = extent.bytes as f64 / extent.entries as f64 * share;
        known.total_byte_size = Precision::Inexact((per_row * rows as f64) as usize);
    }
    let is_whole_key = |at: usize| schema.primary_key() == [at];
    for ((&at, column), statistics) in projection.iter().zip(columns).zip(&mut known.column_statistics) {
        if !column.nullable {
            statistics.null_count = Precision::Exact(0);
        }
        let estimate = distinct.and_then(|distinct| distinct.get(at).copied().flatten());
        if is_whole_key(at) {
            statistics.distinct_count = Precision::Inexact(rows);
        } else if let Some(estimate) = estimate {
            statistics.distinct_count = Precision::Inexact(usize::try_from(estimate).unwrap_or(rows).min(rows));
        }
    }
    known
}
