//! A position in one data block.
//!
//! Forward: decode the next entry, keep the shared prefix of the key buffer and copy the entry's own bytes behind it.
//! Backward: decode the restart interval that ends before the current entry once, onto a stack, and pop from it; a
//! whole block backward costs two decodes per entry.

use std::ops::Deref;
use std::sync::Arc;

use mycelium_base::limits::MAX_KEY_LEN;
use mycelium_base::prefetch::prefetch;
use mycelium_base::{Result, SequenceNumber, Trailer};

use super::format::{BlockShape, Found, RawEntry, bad_entry, prefetch_keys, search};
use super::position::{BlockFacts, BlockPosition};
use crate::reader::SstFile;

/// How a move ended, without the cost of a `Result` in the hot path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// To an entry.
    Moved,
    /// Off the end of the block.
    End,
    /// Nowhere: the entry is malformed.
    Malformed,
}

/// A cursor over one data block (checked, uncompressed). Malformed entries give errors, never panics.
#[derive(Debug)]
pub struct BlockCursor {
    bytes: Held,
    shape: Option<BlockShape>,
    /// Where the current entry starts.
    at: usize,
    /// Where the next entry starts.
    next: usize,
    value: usize,
    value_len: usize,
    trailer: Trailer,
    key: KeyBuffer,
    valid: bool,
    same_key: bool,
    before: Before,
}

/// Bytes of keys that a restart interval has at most: intervals of tables have up to 1,024.
const MOST_KEYS_LEN: usize = 1024 * MAX_KEY_LEN;

/// How far ahead of a value, in bytes, memory is asked for at least.
const AHEAD: usize = 384;

/// The bytes of a block, or none. (An empty `Arc` is one static for all threads, whose reference count they would fight
/// over.)
#[derive(Debug)]
struct Held(Option<Arc<[u8]>>);

impl Deref for Held {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

/// Bytes copied at once in the fast path of [`KeyBuffer::set_suffix`].
const CHUNK: usize = 16;

/// The current key; longer than `len`, so that short suffixes are copied as one chunk.
#[derive(Default, Debug)]
pub struct KeyBuffer {
    bytes: Vec<u8>,
    len: usize,
}

impl KeyBuffer {
    #[inline(always)]
    pub(crate) fn get(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Makes the key its first `shared` bytes (at most its length) and `source[suffix..suffix + len]`.
    #[inline(always)]
    fn set_suffix(&mut self, shared: usize, source: &[u8], suffix: usize, len: usize) {
        if len <= CHUNK {
            let from = source.get(suffix..).and_then(|rest| rest.first_chunk::<CHUNK>());
            let to = self.bytes.get_mut(shared..).and_then(|rest| rest.first_chunk_mut::<CHUNK>());
            if let (Some(from), Some(to)) = (from, to) {
                *to = *from;
                self.len = shared + len;
                return;
            }
        }
        self.set_long_suffix(shared, source.get(suffix..suffix + len).unwrap_or_default());
    }

    #[inline(never)]
    fn set_long_suffix(&mut self, shared: usize, suffix: &[u8]) {
        let len = shared + suffix.len();
        if self.bytes.len() < len + CHUNK {
            self.bytes.resize((len + CHUNK).next_power_of_two(), 0);
        }
        self.bytes[shared..len].copy_from_slice(suffix);
        self.len = len;
    }

    pub(crate) fn set(&mut self, key: &[u8]) {
        self.set_long_suffix(0, key);
    }
}

/// The entries of a restart interval before the one at `of`.
#[derive(Default, Debug)]
struct Before {
    of: usize,
    entries: Vec<Saved>,
    keys: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Saved {
    at: usize,
    next: usize,
    value: usize,
    value_len: usize,
    trailer: Trailer,
    key_start: usize,
    key_end: usize,
}

impl BlockPosition for BlockCursor {
    type Wanted = ();

    fn over(_file: &SstFile, _wanted: &()) -> Self {
        Self::new()
    }

    fn take_up(&mut self, file: &SstFile, bytes: Arc<[u8]>, start: usize, end: usize) -> Result<()> {
        self.load(bytes, start, end, file.options.sequence_override)
    }

    /// Entries are read in their order, from the first lines on, which the processor sees by itself.
    fn prefetch(&self, _bytes: &[u8]) {}

    fn release(&mut self) -> Option<Arc<[u8]>> {
        self.release()
    }

    fn is_loaded(&self) -> bool {
        self.shape.is_some()
    }

    fn facts(&self) -> Option<BlockFacts> {
        self.shape.as_ref().map(|shape| BlockFacts {
            rows: shape.entry_count(),
            min_sequence: shape.min_sequence(),
            max_sequence: shape.max_sequence(),
            unique_keys: shape.unique_keys(),
            all_puts: shape.all_puts(),
        })
    }

    fn value_area(&self) -> Option<usize> {
        self.shape.as_ref().map(|shape| shape.end() - shape.value_start())
    }

    #[inline(always)]
    fn valid(&self) -> bool {
        self.valid
    }

    #[inline(always)]
    fn key(&self) -> &[u8] {
        self.key.get()
    }

    #[inline(always)]
    fn trailer(&self) -> Trailer {
        self.trailer
    }

    #[inline(always)]
    fn value(&self) -> &[u8] {
        self.value()
    }

    #[inline(always)]
    fn same_key(&self) -> bool {
        self.same_key
    }

    fn set_same_key(&mut self, same: bool) {
        self.same_key = same;
    }

    fn invalidate(&mut self) {
        (self.valid, self.same_key) = (false, false);
    }

    #[inline(always)]
    fn at_end(&self) -> bool {
        self.shape.as_ref().is_none_or(|shape| self.next >= shape.key_end())
    }

    fn swap_key(&mut self, other: &mut KeyBuffer) {
        std::mem::swap(&mut self.key, other);
    }

    fn seek_to_first(&mut self) -> Result<bool> {
        self.seek_to_first()
    }

    fn seek_to_last(&mut self) -> Result<bool> {
        self.seek_to_last()
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<bool> {
        self.seek(key, trailer)
    }

    #[inline(always)]
    fn step(&mut self) -> Step {
        self.step()
    }

    fn prev(&mut self) -> Result<bool> {
        self.prev()
    }

    #[cold]
    fn malformed_here(&mut self) -> mycelium_base::Error {
        self.malformed(self.next)
    }
}

impl Default for BlockCursor {
    fn default() -> Self {
        Self::new()
    }
}

impl BlockCursor {
    /// A cursor over no block.
    pub fn new() -> Self {
        Self {
            bytes: Held(None),
            shape: None,
            at: 0,
            next: 0,
            value: 0,
            value_len: 0,
            trailer: Trailer::OLDEST,
            key: KeyBuffer::default(),
            valid: false,
            same_key: false,
            before: Before::default(),
        }
    }

    /// Takes up the block `bytes[start..end]`; invalid until positioned. See [`BlockShape::parse`].
    pub fn load(
        &mut self,
        bytes: Arc<[u8]>,
        start: usize,
        end: usize,
        sequence_override: Option<SequenceNumber>,
    ) -> Result<()> {
        drop(self.release());
        self.shape = Some(BlockShape::parse(&bytes, start, end, sequence_override)?);
        self.bytes = Held(Some(bytes));
        Ok(())
    }

    /// Lets go of the block and gives its bytes.
    pub(crate) fn release(&mut self) -> Option<Arc<[u8]>> {
        self.valid = false;
        self.same_key = false;
        self.shape = None;
        self.before.entries.clear();
        self.bytes.0.take()
    }

    /// The block's header, if there is a block.
    pub fn shape(&self) -> Option<&BlockShape> {
        self.shape.as_ref()
    }

    /// Whether the cursor stands on an entry.
    #[inline(always)]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// The entry's key.
    #[inline(always)]
    pub fn key(&self) -> &[u8] {
        self.key.get()
    }

    /// The entry's sequence number and operation.
    #[inline(always)]
    pub fn trailer(&self) -> Trailer {
        self.trailer
    }

    /// The entry's value.
    #[inline(always)]
    pub fn value(&self) -> &[u8] {
        self.bytes.get(self.value..self.value + self.value_len).unwrap_or_default()
    }

    /// Whether the last move was an `advance` to an entry with the same key.
    #[inline(always)]
    pub fn same_key(&self) -> bool {
        self.same_key
    }

    /// To the first entry.
    pub fn seek_to_first(&mut self) -> Result<bool> {
        let Some(shape) = self.shape else { return Ok(false) };
        self.key.len = 0;
        let first = shape.decode(&self.bytes, shape.key_start());
        let Some(entry) = first.filter(|entry| entry.shared == 0) else {
            return Err(self.malformed(shape.key_start()));
        };
        self.set(Found { entry, at: shape.key_start(), value: shape.value_start(), same_key: false })
    }

    /// To the last entry.
    pub fn seek_to_last(&mut self) -> Result<bool> {
        let Some(shape) = self.shape else { return Ok(false) };
        self.at = shape.key_end();
        self.prev()
    }

    /// To the first entry at or after (`key`, `trailer`); `false` and invalid if there is none.
    pub fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<bool> {
        self.valid = false;
        let Some(shape) = &self.shape else { return Ok(false) };
        prefetch_keys(&self.bytes, shape);
        let Some(found) = search(&self.bytes, shape, key, trailer)? else { return Ok(false) };
        self.key.set(key.get(..found.entry.shared).unwrap_or_default());
        self.set(found)
    }

    /// To the next entry; `false` and invalid at the end.
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        match self.step() {
            Step::Moved => Ok(true),
            Step::End => Ok(false),
            Step::Malformed => Err(self.malformed(self.next)),
        }
    }

    /// As `advance`; call [`BlockCursor::malformed_here`] for the error.
    #[inline(always)]
    pub(crate) fn step(&mut self) -> Step {
        let Some(shape) = &self.shape else { return Step::End };
        let at = self.next;
        if at >= shape.key_end() {
            self.valid = false;
            return Step::End;
        }
        match shape.decode_fast(&self.bytes, at) {
            Some(entry) => self.accept(entry, at, shape.end()),
            None => self.step_slowly(),
        }
    }

    /// The next entry, if its lengths are long or it lies at the end of the bytes.
    #[inline(never)]
    fn step_slowly(&mut self) -> Step {
        let at = self.next;
        let Some(shape) = &self.shape else { return Step::End };
        match shape.decode_slowly(&self.bytes, at) {
            Some(entry) => self.accept(entry, at, shape.end()),
            None => Step::Malformed,
        }
    }

    /// Stands on the entry decoded at `at`, after the one the cursor stands on.
    #[inline(always)]
    fn accept(&mut self, entry: RawEntry, at: usize, block_end: usize) -> Step {
        let value = self.value + self.value_len;
        let same_key = entry.suffix_len == 0;
        // Without bytes of its own an entry has the key before it; see `format`.
        let wrong_share = (entry.shared > self.key.len) | (same_key & (entry.shared != self.key.len));
        if wrong_share | (value + entry.value_len > block_end) {
            return Step::Malformed;
        }
        self.key.set_suffix(entry.shared, &self.bytes, entry.suffix, entry.suffix_len);
        self.at = at;
        self.next = entry.next();
        self.value = value;
        self.value_len = entry.value_len;
        self.trailer = entry.trailer;
        self.same_key = same_key;
        self.prefetch_value_after();
        Step::Moved
    }

    /// Asks the processor for the value after this one, or one as far ahead among short values.
    #[inline(always)]
    fn prefetch_value_after(&self) {
        prefetch(self.bytes.as_ptr().wrapping_add(self.value + self.value_len.max(AHEAD)));
    }

    /// To the previous entry; `false` and invalid at the beginning.
    pub fn prev(&mut self) -> Result<bool> {
        let Some(shape) = self.shape else { return Ok(false) };
        self.valid = false;
        self.same_key = false;
        if self.at <= shape.key_start() {
            return Ok(false);
        }
        if self.before.of != self.at || self.before.entries.is_empty() {
            self.fill_before(&shape)?;
        }
        let Some(saved) = self.before.entries.pop() else {
            return Err(self.malformed(self.at));
        };
        self.key.set(self.before.keys.get(saved.key_start..saved.key_end).unwrap_or_default());
        self.before.of = saved.at;
        self.at = saved.at;
        self.next = saved.next;
        self.value = saved.value;
        self.value_len = saved.value_len;
        self.trailer = saved.trailer;
        self.valid = true;
        Ok(true)
    }

    /// Decodes the interval that ends where the current entry starts onto the stack.
    fn fill_before(&mut self, shape: &BlockShape) -> Result<()> {
        let target = self.at;
        let before = &mut self.before;
        before.entries.clear();
        before.keys.clear();
        before.of = target;
        let (mut low, mut high) = (0, shape.restart_count());
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if shape.restart(&self.bytes, middle)?.0 < target { low = middle } else { high = middle }
        }
        let (mut at, mut value) = shape.restart(&self.bytes, low)?;
        let (mut key_start, mut key_end) = (0, 0);
        while at < target {
            let entry = shape.decode(&self.bytes, at).ok_or_else(|| bad_entry(shape, at))?;
            let first = before.entries.is_empty();
            let same_key = entry.suffix_len == 0 && !first;
            let key_len = key_end - key_start;
            if entry.shared > key_len || same_key && entry.shared != key_len || value + entry.value_len > shape.end() {
                return Err(bad_entry(shape, at));
            }
            if !same_key {
                if before.keys.len() + entry.shared + entry.suffix_len > MOST_KEYS_LEN {
                    return Err(bad_entry(shape, at));
                }
                let start = before.keys.len();
                before.keys.extend_from_within(key_start..key_start + entry.shared);
                before.keys.extend_from_slice(&self.bytes[entry.suffix..entry.next()]);
                (key_start, key_end) = (start, before.keys.len());
            }
            let RawEntry { value_len, trailer, .. } = entry;
            before.entries.push(Saved { at, next: entry.next(), value, value_len, trailer, key_start, key_end });
            at = entry.next();
            value += value_len;
        }
        if at == target { Ok(()) } else { Err(bad_entry(shape, target)) }
    }

    /// Stands on `found`, whose shared bytes are in the key buffer.
    fn set(&mut self, found: Found) -> Result<bool> {
        let Found { entry, at, value, .. } = found;
        let end = self.shape.as_ref().map_or(0, BlockShape::end);
        if entry.shared > self.key.len || value + entry.value_len > end {
            return Err(self.malformed(at));
        }
        self.key.set_suffix(entry.shared, &self.bytes, entry.suffix, entry.suffix_len);
        self.at = at;
        self.next = entry.next();
        self.value = value;
        self.value_len = entry.value_len;
        self.trailer = entry.trailer;
        self.same_key = false;
        self.prefetch_value_after();
        self.valid = true;
        Ok(true)
    }

    #[cold]
    fn malformed(&mut self, at: usize) -> mycelium_base::Error {
        self.valid = false;
        match &self.shape {
            Some(shape) => bad_entry(shape, at),
            None => mycelium_base::Error::corruption("no data block"),
        }
    }
}
