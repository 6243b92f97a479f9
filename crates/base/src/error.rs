//! Errors: one type, a small public kind, and for corruption the file, the offset, what was expected and what was
//! found.

use std::fmt;
use std::path::{Path, PathBuf};

/// The result of every fallible call in Mycelium.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about an error. New kinds may be added.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call's arguments are wrong; nothing was done.
    InvalidArgument,
    /// The table, snapshot or file asked for does not exist.
    NotFound,
    /// Stored bytes are not what was written. Never retried; `file`, `offset`, `expected` and `found` say where.
    Corruption,
    /// The disk reported an error.
    Io,
    /// The disk is full. Reads go on; writes resume when space is freed.
    NoSpace,
    /// The process, or the system, has as many files open as it may; try again once some are closed.
    TooManyOpenFiles,
    /// A transaction met a newer write, or the opening of a database to read only a process that changes it; run it
    /// again.
    Conflict,
    /// To wait for a lock would be to wait for itself; the transaction may do something else, or be run again.
    Deadlock,
    /// Another transaction held a lock for longer than was to be waited for; try again, or do something else.
    LockTimeout,
    /// A transaction holds as many locks as it may; nothing was done.
    LockLimit,
    /// Another row has the same values in a unique index; nothing was done.
    Duplicate,
    /// Rows that must ascend by their keys do not; nothing was done.
    OutOfOrder,
    /// The database is read-only, by option or because an earlier I/O error latched it.
    ReadOnly,
    /// Another process (or handle) has the database open.
    Locked,
    /// The file was written by a newer format, or needs a feature that is not there (a merge operator, say).
    Unsupported,
    /// The database was closed.
    Closed,
}

impl ErrorKind {
    /// Whether the system ran out of something that it may have again, space on the disk or files that may be open:
    /// what failed may succeed later.
    pub fn is_shortage(self) -> bool {
        matches!(self, Self::NoSpace | Self::TooManyOpenFiles)
    }
}

/// `EMFILE` and `ENFILE`, the same on every Unix: the process, and the system, has too many files open. The standard
/// library has no kind for them.
const TOO_MANY_OPEN_FILES: [i32; 2] = [24, 23];

/// An error with its context. Cheap to move (one pointer).
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    file: Option<PathBuf>,
    offset: Option<u64>,
    expected: Option<String>,
    found: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of a kind with a message in plain words.
    #[cold]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            file: None,
            offset: None,
            expected: None,
            found: None,
            source: None,
        }))
    }

    /// [`ErrorKind::InvalidArgument`].
    #[cold]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// [`ErrorKind::Corruption`]; add where with [`Error::in_file`], [`Error::at`] and [`Error::expected`].
    #[cold]
    pub fn corruption(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corruption, message)
    }

    /// An I/O error on a path: [`ErrorKind::NoSpace`] for a full disk, [`ErrorKind::TooManyOpenFiles`] for want of
    /// descriptors, [`ErrorKind::NotFound`] for a missing file, else [`ErrorKind::Io`].
    #[cold]
    pub fn io(doing: &str, path: &Path, source: std::io::Error) -> Self {
        let kind = match source.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            _ if source.raw_os_error().is_some_and(|code| TOO_MANY_OPEN_FILES.contains(&code)) => {
                ErrorKind::TooManyOpenFiles
            }
            _ => ErrorKind::Io,
        };
        let mut error = Self::new(kind, format!("cannot {doing}"));
        error.0.file = Some(path.to_path_buf());
        error.0.source = Some(Box::new(source));
        error
    }

    /// Names the file.
    #[must_use]
    pub fn in_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.0.file.get_or_insert(path.into());
        self
    }

    /// Gives the byte offset in the file.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// Gives what should have been there and what was.
    #[must_use]
    pub fn expected(mut self, expected: impl fmt::Display, found: impl fmt::Display) -> Self {
        self.0.expected = Some(expected.to_string());
        self.0.found = Some(found.to_string());
        self
    }

    /// Keeps the cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The kind, which is what programs match on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The file concerned, if one is.
    pub fn file(&self) -> Option<&Path> {
        self.0.file.as_deref()
    }

    /// The byte offset in [`Error::file`], if known.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// Whether stored bytes were found to be wrong.
    pub fn is_corruption(&self) -> bool {
        self.0.kind == ErrorKind::Corruption
    }

    /// A copy for a second reader of the same failure (the cause is kept as text).
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self(Box::new(Inner {
            kind: self.0.kind,
            message: self.0.message.clone(),
            file: self.0.file.clone(),
            offset: self.0.offset,
            expected: self.0.expected.clone(),
            found: self.0.found.clone(),
            source: self.0.source.as_ref().map(|source| source.to_string().into()),
        }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        if inner.kind == ErrorKind::Corruption {
            f.write_str("corruption: ")?;
        }
        f.write_str(&inner.message)?;
        if let Some(file) = &inner.file {
            write!(f, " in {}", file.display())?;
        }
        if let Some(offset) = inner.offset {
            write!(f, " at offset {offset}")?;
        }
        if let (Some(expected), Some(found)) = (&inner.expected, &inner.found) {
            write!(f, ": expected {expected}, found {found}")?;
        }
        if let Some(source) = &inner.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({self})", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| &**source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_ran_out_of_is_told_apart_from_failures() {
        let kind = |source| Error::io("create file", Path::new("file"), source).kind();
        for code in TOO_MANY_OPEN_FILES {
            assert_eq!(kind(std::io::Error::from_raw_os_error(code)), ErrorKind::TooManyOpenFiles);
        }
        assert_eq!(kind(std::io::ErrorKind::StorageFull.into()), ErrorKind::NoSpace);
        assert_eq!(kind(std::io::ErrorKind::PermissionDenied.into()), ErrorKind::Io);
        assert!(ErrorKind::NoSpace.is_shortage() && ErrorKind::TooManyOpenFiles.is_shortage());
        assert!(!ErrorKind::Io.is_shortage());
    }
}
