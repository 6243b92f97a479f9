//! Keys as integers, as far as they go: what a merge of many keys compares first.
//!
//! ```text
//! key       skipped | twelve bytes | rest       a shorter key is followed by zeros
//! integer             big-endian
//! ```
//!
//! Keys that share what is skipped are in the order of their integers. Those with the same integer may differ: in the
//! rest, or in zeros at their end.

/// Bytes of a window.
const LEN: usize = 12;
const BITS: u32 = 8 * LEN as u32;

/// The twelve bytes of keys behind what all of them begin with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyWindow {
    skipped: usize,
    /// Bytes at its end that are left as zeros.
    room: usize,
}

impl KeyWindow {
    /// Of keys between `first` and `last`, both included: behind what these two have in common, which is what all of
    /// them have.
    pub fn between(first: &[u8], last: &[u8]) -> Self {
        Self { skipped: mycelium_base::key_prefix::common_prefix(first, last), room: 0 }
    }

    /// Whether keys of this length that have the same window are the same.
    pub fn is_exact_for(self, len: usize) -> bool {
        len <= self.skipped + LEN
    }

    /// That of a key, less than 2^96. O(1).
    #[inline]
    pub fn of(self, key: &[u8]) -> u128 {
        let bytes = key.get(self.skipped..).unwrap_or_default();
        let whole = match bytes.first_chunk::<{ size_of::<u128>() }>() {
            Some(&chunk) => u128::from_be_bytes(chunk),
            None => {
                let mut padded = [0; size_of::<u128>()];
                padded[..bytes.len()].copy_from_slice(bytes);
                u128::from_be_bytes(padded)
            }
        };
        (whole >> (u128::BITS - BITS)).unbounded_shr(8 * self.room as u32)
    }

    /// That of the key of so many bytes, 16 at most, that is `integer`, big-endian.
    #[inline]
    pub(super) fn of_integer(self, integer: u128, len: usize) -> u128 {
        let behind = (len as u32).saturating_sub(self.skipped as u32);
        integer.unbounded_shl(u128::BITS - 8 * behind) >> (u128::BITS - BITS)
    }

    /// What `prefix` has of the window of all keys that begin with it, and the window of what is behind it: a key's is
    /// both together.
    pub(super) fn within(self, prefix: &[u8]) -> (u128, Self) {
        let room = prefix.len().saturating_sub(self.skipped).min(LEN);
        (self.of(prefix), Self { skipped: self.skipped.saturating_sub(prefix.len()), room })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_in_the_order_of_keys_however_they_are_made() {
        let ends: [&[u8]; 9] =
            [b"", b"\0", b"\0\0b", b"a", b"a\0", b"abcdefghijkl", b"abcdefghijkl\0", b"abcdefghijklmnopq", b"b\xff"];
        for shared in [&b""[..], b"p", b"prefix", b"a prefix that is longer than a window"] {
            let mut keys: Vec<Vec<u8>> = ends.iter().map(|end| [shared, end].concat()).collect();
            keys.sort();
            let window = KeyWindow::between(&keys[0], &keys[keys.len() - 1]);
            assert!(keys.is_sorted_by_key(|key| window.of(key)), "{shared:?}");
            for pair in keys.windows(2) {
                let is_exact = pair[0].len() == pair[1].len() && window.is_exact_for(pair[0].len());
                assert!(!is_exact || window.of(&pair[0]) < window.of(&pair[1]), "{pair:?}");
            }
            for key in &keys {
                for cut in 0..=key.len() {
                    let (prefix, end) = key.split_at(cut);
                    let (of_prefix, behind) = window.within(prefix);
                    assert_eq!(of_prefix | behind.of(end), window.of(key), "{key:?} cut at {cut}");
                }
                if key.len() <= 16 {
                    let integer = key.iter().fold(0, |integer, &byte| integer << 8 | u128::from(byte));
                    assert_eq!(window.of_integer(integer, key.len()), window.of(key), "{key:?}");
                }
            }
        }
    }

    #[test]
    fn keys_of_other_lengths_are_not_told_apart_by_windows_alone() {
        let window = KeyWindow::between(b"a", b"b");
        assert_eq!(window.of(b"a"), window.of(b"a\0"));
        assert!(window.is_exact_for(12) && !window.is_exact_for(13));
    }
}
