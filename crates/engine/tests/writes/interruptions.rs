//! Flushes in the middle of compactions, and indexes whose building others go before. Jobs are run by hand, and a
//! generation is written full from within a compaction, when it has begun.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use mycelium_base::FileKind;
use mycelium_encoding::{Datum, DatumRef, Schema};
use mycelium_engine::events::{Event, EventListener};
use mycelium_engine::{
    Background, Database, Durability, ErrorKind, Index, IndexOptions, LeveledOptions, Options, Policy, Table, TableId,
    TableOptions,
};
use mycelium_vfs::{CrashDraw, Effect, Fault, FaultDisk, MemoryDisk, OperationKind};

use crate::common::{assert_verified, key, scan, small_options, small_table};

const CITIES: [&str; 3] = ["Graz", "Linz", "Wien"];
/// Rows in files before the compaction of the index is due.
const ROWS: i64 = 40;
/// As many generations, for level 0 to be due.
const FLUSHES: i64 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Happened {
    CompactionBegan,
    FlushBegan,
    FlushEnded,
    CompactionEnded,
    Failed,
}

type Action = Box<dyn FnOnce() + Send>;

/// Notes what happens once the compaction of an index has begun, and does something then, and when a flush begins.
#[derive(Default)]
struct Observer {
    /// The table that is no index.
    base: OnceLock<TableId>,
    in_compaction: Mutex<Option<Action>>,
    in_flush: Mutex<Option<Action>>,
    is_sealed: AtomicBool,
    happened: Mutex<Vec<Happened>>,
}

impl EventListener for Observer {
    fn on_event(&self, event: &Event) {
        match event {
            Event::CompactionBegin { table, .. } if self.base.get().is_some_and(|base| base != table) => {
                let Some(action) = self.in_compaction.lock().unwrap().take() else { return };
                self.happened.lock().unwrap().push(Happened::CompactionBegan);
                action();
            }
            Event::LogSwitched { .. } => self.is_sealed.store(true, Ordering::Relaxed),
            Event::FlushBegin { .. } => {
                self.note(Happened::FlushBegan);
                let action = self.in_flush.lock().unwrap().take();
                if let Some(action) = action {
                    action();
                }
            }
            Event::FlushEnd { .. } => self.note(Happened::FlushEnded),
            Event::CompactionEnd { .. } => self.note(Happened::CompactionEnded),
            Event::BackgroundError { .. } => self.note(Happened::Failed),
            _ => {}
        }
    }
}

impl Observer {
    fn note(&self, what: Happened) {
        let mut happened = self.happened.lock().unwrap();
        if !happened.is_empty() {
            happened.push(what);
        }
    }

    fn happened(&self) -> Vec<Happened> {
        self.happened.lock().unwrap().clone()
    }
}

fn by_city() -> IndexOptions {
    IndexOptions { name: "by_city".into(), on: vec!["city".into()], ..IndexOptions::default() }
}

fn put(table: &Table, id: i64) {
    let note = "n".repeat(1000);
    let row = [DatumRef::Int64(id), DatumRef::Utf8(CITIES[id as usize % 3]), DatumRef::Utf8(&note)];
    table.insert_row(&row, Durability::Os).unwrap();
}

/// The ids of all rows, as the index knows them.
fn ids(index: &Index) -> Vec<i64> {
    let mut ids = Vec::new();
    for city in CITIES {
        for row in index.get(&[DatumRef::Utf8(city)], Some(&[0]), None).unwrap() {
            match row.unwrap().values[..] {
                [Datum::Int64(id)] => ids.push(id),
                ref other => panic!("{other:?}"),
            }
        }
    }
    ids.sort_unstable();
    ids
}

/// A database in which the compaction of an index is due, among others.
struct Setup {
    memory: MemoryDisk,
    disk: FaultDisk,
    observer: Arc<Observer>,
    database: Database,
    table: Table,
}

impl Setup {
    fn new() -> Self {
        let memory = MemoryDisk::new();
        let disk = FaultDisk::over_memory(memory.clone());
        let observer = Arc::<Observer>::default();
        let options =
            Options { disk: Arc::new(disk.clone()), listener: Some(observer.clone()), ..small_options(&memory) };
        let database = Database::open("db", options).unwrap();
        let schema = Schema::parse("id int64 not null, city utf8, note utf8, primary key (id)").unwrap();
        let table = database.create_typed_table("people", schema, small_table()).unwrap();
        observer.base.set(table.id()).unwrap();
        database.create_index(&table, &by_city()).unwrap();
        for flush in 0..FLUSHES {
            (0..ROWS).filter(|id| id % FLUSHES == flush).for_each(|id| put(&table, id));
            database.flush().unwrap();
        }
        Self { memory, disk, observer, database, table }
    }

    /// What is to happen once the compaction of the index has begun, when writers have filled a generation.
    fn in_compaction(&self, then: impl FnOnce() + Send + 'static) {
        let (observer, table) = (self.observer.clone(), self.table.clone());
        let action = move || {
            observer.is_sealed.store(false, Ordering::Relaxed);
            for id in ROWS.. {
                if observer.is_sealed.load(Ordering::Relaxed) {
                    break;
                }
                put(&table, id);
            }
            then();
        };
        *self.observer.in_compaction.lock().unwrap() = Some(Box::new(action));
    }

    fn in_flush(&self, action: impl FnOnce() + Send + 'static) {
        *self.observer.in_flush.lock().unwrap() = Some(Box::new(action));
    }

    /// Runs jobs until that of the index is over; its outcome.
    fn compact_index(&self) -> mycelium_engine::Result<bool> {
        loop {
            let outcome = self.database.step();
            if outcome.is_err() || !self.observer.happened().is_empty() {
                return outcome;
            }
            assert!(outcome.unwrap(), "the compaction of the index was not due");
        }
    }

    /// After whatever happened, what was acknowledged is there, in the table and in its index.
    fn check_reopened(self) {
        let Self { memory, disk, database, table, .. } = self;
        let rows = scan(&table).len();
        drop((table, database));
        disk.heal();
        let database = Database::open("db", small_options(&memory)).unwrap();
        let table = database.table("people").unwrap();
        assert_eq!(scan(&table).len(), rows);
        if let Ok(index) = table.index("by_city") {
            database.wait_idle().unwrap();
            assert!(ids(&index).into_iter().eq(0..rows as i64));
        }
        assert_verified(&database);
    }
}

#[test]
fn a_full_memtable_waited_for_the_compaction_of_an_index_to_end() {
    use Happened::{CompactionBegan, CompactionEnded, FlushBegan, FlushEnded};
    let setup = Setup::new();
    setup.in_compaction(|| ());
    let flushes = setup.database.metrics().flushes;
    assert!(setup.compact_index().unwrap());
    assert_eq!(setup.observer.happened(), [CompactionBegan, FlushBegan, FlushEnded, CompactionEnded]);
    assert_eq!(setup.database.metrics().flushes, flushes + 1);
    setup.check_reopened();
}

#[test]
fn a_flush_that_failed_in_a_compaction_makes_the_database_read_only() {
    use Happened::{CompactionBegan, Failed, FlushBegan};
    let setup = Setup::new();
    setup.in_compaction(|| ());
    let disk = setup.disk.clone();
    setup.in_flush(move || disk.schedule(Fault::new(OperationKind::Create, Effect::Io).on(FileKind::Sst)));
    assert!(setup.compact_index().is_err());
    // The one failed, and ended the other.
    assert_eq!(setup.observer.happened(), [CompactionBegan, FlushBegan, Failed, Failed]);
    let failure = setup.database.failure().unwrap();
    assert_eq!(failure.kind(), ErrorKind::Io);
    assert_eq!(setup.database.step().unwrap_err().kind(), ErrorKind::ReadOnly);
    setup.check_reopened();
}

/// The compaction was in vain, which is no failure; that of the flush went with it, and writers waited for ever.
#[test]
fn a_flush_that_failed_in_the_compaction_of_a_dropped_index_was_forgotten() {
    let setup = Setup::new();
    let (database, table) = (setup.database.clone(), setup.table.clone());
    setup.in_compaction(move || database.drop_index(&table, "by_city").unwrap());
    let disk = setup.disk.clone();
    setup.in_flush(move || disk.schedule(Fault::new(OperationKind::Create, Effect::Io).on(FileKind::Sst)));
    assert!(setup.compact_index().unwrap());
    assert_eq!(setup.database.failure().unwrap().kind(), ErrorKind::Io);
    assert_eq!(setup.database.flush().unwrap_err().kind(), ErrorKind::ReadOnly);
    setup.check_reopened();
}

#[test]
fn a_flush_that_panicked_in_a_compaction_makes_the_database_read_only() {
    let setup = Setup::new();
    setup.in_compaction(|| ());
    setup.in_flush(|| panic!("a listener of the user"));
    assert!(setup.compact_index().is_err());
    assert!(setup.database.failure().unwrap().to_string().contains("panicked"));
    assert_eq!(setup.database.wait_idle().unwrap_err().kind(), ErrorKind::ReadOnly);
    setup.check_reopened();
}

#[test]
fn a_flush_that_found_the_disk_full_in_a_compaction_is_tried_again() {
    let setup = Setup::new();
    setup.in_compaction(|| ());
    let disk = setup.disk.clone();
    setup.in_flush(move || disk.schedule(Fault::new(OperationKind::Create, Effect::NoSpace).on(FileKind::Sst)));
    assert_eq!(setup.compact_index().unwrap_err().kind(), ErrorKind::NoSpace);
    assert!(setup.database.failure().is_none());
    let flushes = setup.database.metrics().flushes;
    setup.database.wait_idle().unwrap();
    assert_eq!(setup.database.metrics().flushes, flushes + 1);
    setup.check_reopened();
}

/// The compaction finds the disk full itself, right after the flush.
#[test]
fn a_compaction_that_failed_after_a_flush_in_it_did_not_take_that_along() {
    let setup = Setup::new();
    setup.in_compaction(|| ());
    let disk = setup.disk.clone();
    // What the flush syncs comes first: a file of each table.
    setup.in_flush(move || disk.schedule(Fault::new(OperationKind::Sync, Effect::NoSpace).on(FileKind::Sst).nth(3)));
    let flushes = setup.database.metrics().flushes;
    assert_eq!(setup.compact_index().unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(setup.database.metrics().flushes, flushes + 1);
    setup.database.wait_idle().unwrap();
    setup.check_reopened();
}

#[test]
fn a_crash_at_any_moment_of_a_flush_in_a_compaction_loses_nothing() {
    let setup = Setup::new();
    let images = Arc::new(Mutex::new(Vec::new()));
    let (kept, memory) = (images.clone(), setup.memory.clone());
    setup.in_compaction(move || {
        let hooked = memory.clone();
        memory.on_operation(move |operation, _| {
            let crash = hooked.crash_image(&CrashDraw::from_seed(operation));
            kept.lock().unwrap().push((hooked.kill_image(), crash));
        });
    });
    assert!(setup.compact_index().unwrap());
    setup.memory.clear_hook();
    let rows = scan(&setup.table).len();
    let images = std::mem::take(&mut *images.lock().unwrap());
    assert!(images.len() > 10, "{} moments", images.len());
    for (killed, crashed) in images {
        for (image, least) in [(killed, rows), (crashed, ROWS as usize)] {
            let database = Database::open("db", small_options(&image)).unwrap();
            let table = database.table("people").unwrap();
            let found = scan(&table).len();
            assert!((least..=rows).contains(&found), "{found} of {rows} rows");
            let index = table.index("by_city").unwrap();
            assert!(ids(&index).into_iter().eq(0..found as i64));
            database.wait_idle().unwrap();
            assert!(ids(&index).into_iter().eq(0..found as i64));
            assert_verified(&database);
        }
    }
}

/// With each flush a compaction was due, and with each compaction the next generation was full.
#[test]
fn an_index_waited_for_ever_where_there_was_always_something_to_compact() {
    let database = Database::open("db", small_options(&MemoryDisk::new())).unwrap();
    let schema = Schema::parse("id int64 not null, city utf8, note utf8, primary key (id)").unwrap();
    let table = database.create_typed_table("people", schema, small_table()).unwrap();
    let policy = Policy::Leveled(LeveledOptions { level0_trigger: 1, ..LeveledOptions::default() });
    let busy = database.create_table("busy", TableOptions { policy, ..small_table() }).unwrap();
    (0..ROWS).for_each(|id| put(&table, id));
    database.flush().unwrap();
    database.wait_idle().unwrap();
    let index = database.create_index(&table, &by_city()).unwrap();
    let before = database.metrics();
    let jobs = || {
        let now = database.metrics();
        now.flushes + now.compactions - before.flushes - before.compactions
    };
    while !index.is_built() {
        let (compactions, is_due) = (database.metrics().compactions, jobs() >= 8);
        assert!(jobs() <= 8, "the ninth job came before the index");
        busy.put(&key(0), &jobs().to_le_bytes(), Durability::Os).unwrap();
        database.flush().unwrap();
        assert_eq!(index.is_built(), is_due, "after {} jobs", jobs());
        // Files that were compacted before are removed first.
        while database.metrics().compactions == compactions {
            assert!(database.step().unwrap());
        }
    }
    assert!(ids(&index).into_iter().eq(0..ROWS));
    assert_verified(&database);
}

/// It interrupts compactions of the table, too, and the building of the index.
#[test]
fn a_single_thread_loses_no_job_that_it_interrupts() {
    let background = Background::Threads(1);
    let database = Database::open("db", Options { background, ..small_options(&MemoryDisk::new()) }).unwrap();
    let schema = Schema::parse("id int64 not null, city utf8, note utf8, primary key (id)").unwrap();
    let table = database.create_typed_table("people", schema, small_table()).unwrap();
    (0..200).for_each(|id| put(&table, id));
    database.flush().unwrap();
    let index = database.create_index(&table, &by_city()).unwrap();
    (200..600).for_each(|id| put(&table, id));
    database.flush().unwrap();
    database.wait_idle().unwrap();
    assert!(index.is_built());
    assert!(ids(&index).into_iter().eq(0..600));
    assert_verified(&database);
}
