//! Blocks that are told by their zones instead of read: who asks for counts, minima and maxima needs no rows.
//!
//! 1. Where a stretch ends with its block, the blocks behind it may be told: those of a plain file (every entry is a
//!    whole row, and no key has two), of which the snapshot sees all, and which lie before the next key of every other
//!    run and of the rest, the next range delete, and the end of the scan.
//! 2. Of such a block the index says how many rows it has, and the zone maps how many nulls each column has and what
//!    its values lie between. It is not read. The first and the last block of each file are, as any other.
//!
//! Guarantee: the rows of the batches and those told are the rows of the scan, each once.

use mycelium_base::{Result, SequenceNumber};
use mycelium_encoding::page::join_bounds;
use mycelium_encoding::{ColumnType, Datum, Schema};
use mycelium_sst::{ColumnZones, IndexEntry, SstFile};

/// What is known of a column of the rows that were told.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct ToldColumn {
    /// Nulls.
    pub nulls: u64,
    /// The smallest and the largest value, as Arrow orders them; `None` if there is none.
    pub bounds: Option<(Datum, Datum)>,
}

/// Rows of a scan that were told by zones instead of given ([`crate::ScanOptions::tell_zones`]).
#[derive(Clone, PartialEq, Default, Debug)]
pub struct ToldRows {
    /// How many they are.
    pub rows: u64,
    /// The blocks that they are in, none of which was read.
    pub blocks: u64,
    /// Of each column of the projection, in its order.
    pub columns: Vec<ToldColumn>,
}

/// What a scan tells, and of which file it has the zones.
pub(super) struct Told {
    columns: Vec<usize>,
    pub(super) rows: ToldRows,
    file: Option<u64>,
    /// Of these columns; `None` if the file's blocks cannot be told.
    zones: Option<Vec<ColumnZones>>,
}

impl Told {
    /// For these columns; `None` if zones do not say all of one: those of the primary key have none, and long texts are
    /// cut.
    pub(super) fn new(schema: &Schema, columns: &[usize]) -> Option<Self> {
        let is_text = |column: usize| matches!(schema.columns()[column].ty, ColumnType::Utf8 | ColumnType::Binary);
        if columns.iter().any(|&column| schema.is_primary_key(column) || is_text(column)) {
            return None;
        }
        let rows = ToldRows { columns: vec![ToldColumn::default(); columns.len()], ..ToldRows::default() };
        Some(Self { columns: columns.to_vec(), rows, file: None, zones: None })
    }

    /// Tells a block, if that can be.
    pub(super) fn tell(
        &mut self,
        (file, block, entry): (&SstFile, usize, &IndexEntry),
        snapshot: SequenceNumber,
    ) -> Result<bool> {
        if self.file.replace(file.number()) != Some(file.number()) {
            self.zones = self.zones_of(file)?;
        }
        let Some(zones) = self.zones.as_ref().filter(|_| file.sees_all(entry, snapshot)) else { return Ok(false) };
        for (zones, column) in zones.iter().zip(&mut self.rows.columns) {
            column.nulls += u64::from(zones.read(|zones| {
                join_bounds(&mut column.bounds, zones.bounds(block)?);
                zones.null_count(block)
            })?);
        }
        self.rows.rows += u64::from(entry.entry_count);
        self.rows.blocks += 1;
        Ok(true)
    }

    fn zones_of(&self, file: &SstFile) -> Result<Option<Vec<ColumnZones>>> {
        if !file.zones_say_all(&self.columns)? {
            return Ok(None);
        }
        self.columns.iter().map(|&column| file.zones(column)).collect::<Result<_>>().map(Some)
    }
}
