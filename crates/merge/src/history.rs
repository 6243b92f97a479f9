//! The entries of one key, for a [`crate::CompactionStream`] that is fed key by key.

use std::ops::Range;

use mycelium_base::{Cursor, Error, ReadCounters, Result, Trailer};

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

    /// The key that all entries have.
    pub fn shared_key(&self) -> &[u8] {
        &self.key
    }

    /// The entries, newest first.
    pub fn entries(&self) -> impl Iterator<Item = (Trailer, &[u8])> {
        self.entries.iter().map(|(trailer, place)| (*trailer, &self.bytes[place.clone()]))
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
