//! The searches of the skiplist and the insertion of a node.

use std::ptr::{self, NonNull};

use mycelium_base::Trailer;
use mycelium_base::key_prefix::KeyPrefix;

use crate::arena::{Bump, Chunks};
use crate::node::{MAX_HEIGHT, Node, NodeRef, write_node};
use crate::sync::{AtomicUsize, Ordering};

/// Places at which nodes are fetched at once.
const LANES: usize = 16;
/// The level that leads from one to the next: the 2^(level + 1) nodes between are walked.
const LANE_LEVEL: usize = 3;

/// The shared half: what readers need.
pub(crate) struct Skiplist {
    /// A node of full height before all others; its own entry is never looked at.
    head: NonNull<Node>,
    /// Levels in use, at least 1. A reader that sees too small a number only walks further.
    height: AtomicUsize,
    /// By what keys are compared first.
    prefixes: KeyPrefix,
    chunks: Chunks,
}

// SAFETY: `head` points into `chunks`; shared nodes are immutable except for their links, which are atomic.
unsafe impl Send for Skiplist {}
// SAFETY: as above.
unsafe impl Sync for Skiplist {}

impl Skiplist {
    /// An empty list and the only thing that can insert into it.
    pub(crate) fn new(prefixes: KeyPrefix) -> (Self, Inserter) {
        let chunks = Chunks::new();
        let mut bump = Bump::new();
        let head = write_node(&mut bump, &chunks, MAX_HEIGHT, &[], Trailer::NEWEST, &[]);
        let list = Self { head, height: AtomicUsize::new(1), prefixes, chunks };
        (list, Inserter { bump, places: [head.as_ptr(); MAX_HEIGHT], height: 1, random: 0x9e37_79b9_7f4a_7c15 })
    }

    /// Bytes of memory held.
    pub(crate) fn bytes(&self) -> usize {
        self.chunks.bytes()
    }

    #[inline(always)]
    fn head(&self) -> NodeRef<'_> {
        // SAFETY: written in `new` into our own chunks.
        unsafe { NodeRef::new(self.head) }
    }

    /// Whether this is the node before all others, which holds no entry.
    pub(crate) fn is_head(&self, node: NodeRef<'_>) -> bool {
        node == self.head()
    }

    /// The first node.
    #[inline]
    pub(crate) fn first(&self) -> Option<NodeRef<'_>> {
        self.head().next()
    }

    /// The last node. O(log n).
    pub(crate) fn last(&self) -> Option<NodeRef<'_>> {
        let mut node = self.head();
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            // SAFETY: `node` is on this level (the head is on all); links lead to nodes of our chunks.
            while let Some(next) = unsafe { NodeRef::from_raw(node.link(level).next()) } {
                node = next;
            }
        }
        (node != self.head()).then_some(node)
    }

    /// The nodes of a level in order: of level 0 all, else about every `2^(level + 1)`th.
    pub(crate) fn of_level(&self, level: usize) -> impl Iterator<Item = NodeRef<'_>> {
        let level = level.min(MAX_HEIGHT - 1);
        // SAFETY: the head is on all levels, and links of a level lead to nodes of that level.
        let next = move |node: NodeRef<'_>| unsafe { NodeRef::from_raw(node.link(level).next()) };
        std::iter::successors(next(self.head()), move |&node| next(node))
    }

    /// The first node at or after (`key`, `trailer`). O(log n).
    #[inline]
    pub(crate) fn at_or_after(&self, key: &[u8], trailer: Trailer) -> Option<NodeRef<'_>> {
        self.descend(key, trailer, 0).1
    }

    /// The last node before (`key`, `trailer`). O(log n).
    pub(crate) fn before(&self, key: &[u8], trailer: Trailer) -> Option<NodeRef<'_>> {
        let node = self.descend(key, trailer, 0).0;
        (node != self.head()).then_some(node)
    }

    /// A node (maybe the head) about `2^(level + 1)` nodes before (`key`, `trailer`), from which one can walk to it.
    pub(crate) fn some_way_before(&self, key: &[u8], trailer: Trailer, level: usize) -> NodeRef<'_> {
        self.descend(key, trailer, level).0
    }

    /// Fetches `count` nodes or so, from (`key`, `trailer`) on, into the processor's caches. A walk waits for memory at
    /// every node, for it learns from each where the next one is; this walks in [`LANES`] places at once, each up to
    /// the next node of [`LANE_LEVEL`], where another walk began. O(log n + count).
    pub(crate) fn fetch(&self, key: &[u8], trailer: Trailer, count: usize) {
        let mut left = count >> (LANE_LEVEL + 1);
        let mut border = Some(self.descend(key, trailer, LANE_LEVEL).0);
        let mut next_lane = || {
            let start = border.filter(|_| left > 0)?;
            left -= 1;
            // SAFETY: `descend` and links of a level lead to nodes of that level.
            border = unsafe { NodeRef::from_raw(start.link(LANE_LEVEL).next()) };
            if let Some(border) = border {
                border.fetch(LANE_LEVEL);
            }
            Some((start, border))
        };
        let mut lanes: [_; LANES] = std::array::from_fn(|_| next_lane());
        while lanes.iter().any(Option::is_some) {
            for lane in &mut lanes {
                let Some((node, end)) = *lane else { continue };
                node.fetch_value_end();
                *lane = match node.next().filter(|&next| Some(next) != end) {
                    Some(next) => {
                        next.fetch(0);
                        Some((next, end))
                    }
                    None => next_lane(),
                };
            }
        }
    }

    /// Finds the neighbours of (`key`, `trailer`) on a level: the last node before, and what follows it.
    #[inline(always)]
    fn descend(&self, key: &[u8], trailer: Trailer, lowest: usize) -> (NodeRef<'_>, Option<NodeRef<'_>>) {
        let prefix = self.prefixes.of(key);
        let mut node = self.head();
        let mut level = self.height.load(Ordering::Relaxed).max(lowest + 1) - 1;
        let mut not_before: *mut Node = ptr::null_mut();
        loop {
            // SAFETY: `node` was reached on this level or a higher one, or is the head, which is on all.
            let link = unsafe { node.link(level) };
            let raw = link.next();
            if raw != not_before && link.prefix() <= prefix {
                // SAFETY: a link leads to a node of our chunks, written before it was linked.
                if let Some(next) = unsafe { NodeRef::from_raw(raw) } {
                    if next.is_before(&self.prefixes, key, prefix, trailer) {
                        node = next;
                        continue;
                    }
                    not_before = raw;
                }
            }
            if level == lowest {
                // SAFETY: as above.
                return (node, unsafe { NodeRef::from_raw(raw) });
            }
            level -= 1;
        }
    }
}

/// The writer's half: where memory comes from, and where the last insert was.
pub(crate) struct Inserter {
    bump: Bump,
    /// On every level the last node at or before the one inserted last. (The head before the first.)
    places: [*mut Node; MAX_HEIGHT],
    height: usize,
    random: u64,
}

// SAFETY: the pointers lead into the chunks of the list, which the owner of the inserter keeps alive.
unsafe impl Send for Inserter {}

impl Inserter {
    /// Moves `places` to (`key`, `trailer`): on every level the last node before it.
    ///
    /// # Safety
    /// `list` is the list this inserter came with.
    #[inline]
    pub(crate) unsafe fn seek(&mut self, list: &Skiplist, key: &[u8], trailer: Trailer) {
        let prefix = list.prefixes.of(key);
        // SAFETY: places hold the head or nodes of this list, each at least as tall as its level demands.
        let place = |raw: *mut Node| unsafe { NodeRef::new(NonNull::new_unchecked(raw)) };
        let last = place(self.places[0]);
        let mut level;
        let mut node;
        if last == list.head() || last.is_before(&list.prefixes, key, prefix, trailer) {
            // From the last place upwards, until the next node of the level is not before the key.
            level = 0;
            node = last;
            // SAFETY: see `place`.
            while level + 1 < self.height
                && unsafe { leads_before(&list.prefixes, node, level, key, prefix, trailer) }.is_some()
            {
                level += 1;
                node = place(self.places[level]);
            }
        } else {
            level = self.height - 1;
            node = list.head();
        }
        loop {
            // SAFETY: `node` was reached on this level or a higher one, or is the head, or `places[level]`.
            match unsafe { leads_before(&list.prefixes, node, level, key, prefix, trailer) } {
                Some(next) => node = next,
                None => {
                    self.places[level] = node.as_ptr();
                    if level == 0 {
                        return;
                    }
                    level -= 1;
                }
            }
        }
    }

    /// Inserts an entry at the place that `seek` found; its node.
    ///
    /// # Safety
    /// `list` is the list this inserter came with, and the last call was `seek` for the same key and trailer.
    #[inline]
    pub(crate) unsafe fn insert_here(
        &mut self,
        list: &Skiplist,
        key: &[u8],
        trailer: Trailer,
        value: &[u8],
    ) -> NonNull<Node> {
        let height = self.random_height();
        if height > self.height {
            self.height = height;
            list.height.store(height, Ordering::Relaxed);
        }
        let prefix = list.prefixes.of(key);
        let new = write_node(&mut self.bump, &list.chunks, height, key, trailer, value);
        for (level, place) in self.places[..height].iter_mut().enumerate() {
            // SAFETY: places hold nodes of this list that are taller than their level, and so is the new node. Places
            // above the former height are the head, for nothing was ever inserted there.
            unsafe {
                let before = NodeRef::new(NonNull::new_unchecked(*place)).link(level);
                NodeRef::new(new).link(level).redirect(before.next(), before.prefix());
                before.redirect(new.as_ptr(), prefix);
            }
            *place = new.as_ptr();
        }
        new
    }

    /// The number of heads in a row, and 1 at least; xorshift, from a fixed seed.
    #[inline]
    fn random_height(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (((self.random >> 32) | 1 << MAX_HEIGHT).trailing_zeros() as usize).max(1)
    }
}

/// The next node of the level if it is before (`key`, `trailer`). For the writer, to whom prefixes are exact.
///
/// # Safety
/// `node` is taller than `level`.
#[inline(always)]
unsafe fn leads_before<'a>(
    prefixes: &KeyPrefix,
    node: NodeRef<'a>,
    level: usize,
    key: &[u8],
    prefix: u64,
    trailer: Trailer,
) -> Option<NodeRef<'a>> {
    // SAFETY: the caller's promise; links lead to nodes of the same chunks.
    let link = unsafe { node.link(level) };
    let next_prefix = link.prefix();
    if next_prefix > prefix {
        return None;
    }
    // SAFETY: as above.
    let next = unsafe { NodeRef::from_raw(link.next()) }?;
    (next_prefix < prefix || next.is_before(prefixes, key, prefix, trailer)).then_some(next)
}
