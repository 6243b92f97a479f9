//! The segments of the compaction buffer that stand for a part of a two-phase level, open.
//!
//! A lookup asks the segments whose ranges hold its key, newest first (buffer.rs). Which these are is worked out for
//! all keys when the tree is made:
//!
//! 1. The ends of all ranges cut the keys into *intervals*. The segments that stand in one are its *stack*, newest
//!    first.
//! 2. A lookup searches the fences of the intervals once, however many segments there are. What it asks of a segment
//!    before it looks at the file lies beside that of the next older one.
//! 3. How many segments on top of a stack have nothing for a key is noted (verdicts.rs), and its next lookup begins
//!    with the one below. A part whose segments are the same in the next tree keeps its notes.
//!
//! Takes four bytes for each segment of each stack: at most twice the segments, times the deepest stack.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use mycelium_base::Result;
use mycelium_manifest::{FileMeta, Segment, Segments};
use mycelium_sst::{FenceLists, FileFilters};

use super::OpenFile;
use super::verdicts::Verdicts;

/// A file's segments are in use if this part of its bytes is cached of them.
const USED_SHARE: u64 = 8;

/// So few segments are asked sooner than a note is looked up.
const FEW: usize = 3;

/// A segment, open.
#[derive(Debug)]
pub(crate) struct OpenSegment {
    pub(crate) segment: Segment,
    pub(crate) file: Arc<OpenFile>,
    /// Which of the tree's formats it has.
    pub(crate) format: usize,
}

/// An end of the range of the segment with this number.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Lower(u32),
    Upper(u32),
}

/// Keys between two neighbouring ends in which some segments stand.
#[derive(Debug)]
struct Interval {
    lower: Cut,
    upper: Cut,
    /// Where its segments are among those of all intervals.
    stack: Range<usize>,
}

/// The segments of one part, open.
#[derive(Debug)]
pub(crate) struct OpenSegments {
    segments: Segments,
    /// Newest first, as in `segments`.
    opened: Vec<OpenSegment>,
    /// Of each of these.
    filters: Vec<FileFilters>,
    /// Ascending.
    intervals: Vec<Interval>,
    /// One list, of all intervals.
    fences: FenceLists<()>,
    /// The numbers of the segments of all stacks.
    stacks: Vec<u32>,
    verdicts: Verdicts,
}

impl OpenSegments {
    pub(crate) fn new(
        segments: &Segments,
        mut format_of: impl FnMut(&FileMeta) -> Result<usize>,
        mut open: impl FnMut(&Arc<FileMeta>) -> Result<Arc<OpenFile>>,
    ) -> Result<Self> {
        let mut opened = Vec::with_capacity(segments.files.len());
        for segment in &segments.files {
            let (file, format) = (open(&segment.file)?, format_of(&segment.file)?);
            opened.push(OpenSegment { segment: segment.clone(), file, format });
        }
        let filters = opened.iter().map(|open| open.file.sst.filters()).collect();
        let (intervals, stacks) = intervals_of(&opened);
        let key_at = |cut: Cut| cut.place(&opened).0;
        let mut fences = FenceLists::default();
        fences.push(intervals.iter().map(|interval| (key_at(interval.lower), key_at(interval.upper), ())));
        let (segments, verdicts) = (segments.clone(), Verdicts::default());
        Ok(Self { segments, opened, filters, intervals, fences, stacks, verdicts })
    }

    /// Whether lookups find the same in both, and in the same way.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let mut pairs = self.opened.iter().zip(&other.opened);
        self.segments == other.segments
            && pairs.all(|(own, other)| Arc::ptr_eq(&own.file, &other.file) && own.format == other.format)
    }

    /// Whether they hold all that the part holds of `key`.
    #[inline]
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        self.segments.covers(key)
    }

    /// The segments whose ranges hold `key`. O(log segments).
    #[inline]
    pub(crate) fn stack(&self, key: &[u8]) -> Stack<'_> {
        let is_behind = |cut: Cut| cut.is_before(&self.opened, key);
        let found = self.fences.lists().next().and_then(|fences| {
            fences.find(key, |at| is_behind(self.intervals[at].upper), |at| !is_behind(self.intervals[at].lower))
        });
        let (interval, numbers) = match found {
            Some((interval, ())) => (interval, &self.stacks[self.intervals[interval].stack.clone()]),
            None => (0, &[][..]),
        };
        Stack { of: self, interval, numbers }
    }

    /// All segments.
    pub(crate) fn segments(&self) -> &[OpenSegment] {
        &self.opened
    }

    /// Their files; one that stands for several ranges comes as often.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Arc<OpenFile>> {
        self.opened.iter().map(|open| &open.file)
    }

    /// Whether reads use what stands for a file of the part: "what goes down" of buffer.rs.
    pub(crate) fn is_used_for(&self, meta: &FileMeta) -> bool {
        let beside = self.opened.iter().filter(|open| open.segment.overlaps_range(&meta.range()));
        let cached =
            |open: &OpenSegment| open.file.sst.cached_bytes_within(&meta.smallest, |key| meta.ends_before(key));
        USED_SHARE * beside.map(cached).sum::<u64>() >= meta.size
    }

    /// The segments of the deepest stack: what a lookup may ask.
    pub(crate) fn depth(&self) -> usize {
        self.intervals.iter().map(|interval| interval.stack.len()).max().unwrap_or(0)
    }
}

impl Cut {
    /// Where it is: at a key, or right behind one.
    fn place(self, opened: &[OpenSegment]) -> (&[u8], bool) {
        match self {
            Self::Lower(at) => (opened[at as usize].segment.smallest(), false),
            Self::Upper(at) => {
                let segment = &opened[at as usize].segment;
                let largest = segment.largest();
                (largest, !segment.ends_before(largest))
            }
        }
    }

    /// Whether `key` lies behind it.
    fn is_before(self, opened: &[OpenSegment], key: &[u8]) -> bool {
        match self {
            Self::Lower(at) => opened[at as usize].segment.smallest() <= key,
            Self::Upper(at) => opened[at as usize].segment.ends_before(key),
        }
    }
}

/// The first step of the module: the intervals, and their stacks one behind the other.
fn intervals_of(opened: &[OpenSegment]) -> (Vec<Interval>, Vec<u32>) {
    let numbers = 0..opened.len() as u32;
    let mut cuts: Vec<Cut> = numbers.flat_map(|number| [Cut::Lower(number), Cut::Upper(number)]).collect();
    cuts.sort_by_key(|cut| cut.place(opened));
    let (mut standing, mut intervals, mut stacks) = (BTreeSet::new(), Vec::new(), Vec::new());
    for pair in cuts.windows(2) {
        let (lower, upper) = (pair[0], pair[1]);
        match lower {
            Cut::Lower(number) => standing.insert(number),
            Cut::Upper(number) => standing.remove(&number),
        };
        if !standing.is_empty() && lower.place(opened) != upper.place(opened) {
            let start = stacks.len();
            stacks.extend(standing.iter().copied());
            intervals.push(Interval { lower, upper, stack: start..stacks.len() });
        }
    }
    (intervals, stacks)
}

/// The segments whose ranges hold a key, newest first.
pub(crate) struct Stack<'s> {
    of: &'s OpenSegments,
    interval: usize,
    numbers: &'s [u32],
}

impl<'s> Stack<'s> {
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The segment in this place from the top.
    #[inline]
    pub(crate) fn segment(&self, at: usize) -> &'s OpenSegment {
        &self.of.opened[self.numbers[at] as usize]
    }

    /// Its filters, without a look at it.
    #[inline]
    pub(crate) fn filters(&self, at: usize) -> &'s FileFilters {
        &self.of.filters[self.numbers[at] as usize]
    }

    /// So many segments on top are known to have nothing for a key with this hash: neither does a filter let it pass,
    /// nor are there range deletes.
    #[inline]
    pub(crate) fn known_to_lack(&self, hash: u64) -> usize {
        self.of.verdicts.get(hash, self.interval).min(self.len())
    }

    /// So many segments on top have nothing for a key with this hash.
    pub(crate) fn note_lacking(&self, hash: u64, count: usize) {
        if count > FEW {
            self.of.verdicts.note(hash, self.interval, count);
        }
    }
}
