//! Two-phase compaction of a column group of a level (dLSM §IV-A).
//!
//! 1. A unit is up to two runs: the insertion part above, the deletion part below. What comes from the level above is merged with
//!    the insertion part alone: with half of a level on average, as it grows from nothing (§IV-C).
//! 2. What leaves for the next level are the files of the deletion part, in key order, while both parts together are over the
//!    unit's share of the level's target. Until then they lie still, so that blocks of theirs stay valid in a cache.
//! 3. When the deletion part is empty the round ends. When the insertion part is full then, or gets full later, it becomes the
//!    deletion part, and the next compaction into the level begins a new insertion part.
//! 4. The swap is made by the edit of whichever compaction is installed next, in the manifest's record of the
//!    [`Round`]; no file is touched for it. A compaction that was planned before the swap and comes after it belongs to
//!    the new insertion part: all its entries are younger than the ones that stay in the deletion part, for what it
//!    took from there is not there any more.
//! 5. A level that holds other runs than these, as after a change of the layout, is united first, and no round begins.
//! 6. At rest the files go down as if the level were full, and an insertion part without a deletion part becomes one by that.
//!
//! The compaction buffer follows what these compactions do (buffer.rs).
//!
//! The marker of the paper is the smallest key of the deletion part. The last level is leveled.

use std::sync::Arc;

use mycelium_base::Result;
use mycelium_manifest::{ChangedRound, Round, Run, RunPlace, Version, VersionEdit};

use crate::buffer::{begin_again, cascade};
use crate::busy::BusyFiles;
use crate::plan::{CompactionPlan, PlanInput, Reason};
use crate::shaped::{Picker, ShapedPolicy, Unit, units};

impl Picker<'_> {
    /// Step 2 of the module: the first free file of the deletion part.
    pub(crate) fn pick_from_deletion_part(&self, level: usize, unit: &Unit, score: f64) -> Option<CompactionPlan> {
        let part = self.version.deletion_part(level, unit.as_ref())?;
        self.first_files(level, part)
            .find_map(|input| self.merged_down(vec![input], level + 1, (Reason::LevelSize, score)))
    }

    /// The first file at rest: of the deletion part, or of the insertion part, which becomes it (step 6 of the module).
    pub(crate) fn pick_draining(&self, level: usize, unit: &Unit) -> Option<CompactionPlan> {
        if surplus_run(self.version, level).is_some() {
            return None;
        }
        let part = self.version.deletion_part(level, unit.as_ref());
        let part = part.or_else(|| self.version.insertion_part(level, unit.as_ref()))?;
        let pays = |input: &PlanInput| self.pays_below(std::slice::from_ref(input), level + 1);
        let mut paying = self.first_files(level, part).take_while(pays);
        paying.find_map(|input| self.merged_down(vec![input], level + 1, (Reason::AtRest, 0.0)))
    }

    /// The free files of a part in key order, each an input.
    fn first_files(&self, level: usize, part: &Arc<Run>) -> impl Iterator<Item = PlanInput> {
        let run = self.version.level(level).runs.iter().position(|run| Arc::ptr_eq(run, part)).unwrap_or_default();
        let free = part.files.iter().filter(|file| !self.busy.contains(file.number));
        free.map(move |file| PlanInput { level, run, files: vec![file.clone()] })
    }
}

/// Step 6 of the module: the version in which the insertion part is the deletion part already from which a plan takes files at rest.
fn swapped_at_rest(version: &Version, plan: &CompactionPlan) -> Option<Version> {
    let input = plan.inputs.first().filter(|input| plan.reason == Reason::AtRest && input.level < plan.output_level)?;
    let (level, file) = (input.level, input.files.first()?);
    let is_taken = |run: &Arc<Run>| run.files.iter().any(|known| known.number == file.number);
    version.insertion_part(level, file.group.as_ref()).filter(|part| is_taken(part))?;
    let mut swapped = version.clone();
    let initial = || Round { level, group: file.group.clone(), ..Round::default() };
    let round = match swapped.rounds.iter_mut().find(|round| round.is_of(level, file.group.as_ref())) {
        Some(round) => round,
        None => {
            swapped.rounds.push(initial());
            swapped.rounds.last_mut()?
        }
    };
    if round.is_draining {
        return None;
    }
    (round.is_draining, round.deletion) = (true, round.appending.take());
    Some(swapped)
}

/// A run of a two-phase level that is neither part of its column group, or shares columns with another group's.
pub(crate) fn surplus_run(version: &Version, level: usize) -> Option<&Arc<Run>> {
    let runs = &version.level(level).runs;
    let parts = |unit| if version.deletion_part(level, unit).is_some() { 2 } else { 1 };
    runs.iter().find(|run| {
        let own = runs.iter().filter(|other| other.group() == run.group()).count();
        let shares = |other: &Run| run.files.first().zip(other.files.first()).is_some_and(|(a, b)| a.shares_columns(b));
        own > parts(run.group()) || runs.iter().any(|other| other.group() != run.group() && shares(other))
    })
}

/// Steps 3 and 4 of the module: adds the rounds that end or begin with an edit, which installs a plan, to the edit.
pub(crate) fn complete(
    policy: &ShapedPolicy,
    version: &Version,
    plan: &CompactionPlan,
    edit: &mut VersionEdit,
) -> Result<()> {
    let unchanged = version.apply(plan.table, edit)?;
    let swapped = swapped_at_rest(version, plan);
    let version = swapped.as_ref().unwrap_or(version);
    let after = version.apply(plan.table, edit)?;
    let nothing = BusyFiles::new();
    let picker = policy.picker(plan.table, &after, &nothing);
    for level in 1..after.levels.len() {
        if !policy.is_two_phase(&after, level) {
            continue;
        }
        let scores = picker.unit_scores(level);
        for unit in units(&after, level) {
            let is_full = || scores.iter().any(|(scored, score)| *scored == unit && *score >= 1.0);
            let initial = || Round { level, group: unit.clone(), ..Round::default() };
            let before = version.round(level, unit.as_ref()).cloned().unwrap_or_else(initial);
            let mut round = before.clone();
            cascade((policy.buffering(), policy.most_tables()), version, plan, edit, &mut round);
            if round.is_draining && is_drained(version, edit, &round) {
                (round.is_draining, round.number, round.deletion) = (false, round.number + 1, None);
            }
            begin_again(policy.most_tables(), &after, &mut round);
            if !round.is_draining && surplus_run(&after, level).is_none() && is_full() {
                (round.is_draining, round.deletion) = (true, round.appending.take());
            }
            if round != unchanged.round(level, unit.as_ref()).cloned().unwrap_or_else(initial) {
                edit.rounds.push(ChangedRound { table: plan.table, round: round.to_record() });
            }
        }
    }
    Ok(())
}

/// Whether the edit takes the last files out of the deletion part and puts nothing in their place.
fn is_drained(version: &Version, edit: &VersionEdit, round: &Round) -> bool {
    let Some(part) = version.deletion_part(round.level, round.group.as_ref()) else { return true };
    let removes = |number| edit.removed_files.iter().any(|removed| removed.number == number);
    let replaces = |number| {
        let mut added = edit.added_files.iter().filter(|added| added.level == round.level);
        added.any(|added| added.place == RunPlace::InPlaceOf(number))
    };
    part.files.iter().all(|file| removes(file.number) && !replaces(file.number))
}
