//! The manifest file and `CURRENT`.
//!
//! A manifest is a log segment (framing, checksums and torn-tail rules of `mycelium_wal`) whose records are
//!
//! ```text
//! record = 1 | edit                                        a version edit, see `edit`
//!        | 0 | "MYCSEAL1" | synced u64 LE | hash u64 LE    a seal: the first `synced` bytes had been synced
//! hash   = XXH3 of ("MYCSEAL1" | manifest number u64 LE | synced u64 LE)
//! ```
//!
//! The first records rebuild the state at which the manifest was started, the very first carries the format version.
//! `CURRENT` is one line, `MANIFEST-000007 0123456789abcdef`: the live manifest's name and the XXH3 of that name.
//!
//! [`Manifest::apply`]:
//! 1. Check the edit against the state (nothing is written if it does not fit).
//! 2. Append the record and sync.
//! 3. Append a seal, handed to the operating system but not synced. It costs one small write and makes the last edit
//!    tell apart from a torn tail: a bad record before a valid seal was acknowledged, so its loss is reported.
//! 4. If the file has grown past its limit, roll over: write the state to a fresh manifest, and a seal, sync it, write
//!    `CURRENT` to a temporary file, sync it, rename it into place, sync the directory, remove the old manifest. What
//!    the seal says is true by the time that `CURRENT` names the file; so it can be synced along, and a state that no
//!    edit follows, as that of a checkpoint, cannot lose its end unnoticed. If there is no descriptor to sync the
//!    directory with, no sync was made, and another may be: a crash finds either manifest, both of which have this
//!    state, until the next edit syncs the directory first.
//!
//! [`Manifest::recover`] replays the manifest that `CURRENT` names and always rolls over, so that nothing is ever
//! appended behind a torn tail.
//!
//! Guarantees: after `apply` returned `Ok` the edit survives any crash. If it failed with [`Manifest::is_poisoned`]
//! false, the edit is gone for good. If it is poisoned, the edit may or may not be there after the next recovery: the
//! files it added and removed must both be left alone.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mycelium_base::hash::hash_key;
use mycelium_base::{Error, ErrorKind, FileKind, FileNumber, MAX_FILE_NUMBER, Result};
use mycelium_vfs::{AccessPattern, Disk, ReadableFile};
use mycelium_wal::{RECORD_HEADER_LEN, SegmentHeader, SegmentPosition, SegmentReader, SegmentWriter, Tear};

use crate::edit::VersionEdit;
use crate::state::ManifestState;

const RECORD_SEAL: u8 = 0;
const RECORD_EDIT: u8 = 1;
const SEAL_MAGIC: &[u8; 8] = b"MYCSEAL1";
const SEAL_LEN: usize = 24;
/// `CURRENT` is never longer; a longer one is not read.
const MAX_CURRENT_LEN: u64 = 128;

/// How a manifest behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ManifestOptions {
    /// Start a fresh manifest when this one is longer than this many bytes and than twice its starting state.
    pub roll_at_bytes: u64,
}

impl Default for ManifestOptions {
    fn default() -> Self {
        Self { roll_at_bytes: 4 << 20 }
    }
}

/// Hands out the database's file numbers. Clones share one counter; safe from any thread.
#[derive(Clone, Debug)]
pub struct FileNumbers(Arc<AtomicU64>);

impl FileNumbers {
    /// A counter whose next number is `next`.
    pub fn starting_at(next: FileNumber) -> Self {
        Self(Arc::new(AtomicU64::new(next)))
    }

    /// A number never handed out before.
    pub fn allocate(&self) -> FileNumber {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// The number that `allocate` would return now.
    pub fn peek(&self) -> FileNumber {
        self.0.load(Ordering::Relaxed)
    }

    /// Makes all numbers below `next` count as handed out.
    pub fn raise_to(&self, next: FileNumber) {
        self.0.fetch_max(next, Ordering::Relaxed);
    }
}

/// The live manifest of a database: the only writer of its state. One owner at a time.
///
/// ```
/// use std::{path::Path, sync::Arc};
/// use mycelium_base::TableId;
/// use mycelium_manifest::{Manifest, ManifestOptions, TableRecord, VersionEdit};
/// use mycelium_vfs::{Disk, MemoryDisk};
///
/// let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
/// disk.create_directory(Path::new("/db"))?;
/// let mut manifest = Manifest::create(disk.clone(), Path::new("/db"), ManifestOptions::default())?;
/// let table = TableRecord { id: TableId(0), name: "users".into(), definition: vec![], layout: String::new() };
/// manifest.apply(&VersionEdit { created_tables: vec![table], ..VersionEdit::default() })?;
/// drop(manifest);
///
/// let (_manifest, state) = Manifest::recover(disk, Path::new("/db"), ManifestOptions::default())?;
/// assert!(state.table_named("users").is_some());
/// # Ok::<(), mycelium_base::Error>(())
/// ```
pub struct Manifest {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    options: ManifestOptions,
    writer: SegmentWriter,
    /// Length of the live manifest when it was started.
    start_len: u64,
    state: ManifestState,
    numbers: FileNumbers,
    record: Vec<u8>,
    /// The manifest before this one, while it is not known that a crash finds this one.
    replaced: Option<PathBuf>,
    poisoned: Option<Error>,
}

impl std::fmt::Debug for Manifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manifest")
            .field("path", &self.writer.path())
            .field("len", &self.writer.len())
            .field("edit_count", &self.state.edit_count)
            .field("poisoned", &self.poisoned)
            .finish_non_exhaustive()
    }
}

impl Manifest {
    /// Makes an empty database in an existing directory. What an interrupted creation left there is removed.
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` if there is a `CURRENT` already; those of the disk.
    pub fn create(disk: Arc<dyn Disk>, directory: &Path, options: ManifestOptions) -> Result<Self> {
        Self::create_with(disk, directory, ManifestState::default(), options)
    }

    /// Makes a database that starts with `state` (a checkpoint; its files must be in place and synced already).
    ///
    /// # Errors
    /// As [`Manifest::create`].
    pub fn create_with(
        disk: Arc<dyn Disk>,
        directory: &Path,
        state: ManifestState,
        options: ManifestOptions,
    ) -> Result<Self> {
        if disk.exists(&directory.join("CURRENT"))? {
            return Err(Error::invalid("there is a database already").in_file(directory));
        }
        Self::resume(disk, directory, state, options)
    }

    /// Reads the state back and starts a fresh manifest from it. Leftover manifests are removed.
    ///
    /// # Errors
    /// `ErrorKind::NotFound` if there is no `CURRENT`; `ErrorKind::Unsupported` for a newer format;
    /// `ErrorKind::Corruption` (with file and offset) if acknowledged edits are damaged or the state breaks an
    /// invariant; those of the disk. A torn last edit, never acknowledged, is no error: it is dropped.
    pub fn recover(disk: Arc<dyn Disk>, directory: &Path, options: ManifestOptions) -> Result<(Self, ManifestState)> {
        let state = Self::read(&*disk, directory)?;
        let manifest = Self::resume(disk, directory, state, options)?;
        let state = manifest.state.clone();
        Ok((manifest, state))
    }

    /// The second half of [`Manifest::recover`], for who has something to check first: starts a fresh manifest from the
    /// state that [`Manifest::read`] gave, perhaps changed, in place of the live one.
    ///
    /// # Errors
    /// Those of the disk; `ErrorKind::InvalidArgument` if the file numbers are used up.
    pub fn resume(
        disk: Arc<dyn Disk>,
        directory: &Path,
        state: ManifestState,
        options: ManifestOptions,
    ) -> Result<Self> {
        let manifest = Self::start(disk, directory, state, options)?;
        manifest.remove_leftovers()?;
        Ok(manifest)
    }

    /// Whether the live manifest holds nothing but the state that it was started with, as that of a checkpoint. One
    /// that names a log has an edit behind it from the start on, unless an older version wrote it. Errors as
    /// [`Manifest::recover`].
    pub fn is_as_started(disk: &dyn Disk, directory: &Path) -> Result<bool> {
        let path = Self::live_path(disk, directory)?;
        let mut is_as_started = true;
        read_edits(disk, &path, &mut |_, edit| {
            // Only the records that open a manifest say their ordinal.
            is_as_started &= edit.ordinal.is_some();
            Ok(())
        })?;
        Ok(is_as_started)
    }

    /// The file of the manifest that `CURRENT` names, for [`read_edits`]. Errors as [`Manifest::recover`].
    pub fn live_path(disk: &dyn Disk, directory: &Path) -> Result<PathBuf> {
        let (name, _) = read_current(disk, directory)?;
        let path = directory.join(&name);
        if !disk.exists(&path)? {
            return Err(Error::corruption("CURRENT names a manifest that does not exist")
                .in_file(directory.join("CURRENT"))
                .expected(name, "no such file"));
        }
        Ok(path)
    }

    /// The number of the manifest that `CURRENT` names, whether it is there or not.
    ///
    /// # Errors
    /// `ErrorKind::NotFound` if there is no `CURRENT`; corruption if it is damaged; those of the disk.
    pub fn named(disk: &dyn Disk, directory: &Path) -> Result<FileNumber> {
        read_current(disk, directory).map(|(_, number)| number)
    }

    /// Makes an edit durable and part of the state.
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` if the edit does not fit the state: nothing was done. Otherwise the disk's; see
    /// [`Manifest::is_poisoned`] for what then holds. Durable when it returns `Ok`. One sync; O(edit + files of the
    /// tables touched), however many tables there are.
    pub fn apply(&mut self, edit: &VersionEdit) -> Result<()> {
        if let Some(error) = &self.poisoned {
            return Err(error.duplicate());
        }
        self.finish_switch()?;
        self.numbers.raise_to(edit.next_file_number.unwrap_or(0));
        let edit = VersionEdit { next_file_number: Some(self.numbers.peek()), ..edit.clone() };
        let change = self.state.change(&edit)?;
        encode_record(&edit, &mut self.record);
        if let Err(error) = self.writer.append(&[&self.record]).and_then(|()| self.writer.flush()) {
            return Err(self.failed_append(error));
        }
        if let Err(error) = self.writer.sync() {
            self.poisoned = Some(error.duplicate());
            return Err(error);
        }
        self.numbers.raise_to(change.next_file_number);
        self.state.take(change);
        self.seal();
        if self.writer.len() > self.options.roll_at_bytes.max(2 * self.start_len) {
            self.roll_over()?;
        }
        Ok(())
    }

    /// What all edits so far add up to.
    pub fn state(&self) -> &ManifestState {
        &self.state
    }

    /// The counter of the database's file numbers. Every edit records it.
    pub fn file_numbers(&self) -> &FileNumbers {
        &self.numbers
    }

    /// Whether a sync failed (or a failed append could not be undone): every further `apply` fails, and whether the
    /// failed edit survives is unknown.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.is_some()
    }

    /// The live manifest's file.
    pub fn path(&self) -> &Path {
        self.writer.path()
    }

    /// The append was undone by the writer; makes the undoing durable, lest the record be there after a crash. On a
    /// full disk that may fail too, but then the record was never whole.
    #[cold]
    fn failed_append(&mut self, error: Error) -> Error {
        if let Err(second) = self.rewrite_tail() {
            let is_full = error.kind() == ErrorKind::NoSpace && second.kind() == ErrorKind::NoSpace;
            if !is_full || self.writer.has_failed() {
                self.poisoned = Some(second.caused_by(error.duplicate()));
            }
        }
        error
    }

    /// Writes and syncs a seal: whatever a failed append left behind is overwritten or cut off for good.
    fn rewrite_tail(&mut self) -> Result<()> {
        let seal = encode_seal(self.writer.number(), self.writer.synced_len());
        self.writer.append(&[&seal])?;
        self.writer.sync()
    }

    /// A failure is no loss: the edit is durable, only its damage would not be noticed.
    fn seal(&mut self) {
        let seal = encode_seal(self.writer.number(), self.writer.synced_len());
        if let Err(error) = self.writer.append(&[&seal]).and_then(|()| self.writer.flush())
            && self.writer.is_broken()
        {
            self.poisoned = Some(error);
        }
    }

    /// Replaces the live manifest. A full disk, or want of descriptors, before the switch leaves the old one in use, to
    /// grow to twice its length before the next try. Want of descriptors behind it leaves the switch to be synced; any
    /// other failure poisons.
    fn roll_over(&mut self) -> Result<()> {
        let number = self.numbers.allocate();
        self.state.next_file_number = self.state.next_file_number.max(number.saturating_add(1));
        let old = self.writer.path().to_path_buf();
        match prepare(&*self.disk, &self.directory, number, &self.state) {
            Ok(writer) => self.writer = writer,
            Err(error) if error.kind().is_shortage() => {
                // What cannot be removed now, the next recovery removes.
                for kind in [FileKind::Manifest, FileKind::Temporary] {
                    self.disk.remove(&self.directory.join(kind.name(number))).ok();
                }
                self.start_len = self.writer.len();
                return Ok(());
            }
            Err(error) => return Err(self.poison(error)),
        }
        self.start_len = self.writer.len();
        rename_current(&*self.disk, &self.directory, number).map_err(|e| self.poison(e))?;
        self.replaced = Some(old);
        match self.finish_switch() {
            // Both manifests have the edit, durably.
            Err(error) if error.kind() == ErrorKind::TooManyOpenFiles => Ok(()),
            finished => finished,
        }
    }

    /// Makes the last switch of `CURRENT` durable, if it is not known to be, and removes the manifest before it. After
    /// want of a descriptor that is still to be done; any other failure poisons.
    fn finish_switch(&mut self) -> Result<()> {
        let Some(replaced) = &self.replaced else { return Ok(()) };
        match self.disk.sync_directory(&self.directory) {
            Ok(()) => {
                self.disk.remove(replaced).ok();
                self.replaced = None;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::TooManyOpenFiles => Err(error),
            Err(error) => Err(self.poison(error)),
        }
    }

    #[cold]
    fn poison(&mut self, error: Error) -> Error {
        self.poisoned = Some(error.duplicate());
        error
    }

    fn start(
        disk: Arc<dyn Disk>,
        directory: &Path,
        mut state: ManifestState,
        options: ManifestOptions,
    ) -> Result<Self> {
        let in_use = disk.list(directory)?.iter().filter_map(|name| FileKind::parse(name)).map(|(_, n)| n).max();
        let number = state.next_file_number.max(in_use.unwrap_or(0).saturating_add(1));
        // Half of them are left for the time until the next start, which is more than can be used up.
        if number > MAX_FILE_NUMBER / 2 {
            return Err(Error::invalid("the file numbers of the database are used up")
                .in_file(directory)
                .expected(format_args!("numbers up to {}", MAX_FILE_NUMBER / 2), number));
        }
        state.next_file_number = number.saturating_add(1);
        let writer = prepare(&*disk, directory, number, &state)?;
        rename_current(&*disk, directory, number)?;
        disk.sync_directory(directory)?;
        Ok(Self {
            start_len: writer.len(),
            numbers: FileNumbers::starting_at(state.next_file_number),
            directory: directory.to_path_buf(),
            disk,
            options,
            writer,
            state,
            record: Vec::new(),
            replaced: None,
            poisoned: None,
        })
    }

    /// Removes manifests other than the live one, and temporary files.
    fn remove_leftovers(&self) -> Result<()> {
        for name in self.disk.list(&self.directory)? {
            let leftover = match FileKind::parse(&name) {
                Some((FileKind::Manifest, number)) => number != self.writer.number(),
                Some((FileKind::Temporary, _)) => true,
                _ => false,
            };
            if leftover {
                self.disk.remove(&self.directory.join(name))?;
            }
        }
        Ok(())
    }
}

/// Calls `visit` with every edit of a manifest file and the offset of its record, in order.
///
/// # Errors
/// Corruption if an acknowledged record is damaged, or a record does not decode; `ErrorKind::Unsupported` for a newer
/// format; the first error of `visit`; those of the disk.
pub fn read_edits(disk: &dyn Disk, path: &Path, visit: &mut dyn FnMut(u64, VersionEdit) -> Result<()>) -> Result<()> {
    read_records(disk, path, None, &mut |offset, record| record.map_or(Ok(()), |edit| visit(offset, edit))).map(drop)
}

/// How far a manifest was read.
pub(crate) struct ReadRecords {
    /// Whether the last record is whole.
    is_whole: bool,
    pub(crate) position: SegmentPosition,
}

/// As [`read_edits`], seals included, which are `None`; behind `from`, if it is given.
pub(crate) fn read_records(
    disk: &dyn Disk,
    path: &Path,
    from: Option<&SegmentPosition>,
    visit: &mut dyn FnMut(u64, Option<VersionEdit>) -> Result<()>,
) -> Result<ReadRecords> {
    let expected = path.file_name().and_then(|n| n.to_str()).and_then(FileKind::parse).map(|(_, number)| number);
    let mut reader = SegmentReader::open(disk, path, expected)?;
    if let Some(from) = from {
        reader.go_on_from(from)?;
    }
    while let Some(record) = reader.next()? {
        let (offset, body) = (record.offset, record.offset + RECORD_HEADER_LEN as u64);
        match record.payload.split_first() {
            Some((&RECORD_SEAL, _)) => visit(offset, None)?,
            Some((&RECORD_EDIT, bytes)) => {
                let edit = VersionEdit::decode(bytes).map_err(|e| match e.offset() {
                    Some(at) if e.is_corruption() => {
                        Error::corruption("malformed version edit").in_file(path).at(body + 1 + at).caused_by(e)
                    }
                    _ => e.in_file(path).at(offset),
                })?;
                visit(offset, Some(edit))?;
            }
            other => {
                let found = other.map_or(0, |(&kind, _)| kind);
                return Err(Error::new(ErrorKind::Unsupported, "unknown kind of manifest record")
                    .in_file(path)
                    .at(offset)
                    .expected("0 or 1", found));
            }
        }
    }
    if let Some(successor) = reader.continued_by() {
        return Err(Error::corruption("a manifest ends as a log segment does that another one continues")
            .in_file(path)
            .at(reader.position())
            .expected("no successor", format_args!("segment {successor}")));
    }
    let number = reader.header().number;
    if let Some(tear) = reader.tear() {
        check_tear(reader.file(), path, number, tear)?;
    }
    Ok(ReadRecords { is_whole: reader.tear().is_none(), position: reader.to_go_on() })
}

/// What can be read of a manifest that may be damaged.
#[derive(Debug)]
pub struct ManifestRemains {
    /// What the edits before the damage add up to: a state that the database was in.
    pub state: ManifestState,
    /// Why the edits after it cannot be read, if there are such.
    pub fault: Option<Error>,
}

impl ManifestRemains {
    /// Reads a manifest up to the first damaged record and writes nothing.
    ///
    /// # Errors
    /// Corruption if the records are damaged that the manifest was started with: without all of them there is no state;
    /// `ErrorKind::Unsupported` for a newer format; those of the disk.
    pub fn read(disk: &dyn Disk, path: &Path) -> Result<Self> {
        let mut state = ManifestState::default();
        let (mut has_version, mut is_started) = (false, false);
        let read = read_records(disk, path, None, &mut |offset, record| {
            // The seal behind them, or an edit that does not say its ordinal, comes after those of the start.
            let Some(edit) = record else {
                is_started = true;
                return Ok(());
            };
            is_started |= edit.ordinal.is_none();
            has_version |= edit.format_version.is_some();
            apply_read(&mut state, &edit, path, offset)?;
            Ok(())
        });
        let fault = match read {
            Ok(read) if has_version && (is_started || read.is_whole) => None,
            Err(error) if has_version && is_started && error.kind() != ErrorKind::Unsupported => Some(error),
            Err(error) => return Err(error),
            Ok(_) => {
                return Err(Error::corruption("the manifest ends before the state that it was started with")
                    .in_file(path)
                    .at(0));
            }
        };
        state.check().map_err(|e| e.in_file(path))?;
        Ok(Self { state, fault })
    }
}

/// Makes an edit that was read at `offset` part of the state.
pub(crate) fn apply_read(state: &mut ManifestState, edit: &VersionEdit, path: &Path, offset: u64) -> Result<()> {
    state.apply_in_place(edit).map_err(|e| {
        Error::corruption("an edit does not fit the state before it").in_file(path).at(offset).caused_by(e)
    })
}

/// Fails if a seal behind the tear proves that the torn bytes had been synced. Looks no further than the file went when
/// the tear was found: if the database is open elsewhere, the edit that was being appended is whole by now, and sealed.
fn check_tear(file: &dyn ReadableFile, path: &Path, number: FileNumber, tear: &Tear) -> Result<()> {
    const PIECE: usize = 1 << 20;
    let mut at = tear.offset;
    let mut piece = Vec::new();
    while at + SEAL_LEN as u64 <= file.len() {
        piece.resize((file.len() - at).min(PIECE as u64) as usize, 0);
        file.read_at(at, &mut piece)?;
        for candidate in piece.windows(SEAL_LEN) {
            if decode_seal(number, candidate).is_some_and(|synced| synced > tear.offset) {
                return Err(Error::corruption(format!(
                    "a version edit that had been synced is damaged: {}",
                    tear.reason
                ))
                .in_file(path)
                .at(tear.offset));
            }
        }
        at += (piece.len() - (SEAL_LEN - 1)) as u64;
    }
    Ok(())
}

fn encode_record(edit: &VersionEdit, record: &mut Vec<u8>) {
    record.clear();
    record.push(RECORD_EDIT);
    edit.encode(record);
}

fn seal_hash(number: FileNumber, synced: u64) -> u64 {
    let mut hashed = [0; 24];
    hashed[..8].copy_from_slice(SEAL_MAGIC);
    hashed[8..16].copy_from_slice(&number.to_le_bytes());
    hashed[16..].copy_from_slice(&synced.to_le_bytes());
    hash_key(&hashed)
}

fn encode_seal(number: FileNumber, synced: u64) -> [u8; SEAL_LEN + 1] {
    let mut seal = [RECORD_SEAL; SEAL_LEN + 1];
    seal[1..9].copy_from_slice(SEAL_MAGIC);
    seal[9..17].copy_from_slice(&synced.to_le_bytes());
    seal[17..].copy_from_slice(&seal_hash(number, synced).to_le_bytes());
    seal
}

/// The synced length that a seal of this manifest testifies, or `None` if the bytes are no such seal.
fn decode_seal(number: FileNumber, bytes: &[u8]) -> Option<u64> {
    let rest = bytes.strip_prefix(SEAL_MAGIC)?;
    let (synced, hash) = rest.split_at_checked(8)?;
    let synced = u64::from_le_bytes(synced.try_into().ok()?);
    (u64::from_le_bytes(hash.try_into().ok()?) == seal_hash(number, synced)).then_some(synced)
}

/// The edits that a manifest of this state starts with. Where a log is needed, the last of those that led to the state
/// is said by itself, as an empty edit: there is a database behind it. An older version's checkpoint named the log of
/// its source, which is not there, and has its state alone.
fn opening_edits(state: &ManifestState) -> Vec<VersionEdit> {
    if state.oldest_wal == 0 {
        return state.to_edits();
    }
    let before = ManifestState { edit_count: state.edit_count.saturating_sub(1), ..state.clone() };
    let mut edits = before.to_edits();
    edits.push(VersionEdit::default());
    edits
}

/// Writes and syncs a manifest that holds `state`, sealed, and the temporary file that is to become `CURRENT`.
fn prepare(disk: &dyn Disk, directory: &Path, number: FileNumber, state: &ManifestState) -> Result<SegmentWriter> {
    let name = FileKind::Manifest.name(number);
    let header = SegmentHeader { number, previous: None };
    let mut writer = SegmentWriter::create(disk, &directory.join(&name), header)?;
    let mut record = Vec::new();
    for edit in opening_edits(state) {
        encode_record(&edit, &mut record);
        writer.append(&[&record])?;
    }
    let seal = encode_seal(number, writer.len());
    writer.append(&[&seal])?;
    writer.sync()?;
    let mut current = disk.create(&directory.join(FileKind::Temporary.name(number)))?;
    current.append(format!("{name} {:016x}\n", hash_key(name.as_bytes())).as_bytes())?;
    current.sync()?;
    Ok(writer)
}

/// Makes `CURRENT` name the manifest that was prepared; durably, once the directory is synced.
fn rename_current(disk: &dyn Disk, directory: &Path, number: FileNumber) -> Result<()> {
    disk.rename(&directory.join(FileKind::Temporary.name(number)), &directory.join("CURRENT"))
}

/// The name and the number of the live manifest.
fn read_current(disk: &dyn Disk, directory: &Path) -> Result<(String, FileNumber)> {
    let path = directory.join("CURRENT");
    let malformed = |found: &[u8]| {
        Error::corruption("CURRENT is damaged").in_file(&path).at(0).expected(
            "a line with a manifest's name and its hash",
            format_args!("{:?}", String::from_utf8_lossy(found)),
        )
    };
    let file = disk.open(&path, AccessPattern::Sequential)?;
    if file.len() > MAX_CURRENT_LEN {
        return Err(malformed(b"a long file"));
    }
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(0, &mut bytes)?;
    let line = std::str::from_utf8(&bytes).ok().and_then(|text| text.strip_suffix('\n'));
    let (name, hash) = line.and_then(|line| line.split_once(' ')).ok_or_else(|| malformed(&bytes))?;
    match FileKind::parse(name) {
        Some((FileKind::Manifest, number)) if hash == format!("{:016x}", hash_key(name.as_bytes())) => {
            Ok((name.to_owned(), number))
        }
        _ => Err(malformed(&bytes)),
    }
}
