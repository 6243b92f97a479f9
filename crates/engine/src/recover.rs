//! Open and recover.
//!
//! 1. Lock the directory. Read CURRENT and the manifest: tables, files, and the oldest log segment still needed, which
//!    must be there. Start a fresh manifest.
//! 2. Open every file that the manifest names.
//! 3. Replay the needed log segments, in order, into fresh memtables, as the recovery mode says. If they hold anything
//!    of a table that the manifest never had, this has lost its last edits.
//! 4. Write those memtables as level-0 files and install them in one edit that also says that no replayed segment is
//!    needed any more; a crash before it replays the same segments again, a crash after it does not need them.
//! 5. Begin a new log segment; archive the older ones if the log is archived; remove every file that nothing names;
//!    take out of the compaction buffers what exceeds their budget, which may have been a larger one; drop indexes that
//!    were to become unique and had not been checked yet.
//!
//! Nothing is removed or overwritten before the edit of step 4 is durable (reliability rule: recovery writes nothing
//! that a second crash could turn into loss). A database opened read-only is read by steps 1 to 3 as well, and again
//! where another process goes on with it (follow/mod.rs).

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;

use mycelium_base::{EntryRef, Error, ErrorKind, FileKind, FileNumber, Result, SequenceNumber, TableId};
use mycelium_cache::BlockCache;
use mycelium_manifest::{Manifest, ManifestOptions, ManifestState};
use mycelium_vfs::Disk;
use mycelium_wal::{RecoveryMode, ReplayReport, SegmentHeader, SegmentWriter, replay};

use crate::archive::{Archiver, Origin, begin_segment};
use crate::core::Core;
use crate::database::{Inner, Recovered, open_sst};
use crate::directory_syncs::DirectorySyncs;
use crate::index::WriteDerivers;
use crate::operations::Operations;
use crate::options::Options;
use crate::shape::TableFormats;
use crate::sync::atomic::Ordering;
use crate::table::TableShared;
use crate::tree::{Graveyard, OpenFile, Tree};
use crate::write::{CommitQueue, Writer};

/// The filters of memtables are allocated ahead, however much memory the database may take: so much is for generations
/// of 20 GiB.
const MOST_FILTER_BYTES: usize = 128 << 20;

/// How often what reads a directory begins anew because files came and went.
const ATTEMPTS: usize = 16;

/// A file that is in the directory of a database as long as its log is being restored: it is not what was asked for
/// yet.
pub(crate) const RESTORING: &str = "RESTORING";

/// Refuses a database whose restore was cut short.
pub(crate) fn check_restored(disk: &dyn Disk, directory: &Path) -> Result<()> {
    if disk.exists(&directory.join(RESTORING))? {
        let message = "a restore into this directory was cut short: remove it, and restore again";
        return Err(Error::invalid(message).in_file(directory));
    }
    Ok(())
}

/// Does what reads a directory that another process may be writing to. A file that the manifest named a moment ago may
/// be flushed or merged, and gone by the time that it is opened, and the manifest itself replaced. So an error counts
/// only if no file came or went meanwhile, or if they always do.
pub(crate) fn again_while_it_changes<T>(
    disk: &dyn Disk,
    directory: &Path,
    mut read: impl FnMut() -> Result<T>,
) -> Result<T> {
    let names = || disk.list(directory).ok();
    for _ in 1..ATTEMPTS {
        let before = names();
        match read() {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corruption) && names() != before => {}
            // What was read does not belong together.
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            result => return result,
        }
    }
    read()
}

/// Opens the database in `directory` for writing: the steps of the module.
pub(crate) fn recover(directory: &Path, options: Options) -> Result<Inner> {
    if options.archive.as_ref().is_some_and(|archive| archive.directory == directory) {
        return Err(Error::invalid("the archive of a log needs a directory of its own").in_file(directory));
    }
    let disk: Arc<dyn Disk> = Arc::new(DirectorySyncs::of(options.disk, directory));
    let options = Options { disk: disk.clone(), ..options };
    let exists = disk.exists(&directory.join(FileKind::Current.name(0)))?;
    if !exists && !options.create_if_missing {
        return Err(Error::new(ErrorKind::NotFound, "there is no database").in_file(directory));
    }
    if !exists {
        disk.create_directory(directory)?;
    }
    let lock = Some(disk.lock(&directory.join(FileKind::Lock.name(0)))?);
    let (manifest, state, segments) = open_manifest(&disk, directory, &options, exists)?;
    let cache = Arc::new(BlockCache::with_budgets(options.cache_bytes, options.index_and_filter_bytes));
    let graveyard = Arc::<Graveyard>::default();
    let mut core = Core::new(manifest.file_numbers().clone(), filter_bytes(&options));
    let origin = Origin { identity: state.identity, history: state.history };
    let archiver = |archive| Archiver::new(disk.clone(), archive, origin, options.clock.clone());
    let archive = options.archive.as_ref().map(archiver);
    let parts = Parts { disk: &*disk, directory, options: &options, state: &state, archive: archive.as_ref() };
    parts.open_tables(&mut core, &cache, &graveyard)?;
    let (replayed, writer) = parts.replay(&segments, &core)?;
    let last_sequence = writer.last_sequence;
    let commits = CommitQueue::new(writer);
    let directory = directory.to_path_buf();
    let (manifest, follower) = (Some(manifest), None);
    let recovered =
        Recovered { directory, cache, commits, manifest, follower, archive, core, last_sequence, graveyard, lock };
    let inner = Inner::new(options, recovered);
    inner.counters.recovered_records.store(replayed.records, Ordering::Relaxed);
    inner.finish_recovery()?;
    Ok(inner)
}

/// The bytes that the filters of the memtables of a generation may take together: a bit per ten bytes of a full one,
/// which is ten bits a key for entries of about 100 bytes.
pub(crate) fn filter_bytes(options: &Options) -> usize {
    (options.memory_budget / 2 / 80).min(MOST_FILTER_BYTES)
}

/// The manifest, its state, and the log segments to replay. The log is looked for before a fresh manifest is written.
fn open_manifest(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    options: &Options,
    exists: bool,
) -> Result<(Manifest, ManifestState, Vec<FileNumber>)> {
    let mut state = ManifestState::default();
    if exists {
        state = Manifest::read(&**disk, directory)?;
    } else {
        refuse_foreign_directory(&**disk, directory)?;
    }
    let segments = needed_segments(&**disk, directory, &mut state, options.recovery)?;
    if state.identity == 0 {
        // Made anew, or by a version that knew of none.
        state.identity = new_identity(directory);
    }
    if state.history == 0 && options.archive.is_some() {
        state.history = new_identity(directory);
    }
    let manifest = match exists {
        true => Manifest::resume(disk.clone(), directory, state, ManifestOptions::default())?,
        false => Manifest::create_with(disk.clone(), directory, state, ManifestOptions::default())?,
    };
    let state = manifest.state().clone();
    Ok((manifest, state, segments))
}

/// A number that no other database has: by keys that the system gives at random.
fn new_identity(directory: &Path) -> u64 {
    RandomState::new().hash_one(directory).max(1)
}

/// A directory without CURRENT but with our files is a database whose CURRENT was lost, not a place for a new one. One
/// whose making was cut short has neither SSTs nor a log: they come after CURRENT is there, durably.
fn refuse_foreign_directory(disk: &dyn Disk, directory: &Path) -> Result<()> {
    let names = disk.list(directory)?;
    let holds_rows = |name: &&String| matches!(FileKind::parse(name), Some((FileKind::Sst | FileKind::Wal, _)));
    match names.iter().find(holds_rows) {
        Some(name) => Err(Error::corruption("the directory holds files of a database but no CURRENT")
            .in_file(directory.join(name))
            .at(0)),
        None => Ok(()),
    }
}

/// The database's own files in a directory.
pub(crate) fn numbered(disk: &dyn Disk, directory: &Path) -> Result<Vec<(FileKind, FileNumber)>> {
    Ok(disk.list(directory)?.iter().filter_map(|name| FileKind::parse(name)).collect())
}

/// The log segments to replay, ascending: the oldest that the manifest needs and those after it.
///
/// The oldest is there, whatever crashed: its name was durable before the manifest named it, and only an edit that
/// names another one lets it go. Without it the rows of its generation are lost. Not so in a checkpoint made by an
/// older version, whose manifest still names the log of its source: it has no log at all, and no edit was ever made to
/// it. There `oldest_wal` becomes 0, so that the log which its opening begins is not taken for what is left of another.
///
/// # Errors
/// Corruption if the oldest is missing. In [`RecoveryMode::PointInTime`] there is nothing to replay then: what lies
/// behind a gap is part of no prefix.
pub(crate) fn needed_segments(
    disk: &dyn Disk,
    directory: &Path,
    state: &mut ManifestState,
    mode: RecoveryMode,
) -> Result<Vec<FileNumber>> {
    let logs = numbered(disk, directory)?.into_iter().filter(|(kind, _)| *kind == FileKind::Wal);
    let mut segments: Vec<FileNumber> = logs.map(|(_, number)| number).collect();
    if segments.is_empty() && state.oldest_wal != 0 && Manifest::is_as_started(disk, directory)? {
        state.oldest_wal = 0;
    }
    let oldest = state.oldest_wal;
    segments.retain(|number| *number >= oldest);
    segments.sort_unstable();
    let found = segments.first().copied();
    if oldest == 0 || found == Some(oldest) {
        return Ok(segments);
    }
    if mode == RecoveryMode::PointInTime {
        return Ok(Vec::new());
    }
    Err(missing_segment(directory, oldest, found))
}

/// The error of a log that begins with `found` in place of `oldest`.
pub(crate) fn missing_segment(directory: &Path, oldest: FileNumber, found: Option<FileNumber>) -> Error {
    let name = |number| FileKind::Wal.name(number);
    Error::corruption("a log segment that the manifest needs is missing")
        .in_file(directory.join(name(oldest)))
        .at(0)
        .expected(name(oldest), found.map_or_else(|| "no log".to_owned(), name))
}

/// Fails if a log record is of a table that was never made, where `next_table_id` is the next id for one: the edit that
/// makes a table is durable before anybody can write to it.
pub(crate) fn check_tables_of(payload: &[u8], next_table_id: u32) -> Result<()> {
    let (_, _, mut operations) = Operations::of_record(payload)?;
    while let Some((table, _)) = operations.next()? {
        if table.0 >= next_table_id {
            return Err(unknown_table(table, next_table_id));
        }
    }
    Ok(())
}

pub(crate) fn unknown_table(table: TableId, next_table_id: u32) -> Error {
    Error::corruption("the log is of a table that the manifest does not have: it has lost edits")
        .expected(format_args!("tables before {next_table_id}"), table)
}

struct Parts<'a> {
    disk: &'a dyn Disk,
    directory: &'a Path,
    options: &'a Options,
    state: &'a ManifestState,
    archive: Option<&'a Archiver>,
}

impl Parts<'_> {
    /// Opens all files of all tables.
    fn open_tables(&self, core: &mut Core, cache: &Arc<BlockCache>, graveyard: &Arc<Graveyard>) -> Result<()> {
        for table in self.state.tables.values() {
            // A file may be in a level and in the compaction buffer.
            let mut opened: HashMap<FileNumber, Arc<OpenFile>> = HashMap::new();
            let tree = |formats: Option<&TableFormats>| {
                Tree::new(table.version.clone(), formats, |meta| {
                    if let Some(file) = opened.get(&meta.number) {
                        return Ok(file.clone());
                    }
                    let sst = open_sst(self.disk, self.directory, cache, meta)?;
                    let file = OpenFile::new(meta.clone(), sst, graveyard.clone());
                    opened.insert(meta.number, file.clone());
                    Ok(file)
                })
            };
            let shared = TableShared::new(&table.record, self.options, core.empty.clone(), tree)?;
            shared.restore_trace(self.disk, self.directory);
            core.tables.insert(Arc::new(shared));
        }
        Ok(())
    }

    /// Replays the log into new memtables and begins the segment that follows it.
    fn replay(&self, segments: &[FileNumber], core: &Core) -> Result<(ReplayReport, Writer)> {
        let mut last_sequence = self.state.last_sequence;
        core.tables.indexed().for_each(|id| core.publish_indexes_of(id));
        let mut writer = Writer::new(None, last_sequence);
        writer.tables = core.tables.keys().copied().collect();
        let mut derivers = WriteDerivers::new(&core.tables)?;
        let (mut unknown, next_table_id) = (None, self.state.next_table_id);
        let mut apply = |segment: FileNumber, offset: u64, payload: &[u8]| {
            let locate = |error: Error| error.in_file(self.directory.join(FileKind::Wal.name(segment))).at(offset);
            let (first, count, mut operations) = Operations::of_record(payload).map_err(locate)?;
            // Entries of tables that were dropped later go nowhere.
            let mut insert = |table: TableId, entry: EntryRef<'_>| writer.insert_again(core, table, entry);
            while let Some((table, entry)) = operations.next().map_err(locate)? {
                if table.0 >= next_table_id {
                    unknown.get_or_insert_with(|| locate(unknown_table(table, next_table_id)));
                }
                insert(table, entry);
                derivers.derive_again(table, entry, &mut insert).map_err(locate)?;
            }
            last_sequence = last_sequence.max((first + u64::from(count)).saturating_sub(1));
            Ok(())
        };
        let report = replay(self.disk, self.directory, segments, self.options.recovery, &mut apply)?;
        if let Some(error) = unknown.filter(|_| self.options.recovery != RecoveryMode::PointInTime) {
            return Err(error);
        }
        writer.log = Some(self.begin_log(core, &report, last_sequence)?);
        writer.last_sequence = last_sequence;
        writer.derivers = derivers;
        Ok((report, writer))
    }

    fn begin_log(&self, core: &Core, report: &ReplayReport, last: SequenceNumber) -> Result<SegmentWriter> {
        let number = core.numbers.allocate();
        let path = self.directory.join(FileKind::Wal.name(number));
        begin_segment(self.disk, &path, SegmentHeader { number, previous: report.end }, self.archive, last + 1)
    }
}

impl Inner {
    /// Makes what was replayed durable as files, then removes what nothing needs.
    fn finish_recovery(&self) -> Result<()> {
        let next_log = {
            let mut writer = self.commits.writer.lock();
            let next_log = writer.log()?.number();
            self.core.lock().seal(None, &mut writer, next_log);
            next_log
        };
        if let Err(error) = self.flush_oldest() {
            // What a full disk lacks may be in files that nothing names. The log is needed until the flush succeeds.
            if error.kind() != ErrorKind::NoSpace || !self.remove_orphans(FileNumber::MIN)? {
                return Err(error);
            }
            self.flush_oldest()?;
        }
        self.remove_orphans(next_log)?;
        // It is told if it fails, and tried again.
        drop(self.archive_waiting());
        match self.trim_buffers(self.options.buffer_bytes) {
            // The next compaction takes out what is too much.
            Err(error) if error.kind().is_shortage() => {}
            result => result?,
        }
        self.drop_unchecked_indexes()
    }

    /// Removes SSTs that no version names, log segments older than `oldest_log`, the one begun last, that are not to be
    /// archived, and traces of tables that were dropped.
    /// Manifests are the manifest's own. Whether there were any.
    fn remove_orphans(&self, oldest_log: FileNumber) -> Result<bool> {
        let live: HashSet<FileNumber> = {
            let core = self.core.lock();
            let trees = core.tables.values().map(|table| table.state.load().tree.clone());
            trees.flat_map(|tree| tree.all_files().map(|file| file.meta.number).collect::<Vec<_>>()).collect()
        };
        let tables: HashSet<u64> = self.core.lock().tables.keys().map(|table| table.0.into()).collect();
        let unarchived = if oldest_log > 0 { self.find_unarchived(oldest_log)? } else { HashSet::new() };
        let mut found = false;
        for (kind, number) in numbered(&*self.disk, &self.directory)? {
            let orphan = match kind {
                FileKind::Trace => !tables.contains(&number),
                FileKind::Sst => !live.contains(&number),
                FileKind::Wal => number < oldest_log && !unarchived.contains(&number),
                _ => false,
            };
            if orphan {
                self.disk.remove(&self.directory.join(kind.name(number)))?;
            }
            found |= orphan;
        }
        Ok(found)
    }
}
