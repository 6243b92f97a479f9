//! Verification finds what is wrong, says where, and goes on.
use std::path::Path;

use mycelium_engine::{Database, Durability, ErrorKind, verify_directory};
use mycelium_vfs::{CrashDraw, Disk, MemoryDisk};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::common::{assert_verified, key, scan, small_options, small_table};

const DIRECTORY: &str = "/db";

/// Several levels, range deletes, ingested files and a log.
fn build(disk: &MemoryDisk) -> Database {
    let database = Database::open(DIRECTORY, small_options(disk)).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    let mut rng = SmallRng::seed_from_u64(3);
    for round in 0..6 {
        for _ in 0..800 {
            table.put(&key(rng.random_range(0..4000)), &[round; 40], Durability::Os).unwrap();
        }
        let from = rng.random_range(0..3900);
        table.delete_range(&key(from), &key(from + 50), Durability::Os).unwrap();
        database.step().unwrap();
    }
    table.ingest((9000..9300).map(|n| Ok((key(n), b"ingested")))).unwrap();
    while database.step().unwrap() {}
    for _ in 0..200 {
        table.put(&key(rng.random_range(0..4000)), b"level 0", Durability::Os).unwrap();
    }
    database.flush().unwrap();
    table.put(b"last", b"in the log", Durability::Sync).unwrap();
    database
}

#[test]
fn a_sound_database_verifies_open_and_closed() {
    let disk = MemoryDisk::new();
    let database = build(&disk);
    let mut steps = Vec::new();
    let report = database.verify(|done, total| steps.push((done, total))).unwrap();
    assert!(report.is_ok(), "{:#?}", report.problems);
    assert!(report.files > 3 && report.entries > 2000 && report.blocks > 10, "{report:?}");
    assert_eq!((report.tables, report.log_records), (1, 1));
    assert!(steps.is_sorted() && steps.last().is_some_and(|(done, total)| done == total));
    database.close().unwrap();
    let closed = verify_directory(&disk, Path::new(DIRECTORY), |_, _| ()).unwrap();
    assert!(closed.is_ok(), "{:#?}", closed.problems);
    assert_eq!((closed.files, closed.entries, closed.log_records), (report.files, report.entries, 1));
    let missing = verify_directory(&disk, Path::new("/elsewhere"), |_, _| ());
    assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn every_flipped_bit_is_found_and_all_faults_are_listed() {
    let disk = MemoryDisk::new();
    build(&disk).close().unwrap();
    let mut rng = SmallRng::seed_from_u64(11);
    let files: Vec<_> = disk.paths().into_iter().filter(|p| p.extension().is_some_and(|e| e == "sst")).collect();
    for _ in 0..150 {
        let image = disk.kill_image();
        let path = &files[rng.random_range(0..files.len())];
        let bit = rng.random_range(0..image.file_len(path).unwrap() * 8);
        image.flip_bit(path, bit).unwrap();
        let report = verify_directory(&image, Path::new(DIRECTORY), |_, _| ()).unwrap();
        assert_eq!(report.problem_count, 1, "bit {bit} of {}: {:?}", path.display(), report.problems);
        assert_eq!(report.problems[0].error.file(), Some(path.as_path()));
        assert!(report.problems[0].error.is_corruption() && report.problems[0].table.as_deref() == Some("t"));
    }
    let image = disk.kill_image();
    for path in &files {
        image.flip_bit(path, 1000).unwrap();
    }
    let report = verify_directory(&image, Path::new(DIRECTORY), |_, _| ()).unwrap();
    assert_eq!(report.problem_count, files.len() as u64);
    assert!(report.into_result().is_err());
}

#[test]
fn missing_swapped_and_cut_files_are_found() {
    let disk = MemoryDisk::new();
    build(&disk).close().unwrap();
    let files: Vec<_> = disk.paths().into_iter().filter(|p| p.extension().is_some_and(|e| e == "sst")).collect();
    let verify = |image: &MemoryDisk| verify_directory(image, Path::new(DIRECTORY), |_, _| ()).unwrap();
    let image = disk.kill_image();
    image.remove(&files[0]).unwrap();
    assert_eq!(verify(&image).problem_count, 1);
    let image = disk.kill_image();
    image.copy_file(&files[0], &files[1]).unwrap();
    assert_eq!(verify(&image).problem_count, 1);
    let image = disk.kill_image();
    let len = image.file_len(&files[0]).unwrap();
    image.set_len(&files[0], len as usize - 1).unwrap();
    assert_eq!(verify(&image).problem_count, 1);
    let image = disk.kill_image();
    let manifest = image.paths().into_iter().find(|p| p.to_string_lossy().contains("MANIFEST")).unwrap();
    image.flip_bit(&manifest, 50 * 8).unwrap();
    assert!(!verify(&image).is_ok());
}

#[test]
fn a_damaged_log_is_found_and_a_torn_tail_is_no_fault() {
    let disk = MemoryDisk::new();
    let database = Database::open(DIRECTORY, small_options(&disk)).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    for n in 0..50 {
        table.put(&key(n), b"value", Durability::Sync).unwrap();
    }
    let log = disk.paths().into_iter().rfind(|p| p.extension().is_some_and(|e| e == "wal")).unwrap();
    assert_verified(&database);
    disk.flip_bit(&log, 8 * 200).unwrap();
    let report = database.verify(|_, _| ()).unwrap();
    assert_eq!(report.problem_count, 1);
    assert_eq!(report.problems[0].error.file(), Some(log.as_path()));
    disk.flip_bit(&log, 8 * 200).unwrap();
    table.put(b"unsynced", &[7; 9000], Durability::Os).unwrap();
    for seed in 0..50 {
        let image = disk.crash_image(&CrashDraw::from_seed(seed));
        let report = verify_directory(&image, Path::new(DIRECTORY), |_, _| ()).unwrap();
        assert!(report.is_ok(), "seed {seed}: {:?}", report.problems);
        assert!(report.log_records >= 50);
    }
    let image = disk.kill_image();
    image.flip_bit(&log, 8 * 200).unwrap();
    let report = verify_directory(&image, Path::new(DIRECTORY), |_, _| ()).unwrap();
    assert_eq!(report.problem_count, 1, "{:?}", report.problems);
}

#[test]
fn an_older_version_above_a_newer_one_is_found() {
    use mycelium_manifest::{Manifest, ManifestOptions, VersionEdit};
    let disk = MemoryDisk::new();
    let database = Database::open(DIRECTORY, small_options(&disk)).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    for keys in [["a", "m", "z"], ["b", "m", "y"]] {
        for key in keys {
            table.put(key.as_bytes(), b"value", Durability::Os).unwrap();
        }
        database.flush().unwrap();
    }
    assert_eq!(scan(&table).len(), 5);
    drop(table);
    database.close().unwrap();
    // Takes the older file out and puts it back as the newer run: fences do not show it, versions of `m` do.
    let (mut manifest, state) =
        Manifest::recover(std::sync::Arc::new(disk.clone()), Path::new(DIRECTORY), ManifestOptions::default()).unwrap();
    let (id, live) = state.tables.first_key_value().unwrap();
    let older = live.version.level(0).runs[1].files[0].clone();
    let mut edit = VersionEdit::default();
    edit.remove_file(*id, 0, older.number);
    manifest.apply(&edit).unwrap();
    let mut edit = VersionEdit::default();
    edit.add_file(*id, 0, mycelium_manifest::RunPlace::Newest, older);
    manifest.apply(&edit).unwrap();
    drop(manifest);
    let report = verify_directory(&disk, Path::new(DIRECTORY), |_, _| ()).unwrap();
    assert_eq!(report.problem_count, 1, "{:?}", report.problems);
    assert!(report.problems[0].to_string().contains("newer than one above"), "{}", report.problems[0]);
}

#[test]
fn an_index_that_lost_its_entries_is_found_without_a_lock() {
    use mycelium_encoding::{DatumRef, Schema};
    use mycelium_engine::{IndexOptions, Options, VerifyReport};
    use mycelium_manifest::{Manifest, ManifestOptions, TableRecord, VersionEdit};
    let disk = MemoryDisk::new();
    let database = Database::open(DIRECTORY, small_options(&disk)).unwrap();
    let schema = Schema::parse("id int64 not null, city utf8, primary key (id)").unwrap();
    let table = database.create_typed_table("people", schema, small_table()).unwrap();
    let options = IndexOptions { name: "by_city".into(), on: vec!["city".into()], ..IndexOptions::default() };
    database.create_index(&table, &options).unwrap();
    for id in 0..50 {
        table.insert_row(&[DatumRef::Int64(id), DatumRef::Utf8("Graz")], Durability::Os).unwrap();
    }
    database.flush().unwrap();
    while database.step().unwrap() {}
    drop(table);
    database.close().unwrap();
    let verified = || -> VerifyReport {
        let mut report = verify_directory(&disk, Path::new(DIRECTORY), |_, _| ()).unwrap();
        assert!(report.is_ok() && report.derived == 0, "{:?}", report.problems);
        let options = Options { read_only: true, ..small_options(&disk) };
        Database::open(DIRECTORY, options).unwrap().verify_derived(&mut report);
        report
    };
    let sound = verified();
    assert!(sound.is_ok() && sound.derived == 1, "{:?}", sound.problems);

    let (mut manifest, state) =
        Manifest::recover(std::sync::Arc::new(disk.clone()), Path::new(DIRECTORY), ManifestOptions::default()).unwrap();
    let mut edit = VersionEdit::default();
    for (id, index) in state.tables.iter().filter(|(_, table)| table.record.layout == TableRecord::DERIVED) {
        for (level, of_level) in index.version.levels.iter().enumerate() {
            for file in of_level.runs.iter().flat_map(|run| &run.files) {
                edit.remove_file(*id, level, file.number);
            }
        }
    }
    assert!(!edit.removed_files.is_empty());
    manifest.apply(&edit).unwrap();
    drop(manifest);
    let report = verified();
    assert_eq!(report.problem_count, 1, "{:?}", report.problems);
    let message = report.problems[0].to_string();
    assert!(message.contains("by_city") && message.contains("50 entries"), "{message}");
}
