//! What the picks of a table with a layout are made of: the scores of its units, and the plans of given inputs.
//!
//! Which unit comes first and what it gives is said in shaped.rs, two_phase.rs and shaped_rest.rs. Steps are those of
//! [`crate::shaped`].

use std::collections::HashSet;
use std::sync::Arc;

use mycelium_base::{ColumnSet, FileNumber, Group, TableId};
use mycelium_manifest::{FileMeta, Run, RunPlace, Version};

use crate::busy::BusyFiles;
use crate::plan::{CompactionPlan, PlanInput, Reason};
use crate::shape::Shape;
use crate::units::{Unit, all_runs, overlapping, overlapping_run, surplus_run, units};

/// What all picks of one call go by.
pub(crate) struct Picker<'a> {
    pub(crate) shape: &'a Shape,
    table: TableId,
    pub(crate) version: &'a Version,
    pub(crate) busy: &'a BusyFiles,
    /// Bytes of inputs that may keep their groups.
    deferrable_bytes: u64,
}

impl<'a> Picker<'a> {
    /// Picks that defer nothing.
    pub(crate) fn new(shape: &'a Shape, table: TableId, version: &'a Version, busy: &'a BusyFiles) -> Self {
        Self { shape, table, version, busy, deferrable_bytes: 0 }
    }

    /// The same, where inputs of so many bytes may keep their groups.
    pub(crate) fn deferring_up_to(self, deferrable_bytes: u64) -> Self {
        Self { deferrable_bytes, ..self }
    }
}

impl Picker<'_> {
    /// (unit, score) of a level.
    pub(crate) fn unit_scores(&self, level: usize) -> Vec<(Unit, f64)> {
        let units = units(self.version, level);
        let runs = &self.version.level(level).runs;
        let runs_of = |unit: &Unit| runs.iter().filter(|run| run.group() == unit.as_ref()).collect::<Vec<_>>();
        if self.shape.is_tiered(level) {
            // Those that kept wider groups, too (in_step.rs).
            let holds = |run: &Run, unit: &Unit| match (run.group(), unit) {
                (Some(of_run), Some(unit)) => unit.columns.is_subset(&of_run.columns),
                (None, _) => true,
                (Some(_), None) => false,
            };
            let is_free = |run: &&Arc<Run>, unit: &Unit| holds(run, unit) && !self.busy.any(&run.files);
            let free = |unit: &Unit| runs.iter().filter(|run| is_free(run, unit)).count() as f64;
            return units
                .into_iter()
                .map(|unit| {
                    let score = free(&unit) / self.shape.trigger();
                    (unit, score)
                })
                .collect();
        }
        let Some(target) = self.shape.target(self.version, level) else {
            return units.into_iter().map(|unit| (unit, 0.0)).collect();
        };
        let widths: Vec<f64> =
            units.iter().map(|unit| width(runs_of(unit).into_iter().flat_map(|run| &run.files))).collect();
        let all: f64 = widths.iter().sum();
        let free = |unit: &Unit| {
            let files = runs_of(unit).into_iter().flat_map(|run| &run.files);
            files.filter(|file| !self.busy.contains(file.number)).map(|file| file.size).sum::<u64>() as f64
        };
        let scored = units.into_iter().zip(widths).map(|(unit, width)| {
            let score = free(&unit) / (target * width / all.max(1e-9)).max(1.0);
            (unit, score)
        });
        scored.collect()
    }

    /// How much a level of these units overflows: what of it is free over its target, or, of a tiered one, the highest
    /// score.
    pub(crate) fn level_score(&self, level: usize, units: &[(Unit, f64)]) -> f64 {
        match self.shape.target(self.version, level) {
            Some(target) if !self.shape.is_tiered(level) => {
                let files = self.version.level(level).runs.iter().flat_map(|run| &run.files);
                let free = files.filter(|file| !self.busy.contains(file.number)).map(|file| file.size).sum::<u64>();
                free as f64 / target.max(1.0)
            }
            _ => units.iter().map(|(_, score)| *score).fold(0.0, f64::max),
        }
    }

    /// A run that closes its level: of a leveled one that overlaps another and shares columns with it, as after it was
    /// tiered; of a two-phase one that the two phases cannot work around.
    pub(crate) fn surplus_run(&self, level: usize) -> Option<&Arc<Run>> {
        if self.shape.is_tiered(level) {
            return None;
        }
        match self.shape.is_two_phase(self.version, level) {
            true => surplus_run(self.version, level),
            false => overlapping_run(self.version, level),
        }
    }

    /// The runs of a tiered level that share a column with the unit, from the oldest up to the first that is not free.
    pub(crate) fn free_runs(&self, level: usize, unit: &Unit) -> Vec<PlanInput> {
        let mut inputs = all_runs(self.version, level, unit.as_ref().map(|group| &group.columns));
        if let Some(newest_busy) = inputs.iter().rposition(|input| self.busy.any(&input.files)) {
            inputs.drain(..=newest_busy);
        }
        inputs
    }

    /// Step 7 of `shaped`.
    pub(crate) fn pays_below(&self, inputs: &[PlanInput], output: usize) -> bool {
        if self.shape.is_tiered(output) {
            return true;
        }
        let bytes =
            |inputs: &[PlanInput]| -> u64 { inputs.iter().flat_map(|input| &input.files).map(|file| file.size).sum() };
        let below = bytes(&self.overlapping(output, inputs));
        below as f64 <= self.shape.options.fanout * bytes(inputs) as f64
    }

    /// Merges the newest runs of a unit in their place: as many as `count` says of their bytes, before the first that
    /// is not free or holds some of the unit's columns in another group.
    pub(crate) fn merge_newest(
        &self,
        (level, unit): (usize, &Unit),
        count: impl FnOnce(&[u64], u64) -> usize,
        why: (Reason, f64),
    ) -> Option<CompactionPlan> {
        let mut inputs = all_runs(self.version, level, unit.as_ref().map(|group| &group.columns));
        let is_of_unit = |input: &PlanInput| input.files.first().is_some_and(|file| file.group == *unit);
        let free = inputs.iter().take_while(|input| is_of_unit(input) && !self.busy.any(&input.files));
        let sizes: Vec<u64> = free.map(|input| input.files.iter().map(|file| file.size).sum()).collect();
        inputs.truncate(count(&sizes, u64::MAX));
        if inputs.len() < 2 {
            return None;
        }
        let oldest = inputs.last()?.files.first()?.number;
        let mut plan = self.finish(inputs, (level, RunPlace::InPlaceOf(oldest)), why)?;
        if level == 0 {
            // One output: several would be as many files of level 0.
            plan.grandparents.clear();
            plan.cut_keys.clear();
            plan.target_file_size = u64::MAX;
        }
        Some(plan)
    }

    /// Merges `upper` with what it overlaps in a leveled level below or in the insertion parts of a two-phase one, or
    /// makes it the newest runs of a tiered one. `None` if that level is closed.
    pub(crate) fn merged_down(
        &self,
        mut upper: Vec<PlanInput>,
        output: usize,
        why: (Reason, f64),
    ) -> Option<CompactionPlan> {
        if self.shape.is_tiered(output) {
            let plan = self.finish(upper, (output, RunPlace::Newest), why)?;
            return Some(self.deferring(plan));
        }
        if self.surplus_run(output).is_some() {
            return None;
        }
        upper.extend(self.overlapping(output, &upper));
        let is_two_phase = self.shape.is_two_phase(self.version, output);
        self.finish(upper, (output, if is_two_phase { RunPlace::Inserted } else { RunPlace::Sorted }), why)
    }

    /// What `upper` is to be merged with in a level that is not tiered.
    fn overlapping(&self, level: usize, upper: &[PlanInput]) -> Vec<PlanInput> {
        let runs = self.version.level(level).runs.iter().enumerate();
        if !self.shape.is_two_phase(self.version, level) {
            return overlapping(runs, level, upper);
        }
        let is_drained = |run: &Arc<Run>| {
            self.version.deletion_part(level, run.group()).is_some_and(|drained| Arc::ptr_eq(drained, run))
        };
        overlapping(runs.filter(|(_, run)| !is_drained(run)), level, upper)
    }

    /// The plan of these inputs, unless they are busy or a job writes columns of theirs to their range.
    pub(crate) fn finish(
        &self,
        inputs: Vec<PlanInput>,
        output: (usize, RunPlace),
        why: (Reason, f64),
    ) -> Option<CompactionPlan> {
        let mut plan = CompactionPlan::new(self.table, self.version, inputs, output, why)?;
        if self.busy.any(plan.input_files()) {
            return None;
        }
        plan.outputs = self.output_groups(&plan);
        if self.busy.writes_to(self.table, output.0, &plan.range, &plan.outputs) {
            return None;
        }
        plan.grandparents = grandparents(self.version, &plan);
        plan.cut_keys = self.cut_keys(&plan);
        plan.target_file_size = self.shape.options.target_file_size;
        plan.max_grandparent_bytes = self.shape.options.max_compaction_bytes;
        plan.is_trivial_move = self.can_move(&plan);
        Some(plan)
    }

    /// Where sibling groups have files in a level that is not tiered: its cut keys, those of the inputs' files
    /// included.
    fn cut_keys(&self, plan: &CompactionPlan) -> Vec<Vec<u8>> {
        let level = self.version.level(plan.output_level);
        let holds = |run: &&Arc<Run>| !run.overlapping(&plan.range).is_empty();
        let mut groups = level.runs.iter().filter(holds).map(|run| run.group());
        let Some(first) = groups.next().filter(|_| !self.shape.is_tiered(plan.output_level)) else {
            return Vec::new();
        };
        if groups.all(|group| group == first) {
            return Vec::new();
        }
        self.version.cut_keys(plan.output_level, &plan.range)
    }

    /// Step 5 of `shaped`.
    fn can_move(&self, plan: &CompactionPlan) -> bool {
        let below: u64 = plan.grandparents.iter().map(|file| file.size).sum();
        plan.inputs.iter().all(|input| input.level != plan.output_level)
            && below <= self.shape.options.max_compaction_bytes
            && plan.has_the_outputs_groups()
            && plan.inputs_are_disjoint()
            && !plan.sheds_deletes()
    }

    /// Step 6 of `shaped`: the plan with its inputs' groups, where it would change them and may leave that for later.
    fn deferring(&self, plan: CompactionPlan) -> CompactionPlan {
        if plan.has_the_outputs_groups() || plan.input_bytes() > self.deferrable_bytes {
            return plan;
        }
        let Some(outputs) = separate_groups(&plan) else { return plan };
        let mut plan = CompactionPlan { outputs, is_deferring: true, ..plan };
        plan.is_trivial_move = self.can_move(&plan);
        plan
    }

    /// Step 4 of `shaped`.
    fn output_groups(&self, plan: &CompactionPlan) -> Vec<Unit> {
        let whole = &self.shape.whole_rows;
        let mut held = ColumnSet::new();
        let mut sources: Vec<&ColumnSet> = Vec::new();
        for file in plan.input_files() {
            let columns = file.group.as_ref().map_or(&whole.columns, |group| &group.columns);
            if !sources.contains(&columns) {
                held = held.union(columns);
                sources.push(columns);
            }
        }
        let mut outputs = Vec::new();
        for group in &self.shape.layout.level(plan.output_level).groups {
            let columns = group.columns.intersection(&held);
            if columns.is_empty() && !whole.columns.is_empty() {
                continue;
            }
            let pieces = if can_join(self.version, plan, &columns) { vec![columns] } else { refine(columns, &sources) };
            outputs.extend(pieces.into_iter().map(|columns| Group::new(columns, group.format)));
        }
        outputs.into_iter().map(|group| (group != *whole).then(|| Arc::new(group))).collect()
    }
}

/// The column groups of a plan's inputs; `None` if two of them share a column, or one lacks columns or has some that
/// the table has no more, as nothing is written.
fn separate_groups(plan: &CompactionPlan) -> Option<Vec<Unit>> {
    let mut found: Vec<&Arc<FileMeta>> = Vec::new();
    for file in plan.input_files() {
        if file.group.as_ref().is_some_and(|group| !group.is_as_written()) {
            return None;
        }
        match found.iter().find(|known| known.shares_columns(file)) {
            Some(known) if known.group != file.group => return None,
            Some(_) => {}
            None => found.push(file),
        }
    }
    Some(found.into_iter().map(|file| file.group.clone()).collect())
}

/// Bytes of an entry on average.
fn width<'a>(files: impl Iterator<Item = &'a Arc<FileMeta>>) -> f64 {
    let (bytes, entries) = files.fold((0u64, 0u64), |(bytes, entries), file| {
        (bytes + file.size, entries + file.entry_count + file.range_delete_count)
    });
    bytes as f64 / entries.max(1) as f64
}

/// Cuts `columns` so that every source has all columns of a piece or none.
fn refine(columns: ColumnSet, sources: &[&ColumnSet]) -> Vec<ColumnSet> {
    let mut pieces = vec![columns];
    for source in sources {
        let cut = |piece: ColumnSet| [piece.intersection(source), piece.difference(source)];
        let has_one = |piece: &ColumnSet| piece.is_empty() || piece.is_subset(source);
        pieces = pieces
            .into_iter()
            .flat_map(|piece| if has_one(&piece) { vec![piece] } else { Vec::from(cut(piece)) })
            .filter(|piece| !piece.is_empty())
            .collect();
    }
    // A table of keys alone has one group, without columns.
    if pieces.is_empty() { vec![ColumnSet::new()] } else { pieces }
}

/// Whether rows of `columns` can be put together from the inputs: nothing older of these columns lies outside, and what
/// else lies in the plan's range holds all of them or none.
fn can_join(version: &Version, plan: &CompactionPlan, columns: &ColumnSet) -> bool {
    if plan.older.iter().flatten().any(|file| file.overlaps_columns(columns)) {
        return false;
    }
    let inputs: HashSet<FileNumber> = plan.input_files().map(|file| file.number).collect();
    version.levels.iter().flat_map(|level| level.overlapping(&plan.range)).all(|file| {
        let whole_or_none = file
            .group
            .as_ref()
            .is_none_or(|group| columns.is_subset(&group.columns) || !columns.overlaps(&group.columns));
        whole_or_none || inputs.contains(&file.number)
    })
}

/// The files of the run below that shares a column with the inputs and is the largest: outputs are cut at their
/// borders.
fn grandparents(version: &Version, plan: &CompactionPlan) -> Vec<Arc<FileMeta>> {
    let shares = |file: &FileMeta| plan.input_files().any(|input| input.shares_columns(file));
    let below = version.level(plan.output_level + 1).runs.iter();
    let below = below.filter(|run| run.files.first().is_some_and(|file| shares(file)));
    let largest = below.max_by_key(|run| run.overlapping(&plan.range).iter().map(|file| file.size).sum::<u64>());
    largest.map(|run| run.overlapping(&plan.range).to_vec()).unwrap_or_default()
}
