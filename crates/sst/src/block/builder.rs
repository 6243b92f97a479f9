//! Builds a data block (see `format`).
//!
//! 1. `add` notes lengths and trailer in a fixed-size row and copies the key's own bytes and the value to two areas.
//! 2. `finish` knows the range of sequence numbers and the operations, hence the width of an entry, and writes header,
//!    key area, restarts and values in one pass each. All buffers are reused for the next block.

use mycelium_base::coding::{put_varint, varint_len};
use mycelium_base::{Operation, SequenceNumber, Trailer};

use super::format::{FLAG_UNIFORM, FLAG_UNIQUE_KEYS, HEADER_LEN, OPERATION_SHIFT, RESTART_LEN};
use super::position::BlockFacts;

#[derive(Clone, Copy, Debug)]
struct Row {
    shared: u32,
    unshared: u32,
    value_len: u32,
    restart: bool,
    trailer: Trailer,
}

/// Builds one block after the other.
#[derive(Debug)]
pub struct BlockBuilder {
    restart_interval: usize,
    rows: Vec<Row>,
    suffixes: Vec<u8>,
    values: Vec<u8>,
    since_restart: usize,
    restarts: usize,
    varints: usize,
    min_sequence: SequenceNumber,
    max_sequence: SequenceNumber,
    operations: u8,
    unique_keys: bool,
}

impl BlockBuilder {
    /// An empty builder; a restart every `restart_interval` entries (at least 1).
    pub fn new(restart_interval: usize) -> Self {
        Self {
            restart_interval: restart_interval.max(1),
            rows: Vec::new(),
            suffixes: Vec::new(),
            values: Vec::new(),
            since_restart: 0,
            restarts: 0,
            varints: 0,
            min_sequence: SequenceNumber::MAX,
            max_sequence: 0,
            operations: 0,
            unique_keys: true,
        }
    }

    /// Adds an entry. `shared` is the length of the prefix that `key` shares with the key added before, and `same_key`
    /// whether it is that key. The caller keeps entries in order and lengths within the limits.
    #[inline]
    pub fn add(&mut self, key: &[u8], shared: usize, same_key: bool, trailer: Trailer, value: &[u8]) {
        let first = self.rows.is_empty();
        let restart = first || (self.since_restart >= self.restart_interval && !same_key);
        let shared = if restart { 0 } else { shared };
        if restart {
            self.since_restart = 0;
            self.restarts += 1;
        }
        self.since_restart += 1;
        let unshared = key.len() - shared;
        self.varints += varint_len(shared as u64) + varint_len(unshared as u64) + varint_len(value.len() as u64);
        self.unique_keys &= first || !same_key;
        self.operations |= 1 << trailer.operation() as u8;
        self.min_sequence = self.min_sequence.min(trailer.sequence());
        self.max_sequence = self.max_sequence.max(trailer.sequence());
        self.suffixes.extend_from_slice(&key[shared..]);
        self.values.extend_from_slice(value);
        self.rows.push(Row {
            shared: shared as u32,
            unshared: unshared as u32,
            value_len: value.len() as u32,
            restart,
            trailer,
        });
    }

    /// Entries added.
    pub fn entry_count(&self) -> usize {
        self.rows.len()
    }

    /// Whether nothing was added since the last `finish`.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Smallest and largest sequence number added.
    pub fn sequence_range(&self) -> (SequenceNumber, SequenceNumber) {
        (self.min_sequence, self.max_sequence)
    }

    /// The block's length if it were finished now.
    #[inline]
    pub fn len(&self) -> usize {
        let meta = self.width() + usize::from(!self.operations.is_power_of_two());
        HEADER_LEN
            + self.varints
            + self.suffixes.len()
            + self.rows.len() * meta
            + self.restarts * RESTART_LEN
            + self.values.len()
    }

    /// About the block's length with another entry of so many bytes.
    #[inline]
    pub(crate) fn len_with(&self, unshared: usize, value_len: usize) -> usize {
        self.len() + unshared + value_len + 4
    }

    /// Bytes of sequence number per entry.
    #[inline]
    fn width(&self) -> usize {
        let span = self.max_sequence.saturating_sub(self.min_sequence);
        (64 - span.leading_zeros() as usize).div_ceil(8)
    }

    /// Appends the finished block to `out`, empties the builder, and says what the header says. Nothing is appended if
    /// it is empty.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> BlockFacts {
        let (min_sequence, max_sequence) = self.sequence_range();
        let rows = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        let all_puts = self.operations == 1 << Operation::Put as u8;
        let facts = BlockFacts { rows, min_sequence, max_sequence, unique_keys: self.unique_keys, all_puts };
        if self.rows.is_empty() {
            return facts;
        }
        let start = out.len();
        let (width, uniform) = (self.width(), self.operations.is_power_of_two());
        let value_area = self.len() - self.values.len();
        out.reserve(self.len() + crate::checksum::BLOCK_TRAILER_LEN);
        let mut flags = if self.unique_keys { FLAG_UNIQUE_KEYS } else { 0 };
        if uniform {
            flags |= FLAG_UNIFORM | (self.operations.trailing_zeros() as u8) << OPERATION_SHIFT;
        }
        out.extend_from_slice(&[flags, width as u8, 0, 0]);
        out.extend_from_slice(&(self.rows.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.min_sequence.to_le_bytes());
        out.extend_from_slice(&self.max_sequence.to_le_bytes());
        out.extend_from_slice(&(value_area as u32).to_le_bytes());
        out.extend_from_slice(&(self.restarts as u32).to_le_bytes());
        self.put_keys(out, width, uniform);
        self.put_restarts(out, start, value_area, width + usize::from(!uniform));
        out.extend_from_slice(&self.values);
        self.clear();
        facts
    }

    fn put_keys(&self, out: &mut Vec<u8>, width: usize, uniform: bool) {
        let mut suffix = 0;
        for row in &self.rows {
            let delta = row.trailer.sequence() - self.min_sequence;
            let operation = row.trailer.operation() as u8;
            let (raw, meta_len) = if uniform { (delta, width) } else { (delta << 8 | u64::from(operation), width + 1) };
            if (row.shared | row.unshared | row.value_len) < 0x80 {
                let mut bytes = [0; 11];
                bytes[..3].copy_from_slice(&[row.shared as u8, row.unshared as u8, row.value_len as u8]);
                bytes[3..].copy_from_slice(&raw.to_le_bytes());
                out.extend_from_slice(&bytes[..3 + meta_len]);
            } else {
                put_varint(out, u64::from(row.shared));
                put_varint(out, u64::from(row.unshared));
                put_varint(out, u64::from(row.value_len));
                out.extend_from_slice(&raw.to_le_bytes()[..meta_len]);
            }
            let end = suffix + row.unshared as usize;
            out.extend_from_slice(&self.suffixes[suffix..end]);
            suffix = end;
        }
    }

    fn put_restarts(&self, out: &mut Vec<u8>, start: usize, value_area: usize, meta_len: usize) {
        let (mut at, mut value) = (HEADER_LEN, value_area);
        for row in &self.rows {
            if row.restart {
                out.extend_from_slice(&(at as u32).to_le_bytes());
                out.extend_from_slice(&(value as u32).to_le_bytes());
            }
            let lengths = [row.shared, row.unshared, row.value_len];
            at +=
                lengths.into_iter().map(|n| varint_len(u64::from(n))).sum::<usize>() + meta_len + row.unshared as usize;
            value += row.value_len as usize;
        }
        debug_assert_eq!(out.len() - start, value_area);
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.suffixes.clear();
        self.values.clear();
        (self.since_restart, self.restarts, self.varints) = (0, 0, 0);
        (self.min_sequence, self.max_sequence) = (SequenceNumber::MAX, 0);
        (self.operations, self.unique_keys) = (0, true);
    }
}

/// The operations that data blocks may hold; range deletes have their own block.
pub(crate) fn is_point_operation(operation: Operation) -> bool {
    operation != Operation::RangeDelete
}
