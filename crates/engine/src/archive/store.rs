//! Puts segments of the log into the archive.
//!
//! 1. A segment waits from the moment on at which no recovery needs it: the manifest's edit that says so is durable.
//!    Those that wait are taken in their order, one at a time.
//! 2. It is synced, and linked into the archive under its final name. Where there can be no link it is copied under a
//!    temporary name, as far as its records reach, synced, and renamed. If it is there already it must be the same.
//! 3. The archive's directory is synced; after a sync that failed there is no other until the database is opened anew.
//! 4. The segment is removed from the database's directory.
//!
//! What fails is told ([`Event::ArchiveFailed`]) and counted. The segment stays, and is tried again with the next one,
//! and by each write once more bytes wait than may: such a write fails if this does.
//!
//! An opening finds what waited. The segments of the log's chain, from the one that it began on back, which are still
//! there, are what the archive lacks: those before the first that is gone were archived before it went. What is no link
//! of the chain was given up by a recovery, and is no part of the log. As nobody knows what of these is durable, they
//! are copied. One that is damaged is archived as it is, as far as it is there, and found to be damaged by a restore.
//! Where the header is, the segment that it continues is the next older one that is there, for a recovery that begins a
//! segment removes what it gave up; unless that has a mark at its end which names another.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mycelium_base::{Error, ErrorKind, FileKind, FileNumber, Result, SequenceNumber};
use mycelium_vfs::{AccessPattern, Disk};
use mycelium_wal::{FORMAT_VERSION, SegmentHeader, SegmentReader, SegmentWriter};

use super::{ArchiveOptions, Origin};
use crate::checkpoint::may_copy;
use crate::clock::Clock;
use crate::copy::{checksum_of_first, copy_pieces};
use crate::core::SealedLog;
use crate::database::Inner;
use crate::events::Event;
use crate::note::{self, Note};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Bytes that may lie behind a segment's records: those of the mark that names its successor.
const MOST_BEHIND: u64 = 20;

/// The archive of an open database's log.
pub(crate) struct Archiver {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    origin: Origin,
    most_waiting_bytes: u64,
    clock: Arc<dyn Clock>,
    /// Locked while a segment is put into the archive.
    waiting: Mutex<Waiting>,
    waiting_bytes: AtomicU64,
    pub(crate) segments: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) failures: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    /// Ascending.
    segments: VecDeque<Segment>,
    /// Whether the directory is there, without what an earlier process was writing.
    is_ready: bool,
    /// Why its directory is not synced any more.
    failure: Option<Error>,
}

/// A segment that recovery does not need any more.
#[derive(Clone)]
struct Segment {
    number: FileNumber,
    /// To the end of its records.
    bytes: u64,
    /// Syncs it; `None` if another process wrote it.
    log: Option<Arc<SealedLog>>,
}

impl Archiver {
    pub(crate) fn new(disk: Arc<dyn Disk>, options: &ArchiveOptions, origin: Origin, clock: Arc<dyn Clock>) -> Self {
        Self {
            disk,
            directory: options.directory.clone(),
            origin,
            most_waiting_bytes: options.most_waiting_bytes,
            clock,
            waiting: Mutex::new(Waiting::default()),
            waiting_bytes: AtomicU64::new(0),
            segments: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }

    /// The present time, as the log notes it.
    pub(crate) fn now(&self) -> u64 {
        note::now(&*self.clock)
    }

    /// Bytes of the log that the archive lacks and recovery does not need.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes.load(Ordering::Relaxed)
    }

    /// Whether more waits than may.
    #[inline]
    pub(crate) fn is_over_limit(&self) -> bool {
        self.waiting_bytes() > self.most_waiting_bytes
    }

    fn add(&self, segment: Segment) {
        self.waiting_bytes.fetch_add(segment.bytes, Ordering::Relaxed);
        self.waiting.lock().segments.push_back(segment);
    }

    /// Finds the segments that the archive lacks in the database's directory, in which `current` is the log begun last;
    /// gives their numbers.
    fn find_waiting(&self, directory: &Path, current: FileNumber) -> Result<HashSet<FileNumber>> {
        let path_of = |number: FileNumber| directory.join(FileKind::Wal.name(number));
        let header = |number: FileNumber| {
            SegmentReader::open(&*self.disk, &path_of(number), Some(number)).map(|reader| *reader.header())
        };
        let mut found = VecDeque::new();
        let (mut last, mut previous) = (current, header(current)?.previous);
        while let Some((number, bytes)) = previous.filter(|(number, _)| *number < last) {
            previous = match header(number) {
                Ok(header) => header.previous,
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                Err(error) if error.is_corruption() => {
                    tracing::warn!(%error, "a log segment is damaged, and archived as it is");
                    self.find_before(directory, number)?
                }
                Err(error) => return Err(error),
            };
            let len = self.disk.file_len(&path_of(number))?;
            if len < bytes {
                tracing::warn!(segment = number, len, bytes, "a log segment is cut short, and archived as it is");
            }
            found.push_front(Segment { number, bytes: bytes.min(len), log: None });
            last = number;
        }
        let numbers = found.iter().map(|segment| segment.number).collect();
        found.into_iter().for_each(|segment| self.add(segment));
        Ok(numbers)
    }

    /// The segment that `number` continues, whose own header does not tell, and how long it is.
    fn find_before(&self, directory: &Path, number: FileNumber) -> Result<Option<(FileNumber, u64)>> {
        let names = self.disk.list(directory)?;
        let segments = names.iter().filter_map(|name| match FileKind::parse(name) {
            Some((FileKind::Wal, segment)) => Some(segment),
            _ => None,
        });
        let Some(before) = segments.filter(|segment| *segment < number).max() else { return Ok(None) };
        let path = directory.join(FileKind::Wal.name(before));
        let mut reader = match SegmentReader::open(&*self.disk, &path, Some(before)) {
            // Nobody can tell where its records end.
            Err(error) if error.is_corruption() => return Ok(Some((before, self.disk.file_len(&path)?))),
            opened => opened?,
        };
        while reader.next()?.is_some() {}
        let is_it = reader.continued_by().is_none_or(|successor| successor == number);
        Ok(is_it.then(|| (before, reader.position())))
    }

    /// Steps 2 and 3.
    fn store(&self, source: &Path, segment: &Segment, waiting: &mut Waiting) -> Result<()> {
        if let Some(error) = &waiting.failure {
            return Err(error.duplicate());
        }
        if !waiting.is_ready {
            self.disk.create_directory(&self.directory)?;
            self.remove_unfinished()?;
            waiting.is_ready = true;
        }
        let place = self.directory.join(self.origin.name(segment.number));
        if self.disk.exists(&place)? {
            self.check_same(source, &place, segment.bytes)?;
        } else {
            self.place(source, &place, segment)?;
        }
        let synced = self.disk.sync_directory(&self.directory);
        synced.inspect_err(|error| {
            if error.kind() != ErrorKind::TooManyOpenFiles {
                waiting.failure = Some(error.duplicate());
            }
        })
    }

    fn place(&self, source: &Path, place: &Path, segment: &Segment) -> Result<()> {
        if let Some(log) = &segment.log {
            log.sync()?;
            match self.disk.hard_link(source, place) {
                Err(error) if may_copy(&error) => {}
                linked => return linked,
            }
        }
        let temporary = place.with_extension("tmp");
        let file = self.disk.open(source, AccessPattern::Sequential)?;
        copy_pieces(&*self.disk, segment.bytes, |at, piece| file.read_at(at, piece), &temporary, |_| {})?;
        self.disk.rename(&temporary, place)
    }

    /// Fails unless the archive has this segment. Behind its records either may have the mark of its successor.
    fn check_same(&self, source: &Path, place: &Path, bytes: u64) -> Result<()> {
        let archived = self.disk.open(place, AccessPattern::Sequential)?;
        let file = self.disk.open(source, AccessPattern::Sequential)?;
        let is_same = archived.len().checked_sub(bytes).is_some_and(|behind| behind <= MOST_BEHIND)
            && checksum_of_first(&*archived, bytes)? == checksum_of_first(&*file, bytes)?;
        if is_same {
            return Ok(());
        }
        let message = "the archive has another log segment of this name: two copies of one database, made past it, \
                       need archives of their own";
        Err(Error::invalid(message).in_file(place))
    }

    /// Removes what was being copied when another process ended.
    fn remove_unfinished(&self) -> Result<()> {
        let prefix = self.origin.prefix();
        let names = self.disk.list(&self.directory)?;
        let mut unfinished = names.iter().filter(|name| name.starts_with(&prefix) && name.ends_with(".tmp"));
        unfinished.try_for_each(|name| self.disk.remove(&self.directory.join(name)))
    }
}

/// Begins a log segment; `next` is the next sequence number. If it will be archived, it is noted in it whose it is, and
/// that it follows on another is durable before that other waits for the archive: the chain would end at a segment
/// whose header a crash took. Before anything else is appended to it, that other is to be synced, or flushed to files:
/// recovery takes what is synced of a segment for a sign that the one before it was.
pub(crate) fn begin_segment(
    disk: &dyn Disk,
    path: &Path,
    header: SegmentHeader,
    archive: Option<&Archiver>,
    next: SequenceNumber,
) -> Result<SegmentWriter> {
    let Some(archive) = archive else { return SegmentWriter::create(disk, path, header) };
    let Origin { identity, history } = archive.origin;
    let mut log = SegmentWriter::create_with_version(disk, path, header, FORMAT_VERSION)?;
    log.append(&[&Note::Begin { identity, history, milliseconds: archive.now() }.encode(next)])?;
    log.sync()?;
    Ok(log)
}

impl Inner {
    /// Does away with a segment whose generation is in files, durably.
    pub(crate) fn retire_segment(&self, log: &Arc<SealedLog>) {
        match &self.archive {
            None => self.remove_segment(log.number),
            Some(archive) => {
                archive.add(Segment { number: log.number, bytes: log.bytes, log: Some(log.clone()) });
                // It is told, and tried again.
                drop(self.archive_waiting());
            }
        }
    }

    /// Those segments older than the log begun last, `current`, that are still to be archived.
    pub(crate) fn find_unarchived(&self, current: FileNumber) -> Result<HashSet<FileNumber>> {
        self.archive.as_ref().map_or_else(|| Ok(HashSet::new()), |a| a.find_waiting(&self.directory, current))
    }

    /// Archives all segments that wait, up to the first that fails.
    pub(crate) fn archive_waiting(&self) -> Result<()> {
        let Some(archive) = &self.archive else { return Ok(()) };
        let mut waiting = archive.waiting.lock();
        while let Some(segment) = waiting.segments.front().cloned() {
            let source = self.directory.join(FileKind::Wal.name(segment.number));
            if let Err(error) = archive.store(&source, &segment, &mut waiting) {
                tracing::warn!(%error, "cannot archive a log segment");
                archive.failures.fetch_add(1, Ordering::Relaxed);
                self.emit(|| Event::ArchiveFailed { segment: segment.number, message: error.to_string() });
                return Err(error);
            }
            waiting.segments.pop_front();
            archive.waiting_bytes.fetch_sub(segment.bytes, Ordering::Relaxed);
            archive.segments.fetch_add(1, Ordering::Relaxed);
            archive.bytes.fetch_add(segment.bytes, Ordering::Relaxed);
            self.remove_segment(segment.number);
            self.emit(|| Event::SegmentArchived { segment: segment.number, bytes: segment.bytes });
        }
        Ok(())
    }

    /// Archives what waits, or refuses to let more of it come.
    #[cold]
    pub(crate) fn make_archive_room(&self) -> Result<()> {
        self.archive_waiting().map_err(|error| {
            let message = "the archive does not take the log, of which more waits for it than may";
            Error::new(error.kind(), message).caused_by(error.to_string())
        })
    }

    fn remove_segment(&self, number: FileNumber) {
        if let Err(error) = self.disk.remove(&self.directory.join(FileKind::Wal.name(number))) {
            // The manifest says that the segment is not needed: it goes at the next open.
            tracing::warn!(%error, "cannot remove a log segment that is not needed");
        }
    }
}
