//! Checkpoints: a second database directory that shares this one's SSTs by hard links, or has copies of them where
//! there can be no links: on another file system.
//!
//! 1. Take a moment of the database: a state of its manifest, whose files are pinned (`moment`).
//! 2. Create the directory, durably. Link every SST into it (they were synced when they were written), or copy it and
//!    sync the copy, and write what the moment has only in memory; sync the directory: from here the files are there
//!    whatever happens.
//! 3. Write a manifest with the moment's state and then `CURRENT` (each written, synced and renamed into place as
//!    [`Manifest::create_with`] does it). Until `CURRENT` is in place the directory is no database, and one that is cut
//!    short there is refused at open because it holds SSTs without `CURRENT`.
//!
//! There is no log in a checkpoint, and its manifest needs none. Files pinned by step 1 are not removed from the source
//! before the links are made, even if a compaction replaces them meanwhile; afterwards the links keep the bytes. Those
//! of a database opened read-only cannot be pinned against a process that writes to it: one that it has removed since
//! makes the checkpoint fail with [`mycelium_base::ErrorKind::NotFound`].

use std::path::Path;

use mycelium_base::{Error, FileKind, Result, SequenceNumber};
use mycelium_manifest::{Manifest, ManifestOptions, ManifestState};
use mycelium_vfs::AccessPattern;

use crate::copy::{check_vacant, copy_file, remove_copy};
use crate::database::{Database, Inner};
use crate::moment::Moment;
use crate::output_files::OutputFiles;
use crate::rate_limit::WritePriority;
use crate::sync::Mutex;

/// What a checkpoint holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckpointSummary {
    /// The newest sequence number in it: everything committed up to it is there, and nothing after.
    pub sequence: SequenceNumber,
    /// SSTs.
    pub files: u64,
    /// Those of them that were copied, for the directory is on another file system, or on one that has no hard links.
    pub copied: u64,
    /// Bytes of all of them. Those of linked files are shared with the source until either side removes a file.
    pub bytes: u64,
}

impl Database {
    /// Makes a consistent copy of the database in `directory`, which can be opened like any other: to restore a backup,
    /// open it, or make a checkpoint of it elsewhere. On the same file system it takes no space for SSTs at first, for
    /// they are hard links; on another they are copied, no faster than [`crate::Options::rate_limit_bytes_per_second`]
    /// says. Durable when it returns.
    ///
    /// Writers wait for the flush of what was written since the call began; reads do not. A database opened read-only
    /// can be copied too, as it was when it was opened or caught up last, and one that an error has latched, as it is
    /// read; what is in memory becomes files of the copy alone. Everything committed before the call is in the copy,
    /// whatever durability it was written with.
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::InvalidArgument`] if `directory` exists and is not an empty directory. After any
    /// other failure the files made so far are removed again. Of a database opened read-only,
    /// [`mycelium_base::ErrorKind::NotFound`] if another process has since removed a file, and
    /// [`mycelium_base::ErrorKind::Conflict`] if catching up failed halfway: [`Database::catch_up`] first. Of one that
    /// was latched, [`mycelium_base::ErrorKind::ReadOnly`] if the error came as the manifest was replaced: it may be
    /// ahead of what is read. See [`Database`] for the others.
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

impl Inner {
    fn checkpoint(&self, directory: &Path) -> Result<CheckpointSummary> {
        self.check_unclosed()?;
        check_vacant(&*self.disk, directory, "a checkpoint")?;
        let _kept = self.keep_shown()?;
        let moment = self.take_moment()?;
        self.disk.create_directory(directory)?;
        let result = self.fill_checkpoint(directory, &moment);
        if result.is_err() {
            remove_copy(&*self.disk, directory);
        }
        result
    }

    fn fill_checkpoint(&self, directory: &Path, moment: &Moment) -> Result<CheckpointSummary> {
        let mut summary = CheckpointSummary { sequence: moment.sequence, files: 0, copied: 0, bytes: 0 };
        for (_, file) in moment.state.files() {
            let name = FileKind::Sst.name(file.number);
            let (from, to) = (self.directory.join(&name), directory.join(&name));
            match self.disk.hard_link(&from, &to) {
                Err(error) if may_copy(&error) => {
                    let source = self.disk.open(&from, AccessPattern::Sequential)?;
                    let limit = |bytes| self.limit_rate(WritePriority::Compaction, bytes);
                    copy_file(&*self.disk, &*source, &to, limit)?;
                    summary.copied += 1;
                }
                linked => linked?,
            }
            summary.files += 1;
            summary.bytes += file.size;
        }
        let outputs = Mutex::new(OutputFiles::within(self, directory, FileKind::Sst));
        let written = self.write_memtables(moment, &outputs)?;
        for added in &written.added_files {
            summary.files += 1;
            summary.bytes += added.file.size;
        }
        self.disk.sync_directory(directory)?;
        let state = ManifestState { history: 0, ..moment.state.apply(&written)? };
        Manifest::create_with(self.disk.clone(), directory, state, ManifestOptions::default())?;
        outputs.lock().keep();
        Ok(summary)
    }
}

/// Whether a file that could not be linked may still be copied: it was no other name that the place could take.
pub(crate) fn may_copy(error: &Error) -> bool {
    use std::io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|cause| matches!(cause.kind(), CrossesDevices | PermissionDenied | TooManyLinks | Unsupported))
}
