//! A node: an entry and the tower of links that leads on from it.
//!
//! ```text
//!            tower, top level first                 the pointer to a node points here
//!   +-----------------+-----------------+          v
//!   | link of level 1 | link of level 0 | trailer u64 | key length u16 | value length u16 | key, at least 8 bytes | value
//!   +-----------------+-----------------+
//!   a link: pointer to the next node of the level, prefix of that node's key
//!   a value length of 65,535: the length follows the key as a u32, and the value follows that
//! ```
//!
//! The prefix of a key are eight bytes of it as a big-endian integer ([`KeyPrefix`]): if two prefixes differ, the keys
//! compare as they do.
//!
//! Invariant of links (what makes prefixes safe to use without a lock): **the prefix loaded from a link after the
//! pointer is at most the prefix of the node pointed to.** A link is only ever redirected to a smaller key, prefix
//! first and then, with release, the pointer; so whoever loads the pointer with acquire sees its prefix or that of an
//! even smaller key.

use std::ptr::{self, NonNull};

use mycelium_base::Trailer;
use mycelium_base::key_prefix::KeyPrefix;
use mycelium_base::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};
use mycelium_base::prefetch::{CACHE_LINE, prefetch};

use crate::arena::{Bump, Chunks};
use crate::sync::{AtomicPtr, AtomicU64, Ordering};

/// Levels of the tallest tower. Level `n` holds half of a 2^n-th of all nodes, level 0 all: most steps of a search are
/// on the levels above, most links are on level 0.
pub(crate) const MAX_HEIGHT: usize = 22;

/// The part of a node that has a fixed size.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub(crate) struct Node {
    trailer: Trailer,
    key_len: u16,
    value_len: u16,
}

/// The `value_len` of a value whose length stands before it.
const LONG: u16 = u16::MAX;

/// Bytes of a value that are fetched ahead.
const MOST_FETCHED: usize = 512;

/// A link of a tower.
#[repr(C)]
pub(crate) struct Link {
    next: AtomicPtr<Node>,
    prefix: AtomicU64,
}

impl Link {
    fn new(next: *mut Node, prefix: u64) -> Self {
        Self { next: AtomicPtr::new(next), prefix: AtomicU64::new(prefix) }
    }

    /// The next node of the level, or null.
    #[inline(always)]
    pub(crate) fn next(&self) -> *mut Node {
        self.next.load(Ordering::Acquire)
    }

    /// At most the prefix of the node that `next()` returned before; exactly it for the writer.
    #[inline(always)]
    pub(crate) fn prefix(&self) -> u64 {
        self.prefix.load(Ordering::Relaxed)
    }

    /// Redirects the link to a node before the present one.
    #[inline]
    pub(crate) fn redirect(&self, next: *mut Node, prefix: u64) {
        self.prefix.store(prefix, Ordering::Relaxed);
        self.next.store(next, Ordering::Release);
    }
}

const LINK: usize = size_of::<Link>();
const FIXED: usize = size_of::<Node>();
const LONG_LEN: usize = size_of::<u32>();

/// Writes a node of `height` levels into the arena. Its links are set to null.
///
/// The lowest link, the fixed part and the beginning of the key, which is what a search looks at, lie together; they
/// may straddle two cache lines, which a processor fetches as a pair (filling up to a border cost 9 bytes a node and
/// was no faster).
pub(crate) fn write_node(
    bump: &mut Bump,
    chunks: &Chunks,
    height: usize,
    key: &[u8],
    trailer: Trailer,
    value: &[u8],
) -> NonNull<Node> {
    const { assert!(LINK.is_multiple_of(8) && align_of::<Link>() <= 8 && align_of::<Node>() <= 8) };
    const { assert!(MAX_KEY_LEN <= u16::MAX as usize && MAX_VALUE_LEN <= u32::MAX as usize) };
    let key_room = key.len().max(8);
    let short_len = u16::try_from(value.len()).ok().filter(|&len| len != LONG);
    let value_at = key_room + if short_len.is_some() { 0 } else { LONG_LEN };
    let node = bump.cut(chunks, height * LINK, FIXED + value_at + value.len()).cast::<Node>();
    // SAFETY: the arena gave `height * LINK` bytes before and `FIXED + value_at + value.len()` bytes after the pointer,
    // aligned to 8, to nobody else. Lengths fit: the caller checked them.
    unsafe {
        for level in 0..height {
            node.as_ptr().cast::<Link>().sub(level + 1).write(Link::new(ptr::null_mut(), 0));
        }
        node.write(Node { trailer, key_len: key.len() as u16, value_len: short_len.unwrap_or(LONG) });
        let bytes = node.as_ptr().cast::<u8>().add(FIXED);
        if key.len() < 8 {
            bytes.cast::<[u8; 8]>().write([0; 8]);
        }
        ptr::copy_nonoverlapping(key.as_ptr(), bytes, key.len());
        if short_len.is_none() {
            bytes.add(key_room).cast::<[u8; LONG_LEN]>().write((value.len() as u32).to_le_bytes());
        }
        ptr::copy_nonoverlapping(value.as_ptr(), bytes.add(value_at), value.len());
    }
    node
}

/// A reference to a node of a living arena.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeRef<'a>(NonNull<Node>, std::marker::PhantomData<&'a Chunks>);

impl<'a> NodeRef<'a> {
    /// # Safety
    /// `node` was written by [`write_node`] into chunks that live for `'a`, and that happened before this call.
    #[inline(always)]
    pub(crate) unsafe fn new(node: NonNull<Node>) -> Self {
        Self(node, std::marker::PhantomData)
    }

    /// As [`NodeRef::new`], or `None` for null.
    ///
    /// # Safety
    /// As for [`NodeRef::new`] unless null.
    #[inline(always)]
    pub(crate) unsafe fn from_raw(node: *mut Node) -> Option<Self> {
        // SAFETY: the caller's promise.
        NonNull::new(node).map(|node| unsafe { Self::new(node) })
    }

    #[inline(always)]
    pub(crate) fn as_ptr(self) -> *mut Node {
        self.0.as_ptr()
    }

    /// The link of a level.
    ///
    /// # Safety
    /// `level` is less than the node's height.
    #[inline(always)]
    pub(crate) unsafe fn link(self, level: usize) -> &'a Link {
        // SAFETY: the tower lies before the node, in the same chunk, and has that many links.
        unsafe { &*self.0.as_ptr().cast::<Link>().sub(level + 1) }
    }

    /// Asks the processor for the lowest link, the fixed part, and as much behind it as a short key and the head of its
    /// value take.
    #[inline(always)]
    pub(crate) fn fetch(self, level: usize) {
        let link = self.0.as_ptr().wrapping_byte_sub((level + 1) * LINK);
        prefetch(link);
        prefetch(link.wrapping_byte_add(CACHE_LINE));
    }

    /// Asks the processor for what [`NodeRef::fetch`] of level 0 leaves of a longer value, as far as a row of some
    /// dozen columns reaches. Looks at the node, which has come by then.
    #[inline]
    pub(crate) fn fetch_value_end(self) {
        let fixed = self.fixed();
        let len = LINK + FIXED + (fixed.key_len as usize).max(8) + (fixed.value_len as usize).min(MOST_FETCHED);
        let link = self.0.as_ptr().wrapping_byte_sub(LINK);
        for at in (2 * CACHE_LINE..len).step_by(CACHE_LINE) {
            prefetch(link.wrapping_byte_add(at));
        }
    }

    /// The next node in order.
    #[inline(always)]
    pub(crate) fn next(self) -> Option<NodeRef<'a>> {
        // SAFETY: every node has a level 0; its link leads to a node of the same chunks, written before it was linked.
        unsafe { Self::from_raw(self.link(0).next()) }
    }

    #[inline(always)]
    fn fixed(self) -> Node {
        // SAFETY: written before the node could be reached, and never again.
        unsafe { self.0.read() }
    }

    #[inline(always)]
    fn bytes(self) -> *const u8 {
        // SAFETY: the key follows the fixed part in the same chunk.
        unsafe { self.0.as_ptr().cast::<u8>().add(FIXED) }
    }

    /// The first eight bytes of the key, filled up with zeros.
    #[inline(always)]
    fn head(self) -> u64 {
        // SAFETY: a key has room for at least 8 bytes, all written, with zeros behind a shorter one.
        u64::from_be_bytes(unsafe { self.bytes().cast::<[u8; 8]>().read() })
    }

    #[inline(always)]
    pub(crate) fn key(self) -> &'a [u8] {
        // SAFETY: that many bytes were written there and never change while the chunks live.
        unsafe { std::slice::from_raw_parts(self.bytes(), self.fixed().key_len as usize) }
    }

    #[inline(always)]
    pub(crate) fn value(self) -> &'a [u8] {
        let fixed = self.fixed();
        // SAFETY: as for the key.
        unsafe {
            let after_key = self.bytes().add((fixed.key_len as usize).max(8));
            if fixed.value_len != LONG {
                return std::slice::from_raw_parts(after_key, fixed.value_len as usize);
            }
            let len = u32::from_le_bytes(after_key.cast::<[u8; LONG_LEN]>().read());
            std::slice::from_raw_parts(after_key.add(LONG_LEN), len as usize)
        }
    }

    #[inline(always)]
    pub(crate) fn trailer(self) -> Trailer {
        self.fixed().trailer
    }

    /// Whether the node sorts before (`key`, `trailer`), where `prefix` is the key's by `prefixes`.
    #[inline(always)]
    pub(crate) fn is_before(self, prefixes: &KeyPrefix, key: &[u8], prefix: u64, trailer: Trailer) -> bool {
        let own = if prefixes.is_head() { self.head() } else { prefixes.of(self.key()) };
        if own != prefix {
            return own < prefix;
        }
        self.is_before_slow(key, trailer)
    }

    #[inline(never)]
    fn is_before_slow(self, key: &[u8], trailer: Trailer) -> bool {
        match self.key().cmp(key) {
            std::cmp::Ordering::Equal => self.trailer() > trailer,
            ordering => ordering.is_lt(),
        }
    }

    /// Whether two nodes have the same key.
    #[inline]
    pub(crate) fn same_key(self, other: NodeRef<'_>) -> bool {
        let len = self.fixed().key_len;
        let have_same_head = len == other.fixed().key_len && self.head() == other.head();
        have_same_head && (len <= 8 || self.key() == other.key())
    }
}
