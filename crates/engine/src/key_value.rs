//! What is done with the rows of a table by their bytes: read, written and iterated over, in tables of both kinds.

use mycelium_base::{ReadCounters, Result, SequenceNumber};

use crate::iterator::TableIterator;
use crate::options::Durability;
use crate::read_options::ReadOptions;
use crate::table::Table;

impl Table {
    /// The newest row of `key`: a copy of its value, or `None` if there is no such row. O(runs of the tree) file
    /// probes; no lock is taken. Fails as [`Table`] says.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_with(key, &ReadOptions::default(), &mut ReadCounters::default())
    }

    /// The row of `key` at the options' snapshot; adds what was read and skipped to `counters`. The other options are
    /// for iterations and are not looked at. Fails as [`Table`] says.
    pub fn get_with(&self, key: &[u8], options: &ReadOptions, counters: &mut ReadCounters) -> Result<Option<Vec<u8>>> {
        self.database.get(&self.shared, key, None, options, counters)
    }

    /// The rows of many keys, all at one state of the table, in the order of `keys`. Of the options `snapshot` alone is
    /// looked at. Memory: all the rows. Fails as [`Table`] says; the first error ends it, and no rows are given.
    pub fn multi_get(&self, keys: &[&[u8]], options: &ReadOptions) -> Result<Vec<Option<Vec<u8>>>> {
        self.database.multi_get(&self.shared, keys, options, &mut ReadCounters::default())
    }

    /// An iterator over rows in key order, unpositioned. It reads one state of the table whatever happens meanwhile,
    /// and pins the files and memtables of that state until it is dropped. Fails as [`Table`] says.
    pub fn iter(&self, options: &ReadOptions) -> Result<TableIterator> {
        TableIterator::new(&self.database, &self.shared, self.shared.traces.as_ref(), options)
    }

    /// Sets a row. See [`Durability`] for what the return means. In a typed table the key must be one that
    /// [`Table::row_key`] gives, and the value a whole row in the table's row format.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] for another key or value of a typed table; [`crate::ErrorKind::Duplicate`]
    /// for values of a unique index that another row has. See [`Table`] for the others.
    pub fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<SequenceNumber> {
        self.write_with(durability, |batch| Ok(batch.put(self, key, value)))
    }

    /// Removes a row; one that does not exist is no error. Reads nothing. Fails as [`Table`] says.
    pub fn delete(&self, key: &[u8], durability: Durability) -> Result<SequenceNumber> {
        self.write_with(durability, |batch| Ok(batch.delete(self, key)))
    }

    /// Hands an operand to the table's merge operator. Reads nothing: the operand is kept as it is, and what the
    /// operator says to it shows when the row is read.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] if the table has no merge operator. See [`Table`] for the others.
    pub fn merge(&self, key: &[u8], operand: &[u8], durability: Durability) -> Result<SequenceNumber> {
        self.write_with(durability, |batch| Ok(batch.merge(self, key, operand)))
    }

    /// Removes all rows of `[start, end)`, as one entry however many there are; an empty interval removes nothing.
    /// Reads nothing. Fails as [`Table`] says.
    pub fn delete_range(&self, start: &[u8], end: &[u8], durability: Durability) -> Result<SequenceNumber> {
        self.write_with(durability, |batch| Ok(batch.delete_range(self, start, end)))
    }

    /// Changes some columns of a row of a typed table; `patch` is a value of the table's row format in which the others
    /// are absent. A row that does not exist stays so. The row is read only if the table has indexes.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] for a key-value table, for a key or patch that is none of the table, and
    /// if the table's rows take no patches; [`crate::ErrorKind::Duplicate`] for values of a unique index that another
    /// row has. See [`Table`] for the others.
    pub fn patch(&self, key: &[u8], patch: &[u8], durability: Durability) -> Result<SequenceNumber> {
        self.write_with(durability, |batch| Ok(batch.patch(self, key, patch)))
    }
}
