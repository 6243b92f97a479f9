//! Deriving ahead of the write, from the values of rows.
//!
//! 1. A row that is added to a batch as values or as a payload derives its entries at once, for the indexes that there
//!    are at that moment (indexed.rs): the columns are at hand, and nobody waits for the commit lock meanwhile. A
//!    delete derives nothing, nor does a patch of columns that no index reads.
//! 2. That goes on up to the first operation of which it is not so: a row that comes encoded, another patch, a row of a
//!    table with a flat-map, one that an index cannot hold, one that finds other indexes than those before it.
//! 3. The commit takes what was derived if that is of all operations and for the indexes that the batch was prepared
//!    for, and derives the whole batch otherwise (derive.rs), with the errors that there are. What is taken has no
//!    patch that would have to be completed (prepare.rs).
//!
//! Both are the same entries: the formats keep every value to the bit.

use mycelium_base::limits::{MAX_DERIVED_BATCH_LEN, MAX_KEY_LEN};
use mycelium_base::{ColumnSet, Result, TableId};
use mycelium_encoding::DatumRef;
use mycelium_encoding::row_format::RowScratch;
use mycelium_transform::RowValues;

use super::derive::DerivedBatch;
use super::indexed::{IndexGeneration, IndexedTables, TableIndexer};

/// What the first operations of a batch derive.
#[derive(Clone, Default, Debug)]
pub(crate) struct DerivedAhead {
    /// How many of them.
    operations: u32,
    /// The indexes that it is for, if there is a row or a patch among them.
    generation: Option<IndexGeneration>,
    batch: DerivedBatch,
    scratch: RowScratch,
}

impl DerivedAhead {
    /// The operation at this place of the batch, its next, derives nothing.
    #[inline]
    pub(crate) fn add_nothing(&mut self, operation: u32) {
        if self.operations == operation {
            self.operations += 1;
        }
    }

    /// The operation at this place of the batch, its next, is a patch of these columns of `table`, which was accepted.
    #[inline]
    pub(crate) fn add_patch(
        &mut self,
        (operation, table): (u32, TableId),
        changed: &ColumnSet,
        indexed: &IndexedTables,
    ) {
        if self.is_next(operation, indexed) && !indexed.reads(table, changed) {
            self.operations += 1;
        }
    }

    /// The operation at this place of the batch, its next, is a row of `table`, given by its values. These were
    /// accepted.
    pub(crate) fn add_row(
        &mut self,
        place: (u32, TableId),
        (key, row): (&[u8], &[DatumRef<'_>]),
        indexed: &IndexedTables,
    ) {
        self.add_entries(place, indexed, |indexer, entry, batch, scratch| {
            batch.add_with(
                entry,
                |out| indexer.rows.encode_key(row, key, out),
                |out| indexer.rows.encode_value(row, scratch, out),
            )
        });
    }

    /// As [`DerivedAhead::add_row`], of a row whose values are found one by one, and as it is stored.
    pub(crate) fn add_stored(
        &mut self,
        place: (u32, TableId),
        (key, row, stored): (&[u8], &mut impl RowValues, &[u8]),
        indexed: &IndexedTables,
    ) {
        self.add_entries(place, indexed, |indexer, entry, batch, scratch| {
            let covered = |out: &mut Vec<u8>| match &indexer.covered {
                Some(covered) => covered.apply(stored, scratch, out).map(drop),
                None => Ok(()),
            };
            batch.add_with(entry, |out| indexer.rows.encode_key_of(row, key, out), covered)
        });
    }

    /// Whether an operation is the next one of which it is not known what it derives, and for the same indexes.
    #[inline]
    fn is_next(&mut self, operation: u32, indexed: &IndexedTables) -> bool {
        let generation = *self.generation.get_or_insert(indexed.generation());
        self.operations == operation && generation == indexed.generation()
    }

    /// Adds what `derive` makes for each index of a row; the length of the entry's key.
    fn add_entries(
        &mut self,
        (operation, table): (u32, TableId),
        indexed: &IndexedTables,
        mut derive: impl FnMut(&TableIndexer, (TableId, u64), &mut DerivedBatch, &mut RowScratch) -> Result<usize>,
    ) {
        if !self.is_next(operation, indexed) {
            return;
        }
        let Some(indexers) = indexed.indexers(table) else { return };
        for indexer in indexers {
            let entry = (indexer.table, u64::from(operation));
            let added = derive(indexer, entry, &mut self.batch, &mut self.scratch);
            let is_possible = added.is_ok_and(|key_len| key_len <= MAX_KEY_LEN);
            if !is_possible || self.batch.memory_usage() > MAX_DERIVED_BATCH_LEN {
                return;
            }
        }
        self.operations += 1;
    }

    /// What a batch of so many operations derives for the indexes of this generation, if it is known.
    #[inline]
    pub(crate) fn whole(&self, operations: u32, generation: IndexGeneration) -> Option<&DerivedBatch> {
        let is_for = self.generation.is_none_or(|own| own == generation);
        (self.operations == operations && is_for).then_some(&self.batch)
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory_usage(&self) -> usize {
        self.batch.memory_usage()
    }

    /// Forgets everything, and keeps the memory.
    #[inline]
    pub(crate) fn clear(&mut self) {
        (self.operations, self.generation) = (0, None);
        self.batch.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mycelium_base::{ErrorKind, RowFormatKind};
    use mycelium_encoding::row_format::RowFormatDefinition;
    use mycelium_encoding::{Datum, Schema};
    use mycelium_vfs::MemoryDisk;

    use super::*;
    use crate::batch::WriteBatch;
    use crate::database::Database;
    use crate::index::{Index, IndexOptions};
    use crate::options::{Background, Durability, Options, TableOptions};
    use crate::table::Table;

    fn create() -> (Database, Table) {
        create_of(RowFormatKind::Packed)
    }

    fn create_of(kind: RowFormatKind) -> (Database, Table) {
        let options =
            Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
        let database = Database::open("db", options).unwrap();
        let schema = Schema::parse("id int64 not null, city utf8, name utf8, primary key (id)").unwrap();
        let row_format = RowFormatDefinition { kind, ..RowFormatDefinition::default() };
        let options = TableOptions { row_format, ..TableOptions::default() };
        let table = database.create_typed_table("people", schema, options).unwrap();
        (database, table)
    }

    fn index(database: &Database, table: &Table, name: &str, on: &str, cover: &[&str]) -> Index {
        let cover = cover.iter().map(|&column| column.to_owned()).collect();
        let options = IndexOptions { name: name.into(), on: vec![on.into()], cover, ..IndexOptions::default() };
        database.create_index(table, &options).unwrap()
    }

    fn row(id: i64, city: &str) -> [DatumRef<'_>; 3] {
        [DatumRef::Int64(id), DatumRef::Utf8(city), DatumRef::Utf8("Ada")]
    }

    fn is_known(database: &Database, batch: &WriteBatch) -> bool {
        batch.derived().whole(batch.len() as u32, database.inner.indexed.load().generation()).is_some()
    }

    fn found(index: &Index, value: &str) -> Vec<Vec<Datum>> {
        let rows = index.get(&[DatumRef::Utf8(value)], Some(&[0, 2]), None).unwrap();
        rows.map(|row| row.unwrap().values).collect()
    }

    fn ada(id: i64) -> Vec<Datum> {
        vec![Datum::Int64(id), Datum::Utf8("Ada".into())]
    }

    #[test]
    fn rows_and_deletes_are_known_and_nothing_after_another_operation() {
        let (database, table) = create();
        let by_city = index(&database, &table, "by_city", "city", &["name"]);
        let mut batch = WriteBatch::new();
        batch.insert_row(&table, &row(1, "Graz")).unwrap().insert_row(&table, &row(2, "Graz")).unwrap();
        batch.delete_row(&table, &[DatumRef::Int64(1)]).unwrap();
        batch.insert_row(&table, &row(3, "Linz")).unwrap();
        assert!(is_known(&database, &batch));
        database.write(&batch, Durability::Os).unwrap();
        assert_eq!((found(&by_city, "Graz"), found(&by_city, "Linz")), (vec![ada(2)], vec![ada(3)]));
        // What was written may be written again.
        database.write(&batch, Durability::Os).unwrap();
        assert_eq!((found(&by_city, "Graz"), found(&by_city, "Linz")), (vec![ada(2)], vec![ada(3)]));
        batch.patch_row(&table, &[DatumRef::Int64(2)], &[("city", DatumRef::Utf8("Linz"))]).unwrap();
        batch.insert_row(&table, &row(4, "Wien")).unwrap();
        assert!(!is_known(&database, &batch));
        database.write(&batch, Durability::Os).unwrap();
        assert_eq!((found(&by_city, "Graz"), found(&by_city, "Wien")), (vec![], vec![ada(4)]));
        assert_eq!(found(&by_city, "Linz"), [ada(2), ada(3)]);
        batch.clear();
        let (key, value) = (table.row_key(&[DatumRef::Int64(5)]).unwrap(), table.get(&table_key(&table, 4)).unwrap());
        batch.put(&table, &key, &value.unwrap());
        assert!(!is_known(&database, &batch));
        database.write(&batch, Durability::Os).unwrap();
        assert_eq!(found(&by_city, "Wien"), [ada(4), ada(5)]);
    }

    fn table_key(table: &Table, id: i64) -> Vec<u8> {
        table.row_key(&[DatumRef::Int64(id)]).unwrap()
    }

    #[test]
    fn payloads_and_patches_of_columns_that_no_index_reads_are_known() {
        let (database, table) = create_of(RowFormatKind::Json);
        let by_city = index(&database, &table, "by_city", "city", &["name"]);
        let by_id = index(&database, &table, "by_id", "id", &[]);
        database.drop_index(&table, "by_city").unwrap();
        let mut batch = WriteBatch::new();
        // The text of the second is not as it is written.
        for (id, payload) in
            [(1, &br#"{"city":"Graz","name":"Ada"}"#[..]), (2, br#" {"name":"Ada","city":"Gr\u0061z"}"#)]
        {
            batch.put_payload(&table, &[DatumRef::Int64(id)], payload).unwrap();
        }
        // Of the index on the key alone, no patch changes anything.
        batch.patch_row(&table, &[DatumRef::Int64(1)], &[("city", DatumRef::Utf8("Linz"))]).unwrap();
        batch.patch_payload(&table, &[DatumRef::Int64(3)], br#"{"name":"Eve"}"#).unwrap();
        assert!(is_known(&database, &batch));
        database.write(&batch, Durability::Os).unwrap();
        assert_eq!(by_id.get(&[DatumRef::Int64(2)], Some(&[0, 2]), None).unwrap().count(), 1);
        drop(by_city);
        let by_city = index(&database, &table, "by_city", "city", &[]);
        batch.clear();
        batch.put_payload(&table, &[DatumRef::Int64(4)], br#"{"city":"Graz","name":"Ada"}"#).unwrap();
        batch.patch_payload(&table, &[DatumRef::Int64(2)], br#"{"name":"Ada"}"#).unwrap();
        assert!(is_known(&database, &batch));
        database.write(&batch, Durability::Os).unwrap();
        assert_eq!((found(&by_city, "Graz"), found(&by_city, "Linz")), (vec![ada(2), ada(4)], vec![ada(1)]));
        batch.patch_payload(&table, &[DatumRef::Int64(2)], br#"{"city":"Linz"}"#).unwrap();
        assert!(!is_known(&database, &batch));
        database.write(&batch, Durability::Os).unwrap();
        assert_eq!((found(&by_city, "Graz"), found(&by_city, "Linz")), (vec![ada(4)], vec![ada(1), ada(2)]));
    }

    #[test]
    fn what_an_index_covers_of_a_payload_is_what_its_patch_changes() {
        let (database, table) = create_of(RowFormatKind::Json);
        let by_city = index(&database, &table, "by_city", "city", &["name"]);
        let mut batch = WriteBatch::new();
        batch.put_payload(&table, &[DatumRef::Int64(1)], br#"{"name":"Eve","city":"Graz"}"#).unwrap();
        batch.put_payload(&table, &[DatumRef::Int64(2)], br#"{"city":"Graz"}"#).unwrap();
        assert!(is_known(&database, &batch));
        batch.patch_payload(&table, &[DatumRef::Int64(1)], br#"{"name":"Ada"}"#).unwrap();
        assert!(!is_known(&database, &batch));
        database.write(&batch, Durability::Os).unwrap();
        assert_eq!(found(&by_city, "Graz"), [ada(1), vec![Datum::Int64(2), Datum::Null]]);
    }

    /// A unique index is asked of rows whose entries are known, too.
    #[test]
    fn rows_of_a_unique_index_are_asked_though_their_entries_are_known() {
        let (database, table) = create_of(RowFormatKind::Json);
        let unique =
            IndexOptions { name: "by_name".into(), on: vec!["name".into()], unique: true, ..IndexOptions::default() };
        database.create_index(&table, &unique).unwrap();
        let mut batch = WriteBatch::new();
        batch.put_payload(&table, &[DatumRef::Int64(1)], br#"{"name":"Ada"}"#).unwrap();
        batch.patch_payload(&table, &[DatumRef::Int64(1)], br#"{"city":"Graz"}"#).unwrap();
        assert!(is_known(&database, &batch));
        database.write(&batch, Durability::Os).unwrap();
        batch.clear();
        batch.patch_payload(&table, &[DatumRef::Int64(1)], br#"{"city":"Linz"}"#).unwrap();
        batch.put_payload(&table, &[DatumRef::Int64(2)], br#"{"name":"Ada"}"#).unwrap();
        assert!(is_known(&database, &batch));
        assert_eq!(database.write(&batch, Durability::Os).unwrap_err().kind(), ErrorKind::Duplicate);
    }

    #[test]
    fn a_batch_from_before_an_index_is_derived_for_it() {
        let (database, table) = create();
        let mut batch = WriteBatch::new();
        batch.insert_row(&table, &row(1, "Graz")).unwrap();
        let by_city = index(&database, &table, "by_city", "city", &[]);
        assert!(!is_known(&database, &batch));
        batch.insert_row(&table, &row(2, "Graz")).unwrap();
        database.write(&batch, Durability::Os).unwrap();
        assert_eq!(found(&by_city, "Graz"), [ada(1), ada(2)]);
        let mut between = WriteBatch::new();
        between.insert_row(&table, &row(3, "Graz")).unwrap();
        database.drop_index(&table, "by_city").unwrap();
        let by_name = index(&database, &table, "by_name", "name", &[]);
        database.write(&between, Durability::Os).unwrap();
        assert_eq!(found(&by_name, "Ada").len(), 3);
    }

    #[test]
    fn a_row_that_an_index_cannot_hold_is_refused_with_its_batch_and_the_next_one_is_not() {
        let (database, table) = create();
        index(&database, &table, "by_name", "name", &[]);
        let by_city = index(&database, &table, "by_city", "city", &[]);
        let long = "x".repeat(MAX_KEY_LEN);
        let mut batch = WriteBatch::new();
        batch.insert_row(&table, &row(1, "Graz")).unwrap().insert_row(&table, &row(2, &long)).unwrap();
        batch.insert_row(&table, &row(3, "Graz")).unwrap();
        assert!(!is_known(&database, &batch));
        let refused = database.write(&batch, Durability::Os).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        assert!(refused.to_string().contains("by_city"), "{refused}");
        batch.clear();
        batch.insert_row(&table, &row(4, "Graz")).unwrap();
        assert!(is_known(&database, &batch));
        database.write(&batch, Durability::Os).unwrap();
        assert_eq!(found(&by_city, "Graz"), [ada(4)]);
    }
}
