//! Files that a database needs and that are gone: they are missed, and nothing that a crash, a checkpoint or a writer
//! beside a reader leaves is taken for their loss.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{Rows, assert_verified, key, scan, small_options, small_table};
use mycelium_engine::{Database, Durability, Error, Options, RecoveryMode, Table, verify_directory};
use mycelium_manifest::{Manifest, ManifestOptions, ManifestState};
use mycelium_vfs::{CrashDraw, Disk, FaultDisk, MemoryDisk, Throttle};

const DIRECTORY: &str = "/db";

/// A database with one table.
fn create(disk: &MemoryDisk) -> (Database, Table) {
    let database = Database::open(DIRECTORY, small_options(disk)).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    (database, table)
}

/// Opens it and reads all rows.
fn rows(directory: &str, options: Options) -> Result<Rows, Error> {
    let database = Database::open(directory, Options { create_if_missing: false, ..options })?;
    Ok(scan(&database.table("t")?))
}

/// The log segments there, oldest first.
fn logs(disk: &MemoryDisk) -> Vec<PathBuf> {
    disk.paths().into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "wal")).collect()
}

/// A database that was closed with one row in a file and one in the log only.
fn with_a_row_in_the_log() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    table.put(b"in a file", b"", Durability::Sync).unwrap();
    database.flush().unwrap();
    table.put(b"in the log", b"", Durability::Sync).unwrap();
    drop(table);
    database.close().unwrap();
    disk
}

/// A database whose log has two segments, the older with `key(0)`; its disk as the death of the process leaves it.
fn with_two_segments() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let (_database, table) = create(&disk);
    for n in 0.. {
        table.put(&key(n), &[7; 100], Durability::Sync).unwrap();
        if logs(&disk).len() == 2 {
            return disk.kill_image();
        }
    }
    unreachable!("the memory budget is never used up");
}

/// An error must say what is missing, and opening must have written nothing.
fn assert_missed(disk: &MemoryDisk, missing: &Path) {
    let before = disk.paths();
    for read_only in [true, false] {
        for recovery in [RecoveryMode::Strict, RecoveryMode::TolerateTornTail] {
            let error = rows(DIRECTORY, Options { recovery, read_only, ..small_options(disk) }).unwrap_err();
            assert!(error.is_corruption(), "{error}");
            assert_eq!((error.file(), error.offset()), (Some(missing), Some(0)), "{error}");
        }
    }
    let report = verify_directory(disk, Path::new(DIRECTORY), |_, _| ()).unwrap();
    assert_eq!(report.problem_count, 1, "{:?}", report.problems);
    assert_eq!(report.problems[0].error.file(), Some(missing));
    assert_eq!(disk.paths(), before);
}

/// The rows of it were gone, and nothing was said.
#[test]
fn a_log_segment_that_is_gone_is_missed() {
    let disk = with_a_row_in_the_log();
    let log = logs(&disk).remove(0);
    disk.remove(&log).unwrap();
    assert_missed(&disk, &log);
    let salvage = Options { recovery: RecoveryMode::PointInTime, ..small_options(&disk) };
    assert_eq!(rows(DIRECTORY, salvage).unwrap().into_keys().collect::<Vec<_>>(), [b"in a file".to_vec()]);
    assert_eq!(rows(DIRECTORY, small_options(&disk)).unwrap().len(), 1);
}

/// What followed it was recovered as if there had been nothing before.
#[test]
fn the_oldest_of_several_log_segments_is_missed() {
    let disk = with_two_segments();
    let oldest = logs(&disk).remove(0);
    disk.remove(&oldest).unwrap();
    assert_missed(&disk, &oldest);
    // Nothing behind it is part of what was there before it.
    let salvage = Options { recovery: RecoveryMode::PointInTime, ..small_options(&disk) };
    assert!(rows(DIRECTORY, Options { read_only: true, ..salvage.clone() }).unwrap().is_empty());
    assert!(rows(DIRECTORY, salvage).unwrap().is_empty());
    assert!(rows(DIRECTORY, small_options(&disk)).unwrap().is_empty());
}

#[test]
fn a_checkpoint_needs_no_log() {
    let disk = with_a_row_in_the_log();
    for (copy, read_only) in [("/of a reader", true), ("/of a writer", false)] {
        let database = Database::open(DIRECTORY, Options { read_only, ..small_options(&disk) }).unwrap();
        database.checkpoint(copy).unwrap();
        assert_eq!(Manifest::read(&disk, Path::new(copy)).unwrap().oldest_wal, 0);
        assert_eq!(rows(copy, small_options(&disk)).unwrap().len(), 2);
    }
}

/// Their manifests name the log of the database that they were made of. Wherever the first opening is cut short.
#[test]
fn a_checkpoint_of_an_older_version_is_opened_without_the_log_that_it_names() {
    const COPY: &str = "/copy";
    let disk = with_a_row_in_the_log();
    Database::open(DIRECTORY, small_options(&disk)).unwrap().checkpoint(COPY).unwrap();
    let state = ManifestState { oldest_wal: 1, ..Manifest::read(&disk, Path::new(COPY)).unwrap() };
    let older = Arc::new(disk.clone());
    drop(Manifest::resume(older, Path::new(COPY), state, ManifestOptions::default()).unwrap());
    assert!(verify_directory(&disk, Path::new(COPY), |_, _| ()).unwrap().is_ok());
    assert_eq!(rows(COPY, Options { read_only: true, ..small_options(&disk) }).unwrap().len(), 2);

    let trial = disk.kill_image();
    assert_eq!(rows(COPY, small_options(&trial)).unwrap().len(), 2);
    for n in 0..=trial.operations() {
        let image = disk.kill_image();
        image.power_off_after(Some(n));
        drop(Database::open(COPY, small_options(&image)));
        for crashed in [image.kill_image(), image.crash_image(&CrashDraw::from_seed(n))] {
            let found = rows(COPY, small_options(&crashed));
            assert_eq!(found.unwrap_or_else(|e| panic!("operation {n}: {e}")).len(), 2, "operation {n}");
        }
    }
}

/// The reader had the manifest from before the flush, and the log from after it: a generation was in neither.
#[test]
fn a_reader_beside_a_flush_and_a_compaction_misses_nothing() {
    for moment in 1.. {
        let disk = MemoryDisk::new();
        let (writer, table) = create(&disk);
        for n in 0..30 {
            table.put(&key(n), b"value", Durability::Os).unwrap();
            if n % 10 == 9 && n < 20 {
                writer.flush().unwrap();
            }
        }
        let expected = scan(&table);
        let reader = FaultDisk::new(Arc::new(disk.clone()));
        let latency = Duration::from_nanos(1);
        reader.set_throttle(Some(Throttle { bytes_per_second: 1 << 40, burst_bytes: 1 << 40, latency }));
        let seen = AtomicU64::new(0);
        reader.on_wait(move |_| {
            if seen.fetch_add(1, Ordering::Relaxed) + 1 == moment {
                writer.flush().unwrap();
                writer.compact(&table).unwrap();
                writer.wait_idle().unwrap();
            }
        });
        let options = Options { disk: Arc::new(reader.clone()), read_only: true, ..small_options(&disk) };
        let found = rows(DIRECTORY, options).unwrap_or_else(|e| panic!("operation {moment}: {e}"));
        assert_eq!(found, expected, "operation {moment}");
        if reader.total() < moment {
            return;
        }
    }
}

/// A new database was made over its rows.
#[test]
fn a_log_without_current_is_no_place_for_a_new_database() {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    table.put(b"only in the log", b"", Durability::Sync).unwrap();
    drop(table);
    database.close().unwrap();
    let kept = disk.read_bytes(&logs(&disk)[0]).unwrap();
    disk.remove(&Path::new(DIRECTORY).join("CURRENT")).unwrap();
    let error = Database::open(DIRECTORY, small_options(&disk)).unwrap_err();
    assert!(error.is_corruption(), "{error}");
    assert_eq!(error.file(), Some(logs(&disk)[0].as_path()));
    assert_eq!(disk.read_bytes(&logs(&disk)[0]).unwrap(), kept);
}

#[test]
fn a_database_whose_making_was_cut_short_is_made_anew() {
    let trial = MemoryDisk::new();
    create(&trial);
    for n in 0..=trial.operations() {
        let disk = MemoryDisk::new();
        disk.power_off_after(Some(n));
        drop(Database::open(DIRECTORY, small_options(&disk)));
        let crashed = (0..4).map(|seed| disk.crash_image(&CrashDraw::from_seed(4 * n + seed)));
        for image in crashed.chain([disk.kill_image()]) {
            let database = Database::open(DIRECTORY, small_options(&image));
            assert_verified(&database.unwrap_or_else(|e| panic!("operation {n}: {e}")));
        }
    }
}
