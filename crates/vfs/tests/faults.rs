//! Injected faults do what they say, at the operation they were scheduled for.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mycelium_base::{ErrorKind, FileKind, Result};
use mycelium_vfs::{
    AccessPattern, CrashDraw, CrashMode, Disk, Effect, Fault, FaultDisk, FileFilter, LocalDisk, MemoryDisk,
    OperationKind, Throttle,
};

fn path(name: &str) -> &Path {
    Path::new(name)
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|e| e.kind())
}

/// Touches every kind of operation.
fn workload(disk: &dyn Disk) -> Result<()> {
    disk.create_directory(path("db"))?;
    let _lock = disk.lock(path("db/LOCK"))?;
    let mut file = disk.create(path("db/000001.tmp"))?;
    file.append(b"MANIFEST-000002")?;
    file.append(b"garbage")?;
    file.truncate(15)?;
    file.sync()?;
    disk.rename(path("db/000001.tmp"), path("db/CURRENT"))?;
    disk.hard_link(path("db/CURRENT"), path("db/000003.sst"))?;
    disk.sync_directory(path("db"))?;
    let mut buffer = [0; 15];
    disk.open(path("db/CURRENT"), AccessPattern::Random)?.read_at(0, &mut buffer)?;
    disk.list(path("db"))?;
    disk.file_len(path("db/CURRENT"))?;
    disk.exists(path("db/CURRENT"))?;
    disk.free_space(path("db"))?;
    disk.remove(path("db/000003.sst"))
}

#[test]
fn every_operation_of_a_workload_can_fail() {
    let clean = FaultDisk::over_memory(MemoryDisk::new());
    workload(&clean).unwrap();
    assert_eq!(clean.fired(), 0);
    assert_eq!(clean.total(), OperationKind::ALL.iter().map(|&kind| clean.count(kind)).sum::<u64>());
    for operation in OperationKind::ALL {
        assert!(clean.count(operation) > 0, "{operation:?} is not in the workload");
        for nth in 1..=clean.count(operation) + 1 {
            for (effect, expected) in [
                (Effect::Io, ErrorKind::Io),
                (Effect::NoSpace, ErrorKind::NoSpace),
                (Effect::TooManyOpenFiles, ErrorKind::TooManyOpenFiles),
                (Effect::IoAfterwards, ErrorKind::Io),
            ] {
                let disk = FaultDisk::over_memory(MemoryDisk::new());
                disk.schedule(Fault::new(operation, effect).nth(nth));
                let result = workload(&disk);
                if nth > clean.count(operation) {
                    result.unwrap();
                    assert_eq!(disk.fired(), 0);
                } else {
                    assert_eq!(kind(result), Some(expected), "{operation:?} {nth}");
                    assert_eq!((disk.count(operation), disk.fired()), (nth, 1));
                }
            }
        }
    }
    for nth in 1..=clean.total() {
        let disk = FaultDisk::over_memory(MemoryDisk::new());
        disk.schedule(Fault::of_any(Effect::Io).nth(nth));
        assert_eq!(kind(workload(&disk)), Some(ErrorKind::Io));
        assert_eq!(disk.total(), nth);
    }
}

#[test]
fn faults_choose_their_files_and_last_as_told() {
    let disk = FaultDisk::over_memory(MemoryDisk::new());
    disk.schedule(Fault::new(OperationKind::Create, Effect::Io).on(FileKind::Sst).nth(2).sticky());
    disk.schedule(Fault::new(OperationKind::Create, Effect::NoSpace).on_files(FileFilter::Other));
    disk.schedule(Fault::new(OperationKind::Rename, Effect::Io).on(FileKind::Current));
    let create = |name| kind(disk.create(path(name)));
    assert_eq!(create("000001.wal"), None);
    assert_eq!(create("000002.sst"), None);
    assert_eq!(create("000003.sst"), Some(ErrorKind::Io));
    assert_eq!(create("notes.txt"), Some(ErrorKind::NoSpace));
    assert_eq!(create("notes.txt"), None);
    assert_eq!(create("000004.sst"), Some(ErrorKind::Io));
    assert_eq!(kind(disk.rename(path("000001.wal"), path("CURRENT"))), Some(ErrorKind::Io));
    assert_eq!(disk.fired(), 4);
    disk.heal();
    assert_eq!(create("000005.sst"), None);
    assert_eq!(disk.list(path("")).unwrap(), ["000001.wal", "000002.sst", "000005.sst", "notes.txt"]);
}

#[test]
fn a_failed_sync_can_lose_pages_that_a_later_sync_does_not_bring_back() {
    let memory = MemoryDisk::new();
    let disk = FaultDisk::over_memory(memory.clone());
    let name = path("000001.wal");
    let mut file = disk.create(name).unwrap();
    file.append(&[1; 5_000]).unwrap();
    file.sync().unwrap();
    disk.sync_directory(path("")).unwrap();
    disk.schedule(Fault::new(OperationKind::Sync, Effect::LoseUnsynced));
    file.append(&[2; 10_000]).unwrap();
    assert_eq!(kind(file.sync()), Some(ErrorKind::Io));
    file.sync().unwrap();
    let cached = memory.read_bytes(name).unwrap();
    assert!(cached[5_000..] == [2; 10_000], "readers go on seeing the lost pages");
    let platter = |mode| memory.crash_image(&CrashDraw { mode, seed: 7 }).read_bytes(name).unwrap();
    for mode in [CrashMode::SyncedOnly, CrashMode::DataOnly] {
        let found = platter(mode);
        assert!(found.len() == 15_000 && found[..5_000] == [1; 5_000] && found[5_000..] == [0; 10_000]);
    }
    // The last page becomes dirty again as a whole; the two before it stay lost.
    file.append(&[3; 10]).unwrap();
    file.sync().unwrap();
    let found = platter(CrashMode::SyncedOnly);
    assert!(found[5_000..12_288].iter().all(|&b| b == 0) && found[12_288..15_000].iter().all(|&b| b == 2));
    assert_eq!(found[15_000..], [3; 10]);
}

#[test]
fn reads_fall_short_or_flip_a_bit() {
    let disk = FaultDisk::over_memory(MemoryDisk::new());
    disk.create(path("000001.sst")).unwrap().append(&[0; 100]).unwrap();
    let file = disk.open(path("000001.sst"), AccessPattern::Random).unwrap();
    disk.schedule(Fault::new(OperationKind::Read, Effect::ShortRead { keep: 1_000 }));
    disk.schedule(Fault::new(OperationKind::Read, Effect::FlipBit { bit: 80 * 3 + 9 }).on(FileKind::Sst).nth(2));
    let mut buffer = [7; 10];
    let error = file.read_at(50, &mut buffer).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Corruption, Some(50)));
    assert_eq!(buffer, [0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    file.read_at(50, &mut buffer).unwrap();
    assert_eq!(buffer, [0, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
    file.read_at(50, &mut buffer).unwrap();
    assert_eq!(buffer, [0; 10]);
}

#[test]
fn a_partial_append_leaves_its_prefix_on_any_disk() {
    let root = tempfile::tempdir().unwrap();
    for (disk, name) in [
        (FaultDisk::new(Arc::new(LocalDisk)), root.path().join("000001.wal")),
        (FaultDisk::over_memory(MemoryDisk::new()), path("000001.wal").to_path_buf()),
    ] {
        disk.schedule(Fault::new(OperationKind::Append, Effect::PartialAppend { keep: 3 }).nth(2));
        let mut file = disk.create(&name).unwrap();
        file.append(b"whole").unwrap();
        assert_eq!(kind(file.append(b"partial")), Some(ErrorKind::Io));
        assert_eq!((file.len(), disk.file_len(&name).unwrap()), (8, 8));
        file.truncate(5).unwrap();
        file.append(b"!").unwrap();
        let mut buffer = [0; 6];
        disk.open(&name, AccessPattern::Sequential).unwrap().read_at(0, &mut buffer).unwrap();
        assert_eq!(&buffer, b"whole!");
    }
}

#[test]
fn a_slow_disk_waits_on_a_virtual_clock() {
    let disk = FaultDisk::over_memory(MemoryDisk::new());
    let mut file = disk.create(path("000001.wal")).unwrap();
    let hooked = Arc::new(AtomicU64::new(0));
    disk.on_wait({
        let hooked = Arc::clone(&hooked);
        move |wait| {
            hooked.fetch_add(wait.as_millis() as u64, Ordering::Relaxed);
        }
    });
    disk.set_throttle(Some(Throttle { bytes_per_second: 1_000, burst_bytes: 500, latency: Duration::ZERO }));
    file.append(&[0; 500]).unwrap();
    assert_eq!(disk.waited(), Duration::ZERO, "the burst is free");
    file.append(&[0; 250]).unwrap();
    assert_eq!(disk.waited(), Duration::from_millis(250));
    disk.advance(Duration::from_millis(100));
    file.append(&[0; 250]).unwrap();
    assert_eq!(disk.waited(), Duration::from_millis(400));
    disk.advance(Duration::from_secs(100));
    file.append(&[0; 600]).unwrap();
    assert_eq!(disk.waited(), Duration::from_millis(500), "the bucket holds one burst");
    disk.set_throttle(Some(Throttle { bytes_per_second: 1_000, burst_bytes: 0, latency: Duration::from_millis(7) }));
    file.sync().unwrap();
    assert_eq!(disk.waited(), Duration::from_millis(507));
    assert_eq!(hooked.load(Ordering::Relaxed), 507);
    disk.set_throttle(None);
    file.append(&[0; 600]).unwrap();
    assert_eq!(disk.waited(), Duration::from_millis(507));
}
