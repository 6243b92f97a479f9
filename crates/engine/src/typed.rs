//! Typed tables: rows of datums over the key-value core.
//!
//! The primary key columns are encoded order-preservingly into the key, the others into a value of the table's row
//! format (packed, if none was chosen); a patch is a value in which the columns it does not touch are absent. Scans
//! hand out Arrow record batches filled column by column, whatever format and column groups the rows are stored in.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;

use mycelium_base::{ColumnSet, Error, ReadCounters, Result, SequenceNumber};
use mycelium_encoding::page::Filter;
use mycelium_encoding::row_format::{RowFormat, RowScratch};
use mycelium_encoding::{ColumnState, Datum, DatumRef, PackedLayout, RecordBatchBuilder, Schema, TextArrays, key};

use crate::batch::{RowBuffers, WriteBatch};
use crate::block_scan::{BlockScan, FilterPlan, RowFilter, ToldRows};
use crate::iterator::{LyingRow, TableIterator, block_scan};
use crate::options::Durability;
use crate::read_options::ReadOptions;
use crate::snapshot::Snapshot;
use crate::table::{Table, TableState};
use crate::traces::TableTraces;

/// What a typed scan reads.
///
/// A bound has values of the first columns of the primary key, as many as one likes, and takes in, or leaves out, all
/// keys that begin with them:
///
/// ```
/// # use std::sync::Arc;
/// use std::ops::Bound;
/// use mycelium_encoding::{Datum, DatumRef, Schema};
/// use mycelium_engine::{Database, Durability, Options, ScanOptions, TableOptions};
/// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
/// # let database = Database::open("example", options)?;
/// let schema = Schema::parse("year int32 not null, day int32 not null, rain float64, primary key (year, day)")?;
/// let weather = database.create_typed_table("weather", schema, TableOptions::default())?;
/// for (year, day) in [(2024, 1), (2025, 1), (2025, 2), (2026, 1)] {
///     weather.insert_row(&[DatumRef::Int32(year), DatumRef::Int32(day), DatumRef::Null], Durability::Os)?;
/// }
/// let of_2025 = ScanOptions {
///     projection: Some(vec![1, 2]),
///     lower: Bound::Included(vec![Datum::Int32(2025)]),
///     upper: Bound::Included(vec![Datum::Int32(2025)]),
///     ..ScanOptions::default()
/// };
/// let rows: usize = weather.scan_batches(of_2025)?.map(|batch| batch.unwrap().num_rows()).sum();
/// assert_eq!(rows, 2);
/// # Ok::<(), mycelium_engine::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// Columns by position, in the order wanted; `None` is all that were not dropped. Default: all.
    pub projection: Option<Vec<usize>>,
    /// Values of the first primary key columns from which the scan starts. Default: unbounded.
    pub lower: Bound<Vec<Datum>>,
    /// Values of the first primary key columns at which it ends. Default: unbounded.
    pub upper: Bound<Vec<Datum>>,
    /// The snapshot to read at, of the same database; `None` is the newest state. Default: newest.
    pub snapshot: Option<Snapshot>,
    /// Rows of a batch at most. Default: 8,192.
    pub batch_rows: usize,
    /// Bytes of text or binary in one column of a batch, at most 1 GiB, with which it ends, however few its rows. A
    /// column outside the key has more by less than one value. Default: 64 MiB.
    pub batch_bytes: usize,
    /// Rows of the scan at most. Default: all.
    pub limit: Option<u64>,
    /// Whether the last row comes first. Rows are then read one by one whatever files they are in, for who wants a few:
    /// a scan of all of them takes several times as long as the other way. Not with `tell_zones`. Default: no.
    pub descending: bool,
    /// What rows must pass. Decided on the row that the snapshot sees; `None` is all. Default: all.
    pub filter: Option<Filter>,
    /// How the rows that pass a filter are found; changes no answer. Default: the cheaper way, judged on the way.
    pub filter_plan: FilterPlan,
    /// What texts are in the batches. Default: plain arrays.
    pub texts: TextArrays,
    /// Whether blocks may be told by their zones ([`BatchScan::told`]) instead of given as rows, where no younger entry
    /// touches them and the snapshot sees all of them. For who counts rows, or asks what values lie between. Not with a
    /// filter or a limit. Default: no.
    pub tell_zones: bool,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            projection: None,
            lower: Bound::Unbounded,
            upper: Bound::Unbounded,
            snapshot: None,
            batch_rows: 8192,
            batch_bytes: 64 << 20,
            limit: None,
            descending: false,
            filter: None,
            filter_plan: FilterPlan::Automatic,
            texts: TextArrays::Plain,
            tell_zones: false,
        }
    }
}

/// Rows of a scan up to which it reads block by block and leaves the blocks in the cache, as an iterator does: a large
/// piece from every run would cost more than the rows.
const SHORT: u64 = 1024;

/// Steps of a scan, each a row or a stretch of rows of a block, after which it pauses.
const STEPS_BEFORE_PAUSE: u32 = 1 << 13;

fn borrow(datums: &[Datum]) -> Vec<DatumRef<'_>> {
    datums.iter().map(Datum::borrowed).collect()
}

impl Table {
    /// The positions of columns in packed rows; an error for a key-value table.
    pub fn packed_layout(&self) -> Result<&Arc<PackedLayout>> {
        Ok(self.shared.typed_formats()?.packed_layout())
    }

    /// The key of a row with these primary key values, in the order of the key's columns. Keys are ordered by their
    /// bytes as rows are by these values.
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::InvalidArgument`] for a key-value table, for more or fewer values than the key has
    /// columns, for one that its column cannot hold, and for a key that gets longer than 65,535 bytes.
    pub fn row_key(&self, key_values: &[DatumRef<'_>]) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        key::encode_key(self.packed_layout()?.schema(), key_values, &mut out)?;
        Ok(out)
    }

    /// Writes a whole row, one value per column in schema order. A row that has the key already is replaced; to be
    /// told of one instead, look for it in a [transaction](crate::Transaction). See [`Durability`] for what the return
    /// means.
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::InvalidArgument`] for a key-value table, for more or fewer values than columns, for
    /// one that its column cannot hold, and for a row that an index cannot; [`mycelium_base::ErrorKind::Duplicate`]
    /// for values of a unique index that another row has. See [`Table`] for the others.
    pub fn insert_row(&self, row: &[DatumRef<'_>], durability: Durability) -> Result<SequenceNumber> {
        self.write_with(durability, |batch| batch.insert_row(self, row))
    }

    /// Changes some columns of a row, by name. A row that does not exist stays so. The row is read only if the table
    /// has indexes.
    ///
    /// # Errors
    /// As [`Table::insert_row`]; [`mycelium_base::ErrorKind::InvalidArgument`] also for a column that there is not, or
    /// that is one of the key, and for a table of raw rows, of which no part can be changed.
    pub fn patch_row(
        &self,
        key_values: &[DatumRef<'_>],
        changes: &[(&str, DatumRef<'_>)],
        durability: Durability,
    ) -> Result<SequenceNumber> {
        self.write_with(durability, |batch| batch.patch_row(self, key_values, changes))
    }

    /// Removes a row; one that does not exist is no error. Reads nothing. Fails as [`Table::row_key`] and [`Table`]
    /// say.
    pub fn delete_row(&self, key_values: &[DatumRef<'_>], durability: Durability) -> Result<SequenceNumber> {
        self.delete(&self.row_key(key_values)?, durability)
    }

    /// The columns of `projection` (all if `None`) of the row with these primary key values, in that order; `None` if
    /// there is no such row. Of column groups only those are read that have some of these columns. Of the options
    /// `snapshot` alone is looked at.
    ///
    /// # Errors
    /// Those of [`Table::row_key`]; [`mycelium_base::ErrorKind::InvalidArgument`] for columns that do not exist. See
    /// [`Table`] for the others.
    pub fn get_row(
        &self,
        key_values: &[DatumRef<'_>],
        projection: Option<&[usize]>,
        options: &ReadOptions,
    ) -> Result<Option<Vec<Datum>>> {
        let (key, counters) = (self.row_key(key_values)?, &mut ReadCounters::default());
        let formats = self.shared.typed_formats()?;
        if formats.is_packed() || self.shared.state.load().tree.has_groups {
            let row = self.get_packed(&key, projection, options, counters)?;
            return row.map(|(layout, value)| datums_of(&layout, &key, &value, projection)).transpose();
        }
        // Rows lie as they were written: their columns are read without packing them first.
        let wanted = self.value_columns(projection)?;
        let row = self.database.get(&self.shared, &key, Some(&wanted), options, counters)?;
        let scratch = &mut RowScratch::default();
        row.map(|value| datums_of_stored(formats.rows(), &key, &value, (projection, &wanted), scratch)).transpose()
    }

    /// As [`Table::get_row`], of many rows at one state of the table, in the order of `keys`. Memory: all the rows. The
    /// first error ends it, and no rows are given.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use mycelium_engine::{Database, Durability, Options, ReadOptions, TableOptions};
    /// use mycelium_encoding::{Datum, DatumRef, Schema};
    /// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
    /// # let database = Database::open("example", options)?;
    /// let schema = Schema::parse("id int64 not null, name utf8, primary key (id)")?;
    /// let table = database.create_typed_table("people", schema, TableOptions::default())?;
    /// table.insert_row(&[DatumRef::Int64(1), DatumRef::Utf8("Ada")], Durability::Os)?;
    /// let keys: [&[DatumRef<'_>]; 2] = [&[DatumRef::Int64(2)], &[DatumRef::Int64(1)]];
    /// let rows = table.get_rows(&keys, Some(&[1]), &ReadOptions::default())?;
    /// assert_eq!(rows, [None, Some(vec![Datum::Utf8("Ada".into())])]);
    /// # Ok::<(), mycelium_engine::Error>(())
    /// ```
    pub fn get_rows(
        &self,
        keys: &[&[DatumRef<'_>]],
        projection: Option<&[usize]>,
        options: &ReadOptions,
    ) -> Result<Vec<Option<Vec<Datum>>>> {
        let snapshot = options.snapshot.clone().unwrap_or_else(|| self.database.take_snapshot());
        let options = ReadOptions { snapshot: Some(snapshot), ..options.clone() };
        let encoded = keys.iter().enumerate().map(|(at, key)| self.row_key(key).map(|key| (key, at)));
        let mut order: Vec<(Vec<u8>, usize)> = encoded.collect::<Result<_>>()?;
        // In key order neighbouring rows share index and data blocks.
        order.sort_unstable();
        let mut rows = vec![None; keys.len()];
        for (_, at) in order {
            rows[at] = self.get_row(keys[at], projection, &options)?;
        }
        Ok(rows)
    }

    /// The columns of `projection` (all if `None`) of a stored row.
    pub(crate) fn datums_of(&self, key: &[u8], value: Vec<u8>, projection: Option<&[usize]>) -> Result<Vec<Datum>> {
        let formats = self.shared.typed_formats()?;
        datums_of(formats.packed_layout(), key, &formats.packed_row(value)?, projection)
    }

    /// The key and stored value of a whole row.
    pub(crate) fn encode_row(&self, row: &[DatumRef<'_>], buffers: &mut RowBuffers) -> Result<()> {
        let formats = self.shared.typed_formats()?;
        let RowBuffers { key, value, scratch, .. } = buffers;
        key::encode_row_key(formats.schema(), row, key)?;
        match formats.is_packed() {
            true => formats.packed_layout().encode_row(row, value),
            false => formats.rows().encode_with(|column| ColumnState::from(row[column]), scratch, value),
        }
    }

    /// The key and stored patch of a change of some columns, by name.
    pub(crate) fn encode_patch(
        &self,
        key_values: &[DatumRef<'_>],
        changes: &[(&str, DatumRef<'_>)],
        buffers: &mut RowBuffers,
    ) -> Result<()> {
        let formats = self.shared.typed_formats()?;
        if !formats.rows().takes_patches() {
            return Err(Error::invalid("a table of raw rows takes no patches"));
        }
        let schema = formats.schema();
        let RowBuffers { key, value, changed, scratch } = buffers;
        let mut states = vec![ColumnState::Absent; schema.columns().len()];
        for (name, datum) in changes {
            let column = schema.index_of(name);
            let column = column.ok_or_else(|| Error::invalid(format!("there is no column {name}")))?;
            if schema.is_primary_key(column) {
                return Err(Error::invalid(format!("column {name} is part of the primary key and cannot change")));
            }
            states[column] = ColumnState::from(*datum);
            changed.insert(column);
        }
        match formats.is_packed() {
            true => formats.packed_layout().encode_patch(&states, value)?,
            false => formats.rows().encode_with(|column| states[column], scratch, value)?,
        }
        key::encode_key(schema, key_values, key)
    }

    /// The columns of `projection` (all if `None`) of a row, packed, with the layout they are packed in, which may have
    /// more columns; adds what was read and skipped to `counters`. Fails as [`Table::get_row`].
    pub fn get_packed(
        &self,
        key: &[u8],
        projection: Option<&[usize]>,
        options: &ReadOptions,
        counters: &mut ReadCounters,
    ) -> Result<Option<(Arc<PackedLayout>, Vec<u8>)>> {
        let wanted = self.value_columns(projection)?;
        self.database.get_packed(&self.shared, key, Some(&wanted), options, counters)
    }

    /// An iterator as [`Table::iter`]'s whose values are packed rows of at least the columns of `projection` (all if
    /// `None`), and the layout they are packed in. Files that hold none of these columns are not read. Where only key
    /// columns are asked for, values say nothing. Fails as [`Table::get_row`].
    pub fn iter_packed(
        &self,
        projection: Option<&[usize]>,
        options: &ReadOptions,
    ) -> Result<(TableIterator, Arc<PackedLayout>)> {
        let wanted = self.value_columns(projection)?;
        TableIterator::packed(&self.database, &self.shared, options, &wanted)
    }

    /// The columns of a projection that are not in the primary key; an error for one that does not exist, or was
    /// dropped.
    pub(crate) fn value_columns(&self, projection: Option<&[usize]>) -> Result<ColumnSet> {
        let formats = self.shared.typed_formats()?;
        let (all, schema) = (formats.whole.columns(), formats.schema());
        if let Some(column) = projection.unwrap_or_default().iter().find(|&&column| !schema.has_column(column)) {
            return Err(Error::invalid(format!("column {column} does not exist")));
        }
        Ok(projection.map_or_else(
            || all.clone(),
            |columns| columns.iter().copied().filter(|column| all.contains(*column)).collect(),
        ))
    }

    /// Scans rows in key order as Arrow record batches, all at one state of the table. Memory: one batch, and a block
    /// of each run. It waits for no writer, and no writer for it.
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::InvalidArgument`] for a key-value table, for columns that do not exist, for bounds
    /// of more values than the key has columns or of other types, and for a filter whose values are not of its columns'
    /// types. See [`Table`] for the others. What goes wrong on the way comes with the batches.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use mycelium_engine::{Database, Durability, Options, ScanOptions, TableOptions};
    /// use mycelium_encoding::{DatumRef, Schema};
    /// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
    /// # let database = Database::open("example", options)?;
    /// let schema = Schema::parse("id int64 not null, name utf8, primary key (id)")?;
    /// let table = database.create_typed_table("people", schema, TableOptions::default())?;
    /// table.insert_row(&[DatumRef::Int64(1), DatumRef::Utf8("Ada")], Durability::Os)?;
    /// table.patch_row(&[DatumRef::Int64(1)], &[("name", DatumRef::Utf8("Grace"))], Durability::Os)?;
    /// let rows: usize = table.scan_batches(ScanOptions::default())?.map(|batch| batch.unwrap().num_rows()).sum();
    /// assert_eq!(rows, 1);
    /// # Ok::<(), mycelium_engine::Error>(())
    /// ```
    pub fn scan_batches(&self, options: ScanOptions) -> Result<BatchScan> {
        self.scan_counted_in(self.shared.traces.as_ref(), options)
    }

    /// As [`Table::scan_batches`]; what it reads is counted in `traces`.
    pub(crate) fn scan_counted_in(&self, traces: Option<&Arc<TableTraces>>, options: ScanOptions) -> Result<BatchScan> {
        let formats = self.shared.typed_formats()?;
        let schema = formats.schema().clone();
        let (lower, upper) = key_bounds(&schema, &options.lower, &options.upper)?;
        let filter = options.filter.filter(|filter| !filter.conjuncts.is_empty());
        let descending = options.descending;
        if options.tell_zones && (filter.is_some() || options.limit.is_some() || descending) {
            return Err(Error::invalid("zones do not say which rows pass a filter, nor which come first"));
        }
        let tested = tested_columns(&schema, filter.as_ref())?;
        let all = || schema.live_columns().map(|(column, _)| column).collect();
        let projection = options.projection.unwrap_or_else(all);
        let wanted = self.value_columns(Some(&projection))?.union(&self.value_columns(Some(&tested))?);
        let is_short = options.limit.is_some_and(|limit| limit <= SHORT);
        let read = ReadOptions {
            lower,
            upper,
            snapshot: options.snapshot,
            fill_cache: is_short,
            read_ahead: if is_short { 0 } else { 256 << 10 },
            expected_rows: options.limit.filter(|_| is_short && !descending),
            ..ReadOptions::default()
        };
        let moment = TableIterator::moment(&self.database, &self.shared, &read)?;
        let batch_rows = options.batch_rows.max(1);
        let expected_rows = options.limit.map_or(0, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let builder = |layout| {
            RecordBatchBuilder::with_texts(layout, &projection, batch_rows, options.texts)
                .map(|builder| builder.with_most_bytes(options.batch_bytes).with_expected_rows(expected_rows))
        };
        let left = options.limit.unwrap_or(u64::MAX);
        let shared = &self.shared;
        let filtering = (filter.as_ref(), options.filter_plan);
        let blocks = match descending {
            true => None,
            false => block_scan(shared, traces, (&moment.0, moment.1), &read, &wanted, filtering)?,
        };
        if let Some(mut blocks) = blocks {
            if options.tell_zones {
                blocks.tell_zones(&projection);
            }
            let builder = builder(Arc::new(PackedLayout::of(schema, &wanted)))?;
            let snapshot = read.snapshot.clone();
            let source = ScanSource::Blocks { scan: Box::new(blocks), _state: moment.0, _snapshot: snapshot };
            return Ok(BatchScan { source, builder, left, descending, done: false });
        }
        if filter.is_none() && !formats.is_packed() && !moment.0.tree.has_groups {
            // Rows lie as they were written: their columns are read without packing them first.
            let builder = builder(formats.packed_layout().clone())?;
            let mut rows = Box::new(TableIterator::stored_at(shared, traces, moment, &read, &wanted));
            to_begin(&mut rows, descending)?;
            let source = ScanSource::Stored { rows, format: formats.rows().clone(), scratch: Box::default() };
            return Ok(BatchScan { source, builder, left, descending, done: false });
        }
        let (rows, layout) = TableIterator::packed_at(shared, traces, moment, &read, &wanted)?;
        let builder = builder(layout.clone())?;
        // A filter is tested on packed rows.
        let is_lent = filter.is_none() && builder.takes_parts() && !descending;
        let mut rows = if is_lent { rows.lending() } else { rows };
        let filter = filter.map(|filter| RowFilter::new(layout, &filter));
        to_begin(&mut rows, descending)?;
        let source = ScanSource::Rows { rows: Box::new(rows), filter, scratch: Box::default() };
        Ok(BatchScan { source, builder, left, descending, done: false })
    }
}

/// To the first row of a scan.
fn to_begin(rows: &mut TableIterator, descending: bool) -> Result<()> {
    if descending { rows.seek_to_last() } else { rows.seek_to_first() }
}

/// The first key and the end of a range of keys, `[first, end)`; `None` is unbounded.
type KeyBounds = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Which keys a scan's bounds let through.
fn key_bounds(schema: &Schema, lower: &Bound<Vec<Datum>>, upper: &Bound<Vec<Datum>>) -> Result<KeyBounds> {
    let first_key = |values: &[Datum], is_past: bool| -> Result<Option<Vec<u8>>> {
        let mut out = Vec::new();
        key::encode_key_prefix(schema, &borrow(values), &mut out)?;
        Ok(if is_past { key::prefix_successor(&out) } else { Some(out) })
    };
    let first = match lower {
        Bound::Unbounded => None,
        Bound::Included(values) => first_key(values, false)?,
        Bound::Excluded(values) => first_key(values, true)?,
    };
    let end = match upper {
        // Past the last key there is nothing.
        _ if first.is_none() && *lower != Bound::Unbounded => Some(Vec::new()),
        Bound::Unbounded => None,
        Bound::Included(values) => first_key(values, true)?,
        Bound::Excluded(values) => first_key(values, false)?,
    };
    Ok((first, end))
}

/// The columns that a filter tests; an error for one that does not exist, or cannot have the values that it is compared
/// with.
fn tested_columns(schema: &Schema, filter: Option<&Filter>) -> Result<Vec<usize>> {
    let tests = || filter.into_iter().flat_map(|filter| &filter.conjuncts);
    if let Some(test) = tests().find(|test| !test.suits(schema)) {
        return Err(Error::invalid(match schema.columns().get(test.column).filter(|column| !column.is_dropped()) {
            None => format!("the filter names column {}, which does not exist", test.column),
            Some(column) => {
                format!("the filter compares column \"{}\", of type {}, with other values", column.name, column.ty)
            }
        }));
    }
    Ok(tests().map(|test| test.column).collect())
}

/// The columns of `projection` (all if `None`) of a packed row.
pub(crate) fn datums_of(
    layout: &PackedLayout,
    key: &[u8],
    value: &[u8],
    projection: Option<&[usize]>,
) -> Result<Vec<Datum>> {
    let row = layout.row(value)?;
    project(layout.schema(), key, projection, |column| {
        Ok(row.datum(column)?.map_or(Datum::Null, |datum| datum.to_datum()))
    })
}

/// As [`datums_of`], of a row in the table's own format, in which these are outside the key.
pub(crate) fn datums_of_stored(
    rows: &RowFormat,
    key: &[u8],
    value: &[u8],
    (projection, outside_key): (Option<&[usize]>, &ColumnSet),
    scratch: &mut RowScratch,
) -> Result<Vec<Datum>> {
    let mut row = rows.read(value, Some(outside_key), scratch)?;
    project(rows.schema(), key, projection, |column| {
        Ok(match row.get(column)? {
            ColumnState::Value(datum) => datum.to_datum(),
            ColumnState::Null | ColumnState::Absent => Datum::Null,
        })
    })
}

/// The columns of `projection` (all if `None`) of a row with this key; `outside_key` gives those that are not in it.
/// One that was dropped is null.
fn project(
    schema: &Schema,
    key: &[u8],
    projection: Option<&[usize]>,
    mut outside_key: impl FnMut(usize) -> Result<Datum>,
) -> Result<Vec<Datum>> {
    let columns = schema.columns().len();
    let wanted = projection.map_or_else(|| Cow::Owned((0..columns).collect()), Cow::Borrowed);
    if let Some(column) = wanted.iter().find(|&&column| column >= columns) {
        return Err(Error::invalid(format!("column {column} does not exist")));
    }
    let stored_key = key::decode_key(schema, key)?;
    let datum = |&column: &usize| match schema.primary_key().iter().position(|&p| p == column) {
        Some(at) => Ok(stored_key[at].clone()),
        None if schema.has_column(column) => outside_key(column),
        None => Ok(Datum::Null),
    };
    wanted.iter().map(datum).collect()
}

/// Record batches of a scan ([`Table::scan_batches`]); ends after the first error. It keeps the files and memtables of
/// the state that it reads until it is dropped.
pub struct BatchScan {
    source: ScanSource,
    builder: RecordBatchBuilder,
    left: u64,
    descending: bool,
    done: bool,
}

/// Where the rows of a scan come from.
enum ScanSource {
    /// Row by row, packed, or lent as they lie, whole or in parts.
    Rows { rows: Box<TableIterator>, filter: Option<RowFilter>, scratch: Box<RowScratch> },
    /// Row by row, in the table's own format.
    Stored { rows: Box<TableIterator>, format: RowFormat, scratch: Box<RowScratch> },
    /// Blocks of columns; the files and versions that they need are kept.
    Blocks { scan: Box<BlockScan>, _state: Arc<TableState>, _snapshot: Option<Snapshot> },
}

impl BatchScan {
    /// What the scan has read and skipped so far.
    pub fn counters(&self) -> ReadCounters {
        match &self.source {
            ScanSource::Rows { rows, .. } | ScanSource::Stored { rows, .. } => rows.counters(),
            ScanSource::Blocks { scan, .. } => scan.counters(),
        }
    }

    /// The rows that were told by zones so far, instead of given ([`ScanOptions::tell_zones`]); `None` if none can be:
    /// the table's oldest runs are not columnar, or zones do not say all of a column, as of texts and the primary key.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use mycelium_engine::{Database, Durability, Options, ScanOptions, TableOptions};
    /// use mycelium_encoding::{Datum, DatumRef, Schema};
    /// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
    /// # let database = Database::open("example", options)?;
    /// let schema = Schema::parse("id int64 not null, heat int64, primary key (id)")?;
    /// let table = database.create_typed_table("weather", schema, TableOptions::default())?;
    /// for id in 0..50_000 {
    ///     table.insert_row(&[DatumRef::Int64(id), DatumRef::Int64(id % 41)], Durability::Buffered)?;
    /// }
    /// database.compact(&table)?;
    /// let heat = ScanOptions { projection: Some(vec![1]), tell_zones: true, ..ScanOptions::default() };
    /// let mut scan = table.scan_batches(heat)?;
    /// let given: usize = scan.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
    /// let told = scan.told().unwrap();
    /// assert_eq!(given as u64 + told.rows, 50_000);
    /// assert!(told.blocks > 0);
    /// assert_eq!(told.columns[0].bounds, Some((Datum::Int64(0), Datum::Int64(40))));
    /// # Ok::<(), mycelium_engine::Error>(())
    /// ```
    pub fn told(&self) -> Option<&ToldRows> {
        match &self.source {
            ScanSource::Rows { .. } | ScanSource::Stored { .. } => None,
            ScanSource::Blocks { scan, .. } => scan.told(),
        }
    }

    /// As [`Iterator::next`], but gives `None` in place of a batch that is not full yet, and goes on at the next call,
    /// once it has looked at some thousand rows or stretches of rows: whoever waits for the batch may have gone.
    pub fn next_or_pause(&mut self) -> Option<Result<Option<arrow_array::RecordBatch>>> {
        if self.done {
            return None;
        }
        let next = self.fill().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }

    /// The next batch, or a pause; nothing at the end.
    fn fill(&mut self) -> Result<Option<Option<arrow_array::RecordBatch>>> {
        let Self { source, builder, left, descending, .. } = self;
        let descending = *descending;
        let mut steps = STEPS_BEFORE_PAUSE;
        if builder.is_empty() && *left > 0 {
            builder.begin_batch(usize::try_from(*left).unwrap_or(usize::MAX));
        }
        match source {
            ScanSource::Rows { rows, filter, scratch } => {
                let filter = filter.as_ref();
                append_rows((rows, descending), (builder, scratch), (left, &mut steps), |builder, scratch, row| {
                    if let Some(format) = row.lent {
                        return builder.append_stored(row.key, row.value, format, scratch).map(|()| true);
                    }
                    let passes = filter.map_or(Ok(true), |filter| filter.passes(row.key, row.value))?;
                    if passes { builder.append(row.key, row.value).map(|()| true) } else { Ok(false) }
                })?;
            }
            ScanSource::Stored { rows, format, scratch } => {
                append_rows((rows, descending), (builder, scratch), (left, &mut steps), |builder, scratch, row| {
                    builder.append_stored(row.key, row.value, format, scratch).map(|()| true)
                })?;
            }
            ScanSource::Blocks { scan, .. } => scan.fill(builder, left, &mut steps)?,
        }
        if builder.is_empty() && builder.is_full() {
            // The texts that fill it were of rows that are gone; others follow.
            builder.finish()?;
            return Ok(Some(None));
        }
        match (steps == 0 && *left > 0 && !builder.is_full(), builder.is_empty()) {
            (true, _) => Ok(Some(None)),
            (false, true) => Ok(None),
            (false, false) => builder.finish().map(|batch| Some(Some(batch))),
        }
    }
}

/// Has `append` append rows, in this order, or pass them over, until the batch or the scan has all it may have, or the
/// steps are taken. Rows that are lent in parts are appended so.
fn append_rows(
    (rows, descending): (&mut TableIterator, bool),
    (builder, scratch): (&mut RecordBatchBuilder, &mut RowScratch),
    (left, steps): (&mut u64, &mut u32),
    mut append: impl FnMut(&mut RecordBatchBuilder, &mut RowScratch, &LyingRow<'_>) -> Result<bool>,
) -> Result<()> {
    while rows.valid() && *left > 0 && *steps > 0 && !builder.is_full() {
        let mut result = Ok(());
        let are_shown = !descending
            && rows.visit_lying(|row| {
                if *steps == 0 || builder.is_full() {
                    return false;
                }
                *steps -= 1;
                match append(builder, scratch, row) {
                    Ok(is_appended) => *left -= u64::from(is_appended),
                    Err(error) => result = Err(error),
                }
                // What lies behind the last one is not asked for: it may be another block.
                *left > 0 && result.is_ok()
            })?;
        result?;
        if are_shown {
            continue;
        }
        *steps -= 1;
        let is_appended = match rows.parts() {
            Some(parts) => builder.append_parts(rows.key(), parts, scratch).map(|()| true)?,
            None => append(builder, scratch, &rows.lying())?,
        };
        *left -= u64::from(is_appended);
        if *left > 0 {
            if descending { rows.prev()? } else { rows.next()? }
        }
    }
    Ok(())
}

impl Iterator for BatchScan {
    type Item = Result<arrow_array::RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(batch) = self.next_or_pause()?.transpose() {
                return Some(batch);
            }
        }
    }
}

impl WriteBatch {
    /// Adds a whole row, one value per column in schema order. What it derives for the table's indexes is made at once
    /// and kept with the batch, up to the first operation of another kind than rows and deletes.
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::InvalidArgument`] if a value does not fit its column; the batch is as before.
    pub fn insert_row(&mut self, table: &Table, row: &[DatumRef<'_>]) -> Result<&mut Self> {
        self.put_row(table, row, |buffers| table.encode_row(row, buffers))
    }

    /// Adds a whole row that the caller packed by this layout, which is stored in the table's row format.
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::InvalidArgument`] if the layout is another than the table's
    /// ([`Table::packed_layout`]), as one from before a change of its columns is, or if it is no packed row of the
    /// table; the batch is as before.
    pub fn put_packed(&mut self, table: &Table, layout: &PackedLayout, key: &[u8], packed: &[u8]) -> Result<&mut Self> {
        let formats = table.shared.typed_formats()?;
        formats.check_layout(layout)?;
        if formats.is_packed() {
            return Ok(self.put(table, key, packed));
        }
        formats.packed_layout().validate(packed).map_err(|e| Error::invalid("malformed packed row").caused_by(e))?;
        let value = formats.stored(packed.to_vec())?;
        Ok(self.put_encoded(table, key, &value))
    }

    /// Adds a change of some columns, by name. Errors as [`WriteBatch::insert_row`].
    pub fn patch_row(
        &mut self,
        table: &Table,
        key_values: &[DatumRef<'_>],
        changes: &[(&str, DatumRef<'_>)],
    ) -> Result<&mut Self> {
        self.patch_with(table, |buffers| table.encode_patch(key_values, changes, buffers))
    }

    /// Adds the removal of a row. Errors as [`Table::row_key`]; the batch is as before.
    pub fn delete_row(&mut self, table: &Table, key_values: &[DatumRef<'_>]) -> Result<&mut Self> {
        let key = table.row_key(key_values)?;
        Ok(self.delete(table, &key))
    }
}
