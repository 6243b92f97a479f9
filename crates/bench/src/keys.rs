//! Keys and values of the workloads.
//!
//! A key is 16 bytes: 8 bytes big-endian of a permutation of the index, then 8 bytes derived from those.
//!
//! 1. `Hashed`: the permutation is a step of SplitMix64, a bijection of 64-bit integers. Loading indexes 0, 1,
//!    2, … therefore inserts every key once, in random key order. Index `n` and above give keys that were never stored
//!    and lie *between* stored ones, so that no fence (key range) rules them out.
//! 2. `Ordered`: the permutation is the identity; index order is key order.
//!
//! Where keys are text, they are the first 8 of these bytes in hexadecimal.
//!
//! A value starts with the key's index (8 bytes, little-endian), which readers check. The rest is a slice of a pool of
//! 1 MiB at a position drawn from the index and the version: either random bytes, or, like db_bench with a compression
//! ratio of 0.5, pieces of 100 bytes whose second half repeats the first.

use mycelium_base::hash;
use serde::{Deserialize, Serialize};

/// Bytes of every key.
pub const KEY_LEN: usize = 16;

/// Bytes of the index at the front of every value; no value is shorter.
pub const STAMP_LEN: usize = 8;

const POOL_LEN: usize = 1 << 20;
const PIECE_LEN: usize = 100;

/// How an index becomes a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyOrder {
    /// Index order is random key order.
    Hashed,
    /// Index order is key order.
    Ordered,
}

/// What values are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueKind {
    /// Compressible to about half.
    Half,
    /// Not compressible.
    Random,
}

/// A step of SplitMix64: a bijection of the 64-bit integers that looks random.
#[inline]
pub fn mix(index: u64) -> u64 {
    hash::mix(index.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

/// The key of an index.
#[inline]
pub fn key(index: u64, order: KeyOrder) -> [u8; KEY_LEN] {
    let head = match order {
        KeyOrder::Hashed => mix(index),
        KeyOrder::Ordered => index,
    };
    let mut key = [0; KEY_LEN];
    key[..8].copy_from_slice(&head.to_be_bytes());
    key[8..].copy_from_slice(&mix(head).to_be_bytes());
    key
}

/// Hands over the key of an index as text: the permutation of [`KeyOrder::Hashed`] in hexadecimal.
#[inline]
pub fn with_text_key<R>(index: u64, take: impl FnOnce(&str) -> R) -> R {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let random = mix(index);
    let mut key = [0; KEY_LEN];
    for (place, digit) in key.iter_mut().enumerate() {
        *digit = DIGITS[(random >> (60 - 4 * place) & 0xf) as usize];
    }
    // Digits are ASCII.
    take(std::str::from_utf8(&key).unwrap_or_default())
}

/// A pool of bytes that values are cut from.
pub struct Values {
    pool: Vec<u8>,
    len: usize,
}

impl Values {
    /// Values of `len` bytes, at least [`STAMP_LEN`] and at most 1 MiB.
    pub fn new(kind: ValueKind, len: usize) -> Self {
        assert!((STAMP_LEN..=POOL_LEN).contains(&len), "value length {len} is out of range");
        let mut pool = Vec::with_capacity(POOL_LEN + len);
        let mut state = 0;
        let mut random = || {
            state += 1;
            mix(state)
        };
        while pool.len() < POOL_LEN + len {
            let start = pool.len();
            let fresh = if kind == ValueKind::Half { PIECE_LEN / 2 } else { PIECE_LEN };
            while pool.len() < start + fresh {
                pool.push(random() as u8);
            }
            if kind == ValueKind::Half {
                pool.extend_from_within(start..start + fresh);
            }
        }
        Self { pool, len }
    }

    /// Fills `value` with the value of an index in its `version`-th form.
    #[inline]
    pub fn fill(&self, index: u64, version: u64, value: &mut Vec<u8>) {
        let at = (mix(index ^ version.rotate_left(32)) % POOL_LEN as u64) as usize;
        value.clear();
        value.extend_from_slice(&index.to_le_bytes());
        value.extend_from_slice(&self.pool[at..at + self.len - STAMP_LEN]);
    }
}

/// The index at the front of a value, or `None` if the value is too short to be one of ours.
#[inline]
pub fn stamp(value: &[u8]) -> Option<u64> {
    value.first_chunk::<STAMP_LEN>().map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn keys_are_distinct_and_ordered_as_documented() {
        let hashed: BTreeSet<_> = (0..10_000).map(|i| key(i, KeyOrder::Hashed)).collect();
        assert_eq!(hashed.len(), 10_000);
        let first_loaded: Vec<_> = (0..100).map(|i| key(i, KeyOrder::Hashed)).collect();
        assert!(!first_loaded.is_sorted());
        let ordered: Vec<_> = (0..1000).map(|i| key(i, KeyOrder::Ordered)).collect();
        assert!(ordered.is_sorted());
        with_text_key(7, |key| assert_eq!(key, format!("{:016x}", mix(7))));
    }

    #[test]
    fn values_carry_their_index_and_compress_as_documented() {
        for (kind, distinct_halves) in [(ValueKind::Half, false), (ValueKind::Random, true)] {
            let values = Values::new(kind, 400);
            let mut value = Vec::new();
            values.fill(77, 3, &mut value);
            assert_eq!((value.len(), stamp(&value)), (400, Some(77)));
            let repeats = (STAMP_LEN..300).filter(|&i| value[i] == value[i + 50]).count();
            assert_eq!(repeats < 100, distinct_halves, "{repeats} bytes repeat 50 bytes later");
        }
        assert_eq!(stamp(b"short"), None);
    }
}
