//! Sibling column groups side by side.
//!
//! The files of the groups of a level mostly have the same keys, entry by entry: one split wrote them (Mycelium
//! §4.2.2), or each group was compacted over the same keys (LASER §4.4). Merged like any sources, each row would cost
//! as many turns of the heap as there are groups, and keys that are equal are compared to their end in each of them. So
//! sources that have no column in common are a *set of siblings*:
//!
//! 1. As long as all of them stand on entries of one key and trailer they are *abreast*: they are gone through one
//!    after the other and then moved on all at once, and each is compared with the first alone.
//! 2. Where they are not, since their groups were compacted apart or patched, they are merged ([`MergingCursor`]), up
//!    to the next key at which they are abreast again.
//! 3. Who needs no order among the entries of one key can ask whether all sources stand on it, whatever their trailers,
//!    and pass them at once too: where one group's data are its oldest they have no sequence numbers any more, and
//!    its sibling's still have.
//!
//! The entries are those of a merge, in its order. O(1) for each entry abreast, as a merge's else. Backwards it is one.

use mycelium_base::{Cursor, EntryRef, ReadCounters, Result, Trailer};

use crate::merging::MergingCursor;

/// Merges siblings into one [`Cursor`] over all their entries.
pub(crate) struct SiblingCursor<C> {
    /// Knows nothing of where its sources are while they are abreast.
    merged: MergingCursor<C>,
    /// The source that has the current entry; `NONE` if no source is valid.
    at: usize,
    are_abreast: bool,
    same_key: bool,
}

const NONE: usize = usize::MAX;

impl<C: Cursor> SiblingCursor<C> {
    /// Of `sources`, in any order, of which no two have a column in common. Starts invalid.
    pub(crate) fn new(sources: Vec<C>) -> Self {
        Self { merged: MergingCursor::new(sources), at: NONE, are_abreast: false, same_key: false }
    }

    /// The index of the source whose entry is the current one. The cursor must be valid.
    #[inline]
    pub(crate) fn source(&self) -> usize {
        self.at
    }

    /// All sources if they stand abreast, the first on the current entry.
    #[inline]
    pub(crate) fn abreast(&self) -> Option<&[C]> {
        (self.are_abreast && self.at == 0).then(|| self.merged.sources())
    }

    /// All sources if each stands on an entry of the current key, though of other trailers; `None` if they are abreast.
    #[inline]
    pub(crate) fn on_one_key(&self) -> Option<&[C]> {
        if self.are_abreast || !self.merged.equals_runner_up() {
            return None;
        }
        let (sources, key) = (self.merged.sources(), self.key());
        sources.iter().all(|source| source.valid() && source.key() == key).then_some(sources)
    }

    /// All sources.
    #[inline]
    pub(crate) fn sources(&self) -> &[C] {
        self.merged.sources()
    }

    /// Passes over all entries that stand abreast or on one key but the last.
    #[inline]
    pub(crate) fn pass_all_but_last(&mut self) {
        (self.are_abreast, self.at) = (true, self.merged.sources().len() - 1);
    }

    /// After a move forwards: whether all are abreast. The first of them is the current one then.
    #[inline]
    fn come_abreast(&mut self) -> bool {
        let [first, others @ ..] = self.merged.sources() else { return false };
        self.are_abreast = first.valid()
            && others
                .iter()
                .all(|other| other.valid() && other.trailer() == first.trailer() && other.key() == first.key());
        if self.are_abreast {
            self.at = 0;
        }
        self.are_abreast
    }

    /// After a move of the merge.
    #[inline]
    fn follow_merged(&mut self) {
        self.are_abreast = false;
        self.at = if self.merged.valid() { self.merged.source() } else { NONE };
        self.same_key = self.merged.same_key_as_previous();
    }

    /// Moves the merge somewhere else.
    fn move_merged(&mut self, place: impl FnOnce(&mut MergingCursor<C>) -> Result<()>) -> Result<()> {
        let moved = place(&mut self.merged);
        self.follow_merged();
        moved
    }

    /// Moves each source somewhere else, to the first entry not before one of them all.
    fn place_all(&mut self, place: impl FnMut(&mut C) -> Result<()>) -> Result<()> {
        (self.at, self.are_abreast, self.same_key) = (NONE, false, false);
        self.merged.place(place)?;
        if !self.come_abreast() {
            self.merged.rebuild();
            self.follow_merged();
        }
        Ok(())
    }

    /// From the last of those abreast on.
    #[inline]
    fn pass_all(&mut self) -> Result<()> {
        self.at = NONE;
        self.merged.place(C::next)?;
        self.settle_all();
        Ok(())
    }

    /// After each source has moved to its next entry.
    #[inline]
    fn settle_all(&mut self) {
        if self.come_abreast() {
            self.same_key = self.merged.sources()[0].same_key_as_previous();
        } else {
            self.merged.rebuild_moved();
            self.follow_merged();
        }
    }
}

impl<C: Cursor> Cursor for SiblingCursor<C> {
    #[inline]
    fn valid(&self) -> bool {
        self.at != NONE
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.merged.sources()[self.at].key()
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.merged.sources()[self.at].trailer()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.merged.sources()[self.at].value()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.place_all(C::seek_to_first)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.move_merged(Cursor::seek_to_last)
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.place_all(|source| source.seek(key, trailer))
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.move_merged(|merged| merged.seek_before(key, trailer))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if !self.are_abreast {
            self.move_merged(Cursor::next)?;
            if self.merged.equals_runner_up() {
                self.come_abreast();
            }
            return Ok(());
        }
        if self.at + 1 == self.merged.sources().len() {
            return self.pass_all();
        }
        (self.at, self.same_key) = (self.at + 1, true);
        Ok(())
    }

    /// One that has no siblings is shown as it shows itself.
    #[inline]
    fn visit(&mut self, mut visit: impl FnMut(&EntryRef<'_>, bool) -> bool) -> Result<()> {
        if self.merged.sources().len() > 1 || !self.are_abreast {
            while self.valid() && visit(&self.entry(), self.same_key) {
                self.next()?;
            }
            return Ok(());
        }
        let mut first = Some(self.same_key);
        self.at = NONE;
        self.merged.place(|alone| alone.visit(|entry, same_key| visit(entry, first.take().unwrap_or(same_key))))?;
        self.settle_all();
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        if self.are_abreast {
            self.merged.rebuild();
        }
        self.move_merged(Cursor::prev)
    }

    #[inline]
    fn same_key_as_previous(&self) -> bool {
        self.same_key
    }

    fn fetch_ahead(&self, entries: usize) {
        self.merged.fetch_ahead(entries);
    }

    fn add_counters(&self, counters: &mut ReadCounters) {
        self.merged.add_counters(counters);
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BTreeMap;

    use rand::Rng;
    use rand::rngs::SmallRng;

    use super::*;
    use crate::testing::{Entry, VecCursor, random_entries, seeds, visited};

    /// Of one row, by sibling.
    type Values<'a> = Vec<&'a [u8]>;

    /// The entries of siblings that a history is told to: mostly to all of them, each with a value of its own.
    fn told(rng: &mut SmallRng, entries: &[Entry]) -> Vec<Vec<Entry>> {
        let mut siblings = vec![Vec::new(); rng.random_range(1..6)];
        let to_all = [1.0, 0.9, 0.5][rng.random_range(0..3)];
        for (key, trailer, value) in entries {
            let (is_for_all, chosen) = (rng.random_bool(to_all), rng.random_range(0..siblings.len()));
            for (at, sibling) in siblings.iter_mut().enumerate() {
                if is_for_all || at == chosen || rng.random_bool(0.3) {
                    sibling.push((key.clone(), *trailer, [value.as_slice(), &[at as u8]].concat()));
                }
            }
        }
        siblings
    }

    /// Up to `most` entries from the current one on, each with whether it has the key of the one before; those of one
    /// key and trailer by value, for they come in any order.
    fn read_on(cursor: &mut impl Cursor, most: usize, mut is_same: Option<bool>) -> Vec<(Entry, bool)> {
        let mut found: Vec<(Entry, bool)> = Vec::new();
        while cursor.valid() && found.len() < most {
            let (key, trailer, value) = (cursor.key().to_vec(), cursor.trailer(), cursor.value().to_vec());
            found.push(((key, trailer, value), is_same.take().unwrap_or_else(|| cursor.same_key_as_previous())));
            cursor.next().unwrap();
        }
        found.chunk_by_mut(|a, b| (&a.0.0, a.0.1) == (&b.0.0, b.0.1)).for_each(|row| {
            let is_same = row[0].1;
            assert!(row[1..].iter().all(|entry| entry.1));
            row.sort();
            row.iter_mut().for_each(|entry| entry.1 = true);
            row[0].1 = is_same;
        });
        found
    }

    #[test]
    fn siblings_give_what_a_merge_of_them_gives() {
        let mut abreast = 0;
        for (seed, mut rng) in seeds("siblings", 300) {
            let entries = random_entries(&mut rng, 80);
            let siblings = told(&mut rng, &entries);
            let cursors = || siblings.iter().cloned().map(VecCursor::new).collect();
            let (mut stepped, mut merged) = (SiblingCursor::new(cursors()), MergingCursor::new(cursors()));
            for _ in 0..40 {
                let pivot = &entries[rng.random_range(0..entries.len())];
                let choice = rng.random_range(0..4);
                let place = |cursor: &mut dyn Cursor| match choice {
                    0 => cursor.seek_to_first(),
                    1 => cursor.seek_to_last(),
                    2 => cursor.seek(&pivot.0, pivot.1),
                    _ => cursor.seek_before(&pivot.0, pivot.1),
                };
                place(&mut stepped).unwrap();
                place(&mut merged).unwrap();
                abreast += usize::from(stepped.abreast().is_some());
                if [0, 2].contains(&choice) {
                    assert!(!stepped.valid() || !stepped.same_key_as_previous());
                    // All of the last row's.
                    let most = rng.random_range(0..40) * siblings.len();
                    let (a, b) = (read_on(&mut stepped, most, None), read_on(&mut merged, most, None));
                    let whole = a.iter().rposition(|entry| !entry.1).unwrap_or(0);
                    assert_eq!(a[..whole], b[..whole], "seed {seed}");
                    assert_eq!((a.len(), stepped.valid()), (b.len(), merged.valid()), "seed {seed}");
                }
                if siblings.len() == 1 && rng.random_bool(0.5) {
                    let most = rng.random_range(0..40);
                    assert_eq!(visited(&mut stepped, most), visited(&mut merged, most), "seed {seed}");
                    assert_eq!(stepped.valid(), merged.valid(), "seed {seed}");
                }
                for _ in 0..rng.random_range(0..10) {
                    if !merged.valid() {
                        break;
                    }
                    assert_eq!((stepped.key(), stepped.trailer()), (merged.key(), merged.trailer()), "seed {seed}");
                    stepped.prev().unwrap();
                    merged.prev().unwrap();
                    assert_eq!(stepped.valid(), merged.valid(), "seed {seed}");
                }
            }
        }
        assert!(abreast > 1000, "{abreast}");
    }

    /// What stands abreast is one entry of each, and is passed at once.
    #[test]
    fn entries_abreast_are_passed_together() {
        for (seed, mut rng) in seeds("abreast", 100) {
            let entries = random_entries(&mut rng, 80);
            let siblings = told(&mut rng, &entries);
            let mut rows: BTreeMap<(&[u8], Reverse<u64>), Values<'_>> = BTreeMap::new();
            for (key, trailer, value) in siblings.iter().flatten() {
                rows.entry((key, Reverse(trailer.sequence()))).or_default().push(value);
            }
            let mut cursor = SiblingCursor::new(siblings.iter().cloned().map(VecCursor::new).collect());
            cursor.seek_to_first().unwrap();
            for ((key, Reverse(sequence)), values) in rows {
                assert_eq!((cursor.key(), cursor.trailer().sequence()), (key, sequence), "seed {seed}");
                if let Some(sources) = cursor.abreast() {
                    assert_eq!(sources.iter().map(VecCursor::value).collect::<Vec<_>>(), values, "seed {seed}");
                    cursor.pass_all_but_last();
                    assert_eq!((cursor.key(), cursor.trailer().sequence()), (key, sequence), "seed {seed}");
                    cursor.next().unwrap();
                } else {
                    values.iter().for_each(|_| cursor.next().unwrap());
                }
            }
            assert!(!cursor.valid(), "seed {seed}");
        }
    }
}
