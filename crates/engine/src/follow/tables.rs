//! The tables of a state of the manifest, with their files open, beside those that there are.
//!
//! A file stays open that a table had before, under whatever number of level or table it stands now. A table that is
//! there goes on: its handles read it with another layout, other views, or an index built, and tell another expiry.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use mycelium_base::{FileNumber, Result, SequenceNumber, TableId};
use mycelium_manifest::{FileMeta, ManifestState, TableRecord, Version};
use mycelium_memtable::Memtable;

use super::log::FollowedLog;
use super::state::DatabaseState;
use crate::database::Inner;
use crate::expiry::Expiry;
use crate::index::IndexStatus;
use crate::shape::{Shape, TableFormats, recorded_layout};
use crate::table::{IndexState, TableDefinition, TableShared, TableState};
use crate::tree::{OpenFile, Tree};
use crate::view::ViewSet;

/// A table and what it is to have.
pub(super) struct NextTable {
    pub(super) shared: Arc<TableShared>,
    tree: Arc<Tree>,
    change: Option<TableChange>,
}

/// What the manifest says anew of a table that is there.
struct TableChange {
    shape: Arc<Shape>,
    views: Arc<ViewSet>,
    expiry: Option<Expiry>,
    /// Of a derived table.
    status: Option<IndexStatus>,
}

impl TableChange {
    fn of(inner: &Inner, table: &TableShared, record: &TableRecord) -> Result<Self> {
        let definition = TableDefinition::decode(&record.definition)?;
        let formats = table.formats.as_deref();
        let has_maps = formats.is_some_and(|formats| formats.maps().is_some());
        let deferral = inner.options.deferral().filter(|_| !has_maps);
        let shape = Shape::new(recorded_layout(&record.layout, formats)?, &table.definition.options, deferral);
        let status = definition.index.map(|index| index.status);
        let (views, expiry) = (Arc::new(definition.views), definition.options.expiry);
        Ok(Self { shape: Arc::new(shape), views, expiry, status })
    }

    fn apply(&self, table: &TableShared) {
        table.shape.store(self.shape.clone());
        table.views.store(self.views.clone());
        table.expiry.set(self.expiry.clone());
        if let (Some(index), Some(status)) = (&table.index, self.status) {
            index.set_status(status);
        }
    }
}

/// The tables of `state`, where those of `shown` are there.
pub(super) fn tables_of(
    inner: &Inner,
    shown: &DatabaseState,
    state: &ManifestState,
) -> Result<BTreeMap<TableId, NextTable>> {
    let mut opening = Opening { inner, shown, known: (*inner.core.lock().tables).clone(), files: HashMap::new() };
    if *state != shown.manifest {
        let files = shown.states.values().flat_map(|state| state.tree.all_files());
        opening.files.extend(files.map(|file| (file.meta.number, file.clone())));
    }
    state.tables.iter().map(|(id, table)| Ok((*id, opening.table(*id, table)?))).collect()
}

/// Opens what is not open yet.
struct Opening<'a> {
    inner: &'a Inner,
    shown: &'a DatabaseState,
    known: BTreeMap<TableId, Arc<TableShared>>,
    files: HashMap<FileNumber, Arc<OpenFile>>,
}

impl Opening<'_> {
    fn table(&mut self, id: TableId, table: &mycelium_manifest::TableState) -> Result<NextTable> {
        let (inner, shown) = (self.inner, self.shown);
        let (Some(shared), Some(state)) = (self.known.get(&id).cloned(), shown.states.get(&id)) else {
            return self.new_table(table);
        };
        let tree = match &state.tree {
            tree if tree.version == table.version => tree.clone(),
            _ => Arc::new(self.tree(&table.version, shared.formats.as_deref())?),
        };
        let is_as_before = shown.manifest.tables.get(&id).is_some_and(|before| before.record == table.record);
        let change = if is_as_before { None } else { Some(TableChange::of(inner, &shared, &table.record)?) };
        Ok(NextTable { shared, tree, change })
    }

    fn new_table(&mut self, table: &mycelium_manifest::TableState) -> Result<NextTable> {
        let inner = self.inner;
        let active = inner.core.lock().empty.clone();
        let tree = |formats: Option<&TableFormats>| self.tree(&table.version, formats);
        let shared = TableShared::new(&table.record, &inner.options, active, tree)?;
        shared.restore_trace(&*inner.disk, &inner.directory);
        let tree = shared.state.load().tree.clone();
        Ok(NextTable { shared: Arc::new(shared), tree, change: None })
    }

    fn tree(&mut self, version: &Arc<Version>, formats: Option<&TableFormats>) -> Result<Tree> {
        Tree::new(version.clone(), formats, |meta| self.file(meta))
    }

    fn file(&mut self, meta: &Arc<FileMeta>) -> Result<Arc<OpenFile>> {
        let file = match self.files.get(&meta.number) {
            Some(file) if file.meta == *meta => return Ok(file.clone()),
            Some(file) if is_same_file(&file.meta, meta) => file.with_meta(meta.clone()),
            _ => self.inner.open_file(meta)?,
        };
        self.files.insert(meta.number, file.clone());
        Ok(file)
    }
}

/// Whether what is known of a file differs only in what its table is to it.
fn is_same_file(one: &FileMeta, other: &FileMeta) -> bool {
    let bytes = |meta: &FileMeta| (meta.size, meta.checksum, meta.sequence_override);
    bytes(one) == bytes(other)
}

/// The states of the tables with what the log holds, all as of one sequence number. A table of which nothing is new
/// keeps the state that it has in `shown`: at that one's number its rows are the same.
pub(super) fn states_of(
    shown: &DatabaseState,
    tables: &BTreeMap<TableId, NextTable>,
    log: &FollowedLog,
    sequence: SequenceNumber,
) -> BTreeMap<TableId, Arc<TableState>> {
    let mut states = BTreeMap::new();
    let mut indexes_of: BTreeMap<TableId, Vec<IndexState>> = BTreeMap::new();
    // Derived tables first, whose states those of their tables hold: their ids are higher.
    for (id, NextTable { shared, tree, change }) in tables.iter().rev() {
        if let Some(change) = change {
            change.apply(shared);
        }
        let (active, sealed) = log.memtables_of(*id);
        let mut indexes = indexes_of.remove(id).unwrap_or_default();
        indexes.reverse();
        let (tree, indexes, as_of) = (tree.clone(), indexes.into(), Some(sequence));
        let next = TableState { active, sealed, tree, indexes, as_of };
        let state = match shown.states.get(id) {
            Some(before) if is_as_before(before, &next) => before.clone(),
            _ => Arc::new(next),
        };
        if let Some(index) = &shared.index {
            let (table, status) = (shared.clone(), index.status());
            let published = IndexState { table, index: index.clone(), state: state.clone(), status };
            indexes_of.entry(index.base).or_default().push(published);
        }
        states.insert(*id, state);
    }
    states
}

/// Whether the next state of a table says nothing that the one before does not. Its memtables receive what is newer
/// than the one before shows.
fn is_as_before(before: &TableState, next: &TableState) -> bool {
    let is_same_index = |(before, next): (&IndexState, &IndexState)| {
        Arc::ptr_eq(&before.table, &next.table)
            && Arc::ptr_eq(&before.state, &next.state)
            && before.status == next.status
    };
    let has_no_more = |memtable: &Arc<Memtable>| {
        let newest = memtable.sequence_range().map(|(_, newest)| newest);
        newest.is_none_or(|newest| before.as_of.is_some_and(|as_of| newest <= as_of))
    };
    Arc::ptr_eq(&before.tree, &next.tree)
        && before.memtables().map(Arc::as_ptr).eq(next.memtables().map(Arc::as_ptr))
        && before.memtables().all(has_no_more)
        && before.indexes.len() == next.indexes.len()
        && before.indexes.iter().zip(next.indexes.iter()).all(is_same_index)
}
