//! What is left of a damaged file.
//!
//! 1. Read footer, properties, range deletes, index and filter one by one, and do without those that do not verify. In
//!    place of properties the manifest says enough of a file of rows. A columnar file needs its footer, its properties,
//!    and what they say of its columns.
//! 2. With an index, visit the blocks that it names. A block that does not verify is told as lost, with the keys
//!    between its separator and the one before it; neighbours are told as one.
//! 3. Without one, find the blocks from the front on by their checksums: a block ends where the checksum of all bytes
//!    since the one before it stands. The first that is damaged cannot be passed: it is lost with all behind it. The
//!    number of entries tells where the data blocks end.
//!
//! Guarantees: every entry that is visited was written to this file; every other one lies within what is told as lost.

use std::path::Path;
use std::sync::Arc;

use mycelium_base::{
    Error, ErrorKind, GroupFormat, Operation, RangeDelete, Result, SequenceNumber, Trailer, compare_entries,
};
use mycelium_cache::BlockCache;
use mycelium_vfs::ReadableFile;
use xxhash_rust::xxh3::Xxh3;

use crate::block::{BlockCursor, BlockPosition, Step, payload_in_memory};
use crate::checksum::{BLOCK_TRAILER_LEN, block_seed};
use crate::columnar::{ColumnPosition, WantedColumns};
use crate::compression::Decompressor;
use crate::footer::{FOOTER_LEN, Footer};
use crate::index::{Index, IndexBuilder, IndexShape};
use crate::properties::Properties;
use crate::reader::{
    OpenOptions, Opening, Parts, SstFile, malformed_part, read_columns, read_filter, read_range_deletes,
};

/// The longest block, framed, that is looked for where there is no index.
const LONGEST_SOUGHT: u64 = 4 << 20;

/// A file of which parts may be damaged.
#[derive(Debug)]
pub struct Remains {
    file: Arc<SstFile>,
    has_index: bool,
    range_deletes: Option<Vec<RangeDelete>>,
    faults: Vec<Error>,
}

/// What [`Remains::visit`] comes upon.
#[derive(Debug)]
pub enum Remnant<'a> {
    /// An entry.
    Entry {
        /// Its key.
        key: &'a [u8],
        /// Its sequence number and operation.
        trailer: Trailer,
        /// Its value; of a columnar file the packed fragment of its columns.
        value: &'a [u8],
    },
    /// Blocks that cannot be read.
    Lost(LostKeys),
}

/// Entries of a file that cannot be read.
#[derive(Debug)]
pub struct LostKeys {
    /// None of them has a key before this one,
    pub smallest: Vec<u8>,
    /// nor one after this one,
    pub largest: Vec<u8>,
    /// nor a larger sequence number.
    pub max_sequence: SequenceNumber,
    /// How many there are.
    pub entries: u64,
    /// Why the first of them cannot be read.
    pub error: Error,
}

/// What a file says of itself, whatever else of it can be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileStatement {
    /// Its length in bytes.
    pub size: u64,
    /// What it holds.
    pub properties: Properties,
    /// Where it belongs, in the words of who wrote it ([`SstWriter::with_origin`](crate::SstWriter::with_origin)).
    pub origin: Option<Vec<u8>>,
}

impl FileStatement {
    /// Reads footer and properties of file number `file_number`. `path` is for errors only.
    ///
    /// # Errors
    /// Corruption if one of them is damaged, [`ErrorKind::Unsupported`] if the file is of a newer format.
    pub fn read(file: Arc<dyn ReadableFile>, path: &Path, file_number: u64) -> Result<Self> {
        let size = file.len();
        let opening = Opening::start(file, path, file_number, None)?;
        let footer = match opening.footer() {
            Err(error) if error.kind() == ErrorKind::Unsupported && !opening.has_whole_footer() => {
                let damaged = Error::corruption("the footer is damaged").at(size.saturating_sub(FOOTER_LEN as u64));
                return Err(damaged.in_file(path).caused_by(error));
            }
            footer => footer?,
        };
        let (properties, origin) = opening.statement(&footer)?;
        Ok(Self { size, properties, origin })
    }
}

type Visit<'v> = dyn FnMut(Remnant<'_>) -> Result<()> + 'v;

impl Remains {
    /// Opens what can be read of file number `file_number`. `path` is for errors only. `stated` is what the manifest
    /// says of the file as it is stored: entries, range deletes, fences, sequence numbers and group.
    ///
    /// # Errors
    /// Corruption if nothing of it can be read: it is shorter than a footer, or columnar and damaged where it says what
    /// its columns are. [`ErrorKind::Unsupported`] if it is of a newer format, and whole.
    pub fn open(
        file: Arc<dyn ReadableFile>,
        path: &Path,
        file_number: u64,
        cache: Arc<BlockCache>,
        options: OpenOptions,
        stated: Properties,
    ) -> Result<Self> {
        let opening = Opening::start(file, path, file_number, None)?;
        let mut faults = Vec::new();
        let footer = match opening.footer() {
            Err(error) if error.kind() == ErrorKind::Unsupported && !opening.has_whole_footer() => {
                faults.push(error);
                None
            }
            footer => noted(&mut faults, footer)?,
        };
        let footer = footer.as_ref();
        let properties = footer.map(|footer| opening.properties(footer));
        let properties = noted_part(&mut faults, properties)?;
        let known = properties.as_ref().unwrap_or(&stated);
        let range_deletes = match footer {
            Some(footer) => noted(&mut faults, read_range_deletes(&opening, footer, known, &options))?,
            None => (known.range_delete_count == 0).then(Vec::new),
        };
        let index = noted_part(&mut faults, footer.map(|footer| opening.index(footer)))?;
        let filter = noted_part(&mut faults, footer.map(|footer| read_filter(&opening, footer.filter)))?.flatten();
        let columns = match (footer, &properties) {
            (Some(footer), Some(properties)) => read_columns(&opening, footer, properties)?,
            _ if stated.group.as_ref().is_some_and(|group| group.format == GroupFormat::Columnar) => {
                return Err(faults
                    .into_iter()
                    .next()
                    .unwrap_or_else(|| Error::corruption("the columns of the file are not known")));
            }
            _ => None,
        };
        let has_index = index.is_some();
        let (index, index_shape) = index.map_or_else(empty_index, Ok)?;
        let parts = Parts {
            footer: footer.copied().unwrap_or_else(|| Footer::without_parts(file_number)),
            properties: properties.unwrap_or(stated),
            range_deletes: range_deletes.clone().unwrap_or_default(),
            index,
            index_shape,
            filter,
            columns,
        };
        let file = SstFile::assemble(opening, parts, cache, options)?;
        Ok(Self { file, has_index, range_deletes, faults })
    }

    /// The file, for what it says of itself; its blocks are for [`Remains::visit`] to read.
    pub fn file(&self) -> &SstFile {
        &self.file
    }

    /// Its range deletes; `None` if they cannot be read.
    pub fn range_deletes(&self) -> Option<&[RangeDelete]> {
        self.range_deletes.as_deref()
    }

    /// What is wrong with parts other than data blocks.
    pub fn faults(&self) -> &[Error] {
        &self.faults
    }

    /// Calls `visit` with every entry that can be read, in order, and with what cannot between them. Reads past the
    /// cache, one block at a time.
    ///
    /// # Errors
    /// The first of `visit`.
    pub fn visit(&self, visit: &mut Visit<'_>) -> Result<()> {
        match self.file.is_columnar() {
            true => self.visit_with(ColumnPosition::over(&self.file, &WantedColumns::All), visit),
            false => self.visit_with(BlockCursor::new(), visit),
        }
    }

    fn visit_with<B: BlockPosition>(&self, cursor: B, visit: &mut Visit<'_>) -> Result<()> {
        let decompressor = Decompressor::default();
        let mut walk = Walk { file: &self.file, cursor, decompressor, last: None, entries: 0 };
        if self.has_index { self.visit_by_index(&mut walk, visit) } else { self.visit_from_front(&mut walk, visit) }
    }

    fn visit_by_index<B: BlockPosition>(&self, walk: &mut Walk<'_, B>, visit: &mut Visit<'_>) -> Result<()> {
        let framed = self.file.load_index()?;
        let index = self.file.index_of(&framed);
        let mut buffer = Vec::new();
        let mut lost: Option<LostKeys> = None;
        for block in 0..index.block_count() {
            let entry = index.entry(block);
            match walk.read(entry.offset, entry.len, &mut buffer) {
                Ok(()) => {
                    if let Some(lost) = lost.take() {
                        visit(Remnant::Lost(lost))?;
                    }
                    walk.emit(visit)?;
                }
                Err(error) => {
                    let block = self.lost_block(&index, block, error);
                    match &mut lost {
                        Some(lost) => lost.append(block),
                        None => lost = Some(block),
                    }
                }
            }
        }
        lost.map_or(Ok(()), |lost| visit(Remnant::Lost(lost)))
    }

    fn lost_block(&self, index: &Index<'_>, block: usize, error: Error) -> LostKeys {
        let entry = index.entry(block);
        let is_last = block + 1 == index.block_count();
        LostKeys {
            smallest: block
                .checked_sub(1)
                .map_or_else(|| self.file.smallest().to_vec(), |before| index.separator(before)),
            largest: if is_last { self.file.largest().to_vec() } else { index.separator(block) },
            max_sequence: self.file.options.sequence_override.unwrap_or(entry.max_sequence),
            entries: entry.entry_count.into(),
            error,
        }
    }

    fn visit_from_front<B: BlockPosition>(&self, walk: &mut Walk<'_, B>, visit: &mut Visit<'_>) -> Result<()> {
        let entry_count = self.file.properties().entry_count;
        let mut front = Front::default();
        let mut offset = 0;
        while walk.entries < entry_count {
            let found = front.block_at(&self.file, offset);
            match found.and_then(|framed| walk.take_up(offset, framed).map(|()| framed.len() as u64)) {
                Ok(len) => {
                    walk.emit(visit)?;
                    offset += len;
                }
                Err(error) => {
                    let last = walk.last.take().map(|(key, _)| key);
                    return visit(Remnant::Lost(LostKeys {
                        smallest: last.unwrap_or_else(|| self.file.smallest().to_vec()),
                        largest: self.file.largest().to_vec(),
                        max_sequence: self.file.max_sequence(),
                        entries: entry_count - walk.entries,
                        error,
                    }));
                }
            }
        }
        Ok(())
    }
}

impl LostKeys {
    /// Adds the block that follows.
    fn append(&mut self, next: LostKeys) {
        self.largest = next.largest;
        self.max_sequence = self.max_sequence.max(next.max_sequence);
        self.entries += next.entries;
    }
}

/// A part that verifies, or `None` and its fault. What needs a newer version is no damage.
fn noted<T>(faults: &mut Vec<Error>, part: Result<T>) -> Result<Option<T>> {
    match part {
        Ok(part) => Ok(Some(part)),
        Err(error) if error.kind() == ErrorKind::Unsupported => Err(error),
        Err(error) => {
            faults.push(error);
            Ok(None)
        }
    }
}

/// The same of a part that nobody knows the place of if it is `None`.
fn noted_part<T>(faults: &mut Vec<Error>, part: Option<Result<T>>) -> Result<Option<T>> {
    part.map_or(Ok(None), |part| noted(faults, part))
}

/// An index of no blocks, framed.
fn empty_index() -> Result<(Arc<[u8]>, IndexShape)> {
    let mut framed = IndexBuilder::default().encode(0)?;
    let shape = Index::parse(&framed, 0)?.shape();
    framed.resize(framed.len() + BLOCK_TRAILER_LEN, 0);
    Ok((framed.into(), shape))
}

/// A way through the blocks of a file.
struct Walk<'a, B> {
    file: &'a SstFile,
    cursor: B,
    decompressor: Decompressor,
    /// The last entry of the blocks taken up so far.
    last: Option<(Vec<u8>, Trailer)>,
    /// Entries visited.
    entries: u64,
}

impl<B: BlockPosition> Walk<'_, B> {
    /// Reads a block and takes it up.
    fn read(&mut self, offset: u64, len: u64, buffer: &mut Vec<u8>) -> Result<()> {
        let too_long = |_| Error::corruption("block too long").at(offset).in_file(&self.file.path);
        buffer.resize(usize::try_from(len).map_err(too_long)?, 0);
        self.file.file.read_at(offset, buffer).map_err(|e| e.at(offset).in_file(&self.file.path))?;
        self.take_up(offset, buffer)
    }

    /// Takes up a block all of whose entries can be read, and come after those before.
    fn take_up(&mut self, offset: u64, framed: &[u8]) -> Result<()> {
        let (payload, kind) = self.file.check_block(framed, offset)?;
        let inside = |e| malformed_part(&self.file.path, "data block", offset, e);
        let bytes = self.file.decompressed(payload, kind, offset, &mut self.decompressor)?;
        let end = payload_in_memory(&bytes).len();
        self.cursor.take_up(self.file, bytes, 0, end).map_err(inside)?;
        let mut last = self.last.clone();
        let mut more = self.cursor.seek_to_first().map_err(inside)?;
        while more {
            let (key, trailer) = (self.cursor.key(), self.cursor.trailer());
            let is_after = last.as_ref().is_none_or(|(key_before, trailer_before)| {
                compare_entries(key_before, *trailer_before, key, trailer).is_lt()
            });
            let is_inside = self.file.smallest() <= key && !self.file.ends_before(key);
            if !is_after || !is_inside || trailer.operation() == Operation::RangeDelete {
                let error = Error::corruption("an entry out of order, out of the fences, or of another operation");
                return Err(error.at(offset).in_file(&self.file.path));
            }
            let (last_key, last_trailer) = last.get_or_insert_with(|| (Vec::new(), trailer));
            last_key.clear();
            last_key.extend_from_slice(key);
            *last_trailer = trailer;
            more = match self.cursor.step() {
                Step::Moved => true,
                Step::End => false,
                Step::Malformed => return Err(inside(self.cursor.malformed_here())),
            };
        }
        self.last = last;
        Ok(())
    }

    /// Visits the entries of the block that was taken up.
    fn emit(&mut self, visit: &mut Visit<'_>) -> Result<()> {
        let mut more = self.cursor.seek_to_first()?;
        while more {
            let (key, trailer, value) = (self.cursor.key(), self.cursor.trailer(), self.cursor.value());
            visit(Remnant::Entry { key, trailer, value })?;
            self.entries += 1;
            more = match self.cursor.step() {
                Step::Moved => true,
                Step::End => false,
                Step::Malformed => return Err(self.cursor.malformed_here()),
            };
        }
        Ok(())
    }
}

/// The blocks of a file, found by their checksums alone.
#[derive(Default)]
struct Front {
    /// Where `bytes` begin in the file.
    start: u64,
    bytes: Vec<u8>,
}

impl Front {
    /// The framed block at `offset`. O(its length).
    fn block_at(&mut self, file: &SstFile, offset: u64) -> Result<&[u8]> {
        let left = file.size().saturating_sub(offset);
        let sought = left.min(LONGEST_SOUGHT);
        if offset < self.start || offset + sought > self.start + self.bytes.len() as u64 {
            self.bytes.resize(left.min(2 * LONGEST_SOUGHT) as usize, 0);
            self.start = offset;
            file.file.read_at(offset, &mut self.bytes).map_err(|e| e.at(offset).in_file(&file.path))?;
        }
        let from = (offset - self.start) as usize;
        let bytes = self.bytes.get(from..from + sought as usize).unwrap_or_default();
        let mut checksum = Xxh3::with_seed(block_seed(file.number, offset));
        for end in 1..bytes.len().saturating_sub(7) {
            checksum.update(&bytes[end - 1..end]);
            if bytes[end..end + 8] == checksum.digest().to_le_bytes() {
                return Ok(&bytes[..end + 8]);
            }
        }
        Err(Error::corruption("no data block is found")
            .at(offset)
            .in_file(&file.path)
            .expected(format_args!("a block of up to {sought} bytes and its checksum"), "none whose checksum matches"))
    }
}
