//! A database through its life: writes, flushes, compactions, snapshots, reopening; against a `BTreeMap`.

use std::path::Path;
use std::sync::Arc;

use mycelium_base::coding::{put_bytes, put_varint};
use mycelium_base::{FileKind, MAX_SEQUENCE_NUMBER, Operation};
use mycelium_engine::{
    Compression, Database, Durability, ErrorKind, LeveledOptions, Options, Policy, ReadOptions, TableOptions,
    WriteBatch,
};
use mycelium_manifest::{Manifest, ManifestOptions, ManifestState};
use mycelium_vfs::{CrashDraw, CrashMode, Disk, MemoryDisk};
use mycelium_wal::{SegmentReader, SegmentWriter};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::common::{Rows, scan_with as scan, small_options};

fn small_table() -> TableOptions {
    let compression = vec![Compression::None, Compression::Lz4, Compression::Zstd(1)];
    TableOptions { compression, ..crate::common::small_table() }
}

#[test]
fn rows_survive_flushes_compactions_and_reopening() {
    let seed = 7;
    println!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let disk = MemoryDisk::new();
    let mut database = Database::open("/db", small_options(&disk)).unwrap();
    let mut table = database.create_table("t", small_table()).unwrap();
    let mut expected = Rows::new();
    let mut held = Vec::new();
    for round in 0..30 {
        let mut batch = WriteBatch::new();
        for _ in 0..1000 {
            let key = format!("key{:05}", rng.random_range(0..20_000)).into_bytes();
            if rng.random_bool(0.2) {
                batch.delete(&table, &key);
                expected.remove(&key);
            } else {
                let value: Vec<u8> = (0..rng.random_range(0..60)).map(|_| rng.random()).collect();
                batch.put(&table, &key, &value);
                expected.insert(key, value);
            }
            if batch.len() == 10 {
                database.write(&batch, Durability::Os).unwrap();
                batch.clear();
            }
        }
        if round % 5 == 2 {
            let (start, end) = (b"key05".to_vec(), b"key055".to_vec());
            table.delete_range(&start, &end, Durability::Os).unwrap();
            expected.retain(|key, _| !(start <= *key && *key < end));
        }
        for _ in 0..200 {
            let key = format!("key{:05}", rng.random_range(0..20_000)).into_bytes();
            assert_eq!(table.get(&key).unwrap().as_ref(), expected.get(&key));
        }
        if round % 6 == 1 {
            held.push((database.snapshot(), expected.clone()));
        }
        while round % 3 == 0 && database.step().unwrap() {}
        if round == 14 || round == 25 {
            held.clear();
            drop(table);
            database.close().unwrap();
            database = Database::open("/db", small_options(&disk)).unwrap();
            table = database.table("t").unwrap();
        }
        for (snapshot, rows) in &held {
            assert_eq!(&scan(&table, &ReadOptions::at(snapshot)), rows, "round {round}");
        }
        assert_eq!(scan(&table, &ReadOptions::default()), expected, "round {round}");
    }
    let filled = database.metrics().tables[0].levels.iter().filter(|level| level.files > 0).count();
    assert!(filled >= 2, "the history filled only {filled} levels");
    held.clear();
    database.compact(&table).unwrap();
    assert_eq!(scan(&table, &ReadOptions::default()), expected);
    let levels = &database.metrics().tables[0].levels;
    assert_eq!(levels.iter().map(|level| level.entries).sum::<u64>(), expected.len() as u64);
}

#[test]
fn the_time_of_a_job_is_told_by_stage() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", Options { memory_budget: 1 << 20, ..small_options(&disk) }).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    for n in 0..20_000_u32 {
        table.put(&n.wrapping_mul(2_654_435_761).to_be_bytes(), &[n as u8; 40], Durability::Os).unwrap();
    }
    database.compact(&table).unwrap();
    let metrics = database.metrics();
    for stages in [metrics.flush_stages, metrics.compaction_stages] {
        println!("{stages:?}");
        assert!(stages.encode > 0 && stages.filter > 0 && stages.write > 0);
        let known = [stages.read, stages.decode, stages.merge, stages.encode, stages.compress, stages.filter];
        assert!(known.iter().sum::<u64>() + stages.write <= stages.total);
    }
    assert!(metrics.compaction_stages.read > 0 && metrics.compaction_stages.decode > 0);
}

/// The drop was durable at once, the copy only handed over: a power loss took the rows from both tables.
#[test]
fn a_table_dropped_after_its_rows_were_copied_does_not_take_the_copy_along() {
    for durability in [Durability::Buffered, Durability::Os] {
        let disk = MemoryDisk::new();
        let database = Database::open("/db", small_options(&disk)).unwrap();
        let old = database.create_table("old", small_table()).unwrap();
        let new = database.create_table("new", small_table()).unwrap();
        old.put(b"key", b"value", Durability::Sync).unwrap();
        new.put(b"key", b"value", durability).unwrap();
        database.drop_table("old").unwrap();
        let powerless = disk.crash_image(&CrashDraw { mode: CrashMode::SyncedOnly, seed: 0 });
        for image in [powerless, disk.kill_image()] {
            let database = Database::open("/db", small_options(&image)).unwrap();
            assert_eq!(database.table_names(), ["new"]);
            assert_eq!(database.table("new").unwrap().get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        }
    }
}

/// It was acknowledged, and nowhere.
#[test]
fn a_write_to_a_table_that_was_dropped_is_refused() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", small_options(&disk)).unwrap();
    let [old, kept] = ["old", "kept"].map(|name| database.create_table(name, small_table()).unwrap());
    database.drop_table("old").unwrap();
    let new = database.create_table("old", small_table()).unwrap();
    let is_refused = |error: mycelium_engine::Error| assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    is_refused(old.put(b"key", b"value", Durability::Sync).unwrap_err());
    is_refused(old.delete_range(b"a", b"z", Durability::Os).unwrap_err());
    is_refused(database.compact(&old).unwrap_err());
    let mut batch = WriteBatch::new();
    batch.put(&kept, b"key", b"value").put(&old, b"key", b"value");
    is_refused(database.write(&batch, Durability::Os).unwrap_err());
    assert_eq!((kept.get(b"key").unwrap(), new.get(b"key").unwrap()), (None, None));
    kept.put(b"key", b"value", Durability::Os).unwrap();
    new.put(b"key", b"value", Durability::Os).unwrap();
}

/// It was given out, acknowledged, and refused when the log was read.
#[test]
fn the_last_sequence_number_is_read_back() {
    let (disk, directory) = (MemoryDisk::new(), Path::new("/db"));
    let database = Database::open(directory, small_options(&disk)).unwrap();
    drop(database.create_table("t", small_table()).unwrap());
    database.close().unwrap();
    let state = Manifest::read(&disk, directory).unwrap();
    let state = ManifestState { last_sequence: MAX_SEQUENCE_NUMBER - 2, ..state };
    drop(Manifest::resume(Arc::new(disk.clone()), directory, state, ManifestOptions::default()).unwrap());
    for is_new in [true, false] {
        let database = Database::open(directory, small_options(&disk)).unwrap();
        let table = database.table("t").unwrap();
        if is_new {
            table.put(b"a", b"", Durability::Os).unwrap();
            assert_eq!(table.put(b"b", b"", Durability::Os).unwrap(), MAX_SEQUENCE_NUMBER);
        }
        assert_eq!(table.put(b"c", b"", Durability::Os).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(scan(&table, &ReadOptions::default()).into_keys().collect::<Vec<_>>(), [b"a", b"b"]);
        drop(table);
        database.close().unwrap();
    }
}

/// Whoever kept a handle held them for ever.
#[test]
fn a_handle_of_a_dropped_table_keeps_no_files() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", small_options(&disk)).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    for n in 0..100_u8 {
        table.put(&[n], b"value", Durability::Os).unwrap();
    }
    database.flush().unwrap();
    let snapshot = database.snapshot();
    let mut begun = table.iter(&ReadOptions::default()).unwrap();
    begun.seek_to_first().unwrap();
    database.drop_table("t").unwrap();
    database.wait_idle().unwrap();
    let mut rows = 0;
    while begun.valid() {
        rows += 1;
        begun.next().unwrap();
    }
    assert_eq!(rows, 100, "what was begun goes on");
    drop(begun);
    database.wait_idle().unwrap();
    let files = disk.paths().iter().filter(|path| path.extension().is_some_and(|e| e == "sst")).count();
    assert_eq!(files, 0, "{:?}", disk.paths());
    assert!(table.extent(None, None).entries > 0, "nobody may conclude that it has no rows");
    for options in [ReadOptions::default(), ReadOptions::at(&snapshot)] {
        assert_eq!(table.multi_get(&[&[1]], &options).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(table.iter(&options).err().map(|error| error.kind()), Some(ErrorKind::NotFound));
    }
}

/// The log had them, and went with a flush that wrote none of the table's rows: they were given out a second time.
#[test]
fn sequence_numbers_of_a_dropped_table_are_not_given_out_again() {
    for is_flushed in [false, true] {
        let disk = MemoryDisk::new();
        let database = Database::open("/db", small_options(&disk)).unwrap();
        let [kept, old] = ["kept", "old"].map(|name| database.create_table(name, small_table()).unwrap());
        if is_flushed {
            kept.put(b"key", b"value", Durability::Sync).unwrap();
        }
        for n in 0..10_u8 {
            old.put(&[n], b"value", Durability::Sync).unwrap();
        }
        database.drop_table("old").unwrap();
        database.flush().unwrap();
        let last = database.last_sequence();
        assert!(last >= 10);
        drop((kept, old));
        database.close().unwrap();
        for opening in 1..4 {
            let database = Database::open("/db", small_options(&disk)).unwrap();
            assert_eq!(database.last_sequence(), last, "opening {opening}, flushed {is_flushed}");
            database.close().unwrap();
        }
    }
}

/// Nothing was in memory, so that no generation was full, and none was there to be flushed.
#[test]
fn the_log_of_tables_that_come_and_go_grew_for_ever() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", small_options(&disk)).unwrap();
    let log_bytes = || {
        let names = disk.list(Path::new("/db")).unwrap();
        let logs = names.iter().filter(|name| matches!(FileKind::parse(name), Some((FileKind::Wal, _))));
        logs.map(|name| disk.file_len(&Path::new("/db").join(name)).unwrap()).sum::<u64>()
    };
    let empty = log_bytes();
    for round in 0..40_u8 {
        let table = database.create_table("staging", small_table()).unwrap();
        for n in 0..20_u8 {
            table.put(&[n], &[round; 1000], Durability::Os).unwrap();
        }
        drop(table);
        database.drop_table("staging").unwrap();
        let bytes = log_bytes();
        assert!(bytes < 4 * small_options(&disk).memory_budget as u64, "{bytes} bytes in round {round}");
    }
    let last = database.last_sequence();
    database.flush().unwrap();
    assert_eq!(log_bytes(), empty);
    drop(database);
    assert_eq!(Database::open("/db", small_options(&disk)).unwrap().last_sequence(), last);
}

/// Each fragment had the numbers of all range deletes over it: 20,000 took 1.6 GB, and a database that had gone down
/// with them could not be opened.
#[test]
fn a_log_with_many_range_deletes_within_each_other_is_recovered() {
    const COUNT: u64 = 20_000;
    let disk = MemoryDisk::new();
    let options = |disk: &MemoryDisk| Options { memory_budget: 64 << 20, ..small_options(disk) };
    let database = Database::open("/db", options(&disk)).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    table.put(&(COUNT / 2).to_be_bytes(), b"deleted", Durability::Os).unwrap();
    for n in 0..COUNT {
        table.delete_range(b"", &n.to_be_bytes(), Durability::Os).unwrap();
    }
    table.put(&(COUNT * 2).to_be_bytes(), b"kept", Durability::Os).unwrap();
    let database = Database::open("/db", options(&disk.kill_image())).unwrap();
    database.flush().unwrap();
    let rows = scan(&database.table("t").unwrap(), &ReadOptions::default());
    assert_eq!(rows.into_iter().collect::<Vec<_>>(), [((COUNT * 2).to_be_bytes().to_vec(), b"kept".to_vec())]);
}

/// As with a drop: a table that says "all is done" may not be there without what was done.
#[test]
fn a_created_table_is_not_found_without_what_was_written_before_it() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", small_options(&disk)).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    table.put(b"key", b"value", Durability::Buffered).unwrap();
    database.create_table("done", small_table()).unwrap();
    let image = disk.crash_image(&CrashDraw { mode: CrashMode::SyncedOnly, seed: 0 });
    let database = Database::open("/db", small_options(&image)).unwrap();
    assert_eq!(database.table_names(), ["t", "done"]);
    assert_eq!(database.table("t").unwrap().get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn a_forged_log_with_a_key_that_is_too_long_is_corrupt() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", small_options(&disk)).unwrap();
    let table = database.create_table("t", small_table()).unwrap().id();
    database.close().unwrap();
    let directory = Path::new("/db");
    let names = disk.list(directory).unwrap();
    let name = names.iter().filter(|name| name.ends_with(".wal")).max().unwrap();
    let path = directory.join(name);
    let header = *SegmentReader::open(&disk, &path, None).unwrap().header();
    for (key, value) in [(65_536, 1), (1, (256 << 20) + 1)] {
        let mut payload = Vec::new();
        put_varint(&mut payload, 1);
        put_varint(&mut payload, 1);
        put_varint(&mut payload, table.0.into());
        payload.push(Operation::Put as u8);
        put_bytes(&mut payload, &vec![0; key]);
        put_bytes(&mut payload, &vec![0; value]);
        disk.remove(&path).unwrap();
        let mut log = SegmentWriter::create(&disk, &path, header).unwrap();
        log.append(&[&payload]).unwrap();
        log.sync().unwrap();
        drop(log);
        let error = Database::open("/db", small_options(&disk)).unwrap_err();
        assert!(error.is_corruption(), "{error}");
    }
}

#[test]
fn small_files_of_level_0_are_merged_in_parallel_parts_without_a_target() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", Options { subcompactions: 2, ..small_options(&disk) }).unwrap();
    let leveled = LeveledOptions { level0_trigger: 2, base_level_bytes: 64 << 20, ..LeveledOptions::default() };
    let options = TableOptions { policy: Policy::Leveled(leveled), ..TableOptions::default() };
    let table = database.create_table("t", options).unwrap();
    let put = |range: std::ops::Range<u32>| {
        for n in range {
            table.put(&n.to_be_bytes(), &[7; 100], Durability::Os).unwrap();
        }
        database.flush().unwrap();
    };
    put(0..5_000);
    database.compact(&table).unwrap();
    for round in 0..6 {
        put(round..round + 10);
    }
    database.wait_idle().unwrap();
    assert_eq!(scan(&table, &ReadOptions::default()).len(), 5_000);
}
