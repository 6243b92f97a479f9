//! The files of one table, open for reading: what a [`Version`] is to the manifest.
//!
//! A tree is immutable. A file that no version names any more is removed from the disk when the last tree that holds it
//! is dropped, so that iterators keep what they read.

mod file;
mod segments;
mod verdicts;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use mycelium_base::{ColumnSet, Error, FileNumber, Group, ReadCounters, Result};
use mycelium_encoding::FragmentFormat;
use mycelium_encoding::page::DistinctSketch;
use mycelium_manifest::{FileMeta, Run, Segments, Version};
use mycelium_merge::MergePlan;
use mycelium_sst::{FenceList, FenceLists, Fences, FileFilters, ScanPrefix, SortedFiles, SstFile};

use crate::shape::TableFormats;
pub(crate) use file::{Graveyard, OpenFile, PATIENCE, SegmentUse};
pub(crate) use segments::{OpenSegment, OpenSegments};

/// A sorted, non-overlapping list of open files. The next tree shares what it has of a run that is still there.
#[derive(Clone, Debug)]
pub(crate) struct OpenRun {
    /// As the manifest has it.
    run: Arc<Run>,
    pub(crate) files: Arc<[Arc<OpenFile>]>,
    /// The same files, in the form that cursors share.
    pub(crate) ssts: Arc<SortedFiles>,
    /// Which of the tree's formats the files have.
    pub(crate) format: usize,
    /// The segments of the compaction buffer that stand for it.
    pub(crate) buffer: Option<Arc<OpenSegments>>,
    /// Of its files, each with those before it.
    bytes: Arc<[u64]>,
    /// Of all its files.
    entries: u64,
    /// Of many files.
    fences: Option<Arc<FenceList<FileFilters>>>,
}

/// The fences of a run of so many files are made once for all trees that have it.
const MANY_FILES: usize = 16;

impl OpenRun {
    fn new(run: &Arc<Run>, format: usize, open: impl FnMut(&Arc<FileMeta>) -> Result<Arc<OpenFile>>) -> Result<Self> {
        let files: Arc<[Arc<OpenFile>]> = run.files.iter().map(open).collect::<Result<_>>()?;
        let ssts: Vec<_> = files.iter().map(|file| file.sst.clone()).collect();
        let fences = (files.len() >= MANY_FILES).then(|| Arc::new(FenceList::new(fenced(&ssts))));
        let ssts = Arc::new(SortedFiles::from(ssts));
        let sizes = files.iter().scan(0, |bytes, file| {
            *bytes += file.meta.size;
            Some(*bytes)
        });
        let (bytes, entries) = (sizes.collect(), files.iter().map(|file| file.meta.entry_count).sum());
        Ok(Self { run: run.clone(), files, ssts, format, buffer: None, bytes, entries, fences })
    }

    /// The same, whose place among the formats is another, and for which no segments stand.
    fn alone(&self, format: usize) -> Self {
        Self { format, buffer: None, ..self.clone() }
    }

    /// The open file of a meta, if the run has it. O(log files).
    pub(crate) fn file(&self, meta: &FileMeta) -> Option<&Arc<OpenFile>> {
        let from = self.files.partition_point(|file| file.meta.smallest < meta.smallest);
        self.files[from..].iter().find(|file| file.meta.number == meta.number)
    }

    /// The bytes of these files. O(1).
    pub(crate) fn bytes_of(&self, files: Range<usize>) -> u64 {
        let before = |file: usize| if file == 0 { 0 } else { self.bytes[file - 1] };
        before(files.end) - before(files.start)
    }

    /// The files that may hold keys of `[lower, upper)`.
    pub(crate) fn within(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Range<usize> {
        let from = lower.map_or(0, |lower| self.ssts.first_not_before(lower, &(0..self.files.len())));
        let to = upper
            .map_or(self.files.len(), |upper| self.files.partition_point(|file| file.meta.smallest.as_slice() < upper));
        from..to.max(from)
    }

    /// Of these files, those but the ones at either end whose filters rule out that they have keys within the bounds of
    /// a scan. What lies between others has such keys.
    pub(crate) fn without_other_prefixes(
        &self,
        files: Range<usize>,
        prefix: &mut ScanPrefix<'_>,
        counters: &mut ReadCounters,
    ) -> Range<usize> {
        let mut is_ruled_out = |file: usize| !self.files[file].sst.may_contain_any(prefix);
        let Range { mut start, mut end } = files;
        while start < end && is_ruled_out(start) {
            start += 1;
        }
        while start + 1 < end && is_ruled_out(end - 1) {
            end -= 1;
        }
        counters.files_skipped_by_prefix += (files.len() - (end - start)) as u64;
        start..end
    }

    /// The number of the file whose key range may hold `key`, and its filters; `fences` are the run's.
    #[inline]
    pub(crate) fn find<'t>(&self, fences: &Fences<'t, FileFilters>, key: &[u8]) -> Option<(usize, &'t FileFilters)> {
        let sst = |at: usize| &self.files[at].sst;
        fences.find(key, |at| sst(at).ends_before(key), |at| sst(at).smallest() > key)
    }
}

/// The levels of one table, each with its runs, newest first.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) version: Arc<Version>,
    pub(crate) levels: Vec<Vec<OpenRun>>,
    /// Of the files of each run, in the order of [`Tree::runs`].
    fences: FenceLists<FileFilters>,
    pub(crate) has_range_deletes: bool,
    /// The formats of runs and memtables, that of whole rows in memtables first; empty for a key-value table.
    pub(crate) formats: Vec<FragmentFormat>,
    /// Whether some place holds something else than whole rows as they are read: column groups, or unmapped values.
    pub(crate) has_groups: bool,
    /// How many rows its entries make; one that stands in several places counts several times.
    rows: f64,
    /// How rows of columns that were asked for are put together.
    merge_plans: ArcSwap<Vec<(ColumnSet, Arc<MergePlan>)>>,
    /// By column of the schema, about how many values there are in columnar files, once that was asked for.
    distinct: OnceLock<Arc<[Option<u64>]>>,
}

/// Sets of columns whose merge plans a tree keeps.
const MERGE_PLANS: usize = 64;

impl Tree {
    /// A tree over `version`; `formats` are those of a typed table; `open` gives the open file of each meta.
    pub(crate) fn new(
        version: Arc<Version>,
        table: Option<&TableFormats>,
        open: impl FnMut(&Arc<FileMeta>) -> Result<Arc<OpenFile>>,
    ) -> Result<Self> {
        Self::made_of(version, table, None, open)
    }

    /// The tree that comes after this one, of the same table: `open` is asked for the files of runs that this one does
    /// not have, and of segments. What lookups found out of those parts of the compaction buffer that stay as they were
    /// is remembered.
    pub(crate) fn succeeded_by(
        &self,
        version: Arc<Version>,
        table: Option<&TableFormats>,
        open: impl FnMut(&Arc<FileMeta>) -> Result<Arc<OpenFile>>,
    ) -> Result<Self> {
        Ok(Self::made_of(version, table, Some(self), open)?.remembering(self))
    }

    fn made_of(
        version: Arc<Version>,
        table: Option<&TableFormats>,
        before: Option<&Self>,
        mut open: impl FnMut(&Arc<FileMeta>) -> Result<Arc<OpenFile>>,
    ) -> Result<Self> {
        let mut formats: Vec<FragmentFormat> = table.iter().map(|table| table.whole_at(0)).collect();
        let mut levels = Vec::with_capacity(version.levels.len());
        for (number, level) in version.levels.iter().enumerate() {
            let mut runs = Vec::with_capacity(level.runs.len());
            for run in &level.runs {
                let format = format_of((number, run), table, &mut formats)?;
                let mut opened = match before.and_then(|before| before.open_run(number, run)) {
                    Some(known) => known.alone(format),
                    None => OpenRun::new(run, format, &mut open)?,
                };
                if let Some(segments) = segments_of(&version, number, run) {
                    let group = run.group().map(|group| &group.columns);
                    let format = |file: &FileMeta| segment_format((file, group), table, &mut formats);
                    opened.buffer = Some(Arc::new(OpenSegments::new(segments, format, &mut open)?));
                }
                runs.push(opened);
            }
            levels.push(runs);
        }
        let has_range_deletes = version.files().any(|(_, _, meta)| meta.range_delete_count > 0);
        let has_groups = version.has_groups() || table.is_some_and(|table| table.maps().is_some());
        let rows = levels.iter().flatten().map(|run: &OpenRun| run.entries as f64 * part_of_row(&formats, run)).sum();
        let fences = fences_of(&levels);
        let (merge_plans, distinct) = Default::default();
        Ok(Self { version, levels, fences, has_range_deletes, formats, has_groups, rows, merge_plans, distinct })
    }

    /// A tree without files, of a table with these formats.
    pub(crate) fn empty(table: Option<&TableFormats>) -> Self {
        Self {
            version: Arc::new(Version::new()),
            levels: Vec::new(),
            fences: FenceLists::default(),
            has_range_deletes: false,
            formats: table.iter().map(|table| table.whole_at(0)).collect(),
            has_groups: table.is_some_and(|table| table.maps().is_some()),
            rows: 0.0,
            merge_plans: ArcSwap::default(),
            distinct: OnceLock::new(),
        }
    }

    fn remembering(mut self, before: &Tree) -> Self {
        let known: Vec<&Arc<OpenSegments>> = before.runs().filter_map(|(_, run)| run.buffer.as_ref()).collect();
        for buffer in self.levels.iter_mut().flatten().filter_map(|run| run.buffer.as_mut()) {
            if let Some(same) = known.iter().find(|known| known.is_same(buffer)) {
                *buffer = Arc::clone(same);
            }
        }
        self
    }

    /// The plan for rows of `columns`, made by `make` when it is first asked for.
    pub(crate) fn merge_plan(
        &self,
        columns: &ColumnSet,
        make: impl FnOnce() -> Result<MergePlan>,
    ) -> Result<Arc<MergePlan>> {
        if let Some((_, plan)) = self.merge_plans.load().iter().find(|(known, _)| known == columns) {
            return Ok(plan.clone());
        }
        let plan = Arc::new(make()?);
        self.merge_plans.rcu(|known| {
            let mut known = Vec::clone(known);
            if known.len() < MERGE_PLANS {
                known.push((columns.clone(), plan.clone()));
            }
            known
        });
        Ok(plan)
    }

    /// About how many different values each of so many columns has in the columnar files: nothing of one that no file
    /// has statistics of. O(files x columns) when it is first asked for.
    pub(crate) fn distinct_estimates(&self, columns: usize) -> Result<Arc<[Option<u64>]>> {
        if let Some(known) = self.distinct.get() {
            return Ok(known.clone());
        }
        // With the entries that have a value.
        let mut sketches: Vec<Option<(DistinctSketch, u64)>> = vec![None; columns];
        for (_, file) in self.files() {
            let statistics = file.sst.column_statistics()?;
            for of_file in statistics.iter().flat_map(|statistics| &statistics.columns) {
                match sketches.get_mut(of_file.column) {
                    Some(Some((sketch, values))) => {
                        sketch.join(&of_file.distinct);
                        *values = values.saturating_add(of_file.values);
                    }
                    Some(none) => *none = Some((of_file.distinct.clone(), of_file.values)),
                    None => {}
                }
            }
        }
        let estimate =
            |of: &Option<(DistinctSketch, u64)>| of.as_ref().map(|(sketch, values)| sketch.estimate(*values));
        let estimates: Arc<[_]> = sketches.iter().map(estimate).collect();
        Ok(self.distinct.get_or_init(|| estimates).clone())
    }

    /// The bytes that a run has of so many neighbouring rows, on average. O(1).
    pub(crate) fn bytes_of_rows(&self, run: &OpenRun, rows: u64) -> usize {
        (run.bytes_of(0..run.files.len()) as f64 * rows as f64 / self.rows.max(1.0)) as usize
    }

    /// All runs with their level, youngest first.
    #[inline]
    pub(crate) fn runs(&self) -> impl DoubleEndedIterator<Item = (usize, &OpenRun)> {
        self.levels.iter().enumerate().flat_map(|(level, runs)| runs.iter().map(move |run| (level, run)))
    }

    /// The same, with the fences of each run for [`OpenRun::find`].
    #[inline]
    pub(crate) fn fenced_runs(&self) -> impl Iterator<Item = ((usize, &OpenRun), Fences<'_, FileFilters>)> {
        self.runs().zip(self.fences.lists())
    }

    /// All files with their level.
    pub(crate) fn files(&self) -> impl Iterator<Item = (usize, &Arc<OpenFile>)> {
        self.levels
            .iter()
            .enumerate()
            .flat_map(|(level, runs)| runs.iter().flat_map(move |run| run.files.iter().map(move |file| (level, file))))
    }

    /// All files, those of the compaction buffer too; one that is in both comes twice.
    pub(crate) fn all_files(&self) -> impl Iterator<Item = &Arc<OpenFile>> {
        self.all_files_by_level().map(|(_, file)| file)
    }

    /// The same with the level that they are in or stand for.
    pub(crate) fn all_files_by_level(&self) -> impl Iterator<Item = (usize, &Arc<OpenFile>)> {
        self.files().chain(self.buffered_files())
    }

    /// The files of the compaction buffer, with the level that they stand for.
    fn buffered_files(&self) -> impl Iterator<Item = (usize, &Arc<OpenFile>)> {
        let parts = self.runs().filter_map(|(level, run)| run.buffer.as_ref().map(|buffer| (level, buffer)));
        parts.flat_map(|(level, buffer)| buffer.files().map(move |file| (level, file)))
    }

    /// The run of a level that the manifest has as `run`.
    fn open_run(&self, level: usize, run: &Arc<Run>) -> Option<&OpenRun> {
        self.levels.get(level)?.iter().find(|known| Arc::ptr_eq(&known.run, run))
    }

    fn has_buffer(&self) -> bool {
        self.runs().any(|(_, run)| run.buffer.is_some())
    }

    /// The files, with their level, that may not be in another tree of the table, `other`, at the same place: those of
    /// runs that are not in it. All, if one of the trees has a compaction buffer.
    fn files_unlike<'t>(
        &'t self,
        other: &Version,
        has_buffer: bool,
    ) -> impl Iterator<Item = (usize, &'t Arc<OpenFile>)> {
        let is_in_other =
            |level: usize, run: &OpenRun| other.level(level).runs.iter().any(|known| Arc::ptr_eq(known, &run.run));
        let runs = self.runs().filter(move |(level, run)| has_buffer || !is_in_other(*level, run));
        let files = runs.flat_map(|(level, run)| run.files.iter().map(move |file| (level, file)));
        files.chain(self.buffered_files())
    }

    /// The files that a tree over `version` may take from this one, beside whole runs.
    pub(crate) fn files_for<'t>(&'t self, version: &Version) -> impl Iterator<Item = &'t Arc<OpenFile>> {
        self.files_unlike(version, self.has_buffer() || !version.rounds.is_empty()).map(|(_, file)| file)
    }

    /// The files that are not in `after`, which came after this one, each once, with the level that they were in or
    /// stood for.
    pub(crate) fn files_that_left<'t>(&'t self, after: &Tree) -> Vec<(usize, &'t Arc<OpenFile>)> {
        let has_buffer = self.has_buffer() || after.has_buffer();
        let kept = after.files_unlike(&self.version, has_buffer).map(|(_, file)| file.meta.number);
        let mut seen: HashSet<FileNumber> = kept.collect();
        let before = self.files_unlike(&after.version, has_buffer);
        before.filter(|(_, file)| seen.insert(file.meta.number)).collect()
    }

    /// The open file with this number.
    pub(crate) fn find(&self, number: FileNumber) -> Option<&Arc<OpenFile>> {
        self.files().map(|(_, file)| file).find(|file| file.meta.number == number)
    }
}

fn fences_of(levels: &[Vec<OpenRun>]) -> FenceLists<FileFilters> {
    let mut fences = FenceLists::default();
    for run in levels.iter().flatten() {
        match &run.fences {
            Some(long) => fences.push_long(long.clone()),
            None => fences.push(fenced(&run.ssts)),
        }
    }
    fences
}

/// The fences of files, with what a lookup asks next.
fn fenced(ssts: &[Arc<SstFile>]) -> impl Iterator<Item = (&[u8], &[u8], FileFilters)> + Clone {
    ssts.iter().map(|sst| (sst.smallest(), sst.largest(), sst.filters()))
}

/// What share of a row's columns a run has.
fn part_of_row(formats: &[FragmentFormat], run: &OpenRun) -> f64 {
    let columns = |format: &FragmentFormat| format.columns().len().max(1) as f64;
    match (formats.first(), formats.get(run.format)) {
        (Some(whole), Some(own)) => columns(own) / columns(whole),
        _ => 1.0,
    }
}

/// The place of a run's format among `formats`, to which it is added if it is new.
fn format_of(
    (level, run): (usize, &Run),
    table: Option<&TableFormats>,
    formats: &mut Vec<FragmentFormat>,
) -> Result<usize> {
    let format = match (run.group(), table) {
        (None, None) => return Ok(0),
        (None, Some(table)) => table.whole_at(level),
        (group, table) => group_format(group, table)?,
    };
    Ok(place_among(formats, format))
}

fn group_format(group: Option<&Arc<Group>>, table: Option<&TableFormats>) -> Result<FragmentFormat> {
    let Some(table) = table else {
        return Err(Error::corruption("a key-value table has files of column groups"));
    };
    table.of(group).map_err(|error| Error::corruption("a column group of a table's files").caused_by(error))
}

/// As [`format_of`], of a segment that stands for a run with these columns (all if `None`): it is read for no others.
fn segment_format(
    (file, columns): (&FileMeta, Option<&ColumnSet>),
    table: Option<&TableFormats>,
    formats: &mut Vec<FragmentFormat>,
) -> Result<usize> {
    if table.is_none() && file.group.is_none() {
        return Ok(0);
    }
    let format = group_format(file.group.as_ref(), table)?;
    Ok(match columns {
        Some(columns) if !format.columns().is_subset(columns) => place_among(formats, format.narrowed(columns)),
        _ => place_among(formats, format),
    })
}

fn place_among(formats: &mut Vec<FragmentFormat>, format: FragmentFormat) -> usize {
    formats.iter().position(|known| known.is_same(&format)).unwrap_or_else(|| {
        formats.push(format);
        formats.len() - 1
    })
}

/// The segments that stand for a run.
pub(crate) fn segments_of<'a>(version: &'a Version, level: usize, run: &Arc<Run>) -> Option<&'a Segments> {
    let round = version.round(level, run.group())?;
    let is = |part: Option<&Arc<Run>>| part.is_some_and(|part| Arc::ptr_eq(part, run));
    if is(version.deletion_part(level, run.group())) {
        return round.deletion.as_ref();
    }
    round.appending.as_ref().filter(|_| is(version.insertion_part(level, run.group())))
}

#[cfg(test)]
mod tests {
    use mycelium_vfs::MemoryDisk;

    use crate::{Background, Database, Durability, Options, Table, TableOptions};

    use super::*;

    fn files(table: &Table) -> Vec<Arc<[Arc<OpenFile>]>> {
        let state = table.shared.state.load();
        state.tree.runs().map(|(_, run)| run.files.clone()).collect()
    }

    /// Every edit opened all runs of its tables anew, and compared all their files.
    #[test]
    fn a_run_that_an_edit_leaves_alone_is_the_same_in_the_next_tree() {
        let options =
            Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
        let database = Database::open("db", options).unwrap();
        let table = database.create_table("table", TableOptions::default()).unwrap();
        let put = |key: &[u8]| {
            table.put(key, b"value", Durability::Os).unwrap();
            let mut writer = database.inner.commits.writer.lock();
            database.inner.empty_memtables(&mut writer).unwrap();
        };
        put(b"a");
        database.compact(&table).unwrap();
        let below = files(&table);
        put(b"b");
        put(b"c");
        let before = files(&table);
        assert_eq!((below.len(), before.len()), (1, 3));
        assert!(Arc::ptr_eq(&below[0], &before[2]));
        put(b"d");
        let after = files(&table);
        assert!(after[1..].iter().zip(&before).all(|(after, before)| Arc::ptr_eq(after, before)));
        let old = table.shared.state.load().tree.clone();
        database.compact(&table).unwrap();
        let new = table.shared.state.load().tree.clone();
        assert_eq!(old.files_that_left(&new).len(), 4);
        assert_eq!(old.files_that_left(&old).len(), 0);
        assert_eq!(table.get(b"b").unwrap().as_deref(), Some(&b"value"[..]));
    }
}
