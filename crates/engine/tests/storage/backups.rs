//! Backups: what they hold and share, who may add to them, and what failures, crashes and damage leave of them.
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mycelium_base::FileKind;
use mycelium_engine::{
    Backups, Database, Durability, Error, ErrorKind, Options, Result, Table, TableOptions, WriteBatch,
};
use mycelium_manifest::{Manifest, ManifestOptions};
use mycelium_vfs::{CrashDraw, Disk, Effect, Fault, FaultDisk, MemoryDisk, OperationKind};

use crate::common::{Append, Rows, assert_verified, fill, key, scan, small_options, small_table, take_restored};

const BACKUPS: &str = "/backups";

fn create(disk: &MemoryDisk) -> (Database, Table) {
    let database = Database::open("/db", small_options(disk)).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    (database, table)
}

fn backups(disk: &MemoryDisk) -> Backups {
    Backups::open(Arc::new(disk.clone()), BACKUPS).unwrap()
}

fn numbers(disk: &MemoryDisk) -> Vec<u64> {
    backups(disk).list().unwrap().iter().map(|backup| backup.number).collect()
}

/// Restores a backup, reads its table `t`, and removes what was restored.
fn restored(disk: &MemoryDisk, number: u64) -> Rows {
    let directory = Path::new("/restored");
    backups(disk).restore(number, directory, |done, total| assert!(done <= total)).unwrap();
    take_restored(disk, directory).unwrap().1
}

/// The SSTs in a directory.
fn ssts(disk: &MemoryDisk, directory: &str) -> Vec<PathBuf> {
    let paths = disk.paths().into_iter().filter(|path| path.parent() == Some(Path::new(directory)));
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "sst")).collect()
}

/// Fails unless the directory holds what its backups need, and nothing else.
fn assert_tidy(disk: &MemoryDisk) {
    let backups = backups(disk);
    let report = backups.verify(None, |done, total| assert!(done <= total)).unwrap();
    assert!(report.is_ok(), "{:#?}", report.problems);
    assert_eq!(ssts(disk, BACKUPS).len() as u64, report.files, "files that no backup needs");
    let names = disk.list(Path::new(BACKUPS)).unwrap();
    assert_eq!(names.len() as u64, report.files + backups.list().unwrap().len() as u64 + 1, "{names:?}");
}

#[test]
fn a_backup_copies_what_earlier_ones_lack_and_outlives_its_database() {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    fill(&table, 0, 3000, "old");
    table.delete_range(&key(100), &key(200), Durability::Os).unwrap();
    database.wait_idle().unwrap();
    table.put(b"in no file, nor with the system", b"", Durability::Buffered).unwrap();
    let (first, sequence) = (scan(&table), database.last_sequence());
    let mut copied = (0, 0);
    let one = database.backup_with_progress(BACKUPS, |done, total| copied = (done, total)).unwrap();
    assert_eq!((one.number, one.sequence), (1, sequence));
    assert!(one.files > 1 && (one.copied, one.copied_bytes) == (one.files, one.bytes), "{one:?}");
    assert_eq!(copied, (one.bytes, one.bytes));

    table.put(b"another", b"row", Durability::Os).unwrap();
    let second = scan(&table);
    let two = database.backup(BACKUPS).unwrap();
    assert!(two.number == 2 && two.copied > 0 && two.copied < two.files, "{two:?}");
    // Nothing was written since: nothing is copied.
    let three = database.backup(BACKUPS).unwrap();
    assert_eq!((three.number, three.files, three.copied, three.copied_bytes), (3, two.files, 0, 0));
    fill(&table, 0, 3000, "new");
    database.compact(&table).unwrap();
    let fourth = scan(&table);
    let four = database.backup(BACKUPS).unwrap();
    assert!(four.number == 4 && four.copied > 0, "{four:?}");
    assert_tidy(&disk);

    drop(table);
    database.close().unwrap();
    for name in disk.list(Path::new("/db")).unwrap() {
        disk.remove(&Path::new("/db").join(name)).unwrap();
    }
    for (number, rows) in [(1, &first), (2, &second), (3, &second), (4, &fourth)] {
        assert_eq!(restored(&disk, number), *rows, "backup {number}");
    }
    let occupied = backups(&disk).restore(4, BACKUPS, |_, _| {}).unwrap_err();
    assert_eq!(occupied.kind(), ErrorKind::InvalidArgument);
    assert_eq!(backups(&disk).restore(5, "/elsewhere", |_, _| {}).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!disk.exists(Path::new("/elsewhere")).unwrap());
}

#[test]
fn what_is_deleted_frees_what_only_it_held() {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    for number in 1..=5 {
        fill(&table, 0, 60 * number, &format!("in {number}:"));
        assert_eq!(database.backup(BACKUPS).unwrap().number, u64::from(number));
        if number == 3 {
            database.compact(&table).unwrap();
        }
    }
    let backups = backups(&disk);
    let list = backups.list().unwrap();
    assert!(list.iter().all(|backup| backup.damage.is_none() && backup.own_bytes < backup.bytes), "{list:?}");
    assert!(list.is_sorted_by_key(|backup| backup.sequence));
    assert_eq!(backups.delete(&[2, 9]).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(backups.keep(0).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(numbers(&disk), [1, 2, 3, 4, 5]);

    let deleted = backups.delete(&[3, 3]).unwrap();
    assert_eq!((deleted.numbers, deleted.files, deleted.bytes), (vec![3], 1, list[2].own_bytes));
    assert_tidy(&disk);
    let rest: Vec<Rows> = [4, 5].map(|number| restored(&disk, number)).into();
    assert_eq!(backups.keep(2).unwrap().numbers, [1, 2]);
    assert!(backups.keep(2).unwrap().numbers.is_empty());
    assert_tidy(&disk);
    assert_eq!([4, 5].map(|number| restored(&disk, number)).to_vec(), rest);
    backups.delete(&[4, 5]).unwrap();
    assert_eq!(disk.list(Path::new(BACKUPS)).unwrap(), ["LOCK"]);
}

/// The source can lie on a disk that is lost, and links lead to no other.
#[test]
fn a_backup_shares_no_byte_with_its_database() {
    let memory = MemoryDisk::new();
    let disk = FaultDisk::over_memory(memory.clone());
    let options = Options { disk: Arc::new(disk.clone()), ..small_options(&memory) };
    let database = Database::open("/db", options).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    fill(&table, 0, 500, "v");
    let expected = scan(&table);
    disk.schedule(Fault::new(OperationKind::HardLink, Effect::OtherFileSystem).sticky());
    database.backup(BACKUPS).unwrap();
    for path in ssts(&memory, "/db") {
        memory.overwrite(&path, 0, &[0xff; 16]).unwrap();
    }
    assert_tidy(&memory);
    assert_eq!(restored(&memory, 1), expected);
}

/// Numbers of files are given out again by a database that was restored, for files that hold something else.
#[test]
fn a_database_that_was_restored_and_its_source_are_never_confused() {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    // Of three numbers that a flush takes two are of files: some of both sides are equal, wherever each begins.
    let other = database.create_table("other", small_table()).unwrap();
    fill(&table, 0, 200, "common");
    database.backup(BACKUPS).unwrap();
    backups(&disk).restore(1, "/fork", |_, _| {}).unwrap();
    let fork = Database::open("/fork", small_options(&disk)).unwrap();
    let (forked, other_fork) = (fork.table("t").unwrap(), fork.table("other").unwrap());
    for n in 0..6 {
        table.put(&key(n), b"here ", Durability::Os).unwrap();
        other.put(&key(n), b"here ", Durability::Os).unwrap();
        database.flush().unwrap();
        forked.put(&key(n), b"there", Durability::Os).unwrap();
        other_fork.put(&key(n), b"there", Durability::Os).unwrap();
        fork.flush().unwrap();
    }
    let (here, there) = (scan(&table), scan(&forked));
    assert_ne!(here, there);
    for number in [2, 4] {
        assert_eq!(database.backup(BACKUPS).unwrap().number, number);
        assert_eq!(fork.backup(BACKUPS).unwrap().number, number + 1);
    }
    let files = ssts(&disk, BACKUPS);
    let numbers: BTreeSet<&str> = files.iter().map(|path| &path.file_name().unwrap().to_str().unwrap()[..6]).collect();
    assert!(numbers.len() < files.len(), "no number was given out again");
    for (number, rows) in [(2, &here), (3, &there), (4, &here), (5, &there)] {
        assert_eq!(restored(&disk, number), *rows, "backup {number}");
    }
    assert_tidy(&disk);
}

#[test]
fn a_directory_of_another_database_is_refused() {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    fill(&table, 0, 100, "v");
    database.backup(BACKUPS).unwrap();
    database.checkpoint("/checkpoint").unwrap();
    let other = Database::open("/other", small_options(&disk)).unwrap();
    let before = disk.paths();
    for (database, directory) in [(&other, BACKUPS), (&other, "/db"), (&database, "/db"), (&database, "/checkpoint")] {
        let refused = database.backup(directory).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{directory}: {refused}");
    }
    assert_eq!(disk.paths(), before);
    // A copy is the same database.
    let copy = Database::open("/checkpoint", small_options(&disk)).unwrap();
    assert_eq!(copy.backup(BACKUPS).unwrap().number, 2);
    assert_eq!(other.backup("/others").unwrap().number, 1);
    let missing = Backups::open(Arc::new(disk), "/none").unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

#[test]
fn compactions_and_a_second_backup_beside_a_backup() {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    fill(&table, 0, 2000, "old");
    database.wait_idle().unwrap();
    let expected = scan(&table);
    let mut is_first = true;
    let summary = database.backup_with_progress(BACKUPS, |_, _| {
        if std::mem::take(&mut is_first) {
            assert_eq!(database.backup(BACKUPS).unwrap_err().kind(), ErrorKind::Locked);
            assert_eq!(backups(&disk).keep(1).unwrap_err().kind(), ErrorKind::Locked);
            fill(&table, 0, 2000, "new");
            database.compact(&table).unwrap();
            database.wait_idle().unwrap();
        }
    });
    assert_eq!(summary.unwrap().number, 1);
    assert_eq!(restored(&disk, 1), expected);
    let newer = scan(&table);
    database.backup(BACKUPS).unwrap();
    assert_eq!(restored(&disk, 2), newer);
    assert_tidy(&disk);
}

#[test]
fn a_database_opened_read_only_is_backed_up_though_a_writer_removes_its_files() {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    fill(&table, 0, 300, "in a file");
    database.flush().unwrap();
    fill(&table, 200, 300, "in the log");
    table.delete_range(&key(10), &key(20), Durability::Sync).unwrap();
    let expected = scan(&table);
    drop(table);
    database.close().unwrap();
    let reader = Database::open("/db", Options { read_only: true, ..small_options(&disk) }).unwrap();
    let writer = Database::open("/db", small_options(&disk)).unwrap();
    let table = writer.table("t").unwrap();
    fill(&table, 0, 300, "newer");
    writer.compact(&table).unwrap();
    writer.wait_idle().unwrap();
    assert_eq!(reader.checkpoint("/copy").unwrap_err().kind(), ErrorKind::NotFound, "its files are gone");
    reader.backup(BACKUPS).unwrap();
    let newer = scan(&table);
    writer.backup(BACKUPS).unwrap();
    assert_eq!((restored(&disk, 1), restored(&disk, 2)), (expected, newer));
    assert_tidy(&disk);
    let closed = reader.clone();
    reader.close().unwrap();
    assert_eq!(closed.backup(BACKUPS).unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_database_from_before_there_were_backups_gets_an_identity() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    disk.create_directory(Path::new("/db")).unwrap();
    drop(Manifest::create(disk.clone(), Path::new("/db"), ManifestOptions::default()).unwrap());
    let options = Options { disk, ..small_options(&MemoryDisk::new()) };
    let read_only = Options { read_only: true, ..options.clone() };
    let reader = Database::open("/db", read_only.clone()).unwrap();
    assert_eq!(reader.backup(BACKUPS).unwrap_err().kind(), ErrorKind::InvalidArgument);
    Database::open("/db", options).unwrap().close().unwrap();
    for number in 1..3 {
        let reader = Database::open("/db", read_only.clone()).unwrap();
        assert_eq!(reader.backup(BACKUPS).unwrap().number, number);
    }
}

#[test]
fn a_database_that_an_error_latched_is_backed_up_as_it_is_read() {
    let memory = MemoryDisk::new();
    let disk = FaultDisk::over_memory(memory.clone());
    let options = Options { disk: Arc::new(disk.clone()), ..small_options(&memory) };
    let database = Database::open("/db", options).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    fill(&table, 0, 500, "in a file");
    database.backup(BACKUPS).unwrap();
    for n in 0.. {
        table.put(&key(3 * n), format!("sealed{n}").as_bytes(), Durability::Buffered).unwrap();
        if database.metrics().sealed_generations > 0 {
            break;
        }
    }
    table.put(&key(9), b"active", Durability::Buffered).unwrap();
    disk.schedule(Fault::new(OperationKind::Sync, Effect::LoseUnsynced).on(FileKind::Wal));
    assert_eq!(table.put(b"refused", b"", Durability::Sync).unwrap_err().kind(), ErrorKind::Io);
    assert!(database.failure().is_some());
    let expected = scan(&table);
    // What a backup that failed wrote of memory goes, too.
    disk.schedule(Fault::new(OperationKind::Rename, Effect::Io));
    assert_eq!(database.backup(BACKUPS).unwrap_err().kind(), ErrorKind::Io);
    assert_tidy(&memory);
    let two = database.backup(BACKUPS).unwrap();
    assert!(two.number == 2 && two.sequence == database.last_sequence() && two.copied < two.files, "{two:?}");
    assert_eq!(restored(&memory, 2), expected);
    assert_tidy(&memory);
}

#[test]
fn a_merge_operator_is_needed_to_open_and_not_to_restore() {
    let disk = MemoryDisk::new();
    let options = Options { merge_operators: vec![Arc::new(Append)], ..small_options(&disk) };
    let database = Database::open("/db", options.clone()).unwrap();
    let definition = TableOptions { merge_operator: Some("append".into()), ..small_table() };
    let table = database.create_table("t", definition).unwrap();
    table.merge(b"k", b"a", Durability::Os).unwrap();
    database.backup(BACKUPS).unwrap();
    table.merge(b"k", b"b", Durability::Os).unwrap();
    database.backup(BACKUPS).unwrap();
    for (number, value) in [(1, &b"a"[..]), (2, &b"ab"[..])] {
        let directory = format!("/restored-{number}");
        backups(&disk).restore(number, &directory, |_, _| {}).unwrap();
        assert_eq!(Database::open(&directory, small_options(&disk)).unwrap_err().kind(), ErrorKind::Unsupported);
        let restored = Database::open(&directory, options.clone()).unwrap();
        assert_eq!(restored.table("t").unwrap().get(b"k").unwrap().unwrap(), value);
    }
}

#[test]
fn damage_is_found_and_does_not_spread() {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    fill(&table, 0, 1000, "v");
    database.backup(BACKUPS).unwrap();
    let file = ssts(&disk, BACKUPS).remove(0);
    disk.flip_bit(&file, 4321).unwrap();
    let report = backups(&disk).verify(Some(1), |_, _| {}).unwrap();
    assert_eq!(report.problem_count, 1);
    assert!(
        report.problems[0].table.as_deref() == Some("t") && report.problems[0].error.file() == Some(file.as_path())
    );
    let refused = backups(&disk).restore(1, "/copy", |_, _| {}).unwrap_err();
    assert!(refused.is_corruption() && refused.file() == Some(file.as_path()), "{refused}");
    assert!(!disk.paths().iter().any(|path| path.starts_with("/copy")), "{:?}", disk.paths());

    // A file that is missing is brought back by the next backup that needs it.
    disk.remove(&file).unwrap();
    assert!(backups(&disk).verify(None, |_, _| {}).unwrap().problems[0].error.is_corruption());
    assert!(backups(&disk).restore(1, "/copy", |_, _| {}).unwrap_err().is_corruption());
    assert_eq!(database.backup(BACKUPS).unwrap().copied, 1);
    assert_tidy(&disk);

    // What is damaged in the database is not backed up.
    table.put(b"another", b"row", Durability::Os).unwrap();
    let known: BTreeSet<PathBuf> = ssts(&disk, "/db").into_iter().collect();
    database.flush().unwrap();
    let fresh = ssts(&disk, "/db").into_iter().find(|path| !known.contains(path)).unwrap();
    disk.flip_bit(&fresh, 99).unwrap();
    let refused = database.backup(BACKUPS).unwrap_err();
    assert!(refused.is_corruption() && refused.file() == Some(fresh.as_path()), "{refused}");
    assert_eq!(numbers(&disk), [1, 2]);
    assert_tidy(&disk);
}

#[test]
fn files_of_a_backup_whose_description_is_damaged_stay() {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    fill(&table, 0, 500, "old");
    let expected = scan(&table);
    database.backup(BACKUPS).unwrap();
    fill(&table, 0, 500, "new");
    database.compact(&table).unwrap();
    database.backup(BACKUPS).unwrap();
    let files = ssts(&disk, BACKUPS);
    disk.flip_bit(Path::new("/backups/BACKUP-000001"), 200).unwrap();
    let list = backups(&disk).list().unwrap();
    assert!(list[0].damage.as_ref().is_some_and(Error::is_corruption) && list[1].damage.is_none());
    assert!(backups(&disk).restore(1, "/copy", |_, _| {}).unwrap_err().is_corruption());
    assert_eq!(backups(&disk).verify(None, |_, _| {}).unwrap().problem_count, 1);
    assert_eq!(restored(&disk, 2), scan(&table));
    fill(&table, 0, 500, "newest");
    database.compact(&table).unwrap();
    database.backup(BACKUPS).unwrap();
    backups(&disk).delete(&[2]).unwrap();
    assert!(files.iter().all(|file| disk.exists(file).unwrap()), "a damaged backup may still need them");
    // The disk was read wrongly: nothing is lost.
    disk.flip_bit(Path::new("/backups/BACKUP-000001"), 200).unwrap();
    assert_eq!(restored(&disk, 1), expected);

    disk.flip_bit(Path::new("/backups/BACKUP-000001"), 200).unwrap();
    // Of those that can be read one is kept; the damaged one is older.
    assert_eq!(backups(&disk).keep(1).unwrap().numbers, [1]);
    assert_tidy(&disk);
    // Nobody knows whose backups these are.
    disk.flip_bit(Path::new("/backups/BACKUP-000003"), 200).unwrap();
    assert!(database.backup(BACKUPS).unwrap_err().is_corruption());
}

#[test]
fn a_full_disk_refuses_a_backup_and_gets_its_space_back() {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    fill(&table, 0, 300, "v");
    database.backup(BACKUPS).unwrap();
    fill(&table, 0, 3000, "more");
    database.flush().unwrap();
    let used = disk.used_space();
    for room in [0, 10, 1_000, 5_000] {
        disk.set_capacity(Some(used + room));
        assert_eq!(database.backup(BACKUPS).unwrap_err().kind(), ErrorKind::NoSpace, "room of {room} bytes");
        assert_eq!(disk.used_space(), used);
        assert_tidy(&disk);
    }
    disk.set_capacity(None);
    assert!(database.failure().is_none());
    database.backup(BACKUPS).unwrap();
    assert_eq!(restored(&disk, 2), scan(&table));
}

/// A closed database `/db` with some rows in a backup.
fn with_a_backup() -> (MemoryDisk, Rows) {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    fill(&table, 0, 100, "v");
    database.backup(BACKUPS).unwrap();
    let rows = scan(&table);
    drop(table);
    database.close().unwrap();
    (disk, rows)
}

/// Makes a second backup as the fault says, and a third without it. Whether the fault was met.
fn fail_once(fault: Fault) -> bool {
    let (base, first) = with_a_backup();
    let memory = base.kill_image();
    let disk = FaultDisk::over_memory(memory.clone());
    let database = Database::open("/db", Options { disk: Arc::new(disk.clone()), ..small_options(&memory) }).unwrap();
    let table = database.table("t").unwrap();
    fill(&table, 50, 400, "w");
    database.flush().unwrap();
    disk.schedule(fault);
    let result = database.backup(BACKUPS);
    disk.heal();
    if disk.fired() == 0 {
        assert_eq!(result.unwrap().number, 2);
        return false;
    }
    for image in [memory.kill_image(), memory.crash_image(&CrashDraw::from_seed(1))] {
        let found = numbers(&image);
        assert!(found == [1, 2] || (found == [1] && result.is_err()), "{fault:?}: {result:?}, {found:?}");
        assert!(backups(&image).verify(None, |_, _| {}).unwrap().is_ok(), "{fault:?}");
        assert_eq!(restored(&image, 1), first, "{fault:?}");
        if found.len() == 2 {
            assert_eq!(restored(&image, 2), scan(&table), "{fault:?}");
        }
    }
    assert!(database.failure().is_none(), "{fault:?}: a backup made the database read-only");
    let newest = database.backup(BACKUPS).unwrap().number;
    assert_eq!(restored(&memory, newest), scan(&table), "{fault:?}");
    assert_tidy(&memory);
    true
}

#[test]
fn a_failed_backup_leaves_the_others_and_can_be_repeated() {
    let faults = [
        (OperationKind::CreateDirectory, Effect::Io),
        (OperationKind::Lock, Effect::Io),
        (OperationKind::List, Effect::Io),
        (OperationKind::Open, Effect::Io),
        (OperationKind::FileLen, Effect::Io),
        (OperationKind::Create, Effect::Io),
        (OperationKind::Create, Effect::IoAfterwards),
        (OperationKind::Append, Effect::Io),
        (OperationKind::Append, Effect::NoSpace),
        (OperationKind::Append, Effect::PartialAppend { keep: 100 }),
        (OperationKind::Sync, Effect::Io),
        (OperationKind::Sync, Effect::LoseUnsynced),
        (OperationKind::SyncDirectory, Effect::Io),
        (OperationKind::SyncDirectory, Effect::IoAfterwards),
        (OperationKind::Rename, Effect::Io),
        (OperationKind::Rename, Effect::IoAfterwards),
        (OperationKind::Read, Effect::Io),
        (OperationKind::Read, Effect::ShortRead { keep: 10 }),
        (OperationKind::Read, Effect::FlipBit { bit: 77 }),
    ];
    for (kind, effect) in faults {
        let met = (1..).take_while(|nth| fail_once(Fault::new(kind, effect).nth(*nth))).count();
        assert!(met > 0, "a backup asks for no {kind:?}");
    }
}

/// Restores the first backup in `/new`.
fn restore_first(disk: Arc<dyn Disk>) -> Result<()> {
    Backups::open(disk, BACKUPS)?.restore(1, "/new", |_, _| {}).map(drop)
}

#[test]
fn a_failed_restoring_leaves_nothing_and_can_be_repeated() {
    let (base, expected) = with_a_backup();
    let kinds = [
        OperationKind::Open,
        OperationKind::Read,
        OperationKind::Create,
        OperationKind::Append,
        OperationKind::Sync,
        OperationKind::Rename,
        OperationKind::SyncDirectory,
    ];
    for kind in kinds {
        for nth in 1.. {
            let memory = base.kill_image();
            let disk = FaultDisk::over_memory(memory.clone());
            disk.schedule(Fault::new(kind, Effect::Io).nth(nth));
            let result = restore_first(Arc::new(disk.clone()));
            if disk.fired() == 0 {
                assert!(result.is_ok() && nth > 1, "restoring asks for no {kind:?}");
                break;
            }
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Io, "{kind:?} {nth}");
            let left: Vec<PathBuf> = memory.paths().into_iter().filter(|path| path.starts_with("/new")).collect();
            assert!(left.is_empty(), "{kind:?} {nth}: {left:?}");
            restore_first(Arc::new(memory.clone())).unwrap();
            let database = Database::open("/new", small_options(&memory)).unwrap();
            assert_eq!(scan(&database.table("t").unwrap()), expected);
        }
    }
}

#[test]
fn a_crash_leaves_a_whole_restored_database_or_none() {
    let (base, expected) = with_a_backup();
    let trial = base.kill_image();
    restore_first(Arc::new(trial.clone())).unwrap();
    for n in 0..=trial.operations() {
        let disk = base.kill_image();
        disk.power_off_after(Some(n));
        let has_finished = restore_first(Arc::new(disk.clone())).is_ok();
        for seed in 0..4 {
            let image = disk.crash_image(&CrashDraw::from_seed(n * 4 + seed));
            let options = Options { create_if_missing: false, ..small_options(&image) };
            match Database::open("/new", options) {
                Ok(database) => {
                    assert_eq!(scan(&database.table("t").unwrap()), expected, "operation {n}, seed {seed}");
                    assert_verified(&database);
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NotFound, "operation {n}, seed {seed}: {error}");
                    assert!(!has_finished, "operation {n}, seed {seed}: the database is gone");
                }
            }
        }
    }
}

/// How far [`make_and_delete`] got.
#[derive(Clone, Copy, Default)]
struct Reached {
    made: u64,
    is_deleting: bool,
    has_deleted: bool,
}

const ROWS: u32 = 60;

/// Makes three backups, each with [`ROWS`] rows more, and deletes two.
fn make_and_delete(disk: &MemoryDisk, reached: &mut Reached) -> Result<()> {
    let database = Database::open("/db", small_options(disk))?;
    let table = database.create_table("t", small_table())?;
    for n in 0..3 {
        let mut batch = WriteBatch::new();
        for row in n * ROWS..(n + 1) * ROWS {
            batch.put(&table, &key(row), b"value");
        }
        database.write(&batch, Durability::Sync)?;
        if n == 2 {
            database.compact(&table)?;
        }
        reached.made = database.backup(BACKUPS)?.number;
    }
    reached.is_deleting = true;
    Backups::open(Arc::new(disk.clone()), BACKUPS)?.keep(1)?;
    reached.has_deleted = true;
    Ok(())
}

/// Every backup that is seen is whole, and those that must be there are.
fn check_after_crash(image: &MemoryDisk, reached: Reached, context: &str) {
    let Ok(backups) = Backups::open(Arc::new(image.clone()), BACKUPS) else {
        assert_eq!(reached.made, 0, "{context}: the directory is gone");
        return;
    };
    let found = numbers(image);
    let promised = if reached.is_deleting { 3..=3 } else { 1..=reached.made };
    assert!(promised.clone().all(|number| found.contains(&number)), "{context}: {found:?} of {promised:?}");
    assert!(!reached.has_deleted || found == [3], "{context}: {found:?}");
    for number in found {
        assert!(backups.verify(Some(number), |_, _| {}).unwrap().is_ok(), "{context}: backup {number}");
        assert_eq!(restored(image, number).len() as u64, number * u64::from(ROWS), "{context}: backup {number}");
    }
    let options = Options { create_if_missing: false, ..small_options(image) };
    if let Ok(database) = Database::open("/db", options)
        && let Ok(table) = database.table("t")
    {
        let newest = database.backup(BACKUPS).unwrap().number;
        assert_eq!(restored(image, newest), scan(&table), "{context}: afterwards");
        assert_tidy(image);
    }
}

#[test]
fn a_crash_leaves_every_backup_whole_or_unseen() {
    let disk = MemoryDisk::new();
    make_and_delete(&disk, &mut Reached::default()).unwrap();
    for n in 0..=disk.operations() {
        let disk = MemoryDisk::new();
        disk.power_off_after(Some(n));
        let mut reached = Reached::default();
        let result = make_and_delete(&disk, &mut reached);
        assert_eq!(result.is_ok(), reached.has_deleted);
        for seed in 0..2 {
            let image = disk.crash_image(&CrashDraw::from_seed(n * 2 + seed));
            check_after_crash(&image, reached, &format!("power lost at operation {n}, seed {seed}"));
        }
        if n.is_multiple_of(4) {
            check_after_crash(&disk.kill_image(), reached, &format!("process killed at operation {n}"));
        }
    }
}
