//! Installing an edit: first in the manifest, then in the tables' states.
//!
//! 1. Every file that the edit adds is open already: nothing can fail once the edit is durable. Of a database that is
//!    read-only after an error none is installed: the error may have taken names of its files with it.
//! 2. Append the edit to the manifest and sync it. The manifest's lock is held from here to the end, so that versions
//!    change one after the other.
//! 3. Under the core's lock build the new tree of every table that the edit touches, from files that are open, and put
//!    it into the table's state: inputs leave and outputs come in the same step (invariant "one install").
//!
//! It costs what the edit says, and the files of the tables that it is about, however many others there are.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use mycelium_base::{Error, ErrorKind, FileNumber, Result, TableId};
use mycelium_manifest::{Manifest, VersionEdit};
use mycelium_memtable::Memtable;

use crate::core::Core;
use crate::database::Inner;
use crate::tree::{OpenFile, Tree};

type OpenFiles = HashMap<FileNumber, Arc<OpenFile>>;

impl Inner {
    /// Installs an edit. `opened` are the files that it adds and that no table holds yet; `flushed` are memtables that
    /// the new trees contain; `change` adjusts the core in the same critical section.
    pub(crate) fn apply_edit(
        &self,
        manifest: &mut Manifest,
        edit: VersionEdit,
        opened: &[Arc<OpenFile>],
        flushed: &[(TableId, Arc<Memtable>)],
        change: impl FnOnce(&mut Core),
    ) -> Result<()> {
        self.check_unlatched()?;
        let touched = touched_by(&edit, flushed);
        let concerned = concerned_by(&edit, &touched);
        let known = self.open_files_of(&touched, opened);
        for added in &edit.added_files {
            find(&known, added.file.number)?;
        }
        if let Err(error) = manifest.apply(&edit) {
            if !error.kind().is_shortage() || manifest.is_poisoned() {
                self.latch(&error);
            }
            return Err(error);
        }
        let mut memtables: HashMap<TableId, Vec<Arc<Memtable>>> = HashMap::new();
        flushed.iter().for_each(|(table, memtable)| memtables.entry(*table).or_default().push(memtable.clone()));
        let mut core = self.core.lock();
        let mut bases = core.bases_of(&concerned);
        change(&mut core);
        bases.extend(core.bases_of(&concerned));
        // Derived tables before their tables: their ids are higher.
        for id in touched.into_iter().rev() {
            let Some(new) = manifest.state().tables.get(&id) else { continue };
            let table = core.tables.get(&id).cloned();
            let formats = table.as_ref().and_then(|table| table.formats.as_deref());
            let mut tree = Tree::new(new.version.clone(), formats, |meta| find(&known, meta.number))?;
            if let Some(table) = &table {
                tree = tree.remembering(&table.state.load().tree);
            }
            core.install(id, Arc::new(tree), memtables.get(&id).map(Vec::as_slice).unwrap_or_default());
        }
        bases.into_iter().for_each(|base| core.publish_indexes_of(base));
        concerned.into_iter().for_each(|id| core.tables.note_change(id));
        self.update_throttle(&mut core);
        drop(core);
        // Made for tables that were dropped meanwhile.
        let named: HashSet<FileNumber> = edit.added_files.iter().map(|added| added.file.number).collect();
        opened.iter().filter(|file| !named.contains(&file.meta.number)).for_each(|file| file.mark_obsolete());
        Ok(())
    }

    /// The open files of some tables and `opened`. No other thread can change them: the manifest is locked.
    fn open_files_of(&self, tables: &[TableId], opened: &[Arc<OpenFile>]) -> OpenFiles {
        let core = self.core.lock();
        let trees: Vec<Arc<Tree>> =
            tables.iter().filter_map(|id| core.tables.get(id)).map(|table| table.state.load().tree.clone()).collect();
        drop(core);
        let held = trees.iter().flat_map(|tree| tree.all_files());
        held.chain(opened).map(|file| (file.meta.number, file.clone())).collect()
    }
}

/// The tables whose trees an edit changes, ascending.
fn touched_by(edit: &VersionEdit, flushed: &[(TableId, Arc<Memtable>)]) -> Vec<TableId> {
    let mut touched: Vec<TableId> = edit.added_files.iter().map(|added| added.table).collect();
    touched.extend(edit.removed_files.iter().map(|removed| removed.table));
    touched.extend(edit.rounds.iter().map(|changed| changed.table));
    touched.extend(flushed.iter().map(|(table, _)| *table));
    touched.sort_unstable();
    touched.dedup();
    touched
}

/// Those, and the tables that it makes, changes, replaces or drops.
fn concerned_by(edit: &VersionEdit, touched: &[TableId]) -> Vec<TableId> {
    let mut concerned = touched.to_vec();
    concerned.extend(edit.created_tables.iter().chain(&edit.changed_tables).map(|record| record.id));
    concerned.extend(&edit.dropped_tables);
    concerned.extend(edit.replaced_tables.iter().flat_map(|replaced| [replaced.from, replaced.record.id]));
    concerned
}

fn find(known: &OpenFiles, number: FileNumber) -> Result<Arc<OpenFile>> {
    known
        .get(&number)
        .cloned()
        .ok_or_else(|| Error::new(ErrorKind::InvalidArgument, format!("file {number} is to be installed but not open")))
}
