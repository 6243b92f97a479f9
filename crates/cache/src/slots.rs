//! Slots: the cached blocks of a file by number, beside the map.
//!
//! The map finds a block by a bucket, an entry and the block's reference count, each a cache miss that waits for the one before,
//! and under a lock, so that the misses of several lookups do not overlap. A file's slots are an array: who looks several
//! blocks up asks for all their slots first, then for all the blocks.
//!
//! 1. A block found in the map is put in its slot, and the map's entry gets a [`Place`]: what leaves the map leaves its slot.
//! 2. Uses of a block by its slot are unknown to the map, which evicts by use. So each *generation*, a number of evictions, its
//!    first use goes by the map.
//!
//! Guarantee: a slot holds nothing but the block of its number, and holds it no longer than the map, but for a moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use mycelium_base::prefetch::{CACHE_LINE, prefetch};
use parking_lot::RwLock;

use crate::chain::COUNTS_LEN;

/// The slots of the blocks of one file. Shared by all threads.
#[derive(Debug)]
pub struct BlockSlots(Box<[Slot]>);

/// Half a cache line, so that none lies on two.
#[derive(Default, Debug)]
#[repr(align(32))]
struct Slot(RwLock<Held>);

#[derive(Default, Debug)]
struct Held {
    block: Option<Arc<[u8]>>,
    /// When the map last heard that the block is used.
    generation: AtomicU32,
    /// Of what was put here.
    version: u32,
}

/// A slot that holds the block of an entry of the map, and is emptied with it.
#[derive(Debug)]
pub(crate) struct Place {
    slots: Arc<BlockSlots>,
    number: usize,
    version: u32,
}

impl BlockSlots {
    /// Bytes of a slot.
    pub const SLOT_LEN: u64 = size_of::<Slot>() as u64;

    /// Empty slots for so many blocks.
    pub fn new(blocks: usize) -> Arc<Self> {
        Arc::new(Self((0..blocks).map(|_| Slot::default()).collect()))
    }

    /// Asks the processor for a slot.
    #[inline]
    pub fn prefetch(&self, number: usize) {
        if let Some(slot) = self.0.get(number) {
            prefetch(slot);
        }
    }

    /// Asks the processor for the first `len` bytes of a block and its reference count, if its slot holds it.
    #[inline]
    pub fn prefetch_block(&self, number: usize, len: usize) {
        let Some(held) = self.0.get(number).and_then(|slot| slot.0.try_read()) else { return };
        if let Some(block) = &held.block {
            let start = block.as_ptr().wrapping_sub(COUNTS_LEN);
            (0..COUNTS_LEN + len).step_by(CACHE_LINE).for_each(|at| prefetch(start.wrapping_add(at)));
        }
    }

    /// The block, if its slot holds it and the map knows of a use in this generation.
    #[inline]
    pub(crate) fn get(&self, number: usize, generation: u32) -> Option<Arc<[u8]>> {
        let held = self.0.get(number)?.0.read();
        held.block.as_ref().filter(|_| held.generation.load(Relaxed) == generation).cloned()
    }

    /// Notes that the map knows of a use. `false` if the slot does not hold `block`.
    pub(crate) fn note_use(&self, number: usize, block: &Arc<[u8]>, generation: u32) -> bool {
        let Some(slot) = self.0.get(number) else { return true };
        let held = slot.0.read();
        held.generation.store(generation, Relaxed);
        held.block.as_ref().is_some_and(|held| Arc::ptr_eq(held, block))
    }

    /// Puts a block in its slot.
    pub(crate) fn put(self: &Arc<Self>, number: usize, block: &Arc<[u8]>) -> Place {
        let (mut version, mut before) = (0, None);
        if let Some(slot) = self.0.get(number) {
            let held = &mut *slot.0.write();
            held.version = held.version.wrapping_add(1);
            version = held.version;
            before = held.block.replace(block.clone());
        }
        drop(before);
        Place { slots: self.clone(), number, version }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(slot) = self.slots.0.get(self.number) else { return };
        let mut held = slot.0.write();
        // A later one may have been put there, which has a place of its own.
        let block = if held.version == self.version { held.block.take() } else { None };
        drop(held);
        drop(block);
    }
}
