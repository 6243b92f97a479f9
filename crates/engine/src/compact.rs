//! Compaction: from a policy's plan to installed files.
//!
//! 1. Ask the policies of tables that have changed for their most urgent plans; take that of the table with the highest
//!    score (compaction_queue.rs).
//! 2. A trivial move is an edit and nothing else.
//! 3. Otherwise cut the plan's key range into subcompactions, run the job on each (in parallel where the options say
//!    so) over cursors that bypass the block cache ([`CompactionCaching`](crate::CompactionCaching) may say otherwise)
//!    and read ahead, and sync the directory. What leaves the table leaves its indexes: the job's watch writes the
//!    files for them (index/watch.rs).
//! 4. One edit adds all outputs and removes all inputs; inputs are removed from the disk when no reader holds them.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use mycelium_base::{
    ColumnSet, Error, FileNumber, Group, GroupFormat, RangeDelete, RangeDeleteSet, Result, SequenceNumber, TableId,
};
use mycelium_compaction::job::{self, JobInput, JobOutput, Rules};
use mycelium_compaction::shaped_job::{Making, OutputGroup, ShapedInput};
use mycelium_compaction::{
    CompactionPlan, GroupCursor, JobId, KeySample, OlderFiles, Reason, encoded_job, subcompaction_cuts,
};
use mycelium_encoding::{FragmentFormat, PackedLayout, ValueMap};
use mycelium_manifest::{FileMeta, KeyRange, RunPlace, Version, VersionEdit};
use mycelium_merge::{ColumnMerge, MergePlan, MergingCursor, Purge, StreamCounters, Watch};
use mycelium_sst::{Compression, CursorOptions, EncodedCursor, RunCursor, SstFile, SstWriterOptions};
use mycelium_transform::Deriver;

use crate::background::panicked;
use crate::compaction_queue::Prospects;
use crate::core::Core;
use crate::database::Inner;
use crate::events::Event;
use crate::index::{DerivedFile, IndexShared, IndexStatus, IndexWatch, StaleEntries, changed_index};
use crate::install::not_open;
use crate::interruption::Interruption;
use crate::options::{Background, TableOptions, for_level, sizes};
use crate::origin::Birth;
use crate::output_files::{OutputFiles, file_meta, known_marks, writer_options};
use crate::rate_limit::WritePriority;
use crate::sources::shared_read_ahead;
use crate::sync::Mutex;
use crate::sync::atomic::Ordering;
use crate::table::{IndexState, TableShared};
use crate::table_job::{OlderPlaces, TableJob};
use crate::thread_clock::thread_cpu_nanoseconds;
use crate::tree::{OpenFile, Tree};

/// Bytes read at once from each input; as many again are asked of the system ahead.
const READ_AHEAD: usize = 256 << 10;

/// A plan that has been taken: its files are busy until it is released.
pub(crate) struct Taken {
    pub(crate) plan: CompactionPlan,
    pub(crate) table: Arc<TableShared>,
    pub(crate) tree: Arc<Tree>,
    /// The indexes that are told of what the job drops. One that is created later waits for the job to end.
    indexes: Arc<[IndexState]>,
    /// Whether what it reads is cached.
    admits_inputs: bool,
    /// Bytes of columns that its outputs may hold in memory.
    memory_limit: usize,
    interruption: Interruption,
    job: JobId,
}

impl Taken {
    /// What the outputs say they came from.
    fn birth(&self) -> Birth {
        let inputs = self.plan.input_files().map(|file| file.number).collect();
        Birth::Compacted { level: self.plan.output_level, place: self.plan.output_place, inputs }
    }

    /// The inputs from levels above whose segments are in use.
    fn used_segments(&self) -> Vec<FileNumber> {
        let above = self.plan.inputs.iter().filter(|input| input.level < self.plan.output_level);
        let used = above.filter_map(|input| {
            let buffer = self.tree.levels.get(input.level)?.get(input.run)?.buffer.as_ref()?;
            Some(input.files.iter().filter(|file| buffer.is_used_for(file)).map(|file| file.number))
        });
        used.flatten().collect()
    }
}

/// What the parts of a compaction made.
#[derive(Default)]
struct Made {
    outputs: Vec<JobOutput>,
    /// What leaves the table's indexes.
    derived: Vec<DerivedFile>,
    /// Indexes in which entries were made that may have no row.
    guessed: Vec<TableId>,
}

/// What one part of a compaction made; as [`Made`].
struct MadePart {
    output: JobOutput,
    derived: Vec<DerivedFile>,
    guessed: Vec<TableId>,
}

impl Inner {
    /// Whether a compaction can start now that is due, or is for times of rest, which it is if nothing else is at work.
    pub(crate) fn has_compaction_work(&self) -> bool {
        let mut core = self.core.lock();
        core.ask_policies(self.options.background);
        let is_due = self.most_urgent(&core, false).is_some();
        is_due || self.pick_at_rest(&core).is_some()
    }

    /// Runs the most urgent compaction, if there is one that need not wait (patience.rs).
    pub(crate) fn compact_one(&self, interruption: Interruption) -> Result<bool> {
        let taken = {
            let mut core = self.core.lock();
            let is_patient = self.patient_until(core.pace).is_some();
            core.ask_policies(self.options.background);
            let best = self.most_urgent(&core, is_patient);
            let best = best.or_else(|| self.pick_at_rest(&core).filter(|_| !is_patient));
            let Some((plan, table)) = best else { return Ok(false) };
            core.note_ahead_of_building();
            self.take(&mut core, plan, table, interruption)
        };
        self.run_taken(taken).map(|()| true)
    }

    /// The most urgent compaction that is due and that need not wait.
    fn most_urgent(&self, core: &Core, is_patient: bool) -> Option<(CompactionPlan, Arc<TableShared>)> {
        core.queue.due().find_map(|id| {
            let table = core.tables.get(&id)?;
            let plan = pick(core, table)?;
            (!(is_patient && self.can_wait(&plan, table))).then(|| (plan, table.clone()))
        })
    }

    /// A compaction that only readers gain by, where no generation waits for its flush. None in manual mode, where
    /// nobody can tell rest from work.
    fn pick_at_rest(&self, core: &Core) -> Option<(CompactionPlan, Arc<TableShared>)> {
        if self.options.background == Background::Manual || !core.generations.is_empty() {
            return None;
        }
        let mut resting = core.queue.at_rest().filter_map(|id| core.tables.get(&id));
        resting.find_map(|table| Some((pick_at_rest(core, table)?, table.clone())))
    }

    /// Merges everything a table holds of `range` (all if `None`) into one run. One run is rewritten where it lacks
    /// partial aggregates of a view, or may hold stale entries of an index. Waits for running compactions.
    pub(crate) fn compact_range(&self, table: &Arc<TableShared>, range: Option<&KeyRange>) -> Result<()> {
        loop {
            table.check_alive()?;
            self.check_writable()?;
            let rewrites = table.lacks_summaries(range)? || StaleEntries::may_be_in(table);
            let taken = {
                let mut core = self.core.lock();
                let version = table.state.load().tree.version.clone();
                let (plan, is_last) = pick_range(&core, table, &version, (range, rewrites));
                match plan {
                    Some(plan) => Some((self.take(&mut core, plan, table.clone(), Interruption::Never), is_last)),
                    // Its files may still be held by a job of the table in whose place it came.
                    None if core.busy.jobs_of(table.id).next().is_none()
                        && !core.busy.any(version.files().map(|(_, _, file)| file)) =>
                    {
                        return Ok(());
                    }
                    None => None,
                }
            };
            match taken {
                Some((taken, true)) => return self.run_taken(taken),
                Some((taken, false)) => self.run_taken(taken)?,
                None => self.wait_for_progress(std::time::Duration::from_millis(50)),
            }
        }
    }

    fn take(
        &self,
        core: &mut Core,
        plan: CompactionPlan,
        table: Arc<TableShared>,
        interruption: Interruption,
    ) -> Taken {
        let job = core.busy.start(&plan);
        core.tables.note_change(table.id);
        let state = table.state.load_full();
        let admits_inputs = self.options.compaction_caching.admit_inputs;
        let (tree, indexes) = (state.tree.clone(), state.indexes.clone());
        // Where one file is to be made, as within level 0, several would be as many runs.
        let makes_one = plan.target_file_size == u64::MAX;
        let memory_limit = if makes_one { usize::MAX } else { self.options.compaction_memory };
        Taken { plan, table, tree, indexes, admits_inputs, memory_limit, interruption, job }
    }

    fn run_taken(&self, mut taken: Taken) -> Result<()> {
        taken.plan.used_segments = taken.used_segments();
        let result = self.run_plan(&taken);
        let (job, table, dropped) = (taken.job, taken.table.id, taken.table.check_alive().is_err());
        // The inputs are let go before the job counts as done: who waits for it finds their space free or about to be.
        drop(taken);
        self.end_job(|core| {
            core.busy.finish(job);
            match dropped {
                // Another table may have the files.
                true => core.tables.note_changes(),
                false => core.tables.note_change(table),
            }
            self.update_throttle(core);
        });
        // The work of a table dropped meanwhile is in vain, which is no failure.
        if dropped { Ok(()) } else { result }
    }

    fn run_plan(&self, taken: &Taken) -> Result<()> {
        let (plan, table) = (&taken.plan, &taken.table);
        let started = Instant::now();
        self.emit(|| Event::CompactionBegin {
            table: table.id,
            inputs: plan.inputs.iter().flat_map(|i| i.files.iter().map(|f| (i.level, f.number))).collect(),
            output_level: plan.output_level,
            reason: plan.reason.name().into(),
        });
        let moves =
            plan.is_trivial_move && !changes_format(&table.definition.options, plan) && map_of(table, plan).is_none();
        let outputs = if moves {
            let edit = plan.move_edit();
            let succession = self.succession(taken, &edit, &[])?;
            self.install_compaction(taken, edit, Vec::new(), &[], &[], || ())?;
            succession.warm();
            self.counters.trivial_moves.fetch_add(1, Ordering::Relaxed);
            Vec::new()
        } else {
            self.merge_plan(taken)?
        };
        self.counters.deferring_compactions.fetch_add(u64::from(plan.is_deferring), Ordering::Relaxed);
        let bytes_written = outputs.iter().map(|meta| meta.size).sum();
        let bytes_read = if moves { 0 } else { plan.input_bytes() };
        self.counters.add_compaction(plan.output_level, bytes_read, bytes_written);
        self.emit(|| Event::CompactionEnd {
            table: table.id,
            outputs: outputs.iter().map(|meta| meta.number).collect(),
            output_level: plan.output_level,
            bytes_read,
            bytes_written,
            seconds: started.elapsed().as_secs_f64(),
        });
        Ok(())
    }

    /// Runs the job and installs its outputs.
    fn merge_plan(&self, taken: &Taken) -> Result<Vec<Arc<FileMeta>>> {
        let plan = &taken.plan;
        let files = Mutex::new(OutputFiles::new(self));
        let made = self.run_subcompactions(taken, &files)?;
        let mut metas = Vec::new();
        for output in &made.outputs {
            metas.extend(output.files.iter().map(|(number, summary)| Arc::new(file_meta(*number, summary))));
            self.counters.add_compaction_stages(output.stages, output.entries);
            self.counters.compaction_entries_encoded.fetch_add(output.entries_encoded, Ordering::Relaxed);
            self.counters.most_compaction_memory.fetch_max(output.most_held as u64, Ordering::Relaxed);
        }
        let derived: Vec<_> =
            made.derived.iter().map(|file| (file.table, Arc::new(file_meta(file.number, &file.summary)))).collect();
        self.counters.add_compaction_stages(files.lock().sync()?, StreamCounters::default());
        let all = metas.iter().chain(derived.iter().map(|(_, meta)| meta));
        let opened: Vec<_> = all.map(|meta| self.open_file(meta)).collect::<Result<_>>()?;
        let edit = plan.install_edit(metas.iter().cloned());
        let succession = self.succession(taken, &edit, &opened)?;
        let unseen = unseen_indexes(taken, &made.guessed)?;
        self.install_compaction(taken, edit, derived, &unseen, &opened, || files.lock().keep())?;
        succession.warm();
        self.counters.reshaping_compactions.fetch_add(u64::from(!plan.keeps_groups()), Ordering::Relaxed);
        Ok(metas)
    }

    /// Installs an edit, with the files for derived tables that are still there. Of the `unseen` indexes entries up to
    /// now say nothing without their rows any more. `keep` is called if the files that it adds must stay, which is also
    /// so where its sync failed and it may yet survive.
    fn install_compaction(
        &self,
        Taken { plan, table, .. }: &Taken,
        mut edit: VersionEdit,
        derived: Vec<(TableId, Arc<FileMeta>)>,
        unseen: &[IndexState],
        opened: &[Arc<OpenFile>],
        keep: impl FnOnce(),
    ) -> Result<()> {
        let mut manifest = self.manifest()?;
        table.check_alive()?;
        self.complete_edit(&manifest, table, plan, &mut edit)?;
        for (derived, meta) in derived {
            if manifest.state().tables.contains_key(&derived) {
                edit.add_file(derived, 0, RunPlace::Newest, meta);
            }
        }
        let trusted_from = self.visible.load(Ordering::Acquire) + 1;
        let mut changed = Vec::new();
        for IndexState { table, index, .. } in unseen {
            let status = IndexStatus { trusted_from, ..index.status() };
            edit.changed_tables.extend(changed_index(&manifest, table, status));
            changed.push((index.clone(), status));
        }
        let before = self.trees_that_lose_files(&edit);
        let result = self.apply_edit(&mut manifest, edit, opened, &[], |_| {
            changed.iter().for_each(|(index, status)| index.set_status(*status));
        });
        self.count_invalidated(&before);
        if result.is_ok() || manifest.is_poisoned() {
            keep();
        }
        result
    }

    /// The tables from which an edit may take files, out of levels or the compaction buffer, with their trees.
    pub(crate) fn trees_that_lose_files(&self, edit: &VersionEdit) -> Vec<(Arc<TableShared>, Arc<Tree>)> {
        let removed = edit.removed_files.iter().map(|removed| removed.table);
        let tables: BTreeSet<TableId> = removed.chain(edit.rounds.iter().map(|changed| changed.table)).collect();
        let core = self.core.lock();
        let tables = tables.iter().filter_map(|id| core.tables.get(id));
        tables.map(|table| (table.clone(), table.state.load().tree.clone())).collect()
    }

    /// Counts the cached blocks of files that have left these tables, whose trees these were.
    pub(crate) fn count_invalidated(&self, before: &[(Arc<TableShared>, Arc<Tree>)]) {
        before.iter().for_each(|(table, tree)| self.count_invalidated_of(tree, &table.state.load().tree));
    }

    /// Counts the cached blocks of files that have left the table.
    fn count_invalidated_of(&self, before: &Tree, after: &Tree) {
        for (level, file) in before.files_that_left(after) {
            self.counters.add_invalidated(level, file.sst.cached_block_count() as u64);
        }
    }

    fn run_subcompactions(&self, taken: &Taken, files: &Mutex<OutputFiles<'_>>) -> Result<Made> {
        let mut made = Made::default();
        for part in self.run_parts(taken, files)? {
            made.outputs.push(part.output);
            made.derived.extend(part.derived);
            made.guessed.extend(part.guessed);
        }
        Ok(made)
    }

    fn run_parts(&self, taken: &Taken, files: &Mutex<OutputFiles<'_>>) -> Result<Vec<MadePart>> {
        let snapshots = self.snapshots.live();
        let cuts = self.subcompaction_cuts(taken)?;
        if cuts.is_empty() {
            return Ok(vec![self.run_part(taken, files, &snapshots, None, None)?]);
        }
        let starts = std::iter::once(None).chain(cuts.iter().cloned().map(Some));
        let ends = cuts.iter().cloned().map(Some).chain(std::iter::once(None));
        let parts: Vec<_> = starts.zip(ends).collect();
        if self.options.background == Background::Manual {
            return parts.into_iter().map(|(from, to)| self.run_part(taken, files, &snapshots, from, to)).collect();
        }
        std::thread::scope(|scope| {
            let handles: Vec<_> = parts
                .into_iter()
                .map(|(from, to)| scope.spawn(|| self.run_part(taken, files, &snapshots, from, to)))
                .collect();
            // All are waited for: the scope would panic on its own account for one that was not.
            let joined: Vec<_> = handles.into_iter().map(ScopedJoinHandle::join).collect();
            let named = |panic: Box<dyn Any + Send>| Err(panicked("a part of a compaction panicked", &*panic));
            joined.into_iter().map(|part| part.unwrap_or_else(named)).collect()
        })
    }

    /// Keys at which a large plan is cut to run in parallel.
    fn subcompaction_cuts(&self, taken: &Taken) -> Result<Vec<Vec<u8>>> {
        let plan = &taken.plan;
        if self.options.subcompactions <= 1 || plan.input_bytes() < plan.target_file_size.saturating_mul(2) {
            return Ok(Vec::new());
        }
        let mut samples = Vec::new();
        for meta in plan.input_files() {
            if let Some(file) = taken.tree.find(meta.number) {
                let keys = file.sst.key_samples(32)?;
                let share = meta.size / (keys.len() as u64).max(1);
                samples.extend(keys.into_iter().map(|key| KeySample { key, bytes: share }));
            }
        }
        Ok(subcompaction_cuts(samples, self.options.subcompactions, plan.target_file_size, &plan.borders()))
    }

    fn run_part(
        &self,
        taken: &Taken,
        files: &Mutex<OutputFiles<'_>>,
        snapshots: &[SequenceNumber],
        lower: Option<Vec<u8>>,
        upper: Option<Vec<u8>>,
    ) -> Result<MadePart> {
        let (plan, before) = (&taken.plan, thread_cpu_nanoseconds());
        let mut watches = self.index_watches(taken, files, upper.as_ref())?;
        let older_files: Vec<_> = (0..plan.outputs.len()).map(|output| plan.older_of(output)).collect();
        let older = OlderPlaces::Files(older_files.iter().map(|files| OlderFiles::new(files)).collect());
        let mut context = TableJob::new(self, &taken.table, files, WritePriority::Compaction, older)
            .born(Some(taken.birth()))
            .making_way(taken.interruption);
        let mut partitioner = plan.partitioner(taken.table.definition.options.aligned_compaction);
        let map = map_of(&taken.table, plan);
        let output = if let Some(layout) = encoded_layout(taken)? {
            let rules = Rules::Rows(watches.first_mut().and_then(asked));
            let entries = MergingCursor::new(encoded_cursors(taken, &layout)?);
            let input = plain_input(taken, entries, snapshots, (lower, upper), rules);
            encoded_job::run(input, &mut *partitioner, &mut context)?
        } else if plan.keeps_groups() {
            let mut stale = self.stale_entries(taken)?;
            let rules = match &taken.table.index {
                Some(_) => Rules::Derived(stale.as_mut().map(|stale| stale as &mut dyn Purge)),
                None => Rules::Rows(watches.first_mut().and_then(asked)),
            };
            let entries = MergingCursor::new(input_cursors(taken)?);
            let input = JobInput { map, ..plain_input(taken, entries, snapshots, (lower, upper), rules) };
            job::run(input, &mut *partitioner, &mut context)?
        } else if map.is_some() {
            return Err(Error::invalid("a compaction maps values and changes column groups at once"));
        } else {
            let input = shaped_input(taken, &older_files, snapshots, lower, upper, &mut watches)?;
            encoded_job::run_shaped(input, &mut *partitioner, &mut context)?
        };
        let (mut derived, mut guessed) = (Vec::new(), Vec::new());
        for watch in watches {
            guessed.extend(watch.guessed());
            derived.extend(self.unite_spills(watch.into_files()?, WritePriority::Compaction, files)?);
        }
        let cpu = thread_cpu_nanoseconds().saturating_sub(before + context.interrupted_cpu_nanoseconds());
        self.counters.compaction_cpu_nanoseconds.fetch_add(cpu, Ordering::Relaxed);
        Ok(MadePart { output, derived, guessed })
    }

    /// What finds stale entries of a derived table on their way into its last level, or by hand into whichever is the
    /// oldest.
    fn stale_entries(&self, taken: &Taken) -> Result<Option<StaleEntries>> {
        let Taken { plan, table, job, .. } = taken;
        let is_by_hand = plan.reason == Reason::Manual;
        let is_last = plan.output_level + 1 == sizes(&table.definition.options).level_count;
        if is_last || is_by_hand && plan.are_oldest() {
            return StaleEntries::new(self, table, *job, is_by_hand);
        }
        Ok(None)
    }

    /// By output group: what feeds the indexes whose columns it holds.
    fn index_watches<'f, 'a>(
        &self,
        taken: &Taken,
        files: &'f Mutex<OutputFiles<'a>>,
        upper: Option<&Vec<u8>>,
    ) -> Result<Vec<IndexWatch<'f, 'a>>> {
        let mut watches = Vec::with_capacity(taken.plan.outputs.len());
        for output in 0..taken.plan.outputs.len() {
            let mut indexes = Vec::new();
            for index in taken.indexes.iter() {
                if watched_output(taken, &index.index)?.is_some_and(|watched| watched.output == output) {
                    indexes.push((index.clone(), index_deriver(taken, &index.index, output)?));
                }
            }
            watches.push(IndexWatch::new(files, self.staging_budget(), indexes, upper.cloned()));
        }
        Ok(watches)
    }
}

/// Whether the output level is written differently from a level that gives files, so that they cannot just move.
fn changes_format(options: &TableOptions, plan: &CompactionPlan) -> bool {
    let format = |level| {
        let compression = for_level(&options.compression, level, Compression::None);
        (compression, for_level(&options.filter_bits, level, 10), options.block_size_at(level))
    };
    plan.inputs.iter().any(|input| format(input.level) != format(plan.output_level))
}

impl Core {
    /// Brings the compaction queue up to date with the tables that have changed.
    fn ask_policies(&mut self, background: Background) {
        for id in self.tables.take_unasked() {
            let core = &*self;
            let prospects = core.tables.get(&id).map(|table| Prospects {
                due: pick(core, table).map(|plan| plan.score),
                at_rest: background != Background::Manual && pick_at_rest(core, table).is_some(),
            });
            self.queue.set(id, prospects.unwrap_or_default());
        }
    }
}

fn pick(core: &Core, table: &TableShared) -> Option<CompactionPlan> {
    if !table.may_be_compacted() {
        return None;
    }
    let state = table.state.load();
    let version = &state.tree.version;
    table.shape.load().policy(version).pick(table.id, version, &core.busy)
}

fn pick_at_rest(core: &Core, table: &TableShared) -> Option<CompactionPlan> {
    if !table.may_be_compacted() {
        return None;
    }
    let state = table.state.load();
    let version = &state.tree.version;
    table.shape.load().policy(version).pick_at_rest(table.id, version, &core.busy)
}

/// The next compaction of a range, and whether it is the last: of everything at once, but while some of it lies above a
/// map, of the highest level that does, so that nothing is merged with what was mapped already. `rewrites`: also of
/// what is one run already.
fn pick_range(
    core: &Core,
    table: &TableShared,
    version: &Version,
    (range, rewrites): (Option<&KeyRange>, bool),
) -> (Option<CompactionPlan>, bool) {
    let shape = table.shape.load();
    let policy = shape.policy(version);
    let holds = |level: &usize| {
        let mut files = version.level(*level).runs.iter().flat_map(|run| &run.files);
        files.any(|file| range.is_none_or(|range| file.overlaps_range(range)))
    };
    let mapped_from = table.formats.as_ref().and_then(|formats| formats.maps()).map_or(0, |maps| maps.mapped_from());
    match (0..mapped_from).find(holds) {
        Some(level) => (policy.pick_level(table.id, version, &core.busy, level, range), false),
        None => (policy.pick_range(table.id, version, &core.busy, range, rewrites), true),
    }
}

/// What a plan, or one part of it, does to the values that it takes down.
fn map_of(table: &TableShared, plan: &CompactionPlan) -> Option<Arc<dyn ValueMap>> {
    let level = plan.inputs.iter().map(|input| input.level).min()?;
    table.formats.as_ref()?.maps()?.map(level..plan.output_level)
}

/// The output group that an index is fed from.
struct WatchedOutput {
    output: usize,
    /// Whether it is known what the job drops of it: not where its rows are only now put together. What is made is told
    /// always, so that every row that stands in one group has its entry by its own sequence number.
    sees_drops: bool,
}

/// The output group that holds all columns that feed the index; `None` if they are in several.
fn watched_output(taken: &Taken, index: &IndexShared) -> Result<Option<WatchedOutput>> {
    let formats = taken.table.typed_formats()?;
    let fed_by = columns_fed_by(taken, index)?;
    let columns_of = |group: &Option<Arc<Group>>| match group {
        Some(group) => group.columns.clone(),
        None => formats.whole.columns().clone(),
    };
    let found = taken.plan.outputs.iter().position(|group| fed_by.is_subset(&columns_of(group)));
    let Some(output) = found else { return Ok(None) };
    let sees_drops = !is_joined(taken, &columns_of(&taken.plan.outputs[output]))?;
    Ok(Some(WatchedOutput { output, sees_drops }))
}

/// The columns whose group feeds an index.
fn columns_fed_by(taken: &Taken, index: &IndexShared) -> Result<ColumnSet> {
    Ok(index.source.fed_by(taken.table.typed_formats()?.whole.columns()))
}

/// Whether rows of an output group are put together from narrower ones.
fn is_joined(taken: &Taken, columns: &ColumnSet) -> Result<bool> {
    let formats = taken.table.typed_formats()?;
    for input in &taken.plan.inputs {
        let source = formats.of(input.files.first().and_then(|file| file.group.as_ref()))?;
        let feeds = columns.is_empty() || source.columns().overlaps(columns);
        if feeds && !columns.is_subset(source.columns()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The indexes that this job does not tell all that leaves them although it holds columns of theirs, or told a guess.
fn unseen_indexes(taken: &Taken, guessed: &[TableId]) -> Result<Vec<IndexState>> {
    let mut unseen = Vec::new();
    for index in taken.indexes.iter() {
        let fed_by = columns_fed_by(taken, &index.index)?;
        let holds = |group: &Option<Arc<Group>>| group.as_ref().is_none_or(|group| group.columns.overlaps(&fed_by));
        let is_told = match watched_output(taken, &index.index)? {
            Some(watched) => watched.sees_drops,
            None => !taken.plan.outputs.iter().any(holds),
        };
        if !is_told || guessed.contains(&index.table.id) {
            unseen.push(index.clone());
        }
    }
    Ok(unseen)
}

/// What derives an index's entries from values of an output group.
fn index_deriver(taken: &Taken, index: &IndexShared, output: usize) -> Result<Deriver> {
    let formats = taken.table.typed_formats()?;
    let group = taken.plan.outputs.get(output).and_then(Option::as_deref).cloned();
    index.source.deriver(formats.for_transformers(), &group.unwrap_or_else(|| formats.whole_group()))
}

/// A watch that has something to watch for.
fn asked<'w>(watch: &'w mut IndexWatch<'_, '_>) -> Option<&'w mut dyn Watch> {
    (!watch.is_empty()).then_some(watch as &mut dyn Watch)
}

/// The layout of the columns that pass through a job as they are encoded; `None` if it is one of rows, which is every
/// job but the plain one: inputs and output are columnar with the same columns, nothing maps values or makes summaries
/// of them, and the rules are those of rows.
fn encoded_layout(taken: &Taken) -> Result<Option<Arc<PackedLayout>>> {
    let (plan, table) = (&taken.plan, &taken.table);
    let (Some(group), Some(formats)) = (plan.outputs.first().and_then(Option::as_ref), &table.formats) else {
        return Ok(None);
    };
    let is_plain = plan.keeps_groups() && group.format == GroupFormat::Columnar && table.index.is_none();
    if !is_plain || map_of(table, plan).is_some() || !table.summarizers(Some(group))?.is_empty() {
        return Ok(None);
    }
    let layout = Arc::new(PackedLayout::of(formats.schema().clone(), &group.columns));
    let mut inputs = plan.input_files().filter_map(|meta| taken.tree.find(meta.number));
    Ok(inputs.all(|file| file.sst.has_columns(&layout)).then_some(layout))
}

/// One cursor per input run, which `over` makes of its files. They see all versions.
fn cursors_over<C>(taken: &Taken, mut over: impl FnMut(Vec<Arc<SstFile>>, CursorOptions) -> C) -> Result<Vec<C>> {
    let read_ahead = shared_read_ahead(READ_AHEAD, taken.plan.inputs.len());
    let options = CursorOptions { fill_cache: taken.admits_inputs, read_ahead, ..CursorOptions::default() };
    taken
        .plan
        .inputs
        .iter()
        .map(|input| {
            let run = taken.tree.levels.get(input.level).and_then(|runs| runs.get(input.run));
            // A file left out would be one whose entries are lost.
            let open = |meta: &Arc<FileMeta>| {
                let file = run.and_then(|run| run.file(meta));
                file.map(|file| file.sst.clone()).ok_or_else(|| not_open(meta.number))
            };
            Ok(over(input.files.iter().map(open).collect::<Result<_>>()?, options))
        })
        .collect()
}

fn input_cursors(taken: &Taken) -> Result<Vec<RunCursor>> {
    cursors_over(taken, RunCursor::new)
}

/// As [`input_cursors`], of inputs with these columns, whose values stay encoded.
fn encoded_cursors(taken: &Taken, layout: &Arc<PackedLayout>) -> Result<Vec<EncodedCursor>> {
    cursors_over(taken, |files, options| EncodedCursor::new(files, options, layout.clone()))
}

/// Inputs and output of one column group: entries stay as they are.
fn plain_input<'w, C>(
    taken: &Taken,
    entries: C,
    snapshots: &[SequenceNumber],
    (lower, upper): (Option<Vec<u8>>, Option<Vec<u8>>),
    rules: Rules<'w>,
) -> JobInput<'w, C> {
    let (plan, table) = (&taken.plan, &taken.table);
    let group = plan.outputs.first().cloned().flatten();
    let combiner = match (&group, &table.formats) {
        (Some(group), Some(formats)) => formats.of(Some(group)).ok().map(|format| format.combiner()),
        _ => table.combiner.clone(),
    };
    JobInput {
        rules,
        entries,
        range_deletes: Arc::new(input_range_deletes(taken, |_| true)),
        snapshots: snapshots.to_vec(),
        combiner,
        lower,
        upper,
        // Indexes name rows by their sequence numbers: those of indexed tables keep them.
        are_oldest: plan.output_level > 0 && plan.are_oldest() && taken.indexes.is_empty(),
        writer: SstWriterOptions {
            marks: known_marks(input_marks(taken)),
            memory_limit: taken.memory_limit,
            ..writer_options(&table.definition, plan.output_level, group.as_deref())
        },
        group,
        map: None,
    }
}

/// What the inputs together say something of.
fn input_marks(taken: &Taken) -> u64 {
    let files = taken.plan.input_files().map(|meta| taken.tree.find(meta.number));
    files.fold(0, |marks, file| marks | file.map_or(u64::MAX, |file| file.marks()))
}

/// Inputs and outputs whose column groups differ.
fn shaped_input<'w>(
    taken: &Taken,
    older: &[Vec<Vec<Arc<FileMeta>>>],
    snapshots: &[SequenceNumber],
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    watches: &'w mut [IndexWatch<'_, '_>],
) -> Result<ShapedInput<'w, GroupCursor>> {
    let (plan, table) = (&taken.plan, &taken.table);
    let formats = table.typed_formats()?;
    let mut sources = Vec::with_capacity(plan.inputs.len());
    for input in &plan.inputs {
        sources.push(formats.of(input.files.first().and_then(|file| file.group.as_ref()))?);
    }
    let made = plan.outputs.iter().map(|group| formats.of(group.as_ref())).collect::<Result<Vec<_>>>()?;
    let mut outputs = Vec::with_capacity(plan.outputs.len());
    for (((group, format), older), watch) in plan.outputs.iter().zip(&made).zip(older).zip(watches) {
        let feeds = |file: &FileMeta| file.overlaps_columns(format.columns()) || format.columns().is_empty();
        let making = making(taken, format, &sources)?;
        outputs.push(OutputGroup {
            group: group.clone(),
            fragments: fragments_of(table, group.as_ref(), &making)?,
            making,
            watch: asked(watch),
            range_deletes: Arc::new(input_range_deletes(taken, feeds)),
            are_oldest: plan.output_level > 0 && older.is_empty() && taken.indexes.is_empty(),
            writer: SstWriterOptions {
                memory_limit: taken.memory_limit / plan.outputs.len(),
                ..writer_options(&table.definition, plan.output_level, group.as_deref())
            },
        });
    }
    // What is joined is put together from the entries as they come.
    let is_reshaped = |output: &OutputGroup<'_>| matches!(output.making, Making::Reshaped { .. });
    let parts: Vec<_> =
        outputs.iter().zip(&made).map(|(output, format)| is_reshaped(output).then_some(format)).collect();
    let splitters = sources.iter().map(|source| source.splitter(&parts)).collect();
    let sources = group_cursors(taken, &outputs)?;
    Ok(ShapedInput { sources, splitters, outputs, snapshots: snapshots.to_vec(), lower, upper })
}

/// How the fragments of a group are packed whose rows may come as cells: a columnar one that puts no rows together, and
/// whose files get no summaries, which need the values.
fn fragments_of(table: &TableShared, group: Option<&Arc<Group>>, making: &Making) -> Result<Option<Arc<PackedLayout>>> {
    let Some(group) = group.filter(|group| group.format == GroupFormat::Columnar) else { return Ok(None) };
    if !matches!(making, Making::Reshaped { .. }) || !table.summarizers(Some(group))?.is_empty() {
        return Ok(None);
    }
    let schema = table.typed_formats()?.schema().clone();
    Ok(Some(Arc::new(PackedLayout::of(schema, &group.columns))))
}

/// One cursor per input run: encoded where it feeds one group, whose columns it has. One that lacks columns may feed
/// others, too.
fn group_cursors(taken: &Taken, outputs: &[OutputGroup<'_>]) -> Result<Vec<GroupCursor>> {
    let mut source = 0..;
    cursors_over(taken, |files, options| {
        let source = source.next().unwrap_or_default();
        let mut fed = outputs.iter().filter(|output| output.making.is_fed_by(source));
        let only = fed.next().filter(|_| fed.next().is_none()).and_then(|output| output.fragments.as_ref());
        match only.filter(|layout| files.iter().all(|file| file.has_columns(layout))) {
            Some(layout) => GroupCursor::Cells(EncodedCursor::new(files, options, layout.clone())),
            None => GroupCursor::Values(RunCursor::new(files, options)),
        }
    })
}

/// How the rows of an output group come from the inputs: reshaped where each holds all of its columns or none, else
/// joined.
fn making(taken: &Taken, output: &FragmentFormat, sources: &[FragmentFormat]) -> Result<Making> {
    let columns = output.columns();
    let feeds = |source: &FragmentFormat| columns.is_empty() || source.columns().overlaps(columns);
    if sources.iter().all(|source| !feeds(source) || columns.is_subset(source.columns())) {
        let feed = |source: &FragmentFormat| feeds(source).then(|| source.reshape(output)).transpose();
        let feeds = sources.iter().map(feed).collect::<Result<_>>()?;
        return Ok(Making::Reshaped { feeds, combiner: output.combiner() });
    }
    let packed = FragmentFormat::packed(output.rows().schema().clone(), columns.clone());
    let kinds: Vec<_> = sources.iter().enumerate().map(|(kind, source)| feeds(source).then_some(kind)).collect();
    // Of an input that feeds other groups alone, none: the copies for this group's columns may not be among the inputs
    // yet.
    let feeding = taken.plan.inputs.iter().zip(&kinds).filter_map(|(input, kind)| Some((input, (*kind)?)));
    let range_deletes =
        feeding.map(|(input, kind)| (Arc::new(range_deletes_of(taken, input.files.iter())), kind)).collect();
    Ok(Making::Joined {
        kinds,
        merge: Box::new(ColumnMerge::new(Arc::new(MergePlan::new(&packed, sources)?))),
        reshape: packed.reshape(output)?,
        range_deletes,
    })
}

/// The range deletes of the inputs that `feeds` says take part.
fn input_range_deletes(taken: &Taken, feeds: impl Fn(&FileMeta) -> bool) -> RangeDeleteSet {
    range_deletes_of(taken, taken.plan.input_files().filter(|meta| feeds(meta)))
}

fn range_deletes_of<'a>(taken: &Taken, files: impl Iterator<Item = &'a Arc<FileMeta>>) -> RangeDeleteSet {
    let mut all = Vec::new();
    for meta in files.filter(|meta| meta.range_delete_count > 0) {
        let Some(file) = taken.tree.find(meta.number) else { continue };
        for fragment in file.sst.range_deletes().fragments() {
            let (start, end) = (fragment.start(), fragment.end());
            let sequences = fragment.sequences().into_iter();
            all.extend(sequences.map(|sequence| RangeDelete { start: start.to_vec(), end: end.to_vec(), sequence }));
        }
    }
    RangeDeleteSet::new(&all)
}

#[cfg(test)]
mod tests {
    use mycelium_vfs::MemoryDisk;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::{Database, Durability, LeveledOptions, Options, Policy, Table};

    /// The table of the most urgent compaction, and how urgent that is: by asking all tables.
    fn walked(core: &Core) -> Option<(TableId, f64)> {
        let due = core.tables.values().filter_map(|table| pick(core, table).map(|plan| (table.id, plan.score)));
        due.max_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    /// The same by the queue.
    fn queued(inner: &Inner) -> Option<(TableId, f64)> {
        let mut core = inner.core.lock();
        core.ask_policies(Background::Manual);
        inner.most_urgent(&core, false).map(|(plan, table)| (table.id, plan.score))
    }

    fn create(database: &Database, name: usize) -> Table {
        let leveled = LeveledOptions {
            level0_trigger: 2,
            base_level_bytes: 4 << 10,
            target_file_size: 2 << 10,
            fanout: 4.0,
            ..LeveledOptions::default()
        };
        let options = TableOptions { policy: Policy::Leveled(leveled), block_size: 256, ..TableOptions::default() };
        database.create_table(&name.to_string(), options).unwrap()
    }

    #[test]
    fn the_queue_finds_what_asking_all_tables_finds() {
        let options =
            Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
        let database = Database::open("db", options).unwrap();
        let inner = &*database.inner;
        let mut rng = SmallRng::seed_from_u64(7);
        let mut tables: Vec<Table> = (0..12).map(|name| create(&database, name)).collect();
        let (mut made, mut compacted) = (tables.len(), 0);
        for _ in 0..400 {
            match rng.random_range(0..10) {
                0..4 => {
                    for _ in 0..rng.random_range(1..4) {
                        let table = &tables[rng.random_range(0..tables.len())];
                        for _ in 0..20 {
                            let key = rng.random_range(0..500_u32).to_be_bytes();
                            table.put(&key, &[7; 40], Durability::Buffered).unwrap();
                        }
                    }
                    inner.seal_generation(&mut inner.commits.writer.lock()).unwrap();
                    while inner.flush_oldest().unwrap() {}
                }
                4 => {
                    let at = rng.random_range(0..tables.len());
                    database.drop_table(tables[at].name()).unwrap();
                    tables[at] = create(&database, made);
                    made += 1;
                }
                _ => {
                    let taken = {
                        let mut core = inner.core.lock();
                        core.ask_policies(Background::Manual);
                        let most_urgent = inner.most_urgent(&core, false);
                        most_urgent.map(|(plan, table)| inner.take(&mut core, plan, table, Interruption::Never))
                    };
                    assert_eq!(queued(inner), walked(&inner.core.lock()), "beside a job");
                    if let Some(taken) = taken {
                        inner.run_taken(taken).unwrap();
                        compacted += 1;
                    }
                }
            }
            assert_eq!(queued(inner), walked(&inner.core.lock()));
        }
        assert!(compacted > 50, "{compacted} compactions");
        while let Some(most_urgent) = queued(inner) {
            assert_eq!(Some(most_urgent), walked(&inner.core.lock()));
            assert!(inner.compact_one(Interruption::Never).unwrap());
        }
        assert_eq!(walked(&inner.core.lock()), None);
    }
}
