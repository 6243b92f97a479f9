//! The reader of one segment.
//!
//! 1. The file is read in pieces of 1 MiB; a record that fits into one piece is verified and returned in place.
//! 2. A longer record is verified piece by piece first, and only then is a buffer of its length allocated.
//! 3. The first record that does not verify ends the segment: the reader remembers where and why (its [`Tear`]). So
//!    does the mark that names the segment which continues it, which is no tear.
//! 4. Who reads a segment that is being written goes on later where a reader had come, with another one, if the first
//!    record and the one before that place are still those that were read ([`SegmentPosition`]).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mycelium_base::{Error, ErrorKind, FileNumber, Result};
use mycelium_vfs::{AccessPattern, Disk, ReadableFile};

use crate::format::{
    HEADER_LEN, MARK_LEN, PIECE, RECORD_HEADER_LEN, RecordHeader, SegmentHeader, begin_checksum, decode_mark,
};

/// Where a segment's well-formed part ends although bytes were expected to follow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tear {
    /// Byte offset of the first record (or the header, at 0) that is not whole.
    pub offset: u64,
    /// What is wrong with it.
    pub reason: String,
}

/// Where a reader has come in a segment, for another one to go on there when more has been appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentPosition {
    number: FileNumber,
    offset: u64,
    /// The first record, and the one before that place.
    ends: Option<[RecordMark; 2]>,
}

/// Where a record stands, and its header, whose checksum covers all of it.
type RecordMark = (u64, [u8; RECORD_HEADER_LEN]);

impl SegmentPosition {
    /// The segment's number.
    pub fn number(&self) -> FileNumber {
        self.number
    }

    /// Byte offset of the end of the last good record.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

/// A verified record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Byte offset of the record in its segment.
    pub offset: u64,
    /// What was appended.
    pub payload: &'a [u8],
}

/// Reads the records of one segment in order.
pub struct SegmentReader {
    path: PathBuf,
    header: SegmentHeader,
    input: Window,
    /// Where the next record starts.
    position: u64,
    /// Where the segment should end, and whether that is known from elsewhere (not just from the file's length).
    end: u64,
    end_is_known: bool,
    large: Vec<u8>,
    /// The first record, and the one before the next.
    ends: Option<[RecordMark; 2]>,
    tear: Option<Tear>,
    continued_by: Option<FileNumber>,
}

impl fmt::Debug for SegmentReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentReader")
            .field("path", &self.path)
            .field("header", &self.header)
            .field("position", &self.position)
            .field("tear", &self.tear)
            .finish_non_exhaustive()
    }
}

impl SegmentReader {
    /// Opens a segment and checks its header, also against the number it is expected to have.
    ///
    /// # Errors
    /// Corruption if the header is cut short, does not verify or carries another number;
    /// [`mycelium_base::ErrorKind::Unsupported`] if it was written by a newer version; those of the disk.
    pub fn open(disk: &dyn Disk, path: &Path, expected: Option<FileNumber>) -> Result<Self> {
        let file = disk.open(path, AccessPattern::Sequential)?;
        let header = read_header(&*file, expected).map_err(|e| e.in_file(path))?;
        Ok(Self::with_header(file, path, header, None))
    }

    /// A reader of a segment whose header is known; `end` is its length if its successor tells.
    pub(crate) fn with_header(
        file: Arc<dyn ReadableFile>,
        path: &Path,
        header: SegmentHeader,
        end: Option<u64>,
    ) -> Self {
        Self {
            path: path.to_path_buf(),
            header,
            end: end.unwrap_or(file.len()),
            end_is_known: end.is_some(),
            input: Window::new(file),
            position: HEADER_LEN as u64,
            large: Vec::new(),
            ends: None,
            tear: None,
            continued_by: None,
        }
    }

    /// The segment's header.
    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// The segment's file, as long as it was when it was opened: beyond that another process may be appending to it.
    pub fn file(&self) -> &dyn ReadableFile {
        &*self.input.file
    }

    /// Byte offset of the end of the last good record.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Where the reader has come.
    pub fn to_go_on(&self) -> SegmentPosition {
        SegmentPosition { number: self.header.number, offset: self.position, ends: self.ends }
    }

    /// Goes on where another reader of the segment had come.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if the segment is not what it was then: its first record or the one before that
    /// place is gone, as its writer takes records back that it could not hand over, or the segment's end, as its
    /// successor has it, lies before it. Read from the front. Otherwise those of the disk.
    pub fn go_on_from(&mut self, from: &SegmentPosition) -> Result<()> {
        if !self.still_has(from)? {
            return Err(Error::new(ErrorKind::Conflict, "the segment is not what it was when it was read before")
                .in_file(&self.path)
                .at(from.offset));
        }
        (self.position, self.ends) = (from.offset, from.ends);
        Ok(())
    }

    fn still_has(&mut self, from: &SegmentPosition) -> Result<bool> {
        if from.number != self.header.number || from.offset > self.end.min(self.input.file.len()) {
            return Ok(false);
        }
        for (at, header) in from.ends.iter().flatten() {
            if self.input.get(*at, RECORD_HEADER_LEN)? != header {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Where and why reading stopped before the end of the file; `None` before that, and after a clean end.
    pub fn tear(&self) -> Option<&Tear> {
        self.tear.as_ref()
    }

    /// The segment that continues this one, once its end was reached and names it ([`crate::SegmentWriter::seal`]). Its
    /// name was durable before it was named here.
    pub fn continued_by(&self) -> Option<FileNumber> {
        self.continued_by
    }

    /// The tear as a corruption error, for callers that accept none.
    pub fn tear_error(&self) -> Option<Error> {
        self.tear.as_ref().map(|tear| tear_error(&self.path, tear))
    }

    /// The next record; `None` at the end of the segment, clean or torn ([`SegmentReader::tear`] tells which).
    ///
    /// # Errors
    /// Those of the disk only.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        if self.tear.is_some() {
            return Ok(None);
        }
        let offset = self.position;
        let readable = self.end.min(self.input.file.len()).saturating_sub(offset);
        if readable == 0 {
            if self.end_is_known && offset != self.end {
                self.torn(format!("the segment ends here, but the next one says it has {} bytes", self.end));
            }
            return Ok(None);
        }
        if readable < RECORD_HEADER_LEN as u64 {
            self.torn(format!("record header cut short: {readable} of {RECORD_HEADER_LEN} bytes"));
            return Ok(None);
        }
        let header = RecordHeader::decode(self.input.get(offset, RECORD_HEADER_LEN)?);
        if header.is_mark() && !self.end_is_known && readable >= MARK_LEN as u64 {
            self.continued_by = decode_mark(self.header.number, offset, self.input.get(offset, MARK_LEN)?);
            if self.continued_by.is_some() {
                return Ok(None);
            }
        }
        if !header.plausible() {
            self.torn(format!("record length {} is not valid", header.length));
            return Ok(None);
        }
        let available = readable - RECORD_HEADER_LEN as u64;
        if u64::from(header.length) > available {
            self.torn(format!("record cut short: {available} of {} bytes", header.length));
            return Ok(None);
        }
        let computed = self.input.checksum(self.header.number, offset, header)?;
        if computed != header.checksum {
            self.torn(format!("record checksum: expected {computed:08x}, found {:08x}", header.checksum));
            return Ok(None);
        }
        let length = header.length as usize;
        let mark = (offset, header.encode());
        self.ends = Some([self.ends.map_or(mark, |[first, _]| first), mark]);
        self.position = offset + (RECORD_HEADER_LEN + length) as u64;
        let start = offset + RECORD_HEADER_LEN as u64;
        if RECORD_HEADER_LEN + length <= PIECE {
            return Ok(Some(Record { offset, payload: self.input.get(start, length)? }));
        }
        self.large.resize(length, 0);
        self.input.file.read_at(start, &mut self.large).map_err(|e| e.in_file(&self.path))?;
        if self.input.checksum_of(self.header.number, offset, header, &self.large) != header.checksum {
            return Err(Error::corruption("record changed between two reads").in_file(&self.path).at(offset));
        }
        Ok(Some(Record { offset, payload: &self.large }))
    }

    #[cold]
    fn torn(&mut self, reason: String) {
        self.tear = Some(Tear { offset: self.position, reason });
    }
}

/// A tear as an error.
pub(crate) fn tear_error(path: &Path, tear: &Tear) -> Error {
    Error::corruption(tear.reason.as_str()).in_file(path).at(tear.offset)
}

/// Reads and checks the header of a segment.
pub(crate) fn read_header(file: &dyn ReadableFile, expected: Option<FileNumber>) -> Result<SegmentHeader> {
    let mut bytes = [0; HEADER_LEN];
    if file.len() < HEADER_LEN as u64 {
        return Err(Error::corruption("segment header cut short")
            .at(0)
            .expected(format_args!("{HEADER_LEN} bytes"), file.len()));
    }
    file.read_at(0, &mut bytes)?;
    let header = SegmentHeader::decode(&bytes)?;
    match expected {
        Some(expected) if expected != header.number => Err(Error::corruption("the file holds another segment")
            .at(12)
            .expected(format_args!("segment {expected}"), format_args!("segment {}", header.number))),
        _ => Ok(header),
    }
}

/// One piece of a file in memory.
pub(crate) struct Window {
    pub(crate) file: Arc<dyn ReadableFile>,
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    pub(crate) fn new(file: Arc<dyn ReadableFile>) -> Self {
        Self { file, start: 0, bytes: Vec::new() }
    }

    /// `len` bytes (at most a piece) from `offset`, all of which lie in the file.
    #[inline]
    pub(crate) fn get(&mut self, offset: u64, len: usize) -> Result<&[u8]> {
        let covered = offset >= self.start && offset + len as u64 <= self.start + self.bytes.len() as u64;
        if !covered {
            self.fill(offset)?;
        }
        let at = (offset - self.start) as usize;
        match self.bytes.get(at..at + len) {
            Some(bytes) => Ok(bytes),
            None => Err(Error::corruption("cut short").at(offset).expected(format_args!("{len} bytes"), "fewer")),
        }
    }

    /// All that is in memory from `offset` on, at least one byte unless the file ends there.
    pub(crate) fn from(&mut self, offset: u64, at_least: usize) -> Result<&[u8]> {
        if self.file.len().saturating_sub(offset) < at_least as u64 {
            return Ok(&[]);
        }
        self.get(offset, at_least)?;
        Ok(&self.bytes[(offset - self.start) as usize..])
    }

    fn fill(&mut self, offset: u64) -> Result<()> {
        let len = self.file.len().saturating_sub(offset).min(PIECE as u64) as usize;
        self.bytes.resize(len, 0);
        self.start = offset;
        if let Err(error) = self.file.read_at(offset, &mut self.bytes) {
            self.bytes.clear();
            return Err(error);
        }
        Ok(())
    }

    /// The checksum that the record at `offset` should have; its bytes must lie in the file.
    #[inline]
    pub(crate) fn checksum(&mut self, number: FileNumber, offset: u64, header: RecordHeader) -> Result<u32> {
        let mut checksum = begin_checksum(number, offset, header.length, header.unsynced);
        let framed = RECORD_HEADER_LEN + header.length as usize;
        if framed <= PIECE {
            return Ok(crc32c::crc32c_append(checksum, &self.get(offset, framed)?[RECORD_HEADER_LEN..]));
        }
        let mut at = offset + RECORD_HEADER_LEN as u64;
        let mut left = header.length as usize;
        while left > 0 {
            let piece = left.min(PIECE);
            checksum = crc32c::crc32c_append(checksum, self.get(at, piece)?);
            at += piece as u64;
            left -= piece;
        }
        Ok(checksum)
    }

    fn checksum_of(&self, number: FileNumber, offset: u64, header: RecordHeader, payload: &[u8]) -> u32 {
        crc32c::crc32c_append(begin_checksum(number, offset, header.length, header.unsynced), payload)
    }
}
