//! What a process that has no descriptor left once made the engine get wrong: the error latched.

use std::sync::Arc;

use mycelium_base::FileKind;
use mycelium_engine::{Background, Database, Durability, ErrorKind, LeveledOptions, Options, Policy, TableOptions};
use mycelium_vfs::{CrashDraw, Effect, Fault, FaultDisk, MemoryDisk, OperationKind};

fn open(disk: &FaultDisk) -> Database {
    let options = Options { disk: Arc::new(disk.clone()), background: Background::Manual, ..Options::default() };
    Database::open("/db", options).unwrap()
}

fn create(database: &Database) {
    let leveled = LeveledOptions { level0_trigger: 2, ..LeveledOptions::default() };
    let options = TableOptions { policy: Policy::Leveled(leveled), ..TableOptions::default() };
    database.create_table("t", options).unwrap();
}

fn put(database: &Database, key: u64) {
    database.table("t").unwrap().put(&key.to_be_bytes(), b"value", Durability::Os).unwrap();
}

fn assert_holds(database: &Database, keys: u64) {
    let table = database.table("t").unwrap();
    for key in 0..keys {
        assert_eq!(table.get(&key.to_be_bytes()).unwrap().as_deref(), Some(&b"value"[..]), "{key}");
    }
}

/// A flush fails once, at the n-th operation of a kind, for want of a descriptor.
fn flush_without_descriptor(kind: OperationKind, nth: u64) -> bool {
    let disk = FaultDisk::over_memory(MemoryDisk::new());
    let database = open(&disk);
    create(&database);
    put(&database, 0);
    disk.schedule(Fault::new(kind, Effect::TooManyOpenFiles).nth(nth));
    let flushed = database.flush();
    if disk.fired() == 0 {
        flushed.unwrap();
        return false;
    }
    assert_eq!(flushed.unwrap_err().kind(), ErrorKind::TooManyOpenFiles, "{kind:?} {nth}");
    assert!(database.failure().is_none(), "{kind:?} {nth}: {:?}", database.failure());
    put(&database, 1);
    database.flush().unwrap();
    put(&database, 2);
    assert_holds(&database, 3);
    drop(database);
    assert_holds(&open(&disk), 3);
    true
}

/// Of the log's next segment, of the file that is flushed, and of the directory, which is opened to be synced.
#[test]
fn a_flush_that_found_no_descriptor_made_the_database_read_only() {
    for kind in [OperationKind::Create, OperationKind::Open, OperationKind::SyncDirectory] {
        let met = (1..).take_while(|nth| flush_without_descriptor(kind, *nth)).count();
        assert!(met > 0, "{kind:?}");
    }
}

#[test]
fn a_log_that_could_not_be_switched_while_there_were_no_descriptors_goes_on() {
    let disk = FaultDisk::over_memory(MemoryDisk::new());
    let database = open(&disk);
    create(&database);
    put(&database, 0);
    // Nothing can be opened: what was not created need not be removed, nor that be synced.
    for kind in [OperationKind::Create, OperationKind::Open, OperationKind::SyncDirectory] {
        disk.schedule(Fault::new(kind, Effect::TooManyOpenFiles).sticky());
    }
    for key in 1..4 {
        assert_eq!(database.flush().unwrap_err().kind(), ErrorKind::TooManyOpenFiles);
        put(&database, key);
    }
    disk.heal();
    database.flush().unwrap();
    drop(database);
    assert_holds(&open(&disk), 4);
}

/// Its name could not be synced, and nor could its removal: a crash may find it, and with it the end that the segment
/// before it had then. So nothing is written behind that until the removal is synced.
#[test]
fn a_segment_that_was_removed_while_there_were_no_descriptors_made_the_database_read_only() {
    let memory = MemoryDisk::new();
    let disk = FaultDisk::over_memory(memory.clone());
    let database = open(&disk);
    create(&database);
    let table = database.table("t").unwrap();
    let put = |key: u64| table.put(&key.to_be_bytes(), b"value", Durability::Sync);
    let assert_a_crash_leaves = |keys| {
        for seed in 0..40 {
            let image = memory.crash_image(&CrashDraw::from_seed(seed));
            assert_holds(&open(&FaultDisk::over_memory(image)), keys);
        }
    };
    put(0).unwrap();
    disk.schedule(Fault::new(OperationKind::SyncDirectory, Effect::TooManyOpenFiles).sticky());
    for _ in 0..2 {
        assert_eq!(database.flush().unwrap_err().kind(), ErrorKind::TooManyOpenFiles);
        assert_eq!(put(1).unwrap_err().kind(), ErrorKind::TooManyOpenFiles);
        assert!(database.failure().is_none());
        assert_a_crash_leaves(1);
    }
    disk.heal();
    put(1).unwrap();
    assert_a_crash_leaves(2);
    database.flush().unwrap();
    put(2).unwrap();
    assert_holds(&database, 3);
}

#[test]
fn a_compaction_that_found_no_descriptor_is_tried_again() {
    let disk = FaultDisk::over_memory(MemoryDisk::new());
    let database = open(&disk);
    create(&database);
    // Of the same keys, so that the files do not just move.
    for _ in 0..2 {
        (0..2).for_each(|key| put(&database, key));
        database.flush().unwrap();
    }
    disk.schedule(Fault::new(OperationKind::Create, Effect::TooManyOpenFiles).on(FileKind::Sst));
    assert_eq!(database.wait_idle().unwrap_err().kind(), ErrorKind::TooManyOpenFiles);
    assert!(database.failure().is_none());
    put(&database, 2);
    database.wait_idle().unwrap();
    assert!(database.metrics().compactions > 0);
    assert_holds(&database, 3);
}
