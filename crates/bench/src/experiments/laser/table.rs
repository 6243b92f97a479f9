//! The table of LASER's benchmark (§7) and its tree, in manual mode: everything happens in the caller's thread, so that
//! trees and counters follow from the seed alone.
//!
//! 1. A row has a key `a0` of 8 bytes and columns `a1` to `ac` of 4 bytes, all uniformly distributed. Rows are inserted
//!    in the order of their indexes, which is a random order of keys.
//! 2. The tree is the paper's, scaled down by what level 0 holds: four write buffers. Level 1 holds a fanout as much,
//!    and so on; the last level holds the rest. The oldest file of a level goes down first (§2.1).
//! 3. After every write buffer of rows the memtable is flushed and all compactions that are due are done.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use mycelium_base::ColumnSet;
use mycelium_encoding::{Datum, DatumRef, Schema};
use mycelium_engine::advisor::Design;
use mycelium_engine::{
    Background, Compression, Database, Durability, LeveledOptions, Options, PickPriority, Policy, ReadCounters,
    ReadOptions, ScanOptions, Table, TableMetrics, TableOptions,
};
use mycelium_vfs::LocalDisk;

use crate::bench_disk::BenchDisk;
use crate::keys::mix;
use crate::store::Result;

/// Write buffers in a full level 0.
const LEVEL0_FILES: usize = 4;
/// The fewest rows of a full level 0. A small table has fewer levels instead of write buffers of a few rows.
const SMALLEST_LEVEL0: u64 = 128;
/// What a row takes in an SST besides its values and its key, about.
const ROW_OVERHEAD: u64 = 8;
/// The cache while rows are loaded: more than all filters and indexes.
const LOAD_CACHE_BYTES: u64 = 1 << 30;

/// The rows.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// Columns besides the key.
    pub columns: usize,
}

impl Rows {
    /// The key of the row that is inserted as number `index`.
    pub fn key(self, index: u64) -> u64 {
        mix(index)
    }

    /// Its column `column`, from 1 on.
    pub fn value(self, index: u64, column: usize) -> i32 {
        mix(mix(index) ^ column as u64) as i32
    }

    /// Bytes of its key and values.
    pub(super) fn bytes(self) -> u64 {
        8 + 4 * self.columns as u64
    }

    fn schema(self) -> Result<Schema> {
        let columns: String = (1..=self.columns).map(|column| format!("a{column} int32 not null, ")).collect();
        Ok(Schema::parse(&format!("a0 uint64 not null, {columns}primary key (a0)"))?)
    }

    fn row(self, index: u64) -> impl Iterator<Item = DatumRef<'static>> {
        let values = (1..=self.columns).map(move |column| DatumRef::Int32(self.value(index, column)));
        std::iter::once(DatumRef::UInt64(self.key(index))).chain(values)
    }
}

/// The tree that a table gets.
#[derive(Clone, Debug)]
pub(super) struct TreeShape {
    /// Columns besides the key.
    pub(super) columns: usize,
    /// Levels, level 0 included.
    pub(super) level_count: usize,
    /// `T`.
    pub(super) fanout: f64,
    /// Rows of a full level 0.
    pub(super) level0_rows: u64,
    /// Which file of a level goes down first.
    pub(super) priority: PickPriority,
    /// Of every block.
    pub(super) compression: Compression,
    /// Entries between whole keys in a block.
    pub(super) restart_interval: usize,
    /// Read past the page cache.
    pub(super) direct_io: bool,
}

impl TreeShape {
    /// A tree of `rows` rows, of which `last_share` lie in the last level when all others are full.
    pub(super) fn of(columns: usize, level_count: usize, fanout: f64, rows: u64, last_share: f64) -> Self {
        let above: f64 = (0..level_count as i32 - 1).map(|level| fanout.powi(level)).sum();
        let level0_rows = (rows as f64 * (1.0 - last_share) / above) as u64;
        Self {
            columns,
            level_count,
            fanout,
            level0_rows: level0_rows.max(SMALLEST_LEVEL0),
            priority: PickPriority::OldestFirst,
            compression: Compression::None,
            restart_interval: TableOptions::default().restart_interval,
            direct_io: false,
        }
    }

    fn level0_bytes(&self) -> u64 {
        self.level0_rows * (Rows { columns: self.columns }.bytes() + ROW_OVERHEAD)
    }

    /// Rows of a write buffer.
    pub(super) fn buffer_rows(&self) -> u64 {
        self.level0_rows / LEVEL0_FILES as u64
    }

    /// The most rows, up to `rows`, that leave level 0 as full as it gets: one write buffer more would make it go down.
    pub(super) fn rows_filling_level0(&self, rows: u64) -> u64 {
        let full = self.buffer_rows() * LEVEL0_FILES as u64;
        (rows / full).max(1) * full - self.buffer_rows()
    }

    fn options(&self, design: &Design) -> Result<TableOptions> {
        let level1 = self.level0_bytes() as f64 * self.fanout;
        let file_bytes = (self.level0_bytes() / 2).max(64 << 10);
        let policy = Policy::Leveled(LeveledOptions {
            level0_trigger: LEVEL0_FILES,
            base_level_bytes: level1 as u64,
            fanout: self.fanout,
            level_count: self.level_count,
            target_file_size: file_bytes,
            priority: self.priority,
            max_compaction_bytes: 25 * file_bytes,
            dynamic_levels: false,
            ..LeveledOptions::default()
        });
        let columns = (1..=self.columns).collect();
        Ok(TableOptions {
            policy,
            restart_interval: self.restart_interval,
            compression: vec![self.compression],
            layout: Some(mycelium_engine::Layout::parse(&layout_text(design), &columns)?),
            ..TableOptions::default()
        })
    }
}

/// A design, whose columns count from 0, as the layout of a table whose column 0 is its key.
pub(super) fn layout_text(design: &Design) -> String {
    let mut text = String::new();
    for (level, groups) in design.levels.iter().enumerate() {
        let merge = if level == 0 { "tiered" } else { "leveled" };
        let group = |group: &ColumnSet| {
            let columns: ColumnSet = group.iter().map(|column| column + 1).collect();
            format!("{columns} {}", if design.is_columnar(level, group) { "columnar" } else { "packed" })
        };
        let groups: Vec<String> = groups.iter().map(group).collect();
        text += &format!("L{level} {merge}: {}\n", groups.join(" | "));
    }
    text
}

/// What a scan makes of the rows it selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aggregate {
    /// Q3: the maximum of each column; here their sum, so that answers are one number.
    Maxima,
    /// Q4: the sum of the columns, row by row; here the sum of these.
    Sums,
}

/// A table of [`Rows`].
pub(super) struct LaserTable {
    database: Database,
    pub(super) table: Table,
    directory: PathBuf,
    shape: TreeShape,
    rows: Rows,
    row: Vec<DatumRef<'static>>,
    unflushed: u64,
}

impl LaserTable {
    /// A new, empty one.
    pub(super) fn create(directory: &Path, shape: &TreeShape, design: &Design) -> Result<Self> {
        fs::create_dir_all(directory)?;
        let database = open(directory, shape, LOAD_CACHE_BYTES)?;
        let rows = Rows { columns: shape.columns };
        let table = database.create_typed_table("rows", rows.schema()?, shape.options(design)?)?;
        let directory = directory.to_path_buf();
        Ok(Self { database, table, directory, shape: shape.clone(), rows, row: Vec::new(), unflushed: 0 })
    }

    /// The same, loaded with the first `count` rows.
    pub(super) fn load(directory: &Path, shape: &TreeShape, design: &Design, count: u64) -> Result<Self> {
        let mut table = Self::create(directory, shape, design)?;
        (0..count).try_for_each(|index| table.insert(index))?;
        table.settle()?;
        Ok(table)
    }

    /// Closes it and opens it again with nothing cached: the cache holds filters and indexes, as the paper assumes
    /// (§2.1), and `data_bytes` of data, but always an eighth as much data as those.
    pub(super) fn reopen(self, data_bytes: u64) -> Result<Self> {
        let Self { database, table, directory, shape, rows, row, unflushed } = self;
        let resident = database.metrics().cache.reserved;
        drop(table);
        database.close()?;
        // Reservations are granted seven eighths of a cache, and files to come need some, too.
        let cache_bytes = (resident + resident / 8 + data_bytes).max(resident * 8 / 7 + (64 << 10));
        let database = open(&directory, &shape, cache_bytes)?;
        let table = database.table("rows")?;
        Ok(Self { database, table, directory, shape, rows, row, unflushed })
    }

    /// Inserts row `index`.
    pub(super) fn insert(&mut self, index: u64) -> Result<()> {
        self.row.clear();
        self.row.extend(self.rows.row(index));
        self.table.insert_row(&self.row, Durability::Buffered)?;
        self.unflushed += 1;
        if self.unflushed >= self.shape.buffer_rows() { self.settle() } else { Ok(()) }
    }

    /// Sets a column of row `index`.
    pub(super) fn update(&mut self, index: u64, column: usize, value: i32) -> Result<()> {
        let name = format!("a{column}");
        let key = [DatumRef::UInt64(self.rows.key(index))];
        self.table.patch_row(&key, &[(&name, DatumRef::Int32(value))], Durability::Buffered)?;
        Ok(())
    }

    /// Flushes the memtable and does all compactions that are due.
    pub(super) fn settle(&mut self) -> Result<()> {
        self.unflushed = 0;
        self.database.flush()?;
        while self.database.step()? {}
        Ok(())
    }

    /// The sum of some columns of row `index`, which must be there.
    pub(super) fn point(&self, index: u64, projection: &[usize], counters: &mut ReadCounters) -> Result<i64> {
        let key = self.table.row_key(&[DatumRef::UInt64(self.rows.key(index))])?;
        let found = self.table.get_packed(&key, Some(projection), &ReadOptions::default(), counters)?;
        let (layout, value) = found.ok_or_else(|| format!("row {index} is not there"))?;
        let row = layout.row(&value)?;
        let mut sum = 0;
        for &column in projection {
            let Some(DatumRef::Int32(value)) = row.datum(column)? else {
                return Err(format!("row {index} has no column {column}").into());
            };
            sum += i64::from(value);
        }
        Ok(sum)
    }

    /// An aggregate of the rows with keys in `[from, to)`; adds what was read to `counters`.
    pub(super) fn scan(
        &self,
        (from, to): (u64, u64),
        projection: &[usize],
        aggregate: Aggregate,
        counters: &mut ReadCounters,
    ) -> Result<i64> {
        let mut scan = self.table.scan_batches(ScanOptions {
            projection: Some(projection.to_vec()),
            lower: Bound::Included(vec![Datum::UInt64(from)]),
            upper: Bound::Excluded(vec![Datum::UInt64(to)]),
            ..ScanOptions::default()
        })?;
        let mut answers = vec![if aggregate == Aggregate::Maxima { i64::MIN } else { 0 }; projection.len()];
        for batch in scan.by_ref() {
            fold(&batch?, aggregate, &mut answers);
        }
        *counters += scan.counters();
        Ok(answers.into_iter().fold(0, i64::wrapping_add))
    }

    /// The table's metrics.
    pub(super) fn metrics(&self) -> TableMetrics {
        self.database.metrics().tables.into_iter().find(|table| table.name == "rows").unwrap_or_default()
    }

    /// Those of its database.
    pub(super) fn database_metrics(&self) -> mycelium_engine::Metrics {
        self.database.metrics()
    }

    /// Bytes of its SSTs.
    pub(super) fn sst_bytes(&self) -> u64 {
        self.metrics().levels.iter().map(|level| level.bytes).sum()
    }

    /// The rows of each level: the entries of the group that has most of them.
    pub(super) fn rows_by_level(&self) -> Vec<u64> {
        let mut rows = vec![0; self.shape.level_count];
        for level in self.metrics().levels {
            let most = level.groups.iter().map(|group| group.entries).max();
            rows[level.level] = most.unwrap_or(level.entries);
        }
        rows
    }

    /// Point reads that each level has served so far, of all projections.
    pub(super) fn points_by_level(&self) -> Result<BTreeMap<usize, u64>> {
        let trace = self.table.trace()?;
        let points = |level| trace.accesses(level).iter().map(|access| access.points).sum();
        Ok((0..trace.level_count()).map(|level| (level, points(level))).collect())
    }

    /// Closes and removes it.
    pub(super) fn remove(self) -> Result<()> {
        let Self { database, table, directory, .. } = self;
        drop(table);
        database.close()?;
        Ok(fs::remove_dir_all(directory)?)
    }
}

fn fold(batch: &RecordBatch, aggregate: Aggregate, answers: &mut [i64]) {
    for (answer, column) in answers.iter_mut().zip(batch.columns()) {
        let values = column.as_primitive::<Int32Type>().values();
        match aggregate {
            Aggregate::Maxima => {
                let maximum = values.iter().copied().max().map_or(i64::MIN, i64::from);
                *answer = maximum.max(*answer);
            }
            Aggregate::Sums => *answer += values.iter().map(|value| i64::from(*value)).sum::<i64>(),
        }
    }
}

fn open(directory: &Path, shape: &TreeShape, cache_bytes: u64) -> Result<Database> {
    let options = Options {
        disk: Arc::new(BenchDisk::new(Arc::new(LocalDisk), shape.direct_io, true)),
        // No generation ends before its rows are in.
        memory_budget: usize::try_from(shape.level0_bytes())?.max(8 << 20) * 2,
        cache_bytes,
        background: Background::Manual,
        ..Options::default()
    };
    Ok(Database::open(directory, options)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_level_holds_its_share() {
        let shape = TreeShape::of(30, 8, 2.0, 254_000, 0.5);
        assert_eq!((shape.level0_rows, shape.buffer_rows()), (1_000, 250));
        assert_eq!(shape.rows_filling_level0(2_900), 1_750);
        assert_eq!(Rows { columns: 30 }.bytes(), 128);
    }

    #[test]
    fn designs_become_layouts_of_columns_from_1_on() {
        let design = Design::fixed_width(4, 2, 2).expect("design");
        assert_eq!(layout_text(&design), "L0 tiered: 1-4 packed\nL1 leveled: 1-2 packed | 3-4 packed\n");
    }

    #[test]
    fn every_design_gives_the_same_answers_and_fills_the_same_levels() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let shape = TreeShape::of(6, 4, 2.0, 6_000, 0.5);
        let mut answers = Vec::new();
        for width in [1, 2, 6] {
            let design = Design::fixed_width(6, 4, width).expect("design");
            let path = directory.path().join(width.to_string());
            let mut table = LaserTable::load(&path, &shape, &design, 6_000).expect("load");
            table.update(5_990, 3, 7).expect("update");
            let table = table.reopen(1 << 20).expect("reopen");
            let mut counters = ReadCounters::default();
            let point = table.point(5_990, &[2, 3], &mut counters).expect("point");
            assert_eq!(point, i64::from(table.rows.value(5_990, 2)) + 7);
            let scan = table.scan((0, u64::MAX / 2), &[1, 3], Aggregate::Sums, &mut counters).expect("scan");
            let maxima = table.scan((0, u64::MAX / 2), &[4], Aggregate::Maxima, &mut counters).expect("scan");
            assert!(counters.blocks_read > 0);
            answers.push((point, scan, maxima));
            let rows = table.rows_by_level();
            assert!(rows.iter().sum::<u64>() >= 6_000 && rows[3] > rows[2] && rows[2] > rows[1], "{rows:?}");
            table.remove().expect("remove");
        }
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:?}");
    }
}
