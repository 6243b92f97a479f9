//! What a batch on tables with indexes needs before it is committed.
//!
//! At a snapshot, operation by operation, seeing what the batch itself did before:
//!
//! 1. *Patches are completed.* One that touches a column of an index gets the row's present values of the other columns
//!    that the index reads, so that it derives by itself. What completes it for one index may touch another. One whose
//!    row does not exist changes nothing and must derive nothing: it is written as the delete that it amounts to.
//! 2. *Unique indexes are asked.* After the whole batch no other row may have the values that a row of it has, neither
//!    in the batch nor at the snapshot. Rows with a null among the values may.
//! 3. The batch is committed on condition that nothing came between ([`Guard`], checked under the commit lock, as a
//!    transaction's validation is): no commit to a row that was read, no new entry for the values that were found free,
//!    and the same indexes (indexed.rs). Otherwise everything is done again. One of those who meet always gets through.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use mycelium_base::limits::MAX_BATCH_LEN;
use mycelium_base::{
    ColumnSet, EntryRef, Error, ErrorKind, MAX_SEQUENCE_NUMBER, Operation, RangeDelete, RangeDeleteSets, ReadCounters,
    Result, SequenceNumber, TableId,
};
use mycelium_encoding::row_format::{RowFormat, RowScratch};
use mycelium_encoding::{ColumnState, Datum, key};

use super::ahead::DerivedAhead;
use super::indexed::{IndexedTables, KeyCounts, Uses};
use super::read::holders;
use super::unfit::{check_key, refused_row};
use crate::database::Inner;
use crate::log_record::HEAD_LEN;
use crate::operations::{Operations, encode_operation};
use crate::options::Durability;
use crate::read::PointRead;
use crate::snapshot::Snapshot;
use crate::table::{IndexState, TableShared, TableState};
use crate::transaction::{Check, conflict};
use crate::write::{Precondition, ReadyBatch};

/// A batch that is ready to be committed.
pub(crate) struct Prepared {
    /// The operations, where they are not the batch's own.
    pub(crate) body: Option<Vec<u8>>,
    /// What must not have changed meanwhile.
    pub(crate) guard: Guard,
}

/// Rows and values that nobody may have touched since the snapshot.
pub(crate) struct Guard {
    /// Keeps what the check looks for.
    snapshot: Snapshot,
    rows: BTreeMap<TableId, (Arc<TableShared>, BTreeSet<Vec<u8>>)>,
    claims: Vec<Claims>,
}

/// Values of a unique index that were found free.
struct Claims {
    derived: Arc<TableShared>,
    /// What the derived keys of such rows start with. None starts with another: codes of values do not.
    prefixes: BTreeSet<Vec<u8>>,
}

impl Guard {
    /// Fails with a conflict if anything changed up to now.
    pub(crate) fn check_all(&self) -> Result<()> {
        let since = self.snapshot.sequence();
        for (table, keys) in self.rows.values() {
            let check = Check::new(table, since)?;
            keys.iter().try_for_each(|key| check.key(key))?;
        }
        for claims in &self.claims {
            let check = Check::new(&claims.derived, since)?;
            for prefix in &claims.prefixes {
                check.range(prefix, key::prefix_successor(prefix).as_deref())?;
            }
        }
        Ok(())
    }
}

impl Precondition for Guard {
    fn check(&self, _last: SequenceNumber) -> Result<()> {
        self.check_all()
    }

    fn check_operation(&self, table: TableId, entry: EntryRef<'_>) -> Result<()> {
        if let Some((shared, keys)) = self.rows.get(&table) {
            let is_touched = match entry.trailer.operation() {
                Operation::RangeDelete => {
                    keys.range(entry.key.to_vec()..).next().is_some_and(|k| k.as_slice() < entry.value)
                }
                _ => keys.contains(entry.key),
            };
            if is_touched {
                return Err(conflict(shared, entry.key));
            }
        }
        for claims in self.claims.iter().filter(|claims| claims.derived.id == table) {
            let upto = (Bound::Unbounded, Bound::Included(entry.key));
            let nearest = claims.prefixes.range::<[u8], _>(upto).next_back();
            if nearest.is_some_and(|prefix| entry.key.starts_with(prefix)) {
                return Err(conflict(&claims.derived, entry.key));
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Prepares a batch that was checked, where it must be, and commits it.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if it must be prepared again: something came between.
    pub(crate) fn commit_prepared(
        &self,
        indexed: &IndexedTables,
        (body, count): (&[u8], u32),
        derived: Option<&DerivedAhead>,
        durability: Durability,
    ) -> Result<SequenceNumber> {
        let prepared_for = indexed.generation();
        let derived = derived.and_then(|derived| derived.whole(count, prepared_for)).map(Cow::Borrowed);
        let uses = indexed.uses_of(body, count, derived.is_some())?;
        let ready = |body| ReadyBatch { body, count, durability, prepared_for, derived };
        if uses.is_empty() {
            return self.commit(ready(Cow::Borrowed(body)), None);
        }
        // Of a batch with a patch of columns that an index reads, of which alone the body changes, it is not known what
        // it derives.
        let Prepared { body: own, guard } = self.prepare(uses, body, count, &self.take_snapshot())?;
        self.commit(ready(own.map_or(Cow::Borrowed(body), Cow::Owned)), Some(Arc::new(guard)))
    }

    /// What the batch needs at a snapshot, for the indexes of the tables that it uses.
    pub(crate) fn prepare(&self, uses: Uses, body: &[u8], count: u32, snapshot: &Snapshot) -> Result<Prepared> {
        // The snapshot first: the states then hold all that it sees, and the guard looks for what came after it.
        let tables = {
            let core = self.core.lock();
            let found = uses.into_iter().filter_map(|(id, keys)| Some((core.tables.get(&id)?.clone(), keys)));
            found.map(|(shared, keys)| (shared.id, Preparing::new(shared, keys))).collect()
        };
        let scratch = RowScratch::default();
        let mut work = Work { tables, snapshot: snapshot.sequence(), body: Vec::with_capacity(body.len()), scratch };
        let mut operations = Operations::new(body, 0, count);
        while let Some((table, entry)) = operations.next()? {
            work.take(table, entry)?;
        }
        if work.body.len() > MAX_BATCH_LEN - HEAD_LEN {
            let bytes = work.body.len();
            let message =
                format!("a batch completed for indexes has {bytes} bytes: at most {MAX_BATCH_LEN} are possible");
            return Err(Error::invalid(message));
        }
        let mut guard = Guard { snapshot: snapshot.clone(), rows: BTreeMap::new(), claims: Vec::new() };
        for (id, table) in work.tables {
            guard.claims.extend(table.claim(snapshot.sequence())?);
            if !table.read.is_empty() {
                guard.rows.insert(id, (table.shared, table.read));
            }
        }
        Ok(Prepared { body: (work.body != body).then_some(work.body), guard })
    }
}

/// The operations so far.
struct Work {
    /// Those that must be prepared.
    tables: BTreeMap<TableId, Preparing>,
    snapshot: SequenceNumber,
    body: Vec<u8>,
    scratch: RowScratch,
}

/// A table with indexes, and what a batch has done to it.
struct Preparing {
    shared: Arc<TableShared>,
    state: Arc<TableState>,
    /// The columns that each index reads.
    reads: Vec<ColumnSet>,
    unique: Vec<IndexState>,
    /// Being built: a row may have been there before that they cannot hold.
    building: Vec<IndexState>,
    operations: KeyCounts,
    /// Rows as they are after the operations so far, of keys that had one.
    rows: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// In the order of the batch.
    range_deletes: Vec<RangeDelete>,
    /// Of all of them.
    range_delete_sets: RangeDeleteSets,
    /// Keys whose rows were read.
    read: BTreeSet<Vec<u8>>,
}

impl Work {
    /// Takes the next operation, and appends what it becomes.
    fn take(&mut self, id: TableId, entry: EntryRef<'_>) -> Result<()> {
        let operation = entry.trailer.operation();
        let Some(table) = self.tables.get_mut(&id) else {
            encode_operation(&mut self.body, id, operation, entry.key, entry.value);
            return Ok(());
        };
        let mut completed = None;
        match operation {
            Operation::Put => drop(table.rows.insert(entry.key.to_vec(), Some(entry.value.to_vec()))),
            Operation::RangeDelete => table.delete_range(entry.key, entry.value),
            Operation::Patch => completed = Some(table.patch(entry, self.snapshot, &mut self.scratch)?),
            Operation::Delete | Operation::Merge => drop(table.rows.insert(entry.key.to_vec(), None)),
        }
        match completed {
            None => encode_operation(&mut self.body, id, operation, entry.key, entry.value),
            Some(Some(patch)) => encode_operation(&mut self.body, id, operation, entry.key, &patch),
            Some(None) => encode_operation(&mut self.body, id, Operation::Delete, entry.key, &[]),
        }
        Ok(())
    }
}

impl Preparing {
    fn new(shared: Arc<TableShared>, operations: KeyCounts) -> Self {
        let state = shared.state.load_full();
        let reads = state.indexes.iter().map(|index| index.index.source.columns_read().clone()).collect();
        let indexes = |is_asked: fn(&IndexState) -> bool| state.indexes.iter().filter(move |&i| is_asked(i)).cloned();
        let unique = indexes(|index| index.status.unique).collect();
        let building = indexes(|index| !index.status.is_built).collect();
        let (rows, read) = (BTreeMap::new(), BTreeSet::new());
        let (range_deletes, range_delete_sets) = (Vec::new(), RangeDeleteSets::default());
        Self { shared, state, reads, unique, building, operations, rows, range_deletes, range_delete_sets, read }
    }

    fn delete_range(&mut self, start: &[u8], end: &[u8]) {
        if start >= end {
            return;
        }
        let within = (Bound::Included(start), Bound::Excluded(end));
        self.rows.range_mut::<[u8], _>(within).for_each(|(_, row)| *row = None);
        // Which of them is the newest does not matter here.
        self.range_deletes.push(RangeDelete { start: start.to_vec(), end: end.to_vec(), sequence: 1 });
        self.range_delete_sets.grow(&self.range_deletes);
    }

    fn is_range_deleted(&self, key: &[u8]) -> bool {
        self.range_delete_sets.covering(key, MAX_SEQUENCE_NUMBER).is_some()
    }

    /// The patch with all columns that it must have, or `None` if there is no row to be patched.
    fn patch(
        &mut self,
        entry: EntryRef<'_>,
        snapshot: SequenceNumber,
        scratch: &mut RowScratch,
    ) -> Result<Option<Vec<u8>>> {
        let formats = self.shared.typed_formats()?.clone();
        let present = formats.rows().present(entry.value, scratch)?;
        let needed = completed(&self.reads, &present);
        let touches = self.reads.iter().any(|reads| reads.overlaps(&present));
        if !touches && self.operations.get(entry.key) == Some(&1) {
            // No index reads what it changes, and no other operation what it makes.
            return Ok(Some(entry.value.to_vec()));
        }
        let exists = self.row(entry.key, snapshot)?;
        let row = self.rows.get(entry.key).and_then(Option::as_deref);
        let Some(row) = row.filter(|_| exists) else {
            return Ok(if touches { None } else { Some(entry.value.to_vec()) });
        };
        self.fail_unfit(entry.key, row, &present)?;
        let combiner = formats.whole.combiner();
        let missing = needed.difference(&present);
        let mut patch = entry.value.to_vec();
        if touches && !missing.is_empty() {
            let older = columns_of(formats.rows(), row, &missing, scratch)?;
            let fused = combiner.fuse(entry.key, &[&older, entry.value])?;
            patch = fused.ok_or_else(|| Error::invalid("the table's patches cannot be completed"))?;
        }
        let row = combiner.apply(entry.key, Some(row), &[&patch])?;
        self.rows.insert(entry.key.to_vec(), row);
        Ok(Some(patch))
    }

    /// Fails indexes that are being built and cannot hold a row as it was: not the fault of a patch that leaves their
    /// columns alone.
    fn fail_unfit(&self, key: &[u8], row: &[u8], patched: &ColumnSet) -> Result<()> {
        let formats = self.shared.typed_formats()?;
        for index in &self.building {
            let on = index.index.source.on();
            if on.is_empty() || on.iter().any(|&on| patched.contains(on)) {
                continue;
            }
            let mut deriver = index.index.source.deriver(formats.for_transformers(), &formats.whole_group())?;
            if let Some(refusal) = refused_row(&index.table.name, &mut deriver, key, Operation::Put, row)? {
                index.index.fail(key, refusal);
            }
        }
        Ok(())
    }

    /// Makes the key's row known; whether there is one.
    fn row(&mut self, key: &[u8], snapshot: SequenceNumber) -> Result<bool> {
        if let Some(row) = self.rows.get(key) {
            return Ok(row.is_some());
        }
        let row = if self.is_range_deleted(key) {
            None
        } else {
            self.read.insert(key.to_vec());
            PointRead::new(&self.shared, snapshot).get(&self.state, key, &mut ReadCounters::default())?
        };
        let exists = row.is_some();
        self.rows.insert(key.to_vec(), row);
        Ok(exists)
    }

    /// Step 2 of the module: what the batch's rows claim in unique indexes.
    fn claim(&self, snapshot: SequenceNumber) -> Result<Vec<Claims>> {
        let formats = self.shared.typed_formats()?;
        let mut all = Vec::new();
        for index in &self.unique {
            let mut deriver = index.index.source.deriver(formats.for_transformers(), &formats.whole_group())?;
            let mut prefixes: BTreeMap<Vec<u8>, &[u8]> = BTreeMap::new();
            for (row_key, row) in &self.rows {
                let Some(row) = row else { continue };
                let derived = deriver.derive(row_key, Operation::Put, row)?;
                // A unique index is one of columns.
                let Some((key, _)) = derived.entries().next() else { continue };
                check_key(&index.table.name, key)?;
                let (values, _) = index.index.decode_key(key)?;
                if values.contains(&Datum::Null) {
                    continue;
                }
                let prefix = &key[..key.len() - row_key.len()];
                if prefixes.insert(prefix.to_vec(), row_key).is_some() {
                    return Err(duplicate(index, &values));
                }
                for holder in holders(&self.shared, &self.state, index, prefix, snapshot)? {
                    if !self.rows.contains_key(&holder) && !self.is_range_deleted(&holder) {
                        return Err(duplicate(index, &values));
                    }
                }
            }
            if !prefixes.is_empty() {
                let (derived, prefixes) = (index.table.clone(), prefixes.into_keys().collect());
                all.push(Claims { derived, prefixes });
            }
        }
        Ok(all)
    }
}

/// The error of values that another row has.
#[cold]
pub(super) fn duplicate(index: &IndexState, values: &[Datum]) -> Error {
    let values: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    let message =
        format!("another row has the values ({}) in the unique index {}", values.join(", "), index.table.name);
    Error::new(ErrorKind::Duplicate, message)
}

/// A patch of these columns, which changes nothing in the row that it is of.
fn columns_of(rows: &RowFormat, row: &[u8], columns: &ColumnSet, scratch: &mut RowScratch) -> Result<Vec<u8>> {
    let mut values: Vec<(usize, Option<Datum>)> = Vec::with_capacity(columns.len());
    let mut found = rows.read(row, Some(columns), scratch)?;
    for column in columns.iter() {
        values.push((
            column,
            match found.get(column)? {
                ColumnState::Value(datum) => Some(datum.to_datum()),
                ColumnState::Null | ColumnState::Absent => None,
            },
        ));
    }
    let state = |column: usize| match values.iter().find(|(at, _)| *at == column) {
        Some((_, Some(datum))) => ColumnState::Value(datum.borrowed()),
        Some((_, None)) => ColumnState::Null,
        None => ColumnState::Absent,
    };
    let mut patch = Vec::new();
    rows.encode_with(state, scratch, &mut patch)?;
    Ok(patch)
}

/// The columns that a patch of `touched` must have, so that it has all columns of every index of which it has one.
fn completed(reads: &[ColumnSet], touched: &ColumnSet) -> ColumnSet {
    let mut completed = touched.clone();
    // What completes a patch for one index may touch another. Each round but the last adds a column.
    loop {
        let before = completed.len();
        for read in reads {
            if read.overlaps(&completed) {
                completed = completed.union(read);
            }
        }
        if completed.len() == before {
            return completed;
        }
    }
}
