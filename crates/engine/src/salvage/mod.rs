//! Salvage: what can be read of a damaged database becomes a new one, and what cannot is told.
//!
//! 1. Find the state (`state`): what the manifest says, as far as it can be read, and what files say of where they
//!    belong (`statements`), as far as they know of more.
//! 2. Copy every SST that it names, once, and look at the copy only (`files`): what cannot be read of it becomes zeros,
//!    which no checksum fits. A copy that verifies is kept as it is.
//! 3. Of the others tell the keys that are lost. Older versions of them must not take their place: see
//!    [`OlderVersions`]. Copies that are damaged, or hold such versions, are written anew without (`files`), at the
//!    same place of the tree.
//! 4. Copy the log's records up to the first that cannot be read (`log`).
//! 5. Empty the indexes of tables that have lost something, those that are damaged themselves, and all where edits of
//!    the manifest are lost: one of these may have dropped an index, and the log then go on without it. Whoever opens
//!    the new database builds them again from its rows. Of these, leave out unique ones.
//! 6. Write a manifest, and `CURRENT`, as a checkpoint does: until then there is no database.
//!
//! Files move as they are, level by level: no row is put together, so neither merge operators nor transformers are
//! needed, rows, columns and range deletes keep their sequence numbers, and memory holds one block, or what one
//! columnar file takes to be written, beside the keys that are lost.
//!
//! Guarantees: nothing is written to the damaged directory, nor is a lock file made there. With
//! [`OlderVersions::LeaveOut`] a row of the new database is what the damaged one had for its key at the moment up to
//! which manifest, or files in its place, and log could be read; a key that it lacks was not there then, or lies within
//! what the report tells as lost.

mod files;
mod log;
mod report;
mod state;
mod statements;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use mycelium_base::{Error, ErrorKind, FileKind, FileNumber, Result, TableId};
use mycelium_manifest::{FileNumbers, KeyRange, Manifest, ManifestOptions, ManifestState, TableState};
use mycelium_vfs::{Disk, FileLock, LocalDisk};

pub use self::report::{LostRange, SalvageReport};
use self::state::Start;
use self::statements::GoneFile;
use crate::copy::remove_copy;
use crate::recover::numbered;
use crate::table::TableDefinition;

/// How a damaged database is salvaged.
#[derive(Clone, Debug)]
pub struct SalvageOptions {
    /// The disk that both directories are on.
    pub disk: Arc<dyn Disk>,
    /// What becomes of versions that are older than lost ones.
    pub older: OlderVersions,
}

impl Default for SalvageOptions {
    /// The local disk; older versions are left out.
    fn default() -> Self {
        Self { disk: Arc::new(LocalDisk), older: OlderVersions::default() }
    }
}

/// What becomes of the older versions of keys whose newest may be lost.
///
/// A lost block or file may have held the newest version of any key between its first and its last one, or a delete.
/// What lies below it in the tree says what the key's row was before.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OlderVersions {
    /// They are left out: a row is the newest one, as far as manifest and log can be read, or not there. So are rows
    /// that lie in column groups, of keys of which one group is lost; and in a table with a merge operator everything
    /// within the lost keys, for operands of any age may lack what they are to be applied to.
    #[default]
    LeaveOut,
    /// They return, as if what is lost had never been written: rows that were deleted may be there again, rows may be
    /// as they were before, or have some columns, or operands, of an older version and some of a newer one. What lies
    /// in column groups is left out where one group is lost, for no row can be read that lacks a group.
    Keep,
}

/// Saves what can be read of the database in `from`, which must be closed and may be damaged anyhow, as a new database
/// in `to`, and says what is lost. `from` is only read. `progress` is told the bytes of files looked at so far and of
/// how many.
///
/// It succeeds whatever is lost, as long as a manifest can be read, or files that say of which tables they are: look at
/// the report ([`SalvageReport::is_complete`]). The new database is durable when it returns, and opens as any other.
/// Its indexes may have to be built again, which happens in the background, and unique ones created again; traces of
/// what tables were asked for are not taken along.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] if `to` exists and is not an empty directory, or lies within `from`;
/// [`ErrorKind::NotFound`] if `from` holds no database; [`ErrorKind::Locked`] if it is open; [`ErrorKind::Corruption`]
/// if no manifest can be read and no file says of which table it is, or what they say does not fit together, as where
/// there are files of several databases;
/// [`ErrorKind::Unsupported`] if something is of a newer version; those of writing. After any, `to` is as empty as it
/// was.
///
/// ```
/// # use mycelium_engine::{Database, Durability, Options, SalvageOptions, TableOptions, salvage};
/// # use std::sync::Arc;
/// let disk = mycelium_vfs::MemoryDisk::new();
/// let options = Options { disk: Arc::new(disk.clone()), ..Options::default() };
/// let database = Database::open("damaged", options.clone())?;
/// let table = database.create_table("kv", TableOptions::default())?;
/// table.put(b"key", b"value", Durability::Sync)?;
/// database.flush()?;
/// table.put(b"other key", b"value", Durability::Sync)?;
/// database.close()?;
/// let file = disk.paths().into_iter().find(|path| path.extension().is_some_and(|extension| extension == "sst"));
/// disk.flip_bit(&file.unwrap(), 100)?;
///
/// let salvaging = SalvageOptions { disk: Arc::new(disk), ..SalvageOptions::default() };
/// let report = salvage("damaged", "saved", &salvaging, |done, total| assert!(done <= total))?;
/// assert!(!report.is_complete() && report.lost[0].range.contains(b"key"));
/// let saved = Database::open("saved", options)?.table("kv")?;
/// assert!(saved.get(b"key")?.is_none());
/// assert_eq!(saved.get(b"other key")?.as_deref(), Some(&b"value"[..]));
/// # Ok::<(), mycelium_engine::Error>(())
/// ```
pub fn salvage(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    options: &SalvageOptions,
    mut progress: impl FnMut(u64, u64),
) -> Result<SalvageReport> {
    let (from, to, disk) = (from.as_ref(), to.as_ref(), &*options.disk);
    check_target(disk, from, to)?;
    let _lock = lock_out_writers(disk, from)?;
    let mut report = SalvageReport::default();
    let Start { state, unchecked, gone, placed } = state::find(disk, from, &mut report)?;
    disk.create_directory(to)?;
    let salvage = Salvage {
        disk,
        from,
        to,
        older: options.older,
        numbers: FileNumbers::starting_at(state.next_file_number),
        report,
        unchecked,
        checksums: BTreeMap::new(),
        gone,
        placed,
        progress: Progress::new(&state, &mut progress),
    };
    let saved = salvage.run(&options.disk, state);
    if saved.is_err() {
        remove_copy(disk, to);
    }
    saved
}

fn check_target(disk: &dyn Disk, from: &Path, to: &Path) -> Result<()> {
    if to.starts_with(from) {
        return Err(Error::invalid("what is salvaged must not go into the damaged directory").in_file(to));
    }
    if disk.exists(to)? && !disk.list(to)?.is_empty() {
        let message = "what is salvaged goes into a directory that does not exist or is empty";
        return Err(Error::invalid(message).in_file(to));
    }
    Ok(())
}

/// Sees to it that nobody writes meanwhile, if there is a lock file: none is made. A disk that cannot be written to, so
/// that nothing can be locked on it, has no writer either.
fn lock_out_writers(disk: &dyn Disk, from: &Path) -> Result<Option<Box<dyn FileLock>>> {
    let path = from.join(FileKind::Lock.name(0));
    if !disk.exists(&path)? {
        return Ok(None);
    }
    match disk.lock(&path) {
        Err(error) if error.kind() == ErrorKind::Locked => Err(error),
        lock => Ok(lock.ok()),
    }
}

/// A salvage that is going on.
struct Salvage<'a> {
    disk: &'a dyn Disk,
    from: &'a Path,
    to: &'a Path,
    older: OlderVersions,
    /// Of the new database.
    numbers: FileNumbers,
    report: SalvageReport,
    /// Files whose checksum is not known; that of their copies.
    unchecked: BTreeSet<FileNumber>,
    checksums: BTreeMap<FileNumber, u64>,
    /// See [`Start`].
    gone: BTreeMap<TableId, Vec<GoneFile>>,
    placed: BTreeSet<FileNumber>,
    progress: Progress<'a>,
}

/// Bytes of files looked at.
struct Progress<'a> {
    done: u64,
    total: u64,
    tell: &'a mut dyn FnMut(u64, u64),
}

impl<'a> Progress<'a> {
    fn new(state: &ManifestState, tell: &'a mut dyn FnMut(u64, u64)) -> Self {
        let total = state.tables.values().map(|table| table.version.total_bytes()).sum();
        tell(0, total);
        Self { done: 0, total, tell }
    }

    fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        (self.tell)(self.done, self.total);
    }
}

/// By table, keys of which the log's operations are left out, too.
type LeftOut = BTreeMap<TableId, Vec<KeyRange>>;

impl Salvage<'_> {
    fn run(mut self, disk: &Arc<dyn Disk>, mut state: ManifestState) -> Result<SalvageReport> {
        self.report.tables = state.tables.len() as u64;
        self.report.files = state.tables.values().map(|table| table.version.file_count() as u64).sum();
        let named = state.clone();
        let (mut lossy, mut left_out, mut indexes) = (BTreeSet::new(), LeftOut::new(), Vec::new());
        let mut tables = std::mem::take(&mut state.tables).into_map();
        for (id, table) in &mut tables {
            let definition = TableDefinition::decode(&table.record.definition)?;
            if definition.index.is_some() {
                indexes.push((*id, definition));
                continue;
            }
            let gone = self.gone.remove(id).unwrap_or_default();
            let lost = self.salvage_table(table, &definition, gone)?;
            if !lost.is_empty() {
                lossy.insert(*id);
            }
            if definition.options.merge_operator.is_some() && self.older == OlderVersions::LeaveOut {
                left_out.insert(*id, lost);
            }
        }
        // Those that are to be built again.
        let mut unbuilt = Vec::new();
        for (id, definition) in indexes {
            let Some(table) = tables.get_mut(&id) else { continue };
            let is_lossy = definition.index.as_ref().is_some_and(|index| lossy.contains(&index.table));
            let is_doubtful = self.report.lost_edits || is_lossy;
            if is_doubtful {
                self.progress.advance(table.version.total_bytes());
            } else if self.salvage_index(table, &definition)? {
                continue;
            }
            unbuilt.push((id, definition, is_doubtful));
        }
        state.tables = tables.into();
        let log = self.salvage_log(&state, &left_out)?;
        state.oldest_wal = log.number;
        state.history = 0;
        state.last_sequence = state.last_sequence.max(log.last_sequence);
        for (id, definition, is_doubtful) in unbuilt {
            self.empty_index(&mut state, (id, definition), is_doubtful);
        }
        state.next_file_number = self.numbers.peek();
        self.report.sequence = state.last_sequence;
        self.name_unplaced(&named)?;
        state.check()?;
        self.disk.sync_directory(self.to)?;
        Manifest::create_with(disk.clone(), self.to, state, ManifestOptions::default())?;
        Ok(self.report)
    }

    /// Steps 2 and 3 for a table; the keys of which something is lost.
    fn salvage_table(
        &mut self,
        table: &mut TableState,
        definition: &TableDefinition,
        gone: Vec<GoneFile>,
    ) -> Result<Vec<KeyRange>> {
        let mut examined = self.examine(&table.record.name, &table.version, definition)?;
        for file in gone {
            self.report.note(Some(table.record.name.as_str()), file.error.duplicate());
            examined.miss(file, definition);
        }
        table.version = Arc::new(self.save(&table.version, &examined, definition)?);
        let lost = examined.losses.into_iter();
        let told = lost.map(|loss| {
            let range = loss.range.clone();
            self.report.lost.push(loss.told(&table.record.name, definition.schema.as_ref(), self.older));
            range
        });
        Ok(told.collect())
    }

    /// The same for an index of a table that has lost nothing; whether the index is whole.
    fn salvage_index(&mut self, table: &mut TableState, definition: &TableDefinition) -> Result<bool> {
        let examined = self.examine(&table.record.name, &table.version, definition)?;
        if !examined.is_sound() {
            self.remove_copies(&table.version)?;
            return Ok(false);
        }
        table.version = Arc::new(self.save(&table.version, &examined, definition)?);
        Ok(true)
    }

    /// Step 5. An index is as it is when it was just made of a table with rows: what is in files was there before it,
    /// and so was what the log holds. One that is unique must be whole to be asked, so it goes. `is_doubtful`: patches
    /// in the log may have no row, since that is lost, or since the index had been dropped and they were not prepared
    /// for it. Replay folds them with each other; so nothing of before is taken without its row then.
    fn empty_index(
        &mut self,
        state: &mut ManifestState,
        (id, mut definition): (TableId, TableDefinition),
        is_doubtful: bool,
    ) {
        let Some(mut table) = state.tables.remove(&id) else { return };
        let name = table.record.name.clone();
        let Some(index) = definition.index.as_mut().filter(|index| !index.status.unique) else {
            self.report.dropped_indexes.push(name);
            return;
        };
        index.created_at = state.last_sequence;
        index.status.is_built = false;
        index.status.trusted_from = if is_doubtful { state.last_sequence + 1 } else { 0 };
        Arc::make_mut(&mut table.record).definition = definition.encode();
        table.version = Arc::default();
        state.tables.insert(id, table);
        self.report.emptied_indexes.push(name);
    }

    /// SSTs that may hold rows, but neither the state nor they themselves say of which table.
    fn name_unplaced(&mut self, named: &ManifestState) -> Result<()> {
        if !self.report.lost_edits {
            return Ok(());
        }
        let versions = || named.tables.values().map(|table| &table.version);
        let in_levels = versions().flat_map(|version| version.files().map(|(_, _, file)| file.number));
        let buffered = versions().flat_map(|version| version.buffered_files().map(|file| file.number));
        let known: BTreeSet<_> = in_levels.chain(buffered).chain(self.placed.iter().copied()).collect();
        let files = numbered(self.disk, self.from)?;
        let unplaced = files.into_iter().filter(|(kind, number)| *kind == FileKind::Sst && !known.contains(number));
        self.report.unplaced_files = unplaced.map(|(kind, number)| kind.name(number)).collect();
        Ok(())
    }
}
