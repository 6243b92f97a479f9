//! Chains: a cached block knows the block after it.
//!
//! A scan over cached blocks would look each up: a hash bucket, an entry and the block's reference count, each a cache
//! miss that waits for the one before. So a reader that went from one cached block to the next links them, and later
//! readers follow the link, fetching the block after the next into the processor's cache meanwhile.
//!
//! A link does not keep the block behind it alive: it ends where that block was evicted.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwapWeak;
use mycelium_base::prefetch::{CACHE_LINE, prefetch};

/// Lines of a block asked for ahead: its header and the first entries. Those after them come by themselves, as the
/// processor sees them read in order.
const LINES_AHEAD: usize = 4;

/// The reference counts of an `Arc` lie before its bytes.
pub(crate) const COUNTS_LEN: usize = 2 * size_of::<usize>();

/// A cached block with a link to the one after it, held by a reader. Cloning shares it.
///
/// ```
/// use mycelium_cache::{BlockCache, BlockKind, CacheKey};
///
/// let cache = BlockCache::new(1 << 20);
/// for offset in [0, 100] {
///     cache.insert(CacheKey { file: 1, offset }, vec![7; 100].into(), BlockKind::Data);
/// }
/// let chained = |offset| cache.get_chained(CacheKey { file: 1, offset });
/// let (first, second) = (chained(0).expect("cached"), chained(100).expect("cached"));
/// assert!(first.next().is_none());
/// first.set_next(&second);
/// assert_eq!(first.next().map(|block| block.bytes().len()), Some(100));
/// ```
#[derive(Clone, Debug)]
pub struct ChainedBlock(Arc<Link>);

#[derive(Debug)]
struct Link {
    bytes: Arc<[u8]>,
    /// One word: with the counts and the bytes' address the link is as small as an allocator's chunk can be for it.
    next: ArcSwapWeak<Link>,
}

impl ChainedBlock {
    pub(crate) fn new(bytes: Arc<[u8]>) -> Self {
        Self(Arc::new(Link { bytes, next: ArcSwapWeak::new(Weak::new()) }))
    }

    /// The block.
    #[inline]
    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.0.bytes
    }

    /// The block last linked behind this one, unless it is gone.
    #[inline]
    pub fn next(&self) -> Option<ChainedBlock> {
        self.0.next.load().upgrade().map(Self)
    }

    /// Links `next`, which must be the block after this one in the same file.
    pub fn set_next(&self, next: &ChainedBlock) {
        if self.0.next.load().as_ptr() != Arc::as_ptr(&next.0) {
            self.0.next.store(Arc::downgrade(&next.0));
        }
    }

    /// Asks the processor for the start of the block, its last byte, and for the link behind it.
    #[inline]
    pub fn prefetch(&self) {
        let start = self.0.bytes.as_ptr().wrapping_sub(COUNTS_LEN);
        for line in 0..LINES_AHEAD {
            prefetch(start.wrapping_add(line * CACHE_LINE));
        }
        // Its last byte tells how much of it is payload.
        prefetch(self.0.bytes.as_ptr_range().end.wrapping_sub(1));
        prefetch(self.0.next.load().as_ptr());
    }
}
