//! Point reads.

use std::ops::ControlFlow;
use std::sync::Arc;

use mycelium_base::{ReadCounters, Result, SequenceNumber, Trailer};
use mycelium_encoding::{PackedLayout, PackedScratch};

use crate::block::{BlockShape, bad_entry, payload_in_memory, prefetch_keys, search};
use crate::columnar::HeadedBlock;
use crate::compression::Decompressor;
use crate::index::IndexEntry;
use crate::reader::{SstFile, malformed_part};

/// What point reads reuse; one per thread or per reader.
#[derive(Debug)]
pub struct GetScratch {
    decompressor: Decompressor,
    pub(crate) columns: ColumnScratch,
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

/// Memory of point reads of columnar files, reused.
#[derive(Default, Debug)]
pub(crate) struct ColumnScratch {
    pub(crate) value: Vec<u8>,
    pub(crate) packed: PackedScratch,
    /// A text that was expanded.
    pub(crate) text: Vec<u8>,
}

/// Where a block lies that may hold versions of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundBlock {
    pub(crate) number: usize,
    pub(crate) entry: IndexEntry,
}

impl SstFile {
    /// Calls `visit` with the versions of exactly `key` whose sequence number is at most `snapshot`, newest first,
    /// until it breaks or there are no more.
    ///
    /// Consults neither the file's filter nor its fences, which the caller does first; skips blocks whose entries are
    /// all newer than `snapshot` if `scratch` says so. O(log blocks + log entries), one block read unless versions
    /// straddle blocks. Of a columnar file the values are packed fragments of all its columns.
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
        let mut from = None;
        while let Some(found) = self.block_of((key, snapshot), from, scratch, counters)? {
            let bytes = self.found_block(found, scratch, counters)?;
            let done = self.visit_block(&bytes, key, snapshot, visit);
            let done = done.map_err(|e| malformed_part(&self.path, "data block", found.entry.offset, e))?;
            from = if done.is_continue() { self.block_after(found.number, key)? } else { None };
            if from.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Whether no block that may hold versions of `key` has a number above `sequence`: then the file has no such
    /// version. Looks at the index alone; range deletes are not in it. O(log blocks).
    ///
    /// # Errors
    /// Failures to read the index, where it is not in memory.
    pub fn is_unchanged_since(&self, key: &[u8], sequence: SequenceNumber) -> Result<bool> {
        if let Some(number) = self.options.sequence_override {
            return Ok(number <= sequence);
        }
        let mut held = None;
        let index = self.index(&mut held)?;
        for number in index.seek(key)..index.block_count() {
            if index.entry(number).max_sequence > sequence {
                return Ok(false);
            }
            if !index.separator_is(number, key) {
                break;
            }
        }
        Ok(true)
    }

    /// As [`SstFile::get`], of a columnar file that has the columns of `wanted` (`None`: all of its own): the values
    /// are packed fragments of them, and no other cells are read.
    #[inline(never)]
    fn get_cells<F>(
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
        self.start_cells((key, snapshot), wanted)?.visit(scratch, counters, visit)
    }

    /// The first block at or after block `from` (`None`: the first that may hold `key`) with versions of `key` that may
    /// be visible.
    #[inline]
    pub(crate) fn block_of(
        &self,
        (key, snapshot): (&[u8], SequenceNumber),
        from: Option<usize>,
        scratch: &GetScratch,
        counters: &mut ReadCounters,
    ) -> Result<Option<FoundBlock>> {
        let mut held = None;
        let index = self.index(&mut held)?;
        for number in from.unwrap_or_else(|| index.seek(key))..index.block_count() {
            if !scratch.snapshot_filter || self.is_visible(&index, number, snapshot) {
                return Ok(Some(FoundBlock { number, entry: index.entry(number) }));
            }
            counters.blocks_skipped_by_snapshot += 1;
            if !index.separator_is(number, key) {
                break;
            }
        }
        Ok(None)
    }

    /// The block after block `number`, if versions of `key` may go on there: only if the separator is the key itself.
    pub(crate) fn block_after(&self, number: usize, key: &[u8]) -> Result<Option<usize>> {
        let mut held = None;
        let index = self.index(&mut held)?;
        Ok(index.separator_is(number, key).then_some(number + 1))
    }

    /// A block that [`SstFile::block_of`] found.
    #[inline]
    pub(crate) fn found_block(
        &self,
        FoundBlock { entry, .. }: FoundBlock,
        scratch: &mut GetScratch,
        counters: &mut ReadCounters,
    ) -> Result<Arc<[u8]>> {
        self.block(entry, &mut scratch.decompressor, counters)
    }

    /// As [`SstFile::found_block`], opened.
    #[inline]
    pub(crate) fn opened_block(
        &self,
        FoundBlock { number, entry, .. }: FoundBlock,
        open: impl Fn(Arc<[u8]>) -> Result<HeadedBlock>,
        scratch: &mut GetScratch,
        counters: &mut ReadCounters,
    ) -> Result<HeadedBlock> {
        self.slotted_block((number, entry), open, &mut scratch.decompressor, counters)
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
