//! Installing an edit: first in the manifest, then in the tables' states.
//!
//! 1. Every file that the edit adds is open already: nothing can fail once the edit is durable. Of a database that is
//!    read-only after an error none is installed: the error may have taken names of its files with it.
//! 2. Append the edit to the manifest and sync it. The manifest's lock is held from here to the end, so that versions
//!    change one after the other.
//! 3. Under the core's lock build the new tree of every table that the edit touches, from files that are open, and put
//!    it into the table's state: inputs leave and outputs come in the same step (invariant "one install").

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
        let mut touched: Vec<TableId> = edit.added_files.iter().map(|added| added.table).collect();
        touched.extend(edit.removed_files.iter().map(|removed| removed.table));
        touched.extend(edit.rounds.iter().map(|changed| changed.table));
        touched.extend(flushed.iter().map(|(table, _)| *table));
        touched.sort_unstable();
        touched.dedup();
        let known = self.open_files_of(&touched, opened);
        for added in &edit.added_files {
            find(&known, added.file.number)?;
        }
        if let Err(error) = manifest.apply(&edit) {
            if error.kind() != ErrorKind::NoSpace || manifest.is_poisoned() {
                self.latch(&error);
            }
            return Err(error);
        }
        let mut core = self.core.lock();
        change(&mut core);
        // Derived tables before their tables: their ids are higher.
        for id in touched.into_iter().rev() {
            let Some(new) = manifest.state().tables.get(&id) else { continue };
            let table = core.tables.get(&id).cloned();
            let formats = table.as_ref().and_then(|table| table.formats.as_deref());
            let mut tree = Tree::new(new.version.clone(), formats, |meta| find(&known, meta.number))?;
            if let Some(table) = &table {
                tree = tree.remembering(&table.state.load().tree);
            }
            let memtables: Vec<_> = flushed.iter().filter(|(table, _)| *table == id).map(|(_, m)| m.clone()).collect();
            core.install(id, Arc::new(tree), &memtables);
        }
        core.publish_indexes();
        self.update_throttle(&core);
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

fn find(known: &OpenFiles, number: FileNumber) -> Result<Arc<OpenFile>> {
    known
        .get(&number)
        .cloned()
        .ok_or_else(|| Error::new(ErrorKind::InvalidArgument, format!("file {number} is to be installed but not open")))
}
