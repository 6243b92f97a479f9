//! Rows that an index cannot hold: their key in it would be too long, or a user's flat-map fails on them.
//!
//! 1. *Written* while there is the index, complete or not: the write is refused before it is logged (derive.rs), with
//!    an error that names the index, the length and the limit. A patch that leaves the indexed columns alone derives
//!    nothing new and is not refused (prepare.rs: [`refused_row`] of the row as it was).
//! 2. *There before* the index: building it meets the row. A version that neither the present nor a live snapshot sees
//!    is passed over. Any other means that there can be no such index: the reason is kept ([`IndexShared::failure`])
//!    for those who hold the index or wait for it.
//! 3. An index that failed is dropped by the next job that finds nobody writing. Until then it answers by scanning, as
//!    while it was being built. A crash before it was dropped has it built, and fail, again.

use std::sync::Arc;

use mycelium_base::limits::MAX_KEY_LEN;
use mycelium_base::{Error, ErrorKind, Operation, Result};
use mycelium_encoding::{Schema, key};
use mycelium_transform::Deriver;

use super::definition::IndexShared;
use crate::database::Inner;
use crate::table::TableShared;

/// Characters of a row's primary key that an error shows.
const SHOWN: usize = 200;

/// Refuses a key that the derived table `index` cannot hold.
pub(super) fn check_key(index: &str, key: &[u8]) -> Result<()> {
    if key.len() <= MAX_KEY_LEN { Ok(()) } else { Err(too_long(index, key.len())) }
}

#[cold]
fn too_long(index: &str, len: usize) -> Error {
    let message = format!("the row's key in the index {index} would be too long");
    Error::invalid(message).expected(format_args!("at most {MAX_KEY_LEN} bytes"), format_args!("{len} bytes"))
}

/// What a deriver of the index makes of a row: why it cannot, where that is the row's fault.
pub(super) fn refused_row(
    index: &str,
    deriver: &mut Deriver,
    row_key: &[u8],
    operation: Operation,
    row: &[u8],
) -> Result<Option<Error>> {
    match deriver.derive(row_key, operation, row) {
        Ok(derived) => Ok(derived.entries().find_map(|(key, _)| check_key(index, key).err())),
        Err(error) if error.kind() == ErrorKind::InvalidArgument => Ok(Some(failed_on(index, error))),
        Err(error) => Err(error),
    }
}

/// An error of what feeds an index, with the index's name.
#[cold]
pub(super) fn failed_on(index: &str, error: Error) -> Error {
    if error.kind() != ErrorKind::InvalidArgument {
        return error;
    }
    Error::invalid(format!("the index {index} cannot hold the row: {error}")).caused_by(error)
}

/// Says of which row a refusal is.
fn of_row(schema: &Schema, row_key: &[u8], refusal: Error) -> Error {
    let values = key::decode_key(schema, row_key).map_or_else(|_| format!("{row_key:02x?}"), |row| format!("{row:?}"));
    let shown: String = values.chars().take(SHOWN).collect();
    Error::new(refusal.kind(), format!("the row with the primary key {shown}: {refusal}")).caused_by(refusal)
}

impl IndexShared {
    /// Why the index cannot be built, if it cannot.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.lock().as_ref().map(Error::duplicate)
    }

    /// It cannot be built: it cannot hold this row.
    pub(super) fn fail(&self, row_key: &[u8], refusal: Error) {
        if self.status().is_built {
            return;
        }
        let error = of_row(&self.schema, row_key, refusal);
        tracing::warn!(%error, index = self.name(), "an index cannot be built, and is dropped");
        self.failure.lock().get_or_insert(error);
    }
}

impl Inner {
    fn failed_index(&self) -> Option<Arc<TableShared>> {
        let core = self.core.lock();
        core.tables.unbuilt().find(|(_, index)| index.failure().is_some()).map(|(table, _)| table.clone())
    }

    /// Whether an index has failed that is still there.
    pub(crate) fn has_failed_index(&self) -> bool {
        self.failed_index().is_some()
    }

    /// Drops an index that failed, unless somebody is writing: a writer may wait for this very thread.
    pub(crate) fn drop_failed_index(&self) -> Result<bool> {
        let Some(derived) = self.failed_index() else { return Ok(false) };
        let Some(mut writer) = self.commits.writer.try_lock() else { return Ok(false) };
        if derived.check_alive().is_ok() {
            self.drop_derived(&mut writer, &derived)?;
        }
        Ok(true)
    }
}
