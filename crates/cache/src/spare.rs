//! Spare blocks: the memory of evicted blocks for the blocks that are read next; and that of read-ahead windows
//! likewise.
//!
//! General allocators keep heaps by thread. What one thread read others evict; their own blocks lie in their own heaps
//! while the memory freed stays with the first, so that a process may grow by a whole cache for every few threads that
//! read. Here a block takes the place of the one that it evicts in memory, too.
//!
//! 1. [`SpareBlocks::take`] gives a spare buffer whose length fits, or allocates one.
//! 2. [`SpareBlocks::give_back`] keeps a buffer that nobody shares; beyond the limits it frees the oldest first.
//! 3. Threads are spread over stripes. Whoever finds its stripe locked allocates, or frees.
//!
//! Guarantee: a stripe holds at most 16 buffers and 128 KiB, all of them at most 2 MiB. A buffer given is shared by
//! nobody.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

const STRIPES: usize = 16;
/// Buffers of a stripe: the working set of a few threads, short enough to be searched.
const STRIPE_BUFFERS: usize = 16;
const STRIPE_BYTES: usize = 128 << 10;

/// Buffers waiting to be blocks again. Shared by all threads; calls never wait.
///
/// ```
/// use mycelium_cache::SpareBlocks;
///
/// let spares = SpareBlocks::default();
/// let buffer = spares.take(4096, 4200);
/// assert_eq!(buffer.len(), 4096);
/// let address = buffer.as_ptr();
/// spares.give_back(buffer);
/// assert_eq!(spares.take(4000, 4100).as_ptr(), address, "the same memory");
/// ```
#[derive(Default, Debug)]
pub struct SpareBlocks([Stripe; STRIPES]);

#[derive(Default, Debug)]
#[repr(align(128))]
struct Stripe(Mutex<Spares>);

#[derive(Default, Debug)]
struct Spares {
    /// Oldest first.
    buffers: Vec<Arc<[u8]>>,
    bytes: usize,
}

impl SpareBlocks {
    /// A buffer of `least` to `most` bytes that nobody shares: a spare with whatever it held before, or a new one of
    /// `least` zeros. O(1).
    pub fn take(&self, least: usize, most: usize) -> Arc<[u8]> {
        let spare = self.stripe().0.try_lock().and_then(|mut spares| spares.take(least, most));
        spare.unwrap_or_else(|| std::iter::repeat_n(0, least).collect())
    }

    /// Keeps `buffer` for [`SpareBlocks::take`], unless somebody shares it or it is too long. O(1).
    pub fn give_back(&self, mut buffer: Arc<[u8]>) {
        if buffer.len() > STRIPE_BYTES || Arc::get_mut(&mut buffer).is_none() {
            return;
        }
        if let Some(mut spares) = self.stripe().0.try_lock() {
            spares.keep(buffer);
        }
    }

    fn stripe(&self) -> &Stripe {
        &self.0[thread_number() % STRIPES]
    }
}

impl Spares {
    /// The spare given back last that fits: its lines are the most likely to be in the processor's cache.
    fn take(&mut self, least: usize, most: usize) -> Option<Arc<[u8]>> {
        let found = self.buffers.iter().rposition(|spare| (least..=most).contains(&spare.len()))?;
        let buffer = self.buffers.remove(found);
        self.bytes -= buffer.len();
        Some(buffer)
    }

    fn keep(&mut self, buffer: Arc<[u8]>) {
        self.bytes += buffer.len();
        self.buffers.push(buffer);
        while self.buffers.len() > STRIPE_BUFFERS || self.bytes > STRIPE_BYTES {
            self.bytes -= self.buffers.remove(0).len();
        }
    }
}

/// Threads in the order in which they asked first.
fn thread_number() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(1);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(THREADS.fetch_add(1, Relaxed));
        }
        number.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold_and_the_oldest_go_first() {
        let spares = SpareBlocks::default();
        for len in 1000..1000 + 3 * STRIPE_BUFFERS {
            spares.give_back(vec![0; len].into());
        }
        assert_eq!(spares.stripe().0.lock().buffers.len(), STRIPE_BUFFERS);
        for _ in 0..10 {
            spares.give_back(vec![0; STRIPE_BYTES / 4].into());
            let held = spares.stripe().0.lock();
            assert_eq!(held.bytes, held.buffers.iter().map(|buffer| buffer.len()).sum::<usize>());
            assert!(held.bytes <= STRIPE_BYTES && held.buffers.len() <= STRIPE_BUFFERS);
        }
        spares.give_back(vec![0; STRIPE_BYTES + 1].into());
        assert_eq!(spares.take(1000, STRIPE_BYTES).len(), STRIPE_BYTES / 4, "the newest, and none that is too long");
    }

    #[test]
    fn a_shared_buffer_is_never_given_again() {
        let spares = SpareBlocks::default();
        let held: Arc<[u8]> = vec![7; 100].into();
        spares.give_back(Arc::clone(&held));
        let mut taken = spares.take(100, 100);
        Arc::get_mut(&mut taken).expect("unshared").fill(1);
        assert_eq!(held[..], [7; 100]);
    }
}
