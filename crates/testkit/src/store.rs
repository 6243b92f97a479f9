//! The interface a history is run against.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use mycelium_base::{Error, ErrorKind, Result, SequenceNumber};
use parking_lot::Mutex;

use crate::model::{
    CrashKind, Direction, Durability, Model, Move, Row, ScanRange, State, TransactionStep, Write, surviving_writes,
    walk_over,
};
use crate::open_transaction::{Fate, OpenTransaction};
use crate::tables::TableKind;

/// A database under test. Tables are named by their index. A read without a snapshot reads the newest state.
pub trait Store {
    /// A live snapshot; dropping it releases it.
    type Snapshot;
    /// An open iterator.
    type Walk;
    /// An open scan of columns.
    type Scan;
    /// An open transaction; dropping it rolls it back.
    type Transaction;

    /// Commits a batch.
    fn write(&mut self, batch: &[Write], durability: Durability) -> Result<()>;
    /// Runs a transaction, reads `keys` in it, each of a table, and ends it: rolls it back if there is nothing to
    /// commit.
    fn transact(
        &mut self,
        steps: &[TransactionStep],
        keys: &[(usize, Vec<u8>)],
        commit: Option<Durability>,
    ) -> Result<Vec<Option<Vec<u8>>>>;
    /// Loads rows in bulk; keys ascend.
    fn ingest(&mut self, table: usize, rows: &[Row]) -> Result<()>;
    /// Drops a table.
    fn drop_table(&mut self, table: usize) -> Result<()>;
    /// Creates a table that was dropped.
    fn create_table(&mut self, table: usize) -> Result<()>;
    /// Makes the next change of the columns of a table that has more to come, and says whether it did: not if its
    /// column groups stand against it. No transaction is open.
    fn change_columns(&mut self, table: usize) -> Result<bool>;
    /// Gives a column of a typed table another name. No transaction is open.
    fn rename_column(&mut self, table: usize, column: usize) -> Result<()>;
    /// Says how long the rows of a table stay that have a time; `None`: they do not expire.
    fn set_expiry(&mut self, table: usize, age: Option<Duration>) -> Result<()>;
    /// Makes a pass over a table whose rows expire, at a time of day. How many rows it deleted.
    fn expire(&mut self, table: usize, now: Duration) -> Result<u64>;
    /// Reads a key.
    fn get(&mut self, table: usize, key: &[u8], snapshot: Option<&Self::Snapshot>) -> Result<Option<Vec<u8>>>;
    /// Reads several keys at once, answers in the order asked.
    fn multi_get(
        &mut self,
        table: usize,
        keys: &[Vec<u8>],
        snapshot: Option<&Self::Snapshot>,
    ) -> Result<Vec<Option<Vec<u8>>>>;
    /// The first rows of a range, at most `limit`, in the direction's order.
    fn scan(
        &mut self,
        table: usize,
        range: &ScanRange,
        direction: Direction,
        limit: usize,
        snapshot: Option<&Self::Snapshot>,
    ) -> Result<Vec<Row>>;
    /// Moves one iterator over a range and tells where it stands after each move. Every move is possible.
    fn walk(
        &mut self,
        table: usize,
        range: &ScanRange,
        moves: &[Move],
        snapshot: Option<&Self::Snapshot>,
    ) -> Result<Vec<Option<Row>>>;
    /// Opens an iterator, which stands on no row and is read after this whatever happens meanwhile, closing included.
    fn open_walk(&mut self, table: usize, range: &ScanRange, snapshot: Option<&Self::Snapshot>) -> Result<Self::Walk>;
    /// Moves an open iterator, as [`Store::walk`] does.
    fn go_on(&mut self, walk: &mut Self::Walk, moves: &[Move]) -> Result<Vec<Option<Row>>>;
    /// Opens a scan of columns of a typed table, in the same way. `rows` are all that are there at the snapshot.
    fn open_scan(&mut self, table: usize, rows: &[Row], snapshot: Option<&Self::Snapshot>) -> Result<Self::Scan>;
    /// Takes so many batches of an open scan, or those that are left; they must have what the rows had.
    fn take_batches(&mut self, scan: &mut Self::Scan, count: usize) -> Result<()>;
    /// Begins a transaction.
    fn begin(&mut self, is_serializable: bool) -> Result<Self::Transaction>;
    /// Takes steps in a transaction.
    fn take_steps(&mut self, open: &mut Self::Transaction, steps: &[TransactionStep]) -> Result<()>;
    /// Reads a key in a transaction.
    fn get_within(&mut self, open: &mut Self::Transaction, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>>;
    /// All rows of a range as a transaction sees them, in the direction's order.
    fn scan_within(
        &mut self,
        open: &mut Self::Transaction,
        table: usize,
        range: &ScanRange,
        direction: Direction,
    ) -> Result<Vec<Row>>;
    /// As [`Store::walk`], in a transaction.
    fn walk_within(
        &mut self,
        open: &mut Self::Transaction,
        table: usize,
        range: &ScanRange,
        moves: &[Move],
    ) -> Result<Vec<Option<Row>>>;
    /// Locks a key in a transaction and reads its row. Whether it sees the present state for that, and the row.
    /// [`ErrorKind::LockTimeout`] if another one holds the lock; [`ErrorKind::Conflict`] if it would have to see the
    /// present state, and cannot.
    fn get_for_update(
        &mut self,
        open: &mut Self::Transaction,
        table: usize,
        key: &[u8],
    ) -> Result<(bool, Option<Vec<u8>>)>;
    /// Ends a transaction: commits it, or rolls it back. [`ErrorKind::Conflict`] if it came too late.
    fn end(&mut self, open: Self::Transaction, commit: Option<Durability>) -> Result<()>;
    /// Takes a snapshot.
    fn snapshot(&mut self) -> Self::Snapshot;
    /// Flushes all memtables.
    fn flush(&mut self) -> Result<()>;
    /// Compacts a table completely.
    fn compact(&mut self, table: usize) -> Result<()>;
    /// Compacts what a table has of `[lower, upper)`; `None` is unbounded.
    fn compact_part(&mut self, table: usize, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<()>;
    /// Runs one job of background work, if there is one.
    fn step(&mut self) -> Result<()>;
    /// Closes and opens; all snapshots were dropped before.
    fn reopen(&mut self) -> Result<()>;
    /// Makes a checkpoint, or a backup that it restores, opens that and reads every row.
    fn checkpoint(&mut self) -> Result<State>;
    /// Closes, salvages what is there, which is whole, reads every row of what was saved, and opens again; all
    /// snapshots were dropped before.
    fn salvage(&mut self) -> Result<State>;
    /// Opens the database once more, for reading only, and reads every row: what a killed process would leave behind.
    fn look(&mut self) -> Result<State>;
    /// Verifies every file.
    fn verify(&mut self) -> Result<()>;
}

/// Keys, each with its table.
type Locks = Vec<(usize, Vec<u8>)>;

/// The model as a store: checks the driver itself, and shows what an adapter looks like.
#[derive(Clone)]
pub struct ModelStore {
    model: Model,
    /// What each transaction that is open has locked.
    locked: Vec<Weak<Mutex<Locks>>>,
}

/// An open transaction of a [`ModelStore`].
pub struct ModelTransaction {
    pub(crate) open: OpenTransaction,
    locked: Arc<Mutex<Locks>>,
}

impl ModelTransaction {
    /// What it has locked by now is for the store to see.
    fn show_locks(&self) {
        *self.locked.lock() = self.open.locks().to_vec();
    }
}

/// An open iterator of a [`ModelStore`].
#[derive(Clone, Debug)]
pub struct ModelWalk {
    /// The table.
    pub table: usize,
    /// What it walks over.
    pub range: ScanRange,
    /// The rows there when it was opened.
    pub rows: Vec<Row>,
    position: Option<usize>,
}

impl ModelStore {
    /// Empty tables.
    pub fn new(tables: &[TableKind]) -> Self {
        Self { model: Model::new(tables.iter().map(|kind| kind.rules())), locked: Vec::new() }
    }

    /// Whether a transaction, but for this one, has locked a key.
    fn is_locked(&self, table: usize, key: &[u8], but_for: Option<&ModelTransaction>) -> bool {
        let mut others = self.locked.iter().filter_map(Weak::upgrade);
        others.any(|other| {
            let is_it = |(of, locked): &(usize, Vec<u8>)| *of == table && locked.as_slice() == key;
            but_for.is_none_or(|own| !Arc::ptr_eq(&other, &own.locked)) && other.lock().iter().any(is_it)
        })
    }

    fn at(&self, snapshot: Option<&SequenceNumber>) -> SequenceNumber {
        snapshot.copied().unwrap_or_else(|| self.model.last_sequence())
    }
}

impl Store for ModelStore {
    type Snapshot = SequenceNumber;
    type Walk = ModelWalk;
    type Scan = ();
    type Transaction = ModelTransaction;

    fn write(&mut self, batch: &[Write], durability: Durability) -> Result<()> {
        self.model.write(batch, durability);
        Ok(())
    }

    fn transact(
        &mut self,
        steps: &[TransactionStep],
        keys: &[(usize, Vec<u8>)],
        commit: Option<Durability>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let writes = surviving_writes(steps);
        let answers = self.model.read_within(&writes, keys);
        if let Some(durability) = commit {
            self.model.write(&writes, durability);
        }
        Ok(answers)
    }

    fn ingest(&mut self, table: usize, rows: &[Row]) -> Result<()> {
        self.model.begin_ingest(table, rows);
        self.model.acknowledge();
        Ok(())
    }

    fn drop_table(&mut self, table: usize) -> Result<()> {
        self.model.begin_drop(table);
        self.model.acknowledge();
        Ok(())
    }

    fn create_table(&mut self, _table: usize) -> Result<()> {
        Ok(())
    }

    fn change_columns(&mut self, table: usize) -> Result<bool> {
        self.model.begin_change(table);
        self.model.acknowledge();
        Ok(true)
    }

    fn rename_column(&mut self, _table: usize, _column: usize) -> Result<()> {
        Ok(())
    }

    fn set_expiry(&mut self, table: usize, age: Option<Duration>) -> Result<()> {
        self.model.set_age(table, age);
        Ok(())
    }

    fn expire(&mut self, table: usize, now: Duration) -> Result<u64> {
        let Some(pass) = self.model.pass(table, now, |key| self.is_locked(table, key, None)) else {
            return Err(Error::invalid("rows of the table do not expire"));
        };
        if !pass.writes.is_empty() {
            self.model.write(&pass.writes, Durability::Os);
        }
        Ok(pass.rows)
    }

    fn get(&mut self, table: usize, key: &[u8], snapshot: Option<&SequenceNumber>) -> Result<Option<Vec<u8>>> {
        Ok(self.model.get(table, key, self.at(snapshot)))
    }

    fn multi_get(
        &mut self,
        table: usize,
        keys: &[Vec<u8>],
        snapshot: Option<&SequenceNumber>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        keys.iter().map(|key| self.get(table, key, snapshot)).collect()
    }

    fn scan(
        &mut self,
        table: usize,
        range: &ScanRange,
        direction: Direction,
        limit: usize,
        snapshot: Option<&SequenceNumber>,
    ) -> Result<Vec<Row>> {
        let mut rows = self.model.scan(table, range, self.at(snapshot), direction);
        rows.truncate(limit);
        Ok(rows)
    }

    fn walk(
        &mut self,
        table: usize,
        range: &ScanRange,
        moves: &[Move],
        snapshot: Option<&SequenceNumber>,
    ) -> Result<Vec<Option<Row>>> {
        let steps = self.model.walk(table, range, self.at(snapshot), moves);
        Ok(steps.into_iter().map(|(_, row)| row).collect())
    }

    fn open_walk(&mut self, table: usize, range: &ScanRange, snapshot: Option<&SequenceNumber>) -> Result<ModelWalk> {
        let rows = self.model.scan(table, range, self.at(snapshot), Direction::Forward);
        Ok(ModelWalk { table, range: range.clone(), rows, position: None })
    }

    fn go_on(&mut self, walk: &mut ModelWalk, moves: &[Move]) -> Result<Vec<Option<Row>>> {
        let ModelWalk { rows, position, .. } = walk;
        Ok(walk_over(rows, position, moves).into_iter().map(|(_, row)| row).collect())
    }

    fn open_scan(&mut self, _table: usize, _rows: &[Row], _snapshot: Option<&SequenceNumber>) -> Result<()> {
        Ok(())
    }

    fn take_batches(&mut self, _scan: &mut (), _count: usize) -> Result<()> {
        Ok(())
    }

    fn begin(&mut self, is_serializable: bool) -> Result<ModelTransaction> {
        let locked = Arc::default();
        self.locked.retain(|locked| locked.strong_count() > 0);
        self.locked.push(Arc::downgrade(&locked));
        Ok(ModelTransaction { open: OpenTransaction::new(&self.model, is_serializable), locked })
    }

    fn take_steps(&mut self, transaction: &mut ModelTransaction, steps: &[TransactionStep]) -> Result<()> {
        transaction.open.take_steps(steps);
        transaction.show_locks();
        Ok(())
    }

    fn get_within(&mut self, transaction: &mut ModelTransaction, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(transaction.open.get(&self.model, table, key))
    }

    fn scan_within(
        &mut self,
        transaction: &mut ModelTransaction,
        table: usize,
        range: &ScanRange,
        direction: Direction,
    ) -> Result<Vec<Row>> {
        let mut rows = transaction.open.scan(&self.model, table, range);
        if direction == Direction::Backward {
            rows.reverse();
        }
        Ok(rows)
    }

    fn walk_within(
        &mut self,
        transaction: &mut ModelTransaction,
        table: usize,
        range: &ScanRange,
        moves: &[Move],
    ) -> Result<Vec<Option<Row>>> {
        let rows = transaction.open.look(&self.model, table, range);
        Ok(walk_over(&rows, &mut None, moves).into_iter().map(|(_, row)| row).collect())
    }

    fn get_for_update(
        &mut self,
        transaction: &mut ModelTransaction,
        table: usize,
        key: &[u8],
    ) -> Result<(bool, Option<Vec<u8>>)> {
        if self.is_locked(table, key, Some(transaction)) {
            return Err(Error::new(ErrorKind::LockTimeout, "another transaction has locked it"));
        }
        let fate = transaction.open.lock_fate(&self.model, table, key);
        if !fate.may_stay && !fate.may_move {
            return Err(Error::new(ErrorKind::Conflict, "a newer commit wrote what was read or written"));
        }
        let has_moved = !fate.may_stay;
        transaction.open.lock(&self.model, table, key, has_moved);
        transaction.show_locks();
        Ok((has_moved, transaction.open.get(&self.model, table, key)))
    }

    fn end(&mut self, transaction: ModelTransaction, commit: Option<Durability>) -> Result<()> {
        let Some(durability) = commit else { return Ok(()) };
        if transaction.open.fate(&self.model) == Fate::Conflicts {
            return Err(Error::new(ErrorKind::Conflict, "a newer commit wrote the same"));
        }
        let writes = transaction.open.writes();
        if !writes.is_empty() {
            self.model.write(&writes, durability);
        }
        Ok(())
    }

    fn snapshot(&mut self) -> SequenceNumber {
        self.model.last_sequence()
    }

    fn flush(&mut self) -> Result<()> {
        self.model.mark_durable(CrashKind::PowerLoss);
        Ok(())
    }

    fn compact(&mut self, _table: usize) -> Result<()> {
        Ok(())
    }

    fn compact_part(&mut self, _table: usize, _lower: Option<&[u8]>, _upper: Option<&[u8]>) -> Result<()> {
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        Ok(())
    }

    fn reopen(&mut self) -> Result<()> {
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<State> {
        let state: Vec<BTreeMap<_, _>> = self.model.state(self.model.last_sequence());
        Ok(state)
    }

    fn salvage(&mut self) -> Result<State> {
        self.checkpoint()
    }

    fn look(&mut self) -> Result<State> {
        self.checkpoint()
    }

    fn verify(&mut self) -> Result<()> {
        Ok(())
    }
}
