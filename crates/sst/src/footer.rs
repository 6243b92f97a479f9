//! The last 96 bytes of a file.
//!
//! ```text
//!  0  u64, u64   filter block: offset and framed length (length 0: none)
//! 16  u64, u64   index block
//! 32  u64, u64   range-delete block (length 0: none)
//! 48  u64, u64   properties block
//! 64  u64        file number
//! 72  u32        format version: of columnar files 5 with gaps in keys, else 4 with symbol tables, else 3; of others 2 if there
//!               are summaries, else 1
//! 76  u32        framed length of the directory of the summaries, which ends where the properties begin; 0 if there is none
//! 80  u64        XXH3-64 of bytes 0..80, seeded with (file number, offset of the footer)
//! 88  8 bytes    "MYCLSST1"
//! ```
//!
//! Data blocks fill the file from 0 to the first of these parts, and the parts follow each other without gaps; what
//! lies between range deletes and the directory are, of a columnar file, the parts of its columns, whose directory the
//! properties name, and the pages of the summaries.

use mycelium_base::coding::Reader;
use mycelium_base::{Error, ErrorKind, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::checksum::block_seed;

/// The footer's length in bytes.
pub const FOOTER_LEN: usize = 96;
/// The newest format this code writes and reads.
pub const FORMAT_VERSION: u32 = 5;
/// The format of files of rows with summaries.
const WITH_SUMMARIES: u32 = 2;
/// The format of files of rows without summaries.
const WITHOUT_SUMMARIES: u32 = 1;
const MAGIC: &[u8; 8] = b"MYCLSST1";
const CHECKED_LEN: usize = 80;

/// Where a framed block lies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BlockHandle {
    /// Offset in the file.
    pub offset: u64,
    /// Length with compression kind and checksum; 0 if the part does not exist.
    pub len: u64,
}

/// What of a columnar file is newest. A file may have what is older, too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ColumnarFormat {
    /// Pages and dictionaries.
    Plain = 3,
    /// Some of its columns have symbol tables.
    SymbolTables = 4,
    /// The keys of some blocks have a gap.
    KeysWithGaps = 5,
}

impl ColumnarFormat {
    /// That of a version.
    fn of_version(version: u32) -> Option<Self> {
        [Self::Plain, Self::SymbolTables, Self::KeysWithGaps].into_iter().find(|&format| format as u32 == version)
    }
}

/// The parsed footer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Footer {
    /// The Bloom filter.
    pub filter: BlockHandle,
    /// The index.
    pub index: BlockHandle,
    /// The range deletes.
    pub range_deletes: BlockHandle,
    /// The directory of the summaries.
    pub summaries: BlockHandle,
    /// The properties.
    pub properties: BlockHandle,
    /// The number of the file.
    pub file_number: u64,
    /// If its blocks are columnar, what they have.
    pub columnar: Option<ColumnarFormat>,
}

impl Footer {
    /// Where the data blocks end.
    pub fn data_end(&self) -> u64 {
        if self.filter.len > 0 { self.filter.offset } else { self.index.offset }
    }

    /// Where the range deletes end, or the index: there the pages of the summaries begin, if there are summaries, or
    /// the parts of the columns.
    pub fn pages_start(&self) -> u64 {
        let last = if self.range_deletes.len > 0 { self.range_deletes } else { self.index };
        last.offset.saturating_add(last.len)
    }

    /// The footer's bytes, to be written at `offset`.
    pub fn encode(&self, offset: u64) -> [u8; FOOTER_LEN] {
        let mut out = Vec::with_capacity(FOOTER_LEN);
        for part in [self.filter, self.index, self.range_deletes, self.properties] {
            out.extend_from_slice(&part.offset.to_le_bytes());
            out.extend_from_slice(&part.len.to_le_bytes());
        }
        out.extend_from_slice(&self.file_number.to_le_bytes());
        let version = match (self.columnar, self.summaries.len) {
            (Some(columnar), _) => columnar as u32,
            (None, 0) => WITHOUT_SUMMARIES,
            (None, _) => WITH_SUMMARIES,
        };
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&(self.summaries.len as u32).to_le_bytes());
        let checksum = xxh3_64_with_seed(&out, block_seed(self.file_number, offset));
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(MAGIC);
        let mut bytes = [0; FOOTER_LEN];
        bytes.copy_from_slice(&out);
        bytes
    }

    /// Parses the footer that lies at `offset`, the file's last [`FOOTER_LEN`] bytes. Checks everything that can be
    /// checked without the file: magic, version, checksum, number, and that the parts are where they must be.
    pub fn parse(bytes: &[u8], file_number: u64, offset: u64) -> Result<Self> {
        let wrong = |what: &str, at: u64| Error::corruption(what).at(offset + at);
        let bytes: &[u8; FOOTER_LEN] = match bytes.try_into() {
            Ok(bytes) => bytes,
            Err(_) => return Err(wrong("footer cut short", 0).expected(FOOTER_LEN, bytes.len())),
        };
        if &bytes[88..] != MAGIC {
            return Err(wrong("not an SST: wrong magic", 88)
                .expected(format_args!("{:02x?}", MAGIC), format_args!("{:02x?}", &bytes[88..])));
        }
        let mut reader = Reader::new(bytes);
        let mut handle = || Ok::<_, Error>(BlockHandle { offset: reader.u64()?, len: reader.u64()? });
        let (filter, index, range_deletes, properties) = (handle()?, handle()?, handle()?, handle()?);
        let (number, version, summaries_len, checksum) = (reader.u64()?, reader.u32()?, reader.u32()?, reader.u64()?);
        if version > FORMAT_VERSION {
            return Err(Error::new(ErrorKind::Unsupported, "the SST has a newer format")
                .at(offset + 72)
                .expected(format_args!("at most {FORMAT_VERSION}"), version));
        }
        let computed = xxh3_64_with_seed(&bytes[..CHECKED_LEN], block_seed(number, offset));
        if computed != checksum {
            return Err(wrong("footer checksum does not match", 80)
                .expected(format_args!("{checksum:016x}"), format_args!("{computed:016x}")));
        }
        if number != file_number {
            return Err(wrong("the file has another number", 64).expected(file_number, number));
        }
        let columnar = ColumnarFormat::of_version(version);
        if version == 0 || columnar.is_none() && (version == WITHOUT_SUMMARIES) != (summaries_len == 0) {
            return Err(wrong("malformed footer", 72).expected(
                "version 1 and 0, version 2 and a length, or version 3 to 5",
                format_args!("{version} and {summaries_len}"),
            ));
        }
        let len = u64::from(summaries_len);
        let summaries = match properties.offset.checked_sub(len) {
            _ if len == 0 => BlockHandle::default(),
            Some(offset) => BlockHandle { offset, len },
            None => return Err(wrong("the summaries exceed the file", 76).expected(properties.offset, len)),
        };
        let footer = Self { filter, index, range_deletes, summaries, properties, file_number, columnar };
        footer.check_parts(offset)?;
        Ok(footer)
    }

    /// The footer of a file of which nothing is known.
    pub(crate) fn without_parts(file_number: u64) -> Self {
        let none = BlockHandle::default();
        let (filter, index, range_deletes, summaries, properties) = (none, none, none, none, none);
        Self { filter, index, range_deletes, summaries, properties, file_number, columnar: None }
    }

    /// Whether the footer that lies at `offset` is what was written, if perhaps by a newer version.
    pub(crate) fn is_whole(bytes: &[u8], file_number: u64, offset: u64) -> bool {
        let Some((checked, rest)) = bytes.split_at_checked(CHECKED_LEN) else { return false };
        let computed = xxh3_64_with_seed(checked, block_seed(file_number, offset));
        rest.first_chunk().is_some_and(|stored| u64::from_le_bytes(*stored) == computed)
    }

    fn check_parts(&self, footer_offset: u64) -> Result<()> {
        let mut end = self.data_end();
        let parts = [
            (self.filter, true, false),
            (self.index, false, false),
            (self.range_deletes, true, false),
            (self.summaries, true, true),
            (self.properties, false, self.columnar.is_some() && self.summaries.len == 0),
        ];
        for (part, optional, after_pages) in parts {
            if part.len == 0 && optional {
                continue;
            }
            let is_placed = part.offset == end || after_pages && part.offset > end;
            if !is_placed || part.len <= 8 {
                return Err(Error::corruption("a part of the file is misplaced")
                    .at(footer_offset)
                    .expected(end, part.offset));
            }
            end = match part.offset.checked_add(part.len) {
                Some(end) if end <= footer_offset => end,
                _ => {
                    return Err(Error::corruption("a part exceeds the file")
                        .at(footer_offset)
                        .expected(footer_offset, part.len));
                }
            };
        }
        if end != footer_offset {
            return Err(Error::corruption("a gap before the footer").at(footer_offset).expected(footer_offset, end));
        }
        Ok(())
    }
}
