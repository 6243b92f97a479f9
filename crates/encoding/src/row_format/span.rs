//! Where columns stand in a payload, and faults in one.
//!
//! A *piece* is a column as its format writes it, without what names or delimits it: the token of a JSON member, the
//! content of a Protobuf field without tag and length, the inline bytes or the content of a FlatBuffers field, the slot
//! or bytes of a packed one. Splitting and merging rows moves pieces; only a change of format decodes them.

use mycelium_base::{ColumnSet, Error};

/// Where a column stands. By schema position; the primary key is always absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Span {
    /// Not in the value; from a scan, not in the payload.
    Absent,
    Null,
    /// In the value, but not in the payload: the field's default.
    Default,
    At {
        start: u32,
        end: u32,
    },
}

impl Span {
    pub(super) fn at(start: usize, end: usize) -> Self {
        // No payload is longer than `MAX_VALUE_LEN`, which was checked where it came in.
        Self::At { start: start as u32, end: end as u32 }
    }

    fn piece(self, bytes: &[u8]) -> Piece<'_> {
        match self {
            Self::Absent => Piece::Absent,
            Self::Null => Piece::Null,
            Self::Default => Piece::Default,
            Self::At { start, end } => Piece::Bytes(bytes.get(start as usize..end as usize).unwrap_or_default()),
        }
    }
}

/// A column as its format writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Piece<'a> {
    Absent,
    Null,
    Default,
    Bytes(&'a [u8]),
}

/// Spans and the bytes they point into.
#[derive(Clone, Copy, Debug)]
pub(super) struct Located<'a> {
    pub(super) spans: &'a [Span],
    pub(super) bytes: &'a [u8],
}

impl<'a> Located<'a> {
    pub(super) fn piece(&self, column: usize) -> Piece<'a> {
        self.spans.get(column).copied().unwrap_or(Span::Absent).piece(self.bytes)
    }
}

/// The columns to be written as one value: those of `newer`, and from `older` those that `newer` lacks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces<'a> {
    pub(super) newer: Located<'a>,
    pub(super) older: Option<Located<'a>>,
}

impl<'a> Pieces<'a> {
    pub(super) fn one(spans: &'a [Span], bytes: &'a [u8]) -> Self {
        Self { newer: Located { spans, bytes }, older: None }
    }

    #[inline]
    pub(super) fn get(&self, column: usize) -> Piece<'a> {
        match (self.newer.piece(column), &self.older) {
            (Piece::Absent, Some(older)) => older.piece(column),
            (piece, _) => piece,
        }
    }
}

/// How closely a payload is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scan<'a> {
    /// A user's payload: everything is checked but the values of columns, and all columns are found.
    Strict,
    /// A payload that was checked when it was written: only what keeps reading safe is checked, and only these columns
    /// need to be found (`None`: all).
    Trusted(Option<&'a ColumnSet>),
}

impl<'a> Scan<'a> {
    pub(super) fn is_strict(&self) -> bool {
        matches!(self, Self::Strict)
    }

    /// The columns that need to be found; `None` is all.
    pub(super) fn wanted(&self) -> Option<&'a ColumnSet> {
        match self {
            Self::Trusted(wanted) => *wanted,
            Self::Strict => None,
        }
    }

    #[inline]
    pub(super) fn wants(&self, column: usize) -> bool {
        match self {
            Self::Trusted(Some(columns)) => columns.contains(column),
            _ => true,
        }
    }
}

/// What is wrong with a payload, and at which byte of it.
#[derive(Debug)]
pub(super) struct Fault {
    at: usize,
    message: String,
}

impl Fault {
    #[cold]
    pub(super) fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }

    /// The same fault in bytes that start at `start`.
    #[cold]
    pub(super) fn shifted(mut self, start: usize) -> Self {
        self.at += start;
        self
    }

    /// The same fault, said of a column.
    #[cold]
    pub(super) fn in_column(mut self, name: &str) -> Self {
        self.message = format!("column \"{name}\": {}", self.message);
        self
    }

    /// The error for a user's payload.
    #[cold]
    pub(super) fn refused(self) -> Error {
        Error::invalid(self.message).at(self.at as u64)
    }

    /// The error for a stored value whose payload starts at `start`. Its position is in the message: an error's offset
    /// is one in a file, for whoever knows the file to add.
    #[cold]
    pub(super) fn corrupt(self, start: usize) -> Error {
        Error::corruption(format!("{} at byte {} of a row", self.message, start + self.at))
    }
}
