//! An open file: its parts in memory, its blocks through the cache.
//!
//! Opening:
//! 1. Read the last 32 KiB: the footer, and mostly the properties and range deletes with it.
//! 2. Parse footer, properties, range deletes; read, check and parse index and filter.
//! 3. Of a columnar file, the directory of its columns and the codings of their texts, too.
//! 4. If the cache grants a reservation for index, filter and codings they stay resident, and a columnar file has slots
//!    for its blocks; else they are cached like any block and read again when they were evicted.
//!
//! Nothing read is used before its checksum matched, and no position taken from it is used without a bounds check.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mycelium_base::hash::hash_key;
use mycelium_base::{Error, GroupFormat, RangeDelete, RangeDeleteSet, ReadCounters, Result, SequenceNumber};
use mycelium_cache::{BlockCache, BlockKind, BlockSlots, CacheKey, Reservation};
use mycelium_vfs::ReadableFile;

use crate::block::BlockBuffer;
use crate::checksum::{BLOCK_TRAILER_LEN, open_block};
use crate::columnar::{Directory, FileColumns, HeadedBlock};
use crate::compression::{Compression, Decompressor, STORED, exclusive, zeroed};
use crate::filter::{AlignedBlock, FileFilters, FilterShape, KeyBits};
use crate::footer::{BlockHandle, FOOTER_LEN, Footer};
use crate::index::{Index, IndexEntry, IndexShape};
use crate::prefix_filter::ScanPrefix;
use crate::properties::{Properties, origin_in};
use crate::range_deletes::parse_range_deletes;

/// How a file is opened.
#[derive(Default, Clone, Debug)]
pub struct OpenOptions {
    /// Takes the place of all sequence numbers in the file, which must be 0: a file ingested as a whole.
    pub sequence_override: Option<SequenceNumber>,
    /// The file's length, if known; another length is corruption.
    pub expected_size: Option<u64>,
    /// The XXH3-64 of the whole file, if known; checked by [`SstFile::verify`] only.
    pub expected_checksum: Option<u64>,
}

/// An open SST. Shared by all threads; reads take no lock of their own.
///
/// Its fences, filters and sequence range are for the caller to consult first, cheapest first: see
/// [`SstFile::min_sequence`], [`SstFile::properties`], [`SstFile::may_contain`].
#[derive(Debug)]
pub struct SstFile {
    pub(crate) file: Arc<dyn ReadableFile>,
    pub(crate) path: PathBuf,
    pub(crate) number: u64,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) footer: Footer,
    pub(crate) options: OpenOptions,
    properties: Properties,
    /// Whether blocks are compressed, but for those that did not shrink.
    is_compressed: bool,
    index_shape: IndexShape,
    /// `None`: cached, or read again.
    pub(crate) index: Option<Arc<[u8]>>,
    filter_shape: Option<FilterShape>,
    filter: Option<AlignedBlock>,
    range_deletes: Arc<RangeDeleteSet>,
    reservation: Option<Reservation>,
    /// Of a columnar file.
    pub(crate) columns: Option<Box<FileColumns>>,
    /// Whether a data block was ever cached.
    was_cached: AtomicBool,
    /// Of a columnar file whose index is resident: a row lies in several such files, whose blocks are looked up at
    /// once.
    pub(crate) slots: Option<Arc<BlockSlots<HeadedBlock>>>,
}

/// Read at once at the end of a file when it is opened.
const TAIL_LEN: u64 = 32 << 10;

/// The parts being read while a file is opened.
pub(crate) struct Opening {
    file: Arc<dyn ReadableFile>,
    path: PathBuf,
    number: u64,
    tail: Vec<u8>,
    tail_offset: u64,
}

/// The parts of a file that is about to be open.
pub(crate) struct Parts {
    pub(crate) footer: Footer,
    pub(crate) properties: Properties,
    pub(crate) range_deletes: Vec<RangeDelete>,
    /// Framed.
    pub(crate) index: Arc<[u8]>,
    pub(crate) index_shape: IndexShape,
    pub(crate) filter: Option<(FilterShape, AlignedBlock)>,
    pub(crate) columns: Option<FileColumns>,
}

impl Opening {
    pub(crate) fn start(
        file: Arc<dyn ReadableFile>,
        path: &Path,
        number: u64,
        expected_size: Option<u64>,
    ) -> Result<Self> {
        let len = file.len();
        let wrong_len = expected_size.filter(|&expected| expected != len);
        let expected = wrong_len.unwrap_or(FOOTER_LEN as u64);
        if wrong_len.is_some() || len < FOOTER_LEN as u64 {
            let error = Error::corruption("the file has another length").at(len.min(expected));
            return Err(error.expected(expected, len).in_file(path));
        }
        let tail_offset = len.saturating_sub(TAIL_LEN);
        let mut tail = vec![0; (len - tail_offset) as usize];
        file.read_at(tail_offset, &mut tail).map_err(|e| e.in_file(path))?;
        Ok(Self { file, path: path.to_path_buf(), number, tail, tail_offset })
    }

    pub(crate) fn footer(&self) -> Result<Footer> {
        let start = self.tail.len() - FOOTER_LEN;
        let offset = self.tail_offset + start as u64;
        Footer::parse(&self.tail[start..], self.number, offset).map_err(|e| e.in_file(&self.path))
    }

    /// Whether the footer is what was written, if perhaps by a newer version.
    pub(crate) fn has_whole_footer(&self) -> bool {
        let start = self.tail.len() - FOOTER_LEN;
        Footer::is_whole(&self.tail[start..], self.number, self.tail_offset + start as u64)
    }

    pub(crate) fn properties(&self, footer: &Footer) -> Result<Properties> {
        let framed = self.read(footer.properties)?;
        self.parsed("properties", footer.properties, Properties::parse(payload_of(&framed)))
    }

    /// The properties, and the origin if the file has one.
    pub(crate) fn statement(&self, footer: &Footer) -> Result<(Properties, Option<Vec<u8>>)> {
        let framed = self.read(footer.properties)?;
        let payload = payload_of(&framed);
        let parsed = Properties::parse(payload).and_then(|properties| Ok((properties, origin_in(payload)?)));
        let (properties, origin) = self.parsed("properties", footer.properties, parsed)?;
        Ok((properties, origin.map(<[u8]>::to_vec)))
    }

    /// The index, framed.
    pub(crate) fn index(&self, footer: &Footer) -> Result<(Arc<[u8]>, IndexShape)> {
        let framed = self.read(footer.index)?;
        let parsed = Index::parse(payload_of(&framed), footer.data_end());
        let shape = self.parsed("index", footer.index, parsed)?.shape();
        Ok((framed, shape))
    }

    /// Fills `framed` with a part and checks it.
    fn fill(&self, part: BlockHandle, framed: &mut [u8]) -> Result<()> {
        let in_tail = part.offset.checked_sub(self.tail_offset).and_then(|from| {
            let from = usize::try_from(from).ok()?;
            self.tail.get(from..from + framed.len())
        });
        match in_tail {
            Some(bytes) => framed.copy_from_slice(bytes),
            None => self.file.read_at(part.offset, framed).map_err(|e| e.in_file(&self.path))?,
        }
        check_stored(framed, self.number, part.offset).map_err(|e| e.in_file(&self.path))
    }

    fn read(&self, part: BlockHandle) -> Result<Arc<[u8]>> {
        let mut framed = zeroed(part_len(part, &self.path)?);
        self.fill(part, exclusive(&mut framed))?;
        Ok(framed)
    }

    fn parsed<T>(&self, what: &str, part: BlockHandle, result: Result<T>) -> Result<T> {
        result.map_err(|e| malformed_part(&self.path, what, part.offset, e))
    }
}

fn part_len(part: BlockHandle, path: &Path) -> Result<usize> {
    usize::try_from(part.len).map_err(|_| Error::corruption("part too long").at(part.offset).in_file(path))
}

/// Checks a framed block that must not be compressed.
fn check_stored(framed: &[u8], number: u64, offset: u64) -> Result<()> {
    match open_block(framed, number, offset)? {
        (_, STORED) => Ok(()),
        (_, kind) => Err(Error::corruption("a part of the file is compressed").at(offset).expected(STORED, kind)),
    }
}

/// The error of a part that does not parse: `cause` counts offsets within the part.
#[cold]
pub(crate) fn malformed_part(path: &Path, what: &str, offset: u64, cause: Error) -> Error {
    if cause.file().is_some() {
        return cause;
    }
    Error::new(cause.kind(), format!("cannot use the {what}")).at(offset).in_file(path).caused_by(cause)
}

/// A framed block without its frame.
#[inline]
pub(crate) fn payload_of(framed: &[u8]) -> &[u8] {
    framed.get(..framed.len().wrapping_sub(BLOCK_TRAILER_LEN)).unwrap_or_default()
}

impl SstFile {
    /// Opens file number `file_number`. `path` is for errors only. Reads and checks footer, properties, range deletes,
    /// index and filter; a file of another number or an incomplete one is corruption.
    pub fn open(
        file: Arc<dyn ReadableFile>,
        path: &Path,
        file_number: u64,
        cache: Arc<BlockCache>,
        options: OpenOptions,
    ) -> Result<Arc<Self>> {
        let opening = Opening::start(file, path, file_number, options.expected_size)?;
        let footer = opening.footer()?;
        let properties = opening.properties(&footer)?;
        if options.sequence_override.is_some() && properties.max_sequence != 0 {
            return Err(Error::corruption("sequence numbers in a file that is to have none")
                .at(footer.properties.offset)
                .in_file(path)
                .expected(0, properties.max_sequence));
        }
        let range_deletes = read_range_deletes(&opening, &footer, &properties, &options)?;
        let (index, index_shape) = opening.index(&footer)?;
        if index_shape.block_count() as u64 != properties.block_count {
            let error = Error::corruption("the index has another number of blocks").at(footer.index.offset);
            return Err(error.expected(properties.block_count, index_shape.block_count()).in_file(path));
        }
        let filter = read_filter(&opening, footer.filter)?;
        let columns = read_columns(&opening, &footer, &properties)?;
        let parts = Parts { footer, properties, range_deletes, index, index_shape, filter, columns };
        Self::assemble(opening, parts, cache, options)
    }

    /// The file that these parts make up.
    pub(crate) fn assemble(
        opening: Opening,
        parts: Parts,
        cache: Arc<BlockCache>,
        options: OpenOptions,
    ) -> Result<Arc<Self>> {
        let Parts { footer, properties, range_deletes, index, index_shape, filter, columns } = parts;
        let columns = columns.map(Box::new);
        let range_deletes = Arc::new(RangeDeleteSet::new(&range_deletes));
        let coding_bytes = columns.as_ref().map_or(0, |columns| columns.coding_bytes());
        let slot_count = columns.as_ref().map_or(0, |_| index_shape.block_count());
        let piece_len = columns.as_ref().map_or(0, |columns| HeadedBlock::piece_len(columns.parts().len()));
        let slot_bytes = slot_count as u64 * BlockSlots::<HeadedBlock>::SLOT_LEN;
        let reservation = cache.reserve(footer.index.len + footer.filter.len + coding_bytes + slot_bytes);
        let (filter_shape, filter) = filter.unzip();
        let Opening { file, path, number, .. } = opening;
        let is_compressed = properties.compression != Compression::None.name();
        let mut sst = Self {
            file,
            path,
            number,
            cache,
            footer,
            options,
            properties,
            is_compressed,
            index_shape,
            index: None,
            filter_shape,
            filter: None,
            range_deletes,
            reservation,
            columns,
            was_cached: AtomicBool::new(false),
            slots: None,
        };
        if sst.reservation.is_some() {
            sst.keep_codings()?;
            sst.slots = (slot_count > 0).then(|| BlockSlots::new(slot_count, piece_len));
            (sst.index, sst.filter) = (Some(index), filter);
        } else {
            sst.cache.insert(sst.cache_key(footer.index.offset), index, BlockKind::Index);
            if let Some(filter) = filter {
                sst.cache.insert(sst.cache_key(footer.filter.offset), filter.shared().clone(), BlockKind::Filter);
            }
        }
        Ok(Arc::new(sst))
    }

    /// Whether its blocks are columnar.
    #[inline]
    pub fn is_columnar(&self) -> bool {
        self.columns.is_some()
    }

    /// The file's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Bytes that its cache could take now without evicting anything, about.
    pub fn cache_room(&self) -> u64 {
        self.cache.room()
    }

    /// What was derived from its blocks and kept in the cache under this name, if it is there: bytes that begin with
    /// this identity, which says of what they were made.
    pub fn derived(&self, name: &[u8], identity: &[u8]) -> Option<Arc<[u8]>> {
        self.cache.get(self.derived_key(name)).filter(|bytes| bytes.starts_with(identity))
    }

    /// Keeps such bytes, which begin with their identity, in the cache in the place of what has the name, as long as
    /// others are not wanted more.
    pub fn keep_derived(&self, name: &[u8], bytes: Arc<[u8]>) {
        self.cache.insert(self.derived_key(name), bytes, BlockKind::Index);
    }

    /// Offsets of blocks are below; there may be another with the same.
    fn derived_key(&self, name: &[u8]) -> CacheKey {
        self.cache_key(hash_key(name) | 1 << 63)
    }

    /// The file's path, as in errors.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file itself, to be copied: it can be read as long as it is held, also when its name is gone.
    pub fn file(&self) -> &Arc<dyn ReadableFile> {
        &self.file
    }

    /// The file's length in bytes.
    pub fn size(&self) -> u64 {
        self.file.len()
    }

    /// What the file says about itself, as stored (without the sequence override).
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The smallest sequence number of the file's entries and range deletes: a read at a snapshot below it sees
    /// nothing.
    pub fn min_sequence(&self) -> SequenceNumber {
        self.options.sequence_override.unwrap_or(self.properties.min_sequence)
    }

    /// The largest.
    pub fn max_sequence(&self) -> SequenceNumber {
        self.options.sequence_override.unwrap_or(self.properties.max_sequence)
    }

    /// The lower fence.
    pub fn smallest(&self) -> &[u8] {
        &self.properties.smallest
    }

    /// The upper fence; see [`Properties::largest_exclusive`].
    pub fn largest(&self) -> &[u8] {
        &self.properties.largest
    }

    /// Whether all that the file holds lies before `key`.
    #[inline]
    pub fn ends_before(&self, key: &[u8]) -> bool {
        let Properties { largest, largest_exclusive, .. } = &self.properties;
        largest.as_slice() < key || (*largest_exclusive && largest == key)
    }

    /// The file's range deletes.
    pub fn range_deletes(&self) -> &Arc<RangeDeleteSet> {
        &self.range_deletes
    }

    /// Bytes of index, filter, dictionaries and slots kept in memory for this file (0 if they go through the cache).
    pub fn resident_bytes(&self) -> u64 {
        self.reservation.as_ref().map_or(0, Reservation::bytes)
    }

    /// The number of data blocks.
    pub fn block_count(&self) -> usize {
        self.index_shape.block_count()
    }

    /// What a lookup asks before it looks at the file itself, to be kept beside that of other files.
    pub fn filters(&self) -> FileFilters {
        let bloom = self.filter.clone().zip(self.filter_shape).filter(|_| !self.properties.filter_lacks_keys);
        FileFilters::new(bloom, self.min_sequence(), !self.range_deletes.is_empty())
    }

    /// Whether the file may hold entries of the key with this hash (see [`mycelium_base::hash::hash_key`]). `true` if
    /// there is no filter of keys, or it cannot be read, or it is neither resident nor small enough to be cached. Range
    /// deletes are not in the filter.
    #[inline]
    pub fn may_contain(&self, key_hash: u64) -> bool {
        self.properties.filter_lacks_keys || self.filter_may_contain(&mut KeyBits::new(key_hash))
    }

    /// Whether the file may hold entries within the bounds of a scan, as far as its filter knows their prefix. `true`
    /// if it knows none, as [`SstFile::may_contain`]. Range deletes are not in the filter.
    #[inline]
    pub fn may_contain_any(&self, scan: &mut ScanPrefix<'_>) -> bool {
        let Some(prefixes) = &self.properties.prefixes else { return true };
        scan.bits_of(prefixes).is_none_or(|bits| self.filter_may_contain(bits))
    }

    /// Whether the filter has all prefixes of a key that it is said to have.
    pub(crate) fn has_prefixes_of(&self, key: &[u8]) -> bool {
        let prefixes = self.properties.prefixes.as_ref();
        let mut ends = prefixes.into_iter().flat_map(|prefixes| prefixes.ends(key));
        ends.all(|end| self.filter_may_contain(&mut KeyBits::new(hash_key(&key[..end]))))
    }

    #[inline]
    fn filter_may_contain(&self, bits: &mut KeyBits) -> bool {
        match (&self.filter_shape, &self.filter) {
            (None, _) => true,
            (Some(shape), Some(filter)) => shape.may_contain(filter.bytes(), bits),
            (Some(shape), None) => self.may_contain_by_cache(shape, bits),
        }
    }

    #[cold]
    fn may_contain_by_cache(&self, shape: &FilterShape, bits: &mut KeyBits) -> bool {
        let part = self.footer.filter;
        if part.len >= self.cache.largest_block() {
            return true;
        }
        let key = self.cache_key(part.offset);
        let block = match self.cache.get(key) {
            Some(bytes) => AlignedBlock::of(bytes),
            None => match self.read_filter_again(part) {
                Ok(block) => {
                    self.cache.insert(key, block.shared().clone(), BlockKind::Filter);
                    block
                }
                Err(_) => return true,
            },
        };
        shape.may_contain(block.bytes(), bits)
    }

    fn read_filter_again(&self, part: BlockHandle) -> Result<AlignedBlock> {
        let len = part_len(part, &self.path)?;
        let mut block = AlignedBlock::zeroed(len);
        let framed = &mut block.fill()[..len];
        self.file.read_at(part.offset, framed).map_err(|e| e.in_file(&self.path))?;
        check_stored(framed, self.number, part.offset).map_err(|e| e.in_file(&self.path))?;
        Ok(block)
    }

    /// The resident index, or `held`, which is filled from the cache or the file.
    #[inline]
    pub(crate) fn index<'a>(&'a self, held: &'a mut Option<Arc<[u8]>>) -> Result<Index<'a>> {
        let framed = match &self.index {
            Some(framed) => framed,
            None => match held {
                Some(framed) => framed,
                empty => empty.insert(self.load_index()?),
            },
        };
        Ok(Index::of(payload_of(framed), self.index_shape))
    }

    /// The framed index, shared.
    pub(crate) fn load_index(&self) -> Result<Arc<[u8]>> {
        if let Some(framed) = &self.index {
            return Ok(framed.clone());
        }
        self.cached_part(self.footer.index, BlockKind::Index)
    }

    /// Keys between blocks that cut the file into so many pieces of about as many blocks, ascending; into fewer where
    /// it has fewer blocks. They need not be keys of entries.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` if its index is read again and is damaged; failures to read.
    pub fn fences(&self, pieces: usize) -> Result<Vec<Vec<u8>>> {
        let framed = self.load_index()?;
        let index = self.index_of(&framed);
        let blocks = index.block_count();
        let pieces = pieces.min(blocks);
        Ok((1..pieces).map(|piece| index.separator(piece * blocks / pieces - 1)).collect())
    }

    /// A part that is not kept in memory, framed: from the cache, or from the file and then verified.
    pub(crate) fn cached_part(&self, part: BlockHandle, kind: BlockKind) -> Result<Arc<[u8]>> {
        let key = self.cache_key(part.offset);
        if let Some(framed) = self.cache.get(key) {
            return Ok(framed);
        }
        let mut framed = zeroed(part_len(part, &self.path)?);
        let bytes = exclusive(&mut framed);
        self.file.read_at(part.offset, bytes).map_err(|e| e.in_file(&self.path))?;
        check_stored(bytes, self.number, part.offset).map_err(|e| e.in_file(&self.path))?;
        self.cache.insert(key, framed.clone(), kind);
        Ok(framed)
    }

    /// An index that [`SstFile::load_index`] gave.
    #[inline]
    pub(crate) fn index_of<'a>(&self, framed: &'a [u8]) -> Index<'a> {
        Index::of(payload_of(framed), self.index_shape)
    }

    /// Whether a snapshot sees all entries of a block, of which the index says this.
    pub fn sees_all(&self, entry: &IndexEntry, snapshot: SequenceNumber) -> bool {
        self.options.sequence_override.unwrap_or(entry.max_sequence) <= snapshot
    }

    /// Whether entries of block `i` may be visible at `snapshot`.
    #[inline]
    pub(crate) fn is_visible(&self, index: &Index<'_>, i: usize, snapshot: SequenceNumber) -> bool {
        match self.options.sequence_override {
            None => index.min_sequence(i) <= snapshot,
            Some(number) => number <= snapshot,
        }
    }

    /// A data block in memory ([`payload_in_memory`]): from the cache, or from the file and then verified.
    ///
    /// [`payload_in_memory`]: crate::block::payload_in_memory
    #[inline]
    pub(crate) fn block(
        &self,
        entry: IndexEntry,
        decompressor: &mut Decompressor,
        counters: &mut ReadCounters,
    ) -> Result<Arc<[u8]>> {
        let key = self.cache_key(entry.offset);
        if let Some(bytes) = self.cache.get(key) {
            counters.block_cache_hits += 1;
            return Ok(bytes);
        }
        let bytes = self.read_block(entry, decompressor, counters)?;
        self.keep_block(entry.offset, &bytes);
        Ok(bytes)
    }

    /// As [`SstFile::block`], opened: as its slot holds it, or by `open`.
    #[inline]
    pub(crate) fn slotted_block(
        &self,
        (number, entry): (usize, IndexEntry),
        open: impl Fn(Arc<[u8]>) -> Result<HeadedBlock>,
        decompressor: &mut Decompressor,
        counters: &mut ReadCounters,
    ) -> Result<HeadedBlock> {
        let Some(slots) = &self.slots else { return open(self.block(entry, decompressor, counters)?) };
        let key = self.cache_key(entry.offset);
        if let Some(block) = self.cache.get_by_slot(slots, number, key, &open)? {
            counters.block_cache_hits += 1;
            return Ok(block);
        }
        let bytes = self.read_block(entry, decompressor, counters)?;
        self.keep_block(entry.offset, &bytes);
        open(bytes)
    }

    /// Caches the data block at this offset.
    pub(crate) fn keep_block(&self, offset: u64, bytes: &Arc<[u8]>) {
        // Not written again and again: readers of the file have the line of the flag in their caches.
        if !self.was_cached.load(Ordering::Relaxed) {
            self.was_cached.store(true, Ordering::Relaxed);
        }
        self.cache.insert(self.cache_key(offset), Arc::clone(bytes), BlockKind::Data);
    }

    /// Whether the index is in memory and the block cached that holds the first versions of `key`, if the file holds
    /// some. Counts as no use of the block. O(log blocks), O(1) if no data block was cached since the file was opened.
    #[inline]
    pub fn has_cached(&self, key: &[u8]) -> bool {
        self.was_cached.load(Ordering::Relaxed) && self.has_cached_now(key)
    }

    fn has_cached_now(&self, key: &[u8]) -> bool {
        let Some(framed) = &self.index else { return false };
        let index = self.index_of(framed);
        let at = index.seek(key);
        at < index.block_count() && self.cache.contains(self.cache_key(index.entry(at).offset))
    }

    /// How many data blocks are cached; 0 if the index is not in memory. Counts as no use of them. O(blocks).
    pub fn cached_block_count(&self) -> usize {
        let Some(framed) = &self.index else { return 0 };
        let index = self.index_of(framed);
        (0..index.block_count()).filter(|&at| self.cache.contains(self.cache_key(index.entry(at).offset))).count()
    }

    /// Lets go of what is cached of a file that nobody reads any more: its parts, but for pages of summaries, and its
    /// data blocks, where its index is in memory or cached. The rest is evicted by and by. O(blocks + columns).
    pub fn forget_blocks(&self) {
        let cached_index = || self.cache.peek(self.cache_key(self.footer.index.offset));
        if let Some(framed) = self.index.clone().or_else(cached_index) {
            let index = self.index_of(&framed);
            (0..index.block_count()).for_each(|at| self.cache.remove(self.cache_key(index.entry(at).offset)));
        }
        let columns = self.columns.iter().flat_map(|columns| columns.parts());
        let of_columns = columns.flat_map(|part| [part.coding, part.zones]);
        let parts = [self.footer.index, self.footer.filter, self.footer.summaries, self.properties.statistics];
        parts.into_iter().chain(of_columns).for_each(|part| self.cache.remove(self.cache_key(part.offset)));
    }

    /// The data block from the file, as [`SstFile::block`] gives it.
    #[inline(never)]
    pub(crate) fn read_block(
        &self,
        entry: IndexEntry,
        decompressor: &mut Decompressor,
        counters: &mut ReadCounters,
    ) -> Result<Arc<[u8]>> {
        let len = usize::try_from(entry.len)
            .map_err(|_| Error::corruption("block too long").at(entry.offset).in_file(&self.path))?;
        counters.blocks_read += 1;
        counters.bytes_read += entry.len;
        if self.is_compressed {
            return self.read_compressed(entry.offset, len, decompressor);
        }
        let spares = self.cache.spares();
        let mut block = BlockBuffer::new(len.saturating_sub(BLOCK_TRAILER_LEN), spares);
        let framed = block.bytes().get_mut(..len).unwrap_or_default();
        self.file.read_at(entry.offset, framed).map_err(|e| e.in_file(&self.path))?;
        match self.check_block(framed, entry.offset)? {
            (payload, STORED) => {
                let payload_len = payload.len();
                Ok(block.finish(payload_len))
            }
            (payload, kind) => self.decompressed(payload, kind, entry.offset, decompressor),
        }
    }

    /// Reads a block into the decompressor's memory, since it will hardly stay as it is.
    fn read_compressed(&self, offset: u64, len: usize, decompressor: &mut Decompressor) -> Result<Arc<[u8]>> {
        let mut framed = std::mem::take(&mut decompressor.framed);
        framed.resize(len, 0);
        self.file.read_at(offset, &mut framed).map_err(|e| e.in_file(&self.path))?;
        let (payload, kind) = self.check_block(&framed, offset)?;
        let block = self.decompressed(payload, kind, offset, decompressor)?;
        decompressor.framed = framed;
        Ok(block)
    }

    /// A block in memory from the payload that was stored at `offset`.
    pub(crate) fn decompressed(
        &self,
        payload: &[u8],
        kind: u8,
        offset: u64,
        decompressor: &mut Decompressor,
    ) -> Result<Arc<[u8]>> {
        let spares = self.cache.spares();
        if kind == STORED {
            return Ok(BlockBuffer::copy_of(payload, spares));
        }
        let block = decompressor.decompress(kind, payload, spares);
        block.map_err(|e| malformed_part(&self.path, "data block", offset, e))
    }

    /// The payload and compression kind of a framed block.
    #[inline]
    pub(crate) fn check_block<'a>(&self, framed: &'a [u8], offset: u64) -> Result<(&'a [u8], u8)> {
        open_block(framed, self.number, offset).map_err(|e| e.in_file(&self.path))
    }

    #[inline]
    pub(crate) fn cache_key(&self, offset: u64) -> CacheKey {
        CacheKey { file: self.number, offset }
    }

    /// At most `count` keys that cut the data blocks into pieces of about equal length, ascending: separators of
    /// blocks, for dividing a compaction. Reads the index only.
    pub fn key_samples(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        let mut held = None;
        let index = self.index(&mut held)?;
        let (blocks, pieces) = (index.block_count(), count + 1);
        let mut samples: Vec<Vec<u8>> = Vec::new();
        for piece in 1..pieces {
            let i = (blocks as u128 * piece as u128 / pieces as u128) as usize;
            let Some(i) = i.checked_sub(1) else { continue };
            let sample = index.separator(i);
            if samples.last().is_none_or(|last| *last < sample) {
                samples.push(sample);
            }
        }
        Ok(samples)
    }
}

pub(crate) fn read_range_deletes(
    opening: &Opening,
    footer: &Footer,
    properties: &Properties,
    options: &OpenOptions,
) -> Result<Vec<RangeDelete>> {
    let part = footer.range_deletes;
    let mut deletes: Vec<RangeDelete> = Vec::new();
    if part.len > 0 {
        let framed = opening.read(part)?;
        deletes = opening.parsed("range deletes", part, parse_range_deletes(payload_of(&framed)))?;
    }
    if deletes.len() as u64 != properties.range_delete_count {
        let error = Error::corruption("another number of range deletes").at(part.offset).in_file(&opening.path);
        return Err(error.expected(properties.range_delete_count, deletes.len()));
    }
    if let Some(number) = options.sequence_override {
        deletes.iter_mut().for_each(|delete| delete.sequence = number);
    }
    Ok(deletes)
}

/// The directory of a columnar file.
pub(crate) fn read_columns(opening: &Opening, footer: &Footer, properties: &Properties) -> Result<Option<FileColumns>> {
    let part = properties.columns;
    let group = properties.group.as_ref().filter(|group| group.format == GroupFormat::Columnar);
    let is_columnar = part.len > 0;
    if footer.columnar.is_some() != is_columnar || group.is_some() != is_columnar {
        let error = Error::corruption("a columnar file needs a columnar group and a directory of its columns");
        return Err(error.at(footer.properties.offset).in_file(&opening.path));
    }
    let Some(group) = group else { return Ok(None) };
    let is_inside = |part: BlockHandle| {
        let end = part.offset.checked_add(part.len);
        part.offset >= footer.pages_start() && end.is_some_and(|end| end <= footer.properties.offset)
    };
    let misplaced = |what: &str, part: BlockHandle| {
        Err(Error::corruption(format!("the {what} is misplaced")).at(part.offset).in_file(&opening.path))
    };
    if !is_inside(part) {
        return misplaced("directory of columns", part);
    }
    let framed = opening.read(part)?;
    let directory = Directory::parse(payload_of(&framed), &group.columns);
    let directory = opening.parsed("directory of columns", part, directory)?;
    if properties.statistics.len > 0 && !is_inside(properties.statistics) {
        return misplaced("statistics of columns", properties.statistics);
    }
    for column in &directory.parts {
        for part in [column.zones, column.coding] {
            if part.len > 0 && !is_inside(part) {
                return misplaced("part of a column", part);
            }
        }
    }
    Ok(Some(FileColumns::new(directory, properties.block_size)))
}

pub(crate) fn read_filter(opening: &Opening, part: BlockHandle) -> Result<Option<(FilterShape, AlignedBlock)>> {
    if part.len == 0 {
        return Ok(None);
    }
    let len = part_len(part, &opening.path)?;
    let mut block = AlignedBlock::zeroed(len);
    opening.fill(part, &mut block.fill()[..len])?;
    let shape = opening.parsed("filter", part, FilterShape::parse(payload_of(&block.bytes()[..len])))?;
    Ok(Some((shape, block)))
}
