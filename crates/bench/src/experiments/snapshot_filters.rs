//! Snapshot filters off and on (Kim §V, figures 12 to 14): reads at an old snapshot whose age is given in data
//! overwritten.
//!
//! 1. For Bloom filters off and on, for uniform and Zipfian (1.1) keys: two databases, filters off and on, get the same
//!    puts in manual mode, so that their trees are equal.
//! 2. Every entry is put once, everything is compacted, a snapshot is taken.
//! 3. Entries are overwritten until half, once, four times the table was.
//! 4. At each age level 0 is then filled to where writers are slowed, where the paper's continuous writer keeps it
//!    ("many skippable low-level SSTables, especially in L0, are piled up"). Then the reads run at the snapshot, in
//!    turns of 1/8 between the two databases, so that a slow second of the machine hits both. A turn before them is not
//!    counted: it meets what the writes left in caches and on their way to the disk.
//! 5. Files searched and blocks touched come from the engine's own counters, per read.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use mycelium_engine::{Durability, Options, ReadCounters, ReadOptions, Snapshot, TableOptions};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};

use super::{Shape, Stepped};
use crate::distribution::{Chooser, Skew};
use crate::keys::{KEY_LEN, KeyOrder, ValueKind, Values, key, stamp};
use crate::store::Result;

const VALUE_LEN: usize = 1024;
const TURNS: u64 = 8;
const AGES: [f64; 3] = [0.5, 1.0, 4.0];
const HEADLINE_AGE: f64 = 1.0;
/// The table's bytes over the cache's. The paper has RocksDB's default cache of 8 MiB beside 100 GB, which is next to
/// none, and indexes and filters outside it; ours must hold these, which are a hundredth of the table, and next to no
/// more than that: at a fortieth it held all of level 0, which is what the filters spare reading.
const CACHE_SHARE: u64 = 80;

/// What is run.
#[derive(Clone, Debug)]
pub struct SnapshotFilterSettings {
    /// Where databases are made and removed.
    pub directory: PathBuf,
    /// Entries of the table.
    pub entries: u64,
    /// Point reads of each measurement; of ranges there are fewer, the longer they are.
    pub reads: u64,
    /// Read past the page cache, as where the table is many times the memory (the paper's environment of 4 GiB). Else
    /// the page cache holds the table, as in the paper's other figures.
    pub direct_io: bool,
    /// Seed of all draws.
    pub seed: u64,
    /// Tell on standard error what is running.
    pub progress: bool,
}

impl SnapshotFilterSettings {
    /// The scale of the claims: 100 MB of data.
    pub fn new(directory: &Path) -> Self {
        let directory = directory.to_path_buf();
        Self { directory, entries: 100_000, reads: 50_000, direct_io: false, seed: 1, progress: true }
    }

    /// The paper's proportions: level 1 holds 1/400 of the table, so that at fanout 10 the tree has four levels.
    fn shape(&self) -> Shape {
        let table = self.entries * (KEY_LEN + VALUE_LEN) as u64;
        Shape { file_bytes: (table / 1600).max(16 << 10), fanout: 10.0, level_count: 7 }
    }
}

/// What is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadKind {
    /// One key.
    Point,
    /// 100 entries from a key.
    Range100,
    /// 10,000 entries from a key.
    Range10000,
}

impl ReadKind {
    /// Entries of one read.
    fn length(self) -> u64 {
        match self {
            Self::Point => 1,
            Self::Range100 => 100,
            Self::Range10000 => 10_000,
        }
    }

    /// How many point reads one read stands for.
    fn weight(self) -> u64 {
        match self {
            Self::Point => 1,
            Self::Range100 => 10,
            Self::Range10000 => 1000,
        }
    }
}

/// All that the experiment showed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SnapshotFilterReport {
    /// Entries of the table.
    pub entries: u64,
    /// Every measurement.
    pub cells: Vec<Cell>,
    /// Those that are claimed.
    pub headline: Headline,
}

/// Latency saved, in percent: uniform keys, the table overwritten once.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Headline {
    /// Point reads without Bloom filters.
    pub point_without_bloom_percent: f64,
    /// Point reads with Bloom filters.
    pub point_with_bloom_percent: f64,
    /// Ranges of 100 entries.
    pub short_scan_percent: f64,
}

/// One measurement.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// What was read.
    pub kind: ReadKind,
    /// Zipfian exponent of reads and overwrites; `None` is uniform.
    pub zipfian: Option<f64>,
    /// Whether there were Bloom filters.
    pub bloom: bool,
    /// Data overwritten since the snapshot, over the table.
    pub age: f64,
    /// Without snapshot filters.
    pub off: ReadCost,
    /// With them.
    pub on: ReadCost,
    /// How much lower the mean latency is with them, in percent.
    pub saved_percent: f64,
}

/// The cost of one read.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct ReadCost {
    /// Mean latency in microseconds.
    pub mean_us: f64,
    /// Files searched; `None` for ranges, whose cursors do not count them.
    pub files: Option<f64>,
    /// Blocks touched, cached or not.
    pub blocks: f64,
    /// Blocks read from disk.
    pub blocks_read: f64,
}

/// Runs all combinations.
pub fn run(settings: &SnapshotFilterSettings) -> Result<SnapshotFilterReport> {
    let mut cells = Vec::new();
    for bloom in [false, true] {
        for zipfian in [None, Some(1.1)] {
            Pair::build(settings, bloom, zipfian)?.measure(&mut cells)?;
        }
    }
    let saved = |kind: ReadKind, bloom: bool| {
        let wanted = |cell: &&Cell| {
            cell.kind == kind && cell.bloom == bloom && cell.zipfian.is_none() && cell.age == HEADLINE_AGE
        };
        cells.iter().find(wanted).map_or(0.0, |cell| cell.saved_percent)
    };
    let headline = Headline {
        point_without_bloom_percent: saved(ReadKind::Point, false),
        point_with_bloom_percent: saved(ReadKind::Point, true),
        short_scan_percent: saved(ReadKind::Range100, true),
    };
    Ok(SnapshotFilterReport { entries: settings.entries, cells, headline })
}

/// Two databases with equal contents, without and with snapshot filters.
struct Pair<'a> {
    settings: &'a SnapshotFilterSettings,
    directory: PathBuf,
    bloom: bool,
    zipfian: Option<f64>,
    /// Off, then on.
    trees: [Stepped; 2],
    snapshots: [Snapshot; 2],
    chooser: Chooser,
}

impl<'a> Pair<'a> {
    fn build(settings: &'a SnapshotFilterSettings, bloom: bool, zipfian: Option<f64>) -> Result<Self> {
        let directory = settings.directory.join(format!("snapshot-filters-{}", std::process::id()));
        let values = Values::new(ValueKind::Random, VALUE_LEN);
        let open = |snapshot_filter: bool| -> Result<Stepped> {
            let path = directory.join(if snapshot_filter { "on" } else { "off" });
            fs::create_dir_all(&path)?;
            let filter_bits = vec![if bloom { 10 } else { 0 }];
            let options = TableOptions { snapshot_filter, filter_bits, ..TableOptions::default() };
            let cache = settings.entries * (KEY_LEN + VALUE_LEN) as u64 / CACHE_SHARE;
            let mut tree = Stepped::open(&path, &settings.shape(), cache, settings.direct_io, options)?;
            let mut value = Vec::new();
            for index in 0..settings.entries {
                values.fill(index, 0, &mut value);
                tree.put(&key(index, KeyOrder::Hashed), &value)?;
            }
            tree.run_all()?;
            Ok(tree)
        };
        let trees = [open(false)?, open(true)?];
        let snapshots = [trees[0].database.snapshot(), trees[1].database.snapshot()];
        let chooser = Chooser::new(zipfian.map_or(Skew::Uniform, Skew::Zipfian), settings.entries);
        Ok(Self { settings, directory, bloom, zipfian, trees, snapshots, chooser })
    }

    fn measure(mut self, cells: &mut Vec<Cell>) -> Result<()> {
        let mut age = 0.0;
        for next in AGES {
            self.overwrite(((next - age) * self.settings.entries as f64) as u64, next)?;
            age = next;
            for kind in [ReadKind::Point, ReadKind::Range100, ReadKind::Range10000] {
                let cell = self.cell(kind, age)?;
                if self.settings.progress {
                    eprintln!("{}", cell.line());
                }
                cells.push(cell);
            }
        }
        let Self { trees, directory, .. } = self;
        for tree in trees {
            tree.database.close()?;
        }
        Ok(fs::remove_dir_all(directory)?)
    }

    fn overwrite(&mut self, puts: u64, age: f64) -> Result<()> {
        let values = Values::new(ValueKind::Random, VALUE_LEN);
        let per_flush = self.settings.shape().file_bytes / (KEY_LEN + VALUE_LEN) as u64;
        for tree in &mut self.trees {
            let mut rng = SmallRng::seed_from_u64(self.settings.seed ^ age.to_bits());
            let mut value = Vec::new();
            let mut draw = |version: u64| {
                let index = self.chooser.draw(self.settings.entries, &mut rng);
                values.fill(index, 1 + version, &mut value);
                (key(index, KeyOrder::Hashed), value.clone())
            };
            for version in 0..puts {
                let (key, value) = draw(version);
                tree.put(&key, &value)?;
            }
            while tree.level0_runs() + 1 < Options::default().slowdown_level0_runs {
                for version in 0..per_flush {
                    let (key, value) = draw(puts + version);
                    tree.table.put(&key, &value, Durability::Buffered)?;
                }
                tree.database.flush()?;
            }
        }
        Ok(())
    }

    fn cell(&self, kind: ReadKind, age: f64) -> Result<Cell> {
        let reads = (self.settings.reads / kind.weight()).max(TURNS);
        let mut rng = SmallRng::seed_from_u64(self.settings.seed);
        let mut totals = [(0.0, ReadCounters::default()), (0.0, ReadCounters::default())];
        for turn in 0..=TURNS {
            let indexes: Vec<u64> =
                (0..reads / TURNS).map(|_| self.chooser.draw(self.settings.entries, &mut rng)).collect();
            for at in if turn % 2 == 0 { [0, 1] } else { [1, 0] } {
                let (mut counters, started) = (ReadCounters::default(), Instant::now());
                self.read(at, kind, &indexes, &mut counters)?;
                if turn > 0 {
                    totals[at].0 += started.elapsed().as_secs_f64();
                    totals[at].1 += counters;
                }
            }
        }
        let done = (reads / TURNS * TURNS) as f64;
        let cost = |(seconds, counters): &(f64, ReadCounters)| ReadCost {
            mean_us: seconds * 1e6 / done,
            files: (kind == ReadKind::Point).then(|| counters.files_searched as f64 / done),
            blocks: (counters.blocks_read + counters.block_cache_hits) as f64 / done,
            blocks_read: counters.blocks_read as f64 / done,
        };
        let (off, on) = (cost(&totals[0]), cost(&totals[1]));
        let saved_percent = (1.0 - on.mean_us / off.mean_us) * 100.0;
        Ok(Cell { kind, zipfian: self.zipfian, bloom: self.bloom, age, off, on, saved_percent })
    }

    fn read(&self, at: usize, kind: ReadKind, indexes: &[u64], counters: &mut ReadCounters) -> Result<()> {
        let table = &self.trees[at].table;
        let options = ReadOptions::at(&self.snapshots[at]);
        for &index in indexes {
            let start = key(index, KeyOrder::Hashed);
            if kind == ReadKind::Point {
                let value = table.get_with(&start, &options, counters)?;
                if value.as_deref().and_then(stamp) != Some(index) {
                    return Err(format!("index {index} reads {value:?} at the snapshot").into());
                }
                continue;
            }
            let mut rows = table.iter(&options)?;
            rows.seek(&start)?;
            for _ in 1..kind.length() {
                if !rows.valid() {
                    break;
                }
                rows.next()?;
            }
            *counters += rows.counters();
        }
        Ok(())
    }
}

impl Cell {
    fn line(&self) -> String {
        let keys = self.zipfian.map_or_else(|| "uniform".to_owned(), |theta| format!("Zipf {theta}"));
        let bloom = if self.bloom { "Bloom" } else { "no Bloom" };
        let cost = |cost: &ReadCost| {
            let files = cost.files.map_or_else(|| "-".to_owned(), |files| format!("{files:.2}"));
            format!(
                "{:>9.2} us {files:>6} files {:>8.2} blocks {:>8.2} read",
                cost.mean_us, cost.blocks, cost.blocks_read
            )
        };
        let (kind, off, on) = (format!("{:?}", self.kind), cost(&self.off), cost(&self.on));
        format!(
            "  {kind:<10} {keys:<8} {bloom:<8} age {:<3}  off {off}  on {on}  saved {:.1} %",
            self.age, self.saved_percent
        )
    }
}

impl SnapshotFilterReport {
    /// The report as a person reads it.
    pub fn table(&self) -> String {
        let mut out = format!("snapshot filters: {} entries of 1,024 bytes, read at an old snapshot\n", self.entries);
        for cell in &self.cells {
            out += &cell.line();
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_save_files_and_blocks() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let settings = SnapshotFilterSettings {
            entries: 1500,
            reads: 400,
            progress: false,
            ..SnapshotFilterSettings::new(directory.path())
        };
        let report = run(&settings).expect("experiment");
        assert_eq!(report.cells.len(), 2 * 2 * 3 * 3);
        let old_points =
            report.cells.iter().filter(|cell| cell.kind == ReadKind::Point && !cell.bloom && cell.age == 4.0);
        for cell in old_points {
            assert!(cell.off.files.is_some() && cell.on.files < cell.off.files, "{cell:?}");
        }
        assert!(report.table().contains("Zipf 1.1"));
    }
}
