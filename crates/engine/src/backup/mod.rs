//! Backups: copies of a database, many in one directory, that have in common what they can.
//!
//! ```text
//! LOCK                                  held by who changes the directory
//! BACKUP-000003                         what backup 3 is (`description`)
//! 000012-4096-0123456789abcdef.sst      an SST: number in the database, length, XXH3-64 of the whole file
//! 000012.tmp                            a file being written
//! ```
//!
//! To make a backup (`take`, [`Database::backup`](crate::Database::backup)):
//!
//! 1. Lock the directory, made if need be. Refuse one that holds a database, or backups of a database of another
//!    identity.
//! 2. Take a moment of the database (`moment`): a state of its manifest, whose files stay open. The time is that of
//!    the backup, however long the rest takes. Remove what an interrupted call left and neither a backup nor this one
//!    needs.
//! 3. Copy every file of the state that is not there under the name that it would have: under a temporary name, from
//!    the open file, whatever happens to its name. Its bytes must have the checksum that the manifest has of it: damage
//!    does not spread. Sync it, rename it. Never link it: a backup shares no byte with its source.
//! 4. Do the same with files written of what is only in memory. Sync the directory: all files are there whatever
//!    happens.
//! 5. Write the description under a temporary name, sync it, rename it, sync the directory.
//!
//! To delete backups: remove their descriptions, sync the directory, remove the files that no description names. Where
//! a description cannot be read nobody knows what it needs: then all files stay.
//!
//! To restore one: copy its files into an empty directory, comparing checksums, under the names that they had, sync,
//! and write a manifest with its state, as for a checkpoint. With an archive of the log a restore goes on from there
//! (`restore`).
//!
//! So, whatever is cut short: a backup is there with its description, and then all its files are; a file with a final
//! name is whole, and a later backup may use it; what nothing needs is removed by the next change of the directory. A
//! backup that failed leaves the others as they were.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use mycelium_base::{Error, ErrorKind, FileKind, MAX_FILE_NUMBER, Result, SequenceNumber};
use mycelium_manifest::{Manifest, ManifestOptions, ManifestState};
use mycelium_vfs::{AccessPattern, Disk, FileLock, ReadableFile};

use crate::checkpoint::CheckpointSummary;
use crate::copy::{check_vacant, copy_file, read_whole, remove_copy};
use crate::verify::VerifyReport;
use description::{Description, SharedFile};

mod description;
mod restore;
mod take;

pub use restore::{PrunedArchive, RestoreOptions, RestorePoint, RestoreSummary};
pub use take::BackupSummary;

/// A backup in a directory.
#[derive(Debug)]
pub struct BackupInfo {
    /// Its number: one more than that of the newest there was when it was made.
    pub number: u64,
    /// When it was begun, by [`crate::Options::clock`]: all that it has was committed by then.
    pub time: SystemTime,
    /// The newest sequence number in it: everything committed up to it is there, and nothing after.
    pub sequence: SequenceNumber,
    /// SSTs.
    pub files: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Bytes of those that no other backup needs: what its deletion would free.
    pub own_bytes: u64,
    /// Why its description cannot be read, if so. The time is then the beginning of 1970, and all counts are 0.
    pub damage: Option<Error>,
}

/// What was deleted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DeletedBackups {
    /// The numbers of the backups, ascending.
    pub numbers: Vec<u64>,
    /// Files that no backup needs any more, those of interrupted calls included.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A directory of backups, all of one database, which need not be there any more.
/// [`Database::backup`](crate::Database::backup) adds to it.
///
/// Who changes the directory holds a lock on it; who only reads it holds none, and may find a backup gone that another
/// deletes.
///
/// ```
/// # use mycelium_engine::{Backups, Database, Durability, Options, TableOptions};
/// # use std::sync::Arc;
/// # let disk: Arc<dyn mycelium_vfs::Disk> = Arc::new(mycelium_vfs::MemoryDisk::new());
/// # let options = Options { disk: disk.clone(), ..Options::default() };
/// let database = Database::open("example", options.clone())?;
/// let table = database.create_table("kv", TableOptions::default())?;
/// table.put(b"key", b"old", Durability::Os)?;
/// database.backup("backups")?;
/// table.put(b"key", b"new", Durability::Os)?;
/// // What the first has is not copied again.
/// assert_eq!(database.backup("backups")?.number, 2);
///
/// let backups = Backups::open(disk, "backups")?;
/// assert!(backups.verify(None, |_, _| {})?.is_ok());
/// backups.restore(1, "restored", |_, _| {})?;
/// let restored = Database::open("restored", options)?;
/// assert_eq!(restored.table("kv")?.get(b"key")?.as_deref(), Some(&b"old"[..]));
/// assert_eq!(backups.keep(1)?.numbers, [1]);
/// # Ok::<(), mycelium_engine::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Backups {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
}

/// The descriptions of a directory, or why they cannot be read.
struct Catalog {
    descriptions: BTreeMap<u64, Result<Description>>,
}

impl Backups {
    /// The backups in `directory`, which may be none. Reads nothing yet.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such directory; those of the disk.
    pub fn open(disk: Arc<dyn Disk>, directory: impl AsRef<Path>) -> Result<Self> {
        let directory = directory.as_ref().to_path_buf();
        if !disk.exists(&directory)? {
            return Err(Error::new(ErrorKind::NotFound, "there is no directory of backups").in_file(directory));
        }
        Ok(Self { disk, directory })
    }

    /// All backups, the oldest first. Reads their descriptions, and no file of theirs: see [`Self::verify`].
    ///
    /// # Errors
    /// Those of the disk. A description that is damaged is no error: see [`BackupInfo::damage`].
    pub fn list(&self) -> Result<Vec<BackupInfo>> {
        let catalog = self.catalog()?;
        let holders = catalog.holders();
        let info = |(number, read)| BackupInfo::new(number, read, &holders);
        Ok(catalog.descriptions.into_iter().map(info).collect())
    }

    /// Reads every file of a backup, of all if no number is given, and compares it with the checksum that the
    /// database's manifest had of it when the backup was made. Files that several need are read once. `progress` is
    /// told the bytes verified so far and of how many.
    ///
    /// The report counts tables, files and bytes; those of several backups add up, but for the files they share.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such backup; those of the disk where a directory cannot be listed. What
    /// is wrong with files is a fault in the report.
    pub fn verify(&self, number: Option<u64>, mut progress: impl FnMut(u64, u64)) -> Result<VerifyReport> {
        let descriptions = match number {
            Some(number) => BTreeMap::from([(number, self.description(number))]),
            None => self.catalog()?.descriptions,
        };
        let mut report = VerifyReport::default();
        let mut tables: BTreeMap<SharedFile, String> = BTreeMap::new();
        for read in descriptions.into_values() {
            match read {
                Ok(description) => {
                    report.tables += description.state.tables.len() as u64;
                    for (table, file) in description.state.files() {
                        tables.entry(SharedFile::of(file)).or_insert_with(|| table.record.name.clone());
                    }
                }
                Err(error) if error.kind() == ErrorKind::NotFound => return Err(error),
                Err(error) => report.add(None, error),
            }
        }
        let total = tables.keys().fold(0, |sum: u64, file| sum.saturating_add(file.size));
        let mut done: u64 = 0;
        progress(0, total);
        for (file, table) in tables {
            report.files += 1;
            let end = done.saturating_add(file.size);
            let verified = self.verify_file(file, |bytes| {
                done = done.saturating_add(bytes).min(end);
                progress(done, total);
            });
            match verified {
                Ok(()) => report.bytes += file.size,
                Err(error) => report.add(Some(&table), error),
            }
            done = end;
            progress(done, total);
        }
        Ok(report)
    }

    /// Makes a database of a backup in `directory`, which can be opened like any other, and backed up into this
    /// directory, too. `progress` is told the bytes copied so far and of how many. Durable when it returns.
    ///
    /// Merge operators and transformers of yours are needed to open the database, not to restore it.
    ///
    /// Rows that have expired since are there, until the database is opened for writing with background threads: these
    /// delete them at once. To get them back, open it read-only, or with [`crate::Background::Manual`], and set another
    /// expiry ([`crate::Database::set_expiry`]) or copy them.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if `directory` exists and is not an empty directory; [`ErrorKind::NotFound`] if
    /// there is no such backup; [`ErrorKind::Corruption`] if a file of it is damaged or missing;
    /// [`ErrorKind::Unsupported`] for a newer format; those of the disk. What was copied before an error is removed
    /// again; what a crash leaves cannot be opened.
    pub fn restore(
        &self,
        number: u64,
        directory: impl AsRef<Path>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<CheckpointSummary> {
        let directory = directory.as_ref();
        check_vacant(&*self.disk, directory, "a database to be restored")?;
        let description = self.description(number)?;
        self.disk.create_directory(directory)?;
        let result = self.fill_restored(directory, &description, &mut progress);
        if result.is_err() {
            remove_copy(&*self.disk, directory);
        }
        result
    }

    /// Deletes backups, and the files that no other needs. Durable when it returns.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none of one of these numbers: none is deleted then. [`ErrorKind::Locked`] if
    /// another process or thread changes the directory. Those of the disk: some may be deleted then, and each is whole
    /// or gone; files that nothing needs are removed by the next change of the directory.
    pub fn delete(&self, numbers: &[u64]) -> Result<DeletedBackups> {
        let _lock = self.lock()?;
        let catalog = self.catalog()?;
        let numbers: BTreeSet<u64> = numbers.iter().copied().collect();
        if let Some(missing) = numbers.iter().copied().find(|number| !catalog.descriptions.contains_key(number)) {
            return Err(self.no_backup(missing));
        }
        self.delete_from(catalog, numbers)
    }

    /// Deletes all backups that are older than the newest `count`. Of those only the ones count whose descriptions can
    /// be read.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a count of 0. Otherwise as [`Self::delete`].
    pub fn keep(&self, count: usize) -> Result<DeletedBackups> {
        let Some(newer) = count.checked_sub(1) else {
            return Err(Error::invalid("one backup at least is kept; delete them by their numbers"));
        };
        let _lock = self.lock()?;
        let catalog = self.catalog()?;
        let mut readable = catalog.descriptions.iter().rev().filter(|(_, read)| read.is_ok());
        let oldest_kept = readable.nth(newer).map_or(0, |(number, _)| *number);
        let older = catalog.descriptions.range(..oldest_kept).map(|(number, _)| *number).collect();
        self.delete_from(catalog, older)
    }

    fn delete_from(&self, mut catalog: Catalog, numbers: BTreeSet<u64>) -> Result<DeletedBackups> {
        for number in &numbers {
            self.disk.remove(&Description::path(&self.directory, *number))?;
            catalog.descriptions.remove(number);
        }
        let (files, bytes) = self.remove_unneeded(&catalog, &BTreeSet::new())?;
        Ok(DeletedBackups { numbers: numbers.into_iter().collect(), files, bytes })
    }

    /// Makes the directory if it is not there.
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` if it holds files of a database; those of the disk.
    fn prepare(disk: Arc<dyn Disk>, directory: &Path) -> Result<Self> {
        disk.create_directory(directory)?;
        let is_of_database =
            |name: &&String| !matches!(FileKind::parse(name), None | Some((FileKind::Lock | FileKind::Temporary, _)));
        match disk.list(directory)?.iter().find(is_of_database) {
            Some(name) => {
                let error = Error::invalid("backups need a directory of their own, and this holds files of a database");
                Err(error.in_file(directory.join(name)))
            }
            None => Ok(Self { disk, directory: directory.to_path_buf() }),
        }
    }

    /// Held by who changes the directory.
    fn lock(&self) -> Result<Box<dyn FileLock>> {
        self.disk.lock(&self.directory.join(FileKind::Lock.name(0)))
    }

    fn no_backup(&self, number: u64) -> Error {
        Error::new(ErrorKind::NotFound, format!("there is no backup {number}")).in_file(&self.directory)
    }

    fn description(&self, number: u64) -> Result<Description> {
        Description::read(&*self.disk, &self.directory, number).map_err(|error| match error.kind() {
            ErrorKind::NotFound => self.no_backup(number),
            _ => error,
        })
    }

    fn catalog(&self) -> Result<Catalog> {
        let mut descriptions = BTreeMap::new();
        for number in self.disk.list(&self.directory)?.iter().filter_map(|name| Description::number_of(name)) {
            match Description::read(&*self.disk, &self.directory, number) {
                // It was deleted meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                read => drop(descriptions.insert(number, read)),
            }
        }
        Ok(Catalog { descriptions })
    }

    fn path_of(&self, file: SharedFile) -> PathBuf {
        self.directory.join(file.name())
    }

    fn open_file(&self, file: SharedFile) -> Result<Arc<dyn ReadableFile>> {
        let path = self.path_of(file);
        self.disk.open(&path, AccessPattern::Sequential).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::corruption("a file that a backup needs is missing")
                .in_file(&path)
                .at(0)
                .expected(format_args!("{} bytes", file.size), "no such file"),
            _ => error,
        })
    }

    /// Whether a file is there. Under its name it is whole; of another length it is damaged.
    fn holds(&self, file: SharedFile) -> Result<bool> {
        match self.disk.file_len(&self.path_of(file)) {
            Ok(len) => Ok(len == file.size),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn verify_file(&self, file: SharedFile, mut read: impl FnMut(u64)) -> Result<()> {
        let source = self.open_file(file)?;
        let checksum = read_whole(&*source, |piece| {
            read(piece.len() as u64);
            Ok(())
        })?;
        file.check(&self.path_of(file), source.len(), checksum)
    }

    fn fill_restored(
        &self,
        directory: &Path,
        description: &Description,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CheckpointSummary> {
        let sequence = description.state.last_sequence;
        let mut summary = CheckpointSummary { sequence, files: 0, copied: 0, bytes: 0 };
        let total = description.files().map(|file| file.size).sum();
        let mut done = 0;
        progress(done, total);
        for file in description.files() {
            let (source, to) = (self.open_file(file)?, directory.join(FileKind::Sst.name(file.number)));
            let checksum = copy_file(&*self.disk, &*source, &to, |bytes| {
                done += bytes;
                progress(done.min(total), total);
            })?;
            file.check(&self.path_of(file), source.len(), checksum)?;
            summary.files += 1;
            summary.copied += 1;
            summary.bytes += file.size;
        }
        self.disk.sync_directory(directory)?;
        let state = ManifestState { history: 0, ..description.state.clone() };
        Manifest::create_with(self.disk.clone(), directory, state, ManifestOptions::default())?;
        Ok(summary)
    }

    /// Removes what was being written, and the files that no backup needs and that are not `coming`; gives their number
    /// and bytes. Descriptions that are gone are durably gone before: one that comes back finds its files.
    fn remove_unneeded(&self, catalog: &Catalog, coming: &BTreeSet<SharedFile>) -> Result<(u64, u64)> {
        self.disk.sync_directory(&self.directory)?;
        let (holders, is_whole) = (catalog.holders(), catalog.is_whole());
        let (mut files, mut bytes) = (0, 0);
        for name in self.disk.list(&self.directory)? {
            let path = self.directory.join(&name);
            match SharedFile::parse(&name) {
                Some(file) if is_whole && !holders.contains_key(&file) && !coming.contains(&file) => {
                    self.disk.remove(&path)?;
                    files += 1;
                    bytes = file.size.saturating_add(bytes);
                }
                None if matches!(FileKind::parse(&name), Some((FileKind::Temporary, _))) => self.disk.remove(&path)?,
                _ => {}
            }
        }
        Ok((files, bytes))
    }
}

impl Catalog {
    /// Whether every description can be read.
    fn is_whole(&self) -> bool {
        self.descriptions.values().all(Result::is_ok)
    }

    fn readable(&self) -> impl Iterator<Item = &Description> {
        self.descriptions.values().filter_map(|read| read.as_ref().ok())
    }

    /// How many backups need each file.
    fn holders(&self) -> BTreeMap<SharedFile, u64> {
        let mut holders: BTreeMap<SharedFile, u64> = BTreeMap::new();
        for file in self.readable().flat_map(Description::files) {
            *holders.entry(file).or_default() += 1;
        }
        holders
    }

    /// Fails unless the backups are of the database with this identity, or there are none.
    fn check_owner(&self, identity: u64, directory: &Path) -> Result<()> {
        match self.readable().next() {
            Some(description) if description.state.identity == identity => Ok(()),
            Some(_) => Err(Error::invalid("the directory holds backups of another database").in_file(directory)),
            // Whose they are cannot be told.
            None => {
                self.descriptions.values().find_map(|read| read.as_ref().err()).map_or(Ok(()), |e| Err(e.duplicate()))
            }
        }
    }

    /// The number of the backup that comes next.
    fn next_number(&self, directory: &Path) -> Result<u64> {
        let newest = self.descriptions.last_key_value().map_or(0, |(number, _)| *number);
        if newest >= MAX_FILE_NUMBER {
            return Err(Error::invalid("the numbers of backups are used up").in_file(directory));
        }
        Ok(newest + 1)
    }
}

impl BackupInfo {
    fn new(number: u64, read: Result<Description>, holders: &BTreeMap<SharedFile, u64>) -> Self {
        let mut info =
            Self { number, time: SystemTime::UNIX_EPOCH, sequence: 0, files: 0, bytes: 0, own_bytes: 0, damage: None };
        match read {
            Ok(description) => {
                info.time = description.time();
                info.sequence = description.state.last_sequence;
                for file in description.files() {
                    info.files += 1;
                    info.bytes += file.size;
                    info.own_bytes += if holders.get(&file) == Some(&1) { file.size } else { 0 };
                }
            }
            Err(error) => info.damage = Some(error),
        }
        info
    }
}
