//! Deriving ahead of the write, from the values of rows.
//!
//! 1. A row that is added to a batch as values derives its entries at once, for the indexes that there are at that
//!    moment (indexed.rs): it need not be looked for them in its stored form, and nobody waits for the commit lock
//!    meanwhile. A delete derives nothing.
//! 2. That goes on up to the first operation of which it is not so: a row that comes encoded, a patch, a row of a table
//!    with a flat-map, one that an index cannot hold, one that finds other indexes than those before it.
//! 3. The commit takes what was derived if that is of all operations and for the indexes that the batch was prepared
//!    for, and derives the whole batch otherwise (derive.rs), with the errors that there are.
//!
//! Both are the same entries: the formats keep every value to the bit.

use mycelium_base::TableId;
use mycelium_base::limits::{MAX_DERIVED_BATCH_LEN, MAX_KEY_LEN};
use mycelium_encoding::DatumRef;
use mycelium_encoding::row_format::RowScratch;

use super::derive::DerivedBatch;
use super::indexed::{IndexGeneration, IndexedTables};

/// What the first operations of a batch derive.
#[derive(Clone, Default, Debug)]
pub(crate) struct DerivedAhead {
    /// How many of them.
    operations: u32,
    /// The indexes that it is for, if there is a row among them.
    generation: Option<IndexGeneration>,
    batch: DerivedBatch,
}

impl DerivedAhead {
    /// The operation at this place of the batch, its next, derives nothing.
    #[inline]
    pub(crate) fn add_nothing(&mut self, operation: u32) {
        if self.operations == operation {
            self.operations += 1;
        }
    }

    /// The operation at this place of the batch, its next, is a row of `table`. Its values were accepted.
    pub(crate) fn add_row(
        &mut self,
        (operation, table): (u32, TableId),
        (key, row): (&[u8], &[DatumRef<'_>]),
        scratch: &mut RowScratch,
        indexed: &IndexedTables,
    ) {
        let generation = *self.generation.get_or_insert(indexed.generation());
        if self.operations != operation || generation != indexed.generation() {
            return;
        }
        let Some(indexers) = indexed.indexers(table) else { return };
        for indexer in indexers {
            let added = self.batch.add_with(
                (indexer.table, u64::from(operation)),
                |out| indexer.rows.encode_key(row, key, out),
                |out| indexer.rows.encode_value(row, scratch, out),
            );
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

    use mycelium_base::ErrorKind;
    use mycelium_encoding::{Datum, Schema};
    use mycelium_vfs::MemoryDisk;

    use super::*;
    use crate::batch::WriteBatch;
    use crate::database::Database;
    use crate::index::{Index, IndexOptions};
    use crate::options::{Background, Durability, Options, TableOptions};
    use crate::table::Table;

    fn create() -> (Database, Table) {
        let options =
            Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
        let database = Database::open("db", options).unwrap();
        let schema = Schema::parse("id int64 not null, city utf8, name utf8, primary key (id)").unwrap();
        let table = database.create_typed_table("people", schema, TableOptions::default()).unwrap();
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
