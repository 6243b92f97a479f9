//! Which blocks a compaction caches before its edit is installed, so that reads find cached where they go next what was cached where
//! they went.
//!
//! [`Warm::Successors`], with the version as it will be:
//!
//! 1. Reads leave the inputs, and with the files of a level's part the segments that stand for it in the compaction buffer. The keys in
//!    their cached blocks are the wanted ones: not all keys of these blocks are hot, but no more is known.
//! 2. Where an output part is read from segments, the inputs that enter it as such take the place of the segments that are left
//!    (dLSM §IV-B moves every row once per level; the paper reads it again from the disk).
//! 3. Where it is read from the tree, the outputs take the place of all that is left.
//! 4. The blocks with wanted keys are read, many at once.
//!
//! Guarantees nothing but what is cached: the version is the plan's, and others may have changed it since.

use std::sync::Arc;

use mycelium_base::Result;
use mycelium_manifest::{FileMeta, Segments, VersionEdit};

use crate::compact::Taken;
use crate::database::Inner;
use crate::options::Warm;
use crate::tree::{OpenFile, OpenRun, segments_of};

/// Keys in cached blocks that reads leave, ascending.
struct Left {
    /// Of segments.
    in_buffer: Vec<Vec<u8>>,
    /// Of inputs and segments.
    all: Vec<Vec<u8>>,
}

impl Left {
    fn by(taken: &Taken) -> Result<Self> {
        let mut in_buffer = Vec::new();
        for input in taken.plan.inputs.iter().filter(|input| input.level < taken.plan.output_level) {
            let run = taken.tree.levels.get(input.level).and_then(|runs| runs.get(input.run));
            in_buffer.extend(cached_in_segments(run, &input.files)?);
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

/// The keys that segments of a run have cached of the keys of these files of it.
fn cached_in_segments(run: Option<&OpenRun>, files: &[Arc<FileMeta>]) -> Result<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    let Some(segments) = run.and_then(|run| run.buffer.as_ref()) else { return Ok(keys) };
    for segment in segments.files().filter(|segment| files.iter().any(|file| file.overlaps(&segment.meta))) {
        keys.extend(segment.sst.cached_keys()?);
    }
    keys.retain(|key| files.iter().any(|file| file.smallest <= *key && !file.ends_before(key)));
    Ok(keys)
}

impl Inner {
    /// See the module; `opened` are the outputs.
    pub(crate) fn warm_successors(&self, taken: &Taken, edit: &VersionEdit, opened: &[Arc<OpenFile>]) -> Result<()> {
        match self.options.compaction_caching.warm {
            Warm::Nothing => return Ok(()),
            Warm::Everything => return opened.iter().try_for_each(|file| file.sst.warm(|_| true).map(drop)),
            Warm::Successors => {}
        }
        let left = Left::by(taken)?;
        if left.all.is_empty() {
            return Ok(());
        }
        let (plan, version, mut edit) = (&taken.plan, &taken.tree.version, edit.clone());
        taken.table.shape.load().policy(version).complete(version, plan, &mut edit)?;
        let after = version.apply(taken.table.id, &edit)?;
        let new_here = |meta: &FileMeta| {
            let opened = opened.iter().find(|file| file.meta.number == meta.number);
            opened.or_else(|| {
                plan.input_files().find(|input| input.number == meta.number).and(taken.tree.find(meta.number))
            })
        };
        for run in &after.level(plan.output_level).runs {
            let segments = segments_of(&after, plan.output_level, run);
            let is_covered = |key: &Vec<u8>| segments.is_some_and(|segments: &Segments| segments.covers(key));
            for file in segments.iter().flat_map(|segments| &segments.files).filter_map(|meta| new_here(meta)) {
                file.sst.warm(|interval| interval.among(&left.in_buffer).iter().any(is_covered))?;
            }
            for file in run.files.iter().filter_map(|meta| new_here(meta)) {
                file.sst.warm(|interval| !interval.among(&left.all).iter().all(is_covered))?;
            }
        }
        Ok(())
    }
}
