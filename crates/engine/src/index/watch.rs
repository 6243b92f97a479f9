//! What leaves a table leaves its indexes: removals by difference.
//!
//! A flush or a compaction of a table tells its [`IndexWatch`] what it drops and what it makes by folding. Per key:
//!
//! 1. *Before* is what the dropped entries derived, *after* what the made ones derive, each with its sequence number.
//! 2. What is before and not after is removed from the index, exactly; what is after and not before is put into it. (A
//!    folded row takes the newest sequence number of what it was folded from.)
//! 3. What is staged so is sorted. Where it exceeds its budget it is written as a file; what became of several
//!    (spills.rs) enters level 0 of the derived table with the edit that installs the outputs, so that a row's version
//!    and its entry leave together.
//!
//! A key of which nothing is dropped costs nothing: no value is looked at.
//!
//! Patches that are older than the index were not prepared for it when they were written. One that lacks a column that
//! the index reads derives nothing here; what was derived of it when the index was built stays. One that is fused with
//! others makes an entry though it may have no row: the watch notes that ([`IndexWatch::guessed`]), and then no entry
//! up to now is trusted without its row.

use std::sync::Arc;

use mycelium_base::limits::MAX_KEY_LEN;
use mycelium_base::{Cursor, ErrorKind, FileNumber, Operation, Result, SequenceNumber, TableId, Trailer};
use mycelium_merge::Watch;
use mycelium_sst::{SstSummary, SstWriter, SstWriterOptions};
use mycelium_transform::{Derived, Deriver};

use super::staged::{Staged, StagedCursor};
use crate::origin::Birth;
use crate::output_files::{OutputFiles, writer_options};
use crate::sync::Mutex;
use crate::table::{IndexState, TableShared};

/// A file for a derived table.
pub(crate) struct DerivedFile {
    pub(crate) table: TableId,
    pub(crate) number: FileNumber,
    pub(crate) summary: SstSummary,
}

/// What leaves the indexes of a table, still in memory as far as the budget allowed.
#[derive(Default)]
pub(crate) struct StagedRemovals {
    /// By derived table.
    pub(crate) staged: Vec<(TableId, StagedCursor)>,
    /// What had to be written before.
    pub(crate) spilled: Vec<DerivedFile>,
}

/// Feeds the indexes of one table from one job, or one part of it.
pub(crate) struct IndexWatch<'f, 'a> {
    outputs: &'f Mutex<OutputFiles<'a>>,
    budget: usize,
    /// The key before which the job's part ends.
    upper: Option<Vec<u8>>,
    indexes: Vec<Watched>,
    /// The key in hand.
    key: Vec<u8>,
    files: Vec<DerivedFile>,
}

struct Watched {
    table: Arc<TableShared>,
    created_at: SequenceNumber,
    deriver: Deriver,
    /// Whether an entry was made that may have no row.
    is_guessed: bool,
    /// Whether a patch of the key in hand that is older than the index was dropped.
    has_old_patch: bool,
    /// Of the key in hand.
    before: Vec<(Vec<u8>, SequenceNumber)>,
    after: Vec<(Vec<u8>, SequenceNumber, Vec<u8>)>,
    staged: Staged,
}

impl Watched {
    /// Takes what a dropped entry derived.
    fn drop_entries(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        let derived = derive(&mut self.deriver, key, trailer.operation(), value)?;
        let possible = derived.entries().filter(|(key, _)| key.len() <= MAX_KEY_LEN);
        self.before.extend(possible.map(|(key, _)| (key.to_vec(), trailer.sequence())));
        Ok(())
    }

    /// Takes what an entry derives that was made; whether it derives anything.
    fn make_entries(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<bool> {
        let derived = derive(&mut self.deriver, key, trailer.operation(), value)?;
        let possible = derived.entries().filter(|(key, _)| key.len() <= MAX_KEY_LEN);
        let made = self.after.len();
        self.after.extend(possible.map(|(key, value)| (key.to_vec(), trailer.sequence(), value.to_vec())));
        Ok(self.after.len() > made)
    }
}

/// What an entry derives. Of a row that is older than the index a flat-map may make nothing but an error, as it may
/// have too long a key: then it has no entries, and the index is dropped (unfit.rs), unless nobody sees the row.
fn derive<'d>(deriver: &'d mut Deriver, key: &[u8], operation: Operation, value: &[u8]) -> Result<Derived<'d>> {
    match deriver.derive(key, operation, value) {
        Err(error) if error.kind() == ErrorKind::InvalidArgument => Ok(Derived::Nothing),
        derived => derived,
    }
}

impl<'f, 'a> IndexWatch<'f, 'a> {
    /// Watches for these indexes, whose derivers take the values of the job's entries. `budget`: bytes staged per
    /// index.
    pub(crate) fn new(
        outputs: &'f Mutex<OutputFiles<'a>>,
        budget: usize,
        indexes: impl IntoIterator<Item = (IndexState, Deriver)>,
        upper: Option<Vec<u8>>,
    ) -> Self {
        let watched = |(index, deriver): (IndexState, Deriver)| Watched {
            table: index.table,
            created_at: index.index.created_at,
            deriver,
            is_guessed: false,
            has_old_patch: false,
            before: Vec::new(),
            after: Vec::new(),
            staged: Staged::default(),
        };
        let indexes = indexes.into_iter().map(watched).collect();
        Self { outputs, budget, upper, indexes, key: Vec::new(), files: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.indexes.is_empty()
    }

    /// The indexes in which an entry was made that may have no row.
    pub(crate) fn guessed(&self) -> impl Iterator<Item = TableId> {
        self.indexes.iter().filter(|index| index.is_guessed).map(|index| index.table.id)
    }

    /// Writes what is staged; the files.
    pub(crate) fn into_files(mut self) -> Result<Vec<DerivedFile>> {
        self.settle_key()?;
        for i in 0..self.indexes.len() {
            self.spill(i)?;
        }
        Ok(self.files)
    }

    /// What is staged for each derived table, and the files that had to be written before.
    pub(crate) fn into_staged(mut self) -> Result<StagedRemovals> {
        self.settle_key()?;
        let staged = self.indexes.iter_mut().filter(|index| !index.staged.is_empty());
        let staged = staged.map(|index| (index.table.id, index.staged.take_sorted())).collect();
        Ok(StagedRemovals { staged, spilled: self.files })
    }

    /// Whether entries of `key` are this part's; settles the key before it.
    fn takes(&mut self, key: &[u8]) -> Result<bool> {
        if self.upper.as_deref().is_some_and(|upper| key >= upper) {
            return Ok(false);
        }
        if self.key != key {
            self.settle_key()?;
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        Ok(true)
    }

    /// Step 2 of the module.
    fn settle_key(&mut self) -> Result<()> {
        for i in 0..self.indexes.len() {
            let Watched { before, after, staged, has_old_patch, .. } = &mut self.indexes[i];
            // A row of a flat-map may derive as many entries as a text has words.
            before.sort_unstable();
            after.sort_unstable();
            for (key, sequence) in before.iter() {
                if after.binary_search_by(|(made, number, _)| (made, number).cmp(&(key, sequence))).is_err() {
                    staged.push(key, Trailer::new(*sequence, Operation::Delete), &[]);
                }
            }
            for (key, sequence, value) in after.iter() {
                if before.binary_search_by(|(dropped, number)| (dropped, number).cmp(&(key, sequence))).is_err() {
                    staged.push(key, Trailer::new(*sequence, Operation::Put), value);
                }
            }
            before.clear();
            after.clear();
            *has_old_patch = false;
            if staged.bytes() > self.budget {
                self.spill(i)?;
            }
        }
        Ok(())
    }

    fn spill(&mut self, index: usize) -> Result<()> {
        let Watched { table, staged, .. } = &mut self.indexes[index];
        if !staged.is_empty() {
            self.files.push(write_derived(table, staged.take_sorted(), self.outputs)?);
        }
        Ok(())
    }
}

/// Writes staged entries, of which there are some, as a file of level 0 of a derived table.
pub(crate) fn write_derived(
    table: &TableShared,
    mut entries: StagedCursor,
    outputs: &Mutex<OutputFiles<'_>>,
) -> Result<DerivedFile> {
    let (number, file) = outputs.lock().create()?;
    let options = SstWriterOptions { file_number: number, ..writer_options(&table.definition, 0, None) };
    let inner = outputs.lock().inner();
    let origin = inner.origin_of(table.id, &Birth::Derived)?;
    let mut writer = SstWriter::new(file, options)?.with_origin(origin);
    entries.seek_to_first()?;
    while entries.valid() {
        writer.add(entries.key(), entries.trailer(), entries.value())?;
        entries.next()?;
    }
    let (summary, file) = writer.finish_unsynced()?;
    OutputFiles::finish(outputs, file)?;
    Ok(DerivedFile { table: table.id, number, summary })
}

impl Watch for IndexWatch<'_, '_> {
    fn dropped(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        if !self.takes(key)? {
            return Ok(());
        }
        let is_patch = trailer.operation() == Operation::Patch;
        for index in &mut self.indexes {
            index.has_old_patch |= is_patch && trailer.sequence() <= index.created_at;
            index.drop_entries(key, trailer, value)?;
        }
        Ok(())
    }

    fn made(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        if !self.takes(key)? {
            return Ok(());
        }
        let is_patch = trailer.operation() == Operation::Patch;
        for index in &mut self.indexes {
            let has_entries = index.make_entries(key, trailer, value)?;
            index.is_guessed |= has_entries && is_patch && index.has_old_patch;
        }
        Ok(())
    }
}
