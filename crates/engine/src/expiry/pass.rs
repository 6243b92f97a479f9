//! A pass: all rows of a table that have expired by now are deleted.
//!
//! 1. The latest time with which a row has expired is fixed when the pass begins.
//! 2. A scan at a snapshot of its own finds the keys of the next rows with a time no later, [`ROWS_AT_ONCE`] of them.
//!    Its filter is decided on codes and zones, so that of columns in order of time it reads the blocks that have such
//!    rows and no others; of rows, all. Where the primary key begins with the time the scan ends there, too.
//! 3. They are deleted in a transaction at the same snapshot: if any of them was written since, nothing is, and each
//!    half of them is judged again, at a snapshot of its own. Of a single row that was written meanwhile the next pass
//!    will know. So no row is deleted but in the state in which it had expired, and a row that is written all the time
//!    holds up no other. The next rows are searched for behind the last one.
//! 4. Rows that a transaction has locked are left alone: whoever locks a row is about to change it. The next pass will
//!    know. A pass takes no locks itself, so that nobody waits for it: a lock that is taken while its row is just being
//!    deleted meets a conflict, as it does with any write without one.
//! 5. Where the key begins with the time, all rows between the first and the last found have expired, whenever they
//!    were written: they are deleted by their range, as one entry, if none of those found is locked.
//!
//! Memory: the keys of [`ROWS_AT_ONCE`] rows, and no more than [`BYTES_AT_ONCE`] and a key. Between two transactions a
//! pass holds no lock, no snapshot and no file. The thread that makes passes rests after each transaction, and after a
//! scan that found nothing, [`REST`] times as long as that took: it takes a tenth of the time of one thread, at most,
//! of its reads as of its writes. What it reads is no workload, and in no trace.

use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mycelium_base::limits::MAX_KEY_LEN;
use mycelium_base::{ErrorKind, ReadCounters, Result};
use mycelium_encoding::page::{ColumnTest, Filter, Test};
use mycelium_encoding::{BatchRows, Datum, Schema, key};

use super::definition::Expiry;
use crate::block_scan::RowFilter;
use crate::locks::LockName;
use crate::options::Durability;
use crate::read::PointRead;
use crate::snapshot::Snapshot;
use crate::sync::atomic::Ordering;
use crate::table::Table;
use crate::transaction::{IsolationLevel, Transaction, TransactionOptions};
use crate::typed::ScanOptions;

/// Rows that are deleted in one transaction, at most.
const ROWS_AT_ONCE: usize = 4096;

/// Bytes of their keys with which a batch ends, however few its rows.
const BYTES_AT_ONCE: usize = 8 << 20;

/// How many times as long as it worked the thread that makes passes rests.
const REST: u32 = 9;

/// How a pass is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Manner {
    /// A caller waits for it.
    AtOnce,
    /// By the thread that makes passes: with rests, and given up when that is to end.
    WithRests,
}

/// A pass over one table.
pub(super) struct Pass {
    table: Table,
    schema: Arc<Schema>,
    expiry: Arc<Expiry>,
    manner: Manner,
    /// The position of the column, and the latest time of an expired row.
    column: usize,
    latest: Datum,
    /// Which rows have expired.
    filter: Filter,
}

/// What a scan found, at the snapshot of the transaction that is to delete it.
struct Found {
    transaction: Transaction,
    /// Ascending.
    keys: Vec<Vec<u8>>,
    /// Whether there are no more behind them.
    is_last: bool,
}

fn key_of(rows: &BatchRows<'_>, row: usize) -> Result<Vec<u8>> {
    let mut key = Vec::new();
    rows.encode_key(row, &mut key)?;
    Ok(key)
}

/// How rows are deleted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// One by one.
    Keys,
    /// All between the first and the last.
    Range,
}

impl Pass {
    /// A pass by `expiry` at `now`; `None` if nothing can have expired by then.
    pub(super) fn new(table: Table, expiry: Arc<Expiry>, now: Duration, manner: Manner) -> Result<Option<Self>> {
        let schema = table.shared.typed_formats()?.schema().clone();
        let column = expiry.check(&schema)?;
        let Some(latest) = expiry.latest_expired(&schema, now)? else { return Ok(None) };
        let test = Test::Range { lower: Bound::Unbounded, upper: Bound::Included(latest.clone()) };
        let filter = Filter { conjuncts: vec![ColumnTest { column, test }] };
        Ok(Some(Self { table, schema, expiry, manner, column, latest, filter }))
    }

    /// Makes it; how many rows it deleted.
    pub(super) fn run(&self) -> Result<u64> {
        let mut deleted = 0;
        let mut behind: Option<Vec<u8>> = None;
        loop {
            let began = Instant::now();
            let Some(found) = self.find(behind.as_deref())? else { break };
            let (last, is_last) = (found.keys.last().cloned(), found.is_last);
            deleted += self.delete(found.transaction, &found.keys, self.extent())?;
            self.rest(began.elapsed());
            if is_last || self.is_over() {
                break;
            }
            behind = last;
        }
        Ok(deleted)
    }

    /// The next rows behind a key that have expired; `None` if the pass is over before they are found.
    fn find(&self, behind: Option<&[u8]>) -> Result<Option<Found>> {
        let transaction = self.begin();
        let behind = behind.map(|behind| key::decode_key(&self.schema, behind)).transpose()?;
        let options = ScanOptions {
            projection: Some(self.schema.primary_key().to_vec()),
            lower: behind.map_or(Bound::Unbounded, Bound::Excluded),
            upper: if self.is_by_key() { Bound::Included(vec![self.latest.clone()]) } else { Bound::Unbounded },
            snapshot: Some(transaction.snapshot().clone()),
            batch_rows: ROWS_AT_ONCE,
            batch_bytes: BYTES_AT_ONCE,
            filter: Some(self.filter.clone()),
            ..ScanOptions::default()
        };
        let mut scan = self.table.scan_counted_in(None, options)?;
        loop {
            match scan.next_or_pause().transpose()? {
                None => return Ok(Some(Found { transaction, keys: Vec::new(), is_last: true })),
                Some(None) if self.is_over() => return Ok(None),
                Some(None) => self.check_goes_on()?,
                Some(Some(batch)) => {
                    let rows = BatchRows::new(self.table.packed_layout()?, &batch)?;
                    let keys = (0..rows.len()).map(|row| key_of(&rows, row)).collect::<Result<Vec<_>>>()?;
                    let bytes: usize = keys.iter().map(Vec::len).sum();
                    let is_last = keys.len() < ROWS_AT_ONCE && bytes < BYTES_AT_ONCE;
                    return Ok(Some(Found { transaction, keys, is_last }));
                }
            }
        }
    }

    /// Deletes rows that have expired at the transaction's snapshot, but for locked ones; those that were written
    /// since, only if they have expired all the same. How many.
    fn delete(&self, mut transaction: Transaction, keys: &[Vec<u8>], extent: Extent) -> Result<u64> {
        let free: Vec<&Vec<u8>> = keys.iter().filter(|key| !self.is_locked(key)).collect();
        let (Some(first), Some(last)) = (free.first(), free.last()) else { return Ok(0) };
        match extent {
            Extent::Range if free.len() == keys.len() && first < last && last.len() < MAX_KEY_LEN => {
                transaction.delete_range(&self.table, first, &key::key_successor(last))?;
            }
            _ => free.iter().try_for_each(|key| transaction.delete(&self.table, key))?,
        }
        match self.commit(transaction) {
            Ok(false) => Ok(0),
            Ok(true) => {
                let deleted = free.len() as u64;
                self.table.database.counters.expired_rows.fetch_add(deleted, Ordering::Relaxed);
                Ok(deleted)
            }
            Err(error) if error.kind() == ErrorKind::Conflict && keys.len() > 1 => {
                let (first, second) = keys.split_at(keys.len() / 2);
                Ok(self.judge_again(first)? + self.judge_again(second)?)
            }
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Deletes those of the rows that have expired now.
    fn judge_again(&self, keys: &[Vec<u8>]) -> Result<u64> {
        let transaction = self.begin();
        let expired = self.expired_at(transaction.snapshot(), keys)?;
        self.delete(transaction, &expired, Extent::Keys)
    }

    /// Those of the rows that have expired at a snapshot.
    fn expired_at(&self, snapshot: &Snapshot, keys: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        let (database, table) = (&self.table.database, &self.table.shared);
        let (state, sequence) = database.read_moment(table, Some(snapshot))?;
        let (read, wanted) = (PointRead::new(table, sequence), self.table.value_columns(Some(&[self.column]))?);
        let mut expired = Vec::with_capacity(keys.len());
        for key in keys {
            let row = read.get_packed(&state, key, Some(&wanted), &mut ReadCounters::default())?;
            let Some((layout, row)) = row else { continue };
            if RowFilter::new(layout, &self.filter).passes(key, &row)? {
                expired.push(key.clone());
            }
        }
        Ok(expired)
    }

    fn is_locked(&self, key: &[u8]) -> bool {
        self.table.database.locks.is_held(&LockName { table: self.table.id(), key: key.to_vec() })
    }

    /// Commits, unless rows expire by something else by now.
    fn commit(&self, transaction: Transaction) -> Result<bool> {
        let _deleting = self.table.database.passes.deleting.lock();
        if !self.is_current() {
            return Ok(false);
        }
        transaction.commit(Durability::Os).map(|_| true)
    }

    fn begin(&self) -> Transaction {
        let options = TransactionOptions { isolation: IsolationLevel::Snapshot, ..TransactionOptions::default() };
        Transaction::new(&self.table.database, options)
    }

    /// Whether keys begin with the time.
    fn is_by_key(&self) -> bool {
        self.schema.primary_key().first() == Some(&self.column)
    }

    fn extent(&self) -> Extent {
        if self.is_by_key() { Extent::Range } else { Extent::Keys }
    }

    /// Whether rows still expire by what the pass judges by.
    fn is_current(&self) -> bool {
        self.table.shared.expiry.present().is_some_and(|present| Arc::ptr_eq(&present, &self.expiry))
    }

    fn is_over(&self) -> bool {
        !self.is_current() || self.manner == Manner::WithRests && self.table.database.passes.are_ending()
    }

    fn check_goes_on(&self) -> Result<()> {
        self.table.database.check_writable()?;
        self.table.shared.check_alive()
    }

    /// Rests, unless somebody waits, for as long as the time worked asks for.
    fn rest(&self, worked: Duration) {
        if self.manner == Manner::WithRests {
            let database = &self.table.database;
            let is_awaited = || database.impatient.load(Ordering::Acquire) > 0;
            database.signals.pause(Instant::now() + worked.saturating_mul(REST), || self.is_over() || is_awaited());
        }
    }
}

#[cfg(test)]
mod tests {
    use mycelium_encoding::DatumRef;
    use mycelium_vfs::MemoryDisk;

    use super::*;
    use crate::{Background, Database, ManualClock, Options, ReadOptions, TableOptions};

    const NOW: Duration = Duration::from_secs(1000);

    /// A database whose rows expire after 100 seconds, with one row for each of these times.
    fn with_rows(schema: &str, times: &[i64]) -> (Database, Table) {
        let options = Options {
            disk: Arc::new(MemoryDisk::new()),
            background: Background::Manual,
            clock: Arc::new(ManualClock::at(NOW)),
            ..Options::default()
        };
        let database = Database::open("db", options).unwrap();
        let expiry = Some(Expiry::new("at", Duration::from_secs(100)));
        let options = TableOptions { expiry, ..TableOptions::default() };
        let table = database.create_typed_table("t", Schema::parse(schema).unwrap(), options).unwrap();
        for (id, at) in (0..).zip(times) {
            put(&table, id, *at);
        }
        (database, table)
    }

    const BY_ID: &str = "id int64 not null, at timestamp(s), primary key (id)";
    const BY_TIME: &str = "id int64 not null, at timestamp(s) not null, primary key (at, id)";

    fn put(table: &Table, id: i64, at: i64) {
        table.insert_row(&[DatumRef::Int64(id), DatumRef::Timestamp(at)], Durability::Os).unwrap();
    }

    fn pass(table: &Table) -> Pass {
        let expiry = table.shared.expiry.present().unwrap();
        Pass::new(table.clone(), expiry, NOW, Manner::AtOnce).unwrap().unwrap()
    }

    /// Deletes what was found.
    fn delete(pass: &Pass, found: Found) -> u64 {
        pass.delete(found.transaction, &found.keys, pass.extent()).unwrap()
    }

    fn rows(table: &Table) -> Vec<(i64, i64)> {
        let mut found = Vec::new();
        let mut rows = table.iter(&ReadOptions::default()).unwrap();
        rows.seek_to_first().unwrap();
        while rows.valid() {
            let row = table.datums_of(rows.key(), rows.value().to_vec(), None).unwrap();
            match row[..] {
                [Datum::Int64(id), Datum::Timestamp(at)] => found.push((id, at)),
                ref other => panic!("{other:?}"),
            }
            rows.next().unwrap();
        }
        found
    }

    #[test]
    fn a_row_that_got_a_later_time_after_it_was_judged_is_kept() {
        let (_database, table) = with_rows(BY_ID, &[1, 2, 950, 3, 4]);
        let pass = pass(&table);
        let found = pass.find(None).unwrap().unwrap();
        assert!(found.keys.len() == 4 && found.is_last);
        put(&table, 1, 990);
        table.patch_row(&[DatumRef::Int64(3)], &[("at", DatumRef::Timestamp(980))], Durability::Os).unwrap();
        assert_eq!(delete(&pass, found), 2);
        assert_eq!(rows(&table), [(1, 990), (2, 950), (3, 980)]);
    }

    #[test]
    fn a_row_that_was_written_but_is_as_old_goes_with_the_others() {
        let (_database, table) = with_rows(BY_ID, &[1, 2, 3, 4]);
        let pass = pass(&table);
        let found = pass.find(None).unwrap().unwrap();
        put(&table, 2, 5);
        assert_eq!(delete(&pass, found), 4);
        assert!(rows(&table).is_empty());
    }

    #[test]
    fn a_row_that_was_deleted_meanwhile_is_not_counted() {
        let (_database, table) = with_rows(BY_ID, &[1, 2, 3]);
        let pass = pass(&table);
        let found = pass.find(None).unwrap().unwrap();
        table.delete_row(&[DatumRef::Int64(1)], Durability::Os).unwrap();
        put(&table, 9, 1);
        assert_eq!(delete(&pass, found), 2);
        assert_eq!(rows(&table), [(9, 1)], "it came after the scan, and is the next pass's");
        assert_eq!(pass.run().unwrap(), 1);
    }

    #[test]
    fn nothing_is_deleted_by_an_expiry_that_was_changed_after_the_scan() {
        for changed in [None, Some(Expiry::new("at", Duration::from_secs(999)))] {
            let (database, table) = with_rows(BY_ID, &[1, 2, 3]);
            let pass = pass(&table);
            let found = pass.find(None).unwrap().unwrap();
            database.set_expiry(&table, changed).unwrap();
            assert_eq!(delete(&pass, found), 0);
            assert_eq!(rows(&table).len(), 3);
            assert_eq!(pass.run().unwrap(), 0, "the pass is over");
        }
    }

    #[test]
    fn rows_in_order_of_time_are_deleted_by_their_range_and_no_later_one_with_them() {
        let times: Vec<i64> = (0..2000).map(|n| (n * 7919) % 2000).collect();
        let (database, table) = with_rows(BY_TIME, &times);
        let pass = pass(&table);
        let before = database.metrics().operations;
        let found = pass.find(None).unwrap().unwrap();
        assert_eq!(delete(&pass, found), 901, "those of 0 to 900");
        assert_eq!(database.metrics().operations - before, 1);
        let left: Vec<i64> = rows(&table).into_iter().map(|(_, at)| at).collect();
        assert!(left.iter().copied().eq(901..2000), "{left:?}");
    }

    #[test]
    fn a_row_that_came_between_is_not_deleted_by_a_range_that_does_not_count_it() {
        let (_database, table) = with_rows(BY_TIME, &[1, 3, 950]);
        let pass = pass(&table);
        let found = pass.find(None).unwrap().unwrap();
        put(&table, 9, 2);
        assert_eq!(delete(&pass, found), 2);
        assert_eq!(rows(&table), [(9, 2), (2, 950)]);
    }

    /// Up to 268 MB of them were, and as many again with each copy.
    #[test]
    fn long_keys_were_all_held_at_once() {
        const ROWS: usize = 200;
        let schema = "name utf8 not null, at timestamp(s), primary key (name)";
        let (database, table) = with_rows(schema, &[]);
        for n in 0..ROWS {
            let name = format!("{n:03}{}", "x".repeat(60_000));
            table.insert_row(&[DatumRef::Utf8(&name), DatumRef::Timestamp(1)], Durability::Os).unwrap();
        }
        let pass = pass(&table);
        let found = pass.find(None).unwrap().unwrap();
        assert!(!found.is_last && found.keys.len() < ROWS);
        assert!(found.keys.iter().map(Vec::len).sum::<usize>() <= BYTES_AT_ONCE + MAX_KEY_LEN);
        drop(found);
        assert_eq!(pass.run().unwrap(), ROWS as u64);
        assert_eq!(database.metrics().expired_rows, ROWS as u64);
    }

    #[test]
    fn more_rows_than_one_transaction_takes_are_deleted_in_several() {
        let times: Vec<i64> =
            (0..2 * ROWS_AT_ONCE as i64 + 10).map(|n| if n % 3 == 0 { 950 } else { n % 900 }).collect();
        for schema in [BY_ID, BY_TIME] {
            let (database, table) = with_rows(schema, &times);
            let expired = times.iter().filter(|at| **at <= 900).count() as u64;
            assert_eq!(pass(&table).run().unwrap(), expired);
            assert_eq!(database.metrics().expired_rows, expired);
            assert!(rows(&table).iter().all(|(_, at)| *at == 950));
            assert_eq!(rows(&table).len() as u64, times.len() as u64 - expired);
        }
    }
}
