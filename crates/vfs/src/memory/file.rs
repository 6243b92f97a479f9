//! The contents of one file of the in-memory disk: what a reader sees, and what the platter holds.
//!
//! `current` is what a reader sees. The platter holds the same, except for the blocks in `shadow`, whose durable bytes
//! are kept there, and except for its length.
//!
//! 1. The first change of a block saves its durable bytes in `shadow` and marks it dirty.
//! 2. A sync forgets the shadows of the dirty blocks: they became durable.
//! 3. A sync that fails and loses its pages only marks the blocks clean. Their shadows stay, so a later sync that
//!    succeeds does not bring them to the platter, while readers go on seeing them; a later change of such a block
//!    makes the whole block dirty again, as the page cache would.
//! 4. A power loss starts from the platter and writes some of the dirty blocks to it; see [`MemoryFile::crash`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand::Rng;
use rand::rngs::SmallRng;

use crate::crash::CrashMode;

/// The unit in which the page cache reaches the platter.
const BLOCK: usize = 4096;
/// The unit the platter writes atomically, or tears.
const SECTOR: usize = 512;

#[derive(Clone, Default, Debug)]
pub(super) struct MemoryFile {
    current: Arc<Vec<u8>>,
    /// Durable bytes of the blocks that differ from `current`, without trailing zeros that were never written.
    shadow: BTreeMap<usize, Box<[u8]>>,
    /// Blocks a sync would write; each has a shadow.
    dirty: BTreeSet<usize>,
    durable_len: usize,
    /// Bytes before this were durable at the last sync and not cut off since: every power loss keeps them.
    floor: usize,
}

impl MemoryFile {
    /// A file that is wholly durable.
    pub(super) fn durable(contents: Arc<Vec<u8>>) -> Self {
        let len = contents.len();
        Self { current: contents, durable_len: len, floor: len, ..Self::default() }
    }

    pub(super) fn current(&self) -> &Arc<Vec<u8>> {
        &self.current
    }

    pub(super) fn len(&self) -> usize {
        self.current.len()
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        let start = self.current.len();
        self.touch(start, start + bytes.len());
        Arc::make_mut(&mut self.current).extend_from_slice(bytes);
    }

    /// Cuts the file back; `len` is at most its length.
    pub(super) fn truncate(&mut self, len: usize) {
        self.touch(len, self.current.len());
        self.floor = self.floor.min(len);
        Arc::make_mut(&mut self.current).truncate(len);
    }

    pub(super) fn sync(&mut self) {
        for block in std::mem::take(&mut self.dirty) {
            self.shadow.remove(&block);
        }
        self.durable_len = self.current.len();
        self.floor = self.durable_len;
    }

    /// What a failed sync does on file systems that mark the pages clean all the same.
    pub(super) fn lose_unsynced(&mut self) {
        self.dirty.clear();
    }

    /// Changes bytes on the platter and in the cache, behind the back of the program. The range lies within the file.
    pub(super) fn overwrite(&mut self, offset: usize, bytes: &[u8]) {
        Arc::make_mut(&mut self.current)[offset..offset + bytes.len()].copy_from_slice(bytes);
        for (&block, shadow) in self.shadow.range_mut(offset / BLOCK..) {
            let start = block * BLOCK;
            let (from, to) = (offset.max(start), (offset + bytes.len()).min(start + shadow.len()));
            if from < to {
                shadow[from - start..to - start].copy_from_slice(&bytes[from - offset..to - offset]);
            }
        }
    }

    /// Marks the blocks of `[start, end)` dirty, before they change.
    fn touch(&mut self, start: usize, end: usize) {
        if start == end {
            return;
        }
        for block in start / BLOCK..end.div_ceil(BLOCK) {
            if !self.dirty.insert(block) || self.shadow.contains_key(&block) {
                continue;
            }
            let from = block * BLOCK;
            let to = (from + BLOCK).min(self.durable_len).min(self.current.len());
            self.shadow.insert(block, self.current.get(from..to).unwrap_or_default().into());
        }
    }

    /// The platter's bytes, with zeros up to `len` where it has none.
    fn platter(&self, len: usize) -> Vec<u8> {
        let mut bytes = self.current[..self.current.len().min(self.durable_len)].to_vec();
        bytes.resize(len, 0);
        for (&block, shadow) in &self.shadow {
            let start = (block * BLOCK).min(len);
            let end = (start + BLOCK).min(len);
            let known = shadow.len().min(end - start);
            bytes[start..start + known].copy_from_slice(&shadow[..known]);
            bytes[start + known..end].fill(0);
        }
        bytes
    }

    /// The contents after a power loss.
    ///
    /// 1. Start from the platter, extended with zeros to the longest length the file may have.
    /// 2. Write each dirty block, or not, or in torn sectors, as the mode draws.
    /// 3. Draw the length: the file's size is metadata that reaches the platter on its own.
    pub(super) fn crash(&self, mode: CrashMode, rng: &mut SmallRng) -> Self {
        if self.shadow.is_empty() && self.durable_len == self.current.len() {
            return Self::durable(Arc::clone(&self.current));
        }
        let longest = self.durable_len.max(self.current.len());
        let mut bytes = self.platter(longest);
        for &block in &self.dirty {
            match mode {
                CrashMode::SyncedOnly | CrashMode::MetadataOnly => {}
                CrashMode::DataOnly => self.write_block(block, &mut bytes),
                CrashMode::KeepSome { keep } => {
                    if rng.random_bool(keep) {
                        self.write_block(block, &mut bytes);
                    }
                }
                CrashMode::TornSectors { keep } => self.tear_block(block, keep, &mut bytes, rng),
            }
        }
        bytes.truncate(match mode {
            CrashMode::SyncedOnly => self.durable_len,
            CrashMode::MetadataOnly | CrashMode::DataOnly => self.current.len(),
            CrashMode::KeepSome { keep } | CrashMode::TornSectors { keep } => self.draw_len(keep, longest, rng),
        });
        Self::durable(Arc::new(bytes))
    }

    fn write_block(&self, block: usize, bytes: &mut [u8]) {
        self.write_range(block * BLOCK, (block + 1) * BLOCK, bytes);
    }

    /// Writes `[start, end)` of the current contents, zeros where they end.
    fn write_range(&self, start: usize, end: usize, bytes: &mut [u8]) {
        let end = end.min(bytes.len());
        if start < end {
            let known = self.current.len().clamp(start, end);
            bytes[start..known].copy_from_slice(self.current.get(start..known).unwrap_or_default());
            bytes[known..end].fill(0);
        }
    }

    /// Draws for each sector whether it is good, missing, or garbage in its left part, its right part or whole. Durable
    /// bytes that share a sector with new ones are never damaged.
    fn tear_block(&self, block: usize, keep: f64, bytes: &mut [u8], rng: &mut SmallRng) {
        for start in (block * BLOCK..(block + 1) * BLOCK).step_by(SECTOR) {
            let end = (start + SECTOR).min(bytes.len());
            if start >= end {
                return;
            }
            let good = rng.random_bool(keep);
            let middle = rng.random_range(start..=end);
            let garbage = match rng.random_range(0..4) {
                _ if good => start..start,
                0 => continue,
                1 => start..middle,
                2 => middle..end,
                _ => start..end,
            };
            self.write_range(start, end, bytes);
            let from = garbage.start.max(self.floor);
            if from < garbage.end {
                rng.fill(&mut bytes[from..garbage.end]);
            }
        }
    }

    /// The newest length, or the durable one, or one in between at a block border or anywhere; at least the floor.
    fn draw_len(&self, keep: f64, longest: usize, rng: &mut SmallRng) -> usize {
        if rng.random_bool(keep) {
            return self.current.len();
        }
        match rng.random_range(0..3) {
            0 => self.durable_len,
            1 => rng.random_range(self.floor..=longest).next_multiple_of(BLOCK).min(longest),
            _ => rng.random_range(self.floor..=longest),
        }
    }
}
