//! The compaction buffer by multi-segment cascading (dLSM §IV-B): which files stay as segments when a compaction is installed.
//!
//! What a part of a two-phase level holds of a key, its segments hold uncompacted, except where they are *uncovered*
//! ([`Segments`]). The edit of a compaction keeps that so, for every column group of every two-phase level:
//!
//! 1. The files that leave the levels above for the insertion part become its newest segments, as they are; of a layout's
//!    wider groups the same file is a segment of every group that it feeds. An insertion part that begins is covered
//!    wholly; one that has begun without segments stays without.
//! 2. The inputs of the insertion part itself are rewritten in it: its segments hold what they held, and they go.
//! 3. What leaves a part any other way is uncovered in it. From the deletion part files leave in key order, so that this is all before
//!    the marker; segments that lie there wholly are shed.
//! 4. A compaction planned before the parts changed roles takes files of the deletion part into the insertion part: their
//!    ranges are uncovered in both.
//! 5. With the deletion part its segments end; the insertion part takes its own along when it becomes the deletion part
//!    (two_phase.rs).
//! 6. Whatever else is written into a level leaves both its parts without segments.
//!
//! 7. A round may last long where the same keys are written again and again: they fill no level. Where the segments of the insertion
//!    part form too many tables, its own files take their place: they stand for themselves, and those to come stand on them.
//!
//! No byte is written for any of it. [`trim`] takes segments out, which changes no answer.

use std::collections::HashSet;
use std::sync::Arc;

use mycelium_base::{FileNumber, Group, GroupFormat};
use mycelium_manifest::{FileMeta, KeyRange, Round, Run, RunPlace, Segments, Version, VersionEdit};

use crate::options::Buffering;
use crate::plan::CompactionPlan;

/// What the edit that installs a plan in `version` does to the segments of a round. See the module.
pub(crate) fn cascade(
    buffering: Buffering,
    version: &Version,
    plan: &CompactionPlan,
    edit: &VersionEdit,
    round: &mut Round,
) {
    let enters = plan.output_level == round.level && plan.outputs.contains(&round.group);
    if buffering == Buffering::Off || (enters && plan.output_place != RunPlace::Inserted) {
        (round.appending, round.deletion) = (None, None);
        return;
    }
    let group = round.group.as_ref();
    let (insertion, deletion) = (version.insertion_part(round.level, group), version.deletion_part(round.level, group));
    let gone: HashSet<FileNumber> = edit.removed_files.iter().map(|removed| removed.number).collect();
    if enters {
        if insertion.is_none() {
            round.appending = Some(Segments::default());
        }
        if let Some(appending) = &mut round.appending {
            append(buffering, plan, (round.level, group), insertion, appending);
        }
    } else if let Some(appending) = &mut round.appending {
        leave(appending, insertion, &gone);
    }
    if let Some(segments) = &mut round.deletion {
        leave(segments, deletion, &gone);
        move_marker(segments, deletion, &gone);
    }
    round.deletion = round.deletion.take().filter(|segments| !segments.files.is_empty());
}

/// Step 7, in the version after the edit.
pub(crate) fn begin_again(most_tables: usize, after: &Version, round: &mut Round) {
    let Some(appending) = &mut round.appending else { return };
    if table_count(&appending.files) <= most_tables {
        return;
    }
    let part = after.insertion_part(round.level, round.group.as_ref());
    *appending = Segments { files: part.map(|part| part.files.clone()).unwrap_or_default(), uncovered: Vec::new() };
}

/// How many tables of files that do not overlap the segments form, newest first.
fn table_count(files: &[Arc<FileMeta>]) -> usize {
    let mut tables: Vec<usize> = Vec::with_capacity(files.len());
    for (at, file) in files.iter().enumerate() {
        let newer = files[..at].iter().zip(&tables).filter(|(newer, _)| newer.overlaps(file));
        let above = newer.map(|(_, table)| *table).max().unwrap_or(0);
        tables.push(above + 1);
    }
    tables.into_iter().max().unwrap_or(0)
}

/// Steps 1, 2 and 4 for the insertion part.
fn append(
    buffering: Buffering,
    plan: &CompactionPlan,
    (level, group): (usize, Option<&Arc<Group>>),
    insertion: Option<&Arc<Run>>,
    appending: &mut Segments,
) {
    let is_own = |file: &FileMeta| insertion.is_some_and(|run| run.files.iter().any(|own| own.number == file.number));
    let mut entering = Vec::new();
    for input in &plan.inputs {
        let feeds = |file: &&Arc<FileMeta>| group.is_none_or(|group| file.overlaps_columns(&group.columns));
        for file in input.files.iter().filter(feeds) {
            if input.level < level && stays(buffering, file) {
                entering.push(file.clone());
            } else if input.level < level || !is_own(file) {
                appending.uncover(file.range());
            }
        }
    }
    appending.files.splice(..0, entering);
    appending.shed();
}

/// Whether a file that leaves its level is kept.
fn stays(buffering: Buffering, file: &FileMeta) -> bool {
    let is_columnar = file.group.as_ref().is_some_and(|group| group.format == GroupFormat::Columnar);
    buffering == Buffering::Full || !is_columnar
}

/// Step 3.
fn leave(segments: &mut Segments, part: Option<&Arc<Run>>, gone: &HashSet<FileNumber>) {
    for file in part.iter().flat_map(|part| &part.files).filter(|file| gone.contains(&file.number)) {
        segments.uncover(file.range());
    }
    segments.shed();
}

/// Uncovers all before the first file that is left of the deletion part.
fn move_marker(segments: &mut Segments, part: Option<&Arc<Run>>, gone: &HashSet<FileNumber>) {
    let mut left = part.iter().flat_map(|part| &part.files).filter(|file| !gone.contains(&file.number));
    let Some(marker) = left.next().map(|file| file.smallest.clone()) else { return };
    let starts = segments.files.iter().map(|file| &file.smallest);
    let lowest = starts.chain(segments.uncovered.first().map(|range| &range.smallest)).min().cloned();
    if let Some(smallest) = lowest.filter(|smallest| *smallest < marker) {
        segments.uncover(KeyRange { smallest, largest: marker, largest_exclusive: true });
        segments.shed();
    }
}

/// The rounds of a version without the segments that nobody needs, and then without as many of those that are in the buffer alone
/// as exceed `budget` bytes; only the rounds that change.
///
/// Where a segment goes, those that overlap it in its part stand for less, or for nothing. So an idle one goes only where all of
/// these are idle, and for the budget the ones first whose `worth`, the highest among these, is the lowest, of these the oldest.
pub fn trim(
    version: &Version,
    budget: u64,
    is_idle: impl Fn(FileNumber) -> bool,
    worth: impl Fn(FileNumber) -> u64,
) -> Vec<Round> {
    let mut trimmed = version.clone();
    let idle = |file: FileNumber| u64::from(!is_idle(file));
    let unneeded = shared_worth(version, idle).into_iter().filter(|(_, needed)| *needed == 0).map(|(file, _)| file);
    unneeded.for_each(|file| drop_segment(&mut trimmed.rounds, file));
    while trimmed.buffered_files().map(|file| file.size).sum::<u64>() > budget {
        // Deeper levels and deletion parts come last, so that the last of the least worth is the oldest.
        let least = shared_worth(&trimmed, &worth).into_iter().rev().min_by_key(|(_, worth)| *worth);
        let Some((file, _)) = least else { break };
        drop_segment(&mut trimmed.rounds, file);
    }
    let changed = trimmed.rounds.into_iter().zip(&version.rounds).filter(|(after, before)| after != *before);
    changed.map(|(round, _)| round).collect()
}

/// The files that are in the buffer alone, each with the highest worth of all segments that overlap it in a part. Parts from the
/// youngest on. O(segments² of a part).
fn shared_worth(version: &Version, worth: impl Fn(FileNumber) -> u64) -> Vec<(FileNumber, u64)> {
    let parts: Vec<Vec<(&FileMeta, u64)>> = version
        .rounds
        .iter()
        .flat_map(Round::parts)
        .map(|part| part.files.iter().map(|file| (&**file, worth(file.number))).collect())
        .collect();
    let shared = |file: &FileMeta| {
        let beside = parts.iter().filter(|part| part.iter().any(|(known, _)| known.number == file.number)).flatten();
        beside.filter(|(known, _)| known.overlaps(file)).map(|(_, worth)| *worth).max().unwrap_or_default()
    };
    version.buffered_files().map(|file| (file.number, shared(file))).collect()
}

fn drop_segment(rounds: &mut [Round], number: FileNumber) {
    for segments in rounds.iter_mut().flat_map(|round| [&mut round.appending, &mut round.deletion]).flatten() {
        segments.drop_file(number);
    }
}
