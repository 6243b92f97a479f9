//! A position in a level: a sorted list of files whose key ranges do not overlap.
//!
//! One file is open at a time. Files whose entries are all newer than the cursor's snapshot are passed over without
//! being touched: the snapshot filter for scans (Kim, section V).

use std::ops::Range;
use std::sync::Arc;

use mycelium_base::{Cursor, EntryRef, ReadCounters, Result, Trailer};

use crate::block::{BlockCursor, BlockPosition};
use crate::columnar::{ColumnBlock, ColumnPosition};
use crate::cursor::{CursorOptions, SstCursor};
use crate::fences::SortedFiles;
use crate::index::IndexEntry;
use crate::reader::SstFile;

/// A cursor over the entries of a run of files, ascending by fence. Owns what it needs; used by one thread at a time.
#[derive(Debug)]
pub struct LevelCursor<B: BlockPosition = BlockCursor> {
    files: Arc<SortedFiles>,
    /// What is wanted of every entry.
    wanted: B::Wanted,
    /// The files that take part.
    part: Range<usize>,
    options: CursorOptions,
    current: usize,
    cursor: Option<SstCursor<B>>,
    last_key: Vec<u8>,
    /// Of the files left behind.
    counters: ReadCounters,
}

impl LevelCursor {
    /// A cursor over `files` of rows, which must be sorted and must not overlap. Reads nothing before its first seek.
    pub fn new(files: impl Into<SortedFiles>, options: CursorOptions) -> Self {
        let files = Arc::new(files.into());
        let all = 0..files.len();
        Self::over_part(files, all, options)
    }

    /// A cursor over `files[part]` only. Costs one reference count, whatever the number of files.
    ///
    /// # Panics
    /// If `part` is not within `files`.
    pub fn over_part(files: Arc<SortedFiles>, part: Range<usize>, options: CursorOptions) -> Self {
        Self::wanting(files, part, options, ())
    }
}

impl LevelCursor<ColumnPosition> {
    /// The position in the current block.
    pub fn position(&mut self) -> Option<&mut ColumnPosition> {
        self.cursor.as_mut().map(SstCursor::position)
    }

    /// The current block, the row in it, the file and the block's number in it.
    pub fn block(&self) -> Option<(&ColumnBlock, usize, &Arc<SstFile>, usize)> {
        let cursor = self.cursor.as_ref()?;
        cursor.block().map(|(block, row, number)| (block, row, cursor.file(), number))
    }

    /// To a row of the current block, or past its rows to the first entry after them.
    ///
    /// # Errors
    /// As those of [`Cursor::next`].
    pub fn go_to(&mut self, row: usize) -> Result<()> {
        let Some(cursor) = &mut self.cursor else { return Ok(()) };
        cursor.go_to(row)?;
        if cursor.valid() { Ok(()) } else { self.next_file(self.current) }
    }

    /// From a row of the current block to the first entry behind the block. Blocks of the file that come next and of
    /// which `is_passed` says so are passed over and not read, as far as all their keys are before `bound`; how many
    /// they are.
    ///
    /// # Errors
    /// As those of [`Cursor::next`], and those of `is_passed`, which is asked of the file, the number of a block, and
    /// what the index says of it.
    pub fn pass_blocks(
        &mut self,
        bound: Option<&[u8]>,
        is_passed: impl FnMut(&SstFile, usize, &IndexEntry) -> Result<bool>,
    ) -> Result<u64> {
        let Some(cursor) = &mut self.cursor else { return Ok(0) };
        self.last_key.clear();
        self.last_key.extend_from_slice(cursor.key());
        let passed = cursor.pass_blocks(bound, is_passed)?;
        if !cursor.valid() {
            self.next_file(self.current)?;
        }
        Ok(passed)
    }

    /// Another cursor over the same, for single keys here and there: it reads no more than their blocks.
    pub fn for_single_keys(&self) -> Self {
        let options = CursorOptions { read_ahead: 0, expected: 0, ..self.options };
        Self::wanting(Arc::clone(&self.files), self.part.clone(), options, self.wanted.clone())
    }
}

impl<B: BlockPosition> LevelCursor<B> {
    /// Whether a file that the snapshot sees something of may hold entries of `key`, by its fence and its Bloom filter.
    /// `hash` is [`mycelium_base::hash::hash_key`]'s. O(log files).
    pub fn may_contain(&self, key: &[u8], hash: u64) -> bool {
        let first = self.files.first_not_before(key, &self.part);
        // Versions of a key may go on in the next file.
        self.files[first..self.part.end].iter().take_while(|file| file.smallest() <= key).any(|file| {
            file.min_sequence() <= self.options.snapshot && file.block_count() > 0 && file.may_contain(hash)
        })
    }

    /// As [`LevelCursor::over_part`], over files of such blocks.
    pub(crate) fn wanting(
        files: Arc<SortedFiles>,
        part: Range<usize>,
        options: CursorOptions,
        wanted: B::Wanted,
    ) -> Self {
        assert!(part.start <= part.end && part.end <= files.len(), "the part lies outside the files");
        let (last_key, counters) = (Vec::new(), ReadCounters::default());
        Self { files, wanted, part, options, current: 0, cursor: None, last_key, counters }
    }

    /// The current file's cursor.
    pub fn current(&self) -> Option<&SstCursor<B>> {
        self.cursor.as_ref()
    }

    fn is_visible(&mut self, i: usize) -> bool {
        let file = &self.files[i];
        if file.block_count() == 0 {
            return false;
        }
        let visible = file.min_sequence() <= self.options.snapshot;
        self.counters.files_skipped_by_snapshot += u64::from(!visible);
        visible
    }

    /// The cursor of file `i`, kept if it is the current one, of which `expected` bytes are likely to be read.
    fn open(&mut self, i: usize, expected: usize) -> &mut SstCursor<B> {
        if self.current != i {
            self.leave();
            self.current = i;
        }
        let over = || SstCursor::over(&self.files[i], self.options, &self.wanted);
        let cursor = self.cursor.get_or_insert_with(over);
        cursor.set_expected(expected);
        cursor
    }

    fn leave(&mut self) {
        if let Some(cursor) = self.cursor.take() {
            cursor.add_counters(&mut self.counters);
        }
    }

    /// To the first entry of the first file from `i` on, of which `expected` bytes are likely to be read.
    fn first_from(&mut self, mut i: usize, expected: usize) -> Result<()> {
        while i < self.part.end {
            if self.is_visible(i) {
                let cursor = self.open(i, expected);
                cursor.seek_to_first()?;
                if cursor.valid() {
                    return Ok(());
                }
            }
            i += 1;
        }
        self.leave();
        Ok(())
    }

    /// To the last entry of the last file before `i`.
    fn last_before(&mut self, mut i: usize) -> Result<()> {
        while i > self.part.start {
            i -= 1;
            if self.is_visible(i) {
                let cursor = self.open(i, self.options.expected);
                cursor.seek_to_last()?;
                if cursor.valid() {
                    return Ok(());
                }
            }
        }
        self.leave();
        Ok(())
    }

    #[inline(never)]
    fn next_file(&mut self, i: usize) -> Result<()> {
        let expected = self.cursor.as_ref().map_or(0, SstCursor::expected_behind);
        self.first_from(i + 1, expected)?;
        let same = self.cursor.as_ref().is_some_and(|cursor| cursor.valid() && cursor.key() == self.last_key);
        if let Some(cursor) = &mut self.cursor {
            cursor.set_same_key(same);
        }
        Ok(())
    }

    #[inline(never)]
    fn next_by_block(&mut self) -> Result<()> {
        let Some(cursor) = &mut self.cursor else { return Ok(()) };
        self.last_key.clear();
        self.last_key.extend_from_slice(cursor.key());
        cursor.next()?;
        if cursor.valid() { Ok(()) } else { self.next_file(self.current) }
    }
}

impl<B: BlockPosition> Cursor for LevelCursor<B> {
    #[inline]
    fn valid(&self) -> bool {
        self.cursor.as_ref().is_some_and(Cursor::valid)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.cursor.as_ref().map_or(&[], Cursor::key)
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.cursor.as_ref().map_or(Trailer::OLDEST, Cursor::trailer)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.cursor.as_ref().map_or(&[], Cursor::value)
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.first_from(self.part.start, self.options.expected)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.last_before(self.part.end)
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        let mut i = self.files.first_not_before(key, &self.part);
        while i < self.part.end {
            if self.is_visible(i) {
                let cursor = self.open(i, self.options.expected);
                cursor.seek(key, trailer)?;
                if cursor.valid() {
                    return Ok(());
                }
            }
            i += 1;
        }
        self.leave();
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        let part = &self.files[self.part.clone()];
        let mut i = self.part.start + part.partition_point(|file| file.smallest() <= key);
        while i > self.part.start {
            i -= 1;
            if self.is_visible(i) {
                let cursor = self.open(i, self.options.expected);
                cursor.seek_before(key, trailer)?;
                if cursor.valid() {
                    return Ok(());
                }
            }
        }
        self.leave();
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        match &mut self.cursor {
            Some(cursor) if !cursor.at_block_end() => cursor.next(),
            _ => self.next_by_block(),
        }
    }

    fn visit(&mut self, mut visit: impl FnMut(&EntryRef<'_>, bool) -> bool) -> Result<()> {
        while let Some(cursor) = self.cursor.as_mut().filter(|cursor| cursor.valid()) {
            if !cursor.visit_block(&mut visit)? {
                break;
            }
            self.next_by_block()?;
        }
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        let Some(cursor) = &mut self.cursor else { return Ok(()) };
        cursor.prev()?;
        if cursor.valid() { Ok(()) } else { self.last_before(self.current) }
    }

    #[inline]
    fn same_key_as_previous(&self) -> bool {
        self.cursor.as_ref().is_some_and(Cursor::same_key_as_previous)
    }

    fn add_counters(&self, counters: &mut ReadCounters) {
        *counters += self.counters;
        if let Some(cursor) = &self.cursor {
            cursor.add_counters(counters);
        }
    }
}
