//! A vector as a cursor, random histories, and the straight evaluation that the kernel is compared with.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use mycelium_base::{
    Combiner, Cursor, EntryRef, Operation, RangeDelete, ReadCounters, Result, SequenceNumber, Trailer, compare_entries,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

pub(crate) type Entry = (Vec<u8>, Trailer, Vec<u8>);

/// `count` generators from one base seed; `MYCELIUM_TEST_SEED` replaces the base.
pub(crate) fn seeds(name: &str, count: u64) -> impl Iterator<Item = (u64, SmallRng)> {
    let base: u64 = std::env::var("MYCELIUM_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    println!("{name}: {count} histories from seed {base}");
    (base..base + count).map(|seed| (seed, SmallRng::seed_from_u64(seed)))
}

/// Sorted entries over few keys, sequence numbers 1..=n each used once.
pub(crate) fn random_entries(rng: &mut SmallRng, at_most: usize) -> Vec<Entry> {
    random_history(rng, at_most, &[Operation::Put, Operation::Delete])
}

pub(crate) fn random_history(rng: &mut SmallRng, at_most: usize, operations: &[Operation]) -> Vec<Entry> {
    let n = rng.random_range(1..=at_most);
    let keys = rng.random_range(1..=n);
    // What most keys begin with, so that the eight bytes that they differ in are further behind.
    let shared: &[u8] = [&b""[..], b"share", b"\xff\xff", b"a name that all of them share"][rng.random_range(0..4)];
    let mut entries: Vec<Entry> = (1..=n as u64)
        .map(|sequence| {
            let begins = if rng.random_bool(0.9) { shared } else { &shared[..rng.random_range(0..=shared.len())] };
            let mut key = [begins, format!("k{:03}", rng.random_range(0..keys)).as_bytes()].concat();
            key.truncate(begins.len() + rng.random_range(1..=4).max(2));
            if rng.random_bool(0.3) {
                key.extend_from_slice(b"\0longer than a prefix");
            }
            let operation = operations[rng.random_range(0..operations.len())];
            let value = if operation == Operation::Delete { Vec::new() } else { format!("{sequence};").into_bytes() };
            (key, Trailer::new(sequence, operation), value)
        })
        .collect();
    entries.sort_by(|a, b| compare_entries(&a.0, a.1, &b.0, b.1));
    entries
}

/// Up to so many entries from the current one on, and whether each has the key of the one before.
pub(crate) fn visited<C: Cursor>(cursor: &mut C, most: usize) -> Vec<(Entry, bool)> {
    let mut shown = Vec::new();
    let visit = |entry: &EntryRef<'_>, same_key: bool| {
        let goes_on = shown.len() < most;
        if goes_on {
            shown.push(((entry.key.to_vec(), entry.trailer, entry.value.to_vec()), same_key));
        }
        goes_on
    };
    cursor.visit(visit).unwrap();
    shown
}

pub(crate) struct VecCursor {
    entries: Vec<Entry>,
    at: Option<usize>,
    same: bool,
}

impl VecCursor {
    pub(crate) fn new(entries: Vec<Entry>) -> Self {
        Self { entries, at: None, same: false }
    }

    fn lower_bound(&self, key: &[u8], trailer: Trailer) -> usize {
        self.entries.partition_point(|e| compare_entries(&e.0, e.1, key, trailer) == Ordering::Less)
    }

    fn go(&mut self, at: Option<usize>) -> Result<()> {
        self.at = at.filter(|&at| at < self.entries.len());
        self.same = false;
        Ok(())
    }

    fn entry(&self) -> &Entry {
        &self.entries[self.at.unwrap()]
    }
}

impl Cursor for VecCursor {
    fn valid(&self) -> bool {
        self.at.is_some()
    }
    fn key(&self) -> &[u8] {
        &self.entry().0
    }
    fn trailer(&self) -> Trailer {
        self.entry().1
    }
    fn value(&self) -> &[u8] {
        &self.entry().2
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.go(Some(0))
    }
    fn seek_to_last(&mut self) -> Result<()> {
        self.go(self.entries.len().checked_sub(1))
    }
    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.go(Some(self.lower_bound(key, trailer)))
    }
    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.go(self.lower_bound(key, trailer).checked_sub(1))
    }
    fn next(&mut self) -> Result<()> {
        let at = self.at.unwrap();
        self.go(Some(at + 1))?;
        self.same = self.at.is_some() && self.entries[at + 1].0 == self.entries[at].0;
        Ok(())
    }
    fn prev(&mut self) -> Result<()> {
        self.go(self.at.unwrap().checked_sub(1))
    }
    fn same_key_as_previous(&self) -> bool {
        self.same
    }
    fn add_counters(&self, _: &mut ReadCounters) {}
}

/// Concatenates. As a merge operator it may create a row, as a patch it needs one.
pub(crate) struct Concatenate {
    pub(crate) creates: bool,
    pub(crate) fuses: bool,
}

impl Combiner for Concatenate {
    fn apply(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        if base.is_none() && !self.creates {
            return Ok(None);
        }
        Ok(Some([base.unwrap_or_default(), &operands.concat()].concat()))
    }
    fn fuse(&self, _: &[u8], operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        Ok(self.fuses.then(|| operands.concat()))
    }
    fn name(&self) -> &str {
        "concatenate"
    }
}

/// Every row at `snapshot`, by definition.
pub(crate) fn straight_rows(
    entries: &[Entry],
    deletes: &[RangeDelete],
    snapshot: SequenceNumber,
    creates: bool,
) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut visible: Vec<&Entry> = entries.iter().filter(|e| e.1.sequence() <= snapshot).collect();
    visible.sort_by_key(|e| e.1.sequence());
    let mut rows: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut last = 0;
    let wipe = |rows: &mut BTreeMap<Vec<u8>, Vec<u8>>, from: SequenceNumber, to: SequenceNumber| {
        for delete in deletes.iter().filter(|d| from < d.sequence && d.sequence <= to) {
            rows.retain(|key, _| !(delete.start <= *key && *key < delete.end));
        }
    };
    for (key, trailer, value) in visible {
        wipe(&mut rows, last, trailer.sequence());
        last = trailer.sequence();
        match trailer.operation() {
            Operation::Put => drop(rows.insert(key.clone(), value.clone())),
            Operation::Delete | Operation::RangeDelete => drop(rows.remove(key)),
            Operation::Patch | Operation::Merge => match rows.get_mut(key) {
                Some(row) => row.extend_from_slice(value),
                None if creates => drop(rows.insert(key.clone(), value.clone())),
                None => {}
            },
        }
    }
    wipe(&mut rows, last, snapshot);
    rows
}

/// Takes a few entries out of the history and makes them range deletes, so that sequence numbers stay unique.
pub(crate) fn split_range_deletes(rng: &mut SmallRng, entries: &mut Vec<Entry>) -> Vec<RangeDelete> {
    let keys: Vec<Vec<u8>> = entries.iter().map(|e| e.0.clone()).collect();
    let mut deletes = Vec::new();
    entries.retain(|entry| {
        if !rng.random_bool(0.06) {
            return true;
        }
        let end = keys[rng.random_range(0..keys.len())].clone();
        deletes.push(RangeDelete { start: entry.0.clone(), end, sequence: entry.1.sequence() });
        false
    });
    deletes
}
