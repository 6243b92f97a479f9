//! Summaries: what the rows of a file's blocks add up to, for whoever reads many rows to get few numbers.
//!
//! A *summarizer* adds up rows; what it makes of them is opaque here, and named by an id. Of each block, of each page
//! of 64 blocks, and of the whole file one summary is kept, if
//!
//! 1. every entry in it is a `Put`, and no key in it has another version in the file; so that the summary is that of
//!    the rows, as long as nothing else lies over or under them;
//! 2. it is small beside what it sums up: an eighth of a block, a 32nd of a page's blocks, a 64th of the file, at least
//!    128, 512 and 4,096 bytes; 256 KiB at most.
//!
//! They lie before the properties of a columnar file, or of a file of rows of format version 2, and of no other:
//!
//! ```text
//! page ...           of the first summarizer, then of the next; a page without any summary is left out
//! directory
//!
//! page               per block: summary
//! directory          varint   count
//!                    per summarizer, ids ascending:
//!                      varint   id
//!                      summary  of the file
//!                      per page: varint framed length (0: left out), summary of its blocks together
//! summary            varint   0: none; else one more than the number of bytes that follow
//! ```
//!
//! Pages and directory are framed as every block is, and go through the block cache.

mod builder;
mod reader;

use mycelium_base::coding::Reader;
use mycelium_base::{Error, Result};

use crate::footer::BlockHandle;

pub(crate) use builder::SummaryBuilder;
pub use reader::FileSummary;

/// Blocks of a page.
pub const PAGE_BLOCKS: usize = 64;

/// Which rows a summary is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SummaryPart {
    /// Those of a block.
    Block,
    /// Those of the blocks of a page.
    Page,
    /// Those of all pages.
    File,
}

/// Adds up the rows of a file while it is written.
pub trait Summarizer: Send {
    /// Names what it makes. A file has one summarizer of an id.
    fn id(&self) -> u64;
    /// Takes the next row of the block. `false`: it cannot be summed up, nor can a part that it is in.
    fn add(&mut self, key: &[u8], value: &[u8]) -> bool;
    /// The part ends; its rows count for the larger parts. Appends what they add up to and returns `true`, unless it
    /// takes more than `limit` bytes. Blocks end first, then their page, then the file.
    fn end(&mut self, part: SummaryPart, limit: usize, out: &mut Vec<u8>) -> bool;
    /// The part ends without a summary; its rows count for no larger part, which will have none either.
    fn discard(&mut self, part: SummaryPart);
}

/// Where a summary lies in a payload; `None` if there is none.
type Place = Option<(usize, usize)>;

/// A page, and the summary of its blocks together in the directory's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SummaryPage {
    /// Where the page lies in the file; length 0 if none of its blocks has a summary.
    pub handle: BlockHandle,
    whole: Place,
}

/// What the directory says of one summarizer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SummaryEntry {
    /// The summarizer's id.
    pub id: u64,
    file: Place,
    /// Its pages in order.
    pub pages: Vec<SummaryPage>,
}

fn read_place(reader: &mut Reader<'_>) -> Result<Place> {
    let Some(len) = reader.length(reader.rest().len())?.checked_sub(1) else { return Ok(None) };
    let start = reader.position();
    reader.take(len)?;
    Ok(Some((start, start + len)))
}

fn bytes_at(payload: &[u8], place: Place) -> Option<&[u8]> {
    place.and_then(|(start, end)| payload.get(start..end))
}

/// Parses a directory's payload: of a file with so many data blocks, whose pages lie in `[start, end)`.
///
/// # Errors
/// [`ErrorKind::Corruption`](mycelium_base::ErrorKind) with the offset in the payload.
pub fn parse_summary_directory(
    payload: &[u8],
    block_count: usize,
    (start, end): (u64, u64),
) -> Result<Vec<SummaryEntry>> {
    let mut reader = Reader::new(payload);
    let count = reader.length(payload.len())?;
    let mut entries: Vec<SummaryEntry> = Vec::new();
    let mut offset = start;
    for _ in 0..count {
        let at = reader.position() as u64;
        let id = reader.varint()?;
        if entries.last().is_some_and(|last| last.id >= id) {
            return Err(Error::corruption("summaries out of order").at(at));
        }
        let file = read_place(&mut reader)?;
        let mut pages = Vec::new();
        for _ in 0..block_count.div_ceil(PAGE_BLOCKS) {
            let at = reader.position() as u64;
            let handle = BlockHandle { offset, len: reader.varint()? };
            offset = match offset.checked_add(handle.len) {
                Some(after) if after <= end => after,
                _ => return Err(Error::corruption("a page of summaries exceeds its place").at(at)),
            };
            pages.push(SummaryPage { handle, whole: read_place(&mut reader)? });
        }
        entries.push(SummaryEntry { id, file, pages });
    }
    reader.finish()?;
    if offset != end {
        return Err(Error::corruption("the pages of summaries leave a gap").expected(end, offset));
    }
    Ok(entries)
}

/// Parses a page's payload: the place of each of its `blocks` summaries.
///
/// # Errors
/// As [`parse_summary_directory`].
pub fn parse_summary_page(payload: &[u8], blocks: usize) -> Result<Vec<Option<(usize, usize)>>> {
    let mut reader = Reader::new(payload);
    let places = (0..blocks).map(|_| read_place(&mut reader)).collect::<Result<Vec<_>>>()?;
    reader.finish()?;
    Ok(places)
}
