//! The operations of a batch as bytes, which are the body of its log record, behind the record's head (log_record.rs):
//!
//! ```text
//! body     per operation: table varint | operation u8 | key length varint | key | value length varint | value
//! ```
//!
//! A `Delete` has no value part. Operations get consecutive sequence numbers in the order they were added.

use mycelium_base::coding::{MAX_VARINT_LEN, Reader, put_bytes, put_varint};
use mycelium_base::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};
use mycelium_base::{EntryRef, Error, Operation, Result, SequenceNumber, TableId, Trailer};

use crate::log_record::split_record;
use crate::note::Note;

/// Appends one operation.
#[inline]
pub(crate) fn encode_operation(out: &mut Vec<u8>, table: TableId, operation: Operation, key: &[u8], value: &[u8]) {
    out.reserve(3 * MAX_VARINT_LEN + 1 + key.len() + value.len());
    put_varint(out, table.0.into());
    out.push(operation as u8);
    put_bytes(out, key);
    if operation != Operation::Delete {
        put_bytes(out, value);
    }
}

/// The operations of a body, with the sequence numbers they get. Malformed bytes end in an error.
pub(crate) struct Operations<'a> {
    reader: Reader<'a>,
    sequence: SequenceNumber,
    left: u32,
}

impl<'a> Operations<'a> {
    #[inline]
    pub(crate) fn new(body: &'a [u8], first: SequenceNumber, count: u32) -> Self {
        Self { reader: Reader::new(body), sequence: first, left: count }
    }

    /// The operations of a log record, and its head.
    pub(crate) fn of_record(payload: &'a [u8]) -> Result<(SequenceNumber, u32, Self)> {
        let (first, count, mut body) = split_record(payload)?;
        if count == 0 && !body.is_empty() {
            Note::decode(body)?;
            body = &[];
        }
        Ok((first, count, Self::new(body, first, count)))
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<(TableId, EntryRef<'a>)>> {
        if self.left == 0 {
            self.reader.finish()?;
            return Ok(None);
        }
        let table = self.reader.length(u32::MAX as usize)? as u32;
        let at = self.reader.position() as u64;
        let code = self.reader.u8()?;
        let Some(operation) = Operation::from_u8(code) else {
            return Err(Error::corruption("unknown operation in a batch").at(at).expected("0 to 4", code));
        };
        let key = self.reader.bytes_up_to(MAX_KEY_LEN)?;
        let value = match operation {
            Operation::Delete => &[][..],
            Operation::RangeDelete => self.reader.bytes_up_to(MAX_KEY_LEN)?,
            _ => self.reader.bytes_up_to(MAX_VALUE_LEN)?,
        };
        let trailer = Trailer::new(self.sequence, operation);
        self.sequence += 1;
        self.left -= 1;
        Ok(Some((TableId(table), EntryRef { key, trailer, value })))
    }
}
