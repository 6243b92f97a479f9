//! Compaction of tables with a layout: per level tiered, leveled or two-phase, and its own column groups (DESIGN §3).
//!
//! Leveled levels follow LASER §4.4, two-phase ones dLSM §IV-A, tiered ones Mycelium §3.3 ("tierveling": the levels
//! that a transformation leaves or enters are tiered). The unit is not the level but the column group within it:
//!
//! 1. A level's *units* are the column groups that its runs hold. What a unit may hold is its share of the level's
//!    target, divided by the width of the entries; a unit's score is what it holds over that. In a tiered level, and in
//!    level 0, it is its free runs over `level0_trigger`.
//! 2. Of the levels with a unit whose score is 1 or more, the one comes first that holds most over its target, and of
//!    its units the one with the highest score (LASER: the most overflowing group of the most overflowing level); of a
//!    tiered level its highest score is the level's. A leveled unit gives the file that the [`PickPriority`] says, but
//!    first those that a sibling has given already; a tiered one its free runs up to the first that is not free,
//!    counted from the oldest: level 0 all of them, others whole batches (in_step.rs). Into a leveled level 0 gives no
//!    more at once than is worth one job, where its runs lie beside each other, as those of a bulk load do.
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
//!
//! Which unit comes first, and what it gives, is decided here; scores and plans are made in picker.rs.

use std::sync::Arc;

use mycelium_base::{Result, TableId};
use mycelium_manifest::{FileMeta, KeyRange, Layout, RunPlace, Version, VersionEdit};

use crate::busy::BusyFiles;
use crate::connected_parts::worth_one_job;
use crate::in_step::{put_lagging_first, whole_batches};
use crate::leveled::sort_candidates;
use crate::newest;
use crate::options::{Buffering, Deferral, LeveledOptions};
use crate::picker::Picker;
use crate::plan::{CompactionPlan, PlanInput, Reason};
use crate::policy::CompactionPolicy;
use crate::shape::Shape;
use crate::two_phase;
use crate::units::{Unit, all_runs};

/// Compaction under a layout. See the module for the algorithm.
#[derive(Clone, Debug)]
pub struct ShapedPolicy {
    shape: Shape,
    deferral: Option<Deferral>,
    buffering: Buffering,
}

impl ShapedPolicy {
    /// The policy for tables of this layout. Of the options, base level and dynamic levels are not used: level numbers
    /// mean something in a layout, and level 1 is always the first.
    pub fn new(layout: Arc<Layout>, options: LeveledOptions) -> Self {
        Self { shape: Shape::new(layout, options), deferral: None, buffering: Buffering::Off }
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

    /// Bytes whose transformations may be deferred in this version.
    fn deferrable_bytes(&self, version: &Version) -> u64 {
        let Some(deferral) = self.deferral else { return 0 };
        let is_behind =
            version.level(0).file_count() >= deferral.level0_files || self.debt_bytes(version) >= deferral.debt_bytes;
        let limit = version.total_bytes().saturating_mul(deferral.limit_percent) / 100;
        if is_behind { limit.saturating_sub(self.deferred_bytes(version)) } else { 0 }
    }

    fn picker<'a>(&'a self, table: TableId, version: &'a Version, busy: &'a BusyFiles) -> Picker<'a> {
        Picker::new(&self.shape, table, version, busy)
    }
}

impl CompactionPolicy for ShapedPolicy {
    fn pick(&self, table: TableId, version: &Version, busy: &BusyFiles) -> Option<CompactionPlan> {
        let picker = self.picker(table, version, busy).deferring_up_to(self.deferrable_bytes(version));
        let united = (1..version.levels.len()).find_map(|level| picker.unite_runs(level));
        if united.is_some() {
            return united;
        }
        let due_of = |level| {
            let mut units = picker.unit_scores(level);
            let overflow = picker.level_score(level, &units);
            units.retain(|(_, score)| *score >= 1.0);
            units.sort_by(|(_, a), (_, b)| b.total_cmp(a));
            (level, overflow, units)
        };
        let mut levels: Vec<_> = (0..version.levels.len()).map(due_of).collect();
        // As sorts are stable, of two that overflow alike the upper one comes first.
        levels.sort_by(|(_, a, _), (_, b, _)| b.total_cmp(a));
        let due =
            levels.iter().flat_map(|(level, _, units)| units.iter().map(move |(unit, score)| (*level, unit, *score)));
        due.into_iter().find_map(|(level, unit, score)| picker.pick_unit(level, unit, score))
    }

    fn pick_at_rest(&self, table: TableId, version: &Version, busy: &BusyFiles) -> Option<CompactionPlan> {
        self.picker(table, version, busy).pick_at_rest()
    }

    fn deferred_bytes(&self, version: &Version) -> u64 {
        let waits = |(level, _, file): &(usize, usize, &Arc<FileMeta>)| {
            *level > 0 && !self.shape.is_of_level(*level, file.group.as_ref())
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
        (0..=self.shape.last_level(version)).map(highest).collect()
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
                    debt += if self.shape.is_tiered(level) { bytes as f64 } else { bytes as f64 * (1.0 - 1.0 / score) };
                }
            }
        }
        // Float to integer casts saturate.
        debt as u64
    }

    fn complete(&self, version: &Version, plan: &CompactionPlan, edit: &mut VersionEdit) -> Result<()> {
        two_phase::complete(&self.shape, self.buffering, version, plan, edit)
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
            Some(file) if !self.shape.is_one_run(version, output) => RunPlace::InPlaceOf(file.number),
            None if self.shape.is_two_phase(version, output) => RunPlace::Inserted,
            None if !self.shape.is_one_run(version, output) => RunPlace::Newest,
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
        if level >= self.shape.last_level(version) {
            return None;
        }
        let inputs = crate::leveled::connected(version, level..=level, range);
        let picker = self.picker(table, version, busy);
        picker.unite_runs(level + 1).or_else(|| picker.merged_down(inputs, level + 1, (Reason::Manual, 0.0)))
    }
}

impl Picker<'_> {
    /// Step 10 of the module: the runs that close a level become one, with all that share columns with them.
    fn unite_runs(&self, level: usize) -> Option<CompactionPlan> {
        let run = self.surplus_run(level)?;
        let inputs = all_runs(self.version, level, run.group().map(|group| &group.columns));
        let oldest = inputs.last()?.files.first()?.number;
        let why = (Reason::SeveralRuns, inputs.len() as f64);
        self.finish(inputs, (level, RunPlace::InPlaceOf(oldest)), why)
    }

    fn pick_unit(&self, level: usize, unit: &Unit, score: f64) -> Option<CompactionPlan> {
        if self.shape.is_tiered(level) {
            return self.pick_runs(level, unit, score);
        }
        if self.surplus_run(level).is_some() {
            return None;
        }
        if self.shape.is_two_phase(self.version, level) {
            return self.pick_from_deletion_part(level, unit, score);
        }
        let run = self.version.level(level).runs.iter().position(|run| run.group() == unit.as_ref())?;
        let mut candidates: Vec<&Arc<FileMeta>> = self.version.level(level).runs[run].files.iter().collect();
        candidates.retain(|file| !self.busy.contains(file.number));
        sort_candidates(&mut candidates, self.shape.options.priority, self.version, level);
        put_lagging_first(&mut candidates, self.version, level);
        candidates.into_iter().find_map(|file| {
            let inputs = vec![PlanInput { level, run, files: vec![file.clone()] }];
            self.merged_down(inputs, level + 1, (Reason::LevelSize, score))
        })
    }

    /// A due unit of a tiered level: all its free runs.
    fn pick_runs(&self, level: usize, unit: &Unit, score: f64) -> Option<CompactionPlan> {
        let mut inputs = self.free_runs(level, unit);
        if (inputs.len() as f64) < self.shape.trigger() {
            return None;
        }
        if level == 0 && !self.shape.is_tiered(1) && !self.shape.is_two_phase(self.version, 1) {
            inputs = worth_one_job(inputs, self.shape.options.max_compaction_bytes);
        }
        let why = (if level == 0 { Reason::Level0Files } else { Reason::RunCount }, score);
        if level == self.shape.last_level(self.version) {
            let oldest = inputs.last()?.files.first()?.number;
            return self.finish(inputs, (level, RunPlace::InPlaceOf(oldest)), why);
        }
        if level > 0 {
            inputs = whole_batches(inputs, unit, self.shape.batch(), self.shape.is_tiered(level + 1));
            if inputs.is_empty() {
                return None;
            }
        }
        if level > 0 && !self.pays_below(&inputs, level + 1) {
            let plan = self.merge_newest((level, unit), newest::most_worth, why);
            if plan.is_some() {
                return plan;
            }
        }
        self.merged_down(inputs, level + 1, why)
    }
}
