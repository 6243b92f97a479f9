//! What tools read of a database's files without opening it.

use mycelium_base::{EntryRef, Result, SequenceNumber, TableId};

use crate::operations::Operations;
use crate::origin::Origin;

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

/// What an SST says of where it belongs ([`mycelium_sst::FileStatement::origin`]), read and written again as the newest
/// version does.
///
/// # Errors
/// [`mycelium_base::ErrorKind::Corruption`] if it is malformed; [`mycelium_base::ErrorKind::Unsupported`] if it is of a
/// newer version.
pub fn rewrite_origin(origin: &[u8]) -> Result<Vec<u8>> {
    Origin::decode(origin).map(|origin| origin.encode())
}
