//! Lookups through an index.
//!
//! At a snapshot `s`, of one state that holds table and index as they were at one moment:
//!
//! 1. Merge the derived table's memtables and runs within the bounds; per derived key the newest entry at or before `s`
//!    that no removal names ([`mycelium_merge::ExactCursor`]) is a *candidate* `(row key, q)`.
//! 2. If the table has nothing for the row key with a sequence number in `(q, s]`, neither an entry nor a range delete
//!    (`newer`), then the candidate is the row's visible version. It answers alone if what is asked for is indexed,
//!    covered, or in the key.
//! 3. Otherwise the row is read at `s` and its indexed values are compared with the candidate's (of a flat-map, what is
//!    derived from it): equal, and it is answered with; else the candidate is stale and passed over. Equal keys are
//!    entries of one row, so no row comes twice.
//!
//! Step 2 rests on what flushes and compactions do: they remove the entry of a version with the version itself, in one
//! edit. Where they could not (columns of an index in several column groups, patches older than the index) entries
//! below [`super::IndexStatus::trusted_from`] always go to step 3.
//!
//! A float's zero has one code for two values and NaN one for many, so that such values are taken from the row.
//!
//! While the index is not built, the table is scanned instead, as often as the rows found do not fit a budget of
//! memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arc_swap::Guard;
use mycelium_base::{
    ColumnSet, Error, ErrorKind, Group, GroupFormat, Operation, ReadCounters, Result, RowFormatKind, SequenceNumber,
};
use mycelium_encoding::row_format::RowScratch;
use mycelium_encoding::{Datum, PackedLayout, key};
use mycelium_merge::{ExactCursor, MergingCursor};
use mycelium_sst::GetScratch;
use mycelium_transform::Deriver;

use super::definition::IndexShared;
use super::manage::Index;
use super::newer::{Feeds, Span, has_newer};
use super::source::IndexSource;
use super::unfit::refused_row;
use crate::database::Inner;
use crate::iterator::derived_entries;
use crate::read::PointRead;
use crate::read_options::ReadOptions;
use crate::snapshot::Snapshot;
use crate::sources::Source;
use crate::sync::atomic::Ordering;
use crate::table::{IndexState, Table, TableShared, TableState};
use crate::typed::{datums_of, datums_of_stored};

/// Bytes of rows that a lookup through an index that is not built gathers from one scan of the table.
const SCANNED_BYTES: usize = 4 << 20;

/// A row found through an index.
#[derive(Clone, PartialEq, Debug)]
pub struct IndexRow {
    /// The row's key, which decodes to the primary key.
    pub key: Vec<u8>,
    /// The columns asked for.
    pub values: Vec<Datum>,
    /// What a flat-map derives from the row; `None` of an index on columns.
    pub derived: Option<DerivedEntry>,
}

/// What a flat-map derives from a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DerivedEntry {
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

/// Rows in the order of an index; ends after the first error. It reads one state of table and index, whose files and
/// memtables it keeps until it is dropped.
pub struct IndexRows {
    rows: Rows,
    is_done: bool,
    database: Arc<Inner>,
}

impl Drop for IndexRows {
    fn drop(&mut self) {
        if let Rows::Indexed(rows) = &self.rows {
            let (found, counts) = (rows.found, &self.database.counters);
            counts.index_candidates.fetch_add(found.candidates, Ordering::Relaxed);
            counts.index_stale.fetch_add(found.stale, Ordering::Relaxed);
            counts.index_only.fetch_add(found.index_only, Ordering::Relaxed);
        }
    }
}

enum Rows {
    Indexed(Box<IndexedRows>),
    Scanned(Box<ScannedRows>),
}

impl IndexRows {
    /// The rows whose derived keys lie in `[from, to)`.
    pub(crate) fn open(
        index: &Index,
        from: Vec<u8>,
        to: Option<Vec<u8>>,
        projection: Option<&[usize]>,
        snapshot: Option<&Snapshot>,
    ) -> Result<Self> {
        let table = &index.table;
        let schema = &index.shared.schema;
        if let Some(column) = projection.unwrap_or_default().iter().find(|&&column| !schema.has_column(column)) {
            return Err(Error::invalid(format!("column {column} does not exist")));
        }
        let all = || (0..schema.columns().len()).collect();
        let projection: Vec<usize> = projection.map_or_else(all, <[usize]>::to_vec);
        let (state, sequence) = table.database.read_moment(&table.shared, snapshot)?;
        let state = Guard::into_inner(state);
        let found = state.indexes.iter().find(|found| Arc::ptr_eq(&found.table, &index.derived)).cloned();
        // What a database opened read-only showed before it caught up with the making of the index.
        let is_older = || snapshot.is_some_and(|snapshot| snapshot.shown().is_some());
        if found.is_none() && !(is_older() && index.derived.check_alive().is_ok()) {
            return Err(dropped(index));
        }
        let rows = if let Some(found) = found.filter(|found| found.status.is_built) {
            let lookup = Lookup::new(table.shared.clone(), state, found, sequence, snapshot, projection);
            Rows::Indexed(Box::new(IndexedRows::new(lookup, from, to)?))
        } else {
            let pinned = snapshot.cloned().unwrap_or_else(|| table.database.take_snapshot());
            Rows::Scanned(Box::new(ScannedRows::new(table, index, pinned, (from, to), projection)?))
        };
        Ok(Self { rows, is_done: false, database: table.database.clone() })
    }

    /// The derived key of the row that came last.
    pub(crate) fn derived_key(&self) -> &[u8] {
        match &self.rows {
            Rows::Indexed(rows) => rows.entries.key(),
            Rows::Scanned(rows) => &rows.derived_key,
        }
    }

    /// What was read and skipped so far; of lookups through an index that is not built, nothing is counted.
    pub fn counters(&self) -> ReadCounters {
        match &self.rows {
            Rows::Indexed(rows) => rows.counters(),
            Rows::Scanned(_) => ReadCounters::default(),
        }
    }
}

#[cold]
fn dropped(index: &Index) -> Error {
    let message = format!("the index {} of table {} was dropped", index.name(), index.table.name());
    match index.failure() {
        None => Error::new(ErrorKind::NotFound, message),
        Some(failure) => Error::new(ErrorKind::NotFound, format!("{message}: {failure}")).caused_by(failure),
    }
}

impl Iterator for IndexRows {
    type Item = Result<IndexRow>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let row = match &mut self.rows {
            Rows::Indexed(rows) => rows.next_row(),
            Rows::Scanned(rows) => rows.next_row(),
        };
        let row = row.transpose();
        self.is_done = !matches!(row, Some(Ok(_)));
        row
    }
}

/// What a lookup asks, and of which state.
struct Lookup {
    table: Arc<TableShared>,
    state: Arc<TableState>,
    index: IndexState,
    sequence: SequenceNumber,
    projection: Vec<usize>,
    /// The columns outside the primary key that are read from rows: those asked for, and those that an entry is
    /// compared with.
    wanted: ColumnSet,
    /// Of a row, in this order: the columns of the index, and those asked for.
    read: Vec<usize>,
    /// Whether entries hold all that is asked for.
    is_covered: bool,
    /// Where what entries are made of is.
    feeds: Feeds,
    /// Keeps the versions from being dropped.
    _snapshot: Option<Snapshot>,
}

impl Lookup {
    fn new(
        table: Arc<TableShared>,
        state: Arc<TableState>,
        index: IndexState,
        sequence: SequenceNumber,
        snapshot: Option<&Snapshot>,
        projection: Vec<usize>,
    ) -> Self {
        let schema = &index.index.schema;
        let source = &index.index.source;
        let asked: ColumnSet = projection.iter().copied().collect();
        let asked = asked.intersection(&schema.value_columns());
        let wanted = asked.union(&source.columns_compared(schema));
        let held = |column: usize| {
            schema.is_primary_key(column) || index.index.cover.contains(column) || source.on().contains(&column)
        };
        let is_covered = projection.iter().all(|&column| held(column));
        let read = source.on().iter().chain(&projection).copied().collect();
        let others = schema.value_columns();
        let others = table.formats.as_ref().map_or(&others, |formats| formats.whole.columns());
        let feeds = Feeds::new(&state.tree, &source.fed_by(others));
        let _snapshot = snapshot.cloned();
        Self { table, state, index, sequence, projection, wanted, read, is_covered, feeds, _snapshot }
    }
}

/// Steps 1 to 3 of the module.
struct IndexedRows {
    lookup: Lookup,
    from: Option<Vec<u8>>,
    entries: ExactCursor<MergingCursor<Source>>,
    counters: ReadCounters,
    found: Found,
    scratch: GetScratch,
    comparison: Comparison,
}

/// What became of the entries that a lookup looked at.
#[derive(Clone, Copy, Default)]
struct Found {
    candidates: u64,
    stale: u64,
    index_only: u64,
}

impl IndexedRows {
    fn new(lookup: Lookup, from: Vec<u8>, to: Option<Vec<u8>>) -> Result<Self> {
        let options = ReadOptions { lower: Some(from.clone()), upper: to.clone(), ..ReadOptions::default() };
        let IndexState { table, state, .. } = &lookup.index;
        let (entries, counters) = derived_entries(table, state, lookup.sequence, &options);
        let entries = ExactCursor::new(entries, lookup.sequence, to);
        let scratch = GetScratch::new(lookup.table.definition.options.snapshot_filter);
        let (found, comparison) = (Found::default(), Comparison::default());
        Ok(Self { lookup, from: Some(from), entries, counters, found, scratch, comparison })
    }

    fn counters(&self) -> ReadCounters {
        let mut counters = self.counters;
        self.entries.add_counters(&mut counters);
        counters
    }

    fn next_row(&mut self) -> Result<Option<IndexRow>> {
        loop {
            match self.from.take() {
                Some(from) => self.entries.seek(&from)?,
                None => self.entries.advance()?,
            }
            if !self.entries.valid() {
                return Ok(None);
            }
            self.found.candidates += 1;
            if let Some(row) = self.settle()? {
                return Ok(Some(row));
            }
            self.found.stale += 1;
        }
    }

    /// The row of the candidate, or `None` if it is stale.
    fn settle(&mut self) -> Result<Option<IndexRow>> {
        let Self { lookup, entries, counters, scratch, found, comparison, .. } = self;
        let index = &lookup.index.index;
        let (values, row_key) = index.decode_key(entries.key())?;
        if lookup.is_covered && entries.sequence() >= lookup.index.status.trusted_from && says_all(lookup, &values) {
            let span = Span { after: entries.sequence(), upto: lookup.sequence, has_version: true };
            if !has_newer(&lookup.table, (&lookup.state, &lookup.feeds), row_key, span, scratch, counters)? {
                found.index_only += 1;
                let derived = derived_entry(index, &values, entries.value());
                let values = entry_datums(index, &lookup.projection, &values, row_key, entries.value())?;
                return Ok(Some(IndexRow { key: row_key.to_vec(), values, derived }));
            }
        }
        let Some(row) = ReadRow::get(lookup, row_key, counters)? else { return Ok(None) };
        let borne_out = comparison.bears_out(lookup, entries.key(), row_key, &row)?;
        Ok(borne_out.map(|(read, value)| {
            let derived = derived_entry(index, &values, &value);
            IndexRow { key: row_key.to_vec(), values: read, derived }
        }))
    }
}

/// Compares entries with their rows.
#[derive(Default)]
struct Comparison {
    /// What derives from rows as the lookup reads them, of a flat-map; made when the first one is compared.
    deriver: Option<Deriver>,
    scratch: RowScratch,
    /// The codes of a row's indexed values.
    prefix: Vec<u8>,
}

impl Comparison {
    /// If the row derives the key of an entry, what is asked for of it, and the value that it derives with the key. Of
    /// an index on columns the value is left empty: the row has what it holds.
    fn bears_out(
        &mut self,
        lookup: &Lookup,
        key: &[u8],
        row_key: &[u8],
        row: &ReadRow,
    ) -> Result<Option<(Vec<Datum>, Vec<u8>)>> {
        let IndexShared { source, schema, .. } = &*lookup.index.index;
        let derived = match source {
            IndexSource::Columns(_) => Vec::new(),
            IndexSource::FlatMap(_) => {
                let derived = self.deriver(lookup)?.derive(row_key, Operation::Put, &row.bytes)?;
                let Some((_, value)) = derived.entries().find(|(derived, _)| *derived == key) else { return Ok(None) };
                value.to_vec()
            }
        };
        let mut indexed = row.datums(lookup, row_key, &mut self.scratch)?;
        let asked = indexed.split_off(source.on().len());
        if let IndexSource::Columns(_) = source {
            let (values, prefix) = (indexed.iter().map(Datum::borrowed).collect::<Vec<_>>(), &mut self.prefix);
            prefix.clear();
            source.encode_prefix(schema, &values, prefix)?;
            if *prefix != key[..key.len() - row_key.len()] {
                return Ok(None);
            }
        }
        Ok(Some((asked, derived)))
    }

    fn deriver(&mut self, lookup: &Lookup) -> Result<&mut Deriver> {
        Ok(match &mut self.deriver {
            Some(deriver) => deriver,
            none => {
                let formats = lookup.table.typed_formats()?;
                none.insert(lookup.index.index.source.deriver(formats.for_transformers(), &group_read(lookup)?)?)
            }
        })
    }
}

/// The group whose values a [`ReadRow`] is.
fn group_read(lookup: &Lookup) -> Result<Group> {
    if !lookup.state.tree.has_groups {
        return Ok(lookup.table.typed_formats()?.whole_group());
    }
    Ok(Group::new(lookup.wanted.clone(), GroupFormat::Row(RowFormatKind::Packed)))
}

/// What a flat-map derives, as users see it.
pub(super) fn derived_entry(index: &IndexShared, values: &[Datum], value: &[u8]) -> Option<DerivedEntry> {
    match (&index.source, values) {
        (IndexSource::FlatMap(_), [Datum::Binary(key)]) => {
            Some(DerivedEntry { key: key.clone(), value: value.to_vec() })
        }
        _ => None,
    }
}

/// Whether the values of an entry's key are those of its row, as far as they are asked for.
fn says_all(lookup: &Lookup, values: &[Datum]) -> bool {
    let index = &lookup.index.index;
    let is_ambiguous = |value: &Datum| match value {
        Datum::Float32(v) => *v == 0.0 || v.is_nan(),
        Datum::Float64(v) => *v == 0.0 || v.is_nan(),
        _ => false,
    };
    index.source.on().iter().zip(values).all(|(column, value)| {
        let is_elsewhere = index.schema.is_primary_key(*column) || index.cover.contains(*column);
        is_elsewhere || !lookup.projection.contains(column) || !is_ambiguous(value)
    })
}

/// The columns of `projection` from an entry alone.
fn entry_datums(
    index: &IndexShared,
    projection: &[usize],
    values: &[Datum],
    row_key: &[u8],
    covered: &[u8],
) -> Result<Vec<Datum>> {
    let primary = key::decode_key(&index.schema, row_key)?;
    let covered = index.covered.as_ref().map(|layout| layout.row(covered)).transpose()?;
    let datum = |&column: &usize| {
        if let Some(at) = index.schema.primary_key().iter().position(|&key| key == column) {
            return Ok(primary[at].clone());
        }
        if let Some(row) = covered.as_ref().filter(|_| index.cover.contains(column)) {
            return Ok(row.datum(column)?.map_or(Datum::Null, |datum| datum.to_datum()));
        }
        let at = index.source.on().iter().position(|&on| on == column);
        at.map(|at| values[at].clone()).ok_or_else(|| Error::invalid(format!("the index has no column {column}")))
    };
    projection.iter().map(datum).collect()
}

/// The row that a lookup's snapshot sees.
struct ReadRow {
    /// Of a packed row; `None` of a whole row in the table's own format, if that is another.
    layout: Option<Arc<PackedLayout>>,
    bytes: Vec<u8>,
}

impl ReadRow {
    fn get(lookup: &Lookup, row_key: &[u8], counters: &mut ReadCounters) -> Result<Option<Self>> {
        let (table, state) = (&lookup.table, &lookup.state);
        let read = PointRead::new(table, lookup.sequence);
        if !state.tree.has_groups {
            // Whatever its format: its columns are read without packing it first.
            let formats = table.typed_formats()?;
            let layout = formats.is_packed().then(|| formats.packed_layout().clone());
            return Ok(read.get(state, row_key, counters)?.map(|bytes| Self { layout, bytes }));
        }
        let plan = table.merge_plan(&state.tree, Some(&lookup.wanted))?;
        let row = read.get_columns(state, row_key, plan.clone(), counters)?;
        Ok(row.map(|bytes| Self { layout: Some(plan.layout().clone()), bytes }))
    }

    /// The columns that the lookup reads.
    fn datums(&self, lookup: &Lookup, row_key: &[u8], scratch: &mut RowScratch) -> Result<Vec<Datum>> {
        let columns = Some(lookup.read.as_slice());
        match &self.layout {
            Some(layout) => datums_of(layout, row_key, &self.bytes, columns),
            None => {
                let rows = lookup.table.typed_formats()?.rows();
                datums_of_stored(rows, row_key, &self.bytes, (columns, &lookup.wanted), scratch)
            }
        }
    }
}

/// The keys of the rows that have the values of `prefix` in an index that is built.
pub(super) fn holders(
    table: &Arc<TableShared>,
    state: &Arc<TableState>,
    index: &IndexState,
    prefix: &[u8],
    sequence: SequenceNumber,
) -> Result<Vec<Vec<u8>>> {
    let lookup = Lookup::new(table.clone(), state.clone(), index.clone(), sequence, None, Vec::new());
    let mut rows = IndexedRows::new(lookup, prefix.to_vec(), key::prefix_successor(prefix))?;
    let mut keys = Vec::new();
    while let Some(row) = rows.next_row()? {
        keys.push(row.key);
    }
    Ok(keys)
}

/// The keys of an index's entries that their rows bear out, ascending.
pub(super) fn entries_of(
    table: &Arc<TableShared>,
    state: &Arc<TableState>,
    index: &IndexState,
    sequence: SequenceNumber,
) -> Result<impl Iterator<Item = Result<Vec<u8>>>> {
    let lookup = Lookup::new(table.clone(), state.clone(), index.clone(), sequence, None, Vec::new());
    let mut rows = IndexedRows::new(lookup, Vec::new(), None)?;
    Ok(std::iter::from_fn(move || rows.next_row().map(|row| row.map(|_| rows.entries.key().to_vec())).transpose()))
}

/// Asks rows, as one moment has them, for what they derive.
pub(super) struct RowCheck {
    lookup: Lookup,
    comparison: Comparison,
    counters: ReadCounters,
    scratch: GetScratch,
}

impl RowCheck {
    /// `state` holds all that `sequence` sees, and goes on doing so: it is that of a snapshot.
    pub(super) fn new(
        table: &Arc<TableShared>,
        state: &Arc<TableState>,
        index: &IndexState,
        sequence: SequenceNumber,
    ) -> Self {
        let held = index.index.source.columns_read().iter().collect();
        let lookup = Lookup::new(table.clone(), state.clone(), index.clone(), sequence, None, held);
        let scratch = GetScratch::new(table.definition.options.snapshot_filter);
        Self { lookup, comparison: Comparison::default(), counters: ReadCounters::default(), scratch }
    }

    /// Why the index cannot hold the row that this key has at this moment, if there is one that it cannot.
    pub(super) fn refusal(&mut self, row_key: &[u8]) -> Result<Option<Error>> {
        let Self { lookup, comparison, counters, .. } = self;
        let Some(row) = ReadRow::get(lookup, row_key, counters)? else { return Ok(None) };
        let deriver = comparison.deriver(lookup)?;
        refused_row(&lookup.index.table.name, deriver, row_key, Operation::Put, &row.bytes)
    }

    pub(super) fn sequence(&self) -> SequenceNumber {
        self.lookup.sequence
    }

    /// Whether the row of a derived key derives it at this moment.
    pub(super) fn derives(&mut self, key: &[u8]) -> Result<bool> {
        let Self { lookup, comparison, counters, .. } = self;
        let (_, row_key) = lookup.index.index.decode_key(key)?;
        let Some(row) = ReadRow::get(lookup, row_key, counters)? else { return Ok(false) };
        Ok(comparison.bears_out(lookup, key, row_key, &row)?.is_some())
    }

    /// Whether the row of a derived key has changed between an earlier moment and this one. Files that hold nothing
    /// newer than the earlier one are not looked at.
    pub(super) fn has_changed_since(&mut self, earlier: SequenceNumber, key: &[u8]) -> Result<bool> {
        let Self { lookup, counters, scratch, .. } = self;
        let (_, row_key) = lookup.index.index.decode_key(key)?;
        let span = Span { after: earlier, upto: lookup.sequence, has_version: false };
        has_newer(&lookup.table, (&lookup.state, &lookup.feeds), row_key, span, scratch, counters)
    }
}

/// What verification found of an index.
#[derive(Default)]
pub(super) struct Held {
    /// Entries that their rows bear out.
    pub(super) held: u64,
    /// The keys of entries that would answer alone, but say something else than their rows.
    pub(super) untrue: Vec<Vec<u8>>,
}

/// Compares all entries of an index with their rows.
pub(super) fn check_entries(
    table: &Arc<TableShared>,
    state: &Arc<TableState>,
    index: &IndexState,
    sequence: SequenceNumber,
) -> Result<Held> {
    let held: Vec<usize> = index.index.source.on().iter().copied().chain(index.index.cover.iter()).collect();
    let lookup = Lookup::new(table.clone(), state.clone(), index.clone(), sequence, None, held);
    let mut rows = IndexedRows::new(lookup, Vec::new(), None)?;
    let mut found = Held::default();
    rows.entries.seek(&[])?;
    while rows.entries.valid() {
        let IndexedRows { lookup, entries, counters, scratch, comparison, .. } = &mut rows;
        let (values, row_key) = index.index.decode_key(entries.key())?;
        let span = Span { after: entries.sequence(), upto: lookup.sequence, has_version: true };
        let is_trusted = span.after >= index.status.trusted_from
            && !has_newer(table, (&lookup.state, &lookup.feeds), row_key, span, scratch, counters)?;
        let row = match ReadRow::get(lookup, row_key, counters)? {
            Some(row) => comparison.bears_out(lookup, entries.key(), row_key, &row)?,
            None => None,
        };
        found.held += u64::from(row.is_some());
        if is_trusted {
            let alone = entry_datums(&index.index, &lookup.projection, &values, row_key, entries.value())?;
            let says_row = |row: &[Datum], value: &[u8]| match index.index.source {
                IndexSource::Columns(_) => !says_all(lookup, &values) || row == alone,
                IndexSource::FlatMap(_) => value == entries.value(),
            };
            let is_true = row.is_some_and(|(row, value)| says_row(&row, &value));
            if !is_true && found.untrue.len() < MOST_UNTRUE {
                found.untrue.push(entries.key().to_vec());
            }
        }
        entries.advance()?;
    }
    Ok(found)
}

/// Untrue entries whose keys are kept.
const MOST_UNTRUE: usize = 1000;

/// Rows of an index that is not built: the table is scanned for those with the smallest derived keys, as many as fit
/// the budget, and again for those after them.
struct ScannedRows {
    table: Table,
    index: Arc<IndexShared>,
    deriver: Deriver,
    snapshot: Snapshot,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    projection: Vec<usize>,
    /// By their derived keys.
    gathered: VecDeque<(Vec<u8>, IndexRow)>,
    /// Of the row that came last.
    derived_key: Vec<u8>,
    is_complete: bool,
}

impl ScannedRows {
    fn new(
        table: &Table,
        index: &Index,
        snapshot: Snapshot,
        (from, to): (Vec<u8>, Option<Vec<u8>>),
        projection: Vec<usize>,
    ) -> Result<Self> {
        let (table, deriver, index) = (table.clone(), index.deriver()?, index.shared.clone());
        let (gathered, derived_key) = (VecDeque::new(), Vec::new());
        Ok(Self { table, index, deriver, snapshot, from, to, projection, gathered, derived_key, is_complete: false })
    }

    fn next_row(&mut self) -> Result<Option<IndexRow>> {
        while self.gathered.is_empty() && !self.is_complete {
            self.gather()?;
        }
        let Some((derived_key, row)) = self.gathered.pop_front() else { return Ok(None) };
        self.derived_key = derived_key;
        Ok(Some(row))
    }

    /// One scan: the rows with the smallest derived keys from `from` on.
    fn gather(&mut self) -> Result<()> {
        let options = ReadOptions { fill_cache: false, read_ahead: 256 << 10, ..ReadOptions::at(&self.snapshot) };
        let mut rows = self.table.iter(&options)?;
        rows.seek_to_first()?;
        let mut found = Smallest::new(self.to.clone(), SCANNED_BYTES);
        while rows.valid() {
            let derived = self.deriver.derive(rows.key(), Operation::Put, rows.value())?;
            for (key, value) in derived.entries() {
                if key < self.from.as_slice() || !found.takes(key) {
                    continue;
                }
                let weight = 2 * key.len() + value.len() + rows.value().len() + 100;
                let values = self.table.datums_of(rows.key(), rows.value().to_vec(), Some(&self.projection))?;
                let derived = derived_entry(&self.index, &self.index.decode_key(key)?.0, value);
                found.add(key, IndexRow { key: rows.key().to_vec(), values, derived }, weight);
            }
            rows.next()?;
        }
        self.is_complete = found.is_complete;
        if let Some((last, _)) = found.rows.last_key_value() {
            self.from = key::key_successor(last);
        }
        self.gathered = found.rows.into_iter().map(|(key, (row, _))| (key, row)).collect();
        Ok(())
    }
}

/// The rows with the smallest derived keys, as many as fit a budget, and one in any case. A row with many derived keys
/// is there once for each of them.
struct Smallest {
    /// By derived key, with their weights.
    rows: BTreeMap<Vec<u8>, (IndexRow, usize)>,
    /// The key from which on none is taken.
    limit: Option<Vec<u8>>,
    bytes: usize,
    budget: usize,
    /// Whether all fitted.
    is_complete: bool,
}

impl Smallest {
    fn new(limit: Option<Vec<u8>>, budget: usize) -> Self {
        Self { rows: BTreeMap::new(), limit, bytes: 0, budget, is_complete: true }
    }

    fn takes(&self, key: &[u8]) -> bool {
        self.limit.as_deref().is_none_or(|limit| key < limit)
    }

    /// Adds a row under a key that is taken and not there yet, and lets go of those that do not fit any more.
    fn add(&mut self, key: &[u8], row: IndexRow, weight: usize) {
        self.rows.insert(key.to_vec(), (row, weight));
        self.bytes += weight;
        while self.bytes > self.budget
            && self.rows.len() > 1
            && let Some((key, (_, weight))) = self.rows.pop_last()
        {
            self.bytes -= weight;
            self.limit = Some(key);
            self.is_complete = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;
    use rand::seq::SliceRandom;

    use super::*;

    /// All that one row derives was held before any of it was let go of, and the row with each.
    #[test]
    fn what_a_scan_gathers_fits_its_budget_after_every_key() {
        const BUDGET: usize = 1000;
        for seed in 0..20 {
            let mut keys: Vec<[u8; 2]> = (0..500_u16).map(u16::to_be_bytes).collect();
            keys.shuffle(&mut SmallRng::seed_from_u64(seed));
            let limit = 400_u16.to_be_bytes();
            let mut smallest = Smallest::new(Some(limit.to_vec()), BUDGET);
            for key in &keys {
                if smallest.takes(key) {
                    let row = IndexRow { key: b"row".to_vec(), values: Vec::new(), derived: None };
                    smallest.add(key, row, 90);
                }
                assert_eq!(smallest.bytes, 90 * smallest.rows.len());
                assert!(smallest.bytes <= BUDGET, "seed {seed}");
            }
            let expected: Vec<Vec<u8>> = (0..11_u16).map(|key| key.to_be_bytes().to_vec()).collect();
            assert!(smallest.rows.keys().eq(&expected), "seed {seed}");
            assert!(!smallest.is_complete);
        }
        let mut large = Smallest::new(None, BUDGET);
        large.add(b"b", IndexRow { key: Vec::new(), values: Vec::new(), derived: None }, 2 * BUDGET);
        assert!(large.is_complete && large.rows.len() == 1);
        large.add(b"a", IndexRow { key: Vec::new(), values: Vec::new(), derived: None }, 2 * BUDGET);
        assert!(!large.is_complete && large.rows.contains_key(&b"a"[..]) && !large.takes(b"b"));
    }
}
