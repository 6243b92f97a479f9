//! What the filters of segments that lie over one another said of keys, remembered.
//!
//! One after the other they say of a key's hash that their segment has nothing for it, until one lets it pass. They
//! will say so again: it follows from the hash and from which segments these are, and from nothing else. So who asks
//! for a hot row again begins with the first that let its hash pass.
//!
//! 1. A hash belongs to one of 8,192 sets of four words, by its upper bits.
//! 2. A word has the other bits of the hash, the number of the interval of keys, and how many of the segments there
//!    have nothing, from the newest on: 51, 8 and 5 bits. So what is said of one hash in one interval is never taken
//!    for what is said of another, and a word is read and written at once. 0 says that none can be passed over, which
//!    is true of every hash.
//! 3. A new word takes the place of one of the same hash and interval, or of an empty one, or else of the one that the
//!    hash picks.
//!
//! Guarantees that [`Verdicts::get`] gives no more than what was noted for this hash and interval. Takes 256 KiB, from
//! the first note on.

use std::sync::OnceLock;
// The words say nothing of other memory, in whatever order threads see them.
use std::sync::atomic::{AtomicU64, Ordering};

const SET_BITS: u32 = 13;
const SET_LEN: usize = 4;
const INTERVAL_BITS: u32 = 8;
const COUNT_BITS: u32 = SET_BITS - INTERVAL_BITS;
/// The most segments that are passed over.
const MOST: usize = (1 << COUNT_BITS) - 1;

#[derive(Default, Debug)]
#[repr(align(32))]
struct Set([AtomicU64; SET_LEN]);

/// See the module. Shared by all threads.
#[derive(Default, Debug)]
pub(super) struct Verdicts {
    sets: OnceLock<Box<[Set]>>,
}

impl Verdicts {
    /// So many of the newest segments of an interval have nothing for the hash; 0 if it is not known. O(1).
    #[inline]
    pub(super) fn get(&self, hash: u64, interval: usize) -> usize {
        let Some((sets, name)) = self.sets.get().zip(name_of(hash, interval)) else { return 0 };
        let mut words = sets[set_of(hash)].0.iter().map(|word| word.load(Ordering::Relaxed));
        let found = words.find(|word| word >> COUNT_BITS == name);
        found.map_or(0, |word| word as usize & MOST)
    }

    /// The `count` newest segments of an interval have nothing for the hash. O(1).
    pub(super) fn note(&self, hash: u64, interval: usize, count: usize) {
        let Some(name) = name_of(hash, interval) else { return };
        let sets = self.sets.get_or_init(|| (0..1 << SET_BITS).map(|_| Set::default()).collect());
        let words = &sets[set_of(hash)].0;
        let is_free = |word: &&AtomicU64| {
            let known = word.load(Ordering::Relaxed);
            known == 0 || known >> COUNT_BITS == name
        };
        let word = words.iter().find(is_free).unwrap_or(&words[hash as usize % SET_LEN]);
        word.store((name << COUNT_BITS) | count.min(MOST) as u64, Ordering::Relaxed);
    }
}

fn set_of(hash: u64) -> usize {
    (hash >> (u64::BITS - SET_BITS)) as usize
}

/// The bits of a hash that do not pick its set, and the interval; `None` of an interval with a larger number.
#[inline]
fn name_of(hash: u64, interval: usize) -> Option<u64> {
    let rest = (hash << SET_BITS) >> COUNT_BITS;
    (interval < 1 << INTERVAL_BITS).then_some(rest | interval as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn nothing_is_said_of_another_hash_or_interval() {
        let verdicts = Verdicts::default();
        assert_eq!(verdicts.get(0, 0), 0);
        let hashes = [0, 1, 1 << 12, 1 << 50, 1 << 51, 1 << 63, u64::MAX, u64::MAX >> SET_BITS, u64::MAX << COUNT_BITS];
        let intervals = [0, 1, 31, 32, 255];
        for hash in hashes {
            for interval in intervals {
                let verdicts = Verdicts::default();
                verdicts.note(hash, interval, 7);
                for other in hashes {
                    for beside in intervals {
                        let expected = if (other, beside) == (hash, interval) { 7 } else { 0 };
                        assert_eq!(verdicts.get(other, beside), expected, "{hash:#x}/{interval} {other:#x}/{beside}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_was_noted_last_is_known_and_what_is_forgotten_is_nothing() {
        let verdicts = Verdicts::default();
        let mut noted: HashMap<(u64, usize), usize> = HashMap::new();
        for n in 0..200_000u64 {
            let (hash, interval) = (mycelium_base::hash::mix(n % 20_000), n as usize % 3);
            let count = n as usize % 40;
            verdicts.note(hash, interval, count);
            noted.insert((hash, interval), count);
            assert_eq!(verdicts.get(hash, interval), count.min(MOST));
        }
        let known = noted.iter().filter(|((hash, interval), count)| {
            let known = verdicts.get(*hash, *interval);
            assert!(known == 0 || known == (**count).min(MOST), "{known} of {count}");
            known > 0
        });
        assert!(known.count() > 20_000);
    }

    #[test]
    fn numbers_beyond_the_bits_are_left_out() {
        let verdicts = Verdicts::default();
        verdicts.note(5, 1 << INTERVAL_BITS, 3);
        verdicts.note(6, 0, 1_000);
        assert_eq!((verdicts.get(5, 1 << INTERVAL_BITS), verdicts.get(5, 0), verdicts.get(6, 0)), (0, 0, MOST));
    }
}
