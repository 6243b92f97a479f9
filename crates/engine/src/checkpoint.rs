//! Checkpoints: a second database directory that shares this one's SSTs by hard links, or has copies of them where there can be
//! no links: on another file system.
//!
//! 1. Flush. Then take the commit lock, flush what came meanwhile, and under the manifest's lock note its state: every
//!    entry up to one sequence number is in that state's files, and none beyond. Pin the files; release the locks.
//! 2. Create the directory, durably. Link every SST into it (they were synced when they were written), or copy it and sync the
//!    copy, and sync the directory: from here the files are there whatever happens.
//! 3. Write a manifest with the noted state and then `CURRENT` (each written, synced and renamed into place as
//!    [`Manifest::create_with`] does it). Until `CURRENT` is in place the directory is no database, and one that is cut
//!    short there is refused at open because it holds SSTs without `CURRENT`.
//!
//! There is no log in a checkpoint, and its manifest needs none. Files pinned by step 1 are not removed from the source
//! before the links are made, even if a compaction replaces them meanwhile; afterwards the links keep the bytes.
//!
//! A database opened read-only is at one moment all the time, the one at which it was opened: the manifest's state, and
//! the memtables that its log filled. Step 1 only notes them, and step 2 writes the memtables into the checkpoint's
//! directory, as the level-0 files that a flush would have made of them. The source is not written to, and its log is
//! not copied: a process that has the database open for writing may be appending to it. Nor can its files be pinned
//! against such a process: one that it has removed since makes the checkpoint fail with
//! [`mycelium_base::ErrorKind::NotFound`].
//!
//! So is a database that an error has latched, but that it may have several generations of memtables. It has all that
//! was acknowledged: nothing is in the memtables that was refused, and nothing left them that the manifest does not
//! have in files. What the disk may have lost, the end of the log and of the manifest, is not asked.

use std::path::Path;
use std::sync::Arc;

use mycelium_base::{Error, FileKind, Result, SequenceNumber, TableId};
use mycelium_manifest::{Manifest, ManifestOptions, ManifestState, RunPlace, VersionEdit};
use mycelium_memtable::Memtable;
use mycelium_vfs::{AccessPattern, Disk};

use crate::database::{Database, Inner};
use crate::flush::file_meta;
use crate::output_files::OutputFiles;
use crate::rate_limit::WritePriority;
use crate::sync::Mutex;
use crate::sync::atomic::Ordering;
use crate::tree::Tree;

/// Bytes that are copied at a time.
const COPIED_AT_ONCE: usize = 1 << 20;

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
    /// Makes a consistent copy of the database in `directory`, which can be opened like any other: to restore a backup, open
    /// it, or make a checkpoint of it elsewhere. On the same file system it takes no space for SSTs at first, for they are hard
    /// links; on another they are copied, no faster than [`crate::Options::rate_limit_bytes_per_second`] says. Durable when it
    /// returns.
    ///
    /// Writers wait for the flush of what was written since the call began; reads do not. A database opened read-only
    /// can be copied too, as it was when it was opened, and one that an error has latched, as it is read; what is in
    /// memory becomes files of the copy alone. Everything committed before the call is in the copy, whatever durability
    /// it was written with.
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::InvalidArgument`] if `directory` exists and is not an empty directory. After any
    /// other failure the files made so far are removed again. Of a database opened read-only,
    /// [`mycelium_base::ErrorKind::NotFound`] if another process has since removed a file: open it again. Of one that
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

/// A state of the manifest and what keeps its files.
struct Moment {
    state: ManifestState,
    sequence: SequenceNumber,
    /// What is in no file: memtables that were sealed together, ascending by table; the oldest first.
    generations: Vec<Vec<(TableId, Arc<Memtable>)>>,
    _pins: Vec<Arc<Tree>>,
}

/// The state of a database that has the entries up to `sequence` in files.
fn without_log(state: &ManifestState, sequence: SequenceNumber) -> ManifestState {
    ManifestState { oldest_wal: 0, last_sequence: state.last_sequence.max(sequence), ..state.clone() }
}

impl Inner {
    fn checkpoint(&self, directory: &Path) -> Result<CheckpointSummary> {
        self.check_unclosed()?;
        if self.disk.exists(directory)? && !self.disk.list(directory)?.is_empty() {
            return Err(
                Error::invalid("a checkpoint needs a directory that does not exist or is empty").in_file(directory)
            );
        }
        let moment = match &self.opened_state {
            Some(state) => self.moment_as_opened(state),
            None if self.is_latched() => self.moment_as_latched()?,
            None => self.moment()?,
        };
        self.disk.create_directory(directory)?;
        let result = self.fill_checkpoint(directory, &moment);
        if result.is_err() {
            remove_unfinished(&*self.disk, directory);
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
        let state = without_log(manifest.state(), sequence);
        Ok(Moment { state, sequence, generations: Vec::new(), _pins: pins })
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
        let (state, generations) = (without_log(manifest.state(), sequence), sealed.chain([active]).collect());
        Ok(Moment { state, sequence, generations, _pins: pins })
    }

    /// The only state of a database opened read-only.
    fn moment_as_opened(&self, state: &ManifestState) -> Moment {
        let sequence = self.visible.load(Ordering::Acquire);
        let tables: Vec<_> = self.core.lock().tables.values().cloned().collect();
        let filled = tables.into_iter().map(|table| (table.id, table.state.load().active.clone()));
        let memtables = filled.filter(|(_, memtable)| !memtable.is_empty()).collect();
        Moment { state: without_log(state, sequence), sequence, generations: vec![memtables], _pins: Vec::new() }
    }

    fn fill_checkpoint(&self, directory: &Path, moment: &Moment) -> Result<CheckpointSummary> {
        let mut summary = CheckpointSummary { sequence: moment.sequence, files: 0, copied: 0, bytes: 0 };
        for table in moment.state.tables.values() {
            let in_levels = table.version.files().map(|(_, _, file)| file);
            for file in in_levels.chain(table.version.buffered_files()) {
                let name = FileKind::Sst.name(file.number);
                let (from, to) = (self.directory.join(&name), directory.join(&name));
                match self.disk.hard_link(&from, &to) {
                    Err(error) if may_copy(&error) => {
                        self.copy_file(&from, &to)?;
                        summary.copied += 1;
                    }
                    linked => linked?,
                }
                summary.files += 1;
                summary.bytes += file.size;
            }
        }
        let outputs = Mutex::new(OutputFiles::within(self, directory));
        let mut written = VersionEdit::default();
        for generation in &moment.generations {
            for flushed in self.write_generation(generation, &outputs)?.flushed {
                for (number, file) in &flushed.output.files {
                    written.add_file(flushed.table, 0, RunPlace::Newest, Arc::new(file_meta(*number, file)));
                    summary.files += 1;
                    summary.bytes += file.size;
                }
            }
        }
        outputs.lock().sync_files()?;
        self.disk.sync_directory(directory)?;
        let state = moment.state.apply(&written)?;
        Manifest::create_with(self.disk.clone(), directory, state, ManifestOptions::default())?;
        outputs.lock().keep();
        Ok(summary)
    }

    /// Copies a file, durably but for its name.
    fn copy_file(&self, from: &Path, to: &Path) -> Result<()> {
        let source = self.disk.open(from, AccessPattern::Sequential)?;
        let mut copy = self.disk.create(to)?;
        let mut chunk = vec![0; COPIED_AT_ONCE];
        let mut at = 0;
        while at < source.len() {
            let len = (source.len() - at).min(COPIED_AT_ONCE as u64);
            let part = &mut chunk[..len as usize];
            source.read_at(at, part)?;
            self.limit_rate(WritePriority::Compaction, len);
            copy.append(part)?;
            at += len;
        }
        copy.sync()
    }
}

/// Removes what is there of a database that could not be completed; `CURRENT` first, so that no half of one can be opened.
pub(crate) fn remove_unfinished(disk: &dyn Disk, directory: &Path) {
    let current = FileKind::Current.name(0);
    let names = disk.list(directory).unwrap_or_default();
    let rest = names.iter().filter(|name| **name != current && FileKind::parse(name).is_some());
    for name in names.iter().filter(|name| **name == current).chain(rest) {
        if let Err(error) = disk.remove(&directory.join(name)) {
            tracing::warn!(%error, "cannot remove a file of a database that was not completed");
        }
    }
}

/// Whether a file that could not be linked may still be copied: it was no other name that the place could take.
fn may_copy(error: &Error) -> bool {
    use std::io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|cause| matches!(cause.kind(), CrossesDevices | PermissionDenied | TooManyLinks | Unsupported))
}
