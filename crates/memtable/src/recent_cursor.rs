//! A cursor over the entries that were inserted into a memtable last ([`Memtable::recent`]): their nodes are taken in
//! the order in which they were inserted ([`crate::recent`]), and sorted.

use std::ptr::NonNull;
use std::sync::Arc;

use mycelium_base::key_prefix::head;
use mycelium_base::{Cursor, ReadCounters, Result, SequenceNumber, Trailer, compare_entries};

use crate::memtable::Memtable;
use crate::node::{Node, NodeRef};

impl Memtable {
    /// How many of the entries, in the order in which they were inserted, are those at or below `snapshot`; `None` if
    /// that is not known of so few, of so many after them, or of any in which sequence numbers did not ascend.
    ///
    /// O(entries inserted since).
    pub fn count_at(&self, snapshot: SequenceNumber) -> Option<u64> {
        let count = self.published_count();
        let mut at = count;
        while at > 0 {
            let node = self.recent_node(at - 1)?;
            if node.trailer().sequence() <= snapshot {
                break;
            }
            at -= 1;
        }
        self.is_kept_from(at.saturating_sub(1)).then_some(at)
    }

    /// A cursor over the entries from this number on, in the order in which they were inserted, as far as they are at
    /// or below `snapshot`, from `lower` on and before `upper`. `None` as for [`Memtable::count_at`]. Not yet
    /// positioned.
    ///
    /// O(n log n) for the n entries inserted since.
    pub fn recent(
        self: &Arc<Self>,
        from: u64,
        snapshot: SequenceNumber,
        (lower, upper): (Option<&[u8]>, Option<&[u8]>),
    ) -> Option<RecentCursor> {
        let mut nodes = Vec::new();
        for number in from..self.published_count() {
            let node = self.recent_node(number)?;
            let key = node.key();
            let is_within = lower.is_none_or(|lower| lower <= key) && upper.is_none_or(|upper| key < upper);
            if is_within && node.trailer().sequence() <= snapshot {
                nodes.push((head(key), NonNull::new(node.as_ptr())?));
            }
        }
        if !self.is_kept_from(from) {
            return None;
        }
        let mut cursor =
            RecentCursor { nodes: nodes.into(), at: usize::MAX, has_passed: false, memtable: self.clone() };
        cursor.sort();
        Some(cursor)
    }

    fn recent_node(&self, number: u64) -> Option<NodeRef<'_>> {
        // SAFETY: what was kept is a node of this memtable, linked before.
        self.recent_nodes().get(number).map(|node| unsafe { NodeRef::new(node) })
    }

    fn is_kept_from(&self, number: u64) -> bool {
        self.recent_nodes().is_kept_from(number, self.published_count())
    }
}

/// A [`Cursor`] over entries of a memtable that were inserted last; keeps it alive. Never fails.
pub struct RecentCursor {
    /// In order, each with the head of its key.
    nodes: Box<[(u64, NonNull<Node>)]>,
    at: usize,
    /// Whether the last move was a step forwards.
    has_passed: bool,
    memtable: Arc<Memtable>,
}

// SAFETY: the pointers lead to nodes of `memtable`, which is `Send + Sync` and kept alive.
unsafe impl Send for RecentCursor {}
// SAFETY: as above; the nodes are only read.
unsafe impl Sync for RecentCursor {}

impl RecentCursor {
    fn sort(&mut self) {
        let mut nodes = std::mem::take(&mut self.nodes);
        nodes.sort_unstable_by(|&(a_head, a), &(b_head, b)| {
            let (a, b) = (self.node_of(a), self.node_of(b));
            a_head.cmp(&b_head).then_with(|| compare_entries(a.key(), a.trailer(), b.key(), b.trailer()))
        });
        self.nodes = nodes;
    }

    fn node_of(&self, node: NonNull<Node>) -> NodeRef<'_> {
        let _kept_alive = &self.memtable;
        // SAFETY: a node of the memtable, written before it was found.
        unsafe { NodeRef::new(node) }
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    #[inline]
    fn node(&self) -> NodeRef<'_> {
        self.node_of(self.nodes[self.at].1)
    }

    fn stand_at(&mut self, at: usize) {
        (self.at, self.has_passed) = (at, false);
    }

    fn first_not_before(&self, key: &[u8], trailer: Trailer) -> usize {
        self.nodes.partition_point(|&(_, node)| {
            let node = self.node_of(node);
            compare_entries(node.key(), node.trailer(), key, trailer).is_lt()
        })
    }
}

impl Cursor for RecentCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.at < self.nodes.len()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.node().key()
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.node().trailer()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.node().value()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.stand_at(0);
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.stand_at(self.nodes.len().wrapping_sub(1));
        Ok(())
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.stand_at(self.first_not_before(key, trailer));
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.stand_at(self.first_not_before(key, trailer).wrapping_sub(1));
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        (self.at, self.has_passed) = (self.at + 1, true);
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.stand_at(self.at.wrapping_sub(1));
        Ok(())
    }

    #[inline]
    fn same_key_as_previous(&self) -> bool {
        self.has_passed && self.valid() && self.node_of(self.nodes[self.at - 1].1).same_key(self.node())
    }

    fn add_counters(&self, _: &mut ReadCounters) {}
}
