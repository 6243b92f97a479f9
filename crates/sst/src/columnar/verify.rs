//! Checks the cells of a columnar block against the zone maps of the file's columns.

use std::cmp::Ordering;
use std::sync::Arc;

use mycelium_base::{Error, Result};
use mycelium_encoding::page::{Page, TextCoding, compare};
use mycelium_encoding::{ColumnState, DatumRef};

use super::block::ColumnBlock;
use super::file::FileColumns;
use super::statistics::FileStatistics;
use super::zones::ZoneMap;
use crate::reader::{SstFile, malformed_part, payload_of};

/// What the cells of all blocks of a columnar file are checked against, read once.
#[derive(Debug)]
pub(crate) struct CellCheck {
    codings: Arc<[Option<TextCoding>]>,
    /// By column, framed.
    zone_maps: Vec<Arc<[u8]>>,
    statistics: Option<FileStatistics>,
    /// By column: entries of the blocks so far that say nothing of it.
    absent: Vec<u64>,
}

impl CellCheck {
    /// Whether the file's statistics say that every entry is a whole row, and no key has two.
    pub(crate) fn says_plain(&self) -> bool {
        self.statistics.as_ref().is_some_and(|statistics| statistics.is_plain)
    }

    /// A column of which the file's statistics say another number of entries that say nothing of it than its blocks,
    /// all of which were checked.
    pub(crate) fn miscounted(&self) -> Option<usize> {
        let of_file = self.statistics.iter().flat_map(|statistics| &statistics.columns);
        of_file.zip(&self.absent).find(|(of_file, found)| of_file.absent != **found).map(|(of_file, _)| of_file.column)
    }
}

impl SstFile {
    /// What its cells are checked against; nothing of a file of rows.
    pub(crate) fn cell_check(&self) -> Result<Option<CellCheck>> {
        let Some(columns) = &self.columns else { return Ok(None) };
        let codings = self.codings(columns, columns.layout())?;
        let zone_maps = columns.parts().iter().map(|part| self.zone_map(part)).collect::<Result<_>>()?;
        let absent = vec![0; columns.parts().len()];
        Ok(Some(CellCheck { codings, zone_maps, statistics: self.verify_statistics(columns)?, absent }))
    }

    /// Checks the statistics against the zone maps, which the cells are checked against.
    fn verify_statistics(&self, columns: &FileColumns) -> Result<Option<FileStatistics>> {
        let Some(statistics) = self.column_statistics()? else { return Ok(None) };
        for (part, of_file) in columns.parts().iter().zip(&statistics.columns) {
            let of_blocks = self.zone_figures(part)?;
            if (of_file.nulls, &of_file.bounds) != (of_blocks.nulls, &of_blocks.bounds) {
                let error = Error::corruption(format!("the statistics of column {} are not its zones'", part.column));
                return Err(error.at(self.properties().statistics.offset).in_file(self.path()));
            }
        }
        Ok(Some(statistics))
    }

    /// Checks every cell of block number `number`, `bytes[..end]`, against the zone map of its column.
    pub(crate) fn verify_cells(
        &self,
        against: &mut CellCheck,
        number: usize,
        bytes: Arc<[u8]>,
        end: usize,
    ) -> Result<()> {
        let columns = self.columns()?;
        let all: Vec<usize> = (0..columns.parts().len()).collect();
        let block = ColumnBlock::load(columns, against.codings.clone(), (bytes, 0, end), (&all, None))?;
        for (place, part) in columns.parts().iter().enumerate() {
            let framed = &against.zone_maps[place];
            let zones = ZoneMap::parse(payload_of(framed), self.block_count(), &part.kind)
                .map_err(|e| malformed_part(self.path(), "zone map", part.zones.offset, e))?;
            let (bounds, nulls) = (zones.bounds(number)?, zones.null_count(number)?);
            let absent = block.read(|pages| absent_within(&pages[place], bounds, nulls))?;
            against.absent[place] += absent.unwrap_or_default();
            if absent.is_none() {
                let error = Error::corruption(format!("a value of column {} outside its zone", part.column));
                return Err(error.at(part.zones.offset).in_file(self.path()));
            }
        }
        Ok(())
    }
}

/// How many rows say nothing, of a page whose values lie between these bounds, and of which so many are null; `None` of
/// any other.
fn absent_within(page: &Page<'_>, bounds: Option<(DatumRef<'_>, DatumRef<'_>)>, nulls: u32) -> Result<Option<u64>> {
    let (mut absent, mut found, mut text) = (0, 0, Vec::new());
    for row in 0..page.rows() {
        match (page.expanded_cell(row, &mut text)?, bounds) {
            (ColumnState::Absent, _) => absent += 1,
            (ColumnState::Null, _) => found += 1,
            (ColumnState::Value(value), Some((least, greatest))) => {
                let above = compare(least, value).is_some_and(Ordering::is_le);
                if !above || !compare(value, greatest).is_some_and(Ordering::is_le) {
                    return Ok(None);
                }
            }
            (ColumnState::Value(_), None) => return Ok(None),
        }
    }
    Ok((found == nulls).then_some(absent))
}
