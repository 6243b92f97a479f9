//! Leveled compaction: one run per level, each level `fanout` times the size of the one above.
//!
//! Algorithm of [`LeveledPolicy::pick`]:
//! 1. Targets and base level follow from the version ([`LevelTargets`]). A level's score is its bytes that are not
//!    being compacted over its target; that of level 0 its free files over `level0_trigger`.
//! 2. Levels with a score of 1 or more are tried from the highest score down, until one yields a plan:
//!    - level 0: from the oldest free file on, the file and transitively all that overlap it (so that none jumps over
//!      another in age), together with what they overlap in the base level. Where that is more than twice their bytes
//!      (a table that takes a small share of the writes has small files) it waits: the newest files of level 0 are
//!      merged within it, as many as hold files that have nearly doubled since they were merged;
//!    - other levels: the free files in the order of the [`PickPriority`], each with what it overlaps one level down.
//!
//!    A candidate is passed over if any file concerned is busy, or if a running job writes into its range.
//! 3. Grow: files of the upper level that overlap the range of the lower inputs come along if they add nothing to the
//!    lower level's inputs and the whole stays within `max_compaction_bytes`. They would have to be merged with the
//!    same files later: that merge is saved.
//! 4. Inputs that overlap nothing in the output level, and not too much below it, move without being read, unless half
//!    of their entries are deletes that a rewrite would drop.
//! 5. If level 0 is due and has `level0_pileup` files but the way into the base level is busy, its newest files are
//!    merged within level 0 as long as each further file lowers the bytes written per file saved.
//! 6. At rest ([`LeveledPolicy::pick_at_rest`]) readers gain where level 0 is one file: as many of its newest files are
//!    merged in their place as have an oldest one that is hardly larger than the others together, unless all are apart
//!    in keys. So what is merged again has nearly doubled in between.
//! 7. A level below 0 that has several runs, as after the table was tiered, is closed: nothing enters or leaves it
//!    before they are united, which comes before all else. Other levels are compacted meanwhile.
//!
//! Files of a run do not share keys (outputs are cut between keys only), so that a file is a clean cut by itself.

use std::cmp::Reverse;
use std::sync::Arc;

use mycelium_base::TableId;
use mycelium_manifest::{FileMeta, KeyRange, RunPlace, Version};

use crate::busy::BusyFiles;
use crate::newest;
use crate::options::{LeveledOptions, PickPriority};
use crate::plan::{CompactionPlan, PlanInput, Reason, input_of, overlapping_level, whole_level};
use crate::policy::CompactionPolicy;
use crate::targets::LevelTargets;

/// The fewest files worth a compaction within level 0.
const MIN_LEVEL0_MERGE: usize = 4;

/// The most bytes of the base level that a byte of level 0 may have rewritten.
const MAX_REWRITE: u64 = 2;

/// Leveled compaction. See the module for the algorithm.
#[derive(Clone, Debug, Default)]
pub struct LeveledPolicy {
    options: LeveledOptions,
}

/// What one call looks at.
struct Picker<'a> {
    options: &'a LeveledOptions,
    table: TableId,
    version: &'a Version,
    busy: &'a BusyFiles,
    targets: LevelTargets,
}

impl LeveledPolicy {
    /// The policy with these options.
    pub fn new(options: LeveledOptions) -> Self {
        Self { options }
    }

    /// The options.
    pub fn options(&self) -> &LeveledOptions {
        &self.options
    }

    /// Base level and target sizes for a version.
    pub fn targets(&self, version: &Version) -> LevelTargets {
        LevelTargets::new(&self.options, version)
    }

    fn picker<'a>(&'a self, table: TableId, version: &'a Version, busy: &'a BusyFiles) -> Picker<'a> {
        Picker { options: &self.options, table, version, busy, targets: self.targets(version) }
    }
}

impl CompactionPolicy for LeveledPolicy {
    fn pick(&self, table: TableId, version: &Version, busy: &BusyFiles) -> Option<CompactionPlan> {
        let picker = self.picker(table, version, busy);
        let united = (1..version.levels.len()).find_map(|level| picker.unite_runs(level));
        if united.is_some() {
            return united;
        }
        let mut due: Vec<(usize, f64)> =
            picker.scores().into_iter().enumerate().filter(|(_, score)| *score >= 1.0).collect();
        due.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        for &(level, score) in &due {
            let plan = if level == 0 { picker.pick_level0(score) } else { picker.pick_file(level, score) };
            if plan.is_some() {
                return plan;
            }
        }
        let level0 = due.iter().find(|(level, _)| *level == 0)?;
        picker.pick_within_level0(level0.1)
    }

    fn pick_at_rest(&self, table: TableId, version: &Version, busy: &BusyFiles) -> Option<CompactionPlan> {
        self.picker(table, version, busy).pick_level0_at_rest()
    }

    fn scores(&self, version: &Version) -> Vec<f64> {
        self.picker(TableId(0), version, &BusyFiles::new()).scores()
    }

    fn debt_bytes(&self, version: &Version) -> u64 {
        debt(&self.options, &self.targets(version), version)
    }

    fn pick_range(
        &self,
        table: TableId,
        version: &Version,
        busy: &BusyFiles,
        range: Option<&KeyRange>,
        force: bool,
    ) -> Option<CompactionPlan> {
        let picker = self.picker(table, version, busy);
        let output = version.last_level()?.max(picker.targets.base_level);
        let inputs = connected(version, 0..=output, range);
        if !force && is_settled(&inputs, output) {
            return None;
        }
        let mut plan = picker.finish(inputs, output, (Reason::Manual, 0.0))?;
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
        let picker = self.picker(table, version, busy);
        let output = if level == 0 { picker.targets.base_level } else { level + 1 };
        if level > 0 && output >= picker.targets.bytes.len() {
            return None;
        }
        let mut inputs = connected(version, level..=level, range);
        let hull = hull_of(&inputs)?;
        inputs.extend(connected(version, output..=output, Some(&hull)));
        picker.finish(inputs, output, (Reason::Manual, 0.0))
    }
}

impl Picker<'_> {
    fn scores(&self) -> Vec<f64> {
        let mut scores = vec![0.0; self.targets.bytes.len()];
        let free = self.version.level(0).files().filter(|f| !self.busy.contains(f.number)).count();
        scores[0] = free as f64 / self.options.level0_trigger.max(1) as f64;
        for (level, &target) in self.targets.bytes.iter().enumerate().skip(1) {
            let files = self.version.level(level).files().filter(|f| !self.busy.contains(f.number));
            let free: u64 = files.map(|f| f.size).sum();
            scores[level] = if target == u64::MAX { 0.0 } else { free as f64 / target as f64 };
        }
        scores
    }

    /// Step 7 of the module.
    fn is_closed(&self, level: usize) -> bool {
        level > 0 && self.version.level(level).runs.len() > 1
    }

    /// A closed level is brought back to one run.
    fn unite_runs(&self, level: usize) -> Option<CompactionPlan> {
        if !self.is_closed(level) {
            return None;
        }
        let inputs = whole_level(self.version, level);
        let oldest = inputs.last()?.files.first()?.number;
        let range = hull_of(&inputs)?;
        if self.busy.any(inputs.iter().flat_map(|i| &i.files))
            || self.busy.writes_to(self.table, level, &range, &[None])
        {
            return None;
        }
        let place = RunPlace::InPlaceOf(oldest);
        let mut plan = CompactionPlan::new(
            self.table,
            self.version,
            inputs,
            (level, place),
            (Reason::SeveralRuns, self.version.level(level).runs.len() as f64),
        )?;
        plan.is_trivial_move = plan.inputs_are_disjoint();
        self.set_sizes(&mut plan);
        Some(plan)
    }

    fn pick_level0(&self, score: f64) -> Option<CompactionPlan> {
        let output = self.targets.base_level;
        if self.is_closed(output) {
            return None;
        }
        let runs = &self.version.level(0).runs;
        let seeds = runs.iter().rev().flat_map(|run| &run.files).filter(|f| !self.busy.contains(f.number));
        let mut tried: Vec<KeyRange> = Vec::new();
        for seed in seeds {
            if tried.iter().any(|range| seed.overlaps_range(range)) {
                continue;
            }
            let (inputs, hull) = closure(self.version, 0, seed.range());
            if let Some(plan) = self.with_output_level(inputs, &hull, output, (Reason::Level0Files, score)) {
                let within = || self.merge_within_level0(2, newest::most_worth, (Reason::Level0Small, score));
                return if pays(&plan) { Some(plan) } else { within().or(Some(plan)) };
            }
            tried.push(hull);
        }
        None
    }

    fn pick_file(&self, level: usize, score: f64) -> Option<CompactionPlan> {
        if self.is_closed(level) || self.is_closed(level + 1) {
            return None;
        }
        let run = self.version.level(level).runs.first()?;
        let mut candidates: Vec<&Arc<FileMeta>> = run.files.iter().filter(|f| !self.busy.contains(f.number)).collect();
        sort_candidates(&mut candidates, self.options.priority, self.version, level);
        candidates.into_iter().find_map(|file| {
            let inputs = vec![input_of(level, 0, std::slice::from_ref(file))];
            self.with_output_level(inputs, &file.range(), level + 1, (Reason::LevelSize, score))
        })
    }

    /// Adds what `inputs` (of one level) overlap in the output level, grows the upper side, and checks what is busy.
    fn with_output_level(
        &self,
        upper: Vec<PlanInput>,
        upper_hull: &KeyRange,
        output: usize,
        why: (Reason, f64),
    ) -> Option<CompactionPlan> {
        if self.busy.any(upper.iter().flat_map(|i| &i.files)) {
            return None;
        }
        let lower = overlapping_level(self.version, output, upper_hull);
        if self.busy.any(lower.iter().flat_map(|i| &i.files)) {
            return None;
        }
        let upper = self.grow(upper, &lower, output);
        let inputs = upper.into_iter().chain(lower).collect();
        self.finish(inputs, output, why)
    }

    /// The upper inputs with more files of their level that are free, add nothing to `lower` and keep the whole within
    /// the size limit.
    fn grow(&self, upper: Vec<PlanInput>, lower: &[PlanInput], output: usize) -> Vec<PlanInput> {
        let lower: Vec<&Arc<FileMeta>> = lower.iter().flat_map(|i| &i.files).collect();
        let level = upper.first().map_or(0, |i| i.level);
        let Some(below) = KeyRange::hull(lower.iter().map(|f| &***f)) else { return upper };
        if level == 0 {
            return self.grow_level0(upper, &lower, output);
        }
        let (Some(input), Some(run)) = (upper.first(), self.version.level(level).runs.first()) else { return upper };
        let Some(first) = input.files.first() else { return upper };
        let mut from = run.lower_bound(&first.smallest);
        let mut to = from + input.files.len();
        let mut bytes: u64 = lower.iter().copied().chain(&input.files).map(|f| f.size).sum();
        let mut joins = |file: &Arc<FileMeta>| {
            let mut touched = self.version.level(output).runs.iter().flat_map(|r| r.overlapping(&file.range()));
            bytes = bytes.saturating_add(file.size);
            file.overlaps_range(&below)
                && !self.busy.contains(file.number)
                && bytes <= self.options.max_compaction_bytes
                && touched.all(|t| lower.iter().any(|l| l.number == t.number))
        };
        while from > 0 && joins(&run.files[from - 1]) {
            from -= 1;
        }
        while to < run.files.len() && joins(&run.files[to]) {
            to += 1;
        }
        vec![input_of(level, 0, &run.files[from..to])]
    }

    /// All of level 0 that is connected with the range of the inputs, or just `upper`.
    fn grow_level0(&self, upper: Vec<PlanInput>, lower: &[&Arc<FileMeta>], output: usize) -> Vec<PlanInput> {
        let all = upper.iter().flat_map(|i| &i.files).chain(lower.iter().copied());
        let Some(hull) = KeyRange::hull(all.map(|f| &**f)) else { return upper };
        let (grown, _) = closure(self.version, 0, hull);
        let Some(range) = hull_of(&grown) else { return upper };
        let bytes: u64 = grown.iter().flat_map(|i| &i.files).chain(lower.iter().copied()).map(|f| f.size).sum();
        let below: usize = overlapping_level(self.version, output, &range).iter().map(|i| i.files.len()).sum();
        let fits = bytes <= self.options.max_compaction_bytes && below == lower.len();
        if fits && !self.busy.any(grown.iter().flat_map(|i| &i.files)) { grown } else { upper }
    }

    /// The plan of these inputs, unless they are busy or a job writes to their range.
    fn finish(&self, inputs: Vec<PlanInput>, output: usize, why: (Reason, f64)) -> Option<CompactionPlan> {
        let place = match inputs.iter().rev().find(|i| i.level == output).and_then(|i| i.files.first()) {
            Some(file) if self.version.level(output).runs.len() > 1 => RunPlace::InPlaceOf(file.number),
            None if self.version.level(output).runs.len() > 1 => RunPlace::Newest,
            _ => RunPlace::Sorted,
        };
        let mut plan = CompactionPlan::new(self.table, self.version, inputs, (output, place), why)?;
        if self.busy.any(plan.input_files()) || self.busy.writes_to(self.table, output, &plan.range, &[None]) {
            return None;
        }
        self.set_sizes(&mut plan);
        let reads_output_level = plan.inputs.iter().any(|i| i.level == output);
        let below: u64 = plan.grandparents.iter().map(|f| f.size).sum();
        plan.is_trivial_move = !reads_output_level
            && below <= self.options.max_compaction_bytes
            && plan.inputs_are_disjoint()
            && !plan.sheds_deletes();
        Some(plan)
    }

    fn set_sizes(&self, plan: &mut CompactionPlan) {
        plan.target_file_size = self.options.target_file_size;
        plan.max_grandparent_bytes = self.options.max_compaction_bytes;
    }

    /// Merges the newest files of level 0, since the way into the base level is busy.
    fn pick_within_level0(&self, score: f64) -> Option<CompactionPlan> {
        let runs = &self.version.level(0).runs;
        if runs.len() < self.options.level0_pileup.max(MIN_LEVEL0_MERGE) {
            return None;
        }
        self.merge_within_level0(MIN_LEVEL0_MERGE, newest::cheapest, (Reason::Level0Pileup, score))
    }

    /// Merges the most of the newest files of level 0 whose oldest is at most a quarter larger than the others
    /// together.
    fn pick_level0_at_rest(&self) -> Option<CompactionPlan> {
        let plan = self.merge_within_level0(2, newest::nearly_doubling, (Reason::AtRest, 0.0))?;
        (!plan.inputs_are_disjoint()).then_some(plan)
    }

    /// Merges as many of the newest files of level 0 as `count` says of their bytes and the limit, but `at_least` so
    /// many.
    fn merge_within_level0(
        &self,
        at_least: usize,
        count: impl FnOnce(&[u64], u64) -> usize,
        why: (Reason, f64),
    ) -> Option<CompactionPlan> {
        let files: Vec<&Arc<FileMeta>> = self.version.level(0).runs.iter().flat_map(|r| &r.files).collect();
        let free = files.iter().take_while(|f| !self.busy.contains(f.number));
        let sizes: Vec<u64> = free.map(|f| f.size).collect();
        let span = count(&sizes, self.options.max_compaction_bytes);
        if span < at_least { None } else { self.merge_newest(&files[..span], why) }
    }

    /// Merges the newest files of level 0 into one, in their place.
    fn merge_newest(&self, files: &[&Arc<FileMeta>], why: (Reason, f64)) -> Option<CompactionPlan> {
        let inputs: Vec<PlanInput> =
            files.iter().enumerate().map(|(i, file)| input_of(0, i, std::slice::from_ref(*file))).collect();
        let range = hull_of(&inputs)?;
        if self.busy.writes_to(self.table, 0, &range, &[None]) {
            return None;
        }
        let place = RunPlace::InPlaceOf(files.last()?.number);
        let mut plan = CompactionPlan::new(self.table, self.version, inputs, (0, place), why)?;
        // One output: several would be as many files of level 0.
        plan.grandparents.clear();
        Some(plan)
    }
}

/// Whether a plan from level 0 down is worth what it rewrites.
fn pays(plan: &CompactionPlan) -> bool {
    let bytes = |is_upper: bool| -> u64 {
        let inputs = plan.inputs.iter().filter(|input| (input.level == 0) == is_upper);
        inputs.flat_map(|input| &input.files).map(|file| file.size).sum()
    };
    bytes(false) <= bytes(true).saturating_mul(MAX_REWRITE)
}

/// Puts the files of a level in the order in which they are to be picked. Among equals the one that has waited longest
/// comes first, or the same corner of the key space would be picked again and again.
pub(crate) fn sort_candidates(
    candidates: &mut [&Arc<FileMeta>],
    priority: PickPriority,
    version: &Version,
    level: usize,
) {
    let age = |file: &FileMeta| (file.min_sequence, file.created_at_edit, file.number);
    match priority {
        PickPriority::OldestFirst => candidates.sort_by_key(|file| age(file)),
        PickPriority::LargestFirst => candidates.sort_by_key(|file| (Reverse(compensated_size(file)), age(file))),
        PickPriority::MinOverlap => {
            let below = version.level(level + 1);
            candidates.sort_by_cached_key(|file| {
                let range = file.range();
                let overlap: u64 = below.overlapping(&range).filter(|f| f.shares_columns(file)).map(|f| f.size).sum();
                (u128::from(overlap) * 1024 / u128::from(compensated_size(file).max(1)), age(file))
            });
        }
    }
}

/// The size that orders files, larger where deletes outweigh other entries: such a file frees space below.
pub(crate) fn compensated_size(file: &FileMeta) -> u64 {
    let deletes = file.delete_count.saturating_add(file.range_delete_count);
    let entries = file.entry_count.saturating_add(file.range_delete_count).max(1);
    let surplus = deletes.saturating_mul(2).saturating_sub(entries);
    let entry_size = file.size / entries;
    file.size.saturating_add(surplus.saturating_mul(entry_size).saturating_mul(2))
}

fn hull_of(inputs: &[PlanInput]) -> Option<KeyRange> {
    KeyRange::hull(inputs.iter().flat_map(|i| &i.files).map(|f| &**f))
}

/// All files of a level that overlap `range`, or overlap one that does, and so on; and the range they fill together
/// with `range`. Only level 0 needs more than one round.
fn closure(version: &Version, level: usize, mut range: KeyRange) -> (Vec<PlanInput>, KeyRange) {
    loop {
        let inputs = overlapping_level(version, level, &range);
        let mut grew = false;
        for file in inputs.iter().flat_map(|i| &i.files) {
            grew |= range.include(file);
        }
        if !grew {
            return (inputs.into_iter().filter(|i| !i.files.is_empty()).collect(), range);
        }
    }
}

/// What has to go along when `range` (all keys if `None`) of the levels is merged down: run by run from the youngest,
/// the files that overlap `range` or any file taken from a younger run.
pub(crate) fn connected(
    version: &Version,
    levels: std::ops::RangeInclusive<usize>,
    range: Option<&KeyRange>,
) -> Vec<PlanInput> {
    let Some(range) = range else { return levels.flat_map(|level| whole_level(version, level)).collect() };
    let mut range = range.clone();
    let mut inputs = Vec::new();
    for level in levels {
        for (index, run) in version.level(level).runs.iter().enumerate() {
            let files = run.overlapping(&range).to_vec();
            for file in &files {
                range.include(file);
            }
            if !files.is_empty() {
                inputs.push(PlanInput { level, run: index, files });
            }
        }
    }
    inputs
}

/// Whether the inputs are one run of the output level already, without deletes.
pub(crate) fn is_settled(inputs: &[PlanInput], output: usize) -> bool {
    let mut files = inputs.iter().flat_map(|i| &i.files);
    inputs.iter().filter(|i| !i.files.is_empty()).count() <= 1
        && inputs.iter().all(|i| i.files.is_empty() || i.level == output)
        && files.all(|f| f.delete_count == 0 && f.range_delete_count == 0)
}

/// Bytes to rewrite until no level is due: level 0 with the base level, then each level's excess with what it overlaps
/// on average one level down, the excess carried on.
fn debt(options: &LeveledOptions, targets: &LevelTargets, version: &Version) -> u64 {
    let level0 = version.level(0);
    let mut carried = 0u64;
    let mut debt = 0u64;
    if level0.file_count() >= options.level0_trigger.max(1) {
        carried = level0.bytes();
        debt = carried.saturating_add(version.level_bytes(targets.base_level));
    }
    for level in targets.base_level..targets.bytes.len() {
        let target = targets.bytes[level];
        let size = version.level_bytes(level).saturating_add(carried);
        if target == u64::MAX || size <= target {
            break;
        }
        let excess = size - target;
        let below = version.level_bytes(level + 1);
        debt = debt.saturating_add((excess as f64 * (1.0 + below as f64 / size as f64)) as u64);
        carried = excess;
    }
    debt
}
