//! A wrapper that makes any disk fail on schedule.
//!
//! 1. Every operation is counted by kind, and matched against the scheduled faults in the order they were scheduled.
//! 2. A fault counts the operations that match it and fires at its n-th, once or from then on; the first fault that
//!    fires decides what happens.
//! 3. A driver runs a workload once without faults, reads [`FaultDisk::count`], and then runs it again for every
//!    n = 1..=count.
//! 4. A throttle charges every operation to a token bucket on a virtual clock, so a slow disk takes no real time and
//!    the waits are the same in every run.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind as IoErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mycelium_base::{Error, FileKind, Result};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::memory::Inode;
use crate::{
    AccessPattern, Disk, FileLock, MemoryDisk, Operation, OperationKind, ReadableFile, WritableFile, cut_short,
};

/// Which files a fault concerns, by the name of the file (a rename or link: either name).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileFilter {
    /// All files and directories.
    Any,
    /// Files whose name is of this kind.
    Kind(FileKind),
    /// Files and directories whose name is of no kind.
    Other,
}

/// What a fault does. An effect that does not suit the operation (a bit flip of a rename) acts as `Io`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The operation is not performed and fails with an I/O error.
    Io,
    /// The operation is not performed and fails because the disk is full.
    NoSpace,
    /// The operation is not performed and fails because the process has as many files open as it may.
    TooManyOpenFiles,
    /// The operation is not performed and fails as a link to another file system does.
    OtherFileSystem,
    /// The operation is performed, and still fails with an I/O error.
    IoAfterwards,
    /// Only the first `keep` bytes of an append reach the file (fewer if it is shorter), then an I/O error.
    PartialAppend {
        /// Bytes that are appended.
        keep: usize,
    },
    /// A sync fails and the unsynced pages are marked clean without being written: a later sync succeeds, readers still
    /// see the bytes, and a power loss loses them. Over a disk other than [`MemoryDisk`] the sync just fails.
    LoseUnsynced,
    /// A read gets only the first `keep` bytes and fails as at the end of the file.
    ShortRead {
        /// Bytes that are read.
        keep: usize,
    },
    /// One bit of what a read returns is flipped, and it succeeds: `bit` modulo the bits read.
    FlipBit {
        /// Bit 0 is the lowest of the first byte.
        bit: u64,
    },
}

/// A scheduled fault: by default one shot, at the first matching operation on any file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    operation: Option<OperationKind>,
    file: FileFilter,
    nth: u64,
    sticky: bool,
    effect: Effect,
}

impl Fault {
    /// A fault of one kind of operation.
    pub fn new(operation: OperationKind, effect: Effect) -> Self {
        Self { operation: Some(operation), file: FileFilter::Any, nth: 1, sticky: false, effect }
    }

    /// A fault of any operation.
    pub fn of_any(effect: Effect) -> Self {
        Self { operation: None, file: FileFilter::Any, nth: 1, sticky: false, effect }
    }

    /// Only files of this kind.
    #[must_use]
    pub fn on(self, kind: FileKind) -> Self {
        self.on_files(FileFilter::Kind(kind))
    }

    /// Only these files.
    #[must_use]
    pub fn on_files(self, file: FileFilter) -> Self {
        Self { file, ..self }
    }

    /// At the `nth` matching operation, counted from 1 when the fault is scheduled.
    #[must_use]
    pub fn nth(self, nth: u64) -> Self {
        Self { nth, ..self }
    }

    /// At every matching operation from the n-th on.
    #[must_use]
    pub fn sticky(self) -> Self {
        Self { sticky: true, ..self }
    }

    fn matches(&self, operation: &Operation<'_>) -> bool {
        let file_matches = |path: &Path| match (self.file, kind_of(path)) {
            (FileFilter::Any, _) | (FileFilter::Other, None) => true,
            (FileFilter::Kind(wanted), Some(kind)) => wanted == kind,
            _ => false,
        };
        self.operation.is_none_or(|kind| kind == operation.kind)
            && (file_matches(operation.path) || operation.to.is_some_and(file_matches))
    }
}

fn kind_of(path: &Path) -> Option<FileKind> {
    FileKind::parse(path.file_name()?.to_str()?).map(|(kind, _)| kind)
}

/// The speed of a slowed disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Throttle {
    /// Tokens, of one byte read or appended each, that the bucket gains per second; 0 counts as 1.
    pub bytes_per_second: u64,
    /// The most tokens the bucket holds; it starts full.
    pub burst_bytes: u64,
    /// Added to every operation.
    pub latency: Duration,
}

/// The token bucket of a throttle, on a virtual clock.
#[derive(Debug)]
struct Bucket {
    throttle: Throttle,
    /// Tokens times 10^9; negative never, because an operation waits until its tokens are there.
    level: u128,
}

const NANOS: u128 = 1_000_000_000;

impl Bucket {
    fn rate(&self) -> u128 {
        u128::from(self.throttle.bytes_per_second.max(1))
    }

    fn advance(&mut self, time: Duration) {
        let most = u128::from(self.throttle.burst_bytes) * NANOS;
        self.level = self.level.saturating_add(time.as_nanos().saturating_mul(self.rate())).min(most);
    }

    /// Takes the tokens of an operation; how long it has to wait.
    fn charge(&mut self, bytes: u64) -> Duration {
        self.advance(self.throttle.latency);
        let needed = u128::from(bytes) * NANOS;
        let missing = needed.saturating_sub(self.level);
        self.level = self.level.saturating_sub(needed);
        let nanos = missing.div_ceil(self.rate());
        self.throttle.latency.saturating_add(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

/// Wraps a disk and injects the faults scheduled. Clones are handles of the same wrapper; files opened before a fault
/// is scheduled are subject to it too.
///
/// ```
/// use mycelium_base::{ErrorKind, FileKind};
/// use mycelium_vfs::{Disk, Effect, Fault, FaultDisk, MemoryDisk, OperationKind};
/// use std::path::Path;
///
/// let disk = FaultDisk::over_memory(MemoryDisk::new());
/// disk.schedule(Fault::new(OperationKind::Append, Effect::NoSpace).on(FileKind::Wal).nth(2));
/// let mut file = disk.create(Path::new("000001.wal"))?;
/// assert!(file.append(b"a").is_ok());
/// assert_eq!(file.append(b"b").unwrap_err().kind(), ErrorKind::NoSpace);
/// assert!(file.append(b"c").is_ok());
/// assert_eq!(disk.count(OperationKind::Append), 3);
/// # Ok::<(), mycelium_base::Error>(())
/// ```
#[derive(Clone)]
pub struct FaultDisk {
    inner: Arc<dyn Disk>,
    /// The same disk as `inner`, where it is one that can lose pages.
    memory: Option<MemoryDisk>,
    shared: Arc<Shared>,
}

type WaitHook = Arc<dyn Fn(Duration) + Send + Sync>;

#[derive(Default)]
struct Shared {
    schedule: Mutex<Schedule>,
    on_wait: Mutex<Option<WaitHook>>,
}

#[derive(Default)]
struct Schedule {
    /// With the matching operations seen by each.
    faults: Vec<(Fault, u64)>,
    counts: BTreeMap<OperationKind, u64>,
    fired: u64,
    bucket: Option<Bucket>,
    waited: Duration,
}

impl Schedule {
    /// Counts an operation; the effect of the fault that fires, if one does.
    fn count(&mut self, operation: &Operation<'_>) -> Option<Effect> {
        *self.counts.entry(operation.kind).or_default() += 1;
        let mut effect = None;
        for (fault, seen) in &mut self.faults {
            if !fault.matches(operation) {
                continue;
            }
            *seen += 1;
            if *seen == fault.nth || (fault.sticky && *seen > fault.nth) {
                effect = effect.or(Some(fault.effect));
            }
        }
        self.fired += u64::from(effect.is_some());
        effect
    }
}

impl fmt::Debug for FaultDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schedule = self.shared.schedule.lock();
        f.debug_struct("FaultDisk")
            .field("inner", &self.inner)
            .field("faults", &schedule.faults)
            .field("fired", &schedule.fired)
            .finish_non_exhaustive()
    }
}

impl FaultDisk {
    /// Wraps any disk.
    pub fn new(inner: Arc<dyn Disk>) -> Self {
        Self { inner, memory: None, shared: Arc::default() }
    }

    /// Wraps an in-memory disk, on which [`Effect::LoseUnsynced`] takes full effect.
    pub fn over_memory(memory: MemoryDisk) -> Self {
        Self { inner: Arc::new(memory.clone()), memory: Some(memory), shared: Arc::default() }
    }

    /// Adds a fault.
    pub fn schedule(&self, fault: Fault) {
        self.shared.schedule.lock().faults.push((fault, 0));
    }

    /// Removes all faults: the disk was repaired. Counts and throttle stay.
    pub fn heal(&self) {
        self.shared.schedule.lock().faults.clear();
    }

    /// How many operations failed, or returned wrong bytes, because of a fault.
    pub fn fired(&self) -> u64 {
        self.shared.schedule.lock().fired
    }

    /// Operations of one kind so far, failed ones included.
    pub fn count(&self, kind: OperationKind) -> u64 {
        self.shared.schedule.lock().counts.get(&kind).copied().unwrap_or(0)
    }

    /// All operations so far.
    pub fn total(&self) -> u64 {
        self.shared.schedule.lock().counts.values().sum()
    }

    /// Slows the disk down, or stops doing so. Operations do not really wait: see [`Self::waited`] and
    /// [`Self::on_wait`].
    pub fn set_throttle(&self, throttle: Option<Throttle>) {
        self.shared.schedule.lock().bucket =
            throttle.map(|throttle| Bucket { throttle, level: u128::from(throttle.burst_bytes).saturating_mul(NANOS) });
    }

    /// Lets virtual time pass outside the disk: the bucket fills.
    pub fn advance(&self, time: Duration) {
        if let Some(bucket) = &mut self.shared.schedule.lock().bucket {
            bucket.advance(time);
        }
    }

    /// The time all operations together would have waited.
    pub fn waited(&self) -> Duration {
        self.shared.schedule.lock().waited
    }

    /// Calls `hook` with each operation's wait, before it is performed and without holding a lock.
    pub fn on_wait(&self, hook: impl Fn(Duration) + Send + Sync + 'static) {
        *self.shared.on_wait.lock() = Some(Arc::new(hook));
    }

    /// Performs an operation that has no effects of its own but `Io`, `NoSpace`, `TooManyOpenFiles`, `OtherFileSystem`
    /// and `IoAfterwards`.
    fn perform<T>(&self, operation: Operation<'_>, f: impl FnOnce() -> Result<T>) -> Result<T> {
        match self.shared.enter(&operation) {
            None => f(),
            Some(effect) => injected(effect, &operation, || f().map(drop)),
        }
    }
}

impl Shared {
    /// Counts and delays an operation; the effect of the fault that fires, if one does.
    fn enter(&self, operation: &Operation<'_>) -> Option<Effect> {
        let mut schedule = self.schedule.lock();
        let effect = schedule.count(operation);
        let wait = schedule.bucket.as_mut().map_or(Duration::ZERO, |bucket| bucket.charge(operation.len));
        schedule.waited = schedule.waited.saturating_add(wait);
        drop(schedule);
        if wait > Duration::ZERO {
            let hook = self.on_wait.lock().clone();
            if let Some(hook) = hook {
                hook(wait);
            }
        }
        effect
    }
}

/// The error of a fault without more particular effects.
fn injected<T>(effect: Effect, operation: &Operation<'_>, f: impl FnOnce() -> Result<()>) -> Result<T> {
    if effect == Effect::IoAfterwards {
        f()?;
    }
    let source = match effect {
        Effect::NoSpace => io::Error::new(IoErrorKind::StorageFull, "injected: no space"),
        Effect::TooManyOpenFiles => Errno::MFILE.into(),
        Effect::OtherFileSystem => io::Error::new(IoErrorKind::CrossesDevices, "injected: another file system"),
        _ => io::Error::other("injected fault"),
    };
    Err(Error::io(&format!("perform {:?}", operation.kind), operation.path, source))
}

impl Disk for FaultDisk {
    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        let file = self.perform(Operation::on(OperationKind::Create, path), || self.inner.create(path))?;
        let memory = match &self.memory {
            Some(memory) => Some((memory.clone(), memory.inode(path)?)),
            None => None,
        };
        Ok(Box::new(FaultWritable { file, path: path.to_path_buf(), memory, shared: Arc::clone(&self.shared) }))
    }

    fn open(&self, path: &Path, pattern: AccessPattern) -> Result<Arc<dyn ReadableFile>> {
        let file = self.perform(Operation::on(OperationKind::Open, path), || self.inner.open(path, pattern))?;
        Ok(Arc::new(FaultReadable { file, path: path.to_path_buf(), shared: Arc::clone(&self.shared) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.perform(Operation::on(OperationKind::Rename, from).to(to), || self.inner.rename(from, to))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.perform(Operation::on(OperationKind::Remove, path), || self.inner.remove(path))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.perform(Operation::on(OperationKind::HardLink, from).to(to), || self.inner.hard_link(from, to))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        self.perform(Operation::on(OperationKind::CreateDirectory, path), || self.inner.create_directory(path))
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>> {
        self.perform(Operation::on(OperationKind::List, directory), || self.inner.list(directory))
    }

    fn sync_directory(&self, directory: &Path) -> Result<()> {
        self.perform(Operation::on(OperationKind::SyncDirectory, directory), || self.inner.sync_directory(directory))
    }

    fn file_len(&self, path: &Path) -> Result<u64> {
        self.perform(Operation::on(OperationKind::FileLen, path), || self.inner.file_len(path))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.perform(Operation::on(OperationKind::Exists, path), || self.inner.exists(path))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.perform(Operation::on(OperationKind::Lock, path), || self.inner.lock(path))
    }

    fn free_space(&self, path: &Path) -> Result<u64> {
        self.perform(Operation::on(OperationKind::FreeSpace, path), || self.inner.free_space(path))
    }
}

struct FaultWritable {
    file: Box<dyn WritableFile>,
    path: PathBuf,
    /// Where the file lies, if on a disk that can lose pages.
    memory: Option<(MemoryDisk, Inode)>,
    shared: Arc<Shared>,
}

impl WritableFile for FaultWritable {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let operation = Operation::on(OperationKind::Append, &self.path).bytes(self.file.len(), bytes.len());
        match self.shared.enter(&operation) {
            None => self.file.append(bytes),
            Some(Effect::PartialAppend { keep }) => {
                self.file.append(&bytes[..keep.min(bytes.len())])?;
                injected(Effect::Io, &operation, || Ok(()))
            }
            Some(effect) => injected(effect, &operation, || self.file.append(bytes)),
        }
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        let operation = Operation::on(OperationKind::Truncate, &self.path).bytes(len, 0);
        match self.shared.enter(&operation) {
            None => self.file.truncate(len),
            Some(effect) => injected(effect, &operation, || self.file.truncate(len)),
        }
    }

    fn sync(&mut self) -> Result<()> {
        let operation = Operation::on(OperationKind::Sync, &self.path);
        match self.shared.enter(&operation) {
            None => self.file.sync(),
            Some(effect) => {
                if let (Effect::LoseUnsynced, Some((memory, inode))) = (effect, &self.memory) {
                    memory.lose_unsynced(*inode);
                }
                injected(effect, &operation, || self.file.sync())
            }
        }
    }

    fn start_writeback(&mut self) {
        self.file.start_writeback();
    }

    fn len(&self) -> u64 {
        self.file.len()
    }
}

struct FaultReadable {
    file: Arc<dyn ReadableFile>,
    path: PathBuf,
    shared: Arc<Shared>,
}

impl fmt::Debug for FaultReadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultReadable").field("file", &self.file).finish_non_exhaustive()
    }
}

impl ReadableFile for FaultReadable {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let operation = Operation::on(OperationKind::Read, &self.path).bytes(offset, buffer.len());
        match self.shared.enter(&operation) {
            None => self.file.read_at(offset, buffer),
            Some(Effect::ShortRead { keep }) => {
                let keep = keep.min(buffer.len().saturating_sub(1));
                self.file.read_at(offset, &mut buffer[..keep])?;
                Err(cut_short(&self.path, offset, buffer.len(), keep))
            }
            Some(Effect::FlipBit { bit }) => {
                self.file.read_at(offset, buffer)?;
                if !buffer.is_empty() {
                    let bit = bit % (buffer.len() as u64 * 8);
                    buffer[(bit / 8) as usize] ^= 1 << (bit % 8);
                }
                Ok(())
            }
            Some(effect) => injected(effect, &operation, || self.file.read_at(offset, buffer)),
        }
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn will_need(&self, offset: u64, len: u64) {
        self.file.will_need(offset, len);
    }
}
