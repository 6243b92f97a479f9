//! Rivals of both halves of a workload in one table.
//!
//! | rival | how it is set up |
//! |---|---|
//! | RocksDB | a row is a value of 4-byte numbers; defaults but for the block cache (HyperClock), Bloom filters and a write buffer as ours; compacted; a scan in two threads, as ours; an update is a merge operand of one cell, as ours is a patch |
//! | DuckDB | loaded in the order of its keys, its best case, as in `duckdb.rs`; two threads; each write is one statement that commits itself |
//! | PostgreSQL | as in `postgresql.rs`; two workers beside the process that asks, its default |

use std::path::{Path, PathBuf};

use mycelium_bench::Result;
use mycelium_bench::experiments::laser::{Aggregate, HybridRival, HybridTable, Rows};
use mycelium_engine::ReadCounters;
use rocksdb::{BlockBasedOptions, Cache, DB, MergeOperands, Options, ReadOptions, WaitForCompactOptions};

use crate::{duckdb, postgresql};

const WRITE_BUFFER: usize = 64 << 20;
const THREADS: u64 = 2;

/// All of them.
pub(crate) const RIVALS: [HybridRival<'static>; 3] = [
    HybridRival { name: "RocksDB", load: &load },
    HybridRival {
        name: "DuckDB",
        load: &|at, rows, count, _| duckdb::load_committing(at, rows, count, THREADS as usize),
    },
    HybridRival {
        name: "PostgreSQL",
        load: &|at, rows, count, cache| postgresql::load_with_workers(at, rows, count, cache, THREADS as usize),
    },
];

struct RocksTable {
    db: DB,
    directory: PathBuf,
    rows: Rows,
}

fn load(directory: &Path, rows: Rows, count: u64, cache_bytes: u64) -> Result<Box<dyn HybridTable>> {
    let mut blocks = BlockBasedOptions::default();
    // It tunes the number of its entries by itself.
    blocks.set_block_cache(&Cache::new_hyper_clock_cache(usize::try_from(cache_bytes)?, 0));
    blocks.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&blocks);
    options.set_write_buffer_size(WRITE_BUFFER);
    options.set_max_background_jobs(2);
    options.set_merge_operator("cells", changed, joined_changes);
    let db = DB::open(&options, directory)?;
    let mut table = RocksTable { db, directory: directory.to_path_buf(), rows };
    (0..count).try_for_each(|index| table.insert(index))?;
    table.db.flush()?;
    table.db.compact_range(None::<&[u8]>, None::<&[u8]>);
    table.db.wait_for_compact(&WaitForCompactOptions::default())?;
    Ok(Box::new(table))
}

/// A change of one column: its number and the new cell.
fn change(column: usize, value: i32) -> Result<[u8; 5]> {
    let [a, b, c, d] = value.to_le_bytes();
    Ok([u8::try_from(column)?, a, b, c, d])
}

/// A row after changes.
fn changed(_: &[u8], row: Option<&[u8]>, changes: &MergeOperands) -> Option<Vec<u8>> {
    let mut row = row?.to_vec();
    for change in changes.iter().flat_map(|changes| changes.chunks_exact(5)) {
        let at = 4 * (usize::from(change[0]) - 1);
        row.get_mut(at..at + 4)?.copy_from_slice(&change[1..]);
    }
    Some(row)
}

/// Changes of a row that is not at hand.
fn joined_changes(_: &[u8], _: Option<&[u8]>, changes: &MergeOperands) -> Option<Vec<u8>> {
    Some(changes.iter().flatten().copied().collect())
}

/// Column `column` of a value, from 1 on.
fn cell(value: &[u8], column: usize) -> Result<i32> {
    let bytes = value.get(4 * (column - 1)..4 * column).ok_or("a value is too short")?;
    Ok(i32::from_le_bytes(bytes.try_into()?))
}

impl RocksTable {
    fn key(&self, index: u64) -> [u8; 8] {
        self.rows.key(index).to_be_bytes()
    }

    /// What each of the columns comes to in a part of the keys.
    fn scan_part(&self, (from, to): (u64, u64), projection: &[usize], aggregate: Aggregate) -> Result<Vec<i64>> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(to.to_be_bytes());
        let mut rows = self.db.raw_iterator_opt(options);
        rows.seek(from.to_be_bytes());
        let mut answers = vec![of_nothing(aggregate); projection.len()];
        while let Some(value) = rows.value() {
            for (answer, &column) in answers.iter_mut().zip(projection) {
                *answer = joined(aggregate, *answer, i64::from(cell(value, column)?));
            }
            rows.next();
        }
        rows.status()?;
        Ok(answers)
    }
}

fn of_nothing(aggregate: Aggregate) -> i64 {
    if aggregate == Aggregate::Maxima { i64::MIN } else { 0 }
}

fn joined(aggregate: Aggregate, left: i64, right: i64) -> i64 {
    if aggregate == Aggregate::Maxima { left.max(right) } else { left + right }
}

impl HybridTable for RocksTable {
    fn insert(&mut self, index: u64) -> Result<()> {
        let mut value = Vec::with_capacity(4 * self.rows.columns);
        for column in 1..=self.rows.columns {
            value.extend_from_slice(&self.rows.value(index, column).to_le_bytes());
        }
        Ok(self.db.put(self.key(index), value)?)
    }

    fn update(&mut self, index: u64, column: usize, value: i32) -> Result<()> {
        Ok(self.db.merge(self.key(index), change(column, value)?)?)
    }

    fn point(&mut self, index: u64, projection: &[usize], _: &mut ReadCounters) -> Result<i64> {
        let value = self.db.get_pinned(self.key(index))?.ok_or("a row is not there")?;
        projection.iter().map(|&column| Ok(i64::from(cell(&value, column)?))).sum()
    }

    fn scan(
        &mut self,
        (from, to): (u64, u64),
        projection: &[usize],
        aggregate: Aggregate,
        _: &mut ReadCounters,
    ) -> Result<i64> {
        let (table, step) = (&*self, (to - from) / THREADS);
        let part = |thread: u64| {
            let end = if thread + 1 == THREADS { to } else { from + (thread + 1) * step };
            table.scan_part((from + thread * step, end), projection, aggregate)
        };
        let parts: Vec<Result<Vec<i64>>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || part(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a scan panicked".into()))).collect()
        });
        let mut answers = vec![of_nothing(aggregate); projection.len()];
        for part in parts {
            for (answer, other) in answers.iter_mut().zip(part?) {
                *answer = joined(aggregate, *answer, other);
            }
        }
        Ok(answers.into_iter().fold(0, i64::wrapping_add))
    }

    fn wait_idle(&mut self) -> Result<()> {
        Ok(self.db.wait_for_compact(&WaitForCompactOptions::default())?)
    }

    fn remove(self: Box<Self>) -> Result<()> {
        let Self { db, directory, .. } = *self;
        db.cancel_all_background_work(true);
        drop(db);
        Ok(std::fs::remove_dir_all(directory)?)
    }
}
