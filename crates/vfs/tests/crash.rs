//! Images of the in-memory disk after a power loss keep the promises of the disk traits, and nothing more.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mycelium_base::ErrorKind;
use mycelium_vfs::{AccessPattern, CrashDraw, CrashMode, Disk, MemoryDisk, OperationKind, WritableFile};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const ROOT: &str = "";

fn path(name: &str) -> &Path {
    Path::new(name)
}

fn draw(mode: CrashMode, seed: u64) -> CrashDraw {
    CrashDraw { mode, seed }
}

/// A file the naive way: everything is kept as a whole.
#[derive(Clone, Default)]
struct ModelFile {
    current: Vec<u8>,
    synced: Vec<u8>,
    /// The first bytes of `synced` that were not cut off since.
    floor: usize,
    /// The longest it was since the last sync.
    longest: usize,
}

/// The naive model of a directory with its files.
#[derive(Clone, Default)]
struct Model {
    files: Vec<ModelFile>,
    current: BTreeMap<String, usize>,
    durable: BTreeMap<String, usize>,
    /// What each name led to at some time since the last directory sync.
    possible: BTreeMap<String, BTreeSet<Option<usize>>>,
}

impl Model {
    fn set(&mut self, name: &str, file: Option<usize>) {
        let before = self.current.get(name).copied();
        match file {
            Some(file) => self.current.insert(name.into(), file),
            None => self.current.remove(name),
        };
        self.possible.entry(name.into()).or_default().extend([before, file]);
    }

    fn sync_directory(&mut self) {
        self.durable = self.current.clone();
        self.possible.clear();
    }

    /// What a power loss may leave under `name`.
    fn may_be(&self, name: &str) -> BTreeSet<Option<usize>> {
        let mut possible = self.possible.get(name).cloned().unwrap_or_default();
        possible.insert(self.durable.get(name).copied());
        possible
    }

    fn contents(&self, names: &BTreeMap<String, usize>, of: impl Fn(&ModelFile) -> &Vec<u8>) -> Contents {
        names.iter().map(|(name, &file)| (name.clone(), of(&self.files[file]).clone())).collect()
    }

    fn check_image(&self, image: &MemoryDisk, context: &str) {
        let found = contents(image);
        for name in self.possible.keys().chain(self.durable.keys()).chain(found.keys()) {
            let bytes = found.get(name);
            let matches = self.may_be(name).into_iter().any(|file| match (file, bytes) {
                (None, None) => true,
                (Some(file), Some(bytes)) => {
                    let file = &self.files[file];
                    bytes.len() >= file.floor
                        && bytes.len() <= file.longest
                        && bytes[..file.floor] == file.synced[..file.floor]
                }
                _ => false,
            });
            assert!(matches, "{name} breaks a promise: {context}");
        }
        assert!(self.check_all_durable(image), "an image is durable as it is: {context}");
    }

    fn check_all_durable(&self, image: &MemoryDisk) -> bool {
        contents(&image.crash_image(&draw(CrashMode::SyncedOnly, 0))) == contents(image)
    }
}

type Contents = BTreeMap<String, Vec<u8>>;

fn contents(disk: &MemoryDisk) -> Contents {
    disk.paths().iter().map(|p| (p.to_str().unwrap().to_owned(), disk.read_bytes(p).unwrap())).collect()
}

/// One random operation on the disk and the model.
fn step(disk: &MemoryDisk, model: &mut Model, open: &mut BTreeMap<usize, Box<dyn WritableFile>>, rng: &mut SmallRng) {
    let mut name = || format!("f{}", rng.random_range(0..6));
    let (a, b) = (name(), name());
    let target = model.current.get(&a).copied();
    match (rng.random_range(0..20), target) {
        (0..4, _) => {
            let file = disk.create(path(&a)).unwrap();
            let index = target.unwrap_or_else(|| {
                model.files.push(ModelFile::default());
                model.set(&a, Some(model.files.len() - 1));
                model.files.len() - 1
            });
            model.files[index].current.clear();
            model.files[index].floor = 0;
            open.insert(index, file);
        }
        (4, Some(file)) if model.current.get(&b) != Some(&file) => {
            disk.rename(path(&a), path(&b)).unwrap();
            model.set(&a, None);
            model.set(&b, Some(file));
        }
        (5, Some(_)) => {
            disk.remove(path(&a)).unwrap();
            model.set(&a, None);
        }
        (6, Some(file)) if !model.current.contains_key(&b) => {
            disk.hard_link(path(&a), path(&b)).unwrap();
            model.set(&b, Some(file));
        }
        (7, _) => {
            disk.sync_directory(path(ROOT)).unwrap();
            model.sync_directory();
        }
        (choice, Some(index)) if open.contains_key(&index) => {
            let (handle, file) = (open.get_mut(&index).unwrap(), &mut model.files[index]);
            match choice {
                8 => {
                    let len = rng.random_range(0..=file.current.len());
                    handle.truncate(len as u64).unwrap();
                    file.current.truncate(len);
                    file.floor = file.floor.min(len);
                }
                9..12 => {
                    handle.sync().unwrap();
                    file.synced = file.current.clone();
                    (file.floor, file.longest) = (file.current.len(), file.current.len());
                }
                _ => {
                    let most = [10, 600, 5_000, 20_000][rng.random_range(0..4)];
                    let bytes: Vec<u8> = (0..rng.random_range(0..most)).map(|_| rng.random()).collect();
                    handle.append(&bytes).unwrap();
                    file.current.extend(bytes);
                    file.longest = file.longest.max(file.current.len());
                }
            }
        }
        _ => {}
    }
}

#[test]
fn images_agree_with_a_naive_model() {
    for seed in 0..60 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let disk = MemoryDisk::new();
        let (mut model, mut open) = (Model::default(), BTreeMap::new());
        for at in 0..120 {
            step(&disk, &mut model, &mut open, &mut rng);
            let context = format!("seed {seed} step {at}");
            assert!(contents(&disk) == model.contents(&model.current, |f| &f.current), "{context}");
            let exact = disk.crash_image(&draw(CrashMode::SyncedOnly, 0));
            assert!(contents(&exact) == model.contents(&model.durable, |f| &f.synced), "{context}");
            let killed = disk.kill_image();
            assert!(contents(&killed) == contents(&disk), "{context}");
            assert!(contents(&killed.crash_image(&draw(CrashMode::SyncedOnly, 0))) == contents(&exact), "{context}");
            let random = CrashDraw::from_seed(rng.random());
            let image = disk.crash_image(&random);
            model.check_image(&image, &format!("{context} {random:?}"));
            assert!(contents(&image) == contents(&disk.crash_image(&random)), "the seed decides: {context}");
        }
    }
}

/// A synced file of 6,000 bytes, continued to 30,000 without a sync, beside an unsynced new file.
fn half_synced() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let mut file = disk.create(path("old")).unwrap();
    file.append(&[1; 6_000]).unwrap();
    file.sync().unwrap();
    disk.sync_directory(path(ROOT)).unwrap();
    file.append(&[2; 24_000]).unwrap();
    disk.create(path("new")).unwrap().append(&[3; 10_000]).unwrap();
    disk
}

#[test]
fn blocks_are_kept_lost_and_reordered() {
    let disk = half_synced();
    let mut seen = BTreeSet::new();
    for seed in 0..300 {
        let image = disk.crash_image(&draw(CrashMode::KeepSome { keep: 0.5 }, seed));
        let old = image.read_bytes(path("old")).unwrap();
        assert!(old.len() >= 6_000 && old[..6_000].iter().all(|&b| b == 1));
        for block in old.chunks(4096).skip(2) {
            assert!(block.iter().all(|&b| b == block[0]) && [0, 2].contains(&block[0]), "blocks are not torn");
        }
        let kept: Vec<bool> = old.chunks_exact(4096).skip(2).map(|block| block[0] == 2).collect();
        if kept.windows(2).any(|pair| pair == [false, true]) {
            seen.insert("a later block without an earlier one");
        }
        seen.insert(match old.len() {
            6_000 => "the durable length",
            30_000 => "the newest length",
            _ => "a length in between",
        });
        match image.read_bytes(path("new")) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound);
                seen.insert("no name");
            }
            Ok(new) if new.contains(&3) => drop(seen.insert("a name with data")),
            Ok(_) => drop(seen.insert("a name without data")),
        }
    }
    assert_eq!(seen.len(), 7, "{seen:?}");
}

#[test]
fn sectors_are_torn_in_every_way_but_durable_bytes_stay() {
    let disk = half_synced();
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let image = disk.crash_image(&draw(CrashMode::TornSectors { keep: 0.5 }, seed));
        let old = image.read_bytes(path("old")).unwrap();
        assert!(old.len() >= 6_000 && old[..6_000].iter().all(|&b| b == 1));
        for sector in old.chunks_exact(512).skip(12) {
            let (left, right) = (sector[0] == 2, sector[511] == 2);
            let good = sector.iter().filter(|&&b| b == 2).count();
            seen.insert(match (left, right, good) {
                (_, _, 512) => "good",
                _ if sector.iter().all(|&b| b == 0) => "missing",
                (false, true, 20..) => "garbage left",
                (true, false, 20..) => "garbage right",
                _ => "garbage whole",
            });
        }
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
}

#[test]
fn metadata_and_data_can_be_separated() {
    let disk = half_synced();
    let image = disk.crash_image(&draw(CrashMode::MetadataOnly, 0));
    assert!(image.read_bytes(path("new")).unwrap() == [0; 10_000]);
    let old = image.read_bytes(path("old")).unwrap();
    assert!(old.len() == 30_000 && old[..6_000].iter().all(|&b| b == 1) && old[6_000..].iter().all(|&b| b == 0));
    let image = disk.crash_image(&draw(CrashMode::DataOnly, 0));
    assert_eq!(contents(&image).keys().collect::<Vec<_>>(), ["old"]);
    assert!(image.read_bytes(path("old")).unwrap() == disk.read_bytes(path("old")).unwrap());
}

#[test]
fn a_pending_rename_is_atomic_and_names_keep_their_order() {
    let disk = MemoryDisk::new();
    for (name, byte) in [("CURRENT", 1), ("tmp", 2)] {
        let mut file = disk.create(path(name)).unwrap();
        file.append(&[byte]).unwrap();
        file.sync().unwrap();
    }
    disk.sync_directory(path(ROOT)).unwrap();
    disk.rename(path("tmp"), path("CURRENT")).unwrap();
    let mut third = disk.create(path("tmp")).unwrap();
    third.append(&[3]).unwrap();
    third.sync().unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        seen.insert(contents(&disk.crash_image(&draw(CrashMode::KeepSome { keep: 0.5 }, seed))).into_iter().collect());
    }
    let state = |current: u8, tmp: Option<u8>| -> Vec<(String, Vec<u8>)> {
        let tmp = tmp.map(|byte| ("tmp".into(), vec![byte]));
        [("CURRENT".into(), vec![current])].into_iter().chain(tmp).collect()
    };
    let allowed = [state(1, Some(2)), state(2, None), state(2, Some(3)), state(1, Some(3))];
    assert_eq!(seen, BTreeSet::from(allowed));
}

#[test]
fn syncing_one_directory_brings_the_changes_it_depends_on() {
    let disk = MemoryDisk::new();
    for directory in ["a", "b"] {
        disk.create_directory(path(directory)).unwrap();
    }
    let mut file = disk.create(path("a/f")).unwrap();
    file.append(b"x").unwrap();
    file.sync().unwrap();
    drop(disk.create(path("a/g")).unwrap());
    disk.rename(path("a/f"), path("b/f")).unwrap();
    disk.sync_directory(path("b")).unwrap();
    let image = disk.crash_image(&draw(CrashMode::SyncedOnly, 0));
    assert_eq!(contents(&image), BTreeMap::from([("b/f".to_owned(), b"x".to_vec())]));
}

#[test]
fn the_machine_dies_after_any_operation() {
    let workload = |disk: &MemoryDisk| -> mycelium_base::Result<()> {
        let mut file = disk.create(path("000001.wal"))?;
        file.append(b"one")?;
        file.sync()?;
        disk.sync_directory(path(ROOT))?;
        file.append(b"two")?;
        disk.rename(path("000001.wal"), path("000002.wal"))
    };
    let whole = MemoryDisk::new();
    workload(&whole).unwrap();
    assert_eq!(whole.operations(), 6);
    for n in 0..6 {
        let disk = MemoryDisk::new();
        disk.power_off_after(Some(n));
        let error = workload(&disk).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("machine is off"), "{error}");
        assert!(disk.is_off() && disk.exists(path("000001.wal")).is_err());
        assert_eq!(disk.operations(), n);
        let image = disk.crash_image(&draw(CrashMode::SyncedOnly, 0));
        assert!(!image.is_off() && image.operations() == 0);
        let expected: &[(&str, &[u8])] = if n >= 4 { &[("000001.wal", b"one")] } else { &[] };
        let expected: Contents = expected.iter().map(|(name, bytes)| ((*name).into(), bytes.to_vec())).collect();
        assert_eq!(contents(&image), expected, "after {n}");
    }
}

#[test]
fn the_hook_sees_every_changing_operation_before_it_happens() {
    let disk = MemoryDisk::new();
    let (seen, images) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let last = Arc::new(AtomicU64::new(0));
    disk.on_operation({
        let (disk, seen, images, last) = (disk.clone(), Arc::clone(&seen), Arc::clone(&images), Arc::clone(&last));
        move |index, operation| {
            assert_eq!(last.fetch_add(1, Ordering::Relaxed) + 1, index);
            seen.lock().push(operation.kind);
            images.lock().push(disk.kill_image());
        }
    });
    let mut file = disk.create(path("f")).unwrap();
    file.append(b"abc").unwrap();
    drop(disk.open(path("f"), AccessPattern::Random).unwrap());
    file.truncate(1).unwrap();
    file.sync().unwrap();
    disk.clear_hook();
    disk.remove(path("f")).unwrap();
    use OperationKind::{Append, Create, Sync, Truncate};
    assert_eq!(*seen.lock(), [Create, Append, Truncate, Sync]);
    let lens: Vec<_> = images.lock().iter().map(|image| image.file_len(path("f")).ok()).collect();
    assert_eq!(lens, [None, Some(0), Some(3), Some(1)]);
}

#[test]
fn a_full_disk_takes_what_fits_and_recovers() {
    let disk = MemoryDisk::new();
    disk.set_capacity(Some(100));
    drop(disk.create(path("a")).map(|mut file| file.append(&[1; 60])).unwrap());
    let mut file = disk.create(path("b")).unwrap();
    let error = file.append(&[2; 60]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert_eq!((file.len(), disk.free_space(path(ROOT)).unwrap(), disk.used_space()), (40, 0, 100));
    file.truncate(0).unwrap();
    disk.remove(path("a")).unwrap();
    file.append(&[2; 60]).unwrap();
    assert_eq!(file.append(&[2; 60]).unwrap_err().kind(), ErrorKind::NoSpace);
    disk.set_capacity(None);
    file.append(&[2; 60]).unwrap();
}

#[test]
fn bytes_can_be_damaged_from_outside() {
    let disk = half_synced();
    disk.flip_bit(path("old"), 8 * 5 + 3).unwrap();
    disk.overwrite(path("old"), 4_000, &[9; 4_000]).unwrap();
    disk.swap((path("old"), 10), (path("new"), 20), 2).unwrap();
    assert_eq!(disk.read_bytes(path("new")).unwrap()[19..23], [3, 1, 1, 3]);
    for image in [disk.clone(), disk.crash_image(&draw(CrashMode::SyncedOnly, 0))] {
        let old = image.read_bytes(path("old")).unwrap();
        assert_eq!((old[4], old[5], &old[9..13]), (1, 9, &[1, 3, 3, 1][..]));
        assert!(old[4_000..6_000].iter().all(|&b| b == 9) && old[3_999] == 1);
    }
    assert!(disk.overwrite(path("new"), 9_999, &[0; 2]).unwrap_err().is_corruption());
    assert!(disk.flip_bit(path("new"), 80_000).unwrap_err().is_corruption());
    assert!(disk.swap((path("new"), 0), (path("old"), 29_999), 2).unwrap_err().is_corruption());
    disk.copy_file(path("old"), path("new")).unwrap();
    disk.set_len(path("old"), 7).unwrap();
    let image = disk.crash_image(&draw(CrashMode::SyncedOnly, 0));
    assert_eq!((image.read_bytes(path("old")).unwrap().len(), image.file_len(path("new")).unwrap()), (7, 30_000));
}
