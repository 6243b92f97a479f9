//! The index: one separator per data block, laid out as arrays so that it is searched where it lies, without parsing.
//!
//! ```text
//! u32 LE               block count n (0 for a file of range deletes only)
//! u32 LE               length p of the prefix that all separators share
//! u32 LE               length s of the separators area
//! u32 LE               0
//! n     x u64 LE       heads: the first 8 bytes of each separator after the prefix, as a big-endian number, zero-padded
//! n     x row:
//!         u64 LE       offset of the block
//!         u64 LE       smallest sequence number in it
//!         u64 LE       largest sequence number in it
//!         u32 LE       entries in it
//!         u32 LE       end of its separator in the separators area
//! u64 LE               end of the last block
//! p bytes              the prefix
//! s bytes              the separators after the prefix, back to back
//! ```
//!
//! The separator of a block is the shortest key that is at least the block's last key and less than the next block's
//! first key; where versions of one key straddle the cut it is that key itself.
//!
//! Search for the first block whose separator is at least a key:
//! 1. Compare the key with the prefix: before it the answer is block 0, after it there is none.
//! 2. Take the key's head and search the heads, branch-free. Heads order as separators do, but may be equal.
//! 3. Only among separators with this very head compare whole separators.

use mycelium_base::key_prefix::{common_prefix, head};
use mycelium_base::prefetch::prefetch;
use mycelium_base::{Error, MAX_SEQUENCE_NUMBER, Result, SequenceNumber};

const HEADER_LEN: usize = 16;
const HEAD_LEN: usize = 8;
const ROW_LEN: usize = 32;

/// Heads of four cache lines: what comes before them in a search is asked for often, and stays in caches near by.
const NARROWED: usize = 32;

/// Heads among which a search goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadRange {
    first: usize,
    count: usize,
}

/// What the index says of one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexEntry {
    /// Offset of the framed block.
    pub offset: u64,
    /// Its framed length.
    pub len: u64,
    /// The smallest sequence number in it.
    pub min_sequence: SequenceNumber,
    /// The largest.
    pub max_sequence: SequenceNumber,
    /// Its number of entries.
    pub entry_count: u32,
}

/// Collects the index of a file while its blocks are written.
#[derive(Default, Debug)]
pub(crate) struct IndexBuilder {
    blocks: Vec<IndexEntry>,
    separators: Vec<u8>,
    ends: Vec<usize>,
}

impl IndexBuilder {
    pub(crate) fn push(&mut self, block: IndexEntry, last_key: &[u8], next_first_key: Option<&[u8]>) {
        push_separator(&mut self.separators, last_key, next_first_key);
        self.ends.push(self.separators.len());
        self.blocks.push(block);
    }

    pub(crate) fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// Bytes that [`IndexBuilder::encode`] gives at most.
    pub(crate) fn estimated_len(&self) -> usize {
        HEADER_LEN + 8 + self.blocks.len() * (HEAD_LEN + ROW_LEN) + self.separators.len()
    }

    fn separator(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.separators[start..self.ends[i]]
    }

    /// The block's payload. Fails where the separators exceed 4 GiB.
    pub(crate) fn encode(&self, data_end: u64) -> Result<Vec<u8>> {
        let n = self.blocks.len();
        // Separators ascend, so that the first and the last share what all share.
        let prefix_len = if n == 0 { 0 } else { common_prefix(self.separator(0), self.separator(n - 1)) };
        let separators_len = self.separators.len() - n * prefix_len;
        let too_large = |_| Error::invalid("the index exceeds 4 GiB");
        let counts = [u32::try_from(n), u32::try_from(prefix_len), u32::try_from(separators_len), Ok(0)];
        let mut out = Vec::with_capacity(self.estimated_len());
        for count in counts {
            out.extend_from_slice(&count.map_err(too_large)?.to_le_bytes());
        }
        for i in 0..n {
            out.extend_from_slice(&head(&self.separator(i)[prefix_len..]).to_le_bytes());
        }
        for (i, block) in self.blocks.iter().enumerate() {
            let end = u32::try_from(self.ends[i] - (i + 1) * prefix_len).map_err(too_large)?;
            out.extend_from_slice(&block.offset.to_le_bytes());
            out.extend_from_slice(&block.min_sequence.to_le_bytes());
            out.extend_from_slice(&block.max_sequence.to_le_bytes());
            out.extend_from_slice(&block.entry_count.to_le_bytes());
            out.extend_from_slice(&end.to_le_bytes());
        }
        out.extend_from_slice(&data_end.to_le_bytes());
        if n > 0 {
            out.extend_from_slice(&self.separator(0)[..prefix_len]);
        }
        for i in 0..n {
            out.extend_from_slice(&self.separator(i)[prefix_len..]);
        }
        Ok(out)
    }
}

fn push_separator(out: &mut Vec<u8>, last: &[u8], next: Option<&[u8]>) {
    let Some(next) = next else {
        out.extend_from_slice(last);
        return;
    };
    let shared = common_prefix(last, next);
    // What they share and the next greater byte is greater than `last`. It is less than `next` if that byte is below
    // the one `next` has there, or if `next` goes on after it.
    let (Some(&low), Some(&high)) = (last.get(shared), next.get(shared)) else {
        out.extend_from_slice(last);
        return;
    };
    if shared + 1 >= last.len() {
        out.extend_from_slice(last);
    } else if low + 1 < high || shared + 1 < next.len() {
        out.extend_from_slice(&last[..shared]);
        out.push(low + 1);
    } else {
        out.extend_from_slice(last);
    }
}

#[inline(always)]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => 0,
    }
}

#[inline(always)]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(bytes) => u32::from_le_bytes(*bytes),
        None => 0,
    }
}

/// Where the arrays of an index lie; small, kept by every open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexShape {
    blocks: usize,
    rows: usize,
    prefix: usize,
    separators: usize,
    len: usize,
}

impl IndexShape {
    fn new(payload: &[u8]) -> Result<Self> {
        if payload.len() < HEADER_LEN {
            return Err(Error::corruption("index cut short").expected(HEADER_LEN, payload.len()));
        }
        let [n, prefix_len, separators_len, zero] = [0, 4, 8, 12].map(|at| u32_at(payload, at) as usize);
        let len = n
            .checked_mul(HEAD_LEN + ROW_LEN)
            .and_then(|rows| rows.checked_add(HEADER_LEN + 8)?.checked_add(prefix_len)?.checked_add(separators_len));
        if len != Some(payload.len()) || zero != 0 {
            return Err(Error::corruption("index has another length than its header says").at(0));
        }
        let rows = HEADER_LEN + HEAD_LEN * n;
        let prefix = rows + ROW_LEN * n + 8;
        Ok(Self { blocks: n, rows, prefix, separators: prefix + prefix_len, len: payload.len() })
    }

    /// Bytes of the payload.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the file has no data blocks.
    pub fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// The number of data blocks.
    #[inline]
    pub fn block_count(&self) -> usize {
        self.blocks
    }
}

/// An index in memory. Every access is checked against the bytes: a wrong index gives wrong answers, never a panic.
#[derive(Clone, Copy, Debug)]
pub struct Index<'a> {
    payload: &'a [u8],
    shape: IndexShape,
}

impl<'a> Index<'a> {
    /// Checks a payload as a whole: arrays in bounds, separators ascending and agreeing with the heads, blocks one
    /// after the other from 0 to `data_end`. O(blocks).
    pub fn parse(payload: &'a [u8], data_end: u64) -> Result<Self> {
        let index = Self { payload, shape: IndexShape::new(payload)? };
        let n = index.shape.blocks;
        let wrong = |what: &str, at: usize| Error::corruption(what).at(at as u64);
        if index.offset(0) != 0 || index.offset(n) != data_end {
            return Err(
                wrong("index does not cover the data blocks", index.shape.rows).expected(data_end, index.offset(n))
            );
        }
        let separators_len = (payload.len() - index.shape.separators) as u32;
        let mut last_end = 0;
        for i in 0..n {
            let block = index.entry(i);
            let end = index.separator_end(i);
            if index.offset(i) >= index.offset(i + 1) || block.len > crate::checksum::MAX_BLOCK_LEN {
                return Err(wrong("index offsets do not ascend", index.row(i)));
            }
            if block.min_sequence > block.max_sequence
                || block.max_sequence > MAX_SEQUENCE_NUMBER
                || block.entry_count == 0
            {
                return Err(wrong("index row contradicts itself", index.row(i)));
            }
            if end < last_end || end > separators_len {
                return Err(wrong("index separators out of bounds", index.row(i)));
            }
            last_end = end;
            if index.head(i) != head(index.separator_suffix(i)) {
                return Err(wrong("index head is not its separator's", HEADER_LEN + 8 * i));
            }
            if i > 0 && index.separator_suffix(i - 1) > index.separator_suffix(i) {
                return Err(wrong("index separators do not ascend", index.row(i)));
            }
        }
        if last_end != separators_len {
            return Err(wrong("index has unused separator bytes", index.shape.separators));
        }
        Ok(index)
    }

    /// An index whose payload was parsed before and has `shape`.
    #[inline]
    pub(crate) fn of(payload: &'a [u8], shape: IndexShape) -> Self {
        Self { payload, shape }
    }

    /// Where the arrays lie.
    pub fn shape(&self) -> IndexShape {
        self.shape
    }

    /// The number of data blocks.
    #[inline]
    pub fn block_count(&self) -> usize {
        self.shape.blocks
    }

    /// What is known of block `i`.
    #[inline]
    pub fn entry(&self, i: usize) -> IndexEntry {
        let offset = self.offset(i);
        IndexEntry {
            offset,
            len: self.offset(i + 1).saturating_sub(offset),
            min_sequence: self.min_sequence(i),
            max_sequence: u64_at(self.payload, self.row(i) + 16),
            entry_count: u32_at(self.payload, self.row(i) + 24),
        }
    }

    /// Asks the processor for what is known of block `i`.
    #[inline]
    pub(crate) fn prefetch_entry(&self, i: usize) {
        // Its length is told by the next one.
        for at in [self.row(i), self.row(i + 1)] {
            if let Some(byte) = self.payload.get(at) {
                prefetch(byte);
            }
        }
    }

    /// The offset of block `i`; that of the end for `i` = block count.
    #[inline]
    pub fn offset(&self, i: usize) -> u64 {
        u64_at(self.payload, self.row(i))
    }

    /// The smallest sequence number in block `i`.
    #[inline]
    pub fn min_sequence(&self, i: usize) -> SequenceNumber {
        u64_at(self.payload, self.row(i) + 8)
    }

    /// The separator of block `i`, whole.
    pub fn separator(&self, i: usize) -> Vec<u8> {
        [self.prefix(), self.separator_suffix(i)].concat()
    }

    /// Whether the separator of block `i` is before `key`: then all its keys are.
    pub(crate) fn separator_is_before(&self, i: usize, key: &[u8]) -> bool {
        match key.strip_prefix(self.prefix()) {
            Some(suffix) => self.separator_suffix(i) < suffix,
            None => self.prefix() < key,
        }
    }

    /// Whether the separator of block `i` is `key`.
    #[inline]
    pub(crate) fn separator_is(&self, i: usize, key: &[u8]) -> bool {
        key.strip_prefix(self.prefix()).is_some_and(|suffix| suffix == self.separator_suffix(i))
    }

    /// The first block whose separator is at least `key`: every entry of the key, if there is one, starts there. The
    /// block count if `key` is after all separators. O(log blocks).
    #[inline]
    pub fn seek(&self, key: &[u8]) -> usize {
        self.seek_among(key, HeadRange { first: 0, count: self.shape.blocks })
    }

    /// The first half of [`Index::seek`]: narrows the search down to a few cache lines of heads, and asks the processor
    /// for these.
    #[inline]
    pub(crate) fn narrow(&self, key: &[u8]) -> HeadRange {
        let all = HeadRange { first: 0, count: self.shape.blocks };
        let Some(suffix) = key.strip_prefix(self.prefix()) else { return all };
        let range = self.narrow_heads(head(suffix), all, NARROWED);
        let lines = self.payload.get(HEADER_LEN + HEAD_LEN * range.first..).unwrap_or_default();
        lines[..lines.len().min(HEAD_LEN * range.count)].iter().step_by(64).for_each(|byte| prefetch(byte));
        range
    }

    /// [`Index::seek`], of which the search has come to `range`.
    #[inline]
    pub(crate) fn seek_among(&self, key: &[u8], range: HeadRange) -> usize {
        let prefix = self.prefix();
        let suffix = match key.strip_prefix(prefix) {
            Some(suffix) => suffix,
            None if key < prefix => return 0,
            None => return self.shape.blocks,
        };
        let wanted = head(suffix);
        let HeadRange { first, count } = self.narrow_heads(wanted, range, 1);
        let is_before = count == 1 && self.head(first) < wanted;
        self.seek_among_equal_heads(first + usize::from(is_before), wanted, suffix)
    }

    /// Halves `range` until it has `most` heads at most. Those before it are less than `wanted`, those behind it are
    /// not.
    #[inline]
    fn narrow_heads(&self, wanted: u64, range: HeadRange, most: usize) -> HeadRange {
        let heads = self.payload.get(HEADER_LEN..self.shape.rows).unwrap_or_default().as_chunks::<HEAD_LEN>().0;
        let (mut base, mut size) = (range.first, range.count);
        while size > most {
            let half = size / 2;
            let middle = u64::from_le_bytes(heads[base + half - 1]);
            base = std::hint::select_unpredictable(middle < wanted, base + half, base);
            size -= half;
        }
        HeadRange { first: base, count: size }
    }

    #[inline]
    fn seek_among_equal_heads(&self, first: usize, wanted: u64, suffix: &[u8]) -> usize {
        let (mut low, n) = (first, self.shape.blocks);
        if low >= n || self.head(low) != wanted || self.separator_suffix(low) >= suffix {
            return low;
        }
        // Gallop: long runs of equal heads are rare.
        let mut step = 1;
        while low + step < n && self.head(low + step) == wanted && self.separator_suffix(low + step) < suffix {
            low += step;
            step *= 2;
        }
        // The separator at `low` is before the key, that at `low + step` is not (or there is none).
        let mut high = (low + step).min(n);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            let before =
                self.head(middle) < wanted || self.head(middle) == wanted && self.separator_suffix(middle) < suffix;
            if before { low = middle } else { high = middle }
        }
        high
    }

    #[inline]
    fn row(&self, i: usize) -> usize {
        self.shape.rows + ROW_LEN * i
    }

    #[inline]
    fn separator_end(&self, i: usize) -> u32 {
        u32_at(self.payload, self.row(i) + 28)
    }

    #[inline]
    fn head(&self, i: usize) -> u64 {
        u64_at(self.payload, HEADER_LEN + 8 * i)
    }

    #[inline]
    fn prefix(&self) -> &'a [u8] {
        self.payload.get(self.shape.prefix..self.shape.separators).unwrap_or_default()
    }

    #[inline]
    fn separator_suffix(&self, i: usize) -> &'a [u8] {
        let start = if i == 0 { 0 } else { self.separator_end(i - 1) as usize };
        let end = self.separator_end(i) as usize;
        self.payload.get(self.shape.separators + start..self.shape.separators + end).unwrap_or_default()
    }
}
