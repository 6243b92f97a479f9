//! Expiry as users set it, and passes that they ask for.

use mycelium_base::{Error, ErrorKind, Result};
use mycelium_manifest::{TableRecord, VersionEdit};

use super::definition::Expiry;
use crate::database::{Database, Inner};
use crate::shape::TableFormats;
use crate::table::{Table, TableDefinition};
use crate::transformers::refuse_with_maps;

impl Database {
    /// Sets when rows of a typed table expire; `None`: they do no more. Durable when it returns. It is what
    /// [`crate::TableOptions::expiry`] says when a table is made.
    ///
    /// Expired rows are deleted by the background, in transactions that write them as [`Transaction::delete`] does: at
    /// one sequence number each, in the table, its indexes and its views; snapshots and iterators from before have
    /// them. A row is deleted only in the state in which it had expired: an update that comes before keeps it if it
    /// has a later time then. After the delete it is gone, so that a patch of it changes nothing. A row that a
    /// transaction has locked ([`Transaction::lock`]) is left to the next pass.
    ///
    /// A row that has expired is there until it is deleted. That is with the next pass over the table: at the latest
    /// [`crate::Options::expiry_interval`] later, or, where that is more, ten times what a pass takes; and as long
    /// again as the pass takes. Who may not see such rows asks for the time in a filter, too.
    ///
    /// A pass is a scan with a filter. Of columnar files it reads blocks whose zones say that they may have expired
    /// rows: where rows lie about in the order of their times, few others. Of files of rows it reads everything, unless
    /// the primary key begins with the time. It takes a tenth of the time of one thread at most: it rests for nine
    /// times as long as it works. Rows of [`crate::Background::Manual`] databases expire in [`Database::step`], without
    /// rests.
    ///
    /// When it returns, nothing is deleted any more by what was set before; it waits for the transaction in which that
    /// is just happening.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use std::time::Duration;
    /// use mycelium_encoding::{DatumRef, Schema};
    /// use mycelium_engine::{Background, Database, Durability, Expiry, ManualClock, Options, TableOptions};
    /// # let disk = Arc::new(mycelium_vfs::MemoryDisk::new());
    ///
    /// // For tests: a clock that is set, and nothing in the background.
    /// let clock = Arc::new(ManualClock::at(Duration::from_secs(1_000)));
    /// let options = Options { clock: clock.clone(), background: Background::Manual, ..Options::default() };
    /// # let options = Options { disk, ..options };
    /// let database = Database::open("example", options)?;
    /// let schema = Schema::parse("id int64 not null, seen timestamp(s), primary key (id)")?;
    /// let sessions = database.create_typed_table("sessions", schema, TableOptions::default())?;
    /// for (id, seen) in [(1, 940), (2, 970)] {
    ///     sessions.insert_row(&[DatumRef::Int64(id), DatumRef::Timestamp(seen)], Durability::Os)?;
    /// }
    /// database.set_expiry(&sessions, Some(Expiry::new("seen", Duration::from_secs(80))))?;
    /// assert_eq!(database.expire_rows(&sessions)?, 0);
    /// clock.set(Duration::from_secs(1_020));
    /// assert_eq!(database.expire_rows(&sessions)?, 1);
    /// # Ok::<(), mycelium_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a table of bytes, a column that there is not, one that says no time, and a
    /// unit where the column's type has one, or none where it has not; [`ErrorKind::Unsupported`] if a transformer of
    /// the table maps values. See [`Database`] for the others.
    ///
    /// [`Transaction::delete`]: crate::Transaction::delete
    /// [`Transaction::lock`]: crate::Transaction::lock
    pub fn set_expiry(&self, table: &Table, expiry: Option<Expiry>) -> Result<()> {
        self.inner.change_expiry(table, expiry)?;
        self.threads.start_expiry()
    }

    /// Deletes the rows of a table that have expired by now, as the background would do later, and returns how many
    /// they were. Rows that others write meanwhile may be left to the next pass, and rows that are locked are, by a
    /// transaction of the caller's, too. It returns when they are deleted, not when that is durable
    /// ([`Database::sync`]).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if rows of the table do not expire. See [`Database`] for the others; what was
    /// deleted before an error stays so.
    pub fn expire_rows(&self, table: &Table) -> Result<u64> {
        self.inner.check_own(table)?;
        self.inner.expire_now(&table.shared)
    }
}

impl Table {
    /// What its rows expire by at present ([`Database::set_expiry`]).
    pub fn expiry(&self) -> Option<Expiry> {
        self.shared.expiry.present().map(|expiry| Expiry::clone(&expiry))
    }
}

/// Refuses what rows of a table cannot expire by.
pub(crate) fn check_expiry(table: &str, formats: &TableFormats, expiry: &Expiry) -> Result<()> {
    expiry.check(formats.schema())?;
    match formats.maps() {
        Some(_) => Err(refuse_with_maps("its rows do not expire", table)),
        None => Ok(()),
    }
}

impl Inner {
    fn change_expiry(&self, table: &Table, expiry: Option<Expiry>) -> Result<()> {
        self.check_writable()?;
        self.check_own(table)?;
        let formats = table.shared.typed_formats()?;
        expiry.as_ref().map_or(Ok(()), |expiry| check_expiry(table.name(), formats, expiry))?;
        let _deleting = self.passes.deleting.lock();
        let mut manifest = self.manifest()?;
        table.shared.check_alive()?;
        let Some(state) = manifest.state().tables.get(&table.id()) else {
            return Err(Error::new(ErrorKind::NotFound, format!("table {} was dropped", table.name())));
        };
        let mut definition = TableDefinition::decode(&state.record.definition)?;
        definition.options.expiry.clone_from(&expiry);
        let record = TableRecord { definition: definition.encode(), ..TableRecord::clone(&state.record) };
        let edit = VersionEdit { changed_tables: vec![record], ..VersionEdit::default() };
        self.apply_edit(&mut manifest, edit, &[], &[], |_| table.shared.expiry.set(expiry))?;
        drop(manifest);
        self.wake_background();
        Ok(())
    }
}
