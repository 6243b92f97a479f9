//! Merge rounds of two-phase levels, and the compaction buffer beside them (dLSM §IV).
//!
//! A column group of a two-phase level has up to two runs: the *insertion part*, into which compactions from above are
//! merged, and the *deletion part*, whose files leave for the next level in key order. A round lasts until the deletion
//! part is empty and the level full; then the insertion part becomes the deletion part (§IV-A). The deletion part is
//! the older run, and the marker of a round is where it begins: what lies before it has left.
//!
//! Beside each part lie its *segments* (§IV-B): the files that compactions merged into the part, as they were, newest
//! first. What they hold of a key is what the part holds of it, uncompacted, except within the intervals that are
//! *uncovered*. So a point read may take a part or its segments, part by part and key by key, and any segment may be
//! dropped if its interval is uncovered in the same edit. A segment may be in the tree as well: one that moved without
//! being rewritten. And it may be a file within a range: a file whose rows leave a level range by range is a segment of
//! both levels meanwhile, of each within what the level has of it.

use std::sync::Arc;

use mycelium_base::{FileNumber, Group};

use crate::file_meta::{FileMeta, KeyRange};

/// A file of the compaction buffer, or what it holds within a range. `F` is a file, or its number in a version edit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment<F = Arc<FileMeta>> {
    /// The file.
    pub file: F,
    /// Where it stands for its part; wherever it has keys if `None`.
    pub within: Option<KeyRange>,
}

impl<F> From<F> for Segment<F> {
    /// The whole file.
    fn from(file: F) -> Self {
        Self { file, within: None }
    }
}

impl Segment {
    /// Where it stands for its part.
    pub fn range(&self) -> KeyRange {
        self.within.clone().unwrap_or_else(|| self.file.range())
    }

    /// The first key of its range.
    pub fn smallest(&self) -> &[u8] {
        self.within.as_ref().map_or(&self.file.smallest, |within| &within.smallest)
    }

    /// The last key of its range, or the one behind it.
    pub fn largest(&self) -> &[u8] {
        self.within.as_ref().map_or(&self.file.largest, |within| &within.largest)
    }

    /// Whether every key of its range is below `key`.
    #[inline]
    pub fn ends_before(&self, key: &[u8]) -> bool {
        match &self.within {
            Some(within) => within.ends_before(key),
            None => self.file.ends_before(key),
        }
    }

    /// Whether every key of its range is below every key of `other`'s.
    pub fn is_before(&self, other: &Segment) -> bool {
        self.ends_before(other.smallest())
    }

    /// Whether the two ranges share a key.
    pub fn overlaps(&self, other: &Segment) -> bool {
        !self.is_before(other) && !other.is_before(self)
    }

    /// Whether its range shares a key with `range`.
    pub fn overlaps_range(&self, range: &KeyRange) -> bool {
        !self.ends_before(&range.smallest) && !range.ends_before(self.smallest())
    }

    /// What of it lies within `range`, if anything does.
    pub fn narrowed(&self, range: &KeyRange) -> Option<Self> {
        let within = self.range().common(range)?;
        let is_whole = within == self.file.range();
        Some(Self { file: self.file.clone(), within: (!is_whole).then_some(within) })
    }

    /// The same, and what follows it without a gap; `None` if there is one, or it is another file's.
    pub fn joined(&self, other: &Segment) -> Option<Self> {
        let (mut range, next) = (self.range(), other.range());
        let meets = |a: &KeyRange, b: &KeyRange| a.largest_exclusive && a.largest == b.smallest;
        if self.file.number != other.file.number || !(meets(&range, &next) || meets(&next, &range)) {
            return None;
        }
        range.include_range(&next);
        Self::from(self.file.clone()).narrowed(&range)
    }
}

/// The files of the compaction buffer for one part of a level, and where they do not stand for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segments<F = Arc<FileMeta>> {
    /// Newest first: of two files that hold a key the newer versions are in the earlier one.
    pub files: Vec<Segment<F>>,
    /// In key order, without common keys.
    pub uncovered: Vec<KeyRange>,
}

impl<F> Default for Segments<F> {
    /// Of a part that holds nothing: all of it is covered.
    fn default() -> Self {
        Self { files: Vec::new(), uncovered: Vec::new() }
    }
}

impl<F> Segments<F> {
    /// Whether the segments say all that the part holds of `key`. O(log intervals).
    #[inline]
    pub fn covers(&self, key: &[u8]) -> bool {
        let at = self.uncovered.partition_point(|range| range.ends_before(key));
        self.uncovered.get(at).is_none_or(|range| !range.contains(key))
    }

    /// The segments stand for nothing within `range` any more. O(intervals).
    pub fn uncover(&mut self, mut range: KeyRange) {
        let first = self.uncovered.partition_point(|known| known.ends_before(&range.smallest));
        let common = self.uncovered[first..].iter().take_while(|known| known.overlaps(&range)).count();
        for known in self.uncovered.drain(first..first + common) {
            range.include_range(&known);
        }
        self.uncovered.insert(first, range);
    }
}

impl Segments {
    /// Takes a file out and uncovers where it stood for the part; whether it was there. Sheds what stands for nothing
    /// then. O(files log intervals).
    pub fn drop_file(&mut self, number: FileNumber) -> bool {
        let (gone, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.files).into_iter().partition(|segment| segment.file.number == number);
        self.files = left;
        gone.iter().for_each(|segment| self.uncover(segment.range()));
        self.shed();
        !gone.is_empty()
    }

    /// Takes everything within `range` out: the segments say that the part has nothing there, until others are put in.
    /// O(files + intervals).
    pub fn begin_anew(&mut self, range: &KeyRange) {
        self.uncovered = self.uncovered.iter().flat_map(|known| known.without(range)).collect();
        let rest = |segment: &Segment| -> Vec<Segment> {
            match segment.overlaps_range(range) {
                true => segment.range().without(range).iter().filter_map(|rest| segment.narrowed(rest)).collect(),
                false => vec![segment.clone()],
            }
        };
        self.files = self.files.iter().flat_map(rest).collect();
    }

    /// Takes out what lies wholly within uncovered intervals: it stands for nothing. O(files log intervals).
    pub fn shed(&mut self) {
        let uncovered = &self.uncovered;
        self.files.retain(|segment| {
            let at = uncovered.partition_point(|range| range.ends_before(segment.smallest()));
            !uncovered.get(at).is_some_and(|range| range.holds_range(&segment.range()))
        });
    }
}

/// The round of one column group of a two-phase level. `F` is a file, or its number in a version edit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Round<F = Arc<FileMeta>> {
    /// The level.
    pub level: usize,
    /// The column group; `None` is whole rows.
    pub group: Option<Arc<Group>>,
    /// How many rounds have ended since the group last had no files here.
    pub number: u64,
    /// Whether the group's oldest run is a deletion part; the other one, or else the only one, is the insertion part.
    pub is_draining: bool,
    /// Segments of the insertion part (dLSM: the appending part); `None` if there is nothing that they cover.
    pub appending: Option<Segments<F>>,
    /// Segments of the deletion part; `None` likewise.
    pub deletion: Option<Segments<F>>,
}

impl<F> Round<F> {
    /// Whether it is that of this column group of this level.
    pub fn is_of(&self, level: usize, group: Option<&Arc<Group>>) -> bool {
        self.level == level && self.group.as_ref() == group
    }

    /// Whether it says nothing that is not so without it.
    pub fn is_initial(&self) -> bool {
        self.number == 0 && !self.is_draining && self.appending.is_none() && self.deletion.is_none()
    }

    /// The segments of both parts, the newer first.
    pub fn parts(&self) -> impl Iterator<Item = &Segments<F>> {
        self.appending.iter().chain(&self.deletion)
    }

    /// The same with other names for its files; stops at the first that has none.
    pub(crate) fn try_map<G, E>(&self, name: &mut impl FnMut(&F) -> Result<G, E>) -> Result<Round<G>, E> {
        let mut map = |segments: &Option<Segments<F>>| {
            segments.as_ref().map_or(Ok(None), |segments| {
                let mut named =
                    |segment: &Segment<F>| Ok(Segment { file: name(&segment.file)?, within: segment.within.clone() });
                let files = segments.files.iter().map(&mut named).collect::<Result<_, E>>()?;
                Ok(Some(Segments { files, uncovered: segments.uncovered.clone() }))
            })
        };
        let (appending, deletion) = (map(&self.appending)?, map(&self.deletion)?);
        let Self { level, number, is_draining, .. } = *self;
        Ok(Round { level, group: self.group.clone(), number, is_draining, appending, deletion })
    }
}

impl Round {
    /// The files of the compaction buffer, those in the tree too, newer parts first; one comes as often as it is a
    /// segment.
    pub fn files(&self) -> impl Iterator<Item = &Arc<FileMeta>> {
        self.parts().flat_map(|segments| &segments.files).map(|segment| &segment.file)
    }

    /// The same as it stands in a version edit.
    pub fn to_record(&self) -> Round<FileNumber> {
        let named: Result<_, std::convert::Infallible> = self.try_map(&mut |file: &Arc<FileMeta>| Ok(file.number));
        match named {
            Ok(record) => record,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::parse_range;

    fn segments(files: &[(u64, &str)]) -> Segments {
        let file = |&(number, range): &(u64, &str)| {
            let range = parse_range(range).unwrap();
            let (smallest, largest, largest_exclusive) = (range.smallest, range.largest, range.largest_exclusive);
            Segment::from(Arc::new(FileMeta { number, smallest, largest, largest_exclusive, ..FileMeta::default() }))
        };
        Segments { files: files.iter().map(file).collect(), uncovered: Vec::new() }
    }

    fn uncovered(segments: &Segments) -> String {
        segments.uncovered.iter().map(|range| range.to_string()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn uncovered_intervals_are_kept_apart_and_in_order() {
        let mut segments = segments(&[]);
        for range in ["[m-p]", "[a-c)", "[t-t]", "[c-d]"] {
            segments.uncover(parse_range(range).unwrap());
        }
        assert_eq!(uncovered(&segments), "[a-c) [c-d] [m-p] [t-t]");
        segments.uncover(parse_range("[b-n)").unwrap());
        assert_eq!(uncovered(&segments), "[a-p] [t-t]");
        let keys = ["`", "a", "f", "p", "pa", "s", "t", "ta"];
        assert_eq!(
            keys.map(|key| segments.covers(key.as_bytes())),
            [true, false, false, false, true, true, false, true]
        );
    }

    #[test]
    fn a_dropped_file_takes_along_what_stands_for_nothing_without_it() {
        let mut segments = segments(&[(1, "[a-f)"), (2, "[c-f]"), (3, "[b-e]"), (4, "[a-f)"), (5, "[x-z]")]);
        assert!(segments.drop_file(1) && !segments.drop_file(1));
        let left: Vec<u64> = segments.files.iter().map(|segment| segment.file.number).collect();
        // File 2 still stands for the key f, which the range that was dropped ends before.
        assert_eq!((left, uncovered(&segments)), (vec![2, 5], "[a-f)".to_owned()));
    }

    #[test]
    fn a_file_within_ranges_is_joined_where_they_meet() {
        let whole = segments(&[(1, "[c-p]")]).files.remove(0);
        let within = |range: &str| whole.narrowed(&parse_range(range).unwrap());
        let text =
            |segment: Option<Segment>| segment.map(|segment| (segment.range().to_string(), segment.within.is_some()));
        let (left, right) = (within("[a-f)").unwrap(), within("[f-z]").unwrap());
        assert_eq!(text(Some(left.clone())), Some(("[c-f)".to_owned(), true)));
        assert_eq!(text(within("[a-z]")), Some(("[c-p]".to_owned(), false)));
        assert_eq!(text(within("[q-z]")), None);
        assert_eq!(text(left.joined(&right)), Some(("[c-p]".to_owned(), false)));
        assert_eq!(text(right.joined(&within("[d-f)").unwrap())), Some(("[d-p]".to_owned(), true)));
        assert_eq!(text(left.joined(&within("[g-h]").unwrap())), None);
        assert!(!left.overlaps(&right) && left.is_before(&right) && left.overlaps(&whole));
    }

    #[test]
    fn a_file_that_stands_in_two_places_is_dropped_from_both() {
        let mut segments = segments(&[(1, "[a-z]"), (2, "[b-c]")]);
        let whole = segments.files.remove(0);
        segments.files.extend(["[a-d)", "[m-p)"].map(|range| whole.narrowed(&parse_range(range).unwrap()).unwrap()));
        assert!(segments.drop_file(1) && segments.files.is_empty());
        assert_eq!(uncovered(&segments), "[a-d) [m-p)");
    }

    #[test]
    fn a_range_begins_anew() {
        let mut segments = segments(&[(1, "[a-p]"), (2, "[c-d]"), (3, "[m-z]")]);
        segments.uncover(parse_range("[b-g]").unwrap());
        segments.begin_anew(&parse_range("[c-k]").unwrap());
        assert_eq!(uncovered(&segments), "[b-c)");
        let left: Vec<_> = segments.files.iter().map(|left| format!("{}{}", left.file.number, left.range())).collect();
        assert_eq!(left, ["1[a-c)", "1[k\\x00-p]", "3[m-z]"]);
        segments.begin_anew(&parse_range("[a-n)").unwrap());
        let left: Vec<_> = segments.files.iter().map(|left| format!("{}{}", left.file.number, left.range())).collect();
        assert_eq!((left, uncovered(&segments)), (vec!["1[n-p]".to_owned(), "3[n-z]".to_owned()], String::new()));
    }
}
