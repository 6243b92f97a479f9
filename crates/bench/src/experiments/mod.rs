//! The experiments of the papers, scaled down, against our engine.
//!
//! | module | paper |
//! |---|---|
//! | `aligned`, `snapshot_filters` | Kim et al., "Hybrid Transactional/Analytical Processing Amplifies IO in LSM-Trees" (2022), §IV and §V |
//! | `transformations` | Casaletto et al., "Mycelium: A Transformation-Embedded LSM-Tree", §5.4 |
//! | `buffer` | Teng et al., "A Low-cost Disk Solution Enabling LSM-tree to Achieve High Performance for Mixed Read/Write Workloads" (dLSM), §VII-B1 |
//! | `analytics` | TPC-H's queries 1 and 6 in SQL |
//! | `htap` | both halves of a workload in one table, as no paper has them |
//! | `tables` | what is done for one table of many, as no paper has it |
//! | `kernels` | filters over packed codes beside the memory's bandwidth (LSM-OPD §4.2.2); no database is opened |
//! | `prefix_filters` | none: what filters of prefixes gain and cost |
//! | `laser` | Saxena et al., "Real-Time LSM-Trees for HTAP Workloads", §2.1, §4.1 and §7 |
//! | `dictionary` | Huang et al., "LSM-OPD: Boosting Scans in LSM-Trees by Enabling Direct Computing on Compressed Data", §5 |
//!
//! For all but `analytics`, `buffer`, `transformations`, `htap`, `kernels` and `dictionary` the engine runs in manual
//! mode: the experiment itself runs flushes and compactions to the end after every write buffer, so that with and
//! without the feature the same jobs happen at the same points, whatever the machine is doing. Nothing is synced: what
//! counts are bytes and reads. These six measure time, with background threads and a disk as anybody has them; `tables`
//! measures the time of single steps, by hand and without syncs, and `prefix_filters` with nothing beside it, and
//! flushes alone.

pub mod aligned;
#[cfg(feature = "sql")]
pub mod analytics;
pub mod buffer;
pub mod dictionary;
pub mod htap;
pub mod kernels;
pub mod laser;
pub mod prefix_filters;
pub mod snapshot_filters;
pub mod tables;
pub mod transformations;

use std::path::Path;
use std::sync::Arc;

use mycelium_engine::{Background, Database, LeveledOptions, Options, PickPriority, Policy, Table, TableOptions};
use mycelium_vfs::LocalDisk;

use crate::bench_disk::BenchDisk;
use crate::store::Result;

/// Bytes of the SSTs in the levels of all tables.
pub(crate) fn sst_bytes(database: &Database) -> u64 {
    database.metrics().tables.iter().flat_map(|table| &table.levels).map(|level| level.bytes).sum()
}

/// The shape of a tree, scaled down from RocksDB's defaults by the size of its files: a write buffer is a file, level 1
/// is four files, levels do not follow the last one's size.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes of a file, and of a write buffer.
    pub file_bytes: u64,
    /// How many times larger each level is than the one above.
    pub fanout: f64,
    /// Levels that the tree may have, level 0 included.
    pub level_count: usize,
}

impl Shape {
    fn policy(&self) -> Policy {
        Policy::Leveled(LeveledOptions {
            base_level_bytes: 4 * self.file_bytes,
            fanout: self.fanout,
            level_count: self.level_count,
            target_file_size: self.file_bytes,
            priority: PickPriority::MinOverlap,
            max_compaction_bytes: 25 * self.file_bytes,
            dynamic_levels: false,
            ..LeveledOptions::default()
        })
    }
}

/// A database in manual mode with one table.
struct Stepped {
    database: Database,
    table: Table,
    unstepped: u64,
    step_every: u64,
}

impl Stepped {
    fn open(
        directory: &Path,
        shape: &Shape,
        cache_bytes: u64,
        direct_reads: bool,
        options: TableOptions,
    ) -> Result<Self> {
        let database = Database::open(
            directory,
            Options {
                disk: Arc::new(BenchDisk::new(Arc::new(LocalDisk), direct_reads, true)),
                memory_budget: 2 * usize::try_from(shape.file_bytes)?,
                cache_bytes,
                background: Background::Manual,
                ..Options::default()
            },
        )?;
        let table = database.create_table("data", TableOptions { policy: shape.policy(), ..options })?;
        Ok(Self { database, table, unstepped: 0, step_every: shape.file_bytes })
    }

    /// Puts, and runs all work that is due after every write buffer's worth of bytes.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.table.put(key, value, mycelium_engine::Durability::Buffered)?;
        self.unstepped += (key.len() + value.len()) as u64;
        if self.unstepped >= self.step_every {
            self.unstepped = 0;
            self.run_all()?;
        }
        Ok(())
    }

    fn level0_runs(&self) -> usize {
        let metrics = self.database.metrics();
        metrics
            .tables
            .iter()
            .flat_map(|table| &table.levels)
            .find(|level| level.level == 0)
            .map_or(0, |level| level.runs)
    }

    fn run_all(&self) -> Result<()> {
        while self.database.step()? {}
        Ok(())
    }
}
