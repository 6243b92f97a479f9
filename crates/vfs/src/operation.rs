//! The names of what a disk can be asked to do, shared by the simulated disk and the fault wrapper.

use std::fmt;
use std::path::Path;

/// The kinds of operation of a [`Disk`](crate::Disk) and its files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OperationKind {
    /// `Disk::create`
    Create,
    /// `Disk::open`
    Open,
    /// `Disk::rename`
    Rename,
    /// `Disk::remove`
    Remove,
    /// `Disk::hard_link`
    HardLink,
    /// `Disk::create_directory`
    CreateDirectory,
    /// `Disk::list`
    List,
    /// `Disk::sync_directory`
    SyncDirectory,
    /// `Disk::file_len`
    FileLen,
    /// `Disk::exists`
    Exists,
    /// `Disk::lock`
    Lock,
    /// `Disk::free_space`
    FreeSpace,
    /// `WritableFile::append`
    Append,
    /// `WritableFile::truncate`
    Truncate,
    /// `WritableFile::sync`
    Sync,
    /// `ReadableFile::read_at`
    Read,
}

impl OperationKind {
    /// Every kind, in the order of their declaration.
    pub const ALL: [Self; 16] = [
        Self::Create,
        Self::Open,
        Self::Rename,
        Self::Remove,
        Self::HardLink,
        Self::CreateDirectory,
        Self::List,
        Self::SyncDirectory,
        Self::FileLen,
        Self::Exists,
        Self::Lock,
        Self::FreeSpace,
        Self::Append,
        Self::Truncate,
        Self::Sync,
        Self::Read,
    ];

    /// Whether the operation changes what the disk holds or what of it is durable.
    pub fn is_mutation(self) -> bool {
        !matches!(self, Self::Open | Self::List | Self::FileLen | Self::Exists | Self::FreeSpace | Self::Read)
    }
}

/// One operation about to be performed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation<'a> {
    /// What is asked for.
    pub kind: OperationKind,
    /// The file or directory (the old name, for a rename or hard link).
    pub path: &'a Path,
    /// The new name of a rename or hard link.
    pub to: Option<&'a Path>,
    /// Where in the file: the offset of an append or read, the length a truncate leaves; else 0.
    pub offset: u64,
    /// Bytes appended or read; else 0.
    pub len: u64,
}

impl<'a> Operation<'a> {
    pub(crate) fn on(kind: OperationKind, path: &'a Path) -> Self {
        Self { kind, path, to: None, offset: 0, len: 0 }
    }

    pub(crate) fn to(mut self, to: &'a Path) -> Self {
        self.to = Some(to);
        self
    }

    pub(crate) fn bytes(mut self, offset: u64, len: usize) -> Self {
        self.offset = offset;
        self.len = len as u64;
        self
    }
}

impl fmt::Display for Operation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind, self.path.display())?;
        if let Some(to) = self.to {
            write!(f, " to {}", to.display())?;
        }
        match self.kind {
            OperationKind::Append | OperationKind::Read => write!(f, " {} bytes at {}", self.len, self.offset),
            OperationKind::Truncate => write!(f, " to {} bytes", self.offset),
            _ => Ok(()),
        }
    }
}
