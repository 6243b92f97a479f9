//! Beginnings of keys: what two have in common, and eight bytes as a number that says of most keys which of two comes
//! first.
//!
//! The first eight bytes of keys do that where keys are integers or hashes. Names like `user:0000012345` have them in
//! common. So what keys *share* ([`KeyPrefix`]) is passed over, and the eight bytes behind it are taken. A key that
//! does not begin so comes before all that do, or behind them. How much is shared is chosen of two keys. A merge does
//! so at each seek, of two neighbours; forwards, what does not hold for a later one is given up, once a byte of it at
//! most. Backwards it is kept, and keys that do not begin so are compared whole. A memtable keeps what it was made
//! with.

/// The length of the common prefix of two byte strings. O(length).
///
/// ```
/// assert_eq!(mycelium_base::key_prefix::common_prefix(b"user:01", b"user:02"), 6);
/// ```
#[inline]
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let mut n = 0;
    let words = a.chunks_exact(8).zip(b.chunks_exact(8));
    for (x, y) in words {
        let (mut p, mut q) = ([0; 8], [0; 8]);
        p.copy_from_slice(x);
        q.copy_from_slice(y);
        let differing = u64::from_le_bytes(p) ^ u64::from_le_bytes(q);
        if differing != 0 {
            return n + differing.trailing_zeros() as usize / 8;
        }
        n += 8;
    }
    n + a[n..].iter().zip(&b[n..]).take_while(|(x, y)| x == y).count()
}

/// The first eight bytes as a big-endian number, zero-padded: `head(a) < head(b)` implies `a < b`.
///
/// ```
/// assert!(mycelium_base::key_prefix::head(b"a") < mycelium_base::key_prefix::head(b"b"));
/// ```
#[inline(always)]
pub fn head(bytes: &[u8]) -> u64 {
    if let Some(bytes) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*bytes);
    }
    // Bytes loaded twice are the same ones. Copying so few would be a call.
    let padding = 8 * (8 - bytes.len() as u32);
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        return u64::from(u32::from_be_bytes(*first)) << 32 | u64::from(u32::from_be_bytes(*last)) << padding;
    }
    bytes.iter().zip([56, 48, 40]).fold(0, |head, (byte, shift)| head | u64::from(*byte) << shift)
}

/// What keys are compared by first. Prefixes of keys order as the keys do, but different keys may have the same.
///
/// ```
/// let mut prefix = mycelium_base::key_prefix::KeyPrefix::default();
/// prefix.choose(b"user:000000012345", b"user:000000099999");
/// assert!(prefix.of(b"user:000000012345") < prefix.of(b"user:000000012346"));
/// assert!(prefix.of(b"another") < prefix.of(b"user:000000000000"));
/// ```
#[derive(Default, Debug)]
pub struct KeyPrefix {
    shared: Vec<u8>,
}

/// The prefix of keys behind all that begin with what is shared.
const BEHIND: u64 = u64::MAX;

impl KeyPrefix {
    /// Passes over nothing: prefixes are the first eight bytes of keys.
    pub fn clear(&mut self) {
        self.shared.clear();
    }

    /// Whether nothing is passed over.
    #[inline(always)]
    pub fn is_head(&self) -> bool {
        self.shared.is_empty()
    }

    /// That of a key: `of(a) < of(b)` implies `a < b`. O(what is shared).
    #[inline(always)]
    pub fn of(&self, key: &[u8]) -> u64 {
        if self.is_head() {
            return head(key);
        }
        match key.split_at_checked(self.shared.len()) {
            Some((begin, behind)) if are_equal(begin, &self.shared) => head(behind),
            _ => outside(key < self.shared.as_slice()),
        }
    }

    /// Passes over what these keys share, so far that eight bytes are left of the first.
    pub fn choose(&mut self, key: &[u8], other: &[u8]) {
        let shared = common_prefix(key, other).min(key.len().saturating_sub(size_of::<u64>()));
        self.shared.clear();
        self.shared.extend_from_slice(&key[..shared]);
    }

    /// Whether a key is known not to begin with what is shared; then less of it is shared from now on.
    #[inline]
    pub fn gives_way_to(&mut self, key: &[u8], prefix: u64) -> bool {
        let is_outside = prefix == BEHIND && !key.starts_with(&self.shared);
        if is_outside {
            self.shared.truncate(common_prefix(&self.shared, key));
        }
        is_outside
    }
}

/// `a == b` of strings of one length, without the call that comparing slices is: mostly they are short, and equal.
#[inline(always)]
fn are_equal(a: &[u8], b: &[u8]) -> bool {
    let mut words = a.chunks_exact(8).zip(b.chunks_exact(8));
    // Bytes behind the last whole word: those of the last eight, some of them for the second time.
    let last = match (a.last_chunk::<8>(), b.last_chunk::<8>()) {
        (Some(a), Some(b)) => a == b,
        _ => a.iter().zip(b).all(|(a, b)| a == b),
    };
    last && words.all(|(a, b)| a.first_chunk::<8>() == b.first_chunk::<8>())
}

#[cold]
fn outside(is_before: bool) -> u64 {
    if is_before { 0 } else { BEHIND }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_the_beginning_padded_with_zeros() {
        let bytes = [0x81, 0x02, 0xfe, 0x04, 0x85, 0x06, 0x87, 0xf8, 0x09];
        for len in 0..=bytes.len() {
            let mut padded = [0; 8];
            padded[..len.min(8)].copy_from_slice(&bytes[..len.min(8)]);
            assert_eq!(head(&bytes[..len]), u64::from_be_bytes(padded), "{len} bytes");
        }
    }

    #[test]
    fn common_prefixes_end_at_the_first_byte_that_differs() {
        let bytes: Vec<u8> = (0..20).collect();
        for len in 0..=bytes.len() {
            for other in 0..=bytes.len() {
                assert_eq!(common_prefix(&bytes[..len], &bytes[..other]), len.min(other));
            }
            let mut changed = bytes.clone();
            changed.iter_mut().skip(len).for_each(|byte| *byte ^= 0x80);
            assert_eq!(common_prefix(&bytes, &changed), len);
        }
    }

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
