//! Writers that compaction cannot keep up with, in a database whose jobs the test runs: nothing may wait for the clock.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mycelium_engine::events::{Event, EventListener, StallCause};
use mycelium_engine::{
    Background, Combiner, Database, Durability, ErrorKind, LeveledOptions, Options, Policy, Result, TableOptions,
    TieredOptions,
};
use mycelium_vfs::MemoryDisk;

use crate::common::{key, scan, small_options, small_table};

#[derive(Default)]
struct Stops {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl EventListener for Stops {
    fn on_event(&self, event: &Event) {
        match event {
            Event::StallBegin { cause: StallCause::Level0Runs, stopped: true } => &self.begun,
            Event::StallEnd { .. } => &self.ended,
            _ => return,
        }
        .fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn slowed_writers_run_jobs_by_hand_and_wait_for_nothing() {
    let disk = MemoryDisk::new();
    // At a byte a second a writer that did wait would never come back.
    let options = Options { slowdown_level0_runs: 2, slowed_bytes_per_second: 1, ..small_options(&disk) };
    let database = Database::open("/db", options).unwrap();
    let policy = Policy::Leveled(LeveledOptions { level0_trigger: 1, ..LeveledOptions::default() });
    let table = database.create_table("t", TableOptions { policy, ..small_table() }).unwrap();
    assert_eq!(database.metrics().slowed_bytes_per_second, None);
    for _ in 0..2 {
        table.put(&key(0), b"value", Durability::Buffered).unwrap();
        database.flush().unwrap();
    }
    let before = database.metrics();
    assert_eq!((before.slowed_bytes_per_second, before.slowdowns, before.compactions), (Some(1), 0, 0));
    // The first slowed write runs the compaction that frees all others.
    for n in 1..50 {
        table.put(&key(n), &[7; 100], Durability::Buffered).unwrap();
    }
    let after = database.metrics();
    assert_eq!((after.slowed_bytes_per_second, after.slowdowns, after.stops), (None, 1, 0));
    assert_eq!(after.compactions, 1);
    assert_eq!(scan(&table).len(), 50);
}

#[test]
fn stopped_writers_are_told_and_go_on_after_a_compaction() {
    let disk = MemoryDisk::new();
    let stops = Arc::new(Stops::default());
    let options =
        Options { slowdown_level0_runs: 3, stop_level0_runs: 3, listener: Some(stops.clone()), ..small_options(&disk) };
    let database = Database::open("/db", options).unwrap();
    let policy = Policy::Leveled(LeveledOptions { level0_trigger: 1, ..LeveledOptions::default() });
    let table = database.create_table("t", TableOptions { policy, ..small_table() }).unwrap();
    for _ in 0..3 {
        table.put(&key(0), b"value", Durability::Buffered).unwrap();
        database.flush().unwrap();
    }
    assert_eq!(database.metrics().slowed_bytes_per_second, Some(0));
    // The stopped writer runs the compaction that frees it.
    table.put(&key(9), b"value", Durability::Buffered).unwrap();
    assert_eq!(database.metrics().slowed_bytes_per_second, None);
    assert_eq!((stops.begun.load(Ordering::Relaxed), stops.ended.load(Ordering::Relaxed)), (1, 1));
    assert_eq!(database.metrics().stops, 1);
}

/// Each run was one more, and at 36 all writers stopped until all of the load was compacted.
#[test]
fn runs_that_lie_apart_hold_nobody_back() {
    let disk = MemoryDisk::new();
    let options = Options { slowdown_level0_runs: 4, stop_level0_runs: 6, ..small_options(&disk) };
    let database = Database::open("/db", options).unwrap();
    let policy = Policy::Leveled(LeveledOptions { level0_trigger: 2, ..LeveledOptions::default() });
    let table = database.create_table("t", TableOptions { policy, ..small_table() }).unwrap();
    for n in 0..20 {
        table.put(&key(n), b"value", Durability::Buffered).unwrap();
        database.flush().unwrap();
        assert_eq!(database.metrics().slowed_bytes_per_second, None, "after {n}");
    }
}

/// Tiered levels of eight runs, and writers that are to stop at four: they waited for what was not due.
#[test]
fn nobody_waits_for_a_compaction_that_is_not_due() {
    let disk = MemoryDisk::new();
    let options = Options { slowdown_level0_runs: 3, stop_level0_runs: 4, ..small_options(&disk) };
    let database = Database::open("/db", options).unwrap();
    let policy = Policy::Tiered(TieredOptions { runs_per_level: 8, ..TieredOptions::default() });
    let table = database.create_table("t", TableOptions { policy, ..small_table() }).unwrap();
    for n in 0..40_u32 {
        table.put(&key(0), &n.to_le_bytes(), Durability::Buffered).unwrap();
        database.flush().unwrap();
    }
    assert_eq!(scan(&table).len(), 1);
}

/// Panics at flushes, once it is armed.
#[derive(Default)]
struct Panics(AtomicBool);

impl EventListener for Panics {
    fn on_event(&self, event: &Event) {
        let is_flush = matches!(event, Event::FlushBegin { .. });
        assert!(!is_flush || !self.0.load(Ordering::Relaxed), "a listener of the user panics");
    }
}

#[test]
fn a_panic_in_the_background_makes_the_database_read_only_and_nobody_waits() {
    let panics = Arc::<Panics>::default();
    let options = Options {
        disk: Arc::new(MemoryDisk::new()),
        background: Background::Threads(2),
        listener: Some(panics.clone()),
        ..Options::default()
    };
    let database = Database::open("/db", options).unwrap();
    let table = database.create_table("t", TableOptions::default()).unwrap();
    table.put(b"k", b"v", Durability::Os).unwrap();
    panics.0.store(true, Ordering::Relaxed);
    assert_eq!(database.flush().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(database.wait_idle().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(table.put(b"k", b"w", Durability::Os).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(table.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
}

/// What the job held stayed taken, and nothing said so.
#[test]
fn a_panic_in_a_job_that_the_caller_runs_makes_the_database_read_only() {
    let panics = Arc::<Panics>::default();
    let options = Options {
        disk: Arc::new(MemoryDisk::new()),
        background: Background::Manual,
        listener: Some(panics.clone()),
        ..Options::default()
    };
    let database = Database::open("/db", options).unwrap();
    let table = database.create_table("t", TableOptions::default()).unwrap();
    table.put(b"k", b"v", Durability::Os).unwrap();
    assert!(database.failure().is_none());
    panics.0.store(true, Ordering::Relaxed);
    assert_eq!(database.flush().unwrap_err().kind(), ErrorKind::Io);
    assert!(database.failure().unwrap().to_string().contains("panicked"));
    assert_eq!(table.put(b"k", b"w", Durability::Os).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(table.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
}

/// A merge operator that panics whenever it has something to fold.
struct PanickingOperator;

impl Combiner for PanickingOperator {
    fn apply(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        panic!("the operator of the user");
    }

    fn fuse(&self, _: &[u8], _: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        panic!("the operator of the user");
    }

    fn name(&self) -> &str {
        "panics"
    }
}

/// It said that a part of it had panicked, and not of what.
#[test]
fn a_panic_in_a_part_of_a_compaction_says_what_it_was() {
    let options = Options {
        disk: Arc::new(MemoryDisk::new()),
        background: Background::Threads(1),
        subcompactions: 2,
        merge_operators: vec![Arc::new(PanickingOperator)],
        ..Options::default()
    };
    let database = Database::open("/db", options).unwrap();
    let policy = Policy::Leveled(LeveledOptions { target_file_size: 1024, ..LeveledOptions::default() });
    let merge_operator = Some("panics".into());
    let table_options = TableOptions { policy, block_size: 256, merge_operator, ..TableOptions::default() };
    let table = database.create_table("t", table_options).unwrap();
    for n in 0..100 {
        table.put(&key(n), &[7; 100], Durability::Os).unwrap();
    }
    database.flush().unwrap();
    for n in 0..100 {
        table.merge(&key(n), b"operand", Durability::Os).unwrap();
    }
    database.flush().unwrap();
    // The background may have been first.
    let error = database.compact(&table).unwrap_err();
    let error = database.failure().unwrap_or(error);
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("the operator of the user"), "{error}: {cause}");
}
