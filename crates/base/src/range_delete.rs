//! Range deletes, fragmented for lookup.
//!
//! Algorithm of [`RangeDeleteSet::new`]:
//! 1. Collect the distinct start and end keys; between two neighbours the set of covering range deletes is constant.
//!    Such an interval, if anything covers it, is a fragment.
//! 2. A range delete covers fragments that lie side by side. Over the fragments stands a segment tree, in which each
//!    range delete is put into the O(log n) nodes that make up its interval. A list for each fragment would have n
//!    entries in each of n fragments where range deletes lie within each other, as those of "everything before" do.
//! 3. Each node has its sequence numbers newest first.
//! 4. A lookup is one binary search over fragment starts, then one in each node from the fragment's leaf up to the
//!    root.

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

/// Range deletes cut into non-overlapping fragments. Immutable. O(n log n) memory.
#[derive(Clone, Default, Debug)]
pub struct RangeDeleteSet {
    /// Start and end, in key order.
    fragments: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where the sequence numbers of each node of the segment tree begin, and where those of the last end. The children
    /// of node i are 2i and 2i + 1, the root is 1, the leaf of fragment i is i + the number of fragments.
    node_starts: Vec<usize>,
    /// By node, newest first.
    sequences: Vec<SequenceNumber>,
}

/// An interval of keys that the same range deletes cover.
#[derive(Clone, Copy, Debug)]
pub struct RangeDeleteFragment<'s> {
    set: &'s RangeDeleteSet,
    at: usize,
}

impl<'s> RangeDeleteFragment<'s> {
    /// Its first key.
    pub fn start(&self) -> &'s [u8] {
        &self.set.fragments[self.at].0
    }

    /// The first key after it.
    pub fn end(&self) -> &'s [u8] {
        &self.set.fragments[self.at].1
    }

    /// The newest of the range deletes at or below `snapshot`. O(log^2 n).
    #[inline]
    pub fn newest(&self, snapshot: SequenceNumber) -> Option<SequenceNumber> {
        let newest = |node: &[SequenceNumber]| node.get(node.partition_point(|&s| s > snapshot)).copied();
        self.nodes().filter_map(newest).max()
    }

    /// The sequence numbers of all range deletes that cover it, newest first, each once. O(n log n).
    pub fn sequences(&self) -> Vec<SequenceNumber> {
        let mut all: Vec<SequenceNumber> = self.nodes().flatten().copied().collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.dedup();
        all
    }

    /// From the leaf to the root.
    #[inline]
    fn nodes(&self) -> impl Iterator<Item = &'s [SequenceNumber]> {
        let RangeDeleteSet { fragments, node_starts, sequences } = self.set;
        let leaf = self.at + fragments.len();
        std::iter::successors(Some(leaf), |node| Some(node / 2).filter(|&parent| parent > 0))
            .map(|node| &sequences[node_starts[node]..node_starts[node + 1]])
    }
}

/// Equal if they delete the same, however they were given.
impl PartialEq for RangeDeleteSet {
    fn eq(&self, other: &Self) -> bool {
        let same = |(a, b): (RangeDeleteFragment<'_>, RangeDeleteFragment<'_>)| a.sequences() == b.sequences();
        self.fragments == other.fragments && self.fragments().zip(other.fragments()).all(same)
    }
}

impl Eq for RangeDeleteSet {}

impl RangeDeleteSet {
    /// Fragments `deletes`, given in any order; those with `start >= end` cover nothing. O(n log n).
    pub fn new<'a>(deletes: impl IntoIterator<Item = &'a RangeDelete>) -> Self {
        let mut deletes: Vec<&RangeDelete> = deletes.into_iter().filter(|d| d.start < d.end).collect();
        if deletes.is_empty() {
            return Self::default();
        }
        let fragments = fragments_of(&deletes);
        deletes.sort_unstable_by_key(|delete| std::cmp::Reverse(delete.sequence));
        let intervals: Vec<(usize, usize)> = deletes
            .iter()
            .map(|delete| {
                let from = fragments.partition_point(|(start, _)| start < &delete.start);
                (from, fragments.partition_point(|(start, _)| start < &delete.end))
            })
            .collect();
        // First how many each node has, then where they go.
        let mut node_starts = vec![0; 2 * fragments.len() + 1];
        let count = |node: usize| node_starts[node + 1] += 1;
        intervals.iter().flat_map(|&interval| nodes_of(interval, fragments.len())).for_each(count);
        for node in 1..node_starts.len() {
            node_starts[node] += node_starts[node - 1];
        }
        let mut sequences = vec![0; node_starts[2 * fragments.len()]];
        let mut next = node_starts.clone();
        for (delete, &interval) in deletes.iter().zip(&intervals) {
            for node in nodes_of(interval, fragments.len()) {
                sequences[next[node]] = delete.sequence;
                next[node] += 1;
            }
        }
        Self { fragments, node_starts, sequences }
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// The newest range delete at or below `snapshot` that covers `key`. O(log^2 n).
    #[inline]
    pub fn covering(&self, key: &[u8], snapshot: SequenceNumber) -> Option<SequenceNumber> {
        if self.fragments.is_empty() {
            return None;
        }
        let after = self.fragments.partition_point(|(start, _)| start.as_slice() <= key);
        let at = after.checked_sub(1)?;
        if self.fragments[at].1.as_slice() <= key {
            return None;
        }
        RangeDeleteFragment { set: self, at }.newest(snapshot)
    }

    /// Where the first fragment that ends after `key` begins: at or before `key` if it covers it. O(log fragments).
    pub fn next_start(&self, key: &[u8]) -> Option<&[u8]> {
        let i = self.fragments.partition_point(|(_, end)| end.as_slice() <= key);
        self.fragments.get(i).map(|(start, _)| start.as_slice())
    }

    /// Whether any fragment overlaps the closed interval `[first, last]`.
    pub fn overlaps(&self, first: &[u8], last: &[u8]) -> bool {
        let i = self.fragments.partition_point(|(_, end)| end.as_slice() <= first);
        self.fragments.get(i).is_some_and(|(start, _)| start.as_slice() <= last)
    }

    /// The fragments that have a key of `[start, end)`, to the last one if there is no `end`, in key order.
    /// O(log fragments) to the first.
    ///
    /// ```
    /// use mycelium_base::{RangeDelete, RangeDeleteSet};
    ///
    /// let delete = |start: &str, end: &str| RangeDelete { start: start.into(), end: end.into(), sequence: 1 };
    /// let set = RangeDeleteSet::new(&[delete("b", "d"), delete("f", "h")]);
    /// let starts = |start: &str, end: &str| -> Vec<&[u8]> {
    ///     set.fragments_within(start.as_bytes(), Some(end.as_bytes())).map(|fragment| fragment.start()).collect()
    /// };
    /// assert_eq!(starts("c", "g"), [b"b", b"f"]);
    /// assert!(starts("d", "f").is_empty());
    /// ```
    pub fn fragments_within(&self, start: &[u8], end: Option<&[u8]>) -> impl Iterator<Item = RangeDeleteFragment<'_>> {
        let from = self.fragments.partition_point(|(_, ends)| ends.as_slice() <= start);
        let to = match end {
            Some(end) if end <= start => from,
            Some(end) => self.fragments.partition_point(|(begins, _)| begins.as_slice() < end),
            None => self.fragments.len(),
        };
        (from..to).map(|at| RangeDeleteFragment { set: self, at })
    }

    /// The fragments, in key order.
    pub fn fragments(&self) -> impl ExactSizeIterator<Item = RangeDeleteFragment<'_>> {
        (0..self.fragments.len()).map(|at| RangeDeleteFragment { set: self, at })
    }
}

/// The intervals between neighbouring borders that are covered.
fn fragments_of(deletes: &[&RangeDelete]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut borders: Vec<(&[u8], i64)> =
        deletes.iter().flat_map(|d| [(d.start.as_slice(), 1), (d.end.as_slice(), -1)]).collect();
    borders.sort_unstable();
    let (mut fragments, mut covering) = (Vec::new(), 0);
    for pair in borders.windows(2) {
        let ((start, change), (end, _)) = (pair[0], pair[1]);
        covering += change;
        if covering > 0 && start < end {
            fragments.push((start.to_vec(), end.to_vec()));
        }
    }
    fragments
}

/// The nodes of the segment tree over `count` leaves that together make up the leaves `from..to`.
fn nodes_of((from, to): (usize, usize), count: usize) -> impl Iterator<Item = usize> {
    let (mut from, mut to) = (from + count, to + count);
    std::iter::from_fn(move || {
        while from < to {
            if from % 2 == 1 {
                from += 1;
                return Some(from - 1);
            }
            if to % 2 == 1 {
                to -= 1;
                return Some(to);
            }
            (from, to) = (from / 2, to / 2);
        }
        None
    })
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

    #[test]
    fn lookups_agree_with_a_straight_search_however_many_overlap() {
        for seed in 0..200_u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut draw = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            let all: Vec<RangeDelete> = (0..draw(24))
                .map(|_| {
                    let (start, end) = (draw(20) as u8, draw(20) as u8);
                    RangeDelete { start: vec![start], end: vec![end], sequence: 1 + draw(30) }
                })
                .collect();
            let set = RangeDeleteSet::new(&all);
            for key in 0..21_u8 {
                let covering = || all.iter().filter(|d| d.start <= vec![key] && vec![key] < d.end).map(|d| d.sequence);
                for snapshot in 0..32 {
                    let straight = covering().filter(|&s| s <= snapshot).max();
                    assert_eq!(set.covering(&[key], snapshot), straight, "seed {seed}, {key} at {snapshot}");
                }
                let mut sequences: Vec<_> = covering().collect();
                sequences.sort_unstable_by(|a, b| b.cmp(a));
                sequences.dedup();
                let fragment = set.fragments().find(|f| f.start() <= &[key][..] && &[key][..] < f.end());
                assert_eq!(fragment.map(|f| f.sequences()).unwrap_or_default(), sequences, "seed {seed}, {key}");
            }
        }
    }

    #[test]
    fn fragments_within_bounds_are_those_that_have_a_key_there() {
        let set = RangeDeleteSet::new(&[delete("b", "f", 5), delete("d", "h", 9), delete("k", "l", 1)]);
        let keys = ["", "a", "b", "c", "d", "f", "g", "h", "i", "k", "kk", "l", "z"].map(str::as_bytes);
        for start in keys {
            for end in keys.map(Some).into_iter().chain([None]) {
                let has_key = |fragment: &RangeDeleteFragment<'_>| {
                    let is_empty = end.is_some_and(|end| end <= start);
                    !is_empty && fragment.end() > start && end.is_none_or(|end| fragment.start() < end)
                };
                let straight: Vec<&[u8]> = set.fragments().filter(has_key).map(|fragment| fragment.start()).collect();
                let found: Vec<&[u8]> = set.fragments_within(start, end).map(|fragment| fragment.start()).collect();
                assert_eq!(found, straight, "{start:?} to {end:?}");
            }
        }
    }

    /// They took the square of their number: 20,000 of them 1.6 GB.
    #[test]
    fn range_deletes_within_each_other_take_little_more_than_apart() {
        const COUNT: u64 = 20_000;
        let all: Vec<RangeDelete> = (1..=COUNT)
            .map(|n| RangeDelete { start: Vec::new(), end: n.to_be_bytes().to_vec(), sequence: n })
            .collect();
        let set = RangeDeleteSet::new(&all);
        assert!(set.sequences.len() <= 20 * all.len(), "{}", set.sequences.len());
        for key in [0, 1, COUNT / 3, COUNT - 1] {
            let (key_bytes, expected) = (key.to_be_bytes(), key + 1);
            assert_eq!(set.covering(&key_bytes, u64::MAX), Some(COUNT));
            assert_eq!(set.covering(&key_bytes, expected), Some(expected));
            assert_eq!(set.covering(&key_bytes, key), None);
        }
    }
}
