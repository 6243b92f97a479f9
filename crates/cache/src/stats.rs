//! What the cache counts.
//!
//! Hits and misses are counted on every lookup by every reader, so they are spread over padded stripes: two readers
//! seldom write to the same cache line.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{BlockKind, CacheKey, CachedBlock};

const STRIPES: usize = 16;

/// Sizes in bytes and counts since the cache was made.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct CacheStats {
    /// The whole budget.
    pub capacity: u64,
    /// Bytes of cached blocks, with their bookkeeping.
    pub used: u64,
    /// Bytes held by reservations.
    pub reserved: u64,
    /// Lookups that found their block.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Blocks added.
    pub inserts: u64,
    /// Blocks evicted, or turned away because they were too large.
    pub evictions: u64,
    /// Bytes of cached data blocks.
    pub data_bytes: u64,
    /// Bytes of cached index blocks.
    pub index_bytes: u64,
    /// Bytes of cached filter blocks.
    pub filter_bytes: u64,
    /// Bytes of cached summaries.
    pub summary_bytes: u64,
    /// Bytes of dictionaries of columns.
    pub dictionary_bytes: u64,
}

#[derive(Default, Debug)]
#[repr(align(128))]
struct Stripe {
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Default, Debug)]
pub(crate) struct Counters {
    lookups: [Stripe; STRIPES],
    inserts: AtomicU64,
    evictions: AtomicU64,
    /// By [`BlockKind`]. Wraps below zero for a moment where an eviction is counted before its insert.
    bytes: [AtomicU64; 5],
}

impl Counters {
    #[inline]
    pub(crate) fn count_lookup(&self, key: CacheKey, hit: bool) {
        let stripe = &self.lookups[((key.offset >> 12) ^ key.file) as usize % STRIPES];
        if hit { &stripe.hits } else { &stripe.misses }.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_insert(&self, block: &CachedBlock) {
        self.inserts.fetch_add(1, Relaxed);
        self.bytes_of(block.kind).fetch_add(block.bytes.len() as u64, Relaxed);
    }

    pub(crate) fn count_eviction(&self, block: &CachedBlock) {
        self.evictions.fetch_add(1, Relaxed);
        self.bytes_of(block.kind).fetch_sub(block.bytes.len() as u64, Relaxed);
    }

    #[inline]
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions.load(Relaxed)
    }

    pub(crate) fn snapshot(&self, capacity: u64, used: u64, reserved: u64) -> CacheStats {
        let bytes = |kind| self.bytes_of(kind).load(Relaxed);
        CacheStats {
            capacity,
            used,
            reserved,
            hits: self.lookups.iter().map(|stripe| stripe.hits.load(Relaxed)).sum(),
            misses: self.lookups.iter().map(|stripe| stripe.misses.load(Relaxed)).sum(),
            inserts: self.inserts.load(Relaxed),
            evictions: self.evictions.load(Relaxed),
            data_bytes: bytes(BlockKind::Data),
            index_bytes: bytes(BlockKind::Index),
            filter_bytes: bytes(BlockKind::Filter),
            summary_bytes: bytes(BlockKind::Summary),
            dictionary_bytes: bytes(BlockKind::Dictionary),
        }
    }

    fn bytes_of(&self, kind: BlockKind) -> &AtomicU64 {
        match kind {
            BlockKind::Data => &self.bytes[0],
            BlockKind::Index => &self.bytes[1],
            BlockKind::Filter => &self.bytes[2],
            BlockKind::Summary => &self.bytes[3],
            BlockKind::Dictionary => &self.bytes[4],
        }
    }
}
