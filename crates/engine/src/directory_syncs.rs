//! The disk of an open database: syncs of its directory take turns.
//!
//! Many threads make names in the directory: of SSTs, of log segments, of manifests. A sync that fails may have lost
//! the names of all of them, and the operating system tells one thread alone; the next sync succeeds without them. So:
//!
//! 1. There is one sync of the directory at a time, whoever asks for it.
//! 2. After one that failed there is none: all that follow fail with its error. One for which the directory could not
//!    even be opened, for want of a descriptor, has lost nothing, and may be tried again.
//!
//! Everything else goes to the disk below as it comes, syncs of other directories (those of checkpoints) too: who fills
//! one is alone there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mycelium_base::{Error, ErrorKind, Result};
use mycelium_vfs::{AccessPattern, Disk, FileLock, ReadableFile, WritableFile};

use crate::sync::Mutex;

/// See the module.
#[derive(Debug)]
pub(crate) struct DirectorySyncs {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    /// Locked during a sync; why there is none any more.
    failure: Mutex<Option<Error>>,
}

impl DirectorySyncs {
    /// `disk`, for a database in `directory`.
    pub(crate) fn of(disk: Arc<dyn Disk>, directory: &Path) -> Self {
        Self { disk, directory: directory.to_path_buf(), failure: Mutex::new(None) }
    }
}

impl Disk for DirectorySyncs {
    fn sync_directory(&self, directory: &Path) -> Result<()> {
        if directory != self.directory {
            return self.disk.sync_directory(directory);
        }
        let mut failure = self.failure.lock();
        if let Some(error) = &*failure {
            return Err(error.duplicate());
        }
        self.disk.sync_directory(directory).inspect_err(|error| {
            if error.kind() != ErrorKind::TooManyOpenFiles {
                *failure = Some(error.duplicate());
            }
        })
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        self.disk.create(path)
    }

    fn open(&self, path: &Path, pattern: AccessPattern) -> Result<Arc<dyn ReadableFile>> {
        self.disk.open(path, pattern)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.disk.remove(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.disk.hard_link(from, to)
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        self.disk.create_directory(path)
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>> {
        self.disk.list(directory)
    }

    fn file_len(&self, path: &Path) -> Result<u64> {
        self.disk.file_len(path)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.disk.exists(path)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.disk.lock(path)
    }

    fn free_space(&self, path: &Path) -> Result<u64> {
        self.disk.free_space(path)
    }
}
