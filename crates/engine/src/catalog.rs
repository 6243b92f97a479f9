//! The tables of a database: by id, users' tables by name, indexes by their table, and which of them have changed or
//! may need work.
//!
//! 1. Tables come and go with edits, which say what they change ([`Catalog::note_change`]); so does the end of a job.
//! 2. Whoever looks for work asks for what has changed since it asked last: the compaction queue for its policies
//!    ([`Catalog::take_unasked`]), the throttle for loads ([`Catalog::take_unweighed`]). Indexes that are not built are
//!    a list of their own, and so are tables whose layout follows the workload, and those whose rows expire.
//!
//! So nothing that is done for one table takes a walk through all of them: each step is O(log tables).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Deref;
use std::sync::Arc;

use mycelium_base::TableId;

use crate::index::IndexShared;
use crate::table::TableShared;

/// See the module. It reads as a map by id.
#[derive(Default)]
pub(crate) struct Catalog {
    by_id: BTreeMap<TableId, Arc<TableShared>>,
    /// Users' tables.
    by_name: HashMap<String, TableId>,
    /// The derived tables of each table that has some.
    derived: BTreeMap<TableId, BTreeSet<TableId>>,
    /// Derived tables of indexes that are not built.
    unbuilt: BTreeSet<TableId>,
    /// Tables whose layout follows the workload.
    redesigned: BTreeSet<TableId>,
    /// Tables whose rows expire.
    expiring: BTreeSet<TableId>,
    /// Of which policies have not been asked since they changed.
    unasked: BTreeSet<TableId>,
    /// Whose load has not been looked at since they changed.
    unweighed: BTreeSet<TableId>,
}

impl Catalog {
    /// Puts a table in that was not there.
    pub(crate) fn insert(&mut self, table: Arc<TableShared>) {
        let id = table.id;
        if let Some(index) = &table.index {
            self.derived.entry(index.base).or_default().insert(id);
        } else {
            self.by_name.insert(table.name.clone(), id);
        }
        if table.definition.options.layout_auto {
            self.redesigned.insert(id);
        }
        self.by_id.insert(id, table);
        self.note_change(id);
    }

    /// Takes a table out.
    pub(crate) fn remove(&mut self, id: TableId) {
        let Some(table) = self.by_id.remove(&id) else { return };
        if let Some(index) = &table.index {
            let derived = self.derived.entry(index.base).or_default();
            derived.remove(&id);
            if derived.is_empty() {
                self.derived.remove(&index.base);
            }
        } else if self.by_name.get(&table.name) == Some(&id) {
            self.by_name.remove(&table.name);
        }
        self.redesigned.remove(&id);
        self.note_change(id);
    }

    /// A table has other files, another layout, expiry or status, or is there no more; or what held its files let them
    /// go.
    pub(crate) fn note_change(&mut self, id: TableId) {
        let table = self.by_id.get(&id);
        let is_unbuilt = |table: &Arc<TableShared>| table.index.as_ref().is_some_and(|index| !index.status().is_built);
        keep_if(table.is_some_and(is_unbuilt), id, &mut self.unbuilt);
        keep_if(table.is_some_and(|table| table.expiry.present().is_some()), id, &mut self.expiring);
        self.unasked.insert(id);
        self.unweighed.insert(id);
    }

    /// As [`Catalog::note_change`], of all tables: where nobody knows which.
    pub(crate) fn note_changes(&mut self) {
        self.unasked.extend(self.by_id.keys());
    }

    /// The tables that have changed since this was called last, for who asks policies.
    pub(crate) fn take_unasked(&mut self) -> BTreeSet<TableId> {
        std::mem::take(&mut self.unasked)
    }

    /// The same, for who weighs loads.
    pub(crate) fn take_unweighed(&mut self) -> BTreeSet<TableId> {
        std::mem::take(&mut self.unweighed)
    }

    /// The users' table of this name.
    pub(crate) fn named(&self, name: &str) -> Option<&Arc<TableShared>> {
        self.by_id.get(self.by_name.get(name)?)
    }

    /// The table that this one's states are published with: that of the index if it is a derived table, else itself.
    /// `None` if it is not there.
    pub(crate) fn base_of(&self, id: TableId) -> Option<TableId> {
        let table = self.by_id.get(&id)?;
        Some(table.index.as_ref().map_or(id, |index| index.base))
    }

    /// The derived tables of a table, with the indexes that they are; ascending.
    pub(crate) fn indexes_of(&self, base: TableId) -> impl Iterator<Item = (&Arc<TableShared>, &Arc<IndexShared>)> {
        let derived = self.derived.get(&base).into_iter().flatten().filter_map(move |id| self.by_id.get(id));
        derived.filter_map(|table| Some((table, table.index.as_ref()?)))
    }

    /// The tables that have indexes, ascending.
    pub(crate) fn indexed(&self) -> impl Iterator<Item = TableId> {
        self.derived.keys().copied().filter(move |id| self.by_id.contains_key(id))
    }

    /// The derived tables of indexes that are not built, ascending.
    pub(crate) fn unbuilt(&self) -> impl Iterator<Item = (&Arc<TableShared>, &Arc<IndexShared>)> {
        let derived = self.unbuilt.iter().filter_map(move |id| self.by_id.get(id));
        derived.filter_map(|table| Some((table, table.index.as_ref()?)))
    }

    /// The tables whose rows expire, ascending. Not kept up to date in a database opened read-only, which expires none.
    pub(crate) fn expiring(&self) -> impl Iterator<Item = &Arc<TableShared>> {
        self.expiring.iter().filter_map(move |id| self.by_id.get(id))
    }

    /// The tables whose layout follows the workload, ascending.
    pub(crate) fn redesigned(&self) -> impl Iterator<Item = &Arc<TableShared>> {
        self.redesigned.iter().filter_map(move |id| self.by_id.get(id))
    }
}

/// Puts a table into a set, or takes it out.
fn keep_if(is_one: bool, id: TableId, set: &mut BTreeSet<TableId>) {
    if is_one {
        set.insert(id);
    } else {
        set.remove(&id);
    }
}

impl Deref for Catalog {
    type Target = BTreeMap<TableId, Arc<TableShared>>;

    fn deref(&self) -> &Self::Target {
        &self.by_id
    }
}

impl FromIterator<Arc<TableShared>> for Catalog {
    fn from_iter<I: IntoIterator<Item = Arc<TableShared>>>(tables: I) -> Self {
        let mut catalog = Self::default();
        tables.into_iter().for_each(|table| catalog.insert(table));
        catalog
    }
}
