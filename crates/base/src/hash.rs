//! The hash of a key for filters, the checksum of a whole file, and what mixes the bits of a number. They are part of
//! formats and must never change.

/// The 64-bit filter hash of a key (XXH3, seed 0).
#[inline]
pub fn hash_key(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// The finalizer of SplitMix64: a bijection of the 64-bit integers that looks random, but for 0, which stays 0.
///
/// ```
/// use mycelium_base::hash::mix;
///
/// assert_eq!(mix(0), 0);
/// assert_eq!(mix(0x9e37_79b9_7f4a_7c15), 0xe220_a839_7b1d_cdaf);
/// ```
#[inline]
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The checksum of a whole file (XXH3-64, seed 0), whose bytes come in pieces.
///
/// ```
/// use mycelium_base::hash::{FileChecksum, hash_key};
///
/// let mut checksum = FileChecksum::default();
/// checksum.update(b"in ");
/// checksum.update(b"pieces");
/// assert_eq!(checksum.value(), hash_key(b"in pieces"));
/// ```
#[derive(Clone, Default)]
pub struct FileChecksum(xxhash_rust::xxh3::Xxh3);

impl FileChecksum {
    /// Takes the next bytes.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes so far.
    pub fn value(&self) -> u64 {
        self.0.digest()
    }
}
