//! The disk of the operating system.
//!
//! 1. Files are created with mode 0600 and directories with 0700; a symbolic link in the place of a file to be created
//!    (or locked) is refused, so a planted link cannot redirect the engine's writes.
//! 2. An append is `pwrite` at the file's known length, repeated after short writes and interrupts.
//! 3. `sync` is `fdatasync`, `sync_directory` is `fsync` of the directory, `start_writeback` is `sync_file_range` over
//!    the bytes appended since the last call.
//! 4. A direct read (`O_DIRECT`) covers the wanted range with whole 4 KiB blocks read into an aligned buffer of the
//!    thread, at most 1 MiB at a time. Where the file system refuses `O_DIRECT`, at open or at the first read, the file
//!    is read through the page cache instead.
//! 5. A file opened for reading keeps its descriptor as long as the process has few of them: three quarters of what it
//!    may have. One that is opened beyond that is opened anew for each read, which takes some microseconds more: a
//!    database may have more files than the process may have open. It must stay where it is, as files of a database do
//!    that somebody reads.
//! 6. A lock is `flock` plus an entry in a table of this process, because on network file systems `flock` may be
//!    emulated by locks that do not conflict inside one process.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind as IoErrorKind};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use mycelium_base::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use rustix::fs::{Advice, FlockOperation, OFlags};
use rustix::process::{Resource, getrlimit};

use crate::{AccessPattern, Disk, FileLock, ReadableFile, WritableFile};

/// Offsets, lengths and addresses of direct reads are multiples of this; no common device asks for more.
const DIRECT_ALIGNMENT: usize = 4096;
/// The most one direct read fetches at a time.
const DIRECT_CHUNK: usize = 1 << 20;

/// Local files. Stateless: every value is the same disk.
///
/// ```
/// use mycelium_vfs::{AccessPattern, Disk, LocalDisk};
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path();
/// let mut file = LocalDisk.create(&directory.join("a"))?;
/// file.append(b"hello")?;
/// file.sync()?;
/// LocalDisk.sync_directory(directory)?;
/// let mut buffer = [0; 4];
/// LocalDisk.open(&directory.join("a"), AccessPattern::Random)?.read_at(1, &mut buffer)?;
/// assert_eq!(&buffer, b"ello");
/// # Ok::<(), mycelium_base::Error>(())
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct LocalDisk;

impl Disk for LocalDisk {
    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(path)
            .map_err(|e| Error::io("create file", path, e))?;
        Ok(Box::new(LocalWritable { file, path: path.to_path_buf(), len: 0, writeback_started: 0 }))
    }

    fn open(&self, path: &Path, pattern: AccessPattern) -> Result<Arc<dyn ReadableFile>> {
        LocalReadable::open(path, pattern, &DESCRIPTORS).map(|file| Arc::new(file) as Arc<dyn ReadableFile>)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::rename(from, to).map_err(|e| Error::io("rename", from, e))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        std::fs::remove_file(path).map_err(|e| Error::io("remove", path, e))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::hard_link(from, to).map_err(|e| Error::io("link", from, e))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        let missing: Vec<&Path> = path.ancestors().take_while(|p| !p.as_os_str().is_empty() && !p.is_dir()).collect();
        for directory in missing.into_iter().rev() {
            match DirBuilder::new().mode(0o700).create(directory) {
                Err(e) if e.kind() == IoErrorKind::AlreadyExists && directory.is_dir() => {}
                result => result.map_err(|e| Error::io("create directory", directory, e))?,
            }
            self.sync_directory(directory.parent().unwrap_or(directory))?;
        }
        Ok(())
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>> {
        let failed = |e| Error::io("list directory", directory, e);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if !entry.file_type().map_err(failed)?.is_dir()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_directory(&self, directory: &Path) -> Result<()> {
        let path = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::DIRECTORY.bits() as i32)
            .open(path)
            .and_then(|file| file.sync_all())
            .map_err(|e| Error::io("sync directory", path, e))
    }

    fn file_len(&self, path: &Path) -> Result<u64> {
        std::fs::metadata(path).map(|m| m.len()).map_err(|e| Error::io("read metadata of", path, e))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        path.try_exists().map_err(|e| Error::io("look for", path, e))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        // The table is looked at before the file is opened: closing a second descriptor would drop an emulated lock.
        let mut held = HELD_LOCKS.lock();
        if std::fs::metadata(path).is_ok_and(|m| held.contains(&(m.dev(), m.ino()))) {
            return Err(locked(path));
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(path)
            .map_err(|e| Error::io("open lock file", path, e))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(locked(path)),
            Err(e) => return Err(Error::io("lock file", path, e.into())),
        }
        let metadata = file.metadata().map_err(|e| Error::io("read metadata of", path, e))?;
        let identity = (metadata.dev(), metadata.ino());
        held.insert(identity);
        Ok(Box::new(LocalLock { identity, file: Some(file) }))
    }

    fn free_space(&self, path: &Path) -> Result<u64> {
        let statistics = rustix::fs::statvfs(path).map_err(|e| Error::io("read free space of", path, e.into()))?;
        Ok(statistics.f_bavail.saturating_mul(statistics.f_frsize))
    }
}

/// Device and inode of every file locked by this process.
static HELD_LOCKS: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

struct LocalLock {
    identity: (u64, u64),
    /// `Some` until dropped.
    file: Option<File>,
}

impl FileLock for LocalLock {}

impl Drop for LocalLock {
    fn drop(&mut self) {
        let mut held = HELD_LOCKS.lock();
        drop(self.file.take());
        held.remove(&self.identity);
    }
}

fn locked(path: &Path) -> Error {
    Error::new(ErrorKind::Locked, "locked by another handle or process").in_file(path)
}

struct LocalWritable {
    file: File,
    path: PathBuf,
    len: u64,
    writeback_started: u64,
}

impl WritableFile for LocalWritable {
    fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match self.file.write_at(bytes, self.len) {
                Ok(0) => return Err(Error::io("append to", &self.path, IoErrorKind::WriteZero.into())),
                Ok(n) => {
                    self.len += n as u64;
                    bytes = &bytes[n..];
                }
                Err(e) if e.kind() == IoErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io("append to", &self.path, e)),
            }
        }
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        if len > self.len {
            return Err(Error::invalid("cannot truncate a file beyond its length").in_file(&self.path));
        }
        self.file.set_len(len).map_err(|e| Error::io("truncate", &self.path, e))?;
        self.len = len;
        self.writeback_started = self.writeback_started.min(len);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync_data().map_err(|e| Error::io("sync", &self.path, e))?;
        self.writeback_started = self.len;
        Ok(())
    }

    fn start_writeback(&mut self) {
        if self.len > self.writeback_started {
            start_writeback(&self.file, self.writeback_started, self.len - self.writeback_started);
            self.writeback_started = self.len;
        }
    }

    fn len(&self) -> u64 {
        self.len
    }
}

/// A hint, so a refusal (a file system without it) is not an error.
#[cfg(target_os = "linux")]
fn start_writeback(file: &File, offset: u64, len: u64) {
    let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else { return };
    // SAFETY: the call takes no pointers, and the descriptor is open as long as `file` is borrowed.
    unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE) };
}

#[cfg(not(target_os = "linux"))]
fn start_writeback(_file: &File, _offset: u64, _len: u64) {}

fn open_for_reading(path: &Path, pattern: AccessPattern) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.read(true);
    if pattern == AccessPattern::Direct {
        match options.clone().custom_flags(OFlags::DIRECT.bits() as i32).open(path) {
            Err(e) if e.kind() == IoErrorKind::InvalidInput => {}
            result => return Ok((result?, true)),
        }
    }
    Ok((options.open(path)?, false))
}

/// Who keeps descriptors for reading, of all local disks of the process.
static DESCRIPTORS: LazyLock<Descriptors> = LazyLock::new(|| {
    let may_be_open = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| files as usize);
    Descriptors { kept: AtomicUsize::new(0), most: may_be_open / 4 * 3 }
});

/// Counts descriptors that are kept. What is left over is for files that are written, the log, locks, and the rest of
/// the process.
#[derive(Debug)]
struct Descriptors {
    kept: AtomicUsize,
    most: usize,
}

impl Descriptors {
    /// Keeps a descriptor, unless enough are kept already.
    fn keep(&'static self, file: File) -> Source {
        if self.kept.fetch_add(1, Ordering::Relaxed) < self.most {
            return Source::Kept(Kept { file, of: self });
        }
        self.kept.fetch_sub(1, Ordering::Relaxed);
        Source::Reopened
    }
}

/// A descriptor that is kept.
#[derive(Debug)]
struct Kept {
    file: File,
    of: &'static Descriptors,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.of.kept.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a file is read through.
#[derive(Debug)]
enum Source {
    Kept(Kept),
    /// A descriptor for each read.
    Reopened,
}

#[derive(Debug)]
struct LocalReadable {
    source: Source,
    path: PathBuf,
    len: u64,
    /// Whether descriptors have `O_DIRECT` set.
    direct: AtomicBool,
}

impl LocalReadable {
    fn open(path: &Path, pattern: AccessPattern, descriptors: &'static Descriptors) -> Result<Self> {
        let (file, direct) = open_for_reading(path, pattern).map_err(|e| Error::io("open file", path, e))?;
        let metadata = file.metadata().map_err(|e| Error::io("read metadata of", path, e))?;
        if metadata.is_dir() {
            return Err(Error::io("open file", path, IoErrorKind::IsADirectory.into()));
        }
        let advice = match pattern {
            AccessPattern::Random => Some(Advice::Random),
            AccessPattern::Sequential => Some(Advice::Sequential),
            AccessPattern::Direct => None,
        };
        if let Some(advice) = advice {
            advise(&file, 0, None, advice);
        }
        let (path, len, direct) = (path.to_path_buf(), metadata.len(), AtomicBool::new(direct));
        Ok(Self { source: descriptors.keep(file), path, len, direct })
    }

    /// Reads through the descriptor that is kept, or a new one.
    fn read_through(&self, direct: bool, read: impl FnOnce(&File) -> io::Result<usize>) -> io::Result<usize> {
        match &self.source {
            Source::Kept(kept) => read(&kept.file),
            Source::Reopened => {
                let pattern = if direct { AccessPattern::Direct } else { AccessPattern::Random };
                open_for_reading(&self.path, pattern).and_then(|(file, _)| read(&file))
            }
        }
    }

    /// Reads until `buffer` is full or the file ends; the number of bytes read.
    fn fill(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == IoErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(filled)
    }

    /// As [`Self::fill`], through aligned whole blocks.
    fn fill_direct(&self, file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        thread_local! {
            static BOUNCE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        BOUNCE.with_borrow_mut(|bounce| {
            let mut filled = 0;
            while filled < buffer.len() {
                let at = offset + filled as u64;
                let skip = (at % DIRECT_ALIGNMENT as u64) as usize;
                let wanted = (buffer.len() - filled).min(DIRECT_CHUNK - skip);
                let span = (skip + wanted).next_multiple_of(DIRECT_ALIGNMENT);
                let blocks = aligned(bounce, span);
                let found = self.read_blocks(file, at - skip as u64, blocks)?.saturating_sub(skip).min(wanted);
                if found == 0 {
                    break;
                }
                buffer[filled..filled + found].copy_from_slice(&blocks[skip..skip + found]);
                filled += found;
            }
            Ok(filled)
        })
    }

    /// One `pread` of aligned blocks. A short read is taken as it comes: the caller asks again from there, and only a
    /// read that yields nothing new is the end of the file.
    ///
    /// Who is refused makes the descriptor an ordinary one and reads again, whoever else is at that; others take it for
    /// one only when it is.
    fn read_blocks(&self, file: &File, offset: u64, blocks: &mut [u8]) -> io::Result<usize> {
        let mut is_first = true;
        loop {
            match file.read_at(blocks, offset) {
                Err(e) if e.kind() == IoErrorKind::Interrupted => {}
                Err(e) if e.kind() == IoErrorKind::InvalidInput && is_first => {
                    is_first = false;
                    rustix::fs::fcntl_setfl(file, OFlags::empty())?;
                    self.direct.store(false, Ordering::Release);
                }
                result => return result,
            }
        }
    }
}

/// The aligned part of `buffer`, `len` bytes long; grows the buffer as needed.
fn aligned(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buffer.len() < len + DIRECT_ALIGNMENT {
        buffer.resize(len + DIRECT_ALIGNMENT, 0);
    }
    let start = buffer.as_ptr().align_offset(DIRECT_ALIGNMENT);
    &mut buffer[start..start + len]
}

impl ReadableFile for LocalReadable {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(crate::cut_short(&self.path, offset, buffer.len(), 0));
        }
        let direct = self.direct.load(Ordering::Acquire);
        let wanted = buffer.len();
        let filled = self.read_through(direct, |file| match direct {
            true => self.fill_direct(file, offset, buffer),
            false => Self::fill(file, offset, buffer),
        });
        match filled {
            Ok(filled) if filled == wanted => Ok(()),
            Ok(filled) => Err(crate::cut_short(&self.path, offset, wanted, filled)),
            Err(e) => Err(Error::io("read", &self.path, e).at(offset)),
        }
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn will_need(&self, offset: u64, len: u64) {
        if let Source::Kept(kept) = &self.source
            && !self.direct.load(Ordering::Relaxed)
        {
            advise(&kept.file, offset, NonZeroU64::new(len), Advice::WillNeed);
        }
    }
}

/// Gives a hint; one that is refused is not worth an error.
fn advise(file: &File, offset: u64, len: Option<NonZeroU64>, advice: Advice) {
    rustix::fs::fadvise(file, offset, len, advice).ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_and_directories_are_private_to_the_user() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("a/b");
        LocalDisk.create_directory(&directory).unwrap();
        LocalDisk.create(&directory.join("f")).unwrap();
        let _lock = LocalDisk.lock(&directory.join("LOCK")).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&root.path().join("a")), 0o700);
        assert_eq!(mode(&directory), 0o700);
        assert_eq!(mode(&directory.join("f")), 0o600);
        assert_eq!(mode(&directory.join("LOCK")), 0o600);
    }

    #[test]
    fn a_symbolic_link_is_not_written_through() {
        let root = tempfile::tempdir().unwrap();
        let (target, link) = (root.path().join("target"), root.path().join("link"));
        std::fs::write(&target, b"precious").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert_eq!(LocalDisk.create(&link).err().map(|e| e.kind()), Some(ErrorKind::Io));
        assert_eq!(LocalDisk.lock(&link).err().map(|e| e.kind()), Some(ErrorKind::Io));
        assert_eq!(std::fs::read(&target).unwrap(), b"precious");
    }

    /// Two readers were refused at once: the second took the first's change of the descriptor for made, and failed.
    #[test]
    fn a_reader_refused_beside_another_reads_through_the_page_cache() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("f");
        let mut file = LocalDisk.create(&path).unwrap();
        file.append(&[7; 10_000]).unwrap();
        file.sync().unwrap();
        let (file, _) = open_for_reading(&path, AccessPattern::Direct).unwrap();
        let readable = LocalReadable { source: Source::Reopened, path, len: 10_000, direct: AtomicBool::new(false) };
        // At an odd offset a descriptor that is direct still is refused.
        let mut buffer = [0; 100];
        assert_eq!(readable.read_blocks(&file, 1, &mut buffer).unwrap(), 100);
        assert_eq!(buffer, [7; 100]);
        assert!(!readable.direct.load(Ordering::Acquire));
    }

    /// A database with more files than the process may have open could not be opened, and a flush that came to be of
    /// one too many made it read-only.
    #[test]
    fn files_beyond_the_limit_of_open_files_could_not_be_read() {
        let descriptors: &'static Descriptors = Box::leak(Box::new(Descriptors { kept: AtomicUsize::new(0), most: 2 }));
        let root = tempfile::tempdir().unwrap();
        for pattern in [AccessPattern::Random, AccessPattern::Sequential, AccessPattern::Direct] {
            let bytes: Vec<Vec<u8>> = (0..5_u8).map(|n| vec![n; 6_000 + usize::from(n)]).collect();
            let open = |n: usize| {
                let path = root.path().join(n.to_string());
                LocalDisk.create(&path).unwrap().append(&bytes[n]).unwrap();
                LocalReadable::open(&path, pattern, descriptors).unwrap()
            };
            let mut files: Vec<LocalReadable> = (0..5).map(open).collect();
            let kept = files.iter().filter(|file| matches!(file.source, Source::Kept(_))).count();
            assert_eq!((kept, descriptors.kept.load(Ordering::Relaxed)), (2, 2));
            for (file, bytes) in files.iter().zip(&bytes) {
                let mut buffer = vec![0; bytes.len() - 100];
                file.read_at(100, &mut buffer).unwrap();
                assert_eq!(buffer, bytes[100..]);
                assert!(file.read_at(101, &mut buffer).unwrap_err().is_corruption());
                file.will_need(0, 10);
            }
            // What is let go of may be kept of another.
            drop(files.remove(0));
            files.push(open(0));
            assert!(matches!(files.last().map(|file| &file.source), Some(Source::Kept(_))));
            drop(files);
            assert_eq!(descriptors.kept.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn direct_reads_take_any_offset_and_length() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("f");
        let bytes: Vec<u8> = (0..DIRECT_CHUNK * 2 + 5_000).map(|i| (i * 31 / 7) as u8).collect();
        let mut file = LocalDisk.create(&path).unwrap();
        file.append(&bytes).unwrap();
        file.start_writeback();
        file.sync().unwrap();
        let file = LocalDisk.open(&path, AccessPattern::Direct).unwrap();
        let lens = [0, 1, 511, 4096, 4097, 10_000, DIRECT_CHUNK - 1, DIRECT_CHUNK, DIRECT_CHUNK + 1, bytes.len()];
        for offset in [0, 1, 4095, 4096, 8191, DIRECT_CHUNK - 1, bytes.len() - 1, bytes.len()] {
            for len in lens {
                let mut buffer = vec![0; len];
                let result = file.read_at(offset as u64, &mut buffer);
                if offset + len <= bytes.len() {
                    result.unwrap();
                    assert!(buffer == bytes[offset..offset + len], "{len} bytes at {offset}");
                } else {
                    assert!(result.unwrap_err().is_corruption(), "{len} bytes at {offset}");
                }
            }
        }
    }
}
