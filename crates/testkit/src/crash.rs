//! Crashes: a workload, an image of its disk before each operation, and what must be found when the image is opened.
//!
//! 1. A workload is run once. Before every operation that changes the disk, the disk calls back, and the test draws
//!    images as a power loss or the death of the process at that moment would leave them.
//! 2. Every image is opened by a database of its own and read completely. The rows must be those after some prefix of
//!    the commits that holds every commit acknowledged as durable enough, as [`Model::check_prefix_rule`] says.
//! 3. After that one opening the directory holds exactly what the database needs: the files that its levels name, one
//!    log segment, one manifest.
//! 4. Backups that are there verify and are restored: each to the rows that there were when one was begun, and as many
//!    as were acknowledged.
//! 5. Where the log is archived, the database is restored to a drawn moment between its oldest backup and its end: to
//!    the rows that there were then, or as far as what the log does not tell, a bulk load, a table that was made later.
//! 6. Now and then every file is verified, and the recovered database goes on: it takes a batch, is closed, and opened
//!    again.
//!
//! A batch that was being written when the machine died may be there or not, but never in part. So may what a pass
//! deletes of rows that have expired.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mycelium_base::{Error, ErrorKind, FileKind, Result};
use mycelium_engine::{Snapshot, TableMetrics};
use mycelium_vfs::{Disk, MemoryDisk, Operation};
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::configurations::{Configuration, configurations};
use crate::engine_store::{DIRECTORY, EngineStore};
use crate::model::{CrashKind, Durability, Model, State, TransactionStep, Write, WriteKind, surviving_writes};
use crate::operations::{Action, HistoryOptions, KeyShape, SnapshotId, Weights, generate};
use crate::scale::grouped;
use crate::store::Store;
use crate::tables::{TableKind, changes_of};

/// A database's configuration and tables.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How the engine is set up.
    pub configuration: Configuration,
    /// The kinds of the tables.
    pub tables: Vec<TableKind>,
}

/// Actions that change the database, on a disk in memory.
#[derive(Clone, Debug)]
pub struct Workload {
    /// For messages.
    pub seed: u64,
    /// Configuration and tables.
    pub setup: Setup,
    /// What is done.
    pub actions: Vec<Action>,
}

/// The moment before an operation of a workload.
pub struct CrashPoint<'a> {
    /// The seed of the workload.
    pub seed: u64,
    /// The operation's index, from 1.
    pub index: u64,
    /// The operation about to be performed.
    pub operation: &'a Operation<'a>,
    /// The disk.
    pub disk: &'a MemoryDisk,
    /// All commits so far, the one in flight included.
    pub model: &'a Model,
    /// Configuration and tables.
    pub setup: &'a Setup,
}

impl fmt::Display for CrashPoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}, {}, before operation {}: {}",
            self.seed, self.setup.configuration.name, self.index, self.operation
        )
    }
}

impl Workload {
    /// A short workload of tiny tables: batches across tables with every durability, range deletes, patches, merge
    /// operands, transactions, bulk loads, tables dropped and created again, flushes, compactions, background jobs,
    /// snapshots and clean restarts. The configuration is drawn too; where its columns change there are backups, too.
    pub fn small(seed: u64, actions: usize) -> Self {
        let all = configurations();
        Self::drawn(seed, actions, all[seed as usize % all.len()].clone())
    }

    /// The same with an archive of the log: more backups, and less of what the log does not tell. Rows expire unless
    /// they are mapped.
    pub fn archived(seed: u64, actions: usize) -> Self {
        let all = configurations();
        let drawn = all[seed as usize % all.len()].clone();
        let expiring = drawn.takes_transactions();
        Self::drawn(seed, actions, Configuration { archiving: true, expiring, ..drawn })
    }

    fn drawn(seed: u64, actions: usize, drawn: Configuration) -> Self {
        let configuration = Configuration {
            memtable_bytes: if seed.is_multiple_of(2) { 4 << 10 } else { 12 << 10 },
            cache_bytes: drawn.cache_bytes.min(64 << 10),
            file_bytes: 2 << 10,
            block_bytes: drawn.block_bytes.min(512),
            ..drawn
        };
        let typed = if configuration.changing_columns { TableKind::Growing } else { TableKind::Typed };
        let tables = match seed % 2 {
            0 => vec![TableKind::KeyValue, TableKind::Merging, typed],
            _ => vec![typed, TableKind::MergingApart],
        };
        let (change_columns, checkpoint) = if configuration.changing_columns { (20, 12) } else { (0, 0) };
        let (set_expiry, expire) = if configuration.expiring { (8, 24) } else { (0, 0) };
        let weights = Weights {
            get: 0,
            scan: 0,
            walk: 0,
            checkpoint,
            change_columns,
            set_expiry,
            expire,
            verify: 0,
            take_snapshot: 10,
            release_snapshot: 10,
            flush: 20,
            compact: 6,
            step: 60,
            reopen: 6,
            delete_range: 6,
            transact: if configuration.takes_transactions() { 100 } else { 0 },
            ingest: 12,
            recreate: 6,
            ..Weights::default()
        };
        let weights = match configuration.archiving {
            true => Weights { checkpoint: 20, ingest: 2, recreate: 1, change_columns: change_columns / 8, ..weights },
            false => weights,
        };
        let actions = generate(&HistoryOptions {
            seed,
            actions,
            tables: tables.clone(),
            keys: 30,
            shapes: vec![KeyShape::Short, KeyShape::SharedPrefix, KeyShape::Nuls],
            value_len: 0..=60,
            large_value_len: 5_000,
            batch_len: 1..=5,
            max_snapshots: 3,
            weights,
            ..HistoryOptions::default()
        });
        Self { seed, setup: Setup { configuration, tables }, actions }
    }

    /// Runs the workload, calling `visit` before every operation that changes the disk. Returns the number of
    /// operations.
    ///
    /// # Errors
    /// The first error of the database: there are no faults, so there should be none.
    pub fn run(&self, visit: impl Fn(&CrashPoint<'_>) + Send + Sync + 'static) -> Result<u64> {
        let disk = MemoryDisk::new();
        let model = Arc::new(Mutex::new(self.model()));
        let (seed, setup) = (self.seed, self.setup.clone());
        let (hooked, shared) = (disk.clone(), model.clone());
        disk.on_operation(move |index, operation| {
            let model = shared.lock();
            visit(&CrashPoint { seed, index, operation, disk: &hooked, model: &model, setup: &setup });
        });
        let result = self.run_on(Arc::new(disk.clone()), &model);
        disk.clear_hook();
        result.map(|()| disk.operations())
    }

    /// The tables before anything was done.
    pub(crate) fn model(&self) -> Model {
        Model::new(self.setup.tables.iter().map(|kind| kind.rules()))
    }

    /// All of it, as the model follows.
    pub(crate) fn run_on(&self, disk: Arc<dyn Disk>, model: &Mutex<Model>) -> Result<()> {
        let Setup { configuration, tables } = &self.setup;
        let mut store = EngineStore::create(disk, configuration, tables)?;
        let mut snapshots = BTreeMap::new();
        for action in &self.actions {
            apply(&mut store, model, &mut snapshots, action)?;
        }
        Ok(())
    }
}

/// Does one action and tells the model what became durable by it. The model is not locked while the database works.
pub(crate) fn apply(
    store: &mut EngineStore,
    model: &Mutex<Model>,
    snapshots: &mut BTreeMap<SnapshotId, Snapshot>,
    action: &Action,
) -> Result<()> {
    let persisted = |()| model.lock().mark_durable(CrashKind::PowerLoss);
    match action {
        Action::Write(batch, durability) => {
            model.lock().begin(batch, *durability);
            store.write(batch, *durability)?;
            model.lock().acknowledge();
        }
        Action::Transact { steps, commit } => transact(store, model, steps, *commit)?,
        Action::Ingest { table, rows } => {
            model.lock().begin_ingest(*table, rows);
            store.ingest(*table, rows)?;
            model.lock().acknowledge();
        }
        Action::Recreate(table) => {
            model.lock().begin_drop(*table);
            store.drop_table(*table)?;
            model.lock().acknowledge();
            store.create_table(*table)?;
        }
        Action::ChangeColumns(table) => change_columns(store, model, *table)?,
        Action::RenameColumn(table, column) => store.rename_column(*table, *column).map(persisted)?,
        Action::SetExpiry { table, age } => store.set_expiry(*table, *age)?,
        Action::Expire { table, now } => expire(store, model, *table, *now)?,
        Action::Checkpoint => {
            model.lock().begin_backup();
            store.back_up()?;
            model.lock().acknowledge_backup();
        }
        Action::Flush => store.flush().map(persisted)?,
        Action::Compact(table) => store.compact(*table).map(persisted)?,
        Action::CompactPart { table, lower, upper } => {
            store.compact_part(*table, lower.as_deref(), upper.as_deref()).map(persisted)?;
        }
        Action::Reopen => {
            snapshots.clear();
            store.reopen().map(persisted)?;
        }
        Action::Step => store.step()?,
        Action::TakeSnapshot(id) => {
            let snapshot = store.snapshot();
            snapshots.insert(*id, snapshot);
        }
        Action::ReleaseSnapshot(id) => drop(snapshots.remove(id)),
        Action::Get { .. } | Action::Scan { .. } | Action::Walk { .. } | Action::Verify => {}
        // Nothing of this is drawn for workloads.
        Action::Hold { .. } | Action::GoOn { .. } | Action::LetGo(_) | Action::Look | Action::Salvage => {}
        Action::Begin { .. } | Action::Within { .. } | Action::End { .. } => {}
    }
    let sequence = store.database()?.last_sequence();
    model.lock().note_moment(sequence);
    Ok(())
}

/// Runs a transaction, which commits nothing if it is rolled back or wrote nothing.
fn transact(
    store: &mut EngineStore,
    model: &Mutex<Model>,
    steps: &[TransactionStep],
    commit: Option<Durability>,
) -> Result<()> {
    let writes = surviving_writes(steps);
    let durability = commit.filter(|_| !writes.is_empty());
    if let Some(durability) = durability {
        model.lock().begin(&writes, durability);
    }
    store.transact(steps, &[], commit)?;
    if durability.is_some() {
        model.lock().acknowledge();
    }
    Ok(())
}

/// Makes the next change of a table's columns, unless its column groups stand against it.
fn change_columns(store: &mut EngineStore, model: &Mutex<Model>, table: usize) -> Result<()> {
    if model.lock().begin_change(table) {
        match store.change_columns(table)? {
            true => model.lock().acknowledge(),
            false => model.lock().withdraw_change(table),
        }
    }
    Ok(())
}

/// Makes a pass over a table, by the age that the database has: one that failed to be set may be it or not.
fn expire(store: &mut EngineStore, model: &Mutex<Model>, table: usize, now: Duration) -> Result<()> {
    let age = store.age(table)?;
    let pass = {
        let mut model = model.lock();
        model.set_age(table, age);
        model.pass(table, now, |_| false)
    };
    let Some(pass) = pass else { return Ok(()) };
    let deletes = !pass.writes.is_empty();
    if deletes {
        model.lock().begin(&pass.writes, Durability::Os);
    }
    let deleted = store.expire(table, now)?;
    if deletes {
        model.lock().acknowledge();
    }
    match deleted == pass.rows {
        true => Ok(()),
        false => Err(Error::invalid(format!("{} rows have expired, and {deleted} were deleted", pass.rows))),
    }
}

/// What was found on the images of a test. Shared by its threads.
#[derive(Debug, Default)]
pub struct Tally {
    /// Images opened.
    pub images: AtomicU64,
    /// Images that could not be opened and read.
    pub unopened: AtomicU64,
    /// Images whose rows no allowed prefix explains.
    pub lost: AtomicU64,
    /// Images after whose opening the directory held too much or too little.
    pub untidy: AtomicU64,
    /// Restores to a moment.
    pub restores: AtomicU64,
    failures: Mutex<Vec<String>>,
}

/// Messages kept; the counts go on.
const MAX_FAILURES: usize = 3;

impl Tally {
    /// Opens an image drawn at `point` and checks all that must hold. Gives back the rows it found.
    pub fn check(
        &self,
        point: &CrashPoint<'_>,
        image: &MemoryDisk,
        crash: CrashKind,
        how: &dyn fmt::Debug,
    ) -> Option<State> {
        self.check_image(point, (point.model, point.setup), image, crash, how)
    }

    /// The same for an image drawn at any `moment`, by the model and setup of that moment.
    pub fn check_image(
        &self,
        moment: &dyn fmt::Display,
        (model, setup): (&Model, &Setup),
        image: &MemoryDisk,
        crash: CrashKind,
        how: &dyn fmt::Debug,
    ) -> Option<State> {
        let number = self.images.fetch_add(1, Ordering::Relaxed);
        let mut store = match open_and_read(image, setup) {
            Ok((store, state)) => (store, state),
            Err(error) => {
                self.fail(&self.unopened, format!("{moment}, {crash:?} {how:?}: cannot open: {error:?}"));
                return None;
            }
        };
        if let Err(violation) = model.check_prefix_rule(&store.1, crash) {
            self.fail(&self.lost, format!("{moment}, {crash:?} {how:?}: {violation}"));
        }
        if let Err(what) = check_directory(image, &store.0) {
            self.fail(&self.untidy, format!("{moment}, {crash:?} {how:?}: {what}"));
        }
        if !number.is_multiple_of(2)
            && let Err(what) = check_backups(&store.0, model)
        {
            self.fail(&self.lost, format!("{moment}, {crash:?} {how:?}: {what}"));
        }
        if number.is_multiple_of(8)
            && let Err(what) = go_on(&mut store.0, &store.1)
        {
            self.fail(&self.lost, format!("{moment}, {crash:?} {how:?}: after recovery: {what}"));
        }
        Some(store.1)
    }

    /// Opens an image of a database whose log is archived, and restores that to a moment that follows from `draw`.
    pub fn check_restore(&self, point: &CrashPoint<'_>, image: &MemoryDisk, crash: CrashKind, draw: u64) {
        self.images.fetch_add(1, Ordering::Relaxed);
        match restore(point, image, crash, draw) {
            Ok(restores) => {
                self.restores.fetch_add(restores, Ordering::Relaxed);
            }
            Err(what) => self.fail(&self.lost, format!("{point}, {crash:?}, restored by {draw}: {what}")),
        }
    }

    /// Counts a failure and keeps its message.
    pub fn fail(&self, counter: &AtomicU64, message: String) {
        counter.fetch_add(1, Ordering::Relaxed);
        let mut failures = self.failures.lock();
        if failures.len() < MAX_FAILURES {
            failures.push(message);
        }
    }

    /// Prints the counts.
    ///
    /// # Panics
    /// If there was any failure.
    pub fn finish(&self, what: &str) {
        let count = |counter: &AtomicU64| grouped(counter.load(Ordering::Relaxed));
        println!(
            "{what}: {}, lost: {}, unopened: {}, untidy: {}",
            count(&self.images),
            count(&self.lost),
            count(&self.unopened),
            count(&self.untidy)
        );
        let failures = self.failures.lock();
        assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    }
}

/// Opens the database on an image and reads every row.
pub fn open_and_read(image: &MemoryDisk, setup: &Setup) -> Result<(EngineStore, State)> {
    let store = EngineStore::open(Arc::new(image.clone()), &setup.configuration, &setup.tables)?;
    let state = store.state()?;
    Ok((store, state))
}

/// Compares the directory of an open, idle database with what it needs.
///
/// # Errors
/// What is there beyond it, or missing.
pub fn check_directory(disk: &MemoryDisk, store: &EngineStore) -> std::result::Result<(), String> {
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    let mut paths = disk.paths();
    paths.retain(|path| path.starts_with(DIRECTORY));
    for path in &paths {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // Traces are advice: there may be some, and need not.
        if FileKind::parse(name).is_some_and(|(kind, _)| kind == FileKind::Trace) {
            continue;
        }
        let kind = FileKind::parse(name).map_or_else(|| name.to_owned(), |(kind, _)| format!("{kind:?}"));
        *found.entry(kind).or_default() += 1;
    }
    let metrics = store.database().map_err(|error| error.to_string())?.metrics();
    let in_levels = |table: &TableMetrics| table.levels.iter().map(|level| level.files).sum::<usize>();
    let named = metrics.tables.iter().map(|table| (in_levels(table) + table.buffer.files) as u64).sum();
    let expected = [
        (FileKind::Sst, named),
        (FileKind::Wal, 1),
        (FileKind::Manifest, 1),
        (FileKind::Current, 1),
        (FileKind::Lock, 1),
    ];
    let expected: BTreeMap<String, u64> = expected
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(kind, count)| (format!("{kind:?}"), count))
        .collect();
    if found == expected { Ok(()) } else { Err(format!("expected files {expected:?}, found {found:?}: {paths:?}")) }
}

fn check_backups(store: &EngineStore, model: &Model) -> std::result::Result<(), String> {
    let states = store.states_of_backups().map_err(|error| format!("a backup: {error:?}"))?;
    match model.explains_backups(&states) {
        true => Ok(()),
        false => Err(format!("the {} backups that are there are not those that were made", states.len())),
    }
}

/// How many restores were made: none if there is no backup yet.
fn restore(
    point: &CrashPoint<'_>,
    image: &MemoryDisk,
    crash: CrashKind,
    draw: u64,
) -> std::result::Result<u64, String> {
    let failed = |error: Error| format!("{error:?}");
    let (store, state) = open_and_read(image, point.setup).map_err(failed)?;
    point.model.check_prefix_rule(&state, crash).map_err(|violation| violation.to_string())?;
    let Some((oldest, newest)) = store.moments().map_err(failed)? else { return Ok(0) };
    let span = newest.checked_sub(oldest).ok_or("a backup has more than the database")?;
    let until = oldest + draw % (span + 1);
    let (summary, restored) = store.restored_to(until).map_err(failed)?;
    let told = format!("to {until} of {oldest}..={newest}: {summary:?}");
    match &summary.ended_by {
        Some(error) if error.kind() != ErrorKind::Unsupported => return Err(format!("the log has a gap: {told}")),
        None if point.model.has_moment_within(summary.sequence, until) => return Err(format!("it ends early: {told}")),
        _ => {}
    }
    match summary.sequence <= until && point.model.explains_restore(summary.sequence, &restored) {
        true => Ok(1),
        false => Err(format!("other rows than there were: {told}")),
    }
}

/// Writes to a recovered database, closes it and opens it again.
fn go_on(store: &mut EngineStore, recovered: &State) -> std::result::Result<(), String> {
    let failed = |error: mycelium_base::Error| error.to_string();
    store.create_tables().map_err(failed)?;
    let mut expected = recovered.clone();
    let mut rng = SmallRng::seed_from_u64(1);
    let mut batch = Vec::with_capacity(expected.len());
    for (table, (kind, rows)) in store.kinds().iter().zip(&mut expected).enumerate() {
        let (key, row) = (kind.key(b"written after the crash"), kind.random_row(&mut rng, 20));
        let changes = store.table(table).map_err(failed)?.schema().map_or(0, |schema| changes_of(schema));
        rows.insert(key.clone(), kind.fitted(&row, changes));
        batch.push(Write { table, kind: WriteKind::Put(key, row) });
    }
    store.write(&batch, Durability::Os).map_err(failed)?;
    store.reopen().map_err(failed)?;
    let found = store.state().map_err(failed)?;
    if found == expected { Ok(()) } else { Err("a batch written after recovery changed more than its rows".into()) }
}
