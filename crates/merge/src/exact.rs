//! Derived tables: entries that are removed one by one.
//!
//! A derived table holds `Put`s whose key is made of a row, and *exact removals*: a `Delete` with the sequence number
//! of the `Put` that it names. A removal hides that one version of its key and no other, wherever the two stand:
//! entries of a derived table may come late and overtake each other, so that places say nothing of their age. Sequence
//! numbers do.
//!
//! [`ExactCursor`], what a snapshot sees, key by key:
//! 1. Entries come newest first; of one sequence number the `Put`s (equal copies of one version) before the removals.
//! 2. The first `Put` that the snapshot sees, and that is not followed by its removal, is the key's.
//!
//! [`ExactStream`], what survives a compaction, key by key:
//! 1. A `Put` is dropped where its removal is met, and where it is a copy of the one before it.
//! 2. Of the `Put`s left, the newest of each stripe (see [`crate::CompactionStream`]) survives.
//! 3. A removal survives, once, until no older place can hold its key: an older place may hold another copy of its
//!    `Put`.
//! 4. A `Put` that would survive is dropped if nobody needs it, as far as somebody can tell ([`Purge`]).
//!
//! Neither gives anything the sequence number 0. What one key has is held in memory, nothing else.

use std::ops::Range;

use mycelium_base::{Cursor, Operation, ReadCounters, Result, SequenceNumber, Trailer};

use crate::StreamCounters;

/// Walks the entries of a derived table that a snapshot sees: at most one for each key, forwards.
pub struct ExactCursor<C> {
    input: C,
    snapshot: SequenceNumber,
    /// Exclusive.
    upper: Option<Vec<u8>>,
    key: Vec<u8>,
    value: Vec<u8>,
    found: Option<SequenceNumber>,
}

impl<C: Cursor> ExactCursor<C> {
    /// Entries of `input` at `snapshot` with keys below `upper`. Unpositioned.
    pub fn new(input: C, snapshot: SequenceNumber, upper: Option<Vec<u8>>) -> Self {
        Self { input, snapshot, upper, key: Vec::new(), value: Vec::new(), found: None }
    }

    /// To the first entry at or after `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.input.seek(key, Trailer::NEWEST)?;
        self.advance()
    }

    /// To the entry of the next key that has one.
    pub fn advance(&mut self) -> Result<()> {
        self.found = None;
        while self.input.valid() && self.upper.as_deref().is_none_or(|upper| self.input.key() < upper) {
            self.key.clear();
            self.key.extend_from_slice(self.input.key());
            self.settle_key()?;
            if self.found.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Leaves the input behind the current key.
    fn settle_key(&mut self) -> Result<()> {
        let mut decided = false;
        loop {
            let trailer = self.input.trailer();
            let sequence = trailer.sequence();
            decided |= self.found.is_some_and(|found| found > sequence);
            if !decided && sequence <= self.snapshot {
                if trailer.operation() == Operation::Put {
                    self.found = Some(sequence);
                    self.value.clear();
                    self.value.extend_from_slice(self.input.value());
                } else {
                    self.found = None;
                }
            }
            self.input.next()?;
            if !self.input.valid() || !self.input.same_key_as_previous() {
                return Ok(());
            }
        }
    }

    /// Whether the cursor stands on an entry.
    pub fn valid(&self) -> bool {
        self.found.is_some()
    }

    /// The entry's key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The entry's sequence number; 0 if the cursor is not valid.
    pub fn sequence(&self) -> SequenceNumber {
        self.found.unwrap_or_default()
    }

    /// The entry's value.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// What the sources read and skipped.
    pub fn add_counters(&self, counters: &mut ReadCounters) {
        self.input.add_counters(counters);
    }
}

/// Tells which entries of a derived table nobody needs, although no removal names them.
pub trait Purge {
    /// Whether neither a live snapshot nor a later reader needs the `Put` of `key` with this number.
    fn is_stale(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<bool>;
}

/// The surviving entries of a derived table's `C`, in order. `B` says whether no place older than the inputs can hold a
/// key; it is asked with ascending keys.
pub struct ExactStream<'p, C, B> {
    input: C,
    /// Live snapshots, ascending.
    snapshots: Vec<SequenceNumber>,
    is_base: B,
    key: Vec<u8>,
    /// What survives of `key`, oldest first, each with its place in `values`; the last is the current entry.
    queue: Vec<(Trailer, Range<usize>)>,
    values: Vec<u8>,
    purge: Option<&'p mut dyn Purge>,
    counters: StreamCounters,
}

impl<'p, C: Cursor, B: FnMut(&[u8]) -> bool> ExactStream<'p, C, B> {
    /// Streams `input`, which stands on its first entry (or is invalid). `snapshots` ascending.
    pub fn new(input: C, snapshots: Vec<SequenceNumber>, is_base: B) -> Self {
        debug_assert!(snapshots.is_sorted());
        let (key, queue, values, counters) = Default::default();
        Self { input, snapshots, is_base, key, queue, values, purge: None, counters }
    }

    /// Has `purge` asked for every `Put` that would survive.
    #[must_use]
    pub fn purged_by(mut self, purge: Option<&'p mut dyn Purge>) -> Self {
        self.purge = purge;
        self
    }

    /// Goes to the next surviving entry; `false` at the end.
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        self.queue.pop();
        while self.queue.is_empty() && self.input.valid() {
            self.key.clear();
            self.key.extend_from_slice(self.input.key());
            self.settle_key()?;
        }
        let found = !self.queue.is_empty();
        self.counters.entries_out += u64::from(found);
        Ok(found)
    }

    /// Fills the queue with what survives of the input's key.
    fn settle_key(&mut self) -> Result<()> {
        self.values.clear();
        let mut decided = None;
        loop {
            let trailer = self.input.trailer();
            self.counters.entries_in += 1;
            if trailer.operation() == Operation::Put {
                let stripe = self.snapshots.partition_point(|&snapshot| snapshot < trailer.sequence());
                if decided.replace(stripe) == Some(stripe) {
                    self.counters.dropped_obsolete += 1;
                } else {
                    let start = self.values.len();
                    self.values.extend_from_slice(self.input.value());
                    self.queue.push((trailer, start..self.values.len()));
                }
            } else {
                self.remove(trailer, &mut decided);
            }
            self.input.next()?;
            if !self.input.valid() || !self.input.same_key_as_previous() {
                break;
            }
        }
        self.queue.reverse();
        self.drop_stale()
    }

    fn drop_stale(&mut self) -> Result<()> {
        let Some(purge) = &mut self.purge else { return Ok(()) };
        let mut at = 0;
        while let Some((trailer, _)) = self.queue.get(at) {
            if trailer.operation() == Operation::Put && purge.is_stale(&self.key, trailer.sequence())? {
                self.queue.remove(at);
                self.counters.dropped_obsolete += 1;
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    /// A removal was met: the `Put` that it names, which would be the newest of its stripe, was none.
    fn remove(&mut self, removal: Trailer, decided: &mut Option<usize>) {
        if let Some((last, _)) = self.queue.last() {
            if *last == removal {
                self.counters.dropped_tombstones += 1;
                return;
            }
            if last.operation() == Operation::Put && last.sequence() == removal.sequence() {
                self.queue.pop();
                self.counters.dropped_obsolete += 1;
                *decided = None;
            }
        }
        if (self.is_base)(&self.key) {
            self.counters.dropped_tombstones += 1;
        } else {
            self.queue.push((removal, 0..0));
        }
    }

    /// The current entry's key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The current entry's sequence number and operation.
    ///
    /// Only after [`ExactStream::advance`] found one.
    #[inline]
    pub fn trailer(&self) -> Trailer {
        self.queue.last().map_or(Trailer::OLDEST, |(trailer, _)| *trailer)
    }

    /// The current entry's value.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.queue.last().map_or(&[], |(_, value)| &self.values[value.clone()])
    }

    /// What happened so far.
    pub fn counters(&self) -> StreamCounters {
        self.counters
    }

    /// The inputs, for their counters.
    pub fn input(&self) -> &C {
        &self.input
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use mycelium_base::{MAX_SEQUENCE_NUMBER, compare_entries};
    use rand::Rng;
    use rand::rngs::SmallRng;

    use super::*;
    use crate::MergingCursor;
    use crate::testing::{Entry, VecCursor, seeds};

    /// A version of a row: the number it was written with, and the one at which it was superseded or removed.
    type Lifetime = (SequenceNumber, Option<SequenceNumber>);

    struct Scene {
        rows: BTreeMap<Vec<u8>, Vec<Lifetime>>,
        snapshots: Vec<SequenceNumber>,
        /// Youngest first.
        places: Vec<Vec<Entry>>,
    }

    /// Takes every second number for stale.
    struct Odd;

    impl Purge for Odd {
        fn is_stale(&mut self, _key: &[u8], sequence: SequenceNumber) -> Result<bool> {
            Ok(sequence % 2 == 1)
        }
    }

    #[test]
    fn stale_entries_go_and_removals_stay() {
        let entry =
            |key: &str, sequence, operation| (key.as_bytes().to_vec(), Trailer::new(sequence, operation), Vec::new());
        let (put, delete) = (Operation::Put, Operation::Delete);
        let entries: Vec<Entry> =
            vec![entry("a", 9, put), entry("a", 8, put), entry("a", 3, delete), entry("b", 5, put), entry("c", 4, put)];
        let mut input = VecCursor::new(entries);
        input.seek_to_first().unwrap();
        let mut odd = Odd;
        let mut stream = ExactStream::new(input, vec![8], |_| false).purged_by(Some(&mut odd));
        let mut left = Vec::new();
        while stream.advance().unwrap() {
            left.push((stream.key().to_vec(), stream.trailer()));
        }
        let expected = [("a", 8, put), ("a", 3, delete), ("c", 4, put)];
        assert_eq!(
            left,
            expected.map(|(key, sequence, operation)| { (key.as_bytes().to_vec(), Trailer::new(sequence, operation)) })
        );
        assert_eq!(stream.counters().dropped_obsolete, 2);
    }

    /// Versions in any place, some twice; removals of some that nobody sees, never older than what they name.
    fn scene(rng: &mut SmallRng) -> Scene {
        let mut snapshots: Vec<u64> = (0..rng.random_range(0..4)).map(|_| rng.random_range(0..60)).collect();
        snapshots.sort_unstable();
        snapshots.dedup();
        let mut places = vec![Vec::new(); rng.random_range(1..5)];
        let mut rows: BTreeMap<Vec<u8>, Vec<Lifetime>> = BTreeMap::new();
        let mut next = 0;
        while next < 60 {
            let key = vec![rng.random_range(b'a'..b'f')];
            let sequence = next;
            next += rng.random_range(1..3);
            let versions = rows.entry(key).or_default();
            if let Some((_, end)) = versions.last_mut() {
                end.get_or_insert(sequence);
            }
            versions.push((sequence, rng.random_bool(0.3).then_some(next)));
        }
        for (key, versions) in &rows {
            for &(sequence, end) in versions {
                let oldest = rng.random_range(0..places.len());
                for _ in 0..rng.random_range(1..3) {
                    let place = rng.random_range(0..=oldest);
                    let value = sequence.to_string().into_bytes();
                    places[place].push((key.clone(), Trailer::new(sequence, Operation::Put), value));
                }
                let is_seen = end.is_none_or(|end| snapshots.iter().any(|&s| sequence <= s && s < end));
                if !is_seen && rng.random_bool(0.7) {
                    let youngest =
                        (0..=oldest).find(|&p| places[p].iter().any(|e| e.0 == *key && e.1.sequence() == sequence));
                    let place = rng.random_range(0..=youngest.unwrap_or(0));
                    places[place].push((key.clone(), Trailer::new(sequence, Operation::Delete), Vec::new()));
                }
            }
        }
        for place in &mut places {
            place.sort_by(|a, b| compare_entries(&a.0, a.1, &b.0, b.1));
        }
        Scene { rows, snapshots, places }
    }

    /// Every version that a snapshot sees must be found; where there is none, nothing or what is stale.
    fn check(scene: &Scene, seed: u64) {
        for snapshot in scene.snapshots.iter().copied().chain([MAX_SEQUENCE_NUMBER]) {
            let sources = scene.places.iter().cloned().map(VecCursor::new).collect();
            let mut cursor = ExactCursor::new(MergingCursor::new(sources), snapshot, None);
            let mut found = BTreeMap::new();
            cursor.seek(&[]).unwrap();
            while cursor.valid() {
                assert_eq!(cursor.value(), cursor.sequence().to_string().as_bytes());
                assert_eq!(found.insert(cursor.key().to_vec(), cursor.sequence()), None, "seed {seed}");
                cursor.advance().unwrap();
            }
            for (key, versions) in &scene.rows {
                let is_seen =
                    |(sequence, end): &&Lifetime| *sequence <= snapshot && end.is_none_or(|end| snapshot < end);
                if let Some((sequence, _)) = versions.iter().find(is_seen) {
                    assert_eq!(found.get(key), Some(sequence), "seed {seed}, key {key:?} at {snapshot}");
                }
            }
        }
    }

    #[test]
    fn what_is_seen_survives_any_compactions() {
        let mut removed = 0;
        for (seed, mut rng) in seeds("derived tables", 3_000) {
            let mut scene = scene(&mut rng);
            check(&scene, seed);
            while scene.places.len() > 1 {
                let first = rng.random_range(0..scene.places.len());
                let last = rng.random_range(first..scene.places.len());
                let is_base = last + 1 == scene.places.len();
                let inputs: Vec<Vec<Entry>> = scene.places.drain(first..=last).collect();
                let mut input = MergingCursor::new(inputs.into_iter().map(VecCursor::new).collect());
                input.seek_to_first().unwrap();
                let mut stream = ExactStream::new(input, scene.snapshots.clone(), |_| is_base);
                let mut output: Vec<Entry> = Vec::new();
                while stream.advance().unwrap() {
                    output.push((stream.key().to_vec(), stream.trailer(), stream.value().to_vec()));
                }
                assert!(output.is_sorted_by(|a, b| compare_entries(&a.0, a.1, &b.0, b.1).is_lt()), "seed {seed}");
                removed += stream.counters().dropped_obsolete;
                scene.places.insert(first, output);
                check(&scene, seed);
                if first == last && rng.random_bool(0.3) {
                    break;
                }
            }
            if scene.places.len() == 1 && scene.snapshots.is_empty() {
                let left = scene.places[0].iter().filter(|entry| entry.1.operation() == Operation::Delete).count();
                assert!(left == 0 || scene.places[0].len() > left, "seed {seed}: removals of nothing stay");
            }
        }
        assert!(removed > 1_000, "only {removed} entries were dropped");
    }

    /// A removal written late names an old version; an equal key that came meanwhile is not hidden.
    #[test]
    fn a_removal_hides_no_other_version_of_its_key() {
        let entry = |sequence, operation| (b"k".to_vec(), Trailer::new(sequence, operation), b"v".to_vec());
        let young = vec![entry(3, Operation::Delete)];
        let old = vec![entry(7, Operation::Put), entry(3, Operation::Put)];
        for snapshot in [3, 7, 9] {
            let sources = vec![VecCursor::new(young.clone()), VecCursor::new(old.clone())];
            let mut cursor = ExactCursor::new(MergingCursor::new(sources), snapshot, None);
            cursor.seek(b"").unwrap();
            assert_eq!(cursor.valid().then(|| cursor.sequence()), (snapshot >= 7).then_some(7));
        }
    }
}
