//! Column groups that go down in step.
//!
//! The groups of a level are compacted one by one (LASER §4.4), and the papers leave open what of a group goes down.
//! If each group were left to itself, rows would soon have some of their groups in one level and others in the next,
//! and who reads several groups would merge them key by key, where siblings that hold the same keys are gone through
//! side by side. So
//!
//! 1. a tiered group gives whole *batches*, the oldest first: as many runs as make a level due, whatever has gathered
//!    while it waited for its turn. Every group then has the same rows in its runs, and at rest the same runs;
//! 2. a leveled group gives those files first in whose range it *lags* behind a sibling: the more, the fewer entries a
//!    sibling has left there. Only among files that lag alike the [`PickPriority`](crate::PickPriority) decides.
//!
//! Groups that are patched more often than others have more entries everywhere: all their files lag alike, and the
//! priority decides.

use std::cmp::Reverse;
use std::sync::Arc;

use mycelium_manifest::{FileMeta, Version};

use crate::plan::PlanInput;
use crate::units::{Unit, has_columns_of};

/// How finely it is told how far a file lags.
const LAGS: u64 = 8;

/// Brings files of a group of `level` to the front by how far they lag behind its siblings'. O(files · siblings · log
/// files).
pub(crate) fn put_lagging_first(candidates: &mut [&Arc<FileMeta>], version: &Version, level: usize) {
    // The sort is stable.
    candidates.sort_by_cached_key(|file| Reverse(lag(file, version, level)));
}

/// How many of the file's entries the sibling that is furthest ahead has given already, in eighths.
fn lag(file: &FileMeta, version: &Version, level: usize) -> u64 {
    let runs = version.level(level).runs.iter();
    let siblings = runs.filter(|run| run.files.first().is_some_and(|other| !other.shares_columns(file)));
    let left = siblings.map(|run| run.overlapping(&file.range()).iter().map(|other| other.entry_count).sum::<u64>());
    let given = left.min().map_or(0, |fewest| file.entry_count.saturating_sub(fewest));
    given.saturating_mul(LAGS) / file.entry_count.max(1)
}

/// Of the runs that share columns with a tiered unit, newest first, those that go down: the oldest of them up to the
/// `batch`-th with columns of the unit, and what one job wrote with that; into a level that is not tiered as many
/// batches as there are, since all become one run there. None if there is no whole batch.
///
/// Runs that kept their groups ([`Deferral`](crate::Deferral)) count for every unit that they have columns of: for its
/// siblings, which were transformed at once, there are as many.
pub(crate) fn whole_batches(
    mut runs: Vec<PlanInput>,
    unit: &Unit,
    batch: usize,
    is_output_tiered: bool,
) -> Vec<PlanInput> {
    let holds = |run: &PlanInput| run.files.first().is_some_and(|file| has_columns_of(file, unit));
    let of_unit: Vec<usize> = (0..runs.len()).filter(|&at| holds(&runs[at])).collect();
    let most = if is_output_tiered { of_unit.len().min(batch) } else { of_unit.len() };
    let taken = most / batch * batch;
    let Some(newest) = of_unit.get(of_unit.len() - taken).copied().filter(|_| taken > 0) else { return Vec::new() };
    let edit = |at: usize| runs[at].files.first().map(|file| file.created_at_edit);
    let first = (0..newest).rev().take_while(|&at| edit(at) == edit(newest)).last().unwrap_or(newest);
    runs.split_off(first)
}
