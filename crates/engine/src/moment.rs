//! A moment of a database, for who copies it: every entry up to one sequence number and none beyond, and what keeps the
//! files that hold them.
//!
//! 1. Flush. Then take the commit lock, flush what came meanwhile, and under the manifest's lock note its state: every
//!    entry up to one sequence number is in that state's files, and none beyond. Pin the files; release the locks.
//! 2. Files that are pinned stay open, and are not removed, even if a compaction replaces them meanwhile.
//!
//! A database opened read-only is at one moment from one catching up to the next: what it shows is the manifest's
//! state, and the memtables that its log filled. Step 1 only notes them, and the copy gets the memtables as the level-0
//! files that a flush would have made of them ([`Inner::write_memtables`]); until it has them, nothing is caught up
//! with ([`Inner::keep_shown`]). The source is not written to, and its log is not copied: a process that has the
//! database open for writing may be appending to it. Such a process may remove the files, whose names are then gone;
//! open they can still be read.
//!
//! So is a database that an error has latched, which has the memtables that waited for their flush. It has all that was
//! acknowledged: nothing is in the memtables that was refused, and nothing left them that the manifest does not
//! have in files. What the disk may have lost, the end of the log and of the manifest, is not asked.

use std::collections::HashMap;
use std::sync::Arc;

use mycelium_base::{FileNumber, Result, SequenceNumber, TableId};
use mycelium_manifest::{ManifestState, RunPlace, VersionEdit};
use mycelium_memtable::Memtable;
use mycelium_vfs::ReadableFile;

use crate::database::Inner;
use crate::follow::DatabaseState;
use crate::output_files::{OutputFiles, file_meta};
use crate::sync::Mutex;
use crate::tree::Tree;

/// Memtables that were sealed together, ascending by table.
type Generation = Vec<(TableId, Arc<Memtable>)>;

/// A state of the manifest that needs no log, and what keeps its files. See the module.
///
/// What is in no file a power loss may still take from the database, which then gives its sequence numbers out again:
/// the archived log does not go on from a state that has such entries, and it is of no history.
pub(crate) struct Moment {
    pub(crate) state: ManifestState,
    pub(crate) sequence: SequenceNumber,
    /// What is in no file; the oldest first.
    generations: Vec<Generation>,
    pins: Vec<Arc<Tree>>,
}

impl Moment {
    /// The files of the state, open.
    pub(crate) fn open_files(&self) -> HashMap<FileNumber, &Arc<dyn ReadableFile>> {
        let files = self.pins.iter().flat_map(|tree| tree.all_files());
        files.map(|file| (file.meta.number, file.sst.file())).collect()
    }
}

/// The state of a database that has the entries up to `sequence` in files.
fn without_log(state: &ManifestState, sequence: SequenceNumber) -> ManifestState {
    ManifestState { oldest_wal: 0, last_sequence: state.last_sequence.max(sequence), ..state.clone() }
}

/// The same where memtables have some of them.
fn with_memtables(state: &ManifestState, sequence: SequenceNumber, generations: &[Generation]) -> ManifestState {
    let state = without_log(state, sequence);
    let is_in_files = generations.iter().all(Vec::is_empty);
    ManifestState { history: if is_in_files { state.history } else { 0 }, ..state }
}

/// The moment that a database opened read-only shows.
fn moment_of(shown: &DatabaseState) -> Moment {
    let sequence = shown.sequence;
    let state = with_memtables(&shown.manifest, sequence, &shown.generations);
    let pins = shown.states.values().map(|state| state.tree.clone()).collect();
    Moment { state, sequence, generations: shown.generations.clone(), pins }
}

impl Inner {
    /// The present moment; of a database that is not written to any more, the only one. One opened read-only is to be
    /// kept as it is ([`Inner::keep_shown`]) for as long as the moment is used.
    pub(crate) fn take_moment(&self) -> Result<Moment> {
        self.check_unclosed()?;
        match &self.follower {
            Some(follower) => Ok(moment_of(&follower.shown())),
            None if self.is_latched() => self.moment_as_latched(),
            None => self.moment(),
        }
    }

    /// A state in which every entry so far is in a file.
    fn moment(&self) -> Result<Moment> {
        // Without the commit lock first, so that under it little is left to do.
        self.flush_all()?;
        let mut writer = self.commits.writer.lock();
        self.empty_memtables(&mut writer)?;
        let manifest = self.manifest()?;
        let pins = self.core.lock().tables.values().map(|table| table.state.load().tree.clone()).collect();
        let sequence = writer.last_sequence;
        let state = without_log(manifest.state(), sequence);
        Ok(Moment { state, sequence, generations: Vec::new(), pins })
    }

    /// The last state of a database that an error has latched: nothing is written, sealed or installed any more once
    /// the locks are let go.
    fn moment_as_latched(&self) -> Result<Moment> {
        let writer = self.commits.writer.lock();
        let manifest = self.manifest()?;
        let core = self.core.lock();
        let pins: Vec<_> = core.tables.values().map(|table| table.state.load().tree.clone()).collect();
        let read = core.tables.keys().zip(pins.iter().map(|tree| &tree.version));
        if !read.eq(manifest.state().tables.iter().map(|(id, table)| (id, &table.version))) {
            // An edit is part of the state, and what is read did not follow.
            self.check_unlatched()?;
        }
        let active = core.tables.iter().map(|(id, table)| (*id, table.state.load().active.clone()));
        let active = active.filter(|(_, memtable)| !memtable.is_empty()).collect();
        let sealed = core.generations.iter().map(|generation| generation.memtables.clone());
        let sequence = writer.last_sequence;
        let generations: Vec<Generation> = sealed.chain([active]).collect();
        let state = with_memtables(manifest.state(), sequence, &generations);
        Ok(Moment { state, sequence, generations, pins })
    }

    /// Writes what a moment has in no file, as the level-0 files that flushes would have made of it; `outputs` says
    /// where. Durable, but for their names, when it returns the edit that adds them.
    pub(crate) fn write_memtables<'a>(
        &'a self,
        moment: &Moment,
        outputs: &Mutex<OutputFiles<'a>>,
    ) -> Result<VersionEdit> {
        let mut written = VersionEdit::default();
        for generation in &moment.generations {
            for flushed in self.write_generation(generation, None, outputs)?.flushed {
                for (number, file) in &flushed.output.files {
                    written.add_file(flushed.table, 0, RunPlace::Newest, Arc::new(file_meta(*number, file)));
                }
            }
        }
        outputs.lock().sync_files()?;
        Ok(written)
    }
}
