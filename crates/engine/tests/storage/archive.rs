//! The archive of the log, and restores to moments between two backups: against a model, through crashes, failures and
//! damage.
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mycelium_encoding::{DatumRef, Schema};
use mycelium_engine::events::{Event, EventListener};
use mycelium_engine::{
    ArchiveOptions, Background, Backups, Database, Durability, ErrorKind, Expiry, IndexOptions, ManualClock, Options,
    RestoreOptions, RestorePoint, RestoreSummary, Result, Table, TableOptions, WriteBatch,
};
use mycelium_vfs::{CrashDraw, Disk, Effect, Fault, FaultDisk, MemoryDisk, OperationKind};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::common::{Rows, fill, key, scan, small_options, small_table, take_restored};

const ARCHIVE: &str = "/archive";
const BACKUPS: &str = "/backups";

fn archived(disk: &MemoryDisk) -> Options {
    Options { archive: Some(ArchiveOptions::new(ARCHIVE)), ..small_options(disk) }
}

fn create(disk: &MemoryDisk) -> (Database, Table) {
    let database = Database::open("/db", archived(disk)).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    (database, table)
}

fn backups(disk: &MemoryDisk) -> Backups {
    Backups::open(Arc::new(disk.clone()), BACKUPS).unwrap()
}

fn until(disk: &MemoryDisk, until: RestorePoint) -> RestoreOptions {
    RestoreOptions { until, database: small_options(disk), ..RestoreOptions::default() }
}

/// Restores, reads table `t`, and removes what was restored.
fn restored(disk: &MemoryDisk, request: &RestoreOptions) -> Result<(RestoreSummary, Rows)> {
    let directory = Path::new("/restored");
    let summary = backups(disk).restore_to(ARCHIVE, directory, request, |done, total| assert!(done <= total))?;
    let (sequence, rows) = take_restored(disk, directory)?;
    assert_eq!(sequence, summary.sequence);
    Ok((summary, rows))
}

/// The files of the archive, sorted.
fn files(disk: &MemoryDisk) -> Vec<PathBuf> {
    disk.paths().into_iter().filter(|path| path.starts_with(ARCHIVE)).collect()
}

/// A batch of one to four operations, on the table and on the model; the last sequence number.
fn write_some(database: &Database, table: &Table, rng: &mut SmallRng, rows: &mut Rows) -> u64 {
    let mut batch = WriteBatch::new();
    for _ in 0..rng.random_range(1..=4) {
        let n = rng.random_range(0..60);
        match rng.random_range(0..8) {
            0 => {
                batch.delete(table, &key(n));
                rows.remove(&key(n));
            }
            1 => {
                batch.delete_range(table, &key(n), &key(n + 5));
                rows.retain(|found, _| *found < key(n) || *found >= key(n + 5));
            }
            _ => {
                let value = vec![rng.random_range(0..=255); rng.random_range(0..2000)];
                batch.put(table, &key(n), &value);
                rows.insert(key(n), value);
            }
        }
    }
    database.write(&batch, Durability::Os).unwrap()
}

#[test]
fn a_restore_to_any_sequence_number_equals_the_model() {
    for seed in 0..3 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let disk = MemoryDisk::new();
        let (mut database, _) = create(&disk);
        database.backup(BACKUPS).unwrap();
        let mut rows = Rows::new();
        let mut states = vec![(database.last_sequence(), rows.clone())];
        for _ in 0..120 {
            let table = database.table("t").unwrap();
            let sequence = write_some(&database, &table, &mut rng, &mut rows);
            states.push((sequence, rows.clone()));
            match rng.random_range(0..12) {
                0 => database.flush().unwrap(),
                1 => {
                    database.backup(BACKUPS).unwrap();
                }
                2 => {
                    database.close().unwrap();
                    database = Database::open("/db", archived(&disk)).unwrap();
                }
                _ => {}
            }
        }
        let with_log = |point| RestoreOptions { log: Some("/db".into()), ..until(&disk, point) };
        for _ in 0..8 {
            let at = rng.random_range(1..states.len());
            let ((before, rows_before), (sequence, rows)) = (&states[at - 1], &states[at]);
            let (summary, found) = restored(&disk, &with_log(RestorePoint::Sequence(*sequence))).unwrap();
            assert_eq!((summary.sequence, &found), (*sequence, rows), "seed {seed}");
            // Of a batch that goes beyond the number there is nothing.
            let (summary, found) = restored(&disk, &with_log(RestorePoint::Sequence(*sequence - 1))).unwrap();
            assert_eq!((summary.sequence, &found), (*before, rows_before), "seed {seed}");
        }
        let last = states.last().unwrap();
        let (summary, found) = restored(&disk, &with_log(RestorePoint::End)).unwrap();
        assert_eq!((summary.sequence, &found), (last.0, &last.1), "seed {seed}");
        let beyond = restored(&disk, &with_log(RestorePoint::Sequence(last.0 + 1))).unwrap_err();
        assert_eq!(beyond.kind(), ErrorKind::NotFound, "{beyond}");
        // Once it is flushed the archive has all of it, from the first backup on.
        database.flush().unwrap();
        let (summary, found) =
            restored(&disk, &RestoreOptions { backup: Some(1), ..until(&disk, RestorePoint::Sequence(last.0)) })
                .unwrap();
        assert_eq!((summary.backup, summary.sequence, &found), (1, last.0, &last.1), "seed {seed}");
        assert!(summary.segments > 1 && summary.batches == 120, "{summary:?}");
    }
}

#[test]
fn a_restore_to_a_time_takes_what_was_committed_by_then() {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    database.backup(BACKUPS).unwrap();
    fill(&table, 0, 20, "v");
    database.flush().unwrap();
    let long_ago = restored(&disk, &until(&disk, RestorePoint::Time(UNIX_EPOCH))).unwrap_err();
    assert_eq!(long_ago.kind(), ErrorKind::NotFound, "{long_ago}");
    let tomorrow = SystemTime::now() + Duration::from_secs(24 * 3600);
    let (summary, rows) = restored(&disk, &until(&disk, RestorePoint::Time(tomorrow))).unwrap();
    assert_eq!(rows, scan(&table));
    assert!(summary.time <= tomorrow);
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Those of the log and of backups were the machine's, whatever the clock was.
#[test]
fn times_were_not_those_of_the_clock_that_was_given() {
    let (disk, clock) = (MemoryDisk::new(), Arc::new(ManualClock::at(at(1_000))));
    let database = Database::open("/db", Options { clock: clock.clone(), ..archived(&disk) }).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    database.backup(BACKUPS).unwrap();
    assert_eq!(backups(&disk).list().unwrap()[0].time, UNIX_EPOCH + at(1_000));
    let mut states = vec![(UNIX_EPOCH + at(1_000), scan(&table))];
    for round in 2..5 {
        clock.set(at(1_000 * u64::from(round)));
        fill(&table, 10 * round, 10 * round + 10, "v");
        states.push((UNIX_EPOCH + at(1_000 * u64::from(round)), scan(&table)));
    }
    database.flush().unwrap();
    for (time, rows) in states {
        let (summary, found) = restored(&disk, &until(&disk, RestorePoint::Time(time + at(500)))).unwrap();
        assert_eq!((summary.time, found), (time, rows));
    }
    let too_early = restored(&disk, &until(&disk, RestorePoint::Time(UNIX_EPOCH + at(999)))).unwrap_err();
    assert_eq!(too_early.kind(), ErrorKind::NotFound, "{too_early}");
}

/// A restore to a moment while it was made began with an older one, or was refused.
#[test]
fn a_backup_had_the_time_of_its_end() {
    let (disk, clock) = (MemoryDisk::new(), Arc::new(ManualClock::at(at(1_000))));
    let database = Database::open("/db", Options { clock: clock.clone(), ..archived(&disk) }).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    fill(&table, 0, 10, "v");
    let rows = scan(&table);
    let mut is_written_to = false;
    let copying = |_, _| {
        if !is_written_to {
            is_written_to = true;
            clock.set(at(2_000));
            fill(&table, 10, 20, "v");
            clock.set(at(3_000));
        }
    };
    let backup = database.backup_with_progress(BACKUPS, copying).unwrap();
    assert_eq!(backups(&disk).list().unwrap()[0].time, UNIX_EPOCH + at(1_000));
    database.flush().unwrap();
    let (summary, found) = restored(&disk, &until(&disk, RestorePoint::Time(UNIX_EPOCH + at(1_500)))).unwrap();
    assert_eq!((summary.backup, summary.sequence, found), (backup.number, backup.sequence, rows));
    assert_eq!(summary.time, UNIX_EPOCH + at(1_000));
    let (_, found) = restored(&disk, &until(&disk, RestorePoint::Time(UNIX_EPOCH + at(2_500)))).unwrap();
    assert_eq!(found, scan(&table));
}

/// It was at its end once the backup was copied, however much of the log was still to come.
#[test]
fn the_progress_of_a_restore_left_out_the_log() {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    database.backup(BACKUPS).unwrap();
    for round in 0..4 {
        fill(&table, 10 * round, 10 * round + 10, "v");
        database.flush().unwrap();
    }
    let mut told = Vec::new();
    let request = until(&disk, RestorePoint::End);
    backups(&disk).restore_to(ARCHIVE, "/restored", &request, |done, total| told.push((done, total))).unwrap();
    let total = told[0].1;
    assert_eq!((told[0], told.last()), ((0, total), Some(&(total, total))));
    assert!(told.is_sorted() && told.iter().all(|(_, of)| *of == total), "{told:?}");
    assert!(told.iter().filter(|(done, _)| *done > 0 && *done < total).count() >= 3, "{told:?}");
}

/// The log says nothing of bulk loads and of what changes tables.
#[test]
fn a_restore_ends_before_what_the_log_does_not_have() {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    database.backup(BACKUPS).unwrap();
    fill(&table, 0, 10, "a");
    let (before, rows) = (database.last_sequence(), scan(&table));
    let load = |from: u32| table.ingest((from..from + 5).map(|n| Ok((key(n), b"loaded"))));
    load(100).unwrap();
    fill(&table, 10, 20, "b");
    database.flush().unwrap();
    let error = restored(&disk, &until(&disk, RestorePoint::End)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let text = error.to_string();
    assert!(text.contains("bulk load into table t") && text.contains(&(before + 1).to_string()), "{text}");
    let farthest = RestoreOptions { as_far_as_possible: true, ..until(&disk, RestorePoint::End) };
    let (summary, found) = restored(&disk, &farthest).unwrap();
    assert_eq!((summary.sequence, &found, summary.ended_by.is_some()), (before, &rows, true));
    let (_, found) = restored(&disk, &until(&disk, RestorePoint::Sequence(before))).unwrap();
    assert_eq!(found, rows);

    // A backup takes it on; then a table comes that this does not have.
    database.backup(BACKUPS).unwrap();
    fill(&table, 20, 30, "c");
    let (before, rows) = (database.last_sequence(), scan(&table));
    let other = database.create_table("other", small_table()).unwrap();
    fill(&other, 0, 3, "d");
    database.flush().unwrap();
    let error = restored(&disk, &until(&disk, RestorePoint::End)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("was made"), "{error}");
    let (_, found) = restored(&disk, &until(&disk, RestorePoint::Sequence(before))).unwrap();
    assert_eq!(found, rows);

    // A load that nothing follows is in nothing but its note.
    database.backup(BACKUPS).unwrap();
    fill(&table, 30, 40, "e");
    let rows = scan(&table);
    load(200).unwrap();
    let request = RestoreOptions { log: Some("/db".into()), ..until(&disk, RestorePoint::End) };
    let error = restored(&disk, &request).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let farthest = RestoreOptions { as_far_as_possible: true, ..request };
    assert_eq!(restored(&disk, &farthest).unwrap().1, rows);
}

/// Who restores wants it back, as a rule.
#[test]
fn a_table_that_was_dropped_after_the_backup_is_there() {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    let other = database.create_table("other", small_table()).unwrap();
    database.backup(BACKUPS).unwrap();
    fill(&table, 0, 10, "v");
    let rows = scan(&table);
    database.drop_table("t").unwrap();
    fill(&other, 0, 10, "v");
    database.flush().unwrap();
    assert_eq!(restored(&disk, &until(&disk, RestorePoint::End)).unwrap().1, rows);
}

fn create_typed(database: &Database, columns: &str, options: TableOptions) -> Table {
    let schema = Schema::parse(&format!("id int64 not null, {columns}, primary key (id)")).unwrap();
    database.create_typed_table("t", schema, options).unwrap()
}

/// The database was opened like any other to write the log to it: rows that had expired since were deleted, and the
/// numbers of what the log has given to their deletes.
#[test]
fn rows_expired_while_the_log_was_restored() {
    const ROWS: i64 = 1_000;
    let disk = MemoryDisk::new();
    let at = |seconds| Arc::new(ManualClock::at(Duration::from_secs(seconds)));
    let database = Database::open("/db", Options { clock: at(0), ..archived(&disk) }).unwrap();
    let expiry = Some(Expiry::new("at", Duration::from_secs(100)));
    let table = create_typed(&database, "at timestamp(s)", TableOptions { expiry, ..small_table() });
    for id in 0..ROWS {
        table.insert_row(&[DatumRef::Int64(id), DatumRef::Timestamp(10)], Durability::Os).unwrap();
        if id == ROWS / 4 {
            database.backup(BACKUPS).unwrap();
        }
    }
    database.flush().unwrap();
    let mut request = until(&disk, RestorePoint::End);
    request.database.background = Background::Threads(2);
    request.database.clock = at(1_000);
    let (summary, rows) = restored(&disk, &request).unwrap();
    assert_eq!(summary.sequence, database.last_sequence());
    assert_eq!(rows, scan(&table));
}

/// No restore passed it, and none could end before it.
#[test]
fn a_row_that_an_index_of_the_backup_cannot_hold_was_no_end_of_a_restore() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", archived(&disk)).unwrap();
    let table = create_typed(&database, "name utf8", small_table());
    let by_name = IndexOptions { name: "by_name".into(), on: vec!["name".into()], ..IndexOptions::default() };
    database.create_index(&table, &by_name).unwrap();
    let insert = |id, name: &str| {
        table.insert_row(&[DatumRef::Int64(id), DatumRef::Utf8(name)], Durability::Os).unwrap();
    };
    insert(1, "short");
    database.backup(BACKUPS).unwrap();
    insert(2, "shorter");
    let (before, rows) = (database.last_sequence(), scan(&table));
    database.drop_index(&table, "by_name").unwrap();
    insert(3, &"x".repeat(70_000));
    database.flush().unwrap();
    let error = restored(&disk, &until(&disk, RestorePoint::End)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let farthest = RestoreOptions { as_far_as_possible: true, ..until(&disk, RestorePoint::End) };
    let (summary, found) = restored(&disk, &farthest).unwrap();
    assert_eq!((summary.sequence, &found, summary.ended_by.is_some()), (before, &rows, true));
}

/// It stayed in the directory, and a restore did not have it.
#[test]
fn the_log_of_a_dropped_table_was_not_archived() {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    database.backup(BACKUPS).unwrap();
    fill(&table, 0, 10, "v");
    let rows = scan(&table);
    database.drop_table("t").unwrap();
    database.flush().unwrap();
    assert_eq!(restored(&disk, &until(&disk, RestorePoint::End)).unwrap().1, rows);
}

/// A database `directory` of one backup, after which five segments were archived, each of ten rows; what there was
/// after each of them.
fn five_segments(directory: &str, options: Options) -> Vec<(u64, Rows)> {
    let database = Database::open(directory, options).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    fill(&table, 0, 10, "v");
    if directory == "/db" {
        database.backup(BACKUPS).unwrap();
    }
    database.flush().unwrap();
    let mut states = vec![(database.last_sequence(), scan(&table))];
    for round in 1..=5 {
        fill(&table, round * 10, round * 10 + 10, "v");
        database.flush().unwrap();
        states.push((database.last_sequence(), scan(&table)));
    }
    database.close().unwrap();
    states
}

#[test]
fn segments_that_are_missing_damaged_doubled_or_foreign_are_told() {
    let disk = MemoryDisk::new();
    let states = five_segments("/db", archived(&disk));
    let elsewhere = Options { archive: Some(ArchiveOptions::new("/other-archive")), ..small_options(&disk) };
    five_segments("/other", elsewhere);
    let foreign: Vec<PathBuf> = disk.paths().into_iter().filter(|path| path.starts_with("/other-archive")).collect();
    let files = files(&disk);
    assert_eq!((files.len(), foreign.len()), (6, 6));
    let (_, rows) = restored(&disk, &until(&disk, RestorePoint::End)).unwrap();
    assert_eq!(rows, states[5].1);

    type Damage = Box<dyn Fn(&MemoryDisk)>;
    let third = files[3].clone();
    let (removed, flipped, headless, replaced) = (third.clone(), third.clone(), third.clone(), third.clone());
    let other = foreign[3].clone();
    let damages: [(ErrorKind, Damage); 4] = [
        (ErrorKind::NotFound, Box::new(move |image: &MemoryDisk| image.remove(&removed).unwrap())),
        (ErrorKind::Corruption, Box::new(move |image: &MemoryDisk| image.flip_bit(&flipped, 8 * 200).unwrap())),
        (ErrorKind::Corruption, Box::new(move |image: &MemoryDisk| image.flip_bit(&headless, 8 * 12).unwrap())),
        (ErrorKind::Corruption, Box::new(move |image: &MemoryDisk| image.copy_file(&other, &replaced).unwrap())),
    ];
    for (i, (kind, damage)) in damages.iter().enumerate() {
        let image = disk.kill_image();
        damage(&image);
        let error = restored(&image, &until(&image, RestorePoint::End)).unwrap_err();
        assert_eq!(error.kind(), *kind, "damage {i}: {error}");
        assert_eq!(error.file(), Some(third.as_path()), "damage {i}: {error}");
        let left: Vec<PathBuf> = image.paths().into_iter().filter(|path| path.starts_with("/restored")).collect();
        assert!(left.is_empty(), "damage {i}: {left:?}");
        // What comes before is not concerned, and can be had.
        let (_, rows) = restored(&image, &until(&image, RestorePoint::Sequence(states[2].0))).unwrap();
        assert_eq!(rows, states[2].1, "damage {i}");
        let farthest = RestoreOptions { as_far_as_possible: true, ..until(&image, RestorePoint::End) };
        let (summary, rows) = restored(&image, &farthest).unwrap();
        assert!((states[2].0..states[3].0).contains(&summary.sequence), "damage {i}: {summary:?}");
        assert!(rows.iter().all(|row| states[3].1.get(row.0) == Some(row.1)), "damage {i}");
        assert!(summary.ended_by.is_some(), "damage {i}");
    }

    // One that is there twice is no end of the log, and harms nothing before it.
    let image = disk.kill_image();
    let prefix = &third.file_name().unwrap().to_str().unwrap()[..34];
    image.copy_file(&third, &Path::new(ARCHIVE).join(format!("{prefix}999999.wal"))).unwrap();
    assert!(restored(&image, &until(&image, RestorePoint::End)).unwrap_err().is_corruption());
    let (_, rows) = restored(&image, &until(&image, RestorePoint::Sequence(states[5].0))).unwrap();
    assert_eq!(rows, states[5].1);
}

/// Counts what is told of the archive.
#[derive(Default)]
struct Told {
    archived: AtomicU64,
    failed: AtomicU64,
}

impl EventListener for Told {
    fn on_event(&self, event: &Event) {
        match event {
            Event::SegmentArchived { .. } => &self.archived,
            Event::ArchiveFailed { .. } => &self.failed,
            _ => return,
        }
        .fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn an_archive_that_fails_keeps_the_log_and_stops_writes_at_a_bound() {
    for reopens in [false, true] {
        let memory = MemoryDisk::new();
        let disk = FaultDisk::over_memory(memory.clone());
        let told = Arc::<Told>::default();
        let options = Options {
            disk: Arc::new(disk.clone()),
            archive: Some(ArchiveOptions { most_waiting_bytes: 200 << 10, ..ArchiveOptions::new(ARCHIVE) }),
            listener: Some(told.clone()),
            ..small_options(&memory)
        };
        let mut database = Database::open("/db", options.clone()).unwrap();
        let mut table = database.create_table("t", small_table()).unwrap();
        database.backup(BACKUPS).unwrap();
        disk.schedule(Fault::new(OperationKind::HardLink, Effect::NoSpace).sticky());
        let mut n = 0;
        let error = loop {
            assert!(n < 1000, "writes never stop");
            match table.put(&key(n), &[7; 1000], Durability::Os) {
                Ok(_) => n += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        let metrics = database.metrics();
        assert!(metrics.unarchived_bytes > 200 << 10 && metrics.archived_segments == 0, "{metrics:?}");
        assert!(metrics.archive_failures > 0 && told.failed.load(Ordering::Relaxed) > 0);
        assert!(database.failure().is_none() && scan(&table).len() == n as usize);

        disk.heal();
        if reopens {
            database.close().unwrap();
            database = Database::open("/db", options).unwrap();
            table = database.table("t").unwrap();
        }
        table.put(&key(n), b"last", Durability::Os).unwrap();
        database.flush().unwrap();
        let metrics = database.metrics();
        assert_eq!(metrics.unarchived_bytes, 0);
        assert!(metrics.archived_segments > 2 && metrics.archived_bytes > 200 << 10, "{metrics:?}");
        assert_eq!(told.archived.load(Ordering::Relaxed), metrics.archived_segments);
        let (_, rows) = restored(&memory, &until(&memory, RestorePoint::End)).unwrap();
        assert_eq!(rows, scan(&table));
    }
}

/// Three segments wait for the archive, and the last of them is damaged before the database is opened again: a restore
/// has all that was before it, and tells of the damage. `is_recovered`: the one before it was ended by a crash.
fn damage_while_waiting(is_recovered: bool, damage: impl FnOnce(&MemoryDisk, &Path)) {
    let on = |disk: &FaultDisk, memory: &MemoryDisk| Options { disk: Arc::new(disk.clone()), ..archived(memory) };
    // There is no archive, so that they wait.
    let full = || Fault::new(OperationKind::CreateDirectory, Effect::NoSpace).sticky();
    let mut memory = MemoryDisk::new();
    let disk = FaultDisk::over_memory(memory.clone());
    let mut database = Database::open("/db", on(&disk, &memory)).unwrap();
    let mut table = database.create_table("t", small_table()).unwrap();
    database.backup(BACKUPS).unwrap();
    disk.schedule(full());
    fill(&table, 0, 10, "v");
    database.flush().unwrap();
    fill(&table, 10, 20, "v");
    let before = (database.last_sequence(), scan(&table));
    if is_recovered {
        memory = memory.kill_image();
        let disk = FaultDisk::over_memory(memory.clone());
        disk.schedule(full());
        database = Database::open("/db", on(&disk, &memory)).unwrap();
        table = database.table("t").unwrap();
    } else {
        database.flush().unwrap();
    }
    fill(&table, 20, 30, "v");
    database.flush().unwrap();
    assert_eq!(database.metrics().archived_segments, 0);
    drop(table);
    database.close().unwrap();

    let is_log = |path: &PathBuf| path.starts_with("/db") && path.extension().is_some_and(|is| is == "wal");
    let mut logs: Vec<PathBuf> = memory.paths().into_iter().filter(is_log).collect();
    logs.sort();
    // The newest is the one that recovery needs.
    damage(&memory, &logs[logs.len() - 2]);
    let database = Database::open("/db", archived(&memory)).unwrap();
    assert_eq!(database.metrics().unarchived_bytes, 0);
    let farthest = RestoreOptions { as_far_as_possible: true, ..until(&memory, RestorePoint::End) };
    let (summary, rows) = restored(&memory, &farthest).unwrap();
    assert_eq!((summary.sequence, rows), before);
    assert!(summary.ended_by.is_some_and(|error| error.is_corruption()));
}

/// Neither it nor those before it came to the archive, and all were removed. One that was ended by a crash has no mark
/// that names the next.
#[test]
fn a_waiting_segment_with_a_damaged_header_hid_those_before_it() {
    for is_recovered in [false, true] {
        damage_while_waiting(is_recovered, |memory, path| memory.flip_bit(path, 8 * 12).unwrap());
    }
}

/// It could not be archived, and nothing behind it.
#[test]
fn a_waiting_segment_that_was_cut_short_held_up_those_behind_it() {
    // In its first record.
    damage_while_waiting(false, |memory, path| memory.set_len(path, 60).unwrap());
}

#[test]
fn segments_are_copied_to_another_file_system() {
    let memory = MemoryDisk::new();
    let disk = FaultDisk::over_memory(memory.clone());
    disk.schedule(Fault::new(OperationKind::HardLink, Effect::OtherFileSystem).sticky());
    let options = Options { disk: Arc::new(disk), ..archived(&memory) };
    let states = five_segments("/db", options);
    assert!(files(&memory).iter().all(|file| file.extension().is_some_and(|extension| extension == "wal")));
    let (_, rows) = restored(&memory, &until(&memory, RestorePoint::End)).unwrap();
    assert_eq!(rows, states[5].1);
}

/// Rows that go into segments of their own, each of which is archived, in a database that is opened anew.
fn write_and_archive(disk: Arc<dyn Disk>, options: Options) -> Result<()> {
    let database = Database::open("/db", Options { disk, ..options })?;
    let table = database.table("t")?;
    for n in 0..2 {
        table.put(&key(n), b"new", Durability::Sync)?;
        database.flush()?;
    }
    database.close()
}

/// A database with a backup, closed.
fn with_a_backup() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    fill(&table, 0, 20, "v");
    database.backup(BACKUPS).unwrap();
    fill(&table, 20, 30, "v");
    database.close().unwrap();
    disk
}

/// Whatever was cut short, the log is whole once the database has been opened again.
#[test]
fn a_crash_at_any_operation_leaves_no_gap_in_the_archive() {
    let base = with_a_backup();
    for copies in [false, true] {
        let on = |memory: &MemoryDisk| -> Arc<dyn Disk> {
            let disk = FaultDisk::over_memory(memory.clone());
            if copies {
                disk.schedule(Fault::new(OperationKind::HardLink, Effect::OtherFileSystem).sticky());
            }
            Arc::new(disk)
        };
        let trial = base.kill_image();
        write_and_archive(on(&trial), archived(&trial)).unwrap();
        for n in 0..=trial.operations() {
            let disk = base.kill_image();
            disk.power_off_after(Some(n));
            drop(write_and_archive(on(&disk), archived(&disk)));
            for image in [disk.kill_image(), disk.crash_image(&CrashDraw::from_seed(n))] {
                let database = Database::open("/db", archived(&image)).unwrap();
                let (last, rows) = (database.last_sequence(), scan(&database.table("t").unwrap()));
                assert_eq!(database.metrics().unarchived_bytes, 0, "operation {n}");
                database.close().unwrap();
                let result = restored(&image, &until(&image, RestorePoint::Sequence(last)));
                let (_, found) =
                    result.unwrap_or_else(|error| panic!("operation {n}: {error} {:?} {copies}", image.paths()));
                assert_eq!(found, rows, "operation {n}");
            }
        }
    }
}

/// A segment that is archived was synced when it was begun, and the one before it was not: what a power loss took of
/// that passed for acknowledged data that were lost, and nothing was opened.
#[test]
fn a_power_loss_after_a_segment_was_begun_kept_the_database_from_opening() {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    let segments = || disk.list(Path::new("/db")).unwrap().iter().filter(|name| name.ends_with(".wal")).count();
    let mut rows = 0;
    while segments() < 2 {
        assert!(rows < 1_000, "no segment is begun");
        table.put(&key(rows), &[7; 1_000], Durability::Os).unwrap();
        rows += 1;
    }
    for n in rows..rows + 5 {
        table.put(&key(n), b"in the next one", Durability::Os).unwrap();
    }
    for seed in 0..60 {
        let image = disk.crash_image(&CrashDraw::from_seed(seed));
        let opened = Database::open("/db", archived(&image)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let found = scan(&opened.table("t").unwrap());
        assert!(found.keys().cloned().eq((0..found.len() as u32).map(key)), "seed {seed}");
    }
    drop(database);
}

#[test]
fn a_failed_operation_leaves_no_gap_in_the_archive() {
    let base = with_a_backup();
    for kind in [OperationKind::HardLink, OperationKind::SyncDirectory, OperationKind::Remove, OperationKind::Exists] {
        for effect in [Effect::Io, Effect::IoAfterwards] {
            for nth in 1.. {
                let memory = base.kill_image();
                let disk = FaultDisk::over_memory(memory.clone());
                disk.schedule(Fault::new(kind, effect).nth(nth));
                drop(write_and_archive(Arc::new(disk.clone()), archived(&memory)));
                let database = Database::open("/db", archived(&memory)).unwrap();
                let (last, rows) = (database.last_sequence(), scan(&database.table("t").unwrap()));
                database.close().unwrap();
                let (_, found) = restored(&memory, &until(&memory, RestorePoint::Sequence(last))).unwrap();
                assert_eq!(found, rows, "{kind:?} {nth}");
                if disk.fired() == 0 {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_crash_leaves_a_database_restored_to_its_moment_or_none() {
    let base = with_a_backup();
    write_and_archive(Arc::new(base.clone()), archived(&base)).unwrap();
    let expected = restored(&base, &until(&base, RestorePoint::End)).unwrap().1;
    let restore = |disk: &MemoryDisk| {
        let backups = Backups::open(Arc::new(disk.clone()), BACKUPS)?;
        backups.restore_to(ARCHIVE, "/new", &until(disk, RestorePoint::End), |_, _| {})
    };
    let trial = base.kill_image();
    restore(&trial).unwrap();
    for n in 0..=trial.operations() {
        let disk = base.kill_image();
        disk.power_off_after(Some(n));
        let has_finished = restore(&disk).is_ok();
        for image in [disk.kill_image(), disk.crash_image(&CrashDraw::from_seed(n))] {
            let options = Options { create_if_missing: false, ..small_options(&image) };
            match Database::open("/new", options) {
                Ok(database) => assert_eq!(scan(&database.table("t").unwrap()), expected, "operation {n}"),
                Err(error) => {
                    let refused = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidArgument);
                    assert!(refused && !has_finished, "operation {n}: {error}");
                }
            }
        }
    }
}

/// Copies give out numbers of segments again, and sequence numbers.
#[test]
fn the_logs_of_a_database_and_of_what_was_restored_are_never_confused() {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    fill(&table, 0, 10, "common");
    database.backup(BACKUPS).unwrap();
    backups(&disk).restore(1, "/fork", |_, _| {}).unwrap();
    let fork = Database::open("/fork", archived(&disk)).unwrap();
    let forked = fork.table("t").unwrap();
    fork.backup(BACKUPS).unwrap();
    for n in 0..4 {
        fill(&table, n, n + 1, "here");
        database.flush().unwrap();
        fill(&forked, n, n + 1, "there");
        fork.flush().unwrap();
    }
    for (backup, expected) in [(1, scan(&table)), (2, scan(&forked))] {
        let request = RestoreOptions { backup: Some(backup), ..until(&disk, RestorePoint::End) };
        assert_eq!(restored(&disk, &request).unwrap().1, expected, "backup {backup}");
    }
    let wrong = RestoreOptions { backup: Some(1), log: Some("/fork".into()), ..until(&disk, RestorePoint::End) };
    assert_eq!(restored(&disk, &wrong).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

/// A copy of the directory, which no restore has told from its source.
#[test]
fn a_segment_of_the_archive_is_never_written_over() {
    let disk = with_a_backup();
    disk.create_directory(Path::new("/copy")).unwrap();
    for name in disk.list(Path::new("/db")).unwrap() {
        disk.copy_file(&Path::new("/db").join(&name), &Path::new("/copy").join(&name)).unwrap();
    }
    let write = |directory: &str, mark: &str| {
        let database = Database::open(directory, archived(&disk)).unwrap();
        let table = database.table("t").unwrap();
        fill(&table, 0, 10, mark);
        database.flush().unwrap();
        (database.metrics().archive_failures, scan(&table))
    };
    let (failures, rows) = write("/db", "first");
    assert_eq!(failures, 0);
    let before: Vec<Vec<u8>> = files(&disk).iter().map(|file| disk.read_bytes(file).unwrap()).collect();
    let (failures, _) = write("/copy", "second");
    assert!(failures > 0);
    let after: Vec<Vec<u8>> = files(&disk).iter().map(|file| disk.read_bytes(file).unwrap()).collect();
    assert_eq!(before, after);
    assert_eq!(restored(&disk, &until(&disk, RestorePoint::End)).unwrap().1, rows);
}

#[test]
fn an_archive_is_pruned_up_to_the_oldest_backup() {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    for n in 0..4 {
        fill(&table, n * 10, n * 10 + 10, "v");
        database.backup(BACKUPS).unwrap();
        fill(&table, n * 10, n * 10 + 5, "w");
        database.flush().unwrap();
    }
    backups(&disk).prune_archive(ARCHIVE).unwrap();
    let all = files(&disk).len();
    assert_eq!(backups(&disk).prune_archive(ARCHIVE).unwrap().segments, 0);
    let request = RestoreOptions { backup: Some(1), ..until(&disk, RestorePoint::End) };
    assert_eq!(restored(&disk, &request).unwrap().1, scan(&table));
    backups(&disk).keep(2).unwrap();
    let pruned = backups(&disk).prune_archive(ARCHIVE).unwrap();
    assert!(pruned.segments > 0 && pruned.bytes > 0, "{pruned:?}");
    assert_eq!(files(&disk).len(), all - pruned.segments as usize);
    let request = RestoreOptions { backup: Some(3), ..until(&disk, RestorePoint::End) };
    assert_eq!(restored(&disk, &request).unwrap().1, scan(&table));
}

#[test]
fn a_backup_from_before_the_archive_and_an_archive_within_the_database_are_refused() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", small_options(&disk)).unwrap();
    let table = database.create_table("t", small_table()).unwrap();
    fill(&table, 0, 10, "v");
    database.backup(BACKUPS).unwrap();
    drop(table);
    database.close().unwrap();
    disk.create_directory(Path::new(ARCHIVE)).unwrap();
    let error = restored(&disk, &until(&disk, RestorePoint::End)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let within = Options { archive: Some(ArchiveOptions::new("/db")), ..small_options(&disk) };
    assert_eq!(Database::open("/db", within).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

/// A power loss may take what only the log had from the database, which gives its numbers out again.
#[test]
fn a_backup_of_what_only_the_log_had_is_not_gone_on_from() {
    let disk = MemoryDisk::new();
    let (database, table) = create(&disk);
    fill(&table, 0, 10, "v");
    let reader = Database::open("/db", Options { read_only: true, ..small_options(&disk) }).unwrap();
    assert_eq!(reader.backup(BACKUPS).unwrap().number, 1);
    assert_eq!(database.backup(BACKUPS).unwrap().number, 2);
    reader.catch_up().unwrap();
    // It has nothing any more that is in no file.
    assert_eq!(reader.backup(BACKUPS).unwrap().number, 3);
    fill(&table, 10, 20, "v");
    database.flush().unwrap();
    for (backup, is_gone_on_from) in [(1, false), (2, true), (3, true)] {
        let request = RestoreOptions { backup: Some(backup), ..until(&disk, RestorePoint::End) };
        let result = restored(&disk, &request).map(|(_, rows)| rows);
        assert_eq!(result.ok(), is_gone_on_from.then(|| scan(&table)), "backup {backup}");
    }
}

/// Of what is written without the archive it lacks the log.
#[test]
fn a_time_without_the_archive_is_a_gap() {
    let disk = with_a_backup();
    let plain = Database::open("/db", small_options(&disk)).unwrap();
    fill(&plain.table("t").unwrap(), 30, 40, "unarchived");
    plain.flush().unwrap();
    plain.close().unwrap();
    write_and_archive(Arc::new(disk.clone()), archived(&disk)).unwrap();
    let error = restored(&disk, &until(&disk, RestorePoint::End)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}
