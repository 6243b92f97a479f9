//! Files that a database needs and that are gone: they are missed, and nothing that a crash, a checkpoint or a writer
//! beside a reader leaves is taken for their loss.
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mycelium_base::FileKind;
use mycelium_base::hash::hash_key;
use mycelium_engine::{Database, Durability, Error, Options, RecoveryMode, Table, WriteBatch, verify_directory};
use mycelium_manifest::{Manifest, ManifestOptions, ManifestState};
use mycelium_vfs::{CrashDraw, Disk, FaultDisk, MemoryDisk, Throttle};
use mycelium_wal::{SegmentHeader, SegmentWriter};

use crate::common::{Rows, assert_verified, key, scan, small_options, small_table};

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

/// As [`assert_refused`], and opening must have written nothing.
fn assert_missed(disk: &MemoryDisk, missing: &Path) {
    let before = disk.paths();
    assert_refused(disk, missing);
    assert_eq!(disk.paths(), before);
}

/// An error must say what is missing.
fn assert_refused(disk: &MemoryDisk, missing: &Path) {
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

/// Nothing named it: the rows before it were recovered as if they had been all.
#[test]
fn the_newest_of_several_log_segments_is_missed() {
    let disk = with_two_segments();
    let newest = logs(&disk).remove(1);
    disk.remove(&newest).unwrap();
    assert_refused(&disk, &newest);
    let salvage = Options { recovery: RecoveryMode::PointInTime, ..small_options(&disk) };
    let salvaged = rows(DIRECTORY, salvage).unwrap();
    assert!(salvaged.contains_key(&key(0)));
    assert_eq!(rows(DIRECTORY, small_options(&disk)).unwrap(), salvaged);
}

/// A manifest that held nothing but the state that it was started with passed for one of an old checkpoint.
#[test]
fn the_only_log_segment_is_missed_when_the_manifest_has_just_been_replaced() {
    let disk = with_a_row_in_the_log();
    let state = Manifest::read(&disk, Path::new(DIRECTORY)).unwrap();
    let writer = Arc::new(disk.clone());
    drop(Manifest::resume(writer, Path::new(DIRECTORY), state, ManifestOptions::default()).unwrap());
    assert_eq!(rows(DIRECTORY, Options { read_only: true, ..small_options(&disk) }).unwrap().len(), 2);
    let log = logs(&disk).remove(0);
    disk.remove(&log).unwrap();
    assert_missed(&disk, &log);
}

/// The table was not there, nor anything that had been written to it, and nothing was said.
#[test]
fn the_edit_that_made_a_table_is_missed_if_the_log_is_of_it() {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    table.put(&key(0), b"", Durability::Sync).unwrap();
    let manifest = Manifest::live_path(&disk, Path::new(DIRECTORY)).unwrap();
    let len = disk.file_len(&manifest).unwrap();
    let other = database.create_table("other", small_table()).unwrap();
    other.put(&key(1), b"", Durability::Sync).unwrap();
    drop((table, other));
    database.close().unwrap();
    disk.set_len(&manifest, len as usize).unwrap();

    let log = logs(&disk).remove(0);
    for read_only in [true, false] {
        let error = rows(DIRECTORY, Options { read_only, ..small_options(&disk) }).unwrap_err();
        assert!(error.is_corruption() && error.offset().is_some(), "{error}");
        assert_eq!(error.file(), Some(log.as_path()), "{error}");
    }
    let report = verify_directory(&disk, Path::new(DIRECTORY), |_, _| ()).unwrap();
    assert_eq!(report.problem_count, 1, "{:?}", report.problems);
    assert_eq!(report.problems[0].error.file(), Some(log.as_path()));
    let salvage = Options { recovery: RecoveryMode::PointInTime, ..small_options(&disk) };
    assert_eq!(rows(DIRECTORY, salvage).unwrap().into_keys().collect::<Vec<_>>(), [key(0)]);
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

/// Gives a checkpoint the manifest that older versions wrote for it: the state, which names the log of the source.
fn make_older(disk: &MemoryDisk, checkpoint: &Path) {
    let live = Manifest::live_path(disk, checkpoint).unwrap();
    let state = Manifest::read(disk, checkpoint).unwrap();
    let number = state.next_file_number;
    let state = ManifestState { oldest_wal: 1, next_file_number: number + 1, ..state };
    let name = FileKind::Manifest.name(number);
    let header = SegmentHeader { number, previous: None };
    let mut manifest = SegmentWriter::create(disk, &checkpoint.join(&name), header).unwrap();
    for edit in state.to_edits() {
        let mut record = vec![1];
        edit.encode(&mut record);
        manifest.append(&[&record]).unwrap();
    }
    manifest.sync().unwrap();
    let mut current = disk.create(&checkpoint.join(FileKind::Current.name(0))).unwrap();
    current.append(format!("{name} {:016x}\n", hash_key(name.as_bytes())).as_bytes()).unwrap();
    current.sync().unwrap();
    disk.remove(&live).unwrap();
    disk.sync_directory(checkpoint).unwrap();
}

/// Their manifests name the log of the database that they were made of. Wherever the first opening is cut short.
#[test]
fn a_checkpoint_of_an_older_version_is_opened_without_the_log_that_it_names() {
    const COPY: &str = "/copy";
    let disk = with_a_row_in_the_log();
    Database::open(DIRECTORY, small_options(&disk)).unwrap().checkpoint(COPY).unwrap();
    make_older(&disk, Path::new(COPY));
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

/// The disk of a reader, at whose n-th request a writer does something.
fn disk_of_a_reader(disk: &MemoryDisk, moment: u64, meanwhile: impl Fn() + Send + Sync + 'static) -> FaultDisk {
    let reader = FaultDisk::new(Arc::new(disk.clone()));
    let latency = Duration::from_nanos(1);
    reader.set_throttle(Some(Throttle { bytes_per_second: 1 << 40, burst_bytes: 1 << 40, latency }));
    let seen = AtomicU64::new(0);
    reader.on_wait(move |_| {
        if seen.fetch_add(1, Ordering::Relaxed) + 1 == moment {
            meanwhile();
        }
    });
    reader
}

/// It had the manifest from before the load, and of the log what came after it.
#[test]
fn a_reader_beside_a_bulk_load_sees_nothing_that_followed_without_it() {
    const KEYS: [&[u8]; 3] = [b"before", b"loaded", b"then"];
    for moment in 1.. {
        let disk = MemoryDisk::new();
        let (_writer, table) = create(&disk);
        table.put(KEYS[0], b"", Durability::Os).unwrap();
        let reader = disk_of_a_reader(&disk, moment, move || {
            table.ingest([Ok((KEYS[1], b""))]).unwrap();
            table.put(KEYS[2], b"", Durability::Os).unwrap();
        });
        let options = Options { disk: Arc::new(reader.clone()), read_only: true, ..small_options(&disk) };
        let found = rows(DIRECTORY, options).unwrap_or_else(|e| panic!("operation {moment}: {e}"));
        let found: Vec<Vec<u8>> = found.into_keys().collect();
        assert!(!found.is_empty() && found == KEYS[..found.len()], "operation {moment}: {found:?}");
        if reader.total() < moment {
            return;
        }
    }
}

/// It had the manifest from before the table was made, and of a batch over two tables the half that is in the older.
#[test]
fn a_reader_beside_the_making_of_a_table_sees_no_half_of_a_batch() {
    for moment in 1.. {
        let disk = MemoryDisk::new();
        let (writer, table) = create(&disk);
        let reader = disk_of_a_reader(&disk, moment, move || {
            let new = writer.create_table("new", small_table()).unwrap();
            let mut batch = WriteBatch::new();
            batch.put(&table, b"key", b"").put(&new, b"key", b"");
            writer.write(&batch, Durability::Os).unwrap();
        });
        let options = Options { disk: Arc::new(reader.clone()), read_only: true, ..small_options(&disk) };
        let seen = Database::open(DIRECTORY, options).unwrap_or_else(|e| panic!("operation {moment}: {e}"));
        let holds = |name| seen.table(name).is_ok_and(|table| table.get(b"key").unwrap().is_some());
        assert_eq!(holds("t"), holds("new"), "operation {moment}");
        if reader.total() < moment {
            return;
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
        let reader = disk_of_a_reader(&disk, moment, move || {
            writer.flush().unwrap();
            writer.compact(&table).unwrap();
            writer.wait_idle().unwrap();
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
