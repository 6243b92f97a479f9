//! How every block is framed on disk.
//!
//! ```text
//! payload        as stored, perhaps compressed
//! u8             compression kind
//! u64 LE         XXH3-64 of the payload and the kind, seeded with (file number, offset of the block)
//! ```
//!
//! The seed makes a block that was moved within its file, or that belongs to another file, fail its check.

use mycelium_base::hash::mix;
use mycelium_base::{Error, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes that follow a block's payload.
pub const BLOCK_TRAILER_LEN: usize = 9;

/// The longest block, framed; lengths beyond it are not believed.
pub const MAX_BLOCK_LEN: u64 = 1 << 30;

/// The seed of the block at `offset` of file `file_number`.
#[inline]
pub fn block_seed(file_number: u64, offset: u64) -> u64 {
    mix(file_number.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ offset.wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// Completes a block whose payload is `out[start..]` and which will lie at `offset`: appends kind and checksum.
pub fn seal_block(out: &mut Vec<u8>, start: usize, kind: u8, file_number: u64, offset: u64) {
    out.push(kind);
    let checksum = xxh3_64_with_seed(&out[start..], block_seed(file_number, offset));
    out.extend_from_slice(&checksum.to_le_bytes());
}

/// Checks a framed block read from `offset`: its payload and compression kind. The error lacks the file's name.
#[inline]
pub fn open_block(framed: &[u8], file_number: u64, offset: u64) -> Result<(&[u8], u8)> {
    let Some((body, stored)) = framed.split_last_chunk::<8>() else {
        return Err(Error::corruption("block cut short").at(offset));
    };
    let Some((&kind, payload)) = body.split_last() else {
        return Err(Error::corruption("block cut short").at(offset));
    };
    let stored = u64::from_le_bytes(*stored);
    let computed = xxh3_64_with_seed(body, block_seed(file_number, offset));
    if computed != stored {
        return Err(wrong_checksum(offset, stored, computed));
    }
    Ok((payload, kind))
}

#[cold]
fn wrong_checksum(offset: u64, stored: u64, computed: u64) -> Error {
    Error::corruption("block checksum does not match")
        .at(offset)
        .expected(format_args!("{stored:016x}"), format_args!("{computed:016x}"))
}
