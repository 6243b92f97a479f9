//! A manifest read beside the process that writes it.
//!
//! 1. Read `CURRENT`. If it names the manifest that was read before, go on there behind the last record; else read the
//!    manifest that it names from the front.
//! 2. Apply every edit that is whole to the state. One that is not whole yet ends the reading, by the rules for a torn
//!    end (`manifest`): if a seal behind it says that it had been synced, it is damaged.
//!
//! The state is always one that the database was in. What fails leaves it as it was, and the next reading begins at the
//! front.

use std::path::Path;

use mycelium_base::{Error, FileKind, Result};
use mycelium_vfs::Disk;
use mycelium_wal::SegmentPosition;

use crate::manifest::{Manifest, apply_read, read_records};
use crate::state::ManifestState;

/// The state of a database that another process may be changing, brought up to date at will.
///
/// ```
/// use std::{path::Path, sync::Arc};
/// use mycelium_base::TableId;
/// use mycelium_manifest::{Manifest, ManifestFollower, ManifestOptions, TableRecord, VersionEdit};
/// use mycelium_vfs::{Disk, MemoryDisk};
///
/// let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
/// disk.create_directory(Path::new("/db"))?;
/// let mut manifest = Manifest::create(disk.clone(), Path::new("/db"), ManifestOptions::default())?;
/// let mut follower = ManifestFollower::default();
/// follower.catch_up(&*disk, Path::new("/db"))?;
/// assert!(follower.state().tables.is_empty());
///
/// let table = TableRecord { id: TableId(0), name: "users".into(), definition: vec![], layout: String::new() };
/// manifest.apply(&VersionEdit { created_tables: vec![table], ..VersionEdit::default() })?;
/// follower.catch_up(&*disk, Path::new("/db"))?;
/// assert!(follower.state().table_named("users").is_some());
/// # Ok::<(), mycelium_base::Error>(())
/// ```
#[derive(Clone, Default, Debug)]
pub struct ManifestFollower {
    /// To where the live manifest was read; `None` before the first reading and after one that failed.
    position: Option<SegmentPosition>,
    state: ManifestState,
}

impl ManifestFollower {
    /// The state as it was read last; that of an empty database before the first time.
    pub fn state(&self) -> &ManifestState {
        &self.state
    }

    /// The state as it was read last.
    fn into_state(self) -> ManifestState {
        self.state
    }

    /// Reads the edits that were added since, or another manifest that took the place of the one that was read. Writes
    /// nothing. O(what is new), and O(files) if there is anything.
    ///
    /// # Errors
    /// As [`Manifest::recover`]; [`mycelium_base::ErrorKind::Conflict`] if what was read before is not there any more:
    /// try again.
    pub fn catch_up(&mut self, disk: &dyn Disk, directory: &Path) -> Result<()> {
        let path = Manifest::live_path(disk, directory)?;
        let is_live = |read: &SegmentPosition| path.ends_with(FileKind::Manifest.name(read.number()));
        let from = self.position.take().filter(is_live);
        let mut state = if from.is_some() { self.state.clone() } else { ManifestState::default() };
        let (mut is_first, mut is_changed) = (from.is_none(), false);
        let read = read_records(disk, &path, from.as_ref(), &mut |offset, record| {
            let Some(edit) = record else { return Ok(()) };
            if std::mem::take(&mut is_first) && edit.format_version.is_none() {
                return Err(Error::corruption("the first record has no format version").in_file(&path).at(offset));
            }
            apply_read(&mut state, &edit, &path, offset)?;
            is_changed = true;
            Ok(())
        })?;
        if is_first {
            return Err(Error::corruption("the manifest has no records").in_file(&path));
        }
        if is_changed {
            state.check().map_err(|error| error.in_file(&path))?;
            self.state = state;
        }
        self.position = Some(read.position);
        Ok(())
    }
}

impl Manifest {
    /// Reads the state and writes nothing (read-only opens, `inspect`). Errors as [`Manifest::recover`].
    pub fn read(disk: &dyn Disk, directory: &Path) -> Result<ManifestState> {
        let mut follower = ManifestFollower::default();
        follower.catch_up(disk, directory)?;
        Ok(follower.into_state())
    }
}
