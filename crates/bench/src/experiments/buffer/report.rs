//! What the experiment showed, as a person reads it and drawn.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::subject::{Figures, Sizes};
use super::workload::Workload;
use super::{ROW_BYTES, Regime, UPDATES_PER_SECOND, cell_name};
use crate::plot::{Axis, LinePlot, NamedPlot, Series, Stroke};

/// One second.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Second {
    /// Rows, or ranges, read.
    pub reads: u64,
    /// Blocks that came from the disk for it.
    pub misses: u64,
    /// Of the blocks that they needed, those that were cached, in percent.
    pub hit_percent: f64,
    /// Cached blocks that compactions made useless, by level.
    pub invalidated: Vec<u64>,
    /// Bytes of the compaction buffer.
    pub buffer_bytes: u64,
}

/// A contender under one workload.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct BufferRun {
    /// Of the blocks needed, those that were cached, in percent: the mean of the seconds, as the paper plots it. (A
    /// second in which nothing is missed has a thousand times the reads of one in which a fifth is.)
    pub hit_percent: f64,
    /// Rows, or ranges, read a second.
    pub reads_per_second: f64,
    /// The harmonic mean of the seconds: what a client sees who comes at any moment. (In a second in which nothing is
    /// missed a free-running reader makes a thousand times the reads of one in which a tenth is: their plain mean
    /// leaves out who waits.)
    pub reads_at_any_moment: f64,
    /// The median of the seconds.
    pub reads_in_median_second: f64,
    /// The second with the fewest reads, in percent of the mean.
    pub worst_second_percent: f64,
    /// The lowest hit ratio of a second, in percent of the mean.
    pub worst_hit_percent: f64,
    /// Blocks from the disk per read.
    pub blocks_read_per_read: f64,
    /// Blocks from the disk per second.
    pub blocks_read_per_second: f64,
    /// Tables of the buffer considered per read.
    pub segments_per_read: f64,
    /// Microseconds.
    pub p50_micros: f64,
    /// Microseconds.
    pub p99_micros: f64,
    /// Cached blocks that compactions made useless, a second, by level.
    pub invalidated_per_second: Vec<f64>,
    /// Of each level's bytes, what compactions wrote into it a second, in percent.
    pub rewritten_percent_per_second: Vec<f64>,
    /// The same by the paper's eq. 1 (standard compaction) for the sizes that the levels had.
    pub eq1_percent_per_second: Vec<f64>,
    /// What changes of each level of the compaction buffer a second, by eq. 3 and 4.
    pub eq3_percent_per_second: Vec<f64>,
    /// Bytes that flushes and compactions wrote for each byte updated, meanwhile.
    pub write_amplification: f64,
    /// The most bytes that the compaction buffer took.
    pub buffer_bytes: u64,
    /// Bytes of indexes and filters in memory.
    pub resident_bytes: u64,
    /// Bytes of each level when the measurement began.
    pub level_bytes_at_start: Vec<u64>,
    /// All seconds.
    pub seconds: Vec<Second>,
}

impl BufferRun {
    /// Of what was counted, reads, misses and segments, in so many seconds.
    pub(super) fn new(
        seconds: Vec<Second>,
        [reads, misses, segments]: [u64; 3],
        elapsed: f64,
        (before, after): (&Figures, &Figures),
    ) -> Self {
        let count = seconds.len().max(1) as f64;
        let least = seconds.iter().map(|second| second.reads).min().unwrap_or(0);
        let hit_percent = seconds.iter().map(|second| second.hit_percent).sum::<f64>() / count;
        let mut by_reads: Vec<u64> = seconds.iter().map(|second| second.reads).collect();
        by_reads.sort_unstable();
        let least_hits = seconds.iter().map(|second| second.hit_percent).fold(f64::INFINITY, f64::min);
        let updated = (UPDATES_PER_SECOND * ROW_BYTES) as f64;
        let levels = after.level_bytes.len();
        let mut invalidated_per_second = vec![0.0; levels];
        for (level, sum) in invalidated_per_second.iter_mut().enumerate() {
            *sum = seconds.iter().filter_map(|second| second.invalidated.get(level)).sum::<u64>() as f64 / elapsed;
        }
        let share = |level: usize, bytes: f64| 100.0 * bytes / (after.level_bytes[level] as f64).max(1.0);
        let written = |level: usize| {
            let at = |figures: &Figures| figures.written_by_level.get(level).copied().unwrap_or(0);
            (at(after) - at(before)) as f64 / elapsed
        };
        Self {
            hit_percent,
            reads_per_second: reads as f64 / elapsed,
            reads_at_any_moment: count / seconds.iter().map(|second| 1.0 / second.reads.max(1) as f64).sum::<f64>(),
            reads_in_median_second: by_reads.get(by_reads.len() / 2).map_or(0.0, |&reads| reads as f64),
            worst_second_percent: 100.0 * least as f64 * count / (reads as f64).max(1.0),
            worst_hit_percent: 100.0 * least_hits / hit_percent.max(1e-9),
            blocks_read_per_read: misses as f64 / (reads as f64).max(1.0),
            blocks_read_per_second: misses as f64 / elapsed,
            segments_per_read: segments as f64 / (reads as f64).max(1.0),
            invalidated_per_second,
            rewritten_percent_per_second: (0..levels).map(|level| share(level, written(level))).collect(),
            eq1_percent_per_second: (0..levels)
                .map(|level| share(level, (1 + Sizes::FANOUT) as f64 * updated))
                .collect(),
            eq3_percent_per_second: (0..levels)
                .map(|level| {
                    share(level, if level + 1 < levels { updated } else { (1 + Sizes::FANOUT) as f64 * updated })
                })
                .collect(),
            write_amplification: (after.written_bytes - before.written_bytes) as f64 / (elapsed * updated),
            buffer_bytes: seconds.iter().map(|second| second.buffer_bytes).max().unwrap_or(0),
            resident_bytes: after.resident_bytes,
            level_bytes_at_start: before.level_bytes.clone(),
            seconds,
            ..Self::default()
        }
    }

    fn line(&self, name: &str) -> String {
        format!(
            "{name:<15} hits {:>5.1} %  {:>9.1} reads/s, at any moment {:>9.1}, worst second {:>3.0} % ({:.0} % of hits)  p99 {:>7.1} us  {:.3} blocks, {:.2} segments a read  \
             begins with {} MB in its levels, invalidated/s {}  written {:.1}x  buffer {:.0} MB, indexes and filters {:.1} MB",
            self.hit_percent,
            self.reads_per_second,
            self.reads_at_any_moment,
            self.worst_second_percent,
            self.worst_hit_percent,
            self.p99_micros,
            self.blocks_read_per_read,
            self.segments_per_read,
            self.level_bytes_at_start
                .iter()
                .map(|bytes| format!("{:.1}", *bytes as f64 / 1e6))
                .collect::<Vec<_>>()
                .join("/"),
            self.invalidated_per_second.iter().map(|rate| format!("{rate:.0}")).collect::<Vec<_>>().join("/"),
            self.write_amplification,
            self.buffer_bytes as f64 / 1e6,
            self.resident_bytes as f64 / 1e6,
        )
    }

    /// Measured and by the equations, level by level.
    fn rates(&self) -> String {
        let list = |rates: &[f64]| rates.iter().skip(1).map(|rate| format!("{rate:.2}")).collect::<Vec<_>>().join(" ");
        format!(
            "rewritten of levels 1.. a second: {} %; eq. 1 {} %, of the buffer by eq. 3 and 4 {} %",
            list(&self.rewritten_percent_per_second),
            list(&self.eq1_percent_per_second),
            list(&self.eq3_percent_per_second)
        )
    }
}

pub(super) fn percent(part: u64, all: u64) -> f64 {
    if all == 0 { 100.0 } else { 100.0 * part as f64 / all as f64 }
}

/// A contender beside others under one workload; a figure whose other did not run is absent.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// Points of hit ratio that read-only is above it.
    pub hit_points_below_read_only: Option<f64>,
    /// Its 99th percentile over that of read-only.
    pub p99_over_read_only: Option<f64>,
    /// The same over that of read-only beside another database that takes the updates.
    pub p99_over_read_only_beside: Option<f64>,
    /// Its hit ratio over that of two-phase without the buffer, the paper's plain LSM-tree.
    pub hits_over_two_phase: Option<f64>,
    /// Its lowest hit ratio of a second, in percent of its mean.
    pub worst_hit_percent: f64,
    /// Its reads at any moment over those of two-phase.
    pub reads_over_two_phase: Option<f64>,
    /// Its reads at any moment over those of leveled.
    pub reads_over_leveled: Option<f64>,
    /// Blocks from the disk per read over those of two-phase.
    pub blocks_over_two_phase: Option<f64>,
    /// Bytes written over those of two-phase.
    pub written_over_two_phase: Option<f64>,
}

impl Comparison {
    fn of(run: &BufferRun, runs: &BTreeMap<String, BufferRun>) -> Self {
        let against = |name: &str, figure: fn(&BufferRun) -> f64| {
            let other = runs.get(name).map(figure).filter(|other| *other > 0.0)?;
            Some(figure(run) / other)
        };
        Self {
            hit_points_below_read_only: runs.get("read-only").map(|other| other.hit_percent - run.hit_percent),
            p99_over_read_only: against("read-only", |run| run.p99_micros),
            p99_over_read_only_beside: against("read-only-beside", |run| run.p99_micros),
            hits_over_two_phase: against("two-phase", |run| run.hit_percent),
            worst_hit_percent: run.worst_hit_percent,
            reads_over_two_phase: against("two-phase", |run| run.reads_at_any_moment),
            reads_over_leveled: against("leveled", |run| run.reads_at_any_moment),
            blocks_over_two_phase: against("two-phase", |run| run.blocks_read_per_read),
            written_over_two_phase: against("two-phase", |run| run.write_amplification),
        }
    }
}

/// All that the experiment showed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct BufferReport {
    /// Rows of the table.
    pub rows: u64,
    /// Bytes of the block cache, for data blocks.
    pub cache_bytes: u64,
    /// By regime, workload and contender.
    pub runs: BTreeMap<String, BTreeMap<String, BTreeMap<String, BufferRun>>>,
    /// Each beside the others, by regime, workload and contender.
    pub comparisons: BTreeMap<String, BTreeMap<String, BTreeMap<String, Comparison>>>,
    /// Contenders in the order in which they ran.
    pub contenders: Vec<String>,
}

/// What of a second is drawn: the name in the file's, the axis, and the figure.
type Drawn = (&'static str, &'static str, fn(&Second) -> f64);

const DRAWN: [Drawn; 3] = [
    ("hits", "blocks found in the cache, %", |second| second.hit_percent),
    ("reads", "reads per second", |second| second.reads as f64),
    ("invalidated", "cached blocks made useless per second", |second| second.invalidated.iter().sum::<u64>() as f64),
];

impl BufferReport {
    pub(super) fn add(&mut self, tell: bool, regime: Regime, workload: Workload, name: &str, run: BufferRun) {
        if tell {
            eprintln!("  {} {}", cell_name(regime, workload), run.line(name));
        }
        if !self.contenders.iter().any(|known| known == name) {
            self.contenders.push(name.to_owned());
        }
        let workloads = self.runs.entry(regime.name().to_owned()).or_default();
        let runs = workloads.entry(workload.name().to_owned()).or_default();
        runs.insert(name.to_owned(), run);
        let compared = runs.iter().map(|(name, run)| (name.clone(), Comparison::of(run, runs))).collect();
        let workloads = self.comparisons.entry(regime.name().to_owned()).or_default();
        workloads.insert(workload.name().to_owned(), compared);
    }

    /// The report as a person reads it.
    pub fn table(&self) -> String {
        let mut out = format!(
            "compaction buffer: {} rows of {ROW_BYTES} bytes, cache {:.1} MB, {UPDATES_PER_SECOND} updates a second\n",
            self.rows,
            self.cache_bytes as f64 / 1e6
        );
        for (regime, workloads) in &self.runs {
            for (workload, runs) in workloads {
                out += &format!("  {regime}, {workload}\n");
                for (name, run) in self.in_order(runs) {
                    out += &format!("    {}\n", run.line(name));
                    if run.rewritten_percent_per_second.len() > 1 {
                        out += &format!("    {:<15} {}\n", "", run.rates());
                    }
                }
            }
        }
        out
    }

    fn in_order<'a>(&'a self, runs: &'a BTreeMap<String, BufferRun>) -> impl Iterator<Item = (&'a str, &'a BufferRun)> {
        self.contenders.iter().filter_map(|name| Some((name.as_str(), runs.get(name)?)))
    }

    /// Plots of hit ratios, of reads and of cached blocks made useless over time, for each regime and workload.
    pub(crate) fn plots(&self) -> Vec<NamedPlot> {
        let all = self
            .runs
            .iter()
            .flat_map(|(regime, workloads)| workloads.iter().map(move |(workload, runs)| (regime, workload, runs)));
        all.flat_map(|(regime, workload, runs)| {
            DRAWN.map(|(what, axis, value)| {
                let series = self.in_order(runs).enumerate().map(|(colour, (name, run))| {
                    let points = run.seconds.iter().enumerate().map(|(at, second)| (at as f64 + 1.0, value(second)));
                    Series { name: name.to_owned(), points: points.collect(), stroke: Stroke::Solid, colour }
                });
                let plot = LinePlot {
                    title: format!("Latest {workload}, {regime}"),
                    note: format!("{UPDATES_PER_SECOND} updates/s of {ROW_BYTES} bytes, free-running reads"),
                    x: Axis::linear("seconds"),
                    y: Axis::linear(axis),
                    series: series.collect(),
                };
                (format!("buffer-{regime}-{workload}-{what}"), plot.to_svg())
            })
        })
        .collect()
    }
}
