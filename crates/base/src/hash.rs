//! The hash of a key for filters, and the checksum of a whole file. They are part of formats and must never change.

/// The 64-bit filter hash of a key (XXH3, seed 0).
#[inline]
pub fn hash_key(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
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
