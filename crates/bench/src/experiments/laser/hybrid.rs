//! Figure 8 of the paper: workload HW under rows, columns, groups of three fixed widths, and the advisor's designs.
//!
//! 1. A table of rows is loaded and given the workload; the engine traces what each level serves (`representative
//!    trace`). Of the trace the inserts of the load are taken out. [`advise`] makes a design of it, the paper's: D-opt.
//!    [`advise_formats`] makes another, which also says what is columnar: what `mycelium advise` prints and
//!    `layout_auto` sets.
//! 2. Seven tables, one for each design, are loaded and opened again, so that their caches are empty.
//! 3. They get the workload in turns, slice by slice, each time another of them first, so that a slow second of the
//!    machine hits all. All must give the same answers.
//! 4. What counts is the time of the reads, Q2a to Q4, as in the paper's figure 8a: inserts and updates are paced
//!    there, and here the compactions that they make due are done in the writer's time.
//!
//! A table's block cache has room for filters, indexes and a quarter of the data: the paper's machine had 16 GB for 51
//! to 86 GB. What it does not hold comes from the page cache, or with [`LaserSettings::direct_io`] from the disk.
//!
//! Other databases ([`HybridRival`]) take their turns with these tables. One that fails, or answers differently, has no
//! further turns and no figures; the report says why. Of PostgreSQL and a column store the paper's ideal pair is made
//! up, HTAP-X (§7.2): the row store serves Q1, Q2 and Q5, the column store Q3 and Q4, and nothing is paid for moving
//! rows from one to the other.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use mycelium_base::ColumnSet;
use mycelium_engine::ReadCounters;
use mycelium_engine::advisor::{Advice, Design, Trace, Tree, advise, advise_formats};
use serde::{Deserialize, Serialize};

use super::LaserSettings;
use super::rival::{HybridRival, HybridTable};
use super::table::{LaserTable, Rows, TreeShape};
use super::workload::{HybridWorkload, Operation, Query, SLICES};
use crate::measure::Latencies;
use crate::statistics::geometric_mean;
use crate::store::Result;

/// The name of the paper's design: groups of rows.
pub(super) const D_OPT: &str = "D-opt";
/// The name of the advisor's: groups of rows and columnar ones.
const ADVISED: &str = "advised";
/// The name of the pair of a row store and a column store.
pub(super) const HTAP_X: &str = "HTAP-X";
/// Levels of the tree.
const LEVELS: usize = 8;
/// `T`.
const FANOUT: f64 = 2.0;

/// What workload HW showed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HybridReport {
    /// Columns besides the key.
    pub columns: usize,
    /// Rows loaded before the workload.
    pub loaded_rows: u64,
    /// The trace that the design was made from, in the form of `mycelium advise`.
    pub trace: String,
    /// Entries of a whole row in a block, as the model was told.
    pub entries_per_block: f64,
    /// D-opt. Columns count from 0.
    pub design: String,
    /// The advisor's design, with formats.
    pub advised: String,
    /// By design.
    pub designs: BTreeMap<String, DesignFigures>,
    /// The fixed design whose reads took least time.
    pub best_fixed: String,
    /// The total time of D-opt over that of the best fixed design.
    pub d_opt_over_best_fixed: f64,
    /// The total time of the advisor's design over that of the best fixed design.
    pub advised_over_best_fixed: f64,
    /// Other databases, in the order in which they were given, and [`HTAP_X`] if there are two of them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub rivals: BTreeMap<String, RunFigures>,
    /// Other databases that failed, and why: they have no figures.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub failed: BTreeMap<String, String>,
}

/// One design.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct DesignFigures {
    /// Column groups of each level.
    pub groups: Vec<usize>,
    /// What the trace costs under it by the model, in blocks.
    pub predicted_blocks: f64,
    /// What it did.
    #[serde(flatten)]
    pub run: RunFigures,
    /// Bytes that the load's flushes and compactions wrote, over those of keys and values.
    pub load_write_amplification: f64,
    /// Bytes of its SSTs after the load.
    pub sst_bytes: u64,
}

/// A load and the workload on one table.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct RunFigures {
    /// By query.
    pub queries: BTreeMap<String, QueryFigures>,
    /// Seconds of Q2a to Q4 together.
    pub total_seconds: f64,
    /// These over D-opt's.
    pub total_over_d_opt: f64,
    /// These over those of the advisor's design.
    pub total_over_advised: f64,
    /// For each of Q2a to Q4, its time over that under D-opt.
    pub over_d_opt: BTreeMap<String, f64>,
    /// Their geometric mean.
    pub geometric_mean_over_d_opt: f64,
    /// Seconds of the load, compactions included.
    pub load_seconds: f64,
}

/// One query under one design.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct QueryFigures {
    /// How many there were.
    pub count: u64,
    /// Seconds of all.
    pub seconds: f64,
    /// Mean latency in microseconds.
    pub mean_us: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Data blocks touched by each on average, cached or not.
    pub blocks: f64,
    /// Data blocks read from disk by each on average.
    pub blocks_read: f64,
}

/// What the workload on rows showed, and the designs made of it.
pub(super) struct Representative {
    trace: Trace,
    tree: Tree,
    /// Groups of rows.
    pub(super) d_opt: Advice,
    /// Groups of rows and columnar ones.
    advised: Advice,
}

/// What the experiments on HW share.
pub(super) struct Hybrid<'a> {
    settings: &'a LaserSettings,
    pub(super) workload: HybridWorkload,
    shape: TreeShape,
}

impl<'a> Hybrid<'a> {
    pub(super) fn new(settings: &'a LaserSettings, rows: u64) -> Self {
        let loaded = settings.rows(rows);
        let shape =
            TreeShape { direct_io: settings.direct_io, ..TreeShape::of(settings.columns, LEVELS, FANOUT, loaded, 0.5) };
        Self { settings, workload: HybridWorkload { columns: settings.columns, loaded, seed: settings.seed }, shape }
    }

    /// The widths of the fixed designs but rows and columns: of 30 columns 3, 6 and 15, of others the same shares.
    fn widths(&self) -> [usize; 3] {
        [10, 5, 2].map(|share| self.settings.columns / share)
    }

    /// Rows, columns, and groups of these widths.
    fn fixed_designs(&self) -> Result<Vec<(String, Design)>> {
        let columns = self.settings.columns;
        let mut designs = vec![
            ("rows".to_owned(), Design::rows(columns, LEVELS)?),
            ("columns".to_owned(), Design::columns(columns, LEVELS)?),
        ];
        for width in self.widths() {
            designs.push((format!("groups of {width}"), Design::fixed_width(columns, LEVELS, width)?));
        }
        Ok(designs)
    }

    /// A loaded table with an empty cache.
    pub(super) fn load(&self, directory: &Path, design: &Design) -> Result<LaserTable> {
        self.reopen(LaserTable::load(directory, &self.shape, design, self.workload.loaded)?)
    }

    fn reopen(&self, table: LaserTable) -> Result<LaserTable> {
        let data = self.workload.loaded * Rows { columns: self.settings.columns }.bytes();
        table.reopen(data / 4)
    }

    /// Step 1: the representative trace, the tree as the model knows it, and the designs.
    pub(super) fn advice(&self, directory: &Path) -> Result<Representative> {
        self.settings.tell(format_args!("HW on rows, for the trace"));
        let mut table = self.load(directory, &Design::rows(self.settings.columns, LEVELS)?)?;
        let mut run = Run::default();
        for slice in 0..SLICES {
            run.apply(&mut table, &self.workload.slice(slice), self.settings.columns)?;
        }
        table.settle()?;
        let seen = table.table.advise(Some(&[]))?;
        // The designs are loaded into trees with all levels, also those that hold nothing at the moment.
        let levels = seen.levels.last().map_or(LEVELS, |last| last + 1);
        let asked = table.table.trace()?.with_levels(levels)?;
        table.remove()?;
        let trace = with_inserts(&asked, self.workload.inserts())?;
        let d_opt = advise(&seen.tree, &trace, &self.widths())?;
        let advised = advise_formats(&seen.tree, &seen.formats, &trace, &self.widths())?;
        Ok(Representative { trace, tree: seen.tree, d_opt, advised })
    }
}

/// The same trace with another number of inserts: a load inserts far more than the workload.
fn with_inserts(trace: &Trace, inserts: u64) -> Result<Trace> {
    let mut other = Trace::new(trace.columns(), trace.level_count())?;
    other.add_inserts(inserts);
    for level in 0..trace.level_count() {
        for access in trace.accesses(level) {
            other.add_points(level, &access.columns, access.points)?;
            other.add_scans(level, &access.columns, access.scans, access.scanned_entries)?;
            other.add_updates(level, &access.columns, access.updates)?;
        }
    }
    Ok(other)
}

/// What one table has done.
#[derive(Default)]
pub(super) struct Run {
    measured: BTreeMap<Query, Measured>,
    /// The answers of all reads, folded.
    answers: i64,
}

#[derive(Default)]
struct Measured {
    count: u64,
    seconds: f64,
    latencies: Option<Latencies>,
    counters: ReadCounters,
}

impl Run {
    /// Runs operations one after the other.
    pub(super) fn apply(
        &mut self,
        table: &mut dyn HybridTable,
        operations: &[Operation],
        columns: usize,
    ) -> Result<()> {
        let projections = Query::ALL.map(|query| (query, query.projection(columns)));
        for &operation in operations {
            let query = operation.query();
            let measured = self.measured.entry(query).or_default();
            let projection = projections.iter().find(|(other, _)| *other == query);
            let projection = projection.map_or(&[][..], |(_, columns)| columns.as_slice());
            if matches!(operation, Operation::Scan { .. }) {
                table.commit()?;
            }
            let started = Instant::now();
            let answer = match operation {
                Operation::Insert { index } => table.insert(index).map(|()| 0)?,
                Operation::Update { index, column, value } => table.update(index, column, value).map(|()| 0)?,
                Operation::Point { index, .. } => table.point(index, projection, &mut measured.counters)?,
                Operation::Scan { from, to, .. } => {
                    table.scan((from, to), projection, query.aggregate(), &mut measured.counters)?
                }
            };
            let elapsed = started.elapsed();
            self.answers = self.answers.wrapping_mul(31).wrapping_add(answer);
            measured.count += 1;
            measured.seconds += elapsed.as_secs_f64();
            match &mut measured.latencies {
                Some(latencies) => latencies.record(elapsed),
                empty => empty.insert(Latencies::new()?).record(elapsed),
            }
        }
        Ok(())
    }

    /// What a query showed.
    pub(super) fn figures(&self, query: Query) -> QueryFigures {
        let Some(measured) = self.measured.get(&query) else { return QueryFigures::default() };
        let count = measured.count.max(1) as f64;
        let latencies = measured.latencies.as_ref().and_then(Latencies::summary);
        let (blocks_read, hits) = (measured.counters.blocks_read as f64, measured.counters.block_cache_hits as f64);
        QueryFigures {
            count: measured.count,
            seconds: measured.seconds,
            mean_us: measured.seconds * 1e6 / count,
            p50_us: latencies.map_or(0.0, |latencies| latencies.p50_us),
            p99_us: latencies.map_or(0.0, |latencies| latencies.p99_us),
            blocks: (blocks_read + hits) / count,
            blocks_read: blocks_read / count,
        }
    }
}

/// A table at work.
struct Contender {
    name: String,
    table: Box<dyn HybridTable>,
    run: Run,
    load_seconds: f64,
    is_rival: bool,
    /// Why a rival has no further turns.
    failure: Option<String>,
}

/// Runs the experiment.
pub(super) fn run(settings: &LaserSettings, rivals: &[HybridRival<'_>], directory: &Path) -> Result<HybridReport> {
    let hybrid = Hybrid::new(settings, LaserSettings::HYBRID_ROWS);
    let made = hybrid.advice(&directory.join("trace"))?;
    let ours = [(D_OPT, &made.d_opt), (ADVISED, &made.advised)];
    let mut designs = ours.map(|(name, advice)| (name.to_owned(), advice.design.clone())).to_vec();
    designs.extend(hybrid.fixed_designs()?);
    let (mut contenders, mut figures) = (Vec::new(), BTreeMap::new());
    for (name, design) in designs {
        let directory = directory.join(name.replace(' ', "-"));
        let (contender, of_load) = load_design(&hybrid, &directory, name.clone(), &design, &made)?;
        contenders.push(contender);
        figures.insert(name, of_load);
    }
    let mut failed = BTreeMap::new();
    for rival in rivals {
        match load_rival(&hybrid, &directory.join(rival.name), rival) {
            Ok(contender) => contenders.push(contender),
            Err(error) => drop(failed.insert(rival.name.to_owned(), error.to_string())),
        }
    }
    take_turns(&hybrid, &mut contenders)?;
    let mut of_rivals = BTreeMap::new();
    for contender in contenders {
        let name = contender.name.clone();
        match (contender.finish()?, figures.get_mut(&name)) {
            (Ok(run), Some(design)) => design.run = run,
            (Ok(run), None) => drop(of_rivals.insert(name, run)),
            (Err(failure), _) => drop(failed.insert(name, failure)),
        }
    }
    if let [rows, columns] = rivals
        && let (Some(of_rows), Some(of_columns)) = (of_rivals.get(rows.name), of_rivals.get(columns.name))
    {
        of_rivals.insert(HTAP_X.to_owned(), pair(of_rows, of_columns));
    }
    let report = report(&hybrid, &made, figures, of_rivals)?;
    Ok(HybridReport { failed, ..report })
}

/// Gives all tables the workload, slice by slice, each time another one first.
fn take_turns(hybrid: &Hybrid<'_>, contenders: &mut [Contender]) -> Result<()> {
    hybrid.settings.tell(format_args!("HW on all tables, in turns"));
    let count = contenders.len();
    for slice in 0..SLICES {
        let operations = hybrid.workload.slice(slice);
        for step in 0..count {
            let contender = &mut contenders[(slice as usize + step) % count];
            contender.attempt(|contender| {
                contender.run.apply(contender.table.as_mut(), &operations, hybrid.settings.columns)
            })?;
        }
        let [first, others @ ..] = contenders else { return Ok(()) };
        for other in others {
            other.attempt(|other| match other.run.answers == first.run.answers {
                true => Ok(()),
                false => Err(format!("{} and {} answer differently in slice {slice}", first.name, other.name).into()),
            })?;
        }
    }
    Ok(())
}

fn load_design(
    hybrid: &Hybrid<'_>,
    directory: &Path,
    name: String,
    design: &Design,
    Representative { trace, tree, .. }: &Representative,
) -> Result<(Contender, DesignFigures)> {
    let started = Instant::now();
    let table = LaserTable::load(directory, &hybrid.shape, design, hybrid.workload.loaded)?;
    let load_seconds = started.elapsed().as_secs_f64();
    let metrics = table.database_metrics();
    let written = metrics.flush_bytes + metrics.compaction_written_by_level.iter().sum::<u64>();
    let inserted = hybrid.workload.loaded * Rows { columns: hybrid.settings.columns }.bytes();
    let sst_bytes = table.sst_bytes();
    let level = |level: usize| design.levels.get(level).or(design.levels.last());
    // A small tree has fewer levels than the trace was folded to.
    let levels = (0..trace.level_count()).filter_map(|at| level(at).cloned()).collect();
    let figures = DesignFigures {
        groups: design.levels.iter().map(Vec::len).collect(),
        predicted_blocks: Design { levels, columnar: Vec::new() }.cost(tree, trace)?.total,
        load_write_amplification: written as f64 / inserted as f64,
        sst_bytes,
        run: RunFigures::default(),
    };
    hybrid.settings.tell(format_args!("{name:<13} loaded in {load_seconds:.1} s, {} MB", sst_bytes / 1_000_000));
    let table = Box::new(hybrid.reopen(table)?);
    let run = Run::default();
    Ok((Contender { name, table, run, load_seconds, is_rival: false, failure: None }, figures))
}

fn load_rival(hybrid: &Hybrid<'_>, directory: &Path, rival: &HybridRival<'_>) -> Result<Contender> {
    std::fs::create_dir_all(directory)?;
    let rows = Rows { columns: hybrid.settings.columns };
    let loaded = hybrid.workload.loaded;
    let started = Instant::now();
    let table = (rival.load)(directory, rows, loaded, loaded * rows.bytes() / 4)?;
    let load_seconds = started.elapsed().as_secs_f64();
    hybrid.settings.tell(format_args!("{:<13} loaded in {load_seconds:.1} s", rival.name));
    let (name, run) = (rival.name.to_owned(), Run::default());
    Ok(Contender { name, table, run, load_seconds, is_rival: true, failure: None })
}

impl Contender {
    /// Has it do something, unless it has failed. A failure of ours is one of the experiment.
    fn attempt(&mut self, action: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if self.failure.is_some() {
            return Ok(());
        }
        match action(self) {
            Err(error) if self.is_rival => {
                self.failure = Some(error.to_string());
                Ok(())
            }
            done => done,
        }
    }

    /// What it did, or why it did not.
    fn finish(self) -> Result<std::result::Result<RunFigures, String>> {
        let queries = Query::ALL.map(|query| (query.name().to_owned(), self.run.figures(query)));
        let removed = self.table.remove();
        if let Some(failure) = self.failure {
            return Ok(Err(failure));
        }
        removed?;
        Ok(Ok(RunFigures { queries: queries.into(), load_seconds: self.load_seconds, ..RunFigures::default() }))
    }
}

/// HTAP-X: the row store's Q1, Q2 and Q5, the column store's Q3 and Q4.
fn pair(rows: &RunFigures, columns: &RunFigures) -> RunFigures {
    let mut pair = rows.clone();
    for query in [Query::Q3, Query::Q4] {
        if let Some(figures) = columns.queries.get(query.name()) {
            pair.queries.insert(query.name().to_owned(), *figures);
        }
    }
    pair.load_seconds += columns.load_seconds;
    pair
}

impl RunFigures {
    fn seconds(&self, query: Query) -> f64 {
        self.queries.get(query.name()).map_or(0.0, |figures| figures.seconds)
    }

    /// Fills in totals and what is said of them beside D-opt.
    fn compare(&mut self, d_opt: &RunFigures, advised: &RunFigures) {
        let total = |figures: &Self| Query::READS.map(|query| figures.seconds(query)).iter().sum::<f64>();
        self.total_seconds = total(self);
        self.total_over_d_opt = self.total_seconds / total(d_opt);
        self.total_over_advised = self.total_seconds / total(advised);
        let ratio = |query: Query| (query.name().to_owned(), self.seconds(query) / d_opt.seconds(query));
        self.over_d_opt = Query::READS.map(ratio).into();
        self.geometric_mean_over_d_opt = geometric_mean(self.over_d_opt.values().copied()).unwrap_or(1.0);
    }
}

fn report(
    hybrid: &Hybrid<'_>,
    made: &Representative,
    mut designs: BTreeMap<String, DesignFigures>,
    mut rivals: BTreeMap<String, RunFigures>,
) -> Result<HybridReport> {
    let ours = |name: &str| designs.get(name).map(|design| design.run.clone()).ok_or(format!("{name} was not run"));
    let (d_opt, advised) = (ours(D_OPT)?, ours(ADVISED)?);
    let runs = designs.values_mut().map(|design| &mut design.run).chain(rivals.values_mut());
    runs.for_each(|run| run.compare(&d_opt, &advised));
    let fixed = designs.iter().filter(|(name, _)| ![D_OPT, ADVISED].contains(&name.as_str()));
    let fixed = fixed.map(|(name, design)| (name, &design.run));
    let best = fixed.min_by(|a, b| a.1.total_seconds.total_cmp(&b.1.total_seconds)).ok_or("no fixed design was run")?;
    Ok(HybridReport {
        columns: hybrid.settings.columns,
        loaded_rows: hybrid.workload.loaded,
        trace: made.trace.to_string(),
        entries_per_block: made.tree.entries_per_block,
        design: made.d_opt.design.to_string(),
        advised: made.advised.design.to_string(),
        d_opt_over_best_fixed: designs[D_OPT].run.total_seconds / best.1.total_seconds,
        advised_over_best_fixed: designs[ADVISED].run.total_seconds / best.1.total_seconds,
        best_fixed: best.0.clone(),
        designs,
        rivals,
        failed: BTreeMap::new(),
    })
}

/// The columns, from 0 on, that the reads of HW tell apart at least: the groups of the last levels of the paper's
/// design.
pub(super) fn groups_of_reads(columns: usize) -> Vec<ColumnSet> {
    let all = ColumnSet::first(columns);
    let projection = |query: Query| query.projection(columns).into_iter().map(|column| column - 1).collect();
    let projections: Vec<ColumnSet> = Query::READS.into_iter().map(projection).collect();
    mycelium_engine::advisor::design::primary_partitions(&all, &projections)
}

impl HybridReport {
    /// The report as a person reads it.
    pub fn table(&self) -> String {
        let mut out = format!(
            "laser-hw: workload HW on {} rows of {} columns; D-opt reads in {:.3}, the advisor's design in {:.3} of the time \
             of {}, the best fixed design\n",
            self.loaded_rows, self.columns, self.d_opt_over_best_fixed, self.advised_over_best_fixed, self.best_fixed
        );
        for (name, design) in [(D_OPT, &self.design), (ADVISED, &self.advised)] {
            for line in design.lines() {
                out += &format!("  {name} {line}\n");
            }
        }
        for (name, figures) in &self.designs {
            out += &figures.run.heading(name);
            out += &format!(
                "    {:.0} blocks by the model; load written {:.1} times, {} MB\n",
                figures.predicted_blocks,
                figures.load_write_amplification,
                figures.sst_bytes / 1_000_000,
            );
            out += &figures.run.lines();
        }
        for (name, figures) in &self.rivals {
            out += &(figures.heading(name) + &figures.lines());
        }
        for (name, why) in &self.failed {
            out += &format!("  {name}: no figures, since it failed: {why}\n");
        }
        out
    }
}

impl RunFigures {
    fn heading(&self, name: &str) -> String {
        format!(
            "  {name:<13} reads {:>8.3} s, {:.2} of D-opt's, {:.2} of the advisor's; geometric mean over D-opt {:.2}; load {:.1} s\n",
            self.total_seconds,
            self.total_over_d_opt,
            self.total_over_advised,
            self.geometric_mean_over_d_opt,
            self.load_seconds
        )
    }

    fn lines(&self) -> String {
        let line = |(query, figures): (&String, &QueryFigures)| {
            let ratio = self.over_d_opt.get(query).map_or_else(String::new, |ratio| format!("  {ratio:.2}x D-opt"));
            format!("    {query:<4} {}{ratio}\n", figures.line())
        };
        self.queries.iter().map(line).collect()
    }
}

impl QueryFigures {
    /// On one line.
    pub(super) fn line(&self) -> String {
        format!(
            "{:>7} x {:>10.1} us (p50 {:>9.1}, p99 {:>9.1})  {:>9.2} blocks, {:>9.2} read",
            self.count, self.mean_us, self.p50_us, self.p99_us, self.blocks, self.blocks_read
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Aggregate;
    use super::*;

    #[test]
    fn reads_tell_apart_the_groups_of_the_paper() {
        let groups: Vec<String> = groups_of_reads(30).iter().map(ToString::to_string).collect();
        assert_eq!(groups, ["0-14", "15-19", "20-26", "27-29"]);
    }

    /// Rows in memory.
    struct Model {
        rows: Rows,
        values: BTreeMap<u64, Vec<i32>>,
    }

    impl HybridTable for Model {
        fn insert(&mut self, index: u64) -> Result<()> {
            let values = (1..=self.rows.columns).map(|column| self.rows.value(index, column)).collect();
            self.values.insert(self.rows.key(index), values);
            Ok(())
        }

        fn update(&mut self, index: u64, column: usize, value: i32) -> Result<()> {
            self.values.get_mut(&self.rows.key(index)).ok_or("no row")?[column - 1] = value;
            Ok(())
        }

        fn point(&mut self, index: u64, projection: &[usize], _: &mut ReadCounters) -> Result<i64> {
            let values = self.values.get(&self.rows.key(index)).ok_or("no row")?;
            Ok(projection.iter().map(|column| i64::from(values[column - 1])).sum())
        }

        fn scan(
            &mut self,
            (from, to): (u64, u64),
            projection: &[usize],
            aggregate: Aggregate,
            _: &mut ReadCounters,
        ) -> Result<i64> {
            let of = |column: &usize| {
                let values = self.values.range(from..to).map(|(_, values)| i64::from(values[column - 1]));
                if aggregate == Aggregate::Maxima { values.max().unwrap_or(i64::MIN) } else { values.sum() }
            };
            Ok(projection.iter().map(of).fold(0, i64::wrapping_add))
        }

        fn remove(self: Box<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn model(_: &Path, rows: Rows, loaded: u64, _: u64) -> Result<Box<dyn HybridTable>> {
        let mut model = Model { rows, values: BTreeMap::new() };
        (0..loaded).try_for_each(|index| model.insert(index))?;
        Ok(Box::new(model))
    }

    /// Rows in memory that lose what is inserted after the load.
    struct Forgetful(Model);

    impl HybridTable for Forgetful {
        fn insert(&mut self, _: u64) -> Result<()> {
            Ok(())
        }

        fn update(&mut self, index: u64, column: usize, value: i32) -> Result<()> {
            self.0.update(index, column, value)
        }

        fn point(&mut self, index: u64, projection: &[usize], counters: &mut ReadCounters) -> Result<i64> {
            self.0.point(index, projection, counters)
        }

        fn scan(
            &mut self,
            range: (u64, u64),
            projection: &[usize],
            aggregate: Aggregate,
            counters: &mut ReadCounters,
        ) -> Result<i64> {
            self.0.scan(range, projection, aggregate, counters)
        }

        fn remove(self: Box<Self>) -> Result<()> {
            Err("nothing to remove".into())
        }
    }

    fn forgetful(_: &Path, rows: Rows, loaded: u64, _: u64) -> Result<Box<dyn HybridTable>> {
        let mut model = Model { rows, values: BTreeMap::new() };
        (0..loaded).try_for_each(|index| model.insert(index))?;
        Ok(Box::new(Forgetful(model)))
    }

    #[test]
    fn a_rival_that_fails_costs_the_report_nothing_but_its_own_figures() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let settings = LaserSettings { scale: 0.004, progress: false, ..LaserSettings::new(directory.path()) };
        let absent = |_: &Path, _: Rows, _: u64, _: u64| Err("it is not installed".into());
        let rivals = [
            HybridRival { name: "absent", load: &absent },
            HybridRival { name: "forgetful", load: &forgetful },
            HybridRival { name: "model", load: &model },
        ];
        let report = run(&settings, &rivals, directory.path()).expect("experiment");
        assert_eq!(report.designs.len(), 7);
        assert_eq!(report.rivals.keys().collect::<Vec<_>>(), ["model"]);
        assert_eq!(report.failed["absent"], "it is not installed");
        assert!(report.table().contains("forgetful: no figures, since it failed"), "{}", report.table());
    }

    #[test]
    fn a_small_hybrid_workload_is_answered_alike_by_all_designs_and_by_a_model() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let settings = LaserSettings { scale: 0.004, progress: false, ..LaserSettings::new(directory.path()) };
        let rivals = ["rows in memory", "columns in memory"].map(|name| HybridRival { name, load: &model });
        let report = run(&settings, &rivals, directory.path()).expect("experiment");
        assert_eq!(report.designs.len(), 7);
        for (name, figures) in &report.designs {
            assert_eq!(figures.run.queries["Q3"].count, 12, "{name}");
            assert!(
                figures.run.queries["Q2a"].count >= SLICES && figures.run.total_seconds > 0.0,
                "{name}: {figures:?}"
            );
        }
        let of = |name: &str| &report.designs[name];
        let of_rows = report.designs.iter().filter(|(name, _)| *name != ADVISED);
        assert!(of_rows.into_iter().all(|(_, other)| of(D_OPT).predicted_blocks <= other.predicted_blocks));
        assert_eq!(of(D_OPT).run.geometric_mean_over_d_opt, 1.0);
        // Fewer blocks hold three columns of thirty than hold all.
        assert!(of("columns").run.queries["Q3"].blocks < of("rows").run.queries["Q3"].blocks, "{}", report.table());
        assert!(of("columns").run.queries["Q2a"].blocks > of("rows").run.queries["Q2a"].blocks, "{}", report.table());
        let pair = &report.rivals[HTAP_X].queries;
        assert_eq!(report.rivals.len(), 3);
        assert_eq!(pair["Q2a"], report.rivals["rows in memory"].queries["Q2a"]);
        assert_eq!(pair["Q3"], report.rivals["columns in memory"].queries["Q3"]);
        let trace = Trace::parse(&report.trace).expect("trace");
        assert_eq!(trace.inserts(), 200);
        assert!(report.table().contains("D-opt L0: 0-29"));
        assert!(report.advised.contains("columnar") && !report.design.contains("columnar"), "{}", report.advised);
    }
}
