//! Level merging: many sorted sources into one.
//!
//! Algorithm (forwards; backwards is its mirror image):
//! 1. One source, the *top*, stands on the smallest entry; the others wait in a binary heap of their current entries.
//! 2. `next` moves the top alone and compares it with the root of the heap, the *runner-up*: as long as it is smaller
//!    it stays the top. A long run of one source (the last level, mostly) thus costs one comparison an entry.
//! 3. Comparisons are first made on eight bytes of the keys, behind what they share ([`KeyPrefix`]). Those of waiting
//!    sources lie in the heap, so that most of them touch no source.
//! 4. When the runner-up is smaller the two change places and the heap is sifted once.
//! 5. Who wants many entries is shown those of the top, as long as their prefixes are smaller than the runner-up's,
//!    without a look at the heap ([`MergingCursor::visit_with_sources`]).
//! 6. Whether an entry has the key of the one before it falls out of the same comparisons: within a source the source
//!    knows; across sources it is whether the former entry's key equalled the runner-up's.
//!
//! Entries are unique by (key, trailer) across sources that share a column. Fragments of one row in sources of
//! different column groups may be equal in both, and then come in any order; turning round in the middle of such a row
//! is not for their readers. O(log sources) per change of top, O(1) otherwise.

use std::cmp::Ordering;

use mycelium_base::key_prefix::KeyPrefix;
use mycelium_base::{Cursor, EntryRef, ReadCounters, Result, Trailer, compare_entries};

/// Merges cursors into one [`Cursor`] over all their entries.
#[derive(Debug)]
pub struct MergingCursor<C> {
    sources: Vec<C>,
    /// Index of the source that stands on the current entry; `NONE` if no source is valid.
    top: usize,
    /// The other valid sources, a binary heap in the current direction.
    heap: Vec<Waiting>,
    prefix: KeyPrefix,
    /// Whether the current key equals the runner-up's key.
    equals_runner_up: bool,
    same_key: bool,
    forward: bool,
    /// How many entries of each source were shown to who wants many; empty before the first was.
    shown: Vec<usize>,
}

const NONE: usize = usize::MAX;

/// A source that waits for its turn.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// Of its current key.
    prefix: u64,
    source: u32,
}

impl<C: Cursor> MergingCursor<C> {
    /// Merges `sources`, in any order. Starts invalid.
    pub fn new(sources: Vec<C>) -> Self {
        Self {
            heap: Vec::new(),
            shown: Vec::new(),
            sources,
            top: NONE,
            prefix: KeyPrefix::default(),
            equals_runner_up: false,
            same_key: false,
            forward: true,
        }
    }

    /// The index of the source whose entry is the current one. The cursor must be valid.
    #[inline]
    pub fn source(&self) -> usize {
        self.top
    }

    /// The source whose entry is the current one; `None` if the cursor is not valid.
    #[inline]
    pub fn current(&self) -> Option<&C> {
        self.sources.get(self.top)
    }

    /// The same, to move it where the merge does not see it: to another entry of the same key and trailer.
    #[inline]
    pub(crate) fn current_mut(&mut self) -> Option<&mut C> {
        self.sources.get_mut(self.top)
    }

    /// All sources.
    #[inline]
    pub(crate) fn sources(&self) -> &[C] {
        &self.sources
    }

    /// Whether another source has an entry of the current key.
    #[inline]
    pub(crate) fn equals_runner_up(&self) -> bool {
        self.equals_runner_up
    }

    /// As [`Cursor::visit`], with the index of the source of each entry.
    pub fn visit_with_sources(&mut self, mut visit: impl FnMut(usize, &EntryRef<'_>, bool) -> bool) -> Result<()> {
        if self.valid() && !self.forward {
            let (key, trailer) = (self.key().to_vec(), self.trailer());
            self.seek(&key, trailer)?;
        }
        while self.valid() {
            let (mut passed, mut goes_on, top) = (0, true, self.top);
            let result = self.visit_top(|top, entry, same_key| {
                goes_on = visit(top, entry, same_key);
                passed += usize::from(goes_on);
                goes_on
            });
            self.fail_on_error(result)?;
            self.shown.resize(self.sources.len(), 0);
            self.shown[top] += passed;
            if passed > 0 {
                // None but the first of them may have had the runner-up's key.
                self.equals_runner_up &= passed == 1;
                self.settle_moved_top();
            }
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    /// Step 5 of the module: moves the top alone. Its current entry is shown in any case.
    #[inline]
    fn visit_top(&mut self, mut visit: impl FnMut(usize, &EntryRef<'_>, bool) -> bool) -> Result<()> {
        let (top, runner_up, prefix) = (self.top, self.heap.first().map(|waiting| waiting.prefix), &self.prefix);
        // The source does not know what came before its first entry.
        let mut first = Some(self.same_key);
        self.sources[top].visit(|entry, same_key| {
            let same_key = match first.take() {
                Some(same_key) => same_key,
                None if runner_up.is_some_and(|runner_up| prefix.of(entry.key) >= runner_up) => return false,
                None => same_key,
            };
            visit(top, entry, same_key)
        })
    }

    /// After the top has moved forwards.
    #[inline]
    fn settle_moved_top(&mut self) {
        if self.sources[self.top].valid() {
            self.settle_forward();
        } else {
            self.replace_exhausted_top();
        }
    }

    fn waiting(&self, source: usize) -> Waiting {
        Waiting { prefix: self.prefix.of(self.sources[source].key()), source: source as u32 }
    }

    /// Whether `a` comes before `b` in the current direction.
    #[inline]
    fn before(&self, a: Waiting, b: Waiting) -> bool {
        let order = match a.prefix.cmp(&b.prefix) {
            Ordering::Equal => self.compare(a.source as usize, b.source as usize),
            order => order,
        };
        if self.forward { order == Ordering::Less } else { order == Ordering::Greater }
    }

    fn compare(&self, a: usize, b: usize) -> Ordering {
        let (a, b) = (&self.sources[a], &self.sources[b]);
        compare_entries(a.key(), a.trailer(), b.key(), b.trailer())
    }

    #[inline]
    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.before(self.heap[child], self.heap[least]) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }

    /// After all sources have moved from entries of one key to their next ones.
    pub(crate) fn rebuild_moved(&mut self) {
        self.rebuild();
        self.same_key = self.sources.get(self.top).is_some_and(C::same_key_as_previous);
    }

    /// Rebuilds heap and top from the sources' positions.
    pub(crate) fn rebuild(&mut self) {
        self.heap.clear();
        self.heap.reserve(self.sources.len());
        self.prefix.clear();
        for source in 0..self.sources.len() {
            if self.sources[source].valid() {
                self.heap.push(self.waiting(source));
            }
        }
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
        self.same_key = false;
        self.take_root_as_top();
        if let Some(runner_up) = self.heap.first() {
            self.prefix.choose(self.sources[self.top].key(), self.sources[runner_up.source as usize].key());
            self.renew_prefixes();
        }
    }

    /// After another choice of what keys share. The heap stays one: its order is that of the keys.
    fn renew_prefixes(&mut self) {
        for at in 0..self.heap.len() {
            self.heap[at] = self.waiting(self.heap[at].source as usize);
        }
    }

    /// The heap's root becomes the top.
    fn take_root_as_top(&mut self) {
        if self.heap.is_empty() {
            self.top = NONE;
            return;
        }
        let top = self.heap.swap_remove(0);
        self.top = top.source as usize;
        self.sift_down(0);
        self.compare_with_runner_up(top.prefix);
    }

    /// Notes whether the runner-up's key is the current one, which has this prefix.
    #[inline]
    fn compare_with_runner_up(&mut self, top_prefix: u64) {
        self.equals_runner_up = self.heap.first().is_some_and(|runner_up| {
            runner_up.prefix == top_prefix
                && self.sources[runner_up.source as usize].key() == self.sources[self.top].key()
        });
    }

    /// The top has moved and is valid: keep it or change it with the runner-up.
    #[inline]
    fn settle_forward(&mut self) {
        let Some(&first) = self.heap.first() else {
            self.same_key = self.sources[self.top].same_key_as_previous();
            return;
        };
        let (mut top, mut runner_up) = (self.waiting(self.top), first);
        if top.prefix == runner_up.prefix && self.prefix.gives_way_to(self.sources[self.top].key(), top.prefix) {
            self.renew_prefixes();
            (top, runner_up) = (self.waiting(self.top), self.heap[0]);
        }
        if top.prefix < runner_up.prefix || top.prefix == runner_up.prefix && self.stays_top(runner_up) {
            self.same_key = self.sources[self.top].same_key_as_previous();
            self.compare_with_runner_up(top.prefix);
            return;
        }
        self.same_key = self.equals_runner_up;
        self.heap[0] = top;
        self.top = runner_up.source as usize;
        self.sift_down(0);
        self.compare_with_runner_up(runner_up.prefix);
    }

    /// Whether the top, whose key has the prefix of the runner-up's, still comes before it.
    fn stays_top(&self, runner_up: Waiting) -> bool {
        self.compare(self.top, runner_up.source as usize) == Ordering::Less
    }

    /// The top is exhausted: the runner-up takes its place.
    #[cold]
    fn replace_exhausted_top(&mut self) {
        let same = self.equals_runner_up;
        self.take_root_as_top();
        self.same_key = same;
    }

    /// Turns round: every source goes to the neighbour of the current entry in the new direction.
    #[cold]
    fn turn(&mut self, forward: bool) -> Result<()> {
        let key = self.key().to_vec();
        let trailer = self.trailer();
        self.forward = forward;
        for source in &mut self.sources {
            if forward {
                source.seek(&key, trailer)?;
                if source.valid() && source.trailer() == trailer && source.key() == key {
                    source.next()?;
                }
            } else {
                source.seek_before(&key, trailer)?;
            }
        }
        self.rebuild();
        if forward && self.top != NONE {
            self.same_key = self.sources[self.top].key() == key;
        }
        Ok(())
    }

    fn fail_on_error(&mut self, result: Result<()>) -> Result<()> {
        if result.is_err() {
            self.top = NONE;
            self.heap.clear();
        }
        result
    }

    fn reposition(&mut self, forward: bool, place: impl FnMut(&mut C) -> Result<()>) -> Result<()> {
        self.place(place)?;
        self.forward = forward;
        self.rebuild();
        Ok(())
    }

    /// Moves all sources, forwards from now on. What the merge knows of them is to be [rebuilt](Self::rebuild).
    pub(crate) fn place(&mut self, place: impl FnMut(&mut C) -> Result<()>) -> Result<()> {
        self.forward = true;
        let result = self.sources.iter_mut().try_for_each(place);
        self.fail_on_error(result)
    }
}

impl<C: Cursor> Cursor for MergingCursor<C> {
    #[inline]
    fn valid(&self) -> bool {
        self.top != NONE
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.sources[self.top].key()
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.sources[self.top].trailer()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.sources[self.top].value()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.reposition(true, C::seek_to_first)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.reposition(false, C::seek_to_last)
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.reposition(true, |source| source.seek(key, trailer))
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.reposition(false, |source| source.seek_before(key, trailer))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if !self.forward {
            let result = self.turn(true);
            return self.fail_on_error(result);
        }
        let result = self.sources[self.top].next();
        if result.is_err() {
            return self.fail_on_error(result);
        }
        self.settle_moved_top();
        Ok(())
    }

    fn visit(&mut self, mut visit: impl FnMut(&EntryRef<'_>, bool) -> bool) -> Result<()> {
        self.visit_with_sources(|_, entry, same_key| visit(entry, same_key))
    }

    fn prev(&mut self) -> Result<()> {
        if self.forward {
            let result = self.turn(false);
            return self.fail_on_error(result);
        }
        let result = self.sources[self.top].prev();
        self.fail_on_error(result)?;
        if !self.sources[self.top].valid() {
            self.take_root_as_top();
        } else if let Some(&root) = self.heap.first()
            && self.before(root, self.waiting(self.top))
        {
            self.heap[0] = self.waiting(self.top);
            self.top = root.source as usize;
            self.sift_down(0);
        }
        self.same_key = false;
        Ok(())
    }

    #[inline]
    fn same_key_as_previous(&self) -> bool {
        self.same_key
    }

    /// Of each source twice its share of the entries, by what was shown of it so far.
    fn fetch_ahead(&self, entries: usize) {
        let all: usize = self.shown.iter().sum();
        for (source, shown) in self.sources.iter().zip(self.shown.iter().chain(std::iter::repeat(&0))) {
            let share = (2 * entries * shown).checked_div(all).unwrap_or(entries);
            source.fetch_ahead(share.min(entries));
        }
    }

    fn add_counters(&self, counters: &mut ReadCounters) {
        self.sources.iter().for_each(|source| source.add_counters(counters));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{VecCursor, random_entries, seeds, visited};
    use rand::Rng;

    fn assert_same_place(merged: &impl Cursor, straight: &impl Cursor, seed: u64) {
        assert_eq!(merged.valid(), straight.valid(), "seed {seed}");
        if merged.valid() {
            assert_eq!(
                (merged.key(), merged.trailer(), merged.value(), merged.same_key_as_previous()),
                (straight.key(), straight.trailer(), straight.value(), straight.same_key_as_previous()),
                "seed {seed}"
            );
        }
    }

    #[test]
    fn visiting_a_merge_equals_going_through_what_is_sorted() {
        for (seed, mut rng) in seeds("visiting", 200) {
            let entries = random_entries(&mut rng, 120);
            let parts = rng.random_range(1..6);
            let mut split = vec![Vec::new(); parts];
            // Runs of entries of one source, and sources that alternate.
            let (stays, mut part) = (rng.random_bool(0.5), 0);
            for entry in &entries {
                part = if stays && rng.random_bool(0.8) { part } else { rng.random_range(0..parts) };
                split[part].push(entry.clone());
            }
            let mut merged = MergingCursor::new(split.into_iter().map(VecCursor::new).collect());
            let mut straight = VecCursor::new(entries.clone());
            for _ in 0..50 {
                let pivot = &entries[rng.random_range(0..entries.len())];
                let choice = rng.random_range(0..6);
                let step = |c: &mut dyn Cursor| match choice {
                    0 => c.seek(&pivot.0, pivot.1),
                    1 => c.seek_before(&pivot.0, pivot.1),
                    2 if c.valid() => c.prev(),
                    _ if c.valid() => c.next(),
                    _ => c.seek_to_first(),
                };
                step(&mut merged).unwrap();
                step(&mut straight).unwrap();
                let most = rng.random_range(0..20);
                assert_eq!(visited(&mut merged, most), visited(&mut straight, most), "seed {seed}");
                assert_same_place(&merged, &straight, seed);
            }
        }
    }

    #[test]
    fn merging_equals_sorting_in_every_move() {
        for (seed, mut rng) in seeds("merging", 200) {
            let entries = random_entries(&mut rng, 120);
            let parts = rng.random_range(1..6);
            let mut split = vec![Vec::new(); parts];
            for entry in &entries {
                split[rng.random_range(0..parts)].push(entry.clone());
            }
            let mut merged = MergingCursor::new(split.into_iter().map(VecCursor::new).collect());
            let mut straight = VecCursor::new(entries.clone());
            for _ in 0..200 {
                let pivot = &entries[rng.random_range(0..entries.len())];
                let trailer = if rng.random_bool(0.5) { pivot.1 } else { Trailer::NEWEST };
                let step = |c: &mut dyn Cursor, choice: u32| match choice {
                    0 => c.seek_to_first(),
                    1 => c.seek_to_last(),
                    2 => c.seek(&pivot.0, trailer),
                    3 => c.seek_before(&pivot.0, trailer),
                    4..8 if c.valid() => c.next(),
                    _ if c.valid() => c.prev(),
                    _ => c.seek_to_first(),
                };
                let choice = rng.random_range(0..12);
                step(&mut merged, choice).unwrap();
                step(&mut straight, choice).unwrap();
                assert_same_place(&merged, &straight, seed);
            }
        }
    }
}
