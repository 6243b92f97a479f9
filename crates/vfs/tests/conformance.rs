//! One suite for all disks: what the traits promise while nothing fails.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use mycelium_base::{ErrorKind, Result};
use mycelium_vfs::{AccessPattern, Disk, FaultDisk, LocalDisk, MemoryDisk, WritableFile};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const PATTERNS: [AccessPattern; 3] = [AccessPattern::Random, AccessPattern::Sequential, AccessPattern::Direct];

/// Runs `test` over every disk, each time in a fresh directory.
fn on_every_disk(test: impl Fn(&dyn Disk, &Path)) {
    let root = tempfile::tempdir().unwrap();
    test(&LocalDisk, root.path());
    test(&MemoryDisk::new(), Path::new(""));
    test(&FaultDisk::over_memory(MemoryDisk::new()), Path::new("/"));
    let root = tempfile::tempdir().unwrap();
    test(&FaultDisk::new(Arc::new(LocalDisk)), root.path());
}

fn write(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Box<dyn WritableFile> {
    let mut file = disk.create(path).unwrap();
    file.append(bytes).unwrap();
    file
}

fn read(disk: &dyn Disk, path: &Path, pattern: AccessPattern) -> Result<Vec<u8>> {
    let file = disk.open(path, pattern)?;
    let mut buffer = vec![0; file.len() as usize];
    file.will_need(0, file.len());
    file.read_at(0, &mut buffer)?;
    Ok(buffer)
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|e| e.kind())
}

#[test]
fn files_hold_what_was_appended() {
    on_every_disk(|disk, root| {
        let path = root.join("000001.sst");
        let mut file = disk.create(&path).unwrap();
        assert!(file.is_empty());
        let mut expected = Vec::new();
        for len in [0, 1, 100, 4095, 4096, 70_000, 3] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
            file.append(&bytes).unwrap();
            file.start_writeback();
            expected.extend(bytes);
            assert_eq!(file.len(), expected.len() as u64);
            for pattern in PATTERNS {
                assert!(read(disk, &path, pattern).unwrap() == expected);
            }
        }
        file.sync().unwrap();
        file.truncate(5_000).unwrap();
        expected.truncate(5_000);
        file.append(b"tail").unwrap();
        expected.extend(b"tail");
        assert_eq!((file.len(), disk.file_len(&path).unwrap()), (5_004, 5_004));
        assert!(read(disk, &path, AccessPattern::Random).unwrap() == expected);
        assert_eq!(kind(file.truncate(5_005)), Some(ErrorKind::InvalidArgument));
        drop(file);
        let file = disk.create(&path).unwrap();
        assert_eq!((file.len(), disk.file_len(&path).unwrap()), (0, 0));
    });
}

#[test]
fn reads_are_exact_or_fail() {
    on_every_disk(|disk, root| {
        let path = root.join("f");
        drop(write(disk, &path, &[9; 10_000]));
        for pattern in PATTERNS {
            let file = disk.open(&path, pattern).unwrap();
            for (offset, len, fits) in [
                (0, 10_000, true),
                (9_999, 1, true),
                (10_000, 0, true),
                (10_000, 1, false),
                (0, 10_001, false),
                (5_000, 5_001, false),
                (1 << 40, 1, false),
                (u64::MAX, 1, false),
            ] {
                let mut buffer = vec![0; len];
                let result = file.read_at(offset, &mut buffer);
                if fits {
                    result.unwrap();
                    assert!(buffer.iter().all(|&b| b == 9));
                } else {
                    let error = result.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Corruption);
                    assert_eq!((error.file(), error.offset()), (Some(path.as_path()), Some(offset)));
                }
            }
        }
    });
}

#[test]
fn names_behave_as_in_posix() {
    on_every_disk(|disk, root| {
        let (a, b, c) = (root.join("a"), root.join("b"), root.join("c"));
        for result in [disk.remove(&a), disk.rename(&a, &b), disk.hard_link(&a, &b)] {
            assert_eq!(kind(result), Some(ErrorKind::NotFound));
        }
        assert_eq!(kind(disk.open(&a, AccessPattern::Random)), Some(ErrorKind::NotFound));
        assert_eq!(kind(disk.file_len(&a)), Some(ErrorKind::NotFound));
        assert_eq!(kind(disk.create(&root.join("no/a"))), Some(ErrorKind::NotFound));
        assert_eq!(kind(disk.list(&root.join("no"))), Some(ErrorKind::NotFound));
        assert!(!disk.exists(&a).unwrap() && !disk.exists(&root.join("no/a")).unwrap());

        drop(write(disk, &a, b"a"));
        drop(write(disk, &b, b"b"));
        let old_b = disk.open(&b, AccessPattern::Random).unwrap();
        disk.rename(&a, &b).unwrap();
        assert_eq!(read(disk, &b, AccessPattern::Random).unwrap(), b"a");
        let mut byte = [0];
        old_b.read_at(0, &mut byte).unwrap();
        assert_eq!(&byte, b"b", "a replaced file stays readable");
        assert!(!disk.exists(&a).unwrap());

        disk.hard_link(&b, &c).unwrap();
        assert_eq!(kind(disk.hard_link(&b, &c)), Some(ErrorKind::Io));
        disk.rename(&b, &c).unwrap();
        assert!(disk.exists(&b).unwrap(), "two names of one file are not renamed onto each other");
        disk.remove(&b).unwrap();
        let open_c = disk.open(&c, AccessPattern::Random).unwrap();
        disk.remove(&c).unwrap();
        open_c.read_at(0, &mut byte).unwrap();
        assert_eq!(&byte, b"a", "a removed file stays readable");
        disk.sync_directory(root).unwrap();
        assert_eq!(disk.list(root).unwrap(), [""; 0]);
    });
}

#[test]
fn directories_are_listed_without_subdirectories() {
    on_every_disk(|disk, root| {
        let deep = root.join("x/y/z");
        disk.create_directory(&deep).unwrap();
        disk.create_directory(&deep).unwrap();
        for name in ["b", "a", "c"] {
            drop(write(disk, &deep.join(name), name.as_bytes()));
        }
        drop(write(disk, &root.join("x/f"), b""));
        assert_eq!(disk.list(&deep).unwrap(), ["a", "b", "c"]);
        assert_eq!(disk.list(&root.join("x")).unwrap(), ["f"]);
        assert!(disk.exists(&root.join("x/y")).unwrap());
        assert_eq!(kind(disk.create_directory(&root.join("x/f"))), Some(ErrorKind::Io));
        assert_eq!(kind(disk.create(&root.join("x/y"))), Some(ErrorKind::Io));
        assert_eq!(kind(disk.open(&root.join("x/y"), AccessPattern::Random)), Some(ErrorKind::Io));
        assert_eq!(kind(disk.remove(&root.join("x/y"))), Some(ErrorKind::Io));
        disk.rename(&deep.join("a"), &root.join("a")).unwrap();
        assert_eq!(disk.list(&deep).unwrap(), ["b", "c"]);
        assert_eq!(disk.list(root).unwrap(), ["a"]);
        disk.sync_directory(&deep).unwrap();
        assert_eq!(kind(disk.sync_directory(&root.join("no"))), Some(ErrorKind::NotFound));
    });
}

#[test]
fn a_lock_has_one_holder() {
    on_every_disk(|disk, root| {
        let path = root.join("LOCK");
        let held = disk.lock(&path).unwrap();
        assert_eq!(kind(disk.lock(&path)), Some(ErrorKind::Locked));
        assert_eq!(kind(disk.lock(&path)), Some(ErrorKind::Locked), "a refused lock does not release the held one");
        drop(held);
        drop(disk.lock(&path).unwrap());
        let other = disk.lock(&root.join("OTHER")).unwrap();
        let again = disk.lock(&path).unwrap();
        drop((other, again));
        assert!(disk.free_space(&path).unwrap() > 0);
    });
}

/// Names to contents; hard links are left to the tests above.
type Model = BTreeMap<String, Vec<u8>>;

#[test]
fn random_operations_agree_with_a_map() {
    on_every_disk(|disk, root| {
        for seed in 0..20 {
            let directory = root.join(format!("seed-{seed}"));
            disk.create_directory(&directory).unwrap();
            run_against_model(disk, &directory, seed);
        }
    });
}

fn run_against_model(disk: &dyn Disk, directory: &Path, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut model = Model::new();
    let mut writer: Option<(String, Box<dyn WritableFile>)> = None;
    for step in 0..150 {
        let name = |rng: &mut SmallRng| format!("f{}", rng.random_range(0..5));
        let (a, b) = (name(&mut rng), name(&mut rng));
        let (path_a, path_b) = (directory.join(&a), directory.join(&b));
        let writing = |name: &String| writer.as_ref().is_some_and(|(open, _)| open == name);
        match rng.random_range(0..10) {
            0 => {
                writer = Some((a.clone(), disk.create(&path_a).unwrap()));
                model.insert(a, Vec::new());
            }
            1 if !writing(&a) && !writing(&b) => {
                assert_eq!(disk.rename(&path_a, &path_b).is_ok(), model.contains_key(&a), "seed {seed} step {step}");
                if let Some(contents) = model.remove(&a) {
                    model.insert(b, contents);
                }
            }
            2 if !writing(&a) => {
                assert_eq!(disk.remove(&path_a).is_ok(), model.remove(&a).is_some(), "seed {seed} step {step}");
            }
            3 => disk.sync_directory(directory).unwrap(),
            choice => {
                let Some((open, file)) = &mut writer else { continue };
                let contents = model.get_mut(open).unwrap();
                match choice {
                    4 => {
                        contents.truncate(rng.random_range(0..=contents.len()));
                        file.truncate(contents.len() as u64).unwrap();
                    }
                    5 => file.sync().unwrap(),
                    _ => {
                        let bytes = vec![step as u8; rng.random_range(0..6_000)];
                        file.append(&bytes).unwrap();
                        contents.extend(bytes);
                    }
                }
            }
        }
        if step % 10 == 0 {
            assert_eq!(disk.list(directory).unwrap(), model.keys().cloned().collect::<Vec<_>>(), "seed {seed}");
            for (name, contents) in &model {
                let found = read(disk, &directory.join(name), PATTERNS[step / 10 % 3]).unwrap();
                assert!(found == *contents, "{name} differs, seed {seed} step {step}");
            }
        }
    }
}
