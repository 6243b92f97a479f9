//! SSTs: sorted, immutable files of entries, in blocks of rows or of columns.
//!
//! ```text
//! data block        entries in order (see `block::format`); one after the other from offset 0
//! ...
//! filter block      Bloom filter of the keys and their prefixes, if any (see `filter`, `prefix_filter`)
//! index block       one row per data block (see `index`)
//! range deletes     if any (see `range_deletes`)
//! summaries         if any (see `summary`)
//! properties        counts, fences, settings (see `properties`)
//! footer            96 bytes: where the parts are (see `footer`)
//! ```
//!
//! Files whose column group is columnar hold blocks of columns instead, and more parts (see `columnar`).
//!
//! Every block is framed with its compression kind and a checksum that is seeded with the file's number and the block's
//! offset (see `checksum`). [`SstWriter`] writes a file, [`SstFile`] reads it: points with [`SstFile::get`], ranges
//! with [`SstFile::cursor`], a whole level with [`LevelCursor`]; [`SstFile::verify`] checks it, and [`Remains`] reads
//! what is left of a damaged one.
//!
//! Guarantees: what was added is what is read; a bit that flipped, a block or file that took another's place, or a file
//! cut short is reported as corruption with file and offset before any wrong answer, and never panics.
//!
//! ```
//! use std::{ops::ControlFlow, path::Path, sync::Arc};
//!
//! use mycelium_base::{Cursor, MAX_SEQUENCE_NUMBER, Operation, ReadCounters, Trailer};
//! use mycelium_cache::BlockCache;
//! use mycelium_sst::{CursorOptions, GetScratch, OpenOptions, SstFile, SstWriter, SstWriterOptions};
//! use mycelium_vfs::{AccessPattern, Disk, MemoryDisk};
//!
//! # fn main() -> mycelium_base::Result<()> {
//! let disk = MemoryDisk::new();
//! let path = Path::new("000007.sst");
//! let options = SstWriterOptions { file_number: 7, ..SstWriterOptions::default() };
//! let mut writer = SstWriter::new(disk.create(path)?, options)?;
//! writer.add(b"apple", Trailer::new(2, Operation::Put), b"red")?;
//! writer.add(b"apple", Trailer::new(1, Operation::Put), b"green")?;
//! writer.add(b"pear", Trailer::new(3, Operation::Put), b"yellow")?;
//! let summary = writer.finish()?;
//! assert_eq!(summary.entry_count, 3);
//!
//! let cache = Arc::new(BlockCache::new(8 << 20));
//! let file = SstFile::open(disk.open(path, AccessPattern::Random)?, path, 7, cache, OpenOptions::default())?;
//! let mut found = Vec::new();
//! file.get(b"apple", MAX_SEQUENCE_NUMBER, &mut GetScratch::default(), &mut ReadCounters::default(), &mut |_, value: &[u8]| {
//!     found.push(value.to_vec());
//!     ControlFlow::Continue(())
//! })?;
//! assert_eq!(found, [&b"red"[..], b"green"]);
//!
//! let mut cursor = file.cursor(CursorOptions::default());
//! cursor.seek(b"b", Trailer::NEWEST)?;
//! assert_eq!((cursor.key(), cursor.value()), (&b"pear"[..], &b"yellow"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! The decoders ([`Footer::parse`], [`Properties::parse`], [`Index::parse`], [`parse_range_deletes`],
//! [`FilterShape::parse`], [`BlockShape::parse`], [`BlockCursor`], [`Decompressor::decompress`], [`open_block`],
//! [`parse_summary_directory`], [`parse_summary_page`]) take any bytes and are public for fuzzing and inspection.

mod block;
mod checksum;
mod columnar;
mod compression;
mod cursor;
mod fences;
mod filter;
mod footer;
mod get;
mod index;
mod level_cursor;
mod prefix_filter;
mod properties;
mod range_deletes;
mod reader;
mod run_cursor;
mod salvage;
mod summary;
mod verify;
mod warm;
mod writer;

pub use block::{BlockBuilder, BlockCursor, BlockShape, RawEntry};
pub use checksum::{BLOCK_TRAILER_LEN, MAX_BLOCK_LEN, block_seed, open_block, seal_block};
pub use columnar::{
    CellLookup, ColumnBlock, ColumnFigures, ColumnPart, ColumnPosition, ColumnStatistics, ColumnZones,
    DictionaryFigures, Directory, EncodedCursor, FileFigures, FileStatistics, KeyWindow, PageBytes, Pick, PlacedRow,
    Placement, RowCells, WantedColumns, ZoneMap, write_fragment,
};
pub use compression::{Compression, Decompressor};
pub use cursor::{CursorOptions, SstCursor};
pub use fences::{FenceList, FenceLists, Fences, SortedFiles};
pub use filter::{FileFilters, FilterBuilder, FilterShape, KeyBits};
pub use footer::{BlockHandle, ColumnarFormat, FOOTER_LEN, FORMAT_VERSION, Footer};
pub use get::GetScratch;
pub use index::{Index, IndexEntry, IndexShape};
pub use level_cursor::LevelCursor;
pub use prefix_filter::ScanPrefix;
pub use properties::Properties;
pub use range_deletes::{encode_range_deletes, parse_range_deletes};
pub use reader::{OpenOptions, SstFile};
pub use run_cursor::RunCursor;
pub use salvage::{FileStatement, LostKeys, Remains, Remnant};
pub use summary::{
    FileSummary, PAGE_BLOCKS, Summarizer, SummaryEntry, SummaryPage, SummaryPart, parse_summary_directory,
    parse_summary_page,
};
pub use verify::VerifySummary;
pub use warm::KeyInterval;
pub use writer::{SstSummary, SstWriter, SstWriterOptions, StageTimings, nanoseconds_since};
