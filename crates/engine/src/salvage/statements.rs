//! The state of a database as its files tell it, where the manifest is lost or has lost edits.
//!
//! 1. Read what every SST says of itself and of where it belongs (`origin`). Files of another database say nothing of
//!    this one. Of every table its newest file, by the edits that the manifest had had, lists the files that the table
//!    had when that one was begun.
//! 2. Begin with the newest that is known: what is left of a manifest, or what the newest file of all says. By that a
//!    table was there or was not; if it had tables that nothing describes, those that it did not have are kept, for one
//!    of the others may have taken their place (a new column).
//! 3. Lists miss what was being made when they were written: all else that they lack was there no more. A compaction's
//!    output whose inputs are all listed was being made then. If its inputs are all there still it does not count: they
//!    say the same. If one is gone they were replaced, for nothing is removed before an edit is durable that says so;
//!    the outputs take their places. A job that shares inputs with a later one had failed, whatever it left, and of the
//!    outputs of one that was tried again only those of the last try count.
//! 4. The same of flushes: as long as the log segment is there that they began with, their files do not count. Once it
//!    is gone they are the newest of their tables, and the log begins with the segment behind.
//! 5. Listed files that are not there, and that no output replaces, and those that do not say what they hold, are gone.
//!
//! Guarantees: no file counts that is provably replaced, and no file is without the older ones that are listed with it:
//! levels, runs and column groups are those that the table had. Indexes are to be built again, for compactions of their
//! table and they themselves go on by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mycelium_base::{Error, ErrorKind, FileKind, FileNumber, Group, Result, SequenceNumber, TableId};
use mycelium_manifest::{FileMeta, Level, ManifestState, Round, Run, RunPlace, TableRecord, TableState, Version};
use mycelium_sst::{FileStatement, Properties};
use mycelium_vfs::{AccessPattern, Disk};

use crate::origin::{Birth, Origin};
use crate::recover::numbered;
use crate::table::TableDefinition;

/// What the files of a directory say.
pub(super) struct Statements {
    directory: PathBuf,
    /// Of the database, as the manifest has it or else its files; 0 as long as nobody has said it.
    identity: u64,
    /// The file that said it, where the manifest does not.
    identified_by: Option<FileNumber>,
    files: BTreeMap<FileNumber, Statement>,
    /// Files of other databases.
    foreign: BTreeSet<FileNumber>,
    /// By table the files that say so.
    births: BTreeMap<TableId, BTreeMap<FileNumber, Birth>>,
    /// Files that say nothing, and why.
    faults: BTreeMap<FileNumber, Error>,
    /// The segments of the log, ascending.
    logs: Vec<FileNumber>,
    /// By table the newest list of its files.
    newest: BTreeMap<TableId, Origin>,
    /// What tables are, and after how many edits that was said.
    records: BTreeMap<TableId, (u64, TableRecord)>,
    largest_number: FileNumber,
}

/// What a file says of what it holds.
struct Statement {
    size: u64,
    properties: Properties,
}

/// A file that is missed and nothing replaces.
pub(super) struct GoneFile {
    pub(super) level: usize,
    pub(super) group: Option<Arc<Group>>,
    /// It held no larger sequence number.
    pub(super) up_to: SequenceNumber,
    pub(super) error: Error,
}

/// A state that was put together.
pub(super) struct Pieced {
    pub(super) state: ManifestState,
    /// Whether the files know of more than was known before.
    pub(super) has_more: bool,
    /// Files whose checksum nobody knows.
    pub(super) unchecked: BTreeSet<FileNumber>,
    /// By table.
    pub(super) gone: BTreeMap<TableId, Vec<GoneFile>>,
    /// Indexes of tables that are not there.
    pub(super) dropped_indexes: Vec<String>,
    /// How many tables there were that nothing describes.
    pub(super) unknown_tables: u64,
}

/// A run on the way to a version. Files without meta are gone.
struct Draft {
    level: usize,
    group: Option<Arc<Group>>,
    files: Vec<(FileNumber, Option<Arc<FileMeta>>)>,
}

/// What is listed of a table.
struct Listing {
    drafts: Vec<Draft>,
    rounds: Vec<Round>,
    /// The oldest log segment that was needed then.
    oldest_log: FileNumber,
}

/// A compaction that was running when its table's newest list was written.
struct Job {
    level: usize,
    place: RunPlace,
    /// Ascending.
    outputs: Vec<FileNumber>,
}

impl Job {
    /// The last file that it made.
    fn newest(&self) -> Option<FileNumber> {
        self.outputs.last().copied()
    }
}

impl Statements {
    /// Step 1. A file that cannot be read says nothing. `identity` is the database's, 0 if that is not known.
    ///
    /// # Errors
    /// Corruption if it is not known and files say several; those of listing the directory.
    pub(super) fn read(disk: &dyn Disk, from: &Path, identity: u64) -> Result<Self> {
        let mut found = numbered(disk, from)?;
        found.sort_unstable_by_key(|(_, number)| *number);
        let mut statements = Self {
            directory: from.to_path_buf(),
            identity,
            identified_by: None,
            files: BTreeMap::new(),
            foreign: BTreeSet::new(),
            births: BTreeMap::new(),
            faults: BTreeMap::new(),
            logs: Vec::new(),
            newest: BTreeMap::new(),
            records: BTreeMap::new(),
            largest_number: found.last().map_or(0, |(_, number)| *number),
        };
        for (kind, number) in found {
            match kind {
                FileKind::Wal => statements.logs.push(number),
                FileKind::Sst => statements.read_file(disk, &from.join(kind.name(number)), number)?,
                _ => {}
            }
        }
        Ok(statements)
    }

    fn read_file(&mut self, disk: &dyn Disk, path: &Path, number: FileNumber) -> Result<()> {
        let file = disk.open(path, AccessPattern::Random).and_then(|file| FileStatement::read(file, path, number));
        let read = file.and_then(|FileStatement { size, properties, origin }| {
            let origin = origin.as_deref().map(Origin::decode).transpose().map_err(|e| e.in_file(path))?;
            Ok((size, properties, origin))
        });
        match read {
            Ok((size, properties, origin)) => {
                if let Some(origin) = &origin
                    && !self.is_own(path, number, origin)?
                {
                    self.foreign.insert(number);
                    return Ok(());
                }
                self.files.insert(number, Statement { size, properties });
                origin.into_iter().for_each(|origin| self.note(number, origin));
            }
            Err(error) => drop(self.faults.insert(number, error)),
        }
        Ok(())
    }

    /// Whether a file is of this database.
    fn is_own(&mut self, path: &Path, number: FileNumber, origin: &Origin) -> Result<bool> {
        if self.identity == 0 && origin.identity != 0 {
            (self.identity, self.identified_by) = (origin.identity, Some(number));
        }
        if origin.identity == 0 || origin.identity == self.identity {
            return Ok(true);
        }
        let Some(first) = self.identified_by else { return Ok(false) };
        let message = "there are files of several databases, and no manifest says which one it is: \
                       take those of the others away";
        let expected = format!("one of the same database as {}", FileKind::Sst.name(first));
        Err(Error::corruption(message).in_file(path).at(0).expected(expected, "one of another"))
    }

    /// Keeps what is newest of what a file says.
    fn note(&mut self, number: FileNumber, origin: Origin) {
        for record in origin.records() {
            if self.records.get(&record.id).is_none_or(|(edits, _)| *edits <= origin.edits) {
                self.records.insert(record.id, (origin.edits, record.clone()));
            }
        }
        let table = origin.table();
        self.births.entry(table).or_default().insert(number, origin.birth.clone());
        if self.newest.get(&table).is_none_or(|newest| newest.edits <= origin.edits) {
            self.newest.insert(table, origin);
        }
    }

    /// The files that say where they belong, or of which others say that the tree did not need them.
    pub(super) fn placed(&self) -> BTreeSet<FileNumber> {
        let placed = self.births.values().flat_map(BTreeMap::keys);
        let buffered = self.newest.values().flat_map(|origin| &origin.buffered);
        placed.chain(buffered).chain(&self.foreign).copied().collect()
    }

    /// The names of files of other databases.
    pub(super) fn foreign_names(&self) -> impl Iterator<Item = String> {
        self.foreign.iter().map(|number| FileKind::Sst.name(*number))
    }

    /// Steps 2 to 5, beside the state that a manifest gives, if one does; `is_sound` if no edit of it is known to be
    /// lost. `None` if nobody says anything.
    ///
    /// # Errors
    /// Corruption if what is said does not fit together; `ErrorKind::Unsupported` if some of it is of a newer version.
    pub(super) fn complete(&self, known: Option<ManifestState>, is_sound: bool) -> Result<Option<Pieced>> {
        let newest = self.newest.values().max_by_key(|origin| origin.edits);
        if known.is_none() && newest.is_none() {
            return self.check_versions().map(|()| None);
        }
        let (had, edits): (BTreeSet<TableId>, Option<u64>) = match &known {
            Some(state) => (state.tables.keys().copied().collect(), Some(state.edit_count)),
            None => (BTreeSet::new(), None),
        };
        let is_newer = |origin: &&Origin| edits.is_none_or(|edits| origin.edits > edits);
        let mut pieced = Pieced {
            state: known.unwrap_or_default(),
            has_more: false,
            unchecked: BTreeSet::new(),
            gone: BTreeMap::new(),
            dropped_indexes: Vec::new(),
            unknown_tables: 0,
        };
        let oldest_log = pieced.state.oldest_wal;
        if let Some(origin) = newest.filter(is_newer) {
            self.take_tables(origin, edits, &mut pieced)?;
        }
        self.find_log(is_sound, &mut pieced);
        for id in pieced.state.tables.keys().copied().collect::<Vec<_>>() {
            let Some(table) = pieced.state.tables.get(&id) else { continue };
            if TableDefinition::decode(&table.record.definition)?.index.is_some() {
                continue;
            }
            let listed = self.newest.get(&id).filter(|origin| !had.contains(&id) || is_newer(origin));
            let listing = match listed {
                Some(origin) => self.list_of(origin),
                None => known_list(&table.version, oldest_log),
            };
            self.complete_table(id, listing, listed.is_some(), is_sound, &mut pieced)?;
        }
        if pieced.has_more {
            self.check_versions()?;
            empty_indexes(&mut pieced)?;
        }
        let state = &mut pieced.state;
        state.next_file_number = state.next_file_number.max(self.largest_number.saturating_add(1));
        Ok(Some(pieced))
    }

    /// Step 2, where the newest file knows of more than the manifest.
    fn take_tables(&self, origin: &Origin, edits: Option<u64>, pieced: &mut Pieced) -> Result<()> {
        let state = &mut pieced.state;
        pieced.has_more = true;
        state.identity = self.identity;
        state.edit_count = origin.edits;
        state.last_sequence = state.last_sequence.max(origin.last_sequence);
        state.oldest_wal = origin.oldest_log;
        state.next_table_id = origin.next_table_id;
        for (id, (said_at, record)) in &self.records {
            let version = match state.tables.get(id) {
                Some(table) if edits.is_none_or(|edits| *said_at > edits) => table.version.clone(),
                Some(_) => continue,
                None => Arc::default(),
            };
            state.tables.insert(*id, TableState { record: Arc::new(record.clone()), version });
        }
        let live: BTreeSet<String> = state
            .tables
            .iter()
            .filter(|(id, _)| origin.has_table(**id))
            .map(|(_, table)| table.record.name.clone())
            .collect();
        pieced.unknown_tables = origin.table_count().saturating_sub(live.len() as u64);
        let keeps_others = pieced.unknown_tables > 0;
        // Of several that had a name, each took the place of the one before.
        let mut names = live;
        let mut kept: BTreeSet<TableId> = BTreeSet::new();
        for (id, table) in state.tables.iter().rev() {
            if origin.has_table(*id) || keeps_others && names.insert(table.record.name.clone()) {
                kept.insert(*id);
            }
        }
        let mut tables = std::mem::take(&mut state.tables).into_map();
        tables.retain(|id, _| kept.contains(id));
        state.tables = tables.into();
        let mut names = BTreeSet::new();
        match state.tables.values().find(|table| !names.insert(&table.record.name)) {
            Some(table) => {
                Err(Error::corruption(format!("files say of two tables that they are {}", table.record.name)))
            }
            None => Ok(()),
        }
    }

    /// Fails if a file is of a newer version: it may know of more than others.
    fn check_versions(&self) -> Result<()> {
        let newer = self.faults.values().find(|error| error.kind() == ErrorKind::Unsupported);
        newer.map_or(Ok(()), |error| Err(error.duplicate()))
    }

    fn births_of(&self, id: TableId) -> impl Iterator<Item = (FileNumber, &Birth)> {
        self.births.get(&id).into_iter().flatten().map(|(number, birth)| (*number, birth))
    }

    fn is_there(&self, number: FileNumber) -> bool {
        self.files.contains_key(&number) || self.faults.contains_key(&number)
    }

    /// Step 4 for the log: with which segment it begins.
    fn find_log(&self, is_sound: bool, pieced: &mut Pieced) {
        let state = &mut pieced.state;
        let oldest = state.oldest_wal;
        if oldest == 0 || self.logs.contains(&oldest) {
            return;
        }
        let flushes = self.births.values().flat_map(BTreeMap::values).filter_map(|birth| match birth {
            Birth::Flushed { next_log, last_sequence } if *next_log > oldest => Some((*next_log, *last_sequence)),
            _ => None,
        });
        if let Some((next_log, last_sequence)) = flushes.max() {
            pieced.has_more = true;
            state.oldest_wal = next_log;
            state.last_sequence = state.last_sequence.max(last_sequence);
        }
        if is_sound && !pieced.has_more || self.logs.contains(&state.oldest_wal) {
            return;
        }
        // A flush of nothing leaves no file. Whether something lies between, sequence numbers tell.
        if let Some(first) = self.logs.iter().find(|log| **log > state.oldest_wal) {
            state.oldest_wal = *first;
        }
    }

    fn list_of(&self, origin: &Origin) -> Listing {
        let drafts = origin.runs.iter().map(|run| {
            let meta = |&(number, sequence): &(FileNumber, Option<SequenceNumber>)| {
                (number, self.meta(number, sequence, Some(&run.group), origin.edits))
            };
            Draft { level: run.level, group: run.group.clone(), files: run.files.iter().map(meta).collect() }
        });
        let rounds = origin.rounds.iter().map(|round| Round {
            level: round.level,
            group: round.group.clone(),
            number: round.number,
            is_draining: round.is_draining,
            appending: None,
            deletion: None,
        });
        Listing { drafts: drafts.collect(), rounds: rounds.collect(), oldest_log: origin.oldest_log }
    }

    /// What the manifest would say of a file, but for its checksum; `None` if the file does not say what it holds. The
    /// group is its own where no list names another.
    fn meta(
        &self,
        number: FileNumber,
        sequence_override: Option<SequenceNumber>,
        group: Option<&Option<Arc<Group>>>,
        created_at_edit: u64,
    ) -> Option<Arc<FileMeta>> {
        let Statement { size, properties } = self.files.get(&number)?;
        let stored = (properties.min_sequence, properties.max_sequence);
        let (min_sequence, max_sequence) = sequence_override.map_or(stored, |sequence| (sequence, sequence));
        Some(Arc::new(FileMeta {
            number,
            size: *size,
            checksum: 0,
            smallest: properties.smallest.clone(),
            largest: properties.largest.clone(),
            largest_exclusive: properties.largest_exclusive,
            min_sequence,
            max_sequence,
            entry_count: properties.entry_count,
            delete_count: properties.delete_count,
            range_delete_count: properties.range_delete_count,
            sequence_override,
            group: group.unwrap_or(&properties.group).clone(),
            created_at_edit,
        }))
    }

    /// Steps 3 to 5 for a table.
    fn complete_table(
        &self,
        id: TableId,
        Listing { mut drafts, rounds, oldest_log }: Listing,
        is_listed_by_files: bool,
        is_sound: bool,
        pieced: &mut Pieced,
    ) -> Result<()> {
        let listed: BTreeSet<FileNumber> =
            drafts.iter().flat_map(|draft| &draft.files).map(|(number, _)| *number).collect();
        let edits = pieced.state.edit_count;
        let mut unchecked = if is_listed_by_files { listed.clone() } else { BTreeSet::new() };
        let mut replaced: BTreeSet<FileNumber> = BTreeSet::new();
        for (inputs, job) in self.jobs_of(id, &listed, is_sound) {
            replaced.extend(inputs);
            unchecked.extend(&job.outputs);
            self.put_outputs(&job, edits, &mut drafts);
        }
        let flushed = self.births_of(id).filter(|(number, birth)| {
            let is_after = |next_log: FileNumber| oldest_log < next_log && next_log <= pieced.state.oldest_wal;
            !listed.contains(number) && matches!(birth, Birth::Flushed { next_log, .. } if is_after(*next_log))
        });
        // One that failed and was tried again may have left a file, too.
        if let Some(number) = flushed.map(|(number, _)| number).max() {
            unchecked.insert(number);
            let files = vec![(number, self.meta(number, None, None, edits))];
            let group = files[0].1.as_ref().and_then(|meta| meta.group.clone());
            drafts.insert(0, Draft { level: 0, group, files });
        }
        let Some(mut table) = pieced.state.tables.get(&id).cloned() else { return Ok(()) };
        let is_changed = is_listed_by_files || !unchecked.is_empty();
        if !is_changed {
            return Ok(());
        }
        for draft in &mut drafts {
            draft.files.retain(|(number, _)| !replaced.contains(number));
        }
        let gone = self.gone_of(&drafts, pieced.state.last_sequence);
        table.version = Arc::new(Version { levels: levels_of(drafts), rounds });
        table.check().map_err(|e| {
            let name = &table.record.name;
            Error::corruption(format!("what files say of their places in table {name} does not fit together"))
                .caused_by(e)
        })?;
        let newest = table.version.files().map(|(_, _, file)| file.max_sequence).max();
        pieced.state.tables.insert(id, table);
        pieced.state.last_sequence = pieced.state.last_sequence.max(newest.unwrap_or(0));
        pieced.has_more = true;
        pieced.unchecked.extend(unchecked);
        if !gone.is_empty() {
            pieced.gone.insert(id, gone);
        }
        Ok(())
    }

    /// Step 3: by their inputs, the compactions of a table that replaced files which are listed. Where no edit is known
    /// to be lost, an input may rather be lost than replaced: then all must be gone.
    fn jobs_of(&self, id: TableId, listed: &BTreeSet<FileNumber>, is_sound: bool) -> BTreeMap<&[FileNumber], Job> {
        let mut jobs: BTreeMap<&[FileNumber], Job> = BTreeMap::new();
        for (number, birth) in self.births_of(id) {
            let Birth::Compacted { level, place, inputs } = birth else { continue };
            let is_running = inputs.iter().all(|input| listed.contains(input)) && !inputs.is_empty();
            if is_running && !listed.contains(&number) {
                let new = || Job { level: *level, place: *place, outputs: Vec::new() };
                jobs.entry(inputs).or_insert_with(new).outputs.push(number);
            }
        }
        let failed = failed_jobs(&jobs);
        jobs.retain(|inputs, _| match is_sound {
            _ if failed.contains(inputs) => false,
            true => inputs.iter().all(|input| !self.is_there(*input)),
            false => inputs.iter().any(|input| !self.is_there(*input)),
        });
        jobs
    }

    /// What the last try of a job made; ascending. Of one try no files overlap in a column group; an earlier one, which
    /// failed, had the same to write.
    fn last_try_of(&self, job: &Job, edits: u64) -> Vec<Arc<FileMeta>> {
        let mut made: Vec<Arc<FileMeta>> = Vec::new();
        for meta in job.outputs.iter().rev().filter_map(|number| self.meta(*number, None, None, edits)) {
            let range = meta.range();
            if made.iter().any(|newer| newer.group == meta.group && newer.overlaps_range(&range)) {
                break;
            }
            made.push(meta);
        }
        made.reverse();
        made
    }

    /// Puts outputs where their inputs were, or above all that is at their level.
    fn put_outputs(&self, job: &Job, edits: u64, drafts: &mut Vec<Draft>) {
        let mut made: Vec<Draft> = Vec::new();
        for meta in self.last_try_of(job, edits) {
            match made.iter_mut().find(|draft| job.level > 0 && draft.group == meta.group) {
                Some(draft) => draft.files.push((meta.number, Some(meta))),
                // At level 0 later ones are newer.
                None => made.insert(
                    0,
                    Draft { level: job.level, group: meta.group.clone(), files: vec![(meta.number, Some(meta))] },
                ),
            }
        }
        for draft in &mut made {
            let first_key = |meta: &Option<Arc<FileMeta>>| meta.as_ref().map(|meta| meta.smallest.clone());
            draft.files.sort_by_cached_key(|(_, meta)| first_key(meta));
        }
        let replaced = match job.place {
            RunPlace::InPlaceOf(number) => {
                drafts.iter().position(|draft| draft.files.iter().any(|(listed, _)| *listed == number))
            }
            RunPlace::Newest | RunPlace::Sorted | RunPlace::Inserted => None,
        };
        let at = replaced.unwrap_or_else(|| drafts.partition_point(|draft| draft.level < job.level));
        drafts.splice(at..at, made);
    }

    /// Step 5.
    fn gone_of(&self, drafts: &[Draft], up_to: SequenceNumber) -> Vec<GoneFile> {
        let mut gone = Vec::new();
        for draft in drafts {
            for (number, _) in draft.files.iter().filter(|(_, meta)| meta.is_none()) {
                let error = match self.faults.get(number) {
                    Some(error) => error.duplicate(),
                    None => Error::corruption("a file is missing that another one lists")
                        .in_file(self.directory.join(FileKind::Sst.name(*number)))
                        .at(0)
                        .expected("a file", if self.foreign.contains(number) { "another database's" } else { "none" }),
                };
                gone.push(GoneFile { level: draft.level, group: draft.group.clone(), up_to, error });
            }
        }
        gone
    }
}

/// The inputs of jobs that share some of them with a job whose outputs are newer. A file is an input of one job at a
/// time, and of no other once that has ended well.
fn failed_jobs<'f>(jobs: &BTreeMap<&'f [FileNumber], Job>) -> BTreeSet<&'f [FileNumber]> {
    let mut newest: BTreeMap<FileNumber, Option<FileNumber>> = BTreeMap::new();
    for (inputs, job) in jobs {
        for input in *inputs {
            let newest = newest.entry(*input).or_default();
            *newest = (*newest).max(job.newest());
        }
    }
    let has_later = |input: &FileNumber, own: Option<FileNumber>| newest.get(input).is_some_and(|newest| *newest > own);
    let failed = jobs.iter().filter(|(inputs, job)| inputs.iter().any(|input| has_later(input, job.newest())));
    failed.map(|(inputs, _)| *inputs).collect()
}

/// What the manifest lists of a table.
fn known_list(version: &Version, oldest_log: FileNumber) -> Listing {
    let mut drafts = Vec::new();
    for (level, of_level) in version.levels.iter().enumerate() {
        for run in &of_level.runs {
            let files = run.files.iter().map(|file| (file.number, Some(file.clone()))).collect();
            drafts.push(Draft { level, group: run.group().cloned(), files });
        }
    }
    let rounds = version.rounds.iter().map(|round| Round { appending: None, deletion: None, ..round.clone() });
    Listing { drafts, rounds: rounds.collect(), oldest_log }
}

/// The levels that runs make, which come level by level.
fn levels_of(drafts: Vec<Draft>) -> Vec<Level> {
    let mut levels: Vec<Level> = Vec::new();
    for Draft { level, files, .. } in drafts {
        let files: Vec<_> = files.into_iter().filter_map(|(_, meta)| meta).collect();
        if !files.is_empty() {
            if levels.len() <= level {
                levels.resize(level + 1, Level::default());
            }
            levels[level].runs.push(Arc::new(Run { files }));
        }
    }
    levels
}

/// Takes all files out of indexes; and those out whose table is not there.
fn empty_indexes(pieced: &mut Pieced) -> Result<()> {
    let mut orphans = Vec::new();
    for (id, table) in &pieced.state.tables {
        let definition = TableDefinition::decode(&table.record.definition)?;
        if let Some(index) = definition.index {
            orphans.push((*id, !pieced.state.tables.contains_key(&index.table)));
        }
    }
    for (id, is_orphan) in orphans {
        let Some(table) = pieced.state.tables.remove(&id) else { continue };
        if is_orphan {
            pieced.dropped_indexes.push(table.record.name.clone());
        } else {
            pieced.state.tables.insert(id, TableState { version: Arc::default(), ..table });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use mycelium_vfs::MemoryDisk;

    use super::*;

    /// Two copies of a database that went on by themselves say so. What was made of it could not be read.
    #[test]
    fn two_tables_of_one_name_were_saved() {
        let disk = MemoryDisk::new();
        disk.create_directory(Path::new("/db")).unwrap();
        let mut statements = Statements::read(&disk, Path::new("/db"), 0).unwrap();
        for id in 0..2 {
            // Of version 1, with tables 0 and 1, of which it describes its own.
            let head = [1, 5, 9, 0, 2, 1, 0, 2];
            let table = [1, id, 1, b'x', 0, 0];
            let (birth, lists) = ([2], [0; 3]);
            let origin = Origin::decode(&[&head[..], &table, &birth, &lists].concat()).unwrap();
            statements.note(u64::from(id) + 7, origin);
        }
        let error = statements.complete(None, false).err().unwrap();
        assert!(error.is_corruption() && error.to_string().contains("two tables"), "{error}");
    }
}
