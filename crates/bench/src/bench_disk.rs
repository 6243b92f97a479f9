//! A disk with what measurements need: reads that bypass the page cache, or syncs that do nothing.

use std::path::Path;
use std::sync::Arc;

use mycelium_base::Result;
use mycelium_vfs::{AccessPattern, Disk, FileLock, ReadableFile, WritableFile};

/// Wraps a disk; what is not said below passes through.
#[derive(Debug)]
pub struct BenchDisk {
    /// The disk.
    pub inner: Arc<dyn Disk>,
    /// Open every file for reads that bypass the page cache.
    pub direct_reads: bool,
    /// Answer every sync without doing it: for experiments that count bytes over thousands of small files, where waiting
    /// for the disk would be most of their time.
    pub skip_syncs: bool,
}

impl Disk for BenchDisk {
    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        let file = self.inner.create(path)?;
        Ok(if self.skip_syncs { Box::new(UnsyncedFile(file)) } else { file })
    }
    fn open(&self, path: &Path, pattern: AccessPattern) -> Result<Arc<dyn ReadableFile>> {
        self.inner.open(path, if self.direct_reads { AccessPattern::Direct } else { pattern })
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.inner.remove(path)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.hard_link(from, to)
    }
    fn create_directory(&self, path: &Path) -> Result<()> {
        self.inner.create_directory(path)
    }
    fn list(&self, directory: &Path) -> Result<Vec<String>> {
        self.inner.list(directory)
    }
    fn sync_directory(&self, directory: &Path) -> Result<()> {
        if self.skip_syncs { Ok(()) } else { self.inner.sync_directory(directory) }
    }
    fn file_len(&self, path: &Path) -> Result<u64> {
        self.inner.file_len(path)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        self.inner.exists(path)
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.inner.lock(path)
    }
    fn free_space(&self, path: &Path) -> Result<u64> {
        self.inner.free_space(path)
    }
}

struct UnsyncedFile(Box<dyn WritableFile>);

impl WritableFile for UnsyncedFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.append(bytes)
    }
    fn truncate(&mut self, len: u64) -> Result<()> {
        self.0.truncate(len)
    }
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
    fn start_writeback(&mut self) {}
    fn len(&self) -> u64 {
        self.0.len()
    }
}
