//! The layout of a data block (before compression): keys first, values after.
//!
//! ```text
//!  0  u8             flags: bit 0 all entries have one operation, bits 4-6 which; bit 1 no key occurs twice
//!  1  u8             w: bytes per sequence number, 0 to 7
//!  2  u16 LE         0
//!  4  u32 LE         entry count, at least 1
//!  8  u64 LE         smallest sequence number
//! 16  u64 LE         largest sequence number
//! 24  u32 LE         v: where the value area starts
//! 28  u32 LE         restart count r, at least 1
//! 32  key area, per entry:
//!       varint       bytes of the key shared with the key before
//!       varint       bytes of the key not shared
//!       varint       length of the value
//!       u8           operation; absent if flag bit 0 is set
//!       w bytes LE   sequence number - smallest sequence number
//!       bytes        the key's bytes not shared
//! v - 8r             restarts, each u32 LE position of the entry in the block, u32 LE position of its value
//! v                  value area: the values back to back, to the end of the block
//! ```
//!
//! A search touches the header, the restarts and the key area only; a scan reads two forward streams.
//!
//! An entry is a restart (it shares nothing) if it is the first of the block, or if at least `restart_interval` entries
//! came since the last restart *and its key differs from the key before*. Hence every restart is the first entry of its
//! key in the block, and an entry has the key of the entry before exactly if it has no bytes of its own.

use std::cmp::Ordering;

use mycelium_base::coding::get_varint;
use mycelium_base::key_prefix::common_prefix;
use mycelium_base::limits::MAX_KEY_LEN;
use mycelium_base::prefetch::{CACHE_LINE, prefetch};
use mycelium_base::{Error, MAX_SEQUENCE_NUMBER, Operation, Result, SequenceNumber, Trailer};

pub(crate) const HEADER_LEN: usize = 32;
pub(crate) const FLAG_UNIFORM: u8 = 1;
pub(crate) const FLAG_UNIQUE_KEYS: u8 = 2;
pub(crate) const OPERATION_SHIFT: u32 = 4;
pub(crate) const RESTART_LEN: usize = 8;

/// Bytes that the fast path of `decode` reads at once: varints of one, one and up to two bytes, operation and sequence
/// number.
const FAST_WINDOW: usize = 12;

/// The checked header of a block, as positions in the bytes that hold the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockShape {
    /// Where the block starts in the bytes; all other positions count from the start of the bytes too.
    start: usize,
    key_start: usize,
    key_end: usize,
    value_start: usize,
    end: usize,
    restarts: usize,
    base_sequence: SequenceNumber,
    max_delta: u64,
    sequence_mask: u64,
    operation_mask: u64,
    operation_shift: u32,
    meta_len: usize,
    uniform_operation: u64,
    entry_count: u32,
    unique_keys: bool,
}

/// One decoded entry: positions in the bytes that hold the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawEntry {
    /// Bytes of the key shared with the key before.
    pub shared: usize,
    /// Where the key's other bytes lie; the next entry follows them.
    pub suffix: usize,
    /// Their number.
    pub suffix_len: usize,
    /// The value's length.
    pub value_len: usize,
    /// Sequence number and operation.
    pub trailer: Trailer,
}

impl RawEntry {
    /// Where the next entry starts.
    #[inline(always)]
    pub fn next(&self) -> usize {
        self.suffix + self.suffix_len
    }
}

fn malformed(what: &str) -> Error {
    Error::corruption(format!("malformed data block: {what}"))
}

impl BlockShape {
    /// Checks the header of the block `bytes[start..end]`. `sequence_override` takes the place of the stored sequence
    /// numbers, which must then all be 0.
    pub fn parse(bytes: &[u8], start: usize, end: usize, sequence_override: Option<SequenceNumber>) -> Result<Self> {
        let block = bytes.get(start..end).ok_or_else(|| malformed("cut short"))?;
        let Some((header, _)) = block.split_first_chunk::<HEADER_LEN>() else {
            return Err(malformed("cut short"));
        };
        let u32_at = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let (flags, width) = (header[0], usize::from(header[1]));
        let uniform = flags & FLAG_UNIFORM != 0;
        let operation = flags >> OPERATION_SHIFT;
        let known_flags = FLAG_UNIFORM | FLAG_UNIQUE_KEYS | if uniform { 7 << OPERATION_SHIFT } else { 0 };
        if flags & !known_flags != 0 || width > 7 || header[2] != 0 || header[3] != 0 || operation > 4 {
            return Err(malformed("flags"));
        }
        let (min, max) = (u64_at(8), u64_at(16));
        if min > max || max > MAX_SEQUENCE_NUMBER {
            return Err(malformed("sequence numbers"));
        }
        let (entry_count, value_area, restarts) = (u32_at(4), u32_at(24) as usize, u32_at(28) as usize);
        let key_area_end = restarts.checked_mul(RESTART_LEN).and_then(|len| value_area.checked_sub(len));
        let key_area_end = key_area_end.filter(|&at| at > HEADER_LEN && value_area <= block.len());
        let Some(key_area_end) = key_area_end.filter(|_| restarts > 0 && entry_count as usize >= restarts) else {
            return Err(malformed("areas"));
        };
        let base_sequence = match sequence_override {
            None => min,
            Some(number) if max == 0 => number,
            Some(_) => return Err(malformed("sequence numbers in a file that is to have none").expected(0, max)),
        };
        Ok(Self {
            start,
            key_start: start + HEADER_LEN,
            key_end: start + key_area_end,
            value_start: start + value_area,
            end,
            restarts,
            base_sequence,
            max_delta: max - min,
            sequence_mask: (1 << (8 * width)) - 1,
            operation_mask: if uniform { 0 } else { 0xff },
            operation_shift: if uniform { 0 } else { 8 },
            meta_len: width + usize::from(!uniform),
            uniform_operation: u64::from(operation),
            entry_count,
            unique_keys: flags & FLAG_UNIQUE_KEYS != 0,
        })
    }

    /// Entries in the block.
    pub fn entry_count(&self) -> u32 {
        self.entry_count
    }

    /// The smallest sequence number in the block.
    pub fn min_sequence(&self) -> SequenceNumber {
        self.base_sequence
    }

    /// The largest sequence number in the block.
    pub fn max_sequence(&self) -> SequenceNumber {
        self.base_sequence + self.max_delta
    }

    /// Whether no key occurs twice in the block.
    pub fn unique_keys(&self) -> bool {
        self.unique_keys
    }

    /// Whether every entry is a `Put`.
    pub fn all_puts(&self) -> bool {
        self.operation_mask == 0 && self.uniform_operation == Operation::Put as u64
    }

    /// The number of restarts.
    pub(crate) fn restart_count(&self) -> usize {
        self.restarts
    }

    /// Where the first entry starts.
    #[inline(always)]
    pub fn key_start(&self) -> usize {
        self.key_start
    }

    /// Where the entries end.
    #[inline(always)]
    pub fn key_end(&self) -> usize {
        self.key_end
    }

    /// Where the first value starts.
    #[inline(always)]
    pub fn value_start(&self) -> usize {
        self.value_start
    }

    /// Where the values (and the block) end.
    #[inline(always)]
    pub fn end(&self) -> usize {
        self.end
    }

    /// Restart `i` as (position of the entry, position of its value).
    #[inline]
    pub fn restart(&self, bytes: &[u8], i: usize) -> Result<(usize, usize)> {
        let pair = bytes.get(self.key_end + RESTART_LEN * i..).and_then(|rest| rest.first_chunk::<RESTART_LEN>());
        let Some(&[a, b, c, d, e, f, g, h]) = pair else {
            return Err(malformed("restart"));
        };
        let entry = self.start + u32::from_le_bytes([a, b, c, d]) as usize;
        let value = self.start + u32::from_le_bytes([e, f, g, h]) as usize;
        let inside = (self.key_start..self.key_end).contains(&entry) && (self.value_start..=self.end).contains(&value);
        if inside { Ok((entry, value)) } else { Err(malformed("restart")) }
    }

    /// Decodes the entry at `at`, or `None` if it is malformed. The value's position is not checked, for lack of it.
    #[inline(always)]
    pub fn decode(&self, bytes: &[u8], at: usize) -> Option<RawEntry> {
        match self.decode_fast(bytes, at) {
            None => self.decode_slowly(bytes, at),
            decoded => decoded,
        }
    }

    /// As `decode`, but `None` also for an entry with a length of 128 or more or near the end of the bytes. A caller in
    /// the hot path takes up the slow path apart, so that the entry stays in registers.
    #[inline(always)]
    pub(crate) fn decode_fast(&self, bytes: &[u8], at: usize) -> Option<RawEntry> {
        let &[a, b, c, d, raw @ ..] = bytes.get(at..)?.first_chunk::<FAST_WINDOW>()?;
        if (a | b) & 0x80 != 0 {
            return None;
        }
        let raw = u64::from_le_bytes(raw);
        if c & 0x80 == 0 {
            let raw = raw << 8 | u64::from(d);
            return self.complete((usize::from(a), usize::from(b), usize::from(c)), at + 3, raw);
        }
        // A second byte of 0 would be a longer form than needed, one above 0x7f announces a third.
        let value_len = usize::from(c & 0x7f) | usize::from(d) << 7;
        (1..0x80).contains(&d).then_some(())?;
        self.complete((usize::from(a), usize::from(b), value_len), at + 4, raw)
    }

    #[inline(never)]
    pub(crate) fn decode_slowly(&self, bytes: &[u8], at: usize) -> Option<RawEntry> {
        let area = bytes.get(at..self.key_end)?;
        let (shared, n) = get_varint(area)?;
        let (unshared, m) = get_varint(&area[n..])?;
        let (value_len, k) = get_varint(&area[n + m..])?;
        let meta = &area[n + m + k..];
        let mut raw = [0; 8];
        let present = meta.len().min(8);
        raw[..present].copy_from_slice(&meta[..present]);
        let lengths =
            (usize::try_from(shared).ok()?, usize::try_from(unshared).ok()?, usize::try_from(value_len).ok()?);
        if lengths.0 > MAX_KEY_LEN || lengths.1 > area.len() || lengths.2 > bytes.len() {
            return None;
        }
        self.complete(lengths, at + n + m + k, u64::from_le_bytes(raw))
    }

    #[inline(always)]
    fn complete(
        &self,
        (shared, suffix_len, value_len): (usize, usize, usize),
        meta: usize,
        raw: u64,
    ) -> Option<RawEntry> {
        let operation = raw & self.operation_mask | self.uniform_operation;
        let delta = raw >> self.operation_shift & self.sequence_mask;
        let suffix = meta + self.meta_len;
        if (operation > 4) | (delta > self.max_delta) | (suffix + suffix_len > self.key_end) {
            return None;
        }
        let trailer = Trailer::from_u64((self.base_sequence + delta) << 8 | operation)?;
        Some(RawEntry { shared, suffix, suffix_len, value_len, trailer })
    }
}

/// Asks the processor for the key area of a block that is about to be searched: its few lines then arrive at once
/// rather than one after the other as the search comes to them.
#[inline]
pub(crate) fn prefetch_keys(bytes: &[u8], shape: &BlockShape) {
    /// The key area of a 4 KiB block of small rows; the rest of a larger one is not worth its memory traffic.
    const MOST: usize = 1024;
    let end = shape.key_end + shape.restarts * RESTART_LEN;
    let mut at = shape.key_start + CACHE_LINE;
    while at < end.min(shape.key_start + MOST) {
        if let Some(line) = bytes.get(at) {
            prefetch(line);
        }
        at += CACHE_LINE;
    }
    if let Some(restart) = bytes.get(shape.key_end) {
        prefetch(restart);
    }
}

/// Where a search ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) entry: RawEntry,
    /// Where the entry starts.
    pub(crate) at: usize,
    /// Where its value starts.
    pub(crate) value: usize,
    /// Whether its key is the key searched for.
    pub(crate) same_key: bool,
}

#[cold]
pub(crate) fn bad_entry(shape: &BlockShape, at: usize) -> Error {
    malformed(&format!("entry at byte {} of the block", at.saturating_sub(shape.start)))
}

/// The first entry at or after (`key`, `trailer`) in a block, or `None` if all are before it.
///
/// 1. Binary search among the restarts for the last one whose key is at most `key`; because a restart is the first
///    entry of its key, no entry before it can be the answer (unless it is the first restart).
/// 2. From there on keep `matched`, the length of the prefix that the entry before shares with `key`. An entry that
///    shares more than `matched` with the one before compares as that one did, one that shares less is after `key`;
///    only with equality are bytes compared. No key is rebuilt: the key found is `key[..shared]` and the entry's bytes.
#[inline]
pub(crate) fn search(bytes: &[u8], shape: &BlockShape, key: &[u8], trailer: Trailer) -> Result<Option<Found>> {
    let (mut at, mut value) = restart_before(bytes, shape, key)?;
    let mut matched = 0;
    let mut first = true;
    while at < shape.key_end {
        let Some(entry) = shape.decode(bytes, at) else {
            return Err(bad_entry(shape, at));
        };
        let mut same_key = false;
        let before = if first || entry.shared == matched {
            if first && entry.shared != 0 {
                return Err(bad_entry(shape, at));
            }
            let suffix = &bytes[entry.suffix..entry.next()];
            let rest = &key[matched..];
            let common = common_prefix(suffix, rest);
            matched += common;
            match (suffix.get(common), rest.get(common)) {
                (None, None) => {
                    same_key = true;
                    entry.trailer > trailer
                }
                (None, Some(_)) => true,
                (Some(_), None) => false,
                (Some(a), Some(b)) => a < b,
            }
        } else {
            entry.shared > matched
        };
        if !before {
            return Ok(Some(Found { entry, at, value, same_key }));
        }
        first = false;
        value += entry.value_len;
        at = entry.next();
    }
    Ok(None)
}

#[inline]
fn restart_before(bytes: &[u8], shape: &BlockShape, key: &[u8]) -> Result<(usize, usize)> {
    let (mut low, mut high) = (0, shape.restarts);
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        let (at, _) = shape.restart(bytes, middle)?;
        let entry = match shape.decode(bytes, at) {
            Some(entry) if entry.shared == 0 => entry,
            _ => return Err(bad_entry(shape, at)),
        };
        match bytes[entry.suffix..entry.next()].cmp(key) {
            Ordering::Greater => high = middle,
            _ => low = middle,
        }
    }
    shape.restart(bytes, low)
}
