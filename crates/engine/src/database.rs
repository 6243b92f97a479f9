//! The database: one directory, one log, one manifest, one clock, many tables.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use mycelium_base::{Error, ErrorKind, FileKind, Group, GroupFormat, Result, RowFormatKind, SequenceNumber, TableId};
use mycelium_cache::BlockCache;
use mycelium_encoding::Schema;
use mycelium_manifest::{FileMeta, KeyRange, Layout, Manifest, TableRecord, VersionEdit};
use mycelium_sst::{OpenOptions, SstFile};
use mycelium_vfs::{AccessPattern, Disk, FileLock};

use crate::archive::Archiver;
use crate::background::{Shortages, Signals, Threads};
use crate::batch::WriteBatch;
use crate::core::Core;
use crate::events::Event;
use crate::expiry::{Passes, check_expiry};
use crate::follow::{self, Follower};
use crate::index::{IndexedTables, split_augments};
use crate::locks::LockTable;
use crate::metrics::Counters;
use crate::options::{Durability, Options, RowFormatDefinition, TableOptions};
use crate::rate_limit::RateLimiter;
use crate::recover::{check_restored, recover};
use crate::shape::{PLAIN, Shape, TableFormats};
use crate::snapshot::{Snapshot, SnapshotRegistry};
use crate::stall::WriteStalls;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::table::{Table, TableDefinition, TableShared};
use crate::transformers::{self, refuse_with_maps};
use crate::tree::{Graveyard, OpenFile, Tree};
use crate::view::ViewSet;
use crate::write::CommitQueue;

/// Everything that handles, tables, iterators and background threads share.
pub(crate) struct Inner {
    /// Tells databases of one process apart.
    pub(crate) identity: u64,
    pub(crate) directory: PathBuf,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: Options,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) commits: CommitQueue,
    /// `None` in a database opened read-only.
    manifest: Option<Mutex<Manifest>>,
    /// What a database opened read-only shows; `None` in any other.
    pub(crate) follower: Option<Follower>,
    /// Where the log goes, if it is archived.
    pub(crate) archive: Option<Archiver>,
    pub(crate) core: Mutex<Core>,
    pub(crate) snapshots: Arc<SnapshotRegistry>,
    /// Held and waited for by transactions; only those that hold some know of it.
    pub(crate) locks: Arc<LockTable>,
    /// The newest sequence number that reads may see.
    pub(crate) visible: AtomicU64,
    pub(crate) stalls: WriteStalls,
    /// Bytes of memory of generations waiting for their flush.
    pub(crate) sealed_bytes: AtomicUsize,
    pub(crate) graveyard: Arc<Graveyard>,
    /// What writers prepare their batches for; changes with the commit lock held.
    pub(crate) indexed: ArcSwap<IndexedTables>,
    /// Held while files are being removed, so that removals take turns.
    pub(crate) removal: Mutex<()>,
    pub(crate) counters: Counters,
    pub(crate) signals: Signals,
    /// Callers that wait for the background to come to rest.
    pub(crate) impatient: AtomicUsize,
    pub(crate) limiter: RateLimiter,
    pub(crate) shortages: Shortages,
    /// Of tables whose rows expire.
    pub(crate) passes: Passes,
    failed: AtomicBool,
    failure: Mutex<Option<Error>>,
    closed: AtomicBool,
    /// Held while the database is being closed.
    closing: Mutex<()>,
    /// Held until the database is closed and the last job that writes files has ended, so that nobody else opens the
    /// directory.
    lock: Mutex<Option<Arc<dyn FileLock>>>,
}

/// The parts that recovery hands over.
pub(crate) struct Recovered {
    pub(crate) directory: PathBuf,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) commits: CommitQueue,
    pub(crate) manifest: Option<Manifest>,
    pub(crate) follower: Option<Follower>,
    pub(crate) archive: Option<Archiver>,
    pub(crate) core: Core,
    pub(crate) last_sequence: SequenceNumber,
    pub(crate) graveyard: Arc<Graveyard>,
    pub(crate) lock: Option<Box<dyn FileLock>>,
}

static IDENTITIES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);

impl Inner {
    pub(crate) fn new(options: Options, parts: Recovered) -> Self {
        let indexed = parts.commits.writer.lock().derivers.indexed().clone();
        Self {
            identity: IDENTITIES.fetch_add(1, Ordering::Relaxed),
            directory: parts.directory,
            disk: options.disk.clone(),
            limiter: RateLimiter::new(options.rate_limit_bytes_per_second),
            stalls: WriteStalls::new(&options),
            options,
            cache: parts.cache,
            indexed: ArcSwap::new(indexed),
            commits: parts.commits,
            manifest: parts.manifest.map(Mutex::new),
            follower: parts.follower,
            archive: parts.archive,
            core: Mutex::new(parts.core),
            snapshots: Arc::default(),
            locks: Arc::default(),
            visible: AtomicU64::new(parts.last_sequence),
            sealed_bytes: AtomicUsize::new(0),
            graveyard: parts.graveyard,
            removal: Mutex::new(()),
            counters: Counters::default(),
            signals: Signals::default(),
            impatient: AtomicUsize::new(0),
            shortages: Shortages::default(),
            passes: Passes::default(),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            closed: AtomicBool::new(false),
            closing: Mutex::new(()),
            lock: Mutex::new(parts.lock.map(Arc::from)),
        }
    }

    /// From now on every write fails with [`ErrorKind::ReadOnly`]; reads go on.
    #[cold]
    pub(crate) fn latch(&self, error: &Error) {
        let mut failure = self.failure.lock();
        let is_first = failure.is_none();
        if is_first {
            tracing::error!(%error, "the database is read-only from now on");
            *failure = Some(error.duplicate());
        }
        self.failed.store(true, Ordering::Release);
        drop(failure);
        self.wake_background();
        if is_first {
            self.locks.wake_all();
            self.emit(|| Event::ReadOnly { message: error.to_string() });
        }
    }

    /// Fails if the database was latched.
    #[inline]
    pub(crate) fn check_unlatched(&self) -> Result<()> {
        if self.is_latched() { Err(self.refusal()) } else { Ok(()) }
    }

    /// Whether an error latched the database read-only.
    pub(crate) fn is_latched(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Fails if the database was latched, closed or opened read-only.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.failed.load(Ordering::Acquire) || self.closed.load(Ordering::Acquire) || self.options.read_only {
            return Err(self.refusal());
        }
        Ok(())
    }

    /// Refuses a table of another database: its number means another table here.
    pub(crate) fn check_own(&self, table: &Table) -> Result<()> {
        if table.database_identity() == self.identity {
            return Ok(());
        }
        Err(Error::invalid(format!("table {} belongs to another database", table.name())))
    }

    /// Fails if the database was closed.
    pub(crate) fn check_unclosed(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(self.refusal()) } else { Ok(()) }
    }

    /// Fails if the database was latched or closed.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.failed.load(Ordering::Acquire) || self.closed.load(Ordering::Acquire) {
            return Err(self.refusal());
        }
        Ok(())
    }

    #[cold]
    fn refusal(&self) -> Error {
        if let Some(error) = &*self.failure.lock() {
            return Error::new(ErrorKind::ReadOnly, "the database is read-only after an earlier error")
                .caused_by(error.to_string());
        }
        if self.closed.load(Ordering::Acquire) {
            return Error::new(ErrorKind::Closed, "the database was closed");
        }
        Error::new(ErrorKind::ReadOnly, "the database was opened read-only")
    }

    /// The manifest, locked: whoever holds it is the only one to change versions. Fails if the directory may be
    /// another's already.
    pub(crate) fn manifest(&self) -> Result<MutexGuard<'_, Manifest>> {
        let manifest = self.manifest.as_ref();
        let manifest = manifest.ok_or_else(|| Error::new(ErrorKind::ReadOnly, "the database was opened read-only"))?;
        let locked = manifest.lock();
        self.check_held()?;
        Ok(locked)
    }

    #[inline]
    pub(crate) fn emit(&self, event: impl FnOnce() -> Event) {
        if let Some(listener) = &self.options.listener {
            listener.on_event(&event());
        }
    }

    /// Fails if the database was closed and has let the directory go: nothing may be written there any more. With the
    /// commit lock or the manifest held, closing waits until they are let go.
    pub(crate) fn check_held(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) && self.lock.lock().is_none() {
            return Err(self.refusal());
        }
        Ok(())
    }

    /// The lock on the directory, if this database holds it.
    pub(crate) fn held_lock(&self) -> Option<Arc<dyn FileLock>> {
        self.lock.lock().clone()
    }

    /// Persists the names in the directory (see [`crate::directory_syncs`]); a failure latches, unless it was for want
    /// of a descriptor.
    pub(crate) fn sync_directory(&self) -> Result<()> {
        self.check_unlatched()?;
        self.disk.sync_directory(&self.directory).inspect_err(|error| {
            if error.kind() != ErrorKind::TooManyOpenFiles {
                self.latch(error);
            }
        })
    }

    pub(crate) fn open_file(&self, meta: &Arc<FileMeta>) -> Result<Arc<OpenFile>> {
        open_sst(&*self.disk, &self.directory, &self.cache, meta)
            .map(|sst| OpenFile::new(meta.clone(), sst, self.graveyard.clone()))
    }

    /// The present state, kept readable.
    pub(crate) fn take_snapshot(&self) -> Snapshot {
        match &self.follower {
            Some(follower) => self.snapshots.take_shown(follower.shown()),
            None => self.snapshots.take(|| self.visible.load(Ordering::Acquire)),
        }
    }

    /// Ends the log cleanly. Idempotent: who comes second waits for the first.
    pub(crate) fn close(&self) -> Result<()> {
        let _serial = self.closing.lock();
        if self.closed.swap(true, Ordering::AcqRel) || self.options.read_only {
            return Ok(());
        }
        self.locks.wake_all();
        let result = self.end_log();
        if result.is_ok() {
            self.save_traces();
        }
        // Who is changing tables or sealing memtables finishes first.
        let writer = self.commits.writer.lock();
        let manifest = self.manifest.as_ref().map(|manifest| manifest.lock());
        *self.lock.lock() = None;
        drop((manifest, writer));
        result
    }

    fn end_log(&self) -> Result<()> {
        if self.failed.load(Ordering::Acquire) {
            return Err(self.refusal());
        }
        let mut writer = self.commits.writer.lock();
        if writer.log_gap {
            // The log does not hold everything: what it lacks must become files, or closing it would lose it.
            self.seal_generation(&mut writer)?;
            self.flush_sealed()?;
        }
        let sealed = self.core.lock().sealed_logs();
        sealed.iter().try_for_each(|log| log.sync())?;
        writer.log()?.sync()
    }

    /// Durable at once, and so must be everything committed before it: a crash may not keep the later and lose the
    /// earlier. The log is synced first.
    fn create_table(self: &Arc<Self>, name: &str, definition: TableDefinition) -> Result<Table> {
        self.check_writable()?;
        if name.is_empty() || name.len() > 255 || name.contains(['/', '\0', '\n']) {
            return Err(Error::invalid("a table's name has 1 to 255 bytes and no slash, NUL or line feed"));
        }
        definition.options.check()?;
        definition.check_prefix_filter()?;
        let layout = match &definition.schema {
            Some(schema) => {
                transformers::check_options(&definition.options)?;
                check_defaults(name, schema, &definition.options)?;
                let formats = TableFormats::new(schema.clone(), &definition.options)?
                    .with_transformers(&self.options.transformers, &definition.options)?;
                if formats.maps().is_some() && definition.options.layout_auto {
                    return Err(refuse_with_maps("its layout cannot change", name));
                }
                if let Some(expiry) = &definition.options.expiry {
                    check_expiry(name, &formats, expiry)?;
                }
                let layout = definition.options.layout.clone();
                let layout = layout.unwrap_or_else(|| formats.first_layout(&definition.options.policy));
                formats.check(&layout)?;
                layout.to_string()
            }
            None if definition.options.layout.is_some()
                || definition.options.transformers.is_some()
                || definition.options.layout_auto
                || definition.options.expiry.is_some()
                || definition.options.row_format != RowFormatDefinition::default()
                || !definition.options.group_formats.is_empty() =>
            {
                return Err(Error::invalid("layouts, transformers, row formats and expiry are for typed tables"));
            }
            None => PLAIN.into(),
        };
        let mut writer = self.commits.writer.lock();
        if self.core.lock().tables.named(name).is_some() {
            return Err(Error::invalid(format!("table {name} exists")));
        }
        self.sync_locked(&mut writer)?;
        let mut manifest = self.manifest()?;
        let id = TableId(manifest.state().next_table_id);
        let record = TableRecord { id, name: name.into(), definition: definition.encode(), layout };
        let active = self.core.lock().empty.clone();
        let shared = TableShared::new(&record, &self.options, active, |formats| Ok(Tree::empty(formats)))?;
        let mut edit = VersionEdit::default();
        edit.created_tables.push(record);
        let shared = Arc::new(shared);
        self.apply_edit(&mut manifest, edit, &[], &[], |core| {
            core.tables.insert(shared.clone());
        })?;
        writer.tables.insert(id);
        Ok(Table { shared, database: self.clone() })
    }

    /// Sets a table's layout; only in place of `expected`, where that is given. Whether it was set.
    pub(crate) fn change_layout(
        &self,
        table: &TableShared,
        layout: Layout,
        expected: Option<&Arc<Layout>>,
    ) -> Result<bool> {
        self.check_writable()?;
        let formats = table.typed_formats()?;
        if formats.maps().is_some() {
            return Err(refuse_with_maps("its layout cannot change", &table.name));
        }
        formats.check(&layout)?;
        let mut manifest = self.manifest()?;
        table.check_alive()?;
        if expected.is_some_and(|expected| !Arc::ptr_eq(expected, &table.shape.load().layout)) {
            return Ok(false);
        }
        let Some(state) = manifest.state().tables.get(&table.id) else {
            return Err(Error::new(ErrorKind::NotFound, format!("table {} was dropped", table.name)));
        };
        let record = TableRecord { layout: layout.to_string(), ..TableRecord::clone(&state.record) };
        let mut edit = VersionEdit::default();
        edit.changed_tables.push(record);
        let shape = Arc::new(Shape::new(layout, &table.definition.options, self.options.deferral()));
        self.apply_edit(&mut manifest, edit, &[], &[], |_| table.shape.store(shape))?;
        drop(manifest);
        self.wake_background();
        Ok(true)
    }

    /// As [`Inner::create_table`]: rows that were copied to another table must not be lost in both.
    fn drop_table(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        let mut writer = self.commits.writer.lock();
        let table = self.core.lock().tables.named(name).cloned();
        let Some(table) = table else {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no table {name}")));
        };
        self.sync_locked(&mut writer)?;
        let mut manifest = self.manifest()?;
        let id = table.id;
        // Its indexes go with it.
        let mut gone: Vec<_> = table.state.load().indexes.iter().map(|index| index.table.clone()).collect();
        gone.push(table);
        let mut edit = VersionEdit::default();
        edit.dropped_tables.extend(gone.iter().map(|table| table.id));
        self.apply_edit(&mut manifest, edit, &[], &[], |core| {
            gone.iter().for_each(|table| core.tables.remove(table.id));
        })?;
        gone.iter().for_each(|table| self.forget_table(&mut writer, table));
        if gone.len() > 1 {
            self.renew_derivers(&mut writer, &[id])?;
        }
        gone.iter().for_each(|table| self.remove_trace(table));
        drop(manifest);
        self.wake_background();
        Ok(())
    }
}

/// Refuses defaults where rows say by themselves what a column has that they leave out.
fn check_defaults(table: &str, schema: &Schema, options: &TableOptions) -> Result<()> {
    let kind = options.row_format.kind;
    match schema.columns().iter().find(|column| column.default.is_some() && kind != RowFormatKind::Packed) {
        Some(column) => Err(Error::new(
            ErrorKind::Unsupported,
            format!("table {table}: column \"{}\" has a default, and rows of format {kind} take none", column.name),
        )),
        None => Ok(()),
    }
}

/// Opens a file that a manifest names.
pub(crate) fn open_sst(
    disk: &dyn Disk,
    directory: &Path,
    cache: &Arc<BlockCache>,
    meta: &FileMeta,
) -> Result<Arc<SstFile>> {
    let path = directory.join(FileKind::Sst.name(meta.number));
    let file = disk.open(&path, AccessPattern::Random)?;
    let sst = SstFile::open(file, &path, meta.number, cache.clone(), open_options(meta))?;
    check_identity(&sst, meta)?;
    Ok(sst)
}

/// Whether a file holds the group that the manifest says. It says nothing of columns that its table got later or has no
/// more, and of whole rows it named none, unless it was salvaged.
fn holds_group(found: Option<&Group>, stated: Option<&Group>) -> bool {
    match (found, stated) {
        (None, Some(stated)) => !stated.is_as_written() && stated.format == GroupFormat::default(),
        (Some(found), Some(stated)) => *found == stated.as_written(),
        (found, None) => found.is_none_or(|found| found.format == GroupFormat::default()),
    }
}

/// What the manifest says of the bytes of a file.
pub(crate) fn open_options(meta: &FileMeta) -> OpenOptions {
    OpenOptions {
        sequence_override: meta.sequence_override,
        expected_size: Some(meta.size),
        expected_checksum: Some(meta.checksum),
    }
}

/// An older file that came back under the same number may be whole in itself and as long, but says other things.
pub(crate) fn check_identity(sst: &SstFile, meta: &FileMeta) -> Result<()> {
    let found = sst.properties();
    let sequences = match meta.sequence_override {
        Some(_) => (found.min_sequence, found.max_sequence),
        None => (meta.min_sequence, meta.max_sequence),
    };
    let same = found.entry_count == meta.entry_count
        && (found.min_sequence, found.max_sequence) == sequences
        && (&found.smallest, &found.largest) == (&meta.smallest, &meta.largest)
        && found.largest_exclusive == meta.largest_exclusive
        && holds_group(found.group.as_deref(), meta.group.as_deref());
    if same {
        return Ok(());
    }
    let describe = |entries: u64, (min, max): (SequenceNumber, SequenceNumber)| {
        format!("{entries} entries of sequence numbers {min} to {max}")
    };
    Err(Error::corruption("the file is not the one that the manifest names").in_file(sst.path()).at(0).expected(
        describe(meta.entry_count, sequences),
        describe(found.entry_count, (found.min_sequence, found.max_sequence)),
    ))
}

/// A handle to an open database. Cheap to clone; all methods may be called from any thread, several at a time. The
/// database is closed when the last clone is dropped; tables and iterators can be read beyond that.
///
/// Reads do not wait for writers. Writers wait for each other: [`Database::write`], [`Database::sync`], and creating or
/// dropping a table or an index take turns.
///
/// ```
/// use mycelium_engine::{Database, Durability, Options, ReadOptions, TableOptions, WriteBatch};
/// # use std::sync::Arc;
/// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
/// let database = Database::open("example", options)?;
/// let accounts = database.create_table("accounts", TableOptions::default())?;
/// let audit = database.create_table("audit", TableOptions::default())?;
///
/// let mut batch = WriteBatch::new();
/// batch.put(&accounts, b"alice", b"90").put(&accounts, b"bob", b"10").put(&audit, b"1", b"alice -> bob: 10");
/// database.write(&batch, Durability::Sync)?;
///
/// let before = database.snapshot();
/// accounts.put(b"alice", b"0", Durability::Os)?;
/// let at_snapshot = accounts.multi_get(&[b"alice"], &ReadOptions::at(&before))?;
/// assert_eq!(at_snapshot[0].as_deref(), Some(&b"90"[..]));
/// database.close()?;
/// # Ok::<(), mycelium_engine::Error>(())
/// ```
///
/// # Errors of every call
///
/// What a call adds to these stands with the call.
///
/// - [`ErrorKind::ReadOnly`] for every change of a database that was opened read-only or that an error has latched.
///   Reads go on. [`Database::failure`] tells the error; opening the database again lifts the latch.
/// - [`ErrorKind::Closed`] for every change after [`Database::close`].
/// - [`ErrorKind::NotFound`] for a handle to a table that was dropped, or whose columns changed since it was taken.
/// - [`ErrorKind::InvalidArgument`] for a table or a snapshot of another database, and for a key or value that is too
///   long. Nothing was done.
/// - [`ErrorKind::NoSpace`] if the disk is full, [`ErrorKind::TooManyOpenFiles`] if the process or the system has as
///   many files open as it may. Nothing acknowledged is lost, and the call may be made again.
/// - [`ErrorKind::Corruption`] and [`ErrorKind::Io`] if the disk gives other bytes than were written, or an error.
///
/// What latches: a failed sync of the log, the manifest or the directory; any other failure of these that cannot be
/// undone; a failed job of the background; a panic in a job. A full disk, or want of descriptors, does not, unless what
/// it cut short cannot be undone.
#[derive(Clone)]
pub struct Database {
    pub(crate) inner: Arc<Inner>,
    pub(crate) threads: Arc<Threads>,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Database({})", self.inner.directory.display())
    }
}

impl Database {
    /// Opens the database in `directory`, creating it if the options say so, and recovers it.
    ///
    /// Recovery replays the log, writes what it held as level-0 files and removes orphans. It may be interrupted at any
    /// point and run again. Opened read-only, a database writes nothing, takes no lock, and shows what was there when
    /// it was opened until it is told to catch up ([`Database::catch_up`]).
    ///
    /// # Errors
    /// [`ErrorKind::Locked`] if it is open elsewhere; [`ErrorKind::Corruption`] as the recovery mode says, and for the
    /// files of a database whose `CURRENT` is gone; [`ErrorKind::Unsupported`] for a newer format, or a merge operator
    /// or transformer that is not registered; [`ErrorKind::NotFound`] if there is no database and none is to be
    /// created; [`ErrorKind::InvalidArgument`] for options that cannot be. Opened read-only, [`ErrorKind::Conflict`] if
    /// another process changes the database whenever it is read: try again.
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        options.check()?;
        let directory = directory.as_ref();
        check_restored(&*options.disk, directory)?;
        let inner = if options.read_only { follow::open(directory, options)? } else { recover(directory, options)? };
        let database = Self::start(inner)?;
        database.threads.start_expiry()?;
        Ok(database)
    }

    /// Opens, for writing, a database that is being restored. Nothing expires in it: sequence numbers are those of the
    /// log, and rows what they were.
    pub(crate) fn open_unfinished(directory: &Path, options: Options) -> Result<Self> {
        options.check()?;
        Self::start(recover(directory, options)?)
    }

    fn start(inner: Inner) -> Result<Self> {
        let inner = Arc::new(inner);
        let threads = Arc::new(Threads::start(&inner)?);
        inner.wake_background();
        Ok(Self { inner, threads })
    }

    /// Creates a key-value table: keys and values are byte strings. Durable when it returns, as is everything committed
    /// before. Writers wait meanwhile.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there is a table of this name; if the name does not have 1 to 255 bytes, or
    /// has a slash, NUL or line feed; if the options cannot be, or are for typed tables. [`ErrorKind::Unsupported`] if
    /// the merge operator is not among [`Options::merge_operators`]. After an error that latches, the table may be
    /// there when the database is opened again. See [`Database`] for the others.
    pub fn create_table(&self, name: &str, options: TableOptions) -> Result<Table> {
        self.inner.create_table(name, TableDefinition { schema: None, options, index: None, views: ViewSet::default() })
    }

    /// Creates a table of typed columns with a primary key. Durability and waiting are those of
    /// [`Database::create_table`]. If the options name no layout, [`TableOptions::layout`] says which it gets. An
    /// `augment` among its transformers is an index, which is created right after: the table has it when this returns,
    /// and may be without it after a crash meanwhile.
    ///
    /// # Errors
    /// As [`Database::create_table`] and, of an augment, [`Database::create_index`].
    /// [`ErrorKind::InvalidArgument`] also for a merge operator, and for a layout whose level 0 is not the table's own
    /// rows; [`ErrorKind::Unsupported`] also for a transformer that is not registered, a format that the table's rows
    /// cannot be converted to, or a column with a default where rows are not packed. Of [`TableOptions::expiry`] those
    /// of [`Database::set_expiry`].
    pub fn create_typed_table(&self, name: &str, schema: Schema, options: TableOptions) -> Result<Table> {
        if options.merge_operator.is_some() {
            return Err(Error::invalid("merge operators are for key-value tables; typed tables have patches"));
        }
        let (options, indexes) = split_augments(options, &schema)?;
        let definition = TableDefinition { schema: Some(schema), options, index: None, views: ViewSet::default() };
        let table = self.inner.create_table(name, definition)?;
        let refused = indexes.iter().find_map(|index| self.create_index(&table, index).err());
        if let Some(refused) = refused {
            self.inner.drop_table(name)?;
            return Err(refused);
        }
        self.threads.start_expiry()?;
        Ok(table)
    }

    /// A handle to the table with this name; [`ErrorKind::NotFound`] if there is none.
    pub fn table(&self, name: &str) -> Result<Table> {
        let shared = self.inner.core.lock().tables.named(name).cloned();
        match shared {
            Some(shared) => Ok(Table { shared, database: self.inner.clone() }),
            None => Err(Error::new(ErrorKind::NotFound, format!("there is no table {name}"))),
        }
    }

    /// The names of all tables, in order of creation; a table whose columns changed comes last.
    pub fn table_names(&self) -> Vec<String> {
        let core = self.inner.core.lock();
        core.tables.values().filter(|table| table.index.is_none()).map(|table| table.name.clone()).collect()
    }

    /// Drops a table with all its rows, indexes and views. Durable when it returns, as is everything committed before.
    /// Writers wait meanwhile.
    ///
    /// Iterators and scans already open go on. Any other read through a handle fails with [`ErrorKind::NotFound`] from
    /// now on, at older snapshots too, and so does a write. Files are removed when nobody reads them any more.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no table of this name. See [`Database`] for the others.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.inner.drop_table(name)
    }

    /// Changes a typed table's layout. Durable when it returns. Files stay as they are: compactions write what the new
    /// layout says, run by run, and reads are the same all the while. It waits for no compaction and holds no writer
    /// up.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if level 0 is not the table's own rows, or the table is a key-value table;
    /// [`ErrorKind::Unsupported`] for a format that the table's rows cannot be converted to, or if a transformer of the
    /// table maps values. See [`Database`] for the others.
    pub fn set_layout(&self, table: &Table, layout: Layout) -> Result<()> {
        self.inner.check_own(table)?;
        self.inner.change_layout(&table.shared, layout, None).map(drop)
    }

    /// Commits a batch: all of it or nothing, at consecutive sequence numbers, of which the last is returned. For an
    /// empty batch that is the last one committed before.
    ///
    /// When it returns, the batch is as durable as was asked ([`Durability`]), as is everything committed before it,
    /// and every read from now on sees it. No read sees it before it is that durable.
    ///
    /// It may wait: for other writers and their syncs; for a flush, where memtables take [`Options::memory_budget`];
    /// where compaction is behind, for that ([`Options::slowdown_level0_runs`], [`Options::slowdown_debt_bytes`]). In
    /// [`crate::Background::Manual`] it runs these jobs itself.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for what [`WriteBatch`] says, or for a row that an index cannot hold;
    /// [`ErrorKind::Duplicate`] if another row has the values of a new one in a unique index. See [`Database`] for the
    /// others. After any error no read sees anything of the batch. After an error that latches it may turn out to be
    /// there when the database is opened again.
    pub fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<SequenceNumber> {
        self.inner.write(batch, durability)
    }

    /// Makes everything written so far, whatever its durability, survive power loss. Writers wait meanwhile.
    ///
    /// # Errors
    /// See [`Database`]; a failed sync latches, and is never tried again.
    pub fn sync(&self) -> Result<()> {
        self.inner.sync_all()
    }

    /// The error that made the database read-only, if one did. Reads go on; to write, open it again.
    /// [`crate::events::Event::ReadOnly`] tells when.
    pub fn failure(&self) -> Option<Error> {
        self.inner.failure.lock().as_ref().map(Error::duplicate)
    }

    /// The present state, kept readable until the handle's last clone is dropped. Never fails, waits for no writer, and
    /// is not kept beyond the process. O(log snapshots).
    pub fn snapshot(&self) -> Snapshot {
        self.inner.take_snapshot()
    }

    /// The newest sequence number that reads see.
    pub fn last_sequence(&self) -> SequenceNumber {
        self.inner.visible.load(Ordering::Acquire)
    }

    /// Writes all memtables to level 0 and returns when the files are visible. Everything committed before the call is
    /// then durable, whatever durability it was written with. Waits for the flushes under way; in
    /// [`crate::Background::Manual`] it runs the jobs itself.
    ///
    /// # Errors
    /// See [`Database`]. On a full disk, or for want of descriptors, rows stay in memory and in the log, and the flush
    /// is tried again.
    pub fn flush(&self) -> Result<()> {
        self.inner.flush_all()
    }

    /// Runs the most urgent background job in this thread; `false` if there is none, or if the database was opened
    /// read-only. In [`crate::Background::Manual`] jobs run here, and in calls that wait for them, alone.
    ///
    /// # Errors
    /// That of the job, which latches unless the disk is full or descriptors are wanting; of a pass over expired rows,
    /// damage alone does. See [`Database`] for the others.
    pub fn step(&self) -> Result<bool> {
        Ok(self.inner.step()? || self.inner.expire_due()?)
    }

    /// Returns when no job is left to do: flushes, compactions, indexes to be built, files to be removed, expired rows
    /// to be deleted where that is due ([`Database::set_expiry`]). Active memtables stay as they are
    /// ([`Database::flush`]), and so do files that readers hold. In [`crate::Background::Manual`] it runs the jobs
    /// itself; with threads it also has them do what they would put off. Returns at once if the database was opened
    /// read-only. While others write it may wait for long.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] or [`ErrorKind::TooManyOpenFiles`] if a job meets that, without waiting for its next try.
    /// See [`Database`] for the others.
    pub fn wait_idle(&self) -> Result<()> {
        self.inner.wait_idle()
    }

    /// Merges all of a table's files into one run, flushing it first; deletes and versions that no snapshot needs go.
    /// Its indexes are compacted after it, as far as they are built.
    ///
    /// It flushes all tables, waits for compactions that hold the table's files, and runs in this thread. Reads and
    /// writes go on meanwhile. Durable when it returns.
    ///
    /// # Errors
    /// See [`Database`]. After an error the table holds the same rows, and parts of it may have been compacted.
    pub fn compact(&self, table: &Table) -> Result<()> {
        self.compact_range(table, None, None)
    }

    /// As [`Database::compact`], for the files that overlap `[lower, upper)`; `None` is unbounded. Indexes are
    /// compacted only if both are `None`.
    pub fn compact_range(&self, table: &Table, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<()> {
        self.inner.check_own(table)?;
        table.shared.check_alive()?;
        self.flush()?;
        let whole = KeyRange::hull(table.shared.state.load().tree.files().map(|(_, file)| &*file.meta));
        let Some(mut range) = whole else { return Ok(()) };
        if let Some(lower) = lower {
            range.smallest = range.smallest.max(lower.to_vec());
        }
        if upper.is_some_and(|upper| upper <= range.smallest.as_slice()) || range.ends_before(&range.smallest) {
            return Ok(());
        }
        if let Some(upper) = upper
            && range.contains(upper)
        {
            range = KeyRange::exclusive(range.smallest, upper);
        }
        self.inner.caught(|| {
            self.inner.compact_range(&table.shared, Some(&range))?;
            if lower.is_some() || upper.is_some() {
                return Ok(());
            }
            let indexes = table.shared.state.load().indexes.clone();
            let mut built = indexes.iter().filter(|index| index.table.may_be_compacted());
            built.try_for_each(|index| match self.inner.compact_range(&index.table, None) {
                // An index that was dropped meanwhile is nothing that the table lacks.
                Err(_) if index.table.check_alive().is_err() => Ok(()),
                result => result,
            })
        })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.inner.directory
    }

    /// Stops background work, persists the log and releases the lock on the directory. Everything committed is durable
    /// when it returns without an error. Memtables are not flushed: the log holds them, and the next opening reads it.
    ///
    /// It waits for the jobs that background threads are at, a long compaction included. From now on every change fails
    /// with [`ErrorKind::Closed`], through other clones and through tables; reads through handles that are left go on.
    /// To close a second clone waits until the first is closed, and does nothing else. A bulk load or
    /// [`Database::compact`] that is still running in another thread keeps the directory locked until it ends.
    ///
    /// # Errors
    /// That of the log's sync; [`ErrorKind::ReadOnly`] if an error had latched the database. It is closed all the same,
    /// and what was not durable before may be lost.
    pub fn close(self) -> Result<()> {
        self.threads.stop();
        self.inner.close()
    }
}
