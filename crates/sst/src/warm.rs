//! Bringing blocks of a file into the block cache before anybody asks for them.
//!
//! 1. [`SstFile::cached_intervals`] says which keys' blocks are cached: those of a file that a compaction has read and is about to leave.
//! 2. [`SstFile::warm`] reads the wanted blocks that are not cached in file order, as many neighbours at once as fit a window, and
//!    caches each. It takes the place of as many others, so it is for few blocks, or for a cache that holds nearly everything.

use mycelium_base::{Error, Result};
use mycelium_cache::BlockKind;

use crate::compression::Decompressor;
use crate::index::IndexEntry;
use crate::reader::SstFile;

/// Bytes read at once.
const WINDOW: u64 = 256 << 10;

/// The keys above one key, if there is one, up to another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KeyInterval {
    /// All keys are above it.
    pub above: Option<Vec<u8>>,
    /// The last that there may be.
    pub last: Vec<u8>,
}

impl KeyInterval {
    /// Whether the two may have keys in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        let begins_in = |a: &Self, b: &Self| a.above.as_ref().is_none_or(|above| *above < b.last);
        begins_in(self, other) && begins_in(other, self)
    }
}

impl SstFile {
    /// The intervals of the data blocks that are cached now, ascending; none if the index is not in memory. O(blocks).
    pub fn cached_intervals(&self) -> Vec<KeyInterval> {
        let Some(framed) = &self.index else { return Vec::new() };
        let index = self.index_of(framed);
        let mut cached = Vec::new();
        let mut above = None;
        for at in 0..index.block_count() {
            let last = index.separator(at);
            if self.cache.contains(self.cache_key(index.entry(at).offset)) {
                cached.push(KeyInterval { above: above.clone(), last: last.clone() });
            }
            above = Some(last);
        }
        cached
    }

    /// Caches the data blocks whose intervals are wanted; how many were read. `wants` is asked in ascending order.
    pub fn warm(&self, mut wants: impl FnMut(&KeyInterval) -> bool) -> Result<usize> {
        let mut held = None;
        let index = self.index(&mut held)?;
        let (mut window, mut read): (Vec<IndexEntry>, usize) = (Vec::new(), 0);
        let mut above = None;
        for at in 0..index.block_count() {
            let entry = index.entry(at);
            let interval = KeyInterval { above, last: index.separator(at) };
            if wants(&interval) && !self.cache.contains(self.cache_key(entry.offset)) {
                let fits = |first: &IndexEntry, last: &IndexEntry| {
                    last.offset + last.len == entry.offset && entry.offset + entry.len - first.offset <= WINDOW
                };
                if !window.first().zip(window.last()).is_some_and(|(first, last)| fits(first, last)) {
                    read += self.warm_window(&window)?;
                    window.clear();
                }
                window.push(entry);
            }
            above = Some(interval.last);
        }
        Ok(read + self.warm_window(&window)?)
    }

    /// Reads neighbouring blocks at once and caches them.
    fn warm_window(&self, window: &[IndexEntry]) -> Result<usize> {
        let (Some(first), Some(last)) = (window.first(), window.last()) else { return Ok(0) };
        let len = usize::try_from(last.offset + last.len - first.offset)
            .map_err(|_| Error::corruption("block too long").at(last.offset).in_file(&self.path))?;
        let mut bytes = vec![0; len];
        self.file.read_at(first.offset, &mut bytes).map_err(|error| error.in_file(&self.path))?;
        let mut decompressor = Decompressor::default();
        let mut rest = bytes.as_slice();
        for entry in window {
            let (framed, after) = rest.split_at((entry.len as usize).min(rest.len()));
            let (payload, kind) = self.check_block(framed, entry.offset)?;
            let block = self.decompressed(payload, kind, entry.offset, &mut decompressor)?;
            self.cache.insert(self.cache_key(entry.offset), block, BlockKind::Data);
            rest = after;
        }
        Ok(window.len())
    }
}
