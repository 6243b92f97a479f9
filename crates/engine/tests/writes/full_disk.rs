//! What a full disk once made the engine get wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mycelium_base::FileKind;
use mycelium_engine::events::{Event, EventListener};
use mycelium_engine::{Background, Database, Durability, ErrorKind, Options, Table, TableOptions};
use mycelium_vfs::{CrashDraw, CrashMode, Effect, Fault, FaultDisk, MemoryDisk, OperationKind};

fn open(disk: &FaultDisk) -> Database {
    let options = Options { disk: Arc::new(disk.clone()), background: Background::Manual, ..Options::default() };
    Database::open("/db", options).unwrap()
}

/// A disk on which the log cannot grow, and a database whose only acknowledged row was dropped from the log's buffer.
fn with_a_gap_in_the_log() -> (FaultDisk, Database) {
    let disk = FaultDisk::over_memory(MemoryDisk::new());
    let database = open(&disk);
    let table = database.create_table("t", TableOptions::default()).unwrap();
    table.put(b"buffered", b"acknowledged", Durability::Buffered).unwrap();
    disk.schedule(Fault::new(OperationKind::Append, Effect::NoSpace).on(FileKind::Wal).sticky());
    assert_eq!(table.put(b"refused", b"", Durability::Os).unwrap_err().kind(), ErrorKind::NoSpace);
    disk.heal();
    (disk, database)
}

#[test]
fn closing_after_a_full_disk_keeps_rows_that_the_log_lost() {
    let (disk, database) = with_a_gap_in_the_log();
    database.close().unwrap();
    let table = open(&disk).table("t").unwrap();
    assert_eq!(table.get(b"buffered").unwrap().as_deref(), Some(&b"acknowledged"[..]));
    assert_eq!(table.get(b"refused").unwrap(), None);
}

/// Holds the next flush back, once it is armed, until it is let go.
#[derive(Default)]
struct HoldsFlush {
    is_armed: AtomicBool,
    has_begun: AtomicBool,
    is_let_go: AtomicBool,
}

impl EventListener for HoldsFlush {
    fn on_event(&self, event: &Event) {
        if matches!(event, Event::FlushBegin { .. }) && self.is_armed.swap(false, Ordering::AcqRel) {
            self.has_begun.store(true, Ordering::Release);
            while !self.is_let_go.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        }
    }
}

/// How many log segments there are.
fn segments(disk: &MemoryDisk) -> usize {
    let is_segment = |path: &&std::path::PathBuf| path.extension().is_some_and(|extension| extension == "wal");
    disk.paths().iter().filter(is_segment).count()
}

/// Writes until a log segment is sealed and waits for its flush.
fn fill_a_segment(disk: &MemoryDisk, table: &Table) {
    for n in 0_u32.. {
        if segments(disk) == 2 {
            break;
        }
        table.put(&n.to_be_bytes(), &[7; 100], Durability::Os).unwrap();
    }
}

/// A thread was at the flush of an older generation: closing took that for nothing to flush, and said that all was
/// durable.
#[test]
fn closing_beside_a_flush_after_a_full_disk_lost_rows_that_the_log_lost() {
    let memory = MemoryDisk::new();
    let disk = FaultDisk::over_memory(memory.clone());
    let holds = Arc::<HoldsFlush>::default();
    let options = Options {
        disk: Arc::new(disk.clone()),
        background: Background::Manual,
        memory_budget: 64 << 10,
        listener: Some(holds.clone()),
        ..Options::default()
    };
    let database = Database::open("/db", options).unwrap();
    let table = database.create_table("t", TableOptions::default()).unwrap();
    fill_a_segment(&memory, &table);
    table.put(b"buffered", b"acknowledged", Durability::Buffered).unwrap();
    disk.schedule(Fault::new(OperationKind::Append, Effect::NoSpace).on(FileKind::Wal).sticky());
    assert_eq!(table.put(b"refused", b"", Durability::Os).unwrap_err().kind(), ErrorKind::NoSpace);
    disk.heal();
    assert_eq!(segments(&memory), 2, "the older generation was flushed already");
    holds.is_armed.store(true, Ordering::Release);
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| database.step());
        while !holds.has_begun.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let close = scope.spawn(|| database.clone().close());
        // What the log lacks is sealed now, behind the generation that is being flushed.
        while segments(&memory) < 3 && !close.is_finished() {
            std::thread::yield_now();
        }
        holds.is_let_go.store(true, Ordering::Release);
        close.join().unwrap().unwrap();
        assert!(flush.join().unwrap().unwrap());
    });
    drop((table, database));
    let table = open(&disk).table("t").unwrap();
    assert_eq!(table.get(b"buffered").unwrap().as_deref(), Some(&b"acknowledged"[..]));
    assert_eq!(table.get(b"refused").unwrap(), None);
}

#[test]
fn syncing_after_a_full_disk_makes_rows_durable_that_the_log_lost() {
    let (disk, database) = with_a_gap_in_the_log();
    database.sync().unwrap();
    drop(database);
    let table = open(&disk).table("t").unwrap();
    assert_eq!(table.get(b"buffered").unwrap().as_deref(), Some(&b"acknowledged"[..]));
}

#[test]
fn a_full_disk_met_by_sync_does_not_latch() {
    let disk = FaultDisk::over_memory(MemoryDisk::new());
    let database = open(&disk);
    let table = database.create_table("t", TableOptions::default()).unwrap();
    table.put(b"a", b"1", Durability::Buffered).unwrap();
    disk.schedule(Fault::new(OperationKind::Append, Effect::NoSpace).on(FileKind::Wal));
    assert_eq!(database.sync().unwrap_err().kind(), ErrorKind::NoSpace);
    database.sync().unwrap();
    table.put(b"b", b"2", Durability::Sync).unwrap();
    drop((table, database));
    let table = open(&disk).table("t").unwrap();
    assert_eq!(table.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(table.get(b"b").unwrap().as_deref(), Some(&b"2"[..]));
}

/// A failed sync may have dropped what it was to persist, also where space is what it lacked.
fn assert_latched_by_a_sync(memory: &MemoryDisk, disk: &FaultDisk, database: &Database) {
    let table = database.table("t").unwrap();
    let rows = [(b"a", Durability::Sync, ErrorKind::NoSpace), (b"b", Durability::Os, ErrorKind::ReadOnly)];
    disk.schedule(Fault::new(OperationKind::Sync, Effect::NoSpace).on(FileKind::Wal).sticky());
    for (key, durability, expected) in rows {
        assert_eq!(table.put(key, b"", durability).unwrap_err().kind(), expected);
        assert_eq!(table.get(key).unwrap(), None);
    }
    assert_eq!(disk.fired(), 1, "a failed sync was tried again");
    assert_eq!(database.failure().map(|error| error.kind()), Some(ErrorKind::NoSpace));
    let image = memory.crash_image(&CrashDraw { mode: CrashMode::SyncedOnly, seed: 0 });
    let table = open(&FaultDisk::over_memory(image)).table("t").unwrap();
    assert_eq!(table.get(b"acknowledged").unwrap().as_deref(), Some(&b""[..]));
}

#[test]
fn a_sync_of_the_log_that_fails_for_want_of_space_latches() {
    let memory = MemoryDisk::new();
    let disk = FaultDisk::over_memory(memory.clone());
    let database = open(&disk);
    let table = database.create_table("t", TableOptions::default()).unwrap();
    table.put(b"acknowledged", b"", Durability::Sync).unwrap();
    assert_latched_by_a_sync(&memory, &disk, &database);
}

/// Writes went on over it: only the segment remembered that its sync had failed.
#[test]
fn a_sync_of_a_sealed_segment_that_fails_for_want_of_space_latches() {
    let memory = MemoryDisk::new();
    let disk = FaultDisk::over_memory(memory.clone());
    let options = Options { disk: Arc::new(disk.clone()), background: Background::Manual, ..Options::default() };
    let database = Database::open("/db", Options { memory_budget: 64 << 10, ..options }).unwrap();
    let table = database.create_table("t", TableOptions::default()).unwrap();
    table.put(b"acknowledged", b"", Durability::Sync).unwrap();
    fill_a_segment(&memory, &table);
    assert_latched_by_a_sync(&memory, &disk, &database);
}

/// The segment was taken back and the directory synced once more, as if the first sync could have lost nothing.
#[test]
fn a_sync_of_the_directory_that_fails_for_want_of_space_is_not_tried_again() {
    let disk = FaultDisk::over_memory(MemoryDisk::new());
    let database = open(&disk);
    let table = database.create_table("t", TableOptions::default()).unwrap();
    table.put(b"a", b"1", Durability::Sync).unwrap();
    let before = disk.count(OperationKind::SyncDirectory);
    disk.schedule(Fault::new(OperationKind::SyncDirectory, Effect::NoSpace));
    assert_eq!(database.flush().unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(disk.fired(), 1);
    assert_eq!(table.put(b"b", b"2", Durability::Sync).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(disk.count(OperationKind::SyncDirectory), before + 1);
    drop((table, database));
    assert_eq!(open(&disk).table("t").unwrap().get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_log_that_fails_while_it_is_switched_latches() {
    let disk = FaultDisk::over_memory(MemoryDisk::new());
    let database = open(&disk);
    let table = database.create_table("t", TableOptions::default()).unwrap();
    table.put(b"a", b"1", Durability::Buffered).unwrap();
    disk.schedule(Fault::new(OperationKind::Append, Effect::Io).on(FileKind::Wal));
    assert_eq!(database.flush().unwrap_err().kind(), ErrorKind::Io);
    // The row is in no log any more: a later one must not be acknowledged over its head.
    assert_eq!(table.put(b"b", b"2", Durability::Sync).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(table.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

/// A database of two level-0 files that were compacted, whose inputs are still there, and rows in memory, on a disk
/// with no room for them.
fn full_but_for_obsolete_files() -> (MemoryDisk, FaultDisk, Database) {
    let memory = MemoryDisk::new();
    let disk = FaultDisk::over_memory(memory.clone());
    let database = open(&disk);
    let table = database.create_table("t", TableOptions::default()).unwrap();
    for round in 0..2 {
        for n in 0..200_u32 {
            table.put(&n.to_be_bytes(), &[round; 100], Durability::Buffered).unwrap();
        }
        database.flush().unwrap();
    }
    database.compact(&table).unwrap();
    for n in 200..300_u32 {
        table.put(&n.to_be_bytes(), &[2; 100], Durability::Os).unwrap();
    }
    memory.set_capacity(Some(memory.used_space() + (2 << 10)));
    (memory, disk, database)
}

/// The flush failed first, and nothing else was tried.
#[test]
fn files_that_nobody_needs_make_room_for_a_flush() {
    let (_memory, _disk, database) = full_but_for_obsolete_files();
    database.flush().unwrap();
    let table = database.table("t").unwrap();
    assert_eq!(table.get(&250_u32.to_be_bytes()).unwrap().as_deref(), Some(&[2; 100][..]));
}

/// It could not be opened: it had to write what was in its log before it removed what nothing named.
#[test]
fn files_that_nothing_names_make_room_for_opening() {
    let (memory, _disk, database) = full_but_for_obsolete_files();
    let image = memory.kill_image();
    drop(database);
    image.set_capacity(Some(image.used_space() + (2 << 10)));
    let database = open(&FaultDisk::over_memory(image));
    let table = database.table("t").unwrap();
    assert_eq!(table.get(&250_u32.to_be_bytes()).unwrap().as_deref(), Some(&[2; 100][..]));
    assert_eq!(table.get(&7_u32.to_be_bytes()).unwrap().as_deref(), Some(&[1; 100][..]));
}
