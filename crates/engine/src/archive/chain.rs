//! Finds the log that follows a backup: in an archive, and in the directory of a database that goes on with it.
//!
//! 1. List the segments of the database's directory first, then those of the archive: one that is archived meanwhile is
//!    in the second list.
//! 2. From the newest back, read each segment's header and the sequence number of its first record, down to the one
//!    that has, or would have, the number that is asked for.
//! 3. From there on follow the chain: after a segment comes the newest that says it continues it, for a recovery that
//!    gave up a segment began a newer one in its place. What the chain does not reach, though it is newer, is behind a
//!    gap.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use mycelium_base::{Error, ErrorKind, FileKind, FileNumber, Result, SequenceNumber};
use mycelium_vfs::Disk;
use mycelium_wal::SegmentReader;

use super::Origin;
use crate::log_record::split_record;

/// Where a log is.
pub(crate) struct Log<'a> {
    pub(crate) disk: &'a dyn Disk,
    pub(crate) origin: Origin,
    pub(crate) archive: &'a Path,
    /// The directory of the database whose log it is.
    pub(crate) database: Option<&'a Path>,
}

/// A segment of a log.
#[derive(Clone, Debug)]
pub(crate) struct LogSegment {
    pub(crate) number: FileNumber,
    /// The segment that it continues, and to what length.
    previous: Option<(FileNumber, u64)>,
    /// The sequence number of its first record, if it has one.
    first: Option<SequenceNumber>,
    /// Whether it is in the database's directory alone: a recovery may still need it, and a crash have torn it.
    pub(crate) is_living: bool,
    /// The length that its successor says it has.
    pub(crate) end: Option<u64>,
    /// That of its file when it was found.
    len: u64,
}

impl LogSegment {
    /// Bytes that were to be read of it when it was found.
    pub(crate) fn bytes(&self) -> u64 {
        self.end.map_or(self.len, |end| end.min(self.len))
    }
}

/// The segments from a sequence number on, as far as there is no gap.
pub(crate) struct Chain {
    pub(crate) segments: Vec<LogSegment>,
    /// Why there are others that cannot follow.
    pub(crate) gap: Option<Error>,
}

/// Segments by number, and those that cannot be read.
#[derive(Default)]
struct Found {
    /// Ascending, once all are found.
    segments: Vec<LogSegment>,
    broken: BTreeMap<FileNumber, Error>,
}

impl Log<'_> {
    /// The segments that hold everything from `next` on.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if they begin after it, or there are none; [`ErrorKind::Corruption`] if it is a damaged
    /// one that they should begin with; those of the disk.
    pub(crate) fn segments_from(&self, next: SequenceNumber) -> Result<Chain> {
        let Found { segments, mut broken } = self.find(next)?;
        let Some(start) = segments.first().filter(|start| start.first.is_some_and(|first| first <= next)) else {
            let message = format!("the log is not archived from sequence number {next} on");
            let error = match (broken.pop_first(), segments.first()) {
                (Some((_, error)), _) => error,
                (None, None) => Error::new(ErrorKind::NotFound, format!("{message}: there is none of this history")),
                (None, Some(oldest)) => {
                    let found = format!("segment {} from {} on", oldest.number, oldest.first.unwrap_or_default());
                    Error::new(ErrorKind::NotFound, message).expected(next, found)
                }
            };
            return Err(if error.file().is_some() { error } else { error.in_file(self.archive) });
        };
        let successors: HashMap<FileNumber, &LogSegment> =
            segments.iter().filter_map(|segment| Some((segment.previous?.0, segment))).collect();
        let mut chain = vec![start.clone()];
        let mut last = start;
        while let Some(&successor) = successors.get(&last.number).filter(|next| next.number > last.number) {
            if let Some(segment) = chain.last_mut() {
                segment.end = successor.previous.map(|(_, end)| end);
            }
            chain.push(successor.clone());
            last = successor;
        }
        let behind = segments.iter().find(|segment| segment.number > last.number);
        let broken = broken.into_iter().find(|(number, _)| *number > last.number);
        let gap = match (broken, behind) {
            (Some((number, error)), behind) if behind.is_none_or(|behind| number < behind.number) => Some(error),
            (_, behind) => behind.map(|behind| self.missing_before(behind)),
        };
        Ok(Chain { segments: chain, gap })
    }

    /// The oldest segment that a restore from `next` on needs.
    pub(crate) fn oldest_needed(&self, next: SequenceNumber) -> Result<Option<FileNumber>> {
        let found = self.find(next)?;
        let start = found.segments.first().filter(|start| start.first.is_some_and(|first| first <= next));
        Ok(start.map(|start| start.number))
    }

    /// The numbers of the archived segments; none where nothing was archived yet.
    pub(crate) fn archived(&self) -> Result<Vec<FileNumber>> {
        if !self.disk.exists(self.archive)? {
            return Ok(Vec::new());
        }
        Ok(self.disk.list(self.archive)?.iter().filter_map(|name| self.origin.parse(name)).collect())
    }

    /// Opens a segment. One that has been archived since it was found is opened there.
    pub(crate) fn open(&self, number: FileNumber, is_living: bool) -> Result<(SegmentReader, PathBuf)> {
        let open = |path: PathBuf| SegmentReader::open(self.disk, &path, Some(number)).map(|reader| (reader, path));
        let archived = self.archive.join(self.origin.name(number));
        match self.database.filter(|_| is_living) {
            Some(database) => match open(database.join(FileKind::Wal.name(number))) {
                Err(error) if error.kind() == ErrorKind::NotFound => open(archived),
                opened => opened,
            },
            None => open(archived),
        }
    }

    /// Step 2: those from the newest back to the one that has `next`, or all.
    fn find(&self, next: SequenceNumber) -> Result<Found> {
        let mut places = BTreeMap::new();
        if let Some(database) = self.database {
            for name in self.disk.list(database)? {
                if let Some((FileKind::Wal, number)) = FileKind::parse(&name) {
                    places.insert(number, true);
                }
            }
        }
        places.extend(self.archived()?.into_iter().map(|number| (number, false)));
        let mut found = Found::default();
        for (&number, &is_living) in places.iter().rev() {
            match self.head_of(number, is_living) {
                Ok(segment) => {
                    let is_start = segment.first.is_some_and(|first| first <= next);
                    found.segments.push(segment);
                    if is_start {
                        break;
                    }
                }
                // A crash may leave one that has no header yet.
                Err(error) if error.is_corruption() && is_living => {}
                Err(error) if error.is_corruption() => drop(found.broken.insert(number, error)),
                Err(error) => return Err(error),
            }
        }
        found.segments.reverse();
        Ok(found)
    }

    fn head_of(&self, number: FileNumber, is_living: bool) -> Result<LogSegment> {
        let (mut reader, path) = self.open(number, is_living)?;
        let (previous, len) = (reader.header().previous, reader.file().len());
        let first = match reader.next()? {
            Some(record) => Some(split_record(record.payload).map_err(|e| e.in_file(&path).at(record.offset))?.0),
            None if is_living => None,
            None => match reader.tear_error() {
                Some(error) => return Err(error),
                None => None,
            },
        };
        Ok(LogSegment { number, previous, first, is_living, end: None, len })
    }

    /// The error of a segment that nothing before it leads to.
    fn missing_before(&self, behind: &LogSegment) -> Error {
        let name = self.origin.name(behind.number);
        match behind.previous {
            Some((number, _)) => {
                let missing = self.origin.name(number);
                let message = format!("log segment {number}, which segment {} continues, is missing", behind.number);
                Error::new(ErrorKind::NotFound, message).in_file(self.archive.join(&missing)).expected(missing, name)
            }
            None => {
                let message =
                    format!("log segment {} continues none: what was in the log before is lost", behind.number);
                Error::new(ErrorKind::NotFound, message).in_file(self.archive.join(name))
            }
        }
    }
}
