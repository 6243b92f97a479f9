//! A deterministic disk in memory that knows what of it is durable.
//!
//! It promises exactly what [`crate::Disk`] promises: a file's bytes are durable after its `sync`, a name after the
//! `sync_directory` of its directory. What is not durable yet is kept apart, so that at any moment an image of the disk
//! can be drawn as a power loss ([`MemoryDisk::crash_image`]) or the death of the process ([`MemoryDisk::kill_image`])
//! would leave it.
//!
//! 1. Names, inodes and what of them is durable make up the state (state.rs); what is written to a file, and what of
//!    that is durable, is its own affair (file.rs).
//! 2. An operation that changes the disk is counted, and the hook told of it, before it is performed. No lock is held
//!    meanwhile, so that the hook may draw images.
//! 3. Images are states drawn from the present one (image.rs), which stays as it is.

mod file;
mod image;
mod state;

use std::fmt;
use std::io::ErrorKind as IoErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mycelium_base::{Error, ErrorKind, Result};
use parking_lot::{Mutex, MutexGuard};

use self::file::MemoryFile;
pub(crate) use self::state::Inode;
use self::state::{Change, Directory, State, name_of, normalize};
use crate::crash::CrashDraw;
use crate::{AccessPattern, Disk, FileLock, Operation, OperationKind, ReadableFile, WritableFile, cut_short};

/// Called with the operation's index (from 1) and the operation, just before it is performed.
type Hook = Arc<dyn Fn(u64, &Operation<'_>) + Send + Sync>;

/// A disk in memory. Clones are handles of the same disk.
///
/// Operations that change the disk (see [`OperationKind::is_mutation`]) are counted from 1. The machine can be made to
/// die after any of them: then every further operation fails with [`ErrorKind::Io`].
///
/// ```
/// use mycelium_vfs::{CrashDraw, CrashMode, Disk, MemoryDisk};
/// use std::path::Path;
///
/// let disk = MemoryDisk::new();
/// let mut file = disk.create(Path::new("a"))?;
/// file.append(b"synced")?;
/// file.sync()?;
/// disk.sync_directory(Path::new(""))?;
/// file.append(b", not synced")?;
///
/// let image = disk.crash_image(&CrashDraw { mode: CrashMode::SyncedOnly, seed: 0 });
/// assert_eq!(image.read_bytes(Path::new("a"))?, b"synced");
/// assert_eq!(disk.kill_image().read_bytes(Path::new("a"))?, b"synced, not synced");
/// # Ok::<(), mycelium_base::Error>(())
/// ```
#[derive(Clone)]
pub struct MemoryDisk {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    hook: Mutex<Option<Hook>>,
}

impl Default for MemoryDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state.lock();
        f.debug_struct("MemoryDisk")
            .field("files", &state.nodes.len())
            .field("operations", &state.operations)
            .field("off", &state.is_off())
            .finish_non_exhaustive()
    }
}

impl MemoryDisk {
    /// An empty disk without a capacity, with the directories `""` and `"/"`.
    pub fn new() -> Self {
        Self::from_state(State::empty(None))
    }

    fn from_state(state: State) -> Self {
        Self { shared: Arc::new(Shared { state: Mutex::new(state), hook: Mutex::new(None) }) }
    }

    /// A new disk as this one would be found after a power loss now. This one is left as it is. Costs the unsynced
    /// files; synced contents are shared until written.
    pub fn crash_image(&self, draw: &CrashDraw) -> Self {
        Self::from_state(image::after_power_loss(&self.shared.state.lock(), *draw))
    }

    /// A new disk as this one would be found after the process was killed now: nothing handed over is lost, but what
    /// was not durable is still not.
    pub fn kill_image(&self) -> Self {
        Self::from_state(image::after_kill(&self.shared.state.lock()))
    }

    /// Changing operations so far.
    pub fn operations(&self) -> u64 {
        self.shared.state.lock().operations
    }

    /// Calls `hook` before each changing operation, without holding a lock, so it may draw images. A hook that owns a
    /// handle of this disk keeps it alive until the hook is replaced.
    pub fn on_operation(&self, hook: impl Fn(u64, &Operation<'_>) + Send + Sync + 'static) {
        *self.shared.hook.lock() = Some(Arc::new(hook));
    }

    /// Removes the hook.
    pub fn clear_hook(&self) {
        *self.shared.hook.lock() = None;
    }

    /// Lets the machine die after the `n`-th changing operation counted since the disk was made (`None`: never): every
    /// later operation, reads too, fails.
    pub fn power_off_after(&self, n: Option<u64>) {
        self.shared.state.lock().power_off_after = n;
    }

    /// Whether the machine died.
    pub fn is_off(&self) -> bool {
        self.shared.state.lock().is_off()
    }

    /// Sets how many bytes all files together may hold (`None`: any number). What is there already stays.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.state.lock().capacity = bytes;
    }

    /// Bytes in files that have a name or an open handle.
    pub fn used_space(&self) -> u64 {
        self.shared.state.lock().used()
    }

    /// The paths of all files, sorted. Not an operation: not counted, works on a dead machine.
    pub fn paths(&self) -> Vec<PathBuf> {
        let state = self.shared.state.lock();
        state.directories.iter().flat_map(|(path, d)| d.current.keys().map(|name| path.join(name))).collect()
    }

    /// A file's contents. As the four methods below, not an operation: not counted, works on a dead machine.
    pub fn read_bytes(&self, path: &Path) -> Result<Vec<u8>> {
        self.with_file(path, |file| Ok(file.current().to_vec()))
    }

    /// Changes bytes of a file, in the cache and on the platter; fails if they do not lie within the file.
    pub fn overwrite(&self, path: &Path, offset: u64, bytes: &[u8]) -> Result<()> {
        self.with_file(path, |file| match usize::try_from(offset) {
            Ok(offset) if offset.checked_add(bytes.len()).is_some_and(|end| end <= file.len()) => {
                file.overwrite(offset, bytes);
                Ok(())
            }
            _ => Err(cut_short(path, offset, bytes.len(), file.len())),
        })
    }

    /// Flips one bit of a file; bit 0 is the lowest of the first byte.
    pub fn flip_bit(&self, path: &Path, bit: u64) -> Result<()> {
        self.with_file(path, |file| match file.current().get((bit / 8) as usize) {
            Some(byte) => {
                let flipped = byte ^ (1 << (bit % 8));
                file.overwrite((bit / 8) as usize, &[flipped]);
                Ok(())
            }
            None => Err(cut_short(path, bit / 8, 1, 0)),
        })
    }

    /// Exchanges `len` bytes at two places, of one file or two: misdirected writes.
    pub fn swap(&self, a: (&Path, u64), b: (&Path, u64), len: usize) -> Result<()> {
        let slice = |(path, offset): (&Path, u64)| {
            let bytes = self.read_bytes(path)?;
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let slice = bytes.get(start..start.saturating_add(len)).map(<[u8]>::to_vec);
            slice.ok_or_else(|| cut_short(path, offset, len, bytes.len()))
        };
        let (from_a, from_b) = (slice(a)?, slice(b)?);
        self.overwrite(a.0, a.1, &from_b)?;
        self.overwrite(b.0, b.1, &from_a)
    }

    /// Copies a file under a new or existing name, durably at once: a stale file that came back.
    pub fn copy_file(&self, from: &Path, to: &Path) -> Result<()> {
        let contents = self.with_file(from, |file| Ok(Arc::clone(file.current())))?;
        self.place(to, contents)
    }

    /// Cuts a file to `len` bytes, or extends it with zeros, durably at once.
    pub fn set_len(&self, path: &Path, len: usize) -> Result<()> {
        let mut contents = self.read_bytes(path)?;
        contents.resize(len, 0);
        self.place(path, Arc::new(contents))
    }

    /// Puts a wholly durable file under `path`, as a new inode.
    fn place(&self, path: &Path, contents: Arc<Vec<u8>>) -> Result<()> {
        let name = name_of(path)?;
        let mut state = self.shared.state.lock();
        state.look_up("place file", &name)?;
        let inode = state.new_file(MemoryFile::durable(contents));
        for change in &mut state.pending {
            change.0.retain(|(other, _)| *other != name);
        }
        state.change(Change(vec![(name, Some(inode))]));
        if let Some(change) = state.pending.pop() {
            state.apply_durably(&change);
        }
        Ok(())
    }

    fn with_file<T>(&self, path: &Path, f: impl FnOnce(&mut MemoryFile) -> Result<T>) -> Result<T> {
        let mut state = self.shared.state.lock();
        let inode = state.find("access", &name_of(path)?)?;
        f(&mut state.node(inode, path)?.file)
    }

    /// The inode a path leads to now.
    pub(crate) fn inode(&self, path: &Path) -> Result<Inode> {
        self.shared.state.lock().find("look for", &name_of(path)?)
    }

    /// Marks a file's unsynced pages clean without writing them, as a failed sync may.
    pub(crate) fn lose_unsynced(&self, inode: Inode) {
        if let Some(node) = self.shared.state.lock().nodes.get_mut(&inode) {
            node.file.lose_unsynced();
        }
    }

    /// Counts an operation and calls the hook; fails if the machine is off.
    fn enter(&self, operation: &Operation<'_>) -> Result<MutexGuard<'_, State>> {
        let mut state = self.shared.state.lock();
        if state.is_off() {
            return Err(Error::new(ErrorKind::Io, "the simulated machine is off").in_file(operation.path));
        }
        if !operation.kind.is_mutation() {
            return Ok(state);
        }
        state.operations += 1;
        let index = state.operations;
        drop(state);
        let hook = self.shared.hook.lock().clone();
        if let Some(hook) = hook {
            hook(index, operation);
        }
        Ok(self.shared.state.lock())
    }

    /// A handle's share of an open file.
    fn open_handle(&self, state: &mut State, inode: Inode, path: &Path) -> Result<Handle> {
        state.node(inode, path)?.open += 1;
        Ok(Handle { disk: self.clone(), inode, path: path.to_path_buf() })
    }
}

impl Disk for MemoryDisk {
    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        let name = name_of(path)?;
        let mut state = self.enter(&Operation::on(OperationKind::Create, path))?;
        let inode = match state.look_up("create file", &name)? {
            Some(inode) => {
                state.node(inode, path)?.file.truncate(0);
                inode
            }
            None => {
                let inode = state.new_file(MemoryFile::default());
                state.change(Change(vec![(name, Some(inode))]));
                inode
            }
        };
        Ok(Box::new(MemoryWritable(self.open_handle(&mut state, inode, path)?)))
    }

    fn open(&self, path: &Path, _pattern: AccessPattern) -> Result<Arc<dyn ReadableFile>> {
        let name = name_of(path)?;
        let mut state = self.enter(&Operation::on(OperationKind::Open, path))?;
        let inode = state.find("open file", &name)?;
        let len = state.node(inode, path)?.file.len() as u64;
        Ok(Arc::new(MemoryReadable { handle: self.open_handle(&mut state, inode, path)?, len }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let (old, new) = (name_of(from)?, name_of(to)?);
        let mut state = self.enter(&Operation::on(OperationKind::Rename, from).to(to))?;
        let inode = state.find("rename", &old)?;
        if state.look_up("rename to", &new)? != Some(inode) {
            state.change(Change(vec![(old, None), (new, Some(inode))]));
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let name = name_of(path)?;
        let mut state = self.enter(&Operation::on(OperationKind::Remove, path))?;
        state.find("remove", &name)?;
        state.change(Change(vec![(name, None)]));
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        let (old, new) = (name_of(from)?, name_of(to)?);
        let mut state = self.enter(&Operation::on(OperationKind::HardLink, from).to(to))?;
        let inode = state.find("link", &old)?;
        if state.look_up("link to", &new)?.is_some() {
            return Err(Error::io("link to", to, IoErrorKind::AlreadyExists.into()));
        }
        state.change(Change(vec![(new, Some(inode))]));
        Ok(())
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        let mut state = self.enter(&Operation::on(OperationKind::CreateDirectory, path))?;
        let normal = normalize(path);
        for directory in normal.ancestors().collect::<Vec<_>>().into_iter().rev() {
            if state.directories.contains_key(directory) {
                continue;
            }
            if state.look_up("create directory", &name_of(directory)?)?.is_some() {
                return Err(Error::io("create directory", directory, IoErrorKind::AlreadyExists.into()));
            }
            state.directories.insert(directory.to_path_buf(), Directory::default());
        }
        Ok(())
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>> {
        let state = self.enter(&Operation::on(OperationKind::List, directory))?;
        Ok(state.directory("list directory", &normalize(directory))?.current.keys().cloned().collect())
    }

    fn sync_directory(&self, directory: &Path) -> Result<()> {
        let mut state = self.enter(&Operation::on(OperationKind::SyncDirectory, directory))?;
        let directory = normalize(directory);
        state.directory("sync directory", &directory)?;
        state.sync_directory(&directory);
        Ok(())
    }

    fn file_len(&self, path: &Path) -> Result<u64> {
        let name = name_of(path)?;
        let mut state = self.enter(&Operation::on(OperationKind::FileLen, path))?;
        let inode = state.find("read metadata of", &name)?;
        Ok(state.node(inode, path)?.file.len() as u64)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let state = self.enter(&Operation::on(OperationKind::Exists, path))?;
        if state.directories.contains_key(&normalize(path)) {
            return Ok(true);
        }
        let name = name_of(path)?;
        Ok(state.directories.get(&name.directory).is_some_and(|d| d.current.contains_key(&name.name)))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        let name = name_of(path)?;
        let mut state = self.enter(&Operation::on(OperationKind::Lock, path))?;
        let path = name.path();
        if state.look_up("open lock file", &name)?.is_none() {
            let inode = state.new_file(MemoryFile::default());
            state.change(Change(vec![(name, Some(inode))]));
        }
        if !state.locks.insert(path.clone()) {
            return Err(Error::new(ErrorKind::Locked, "locked by another handle").in_file(path));
        }
        Ok(Box::new(MemoryLock { disk: self.clone(), path }))
    }

    fn free_space(&self, path: &Path) -> Result<u64> {
        Ok(self.enter(&Operation::on(OperationKind::FreeSpace, path))?.free())
    }
}

struct MemoryLock {
    disk: MemoryDisk,
    path: PathBuf,
}

impl FileLock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.disk.shared.state.lock().locks.remove(&self.path);
    }
}

/// An open file: keeps its inode while it lives.
#[derive(Debug)]
struct Handle {
    disk: MemoryDisk,
    inode: Inode,
    path: PathBuf,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(node) = self.disk.shared.state.lock().nodes.get_mut(&self.inode) {
            node.open -= 1;
        }
    }
}

struct MemoryWritable(Handle);

impl WritableFile for MemoryWritable {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let Handle { disk, inode, path } = &self.0;
        let operation = Operation::on(OperationKind::Append, path).bytes(self.len(), bytes.len());
        let mut state = disk.enter(&operation)?;
        let fits = state.free().min(bytes.len() as u64) as usize;
        state.node(*inode, path)?.file.append(&bytes[..fits]);
        if fits < bytes.len() {
            return Err(Error::io("append to", path, IoErrorKind::StorageFull.into()));
        }
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        let Handle { disk, inode, path } = &self.0;
        let mut state = disk.enter(&Operation::on(OperationKind::Truncate, path).bytes(len, 0))?;
        let file = &mut state.node(*inode, path)?.file;
        if len > file.len() as u64 {
            return Err(Error::invalid("cannot truncate a file beyond its length").in_file(path));
        }
        file.truncate(len as usize);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        let Handle { disk, inode, path } = &self.0;
        disk.enter(&Operation::on(OperationKind::Sync, path))?.node(*inode, path)?.file.sync();
        Ok(())
    }

    fn start_writeback(&mut self) {}

    fn len(&self) -> u64 {
        self.0.disk.shared.state.lock().nodes.get(&self.0.inode).map_or(0, |node| node.file.len() as u64)
    }
}

#[derive(Debug)]
struct MemoryReadable {
    handle: Handle,
    len: u64,
}

impl ReadableFile for MemoryReadable {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let Handle { disk, inode, path } = &self.handle;
        let mut state = disk.enter(&Operation::on(OperationKind::Read, path).bytes(offset, buffer.len()))?;
        let contents = state.node(*inode, path)?.file.current();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(contents.len());
        let rest = &contents[start..];
        match rest.get(..buffer.len()) {
            Some(bytes) => buffer.copy_from_slice(bytes),
            None => return Err(cut_short(path, offset, buffer.len(), rest.len())),
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn will_need(&self, _offset: u64, _len: u64) {}
}
