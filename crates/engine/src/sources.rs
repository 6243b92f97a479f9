//! The sorted sources of merges, without dynamic dispatch.

use mycelium_base::{Cursor, EntryRef, ReadCounters, Result, Trailer};
use mycelium_memtable::{MemtableCursor, RecentCursor};
use mycelium_sst::{ColumnPosition, LevelCursor, RunCursor};

use crate::index::StagedCursor;
use crate::traces::TracedRun;

/// What the windows of all sources of a read or a job hold at most, as long as each has the least.
const MOST_WINDOW_BYTES: usize = 64 << 20;
const LEAST_WINDOW_BYTES: usize = 16 << 10;

/// The bytes that each of so many runs is read ahead by, where one would be by `wanted`: a table of many column groups
/// has hundreds of runs, and a bulk load hundreds of files beside each other.
pub(crate) fn shared_read_ahead(wanted: usize, runs: usize) -> usize {
    wanted.min((MOST_WINDOW_BYTES / runs.max(1)).max(LEAST_WINDOW_BYTES))
}

/// One sorted source of a read. Cursors over runs are large, and a read that begins moves its sources about.
pub(crate) enum Source {
    Memtable(MemtableCursor),
    /// What was inserted into a memtable last.
    Recent(RecentCursor),
    Run(Box<LevelCursor>),
    Columns(Box<LevelCursor<ColumnPosition>>),
    Traced(Box<TracedRun>),
}

impl From<RunCursor> for Source {
    fn from(cursor: RunCursor) -> Self {
        match cursor {
            RunCursor::Rows(cursor) => Self::Run(Box::new(cursor)),
            RunCursor::Columns(cursor) => Self::Columns(Box::new(cursor)),
        }
    }
}

/// One sorted source of a job of a derived table.
pub(crate) enum DerivedSource {
    Memtable(MemtableCursor),
    Staged(StagedCursor),
    Run(Box<LevelCursor>),
}

/// Makes an enum of cursors the cursor that it holds.
macro_rules! forward {
    ($source:ident: $($variant:ident),+) => {
        impl Cursor for $source {
            #[inline]
            fn valid(&self) -> bool {
                match self { $(Self::$variant(cursor) => cursor.valid(),)+ }
            }
            #[inline]
            fn key(&self) -> &[u8] {
                match self { $(Self::$variant(cursor) => cursor.key(),)+ }
            }
            #[inline]
            fn trailer(&self) -> Trailer {
                match self { $(Self::$variant(cursor) => cursor.trailer(),)+ }
            }
            #[inline]
            fn value(&self) -> &[u8] {
                match self { $(Self::$variant(cursor) => cursor.value(),)+ }
            }
            fn seek_to_first(&mut self) -> Result<()> {
                match self { $(Self::$variant(cursor) => cursor.seek_to_first(),)+ }
            }
            fn seek_to_last(&mut self) -> Result<()> {
                match self { $(Self::$variant(cursor) => cursor.seek_to_last(),)+ }
            }
            fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
                match self { $(Self::$variant(cursor) => cursor.seek(key, trailer),)+ }
            }
            fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
                match self { $(Self::$variant(cursor) => cursor.seek_before(key, trailer),)+ }
            }
            #[inline]
            fn next(&mut self) -> Result<()> {
                match self { $(Self::$variant(cursor) => cursor.next(),)+ }
            }
            fn visit(&mut self, visit: impl FnMut(&EntryRef<'_>, bool) -> bool) -> Result<()> {
                match self { $(Self::$variant(cursor) => cursor.visit(visit),)+ }
            }
            fn prev(&mut self) -> Result<()> {
                match self { $(Self::$variant(cursor) => cursor.prev(),)+ }
            }
            #[inline]
            fn same_key_as_previous(&self) -> bool {
                match self { $(Self::$variant(cursor) => cursor.same_key_as_previous(),)+ }
            }
            fn fetch_ahead(&self, entries: usize) {
                match self { $(Self::$variant(cursor) => cursor.fetch_ahead(entries),)+ }
            }
            fn add_counters(&self, counters: &mut ReadCounters) {
                match self { $(Self::$variant(cursor) => cursor.add_counters(counters),)+ }
            }
        }
    };
}

forward!(Source: Memtable, Recent, Run, Columns, Traced);
forward!(DerivedSource: Memtable, Staged, Run);

#[cfg(test)]
mod tests {
    use super::*;

    /// Each run had a window of its own size, however many there were.
    #[test]
    fn the_windows_of_many_runs_are_bounded_together() {
        for wanted in [0, 1000, 256 << 10, 64 << 20] {
            for runs in [0, 1, 200, 256, 257, 3_000, 100_000] {
                let each = shared_read_ahead(wanted, runs);
                assert!(each <= wanted && each >= wanted.min(LEAST_WINDOW_BYTES));
                assert!(each * runs <= MOST_WINDOW_BYTES.max(runs * LEAST_WINDOW_BYTES), "{wanted} of {runs}");
            }
        }
        assert_eq!(shared_read_ahead(256 << 10, 256), 256 << 10);
    }
}
