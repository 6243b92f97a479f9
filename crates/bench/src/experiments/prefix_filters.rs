//! Prefix filters off and on: what scans within a prefix gain, and what puts pay.
//!
//! 1. Two databases, prefix filters off and on, get the same puts in manual mode, in turns of a run of level 0 each, so
//!    that a slow second of the machine hits both. Puts and the flush of their run are timed; the first turn is not
//!    counted.
//! 2. A key is a prefix of 8 bytes, drawn by its number, and a member of it. All members of a prefix are in one run,
//!    the fences of all runs hold all prefixes: a scan without filters seeks in each.
//! 3. Scans of all members of random prefixes run in turns of 1/8 between the databases, after one that is not counted:
//!    with a cache that holds everything, and, opened anew, with one that holds indexes, filters and little more.
//! 4. Files passed and blocks touched come from the engine's own counters, per scan.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use mycelium_engine::{Background, Database, Durability, Options, ReadCounters, ReadOptions, Table, TableOptions};
use mycelium_vfs::LocalDisk;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::keys::{KEY_LEN, ValueKind, Values, mix};
use crate::store::Result;

const VALUE_LEN: usize = 100;
const PREFIX_LEN: usize = 8;
const TURNS: u64 = 8;
/// Runs of level 0, fewer than those at which writers are slowed.
const RUNS: u64 = 10;
/// The table's bytes over those of the small cache.
const CACHE_SHARE: u64 = 20;

/// What is run.
#[derive(Clone, Debug)]
pub struct PrefixFilterSettings {
    /// Where databases are made and removed.
    pub directory: PathBuf,
    /// Prefixes of each run.
    pub prefixes: u64,
    /// Keys of each prefix.
    pub members: u64,
    /// Scans of each measurement.
    pub scans: u64,
    /// Seed of all draws.
    pub seed: u64,
}

impl PrefixFilterSettings {
    /// The scale of the claims: a million entries.
    pub fn new(directory: &Path) -> Self {
        let directory = directory.to_path_buf();
        Self { directory, prefixes: 5_000, members: 20, scans: 40_000, seed: 1 }
    }

    /// With a fraction of the prefixes and scans.
    pub fn scaled(self, scale: f64) -> Self {
        let scaled = |count: u64| ((count as f64 * scale) as u64).max(1);
        Self { prefixes: scaled(self.prefixes), scans: scaled(self.scans), ..self }
    }

    fn run_bytes(&self) -> u64 {
        self.prefixes * self.members * (KEY_LEN + VALUE_LEN) as u64
    }
}

/// All that the experiment showed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PrefixFilterReport {
    /// Entries of the table.
    pub entries: u64,
    /// Puts a second, flushes included, without prefix filters.
    pub puts_off: f64,
    /// With them.
    pub puts_on: f64,
    /// Those with them over those without.
    pub puts_ratio: f64,
    /// Scans with everything cached.
    pub cached: ScanCell,
    /// Scans with next to nothing cached but indexes and filters.
    pub uncached: ScanCell,
}

/// One measurement of scans.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct ScanCell {
    /// Without prefix filters.
    pub off: ScanCost,
    /// With them.
    pub on: ScanCost,
    /// How much lower the mean latency is with them, in percent.
    pub saved_percent: f64,
}

/// The cost of one scan.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct ScanCost {
    /// Mean latency in microseconds.
    pub mean_us: f64,
    /// Files passed for their prefix filters.
    pub files_passed: f64,
    /// Blocks touched, cached or not.
    pub blocks: f64,
    /// Blocks read from disk.
    pub blocks_read: f64,
}

/// Runs all of it.
pub fn run(settings: &PrefixFilterSettings) -> Result<PrefixFilterReport> {
    let mut pair = Pair::create(settings)?;
    let seconds = pair.fill()?;
    let cached = pair.scan()?;
    pair = pair.reopened(RUNS * settings.run_bytes() / CACHE_SHARE)?;
    let uncached = pair.scan()?;
    pair.remove()?;
    let counted = ((RUNS - 1) * settings.prefixes * settings.members) as f64;
    let [puts_off, puts_on] = seconds.map(|seconds| counted / seconds);
    let entries = RUNS * settings.prefixes * settings.members;
    Ok(PrefixFilterReport { entries, puts_off, puts_on, puts_ratio: puts_on / puts_off, cached, uncached })
}

/// Two databases with equal contents, without and with prefix filters.
struct Pair<'a> {
    settings: &'a PrefixFilterSettings,
    directory: PathBuf,
    values: Values,
    /// Off, then on.
    stores: [(Database, Table); 2],
}

/// The prefix with this number: a bijection that looks random.
fn prefix(number: u64) -> [u8; PREFIX_LEN] {
    mix(number).to_be_bytes()
}

fn open(path: &Path, cache_bytes: u64, run_bytes: u64) -> Result<Database> {
    let options = Options {
        disk: Arc::new(LocalDisk),
        // No run is flushed before it is whole.
        memory_budget: 8 * usize::try_from(run_bytes)? + (64 << 20),
        cache_bytes,
        background: Background::Manual,
        ..Options::default()
    };
    Ok(Database::open(path, options)?)
}

impl<'a> Pair<'a> {
    fn create(settings: &'a PrefixFilterSettings) -> Result<Self> {
        let directory = settings.directory.join(format!("prefix-filters-{}", std::process::id()));
        let create = |name: &str, prefix_filter: Option<usize>| -> Result<(Database, Table)> {
            let path = directory.join(name);
            fs::create_dir_all(&path)?;
            let database = open(&path, 4 * RUNS * settings.run_bytes(), settings.run_bytes())?;
            let table = database.create_table("data", TableOptions { prefix_filter, ..TableOptions::default() })?;
            Ok((database, table))
        };
        let stores = [create("off", None)?, create("on", Some(PREFIX_LEN))?];
        Ok(Self { settings, directory, values: Values::new(ValueKind::Half, VALUE_LEN), stores })
    }

    /// The same files with caches of this size.
    fn reopened(self, cache_bytes: u64) -> Result<Self> {
        let Self { settings, directory, values, stores } = self;
        for (database, table) in stores {
            drop(table);
            database.close()?;
        }
        let reopen = |name: &str| -> Result<(Database, Table)> {
            let database = open(&directory.join(name), cache_bytes, settings.run_bytes())?;
            let table = database.table("data")?;
            Ok((database, table))
        };
        let stores = [reopen("off")?, reopen("on")?];
        Ok(Self { settings, directory, values, stores })
    }

    /// Step 1 of the module: the seconds of both.
    fn fill(&self) -> Result<[f64; 2]> {
        let mut seconds = [0.0; 2];
        for run in 0..RUNS {
            for at in turn(run) {
                let started = Instant::now();
                self.fill_run(at, run)?;
                if run > 0 {
                    seconds[at] += started.elapsed().as_secs_f64();
                }
            }
        }
        Ok(seconds)
    }

    fn fill_run(&self, at: usize, run: u64) -> Result<()> {
        let (settings, (database, table)) = (self.settings, &self.stores[at]);
        let mut value = Vec::new();
        // Neighbours are put far from each other, as by who writes in the order of time.
        for member in 0..settings.members {
            for number in 0..settings.prefixes {
                let number = number * RUNS + run;
                let mut key = [0; KEY_LEN];
                key[..PREFIX_LEN].copy_from_slice(&prefix(number));
                key[PREFIX_LEN..].copy_from_slice(&member.to_be_bytes());
                self.values.fill(number, member, &mut value);
                table.put(&key, &value, Durability::Buffered)?;
            }
        }
        Ok(database.flush()?)
    }

    /// Step 3 of the module.
    fn scan(&self) -> Result<ScanCell> {
        let settings = self.settings;
        let mut rng = SmallRng::seed_from_u64(settings.seed);
        let mut totals = [(0.0, ReadCounters::default()), (0.0, ReadCounters::default())];
        let scans = (settings.scans / TURNS).max(1);
        for number in 0..=TURNS {
            let prefixes: Vec<u64> = (0..scans).map(|_| rng.random_range(0..settings.prefixes * RUNS)).collect();
            for at in turn(number) {
                let started = Instant::now();
                let counters = self.scan_each(at, &prefixes)?;
                if number > 0 {
                    totals[at].0 += started.elapsed().as_secs_f64();
                    totals[at].1 += counters;
                }
            }
        }
        let done = (scans * TURNS) as f64;
        let [off, on] = totals.map(|(seconds, counters)| ScanCost {
            mean_us: seconds * 1e6 / done,
            files_passed: counters.files_skipped_by_prefix as f64 / done,
            blocks: (counters.blocks_read + counters.block_cache_hits) as f64 / done,
            blocks_read: counters.blocks_read as f64 / done,
        });
        Ok(ScanCell { off, on, saved_percent: (1.0 - on.mean_us / off.mean_us) * 100.0 })
    }

    fn scan_each(&self, at: usize, prefixes: &[u64]) -> Result<ReadCounters> {
        let table = &self.stores[at].1;
        let mut counters = ReadCounters::default();
        for &number in prefixes {
            let options = ReadOptions { prefix: Some(prefix(number).to_vec()), ..ReadOptions::default() };
            let mut rows = table.iter(&options)?;
            rows.seek_to_first()?;
            let mut found = 0;
            while rows.valid() {
                found += 1;
                rows.next()?;
            }
            if found != self.settings.members {
                return Err(format!("prefix {number} has {found} keys").into());
            }
            counters += rows.counters();
        }
        Ok(counters)
    }

    fn remove(self) -> Result<()> {
        for (database, table) in self.stores {
            drop(table);
            database.close()?;
        }
        Ok(fs::remove_dir_all(self.directory)?)
    }
}

/// Which of the two comes first in a turn.
fn turn(number: u64) -> [usize; 2] {
    if number.is_multiple_of(2) { [0, 1] } else { [1, 0] }
}

impl PrefixFilterReport {
    /// The report as a person reads it.
    pub fn table(&self) -> String {
        let cost = |cost: &ScanCost| {
            let ScanCost { mean_us, files_passed, blocks, blocks_read } = cost;
            format!("{mean_us:>8.2} us {files_passed:>5.2} files passed {blocks:>6.2} blocks {blocks_read:>6.2} read")
        };
        let mut out = format!("prefix filters: {} entries in {RUNS} runs\n", self.entries);
        out += &format!(
            "  puts       off {:.0} /s  on {:.0} /s  ratio {:.3}\n",
            self.puts_off, self.puts_on, self.puts_ratio
        );
        for (name, cell) in [("cached", &self.cached), ("uncached", &self.uncached)] {
            let (off, on) = (cost(&cell.off), cost(&cell.on));
            out += &format!("  {name:<10} off {off}  on {on}  saved {:.1} %\n", cell.saved_percent);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_spare_the_runs_without_the_prefix() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let settings =
            PrefixFilterSettings { prefixes: 20, members: 5, scans: 80, ..PrefixFilterSettings::new(directory.path()) };
        let report = run(&settings).expect("experiment");
        assert_eq!(report.entries, 20 * 5 * RUNS);
        for cell in [report.cached, report.uncached] {
            assert_eq!(cell.off.files_passed, 0.0);
            // One run has the prefix, the fences of some do not reach it, and few filters let it pass in vain.
            assert!(cell.on.files_passed > RUNS as f64 / 2.0, "{cell:?}");
            assert!(cell.on.blocks < cell.off.blocks, "{cell:?}");
        }
        assert!(report.table().contains("cached"));
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 0);
    }
}
