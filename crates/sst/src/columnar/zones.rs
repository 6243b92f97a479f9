//! The zone map of a column: what the values of each block lie between.
//!
//! ```text
//! u32, u32   where the second and the third page begin
//! page       the smallest value of each block, of the column's type; null where there is none
//! page       the largest
//! page       nulls of each block, uint32
//! ```
//!
//! A block is a row of these pages: a scan that skips by them reads as many bytes as a column of a few values a block
//! has.

use std::sync::Arc;

use mycelium_base::coding::Reader;
use mycelium_base::{Error, Result};
use mycelium_encoding::page::{Cells, Page, PageTest, Test, Zone};
use mycelium_encoding::{ColumnState, ColumnType, Datum, DatumRef};
use self_cell::self_cell;

use super::statistics::StatisticsBuilder;

const HEADER_LEN: usize = 8;

fn bound(bound: Option<&Datum>) -> ColumnState<'_> {
    bound.map_or(ColumnState::Null, |datum| ColumnState::Value(datum.borrowed()))
}

/// Gathers the zones of the blocks of one column, and what is so of all of them.
#[derive(Debug)]
pub(crate) struct ZoneMapBuilder {
    pub(super) statistics: StatisticsBuilder,
    least: Cells,
    greatest: Cells,
    nulls: Cells,
}

impl ZoneMapBuilder {
    pub(crate) fn new(kind: &ColumnType) -> Self {
        let cells = || Cells::without_dictionary(kind);
        let (least, greatest) = (cells(), cells());
        Self { statistics: StatisticsBuilder::default(), least, greatest, nulls: Cells::new(&ColumnType::UInt32) }
    }

    pub(crate) fn push(&mut self, zone: &Zone) -> Result<()> {
        self.statistics.push(zone);
        self.least.push(bound(zone.least()))?;
        self.greatest.push(bound(zone.greatest()))?;
        self.nulls.push(ColumnState::Value(DatumRef::UInt32(zone.null_count())))
    }

    pub(crate) fn encode(self) -> Result<Vec<u8>> {
        let mut out = vec![0; HEADER_LEN];
        for (number, cells) in [self.least, self.greatest, self.nulls].into_iter().enumerate() {
            if let Some(at) = number.checked_sub(1).map(|place| 4 * place) {
                let begins = u32::try_from(out.len()).map_err(|_| too_long(out.len()))?;
                out[at..at + 4].copy_from_slice(&begins.to_le_bytes());
            }
            let blocks = cells.len();
            cells.finish().encode(0..blocks, &mut out)?;
        }
        Ok(out)
    }
}

/// What its header cannot say. Texts are cut, but for those of nothing but the greatest characters.
#[cold]
fn too_long(bytes: usize) -> Error {
    Error::invalid(format!("a zone map of {bytes} bytes or more: at most {} are possible", u32::MAX))
}

/// The zone map of one column of a file.
#[derive(Debug)]
pub struct ZoneMap<'a> {
    least: Page<'a>,
    greatest: Page<'a>,
    nulls: Page<'a>,
}

impl<'a> ZoneMap<'a> {
    /// Parses the payload, of a file with so many blocks.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where it is malformed.
    pub fn parse(payload: &'a [u8], blocks: usize, kind: &ColumnType) -> Result<Self> {
        let mut reader = Reader::new(payload);
        let (second, third) = (reader.u32()? as usize, reader.u32()? as usize);
        let part = |from: usize, to: usize| {
            payload.get(from..to).ok_or_else(|| Error::corruption("malformed zone map").expected(from, to))
        };
        Ok(Self {
            least: Page::parse(part(HEADER_LEN, second)?, blocks, kind, None)?,
            greatest: Page::parse(part(second, third)?, blocks, kind, None)?,
            nulls: Page::parse(part(third, payload.len())?, blocks, &ColumnType::UInt32, None)?,
        })
    }

    /// The smallest and the largest value of a block; `None` if it has none.
    pub fn bounds(&self, block: usize) -> Result<Option<(DatumRef<'a>, DatumRef<'a>)>> {
        Ok(match (self.least.cell(block)?, self.greatest.cell(block)?) {
            (ColumnState::Value(least), ColumnState::Value(greatest)) => Some((least, greatest)),
            _ => None,
        })
    }

    /// The nulls of a block.
    pub fn null_count(&self, block: usize) -> Result<u32> {
        match self.nulls.cell(block)? {
            ColumnState::Value(DatumRef::UInt32(count)) => Ok(count),
            _ => Err(Error::corruption("a zone map lacks a count of nulls")),
        }
    }

    /// Whether some row of a block may pass a test, which is `compiled` for the file: by integers, where it tests such.
    fn may_pass(&self, block: usize, test: &Test, compiled: &PageTest) -> Result<bool> {
        if let Some(may_pass) = compiled.may_pass_between(&self.least, &self.greatest, block) {
            return Ok(may_pass);
        }
        Ok(match test {
            Test::IsNull => self.null_count(block)? > 0,
            test => self.bounds(block)?.is_some_and(|bounds| test.may_pass_within(bounds)),
        })
    }
}

self_cell! {
    struct Parsed {
        owner: Arc<[u8]>,
        #[not_covariant]
        dependent: ZoneMap,
    }
    impl {Debug}
}

/// The zone map of a column of a file, parsed for many blocks. Owns what it needs.
#[derive(Debug)]
pub struct ColumnZones(Parsed);

impl ColumnZones {
    /// `framed` has the payload that `payload` takes out of it, of a file with so many blocks.
    pub(crate) fn parse(
        framed: Arc<[u8]>,
        payload: impl FnOnce(&[u8]) -> &[u8],
        blocks: usize,
        kind: &ColumnType,
    ) -> Result<Self> {
        Parsed::try_new(framed, |framed| ZoneMap::parse(payload(framed), blocks, kind)).map(Self)
    }

    /// Gives the zone map to `read`.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn read<T>(&self, read: impl FnOnce(&ZoneMap<'_>) -> Result<T>) -> Result<T> {
        self.0.with_dependent(|_, zones| read(zones))
    }

    /// Whether some row of a block may pass a test of the column, which
    /// [`SstFile::page_test`](crate::SstFile::page_test) has `compiled`.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where the zone of the block is malformed.
    pub fn may_pass(&self, block: usize, test: &Test, compiled: &PageTest) -> Result<bool> {
        self.0.with_dependent(|_, zones| zones.may_pass(block, test, compiled))
    }
}
