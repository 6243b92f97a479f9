//! Rows that are locked before they are read: turns are taken instead of conflicts.
//!
//! 1. A lock is on the key of a row, whether there is a row or not. It is held until the transaction ends or rolls back
//!    to a savepoint before it. Only transactions that ask for locks meet them: plain writes, and transactions without
//!    locks, neither wait nor fail for them. Passes over expired rows leave locked ones alone. So a lock is a promise
//!    of those who take it, and the commit's validation is as if there were none.
//! 2. Who waited for a lock wants the row as its last holder left it. If the row has an entry that is newer than the
//!    transaction's snapshot, the snapshot moves to the present state.
//! 3. It may move only if nothing that the transaction has read or written changed in between: it might as well have
//!    begun then, and is still at one point of history. That is what a commit validates, and it is validated in the
//!    same way. Otherwise the transaction would lose at its commit, and is told so now. Under snapshot isolation no
//!    reads are noted but those of locked rows: a transaction that read anything else stays where it is, and loses if
//!    the row has changed.
//! 4. A locked key is noted as read, under either isolation. So a commit finds whoever wrote to it without a lock.
//!
//! Why those who lock a row before they touch it do not conflict over it: after step 2 the snapshot has all that was
//! committed before the lock was given, and until the lock is let go, after the commit can be read, no other of them
//! writes the row.
//!
//! Why a moved snapshot keeps what the isolation levels promise: the validation between the old and the new one is a
//! commit's, with the old snapshot registered until it is over, and the new one registered before it begins. What
//! follows, reads, the validation at commit, and indexes, knows the new one alone.

use mycelium_base::limits::MAX_KEY_LEN;
use mycelium_base::{Error, ErrorKind, Result};
use mycelium_encoding::{Datum, DatumRef};

use super::Transaction;
use super::footprint::{check_tables, validate};
use super::validate::{Check, conflict, shown};
use crate::locks::{LockName, Refusal};
use crate::sync::atomic::Ordering;
use crate::table::Table;

impl Transaction {
    /// Locks the key of a row, which need not exist, until the transaction ends or rolls back to a savepoint before
    /// this. Other transactions that want the lock wait meanwhile; who came first gets it first. Whoever does not ask
    /// for it is not held up, and if it writes the row, [`Transaction::commit`] fails with a conflict. To lock a key
    /// again does nothing.
    ///
    /// From now on the transaction sees the row as it was when the lock was given: where it had changed since the
    /// transaction's snapshot, the snapshot is now a newer one. So lock what others change all the time before reading
    /// anything else, and under [`crate::IsolationLevel::Snapshot`] read nothing before it but what is locked.
    ///
    /// Waits up to [`crate::TransactionOptions::lock_timeout`]. O(what was read and written so far) in validations if
    /// the row had changed, else O(1).
    ///
    /// # Errors
    /// The transaction is as it was, locks included, after each of them.
    ///
    /// - [`ErrorKind::LockTimeout`] if another transaction held the lock all the time.
    /// - [`ErrorKind::Deadlock`], at once, if its holder waits, directly or by way of others, for this transaction. The
    ///   message names the keys. What helps is to let go of locks: by [`Transaction::rollback_to`], or at the end.
    /// - [`ErrorKind::Conflict`] if the row changed since the snapshot, and so did something else that the transaction
    ///   has read or written, or may have (snapshot isolation): run it again from the start.
    /// - [`ErrorKind::LockLimit`] if it holds [`crate::TransactionOptions::lock_limit`] locks.
    /// - [`ErrorKind::Closed`], [`ErrorKind::ReadOnly`] and [`ErrorKind::NotFound`] as of a write, also while it waits.
    pub fn lock(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        self.check_table(table)?;
        if key.len() > MAX_KEY_LEN {
            let message = format!("a key of {} bytes is to be locked: a key has at most {MAX_KEY_LEN}", key.len());
            return Err(Error::invalid(message));
        }
        let database = &self.database;
        let check = || table.shared.check_alive().and_then(|()| database.check_writable());
        check()?;
        let held = self.locks.count();
        let name = LockName { table: table.id(), key: key.to_vec() };
        let taken = self.locks.take(&database.locks, name, self.lock_limits, check);
        if taken.map_err(|refusal| self.refused(table, key, refusal))? {
            if let Err(error) = self.see_newest(table, key) {
                self.locks.truncate(held);
                return Err(error);
            }
            self.reads.lock().add_key(table, key);
        }
        Ok(())
    }

    /// Locks the key of a row and reads the row as it is then: [`Transaction::lock`], then [`Transaction::get`]. If
    /// that fails the lock is held.
    ///
    /// Changes of one row that all read it so do not conflict with each other, however many there are at once:
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use mycelium_engine::{Database, Durability, IsolationLevel, Options, TableOptions};
    /// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
    /// # let database = Database::open("example", options)?;
    /// let queue = database.create_table("queue", TableOptions::default())?;
    /// queue.put(b"head", b"1", Durability::Os)?;
    ///
    /// let mut transaction = database.begin(IsolationLevel::Snapshot);
    /// queue.put(b"head", b"2", Durability::Os)?;
    /// assert_eq!(transaction.get_for_update(&queue, b"head")?.as_deref(), Some(&b"2"[..]));
    /// transaction.put(&queue, b"head", b"3")?;
    /// transaction.commit(Durability::Os)?;
    /// # Ok::<(), mycelium_engine::Error>(())
    /// ```
    pub fn get_for_update(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.lock(table, key)?;
        self.get(table, key)
    }

    /// As [`Transaction::lock`], of the row of a typed table with these primary key values.
    pub fn lock_row(&mut self, table: &Table, key_values: &[DatumRef<'_>]) -> Result<()> {
        self.lock(table, &table.row_key(key_values)?)
    }

    /// As [`Transaction::get_for_update`], of the columns of `projection` (all if `None`) of a typed table's row with
    /// these primary key values.
    pub fn get_row_for_update(
        &mut self,
        table: &Table,
        key_values: &[DatumRef<'_>],
        projection: Option<&[usize]>,
    ) -> Result<Option<Vec<Datum>>> {
        table.value_columns(projection)?;
        self.lock_row(table, key_values)?;
        self.get_row(table, key_values, projection)
    }

    /// Steps 2 and 3 of the module, of a row that was just locked.
    fn see_newest(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        let since = self.snapshot.sequence();
        if !Check::new(&table.shared, since)?.has_newer(key)? {
            return Ok(());
        }
        if self.is_fixed.load(Ordering::Relaxed) {
            return Err(conflict(&table.shared, key));
        }
        let newest = self.database.take_snapshot();
        let reads = self.reads.lock();
        validate(&self.writes, &reads, since, newest.sequence())?;
        check_tables(&self.writes, &reads)?;
        drop(reads);
        self.snapshot = newest;
        Ok(())
    }

    #[cold]
    fn refused(&self, table: &Table, key: &[u8], refusal: Refusal) -> Error {
        let (wanted, name) = (shown(key), table.name());
        match refusal {
            Refusal::Failed(error) => error,
            Refusal::TooMany => {
                let held = self.locks.count();
                let message = format!("a lock on {wanted:?} in table {name} would be one more than the {held} allowed");
                Error::new(ErrorKind::LockLimit, message)
            }
            Refusal::TimedOut => {
                let timeout = self.lock_limits.timeout;
                let message = format!("another transaction holds the lock on {wanted:?} in table {name} ({timeout:?})");
                Error::new(ErrorKind::LockTimeout, message)
            }
            Refusal::Deadlock(circle) => {
                let core = self.database.core.lock();
                let next = circle.iter().skip(1).map(|lock| match core.tables.get(&lock.table) {
                    Some(table) => format!("{:?} in table {}", shown(&lock.key), table.name),
                    None => format!("{:?} in a table that is gone", shown(&lock.key)),
                });
                let chain = next.collect::<Vec<_>>().join(", whose holder waits for ");
                let message = format!(
                    "the holder of the lock on {wanted:?} in table {name} waits for {chain}, which this transaction has"
                );
                Error::new(ErrorKind::Deadlock, message)
            }
        }
    }
}
