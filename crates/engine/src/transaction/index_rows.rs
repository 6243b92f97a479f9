//! Lookups through an index in a transaction.
//!
//! 1. The snapshot's rows come from the index ([`IndexRows`]), but those that the transaction wrote or deleted.
//! 2. Of every row that it wrote, as it is now, the derived keys are found out; those within the bounds are sorted, and
//!    merged with the snapshot's rows by their derived keys. A row is held once, however many keys it derives, and
//!    copied for each as that is answered with.
//! 3. Under serializable isolation two things are noted. The bounds, as an interval of the derived table: a row that
//!    comes into them, whatever it was before, puts an entry there that is newer than the snapshot. And the key of
//!    every row that was found: it leaves the bounds, or changes, only by a write to that key. A transaction that is
//!    older than the index notes the whole table instead: what was written between the two need not have put entries.
//!
//! An entry that a flush or compaction removes goes together with the version that it stands for, which another version
//! of the row replaced: if that lies within the bounds, it has an entry of its own.

use std::collections::BTreeMap;
use std::collections::btree_map::IntoIter;
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

use mycelium_base::{Operation, Result};
use mycelium_encoding::{Datum, DatumRef};

use super::Transaction;
use crate::index::{Index, IndexRow, IndexRows};

/// Rows that a transaction finds through an index, in the order of the index; ends after the first error. The
/// transaction cannot be written to meanwhile.
pub struct TransactionIndexRows<'t> {
    transaction: &'t Transaction,
    index: Index,
    base: IndexRows,
    /// The snapshot's next row, after its derived key.
    next_base: Option<(Vec<u8>, IndexRow)>,
    own: Peekable<IntoIter<Vec<u8>, OwnEntry>>,
    is_done: bool,
}

/// A row that the transaction wrote, as far as it is asked for.
struct OwnRow {
    key: Vec<u8>,
    values: Vec<Datum>,
}

/// What such a row derives beside a key.
struct OwnEntry {
    row: Arc<OwnRow>,
    value: Vec<u8>,
}

impl Transaction {
    /// As [`Index::get`], at the transaction's snapshot with its own writes laid over.
    ///
    /// # Errors
    /// As [`Index::get`].
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use mycelium_encoding::{Datum, DatumRef, Schema};
    /// # use mycelium_engine::{Database, Durability, IndexOptions, IsolationLevel, Options, TableOptions};
    /// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
    /// # let database = Database::open("example", options)?;
    /// let schema = Schema::parse("id int64 not null, city utf8, primary key (id)")?;
    /// let people = database.create_typed_table("people", schema, TableOptions::default())?;
    /// let by_city = IndexOptions { name: "by_city".into(), on: vec!["city".into()], ..IndexOptions::default() };
    /// let by_city = database.create_index(&people, &by_city)?;
    /// people.insert_row(&[DatumRef::Int64(1), DatumRef::Utf8("Graz")], Durability::Os)?;
    ///
    /// let mut transaction = database.begin(IsolationLevel::Serializable);
    /// transaction.insert_row(&people, &[DatumRef::Int64(2), DatumRef::Utf8("Graz")])?;
    /// assert_eq!(transaction.index_get(&by_city, &[DatumRef::Utf8("Graz")], None)?.count(), 2);
    /// # Ok::<(), mycelium_engine::Error>(())
    /// ```
    pub fn index_get(
        &self,
        index: &Index,
        values: &[DatumRef<'_>],
        projection: Option<&[usize]>,
    ) -> Result<TransactionIndexRows<'_>> {
        self.index_range(index, (Bound::Included(values), Bound::Included(values)), projection)
    }

    /// As [`Index::range`], at the transaction's snapshot with its own writes laid over. Takes time and memory in
    /// proportion to the rows of the table that the transaction wrote. A serializable transaction notes all of the
    /// bounds, however many of the rows are asked for.
    ///
    /// # Errors
    /// As [`Index::range`].
    pub fn index_range(
        &self,
        index: &Index,
        bounds: (Bound<&[DatumRef<'_>]>, Bound<&[DatumRef<'_>]>),
        projection: Option<&[usize]>,
    ) -> Result<TransactionIndexRows<'_>> {
        let table = index.table();
        self.check_table(table)?;
        let (from, to) = index.encode_bounds(bounds)?;
        let base = IndexRows::open(index, from.clone(), to.clone(), projection, Some(&self.snapshot))?;
        let own = self.own_rows(index, (&from, to.as_deref()), projection)?.into_iter().peekable();
        if !self.notes_reads() {
            self.fix_snapshot();
        } else if index.created_at() <= self.snapshot.sequence() {
            self.reads.lock().add_range(&index.derived_table(), from, to);
        } else {
            self.reads.lock().add_range(table, Vec::new(), None);
        }
        Ok(TransactionIndexRows { transaction: self, index: index.clone(), base, next_base: None, own, is_done: false })
    }

    /// What the rows that the transaction wrote derive within the bounds, by the derived keys.
    fn own_rows(
        &self,
        index: &Index,
        (from, to): (&[u8], Option<&[u8]>),
        projection: Option<&[usize]>,
    ) -> Result<BTreeMap<Vec<u8>, OwnEntry>> {
        let mut entries = BTreeMap::new();
        let table = index.table();
        let Some(own) = self.writes.get(&table.id()) else { return Ok(entries) };
        let mut deriver = index.deriver()?;
        for key in own.overlay.keys() {
            let Some(row) = self.get(table, key)? else { continue };
            let derived = deriver.derive(key, Operation::Put, &row)?;
            let is_within = |derived: &[u8]| derived >= from && to.is_none_or(|to| derived < to);
            let mut within = derived.entries().filter(|(derived, _)| is_within(derived)).peekable();
            if within.peek().is_none() {
                continue;
            }
            let row = Arc::new(OwnRow { key: key.to_vec(), values: table.datums_of(key, row, projection)? });
            entries.extend(within.map(|(derived, value)| {
                let entry = OwnEntry { row: row.clone(), value: value.to_vec() };
                (derived.to_vec(), entry)
            }));
        }
        Ok(entries)
    }
}

impl TransactionIndexRows<'_> {
    fn next_row(&mut self) -> Result<Option<IndexRow>> {
        if self.next_base.is_none() {
            self.next_base = self.advance_base()?;
        }
        let own_is_next = match (self.own.peek(), &self.next_base) {
            (Some((own, _)), Some((base, _))) => own < base,
            (own, _) => own.is_some(),
        };
        if !own_is_next {
            return Ok(self.next_base.take().map(|(_, row)| row));
        }
        let Some((derived, OwnEntry { row, value })) = self.own.next() else { return Ok(None) };
        self.index.row(&row.key, row.values.clone(), &derived, &value).map(Some)
    }

    /// The snapshot's next row that the transaction did not touch.
    fn advance_base(&mut self) -> Result<Option<(Vec<u8>, IndexRow)>> {
        let table = self.index.table();
        let own = self.transaction.writes.get(&table.id());
        while let Some(row) = self.base.next().transpose()? {
            if own.is_some_and(|own| own.overlay.touches(&row.key)) {
                continue;
            }
            if self.transaction.notes_reads() {
                self.transaction.reads.lock().add_key(table, &row.key);
            }
            return Ok(Some((self.base.derived_key().to_vec(), row)));
        }
        Ok(None)
    }
}

impl Iterator for TransactionIndexRows<'_> {
    type Item = Result<IndexRow>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let row = self.next_row().transpose();
        self.is_done = !matches!(row, Some(Ok(_)));
        row
    }
}
