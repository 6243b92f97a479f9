//! A database opened read-only: it sees everything, log included, and writes nothing.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{key, scan, small_options, small_table};
use mycelium_engine::{Background, Database, Durability, ErrorKind, IsolationLevel, Options, WriteBatch};
use mycelium_vfs::{CrashDraw, MemoryDisk};

fn read_only(disk: &MemoryDisk) -> Options {
    Options { read_only: true, ..small_options(disk) }
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
        disk.paths().into_iter().map(|path| (disk.read_bytes(&path).unwrap(), path)).collect()
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
            database.checkpoint("/copy").map(drop),
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
fn it_needs_a_database() {
    let disk = MemoryDisk::new();
    assert_eq!(Database::open("/none", read_only(&disk)).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(disk.paths().is_empty());
}
