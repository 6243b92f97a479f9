//! Replaying a chain of segments after a restart.
//!
//! 1. Read the headers. From the newest readable one walk the chain of predecessors back; a segment that the chain
//!    passes over was given up by an earlier recovery and is skipped.
//! 2. Replay the segments in order, each up to the length that its successor names.
//! 3. At the first record that does not verify (the *tear*), let the [`RecoveryMode`] decide. To tell a torn tail from
//!    lost data, look for a later record, in this segment or a following one, that testifies that the torn bytes had
//!    been synced. Since a segment is synced before the one that continues it, any synced byte of a later segment does.
//!    A segment that is missing between others is lost whatever they say: its name is persisted before a record is
//!    appended to it, so before the next one is begun, and names go from the oldest on. No crash takes it from the
//!    middle. Nor from the end, if the one before it says that it is there (its mark): that was written after the name
//!    was persisted.
//!
//! Nothing after a tear is ever applied: what is replayed is a prefix of what was appended.
//!
//! A log that another process is writing may be replayed in parts ([`replay_from`]): each begins where the one before
//! had come, and follows all of the above from there. The tail that is torn for one is whole for the next.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mycelium_base::{Error, ErrorKind, FileKind, FileNumber, Result};
use mycelium_vfs::{AccessPattern, Disk, ReadableFile};

use crate::format::{HEADER_LEN, RECORD_HEADER_LEN, RecordHeader, SegmentHeader};
use crate::reader::{SegmentPosition, SegmentReader, Tear, Window, read_header, tear_error};

/// What to do about a record that does not verify.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum RecoveryMode {
    /// Any tear is an error: for logs known to have been closed cleanly.
    Strict,
    /// A tear is what a crash leaves behind the last sync, and fine, unless a later record proves that the torn bytes
    /// had been synced: then acknowledged data are lost, which is a corruption error. So is a segment that is missing
    /// though another one continues it.
    #[default]
    TolerateTornTail,
    /// Stop at the first tear, whatever it means, and report it: salvages the longest consistent prefix.
    PointInTime,
}

/// What [`replay`] found.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ReplayReport {
    /// Records applied.
    pub records: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Where the log was torn, if it was: file, byte offset and reason.
    pub torn: Option<(PathBuf, u64, String)>,
    /// Segments after the tear, none of whose records were applied; oldest first. They should be removed, once a
    /// segment that continues the one before them is durable, or none of the log is needed any more.
    pub dropped_segments: Vec<FileNumber>,
    /// Segments that an earlier recovery had given up already; oldest first. They should be removed.
    pub superseded_segments: Vec<FileNumber>,
    /// Where the log ends now: the last segment of which anything is valid, and its valid length. The next segment must
    /// name it as its previous one ([`SegmentHeader::previous`]). `None` if no segment has a valid header.
    pub end: Option<(FileNumber, u64)>,
    /// The same for [`replay_from`], which goes on there.
    pub position: Option<SegmentPosition>,
}

/// What [`replay`] calls for every record, with the segment's number, the record's offset in it and the payload.
pub type Apply<'a> = dyn FnMut(FileNumber, u64, &[u8]) -> Result<()> + 'a;

/// Applies all records of `segments` (numbers, ascending; files named by [`FileKind::Wal`] in `directory`) in order.
///
/// The first segment of the list may
/// continue one that no longer exists; every other must continue its neighbour in the list, or one before that.
///
/// # Errors
/// Corruption as the mode demands; the first error of `apply`, unchanged; [`ErrorKind::Unsupported`] for a segment of a
/// newer format; [`ErrorKind::InvalidArgument`] if the numbers do not ascend; those of the disk. Records before the
/// error have been applied.
///
/// # Durability
/// Replaying makes nothing durable: after a crash of the process alone, what was replayed may exist only in the
/// operating system's cache. Persist its effect (as SSTs, or by appending it to a new log) before acknowledging a sync
/// of anything newer.
pub fn replay(
    disk: &dyn Disk,
    directory: &Path,
    segments: &[FileNumber],
    mode: RecoveryMode,
    apply: &mut Apply<'_>,
) -> Result<ReplayReport> {
    replay_from(disk, directory, (segments, None), mode, apply)
}

/// As [`replay`], of what was appended since the replay that had come to `from`: a position in the first of the
/// segments. With `None` it is the same.
///
/// # Errors
/// As [`replay`]. [`ErrorKind::Conflict`] if the log up to there is not what was replayed any more, for its writer took
/// something back or was followed by another: replay it from the first segment that is needed.
pub fn replay_from(
    disk: &dyn Disk,
    directory: &Path,
    (segments, from): (&[FileNumber], Option<&SegmentPosition>),
    mode: RecoveryMode,
    apply: &mut Apply<'_>,
) -> Result<ReplayReport> {
    if segments.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(Error::invalid("log segments must be given in ascending order"));
    }
    let mut report = ReplayReport::default();
    let opened = segments.iter().map(|&n| Segment::open(disk, directory, n, mode)).collect::<Result<Vec<_>>>()?;
    let chain = link(opened, &mut report.superseded_segments);
    if let Some(from) = from {
        check_begins_with(&chain, from).map_err(|error| error.in_file(directory))?;
        report.position = Some(*from);
    }
    for (i, segment) in chain.iter().enumerate() {
        let from = from.filter(|_| i == 0);
        let stop = match replay_segment(segment, from, &mut report, apply)? {
            Ending::ContinuedBy(number) if !segments.contains(&number) => {
                segment.stop_before_missing(directory, number)
            }
            Ending::Whole | Ending::ContinuedBy(_) => continue,
            Ending::Torn(tear) => segment.stop_at(tear),
        };
        let Stop { path, tear, is_segment_missing } = stop;
        let loses_synced_data = match mode {
            RecoveryMode::Strict => return Err(tear_error(&path, &tear)),
            RecoveryMode::PointInTime => None,
            RecoveryMode::TolerateTornTail if is_segment_missing => return Err(tear_error(&path, &tear)),
            RecoveryMode::TolerateTornTail => find_testimony(&chain[i..], tear.offset)?,
        };
        if let Some((witness, offset)) = loses_synced_data {
            return Err(Error::corruption(format!(
                "acknowledged data lost ({}); they were synced before the record at offset {offset} of segment \
                 {witness} was appended",
                tear.reason
            ))
            .in_file(&path)
            .at(tear.offset));
        }
        report.torn = Some((path, tear.offset, tear.reason));
        report.dropped_segments = chain[i + 1..].iter().map(|s| s.number).collect();
        break;
    }
    Ok(report)
}

/// Fails if the chain does not begin with the segment that was read before.
fn check_begins_with(chain: &[Segment], from: &SegmentPosition) -> Result<()> {
    match chain.first() {
        Some(segment) if segment.number == from.number() && segment.header.is_ok() => Ok(()),
        first => {
            let found = first.map_or_else(|| "no log".to_owned(), |segment| format!("segment {}", segment.number));
            let error = Error::new(ErrorKind::Conflict, "the log does not begin with the segment that was read before");
            Err(error.expected(format_args!("segment {}", from.number()), found))
        }
    }
}

/// How the records of a segment end.
enum Ending {
    /// Where the file ends, or the successor says.
    Whole,
    /// Before that.
    Torn(Tear),
    /// With the mark that names the successor.
    ContinuedBy(FileNumber),
}

/// Where the log goes no further.
struct Stop {
    path: PathBuf,
    tear: Tear,
    is_segment_missing: bool,
}

/// A segment file and what is known about it before its records are read.
struct Segment {
    number: FileNumber,
    path: PathBuf,
    file: Arc<dyn ReadableFile>,
    /// The header, or why it cannot be used.
    header: Result<SegmentHeader, Tear>,
    /// The length that the successor's header gives.
    end: Option<u64>,
    /// Why it cannot follow the segment before it.
    gap: Option<Gap>,
}

/// What lies between a segment and the one before it.
enum Gap {
    /// The segment that it continues.
    Missing(FileNumber),
    /// It continues none, but there are older ones.
    Unlinked,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(number) => write!(f, "it continues segment {number}, which is missing"),
            Self::Unlinked => f.write_str("it continues no segment, but there are older ones"),
        }
    }
}

impl Segment {
    fn open(disk: &dyn Disk, directory: &Path, number: FileNumber, mode: RecoveryMode) -> Result<Self> {
        let path = directory.join(FileKind::Wal.name(number));
        let file = disk.open(&path, AccessPattern::Sequential)?;
        let header = match read_header(&*file, None) {
            // A whole header of another segment is no tear: somebody moved the file.
            Ok(header) if header.number != number && mode != RecoveryMode::PointInTime => {
                return Err(Error::corruption("the file holds another segment")
                    .in_file(path)
                    .at(12)
                    .expected(format_args!("segment {number}"), format_args!("segment {}", header.number)));
            }
            Ok(header) if header.number != number => {
                Err(Tear { offset: 0, reason: format!("the file holds segment {}", header.number) })
            }
            Ok(header) => Ok(header),
            Err(error) if error.is_corruption() => Err(Tear { offset: 0, reason: error.to_string() }),
            Err(error) => return Err(error.in_file(path)),
        };
        Ok(Self { number, path, file, header, end: None, gap: None })
    }

    fn stop_at(&self, tear: Tear) -> Stop {
        Stop { path: self.path.clone(), tear, is_segment_missing: matches!(self.gap, Some(Gap::Missing(_))) }
    }

    /// A segment is missing that this one says continues it.
    fn stop_before_missing(&self, directory: &Path, number: FileNumber) -> Stop {
        let reason = format!("the log segment is missing, which continues segment {}", self.number);
        let path = directory.join(FileKind::Wal.name(number));
        Stop { path, tear: Tear { offset: 0, reason }, is_segment_missing: true }
    }

    /// The end of what belongs to the log, as far as known.
    fn readable_end(&self) -> u64 {
        self.end.unwrap_or(u64::MAX).min(self.file.len())
    }
}

/// Walks the chain from the newest segment back: sets `end` and `gap`, takes out the superseded ones.
fn link(mut segments: Vec<Segment>, superseded: &mut Vec<FileNumber>) -> Vec<Segment> {
    let mut chain: Vec<Segment> = Vec::with_capacity(segments.len());
    // The predecessor that the segment put into `chain` last asks for; `None` if its header cannot tell.
    let mut wanted: Option<(FileNumber, u64)> = None;
    while let Some(mut segment) = segments.pop() {
        if let Some((number, end)) = wanted {
            if segment.number > number {
                superseded.push(segment.number);
                continue;
            }
            if segment.number == number {
                segment.end = Some(end);
            } else if let Some(newer) = chain.last_mut() {
                newer.gap = Some(Gap::Missing(number));
            }
        }
        wanted = match &segment.header {
            Ok(SegmentHeader { previous: None, .. }) if !segments.is_empty() => {
                segment.gap = Some(Gap::Unlinked);
                None
            }
            Ok(header) => header.previous,
            Err(_) => None,
        };
        chain.push(segment);
    }
    chain.reverse();
    superseded.reverse();
    chain
}

/// Applies the records of one segment, those behind `from` if it is given.
fn replay_segment(
    segment: &Segment,
    from: Option<&SegmentPosition>,
    report: &mut ReplayReport,
    apply: &mut Apply<'_>,
) -> Result<Ending> {
    if let Some(gap) = &segment.gap {
        return Ok(Ending::Torn(Tear { offset: 0, reason: gap.to_string() }));
    }
    let header = match &segment.header {
        Ok(header) => *header,
        Err(tear) => return Ok(Ending::Torn(tear.clone())),
    };
    let mut reader = SegmentReader::with_header(segment.file.clone(), &segment.path, header, segment.end);
    if let Some(from) = from {
        reader.go_on_from(from).map_err(|e| e.in_file(&segment.path))?;
    }
    while let Some(record) = reader.next().map_err(|e| e.in_file(&segment.path))? {
        apply(segment.number, record.offset, record.payload)?;
        report.records += 1;
        report.bytes += record.payload.len() as u64;
    }
    report.end = Some((segment.number, reader.position()));
    report.position = Some(reader.to_go_on());
    Ok(match (reader.tear(), reader.continued_by()) {
        (Some(tear), _) => Ending::Torn(tear.clone()),
        (None, Some(number)) => Ending::ContinuedBy(number),
        (None, None) => Ending::Whole,
    })
}

/// Looks for a record proving that the first segment was synced beyond `torn_at`: its segment and offset.
fn find_testimony(segments: &[Segment], torn_at: u64) -> Result<Option<(FileNumber, u64)>> {
    for (i, segment) in segments.iter().enumerate() {
        let lost_from = if i == 0 { torn_at } else { 0 };
        let found = find_synced_record(segment, lost_from).map_err(|e| e.in_file(&segment.path))?;
        if let Some(offset) = found {
            return Ok(Some((segment.number, offset)));
        }
    }
    Ok(None)
}

/// The offset of a valid record of the segment testifying that bytes beyond `lost_from` were synced.
///
/// Looks at every offset, because the records between may be gone. An offset is worth a checksum only if its length
/// fits the file and its `unsynced` makes it a witness, which bytes that are no record header rarely do; should a file
/// be made of such bytes, the work is cut off and the doubt reported.
fn find_synced_record(segment: &Segment, lost_from: u64) -> Result<Option<u64>> {
    let end = segment.readable_end();
    let mut window = Window::new(segment.file.clone());
    let mut verifier = Window::new(segment.file.clone());
    let mut budget = end.saturating_mul(64).saturating_add(64 << 20);
    let mut offset = lost_from.max(HEADER_LEN as u64);
    while offset + (RECORD_HEADER_LEN as u64) < end {
        let piece = window.from(offset, RECORD_HEADER_LEN)?;
        let usable = ((end - offset).min(piece.len() as u64) as usize + 1).saturating_sub(RECORD_HEADER_LEN);
        for at in 0..usable {
            let header = RecordHeader::decode(&piece[at..at + RECORD_HEADER_LEN]);
            if !header.plausible() {
                continue;
            }
            let candidate = offset + at as u64;
            let fits = u64::from(header.length) <= end - candidate - RECORD_HEADER_LEN as u64;
            if !fits || u64::from(header.unsynced) > candidate || header.synced_prefix(candidate) <= lost_from {
                continue;
            }
            if verifier.checksum(segment.number, candidate, header)? == header.checksum {
                return Ok(Some(candidate));
            }
            budget = match budget.checked_sub(u64::from(header.length)) {
                Some(left) => left,
                None => {
                    return Err(Error::new(
                        ErrorKind::Corruption,
                        "cannot decide whether the torn bytes had been synced: too much there looks like records",
                    )
                    .at(lost_from));
                }
            };
        }
        offset += usable.max(1) as u64;
    }
    Ok(None)
}
