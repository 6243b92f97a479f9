//! The stores under test behind one trait: a typed table of ours, and any store of bytes.
//!
//! Keys are 16 characters, values text; both get the same. A filter on a store of bytes reads everything and compares
//! the bytes of values, as the paper does with its rivals; ours hands the range to the engine's scan
//! ([`ScanOptions::filter`]).
//!
//! Where stages are timed ([`DictionarySettings::by_stage`]), files are read past the page cache. Outputs go through it
//! and are synced, ours and RocksDB's alike.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::{RecordBatch, StringArray};
use mycelium_base::{Group, GroupFormat};
use mycelium_encoding::page::{ColumnTest, Filter, Test};
use mycelium_encoding::{Datum, DatumRef, Schema};
use mycelium_engine::{
    Background, BatchScan, Database, Durability, Layout, LeveledOptions, Options, Policy, ReadOptions, ScanOptions,
    Table, TableOptions,
};
use mycelium_transform::Formats;
use mycelium_vfs::LocalDisk;

use super::DictionarySettings;
use super::values::ValueRange;
use crate::bench_disk::BenchDisk;
use crate::experiments::sst_bytes;
use crate::keys::with_text_key;
use crate::store::{KeyValueStore, Result, directory_bytes};

const SCHEMA: &str = "key utf8 not null, value utf8 not null, primary key (key)";
const KEY: usize = 0;
const VALUE: usize = 1;

/// A store of pairs, shared by the threads of a workload.
pub(super) trait Store: Sync {
    /// Gives a pair this value, whether it is there or not.
    fn put(&self, index: u64, value: &str) -> Result<()>;

    /// Replaces the contents of `value` by the pair's value; `false` if it is not there.
    fn point(&self, index: u64, value: &mut Vec<u8>) -> Result<bool>;

    /// Reads up to `rows` pairs from this one on, in key order; returns how many there were.
    fn range(&self, index: u64, rows: u64) -> Result<u64>;

    /// Counts the pairs with a value in the range.
    fn count(&self, range: &ValueRange) -> Result<u64>;

    /// Appends key and value of each of them to `found`, in key order; returns how many there were.
    fn fetch(&self, range: &ValueRange, found: &mut Vec<u8>) -> Result<u64>;

    /// Writes everything to files and waits until no compaction is running or due. Fails if the files are not what the
    /// contender is called.
    fn settle(&self) -> Result<()>;

    /// What compactions did since the store was opened.
    fn compactions(&self) -> Compactions;

    /// Seconds that reads of files have taken, those of compactions apart where the store tells them apart; 0 if stages
    /// are not timed.
    fn read_seconds(&self) -> f64;

    /// Bytes of all its dictionaries; `None` of a store that has none.
    fn dictionary_bytes(&self) -> Option<u64> {
        None
    }

    /// Bytes of the files with its pairs.
    fn file_bytes(&self) -> u64;

    /// Closes it.
    fn close(self: Box<Self>) -> Result<()>;
}

/// What compactions did, flushes not among them.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Compactions {
    /// Their seconds, added up over threads.
    pub seconds: f64,
    /// Their seconds of CPU, likewise.
    pub cpu_seconds: f64,
    /// Bytes they read.
    pub bytes_read: u64,
    /// Bytes they wrote.
    pub bytes_written: u64,
    /// Of their seconds; all 0 if stages are not timed.
    pub stages: Stages,
}

/// Seconds of compactions by stage (figure 1). What these leave is merging, filtering, and laying entries out in
/// blocks.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Stages {
    /// Reading the inputs' blocks.
    pub read: f64,
    /// Making them readable: ours verifies, decompresses and opens them, of RocksDB's only the decompression is timed.
    pub decode: f64,
    /// Compressing blocks.
    pub compress: f64,
    /// Writing and syncing the outputs.
    pub write: f64,
}

/// How our table holds its rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    /// As they came, at every level.
    Rows,
    /// In columns from level 0 on.
    Columnar,
}

impl Format {
    /// Both, the subject of ratios first.
    pub(super) const ALL: [Self; 2] = [Self::Columnar, Self::Rows];

    /// The word in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Columnar => "columnar",
        }
    }

    fn layout(self, schema: &Schema) -> Result<Layout> {
        let formats = Formats::new(Arc::new(schema.clone()));
        let text = match self {
            Self::Rows => "L0 tiered: * packed\nL1 leveled: * packed",
            Self::Columnar => "L0 tiered: * columnar\nL1 leveled: * columnar",
        };
        Ok(Layout::parse(text, formats.columns())?)
    }
}

/// A typed table of ours.
pub(super) struct Ours {
    database: Database,
    table: Table,
    format: Format,
    read_nanos: Option<Arc<AtomicU64>>,
}

impl Ours {
    /// An empty table in a new database.
    pub(super) fn create(
        directory: &Path,
        format: Format,
        value_bytes: usize,
        settings: &DictionarySettings,
    ) -> Result<Self> {
        let schema = Schema::parse(SCHEMA)?;
        let file_bytes = settings.file_bytes;
        let read_nanos = settings.by_stage.then(Arc::<AtomicU64>::default);
        let mut disk = BenchDisk::new(Arc::new(LocalDisk), settings.by_stage, false);
        disk.read_nanos.clone_from(&read_nanos);
        let options = Options {
            disk: Arc::new(disk),
            // See `mycelium_store`: the memtables of one generation hold a write buffer's worth of rows.
            memory_budget: usize::try_from(file_bytes)? / 16 * 21,
            cache_bytes: settings.cache_bytes() + settings.outside_cache_bytes(value_bytes),
            background: Background::Threads(2),
            slowdown_level0_runs: DictionarySettings::SLOWDOWN_FILES,
            stop_level0_runs: DictionarySettings::STOP_FILES,
            ..Options::default()
        };
        let policy = Policy::Leveled(LeveledOptions {
            level0_trigger: DictionarySettings::LEVEL0_FILES,
            base_level_bytes: settings.base_level_bytes(),
            target_file_size: file_bytes,
            max_compaction_bytes: 25 * file_bytes,
            dynamic_levels: false,
            ..LeveledOptions::default()
        });
        let layout = Some(format.layout(&schema)?);
        let database = Database::open(directory, options)?;
        let table =
            database.create_typed_table("pairs", schema, TableOptions { policy, layout, ..TableOptions::default() })?;
        Ok(Self { database, table, format, read_nanos })
    }

    /// Fails if a level holds files of another format: the figures would be another table's.
    fn check_format(&self) -> Result<()> {
        let metrics = self.database.metrics();
        for level in metrics.tables.iter().flat_map(|table| &table.levels).filter(|level| level.files > 0) {
            let is_columnar = |group: &Option<Group>| group.as_ref().is_some_and(|g| g.format == GroupFormat::Columnar);
            let found = level.groups.iter().filter(|found| is_columnar(&found.group));
            let columnar: usize = found.map(|found| found.files).sum();
            let wanted = if self.format == Format::Columnar { level.files } else { 0 };
            if wanted != columnar {
                let (number, name, files) = (level.level, self.format.name(), level.files);
                let message =
                    format!("{name}: of {files} files of level {number} {columnar} are columnar, not {wanted}");
                return Err(message.into());
            }
        }
        Ok(())
    }

    /// The rows with a value in the range.
    fn filter(&self, projection: &[usize], range: &ValueRange) -> Result<BatchScan> {
        let text = |bound: &str| Datum::Utf8(bound.to_owned());
        let (low, high) = range.bounds();
        let upper = high.map_or(Bound::Unbounded, |high| Bound::Excluded(text(high)));
        let test = Test::Range { lower: Bound::Included(text(low)), upper };
        let filter = Some(Filter { conjuncts: vec![ColumnTest { column: VALUE, test }] });
        let projection = Some(projection.to_vec());
        Ok(self.table.scan_batches(ScanOptions { projection, filter, ..ScanOptions::default() })?)
    }
}

fn texts(batch: &RecordBatch, column: usize) -> Result<&StringArray> {
    Ok(batch.column(column).as_string_opt::<i32>().ok_or("a column is not text")?)
}

impl Store for Ours {
    fn put(&self, index: u64, value: &str) -> Result<()> {
        let row = |key: &str| self.table.insert_row(&[DatumRef::Utf8(key), DatumRef::Utf8(value)], Durability::Os);
        with_text_key(index, row)?;
        Ok(())
    }

    fn point(&self, index: u64, value: &mut Vec<u8>) -> Result<bool> {
        let get = |key: &str| self.table.get_row(&[DatumRef::Utf8(key)], Some(&[VALUE]), &ReadOptions::default());
        let row = with_text_key(index, get)?;
        if let Some([Datum::Utf8(text)]) = row.as_deref() {
            value.clear();
            value.extend_from_slice(text.as_bytes());
        }
        Ok(row.is_some())
    }

    fn range(&self, index: u64, rows: u64) -> Result<u64> {
        let lower = with_text_key(index, |key| Bound::Included(vec![Datum::Utf8(key.to_owned())]));
        let options = ScanOptions { lower, limit: Some(rows), ..ScanOptions::default() };
        let mut found = 0;
        for batch in self.table.scan_batches(options)? {
            found += batch?.num_rows() as u64;
        }
        Ok(found)
    }

    fn count(&self, range: &ValueRange) -> Result<u64> {
        let mut count = 0;
        for batch in self.filter(&[VALUE], range)? {
            count += batch?.num_rows() as u64;
        }
        Ok(count)
    }

    fn fetch(&self, range: &ValueRange, found: &mut Vec<u8>) -> Result<u64> {
        let mut count = 0;
        for batch in self.filter(&[KEY, VALUE], range)? {
            let batch = batch?;
            let (keys, values) = (texts(&batch, KEY)?, texts(&batch, VALUE)?);
            for row in 0..batch.num_rows() {
                found.extend_from_slice(keys.value(row).as_bytes());
                found.extend_from_slice(values.value(row).as_bytes());
            }
            count += batch.num_rows() as u64;
        }
        Ok(count)
    }

    fn settle(&self) -> Result<()> {
        self.database.flush()?;
        self.database.wait_idle()?;
        self.check_format()
    }

    fn compactions(&self) -> Compactions {
        let metrics = self.database.metrics();
        let (stages, seconds) = (metrics.compaction_stages, |nanos: u64| nanos as f64 / 1e9);
        Compactions {
            stages: Stages {
                read: seconds(stages.read),
                decode: seconds(stages.decode),
                compress: seconds(stages.compress),
                write: seconds(stages.write),
            },
            seconds: seconds(stages.total),
            cpu_seconds: metrics.compaction_cpu_seconds,
            bytes_read: metrics.compaction_read_by_level.iter().sum(),
            bytes_written: metrics.compaction_written_by_level.iter().sum(),
        }
    }

    fn read_seconds(&self) -> f64 {
        self.read_nanos.as_ref().map_or(0.0, |nanos| nanos.load(Ordering::Relaxed) as f64 / 1e9)
    }

    fn dictionary_bytes(&self) -> Option<u64> {
        let tables = self.database.metrics().tables;
        (self.format == Format::Columnar).then(|| tables.iter().map(|table| table.dictionary_bytes).sum())
    }

    fn file_bytes(&self) -> u64 {
        sst_bytes(&self.database)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.close()?)
    }
}

/// A store of bytes that was opened for this experiment.
pub struct RivalStore {
    /// The store.
    pub store: Box<dyn KeyValueStore>,
    /// Tells what its compactions did since it was opened.
    pub compactions: Box<dyn Fn() -> Compactions + Send + Sync>,
    /// Tells the seconds that reads of files have taken, those of compactions apart; 0 if stages are not timed.
    pub read_seconds: Box<dyn Fn() -> f64 + Send + Sync>,
}

/// A store of bytes and its files.
pub(super) struct Rival {
    rival: RivalStore,
    directory: PathBuf,
}

impl Rival {
    /// One that is empty and whose files are in `directory`.
    pub(super) fn new(rival: RivalStore, directory: &Path) -> Self {
        Self { rival, directory: directory.to_path_buf() }
    }
}

impl Store for Rival {
    fn put(&self, index: u64, value: &str) -> Result<()> {
        with_text_key(index, |key| self.rival.store.put(key.as_bytes(), value.as_bytes()))
    }

    fn point(&self, index: u64, value: &mut Vec<u8>) -> Result<bool> {
        with_text_key(index, |key| self.rival.store.get(key.as_bytes(), value))
    }

    fn range(&self, index: u64, rows: u64) -> Result<u64> {
        let rows = usize::try_from(rows)?;
        Ok(with_text_key(index, |key| self.rival.store.scan_from(key.as_bytes(), rows, &mut |_, _| ()))? as u64)
    }

    fn count(&self, range: &ValueRange) -> Result<u64> {
        let mut count = 0;
        self.rival.store.scan_all(&mut |_, value| count += u64::from(range.contains(value)))?;
        Ok(count)
    }

    fn fetch(&self, range: &ValueRange, found: &mut Vec<u8>) -> Result<u64> {
        let mut count = 0;
        self.rival.store.scan_all(&mut |key, value| {
            if range.contains(value) {
                found.extend_from_slice(key);
                found.extend_from_slice(value);
                count += 1;
            }
        })?;
        Ok(count)
    }

    fn settle(&self) -> Result<()> {
        self.rival.store.settle()
    }

    fn compactions(&self) -> Compactions {
        (self.rival.compactions)()
    }

    fn read_seconds(&self) -> f64 {
        (self.rival.read_seconds)()
    }

    /// With its log, where that is not removed yet.
    fn file_bytes(&self) -> u64 {
        directory_bytes(&self.directory)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.rival.store.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_lie_in_columns_from_level_0_on() {
        let schema = Schema::parse(SCHEMA).expect("schema");
        let layout = Format::Columnar.layout(&schema).expect("layout");
        assert_eq!(layout.to_string(), "L0 tiered: * columnar\nL1 leveled: * columnar\n");
    }
}
