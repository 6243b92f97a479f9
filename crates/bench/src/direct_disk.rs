//! A disk whose reads bypass the page cache: every file is opened with [`AccessPattern::Direct`], the rest passes through.

use std::path::Path;
use std::sync::Arc;

use mycelium_base::Result;
use mycelium_vfs::{AccessPattern, Disk, FileLock, ReadableFile, WritableFile};

/// Wraps a disk.
#[derive(Debug)]
pub struct DirectDisk(Arc<dyn Disk>);

impl DirectDisk {
    /// Reads of `inner`'s files bypass the page cache.
    pub fn new(inner: Arc<dyn Disk>) -> Self {
        Self(inner)
    }
}

impl Disk for DirectDisk {
    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        self.0.create(path)
    }
    fn open(&self, path: &Path, _: AccessPattern) -> Result<Arc<dyn ReadableFile>> {
        self.0.open(path, AccessPattern::Direct)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.0.remove(path)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.hard_link(from, to)
    }
    fn create_directory(&self, path: &Path) -> Result<()> {
        self.0.create_directory(path)
    }
    fn list(&self, directory: &Path) -> Result<Vec<String>> {
        self.0.list(directory)
    }
    fn sync_directory(&self, directory: &Path) -> Result<()> {
        self.0.sync_directory(directory)
    }
    fn file_len(&self, path: &Path) -> Result<u64> {
        self.0.file_len(path)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        self.0.exists(path)
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.0.lock(path)
    }
    fn free_space(&self, path: &Path) -> Result<u64> {
        self.0.free_space(path)
    }
}
