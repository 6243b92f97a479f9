//! The columns of an open columnar file.
//!
//! Dictionaries stay in memory if the cache grants a reservation for them; otherwise they are cached like any block,
//! and read again, with their checksum, when they were evicted. Whether their values are in order is checked once.

use std::sync::{Arc, OnceLock};

use mycelium_base::{Error, Result};
use mycelium_cache::BlockKind;
use mycelium_encoding::PackedLayout;
use mycelium_encoding::page::{PageTest, Test, TextCoding};

use super::directory::{ColumnPart, Directory};
use super::statistics::{FileStatistics, zones_say_all};
use super::zones::ColumnZones;
use crate::reader::{SstFile, malformed_part, payload_of};
use crate::writer::MAX_BLOCK_SIZE;

/// What an open file knows of its columns.
#[derive(Debug)]
pub(crate) struct FileColumns {
    directory: Directory,
    /// Of the fragments of all its columns.
    layout: Arc<PackedLayout>,
    /// By schema column, where it lies among the file's.
    positions: Vec<Option<usize>>,
    /// By column; `None` where they are not resident.
    codings: Option<Arc<[Option<TextCoding>]>>,
    /// By column, once its coding was found well-formed, the bytes of its longest text: as long as its checksum matches
    /// it is.
    checked: Box<[OnceLock<usize>]>,
    most_rows: usize,
}

impl FileColumns {
    /// Of a file whose blocks were to have so many bytes of entries.
    pub(crate) fn new(directory: Directory, block_size: u64) -> Self {
        let columns = directory.parts.iter().map(|part| part.column).collect();
        let layout = Arc::new(PackedLayout::of(directory.schema.clone(), &columns));
        let mut positions = vec![None; directory.schema.columns().len()];
        for (position, part) in directory.parts.iter().enumerate() {
            positions[part.column] = Some(position);
        }
        let checked = directory.parts.iter().map(|_| OnceLock::new()).collect();
        // A file that does not say has the largest.
        let said = usize::try_from(block_size).ok().filter(|&size| size > 0);
        let block_size = said.map_or(MAX_BLOCK_SIZE, |size| size.min(MAX_BLOCK_SIZE));
        // An entry counts as a byte at least, and a block ends where it would exceed its size by more than it falls
        // short of it.
        let most_rows = 2 * block_size;
        Self { directory, layout, positions, codings: None, checked, most_rows }
    }

    pub(crate) fn parts(&self) -> &[ColumnPart] {
        &self.directory.parts
    }

    /// The rows that a block has at most.
    pub(crate) fn most_rows(&self) -> usize {
        self.most_rows
    }

    pub(crate) fn layout(&self) -> &Arc<PackedLayout> {
        &self.layout
    }

    /// Bytes of the codings of all columns' texts.
    pub(crate) fn coding_bytes(&self) -> u64 {
        self.parts().iter().map(|part| part.coding.len).sum()
    }

    /// Where a schema column lies among the file's. O(1).
    #[inline]
    pub(crate) fn position(&self, column: usize) -> Option<usize> {
        self.positions.get(column).copied().flatten()
    }
}

impl SstFile {
    /// Whether this is a columnar file of exactly the columns of a layout, with the same types.
    pub fn has_columns(&self, layout: &PackedLayout) -> bool {
        let kind_of = |column: usize| layout.schema().columns().get(column).map(|column| &column.ty);
        self.columns.as_ref().is_some_and(|columns| {
            columns.layout().is_same(layout)
                && columns.parts().iter().all(|part| kind_of(part.column) == Some(&part.kind))
        })
    }

    /// Bytes of the dictionaries and symbol tables of this file; 0 of a file of rows, and where values have none. They
    /// are read as they lie, so that this is what they take in memory, too. O(columns).
    pub fn coding_bytes(&self) -> u64 {
        self.columns.as_ref().map_or(0, |columns| columns.coding_bytes())
    }

    /// The test for the pages of a column of this columnar file.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` if its coding is read again and is damaged, or the file has no such column.
    pub fn page_test(&self, column: usize, test: &Test) -> Result<PageTest> {
        let (columns, place) = (self.columns()?, self.place(column)?);
        let coding = match &columns.codings {
            Some(codings) => codings[place].clone(),
            None => self.read_coding(columns, place)?,
        };
        Ok(PageTest::new(test, &columns.parts()[place].kind, coding.as_ref()))
    }

    /// The zones of a column.
    ///
    /// # Errors
    /// As [`SstFile::page_test`].
    pub fn zones(&self, column: usize) -> Result<ColumnZones> {
        let part = self.part(column)?;
        let zones = ColumnZones::parse(self.zone_map(part)?, payload_of, self.block_count(), &part.kind);
        zones.map_err(|e| malformed_part(self.path(), "zone map", part.zones.offset, e))
    }

    /// What is so of the columns in all blocks; `None` of a file of rows, and of one that was written before there were
    /// statistics. O(columns), after they were read.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where they are damaged.
    pub fn column_statistics(&self) -> Result<Option<FileStatistics>> {
        self.read_statistics(|payload, parts| FileStatistics::parse(payload, parts, self.properties().entry_count))
    }

    /// Whether the zones of these columns say all of the rows of each block: every entry is a whole row, no key has
    /// two, and each row says something of each column. Not of a file of rows, nor of one without statistics.
    ///
    /// # Errors
    /// As [`SstFile::column_statistics`].
    pub fn zones_say_all(&self, of_columns: &[usize]) -> Result<bool> {
        Ok(self.read_statistics(|payload, parts| zones_say_all(payload, parts, of_columns))?.unwrap_or(false))
    }

    /// What `read` makes of the statistics; `None` if there are none.
    fn read_statistics<T>(&self, read: impl FnOnce(&[u8], &[ColumnPart]) -> Result<T>) -> Result<Option<T>> {
        let part = self.properties().statistics;
        let Some(columns) = self.columns.as_ref().filter(|_| part.len > 0) else { return Ok(None) };
        let framed = self.cached_part(part, BlockKind::Index)?;
        let read = read(payload_of(&framed), columns.parts());
        read.map(Some).map_err(|e| malformed_part(self.path(), "statistics of columns", part.offset, e))
    }

    fn place(&self, column: usize) -> Result<usize> {
        let lacking = || Error::corruption(format!("a columnar file lacks column {column}")).in_file(self.path());
        self.columns()?.position(column).ok_or_else(lacking)
    }

    fn part(&self, column: usize) -> Result<&ColumnPart> {
        Ok(&self.columns()?.parts()[self.place(column)?])
    }

    /// Reads the codings of a columnar file, which stay in memory from now on.
    pub(crate) fn keep_codings(&mut self) -> Result<()> {
        let Some(columns) = &self.columns else { return Ok(()) };
        let codings = (0..columns.parts().len()).map(|at| self.read_coding(columns, at)).collect::<Result<_>>()?;
        if let Some(columns) = &mut self.columns {
            columns.codings = Some(codings);
        }
        Ok(())
    }

    /// The zone map of a column, framed; see [`super::ZoneMap`].
    pub(crate) fn zone_map(&self, part: &ColumnPart) -> Result<Arc<[u8]>> {
        self.cached_part(part.zones, BlockKind::Index)
    }

    /// The codings of the wanted columns, by their place among the file's; of others they may be missing.
    pub(crate) fn codings(&self, columns: &FileColumns, wanted: &PackedLayout) -> Result<Arc<[Option<TextCoding>]>> {
        if let Some(codings) = &columns.codings {
            return Ok(codings.clone());
        }
        let mut codings = vec![None; columns.parts().len()];
        for position in wanted.columns().filter_map(|column| columns.position(column)) {
            codings[position] = self.read_coding(columns, position)?;
        }
        Ok(codings.into())
    }

    /// The coding of the column with this place among the file's, if it has one, from the cache or the file.
    fn read_coding(&self, columns: &FileColumns, position: usize) -> Result<Option<TextCoding>> {
        let (part, checked) = (columns.parts()[position].coding, &columns.checked[position]);
        if part.len == 0 {
            return Ok(None);
        }
        let framed = self.cached_part(part, BlockKind::Dictionary)?;
        let payload = 0..payload_of(&framed).len();
        let coding = match checked.get() {
            Some(&longest) => TextCoding::parse_checked(framed, payload, longest),
            None => TextCoding::parse(framed, payload),
        };
        let coding = coding.map_err(|e| malformed_part(self.path(), "coding of texts", part.offset, e))?;
        checked.get_or_init(|| coding.longest());
        Ok(Some(coding))
    }

    /// The file's columns; an error for a file of rows.
    pub(crate) fn columns(&self) -> Result<&FileColumns> {
        self.columns
            .as_deref()
            .ok_or_else(|| Error::corruption("a file of rows where a columnar one was to be").in_file(self.path()))
    }
}
