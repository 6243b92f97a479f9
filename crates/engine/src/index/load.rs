//! Bulk loads into tables with indexes.
//!
//! 1. Every row derives its entries, which are sorted within a budget and written as files beside the rows' (their order is
//!    another one).
//! 2. Under the commit lock, before the files are put in place: the table must have the indexes it had when the load began,
//!    and in a unique index no two rows may have the same values, neither of the load nor one of it and one beside it.

use std::sync::Arc;

use mycelium_base::hash::hash_key;
use mycelium_base::{Cursor, Error, ErrorKind, MAX_SEQUENCE_NUMBER, Operation, ReadCounters, Result, TableId, Trailer};
use mycelium_encoding::Datum;
use mycelium_merge::MergingCursor;
use mycelium_sst::{CursorOptions, GetScratch};
use mycelium_transform::Deriver;

use super::prepare::duplicate;
use super::read::holders;
use super::staged::Staged;
use super::unfit::{check_key, failed_on};
use super::watch::{DerivedFile, write_derived};
use crate::database::Inner;
use crate::output_files::OutputFiles;
use crate::sync::Mutex;
use crate::sync::atomic::Ordering;
use crate::table::{IndexState, TableShared, TableState};
use crate::tree::OpenFile;

/// Derives what a load's rows are in the indexes.
pub(crate) struct Derivation {
    budget: usize,
    indexes: Vec<(IndexState, Deriver, Staged)>,
    files: Vec<DerivedFile>,
}

/// What a load derived.
pub(crate) struct DerivedRows {
    /// Sorted files; of one index they may overlap.
    pub(crate) files: Vec<DerivedFile>,
    indexes: Vec<IndexState>,
}

impl Derivation {
    /// For the table's present indexes. `budget`: bytes staged per index.
    pub(crate) fn new(table: &TableShared, budget: usize) -> Result<Self> {
        let state = table.state.load_full();
        let mut indexes = Vec::with_capacity(state.indexes.len());
        for index in state.indexes.iter() {
            let formats = table.typed_formats()?;
            let deriver = index.index.source.deriver(formats.for_transformers(), &formats.whole_group())?;
            indexes.push((index.clone(), deriver, Staged::default()));
        }
        Ok(Self { budget, indexes, files: Vec::new() })
    }

    /// Takes the next row.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8], outputs: &Mutex<OutputFiles<'_>>) -> Result<()> {
        for (index, deriver, staged) in &mut self.indexes {
            let name = &index.table.name;
            let derived = deriver.derive(key, Operation::Put, value).map_err(|error| failed_on(name, error))?;
            for (key, value) in derived.entries() {
                check_key(name, key)?;
                staged.push(key, Trailer::new(0, Operation::Put), value);
            }
            if staged.bytes() > self.budget {
                self.files.push(write_derived(&index.table, staged.take_sorted(), outputs)?);
            }
        }
        Ok(())
    }

    /// Writes what is still staged.
    pub(crate) fn finish(&mut self, outputs: &Mutex<OutputFiles<'_>>) -> Result<DerivedRows> {
        let mut indexes = Vec::with_capacity(self.indexes.len());
        for (index, _, mut staged) in self.indexes.drain(..) {
            if !staged.is_empty() {
                self.files.push(write_derived(&index.table, staged.take_sorted(), outputs)?);
            }
            indexes.push(index);
        }
        Ok(DerivedRows { files: std::mem::take(&mut self.files), indexes })
    }
}

impl DerivedRows {
    /// Step 2 of the module. The commit lock is held; `opened` are the files of the load.
    pub(crate) fn check(&self, database: &Inner, table: &Arc<TableShared>, opened: &[Arc<OpenFile>]) -> Result<()> {
        let state = table.state.load_full();
        let ids = |indexes: &[IndexState]| -> Vec<TableId> { indexes.iter().map(|index| index.table.id).collect() };
        if ids(&state.indexes) != ids(&self.indexes) {
            let message = "an index was created or dropped while rows were being loaded: load them again";
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        let is_derived = |file: &OpenFile| self.files.iter().any(|derived| derived.number == file.meta.number);
        let rows: Vec<&Arc<OpenFile>> = opened.iter().filter(|file| !is_derived(file)).collect();
        state.indexes.iter().filter(|index| index.status.unique).try_for_each(|index| {
            let of_index = |file: &&Arc<OpenFile>| {
                self.files.iter().any(|f| f.table == index.table.id && f.number == file.meta.number)
            };
            let entries: Vec<&Arc<OpenFile>> = opened.iter().filter(of_index).collect();
            check_unique(database, (table, &state), index, &entries, &rows)
        })
    }
}

/// Fails if a row of the load has the values of another one.
fn check_unique(
    database: &Inner,
    (table, state): (&Arc<TableShared>, &Arc<TableState>),
    index: &IndexState,
    entries: &[&Arc<OpenFile>],
    rows: &[&Arc<OpenFile>],
) -> Result<()> {
    let options = CursorOptions { snapshot: MAX_SEQUENCE_NUMBER, fill_cache: false, read_ahead: 64 << 10 };
    let mut entries = MergingCursor::new(entries.iter().map(|file| file.sst.cursor(options)).collect());
    let visible = database.visible.load(Ordering::Acquire);
    let mut last: Option<Vec<u8>> = None;
    entries.seek_to_first()?;
    while entries.valid() {
        let (values, row_key) = index.index.decode_key(entries.key())?;
        let prefix = &entries.key()[..entries.key().len() - row_key.len()];
        if !values.contains(&Datum::Null) {
            if last.as_deref() == Some(prefix) {
                return Err(duplicate(index, &values));
            }
            for holder in holders(table, state, index, prefix, visible)? {
                if !holds(rows, &holder)? {
                    return Err(duplicate(index, &values));
                }
            }
            last = Some(prefix.to_vec());
        }
        entries.next()?;
    }
    Ok(())
}

/// Whether the load has a row of this key.
fn holds(rows: &[&Arc<OpenFile>], key: &[u8]) -> Result<bool> {
    let hash = hash_key(key);
    for file in rows.iter().filter(|file| file.meta.range().contains(key) && file.sst.may_contain(hash)) {
        let mut found = false;
        let (mut scratch, mut counters) = (GetScratch::default(), ReadCounters::default());
        file.sst.get(key, MAX_SEQUENCE_NUMBER, &mut scratch, &mut counters, &mut |_: Trailer, _: &[u8]| {
            found = true;
            std::ops::ControlFlow::Break(())
        })?;
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}
