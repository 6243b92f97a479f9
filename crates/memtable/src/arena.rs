//! Memory for nodes: chunks that never move, from which a single writer cuts pieces front to back.
//!
//! 1. Chunks start at 4 KiB; each is a quarter of those before it, up to 2 MiB. So an empty table costs a page, and
//!    what is taken but not used yet is at most a fifth of the whole (a write buffer of few MiB would else be sealed
//!    half empty). The largest are aligned to their size and marked for huge pages: a search in many nodes misses the
//!    TLB as often as the cache.
//! 2. A piece that would waste much of a chunk gets a chunk of its own and leaves the current one in use.
//! 3. All chunks are freed at once, by [`Chunks`], which the readers share; the position of the next cut ([`Bump`])
//!    belongs to the writer alone.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use mycelium_base::prefetch::CACHE_LINE;

use crate::sync::{AtomicUsize, Mutex, Ordering};

const FIRST_CHUNK: usize = 4 << 10;
/// The size of a huge page.
const LARGEST_CHUNK: usize = 2 << 20;
/// Pieces above this get a chunk of their own.
const OWN_CHUNK: usize = 128 << 10;

/// The chunks of one memtable; frees them when dropped.
pub(crate) struct Chunks {
    all: Mutex<Vec<(NonNull<u8>, Layout)>>,
    bytes: AtomicUsize,
}

// SAFETY: the pointers are owned: nothing but `Chunks` frees them, and it hands out raw memory only.
unsafe impl Send for Chunks {}
// SAFETY: as above; the list is behind a mutex.
unsafe impl Sync for Chunks {}

impl Chunks {
    pub(crate) fn new() -> Self {
        Self { all: Mutex::new(Vec::new()), bytes: AtomicUsize::new(0) }
    }

    /// Bytes of all chunks.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A new chunk of `size` (not 0) uninitialized bytes, aligned to a cache line.
    fn add(&self, size: usize) -> NonNull<u8> {
        let alignment = if size == LARGEST_CHUNK { LARGEST_CHUNK } else { CACHE_LINE };
        let Ok(layout) = Layout::from_size_align(size, alignment) else {
            // Sizes come from lengths that are far below `isize::MAX`.
            unreachable!("chunk of {size} bytes")
        };
        let Some(chunk) = allocate(layout) else { handle_alloc_error(layout) };
        self.all.lock().push((chunk, layout));
        self.bytes.fetch_add(size, Ordering::Relaxed);
        chunk
    }
}

/// Memory for a chunk. The largest chunks are mapped by themselves: the general allocator would put its header before
/// each, and so on another huge page, which doubles the memory that is resident.
#[cfg(all(target_os = "linux", not(miri)))]
fn allocate(layout: Layout) -> Option<NonNull<u8>> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    if layout.size() != LARGEST_CHUNK {
        // SAFETY: the size is not 0.
        return NonNull::new(unsafe { alloc(layout) });
    }
    // SAFETY: a new mapping, twice as large as needed, of which the parts before and after the aligned half are given
    // back before anybody knows of them. The advice changes no contents; where it fails the chunk has small pages.
    unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let start = mmap_anonymous(std::ptr::null_mut(), 2 * LARGEST_CHUNK, protection, MapFlags::PRIVATE).ok()?;
        let before = start.align_offset(LARGEST_CHUNK);
        let chunk = start.byte_add(before);
        if before > 0 {
            munmap(start, before).ok()?;
        }
        if before < LARGEST_CHUNK {
            munmap(chunk.byte_add(LARGEST_CHUNK), LARGEST_CHUNK - before).ok()?;
        }
        let _advised = madvise(chunk, LARGEST_CHUNK, Advice::LinuxHugepage).is_ok();
        NonNull::new(chunk.cast())
    }
}

/// Gives back what `allocate` gave for `layout`.
///
/// # Safety
/// `chunk` came from `allocate(layout)` and is used no more.
#[cfg(all(target_os = "linux", not(miri)))]
unsafe fn release(chunk: NonNull<u8>, layout: Layout) {
    if layout.size() == LARGEST_CHUNK {
        // SAFETY: the mapping is our own. It cannot fail on a mapping that exists.
        let _unmapped = unsafe { rustix::mm::munmap(chunk.as_ptr().cast(), LARGEST_CHUNK) }.is_ok();
    } else {
        // SAFETY: the caller's promise.
        unsafe { dealloc(chunk.as_ptr(), layout) };
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn allocate(layout: Layout) -> Option<NonNull<u8>> {
    // SAFETY: the size is not 0.
    NonNull::new(unsafe { alloc(layout) })
}

/// # Safety
/// `chunk` came from `allocate(layout)` and is used no more.
#[cfg(not(all(target_os = "linux", not(miri))))]
unsafe fn release(chunk: NonNull<u8>, layout: Layout) {
    // SAFETY: the caller's promise.
    unsafe { dealloc(chunk.as_ptr(), layout) };
}

impl Drop for Chunks {
    fn drop(&mut self) {
        for (chunk, layout) in self.all.get_mut().drain(..) {
            // SAFETY: allocated in `add` with this layout and freed nowhere else.
            unsafe { release(chunk, layout) };
        }
    }
}

/// The rest of the current chunk.
pub(crate) struct Bump {
    next: *mut u8,
    left: usize,
}

// SAFETY: a position in a chunk, used only together with the `Chunks` it came from, by one thread at a time.
unsafe impl Send for Bump {}

impl Bump {
    pub(crate) fn new() -> Self {
        Self { next: std::ptr::null_mut(), left: 0 }
    }

    /// Cuts a piece of `before + after` bytes and returns the pointer between the two parts, which is aligned to 8.
    /// `before` must be a multiple of 8.
    #[inline]
    pub(crate) fn cut(&mut self, chunks: &Chunks, before: usize, after: usize) -> NonNull<u8> {
        let needed = before + after.next_multiple_of(8);
        while needed > self.left {
            if needed > OWN_CHUNK {
                // SAFETY: the chunk has `needed` bytes.
                return unsafe { chunks.add(needed).add(before) };
            }
            let share = (chunks.bytes() / 4).next_multiple_of(FIRST_CHUNK).clamp(FIRST_CHUNK, LARGEST_CHUNK);
            let size = share.max(needed.next_power_of_two());
            self.next = chunks.add(size).as_ptr();
            self.left = size;
        }
        // SAFETY: the piece lies within what is left of the chunk.
        let middle = unsafe { self.next.add(before) };
        // SAFETY: as above; the end of the chunk at most.
        self.next = unsafe { self.next.add(needed) };
        self.left -= needed;
        // SAFETY: a pointer into an allocation is not null.
        unsafe { NonNull::new_unchecked(middle) }
    }
}
