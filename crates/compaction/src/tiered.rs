//! Tiered compaction: every level holds up to `runs_per_level` runs; a full level becomes one run of the next.
//!
//! Algorithm of [`TieredPolicy::pick`]:
//! 1. If all runs but the oldest together exceed `max_space_amplification_percent` of the oldest, and there are at
//!    least `runs_per_level` runs, everything is merged into one run of the deepest level with data.
//! 2. Else the level with the highest score (free runs over `runs_per_level`, due at 1) is merged: all its free runs
//!    into the newest run of the next level. The last level merges with itself, in place.
//! 3. Runs stay in the order of their age: a level is not merged while an earlier merge into the same output level
//!    still runs, and only an unbroken row of its oldest runs is taken.
//! 4. Runs that do not overlap each other become one run without being read.
//! 5. At rest ([`TieredPolicy::pick_at_rest`]) the newest runs of a level are merged in their place, as many as have an
//!    oldest one that is hardly larger than the others together, unless all are apart in keys: readers have fewer runs
//!    to look in, and what is merged again has nearly doubled in between.

use mycelium_base::TableId;
use mycelium_manifest::{KeyRange, RunPlace, Version};

use crate::busy::BusyFiles;
use crate::leveled::{connected, is_settled};
use crate::newest;
use crate::options::TieredOptions;
use crate::plan::{CompactionPlan, PlanInput, Reason, whole_level};
use crate::policy::CompactionPolicy;
use crate::targets::level_count;

/// Tiered compaction. See the module for the algorithm.
#[derive(Clone, Debug, Default)]
pub struct TieredPolicy {
    options: TieredOptions,
}

impl TieredPolicy {
    /// The policy with these options.
    pub fn new(options: TieredOptions) -> Self {
        Self { options }
    }

    /// The options.
    pub fn options(&self) -> &TieredOptions {
        &self.options
    }

    fn runs_per_level(&self) -> usize {
        self.options.runs_per_level.max(2)
    }

    /// Bytes of all runs but the oldest, in percent of the oldest; `None` with fewer than two runs.
    fn space_amplification_percent(&self, version: &Version) -> Option<f64> {
        let runs: Vec<u64> = version.levels.iter().flat_map(|l| &l.runs).map(|r| r.bytes()).collect();
        let (oldest, younger) = runs.split_last()?;
        if younger.is_empty() {
            return None;
        }
        Some(younger.iter().sum::<u64>() as f64 * 100.0 / (*oldest).max(1) as f64)
    }

    fn pick_everything(&self, table: TableId, version: &Version, busy: &BusyFiles) -> Option<CompactionPlan> {
        let percent = self.space_amplification_percent(version)?;
        let runs: usize = version.levels.iter().map(|l| l.runs.len()).sum();
        let limit = self.options.max_space_amplification_percent.max(1) as f64;
        if percent <= limit || runs < self.runs_per_level() {
            return None;
        }
        let output = version.last_level()?.max(1);
        let inputs = connected(version, 0..=output, None);
        self.finish(table, version, busy, inputs, output, (Reason::SpaceAmplification, percent / limit))
    }

    /// The level's oldest runs up to the first busy one; none if a running merge takes or brings some of the level's
    /// output.
    fn pick_runs(
        &self,
        table: TableId,
        version: &Version,
        busy: &BusyFiles,
        level: usize,
        score: f64,
    ) -> Option<CompactionPlan> {
        let last = level_count(self.options.level_count, version) - 1;
        let output = if level >= last { level } else { level + 1 };
        let mut inputs = whole_level(version, level);
        if let Some(newest_busy) = inputs.iter().rposition(|i| busy.any(&i.files)) {
            inputs.drain(..=newest_busy);
        }
        if inputs.len() < self.runs_per_level() {
            return None;
        }
        self.finish(table, version, busy, inputs, output, (Reason::RunCount, score))
    }

    /// Step 5 of the module, for one level.
    fn pick_newest(&self, table: TableId, version: &Version, busy: &BusyFiles, level: usize) -> Option<CompactionPlan> {
        let mut inputs = whole_level(version, level);
        let free = inputs.iter().take_while(|input| !busy.any(&input.files));
        let sizes: Vec<u64> = free.map(|input| input.files.iter().map(|file| file.size).sum()).collect();
        inputs.truncate(newest::nearly_doubling(&sizes, u64::MAX));
        if inputs.len() < 2 {
            return None;
        }
        let mut plan = self.finish(table, version, busy, inputs, level, (Reason::AtRest, 0.0))?;
        if level == 0 {
            // One output: several would be as many runs.
            plan.target_file_size = u64::MAX;
            plan.grandparents.clear();
        }
        (!plan.inputs_are_disjoint()).then_some(plan)
    }

    fn finish(
        &self,
        table: TableId,
        version: &Version,
        busy: &BusyFiles,
        inputs: Vec<PlanInput>,
        output: usize,
        why: (Reason, f64),
    ) -> Option<CompactionPlan> {
        let replaced = inputs.iter().rev().filter(|i| i.level == output).find_map(|i| i.files.first());
        let place = replaced.map_or(RunPlace::Newest, |file| RunPlace::InPlaceOf(file.number));
        let mut plan = CompactionPlan::new(table, version, inputs, (output, place), why)?;
        if busy.any(plan.input_files()) || busy.writes_to(table, output, &plan.range, &[None]) {
            return None;
        }
        plan.target_file_size = self.options.target_file_size;
        plan.is_trivial_move = plan.inputs_are_disjoint() && !plan.sheds_deletes();
        Some(plan)
    }
}

impl CompactionPolicy for TieredPolicy {
    fn pick(&self, table: TableId, version: &Version, busy: &BusyFiles) -> Option<CompactionPlan> {
        if let Some(plan) = self.pick_everything(table, version, busy) {
            return Some(plan);
        }
        let mut due: Vec<(usize, f64)> =
            self.scores(version).into_iter().enumerate().filter(|(_, score)| *score >= 1.0).collect();
        due.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        due.into_iter().find_map(|(level, score)| self.pick_runs(table, version, busy, level, score))
    }

    fn pick_at_rest(&self, table: TableId, version: &Version, busy: &BusyFiles) -> Option<CompactionPlan> {
        (0..version.levels.len()).find_map(|level| self.pick_newest(table, version, busy, level))
    }

    fn scores(&self, version: &Version) -> Vec<f64> {
        let count = level_count(self.options.level_count, version);
        (0..count).map(|level| version.level(level).runs.len() as f64 / self.runs_per_level() as f64).collect()
    }

    fn debt_bytes(&self, version: &Version) -> u64 {
        let limit = self.options.max_space_amplification_percent.max(1) as f64;
        let runs: usize = version.levels.iter().map(|l| l.runs.len()).sum();
        if runs >= self.runs_per_level() && self.space_amplification_percent(version).is_some_and(|p| p > limit) {
            return version.total_bytes();
        }
        let full = version.levels.iter().filter(|l| l.runs.len() >= self.runs_per_level());
        full.map(|l| l.bytes()).sum()
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
        let inputs = connected(version, 0..=output, range);
        if !force && is_settled(&inputs, output) {
            return None;
        }
        let mut plan = self.finish(table, version, busy, inputs, output, (Reason::Manual, 0.0))?;
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
        let last = level_count(self.options.level_count, version) - 1;
        let inputs = connected(version, level..=level, range);
        let output = if level >= last { level } else { level + 1 };
        self.finish(table, version, busy, inputs, output, (Reason::Manual, 0.0))
    }
}
