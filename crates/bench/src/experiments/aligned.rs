//! Aligned compaction off and on (Kim §IV, figure 10): random puts of 1,024-byte values without compression.
//!
//! 1. The paper's tree: 64 MiB files, level 1 of 256 MiB, 200 million puts over 200 million keys, of which 126 million
//!    are drawn: 130 GB, which at fanout 2 fill nine levels (of 137 GB) to 95 %. Ours keeps every proportion and scales
//!    the file: level 1 is four files, and the number of puts follows from filling nine levels at fanout 2 as far.
//! 2. For fanout 2 and 10, off and on, the same puts from the same seed.
//! 3. Write amplification is bytes of flushes and compactions, by output level, over bytes put; the log, equal for all,
//!    is left out as in the paper.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use mycelium_engine::TableOptions;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use super::{Shape, Stepped};
use crate::keys::{KEY_LEN, KeyOrder, ValueKind, Values, key};
use crate::store::Result;

const VALUE_LEN: usize = 1024;

/// How far the levels are filled.
const FILLED: f64 = 0.95;

/// What is run.
#[derive(Clone, Debug)]
pub struct AlignedSettings {
    /// Where databases are made and removed.
    pub directory: PathBuf,
    /// Bytes of a file; everything else follows.
    pub file_bytes: u64,
    /// Levels that the puts fill at fanout 2, level 0 not counted.
    pub levels: u32,
    /// Seed of the puts.
    pub seed: u64,
    /// Tell on standard error what is running.
    pub progress: bool,
}

impl AlignedSettings {
    /// The scale of the claims: the paper's nine levels of files of 256 KiB, half a gigabyte of data.
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_path_buf(), file_bytes: 256 << 10, levels: 9, seed: 1, progress: true }
    }

    /// Random puts; as many keys are drawn from.
    pub fn puts(&self) -> u64 {
        let full = 4 * self.file_bytes * ((1 << self.levels) - 1);
        // A share of 1 - 1/e of the keys is drawn.
        (full as f64 * FILLED / (1.0 - (-1.0f64).exp()) / (KEY_LEN + VALUE_LEN) as f64) as u64
    }

    /// The tree at a fanout.
    pub fn shape(&self, fanout: f64) -> Shape {
        Shape { file_bytes: self.file_bytes, fanout, level_count: 12 }
    }

    /// Gives every put in turn to `put`; all runs, and the reference, put the same.
    pub fn for_each_put(&self, mut put: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        let values = Values::new(ValueKind::Random, VALUE_LEN);
        let mut rng = SmallRng::seed_from_u64(self.seed);
        let mut value = Vec::new();
        let puts = self.puts();
        for version in 0..puts {
            let index = rng.random_range(0..puts);
            values.fill(index, version, &mut value);
            put(&key(index, KeyOrder::Hashed), &value)?;
        }
        Ok(())
    }

    /// Bytes of all puts.
    pub fn bytes_put(&self) -> u64 {
        self.puts() * (KEY_LEN + VALUE_LEN) as u64
    }
}

/// All that the experiment showed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AlignedReport {
    /// Bytes of a file.
    pub file_bytes: u64,
    /// Puts of each run.
    pub puts: u64,
    /// Fanout 2.
    pub fanout_2: FanoutReport,
    /// Fanout 10.
    pub fanout_10: FanoutReport,
    /// The larger distance of both `on` lines from RocksDB's write amplification, in percent. RocksDB aligns its files
    /// too since 7.8 and cannot be told not to, so that `off` has nothing to stand beside.
    pub distance_to_rocksdb_percent: Option<f64>,
}

/// One fanout.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FanoutReport {
    /// Without aligned compaction.
    pub off: TreeWrites,
    /// With it.
    pub on: TreeWrites,
    /// How much lower the write amplification is with it, in percent.
    pub reduction_percent: f64,
    /// RocksDB's write amplification (its files aligned) at equal settings, where it was measured.
    pub rocksdb: Option<f64>,
}

/// What one run wrote.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TreeWrites {
    /// Bytes written to each level over bytes put; level 0 is the flushes.
    pub by_level: Vec<f64>,
    /// Their sum.
    pub write_amplification: f64,
    /// The deepest level with files.
    pub deepest_level: usize,
    /// Puts a second, all work included.
    pub rate: f64,
}

/// RocksDB's write amplification for a fanout, run by whoever has RocksDB.
pub type Reference<'a> = &'a dyn Fn(&AlignedSettings, f64) -> Result<f64>;

/// Runs both fanouts, off and on, and the reference if there is one.
pub fn run(settings: &AlignedSettings, reference: Option<Reference<'_>>) -> Result<AlignedReport> {
    let fanout_2 = run_fanout(settings, 2.0, reference)?;
    let fanout_10 = run_fanout(settings, 10.0, reference)?;
    let distance = |report: &FanoutReport| {
        report.rocksdb.map(|rocksdb| (report.on.write_amplification / rocksdb - 1.0).abs() * 100.0)
    };
    let distance_to_rocksdb_percent = distance(&fanout_2).zip(distance(&fanout_10)).map(|(a, b)| a.max(b));
    Ok(AlignedReport {
        file_bytes: settings.file_bytes,
        puts: settings.puts(),
        fanout_2,
        fanout_10,
        distance_to_rocksdb_percent,
    })
}

fn run_fanout(settings: &AlignedSettings, fanout: f64, reference: Option<Reference<'_>>) -> Result<FanoutReport> {
    let off = run_tree(settings, fanout, false)?;
    let on = run_tree(settings, fanout, true)?;
    let rocksdb = reference.map(|reference| reference(settings, fanout)).transpose()?;
    let reduction_percent = (1.0 - on.write_amplification / off.write_amplification) * 100.0;
    Ok(FanoutReport { off, on, reduction_percent, rocksdb })
}

fn run_tree(settings: &AlignedSettings, fanout: f64, aligned: bool) -> Result<TreeWrites> {
    let directory = settings.directory.join(format!("aligned-{}", std::process::id()));
    fs::create_dir_all(&directory)?;
    let options = TableOptions { aligned_compaction: aligned, ..TableOptions::default() };
    let mut tree = Stepped::open(&directory, &settings.shape(fanout), 64 << 20, false, options)?;
    let started = Instant::now();
    settings.for_each_put(|key, value| tree.put(key, value))?;
    tree.run_all()?;
    let seconds = started.elapsed().as_secs_f64();
    let metrics = tree.database.metrics();
    let deepest_level = metrics.tables.iter().flat_map(|table| &table.levels).map(|level| level.level).max();
    let put = settings.bytes_put() as f64;
    let mut by_level: Vec<f64> = metrics.compaction_written_by_level.iter().map(|bytes| *bytes as f64 / put).collect();
    by_level.truncate(deepest_level.unwrap_or(0) + 1);
    match by_level.first_mut() {
        Some(level_0) => *level_0 += metrics.flush_bytes as f64 / put,
        None => by_level.push(metrics.flush_bytes as f64 / put),
    }
    let writes = TreeWrites {
        write_amplification: by_level.iter().sum(),
        by_level,
        deepest_level: deepest_level.unwrap_or(0),
        rate: settings.puts() as f64 / seconds,
    };
    if settings.progress {
        let state = if aligned { "on" } else { "off" };
        eprintln!(
            "aligned compaction {state}, fanout {fanout}: write amplification {:.2}, {} levels, {seconds:.0} s",
            writes.write_amplification, writes.deepest_level
        );
    }
    tree.database.close()?;
    fs::remove_dir_all(&directory)?;
    Ok(writes)
}

impl AlignedReport {
    /// The report as a person reads it.
    pub fn table(&self) -> String {
        let mut out =
            format!("aligned compaction: {} puts of 1,024 bytes, files of {} KiB\n", self.puts, self.file_bytes >> 10);
        for (fanout, report) in [(2, &self.fanout_2), (10, &self.fanout_10)] {
            for (state, writes) in [("off", &report.off), ("on", &report.on)] {
                let levels: Vec<_> = writes.by_level.iter().map(|level| format!("{level:.2}")).collect();
                out += &format!(
                    "  fanout {fanout:<2} {state:<3}  write amplification {:>6.2}  by level {}  {:.0} puts/s\n",
                    writes.write_amplification,
                    levels.join(" "),
                    writes.rate
                );
            }
            out += &format!("  fanout {fanout:<2} saved {:.1} %", report.reduction_percent);
            if let Some(rocksdb) = report.rocksdb {
                out += &format!("; RocksDB, which aligns, {rocksdb:.2}");
            }
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_tree_is_measured_off_and_on() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let settings = AlignedSettings {
            file_bytes: 16 << 10,
            levels: 5,
            progress: false,
            ..AlignedSettings::new(directory.path())
        };
        let report = run(&settings, Some(&|_, _| Ok(20.0))).expect("experiment");
        let off = &report.fanout_2.off;
        assert!(off.deepest_level >= 3 && off.write_amplification > 2.0, "{off:?}");
        assert!(report.distance_to_rocksdb_percent.is_some() && report.table().contains("fanout 10"));
    }
}
