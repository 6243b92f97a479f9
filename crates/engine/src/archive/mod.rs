//! The archive of the log: segments that recovery does not need any more, kept for restores between two backups.
//!
//! ```text
//! IDENTITY-HISTORY-000012.wal       segment 12 of this history of this database, 16 hexadecimal digits each
//! IDENTITY-HISTORY-000012.tmp       a segment being copied
//! ```
//!
//! 1. A database has a *history*, a number drawn when it is first opened with an archive, which none of its copies
//!    keeps: what is restored, a checkpoint, what was salvaged. So copies that go on by themselves, and number their
//!    segments alike, may share an archive, and their logs are never taken for each other's. A backup knows the history
//!    that it belongs to.
//! 2. A segment that is flushed, or was replayed, is synced and linked into the archive, or copied where there can be
//!    no link; then the archive's directory is synced, and then the segment is removed (`store`).
//! 3. What has its final name is whole and is never written to again. One that is there already, for a crash came
//!    before the removal, must hold the same.
//! 4. A segment's header names the one before it and how long that is. A restore follows this chain from the segment
//!    that has what comes after its backup (`chain`), and misses what is missing.
//!
//! So, whatever is cut short: a segment is in the database's directory or in the archive, until it is in both.
//!
//! What is not in the log: bulk loads, of which it has a note and a gap in the sequence numbers (note.rs), and changes
//! of tables. A table that was made later, or whose columns changed, is known by its new id. A restore ends before
//! either.

use std::path::PathBuf;

use mycelium_base::{FileNumber, MAX_FILE_NUMBER};

mod chain;
mod store;

pub(crate) use chain::{Chain, Log, LogSegment};
pub(crate) use store::{Archiver, begin_segment};

/// Where the log goes when recovery does not need it any more: [`crate::Options::archive`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArchiveOptions {
    /// The directory, which is made if it is not there. On the file system of the database segments are linked into it,
    /// and take no time; on another they are copied, in the thread that flushes. Copies of the database may share it.
    pub directory: PathBuf,
    /// Bytes of the log that may wait in the database's directory while the archive cannot take them, on a full disk
    /// say. Writes are refused while there are more. Default: 4 GiB.
    pub most_waiting_bytes: u64,
}

impl ArchiveOptions {
    /// An archive in this directory.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), most_waiting_bytes: 4 << 30 }
    }
}

/// Whose log it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    pub(crate) identity: u64,
    pub(crate) history: u64,
}

impl Origin {
    /// What the names of its files begin with.
    fn prefix(self) -> String {
        format!("{:016x}-{:016x}-", self.identity, self.history)
    }

    /// The name of a segment in an archive.
    pub(crate) fn name(self, number: FileNumber) -> String {
        format!("{}{number:06}.wal", self.prefix())
    }

    /// The number of the segment of this name, if it is one of this log.
    pub(crate) fn parse(self, name: &str) -> Option<FileNumber> {
        let number = name.strip_prefix(&self.prefix())?.strip_suffix(".wal")?;
        let number = number.parse::<FileNumber>().ok().filter(|number| *number <= MAX_FILE_NUMBER)?;
        (self.name(number) == name).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_segments_parse_back() {
        let origin = Origin { identity: 0xfe, history: 3 };
        assert_eq!(origin.name(12), "00000000000000fe-0000000000000003-000012.wal");
        for number in [1, 999_999, 1_000_000, MAX_FILE_NUMBER] {
            assert_eq!(origin.parse(&origin.name(number)), Some(number));
        }
        let other = Origin { history: 4, ..origin };
        for foreign in [other.name(12), "000012.wal".into(), origin.name(MAX_FILE_NUMBER + 1), "x".into()] {
            assert_eq!(origin.parse(&foreign), None, "{foreign}");
        }
        assert_eq!(origin.parse("00000000000000fe-0000000000000003-12.wal"), None);
        assert_eq!(origin.parse("00000000000000fe-0000000000000003-000012.tmp"), None);
    }
}
