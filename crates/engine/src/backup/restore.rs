//! Restores a database to a moment between two backups, with the archive of its log (`archive`).
//!
//! 1. Choose the newest backup at or before the moment. Find the log that follows it, before anything is copied.
//! 2. Put a file `RESTORING` into the new directory, durably; restore the backup beside it; open the database. Nobody
//!    else opens it as long as that file is there: what a crash leaves is not what was asked for. No row expires in it.
//! 3. Commit the log's batches again, one by one, from the first sequence number that the backup lacks on. They get the
//!    numbers that they had, or it is an error. Indexes are those of the backup: patches are completed for them, and
//!    unique ones are asked.
//! 4. Stop before the first batch that goes beyond the moment. Flush, close, and remove the file.
//!
//! Refused is what the log cannot tell: a sequence number that it does not have, as that of a bulk load; a table that
//! the backup does not have, which was made later or whose columns changed; a row that an index of the backup does not
//! take; a segment that is missing or damaged; an end before the number that was asked for. Or, where that is allowed,
//! the restore ends there and says why. Tables that were dropped later are there with all that was written to them;
//! indexes, views and layouts are those of the backup.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use mycelium_base::{Error, ErrorKind, Result, SequenceNumber, TableId};
use mycelium_manifest::Manifest;
use mycelium_vfs::Disk;
use mycelium_wal::SegmentReader;

use super::Backups;
use super::description::Description;
use crate::archive::{Chain, Log, LogSegment, Origin};
use crate::copy::{check_vacant, remove_copy};
use crate::database::Database;
use crate::log_record::split_record;
use crate::note::{Note, milliseconds_of, time_of};
use crate::operations::Operations;
use crate::options::{Durability, Options};
use crate::recover::RESTORING;

/// After so many bytes within a log segment it is told how far the restore is.
const TOLD_EVERY: u64 = 1 << 20;

/// The moment that a database is restored to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum RestorePoint {
    /// The end of the log.
    #[default]
    End,
    /// This sequence number: everything up to it, and nothing after. Of a batch that goes beyond it nothing.
    Sequence(SequenceNumber),
    /// This time, by the clock of the database that wrote ([`Options::clock`]): nothing that was committed a second or
    /// more after it, and everything that was committed before.
    Time(SystemTime),
}

/// How a database is restored to a moment between two backups.
#[derive(Clone, Default)]
pub struct RestoreOptions {
    /// To which moment. Default: the end of the log.
    pub until: RestorePoint,
    /// The backup to begin with. Default: the newest at or before the moment that an archived log follows.
    pub backup: Option<u64>,
    /// The directory of the database itself, of whose log the newest part is not archived yet; it may be in use.
    /// Default: the archive alone.
    pub log: Option<PathBuf>,
    /// End before what the log cannot tell, and say why, where else nothing would be restored. Default: false.
    pub as_far_as_possible: bool,
    /// How the new database is opened to write the log to it: merge operators and transformers that its tables name,
    /// and the memory and threads that it may take. Its disk is that of the backups.
    pub database: Options,
}

/// What was restored.
#[derive(Debug)]
pub struct RestoreSummary {
    /// The number of the backup.
    pub backup: u64,
    /// The newest sequence number: everything committed up to it is there, and nothing after.
    pub sequence: SequenceNumber,
    /// The newest time that backup and log tell of what is there: all of it was committed less than a second after
    /// that.
    pub time: SystemTime,
    /// Segments of the log that were read.
    pub segments: u64,
    /// Batches that were committed again.
    pub batches: u64,
    /// Why it ends before the moment that was asked for, if that was allowed.
    pub ended_by: Option<Error>,
    /// Where the log of the database itself ends in a torn record that was never acknowledged, as a crash leaves it.
    pub torn_tail: Option<String>,
}

/// What was removed from an archive.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PrunedArchive {
    /// Log segments.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Backups {
    /// Makes a database in `directory` as it was at a moment: of a backup, and what `archive` has of the log from there
    /// on ([`crate::Options::archive`]). `progress` is told the bytes of the backup copied and of the log read so far,
    /// and of how many. Durable when it returns.
    ///
    /// The backup is one that the process made which wrote the database ([`crate::Database::backup`]), with the
    /// archive. One of a database opened read-only, with what it had in its log alone, is not gone on from: that log
    /// may be lost.
    ///
    /// The log of bulk loads has only that they were, and of changes of tables nothing: a restore passes neither, and a
    /// backup made after them is what takes it on. Tables that were dropped since the backup are there, with what was
    /// written to them; indexes, views, layouts and [`crate::TableOptions::expiry`] are those of the backup.
    ///
    /// What is restored begins a history of its own. It may archive its log to the same directory. Of rows that have
    /// expired since, what [`Backups::restore`] says is true.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such backup, or none at or before the moment; if a segment of the log is
    /// missing, or it ends before the sequence number. [`ErrorKind::Unsupported`] for a bulk load, or a table that was
    /// made or had its columns changed since the backup, before the moment. [`ErrorKind::Corruption`] for damage to the
    /// log. [`ErrorKind::Duplicate`] and [`ErrorKind::InvalidArgument`] for a row that an index of the backup does not
    /// take. Otherwise as [`Backups::restore`], and as [`crate::Database::open`] and writes to it. What was made before
    /// an error is removed again; what a crash leaves cannot be opened.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use mycelium_engine::{ArchiveOptions, Backups, Database, Durability, Options, TableOptions};
    /// use mycelium_engine::{RestoreOptions, RestorePoint};
    /// # let disk: Arc<dyn mycelium_vfs::Disk> = Arc::new(mycelium_vfs::MemoryDisk::new());
    /// # let options = Options { disk: disk.clone(), ..Options::default() };
    /// let archived = Options { archive: Some(ArchiveOptions::new("archive")), ..options.clone() };
    /// let database = Database::open("example", archived)?;
    /// let table = database.create_table("kv", TableOptions::default())?;
    /// database.backup("backups")?;
    /// let wanted = table.put(b"key", b"right", Durability::Os)?;
    /// table.put(b"key", b"wrong", Durability::Os)?;
    /// database.flush()?;
    ///
    /// let until = RestorePoint::Sequence(wanted);
    /// let request = RestoreOptions { until, database: options.clone(), ..RestoreOptions::default() };
    /// let summary = Backups::open(disk, "backups")?.restore_to("archive", "restored", &request, |_, _| {})?;
    /// assert_eq!((summary.backup, summary.sequence), (1, wanted));
    /// let restored = Database::open("restored", options)?;
    /// assert_eq!(restored.table("kv")?.get(b"key")?.as_deref(), Some(&b"right"[..]));
    /// # Ok::<(), mycelium_engine::Error>(())
    /// ```
    pub fn restore_to(
        &self,
        archive: impl AsRef<Path>,
        directory: impl AsRef<Path>,
        request: &RestoreOptions,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<RestoreSummary> {
        let directory = directory.as_ref();
        check_vacant(&*self.disk, directory, "a database to be restored")?;
        let description = self.choose(request)?;
        let origin = Origin { identity: description.state.identity, history: description.state.history };
        let database = request.log.as_deref();
        let log = Log { disk: &*self.disk, origin, archive: archive.as_ref(), database };
        check_log(&log, description.number)?;
        let mut replay = Replay::new(&log, &description, request);
        replay.find()?;
        let backup: u64 = description.files().map(|file| file.size).sum();
        let total = backup + replay.bytes();
        self.disk.create_directory(directory)?;
        let filled = self.fill(directory, &description, &mut |copied, _| progress(copied, total));
        let mut tell = |read: u64| progress((backup + read).min(total), total);
        let restored = filled.and_then(|()| replay.run(&self.disk, directory, &mut tell));
        let finished = restored.and_then(|()| self.finish(directory));
        if let Err(error) = finished {
            remove_copy(&*self.disk, directory);
            if let Err(error) = self.disk.remove(&directory.join(RESTORING)) {
                tracing::warn!(%error, "cannot remove a file of a restore that was not completed");
            }
            return Err(error);
        }
        progress(total, total);
        Ok(replay.summary())
    }

    /// Removes what `archive` has of the log from before the oldest backup: nothing that a restore of one of the
    /// backups needs. Log of copies of the database of which there is no backup here stays.
    ///
    /// # Errors
    /// The error of a backup whose description cannot be read: nobody knows what it needs. [`ErrorKind::Locked`] if
    /// another process or thread changes the directory of backups; those of the disk: some may be removed then.
    pub fn prune_archive(&self, archive: impl AsRef<Path>) -> Result<PrunedArchive> {
        let archive = archive.as_ref();
        let _lock = self.lock()?;
        let mut oldest: BTreeMap<(u64, u64), SequenceNumber> = BTreeMap::new();
        for read in self.catalog()?.descriptions.into_values() {
            let state = read?.state;
            let sequence = oldest.entry((state.identity, state.history)).or_insert(state.last_sequence);
            *sequence = state.last_sequence.min(*sequence);
        }
        let mut pruned = PrunedArchive::default();
        for ((identity, history), sequence) in oldest {
            let origin = Origin { identity, history };
            let log = Log { disk: &*self.disk, origin, archive, database: None };
            let Some(needed) = log.oldest_needed(sequence + 1)? else { continue };
            for number in log.archived()?.into_iter().filter(|number| *number < needed) {
                let path = archive.join(origin.name(number));
                pruned.bytes += self.disk.file_len(&path)?;
                self.disk.remove(&path)?;
                pruned.segments += 1;
            }
        }
        Ok(pruned)
    }

    /// The backup that is named, or the newest at or before the moment.
    fn choose(&self, request: &RestoreOptions) -> Result<Description> {
        let is_before = |description: &Description| match request.until {
            RestorePoint::End => true,
            RestorePoint::Sequence(sequence) => description.state.last_sequence <= sequence,
            RestorePoint::Time(time) => description.time() <= time,
        };
        let may_begin = |description: &Description| is_before(description) && description.state.history != 0;
        let chosen = match request.backup {
            Some(number) => Some(self.description(number)?).filter(is_before),
            None => self.catalog()?.descriptions.into_values().rev().filter_map(Result::ok).find(may_begin),
        };
        chosen.ok_or_else(|| {
            let message = "there is no such backup at or before that moment that an archived log follows";
            Error::new(ErrorKind::NotFound, message).in_file(&self.directory)
        })
    }

    /// The backup itself, which nobody opens yet.
    fn fill(&self, directory: &Path, description: &Description, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        self.disk.create(&directory.join(RESTORING))?.sync()?;
        self.disk.sync_directory(directory)?;
        self.fill_restored(directory, description, progress).map(drop)
    }

    fn finish(&self, directory: &Path) -> Result<()> {
        self.disk.remove(&directory.join(RESTORING))?;
        self.disk.sync_directory(directory)
    }
}

/// Fails unless the backup belongs to a log that is archived, and the database beside it goes on with it.
fn check_log(log: &Log<'_>, backup: u64) -> Result<()> {
    if log.origin.history == 0 {
        let message = format!(
            "no archived log follows backup {backup}: the log of its database was not archived, or the backup has some of \
             it, being made of a database that was opened read-only"
        );
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    let Some(directory) = log.database else { return Ok(()) };
    let state = Manifest::read(log.disk, directory)?;
    if (Origin { identity: state.identity, history: state.history }) == log.origin {
        return Ok(());
    }
    Err(Error::invalid("the log is that of another database, or of a copy that goes on by itself").in_file(directory))
}

/// The log that follows a backup, committed again.
struct Replay<'a> {
    log: &'a Log<'a>,
    request: &'a RestoreOptions,
    /// Segments to be read, and why others cannot follow.
    chain: Option<Chain>,
    tables: BTreeSet<TableId>,
    backup: u64,
    /// The newest sequence number of the backup.
    start: SequenceNumber,
    last: SequenceNumber,
    /// The last time that was noted.
    milliseconds: u64,
    /// A bulk load that was noted, and may have taken this number.
    load: Option<(SequenceNumber, String)>,
    segments: u64,
    batches: u64,
    ended_by: Option<Error>,
    torn_tail: Option<String>,
}

/// Whether to go on.
enum Progress {
    GoesOn,
    IsThere,
}

impl<'a> Replay<'a> {
    fn new(log: &'a Log<'a>, description: &Description, request: &'a RestoreOptions) -> Self {
        let start = description.state.last_sequence;
        Self {
            log,
            request,
            chain: None,
            tables: description.state.tables.keys().copied().collect(),
            backup: description.number,
            start,
            last: start,
            milliseconds: milliseconds_of(description.time()),
            load: None,
            segments: 0,
            batches: 0,
            ended_by: None,
            torn_tail: None,
        }
    }

    /// Finds the segments, unless the backup is what was asked for.
    fn find(&mut self) -> Result<()> {
        if self.is_there() {
            return Ok(());
        }
        match self.log.segments_from(self.start + 1) {
            Ok(chain) => self.chain = Some(chain),
            Err(error) => self.end_or_fail(error)?,
        }
        Ok(())
    }

    /// Bytes of the segments that were found.
    fn bytes(&self) -> u64 {
        self.chain.iter().flat_map(|chain| &chain.segments).map(LogSegment::bytes).sum()
    }

    /// Commits what the segments have to the database in `directory`; `tell` is told the bytes of them read so far.
    fn run(&mut self, disk: &Arc<dyn Disk>, directory: &Path, tell: &mut dyn FnMut(u64)) -> Result<()> {
        let Some(chain) = self.chain.take() else { return Ok(()) };
        let options = Options {
            disk: disk.clone(),
            create_if_missing: false,
            read_only: false,
            archive: None,
            ..self.request.database.clone()
        };
        let database = Database::open_unfinished(directory, options)?;
        let replayed = self.replay(&database, chain, tell).and_then(|()| database.flush());
        let closed = database.close();
        replayed.and(closed)
    }

    fn replay(&mut self, database: &Database, chain: Chain, tell: &mut dyn FnMut(u64)) -> Result<()> {
        let mut before = 0_u64;
        for segment in &chain.segments {
            self.segments += 1;
            let (mut reader, path) = self.log.open(segment.number, segment.is_living)?;
            let mut within = |position: u64| tell(before + position);
            match self.replay_segment(database, &mut reader, &path, segment, &mut within)? {
                Ok(Progress::GoesOn) => {}
                Ok(Progress::IsThere) => return Ok(()),
                Err(error) => return self.end_or_fail(error),
            }
            before += segment.bytes();
            tell(before);
        }
        match chain.gap.or_else(|| self.missing_end()) {
            Some(error) => self.end_or_fail(error),
            None => Ok(()),
        }
    }

    /// Commits what a segment has; `tell` is told where it has come in it. The inner error is what the log cannot tell,
    /// the outer one any other.
    fn replay_segment(
        &mut self,
        database: &Database,
        reader: &mut SegmentReader,
        path: &Path,
        segment: &LogSegment,
        tell: &mut dyn FnMut(u64),
    ) -> Result<Result<Progress>> {
        let (end, mut told) = (segment.end, 0);
        while end.is_none_or(|end| reader.position() < end) {
            let Some(record) = reader.next()? else { break };
            let offset = record.offset;
            match self.take(record.payload) {
                Ok(Taken::Batch(first, count, body)) => {
                    if self.is_beyond(first, count) {
                        return Ok(Ok(Progress::IsThere));
                    }
                    if let Err(error) = self.commit(database, body, count)? {
                        return Ok(Err(error.in_file(path).at(offset)));
                    }
                }
                Ok(Taken::Nothing) => {}
                Ok(Taken::Later) => return Ok(Ok(Progress::IsThere)),
                Err(error) => return Ok(Err(error.in_file(path).at(offset))),
            }
            if self.is_there() {
                return Ok(Ok(Progress::IsThere));
            }
            if reader.position() - told >= TOLD_EVERY {
                told = reader.position();
                tell(told);
            }
        }
        let may_be_torn = segment.is_living && end.is_none();
        Ok(self.check_end(reader, path, end, may_be_torn).map(|()| Progress::GoesOn))
    }

    /// Fails if a segment is not as long as it should be.
    fn check_end(&mut self, reader: &SegmentReader, path: &Path, end: Option<u64>, may_be_torn: bool) -> Result<()> {
        match (end, reader.tear_error()) {
            (Some(end), _) if reader.position() == end => Ok(()),
            (None, None) => Ok(()),
            (None, Some(error)) if may_be_torn => {
                self.torn_tail = Some(error.to_string());
                Ok(())
            }
            (_, Some(error)) => Err(error),
            (Some(end), None) => Err(Error::corruption("the log segment is not as long as the next one says")
                .in_file(path)
                .at(reader.position())
                .expected(format_args!("{end} bytes"), reader.position())),
        }
    }

    /// Looks at a record: a note is noted, a batch that the backup lacks returned.
    fn take<'r>(&mut self, payload: &'r [u8]) -> Result<Taken<'r>> {
        let (first, count, body) = split_record(payload)?;
        if first <= self.start {
            if first + u64::from(count) > self.start + 1 {
                return Err(out_of_order(self.start + 1, first));
            }
            // The backup has it.
            self.check_owner(payload)?;
            return Ok(Taken::Nothing);
        }
        if first > self.last + 1 {
            return Err(self.missing_numbers(first));
        }
        if first <= self.last {
            return Err(out_of_order(self.last + 1, first));
        }
        // Who has a number that was noted for a load, or would have it next, shows that the load failed.
        self.load = None;
        match Note::of_record(payload)? {
            Some(Note::Load { table }) => self.load = Some((first, table.to_owned())),
            Some(Note::Begin { milliseconds, .. } | Note::Moment { milliseconds }) => {
                self.check_owner(payload)?;
                if matches!(self.request.until, RestorePoint::Time(time) if milliseconds > milliseconds_of(time)) {
                    return Ok(Taken::Later);
                }
                self.milliseconds = milliseconds.max(self.milliseconds);
            }
            None if count > 0 => return Ok(Taken::Batch(first, count, body)),
            None => {}
        }
        Ok(Taken::Nothing)
    }

    /// Fails if the record begins a segment of another log.
    fn check_owner(&self, payload: &[u8]) -> Result<()> {
        let Some(Note::Begin { identity, history, .. }) = Note::of_record(payload)? else { return Ok(()) };
        let (found, expected) = (Origin { identity, history }, self.log.origin);
        if found == expected {
            return Ok(());
        }
        Err(Error::corruption("the log segment is of another database, or of a copy that goes on by itself")
            .expected(expected.name(0), found.name(0)))
    }

    /// Commits a batch; the inner error is what the log cannot tell.
    fn commit(&mut self, database: &Database, body: &[u8], count: u32) -> Result<Result<()>> {
        let mut operations = Operations::new(body, self.last + 1, count);
        loop {
            match operations.next() {
                Ok(Some((table, _))) if self.tables.contains(&table) => {}
                Ok(Some((table, _))) => return Ok(Err(self.unknown_table(table))),
                Ok(None) => break,
                Err(error) => return Ok(Err(error)),
            }
        }
        let last = match database.inner.commit_checked((body, count), None, Durability::Buffered) {
            // An index of the backup does not take it: there was none any more.
            Err(error) if matches!(error.kind(), ErrorKind::Duplicate | ErrorKind::InvalidArgument) => {
                return Ok(Err(error));
            }
            committed => committed?,
        };
        self.last += u64::from(count);
        self.batches += 1;
        if last == self.last { Ok(Ok(())) } else { Err(out_of_order(self.last, last)) }
    }

    /// Whether all that was asked for is there.
    fn is_there(&self) -> bool {
        matches!(self.request.until, RestorePoint::Sequence(sequence) if self.last >= sequence)
    }

    /// Whether a batch goes beyond what was asked for.
    fn is_beyond(&self, first: SequenceNumber, count: u32) -> bool {
        let end = first + u64::from(count);
        matches!(self.request.until, RestorePoint::Sequence(sequence) if end > sequence.saturating_add(1))
    }

    /// What the end of the log lacks of what was asked for.
    fn missing_end(&self) -> Option<Error> {
        if self.load.as_ref().is_some_and(|(number, _)| *number == self.last + 1) {
            return Some(self.missing_numbers(self.last + 2));
        }
        match self.request.until {
            RestorePoint::Sequence(sequence) if self.last < sequence => {
                let error = Error::new(ErrorKind::NotFound, "the log ends before that sequence number");
                Some(error.in_file(self.log.archive).expected(sequence, self.last))
            }
            _ => None,
        }
    }

    /// The error of sequence numbers that the log does not have, before `next`.
    fn missing_numbers(&self, next: SequenceNumber) -> Error {
        let missing = self.last + 1;
        let what = match &self.load {
            Some((number, table)) if *number == missing => format!("a bulk load into table {table}"),
            _ => "a bulk load, or writes that a full disk took from the log".to_owned(),
        };
        let message = format!(
            "sequence number {missing} is not in the log: it is {what}; restore to the number before, or a backup made \
             after it"
        );
        Error::new(ErrorKind::Unsupported, message).expected(missing, next)
    }

    fn unknown_table(&self, table: TableId) -> Error {
        let message = format!(
            "sequence number {} is of table {table}, which backup {} does not have: it was made, or had its columns \
             changed, after it; restore to the number before, or a backup made after it",
            self.last + 1,
            self.backup
        );
        Error::new(ErrorKind::Unsupported, message)
    }

    /// Ends the restore before what the log cannot tell, if that is allowed.
    fn end_or_fail(&mut self, error: Error) -> Result<()> {
        if !self.request.as_far_as_possible {
            return Err(error);
        }
        self.ended_by = Some(error);
        Ok(())
    }

    fn summary(self) -> RestoreSummary {
        RestoreSummary {
            backup: self.backup,
            sequence: self.last,
            time: time_of(self.milliseconds),
            segments: self.segments,
            batches: self.batches,
            ended_by: self.ended_by,
            torn_tail: self.torn_tail,
        }
    }
}

/// What a record is to a restore.
enum Taken<'a> {
    /// A batch that the backup lacks: its first sequence number, its number of operations, and these.
    Batch(SequenceNumber, u32, &'a [u8]),
    /// Nothing to be committed.
    Nothing,
    /// It is later than the time that was asked for.
    Later,
}

fn out_of_order(expected: SequenceNumber, found: SequenceNumber) -> Error {
    Error::corruption("sequence numbers of the log do not follow on each other").expected(expected, found)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use mycelium_manifest::ManifestState;
    use mycelium_vfs::MemoryDisk;

    use super::*;
    use crate::log_record::encode_head;

    /// A record of one operation, which is not looked into.
    fn batch(first: SequenceNumber) -> Vec<u8> {
        let mut payload = Vec::new();
        encode_head(&mut payload, first, 1);
        payload.push(0);
        payload
    }

    #[test]
    fn a_restore_to_a_time_ends_at_the_first_note_of_a_later_one() {
        let (disk, origin) = (MemoryDisk::new(), Origin { identity: 1, history: 2 });
        let log = Log { disk: &disk, origin, archive: Path::new("/archive"), database: None };
        let state = ManifestState { identity: 1, history: 2, last_sequence: 3, ..ManifestState::default() };
        let until = RestorePoint::Time(UNIX_EPOCH + Duration::from_millis(5000));
        let request = RestoreOptions { until, ..RestoreOptions::default() };
        let mut replay = Replay::new(&log, &Description::new(7, 0, state), &request);
        let begin = |history| Note::Begin { identity: 1, history, milliseconds: 9000 }.encode(2);
        // What the backup has is passed over, whatever its time.
        assert!(matches!(replay.take(&begin(2)), Ok(Taken::Nothing)));
        assert!(matches!(replay.take(&batch(3)), Ok(Taken::Nothing)));
        assert!(replay.take(&begin(5)).is_err_and(|error| error.is_corruption()));
        let moment = |milliseconds| Note::Moment { milliseconds }.encode(4);
        assert!(matches!(replay.take(&moment(5000)), Ok(Taken::Nothing)));
        assert!(matches!(replay.take(&batch(4)), Ok(Taken::Batch(4, 1, [0]))));
        assert!(matches!(replay.take(&moment(5001)), Ok(Taken::Later)));
        assert!(replay.take(&batch(5)).is_err_and(|error| error.kind() == ErrorKind::Unsupported));
    }

    /// Its number was taken for one that the log lacks, though a later segment says that it comes next.
    #[test]
    fn a_bulk_load_that_failed_was_missed_at_the_end_of_the_log() {
        let (disk, origin) = (MemoryDisk::new(), Origin { identity: 1, history: 2 });
        let log = Log { disk: &disk, origin, archive: Path::new("/archive"), database: None };
        let state = ManifestState { identity: 1, history: 2, last_sequence: 3, ..ManifestState::default() };
        let request = RestoreOptions::default();
        let mut replay = Replay::new(&log, &Description::new(7, 0, state), &request);
        let load = Note::Load { table: "t" }.encode(4);
        assert!(matches!(replay.take(&load), Ok(Taken::Nothing)));
        assert!(replay.missing_end().is_some_and(|error| error.kind() == ErrorKind::Unsupported));
        let begin = |next| Note::Begin { identity: 1, history: 2, milliseconds: 9000 }.encode(next);
        assert!(matches!(replay.take(&begin(4)), Ok(Taken::Nothing)));
        assert!(replay.missing_end().is_none());
        assert!(matches!(replay.take(&load), Ok(Taken::Nothing)));
        assert!(replay.take(&begin(5)).is_err_and(|error| error.to_string().contains("bulk load into table t")));
    }
}
