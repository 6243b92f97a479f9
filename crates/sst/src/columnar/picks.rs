//! Rows of other files' blocks that go into a columnar file as they are: step 2 of algorithm 1 (LSM-OPD §4.2.1).
//!
//! 1. [`Picks::push`] notes a row of a block; the block is kept until its rows are gathered. [`Picks::push_fragment`]
//!    notes one that comes between them as a packed fragment, as a newer row does that is merged with them.
//! 2. [`Picks::gather`] takes one column's page of each block, unpacks it from the first picked row to the last, puts
//!    the cells of the fragments behind them, and appends all in the order in which they came. Of fragments that begin
//!    alike, as those of one statement do, a column of fixed width lies at the same place in all.
//!
//! Memory: as many blocks as [`MOST_ROWS`] rows come from, or as have [`MOST_BYTES`] together with the fragments, and
//! one column of their rows unpacked.

use std::ops::Range;
use std::sync::Arc;

use mycelium_base::{Error, Result};
use mycelium_encoding::page::{Cells, Unpacked};
use mycelium_encoding::{ColumnState, PackedLayout, PackedRow, PackedShape};

use super::block::ColumnBlock;

/// Rows that are gathered at once, at most, those of fragments included.
const MOST_ROWS: usize = 1024;
/// Rows that are unpacked for them, at most about: of blocks of which few rows are picked others are unpacked in vain.
const MOST_UNPACKED: usize = 4 * MOST_ROWS;
/// Bytes of the blocks that are kept for them, at most, but for the last one: of large values each block has few rows.
const MOST_BYTES: usize = 8 << 20;
/// The first rows of a file are gathered early, so that its size is known.
const FIRST_ROWS: usize = 64;

/// A row of a block, whose cells are to be taken as they are.
pub type Pick<'b> = (&'b Arc<ColumnBlock>, usize);

/// In place of the block of a row that came as a fragment.
const NO_BLOCK: u32 = u32::MAX;

/// Rows that are picked, or came between such, and are not gathered yet.
#[derive(Default, Debug)]
pub(super) struct Picks {
    blocks: Vec<PickedBlock>,
    /// Of each pick its block, by its place in `blocks`, and its row; of each fragment its number.
    rows: Vec<(u32, u32)>,
    fragments: Fragments,
    /// The block of the last pick.
    latest: usize,
    /// Rows between the first and the last pick of each block.
    spanned: usize,
    /// Bytes of the blocks and fragments.
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
    /// Rows of other blocks that are unpacked before.
    unpacked: usize,
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
        let is_it = |picked: &PickedBlock| Arc::ptr_eq(&picked.block, block);
        if !self.blocks.get(self.latest).is_some_and(is_it) {
            self.latest = self.blocks.iter().rposition(is_it).unwrap_or_else(|| {
                self.held += block.byte_len();
                self.blocks.push(PickedBlock { block: block.clone(), span: row..row, unpacked: 0 });
                self.blocks.len() - 1
            });
        }
        let span = &mut self.blocks[self.latest].span;
        debug_assert!(span.end <= row, "rows of a block are picked in order");
        self.spanned += row + 1 - span.end;
        span.end = row + 1;
        self.rows.push((self.latest as u32, row as u32));
    }

    /// Notes a row that comes as a fragment, or an entry that has none.
    pub(super) fn push_fragment(&mut self, fragment: &[u8]) {
        self.rows.push((NO_BLOCK, self.fragments.len() as u32));
        self.fragments.push(fragment);
        self.held += fragment.len();
    }

    /// Appends the cells of all rows, column by column: of each its place in the schema, that of its page among those
    /// of a block, and its cells. `layout` is that of the fragments.
    pub(super) fn gather<'c>(
        &mut self,
        layout: &PackedLayout,
        columns: impl Iterator<Item = (usize, usize, &'c mut Cells)>,
    ) -> Result<()> {
        self.place();
        let Self { blocks, fragments, places, shapes, unpacked, .. } = self;
        let fragments = fragments.rows(layout)?;
        let alike: Vec<_> = fragments.chunk_by(|a, b| head(a) == head(b)).collect();
        for (column, page, cells) in columns {
            unpacked.clear();
            for PickedBlock { block, span, .. } in blocks.iter() {
                block.read(|pages| {
                    let page = pages.get(page).ok_or_else(|| Error::invalid("a block of other columns"))?;
                    cells.unpack(page, span.clone(), unpacked)
                })?;
            }
            for alike in &alike {
                unpack_alike(alike, column, cells, unpacked)?;
            }
            cells.pick(unpacked, places, shapes)?;
        }
        Ok(())
    }

    /// Says where the cells of each row will be, once for all columns.
    fn place(&mut self) {
        let mut before = 0;
        for PickedBlock { span, unpacked, .. } in &mut self.blocks {
            *unpacked = before;
            before += span.len();
        }
        let place = |&(number, row): &(u32, u32)| match self.blocks.get(number as usize) {
            Some(PickedBlock { span, unpacked, .. }) => (unpacked + row as usize - span.start) as u32,
            None => before as u32 + row,
        };
        self.places.clear();
        self.places.extend(self.rows.iter().map(place));
        self.shapes.clear();
        self.shapes.resize(self.rows.len(), PackedShape::default());
    }

    /// What each row takes packed, when all columns are gathered.
    pub(super) fn packed_lens<'p>(&'p self, layout: &'p PackedLayout) -> impl Iterator<Item = usize> + 'p {
        self.rows.iter().zip(&self.shapes).map(|(&(number, row), shape)| match number {
            NO_BLOCK => self.fragments.get(row as usize).len(),
            _ => layout.packed_len(shape),
        })
    }

    /// Forgets all rows and lets their blocks go.
    pub(super) fn clear(&mut self) {
        self.blocks.clear();
        self.rows.clear();
        self.fragments.clear();
        (self.latest, self.spanned, self.held) = (0, 0, 0);
    }
}

fn head<'f>(fragment: &Option<PackedRow<'f>>) -> Option<&'f [u8]> {
    fragment.as_ref().map(PackedRow::head)
}

/// Takes what these fragments have of a column, which begin alike, or are all none.
fn unpack_alike(alike: &[Option<PackedRow<'_>>], column: usize, cells: &Cells, unpacked: &mut Unpacked) -> Result<()> {
    let slot = match alike.first() {
        Some(Some(row)) if cells.takes_slots() => row.slot(column)?,
        _ => None,
    };
    if let Some(slot) = slot {
        let slots = alike.iter().map(|row| row.as_ref().map_or(&[][..], |row| row.slot_bytes(&slot)));
        return cells.unpack_slots(slots, unpacked);
    }
    for row in alike {
        let cell = row.as_ref().map_or(Ok(ColumnState::Absent), |row| row.get(column))?;
        cells.unpack_cell(cell, unpacked)?;
    }
    Ok(())
}

/// Packed fragments, one after the other; nothing of entries that have none.
#[derive(Default, Debug)]
struct Fragments {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Fragments {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn push(&mut self, fragment: &[u8]) {
        self.bytes.extend_from_slice(fragment);
        self.ends.push(self.bytes.len());
    }

    fn get(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[number]]
    }

    /// Them as rows; `None` of entries that have none.
    fn rows<'f>(&'f self, layout: &'f PackedLayout) -> Result<Vec<Option<PackedRow<'f>>>> {
        let fragments = (0..self.len()).map(|number| self.get(number));
        fragments.map(|fragment| (!fragment.is_empty()).then(|| layout.row(fragment)).transpose()).collect()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use mycelium_base::{ColumnSet, Cursor, Group, GroupFormat, Operation, Trailer};
    use mycelium_cache::BlockCache;
    use mycelium_encoding::{DatumRef, Schema, key};
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
