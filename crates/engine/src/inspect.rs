//! What tools read of a database's files without opening it.

use mycelium_base::{EntryRef, Result, SequenceNumber, TableId};

use crate::batch::Operations;

/// Calls `visit` with every operation of a log record's payload, in order; gives the record's first sequence number and
/// its number of operations. Range deletes carry their start as key and their end as value.
///
/// # Errors
/// [`mycelium_base::ErrorKind::Corruption`] if the payload is malformed; the first error of `visit`.
pub fn read_log_record(
    payload: &[u8],
    mut visit: impl FnMut(TableId, EntryRef<'_>) -> Result<()>,
) -> Result<(SequenceNumber, u32)> {
    let (first, count, mut operations) = Operations::of_record(payload)?;
    while let Some((table, entry)) = operations.next()? {
        visit(table, entry)?;
    }
    Ok((first, count))
}
