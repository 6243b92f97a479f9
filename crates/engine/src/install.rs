//! Installing an edit: first in the manifest, then in the tables' states.
//!
//! 1. Every file that the edit adds is open already: nothing can fail once the edit is durable. Of a database that is
//!    read-only after an error none is installed: the error may have taken names of its files with it.
//! 2. Append the edit to the manifest and sync it. The manifest's lock is held from here to the end, so that versions
//!    change one after the other.
//! 3. Under the core's lock build the new tree of every table that the edit touches, from files that are open, and put
//!    it into the table's state: inputs leave and outputs come in the same step (invariant "one install").
//!
//! It costs what the edit says, the runs of the tables that it is about, and the files of those runs that it changes,
//! however many others there are.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use mycelium_base::{Error, ErrorKind, FileNumber, Result, TableId};
use mycelium_manifest::{FileMeta, Manifest, ManifestState, Version, VersionEdit};
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
        let known = Known::new(self.trees_of(&touched), opened);
        for added in &edit.added_files {
            known.check(added.file.number)?;
        }
        if let Err(error) = manifest.apply(&edit) {
            if !error.kind().is_shortage() || manifest.is_poisoned() {
                self.latch(&error);
            }
            return Err(error);
        }
        let mut memtables: HashMap<TableId, Vec<Arc<Memtable>>> = HashMap::new();
        flushed.iter().for_each(|(table, memtable)| memtables.entry(*table).or_default().push(memtable.clone()));
        let known = known.for_tables(manifest.state());
        let mut core = self.core.lock();
        let mut bases = core.bases_of(&concerned);
        change(&mut core);
        bases.extend(core.bases_of(&concerned));
        // Derived tables before their tables: their ids are higher.
        for id in touched.into_iter().rev() {
            let Some(new) = manifest.state().tables.get(&id) else { continue };
            let table = core.tables.get(&id).cloned();
            let formats = table.as_ref().and_then(|table| table.formats.as_deref());
            let (version, open) = (new.version.clone(), |meta: &Arc<FileMeta>| find(&known, meta.number));
            let tree = match &table {
                Some(table) => table.state.load().tree.succeeded_by(version, formats, open)?,
                None => Tree::new(version, formats, open)?,
            };
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

    /// The trees of those tables of these that there are. No other thread can change them: the manifest is locked.
    fn trees_of(&self, tables: &[TableId]) -> Vec<(TableId, Arc<Tree>)> {
        let core = self.core.lock();
        let tree = |id: &TableId| Some((*id, core.tables.get(id)?.state.load().tree.clone()));
        tables.iter().filter_map(tree).collect()
    }
}

/// The files that an edit can be about: those of trees, and others that were opened for it.
struct Known<'a> {
    trees: Vec<(TableId, Arc<Tree>)>,
    opened: &'a [Arc<OpenFile>],
}

impl<'a> Known<'a> {
    fn new(trees: Vec<(TableId, Arc<Tree>)>, opened: &'a [Arc<OpenFile>]) -> Self {
        Self { trees, opened }
    }

    /// Fails unless this file is among them.
    fn check(&self, number: FileNumber) -> Result<()> {
        let is_open = self.opened.iter().any(|file| file.meta.number == number)
            || self.trees.iter().any(|(_, tree)| tree.all_files().any(|file| file.meta.number == number));
        if is_open { Ok(()) } else { Err(not_open(number)) }
    }

    /// Those that the next trees of the tables may have beside whole runs of the last ones, once the edit is applied.
    fn for_tables(&self, manifest: &ManifestState) -> OpenFiles {
        let none = Version::new();
        let held = self.trees.iter().flat_map(|(id, tree)| {
            let version = manifest.tables.get(id).map_or(&none, |table| &*table.version);
            tree.files_for(version)
        });
        held.chain(self.opened).map(|file| (file.meta.number, file.clone())).collect()
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
    known.get(&number).cloned().ok_or_else(|| not_open(number))
}

#[cold]
pub(crate) fn not_open(number: FileNumber) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("file {number} is not open"))
}
