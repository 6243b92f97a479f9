//! A data block in memory, as readers share it and the cache holds it.
//!
//! ```text
//! payload        the uncompressed block
//! ...            its frame where it was stored uncompressed, and up to 63 bytes of anything
//! u8             bytes after the payload, this one included
//! ```
//!
//! Lengths are multiples of [`STEP`], so that the memory of an evicted block fits most that come after it
//! ([`SpareBlocks`]). A block is read, or decompressed, straight into its buffer.

use std::sync::Arc;

use mycelium_cache::SpareBlocks;

use crate::checksum::BLOCK_TRAILER_LEN;

/// What lengths are multiples of. The bytes after a payload count at most `BLOCK_TRAILER_LEN + STEP`.
const STEP: usize = 64;

/// The room for a frame and for the count of bytes after the payload.
const AFTER: usize = BLOCK_TRAILER_LEN + 1;

/// A block that is being made; nobody else shares it.
pub(crate) struct BlockBuffer(Arc<[u8]>);

impl BlockBuffer {
    /// Room for a payload and its frame.
    pub(crate) fn new(payload_len: usize, spares: &SpareBlocks) -> Self {
        let least = (payload_len + AFTER).next_multiple_of(STEP);
        Self(spares.take(least, payload_len + BLOCK_TRAILER_LEN + STEP))
    }

    /// A block whose payload is `payload`.
    pub(crate) fn copy_of(payload: &[u8], spares: &SpareBlocks) -> Arc<[u8]> {
        let mut buffer = Self::new(payload.len(), spares);
        buffer.bytes()[..payload.len()].copy_from_slice(payload);
        buffer.finish(payload.len())
    }

    /// The payload's bytes, the frame's and what is left.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // Always: nobody else shares it.
        Arc::get_mut(&mut self.0).unwrap_or_default()
    }

    /// The block, whose payload is as long as was asked for.
    pub(crate) fn finish(mut self, payload_len: usize) -> Arc<[u8]> {
        let after = self.0.len() - payload_len;
        if let Some(last) = self.bytes().last_mut() {
            *last = after as u8;
        }
        self.0
    }
}

/// The payload of a block that [`BlockBuffer::finish`] gave.
#[inline]
pub(crate) fn payload_in_memory(block: &[u8]) -> &[u8] {
    let after = block.last().copied().unwrap_or_default();
    block.get(..block.len().wrapping_sub(usize::from(after))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_of_any_length_comes_back_whatever_the_memory_held() {
        let spares = SpareBlocks::default();
        for len in (0..2000).chain([65_535, 100_000, 200_000]) {
            let payload: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
            let block = BlockBuffer::copy_of(&payload, &spares);
            assert_eq!(payload_in_memory(&block), payload);
            assert!(block.len() - len <= BLOCK_TRAILER_LEN + STEP, "{len} in {}", block.len());
            spares.give_back(block);
        }
    }
}
