//! Checkpoints: what they hold, that they stand alone, and what a failure or crash leaves of them.
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mycelium_base::FileKind;
use mycelium_engine::{Background, Database, Durability, ErrorKind, Options, WriteBatch, verify_directory};
use mycelium_vfs::{CrashDraw, Effect, Fault, FaultDisk, MemoryDisk, OperationKind};

use crate::common::{Rows, assert_verified, fill, key, scan, small_options, small_table};

#[test]
fn a_checkpoint_holds_what_was_written_before_and_stands_alone() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", small_options(&disk)).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    let other = database.create_table("other", small_table()).unwrap();
    fill(&table, 0, 3000, "old");
    table.delete_range(&key(100), &key(200), Durability::Os).unwrap();
    other.put(b"x", b"y", Durability::Buffered).unwrap();
    while database.step().unwrap() {}
    let (expected, sequence) = (scan(&table), database.last_sequence());
    let summary = database.checkpoint("/copies/one").unwrap();
    assert_eq!(summary.sequence, sequence);
    assert!(summary.files > 0 && summary.bytes > 0);
    fill(&table, 0, 3000, "new");
    database.drop_table("other").unwrap();
    database.compact(&table).unwrap();
    while database.step().unwrap() {}

    assert!(verify_directory(&disk, Path::new("/copies/one"), |_, _| ()).unwrap().is_ok());
    let copy = Database::open("/copies/one", small_options(&disk)).unwrap();
    assert_eq!(copy.table_names(), ["t", "other"]);
    assert_eq!(copy.last_sequence(), sequence);
    let copied = copy.table("t").unwrap();
    assert_eq!(scan(&copied), expected);
    assert_eq!(copy.table("other").unwrap().get(b"x").unwrap().unwrap(), b"y");
    // Both sides can be written and compacted without touching each other.
    fill(&copied, 0, 500, "copy");
    copy.compact(&copied).unwrap();
    while copy.step().unwrap() {}
    assert_eq!(table.get(&key(7)).unwrap().unwrap(), b"new7");
    assert_eq!(copied.get(&key(7)).unwrap().unwrap(), b"copy7");
    assert_verified(&database);
    assert_verified(&copy);
}

#[test]
fn a_place_that_is_taken_is_refused() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", small_options(&disk)).unwrap();
    database.checkpoint("/copy").unwrap();
    for taken in ["/copy", "/db"] {
        let before = disk.paths();
        assert_eq!(database.checkpoint(taken).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(disk.paths(), before);
    }
}

#[test]
fn a_failed_checkpoint_is_removed_and_can_be_repeated() {
    let memory = MemoryDisk::new();
    let disk = FaultDisk::over_memory(memory.clone());
    let options = Options { disk: Arc::new(disk.clone()), ..small_options(&memory) };
    let database = Database::open("/db", options).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    fill(&table, 0, 2000, "v");
    database.flush().unwrap();
    for operation in [OperationKind::HardLink, OperationKind::Rename, OperationKind::SyncDirectory] {
        disk.schedule(Fault::new(operation, Effect::Io).nth(0).sticky());
        let failed = database.checkpoint("/copy");
        disk.heal();
        assert!(failed.is_err(), "{operation:?}");
        assert!(memory.paths().iter().all(|path| !path.starts_with("/copy")), "{operation:?}: {:?}", memory.paths());
    }
    table.put(b"k", b"v", Durability::Os).unwrap();
    database.checkpoint("/copy").unwrap();
}

/// It was refused, though its readers worked.
#[test]
fn a_database_that_an_error_latched_is_copied_as_it_is_read() {
    let memory = MemoryDisk::new();
    let disk = FaultDisk::over_memory(memory.clone());
    let options = Options { disk: Arc::new(disk.clone()), ..small_options(&memory) };
    let database = Database::open("/db", options).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    let other = database.create_table("other", small_table()).unwrap();
    fill(&table, 0, 2000, "in a file");
    database.flush().unwrap();
    // One generation of memtables waits for its flush, another is being written.
    for n in 0.. {
        table.put(&key(3 * n), format!("sealed{n}").as_bytes(), Durability::Buffered).unwrap();
        other.put(&key(n), b"sealed", Durability::Buffered).unwrap();
        if database.metrics().sealed_generations > 0 {
            break;
        }
    }
    table.put(&key(9), b"active", Durability::Buffered).unwrap();
    table.delete_range(&key(100), &key(200), Durability::Buffered).unwrap();
    other.delete(&key(0), Durability::Buffered).unwrap();
    disk.schedule(Fault::new(OperationKind::Sync, Effect::LoseUnsynced).on(FileKind::Wal));
    assert_eq!(table.put(b"refused", b"", Durability::Sync).unwrap_err().kind(), ErrorKind::Io);
    assert!(database.failure().is_some());

    let (expected, others, sequence) = (scan(&table), scan(&other), database.last_sequence());
    assert_eq!(database.checkpoint("/copy").unwrap().sequence, sequence);
    assert!(verify_directory(&memory, Path::new("/copy"), |_, _| ()).unwrap().is_ok());
    let copy = Database::open("/copy", small_options(&memory)).unwrap();
    let copied = copy.table("t").unwrap();
    assert_eq!(copy.last_sequence(), sequence);
    assert_eq!((scan(&copied), scan(&copy.table("other").unwrap())), (expected, others));
    // The copy is none that an error has latched.
    assert!(copied.put(&key(9), b"newer", Durability::Sync).unwrap() > sequence);
    copy.compact(&copied).unwrap();
    assert_eq!(copied.get(&key(9)).unwrap().unwrap(), b"newer");
    assert_verified(&copy);
    // Once closed, another may have the directory.
    let clone = database.clone();
    assert_eq!(database.close().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(clone.checkpoint("/late").is_err() && !memory.paths().iter().any(|path| path.starts_with("/late")));
}

/// There was no way to a backup on another disk: hard links do not lead there.
#[test]
fn a_checkpoint_on_another_file_system_is_copied() {
    let memory = MemoryDisk::new();
    let disk = FaultDisk::over_memory(memory.clone());
    let options = Options { disk: Arc::new(disk.clone()), ..small_options(&memory) };
    let database = Database::open("/db", options).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    fill(&table, 0, 2000, "v");
    let expected = scan(&table);
    assert_eq!(database.checkpoint("/beside").unwrap().copied, 0);
    disk.schedule(Fault::new(OperationKind::HardLink, Effect::OtherFileSystem).sticky());
    let summary = database.checkpoint("/elsewhere").unwrap();
    assert!(summary.files > 0 && summary.copied == summary.files, "{summary:?}");
    let after_power_loss = memory.crash_image(&CrashDraw::from_seed(1));
    for disk in [&memory, &after_power_loss] {
        assert!(verify_directory(disk, Path::new("/elsewhere"), |_, _| ()).unwrap().is_ok());
    }
    let copy = Database::open("/elsewhere", small_options(&after_power_loss)).unwrap();
    assert_eq!(scan(&copy.table("t").unwrap()), expected);

    disk.schedule(Fault::new(OperationKind::Append, Effect::NoSpace).on(FileKind::Sst).sticky());
    assert_eq!(database.checkpoint("/full").unwrap_err().kind(), ErrorKind::NoSpace);
    disk.heal();
    assert!(memory.paths().iter().all(|path| !path.starts_with("/full")), "{:?}", memory.paths());
    assert_verified(&database);
}

#[test]
fn a_crash_leaves_a_whole_checkpoint_or_none() {
    let run = |disk: &MemoryDisk| {
        let database = Database::open("/db", small_options(disk))?;
        let table = database.create_table("t", small_table())?;
        let mut batch = WriteBatch::new();
        for n in 0..200 {
            batch.put(&table, &key(n), b"value");
        }
        database.write(&batch, Durability::Sync)?;
        database.checkpoint("/copy")
    };
    let disk = MemoryDisk::new();
    run(&disk).unwrap();
    let total = disk.operations();
    let mut whole = 0;
    for n in 0..total + 1 {
        let disk = MemoryDisk::new();
        disk.power_off_after(Some(n));
        let finished = run(&disk).is_ok();
        for seed in 0..6 {
            let image = disk.crash_image(&CrashDraw::from_seed(n * 6 + seed));
            let options = Options { create_if_missing: false, ..small_options(&image) };
            let source = Database::open("/db", options.clone());
            match Database::open("/copy", options) {
                Ok(copy) => {
                    let rows: Rows = scan(&copy.table("t").unwrap());
                    assert_eq!(rows.len(), 200, "operation {n}, seed {seed}");
                    assert_verified(&copy);
                    whole += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NotFound, "operation {n}, seed {seed}: {error}");
                    assert!(!finished, "operation {n}, seed {seed}: the checkpoint is gone");
                }
            }
            if let Ok(source) = source
                && let Ok(table) = source.table("t")
            {
                assert!([0, 200].contains(&scan(&table).len()), "operation {n}, seed {seed}");
            }
        }
    }
    assert!(whole > 6);
}

#[test]
fn a_checkpoint_under_load_is_a_moment_of_both_tables() {
    let disk = MemoryDisk::new();
    let options = Options { background: Background::Threads(2), ..small_options(&disk) };
    let database = Database::open("/db", options).unwrap();
    let left = database.create_table("left", small_table()).unwrap();
    let right = database.create_table("right", small_table()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                let mut batch = WriteBatch::new();
                let value = [&n.to_be_bytes()[..], &[1; 60]].concat();
                batch.put(&left, &key(n % 500), &value).put(&right, &key(n % 500), &value);
                database.write(&batch, Durability::Os).unwrap();
                n += 1;
            }
        });
        for i in 0..8 {
            let path = format!("/copies/{i}");
            let summary = database.checkpoint(&path).unwrap();
            let copy = Database::open(&path, small_options(&disk)).unwrap();
            assert_eq!(copy.last_sequence(), summary.sequence);
            assert_eq!(scan(&copy.table("left").unwrap()), scan(&copy.table("right").unwrap()));
        }
        stop.store(true, Ordering::Relaxed);
    });
}
