//! Transactions: optimistic, with locks for those who ask for them.
//!
//! 1. A transaction takes a snapshot when it begins. It reads at that snapshot, with its own writes laid over (see
//!    `overlay`). It keeps its writes to itself, in a batch: no other reader sees them.
//! 2. Under [`IsolationLevel::Serializable`] it also notes what it read: keys, the intervals that iterators passed
//!    through (see `reads`), and the intervals of indexes that it looked up (see `index_rows`).
//! 3. Commit validates and then writes the batch. First it validates without a lock: nothing that it wrote may have an
//!    entry newer than its snapshot, nor, under `Serializable`, anything that it read (see `validate`). Then it takes
//!    the commit lock and does the same for what was committed since the first validation began. Of a few keys it looks
//!    that up, in memory as a rule; where the transaction touched many, or intervals, those who committed meanwhile
//!    have compared it already (see `watch`). So what is done under the lock does not grow with what was touched and
//!    written. Then the batch is committed like any other, under the same lock: no commit can slip in between.
//! 4. Where several threads commit at once, their batches form a group, which is logged and synced as one. Its leader
//!    does the second validation of each transaction in it, in the order of the group. It also compares the transaction
//!    with every operation of the batches that stand before it and are not in a memtable yet. So the group is as good
//!    as one commit after the other.
//! 5. Whoever commits first wins; the other gets [`crate::ErrorKind::Conflict`] and runs again. Nobody waits, so there
//!    are no deadlocks.
//! 6. Who would lose too often locks rows before it reads them (see `row_locks`). Locks put those in order who take
//!    them, and nobody else. What is right rests on the validation, with locks and without.
//!
//! Why this gives what the levels promise:
//!
//! - *Snapshot*: all reads are at one point of history. No two committed transactions that overlap in time wrote the
//!   same key. So there are no dirty or non-repeatable reads and no lost updates; write skew is possible.
//! - *Serializable*: what was read is unchanged at the moment of commit, phantoms included. So the transaction might as
//!   well have run wholly at that moment, and the order of commits is a serial order. A transaction that wrote nothing
//!   fits into that order at its snapshot and needs no validation.
//!
//! Why a compaction cannot hide a newer write from the validation. Let `s` be the transaction's snapshot and `e` an
//! entry with a sequence number above `s`.
//!
//! - The snapshot is registered, and so lies between `e` and everything at or below `s`. So `e` is in no stripe that
//!   reaches down to `s` (see [`mycelium_merge::CompactionStream`]), and in particular not in the oldest one.
//! - Of the stripe's entries for a key the compaction keeps the newest, with its own sequence number. That is a `Put`,
//!   or a `Delete` (deletes are dropped in the oldest stripe only), or patches and operands, fused or folded under the
//!   number of the newest of them.
//! - Or it drops what lies below a range delete of the same stripe. Then that range delete, which is newer still,
//!   stays: it, too, is dropped in the oldest stripe only.
//! - So the newest sequence number above `s` that a place shows for a key is never lowered to `s` or below.
//! - One entry may vanish: a patch or operand that makes no row where there is none and nothing below. It changed
//!   nothing, and the transaction is valid without it.
//! - A compaction that read the list of live snapshots before the transaction began has only inputs that the snapshot
//!   sees.

mod footprint;
#[cfg(test)]
mod group_tests;
mod index_rows;
mod iterator;
mod overlay;
mod reads;
#[cfg(test)]
mod row_lock_tests;
mod row_locks;
mod validate;
mod watch;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use mycelium_base::limits::{MAX_BATCH_LEN, MAX_KEY_LEN, MAX_VALUE_LEN};
use mycelium_base::{EntryRef, Error, Operation, ReadCounters, Result, SequenceNumber, TableId, Trailer};
use mycelium_encoding::{Datum, DatumRef};
use mycelium_merge::Lookup;

use crate::batch::{RowBuffers, WriteBatch, check_form, none_of_its_table};
use crate::database::{Database, Inner};
use crate::index::Guard;
use crate::locks::{HeldLocks, LockLimits};
use crate::operations::Operations;
use crate::options::Durability;
use crate::read_options::ReadOptions;
use crate::snapshot::Snapshot;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::table::Table;
use crate::transformers::refuse_with_maps;
use crate::write::{Precondition, ReadyBatch};
use footprint::{Footprint, TableWrites, Writes};
pub use index_rows::TransactionIndexRows;
pub use iterator::TransactionIterator;
use overlay::Overlay;
use reads::ReadSet;
pub(crate) use validate::{Check, conflict};
use watch::Watch;
pub(crate) use watch::Watches;

/// What a transaction is protected from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum IsolationLevel {
    /// All reads at one snapshot; a write-write conflict fails the later commit. Write skew is possible.
    Snapshot,
    /// As if transactions ran one after the other, in the order of their commits.
    #[default]
    Serializable,
}

/// Options of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransactionOptions {
    /// What it is protected from. Default: serializable.
    pub isolation: IsolationLevel,
    /// Bytes that the noted reads of a serializable transaction, and the keys that any has locked, may take. Beyond
    /// them neighbouring reads are noted as one interval: memory stays bounded, and conflicts may be seen where there
    /// are none, never the other way round. Default: 8 MiB.
    pub tracked_read_bytes: usize,
    /// How long [`Transaction::lock`] waits for another transaction. Zero: not at all. Default: one second.
    pub lock_timeout: Duration,
    /// Locks that it may hold at once. Each takes some 200 bytes, beside its key twice. Default: 65,536.
    pub lock_limit: usize,
}

impl Default for TransactionOptions {
    fn default() -> Self {
        Self {
            isolation: IsolationLevel::default(),
            tracked_read_bytes: 8 << 20,
            lock_timeout: Duration::from_secs(1),
            lock_limit: 65_536,
        }
    }
}

/// Bytes of a batch's encoded operations that are neither key nor value, at most, per operation.
const OPERATION_OVERHEAD: usize = 32;

/// A place in a transaction to which its writes can be rolled back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Savepoint(u64);

/// What there was when a savepoint was made.
struct Mark {
    savepoint: Savepoint,
    /// The end of the batch.
    position: (usize, u32),
    locks: usize,
}

/// Validations without the commit lock, at most, where bulk loads come in between.
const MOST_ROUNDS: usize = 4;

static SAVEPOINTS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);

/// Reads and writes that take effect together or not at all. Dropping it without [`Transaction::commit`] rolls it back.
///
/// Reads take `&self`, writes `&mut self`; it may be sent between threads. Its snapshot keeps old versions from being
/// compacted away, so a long transaction costs space. Nothing waits but [`Transaction::commit`], which does as
/// [`Database::write`] does, and [`Transaction::lock`] with its kin. No write is durable before it is committed.
///
/// ```
/// use mycelium_engine::{Database, Durability, ErrorKind, IsolationLevel, Options, Result, Table, TableOptions};
///
/// fn balance(bytes: Option<Vec<u8>>) -> i64 {
///     bytes.and_then(|bytes| String::from_utf8(bytes).ok()?.parse().ok()).unwrap_or(0)
/// }
///
/// fn transfer(database: &Database, accounts: &Table, from: &[u8], to: &[u8], amount: i64) -> Result<bool> {
///     loop {
///         let mut transaction = database.begin(IsolationLevel::Serializable);
///         let (source, target) = (balance(transaction.get(accounts, from)?), balance(transaction.get(accounts, to)?));
///         if source < amount {
///             return Ok(false);
///         }
///         transaction.put(accounts, from, (source - amount).to_string().as_bytes())?;
///         transaction.put(accounts, to, (target + amount).to_string().as_bytes())?;
///         match transaction.commit(Durability::Os) {
///             Ok(_) => return Ok(true),
///             Err(error) if error.kind() == ErrorKind::Conflict => continue,
///             Err(error) => return Err(error),
///         }
///     }
/// }
/// # let options = Options { disk: std::sync::Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
/// # let database = Database::open("example", options)?;
/// let accounts = database.create_table("accounts", TableOptions::default())?;
/// accounts.put(b"alice", b"100", Durability::Os)?;
/// assert!(transfer(&database, &accounts, b"alice", b"bob", 30)?);
/// assert!(!transfer(&database, &accounts, b"alice", b"bob", 71)?);
/// assert_eq!(accounts.get(b"bob")?.as_deref(), Some(&b"30"[..]));
/// # Ok::<(), mycelium_engine::Error>(())
/// ```
///
/// That is right for rows that seldom meet. Where many transactions change the same few rows, a counter, the head of a
/// queue, an account that everybody pays into, they read them with [`Transaction::get_for_update`] and take turns:
///
/// ```
/// # use std::sync::Arc;
/// # use mycelium_engine::{Database, Durability, IsolationLevel, Options, Result, Table, TableOptions};
/// fn next_number(database: &Database, counters: &Table) -> Result<u64> {
///     let mut transaction = database.begin(IsolationLevel::Serializable);
///     let last = transaction.get_for_update(counters, b"invoices")?;
///     let next = last.and_then(|bytes| Some(u64::from_be_bytes(bytes.try_into().ok()?))).unwrap_or(0) + 1;
///     transaction.put(counters, b"invoices", &next.to_be_bytes())?;
///     transaction.commit(Durability::Os)?;
///     Ok(next)
/// }
/// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
/// # let database = Database::open("example", options)?;
/// let counters = database.create_table("counters", TableOptions::default())?;
/// let mut numbers: Vec<u64> = std::thread::scope(|scope| {
///     let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| next_number(&database, &counters))).collect();
///     threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Result<_>>()
/// })?;
/// numbers.sort();
/// assert_eq!(numbers, [1, 2, 3, 4]);
/// # Ok::<(), mycelium_engine::Error>(())
/// ```
///
/// # Errors of every call
///
/// What a call adds to these stands with the call. After any of them the transaction is as it was, and may go on.
///
/// - [`crate::ErrorKind::InvalidArgument`] for a table of another database, a key or value that is too long or none of
///   its typed table, a merge without a merge operator, a patch without a schema, and more than 1 GiB of writes.
/// - [`crate::ErrorKind::NotFound`] for a table that was dropped.
/// - [`crate::ErrorKind::Unsupported`] for a write to a table whose transformers map values.
/// - Of reads, those of [`Table`].
///
/// That the database is closed or read-only shows at [`Transaction::commit`] and where a lock is taken, nowhere else.
pub struct Transaction {
    database: Arc<Inner>,
    snapshot: Snapshot,
    batch: WriteBatch,
    writes: Writes,
    /// Ascending by position.
    savepoints: Vec<Mark>,
    isolation: IsolationLevel,
    /// What was read, under serializable isolation, and what was locked.
    reads: Mutex<ReadSet>,
    /// Whether the snapshot must stay: something was read at it that is not noted.
    is_fixed: AtomicBool,
    locks: HeldLocks,
    lock_limits: LockLimits,
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction")
            .field("snapshot", &self.snapshot.sequence())
            .field("isolation", &self.isolation())
            .field("operations", &self.batch.len())
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Begins a transaction at the present state. Never fails and never waits.
    pub fn begin(&self, isolation: IsolationLevel) -> Transaction {
        self.begin_with(TransactionOptions { isolation, ..TransactionOptions::default() })
    }

    /// As [`Database::begin`], with all options.
    pub fn begin_with(&self, options: TransactionOptions) -> Transaction {
        Transaction::new(&self.inner, options)
    }
}

impl Transaction {
    pub(crate) fn new(database: &Arc<Inner>, options: TransactionOptions) -> Self {
        Self {
            database: database.clone(),
            snapshot: database.take_snapshot(),
            batch: WriteBatch::new(),
            writes: Writes::new(),
            savepoints: Vec::new(),
            isolation: options.isolation,
            reads: Mutex::new(ReadSet::new(options.tracked_read_bytes)),
            is_fixed: AtomicBool::new(false),
            locks: HeldLocks::default(),
            lock_limits: LockLimits { count: options.lock_limit, timeout: options.lock_timeout },
        }
    }

    /// Its isolation level.
    pub fn isolation(&self) -> IsolationLevel {
        self.isolation
    }

    /// The state it reads, its own writes apart. It may be a newer one after a lock was taken ([`Transaction::lock`]).
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The number of writes so far.
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether it wrote nothing so far.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// The row of `key`: its own, or that of the snapshot. Fails as [`Transaction`] says.
    pub fn get(&self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.check_table(table)?;
        let mut lookup = Lookup::new();
        if let Some(own) = self.writes.get(&table.id()) {
            own.overlay.look_up(self.batch.body(), key, &mut lookup);
        }
        if !lookup.is_settled() && !lookup.is_covered() {
            self.note_key(table, key);
            let options = ReadOptions::at(&self.snapshot);
            let row = table.get_with(key, &options, &mut ReadCounters::default())?;
            lay_under(&mut lookup, row.as_deref());
        }
        lookup.finish(key, table.shared.combiner.as_deref())
    }

    /// The columns of `projection` (all if `None`) of a typed table's row with these primary key values.
    pub fn get_row(
        &self,
        table: &Table,
        key_values: &[DatumRef<'_>],
        projection: Option<&[usize]>,
    ) -> Result<Option<Vec<Datum>>> {
        table.value_columns(projection)?;
        let key = table.row_key(key_values)?;
        match self.get(table, &key)? {
            Some(value) => table.datums_of(&key, value, projection).map(Some),
            None => Ok(None),
        }
    }

    /// An iterator over rows in key order, the transaction's own included, unpositioned. A serializable transaction
    /// notes the interval that the iterator passes through, gaps included, when the iterator is dropped or seeks.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] if the options name a snapshot: a transaction reads at its own.
    pub fn iter(&self, table: &Table, options: &ReadOptions) -> Result<TransactionIterator<'_>> {
        self.check_table(table)?;
        if options.snapshot.is_some() {
            return Err(Error::invalid("a transaction reads at its own snapshot"));
        }
        if !self.notes_reads() {
            self.fix_snapshot();
        }
        let options = ReadOptions { snapshot: Some(self.snapshot.clone()), ..options.clone() };
        TransactionIterator::new(self, table, &options)
    }

    /// Sets the row of `key`.
    pub fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(table, Operation::Put, key, value)
    }

    /// Removes the row of `key`.
    pub fn delete(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        self.write(table, Operation::Delete, key, &[])
    }

    /// Removes the rows of all keys in `[start, end)`. Conflicts with every write to that interval.
    pub fn delete_range(&mut self, table: &Table, start: &[u8], end: &[u8]) -> Result<()> {
        if end.len() > MAX_KEY_LEN {
            let message = format!("the end of the range has {} bytes: a key has at most {MAX_KEY_LEN}", end.len());
            return Err(Error::invalid(message));
        }
        self.write(table, Operation::RangeDelete, start, end)
    }

    /// Hands `operand` to the table's merge operator. This reads nothing.
    pub fn merge(&mut self, table: &Table, key: &[u8], operand: &[u8]) -> Result<()> {
        self.write(table, Operation::Merge, key, operand)
    }

    /// Changes some columns of a row; `patch` is a value of the table's row format in which the others are absent. This
    /// reads nothing. A row that does not exist stays so.
    pub fn patch(&mut self, table: &Table, key: &[u8], patch: &[u8]) -> Result<()> {
        self.write(table, Operation::Patch, key, patch)
    }

    /// Writes a whole row of a typed table, one value per column in schema order.
    pub fn insert_row(&mut self, table: &Table, row: &[DatumRef<'_>]) -> Result<()> {
        self.write_encoded(table, Operation::Put, |buffers| table.encode_row(row, buffers))
    }

    /// Changes some columns of a typed table's row, by name. A row that does not exist stays so.
    pub fn patch_row(
        &mut self,
        table: &Table,
        key_values: &[DatumRef<'_>],
        changes: &[(&str, DatumRef<'_>)],
    ) -> Result<()> {
        self.write_encoded(table, Operation::Patch, |buffers| table.encode_patch(key_values, changes, buffers))
    }

    /// Removes a row of a typed table.
    pub fn delete_row(&mut self, table: &Table, key_values: &[DatumRef<'_>]) -> Result<()> {
        self.delete(table, &table.row_key(key_values)?)
    }

    /// Marks the present place. Savepoints nest.
    pub fn savepoint(&mut self) -> Savepoint {
        let savepoint = Savepoint(SAVEPOINTS.fetch_add(1, Ordering::Relaxed));
        self.savepoints.push(Mark { savepoint, position: self.batch.position(), locks: self.locks.count() });
        savepoint
    }

    /// Undoes all writes since the savepoint, which stays; later ones are gone. Locks that were taken since are let go;
    /// what was read since stays noted, of keys that were locked, too.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] if the savepoint was released, rolled back over, or is another
    /// transaction's.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        let at = self.find(savepoint)?;
        let Mark { position, locks, .. } = self.savepoints[at];
        self.savepoints.truncate(at + 1);
        let mut undone = Operations::new(&self.batch.body()[position.0..], 0, self.batch.len() as u32 - position.1);
        while let Some((table, entry)) = undone.next()? {
            if let Some(own) = self.writes.get_mut(&table) {
                own.overlay.undo(entry);
            }
        }
        self.batch.truncate(position);
        self.writes.retain(|_, own| !own.overlay.is_empty());
        self.locks.truncate(locks);
        Ok(())
    }

    /// Forgets the savepoint and those after it; writes and locks stay. Errors as [`Transaction::rollback_to`].
    pub fn release(&mut self, savepoint: Savepoint) -> Result<()> {
        let at = self.find(savepoint)?;
        self.savepoints.truncate(at);
        Ok(())
    }

    /// Undoes everything and lets go of all locks.
    pub fn rollback(self) {}

    /// Validates and commits. Returns the last sequence number of its writes (its snapshot's if it wrote nothing). Its
    /// locks are let go when its writes can be read, or it has failed.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Conflict`] if a commit since its snapshot wrote what it wrote, locked or (serializable)
    /// read, or an index came or went during this call: run it again from the start. [`crate::ErrorKind::NotFound`] if
    /// a table, or an index that it read, was dropped. Otherwise as [`Database::write`]. In all cases it had no effect,
    /// except that after an error that latches it may turn out to be there when the database is opened again. One that
    /// wrote nothing does not fail.
    pub fn commit(self, durability: Durability) -> Result<SequenceNumber> {
        let Self { database, snapshot, batch, writes, reads, locks, .. } = self;
        if batch.is_empty() {
            return Ok(snapshot.sequence());
        }
        database.check_writable()?;
        batch.check(database.identity)?;
        let count = batch.len() as u32;
        let (mut body, mut guard) = (None, None);
        let indexed = database.indexed.load();
        let uses = indexed.uses_of(batch.body(), count, false)?;
        if !uses.is_empty() {
            let prepared = database.prepare(uses, batch.body(), count, &snapshot)?;
            (body, guard) = (prepared.body, Some(prepared.guard));
        }
        let body = Cow::Owned(body.unwrap_or_else(|| batch.into_body()));
        let footprint = Arc::new(Footprint::new(writes, reads.into_inner()));
        let validated = snapshot.sequence();
        let mut validation = Validation { footprint, snapshot, validated, watch: None, guard };
        validation.validate_ahead(&database)?;
        let batch = ReadyBatch { body, count, durability, prepared_for: indexed.generation(), derived: None };
        let committed = database.commit(batch, Some(Arc::new(validation)));
        drop(locks);
        committed
    }

    fn find(&self, savepoint: Savepoint) -> Result<usize> {
        let at = self.savepoints.iter().position(|mark| mark.savepoint == savepoint);
        at.ok_or_else(|| Error::invalid("the savepoint is not one of this transaction any more"))
    }

    fn notes_reads(&self) -> bool {
        self.isolation == IsolationLevel::Serializable
    }

    /// Notes that a row of the snapshot is read.
    fn note_key(&self, table: &Table, key: &[u8]) {
        if self.notes_reads() {
            self.reads.lock().add_key(table, key);
        } else if self.locks.count() == 0 || !self.reads.lock().is_noted(table.id(), key) {
            self.fix_snapshot();
        }
    }

    /// Something is read of the snapshot and not noted.
    fn fix_snapshot(&self) {
        self.is_fixed.store(true, Ordering::Relaxed);
    }

    fn check_table(&self, table: &Table) -> Result<()> {
        self.database.check_own(table)?;
        table.shared.check_alive()
    }

    /// Writes what `encode` makes, in the memory of the batch. It needs no look at its form.
    fn write_encoded(
        &mut self,
        table: &Table,
        operation: Operation,
        encode: impl FnOnce(&mut RowBuffers) -> Result<()>,
    ) -> Result<()> {
        let mut buffers = self.batch.take_buffers();
        let checked =
            encode(&mut buffers).and_then(|()| self.check_write(table, operation, &buffers.key, &buffers.value));
        if checked.is_ok() {
            self.add(table, operation, &buffers.key, &buffers.value);
        }
        self.batch.give_buffers(buffers);
        checked
    }

    /// Writes what a caller encoded.
    fn write(&mut self, table: &Table, operation: Operation, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_write(table, operation, key, value)?;
        check_form(table, operation, key, value).map_err(|error| none_of_its_table(&error))?;
        self.add(table, operation, key, value);
        Ok(())
    }

    /// Refuses what the table, or the batch, cannot take, whatever the form of key and value.
    fn check_write(&self, table: &Table, operation: Operation, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_table(table)?;
        if key.len() > MAX_KEY_LEN || value.len() > MAX_VALUE_LEN {
            return Err(Error::invalid(format!(
                "a key of {} bytes with a value of {}: at most {MAX_KEY_LEN} and {MAX_VALUE_LEN} are possible",
                key.len(),
                value.len()
            )));
        }
        let fits_table = match operation {
            Operation::Merge => table.has_merge_operator(),
            Operation::Patch => table.schema().is_some(),
            _ => true,
        };
        if table.shared.formats.as_ref().is_some_and(|formats| formats.maps().is_some()) {
            return Err(refuse_with_maps("a transaction would read its own writes unmapped", table.name()));
        }
        if !fits_table {
            return Err(Error::invalid("merge needs a table with a merge operator, patch a table with a schema"));
        }
        let bytes = self.batch.encoded_len() + key.len() + value.len() + OPERATION_OVERHEAD;
        if bytes > MAX_BATCH_LEN {
            let message = format!("the transaction's writes take {bytes} bytes: at most {MAX_BATCH_LEN} are possible");
            return Err(Error::invalid(message));
        }
        Ok(())
    }

    /// Adds a checked write to the batch, and to what the transaction reads.
    fn add(&mut self, table: &Table, operation: Operation, key: &[u8], value: &[u8]) {
        self.batch.add(table, operation, key, value);
        let own = self
            .writes
            .entry(table.id())
            .or_insert_with(|| TableWrites { table: table.clone(), overlay: Overlay::default() });
        own.overlay.add(self.batch.position(), operation, key, value);
    }
}

/// What must hold of a transaction when its batch is committed.
struct Validation {
    footprint: Arc<Footprint>,
    /// Keeps the versions that the validation looks for.
    snapshot: Snapshot,
    /// Up to here nothing conflicts.
    validated: SequenceNumber,
    /// What was committed since then was shown to it.
    watch: Option<Arc<Watch>>,
    /// What indexes rest on.
    guard: Option<Guard>,
}

impl Validation {
    /// The first validation of step 3 of the module. One that met a bulk load is done again, but not for ever.
    fn validate_ahead(&mut self, database: &Inner) -> Result<()> {
        let is_wide = self.footprint.is_wide();
        for _ in 0..MOST_ROUNDS {
            let watch = is_wide.then(|| database.commits.watches.add(&self.footprint));
            // Only now: whatever is newer is shown to the watch, or looked for under the commit lock.
            let newest = database.visible.load(Ordering::Acquire);
            self.footprint.validate(self.validated, newest)?;
            (self.validated, self.watch) = (newest, watch);
            if !self.watch.as_ref().is_some_and(|watch| watch.met_load()) {
                break;
            }
        }
        Ok(())
    }
}

impl Precondition for Validation {
    fn check(&self, last: SequenceNumber) -> Result<()> {
        debug_assert!(self.snapshot.sequence() <= self.validated && self.validated <= last);
        let was_shown_all = self.watch.as_ref().map_or(Ok(false), |watch| watch.decide())?;
        if !was_shown_all {
            self.footprint.validate(self.validated, last)?;
        }
        self.guard.as_ref().map_or(Ok(()), Guard::check_all)?;
        self.footprint.check_tables()
    }

    fn check_operation(&self, table: TableId, entry: EntryRef<'_>) -> Result<()> {
        self.guard.as_ref().map_or(Ok(()), |guard| guard.check_operation(table, entry))?;
        self.footprint.check_operation(table, entry)
    }
}

/// Puts the snapshot's row below the transaction's own entries, which all have numbers above 0.
fn lay_under(lookup: &mut Lookup, row: Option<&[u8]>) {
    let operation = if row.is_some() { Operation::Put } else { Operation::Delete };
    let settled = lookup.visit(Trailer::new(0, operation), row.unwrap_or_default());
    debug_assert!(settled.is_break());
}
