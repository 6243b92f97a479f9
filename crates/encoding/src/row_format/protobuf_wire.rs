//! The wire of Protobuf: where varints and pieces of fields lie in a message.
//!
//! As far as it is used (<https://protobuf.dev/programming-guides/encoding>):
//!
//! ```text
//! message := (tag piece)*
//! tag     := varint of number << 3 | wire type
//! piece   := varint (type 0) | 8 bytes (1) | length varint, that many bytes (2) | 4 bytes (5)
//! ```
//!
//! Guarantees: no panic on any bytes, and no piece beyond the end of the message.

use mycelium_base::coding::{get_varint, varint_len};

use super::span::Fault;

/// The varint at `at` and where it ends.
#[inline]
pub(super) fn varint(payload: &[u8], at: usize) -> Result<(u64, usize), Fault> {
    match get_varint(payload.get(at..).unwrap_or_default()) {
        Some((value, len)) => Ok((value, at + len)),
        None => Err(Fault::new(at, "malformed Protobuf: a varint is cut short or over 64 bits")),
    }
}

/// Where the piece of `wire_type` at `at` starts and ends.
#[inline]
pub(super) fn piece_at(payload: &[u8], wire_type: u32, at: usize) -> Result<(usize, usize), Fault> {
    let (start, end) = match wire_type {
        0 => (at, varint(payload, at)?.1),
        1 => (at, at + 8),
        2 => {
            let (len, start) = varint(payload, at)?;
            let end = usize::try_from(len).ok().and_then(|len| start.checked_add(len));
            (start, end.unwrap_or(usize::MAX))
        }
        _ => (at, at + 4),
    };
    if end > payload.len() {
        return Err(Fault::new(at, "malformed Protobuf: a field is cut short"));
    }
    Ok((start, end))
}

/// The varint at `at` and where it ends, if it is as short as it can be.
#[inline(always)]
pub(super) fn short_varint(payload: &[u8], at: usize) -> Option<(u64, usize)> {
    match *payload.get(at..)? {
        [first @ 0..0x80, ..] => Some((first.into(), at + 1)),
        [first, second @ 1..0x80, ..] => Some((u64::from(first & 0x7f) | u64::from(second) << 7, at + 2)),
        ref longer => {
            let (value, len) = get_varint(longer)?;
            (len == varint_len(value)).then_some((value, at + len))
        }
    }
}
