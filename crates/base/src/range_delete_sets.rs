//! Range deletes that become more and more, ready for lookups at any time.
//!
//! The logarithmic method (J. L. Bentley, J. B. Saxe, "Decomposable Searching Problems I: Static-to-Dynamic
//! Transformation", Journal of Algorithms 1, 1980): the newest range delete over a key is the newest of what several
//! sets say, and a set is cut up anew only together with others that it is not much larger than.
//!
//! 1. New range deletes make a set of their own. The set before it goes into it while that has less than `GROWTH`
//!    times as many as what comes after.
//! 2. So each set is `GROWTH` times as large as the next one at least: there are O(log n).
//! 3. And each time that a range delete is cut up it gets into a set larger by a part of 1 / `GROWTH` at least: that
//!    happens O(log n) times.

use std::sync::Arc;

use crate::{RangeDelete, RangeDeleteSet, SequenceNumber};

/// How many times larger a set is than the next at least. Lookups like few sets: there are at most 7 for 4,096 range
/// deletes that came one by one, each of which was cut up 16 times at most on average (the test below counts).
const GROWTH: usize = 4;

/// Range deletes in sets. Cheap to clone.
#[derive(Clone, Default, Debug)]
pub struct RangeDeleteSets {
    /// Each with how many range deletes come before its own; the last ones come last.
    sets: Vec<(usize, Arc<RangeDeleteSet>)>,
    count: usize,
}

impl RangeDeleteSets {
    /// All of them in one set.
    pub fn single(all: &[RangeDelete]) -> Self {
        Self { sets: vec![(0, Arc::new(RangeDeleteSet::new(all)))], count: all.len() }
    }

    /// How many range deletes there are, those that cover nothing included.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Adds those that `all` has beyond what there is already, with which it begins. Amortised O(log^2 n) for each.
    pub fn grow(&mut self, all: &[RangeDelete]) {
        if all.len() <= self.count {
            return;
        }
        let mut first = self.count;
        while let Some(&(start, _)) = self.sets.last()
            && first - start < GROWTH * (all.len() - first)
        {
            first = start;
            self.sets.pop();
        }
        self.sets.push((first, Arc::new(RangeDeleteSet::new(&all[first..]))));
        self.count = all.len();
    }

    /// Leaves the first `count` of them at most: sets go that hold any other. [`RangeDeleteSets::grow`] brings back
    /// what they held besides.
    pub fn truncate(&mut self, count: usize) {
        while self.count > count {
            self.count = self.sets.pop().map_or(0, |(start, _)| start);
        }
    }

    /// The newest range delete at or below `snapshot` that covers `key`. O(log^3 n).
    #[inline]
    pub fn covering(&self, key: &[u8], snapshot: SequenceNumber) -> Option<SequenceNumber> {
        self.sets.iter().filter_map(|(_, set)| set.covering(key, snapshot)).max()
    }

    /// The sets, which together hold each range delete once.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<RangeDeleteSet>> {
        self.sets.iter().map(|(_, set)| set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_agree_with_one_set_however_they_came_and_went() {
        for seed in 0..100_u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut draw = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            let (mut all, mut sets) = (Vec::new(), RangeDeleteSets::default());
            for step in 0..40 {
                if draw(6) == 0 {
                    all.truncate(draw(all.len() as u64 + 1) as usize);
                    sets.truncate(all.len());
                }
                for _ in 0..draw(5) {
                    let (start, end) = (vec![draw(20) as u8], vec![draw(20) as u8]);
                    all.push(RangeDelete { start, end, sequence: 1 + draw(30) });
                }
                sets.grow(&all);
                assert_eq!(sets.count(), all.len());
                let one = RangeDeleteSet::new(&all);
                for (key, snapshot) in (0..21_u8).flat_map(|key| (0..32).map(move |snapshot| (key, snapshot))) {
                    let found = sets.covering(&[key], snapshot);
                    assert_eq!(found, one.covering(&[key], snapshot), "seed {seed}, step {step}, {key} at {snapshot}");
                }
            }
        }
    }

    /// A lookup after each of n range deletes cut up n of them.
    #[test]
    fn range_deletes_that_come_one_by_one_are_cut_up_a_few_times() {
        const COUNT: usize = 4_096;
        let (mut all, mut sets, mut cut_up) = (Vec::new(), RangeDeleteSets::default(), 0);
        for n in 0..COUNT as u64 {
            all.push(RangeDelete { start: Vec::new(), end: n.to_be_bytes().to_vec(), sequence: n + 1 });
            sets.grow(&all);
            cut_up += sets.count() - sets.sets.last().map_or(0, |(start, _)| *start);
            assert!(sets.iter().len() <= 7, "{} sets of {}", sets.iter().len(), all.len());
        }
        assert!(cut_up <= 16 * COUNT, "{cut_up}");
    }
}
