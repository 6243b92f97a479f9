//! A cursor over a memtable ([`Memtable::cursor`]).
//!
//! Forwards it follows the lowest level and fetches the node after the next one ahead; who is going to read many may
//! have them fetched together before ([`Cursor::fetch_ahead`]). Backwards there are no links: one search finds a node a
//! little way before, and the walk from there remembers the nodes passed, which serve the following steps back.
//! (Entries inserted in between are missed by those: they are newer than any snapshot taken before the cursor moved.)

use std::ptr::{self, NonNull};
use std::sync::Arc;

use mycelium_base::{Cursor, ReadCounters, Result, Trailer};

use crate::memtable::Memtable;
use crate::node::{Node, NodeRef};
use mycelium_base::prefetch::prefetch;

/// Nodes remembered for steps back.
const REMEMBERED: usize = 16;
/// The level on which a step back searches: 2^(level + 1) nodes on average are walked and remembered.
const BACK_LEVEL: usize = 3;

/// A [`Cursor`] over a memtable; keeps it alive. Never fails.
pub struct MemtableCursor {
    /// Where the cursor stands, or null.
    node: *mut Node,
    /// Where it stood before the last `next()`, or null after any other move.
    passed: *mut Node,
    remembered: [*mut Node; REMEMBERED],
    remembered_len: usize,
    positioned: bool,
    memtable: Arc<Memtable>,
}

// SAFETY: the pointers lead to nodes of `memtable`, which is `Send + Sync` and kept alive.
unsafe impl Send for MemtableCursor {}
// SAFETY: as above; through a shared reference the cursor only reads.
unsafe impl Sync for MemtableCursor {}

impl Memtable {
    /// A cursor over all entries, not yet positioned. It keeps the memtable alive.
    pub fn cursor(self: &Arc<Self>) -> MemtableCursor {
        MemtableCursor::new(Arc::clone(self))
    }
}

impl MemtableCursor {
    fn new(memtable: Arc<Memtable>) -> Self {
        Self {
            node: ptr::null_mut(),
            passed: ptr::null_mut(),
            remembered: [ptr::null_mut(); REMEMBERED],
            remembered_len: 0,
            positioned: false,
            memtable,
        }
    }

    #[inline(always)]
    fn node(&self) -> NodeRef<'_> {
        debug_assert!(self.valid());
        match NonNull::new(self.node) {
            // SAFETY: not null means that it came from a search or link of our memtable.
            Some(node) => unsafe { NodeRef::new(node) },
            None => invalid(),
        }
    }

    fn stand_on(&mut self, node: *mut Node) {
        self.node = node;
        self.passed = ptr::null_mut();
        self.remembered_len = 0;
        self.positioned = true;
    }

    /// Searches a little way before the current node and remembers the last nodes on the walk back to it.
    fn remember(&mut self) {
        let current = self.node();
        let mut walk = self.memtable.list().some_way_before(current.key(), current.trailer(), BACK_LEVEL);
        let mut recent = [ptr::null_mut(); REMEMBERED];
        let mut count = 0;
        // Neither the head, from which a walk may start, nor the current node are remembered.
        if !self.memtable.list().is_head(walk) {
            recent[0] = walk.as_ptr();
            count = 1;
        }
        while let Some(next) = walk.next() {
            if next.as_ptr() == self.node {
                break;
            }
            recent[count % REMEMBERED] = next.as_ptr();
            count += 1;
            walk = next;
        }
        self.remembered_len = count.min(REMEMBERED);
        for i in 0..self.remembered_len {
            self.remembered[i] = recent[(count - self.remembered_len + i) % REMEMBERED];
        }
    }
}

#[cold]
fn invalid() -> ! {
    panic!("the cursor stands on no entry")
}

fn raw(node: Option<NodeRef<'_>>) -> *mut Node {
    node.map_or(ptr::null_mut(), NodeRef::as_ptr)
}

impl Cursor for MemtableCursor {
    #[inline(always)]
    fn valid(&self) -> bool {
        !self.node.is_null()
    }

    #[inline(always)]
    fn key(&self) -> &[u8] {
        self.node().key()
    }

    #[inline(always)]
    fn trailer(&self) -> Trailer {
        self.node().trailer()
    }

    #[inline(always)]
    fn value(&self) -> &[u8] {
        self.node().value()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        let node = raw(self.memtable.list().first());
        self.stand_on(node);
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        let node = raw(self.memtable.list().last());
        self.stand_on(node);
        Ok(())
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        let node = raw(self.memtable.list().at_or_after(key, trailer));
        self.stand_on(node);
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        let node = raw(self.memtable.list().before(key, trailer));
        self.stand_on(node);
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let next = self.node().next();
        if let Some(next) = next {
            prefetch(raw(next.next()));
        }
        let next = raw(next);
        self.passed = self.node;
        self.node = next;
        self.remembered_len = 0;
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        if self.remembered_len == 0 {
            self.remember();
        }
        self.passed = ptr::null_mut();
        self.node = match self.remembered_len.checked_sub(1) {
            Some(last) => {
                self.remembered_len = last;
                self.remembered[last]
            }
            None => ptr::null_mut(),
        };
        Ok(())
    }

    #[inline]
    fn same_key_as_previous(&self) -> bool {
        // SAFETY: not null means a node that the cursor stood on.
        match (unsafe { NodeRef::from_raw(self.passed) }, unsafe { NodeRef::from_raw(self.node) }) {
            (Some(passed), Some(node)) => passed.same_key(node),
            _ => false,
        }
    }

    fn fetch_ahead(&self, entries: usize) {
        if self.valid() {
            self.memtable.list().fetch(self.key(), self.trailer(), entries);
        }
    }

    fn add_counters(&self, counters: &mut ReadCounters) {
        counters.memtables_searched += u64::from(self.positioned);
    }
}
