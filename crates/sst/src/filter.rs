//! The Bloom filter: cache-line blocked, one memory access per lookup.
//!
//! ```text
//! 64 bytes, line count times   the lines
//! u32 LE                       line count
//! u8                           probes per key (1 to 16)
//! ```
//!
//! 1. A key's 64-bit hash picks a line with its upper half (`upper * lines >> 32`).
//! 2. The lower half, multiplied by the golden ratio again and again, gives one of the line's 512 bits per probe.
//! 3. Setting and testing touch that line only. At 10 bits per key about 1 % of absent keys pass.
//!
//! Putze, Sanders and Singler, "Cache-, Hash- and Space-Efficient Bloom Filters" (2007).
//!
//! A lookup asks many filters for one key: [`KeyBits`] works its bits out once for all of them, and [`FileFilters`] is
//! what it asks of a file, to be kept beside those of other files (see [`crate::FenceLists`]).

use std::sync::Arc;

use mycelium_base::prefetch::{CACHE_LINE as LINE, prefetch};
use mycelium_base::{Error, Result, SequenceNumber};

const TAIL: usize = 5;
const MAX_PROBES: u8 = 16;

/// The number of probes with the fewest false positives at `bits_per_key`: ln 2 times it, fewer for blocked filters.
fn probes_for(bits_per_key: u32) -> u8 {
    match bits_per_key {
        0..=2 => 1,
        3 => 2,
        4..=5 => 3,
        6..=7 => 4,
        8..=9 => 5,
        10..=11 => 6,
        12..=14 => 7,
        15..=17 => 8,
        18..=22 => 9,
        _ => 10,
    }
}

#[inline(always)]
fn line_of(hash: u64, lines: u32) -> usize {
    (((hash >> 32) * u64::from(lines)) >> 32) as usize
}

/// The bits of a key in its line: of each the word, and the bit in it.
#[inline(always)]
fn bits_of(hash: u64, probes: u8) -> impl Iterator<Item = (usize, u64)> {
    let next = |state: u32| state.wrapping_mul(0x9e37_79b9);
    let mut state = hash as u32;
    (0..probes).map(move |_| {
        state = next(state);
        let bit = state >> 23;
        ((bit >> 6) as usize & 7, 1 << (bit & 63))
    })
}

/// Hashes that a [`FilterBuilder`] keeps in one piece: 64 KiB.
const PIECE: usize = 8192;

/// Collects the hashes of a file's keys and makes the filter when their number is known.
///
/// They are kept in pieces: one growing vector of millions of hashes would take up to three times their memory while it
/// moves, and leave holes behind.
#[derive(Debug)]
pub struct FilterBuilder {
    bits_per_key: u32,
    pieces: Vec<Vec<u64>>,
    count: u64,
}

impl FilterBuilder {
    /// A filter of `bits_per_key` (at most 64 count); none for 0.
    pub fn new(bits_per_key: u32) -> Self {
        Self { bits_per_key: bits_per_key.min(64), pieces: Vec::new(), count: 0 }
    }

    /// Adds a key by its hash (see [`mycelium_base::hash::hash_key`]).
    #[inline]
    pub fn add(&mut self, hash: u64) {
        if self.bits_per_key == 0 {
            return;
        }
        match self.pieces.last_mut() {
            Some(piece) if piece.len() < PIECE => piece.push(hash),
            _ => self.start_piece(hash),
        }
        self.count += 1;
    }

    #[cold]
    fn start_piece(&mut self, hash: u64) {
        let mut piece = Vec::with_capacity(PIECE);
        piece.push(hash);
        self.pieces.push(piece);
    }

    /// About the filter's length in bytes.
    #[inline]
    pub fn estimated_len(&self) -> u64 {
        self.count * u64::from(self.bits_per_key) / 8
    }

    /// The payload of the filter block. Empty without keys or bits.
    pub fn finish(&self) -> Vec<u8> {
        if self.count == 0 {
            return Vec::new();
        }
        let bits = self.count * u64::from(self.bits_per_key);
        let lines = bits.div_ceil(LINE as u64 * 8).min(u64::from(u32::MAX)) as u32;
        let probes = probes_for(self.bits_per_key);
        let mut words = vec![[0_u64; 8]; lines as usize];
        for &hash in self.pieces.iter().flatten() {
            let line = &mut words[line_of(hash, lines)];
            bits_of(hash, probes).for_each(|(word, bit)| line[word] |= bit);
        }
        let mut out = Vec::with_capacity(words.len() * LINE + TAIL + crate::checksum::BLOCK_TRAILER_LEN);
        for word in words.as_flattened() {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&lines.to_le_bytes());
        out.push(probes);
        out
    }
}

/// The shape of a filter, known once its block was parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilterShape {
    lines: u32,
    probes: u8,
}

impl FilterShape {
    /// Parses a payload.
    pub fn parse(payload: &[u8]) -> Result<Self> {
        let wrong = || Error::corruption("malformed filter");
        let (lines_bytes, tail) = payload.split_last_chunk::<TAIL>().ok_or_else(wrong)?;
        let [a, b, c, d, probes] = *tail;
        let lines = u32::from_le_bytes([a, b, c, d]);
        if lines == 0
            || u64::from(lines) * LINE as u64 != lines_bytes.len() as u64
            || !(1..=MAX_PROBES).contains(&probes)
        {
            return Err(wrong().expected(lines_bytes.len(), u64::from(lines) * LINE as u64));
        }
        Ok(Self { lines, probes })
    }

    /// Bytes of the lines.
    pub fn len(&self) -> usize {
        self.lines as usize * LINE
    }

    /// Never: a filter has at least one line.
    pub fn is_empty(&self) -> bool {
        self.lines == 0
    }

    /// Whether a key may be in the set; `lines` are the payload's first [`FilterShape::len`] bytes.
    #[inline]
    pub fn may_contain(&self, lines: &[u8], key: &mut KeyBits) -> bool {
        let start = line_of(key.hash, self.lines) * LINE;
        let Some(line) = lines.get(start..).and_then(|rest| rest.first_chunk::<LINE>()) else {
            return true;
        };
        let words = line.as_chunks::<8>().0.iter().zip(key.of(self.probes));
        // All of them, without a branch that nobody could predict.
        words.fold(0, |missing, (word, bits)| missing | (bits & !u64::from_le_bytes(*word))) == 0
    }

    /// Asks the processor to load the key's line.
    #[inline]
    pub fn prefetch(&self, lines: &[u8], hash: u64) {
        if let Some(line) = lines.get(line_of(hash, self.lines) * LINE) {
            prefetch(line);
        }
    }
}

/// What tells of a file, without a look at it, that it has nothing for a key at a snapshot.
#[derive(Clone, Debug)]
pub struct FileFilters {
    bloom: Option<(AlignedBlock, FilterShape)>,
    oldest: SequenceNumber,
    has_range_deletes: bool,
}

impl FileFilters {
    /// `bloom`: the file's Bloom filter, if it is resident. `oldest`: the smallest sequence number of its entries and
    /// range deletes.
    pub(crate) fn new(
        bloom: Option<(AlignedBlock, FilterShape)>,
        oldest: SequenceNumber,
        has_range_deletes: bool,
    ) -> Self {
        Self { bloom, oldest, has_range_deletes }
    }

    /// A read at a snapshot below it sees nothing of the file.
    #[inline]
    pub fn oldest(&self) -> SequenceNumber {
        self.oldest
    }

    /// Whether the file has range deletes, which the Bloom filter does not know of.
    #[inline]
    pub fn has_range_deletes(&self) -> bool {
        self.has_range_deletes
    }

    /// Asks the processor to load the line of the key with this hash.
    #[inline]
    pub fn prefetch(&self, key_hash: u64) {
        if let Some((block, shape)) = &self.bloom {
            shape.prefetch(block.bytes(), key_hash);
        }
    }

    /// Whether the file may hold entries of the key by its Bloom filter. If that is not resident, `ask_file` says so by
    /// the key's hash ([`crate::SstFile::may_contain`]).
    #[inline]
    pub fn may_contain(&self, key: &mut KeyBits, ask_file: impl FnOnce(u64) -> bool) -> bool {
        match &self.bloom {
            Some((block, shape)) => shape.may_contain(block.bytes(), key),
            None => ask_file(key.hash),
        }
    }
}

/// A key as filters ask for it: its bits in a line are the same in every filter of as many probes per key, and are
/// worked out once for all that follow each other.
#[derive(Clone, Debug)]
pub struct KeyBits {
    hash: u64,
    /// Those that `words` has; 0 before the first filter.
    probes: u8,
    words: [u64; LINE / 8],
}

impl KeyBits {
    /// Of the key with this hash ([`mycelium_base::hash::hash_key`]).
    #[inline]
    pub fn new(hash: u64) -> Self {
        Self { hash, probes: 0, words: [0; LINE / 8] }
    }

    /// The hash.
    #[inline]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    #[inline]
    fn of(&mut self, probes: u8) -> &[u64; LINE / 8] {
        if self.probes != probes {
            self.work_out(probes);
        }
        &self.words
    }

    fn work_out(&mut self, probes: u8) {
        (self.probes, self.words) = (probes, [0; LINE / 8]);
        bits_of(self.hash, probes).for_each(|(word, bit)| self.words[word] |= bit);
    }
}

/// A filter block in memory whose lines start on a cache line.
#[derive(Clone, Debug)]
pub(crate) struct AlignedBlock {
    bytes: Arc<[u8]>,
    start: usize,
}

impl AlignedBlock {
    /// A zeroed block of `len` bytes and where to fill it.
    pub(crate) fn zeroed(len: usize) -> Self {
        Self::of(crate::compression::zeroed(len + LINE - 1))
    }

    /// The block whose bytes are these ([`AlignedBlock::shared`]).
    #[inline]
    pub(crate) fn of(bytes: Arc<[u8]>) -> Self {
        let start = bytes.as_ptr().align_offset(LINE).min(LINE - 1).min(bytes.len());
        Self { bytes, start }
    }

    /// The shared bytes, to be cached.
    pub(crate) fn shared(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// The `len` bytes asked for and those after them.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn fill(&mut self) -> &mut [u8] {
        let start = self.start;
        &mut crate::compression::exclusive(&mut self.bytes)[start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycelium_base::hash::hash_key;

    fn build(hashes: &[u64], bits_per_key: u32) -> Vec<u8> {
        let mut builder = FilterBuilder::new(bits_per_key);
        hashes.iter().for_each(|&hash| builder.add(hash));
        builder.finish()
    }

    #[test]
    fn every_key_is_found_and_few_others_are() {
        for (bits, most_false) in [(1, 1000), (5, 160), (10, 18), (16, 3), (30, 1)] {
            let hashes: Vec<u64> = (0..20_000_u32).map(|i| hash_key(&i.to_be_bytes())).collect();
            let payload = build(&hashes, bits);
            let shape = FilterShape::parse(&payload).unwrap();
            assert!(hashes.iter().all(|&hash| shape.may_contain(&payload, &mut KeyBits::new(hash))));
            let others = (20_000..40_000_u32).map(|i| hash_key(&i.to_be_bytes()));
            let false_positives = others.filter(|&hash| shape.may_contain(&payload, &mut KeyBits::new(hash))).count();
            assert!(false_positives * 1000 / 20_000 <= most_false, "{bits} bits: {false_positives} of 20000");
        }
    }

    #[test]
    fn nothing_to_filter_gives_no_filter() {
        assert!(build(&[], 10).is_empty() && build(&[1], 0).is_empty());
    }

    #[test]
    fn malformed_filters_are_refused() {
        let payload = build(&[1, 2, 3], 10);
        for len in 0..payload.len() {
            assert!(FilterShape::parse(&payload[..len]).is_err());
        }
        let mut other = payload.clone();
        *other.last_mut().unwrap() = 0;
        assert!(FilterShape::parse(&other).is_err());
    }

    #[test]
    fn lines_are_aligned() {
        for len in [0, 1, 64, 1000] {
            let mut block = AlignedBlock::zeroed(len);
            assert_eq!(block.bytes().as_ptr() as usize % LINE, 0);
            assert!(block.fill().len() >= len);
        }
    }
}
