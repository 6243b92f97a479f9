//! The stores under test behind one trait: a typed table of ours, and any store of bytes with a parser beside it.
//!
//! Ours is given rows as a user writes them, and checks every byte; a rival takes them unchecked. Its readers parse
//! its values with [`RowFormat::read`], which stops at the last column wanted and builds nothing of the others; ours
//! ask the engine for columns. A reader adds up what it reads, so that it is looked at, and so that answers can be
//! compared.
//!
//! [`RowFormat::read`]: mycelium_encoding::RowFormat::read

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, RecordBatch};
use mycelium_encoding::row_format::RowScratch;
use mycelium_encoding::{ColumnState, Datum, DatumRef};
use mycelium_engine::{
    Background, BatchScan, Database, Durability, Index, IndexOptions, LeveledOptions, Options, Policy, ReadOptions,
    ScanOptions, Table, TableOptions,
};

use super::TransformationSettings;
use super::queries::Query;
use super::records::{COLUMNS, QUERIED, Records};
use super::variants::Variant;
use crate::experiments::sst_bytes;
use crate::keys::{KEY_LEN, with_text_key};
use crate::store::{KeyValueStore, Result};

/// A store of records.
pub(super) trait RowStore {
    /// Inserts a record.
    fn insert(&mut self, index: u64) -> Result<()>;

    /// Writes everything to files and waits until no compaction is running or due.
    fn settle(&mut self) -> Result<()>;

    /// Whether it answers a query.
    fn answers(&self, query: Query) -> bool;

    /// Answers a query of `rows` rows from record `index` on.
    fn answer(&mut self, query: Query, index: u64, rows: u64) -> Result<u64>;

    /// How far the records are transformed; `None` of a store that does not do that.
    fn transformed(&self) -> Option<Transformed>;

    /// Bytes of its SSTs.
    fn sst_bytes(&self) -> u64;

    /// Closes it.
    fn close(self: Box<Self>) -> Result<()>;
}

/// How far a table is transformed, by the bytes of its levels.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Transformed {
    /// Of the transforming compactions that all bytes have before them when they are flushed, those done.
    pub(super) steps_percent: f64,
    /// The bytes that have all of them behind them.
    pub(super) final_percent: f64,
}

impl Transformed {
    /// Of levels and their bytes: what lies in level n has n of the steps behind it.
    fn of(steps: usize, levels: impl Iterator<Item = (usize, u64)>) -> Self {
        let (mut all, mut done, mut finished) = (0.0, 0.0, 0.0);
        for (level, bytes) in levels {
            let bytes = bytes as f64;
            all += bytes;
            done += bytes * if steps == 0 { 1.0 } else { level.min(steps) as f64 / steps as f64 };
            finished += if level >= steps { bytes } else { 0.0 };
        }
        Self { steps_percent: done / all * 100.0, final_percent: finished / all * 100.0 }
    }
}

/// Bytes that an entry takes in a memtable beside its key and value: its head, and 3/2 links on average.
const NODE_BYTES: u64 = 12 + 16 * 3 / 2;

/// See `mycelium_store`: the memtables of one generation hold a write buffer's worth of rows. In the paper's store a
/// column family has write buffers of its own, and an index is one. Ours shares the budget with its table, which is
/// larger by what the entries of the index take: a number that may be null, and the row's key with its end.
fn memory_budget(records: &Records, has_index: bool, settings: &TransformationSettings) -> Result<u64> {
    let rows = settings.buffer_bytes / 16 * 21;
    let entry = if has_index { 1 + 8 + KEY_LEN as u64 + 2 + NODE_BYTES } else { 0 };
    Ok(rows + rows * entry / (records.mean_bytes()? + NODE_BYTES))
}

/// A typed table of ours.
pub(super) struct Ours {
    database: Database,
    table: Table,
    /// On the queried column.
    index: Option<Index>,
    records: Arc<Records>,
    record_count: u64,
    payload: Vec<u8>,
}

impl Ours {
    /// An empty table in a new database.
    pub(super) fn create(
        directory: &Path,
        variant: Variant,
        records: Arc<Records>,
        settings: &TransformationSettings,
    ) -> Result<Self> {
        let layout = variant.layout(records.rows())?;
        let groups = layout
            .as_ref()
            .map_or(1, |layout| layout.levels().iter().map(|level| level.groups.len()).max().unwrap_or(1));
        let has_index = variant == Variant::Augment;
        let options = Options {
            memory_budget: usize::try_from(memory_budget(&records, has_index, settings)?)?,
            cache_bytes: settings.cache_bytes(),
            index_and_filter_bytes: Some(settings.outside_cache_bytes(&records, groups as u64 + u64::from(has_index))?),
            background: Background::Threads(2),
            slowdown_level0_runs: TransformationSettings::SLOWDOWN_FILES,
            stop_level0_runs: TransformationSettings::STOP_FILES,
            ..Options::default()
        };
        let policy = Policy::Leveled(LeveledOptions {
            level0_trigger: TransformationSettings::LEVEL0_FILES,
            base_level_bytes: settings.file_bytes(),
            target_file_size: settings.file_bytes(),
            max_compaction_bytes: 25 * settings.file_bytes(),
            ..LeveledOptions::default()
        });
        let schema = records.rows().schema().as_ref().clone();
        let row_format = records.definition();
        let database = Database::open(directory, options)?;
        let table = database.create_typed_table(
            "records",
            schema,
            TableOptions { policy, row_format, layout, ..TableOptions::default() },
        )?;
        let on = vec![records.rows().schema().columns()[QUERIED].name.clone()];
        let index = IndexOptions { name: "by_number".to_owned(), on, ..IndexOptions::default() };
        let index = has_index.then(|| database.create_index(&table, &index)).transpose()?;
        let record_count = settings.records(&records)?;
        Ok(Self { database, table, index, records, record_count, payload: Vec::new() })
    }

    /// The row whose number is that of record `index`.
    fn point_by_number(&self, index: u64) -> Result<u64> {
        let number = self.records.with_row(index, |_, row| row[QUERIED].to_datum());
        let mut weights = Vec::new();
        for row in self.index()?.get(&[number.borrowed()], None, None)? {
            weights.push(sum(row?.values.iter().map(|datum| weigh(datum.borrowed()))));
        }
        match weights.as_slice() {
            [weight] => Ok(*weight),
            _ => Err(format!("{} rows have the number of record {index}", weights.len()).into()),
        }
    }

    /// The largest of the numbers of [`numbers_from`].
    fn maximum_by_number(&self, index: u64, rows: u64) -> Result<u64> {
        let bounds = numbers_from(&self.records, index, rows, self.record_count).map(DatumRef::UInt64);
        let bounds = (Bound::Included(&bounds[..1]), Bound::Excluded(&bounds[1..]));
        let mut maximum = 0;
        for row in self.index()?.range(bounds, Some(&[QUERIED]), None)? {
            maximum = row?.values.iter().map(|datum| weigh(datum.borrowed())).fold(maximum, u64::max);
        }
        Ok(maximum)
    }

    fn index(&self) -> Result<&Index> {
        Ok(self.index.as_ref().ok_or("the table has no index")?)
    }

    fn point(&self, index: u64, projection: Option<&[usize]>) -> Result<u64> {
        let row = with_text_key(index, |key| {
            self.table.get_row(&[DatumRef::Utf8(key)], projection, &ReadOptions::default())
        })?;
        let row = row.ok_or_else(|| format!("record {index} is not there"))?;
        Ok(sum(row.iter().map(|datum| weigh(datum.borrowed()))))
    }

    fn scan(&self, from: Option<u64>, rows: Option<u64>, projection: Option<Vec<usize>>) -> Result<BatchScan> {
        let lower = match from {
            None => Bound::Unbounded,
            Some(index) => with_text_key(index, |key| Bound::Included(vec![Datum::Utf8(key.to_owned())])),
        };
        Ok(self.table.scan_batches(ScanOptions { projection, lower, limit: rows, ..ScanOptions::default() })?)
    }

    fn maximum(&self, from: Option<u64>, rows: Option<u64>) -> Result<u64> {
        let mut maximum = 0;
        for batch in self.scan(from, rows, Some(vec![QUERIED]))? {
            let batch = batch?;
            let numbers = batch.column(0).as_primitive::<UInt64Type>().values();
            maximum = numbers.iter().copied().fold(maximum, u64::max);
        }
        Ok(maximum)
    }

    fn rows(&self, from: u64, rows: u64) -> Result<u64> {
        let mut weight = 0u64;
        for batch in self.scan(Some(from), Some(rows), None)? {
            weight = weight.wrapping_add(weigh_batch(&batch?));
        }
        Ok(weight)
    }
}

impl RowStore for Ours {
    fn insert(&mut self, index: u64) -> Result<()> {
        let (records, table, payload) = (&self.records, &self.table, &mut self.payload);
        records.with_row(index, |_, row| {
            records.write_payload(row, payload);
            table.put_payload(&row[..1], payload, Durability::Os)
        })?;
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        self.database.flush()?;
        Ok(self.database.wait_idle()?)
    }

    fn answers(&self, query: Query) -> bool {
        self.index.is_some() || !query.is_by_index()
    }

    fn answer(&mut self, query: Query, index: u64, rows: u64) -> Result<u64> {
        match query {
            Query::IndexPoint => self.point_by_number(index),
            Query::IndexRange => self.maximum_by_number(index, rows),
            Query::ColumnPoint => self.point(index, Some(&[QUERIED])),
            Query::RowPoint => self.point(index, None),
            Query::ColumnRange => self.maximum(Some(index), Some(rows)),
            Query::ColumnTable => self.maximum(None, None),
            Query::RowRange => self.rows(index, rows),
        }
    }

    /// As many steps lie before a record as levels above the first whose groups are the last's.
    fn transformed(&self) -> Option<Transformed> {
        let layout = self.table.layout();
        let last = layout.levels().last().map(|level| &level.groups);
        let steps = layout.levels().iter().position(|level| Some(&level.groups) == last).unwrap_or(0);
        let metrics = self.database.metrics();
        let levels = metrics.tables.iter().flat_map(|table| &table.levels);
        Some(Transformed::of(steps, levels.map(|level| (level.level, level.bytes))))
    }

    fn sst_bytes(&self) -> u64 {
        sst_bytes(&self.database)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.close()?)
    }
}

/// A store of bytes.
pub(super) struct Rival {
    store: Box<dyn KeyValueStore>,
    directory: PathBuf,
    records: Arc<Records>,
    scratch: RowScratch,
    value: Vec<u8>,
}

impl Rival {
    /// `store`, which is empty, and whose files are in `directory`.
    pub(super) fn new(store: Box<dyn KeyValueStore>, directory: &Path, records: Arc<Records>) -> Self {
        Self { store, directory: directory.to_path_buf(), records, scratch: RowScratch::default(), value: Vec::new() }
    }

    fn point(&mut self, index: u64, whole: bool) -> Result<u64> {
        if !with_text_key(index, |key| self.store.get(key.as_bytes(), &mut self.value))? {
            return Err(format!("record {index} is not there").into());
        }
        if !whole {
            return weigh_queried(&self.records, &self.value, &mut self.scratch);
        }
        let sum = weigh_value(&self.records, &self.value, &mut self.scratch)?;
        Ok(sum.wrapping_add(with_text_key(index, weigh_text)))
    }

    /// Parses the queried column, or all of them, of `rows` rows from `from` on, and folds what they weigh.
    fn scan(&mut self, from: Option<u64>, rows: u64, whole: bool, fold: fn(u64, u64) -> u64) -> Result<u64> {
        let (mut folded, mut failure) = (0, None);
        let (records, scratch) = (&self.records, &mut self.scratch);
        let mut visit = |key: &[u8], value: &[u8]| {
            let weight = if whole {
                let key = weigh_text(std::str::from_utf8(key).unwrap_or_default());
                weigh_value(records, value, scratch).map(|weight| weight.wrapping_add(key))
            } else {
                weigh_queried(records, value, scratch)
            };
            match weight {
                Ok(weight) => folded = fold(folded, weight),
                Err(error) => failure = Some(error),
            }
        };
        match from {
            None => {
                self.store.scan_all(&mut visit)?;
            }
            Some(index) => {
                let count = usize::try_from(rows)?;
                with_text_key(index, |key| self.store.scan_from(key.as_bytes(), count, &mut visit))?;
            }
        }
        failure.map_or(Ok(folded), Err)
    }
}

impl RowStore for Rival {
    fn insert(&mut self, index: u64) -> Result<()> {
        let (store, scratch, value) = (&self.store, &mut self.scratch, &mut self.value);
        self.records.with_row(index, |key, row| {
            self.records.encode(row, scratch, value)?;
            store.put(key.as_bytes(), value)
        })
    }

    fn settle(&mut self) -> Result<()> {
        self.store.settle()
    }

    fn answers(&self, query: Query) -> bool {
        !query.is_by_index()
    }

    fn answer(&mut self, query: Query, index: u64, rows: u64) -> Result<u64> {
        match query {
            Query::IndexPoint | Query::IndexRange => Err("the store has no index".into()),
            Query::ColumnPoint => self.point(index, false),
            Query::RowPoint => self.point(index, true),
            Query::ColumnRange => self.scan(Some(index), rows, false, u64::max),
            Query::ColumnTable => self.scan(None, u64::MAX, false, u64::max),
            Query::RowRange => self.scan(Some(index), rows, true, u64::wrapping_add),
        }
    }

    fn transformed(&self) -> Option<Transformed> {
        None
    }

    fn sst_bytes(&self) -> u64 {
        sst_bytes_in(&self.directory)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.store.close()
    }
}

/// Bytes of the SSTs in a directory.
pub(super) fn sst_bytes_in(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let files = entries.flatten().filter(|entry| entry.path().extension().is_some_and(|extension| extension == "sst"));
    files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// The bounds of a range of numbers of about `rows` of `record_count` rows: from that of record `index` on.
pub(super) fn numbers_from(records: &Records, index: u64, rows: u64, record_count: u64) -> [u64; 2] {
    let from = records.with_row(index, |_, row| weigh(row[QUERIED]));
    [from, from.saturating_add(u64::MAX / record_count.max(1) * rows)]
}

/// What the queried column of a stored value weighs.
fn weigh_queried(records: &Records, value: &[u8], scratch: &mut RowScratch) -> Result<u64> {
    Ok(weigh_state(records.rows().read_column(value, QUERIED, scratch)?))
}

/// What all columns of a stored value weigh together.
pub(super) fn weigh_value(records: &Records, value: &[u8], scratch: &mut RowScratch) -> Result<u64> {
    let mut row = records.rows().read(value, None, scratch)?;
    let mut weight = 0u64;
    for column in 1..=COLUMNS {
        weight = weight.wrapping_add(weigh_state(row.get(column)?));
    }
    Ok(weight)
}

fn weigh_state(state: ColumnState<'_>) -> u64 {
    match state {
        ColumnState::Value(datum) => weigh(datum),
        _ => 0,
    }
}

fn weigh(datum: DatumRef<'_>) -> u64 {
    match datum {
        DatumRef::UInt64(number) => number,
        DatumRef::Utf8(text) => weigh_text(text),
        _ => 0,
    }
}

pub(super) fn weigh_text(text: &str) -> u64 {
    text.len() as u64 + u64::from(text.as_bytes().last().copied().unwrap_or(0))
}

fn weigh_batch(batch: &RecordBatch) -> u64 {
    sum(batch.columns().iter().map(|column| match column.as_primitive_opt::<UInt64Type>() {
        Some(numbers) => sum(numbers.values().iter().copied()),
        None => {
            let texts = column.as_string::<i32>();
            sum((0..texts.len()).map(|row| weigh_text(texts.value(row))))
        }
    }))
}

fn sum(weights: impl Iterator<Item = u64>) -> u64 {
    weights.fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_by_the_steps_behind_them() {
        let of = |steps| Transformed::of(steps, [(0, 10), (1, 20), (2, 30), (3, 40)].into_iter());
        assert_eq!(of(0), Transformed { steps_percent: 100.0, final_percent: 100.0 });
        assert_eq!(of(1), Transformed { steps_percent: 90.0, final_percent: 90.0 });
        assert_eq!(of(2), Transformed { steps_percent: 80.0, final_percent: 70.0 });
    }
}
