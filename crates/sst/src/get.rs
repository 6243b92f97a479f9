//! Point reads.

use std::ops::ControlFlow;

use mycelium_base::{ReadCounters, Result, SequenceNumber, Trailer};
use mycelium_encoding::PackedLayout;

use crate::block::{BlockShape, bad_entry, payload_in_memory, prefetch_keys, search};
use crate::columnar::{CellLookup, ColumnScratch};
use crate::compression::Decompressor;
use crate::reader::{SstFile, malformed_part};

/// What point reads reuse; one per thread or per reader.
#[derive(Debug)]
pub struct GetScratch {
    decompressor: Decompressor,
    columns: ColumnScratch,
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
        Self { decompressor: Decompressor::default(), columns: ColumnScratch::default(), snapshot_filter }
    }
}

impl SstFile {
    /// Calls `visit` with the versions of exactly `key` whose sequence number is at most `snapshot`, newest first, until
    /// it breaks or there are no more.
    ///
    /// Consults neither the file's filter nor its fences, which the caller does first; skips blocks whose entries are
    /// all newer than `snapshot` if `scratch` says so. O(log blocks + log entries), one
    /// block read unless versions straddle blocks. Of a columnar file the values are packed fragments of all its columns.
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
        if self.columns.is_some() {
            return self.get_cells((key, snapshot), None, scratch, counters, visit);
        }
        self.visit_blocks((key, snapshot), scratch, counters, |block, _| self.visit_block(block, key, snapshot, visit))
    }

    /// As [`SstFile::get`], of a columnar file that has the columns of `wanted` (`None`: all of its own): the values are
    /// packed fragments of them, and no other cells are read.
    #[inline(never)]
    pub fn get_cells<F>(
        &self,
        (key, snapshot): (&[u8], SequenceNumber),
        wanted: Option<&PackedLayout>,
        scratch: &mut GetScratch,
        counters: &mut ReadCounters,
        visit: &mut F,
    ) -> Result<()>
    where
        F: FnMut(Trailer, &[u8]) -> ControlFlow<()> + ?Sized,
    {
        let lookup = CellLookup::new(self, (key, snapshot), wanted)?;
        self.visit_blocks((key, snapshot), scratch, counters, |block, scratch| lookup.visit(block, scratch, visit))
    }

    /// Calls `visit` with the blocks that may hold visible versions of `key`, until it breaks.
    #[inline]
    fn visit_blocks(
        &self,
        (key, snapshot): (&[u8], SequenceNumber),
        scratch: &mut GetScratch,
        counters: &mut ReadCounters,
        mut visit: impl FnMut(&[u8], &mut ColumnScratch) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut held = None;
        let index = self.index(&mut held)?;
        for i in index.seek(key)..index.block_count() {
            if scratch.snapshot_filter && !self.is_visible(&index, i, snapshot) {
                counters.blocks_skipped_by_snapshot += 1;
            } else {
                let entry = index.entry(i);
                let block = self.block(entry, &mut scratch.decompressor, counters)?;
                let done = visit(&block, &mut scratch.columns)
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
