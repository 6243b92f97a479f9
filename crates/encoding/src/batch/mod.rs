//! Rows to Arrow record batches. (Back: [`crate::BatchRows`].)
//!
//! [`RecordBatchBuilder`] takes (key, packed value) pairs in scan order and appends the projected columns straight from
//! their bytes to Arrow buffers: no allocation per row or cell, text checked to be UTF-8 once per batch. Texts are
//! plain arrays, views or dictionaries ([`TextArrays`]). Rows in other formats are read column by column
//! ([`RecordBatchBuilder::append_stored`]). Where rows lie in columnar files it takes whole pages of columns instead
//! ([`RecordBatchBuilder::append_cells`]).
//!
//! What a batch holds is bounded in bytes: it is full once a column has so many of text or binary
//! ([`RecordBatchBuilder::with_most_bytes`]). Who appends many cells at once first asks how many fit
//! ([`RecordBatchBuilder::fitting`]); one cell always does, since it has 256 MiB at most and a full column 1 GiB, of
//! the 2 GiB that Arrow's offsets can count.

mod column;

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, SchemaRef};
#[cfg(doc)]
use mycelium_base::ErrorKind;
use mycelium_base::limits::MAX_KEY_LEN;
use mycelium_base::{ColumnSet, Error, Result};

use self::column::{ColumnBuilder, absent};
use crate::cell_moves::check_places;
use crate::key::KeyReader;
use crate::packed::{PackedRow, RawColumn};
use crate::page::{Page, PageRows};
use crate::row_format::{RowColumns, RowFormat, RowFormatKind, RowScratch};
use crate::{Column, ColumnState, ColumnType, DatumRef, PackedLayout};

/// Text and binary of one column from which on a batch counts as full, at most.
const FULL_BYTES: usize = 1 << 30;

/// Rows that a batch takes at once where texts or binaries of keys are wanted: as many as surely fit behind a column
/// that is not full.
const MOST_TEXT_KEYS: usize = (i32::MAX as usize - FULL_BYTES) / MAX_KEY_LEN;

/// Rows that a batch is believed to have, at most, because somebody says so.
const MOST_EXPECTED: usize = 1 << 13;

/// What texts are in record batches.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash, Debug)]
pub enum TextArrays {
    /// `Utf8`: the bytes of all rows, one after the other.
    #[default]
    Plain,
    /// `Utf8View`: a text that is there once for many rows, as one of a dictionary's, is not copied for each, and short
    /// ones are compared as integers.
    Views,
    /// `Dictionary(UInt32, Utf8)`: rows have codes. What comes out of files with dictionaries keeps its codes, moved by
    /// where its dictionary begins in that of the batch, which has those of all files that its rows are of, one behind
    /// the other, and then texts that come by themselves. So a text may be there more than once, and a batch of rows of
    /// one file has that file's dictionary, whose codes are ordered as its texts.
    Dictionaries,
}

/// Collects rows into record batches. Not thread-safe; reuse it for all batches of a scan.
#[derive(Debug)]
pub struct RecordBatchBuilder {
    layout: Arc<PackedLayout>,
    arrow: SchemaRef,
    rows_per_batch: usize,
    /// Rows that are appended at once, at most.
    rows_at_once: usize,
    /// Bytes of text or binary of one column from which on the batch is full.
    most_bytes: usize,
    rows: usize,
    /// Those of the last batch, or what is expected of the first.
    expected_rows: usize,
    /// In projection order.
    columns: Vec<ColumnBuilder>,
    /// What is read of a key, up to the last projected column of it.
    from_key: Vec<KeyStep>,
    /// Physical column and where it goes.
    from_value: Vec<(usize, usize)>,
    /// These columns, by schema index.
    read: ColumnSet,
    /// By schema index, where a column outside the key goes; `None` if one goes to two places.
    part_targets: Option<Vec<Option<usize>>>,
    /// Of a row that comes in parts, which places have its value already.
    filled: Vec<bool>,
    scratch: Vec<u8>,
    /// Offsets of integers being unpacked.
    offsets: Vec<u32>,
    widest: usize,
}

/// What one stored value says of some columns of a row that is to be put together from several.
#[derive(Clone, Copy, Debug)]
pub struct RowPart<'a> {
    /// The format of the value.
    pub rows: &'a RowFormat,
    /// The columns that are to be taken from it; those of a patch may be absent.
    pub columns: &'a ColumnSet,
    /// The stored value.
    pub value: &'a [u8],
}

/// Reads a [`RowPart`].
enum PartReader<'a> {
    Packed(PackedRow<'a>),
    Stored(RowColumns<'a>),
}

impl<'a> PartReader<'a> {
    fn new(part: &RowPart<'a>, scratch: &'a mut RowScratch) -> Result<Self> {
        Ok(match part.rows.kind() {
            RowFormatKind::Packed => Self::Packed(part.rows.layout().row(part.value)?),
            _ => Self::Stored(part.rows.read(part.value, Some(part.columns), scratch)?),
        })
    }

    /// Appends a column, if it is there. Returns the bytes of text or binary collected.
    #[inline]
    fn push(&mut self, column: usize, builder: &mut ColumnBuilder) -> Result<Option<usize>> {
        match self {
            Self::Packed(row) => {
                let index = row.layout().physical_index(column)?;
                match row.raw(index)? {
                    RawColumn::Absent => Ok(None),
                    raw => builder.push_packed(row.layout(), index, raw).map(Some),
                }
            }
            Self::Stored(row) => push_stored(row, column, builder),
        }
    }
}

/// Appends a column of a row in a row format, if it is there. Returns as [`PartReader::push`].
#[inline]
fn push_stored(row: &mut RowColumns<'_>, column: usize, builder: &mut ColumnBuilder) -> Result<Option<usize>> {
    if let Some(plain) = row.plain(column) {
        return builder.push_plain(plain).map(Some);
    }
    match row.get(column)? {
        ColumnState::Absent => Ok(None),
        state => builder.push_cell(state).map(Some),
    }
}

/// What is done with the next columns of a key.
#[derive(Debug)]
enum KeyStep {
    /// So many bytes of columns of fixed width are not wanted.
    Pass(usize),
    /// Nor is a text or binary.
    PassBytes,
    /// A column of this type goes to these places.
    Read(ColumnType, Vec<usize>),
}

impl KeyStep {
    fn reads_text(&self) -> bool {
        matches!(self, Self::Read(ColumnType::Utf8 | ColumnType::Binary, _))
    }

    fn of(columns: Vec<(ColumnType, Vec<usize>)>) -> Vec<Self> {
        let mut steps = Vec::new();
        for (ty, targets) in columns {
            match (ty.fixed_width(), steps.last_mut()) {
                _ if !targets.is_empty() => steps.push(Self::Read(ty, targets)),
                (Some(width), Some(Self::Pass(len))) => *len += width,
                (Some(width), _) => steps.push(Self::Pass(width)),
                (None, _) => steps.push(Self::PassBytes),
            }
        }
        steps
    }
}

impl RecordBatchBuilder {
    /// A builder of batches of `rows_per_batch` rows with the columns of `projection`, given by schema index in any
    /// order.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there is no such column or `rows_per_batch` is 0.
    pub fn new(layout: Arc<PackedLayout>, projection: &[usize], rows_per_batch: usize) -> Result<Self> {
        Self::with_texts(layout, projection, rows_per_batch, TextArrays::Plain)
    }

    /// As [`RecordBatchBuilder::new`], with texts as such arrays.
    ///
    /// # Errors
    /// As that.
    pub fn with_texts(
        layout: Arc<PackedLayout>,
        projection: &[usize],
        rows_per_batch: usize,
        texts: TextArrays,
    ) -> Result<Self> {
        if rows_per_batch == 0 {
            return Err(Error::invalid("a batch needs at least one row"));
        }
        let schema = layout.schema().clone();
        let mut fields = Vec::with_capacity(projection.len());
        let mut columns = Vec::with_capacity(projection.len());
        let mut of_key: Vec<(ColumnType, Vec<usize>)> = Vec::new();
        let mut from_value = Vec::new();
        for (target, &column) in projection.iter().enumerate() {
            let Some(definition) = schema.columns().get(column) else {
                return Err(Error::invalid(format!("the projection names column {column}, which does not exist")));
            };
            fields.push(definition.to_arrow_with(texts));
            columns.push(ColumnBuilder::new(&definition.ty, definition.nullable, texts));
            match schema.primary_key().iter().position(|&key_column| key_column == column) {
                Some(position) => {
                    for &key_column in schema.primary_key().iter().take(position + 1).skip(of_key.len()) {
                        of_key.push((schema.columns()[key_column].ty.clone(), Vec::new()));
                    }
                    of_key[position].1.push(target);
                }
                None => from_value.push((layout.physical_index(column)?, target)),
            }
        }
        let read = from_value.iter().map(|&(index, _)| layout.column(index)).collect();
        let mut part_targets = Some(vec![None; schema.columns().len()]);
        for &(index, target) in &from_value {
            let place = part_targets.as_mut().map(|targets| &mut targets[layout.column(index)]);
            if place.is_some_and(|place| place.replace(target).is_some()) {
                part_targets = None;
            }
        }
        let from_key = KeyStep::of(of_key);
        let rows_at_once = if from_key.iter().any(KeyStep::reads_text) { MOST_TEXT_KEYS } else { usize::MAX };
        Ok(Self {
            layout,
            arrow: Arc::new(arrow_schema::Schema::new(fields)),
            rows_per_batch,
            rows_at_once,
            most_bytes: FULL_BYTES,
            rows: 0,
            expected_rows: 0,
            columns,
            from_key,
            from_value,
            read,
            part_targets,
            filled: Vec::new(),
            scratch: Vec::new(),
            offsets: Vec::new(),
            widest: 0,
        })
    }

    /// The same, with batches that are full once a column has so many bytes of text or binary, or 1 GiB, which is what
    /// it is otherwise. A column outside the key has more than that by less than one value, where rows are appended one
    /// by one or as many as are [`fitting`](Self::fitting).
    pub fn with_most_bytes(self, bytes: usize) -> Self {
        Self { most_bytes: bytes.clamp(1, FULL_BYTES), ..self }
    }

    /// The same, where up to so many rows are likely to be appended. A limit may have nothing to do with how many rows
    /// there are: room for more than 8,192 is not made before there were as many.
    pub fn with_expected_rows(self, rows: usize) -> Self {
        Self { expected_rows: rows.min(MOST_EXPECTED), ..self }
    }

    /// Makes room for a batch that is about to begin: for as many rows as the last one had or were expected, but no
    /// more than `most`.
    pub fn begin_batch(&mut self, most: usize) {
        let rows = self.expected_rows.min(self.rows_per_batch).min(most);
        self.columns.iter_mut().for_each(|column| column.reserve(rows));
    }

    /// The schema of the batches.
    pub fn arrow_schema(&self) -> &SchemaRef {
        &self.arrow
    }

    /// Rows collected since the last batch.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Whether the batch has all its rows, or so much text in one column that it must be finished.
    pub fn is_full(&self) -> bool {
        self.rows >= self.rows_per_batch || self.widest >= self.most_bytes
    }

    /// Appends a row. The value is not read if no column outside the primary key is projected.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] if key or value are malformed; the builder must then be dropped.
    pub fn append(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.append_key(key)?;
        if !self.from_value.is_empty() {
            let row = self.layout.row(value)?;
            for &(index, target) in &self.from_value {
                let len = self.columns[target].push_packed(&self.layout, index, row.raw(index)?)?;
                self.widest = self.widest.max(len);
            }
        }
        self.rows += 1;
        Ok(())
    }

    /// Appends the projected columns of a packed row of another layout that has them.
    fn append_packed_values(&mut self, value: &[u8], layout: &PackedLayout) -> Result<()> {
        let row = layout.row(value)?;
        for &(index, target) in &self.from_value {
            let index = layout.physical_index(self.layout.column(index))?;
            let len = self.columns[target].push_packed(layout, index, row.raw(index)?)?;
            self.widest = self.widest.max(len);
        }
        Ok(())
    }

    /// As [`RecordBatchBuilder::append`] of a whole row in a row format, of which only the projected columns are read.
    ///
    /// # Errors
    /// As [`RecordBatchBuilder::append`].
    pub fn append_stored(
        &mut self,
        key: &[u8],
        value: &[u8],
        rows: &RowFormat,
        scratch: &mut RowScratch,
    ) -> Result<()> {
        self.append_key(key)?;
        if self.from_value.is_empty() {
            // Nothing of the value is wanted.
        } else if rows.kind() == RowFormatKind::Packed {
            self.append_packed_values(value, rows.layout())?;
        } else if let [(index, target)] = self.from_value[..]
            && let Some(plain) = rows.find_plain(value, self.layout.column(index))
        {
            self.widest = self.widest.max(self.columns[target].push_plain(plain)?);
        } else {
            let mut row = rows.read(value, Some(&self.read), scratch)?;
            for &(index, target) in &self.from_value {
                let column = self.layout.column(index);
                let len = push_stored(&mut row, column, &mut self.columns[target])?;
                self.widest = self.widest.max(len.ok_or_else(|| absent(self.layout.name(index)))?);
            }
        }
        self.rows += 1;
        Ok(())
    }

    /// Whether rows can be [appended in parts](Self::append_parts): not where a column is projected twice.
    pub fn takes_parts(&self) -> bool {
        self.part_targets.is_some()
    }

    /// As [`RecordBatchBuilder::append_stored`], of a row in parts, newest first: a column comes from the first that
    /// says something of it.
    ///
    /// # Errors
    /// As [`RecordBatchBuilder::append`]; also if no part says anything of a column.
    pub fn append_parts<'p>(
        &mut self,
        key: &[u8],
        parts: impl Iterator<Item = RowPart<'p>>,
        scratch: &mut RowScratch,
    ) -> Result<()> {
        self.append_key(key)?;
        self.filled.clear();
        self.filled.resize(self.columns.len(), false);
        let mut missing = self.from_value.len();
        for part in parts {
            missing -= self.append_part(&part, scratch)?;
        }
        if missing > 0 {
            return Err(Error::corruption("the parts of a row lack a column"));
        }
        self.rows += 1;
        Ok(())
    }

    /// Appends what a part says of columns that are not filled yet. Returns how many these are.
    fn append_part(&mut self, part: &RowPart<'_>, scratch: &mut RowScratch) -> Result<usize> {
        let mut count = self.append_plain(part)?;
        if count == part.columns.len() {
            return Ok(count);
        }
        let mut reader = PartReader::new(part, scratch)?;
        for column in part.columns.iter() {
            let target = self.part_targets.as_ref().and_then(|targets| targets.get(column).copied().flatten());
            let Some(target) = target.filter(|&target| !self.filled[target]) else { continue };
            if let Some(len) = reader.push(column, &mut self.columns[target])? {
                self.widest = self.widest.max(len);
                self.filled[target] = true;
                count += 1;
            }
        }
        Ok(count)
    }

    /// As [`RecordBatchBuilder::append_part`], of those values alone that need no decoding, as they lie.
    fn append_plain(&mut self, part: &RowPart<'_>) -> Result<usize> {
        let Self { part_targets: Some(targets), filled, columns, widest, .. } = self else { return Ok(0) };
        let mut count = 0;
        part.rows.visit_plain(part.value, &mut |column, plain| {
            let target = targets.get(column).copied().flatten().filter(|_| part.columns.contains(column));
            if let Some(target) = target.filter(|&target| !filled[target]) {
                *widest = (*widest).max(columns[target].push_plain(plain)?);
                filled[target] = true;
                count += 1;
            }
            Ok(())
        })?;
        Ok(count)
    }

    /// The columns outside the primary key that are projected, each with its place in the projection.
    pub fn value_columns(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.from_value.iter().map(|&(index, target)| (self.layout.column(index), target))
    }

    /// Whether columns of the primary key are projected.
    pub fn has_key_columns(&self) -> bool {
        !self.from_key.is_empty()
    }

    /// Appends the key columns of a row that is appended column by column; see [`RecordBatchBuilder::end_rows`].
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] if the key is malformed; the builder must then be dropped.
    pub fn append_key(&mut self, key: &[u8]) -> Result<()> {
        let mut reader = KeyReader::new(key);
        for step in &self.from_key {
            match step {
                KeyStep::Pass(len) => reader.pass(*len)?,
                KeyStep::PassBytes => reader.pass_bytes()?,
                KeyStep::Read(ty, targets) => {
                    let datum = reader.next(ty, &mut self.scratch)?;
                    for &target in targets {
                        let len = self.columns[target].push_datum(datum)?;
                        self.widest = self.widest.max(len);
                    }
                }
            }
        }
        Ok(())
    }

    /// Bytes of text or binary that the column at this place of the projection still takes.
    pub fn text_room(&self, target: usize) -> usize {
        self.most_bytes.saturating_sub(self.columns[target].bytes())
    }

    /// How many of the first of these rows of a page surely have no more text or binary than the column at this place
    /// of the projection still takes; one at least, which any batch takes that is not full. O(1) where all of them fit
    /// by what is known of all; otherwise `most` of them are looked at, and no more are said to fit.
    pub fn fitting(&self, target: usize, page: &Page<'_>, rows: Range<usize>, most: usize) -> usize {
        let mut room = self.text_room(target);
        if page.text_bound(rows.clone()) <= room {
            return rows.len();
        }
        let fits = |row: &usize| {
            let rest = room.checked_sub(page.text_bound_at(*row));
            room = rest.unwrap_or_default();
            rest.is_some()
        };
        rows.take(most).take_while(fits).count().max(1)
    }

    /// Appends cells of a page to the column at this place of the projection; see [`RecordBatchBuilder::end_rows`].
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] if the page is malformed or of another type; the builder must then be dropped.
    pub fn append_cells(&mut self, target: usize, page: &Page<'_>, rows: Range<usize>) -> Result<()> {
        let len = self.columns[target].push_cells(page, &PageRows::Range(rows), &mut self.offsets)?;
        self.widest = self.widest.max(len);
        Ok(())
    }

    /// Appends cells of some rows of a page, ascending. Errors as [`RecordBatchBuilder::append_cells`].
    pub fn append_selected(&mut self, target: usize, page: &Page<'_>, rows: &[u32]) -> Result<()> {
        let len = self.columns[target].push_cells(page, &PageRows::Some(rows), &mut self.offsets)?;
        self.widest = self.widest.max(len);
        Ok(())
    }

    /// Appends the cells that packed rows have of the column at this place of the projection, which is outside the
    /// primary key; see [`RecordBatchBuilder::end_rows`]. The rows are of the builder's layout.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] if a row is malformed or lacks the column; the builder must then be dropped.
    pub fn append_cells_of_rows<'r>(&mut self, target: usize, rows: impl Iterator<Item = &'r [u8]>) -> Result<()> {
        let index = self.from_value.iter().find(|(_, of)| *of == target).map(|(index, _)| *index);
        let index =
            index.ok_or_else(|| Error::invalid(format!("column {target} of the batch is not one of values")))?;
        for row in rows {
            let len = self.columns[target].push_packed(&self.layout, index, self.layout.row(row)?.raw(index)?)?;
            self.widest = self.widest.max(len);
        }
        Ok(())
    }

    /// Whether cells of the column at this place of the projection can be overwritten.
    pub fn can_overwrite(&self, target: usize) -> bool {
        self.columns[target].can_overwrite()
    }

    /// Puts other values, as their bytes, in the places of values that were appended to such a column, each with its
    /// row of the batch.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a row that is not there; cells before it were overwritten.
    pub fn overwrite(&mut self, target: usize, cells: impl IntoIterator<Item = (usize, u128)>) -> Result<()> {
        let done = self.columns[target].overwrite(cells.into_iter());
        done.ok_or_else(|| Error::invalid(format!("column {target} of the batch cannot be overwritten so")))
    }

    /// Of the cells that were appended to the column at this place of the projection since the last
    /// [`RecordBatchBuilder::end_rows`], keeps those at these places, counted from the first of them, in this order.
    /// O(cells).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there is no such place; the builder must then be dropped.
    pub fn arrange(&mut self, target: usize, places: &[u32]) -> Result<()> {
        let column = &mut self.columns[target];
        let appended = column.len().saturating_sub(self.rows);
        let most = places.iter().max().map_or(0, |&most| most as usize + 1);
        if most > appended {
            return Err(Error::invalid("a cell was not appended").expected(format_args!("below {appended}"), most - 1));
        }
        column.arrange(self.rows, places);
        Ok(())
    }

    /// Moves the cells of a column that can be overwritten, from that of row `first` of the batch on, none of which is
    /// null, so that there is room for one more before each of these places, counted from that row and ascending; what
    /// is in it is not said. See [`RecordBatchBuilder::end_rows`]. O(cells).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there is no such place, or cells of the column cannot be overwritten; the
    /// builder must then be dropped.
    pub fn make_room(&mut self, target: usize, first: usize, places: &[u32]) -> Result<()> {
        let column = &mut self.columns[target];
        check_places(places, column.len().saturating_sub(first))?;
        let done = column.make_room(first, places);
        done.ok_or_else(|| Error::invalid(format!("column {target} of the batch has no cells to be overwritten")))
    }

    /// Of the cells of a column from that of row `first` of the batch on, moves the last ones, as many as there are
    /// places, before those at these places, counted from that row and ascending. See [`RecordBatchBuilder::end_rows`].
    /// O(cells).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there is no such place; the builder must then be dropped.
    pub fn weave(&mut self, target: usize, first: usize, places: &[u32]) -> Result<()> {
        let column = &mut self.columns[target];
        let others = column.len().saturating_sub(first).checked_sub(places.len());
        check_places(places, others.ok_or_else(|| Error::invalid("there are more places than cells"))?)?;
        column.weave(first, places);
        Ok(())
    }

    /// Of the cells of a column from that of row `first` of the batch on, moves the last ones, as many as there are
    /// places, to these places, counted from that row, and drops what was there. See
    /// [`RecordBatchBuilder::end_rows`]. O(places); O(cells) of texts as Arrow has them, of booleans, and where cells
    /// are null.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there is no such place; the builder must then be dropped.
    pub fn lay(&mut self, target: usize, first: usize, places: &[u32]) -> Result<()> {
        let column = &mut self.columns[target];
        let others = column.len().saturating_sub(first).checked_sub(places.len());
        let others = others.ok_or_else(|| Error::invalid("there are more places than cells"))?;
        if places.iter().any(|&place| place as usize >= others) {
            return Err(Error::invalid("a cell that is to be replaced is not there"));
        }
        column.lay(first, places);
        Ok(())
    }

    /// Removes the cells of a column at these places, counted from that of row `first` of the batch and ascending, each
    /// once. See [`RecordBatchBuilder::end_rows`]. O(cells behind the first of them).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there is no such place; the builder must then be dropped.
    pub fn remove(&mut self, target: usize, first: usize, places: &[u32]) -> Result<()> {
        let column = &mut self.columns[target];
        let cells = column.len().saturating_sub(first);
        let ascends = places.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascends || places.last().is_some_and(|&last| last as usize >= cells) {
            return Err(Error::invalid("rows that are gone do not ascend among those appended"));
        }
        column.remove(first, places);
        Ok(())
    }

    /// So many rows were appended column by column.
    pub fn end_rows(&mut self, count: usize) {
        self.rows += count;
    }

    /// Rows that the batch still takes at once.
    pub fn room(&self) -> usize {
        if self.is_full() { 0 } else { (self.rows_per_batch - self.rows).min(self.rows_at_once) }
    }

    /// The rows collected so far as a batch (maybe an empty one); the builder starts a new one.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] if a text column is not UTF-8 or a column that may not be null is.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        let rows = std::mem::take(&mut self.rows);
        (self.expected_rows, self.widest) = (rows, 0);
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (column, field) in self.columns.iter_mut().zip(self.arrow.fields()) {
            arrays.push(
                column
                    .finish()
                    .map_err(|e| Error::corruption(format!("column \"{}\" is malformed", field.name())).caused_by(e))?,
            );
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.arrow.clone(), arrays, &options)
            .map_err(|e| Error::corruption("rows do not fit their schema").caused_by(e))
    }
}

/// A batch of rows given value by value, with these columns.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] if a value does not fit its column.
pub fn batch_of<'d, R: IntoIterator<Item = DatumRef<'d>>>(
    columns: &[Column],
    texts: TextArrays,
    rows: impl IntoIterator<Item = R>,
) -> Result<RecordBatch> {
    let builder = |column: &Column| ColumnBuilder::new(&column.ty, column.nullable, texts);
    let mut builders: Vec<_> = columns.iter().map(builder).collect();
    let mut count = 0;
    for row in rows {
        for ((builder, column), value) in builders.iter_mut().zip(columns).zip(row) {
            value.check(column)?;
            builder.push_datum(value)?;
        }
        count += 1;
    }
    let unfit = |error: ArrowError| Error::invalid("rows do not fit their schema").caused_by(error);
    let arrays =
        builders.iter_mut().map(ColumnBuilder::finish).collect::<std::result::Result<_, _>>().map_err(unfit)?;
    let fields: Vec<_> = columns.iter().map(|column| column.to_arrow_with(texts)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    RecordBatch::try_new_with_options(Arc::new(arrow_schema::Schema::new(fields)), arrays, &options).map_err(unfit)
}
