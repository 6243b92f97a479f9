//! Figure 10 of the paper: what reads cost under D-opt when they are not those that it was made for.
//!
//! 1. D-opt is made and its table loaded as for figure 8, beside one of rows; both get the inserts and updates of HW.
//! 2. *Vertical shift*: the rows that Q2a and Q2b ask for are older by an offset.
//! 3. *Horizontal shift*: the columns of Q3 lie further left by an offset.
//!
//! Both tables answer the same reads in turns.

use std::path::Path;
use std::time::Instant;

use mycelium_engine::ReadCounters;
use mycelium_engine::advisor::Design;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};

use super::LaserSettings;
use super::hybrid::{D_OPT, Hybrid, Run};
use super::table::LaserTable;
use super::workload::{Operation, Query, SLICES, aged, scan};
use crate::store::Result;

/// Rows at scale 1.
const ROWS: u64 = LaserSettings::HYBRID_ROWS;
/// Steps of the vertical shift, a tenth of all time each.
const AGE_STEPS: u32 = 8;
/// Columns of a step of the horizontal shift.
const COLUMN_STEP: usize = 2;
/// Scans at each offset.
const SCANS: u64 = 3;

/// All that the experiment showed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RobustnessReport {
    /// Columns besides the key.
    pub columns: usize,
    /// Rows loaded before the workload.
    pub loaded_rows: u64,
    /// D-opt. Columns count from 0.
    pub design: String,
    /// Figure 10a: offsets of the time since insertion.
    pub vertical: Vec<Shift>,
    /// Figure 10b: offsets in columns.
    pub horizontal: Vec<Shift>,
    /// The dearest offset of Q3 over none, in blocks.
    pub worst_scan_over_unshifted: f64,
}

/// One query at one offset under one design.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Shift {
    /// The design.
    pub design: String,
    /// The query.
    pub query: Query,
    /// The offset.
    pub offset: f64,
    /// Mean latency in microseconds.
    pub mean_us: f64,
    /// Data blocks touched by each read on average, cached or not.
    pub blocks: f64,
}

/// Runs both shifts.
pub(super) fn run(settings: &LaserSettings, directory: &Path) -> Result<RobustnessReport> {
    let hybrid = Hybrid::new(settings, ROWS);
    let advice = hybrid.advice(&directory.join("trace"))?.d_opt;
    let rows = Design::rows(settings.columns, advice.design.levels.len())?;
    let mut tables = Vec::new();
    for (name, design) in [(D_OPT, &advice.design), ("rows", &rows)] {
        settings.tell(format_args!("{name}: load, inserts and updates"));
        let mut table = hybrid.load(&directory.join(name), design)?;
        let is_write = |operation: &Operation| matches!(operation, Operation::Insert { .. } | Operation::Update { .. });
        for slice in 0..SLICES {
            let mut operations = hybrid.workload.slice(slice);
            operations.retain(is_write);
            Run::default().apply(&mut table, &operations, settings.columns)?;
        }
        tables.push((name, table));
    }
    settings.tell(format_args!("shifted reads"));
    let vertical = vertical(&hybrid, &tables)?;
    let horizontal = horizontal(&hybrid, &tables)?;
    for (_, table) in tables {
        table.remove()?;
    }
    let blocks = |offset: Option<f64>| {
        let ours = horizontal.iter().filter(|shift| shift.design == D_OPT);
        ours.filter(|shift| offset.is_none_or(|offset| shift.offset == offset)).map(|it| it.blocks).fold(0.0, f64::max)
    };
    Ok(RobustnessReport {
        columns: settings.columns,
        loaded_rows: hybrid.workload.loaded,
        design: advice.design.to_string(),
        worst_scan_over_unshifted: blocks(None) / blocks(Some(0.0)),
        vertical,
        horizontal,
    })
}

type Named = (&'static str, LaserTable);

fn vertical(hybrid: &Hybrid<'_>, tables: &[Named]) -> Result<Vec<Shift>> {
    let workload = &hybrid.workload;
    let stored = workload.loaded + workload.inserts();
    let mut shifts = Vec::new();
    for step in 0..=AGE_STEPS {
        let offset = f64::from(step) / 10.0;
        for query in [Query::Q2a, Query::Q2b] {
            let mut rng = SmallRng::seed_from_u64(workload.seed);
            let indexes: Vec<u64> =
                (0..workload.points()).map(|_| aged(query.mean_age() - offset, stored, &mut rng)).collect();
            let projection = query.projection(workload.columns);
            shifts.extend(measured(tables, (query, offset), workload.points(), |table, at, counters| {
                table.point(indexes[at], &projection, counters)
            })?);
        }
    }
    Ok(shifts)
}

fn horizontal(hybrid: &Hybrid<'_>, tables: &[Named]) -> Result<Vec<Shift>> {
    let workload = &hybrid.workload;
    let projection = Query::Q3.projection(workload.columns);
    let mut rng = SmallRng::seed_from_u64(workload.seed);
    let ranges: Vec<Operation> = (0..SCANS).map(|_| scan(Query::Q3, &mut rng)).collect();
    let mut shifts = Vec::new();
    for offset in (0..projection[0]).step_by(COLUMN_STEP) {
        let shifted: Vec<usize> = projection.iter().map(|column| column - offset).collect();
        shifts.extend(measured(tables, (Query::Q3, offset as f64), SCANS, |table, at, counters| match ranges[at] {
            Operation::Scan { from, to, .. } => table.scan((from, to), &shifted, Query::Q3.aggregate(), counters),
            other => Err(format!("{other:?} is no scan").into()),
        })?);
    }
    Ok(shifts)
}

/// What `count` reads of each table cost. They must give the same answers.
fn measured(
    tables: &[Named],
    (query, offset): (Query, f64),
    count: u64,
    read: impl Fn(&LaserTable, usize, &mut ReadCounters) -> Result<i64>,
) -> Result<Vec<Shift>> {
    let mut sums = vec![(0.0, ReadCounters::default()); tables.len()];
    for at in 0..count as usize {
        let mut first = None;
        for ((name, table), (seconds, counters)) in tables.iter().zip(&mut sums) {
            let started = Instant::now();
            let answer = read(table, at, counters)?;
            *seconds += started.elapsed().as_secs_f64();
            if *first.get_or_insert(answer) != answer {
                return Err(format!("{name} answers {} with {answer}, not {first:?}", query.name()).into());
            }
        }
    }
    let shift = |((name, _), (seconds, counters)): (&Named, (f64, ReadCounters))| Shift {
        design: (*name).to_owned(),
        query,
        offset,
        mean_us: seconds * 1e6 / count as f64,
        blocks: (counters.blocks_read + counters.block_cache_hits) as f64 / count as f64,
    };
    Ok(tables.iter().zip(sums).map(shift).collect())
}

impl RobustnessReport {
    /// The report as a person reads it.
    pub fn table(&self) -> String {
        let mut out = format!(
            "laser-robustness: {} rows of {} columns; the dearest shift of Q3 reads {:.2} times the blocks of none\n",
            self.loaded_rows, self.columns, self.worst_scan_over_unshifted
        );
        for line in self.design.lines() {
            out += &format!("  {D_OPT} {line}\n");
        }
        for (name, shifts) in [("older by", &self.vertical), ("to the left by", &self.horizontal)] {
            for shift in shifts {
                out += &format!(
                    "  {:<5} {:<4} {name} {:>4}  {:>10.1} us  {:>9.2} blocks\n",
                    shift.design,
                    shift.query.name(),
                    shift.offset,
                    shift.mean_us,
                    shift.blocks
                );
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_table_is_read_at_every_offset() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let settings = LaserSettings { scale: 0.004, progress: false, ..LaserSettings::new(directory.path()) };
        let report = run(&settings, directory.path()).expect("experiment");
        assert_eq!((report.vertical.len(), report.horizontal.len()), (9 * 2 * 2, 14 * 2));
        assert!(report.worst_scan_over_unshifted >= 1.0, "{}", report.table());
        let rows: Vec<f64> =
            report.horizontal.iter().filter(|shift| shift.design == "rows").map(|shift| shift.blocks).collect();
        assert!(rows.windows(2).all(|pair| pair[0] == pair[1]), "rows are the same wherever the columns lie: {rows:?}");
    }
}
