//! The engine's shared state under one short lock: tables, generations waiting for their flush, running jobs.
//!
//! Lock order: commit lock, then the manifest, then this; the counter of changes (background.rs) may be locked under
//! it. No I/O happens under it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use mycelium_base::{FileNumber, Result, SequenceNumber, TableId};
use mycelium_compaction::BusyFiles;
use mycelium_manifest::FileNumbers;
use mycelium_memtable::{Memtable, MemtableOptions};
use mycelium_wal::SealedSegment;

use crate::catalog::Catalog;
use crate::compaction_queue::CompactionQueue;
use crate::patience::Pace;
use crate::sync::Mutex;
use crate::table::{IndexState, TableState};
use crate::tree::Tree;

/// A log segment whose generation is sealed but not yet flushed.
pub(crate) struct SealedLog {
    pub(crate) number: FileNumber,
    /// To the end of its records.
    pub(crate) bytes: u64,
    segment: Mutex<SealedSegment>,
}

impl SealedLog {
    pub(crate) fn new(number: FileNumber, bytes: u64, segment: SealedSegment) -> Self {
        Self { number, bytes, segment: Mutex::new(segment) }
    }

    /// Persists the segment.
    pub(crate) fn sync(&self) -> Result<()> {
        self.segment.lock().sync()
    }
}

/// Memtables sealed together, over the log segment that holds their entries.
pub(crate) struct Generation {
    /// `None` for what recovery replayed: its segments are already complete.
    pub(crate) log: Option<Arc<SealedLog>>,
    /// The segment that follows: the oldest still needed once this generation is flushed.
    pub(crate) next_log: FileNumber,
    /// The newest sequence number that was given out before it was sealed. It may be in none of the memtables: tables
    /// are dropped.
    pub(crate) last_sequence: SequenceNumber,
    pub(crate) memtables: Vec<(TableId, Arc<Memtable>)>,
}

pub(crate) struct Core {
    pub(crate) tables: Catalog,
    /// What there is to compact, in tables whose policies were asked since they changed.
    pub(crate) queue: CompactionQueue,
    /// Tables whose load may hold writers back.
    pub(crate) loaded: BTreeSet<TableId>,
    pub(crate) numbers: FileNumbers,
    /// Oldest first.
    pub(crate) generations: VecDeque<Arc<Generation>>,
    pub(crate) flushing: bool,
    /// Whether a thread builds an index.
    pub(crate) building: bool,
    /// Flushes and compactions taken since an index could have been built instead (background.rs).
    pub(crate) ahead_of_building: usize,
    /// What running compactions hold.
    pub(crate) busy: BusyFiles,
    pub(crate) pace: Pace,
    /// Bytes for the Bloom filters of all memtables of a generation.
    pub(crate) filter_bytes: usize,
    /// The active memtable of every table that has not been written to in the active generation. It stays empty.
    pub(crate) empty: Arc<Memtable>,
}

impl Core {
    pub(crate) fn new(numbers: FileNumbers, filter_bytes: usize) -> Self {
        Self {
            tables: Catalog::default(),
            queue: CompactionQueue::default(),
            loaded: BTreeSet::new(),
            numbers,
            generations: VecDeque::new(),
            flushing: false,
            building: false,
            ahead_of_building: 0,
            busy: BusyFiles::new(),
            pace: Pace::default(),
            filter_bytes,
            empty: Memtable::new(MemtableOptions::default()).1,
        }
    }

    /// Whether a thread is at a flush, a compaction or the building of an index.
    pub(crate) fn is_working(&self) -> bool {
        self.flushing || self.building || self.busy.job_count() > 0
    }

    /// Whether a generation waits for its flush, and no thread is at one.
    pub(crate) fn has_flush_work(&self) -> bool {
        !self.generations.is_empty() && !self.flushing
    }

    /// The tables that these are published with ([`Catalog::base_of`]).
    pub(crate) fn bases_of(&self, tables: &[TableId]) -> BTreeSet<TableId> {
        tables.iter().filter_map(|id| self.tables.base_of(*id)).collect()
    }

    /// Puts the present states of a table's indexes into its state, where those are others: readers see both as of one
    /// moment. Called before the critical section ends in which a derived table changed, or an index came or went.
    /// O(indexes of the table).
    pub(crate) fn publish_indexes_of(&self, base: TableId) {
        let Some(table) = self.tables.get(&base) else { return };
        let state = table.state.load_full();
        let derived: Vec<_> = self.tables.indexes_of(base).collect();
        let mut pairs = state.indexes.iter().zip(&derived);
        if derived.len() == state.indexes.len() && pairs.all(|(known, (table, index))| known.is_now(table, index)) {
            return;
        }
        let indexes = derived.into_iter().map(|(table, index)| IndexState::now(table, index)).collect();
        let TableState { active, sealed, tree, as_of, .. } = &*state;
        let (active, sealed, tree, as_of) = (active.clone(), sealed.clone(), tree.clone(), *as_of);
        table.state.store(Arc::new(TableState { active, sealed, tree, indexes, as_of }));
    }

    /// Segments of sealed generations, oldest first.
    pub(crate) fn sealed_logs(&self) -> Vec<Arc<SealedLog>> {
        self.generations.iter().filter_map(|generation| generation.log.clone()).collect()
    }

    /// Puts a new tree into a table's state; `flushed` are memtables that it now contains. Derived tables come before
    /// the table of their indexes, whose state takes theirs along.
    pub(crate) fn install(&mut self, id: TableId, tree: Arc<Tree>, flushed: &[Arc<Memtable>]) {
        let Some(table) = self.tables.get(&id) else { return };
        let state = table.state.load_full();
        state.tree.files_that_left(&tree).into_iter().for_each(|(_, file)| file.mark_obsolete());
        let sealed = state.sealed.iter().filter(|m| !flushed.iter().any(|f| Arc::ptr_eq(f, m))).cloned().collect();
        let indexes = indexes_after(&state.indexes);
        let (active, as_of) = (state.active.clone(), state.as_of);
        table.state.store(Arc::new(TableState { active, sealed, tree, indexes, as_of }));
    }
}

/// The indexes of a table as they are now, of which these were published last: any that came or went since are
/// published before the critical section ends. O(indexes).
pub(crate) fn indexes_after(last: &Arc<[IndexState]>) -> Arc<[IndexState]> {
    match last.is_empty() {
        true => last.clone(),
        false => last.iter().map(|known| IndexState::now(&known.table, &known.index)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use mycelium_encoding::{DatumRef, Schema};
    use mycelium_vfs::MemoryDisk;

    use super::*;
    use crate::{Background, Database, Durability, IndexOptions, Options, Table, TableOptions};

    /// Each flush and compaction gave every table that has indexes another state, however many there were.
    #[test]
    fn a_flush_of_one_table_leaves_the_states_of_others_with_indexes_alone() {
        let options =
            Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
        let database = Database::open("db", options).unwrap();
        let schema = Schema::parse("id int64 not null, city utf8, primary key (id)").unwrap();
        let create = |name: &str| {
            let table = database.create_typed_table(name, schema.clone(), TableOptions::default()).unwrap();
            for index in ["first", "second"] {
                let options = IndexOptions { name: index.into(), on: vec!["city".into()], ..IndexOptions::default() };
                database.create_index(&table, &options).unwrap();
            }
            table
        };
        let insert = |table: &Table, id| {
            table.insert_row(&[DatumRef::Int64(id), DatumRef::Utf8("Graz")], Durability::Os).unwrap();
        };
        let (written, other) = (create("written"), create("other"));
        insert(&other, 1);
        database.flush().unwrap();
        let (before, left_alone) = (written.shared.state.load_full(), other.shared.state.load_full());
        insert(&written, 2);
        database.flush().unwrap();
        assert!(Arc::ptr_eq(&left_alone, &other.shared.state.load_full()));
        let after = written.shared.state.load_full();
        assert_eq!((before.tree.version.file_count(), after.tree.version.file_count()), (0, 1));
        let files = after.indexes.iter().map(|index| index.state.tree.version.file_count());
        assert!(files.eq([1, 1]), "the states of the indexes are as of the same moment");
        let names: Vec<&str> = after.indexes.iter().map(|index| index.index.name()).collect();
        assert_eq!(names, ["first", "second"]);
    }
}
