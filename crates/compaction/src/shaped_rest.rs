//! What a table with a layout does while nobody writes: transformations that wait are made, and runs are merged for
//! readers.
//!
//! Tiered levels keep several runs per column group, which a read asks one by one, and whose data have not been
//! transformed as far as the layout says. That is what writers gain by (Mycelium §3.3); at rest nobody does. First what
//! there is of
//!
//! 1. runs that kept their groups because compaction was behind ([`crate::Deferral`]): each is transformed in its
//!    place;
//! 2. tiered units, from level 0 down, that the next level has in other groups or another format, and tiered: all their
//!    runs go there. Every entry takes this way once, now or later;
//! 3. tiered units with several runs: the newest are merged in their place, as many as have an oldest one that is
//!    hardly larger than the others together, unless all are apart in keys. So what is merged again has nearly doubled
//!    in between, whatever the pauses are (as level 0 of tables without a layout, docs/decisions/0021). Not those that
//!    are due and only wait until the way down is free.
//!
//! 4. two-phase units, from level 1 down: file by file they go down as if the level were full (dLSM §VI, aggressive
//!    compaction), and the compaction buffer with them, as long as a file rewrites at most fan-out times its bytes, as
//!    when it were due.
//!
//! Nothing else goes down into a leveled level for being at rest: what that rewrites only a full unit is worth.
//!
//! A tiered unit waits for jobs further up that hold some of its columns: what they write would come too late to go
//! with it, and its siblings, for which it comes in time, would have other runs (in_step.rs).

use mycelium_manifest::{Run, RunPlace};

use crate::in_step::whole_batches;
use crate::newest;
use crate::picker::Picker;
use crate::plan::{CompactionPlan, PlanInput, Reason};
use crate::units::{Unit, has_columns_of, units};

impl Picker<'_> {
    /// What comes next at rest. See the module.
    pub(crate) fn pick_at_rest(&self) -> Option<CompactionPlan> {
        let tiered = || (0..self.version.levels.len()).filter(|&level| self.shape.is_tiered(level));
        let tiered_units =
            || tiered().flat_map(|level| units(self.version, level).into_iter().map(move |unit| (level, unit)));
        let two_phase = || (1..self.version.levels.len()).filter(|&level| self.shape.is_two_phase(self.version, level));
        let two_phase_units =
            || two_phase().flat_map(|level| units(self.version, level).into_iter().map(move |unit| (level, unit)));
        let ready_units = || tiered_units().filter(|(level, unit)| !self.is_fed(*level, unit));
        let deferred = tiered().skip_while(|&level| level == 0).find_map(|level| self.pick_deferred(level));
        deferred
            .or_else(|| ready_units().find_map(|(level, unit)| self.pick_waiting(level, &unit)))
            .or_else(|| ready_units().find_map(|(level, unit)| self.pick_newest(level, &unit)))
            .or_else(|| two_phase_units().find_map(|(level, unit)| self.pick_draining(level, &unit)))
    }

    /// Whether a job takes columns of the unit from a level above it.
    fn is_fed(&self, level: usize, unit: &Unit) -> bool {
        let mut above = self.version.levels.iter().take(level).flat_map(|level| level.files());
        above.any(|file| has_columns_of(file, unit) && self.busy.contains(file.number))
    }

    /// The oldest run of a tiered level that is not in the level's groups and would be.
    fn pick_deferred(&self, level: usize) -> Option<CompactionPlan> {
        let runs = self.version.level(level).runs.iter().enumerate().rev();
        let is_deferred = |run: &Run| !self.shape.is_of_level(level, run.group());
        runs.filter(|(_, run)| is_deferred(run)).find_map(|(at, run)| {
            let inputs = vec![PlanInput { level, run: at, files: run.files.clone() }];
            let place = RunPlace::InPlaceOf(run.files.first()?.number);
            let plan = self.finish(inputs, (level, place), (Reason::Deferred, 0.0))?;
            (!plan.has_the_outputs_groups()).then_some(plan)
        })
    }

    /// All runs of a unit that are transformed on their way into the next level.
    fn pick_waiting(&self, level: usize, unit: &Unit) -> Option<CompactionPlan> {
        let output = level + 1;
        if level == self.shape.last_level(self.version) || !self.shape.is_tiered(output) {
            return None;
        }
        let plan = self.merged_down(self.free_runs(level, unit), output, (Reason::Deferred, 0.0))?;
        (!plan.has_the_outputs_groups()).then_some(plan)
    }

    /// The newest runs of a unit, in their place, unless there are enough to go down once the way is free.
    fn pick_newest(&self, level: usize, unit: &Unit) -> Option<CompactionPlan> {
        if level > 0 && level < self.shape.last_level(self.version) {
            let is_output_tiered = self.shape.is_tiered(level + 1);
            let due = whole_batches(self.free_runs(level, unit), unit, self.shape.batch(), is_output_tiered);
            if !due.is_empty() && self.pays_below(&due, level + 1) {
                return None;
            }
        }
        let plan = self.merge_newest((level, unit), newest::nearly_doubling, (Reason::AtRest, 0.0))?;
        (!plan.inputs_are_disjoint()).then_some(plan)
    }
}
