//! Making an index of a table that has rows a unique one.
//!
//! 1. Create it as one that is not unique yet ([`IndexStatus::is_unchecked`]), and have it built.
//! 2. At a snapshot, walk it: of neighbours with the same values and no null among them both are rows.
//! 3. Ask for the values of every entry that is newer than the snapshot, up to another one. The walk may have taken
//!    long, and much have been written meanwhile.
//! 4. With the commit lock held, ask for the values of every entry that is newer than that. From here every write is
//!    asked (prepare.rs), those too that were prepared before (indexed.rs). Sync the log: a crash must not bring back
//!    what was found deleted. One edit says that the index is unique.
//!
//! A crash before the edit of step 4 undoes the creation: the next open drops the index.

use std::collections::BTreeSet;
use std::sync::Arc;

use mycelium_base::{Cursor, Error, ErrorKind, Result, SequenceNumber};
use mycelium_encoding::Datum;
use mycelium_manifest::VersionEdit;
use mycelium_sst::{CursorOptions, RunCursor};

use super::definition::{IndexShared, IndexStatus};
use super::manage::{Index, changed_index};
use super::prepare::duplicate;
use super::read::{entries_of, holders};
use crate::database::Inner;
use crate::table::{IndexState, TableShared, TableState};

impl Inner {
    /// Makes an index unique that was just created; drops it again if two rows have the same values, or it cannot be
    /// built.
    pub(super) fn make_unique(&self, index: &Index) -> Result<()> {
        let result = self.build_unique(index);
        if result.is_err() && !self.is_latched() {
            let mut writer = self.commits.writer.lock();
            // Whoever asked gets the reason; what cannot be dropped now is dropped at the next open.
            if index.derived.check_alive().is_ok() {
                drop(self.drop_derived(&mut writer, &index.derived));
            }
        }
        result
    }

    fn build_unique(&self, index: &Index) -> Result<()> {
        index.wait_built()?;
        let table = &index.table.shared;
        let snapshot = self.take_snapshot();
        let (state, found) = present(index)?;
        let mut last: Option<Vec<u8>> = None;
        for key in entries_of(table, &state, &found, snapshot.sequence())? {
            let (prefix, values) = split(&index.shared, &key?)?;
            let Some(prefix) = prefix else { continue };
            if last.as_ref() == Some(&prefix) {
                return Err(duplicate(&found, &values));
            }
            last = Some(prefix);
        }
        let later = self.take_snapshot();
        self.compare_newer(index, snapshot.sequence(), later.sequence())?;
        let mut writer = self.commits.writer.lock();
        self.compare_newer(index, later.sequence(), writer.last_sequence)?;
        self.sync_locked(&mut writer)?;
        let mut manifest = self.manifest()?;
        index.derived.check_alive()?;
        let status = IndexStatus { unique: true, is_unchecked: false, ..index.shared.status() };
        let mut edit = VersionEdit::default();
        edit.changed_tables.extend(changed_index(&manifest, &index.derived, status));
        self.apply_edit(&mut manifest, edit, &[], &[], |_| index.shared.set_status(status))?;
        self.renew_derivers(&mut writer, &[index.table.shared.id])
    }

    /// Fails if two rows, as `sequence` sees them, have the values of an entry that is newer than `since`.
    fn compare_newer(&self, index: &Index, since: SequenceNumber, sequence: SequenceNumber) -> Result<()> {
        let (state, found) = present(index)?;
        for prefix in newer_prefixes(&index.shared, &found.state, since)? {
            if holders(&index.table.shared, &state, &found, &prefix, sequence)?.len() > 1 {
                let (_, values) = split(&index.shared, &prefix)?;
                return Err(duplicate(&found, &values));
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Drops what a crash has left unchecked.
    pub(crate) fn drop_unchecked_indexes(&self) -> Result<()> {
        let is_unchecked =
            |table: &&Arc<TableShared>| table.index.as_ref().is_some_and(|index| index.status().is_unchecked);
        let found: Vec<_> = self.core.lock().tables.values().filter(is_unchecked).cloned().collect();
        let mut writer = self.commits.writer.lock();
        found.iter().try_for_each(|derived| self.drop_derived(&mut writer, derived))
    }
}

/// The index as the table's present state has it, with that state.
fn present(index: &Index) -> Result<(Arc<TableState>, IndexState)> {
    let state = index.table.shared.state.load_full();
    let found = state.indexes.iter().find(|found| Arc::ptr_eq(&found.table, &index.derived)).cloned();
    let found =
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("the index {} was dropped", index.name())))?;
    Ok((state, found))
}

/// What a key of the index starts with, unless there is a null among the values, and the values.
pub(super) fn split(index: &IndexShared, key: &[u8]) -> Result<(Option<Vec<u8>>, Vec<Datum>)> {
    let (values, row_key) = index.decode_key(key)?;
    let prefix = key[..key.len() - row_key.len()].to_vec();
    Ok(((!values.contains(&Datum::Null)).then_some(prefix), values))
}

/// What the keys of entries above `since` start with, but where there is a null.
pub(super) fn newer_prefixes(
    index: &IndexShared,
    state: &TableState,
    since: SequenceNumber,
) -> Result<BTreeSet<Vec<u8>>> {
    let mut prefixes = BTreeSet::new();
    let mut gather = |cursor: &mut dyn Cursor| {
        cursor.seek_to_first()?;
        while cursor.valid() {
            if cursor.trailer().sequence() > since {
                prefixes.extend(split(index, cursor.key())?.0);
            }
            cursor.next()?;
        }
        Ok::<(), Error>(())
    };
    for memtable in state.memtables() {
        gather(&mut memtable.cursor())?;
    }
    let options = CursorOptions { fill_cache: false, read_ahead: 64 << 10, ..CursorOptions::default() };
    for (_, file) in state.tree.files().filter(|(_, file)| file.meta.max_sequence > since) {
        gather(&mut RunCursor::new([file.sst.clone()], options))?;
    }
    Ok(prefixes)
}
