//! Figure 7 of the paper: is what the cost model says of reads, scans and compactions what happens?
//!
//! 1. The narrow table of 30 columns (fanout 2, 8 levels) in groups of 1, 2, 3, 6, 15 and 30 columns, and the wide one
//!    of 100 (fanout 10, 5 levels) in groups of 1, 4, 10 and 100, each the same at every level below 0.
//! 2. Each table is loaded. What its flushes and compactions wrote, in blocks a row, stands beside equation 4.
//! 3. It is opened again, so that nothing is cached. Points read the first `k` columns of rows drawn uniformly, scans
//!    the same of a tenth of the keys. Data blocks read from disk stand beside equation 5, where a level counts with
//!    the share of the rows that it holds (a read of an existing row stops where it finds it), and equation 6, with the
//!    rows that each level holds of the range.
//! 4. Correlations ([`crate::statistics`]) over all pairs of group width and `k` say how far model and measure agree
//!    about which of two is dearer. That is what a design is chosen by; what a block costs in time, the model does not
//!    say.

use std::path::Path;
use std::time::Instant;

use mycelium_base::ColumnSet;
use mycelium_engine::ReadCounters;
use mycelium_engine::advisor::Design;
use mycelium_engine::advisor::cost::laser::{Tree, range_cost, required_groups, write_amplification};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use super::LaserSettings;
use super::table::{Aggregate, LaserTable, TreeShape};
use crate::statistics::{pair_correlation, rank_correlation};
use crate::store::Result;

/// Bytes of a block.
const BLOCK_BYTES: f64 = 4096.0;
/// Point reads of a cell at scale 1.
const POINTS: f64 = 2_000.0;
/// Scans of a cell.
const SCANS: u64 = 3;
/// The share of the keys that a scan selects.
const SELECTED: f64 = 0.1;

/// One of the paper's tables.
struct Family {
    columns: usize,
    fanout: f64,
    levels: usize,
    rows: u64,
    last_share: f64,
    widths: &'static [usize],
    projections: &'static [usize],
}

const FAMILIES: [Family; 2] = [
    Family {
        columns: 30,
        fanout: 2.0,
        levels: 8,
        rows: 400_000,
        last_share: 0.5,
        widths: &[1, 2, 3, 6, 15, 30],
        projections: &[1, 2, 3, 6, 10, 15, 20, 25, 30],
    },
    Family {
        columns: 100,
        fanout: 10.0,
        levels: 5,
        rows: 200_000,
        last_share: 0.25,
        widths: &[1, 4, 10, 100],
        projections: &[1, 4, 10, 20, 40, 60, 80, 100],
    },
];

/// All that the experiment showed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CostModelReport {
    /// The narrow and the wide table.
    pub tables: Vec<CostTable>,
    /// The least of all correlations of blocks read, points and scans, of both tables and by both measures.
    pub least_read_correlation: f64,
}

/// One table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CostTable {
    /// Columns besides the key.
    pub columns: usize,
    /// Rows loaded.
    pub rows: u64,
    /// Writes by the width of groups.
    pub writes: Vec<WriteCell>,
    /// Point reads by the width of groups and of projections.
    pub points: Vec<CostCell>,
    /// Scans alike.
    pub scans: Vec<CostCell>,
    /// Predicted and measured blocks of point reads.
    pub points_correlation: Correlation,
    /// Of scans.
    pub scans_correlation: Correlation,
    /// Predicted and measured blocks written.
    pub writes_correlation: Correlation,
}

/// What was predicted and measured of a read.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct CostCell {
    /// Columns of a group.
    pub width: usize,
    /// Columns of the projection.
    pub projection: usize,
    /// Blocks by the model.
    pub predicted: f64,
    /// Blocks read from disk, a read.
    pub measured: f64,
    /// Mean latency in microseconds.
    pub mean_us: f64,
}

/// What was predicted and measured of writes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct WriteCell {
    /// Columns of a group.
    pub width: usize,
    /// Blocks written for an insert, by equation 4.
    pub predicted: f64,
    /// Blocks' worth of bytes that flushes and compactions wrote for an insert.
    pub measured: f64,
    /// Seconds of flushes and compactions.
    pub seconds: f64,
}

/// How far the model and the measure agree about which of two is dearer; 1 is throughout.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Correlation {
    /// Spearman's, where what is within 10 % of each other has one rank.
    pub rank: f64,
    /// Over all pairs whose predictions are more than 10 % apart (Kendall's).
    pub pairs: f64,
}

impl Correlation {
    /// Of predicted and measured values. What all have the same rank agrees with nothing: 0.
    fn of(values: impl Iterator<Item = (f64, f64)>) -> Self {
        let (predicted, measured): (Vec<f64>, Vec<f64>) = values.unzip();
        Self {
            rank: rank_correlation(&predicted, &measured).unwrap_or(0.0),
            pairs: pair_correlation(&predicted, &measured).unwrap_or(0.0),
        }
    }

    fn least(self) -> f64 {
        self.rank.min(self.pairs)
    }
}

/// Runs both tables.
pub(super) fn run(settings: &LaserSettings, directory: &Path) -> Result<CostModelReport> {
    let tables = FAMILIES.iter().map(|family| family.run(settings, directory)).collect::<Result<Vec<_>>>()?;
    let correlations = tables.iter().flat_map(|table| [table.points_correlation, table.scans_correlation]);
    let least_read_correlation = correlations.map(Correlation::least).fold(1.0, f64::min);
    Ok(CostModelReport { tables, least_read_correlation })
}

impl Family {
    fn run(&self, settings: &LaserSettings, directory: &Path) -> Result<CostTable> {
        let rows = settings.rows(self.rows);
        let shape = TreeShape {
            direct_io: true,
            ..TreeShape::of(self.columns, self.levels, self.fanout, rows, self.last_share)
        };
        let (mut writes, mut points, mut scans) = (Vec::new(), Vec::new(), Vec::new());
        let mut model = None;
        // Rows come first: the model takes its B from them.
        for &width in self.widths.iter().rev() {
            let design = Design::fixed_width(self.columns, self.levels, width)?;
            let path = directory.join(format!("{}-{width}", self.columns));
            let table = LaserTable::load(&path, &shape, &design, rows)?;
            let tree = match model {
                Some(tree) => tree,
                None => *model.insert(table.table.advise(Some(&[]))?.tree),
            };
            let written = Subject { table: &table, design: &design, tree, width, rows }.writes();
            settings.tell(format_args!("{} columns in groups of {width}: {}", self.columns, written.line()));
            writes.push(written);
            let table = table.reopen(0)?;
            let subject = Subject { table: &table, design: &design, tree, width, rows };
            let reads = (POINTS * settings.scale.min(1.0)).max(100.0) as u64;
            for &projection in self.projections {
                points.push(subject.points(projection, reads, settings.seed)?);
                scans.push(subject.scans(projection, settings.seed)?);
            }
            table.remove()?;
        }
        let of = |cells: &[CostCell]| Correlation::of(cells.iter().map(|cell| (cell.predicted, cell.measured)));
        Ok(CostTable {
            columns: self.columns,
            rows,
            points_correlation: of(&points),
            scans_correlation: of(&scans),
            writes_correlation: Correlation::of(writes.iter().map(|cell| (cell.predicted, cell.measured))),
            writes,
            points,
            scans,
        })
    }
}

/// A loaded table and what the model knows of it.
struct Subject<'a> {
    table: &'a LaserTable,
    design: &'a Design,
    tree: Tree,
    width: usize,
    rows: u64,
}

impl Subject<'_> {
    fn writes(&self) -> WriteCell {
        let metrics = self.table.database_metrics();
        let bytes = metrics.flush_bytes + metrics.compaction_written_by_level.iter().sum::<u64>();
        let groups: Vec<usize> = self.design.levels.iter().map(Vec::len).collect();
        WriteCell {
            width: self.width,
            predicted: write_amplification(&self.tree, &groups),
            measured: bytes as f64 / BLOCK_BYTES / self.rows as f64,
            seconds: (metrics.flush_stages.total + metrics.compaction_stages.total) as f64 / 1e9,
        }
    }

    /// The rows of every level of the design.
    fn rows_by_level(&self) -> Vec<f64> {
        let mut rows: Vec<f64> = self.table.rows_by_level().into_iter().map(|rows| rows as f64).collect();
        rows.resize(self.design.levels.len(), 0.0);
        rows
    }

    fn points(&self, projection: usize, reads: u64, seed: u64) -> Result<CostCell> {
        let columns: Vec<usize> = (1..=projection).collect();
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut counters = ReadCounters::default();
        let started = Instant::now();
        for _ in 0..reads {
            self.table.point(rng.random_range(0..self.rows), &columns, &mut counters)?;
        }
        let mean_us = started.elapsed().as_secs_f64() * 1e6 / reads as f64;
        let (wanted, rows) = (ColumnSet::first(projection), self.rows_by_level());
        let total: f64 = rows.iter().sum();
        let groups = |level: &Vec<ColumnSet>| required_groups(level, &wanted) as f64;
        let predicted = self.design.levels.iter().zip(&rows).map(|(level, rows)| groups(level) * rows / total).sum();
        let measured = counters.blocks_read as f64 / reads as f64;
        Ok(CostCell { width: self.width, projection, predicted, measured, mean_us })
    }

    fn scans(&self, projection: usize, seed: u64) -> Result<CostCell> {
        let columns: Vec<usize> = (1..=projection).collect();
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut counters = ReadCounters::default();
        let started = Instant::now();
        for _ in 0..SCANS {
            let keys = u64::MAX as f64;
            let from = rng.random_range(0.0..1.0 - SELECTED) * keys;
            let range = (from as u64, (from + SELECTED * keys) as u64);
            self.table.scan(range, &columns, Aggregate::Maxima, &mut counters)?;
        }
        let mean_us = started.elapsed().as_secs_f64() * 1e6 / SCANS as f64;
        let selected: Vec<f64> = self.rows_by_level().into_iter().map(|rows| rows * SELECTED).collect();
        let predicted = range_cost(&self.tree, &self.design.levels, &ColumnSet::first(projection), &selected);
        let measured = counters.blocks_read as f64 / SCANS as f64;
        Ok(CostCell { width: self.width, projection, predicted, measured, mean_us })
    }
}

impl WriteCell {
    fn line(&self) -> String {
        format!(
            "writes {:>8.3} blocks a row by the model, {:>8.3} measured, {:>6.1} s",
            self.predicted, self.measured, self.seconds
        )
    }
}

impl CostModelReport {
    /// The report as a person reads it.
    pub fn table(&self) -> String {
        let mut out =
            format!("laser-cost-model: the least correlation of blocks read is {:.3}\n", self.least_read_correlation);
        for table in &self.tables {
            let of = |correlation: Correlation| format!("{:.3} (pairs {:.3})", correlation.rank, correlation.pairs);
            out += &format!(
                "  {} rows of {} columns: rank correlation of points {}, scans {}, writes {}\n",
                table.rows,
                table.columns,
                of(table.points_correlation),
                of(table.scans_correlation),
                of(table.writes_correlation)
            );
            table.writes.iter().for_each(|cell| out += &format!("    groups of {:<3} {}\n", cell.width, cell.line()));
            for (name, cells) in [("points", &table.points), ("scans", &table.scans)] {
                for cell in cells {
                    out += &format!(
                        "    groups of {:<3} {name:<6} of {:>3} columns {:>10.2} blocks by the model, {:>10.2} read, {:>10.1} us\n",
                        cell.width, cell.projection, cell.predicted, cell.measured, cell.mean_us
                    );
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_tree_follows_the_model() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let settings = LaserSettings { scale: 0.02, progress: false, ..LaserSettings::new(directory.path()) };
        let report = run(&settings, directory.path()).expect("experiment");
        let narrow = &report.tables[0];
        assert_eq!((narrow.writes.len(), narrow.points.len(), narrow.scans.len()), (6, 54, 54));
        assert!(report.least_read_correlation > 0.5, "{}", report.table());
        let points = |width| narrow.points.iter().filter(move |cell| cell.width == width);
        let most = |width| points(width).map(|cell| cell.measured).fold(0.0, f64::max);
        assert!(most(1) > 10.0 && most(30) < 4.0, "{}", report.table());
    }
}
