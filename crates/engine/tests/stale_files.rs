//! Files that are whole in themselves and yet not the ones written.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mycelium_engine::{Background, Database, Durability, Options, TableOptions};
use mycelium_vfs::MemoryDisk;

fn options(disk: &MemoryDisk) -> Options {
    Options { disk: Arc::new(disk.clone()), background: Background::Manual, ..Options::default() }
}

/// A database with one file of ten rows.
fn with_rows(prefix: &str) -> (MemoryDisk, PathBuf) {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", options(&disk)).unwrap();
    let table = database.create_table("t", TableOptions::default()).unwrap();
    for n in 0..10 {
        table.put(format!("{prefix}{n}").as_bytes(), b"value", Durability::Os).unwrap();
    }
    database.flush().unwrap();
    drop(table);
    database.close().unwrap();
    let is_sst = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "sst");
    let path = disk.paths().into_iter().find(is_sst).unwrap();
    (disk, path)
}

#[test]
fn a_file_of_the_right_number_and_length_with_other_keys_is_refused() {
    let (disk, path) = with_rows("a");
    let (other, other_path) = with_rows("b");
    assert_eq!(path, other_path);
    let bytes = other.read_bytes(&path).unwrap();
    assert_eq!(bytes.len(), disk.read_bytes(&path).unwrap().len());
    disk.overwrite(&path, 0, &bytes).unwrap();
    let error = Database::open("/db", options(&disk)).unwrap_err();
    assert!(error.is_corruption(), "{error}");
    assert_eq!(error.file(), Some(Path::new(&path)));
}
