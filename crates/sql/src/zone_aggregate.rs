//! Counts, minima and maxima that need no scan of all rows: `SELECT count(*), min(at), max(at) FROM events`.
//!
//! 1. [`ZoneAggregates`], a rule over physical plans, looks for an aggregate without groups right over a
//!    [`MyceliumScan`] that tests nothing and has no limit, with nothing but `count(*)`, `count(column)`, `min(column)`
//!    and `max(column)`. The first column of the primary key has its extremes in the first and in the last row of a
//!    range, of whatever table. For all else most entries must be in columnar files, whose zones know nothing of other
//!    columns of the key, and cut texts: minima and maxima of those are left to DataFusion.
//! 2. [`MyceliumAggregate`] takes the place of the scan and of the partial aggregate over it. Each partition scans its
//!    ranges once for every column that is asked for, so that column groups need not have blocks of the same keys, and
//!    lets the engine tell blocks by their zones ([`mycelium_engine::ScanOptions::tell_zones`]): those that no younger
//!    entry touches, and that the snapshot sees whole. Of all others it gets rows.
//! 3. Both go to DataFusion's own accumulators, what was told as the state of another one, so that their order of
//!    values is the one that counts. The states are the partition's row.

use std::fmt;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Accumulator;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use mycelium_encoding::ColumnType;

use crate::failure::outward;
use crate::read::{ScanCounts, ToldScan, Work};
use crate::scan::MyceliumScan;

/// What an aggregate asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Question {
    /// How many rows there are.
    Rows,
    /// How many values the column has.
    Values(usize),
    /// The smallest or the largest value of the column.
    Extreme(usize),
    /// The same of the first column of the primary key.
    KeyExtreme,
}

impl Question {
    /// What this aggregate asks a scan for; `None` if zones do not know it.
    fn of(aggregate: &AggregateFunctionExpr, scan: &MyceliumScan) -> Option<Self> {
        let arguments = aggregate.expressions();
        let [argument] = &arguments[..] else { return None };
        if aggregate.is_distinct() || !aggregate.order_bys().is_empty() {
            return None;
        }
        let is_count = aggregate.fun().name() == "count";
        if argument.downcast_ref::<Literal>().is_some_and(|literal| is_count && !literal.value().is_null()) {
            return Some(Self::Rows);
        }
        let (schema, column) = scan.column(argument.downcast_ref::<Column>()?.index())?;
        let is_key = schema.is_primary_key(column);
        let definition = schema.columns().get(column)?;
        let is_text = matches!(definition.ty, ColumnType::Utf8 | ColumnType::Binary);
        let is_first = schema.primary_key().first() == Some(&column);
        match aggregate.fun().name() {
            "count" if is_key || !definition.nullable => Some(Self::Rows),
            "count" if !is_text => Some(Self::Values(column)),
            "min" | "max" if is_first => Some(Self::KeyExtreme),
            "min" | "max" if !is_key && !is_text => Some(Self::Extreme(column)),
            _ => None,
        }
    }

    /// The column that is to be scanned for it, if any; nothing if none is.
    fn column(self) -> Option<Option<usize>> {
        match self {
            Self::Rows => Some(None),
            Self::Values(column) | Self::Extreme(column) => Some(Some(column)),
            Self::KeyExtreme => None,
        }
    }
}

/// The rule: see the module.
#[derive(Debug)]
pub(crate) struct ZoneAggregates;

impl PhysicalOptimizerRule for ZoneAggregates {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_down(|plan| {
            let told = plan.downcast_ref::<AggregateExec>().map(told_by_zones).transpose()?.flatten();
            Ok(told.map_or_else(|| Transformed::no(plan), Transformed::yes))
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        "zone_aggregates"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What takes the place of an aggregate, if zones know its answer.
fn told_by_zones(aggregate: &AggregateExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let is_plain = aggregate.group_expr().is_true_no_grouping()
        && aggregate.filter_expr().iter().all(Option::is_none)
        && !aggregate.aggr_expr().is_empty();
    let scan = aggregate.input().downcast_ref::<MyceliumScan>().filter(|scan| is_plain && scan.is_of_all_rows());
    let Some(scan) = scan else { return Ok(None) };
    let questions = aggregate.aggr_expr().iter().map(|asked| Question::of(asked, scan));
    let Some(questions) = questions.collect::<Option<Vec<_>>>() else { return Ok(None) };
    if questions.iter().any(|question| question.column().is_some()) && !scan.is_mostly_columnar() {
        return Ok(None);
    }
    let leaf = |schema| Arc::new(MyceliumAggregate::new(scan, aggregate.aggr_expr(), questions, schema));
    match aggregate.mode() {
        AggregateMode::Partial => Ok(Some(leaf(aggregate.schema()))),
        AggregateMode::Single | AggregateMode::SinglePartitioned => {
            let made_anew = |mode: AggregateMode, input: Arc<dyn ExecutionPlan>| {
                AggregateExec::try_new(
                    mode,
                    aggregate.group_expr().clone(),
                    aggregate.aggr_expr().to_vec(),
                    aggregate.filter_expr().to_vec(),
                    input,
                    aggregate.input_schema(),
                )
            };
            let partial = made_anew(AggregateMode::Partial, aggregate.input().clone())?;
            Ok(Some(Arc::new(made_anew(AggregateMode::Final, leaf(partial.schema()))?)))
        }
        _ => Ok(None),
    }
}

/// The states of counts, minima and maxima of a scan: a row for each partition.
#[derive(Clone, Debug)]
pub struct MyceliumAggregate {
    scan: MyceliumScan,
    aggregates: Vec<Arc<AggregateFunctionExpr>>,
    questions: Vec<Question>,
    properties: Arc<PlanProperties>,
}

impl MyceliumAggregate {
    fn new(
        scan: &MyceliumScan,
        aggregates: &[Arc<AggregateFunctionExpr>],
        questions: Vec<Question>,
        schema: SchemaRef,
    ) -> Self {
        let partitioning = Partitioning::UnknownPartitioning(scan.ranges().len());
        let equivalences = EquivalenceProperties::new(schema);
        let properties = PlanProperties::new(equivalences, partitioning, EmissionType::Final, Boundedness::Bounded)
            .with_scheduling_type(SchedulingType::Cooperative);
        let aggregates = aggregates.to_vec();
        Self { scan: scan.clone(), aggregates, questions, properties: Arc::new(properties) }
    }
}

impl DisplayAs for MyceliumAggregate {
    fn fmt_as(&self, style: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (separator, start) = match style {
            DisplayFormatType::TreeRender => ("\n", ""),
            _ => (", ", "MyceliumAggregate: "),
        };
        let names: Vec<&str> = self.aggregates.iter().map(|aggregate| aggregate.name()).collect();
        write!(f, "{start}by zones=[{}]{separator}", names.join(", "))?;
        self.scan.fmt_range(separator, f)
    }
}

impl ExecutionPlan for MyceliumAggregate {
    fn name(&self) -> &str {
        "MyceliumAggregate"
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
        let work = self.scan.work(partition, context.session_config().batch_size())?;
        let counts = self.scan.counts(partition);
        let states = States::new(&self.aggregates, &self.questions)?;
        let schema = self.schema();
        let mut receiver = RecordBatchReceiverStreamBuilder::new(schema.clone(), 1);
        let sender = receiver.tx();
        receiver.spawn_blocking(move || {
            if let Some(row) = states.read(&work, &counts, &schema, || sender.is_closed())? {
                counts.baseline.record_output(row.num_rows());
                // Nobody may want it any more.
                drop(sender.blocking_send(Ok(row)));
            }
            Ok(())
        });
        Ok(receiver.build())
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.scan.metrics()
    }
}

/// What a partition has found so far.
struct States {
    questions: Vec<Question>,
    accumulators: Vec<Box<dyn Accumulator>>,
}

impl States {
    fn new(aggregates: &[Arc<AggregateFunctionExpr>], questions: &[Question]) -> Result<Self> {
        let accumulators = aggregates.iter().map(|aggregate| aggregate.create_accumulator()).collect::<Result<_>>()?;
        Ok(Self { questions: questions.to_vec(), accumulators })
    }

    /// The columns that are to be scanned, each once; the first scan counts the rows, whether it has a column or not.
    fn scans(&self) -> Vec<Option<usize>> {
        let mut columns: Vec<Option<usize>> = self.questions.iter().filter_map(|question| question.column()).collect();
        columns.sort_unstable();
        columns.dedup();
        if columns.len() > 1 {
            columns.retain(Option::is_some);
        }
        columns
    }

    /// The row of the partition; `None` if nobody wants it any more.
    fn read(
        mut self,
        work: &Work,
        counts: &ScanCounts,
        schema: &SchemaRef,
        is_over: impl Fn() -> bool,
    ) -> Result<Option<RecordBatch>> {
        for (number, column) in self.scans().into_iter().enumerate() {
            let of_column = |question: &Question| match question {
                Question::Rows => number == 0,
                Question::Values(of) | Question::Extreme(of) => Some(*of) == column,
                Question::KeyExtreme => false,
            };
            let asked: Vec<usize> = (0..self.questions.len()).filter(|&at| of_column(&self.questions[at])).collect();
            let note = |part: ToldScan| self.note(&asked, &part);
            if !work.scan_told(column, counts, note, &is_over)? {
                return Ok(None);
            }
        }
        if self.questions.contains(&Question::KeyExtreme)
            && let Some(ends) = work.first_keys_at_ends(counts).map_err(outward)?
        {
            let of_key = (0..self.questions.len()).filter(|&at| self.questions[at] == Question::KeyExtreme);
            self.note(&of_key.collect::<Vec<_>>(), &ends)?;
        }
        let states = self.accumulators.iter_mut().map(|accumulator| accumulator.state());
        let states = states.collect::<Result<Vec<_>>>()?.into_iter().flatten();
        let columns = states.map(|state| state.to_array()).collect::<Result<Vec<_>>>()?;
        RecordBatch::try_new(schema.clone(), columns).map(Some).map_err(DataFusionError::from)
    }

    /// Adds some rows of a column, or of none, to these aggregates.
    fn note(&mut self, asked: &[usize], part: &ToldScan) -> Result<()> {
        for &at in asked {
            let accumulator = &mut self.accumulators[at];
            match self.questions[at] {
                Question::Rows => accumulator.merge_batch(&[count(part.rows)])?,
                Question::Values(_) => accumulator.merge_batch(&[count(part.rows - part.nulls)])?,
                Question::Extreme(_) | Question::KeyExtreme => {
                    if let Some(values) = &part.values {
                        accumulator.merge_batch(std::slice::from_ref(values))?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// A count as the state of another accumulator.
fn count(rows: u64) -> ArrayRef {
    Arc::new(Int64Array::from(vec![i64::try_from(rows).unwrap_or(i64::MAX)]))
}
