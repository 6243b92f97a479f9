//! Damaged databases are salvaged: every row is one that was there, what is lost is told, and nothing else is.
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mycelium_base::{ColumnSet, FileKind, FileNumber};
use mycelium_encoding::{Column, ColumnType, Datum, DatumRef, Schema};
use mycelium_engine::{
    Buffering, Database, Durability, Error, ErrorKind, IndexOptions, Layout, LeveledOptions, OlderVersions, Options,
    Policy, ReadOptions, Result, SalvageOptions, SalvageReport, Table, TableOptions, WriteBatch, salvage,
};
use mycelium_manifest::{FileMeta, Manifest, Version, read_edits};
use mycelium_vfs::{Disk, MemoryDisk};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::common::{Append, Rows, assert_verified, key, scan, small_options, small_table};

const DIRECTORY: &str = "/db";
const SAVED: &str = "/saved";

/// A table's rows, and all that any of its keys ever had.
#[derive(Default)]
struct Model {
    newest: Rows,
    ever: BTreeSet<(Vec<u8>, Vec<u8>)>,
}

impl Model {
    fn put(&mut self, table: &Table, key: Vec<u8>, value: Vec<u8>) {
        table.put(&key, &value, Durability::Os).unwrap();
        self.note(key, value);
    }

    fn note(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.ever.insert((key.clone(), value.clone()));
        self.newest.insert(key, value);
    }
}

/// Several levels, deletes, range deletes, ingested files and a log. No value comes twice.
fn build(disk: &MemoryDisk) -> Model {
    build_with(disk, small_table(), || ())
}

/// The same of another table. `seen` is called whenever files came.
fn build_with(disk: &MemoryDisk, options: TableOptions, mut seen: impl FnMut()) -> Model {
    let database = Database::open(DIRECTORY, small_options(disk)).unwrap();
    let table = database.create_table("t", options).unwrap();
    let mut rng = SmallRng::seed_from_u64(3);
    let mut model = Model::default();
    for round in 0..5 {
        for n in 0..500 {
            let key = key(rng.random_range(0..1500));
            match rng.random_range(0..8) {
                0 => {
                    table.delete(&key, Durability::Os).unwrap();
                    model.newest.remove(&key);
                }
                _ => model.put(&table, key, format!("{round} {n} {}", "-".repeat(30)).into_bytes()),
            }
        }
        let from = rng.random_range(0..1400);
        table.delete_range(&key(from), &key(from + 40), Durability::Os).unwrap();
        (from..from + 40).for_each(|n| drop(model.newest.remove(&key(n))));
        database.flush().unwrap();
        seen();
        database.step().unwrap();
        seen();
    }
    table.ingest((1450..1700).map(|n| Ok((key(n), format!("ingested {n}"))))).unwrap();
    (1450..1700).for_each(|n| model.note(key(n), format!("ingested {n}").into_bytes()));
    while database.step().unwrap() {
        seen();
    }
    for n in 0..200 {
        model.put(&table, key(rng.random_range(0..1700)), format!("level 0 {n}").into_bytes());
    }
    database.flush().unwrap();
    model.put(&table, key(7), b"in the log".to_vec());
    drop(table);
    database.close().unwrap();
    model
}

/// The SSTs that the manifest names, the oldest first.
fn ssts(disk: &MemoryDisk) -> Vec<PathBuf> {
    let state = Manifest::read(disk, Path::new(DIRECTORY)).unwrap();
    let files = state.tables.values().flat_map(|table| table.version.files().map(|(_, _, file)| file.number));
    let numbers: BTreeSet<_> = files.collect();
    numbers.into_iter().map(|number| Path::new(DIRECTORY).join(FileKind::Sst.name(number))).collect()
}

/// The newest segment of the log.
fn newest_log(disk: &MemoryDisk) -> PathBuf {
    let is_log = |path: &PathBuf| path.starts_with(DIRECTORY) && path.extension().is_some_and(|e| e == "wal");
    disk.paths().into_iter().rfind(is_log).unwrap()
}

fn manifest(disk: &MemoryDisk) -> PathBuf {
    let is_one = |path: &PathBuf| path.to_string_lossy().starts_with("/db/MANIFEST");
    disk.paths().into_iter().find(is_one).unwrap()
}

/// All bytes of the damaged directory.
fn contents(disk: &MemoryDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = disk.paths().into_iter().filter(|path| path.starts_with(DIRECTORY));
    paths.map(|path| (path.clone(), disk.read_bytes(&path).unwrap())).collect()
}

/// Salvages, and sees to it that the damaged directory stays what it is.
fn try_salvage(disk: &MemoryDisk, older: OlderVersions) -> Result<SalvageReport> {
    let before = contents(disk);
    let options = SalvageOptions { disk: Arc::new(disk.clone()), older };
    let report = salvage(DIRECTORY, SAVED, &options, |done, total| assert!(done <= total));
    assert!(contents(disk) == before, "the damaged directory was written to");
    report
}

/// The new database, in which everything is as it should be.
fn open_saved(options: Options) -> Database {
    let database = Database::open(SAVED, Options { create_if_missing: false, ..options }).unwrap();
    database.wait_idle().unwrap();
    assert_verified(&database);
    database
}

fn rows(disk: &MemoryDisk) -> Rows {
    // A damaged manifest may know of no table.
    open_saved(small_options(disk)).table("t").map_or_else(|_| Rows::new(), |table| scan(&table))
}

fn is_lost(report: &SalvageReport, key: &[u8]) -> bool {
    report.lost.iter().any(|lost| lost.table == "t" && lost.range.contains(key))
}

/// Every row is the newest one or, where older ones are kept, was there once; others are told as lost.
fn check(model: &Model, rows: &Rows, report: &SalvageReport, older: OlderVersions, context: &str) {
    for (key, value) in rows {
        let is_newest = model.newest.get(key) == Some(value);
        let was_there = model.ever.contains(&(key.clone(), value.clone()));
        let may_be_old = older == OlderVersions::Keep && was_there && is_lost(report, key);
        assert!(is_newest || may_be_old, "{context}: {} has an old row", key.escape_ascii());
    }
    for key in model.newest.keys() {
        assert!(rows.contains_key(key) || is_lost(report, key), "{context}: {} is gone", key.escape_ascii());
    }
    if report.is_complete() {
        assert!(*rows == model.newest, "{context}: nothing is told as lost");
    }
}

/// Salvages in both ways and checks what comes of it.
fn check_both(disk: &MemoryDisk, model: &Model, damaged: &Path, context: &str) -> Vec<SalvageReport> {
    let ways = [OlderVersions::LeaveOut, OlderVersions::Keep];
    let reports = ways.into_iter().map(|older| {
        let image = disk.kill_image();
        let context = format!("{context}, {older:?}");
        let report = try_salvage(&image, older).unwrap_or_else(|e| panic!("{context}: {e}"));
        check(model, &rows(&image), &report, older, &context);
        let names = |error: &Error| error.file() == Some(damaged) && error.offset().is_some();
        assert!(report.damage.iter().all(|problem| names(&problem.error)), "{context}: {:?}", report.damage);
        assert!(report.lost.iter().all(|lost| names(&lost.error)), "{context}: {:?}", report.lost);
        report
    });
    reports.collect()
}

#[test]
fn a_sound_database_is_salvaged_as_it_is() {
    let disk = MemoryDisk::new();
    let model = build(&disk);
    let report = try_salvage(&disk, OlderVersions::LeaveOut).unwrap();
    assert!(report.is_complete() && !report.is_empty() && report.damage.is_empty(), "{report:?}");
    assert_eq!((report.copied_files, report.rewritten_files, report.log_records), (report.files, 0, 1));
    assert!(report.files > 4 && report.left_out == 0, "{report:?}");
    assert!(rows(&disk) == model.newest);
}

#[test]
fn whatever_bit_of_an_sst_flips_rows_are_right_or_told_as_lost() {
    let disk = MemoryDisk::new();
    let model = build(&disk);
    let mut rng = SmallRng::seed_from_u64(17);
    let mut lossy = 0;
    for path in ssts(&disk) {
        for _ in 0..3 {
            let image = disk.kill_image();
            let bit = rng.random_range(0..image.file_len(&path).unwrap() * 8);
            image.flip_bit(&path, bit).unwrap();
            let reports = check_both(&image, &model, &path, &format!("bit {bit} of {}", path.display()));
            for report in reports {
                assert_eq!(report.damage.len(), 1);
                // A block has a few dozen entries.
                let lost: u64 = report.lost.iter().map(|lost| lost.entries).sum();
                assert!(lost < 60, "{:?}", report.lost);
                lossy += u32::from(!report.is_complete());
            }
        }
    }
    assert!(lossy > 10);
}

#[test]
fn a_missing_sst_brings_no_older_row_back_unless_that_is_wanted() {
    let disk = MemoryDisk::new();
    let model = build(&disk);
    let (mut left_out, mut returned) = (0, 0);
    for path in ssts(&disk) {
        let image = disk.kill_image();
        image.remove(&path).unwrap();
        let reports = check_both(&image, &model, &path, &format!("without {}", path.display()));
        assert!(reports.iter().all(|report| report.lost.len() == 1 && report.lost[0].entries > 0));
        left_out += reports[0].left_out;
        assert_eq!(reports[1].left_out, 0);
        returned += reports[1].entries - reports[0].entries;
    }
    // What is in the log is not counted in either.
    assert!(left_out > 100);
    assert_eq!(left_out, returned);
}

#[test]
fn an_sst_that_is_cut_off_or_another_is_salvaged_as_far_as_it_goes() {
    let disk = MemoryDisk::new();
    let model = build(&disk);
    let paths = ssts(&disk);
    for path in &paths {
        let len = disk.file_len(path).unwrap() as usize;
        for left in [0, 50, len / 2, len - 1] {
            let image = disk.kill_image();
            image.set_len(path, left).unwrap();
            check_both(&image, &model, path, &format!("{} of {left} bytes", path.display()));
        }
    }
    let image = disk.kill_image();
    image.copy_file(&paths[0], &paths[1]).unwrap();
    let report = &check_both(&image, &model, &paths[1], "another file")[0];
    assert!(report.lost.iter().any(|lost| lost.entries > 0), "{report:?}");
}

/// Blocks are found by their checksums where there is no index, and filters are made anew.
#[test]
fn damage_behind_the_data_blocks_costs_no_row() {
    let disk = MemoryDisk::new();
    let model = build(&disk);
    let path = ssts(&disk).pop().unwrap();
    let len = disk.file_len(&path).unwrap();
    // Footer, properties and the end of the index. This file has no range deletes.
    for from_end in (1..300).step_by(13) {
        let image = disk.kill_image();
        image.flip_bit(&path, (len - from_end) * 8).unwrap();
        for report in check_both(&image, &model, &path, &format!("{from_end} bytes before the end")) {
            assert!(report.is_complete() && report.rewritten_files == 1, "{from_end}: {report:?}");
        }
    }
}

#[test]
fn the_log_is_kept_up_to_its_damage_in_whole_batches() {
    let disk = MemoryDisk::new();
    let database = Database::open(DIRECTORY, small_options(&disk)).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    let (mut present, mut states) = (Rows::new(), Vec::new());
    for n in 0..40_u32 {
        let mut batch = WriteBatch::new();
        for key in [key(n % 7), key(100 + n % 5)] {
            let value = format!("value {n}").into_bytes();
            batch.put(&table, &key, &value);
            present.insert(key, value);
        }
        database.write(&batch, Durability::Sync).unwrap();
        states.push(present.clone());
        if n == 9 {
            database.flush().unwrap();
        }
    }
    drop(table);
    database.close().unwrap();
    let log = newest_log(&disk);
    let mut found = BTreeSet::new();
    for at in (0..disk.file_len(&log).unwrap()).step_by(29) {
        let image = disk.kill_image();
        image.flip_bit(&log, at * 8 + at % 8).unwrap();
        let report = try_salvage(&image, OlderVersions::LeaveOut).unwrap();
        let rows = rows(&image);
        let moment = states.iter().position(|state| *state == rows);
        assert!(moment.is_some_and(|moment| moment >= 9), "byte {at}: half a batch, or too little");
        assert!(moment == Some(39) || report.lost_log || report.torn_tail.is_some(), "byte {at}: {report:?}");
        let names = |error: &Error| error.file() == Some(log.as_path()) && error.offset().is_some();
        assert!(report.damage.iter().all(|problem| names(&problem.error)), "{:?}", report.damage);
        found.insert(moment);
    }
    assert!(found.len() > 10);
    disk.remove(&log).unwrap();
    let report = try_salvage(&disk, OlderVersions::LeaveOut).unwrap();
    assert!(report.lost_log && report.damage[0].error.file() == Some(log.as_path()), "{report:?}");
    assert!(rows(&disk) == states[9]);
}

/// Files know of what it has lost.
#[test]
fn a_damaged_manifest_costs_no_row() {
    let disk = MemoryDisk::new();
    let model = build(&disk);
    let path = manifest(&disk);
    let mut lost_edits = 0;
    for at in (0..disk.file_len(&path).unwrap()).step_by(101) {
        let image = disk.kill_image();
        image.flip_bit(&path, at * 8 + at % 8).unwrap();
        let report = try_salvage(&image, OlderVersions::LeaveOut).unwrap_or_else(|e| panic!("byte {at}: {e}"));
        assert!(rows(&image) == model.newest, "byte {at}: {report:?}");
        let named = report.damage.iter().any(|problem| problem.error.file() == Some(path.as_path()));
        assert!(named || !report.lost_edits, "byte {at}: {:?}", report.damage);
        lost_edits += u32::from(report.lost_edits);
    }
    assert!(lost_edits > 0);
}

/// A manifest that is cut off between two edits looks whole.
#[test]
fn a_manifest_that_ends_at_any_edit_costs_no_row() {
    let disk = MemoryDisk::new();
    let model = build(&disk);
    let path = manifest(&disk);
    let mut borders = vec![0];
    read_edits(&disk, &path, &mut |offset, _| {
        borders.push(offset as usize);
        Ok(())
    })
    .unwrap();
    assert!(borders.len() > 10);
    for border in borders {
        let image = disk.kill_image();
        image.set_len(&path, border).unwrap();
        let report = try_salvage(&image, OlderVersions::LeaveOut).unwrap_or_else(|e| panic!("{border} bytes: {e}"));
        assert!(report.lost_edits && !report.damage.is_empty(), "{border} bytes: {report:?}");
        assert!(report.lost.is_empty() && !report.lost_log, "{border} bytes: {report:?}");
        assert!(rows(&image) == model.newest, "{border} bytes: {report:?}");
    }
}

/// Without `CURRENT`, too, if that is wanted.
fn remove_manifest(disk: &MemoryDisk, with_current: bool) {
    disk.remove(&manifest(disk)).unwrap();
    if with_current {
        disk.remove(Path::new("/db/CURRENT")).unwrap();
    }
}

#[test]
fn without_a_manifest_files_say_where_they_belong() {
    let two_phase = TableOptions {
        policy: match small_table().policy {
            Policy::Leveled(levels) => Policy::TwoPhase(levels),
            other => other,
        },
        buffer: Buffering::Full,
        ..small_table()
    };
    for (name, options) in [("leveled", small_table()), ("two-phase", two_phase)] {
        let disk = MemoryDisk::new();
        let model = build_with(&disk, options, || ());
        for with_current in [false, true] {
            for older in [OlderVersions::LeaveOut, OlderVersions::Keep] {
                let image = disk.kill_image();
                remove_manifest(&image, with_current);
                let report = try_salvage(&image, older).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert!(report.lost_edits && report.lost.is_empty() && !report.lost_log, "{name}: {report:?}");
                assert_eq!((report.log_records, &report.unplaced_files), (1, &Vec::new()), "{name}");
                assert!(rows(&image) == model.newest, "{name}");
            }
        }
    }
}

/// They lay beside what had replaced them, and had what was deleted since: all of them, or some of each compaction's.
#[test]
fn replaced_files_that_came_back_bring_no_row_back() {
    let disk = MemoryDisk::new();
    let mut seen: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    let model = build_with(&disk, small_table(), || {
        seen.extend(contents(&disk).into_iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "sst")));
    });
    let live = ssts(&disk);
    seen.retain(|path, _| !live.contains(path));
    assert!(seen.len() > 3, "{}", seen.len());
    for kept in [&[0, 1, 2][..], &[0], &[1], &[2], &[0, 1], &[1, 2]] {
        for has_manifest in [true, false] {
            let image = disk.kill_image();
            for (_, (path, bytes)) in seen.iter().enumerate().filter(|(n, _)| kept.contains(&(n % 3))) {
                let mut file = image.create(path).unwrap();
                file.append(bytes).unwrap();
                file.sync().unwrap();
            }
            if !has_manifest {
                remove_manifest(&image, false);
            }
            let report = try_salvage(&image, OlderVersions::LeaveOut).unwrap();
            assert_eq!(report.is_complete(), has_manifest, "{kept:?}: {report:?}");
            assert!(rows(&image) == model.newest, "{kept:?}, manifest {has_manifest}");
        }
    }
}

/// A crash may leave the inputs of the last job, some of them, or none.
#[test]
fn without_a_manifest_the_last_compaction_counts_or_its_inputs_do() {
    let disk = MemoryDisk::new();
    let database = Database::open(DIRECTORY, small_options(&disk)).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    for n in 0..300 {
        table.put(&key(n), b"first", Durability::Os).unwrap();
    }
    database.compact(&table).unwrap();
    for n in (0..300).step_by(2) {
        table.delete(&key(n), Durability::Os).unwrap();
    }
    database.flush().unwrap();
    let inputs: Vec<(PathBuf, Vec<u8>)> =
        ssts(&disk).into_iter().map(|path| (path.clone(), disk.read_bytes(&path).unwrap())).collect();
    // To the last level: deletes meet what they delete.
    database.compact(&table).unwrap();
    database.wait_idle().unwrap();
    let expected = scan(&table);
    assert_eq!(expected.len(), 150);
    drop(table);
    database.close().unwrap();
    assert!(inputs.len() >= 2 && inputs.iter().all(|(path, _)| !disk.exists(path).unwrap()));
    for left in 0..1_u32 << inputs.len().min(5) {
        let image = disk.kill_image();
        for (_, (path, bytes)) in inputs.iter().enumerate().filter(|(n, _)| (left >> n) & 1 == 1) {
            image.create(path).unwrap().append(bytes).unwrap();
        }
        remove_manifest(&image, true);
        let report = try_salvage(&image, OlderVersions::LeaveOut).unwrap();
        assert!(report.lost.is_empty() && report.unplaced_files.is_empty(), "{left:b}: {report:?}");
        assert!(rows(&image) == expected, "{left:b}: {report:?}");
    }
}

#[test]
fn without_a_manifest_a_file_that_others_list_is_missed() {
    let disk = MemoryDisk::new();
    let model = build(&disk);
    let mut paths = ssts(&disk);
    // Nothing lists the newest one but the manifest.
    paths.pop();
    for path in paths {
        for (older, cuts) in
            [(OlderVersions::LeaveOut, false), (OlderVersions::LeaveOut, true), (OlderVersions::Keep, true)]
        {
            let image = disk.kill_image();
            match cuts {
                true => image.set_len(&path, 200).unwrap(),
                false => image.remove(&path).unwrap(),
            }
            remove_manifest(&image, false);
            let report = try_salvage(&image, older).unwrap();
            let context = format!("without {}, {older:?}", path.display());
            assert!(report.lost.len() == 1 && report.lost[0].may_be_any_key(), "{context}: {report:?}");
            assert_eq!(report.lost[0].error.file(), Some(path.as_path()), "{context}");
            check(&model, &rows(&image), &report, older, &context);
        }
    }
}

#[test]
fn without_a_manifest_damaged_blocks_are_told() {
    let disk = MemoryDisk::new();
    let model = build(&disk);
    for path in ssts(&disk) {
        let image = disk.kill_image();
        image.flip_bit(&path, 8 * 40).unwrap();
        remove_manifest(&image, false);
        let report = try_salvage(&image, OlderVersions::LeaveOut).unwrap();
        assert!(report.lost.len() == 1 && !report.lost[0].may_be_any_key(), "{report:?}");
        check(&model, &rows(&image), &report, OlderVersions::LeaveOut, &format!("{}", path.display()));
    }
}

#[test]
fn without_a_manifest_column_groups_are_whole_and_indexes_are_built_again() {
    for layout in [
        "L0 tiered: * packed\nL1 leveled: 1 packed | 2 packed",
        "L0 tiered: * columnar\nL1 leveled: 1 columnar | 2 columnar",
    ] {
        let disk = MemoryDisk::new();
        let people = build_groups(&disk, layout);
        remove_manifest(&disk, true);
        let report = try_salvage(&disk, OlderVersions::LeaveOut).unwrap();
        assert!(report.lost.is_empty(), "{layout}: {report:?}");
        assert_eq!(report.emptied_indexes, ["t/by_number"], "{layout}");
        assert_eq!(report.dropped_indexes, ["t/by_name"], "{layout}");
        let database = open_saved(small_options(&disk));
        let table = database.table("t").unwrap();
        for id in 0..600 {
            let found = table.get_row(&[DatumRef::Int64(id)], None, &ReadOptions::default()).unwrap();
            let written = people
                .get(&id)
                .map(|(name, number)| vec![Datum::Int64(id), Datum::Utf8(name.clone()), Datum::Int32(*number)]);
            assert!(found == written, "{layout}: row {id}: {found:?}");
        }
    }
}

/// Lists name the columns that older files lack.
#[test]
fn without_a_manifest_rows_from_before_a_column_are_read() {
    let disk = MemoryDisk::new();
    let database = Database::open(DIRECTORY, small_options(&disk)).unwrap();
    let schema = Schema::parse("id int64 not null, name utf8 not null, primary key (id)").unwrap();
    let table = database.create_typed_table("t", schema, small_table()).unwrap();
    for id in 0..400 {
        let row = [DatumRef::Int64(id), DatumRef::Utf8("a name")];
        table.insert_row(&row, Durability::Os).unwrap();
    }
    database.compact(&table).unwrap();
    let table = database.add_column(&table, Column::new("later", ColumnType::Int32)).unwrap();
    for id in (0..400).step_by(3) {
        let later = [("later", DatumRef::Int32(id as i32))];
        table.patch_row(&[DatumRef::Int64(id)], &later, Durability::Os).unwrap();
    }
    database.flush().unwrap();
    drop(table);
    database.close().unwrap();
    remove_manifest(&disk, false);
    let report = try_salvage(&disk, OlderVersions::LeaveOut).unwrap();
    assert!(report.lost.is_empty(), "{report:?}");
    let table = open_saved(small_options(&disk)).table("t").unwrap();
    for id in 0..400 {
        let later = if id % 3 == 0 { Datum::Int32(id as i32) } else { Datum::Null };
        let written = [Datum::Int64(id), Datum::Utf8("a name".into()), later];
        let found = table.get_row(&[DatumRef::Int64(id)], None, &ReadOptions::default()).unwrap();
        assert!(found.as_deref() == Some(&written[..]), "row {id}: {found:?}");
    }
}

/// A file names the tables that there were, and describes those without files.
#[test]
fn without_a_manifest_dropped_tables_stay_away_and_those_in_the_log_are_there() {
    let disk = MemoryDisk::new();
    let database = Database::open(DIRECTORY, small_options(&disk)).unwrap();
    let dropped = database.create_table("dropped", small_table()).unwrap();
    dropped.put(b"key", b"value", Durability::Os).unwrap();
    database.flush().unwrap();
    let files: Vec<_> =
        contents(&disk).into_iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "sst")).collect();
    drop(dropped);
    database.drop_table("dropped").unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    let logged = database.create_table("logged", small_table()).unwrap();
    table.put(b"key", b"in a file", Durability::Os).unwrap();
    database.flush().unwrap();
    logged.put(b"key", b"in the log", Durability::Sync).unwrap();
    drop((table, logged));
    database.close().unwrap();
    for (path, bytes) in files {
        disk.create(&path).unwrap().append(&bytes).unwrap();
    }
    remove_manifest(&disk, false);
    let report = try_salvage(&disk, OlderVersions::LeaveOut).unwrap();
    assert!(report.unplaced_files.is_empty() && !report.lost_log, "{report:?}");
    let saved = open_saved(small_options(&disk));
    assert!(saved.table("dropped").is_err());
    let value = |name: &str| saved.table(name).unwrap().get(b"key").unwrap().map(|value| value.to_vec());
    assert_eq!(value("t"), Some(b"in a file".to_vec()));
    assert_eq!(value("logged"), Some(b"in the log".to_vec()));
}

/// Nobody knows which sequence number their rows have.
#[test]
fn bulk_loaded_files_that_nothing_lists_are_no_database() {
    let disk = MemoryDisk::new();
    let database = Database::open(DIRECTORY, small_options(&disk)).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    table.ingest((0..100).map(|n| Ok((key(n), "loaded")))).unwrap();
    drop(table);
    database.close().unwrap();
    remove_manifest(&disk, false);
    let error = try_salvage(&disk, OlderVersions::Keep).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("no manifest"), "{error}");
}

#[test]
fn without_current_the_newest_manifest_is_taken() {
    let disk = MemoryDisk::new();
    let model = build(&disk);
    let current = Path::new("/db/CURRENT");
    let damaged = disk.kill_image();
    damaged.flip_bit(current, 100).unwrap();
    let gone = disk.kill_image();
    gone.remove(current).unwrap();
    for image in [damaged, gone] {
        let report = try_salvage(&image, OlderVersions::LeaveOut).unwrap();
        assert!(report.is_complete() && report.damage.len() == 1, "{report:?}");
        assert_eq!(report.damage[0].error.file(), Some(current));
        assert!(rows(&image) == model.newest);
    }
}

type People = BTreeMap<i64, (String, i32)>;

/// A table of two column groups below level 0, with an index.
fn build_groups(disk: &MemoryDisk, layout: &str) -> People {
    let database = Database::open(DIRECTORY, small_options(disk)).unwrap();
    let schema =
        Schema::parse("id int64 not null, name utf8 not null, number int32 not null, primary key (id)").unwrap();
    let layout = Some(Layout::parse(layout, &ColumnSet::from_iter([1, 2])).unwrap());
    let table = database.create_typed_table("t", schema, TableOptions { layout, ..small_table() }).unwrap();
    for (column, unique) in [("number", false), ("name", true)] {
        let index =
            IndexOptions { name: format!("by_{column}"), on: vec![column.into()], unique, ..IndexOptions::default() };
        database.create_index(&table, &index).unwrap();
    }
    let mut rng = SmallRng::seed_from_u64(9);
    let mut people = People::new();
    for n in 0..2500 {
        let (id, number) = (rng.random_range(0..600), rng.random_range(0..50));
        let of_id = [DatumRef::Int64(id)];
        let draw = rng.random_range(0..8);
        if draw == 0 {
            table.delete_row(&of_id, Durability::Os).unwrap();
            people.remove(&id);
        } else if let Some(person) = people.get_mut(&id).filter(|_| draw < 4) {
            table.patch_row(&of_id, &[("number", DatumRef::Int32(number))], Durability::Os).unwrap();
            person.1 = number;
        } else {
            let name = format!("name {n} {}", "-".repeat(20));
            table.insert_row(&[of_id[0], DatumRef::Utf8(&name), DatumRef::Int32(number)], Durability::Os).unwrap();
            people.insert(id, (name, number));
        }
        if n % 250 == 249 {
            database.flush().unwrap();
            // Part of the compactions, so that the groups of a row lie at several levels.
            database.step().unwrap();
        }
    }
    drop(table);
    database.close().unwrap();
    people
}

#[test]
fn rows_in_column_groups_are_whole_or_left_out_and_indexes_are_built_again() {
    for layout in [
        "L0 tiered: * packed\nL1 leveled: 1 packed | 2 packed",
        "L0 tiered: * columnar\nL1 leveled: 1 columnar | 2 columnar",
    ] {
        let disk = MemoryDisk::new();
        let people = build_groups(&disk, layout);
        let mut rng = SmallRng::seed_from_u64(4);
        let (mut lost_rows, mut emptied) = (0, 0);
        for path in ssts(&disk) {
            let image = disk.kill_image();
            match rng.random_range(0..4) {
                0 => image.remove(&path).unwrap(),
                _ => image.flip_bit(&path, rng.random_range(0..image.file_len(&path).unwrap() * 8)).unwrap(),
            }
            let report = try_salvage(&image, OlderVersions::LeaveOut).unwrap();
            assert_eq!(report.damage.len(), 1, "{:?}", report.damage);
            let database = open_saved(small_options(&image));
            let table = database.table("t").unwrap();
            for id in 0..600 {
                let found = table.get_row(&[DatumRef::Int64(id)], None, &ReadOptions::default()).unwrap();
                let written = people
                    .get(&id)
                    .map(|(name, number)| vec![Datum::Int64(id), Datum::Utf8(name.clone()), Datum::Int32(*number)]);
                if found != written {
                    let key = table.row_key(&[DatumRef::Int64(id)]).unwrap();
                    assert!(found.is_none() && is_lost(&report, &key), "{}: row {id}: {found:?}", path.display());
                    lost_rows += 1;
                }
            }
            if !report.lost.is_empty() {
                assert_eq!((report.emptied_indexes.len(), report.dropped_indexes.len()), (1, 1), "{report:?}");
            }
            assert!(report.emptied_indexes.iter().all(|name| name == "t/by_number"), "{report:?}");
            assert!(report.dropped_indexes.iter().all(|name| name == "t/by_name"), "{report:?}");
            emptied += report.emptied_indexes.len();
        }
        assert!(lost_rows > 0 && emptied > 0, "{lost_rows} {emptied}");
    }
}

/// Files from before a column came or went are written anew as they were, without it or with it.
#[test]
fn rows_from_before_a_column_are_right_or_told_as_lost() {
    let groups = "L0 tiered: * packed\nL1 leveled: 1 packed | 2 columnar";
    for (layout, is_dropped) in [
        ("L0 tiered: * packed\nL1 leveled: * packed", true),
        ("L0 tiered: * columnar\nL1 leveled: * columnar", false),
        (groups, false),
        (groups, true),
    ] {
        let disk = MemoryDisk::new();
        let database = Database::open(DIRECTORY, small_options(&disk)).unwrap();
        let schema =
            Schema::parse("id int64 not null, name utf8 not null, number int32 not null, primary key (id)").unwrap();
        let levels = Some(Layout::parse(layout, &ColumnSet::from_iter([1, 2])).unwrap());
        let options = TableOptions { layout: levels, ..small_table() };
        let table = database.create_typed_table("t", schema, options).unwrap();
        let name = |id: i64| format!("name {id} {}", "-".repeat(20));
        for id in 0..600 {
            let text = name(id);
            let row = [DatumRef::Int64(id), DatumRef::Utf8(&text), DatumRef::Int32(id as i32)];
            table.insert_row(&row, Durability::Os).unwrap();
        }
        database.compact(&table).unwrap();
        let table = database.add_column(&table, Column::new("later", ColumnType::Int32)).unwrap();
        let mut table = database.add_column(&table, "fixed utf8 not null default 'x'".parse().unwrap()).unwrap();
        if is_dropped {
            table = database.drop_column(&table, "number").unwrap();
        }
        for id in (0..600).step_by(3) {
            let later = [("later", DatumRef::Int32(id as i32))];
            table.patch_row(&[DatumRef::Int64(id)], &later, Durability::Os).unwrap();
        }
        database.flush().unwrap();
        drop(table);
        database.close().unwrap();
        let mut rewritten = 0;
        for path in ssts(&disk) {
            let len = disk.file_len(&path).unwrap();
            for at in [30, len / 3, len / 2, len - 100] {
                let image = disk.kill_image();
                image.flip_bit(&path, at * 8).unwrap();
                let report = try_salvage(&image, OlderVersions::LeaveOut).unwrap();
                rewritten += report.rewritten_files;
                let table = open_saved(small_options(&image)).table("t").unwrap();
                for id in 0..600 {
                    let later = if id % 3 == 0 { Datum::Int32(id as i32) } else { Datum::Null };
                    let fixed = Datum::Utf8("x".into());
                    let number = if is_dropped { Datum::Null } else { Datum::Int32(id as i32) };
                    let written = [Datum::Int64(id), Datum::Utf8(name(id)), number, later, fixed];
                    let found = table.get_row(&[DatumRef::Int64(id)], None, &ReadOptions::default()).unwrap();
                    let key = table.row_key(&[DatumRef::Int64(id)]).unwrap();
                    let is_told = found.is_none() && is_lost(&report, &key);
                    assert!(
                        found.as_deref() == Some(&written[..]) || is_told,
                        "{layout}, byte {at}: row {id}: {found:?}"
                    );
                }
            }
        }
        assert!(rewritten > 0, "{layout}");
    }
}

/// The version of table `t`.
fn version(disk: &MemoryDisk) -> Arc<Version> {
    let state = Manifest::read(disk, Path::new(DIRECTORY)).unwrap();
    state.table_named("t").unwrap().version.clone()
}

fn is_of_one_column(file: &FileMeta) -> bool {
    file.group.as_ref().is_some_and(|group| group.columns.len() == 1)
}

/// Whole rows at two levels, and above them, under another layout, column groups in which every row was patched or
/// deleted since.
fn build_two_layouts(disk: &MemoryDisk) -> People {
    let database = Database::open(DIRECTORY, small_options(disk)).unwrap();
    let policy = Policy::Leveled(LeveledOptions {
        level0_trigger: 2,
        level_count: 4,
        base_level_bytes: 4 << 10,
        target_file_size: 2 << 10,
        fanout: 3.0,
        ..LeveledOptions::default()
    });
    let layout = |text: &str| Layout::parse(text, &ColumnSet::from_iter([1, 2])).unwrap();
    let whole = Some(layout("L0 tiered: * packed\nL1 leveled: * columnar"));
    let schema =
        Schema::parse("id int64 not null, name utf8 not null, number int32 not null, primary key (id)").unwrap();
    let options = TableOptions { policy, layout: whole, ..small_table() };
    let table = database.create_typed_table("t", schema, options).unwrap();
    let mut rng = SmallRng::seed_from_u64(11);
    let mut people = People::new();
    for _ in 0..6 {
        for _ in 0..400 {
            let (id, number) = (rng.random_range(0..800), rng.random_range(0..50));
            let name = format!("{:016x}{:016x}", rng.random::<u64>(), rng.random::<u64>());
            let row = [DatumRef::Int64(id), DatumRef::Utf8(&name), DatumRef::Int32(number)];
            table.insert_row(&row, Durability::Os).unwrap();
            people.insert(id, (name, number));
        }
        database.flush().unwrap();
        database.wait_idle().unwrap();
    }
    database.set_layout(&table, layout("L0 tiered: * packed\nL1 leveled: 1 columnar | 2 columnar")).unwrap();
    for half in 0..2 {
        for id in (half..800).step_by(2) {
            let of_id = [DatumRef::Int64(id)];
            if id % 5 == 0 {
                table.delete_row(&of_id, Durability::Os).unwrap();
                people.remove(&id);
            } else {
                table.patch_row(&of_id, &[("number", DatumRef::Int32(99))], Durability::Os).unwrap();
                people.get_mut(&id).into_iter().for_each(|person| person.1 = 99);
            }
        }
        database.flush().unwrap();
    }
    while !version(disk).files().any(|(_, _, file)| is_of_one_column(file)) {
        assert!(database.step().unwrap());
    }
    drop(table);
    database.close().unwrap();
    people
}

/// The column groups are left out where something is lost, with the patches and deletes in them. The whole rows that
/// lay below them, and above what is lost, were there again.
#[test]
fn whole_rows_below_column_groups_that_are_left_out_do_not_come_back() {
    let disk = MemoryDisk::new();
    let people = build_two_layouts(&disk);
    let version = version(&disk);
    let whole: Vec<(usize, FileNumber)> = version
        .files()
        .filter(|(_, _, file)| !is_of_one_column(file))
        .map(|(level, _, file)| (level, file.number))
        .collect();
    let deepest = whole.iter().map(|(level, _)| *level).max().unwrap();
    assert!(whole.iter().any(|(level, _)| (1..deepest).contains(level)), "whole rows above the deepest: {whole:?}");
    let mut left_out = 0;
    for (_, number) in whole.iter().filter(|(level, _)| *level == deepest).step_by(6) {
        let image = disk.kill_image();
        image.remove(&Path::new(DIRECTORY).join(FileKind::Sst.name(*number))).unwrap();
        let report = try_salvage(&image, OlderVersions::LeaveOut).unwrap();
        left_out += report.left_out;
        let database = open_saved(small_options(&image));
        let table = database.table("t").unwrap();
        for id in 0..800 {
            let found = table.get_row(&[DatumRef::Int64(id)], None, &ReadOptions::default()).unwrap();
            let written = people
                .get(&id)
                .map(|(name, number)| vec![Datum::Int64(id), Datum::Utf8(name.clone()), Datum::Int32(*number)]);
            let key = table.row_key(&[DatumRef::Int64(id)]).unwrap();
            let is_told = found.is_none() && is_lost(&report, &key);
            assert!(found == written || is_told, "without file {number}: row {id}: {found:?}");
        }
    }
    assert!(left_out > 0);
}

/// Half of a batch was salvaged: that over tables which are older than the edit that cannot be read.
#[test]
fn the_log_ends_where_it_is_of_a_table_that_the_manifest_lost() {
    for is_replaced in [false, true] {
        let disk = MemoryDisk::new();
        let database = Database::open(DIRECTORY, small_options(&disk)).unwrap();
        let other = database.create_table("other", small_table()).unwrap();
        other.put(b"key", b"before", Durability::Os).unwrap();
        let schema = Schema::parse("id int64 not null, name utf8, primary key (id)").unwrap();
        let mut table = database.create_typed_table("t", schema, small_table()).unwrap();
        if is_replaced {
            table = database.add_column(&table, Column::new("c", ColumnType::Int32)).unwrap();
        }
        let mut batch = WriteBatch::new();
        batch.put(&other, b"key", b"after");
        batch.delete_row(&table, &[DatumRef::Int64(1)]).unwrap();
        database.write(&batch, Durability::Sync).unwrap();
        drop((table, other));
        database.close().unwrap();

        let (path, mut damaged) = (manifest(&disk), 0);
        read_edits(&disk, &path, &mut |offset, edit| {
            if !edit.created_tables.is_empty() || !edit.replaced_tables.is_empty() {
                damaged = offset;
            }
            Ok(())
        })
        .unwrap();
        disk.flip_bit(&path, (damaged + 40) * 8).unwrap();
        let report = try_salvage(&disk, OlderVersions::LeaveOut).unwrap();
        assert!(report.lost_edits && report.lost_log, "{report:?}");
        let saved = open_saved(small_options(&disk));
        assert_eq!(saved.table("other").unwrap().get(b"key").unwrap().as_deref(), Some(&b"before"[..]));
        assert_eq!(saved.table("t").is_ok(), is_replaced);
    }
}

/// They would make a value that never was.
#[test]
fn operands_that_may_lack_their_base_are_left_out() {
    let disk = MemoryDisk::new();
    let options = |disk: &MemoryDisk| Options { merge_operators: vec![Arc::new(Append)], ..small_options(disk) };
    let database = Database::open(DIRECTORY, options(&disk)).unwrap();
    let merging = TableOptions { merge_operator: Some("append".into()), ..small_table() };
    let table = database.create_table("t", merging).unwrap();
    let mut rng = SmallRng::seed_from_u64(5);
    let mut model = Rows::new();
    for n in 0..1500 {
        let key = key(rng.random_range(0..300));
        let operand = format!("{n},").into_bytes();
        if rng.random_range(0..4) == 0 {
            table.put(&key, &operand, Durability::Os).unwrap();
            model.insert(key, operand);
        } else {
            table.merge(&key, &operand, Durability::Os).unwrap();
            model.entry(key).or_default().extend(operand);
        }
        if n % 300 == 250 {
            database.flush().unwrap();
            database.step().unwrap();
        }
    }
    drop(table);
    database.close().unwrap();
    for path in ssts(&disk) {
        let image = disk.kill_image();
        image.flip_bit(&path, 8 * 30).unwrap();
        let report = try_salvage(&image, OlderVersions::LeaveOut).unwrap();
        assert!(!report.lost.is_empty() && report.log_records > 40, "{report:?}");
        let rows = scan(&open_saved(options(&image)).table("t").unwrap());
        for (key, value) in &model {
            match rows.get(key) {
                Some(found) => assert!(found == value, "{} has another value", key.escape_ascii()),
                None => assert!(is_lost(&report, key), "{} is gone", key.escape_ascii()),
            }
        }
        assert!(rows.len() > 100);
    }
}

#[test]
fn what_cannot_be_salvaged_is_refused_and_leaves_nothing() {
    let disk = MemoryDisk::new();
    build(&disk);
    let options = SalvageOptions { disk: Arc::new(disk.clone()), older: OlderVersions::LeaveOut };
    let kind = |from: &str, to: &str| salvage(from, to, &options, |_, _| ()).unwrap_err().kind();
    assert_eq!(kind(DIRECTORY, DIRECTORY), ErrorKind::InvalidArgument);
    assert_eq!(kind(DIRECTORY, "/db/saved"), ErrorKind::InvalidArgument);
    assert_eq!(kind("/elsewhere", SAVED), ErrorKind::NotFound);
    let database = Database::open(DIRECTORY, small_options(&disk)).unwrap();
    assert_eq!(kind(DIRECTORY, SAVED), ErrorKind::Locked);
    database.close().unwrap();
    salvage(DIRECTORY, SAVED, &options, |_, _| ()).unwrap();
    assert_eq!(kind(DIRECTORY, SAVED), ErrorKind::InvalidArgument, "it holds a database");
    // A disk that fills up on the way.
    let image = disk.kill_image();
    image.set_capacity(Some(image.used_space() + 20_000));
    let options = SalvageOptions { disk: Arc::new(image.clone()), ..options };
    let error = salvage(DIRECTORY, "/other", &options, |_, _| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert_eq!(image.list(Path::new("/other")).unwrap(), Vec::<String>::new());
}
