//! The live tables of a state: by id, by name, those without files, and which ids are in use.
//!
//! What is asked of tables whenever a file is begun or an edit is applied is kept up to date with every change, so that
//! it does not take a walk through all of them: O(log tables) for each table that changes.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use mycelium_base::TableId;

use crate::edit::TableRecord;
use crate::version::{Version, VersionError};

/// A live table: its record and its files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableState {
    /// Name, definition, layout. Shared by the states of which no edit changes it.
    pub record: Arc<TableRecord>,
    /// The table's files.
    pub version: Arc<Version>,
}

impl TableState {
    /// Checks the version's invariants; that places tell the age of entries is none of a derived table.
    pub fn check(&self) -> std::result::Result<(), VersionError> {
        if self.record.is_derived() { self.version.check_places() } else { self.version.check() }
    }
}

/// The live tables by id, which read as a map.
///
/// ```
/// use std::sync::Arc;
/// use mycelium_base::TableId;
/// use mycelium_manifest::{TableRecord, TableState, Tables};
///
/// let mut tables = Tables::default();
/// for id in [0, 1, 4] {
///     let record = TableRecord { id: TableId(id), name: format!("t{id}"), definition: vec![], layout: String::new() };
///     tables.insert(TableId(id), TableState { record: Arc::new(record), version: Arc::default() });
/// }
/// assert_eq!(tables.named("t4").map(|table| table.record.id), Some(TableId(4)));
/// assert_eq!(tables.id_ranges(), [(0, 2), (4, 1)]);
/// assert_eq!(tables.len(), 3);
/// ```
#[derive(Clone, Default, Debug)]
pub struct Tables {
    by_id: BTreeMap<TableId, TableState>,
    by_name: HashMap<Name, TableId>,
    without_files: BTreeSet<TableId>,
    /// The first id, and how many follow each other; ascending, with gaps between.
    id_ranges: Vec<(u32, u32)>,
}

impl Tables {
    /// The table of this name. O(1).
    pub fn named(&self, name: &str) -> Option<&TableState> {
        self.by_id.get(self.by_name.get(name)?)
    }

    /// The tables that have no file in a level, by id.
    pub fn without_files(&self) -> impl Iterator<Item = &TableState> {
        self.without_files.iter().filter_map(move |id| self.by_id.get(id))
    }

    /// The ids in use, ascending: the first, and how many follow each other.
    pub fn id_ranges(&self) -> &[(u32, u32)] {
        &self.id_ranges
    }

    /// Puts a table in its place, or in that of the one that has the id. O(log tables), and O(ranges of ids) for a new
    /// one.
    pub fn insert(&mut self, id: TableId, table: TableState) {
        match table.version.file_count() {
            0 => self.without_files.insert(id),
            _ => self.without_files.remove(&id),
        };
        let name = Name(table.record.clone());
        match self.by_id.insert(id, table) {
            // As when a flush adds files to it.
            Some(before) if Arc::ptr_eq(&before.record, &name.0) => return,
            Some(before) => self.forget_name(id, &before.record.name),
            None => add_id(&mut self.id_ranges, id.0),
        }
        self.by_name.insert(name, id);
    }

    /// Takes a table out. O(log tables + ranges of ids).
    pub fn remove(&mut self, id: &TableId) -> Option<TableState> {
        let table = self.by_id.remove(id)?;
        self.without_files.remove(id);
        remove_id(&mut self.id_ranges, id.0);
        self.forget_name(*id, &table.record.name);
        Some(table)
    }

    /// As a map, to be changed at will and made into tables again.
    pub fn into_map(self) -> BTreeMap<TableId, TableState> {
        self.by_id
    }

    /// The name may be another table's by now.
    fn forget_name(&mut self, id: TableId, name: &str) {
        if self.by_name.get(name) == Some(&id) {
            self.by_name.remove(name);
        }
    }
}

impl Deref for Tables {
    type Target = BTreeMap<TableId, TableState>;

    fn deref(&self) -> &Self::Target {
        &self.by_id
    }
}

impl PartialEq for Tables {
    fn eq(&self, other: &Self) -> bool {
        self.by_id == other.by_id
    }
}

impl Eq for Tables {}

impl From<BTreeMap<TableId, TableState>> for Tables {
    fn from(tables: BTreeMap<TableId, TableState>) -> Self {
        let mut all = Self::default();
        tables.into_iter().for_each(|(id, table)| all.insert(id, table));
        all
    }
}

impl<'t> IntoIterator for &'t Tables {
    type Item = (&'t TableId, &'t TableState);
    type IntoIter = std::collections::btree_map::Iter<'t, TableId, TableState>;

    fn into_iter(self) -> Self::IntoIter {
        self.by_id.iter()
    }
}

/// The name of a record, which it shares.
#[derive(Clone, Debug)]
struct Name(Arc<TableRecord>);

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0.name
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // As the `str` that it is borrowed as.
        self.0.name.as_str().hash(state);
    }
}

/// Adds an id that is in none of the ranges.
fn add_id(ranges: &mut Vec<(u32, u32)>, id: u32) {
    let after = ranges.partition_point(|&(first, _)| first <= id);
    let joins_next = ranges.get(after).is_some_and(|&(first, _)| first - 1 == id);
    let joins_last = after.checked_sub(1).filter(|&at| id - ranges[at].0 == ranges[at].1);
    match (joins_last, joins_next) {
        (Some(at), true) => {
            let (_, count) = ranges.remove(after);
            ranges[at].1 += 1 + count;
        }
        (Some(at), false) => ranges[at].1 += 1,
        (None, true) => ranges[after] = (id, ranges[after].1 + 1),
        (None, false) => ranges.insert(after, (id, 1)),
    }
}

/// Takes out an id that is in one of the ranges.
fn remove_id(ranges: &mut Vec<(u32, u32)>, id: u32) {
    let Some(at) = ranges.partition_point(|&(first, _)| first <= id).checked_sub(1) else { return };
    let (first, count) = ranges[at];
    let before = id - first;
    match (before, count - before - 1) {
        (0, 0) => {
            ranges.remove(at);
        }
        (0, behind) => ranges[at] = (id + 1, behind),
        (before, 0) => ranges[at].1 = before,
        (before, behind) => {
            ranges[at].1 = before;
            ranges.insert(at + 1, (id + 1, behind));
        }
    }
}

#[cfg(test)]
mod tests {
    use mycelium_base::FileNumber;

    use super::*;
    use crate::file_meta::FileMeta;
    use crate::version::{Level, Run};

    fn table(id: u32, name: u32, files: FileNumber) -> TableState {
        let record = TableRecord {
            id: TableId(id),
            name: format!("table {name}"),
            definition: Vec::new(),
            layout: String::new(),
        };
        let file = |number| Arc::new(FileMeta { number, ..FileMeta::default() });
        let run = |number| Arc::new(Run { files: vec![file(number)] });
        let levels = vec![Level { runs: (0..files).map(run).collect() }];
        TableState { record: Arc::new(record), version: Arc::new(Version { levels, rounds: Vec::new() }) }
    }

    /// All that is kept up to date, against a walk through all tables.
    fn check(tables: &Tables, model: &BTreeMap<TableId, TableState>) {
        assert_eq!(**tables, *model);
        for table in model.values() {
            assert_eq!(tables.named(&table.record.name).map(|found| found.record.id), Some(table.record.id));
        }
        assert!(tables.named("none").is_none());
        assert_eq!(tables.by_name.len(), model.len());
        let empty = model.values().filter(|table| table.version.file_count() == 0);
        assert!(tables.without_files().eq(empty));
        let ranges = tables.id_ranges();
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0), "{ranges:?}");
        let in_ranges = ranges.iter().flat_map(|&(first, count)| first..first + count);
        assert!(in_ranges.eq(model.keys().map(|id| id.0)), "{ranges:?}");
    }

    #[test]
    fn what_is_kept_of_tables_follows_every_change() {
        let (mut tables, mut model) = (Tables::default(), BTreeMap::new());
        let mut state = 7_u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for step in 0..2_000 {
            let id = draw(40) as u32;
            if draw(3) == 0 {
                assert_eq!(tables.remove(&TableId(id)), model.remove(&TableId(id)));
            } else {
                // Now and then under another name.
                let table = table(id, id + 100 * draw(2) as u32, draw(3));
                tables.insert(TableId(id), table.clone());
                model.insert(TableId(id), table);
            }
            if step % 16 == 0 {
                check(&tables, &model);
            }
        }
        check(&tables, &model);
        check(&Tables::from(model.clone()), &model);
        assert_eq!(tables.into_map(), model);
    }

    #[test]
    fn a_name_that_moved_to_another_table_stays_with_it() {
        let mut tables = Tables::default();
        tables.insert(TableId(1), table(1, 5, 0));
        tables.insert(TableId(0), table(0, 5, 0));
        drop(tables.remove(&TableId(1)));
        assert_eq!(tables.named("table 5").map(|table| table.record.id), Some(TableId(0)));
    }
}
