//! The traits.
//!
//! What an implementation promises is what POSIX promises and no more:
//!
//! 1. Bytes appended survive a crash of the *process* once `append` returned (they are the operating system's).
//! 2. Bytes survive a crash of the *machine* only after `sync` returned `Ok`; before it any 4 KiB block of them may be
//!    kept, lost or torn, in any order.
//! 3. A created, renamed, linked or removed name survives a crash of the machine only after `sync_directory` of its
//!    directory returned `Ok`; before it each such change may be kept or lost, in any order.
//! 4. After a failed `sync` nothing may be assumed about the bytes it was to persist: the caller must not retry it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use mycelium_base::Result;

/// How a file will be read, a hint to the implementation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessPattern {
    /// Single blocks here and there.
    Random,
    /// From front to back.
    Sequential,
    /// Bypass the page cache where the disk can (`O_DIRECT`); any offset and length are still allowed.
    Direct,
}

/// A disk: a name space of files and directories. Shared by all threads.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Creates a file for appending; an existing one is emptied.
    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>>;
    /// Opens an existing file for reading; `ErrorKind::NotFound` if there is none.
    fn open(&self, path: &Path, pattern: AccessPattern) -> Result<Arc<dyn ReadableFile>>;
    /// Atomically renames a file, replacing `to` if it exists.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file; handles already open go on reading it.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Gives a file a second name; fails if `to` exists.
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()>;
    /// Creates a directory and its parents, durably (it syncs the parents it changed); one that exists is no error.
    fn create_directory(&self, path: &Path) -> Result<()>;
    /// The names (not paths) of the files in a directory, sorted.
    fn list(&self, directory: &Path) -> Result<Vec<String>>;
    /// Persists the names in a directory.
    fn sync_directory(&self, directory: &Path) -> Result<()>;
    /// A file's length in bytes.
    fn file_len(&self, path: &Path) -> Result<u64>;
    /// Whether a file or directory exists.
    fn exists(&self, path: &Path) -> Result<bool>;
    /// Takes an exclusive lock on the file (created if missing); `ErrorKind::Locked` if another holder has it, in this
    /// process or another. Released when the guard is dropped or the process ends.
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>>;
    /// Bytes that can still be written to the file system of `path`.
    fn free_space(&self, path: &Path) -> Result<u64>;
}

/// A held lock.
pub trait FileLock: Send + Sync {}

/// A file open for appending, by one writer. Dropping it closes it without syncing.
pub trait WritableFile: Send {
    /// Appends all of `bytes`, or fails; after a failure the file may hold any prefix of them beyond its former length.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;
    /// Cuts the file back to `len` bytes (at most its length): how a failed append is undone.
    fn truncate(&mut self, len: u64) -> Result<()>;
    /// Persists contents and length (`fdatasync`).
    fn sync(&mut self) -> Result<()>;
    /// Asks the operating system to start writing back what was appended so far, without waiting. A hint.
    fn start_writeback(&mut self);
    /// The file's length: bytes appended so far, those of a failed append that arrived included.
    fn len(&self) -> u64;
    /// Whether nothing was appended yet.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A file open for reading, by any number of threads.
pub trait ReadableFile: Send + Sync + fmt::Debug {
    /// Fills `buffer` from `offset`; fails with `ErrorKind::Corruption` ("cut short") where the file ends before that.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;
    /// The file's length when it was opened.
    fn len(&self) -> u64;
    /// Whether the file is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Hints that `[offset, offset + len)` will be read soon.
    fn will_need(&self, offset: u64, len: u64);
}
