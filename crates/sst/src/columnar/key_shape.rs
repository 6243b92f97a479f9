//! How keys of one length become integers.
//!
//! ```text
//! key       prefix | high | gap | low      all keys of the block have the same prefix and the same gap
//! integer            high       | low      at most eight bytes, big-endian
//! ```
//!
//! So keys of several columns, most of whose bytes do not vary within a block, are small integers in the order of the
//! keys: of an order's number and a line's, say, some bytes of the one and the last byte of the other.

use std::cmp::Ordering;
use std::ops::Range;

/// Bytes of the longest keys that are looked for as one integer.
const MAX_LEN: usize = size_of::<u128>();

/// Bytes of `high` and `low` together.
pub(super) const MAX_INTEGER_LEN: usize = size_of::<u64>();

/// At most eight bytes as a big-endian integer, zeros before them left out.
#[inline]
pub(super) fn integer(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(&chunk) => u64::from_be_bytes(chunk),
        None => bytes.iter().fold(0, |integer, &byte| integer << 8 | u64::from(byte)),
    }
}

/// At most sixteen bytes, likewise.
#[inline]
fn long_integer(bytes: &[u8]) -> u128 {
    match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        // They overlap in what is the same in both.
        (Some(&first), Some(&last)) => {
            u128::from(u64::from_be_bytes(first)) << (8 * (bytes.len() - 8)) | u128::from(u64::from_be_bytes(last))
        }
        _ => u128::from(integer(bytes)),
    }
}

/// So many bits, all set.
fn ones(bytes: usize) -> u64 {
    u64::MAX.unbounded_shr(64 - 8 * bytes as u32)
}

/// What is behind the prefix of keys that are integers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct KeyEnd<'a> {
    /// Bytes before the gap.
    pub(super) high: usize,
    pub(super) gap: &'a [u8],
    /// Bytes behind it.
    pub(super) low: usize,
}

impl<'a> KeyEnd<'a> {
    /// That of these keys of one length behind so many bytes of prefix; `None` if they vary in too many bytes.
    pub(super) fn of<'k>(keys: impl Iterator<Item = &'k [u8]>, first: &'a [u8], prefix: usize) -> Option<Self> {
        let first = &first[prefix..];
        let mut differing = vec![0; first.len()];
        for key in keys {
            for (differing, (byte, first)) in differing.iter_mut().zip(key[prefix..].iter().zip(first)) {
                *differing |= byte ^ first;
            }
        }
        let gap = longest_run_of_zeros(&differing);
        let (high, low) = (gap.start, first.len() - gap.end);
        (high + low <= MAX_INTEGER_LEN).then(|| Self { high, gap: &first[gap], low })
    }

    pub(super) fn len(&self) -> usize {
        self.high + self.gap.len() + self.low
    }

    /// The integer of bytes behind the prefix, if they have this form.
    fn integer(&self, end: &[u8]) -> Option<u64> {
        let (high, rest) = end.split_at_checked(self.high).filter(|_| end.len() == self.len())?;
        Some(integer(high).unbounded_shl(8 * self.low as u32) | integer(rest.strip_prefix(self.gap)?))
    }

    /// Of any bytes behind the prefix: they are before the keys whose integer is at least this, or, if it says so,
    /// above it.
    pub(super) fn bound(&self, end: &[u8]) -> (u64, bool) {
        let padded = |bytes: &[u8], len: usize| {
            let taken = bytes.len().min(len);
            integer(&bytes[..taken]).unbounded_shl(8 * (len - taken) as u32)
        };
        let high = padded(end, self.high).unbounded_shl(8 * self.low as u32);
        let rest = end.get(self.high..).unwrap_or_default();
        let shared = rest.len().min(self.gap.len());
        match rest[..shared].cmp(&self.gap[..shared]) {
            Ordering::Less => (high, false),
            Ordering::Greater => (high | ones(self.low), true),
            Ordering::Equal => {
                let low = &rest[shared..];
                // What is longer than all keys is after those that it begins with.
                (high | padded(low, self.low), low.len() > self.low)
            }
        }
    }

    /// Appends what is behind the prefix in the key of an integer.
    pub(super) fn put(&self, integer: u64, key: &mut Vec<u8>) {
        let bytes = integer.to_be_bytes();
        let (high, low) = bytes[8 - self.high - self.low..].split_at(self.high);
        key.extend_from_slice(high);
        key.extend_from_slice(self.gap);
        key.extend_from_slice(low);
    }
}

/// The first of the longest.
fn longest_run_of_zeros(bytes: &[u8]) -> Range<usize> {
    let (mut longest, mut start) = (0..0, 0);
    for (at, &byte) in bytes.iter().enumerate() {
        if byte != 0 {
            start = at + 1;
        } else if at + 1 - start > longest.len() {
            longest = start..at + 1;
        }
    }
    longest
}

/// The form of keys of at most sixteen bytes, for computing with them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct KeyShape {
    /// A key's integer with zeros for what varies: its upper and its lower half.
    constant: [u64; 2],
    high_mask: u64,
    low_mask: u64,
    len: u8,
    /// Where `high` is in a key, and in its integer.
    high_at: u8,
    high_to: u8,
}

impl KeyShape {
    /// `None` if the keys are too long.
    pub(super) fn new(prefix: &[u8], end: &KeyEnd<'_>) -> Option<Self> {
        let len = prefix.len() + end.len();
        let mut constant = [0; MAX_LEN];
        let bytes = constant.get_mut(MAX_LEN.checked_sub(len)?..)?;
        bytes[..prefix.len()].copy_from_slice(prefix);
        bytes[prefix.len() + end.high..][..end.gap.len()].copy_from_slice(end.gap);
        let constant = u128::from_be_bytes(constant);
        Some(Self {
            constant: [(constant >> 64) as u64, constant as u64],
            high_mask: ones(end.high),
            low_mask: ones(end.low),
            len: len as u8,
            high_at: 8 * (end.gap.len() + end.low) as u8 % 128,
            // Eight bytes of `low` leave none for `high`.
            high_to: 8 * end.low as u8 % 64,
        })
    }

    /// The length of the keys.
    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// A key's integer, if it has this form.
    #[inline]
    pub(super) fn integer(&self, key: &[u8]) -> Option<u64> {
        if key.len() != self.len() {
            return None;
        }
        if let Ok(&bytes) = <&[u8; 8]>::try_from(key) {
            return self.short_integer(u64::from_be_bytes(bytes));
        }
        self.integer_of_whole(long_integer(key))
    }

    /// The same of a key of the same length, given as an integer of all of its bytes.
    #[inline]
    pub(super) fn integer_of_whole(&self, key: u128) -> Option<u64> {
        if self.len() == 8 {
            return self.short_integer(key as u64);
        }
        let integer = ((key >> self.high_at) as u64 & self.high_mask) << self.high_to | key as u64 & self.low_mask;
        (self.whole(integer) == key).then_some(integer)
    }

    /// That of a key of eight bytes, as many have, in one word.
    #[inline]
    fn short_integer(&self, key: u64) -> Option<u64> {
        // Where nothing lies before the gap the mask is empty, however far the key is shifted.
        let high = key >> (self.high_at & 63) & self.high_mask;
        let low = key & self.low_mask;
        let whole = self.constant[1] | high << (self.high_at & 63) | low;
        (whole == key).then_some(high << self.high_to | low)
    }

    /// The key of an integer, as an integer of all of its bytes.
    #[inline]
    pub(super) fn whole(&self, integer: u64) -> u128 {
        let [upper, lower] = self.constant.map(u128::from);
        let high = u128::from(integer >> self.high_to & self.high_mask) << self.high_at;
        upper << 64 | lower | high | u128::from(integer & self.low_mask)
    }

    /// Makes `key` that of an integer.
    #[inline]
    pub(super) fn write(&self, integer: u64, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(&self.whole(integer).to_be_bytes()[MAX_LEN - self.len()..]);
    }
}

/// What the integer of a key is, if it has the form of the others.
#[inline]
pub(super) fn integer_of(key: &[u8], prefix: &[u8], end: &KeyEnd<'_>, shape: Option<&KeyShape>) -> Option<u64> {
    match shape {
        Some(shape) => shape.integer(key),
        None => key.strip_prefix(prefix).and_then(|rest| end.integer(rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_keys_are_ordered_as_keys_and_lead_back_to_them() {
        let text = |high: &[u8], gap: &[u8], low: &[u8]| [b"pre", high, gap, low].concat();
        for (high, gap, low) in [
            (0, 0, 8),
            (8, 0, 0),
            (3, 2, 1),
            (1, 12, 7),
            (4, 3, 4),
            (0, 1, 2),
            (2, 4, 0),
            (0, 0, 0),
            (0, 13, 0),
            (2, 1, 2),
            (0, 0, 5),
            (5, 0, 0),
            (0, 5, 0),
        ] {
            let bytes =
                |len: usize, seed: u8| -> Vec<u8> { (0..len as u8).map(|at| seed.wrapping_mul(at + 91)).collect() };
            let gap = bytes(gap, 77);
            let mut keys: Vec<Vec<u8>> =
                (0..=255).map(|seed| text(&bytes(high, seed), &gap, &bytes(low, seed / 2 + 1))).collect();
            keys.sort();
            keys.dedup();
            let end = KeyEnd { high, gap: &gap, low };
            let shape = KeyShape::new(b"pre", &end);
            assert_eq!(shape.is_some(), 3 + end.len() <= 16);
            let mut written = Vec::new();
            let integers: Vec<u64> = keys.iter().map(|key| end.integer(&key[3..]).unwrap()).collect();
            assert!(integers.is_sorted_by(|a, b| a < b), "{high} {low}");
            for (key, &integer) in keys.iter().zip(&integers) {
                assert_eq!(end.bound(&key[3..]), (integer, false));
                written.clear();
                end.put(integer, &mut written);
                assert_eq!(written, key[3..]);
                if let Some(shape) = &shape {
                    assert_eq!(shape.integer(key), Some(integer), "{high} {low}");
                    shape.write(integer, &mut written);
                    assert_eq!(written, *key);
                }
            }
            let other_gap = (!gap.is_empty()).then(|| text(&bytes(high, 1), &bytes(gap.len(), 78), &bytes(low, 1)));
            for other in other_gap.into_iter().chain([b"prf".to_vec(), b"pre".repeat(8)]) {
                assert_eq!(integer_of(&other, b"pre", &end, shape.as_ref()), None);
            }
        }
    }

    #[test]
    fn the_gap_is_what_varies_least() {
        let keys = [[1, 2, 9, 9, 9, 3], [1, 5, 9, 9, 9, 3], [1, 5, 9, 9, 9, 4]];
        let end = KeyEnd::of(keys.iter().map(|key| &key[..]), &keys[0], 1).unwrap();
        assert_eq!(end, KeyEnd { high: 1, gap: &[9, 9, 9], low: 1 });
        let wide = [[0; 9], [1; 9]];
        assert_eq!(KeyEnd::of(wide.iter().map(|key| &key[..]), &wide[0], 0), None);
    }
}
