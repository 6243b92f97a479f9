//! The writer of one segment.
//!
//! 1. `append` frames a record into an in-process buffer of 64 KiB; a record that does not fit goes through to the
//!    file.
//! 2. `flush` hands the buffer to the operating system in one call. If that fails, the file is cut back to the last
//!    record boundary handed over, so that the segment stays well-formed and the writer can go on.
//! 3. `seal` ends the segment where another one continues it.
//! 4. `sync` flushes and persists. If persisting fails, the kernel may have dropped the dirty pages and would report
//!    success on a second try; the writer therefore refuses every later call with the first error.

use std::path::{Path, PathBuf};

use mycelium_base::limits::MAX_BATCH_LEN;
use mycelium_base::{Error, FileNumber, Result};
use mycelium_vfs::{Disk, WritableFile};

use crate::format::{
    FIRST_VERSION, FORMAT_VERSION, HEADER_LEN, RECORD_HEADER_LEN, RecordHeader, SegmentHeader, begin_checksum,
    encode_mark,
};

/// Bytes of records collected before they are handed to the operating system.
const BUFFER_LEN: usize = 64 << 10;
/// Bytes handed over between two hints to start writing back, so that a later sync finds little left to do.
const WRITEBACK_EVERY: u64 = 1 << 20;

/// Appends records to a segment. Not shared: one owner at a time.
///
/// Dropping a writer loses what was appended and not flushed.
///
/// ```
/// use mycelium_vfs::{Disk, MemoryDisk};
/// use mycelium_wal::{RecoveryMode, SegmentHeader, SegmentWriter, replay};
/// use std::path::Path;
///
/// let (disk, directory) = (MemoryDisk::new(), Path::new("/db"));
/// disk.create_directory(directory)?;
/// let header = SegmentHeader { number: 1, previous: None };
/// let mut writer = SegmentWriter::create(&disk, &directory.join("000001.wal"), header)?;
/// writer.append(&[b"a record ", b"of two parts"])?;
/// writer.sync()?;
///
/// let report = replay(&disk, directory, &[1], RecoveryMode::default(), &mut |segment, offset, payload| {
///     assert_eq!((segment, offset, payload), (1, 40, &b"a record of two parts"[..]));
///     Ok(())
/// })?;
/// assert_eq!(report.end, Some((1, writer.len())));
/// # Ok::<(), mycelium_base::Error>(())
/// ```
pub struct SegmentWriter {
    file: Box<dyn WritableFile>,
    path: PathBuf,
    number: FileNumber,
    /// Whole records (or, while a large record is passed through, its head) not yet handed over.
    buffer: Vec<u8>,
    /// Length of the segment up to the last record boundary handed over.
    flushed_len: u64,
    synced_len: u64,
    writeback_at: u64,
    /// Why every further call fails.
    failed: Option<Error>,
    broken: bool,
}

impl SegmentWriter {
    /// Creates the segment file, writes its header to it and persists its name (not its contents).
    ///
    /// # Errors
    /// Those of the disk. [`mycelium_base::ErrorKind::InvalidArgument`] if `number` is 0 or not above the previous one.
    pub fn create(disk: &dyn Disk, path: &Path, header: SegmentHeader) -> Result<Self> {
        Self::create_with_version(disk, path, header, FIRST_VERSION)
    }

    /// As [`SegmentWriter::create`], of a format version: the framing is the same in all of them, and a reader refuses
    /// a segment of a newer one, whose payloads it may not know.
    ///
    /// # Errors
    /// As there; also if there is no such version.
    pub fn create_with_version(disk: &dyn Disk, path: &Path, header: SegmentHeader, version: u32) -> Result<Self> {
        if !(FIRST_VERSION..=FORMAT_VERSION).contains(&version) {
            let error = Error::invalid("a log format version that there is not");
            return Err(error.expected(format_args!("{FIRST_VERSION} to {FORMAT_VERSION}"), version));
        }
        let previous = header.previous.map_or(0, |(number, _)| number);
        if header.number <= previous || header.previous.is_some_and(|(number, _)| number == 0) {
            return Err(Error::invalid(format!("segment {} cannot continue segment {previous}", header.number)));
        }
        let mut file = disk.create(path)?;
        file.append(&header.encode(version))?;
        if let Some(directory) = path.parent() {
            disk.sync_directory(directory)?;
        }
        Ok(Self {
            file,
            path: path.to_path_buf(),
            number: header.number,
            buffer: Vec::with_capacity(BUFFER_LEN),
            flushed_len: HEADER_LEN as u64,
            synced_len: 0,
            writeback_at: WRITEBACK_EVERY,
            failed: None,
            broken: false,
        })
    }

    /// Appends one record, whose payload is the concatenation of `payload_parts`. Allocates nothing.
    ///
    /// The record survives nothing before [`SegmentWriter::flush`] or [`SegmentWriter::sync`]. O(payload).
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::InvalidArgument`] if the payload is empty or longer than
    /// [`mycelium_base::limits::MAX_BATCH_LEN`]; nothing was done. Otherwise the disk's, when the buffer was full and
    /// had to be flushed: then this record and all that were buffered are dropped, as described at `flush`.
    #[inline]
    pub fn append(&mut self, payload_parts: &[&[u8]]) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.duplicate());
        }
        let length = payload_parts.iter().fold(0usize, |sum, part| sum.saturating_add(part.len()));
        if length == 0 || length > MAX_BATCH_LEN {
            return Err(Error::invalid(format!("a log record of {length} bytes: 1 to {MAX_BATCH_LEN} are allowed")));
        }
        let framed = RECORD_HEADER_LEN + length;
        if framed > BUFFER_LEN - self.buffer.len() {
            self.flush()?;
        }
        let offset = self.len();
        let unsynced = u32::try_from(offset - self.synced_len).unwrap_or(u32::MAX);
        let mut checksum = begin_checksum(self.number, offset, length as u32, unsynced);
        for part in payload_parts {
            checksum = crc32c::crc32c_append(checksum, part);
        }
        let header = RecordHeader { checksum, length: length as u32, unsynced };
        self.buffer.extend_from_slice(&header.encode());
        if framed > BUFFER_LEN {
            return self.pass_through(payload_parts, framed);
        }
        for part in payload_parts {
            self.buffer.extend_from_slice(part);
        }
        Ok(())
    }

    /// Writes a record larger than the buffer, whose header is the only thing buffered.
    fn pass_through(&mut self, payload_parts: &[&[u8]], framed: usize) -> Result<()> {
        for part in payload_parts {
            if part.len() > BUFFER_LEN - self.buffer.len() {
                self.hand_over()?;
                if part.len() >= BUFFER_LEN {
                    let outcome = self.file.append(part);
                    self.undo_if_failed(outcome)?;
                    continue;
                }
            }
            self.buffer.extend_from_slice(part);
        }
        self.hand_over()?;
        self.advance(framed);
        Ok(())
    }

    /// Hands all buffered records to the operating system: they then survive a crash of the process.
    ///
    /// # Errors
    /// The disk's. The file was cut back to the last record handed over before and **all buffered records are
    /// dropped**; further appends are possible (after a full disk was freed, say) unless [`SegmentWriter::is_broken`].
    pub fn flush(&mut self) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.duplicate());
        }
        let pending = self.buffer.len();
        if pending != 0 {
            self.hand_over()?;
            self.advance(pending);
        }
        Ok(())
    }

    /// Flushes and persists: all records appended then survive a crash of the machine. Does nothing where nothing was
    /// appended since the last sync.
    ///
    /// Sync a segment before the one that continues it: recovery relies on that order.
    ///
    /// # Errors
    /// Those of [`SegmentWriter::flush`], after which the writer can go on; or the sync's own, after which every later
    /// call fails with the same error, since the fate of the bytes is unknown.
    pub fn sync(&mut self) -> Result<()> {
        self.flush()?;
        if self.synced_len == self.flushed_len {
            return Ok(());
        }
        if let Err(error) = self.file.sync() {
            self.failed = Some(error.duplicate().in_file(&self.path));
            return Err(error.in_file(&self.path));
        }
        self.synced_len = self.flushed_len;
        Ok(())
    }

    /// Ends the segment, which segment `successor` continues: flush it first, create that one, its header naming this
    /// one with [`SegmentWriter::len`], and then seal this one. A mark behind the last record names the successor,
    /// whose loss is noticed by it. It lies behind the length that the successor's header gives, so where there is a
    /// successor nothing of it is read.
    ///
    /// It is handed to the operating system, and synced with what else there is to sync, not by itself: a power loss
    /// may take it, and nothing else. So a failure is no loss, and none is reported.
    pub fn seal(mut self, successor: FileNumber) -> SealedSegment {
        if self.buffer.is_empty() && self.failed.is_none() {
            let mark = encode_mark(self.number, self.flushed_len, successor);
            if self.file.append(&mark).is_err() {
                self.file.truncate(self.flushed_len).ok();
            }
        }
        SealedSegment { writer: self }
    }

    /// Forgets all records from `offset` on, which [`SegmentWriter::len`] was before they were appended; those handed
    /// over leave the file. Not durable: until the next sync a crash of the machine may bring them back.
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::InvalidArgument`] if some of them were synced; the error of an earlier failure after
    /// which the writer does nothing more; the disk's, after which it does nothing more either.
    pub fn cut_back(&mut self, offset: u64) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.duplicate());
        }
        if offset < self.synced_len {
            return Err(Error::invalid(format!("records from {offset} on are synced, to {}", self.synced_len)));
        }
        if offset >= self.flushed_len {
            self.buffer.truncate((offset - self.flushed_len) as usize);
            return Ok(());
        }
        self.flushed_len = offset;
        self.cut().inspect_err(|error| self.failed = Some(error.duplicate()))
    }

    /// Bytes of the segment, buffered ones included: the offset of the next record.
    #[inline]
    pub fn len(&self) -> u64 {
        self.flushed_len + self.buffer.len() as u64
    }

    /// Whether the segment holds no record.
    pub fn is_empty(&self) -> bool {
        self.len() == HEADER_LEN as u64
    }

    /// Bytes known to be persisted: 0, or the length at the last successful sync.
    pub fn synced_len(&self) -> u64 {
        self.synced_len
    }

    /// The segment's number.
    pub fn number(&self) -> FileNumber {
        self.number
    }

    /// Bytes of records that are not yet handed to the operating system.
    #[inline]
    pub fn buffered_len(&self) -> usize {
        self.buffer.len()
    }

    /// The segment's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether every later call fails: a sync failed, or a failed append could not be undone.
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Whether a failed append could not be undone, so that the file may end in part of a record. Every later call
    /// fails. The log can go on in a new segment whose header names this one with [`SegmentWriter::len`].
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Appends the buffer to the file and empties it.
    fn hand_over(&mut self) -> Result<()> {
        let outcome = self.file.append(&self.buffer);
        self.buffer.clear();
        self.undo_if_failed(outcome)
    }

    fn advance(&mut self, bytes: usize) {
        self.flushed_len += bytes as u64;
        if self.flushed_len >= self.writeback_at {
            self.file.start_writeback();
            self.writeback_at = self.flushed_len + WRITEBACK_EVERY;
        }
    }

    /// After a failed append: cuts the file back to the last record boundary.
    #[inline]
    fn undo_if_failed(&mut self, outcome: Result<()>) -> Result<()> {
        match outcome {
            Ok(()) => Ok(()),
            Err(error) => Err(self.undo(error)),
        }
    }

    #[cold]
    fn undo(&mut self, error: Error) -> Error {
        let error = error.in_file(&self.path);
        if let Err(second) = self.cut() {
            self.failed = Some(second.caused_by(error.duplicate()));
        }
        error
    }

    /// Cuts buffer and file back to the records handed over. If it cannot, the file may end in part of a record.
    fn cut(&mut self) -> Result<()> {
        self.buffer.clear();
        let outcome = self.file.truncate(self.flushed_len);
        self.broken |= outcome.is_err();
        outcome.map_err(|error| error.in_file(&self.path))
    }
}

/// A segment that another one continues: it takes no record any more, and is still to be synced before that one is.
pub struct SealedSegment {
    writer: SegmentWriter,
}

impl SealedSegment {
    /// The segment's number.
    pub fn number(&self) -> FileNumber {
        self.writer.number
    }

    /// As [`SegmentWriter::sync`], of the records.
    ///
    /// # Errors
    /// As there.
    pub fn sync(&mut self) -> Result<()> {
        self.writer.sync()
    }
}
