//! Collects the summaries of a file while it is written.
//!
//! Whether a block has but rows, one version of each, is known only when the next block begins: versions of its last
//! key may go on there. Until then the block and its page are open.
//!
//! Memory: the summaries of one file, 16 MiB of each summarizer at most; blocks beyond that have none.

use mycelium_base::coding::put_varint;
use mycelium_base::{Operation, Result, Trailer};

use super::{PAGE_BLOCKS, Summarizer, SummaryPart};
use crate::footer::BlockHandle;

/// Bytes of one summarizer's pages.
const MAX_PAGES_LEN: usize = 16 << 20;
const MAX_SUMMARY_LEN: usize = 256 << 10;

fn limit(part: SummaryPart, bytes: u64) -> usize {
    let (share, least) = match part {
        SummaryPart::Block => (8, 128),
        SummaryPart::Page => (32, 512),
        SummaryPart::File => (64, 4096),
    };
    usize::try_from(bytes / share).unwrap_or(usize::MAX).clamp(least, MAX_SUMMARY_LEN)
}

/// Of one part: whether it can have a summary, and its length on disk.
#[derive(Clone, Copy, Debug)]
struct Extent {
    is_plain: bool,
    bytes: u64,
}

impl Extent {
    const NEW: Self = Self { is_plain: true, bytes: 0 };
}

/// A page that is complete.
struct Page {
    payload: Vec<u8>,
    whole: Option<Vec<u8>>,
}

/// The summaries of one summarizer.
struct Building {
    summarizer: Box<dyn Summarizer>,
    block: Extent,
    page: Extent,
    file: Extent,
    /// Of the blocks of the open page.
    payload: Vec<u8>,
    /// Whether one of them has a summary.
    is_used: bool,
    /// Where the last block's is in `payload`.
    last_block: usize,
    pages: Vec<Page>,
    pages_len: usize,
}

impl Building {
    fn new(summarizer: Box<dyn Summarizer>) -> Self {
        Self {
            summarizer,
            block: Extent::NEW,
            page: Extent::NEW,
            file: Extent::NEW,
            payload: Vec::new(),
            is_used: false,
            last_block: 0,
            pages: Vec::new(),
            pages_len: 0,
        }
    }

    /// What a part adds up to, if it has a summary; the part begins anew.
    fn end(&mut self, part: SummaryPart) -> Option<Vec<u8>> {
        let extent = match part {
            SummaryPart::Block => &mut self.block,
            SummaryPart::Page => &mut self.page,
            SummaryPart::File => &mut self.file,
        };
        let Extent { is_plain, bytes } = std::mem::replace(extent, Extent::NEW);
        if !is_plain {
            self.summarizer.discard(part);
            return None;
        }
        let mut out = Vec::new();
        self.summarizer.end(part, limit(part, bytes), &mut out).then_some(out)
    }

    fn end_block(&mut self, bytes: u64) {
        self.block.bytes = bytes;
        self.page.bytes += bytes;
        self.file.bytes += bytes;
        if !self.block.is_plain {
            self.spoil();
        }
        let summary = self.end(SummaryPart::Block).filter(|_| self.pages_len + self.payload.len() < MAX_PAGES_LEN);
        self.is_used |= summary.is_some();
        self.last_block = self.payload.len();
        put_summary(&mut self.payload, summary.as_deref());
    }

    /// Neither page nor file can have a summary.
    fn spoil(&mut self) {
        (self.page.is_plain, self.file.is_plain) = (false, false);
    }

    /// The last block's last key goes on.
    fn take_back_block(&mut self) {
        self.payload.truncate(self.last_block);
        put_summary(&mut self.payload, None);
        self.spoil();
    }

    fn end_page(&mut self) {
        let whole = self.end(SummaryPart::Page);
        let payload = std::mem::take(&mut self.payload);
        let payload = if std::mem::take(&mut self.is_used) { payload } else { Vec::new() };
        self.pages_len += payload.len() + whole.as_ref().map_or(0, Vec::len);
        self.pages.push(Page { payload, whole });
    }
}

fn put_summary(out: &mut Vec<u8>, summary: Option<&[u8]>) {
    put_varint(out, summary.map_or(0, |summary| summary.len() as u64 + 1));
    out.extend_from_slice(summary.unwrap_or_default());
}

/// The summaries of a file.
#[derive(Default)]
pub(crate) struct SummaryBuilder {
    /// Ids ascending.
    all: Vec<Building>,
    /// Blocks of the open page.
    blocks: usize,
    /// Whether no entry was added since a block ended.
    is_between: bool,
}

impl SummaryBuilder {
    pub(crate) fn new(mut summarizers: Vec<Box<dyn Summarizer>>) -> Self {
        summarizers.sort_by_key(|summarizer| summarizer.id());
        Self { all: summarizers.into_iter().map(Building::new).collect(), blocks: 0, is_between: true }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Bytes so far.
    pub(crate) fn estimated_len(&self) -> usize {
        self.all.iter().map(|building| building.pages_len + building.payload.len()).sum()
    }

    /// Takes the next entry; `same_key`: of the key of the one before it.
    pub(crate) fn add(&mut self, key: &[u8], same_key: bool, trailer: Trailer, value: &[u8]) {
        if self.is_between {
            self.begin_block(same_key);
        }
        let is_row = !same_key && trailer.operation() == Operation::Put;
        for building in &mut self.all {
            if !(is_row && building.block.is_plain && building.summarizer.add(key, value)) {
                building.block.is_plain = false;
            }
        }
    }

    /// `goes_on`: the last key of the block before has another version.
    fn begin_block(&mut self, goes_on: bool) {
        self.is_between = false;
        if goes_on {
            self.all.iter_mut().for_each(Building::take_back_block);
        }
        if self.blocks == PAGE_BLOCKS {
            self.end_page();
        }
    }

    /// A block of so many bytes on disk is complete.
    pub(crate) fn end_block(&mut self, bytes: u64) {
        self.all.iter_mut().for_each(|building| building.end_block(bytes));
        (self.blocks, self.is_between) = (self.blocks + 1, true);
    }

    fn end_page(&mut self) {
        self.all.iter_mut().for_each(Building::end_page);
        self.blocks = 0;
    }

    /// Hands the pages and then the directory to `put`, which says where they lie; the place of the directory.
    pub(crate) fn finish(mut self, mut put: impl FnMut(&[u8]) -> Result<BlockHandle>) -> Result<BlockHandle> {
        if self.blocks > 0 {
            self.end_page();
        }
        let mut directory = Vec::new();
        put_varint(&mut directory, self.all.len() as u64);
        for building in &mut self.all {
            put_varint(&mut directory, building.summarizer.id());
            let file = building.end(SummaryPart::File);
            put_summary(&mut directory, file.as_deref());
            for page in &building.pages {
                put_varint(&mut directory, put(&page.payload)?.len);
                put_summary(&mut directory, page.whole.as_deref());
            }
        }
        put(&directory)
    }
}
