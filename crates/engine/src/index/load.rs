//! Bulk loads into tables with indexes.
//!
//! 1. Every row derives its entries, which are sorted within a budget and written as files beside the rows' (their order is
//!    another one).
//! 2. The rows' files are finished. For an index that was created meanwhile their entries are derived from these; what an
//!    index got that was dropped meanwhile is removed. Again, until under the commit lock the table has the indexes that the
//!    rows were derived for.
//! 3. Under that lock, before the files are put in place: in a unique index no two rows may have the same values, neither of
//!    the load nor one of it and one beside it.
//!
//! An index that is being built is one like the others: what is loaded is newer than it, and derives by itself.

use std::sync::Arc;

use mycelium_base::hash::hash_key;
use mycelium_base::{Cursor, ErrorKind, FileNumber, MAX_SEQUENCE_NUMBER, Operation, ReadCounters, Result, Trailer};
use mycelium_encoding::Datum;
use mycelium_merge::MergingCursor;
use mycelium_sst::{CursorOptions, GetScratch, RunCursor, SstSummary};
use mycelium_transform::Deriver;

use super::prepare::duplicate;
use super::read::holders;
use super::staged::Staged;
use super::unfit::{check_key, failed_on};
use super::watch::{DerivedFile, write_derived};
use crate::database::Inner;
use crate::flush::file_meta;
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
        Self::for_indexes(table, budget, |_| true)
    }

    fn for_indexes(table: &TableShared, budget: usize, is_wanted: impl Fn(&IndexState) -> bool) -> Result<Self> {
        let state = table.state.load_full();
        let mut indexes = Vec::with_capacity(state.indexes.len());
        for index in state.indexes.iter().filter(|index| is_wanted(index)) {
            let formats = table.typed_formats()?;
            let deriver = index.index.source.deriver(formats.for_transformers(), &formats.whole_group())?;
            indexes.push((index.clone(), deriver, Staged::default()));
        }
        Ok(Self { budget, indexes, files: Vec::new() })
    }

    /// Takes the next row.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8], outputs: &Mutex<OutputFiles<'_>>) -> Result<()> {
        for (index, deriver, staged) in &mut self.indexes {
            match stage_row(&index.table.name, deriver, (key, value), staged) {
                // It will be dropped, and nothing is refused for its sake.
                Err(error) if error.kind() == ErrorKind::InvalidArgument && index.index.failure().is_some() => {}
                result => result?,
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

fn stage_row(name: &str, deriver: &mut Deriver, (key, value): (&[u8], &[u8]), staged: &mut Staged) -> Result<()> {
    let derived = deriver.derive(key, Operation::Put, value).map_err(|error| failed_on(name, error))?;
    derived.entries().try_for_each(|(key, _)| check_key(name, key))?;
    derived.entries().for_each(|(key, value)| staged.push(key, Trailer::new(0, Operation::Put), value));
    Ok(())
}

impl DerivedRows {
    fn knows(&self, index: &IndexState) -> bool {
        self.indexes.iter().any(|known| Arc::ptr_eq(&known.table, &index.table))
    }

    /// Whether the table has indexes now that the rows were not derived for, or none any more of those that they were.
    pub(crate) fn is_outdated(&self, table: &TableShared) -> bool {
        let state = table.state.load();
        state.indexes.len() != self.indexes.len() || !state.indexes.iter().all(|index| self.knows(index))
    }

    /// Step 2 of the module: derives for the table's present indexes, from the finished files of the rows.
    pub(crate) fn catch_up(
        &mut self,
        database: &Inner,
        table: &TableShared,
        rows: &[(FileNumber, SstSummary)],
        outputs: &Mutex<OutputFiles<'_>>,
    ) -> Result<()> {
        let (gone, kept) = self.indexes.drain(..).partition(|index| index.table.check_alive().is_err());
        self.indexes = kept;
        let is_gone = |file: &DerivedFile| gone.iter().any(|index: &IndexState| index.table.id == file.table);
        let (unused, kept): (Vec<_>, Vec<_>) = self.files.drain(..).partition(is_gone);
        self.files = kept;
        unused.iter().for_each(|file| outputs.lock().remove(file.number));
        let mut derivation = Derivation::for_indexes(table, database.staging_budget(), |index| !self.knows(index))?;
        if derivation.indexes.is_empty() {
            return Ok(());
        }
        let options = CursorOptions { fill_cache: false, read_ahead: 256 << 10, ..CursorOptions::default() };
        for (number, summary) in rows {
            database.check_writable()?;
            let file = database.open_file(&Arc::new(file_meta(*number, summary)))?;
            let mut entries = RunCursor::new([file.sst.clone()], options);
            entries.seek_to_first()?;
            while entries.valid() {
                derivation.add(entries.key(), entries.value(), outputs)?;
                entries.next()?;
            }
        }
        let derived = derivation.finish(outputs)?;
        self.files.extend(derived.files);
        self.indexes.extend(derived.indexes);
        Ok(())
    }

    /// Step 3 of the module. The commit lock is held; `opened` are the files of the load.
    pub(crate) fn check(&self, database: &Inner, table: &Arc<TableShared>, opened: &[Arc<OpenFile>]) -> Result<()> {
        let state = table.state.load_full();
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
    let options = CursorOptions { fill_cache: false, read_ahead: 64 << 10, ..CursorOptions::default() };
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
