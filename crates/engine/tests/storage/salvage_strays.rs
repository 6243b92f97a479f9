//! Salvage where files lie about that are none of the database's tree: those of another database, and of compactions
//! that failed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mycelium_base::FileKind;
use mycelium_engine::{Database, Durability, Options, Result, SalvageOptions, SalvageReport, salvage};
use mycelium_vfs::{Disk, MemoryDisk};

use crate::common::{Rows, assert_verified, key, scan, small_options, small_table};

const DIRECTORY: &str = "/db";
const SAVED: &str = "/saved";

fn open(disk: &MemoryDisk) -> Database {
    Database::open(DIRECTORY, small_options(disk)).unwrap()
}

/// The files of a kind, the oldest first.
fn files(disk: &MemoryDisk, kind: FileKind) -> Vec<PathBuf> {
    let is_one = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        path.starts_with(DIRECTORY) && name.and_then(FileKind::parse).is_some_and(|(found, _)| found == kind)
    };
    disk.paths().into_iter().filter(is_one).collect()
}

fn put_file(disk: &MemoryDisk, path: &Path, bytes: &[u8]) {
    assert!(!disk.exists(path).unwrap(), "{} is there", path.display());
    disk.create(path).unwrap().append(bytes).unwrap();
}

fn remove_manifest(disk: &MemoryDisk) {
    files(disk, FileKind::Manifest).iter().for_each(|path| disk.remove(path).unwrap());
}

fn salvaged(disk: &MemoryDisk) -> Result<SalvageReport> {
    let options = SalvageOptions { disk: Arc::new(disk.clone()), ..SalvageOptions::default() };
    salvage(DIRECTORY, SAVED, &options, |done, total| assert!(done <= total))
}

fn saved_rows(disk: &MemoryDisk) -> Rows {
    let options = Options { create_if_missing: false, ..small_options(disk) };
    let database = Database::open(SAVED, options).unwrap();
    database.wait_idle().unwrap();
    assert_verified(&database);
    scan(&database.table("t").unwrap())
}

/// A database whose rows were flushed so many times.
fn written(disk: &MemoryDisk, flushes: u32, mark: &str) -> Rows {
    let database = open(disk);
    let table = database.create_table("t", small_table()).unwrap();
    for flush in 0..flushes {
        crate::common::fill(&table, flush, flush + 50, mark);
        database.flush().unwrap();
    }
    let rows = scan(&table);
    drop(table);
    database.close().unwrap();
    rows
}

/// Whichever had more edits counted: the manifest was taken for one that had lost some, and the other's table for its
/// own.
#[test]
fn a_file_of_another_database_took_the_place_of_a_sound_manifest() {
    let (disk, other) = (MemoryDisk::new(), MemoryDisk::new());
    let own = written(&disk, 1, "own");
    written(&other, 12, "other");
    let stray = files(&other, FileKind::Sst).pop().unwrap();
    put_file(&disk, &stray, &other.read_bytes(&stray).unwrap());
    let name = stray.file_name().unwrap().to_str().unwrap();

    let image = disk.kill_image();
    let report = salvaged(&image).unwrap();
    assert!(report.is_complete() && report.damage.is_empty(), "{report:?}");
    assert_eq!((report.foreign_files, report.unplaced_files), (vec![name.to_owned()], Vec::new()));
    assert!(saved_rows(&image) == own);

    // Nothing says which of the two it is.
    remove_manifest(&disk);
    let error = salvaged(&disk).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("several databases"), "{error}");
    assert_eq!(error.file(), Some(stray.as_path()));
    disk.remove(&stray).unwrap();
    let report = salvaged(&disk).unwrap();
    assert!(report.lost.is_empty() && report.foreign_files.is_empty(), "{report:?}");
    assert!(saved_rows(&disk) == own);
}

fn compact(database: &Database) {
    database.compact(&database.table("t").unwrap()).unwrap();
    database.wait_idle().unwrap();
}

/// Its files could not be removed. They were put beside or above those of the next one, of the same files or of more:
/// the table was refused, or rows were back that had been deleted.
#[test]
fn what_a_failed_compaction_left_counted_beside_what_the_next_one_made() {
    for has_more in [false, true] {
        let disk = MemoryDisk::new();
        let database = open(&disk);
        let table = database.create_table("t", small_table()).unwrap();
        crate::common::fill(&table, 0, 300, "first");
        compact(&database);
        crate::common::fill(&table, 100, 200, "second");
        database.flush().unwrap();
        drop(table);
        database.close().unwrap();
        let inputs = files(&disk, FileKind::Sst);

        let failed = disk.kill_image();
        let database = open(&failed);
        compact(&database);
        database.close().unwrap();
        let mut left = files(&failed, FileKind::Sst);
        left.retain(|path| !inputs.contains(path));
        assert!(!left.is_empty());

        // The next one comes after it, with larger numbers.
        (0..10).for_each(|_| open(&disk).close().unwrap());
        let database = open(&disk);
        let table = database.table("t").unwrap();
        if has_more {
            for n in 0..50 {
                table.delete(&key(n), Durability::Os).unwrap();
            }
            database.flush().unwrap();
        }
        compact(&database);
        let expected = scan(&table);
        assert_eq!(expected.len(), if has_more { 250 } else { 300 });
        drop(table);
        database.close().unwrap();
        left.iter().for_each(|path| put_file(&disk, path, &failed.read_bytes(path).unwrap()));
        remove_manifest(&disk);
        let report = salvaged(&disk).unwrap_or_else(|e| panic!("more {has_more}: {e}"));
        assert!(report.lost.is_empty() && report.unplaced_files.is_empty(), "more {has_more}: {report:?}");
        assert!(saved_rows(&disk) == expected, "more {has_more}");
    }
}
