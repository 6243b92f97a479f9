//! Reads what a partition of a scan asks for, batch by batch, in the caller's thread.
//!
//! Ranges are read one after the other, in key order, or the last row of the last of them first:
//!
//! - a whole key is looked up; the rows of neighbouring look-ups share a batch,
//! - any other range is scanned,
//! - ranges of an index are looked up in it. The first batch is small: who wants a few rows waits for no more.
//!
//! Every way tests the rows: a scan hands the tests to the engine, rows looked up are tested here.
//!
//! Nothing here knows of tasks: `send` says whether anyone still wants rows.

use std::ops::Bound;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use datafusion::error::DataFusionError;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder};
use mycelium_base::limits::MAX_KEY_LEN;
use mycelium_base::{Error, ReadCounters, Result};
use mycelium_encoding::batch::batch_of;
use mycelium_encoding::page::{ColumnTest, Filter};
use mycelium_encoding::{Column, ColumnState, Datum, DatumRef, PackedLayout, RecordBatchBuilder, Schema, key};
use mycelium_engine::{Index, ReadOptions, ScanOptions, Snapshot, Table, ToldRows};

use crate::failure::outward;
use crate::key_range::KeyRange;
use crate::sql_type::{TEXTS, to_sql};

/// Bytes of texts from which on rows found by their keys or by an index are handed on, however few.
const BATCH_BYTES: usize = 16 << 20;
/// Rows of the first batch of an index's.
const FIRST_BATCH: usize = 256;

/// What a partition of a scan has to read.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) table: Table,
    pub(crate) snapshot: Snapshot,
    /// Where the ranges are ranges of an index, that index.
    pub(crate) index: Option<Index>,
    /// Disjoint, in the order in which they are read.
    pub(crate) ranges: Vec<KeyRange>,
    /// Whether the last row of a range comes first.
    pub(crate) descending: bool,
    pub(crate) projection: Arc<[usize]>,
    /// What rows have to pass.
    pub(crate) tests: Arc<[ColumnTest]>,
    pub(crate) batch_rows: usize,
    /// Rows at most.
    pub(crate) limit: Option<usize>,
}

/// What reading did, as `EXPLAIN ANALYZE` shows it.
#[derive(Clone, Debug)]
pub(crate) struct ScanCounts {
    pub(crate) baseline: BaselineMetrics,
    blocks_read: Count,
    blocks_cached: Count,
    blocks_skipped: Count,
    rows_passed_through: Count,
    rows_interleaved: Count,
    rows_merged: Count,
    candidates_checked: Count,
    block_deltas_found: Count,
    block_deltas_reused: Count,
    bytes_read: Count,
    files_searched: Count,
    files_skipped: Count,
}

impl ScanCounts {
    pub(crate) fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let count = |name: &'static str| MetricBuilder::new(metrics).counter(name, partition);
        Self {
            baseline: BaselineMetrics::new(metrics, partition),
            blocks_read: count("blocks_read"),
            blocks_cached: count("blocks_cached"),
            blocks_skipped: count("blocks_skipped"),
            rows_passed_through: count("rows_passed_through"),
            rows_interleaved: count("rows_interleaved"),
            rows_merged: count("rows_merged"),
            candidates_checked: count("candidates_checked"),
            block_deltas_found: count("block_deltas_found"),
            block_deltas_reused: count("block_deltas_reused"),
            bytes_read: count("bytes_read"),
            files_searched: count("files_searched"),
            files_skipped: count("files_skipped"),
        }
    }

    /// Adds what was read between two readings of the same counters.
    fn add(&self, before: &ReadCounters, after: &ReadCounters) {
        let add = |count: &Count, of: fn(&ReadCounters) -> u64| {
            count.add(of(after).saturating_sub(of(before)) as usize);
        };
        add(&self.blocks_read, |counters| counters.blocks_read);
        add(&self.blocks_cached, |counters| counters.block_cache_hits);
        add(&self.blocks_skipped, |counters| counters.blocks_skipped_by_snapshot + counters.blocks_skipped_by_zone);
        add(&self.rows_passed_through, |counters| counters.rows_passed_through);
        add(&self.rows_interleaved, |counters| counters.rows_interleaved);
        add(&self.rows_merged, |counters| counters.rows_merged);
        add(&self.candidates_checked, |counters| counters.candidates_checked);
        add(&self.block_deltas_found, |counters| counters.block_deltas_found);
        add(&self.block_deltas_reused, |counters| counters.block_deltas_reused);
        add(&self.bytes_read, |counters| counters.bytes_read);
        add(&self.files_searched, |counters| counters.files_searched);
        add(&self.files_skipped, |counters| {
            let by_filters = counters.files_skipped_by_bloom + counters.files_skipped_by_prefix;
            counters.files_skipped_by_fence + counters.files_skipped_by_snapshot + by_filters
        });
    }
}

impl Work {
    /// Whether it is a few look-ups of whole keys, done before a thread is woken.
    pub(crate) fn is_brief(&self) -> bool {
        const FEW: usize = 16;
        let columns = self.key_columns();
        self.index.is_none()
            && self.ranges.len() <= FEW
            && self.ranges.iter().all(|range| range.point(columns).is_some())
    }

    /// Hands every batch to `send`, until that says that nobody wants more; now and then `None`, to ask for nothing
    /// else.
    pub(crate) fn run(&self, counts: &ScanCounts, send: &mut dyn FnMut(Option<RecordBatch>) -> bool) -> Result<()> {
        let mut reader = Reader { work: self, counts, send, left: self.limit.unwrap_or(usize::MAX), lookups: None };
        for range in &self.ranges {
            if reader.left == 0 {
                break;
            }
            match (&self.index, range.point(self.key_columns())) {
                (Some(index), _) => reader.look_into(index, range)?,
                (None, Some(key)) => reader.look_up(key)?,
                (None, None) => {
                    reader.finish_lookups()?;
                    reader.scan(range)?;
                }
            }
        }
        reader.finish_lookups()
    }

    /// Scans the ranges for one column, or for none, and lets blocks be told by their zones; gives `note` what it
    /// finds, part by part. Whether it came to the end before `is_over`.
    pub(crate) fn scan_told(
        &self,
        column: Option<usize>,
        counts: &ScanCounts,
        mut note: impl FnMut(ToldScan) -> Result<(), DataFusionError>,
        is_over: impl Fn() -> bool,
    ) -> Result<bool, DataFusionError> {
        let _timer = counts.baseline.elapsed_compute().timer();
        let definition = column.map(|column| self.schema().map(|schema| schema.columns()[column].clone()));
        let definition = definition.transpose().map_err(outward)?;
        for range in &self.ranges {
            let options = ScanOptions {
                projection: Some(column.into_iter().collect()),
                lower: range.lower.clone(),
                upper: range.upper.clone(),
                snapshot: Some(self.snapshot.clone()),
                batch_rows: self.batch_rows,
                texts: TEXTS,
                tell_zones: true,
                ..ScanOptions::default()
            };
            let mut scan = self.table.scan_batches(options).map_err(outward)?;
            while let Some(batch) = scan.next_or_pause().transpose().map_err(outward)? {
                if is_over() {
                    return Ok(false);
                }
                if let Some(batch) = batch {
                    note(ToldScan::of_rows(batch).map_err(outward)?)?;
                }
            }
            counts.add(&ReadCounters::default(), &scan.counters());
            if let Some(told) = scan.told().filter(|told| told.rows > 0) {
                note(ToldScan::of_zones(told, definition.as_ref()).map_err(outward)?)?;
            }
        }
        Ok(true)
    }

    /// What the first and the last row of the ranges, which ascend, have of the key's first column; `None` if there is
    /// no row.
    pub(crate) fn first_keys_at_ends(&self, counts: &ScanCounts) -> Result<Option<ToldScan>> {
        let _timer = counts.baseline.elapsed_compute().timer();
        let schema = self.schema()?;
        let Some(&first_column) = schema.primary_key().first() else { return Ok(None) };
        let end_of = |ranges: &mut dyn Iterator<Item = &KeyRange>, is_last: bool| -> Result<Option<Datum>> {
            for range in ranges {
                let (lower, upper) = range.encode(schema)?;
                let options = ReadOptions { lower: Some(lower), upper, ..ReadOptions::at(&self.snapshot) };
                let (mut rows, _) = self.table.iter_packed(Some(&[first_column]), &options)?;
                if is_last {
                    rows.seek_to_last()?
                } else {
                    rows.seek_to_first()?
                }
                counts.add(&ReadCounters::default(), &rows.counters());
                if rows.valid() {
                    return Ok(key::decode_key(schema, rows.key())?.into_iter().next());
                }
            }
            Ok(None)
        };
        let least = end_of(&mut self.ranges.iter(), false)?;
        let (Some(least), Some(greatest)) = (least, end_of(&mut self.ranges.iter().rev(), true)?) else {
            return Ok(None);
        };
        let values = bounds_of(&schema.columns()[first_column], (&least, &greatest))?;
        Ok(Some(ToldScan { rows: 0, nulls: 0, values }))
    }

    fn key_columns(&self) -> usize {
        self.table.schema().map_or(0, |schema| schema.primary_key().len())
    }

    fn schema(&self) -> Result<&Arc<Schema>> {
        self.table.schema().ok_or_else(|| Error::invalid("a key-value table has no columns"))
    }

    /// The columns to read: those wanted, then those tested.
    fn columns_read(&self) -> Vec<usize> {
        self.projection.iter().copied().chain(self.tests.iter().map(|test| test.column)).collect()
    }
}

/// Rows of a scan for one column, or for none.
pub(crate) struct ToldScan {
    pub(crate) rows: u64,
    /// Of them, those where the column is null.
    pub(crate) nulls: u64,
    /// Values of the column: all, or the smallest and the largest.
    pub(crate) values: Option<ArrayRef>,
}

impl ToldScan {
    fn of_rows(batch: RecordBatch) -> Result<Self> {
        let (rows, batch) = (batch.num_rows() as u64, to_sql(batch)?);
        let values = batch.columns().first().cloned();
        Ok(Self { rows, nulls: values.as_ref().map_or(0, |values| values.null_count() as u64), values })
    }

    fn of_zones(told: &ToldRows, column: Option<&Column>) -> Result<Self> {
        let known = told.columns.first().cloned().unwrap_or_default();
        let values = match (column, &known.bounds) {
            (Some(column), Some((least, greatest))) => bounds_of(column, (least, greatest))?,
            _ => None,
        };
        Ok(Self { rows: told.rows, nulls: known.nulls, values })
    }
}

/// Two values of a column.
fn bounds_of(column: &Column, (least, greatest): (&Datum, &Datum)) -> Result<Option<ArrayRef>> {
    let both = [least, greatest].map(|bound| [bound.borrowed()]);
    Ok(to_sql(batch_of(std::slice::from_ref(column), TEXTS, both)?)?.columns().first().cloned())
}

struct Reader<'w> {
    work: &'w Work,
    counts: &'w ScanCounts,
    send: &'w mut dyn FnMut(Option<RecordBatch>) -> bool,
    /// Rows still wanted.
    left: usize,
    /// Rows looked up and not yet sent, with the layout that they were packed in.
    lookups: Option<(Arc<PackedLayout>, RecordBatchBuilder)>,
}

impl Reader<'_> {
    fn send(&mut self, batch: RecordBatch) -> Result<()> {
        let (rows, batch) = (batch.num_rows(), to_sql(batch)?);
        self.counts.baseline.record_output(rows);
        self.left = if (self.send)(Some(batch)) { self.left.saturating_sub(rows) } else { 0 };
        Ok(())
    }

    fn scan(&mut self, range: &KeyRange) -> Result<()> {
        let options = ScanOptions {
            projection: Some(self.work.projection.to_vec()),
            lower: range.lower.clone(),
            upper: range.upper.clone(),
            snapshot: Some(self.work.snapshot.clone()),
            batch_rows: self.work.batch_rows,
            limit: (self.left < usize::MAX).then_some(self.left as u64),
            descending: self.work.descending,
            filter: Some(Filter { conjuncts: self.work.tests.to_vec() }),
            texts: TEXTS,
            ..ScanOptions::default()
        };
        let time = self.counts.baseline.elapsed_compute().clone();
        let mut timer = time.timer();
        let mut scan = self.work.table.scan_batches(options)?;
        let mut seen = ReadCounters::default();
        while self.left > 0 {
            let batch = scan.next_or_pause();
            timer.stop();
            let counters = scan.counters();
            self.counts.add(&seen, &counters);
            seen = counters;
            match batch.transpose()? {
                Some(Some(batch)) => self.send(batch)?,
                Some(None) if (self.send)(None) => {}
                Some(None) => self.left = 0,
                None => break,
            }
            timer.restart();
        }
        Ok(())
    }

    fn look_up(&mut self, key: &[Datum]) -> Result<()> {
        let _timer = self.counts.baseline.elapsed_compute().timer();
        let (table, projection) = (&self.work.table, &self.work.projection);
        let (values, columns) = (key, self.work.columns_read());
        let mut key = Vec::new();
        key::encode_key_prefix(self.work.schema()?, &values.iter().map(Datum::borrowed).collect::<Vec<_>>(), &mut key)?;
        if key.len() > MAX_KEY_LEN {
            // No row has it.
            return Ok(());
        }
        let mut counters = ReadCounters::default();
        let found = table.get_packed(&key, Some(&columns), &ReadOptions::at(&self.work.snapshot), &mut counters)?;
        self.counts.add(&ReadCounters::default(), &counters);
        let Some((layout, row)) = found else { return Ok(()) };
        if !self.passes(values, &layout, &row)? {
            return Ok(());
        }
        // A layout that changes between two look-ups changes what rows are packed in.
        if self.lookups.as_ref().is_some_and(|(known, builder)| !Arc::ptr_eq(known, &layout) || builder.is_full()) {
            self.finish_lookups()?;
        }
        let builder = match &mut self.lookups {
            Some((_, builder)) => builder,
            none => {
                let rows = self.work.batch_rows.min(self.left).max(1);
                let builder = RecordBatchBuilder::with_texts(layout.clone(), projection, rows, TEXTS)?;
                &mut none.insert((layout, builder.with_most_bytes(BATCH_BYTES))).1
            }
        };
        builder.append(&key, &row)?;
        if builder.is_full() { self.finish_lookups() } else { Ok(()) }
    }

    /// Whether a row looked up passes the tests.
    fn passes(&self, key: &[Datum], layout: &PackedLayout, row: &[u8]) -> Result<bool> {
        if self.work.tests.is_empty() {
            return Ok(true);
        }
        let (row, primary_key) = (layout.row(row)?, layout.schema().primary_key());
        for ColumnTest { column, test } in self.work.tests.iter() {
            let value = match primary_key.iter().position(|of_key| of_key == column) {
                Some(at) => key.get(at).map(Datum::borrowed),
                None => row.datum(*column)?,
            };
            if !test.passes(ColumnState::Value(value.unwrap_or(DatumRef::Null))) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn finish_lookups(&mut self) -> Result<()> {
        if let Some((_, mut builder)) = self.lookups.take()
            && !builder.is_empty()
        {
            self.send(builder.finish()?)?;
        }
        Ok(())
    }

    fn look_into(&mut self, index: &Index, range: &KeyRange) -> Result<()> {
        let time = self.counts.baseline.elapsed_compute().clone();
        let (schema, wanted) = (self.work.schema()?, self.work.projection.len());
        let column = |&at: &usize| schema.columns().get(at).cloned();
        let columns: Option<Vec<Column>> = self.work.projection.iter().map(column).collect();
        let columns = columns.ok_or_else(|| Error::invalid("the projection names a column that does not exist"))?;
        let mut rows = index_rows(index, range, &self.work.columns_read(), &self.work.snapshot)?;
        let (mut seen, mut batch_rows) = (ReadCounters::default(), FIRST_BATCH.min(self.work.batch_rows));
        while self.left > 0 {
            let mut timer = time.timer();
            let passes = |values: &[Datum]| {
                let mut tested = self.work.tests.iter().zip(values.iter().skip(wanted));
                tested.all(|(test, value)| test.test.passes(ColumnState::from(value.borrowed())))
            };
            let (mut found, mut bytes) = (Vec::new(), 0);
            while found.len() < batch_rows.min(self.left) && bytes < BATCH_BYTES {
                let Some(row) = rows.next() else { break };
                let values = row?.values;
                if passes(&values) {
                    bytes += values.iter().map(text_len).sum::<usize>();
                    found.push(values);
                }
            }
            let counters = rows.counters();
            self.counts.add(&seen, &counters);
            seen = counters;
            if found.is_empty() {
                break;
            }
            let values = found.iter().map(|row| row.iter().take(wanted).map(Datum::borrowed));
            let batch = batch_of(&columns, TEXTS, values)?;
            timer.stop();
            self.send(batch)?;
            batch_rows = self.work.batch_rows;
        }
        Ok(())
    }
}

/// Bytes of a text or of binary.
fn text_len(value: &Datum) -> usize {
    match value {
        Datum::Utf8(text) => text.len(),
        Datum::Binary(bytes) => bytes.len(),
        _ => 0,
    }
}

/// The rows of a range of an index.
pub(crate) fn index_rows(
    index: &Index,
    range: &KeyRange,
    projection: &[usize],
    snapshot: &Snapshot,
) -> Result<mycelium_engine::IndexRows> {
    let values = |bound: &Bound<Vec<Datum>>| match bound {
        Bound::Included(values) | Bound::Excluded(values) => values.clone(),
        Bound::Unbounded => Vec::new(),
    };
    let (lower, upper) = (values(&range.lower), values(&range.upper));
    let lower: Vec<DatumRef<'_>> = lower.iter().map(Datum::borrowed).collect();
    let upper: Vec<DatumRef<'_>> = upper.iter().map(Datum::borrowed).collect();
    let bounds = (range.lower.as_ref().map(|_| lower.as_slice()), range.upper.as_ref().map(|_| upper.as_slice()));
    index.range(bounds, Some(projection), Some(snapshot))
}
