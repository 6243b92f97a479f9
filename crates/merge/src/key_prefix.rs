//! Eight bytes of a key that say of most keys which of two comes first.
//!
//! The first eight bytes of keys do that where keys are integers or hashes. Names like `user:0000012345` have them in
//! common. So what the keys of a merge *share* is passed over, and the eight bytes behind it are taken. A key that does
//! not begin so comes before all that do, or behind them. How much is shared is chosen at a seek, of two neighbouring
//! keys; forwards, what does not hold for a later one is given up, once a byte of it at most. Backwards it is kept, and
//! keys that do not begin so are compared whole.

use mycelium_base::key_prefix::{common_prefix, head};

/// What keys are compared by first. Prefixes of keys order as the keys do, but different keys may have the same.
#[derive(Default, Debug)]
pub(crate) struct KeyPrefix {
    shared: Vec<u8>,
}

/// The prefix of keys behind all that begin with what is shared.
const BEHIND: u64 = u64::MAX;

impl KeyPrefix {
    /// Passes over nothing: prefixes are the first eight bytes of keys.
    pub(crate) fn clear(&mut self) {
        self.shared.clear();
    }

    /// That of a key: `of(a) < of(b)` implies `a < b`.
    #[inline(always)]
    pub(crate) fn of(&self, key: &[u8]) -> u64 {
        if self.shared.is_empty() {
            return head(key);
        }
        match key.strip_prefix(self.shared.as_slice()) {
            Some(behind) => head(behind),
            None => outside(key < self.shared.as_slice()),
        }
    }

    /// Passes over what these keys share, so far that eight bytes are left of the first.
    pub(crate) fn choose(&mut self, key: &[u8], other: &[u8]) {
        let shared = common_prefix(key, other).min(key.len().saturating_sub(size_of::<u64>()));
        self.shared.clear();
        self.shared.extend_from_slice(&key[..shared]);
    }

    /// Whether a key is known not to begin with what is shared; then less of it is shared from now on.
    #[inline]
    pub(crate) fn gives_way_to(&mut self, key: &[u8], prefix: u64) -> bool {
        let is_outside = prefix == BEHIND && !key.starts_with(&self.shared);
        if is_outside {
            self.shared.truncate(common_prefix(&self.shared, key));
        }
        is_outside
    }
}

#[cold]
fn outside(is_before: bool) -> u64 {
    if is_before { 0 } else { BEHIND }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_order_as_their_keys_whatever_is_shared() {
        let parts: [&[u8]; 7] = [b"", b"\0", b"user", b"user:00", b"\xff", b"\xff\xff\xff\xff\xff\xff\xff\xff", b"usf"];
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for a in parts {
            keys.extend(parts.iter().flat_map(|b| parts.iter().map(move |c| [a, b, c].concat())));
        }
        keys.sort();
        for (first, second) in keys.iter().zip(&keys[1..]) {
            let mut prefix = KeyPrefix::default();
            prefix.choose(first, second);
            for _ in 0..3 {
                assert!(keys.is_sorted_by_key(|key| prefix.of(key)), "{prefix:?}");
                let behind = keys.iter().find(|key| prefix.of(key) == BEHIND && !key.starts_with(&prefix.shared));
                let before = prefix.shared.len();
                if let Some(key) = behind {
                    assert!(prefix.gives_way_to(key, BEHIND) && prefix.shared.len() < before);
                }
            }
        }
    }

    #[test]
    fn names_are_told_apart_behind_what_they_share() {
        let mut prefix = KeyPrefix::default();
        prefix.choose(b"user:000000012345", b"user:000000012346");
        assert!(prefix.of(b"user:000000012345") < prefix.of(b"user:000000012346"));
        assert!(prefix.of(b"user:000000099999") < prefix.of(b"user:000000100000"));
        assert_eq!((prefix.of(b"user:"), prefix.of(b"v")), (0, BEHIND));
        assert!(!prefix.gives_way_to(b"user:000000012345", prefix.of(b"user:000000012345")));
        assert!(prefix.gives_way_to(b"user:100000000000", BEHIND));
        assert!(prefix.of(b"user:000000012345") < prefix.of(b"user:100000000000"));
    }
}
