//! A position in a run of files, whatever their blocks hold.

use std::ops::Range;
use std::sync::Arc;

use mycelium_base::{Cursor, EntryRef, ReadCounters, Result, Trailer};

use crate::columnar::{ColumnPosition, WantedColumns};
use crate::cursor::CursorOptions;
use crate::fences::SortedFiles;
use crate::level_cursor::LevelCursor;

/// A cursor over the entries of a run: all its files hold rows, or all columns.
#[derive(Debug)]
pub enum RunCursor {
    /// Of files of rows.
    Rows(LevelCursor),
    /// Of columnar files; values are packed fragments.
    Columns(LevelCursor<ColumnPosition>),
}

impl RunCursor {
    /// A cursor over `files[part]`, which must be sorted, must not overlap and be of one group. `wanted` is asked of
    /// columnar files only. Reads nothing before its first seek.
    ///
    /// # Panics
    /// If `part` is not within `files`.
    pub fn over_part(
        files: Arc<SortedFiles>,
        part: Range<usize>,
        options: CursorOptions,
        wanted: impl FnOnce() -> WantedColumns,
    ) -> Self {
        match files.first() {
            Some(file) if file.is_columnar() => Self::Columns(LevelCursor::wanting(files, part, options, wanted())),
            _ => Self::Rows(LevelCursor::over_part(files, part, options)),
        }
    }

    /// A cursor over `files`, all columns of them.
    pub fn new(files: impl Into<SortedFiles>, options: CursorOptions) -> Self {
        Self::over(Arc::new(files.into()), options)
    }

    /// The same over files that others use, too. Costs one reference count, whatever their number.
    pub fn over(files: Arc<SortedFiles>, options: CursorOptions) -> Self {
        let all = 0..files.len();
        Self::over_part(files, all, options, || WantedColumns::All)
    }
}

macro_rules! each {
    ($self:expr, $cursor:ident => $call:expr) => {
        match $self {
            Self::Rows($cursor) => $call,
            Self::Columns($cursor) => $call,
        }
    };
}

impl Cursor for RunCursor {
    #[inline]
    fn valid(&self) -> bool {
        each!(self, cursor => cursor.valid())
    }

    #[inline]
    fn key(&self) -> &[u8] {
        each!(self, cursor => cursor.key())
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        each!(self, cursor => cursor.trailer())
    }

    #[inline]
    fn value(&self) -> &[u8] {
        each!(self, cursor => cursor.value())
    }

    fn seek_to_first(&mut self) -> Result<()> {
        each!(self, cursor => cursor.seek_to_first())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        each!(self, cursor => cursor.seek_to_last())
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        each!(self, cursor => cursor.seek(key, trailer))
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        each!(self, cursor => cursor.seek_before(key, trailer))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        each!(self, cursor => cursor.next())
    }

    fn visit(&mut self, visit: impl FnMut(&EntryRef<'_>, bool) -> bool) -> Result<()> {
        each!(self, cursor => cursor.visit(visit))
    }

    fn prev(&mut self) -> Result<()> {
        each!(self, cursor => cursor.prev())
    }

    #[inline]
    fn same_key_as_previous(&self) -> bool {
        each!(self, cursor => cursor.same_key_as_previous())
    }

    fn add_counters(&self, counters: &mut ReadCounters) {
        each!(self, cursor => cursor.add_counters(counters))
    }
}
