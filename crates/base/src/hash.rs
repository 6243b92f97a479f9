//! The hash of a key for filters. It is part of the SST format and must never change.

/// The 64-bit filter hash of a key (XXH3, seed 0).
#[inline]
pub fn hash_key(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}
