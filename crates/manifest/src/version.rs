//! A table's files by level and run: lookup, editing and the invariants.
//!
//! Levels go from 0 (youngest) down. A level holds runs, newest first; a run is a list of files of one column group in
//! key order that do not overlap. Level 0 has one file per run; a leveled level has at most one run per group; a tiered
//! level several, a two-phase level up to two per group, whose [`Round`] says what they are. Runs of groups that share
//! no column have no order among them. Beside the levels lie the files of the compaction buffer, in the rounds.
//!
//! Invariants, checked by [`Version::check`]:
//! 1. A file's smallest key is not above its largest, and it holds some key; its sequence range is not inverted.
//! 2. The files of a run hold the same column group, are in key order and do not overlap; no run is empty; level 0 has
//!    one file per run.
//! 3. No file number occurs twice in the levels.
//! 4. Age: of two versions of one key the newer lies in the younger run. What the manifest can prove of it: where two
//!    files of a common column share a fence key, both hold an entry for it. So the file in the younger run must not
//!    lie wholly before the other in sequence numbers. (Files that merely overlap may have any sequence numbers.)

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use mycelium_base::limits::MAX_LEVELS;
use mycelium_base::{Error, ErrorKind, FileNumber, Group, MAX_SEQUENCE_NUMBER, Result, TableId};

use crate::edit::{AddedColumn, AddedFile, DroppedColumn, RunPlace, VersionEdit};
use crate::file_meta::{FileMeta, KeyRange};
use crate::round::Round;

/// Files in key order that do not overlap.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Run {
    /// In key order.
    pub files: Vec<Arc<FileMeta>>,
}

impl Run {
    /// The column group that all files hold; `None` is whole rows.
    pub fn group(&self) -> Option<&Arc<Group>> {
        self.files.first().and_then(|file| file.group.as_ref())
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.size).sum()
    }

    /// The files that share a key with `range`, in key order. O(log files).
    pub fn overlapping(&self, range: &KeyRange) -> &[Arc<FileMeta>] {
        let first = self.lower_bound(&range.smallest);
        let count = self.files[first..].partition_point(|f| !range.ends_before(&f.smallest));
        &self.files[first..first + count]
    }

    /// The index of the first file that does not end before `key`. O(log files).
    pub fn lower_bound(&self, key: &[u8]) -> usize {
        self.files.partition_point(|f| f.ends_before(key))
    }
}

/// The runs of one level, newest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Level {
    /// Newest first, none empty.
    pub runs: Vec<Arc<Run>>,
}

impl Level {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|r| r.bytes()).sum()
    }

    /// Number of files.
    pub fn file_count(&self) -> usize {
        self.runs.iter().map(|r| r.files.len()).sum()
    }

    /// Whether there are no files.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The most files that a key lies in: what a reader may have to look into. Many runs that lie apart, as a bulk load
    /// leaves them, are as good as one. O(files log files).
    pub fn depth(&self) -> usize {
        // At one key a file ends after others have begun, unless that key is not in it.
        let mut borders: Vec<(&[u8], u8)> = Vec::with_capacity(2 * self.file_count());
        for file in self.runs.iter().flat_map(|run| &run.files) {
            borders.push((&file.smallest, 1));
            borders.push((&file.largest, if file.largest_exclusive { 0 } else { 2 }));
        }
        borders.sort_unstable();
        let (mut depth, mut deepest) = (0_usize, 0);
        for (_, border) in borders {
            // A forged file may end before it begins.
            depth = if border == 1 { depth + 1 } else { depth.saturating_sub(1) };
            deepest = deepest.max(depth);
        }
        deepest
    }

    /// All files, run by run from the newest.
    pub fn files(&self) -> impl Iterator<Item = &Arc<FileMeta>> {
        self.runs.iter().flat_map(|r| &r.files)
    }

    /// The files that share a key with `range`, run by run from the newest.
    pub fn overlapping<'a>(&'a self, range: &'a KeyRange) -> impl Iterator<Item = &'a Arc<FileMeta>> {
        self.runs.iter().flat_map(move |r| r.overlapping(range))
    }
}

/// All files of one table at one moment. Immutable; shared as `Arc<Version>`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Version {
    /// Level 0 first; at most [`MAX_LEVELS`]; levels past the end are empty.
    pub levels: Vec<Level>,
    /// The rounds of two-phase levels, one for each column group that has files there and of which there is something
    /// to say.
    pub rounds: Vec<Round>,
}

static NO_FILES: Level = Level { runs: Vec::new() };

impl Version {
    /// A version without files.
    pub fn new() -> Self {
        Self::default()
    }

    /// The level, an empty one past the end.
    pub fn level(&self, level: usize) -> &Level {
        self.levels.get(level).unwrap_or(&NO_FILES)
    }

    /// Bytes in a level.
    pub fn level_bytes(&self, level: usize) -> u64 {
        self.level(level).bytes()
    }

    /// Bytes in all levels.
    pub fn total_bytes(&self) -> u64 {
        self.levels.iter().map(Level::bytes).sum()
    }

    /// Whether some file, of the compaction buffer too, holds a column group instead of whole rows. O(runs + segments).
    pub fn has_groups(&self) -> bool {
        self.levels.iter().flat_map(|level| &level.runs).any(|run| run.group().is_some())
            || self.rounds.iter().flat_map(Round::files).any(|file| file.group.is_some())
    }

    /// The cut keys of a level within `range`, ascending: the fewest keys such that of any two files of a run that
    /// follow each other one ends before such a key and the next begins at it or after it. O(files log files).
    pub fn cut_keys(&self, level: usize, range: &KeyRange) -> Vec<Vec<u8>> {
        let runs = self.level(level).runs.iter().map(|run| run.overlapping(range));
        let mut borders: Vec<(&FileMeta, &[u8])> =
            runs.flat_map(|files| files.windows(2).map(|pair| (&*pair[0], pair[1].smallest.as_slice()))).collect();
        borders.sort_by_key(|(_, next)| *next);
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for (before, next) in borders {
            // Keys ascend: if the last one does not lie between the two files, none does.
            if !keys.last().is_some_and(|key| before.ends_before(key)) {
                keys.push(next.to_vec());
            }
        }
        keys
    }

    /// The round of a column group of a level, if there is something to say of it.
    pub fn round(&self, level: usize, group: Option<&Arc<Group>>) -> Option<&Round> {
        self.rounds.iter().find(|round| round.is_of(level, group))
    }

    /// The insertion part of a column group of a two-phase level: its newest run that is no deletion part. Of another
    /// level its newest run.
    pub fn insertion_part(&self, level: usize, group: Option<&Arc<Group>>) -> Option<&Arc<Run>> {
        let mut runs = self.level(level).runs.iter().filter(|run| run.group() == group);
        let newest = runs.next()?;
        let is_alone = runs.next().is_none();
        let is_draining = self.round(level, group).is_some_and(|round| round.is_draining);
        (!(is_alone && is_draining)).then_some(newest)
    }

    /// The deletion part of a column group of a two-phase level: its oldest run while the round has one.
    pub fn deletion_part(&self, level: usize, group: Option<&Arc<Group>>) -> Option<&Arc<Run>> {
        self.round(level, group).filter(|round| round.is_draining)?;
        self.level(level).runs.iter().rfind(|run| run.group() == group)
    }

    /// The files that are in the compaction buffer alone, each once. O(files).
    pub fn buffered_files(&self) -> impl Iterator<Item = &Arc<FileMeta>> {
        let mut known: HashSet<FileNumber> = match self.rounds.is_empty() {
            true => HashSet::new(),
            false => self.files().map(|(_, _, file)| file.number).collect(),
        };
        self.rounds.iter().flat_map(Round::files).filter(move |file| known.insert(file.number))
    }

    /// Number of files in all levels.
    pub fn file_count(&self) -> usize {
        self.levels.iter().map(Level::file_count).sum()
    }

    /// The deepest level that has files.
    pub fn last_level(&self) -> Option<usize> {
        self.levels.iter().rposition(|l| !l.is_empty())
    }

    /// All files as (level, run index, file), youngest run first.
    pub fn files(&self) -> impl Iterator<Item = (usize, usize, &Arc<FileMeta>)> {
        self.levels.iter().enumerate().flat_map(|(level, l)| {
            l.runs.iter().enumerate().flat_map(move |(run, r)| r.files.iter().map(move |f| (level, run, f)))
        })
    }

    /// Where the file with this number is: (level, run index, file). O(files).
    pub fn find(&self, number: FileNumber) -> Option<(usize, usize, &Arc<FileMeta>)> {
        self.files().find(|(_, _, f)| f.number == number)
    }

    /// The same files, of a table that has got another column since they were written. O(files).
    pub fn with_column(&self, added: &AddedColumn) -> Version {
        self.regrouped(|group| Some(added.widen(group)))
    }

    /// The same files, of a table that has a column less since they were written; of no two groups may become one.
    /// O(files).
    pub fn without_column(&self, dropped: &DroppedColumn) -> Version {
        self.regrouped(|group| dropped.narrow(group))
    }

    /// The same files, where those of a group (whole rows: `None`) are of what it becomes.
    fn regrouped(&self, becomes: impl Fn(Option<&Group>) -> Option<Group>) -> Version {
        let mut known: HashMap<Option<Arc<Group>>, Option<Arc<Group>>> = HashMap::new();
        let mut regroup = |group: &Option<Arc<Group>>| {
            let after = known.entry(group.clone()).or_insert_with(|| becomes(group.as_deref()).map(Arc::new));
            after.clone()
        };
        let mut files: HashMap<FileNumber, Arc<FileMeta>> = HashMap::new();
        for file in self.files().map(|(_, _, file)| file).chain(self.buffered_files()) {
            let after = FileMeta { group: regroup(&file.group), ..FileMeta::clone(file) };
            files.insert(file.number, Arc::new(after));
        }
        let after = |file: &Arc<FileMeta>| files.get(&file.number).unwrap_or(file).clone();
        let mut next = self.clone();
        for run in next.levels.iter_mut().flat_map(|level| &mut level.runs) {
            *run = Arc::new(Run { files: run.files.iter().map(after).collect() });
        }
        for round in &mut next.rounds {
            round.group = regroup(&round.group);
            for segment in round.appending.iter_mut().chain(&mut round.deletion).flat_map(|part| &mut part.files) {
                segment.file = after(&segment.file);
            }
        }
        next
    }

    /// The next version: the edit's removals and additions for `table` (its other tables are ignored).
    ///
    /// Fails with [`VersionError`] (as `ErrorKind::InvalidArgument`) and changes nothing if a removed file is not
    /// there, an added one is there already, or a run it touches would be out of order. O(files of the touched levels).
    pub fn apply(&self, table: TableId, edit: &VersionEdit) -> Result<Version> {
        Ok(self.try_apply(table, edit)?)
    }

    /// [`Version::apply`] with the typed error.
    pub fn try_apply(&self, table: TableId, edit: &VersionEdit) -> std::result::Result<Version, VersionError> {
        let added: Vec<&AddedFile> = edit.added_files.iter().filter(|a| a.table == table).collect();
        let mut removed: HashMap<usize, HashSet<FileNumber>> = HashMap::new();
        for gone in edit.removed_files.iter().filter(|r| r.table == table) {
            if !removed.entry(gone.level).or_default().insert(gone.number) {
                return Err(VersionError::MissingFile { level: gone.level, file: gone.number });
            }
        }
        let mut touched: Vec<usize> = added.iter().map(|a| a.level).chain(removed.keys().copied()).collect();
        touched.sort_unstable();
        touched.dedup();
        let mut next = self.clone();
        for level in touched {
            if level >= MAX_LEVELS {
                return Err(VersionError::LevelOutOfRange { level });
            }
            if next.levels.len() <= level {
                next.levels.resize(level + 1, Level::default());
            }
            let gone = removed.remove(&level).unwrap_or_default();
            next.levels[level] = edit_level(self, level, &added, gone)?;
        }
        next.rounds = self.edit_rounds(table, edit, &next)?;
        while next.levels.last().is_some_and(Level::is_empty) {
            next.levels.pop();
        }
        next.check_each_once(&added)?;
        Ok(next)
    }

    /// The rounds after an edit that leads to the levels of `next`.
    fn edit_rounds(
        &self,
        table: TableId,
        edit: &VersionEdit,
        next: &Version,
    ) -> std::result::Result<Vec<Round>, VersionError> {
        let changed: Vec<_> = edit.rounds.iter().filter(|changed| changed.table == table).map(|c| &c.round).collect();
        if self.rounds.is_empty() && changed.is_empty() {
            return Ok(Vec::new());
        }
        let runs = |version: &Version, level: usize, group: Option<&Arc<Group>>| -> Vec<Arc<Run>> {
            version.level(level).runs.iter().filter(|run| run.group() == group).cloned().collect()
        };
        let mut rounds = self.rounds.clone();
        for round in &mut rounds {
            let group = round.group.as_ref();
            if runs(self, round.level, group) != runs(next, round.level, group) {
                (round.appending, round.deletion) = (None, None);
            }
        }
        for round in changed {
            let known = |number: &FileNumber| self.file_of_edit(table, edit, *number);
            let round = round.try_map(&mut |number| {
                known(number).ok_or(VersionError::MissingFile { level: round.level, file: *number })
            })?;
            match rounds.iter_mut().find(|known| known.is_of(round.level, round.group.as_ref())) {
                Some(known) => *known = round,
                None => rounds.push(round),
            }
        }
        rounds.retain(|round| !round.is_initial() && !runs(next, round.level, round.group.as_ref()).is_empty());
        Ok(rounds)
    }

    /// A file of this version or of an edit of it.
    fn file_of_edit(&self, table: TableId, edit: &VersionEdit, number: FileNumber) -> Option<Arc<FileMeta>> {
        let added = edit.added_files.iter().filter(|added| added.table == table).map(|added| &added.file);
        let buffered = edit.buffered_files.iter().filter(|(of, _)| *of == table).map(|(_, file)| file);
        let held = self.rounds.iter().flat_map(Round::files).chain(self.files().map(|(_, _, file)| file));
        added.chain(buffered).chain(held).find(|file| file.number == number).cloned()
    }

    /// Checks every invariant of the module's list. O(files log files).
    pub fn check(&self) -> std::result::Result<(), VersionError> {
        self.check_places()?;
        self.check_age()
    }

    /// As [`Version::check`], but for age: what holds of derived tables too, whose entries may overtake each other.
    pub(crate) fn check_places(&self) -> std::result::Result<(), VersionError> {
        if self.levels.len() > MAX_LEVELS {
            return Err(VersionError::LevelOutOfRange { level: self.levels.len() - 1 });
        }
        for (level, l) in self.levels.iter().enumerate() {
            check_level(level, l)?;
        }
        self.check_unique()
    }

    /// Whether the files of an edit stand in one place each. O(files log added).
    fn check_each_once(&self, added: &[&AddedFile]) -> std::result::Result<(), VersionError> {
        if added.is_empty() {
            return Ok(());
        }
        let mut numbers: Vec<FileNumber> = added.iter().map(|added| added.file.number).collect();
        numbers.sort_unstable();
        let mut seen = vec![false; numbers.len()];
        for (level, _, file) in self.files() {
            if let Ok(at) = numbers.binary_search(&file.number)
                && std::mem::replace(&mut seen[at], true)
            {
                return Err(VersionError::DuplicateFile { level, file: file.number });
            }
        }
        Ok(())
    }

    fn check_unique(&self) -> std::result::Result<(), VersionError> {
        let mut seen = HashSet::with_capacity(self.file_count());
        for (level, _, file) in self.files() {
            if !seen.insert(file.number) {
                return Err(VersionError::DuplicateFile { level, file: file.number });
            }
        }
        Ok(())
    }

    /// Invariant 4: runs from the youngest to the oldest; per fence key the oldest sequence number a younger run can
    /// at best have for it.
    fn check_age(&self) -> std::result::Result<(), VersionError> {
        let mut younger: HashMap<&[u8], Vec<&FileMeta>> = HashMap::new();
        for (level, l) in self.levels.iter().enumerate() {
            for run in &l.runs {
                for file in &run.files {
                    check_younger(level, file, &younger)?;
                }
                for file in &run.files {
                    for key in fence_keys(file) {
                        remember_younger(younger.entry(key).or_default(), file);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Fails if a file that lies above `file`, and shares a fence key and a column with it, is wholly older.
fn check_younger(
    level: usize,
    file: &FileMeta,
    younger: &HashMap<&[u8], Vec<&FileMeta>>,
) -> std::result::Result<(), VersionError> {
    let above = fence_keys(file).filter_map(|key| younger.get(key)).flatten();
    match above.copied().find(|above| above.max_sequence < file.min_sequence && above.shares_columns(file)) {
        None => Ok(()),
        Some(above) => Err(VersionError::OlderAbove {
            level,
            file: file.number,
            above: above.number,
            above_max_sequence: above.max_sequence,
            min_sequence: file.min_sequence,
        }),
    }
}

/// Keeps of the files above, for each column group, the one that is oldest.
fn remember_younger<'a>(above: &mut Vec<&'a FileMeta>, file: &'a FileMeta) {
    match above.iter_mut().find(|known| known.group == file.group) {
        Some(known) if file.max_sequence < known.max_sequence => *known = file,
        Some(_) => {}
        None => above.push(file),
    }
}

/// The keys for which the file certainly holds an entry (or a range delete that covers them).
fn fence_keys(file: &FileMeta) -> impl Iterator<Item = &[u8]> {
    let largest = (!file.largest_exclusive).then_some(file.largest.as_slice());
    std::iter::once(file.smallest.as_slice()).chain(largest)
}

/// A level's runs with some files taken out and others put in.
fn edit_level(
    version: &Version,
    level: usize,
    added: &[&AddedFile],
    mut gone: HashSet<FileNumber>,
) -> std::result::Result<Level, VersionError> {
    let old = version.level(level);
    let mut places = new_runs(version, level, added, &gone)?;
    let mut runs: Vec<Arc<Run>> = Vec::with_capacity(old.runs.len() + 1);
    runs.extend(places.newest.into_iter().rev());
    for (index, run) in old.runs.iter().enumerate() {
        if let Some(before) = places.before.iter().find(|(i, _)| *i == index) {
            runs.extend(before.1.iter().rev().cloned());
        }
        let mut kept: Vec<Arc<FileMeta>> = run.files.iter().filter(|f| !gone.remove(&f.number)).cloned().collect();
        let sorted = take_group(&mut places.sorted, run.group());
        if kept.len() == run.files.len() && sorted.is_empty() {
            runs.push(run.clone());
            continue;
        }
        kept.extend(sorted);
        runs.extend(sorted_run(kept));
    }
    while let Some(first) = places.sorted.first() {
        let group = first.group.clone();
        runs.extend(sorted_run(take_group(&mut places.sorted, group.as_ref())));
    }
    if let Some(&file) = gone.iter().min() {
        return Err(VersionError::MissingFile { level, file });
    }
    let level_now = Level { runs };
    check_level(level, &level_now)?;
    Ok(level_now)
}

/// Takes the files of a column group out of `files`.
fn take_group(files: &mut Vec<Arc<FileMeta>>, group: Option<&Arc<Group>>) -> Vec<Arc<FileMeta>> {
    files.extract_if(.., |file| file.group.as_ref() == group).collect()
}

/// A run of these files in key order, if there are any.
fn sorted_run(mut files: Vec<Arc<FileMeta>>) -> Option<Arc<Run>> {
    files.sort_by(|a, b| a.smallest.cmp(&b.smallest));
    (!files.is_empty()).then(|| Arc::new(Run { files }))
}

/// The files an edit adds to one level, by place.
#[derive(Default)]
struct Places {
    sorted: Vec<Arc<FileMeta>>,
    /// Oldest first.
    newest: Vec<Arc<Run>>,
    /// (index of the run they go before, runs oldest first).
    before: Vec<(usize, Vec<Arc<Run>>)>,
}

fn new_runs(
    version: &Version,
    level: usize,
    added: &[&AddedFile],
    gone: &HashSet<FileNumber>,
) -> std::result::Result<Places, VersionError> {
    let old = version.level(level);
    let mut places = Places::default();
    for a in added.iter().filter(|a| a.level == level) {
        let runs = match a.place {
            RunPlace::Sorted if level == 0 => return Err(VersionError::SortedPlace { level, runs: old.runs.len() }),
            RunPlace::Sorted if runs_of(old, a.file.group.as_ref()) > 1 => {
                // The level became tiered after the edit was planned. Its files can lie above all that they do not
                // overlap.
                let range = a.file.range();
                let mut left = old.overlapping(&range).filter(|file| !gone.contains(&file.number));
                if left.any(|file| file.shares_columns(&a.file)) {
                    return Err(VersionError::SortedPlace { level, runs: runs_of(old, a.file.group.as_ref()) });
                }
                &mut places.newest
            }
            RunPlace::Inserted if level == 0 => return Err(VersionError::SortedPlace { level, runs: old.runs.len() }),
            RunPlace::Inserted if version.insertion_part(level, a.file.group.as_ref()).is_none() => &mut places.newest,
            RunPlace::Sorted | RunPlace::Inserted => {
                places.sorted.push(a.file.clone());
                continue;
            }
            RunPlace::Newest => &mut places.newest,
            RunPlace::InPlaceOf(number) => {
                let Some(index) = old.runs.iter().position(|r| r.files.iter().any(|f| f.number == number)) else {
                    return Err(VersionError::MissingFile { level, file: number });
                };
                let slot = match places.before.iter().position(|(i, _)| *i == index) {
                    Some(slot) => slot,
                    None => {
                        places.before.push((index, Vec::new()));
                        places.before.len() - 1
                    }
                };
                &mut places.before[slot].1
            }
        };
        match runs.iter_mut().find(|run| level > 0 && run.group() == a.file.group.as_ref()) {
            Some(run) => Arc::make_mut(run).files.push(a.file.clone()),
            None => runs.push(Arc::new(Run { files: vec![a.file.clone()] })),
        }
    }
    for run in places.newest.iter_mut().chain(places.before.iter_mut().flat_map(|(_, runs)| runs)) {
        if run.files.len() > 1 {
            Arc::make_mut(run).files.sort_by(|a, b| a.smallest.cmp(&b.smallest));
        }
    }
    Ok(places)
}

/// The number of runs of a column group in a level.
fn runs_of(level: &Level, group: Option<&Arc<Group>>) -> usize {
    level.runs.iter().filter(|run| run.group() == group).count()
}

/// Invariants 1 and 2 of one level.
fn check_level(level: usize, l: &Level) -> std::result::Result<(), VersionError> {
    for (run, r) in l.runs.iter().enumerate() {
        if r.files.is_empty() {
            return Err(VersionError::EmptyRun { level, run });
        }
        if level == 0 && r.files.len() > 1 {
            return Err(VersionError::Level0Run { run, files: r.files.len() });
        }
        for file in &r.files {
            check_file(level, file)?;
            if file.group.as_ref() != r.group() {
                return Err(VersionError::MixedGroups { level, run, file: file.number });
            }
        }
        for pair in r.files.windows(2) {
            if !pair[0].is_before(&pair[1]) {
                return Err(VersionError::Overlap { level, run, left: pair[0].number, right: pair[1].number });
            }
        }
    }
    Ok(())
}

fn check_file(level: usize, file: &FileMeta) -> std::result::Result<(), VersionError> {
    if file.ends_before(&file.smallest) {
        return Err(VersionError::InvertedFence { level, file: file.number });
    }
    if file.min_sequence > file.max_sequence || file.max_sequence > MAX_SEQUENCE_NUMBER {
        return Err(VersionError::InvertedSequence {
            level,
            file: file.number,
            min: file.min_sequence,
            max: file.max_sequence,
        });
    }
    Ok(())
}

/// A broken invariant of a version, or an edit that does not fit it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VersionError {
    /// A level beyond the last possible one.
    LevelOutOfRange {
        /// The level.
        level: usize,
    },
    /// A file to be removed, or to be replaced, is not in the level.
    MissingFile {
        /// The level.
        level: usize,
        /// The file.
        file: FileNumber,
    },
    /// A file occurs twice.
    DuplicateFile {
        /// The level of the second occurrence.
        level: usize,
        /// The file.
        file: FileNumber,
    },
    /// A run without files.
    EmptyRun {
        /// The level.
        level: usize,
        /// The run's index, 0 the newest.
        run: usize,
    },
    /// A level-0 run of several files.
    Level0Run {
        /// The run's index, 0 the newest.
        run: usize,
        /// How many files it has.
        files: usize,
    },
    /// A file was to be sorted into a level that has several runs of its column group, or into level 0.
    SortedPlace {
        /// The level.
        level: usize,
        /// How many runs it has.
        runs: usize,
    },
    /// A file of a run that holds another column group than the run's first file.
    MixedGroups {
        /// The level.
        level: usize,
        /// The run's index, 0 the newest.
        run: usize,
        /// The file.
        file: FileNumber,
    },
    /// Two neighbours of a run overlap or are in the wrong order.
    Overlap {
        /// The level.
        level: usize,
        /// The run's index, 0 the newest.
        run: usize,
        /// The file on the left.
        left: FileNumber,
        /// The file on the right.
        right: FileNumber,
    },
    /// A file's range holds no key.
    InvertedFence {
        /// The level.
        level: usize,
        /// The file.
        file: FileNumber,
    },
    /// A file's oldest sequence number is above its newest, or that is out of range.
    InvertedSequence {
        /// The level.
        level: usize,
        /// The file.
        file: FileNumber,
        /// Its oldest sequence number.
        min: u64,
        /// Its newest sequence number.
        max: u64,
    },
    /// A file that holds only older entries than another lies above it, and both hold an entry for one key.
    OlderAbove {
        /// The level of the lower file.
        level: usize,
        /// The lower file.
        file: FileNumber,
        /// The file above.
        above: FileNumber,
        /// The newest sequence number above.
        above_max_sequence: u64,
        /// The oldest sequence number of the lower file.
        min_sequence: u64,
    },
}

impl fmt::Display for VersionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LevelOutOfRange { level } => write!(f, "level {level} is beyond the last possible one"),
            Self::MissingFile { level, file } => write!(f, "file {file} is not in level {level}"),
            Self::DuplicateFile { level, file } => write!(f, "file {file} occurs a second time, in level {level}"),
            Self::EmptyRun { level, run } => write!(f, "run {run} of level {level} has no files"),
            Self::Level0Run { run, files } => write!(f, "run {run} of level 0 has {files} files instead of one"),
            Self::SortedPlace { level, runs } => write!(f, "cannot sort a file into level {level} with {runs} runs"),
            Self::MixedGroups { level, run, file } => {
                write!(f, "file {file} of level {level}, run {run}, holds another column group than the run")
            }
            Self::Overlap { level, run, left, right } => {
                write!(f, "files {left} and {right} of level {level}, run {run}, overlap or are out of order")
            }
            Self::InvertedFence { level, file } => write!(f, "the key range of file {file} in level {level} is empty"),
            Self::InvertedSequence { level, file, min, max } => {
                write!(f, "the sequence numbers {min}-{max} of file {file} in level {level} are no range")
            }
            Self::OlderAbove { level, file, above, above_max_sequence, min_sequence } => write!(
                f,
                "file {above} (up to #{above_max_sequence}) lies above file {file} in level {level} (from \
                 #{min_sequence}), is older, and shares a key with it"
            ),
        }
    }
}

impl std::error::Error for VersionError {}

impl From<VersionError> for Error {
    fn from(error: VersionError) -> Self {
        Error::new(ErrorKind::InvalidArgument, format!("version edit does not fit: {error}")).caused_by(error)
    }
}
