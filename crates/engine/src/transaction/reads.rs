//! What a serializable transaction has read, and any has locked: keys and intervals, in bounded memory.
//!
//! Intervals that overlap are merged as they come. When the set outgrows its limit, neighbouring keys and intervals are
//! merged by eights into the intervals that span them, gaps included, as often as it takes. That only ever adds to what
//! is noted, so no conflict is missed.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use mycelium_base::TableId;
use mycelium_encoding::key::key_successor;

use crate::table::Table;

/// Reads merged into one when memory runs out.
const MERGED: usize = 8;
/// Memory that a noted read takes beyond its keys.
const OVERHEAD: usize = 64;

/// The noted reads of one table.
pub(super) struct TableReads {
    table: Table,
    keys: BTreeSet<Vec<u8>>,
    /// Start to end (`None`: unbounded); no two overlap.
    ranges: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

/// The noted reads of a transaction.
pub(super) struct ReadSet {
    tables: BTreeMap<TableId, TableReads>,
    bytes: usize,
    limit: usize,
}

impl TableReads {
    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(Vec::as_slice)
    }

    /// Intervals as start and exclusive end.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.ranges.iter().map(|(start, end)| (start.as_slice(), end.as_deref()))
    }

    /// Whether `key` was read, alone or with an interval.
    pub(super) fn touches(&self, key: &[u8]) -> bool {
        self.keys.contains(key) || self.holds(key)
    }

    /// Whether anything of `[start, end)` was read.
    pub(super) fn touches_range(&self, start: &[u8], end: &[u8]) -> bool {
        if start >= end {
            return false;
        }
        let within = (Bound::Included(start), Bound::Excluded(end));
        // Intervals do not overlap: of those that begin before `end`, the last one ends last.
        let last = self.ranges.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(end))).next_back();
        self.keys.range::<[u8], _>(within).next().is_some()
            || last.is_some_and(|(_, to)| to.as_deref().is_none_or(|to| start < to))
    }

    fn len(&self) -> usize {
        self.keys.len() + self.ranges.len()
    }

    fn bytes(&self) -> usize {
        let keys: usize = self.keys.iter().map(|key| key.len() + OVERHEAD).sum();
        keys + self.ranges.iter().map(|(start, end)| range_bytes(start, end.as_deref())).sum::<usize>()
    }

    fn holds(&self, key: &[u8]) -> bool {
        let before = self.ranges.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
        before.is_some_and(|(_, end)| end.as_deref().is_none_or(|end| key < end))
    }

    /// Adds an interval; returns by how many bytes the set grew (wrapping: it may shrink).
    fn add_range(&mut self, mut start: Vec<u8>, mut end: Option<Vec<u8>>) -> isize {
        let before = self.ranges.range::<[u8], _>((Bound::Unbounded, Bound::Included(&*start))).next_back();
        if let Some((first, last)) = before
            && last.as_ref().is_none_or(|last| *last >= start)
        {
            start.clone_from(first);
        }
        let mut grown = 0;
        loop {
            let next = self.ranges.range::<[u8], _>((Bound::Included(&*start), Bound::Unbounded)).next();
            let Some((first, last)) = next else { break };
            if end.as_ref().is_some_and(|end| first > end) {
                break;
            }
            let (first, last) = (first.clone(), last.clone());
            grown -= range_bytes(&first, last.as_deref()) as isize;
            self.ranges.remove(&first);
            end = match (end, last) {
                (Some(end), Some(last)) => Some(end.max(last)),
                _ => None,
            };
        }
        grown += range_bytes(&start, end.as_deref()) as isize;
        self.ranges.insert(start, end);
        grown
    }

    /// Merges neighbours by eights.
    fn coarsen(&mut self) {
        let keys = std::mem::take(&mut self.keys).into_iter().map(|key| {
            let end = key_successor(&key);
            (key, Some(end))
        });
        let mut all: Vec<(Vec<u8>, Option<Vec<u8>>)> = keys.chain(std::mem::take(&mut self.ranges)).collect();
        all.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        for group in all.chunks(MERGED) {
            let end = group.iter().map(|(_, end)| end.clone()).reduce(|a, b| Some(a?.max(b?)));
            self.add_range(group[0].0.clone(), end.unwrap_or_default());
        }
    }
}

fn range_bytes(start: &[u8], end: Option<&[u8]>) -> usize {
    start.len() + end.map_or(0, <[u8]>::len) + OVERHEAD
}

impl ReadSet {
    pub(super) fn new(limit: usize) -> Self {
        Self { tables: BTreeMap::new(), bytes: 0, limit }
    }

    pub(super) fn tables(&self) -> impl Iterator<Item = &TableReads> {
        self.tables.values()
    }

    /// What was read of a table, if anything.
    pub(super) fn of_table(&self, table: TableId) -> Option<&TableReads> {
        self.tables.get(&table)
    }

    /// Whether a key was read, alone or with an interval.
    pub(super) fn is_noted(&self, table: TableId, key: &[u8]) -> bool {
        self.of_table(table).is_some_and(|reads| reads.touches(key))
    }

    fn of(&mut self, table: &Table) -> &mut TableReads {
        match self.tables.entry(table.id()) {
            Entry::Occupied(reads) => reads.into_mut(),
            Entry::Vacant(slot) => {
                slot.insert(TableReads { table: table.clone(), keys: BTreeSet::new(), ranges: BTreeMap::new() })
            }
        }
    }

    /// Notes that `key` was read.
    pub(super) fn add_key(&mut self, table: &Table, key: &[u8]) {
        let reads = self.of(table);
        if !reads.holds(key) && reads.keys.insert(key.to_vec()) {
            self.bytes += key.len() + OVERHEAD;
            self.keep_limit();
        }
    }

    /// Notes that everything of `[start, end)` was read.
    pub(super) fn add_range(&mut self, table: &Table, start: Vec<u8>, end: Option<Vec<u8>>) {
        if end.as_ref().is_some_and(|end| *end <= start) {
            return;
        }
        let grown = self.of(table).add_range(start, end);
        self.bytes = self.bytes.saturating_add_signed(grown);
        self.keep_limit();
    }

    fn keep_limit(&mut self) {
        while self.bytes > self.limit {
            let Some(largest) = self.tables.values_mut().max_by_key(|reads| reads.len()).filter(|r| r.len() > 1) else {
                return;
            };
            largest.coarsen();
            self.bytes = self.tables.values().map(TableReads::bytes).sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::{Database, Options, TableOptions};

    fn is_noted(set: &ReadSet, key: &[u8]) -> bool {
        set.tables().any(|reads| reads.touches(key))
    }

    #[test]
    fn nothing_read_is_forgotten_and_little_else_is_noted() {
        let options = Options {
            disk: std::sync::Arc::new(mycelium_vfs::MemoryDisk::new()),
            background: crate::Background::Manual,
            ..Options::default()
        };
        let database = Database::open("db", options).unwrap();
        let table = database.create_table("t", TableOptions::default()).unwrap();
        for (seed, limit) in [(1, usize::MAX), (2, 4000), (3, 500), (4, 0)] {
            let mut rng = SmallRng::seed_from_u64(seed);
            let mut set = ReadSet::new(limit);
            let mut read = BTreeSet::new();
            let key = |n: u32| n.to_be_bytes().to_vec();
            for _ in 0..400 {
                let from = rng.random_range(0..5000);
                if rng.random_bool(0.7) {
                    set.add_key(&table, &key(from));
                    read.insert(from);
                } else {
                    let to = from + rng.random_range(0..40);
                    let end = rng.random_bool(0.99).then(|| key(to));
                    read.extend(from..end.as_ref().map_or(6000, |_| to));
                    set.add_range(&table, key(from), end);
                }
                let reads = set.tables.values().next();
                assert_eq!(set.bytes, reads.map_or(0, TableReads::bytes));
                assert!(set.bytes <= limit || reads.is_some_and(|reads| reads.len() == 1));
            }
            for n in 0..6000 {
                let (noted, is_read) = (is_noted(&set, &key(n)), read.contains(&n));
                assert!(noted || !is_read, "seed {seed}: {n} was forgotten");
                assert!(limit < usize::MAX || noted == is_read, "seed {seed}: {n} was not read");
            }
        }
    }
}
