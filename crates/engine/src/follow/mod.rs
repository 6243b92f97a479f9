//! A database opened read-only, beside the process that writes it: it shows a state, and catches up when it is told to.
//!
//! Catching up, of which opening is the first time:
//!
//! 1. Read what came to the manifest since, or all of the manifest that took its place
//!    ([`mycelium_manifest::ManifestFollower`]).
//! 2. Open the files that are new. Files that were open stay open as long as somebody reads them, whatever the other
//!    process removes (tables.rs).
//! 3. Replay what came to the log since, as recovery would: a record that is not whole is a torn tail, and whole the
//!    next time (log.rs). Memtables whose segment the manifest does not need any more are let go.
//! 4. Publish: every table of which anything is new gets a state with the new tree and memtables and the sequence
//!    number that reads of it see, and the states of all together make the state of the database (state.rs), which
//!    snapshots hold.
//!
//! Nothing is seen of a try that fails. As the other process goes on meanwhile, a file that the manifest named a moment
//! ago may be gone, or the log have what follows a bulk load, or the making or dropping of a table, that the manifest
//! did not have yet: then all of this begins anew, a bounded number of times ([`again_while_it_changes`]). So where the
//! log had anything new, the manifest is looked at once more.
//!
//! What is seen is a state that the database had: all of each batch, in the order of commits, up to one of them. It has
//! at least what was handed to the operating system before the call, for the log is read after the manifest, and what
//! has left the log by then is in files that the manifest names.

mod log;
mod state;
mod tables;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use mycelium_base::{Error, ErrorKind, FileKind, Result, SequenceNumber, TableId};
use mycelium_cache::BlockCache;
use mycelium_manifest::{FileNumbers, ManifestFollower, ManifestState};
use mycelium_vfs::Disk;
use mycelium_wal::RecoveryMode;

use self::log::{FollowedLog, Replayed};
pub(crate) use self::state::DatabaseState;
use self::tables::{NextTable, states_of, tables_of};
use crate::core::Core;
use crate::database::{Database, Inner, Recovered};
use crate::directory_syncs::DirectorySyncs;
use crate::options::Options;
use crate::recover::{again_while_it_changes, filter_bytes, needed_segments};
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, MutexGuard};
use crate::tree::Graveyard;
use crate::write::{CommitQueue, Writer};

/// What only a database has that was opened read-only.
#[derive(Default)]
pub(crate) struct Follower {
    shown: ArcSwap<DatabaseState>,
    progress: Mutex<Progress>,
}

/// How far the directory was read.
#[derive(Default)]
pub(crate) struct Progress {
    manifest: ManifestFollower,
    /// `None` before anything was read, and after a failure that may have left memtables with part of what they were to
    /// get.
    log: Option<FollowedLog>,
}

impl Follower {
    /// What is shown now.
    pub(crate) fn shown(&self) -> Arc<DatabaseState> {
        self.shown.load_full()
    }

    /// Keeps what is shown as it is, memtables and all, for who writes it down.
    fn keep(&self) -> Result<MutexGuard<'_, Progress>> {
        let progress = self.progress.lock();
        if progress.log.is_none() && !self.shown.load().generations.is_empty() {
            let message = "catching up failed, and what is in memory is no state of the database: catch up first";
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        Ok(progress)
    }
}

/// Opens the database in `directory` read-only.
pub(crate) fn open(directory: &Path, options: Options) -> Result<Inner> {
    let disk: Arc<dyn Disk> = Arc::new(DirectorySyncs::of(options.disk, directory));
    let options = Options { disk: disk.clone(), ..options };
    if !disk.exists(&directory.join(FileKind::Current.name(0)))? {
        return Err(Error::new(ErrorKind::NotFound, "there is no database").in_file(directory));
    }
    let recovered = Recovered {
        directory: directory.to_path_buf(),
        cache: Arc::new(BlockCache::with_budgets(options.cache_bytes, options.index_and_filter_bytes)),
        commits: CommitQueue::new(Writer::new(None, 0)),
        manifest: None,
        follower: Some(Follower::default()),
        archive: None,
        core: Core::new(FileNumbers::starting_at(1), filter_bytes(&options)),
        last_sequence: 0,
        graveyard: Arc::<Graveyard>::default(),
        lock: None,
    };
    let inner = Inner::new(options, recovered);
    inner.catch_up()?;
    Ok(inner)
}

impl Database {
    /// Brings a database opened read-only up to date with the process that writes it. Returns the newest sequence
    /// number that reads see from now on.
    ///
    /// Reads see everything that was acknowledged before the call with [`crate::Durability::Os`] or
    /// [`crate::Durability::Sync`], bulk loads, and tables, columns, indexes, views and layouts as they are now. What
    /// was written [`crate::Durability::Buffered`] is seen when it was handed to the operating system: by the next
    /// write that is more durable, by [`Database::sync`] or by a flush. What is seen may not have been acknowledged
    /// yet, and a power loss may take what was not synced. Batches are seen as a whole, and in the order of their
    /// commits.
    ///
    /// All tables change together. Snapshots, iterators, scans and transactions that there are read what they read
    /// before, also of tables that were dropped since, and keep its files open and its memtables in memory. At a
    /// snapshot a table cannot be read that has had its columns changed since, or that took the place of a dropped one
    /// of its name: [`ErrorKind::NotFound`]. Handles of tables that were dropped, or whose columns changed, are refused
    /// as [`crate::Table`] says.
    ///
    /// It costs what is new: the edits of the manifest and the records of the log since the last time, and the opening
    /// of new files. If nothing is, some reads of the directory. When a table or an index was made or dropped, the log
    /// is read again from its oldest segment on. Any thread may call it; one after the other catches up, and readers do
    /// not wait. [`Database::checkpoint`] and [`Database::backup`] hold it up.
    ///
    /// ```
    /// # use mycelium_engine::{Database, Durability, Options, ReadOptions, TableOptions};
    /// # use std::sync::Arc;
    /// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
    /// let writer = Database::open("example", options.clone())?;
    /// let written = writer.create_table("kv", TableOptions::default())?;
    /// written.put(b"key", b"old", Durability::Os)?;
    ///
    /// // As a rule, in another process.
    /// let reader = Database::open("example", Options { read_only: true, ..options })?;
    /// let read = reader.table("kv")?;
    /// written.put(b"key", b"new", Durability::Os)?;
    /// assert_eq!(read.get(b"key")?.as_deref(), Some(&b"old"[..]));
    ///
    /// let before = reader.snapshot();
    /// reader.catch_up()?;
    /// assert_eq!(read.get(b"key")?.as_deref(), Some(&b"new"[..]));
    /// let rows = read.multi_get(&[b"key"], &ReadOptions::at(&before))?;
    /// assert_eq!(rows[0].as_deref(), Some(&b"old"[..]));
    /// # Ok::<(), mycelium_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the database was not opened read-only; [`ErrorKind::Closed`] after
    /// [`Database::close`]; [`ErrorKind::Conflict`] if the other process changes the database whenever it is read: try
    /// again; [`ErrorKind::NotFound`] if another database, or an older state of this one, is in the directory now.
    /// Otherwise as [`Database::open`]. After an error reads see what they saw.
    pub fn catch_up(&self) -> Result<SequenceNumber> {
        self.inner.catch_up()
    }
}

impl Inner {
    fn catch_up(&self) -> Result<SequenceNumber> {
        let Some(follower) = &self.follower else {
            return Err(Error::invalid("only a database opened read-only catches up; this one has what is newest"));
        };
        self.check_unclosed()?;
        let mut progress = follower.progress.lock();
        again_while_it_changes(&*self.disk, &self.directory, || self.try_to_catch_up(follower, &mut progress))?;
        Ok(follower.shown.load().sequence)
    }

    /// Steps 1 to 4 of the module, once.
    fn try_to_catch_up(&self, follower: &Follower, progress: &mut Progress) -> Result<()> {
        let source = (&*self.disk, self.directory.as_path());
        progress.manifest.catch_up(source.0, source.1)?;
        let (shown, mut state) = (follower.shown(), progress.manifest.state().clone());
        check_follows(&shown.manifest, &state)?;
        let tables = tables_of(self, &shown, &state)?;
        let segments = needed_segments(source.0, source.1, &mut state, self.options.recovery)?;
        // What fails from here on leaves no log.
        let known = progress.log.take().filter(|log| log.is_of(tables.keys()));
        let is_new = known.is_none();
        let mut log = match known {
            Some(log) => log,
            None => self.new_log(&tables)?,
        };
        let replayed = log.replay(source, &segments, &state, self.options.recovery);
        let replayed = replayed.map_err(|error| self.replay_failed(error, &progress.manifest))?;
        let records = replayed.records;
        self.check_replayed(replayed, &progress.manifest)?;
        if is_new || records > 0 || state != shown.manifest {
            self.publish(follower, (&shown, state), &tables, &log);
        }
        self.counters.recovered_records.fetch_add(records, Ordering::Relaxed);
        progress.log = Some(log);
        Ok(())
    }

    fn new_log(&self, tables: &BTreeMap<TableId, NextTable>) -> Result<FollowedLog> {
        let tables = tables.iter().map(|(id, table)| (*id, table.shared.clone())).collect();
        FollowedLog::new(tables, filter_bytes(&self.options))
    }

    /// Fails if the manifest has been changed since it was read, and what the log had is of a later state: if the log
    /// is ahead of it, or if tables, columns, indexes, views or layouts are others now, so that what was written beside
    /// these would stand beside those. That is no state that the database ever had. Where the manifest has not been
    /// changed, numbers that are left out are those of older versions; a table that it lacks is lost.
    fn check_replayed(&self, replayed: Replayed, manifest: &ManifestFollower) -> Result<()> {
        if replayed.records > 0 {
            let mut now = manifest.clone();
            now.catch_up(&*self.disk, &self.directory)?;
            let (read, now) = (manifest.state(), now.state());
            if replayed.is_ahead && now.edit_count != read.edit_count || !has_same_tables(read, now) {
                return Err(self.log_is_ahead());
            }
        }
        let unknown = replayed.unknown.filter(|_| self.options.recovery != RecoveryMode::PointInTime);
        unknown.map_or(Ok(()), Err)
    }

    /// Why the log could not be replayed: what it has was written beside other tables or indexes, if these are others
    /// now. Patches lack the columns that an index reads once that was dropped.
    fn replay_failed(&self, error: Error, manifest: &ManifestFollower) -> Error {
        let mut now = manifest.clone();
        match now.catch_up(&*self.disk, &self.directory) {
            Ok(()) if !has_same_tables(manifest.state(), now.state()) => self.log_is_ahead().caused_by(error),
            _ => error,
        }
    }

    #[cold]
    fn log_is_ahead(&self) -> Error {
        let message = "the database is being written to, and its log was ahead of its manifest whenever it was read";
        Error::new(ErrorKind::Conflict, message).in_file(&self.directory)
    }

    /// Step 4 of the module. Nothing of it fails.
    fn publish(
        &self,
        follower: &Follower,
        (shown, manifest): (&DatabaseState, ManifestState),
        tables: &BTreeMap<TableId, NextTable>,
        log: &FollowedLog,
    ) {
        let sequence = log.last_sequence();
        let mut core = self.core.lock();
        let states = states_of(shown, tables, log, sequence);
        core.numbers.raise_to(manifest.next_file_number);
        let now = Arc::new(DatabaseState { manifest, sequence, states, generations: log.generations() });
        let next = tables.values().map(|table| table.shared.clone()).collect();
        let before = std::mem::replace(&mut core.tables, next);
        for (id, state) in &now.states {
            if let Some(table) = core.tables.get(id)
                && !Arc::ptr_eq(&table.state.load(), state)
            {
                table.state.store(state.clone());
            }
        }
        follower.shown.store(now.clone());
        self.visible.store(sequence, Ordering::Release);
        for (_, table) in before.iter().filter(|(id, _)| !now.states.contains_key(*id)) {
            now.retire(table);
        }
    }

    /// Of a database opened read-only, keeps it from catching up while somebody copies what it shows.
    pub(crate) fn keep_shown(&self) -> Result<Option<MutexGuard<'_, Progress>>> {
        self.follower.as_ref().map(Follower::keep).transpose()
    }
}

/// Whether two states have the same tables, of which nobody has changed columns, views or layout. Records of derived
/// tables also say how far these are built.
fn has_same_tables(one: &ManifestState, other: &ManifestState) -> bool {
    let mut pairs = one.tables.values().zip(other.tables.values());
    one.tables.keys().eq(other.tables.keys())
        && pairs.all(|(one, other)| one.record.is_derived() || one.record == other.record)
}

/// Fails if `now` cannot have come of `before`.
fn check_follows(before: &ManifestState, now: &ManifestState) -> Result<()> {
    let is_other = before.identity != 0 && before.identity != now.identity;
    if is_other || now.edit_count < before.edit_count {
        let message = "another database, or an older state of it, has taken the place of the one that was opened";
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    Ok(())
}
