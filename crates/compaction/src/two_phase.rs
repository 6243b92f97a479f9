//! Two-phase compaction of a column group of a level (dLSM §IV-A).
//!
//! 1. A unit is up to two runs: the insertion part above, the deletion part below. What comes from the level above is
//!    merged with the insertion part alone: with half of a level on average, as it grows from nothing (§IV-C).
//! 2. What leaves for the next level are the files of the deletion part, in key order, while both parts together are
//!    over the unit's share of the level's target. Until then they lie still, so that blocks of theirs stay valid in a
//!    cache.
//! 3. When the deletion part is empty the round ends. When the insertion part is full then, or gets full later, it
//!    becomes the deletion part, and the next compaction into the level begins a new insertion part.
//! 4. The swap is made by the edit of whichever compaction is installed next, in the manifest's record of the
//!    [`Round`]; no file is touched for it. A compaction that was planned before the swap and comes after it belongs to
//!    the new insertion part: all its entries are younger than the ones that stay in the deletion part, for what it
//!    took from there is not there any more.
//! 5. After a change of the layout a level holds column groups that the layout does not have any more, and new ones
//!    over them. Nothing is rewritten for that: what is left of a group becomes its deletion part at once, full or not,
//!    so that what comes is merged with none of it and has the layout's groups; and a round begins only for a unit
//!    whose runs lie over no other that shares a column with them. Until then a unit that is due gives, instead of its
//!    own files, those of the *lowest* runs under it. So no run lies under a deletion part, and what is inserted is
//!    younger than all of these.
//! 6. A plan that takes files from an insertion part, as these may, and as at rest, when files go down as if the level
//!    were full, makes it the deletion part by that.
//! 7. Where one group has more runs than two parts, as after it was tiered, the level is closed until these are united.
//!
//! The compaction buffer follows what these compactions do (buffer.rs).
//!
//! The marker of the paper is the smallest key of the deletion part. The last level is leveled.

use std::sync::Arc;

use mycelium_base::Result;
use mycelium_manifest::{ChangedRound, Round, Run, RunPlace, Version, VersionEdit};

use crate::buffer::{begin_again, cascade};
use crate::busy::BusyFiles;
use crate::options::Buffering;
use crate::picker::Picker;
use crate::plan::{CompactionPlan, PlanInput, Reason};
use crate::shape::Shape;
use crate::units::{Unit, is_lowest, share_columns, surplus_run, units};

impl Picker<'_> {
    /// Step 2 of the module: the first free file of the deletion part, or of what lies under it.
    pub(crate) fn pick_from_deletion_part(&self, level: usize, unit: &Unit, score: f64) -> Option<CompactionPlan> {
        lowest_runs(&self.version.level(level).runs, unit).into_iter().find_map(|run| {
            let mut files = self.first_files(level, run);
            files.find_map(|input| self.merged_down(vec![input], level + 1, (Reason::LevelSize, score)))
        })
    }

    /// The first file at rest (step 6 of the module).
    pub(crate) fn pick_draining(&self, level: usize, unit: &Unit) -> Option<CompactionPlan> {
        if self.surplus_run(level).is_some() {
            return None;
        }
        let pays = |input: &PlanInput| self.pays_below(std::slice::from_ref(input), level + 1);
        lowest_runs(&self.version.level(level).runs, unit).into_iter().find_map(|run| {
            let mut paying = self.first_files(level, run).take_while(pays);
            paying.find_map(|input| self.merged_down(vec![input], level + 1, (Reason::AtRest, 0.0)))
        })
    }

    /// The free files of a run in key order, each an input.
    fn first_files(&self, level: usize, run: usize) -> impl Iterator<Item = PlanInput> {
        let files = self.version.level(level).runs.get(run).map(|run| run.files.as_slice()).unwrap_or_default();
        let free = files.iter().filter(|file| !self.busy.contains(file.number));
        free.map(move |file| PlanInput { level, run, files: vec![file.clone()] })
    }
}

/// The runs of a level whose files leave before any other for a unit to take less there, oldest first: its own oldest
/// one, or else those under it that lie over none themselves.
fn lowest_runs(runs: &[Arc<Run>], unit: &Unit) -> Vec<usize> {
    let Some(own) = runs.iter().rposition(|run| run.group() == unit.as_ref()) else { return Vec::new() };
    let mut found = vec![own];
    for at in own + 1..runs.len() {
        if found.iter().any(|&over| share_columns(&runs[over], &runs[at])) {
            found.push(at);
        }
    }
    found.retain(|&at| is_lowest(runs, at));
    found.reverse();
    found
}

/// Step 6 of the module: the version in which an insertion part from which a plan takes a file is the deletion part
/// already.
fn swapped(shape: &Shape, version: &Version, plan: &CompactionPlan) -> Option<Version> {
    let leaves = matches!(plan.reason, Reason::AtRest | Reason::LevelSize);
    let input = plan.inputs.first().filter(|input| leaves && input.level < plan.output_level)?;
    let (level, file) = (input.level, input.files.first()?);
    let group = file.group.as_ref();
    let mut own = version.level(level).runs.iter().filter(|run| run.group() == group);
    let is_taken = own.next().is_some_and(|run| run.files.iter().any(|known| known.number == file.number));
    let is_alone = own.next().is_none() && version.deletion_part(level, group).is_none();
    if !(is_taken && is_alone && shape.is_two_phase(version, level)) {
        return None;
    }
    let mut swapped = version.clone();
    let known = swapped.rounds.iter().position(|round| round.is_of(level, group)).unwrap_or_else(|| {
        swapped.rounds.push(Round { level, group: group.cloned(), ..Round::default() });
        swapped.rounds.len() - 1
    });
    let round = &mut swapped.rounds[known];
    (round.is_draining, round.deletion) = (true, round.appending.take());
    Some(swapped)
}

/// Whether a round can begin for a unit: its one run lies over no other.
fn can_begin(version: &Version, level: usize, unit: &Unit) -> bool {
    let runs = &version.level(level).runs;
    let own = runs.iter().rposition(|run| run.group() == unit.as_ref());
    surplus_run(version, level).is_none() && own.is_some_and(|at| is_lowest(runs, at))
}

/// Steps 3 to 5 of the module: adds the rounds that end or begin with an edit, which installs a plan, to the edit.
pub(crate) fn complete(
    shape: &Shape,
    buffering: Buffering,
    version: &Version,
    plan: &CompactionPlan,
    edit: &mut VersionEdit,
) -> Result<()> {
    let unchanged = version.apply(plan.table, edit)?;
    let swapped = swapped(shape, version, plan);
    let version = swapped.as_ref().unwrap_or(version);
    let after = version.apply(plan.table, edit)?;
    let nothing = BusyFiles::new();
    let picker = Picker::new(shape, plan.table, &after, &nothing);
    for level in 1..after.levels.len() {
        if !shape.is_two_phase(&after, level) {
            continue;
        }
        let scores = picker.unit_scores(level);
        for unit in units(&after, level) {
            let is_full = || scores.iter().any(|(scored, score)| *scored == unit && *score >= 1.0);
            let is_left = || !shape.is_of_level(level, unit.as_ref());
            let initial = || Round { level, group: unit.clone(), ..Round::default() };
            let before = version.round(level, unit.as_ref()).cloned().unwrap_or_else(initial);
            let mut round = before.clone();
            cascade((buffering, shape.options.most_segment_tables()), version, plan, edit, &mut round);
            if round.is_draining && is_drained(version, edit, &round) {
                (round.is_draining, round.number, round.deletion) = (false, round.number.saturating_add(1), None);
            }
            begin_again(shape.options.most_segment_tables(), &after, &mut round);
            if !round.is_draining && (is_full() || is_left()) && can_begin(&after, level, &unit) {
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
