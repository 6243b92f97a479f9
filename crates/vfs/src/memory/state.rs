//! What an in-memory disk holds: names, inodes and files, and which names are durable.
//!
//! 1. A path resolves to a directory and a name; names lead to inodes, inodes hold a [`MemoryFile`].
//! 2. A change of names takes effect in the directory's current names at once and joins the ordered list of pending
//!    changes. A rename is one change of two names.
//! 3. [`State::sync_directory`] applies to the durable names, in order, every pending change that touches the
//!    directory, and every earlier one that those depend on because it touches the same name.
//! 4. Directories themselves are durable once created.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind as IoErrorKind;
use std::path::{Component, Path, PathBuf};

use mycelium_base::{Error, ErrorKind, Result};

use super::file::MemoryFile;

pub(crate) type Inode = u64;

/// The free space reported by a disk without a capacity.
const UNLIMITED: u64 = 1 << 50;

pub(super) struct State {
    pub(super) nodes: BTreeMap<Inode, Node>,
    pub(super) directories: BTreeMap<PathBuf, Directory>,
    /// Changes of names that are not durable yet, oldest first.
    pub(super) pending: Vec<Change>,
    pub(super) next_inode: Inode,
    pub(super) capacity: Option<u64>,
    pub(super) locks: BTreeSet<PathBuf>,
    pub(super) operations: u64,
    /// The machine dies after this many operations.
    pub(super) power_off_after: Option<u64>,
}

pub(super) struct Node {
    pub(super) file: MemoryFile,
    /// Current names.
    links: u32,
    /// Open handles.
    pub(super) open: u32,
}

impl Node {
    pub(super) fn new(file: MemoryFile) -> Self {
        Self { file, links: 0, open: 0 }
    }
}

#[derive(Clone, Default)]
pub(super) struct Directory {
    pub(super) current: BTreeMap<String, Inode>,
    pub(super) durable: BTreeMap<String, Inode>,
}

/// One atomic change of names: what each name leads to afterwards.
#[derive(Clone)]
pub(super) struct Change(pub(super) Vec<(Name, Option<Inode>)>);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) directory: PathBuf,
    pub(super) name: String,
}

impl State {
    pub(super) fn empty(capacity: Option<u64>) -> Self {
        let roots = ["", "/"].map(|root| (PathBuf::from(root), Directory::default()));
        Self {
            nodes: BTreeMap::new(),
            directories: BTreeMap::from(roots),
            pending: Vec::new(),
            next_inode: 1,
            capacity,
            locks: BTreeSet::new(),
            operations: 0,
            power_off_after: None,
        }
    }

    pub(super) fn is_off(&self) -> bool {
        self.power_off_after.is_some_and(|n| self.operations >= n)
    }

    pub(super) fn used(&self) -> u64 {
        self.nodes.values().filter(|n| n.links > 0 || n.open > 0).map(|n| n.file.len() as u64).sum()
    }

    pub(super) fn free(&self) -> u64 {
        self.capacity.map_or(UNLIMITED, |capacity| capacity.saturating_sub(self.used()))
    }

    pub(super) fn directory(&self, doing: &str, path: &Path) -> Result<&Directory> {
        self.directories.get(path).ok_or_else(|| Error::io(doing, path, IoErrorKind::NotFound.into()))
    }

    /// Where a name leads, or `None`; fails if its directory is missing or the name is a directory's.
    pub(super) fn look_up(&self, doing: &str, name: &Name) -> Result<Option<Inode>> {
        let directory = self.directory(doing, &name.directory)?;
        if self.directories.contains_key(&name.path()) {
            return Err(Error::io(doing, &name.path(), IoErrorKind::IsADirectory.into()));
        }
        Ok(directory.current.get(&name.name).copied())
    }

    pub(super) fn find(&self, doing: &str, name: &Name) -> Result<Inode> {
        self.look_up(doing, name)?.ok_or_else(|| Error::io(doing, &name.path(), IoErrorKind::NotFound.into()))
    }

    pub(super) fn node(&mut self, inode: Inode, path: &Path) -> Result<&mut Node> {
        self.nodes.get_mut(&inode).ok_or_else(|| Error::new(ErrorKind::NotFound, "no such inode").in_file(path))
    }

    pub(super) fn new_file(&mut self, file: MemoryFile) -> Inode {
        let inode = self.next_inode;
        self.next_inode += 1;
        self.nodes.insert(inode, Node::new(file));
        inode
    }

    /// Makes a change visible at once, and pending.
    pub(super) fn change(&mut self, change: Change) {
        for (name, inode) in &change.0 {
            let Some(directory) = self.directories.get_mut(&name.directory) else { continue };
            let former = match inode {
                Some(inode) => directory.current.insert(name.name.clone(), *inode),
                None => directory.current.remove(&name.name),
            };
            if let Some(node) = inode.and_then(|inode| self.nodes.get_mut(&inode)) {
                node.links += 1;
            }
            if let Some(node) = former.and_then(|inode| self.nodes.get_mut(&inode)) {
                node.links -= 1;
            }
        }
        self.pending.push(change);
    }

    /// Applies a pending change to the durable names.
    pub(super) fn apply_durably(&mut self, change: &Change) {
        for (name, inode) in &change.0 {
            let Some(directory) = self.directories.get_mut(&name.directory) else { continue };
            match inode {
                Some(inode) => directory.durable.insert(name.name.clone(), *inode),
                None => directory.durable.remove(&name.name),
            };
        }
    }

    pub(super) fn sync_directory(&mut self, path: &Path) {
        let mut needed = BTreeSet::new();
        let mut synced = Vec::new();
        let mut others = Vec::new();
        for change in std::mem::take(&mut self.pending).into_iter().rev() {
            if change.0.iter().any(|(name, _)| name.directory == path || needed.contains(name)) {
                needed.extend(change.0.iter().map(|(name, _)| name.clone()));
                synced.push(change);
            } else {
                others.push(change);
            }
        }
        others.reverse();
        self.pending = others;
        for change in synced.iter().rev() {
            self.apply_durably(change);
        }
        self.forget_unreachable();
    }

    /// Drops the files that no handle and no name, current, durable or pending, leads to.
    pub(super) fn forget_unreachable(&mut self) {
        let names = self.directories.values().flat_map(|d| d.current.values().chain(d.durable.values()).copied());
        let pending = self.pending.iter().flat_map(|change| change.0.iter().filter_map(|(_, inode)| *inode));
        let reachable: BTreeSet<Inode> = names.chain(pending).collect();
        self.nodes.retain(|inode, node| node.open > 0 || reachable.contains(inode));
    }

    pub(super) fn count_links(&mut self) {
        for inode in self.directories.values().flat_map(|d| d.current.values()) {
            if let Some(node) = self.nodes.get_mut(inode) {
                node.links += 1;
            }
        }
    }
}

impl Name {
    pub(super) fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }
}

/// The path without `.` and `..`.
pub(super) fn normalize(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            _ => normal.push(component),
        }
    }
    normal
}

pub(super) fn name_of(path: &Path) -> Result<Name> {
    let normal = normalize(path);
    match (normal.parent(), normal.file_name().and_then(|name| name.to_str())) {
        (Some(directory), Some(name)) => Ok(Name { directory: directory.to_path_buf(), name: name.to_owned() }),
        _ => Err(Error::invalid("not the path of a file, or not UTF-8").in_file(path)),
    }
}
