//! Coding of segment headers and record headers (drawn in the crate's documentation).

use mycelium_base::coding::Reader;
use mycelium_base::limits::MAX_BATCH_LEN;
use mycelium_base::{Error, ErrorKind, FileNumber, Result};

/// Bytes of a segment's header; the first record starts here.
pub const HEADER_LEN: usize = 40;
/// Bytes of a record before its payload.
pub const RECORD_HEADER_LEN: usize = 12;
/// The newest format version: some payloads are such that a reader of version 1 does not know them.
pub const FORMAT_VERSION: u32 = 2;
/// The version that segments have unless another is asked for.
pub(crate) const FIRST_VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"MYCLWAL1";

/// Bytes of the mark behind a segment that another one continues.
pub(crate) const MARK_LEN: usize = RECORD_HEADER_LEN + 8;
/// What stands in a mark where a record has its length: no record is that long.
const MARK: u32 = (1 << 31) | 8;

/// The most bytes handed to or asked from the disk at once while reading.
pub(crate) const PIECE: usize = 1 << 20;

/// Who a segment is and what it continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// The segment's own file number.
    pub number: FileNumber,
    /// The segment this one continues, and the length in bytes to which that one is part of the log; `None` for the
    /// first segment of a log. Whatever the previous file holds beyond that length does not count.
    pub previous: Option<(FileNumber, u64)>,
}

impl SegmentHeader {
    /// The header's bytes.
    pub(crate) fn encode(&self, version: u32) -> [u8; HEADER_LEN] {
        let (previous, previous_len) = self.previous.unwrap_or((0, 0));
        let mut out = [0; HEADER_LEN];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&version.to_le_bytes());
        out[12..20].copy_from_slice(&self.number.to_le_bytes());
        out[20..28].copy_from_slice(&previous.to_le_bytes());
        out[28..36].copy_from_slice(&previous_len.to_le_bytes());
        let checksum = crc32c::crc32c(&out[..36]);
        out[36..].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Decodes a header; [`ErrorKind::Unsupported`] for a newer format version, corruption for anything else amiss.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let magic = reader.take(8)?;
        let version = reader.u32()?;
        let number = reader.u64()?;
        let previous = reader.u64()?;
        let previous_len = reader.u64()?;
        let stored = reader.u32()?;
        if magic != MAGIC {
            return Err(Error::corruption("not a log segment").at(0).expected("magic MYCLWAL1", magic.escape_ascii()));
        }
        let computed = crc32c::crc32c(&bytes[..36]);
        if stored != computed {
            return Err(Error::corruption("checksum of the segment header")
                .at(36)
                .expected(format_args!("{computed:08x}"), format_args!("{stored:08x}")));
        }
        if version > FORMAT_VERSION || version == 0 {
            return Err(Error::new(ErrorKind::Unsupported, format!("log format version {version} is not supported"))
                .at(8)
                .expected(format_args!("1 to {FORMAT_VERSION}"), version));
        }
        Ok(Self { number, previous: (previous != 0).then_some((previous, previous_len)) })
    }
}

/// The 12 bytes before a payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordHeader {
    pub(crate) checksum: u32,
    pub(crate) length: u32,
    pub(crate) unsynced: u32,
}

impl RecordHeader {
    /// Decodes the first 12 bytes of `bytes`, which must be there.
    #[inline]
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let field = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self { checksum: field(0), length: field(4), unsynced: field(8) }
    }

    #[inline]
    pub(crate) fn encode(self) -> [u8; RECORD_HEADER_LEN] {
        let mut out = [0; RECORD_HEADER_LEN];
        out[..4].copy_from_slice(&self.checksum.to_le_bytes());
        out[4..8].copy_from_slice(&self.length.to_le_bytes());
        out[8..].copy_from_slice(&self.unsynced.to_le_bytes());
        out
    }

    /// Whether the length is one that a writer could have written.
    #[inline]
    pub(crate) fn plausible(self) -> bool {
        self.length != 0 && self.length as usize <= MAX_BATCH_LEN
    }

    /// Whether this is no record, but the mark behind the last one.
    #[inline]
    pub(crate) fn is_mark(self) -> bool {
        self.length == MARK
    }

    /// The bytes of the segment that this record, standing at `offset`, testifies to have been synced.
    #[inline]
    pub(crate) fn synced_prefix(self, offset: u64) -> u64 {
        if self.unsynced == u32::MAX { 0 } else { offset.saturating_sub(u64::from(self.unsynced)) }
    }
}

/// The mark that segment `successor` continues this one, which ends at `offset`.
pub(crate) fn encode_mark(number: FileNumber, offset: u64, successor: FileNumber) -> [u8; MARK_LEN] {
    let payload = successor.to_le_bytes();
    let checksum = crc32c::crc32c_append(begin_checksum(number, offset, MARK, 0), &payload);
    let mut out = [0; MARK_LEN];
    out[..RECORD_HEADER_LEN].copy_from_slice(&RecordHeader { checksum, length: MARK, unsynced: 0 }.encode());
    out[RECORD_HEADER_LEN..].copy_from_slice(&payload);
    out
}

/// The segment that the mark at `offset` names; `None` if the bytes are no such mark.
pub(crate) fn decode_mark(number: FileNumber, offset: u64, bytes: &[u8]) -> Option<FileNumber> {
    let payload: [u8; 8] = bytes.get(RECORD_HEADER_LEN..)?.try_into().ok()?;
    let header = RecordHeader::decode(bytes);
    let checksum = begin_checksum(number, offset, header.length, header.unsynced);
    let verifies = crc32c::crc32c_append(checksum, &payload) == header.checksum;
    (header.is_mark() && verifies).then(|| u64::from_le_bytes(payload))
}

/// The checksum of everything of a record but its payload; continue it over the payload with [`crc32c::crc32c_append`].
#[inline]
pub(crate) fn begin_checksum(number: FileNumber, offset: u64, length: u32, unsynced: u32) -> u32 {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..16].copy_from_slice(&offset.to_le_bytes());
    bytes[16..20].copy_from_slice(&length.to_le_bytes());
    bytes[20..].copy_from_slice(&unsynced.to_le_bytes());
    crc32c::crc32c(&bytes)
}
