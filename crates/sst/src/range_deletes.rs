//! The range-delete block.
//!
//! ```text
//! varint          count
//! count times, ascending:
//!   varint, bytes   start
//!   varint, bytes   end, after start
//!   varint          sequence number
//! ```

use mycelium_base::coding::{Reader, put_bytes, put_varint};
use mycelium_base::limits::MAX_KEY_LEN;
use mycelium_base::{Error, MAX_SEQUENCE_NUMBER, RangeDelete, Result};

/// The block's payload; `deletes` must be sorted.
pub fn encode_range_deletes(deletes: &[RangeDelete]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, deletes.len() as u64);
    for delete in deletes {
        put_bytes(&mut out, &delete.start);
        put_bytes(&mut out, &delete.end);
        put_varint(&mut out, delete.sequence);
    }
    out
}

/// Parses a payload.
pub fn parse_range_deletes(payload: &[u8]) -> Result<Vec<RangeDelete>> {
    let mut reader = Reader::new(payload);
    let count = reader.length(payload.len())?;
    let mut deletes: Vec<RangeDelete> = Vec::new();
    for _ in 0..count {
        let at = reader.position() as u64;
        let (start, end, sequence) = (reader.bytes()?, reader.bytes()?, reader.varint()?);
        let fits = start < end && end.len() <= MAX_KEY_LEN && start.len() <= MAX_KEY_LEN;
        let delete = RangeDelete { start: start.to_vec(), end: end.to_vec(), sequence };
        if !fits || sequence > MAX_SEQUENCE_NUMBER || deletes.last().is_some_and(|last| *last >= delete) {
            return Err(Error::corruption("malformed range delete").at(at));
        }
        deletes.push(delete);
    }
    reader.finish()?;
    Ok(deletes)
}
