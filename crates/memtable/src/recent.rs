//! The nodes inserted last, in the order in which they were: what a reader that knows the memtable as it was a while
//! ago has not seen ([`crate::recent_cursor`]).
//!
//! 1. From its [`FIRST`] entry on a memtable has a ring of the last [`KEPT`] nodes. The writer puts a node into its
//!    slot once it is linked, and counts it then.
//! 2. A reader takes the nodes from a number on and looks at the count again: if it has not come within one round of
//!    the first, none of the slots was written to in the meantime. A slot that was read while it was written to leads
//!    to a node all the same.
//!
//! That sequence numbers ascend with these numbers is watched; where they do not nothing is known.

use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use crate::node::Node;
use crate::sync::{AtomicBool, AtomicPtr, Ordering};

/// The number of the first node that is kept: smaller memtables are read as a whole.
const FIRST: usize = if cfg!(any(feature = "schedule-tests", miri)) { 1 } else { 4096 };
/// Nodes of a ring.
const KEPT: usize = if cfg!(any(feature = "schedule-tests", miri)) { 3 } else { 16_384 };

/// The nodes of a memtable that were inserted last.
pub(crate) struct Recent {
    ring: OnceLock<Box<[AtomicPtr<Node>]>>,
    are_in_order: AtomicBool,
}

impl Recent {
    pub(crate) fn new() -> Self {
        Self { ring: OnceLock::new(), are_in_order: AtomicBool::new(true) }
    }

    /// Bytes of the ring.
    pub(crate) fn bytes(&self) -> usize {
        self.ring.get().map_or(0, |ring| size_of_val(&**ring))
    }

    /// Keeps the node of this number, which was linked and is not counted yet. For the writer only.
    #[inline]
    pub(crate) fn keep(&self, number: u64, node: NonNull<Node>) {
        if number >= FIRST as u64 {
            self.slot(number).store(node.as_ptr(), Ordering::Release);
        }
    }

    fn slot(&self, number: u64) -> &AtomicPtr<Node> {
        let empty = || (0..KEPT).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        &self.ring.get_or_init(empty)[number as usize % KEPT]
    }

    /// Says that an entry is older than the one before. For the writer only.
    #[cold]
    pub(crate) fn note_disorder(&self) {
        self.are_in_order.store(false, Ordering::Relaxed);
    }

    /// The node of this number, which was counted, or a later one of the memtable; `None` if it was never kept.
    pub(crate) fn get(&self, number: u64) -> Option<NonNull<Node>> {
        if number < FIRST as u64 {
            return None;
        }
        NonNull::new(self.slot(number).load(Ordering::Acquire))
    }

    /// Whether, when so many are counted, no slot from that of this number on was written to again, so that nodes taken
    /// before are theirs; and sequence numbers ascend.
    pub(crate) fn is_kept_from(&self, number: u64, count: u64) -> bool {
        self.are_in_order.load(Ordering::Relaxed) && count < number + KEPT as u64
    }
}
