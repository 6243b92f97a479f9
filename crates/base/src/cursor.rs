//! The one interface between everything that stores entries and everything that merges them.

use crate::{EntryRef, ReadCounters, Result, Trailer};

/// A position in a sorted sequence of entries (key ascending, newest first; see [`crate::compare_entries`]).
///
/// A cursor starts invalid; `seek*` positions it. After an error it is invalid. `key`, `trailer` and `value` may be
/// called only while `valid()`, and their slices live until the next move. Memtables, SSTs, levels and merges implement
/// it.
pub trait Cursor {
    /// Whether the cursor stands on an entry.
    fn valid(&self) -> bool;
    /// The entry's key.
    fn key(&self) -> &[u8];
    /// The entry's sequence number and operation.
    fn trailer(&self) -> Trailer;
    /// The entry's value.
    fn value(&self) -> &[u8];
    /// To the first entry.
    fn seek_to_first(&mut self) -> Result<()>;
    /// To the last entry.
    fn seek_to_last(&mut self) -> Result<()>;
    /// To the first entry at or after (`key`, `trailer`).
    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()>;
    /// To the last entry before (`key`, `trailer`).
    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()>;
    /// To the next entry; must be valid.
    fn next(&mut self) -> Result<()>;
    /// To the previous entry; must be valid.
    fn prev(&mut self) -> Result<()>;
    /// After a `next()`: whether this entry has the same key as the one the cursor stood on before. Exact; `false`
    /// after any other move.
    fn same_key_as_previous(&self) -> bool;
    /// The entry; the cursor must be valid.
    #[inline]
    fn entry(&self) -> EntryRef<'_> {
        EntryRef { key: self.key(), trailer: self.trailer(), value: self.value() }
    }
    /// Shows `visit` the entry that the cursor stands on, and whether it has the same key as the one before (of the
    /// first see [`Cursor::same_key_as_previous`]), and goes to the next, again and again: to the end, or until `visit`
    /// says `false`, and the cursor stays on that entry. The same as to do so step by step, but where cursors lie over
    /// cursors what they find out at each step is found out for many entries at once.
    fn visit(&mut self, mut visit: impl FnMut(&EntryRef<'_>, bool) -> bool) -> Result<()>
    where
        Self: Sized,
    {
        while self.valid() && visit(&self.entry(), self.same_key_as_previous()) {
            self.next()?;
        }
        Ok(())
    }
    /// A hint that about so many entries, from the current one on, are about to be read: what lies scattered in memory
    /// is fetched into the processor's caches, many cache misses at a time. Does not move the cursor.
    fn fetch_ahead(&self, _entries: usize) {}
    /// Adds what this cursor read and skipped so far to `counters`.
    fn add_counters(&self, counters: &mut ReadCounters);
}

impl<C: Cursor> Cursor for Box<C> {
    #[inline]
    fn valid(&self) -> bool {
        (**self).valid()
    }
    #[inline]
    fn key(&self) -> &[u8] {
        (**self).key()
    }
    #[inline]
    fn trailer(&self) -> Trailer {
        (**self).trailer()
    }
    #[inline]
    fn value(&self) -> &[u8] {
        (**self).value()
    }
    fn seek_to_first(&mut self) -> Result<()> {
        (**self).seek_to_first()
    }
    fn seek_to_last(&mut self) -> Result<()> {
        (**self).seek_to_last()
    }
    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        (**self).seek(key, trailer)
    }
    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        (**self).seek_before(key, trailer)
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        (**self).next()
    }
    fn visit(&mut self, visit: impl FnMut(&EntryRef<'_>, bool) -> bool) -> Result<()> {
        (**self).visit(visit)
    }
    fn prev(&mut self) -> Result<()> {
        (**self).prev()
    }
    #[inline]
    fn same_key_as_previous(&self) -> bool {
        (**self).same_key_as_previous()
    }
    fn fetch_ahead(&self, entries: usize) {
        (**self).fetch_ahead(entries);
    }
    fn add_counters(&self, counters: &mut ReadCounters) {
        (**self).add_counters(counters)
    }
}
