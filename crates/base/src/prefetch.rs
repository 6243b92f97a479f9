//! Asking the processor for memory before it is needed, so that cache misses overlap.

/// The length of a cache line in bytes, as on all processors we care about.
pub const CACHE_LINE: usize = 64;

/// Asks for the cache line of `pointer`, which need not be valid.
#[inline(always)]
pub fn prefetch<T>(pointer: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint that never faults, whatever the address; SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(pointer.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = pointer;
}
