//! Slots: the cached blocks of a file by number, beside the map.
//!
//! The map finds a block by a bucket, an entry and the block's reference count, each a cache miss that waits for the
//! one before, and under a lock, so that the misses of several lookups do not overlap. A file's slots are an array: who
//! looks several blocks up asks for all their slots first, then for all the blocks.
//!
//! 1. A block found in the map is put in its slot, and the map's entry gets a [`Place`]: what leaves the map leaves its
//!    slot.
//! 2. Uses of a block by its slot are unknown to the map, which evicts by use. So each *generation*, a number of
//!    evictions, its first use goes by the map.
//!
//! A slot holds a block as its reader *opens* it: with what every lookup would find out anew. That is made once a block
//! is put in its slot, and weighs in the map with the block.
//!
//! Guarantee: a slot holds nothing but the block of its number, and holds it no longer than the map, but for a moment.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use mycelium_base::prefetch::prefetch;
use parking_lot::RwLock;

/// A block as its reader keeps it in a slot. Cloning shares it.
pub trait OpenedBlock: Clone + Debug + Send + Sync + 'static {
    /// The block.
    fn block(&self) -> &Arc<[u8]>;
    /// Bytes of memory that it takes beside the block.
    fn bytes_beside(&self) -> u64;
    /// Asks the processor for what a lookup reads first, so many bytes, without reading anything itself that may not be
    /// in its caches.
    fn prefetch(&self, len: usize);
}

/// The slots of the blocks of one file. Shared by all threads.
#[derive(Debug)]
pub struct BlockSlots<T> {
    slots: Box<[Slot<T>]>,
    /// Bytes of a block that a lookup reads first.
    first_len: usize,
}

/// Half a cache line, if `T` is two words, so that none lies on two.
#[derive(Debug)]
#[repr(align(32))]
struct Slot<T>(RwLock<Held<T>>);

#[derive(Debug)]
struct Held<T> {
    block: Option<T>,
    /// When the map last heard that the block is used.
    generation: AtomicU32,
    /// Of what was put here.
    version: u32,
}

/// A slot that holds the block of an entry of the map, and is emptied with it.
#[derive(Debug)]
struct Place<T> {
    slots: Arc<BlockSlots<T>>,
    number: usize,
    version: u32,
    bytes_beside: u64,
}

/// A [`Place`] of whatever it holds.
pub(crate) trait AnyPlace: Debug + Send + Sync {
    /// Bytes that what it holds takes beside the block.
    fn bytes_beside(&self) -> u64;
}

impl<T: OpenedBlock> BlockSlots<T> {
    /// Bytes of a slot.
    pub const SLOT_LEN: u64 = size_of::<Slot<T>>() as u64;

    /// Empty slots for so many blocks, of each of which a lookup reads `first_len` bytes first.
    pub fn new(blocks: usize, first_len: usize) -> Arc<Self> {
        let empty = |_| Slot(RwLock::new(Held { block: None, generation: AtomicU32::new(0), version: 0 }));
        Arc::new(Self { slots: (0..blocks).map(empty).collect(), first_len })
    }

    /// Asks the processor for a slot.
    #[inline]
    pub fn prefetch(&self, number: usize) {
        if let Some(slot) = self.slots.get(number) {
            prefetch(slot);
        }
    }

    /// Asks the processor for what a lookup in a block reads first, if its slot holds it.
    #[inline]
    pub fn prefetch_block(&self, number: usize) {
        let Some(held) = self.slots.get(number).and_then(|slot| slot.0.try_read()) else { return };
        if let Some(block) = &held.block {
            block.prefetch(self.first_len);
        }
    }

    /// The block, if its slot holds it and the map knows of a use in this generation.
    #[inline]
    pub(crate) fn get(&self, number: usize, generation: u32) -> Option<T> {
        let held = self.slots.get(number)?.0.read();
        held.block.as_ref().filter(|_| held.generation.load(Relaxed) == generation).cloned()
    }

    /// Notes that the map knows of a use. What the slot holds, if that is `block`.
    pub(crate) fn note_use(&self, number: usize, block: &Arc<[u8]>, generation: u32) -> Option<T> {
        let held = self.slots.get(number)?.0.read();
        held.generation.store(generation, Relaxed);
        held.block.as_ref().filter(|held| Arc::ptr_eq(held.block(), block)).cloned()
    }

    /// Puts a block in its slot, if there is one.
    pub(crate) fn put(self: &Arc<Self>, number: usize, block: &T) -> Option<Box<dyn AnyPlace>> {
        let held = &mut *self.slots.get(number)?.0.write();
        held.version = held.version.wrapping_add(1);
        let version = held.version;
        let before = held.block.replace(block.clone());
        drop(before);
        Some(Box::new(Place { slots: self.clone(), number, version, bytes_beside: block.bytes_beside() }))
    }
}

impl<T: OpenedBlock> AnyPlace for Place<T> {
    fn bytes_beside(&self) -> u64 {
        self.bytes_beside
    }
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        let Some(slot) = self.slots.slots.get(self.number) else { return };
        let mut held = slot.0.write();
        // A later one may have been put there, which has a place of its own.
        let block = if held.version == self.version { held.block.take() } else { None };
        drop(held);
        drop(block);
    }
}
