//! A manifest that is read beside the process that writes it.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use mycelium_base::TableId;
use mycelium_manifest::{
    Manifest, ManifestFollower, ManifestOptions, ManifestState, TableRecord, VersionEdit, read_edits,
};
use mycelium_vfs::{Disk, MemoryDisk};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const DIRECTORY: &str = "/db";
/// Bytes of the seal behind an edit, with what the log's framing adds.
const SEAL_RECORD: usize = 12 + 25;
/// So that a dozen edits begin another file.
const SMALL: ManifestOptions = ManifestOptions { roll_at_bytes: 2_000 };

fn create() -> (Arc<MemoryDisk>, Manifest) {
    let disk = Arc::new(MemoryDisk::new());
    disk.create_directory(Path::new(DIRECTORY)).unwrap();
    let manifest = Manifest::create(disk.clone(), Path::new(DIRECTORY), SMALL).unwrap();
    (disk, manifest)
}

fn record(id: u32, layout: &str) -> TableRecord {
    TableRecord { id: TableId(id), name: format!("table {id}"), definition: vec![1; 100], layout: layout.into() }
}

/// A table that is made, changed or dropped.
fn random_edit(rng: &mut SmallRng, state: &ManifestState) -> VersionEdit {
    let tables: Vec<TableId> = state.tables.keys().copied().collect();
    let mut edit = VersionEdit::default();
    match (tables.get(rng.random_range(0..8_usize)), rng.random_bool(0.5)) {
        (None, _) => edit.created_tables.push(record(state.next_table_id, "new")),
        (Some(id), true) => edit.changed_tables.push(record(id.0, &format!("layout {}", rng.random_range(0..99)))),
        (Some(id), false) => edit.dropped_tables.push(*id),
    }
    edit
}

/// What two states must agree on; `next_file_number` may only grow.
fn comparable(state: &ManifestState) -> ManifestState {
    ManifestState { next_file_number: 0, ..state.clone() }
}

#[test]
fn it_has_every_edit_also_when_another_file_took_the_manifests_place() {
    for seed in 0..10 {
        let (mut rng, (disk, mut manifest)) = (SmallRng::seed_from_u64(seed), create());
        let mut follower = ManifestFollower::default();
        for step in 0..200 {
            match rng.random_range(0..10) {
                0..=5 => {
                    let edit = random_edit(&mut rng, manifest.state());
                    manifest.apply(&edit).unwrap();
                }
                6 => manifest = Manifest::recover(disk.clone(), Path::new(DIRECTORY), SMALL).unwrap().0,
                _ => {
                    follower.catch_up(&*disk, Path::new(DIRECTORY)).unwrap();
                    let (found, expected) = (comparable(follower.state()), comparable(manifest.state()));
                    assert_eq!(found, expected, "seed {seed}, step {step}");
                }
            }
        }
    }
}

#[test]
fn an_edit_that_is_half_written_is_read_when_it_is_whole() {
    let (disk, mut manifest) = create();
    manifest.apply(&VersionEdit { created_tables: vec![record(0, "a")], ..VersionEdit::default() }).unwrap();
    let mut before = ManifestFollower::default();
    before.catch_up(&*disk, Path::new(DIRECTORY)).unwrap();
    manifest.apply(&VersionEdit { created_tables: vec![record(1, "b")], ..VersionEdit::default() }).unwrap();

    let path = manifest.path().to_path_buf();
    let mut last_edit = 0;
    read_edits(&*disk, &path, &mut |offset, _| {
        last_edit = offset as usize;
        Ok(())
    })
    .unwrap();
    let whole = Path::new(DIRECTORY).join("whole");
    disk.copy_file(&path, &whole).unwrap();
    // The seal behind the edit says that it had been synced: with that it would be damaged.
    let edit_end = disk.read_bytes(&path).unwrap().len() - SEAL_RECORD;
    for end in last_edit..edit_end {
        let mut follower = before.clone();
        disk.set_len(&path, end).unwrap();
        follower.catch_up(&*disk, Path::new(DIRECTORY)).unwrap();
        assert_eq!(follower.state().tables.len(), 1, "{end} bytes");
        disk.copy_file(&whole, &path).unwrap();
        follower.catch_up(&*disk, Path::new(DIRECTORY)).unwrap();
        assert_eq!(follower.state().tables.len(), 2, "{end} bytes");
    }
}

#[test]
fn a_damaged_edit_that_had_been_synced_is_no_end_that_is_still_being_written() {
    let (disk, mut manifest) = create();
    let mut follower = ManifestFollower::default();
    follower.catch_up(&*disk, Path::new(DIRECTORY)).unwrap();
    manifest.apply(&VersionEdit { created_tables: vec![record(0, "a")], ..VersionEdit::default() }).unwrap();
    let path = manifest.path().to_path_buf();
    let middle = disk.read_bytes(&path).unwrap().len() - 80;
    disk.flip_bit(&path, middle as u64 * 8).unwrap();
    for _ in 0..2 {
        assert!(follower.catch_up(&*disk, Path::new(DIRECTORY)).unwrap_err().is_corruption());
        assert!(follower.state().tables.is_empty());
    }
    disk.flip_bit(&path, middle as u64 * 8).unwrap();
    follower.catch_up(&*disk, Path::new(DIRECTORY)).unwrap();
    assert_eq!(follower.state().tables.len(), 1);
}
