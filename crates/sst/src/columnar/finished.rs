//! The complete columns of a file: its blocks are put together one after the other (see `block` for the form).

use std::ops::Range;

use mycelium_base::Result;
use mycelium_encoding::ColumnType;
use mycelium_encoding::page::{FinishedCells, TextCoding};

use super::block::{ALL_PUTS, HEADER_LEN, MARK, UNIQUE_KEYS};
use super::zones::ZoneMapBuilder;
use crate::block::BlockFacts;
use crate::footer::ColumnarFormat;

/// The pages of a block that did not wait for the file.
#[derive(Debug)]
pub(super) struct EncodedBlock {
    facts: BlockFacts,
    /// Its rows among those of the file.
    rows: Range<usize>,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    /// Keys, trailers, columns that did not wait.
    pages: Vec<u8>,
    page_ends: Vec<usize>,
    /// Whether its keys have a gap.
    pub(super) has_gap: bool,
}

impl EncodedBlock {
    pub(super) fn new(facts: BlockFacts, rows: Range<usize>, first_key: &[u8], last_key: &[u8]) -> Self {
        let (first_key, last_key) = (first_key.to_vec(), last_key.to_vec());
        Self { facts, rows, first_key, last_key, pages: Vec::new(), page_ends: Vec::new(), has_gap: false }
    }

    /// Adds the page that `encode` appends, and gives what it says.
    pub(super) fn put_page<T>(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> Result<T>) -> Result<T> {
        let said = encode(&mut self.pages)?;
        self.page_ends.push(self.pages.len());
        Ok(said)
    }

    /// Gives back what its pages do not need: all of a file's blocks wait for its end.
    pub(super) fn trim(&mut self) {
        self.pages.shrink_to_fit();
    }

    /// Bytes in memory.
    pub(super) fn memory_usage(&self) -> usize {
        size_of::<Self>()
            + self.pages.capacity()
            + self.first_key.len()
            + self.last_key.len()
            + size_of::<usize>() * self.page_ends.capacity()
    }

    /// The pages, in order.
    fn pages(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.page_ends.iter().copied());
        starts.zip(&self.page_ends).map(|(start, &end)| &self.pages[start..end])
    }
}

/// The complete entries of a file.
#[derive(Debug)]
pub(crate) struct FinishedColumns {
    /// By column: its cells, if they waited for the file.
    waiting: Vec<Option<FinishedCells>>,
    zones: Vec<ZoneMapBuilder>,
    blocks: Vec<EncodedBlock>,
}

impl FinishedColumns {
    pub(super) fn new(
        waiting: Vec<Option<FinishedCells>>,
        zones: Vec<ZoneMapBuilder>,
        blocks: Vec<EncodedBlock>,
    ) -> Self {
        Self { waiting, zones, blocks }
    }

    pub(crate) fn block_count(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) fn first_key(&self, block: usize) -> &[u8] {
        &self.blocks[block].first_key
    }

    pub(crate) fn last_key(&self, block: usize) -> &[u8] {
        &self.blocks[block].last_key
    }

    /// Appends a block. To be called once for each, in order.
    pub(crate) fn encode(&mut self, block: usize, out: &mut Vec<u8>) -> Result<BlockFacts> {
        let block = &mut self.blocks[block];
        let start = out.len();
        put_header(&block.facts, self.waiting.len(), out);
        let mut place = start + HEADER_LEN;
        let mut begin_page = |out: &mut Vec<u8>| {
            let at = (out.len() - start) as u32;
            out[place..place + 4].copy_from_slice(&at.to_le_bytes());
            place += 4;
        };
        let mut encoded = block.pages();
        for page in encoded.by_ref().take(KEYS_AND_TRAILERS) {
            begin_page(out);
            out.extend_from_slice(page);
        }
        for (waiting, zones) in self.waiting.iter().zip(&mut self.zones) {
            begin_page(out);
            match waiting {
                Some(cells) => zones.push(&cells.encode(block.rows.clone(), out)?)?,
                None => out.extend_from_slice(encoded.next().unwrap_or_default()),
            }
        }
        begin_page(out);
        drop(encoded);
        // It is not needed any more.
        block.pages = Vec::new();
        Ok(block.facts)
    }

    /// What is newest of what the file has.
    pub(crate) fn format(&self) -> ColumnarFormat {
        let mut codings = self.waiting.iter().flatten().filter_map(FinishedCells::coding);
        match codings.any(|coding| matches!(coding, TextCoding::SymbolTable(_))) {
            _ if self.blocks.iter().any(|block| block.has_gap) => ColumnarFormat::KeysWithGaps,
            true => ColumnarFormat::SymbolTables,
            false => ColumnarFormat::Plain,
        }
    }

    /// The statistics of columns of these types. To be called once all blocks are encoded.
    pub(crate) fn statistics<'t>(&mut self, kinds: impl Iterator<Item = &'t ColumnType>) -> Result<Vec<u8>> {
        let mut out = vec![u8::from(self.is_plain())];
        for ((waiting, zones), kind) in self.waiting.iter().zip(&mut self.zones).zip(kinds) {
            if let Some(cells) = waiting {
                cells.note_distinct(&mut zones.statistics.distinct);
            }
            zones.statistics.encode(kind, &mut out)?;
        }
        Ok(out)
    }

    /// Whether every entry is a whole row, and no key has two.
    fn is_plain(&self) -> bool {
        self.blocks.iter().all(|block| block.facts.all_puts && block.facts.unique_keys)
            && self.blocks.windows(2).all(|pair| pair[0].last_key != pair[1].first_key)
    }

    /// The coding of each column's texts, and its zone map encoded.
    pub(crate) fn into_parts(self) -> Result<Vec<(Option<TextCoding>, Vec<u8>)>> {
        let columns = self.waiting.into_iter().zip(self.zones);
        let coding_of = |cells: Option<FinishedCells>| cells.and_then(|cells| cells.coding());
        columns.map(|(cells, zones)| Ok((coding_of(cells), zones.encode()?))).collect()
    }
}

/// The pages before those of the columns.
const KEYS_AND_TRAILERS: usize = 2;

/// The header, and room for the places of the pages.
fn put_header(facts: &BlockFacts, columns: usize, out: &mut Vec<u8>) {
    let unique_keys = if facts.unique_keys { UNIQUE_KEYS } else { 0 };
    let all_puts = if facts.all_puts { ALL_PUTS } else { 0 };
    out.extend_from_slice(&[MARK, unique_keys | all_puts]);
    out.extend_from_slice(&(columns as u16).to_le_bytes());
    out.extend_from_slice(&facts.rows.to_le_bytes());
    out.extend_from_slice(&facts.min_sequence.to_le_bytes());
    out.extend_from_slice(&facts.max_sequence.to_le_bytes());
    out.resize(out.len() + 4 * (columns + KEYS_AND_TRAILERS + 1), 0);
}
