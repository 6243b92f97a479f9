//! The log in a salvage.
//!
//! 1. Look at the log as recovery does: whether it is torn as a crash leaves it, or something is lost.
//! 2. Copy its records, up to the first that cannot be read, into one segment of the new database. Records are batches:
//!    of each all operations are taken or none. Whoever opens the new database replays them.
//! 3. Of tables with a merge operator leave out operations on lost keys (`files`): the record becomes one for each
//!    stretch of what is left, so that operations keep their sequence numbers.
//!
//! What follows a gap is part of no state that the database was in, and is not copied. Nor is what follows a change
//! that only a lost edit of the manifest had: a table that was made or put in another's place, or a bulk load.

use std::path::Path;

use mycelium_base::{EntryRef, Error, FileKind, FileNumber, Operation, Result, SequenceNumber, TableId};
use mycelium_manifest::{FileNumbers, Manifest, ManifestState};
use mycelium_vfs::Disk;
use mycelium_wal::{RecoveryMode, SegmentHeader, SegmentWriter, replay};

use super::{LeftOut, Salvage};
use crate::log_record::{HEAD_LEN, encode_head};
use crate::operations::{Operations, encode_operation};
use crate::recover::{check_tables_of, missing_segment, numbered};
use crate::verify::verify_record;

/// The log of the new database.
pub(super) struct SavedLog {
    /// Its segment; 0 if there is no log.
    pub(super) number: FileNumber,
    /// The newest sequence number in it.
    pub(super) last_sequence: SequenceNumber,
}

impl Salvage<'_> {
    /// Steps 1 to 3, for the log that `state` needs.
    pub(super) fn salvage_log(&mut self, state: &ManifestState, left_out: &LeftOut) -> Result<SavedLog> {
        let segments = self.needed_log(state)?;
        match replay(self.disk, self.from, &segments, RecoveryMode::TolerateTornTail, &mut |_, _, _| Ok(())) {
            Ok(replayed) => {
                let torn =
                    replayed.torn.map(|(path, at, reason)| format!("{} at offset {at}: {reason}", path.display()));
                self.report.torn_tail = torn;
            }
            Err(error) => self.lose_log(error),
        }
        let mut copy = LogCopy::new(self.disk, self.to, &self.numbers, left_out);
        let (mut last_sequence, mut failed) = (0, None);
        let (from, lost_edits) = (self.from, self.report.lost_edits);
        let replayed =
            replay(self.disk, from, &segments, RecoveryMode::PointInTime, &mut |segment, offset, payload| {
                let locate = |error: Error| error.in_file(from.join(FileKind::Wal.name(segment))).at(offset);
                let before = state.last_sequence.max(last_sequence);
                check_follows(payload, state, lost_edits.then_some(before)).map_err(locate)?;
                verify_record(payload, &mut last_sequence).map_err(locate)?;
                copy.append(payload).inspect_err(|error| failed = Some(error.duplicate()))
            });
        if let Some(error) = failed {
            return Err(error);
        }
        let (number, records, left_out) = copy.finish()?;
        self.report.log_records = records;
        self.report.left_out += left_out;
        if let Err(error) = replayed {
            self.lose_log(error);
        }
        Ok(SavedLog { number, last_sequence })
    }

    /// The segments to replay. If the oldest is missing there are none: what lies behind a gap is part of no prefix.
    fn needed_log(&mut self, state: &ManifestState) -> Result<Vec<FileNumber>> {
        let logs = numbered(self.disk, self.from)?.into_iter().filter(|(kind, _)| *kind == FileKind::Wal);
        let mut segments: Vec<FileNumber> = logs.map(|(_, number)| number).collect();
        let oldest = state.oldest_wal;
        // A checkpoint of an older version names the log of its source.
        if segments.is_empty() && Manifest::is_as_started(self.disk, self.from).unwrap_or(false) {
            return Ok(segments);
        }
        segments.retain(|number| *number >= oldest);
        segments.sort_unstable();
        let found = segments.first().copied();
        if oldest != 0 && found != Some(oldest) {
            self.lose_log(missing_segment(self.from, oldest, found));
            segments.clear();
        }
        Ok(segments)
    }

    /// Notes that the log ends before its end; the first reason counts.
    fn lose_log(&mut self, error: Error) {
        if !self.report.lost_log {
            self.report.lost_log = true;
            self.report.note(None, error);
        }
    }
}

/// Fails if a record was written when the manifest had more edits than `state` has; `before` is the sequence number
/// that it follows, if some of them cannot be read. Of all that has such a number bulk loads alone are not in the log.
fn check_follows(payload: &[u8], state: &ManifestState, before: Option<SequenceNumber>) -> Result<()> {
    let (first, _, _) = Operations::of_record(payload)?;
    if let Some(before) = before
        && first > before.saturating_add(1)
    {
        let error = Error::corruption("the log follows a bulk load that the manifest does not have any more");
        return Err(error.expected(format_args!("sequence number {}", before.saturating_add(1)), first));
    }
    check_tables_of(payload, state.next_table_id)
}

/// The segment of the new database, which is begun with its first record.
struct LogCopy<'a> {
    disk: &'a dyn Disk,
    to: &'a Path,
    numbers: &'a FileNumbers,
    left_out: &'a LeftOut,
    writer: Option<SegmentWriter>,
    head: Vec<u8>,
    body: Vec<u8>,
    records: u64,
    operations_left_out: u64,
}

impl<'a> LogCopy<'a> {
    fn new(disk: &'a dyn Disk, to: &'a Path, numbers: &'a FileNumbers, left_out: &'a LeftOut) -> Self {
        Self {
            disk,
            to,
            numbers,
            left_out,
            writer: None,
            head: Vec::with_capacity(HEAD_LEN),
            body: Vec::new(),
            records: 0,
            operations_left_out: 0,
        }
    }

    fn is_left_out(&self, table: TableId, entry: EntryRef<'_>) -> bool {
        let ranges = self.left_out.get(&table).filter(|_| entry.trailer.operation() != Operation::RangeDelete);
        ranges.is_some_and(|ranges| ranges.iter().any(|range| range.contains(entry.key)))
    }

    /// Copies a record that was verified.
    fn append(&mut self, payload: &[u8]) -> Result<()> {
        let (mut first, _, mut operations) = Operations::of_record(payload)?;
        let mut count = 0;
        self.body.clear();
        while let Some((table, entry)) = operations.next()? {
            if self.is_left_out(table, entry) {
                self.operations_left_out += 1;
                self.end_stretch(first, count)?;
                (first, count) = (entry.trailer.sequence() + 1, 0);
            } else {
                encode_operation(&mut self.body, table, entry.trailer.operation(), entry.key, entry.value);
                count += 1;
            }
        }
        self.records += 1;
        self.end_stretch(first, count)
    }

    /// Writes the operations gathered, if there are any.
    fn end_stretch(&mut self, first: SequenceNumber, count: u32) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let number = self.numbers.allocate();
                let path = self.to.join(FileKind::Wal.name(number));
                let header = SegmentHeader { number, previous: None };
                self.writer.insert(SegmentWriter::create(self.disk, &path, header)?)
            }
        };
        encode_head(&mut self.head, first, count);
        writer.append(&[&self.head, &self.body])?;
        self.body.clear();
        Ok(())
    }

    /// Makes the segment durable: its number, or 0 if there is none, records copied, and operations left out.
    fn finish(self) -> Result<(FileNumber, u64, u64)> {
        let Self { writer, records, operations_left_out, .. } = self;
        let Some(mut writer) = writer else { return Ok((0, records, operations_left_out)) };
        writer.sync()?;
        Ok((writer.number(), records, operations_left_out))
    }
}
