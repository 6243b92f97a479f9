//! Files that are whole in themselves and yet not the ones written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mycelium_engine::{Background, Database, Durability, Options, TableOptions};
use mycelium_vfs::{Disk, MemoryDisk};

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

/// `0000005.sst` was taken for file 5, which no version named: it was to be removed under a name that it does not have,
/// and the database could not be opened. After a file of the last number there was no next one.
#[test]
fn files_whose_names_no_number_has_are_left_alone() {
    let (disk, _) = with_rows("a");
    let odd = ["0000005.sst", "00000006.wal", "MANIFEST-0000007", "TRACE-0000008", "18446744073709551615.tmp"];
    for name in odd {
        disk.create(&Path::new("/db").join(name)).unwrap().append(b"somebody else's").unwrap();
    }
    for value in [b"1", b"2"] {
        let database = Database::open("/db", options(&disk)).unwrap();
        let table = database.table("t").unwrap();
        assert_eq!(table.get(b"a0").unwrap().as_deref(), Some(&b"value"[..]));
        table.put(b"new", value, Durability::Sync).unwrap();
        database.flush().unwrap();
        assert_eq!(table.get(b"new").unwrap().as_deref(), Some(&value[..]));
        drop(table);
        database.close().unwrap();
    }
    let names = disk.list(Path::new("/db")).unwrap();
    assert!(odd.iter().all(|odd| names.iter().any(|name| name == odd)), "{names:?}");
}
