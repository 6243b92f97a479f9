//! A block with the heads of its pages beside each other.
//!
//! A read of a whole row takes a cell of every page, and needs the page's head for it: where the cells begin, how wide
//! they are, from which base they count. In the block each head is a cache line of its own. So a block in its slot of
//! the cache is kept with its header and the heads of keys and columns, parsed, in one piece of memory, which the
//! processor is asked for at once.
//!
//! ```text
//! counts   of references to the piece and of heads
//! front    the block, its header, what finds a key
//! heads    24 bytes for each column of the group: what finds a cell; nothing where cells are no integers or may be absent
//! ```
//!
//! What has no head here is read as it lies in the block.

use std::sync::Arc;

use mycelium_base::Result;
use mycelium_base::prefetch::{CACHE_LINE, prefetch};
use mycelium_cache::OpenedBlock;
use mycelium_encoding::ColumnType;
use mycelium_encoding::page::IntegersHead;
use triomphe::ThinArc;

use super::block::BlockHeader;
use super::file::FileColumns;
use super::keys::KeyHead;

/// Bytes of the keys that are asked for with the block's header before them: what is before the keys themselves, if
/// they share no long prefix.
const KEYS_HEAD: usize = 40;

const HEAD_LEN: usize = size_of::<Option<IntegersHead>>();
const _: () = assert!(HEAD_LEN == 24, "as drawn above");

/// A block of a columnar file and the heads of its pages. Cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct HeadedBlock {
    piece: ThinArc<Front, Option<IntegersHead>>,
    /// Where the block begins in memory, if lookups read its own header; 0 if they do not. It is only asked for.
    begin: usize,
}

#[derive(Debug)]
struct Front {
    block: Arc<[u8]>,
    header: BlockHeader,
    keys: Option<KeyHead>,
}

impl HeadedBlock {
    /// Bytes of the piece for a group of so many columns.
    pub(crate) fn piece_len(columns: usize) -> usize {
        2 * size_of::<usize>() + size_of::<Front>() + columns * HEAD_LEN
    }

    /// Parses the heads of a block in memory. O(columns).
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where header or keys are malformed.
    pub(crate) fn open(block: Arc<[u8]>, columns: &FileColumns) -> Result<Self> {
        let header = BlockHeader::parse_in_memory(&block, columns)?;
        let keys = header.keys(&block)?.head(&block);
        let head = |position| header.head(&block, position, &columns.parts()[position].kind);
        let heads: Vec<_> = (0..columns.parts().len()).map(head).collect();
        let needs_block = keys.is_none() || heads.iter().any(Option::is_none);
        let begin = if needs_block { block.as_ptr().addr() } else { 0 };
        let piece = ThinArc::from_header_and_slice(Front { block, header, keys }, &heads);
        Ok(Self { piece, begin })
    }

    /// The block's bytes.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.piece.header.header.block
    }

    #[inline]
    pub(super) fn header(&self) -> &BlockHeader {
        &self.piece.header.header.header
    }

    #[inline]
    fn head(&self, position: usize) -> Option<&IntegersHead> {
        self.piece.slice.get(position)?.as_ref()
    }

    /// Asks the processor for the keys about the row where `key` would be if they were spread evenly, and for the heads
    /// of trailers and of columns at these positions, as far as they lie in the block.
    #[inline]
    pub(super) fn prefetch_keys(&self, key: &[u8], positions: impl Iterator<Item = usize>) -> Result<()> {
        let (bytes, header) = (self.bytes(), self.header());
        match &self.piece.header.header.keys {
            Some(keys) => keys.prefetch(bytes, header.rows(), key),
            None => header.keys(bytes)?.prefetch(key),
        }
        header.prefetch_heads(bytes, positions.filter(|&position| self.head(position).is_none()));
        Ok(())
    }

    /// The first row with the key, if one has it.
    #[inline]
    pub(super) fn row_of(&self, key: &[u8]) -> Result<Option<usize>> {
        let (bytes, header) = (self.bytes(), self.header());
        if let Some(keys) = &self.piece.header.header.keys {
            return Ok(keys.row_of(bytes, header.rows(), key));
        }
        let (row, is_there) = header.keys(bytes)?.find(key)?;
        Ok(is_there.then_some(row))
    }

    /// Asks the processor for a row's cells of the columns at these positions.
    #[inline]
    pub(super) fn prefetch_cells(&self, row: usize, positions: impl Iterator<Item = usize>) {
        let (bytes, header) = (self.bytes(), self.header());
        for position in positions {
            match self.head(position) {
                Some(head) => head.prefetch(bytes, row),
                None => header.prefetch_cell(bytes, row, position),
            }
        }
    }

    /// The cell of a row of the column of this type at a position, as packed rows have it in its slot, and anything
    /// behind it; `None` if the column has no head here.
    #[inline]
    pub(super) fn slot(&self, (position, row): (usize, usize), kind: &ColumnType) -> Option<u64> {
        self.head(position).map(|head| head.slot(self.bytes(), row, kind))
    }
}

impl OpenedBlock for HeadedBlock {
    #[inline]
    fn block(&self) -> &Arc<[u8]> {
        &self.piece.header.header.block
    }

    fn bytes_beside(&self) -> u64 {
        Self::piece_len(self.piece.slice.len()) as u64
    }

    #[inline]
    fn prefetch(&self, len: usize) {
        let piece = self.piece.heap_ptr().cast::<u8>();
        (0..len).step_by(CACHE_LINE).for_each(|at| prefetch(piece.wrapping_add(at)));
        if self.begin != 0 {
            let begin = std::ptr::without_provenance::<u8>(self.begin);
            let columns = (len - Self::piece_len(0)) / HEAD_LEN;
            let len = BlockHeader::len(columns) + KEYS_HEAD;
            (0..len).step_by(CACHE_LINE).for_each(|at| prefetch(begin.wrapping_add(at)));
        }
    }
}
