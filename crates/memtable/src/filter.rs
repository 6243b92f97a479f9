//! The Bloom filter of the memtable's keys.
//!
//! Blocked (F. Putze, P. Sanders, J. Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", WEA 2007): a key's six
//! bits lie in one cache line, which the upper half of its hash selects. A lookup is one cache miss.
//!
//! There is one writer, so that setting bits needs no atomic read-modify-write. Bits are set before the key's node is
//! linked with a release store: who can find the node can see the bits.

use std::sync::atomic::{AtomicU64, Ordering};

use mycelium_base::prefetch::prefetch;

#[repr(align(64))]
struct Line([AtomicU64; 8]);

/// A filter of fixed size; with no lines it answers "maybe" to everything.
pub(crate) struct Filter {
    lines: Box<[Line]>,
}

/// Bits set per key.
const PROBES: u32 = 6;

impl Filter {
    /// A filter of about `bytes` bytes: rounded to whole cache lines, 0 for none.
    pub(crate) fn new(bytes: usize) -> Self {
        let lines = (bytes / size_of::<Line>()).min(u32::MAX as usize);
        let lines = if bytes > 0 { lines.max(1) } else { 0 };
        // SAFETY: a line is an array of atomic integers, for which all zeroes is a valid value. (Zeroed memory costs
        // nothing before it is touched.)
        Self { lines: unsafe { Box::new_zeroed_slice(lines).assume_init() } }
    }

    /// Bytes of the filter.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }

    #[inline]
    fn line(&self, hash: u64) -> Option<&Line> {
        // The upper 32 bits scaled to the number of lines: always less than it.
        self.lines.get((((hash >> 32) * self.lines.len() as u64) >> 32) as usize)
    }

    /// Fetches the line of a key into the cache.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(line) = self.line(hash) {
            prefetch(line);
        }
    }

    /// Adds a key. Only the writer may call this: of two concurrent calls one may undo the other.
    #[inline]
    pub(crate) fn insert(&self, hash: u64) {
        let Some(line) = self.line(hash) else { return };
        for (word, bit) in probes(hash) {
            let word = &line.0[word];
            word.store(word.load(Ordering::Relaxed) | bit, Ordering::Relaxed);
        }
    }

    /// `false` if the key was never added; rarely wrong otherwise.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        let Some(line) = self.line(hash) else { return true };
        probes(hash).all(|(word, bit)| line.0[word].load(Ordering::Relaxed) & bit != 0)
    }
}

/// The words and bits of a key: nine bits of the remixed hash each.
#[inline]
fn probes(hash: u64) -> impl Iterator<Item = (usize, u64)> {
    let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..PROBES).map(move |i| {
        let position = mixed >> (10 + 9 * i);
        (((position >> 6) & 7) as usize, 1 << (position & 63))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycelium_base::hash::hash_key;

    #[test]
    fn no_false_negatives_and_few_false_positives() {
        let keys: u32 = if cfg!(miri) { 500 } else { 20_000 };
        let filter = Filter::new(keys as usize * 12 / 8);
        for key in 0..keys {
            filter.insert(hash_key(&key.to_be_bytes()));
        }
        assert!((0..keys).all(|key| filter.may_contain(hash_key(&key.to_be_bytes()))));
        let wrong = (keys..2 * keys).filter(|key| filter.may_contain(hash_key(&key.to_be_bytes()))).count();
        println!("{wrong} false positives of {keys} at 12 bits a key");
        assert!(wrong < keys as usize / 50, "{wrong}");
    }

    #[test]
    fn no_filter_rules_nothing_out() {
        assert!(Filter::new(0).may_contain(7));
        assert_eq!(Filter::new(1).bytes(), 64);
    }
}
