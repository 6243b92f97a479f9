//! Point reads of recent data while everything moves (dLSM §VII): what the compaction buffer is for.
//!
//! 1. Rows of 1 KB are loaded and compacted. Updates over all keys fill level 2, as in the paper's 1,500 seconds; then
//!    compactions come to rest. With two-phase levels level 1 is empty then, and all of these updates are in level 2's
//!    insertion part. The proportions are the paper's: of the data, a write buffer is a thousandth and the cache a
//!    two-hundredth; three levels with a fan-out of 10. Indexes and filters have room of their own besides; reads pass
//!    the page cache by.
//! 2. One thread updates 1,000 rows a second, drawn from all keys alike. Another reads, as fast as it can
//!    (workload.rs). When half of level 1 has been updated, the middle of a round, the measurement begins: the cache is
//!    warm, and what is hot has been updated by then. So every contender begins in the same phase, and the rest of the
//!    insertion phase of the hot rows and all of their deletion phase is measured. Read-only has the same updates and
//!    stops there, compactions too; once more beside another database in which they go on.
//! 3. It lasts for 3 seconds per megabyte of the cache as in the paper (1,500 seconds, 500 MB): so that at any scale as
//!    large a part of the cached rows is updated meanwhile, and as large a part of the cache can be read anew from a
//!    disk of 300 random reads a second.
//! 4. Second by second: reads, the blocks that they needed and that were cached, and how many cached blocks compactions
//!    made useless, by level; beside them what eq. 1 to 4 of the paper say.
//! 5. Two regimes on the same database: random reads limited to 300 a second, as on the hard disks of the paper, by
//!    [`SlowDisk`](crate::slow_disk::SlowDisk); and the disk as it is. Before each, levels come to rest as in step 1.
//! 6. Contenders (contender.rs) one after the other, each with a database of its own, and rivals that implement
//!    [`Subject`].

mod bed;
mod contender;
mod report;
mod subject;
mod workload;

use std::path::{Path, PathBuf};

pub use report::{BufferReport, BufferRun, Comparison, Second};
pub use subject::{Blocks, BufferRival, Figures, Opener, Sizes, Subject};

use crate::store::Result;
use bed::Bed;
use contender::Contender;
use workload::Workload;

/// Bytes of the block cache at scale 1.
const CACHE_BYTES: u64 = 32 << 20;
/// The data over the cache (dLSM §VII-A: 100 GB and 500 MB).
const DATA_TO_CACHE: u64 = 200;
/// The data over a write buffer (100 GB and 100 MB).
const DATA_TO_WRITE_BUFFER: u64 = 1_000;
const ROW_BYTES: u64 = 1_000;
/// Of the cache, what is read, in percent.
const HOT_PERCENT: u64 = 90;
const UPDATES_PER_SECOND: u64 = 1_000;
/// Bytes of the cache for which is measured a second.
const CACHE_BYTES_PER_SECOND: u64 = 1_000_000 / 3;
const SLOW_READS_PER_SECOND: u64 = 300;

/// How fast the disk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Regime {
    Slowed,
    Disk,
}

impl Regime {
    const ALL: [Self; 2] = [Self::Slowed, Self::Disk];

    fn name(self) -> &'static str {
        match self {
            Self::Slowed => "slowed",
            Self::Disk => "disk",
        }
    }

    fn reads_per_second(self) -> Option<u64> {
        (self == Self::Slowed).then_some(SLOW_READS_PER_SECOND)
    }
}

/// How it is run.
#[derive(Clone, Debug)]
pub struct BufferSettings {
    /// Where databases are made and removed.
    pub directory: PathBuf,
    /// Of cache and data.
    pub scale: f64,
    /// Only these contenders; all if there are none.
    pub contenders: Vec<String>,
    /// Only these cells, `slowed/range-hot` and so on: those whose names contain one of them; all if there are none.
    pub cells: Vec<String>,
    /// Seed of all draws.
    pub seed: u64,
    /// Whether to tell what is being done.
    pub progress: bool,
}

impl BufferSettings {
    /// The settings of the claims.
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_path_buf(),
            scale: 1.0,
            contenders: Vec::new(),
            cells: Vec::new(),
            seed: 1,
            progress: true,
        }
    }

    fn sizes(&self) -> Sizes {
        let cache_bytes = ((CACHE_BYTES as f64 * self.scale) as u64).max(256 << 10);
        Sizes { rows: cache_bytes * DATA_TO_CACHE / ROW_BYTES, cache_bytes }
    }

    /// Seconds that each contender is measured.
    fn seconds(&self) -> u64 {
        (self.sizes().cache_bytes / CACHE_BYTES_PER_SECOND).max(3)
    }

    fn wants_cell(&self, regime: Regime, workload: Workload) -> bool {
        let cell = cell_name(regime, workload);
        workload.runs_in(regime) && (self.cells.is_empty() || self.cells.iter().any(|wanted| cell.contains(wanted)))
    }

    fn wants_contender(&self, name: &str) -> bool {
        self.contenders.is_empty() || self.contenders.iter().any(|wanted| wanted == name)
    }
}

fn cell_name(regime: Regime, workload: Workload) -> String {
    format!("{}/{}", regime.name(), workload.name())
}

/// Runs the experiment; rivals, whose disk cannot be slowed, on the disk as it is.
pub fn run(settings: &BufferSettings, rivals: &[BufferRival<'_>]) -> Result<BufferReport> {
    let sizes = settings.sizes();
    let mut report = BufferReport { rows: sizes.rows, cache_bytes: sizes.cache_bytes, ..BufferReport::default() };
    for workload in Workload::ALL {
        let regimes: Vec<Regime> =
            Regime::ALL.into_iter().filter(|&regime| settings.wants_cell(regime, workload)).collect();
        if regimes.is_empty() {
            continue;
        }
        for contender in Contender::ALL.into_iter().filter(|contender| settings.wants_contender(contender.name())) {
            let (opener, disk) = contender.opener();
            let bed = Bed::create(settings, (contender.name(), contender.writes()), &*opener, workload)?;
            let beside =
                contender.beside().map(|beside| Bed::create(settings, ("beside", true), &*beside.opener().0, workload));
            let beside = beside.transpose()?;
            for &regime in &regimes {
                disk.limit(None);
                let run = bed.measure(beside.as_ref(), || disk.limit(regime.reads_per_second()))?;
                report.add(settings.progress, regime, workload, contender.name(), run);
            }
            disk.limit(None);
            bed.remove()?;
            beside.map_or(Ok(()), Bed::remove)?;
        }
        for rival in rivals.iter().filter(|rival| settings.wants_contender(rival.name)) {
            if regimes.contains(&Regime::Disk) {
                let bed = Bed::create(settings, (rival.name, true), rival.open, workload)?;
                report.add(settings.progress, Regime::Disk, workload, rival.name, bed.measure(None, || ())?);
                bed.remove()?;
            }
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_database_is_measured() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let settings = BufferSettings {
            scale: 0.01,
            cells: vec!["disk/zipfian".into(), "dynamic".into()],
            progress: false,
            ..BufferSettings::new(directory.path())
        };
        let report = run(&settings, &[]).expect("experiment");
        let runs = &report.runs["disk"]["zipfian"];
        assert_eq!(runs.len(), Contender::ALL.len());
        assert!(runs.values().all(|run| run.reads_per_second > 0.0), "{}", report.table());
        assert!(runs["buffer"].segments_per_read > 0.0, "{}", report.table());
        assert!(report.runs["disk"]["dynamic"]["buffer"].seconds.len() == 3, "{}", report.table());
    }
}
