//! The compaction buffer by multi-segment cascading (dLSM §IV-B): which files stay as segments when a compaction is
//! installed.
//!
//! What a part of a two-phase level holds of a key, its segments hold uncompacted, except where they are *uncovered*
//! ([`Segments`]). The edit of a compaction keeps that so, for every column group of every two-phase level:
//!
//! 1. The files that leave the levels above for the insertion part become its newest segments, as they are; of a
//!    layout's wider groups the same file is a segment of every group that it feeds. An insertion part that begins is
//!    covered wholly; one that has begun without segments stays without. Instead of a file of the deletion part above,
//!    the segments that stand for it there may enter, within its range. That is so where the plan says that reads use
//!    them ([`CompactionPlan::used_segments`]). So blocks whose rows are read stay where they are for one level more,
//!    and these rows are not put beside the others of the file. Ranges reach up to the next file, and so meet. Where
//!    all segments of one meet those of the one before, they are joined. So this makes as many tables as the level
//!    above has; it is done while a part has no more than half of what it may. Where the insertion part is uncovered
//!    there, as by segments that nobody read, its own inputs, as they were, stand below them, and cover the range
//!    again.
//! 2. The inputs of the insertion part itself are rewritten in it: its segments hold what they held, and they go.
//! 3. What leaves a part any other way is uncovered in it. From the deletion part files leave in key order, so that
//!    this is all before the marker; segments that lie there wholly are shed.
//! 4. A compaction planned before the parts changed roles takes files of the deletion part into the insertion part:
//!    their ranges are uncovered in both.
//! 5. With the deletion part its segments end; the insertion part takes its own along when it becomes the deletion part
//!    (two_phase.rs).
//! 6. Whatever else is written into a level leaves both its parts without segments.
//!
//! 7. A round may last long where the same keys are written again and again: they fill no level. Where the segments of
//!    the insertion part form too many tables, its own files take their place: they stand for themselves, and those to
//!    come stand on them. A part without files has no segments.
//!
//! No byte is written for any of it. [`trim`] takes segments out, which changes no answer.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

use mycelium_base::limits::MAX_KEY_LEN;
use mycelium_base::{FileNumber, Group, GroupFormat};
use mycelium_manifest::{FileMeta, KeyRange, Round, Run, RunPlace, Segment, Segments, Version, VersionEdit};

use crate::options::Buffering;
use crate::plan::{CompactionPlan, PlanInput};

/// What the edit that installs a plan in `version` does to the segments of a round. See the module.
pub(crate) fn cascade(
    (buffering, most_tables): (Buffering, usize),
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
            let above = Above { buffering, version, plan, gone: &gone, insertion, most_tables: most_tables / 2 };
            append(&above, (round.level, group), appending);
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

/// Step 7, in the version after the edit, which does not know yet whether the round drains still. Segments of an
/// insertion part without files, of which a compaction left nothing, stand for nothing: named by the manifest, but held
/// by no tree, their files would be removed.
pub(crate) fn begin_again(most_tables: usize, after: &Version, round: &mut Round) {
    let mut runs = after.level(round.level).runs.iter().filter(|run| run.group() == round.group.as_ref());
    let part = if round.is_draining && runs.clone().count() < 2 { None } else { runs.next() };
    let Some(part) = part else {
        round.appending = None;
        return;
    };
    if round.appending.as_ref().is_some_and(|appending| table_count(&appending.files) > most_tables) {
        let files = part.files.iter().map(|file| file.clone().into()).collect();
        round.appending = Some(Segments { files, uncovered: Vec::new() });
    }
}

/// How many tables of files that do not overlap the segments form, newest first.
fn table_count(segments: &[Segment]) -> usize {
    let mut tables: Vec<usize> = Vec::with_capacity(segments.len());
    for (at, segment) in segments.iter().enumerate() {
        let newer = segments[..at].iter().zip(&tables).filter(|(newer, _)| newer.overlaps(segment));
        let above = newer.map(|(_, table)| *table).max().unwrap_or(0);
        tables.push(above + 1);
    }
    tables.into_iter().max().unwrap_or(0)
}

/// What step 1 has to know of the levels above.
struct Above<'a> {
    buffering: Buffering,
    version: &'a Version,
    plan: &'a CompactionPlan,
    /// The files that the edit takes out.
    gone: &'a HashSet<FileNumber>,
    /// The part that its files enter.
    insertion: Option<&'a Arc<Run>>,
    /// Tables that a part may form after segments entered it in the place of a file.
    most_tables: usize,
}

/// Steps 1, 2 and 4 for the insertion part.
fn append(above: &Above<'_>, (level, group): (usize, Option<&Arc<Group>>), appending: &mut Segments) {
    let (mut entering, mut left_out) = (Vec::new(), Vec::new());
    for input in &above.plan.inputs {
        let feeds = |file: &&Arc<FileMeta>| group.is_none_or(|group| file.overlaps_columns(&group.columns));
        for file in input.files.iter().filter(feeds) {
            if input.level < level && above.inherits(input, file, group, appending) {
                continue;
            }
            if input.level < level && stays(above.buffering, file) {
                entering.push(file.clone().into());
            } else if input.level < level || !above.is_own(file) {
                left_out.push(file.range());
            }
        }
    }
    // After ranges were covered again: what does that knows nothing of these files.
    left_out.into_iter().for_each(|range| appending.uncover(range));
    appending.files.splice(..0, entering);
    appending.shed();
}

impl Above<'_> {
    /// Whether a file is in the insertion part.
    fn is_own(&self, file: &FileMeta) -> bool {
        self.insertion.is_some_and(|run| run.files.iter().any(|own| own.number == file.number))
    }

    /// Puts the segments that stand for a file in the level above into `appending`, if they are to and can; whether
    /// they were.
    fn inherits(
        &self,
        input: &PlanInput,
        file: &Arc<FileMeta>,
        group: Option<&Arc<Group>>,
        appending: &mut Segments,
    ) -> bool {
        // Of several files from above the newest would have to come first.
        let is_alone =
            input.files.len() == 1 && self.plan.inputs.iter().filter(|other| other.level == input.level).count() == 1;
        let is_wanted = self.plan.used_segments.contains(&file.number);
        if !is_wanted || !is_alone || file.group.as_ref() != group || input.level + 1 != self.plan.output_level {
            return false;
        }
        let Some((segments, range)) = self.segments_of(input.level, file) else { return false };
        let entering: Vec<Segment> = segments.files.iter().filter_map(|segment| segment.narrowed(&range)).collect();
        let mut after = appending.clone();
        if entering.is_empty() || !self.is_covered_again(&mut after, file) {
            return false;
        }
        after.files = joined(&after.files, &entering).unwrap_or_else(|| [&entering, &*after.files].concat());
        if table_count(&after.files) > self.most_tables {
            return false;
        }
        *appending = after;
        true
    }

    /// Has `appending` say within the range of a file from above what the insertion part has there before the edit, if
    /// it can.
    fn is_covered_again(&self, appending: &mut Segments, file: &FileMeta) -> bool {
        let range = file.range();
        if !appending.uncovered.iter().any(|uncovered| uncovered.overlaps(&range)) {
            return true;
        }
        let own: Vec<&Arc<FileMeta>> =
            self.insertion.iter().flat_map(|run| &run.files).filter(|own| own.overlaps_range(&range)).collect();
        let stays = |own: &&Arc<FileMeta>| self.gone.contains(&own.number) && stays(self.buffering, own);
        // Of the deletion part it would have what that has not yet lost.
        let mut inputs = self.plan.inputs.iter().filter(|input| input.level == self.plan.output_level);
        let is_plain = inputs.all(|input| input.files.iter().all(|input| self.is_own(input)));
        if !is_plain || !own.iter().all(stays) || range.largest.len() >= MAX_KEY_LEN {
            return false;
        }
        appending.begin_anew(&range);
        appending.files.extend(own.into_iter().filter_map(|own| Segment::from(own.clone()).narrowed(&range)));
        true
    }

    /// The segments that say all that the deletion part has in a range which holds the keys of one of its files and of
    /// no other.
    fn segments_of(&self, level: usize, file: &FileMeta) -> Option<(&Segments, KeyRange)> {
        let group = file.group.as_ref();
        let part = self.version.deletion_part(level, group)?;
        let at = part.files.iter().position(|own| own.number == file.number)?;
        let segments = self.version.round(level, group)?.deletion.as_ref()?;
        let mut range = file.range();
        // Up to the next file, or to what others have taken out already.
        let after = part.files[at + 1..].iter().find(|next| !self.gone.contains(&next.number));
        let left = segments.uncovered.iter().find(|left| !left.ends_before(&range.smallest));
        if left.is_some_and(|left| left.overlaps(&range)) {
            return None;
        }
        let ends = after.map(|next| &next.smallest).into_iter().chain(left.map(|left| &left.smallest));
        if let Some(end) = ends.min() {
            (range.largest, range.largest_exclusive) = (end.clone(), true);
        }
        Some((segments, range))
    }
}

/// `segments` with each of `entering` joined to what there is of its file, if all can be: they stand behind none that
/// is newer.
fn joined(segments: &[Segment], entering: &[Segment]) -> Option<Vec<Segment>> {
    let mut after = segments.to_vec();
    let mut from = 0;
    for entering in entering {
        let (at, joined) =
            segments.iter().enumerate().skip(from).find_map(|(at, known)| Some((at, known.joined(entering)?)))?;
        (after[at], from) = (joined, at + 1);
    }
    let is_of_them = |known: &Segment| entering.iter().any(|entering| entering.file.number == known.file.number);
    let newer = segments[..from].iter().filter(|known| !is_of_them(known));
    let is_first = newer.into_iter().all(|known| entering.iter().all(|entering| !known.overlaps(entering)));
    is_first.then_some(after)
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
    let starts = segments.files.iter().map(Segment::smallest);
    let lowest =
        starts.chain(segments.uncovered.first().map(|range| range.smallest.as_slice())).min().map(<[u8]>::to_vec);
    if let Some(smallest) = lowest.filter(|smallest| *smallest < marker) {
        segments.uncover(KeyRange { smallest, largest: marker, largest_exclusive: true });
        segments.shed();
    }
}

/// The rounds of each of these versions, of tables of one database, without the segments that nobody needs, and then
/// without as many of those that are in a buffer alone as exceed `budget` bytes, all together; only the rounds that
/// change.
///
/// Where a segment goes, those that overlap it in its part stand for less, or for nothing. So an idle one goes only
/// where all of these are idle, and for the budget the ones first whose `worth`, the highest among these as they are
/// before any goes, is the lowest, of these the oldest.
///
/// Asks for the worth of each segment once. O(segments) where all stay; O(segments² of a part) where some are idle, or
/// where the budget is exceeded, and O(segments of its version) for each that leaves.
pub fn trim(
    versions: &[&Version],
    budget: u64,
    is_idle: impl Fn(FileNumber) -> bool,
    worth: impl Fn(FileNumber) -> u64,
) -> Vec<Vec<Round>> {
    let mut all: Vec<Trimming<'_>> = versions.iter().copied().map(Trimming::new).collect();
    all.iter_mut().for_each(|trimming| trimming.drop_idle(&is_idle));
    let mut bytes: u64 = all.iter().map(|trimming| trimming.bytes).sum();
    if bytes > budget {
        all.iter_mut().for_each(|trimming| trimming.line_up(&worth));
    }
    while bytes > budget {
        let first = all.iter_mut().filter_map(|trimming| Some((*trimming.leaving.last()?, trimming)));
        let Some((_, first)) = first.min_by_key(|(least, _)| *least) else { break };
        bytes = bytes.saturating_sub(first.drop_next());
    }
    all.into_iter().map(Trimming::changed).collect()
}

/// What is left of the rounds of a version.
struct Trimming<'v> {
    before: &'v [Round],
    /// The same while nothing has left.
    after: Cow<'v, [Round]>,
    /// The files that are in the buffer alone, as [`Version::buffered_files`] has them.
    alone: Vec<&'v Arc<FileMeta>>,
    /// The bytes of those of them that are left.
    bytes: u64,
    /// Those that may have to leave, with their worth: the last one first.
    leaving: Vec<(u64, FileNumber)>,
}

impl<'v> Trimming<'v> {
    fn new(version: &'v Version) -> Self {
        let before = version.rounds.as_slice();
        let alone: Vec<&Arc<FileMeta>> = version.buffered_files().collect();
        let bytes = alone.iter().map(|file| file.size).sum();
        Self { before, after: Cow::Borrowed(before), alone, bytes, leaving: Vec::new() }
    }

    /// Takes out what nobody needs.
    fn drop_idle(&mut self, is_idle: impl Fn(FileNumber) -> bool) {
        // Most often there is none, and what the segments overlap need not be looked for.
        if !self.alone.iter().any(|file| is_idle(file.number)) {
            return;
        }
        let needed = shared_worth(self.before, &self.alone, |file| u64::from(!is_idle(file)));
        needed.into_iter().filter(|(need, _)| *need == 0).for_each(|(_, file)| self.drop_file(file));
    }

    /// Puts what is left into the order in which it has to leave.
    fn line_up(&mut self, worth: impl Fn(FileNumber) -> u64) {
        self.leaving = shared_worth(&self.after, &self.alone, worth);
        // Deeper levels and deletion parts come last: of several of one worth they are the oldest.
        self.leaving.sort_by_key(|(worth, _)| Reverse(*worth));
    }

    /// Takes out the next in that order, and what stands for nothing then; how many bytes that makes free.
    fn drop_next(&mut self) -> u64 {
        let before = self.bytes;
        if let Some((_, file)) = self.leaving.pop() {
            self.drop_file(file);
        }
        before - self.bytes
    }

    fn drop_file(&mut self, number: FileNumber) {
        if !self.after.iter().flat_map(Round::files).any(|file| file.number == number) {
            return;
        }
        let rounds = self.after.to_mut().iter_mut();
        for segments in rounds.flat_map(|round| [&mut round.appending, &mut round.deletion]).flatten() {
            segments.drop_file(number);
        }
        let left: HashSet<FileNumber> = self.after.iter().flat_map(Round::files).map(|file| file.number).collect();
        self.alone.retain(|file| left.contains(&file.number));
        self.bytes = self.alone.iter().map(|file| file.size).sum();
    }

    fn changed(self) -> Vec<Round> {
        let Cow::Owned(rounds) = self.after else { return Vec::new() };
        let changed = rounds.into_iter().zip(self.before).filter(|(after, before)| after != *before);
        changed.map(|(round, _)| round).collect()
    }
}

/// These files, which are in the buffer alone, each after the highest worth of all segments that overlap it in a part.
/// O(segments² of a part).
fn shared_worth(
    rounds: &[Round],
    alone: &[&Arc<FileMeta>],
    worth: impl Fn(FileNumber) -> u64,
) -> Vec<(u64, FileNumber)> {
    let parts: Vec<Vec<(&Segment, u64)>> = rounds
        .iter()
        .flat_map(Round::parts)
        .map(|part| part.files.iter().map(|segment| (segment, worth(segment.file.number))).collect())
        .collect();
    let shared = |file: &FileMeta| {
        let in_part = |part: &Vec<(&Segment, u64)>| {
            let its: Vec<&Segment> =
                part.iter().map(|(known, _)| *known).filter(|known| known.file.number == file.number).collect();
            let beside = part.iter().filter(|(known, _)| its.iter().any(|its| its.overlaps(known)));
            beside.map(|(_, worth)| *worth).max()
        };
        parts.iter().filter_map(in_part).max().unwrap_or_default()
    };
    alone.iter().map(|file| (shared(file), file.number)).collect()
}
