//! A transaction's own writes to one table, by key.
//!
//! Values are not kept here: an entry knows where its value lies in the transaction's batch. The entry's place in the
//! batch, counted from 1, takes the part of a sequence number, so that own range deletes and own entries relate as
//! committed ones do, and the snapshot's rows, at 0, lie below all of them.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use mycelium_base::{EntryRef, MAX_SEQUENCE_NUMBER, Operation, RangeDelete, RangeDeleteSets, SequenceNumber, Trailer};
use mycelium_merge::Lookup;

use crate::sync::Mutex;

/// One write.
struct Own {
    trailer: Trailer,
    /// Where the value lies in the batch's body.
    value: Range<usize>,
}

/// The writes of a transaction to one table.
#[derive(Default)]
pub(super) struct Overlay {
    /// Oldest first, never empty.
    versions: BTreeMap<Vec<u8>, Vec<Own>>,
    /// In the order of the batch.
    range_deletes: Vec<RangeDelete>,
    /// Of the first of them; grown by lookups.
    range_delete_sets: Mutex<RangeDeleteSets>,
}

impl Overlay {
    pub(super) fn is_empty(&self) -> bool {
        self.versions.is_empty() && self.range_deletes.is_empty()
    }

    /// Adds the operation that ends at `position` of the batch.
    pub(super) fn add(&mut self, position: (usize, u32), operation: Operation, key: &[u8], value: &[u8]) {
        let (end, ordinal) = (position.0, u64::from(position.1));
        if operation == Operation::RangeDelete {
            let delete = RangeDelete { start: key.to_vec(), end: value.to_vec(), sequence: ordinal };
            self.range_deletes.push(delete);
            return;
        }
        let own = Own { trailer: Trailer::new(ordinal, operation), value: end - value.len()..end };
        match self.versions.get_mut(key) {
            Some(versions) => versions.push(own),
            None => drop(self.versions.insert(key.to_vec(), vec![own])),
        }
    }

    /// Takes an operation back. Those taken back together may come in any order, but must be the last ones.
    pub(super) fn undo(&mut self, entry: EntryRef<'_>) {
        if entry.trailer.operation() == Operation::RangeDelete {
            self.range_deletes.pop();
            self.range_delete_sets.lock().truncate(self.range_deletes.len());
        } else if let Some(versions) = self.versions.get_mut(entry.key) {
            versions.pop();
            if versions.is_empty() {
                self.versions.remove(entry.key);
            }
        }
    }

    /// The newest range delete that covers `key`.
    fn covering_range_delete(&self, key: &[u8]) -> Option<SequenceNumber> {
        if self.range_deletes.is_empty() {
            return None;
        }
        let mut sets = self.range_delete_sets.lock();
        sets.grow(&self.range_deletes);
        sets.covering(key, MAX_SEQUENCE_NUMBER)
    }

    /// Whether a range delete covers `key`.
    pub(super) fn covers(&self, key: &[u8]) -> bool {
        self.covering_range_delete(key).is_some()
    }

    /// Hands the own entries of `key` to `lookup`.
    pub(super) fn look_up(&self, body: &[u8], key: &[u8], lookup: &mut Lookup) {
        if let Some(sequence) = self.covering_range_delete(key) {
            lookup.cover(sequence);
        }
        for own in self.versions.get(key).into_iter().flatten().rev() {
            if lookup.visit(own.trailer, body.get(own.value.clone()).unwrap_or_default()).is_break() {
                return;
            }
        }
    }

    /// Keys written, range deletes apart, ascending.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.versions.keys().map(Vec::as_slice)
    }

    /// Intervals `[start, end)` deleted.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.range_deletes.iter().map(|delete| (delete.start.as_slice(), delete.end.as_slice()))
    }

    /// Whether `key` was written or its interval deleted.
    pub(super) fn touches(&self, key: &[u8]) -> bool {
        self.versions.contains_key(key) || self.covers(key)
    }

    /// Whether a key of `[start, end)` was written, or an interval deleted that has a part of it.
    pub(super) fn touches_range(&self, start: &[u8], end: &[u8]) -> bool {
        self.first_within(Bound::Included(start), Bound::Excluded(end)).is_some() || self.deletes_within(start, end)
    }

    /// Whether an interval was deleted that has a part of `[start, end)`.
    fn deletes_within(&self, start: &[u8], end: &[u8]) -> bool {
        if self.range_deletes.is_empty() {
            return false;
        }
        let mut sets = self.range_delete_sets.lock();
        sets.grow(&self.range_deletes);
        sets.iter().any(|set| set.fragments_within(start, Some(end)).next().is_some())
    }

    /// The first key written within the bounds.
    pub(super) fn first_within(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Option<&[u8]> {
        if is_empty(lower, upper) {
            return None;
        }
        self.versions.range::<[u8], _>((lower, upper)).next().map(|(key, _)| key.as_slice())
    }

    /// The last key written within the bounds.
    pub(super) fn last_within(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Option<&[u8]> {
        if is_empty(lower, upper) {
            return None;
        }
        self.versions.range::<[u8], _>((lower, upper)).next_back().map(|(key, _)| key.as_slice())
    }
}

/// Bounds that a `BTreeMap` would refuse, or that hold nothing.
fn is_empty(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> bool {
    match (lower, upper) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
    }
}
