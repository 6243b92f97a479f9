//! The manifest file: recovery, roll-over, crashes at every operation, damage, the golden file.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mycelium_base::coding::Reader;
use mycelium_base::{ErrorKind, FileKind, Group, MAX_FILE_NUMBER, Result, TableId};
use mycelium_manifest::edit::FORMAT_VERSION;
use mycelium_manifest::{
    AddedColumn, ChangedRound, DroppedColumn, FileMeta, KeyRange, Manifest, ManifestOptions, ManifestRemains,
    ManifestState, ReplacedTable, Round, RunPlace, Segment, Segments, TableRecord, VersionEdit,
};
use mycelium_vfs::{CrashDraw, CrashMode, Disk, Effect, Fault, FaultDisk, MemoryDisk, OperationKind, Throttle};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const SMALL: ManifestOptions = ManifestOptions { roll_at_bytes: 2_000 };

fn directory() -> PathBuf {
    PathBuf::from("/db")
}

fn new_disk() -> Arc<MemoryDisk> {
    let disk = Arc::new(MemoryDisk::new());
    disk.create_directory(&directory()).unwrap();
    disk
}

/// What two states must agree on; `next_file_number` may only grow.
fn comparable(state: &ManifestState) -> ManifestState {
    ManifestState { next_file_number: 0, ..state.clone() }
}

fn record(id: u32, definition: usize) -> TableRecord {
    TableRecord {
        id: TableId(id),
        name: format!("table {id}"),
        definition: vec![1; definition],
        layout: "leveled".into(),
    }
}

fn create(id: u32, definition: usize) -> VersionEdit {
    VersionEdit { created_tables: vec![record(id, definition)], ..VersionEdit::default() }
}

/// An edit that fits the state: a generation-wise flush, a compaction, or a change of tables.
fn random_edit(rng: &mut SmallRng, state: &ManifestState, next_file: &mut u64) -> VersionEdit {
    let mut edit = VersionEdit::default();
    let mut new_file = |rng: &mut SmallRng, key: u8, sequences: (u64, u64)| {
        *next_file += 1;
        Arc::new(FileMeta {
            number: *next_file,
            size: rng.random_range(1..1 << 30),
            smallest: vec![key],
            largest: vec![key, 9],
            min_sequence: sequences.0,
            max_sequence: sequences.1,
            ..FileMeta::default()
        })
    };
    let tables: Vec<TableId> = state.tables.keys().copied().collect();
    match rng.random_range(0..10) {
        0 | 1 => edit = create(state.next_table_id, rng.random_range(0..50)),
        2 if tables.len() > 3 => edit.dropped_tables.push(tables[rng.random_range(0..tables.len())]),
        3 if !tables.is_empty() => {
            let mut record = TableRecord::clone(&state.tables[&tables[0]].record);
            record.definition.push(7);
            edit.changed_tables.push(record);
        }
        4..=6 => {
            for &table in &tables {
                let key = rng.random_range(0..250);
                edit.add_file(
                    table,
                    0,
                    RunPlace::Newest,
                    new_file(rng, key, (state.last_sequence + 1, state.last_sequence + 1)),
                );
            }
            edit.oldest_wal = Some(state.oldest_wal + 1);
            edit.last_sequence = Some(state.last_sequence + 1);
        }
        _ => {
            let Some(table) = tables.get(rng.random_range(0..tables.len().max(1))) else { return edit };
            let version = &state.tables[table].version;
            let level = rng.random_range(0..4);
            let mut sequences = (u64::MAX, 0);
            for file in version.level(level).files() {
                edit.remove_file(*table, level, file.number);
                sequences = (sequences.0.min(file.min_sequence), sequences.1.max(file.max_sequence));
            }
            if !edit.removed_files.is_empty() {
                edit.add_file(*table, level + 1, RunPlace::Newest, new_file(rng, 3, sequences));
                edit.add_file(*table, level + 1, RunPlace::Newest, new_file(rng, 1, sequences));
                if rng.random_bool(0.5) {
                    edit.rounds.push(ChangedRound { table: *table, round: round_of_inputs(rng, &edit, level + 1) });
                }
            }
        }
    }
    edit
}

/// A round whose segments are what the edit removes.
fn round_of_inputs(rng: &mut SmallRng, edit: &VersionEdit, level: usize) -> Round<u64> {
    let mut files: Vec<Segment<u64>> = edit.removed_files.iter().map(|removed| removed.number.into()).collect();
    files[0].within = rng.random_bool(0.5).then(|| KeyRange::inclusive([1], [2]));
    let mut deletion = Segments { files: files.clone(), uncovered: Vec::new() };
    deletion.uncover(KeyRange::exclusive([3], [4]));
    Round {
        level,
        number: rng.random_range(0..300),
        is_draining: rng.random(),
        appending: rng.random_bool(0.7).then(|| Segments { files, uncovered: Vec::new() }),
        deletion: rng.random_bool(0.3).then_some(deletion),
        group: None,
    }
}

/// A table gets a column: another has its name and its files, which lack it in the group that it joins.
#[test]
fn a_table_that_is_replaced_leaves_its_files_to_the_other() {
    let file = |number: u64, group: Option<&str>| {
        let group = group.map(|text| Arc::new(text.parse().unwrap()));
        let (smallest, largest) = (vec![number as u8], vec![number as u8]);
        Arc::new(FileMeta { number, smallest, largest, group, created_at_edit: 1, ..FileMeta::default() })
    };
    let mut edit = create(0, 3);
    edit.add_file(TableId(0), 0, RunPlace::Newest, file(1, None));
    edit.add_file(TableId(0), 1, RunPlace::Newest, file(2, Some("1/packed")));
    edit.add_file(TableId(0), 1, RunPlace::Newest, file(3, Some("2/columnar")));
    let state = ManifestState::default().apply(&edit).unwrap();
    let replaced = |from: u32, record: TableRecord, column: usize| {
        let added = AddedColumn { column, whole: "1-2/packed".parse().unwrap(), beside: Some(column - 1) };
        let replaced = ReplacedTable { from: TableId(from), record, added: Some(added), dropped: None };
        VersionEdit { replaced_tables: vec![replaced], ..VersionEdit::default() }
    };
    let named = |id: u32| TableRecord { id: TableId(id), ..record(0, 5) };
    let groups = |state: &ManifestState, id: u32| {
        let files = state.tables[&TableId(id)].version.files();
        let mut groups: Vec<String> = files.map(|(_, _, file)| file.group.as_ref().unwrap().to_string()).collect();
        groups.sort();
        groups
    };
    let next = state.apply(&replaced(0, named(1), 3)).unwrap();
    assert_eq!(groups(&next, 1), ["1-3/packed/lacking:3", "1/packed", "2-3/columnar/lacking:3"]);
    assert!(!next.tables.contains_key(&TableId(0)) && next.next_table_id == 2);
    let next = next.apply(&replaced(1, named(2), 4)).unwrap();
    assert_eq!(groups(&next, 2), ["1-4/packed/lacking:3-4", "1/packed", "2-4/columnar/lacking:3-4"]);
    assert_eq!(*next.tables[&TableId(2)].record, named(2));
    let without = |from: u32, record: TableRecord, column: usize| {
        let dropped = Some(DroppedColumn { column, whole: "1-4/packed".parse().unwrap() });
        let replaced = ReplacedTable { from: TableId(from), record, added: None, dropped };
        VersionEdit { replaced_tables: vec![replaced], ..VersionEdit::default() }
    };
    let next = next.apply(&without(2, named(3), 2)).unwrap();
    assert_eq!(
        groups(&next, 3),
        ["1,3-4/packed/lacking:3-4/dropped:2", "1/packed", "3-4/columnar/lacking:3-4/dropped:2"]
    );
    // What was never written is gone without a trace.
    let next = next.apply(&without(3, named(4), 3)).unwrap();
    assert_eq!(groups(&next, 4), ["1,4/packed/lacking:4/dropped:2", "1/packed", "4/columnar/lacking:4/dropped:2"]);

    let again = next.to_edits().iter().try_fold(ManifestState::default(), |state, edit| {
        let mut bytes = Vec::new();
        edit.encode(&mut bytes);
        state.apply(&VersionEdit::decode(&bytes)?)
    });
    assert_eq!(again.unwrap(), next);
    for (from, record) in [(7, named(1)), (0, named(0)), (0, record(1, 5))] {
        assert_eq!(state.apply(&replaced(from, record, 3)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

/// Every edit copied the names and definitions of all tables.
#[test]
fn an_edit_shares_the_records_that_it_does_not_change() {
    let state = ManifestState::default().apply(&create(0, 5)).unwrap().apply(&create(1, 5)).unwrap();
    let edit = VersionEdit { changed_tables: vec![record(1, 6)], ..VersionEdit::default() };
    let next = state.apply(&edit).unwrap();
    assert!(Arc::ptr_eq(&state.tables[&TableId(0)].record, &next.tables[&TableId(0)].record));
    assert_eq!(*next.tables[&TableId(1)].record, record(1, 6));
}

/// Each edit made a state anew of all tables, and a manifest of many was read in the square of their number.
#[test]
fn an_edit_copied_what_it_says_nothing_of() {
    let mut manifest = Manifest::create(new_disk(), &directory(), ManifestOptions::default()).unwrap();
    let created = VersionEdit { created_tables: (0..50).map(|id| record(id, 3)).collect(), ..VersionEdit::default() };
    manifest.apply(&created).unwrap();
    let versions = |manifest: &Manifest| -> Vec<Arc<mycelium_manifest::Version>> {
        manifest.state().tables.values().map(|table| table.version.clone()).collect()
    };
    let before = versions(&manifest);
    let mut edit = VersionEdit::default();
    for (table, number) in [(7, 100), (30, 101)] {
        let file = FileMeta { number, smallest: vec![1], largest: vec![2], ..FileMeta::default() };
        edit.add_file(TableId(table), 0, RunPlace::Newest, Arc::new(file));
    }
    manifest.apply(&edit).unwrap();
    let after = versions(&manifest);
    let others = (0..50).filter(|&table| !Arc::ptr_eq(&before[table], &after[table]));
    assert_eq!(others.collect::<Vec<_>>(), [7, 30]);
    let without: Vec<u32> = manifest.state().tables.without_files().map(|table| table.record.id.0).collect();
    assert_eq!(without.len(), 48);
    assert!(!without.contains(&7) && !without.contains(&30));
}

#[test]
fn an_edit_that_does_not_fit_leaves_the_state_as_it_was() {
    let mut state = ManifestState::default().apply(&create(0, 5)).unwrap().apply(&create(1, 5)).unwrap();
    let before = state.clone();
    let named = |id: u32, name: &str| TableRecord { id: TableId(id), name: name.into(), ..record(0, 5) };
    let dropping = |id: u32| VersionEdit { dropped_tables: vec![TableId(id)], ..VersionEdit::default() };
    for misfit in [
        VersionEdit { dropped_tables: vec![TableId(0), TableId(0)], ..VersionEdit::default() },
        VersionEdit { created_tables: vec![named(5, "new"), named(6, "new")], ..VersionEdit::default() },
        VersionEdit { created_tables: vec![named(5, "table 0")], ..VersionEdit::default() },
        VersionEdit { created_tables: vec![named(1, "new")], ..VersionEdit::default() },
        VersionEdit { changed_tables: vec![named(1, "table 0")], ..dropping(1) },
        VersionEdit { changed_tables: vec![named(0, "table 1")], ..VersionEdit::default() },
    ] {
        assert_eq!(state.apply_in_place(&misfit).unwrap_err().kind(), ErrorKind::InvalidArgument, "{misfit:?}");
        assert_eq!(state, before);
    }
    // A name is free in the edit that takes it from its table.
    let moved = VersionEdit { created_tables: vec![named(5, "table 0")], ..dropping(0) };
    state.apply_in_place(&moved).unwrap();
    assert_eq!(state.table_named("table 0").map(|table| table.record.id), Some(TableId(5)));
    let swapped =
        VersionEdit { changed_tables: vec![named(1, "table 7"), named(5, "table 1")], ..VersionEdit::default() };
    state.apply_in_place(&swapped).unwrap();
    let ids = ["table 0", "table 1", "table 7"].map(|name| state.table_named(name).map(|table| table.record.id.0));
    assert_eq!(ids, [None, Some(5), Some(1)]);
}

/// What a manifest starts with had all tables in one record, and one of more than 1 GiB could not be written: neither
/// could the manifest begin anew then, nor the database be opened.
#[test]
fn all_tables_were_in_one_record() {
    let created =
        VersionEdit { created_tables: (0..7).map(|id| record(id, 400 << 10)).collect(), ..VersionEdit::default() };
    let state = ManifestState::default().apply(&created).unwrap();
    let edits = state.to_edits();
    assert!(edits[0].format_version.is_some() && edits.iter().all(|edit| edit.ordinal == Some(1)));
    assert_eq!(edits.iter().map(|edit| edit.created_tables.len()).collect::<Vec<_>>(), [2, 2, 2, 1]);
    let disk = new_disk();
    drop(Manifest::create_with(disk.clone(), &directory(), state.clone(), SMALL).unwrap());
    let (_, read) = Manifest::recover(disk, &directory(), SMALL).unwrap();
    assert_eq!(comparable(&read), comparable(&state));
}

#[test]
fn random_edits_are_recovered() {
    for seed in 0..20 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let disk = new_disk();
        let mut manifest = Manifest::create(disk.clone(), &directory(), SMALL).unwrap();
        let mut model = manifest.state().clone();
        let mut next_file = 1_000;
        let mut live_files = std::collections::HashSet::new();
        for _ in 0..120 {
            let edit = random_edit(&mut rng, &model, &mut next_file);
            model = model.apply(&edit).unwrap();
            manifest.apply(&edit).unwrap();
            assert_eq!(comparable(manifest.state()), comparable(&model));
            live_files.insert(manifest.path().to_path_buf());
            if rng.random_bool(0.3) {
                assert_eq!(comparable(&Manifest::read(&*disk, &directory()).unwrap()), comparable(&model));
                let numbers = manifest.file_numbers().peek();
                drop(manifest);
                let (again, state) = Manifest::recover(disk.clone(), &directory(), SMALL).unwrap();
                assert_eq!(comparable(&state), comparable(&model), "seed {seed}");
                assert!(state.next_file_number >= numbers);
                manifest = again;
            }
        }
        assert!(live_files.len() > 10, "it rolls over");
        let names = disk.list(&directory()).unwrap();
        assert_eq!(names.len(), 2, "CURRENT and one manifest: {names:?}");
    }
}

#[test]
fn misuse_is_refused_and_changes_nothing() {
    let disk = new_disk();
    assert_eq!(Manifest::read(&*disk, &directory()).unwrap_err().kind(), ErrorKind::NotFound);
    let mut manifest = Manifest::create(disk.clone(), &directory(), SMALL).unwrap();
    let again = Manifest::create(disk.clone(), &directory(), SMALL).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::InvalidArgument);
    let mut edit = VersionEdit::default();
    edit.remove_file(TableId(0), 0, 5);
    assert_eq!(manifest.apply(&edit).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(!manifest.is_poisoned());
    let before = manifest.state().clone();
    assert_eq!(comparable(&Manifest::read(&*disk, &directory()).unwrap()), comparable(&before));
}

#[test]
fn file_numbers_are_never_reused() {
    let disk = new_disk();
    let manifest = Manifest::create(disk.clone(), &directory(), SMALL).unwrap();
    // Handed out, used for a file, but in no edit when the process ends.
    let orphan = manifest.file_numbers().allocate();
    disk.create(&directory().join(FileKind::Sst.name(orphan + 3))).unwrap();
    drop(manifest);
    let (manifest, _) = Manifest::recover(disk, &directory(), SMALL).unwrap();
    assert!(manifest.file_numbers().allocate() > orphan + 3);
}

/// Runs a fixed workload on a disk until it fails; collects the state after each acknowledged edit.
fn workload(disk: &Arc<MemoryDisk>, states: &mut Vec<ManifestState>) -> Result<()> {
    let mut rng = SmallRng::seed_from_u64(4);
    let mut next_file = 1_000;
    let mut manifest = Manifest::create(disk.clone(), &directory(), SMALL)?;
    states.push(manifest.state().clone());
    for i in 0..40 {
        let edit = random_edit(&mut rng, manifest.state(), &mut next_file);
        manifest.apply(&edit)?;
        states.push(manifest.state().clone());
        if i % 15 == 14 {
            drop(manifest);
            manifest = Manifest::recover(disk.clone(), &directory(), SMALL)?.0;
        }
    }
    Ok(())
}

#[test]
fn a_crash_at_any_operation_keeps_every_acknowledged_edit() {
    let disk = new_disk();
    let mut all = Vec::new();
    workload(&disk, &mut all).unwrap();
    let operations = disk.operations();
    assert!(operations > 150);
    for stop in 1..operations {
        let disk = new_disk();
        disk.power_off_after(Some(stop));
        let mut acknowledged = Vec::new();
        if workload(&disk, &mut acknowledged).is_ok() {
            continue;
        }
        for seed in 0..6 {
            let draw = match seed {
                0 => CrashDraw { mode: CrashMode::SyncedOnly, seed },
                1 => CrashDraw { mode: CrashMode::MetadataOnly, seed },
                2 => CrashDraw { mode: CrashMode::DataOnly, seed },
                _ => CrashDraw::from_seed(stop * 10 + seed),
            };
            let image = Arc::new(disk.crash_image(&draw));
            let state = match Manifest::recover(image.clone(), &directory(), SMALL) {
                Ok((_, state)) => state,
                Err(error) => {
                    assert!(acknowledged.is_empty(), "operation {stop}, {draw:?}: {error}");
                    assert_eq!(error.kind(), ErrorKind::NotFound, "operation {stop}, {draw:?}: {error}");
                    continue;
                }
            };
            // The last acknowledged state, or the one after it.
            let fits = (acknowledged.len().max(1) - 1..=acknowledged.len())
                .any(|i| all.get(i).is_some_and(|s| comparable(s) == comparable(&state)));
            assert!(fits, "operation {stop}, {draw:?}: edit {} after {}", state.edit_count, acknowledged.len());
            let again = Manifest::read(&*image, &directory()).unwrap();
            assert_eq!(comparable(&again), comparable(&state));
        }
    }
}

/// A database of some edits: the disk, the state, the manifest's path.
fn sample(edits: usize) -> (Arc<MemoryDisk>, ManifestState, PathBuf) {
    let disk = new_disk();
    let mut rng = SmallRng::seed_from_u64(9);
    let mut manifest = Manifest::create(disk.clone(), &directory(), ManifestOptions::default()).unwrap();
    let mut next_file = 100;
    for _ in 0..edits {
        let edit = random_edit(&mut rng, manifest.state(), &mut next_file);
        manifest.apply(&edit).unwrap();
    }
    (disk, manifest.state().clone(), manifest.path().to_path_buf())
}

#[test]
fn no_flipped_bit_goes_unnoticed() {
    let (disk, state, path) = sample(12);
    let current = directory().join("CURRENT");
    for path in [path, current] {
        let bits = disk.read_bytes(&path).unwrap().len() as u64 * 8;
        let mut harmless = 0;
        for bit in 0..bits {
            disk.flip_bit(&path, bit).unwrap();
            match Manifest::read(&*disk, &directory()) {
                Ok(read) => {
                    assert_eq!(comparable(&read), comparable(&state), "bit {bit} of {}", path.display());
                    harmless += 1;
                }
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported), "{error}");
                    assert!(error.file().is_some(), "{error}");
                    assert!(error.offset().is_some(), "{error}");
                }
            }
            disk.flip_bit(&path, bit).unwrap();
        }
        // Only the last seal may go unnoticed: it says nothing about the state.
        assert!(harmless <= 8 * 64, "{harmless} of {bits}");
    }
}

#[test]
fn a_shortened_manifest_gives_an_error_or_an_earlier_state() {
    let (disk, state, path) = sample(12);
    let bytes = disk.read_bytes(&path).unwrap();
    let mut earlier = 0;
    for len in 0..bytes.len() {
        disk.set_len(&path, len).unwrap();
        match Manifest::read(&*disk, &directory()) {
            Ok(read) => {
                assert!(read.edit_count <= state.edit_count);
                earlier += 1;
            }
            Err(error) => assert!(error.is_corruption(), "{error}"),
        }
        disk.create(&path).unwrap().append(&bytes).unwrap();
    }
    assert!(earlier > 0);
    disk.remove(&path).unwrap();
    assert!(Manifest::read(&*disk, &directory()).unwrap_err().is_corruption());
}

/// Bytes of the record of a seal.
const SEAL_RECORD: usize = 12 + 25;

/// The seal came after the sync: a power loss took it, and damage to the last edit then passed for its torn end.
#[test]
fn what_a_manifest_starts_with_is_sealed_durably() {
    let (_, state, _) = sample(12);
    let disk = new_disk();
    let manifest = Manifest::create_with(disk.clone(), &directory(), state, SMALL).unwrap();
    let path = manifest.path().to_path_buf();
    drop(manifest);
    let image = disk.crash_image(&CrashDraw { mode: CrashMode::SyncedOnly, seed: 0 });
    let edits = image.read_bytes(&path).unwrap().len() - SEAL_RECORD;
    for bit in 0..edits as u64 * 8 {
        image.flip_bit(&path, bit).unwrap();
        let error = Manifest::read(&image, &directory()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported), "bit {bit}: {error}");
        image.flip_bit(&path, bit).unwrap();
    }
    Manifest::read(&image, &directory()).unwrap();
}

/// The bytes behind a tear were looked for in the file opened anew: the edit that was being appended was whole by then,
/// and its seal told of lost data.
#[test]
fn a_manifest_that_grows_while_it_is_read_is_not_damaged() {
    let (disk, state, path) = sample(12);
    let whole = directory().join("whole");
    disk.copy_file(&path, &whole).unwrap();
    let len = disk.read_bytes(&path).unwrap().len();
    for moment in 1.. {
        // The last edit is there in part, without its seal.
        disk.set_len(&path, len - SEAL_RECORD - 3).unwrap();
        let reader = FaultDisk::new(disk.clone());
        let latency = Duration::from_nanos(1);
        reader.set_throttle(Some(Throttle { bytes_per_second: 1 << 40, burst_bytes: 1 << 40, latency }));
        let (disk, path, whole, seen) = (disk.clone(), path.clone(), whole.clone(), AtomicU64::new(0));
        reader.on_wait(move |_| {
            if seen.fetch_add(1, Ordering::Relaxed) + 1 == moment {
                disk.copy_file(&whole, &path).unwrap();
            }
        });
        let read = Manifest::read(&reader, &directory()).unwrap_or_else(|e| panic!("operation {moment}: {e}"));
        assert!((state.edit_count - 1..=state.edit_count).contains(&read.edit_count), "{}", read.edit_count);
        if reader.total() < moment {
            return;
        }
    }
}

#[test]
fn a_manifest_is_as_it_was_started_until_its_first_edit() {
    let disk = new_disk();
    let mut manifest = Manifest::create(disk.clone(), &directory(), ManifestOptions::default()).unwrap();
    assert!(Manifest::is_as_started(&*disk, &directory()).unwrap());
    manifest.apply(&create(0, 10)).unwrap();
    assert!(!Manifest::is_as_started(&*disk, &directory()).unwrap());
    drop(manifest);
    drop(Manifest::recover(disk.clone(), &directory(), ManifestOptions::default()).unwrap());
    assert!(Manifest::is_as_started(&*disk, &directory()).unwrap());
}

/// A database whose log was gone right after its manifest had been replaced passed for an old checkpoint.
#[test]
fn a_manifest_that_names_a_log_has_an_edit_behind_its_state() {
    let disk = new_disk();
    let mut manifest = Manifest::create(disk.clone(), &directory(), ManifestOptions::default()).unwrap();
    manifest.apply(&create(0, 10)).unwrap();
    manifest.apply(&VersionEdit { oldest_wal: Some(7), ..VersionEdit::default() }).unwrap();
    let before = manifest.state().clone();
    drop(manifest);
    for _ in 0..2 {
        let (_, state) = Manifest::recover(disk.clone(), &directory(), ManifestOptions::default()).unwrap();
        assert_eq!(comparable(&state), comparable(&before));
        assert_eq!(comparable(&Manifest::read(&*disk, &directory()).unwrap()), comparable(&before));
        assert!(!Manifest::is_as_started(&*disk, &directory()).unwrap());
    }
}

/// The next number overflowed, or was that of a file whose name nobody would read.
#[test]
fn numbers_that_cannot_be_counted_on_from_are_refused() {
    let disk = new_disk();
    disk.create(&directory().join(FileKind::Sst.name(MAX_FILE_NUMBER))).unwrap();
    let error = Manifest::create(disk.clone(), &directory(), SMALL).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(disk.list(&directory()).unwrap().len(), 1, "nothing was written");
    let forged = ManifestState { next_file_number: u64::MAX, ..ManifestState::default() };
    assert!(forged.check().unwrap_err().is_corruption());
    let counted = ManifestState { edit_count: u64::MAX, ..ManifestState::default() };
    assert_eq!(counted.apply(&VersionEdit::default()).unwrap().edit_count, u64::MAX);
}

#[test]
fn a_full_disk_stops_edits_and_freeing_space_resumes_them() {
    let disk = new_disk();
    let mut manifest = Manifest::create(disk.clone(), &directory(), SMALL).unwrap();
    disk.set_capacity(Some(disk.used_space() + 2_000));
    let mut applied = 0;
    let error = loop {
        match manifest.apply(&create(applied, 300)) {
            Ok(()) => applied += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(!manifest.is_poisoned() && applied > 1);
    assert_eq!(comparable(&Manifest::read(&*disk, &directory()).unwrap()), comparable(manifest.state()));
    disk.set_capacity(None);
    for id in applied..applied + 20 {
        manifest.apply(&create(id, 300)).unwrap();
    }
    let (_, state) = Manifest::recover(disk, &directory(), SMALL).unwrap();
    assert_eq!(state.tables.len() as u32, applied + 20);
}

#[test]
fn a_checkpoint_starts_with_the_state_given() {
    let (_, state, _) = sample(20);
    let disk = new_disk();
    drop(Manifest::create_with(disk.clone(), &directory(), state.clone(), SMALL).unwrap());
    let (_, read) = Manifest::recover(disk, &directory(), SMALL).unwrap();
    assert_eq!(comparable(&read), comparable(&state));
}

#[test]
fn the_identity_of_a_database_goes_on_with_it() {
    let disk = new_disk();
    let state = ManifestState { identity: 0x1234_5678_9abc_def0, ..ManifestState::default() };
    let mut manifest = Manifest::create_with(disk.clone(), &directory(), state, SMALL).unwrap();
    let first = manifest.path().to_path_buf();
    for id in 0.. {
        manifest.apply(&create(id, 300)).unwrap();
        if manifest.path() != first {
            break;
        }
    }
    drop(manifest);
    assert_eq!(Manifest::read(&*disk, &directory()).unwrap().identity, 0x1234_5678_9abc_def0);
    let (manifest, state) = Manifest::recover(disk.clone(), &directory(), SMALL).unwrap();
    assert_eq!((manifest.state().identity, state.identity), (0x1234_5678_9abc_def0, 0x1234_5678_9abc_def0));
}

#[test]
fn a_state_is_encoded_and_decoded() {
    let (_, state, _) = sample(25);
    let state = ManifestState { identity: 7, ..state };
    let mut bytes = vec![9];
    state.encode(&mut bytes);
    let decode = |bytes: &[u8]| ManifestState::decode(&mut Reader::new(bytes));
    assert_eq!(decode(&bytes[1..]).unwrap(), state);
    for len in 1..bytes.len() {
        assert!(decode(&bytes[1..len]).is_err(), "{len} bytes");
    }
    // No edit, or one that says no format.
    assert!(decode(&[1, 0]).unwrap_err().is_corruption());
    assert_eq!(decode(&[1, 3, 2, 1, FORMAT_VERSION as u8 + 1]).unwrap_err().kind(), ErrorKind::Unsupported);
}

/// The bytes of each format version, written once and never changed. `UPDATE_GOLDEN=1` writes those of the present one
/// where there are none.
#[test]
fn the_golden_manifests_are_read() {
    let testdata = Path::new("testdata");
    let present = testdata.join(format!("format-{FORMAT_VERSION}"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() && !present.exists() {
        write_golden(&present);
    }
    for version in 1..=FORMAT_VERSION {
        let golden = testdata.join(format!("format-{version}"));
        let disk = new_disk();
        for entry in std::fs::read_dir(&golden).unwrap() {
            let entry = entry.unwrap();
            let mut file = disk.create(&directory().join(entry.file_name())).unwrap();
            file.append(&std::fs::read(entry.path()).unwrap()).unwrap();
        }
        let read = Manifest::read(&*disk, &directory()).unwrap();
        assert_eq!(describe(&read), std::fs::read_to_string(golden.join("state.txt")).unwrap());
    }
}

fn write_golden(folder: &Path) {
    let (disk, _, _) = sample(25);
    let (mut manifest, state) = Manifest::recover(disk.clone(), &directory(), ManifestOptions::default()).unwrap();
    let table = *state.tables.keys().next().unwrap();
    let mut edit = VersionEdit::default();
    for (number, group) in [(1_000, "0-3/packed"), (1_001, "4,6/columnar"), (1_002, "-/raw")] {
        let file = FileMeta { number, size: 1, group: Some(group_of(group)), ..FileMeta::default() };
        edit.add_file(table, 5, RunPlace::Newest, Arc::new(file));
    }
    manifest.apply(&edit).unwrap();
    let mut edit = VersionEdit::default();
    edit.remove_file(table, 5, 1_001);
    let file = FileMeta { number: 1_003, size: 1, group: Some(group_of("4,6/columnar")), ..FileMeta::default() };
    edit.add_file(table, 5, RunPlace::Inserted, Arc::new(file));
    let mut appending = Segments {
        files: vec![Segment { file: 1_001, within: Some(KeyRange::exclusive(*b"a", *b"d")) }],
        uncovered: Vec::new(),
    };
    appending.uncover(KeyRange::exclusive(*b"b", *b"c"));
    let round = Round { level: 5, group: Some(group_of("4,6/columnar")), number: 1, ..Round::default() };
    let round = Round { is_draining: true, appending: Some(appending), deletion: Some(Segments::default()), ..round };
    edit.rounds.push(ChangedRound { table, round });
    manifest.apply(&edit).unwrap();
    std::fs::create_dir_all(folder).unwrap();
    let current = directory().join("CURRENT");
    for path in [manifest.path(), &current] {
        std::fs::write(folder.join(path.file_name().unwrap()), disk.read_bytes(path).unwrap()).unwrap();
    }
    std::fs::write(folder.join("state.txt"), describe(manifest.state())).unwrap();
}

fn group_of(text: &str) -> Arc<Group> {
    Arc::new(text.parse().unwrap())
}

fn describe(state: &ManifestState) -> String {
    let mut text = format!(
        "edits {} last sequence {} oldest wal {} format {}\n",
        state.edit_count, state.last_sequence, state.oldest_wal, state.format_version
    );
    for table in state.tables.values() {
        let record = &table.record;
        text += &format!("{} {:?} {:?} {:?}\n", record.id, record.name, record.layout, record.definition);
        text += &table.version.to_string();
    }
    text
}

#[test]
fn a_newer_format_is_refused() {
    let disk = new_disk();
    drop(Manifest::create(disk.clone(), &directory(), SMALL).unwrap());
    let name = "MANIFEST-000077";
    let header = mycelium_wal::SegmentHeader { number: 77, previous: None };
    let mut writer = mycelium_wal::SegmentWriter::create(&*disk, &directory().join(name), header).unwrap();
    // An edit whose format version (tag 2) is one that does not exist yet.
    writer.append(&[&[1, 2, 1, FORMAT_VERSION as u8 + 1]]).unwrap();
    writer.sync().unwrap();
    let mut current = disk.create(&directory().join("CURRENT")).unwrap();
    let hash = mycelium_base::hash::hash_key(name.as_bytes());
    current.append(format!("{name} {hash:016x}\n").as_bytes()).unwrap();
    let error = Manifest::recover(disk.clone(), &directory(), SMALL).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("newer format"), "{error}");
    assert_eq!(disk.list(&directory()).unwrap().len(), 3, "nothing was removed or written");
}

/// Every failure of every changing operation, one at a time: an error reaches the caller, a failed sync ends the
/// manifest, and what is read back afterwards is the last acknowledged state or (poisoned only) the one after it.
#[test]
fn a_failed_operation_is_never_papered_over() {
    let kinds = [
        OperationKind::Create,
        OperationKind::Append,
        OperationKind::Sync,
        OperationKind::SyncDirectory,
        OperationKind::Rename,
    ];
    let mut poisoned = 0;
    for kind in kinds {
        for effect in [Effect::Io, Effect::IoAfterwards, Effect::NoSpace, Effect::TooManyOpenFiles] {
            for nth in 1.. {
                let memory = new_disk();
                let faulty = Arc::new(FaultDisk::new(memory.clone()));
                let mut manifest = Manifest::create(faulty.clone(), &directory(), SMALL).unwrap();
                faulty.schedule(Fault::new(kind, effect).nth(nth));
                let mut next = 0;
                let failed = loop {
                    match manifest.apply(&create(next, 300)) {
                        Ok(()) if next == 20 => break None,
                        Ok(()) => next += 1,
                        Err(error) => break Some(error),
                    }
                };
                if faulty.fired() == 0 {
                    break;
                }
                let acknowledged = manifest.state().clone();
                if failed.is_some() && manifest.is_poisoned() {
                    poisoned += 1;
                    let syncs = faulty.count(OperationKind::Sync);
                    assert!(manifest.apply(&create(next + 1, 300)).is_err());
                    assert_eq!(faulty.count(OperationKind::Sync), syncs, "no sync is tried again");
                } else if failed.is_some() {
                    manifest.apply(&create(next, 300)).unwrap();
                }
                let state = Manifest::read(&*memory, &directory()).unwrap();
                let allowed = if manifest.is_poisoned() { 0..=1 } else { 0..=0 };
                let ahead = state.edit_count.checked_sub(manifest.state().edit_count);
                assert!(ahead.is_some_and(|n| allowed.contains(&n)), "{kind:?} {effect:?} {nth}: {ahead:?}");
                assert!(state.edit_count >= acknowledged.edit_count);
            }
        }
    }
    assert!(poisoned > 20, "{poisoned}");
}

/// It ended the manifest, for nobody knew which one a crash would find.
#[test]
fn want_of_a_descriptor_once_current_was_switched_ended_the_manifest() {
    let memory = new_disk();
    let faulty = Arc::new(FaultDisk::new(memory.clone()));
    let mut manifest = Manifest::create(faulty.clone(), &directory(), SMALL).unwrap();
    let first = manifest.path().to_path_buf();
    let assert_a_crash_finds = |state: &ManifestState| {
        for seed in 0..40 {
            let image = memory.crash_image(&CrashDraw::from_seed(seed));
            let found = Manifest::read(&image, &directory()).unwrap();
            assert_eq!(comparable(&found), comparable(state), "seed {seed}");
        }
    };
    // The name of the second manifest is synced, then the switch.
    faulty.schedule(Fault::new(OperationKind::SyncDirectory, Effect::TooManyOpenFiles).nth(2).sticky());
    let mut next = 0;
    while manifest.path() == first {
        manifest.apply(&create(next, 300)).unwrap();
        next += 1;
    }
    for _ in 0..2 {
        let error = manifest.apply(&create(next, 300)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooManyOpenFiles);
        assert!(!manifest.is_poisoned() && memory.exists(&first).unwrap());
        assert_a_crash_finds(manifest.state());
    }
    faulty.heal();
    manifest.apply(&create(next, 300)).unwrap();
    assert!(!memory.exists(&first).unwrap());
    assert_a_crash_finds(manifest.state());
}

/// What is left of it is a state that the database was in, and what comes after it is told.
#[test]
fn a_damaged_manifest_is_read_up_to_its_damage() {
    let disk = new_disk();
    let mut manifest = Manifest::create(disk.clone(), &directory(), ManifestOptions::default()).unwrap();
    let mut states = vec![comparable(manifest.state())];
    let mut rng = SmallRng::seed_from_u64(8);
    let mut next_file = 100;
    for _ in 0..30 {
        let edit = random_edit(&mut rng, manifest.state(), &mut next_file);
        manifest.apply(&edit).unwrap();
        states.push(comparable(manifest.state()));
    }
    let path = manifest.path().to_path_buf();
    drop(manifest);
    let (mut refused, mut moments) = (0, std::collections::BTreeSet::new());
    for byte in (0..disk.file_len(&path).unwrap()).step_by(3) {
        let image = disk.kill_image();
        image.flip_bit(&path, byte * 8 + byte % 8).unwrap();
        match ManifestRemains::read(&image, &path) {
            Ok(remains) => {
                let found = comparable(&remains.state);
                let moment = states.iter().position(|state| *state == found);
                assert!(moment.is_some(), "byte {byte}: a state that never was");
                assert!(remains.fault.is_some() || moment == Some(30), "byte {byte}: edits are lost without a word");
                if let Some(fault) = remains.fault {
                    assert!(fault.is_corruption() && fault.file() == Some(path.as_path()), "byte {byte}: {fault}");
                    assert!(fault.offset().is_some_and(|at| at <= byte), "byte {byte}: {fault}");
                }
                moments.insert(moment);
            }
            Err(error) => {
                assert!(error.is_corruption() && byte < 300, "byte {byte}: {error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0 && moments.len() > 20, "{refused} refused, {} moments", moments.len());
    for len in (0..disk.file_len(&path).unwrap()).step_by(17) {
        let image = disk.kill_image();
        image.set_len(&path, len as usize).unwrap();
        let found = ManifestRemains::read(&image, &path).map(|remains| comparable(&remains.state));
        let is_known = found.map_or_else(|error| error.is_corruption(), |found| states.contains(&found));
        assert!(is_known, "{len} bytes");
    }
}
