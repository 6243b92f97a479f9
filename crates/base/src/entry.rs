//! Entries: (key, sequence number, operation) and their order.
//!
//! Entries are ordered by key bytewise ascending, then by sequence number **descending**, so that the newest
//! version of a key comes first. The sequence number and the operation travel together as a [`Trailer`].

use std::cmp::Ordering;
use std::fmt;

/// The database's clock: every entry gets its own number, in commit order. At most [`MAX_SEQUENCE_NUMBER`].
pub type SequenceNumber = u64;

/// The largest sequence number; a snapshot at it sees everything. 56 bits, so that a trailer fits in 64.
pub const MAX_SEQUENCE_NUMBER: SequenceNumber = (1 << 56) - 1;

/// Identifies a table for the life of its database. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TableId(pub u32);

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What an entry does to its key. The discriminants are part of the file formats.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Operation {
    /// The key has no row.
    Delete = 0,
    /// The whole row.
    Put = 1,
    /// Some columns of the row; changes nothing where no `Put` lies below.
    Patch = 2,
    /// An operand of the table's merge operator (key-value tables only).
    Merge = 3,
    /// All keys of `[key, value)` have no row.
    RangeDelete = 4,
}

impl Operation {
    /// The operation with this discriminant, or `None` if there is no such operation.
    #[inline]
    pub fn from_u8(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Delete),
            1 => Some(Self::Put),
            2 => Some(Self::Patch),
            3 => Some(Self::Merge),
            4 => Some(Self::RangeDelete),
            _ => None,
        }
    }

    /// The word used in text output and scripts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Put => "put",
            Self::Patch => "patch",
            Self::Merge => "merge",
            Self::RangeDelete => "range-delete",
        }
    }
}

/// A sequence number and an operation in one `u64`: `sequence << 8 | operation`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Trailer(u64);

impl Trailer {
    /// Sorts before every entry of a key: the place where a read at the newest snapshot starts.
    pub const NEWEST: Self = Self(u64::MAX);
    /// Sorts after every entry of a key.
    pub const OLDEST: Self = Self(0);

    /// Packs the two. `sequence` must be at most [`MAX_SEQUENCE_NUMBER`].
    #[inline]
    pub fn new(sequence: SequenceNumber, operation: Operation) -> Self {
        debug_assert!(sequence <= MAX_SEQUENCE_NUMBER);
        Self(sequence << 8 | operation as u64)
    }

    /// The trailer at which a read at `snapshot` starts: every entry visible at `snapshot` sorts at or after it.
    #[inline]
    pub fn seek_at(snapshot: SequenceNumber) -> Self {
        Self(snapshot << 8 | 0xff)
    }

    /// The packed form.
    #[inline]
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// The trailer of a packed form, or `None` if its operation byte is unknown.
    #[inline]
    pub fn from_u64(packed: u64) -> Option<Self> {
        Operation::from_u8(packed as u8).map(|_| Self(packed))
    }

    /// The sequence number.
    #[inline]
    pub fn sequence(self) -> SequenceNumber {
        self.0 >> 8
    }

    /// The operation.
    ///
    /// # Panics
    /// On the two seek positions that carry no operation (`NEWEST`, `seek_at`), which no stored entry has.
    #[inline]
    pub fn operation(self) -> Operation {
        match Operation::from_u8(self.0 as u8) {
            Some(operation) => operation,
            None => unreachable!("a seek position is not an entry"),
        }
    }
}

impl fmt::Debug for Trailer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Operation::from_u8(self.0 as u8) {
            Some(operation) => write!(f, "#{},{}", self.sequence(), operation.name()),
            None => write!(f, "#{},seek", self.sequence()),
        }
    }
}

/// One entry, borrowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryRef<'a> {
    /// The user's key; for a `RangeDelete` the start of the interval.
    pub key: &'a [u8],
    /// Sequence number and operation.
    pub trailer: Trailer,
    /// The row, patch or operand; empty for `Delete`; for a `RangeDelete` the (exclusive) end of the interval.
    pub value: &'a [u8],
}

/// The order of entries: key ascending, then newest first.
#[inline]
pub fn compare_entries(a_key: &[u8], a: Trailer, b_key: &[u8], b: Trailer) -> Ordering {
    a_key.cmp(b_key).then_with(|| b.cmp(&a))
}
