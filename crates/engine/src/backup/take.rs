//! Makes a backup: steps 1 to 5 of the module above.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use mycelium_base::{Error, FileKind, Result, SequenceNumber};
use mycelium_manifest::VersionEdit;
use mycelium_vfs::{AccessPattern, ReadableFile};

use super::description::{Description, SharedFile};
use super::{Backups, Catalog};
use crate::copy::copy_file;
use crate::database::{Database, Inner};
use crate::moment::Moment;
use crate::note;
use crate::output_files::OutputFiles;
use crate::rate_limit::WritePriority;
use crate::sync::Mutex;

/// What a backup holds, and what was copied for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackupSummary {
    /// Its number in the directory.
    pub number: u64,
    /// The newest sequence number in it: everything committed up to it is there, and nothing after.
    pub sequence: SequenceNumber,
    /// SSTs.
    pub files: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Those of the SSTs that were not in the directory before.
    pub copied: u64,
    /// Bytes of these.
    pub copied_bytes: u64,
}

impl Database {
    /// Adds a backup to those in `directory`, which is made if it is not there, and holds backups of this database
    /// alone. Only files that it does not have yet are copied, no faster than
    /// [`crate::Options::rate_limit_bytes_per_second`] says; they share nothing with the database's own, on whatever
    /// file system. Durable when it returns. [`Backups`] lists, verifies, restores and deletes backups.
    ///
    /// Writers wait for the flush of what was written since the call began; reads do not. Compactions go on: what they
    /// replace meanwhile stays open until it is copied. A database opened read-only can be backed up too, as it was
    /// when it was opened, and one that an error has latched, as it is read; what is in memory becomes files of the
    /// backup alone. Everything committed before the call is in the backup, whatever durability it was written with.
    ///
    /// A database restored from a backup, or opened from a checkpoint, counts as the same database: it may add its own
    /// backups to the directory.
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::InvalidArgument`] if `directory` holds a database or backups of another one, or if
    /// the database was opened read-only and never for writing by a version that has backups.
    /// [`mycelium_base::ErrorKind::Locked`] if another process or thread changes the directory.
    /// [`mycelium_base::ErrorKind::Corruption`] if a file of the database is not as it was written: nothing damaged is
    /// backed up. See [`Database`] for the others. After any error the backups that were there are there; what was
    /// copied is removed, or else by the next change of the directory. After an error of the last step, which puts the
    /// description in place, the backup may be there all the same, whole.
    pub fn backup(&self, directory: impl AsRef<Path>) -> Result<BackupSummary> {
        self.backup_with_progress(directory, |_, _| {})
    }

    /// As [`Self::backup`]; `progress` is told the bytes copied so far and of how many.
    pub fn backup_with_progress(
        &self,
        directory: impl AsRef<Path>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<BackupSummary> {
        self.inner.backup(directory.as_ref(), &mut progress)
    }
}

impl Inner {
    fn backup(&self, directory: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<BackupSummary> {
        self.check_unclosed()?;
        let backups = Backups::prepare(self.disk.clone(), directory)?;
        let _lock = backups.lock()?;
        let catalog = backups.catalog()?;
        let _kept = self.keep_shown()?;
        let moment = self.take_moment()?;
        // Only now: all that the moment has is older.
        let time = note::now(&*self.options.clock);
        if moment.state.identity == 0 {
            return Err(Error::invalid("the database has no identity yet: it gets one when it is opened for writing")
                .in_file(&self.directory));
        }
        catalog.check_owner(moment.state.identity, directory)?;
        let result = self.add_backup(&backups, &catalog, &moment, time, progress);
        if result.is_err()
            && let Err(error) = backups.catalog().and_then(|now| backups.remove_unneeded(&now, &BTreeSet::new()))
        {
            tracing::warn!(%error, "cannot remove what a failed backup left");
        }
        result
    }

    fn add_backup(
        &self,
        backups: &Backups,
        catalog: &Catalog,
        moment: &Moment,
        time: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<BackupSummary> {
        let number = catalog.next_number(&backups.directory)?;
        let wanted: BTreeSet<SharedFile> = moment.state.files().map(|(_, file)| SharedFile::of(file)).collect();
        backups.remove_unneeded(catalog, &wanted)?;
        let mut added = self.copy_files(backups, moment, &wanted, progress)?;
        let outputs = Mutex::new(OutputFiles::within(self, &backups.directory, FileKind::Temporary));
        let written = self.write_memtables(moment, &outputs)?;
        added.extend(backups.take_in(&written)?);
        backups.disk.sync_directory(&backups.directory)?;
        outputs.lock().keep();
        let description = Description::new(number, time, moment.state.apply(&written)?);
        description.write(&*backups.disk, &backups.directory)?;
        Ok(summarize(&description, &added))
    }

    /// Copies the files that are not there; gives those that it copied.
    fn copy_files(
        &self,
        backups: &Backups,
        moment: &Moment,
        wanted: &BTreeSet<SharedFile>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<BTreeSet<SharedFile>> {
        let mut missing = BTreeSet::new();
        for file in wanted {
            if !backups.holds(*file)? {
                missing.insert(*file);
            }
        }
        let total = missing.iter().map(|file| file.size).sum();
        let mut done = 0;
        progress(done, total);
        let open = moment.open_files();
        for file in &missing {
            let path = self.directory.join(FileKind::Sst.name(file.number));
            let source: Arc<dyn ReadableFile> = match open.get(&file.number) {
                Some(&source) => source.clone(),
                None => self.disk.open(&path, AccessPattern::Sequential)?,
            };
            let temporary = backups.directory.join(FileKind::Temporary.name(file.number));
            let checksum = copy_file(&*backups.disk, &*source, &temporary, |bytes| {
                self.limit_rate(WritePriority::Compaction, bytes);
                done += bytes;
                progress(done.min(total), total);
            })?;
            file.check(&path, source.len(), checksum)?;
            backups.disk.rename(&temporary, &backups.path_of(*file))?;
        }
        Ok(missing)
    }
}

impl Backups {
    /// Gives files that were written under temporary names, and synced, those that they share; gives the files that
    /// were not there before.
    fn take_in(&self, written: &VersionEdit) -> Result<Vec<SharedFile>> {
        let mut added = Vec::with_capacity(written.added_files.len());
        for file in written.added_files.iter().map(|added| SharedFile::of(&added.file)) {
            if !self.holds(file)? {
                added.push(file);
            }
            let temporary = self.directory.join(FileKind::Temporary.name(file.number));
            self.disk.rename(&temporary, &self.path_of(file))?;
        }
        Ok(added)
    }
}

fn summarize(description: &Description, added: &BTreeSet<SharedFile>) -> BackupSummary {
    BackupSummary {
        number: description.number,
        sequence: description.state.last_sequence,
        files: description.files().count() as u64,
        bytes: description.files().map(|file| file.size).sum(),
        copied: added.len() as u64,
        copied_bytes: added.iter().map(|file| file.size).sum(),
    }
}
