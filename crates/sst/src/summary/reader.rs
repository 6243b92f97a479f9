//! The summaries of a file, read.

use std::sync::Arc;

use mycelium_base::{Error, Result, SequenceNumber};
use mycelium_cache::BlockKind;

use super::{PAGE_BLOCKS, SummaryEntry, SummaryPart, bytes_at, parse_summary_directory, parse_summary_page};
use crate::footer::BlockHandle;
use crate::reader::{SstFile, malformed_part, payload_of};

/// What one summarizer made of a file, with the blocks that it is of. One thread at a time.
///
/// Nothing here says what else lies in a block's key interval: in other files, or in the file's own range deletes.
pub struct FileSummary {
    file: Arc<SstFile>,
    index: Arc<[u8]>,
    directory: Arc<[u8]>,
    entry: SummaryEntry,
    page: Option<LoadedPage>,
}

struct LoadedPage {
    number: usize,
    framed: Arc<[u8]>,
    blocks: Vec<Option<(usize, usize)>>,
}

impl std::fmt::Debug for FileSummary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileSummary({} of {})", self.entry.id, self.file.path().display())
    }
}

impl SstFile {
    /// Whether the file has summaries.
    pub fn has_summaries(&self) -> bool {
        self.footer.summaries.len > 0
    }

    /// Bytes of the summaries on disk.
    pub fn summary_bytes(&self) -> u64 {
        let end = self.footer.properties.offset;
        if self.has_summaries() { end.saturating_sub(self.summary_pages_start()) } else { 0 }
    }

    fn summary_pages_start(&self) -> u64 {
        let columns = self.properties().columns;
        if columns.len > 0 { columns.offset.saturating_add(columns.len) } else { self.footer.pages_start() }
    }

    /// The summaries that the summarizer with this id made, if it was there when the file was written. Reads the
    /// directory unless it is cached.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`](mycelium_base::ErrorKind) naming file and offset.
    pub fn summary(self: &Arc<Self>, id: u64) -> Result<Option<FileSummary>> {
        if !self.has_summaries() {
            return Ok(None);
        }
        let (directory, entries) = self.summary_directory()?;
        let Some(entry) = entries.into_iter().find(|entry| entry.id == id) else { return Ok(None) };
        let index = self.load_index()?;
        Ok(Some(FileSummary { file: self.clone(), index, directory, entry, page: None }))
    }

    /// The framed directory and what it says.
    fn summary_directory(&self) -> Result<(Arc<[u8]>, Vec<SummaryEntry>)> {
        let part = self.footer.summaries;
        let framed = self.cached_part(part, BlockKind::Summary)?;
        let pages = (self.summary_pages_start(), part.offset);
        let entries = parse_summary_directory(payload_of(&framed), self.block_count(), pages)
            .map_err(|error| malformed_part(self.path(), "summaries", part.offset, error))?;
        Ok((framed, entries))
    }

    fn summary_page(&self, handle: BlockHandle, number: usize) -> Result<LoadedPage> {
        let framed = self.cached_part(handle, BlockKind::Summary)?;
        let blocks = (self.block_count() - number * PAGE_BLOCKS).min(PAGE_BLOCKS);
        let blocks = parse_summary_page(payload_of(&framed), blocks)
            .map_err(|error| malformed_part(self.path(), "summaries", handle.offset, error))?;
        Ok(LoadedPage { number, framed, blocks })
    }

    /// Reads and checks all summaries, for verification.
    pub(crate) fn verify_summaries(&self) -> Result<()> {
        if !self.has_summaries() {
            return Ok(());
        }
        let (_, entries) = self.summary_directory()?;
        for entry in entries {
            for (number, page) in entry.pages.iter().enumerate().filter(|(_, page)| page.handle.len > 0) {
                self.summary_page(page.handle, number)?;
            }
        }
        Ok(())
    }
}

impl FileSummary {
    /// The file.
    pub fn file(&self) -> &Arc<SstFile> {
        &self.file
    }

    /// The number of data blocks.
    pub fn block_count(&self) -> usize {
        self.file.block_count()
    }

    /// The first block that may hold `key` or a later one; the block count if there is none. O(log blocks).
    pub fn seek(&self, key: &[u8]) -> usize {
        self.file.index_of(&self.index).seek(key)
    }

    /// The key up to which block `i` reaches: all keys in it are at most this one, those of later blocks at least.
    pub fn separator(&self, i: usize) -> Vec<u8> {
        self.file.index_of(&self.index).separator(i)
    }

    /// The largest sequence number of blocks `from..to`.
    pub fn max_sequence(&self, from: usize, to: usize) -> SequenceNumber {
        if self.file.options.sequence_override.is_some() {
            return self.file.max_sequence();
        }
        let index = self.file.index_of(&self.index);
        (from..to).map(|i| index.entry(i).max_sequence).max().unwrap_or_default()
    }

    /// The summary of the file.
    pub fn of_file(&self) -> Option<&[u8]> {
        bytes_at(payload_of(&self.directory), self.entry.file)
    }

    /// The summary of the blocks of the page that begins with block `page * PAGE_BLOCKS`.
    pub fn of_page(&self, page: usize) -> Option<&[u8]> {
        bytes_at(payload_of(&self.directory), self.entry.pages.get(page)?.whole)
    }

    /// The summary of block `i`. Reads its page unless it is cached.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`](mycelium_base::ErrorKind) naming file and offset.
    pub fn of_block(&mut self, i: usize) -> Result<Option<&[u8]>> {
        let number = i / PAGE_BLOCKS;
        let Some(handle) = self.entry.pages.get(number).map(|page| page.handle) else { return Ok(None) };
        if handle.len == 0 {
            return Ok(None);
        }
        if self.page.as_ref().is_none_or(|page| page.number != number) {
            self.page = Some(self.file.summary_page(handle, number)?);
        }
        let Some(page) = &self.page else { return Ok(None) };
        Ok(bytes_at(payload_of(&page.framed), page.blocks.get(i % PAGE_BLOCKS).copied().flatten()))
    }

    /// The error of a summary of such a part whose bytes mean nothing.
    pub fn malformed(&self, part: SummaryPart, cause: Error) -> Error {
        let page = self.page.as_ref().filter(|_| part == SummaryPart::Block);
        let handle = page.and_then(|page| self.entry.pages.get(page.number)).map(|page| page.handle);
        let offset = handle.unwrap_or(self.file.footer.summaries).offset;
        malformed_part(self.file.path(), "summaries", offset, cause)
    }
}
