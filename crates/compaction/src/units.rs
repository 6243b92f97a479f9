//! The column groups of a level as its runs hold them, whatever the layout says: its *units*.
//!
//! Units may share columns, as after a change of the layout. So what a compaction takes along, and which run lies over
//! which, goes by columns and not by groups.

use std::sync::Arc;

use mycelium_base::{ColumnSet, Group};
use mycelium_manifest::{FileMeta, KeyRange, Run, Version};

use crate::plan::PlanInput;

/// A column group of a level; `None` is whole rows.
pub(crate) type Unit = Option<Arc<Group>>;

/// Whether a file has columns of a unit.
pub(crate) fn has_columns_of(file: &FileMeta, unit: &Unit) -> bool {
    unit.as_ref().is_none_or(|group| file.overlaps_columns(&group.columns))
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

/// All runs of a level, or those that share a column with `columns` or with another of them.
pub(crate) fn all_runs(version: &Version, level: usize, columns: Option<&ColumnSet>) -> Vec<PlanInput> {
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
pub(crate) fn overlapping<'a>(
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
pub(crate) fn overlapping_run(version: &Version, level: usize) -> Option<&Arc<Run>> {
    let runs = &version.level(level).runs;
    let overlaps = |run: &Run, other: &Run| {
        let overlap = || run.files.iter().any(|file| !other.overlapping(&file.range()).is_empty());
        share_columns(run, other) && (run.group() == other.group() || overlap())
    };
    let found = runs.iter().enumerate().find(|(at, run)| runs[at + 1..].iter().any(|other| overlaps(run, other)));
    found.map(|(_, run)| run)
}

/// Whether a run lies over no other of the level that shares a column with it, whatever the keys: an insertion part
/// under a deletion part would take in what is younger than all that this holds.
pub(crate) fn is_lowest(runs: &[Arc<Run>], at: usize) -> bool {
    !runs[at + 1..].iter().any(|under| share_columns(&runs[at], under))
}

/// A run of a two-phase level that is neither part of its column group, or a deletion part that lies over another run.
pub(crate) fn surplus_run(version: &Version, level: usize) -> Option<&Arc<Run>> {
    let runs = &version.level(level).runs;
    let found = runs.iter().enumerate().find(|(at, run)| {
        let own = runs.iter().filter(|other| other.group() == run.group()).count();
        match version.deletion_part(level, run.group()) {
            Some(part) => own > 2 || (Arc::ptr_eq(part, run) && !is_lowest(runs, *at)),
            None => own > 1,
        }
    });
    found.map(|(_, run)| run)
}
