//! Block compression.
//!
//! ```text
//! kind 0, stored    the block
//! kind 1, LZ4       u32 LE length of the block, LZ4 block
//! kind 2, Zstandard u32 LE length of the block, Zstandard frame
//! ```
//!
//! A block that does not shrink by an eighth is stored: readers then need no copy.

use std::io::Read;
use std::sync::Arc;

use mycelium_base::{Error, Result};
use mycelium_cache::SpareBlocks;

use crate::block::BlockBuffer;
use crate::checksum::MAX_BLOCK_LEN;

/// The kind byte of a stored block.
pub(crate) const STORED: u8 = 0;
const LZ4: u8 = 1;
const ZSTD: u8 = 2;
/// Beyond this a length is not believed before the bytes are there.
const UNVERIFIED_ALLOCATION: usize = 1 << 20;

/// How the data blocks of a file are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Compression {
    /// Stored as they are.
    #[default]
    None,
    /// LZ4: about 2 GB/s to decompress.
    Lz4,
    /// Zstandard at a level (1 to 22): smaller, about 1 GB/s to decompress.
    Zstd(i32),
}

impl Compression {
    /// The word used in properties and text output.
    pub fn name(self) -> String {
        match self {
            Self::None => "none".into(),
            Self::Lz4 => "lz4".into(),
            Self::Zstd(level) => format!("zstd:{level}"),
        }
    }
}

/// Compresses the blocks of one file, keeping tables and buffers between them.
pub(crate) struct Compressor {
    kind: Kind,
    buffer: Vec<u8>,
}

enum Kind {
    Stored,
    Lz4,
    Zstd(zstd::bulk::Compressor<'static>),
}

impl Compressor {
    pub(crate) fn new(compression: Compression) -> Result<Self> {
        let kind = match compression {
            Compression::None => Kind::Stored,
            Compression::Lz4 => Kind::Lz4,
            Compression::Zstd(level) => {
                if !(1..=22).contains(&level) {
                    return Err(Error::invalid(format!("Zstandard has levels 1 to 22, not {level}")));
                }
                Kind::Zstd(zstd::bulk::Compressor::new(level).map_err(failed)?)
            }
        };
        Ok(Self { kind, buffer: Vec::new() })
    }

    pub(crate) fn is_stored(&self) -> bool {
        matches!(self.kind, Kind::Stored)
    }

    /// The kind byte and the bytes to store for `block`.
    pub(crate) fn compress<'a>(&'a mut self, block: &'a [u8]) -> Result<(u8, &'a [u8])> {
        let (kind, bound) = match &self.kind {
            Kind::Stored => return Ok((STORED, block)),
            Kind::Lz4 => (LZ4, lz4::block::compress_bound(block.len()).map_err(failed)?),
            Kind::Zstd(_) => (ZSTD, zstd::zstd_safe::compress_bound(block.len())),
        };
        let Ok(block_len) = u32::try_from(block.len()) else {
            return Ok((STORED, block));
        };
        if self.buffer.len() < 4 + bound {
            self.buffer.resize(4 + bound, 0);
        }
        self.buffer[..4].copy_from_slice(&block_len.to_le_bytes());
        let output = &mut self.buffer[4..];
        let len = match &mut self.kind {
            Kind::Stored => return Ok((STORED, block)),
            Kind::Lz4 => lz4::block::compress_to_buffer(block, None, false, output).map_err(failed)?,
            Kind::Zstd(context) => context.compress_to_buffer(block, output).map_err(failed)?,
        };
        if 4 + len > block.len() - block.len() / 8 {
            return Ok((STORED, block));
        }
        Ok((kind, &self.buffer[..4 + len]))
    }
}

/// Decompresses blocks, keeping the Zstandard context and the memory for what is read between them.
#[derive(Default)]
pub struct Decompressor {
    /// The block to be decompressed, framed, where it is read by itself.
    pub(crate) framed: Vec<u8>,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl std::fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decompressor").finish_non_exhaustive()
    }
}

impl Decompressor {
    /// The block behind a compressed payload, in memory from `spares`. Its last byte counts those after the block
    /// itself.
    pub fn decompress(&mut self, kind: u8, payload: &[u8], spares: &SpareBlocks) -> Result<Arc<[u8]>> {
        let Some((len, compressed)) = payload.split_first_chunk::<4>() else {
            return Err(Error::corruption("compressed block cut short").expected("at least 4 bytes", payload.len()));
        };
        let len = u32::from_le_bytes(*len) as usize;
        if len as u64 > MAX_BLOCK_LEN {
            return Err(Error::corruption("compressed block too long").expected(MAX_BLOCK_LEN, len));
        }
        match kind {
            // LZ4 cannot shrink a block by more than 255, so that this bounds the allocation by the bytes there.
            LZ4 if len / 255 <= compressed.len() => {
                let mut out = BlockBuffer::new(len, spares);
                let size = i32::try_from(len).map_err(malformed)?;
                let found = lz4::block::decompress_to_buffer(compressed, Some(size), &mut out.bytes()[..len]);
                expect_len(len, found.map_err(malformed)?)?;
                Ok(out.finish(len))
            }
            LZ4 => {
                Err(Error::corruption("LZ4 block shorter than its length allows").expected(len / 255, compressed.len()))
            }
            ZSTD if len <= UNVERIFIED_ALLOCATION => {
                let context = match &mut self.zstd {
                    Some(context) => context,
                    empty => empty.insert(zstd::bulk::Decompressor::new().map_err(failed)?),
                };
                let mut out = BlockBuffer::new(len, spares);
                let found = context.decompress_to_buffer(compressed, &mut out.bytes()[..len]);
                expect_len(len, found.map_err(malformed)?)?;
                Ok(out.finish(len))
            }
            ZSTD => decompress_large(len, compressed, spares),
            _ => Err(Error::corruption("unknown compression").expected("0, 1 or 2", kind)),
        }
    }
}

/// Grows the output as bytes arrive, because `len` cannot be believed.
fn decompress_large(len: usize, compressed: &[u8], spares: &SpareBlocks) -> Result<Arc<[u8]>> {
    let mut out = Vec::new();
    let decoder = zstd::stream::read::Decoder::new(compressed).map_err(failed)?;
    let found = decoder.take(len as u64 + 1).read_to_end(&mut out).map_err(malformed)?;
    expect_len(len, found)?;
    Ok(BlockBuffer::copy_of(&out, spares))
}

/// A zeroed block in one allocation.
pub(crate) fn zeroed(len: usize) -> Arc<[u8]> {
    std::iter::repeat_n(0, len).collect()
}

/// The bytes of a block that nobody shares yet (an empty slice if somebody does).
pub(crate) fn exclusive(block: &mut Arc<[u8]>) -> &mut [u8] {
    Arc::get_mut(block).unwrap_or_default()
}

fn expect_len(expected: usize, found: usize) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Error::corruption("compressed block has another length").expected(expected, found))
}

#[cold]
fn malformed(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::corruption("block does not decompress").caused_by(cause)
}

#[cold]
fn failed(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(mycelium_base::ErrorKind::Io, "compression failed").caused_by(cause)
}
