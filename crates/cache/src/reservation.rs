//! Memory outside the cache that counts against its budget.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::BlockCache;

/// The capacity and what is reserved of it.
#[derive(Debug)]
pub(crate) struct Budget {
    capacity: u64,
    /// Where reservations have a budget of their own, it.
    apart: Option<u64>,
    reserved: Mutex<u64>,
}

impl Budget {
    pub(crate) fn new(capacity: u64, apart: Option<u64>) -> Self {
        Self { capacity, apart, reserved: Mutex::new(0) }
    }

    /// The most that may be reserved.
    fn most_reserved(&self) -> u64 {
        self.apart.unwrap_or(self.capacity - self.capacity / LEFT_TO_BLOCKS)
    }

    /// What is left to blocks.
    fn left(&self, reserved: u64) -> u64 {
        if self.apart.is_some() { self.capacity } else { self.capacity.saturating_sub(reserved) }
    }

    pub(crate) fn left_now(&self) -> u64 {
        self.left(self.reserved())
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(crate) fn reserved(&self) -> u64 {
        *self.reserved.lock()
    }

    /// Sets the reserved bytes to `change` of what they are (`None`: leave them) and tells `resize` what is left. The
    /// lock is held meanwhile, so that concurrent changes resize in the order in which they happened.
    pub(crate) fn change(&self, change: impl FnOnce(u64) -> Option<u64>, resize: impl FnOnce(u64)) -> bool {
        let mut reserved = self.reserved.lock();
        match change(*reserved) {
            Some(new) => {
                *reserved = new;
                if self.apart.is_none() {
                    resize(self.left(new));
                }
                true
            }
            None => false,
        }
    }
}

/// Bytes taken off a cache's budget; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    cache: Arc<BlockCache>,
    bytes: u64,
}

/// The share of the capacity that reservations leave to blocks: an eighth. A file whose index and filter are not
/// resident costs a read of all of them where they do not stay in the cache either, and a data block after that.
const LEFT_TO_BLOCKS: u64 = 8;

impl Reservation {
    pub(crate) fn new(cache: &Arc<BlockCache>, bytes: u64) -> Option<Self> {
        let most = cache.budget.most_reserved();
        let granted = cache.set_reserved(|reserved| reserved.checked_add(bytes).filter(|&sum| sum <= most));
        granted.then(|| Self { cache: Arc::clone(cache), bytes })
    }

    /// The bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.cache.set_reserved(|reserved| Some(reserved.saturating_sub(self.bytes)));
    }
}
