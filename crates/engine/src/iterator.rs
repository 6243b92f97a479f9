//! Iterators over the rows of a table.
//!
//! An iterator takes the table's state once: its memtables and files, which it pins, and a sequence number. It then is a
//! [`VisibleCursor`] over a [`MergingCursor`] of one cursor per memtable, per level-0 run and per deeper run. Memtables
//! and files that hold nothing the snapshot sees, or nothing within the bounds, take no part.

use std::sync::Arc;

use mycelium_base::{Cursor, RangeDeleteSet, ReadCounters, Result, Trailer};
use mycelium_memtable::MemtableCursor;
use mycelium_merge::{MergingCursor, VisibleCursor};
use mycelium_sst::{CursorOptions, LevelCursor};

use crate::database::Inner;
use crate::options::ReadOptions;
use crate::snapshot::Snapshot;
use crate::table::{TableShared, TableState};

/// One sorted source of a merge, without dynamic dispatch.
#[expect(clippy::large_enum_variant, reason = "a handful of sources per iterator, each moved once")]
pub(crate) enum Source {
    Memtable(MemtableCursor),
    Run(LevelCursor),
}

macro_rules! each {
    ($self:ident, $cursor:ident => $call:expr) => {
        match $self {
            Self::Memtable($cursor) => $call,
            Self::Run($cursor) => $call,
        }
    };
}

impl Cursor for Source {
    #[inline]
    fn valid(&self) -> bool {
        each!(self, c => c.valid())
    }
    #[inline]
    fn key(&self) -> &[u8] {
        each!(self, c => c.key())
    }
    #[inline]
    fn trailer(&self) -> Trailer {
        each!(self, c => c.trailer())
    }
    #[inline]
    fn value(&self) -> &[u8] {
        each!(self, c => c.value())
    }
    fn seek_to_first(&mut self) -> Result<()> {
        each!(self, c => c.seek_to_first())
    }
    fn seek_to_last(&mut self) -> Result<()> {
        each!(self, c => c.seek_to_last())
    }
    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        each!(self, c => c.seek(key, trailer))
    }
    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        each!(self, c => c.seek_before(key, trailer))
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        each!(self, c => c.next())
    }
    fn prev(&mut self) -> Result<()> {
        each!(self, c => c.prev())
    }
    #[inline]
    fn same_key_as_previous(&self) -> bool {
        each!(self, c => c.same_key_as_previous())
    }
    fn add_counters(&self, counters: &mut ReadCounters) {
        each!(self, c => c.add_counters(counters))
    }
}

/// Walks the rows of a table forwards and backwards. Belongs to one thread at a time.
///
/// ```
/// # use mycelium_engine::{Database, Durability, Options, ReadOptions, TableOptions};
/// # use std::sync::Arc;
/// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
/// # let database = Database::open("example", options)?;
/// # let table = database.create_table("kv", TableOptions::default())?;
/// for key in [b"a", b"b", b"c"] {
///     table.put(key, b"value", Durability::Os)?;
/// }
/// let mut rows = table.iter(&ReadOptions { lower: Some(b"b".to_vec()), ..ReadOptions::default() })?;
/// rows.seek_to_first()?;
/// let mut keys = Vec::new();
/// while rows.valid() {
///     keys.push(rows.key().to_vec());
///     rows.next()?;
/// }
/// assert_eq!(keys, [b"b", b"c"]);
/// # Ok::<(), mycelium_engine::Error>(())
/// ```
pub struct TableIterator {
    rows: VisibleCursor<MergingCursor<Source>>,
    counters: ReadCounters,
    /// Keeps the files from being removed.
    _state: Arc<TableState>,
    /// Keeps the versions from being dropped, if the iterator reads at a snapshot.
    _snapshot: Option<Snapshot>,
}

impl TableIterator {
    pub(crate) fn new(database: &Inner, table: &TableShared, options: &ReadOptions) -> Result<Self> {
        table.check_alive()?;
        let state = table.state.load_full();
        let snapshot = database.read_sequence(options.snapshot.as_ref())?;
        let (lower, upper) = options.bounds();
        let filter_snapshots = table.definition.options.snapshot_filter;
        let mut counters = ReadCounters::default();
        let mut sources = Vec::new();
        let mut range_deletes: Vec<Arc<RangeDeleteSet>> = Vec::new();
        for memtable in state.memtables() {
            if memtable.is_empty() {
                continue;
            }
            if filter_snapshots && memtable.sequence_range().is_some_and(|(oldest, _)| oldest > snapshot) {
                counters.memtables_skipped_by_snapshot += 1;
                continue;
            }
            counters.memtables_searched += 1;
            range_deletes.push(memtable.range_deletes());
            sources.push(Source::Memtable(memtable.cursor()));
        }
        let cursor_options = CursorOptions {
            snapshot: if filter_snapshots { snapshot } else { mycelium_base::MAX_SEQUENCE_NUMBER },
            fill_cache: options.fill_cache,
            read_ahead: options.read_ahead,
        };
        for run in state.tree.levels.iter().flatten() {
            let part = run.within(lower.as_deref(), upper.as_deref());
            let files = &run.files[part.clone()];
            counters.files_considered += run.files.len() as u64;
            counters.files_skipped_by_fence += (run.files.len() - files.len()) as u64;
            if state.tree.has_range_deletes {
                let with = files.iter().filter(|file| file.meta.range_delete_count > 0);
                range_deletes.extend(with.map(|file| file.sst.range_deletes().clone()));
            }
            let seen = !filter_snapshots || files.iter().any(|file| file.sst.min_sequence() <= snapshot);
            if files.is_empty() || !seen {
                counters.files_skipped_by_snapshot += files.len() as u64;
                continue;
            }
            sources.push(Source::Run(LevelCursor::over_part(run.ssts.clone(), part, cursor_options)));
        }
        let merged = MergingCursor::new(sources);
        let rows = VisibleCursor::new(merged, snapshot, range_deletes, table.combiner.clone(), lower, upper);
        Ok(Self { rows, counters, _state: state, _snapshot: options.snapshot.clone() })
    }

    /// Whether the iterator stands on a row.
    #[inline]
    pub fn valid(&self) -> bool {
        self.rows.valid()
    }

    /// The row's key, until the next move. The iterator must be valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.rows.key()
    }

    /// The row's value, until the next move. The iterator must be valid.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.rows.value()
    }

    /// To the first row within the bounds.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.rows.seek_to_first()
    }

    /// To the last row within the bounds.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.rows.seek_to_last()
    }

    /// To the first row at or after `key`, within the bounds.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.rows.seek(key)
    }

    /// To the last row at or before `key`, within the bounds.
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.rows.seek_for_prev(key)
    }

    /// To the next row; does nothing on an invalid iterator.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "rows are lent, which `Iterator` cannot express")]
    pub fn next(&mut self) -> Result<()> {
        if self.rows.valid() { self.rows.next() } else { Ok(()) }
    }

    /// To the previous row; does nothing on an invalid iterator.
    pub fn prev(&mut self) -> Result<()> {
        if self.rows.valid() { self.rows.prev() } else { Ok(()) }
    }

    /// What this iterator has read and skipped so far.
    pub fn counters(&self) -> ReadCounters {
        let mut counters = self.counters;
        self.rows.add_counters(&mut counters);
        counters
    }
}
