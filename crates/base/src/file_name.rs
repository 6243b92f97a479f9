//! Names of the files of a database directory.
//!
//! ```text
//! CURRENT            the name of the live manifest, one line; replaced by an atomic rename
//! LOCK               held by the process that has the database open
//! MANIFEST-000007    version edits
//! TRACE-000003       what table 3 was asked for: advice, no data
//! 000012.wal         a write-ahead log segment
//! 000013.sst         an SST
//! 000014.tmp         a file being written; removed at open
//! ```
//!
//! The number in the name of a trace is its table's id; all others come from one counter.

/// Numbers files in one database; one counter for all kinds, never reused. At most [`MAX_FILE_NUMBER`].
pub type FileNumber = u64;

/// The largest number of a file: what comes after it can still be counted, whatever a name or a manifest says.
pub const MAX_FILE_NUMBER: FileNumber = (1 << 56) - 1;

/// The kinds of file in a database directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileKind {
    /// `CURRENT`
    Current,
    /// `LOCK`
    Lock,
    /// `MANIFEST-…`
    Manifest,
    /// `….wal`
    Wal,
    /// `….sst`
    Sst,
    /// `….tmp`
    Temporary,
    /// `TRACE-…`
    Trace,
}

impl FileKind {
    /// The file's name in the database directory (`number` is ignored for `CURRENT` and `LOCK`).
    pub fn name(self, number: FileNumber) -> String {
        match self {
            Self::Current => "CURRENT".into(),
            Self::Lock => "LOCK".into(),
            Self::Manifest => format!("MANIFEST-{number:06}"),
            Self::Wal => format!("{number:06}.wal"),
            Self::Sst => format!("{number:06}.sst"),
            Self::Temporary => format!("{number:06}.tmp"),
            Self::Trace => format!("TRACE-{number:06}"),
        }
    }

    /// The kind and number of a name, or `None` if it is none of ours: a name that [`FileKind::name`] does not give,
    /// such as `0000005.sst`, is somebody else's.
    pub fn parse(name: &str) -> Option<(Self, FileNumber)> {
        match name {
            "CURRENT" => return Some((Self::Current, 0)),
            "LOCK" => return Some((Self::Lock, 0)),
            _ => {}
        }
        let prefixed = |prefix, kind| Some((kind, name.strip_prefix(prefix)?));
        let (kind, digits) = match prefixed("MANIFEST-", Self::Manifest).or(prefixed("TRACE-", Self::Trace)) {
            Some(found) => found,
            None => match name.split_once('.')? {
                (digits, "wal") => (Self::Wal, digits),
                (digits, "sst") => (Self::Sst, digits),
                (digits, "tmp") => (Self::Temporary, digits),
                _ => return None,
            },
        };
        let number = digits.parse::<FileNumber>().ok().filter(|number| *number <= MAX_FILE_NUMBER)?;
        (kind.name(number) == name).then_some((kind, number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for kind in [
            FileKind::Current,
            FileKind::Lock,
            FileKind::Manifest,
            FileKind::Wal,
            FileKind::Sst,
            FileKind::Temporary,
            FileKind::Trace,
        ] {
            let number = if matches!(kind, FileKind::Current | FileKind::Lock) { 0 } else { 1_234_567 };
            assert_eq!(FileKind::parse(&kind.name(number)), Some((kind, number)));
        }
        for foreign in ["", "x.sst", "12.sst", "+00012.sst", "MANIFEST-", "000001.sst.bak", "current"] {
            assert_eq!(FileKind::parse(foreign), None, "{foreign}");
        }
    }

    /// `0000005.sst` was file 5, under a name that file 5 does not have; the largest number had none after it.
    #[test]
    fn a_name_that_its_number_does_not_have_is_foreign() {
        let largest = FileKind::Sst.name(MAX_FILE_NUMBER);
        assert_eq!(FileKind::parse(&largest), Some((FileKind::Sst, MAX_FILE_NUMBER)));
        let beyond = [MAX_FILE_NUMBER + 1, u64::MAX].map(|number| FileKind::Sst.name(number));
        let odd =
            ["0000005.sst", "+0000005.sst", "00000005.wal", "MANIFEST-0000005", "TRACE-+00005", "１２３４５６.sst"];
        for foreign in odd.iter().copied().chain(beyond.iter().map(String::as_str)) {
            assert_eq!(FileKind::parse(foreign), None, "{foreign}");
        }
    }
}
