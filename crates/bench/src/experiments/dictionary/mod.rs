//! Order-preserving dictionaries in an LSM-tree (Huang et al., "LSM-OPD", §5), scaled down.
//!
//! | module | what | paper |
//! |---|---|---|
//! | `load` | insertion, and the compactions it asks for | figures 6, 7, 8 |
//! | `transactions` | updates, point reads and short ranges | figure 6 |
//! | `filters` | counting and fetching the rows whose value lies in a range | figure 9 |
//! | `timeline` | both at once, by the clock | figure 10 |
//!
//! What compactions and filters spend on the disk and on stages between (figure 1) is timed in tables of their own.
//!
//! 1. A [`Part`] is a list of tables (`cells`): the size of their values, how many there are, how they are distributed.
//! 2. Every table is made by every contender in turn, forwards and backwards by repetition: our table as rows, our
//!    table in columns, and rivals. It is filled, filtered, written to and read, and removed.
//! 3. Filters must find the same in all of them, and the files of ours must be what the contender is called, at every
//!    level.
//!
//! The paper's tables have 6.4 x 10^7 pairs in files of 64 MB, which is 20 files of codes (16 + 4 bytes a pair). Ours
//! have the same 20 in smaller files. The number of distinct values is a share of the pairs of a file, as the cost
//! model and §5.3 have it, so that smaller files have fewer. Write buffers are files, level 1 is four of them, level 0
//! starts a compaction at 4, slows writers at 20 and stops them at 36: RocksDB's defaults, which the paper keeps but
//! for dynamic level sizes. It turns the log off; here it is on and not synced, for all. The block cache has RocksDB's
//! share, half a file; files lie in the page cache, but for figure 1. Of its 8 + 8 threads there are 1 + 2 (1 + 1 + 2
//! where filters run beside transactions).

mod cells;
mod figures;
mod filters;
mod load;
mod plots;
mod report;
mod stores;
mod timeline;
mod transactions;
mod values;

use std::fs;
use std::path::{Path, PathBuf};

pub use cells::Part;
pub use report::{CellReport, DictionaryReport};
pub use stores::{Compactions, RivalStore, Stages};
pub use timeline::{FilterMoment, Timeline};

use self::cells::Cell;
use self::figures::Figures;
use self::report::Run;
use self::stores::{Format, Ours, Rival, Store};
use self::transactions::Stream;
use self::values::Values;
use crate::keys::KEY_LEN;
use crate::store::Result;

/// What is run.
#[derive(Clone, Debug)]
pub struct DictionarySettings {
    /// Where stores are made and removed.
    pub directory: PathBuf,
    /// Bytes of a file, and of a write buffer; the tree follows.
    pub file_bytes: u64,
    /// Files that the pairs fill once each has a code for its value.
    pub files: u64,
    /// Filters of each selectivity in each store.
    pub filters: u32,
    /// Updates, point reads and ranges, all together.
    pub transactions: u64,
    /// Seconds for which they run beside filters.
    pub timeline_seconds: f64,
    /// Threads of transactions there, and threads of filters.
    pub timeline_threads: u32,
    /// Times that every table is made.
    pub repetitions: u32,
    /// Only these contenders, by their names in reports; empty is all there are.
    pub contenders: Vec<String>,
    /// Only tables whose names in reports contain one of these; empty is all there are.
    pub cells: Vec<String>,
    /// Whether files are read past the page cache and stages timed. Set for each table.
    pub by_stage: bool,
    /// Seed of all draws.
    pub seed: u64,
    /// Tell on standard error what is running.
    pub progress: bool,
}

impl DictionarySettings {
    /// Files of level 0 that start a compaction.
    pub const LEVEL0_FILES: usize = 4;
    /// Files of level 0 at which writers are slowed.
    pub const SLOWDOWN_FILES: usize = 20;
    /// Files of level 0 at which writers stop.
    pub const STOP_FILES: usize = 36;
    /// Bytes of a code in the paper.
    const CODE_BYTES: u64 = 4;

    /// The scale of the claims: the paper's 20 files, a thirty-second of its file size, 2 million pairs.
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_path_buf(),
            file_bytes: 2 << 20,
            files: 20,
            filters: 10,
            transactions: 100_000,
            timeline_seconds: 60.0,
            timeline_threads: 1,
            repetitions: 3,
            contenders: Vec::new(),
            cells: Vec::new(),
            by_stage: false,
            seed: 1,
            progress: true,
        }
    }

    /// The same with so many times the pairs: both the files and their number take the root of it.
    #[must_use]
    pub fn scaled(self, scale: f64) -> Self {
        let root = scale.sqrt();
        let times = |count: u64, factor: f64| (count as f64 * factor) as u64;
        Self {
            file_bytes: times(self.file_bytes, root).max(16 << 10),
            files: times(self.files, root).max(4),
            transactions: times(self.transactions, scale.min(1.0)).max(1_000),
            timeline_seconds: (self.timeline_seconds * scale.min(1.0)).max(3.0),
            ..self
        }
    }

    /// Pairs of a table.
    pub fn pairs(&self) -> u64 {
        self.files * self.pairs_per_file()
    }

    /// Bytes of level 1.
    pub fn base_level_bytes(&self) -> u64 {
        4 * self.file_bytes
    }

    /// Bytes of data blocks to be cached.
    pub fn cache_bytes(&self) -> u64 {
        self.file_bytes / 2
    }

    fn pairs_per_file(&self) -> u64 {
        self.file_bytes / (KEY_LEN as u64 + Self::CODE_BYTES)
    }

    fn distinct_values(&self, cell: &Cell) -> u64 {
        ((self.pairs_per_file() as f64 * cell.ndv_percent / 100.0) as u64).max(2)
    }

    /// Bytes that indexes and filters take, which RocksDB holds beside its cache: ten bits per key, and for each block
    /// of 4 KiB a key of 16 bytes and its place. Whatever our tables take less of it for these they have for
    /// dictionaries and blocks: both engines have the same memory, and divide it as they like.
    fn outside_cache_bytes(&self, value_bytes: usize) -> u64 {
        let bytes = self.pairs() * (KEY_LEN + value_bytes) as u64;
        self.pairs() * 10 / 8 + bytes / 128
    }
}

/// Makes an empty store of a rival.
pub type OpenRival<'a> = &'a dyn Fn(&Path, &DictionarySettings) -> Result<RivalStore>;

/// Another store.
#[derive(Clone, Copy)]
pub struct DictionaryRival<'a> {
    /// How reports call it, without `/` and `~`.
    pub name: &'a str,
    /// Makes it.
    pub open: OpenRival<'a>,
}

/// Runs one part, with rivals beside our tables, and adds what it showed to the report.
///
/// Fails if a contender or a table is asked for that is not there, or if two stores answer a filter differently.
pub fn run(
    part: Part,
    settings: &DictionarySettings,
    rivals: &[DictionaryRival<'_>],
    report: &mut DictionaryReport,
) -> Result<()> {
    (report.file_bytes, report.pairs) = (settings.file_bytes, settings.pairs());
    let contenders = Contender::all(settings, rivals)?;
    let directory = settings.directory.join(format!("{}-{}", part.name(), std::process::id()));
    for cell in part.cells() {
        let is_wanted = |wanted: &String| cell.name.contains(wanted.as_str());
        if !settings.cells.is_empty() && !settings.cells.iter().any(is_wanted) {
            continue;
        }
        if settings.progress {
            eprintln!("{}", cell.name);
        }
        let values = Values::new(settings.distinct_values(&cell), cell.value_bytes, cell.skew)?;
        let table = Table { cell: &cell, values: &values, directory: &directory, settings };
        report.cells.insert(cell.name.clone(), CellReport::of(&table.run_all(&contenders)?));
    }
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    Ok(())
}

/// One that takes part.
#[derive(Clone, Copy)]
enum Contender<'a> {
    Ours(Format),
    Rival(DictionaryRival<'a>),
}

impl<'a> Contender<'a> {
    /// Those that are wanted.
    fn all(settings: &DictionarySettings, rivals: &[DictionaryRival<'a>]) -> Result<Vec<Self>> {
        let ours = Format::ALL.map(Self::Ours);
        let mut all: Vec<Self> = ours.into_iter().chain(rivals.iter().copied().map(Self::Rival)).collect();
        let wanted = &settings.contenders;
        if let Some(unknown) = wanted.iter().find(|name| all.iter().all(|contender| contender.name() != *name)) {
            let names: Vec<&str> = all.iter().map(Self::name).collect();
            return Err(format!("there is no contender {unknown:?}; there are {}", names.join(", ")).into());
        }
        all.retain(|contender| wanted.is_empty() || wanted.iter().any(|name| name == contender.name()));
        Ok(all)
    }

    fn name(&self) -> &'a str {
        match self {
            Self::Ours(format) => format.name(),
            Self::Rival(rival) => rival.name,
        }
    }
}

/// What is made once by every contender in every repetition.
struct Table<'a> {
    cell: &'a Cell,
    values: &'a Values,
    directory: &'a Path,
    settings: &'a DictionarySettings,
}

impl Table<'_> {
    fn run_all(&self, contenders: &[Contender<'_>]) -> Result<Vec<Run>> {
        let (mut runs, mut expected) = (Vec::new(), None);
        for repetition in 0..self.settings.repetitions.max(1) {
            for step in 0..contenders.len() {
                let at = if repetition % 2 == 0 { step } else { contenders.len() - 1 - step };
                let contender = &contenders[at];
                let (run, answers) = self.run(contender, repetition)?;
                if answers != *expected.get_or_insert_with(|| answers.clone()) {
                    return Err(format!("{}: filters of {} find other rows", self.cell.name, contender.name()).into());
                }
                runs.push(run);
            }
        }
        Ok(runs)
    }

    /// Also returns what the filters found.
    fn run(&self, contender: &Contender<'_>, repetition: u32) -> Result<(Run, Vec<u64>)> {
        let Self { cell, values, settings, .. } = *self;
        let directory = self.directory.join(contender.name());
        let store = self.open(contender, &directory)?;
        let (pairs, mut figures) = (settings.pairs(), Figures::default());
        load::measure(&*store, values, settings, cell.by_stage, &mut figures)?;
        let mut answers = Vec::new();
        for &percent in &cell.selectivities {
            answers.push(filters::measure(&*store, values, percent, settings.filters, settings.seed, &mut figures)?);
        }
        if cell.has_transactions {
            let stream = Stream::new(values, pairs, settings.seed);
            transactions::measure(&*store, stream, settings.transactions, &mut figures)?;
        }
        let timeline = match cell.has_timeline {
            true => Some(timeline::measure(&*store, values, settings, &mut figures)?),
            false => None,
        };
        store.close()?;
        fs::remove_dir_all(&directory)?;
        let run = Run { contender: contender.name().to_owned(), repetition, figures, timeline };
        if settings.progress {
            eprintln!("  repetition {}: {}", repetition + 1, run.line());
        }
        Ok((run, answers))
    }

    fn open(&self, contender: &Contender<'_>, directory: &Path) -> Result<Box<dyn Store>> {
        fs::create_dir_all(directory)?;
        let settings = DictionarySettings { by_stage: self.cell.by_stage, ..self.settings.clone() };
        match contender {
            Contender::Ours(format) => {
                Ok(Box::new(Ours::create(directory, *format, self.cell.value_bytes, &settings)?))
            }
            Contender::Rival(rival) => Ok(Box::new(Rival::new((rival.open)(directory, &settings)?, directory))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{StoreFactory, StoreOptions};

    /// A key-value table of ours stands in for RocksDB.
    fn stand_in(directory: &Path, settings: &DictionarySettings) -> Result<RivalStore> {
        let options = StoreOptions { write_buffer_bytes: settings.file_bytes, ..StoreOptions::default() };
        let store = crate::MyceliumFactory.open(directory, &options)?;
        Ok(RivalStore { store, compactions: Box::new(Compactions::default), read_seconds: Box::new(|| 0.0) })
    }

    fn tiny(directory: &Path) -> DictionarySettings {
        DictionarySettings {
            file_bytes: 32 << 10,
            files: 4,
            filters: 2,
            transactions: 600,
            timeline_seconds: 0.3,
            repetitions: 2,
            contenders: vec!["rows".to_owned(), "stand-in".to_owned()],
            progress: false,
            ..DictionarySettings::new(directory)
        }
    }

    fn all_parts(settings: &DictionarySettings, report: &mut DictionaryReport) -> Result<()> {
        let rival = DictionaryRival { name: "stand-in", open: &stand_in };
        Part::ALL.into_iter().try_for_each(|part| run(part, settings, &[rival], report))
    }

    #[test]
    fn small_tables_are_filled_filtered_and_read_alike_by_all() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let cells = ["size-128", "ndv-1", "zipf-1.5", "timeline-128", "stages-32"].map(str::to_owned).to_vec();
        let settings = DictionarySettings { cells, ..tiny(directory.path()) };
        let mut report = DictionaryReport::default();
        all_parts(&settings, &mut report).expect("experiment");
        // "ndv-1" is in "ndv-10", too.
        assert_eq!(report.cells.len(), 6, "{:?}", report.cells.keys());
        let stages = &report.cells["stages-32"].figures["rows"];
        for figure in ["compaction.disk_percent", "filter-1.disk_percent"] {
            let percent = stages[figure].median;
            assert!(percent > 0.0 && percent < 100.0, "{figure}: {percent}");
        }
        let size = &report.cells["size-128"];
        for figure in
            ["insert.settled_rate", "insert.p99_us", "filter-1.count_ms", "hybrid.rate", "hybrid.range_p99_us"]
        {
            assert_eq!(size.figures["rows"][figure].count, 2, "{figure}");
            assert!(size.ratios["rows"]["stand-in"][figure].median > 0.0, "{figure}");
        }
        assert!(size.figures["rows"]["compaction.written_mb"].median > 0.5, "{size:?}");
        // A file has 1,638 pairs and 16 values; a filter finds the rows of one of them at least.
        let pairs = settings.pairs() as f64;
        for (percent, share) in [("0.1", 0.08), ("1", 0.08), ("10", 0.15)] {
            let found = report.cells["ndv-1"].figures["rows"][&format!("filter-{percent}.rows")].median / pairs;
            assert!(found > 0.0 && found < share, "{percent} %: {found}");
        }
        let timeline = &report.cells["timeline-128"].timelines["rows"];
        assert!(timeline.rates.iter().sum::<f64>() > 0.0 && !timeline.filters.is_empty(), "{timeline:?}");
        assert!(report.table().contains("rows / stand-in"), "{}", report.table());
        let drawn: Vec<String> = report.plots("a machine").into_iter().map(|(name, _)| name).collect();
        assert!(drawn.contains(&"opd-ndv-cpu".to_owned()), "{drawn:?}");
        for alone in ["opd-filters-selectivity", "opd-timeline-128", "opd-stages"] {
            assert!(drawn.contains(&alone.to_owned()), "{drawn:?}");
        }
        assert!(!drawn.contains(&"opd-hybrid".to_owned()), "there is one size: {drawn:?}");
        assert_eq!(fs::read_dir(directory.path()).expect("directory").count(), 0, "nothing is left");
    }

    /// An engine that does not write every level in columns yet must not pass for one that does.
    #[test]
    fn columns_are_measured_as_columns_or_not_at_all() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let contenders = ["rows", "columnar"].map(str::to_owned).to_vec();
        let cells = vec!["size-128".to_owned()];
        let settings = DictionarySettings { contenders, cells, repetitions: 1, ..tiny(directory.path()) };
        let mut report = DictionaryReport::default();
        match run(Part::Sizes, &settings, &[], &mut report) {
            Ok(()) => {
                let dictionaries = report.cells["size-128"].figures["columnar"]["insert.dictionaries_mb"].median;
                assert!(dictionaries > 0.0 && dictionaries < 1.0, "dictionaries of {dictionaries} MB");
                let ratio = report.cells["size-128"].ratios["columnar"]["rows"]["insert.files_mb"].median;
                assert!(ratio < 0.7, "files of codes are {ratio} of those of values");
            }
            Err(error) => assert!(error.to_string().contains("are columnar, not"), "{error}"),
        }
    }

    #[test]
    fn unknown_contenders_are_refused() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let settings = DictionarySettings { contenders: vec!["oracle".to_owned()], ..tiny(directory.path()) };
        let error = all_parts(&settings, &mut DictionaryReport::default()).expect_err("no such contender");
        assert!(error.to_string().contains("columnar, rows, stand-in"), "{error}");
    }

    #[test]
    fn the_number_of_values_follows_the_size_of_files() {
        let directory = Path::new("unused");
        let distinct = |scale: f64| {
            let settings = DictionarySettings::new(directory).scaled(scale);
            (settings.distinct_values(&Part::Sizes.cells()[0]), settings.pairs_per_file(), settings.files)
        };
        assert_eq!(distinct(1.0), (1_048, 104_857, 20));
        assert_eq!(distinct(0.25), (524, 52_428, 10));
        assert_eq!(distinct(1024.0), (33_554, 3_355_443, 640));
    }
}
