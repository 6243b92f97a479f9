//! Range deletes, fragmented for lookup.
//!
//! Algorithm of [`RangeDeleteSet::new`]:
//! 1. Collect the distinct start and end keys; between two neighbours the set of covering range deletes is constant.
//! 2. For every such fragment keep the sequence numbers of the covering range deletes, newest first.
//! 3. A lookup is one binary search over fragment starts, then the first sequence number at or below the snapshot.

use crate::SequenceNumber;

/// Deletes every key of `[start, end)` that is older than `sequence`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RangeDelete {
    /// The first key deleted.
    pub start: Vec<u8>,
    /// The first key not deleted any more.
    pub end: Vec<u8>,
    /// The range delete's own sequence number.
    pub sequence: SequenceNumber,
}

/// Range deletes cut into non-overlapping fragments. Immutable.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct RangeDeleteSet {
    fragments: Vec<Fragment>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Fragment {
    start: Vec<u8>,
    end: Vec<u8>,
    /// Newest first, no duplicates, never empty.
    sequences: Vec<SequenceNumber>,
}

impl RangeDeleteSet {
    /// Fragments `deletes`, given in any order; those with `start >= end` cover nothing.
    /// O(n log n + fragments x overlap).
    pub fn new<'a>(deletes: impl IntoIterator<Item = &'a RangeDelete>) -> Self {
        let mut deletes: Vec<&RangeDelete> = deletes.into_iter().filter(|d| d.start < d.end).collect();
        if deletes.is_empty() {
            return Self::default();
        }
        deletes.sort_unstable();
        let mut borders: Vec<&[u8]> = deletes.iter().flat_map(|d| [d.start.as_slice(), d.end.as_slice()]).collect();
        borders.sort_unstable();
        borders.dedup();
        let mut fragments = Vec::new();
        let mut open: Vec<&RangeDelete> = Vec::new();
        let mut upcoming = deletes.into_iter().peekable();
        for pair in borders.windows(2) {
            let (start, end) = (pair[0], pair[1]);
            open.retain(|d| d.end.as_slice() > start);
            while let Some(delete) = upcoming.next_if(|d| d.start.as_slice() <= start) {
                open.push(delete);
            }
            if open.is_empty() {
                continue;
            }
            let mut sequences: Vec<SequenceNumber> = open.iter().map(|d| d.sequence).collect();
            sequences.sort_unstable_by(|a, b| b.cmp(a));
            sequences.dedup();
            fragments.push(Fragment { start: start.to_vec(), end: end.to_vec(), sequences });
        }
        Self { fragments }
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// The newest range delete at or below `snapshot` that covers `key`. O(log fragments + versions).
    #[inline]
    pub fn covering(&self, key: &[u8], snapshot: SequenceNumber) -> Option<SequenceNumber> {
        if self.fragments.is_empty() {
            return None;
        }
        let after = self.fragments.partition_point(|f| f.start.as_slice() <= key);
        let fragment = self.fragments.get(after.checked_sub(1)?)?;
        if fragment.end.as_slice() <= key {
            return None;
        }
        fragment.sequences.iter().copied().find(|&s| s <= snapshot)
    }

    /// Where the first fragment that ends after `key` begins: at or before `key` if it covers it. O(log fragments).
    pub fn next_start(&self, key: &[u8]) -> Option<&[u8]> {
        let i = self.fragments.partition_point(|f| f.end.as_slice() <= key);
        self.fragments.get(i).map(|f| f.start.as_slice())
    }

    /// Whether any fragment overlaps the closed interval `[first, last]`.
    pub fn overlaps(&self, first: &[u8], last: &[u8]) -> bool {
        let i = self.fragments.partition_point(|f| f.end.as_slice() <= first);
        self.fragments.get(i).is_some_and(|f| f.start.as_slice() <= last)
    }

    /// The fragments as (start, end, sequence numbers newest first), in key order.
    pub fn fragments(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8], &[SequenceNumber])> {
        self.fragments.iter().map(|f| (f.start.as_slice(), f.end.as_slice(), f.sequences.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delete(start: &str, end: &str, sequence: u64) -> RangeDelete {
        RangeDelete { start: start.into(), end: end.into(), sequence }
    }

    #[test]
    fn covering_agrees_with_a_straight_search() {
        let all = [
            delete("b", "f", 5),
            delete("d", "h", 9),
            delete("b", "f", 5),
            delete("a", "c", 2),
            delete("x", "x", 7),
            delete("h", "i", 1),
        ];
        let set = RangeDeleteSet::new(&all);
        for key in ["", "a", "b", "bb", "c", "d", "e", "f", "g", "h", "hh", "i", "x", "z"] {
            for snapshot in 0..12 {
                let straight = all
                    .iter()
                    .filter(|d| d.start.as_slice() <= key.as_bytes() && key.as_bytes() < d.end.as_slice())
                    .map(|d| d.sequence)
                    .filter(|&s| s <= snapshot)
                    .max();
                assert_eq!(set.covering(key.as_bytes(), snapshot), straight, "{key} at {snapshot}");
            }
        }
        assert!(!set.overlaps(b"i", b"i") && set.overlaps(b"hz", b"z") && !set.overlaps(b"j", b"z"));
    }
}
