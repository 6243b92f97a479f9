//! Compaction of tables with a layout: per level tiered, leveled or two-phase, and its own column groups (DESIGN §3).
//!
//! Leveled levels follow LASER §4.4, two-phase ones dLSM §IV-A, tiered ones Mycelium §3.3 ("tierveling": the levels
//! that a transformation leaves or enters are tiered). The unit is not the level but the column group within it:
//!
//! 1. A level's *units* are the column groups that its runs hold. What a unit may hold is its share of the level's
//!    target, divided by the width of the entries; a unit's score is what it holds over that. In a tiered level, and in
//!    level 0, it is its free runs over `level0_trigger`.
//! 2. The unit with the highest score of 1 or more comes first (LASER: the most overflowing group of the most
//!    overflowing level). A leveled unit gives the file that the [`PickPriority`] says, a tiered one all its free runs
//!    up to the first that is not free, counted from the oldest. Into a leveled level 0 gives no more at once than is
//!    worth one job, where its runs lie beside each other, as those of a bulk load do.
//! 3. What the files overlap in the output level comes along: in keys, and in columns. It may hold columns that the
//!    files do not have (under another layout): then what overlaps these comes along too.
//! 4. The output groups are those of the layout, refined so that every input holds all columns of an output group or
//!    none: a compaction never makes a group wider than its sources, for the fragments of a row may lie at different
//!    depths. Only where all older fragments are inputs, and all others that lie beside them are whole, rows are put
//!    together to a wider group. That is how a level that was split becomes one of rows again.
//! 5. Inputs that hold just the output groups and overlap nothing move without being read.
//! 6. Where compaction is behind ([`Deferral`]), what goes to a tiered level keeps its groups: merging rows as they are
//!    costs a fraction of taking them apart. The next compaction that takes them transforms them, or the first one at
//!    rest. What waits so is counted ([`CompactionPolicy::deferred_bytes`]) and limited; beyond the limit nothing is
//!    deferred.
//! 7. A tiered unit that is due goes down into a leveled level only where that rewrites at most fan-out times its
//!    bytes, as between two leveled levels. Where pauses have left it small runs (shaped_rest.rs) it does not: the
//!    newest are merged in place then, as many as lower the bytes written per run saved.
//!
//! 8. A two-phase unit gives the files of its deletion part in key order, and takes what comes from above into its
//!    insertion part (two_phase.rs). The last level is leveled whatever the layout says.
//!
//! 9. Outputs are cut at the cut keys of their level, so that groups which are compacted one by one stay aligned with
//!    their siblings (partitioner.rs).
//!
//! 10. A level that has runs which its merge policy does not leave, as after a change of the layout, is closed: nothing
//!     enters or leaves it before these runs are united, which comes before all else. Other levels are compacted
//!     meanwhile.
//!
//! Within a leveled level files that share a column never overlap in keys, whatever layouts they were written under.

use std::collections::HashSet;
use std::sync::Arc;

use mycelium_base::{ColumnSet, FileNumber, Group, GroupFormat, Result, RowFormatKind, TableId};
use mycelium_manifest::{FileMeta, KeyRange, Layout, Merge, Run, RunPlace, Version, VersionEdit};

use crate::busy::BusyFiles;
use crate::leveled::sort_candidates;
use crate::newest;
use crate::options::{Buffering, Deferral, LeveledOptions};
use crate::plan::{CompactionPlan, PlanInput, Reason};
use crate::policy::CompactionPolicy;
use crate::targets::level_count;
use crate::two_phase;

/// Compaction under a layout. See the module for the algorithm.
#[derive(Clone, Debug)]
pub struct ShapedPolicy {
    layout: Arc<Layout>,
    options: LeveledOptions,
    deferral: Option<Deferral>,
    buffering: Buffering,
    /// What files that name no group hold.
    whole_rows: Group,
}

/// A column group of a level; `None` is whole rows.
pub(crate) type Unit = Option<Arc<Group>>;

impl ShapedPolicy {
    /// The policy for tables of this layout. Of the options, base level and dynamic levels are not used: level numbers
    /// mean something in a layout, and level 1 is always the first.
    pub fn new(layout: Arc<Layout>, options: LeveledOptions) -> Self {
        let mut whole_rows = layout.level(0).groups[0].clone();
        if whole_rows.format == GroupFormat::Columnar {
            // Flushes encode rows, which are packed then.
            whole_rows.format = GroupFormat::Row(RowFormatKind::Packed);
        }
        Self { layout, options, deferral: None, buffering: Buffering::Off, whole_rows }
    }

    /// The same, which defers transformations while compaction is behind.
    #[must_use]
    pub fn deferring(self, deferral: Deferral) -> Self {
        Self { deferral: Some(deferral), ..self }
    }

    /// The same, which keeps a compaction buffer beside its two-phase levels.
    #[must_use]
    pub fn buffering_as(self, buffering: Buffering) -> Self {
        Self { buffering, ..self }
    }

    /// Tables that the segments of a part may form: eight times as many as where no key is written again within a round
    /// and each flush fills the write buffer (r). Those that go down with their rows make up half at most.
    pub(crate) fn most_tables(&self) -> usize {
        8 * (self.options.fanout.ceil() as usize).max(1)
    }

    pub(crate) fn buffering(&self) -> Buffering {
        self.buffering
    }

    /// Bytes whose transformations may be deferred in this version.
    fn deferrable_bytes(&self, version: &Version) -> u64 {
        let Some(deferral) = self.deferral else { return 0 };
        let is_behind =
            version.level(0).file_count() >= deferral.level0_files || self.debt_bytes(version) >= deferral.debt_bytes;
        let limit = version.total_bytes().saturating_mul(deferral.limit_percent) / 100;
        if is_behind { limit.saturating_sub(self.deferred_bytes(version)) } else { 0 }
    }

    /// Whether the layout has this column group in a level.
    pub(crate) fn is_of_level(&self, level: usize, group: Option<&Arc<Group>>) -> bool {
        let group = group.map_or(&self.whole_rows, |group| &**group);
        self.layout.level(level).groups.contains(group)
    }

    pub(crate) fn is_tiered(&self, level: usize) -> bool {
        self.layout.level(level).merge == Merge::Tiered
    }

    pub(crate) fn is_two_phase(&self, version: &Version, level: usize) -> bool {
        self.layout.level(level).merge == Merge::TwoPhase && level < self.last_level(version)
    }

    pub(crate) fn last_level(&self, version: &Version) -> usize {
        level_count(self.options.level_count, version) - 1
    }

    /// Whether a column group has one run in a level, for good.
    fn is_one_run(&self, version: &Version, level: usize) -> bool {
        !self.is_tiered(level) && !self.is_two_phase(version, level) && overlapping_run(version, level).is_none()
    }

    fn trigger(&self) -> f64 {
        self.options.level0_trigger.max(2) as f64
    }

    /// Target bytes of a leveled level; none for the last.
    fn target(&self, version: &Version, level: usize) -> Option<f64> {
        let growth = self.options.fanout.max(1.1).powi(level as i32 - 1);
        (level < self.last_level(version)).then(|| (self.options.base_level_bytes as f64 * growth).max(1.0))
    }

    pub(crate) fn picker<'a>(&'a self, table: TableId, version: &'a Version, busy: &'a BusyFiles) -> Picker<'a> {
        Picker { policy: self, table, version, busy, deferrable_bytes: 0 }
    }
}

impl CompactionPolicy for ShapedPolicy {
    fn pick(&self, table: TableId, version: &Version, busy: &BusyFiles) -> Option<CompactionPlan> {
        let deferrable_bytes = self.deferrable_bytes(version);
        let picker = Picker { deferrable_bytes, ..self.picker(table, version, busy) };
        let united = (1..version.levels.len()).find_map(|level| picker.unite_runs(level));
        if united.is_some() {
            return united;
        }
        let mut due: Vec<(usize, Unit, f64)> = Vec::new();
        for level in 0..version.levels.len() {
            let scores = picker.unit_scores(level).into_iter();
            due.extend(scores.filter(|(_, score)| *score >= 1.0).map(|(unit, score)| (level, unit, score)));
        }
        due.sort_by(|a, b| b.2.total_cmp(&a.2).then(a.0.cmp(&b.0)));
        due.iter().find_map(|(level, unit, score)| picker.pick_unit(*level, unit, *score))
    }

    fn pick_at_rest(&self, table: TableId, version: &Version, busy: &BusyFiles) -> Option<CompactionPlan> {
        self.picker(table, version, busy).pick_at_rest()
    }

    fn deferred_bytes(&self, version: &Version) -> u64 {
        let waits = |(level, _, file): &(usize, usize, &Arc<FileMeta>)| {
            *level > 0 && !self.is_of_level(*level, file.group.as_ref())
        };
        version.files().filter(waits).map(|(_, _, file)| file.size).sum()
    }

    fn scores(&self, version: &Version) -> Vec<f64> {
        let nothing = BusyFiles::new();
        let highest = |level| {
            self.picker(TableId(0), version, &nothing)
                .unit_scores(level)
                .iter()
                .map(|(_, score)| *score)
                .fold(0.0, f64::max)
        };
        (0..=self.last_level(version)).map(highest).collect()
    }

    fn debt_bytes(&self, version: &Version) -> u64 {
        let nothing = BusyFiles::new();
        let picker = self.picker(TableId(0), version, &nothing);
        let mut debt = 0.0;
        for level in 0..version.levels.len() {
            for (unit, score) in picker.unit_scores(level) {
                if score >= 1.0 {
                    let runs = version.level(level).runs.iter().filter(|run| run.group() == unit.as_ref());
                    let bytes: u64 = runs.map(|run| run.bytes()).sum();
                    debt += if self.is_tiered(level) { bytes as f64 } else { bytes as f64 * (1.0 - 1.0 / score) };
                }
            }
        }
        // Float to integer casts saturate.
        debt as u64
    }

    fn complete(&self, version: &Version, plan: &CompactionPlan, edit: &mut VersionEdit) -> Result<()> {
        two_phase::complete(self, version, plan, edit)
    }

    fn pick_range(
        &self,
        table: TableId,
        version: &Version,
        busy: &BusyFiles,
        range: Option<&KeyRange>,
        force: bool,
    ) -> Option<CompactionPlan> {
        let output = version.last_level()?.max(1);
        let inputs = crate::leveled::connected(version, 0..=output, range);
        let place = match inputs.iter().rev().find(|input| input.level == output).and_then(|input| input.files.first())
        {
            Some(file) if !self.is_one_run(version, output) => RunPlace::InPlaceOf(file.number),
            None if self.is_two_phase(version, output) => RunPlace::Inserted,
            None if !self.is_one_run(version, output) => RunPlace::Newest,
            _ => RunPlace::Sorted,
        };
        let mut plan = self.picker(table, version, busy).finish(inputs, (output, place), (Reason::Manual, 0.0))?;
        let is_settled = plan.inputs.iter().all(|input| input.level == output)
            && plan.has_the_outputs_groups()
            && plan.inputs_are_disjoint()
            && plan.input_files().all(|file| file.delete_count == 0 && file.range_delete_count == 0);
        if is_settled && !force {
            return None;
        }
        plan.is_trivial_move &= !force;
        Some(plan)
    }

    fn pick_level(
        &self,
        table: TableId,
        version: &Version,
        busy: &BusyFiles,
        level: usize,
        range: Option<&KeyRange>,
    ) -> Option<CompactionPlan> {
        if level >= self.last_level(version) {
            return None;
        }
        let inputs = crate::leveled::connected(version, level..=level, range);
        let picker = self.picker(table, version, busy);
        picker.unite_runs(level + 1).or_else(|| picker.merged_down(inputs, level + 1, (Reason::Manual, 0.0)))
    }
}

/// What all picks of one call go by.
pub(crate) struct Picker<'a> {
    pub(crate) policy: &'a ShapedPolicy,
    table: TableId,
    pub(crate) version: &'a Version,
    pub(crate) busy: &'a BusyFiles,
    /// Bytes of inputs that may keep their groups.
    deferrable_bytes: u64,
}

impl Picker<'_> {
    /// (unit, score) of a level.
    pub(crate) fn unit_scores(&self, level: usize) -> Vec<(Unit, f64)> {
        let units = units(self.version, level);
        let runs = &self.version.level(level).runs;
        let runs_of = |unit: &Unit| runs.iter().filter(|run| run.group() == unit.as_ref()).collect::<Vec<_>>();
        if self.policy.is_tiered(level) {
            let free = |unit: &Unit| runs_of(unit).iter().filter(|run| !self.busy.any(&run.files)).count() as f64;
            return units
                .into_iter()
                .map(|unit| {
                    let score = free(&unit) / self.policy.trigger();
                    (unit, score)
                })
                .collect();
        }
        let Some(target) = self.policy.target(self.version, level) else {
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

    /// A run that closes its level: of a leveled one that overlaps another and shares columns with it, as after it was
    /// tiered; of a two-phase one that the two phases cannot work around.
    pub(crate) fn surplus_run(&self, level: usize) -> Option<&Arc<Run>> {
        if self.policy.is_tiered(level) {
            return None;
        }
        match self.policy.is_two_phase(self.version, level) {
            true => two_phase::surplus_run(self.version, level),
            false => overlapping_run(self.version, level),
        }
    }

    /// Step 10 of the module: the runs that close a level become one, with all that share columns with them.
    fn unite_runs(&self, level: usize) -> Option<CompactionPlan> {
        let run = self.surplus_run(level)?;
        let inputs = all_runs(self.version, level, run.group().map(|group| &group.columns));
        let oldest = inputs.last()?.files.first()?.number;
        let why = (Reason::SeveralRuns, inputs.len() as f64);
        self.finish(inputs, (level, RunPlace::InPlaceOf(oldest)), why)
    }

    fn pick_unit(&self, level: usize, unit: &Unit, score: f64) -> Option<CompactionPlan> {
        if self.policy.is_tiered(level) {
            return self.pick_runs(level, unit, score);
        }
        if self.surplus_run(level).is_some() {
            return None;
        }
        if self.policy.is_two_phase(self.version, level) {
            return self.pick_from_deletion_part(level, unit, score);
        }
        let run = self.version.level(level).runs.iter().position(|run| run.group() == unit.as_ref())?;
        let mut candidates: Vec<&Arc<FileMeta>> = self.version.level(level).runs[run].files.iter().collect();
        candidates.retain(|file| !self.busy.contains(file.number));
        sort_candidates(&mut candidates, self.policy.options.priority, self.version, level);
        candidates.into_iter().find_map(|file| {
            let inputs = vec![PlanInput { level, run, files: vec![file.clone()] }];
            self.merged_down(inputs, level + 1, (Reason::LevelSize, score))
        })
    }

    /// The runs of a tiered level that share a column with the unit, from the oldest up to the first that is not free.
    pub(crate) fn free_runs(&self, level: usize, unit: &Unit) -> Vec<PlanInput> {
        let mut inputs = all_runs(self.version, level, unit.as_ref().map(|group| &group.columns));
        if let Some(newest_busy) = inputs.iter().rposition(|input| self.busy.any(&input.files)) {
            inputs.drain(..=newest_busy);
        }
        inputs
    }

    /// A due unit of a tiered level: all its free runs.
    fn pick_runs(&self, level: usize, unit: &Unit, score: f64) -> Option<CompactionPlan> {
        let mut inputs = self.free_runs(level, unit);
        if (inputs.len() as f64) < self.policy.trigger() {
            return None;
        }
        if level == 0 && !self.policy.is_tiered(1) && !self.policy.is_two_phase(self.version, 1) {
            inputs = worth_one_job(inputs, self.policy.options.max_compaction_bytes);
        }
        let why = (if level == 0 { Reason::Level0Files } else { Reason::RunCount }, score);
        if level == self.policy.last_level(self.version) {
            let oldest = inputs.last()?.files.first()?.number;
            return self.finish(inputs, (level, RunPlace::InPlaceOf(oldest)), why);
        }
        if level > 0 && !self.pays_below(&inputs, level + 1) {
            let plan = self.merge_newest((level, unit), newest::most_worth, why);
            if plan.is_some() {
                return plan;
            }
        }
        self.merged_down(inputs, level + 1, why)
    }

    /// Step 7 of the module.
    pub(crate) fn pays_below(&self, inputs: &[PlanInput], output: usize) -> bool {
        if self.policy.is_tiered(output) {
            return true;
        }
        let bytes =
            |inputs: &[PlanInput]| -> u64 { inputs.iter().flat_map(|input| &input.files).map(|file| file.size).sum() };
        let below = bytes(&self.overlapping(output, inputs));
        below as f64 <= self.policy.options.fanout * bytes(inputs) as f64
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
        if self.policy.is_tiered(output) {
            let plan = self.finish(upper, (output, RunPlace::Newest), why)?;
            return Some(self.deferring(plan));
        }
        if self.surplus_run(output).is_some() {
            return None;
        }
        upper.extend(self.overlapping(output, &upper));
        let is_two_phase = self.policy.is_two_phase(self.version, output);
        self.finish(upper, (output, if is_two_phase { RunPlace::Inserted } else { RunPlace::Sorted }), why)
    }

    /// What `upper` is to be merged with in a level that is not tiered.
    fn overlapping(&self, level: usize, upper: &[PlanInput]) -> Vec<PlanInput> {
        let runs = self.version.level(level).runs.iter().enumerate();
        if !self.policy.is_two_phase(self.version, level) {
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
        plan.target_file_size = self.policy.options.target_file_size;
        plan.max_grandparent_bytes = self.policy.options.max_compaction_bytes;
        plan.is_trivial_move = self.can_move(&plan);
        Some(plan)
    }

    /// Where sibling groups have files in a level that is not tiered: its cut keys, those of the inputs' files
    /// included.
    fn cut_keys(&self, plan: &CompactionPlan) -> Vec<Vec<u8>> {
        let level = self.version.level(plan.output_level);
        let holds = |run: &&Arc<Run>| !run.overlapping(&plan.range).is_empty();
        let mut groups = level.runs.iter().filter(holds).map(|run| run.group());
        let Some(first) = groups.next().filter(|_| !self.policy.is_tiered(plan.output_level)) else {
            return Vec::new();
        };
        if groups.all(|group| group == first) {
            return Vec::new();
        }
        self.version.cut_keys(plan.output_level, &plan.range)
    }

    /// Step 5 of the module.
    fn can_move(&self, plan: &CompactionPlan) -> bool {
        let below: u64 = plan.grandparents.iter().map(|file| file.size).sum();
        plan.inputs.iter().all(|input| input.level != plan.output_level)
            && below <= self.policy.options.max_compaction_bytes
            && plan.has_the_outputs_groups()
            && plan.inputs_are_disjoint()
            && !plan.sheds_deletes()
    }

    /// Step 6 of the module: the plan with its inputs' groups, where it would change them and may leave that for later.
    fn deferring(&self, plan: CompactionPlan) -> CompactionPlan {
        if plan.has_the_outputs_groups() || plan.input_bytes() > self.deferrable_bytes {
            return plan;
        }
        let Some(outputs) = separate_groups(&plan) else { return plan };
        let mut plan = CompactionPlan { outputs, is_deferring: true, ..plan };
        plan.is_trivial_move = self.can_move(&plan);
        plan
    }

    /// Step 4 of the module.
    fn output_groups(&self, plan: &CompactionPlan) -> Vec<Unit> {
        let whole = &self.policy.whole_rows;
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
        for group in &self.policy.layout.level(plan.output_level).groups {
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

/// The column groups that a level's runs hold.
pub(crate) fn units(version: &Version, level: usize) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    for run in &version.level(level).runs {
        if !units.iter().any(|unit| unit.as_ref() == run.group()) {
            units.push(run.group().cloned());
        }
    }
    units
}

/// The column groups of a plan's inputs; `None` if two of them share a column, or one lacks columns, which nothing is
/// written without.
fn separate_groups(plan: &CompactionPlan) -> Option<Vec<Unit>> {
    let mut found: Vec<&Arc<FileMeta>> = Vec::new();
    for file in plan.input_files() {
        if file.group.as_ref().is_some_and(|group| !group.lacking.is_empty()) {
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

/// Of runs of level 0, the oldest last, those that go down at once: all, or if they have more than `limit` bytes those
/// that overlap the oldest, directly or by way of others, and as many of their neighbours as stay within the limit.
fn worth_one_job(inputs: Vec<PlanInput>, limit: u64) -> Vec<PlanInput> {
    let parts = connected_parts(&inputs);
    let oldest = parts.iter().position(|part| part.runs.contains(&(inputs.len() - 1)));
    let Some(oldest) = oldest.filter(|_| parts.iter().map(|part| part.bytes).sum::<u64>() > limit) else {
        return inputs;
    };
    let (mut from, mut to, mut bytes) = (oldest, oldest + 1, parts[oldest].bytes);
    let fits = |bytes: u64, part: &ConnectedPart| bytes.saturating_add(part.bytes) <= limit;
    while let Some(next) = parts.get(to).filter(|next| fits(bytes, next)) {
        (to, bytes) = (to + 1, bytes + next.bytes);
    }
    while let Some(before) = parts[..from].last().filter(|before| fits(bytes, before)) {
        (from, bytes) = (from - 1, bytes + before.bytes);
    }
    let taken: HashSet<usize> = parts[from..to].iter().flat_map(|part| part.runs.iter().copied()).collect();
    let inputs = inputs.into_iter().enumerate().filter(|(at, _)| taken.contains(at));
    inputs.map(|(_, input)| input).collect()
}

/// Runs that overlap in keys, directly or by way of others.
struct ConnectedPart {
    range: KeyRange,
    /// Their places among the inputs.
    runs: Vec<usize>,
    bytes: u64,
}

/// The parts of the inputs that lie beside each other, in key order.
fn connected_parts(inputs: &[PlanInput]) -> Vec<ConnectedPart> {
    let part = |(at, input): (usize, &PlanInput)| {
        let range = KeyRange::hull(input.files.iter().map(|file| &**file))?;
        Some(ConnectedPart { range, runs: vec![at], bytes: input.files.iter().map(|file| file.size).sum() })
    };
    let mut single: Vec<ConnectedPart> = inputs.iter().enumerate().filter_map(part).collect();
    single.sort_by(|a, b| a.range.smallest.cmp(&b.range.smallest));
    let mut parts: Vec<ConnectedPart> = Vec::new();
    for next in single {
        match parts.last_mut().filter(|last| !last.range.ends_before(&next.range.smallest)) {
            Some(last) => {
                last.range.include_range(&next.range);
                last.runs.extend(next.runs);
                last.bytes = last.bytes.saturating_add(next.bytes);
            }
            None => parts.push(next),
        }
    }
    parts
}

/// All runs of a level, or those that share a column with `columns` or with another of them.
fn all_runs(version: &Version, level: usize, columns: Option<&ColumnSet>) -> Vec<PlanInput> {
    let runs = &version.level(level).runs;
    let mut taken = columns.cloned();
    loop {
        let shares = |file: &FileMeta| taken.as_ref().is_none_or(|columns| file.overlaps_columns(columns));
        let inputs = runs.iter().enumerate().filter(|(_, run)| run.files.first().is_some_and(|file| shares(file)));
        let inputs: Vec<PlanInput> =
            inputs.map(|(index, run)| PlanInput { level, run: index, files: run.files.clone() }).collect();
        let grown = grow(taken.as_ref(), inputs.iter().flat_map(|input| &input.files));
        if grown == taken {
            return inputs;
        }
        taken = grown;
    }
}

/// The columns, and those of the files; `None` is all.
fn grow<'a>(columns: Option<&ColumnSet>, files: impl Iterator<Item = &'a Arc<FileMeta>>) -> Option<ColumnSet> {
    let mut grown = columns?.clone();
    for file in files {
        grown = grown.union(&file.group.as_ref()?.columns);
    }
    Some(grown)
}

/// What `upper` overlaps in these runs of a level, in keys and in columns, and what that overlaps there, and so on.
fn overlapping<'a>(
    runs: impl Iterator<Item = (usize, &'a Arc<Run>)> + Clone,
    level: usize,
    upper: &[PlanInput],
) -> Vec<PlanInput> {
    let files = || upper.iter().flat_map(|input| &input.files);
    let Some(mut range) = KeyRange::hull(files().map(|file| &**file)) else { return Vec::new() };
    let mut columns = grow(Some(&ColumnSet::new()), files());
    loop {
        let shares = |file: &FileMeta| columns.as_ref().is_none_or(|columns| file.overlaps_columns(columns));
        let mut inputs = Vec::new();
        for (index, run) in runs.clone() {
            if run.files.first().is_some_and(|file| shares(file)) {
                inputs.push(PlanInput { level, run: index, files: run.overlapping(&range).to_vec() });
            }
        }
        inputs.retain(|input| !input.files.is_empty());
        let mut grew = false;
        for file in inputs.iter().flat_map(|input| &input.files) {
            grew |= range.include(file);
        }
        let grown = grow(columns.as_ref(), inputs.iter().flat_map(|input| &input.files));
        if !grew && grown == columns {
            return inputs;
        }
        columns = grown;
    }
}

/// Whether two runs hold a common column.
pub(crate) fn share_columns(run: &Run, other: &Run) -> bool {
    run.files.first().zip(other.files.first()).is_some_and(|(file, other)| file.shares_columns(other))
}

/// A run of a level that has another of its group beside it, or one that shares a column with it and overlaps it in
/// keys.
fn overlapping_run(version: &Version, level: usize) -> Option<&Arc<Run>> {
    let runs = &version.level(level).runs;
    let overlaps = |run: &Run, other: &Run| {
        let overlap = || run.files.iter().any(|file| !other.overlapping(&file.range()).is_empty());
        share_columns(run, other) && (run.group() == other.group() || overlap())
    };
    let found = runs.iter().enumerate().find(|(at, run)| runs[at + 1..].iter().any(|other| overlaps(run, other)));
    found.map(|(_, run)| run)
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
