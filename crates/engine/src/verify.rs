//! Verification: everything on disk against everything that is known of it.
//!
//! 1. The manifest's state must hold its invariants ([`mycelium_manifest::Version::check`]).
//! 2. Every SST is opened anew from its name and read whole: checksums of all blocks and of the file, order, counts,
//!    fences, filter ([`mycelium_sst::SstFile::verify`]); what the file says of itself must be what the manifest says.
//! 3. Age: of two versions of one key the newer must lie in the younger run, for otherwise reads would stop at the
//!    older. The runs of a table are walked side by side; for every key the oldest version or covering range delete of
//!    a run must be newer than everything that older runs which hold a column of it have for it. Derived tables are
//!    another matter: their entries may overtake each other.
//! 4. The log: every segment still needed is there, every record of it verifies and decodes, segments continue each
//!    other, and sequence numbers ascend.
//! 5. Indexes: as many entries hold as there are rows, and none that may be trusted is untrue (`index::check`).
//! 6. Views: partial aggregates add up to what rows do (`view::check`).
//!
//! A fault does not end the verification: it is noted, and the rest is checked. [`verify_directory`] does steps 1 to 4
//! without opening the database.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mycelium_base::{
    Cursor, Error, ErrorKind, FileKind, FileNumber, MAX_SEQUENCE_NUMBER, Result, SequenceNumber, TableId,
};
use mycelium_cache::BlockCache;
use mycelium_manifest::{FileMeta, Manifest, ManifestState, Run, TableRecord, Version};
use mycelium_sst::{CursorOptions, RunCursor, SortedFiles, SstFile};
use mycelium_vfs::Disk;
use mycelium_wal::{RecoveryMode, SegmentReader, replay};

use crate::database::{Database, Inner, open_sst};
use crate::operations::Operations;
use crate::recover::{again_while_it_changes, check_tables_of, needed_segments};
use crate::table::TableDefinition;
use crate::tree::Tree;

/// Problems described in a report; further ones are only counted.
const MAX_PROBLEMS: usize = 100;
/// Bytes read ahead from each run where runs are walked side by side.
const READ_AHEAD: usize = 256 << 10;
/// The cache through which files opened for verification reach their index, if it does not fit.
const CACHE_BYTES: u64 = 64 << 20;

/// A fault that verification found.
#[derive(Debug)]
pub struct Problem {
    /// The table concerned, if it is one.
    pub table: Option<String>,
    /// What is wrong, with file and offset as far as known.
    pub error: Error,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.table {
            Some(table) => write!(f, "table {table}: {}", self.error),
            None => self.error.fmt(f),
        }
    }
}

/// What was verified and what was found.
#[derive(Debug, Default)]
pub struct VerifyReport {
    /// Tables.
    pub tables: u64,
    /// SSTs, those with faults included.
    pub files: u64,
    /// Bytes of the SSTs without faults.
    pub bytes: u64,
    /// Data blocks in them.
    pub blocks: u64,
    /// Entries in them.
    pub entries: u64,
    /// Range deletes in them.
    pub range_deletes: u64,
    /// Log segments.
    pub log_segments: u64,
    /// Log records.
    pub log_records: u64,
    /// Bytes of their payloads.
    pub log_bytes: u64,
    /// Indexes and views compared with the rows of their tables.
    pub derived: u64,
    /// Where the log ends in a torn record that was never acknowledged, as a crash leaves it: no fault.
    pub torn_tail: Option<String>,
    /// The first faults, at most 100.
    pub problems: Vec<Problem>,
    /// All faults, those not described included.
    pub problem_count: u64,
}

impl VerifyReport {
    /// Whether no fault was found.
    pub fn is_ok(&self) -> bool {
        self.problem_count == 0
    }

    /// The report, or the first fault as an error.
    pub fn into_result(mut self) -> Result<Self> {
        if self.problems.is_empty() { Ok(self) } else { Err(self.problems.swap_remove(0).error) }
    }

    pub(crate) fn add(&mut self, table: Option<&str>, error: Error) {
        self.problem_count += 1;
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(Problem { table: table.map(str::to_owned), error });
        }
    }
}

impl Database {
    /// Verifies every file of the present state and the log, while the database goes on. `progress` is told the bytes
    /// verified so far and of how many. Reads everything once, and tables of several runs twice; past the block cache.
    ///
    /// # Errors
    /// Of verification itself, where it could not be done. What is wrong with files is a fault in the report.
    pub fn verify(&self, progress: impl FnMut(u64, u64)) -> Result<VerifyReport> {
        self.inner.verify(progress)
    }

    /// Compares indexes and views with the rows of their tables and adds that to `report`, as [`Self::verify`] does
    /// after everything else. With [`verify_directory`], which cannot do it, and a database opened to read only, it
    /// makes a whole verification that takes no lock. Reads each table that has any twice.
    ///
    /// ```
    /// # use mycelium_encoding::Schema;
    /// # use mycelium_engine::{Database, IndexOptions, Options, TableOptions, verify_directory};
    /// # use std::{path::Path, sync::Arc};
    /// # let disk: Arc<dyn mycelium_vfs::Disk> = Arc::new(mycelium_vfs::MemoryDisk::new());
    /// # let options = Options { disk: disk.clone(), ..Options::default() };
    /// let database = Database::open("example", options.clone())?;
    /// let schema = Schema::parse("id int64 not null, city utf8, primary key (id)")?;
    /// let table = database.create_typed_table("people", schema, TableOptions::default())?;
    /// let on_city = IndexOptions { name: "by_city".into(), on: vec!["city".into()], ..IndexOptions::default() };
    /// database.create_index(&table, &on_city)?;
    /// database.wait_idle()?;
    /// database.close()?;
    /// let mut report = verify_directory(&*disk, Path::new("example"), |_, _| {})?;
    /// Database::open("example", Options { read_only: true, ..options })?.verify_derived(&mut report);
    /// assert!(report.is_ok());
    /// assert_eq!(report.derived, 1);
    /// # Ok::<(), mycelium_engine::Error>(())
    /// ```
    pub fn verify_derived(&self, report: &mut VerifyReport) {
        self.inner.verify_derived(report);
    }
}

/// Verifies the database in `directory` without opening it: nothing is written, and no lock is taken. A log that ends
/// in a torn record, as after a crash, is no fault. If the database is open elsewhere and being written to, files may
/// come and go meanwhile; use [`Database::verify`] there.
///
/// # Errors
/// [`mycelium_base::ErrorKind::NotFound`] if there is no database. A damaged manifest is a fault in the report.
///
/// ```
/// # use mycelium_engine::{Database, Durability, Options, TableOptions, verify_directory};
/// # use std::{path::Path, sync::Arc};
/// # let disk: Arc<dyn mycelium_vfs::Disk> = Arc::new(mycelium_vfs::MemoryDisk::new());
/// # let options = Options { disk: disk.clone(), ..Options::default() };
/// let database = Database::open("example", options)?;
/// let table = database.create_table("kv", TableOptions::default())?;
/// table.put(b"key", b"value", Durability::Sync)?;
/// database.close()?;
/// let report = verify_directory(&*disk, Path::new("example"), |done, total| assert!(done <= total))?;
/// assert!(report.is_ok());
/// assert_eq!(report.log_records, 1);
/// # Ok::<(), mycelium_engine::Error>(())
/// ```
pub fn verify_directory(disk: &dyn Disk, directory: &Path, progress: impl FnMut(u64, u64)) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let read = || Manifest::read(disk, directory);
    let state = match again_while_it_changes(disk, directory, read) {
        Ok(state) => state,
        Err(error) if error.is_corruption() => {
            report.add(None, error);
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    verify_state(&mut report, disk, directory, &state, None, progress);
    // That took a while: a writer elsewhere may have flushed what the log had then.
    let segments = || {
        let mut state = read()?;
        let segments = needed_segments(disk, directory, &mut state, RecoveryMode::default())?;
        Ok::<_, Error>((segments, state.next_table_id))
    };
    match again_while_it_changes(disk, directory, segments) {
        Ok((segments, next_table_id)) => {
            verify_closed_log(&mut report, disk, directory, (segments.as_slice(), next_table_id));
        }
        Err(error) => report.add(None, error),
    }
    Ok(report)
}

impl Inner {
    fn verify(&self, progress: impl FnMut(u64, u64)) -> Result<VerifyReport> {
        let mut report = VerifyReport::default();
        let (state, trees) = self.pinned_state();
        verify_state(&mut report, &*self.disk, &self.directory, &state, Some(&trees), progress);
        // Where files cannot be read rows cannot be compared.
        if report.is_ok() {
            self.verify_derived(&mut report);
        }
        if !self.options.read_only {
            let readers = self.open_log(&mut report);
            verify_open_log(&mut report, readers);
        }
        Ok(report)
    }

    fn verify_derived(&self, report: &mut VerifyReport) {
        let indexes = self.verify_indexes(|name, error| report.add(Some(name), error));
        let views = self.verify_views(|name, error| report.add(Some(name), error));
        for compared in [indexes, views] {
            match compared {
                Ok(count) => report.derived += count,
                Err(error) => report.add(None, error),
            }
        }
    }

    /// The tables' versions, and the trees that keep their files.
    fn pinned_state(&self) -> (ManifestState, Vec<(TableId, Arc<Tree>)>) {
        let core = self.core.lock();
        let mut state = ManifestState::default();
        let mut trees = Vec::with_capacity(core.tables.len());
        for (id, table) in core.tables.iter() {
            let tree = table.state.load().tree.clone();
            let record = Arc::new(TableRecord {
                id: *id,
                name: table.name.clone(),
                definition: table.definition.encode(),
                layout: if table.index.is_some() { TableRecord::DERIVED.into() } else { String::new() },
            });
            state.tables.insert(*id, mycelium_manifest::TableState { record, version: tree.version.clone() });
            trees.push((*id, tree));
        }
        (state, trees)
    }

    /// Readers of all segments still needed. While the commit lock is held each file ends with a whole record, and the
    /// readers see only what is there now. What lies in the process's buffer is not on the disk yet and takes no part.
    fn open_log(&self, report: &mut VerifyReport) -> Vec<(PathBuf, SegmentReader)> {
        let writer = self.commits.writer.lock();
        let sealed = self.core.lock().sealed_logs();
        let current = writer.log.as_ref().map(|log| log.number());
        let numbers: Vec<FileNumber> = sealed.iter().map(|log| log.number).chain(current).collect();
        let mut readers = Vec::with_capacity(numbers.len());
        for number in numbers {
            let path = self.directory.join(FileKind::Wal.name(number));
            match SegmentReader::open(&*self.disk, &path, Some(number)) {
                Ok(reader) => readers.push((path, reader)),
                // A flush has made it unneeded meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound && !self.is_log_needed(number, current) => {}
                Err(error) => report.add(None, error),
            }
        }
        readers
    }

    fn is_log_needed(&self, number: FileNumber, current: Option<FileNumber>) -> bool {
        current == Some(number) || self.core.lock().sealed_logs().iter().any(|log| log.number == number)
    }
}

/// Steps 1 to 3 for all tables. `trees` are given where the database is open.
fn verify_state(
    report: &mut VerifyReport,
    disk: &dyn Disk,
    directory: &Path,
    state: &ManifestState,
    trees: Option<&[(TableId, Arc<Tree>)]>,
    mut progress: impl FnMut(u64, u64),
) {
    let total = state.tables.values().map(work_of).sum();
    let mut done = 0;
    progress(0, total);
    for (id, table) in &state.tables {
        let name = table.record.name.as_str();
        report.tables += 1;
        if let Err(error) = TableDefinition::decode(&table.record.definition) {
            report.add(Some(name), error);
        }
        if let Err(error) = table.check() {
            report.add(Some(name), Error::corruption(error.to_string()));
        }
        let before = report.problem_count;
        for meta in table.version.files().map(|(_, _, meta)| meta).chain(table.version.buffered_files()) {
            report.files += 1;
            if let Err(error) = verify_file(report, disk, directory, meta, |bytes| progress(done + bytes, total)) {
                report.add(Some(name), error);
            }
            done += meta.size;
            progress(done, total);
        }
        // Where a file cannot be read its entries cannot be compared with others'.
        let has_ages = !table.record.is_derived() && run_count(&table.version) > 1;
        if report.problem_count == before && has_ages {
            let tree = trees.and_then(|trees| trees.iter().find(|(table, _)| table == id)).map(|(_, tree)| &**tree);
            if let Err(error) = verify_table_age(report, name, disk, directory, &table.version, tree) {
                report.add(Some(name), error);
            }
        }
        if has_ages {
            done += table.version.total_bytes();
            progress(done, total);
        }
    }
}

fn run_count(version: &Version) -> usize {
    version.levels.iter().map(|level| level.runs.len()).sum()
}

/// Bytes that the verification of a table reads.
fn work_of(table: &mycelium_manifest::TableState) -> u64 {
    let has_ages = !table.record.is_derived() && run_count(&table.version) > 1;
    let buffered: u64 = table.version.buffered_files().map(|file| file.size).sum();
    buffered + table.version.total_bytes() * if has_ages { 2 } else { 1 }
}

/// Step 2 for one file.
fn verify_file(
    report: &mut VerifyReport,
    disk: &dyn Disk,
    directory: &Path,
    meta: &FileMeta,
    progress: impl FnMut(u64),
) -> Result<()> {
    // Large enough that index and filter stay in memory, so that the filter is checked, too.
    let cache = Arc::new(BlockCache::new(2 * meta.size.max(1 << 20)));
    let file = open_sst(disk, directory, &cache, meta)?;
    let summary = file.verify(progress)?;
    compare_with_manifest(&file, meta)?;
    report.bytes += summary.bytes;
    report.blocks += summary.blocks;
    report.entries += summary.entries;
    report.range_deletes += summary.range_deletes;
    Ok(())
}

/// What the file says of itself against what the manifest says.
pub(crate) fn compare_with_manifest(file: &SstFile, meta: &FileMeta) -> Result<()> {
    let properties = file.properties();
    let numbers = [
        ("smallest sequence number", meta.min_sequence, file.min_sequence()),
        ("largest sequence number", meta.max_sequence, file.max_sequence()),
        ("number of entries", meta.entry_count, properties.entry_count),
        ("number of deletes", meta.delete_count, properties.delete_count),
        ("number of range deletes", meta.range_delete_count, properties.range_delete_count),
    ];
    let differs = |what: &str| Error::corruption(format!("the manifest has another {what}")).in_file(file.path());
    if let Some((what, stated, found)) = numbers.into_iter().find(|(_, stated, found)| stated != found) {
        return Err(differs(what).expected(stated, found));
    }
    let fences = properties.smallest == meta.smallest
        && properties.largest == meta.largest
        && properties.largest_exclusive == meta.largest_exclusive;
    if fences { Ok(()) } else { Err(differs("key range")) }
}

/// Step 3: opens a table's runs, youngest first, and compares them.
fn verify_table_age(
    report: &mut VerifyReport,
    name: &str,
    disk: &dyn Disk,
    directory: &Path,
    version: &Version,
    tree: Option<&Tree>,
) -> Result<()> {
    let cache = Arc::new(BlockCache::new(CACHE_BYTES));
    let mut runs = Vec::new();
    for run in version.levels.iter().flat_map(|level| &level.runs) {
        let open = |meta: &Arc<FileMeta>| match tree.and_then(|tree| tree.find(meta.number)) {
            Some(file) => Ok(file.sst.clone()),
            None => open_sst(disk, directory, &cache, meta),
        };
        runs.push(AgedRun::new(run, run.files.iter().map(open).collect::<Result<Vec<_>>>()?)?);
    }
    compare_runs(&mut runs, |older, key| {
        let error = Error::corruption(format!("a version of key {key:02x?} in this run is newer than one above it"));
        report.add(Some(name), error.in_file(older));
    })
}

/// A run of a table and a position in it.
struct AgedRun {
    run: Arc<Run>,
    files: Arc<SortedFiles>,
    cursor: RunCursor,
    has_range_deletes: bool,
}

impl AgedRun {
    fn new(run: &Arc<Run>, files: Vec<Arc<SstFile>>) -> Result<Self> {
        let files = Arc::new(SortedFiles::from(files));
        let options = CursorOptions { fill_cache: false, read_ahead: READ_AHEAD, ..CursorOptions::default() };
        let mut cursor = RunCursor::over(files.clone(), options);
        cursor.seek_to_first()?;
        let has_range_deletes = files.iter().any(|file| !file.range_deletes().is_empty());
        Ok(Self { run: run.clone(), files, cursor, has_range_deletes })
    }

    fn shares_columns(&self, other: &Run) -> bool {
        self.run.files.first().zip(other.files.first()).is_some_and(|(a, b)| a.shares_columns(b))
    }

    fn file_for(&self, key: &[u8]) -> Option<&Arc<SstFile>> {
        self.files.find(key)
    }

    /// The oldest and the newest sequence number that the run has for `key`; moves past the key.
    fn take(&mut self, key: &[u8]) -> Result<Option<(SequenceNumber, SequenceNumber)>> {
        let mut range: Option<(SequenceNumber, SequenceNumber)> = None;
        if self.has_range_deletes
            && let Some(file) = self.file_for(key)
            && let Some(sequence) = file.range_deletes().covering(key, MAX_SEQUENCE_NUMBER)
        {
            range = Some((sequence, sequence));
        }
        while self.cursor.valid() && self.cursor.key() == key {
            let sequence = self.cursor.trailer().sequence();
            let (oldest, newest) = range.unwrap_or((sequence, sequence));
            range = Some((oldest.min(sequence), newest.max(sequence)));
            self.cursor.next()?;
        }
        Ok(range)
    }
}

/// Walks all keys; `fault` is told the older run's file and the key wherever a version lies below an older one.
fn compare_runs(runs: &mut [AgedRun], mut fault: impl FnMut(&Path, &[u8])) -> Result<()> {
    let mut key = Vec::new();
    loop {
        let Some(least) = runs.iter().filter(|run| run.cursor.valid()).map(|run| run.cursor.key()).min() else {
            return Ok(());
        };
        key.clear();
        key.extend_from_slice(least);
        // The oldest version of the runs passed so far that hold the key: those that follow must be older in every
        // column.
        let mut passed: Vec<(Arc<Run>, SequenceNumber)> = Vec::new();
        for run in &mut *runs {
            let Some((oldest, newest)) = run.take(&key)? else { continue };
            if passed.iter().any(|(above, floor)| newest >= *floor && run.shares_columns(above)) {
                let path = run.file_for(&key).map(|file| file.path().to_path_buf()).unwrap_or_default();
                fault(&path, &key);
            }
            passed.push((run.run.clone(), oldest));
        }
    }
}

/// Step 4 for a database that is open.
fn verify_open_log(report: &mut VerifyReport, readers: Vec<(PathBuf, SegmentReader)>) {
    let mut last = 0;
    let mut before: Option<(FileNumber, u64)> = None;
    for (path, mut reader) in readers {
        report.log_segments += 1;
        let header = *reader.header();
        if let Some(end) = before
            && header.previous != Some(end)
        {
            let error = Error::corruption("the log segment does not continue the one before it").in_file(&path).at(20);
            report.add(None, error.expected(format_args!("{end:?}"), format_args!("{:?}", header.previous)));
        }
        loop {
            match reader.next() {
                Ok(Some(record)) => {
                    report.log_records += 1;
                    report.log_bytes += record.payload.len() as u64;
                    if let Err(error) = verify_record(record.payload, &mut last) {
                        report.add(None, error.in_file(&path).at(record.offset));
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    report.add(None, error);
                    break;
                }
            }
        }
        if let Some(error) = reader.tear_error() {
            report.add(None, error);
        }
        before = Some((header.number, reader.position()));
    }
}

/// Step 4 for a database that is closed: what recovery would do, without keeping anything.
fn verify_closed_log(
    report: &mut VerifyReport,
    disk: &dyn Disk,
    directory: &Path,
    (segments, next_table_id): (&[FileNumber], u32),
) {
    let (mut last, mut is_of_known_tables) = (0, true);
    let mut problems = Vec::new();
    let check_tables = |payload: &[u8]| {
        check_tables_of(payload, next_table_id).or_else(|error| match Manifest::read(disk, directory) {
            // A writer elsewhere may have made the table since.
            Ok(now) => check_tables_of(payload, now.next_table_id),
            Err(_) => Err(error),
        })
    };
    let mut apply = |segment: FileNumber, offset: u64, payload: &[u8]| {
        let mut verified = verify_record(payload, &mut last);
        if verified.is_ok() && is_of_known_tables {
            verified = check_tables(payload);
            is_of_known_tables = verified.is_ok();
        }
        if let Err(error) = verified {
            problems.push(error.in_file(directory.join(FileKind::Wal.name(segment))).at(offset));
        }
        Ok(())
    };
    let result = replay(disk, directory, segments, RecoveryMode::TolerateTornTail, &mut apply);
    report.log_segments = segments.len() as u64;
    problems.into_iter().for_each(|error| report.add(None, error));
    match result {
        Ok(replayed) => {
            report.log_records = replayed.records;
            report.log_bytes = replayed.bytes;
            report.torn_tail =
                replayed.torn.map(|(path, offset, reason)| format!("{} at offset {offset}: {reason}", path.display()));
        }
        Err(error) => report.add(None, error),
    }
}

/// Decodes a record; its sequence numbers must come after `last`, which is raised.
pub(crate) fn verify_record(payload: &[u8], last: &mut SequenceNumber) -> Result<()> {
    let (first, count, mut operations) = Operations::of_record(payload)?;
    if first <= *last {
        return Err(Error::corruption("sequence numbers of the log do not ascend").expected(*last + 1, first));
    }
    while operations.next()?.is_some() {}
    *last = (first + u64::from(count)).saturating_sub(1);
    Ok(())
}
