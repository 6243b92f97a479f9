//! A cursor over a run of columnar files whose entries stay encoded: for who merges keys and takes the cells as they
//! are.
//!
//! An entry's fragment is put together only when its value is asked for, as that of a patch is which is to be folded.

use std::cell::OnceCell;
use std::sync::Arc;

use mycelium_base::{Cursor, Error, ReadCounters, Result, Trailer};
use mycelium_encoding::PackedLayout;

use super::picks::Pick;
use super::position::{ColumnPosition, WantedColumns};
use crate::cursor::CursorOptions;
use crate::fences::SortedFiles;
use crate::level_cursor::LevelCursor;

/// A cursor over a run of columnar files; see the module.
#[derive(Debug)]
pub struct EncodedCursor {
    run: LevelCursor<ColumnPosition>,
    /// The current entry's fragment, once its value was asked for.
    fragment: OnceCell<Vec<u8>>,
    /// Why the fragment could not be made; the next move says so.
    failure: OnceCell<Error>,
}

impl EncodedCursor {
    /// A cursor over `files`, which must be sorted, must not overlap and must be columnar with the columns of this
    /// layout (see [`SstFile::has_columns`](crate::SstFile::has_columns)). Reads nothing before its first seek.
    pub fn new(files: impl Into<SortedFiles>, options: CursorOptions, layout: Arc<PackedLayout>) -> Self {
        let files = Arc::new(files.into());
        let all = 0..files.len();
        let run = LevelCursor::wanting(files, all, options, WantedColumns::Blocks(layout));
        Self { run, fragment: OnceCell::new(), failure: OnceCell::new() }
    }

    /// The current entry's cells.
    #[inline]
    pub fn pick(&self) -> Option<Pick<'_>> {
        self.run.current().and_then(|cursor| cursor.shared_block())
    }

    /// Forgets the entry left, and says what was wrong with its cells.
    #[inline]
    fn leave(&mut self) -> Result<()> {
        self.fragment.take();
        self.failure.take().map_or(Ok(()), Err)
    }

    /// As [`Cursor::value`]; nothing where a cell is malformed, of which the next move tells.
    fn make_fragment(&self) -> Vec<u8> {
        let mut fragment = Vec::new();
        let made = self.run.current().map_or(Ok(()), |cursor| cursor.write_fragment(&mut fragment));
        if let Err(error) = made {
            // None is there: a fragment is made once, and whoever leaves the entry takes the failure along.
            drop(self.failure.set(error));
        }
        fragment
    }
}

impl Cursor for EncodedCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.run.valid()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.run.key()
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.run.trailer()
    }

    fn value(&self) -> &[u8] {
        self.fragment.get_or_init(|| self.make_fragment())
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.leave()?;
        self.run.seek_to_first()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.leave()?;
        self.run.seek_to_last()
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.leave()?;
        self.run.seek(key, trailer)
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.leave()?;
        self.run.seek_before(key, trailer)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.leave()?;
        self.run.next()
    }

    fn prev(&mut self) -> Result<()> {
        self.leave()?;
        self.run.prev()
    }

    #[inline]
    fn same_key_as_previous(&self) -> bool {
        self.run.same_key_as_previous()
    }

    fn add_counters(&self, counters: &mut ReadCounters) {
        self.run.add_counters(counters);
    }
}
