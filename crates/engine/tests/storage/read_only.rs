//! A database opened read-only: it sees everything, log included, and writes nothing.
use std::path::Path;

use mycelium_engine::{
    Background, Database, Durability, ErrorKind, IsolationLevel, Options, WriteBatch, verify_directory,
};
use mycelium_vfs::{CrashDraw, MemoryDisk};

use crate::common::{Rows, assert_verified, key, scan, small_options, small_table};

fn read_only(disk: &MemoryDisk) -> Options {
    Options { read_only: true, ..small_options(disk) }
}

/// A database `/db` that was closed, whose rows are some in files and some only in the log; a second table is empty.
/// Its rows and its last sequence number.
fn in_files_and_in_the_log(disk: &MemoryDisk) -> (Rows, u64) {
    let database = Database::open("/db", small_options(disk)).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    database.create_table("empty", small_table()).unwrap();
    for n in 0..300 {
        table.put(&key(n), b"in a file", Durability::Os).unwrap();
        if n % 100 == 99 {
            database.flush().unwrap();
        }
    }
    for n in (0..300).step_by(3) {
        table.put(&key(n), b"in the log", Durability::Os).unwrap();
    }
    table.delete(&key(7), Durability::Os).unwrap();
    table.delete_range(&key(50), &key(80), Durability::Sync).unwrap();
    let found = (scan(&table), database.last_sequence());
    drop(table);
    database.close().unwrap();
    found
}

#[test]
fn the_log_is_replayed_in_memory_and_nothing_is_written() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", small_options(&disk)).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    for n in 0..2500 {
        table.put(&key(n), b"value", Durability::Os).unwrap();
    }
    table.delete_range(&key(10), &key(20), Durability::Sync).unwrap();
    let (expected, sequence) = (scan(&table), database.last_sequence());
    drop(table);
    database.close().unwrap();

    let image = disk.crash_image(&CrashDraw::from_seed(1));
    let contents = |disk: &MemoryDisk| -> Vec<_> {
        let paths = disk.paths().into_iter().filter(|path| path.starts_with("/db"));
        paths.map(|path| (disk.read_bytes(&path).unwrap(), path)).collect()
    };
    let before = contents(&image);
    for background in [Background::Manual, Background::Threads(2)] {
        let options = Options { background, ..read_only(&image) };
        let database = Database::open("/db", options.clone()).unwrap();
        // No lock is held: a second reader is welcome.
        let second = Database::open("/db", options).unwrap();
        let table = database.table("t").unwrap();
        assert_eq!(scan(&table), expected);
        assert_eq!(scan(&second.table("t").unwrap()), expected);
        assert_eq!(table.get(&key(15)).unwrap(), None);
        assert_eq!(database.last_sequence(), sequence);
        assert!(database.metrics().recovered_records > 0);
        assert!(database.verify(|_, _| ()).unwrap().is_ok());
        database.wait_idle().unwrap();
        assert!(!database.step().unwrap());

        let refused = [
            table.put(b"k", b"v", Durability::Os).map(drop),
            database.write(WriteBatch::new().delete(&table, b"k"), Durability::Sync).map(drop),
            database.create_table("u", small_table()).map(drop),
            database.drop_table("t"),
            database.flush(),
            database.sync(),
            database.compact(&table),
            table.ingest([Ok((b"k", b"v"))]).map(drop),
        ];
        for (i, result) in refused.into_iter().enumerate() {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::ReadOnly, "call {i}");
        }
        let mut transaction = database.begin(IsolationLevel::Serializable);
        assert_eq!(transaction.get(&table, &key(5)).unwrap().unwrap(), b"value");
        transaction.put(&table, b"k", b"v").unwrap();
        assert_eq!(transaction.commit(Durability::Os).unwrap_err().kind(), ErrorKind::ReadOnly);
        drop(table);
        database.close().unwrap();
    }
    assert!(contents(&image) == before);
}

#[test]
fn a_checkpoint_holds_what_was_in_files_and_in_the_log() {
    let disk = MemoryDisk::new();
    let (expected, sequence) = in_files_and_in_the_log(&disk);
    let database = Database::open("/db", read_only(&disk)).unwrap();
    for copy in ["/one", "/two"] {
        let summary = database.checkpoint(copy).unwrap();
        assert_eq!(summary.sequence, sequence);
        assert!(verify_directory(&disk, Path::new(copy), |_, _| ()).unwrap().is_ok());
        let copy = Database::open(copy, small_options(&disk)).unwrap();
        assert_eq!(copy.metrics().recovered_records, 0, "the log was copied");
        let files: usize = copy.metrics().tables.iter().flat_map(|table| &table.levels).map(|level| level.files).sum();
        assert_eq!(files as u64, summary.files);
        assert_eq!((copy.last_sequence(), copy.table_names()), (sequence, vec!["t".to_owned(), "empty".to_owned()]));
        let table = copy.table("t").unwrap();
        assert_eq!(scan(&table), expected);
        // The copy stands alone, and goes on where the source ended.
        assert!(table.put(&key(1), b"newer", Durability::Sync).unwrap() > sequence);
        copy.compact(&table).unwrap();
        assert_eq!(table.get(&key(1)).unwrap().unwrap(), b"newer");
        assert_verified(&copy);
    }
    assert_eq!(database.checkpoint("/one").unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(scan(&database.table("t").unwrap()), expected);
    let closed = database.clone();
    database.close().unwrap();
    assert_eq!(closed.checkpoint("/three").unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_checkpoint_fails_cleanly_where_a_writer_has_removed_files_since() {
    let disk = MemoryDisk::new();
    in_files_and_in_the_log(&disk);
    let reader = Database::open("/db", read_only(&disk)).unwrap();
    let writer = Database::open("/db", small_options(&disk)).unwrap();
    let table = writer.table("t").unwrap();
    writer.compact(&table).unwrap();
    writer.wait_idle().unwrap();
    assert_eq!(reader.checkpoint("/copy").unwrap_err().kind(), ErrorKind::NotFound);
    assert!(disk.paths().iter().all(|path| !path.starts_with("/copy")), "{:?}", disk.paths());
    // Of what the writer adds while the reader looks, nothing is in the reader's copy.
    let reader = Database::open("/db", read_only(&disk)).unwrap();
    let expected = scan(&table);
    table.put(&key(5), b"added", Durability::Sync).unwrap();
    reader.checkpoint("/copy").unwrap();
    let copy = Database::open("/copy", small_options(&disk)).unwrap();
    assert_eq!(scan(&copy.table("t").unwrap()), expected);
}

#[test]
fn a_crash_leaves_a_whole_checkpoint_or_none_and_the_source_as_it_was() {
    let source = MemoryDisk::new();
    let (expected, _) = in_files_and_in_the_log(&source);
    let run = |disk: &MemoryDisk| Database::open("/db", read_only(disk))?.checkpoint("/copy");
    let trial = source.kill_image();
    run(&trial).unwrap();
    let total = trial.operations();
    let mut whole = 0;
    for n in 0..=total {
        let disk = source.kill_image();
        disk.power_off_after(Some(n));
        let finished = run(&disk).is_ok();
        for seed in 0..4 {
            let image = disk.crash_image(&CrashDraw::from_seed(n * 4 + seed));
            let options = Options { create_if_missing: false, ..small_options(&image) };
            match Database::open("/copy", options.clone()) {
                Ok(copy) => {
                    assert_eq!(scan(&copy.table("t").unwrap()), expected, "operation {n}, seed {seed}");
                    assert_verified(&copy);
                    whole += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NotFound, "operation {n}, seed {seed}: {error}");
                    assert!(!finished, "operation {n}, seed {seed}: the checkpoint is gone");
                }
            }
            let again = Database::open("/db", options).unwrap();
            assert_eq!(scan(&again.table("t").unwrap()), expected, "operation {n}, seed {seed}");
        }
    }
    println!("crash points: {}, whole checkpoints: {whole}", total + 1);
    assert!(whole >= 4);
}

#[test]
fn it_needs_a_database() {
    let disk = MemoryDisk::new();
    assert_eq!(Database::open("/none", read_only(&disk)).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(disk.paths().is_empty());
}
