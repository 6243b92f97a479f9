//! Which tables have indexes, as those who write see it.
//!
//! 1. Whoever commits a batch first takes the present [`IndexedTables`], without a lock, and prepares the batch for
//!    them (prepare.rs).
//! 2. Creating or dropping an index, or making one unique, puts another one in their place, with the commit lock held
//!    and its edit installed (derive.rs).
//! 3. Rows that are added to a batch derive their entries at once, for the present ones (ahead.rs).
//! 4. A batch that was prepared for others than the present ones is refused under the commit lock, before it is logged
//!    ([`IndexedTables::check`]): its patches may lack columns, and the unique index may not have been asked.
//!
//! So every committed batch was prepared for exactly the indexes that it is derived for.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use mycelium_base::{ColumnSet, Error, ErrorKind, Operation, Result, TableId};
use mycelium_encoding::{FragmentFormat, Reshape};
use mycelium_transform::RowIndexer;

use super::definition::IndexShared;
use crate::catalog::Catalog;
use crate::operations::Operations;
use crate::table::TableShared;

/// The tables with indexes, between one change of the indexes and the next.
#[derive(Default)]
pub(crate) struct IndexedTables {
    generation: IndexGeneration,
    /// Ascending.
    tables: Vec<IndexedTable>,
    /// Whether one of the indexes is unique.
    has_unique: bool,
}

#[derive(Clone)]
struct IndexedTable {
    id: TableId,
    has_unique: bool,
    /// The columns that some index reads.
    reads: ColumnSet,
    /// Make the entries of its indexes; `None` if a flat-map is among them, which is shown rows as they are stored.
    indexers: Option<Arc<[TableIndexer]>>,
}

/// Makes the entries of one index.
pub(super) struct TableIndexer {
    /// The derived table.
    pub(super) table: TableId,
    pub(super) rows: RowIndexer,
    /// From stored rows to the values of the index's entries, if these hold anything.
    pub(super) covered: Option<Reshape>,
}

/// The tables for whose indexes a batch must be prepared.
pub(crate) type Uses = BTreeMap<TableId, KeyCounts>;

/// How many operations of a batch are about each key; empty if no operation is a patch.
pub(crate) type KeyCounts = HashMap<Vec<u8>, u32>;

/// Tells the indexes that there were at one time from those at any other.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct IndexGeneration(u64);

impl IndexGeneration {
    /// After a change of the indexes.
    fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl IndexedTables {
    /// After a change of the indexes of these tables. A few words a table with indexes are copied.
    pub(super) fn after(&self, catalog: &Catalog, changed: &[TableId]) -> Self {
        let generation = self.generation.next();
        let mut tables = self.tables.clone();
        for &id in changed {
            let now = catalog.get(&id).and_then(|_| Self::of(catalog, id));
            match (tables.binary_search_by_key(&id, |indexed| indexed.id), now) {
                (Ok(at), Some(now)) => tables[at] = now,
                (Ok(at), None) => {
                    tables.remove(at);
                }
                (Err(at), Some(now)) => tables.insert(at, now),
                (Err(_), None) => {}
            }
        }
        Self::new(generation, tables)
    }

    fn new(generation: IndexGeneration, tables: Vec<IndexedTable>) -> Self {
        let has_unique = tables.iter().any(|table| table.has_unique);
        Self { generation, tables, has_unique }
    }

    /// The tables that have indexes when the database is opened.
    pub(super) fn at_opening(catalog: &Catalog) -> Self {
        let tables = catalog.indexed().filter_map(|id| Self::of(catalog, id)).collect();
        Self::new(IndexGeneration::default(), tables)
    }

    /// A table, if it has indexes.
    fn of(catalog: &Catalog, id: TableId) -> Option<IndexedTable> {
        let mut indexes = catalog.indexes_of(id).peekable();
        indexes.peek()?;
        let formats = catalog.get(&id)?.typed_formats().ok()?;
        let indexer = |(table, index): (&Arc<TableShared>, &Arc<IndexShared>)| {
            let (rows, cover) = (index.source.row_indexer(&index.schema)?, index.source.cover()?);
            let covered = || formats.whole.reshape(&FragmentFormat::packed(index.schema.clone(), cover.clone())).ok();
            let covered = if cover.is_empty() { None } else { Some(covered()?) };
            Some(TableIndexer { table: table.id, rows, covered })
        };
        let indexers = catalog.indexes_of(id).map(indexer).collect::<Option<_>>();
        let reads =
            catalog.indexes_of(id).fold(ColumnSet::new(), |all, (_, index)| all.union(index.source.columns_read()));
        let has_unique = indexes.any(|(_, index)| index.status().unique);
        Some(IndexedTable { id, has_unique, reads, indexers })
    }

    /// What makes the entries of a table's indexes: of none if it has none, and nothing does if a flat-map is among
    /// them.
    #[inline]
    pub(super) fn indexers(&self, id: TableId) -> Option<&[TableIndexer]> {
        self.get(id).map_or(Some(&[]), |table| table.indexers.as_deref())
    }

    /// Whether some index of a table reads one of these columns.
    #[inline]
    pub(super) fn reads(&self, id: TableId, columns: &ColumnSet) -> bool {
        self.get(id).is_some_and(|table| table.reads.overlaps(columns))
    }

    #[inline]
    fn get(&self, id: TableId) -> Option<&IndexedTable> {
        self.tables.binary_search_by_key(&id, |indexed| indexed.id).ok().map(|at| &self.tables[at])
    }

    #[inline]
    pub(crate) fn generation(&self) -> IndexGeneration {
        self.generation
    }

    /// The tables for whose indexes a batch must be prepared: it patches columns of theirs, or puts rows and an index
    /// is unique. `is_known` says that what the batch derives is known, so that no patch is of such columns. Takes no
    /// lock, and allocates nothing where there are none.
    #[inline]
    pub(crate) fn uses_of(&self, body: &[u8], count: u32, is_known: bool) -> Result<Uses> {
        let concerns_none = if is_known { !self.has_unique } else { self.tables.is_empty() };
        if concerns_none { Ok(Uses::new()) } else { self.find_uses(body, count, is_known) }
    }

    fn find_uses(&self, body: &[u8], count: u32, is_known: bool) -> Result<Uses> {
        let (mut uses, mut has_patches) = (Uses::new(), false);
        let mut operations = Operations::new(body, 0, count);
        while let Some((table, entry)) = operations.next()? {
            let is_patch = entry.trailer.operation() == Operation::Patch;
            has_patches |= is_patch;
            if self.concerns(table, entry.trailer.operation()) && !(is_patch && is_known) {
                uses.entry(table).or_default();
            }
        }
        if has_patches {
            let mut operations = Operations::new(body, 0, count);
            while let Some((table, entry)) = operations.next()? {
                if let Some(keys) = uses.get_mut(&table) {
                    *keys.entry(entry.key.to_vec()).or_default() += 1;
                }
            }
        }
        Ok(uses)
    }

    fn concerns(&self, table: TableId, operation: Operation) -> bool {
        match operation {
            Operation::Patch => self.get(table).is_some(),
            Operation::Put => self.get(table).is_some_and(|table| table.has_unique),
            Operation::Delete | Operation::RangeDelete | Operation::Merge => false,
        }
    }

    /// Refuses a batch that was prepared for the indexes of another generation.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`].
    #[inline]
    pub(super) fn check(&self, prepared_for: IndexGeneration) -> Result<()> {
        if prepared_for == self.generation { Ok(()) } else { Err(outdated()) }
    }
}

#[cold]
fn outdated() -> Error {
    Error::new(ErrorKind::Conflict, "an index was created or dropped, or became unique, just before the commit")
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::Arc;
    use std::thread::{Scope, ScopedJoinHandle};

    use mycelium_base::SequenceNumber;
    use mycelium_encoding::{Datum, DatumRef, Schema};
    use mycelium_vfs::MemoryDisk;

    use super::*;
    use crate::batch::WriteBatch;
    use crate::database::Database;
    use crate::index::{Index, IndexOptions};
    use crate::options::{Background, Durability, Options, TableOptions};
    use crate::table::Table;
    use crate::transaction::IsolationLevel;
    use crate::write::ReadyBatch;

    type Outcome = Result<SequenceNumber>;

    fn create() -> (Database, Table) {
        let options =
            Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
        let database = Database::open("db", options).unwrap();
        let schema = Schema::parse("id int64 not null, city utf8, year int32, primary key (id)").unwrap();
        let table = database.create_typed_table("people", schema, TableOptions::default()).unwrap();
        (database, table)
    }

    fn options(on: &[&str], unique: bool) -> IndexOptions {
        let on = on.iter().map(|&column| column.to_owned()).collect();
        IndexOptions { name: "index".into(), on, unique, ..IndexOptions::default() }
    }

    fn row(id: i64, city: &str) -> [DatumRef<'_>; 3] {
        [DatumRef::Int64(id), DatumRef::Utf8(city), DatumRef::Int32(0)]
    }

    fn put(table: &Table, id: i64, city: &str) -> Outcome {
        table.insert_row(&row(id, city), Durability::Os)
    }

    fn ids(index: &Index, city: &str) -> Vec<Datum> {
        let rows = index.get(&[DatumRef::Utf8(city)], Some(&[0]), None).unwrap();
        rows.map(|row| row.unwrap().values.remove(0)).collect()
    }

    fn kind(outcome: Outcome) -> ErrorKind {
        outcome.unwrap_err().kind()
    }

    /// Starts a write that finds the commit lock held, and waits until it is queued.
    fn queue<'s>(
        scope: &'s Scope<'s, '_>,
        database: &Database,
        write: impl FnOnce() -> Outcome + Send + 's,
    ) -> ScopedJoinHandle<'s, Outcome> {
        let before = database.inner.commits.waiting_count();
        let thread = scope.spawn(write);
        while database.inner.commits.waiting_count() == before {
            assert!(!thread.is_finished(), "it was refused before it came to the queue");
            std::thread::yield_now();
        }
        thread
    }

    #[test]
    fn a_batch_prepared_before_an_index_became_unique_is_refused() {
        let (database, table) = create();
        put(&table, 1, "Graz").unwrap();
        let before = database.inner.indexed.load().generation();
        database.create_index(&table, &options(&["city"], false)).unwrap();
        let between = database.inner.indexed.load().generation();
        database.drop_index(&table, "index").unwrap();
        let index = database.create_index(&table, &options(&["city"], true)).unwrap();
        assert!(index.is_unique());
        let mut batch = WriteBatch::new();
        batch.insert_row(&table, &row(2, "Graz")).unwrap();
        let last = database.last_sequence();
        let commit = |prepared_for| {
            let body = Cow::Borrowed(batch.body());
            let (durability, derived) = (Durability::Os, None);
            database.inner.commit(ReadyBatch { body, count: 1, durability, prepared_for, derived }, None)
        };
        assert_eq!(kind(commit(before)), ErrorKind::Conflict);
        assert_eq!(kind(commit(between)), ErrorKind::Conflict);
        assert_eq!(kind(database.write(&batch, Durability::Os)), ErrorKind::Duplicate);
        assert_eq!((database.last_sequence(), ids(&index, "Graz")), (last, vec![Datum::Int64(1)]));
    }

    #[test]
    fn batches_that_no_index_asks_anything_of_are_not_prepared() {
        let (database, table) = create();
        let other = database.create_typed_table("other", (**table.schema().unwrap()).clone(), TableOptions::default());
        let other = other.unwrap();
        let mut puts = WriteBatch::new();
        puts.insert_row(&table, &row(1, "Graz")).unwrap().insert_row(&other, &row(1, "Graz")).unwrap();
        puts.delete(&table, b"key");
        let mut patches = WriteBatch::new();
        let change = [("year", DatumRef::Int32(1))];
        patches.patch_row(&table, &[DatumRef::Int64(1)], &change).unwrap();
        patches.patch_row(&table, &[DatumRef::Int64(1)], &change).unwrap();
        patches.patch_row(&other, &[DatumRef::Int64(1)], &change).unwrap();
        let uses = |batch: &WriteBatch| -> Vec<(TableId, Vec<u32>)> {
            let uses = database.inner.indexed.load().uses_of(batch.body(), batch.len() as u32, false).unwrap();
            uses.into_iter().map(|(id, keys)| (id, keys.into_values().collect())).collect()
        };
        assert_eq!((uses(&puts), uses(&patches)), (vec![], vec![]));
        database.create_index(&table, &options(&["city"], false)).unwrap();
        assert_eq!((uses(&puts), uses(&patches)), (vec![], vec![(table.id(), vec![2])]));
        database.drop_index(&table, "index").unwrap();
        database.create_index(&table, &options(&["city"], true)).unwrap();
        assert_eq!((uses(&puts), uses(&patches)), (vec![(table.id(), vec![])], vec![(table.id(), vec![2])]));
        database.drop_table("people").unwrap();
        assert_eq!((uses(&puts), uses(&patches)), (vec![], vec![]));
    }

    /// Both wait for the commit lock, prepared for no index, while the index is created; others of their group are
    /// prepared for it.
    #[test]
    fn writers_that_wait_while_a_unique_index_is_created_are_asked_by_it() {
        let (database, table) = create();
        std::thread::scope(|scope| {
            let mut writer = database.inner.commits.writer.lock();
            let mut transaction = database.begin(IsolationLevel::Snapshot);
            transaction.insert_row(&table, &row(9, "Bonn")).unwrap();
            let stale = queue(scope, &database, || transaction.commit(Durability::Os));
            let same = [1, 2].map(|id| {
                let table = &table;
                queue(scope, &database, move || put(table, id, "Graz"))
            });
            let index = database.inner.create_locked(&mut writer, &table, &options(&["city"], true)).unwrap();
            let fresh = queue(scope, &database, || put(&table, 3, "Wien"));
            drop(writer);
            assert_eq!(kind(stale.join().unwrap()), ErrorKind::Conflict, "a transaction runs again as a whole");
            fresh.join().unwrap().unwrap();
            let mut same = same.map(|thread| thread.join().unwrap());
            same.sort_by_key(|outcome| outcome.is_err());
            let [first, second] = same;
            first.unwrap();
            assert_eq!(kind(second), ErrorKind::Duplicate);
            assert_eq!((ids(&index, "Graz").len(), ids(&index, "Wien").len(), ids(&index, "Bonn").len()), (1, 1, 0));
        });
    }

    #[test]
    fn a_patch_that_waits_while_an_index_is_created_is_completed_for_it() {
        let (database, table) = create();
        put(&table, 1, "Graz").unwrap();
        let index = std::thread::scope(|scope| {
            let mut writer = database.inner.commits.writer.lock();
            let patch = || table.patch_row(&[DatumRef::Int64(1)], &[("city", DatumRef::Utf8("Linz"))], Durability::Os);
            let patch = queue(scope, &database, patch);
            let index = database.inner.create_locked(&mut writer, &table, &options(&["city", "year"], false)).unwrap();
            drop(writer);
            patch.join().unwrap().unwrap();
            index
        });
        database.wait_idle().unwrap();
        assert!(index.is_built());
        assert_eq!((ids(&index, "Graz").len(), ids(&index, "Linz").len()), (0, 1));
    }

    #[test]
    fn a_writer_that_waits_while_its_unique_index_is_dropped_writes() {
        let (database, table) = create();
        database.create_index(&table, &options(&["city"], true)).unwrap();
        std::thread::scope(|scope| {
            let mut writer = database.inner.commits.writer.lock();
            let waiting = queue(scope, &database, || put(&table, 1, "Graz"));
            database.inner.drop_locked(&mut writer, &table, "index").unwrap();
            drop(writer);
            waiting.join().unwrap().unwrap();
        });
        put(&table, 2, "Graz").unwrap();
    }
}
