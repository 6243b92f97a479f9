//! The statistics of a columnar file: what is so of a column's values in all blocks, for who plans a query, and whether
//! a zone map alone says what rows a block has.
//!
//! ```text
//! u8          1: every entry is a whole row, and no key has two; else 0
//! per column of the file's group, ascending:
//!   u32 x 4   where each of these pages ends, counted from the first
//!   page      the smallest value, of the column's type; null where there is none
//!   page      the largest
//!   page      nulls, entries that say nothing of the column, and rows whose values the sketch has, uint64
//!   page      the registers of a sketch of its different values, uint8 (see `DistinctSketch`)
//! ```
//!
//! Long texts are cut, as in zone maps. Files of older versions have no statistics, and who does not know of them loses
//! nothing: a property says where they lie that may be passed over.

use mycelium_base::coding::Reader;
use mycelium_base::{Error, Result};
use mycelium_encoding::page::{Cells, DistinctSketch, Page, REGISTERS, Zone};
use mycelium_encoding::{ColumnState, ColumnType, Datum, DatumRef};

use super::directory::ColumnPart;

const PAGES: usize = 4;
/// Which of them has the counts.
const COUNTS: usize = 2;

/// What is so of a column in all blocks of a file.
#[derive(Clone, PartialEq, Debug)]
pub struct ColumnStatistics {
    /// Its position in the schema.
    pub column: usize,
    /// Nulls.
    pub nulls: u64,
    /// Entries that say nothing of it: deletes, and patches of others.
    pub absent: u64,
    /// What its values lie between; `None` if there is none. Long texts are cut.
    pub bounds: Option<(Datum, Datum)>,
    /// Entries that have a value.
    pub values: u64,
    /// Which values they are, about.
    pub distinct: DistinctSketch,
}

impl ColumnStatistics {
    /// About how many different values there are.
    pub fn distinct_estimate(&self) -> u64 {
        self.distinct.estimate(self.values)
    }
}

/// The statistics of a columnar file.
#[derive(Clone, PartialEq, Debug)]
pub struct FileStatistics {
    /// Whether every entry is a whole row, and no key has two.
    pub is_plain: bool,
    /// Of its columns, ascending.
    pub columns: Vec<ColumnStatistics>,
}

/// Gathers the statistics of one column.
#[derive(Debug, Default)]
pub(crate) struct StatisticsBuilder {
    nulls: u64,
    absent: u64,
    bounds: Zone,
    pub(super) distinct: DistinctSketch,
}

fn bound(bound: Option<&Datum>) -> ColumnState<'_> {
    bound.map_or(ColumnState::Null, |datum| ColumnState::Value(datum.borrowed()))
}

impl StatisticsBuilder {
    /// A block has this zone.
    pub(super) fn push(&mut self, zone: &Zone) {
        self.nulls += u64::from(zone.null_count());
        self.absent += u64::from(zone.absent_count());
        self.bounds.join(zone);
    }

    /// Appends what is known of a column of this type.
    pub(super) fn encode(&self, kind: &ColumnType, out: &mut Vec<u8>) -> Result<()> {
        let ends_at = out.len();
        out.resize(ends_at + 4 * PAGES, 0);
        let first = out.len();
        let counts =
            [self.nulls, self.absent, self.distinct.noted()].map(|count| ColumnState::Value(DatumRef::UInt64(count)));
        let registers = self.distinct.registers().map(|register| ColumnState::Value(DatumRef::UInt8(register)));
        let pages: [(&ColumnType, &[ColumnState<'_>]); PAGES] = [
            (kind, &[bound(self.bounds.least())]),
            (kind, &[bound(self.bounds.greatest())]),
            (&ColumnType::UInt64, &counts),
            (&ColumnType::UInt8, &registers),
        ];
        for (number, (kind, values)) in pages.into_iter().enumerate() {
            let mut cells = Cells::without_dictionary(kind);
            values.iter().try_for_each(|&value| cells.push(value))?;
            cells.finish().encode(0..values.len(), out)?;
            let end = u32::try_from(out.len() - first).map_err(|_| Error::invalid("statistics of 4 GiB"))?;
            out[ends_at + 4 * number..][..4].copy_from_slice(&end.to_le_bytes());
        }
        Ok(())
    }
}

impl FileStatistics {
    /// Parses the payload, of a file with these columns and so many entries.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where it is malformed.
    pub fn parse(payload: &[u8], parts: &[ColumnPart], entries: u64) -> Result<Self> {
        let mut reader = Reader::new(payload);
        let is_plain = plainness(&mut reader)?;
        let mut columns = Vec::with_capacity(parts.len());
        for part in parts {
            columns.push(parse_column(take_pages(&mut reader)?, part, entries)?);
        }
        reader.finish()?;
        Ok(Self { is_plain, columns })
    }
}

/// Whether the zones of these columns of the schema say all of a block's rows: every entry of the file is a whole row,
/// no key has two, and each row says something of each of them. Nothing else of the payload is decoded.
pub(super) fn zones_say_all(payload: &[u8], parts: &[ColumnPart], columns: &[usize]) -> Result<bool> {
    let mut reader = Reader::new(payload);
    if !plainness(&mut reader)? {
        return Ok(false);
    }
    let mut said = 0;
    for part in parts {
        let pages = take_pages(&mut reader)?;
        if columns.contains(&part.column) {
            let [_, absent, _] = counts(pages[COUNTS], part.column)?;
            said += columns.iter().filter(|&&column| column == part.column && absent == 0).count();
        }
    }
    Ok(said == columns.len())
}

fn plainness(reader: &mut Reader<'_>) -> Result<bool> {
    match reader.u8()? {
        flag @ (0 | 1) => Ok(flag == 1),
        flag => Err(Error::corruption("malformed statistics").expected("0 or 1", flag)),
    }
}

/// The pages of the next column.
fn take_pages<'p>(reader: &mut Reader<'p>) -> Result<[&'p [u8]; PAGES]> {
    let (mut ends, mut pages) = ([0; PAGES], [&[][..]; PAGES]);
    for end in &mut ends {
        *end = reader.u32()? as usize;
    }
    let mut begin: usize = 0;
    for (page, end) in pages.iter_mut().zip(ends) {
        let malformed = || Error::corruption("malformed statistics").expected(format_args!("{begin} or more"), end);
        *page = reader.take(end.checked_sub(begin).ok_or_else(malformed)?)?;
        begin = end;
    }
    Ok(pages)
}

/// The values of a page; `None` where there is none.
fn values_of(page: &[u8], rows: usize, kind: &ColumnType) -> Result<Vec<Option<Datum>>> {
    let page = Page::parse(page, rows, kind, None)?;
    let datum = |row| match page.cell(row)? {
        ColumnState::Value(datum) => Ok(Some(datum.to_datum())),
        ColumnState::Absent | ColumnState::Null => Ok(None),
    };
    (0..rows).map(datum).collect()
}

fn malformed_of(column: usize) -> Error {
    Error::corruption(format!("malformed statistics of column {column}"))
}

/// Nulls, entries that say nothing, and rows whose values the sketch has.
fn counts(page: &[u8], column: usize) -> Result<[u64; 3]> {
    match values_of(page, 3, &ColumnType::UInt64)?[..] {
        [Some(Datum::UInt64(nulls)), Some(Datum::UInt64(absent)), Some(Datum::UInt64(noted))] => {
            Ok([nulls, absent, noted])
        }
        _ => Err(malformed_of(column)),
    }
}

fn parse_column(pages: [&[u8]; PAGES], part: &ColumnPart, entries: u64) -> Result<ColumnStatistics> {
    let malformed = || malformed_of(part.column);
    let bound = |page: &[u8]| Ok::<_, Error>(values_of(page, 1, &part.kind)?.pop().flatten());
    let (least, greatest) = (bound(pages[0])?, bound(pages[1])?);
    let [nulls, absent, noted] = counts(pages[COUNTS], part.column)?;
    let values = entries.checked_sub(nulls).and_then(|some| some.checked_sub(absent)).ok_or_else(malformed)?;
    let mut of_sketch = [0; REGISTERS];
    for (register, found) in of_sketch.iter_mut().zip(values_of(pages[3], REGISTERS, &ColumnType::UInt8)?) {
        *register = if let Some(Datum::UInt8(found)) = found { found } else { return Err(malformed()) };
    }
    Ok(ColumnStatistics {
        column: part.column,
        nulls,
        absent,
        values,
        bounds: least.zip(greatest),
        distinct: DistinctSketch::of_registers(of_sketch, noted).ok_or_else(malformed)?,
    })
}
