//! Bytes that change on the disk: flipped bits, blocks in the wrong place, files and log segments that are not the ones
//! written.
//!
//! A database with data in its log, in level 0 and below, in files of rows and of columns, is damaged in one place and
//! opened. The damage must be reported as corruption that names a damaged file and an offset in it, or do no harm:
//! every row read is right, or its read fails. In an SST it is then found by verification. What is salvaged of it is
//! what it had, and the rest is told as lost; a backup that is damaged is found to be so, or restored as it was. The
//! one place where it may be neither is behind the last sync of the log, where a damaged record cannot be told from a
//! torn one: there the default mode may drop records from the end, but only from the end, and `Strict` must report it.
//!
//! Counts before a release: `MYCELIUM_TEST_SCALE=release`.

#![allow(clippy::unwrap_used)]

mod reliability;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mycelium_base::ColumnSet;
use mycelium_base::FileKind;
use mycelium_encoding::{Datum, DatumRef, Schema};
use mycelium_engine::{
    Backups, Database, Durability, Error, ErrorKind, Layout, OlderVersions, Options, ReadOptions, RecoveryMode,
    SalvageOptions, SalvageReport, ScanOptions, Table, TableOptions, salvage, verify_directory,
};
use mycelium_vfs::MemoryDisk;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reliability::{DIRECTORY, Ever, Journal, Rows, TABLES, scaled, seed, small_options};

/// What is salvaged goes here.
const SAVED: &str = "/saved";
const BACKUPS: &str = "/backups";

/// A database closed with data in every kind of file.
struct Image {
    disk: MemoryDisk,
    journal: Journal,
    /// The rows of [`COLUMNS`].
    columns: Columns,
}

/// A table beside those of the journal whose files are columnar, from level 1 on in two groups. None of it is in the
/// log.
const COLUMNS: &str = "columns";
type Columns = BTreeMap<i64, (String, i32)>;

fn create_columns(database: &Database) -> Table {
    let schema = Schema::parse("id int64 not null, text utf8, number int32, primary key (id)").unwrap();
    let layout = "L0 tiered: * columnar\nL1 leveled: 1 columnar | 2 columnar";
    let layout = Some(Layout::parse(layout, &ColumnSet::from_iter([1, 2])).unwrap());
    database.create_typed_table(COLUMNS, schema, TableOptions { layout, ..reliability::small_table() }).unwrap()
}

/// Few texts, so that they become codes; patches, so that both groups have runs of their own.
fn write_columns(table: &Table, columns: &mut Columns, rng: &mut SmallRng) {
    for _ in 0..40 {
        let (id, number) = (rng.random_range(0..400), rng.random_range(-50..50));
        let key = [DatumRef::Int64(id)];
        if let Some(row) = columns.get_mut(&id).filter(|_| rng.random()) {
            table.patch_row(&key, &[("number", DatumRef::Int32(number))], Durability::Buffered).unwrap();
            row.1 = number;
        } else {
            let text = format!("text {}", rng.random_range(0..20));
            let row = [key[0], DatumRef::Utf8(&text), DatumRef::Int32(number)];
            table.insert_row(&row, Durability::Buffered).unwrap();
            columns.insert(id, (text, number));
        }
    }
}

fn build(seed: u64, batches: usize) -> Image {
    let disk = MemoryDisk::new();
    let mut journal = Journal::new(seed);
    let (database, tables) = reliability::open(small_options(Arc::new(disk.clone()))).unwrap();
    drop(create_columns(&database));
    let mut columns = Columns::new();
    extend(&database, &tables, &mut journal, &mut columns, batches);
    drop(tables);
    database.close().unwrap();
    Image { disk, journal, columns }
}

fn extend(database: &Database, tables: &[Table; 2], journal: &mut Journal, columns: &mut Columns, batches: usize) {
    let columnar = database.table(COLUMNS).unwrap();
    let mut rng = SmallRng::seed_from_u64(journal.seed);
    for i in 0..batches {
        let durability = [Durability::Buffered, Durability::Os, Durability::Sync][rng.random_range(0..3)];
        journal.write(database, tables, durability).unwrap();
        if i % 7 == 0 {
            write_columns(&columnar, columns, &mut rng);
            database.step().unwrap();
        }
    }
    database.flush().unwrap();
    // No file stays that nothing needs: every flip hits something that matters.
    while database.step().unwrap() {}
    for _ in 0..9 {
        journal.write(database, tables, Durability::Sync).unwrap();
    }
}

/// Every row of the columnar table, by point reads; a scan must have as many. What is wrong, if something is.
fn read_columns(table: &Table) -> Result<Result<Columns, String>, Error> {
    let mut found = Columns::new();
    for id in 0..400 {
        match table.get_row(&[DatumRef::Int64(id)], None, &ReadOptions::default())?.as_deref() {
            None => {}
            Some([_, Datum::Utf8(text), Datum::Int32(number)]) => {
                found.insert(id, (text.clone(), *number));
            }
            Some(other) => return Ok(Err(format!("a row of {other:?}"))),
        }
    }
    let mut scanned = 0;
    for batch in table.scan_batches(ScanOptions::default())? {
        scanned += batch?.num_rows();
    }
    if scanned != found.len() {
        return Ok(Err("gets and scans of columns differ".into()));
    }
    Ok(Ok(found))
}

/// Opens what was made of a damaged directory, which is damaged no more.
fn open_copy(disk: &MemoryDisk, directory: &str, context: &str) -> Database {
    let options = Options { create_if_missing: false, ..small_options(Arc::new(disk.clone())) };
    Database::open(directory, options).unwrap_or_else(|error| panic!("{context}: {directory}: {error}"))
}

/// What came of a damage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Outcome {
    Detected,
    Harmless,
    /// Records behind the last sync that the log testifies to were dropped, as a torn tail is.
    TornTail,
}

/// Damage done to a copy of the image.
struct Damage<'a> {
    context: String,
    disk: MemoryDisk,
    files: Vec<PathBuf>,
    mode: RecoveryMode,
    read_only: bool,
    image: &'a Image,
}

impl Damage<'_> {
    fn fail(&self, what: &str) -> ! {
        panic!("{} ({:?}, read-only {}): {what}", self.context, self.mode, self.read_only)
    }

    /// The error must say where.
    fn detected(&self, error: &Error) -> Outcome {
        // Changed version fields are refused as unsupported; a CURRENT may then name a file that is not there.
        if !matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported | ErrorKind::NotFound) {
            self.fail(&format!("reported as {error:?}"));
        }
        let current = Path::new(DIRECTORY).join(FileKind::Current.name(0));
        let Some(file) = error.file() else { self.fail(&format!("names no file: {error:?}")) };
        // A manifest that lost its end names files of before, which are gone: SSTs, or a log segment.
        let older = !self.disk.exists_now(file) && self.files.iter().any(|damaged| kind(damaged) == "Manifest");
        if !self.files.iter().any(|damaged| damaged == file) && !self.files.contains(&current) && !older {
            self.fail(&format!("blames another file than {:?}: {error:?}", self.files));
        }
        if error.is_corruption() && error.offset().is_none() && !self.files.contains(&current) {
            self.fail(&format!("names no offset: {error:?}"));
        }
        Outcome::Detected
    }

    fn options(&self) -> Options {
        Options {
            recovery: self.mode,
            read_only: self.read_only,
            create_if_missing: false,
            ..small_options(Arc::new(self.disk.clone()))
        }
    }

    /// Opens, reads everything in two ways and perhaps merges it.
    fn check(&self, compact: bool) -> Outcome {
        let database = match Database::open(DIRECTORY, self.options()) {
            Ok(database) => database,
            Err(error) => return self.detected(&error),
        };
        let tables = match TABLES.map(|name| database.table(name)) {
            [Ok(a), Ok(b)] => [a, b],
            _ => self.fail("a table is gone"),
        };
        let Ok(columnar) = database.table(COLUMNS) else { self.fail("a table is gone") };
        let outcome = match self.columns(&columnar) {
            Ok(columns) if columns == self.image.columns => self.check_rows(&tables),
            Ok(_) => self.fail("wrong rows in columns"),
            Err(error) => self.detected(&error),
        };
        if compact && !self.read_only {
            let merged = tables.iter().chain([&columnar]).try_for_each(|table| database.compact(table));
            match merged {
                Ok(()) if outcome == Outcome::Detected => {}
                Ok(()) => {
                    assert_eq!(self.check_rows(&tables), outcome, "{}: after compaction", self.context);
                    assert_eq!(self.columns(&columnar).ok().as_ref(), Some(&self.image.columns), "{}", self.context);
                }
                Err(error) => return self.detected(&error),
            }
        }
        outcome
    }

    fn columns(&self, table: &Table) -> Result<Columns, Error> {
        read_columns(table).map(|found| found.unwrap_or_else(|what| self.fail(&what)))
    }

    fn check_rows(&self, tables: &[Table; 2]) -> Outcome {
        let mut found = self.gets(tables);
        let scans = [0, 1].map(|i| reliability::scan(&tables[i], &Default::default()));
        match scans {
            [Ok(a), Ok(b)] => {
                if let Ok(gets) = &found {
                    if *gets != [a.clone(), b.clone()] {
                        self.fail("gets and scans differ");
                    }
                } else {
                    found = Ok([a, b]);
                }
            }
            [Err(error), _] | [_, Err(error)] => return self.detected(&error),
        }
        match found {
            Err(error) => self.detected(&error),
            Ok(rows) if rows == self.image.journal.rows => Outcome::Harmless,
            Ok(_) => self.check_torn_tail(tables),
        }
    }

    /// Every row the image has, and some that it has not, by point reads.
    fn gets(&self, tables: &[Table; 2]) -> Result<reliability::Rows, Error> {
        let mut found = [BTreeMap::new(), BTreeMap::new()];
        let absent = (0..300).map(|n| format!("key{n:03}").into_bytes());
        for key in absent.chain([b"~last batch".to_vec(), b"".to_vec()]) {
            for (table, rows) in tables.iter().zip(&mut found) {
                if let Some(value) = table.get(&key)? {
                    rows.insert(key.clone(), value);
                }
            }
        }
        Ok(found)
    }

    /// What nothing reads now, as a segment of the compaction buffer or an older version, is found by verification.
    fn check_verified(&self, disk: &MemoryDisk) {
        let report = verify_directory(disk, Path::new(DIRECTORY), |_, _| ()).unwrap();
        let is_blamed =
            |error: &Error| error.file().is_some_and(|file| self.files.iter().any(|damaged| damaged == file));
        if !report.problems.iter().any(|problem| is_blamed(&problem.error)) {
            self.fail(&format!("neither read nor verified: {report:?}"));
        }
    }

    fn check_torn_tail(&self, tables: &[Table; 2]) -> Outcome {
        let in_log = self.files.iter().any(|file| file.extension().is_some_and(|extension| extension == "wal"));
        if !in_log || self.mode == RecoveryMode::Strict {
            self.fail("wrong rows");
        }
        let mut journal = Journal::new(self.image.journal.seed);
        journal.committed.clone_from(&self.image.journal.committed);
        // A record testifies that those before it in its segment were synced. Only the last has no witness; and, should
        // it be the first of its segment, the last of the segment before.
        let floor = journal.committed.len() - 2;
        match journal.check_recovered(tables, floor) {
            Ok(()) => Outcome::TornTail,
            Err(wrong) => self.fail(&wrong),
        }
    }
}

fn mode(rng: &mut SmallRng) -> RecoveryMode {
    if rng.random() { RecoveryMode::TolerateTornTail } else { RecoveryMode::Strict }
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn kind(path: &Path) -> String {
    FileKind::parse(name(path)).map_or_else(|| "other".into(), |(kind, _)| format!("{kind:?}"))
}

/// A part of an SST, for the count of what was hit.
fn part(disk: &MemoryDisk, path: &Path, byte: u64) -> String {
    let Some((FileKind::Sst, number)) = FileKind::parse(name(path)) else { return kind(path) };
    let bytes = disk.read_bytes(path).unwrap();
    let at = bytes.len() - mycelium_sst::FOOTER_LEN;
    let footer = mycelium_sst::Footer::parse(&bytes[at..], number, at as u64).unwrap();
    let parts = [
        ("data", footer.data_end()),
        ("filter", footer.index.offset),
        ("index", footer.index.offset + footer.index.len),
        ("range deletes", footer.properties.offset),
        ("properties", at as u64),
    ];
    let hit = parts.iter().find(|(_, end)| byte < *end).map_or("footer", |(name, _)| name);
    format!("SST {hit}")
}

/// A byte of each kind of file as often as of the others, of SSTs three times.
fn any_byte(disk: &MemoryDisk, rng: &mut SmallRng) -> (PathBuf, u64) {
    let paths = disk.paths();
    let kinds = [FileKind::Wal, FileKind::Manifest, FileKind::Current, FileKind::Sst, FileKind::Sst, FileKind::Sst];
    let wanted = kinds[rng.random_range(0..kinds.len())];
    let candidates: Vec<&PathBuf> =
        paths.iter().filter(|path| FileKind::parse(name(path)).is_some_and(|(kind, _)| kind == wanted)).collect();
    let path = candidates[rng.random_range(0..candidates.len())].clone();
    let len = disk.read_bytes(&path).unwrap().len() as u64;
    // A third near the end, where footers, indexes and the log's last records are.
    let byte =
        if rng.random_ratio(1, 3) { len - 1 - rng.random_range(0..len.min(300)) } else { rng.random_range(0..len) };
    (path, byte)
}

#[test]
fn a_flipped_bit_is_detected_or_harmless() {
    let seed = seed("flipped bits");
    let flips = scaled(10_000, 500_000);
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut outcomes: BTreeMap<(String, Outcome), u64> = BTreeMap::new();
    let mut image = build(seed, 90);
    for flip in 0..flips {
        if flip > 0 && flip % 2500 == 0 {
            image = build(seed + flip, 90);
        }
        let disk = image.disk.kill_image();
        let (path, byte) = any_byte(&disk, &mut rng);
        let hit = part(&disk, &path, byte);
        disk.flip_bit(&path, 8 * byte + rng.random_range(0..8)).unwrap();
        let damage = Damage {
            context: format!("seed {seed}, flip {flip}: byte {byte} of {} ({hit})", path.display()),
            disk,
            files: vec![path],
            mode: mode(&mut rng),
            read_only: rng.random_ratio(2, 3),
            image: &image,
        };
        let before = hit.starts_with("SST").then(|| damage.disk.kill_image());
        let outcome = damage.check(rng.random_ratio(1, 4));
        if let Some(disk) = before.filter(|_| outcome != Outcome::Detected) {
            damage.check_verified(&disk);
        }
        *outcomes.entry((hit, outcome)).or_default() += 1;
    }
    println!("{flips} flips: {outcomes:#?}");
}

/// A damaged database, and what was salvaged of it.
struct Salvaged<'a> {
    context: String,
    older: OlderVersions,
    report: SalvageReport,
    image: &'a Image,
}

impl Salvaged<'_> {
    /// Whether manifest and log were read to their ends.
    fn is_newest(&self) -> bool {
        !self.report.lost_edits && !self.report.lost_log && self.report.torn_tail.is_none()
    }

    fn is_told(&self, table: &str, key: &[u8]) -> bool {
        self.report.lost.iter().any(|lost| lost.table == table && lost.range.contains(key))
    }

    /// Every row is the newest of its key, or not there and told as lost. Where older ones are kept, or something of
    /// manifest or log is lost, it is one that there was.
    fn check(&self, disk: &MemoryDisk, ever: &Ever) {
        let Self { context, older, report, image } = self;
        let database = open_copy(disk, SAVED, context);
        for (at, name) in TABLES.into_iter().enumerate() {
            let Ok(table) = database.table(name) else {
                assert!(report.lost_edits, "{context}: table {name} is gone");
                continue;
            };
            let rows = reliability::scan(&table, &ReadOptions::default()).unwrap_or_else(|e| panic!("{context}: {e}"));
            let newest = &image.journal.rows[at];
            for (key, value) in &rows {
                let may_be_old = !self.is_newest() || *older == OlderVersions::Keep && self.is_told(name, key);
                let is_right =
                    newest.get(key) == Some(value) || may_be_old && ever[at].contains(&(key.clone(), value.clone()));
                assert!(is_right, "{context}: table {name} has a wrong row of {}", key.escape_ascii());
            }
            for key in newest.keys().filter(|key| self.is_newest() && !rows.contains_key(*key)) {
                assert!(self.is_told(name, key), "{context}: {} of table {name} is gone", key.escape_ascii());
            }
        }
        if !report.lost_edits {
            self.check_columns(&database.table(COLUMNS).unwrap_or_else(|e| panic!("{context}: {e}")));
        }
    }

    /// The same of the columnar table, of which nothing is in the log. Older versions may be put together of several.
    fn check_columns(&self, table: &Table) {
        let context = &self.context;
        let found = read_columns(table).unwrap_or_else(|error| panic!("{context}: {error}"));
        let found = found.unwrap_or_else(|what| panic!("{context}: {what}"));
        for id in 0..400 {
            let is_told = self.is_told(COLUMNS, &table.row_key(&[DatumRef::Int64(id)]).unwrap());
            let is_right = match (found.get(&id), self.image.columns.get(&id)) {
                (None, newest) => newest.is_none() || is_told,
                (row, newest) => row == newest || self.older == OlderVersions::Keep && is_told,
            };
            assert!(is_right, "{context}: row {id} of columns: {:?}", found.get(&id));
        }
    }
}

#[test]
fn what_is_salvaged_after_a_flipped_bit_is_what_there_was() {
    let seed = seed("salvage");
    let flips = scaled(300, 20_000);
    let mut rng = SmallRng::seed_from_u64(seed);
    let image = build(seed, 90);
    let ever = image.journal.ever();
    let mut outcomes: BTreeMap<(String, &str), u64> = BTreeMap::new();
    for flip in 0..flips {
        let disk = image.disk.kill_image();
        let (path, byte) = any_byte(&disk, &mut rng);
        let hit = part(&disk, &path, byte);
        disk.flip_bit(&path, 8 * byte + rng.random_range(0..8)).unwrap();
        let older = if rng.random_ratio(1, 4) { OlderVersions::Keep } else { OlderVersions::LeaveOut };
        let context = format!("seed {seed}, flip {flip}: byte {byte} of {} ({hit}), {older:?}", path.display());
        let options = SalvageOptions { disk: Arc::new(disk.clone()), older };
        let outcome = match salvage(DIRECTORY, SAVED, &options, |_, _| ()) {
            Ok(report) => {
                let outcome = if report.is_complete() { "whole" } else { "in part" };
                Salvaged { context, older, report, image: &image }.check(&disk, &ever);
                outcome
            }
            // It may look like one of a newer version.
            Err(error) => {
                let is_refused = matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported);
                assert!(is_refused && kind(&path) == "Manifest", "{context}: {error:?}");
                "refused"
            }
        };
        *outcomes.entry((hit, outcome)).or_default() += 1;
    }
    println!("{flips} flips: {outcomes:#?}");
    let count = |wanted: &str| outcomes.iter().filter(|((_, outcome), _)| *outcome == wanted).count();
    assert!(count("whole") > 0 && count("in part") > 0);
}

#[test]
fn a_flipped_bit_of_a_backup_is_found_or_harmless() {
    let seed = seed("backups");
    let flips = scaled(150, 20_000);
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut image = build(seed, 40);
    let (database, tables) = reliability::open(small_options(Arc::new(image.disk.clone()))).unwrap();
    let mut backed_up: Vec<(Rows, Columns)> = Vec::new();
    for _ in 0..2 {
        extend(&database, &tables, &mut image.journal, &mut image.columns, 20);
        database.backup(BACKUPS).unwrap();
        backed_up.push((image.journal.rows.clone(), image.columns.clone()));
    }
    drop(tables);
    database.close().unwrap();
    let (mut found, mut restored) = (0, 0);
    for flip in 0..flips {
        let disk = image.disk.kill_image();
        let mut paths = disk.paths();
        paths.retain(|path| path.starts_with(BACKUPS) && !disk.read_bytes(path).unwrap().is_empty());
        let path = &paths[rng.random_range(0..paths.len())];
        let bit = rng.random_range(0..8 * disk.read_bytes(path).unwrap().len() as u64);
        disk.flip_bit(path, bit).unwrap();
        let context = format!("seed {seed}, flip {flip}: bit {bit} of {}", path.display());
        let is_blamed = |error: &Error| error.file() == Some(path.as_path());
        let backups = Backups::open(Arc::new(disk.clone()), BACKUPS).unwrap();
        let report = backups.verify(None, |_, _| ()).unwrap_or_else(|error| panic!("{context}: {error}"));
        let is_found = report.problems.iter().any(|problem| is_blamed(&problem.error));
        found += u64::from(is_found);
        for (number, (rows, columns)) in (1..).zip(&backed_up) {
            let directory = format!("/restored-{number}");
            if let Err(error) = backups.restore(number, &directory, |_, _| ()) {
                assert!(is_found && is_blamed(&error), "{context}: {error:?}");
                continue;
            }
            let database = open_copy(&disk, &directory, &context);
            let tables = TABLES.map(|name| database.table(name).unwrap());
            assert!(reliability::read_all(&tables).unwrap() == *rows, "{context}: backup {number} has other rows");
            let read = read_columns(&database.table(COLUMNS).unwrap()).unwrap();
            assert!(read.as_ref() == Ok(columns), "{context}: backup {number} has other rows in columns");
            restored += 1;
        }
    }
    println!("{flips} flips, {found} found, {restored} backups restored");
    assert!(found > 0 && restored > 0);
}

#[test]
fn misplaced_and_stale_bytes_are_detected_or_harmless() {
    let seed = seed("misplaced and stale");
    let trials = scaled(1000, 20_000);
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut outcomes: BTreeMap<(String, Outcome), u64> = BTreeMap::new();
    let mut generations = Generations::build(seed);
    for trial in 0..trials {
        if trial > 0 && trial % 500 == 0 {
            generations = Generations::build(seed + trial);
        }
        let disk = generations.new.disk.kill_image();
        let Some((what, files)) = generations.misplace(&disk, &mut rng) else { continue };
        let damage = Damage {
            context: format!("seed {seed}, trial {trial}: {what} {files:?}"),
            disk,
            files,
            mode: mode(&mut rng),
            read_only: rng.random_ratio(2, 3),
            image: &generations.new,
        };
        let outcome = damage.check(rng.random_ratio(1, 4));
        *outcomes.entry((what, outcome)).or_default() += 1;
    }
    println!("{trials} trials: {outcomes:#?}");
}

/// A database, and the same one earlier in its life.
struct Generations {
    old: MemoryDisk,
    new: Image,
}

impl Generations {
    fn build(seed: u64) -> Self {
        let mut image = build(seed, 60);
        let old = image.disk.kill_image();
        let (database, tables) = reliability::open(small_options(Arc::new(image.disk.clone()))).unwrap();
        extend(&database, &tables, &mut image.journal, &mut image.columns, 60);
        drop(tables);
        database.close().unwrap();
        Self { old, new: image }
    }

    fn misplace(&self, disk: &MemoryDisk, rng: &mut SmallRng) -> Option<(String, Vec<PathBuf>)> {
        let of_kind = |disk: &MemoryDisk, kind: FileKind| -> Vec<PathBuf> {
            let is = |path: &PathBuf| FileKind::parse(name(path)).is_some_and(|(other, _)| other == kind);
            disk.paths().into_iter().filter(is).collect()
        };
        let pick = |rng: &mut SmallRng, paths: &[PathBuf]| Some(paths.get(rng.random_range(0..paths.len()))?.clone());
        match rng.random_range(0..6) {
            0 => {
                // Sectors exchanged within one file or between two.
                let files =
                    [of_kind(disk, FileKind::Sst), of_kind(disk, FileKind::Wal), of_kind(disk, FileKind::Manifest)]
                        .concat();
                let (a, b) = (pick(rng, &files)?, pick(rng, &files)?);
                let size = |path: &Path| disk.read_bytes(path).unwrap().len() as u64;
                let len = 64.min(size(&a)).min(size(&b));
                let (at_a, at_b) = (rng.random_range(0..=size(&a) - len), rng.random_range(0..=size(&b) - len));
                disk.swap((&a, at_a), (&b, at_b), len as usize).ok()?;
                Some(("swapped bytes".into(), vec![a, b]))
            }
            1 => {
                let files = of_kind(disk, FileKind::Sst);
                let (a, b) = (pick(rng, &files)?, pick(rng, &files)?);
                let bytes = disk.read_bytes(&a).unwrap();
                disk.copy_file(&b, &a).unwrap();
                (bytes != disk.read_bytes(&a).unwrap()).then(|| ("SST of another number".into(), vec![a]))
            }
            2 => {
                // The bytes of an older file, sealed under the number of a live one.
                let (live, old) =
                    (pick(rng, &of_kind(disk, FileKind::Sst))?, pick(rng, &of_kind(&self.old, FileKind::Sst))?);
                if live == old || disk.exists_now(&old) {
                    return None;
                }
                let bytes = renumber(&self.old.read_bytes(&old).unwrap(), number(&old)?, number(&live)?)?;
                replace(disk, &live, &bytes);
                Some(("older SST under a reused number".into(), vec![live]))
            }
            3 => {
                let segments = of_kind(disk, FileKind::Wal);
                let segment = pick(rng, &segments)?;
                let next = Path::new(DIRECTORY).join(FileKind::Wal.name(number(&segment)? + rng.random_range(1..3)));
                disk.copy_file(&segment, &next).unwrap();
                Some(("segment twice".into(), vec![segment, next]))
            }
            4 => {
                let (live, old) =
                    (pick(rng, &of_kind(disk, FileKind::Wal))?, pick(rng, &of_kind(&self.old, FileKind::Wal))?);
                if rng.random() {
                    replace(disk, &live, &self.old.read_bytes(&old).unwrap());
                    Some(("older segment under a live number".into(), vec![live]))
                } else {
                    replace(disk, &old, &self.old.read_bytes(&old).unwrap());
                    Some(("older segment back".into(), vec![old]))
                }
            }
            _ => {
                let segment = pick(rng, &of_kind(disk, FileKind::Wal))?;
                let bytes = disk.read_bytes(&segment).unwrap();
                let at = rng.random_range(0..bytes.len());
                replace(disk, &segment, &[&bytes[..], &bytes[at..]].concat());
                Some(("segment's end twice".into(), vec![segment]))
            }
        }
    }
}

trait ExistsNow {
    fn exists_now(&self, path: &Path) -> bool;
}

impl ExistsNow for MemoryDisk {
    fn exists_now(&self, path: &Path) -> bool {
        self.paths().iter().any(|other| other == path)
    }
}

fn number(path: &Path) -> Option<u64> {
    FileKind::parse(name(path)).map(|(_, number)| number)
}

/// Puts bytes in place of a file's.
fn replace(disk: &MemoryDisk, path: &Path, bytes: &[u8]) {
    if !disk.exists_now(path) {
        use mycelium_vfs::Disk;
        disk.create(path).unwrap();
    }
    disk.set_len(path, bytes.len()).unwrap();
    disk.overwrite(path, 0, bytes).unwrap();
}

/// An SST of rows as it would look had it been written under another number: every checksum fits.
fn renumber(bytes: &[u8], from: u64, to: u64) -> Option<Vec<u8>> {
    use mycelium_sst::{BLOCK_TRAILER_LEN, FOOTER_LEN, Footer, Index, open_block, seal_block};
    let footer_at = bytes.len() - FOOTER_LEN;
    let footer = Footer::parse(&bytes[footer_at..], from, footer_at as u64).unwrap();
    if footer.columnar.is_some() {
        return None;
    }
    let index_end = footer.index.offset + footer.index.len;
    let framed = &bytes[footer.index.offset as usize..index_end as usize];
    let index = Index::parse(&framed[..framed.len() - BLOCK_TRAILER_LEN], footer.data_end()).unwrap();
    let mut blocks: Vec<(u64, u64)> =
        (0..index.block_count()).map(|i| index.entry(i)).map(|entry| (entry.offset, entry.len)).collect();
    for part in [footer.filter, footer.index, footer.range_deletes, footer.properties] {
        if part.len > 0 {
            blocks.push((part.offset, part.len));
        }
    }
    let mut out = Vec::with_capacity(bytes.len());
    for (offset, len) in blocks {
        let (payload, kind) = open_block(&bytes[offset as usize..(offset + len) as usize], from, offset).unwrap();
        let start = out.len();
        out.extend_from_slice(payload);
        seal_block(&mut out, start, kind, to, offset);
    }
    out.extend_from_slice(&Footer { file_number: to, ..footer }.encode(footer_at as u64));
    assert_eq!(out.len(), bytes.len());
    Some(out)
}
