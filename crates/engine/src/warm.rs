//! Which blocks a compaction caches, so that reads find cached where they go next what was cached where they went.
//!
//! [`Warm::Successors`]:
//!
//! 1. Before the edit is installed: reads leave the inputs, and with the files of a level's part the segments that
//!    stand for it in the compaction buffer. The keys in their cached blocks are the wanted ones: not all keys of these
//!    blocks are hot, but no more is known.
//! 2. In the version as it will be: where an output part is read from segments, the inputs that enter it as such take
//!    the place of the segments that are left. The paper, which moves every row once per level (dLSM §IV-B), reads it
//!    again from the disk. Segments that go down with their rows (buffer.rs) are not left. Where it is read from the
//!    tree, the outputs take the place of all that is left.
//! 3. When the edit is installed, the blocks that reads have left go from the cache, or the new ones, which nobody has
//!    asked for yet, would be the first to be evicted. Then the blocks with wanted keys are read, many at once.
//!
//! Guarantees nothing but what is cached: the version is the plan's, and others may have changed it since.

use std::sync::Arc;

use mycelium_base::Result;
use mycelium_manifest::{FileMeta, Segments, VersionEdit};
use mycelium_sst::KeyInterval;

use crate::compact::Taken;
use crate::database::Inner;
use crate::options::Warm;
use crate::tree::{OpenFile, OpenRun, segments_of};

/// Keys, ascending.
type Keys = Vec<Vec<u8>>;

/// Segments that stay, each with files of their part.
type SegmentsOf = Vec<(Arc<OpenFile>, Vec<Arc<FileMeta>>)>;

/// What is to be cached when an edit is installed.
#[derive(Default)]
pub(crate) struct Succession {
    /// With the files that they do not stand for any more.
    left: SegmentsOf,
    /// Where reads go next, and the wanted keys there; all if `None`.
    successors: Vec<(Arc<OpenFile>, Option<Keys>)>,
}

impl Succession {
    /// The third step of the module. A block that cannot be read is left to whoever asks for it.
    pub(crate) fn warm(&self) {
        for (segment, files) in &self.left {
            let is_left = |file: &Arc<FileMeta>, interval: &KeyInterval| {
                interval.above.as_ref().is_some_and(|above| *above >= file.smallest) && interval.last <= file.largest
            };
            segment.sst.forget(|interval| files.iter().any(|file| is_left(file, interval)));
        }
        for (file, keys) in &self.successors {
            let is_wanted = |interval: &KeyInterval| keys.as_ref().is_none_or(|keys| !interval.among(keys).is_empty());
            file.sst.warm(is_wanted).ok();
        }
    }
}

/// Keys in cached blocks that reads leave.
struct Left {
    /// Of segments.
    in_buffer: Keys,
    /// Of inputs and segments.
    all: Keys,
}

impl Left {
    fn by(taken: &Taken, segments: &SegmentsOf) -> Result<Self> {
        let mut in_buffer = Vec::new();
        for (segment, files) in segments {
            let mut keys = segment.sst.cached_keys()?;
            keys.retain(|key| files.iter().any(|file| file.smallest <= *key && !file.ends_before(key)));
            in_buffer.extend(keys);
        }
        in_buffer.sort_unstable();
        in_buffer.dedup();
        let mut all = in_buffer.clone();
        for input in taken.plan.input_files().filter_map(|meta| taken.tree.find(meta.number)) {
            all.extend(input.sst.cached_keys()?);
        }
        all.sort_unstable();
        all.dedup();
        Ok(Self { in_buffer, all })
    }
}

/// The segments that stand for inputs which leave their level, each with these inputs.
fn segments_left(taken: &Taken) -> SegmentsOf {
    let mut left = Vec::new();
    for input in taken.plan.inputs.iter().filter(|input| input.level < taken.plan.output_level) {
        let run: Option<&OpenRun> = taken.tree.levels.get(input.level).and_then(|runs| runs.get(input.run));
        let Some(segments) = run.and_then(|run| run.buffer.as_ref()) else { continue };
        for segment in segments.segments() {
            let files = input.files.iter().filter(|file| segment.segment.overlaps_range(&file.range()));
            let files: Vec<_> = files.cloned().collect();
            if !files.is_empty() {
                left.push((segment.file.clone(), files));
            }
        }
    }
    left
}

impl Inner {
    /// The first two steps of the module; `opened` are the outputs.
    pub(crate) fn succession(&self, taken: &Taken, edit: &VersionEdit, opened: &[Arc<OpenFile>]) -> Result<Succession> {
        match self.options.compaction_caching.warm {
            Warm::Nothing => return Ok(Succession::default()),
            Warm::Everything => {
                let successors = opened.iter().map(|file| (file.clone(), None)).collect();
                return Ok(Succession { successors, ..Succession::default() });
            }
            Warm::Successors => {}
        }
        let mut segments = segments_left(taken);
        let keys = Left::by(taken, &segments)?;
        let (plan, version, mut edit) = (&taken.plan, &taken.tree.version, edit.clone());
        taken.table.shape.load().policy(version).complete(version, plan, &mut edit)?;
        let after = version.apply(taken.table.id, &edit)?;
        let new_here = |meta: &FileMeta| {
            let opened = opened.iter().find(|file| file.meta.number == meta.number);
            opened.or_else(|| {
                plan.input_files().find(|input| input.number == meta.number).and(taken.tree.find(meta.number))
            })
        };
        let mut successors = Vec::new();
        for run in &after.level(plan.output_level).runs {
            let covering = segments_of(&after, plan.output_level, run);
            let is_covered = |key: &&Vec<u8>| covering.is_some_and(|segments: &Segments| segments.covers(key));
            let in_buffer = || keys.in_buffer.iter().filter(is_covered).cloned().collect::<Vec<_>>();
            let in_tree = || keys.all.iter().filter(|key| !is_covered(key)).cloned().collect::<Vec<_>>();
            let standing = || covering.iter().flat_map(|segments| &segments.files);
            // What goes down with its rows is not left.
            for (segment, files) in &mut segments {
                let stays = |file: &FileMeta| {
                    standing()
                        .any(|known| known.file.number == segment.meta.number && known.overlaps_range(&file.range()))
                };
                files.retain(|file| !stays(file));
            }
            let entering = standing().filter_map(|segment| new_here(&segment.file));
            successors.extend(entering.map(|file| (file.clone(), Some(in_buffer()))));
            let written = run.files.iter().filter_map(|meta| new_here(meta));
            successors.extend(written.map(|file| (file.clone(), Some(in_tree()))));
        }
        successors.retain(|(_, keys)| keys.as_ref().is_none_or(|keys| !keys.is_empty()));
        // A flushed row is a segment of several column groups, of which the others still read it.
        segments
            .retain(|(segment, files)| !files.is_empty() && files.iter().all(|file| file.group == segment.meta.group));
        Ok(Succession { left: segments, successors })
    }
}
