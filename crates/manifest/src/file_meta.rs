//! What the manifest knows about one SST, and the key ranges ("fences") that decide what overlaps what.
//!
//! A file's largest fence may be *exclusive*: where the end of a range delete is the last key concerned, that end key
//! itself is not. `[a, k)` and `[k, z]` do not overlap. Every comparison of fences goes through [`KeyRange`]'s or
//! [`FileMeta`]'s methods, which honour this.

use std::cmp::Ordering;
use std::sync::Arc;

use mycelium_base::{ColumnSet, FileNumber, Group, SequenceNumber};

/// One SST of a table. Immutable, shared by the versions that hold it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileMeta {
    /// The number in the file's name, unique in the database.
    pub number: FileNumber,
    /// Length in bytes.
    pub size: u64,
    /// XXH3 of the whole file.
    pub checksum: u64,
    /// The smallest key of any entry, or the smallest start of a range delete.
    pub smallest: Vec<u8>,
    /// The largest key of any entry, or the largest end of a range delete.
    pub largest: Vec<u8>,
    /// Whether `largest` itself is not in the file (it is the end of a range delete).
    pub largest_exclusive: bool,
    /// The oldest entry's sequence number, range deletes included.
    pub min_sequence: SequenceNumber,
    /// The newest entry's sequence number, range deletes included.
    pub max_sequence: SequenceNumber,
    /// Entries, range deletes not included.
    pub entry_count: u64,
    /// Entries that are deletes.
    pub delete_count: u64,
    /// Range deletes.
    pub range_delete_count: u64,
    /// The sequence number that all entries take in place of the stored one (bulk-ingested files).
    pub sequence_override: Option<SequenceNumber>,
    /// The column group that the file holds; `None` is whole rows in the table's own format. The files of a run agree.
    pub group: Option<Arc<Group>>,
    /// The ordinal of the edit that added the file, for oldest-first picking. Leave it 0 in a new file: the manifest
    /// fills it in. A file that only moves to another level keeps it.
    pub created_at_edit: u64,
}

impl FileMeta {
    /// The file's key range.
    pub fn range(&self) -> KeyRange {
        KeyRange {
            smallest: self.smallest.clone(),
            largest: self.largest.clone(),
            largest_exclusive: self.largest_exclusive,
        }
    }

    /// Whether the file holds some of `columns`, or whole rows, or keys alone.
    pub fn overlaps_columns(&self, columns: &ColumnSet) -> bool {
        self.group.as_ref().is_none_or(|group| group.columns.shares_entries(columns))
    }

    /// Whether the two files hold a common column, so that entries of one may be versions of entries of the other.
    pub fn shares_columns(&self, other: &FileMeta) -> bool {
        self.group.as_ref().is_none_or(|group| other.overlaps_columns(&group.columns))
    }

    /// Whether the file's range holds `key`.
    #[inline]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.smallest.as_slice() <= key && !self.ends_before(key)
    }

    /// Whether every key of the file is below `key`.
    #[inline]
    pub fn ends_before(&self, key: &[u8]) -> bool {
        ends_before(&self.largest, self.largest_exclusive, key)
    }

    /// Whether every key of the file is below every key of `other`.
    #[inline]
    pub fn is_before(&self, other: &FileMeta) -> bool {
        self.ends_before(&other.smallest)
    }

    /// Whether the two files' ranges share a key.
    #[inline]
    pub fn overlaps(&self, other: &FileMeta) -> bool {
        !self.is_before(other) && !other.is_before(self)
    }

    /// Whether the file's range shares a key with `range`.
    #[inline]
    pub fn overlaps_range(&self, range: &KeyRange) -> bool {
        !self.ends_before(&range.smallest) && !range.ends_before(&self.smallest)
    }
}

/// An interval of keys, `[smallest, largest]` or `[smallest, largest)`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRange {
    /// The first key.
    pub smallest: Vec<u8>,
    /// The last key, or the key after the last one.
    pub largest: Vec<u8>,
    /// Whether `largest` is not part of the range.
    pub largest_exclusive: bool,
}

impl KeyRange {
    /// `[smallest, largest]`.
    pub fn inclusive(smallest: impl Into<Vec<u8>>, largest: impl Into<Vec<u8>>) -> Self {
        Self { smallest: smallest.into(), largest: largest.into(), largest_exclusive: false }
    }

    /// `[smallest, end)`.
    pub fn exclusive(smallest: impl Into<Vec<u8>>, end: impl Into<Vec<u8>>) -> Self {
        Self { smallest: smallest.into(), largest: end.into(), largest_exclusive: true }
    }

    /// The smallest range that holds all files, or `None` if there are none. O(files).
    pub fn hull<'a>(files: impl IntoIterator<Item = &'a FileMeta>) -> Option<Self> {
        let mut files = files.into_iter();
        let mut hull = files.next()?.range();
        for file in files {
            hull.include(file);
        }
        Some(hull)
    }

    /// Grows the range to hold `file`; returns whether it changed.
    pub fn include(&mut self, file: &FileMeta) -> bool {
        self.include_bounds(&file.smallest, (&file.largest, file.largest_exclusive))
    }

    /// Grows the range to hold `other` and what lies between; returns whether it changed.
    pub fn include_range(&mut self, other: &KeyRange) -> bool {
        self.include_bounds(&other.smallest, (&other.largest, other.largest_exclusive))
    }

    fn include_bounds(&mut self, smallest: &Vec<u8>, (largest, largest_exclusive): (&Vec<u8>, bool)) -> bool {
        let mut grew = false;
        if *smallest < self.smallest {
            self.smallest.clone_from(smallest);
            grew = true;
        }
        // At equal largest keys the inclusive one reaches further.
        if (largest, !largest_exclusive) > (&self.largest, !self.largest_exclusive) {
            self.largest.clone_from(largest);
            self.largest_exclusive = largest_exclusive;
            grew = true;
        }
        grew
    }

    /// Whether every key of the other range is in the range.
    pub(crate) fn holds_range(&self, other: &KeyRange) -> bool {
        self.smallest <= other.smallest
            && (&other.largest, !other.largest_exclusive) <= (&self.largest, !self.largest_exclusive)
    }

    /// What is left of the range without `other`, in key order.
    pub fn without(&self, other: &KeyRange) -> Vec<Self> {
        if !self.overlaps(other) {
            return vec![self.clone()];
        }
        let mut left = Vec::new();
        if self.smallest < other.smallest {
            left.push(Self::exclusive(self.smallest.clone(), other.smallest.clone()));
        }
        let mut above = Self { smallest: other.largest.clone(), ..self.clone() };
        if !other.largest_exclusive {
            // The next key there can be.
            above.smallest.push(0);
        }
        if !above.ends_before(&above.smallest) {
            left.push(above);
        }
        left
    }

    /// The keys that are in both ranges, if there may be any.
    pub fn common(&self, other: &KeyRange) -> Option<Self> {
        if !self.overlaps(other) {
            return None;
        }
        let end = |range: &Self| (range.largest.clone(), !range.largest_exclusive);
        let (largest, is_inclusive) = end(self).min(end(other));
        let smallest = self.smallest.clone().max(other.smallest.clone());
        Some(Self { smallest, largest, largest_exclusive: !is_inclusive })
    }

    /// Whether every key of the range is below `key`.
    #[inline]
    pub fn ends_before(&self, key: &[u8]) -> bool {
        ends_before(&self.largest, self.largest_exclusive, key)
    }

    /// Whether the range holds `key`.
    #[inline]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.smallest.as_slice() <= key && !self.ends_before(key)
    }

    /// Whether the two ranges share a key.
    pub fn overlaps(&self, other: &KeyRange) -> bool {
        !self.ends_before(&other.smallest) && !other.ends_before(&self.smallest)
    }
}

/// Whether a range that ends with `largest`, or before it, lies below `key`.
#[inline]
fn ends_before(largest: &[u8], largest_exclusive: bool, key: &[u8]) -> bool {
    match largest.cmp(key) {
        Ordering::Less => true,
        Ordering::Equal => largest_exclusive,
        Ordering::Greater => false,
    }
}
