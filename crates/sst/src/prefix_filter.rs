//! Prefixes of keys in the Bloom filter: what tells a scan that a file has nothing within its bounds.
//!
//! 1. The writer adds the hash of each distinct prefix to the filter that holds the keys: of the first column of a key,
//!    of the first two, and so on ([`KeyPrefixes`]). Keys come in order, so that a prefix is new where its end lies
//!    behind what a key shares with the one before it.
//! 2. The file's properties say which prefixes these are, and whether the filter holds keys beside them.
//! 3. A scan whose bounds lie within a prefix asks for the longest one of those that the file has ([`ScanPrefix`]).
//!
//! Guarantee: a file that is ruled out has no entry within the bounds. It may have range deletes there, which no filter
//! knows of.

use mycelium_base::hash::hash_key;
use mycelium_encoding::KeyPrefixes;

use crate::filter::{FilterBuilder, KeyBits};

/// Bits per prefix in filters that have no keys.
pub(crate) const BITS_WITHOUT_KEYS: u32 = 10;

/// Adds the prefixes of ascending keys to a filter. Step 1 of the module.
#[derive(Debug)]
pub(crate) struct PrefixHashes {
    prefixes: KeyPrefixes,
    /// Whether the filter has the keys themselves.
    beside_keys: bool,
    /// Where the prefixes of the last key end.
    ends: Vec<usize>,
}

impl PrefixHashes {
    pub(crate) fn new(prefixes: KeyPrefixes, beside_keys: bool) -> Self {
        Self { prefixes, beside_keys, ends: Vec::with_capacity(prefixes.count()) }
    }

    /// Adds those of a key that the last one, with which it shares so many bytes, does not have.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], shared: usize, filter: &mut FilterBuilder) {
        let is_complete = self.ends.len() == self.prefixes.count();
        if !is_complete || self.ends.last().is_some_and(|&end| end > shared) {
            self.add_new(key, shared, filter);
        }
    }

    fn add_new(&mut self, key: &[u8], shared: usize, filter: &mut FilterBuilder) {
        self.ends.retain(|&end| end <= shared);
        let mut from = self.ends.last().copied().unwrap_or(0);
        while let Some(end) = self.prefixes.end_behind(key, self.ends.len(), from) {
            self.ends.push(end);
            if end < key.len() || !self.beside_keys {
                filter.add(hash_key(&key[..end]));
            }
            from = end;
        }
    }
}

/// What a scan asks filters for: the prefix that all keys within its bounds have. Worked out once for all files that
/// follow each other and have the same prefixes.
#[derive(Debug)]
pub struct ScanPrefix<'b> {
    lower: Option<&'b [u8]>,
    upper: Option<&'b [u8]>,
    /// That of the last file asked; without bits if the bounds lie within none of its prefixes.
    asked: Option<(KeyPrefixes, Option<KeyBits>)>,
}

impl<'b> ScanPrefix<'b> {
    /// Of a scan of `[lower, upper)`; one without a lower bound begins with the first key.
    pub fn new(lower: Option<&'b [u8]>, upper: Option<&'b [u8]>) -> Self {
        Self { lower, upper, asked: None }
    }

    /// The bits of the longest of these prefixes that all keys within the bounds have, if they have one.
    pub(crate) fn bits_of(&mut self, prefixes: &KeyPrefixes) -> Option<&mut KeyBits> {
        let lower = self.lower?;
        if self.asked.as_ref().is_none_or(|(asked, _)| asked != prefixes) {
            let prefix = prefixes.of_range(lower, self.upper);
            self.asked = Some((*prefixes, prefix.map(|prefix| KeyBits::new(hash_key(prefix)))));
        }
        self.asked.as_mut()?.1.as_mut()
    }
}
