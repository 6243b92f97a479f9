//! Deriving at the moment of the write.
//!
//! 1. Before a batch is logged, every operation on a table with indexes derives its entries into a [`DerivedBatch`],
//!    unless all of them did when they were added to the batch (ahead.rs): what cannot be derived is refused while
//!    nothing has happened yet, and so is a batch that derives more than is held beside it. It takes effect as one, so
//!    that it cannot be cut here; whoever wrote it can.
//! 2. When the batch enters the memtables, its derived entries enter those of the derived tables, each with the
//!    sequence number of its operation. They are not logged: replaying the log derives them again.
//! 3. When the indexes of a table change, other derivers take the place of its own, with the commit lock held
//!    (`Inner::renew_derivers`).
//!
//! So a table's memtable and that of its index, and later their files of level 0, always say the same of the same
//! writes. Batches come prepared (prepare.rs), patches completed, for the very indexes that derive (indexed.rs).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use mycelium_base::limits::{MAX_DERIVED_BATCH_LEN, MAX_KEY_LEN};
use mycelium_base::{ColumnSet, EntryRef, Error, ErrorKind, Operation, Result, SequenceNumber, TableId, Trailer};
use mycelium_transform::{Derived, Deriver};

use super::definition::IndexShared;
use super::indexed::{IndexGeneration, IndexedTables};
use super::unfit::{check_key, failed_on};
use crate::catalog::Catalog;
use crate::operations::Operations;
use crate::table::TableShared;

/// What derives the entries of all indexes, for the holder of the commit lock.
pub(crate) struct WriteDerivers {
    indexed: Arc<IndexedTables>,
    /// Only tables with indexes.
    tables: BTreeMap<TableId, Vec<IndexDeriver>>,
    /// The memory of a batch that was committed.
    spare: DerivedBatch,
    /// Bytes that a batch may derive.
    most_bytes: usize,
}

/// The most bytes of a derived batch whose memory is kept for the next.
const MOST_KEPT: usize = 64 << 10;

struct IndexDeriver {
    /// The derived table.
    table: Arc<TableShared>,
    index: Arc<IndexShared>,
    deriver: Deriver,
}

impl IndexDeriver {
    /// What an operation derives. What the index cannot hold is refused, unless the index has failed already: it will
    /// be dropped, and nothing is refused for its sake.
    fn derive(&mut self, entry: EntryRef<'_>, add: &mut impl FnMut(&[u8], &[u8])) -> Result<()> {
        let Self { table, index, deriver } = self;
        let mut derive = || {
            let derived = deriver.derive(entry.key, entry.trailer.operation(), entry.value);
            let derived = derived.map_err(|error| failed_on(&table.name, error))?;
            if let Derived::Needs(missing) = &derived {
                return Err(incomplete(missing));
            }
            derived.entries().try_for_each(|(key, _)| check_key(&table.name, key))?;
            derived.entries().for_each(|(key, value)| add(key, value));
            Ok(())
        };
        match derive() {
            Err(error) if error.kind() == ErrorKind::InvalidArgument && index.failure().is_some() => Ok(()),
            result => result,
        }
    }
}

/// What a batch derives.
#[derive(Clone, Default, Debug)]
pub(crate) struct DerivedBatch {
    entries: Vec<DerivedEntry>,
    bytes: Vec<u8>,
}

#[derive(Clone, Debug)]
struct DerivedEntry {
    table: TableId,
    /// Which operation of the batch it comes of.
    operation: u64,
    key: Range<usize>,
    value: Range<usize>,
}

impl DerivedBatch {
    /// Bytes of memory that it takes.
    pub(crate) fn memory_usage(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<DerivedEntry>()
    }

    /// The entries with the sequence numbers that they get where the batch's first is `first`.
    pub(crate) fn entries(&self, first: SequenceNumber) -> impl Iterator<Item = (TableId, EntryRef<'_>)> {
        self.entries.iter().map(move |entry| {
            let trailer = Trailer::new(first + entry.operation, Operation::Put);
            let (key, value) = (&self.bytes[entry.key.clone()], &self.bytes[entry.value.clone()]);
            (entry.table, EntryRef { key, trailer, value })
        })
    }

    fn add(&mut self, table: TableId, operation: u64, key: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.push((table, operation), start, middle);
    }

    /// Adds an entry of a derived table and an operation, whose key and value are appended; the length of the key.
    /// After an error there is no such entry.
    pub(super) fn add_with(
        &mut self,
        (table, operation): (TableId, u64),
        key: impl FnOnce(&mut Vec<u8>) -> Result<()>,
        value: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<usize> {
        let start = self.bytes.len();
        key(&mut self.bytes)?;
        let middle = self.bytes.len();
        value(&mut self.bytes)?;
        self.push((table, operation), start, middle);
        Ok(middle - start)
    }

    /// An entry whose key begins at `start`, and whose value at `middle`.
    fn push(&mut self, (table, operation): (TableId, u64), start: usize, middle: usize) {
        self.entries.push(DerivedEntry { table, operation, key: start..middle, value: middle..self.bytes.len() });
    }

    /// Forgets everything, and keeps the memory.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
    }
}

impl Default for WriteDerivers {
    fn default() -> Self {
        let (indexed, tables, spare) = Default::default();
        Self { indexed, tables, spare, most_bytes: MAX_DERIVED_BATCH_LEN }
    }
}

impl WriteDerivers {
    /// Derivers for the indexes that there are when the database is opened.
    pub(crate) fn new(catalog: &Catalog) -> Result<Self> {
        let mut tables = BTreeMap::new();
        for id in catalog.indexed() {
            tables.insert(id, derivers_of(catalog, id)?);
        }
        let indexed = Arc::new(IndexedTables::at_opening(catalog));
        Ok(Self { indexed, tables, ..Self::default() })
    }

    /// Derivers for the indexes that these tables have now, in place of those before. After an error they are as they
    /// were.
    pub(super) fn renew(&mut self, catalog: &Catalog, changed: &[TableId]) -> Result<()> {
        let mut renewed = Vec::with_capacity(changed.len());
        for id in changed {
            renewed.push((*id, derivers_of(catalog, *id)?));
        }
        for (id, derivers) in renewed {
            if derivers.is_empty() {
                self.tables.remove(&id);
            } else {
                self.tables.insert(id, derivers);
            }
        }
        self.indexed = Arc::new(self.indexed.after(catalog, changed));
        Ok(())
    }

    /// The tables whose indexes these feed.
    #[inline]
    pub(crate) fn indexed(&self) -> &Arc<IndexedTables> {
        &self.indexed
    }

    fn of(&mut self, table: TableId) -> &mut [IndexDeriver] {
        self.tables.get_mut(&table).map(Vec::as_mut_slice).unwrap_or_default()
    }

    /// What a batch derives that was prepared for the indexes of a generation; `ahead` is that, if it is known.
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::Conflict`] for a batch that was prepared for other indexes, and is to be prepared
    /// again; [`mycelium_base::ErrorKind::InvalidArgument`] for a row that an index cannot hold (unfit.rs), and for a
    /// batch that derives too much.
    #[inline]
    pub(crate) fn derive<'d>(
        &mut self,
        (body, count): (&[u8], u32),
        prepared_for: IndexGeneration,
        ahead: Option<&'d DerivedBatch>,
    ) -> Result<Cow<'d, DerivedBatch>> {
        self.indexed.check(prepared_for)?;
        if let Some(derived) = ahead {
            let (bytes, most_bytes) = (derived.memory_usage(), self.most_bytes);
            return if bytes > most_bytes { Err(too_much(bytes, most_bytes)) } else { Ok(Cow::Borrowed(derived)) };
        }
        if self.tables.is_empty() {
            return Ok(Cow::Owned(DerivedBatch::default()));
        }
        self.derive_batch(body, count).map(Cow::Owned)
    }

    fn derive_batch(&mut self, body: &[u8], count: u32) -> Result<DerivedBatch> {
        let (mut batch, most_bytes) = (std::mem::take(&mut self.spare), self.most_bytes);
        let mut operations = Operations::new(body, 0, count);
        while let Some((table, entry)) = operations.next()? {
            for index in self.of(table) {
                let (table, operation) = (index.table.id, entry.trailer.sequence());
                index.derive(entry, &mut |key, value| batch.add(table, operation, key, value))?;
                // A row derives a bounded number of bytes: so it is found soon.
                if batch.memory_usage() > most_bytes {
                    return Err(too_much(batch.memory_usage(), most_bytes));
                }
            }
        }
        Ok(batch)
    }

    /// Takes back a batch that was committed: most are of one row, and take longer to allocate than to fill.
    #[inline]
    pub(crate) fn reuse(&mut self, batch: Cow<'_, DerivedBatch>) {
        if let Cow::Owned(mut batch) = batch
            && batch.bytes.capacity() <= MOST_KEPT
            && batch.bytes.capacity() > 0
        {
            batch.clear();
            self.spare = batch;
        }
    }

    /// Derives what an entry of the log derived when it was written.
    pub(crate) fn derive_again(
        &mut self,
        table: TableId,
        entry: EntryRef<'_>,
        insert: &mut impl FnMut(TableId, EntryRef<'_>),
    ) -> Result<()> {
        for index in self.of(table) {
            if entry.trailer.sequence() <= index.index.created_at {
                continue;
            }
            let operation = entry.trailer.operation();
            let derived = match index.deriver.derive(entry.key, operation, entry.value) {
                // It was accepted when the index had failed already; building the index fails again.
                Err(error) if error.kind() == ErrorKind::InvalidArgument && !index.index.status().is_built => continue,
                derived => derived?,
            };
            if let Derived::Needs(missing) = &derived {
                let message = format!("a patch in the log lacks the columns {missing}, which an index reads");
                return Err(Error::corruption(message));
            }
            for (key, value) in derived.entries().filter(|(key, _)| key.len() <= MAX_KEY_LEN) {
                let trailer = Trailer::new(entry.trailer.sequence(), Operation::Put);
                insert(index.table.id, EntryRef { key, trailer, value });
            }
        }
        Ok(())
    }
}

/// The derivers of a table's indexes; none if it is not there.
fn derivers_of(catalog: &Catalog, id: TableId) -> Result<Vec<IndexDeriver>> {
    let Some(base) = catalog.get(&id) else { return Ok(Vec::new()) };
    let of_index = |(table, index): (&Arc<TableShared>, &Arc<IndexShared>)| -> Result<IndexDeriver> {
        let formats = base.typed_formats()?;
        let deriver = index.source.deriver(formats.for_transformers(), &formats.whole_group())?;
        Ok(IndexDeriver { table: table.clone(), index: index.clone(), deriver })
    };
    catalog.indexes_of(id).map(of_index).collect()
}

#[cold]
fn too_much(bytes: usize, most: usize) -> Error {
    Error::invalid(format!("the batch derives {bytes} bytes or more for indexes: at most {most} are possible"))
}

#[cold]
fn incomplete(missing: &ColumnSet) -> Error {
    Error::invalid(format!("a patch was not completed: it lacks the columns {missing}, which an index reads"))
}

#[cfg(test)]
mod tests {
    use mycelium_encoding::{DatumRef, Schema};
    use mycelium_vfs::MemoryDisk;

    use super::*;
    use crate::batch::WriteBatch;
    use crate::database::Database;
    use crate::index::IndexOptions;
    use crate::options::{Background, Durability, Options, TableOptions};

    /// What each of its rows derives, up to 16 MiB, was held beside a batch, however many rows it had.
    #[test]
    fn a_batch_that_derives_too_much_is_refused_and_leaves_nothing_behind() {
        let options =
            Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
        let database = Database::open("db", options).unwrap();
        let schema = Schema::parse("id int64 not null, city utf8, primary key (id)").unwrap();
        let table = database.create_typed_table("people", schema, TableOptions::default()).unwrap();
        for name in ["first", "second"] {
            let options = IndexOptions { name: name.into(), on: vec!["city".into()], ..IndexOptions::default() };
            database.create_index(&table, &options).unwrap();
        }
        let city = "x".repeat(1000);
        // Of values, which derive ahead, and of encoded rows, which do not.
        let batch = |rows: i64, is_encoded: bool| {
            let mut batch = WriteBatch::new();
            for id in 0..rows {
                let row = [DatumRef::Int64(id), DatumRef::Utf8(&city)];
                if is_encoded {
                    let (key, mut value) = (table.row_key(&row[..1]).unwrap(), Vec::new());
                    table.packed_layout().unwrap().encode_row(&row, &mut value).unwrap();
                    batch.put(&table, &key, &value);
                } else {
                    batch.insert_row(&table, &row).unwrap();
                }
            }
            batch
        };
        // Two entries a row, of some more than 1,000 bytes each.
        database.inner.commits.writer.lock().derivers.most_bytes = 22_000;
        for is_encoded in [false, true] {
            let refused = database.write(&batch(11, is_encoded), Durability::Os).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
            assert!(refused.to_string().contains("at most 22000"), "{refused}");
            let before = database.last_sequence();
            database.write(&batch(10, is_encoded), Durability::Os).unwrap();
            database.write(&batch(10, is_encoded), Durability::Os).unwrap();
            assert_eq!(database.last_sequence() - before, 20);
        }
    }
}
