//! [`Session`]: statements in, record batches out.
//!
//! For every statement:
//!
//! 1. It is parsed, and refused unless it reads ([`crate::statement`]).
//! 2. A snapshot is taken, or the one in use is. Every table of the statement is read at it.
//! 3. DataFusion plans it against a [`Catalog`] at that snapshot, and runs it. Columns to which it gives one name get
//!    others ([`crate::column_names`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch, StringArray, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{CatalogProviderList, EmptyCatalogProviderList, MemoryCatalogProviderList};
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SendableRecordBatchStream, SessionState, SessionStateBuilder};
use datafusion::logical_expr::{AggregateUDF, LogicalPlan};
use datafusion::optimizer::{Analyzer, Optimizer, OptimizerRule};
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{EmptyRecordBatchStream, ExecutionPlan, execute_stream};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::Statement as Parsed;
use futures::StreamExt;
use mycelium_base::{Error, ErrorKind, Result};
use mycelium_engine::{Database, Snapshot};
use parking_lot::Mutex;

use crate::catalog::{CATALOG, Catalog, SCHEMA};
use crate::checked_arithmetic::CheckedArithmetic;
use crate::checked_sum::CheckedSum;
use crate::column_names;
use crate::correlated::CorrelatedSubqueries;
use crate::date_hours::DatesWithHours;
use crate::decimal_arithmetic::{DecimalArithmetic, check_digits};
use crate::deep_stack::OnDeepStack;
use crate::exact::ExactComparisons;
use crate::failure::inward;
use crate::kept_cast::KeptCasts;
use crate::last_rows::LastRows;
use crate::moving_frame::moving_aggregates;
use crate::null_lists::NullsOfLists;
use crate::one_zero::OneZero;
use crate::scan::MyceliumScan;
use crate::statement::Statement;
use crate::zone_aggregate::{MyceliumAggregate, ZoneAggregates};

/// A session over a database: settings, snapshots under names, and statements one after the other or at the same time.
///
/// Sorts, groups and joins that together would take more than half of the machine's memory go to temporary files, or
/// fail where they cannot; `SET datafusion.runtime.memory_limit = '4G'` says otherwise.
///
/// It runs within a Tokio runtime, and reads in that runtime's threads for blocking work. Names that are not quoted are
/// folded to lower case, as in PostgreSQL; a column `"Id"` needs its quotes.
///
/// ```
/// use std::sync::Arc;
/// use mycelium_encoding::{DatumRef, Schema};
/// use mycelium_engine::{Database, Durability, Options, TableOptions};
/// use mycelium_sql::Session;
///
/// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
/// # let database = Database::open("example", options)?;
/// let schema = Schema::parse("id int64 not null, city utf8, primary key (id)")?;
/// let people = database.create_typed_table("people", schema, TableOptions::default())?;
/// for (id, city) in [(1, "Graz"), (2, "Linz"), (3, "Graz")] {
///     people.insert_row(&[DatumRef::Int64(id), DatumRef::Utf8(city)], Durability::Os)?;
/// }
///
/// let session = Session::open(&database);
/// # let runtime = tokio::runtime::Runtime::new().unwrap();
/// # runtime.block_on(async {
/// let answer = session.query("SELECT city, count(*) AS people FROM people GROUP BY city ORDER BY city").await?;
/// let batches = answer.collect().await?;
/// assert_eq!(batches[0].num_rows(), 2);
/// # Ok::<(), mycelium_engine::Error>(())
/// # })?;
/// # Ok::<(), mycelium_engine::Error>(())
/// ```
pub struct Session {
    database: Database,
    /// Settings and functions; it has no tables.
    state: Mutex<SessionState>,
    snapshots: Mutex<Snapshots>,
}

#[derive(Default)]
struct Snapshots {
    named: BTreeMap<String, Snapshot>,
    in_use: Option<String>,
}

impl Session {
    /// A session over a database, which may be open to be written to or only to be read.
    pub fn open(database: &Database) -> Self {
        let config = SessionConfig::new()
            .with_information_schema(true)
            // Instants that are written with a zone have one.
            .set_str("datafusion.execution.time_zone", "+00:00")
            .with_create_default_catalog_and_schema(false)
            .with_default_catalog_and_schema(CATALOG, SCHEMA);
        // Without a directory for temporary files nothing spills, and there is no limit.
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(memory_limit(), 1.0).build_arc().unwrap_or_default();
        let mut rules = Analyzer::new().rules;
        rules.insert(0, Arc::new(ExactComparisons));
        rules.insert(0, Arc::new(CorrelatedSubqueries));
        // Which operands are integers, and what is cast, is known once types are coerced.
        rules.push(Arc::new(CheckedArithmetic));
        rules.push(Arc::new(KeptCasts));
        rules.push(Arc::new(OneZero));
        let builder = SessionStateBuilder::new().with_config(config).with_runtime_env(runtime);
        let builder = builder.with_analyzer_rules(rules).with_optimizer_rules(optimizer_rules());
        let builder = builder.with_expr_planners(vec![Arc::new(DatesWithHours), Arc::new(DecimalArithmetic)]);
        let mut plans = PhysicalOptimizer::new().rules;
        // Before anything is put between an aggregate or a sort and its scan.
        plans.insert(0, Arc::new(ZoneAggregates));
        plans.insert(0, Arc::new(LastRows));
        let mut builder = builder.with_physical_optimizer_rules(plans).with_default_features();
        // The last of a name is the one that is found.
        let sum: AggregateUDF = CheckedSum::default().into();
        let functions = moving_aggregates().chain([sum]).map(Arc::new);
        builder.aggregate_functions().get_or_insert_default().extend(functions);
        let state = builder.build();
        Self { database: database.clone(), state: Mutex::new(state), snapshots: Mutex::default() }
    }

    /// Begins a statement: a query, `EXPLAIN`, `SHOW`, `DESCRIBE`, `SET` and `RESET` of DataFusion's settings, or of
    /// snapshots `TAKE SNAPSHOT name`, `USE SNAPSHOT name`, `USE LATEST`, `DROP SNAPSHOT name`, `SHOW SNAPSHOTS`.
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnly`] for a statement that would write; [`ErrorKind::InvalidArgument`] for one that is wrong;
    /// [`ErrorKind::Unsupported`] for what there is not; [`ErrorKind::NotFound`] for a snapshot that there is not.
    /// Errors of reading come with the rows.
    pub async fn query(&self, text: &str) -> Result<Answer> {
        self.query_at(text, &self.snapshot()).await
    }

    /// Begins a statement that reads at this snapshot, whichever is in use. Otherwise as [`Session::query`].
    ///
    /// # Errors
    /// As [`Session::query`].
    pub async fn query_at(&self, text: &str, snapshot: &Snapshot) -> Result<Answer> {
        match Statement::parse(text)? {
            Statement::Sql(parsed) => OnDeepStack::new(self.run(*parsed, snapshot)).await.map_err(inward),
            Statement::TakeSnapshot(name) => self.take_snapshot(&name).map(|()| Answer::nothing()),
            Statement::DropSnapshot(name) => self.drop_snapshot(&name).map(|()| Answer::nothing()),
            Statement::Use(name) => self.use_snapshot(name.as_deref()).map(|()| Answer::nothing()),
            Statement::ShowSnapshots => self.show_snapshots(),
        }
    }

    /// Takes a snapshot under a name, for as long as the session lives or until it is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Duplicate`] if there is one with this name.
    pub fn take_snapshot(&self, name: &str) -> Result<()> {
        let mut snapshots = self.snapshots.lock();
        if snapshots.named.contains_key(name) {
            return Err(Error::new(ErrorKind::Duplicate, format!("there is a snapshot {name} already")));
        }
        snapshots.named.insert(name.to_owned(), self.database.snapshot());
        Ok(())
    }

    /// Lets go of a snapshot. Statements that read at it go on; if it is in use, later ones read the newest state.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none with this name.
    pub fn drop_snapshot(&self, name: &str) -> Result<()> {
        let mut snapshots = self.snapshots.lock();
        snapshots.named.remove(name).ok_or_else(|| no_snapshot(name))?;
        snapshots.in_use.take_if(|in_use| in_use == name);
        Ok(())
    }

    /// Statements that begin later read at this snapshot; `None`: at the newest state when they begin.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none with this name.
    pub fn use_snapshot(&self, name: Option<&str>) -> Result<()> {
        let mut snapshots = self.snapshots.lock();
        if let Some(missing) = name.filter(|name| !snapshots.named.contains_key(*name)) {
            return Err(no_snapshot(missing));
        }
        snapshots.in_use = name.map(str::to_owned);
        Ok(())
    }

    fn show_snapshots(&self) -> Result<Answer> {
        let snapshots = self.snapshots.lock();
        let fields = [("name", DataType::Utf8), ("sequence", DataType::UInt64), ("in_use", DataType::Boolean)];
        let fields = fields.map(|(name, ty)| Field::new(name, ty, false));
        let names = StringArray::from_iter_values(snapshots.named.keys());
        let sequences = UInt64Array::from_iter_values(snapshots.named.values().map(Snapshot::sequence));
        let in_use = snapshots.named.keys().map(|name| Some(name) == snapshots.in_use.as_ref());
        let in_use = BooleanArray::from(in_use.collect::<Vec<_>>());
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let batch = RecordBatch::try_new(schema, vec![Arc::new(names), Arc::new(sequences), Arc::new(in_use)]);
        batch.map(Answer::of).map_err(|error| inward(error.into()))
    }

    /// The snapshot that a statement reads.
    fn snapshot(&self) -> Snapshot {
        let snapshots = self.snapshots.lock();
        let in_use = snapshots.in_use.as_ref().and_then(|name| snapshots.named.get(name));
        in_use.cloned().unwrap_or_else(|| self.database.snapshot())
    }

    async fn run(&self, parsed: Parsed, snapshot: &Snapshot) -> Result<Answer, DataFusionError> {
        let catalogs = MemoryCatalogProviderList::new();
        catalogs.register_catalog(CATALOG.to_owned(), Arc::new(Catalog::new(&self.database, snapshot.clone())));
        let mut state = self.state.lock().clone();
        state.register_catalog_list(Arc::new(catalogs));
        let context = SessionContext::new_with_state(state);
        let plan = planned(&context.state(), parsed).await?;
        SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).verify_plan(&plan)?;
        let is_setting = matches!(plan, LogicalPlan::Statement(_));
        let frame = context.execute_logical_plan(plan).await?;
        if is_setting {
            let mut state = context.state();
            state.register_catalog_list(Arc::new(EmptyCatalogProviderList));
            *self.state.lock() = state;
        }
        let plan = frame.create_physical_plan().await?;
        let rows = execute_stream(plan.clone(), context.task_ctx())?;
        Ok(Answer { plan: Some(plan), rows })
    }
}

/// The plan of a statement; where it is none since columns share a name, with names of their own.
async fn planned(state: &SessionState, parsed: Parsed) -> Result<LogicalPlan, DataFusionError> {
    let mut named = parsed.clone();
    match state.statement_to_plan(parsed).await {
        Err(error) if column_names::is_shared(&error) => {
            column_names::distinguish(&mut named);
            state.statement_to_plan(named).await
        }
        planned => planned,
    }
}

/// DataFusion's, with one before each that unites lists.
fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = Vec::new();
    for rule in Optimizer::new().rules {
        if rule.name() == "simplify_expressions" {
            rules.push(Arc::new(NullsOfLists));
        }
        rules.push(rule);
    }
    rules
}

/// Refuses decimals with more digits than their type: DataFusion's products do not look, and a text of them would lack
/// digits.
fn check_decimals(batch: &RecordBatch) -> Result<()> {
    for (column, field) in batch.columns().iter().zip(batch.schema_ref().fields()) {
        check_digits(column).map_err(|error| {
            Error::invalid(format!("column {} has a value with too many digits", field.name())).caused_by(error)
        })?;
    }
    Ok(())
}

/// Half of the machine's memory, where Linux tells it.
fn memory_limit() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kilobytes.map_or(usize::MAX, |kilobytes| kilobytes.saturating_mul(1024) / 2)
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({:?})", self.database)
    }
}

fn no_snapshot(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no snapshot {name}; `TAKE SNAPSHOT {name}` takes one"))
}

/// The rows of a statement, which come as they are asked for. Dropping it ends the statement.
pub struct Answer {
    plan: Option<Arc<dyn ExecutionPlan>>,
    rows: SendableRecordBatchStream,
}

/// What the scans of a statement read and skipped so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReadSummary {
    /// Rows that scans gave.
    pub rows: u64,
    /// Blocks read from disk.
    pub blocks_read: u64,
    /// Blocks found in the block cache.
    pub blocks_cached: u64,
    /// Blocks passed over unread.
    pub blocks_skipped: u64,
    /// Rows taken from columnar blocks many at a time.
    pub rows_passed_through: u64,
    /// Rows of such scans that were merged with others by their keys alone, many at a time.
    pub rows_interleaved: u64,
    /// Rows of such scans that were put together from their entries.
    pub rows_merged: u64,
    /// Bytes of the blocks read from disk.
    pub bytes_read: u64,
    /// Files looked into.
    pub files_searched: u64,
    /// Files passed over: by their fences, the snapshot, or their Bloom filter.
    pub files_skipped: u64,
}

impl Answer {
    fn nothing() -> Self {
        Self { plan: None, rows: Box::pin(EmptyRecordBatchStream::new(Arc::new(Schema::empty()))) }
    }

    fn of(batch: RecordBatch) -> Self {
        let schema = batch.schema();
        let rows = futures::stream::iter([Ok(batch)]);
        let rows = datafusion::physical_plan::stream::RecordBatchStreamAdapter::new(schema, rows);
        Self { plan: None, rows: Box::pin(rows) }
    }

    /// The columns of the rows; none for a statement that answers nothing.
    pub fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }

    /// The next rows; `None` after the last.
    ///
    /// # Errors
    /// Those of reading, as [`mycelium_engine::Table::scan_batches`] has them; [`ErrorKind::InvalidArgument`] for a
    /// value that an expression cannot take, as in a division by zero.
    pub async fn next(&mut self) -> Option<Result<RecordBatch>> {
        let batch = self.rows.next().await?.map_err(inward);
        Some(batch.and_then(|batch| check_decimals(&batch).map(|()| batch)))
    }

    /// All rows that are left. Memory: all of them.
    ///
    /// # Errors
    /// As [`Answer::next`].
    pub async fn collect(mut self) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next().await {
            batches.push(batch?);
        }
        Ok(batches)
    }

    /// What was read and skipped so far.
    pub fn read_summary(&self) -> ReadSummary {
        let mut summary = ReadSummary::default();
        if let Some(plan) = &self.plan {
            summary.add_plan(plan);
        }
        summary
    }
}

impl ReadSummary {
    fn add_plan(&mut self, plan: &Arc<dyn ExecutionPlan>) {
        if (plan.is::<MyceliumScan>() || plan.is::<MyceliumAggregate>())
            && let Some(metrics) = plan.metrics()
        {
            self.add(&metrics);
        }
        for child in plan.children() {
            self.add_plan(child);
        }
    }

    fn add(&mut self, metrics: &MetricsSet) {
        let sum = |name| metrics.sum_by_name(name).map_or(0, |value| value.as_usize() as u64);
        self.rows += metrics.output_rows().unwrap_or(0) as u64;
        self.blocks_read += sum("blocks_read");
        self.blocks_cached += sum("blocks_cached");
        self.blocks_skipped += sum("blocks_skipped");
        self.rows_passed_through += sum("rows_passed_through");
        self.rows_interleaved += sum("rows_interleaved");
        self.rows_merged += sum("rows_merged");
        self.bytes_read += sum("bytes_read");
        self.files_searched += sum("files_searched");
        self.files_skipped += sum("files_skipped");
    }
}
