//! A disk with what measurements need: reads that bypass the page cache, or that are timed, or syncs that do nothing.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use mycelium_base::Result;
use mycelium_vfs::{AccessPattern, Disk, FileLock, ReadableFile, WritableFile};

/// Wraps a disk; what is not said below passes through.
#[derive(Debug)]
pub struct BenchDisk {
    /// The disk.
    pub inner: Arc<dyn Disk>,
    /// Open every file for reads that bypass the page cache.
    pub direct_reads: bool,
    /// For experiments that count bytes over thousands of small files a minute: answer every sync without doing it, and
    /// use the inodes of removed files again (ext4 without a journal shuns them for seconds, and searching for others
    /// was 60 % of the time). Only for one thread: a removed file must not be read any more.
    pub for_small_files: bool,
    /// Nanoseconds that reads took are added to this, if there is one.
    pub read_nanos: Option<Arc<AtomicU64>>,
    /// Removed files whose inodes wait for new names.
    removed: Mutex<Vec<PathBuf>>,
}

impl BenchDisk {
    /// Wraps a disk.
    pub fn new(inner: Arc<dyn Disk>, direct_reads: bool, for_small_files: bool) -> Self {
        Self { inner, direct_reads, for_small_files, read_nanos: None, removed: Mutex::new(Vec::new()) }
    }

    fn recycle(&self, path: &Path) -> Result<()> {
        let mut removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = path.with_extension("removed");
        self.inner.rename(path, &kept)?;
        removed.push(kept);
        Ok(())
    }
}

impl Disk for BenchDisk {
    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        if !self.for_small_files {
            return self.inner.create(path);
        }
        let removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(removed) = removed {
            self.inner.rename(&removed, path)?;
        }
        Ok(Box::new(UnsyncedFile(self.inner.create(path)?)))
    }
    fn open(&self, path: &Path, pattern: AccessPattern) -> Result<Arc<dyn ReadableFile>> {
        let file = self.inner.open(path, if self.direct_reads { AccessPattern::Direct } else { pattern })?;
        match self.read_nanos.clone() {
            Some(nanos) => Ok(Arc::new(TimedFile { file, nanos })),
            None => Ok(file),
        }
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        if self.for_small_files { self.recycle(path) } else { self.inner.remove(path) }
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
        if self.for_small_files { Ok(()) } else { self.inner.sync_directory(directory) }
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

#[derive(Debug)]
struct TimedFile {
    file: Arc<dyn ReadableFile>,
    nanos: Arc<AtomicU64>,
}

impl ReadableFile for TimedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let started = Instant::now();
        let read = self.file.read_at(offset, buffer);
        self.nanos.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        read
    }
    fn len(&self) -> u64 {
        self.file.len()
    }
    fn will_need(&self, offset: u64, len: u64) {
        self.file.will_need(offset, len);
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
