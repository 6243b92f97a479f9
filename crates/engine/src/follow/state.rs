//! What a database opened read-only shows, from one catching up to the next.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use mycelium_base::{Error, ErrorKind, Result, SequenceNumber, TableId};
use mycelium_manifest::ManifestState;
use mycelium_memtable::Memtable;

use crate::sync::atomic::Ordering;
use crate::table::{TableShared, TableState};

/// All tables at one sequence number. Nothing of it changes: memtables may receive what is newer, which no read at that
/// number sees. Snapshots hold theirs, for the process that writes knows of none, and keeps no version for it.
#[derive(Default)]
pub(crate) struct DatabaseState {
    pub(crate) manifest: ManifestState,
    /// What reads see: everything up to it, and nothing beyond.
    pub(crate) sequence: SequenceNumber,
    pub(crate) states: BTreeMap<TableId, Arc<TableState>>,
    /// What is in no file: the memtables of each generation, ascending by table; the oldest first.
    pub(crate) generations: Vec<Vec<(TableId, Arc<Memtable>)>>,
}

impl DatabaseState {
    /// The state of a table for reads of this one, which has it also if the table was dropped since. One that was made
    /// since has no rows here, whatever sequence numbers its entries have: compactions of the other process leave those
    /// of the last level none.
    pub(crate) fn state_of(&self, table: &TableShared) -> Result<Arc<TableState>> {
        if let Some(state) = self.states.get(&table.id) {
            return Ok(state.clone());
        }
        table.check_alive()?;
        if self.manifest.table_named(&table.name).is_some() {
            let message =
                format!("table {} is another one, or has other columns, than when the snapshot was taken", table.name);
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        Ok(table.state_without_rows())
    }

    /// A table that is not there any more: another of its name took its place, or none. Its handles find that
    /// out; its state is left empty, so that they keep nothing.
    pub(super) fn retire(&self, table: &TableShared) {
        let is_replaced = self.manifest.table_named(&table.name).is_some();
        let gone = if is_replaced { &table.replaced } else { &table.dropped };
        gone.store(true, Ordering::Release);
        drop(table.empty_state());
    }
}

impl fmt::Debug for DatabaseState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseState")
            .field("edit_count", &self.manifest.edit_count)
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}
