//! What the columns of a columnar file take: encodings, bits, dictionaries, zones. For who looks at a file, not for
//! reads.
//!
//! One pass over all blocks, past the cache: of every page its encoding and its bytes are counted, as they lie in
//! memory, thus before the compression of blocks; of every column its zones are joined.

use std::collections::BTreeMap;

use mycelium_base::{ReadCounters, Result};
use mycelium_encoding::page::{TextCoding, join_bounds};
use mycelium_encoding::{ColumnType, Datum};

use super::block::BlockHeader;
use super::directory::ColumnPart;
use super::zones::ZoneMap;
use crate::block::payload_in_memory;
use crate::compression::Decompressor;
use crate::reader::{SstFile, malformed_part, payload_of};

/// Bytes of a number of rows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PageBytes {
    /// Bytes of the pages.
    pub bytes: u64,
    /// Their rows.
    pub rows: u64,
}

impl PageBytes {
    fn add(&mut self, bytes: usize, rows: usize) {
        self.bytes += bytes as u64;
        self.rows += rows as u64;
    }

    /// Bits that a row takes, bitmaps and headers of pages included.
    pub fn bits_per_row(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.rows.max(1) as f64
    }
}

/// What the dictionary of a column takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DictionaryFigures {
    /// Its texts.
    pub values: u64,
    /// Its bytes, as it lies in memory.
    pub bytes: u64,
}

/// What a column takes.
#[derive(Clone, PartialEq, Debug)]
pub struct ColumnFigures {
    /// Its position in the schema.
    pub column: usize,
    /// Its type.
    pub kind: ColumnType,
    /// How many pages are encoded so, by the name of the encoding.
    pub encodings: BTreeMap<&'static str, u64>,
    /// Its pages.
    pub pages: PageBytes,
    /// Its dictionary, if it has one.
    pub dictionary: Option<DictionaryFigures>,
    /// Bytes of its zone map.
    pub zone_map_bytes: u64,
    /// Nulls, by its zones.
    pub nulls: u64,
    /// What its values lie between, by its zones; `None` if there is none. Long texts are cut.
    pub bounds: Option<(Datum, Datum)>,
    /// About how many different values there are; `None` of a file without statistics.
    pub distinct: Option<u64>,
}

/// What the columns of a file take.
#[derive(Clone, PartialEq, Debug)]
pub struct FileFigures {
    /// The keys.
    pub keys: PageBytes,
    /// Sequence numbers and operations.
    pub trailers: PageBytes,
    /// The columns, ascending.
    pub columns: Vec<ColumnFigures>,
}

impl SstFile {
    /// What the columns of this columnar file take; `None` for a file of rows. Reads all of it.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where it is damaged.
    pub fn column_figures(&self) -> Result<Option<FileFigures>> {
        let Ok(columns) = self.columns() else { return Ok(None) };
        let codings = self.codings(columns, columns.layout())?;
        let mut figures = FileFigures {
            keys: PageBytes::default(),
            trailers: PageBytes::default(),
            columns: columns.parts().iter().map(|part| self.zone_figures(part)).collect::<Result<_>>()?,
        };
        for (column, coding) in figures.columns.iter_mut().zip(&*codings) {
            column.dictionary = coding.as_ref().and_then(TextCoding::dictionary).map(|dictionary| DictionaryFigures {
                values: dictionary.len() as u64,
                bytes: dictionary.memory_usage() as u64,
            });
        }
        if let Some(statistics) = self.column_statistics()? {
            for (column, of_file) in figures.columns.iter_mut().zip(statistics.columns) {
                column.distinct = Some(of_file.distinct_estimate());
            }
        }
        let framed = self.load_index()?;
        let index = self.index_of(&framed);
        let mut decompressor = Decompressor::default();
        for block in 0..index.block_count() {
            let entry = index.entry(block);
            let inside = |e| malformed_part(self.path(), "data block", entry.offset, e);
            let bytes = self.read_block(entry, &mut decompressor, &mut ReadCounters::default())?;
            let end = payload_in_memory(&bytes).len();
            let header = BlockHeader::parse(&bytes, 0, end, columns).map_err(inside)?;
            let rows = header.rows();
            figures.keys.add(header.page_len(&bytes, 0), rows);
            figures.trailers.add(header.page_len(&bytes, 1), rows);
            for (place, column) in figures.columns.iter_mut().enumerate() {
                let coding = codings.get(place).and_then(Option::as_ref);
                let page = header.column(&bytes, place, &column.kind, coding).map_err(inside)?;
                *column.encodings.entry(page.encoding().name()).or_default() += 1;
                column.pages.add(header.page_len(&bytes, 2 + place), rows);
            }
        }
        Ok(Some(figures))
    }

    /// What the zone map of a column says, with the rest still to be counted.
    pub(super) fn zone_figures(&self, part: &ColumnPart) -> Result<ColumnFigures> {
        let framed = self.zone_map(part)?;
        let malformed = |e| malformed_part(self.path(), "zone map", part.zones.offset, e);
        let zones = ZoneMap::parse(payload_of(&framed), self.block_count(), &part.kind).map_err(malformed)?;
        let (mut nulls, mut bounds) = (0, None);
        for block in 0..self.block_count() {
            nulls += u64::from(zones.null_count(block).map_err(malformed)?);
            join_bounds(&mut bounds, zones.bounds(block).map_err(malformed)?);
        }
        Ok(ColumnFigures {
            column: part.column,
            kind: part.kind.clone(),
            encodings: BTreeMap::new(),
            pages: PageBytes::default(),
            dictionary: None,
            zone_map_bytes: part.zones.len,
            nulls,
            bounds,
            distinct: None,
        })
    }
}
