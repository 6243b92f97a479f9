//! Transformations inside compaction (Mycelium, table 2, figures 7 and 8): what they cost writers and give readers.
//!
//! For each source format, Protobuf and JSON:
//!
//! 1. Tables of the same records, without transformer and with each that takes this format, a rival's store, and the
//!    rival with a client that does the same work when it writes (`at_write`), are filled again and again, in turns
//!    (`writes`).
//! 2. The stores of the last repetition are read, in turns (`reads`).
//!
//! The paper's tree (appendix D: write buffers of 128 MiB, files and base level of twice that, four files of level 0 to
//! a compaction, slowed at 30, stopped at 64, 100 GB and more in it) is scaled down by its write buffer. Its 16 + 8
//! threads for 32 cores are two here; its block cache keeps its share of the data. RocksDB holds indexes and filters
//! outside that cache; ours does not and gets as much more. Nothing is compressed.
//!
//! One client writes, where the paper has eight: a second would only take the core that compacts.

mod at_write;
mod plots;
mod queries;
mod reads;
mod records;
mod report;
mod stores;
mod variants;
mod writes;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use reads::ReadFigures;
pub use report::TransformationReport;
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
pub use writes::WriteFigures;

use self::at_write::RivalAtWrite;
use self::reads::Named;
use self::records::{Records, SourceFormat};
use self::stores::{Ours, Rival, RowStore};
use self::variants::Contender;
use self::writes::WriteRun;
use crate::store::{KeyValueStore, Result};

/// What is run.
#[derive(Clone, Debug)]
pub struct TransformationSettings {
    /// Where stores are made and removed.
    pub directory: PathBuf,
    /// Bytes of a write buffer; the tree follows.
    pub buffer_bytes: u64,
    /// Write buffers that the records fill.
    pub buffers: u64,
    /// Point queries of each kind in each store, those that warm up left out; ranges are fewer.
    pub reads: u64,
    /// Rows of a range.
    pub range_rows: u64,
    /// Times that every store is filled.
    pub repetitions: u32,
    /// Only these contenders, by their names in reports; empty is all there is.
    pub contenders: Vec<String>,
    /// Only their writes.
    pub writes_only: bool,
    /// Seed of all draws.
    pub seed: u64,
    /// Tell on standard error what is running.
    pub progress: bool,
}

impl TransformationSettings {
    /// Files of level 0 that start a compaction.
    pub const LEVEL0_FILES: usize = 4;
    /// Files of level 0 at which writers are slowed.
    pub const SLOWDOWN_FILES: usize = 30;
    /// Files of level 0 at which writers stop.
    pub const STOP_FILES: usize = 64;

    /// The scale of the claims: 2 GB in write buffers of 1 MiB. So many, because a split leaves up to 3 x (1 + 4 + 16)
    /// of them, and more where level 0 waits for company, in tiered levels, on their way. Ranges have the 100 rows of
    /// the paper's cost model.
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_path_buf(),
            buffer_bytes: 1 << 20,
            buffers: 2048,
            reads: 80_000,
            range_rows: 100,
            repetitions: 3,
            contenders: Vec::new(),
            writes_only: false,
            seed: 1,
            progress: true,
        }
    }

    /// The same with so many times the data: both the write buffers and their number take the root of it. Were it their
    /// size alone, syncs of small files would soon be all that is measured; were it their number alone, less would be
    /// transformed.
    #[must_use]
    pub fn scaled(self, scale: f64) -> Self {
        let root = scale.sqrt();
        let buffer_bytes = (self.buffer_bytes as f64 * root) as u64;
        let buffers = (self.buffers as f64 * root) as u64;
        let reads = (self.reads as f64 * scale.min(1.0)) as u64;
        Self { buffer_bytes: buffer_bytes.max(16 << 10), buffers: buffers.max(64), reads: reads.max(800), ..self }
    }

    /// Bytes of a file, and of the base level.
    pub fn file_bytes(&self) -> u64 {
        2 * self.buffer_bytes
    }

    /// Bytes of data blocks to be cached: the paper has 512 MiB for 100 GB.
    pub fn cache_bytes(&self) -> u64 {
        self.buffers * self.buffer_bytes / 200
    }

    /// Bytes that indexes and filters of a table with so many column groups take: ten bits per key and group, and for
    /// each block of 4 KiB a key and its place.
    fn outside_cache_bytes(&self, records: &Records, groups: u64) -> Result<u64> {
        Ok(self.records(records)? * groups * 10 / 8 + self.buffers * self.buffer_bytes / 64)
    }

    fn records(&self, records: &Records) -> Result<u64> {
        Ok(self.buffers * self.buffer_bytes / records.mean_bytes()?)
    }
}

/// Makes an empty store of a rival, set up like the paper's.
pub type OpenRival<'a> = &'a dyn Fn(&Path, &TransformationSettings) -> Result<Box<dyn KeyValueStore>>;

/// Runs everything, with the rival if there is one.
pub fn run(settings: &TransformationSettings, rival: Option<OpenRival<'_>>) -> Result<TransformationReport> {
    let base = settings.directory.join(format!("transformations-{}", std::process::id()));
    let mut report = TransformationReport::new(settings);
    for source in SourceFormat::ALL {
        let directory = base.join(source.name());
        let family = Family { settings, source, records: Arc::new(Records::new(source)?), directory, rival };
        if family.contenders().is_empty() {
            continue;
        }
        if settings.progress {
            eprintln!("records in {}", source.name());
        }
        let (runs, mut stores) = family.write()?;
        report.writes.insert(source.name().to_owned(), writes::figures(&runs));
        if !settings.writes_only {
            let records = settings.records(&family.records)?;
            report.reads.insert(source.name().to_owned(), reads::measure(&mut stores, records, settings)?);
        }
        for (_, store) in stores {
            store.close()?;
        }
        fs::remove_dir_all(&family.directory)?;
    }
    if base.exists() {
        fs::remove_dir_all(&base)?;
    }
    Ok(report.finish())
}

/// The contenders of one source format.
struct Family<'a> {
    settings: &'a TransformationSettings,
    source: SourceFormat,
    records: Arc<Records>,
    directory: PathBuf,
    rival: Option<OpenRival<'a>>,
}

impl Family<'_> {
    fn contenders(&self) -> Vec<Contender> {
        let named = &self.settings.contenders;
        let mut contenders = Contender::all(self.source, self.rival.is_some());
        let is_named = |contender: &Contender, name: &String| {
            name == contender.name() || *name == format!("{}/{}", self.source.name(), contender.name())
        };
        contenders.retain(|contender| named.is_empty() || named.iter().any(|name| is_named(contender, name)));
        contenders
    }

    /// All runs, and the stores of the last repetition that are to be read.
    fn write(&self) -> Result<(Vec<WriteRun>, Vec<Named>)> {
        let records = self.settings.records(&self.records)?;
        let bytes = records * self.records.mean_bytes()?;
        let contenders = self.contenders();
        let (mut runs, mut kept) = (Vec::new(), BTreeMap::new());
        for repetition in 0..self.settings.repetitions.max(1) {
            let is_last = repetition + 1 == self.settings.repetitions.max(1);
            let mut turns = writes::turns(&contenders);
            turns.retain(|contender| is_last || !matches!(contender, Contender::RivalAtWrite(_)));
            if repetition % 2 == 1 {
                turns.reverse();
            }
            for contender in turns {
                let place = contenders.iter().position(|&one| one == contender);
                let directory = self.directory.join(format!("{}-{}", contender.name(), runs.len()));
                let mut store = self.open(contender, &directory)?;
                runs.push(writes::fill(&mut *store, contender, repetition, records, bytes, self.settings)?);
                let is_kept = is_last && contender.is_read() && !self.settings.writes_only;
                if is_kept && !kept.contains_key(&place) {
                    kept.insert(place, (contender, store));
                } else {
                    store.close()?;
                    fs::remove_dir_all(&directory)?;
                }
            }
        }
        Ok((runs, kept.into_values().collect()))
    }

    fn open(&self, contender: Contender, directory: &Path) -> Result<Box<dyn RowStore>> {
        fs::create_dir_all(&self.directory)?;
        keep_apart(&self.directory)?;
        fs::create_dir(directory)?;
        match (contender, self.rival) {
            (Contender::Ours(variant), _) => {
                Ok(Box::new(Ours::create(directory, variant, self.records.clone(), self.settings)?))
            }
            (Contender::Rival, Some(open)) => {
                let store = open(directory, self.settings)?;
                Ok(Box::new(Rival::new(store, directory, self.records.clone())))
            }
            (Contender::RivalAtWrite(variant), Some(open)) => {
                let store = open(directory, self.settings)?;
                let (records, count) = (self.records.clone(), self.settings.records(&self.records)?);
                Ok(Box::new(RivalAtWrite::new(store, directory, variant, records, count)?))
            }
            (Contender::Rival | Contender::RivalAtWrite(_), None) => Err("no rival was given".into()),
        }
    }
}

/// Asks the file system to put the directories in this one far from each other, so that no run pays for the files that
/// the runs before it removed: ext4 gives out no inode again for one to six minutes, and whoever makes a file in its
/// neighbourhood steps over all of these, which was up to a twentieth of a run. Other file systems know no such wish.
#[expect(clippy::disallowed_methods, reason = "a directory of the experiment, which the engine only makes files in")]
fn keep_apart(directory: &Path) -> Result<()> {
    let directory = fs::File::open(directory)?;
    if let Ok(flags) = ioctl_getflags(&directory) {
        ioctl_setflags(&directory, flags | IFlags::TOPDIR).ok();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{StoreFactory, StoreOptions};

    /// A key-value table of ours stands in for RocksDB.
    fn stand_in(directory: &Path, settings: &TransformationSettings) -> Result<Box<dyn KeyValueStore>> {
        let options = StoreOptions { write_buffer_bytes: settings.buffer_bytes, ..StoreOptions::default() };
        crate::MyceliumFactory.open(directory, &options)
    }

    #[test]
    fn a_small_tree_is_transformed_and_read_alike_by_all() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let settings = TransformationSettings {
            buffer_bytes: 16 << 10,
            buffers: 60,
            reads: 400,
            repetitions: 2,
            progress: false,
            ..TransformationSettings::new(directory.path())
        };
        let report = run(&settings, Some(&stand_in)).expect("experiment");
        let protobuf = &report.writes["protobuf"];
        assert_eq!(protobuf.len(), 9);
        for name in ["split", "split-convert", "augment"] {
            assert!(protobuf[name].over_rocksdb_at_write.is_some(), "{name}");
            assert!(protobuf[&format!("rocksdb-{name}")].over_rocksdb.is_some(), "{name}");
        }
        for name in ["identity", "split", "split-convert", "augment"] {
            let figures = &protobuf[name];
            assert!(figures.penalty_percent.is_some() && figures.over_rocksdb.is_some(), "{name}");
            assert_eq!(figures.rate.count, 2, "{name}");
        }
        assert!(protobuf["no-transform"].penalty_percent.is_none());
        let share = |figures: &WriteFigures| figures.transformed_percent.expect("a share").median;
        assert!(share(&protobuf["split"]) >= 95.0, "{report:?}");
        assert_eq!(share(&protobuf["identity"]), 100.0);
        assert!(report.convert_saves_percent.is_some_and(|saved| saved > 20.0), "{report:?}");
        let split = &report.reads["protobuf"]["q2-table"]["split"];
        assert!(split.over_rocksdb.is_some() && split.over_plain.is_some(), "{split:?}");
        let median = split.over_rocksdb_median.expect("a ratio of medians");
        assert_eq!(median.count, 3, "warming up does not count");
        assert!(split.p25_us <= split.p50_us && split.p50_us <= split.p75_us, "{split:?}");
        assert_eq!(report.reads["json"]["q7"].len(), 3);
        for query in ["q4", "q5"] {
            let asked = &report.reads["protobuf"][query];
            assert_eq!(asked.keys().collect::<Vec<_>>(), ["augment", "rocksdb-augment"]);
            assert!(asked["augment"].over_rocksdb.is_some() && asked["rocksdb-augment"].over_rocksdb.is_none());
        }
        assert!(report.index_range_over_scan.is_some_and(|ratio| ratio > 0.0));
        assert!(report.index_point_over_primary.is_some_and(|ratio| ratio > 0.0));
        assert!(report.index_range_over_primary.is_some_and(|ratio| ratio > 0.0));
        assert!(report.table().contains("penalty"));
        let drawn: Vec<String> = report.plots("a machine").into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            drawn,
            [
                "mycelium-writes-json",
                "mycelium-writes-protobuf",
                "mycelium-columns-json",
                "mycelium-rows-json",
                "mycelium-columns-protobuf",
                "mycelium-rows-protobuf",
                "mycelium-untransformed-protobuf",
                "mycelium-index-protobuf"
            ]
        );
        assert!(!fs::exists(directory.path().join(format!("transformations-{}", std::process::id()))).expect("exists"));
    }
}
