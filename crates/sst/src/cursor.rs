//! A position in a file.
//!
//! 1. A seek searches the index for the block, loads it, and searches in it.
//! 2. `next` stays within the block, which is the fast path; at its end the next visible block is loaded.
//! 3. A block comes from the read-ahead window if it lies there, else from the cache, else from the file: alone, or
//!    with read-ahead as one read of up to `read_ahead` bytes of blocks in the direction of travel, each verified when
//!    it is entered. Where nobody asked for read-ahead the window is small after a seek and grows by half each time
//!    only after a while, so that short scans read little; what comes next is announced to the disk farther ahead.
//!    Where the caller says how much is likely to be read ([`CursorOptions::expected`]), a read takes the blocks that
//!    are more likely to be needed than not. From one cached block to the next there may be a link, which saves looking
//!    it up ([`mycelium_cache::ChainedBlock`]).
//!
//! The snapshot filter: blocks whose entries are all newer than the cursor's snapshot are passed over in both
//! directions without being read (Kim, "snapshot filters", section V).

use std::sync::Arc;
use std::time::Instant;

use mycelium_base::{Cursor, EntryRef, Error, MAX_SEQUENCE_NUMBER, ReadCounters, Result, SequenceNumber, Trailer};
use mycelium_cache::ChainedBlock;

use crate::block::{BlockCursor, BlockPosition, KeyBuffer, Step, payload_in_memory};
use crate::columnar::{ColumnBlock, ColumnPosition, Pick};
use crate::compression::{Decompressor, STORED, exclusive};
use crate::index::{Index, IndexEntry};
use crate::reader::{SstFile, malformed_part};
use crate::writer::nanoseconds_since;

/// How a cursor reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CursorOptions {
    /// Blocks whose entries are all newer are skipped; `MAX_SEQUENCE_NUMBER` skips none. Entries newer than it still
    /// come up where they share a block with others: visibility is for the caller to decide.
    pub snapshot: SequenceNumber,
    /// Whether blocks read are put into the cache.
    pub fill_cache: bool,
    /// The bytes read at once, at most 64 MiB; 0 reads single blocks until the cursor has gone from one to the next,
    /// and then grows by itself up to 256 KiB.
    pub read_ahead: usize,
    /// Where `read_ahead` is 0: the bytes that are likely to be read from where a seek leads to, at most 256 KiB. What
    /// is not cached of so many is read at once, and behind them less than without. 0 if it is not known.
    pub expected: usize,
}

impl Default for CursorOptions {
    fn default() -> Self {
        Self { snapshot: MAX_SEQUENCE_NUMBER, fill_cache: true, read_ahead: 0, expected: 0 }
    }
}

/// The reads from one block to the next after a seek, in bytes, until [`STEADY`] bytes are read: what is read beyond
/// the end of a range costs as much as what is read within it.
const FIRST_WINDOW: usize = 16 << 10;
/// The bytes read since a seek from which on windows grow.
const STEADY: usize = 128 << 10;
/// Of the blocks read ahead one in so many is timed.
const DECODE_SAMPLE: usize = 8;
const MAX_WINDOW: usize = 64 << 20;
/// The largest read of a cursor that was not told to read ahead.
const AUTOMATIC_WINDOW: usize = 256 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Forward,
    Backward,
}

/// A cursor over the entries of one file (not its range deletes). Owns what it needs; used by one thread at a time.
///
/// `B` is the kind of the file's blocks: rows, or columns ([`ColumnPosition`](crate::ColumnPosition)).
#[derive(Debug)]
pub struct SstCursor<B: BlockPosition = BlockCursor> {
    block: B,
    file: Arc<SstFile>,
    options: CursorOptions,
    /// The framed index, once it was needed.
    index: Option<Arc<[u8]>>,
    current: usize,
    last_key: KeyBuffer,
    chain: Chain,
    window: Window,
    decompressor: Decompressor,
    counters: ReadCounters,
}

/// Of so many blocks that are linked one is looked up all the same: the cache's policy is to know that they are used.
const LOOKUP_SAMPLE: u32 = 16;

/// The current block's place among the cached blocks.
#[derive(Default, Debug)]
struct Chain {
    /// The current block, if it is cached.
    current: Option<ChainedBlock>,
    /// The one linked behind it.
    upcoming: Option<ChainedBlock>,
    /// The one behind that, whose start the processor is fetching.
    later: Option<ChainedBlock>,
    followed: u32,
}

impl Chain {
    /// Goes to the block linked behind the current one.
    #[inline]
    fn follow(&mut self) -> Option<ChainedBlock> {
        let upcoming = self.upcoming.take()?;
        self.followed = self.followed.wrapping_add(1);
        (!self.followed.is_multiple_of(LOOKUP_SAMPLE)).then_some(upcoming)
    }

    /// The cursor stands on `block`, and came from the one before it if `went_on`. Gives the next one, if its start
    /// should be in the processor's caches by now.
    #[inline]
    fn enter(&mut self, block: ChainedBlock, went_on: bool) -> Option<&Arc<[u8]>> {
        if let Some(before) = self.current.take_if(|_| went_on) {
            before.set_next(&block);
        }
        let fetched = self.later.take().filter(|_| went_on);
        let is_fetched = fetched.is_some();
        self.upcoming = fetched.or_else(|| block.next());
        self.current = Some(block);
        let upcoming = self.upcoming.as_ref()?;
        if !is_fetched {
            upcoming.prefetch();
        }
        self.later = upcoming.next();
        if let Some(later) = &self.later {
            later.prefetch();
        }
        is_fetched.then_some(upcoming.bytes())
    }

    fn leave(&mut self) {
        (self.current, self.upcoming, self.later) = (None, None, None);
    }
}

/// Blocks read ahead: `bytes[..len]` lie at `offset` of the file.
#[derive(Default, Debug)]
struct Window {
    bytes: Option<Arc<[u8]>>,
    offset: u64,
    len: usize,
    /// How much to read next time.
    wanted: usize,
    /// How much was read since the last seek.
    travelled: usize,
    /// Where what the disk was told to fetch ends, or 0.
    announced: u64,
    /// Where what the caller expects to read ends, or 0 if that is not known.
    goal: u64,
}

impl Window {
    /// Forgets the way travelled; the next read is of `wanted` bytes.
    fn begin(&mut self, wanted: usize) {
        (self.wanted, self.travelled, self.announced, self.goal) = (wanted, 0, 0, 0);
    }

    /// A seek led to this block, and so many bytes are likely to be read from there. Where in the block it led is not
    /// known before it is read: half of it is added.
    fn expect(&mut self, entry: IndexEntry, bytes: usize) {
        self.goal = entry.offset + entry.len / 2 + bytes as u64;
        // They were too few for who goes on behind them, but perhaps not by much.
        self.wanted = FIRST_WINDOW.min(bytes / 4);
    }

    /// The bytes that are likely to be needed from this block on: all blocks that begin before the goal, if they are as
    /// long as it. No more than the block has where the goal is in it; nothing behind the goal.
    fn expected_from(&self, entry: IndexEntry) -> Option<usize> {
        let left = self.goal.checked_sub(entry.offset).filter(|left| *left > 0)?;
        Some(if left > entry.len { left + entry.len - 1 } else { left } as usize)
    }

    /// After a read of `len` bytes: the next is half again as long once the way is long enough, or longer than was
    /// expected, and of `most` bytes at most.
    fn travel(&mut self, len: usize, most: usize) {
        self.travelled = self.travelled.saturating_add(len);
        if self.travelled >= STEADY || self.goal > 0 {
            self.wanted = (self.wanted.max(len) * 3 / 2).min(most);
        }
    }

    /// The bytes after `end` that the disk should fetch by now, if it was not told of them: twice the way so far, for
    /// who has come far goes on. Most short ranges end within the first window, and announce nothing.
    fn announce(&mut self, end: u64) -> Option<u64> {
        if self.travelled <= FIRST_WINDOW {
            return None;
        }
        let len = self.wanted.max(2 * self.travelled.min(AUTOMATIC_WINDOW)) as u64;
        let due = end >= self.announced;
        if due {
            self.announced = end + len;
        }
        due.then_some(len)
    }

    /// Where the block at `offset` starts in `bytes`, if it is there.
    #[inline]
    fn find(&self, offset: u64, len: u64) -> Option<usize> {
        let from = offset.checked_sub(self.offset)?;
        (from.checked_add(len)? <= self.len as u64).then_some(from as usize)
    }
}

impl<B: BlockPosition> Drop for SstCursor<B> {
    /// The window's memory is for the next cursor.
    fn drop(&mut self) {
        drop(self.block.release());
        if let Some(window) = self.window.bytes.take() {
            self.file.cache.spare_windows().give_back(window);
        }
    }
}

impl SstFile {
    /// A cursor over a file of rows; it reads nothing before its first seek. See [`RunCursor`](crate::RunCursor) for
    /// files of any kind.
    pub fn cursor(self: &Arc<Self>, options: CursorOptions) -> SstCursor {
        SstCursor::over(self, options, &())
    }
}

impl SstCursor<ColumnPosition> {
    /// The position in the current block.
    pub fn position(&mut self) -> &mut ColumnPosition {
        &mut self.block
    }

    /// The current block, the row in it, and the block's number in the file.
    pub fn block(&self) -> Option<(&ColumnBlock, usize, usize)> {
        self.block.block().map(|(block, row)| (block, row, self.current))
    }

    /// The current block, which may be kept, and the row in it.
    #[inline]
    pub(crate) fn shared_block(&self) -> Option<Pick<'_>> {
        self.block.shared_block()
    }

    /// Appends the current entry's fragment.
    pub(crate) fn write_fragment(&self, out: &mut Vec<u8>) -> Result<()> {
        let place = |e| malformed_part(&self.file.path, "data block", self.index().offset(self.current), e);
        self.block.write_fragment(out).map_err(place)
    }

    /// To a row of the current block, or past its rows to the first entry of the next block.
    ///
    /// # Errors
    /// As those of [`Cursor::next`].
    pub fn go_to(&mut self, row: usize) -> Result<()> {
        let moved = self.block.go_to(row);
        self.checked(moved)?;
        if self.block.valid() { Ok(()) } else { self.next_block() }
    }

    /// To the first entry behind the current block and behind those after it that `is_passed` says, as far as all their
    /// keys are before `bound`: these are not read. How many they are. The last block of the file is none of them, and
    /// none of which the last key has older versions in the next block: what is newest has to be met.
    pub(crate) fn pass_blocks(
        &mut self,
        bound: Option<&[u8]>,
        mut is_passed: impl FnMut(&SstFile, usize, &IndexEntry) -> Result<bool>,
    ) -> Result<u64> {
        let first = self.current + 1;
        let mut next = first;
        while next + 1 < self.file.block_count()
            && bound.is_none_or(|bound| self.index().separator_is_before(next, bound))
            && is_passed(&self.file, next, &self.index().entry(next))?
        {
            next += 1;
        }
        self.go_behind(next)?;
        let arrived = next;
        while next > first && self.block.valid() && self.index().separator_is(next - 1, self.block.key()) {
            next -= 1;
        }
        if next < arrived {
            self.arrive_at(next)?;
        }
        Ok((next - first) as u64)
    }
}

impl<B: BlockPosition> SstCursor<B> {
    /// A cursor over a file of such blocks; it reads nothing before its first seek.
    pub(crate) fn over(file: &Arc<SstFile>, options: CursorOptions, wanted: &B::Wanted) -> Self {
        Self {
            block: B::over(file, wanted),
            file: Arc::clone(file),
            options,
            index: None,
            current: 0,
            last_key: KeyBuffer::default(),
            chain: Chain::default(),
            window: Window::default(),
            decompressor: Decompressor::default(),
            counters: ReadCounters::default(),
        }
    }

    /// The file.
    pub fn file(&self) -> &Arc<SstFile> {
        &self.file
    }

    /// Whether `next` will leave the current block.
    #[inline]
    pub(crate) fn at_block_end(&self) -> bool {
        self.block.at_end()
    }

    /// As [`Cursor::visit`] of a valid cursor, up to the block's last entry, on which the cursor then stands; `false`
    /// if `visit` ended it before.
    #[inline]
    pub(crate) fn visit_block(&mut self, visit: &mut impl FnMut(&EntryRef<'_>, bool) -> bool) -> Result<bool> {
        while visit(&self.entry(), self.block.same_key()) {
            if self.block.at_end() {
                return Ok(true);
            }
            if let Step::Malformed = self.block.step() {
                return Err(self.fail_in_block());
            }
        }
        Ok(false)
    }

    /// The bytes that are likely to be read from where the next seek leads to.
    pub(crate) fn set_expected(&mut self, bytes: usize) {
        self.options.expected = bytes;
    }

    /// The bytes that are likely to be read behind the file's end, by what was expected and how far the cursor has
    /// come; 0 if that is not known.
    pub(crate) fn expected_behind(&self) -> usize {
        let left = self.window.goal.saturating_sub(self.index().offset(self.file.block_count())) as usize;
        match (self.window.goal, left) {
            (0, _) => 0,
            (_, 0) => self.window.wanted.max(1),
            (_, left) => left,
        }
    }

    pub(crate) fn set_same_key(&mut self, same: bool) {
        self.block.set_same_key(same);
    }

    fn ensure_index(&mut self) -> Result<()> {
        if self.index.is_none() {
            self.index = Some(self.file.load_index()?);
        }
        Ok(())
    }

    fn index(&self) -> Index<'_> {
        self.file.index_of(self.index.as_deref().unwrap_or_default())
    }

    /// Ready for a seek: the index is there, the next window is small.
    fn begin_seek(&mut self) -> Result<()> {
        self.block.invalidate();
        self.window.begin(match self.options.read_ahead {
            0 => FIRST_WINDOW,
            wanted => wanted.min(MAX_WINDOW),
        });
        self.ensure_index()
    }

    /// The first visible block from `i` on, or the block count.
    fn visible_from(&mut self, mut i: usize) -> usize {
        let n = self.file.block_count();
        while i < n && !self.file.is_visible(&self.index(), i, self.options.snapshot) {
            self.counters.blocks_skipped_by_snapshot += 1;
            i += 1;
        }
        i
    }

    /// The last visible block before `i`.
    fn visible_before(&mut self, mut i: usize) -> Option<usize> {
        while i > 0 {
            i -= 1;
            if self.file.is_visible(&self.index(), i, self.options.snapshot) {
                return Some(i);
            }
            self.counters.blocks_skipped_by_snapshot += 1;
        }
        None
    }

    /// Takes up block `i`, unless it is the current one.
    fn load(&mut self, i: usize, direction: Direction) -> Result<()> {
        let CursorOptions { read_ahead, expected, .. } = self.options;
        if self.window.goal == 0 && expected > 0 && read_ahead == 0 && direction == Direction::Forward {
            self.window.expect(self.index().entry(i), expected.min(AUTOMATIC_WINDOW));
        }
        if self.current == i && self.block.is_loaded() {
            return Ok(());
        }
        let went_on = direction == Direction::Forward && self.current + 1 == i && self.block.is_loaded();
        self.current = i;
        if let Some(block) = self.block.release().filter(|_| !self.options.fill_cache) {
            self.file.cache.spares().give_back(block);
        }
        let entry = self.index().entry(i);
        if self.window.find(entry.offset, entry.len).is_some() {
            return self.load_from_window(entry);
        }
        if let Some(cached) = self.cached(entry.offset, went_on) {
            self.counters.block_cache_hits += 1;
            return self.take_up_cached(cached, entry.offset, went_on);
        }
        self.read(entry, direction, went_on)
    }

    /// Takes up the current block, which is in memory nowhere, and reads others with it if they are likely to be asked
    /// for.
    fn read(&mut self, entry: IndexEntry, direction: Direction, went_on: bool) -> Result<()> {
        let most = match self.options.read_ahead {
            0 => AUTOMATIC_WINDOW,
            most => most.min(MAX_WINDOW),
        };
        let expected = self.window.expected_from(entry).filter(|_| direction == Direction::Forward);
        let wanted = match expected {
            Some(expected) if expected as u64 > entry.len => expected,
            None if went_on || self.options.read_ahead > 0 => self.window.wanted.min(most),
            _ => {
                let bytes = self.file.read_block(entry, &mut self.decompressor, &mut self.counters)?;
                return self.take_up_read(bytes, entry.offset);
            }
        };
        let end = self.read_window(self.current, direction, wanted)?;
        if expected.is_none() {
            self.travel(end, direction, most);
        }
        self.load_from_window(entry)
    }

    /// The block at `offset`, if it is cached.
    fn cached(&mut self, offset: u64, went_on: bool) -> Option<ChainedBlock> {
        let key = self.file.cache_key(offset);
        if went_on && let Some(linked) = self.chain.follow() {
            self.file.cache.count_linked(key);
            return Some(linked);
        }
        self.file.cache.get_chained(key)
    }

    fn take_up_cached(&mut self, block: ChainedBlock, offset: u64, went_on: bool) -> Result<()> {
        let bytes = Arc::clone(block.bytes());
        if let Some(upcoming) = self.chain.enter(block, went_on) {
            self.block.prefetch(upcoming);
        }
        self.take_up(bytes, offset)
    }

    /// Takes up a block that was read, and caches it if the options say so.
    fn take_up_read(&mut self, bytes: Arc<[u8]>, offset: u64) -> Result<()> {
        self.chain.leave();
        if self.options.fill_cache {
            self.file.keep_block(offset, &bytes);
        }
        self.take_up(bytes, offset)
    }

    /// Takes up a block in memory.
    fn take_up(&mut self, bytes: Arc<[u8]>, offset: u64) -> Result<()> {
        let end = payload_in_memory(&bytes).len();
        self.take_up_range(bytes, 0, end, offset)
    }

    fn take_up_range(&mut self, bytes: Arc<[u8]>, start: usize, end: usize, offset: u64) -> Result<()> {
        let loaded = self.block.take_up(&self.file, bytes, start, end);
        loaded.map_err(|e| malformed_part(&self.file.path, "data block", offset, e))
    }

    /// Reads blocks around block `i` into the window, `wanted` bytes or the one; the block behind them.
    fn read_window(&mut self, i: usize, direction: Direction, wanted: usize) -> Result<usize> {
        let index = self.file.index_of(self.index.as_deref().unwrap_or_default());
        let (mut first, mut last) = (i, i);
        // A block that the snapshot filter will skip ends the window.
        let seen = |i: usize| self.file.is_visible(&index, i, self.options.snapshot);
        let fits = |first: usize, last: usize| index.offset(last + 1) - index.offset(first) <= wanted as u64;
        match direction {
            Direction::Forward => {
                while last + 1 < index.block_count() && fits(first, last + 1) && seen(last + 1) {
                    last += 1;
                }
            }
            Direction::Backward => {
                while first > 0 && fits(first - 1, last) && seen(first - 1) {
                    first -= 1;
                }
            }
        }
        let offset = index.offset(first);
        let too_long = |_| Error::corruption("block too long").at(offset).in_file(&self.file.path);
        let len = usize::try_from(index.offset(last + 1) - offset).map_err(too_long)?;
        let window = &mut self.window;
        (window.offset, window.len) = (offset, 0);
        let reusable = window.bytes.take_if(|bytes| bytes.len() >= len && Arc::get_mut(bytes).is_some());
        // No more than there is: a small file needs no large window.
        let left = match direction {
            Direction::Forward => index.offset(index.block_count()) - offset,
            Direction::Backward => index.offset(last + 1),
        };
        let least = len.max(usize::try_from(left).map_or(wanted, |left| left.min(wanted)));
        let spares = self.file.cache.spare_windows();
        let buffer = window.bytes.insert(reusable.unwrap_or_else(|| spares.take(least, least + FIRST_WINDOW)));
        let target = exclusive(buffer).get_mut(..len).unwrap_or_default();
        let started = Instant::now();
        self.file.file.read_at(offset, target).map_err(|e| e.in_file(&self.file.path))?;
        self.counters.read_nanoseconds += nanoseconds_since(started);
        window.len = len;
        self.counters.blocks_read += (last + 1 - first) as u64;
        self.counters.bytes_read += len as u64;
        Ok(last + 1)
    }

    /// The window was read because the cursor went on: it grows, and the disk is told what comes behind it, from block
    /// `end` on.
    fn travel(&mut self, end: usize, direction: Direction, most: usize) {
        let window = &mut self.window;
        window.travel(window.len, most);
        let offset = window.offset + window.len as u64;
        if direction == Direction::Forward
            && end < self.file.block_count()
            && let Some(len) = window.announce(offset)
        {
            self.file.file.will_need(offset, len);
        }
    }

    fn load_from_window(&mut self, entry: IndexEntry) -> Result<()> {
        let started = self.current.is_multiple_of(DECODE_SAMPLE).then(Instant::now);
        self.decode_from_window(entry.offset, entry.len)?;
        if let Some(started) = started {
            self.counters.decode_nanoseconds += nanoseconds_since(started) * DECODE_SAMPLE as u64;
        }
        Ok(())
    }

    fn decode_from_window(&mut self, offset: u64, len: u64) -> Result<()> {
        let cut_short = || Error::corruption("read-ahead fell short").at(offset).in_file(&self.file.path);
        let start = self.window.find(offset, len).ok_or_else(cut_short)?;
        let window = self.window.bytes.as_ref().ok_or_else(cut_short)?;
        let framed = window.get(start..start + len as usize).ok_or_else(cut_short)?;
        let (payload, kind) = self.file.check_block(framed, offset)?;
        let end = start + payload.len();
        if kind == STORED && !self.options.fill_cache {
            let bytes = Arc::clone(window);
            self.chain.leave();
            return self.take_up_range(bytes, start, end, offset);
        }
        let bytes = self.file.decompressed(payload, kind, offset, &mut self.decompressor)?;
        self.take_up_read(bytes, offset)
    }

    /// To the first entry of the first visible block from `i` on.
    fn first_from(&mut self, i: usize) -> Result<()> {
        let i = self.visible_from(i);
        if i >= self.file.block_count() {
            self.block.invalidate();
            return Ok(());
        }
        self.load(i, Direction::Forward)?;
        let moved = self.block.seek_to_first();
        self.checked(moved)
    }

    /// To the last entry of the last visible block before `i`.
    fn last_before(&mut self, i: usize) -> Result<()> {
        let Some(i) = self.visible_before(i) else {
            self.block.invalidate();
            return Ok(());
        };
        self.load(i, Direction::Backward)?;
        let moved = self.block.seek_to_last();
        self.checked(moved)
    }

    /// Adds the place to an error of the current block.
    fn checked(&self, moved: Result<bool>) -> Result<()> {
        match moved {
            Ok(_) => Ok(()),
            Err(e) => Err(malformed_part(&self.file.path, "data block", self.index().offset(self.current), e)),
        }
    }

    #[inline(never)]
    fn next_block(&mut self) -> Result<()> {
        self.go_behind(self.current + 1)
    }

    /// From the current entry to the first one of block `i` or behind it.
    fn go_behind(&mut self, i: usize) -> Result<()> {
        self.block.swap_key(&mut self.last_key);
        self.arrive_at(i)
    }

    /// To the first entry of block `i` or behind it, from an entry with the last key.
    fn arrive_at(&mut self, i: usize) -> Result<()> {
        self.first_from(i)?;
        let same = self.block.valid() && self.block.key() == self.last_key.get();
        self.block.set_same_key(same);
        Ok(())
    }

    #[cold]
    fn fail_in_block(&mut self) -> Error {
        let error = self.block.malformed_here();
        malformed_part(&self.file.path, "data block", self.index().offset(self.current), error)
    }
}

impl<B: BlockPosition> Cursor for SstCursor<B> {
    #[inline]
    fn valid(&self) -> bool {
        self.block.valid()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.block.key()
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.block.trailer()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.block.value()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.begin_seek()?;
        self.first_from(0)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.begin_seek()?;
        self.last_before(self.file.block_count())
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.begin_seek()?;
        let mut i = self.index().seek(key);
        loop {
            i = self.visible_from(i);
            if i >= self.file.block_count() {
                self.block.invalidate();
                return Ok(());
            }
            self.load(i, Direction::Forward)?;
            let found = self.block.seek(key, trailer);
            self.checked(found)?;
            if self.block.valid() {
                return Ok(());
            }
            i += 1;
        }
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.begin_seek()?;
        let mut i = self.index().seek(key);
        loop {
            i = self.visible_from(i);
            if i >= self.file.block_count() {
                return self.last_before(i);
            }
            self.load(i, Direction::Backward)?;
            let found = self.block.seek(key, trailer);
            self.checked(found)?;
            if self.block.valid() {
                return self.prev();
            }
            // All entries of this block are before (key, trailer). Those of the next are not, unless versions of the
            // key straddle the cut.
            if !self.index().separator_is(i, key) {
                let moved = self.block.seek_to_last();
                return self.checked(moved);
            }
            i += 1;
        }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        match self.block.step() {
            Step::Moved => Ok(()),
            Step::End => self.next_block(),
            Step::Malformed => Err(self.fail_in_block()),
        }
    }

    fn prev(&mut self) -> Result<()> {
        let moved = self.block.prev();
        self.checked(moved)?;
        if self.block.valid() { Ok(()) } else { self.last_before(self.current) }
    }

    #[inline]
    fn same_key_as_previous(&self) -> bool {
        self.block.same_key()
    }

    fn add_counters(&self, counters: &mut ReadCounters) {
        *counters += self.counters;
    }
}
