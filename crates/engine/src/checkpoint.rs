//! Checkpoints: a second database directory that shares this one's SSTs by hard links.
//!
//! 1. Flush. Then take the commit lock, flush what came meanwhile, and under the manifest's lock note its state: every
//!    entry up to one sequence number is in that state's files, and none beyond. Pin the files; release the locks.
//! 2. Create the directory, durably. Link every SST into it (they were synced when they were written) and sync the
//!    directory: from here the files are there whatever happens.
//! 3. Write a manifest with the noted state and then `CURRENT` (each written, synced and renamed into place as
//!    [`Manifest::create_with`] does it). Until `CURRENT` is in place the directory is no database, and one that is cut
//!    short there is refused at open because it holds SSTs without `CURRENT`.
//!
//! There is no log in a checkpoint. Files pinned by step 1 are not removed from the source before the links are made, even
//! if a compaction replaces them meanwhile; afterwards the links keep the bytes.

use std::path::Path;
use std::sync::Arc;

use mycelium_base::{Error, FileKind, Result, SequenceNumber};
use mycelium_manifest::{Manifest, ManifestOptions, ManifestState};

use crate::database::{Database, Inner};
use crate::tree::Tree;

/// What a checkpoint holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckpointSummary {
    /// The newest sequence number in it: everything committed up to it is there, and nothing after.
    pub sequence: SequenceNumber,
    /// SSTs linked.
    pub files: u64,
    /// Their bytes, shared with the source until either side removes a file.
    pub bytes: u64,
}

impl Database {
    /// Makes a consistent copy of the database in `directory`, which can be opened like any other. It takes no space for
    /// SSTs at first: they are hard links, so `directory` must be on the same file system. Durable when it returns.
    ///
    /// Writers wait for the flush of what was written since the call began; reads do not.
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::InvalidArgument`] if `directory` exists and is not an empty directory. After any other
    /// failure the files made so far are removed again.
    ///
    /// ```
    /// # use mycelium_engine::{Database, Durability, Options, TableOptions};
    /// # use std::sync::Arc;
    /// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
    /// let database = Database::open("example", options.clone())?;
    /// let table = database.create_table("kv", TableOptions::default())?;
    /// table.put(b"key", b"old", Durability::Os)?;
    /// database.checkpoint("copy")?;
    /// table.put(b"key", b"new", Durability::Os)?;
    /// let copy = Database::open("copy", options)?;
    /// assert_eq!(copy.table("kv")?.get(b"key")?.as_deref(), Some(&b"old"[..]));
    /// # Ok::<(), mycelium_engine::Error>(())
    /// ```
    pub fn checkpoint(&self, directory: impl AsRef<Path>) -> Result<CheckpointSummary> {
        self.inner.checkpoint(directory.as_ref())
    }
}

/// A state of the manifest and what keeps its files.
struct Moment {
    state: ManifestState,
    sequence: SequenceNumber,
    _pins: Vec<Arc<Tree>>,
}

impl Inner {
    fn checkpoint(&self, directory: &Path) -> Result<CheckpointSummary> {
        self.check_writable()?;
        if self.disk.exists(directory)? && !self.disk.list(directory)?.is_empty() {
            return Err(
                Error::invalid("a checkpoint needs a directory that does not exist or is empty").in_file(directory)
            );
        }
        let moment = self.moment()?;
        self.disk.create_directory(directory)?;
        let result = self.fill_checkpoint(directory, &moment);
        if result.is_err() {
            self.remove_checkpoint(directory);
        }
        result
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
        let mut state = manifest.state().clone();
        state.last_sequence = state.last_sequence.max(sequence);
        Ok(Moment { state, sequence, _pins: pins })
    }

    fn fill_checkpoint(&self, directory: &Path, moment: &Moment) -> Result<CheckpointSummary> {
        let mut summary = CheckpointSummary { sequence: moment.sequence, files: 0, bytes: 0 };
        for table in moment.state.tables.values() {
            for (_, _, file) in table.version.files() {
                let name = FileKind::Sst.name(file.number);
                self.disk.hard_link(&self.directory.join(&name), &directory.join(&name))?;
                summary.files += 1;
                summary.bytes += file.size;
            }
        }
        self.disk.sync_directory(directory)?;
        let options = ManifestOptions::default();
        Manifest::create_with(self.disk.clone(), directory, moment.state.clone(), options)?;
        Ok(summary)
    }

    /// Removes what a failed checkpoint left; `CURRENT` first, so that no half of one can be opened.
    fn remove_checkpoint(&self, directory: &Path) {
        let current = FileKind::Current.name(0);
        let names = self.disk.list(directory).unwrap_or_default();
        let rest = names.iter().filter(|name| **name != current && FileKind::parse(name).is_some());
        for name in names.iter().filter(|name| **name == current).chain(rest) {
            if let Err(error) = self.disk.remove(&directory.join(name)) {
                tracing::warn!(%error, "cannot remove a file of a failed checkpoint");
            }
        }
    }
}
