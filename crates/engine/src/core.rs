//! The engine's shared state under one short lock: tables, generations waiting for their flush, running jobs.
//!
//! Lock order: commit lock, then the manifest, then this; the counter of changes (background.rs) may be locked under
//! it. No I/O happens under it.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use mycelium_base::{FileNumber, SequenceNumber, TableId};
use mycelium_compaction::BusyFiles;
use mycelium_manifest::FileNumbers;
use mycelium_memtable::{Memtable, MemtableOptions, MemtableWriter};

use crate::index::IndexShared;
use crate::patience::Pace;
use crate::table::{IndexState, TableShared, TableState};
use crate::tree::Tree;
use crate::write::{SealedLog, TableWriter, Writer};

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
    pub(crate) tables: BTreeMap<TableId, Arc<TableShared>>,
    pub(crate) numbers: FileNumbers,
    /// Oldest first.
    pub(crate) generations: VecDeque<Arc<Generation>>,
    pub(crate) flushing: bool,
    /// Whether a thread builds an index.
    pub(crate) building: bool,
    /// What running compactions hold.
    pub(crate) busy: BusyFiles,
    pub(crate) pace: Pace,
    /// Bytes that the Bloom filters of all active memtables may take together.
    filter_bytes: usize,
}

impl Core {
    pub(crate) fn new(numbers: FileNumbers, filter_bytes: usize) -> Self {
        Self {
            tables: BTreeMap::new(),
            numbers,
            generations: VecDeque::new(),
            flushing: false,
            building: false,
            busy: BusyFiles::new(),
            pace: Pace::default(),
            filter_bytes,
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

    /// A new memtable; the more tables there are, the smaller its filter.
    pub(crate) fn new_memtable(&self) -> (MemtableWriter, Arc<Memtable>) {
        Memtable::new(MemtableOptions { filter_bytes: self.filter_bytes / self.tables.len().max(1) })
    }

    /// The users' table of this name.
    pub(crate) fn table_named(&self, name: &str) -> Option<&Arc<TableShared>> {
        self.tables.values().find(|table| table.name == name && table.index.is_none())
    }

    /// The derived tables of a table's indexes, with their indexes.
    pub(crate) fn derived_tables(&self, base: TableId) -> impl Iterator<Item = (&Arc<TableShared>, &Arc<IndexShared>)> {
        let derived = self.tables.values().filter_map(|table| table.index.as_ref().map(|index| (table, index)));
        derived.filter(move |(_, index)| index.base == base)
    }

    /// The indexes of a table as they are now.
    fn indexes_of(&self, base: TableId) -> Arc<[IndexState]> {
        self.derived_tables(base).map(|(table, index)| IndexState::now(table, index)).collect()
    }

    /// The same of a table that had `last` when they were published last: it has none where it had none then.
    fn indexes_after(&self, base: TableId, last: &Arc<[IndexState]>) -> Arc<[IndexState]> {
        if last.is_empty() { last.clone() } else { self.indexes_of(base) }
    }

    /// Puts the present states of indexes into the states of their tables: readers see both as of one moment. Called
    /// before the critical section ends in which a derived table changed, or an index came or went.
    /// O(tables log tables).
    pub(crate) fn publish_indexes(&self) {
        let mut of_tables: BTreeMap<TableId, Vec<IndexState>> = BTreeMap::new();
        for table in self.tables.values() {
            if let Some(index) = &table.index {
                of_tables.entry(index.base).or_default().push(IndexState::now(table, index));
            }
        }
        for (id, table) in &self.tables {
            let state = table.state.load_full();
            let indexes: Arc<[IndexState]> = of_tables.remove(id).unwrap_or_default().into();
            if !(state.indexes.is_empty() && indexes.is_empty()) {
                let TableState { active, sealed, tree, as_of, .. } = &*state;
                let (active, sealed, tree, as_of) = (active.clone(), sealed.clone(), tree.clone(), *as_of);
                table.state.store(Arc::new(TableState { active, sealed, tree, indexes, as_of }));
            }
        }
    }

    /// Segments of sealed generations, oldest first.
    pub(crate) fn sealed_logs(&self) -> Vec<Arc<SealedLog>> {
        self.generations.iter().filter_map(|generation| generation.log.clone()).collect()
    }

    /// The commit lock is held: every non-empty memtable is replaced by a new one and waits for its flush.
    pub(crate) fn seal(&mut self, log: Option<Arc<SealedLog>>, writer: &mut Writer, next_log: FileNumber) {
        let mut memtables = Vec::new();
        // Derived tables first, whose states those of their tables hold: their ids are higher.
        for TableWriter { table: id, memtable, .. } in writer.memtables.iter_mut().rev() {
            let Some(table) = self.tables.get(id) else { continue };
            let state = table.state.load_full();
            if state.active.is_empty() {
                continue;
            }
            let (new_writer, active) = self.new_memtable();
            *memtable = new_writer;
            let mut sealed = Vec::with_capacity(state.sealed.len() + 1);
            sealed.push(state.active.clone());
            sealed.extend_from_slice(&state.sealed);
            memtables.push((*id, state.active.clone()));
            let indexes = self.indexes_after(*id, &state.indexes);
            let (tree, as_of) = (state.tree.clone(), state.as_of);
            table.state.store(Arc::new(TableState { active, sealed, tree, indexes, as_of }));
        }
        memtables.reverse();
        self.pace.note_seal(Instant::now());
        let last_sequence = writer.last_sequence;
        self.generations.push_back(Arc::new(Generation { log, next_log, last_sequence, memtables }));
    }

    /// Puts a new tree into a table's state; `flushed` are memtables that it now contains. Derived tables come before
    /// the table of their indexes, whose state takes theirs along.
    pub(crate) fn install(&mut self, id: TableId, tree: Arc<Tree>, flushed: &[Arc<Memtable>]) {
        let Some(table) = self.tables.get(&id) else { return };
        let state = table.state.load_full();
        let live: HashSet<FileNumber> = tree.all_files().map(|file| file.meta.number).collect();
        for file in state.tree.all_files() {
            if !live.contains(&file.meta.number) {
                file.mark_obsolete();
            }
        }
        let sealed = state.sealed.iter().filter(|m| !flushed.iter().any(|f| Arc::ptr_eq(f, m))).cloned().collect();
        let indexes = self.indexes_after(id, &state.indexes);
        let (active, as_of) = (state.active.clone(), state.as_of);
        table.state.store(Arc::new(TableState { active, sealed, tree, indexes, as_of }));
    }
}
