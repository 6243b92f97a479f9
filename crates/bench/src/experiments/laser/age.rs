//! Figure 2 of the paper: how old the keys of each level are, by the file of a level that goes down first.
//!
//! 1. For each priority a table of rows of 5 levels (fanout 2) gets rows until all levels are full.
//! 2. Every row is read, the youngest first; the engine's trace tells which level served it.
//! 3. A tree sorted by age would hold the youngest rows in level 0, as many as it holds, the next in level 1, and so
//!    on. The share of the rows that lie where such a tree would have them says how well a priority keeps keys of one
//!    age together.
//!
//! The paper's two are RocksDB's `kByCompensatedSize` (the largest file) and `kOldestSmallestSeqFirst` (the oldest).
//! The engine's default, which the paper does not have, is the file that overlaps least below.

use std::path::Path;

use mycelium_engine::advisor::Design;
use mycelium_engine::{PickPriority, ReadCounters};
use serde::{Deserialize, Serialize};

use super::LaserSettings;
use super::table::{LaserTable, TreeShape};
use crate::store::Result;

/// Rows at scale 1: 31 times what level 0 holds.
const ROWS: u64 = 310_000;
const LEVELS: usize = 5;
/// Ages that are told apart.
const BUCKETS: u64 = 50;

const PRIORITIES: [(&str, PickPriority); 3] = [
    ("largest file", PickPriority::LargestFirst),
    ("oldest file", PickPriority::OldestFirst),
    ("least overlap", PickPriority::MinOverlap),
];

/// All that the experiment showed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AgeReport {
    /// Rows of each table.
    pub rows: u64,
    /// Columns besides the key.
    pub columns: usize,
    /// The paper's two priorities and ours.
    pub priorities: Vec<PriorityAges>,
}

/// One priority.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PriorityAges {
    /// Which file goes down first.
    pub priority: String,
    /// Rows that lie where a tree sorted by age would have them, in percent.
    pub in_place_percent: f64,
    /// The levels.
    pub levels: Vec<LevelAges>,
}

/// One level.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LevelAges {
    /// The level.
    pub level: usize,
    /// Its rows.
    pub rows: u64,
    /// Of its rows, the share in each of as many equal spans of time since insertion, the oldest first, in percent.
    pub percent_by_age: Vec<f64>,
}

/// Runs all priorities.
pub(super) fn run(settings: &LaserSettings, directory: &Path) -> Result<AgeReport> {
    let (rows, columns) = (settings.rows(ROWS), settings.columns);
    let shape = TreeShape::of(columns, LEVELS, 2.0, rows, 16.0 / 31.0);
    let rows = shape.rows_filling_level0(rows);
    let mut priorities = Vec::new();
    for (name, priority) in PRIORITIES {
        let shape = TreeShape { priority, ..shape.clone() };
        let ages = ages(name, &shape, rows, &directory.join(name.replace(' ', "-")))?;
        settings.tell(format_args!("{name:<13} {:.1} % in place", ages.in_place_percent));
        priorities.push(ages);
    }
    Ok(AgeReport { rows, columns, priorities })
}

fn ages(name: &str, shape: &TreeShape, rows: u64, directory: &Path) -> Result<PriorityAges> {
    let mut table = LaserTable::create(directory, shape, &Design::rows(shape.columns, LEVELS)?)?;
    (0..rows).try_for_each(|index| table.insert(index))?;
    let by_bucket = rows_by_bucket_and_level(&table, rows)?;
    table.remove()?;
    let levels = (0..LEVELS).map(|level| level_ages(level, &by_bucket)).collect();
    Ok(PriorityAges { priority: name.to_owned(), in_place_percent: in_place_percent(&by_bucket), levels })
}

/// For each span of time, the oldest first, the rows in each level.
fn rows_by_bucket_and_level(table: &LaserTable, rows: u64) -> Result<Vec<[u64; LEVELS]>> {
    let mut before = table.points_by_level()?;
    let mut buckets = Vec::new();
    for bucket in 0..BUCKETS {
        for index in rows * bucket / BUCKETS..rows * (bucket + 1) / BUCKETS {
            table.point(index, &[1], &mut ReadCounters::default())?;
        }
        let after = table.points_by_level()?;
        let served = |level| after.get(&level).unwrap_or(&0) - before.get(&level).unwrap_or(&0);
        buckets.push(std::array::from_fn(served));
        before = after;
    }
    Ok(buckets)
}

fn level_ages(level: usize, buckets: &[[u64; LEVELS]]) -> LevelAges {
    let rows: u64 = buckets.iter().map(|bucket| bucket[level]).sum();
    let percent = |bucket: &[u64; LEVELS]| bucket[level] as f64 * 100.0 / rows.max(1) as f64;
    LevelAges { level, rows, percent_by_age: buckets.iter().map(percent).collect() }
}

/// Going from the youngest rows to the oldest, each level in turn takes as many as it holds. Within a span of time,
/// which level has which row is not known: as many as both trees have in a level count as in place.
fn in_place_percent(buckets: &[[u64; LEVELS]]) -> f64 {
    let mut left: [u64; LEVELS] = std::array::from_fn(|level| buckets.iter().map(|bucket| bucket[level]).sum());
    let all: u64 = left.iter().sum();
    let mut in_place = 0;
    for bucket in buckets.iter().rev() {
        let mut rows: u64 = bucket.iter().sum();
        for level in 0..LEVELS {
            let sorted = rows.min(left[level]);
            (left[level], rows) = (left[level] - sorted, rows - sorted);
            in_place += sorted.min(bucket[level]);
        }
    }
    in_place as f64 * 100.0 / all.max(1) as f64
}

impl LevelAges {
    /// The time since insertion below which a share of its rows lies; 1 is now.
    fn quantile(&self, share: f64) -> f64 {
        let mut below = 0.0;
        let found = self.percent_by_age.iter().position(|percent| {
            below += percent;
            below >= share * 100.0
        });
        found.map_or(1.0, |bucket| (bucket as f64 + 0.5) / self.percent_by_age.len() as f64)
    }
}

impl AgeReport {
    /// The report as a person reads it.
    pub fn table(&self) -> String {
        let mut out = format!("laser-age: {} rows, times since insertion from 0 (the first) to 1 (now)\n", self.rows);
        for priority in &self.priorities {
            out += &format!("  {:<13} {:>5.1} % of the rows in place\n", priority.priority, priority.in_place_percent);
            for level in &priority.levels {
                let [low, middle, high] = [0.1, 0.5, 0.9].map(|share| level.quantile(share));
                out += &format!(
                    "    L{} {:>8} rows  a tenth below {low:.2}, half below {middle:.2}, nine tenths below {high:.2}\n",
                    level.level, level.rows
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
    fn a_tree_sorted_by_age_is_all_in_place() {
        let sorted = [[0, 0, 0, 0, 10], [0, 0, 0, 4, 6], [0, 0, 8, 2, 0], [5, 5, 0, 0, 0]];
        assert_eq!(in_place_percent(&sorted), 100.0);
        let reversed = [[10, 0, 0, 0, 0], [0, 0, 0, 0, 10]];
        assert_eq!(in_place_percent(&reversed), 0.0);
    }

    #[test]
    fn the_upper_levels_of_a_small_tree_hold_the_young() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let settings = LaserSettings { scale: 0.02, progress: false, ..LaserSettings::new(directory.path()) };
        let report = run(&settings, directory.path()).expect("experiment");
        for priority in &report.priorities {
            assert_eq!(priority.levels.iter().map(|level| level.rows).sum::<u64>(), report.rows, "{priority:?}");
            let middle: Vec<f64> = priority.levels.iter().map(|level| level.quantile(0.5)).collect();
            assert!(middle[0] > 0.9 && middle[0] > middle[4], "{middle:?}");
        }
    }
}
