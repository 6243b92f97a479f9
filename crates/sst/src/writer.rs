//! Writes a file.
//!
//! 1. `add` checks the order, notes the filter hashes of the key and of its prefixes (`prefix_filter`), and hands the
//!    entry to the block builder; when the block would exceed the block size it is finished first.
//! 2. A finished block is compressed, framed (kind, checksum) and appended to a buffer, and its index row is noted. The
//!    separator needs the next block's first key, so that the row waits for it.
//! 3. The buffer goes to the disk in pieces of at least 256 KiB, each added to the whole-file checksum; write-back is
//!    started every few MiB so that the final sync has little left to do.
//! 4. `finish` writes filter, index, range deletes, summaries, properties and footer, and syncs; `finish_unsynced`
//!    leaves the sync to the caller, who need not wait for the disk then.
//!
//! A columnar file's entries are gathered until `finish`, which writes its blocks and the parts of its columns
//! (`columnar`).
//!
//! No allocation per entry: all buffers are reused.

use std::sync::Arc;
use std::time::Instant;

use mycelium_base::hash::{FileChecksum, hash_key};
use mycelium_base::key_prefix::common_prefix;
use mycelium_base::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};
use mycelium_base::{Error, Group, MAX_SEQUENCE_NUMBER, Operation, RangeDelete, Result, SequenceNumber, Trailer};
use mycelium_encoding::{KeyPrefixes, PackedLayout, Schema};
use mycelium_vfs::WritableFile;

use crate::block::{BlockBuilder, BlockFacts, is_point_operation};
use crate::checksum::{BLOCK_TRAILER_LEN, seal_block};
use crate::columnar::{ColumnPart, ColumnarBuilder, Directory, FinishedColumns, Pick};
use crate::compression::{Compression, Compressor, STORED};
use crate::filter::FilterBuilder;
use crate::footer::{BlockHandle, FOOTER_LEN, Footer};
use crate::index::{IndexBuilder, IndexEntry};
use crate::prefix_filter::{BITS_WITHOUT_KEYS, PrefixHashes};
use crate::properties::Properties;
use crate::range_deletes::encode_range_deletes;
use crate::summary::{Summarizer, SummaryBuilder};

/// Appended to the disk at once, at least.
const WRITE_LEN: usize = 256 << 10;
/// Write-back is started after so many bytes.
const WRITEBACK_LEN: u64 = 4 << 20;
/// The largest block size that can be asked for.
pub(crate) const MAX_BLOCK_SIZE: usize = 64 << 20;

/// How a file is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SstWriterOptions {
    /// The file's number, which goes into every checksum.
    pub file_number: u64,
    /// Blocks are finished where their length, uncompressed, comes nearest to this many bytes.
    pub block_size: usize,
    /// Entries between two keys stored whole.
    pub restart_interval: usize,
    /// Compression of data blocks.
    pub compression: Compression,
    /// Bloom filter bits per distinct key; 0 for no keys in the filter.
    pub filter_bits_per_key: u32,
    /// The prefixes of keys that the filter gets, too: as many bits for each distinct one, or ten if there are no keys
    /// in the filter.
    pub prefixes: Option<KeyPrefixes>,
    /// What the entries say something of ([`Properties::marks`]), as the caller knows it.
    pub marks: Option<u64>,
    /// Bytes that a columnar file may hold in memory until it is complete: see [`SstWriter::is_full`].
    pub memory_limit: usize,
}

impl Default for SstWriterOptions {
    fn default() -> Self {
        Self {
            file_number: 0,
            block_size: 4096,
            restart_interval: 16,
            compression: Compression::None,
            filter_bits_per_key: 10,
            prefixes: None,
            marks: None,
            memory_limit: usize::MAX,
        }
    }
}

/// Where the time went, in nanoseconds. `add` itself is not timed, but for what it does once for many entries.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StageTimings {
    /// Laying blocks out and checksumming them.
    pub encode: u64,
    /// Compressing.
    pub compress: u64,
    /// Building the filter.
    pub filter: u64,
    /// Whole-file checksum, appends and the final sync.
    pub write: u64,
}

/// What was written: everything the manifest records of the file, and more.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SstSummary {
    /// The file's number.
    pub file_number: u64,
    /// The file's length in bytes.
    pub size: u64,
    /// XXH3-64 of the whole file.
    pub checksum: u64,
    /// The lower fence: the smallest key or start of a range delete.
    pub smallest: Vec<u8>,
    /// The upper fence: the largest key or end of a range delete.
    pub largest: Vec<u8>,
    /// Whether `largest` is the end of a range delete and thus outside itself.
    pub largest_exclusive: bool,
    /// The smallest sequence number, range deletes included.
    pub min_sequence: SequenceNumber,
    /// The largest.
    pub max_sequence: SequenceNumber,
    /// Entries, range deletes excluded.
    pub entry_count: u64,
    /// `Delete` entries among them.
    pub delete_count: u64,
    /// Range deletes.
    pub range_delete_count: u64,
    /// The column group that the file holds; `None` is whole rows.
    pub group: Option<Arc<Group>>,
    /// Data blocks.
    pub block_count: u64,
    /// Bytes of keys, uncompressed.
    pub raw_key_bytes: u64,
    /// Bytes of values, uncompressed.
    pub raw_value_bytes: u64,
    /// Bytes of data blocks on disk.
    pub data_bytes: u64,
    /// Bytes of the filter block on disk.
    pub filter_bytes: u64,
    /// Bytes of the index block on disk.
    pub index_bytes: u64,
    /// Bytes of the summaries on disk.
    pub summary_bytes: u64,
    /// Where the time went.
    pub timings: StageTimings,
}

/// Writes one file. Not shared; after an error it must be dropped and the file removed.
pub struct SstWriter {
    file: Box<dyn WritableFile>,
    options: SstWriterOptions,
    block: BlockBuilder,
    compressor: Compressor,
    scratch: Vec<u8>,
    /// Appended to the file when it is long enough.
    buffer: Vec<u8>,
    /// Bytes handed to the file.
    written: u64,
    written_back: u64,
    checksum: FileChecksum,
    last_key: Vec<u8>,
    last_trailer: Trailer,
    /// The last finished block, whose separator is not known yet. `last_key` is its last key.
    pending: Option<IndexEntry>,
    index: IndexBuilder,
    filter: FilterBuilder,
    prefixes: Option<PrefixHashes>,
    range_deletes: Vec<RangeDelete>,
    first_key: Option<Vec<u8>>,
    properties: Properties,
    /// The entries of a columnar file.
    columns: Option<ColumnarBuilder>,
    schema: Option<Arc<Schema>>,
    summaries: SummaryBuilder,
    sequences: Option<(SequenceNumber, SequenceNumber)>,
    /// What the file says of where it belongs.
    origin: Vec<u8>,
    timings: StageTimings,
}

impl std::fmt::Debug for SstWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SstWriter").field("options", &self.options).field("size", &self.estimated_size()).finish()
    }
}

/// What has passed since then, as [`StageTimings`] count it.
pub fn nanoseconds_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl StageTimings {
    /// All stages together.
    pub fn total(&self) -> u64 {
        self.encode + self.compress + self.filter + self.write
    }
}

impl SstWriter {
    /// Starts an empty file. Fails on options out of range.
    pub fn new(file: Box<dyn WritableFile>, options: SstWriterOptions) -> Result<Self> {
        if options.block_size == 0 || options.block_size > MAX_BLOCK_SIZE || options.restart_interval == 0 {
            return Err(Error::invalid("the block size is 1 byte to 64 MiB and the restart interval at least 1"));
        }
        let has_keys = options.filter_bits_per_key > 0;
        let filter_bits = match options.prefixes {
            Some(_) if !has_keys => BITS_WITHOUT_KEYS,
            _ => options.filter_bits_per_key,
        };
        Ok(Self {
            file,
            options,
            block: BlockBuilder::new(options.restart_interval),
            compressor: Compressor::new(options.compression)?,
            scratch: Vec::new(),
            buffer: Vec::with_capacity(WRITE_LEN + 2 * options.block_size.min(WRITE_LEN)),
            written: 0,
            written_back: 0,
            checksum: FileChecksum::default(),
            last_key: Vec::new(),
            last_trailer: Trailer::OLDEST,
            pending: None,
            index: IndexBuilder::default(),
            filter: FilterBuilder::new(filter_bits),
            prefixes: options.prefixes.map(|prefixes| PrefixHashes::new(prefixes, has_keys)),
            range_deletes: Vec::new(),
            first_key: None,
            properties: Properties { distinct_keys: true, ..Properties::default() },
            columns: None,
            schema: None,
            summaries: SummaryBuilder::default(),
            sequences: None,
            origin: Vec::new(),
            timings: StageTimings::default(),
        })
    }

    /// The file holds a column group, which its properties then name. A new file holds whole rows.
    #[must_use]
    pub fn with_group(mut self, group: Option<Arc<Group>>) -> Self {
        self.properties.group = group;
        self
    }

    /// The file holds columns: the group, which must be columnar, of a table with this schema. Values that are added
    /// are packed fragments of the group. To be called before anything is added.
    #[must_use]
    pub fn with_columns(mut self, group: Arc<Group>, schema: Arc<Schema>) -> Self {
        let layout = Arc::new(PackedLayout::of(schema.clone(), &group.columns));
        self.columns =
            Some(ColumnarBuilder::new(layout, &group.columns, self.options.block_size, self.options.memory_limit));
        self.schema = Some(schema);
        self.with_group(Some(group))
    }

    /// The file gets a summary of each of these. To be called before anything is added.
    #[must_use]
    pub fn with_summarizers(mut self, summarizers: Vec<Box<dyn Summarizer>>) -> Self {
        self.summaries = SummaryBuilder::new(summarizers);
        self
    }

    /// The file says where it belongs: in bytes of the caller's, which [`FileStatement`](crate::FileStatement) gives
    /// back.
    #[must_use]
    pub fn with_origin(mut self, origin: Vec<u8>) -> Self {
        self.origin = origin;
        self
    }

    /// Appends an entry, which must come after all added before (key ascending, then newest first). Range deletes go to
    /// [`SstWriter::add_range_delete`].
    #[inline]
    pub fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        let shared = common_prefix(&self.last_key, key);
        let same_key = self.is_last_key(key, shared);
        self.check(key, trailer, value, shared, same_key)?;
        if self.columns.is_some() {
            self.add_to_columns(key, trailer, value)?;
        } else {
            self.properties.raw_value_bytes += value.len() as u64;
            if self.ends_block(key.len() - shared, value.len()) {
                self.finish_block()?;
            }
            if self.pending.is_some() {
                self.note_separator(Some(key));
            }
            self.block.add(key, shared, same_key, trailer, value);
        }
        if !self.summaries.is_empty() {
            self.summaries.add(key, same_key, trailer, value);
        }
        self.note_entry(key, trailer, shared, same_key);
        Ok(())
    }

    /// Whether entries may come by [`SstWriter::add_cells`]: into a columnar file without summaries, which need the
    /// values.
    #[inline]
    pub fn takes_cells(&self) -> bool {
        self.columns.is_some() && self.summaries.is_empty()
    }

    /// As [`SstWriter::add`] with the fragment that a row of a columnar block gives, which is not made: the cells are
    /// taken as they are. The block is one of a file with the columns of this one
    /// ([`SstFile::has_columns`](crate::SstFile::has_columns)); the rows of a block come in order. Only where
    /// [`SstWriter::takes_cells`] says so.
    ///
    /// # Errors
    /// As [`SstWriter::add`]; `ErrorKind::Corruption` where a cell that was added is malformed.
    #[inline]
    pub fn add_cells(&mut self, key: &[u8], trailer: Trailer, pick: Pick<'_>) -> Result<()> {
        let shared = common_prefix(&self.last_key, key);
        let same_key = self.is_last_key(key, shared);
        self.check(key, trailer, &[], shared, same_key)?;
        let columns = self.columns.as_mut().filter(|_| self.summaries.is_empty());
        let columns = columns.ok_or_else(|| Error::invalid("cells go into columnar files without summaries"))?;
        if columns.add_cells(key, trailer, pick)? {
            self.gather()?;
        }
        self.note_entry(key, trailer, shared, same_key);
        Ok(())
    }

    /// Adds an entry to the columns: among those whose cells are to be gathered, if there are such.
    fn add_to_columns(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        let Some(columns) = &mut self.columns else { return Ok(()) };
        // Summaries have to know of each entry in which block it is.
        if columns.has_picks() || self.summaries.is_empty() {
            return if columns.add_among_cells(key, trailer, value)? { self.gather() } else { Ok(()) };
        }
        self.properties.raw_value_bytes += value.len() as u64;
        if columns.ends_block(key.len() + value.len()) {
            self.end_columnar_block()?;
        }
        self.columns.as_mut().map_or(Ok(()), |columns| columns.add(key, trailer, value))
    }

    /// Gathers the cells of the entries picked, if there are any.
    fn gather(&mut self) -> Result<()> {
        let Some(columns) = self.columns.as_mut().filter(|columns| columns.has_picks()) else { return Ok(()) };
        let started = Instant::now();
        self.properties.raw_value_bytes += columns.gather()?;
        self.timings.encode += nanoseconds_since(started);
        Ok(())
    }

    /// Ends the block of columns, if it has an entry.
    fn end_columnar_block(&mut self) -> Result<()> {
        let Some(columns) = &mut self.columns else { return Ok(()) };
        let started = Instant::now();
        let ended = columns.end_block()?;
        self.timings.encode += nanoseconds_since(started);
        if let Some(bytes) = ended.filter(|_| !self.summaries.is_empty()) {
            self.summaries.end_block(bytes);
        }
        Ok(())
    }

    /// Whether a key, which shares so many bytes with the one added last, is the same.
    #[inline]
    fn is_last_key(&self, key: &[u8], shared: usize) -> bool {
        shared == key.len() && shared == self.last_key.len() && self.first_key.is_some()
    }

    /// Counts an entry that was added, and remembers its key.
    #[inline]
    fn note_entry(&mut self, key: &[u8], trailer: Trailer, shared: usize, same_key: bool) {
        if !same_key && self.options.filter_bits_per_key > 0 {
            self.filter.add(hash_key(key));
        }
        if let Some(prefixes) = self.prefixes.as_mut().filter(|_| !same_key) {
            prefixes.add(key, shared, &mut self.filter);
        }
        self.properties.entry_count += 1;
        self.properties.delete_count += u64::from(trailer.operation() == Operation::Delete);
        self.properties.distinct_keys &= !same_key;
        self.properties.raw_key_bytes += key.len() as u64;
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
        self.last_trailer = trailer;
    }

    /// Checks order and limits.
    #[inline]
    fn check(&mut self, key: &[u8], trailer: Trailer, value: &[u8], shared: usize, same_key: bool) -> Result<()> {
        if self.first_key.is_none() {
            self.first_key = Some(key.to_vec());
        } else {
            let ascending = match (key.get(shared), self.last_key.get(shared)) {
                (Some(new), Some(last)) => new > last,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => same_key && trailer < self.last_trailer,
            };
            if !ascending {
                return Err(Error::invalid("entries must be added in order: key ascending, then newest first"));
            }
        }
        if key.len() > MAX_KEY_LEN || value.len() > MAX_VALUE_LEN {
            return Err(Error::invalid("key or value too long"));
        }
        match Trailer::from_u64(trailer.to_u64()) {
            Some(trailer) if is_point_operation(trailer.operation()) => Ok(()),
            _ => Err(Error::invalid("an entry is a put, patch, merge or delete")),
        }
    }

    /// Adds a range delete, in any order. One that covers nothing (`start >= end`) is left out.
    pub fn add_range_delete(&mut self, delete: &RangeDelete) -> Result<()> {
        if delete.start.len() > MAX_KEY_LEN || delete.end.len() > MAX_KEY_LEN || delete.sequence > MAX_SEQUENCE_NUMBER {
            return Err(Error::invalid("range delete out of limits"));
        }
        if delete.start < delete.end {
            self.range_deletes.push(delete.clone());
        }
        Ok(())
    }

    /// Bytes of the data blocks so far, the unfinished one included, of filter and index at most, and of summaries.
    #[inline]
    pub fn estimated_size(&self) -> u64 {
        self.offset()
            + self.block.len() as u64
            + self.filter.estimated_len()
            + (self.index.estimated_len() + self.summaries.estimated_len()) as u64
            + self.columns.as_ref().map_or(0, ColumnarBuilder::estimated_bytes)
    }

    /// Bytes of columns that are held until the file is complete, as of its last block. 0 for a file of rows, which
    /// holds a block. O(1).
    #[inline]
    pub fn memory_usage(&self) -> usize {
        self.columns.as_ref().map_or(0, ColumnarBuilder::memory_usage)
    }

    /// Whether the file should be finished whatever its size, since it holds as much as it may. What is added
    /// nevertheless is written. O(1).
    #[inline]
    pub fn is_full(&self) -> bool {
        self.columns.as_ref().is_some_and(ColumnarBuilder::is_full)
    }

    /// Where the time went so far.
    pub fn timings(&self) -> StageTimings {
        self.timings
    }

    /// Entries added so far.
    pub fn entry_count(&self) -> u64 {
        self.properties.entry_count
    }

    /// Whether neither an entry nor a range delete was added: such a file cannot be finished.
    pub fn is_empty(&self) -> bool {
        self.first_key.is_none() && self.range_deletes.is_empty()
    }

    /// The key added last, if any.
    #[inline]
    pub fn last_key(&self) -> Option<&[u8]> {
        self.first_key.as_ref().map(|_| self.last_key.as_slice())
    }

    /// The offset at which the next block will lie.
    #[inline]
    fn offset(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Whether the block is to be finished before an entry: with it, it would be further from its intended length.
    #[inline]
    fn ends_block(&self, unshared: usize, value_len: usize) -> bool {
        let wanted = self.options.block_size;
        let over = self.block.len_with(unshared, value_len).saturating_sub(wanted);
        over > 0 && !self.block.is_empty() && over > wanted.saturating_sub(self.block.len())
    }

    fn finish_block(&mut self) -> Result<()> {
        let mut block = std::mem::replace(&mut self.block, BlockBuilder::new(self.options.restart_interval));
        let len = self.put_block(|out| Ok(block.finish(out)))?;
        self.block = block;
        if !self.summaries.is_empty() {
            self.summaries.end_block(len);
        }
        Ok(())
    }

    /// Appends the block that `encode` appends to a buffer, framed; its length. Its separator is not known yet.
    #[inline]
    fn put_block(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> Result<BlockFacts>) -> Result<u64> {
        let started = Instant::now();
        let offset = self.offset();
        let start = self.buffer.len();
        let mut kind = STORED;
        let mut compress = 0;
        let facts = if self.compressor.is_stored() {
            encode(&mut self.buffer)?
        } else {
            self.scratch.clear();
            let facts = encode(&mut self.scratch)?;
            let before = Instant::now();
            let (compressed_kind, bytes) = self.compressor.compress(&self.scratch)?;
            kind = compressed_kind;
            self.buffer.extend_from_slice(bytes);
            compress = nanoseconds_since(before);
            facts
        };
        seal_block(&mut self.buffer, start, kind, self.options.file_number, offset);
        let len = self.offset() - offset;
        let BlockFacts { rows: entry_count, min_sequence, max_sequence, .. } = facts;
        self.pending = Some(IndexEntry { offset, len, min_sequence, max_sequence, entry_count });
        self.note_sequences(min_sequence, max_sequence);
        self.timings.compress += compress;
        self.timings.encode += nanoseconds_since(started) - compress;
        if self.buffer.len() >= WRITE_LEN {
            self.write_buffer()?;
        }
        Ok(len)
    }

    /// Writes the blocks of a columnar file, whose entries are all there.
    fn put_columnar_blocks(&mut self) -> Result<Option<FinishedColumns>> {
        self.gather()?;
        self.end_columnar_block()?;
        let Some(columns) = self.columns.take() else { return Ok(None) };
        let started = Instant::now();
        let mut columns = columns.finish();
        self.timings.encode += nanoseconds_since(started);
        for block in 0..columns.block_count() {
            self.put_block(|out| columns.encode(block, out))?;
            if block + 1 < columns.block_count()
                && let Some(pending) = self.pending.take()
            {
                self.index.push(pending, columns.last_key(block), Some(columns.first_key(block + 1)));
            }
        }
        Ok(Some(columns))
    }

    /// Writes the codings of texts, zone maps, statistics and directory of a columnar file.
    fn put_columns(&mut self, columns: Option<FinishedColumns>) -> Result<BlockHandle> {
        let (Some(mut columns), Some(schema), Some(group)) =
            (columns, self.schema.clone(), self.properties.group.clone())
        else {
            return Ok(BlockHandle::default());
        };
        let kinds = group.columns.iter().map(|column| &schema.columns()[column].ty);
        let statistics = columns.statistics(kinds)?;
        self.properties.statistics = self.put_part(&statistics)?;
        let mut parts = Vec::with_capacity(group.columns.len());
        for (column, (coding, zones)) in group.columns.iter().zip(columns.into_parts()?) {
            self.scratch.clear();
            if let Some(coding) = coding {
                coding.encode(&mut self.scratch);
            }
            let payload = std::mem::take(&mut self.scratch);
            let coding = self.put_part(&payload)?;
            self.scratch = payload;
            let kind = schema.columns()[column].ty.clone();
            parts.push(ColumnPart { column, kind, coding, zones: self.put_part(&zones)? });
        }
        self.put_part(&Directory { schema, parts }.encode())
    }

    fn note_separator(&mut self, next_key: Option<&[u8]>) {
        if let Some(block) = self.pending.take() {
            self.index.push(block, &self.last_key, next_key);
        }
    }

    fn note_sequences(&mut self, min: SequenceNumber, max: SequenceNumber) {
        let (least, most) = self.sequences.unwrap_or((min, max));
        self.sequences = Some((least.min(min), most.max(max)));
    }

    fn write_buffer(&mut self) -> Result<()> {
        let started = Instant::now();
        self.checksum.update(&self.buffer);
        self.file.append(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        if self.written - self.written_back >= WRITEBACK_LEN {
            self.written_back = self.written;
            self.file.start_writeback();
        }
        self.timings.write += nanoseconds_since(started);
        Ok(())
    }

    /// Appends a part that is not compressed; nothing for an empty one.
    fn put_part(&mut self, payload: &[u8]) -> Result<BlockHandle> {
        let offset = self.offset();
        if payload.is_empty() {
            return Ok(BlockHandle { offset: 0, len: 0 });
        }
        let start = self.buffer.len();
        self.buffer.reserve(payload.len() + BLOCK_TRAILER_LEN);
        self.buffer.extend_from_slice(payload);
        seal_block(&mut self.buffer, start, STORED, self.options.file_number, offset);
        let len = self.offset() - offset;
        if self.buffer.len() >= WRITE_LEN {
            self.write_buffer()?;
        }
        Ok(BlockHandle { offset, len })
    }

    /// Completes the file and syncs it. Fails if nothing was added.
    pub fn finish(self) -> Result<SstSummary> {
        let (mut summary, mut file) = self.finish_unsynced()?;
        let started = Instant::now();
        file.sync()?;
        summary.timings.write += nanoseconds_since(started);
        Ok(summary)
    }

    /// Completes the file and has the system write it back, without waiting: it is durable once the caller has synced
    /// it. Fails if nothing was added.
    pub fn finish_unsynced(mut self) -> Result<(SstSummary, Box<dyn WritableFile>)> {
        if self.is_empty() {
            return Err(Error::invalid("an SST needs at least one entry or range delete"));
        }
        let columns = self.put_columnar_blocks()?;
        if !self.block.is_empty() {
            self.finish_block()?;
        }
        self.note_separator(None);
        let data_bytes = self.offset();
        let started = Instant::now();
        let filter = self.filter.finish();
        self.timings.filter = nanoseconds_since(started);
        let filter = self.put_part(&filter)?;
        let index = self.put_part(&self.index.encode(data_bytes)?)?;
        let range_deletes = self.put_range_deletes()?;
        let columnar = columns.as_ref().map(FinishedColumns::format);
        self.properties.columns = self.put_columns(columns)?;
        let pages_at = self.offset();
        let summaries = self.put_summaries()?;
        let summary_bytes = self.offset() - pages_at;
        self.complete_properties();
        let properties = self.properties.encode_with_origin(&self.origin);
        let properties = self.put_part(&properties)?;
        let file_number = self.options.file_number;
        let footer = Footer { filter, index, range_deletes, summaries, properties, file_number, columnar };
        self.buffer.extend_from_slice(&footer.encode(self.offset()));
        self.write_buffer()?;
        let started = Instant::now();
        self.file.start_writeback();
        self.timings.write += nanoseconds_since(started);
        let (summary, file) = self.into_summary(data_bytes, &footer);
        Ok((SstSummary { summary_bytes, ..summary }, file))
    }

    fn put_summaries(&mut self) -> Result<BlockHandle> {
        let summaries = std::mem::take(&mut self.summaries);
        // Of range deletes alone there is nothing to sum up.
        if summaries.is_empty() || self.index.block_count() == 0 {
            return Ok(BlockHandle::default());
        }
        summaries.finish(|part| self.put_part(part))
    }

    fn put_range_deletes(&mut self) -> Result<BlockHandle> {
        self.range_deletes.sort_unstable();
        self.range_deletes.dedup();
        if self.range_deletes.is_empty() {
            return Ok(BlockHandle::default());
        }
        let payload = encode_range_deletes(&self.range_deletes);
        self.put_part(&payload)
    }

    fn complete_properties(&mut self) {
        let range = self.range_deletes.iter().map(|delete| delete.sequence);
        if let (Some(min), Some(max)) = (range.clone().min(), range.max()) {
            self.note_sequences(min, max);
        }
        let (min_sequence, max_sequence) = self.sequences.unwrap_or_default();
        let first_start = self.range_deletes.first().map(|delete| delete.start.as_slice());
        let smallest = [self.first_key.as_deref(), first_start].into_iter().flatten().min().unwrap_or_default();
        let last_end = self.range_deletes.iter().map(|delete| delete.end.as_slice()).max();
        let largest_exclusive = last_end.is_some_and(|end| self.first_key.is_none() || end > self.last_key.as_slice());
        let largest = last_end.filter(|_| largest_exclusive).unwrap_or(&self.last_key);
        let (smallest, largest) = (smallest.to_vec(), largest.to_vec());
        let properties = &mut self.properties;
        (properties.smallest, properties.largest, properties.largest_exclusive) =
            (smallest, largest, largest_exclusive);
        (properties.min_sequence, properties.max_sequence) = (min_sequence, max_sequence);
        properties.range_delete_count = self.range_deletes.len() as u64;
        properties.block_count = self.index.block_count() as u64;
        properties.filter_bits_per_key = u64::from(self.options.filter_bits_per_key);
        properties.prefixes = self.options.prefixes;
        properties.filter_lacks_keys = self.options.prefixes.is_some() && self.options.filter_bits_per_key == 0;
        properties.marks = self.options.marks;
        properties.block_size = self.options.block_size as u64;
        properties.restart_interval = self.options.restart_interval as u64;
        properties.compression = self.options.compression.name();
    }

    /// The summary, and the file.
    fn into_summary(self, data_bytes: u64, footer: &Footer) -> (SstSummary, Box<dyn WritableFile>) {
        debug_assert!(self.written >= FOOTER_LEN as u64);
        let properties = self.properties;
        let summary = SstSummary {
            file_number: self.options.file_number,
            size: self.written,
            checksum: self.checksum.value(),
            smallest: properties.smallest,
            largest: properties.largest,
            largest_exclusive: properties.largest_exclusive,
            min_sequence: properties.min_sequence,
            max_sequence: properties.max_sequence,
            entry_count: properties.entry_count,
            delete_count: properties.delete_count,
            range_delete_count: properties.range_delete_count,
            group: properties.group,
            block_count: properties.block_count,
            raw_key_bytes: properties.raw_key_bytes,
            raw_value_bytes: properties.raw_value_bytes,
            data_bytes,
            filter_bytes: footer.filter.len,
            index_bytes: footer.index.len,
            summary_bytes: 0,
            timings: self.timings,
        };
        (summary, self.file)
    }
}
