//! Where a compaction cuts its output into files.
//!
//! [`FixedPartitioner`] cuts by size alone. [`AlignedPartitioner`] is Algorithm 1 of Kim et al., "Optimizing LSM-trees
//! for aligned compaction and snapshot filters", §IV: it cuts at the borders of the files one level further down (the
//! grandparents), so that the next compaction of an output does not drag in grandparents that overlap it only at the
//! edges. For every key that follows an entry, with the size of the file being written:
//!
//! 1. At `VARIANCE` times the target size the file is closed wherever it stands.
//! 2. Where the key has passed the end of a grandparent, the file is closed if it has the target size divided by
//!    `VARIANCE`; the next grandparent is then looked at.
//! 3. Between two grandparents, and after the last, the file is closed at the target size.
//! 4. Within a grandparent it goes on.
//!
//! Where the output level has several column groups, its *cut keys* ([`mycelium_manifest::Version::cut_keys`]) are the
//! borders of the files of all of them, and come before those of the grandparents (decision 0039):
//!
//! 5. Where the key has passed a cut key, the file is closed if it has the target size divided by `VARIANCE`.
//! 6. While cut keys lie ahead, another key would be a new one: a file is closed at the end of a grandparent only if it
//!    has the target size, and between grandparents only by rule 1.
//!
//! A file that holds as much in memory as it may ends whatever its size ([`Partitioner::was_cut`]); but for these both
//! keep every file but the last within `[target / 2, 2 target]` (give or take one entry at the upper end where an
//! entry is larger than all before it in its job).

use std::sync::Arc;

use mycelium_manifest::FileMeta;

/// Decides where output files end. Asked only where the key changes, so that all versions of a key share a file.
pub trait Partitioner {
    /// Whether the file being written, which is not empty and now has `current_size` bytes, should end before
    /// `next_key`. Keys must ascend; after `true` the file is taken to be a new one. Amortised O(1).
    fn should_cut(&mut self, next_key: &[u8], current_size: u64) -> bool;

    /// Said, in place of asking, where the file was ended before `next_key` because it held as much as it may.
    fn was_cut(&mut self, next_key: &[u8]);

    /// The least size with which the file of another column group is closed where this one is.
    fn smallest_size(&self) -> u64 {
        0
    }

    /// Said after a cut at which files of other column groups were left open, the largest of `size` bytes.
    fn left_open(&mut self, _size: u64) {}
}

/// The grandparents, and how far the keys have come in them.
#[derive(Debug, Default)]
struct Grandparents {
    files: Vec<Arc<FileMeta>>,
    next: usize,
}

impl Grandparents {
    fn new(files: Vec<Arc<FileMeta>>) -> Self {
        Self { files, next: 0 }
    }

    /// Passes the files that end before `key`; returns their bytes if there were any.
    #[inline]
    fn pass(&mut self, key: &[u8]) -> Option<u64> {
        let mut passed = None;
        while let Some(file) = self.files.get(self.next)
            && file.ends_before(key)
        {
            passed = Some(passed.unwrap_or(0) + file.size);
            self.next += 1;
        }
        passed
    }

    /// Whether `key` lies in none of the files not yet passed.
    #[inline]
    fn is_between(&self, key: &[u8]) -> bool {
        self.files.get(self.next).is_none_or(|file| key < file.smallest.as_slice())
    }
}

/// The cut keys of the output level, and how far the keys have come.
#[derive(Debug, Default)]
struct CutKeys {
    keys: Vec<Vec<u8>>,
    next: usize,
}

impl CutKeys {
    /// Passes those that are not above `key`; returns whether there were any.
    #[inline]
    fn pass(&mut self, key: &[u8]) -> bool {
        let before = self.next;
        while self.keys.get(self.next).is_some_and(|cut| cut.as_slice() <= key) {
            self.next += 1;
        }
        self.next > before
    }

    #[inline]
    fn lie_ahead(&self) -> bool {
        self.next < self.keys.len()
    }
}

/// The largest step by which a file grew between two questions, so that a limit is met from below.
#[derive(Debug, Default)]
struct Growth {
    last_size: u64,
    largest_step: u64,
}

impl Growth {
    #[inline]
    fn observe(&mut self, size: u64) {
        self.largest_step = self.largest_step.max(size.saturating_sub(self.last_size));
        self.last_size = size;
    }

    #[inline]
    fn reaches(&self, limit: u64) -> bool {
        self.last_size.saturating_add(self.largest_step) > limit
    }

    /// Another file of `size` bytes, 0 for a new one: it grows before the next question.
    fn reset(&mut self, size: u64) {
        self.last_size = size;
    }
}

/// Cuts at a size; optionally also where a file would overlap too much of the level below.
#[derive(Debug)]
pub struct FixedPartitioner {
    target: u64,
    grandparents: Grandparents,
    max_overlap: u64,
    overlap: u64,
}

impl FixedPartitioner {
    /// Cuts as soon as a file has `target` bytes.
    pub fn new(target: u64) -> Self {
        Self { target, grandparents: Grandparents::default(), max_overlap: u64::MAX, overlap: 0 }
    }

    /// Also cuts a file of at least half the target size when it has passed more than `max_overlap` bytes of
    /// grandparents (in key order, not overlapping).
    #[must_use]
    pub fn with_grandparents(mut self, grandparents: Vec<Arc<FileMeta>>, max_overlap: u64) -> Self {
        self.grandparents = Grandparents::new(grandparents);
        self.max_overlap = max_overlap;
        self
    }
}

impl Partitioner for FixedPartitioner {
    #[inline]
    fn should_cut(&mut self, next_key: &[u8], current_size: u64) -> bool {
        self.overlap = self.overlap.saturating_add(self.grandparents.pass(next_key).unwrap_or(0));
        let overlaps_too_much = self.overlap > self.max_overlap && current_size >= self.target / 2;
        let cut = current_size >= self.target || overlaps_too_much;
        if cut {
            self.overlap = 0;
        }
        cut
    }

    fn was_cut(&mut self, next_key: &[u8]) {
        self.grandparents.pass(next_key);
        self.overlap = 0;
    }

    fn smallest_size(&self) -> u64 {
        self.target / 2
    }
}

/// How far a file may be from its target size, as a factor.
const VARIANCE: u64 = 2;

/// Cuts at the borders of the level below. See the module for the algorithm.
#[derive(Debug)]
pub struct AlignedPartitioner {
    target: u64,
    smallest: u64,
    largest: u64,
    grandparents: Grandparents,
    cut_keys: CutKeys,
    growth: Growth,
}

impl AlignedPartitioner {
    /// `grandparents` in key order, not overlapping.
    pub fn new(target: u64, grandparents: Vec<Arc<FileMeta>>) -> Self {
        Self {
            target,
            smallest: target.div_ceil(VARIANCE),
            largest: target.saturating_mul(VARIANCE),
            grandparents: Grandparents::new(grandparents),
            cut_keys: CutKeys::default(),
            growth: Growth::default(),
        }
    }

    /// Cuts at these keys of the output level, ascending, before it cuts elsewhere.
    #[must_use]
    pub fn with_cut_keys(mut self, keys: Vec<Vec<u8>>) -> Self {
        self.cut_keys = CutKeys { keys, next: 0 };
        self
    }
}

impl Partitioner for AlignedPartitioner {
    #[inline]
    fn should_cut(&mut self, next_key: &[u8], current_size: u64) -> bool {
        self.growth.observe(current_size);
        let passed_border = self.grandparents.pass(next_key).is_some();
        let passed_cut_key = self.cut_keys.pass(next_key);
        let would_be_new = self.cut_keys.lie_ahead();
        let cut = self.growth.reaches(self.largest)
            || (passed_cut_key && current_size >= self.smallest)
            || (passed_border && current_size >= if would_be_new { self.target } else { self.smallest })
            || (!would_be_new && current_size >= self.target && self.grandparents.is_between(next_key));
        if cut {
            self.growth.reset(0);
        }
        cut
    }

    fn was_cut(&mut self, next_key: &[u8]) {
        self.grandparents.pass(next_key);
        self.cut_keys.pass(next_key);
        self.growth.reset(0);
    }

    fn smallest_size(&self) -> u64 {
        self.smallest
    }

    fn left_open(&mut self, size: u64) {
        self.growth.reset(size);
    }
}
