//! A disk on which random reads are as rare as on the hard disks of the papers.
//!
//! Each read of at most [`RANDOM_READ_BYTES`] takes the disk's arm for its share of a second, one after the other, in
//! the order in which they come; a larger one, which compactions and scans make ahead of themselves, passes. So what is
//! measured is how often a point read needs the disk, and not the disk's bandwidth.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mycelium_base::Result;
use mycelium_vfs::{AccessPattern, Disk, FileLock, ReadableFile, WritableFile};

/// Larger reads are not random.
const RANDOM_READ_BYTES: usize = 64 << 10;

/// When the arm is free, and how many reads it may do a second: 0 is any number.
#[derive(Debug)]
struct Arm {
    reads_per_second: AtomicU64,
    free_at: Mutex<Instant>,
}

impl Arm {
    fn wait(&self) {
        let rate = self.reads_per_second.load(Ordering::Relaxed);
        if rate == 0 {
            return;
        }
        let until = {
            let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
            *free_at = (*free_at).max(Instant::now()) + Duration::from_secs(1) / rate as u32;
            *free_at
        };
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            std::thread::park_timeout(left);
        }
    }
}

/// Wraps a disk; what is not said above passes through.
#[derive(Clone, Debug)]
pub struct SlowDisk {
    inner: Arc<dyn Disk>,
    arm: Arc<Arm>,
}

impl SlowDisk {
    /// Wraps a disk, whose reads are not slowed yet.
    pub fn new(inner: Arc<dyn Disk>) -> Self {
        let arm = Arm { reads_per_second: AtomicU64::new(0), free_at: Mutex::new(Instant::now()) };
        Self { inner, arm: Arc::new(arm) }
    }

    /// From now on at most so many random reads a second; `None`: as many as the disk does.
    pub fn limit(&self, reads_per_second: Option<u64>) {
        self.arm.reads_per_second.store(reads_per_second.unwrap_or(0), Ordering::Relaxed);
    }
}

impl Disk for SlowDisk {
    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        self.inner.create(path)
    }
    fn open(&self, path: &Path, pattern: AccessPattern) -> Result<Arc<dyn ReadableFile>> {
        Ok(Arc::new(SlowFile { inner: self.inner.open(path, pattern)?, arm: self.arm.clone() }))
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
        self.inner.sync_directory(directory)
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
struct SlowFile {
    inner: Arc<dyn ReadableFile>,
    arm: Arc<Arm>,
}

impl ReadableFile for SlowFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if buffer.len() <= RANDOM_READ_BYTES {
            self.arm.wait();
        }
        self.inner.read_at(offset, buffer)
    }
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn will_need(&self, offset: u64, len: u64) {
        self.inner.will_need(offset, len);
    }
}
