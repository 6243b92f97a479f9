//! The block cache: one byte budget for data, index and filter blocks.
//!
//! A cache belongs to one database, so that a file number and an offset name a block. Blocks are immutable, hence a
//! cached block never has to be invalidated. When its file is gone nobody asks for it any more, and it would be evicted
//! by and by; until then it would take the place of another, so it is removed with the file.
//!
//! 1. [`BlockCache::get`] looks a block up; a hit is a shared lock on one of up to 64 shards and a reference count.
//!    Readers that go on to the next block follow the [`ChainedBlock`]'s link instead; those that look several blocks
//!    up at once find them in their files' [`BlockSlots`] ([`BlockCache::get_by_slot`]).
//! 2. [`BlockCache::insert`] adds a block that was read and verified. Blocks that were not touched a second time are
//!    the first to go (quick_cache's S3-FIFO-like policy), so a scan does not wash out the hot set.
//! 3. Blocks evicted become [`SpareBlocks`], memory for the blocks that are read next.
//! 4. [`BlockCache::reserve`] takes memory that lives *outside* the cache (the resident index and filter of an open
//!    file) off the same budget, for as long as the [`Reservation`] lives, up to seven eighths of it; or off a budget
//!    of its own.
//!
//! Guarantee: cached bytes plus reserved bytes stay within the capacity, apart from a block's bookkeeping, blocks that
//! readers still hold after their eviction, and at most 4 MiB of spares.

mod chain;
mod reservation;
mod slots;
mod spare;
mod stats;

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use mycelium_base::Result;
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

pub use chain::ChainedBlock;
use reservation::Budget;
pub use reservation::Reservation;
use slots::AnyPlace;
pub use slots::{BlockSlots, OpenedBlock};
pub use spare::SpareBlocks;
pub use stats::CacheStats;
use stats::Counters;

/// What one cached block costs beyond its bytes: the key, the links and the reference counts.
const ENTRY_OVERHEAD: u64 = 112;
/// What a block's link costs, once it has one.
const LINK_OVERHEAD: u64 = 48;
/// What a block's place costs, once it has one.
const PLACE_OVERHEAD: u64 = 48;
/// Shards smaller than this could not hold the index or filter block of a large file.
const MIN_SHARD_BYTES: u64 = 4 << 20;
const MAX_SHARDS: u64 = 64;
/// The block size for which the ghost queue (keys evicted lately) is dimensioned.
const TYPICAL_BLOCK_BYTES: u64 = 4 << 10;
/// A generation of slots is as many evictions as this share of the blocks that the cache has room for.
const GENERATION_SHARE: u64 = 16;

/// Names a block in one database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheKey {
    /// The file's number, unique in the database.
    pub file: u64,
    /// The block's offset in the file.
    pub offset: u64,
}

impl Hash for CacheKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.file.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.offset);
    }
}

/// What a block holds, for the statistics.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BlockKind {
    /// Entries.
    Data = 0,
    /// The index of a file, or where keys of one block are among those of another.
    Index = 1,
    /// The Bloom filter of a file.
    Filter = 2,
    /// Summaries of a file's blocks.
    Summary = 3,
    /// The dictionary of a column.
    Dictionary = 4,
}

/// A block and its kind.
#[derive(Debug)]
struct CachedBlock {
    bytes: Arc<[u8]>,
    /// Made when a reader wants to go on from the block: most blocks are never scanned twice.
    chained: Option<ChainedBlock>,
    /// Of the entry in the map alone: where its block lies in a slot, too.
    place: Option<Box<dyn AnyPlace>>,
    kind: BlockKind,
}

impl Clone for CachedBlock {
    /// What readers get of the entry.
    #[inline]
    fn clone(&self) -> Self {
        Self { bytes: self.bytes.clone(), chained: self.chained.clone(), place: None, kind: self.kind }
    }
}

/// Caches the blocks of one database within a byte budget. Shared by all threads; every call is short and takes at most
/// one shard's lock.
///
/// ```
/// use std::sync::Arc;
///
/// use mycelium_cache::{BlockCache, BlockKind, CacheKey};
///
/// let cache = Arc::new(BlockCache::new(1 << 20));
/// let key = CacheKey { file: 7, offset: 4096 };
/// cache.insert(key, vec![1, 2, 3].into(), BlockKind::Data);
/// assert_eq!(cache.get(key).as_deref(), Some(&[1, 2, 3][..]));
///
/// let index_memory = cache.reserve(100_000).expect("less than seven eighths of the capacity");
/// assert_eq!(cache.stats().reserved, 100_000);
/// drop(index_memory);
/// assert_eq!(cache.stats().reserved, 0);
/// ```
#[derive(Debug)]
pub struct BlockCache {
    blocks: Arc<Cache<CacheKey, CachedBlock, ByBytes, MixHash, CountEvictions>>,
    budget: Arc<Budget>,
    counters: Arc<Counters>,
    spares: SpareBlocks,
    spare_windows: SpareBlocks,
    /// Evictions that make a generation of slots.
    generation_len: u64,
}

impl BlockCache {
    /// A cache of `capacity_bytes`, block bookkeeping included. 0 caches nothing.
    pub fn new(capacity_bytes: u64) -> Self {
        Self::with_budgets(capacity_bytes, None)
    }

    /// A cache whose reservations take nothing off the blocks' budget, but come out of one of their own, if there is
    /// one.
    pub fn with_budgets(capacity_bytes: u64, reserved_bytes: Option<u64>) -> Self {
        let shards = (capacity_bytes / MIN_SHARD_BYTES).clamp(1, MAX_SHARDS);
        let shards = if shards.is_power_of_two() { shards } else { shards.next_power_of_two() / 2 };
        let counters = Arc::new(Counters::default());
        let items = usize::try_from(capacity_bytes / TYPICAL_BLOCK_BYTES).unwrap_or(usize::MAX).max(64);
        let options = OptionsBuilder::new()
            .shards(shards as usize)
            .estimated_items_capacity(items)
            .weight_capacity(capacity_bytes)
            .build();
        let lifecycle = CountEvictions(Arc::clone(&counters));
        let blocks = match options {
            Ok(options) => Cache::with_options(options, ByBytes, MixHash, lifecycle),
            Err(_) => Cache::with(items, capacity_bytes, ByBytes, MixHash, lifecycle),
        };
        let budget = Arc::new(Budget::new(capacity_bytes, reserved_bytes));
        let (spares, spare_windows) = Default::default();
        let generation_len = (capacity_bytes / TYPICAL_BLOCK_BYTES / GENERATION_SHARE).max(1);
        Self { blocks: Arc::new(blocks), budget, counters, spares, spare_windows, generation_len }
    }

    /// The block, if it is cached. O(1).
    #[inline]
    pub fn get(&self, key: CacheKey) -> Option<Arc<[u8]>> {
        let found = self.blocks.get(&key);
        self.counters.count_lookup(key, found.is_some());
        found.map(|block| block.bytes)
    }

    /// The block with its link, if it is cached. O(1).
    #[inline]
    pub fn get_chained(&self, key: CacheKey) -> Option<ChainedBlock> {
        let found = self.blocks.get(&key);
        self.counters.count_lookup(key, found.is_some());
        let block = found?;
        Some(block.chained.clone().unwrap_or_else(|| self.chain(key, block)))
    }

    /// Gives a cached block a link.
    fn chain(&self, key: CacheKey, block: CachedBlock) -> ChainedBlock {
        let chained = ChainedBlock::new(Arc::clone(&block.bytes));
        self.replace(key, CachedBlock { chained: Some(chained.clone()), ..block });
        chained
    }

    /// Puts an entry in the place of the one of the same block, unless that was evicted.
    fn replace(&self, key: CacheKey, block: CachedBlock) {
        self.counters.count_insert(&block);
        if let Err((_, block)) = self.blocks.replace(key, block, true) {
            self.counters.count_eviction(&block);
        }
    }

    /// As [`BlockCache::get`], of block `number` of the file with these slots, which it is put in once it was `open`ed:
    /// whoever asked the processor for the slot and the block before ([`BlockSlots::prefetch`],
    /// [`BlockSlots::prefetch_block`]) does not wait for them. Errors are those of `open`.
    #[inline]
    pub fn get_by_slot<T: OpenedBlock>(
        &self,
        slots: &Arc<BlockSlots<T>>,
        number: usize,
        key: CacheKey,
        open: impl FnOnce(Arc<[u8]>) -> Result<T>,
    ) -> Result<Option<T>> {
        let generation = (self.counters.evictions() / self.generation_len) as u32;
        if let Some(block) = slots.get(number, generation) {
            self.counters.count_lookup(key, true);
            return Ok(Some(block));
        }
        self.get_into_slot((slots, number), key, generation, open)
    }

    #[cold]
    fn get_into_slot<T: OpenedBlock>(
        &self,
        (slots, number): (&Arc<BlockSlots<T>>, usize),
        key: CacheKey,
        generation: u32,
        open: impl FnOnce(Arc<[u8]>) -> Result<T>,
    ) -> Result<Option<T>> {
        let found = self.blocks.get(&key);
        self.counters.count_lookup(key, found.is_some());
        let Some(block) = found else { return Ok(None) };
        if let Some(held) = slots.note_use(number, &block.bytes, generation) {
            return Ok(Some(held));
        }
        let opened = open(Arc::clone(&block.bytes))?;
        if let Some(place) = slots.put(number, &opened) {
            self.replace(key, CachedBlock { place: Some(place), ..block });
        }
        Ok(Some(opened))
    }

    /// Counts a block that was found by a link.
    #[inline]
    pub fn count_linked(&self, key: CacheKey) {
        self.counters.count_lookup(key, true);
    }

    /// Caches a block, evicting others as needed; takes the place of one that is there already. A block larger than a
    /// shard (capacity / 64, at least 4 MiB or the capacity) is not cached.
    pub fn insert(&self, key: CacheKey, bytes: Arc<[u8]>, kind: BlockKind) {
        let block = CachedBlock { bytes, chained: None, place: None, kind };
        self.counters.count_insert(&block);
        let mut evicted = Evicted::default();
        self.blocks.insert_with_lifecycle(key, block, &mut evicted);
        for CachedBlock { bytes, chained, place, kind } in evicted.first.into_iter().chain(evicted.others) {
            drop((chained, place));
            if kind == BlockKind::Data {
                self.spares.give_back(bytes);
            }
        }
    }

    /// Lets go of a block that nobody will ask for any more. O(1).
    pub fn remove(&self, key: CacheKey) {
        if let Some((_, block)) = self.blocks.remove(&key) {
            self.counters.count_eviction(&block);
        }
    }

    /// The block, if it is cached; counts as no use of it. O(1).
    pub fn peek(&self, key: CacheKey) -> Option<Arc<[u8]>> {
        self.blocks.peek(&key).map(|block| block.bytes)
    }

    /// Whether a block is cached; counts as no use of it. O(1).
    pub fn contains(&self, key: CacheKey) -> bool {
        self.blocks.peek(&key).is_some()
    }

    /// Where the memory of blocks to be inserted comes from.
    pub fn spares(&self) -> &SpareBlocks {
        &self.spares
    }

    /// Where the memory of read-ahead windows comes from: apart, for a few of them would crowd out all spare blocks.
    pub fn spare_windows(&self) -> &SpareBlocks {
        &self.spare_windows
    }

    /// Takes `bytes` off the budget for memory held outside the cache, or `None` where all reservations together would
    /// exceed seven eighths of the capacity, or their own budget.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Option<Reservation> {
        Reservation::new(self, bytes)
    }

    /// The largest block, in bytes with bookkeeping, that is cached now: a shard's share of the budget.
    pub fn largest_block(&self) -> u64 {
        self.blocks.shard_capacity()
    }

    /// Bytes that could be cached now without evicting anything, about.
    pub fn room(&self) -> u64 {
        self.budget.left_now().saturating_sub(self.blocks.weight())
    }

    /// Sizes and counts now. Counters are read one by one, so that they may be apart by operations under way.
    pub fn stats(&self) -> CacheStats {
        self.counters.snapshot(self.budget.capacity(), self.blocks.weight(), self.budget.reserved())
    }

    fn set_reserved(&self, change: impl FnOnce(u64) -> Option<u64>) -> bool {
        self.budget.change(change, |left| self.blocks.set_capacity(left))
    }
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<CacheKey, CachedBlock> for ByBytes {
    #[inline]
    fn weight(&self, _key: &CacheKey, block: &CachedBlock) -> u64 {
        let link = if block.chained.is_some() { LINK_OVERHEAD } else { 0 };
        let place = block.place.as_ref().map_or(0, |place| PLACE_OVERHEAD + place.bytes_beside());
        block.bytes.len() as u64 + ENTRY_OVERHEAD + link + place
    }
}

#[derive(Clone, Debug)]
struct CountEvictions(Arc<Counters>);

/// Blocks evicted by one call, mostly one; freed after the shard's lock is.
#[derive(Default)]
struct Evicted {
    first: Option<CachedBlock>,
    others: Vec<CachedBlock>,
}

impl Lifecycle<CacheKey, CachedBlock> for CountEvictions {
    type RequestState = Evicted;

    #[inline]
    fn on_evict(&self, state: &mut Self::RequestState, _key: CacheKey, block: CachedBlock) {
        self.0.count_eviction(&block);
        match &mut state.first {
            Some(_) => state.others.push(block),
            none => *none = Some(block),
        }
    }
}

/// Hashes the one word of a [`CacheKey`] with a multiply-fold, several times faster than SipHash. File numbers and
/// offsets are our own, so that nobody can choose colliding keys.
#[derive(Clone, Debug)]
struct MixHash;

impl BuildHasher for MixHash {
    type Hasher = MixHasher;

    #[inline]
    fn build_hasher(&self) -> MixHasher {
        MixHasher(0)
    }
}

struct MixHasher(u64);

impl Hasher for MixHasher {
    #[inline]
    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0xa076_1d64_78bd_642f) * 0xe703_7ed1_a0b4_28db;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
