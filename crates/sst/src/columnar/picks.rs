//! Rows of other files' blocks that go into a columnar file as they are: step 2 of algorithm 1 (LSM-OPD §4.2.1).
//!
//! 1. [`Picks::push`] notes a row of a block; the block is kept until its rows are gathered.
//! 2. [`Picks::gather`] takes one column's page of each block, unpacks it from the first picked row to the last, and
//!    appends the cells in the order in which they were picked.
//!
//! Memory: as many blocks as [`MOST_ROWS`] picks come from, or as have [`MOST_BYTES`] together, and one column of their
//! rows unpacked.

use std::ops::Range;
use std::sync::Arc;

use mycelium_base::{Error, Result};
use mycelium_encoding::PackedShape;
use mycelium_encoding::page::{Cells, Unpacked};

use super::block::ColumnBlock;

/// Rows that are gathered at once, at most.
const MOST_ROWS: usize = 1024;
/// Rows that are unpacked for them, at most about: of blocks of which few rows are picked others are unpacked in vain.
const MOST_UNPACKED: usize = 4 * MOST_ROWS;
/// Bytes of the blocks that are kept for them, at most, but for the last one: of large values each block has few rows.
const MOST_BYTES: usize = 8 << 20;
/// The first rows of a file are gathered early, so that its size is known.
const FIRST_ROWS: usize = 64;

/// A row of a block, whose cells are to be taken as they are.
pub type Pick<'b> = (&'b Arc<ColumnBlock>, usize);

/// Rows that are picked and not gathered yet.
#[derive(Default, Debug)]
pub(super) struct Picks {
    blocks: Vec<PickedBlock>,
    /// Of each pick its block, by its place in `blocks`, and its row.
    rows: Vec<(u32, u32)>,
    /// Rows between the first and the last pick of each block.
    spanned: usize,
    /// Bytes of the blocks.
    held: usize,
    /// Of each pick, where its cells are once they are unpacked.
    places: Vec<u32>,
    shapes: Vec<PackedShape>,
    unpacked: Unpacked,
}

/// A block of which rows are picked.
#[derive(Debug)]
struct PickedBlock {
    block: Arc<ColumnBlock>,
    /// From the first picked row to the last.
    span: Range<usize>,
}

impl Picks {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether these should be gathered, of a file with so many rows gathered already.
    pub(super) fn are_due(&self, gathered: usize) -> bool {
        let are_many = self.rows.len() >= (FIRST_ROWS + gathered).min(MOST_ROWS);
        are_many || self.spanned >= MOST_UNPACKED || self.held >= MOST_BYTES
    }

    /// Notes a row; those of one block must come in ascending order.
    #[inline]
    pub(super) fn push(&mut self, (block, row): Pick<'_>) {
        let latest = self.rows.last().map_or(0, |&(latest, _)| latest as usize);
        let is_it = |picked: &PickedBlock| Arc::ptr_eq(&picked.block, block);
        let number = match self.blocks.get(latest).is_some_and(is_it) {
            true => latest,
            false => self.blocks.iter().rposition(is_it).unwrap_or_else(|| {
                self.held += block.byte_len();
                self.blocks.push(PickedBlock { block: block.clone(), span: row..row });
                self.blocks.len() - 1
            }),
        };
        let span = &mut self.blocks[number].span;
        debug_assert!(span.end <= row, "rows of a block are picked in order");
        self.spanned += row + 1 - span.end;
        span.end = row + 1;
        self.rows.push((number as u32, row as u32));
    }

    /// Says where the cells of each pick will be, once for all columns.
    pub(super) fn place(&mut self) {
        let mut before = 0;
        let starts: Vec<usize> = self
            .blocks
            .iter()
            .map(|PickedBlock { span, .. }| {
                let start = before;
                before += span.len();
                start
            })
            .collect();
        let place = |&(number, row): &(u32, u32)| {
            let number = number as usize;
            (starts[number] + row as usize - self.blocks[number].span.start) as u32
        };
        self.places.clear();
        self.places.extend(self.rows.iter().map(place));
        self.shapes.clear();
        self.shapes.resize(self.rows.len(), PackedShape::default());
    }

    /// Appends the picked cells of one column, the page of which has this number among those of each block.
    pub(super) fn gather(&mut self, page: usize, cells: &mut Cells) -> Result<()> {
        self.unpacked.clear();
        for PickedBlock { block, span } in &self.blocks {
            block.read(|pages| {
                let page = pages.get(page).ok_or_else(|| Error::invalid("a block of other columns"))?;
                cells.unpack(page, span.clone(), &mut self.unpacked)
            })?;
        }
        cells.pick(&self.unpacked, &self.places, &mut self.shapes)
    }

    /// What each row takes packed, when all columns are gathered.
    pub(super) fn shapes(&self) -> &[PackedShape] {
        &self.shapes
    }

    /// Forgets all picks and lets their blocks go.
    pub(super) fn clear(&mut self) {
        self.blocks.clear();
        self.rows.clear();
        (self.spanned, self.held) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use mycelium_base::{ColumnSet, Cursor, Group, GroupFormat, Operation, Trailer};
    use mycelium_cache::BlockCache;
    use mycelium_encoding::{DatumRef, PackedLayout, Schema, key};
    use mycelium_vfs::{AccessPattern, Disk, MemoryDisk};

    use super::*;
    use crate::columnar::EncodedCursor;
    use crate::cursor::CursorOptions;
    use crate::reader::{OpenOptions, SstFile};
    use crate::writer::{SstWriter, SstWriterOptions};

    /// Their number alone said when rows were to be gathered: of values of 256 MiB, 64 were held at once.
    #[test]
    fn rows_of_large_values_are_gathered_by_their_bytes() {
        const LEN: usize = 1 << 20;
        let schema = Arc::new(Schema::parse("id int64 not null, value binary, primary key (id)").unwrap());
        let group = Arc::new(Group::new(ColumnSet::from_iter([1]), GroupFormat::Columnar));
        let layout = Arc::new(PackedLayout::of(schema.clone(), &group.columns));
        let (disk, path) = (MemoryDisk::new(), Path::new("000001.sst"));
        let options = SstWriterOptions { file_number: 1, ..SstWriterOptions::default() };
        let writer = SstWriter::new(disk.create(path).unwrap(), options).unwrap();
        let mut writer = writer.with_columns(group, schema.clone());
        for id in 0..20_i64 {
            let byte = |at: usize| ((at as u64 + ((id as u64) << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
            let (value, mut key, mut row) = ((0..LEN).map(byte).collect::<Vec<u8>>(), Vec::new(), Vec::new());
            key::encode_key(&schema, &[DatumRef::Int64(id)], &mut key).unwrap();
            layout.encode_row(&[DatumRef::Int64(id), DatumRef::Binary(&value)], &mut row).unwrap();
            writer.add(&key, Trailer::new(1, Operation::Put), &row).unwrap();
        }
        writer.finish().unwrap();
        let (file, cache) = (disk.open(path, AccessPattern::Random).unwrap(), Arc::new(BlockCache::new(1 << 20)));
        let file = SstFile::open(file, path, 1, cache, OpenOptions::default()).unwrap();
        let mut cursor = EncodedCursor::new([file], CursorOptions::default(), layout);
        let mut picks = Picks::default();
        cursor.seek_to_first().unwrap();
        while let Some(pick) = cursor.pick().filter(|_| !picks.are_due(MOST_ROWS)) {
            picks.push(pick);
            cursor.next().unwrap();
        }
        assert!(picks.len() <= MOST_BYTES / LEN + 1, "{} rows of {LEN} bytes", picks.len());
    }
}
