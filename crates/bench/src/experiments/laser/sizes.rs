//! §4.1 of the paper: keys are stored beside the values of every column group. What that costs, and what compression
//! and delta-coded keys take off again.
//!
//! 1. A table in the groups that the reads of HW tell apart, at every level below 0, is loaded and compacted: with
//!    whole keys and uncompressed blocks, with each of delta-coded keys (within a block) and LZ4 alone, and with both;
//!    and with the same groups as columns, encoded by what they hold.
//! 2. Beside it stand rows, and the keys and values as a column store keeps them: 8 bytes for the key and 4 for each
//!    value, computed, not stored.
//!
//! The values are uniformly distributed 32-bit integers, which do not compress; the paper does not say what its were.

use std::path::Path;

use mycelium_engine::Compression;
use mycelium_engine::advisor::Design;
use serde::{Deserialize, Serialize};

use super::LaserSettings;
use super::hybrid::groups_of_reads;
use super::table::{LaserTable, Rows, TreeShape};
use crate::store::Result;

/// Rows at scale 1.
const ROWS: u64 = 400_000;
const LEVELS: usize = 8;

/// All that the experiment showed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SizeReport {
    /// Rows of each table.
    pub rows: u64,
    /// Columns besides the key.
    pub columns: usize,
    /// Groups of every level below 0.
    pub groups: Vec<String>,
    /// From the largest on, as the paper has them.
    pub sizes: Vec<SizeFigures>,
}

/// One way to store the rows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SizeFigures {
    /// How.
    pub name: String,
    /// Bytes of all SSTs.
    pub bytes: u64,
    /// The same over those of the keys and values.
    pub over_pure_columns: f64,
}

/// Runs all ways.
pub(super) fn run(settings: &LaserSettings, directory: &Path) -> Result<SizeReport> {
    let (rows, columns) = (settings.rows(ROWS), settings.columns);
    let mut grouped = Design::rows(columns, LEVELS)?;
    grouped.levels.iter_mut().skip(1).for_each(|groups| *groups = groups_of_reads(columns));
    let columnar = grouped.clone().with_columnar(|level, _| level > 0);
    let whole_rows = Design::rows(columns, LEVELS)?;
    let pure = rows * Rows { columns }.bytes();
    let delta = TreeShape::of(columns, LEVELS, 2.0, rows, 0.5);
    let whole = TreeShape { restart_interval: 1, ..delta.clone() };
    let lz4 = |shape: &TreeShape| TreeShape { compression: Compression::Lz4, ..shape.clone() };
    let ways = [
        ("groups, whole keys", &grouped, whole.clone()),
        ("groups, whole keys, LZ4", &grouped, lz4(&whole)),
        ("groups, delta-coded keys", &grouped, delta.clone()),
        ("groups, delta-coded keys, LZ4", &grouped, lz4(&delta)),
        ("columnar groups", &columnar, delta.clone()),
        ("rows, delta-coded keys, LZ4", &whole_rows, lz4(&delta)),
    ];
    let mut sizes = Vec::new();
    let over = |bytes: u64| bytes as f64 / pure as f64;
    for (name, design, shape) in ways {
        let table = LaserTable::load(&directory.join("table"), &shape, design, rows)?;
        let bytes = table.sst_bytes();
        table.remove()?;
        sizes.push(SizeFigures { name: name.to_owned(), bytes, over_pure_columns: over(bytes) });
        settings.tell(format_args!("{name:<30} {:>7.1} MB", bytes as f64 / 1e6));
    }
    sizes.push(SizeFigures { name: "pure columns (computed)".to_owned(), bytes: pure, over_pure_columns: 1.0 });
    let groups = groups_of_reads(columns).iter().map(ToString::to_string).collect();
    Ok(SizeReport { rows, columns, groups, sizes })
}

impl SizeReport {
    /// The report as a person reads it.
    pub fn table(&self) -> String {
        let mut out = format!(
            "laser-sizes: {} rows of {} columns in the groups {}\n",
            self.rows,
            self.columns,
            self.groups.join(" | ")
        );
        for size in &self.sizes {
            out += &format!(
                "  {:<30} {:>9.1} MB  {:.2} times the keys and values\n",
                size.name,
                size.bytes as f64 / 1e6,
                size.over_pure_columns
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delta_coded_keys_save_bytes_and_compression_costs_none() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let settings = LaserSettings { scale: 0.02, progress: false, ..LaserSettings::new(directory.path()) };
        let report = run(&settings, directory.path()).expect("experiment");
        let bytes = |name: &str| report.sizes.iter().find(|size| size.name == name).expect("measured").bytes;
        let raw = bytes("groups, whole keys");
        // The keys are random, and LZ4 finds next to nothing in such rows; smaller files fill levels differently, by
        // which a hundredth may go either way.
        assert!(
            bytes("groups, delta-coded keys") < raw && bytes("groups, whole keys, LZ4") <= raw + raw / 100,
            "{}",
            report.table()
        );
        let both = bytes("groups, delta-coded keys, LZ4");
        assert!(both < raw && bytes("pure columns (computed)") < both, "{}", report.table());
    }
}
