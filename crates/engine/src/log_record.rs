//! The heads of the log's records.
//!
//! ```text
//! record   first sequence number varint | operations varint | what the record holds
//! ```
//!
//! A record of operations holds these (operations.rs), one of none may hold a note (note.rs).

use mycelium_base::coding::{MAX_VARINT_LEN, Reader, put_varint};
use mycelium_base::{Error, MAX_SEQUENCE_NUMBER, Result, SequenceNumber};

/// The most bytes that a head takes.
pub(crate) const HEAD_LEN: usize = 2 * MAX_VARINT_LEN;

/// Writes the head of a record.
#[inline]
pub(crate) fn encode_head(head: &mut Vec<u8>, first: SequenceNumber, count: u32) {
    head.clear();
    put_varint(head, first);
    put_varint(head, count.into());
}

/// A log record's first sequence number, its number of operations, and what stands behind its head.
pub(crate) fn split_record(payload: &[u8]) -> Result<(SequenceNumber, u32, &[u8])> {
    let mut reader = Reader::new(payload);
    let (first, count) = (reader.varint()?, reader.length(u32::MAX as usize)? as u32);
    // The number after the last may be one that no entry can have.
    if first.checked_add(count.into()).is_none_or(|end| end > MAX_SEQUENCE_NUMBER + 1) {
        return Err(Error::corruption("sequence number out of range").at(0));
    }
    Ok((first, count, reader.rest()))
}
