//! Bulk loads into tables with indexes.
//!
//! 1. Every row derives its entries, which are sorted within a budget and written as files beside the rows' (their
//!    order is another one), of each index one run at last (spills.rs).
//! 2. The rows' files are finished. For an index that was created meanwhile their entries are derived from these; what
//!    an index got that was dropped meanwhile is removed.
//! 3. In a unique index no two rows may have the same values, neither of the load nor one of it and one beside it.
//!    Every row is asked for, at a moment and without a lock.
//! 4. Steps 2 and 3 are done again until under the commit lock the table has the indexes that the rows were derived for
//!    and compared in. Under that lock, before the files are put in place, only the values are asked for that came into
//!    a unique index since that moment: a row beside the load that has had its values for longer was found then.
//!
//! An index that is being built is one like the others: what is loaded is newer than it, and derives by itself.

use std::sync::Arc;

use mycelium_base::hash::hash_key;
use mycelium_base::{
    Cursor, ErrorKind, FileNumber, MAX_SEQUENCE_NUMBER, Operation, ReadCounters, Result, SequenceNumber, TableId,
    Trailer,
};
use mycelium_encoding::Datum;
use mycelium_merge::MergingCursor;
use mycelium_sst::{CursorOptions, GetScratch, RunCursor, SstSummary};
use mycelium_transform::Deriver;

use super::prepare::duplicate;
use super::read::holders;
use super::staged::Staged;
use super::unfit::{check_key, failed_on};
use super::unique::{newer_prefixes, split};
use super::watch::{DerivedFile, write_derived};
use crate::database::Inner;
use crate::output_files::{OutputFiles, file_meta};
use crate::rate_limit::WritePriority;
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
    /// Sorted files; those of one index do not overlap.
    pub(crate) files: Vec<DerivedFile>,
    indexes: Vec<IndexState>,
    /// The unique indexes in which no row has the values of another, and up to which number that is known.
    compared: Vec<(TableId, SequenceNumber)>,
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
    pub(crate) fn finish(&mut self, database: &Inner, outputs: &Mutex<OutputFiles<'_>>) -> Result<DerivedRows> {
        let mut indexes = Vec::with_capacity(self.indexes.len());
        for (index, _, mut staged) in self.indexes.drain(..) {
            if !staged.is_empty() {
                self.files.push(write_derived(&index.table, staged.take_sorted(), outputs)?);
            }
            indexes.push(index);
        }
        let files = database.unite_spills(std::mem::take(&mut self.files), WritePriority::Compaction, outputs)?;
        Ok(DerivedRows { files, indexes, compared: Vec::new() })
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

    /// The number up to which the rows were compared with others in a unique index.
    fn compared_upto(&self, index: &IndexState) -> Option<SequenceNumber> {
        self.compared.iter().find(|(known, _)| *known == index.table.id).map(|(_, upto)| *upto)
    }

    /// Whether the table has indexes now that the rows were not derived for, or none any more of those that they were;
    /// or one is unique that they were not compared in.
    pub(crate) fn is_outdated(&self, table: &TableShared) -> bool {
        let is_ready =
            |index: &IndexState| self.knows(index) && (!index.status.unique || self.compared_upto(index).is_some());
        let state = table.state.load();
        state.indexes.len() != self.indexes.len() || !state.indexes.iter().all(is_ready)
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
        let derived = derivation.finish(database, outputs)?;
        self.files.extend(derived.files);
        self.indexes.extend(derived.indexes);
        Ok(())
    }

    /// Step 3 of the module, in the unique indexes where that was not done yet.
    pub(crate) fn compare(
        &mut self,
        database: &Inner,
        table: &Arc<TableShared>,
        rows: &[(FileNumber, SstSummary)],
    ) -> Result<()> {
        // The snapshot first: the state then holds all that it sees.
        let (snapshot, state) = (database.take_snapshot(), table.state.load_full());
        let is_due =
            |index: &&IndexState| index.status.unique && self.knows(index) && self.compared_upto(index).is_none();
        let due: Vec<&IndexState> = state.indexes.iter().filter(is_due).collect();
        if due.is_empty() {
            return Ok(());
        }
        let open = |number: FileNumber, summary: &SstSummary| database.open_file(&Arc::new(file_meta(number, summary)));
        let rows = rows.iter().map(|(number, summary)| open(*number, summary)).collect::<Result<Vec<_>>>()?;
        for index in due {
            let entries = self.files.iter().filter(|file| file.table == index.table.id);
            let entries = entries.map(|file| open(file.number, &file.summary)).collect::<Result<Vec<_>>>()?;
            let loaded = Loaded { entries: entries.iter().collect(), rows: rows.iter().collect() };
            loaded.compare_all((table, &state), index, snapshot.sequence())?;
            self.compared.push((index.table.id, snapshot.sequence()));
        }
        Ok(())
    }

    /// Step 4 of the module. The commit lock is held; `opened` are the files of the load.
    pub(crate) fn compare_with_newer(
        &self,
        database: &Inner,
        table: &Arc<TableShared>,
        opened: &[Arc<OpenFile>],
    ) -> Result<()> {
        let state = table.state.load_full();
        let is_derived = |file: &OpenFile| self.files.iter().any(|derived| derived.number == file.meta.number);
        let rows: Vec<&Arc<OpenFile>> = opened.iter().filter(|file| !is_derived(file)).collect();
        let visible = database.visible.load(Ordering::Acquire);
        state.indexes.iter().filter(|index| index.status.unique).try_for_each(|index| {
            let of_index = |file: &&Arc<OpenFile>| {
                self.files.iter().any(|f| f.table == index.table.id && f.number == file.meta.number)
            };
            let loaded = Loaded { entries: opened.iter().filter(of_index).collect(), rows: rows.clone() };
            let since = self.compared_upto(index).unwrap_or_default();
            loaded.compare_with_newer((table, &state), index, (since, visible))
        })
    }
}

/// The files of a load: its entries in a unique index, and its rows.
struct Loaded<'f> {
    entries: Vec<&'f Arc<OpenFile>>,
    rows: Vec<&'f Arc<OpenFile>>,
}

impl Loaded<'_> {
    fn cursor(&self) -> MergingCursor<RunCursor> {
        let options = CursorOptions { fill_cache: false, read_ahead: 64 << 10, ..CursorOptions::default() };
        MergingCursor::new(self.entries.iter().map(|file| RunCursor::new([file.sst.clone()], options)).collect())
    }

    /// Fails if a row of the load has the values of another one, of the load or as `sequence` sees it.
    fn compare_all(
        &self,
        (table, state): (&Arc<TableShared>, &Arc<TableState>),
        index: &IndexState,
        sequence: SequenceNumber,
    ) -> Result<()> {
        let mut entries = self.cursor();
        let mut last: Option<Vec<u8>> = None;
        entries.seek_to_first()?;
        while entries.valid() {
            let (prefix, values) = split(&index.index, entries.key())?;
            if let Some(prefix) = prefix {
                if last.as_ref() == Some(&prefix) {
                    return Err(duplicate(index, &values));
                }
                self.compare_with_holders((table, state), index, (&prefix, &values), sequence)?;
                last = Some(prefix);
            }
            entries.next()?;
        }
        Ok(())
    }

    /// As [`Loaded::compare_all`], for the values of entries that came after `since`.
    fn compare_with_newer(
        &self,
        (table, state): (&Arc<TableShared>, &Arc<TableState>),
        index: &IndexState,
        (since, visible): (SequenceNumber, SequenceNumber),
    ) -> Result<()> {
        let mut entries = self.cursor();
        for prefix in newer_prefixes(&index.index, &index.state, since)? {
            entries.seek(&prefix, Trailer::NEWEST)?;
            if entries.valid() && entries.key().starts_with(&prefix) {
                let (_, values) = split(&index.index, entries.key())?;
                self.compare_with_holders((table, state), index, (&prefix, &values), visible)?;
            }
        }
        Ok(())
    }

    /// Fails if a row has these values that the load does not replace.
    fn compare_with_holders(
        &self,
        (table, state): (&Arc<TableShared>, &Arc<TableState>),
        index: &IndexState,
        (prefix, values): (&[u8], &[Datum]),
        sequence: SequenceNumber,
    ) -> Result<()> {
        for holder in holders(table, state, index, prefix, sequence)? {
            if !holds(&self.rows, &holder)? {
                return Err(duplicate(index, values));
            }
        }
        Ok(())
    }
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
