//! Figure 8 of the paper: workload HW under rows, columns, groups of three fixed widths, and the advisor's design.
//!
//! 1. A table of rows is loaded and given the workload; the engine traces what each level serves (`representative trace`).
//!    Of the trace the inserts of the load are taken out. [`advise`] makes a design of it: D-opt.
//! 2. Six tables, one for each design, are loaded and opened again, so that their caches are empty.
//! 3. They get the workload in turns, slice by slice, each time another of them first, so that a slow second of the machine
//!    hits all. All must give the same answers.
//! 4. What counts is the time of the reads, Q2a to Q4, as in the paper's figure 8a: inserts and updates are paced there, and
//!    here the compactions that they make due are done in the writer's time.
//!
//! Reads pass by the page cache. A table's block cache has room for filters, indexes and a quarter of the data: the paper's
//! machine had 16 GB for 51 to 86 GB.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use mycelium_base::ColumnSet;
use mycelium_engine::ReadCounters;
use mycelium_engine::advisor::{Advice, Design, Trace, Tree, advise};
use serde::{Deserialize, Serialize};

use super::LaserSettings;
use super::table::{LaserTable, Rows, TreeShape};
use super::workload::{HybridWorkload, Operation, Query, SLICES};
use crate::measure::Latencies;
use crate::statistics::geometric_mean;
use crate::store::Result;

/// The name of the advisor's design.
pub(super) const D_OPT: &str = "D-opt";
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
    /// By design.
    pub designs: BTreeMap<String, DesignFigures>,
    /// The fixed design whose reads took least time.
    pub best_fixed: String,
    /// The total time of D-opt over that of the best fixed design.
    pub d_opt_over_best_fixed: f64,
}

/// One design.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct DesignFigures {
    /// Column groups of each level.
    pub groups: Vec<usize>,
    /// What the trace costs under it by the model, in blocks.
    pub predicted_blocks: f64,
    /// By query.
    pub queries: BTreeMap<String, QueryFigures>,
    /// Seconds of Q2a to Q4 together.
    pub total_seconds: f64,
    /// For each of Q2a to Q4, its time over that under D-opt.
    pub over_d_opt: BTreeMap<String, f64>,
    /// Their geometric mean.
    pub geometric_mean_over_d_opt: f64,
    /// Seconds of the load, compactions included.
    pub load_seconds: f64,
    /// Bytes that the load's flushes and compactions wrote, over those of keys and values.
    pub load_write_amplification: f64,
    /// Bytes of its SSTs after the load.
    pub sst_bytes: u64,
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

    /// Step 1: the representative trace, the tree as the model knows it, and the design.
    pub(super) fn advice(&self, directory: &Path) -> Result<(Trace, Tree, Advice)> {
        self.settings.tell(format_args!("HW on rows, for the trace"));
        let mut table = self.load(directory, &Design::rows(self.settings.columns, LEVELS)?)?;
        let mut run = Run::default();
        for slice in 0..SLICES {
            run.apply(&mut table, &self.workload.slice(slice), self.settings.columns)?;
        }
        table.settle()?;
        let seen = table.table.advise(Some(&[]))?;
        table.remove()?;
        let trace = with_inserts(&seen.trace, self.workload.inserts())?;
        let advice = advise(&seen.tree, &trace, &self.widths())?;
        Ok((trace, seen.tree, advice))
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
    pub(super) fn apply(&mut self, table: &mut LaserTable, operations: &[Operation], columns: usize) -> Result<()> {
        let projections = Query::ALL.map(|query| (query, query.projection(columns)));
        for &operation in operations {
            let query = operation.query();
            let measured = self.measured.entry(query).or_default();
            let projection = projections.iter().find(|(other, _)| *other == query);
            let projection = projection.map_or(&[][..], |(_, columns)| columns.as_slice());
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

/// A design at work.
struct Contender {
    name: String,
    table: LaserTable,
    run: Run,
    figures: DesignFigures,
}

/// Runs the experiment.
pub(super) fn run(settings: &LaserSettings, directory: &Path) -> Result<HybridReport> {
    let hybrid = Hybrid::new(settings, LaserSettings::HYBRID_ROWS);
    let (trace, tree, advice) = hybrid.advice(&directory.join("trace"))?;
    let mut designs = vec![(D_OPT.to_owned(), advice.design.clone())];
    designs.extend(hybrid.fixed_designs()?);
    let mut contenders = Vec::new();
    for (name, design) in designs {
        contenders.push(contender(&hybrid, &directory.join(name.replace(' ', "-")), name, &design, (&tree, &trace))?);
    }
    settings.tell(format_args!("HW on all designs, in turns"));
    let count = contenders.len();
    for slice in 0..SLICES {
        let operations = hybrid.workload.slice(slice);
        for step in 0..count {
            let Contender { table, run, .. } = &mut contenders[(slice as usize + step) % count];
            run.apply(table, &operations, settings.columns)?;
        }
        if contenders.iter().any(|contender| contender.run.answers != contenders[0].run.answers) {
            return Err(format!("the designs answer differently in slice {slice}").into());
        }
    }
    let mut figures = BTreeMap::new();
    for contender in contenders {
        figures.insert(contender.name.clone(), contender.finish()?);
    }
    report(&hybrid, (&trace, &tree, &advice), figures)
}

fn contender(
    hybrid: &Hybrid<'_>,
    directory: &Path,
    name: String,
    design: &Design,
    (tree, trace): (&Tree, &Trace),
) -> Result<Contender> {
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
    let predicted = Design { levels }.cost(tree, trace)?.total;
    let figures = DesignFigures {
        groups: design.levels.iter().map(Vec::len).collect(),
        predicted_blocks: predicted,
        load_seconds,
        load_write_amplification: written as f64 / inserted as f64,
        sst_bytes,
        ..DesignFigures::default()
    };
    hybrid.settings.tell(format_args!("{name:<13} loaded in {load_seconds:.1} s, {} MB", sst_bytes / 1_000_000));
    Ok(Contender { name, table: hybrid.reopen(table)?, run: Run::default(), figures })
}

impl Contender {
    fn finish(self) -> Result<DesignFigures> {
        let queries = Query::ALL.map(|query| (query.name().to_owned(), self.run.figures(query)));
        let total_seconds = Query::READS.map(|query| self.run.figures(query).seconds).iter().sum();
        self.table.remove()?;
        Ok(DesignFigures { queries: queries.into(), total_seconds, ..self.figures })
    }
}

fn report(
    hybrid: &Hybrid<'_>,
    (trace, tree, advice): (&Trace, &Tree, &Advice),
    mut designs: BTreeMap<String, DesignFigures>,
) -> Result<HybridReport> {
    let ours = designs.get(D_OPT).cloned().ok_or("D-opt was not run")?;
    let seconds =
        |figures: &DesignFigures, query: Query| figures.queries.get(query.name()).map_or(0.0, |it| it.seconds);
    for figures in designs.values_mut() {
        let ratio = |query: Query| (query.name().to_owned(), seconds(figures, query) / seconds(&ours, query));
        figures.over_d_opt = Query::READS.map(ratio).into();
        figures.geometric_mean_over_d_opt = geometric_mean(figures.over_d_opt.values().copied()).unwrap_or(1.0);
    }
    let fixed = designs.iter().filter(|(name, _)| *name != D_OPT);
    let best = fixed.min_by(|a, b| a.1.total_seconds.total_cmp(&b.1.total_seconds)).ok_or("no fixed design was run")?;
    let (best_fixed, least) = (best.0.clone(), best.1.total_seconds);
    Ok(HybridReport {
        columns: hybrid.settings.columns,
        loaded_rows: hybrid.workload.loaded,
        trace: trace.to_string(),
        entries_per_block: tree.entries_per_block,
        design: advice.design.to_string(),
        d_opt_over_best_fixed: ours.total_seconds / least,
        best_fixed,
        designs,
    })
}

/// The columns, from 0 on, that the reads of HW tell apart at least: the groups of the last levels of the paper's design.
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
            "laser-hw: workload HW on {} rows of {} columns; D-opt reads in {:.3} of the time of {}, the best fixed design\n",
            self.loaded_rows, self.columns, self.d_opt_over_best_fixed, self.best_fixed
        );
        for line in self.design.lines() {
            out += &format!("  {D_OPT} {line}\n");
        }
        for (name, figures) in &self.designs {
            out += &format!(
                "  {name:<13} reads {:>8.3} s  {:>9.0} blocks by the model  load {:>6.1} s, written {:>5.1} times, {:>5} MB  \
                 geometric mean over D-opt {:.2}\n",
                figures.total_seconds,
                figures.predicted_blocks,
                figures.load_seconds,
                figures.load_write_amplification,
                figures.sst_bytes / 1_000_000,
                figures.geometric_mean_over_d_opt
            );
            for (query, of_query) in &figures.queries {
                let ratio =
                    figures.over_d_opt.get(query).map_or_else(String::new, |ratio| format!("  {ratio:.2}x D-opt"));
                out += &format!("    {query:<4} {}{ratio}\n", of_query.line());
            }
        }
        out
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
    use super::*;

    #[test]
    fn reads_tell_apart_the_groups_of_the_paper() {
        let groups: Vec<String> = groups_of_reads(30).iter().map(ToString::to_string).collect();
        assert_eq!(groups, ["0-14", "15-19", "20-26", "27-29"]);
    }

    #[test]
    fn a_small_hybrid_workload_is_run_alike_by_all_designs() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let settings = LaserSettings { scale: 0.004, progress: false, ..LaserSettings::new(directory.path()) };
        let report = run(&settings, directory.path()).expect("experiment");
        assert_eq!(report.designs.len(), 6);
        for (name, figures) in &report.designs {
            assert_eq!(figures.queries["Q3"].count, 12, "{name}");
            assert!(figures.queries["Q2a"].count >= SLICES && figures.total_seconds > 0.0, "{name}: {figures:?}");
        }
        let of = |name: &str| &report.designs[name];
        assert!(report.designs.values().all(|other| of(D_OPT).predicted_blocks <= other.predicted_blocks));
        assert_eq!(of(D_OPT).geometric_mean_over_d_opt, 1.0);
        // Fewer blocks hold three columns of thirty than hold all.
        assert!(of("columns").queries["Q3"].blocks < of("rows").queries["Q3"].blocks, "{}", report.table());
        assert!(of("columns").queries["Q2a"].blocks > of("rows").queries["Q2a"].blocks, "{}", report.table());
        let trace = Trace::parse(&report.trace).expect("trace");
        assert_eq!(trace.inserts(), 200);
        assert!(report.table().contains("D-opt L0: 0-29"));
    }
}
