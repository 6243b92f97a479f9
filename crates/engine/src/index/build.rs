//! Building an index: what was in the table before it.
//!
//! 1. Wait for the compactions of the table that were running when the index was created: they tell it nothing of what
//!    they drop, and what they leave behind must be what is built from.
//! 2. Pin the table's files and walk all versions of all keys, those that only a live snapshot sees included. Of every
//!    version that is not newer than the index, derive what it would have derived when it was written: of a patch, from
//!    the row that it made, if it made one. So too of a newer patch that lacks columns: it was fused with one that is
//!    not newer, and derived nothing then. Where columns lie apart, parts of a row move on by themselves: there the row
//!    is put together at every number that a part has, newer ones than the index included, unless a part of it is gone,
//!    which is so only where no snapshot sees it.
//! 3. Sort within a budget; what does not fit is written as sorted files, which are merged at the end.
//! 4. One edit puts the result below everything that was derived since, and says that the index is built.
//!
//! While an index is built, compactions leave it alone, so that all it has stands in level 0 and step 4 has a place.
//! What the table drops meanwhile is removed by removals that stand there, too, and are kept until they have met what
//! they name.
//!
//! A row that the index cannot hold ends the building (unfit.rs), unless nobody sees it. So does one that a compaction
//! has folded since the index was created, of a version that is not newer and a patch that is: newer rows are looked at
//! for that.
//!
//! Where the columns of the index lie in several column groups, or a patch had to be completed, removals cannot name
//! what was derived here: then no entry up to the index's creation, and to the newest such one, is trusted without its
//! row. A crash loses the building, which begins again at the next open.
//!
//! The thread that flushes builds, and interrupts it for flushes (interruption.rs); compactions go on in the others.
//! When it is an index's turn says background.rs.

use std::sync::Arc;

use mycelium_base::{
    ColumnSet, Cursor, ErrorKind, Group, GroupFormat, Operation, RangeDeleteSet, Result, RowFormatKind, SequenceNumber,
    Trailer,
};
use mycelium_compaction::job::JobOutput;
use mycelium_encoding::FragmentFormat;
use mycelium_manifest::{FileMeta, RunPlace, VersionEdit};
use mycelium_merge::{ColumnMerge, FragmentHistory, MergePlan, MergingCursor};
use mycelium_sst::{CursorOptions, LevelCursor, RunCursor, SstFile};
use mycelium_transform::{Derived, DerivedEntries, Deriver};

use super::definition::{IndexShared, IndexStatus};
use super::manage::changed_index;
use super::read::RowCheck;
use super::staged::Staged;
use super::unfit::{check_key, failed_on};
use super::watch::write_derived;
use crate::background::MOST_AHEAD_OF_BUILDING;
use crate::core::Core;
use crate::database::Inner;
use crate::interruption::Interruption;
use crate::options::sizes;
use crate::output_files::{OutputFiles, file_meta};
use crate::rate_limit::WritePriority;
use crate::sources::DerivedSource;
use crate::sync::Mutex;
use crate::sync::atomic::Ordering;
use crate::table::{TableShared, TableState};
use crate::table_job::{OlderPlaces, TableJob};

/// Bytes read at once from each run.
const READ_AHEAD: usize = 256 << 10;
/// Keys between two reports of progress, at which the building makes way for flushes.
const REPORT_KEYS: u64 = 1024;

/// An index to be built, and its table.
struct Task {
    derived: Arc<TableShared>,
    index: Arc<IndexShared>,
    base: Arc<TableShared>,
}

impl Core {
    /// An index that can be built now.
    fn building_task(&self) -> Option<(&Arc<TableShared>, &Arc<IndexShared>)> {
        let mut waiting =
            self.tables.unbuilt().filter(|(_, index)| !index.status().is_built && index.failure().is_none());
        waiting.find(|(_, index)| !index.unaware_jobs.lock().iter().any(|job| self.busy.is_running(*job)))
    }

    /// A flush or a compaction is taken, before an index if there is one that could be built.
    pub(crate) fn note_ahead_of_building(&mut self) {
        if !self.building && self.building_task().is_some() {
            self.ahead_of_building += 1;
        }
    }
}

impl Inner {
    /// Whether an index is to be built that can be, or is being built.
    pub(crate) fn has_building_work(&self) -> bool {
        let core = self.core.lock();
        core.building || core.building_task().is_some()
    }

    /// Whether an index could be built that has waited for as many jobs as it may.
    pub(crate) fn is_building_overdue(&self) -> bool {
        let core = self.core.lock();
        core.ahead_of_building >= MOST_AHEAD_OF_BUILDING && !core.building && core.building_task().is_some()
    }

    /// Builds an index, if there is one to be built and no other thread is at it. It makes way for flushes.
    pub(crate) fn build_one(&self) -> Result<bool> {
        let task = {
            let mut core = self.core.lock();
            if core.building {
                return Ok(false);
            }
            let Some((derived, index)) = core.building_task() else { return Ok(false) };
            let Some(base) = core.tables.get(&index.base).cloned() else { return Ok(false) };
            let task = Task { derived: derived.clone(), index: index.clone(), base };
            core.building = true;
            core.ahead_of_building = 0;
            task
        };
        let result = self.build(&task);
        self.end_job(|core| core.building = false);
        if task.derived.check_alive().is_err() {
            return Ok(true);
        }
        // A row that the index cannot hold is no fault of the database.
        if task.index.failure().is_some() { Ok(true) } else { result.map(|()| true) }
    }

    fn build(&self, task: &Task) -> Result<()> {
        let state = task.base.state.load_full();
        let chunks = Mutex::new(OutputFiles::new(self));
        let gathered = Gathering::new(self, task, &state, &chunks)?.run()?;
        let outputs = Mutex::new(OutputFiles::new(self));
        let made = self.merge_chunks(task, gathered.sources, &outputs)?;
        outputs.lock().sync()?;
        self.install_built(task, gathered.guessed_upto, &made, &outputs)
    }

    /// Step 3: one run of all that was gathered.
    fn merge_chunks(
        &self,
        task: &Task,
        sources: Vec<DerivedSource>,
        outputs: &Mutex<OutputFiles<'_>>,
    ) -> Result<JobOutput> {
        let job = TableJob::new(self, &task.derived, outputs, WritePriority::Compaction, OlderPlaces::Empty);
        let deepest = sizes(&task.derived.definition.options).level_count - 1;
        job.ending_with_table().making_way(Interruption::ByFlushes).merge_derived(sources, deepest)
    }

    /// Step 4.
    fn install_built(
        &self,
        task: &Task,
        guessed_upto: Option<SequenceNumber>,
        made: &JobOutput,
        outputs: &Mutex<OutputFiles<'_>>,
    ) -> Result<()> {
        let Task { derived, index, .. } = task;
        let metas: Vec<Arc<FileMeta>> =
            made.files.iter().map(|(number, summary)| Arc::new(file_meta(*number, summary))).collect();
        let opened = metas.iter().map(|meta| self.open_file(meta)).collect::<Result<Vec<_>>>()?;
        let mut manifest = self.manifest()?;
        derived.check_alive()?;
        // A write may have found out meanwhile (prepare.rs), and others not derived since.
        if let Some(failure) = index.failure() {
            return Err(failure);
        }
        let status = index.status();
        let trusted_from = guessed_upto.map_or(0, |upto| upto + 1);
        let status = IndexStatus { is_built: true, trusted_from: status.trusted_from.max(trusted_from), ..status };
        let mut edit = VersionEdit::default();
        edit.changed_tables.extend(changed_index(&manifest, derived, status));
        let level = sizes(&derived.definition.options).level_count - 1;
        for meta in metas {
            edit.add_file(derived.id, level, RunPlace::Newest, meta);
        }
        let result = self.apply_edit(&mut manifest, edit, &opened, &[], |_| index.set_status(status));
        if result.is_ok() || manifest.is_poisoned() {
            outputs.lock().keep();
        }
        result
    }

    /// Whether a row of an index that is being built, as the present or a live snapshot sees it or a crash may bring it
    /// back, cannot be held; then the index has failed.
    fn fails_on(&self, base: &Arc<TableShared>, derived: &Arc<TableShared>, row_key: &[u8]) -> Result<bool> {
        // From here on whatever is not newer than `now` can be read.
        let now = self.take_snapshot();
        let state = base.state.load_full();
        let Some(found) = state.indexes.iter().find(|found| Arc::ptr_eq(&found.table, derived)) else {
            return Ok(false);
        };
        let live = self.snapshots.live().into_iter().filter(|&moment| moment <= now.sequence());
        for moment in live.chain([state.in_files_upto(now.sequence())]) {
            if let Some(refusal) = RowCheck::new(base, &state, found, moment).refusal(row_key)? {
                found.index.fail(row_key, refusal);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What was derived.
struct Gathered {
    sources: Vec<DerivedSource>,
    /// The number up to which some of it may not be what a removal would name.
    guessed_upto: Option<SequenceNumber>,
}

/// Step 2.
struct Gathering<'f, 'a> {
    inner: &'f Inner,
    task: &'f Task,
    state: &'f TableState,
    chunks: &'f Mutex<OutputFiles<'a>>,
    /// The files of the chunks, open.
    written: Vec<Arc<SstFile>>,
    /// By format of the table's runs: what derives from values of such a run alone.
    derivers: Vec<Option<Deriver>>,
    /// Puts the columns that the index reads together, and derives from them.
    completing: Completing,
    /// The columns whose groups the entries come from.
    fed_by: ColumnSet,
    /// Whether the columns lie apart in some runs.
    are_apart: bool,
    /// All versions of the key in hand, each with the format of its run.
    history: FragmentHistory,
    staged: Staged,
    guessed_upto: Option<SequenceNumber>,
}

struct Completing {
    merge: ColumnMerge,
    deriver: Deriver,
    range_deletes: Vec<(Arc<RangeDeleteSet>, usize)>,
    row: Vec<u8>,
}

impl<'f, 'a> Gathering<'f, 'a> {
    fn new(
        inner: &'f Inner,
        task: &'f Task,
        state: &'f TableState,
        chunks: &'f Mutex<OutputFiles<'a>>,
    ) -> Result<Self> {
        let formats = task.base.typed_formats()?;
        let for_transformers = formats.for_transformers();
        let source = &task.index.source;
        let reads = source.columns_read();
        let fed_by = source.fed_by(formats.whole.columns());
        let mut derivers = Vec::with_capacity(state.tree.formats.len());
        let mut are_apart = false;
        for format in &state.tree.formats {
            let held = Group::new(format.held(), GroupFormat::Row(format.kind()));
            let group = Group { dropped: format.dropped().clone(), ..held };
            let holds_all = reads.is_subset(&group.columns);
            are_apart |= !holds_all && reads.overlaps(format.columns());
            derivers.push(if holds_all { Some(source.deriver(for_transformers, &group)?) } else { None });
        }
        let packed = Group::new(reads.clone(), GroupFormat::Row(RowFormatKind::Packed));
        let wanted = FragmentFormat::packed(formats.schema().clone(), reads.clone());
        let completing = Completing {
            merge: ColumnMerge::new(Arc::new(MergePlan::new(&wanted, &state.tree.formats)?)),
            deriver: source.deriver(for_transformers, &packed)?,
            range_deletes: range_deletes_of(state, &fed_by),
            row: Vec::new(),
        };
        Ok(Self {
            inner,
            task,
            state,
            chunks,
            written: Vec::new(),
            derivers,
            completing,
            fed_by,
            are_apart,
            history: FragmentHistory::default(),
            staged: Staged::default(),
            guessed_upto: are_apart.then_some(task.index.created_at),
        })
    }

    fn run(mut self) -> Result<Gathered> {
        let options = CursorOptions { fill_cache: false, read_ahead: READ_AHEAD, ..CursorOptions::default() };
        let fed_by = self.fed_by.clone();
        let holds = |format: usize| fed_by.is_empty() || self.state.tree.formats[format].columns().overlaps(&fed_by);
        let runs: Vec<_> = self.state.tree.runs().map(|(_, run)| run).filter(|run| holds(run.format)).collect();
        let formats: Vec<usize> = runs.iter().map(|run| run.format).collect();
        let total: u64 = runs.iter().flat_map(|run| run.files.iter()).map(|file| file.meta.entry_count).sum();
        let mut entries =
            MergingCursor::new(runs.iter().map(|run| RunCursor::over(run.ssts.clone(), options)).collect());
        entries.seek_to_first()?;
        let (mut keys, mut done) = (0_u64, 0_u64);
        while entries.valid() {
            self.history.begin(entries.key());
            loop {
                self.history.push(formats[entries.source()], entries.trailer(), entries.value());
                entries.next()?;
                if !entries.valid() || !entries.same_key_as_previous() {
                    break;
                }
            }
            done += self.history.len() as u64;
            keys += 1;
            if keys.is_multiple_of(REPORT_KEYS) {
                self.inner.check_writable()?;
                self.task.derived.check_alive()?;
                self.task.index.progress.store(done * 1000 / total.max(1), Ordering::Relaxed);
                self.inner.give_way(Interruption::ByFlushes)?;
            }
            self.derive_key()?;
        }
        let mut sources = vec![DerivedSource::Staged(self.staged.take_sorted())];
        let chunks = self.written.into_iter().map(|chunk| LevelCursor::new(vec![chunk], options));
        sources.extend(chunks.map(|chunk| DerivedSource::Run(Box::new(chunk))));
        Ok(Gathered { sources, guessed_upto: self.guessed_upto })
    }

    /// Derives from every version of the key in hand that is not newer than the index; of newer ones only what was
    /// fused with older patches. Where columns lie apart, from all newer ones too: one that touches no column of the
    /// index has no entry yet, and its number may be all that is left of a part.
    fn derive_key(&mut self) -> Result<()> {
        let Self { inner, task, history, derivers, completing, are_apart, staged, guessed_upto, .. } = self;
        let (Task { base, derived, index }, mut completed) = (task, None);
        for (format, trailer, value) in history.entries() {
            let deriver = derivers[format].as_mut().filter(|_| !*are_apart);
            let is_newer = trailer.sequence() > index.created_at;
            let derivation =
                derive_version(&derived.name, deriver, is_newer, (history.shared_key(), trailer, value), staged);
            let result = derivation.and_then(|derivation| {
                match derivation {
                    Derivation::Done => return Ok(()),
                    Derivation::Incomplete => *guessed_upto = (*guessed_upto).max(Some(index.created_at)),
                    Derivation::Uncertain => {}
                }
                let sequence = trailer.sequence();
                if is_newer {
                    *guessed_upto = (*guessed_upto).max(Some(sequence));
                }
                if completed.replace(sequence) == Some(sequence) {
                    return Ok(());
                }
                completing.derive(&derived.name, history, sequence, staged)
            });
            match result {
                Err(error) if error.kind() == ErrorKind::InvalidArgument => {
                    if inner.fails_on(base, derived, history.shared_key())? {
                        return Err(error);
                    }
                }
                result => result?,
            }
        }
        if self.staged.bytes() > self.inner.building_budget() {
            self.spill()?;
        }
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        let written = write_derived(&self.task.derived, self.staged.take_sorted(), self.chunks)?;
        self.inner.limit_job(Interruption::ByFlushes, written.summary.size)?;
        let meta = Arc::new(file_meta(written.number, &written.summary));
        self.written.push(self.inner.open_file(&meta)?.sst.clone());
        Ok(())
    }
}

/// Whether all that a version derives is known.
enum Derivation {
    /// It is staged, or there is nothing to be staged.
    Done,
    /// The row must be put together.
    Uncertain,
    /// So it must, since a patch lacks columns.
    Incomplete,
}

/// Derives from one version by itself, if its run has the columns (`deriver`).
fn derive_version(
    name: &str,
    deriver: Option<&mut Deriver>,
    is_newer: bool,
    (key, trailer, value): (&[u8], Trailer, &[u8]),
    staged: &mut Staged,
) -> Result<Derivation> {
    let Some(deriver) = deriver else { return Ok(Derivation::Uncertain) };
    let derived = deriver.derive(key, trailer.operation(), value);
    match derived.map_err(|error| failed_on(name, error))? {
        // Derived when it was written, or when it was made, if that could be.
        Derived::Entries(entries) if is_newer => {
            entries.iter().try_for_each(|(key, _)| check_key(name, key))?;
            Ok(Derivation::Done)
        }
        // Nothing says that a patch has a row.
        Derived::Entries(_) if trailer.operation() == Operation::Patch => Ok(Derivation::Uncertain),
        Derived::Entries(entries) => stage(name, entries, trailer.sequence(), staged).map(|()| Derivation::Done),
        Derived::Nothing => Ok(Derivation::Done),
        Derived::Needs(_) => Ok(Derivation::Incomplete),
    }
}

impl Completing {
    /// Derives from the row as it was at `sequence`, put together, if it still can be: then it cannot where nobody sees
    /// it.
    fn derive(
        &mut self,
        name: &str,
        history: &FragmentHistory,
        sequence: SequenceNumber,
        staged: &mut Staged,
    ) -> Result<()> {
        self.row.clear();
        let key = history.shared_key();
        if !history.join_unseen(sequence, &mut self.merge, &self.range_deletes, &mut self.row)? {
            return Ok(());
        }
        let derived = self.deriver.derive(key, Operation::Put, &self.row);
        match derived.map_err(|error| failed_on(name, error))? {
            Derived::Entries(entries) => stage(name, entries, sequence, staged),
            Derived::Needs(_) | Derived::Nothing => Ok(()),
        }
    }
}

fn stage(name: &str, entries: &DerivedEntries, sequence: SequenceNumber, staged: &mut Staged) -> Result<()> {
    entries.iter().try_for_each(|(key, _)| check_key(name, key))?;
    for (key, value) in entries.iter() {
        staged.push(key, Trailer::new(sequence, Operation::Put), value);
    }
    Ok(())
}

/// The range deletes of the runs that hold one of the columns, with the runs' formats.
fn range_deletes_of(state: &TableState, columns: &ColumnSet) -> Vec<(Arc<RangeDeleteSet>, usize)> {
    let mut found = Vec::new();
    for (_, run) in state.tree.runs() {
        if columns.is_empty() || state.tree.formats[run.format].columns().overlaps(columns) {
            let with = run.files.iter().filter(|file| file.meta.range_delete_count > 0);
            found.extend(with.map(|file| (file.sst.range_deletes().clone(), run.format)));
        }
    }
    found
}
