//! The entries of one key: for a [`crate::CompactionStream`] that is fed key by key, or to be put together.

use std::ops::Range;
use std::sync::Arc;

use mycelium_base::{Cursor, Error, RangeDeleteSet, ReadCounters, Result, SequenceNumber, Trailer};

use crate::ColumnMerge;

/// A cursor over entries of one key that were put in, newest first. Reused for all keys: allocates nothing once it is
/// large enough. Walks forwards only.
#[derive(Debug, Default)]
pub struct KeyHistory {
    key: Vec<u8>,
    entries: Vec<(Trailer, Range<usize>)>,
    bytes: Vec<u8>,
    at: usize,
}

impl KeyHistory {
    /// Forgets the entries: those of `key` follow.
    pub fn begin(&mut self, key: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(key);
        self.entries.clear();
        self.bytes.clear();
        self.at = 0;
    }

    /// Adds the next older entry, whose value `write` appends; none if it says `false`.
    pub fn push(&mut self, trailer: Trailer, write: impl FnOnce(&mut Vec<u8>) -> Result<bool>) -> Result<()> {
        let start = self.bytes.len();
        if write(&mut self.bytes)? {
            self.entries.push((trailer, start..self.bytes.len()));
        }
        Ok(())
    }

    /// Whether there are no entries.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The trailer of the entry that was pushed last.
    #[inline]
    pub fn last(&self) -> Option<Trailer> {
        self.entries.last().map(|(trailer, _)| *trailer)
    }

    /// Gives the entry that was pushed last another value.
    pub fn set_last(&mut self, value: &[u8]) {
        if let Some((_, place)) = self.entries.last_mut() {
            *place = self.bytes.len()..self.bytes.len() + value.len();
            self.bytes.extend_from_slice(value);
        }
    }

    /// The entries, newest first.
    fn entries(&self) -> impl Iterator<Item = (Trailer, &[u8])> {
        self.entries.iter().map(|(trailer, place)| (*trailer, &self.bytes[place.clone()]))
    }

    /// The entry, if there is only one.
    #[inline]
    pub fn only(&self) -> Option<(Trailer, &[u8])> {
        match self.entries.as_slice() {
            [(trailer, place)] => Some((*trailer, &self.bytes[place.clone()])),
            _ => None,
        }
    }

    fn forwards_only<T>() -> Result<T> {
        Err(Error::invalid("a key's history is walked forwards only"))
    }
}

impl Cursor for KeyHistory {
    #[inline]
    fn valid(&self) -> bool {
        self.at < self.entries.len()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        &self.key
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.entries[self.at].0
    }

    #[inline]
    fn value(&self) -> &[u8] {
        &self.bytes[self.entries[self.at].1.clone()]
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.at = 0;
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        Self::forwards_only()
    }

    fn seek(&mut self, _key: &[u8], _trailer: Trailer) -> Result<()> {
        Self::forwards_only()
    }

    fn seek_before(&mut self, _key: &[u8], _trailer: Trailer) -> Result<()> {
        Self::forwards_only()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        Self::forwards_only()
    }

    #[inline]
    fn same_key_as_previous(&self) -> bool {
        self.at > 0 && self.valid()
    }

    fn add_counters(&self, _counters: &mut ReadCounters) {}
}

/// The fragments that sources of several kinds hold of one row, in all its versions. Reused as [`KeyHistory`] is.
#[derive(Debug, Default)]
pub struct FragmentHistory {
    history: KeyHistory,
    /// Of each entry, the kind of its source.
    kinds: Vec<usize>,
}

impl FragmentHistory {
    /// Forgets the fragments: those of `key` follow.
    pub fn begin(&mut self, key: &[u8]) {
        self.history.begin(key);
        self.kinds.clear();
    }

    /// Adds the next older fragment, from a source of this kind.
    pub fn push(&mut self, kind: usize, trailer: Trailer, value: &[u8]) {
        let start = self.history.bytes.len();
        self.history.bytes.extend_from_slice(value);
        self.history.entries.push((trailer, start..self.history.bytes.len()));
        self.kinds.push(kind);
    }

    /// The key that all fragments have.
    pub fn shared_key(&self) -> &[u8] {
        &self.history.key
    }

    /// The number of fragments.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// The fragments with their kinds, newest first.
    pub fn entries(&self) -> impl Iterator<Item = (usize, Trailer, &[u8])> {
        self.kinds.iter().zip(self.history.entries()).map(|(&kind, (trailer, value))| (kind, trailer, value))
    }

    /// Appends the row as a snapshot at `end` sees it; whether there is one. `range_deletes` are those of the sources,
    /// by their kind. Visits every fragment at most once.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`](mycelium_base::ErrorKind) for a malformed fragment.
    pub fn join(
        &self,
        end: SequenceNumber,
        merge: &mut ColumnMerge,
        range_deletes: &[(Arc<RangeDeleteSet>, usize)],
        row: &mut Vec<u8>,
    ) -> Result<bool> {
        self.gather(end, merge, range_deletes)?;
        merge.finish(row)
    }

    /// As [`FragmentHistory::join`], at a moment that no snapshot sees: column groups are compacted at different times,
    /// so that one may have dropped its part of that row already and another not. Then there is none.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`](mycelium_base::ErrorKind) for a malformed fragment.
    pub fn join_unseen(
        &self,
        end: SequenceNumber,
        merge: &mut ColumnMerge,
        range_deletes: &[(Arc<RangeDeleteSet>, usize)],
        row: &mut Vec<u8>,
    ) -> Result<bool> {
        self.gather(end, merge, range_deletes)?;
        if merge.lacks_columns() { Ok(false) } else { merge.finish(row) }
    }

    fn gather(
        &self,
        end: SequenceNumber,
        merge: &mut ColumnMerge,
        range_deletes: &[(Arc<RangeDeleteSet>, usize)],
    ) -> Result<()> {
        merge.reset();
        for (set, kind) in range_deletes {
            if let Some(sequence) = set.covering(self.shared_key(), end) {
                merge.cover(*kind, sequence);
            }
        }
        for (kind, trailer, value) in self.entries().filter(|(_, trailer, _)| trailer.sequence() <= end) {
            if merge.visit(kind, trailer, value)?.is_break() && merge.is_settled() {
                break;
            }
        }
        Ok(())
    }
}
