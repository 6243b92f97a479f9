//! Point reads.

use std::ops::ControlFlow;

use mycelium_base::{ReadCounters, Result, SequenceNumber, Trailer};

use crate::block::{BlockShape, bad_entry, payload_in_memory, prefetch_keys, search};
use crate::compression::Decompressor;
use crate::reader::{SstFile, malformed_part};

/// What point reads reuse; one per thread or per reader.
#[derive(Debug)]
pub struct GetScratch {
    decompressor: Decompressor,
    snapshot_filter: bool,
}

impl Default for GetScratch {
    fn default() -> Self {
        Self::new(true)
    }
}

impl GetScratch {
    /// `snapshot_filter`: whether blocks whose entries are all newer than the snapshot are skipped unread.
    pub fn new(snapshot_filter: bool) -> Self {
        Self { decompressor: Decompressor::default(), snapshot_filter }
    }
}

impl SstFile {
    /// Calls `visit` with the versions of exactly `key` whose sequence number is at most `snapshot`, newest first, until
    /// it breaks or there are no more.
    ///
    /// Consults neither the file's filter nor its fences, which the caller does first; skips blocks whose entries are
    /// all newer than `snapshot` if `scratch` says so. O(log blocks + log entries), one
    /// block read unless versions straddle blocks.
    pub fn get<F>(
        &self,
        key: &[u8],
        snapshot: SequenceNumber,
        scratch: &mut GetScratch,
        counters: &mut ReadCounters,
        visit: &mut F,
    ) -> Result<()>
    where
        F: FnMut(Trailer, &[u8]) -> ControlFlow<()> + ?Sized,
    {
        let mut held = None;
        let index = self.index(&mut held)?;
        for i in index.seek(key)..index.block_count() {
            if scratch.snapshot_filter && !self.is_visible(&index, i, snapshot) {
                counters.blocks_skipped_by_snapshot += 1;
            } else {
                let entry = index.entry(i);
                let block = self.block(entry, &mut scratch.decompressor, counters)?;
                let done = self
                    .visit_block(&block, key, snapshot, visit)
                    .map_err(|e| malformed_part(&self.path, "data block", entry.offset, e))?;
                if done.is_break() {
                    return Ok(());
                }
            }
            // Versions go on in the next block only if the separator is the key itself.
            if !index.separator_is(i, key) {
                return Ok(());
            }
        }
        Ok(())
    }

    #[inline]
    fn visit_block<F>(
        &self,
        block: &[u8],
        key: &[u8],
        snapshot: SequenceNumber,
        visit: &mut F,
    ) -> Result<ControlFlow<()>>
    where
        F: FnMut(Trailer, &[u8]) -> ControlFlow<()> + ?Sized,
    {
        let shape = BlockShape::parse(block, 0, payload_in_memory(block).len(), self.options.sequence_override)?;
        prefetch_keys(block, &shape);
        let Some(found) = search(block, &shape, key, Trailer::seek_at(snapshot))? else {
            return Ok(ControlFlow::Continue(()));
        };
        if !found.same_key {
            return Ok(ControlFlow::Break(()));
        }
        let (mut entry, mut at, mut value) = (found.entry, found.at, found.value);
        loop {
            let end = value + entry.value_len;
            let Some(bytes) = block.get(value..end).filter(|_| end <= shape.end()) else {
                return Err(bad_entry(&shape, at));
            };
            if visit(entry.trailer, bytes).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            (at, value) = (entry.next(), end);
            if at >= shape.key_end() {
                return Ok(ControlFlow::Continue(()));
            }
            entry = shape.decode(block, at).ok_or_else(|| bad_entry(&shape, at))?;
            if entry.suffix_len != 0 {
                return Ok(ControlFlow::Break(()));
            }
        }
    }
}
