//! Write batches: operations on any tables that take effect together or not at all.
//!
//! The bytes of a batch (operations.rs) are the body of its log record.

use std::sync::Arc;

use mycelium_base::limits::{MAX_BATCH_LEN, MAX_KEY_LEN, MAX_VALUE_LEN};
use mycelium_base::{ColumnSet, Error, Operation, Result};
use mycelium_encoding::DatumRef;
use mycelium_encoding::row_format::RowScratch;

use crate::index::DerivedAhead;
use crate::log_record::HEAD_LEN;
use crate::operations::encode_operation;
use crate::payload_values::PayloadValues;
use crate::table::Table;

/// Operations that are applied atomically, in order: of two of one key the later one counts.
///
/// A batch belongs to the database of the tables it names. It holds no lock and may be built, kept and written again,
/// and sent between threads.
///
/// ```
/// # use mycelium_engine::{Database, Durability, Options, TableOptions, WriteBatch};
/// # use std::sync::Arc;
/// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
/// # let database = Database::open("example", options)?;
/// let accounts = database.create_table("accounts", TableOptions::default())?;
/// let mut batch = WriteBatch::new();
/// batch.put(&accounts, b"alice", b"90").put(&accounts, b"bob", b"10").delete(&accounts, b"alice");
/// database.write(&batch, Durability::Os)?;
/// assert_eq!(accounts.get(b"alice")?, None);
/// assert_eq!(accounts.get(b"bob")?.as_deref(), Some(&b"10"[..]));
/// # Ok::<(), mycelium_engine::Error>(())
/// ```
///
/// # Errors
/// Adding an operation does not fail; what cannot be is refused when the batch is written, with nothing of it
/// committed. [`WriteBatch::insert_row`] and the others that encode a row say at once what does not fit. A refused
/// batch stays so until [`WriteBatch::clear`]. [`crate::Database::write`] gives
///
/// - [`mycelium_base::ErrorKind::InvalidArgument`] for a key of more than 65,535 bytes, a value of more than 256 MiB,
///   or more than 1 GiB in all; for a key or value that is none of its typed table; for a merge without a merge
///   operator and a patch without a schema; and for tables of two databases, or of another one than it is written to;
/// - [`mycelium_base::ErrorKind::NotFound`] for a table that was dropped.
#[derive(Clone, Default, Debug)]
pub struct WriteBatch {
    body: Vec<u8>,
    count: u32,
    database: Option<u64>,
    error: Option<Box<(&'static str, usize)>>,
    foreign: bool,
    unmergeable: bool,
    /// What is wrong with the first key or value that is none of its table.
    malformed: Option<Arc<Error>>,
    /// For rows that are encoded here.
    buffers: RowBuffers,
    /// What its operations derive, as far as it is known.
    derived: DerivedAhead,
}

/// Memory in which a row is encoded, kept for the next one.
#[derive(Clone, Default, Debug)]
pub(crate) struct RowBuffers {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    /// The columns that are changed, if it is a patch.
    pub(crate) changed: ColumnSet,
    pub(crate) scratch: RowScratch,
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the row of `key`. In a typed table the key must be one that [`Table::row_key`] gives and the value one in
    /// the table's row format; a batch with others is refused when it is written.
    pub fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> &mut Self {
        self.add_checked(table, Operation::Put, key, value)
    }

    /// Sets a row given by its values, which `encode` makes key and stored value of. After an error the batch is as
    /// before.
    pub(crate) fn put_row(
        &mut self,
        table: &Table,
        row: &[DatumRef<'_>],
        encode: impl FnOnce(&mut RowBuffers) -> Result<()>,
    ) -> Result<&mut Self> {
        let operation = self.count;
        self.add_with(table, Operation::Put, encode)?;
        let Self { derived, buffers, .. } = self;
        derived.add_row((operation, table.id()), (&buffers.key, row), &table.database.indexed.load());
        Ok(self)
    }

    /// Sets a row given as a payload, which `encode` makes key and stored value of. After an error the batch is as
    /// before.
    pub(crate) fn put_row_payload(
        &mut self,
        table: &Table,
        (key_values, payload): (&[DatumRef<'_>], &[u8]),
        encode: impl FnOnce(&mut RowBuffers) -> Result<()>,
    ) -> Result<&mut Self> {
        let operation = self.count;
        self.add_with(table, Operation::Put, encode)?;
        let rows = table.shared.typed_formats()?.rows();
        let Self { derived, buffers: RowBuffers { key, value, scratch, .. }, .. } = self;
        let mut row = PayloadValues::new(rows, key_values, payload, scratch);
        derived.add_stored((operation, table.id()), (key, &mut row, value), &table.database.indexed.load());
        Ok(self)
    }

    /// What its operations derive, as far as it is known.
    pub(crate) fn derived(&self) -> &DerivedAhead {
        &self.derived
    }

    /// Sets a row that was encoded.
    pub(crate) fn put_encoded(&mut self, table: &Table, key: &[u8], value: &[u8]) -> &mut Self {
        self.add(table, Operation::Put, key, value)
    }

    /// Adds the patch that `encode` makes, and says which columns it changes. After an error the batch is as before.
    pub(crate) fn patch_with(
        &mut self,
        table: &Table,
        encode: impl FnOnce(&mut RowBuffers) -> Result<()>,
    ) -> Result<&mut Self> {
        let operation = self.count;
        self.add_with(table, Operation::Patch, encode)?;
        if let Some(Err(error)) = table.shared.formats.as_ref().map(|formats| formats.check_takes_patches()) {
            self.malformed.get_or_insert(Arc::new(error));
        }
        let Self { derived, buffers, .. } = self;
        derived.add_patch((operation, table.id()), &buffers.changed, &table.database.indexed.load());
        Ok(self)
    }

    fn add_with(
        &mut self,
        table: &Table,
        operation: Operation,
        encode: impl FnOnce(&mut RowBuffers) -> Result<()>,
    ) -> Result<&mut Self> {
        let mut buffers = self.take_buffers();
        let encoded = encode(&mut buffers);
        if encoded.is_ok() {
            self.add(table, operation, &buffers.key, &buffers.value);
        }
        self.give_buffers(buffers);
        encoded.map(|()| self)
    }

    /// For a row that is to be encoded; to be given back.
    pub(crate) fn take_buffers(&mut self) -> RowBuffers {
        let mut buffers = std::mem::take(&mut self.buffers);
        buffers.key.clear();
        buffers.value.clear();
        buffers.changed.clear();
        buffers
    }

    pub(crate) fn give_buffers(&mut self, buffers: RowBuffers) {
        self.buffers = buffers;
    }

    /// Removes the row of `key`.
    pub fn delete(&mut self, table: &Table, key: &[u8]) -> &mut Self {
        self.derived.add_nothing(self.count);
        self.add(table, Operation::Delete, key, &[])
    }

    /// Removes the rows of all keys in `[start, end)`; an empty interval removes nothing.
    pub fn delete_range(&mut self, table: &Table, start: &[u8], end: &[u8]) -> &mut Self {
        if end.len() > MAX_KEY_LEN {
            self.error.get_or_insert(Box::new(("key", end.len())));
        }
        self.derived.add_nothing(self.count);
        self.add(table, Operation::RangeDelete, start, end)
    }

    /// Hands `operand` to the table's merge operator.
    pub fn merge(&mut self, table: &Table, key: &[u8], operand: &[u8]) -> &mut Self {
        self.unmergeable |= !table.has_merge_operator();
        self.add(table, Operation::Merge, key, operand)
    }

    /// Changes some columns: `patch` is a value of the table's row format in which the other columns are absent.
    pub fn patch(&mut self, table: &Table, key: &[u8], patch: &[u8]) -> &mut Self {
        self.unmergeable |= table.shared.formats.is_none();
        self.add_checked(table, Operation::Patch, key, patch)
    }

    /// The number of operations.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the encoded operations.
    pub fn encoded_len(&self) -> usize {
        self.body.len()
    }

    /// Forgets all operations, and what was wrong with them, and keeps the memory.
    pub fn clear(&mut self) {
        let Self { body, count, database, error, foreign, unmergeable, malformed, buffers: _, derived } = self;
        body.clear();
        derived.clear();
        (*count, *database, *error, *foreign, *unmergeable, *malformed) = (0, None, None, false, false, None);
    }

    /// A position to which [`WriteBatch::truncate`] can return.
    pub(crate) fn position(&self) -> (usize, u32) {
        (self.body.len(), self.count)
    }

    /// Forgets the operations added after `position`.
    pub(crate) fn truncate(&mut self, position: (usize, u32)) {
        self.body.truncate(position.0);
        self.count = position.1;
        self.derived.clear();
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    pub(crate) fn into_body(self) -> Vec<u8> {
        self.body
    }

    /// Adds an operation whose key and value come from a caller.
    fn add_checked(&mut self, table: &Table, operation: Operation, key: &[u8], value: &[u8]) -> &mut Self {
        if let Err(error) = check_form(table, operation, key, value) {
            self.malformed.get_or_insert(Arc::new(error));
        }
        self.add(table, operation, key, value)
    }

    /// Adds an operation whose key and value are known to be of the table.
    #[inline]
    pub(crate) fn add(&mut self, table: &Table, operation: Operation, key: &[u8], value: &[u8]) -> &mut Self {
        let database = table.database_identity();
        self.foreign |= *self.database.get_or_insert(database) != database;
        if key.len() > MAX_KEY_LEN {
            self.error.get_or_insert(Box::new(("key", key.len())));
        }
        if value.len() > MAX_VALUE_LEN {
            self.error.get_or_insert(Box::new(("value", value.len())));
        }
        encode_operation(&mut self.body, table.id(), operation, key, value);
        self.count += 1;
        self
    }

    /// Refuses a batch that must not reach the log.
    #[inline]
    pub(crate) fn check(&self, database: u64) -> Result<()> {
        let fine = self.error.is_none()
            && !self.foreign
            && !self.unmergeable
            && self.malformed.is_none()
            && self.body.len() <= MAX_BATCH_LEN - HEAD_LEN
            && (self.count == 0 || self.database == Some(database));
        if fine { Ok(()) } else { Err(self.refusal()) }
    }

    #[cold]
    fn refusal(&self) -> Error {
        if let Some((what, len)) = self.error.as_deref() {
            let limit = if *what == "key" { MAX_KEY_LEN } else { MAX_VALUE_LEN };
            return Error::invalid(format!("a {what} of {len} bytes exceeds the limit of {limit}"));
        }
        if let Some(error) = &self.malformed {
            return none_of_its_table(error);
        }
        if self.unmergeable {
            return Error::invalid("merge needs a table with a merge operator, patch a table with a schema");
        }
        if self.body.len() > MAX_BATCH_LEN - HEAD_LEN {
            return Error::invalid(format!(
                "a batch of {} bytes exceeds the limit of {MAX_BATCH_LEN}",
                self.body.len()
            ));
        }
        Error::invalid("the batch names tables of another database")
    }
}

/// Refuses a key that no row of the table can have, and a value that is no whole row, or no patch, of its.
pub(crate) fn check_form(table: &Table, operation: Operation, key: &[u8], value: &[u8]) -> Result<()> {
    let Some(formats) = &table.shared.formats else { return Ok(()) };
    match operation {
        Operation::Put => formats.check_key(key).and_then(|()| formats.check_row(value)),
        Operation::Patch => formats.check_key(key).and_then(|()| formats.check_patch(value)),
        Operation::Delete | Operation::RangeDelete | Operation::Merge => Ok(()),
    }
}

/// The error of an operation that [`check_form`] refuses.
#[cold]
pub(crate) fn none_of_its_table(error: &Error) -> Error {
    Error::invalid("a key or value that is none of its table").caused_by(error.to_string())
}
