//! The kernel against the straight evaluation, on random histories.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use mycelium_base::{Combiner, Cursor, Error, Operation, RangeDelete, RangeDeleteSet, Result, Trailer};
use rand::Rng;
use rand::rngs::SmallRng;

use crate::testing::{Concatenate, Entry, VecCursor, random_history, seeds, split_range_deletes, straight_rows};
use crate::{CompactionStream, KeyHistory, Lookup, MergingCursor, VisibleCursor, retain_range_deletes};

struct History {
    entries: Vec<Entry>,
    deletes: Vec<RangeDelete>,
    creates: bool,
    fuses: bool,
}

impl History {
    fn random(rng: &mut SmallRng) -> Self {
        let creates = rng.random_bool(0.5);
        let fold = if creates { Operation::Merge } else { Operation::Patch };
        let mut entries =
            random_history(rng, 80, &[Operation::Put, Operation::Put, Operation::Delete, fold, fold, fold]);
        let deletes = if rng.random_bool(0.5) { split_range_deletes(rng, &mut entries) } else { Vec::new() };
        Self { entries, deletes, creates, fuses: rng.random_bool(0.7) }
    }

    fn combiner(&self) -> Arc<Concatenate> {
        Arc::new(Concatenate { creates: self.creates, fuses: self.fuses })
    }

    fn merged(&self, rng: &mut SmallRng) -> MergingCursor<VecCursor> {
        let parts = rng.random_range(1..5);
        let mut split = vec![Vec::new(); parts];
        for entry in &self.entries {
            split[rng.random_range(0..parts)].push(entry.clone());
        }
        MergingCursor::new(split.into_iter().map(VecCursor::new).collect())
    }

    fn rows(&self, snapshot: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
        straight_rows(&self.entries, &self.deletes, snapshot, self.creates)
    }
}

fn forward(cursor: &mut VisibleCursor<impl Cursor>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    while cursor.valid() {
        rows.push((cursor.key().to_vec(), cursor.value().to_vec()));
        cursor.next().unwrap();
    }
    rows
}

#[test]
fn visible_rows_equal_the_straight_evaluation_in_both_directions() {
    let mut shown = 0;
    for (seed, mut rng) in seeds("visible", 400) {
        let history = History::random(&mut rng);
        let snapshot = rng.random_range(0..90);
        let some_key =
            |rng: &mut SmallRng| rng.random_bool(0.5).then(|| format!("k{:03}", rng.random_range(0..80)).into_bytes());
        let (lower, upper) = (some_key(&mut rng), some_key(&mut rng));
        let inside = |key: &[u8]| lower.as_deref().is_none_or(|l| l <= key) && upper.as_deref().is_none_or(|u| key < u);
        let rows: Vec<_> = history.rows(snapshot).into_iter().filter(|(key, _)| inside(key)).collect();
        let mut cursor = VisibleCursor::new(
            history.merged(&mut rng),
            snapshot,
            vec![Arc::new(RangeDeleteSet::new(&history.deletes))],
            Some(history.combiner()),
            lower.clone(),
            upper.clone(),
        );
        cursor.seek_to_first().unwrap();
        assert_eq!(forward(&mut cursor), rows, "seed {seed}");
        cursor.seek_to_last().unwrap();
        for row in rows.iter().rev() {
            assert_eq!((cursor.key(), cursor.value()), (row.0.as_slice(), row.1.as_slice()), "seed {seed}");
            cursor.prev().unwrap();
        }
        assert!(!cursor.valid(), "seed {seed}");
        shown += walk_at_random(seed, &mut rng, &rows, &mut cursor);
    }
    assert!(shown > 300, "only {shown} rows were shown many at a time");
}

/// How many rows were shown many at a time.
fn walk_at_random(
    seed: u64,
    rng: &mut SmallRng,
    rows: &[(Vec<u8>, Vec<u8>)],
    cursor: &mut VisibleCursor<impl Cursor>,
) -> usize {
    let (mut at, mut shown): (Option<usize>, usize) = (None, 0);
    for _ in 0..100 {
        let key = format!("k{:03}", rng.random_range(0..80)).into_bytes();
        at = match (rng.random_range(0..10), at) {
            (0, _) => {
                cursor.seek(&key).unwrap();
                Some(rows.partition_point(|r| r.0 < key))
            }
            (1, _) => {
                cursor.seek_for_prev(&key).unwrap();
                rows.partition_point(|r| r.0 <= key).checked_sub(1)
            }
            (2..5, Some(i)) => {
                cursor.next().unwrap();
                Some(i + 1)
            }
            (5, Some(i)) => {
                let found = visited(cursor, rng.random_range(0..6));
                let end = i + found.len();
                assert_eq!(found, rows[i..end], "seed {seed}");
                shown += found.len();
                Some(end)
            }
            (_, Some(i)) => {
                cursor.prev().unwrap();
                i.checked_sub(1)
            }
            _ => {
                cursor.seek_to_first().unwrap();
                Some(0)
            }
        }
        .filter(|&i| i < rows.len());
        assert_eq!(cursor.valid(), at.is_some(), "seed {seed}");
        if let Some(i) = at {
            assert_eq!((cursor.key(), cursor.value()), (rows[i].0.as_slice(), rows[i].1.as_slice()), "seed {seed}");
        }
    }
    shown
}

/// Up to so many rows from the current one on, as far as they are shown many at a time.
fn visited(cursor: &mut VisibleCursor<impl Cursor>, most: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    let show = |key: &[u8], value: &[u8]| {
        let goes_on = rows.len() < most;
        if goes_on {
            rows.push((key.to_vec(), value.to_vec()));
        }
        goes_on
    };
    cursor.visit(show).unwrap();
    rows
}

/// Rows at every snapshot, with the older part of the history below the compacted part.
#[test]
fn a_compaction_changes_no_row_at_any_live_snapshot() {
    let mut dropped = 0;
    for (seed, mut rng) in seeds("compaction", 600) {
        let mut history = History::random(&mut rng);
        let mut snapshots: Vec<u64> = (0..rng.random_range(0..4)).map(|_| rng.random_range(1..90)).collect();
        snapshots.sort_unstable();
        snapshots.dedup();
        let before: Vec<_> = snapshots.iter().chain([&1000]).map(|&s| history.rows(s)).collect();
        // The oldest entries stay outside the compaction, in an older place.
        let border = if rng.random_bool(0.5) { rng.random_range(0..60) } else { 0 };
        let (outside, inside): (Vec<Entry>, Vec<Entry>) =
            history.entries.iter().cloned().partition(|e| e.1.sequence() < border);
        let (deletes_outside, deletes_inside): (Vec<_>, Vec<_>) =
            history.deletes.iter().cloned().partition(|d| d.sequence < border);
        let set = Arc::new(RangeDeleteSet::new(&deletes_inside));
        history.entries = inside;
        let mut input = history.merged(&mut rng);
        input.seek_to_first().unwrap();
        let holds = |key: &[u8]| outside.iter().any(|e| e.0 == key);
        let are_oldest = outside.is_empty() && deletes_outside.is_empty();
        let combiner: Option<Arc<dyn Combiner>> = Some(history.combiner());
        let is_base = |key: &[u8]| !holds(key);
        let mut stream = CompactionStream::new(input, snapshots.clone(), set.clone(), combiner, is_base, are_oldest);
        let mut kept = Vec::new();
        while stream.advance().unwrap() {
            kept.push((stream.key().to_vec(), stream.trailer(), stream.value().to_vec()));
        }
        let counters = stream.counters();
        assert_eq!(counters.entries_in as usize, history.entries.len(), "seed {seed}");
        assert_eq!(counters.entries_out as usize, kept.len(), "seed {seed}");
        dropped += counters.entries_in - counters.entries_out;
        assert!(kept.is_sorted_by(|a, b| mycelium_base::compare_entries(&a.0, a.1, &b.0, b.1).is_lt()), "seed {seed}");
        history.entries = [kept, outside.clone()].concat();
        history.deletes = retain_range_deletes(&set, &snapshots, None, None, |start, end| {
            !outside.iter().any(|e| start <= e.0.as_slice() && e.0.as_slice() < end)
        });
        history.deletes.extend(deletes_outside);
        let after: Vec<_> = snapshots.iter().chain([&1000]).map(|&s| history.rows(s)).collect();
        assert_eq!(after, before, "seed {seed}, snapshots {snapshots:?}, border {border}");
    }
    assert!(dropped > 1000, "compactions dropped only {dropped} entries");
}

#[test]
fn without_snapshots_and_older_places_only_rows_remain() {
    for (seed, mut rng) in seeds("full compaction", 200) {
        let history = History::random(&mut rng);
        let set = Arc::new(RangeDeleteSet::new(&history.deletes));
        let mut input = history.merged(&mut rng);
        input.seek_to_first().unwrap();
        let mut stream = CompactionStream::new(input, vec![], set.clone(), Some(history.combiner()), |_| true, true);
        let mut kept = Vec::new();
        while stream.advance().unwrap() {
            let is_covered = set.covering(stream.key(), 1000).is_some();
            let expected = if is_covered { stream.trailer().sequence() } else { 0 };
            assert_eq!(stream.trailer(), Trailer::new(expected, Operation::Put), "seed {seed}");
            kept.push((stream.key().to_vec(), stream.value().to_vec()));
        }
        assert_eq!(kept, history.rows(1000).into_iter().collect::<Vec<_>>(), "seed {seed}");
        assert!(retain_range_deletes(&set, &[], None, None, |_, _| true).is_empty());
    }
}

#[test]
fn a_lookup_equals_the_straight_evaluation() {
    for (seed, mut rng) in seeds("lookup", 200) {
        let history = History::random(&mut rng);
        let snapshot = rng.random_range(0..90);
        let rows = history.rows(snapshot);
        let set = RangeDeleteSet::new(&history.deletes);
        for key in history.entries.iter().map(|e| e.0.clone()) {
            let mut lookup = Lookup::new();
            if let Some(sequence) = set.covering(&key, snapshot) {
                lookup.cover(sequence);
            }
            for entry in history.entries.iter().filter(|e| e.0 == key && e.1.sequence() <= snapshot) {
                if lookup.visit(entry.1, &entry.2).is_break() {
                    break;
                }
            }
            let row = lookup.finish(&key, Some(&*history.combiner())).unwrap();
            assert_eq!(row.as_ref(), rows.get(&key), "seed {seed}");
        }
    }
}

/// Removes the row.
struct Remove;

impl Combiner for Remove {
    fn apply(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
    fn fuse(&self, _: &[u8], _: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
    fn name(&self) -> &str {
        "remove"
    }
}

#[test]
fn a_row_that_an_operator_removed_does_not_come_back() {
    let entry = |key: &str, sequence, operation| (key.as_bytes().to_vec(), Trailer::new(sequence, operation), vec![7]);
    let entries = vec![
        entry("a", 11, Operation::Merge),
        entry("a", 10, Operation::Put),
        entry("a", 3, Operation::Put),
        entry("b", 12, Operation::Put),
    ];
    let kept = |snapshots: &[u64], is_base: bool| {
        let mut input = VecCursor::new(entries.clone());
        input.seek_to_first().unwrap();
        let combiner: Arc<dyn Combiner> = Arc::new(Remove);
        let set = Arc::new(RangeDeleteSet::default());
        let mut stream = CompactionStream::new(input, snapshots.to_vec(), set, Some(combiner), |_| is_base, false);
        let mut kept = Vec::new();
        while stream.advance().unwrap() {
            kept.push((stream.key()[0], stream.trailer().sequence(), stream.trailer().operation()));
        }
        kept
    };
    let (delete, row) = ((b'a', 11, Operation::Delete), (b'b', 12, Operation::Put));
    assert_eq!(kept(&[], true), [row]);
    assert_eq!(kept(&[], false), [delete, row]);
    assert_eq!(kept(&[5], true), [delete, (b'a', 3, Operation::Put), row]);
}

/// The short way for keys with a single row says what the long one says.
#[test]
fn a_single_row_survives_as_it_does_in_the_stream() {
    let mut short = 0;
    for (seed, mut rng) in seeds("single rows", 300) {
        let mut snapshots: Vec<u64> = (0..rng.random_range(0..3)).map(|_| rng.random_range(0..20)).collect();
        snapshots.sort_unstable();
        let deletes = match rng.random_range(0..3) {
            0 => vec![RangeDelete { start: b"a".to_vec(), end: b"z".to_vec(), sequence: rng.random_range(0..20) }],
            _ => Vec::new(),
        };
        let are_oldest = rng.random_bool(0.5);
        let operations = [Operation::Put, Operation::Put, Operation::Delete];
        let entry = Trailer::new(rng.random_range(0..20), operations[rng.random_range(0..3)]);
        let mut stream = CompactionStream::new(
            KeyHistory::default(),
            snapshots,
            Arc::new(RangeDeleteSet::new(&deletes)),
            None,
            |_: &[u8]| are_oldest,
            are_oldest,
        );
        stream.input_mut().begin(b"k");
        stream.input_mut().push(entry, |out| Ok(out.write_all(b"value").is_ok())).unwrap();
        let only = stream.only_row().map(|(key, trailer, value)| (key.to_vec(), trailer, value.to_vec()));
        let counted = stream.counters();
        let Some(only) = only else { continue };
        short += 1;
        stream.restart();
        assert!(stream.advance().unwrap(), "seed {seed}");
        assert_eq!(only, (stream.key().to_vec(), stream.trailer(), stream.value().to_vec()), "seed {seed}");
        assert!(!stream.advance().unwrap(), "seed {seed}");
        assert_eq!((counted.entries_in, counted.entries_out), (1, 1));
    }
    assert!(short > 50, "only {short} rows took the short way");
}

/// What values come to is longer than a value can be.
struct TooLong;

impl Combiner for TooLong {
    fn apply(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        Err(Error::invalid("too long"))
    }
    fn fuse(&self, _: &[u8], _: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        Err(Error::invalid("too long"))
    }
    fn name(&self) -> &str {
        "too long"
    }
}

/// The compaction failed, again and again, and recovery's flush with it: the database did not open.
#[test]
fn a_row_that_would_be_too_long_stays_in_parts() {
    let entry = |sequence, operation| (b"a".to_vec(), Trailer::new(sequence, operation), vec![sequence as u8]);
    let entries = vec![
        entry(13, Operation::Patch),
        entry(12, Operation::Patch),
        entry(10, Operation::Put),
        entry(9, Operation::Patch),
        entry(3, Operation::Put),
    ];
    for is_base in [false, true] {
        for snapshots in [vec![], vec![11], vec![12]] {
            let mut input = VecCursor::new(entries.clone());
            input.seek_to_first().unwrap();
            let combiner: Arc<dyn Combiner> = Arc::new(TooLong);
            let set = Arc::new(RangeDeleteSet::default());
            let mut stream = CompactionStream::new(input, snapshots, set, Some(combiner), |_| is_base, false);
            let mut kept = Vec::new();
            while stream.advance().unwrap() {
                kept.push((stream.trailer().sequence(), stream.trailer().operation()));
            }
            assert_eq!(kept, [(13, Operation::Patch), (12, Operation::Patch), (10, Operation::Put)]);
        }
    }
}
