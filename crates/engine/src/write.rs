//! The write path: group commit into one log, then the memtables.
//!
//! 1. A writer that finds the commit lock free commits its own batch.
//! 2. One that does not leaves a copy of its batch in the queue and waits for the lock. Whoever gets it next, the
//!    leader, commits all batches queued by then as one group; the others find theirs done. A transaction's batch
//!    brings its [`Precondition`]: the leader checks it against everything committed and against the batches before it
//!    in the group. A batch whose precondition does not hold is left out, and its writer told.
//! 3. A commit makes room (below), appends one log record per batch, flushes or syncs the log once as the strongest
//!    durability of the group asks, inserts into the memtables, and then publishes the last sequence number: readers
//!    see all of a batch or nothing. What the batch derives for indexes (index/derive.rs) is found out before it is
//!    logged, and inserted with it. One that was prepared for other indexes than there are now is left out, and
//!    prepared again by its writer (index/indexed.rs).
//!    An archived log is told the time now and then (note.rs).
//! 4. Making room: if the active generation of memtables has four fifths of the memory budget, it is sealed and a new
//!    log segment begins, and what tables had in it that were dropped counts as well; a writer waits while active and
//!    sealed generations together exceed the budget. It is slowed or stopped while a table has too many level-0 runs or
//!    too much compaction debt (see `stall`).
//! 5. A table has a memtable of its own from its first write in a generation on, and so have its indexes then; until
//!    that, all tables share one that is empty. So a generation costs the tables that are written to, in memory and in
//!    the work of sealing and flushing it, however many others there are.
//!
//! Failures: a panic of a user's transformer or merge operator latches, and is the error of all whose batch was not
//! committed. A record that cannot be handed over is taken back and its writers get the error; nothing of it is seen. A
//! failed sync, or a log that cannot be cut back, latches the database read-only: an fsync is never tried again. If a
//! failure also took back records of earlier `Buffered` writes, these are only in memory; the next write first has
//! their generation flushed, so that no later write can survive a crash that they do not.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mycelium_base::{
    EntryRef, Error, ErrorKind, FileKind, FileNumber, Operation, RangeDelete, Result, SequenceNumber, TableId,
};
use mycelium_encoding::PackedLayout;
use mycelium_memtable::{Memtable, MemtableOptions, MemtableWriter};
use mycelium_wal::{SegmentHeader, SegmentWriter};

use crate::archive::{Archiver, begin_segment};
use crate::batch::WriteBatch;
use crate::core::{Core, Generation, SealedLog, indexes_after};
use crate::database::Inner;
use crate::events::{Event, StallCause};
use crate::index::{DerivedAhead, DerivedBatch, IndexGeneration, WriteDerivers};
use crate::log_record::encode_head;
use crate::note::{self, Note};
use crate::operations::Operations;
use crate::options::{Background, Durability};
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, MutexGuard};
use crate::table::{TableShared, TableState};
use crate::transaction::Watches;

/// Everything that only the holder of the commit lock touches.
pub(crate) struct Writer {
    /// `None` in a database opened read-only.
    pub(crate) log: Option<SegmentWriter>,
    /// The tables that there are, and may be written to.
    pub(crate) tables: BTreeSet<TableId>,
    /// Of the active generation: those of tables that were written to, and of their indexes.
    memtables: BTreeMap<TableId, TableWriter>,
    pub(crate) last_sequence: SequenceNumber,
    /// Bytes of memory that these memtables take, and took of tables that were dropped: the log still has what was in
    /// them, and ends with the generation.
    generation_bytes: usize,
    /// Those of them that the first [`UNCOUNTED`] took before anything was in them.
    uncounted_bytes: usize,
    /// Whether a table was dropped in this generation that had been written to.
    has_forgotten: bool,
    /// How many memtables were made in this generation, and in the one before.
    made: usize,
    made_before: usize,
    /// Scratch for the heads of log records.
    head: Vec<u8>,
    /// Acknowledged `Buffered` records were taken back from the log: only memtables hold them.
    pub(crate) log_gap: bool,
    /// A segment that could not be begun was removed, and there was no descriptor to make that durable with.
    has_unsynced_removal: bool,
    /// The last time that was noted in the log, if it is archived.
    noted: Option<u64>,
    /// Feed the indexes' derived tables.
    pub(crate) derivers: WriteDerivers,
    /// Whether a table was dropped since the database was opened. There may be handles to it.
    has_dropped: bool,
}

/// What an empty memtable takes counts against the memory budget from this one of a generation on: a database of few
/// tables may have a small budget.
const UNCOUNTED: usize = 16;

impl Writer {
    pub(crate) fn new(log: Option<SegmentWriter>, last_sequence: SequenceNumber) -> Self {
        Self {
            log,
            tables: BTreeSet::new(),
            memtables: BTreeMap::new(),
            last_sequence,
            generation_bytes: 0,
            uncounted_bytes: 0,
            has_forgotten: false,
            made: 0,
            made_before: 0,
            log_gap: false,
            has_unsynced_removal: false,
            noted: None,
            head: Vec::new(),
            derivers: WriteDerivers::default(),
            has_dropped: false,
        }
    }

    /// The log being written.
    #[inline]
    pub(crate) fn log(&mut self) -> Result<&mut SegmentWriter> {
        self.log.as_mut().ok_or_else(|| Error::new(ErrorKind::ReadOnly, "the database was opened read-only"))
    }

    /// Notes the present time, `now`, in the log if it is due.
    fn note_time(&mut self, now: u64) -> Result<()> {
        if note::is_due(self.noted, now) {
            let note = Note::Moment { milliseconds: now }.encode(self.last_sequence + 1);
            self.log()?.append(&[&note])?;
            self.noted = Some(now);
        }
        Ok(())
    }

    /// Refuses a batch that names a table that was dropped: what it says of it would go nowhere. O(1) while none was.
    #[inline]
    fn check_tables(&self, body: &[u8], count: u32) -> Result<()> {
        if self.has_dropped { self.check_each_table(body, count) } else { Ok(()) }
    }

    #[cold]
    fn check_each_table(&self, body: &[u8], count: u32) -> Result<()> {
        let mut operations = Operations::new(body, 0, count);
        while let Some((table, _)) = operations.next()? {
            if !self.tables.contains(&table) {
                let message = "the batch names a table that was dropped, or whose columns changed since";
                return Err(Error::new(ErrorKind::NotFound, message));
            }
        }
        Ok(())
    }

    /// Inserts an entry; one of a table that was dropped after its record was logged goes nowhere.
    #[inline]
    fn insert(&mut self, core: &Mutex<Core>, table: TableId, entry: EntryRef<'_>) {
        let Some(writer) = self.memtables.get_mut(&table) else { return self.insert_first(core, table, entry) };
        let before = writer.memtable.memtable().memory_usage();
        writer.insert(entry);
        let after = writer.memtable.memtable().memory_usage();
        self.generation_bytes += after - before;
    }

    #[cold]
    fn insert_first(&mut self, core: &Mutex<Core>, table: TableId, entry: EntryRef<'_>) {
        if self.make_memtables(&core.lock(), table) {
            self.insert(core, table, entry);
        }
    }

    /// Inserts an entry of the log that is replayed, as [`Writer::insert`] does. Its bytes are not counted.
    pub(crate) fn insert_again(&mut self, core: &Core, table: TableId, entry: EntryRef<'_>) {
        if !self.memtables.contains_key(&table) {
            self.make_memtables(core, table);
        }
        if let Some(writer) = self.memtables.get_mut(&table) {
            writer.insert(entry);
        }
    }

    /// Makes the memtable of a table for this generation, and those of its indexes: readers take the states of all of
    /// them at once, so that they see what is written to all or to none. `false` if the table is not there.
    fn make_memtables(&mut self, core: &Core, id: TableId) -> bool {
        let Some(base) = core.tables.base_of(id).and_then(|base| core.tables.get(&base)) else { return false };
        // Derived tables first, whose states that of their table takes along.
        for table in core.tables.indexes_of(base.id).map(|(table, _)| table).chain([base]) {
            let state = table.state.load_full();
            let active = match self.memtables.contains_key(&table.id) {
                true => state.active.clone(),
                false => self.make_memtable(core.filter_bytes, table),
            };
            let (sealed, tree, as_of) = (state.sealed.clone(), state.tree.clone(), state.as_of);
            let indexes = indexes_after(&state.indexes);
            table.state.store(Arc::new(TableState { active, sealed, tree, indexes, as_of }));
        }
        self.memtables.contains_key(&id)
    }

    /// One of as many as there were in the generation before, or are in this one: the more, the smaller its filter.
    fn make_memtable(&mut self, filter_bytes: usize, table: &TableShared) -> Arc<Memtable> {
        let options = MemtableOptions { filter_bytes: filter_bytes / self.made_before.max(self.made + 1) };
        let (writer, active) = match table.state.load().outermost_keys() {
            Some((least, greatest)) => Memtable::for_keys_like(options, least, greatest),
            None => Memtable::new(options),
        };
        let bytes = active.memory_usage();
        self.generation_bytes += bytes;
        if self.made < UNCOUNTED {
            self.uncounted_bytes += bytes;
        }
        self.made += 1;
        self.memtables.insert(table.id, TableWriter::new(table, writer));
        active
    }

    /// Bytes of the active generation that count against the memory budget.
    #[inline]
    fn counted_bytes(&self) -> usize {
        self.generation_bytes.saturating_sub(self.uncounted_bytes)
    }

    /// Ends the generation: its memtables, and the bytes that counted against the memory budget.
    fn end_generation(&mut self) -> (BTreeMap<TableId, TableWriter>, usize) {
        let bytes = self.counted_bytes();
        (self.generation_bytes, self.uncounted_bytes) = (0, 0);
        self.has_forgotten = false;
        (self.made_before, self.made) = (self.made, 0);
        (std::mem::take(&mut self.memtables), bytes)
    }

    /// A table is gone, or has another in its place.
    pub(crate) fn forget_table(&mut self, id: TableId) {
        self.has_dropped = true;
        self.tables.remove(&id);
        let forgotten = self.memtables.remove(&id);
        self.has_forgotten |= forgotten.is_some_and(|writer| !writer.memtable.memtable().is_empty());
    }

    /// Whether the log has nothing that a flush would let go of.
    fn is_generation_empty(&self) -> bool {
        let mut memtables = self.memtables.values().map(|writer| writer.memtable.memtable());
        !self.log_gap && !self.has_forgotten && memtables.all(|memtable| memtable.is_empty())
    }
}

/// What writes to the active memtable of a table.
pub(crate) struct TableWriter {
    pub(crate) memtable: MemtableWriter,
    /// How patches are packed, if they are: a memtable is marked with the columns that they touch.
    patches: Option<Arc<PackedLayout>>,
}

impl TableWriter {
    pub(crate) fn new(table: &TableShared, memtable: MemtableWriter) -> Self {
        let packed = table.formats.as_ref().filter(|formats| formats.is_packed());
        Self { memtable, patches: packed.map(|formats| formats.packed_layout().clone()) }
    }

    /// Inserts an entry of any operation.
    #[inline]
    pub(crate) fn insert(&mut self, EntryRef { key, trailer, value }: EntryRef<'_>) {
        match (trailer.operation(), &self.patches) {
            (Operation::RangeDelete, _) => self.memtable.insert_range_delete(RangeDelete {
                start: key.to_vec(),
                end: value.to_vec(),
                sequence: trailer.sequence(),
            }),
            (Operation::Patch, Some(layout)) => {
                let marks = layout.marks(value).unwrap_or(u64::MAX);
                self.memtable.insert_marked(key, trailer, value, marks);
            }
            _ => self.memtable.insert(key, trailer, value),
        }
    }
}

/// The commit lock and the batches waiting for it.
pub(crate) struct CommitQueue {
    pub(crate) writer: Mutex<Writer>,
    waiting: Mutex<Vec<Arc<Waiting>>>,
    /// Are shown what is committed.
    pub(crate) watches: Watches,
}

/// A batch of a group, and what it derives.
type Admitted<'w> = (&'w Waiting, Cow<'w, DerivedBatch>);

struct Waiting {
    batch: ReadyBatch<'static>,
    precondition: Option<Arc<dyn Precondition>>,
    outcome: Mutex<Option<Result<SequenceNumber>>>,
}

/// A batch that was checked, and prepared for the indexes that there are or were.
pub(crate) struct ReadyBatch<'a> {
    /// The encoded operations.
    pub(crate) body: Cow<'a, [u8]>,
    pub(crate) count: u32,
    pub(crate) durability: Durability,
    pub(crate) prepared_for: IndexGeneration,
    /// What it derives for these indexes, if that is known.
    pub(crate) derived: Option<Cow<'a, DerivedBatch>>,
}

impl ReadyBatch<'_> {
    fn into_owned(self) -> ReadyBatch<'static> {
        let Self { body, count, durability, prepared_for, derived } = self;
        let derived = derived.map(|derived| Cow::Owned(derived.into_owned()));
        ReadyBatch { body: Cow::Owned(body.into_owned()), count, durability, prepared_for, derived }
    }

    /// What it derives, if its tables are still there.
    fn derive(&self, writer: &mut Writer) -> Result<Cow<'_, DerivedBatch>> {
        writer.check_tables(&self.body, self.count)?;
        writer.derivers.derive((&self.body, self.count), self.prepared_for, self.derived.as_deref())
    }
}

/// What must hold when a batch is committed, or it must not be: a transaction's validation. It is asked with the commit
/// lock held, by any thread.
pub(crate) trait Precondition: Send + Sync {
    /// Whether all that was committed, up to this sequence number, leaves it standing.
    fn check(&self, last: SequenceNumber) -> Result<()>;
    /// Whether an operation that is about to be committed, before the batch and together with it, does, or an entry of
    /// a derived table that comes of one.
    fn check_operation(&self, table: TableId, entry: EntryRef<'_>) -> Result<()>;
}

/// A precondition is compared with at most about so many operations of its own group, one by one. Where more stand
/// before it, they are committed as a group of their own, and looked up in the memtables then.
const MOST_COMPARED: u32 = 4096;

/// How many of the batches, from the first on, make the next group, and those of them whose precondition holds, with
/// what they derive; the others are told. A group has `most_bytes`, with what it derives, but for its last batch:
/// room is made once for all of it.
fn form_group<'w>(writer: &mut Writer, waiting: &'w [Arc<Waiting>], most_bytes: usize) -> (usize, Vec<Admitted<'w>>) {
    let (mut group, mut operations, mut bytes) = (Vec::new(), 0_u32, 0_usize);
    for (i, next) in waiting.iter().enumerate() {
        let would_have = bytes.saturating_add(next.batch.body.len());
        if !group.is_empty() && would_have > most_bytes || next.precondition.is_some() && operations > MOST_COMPARED {
            return (i, group);
        }
        match next.admit(writer, &group) {
            Ok(derived) => {
                bytes = would_have.saturating_add(derived.memory_usage());
                operations = operations.saturating_add(next.batch.count);
                group.push((&**next, derived));
            }
            Err(error) => *next.outcome.lock() = Some(Err(error)),
        }
    }
    (waiting.len(), group)
}

impl Waiting {
    /// What the batch derives, if its precondition holds after everything committed and the batches of its group before
    /// it.
    fn admit(&self, writer: &mut Writer, before: &[Admitted<'_>]) -> Result<Cow<'_, DerivedBatch>> {
        // First: it says whether the indexes are still those that the precondition is about.
        let derived = self.batch.derive(writer)?;
        if let Some(precondition) = &self.precondition {
            precondition.check(writer.last_sequence)?;
            check_operations(&**precondition, before)?;
        }
        Ok(derived)
    }
}

fn check_operations(precondition: &dyn Precondition, before: &[Admitted<'_>]) -> Result<()> {
    before.iter().try_for_each(|(earlier, derived)| {
        let pending = Pending { batch: &earlier.batch, derived };
        pending.try_each(|table, entry| precondition.check_operation(table, entry))
    })
}

/// A batch about to be committed.
#[derive(Clone, Copy)]
struct Pending<'a> {
    batch: &'a ReadyBatch<'a>,
    /// For derived tables.
    derived: &'a DerivedBatch,
}

impl Pending<'_> {
    /// Calls `check` with its operations and with what they derive, whatever the sequence numbers will be.
    fn try_each(&self, check: impl Fn(TableId, EntryRef<'_>) -> Result<()>) -> Result<()> {
        let mut operations = Operations::new(&self.batch.body, 0, self.batch.count);
        while let Some((table, entry)) = operations.next()? {
            check(table, entry)?;
        }
        self.derived.entries(1).try_for_each(|(table, entry)| check(table, entry))
    }
}

impl CommitQueue {
    pub(crate) fn new(writer: Writer) -> Self {
        Self { writer: Mutex::new(writer), waiting: Mutex::new(Vec::new()), watches: Watches::default() }
    }

    /// The number of batches that wait for the commit lock.
    #[cfg(test)]
    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting.lock().len()
    }
}

impl Inner {
    /// Commits a batch. Its operations get consecutive sequence numbers, of which the last is returned.
    pub(crate) fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<SequenceNumber> {
        batch.check(self.identity)?;
        self.commit_checked((batch.body(), batch.len() as u32), Some(batch.derived()), durability)
    }

    /// Commits a batch that was checked. It is prepared for the indexes until it meets those that it was prepared for,
    /// and until nothing comes between; one of those who meet always gets through.
    #[inline]
    pub(crate) fn commit_checked(
        &self,
        operations: (&[u8], u32),
        derived: Option<&DerivedAhead>,
        durability: Durability,
    ) -> Result<SequenceNumber> {
        loop {
            match self.commit_prepared(&self.indexed.load(), operations, derived, durability) {
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                result => return result,
            }
        }
    }

    /// Commits a batch, if the precondition holds when its turn comes.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if there are other indexes by then than it was prepared for, beside those of the
    /// precondition.
    pub(crate) fn commit(
        &self,
        batch: ReadyBatch<'_>,
        precondition: Option<Arc<dyn Precondition>>,
    ) -> Result<SequenceNumber> {
        let Some(mut writer) = self.commits.writer.try_lock() else {
            let outcome = Mutex::new(None);
            return self.commit_in_group(Waiting { batch: batch.into_owned(), precondition, outcome });
        };
        self.caught(|| {
            // First, as in a group.
            let derived = batch.derive(&mut writer)?;
            precondition.map_or(Ok(()), |precondition| precondition.check(writer.last_sequence))?;
            let mut last = 0;
            self.commit_group(&mut writer, &[Pending { batch: &batch, derived: &derived }], |_, n| last = n)?;
            writer.derivers.reuse(derived);
            Ok(last)
        })
    }

    /// Queues a batch, and commits all that are queued unless another thread does first. A panic, of a user's
    /// transformer or merge operator perhaps, is what all of them fail with that were not committed before it.
    fn commit_in_group(&self, own: Waiting) -> Result<SequenceNumber> {
        let own = Arc::new(own);
        self.commits.waiting.lock().push(own.clone());
        let mut writer = self.commits.writer.lock();
        if let Some(outcome) = own.outcome.lock().take() {
            return outcome;
        }
        let waiting = std::mem::take(&mut *self.commits.waiting.lock());
        let committed = self.caught(|| {
            self.commit_waiting(&mut writer, &waiting);
            Ok(())
        });
        if let Err(error) = committed {
            // They have left the queue: nobody else will tell them.
            for member in &waiting {
                member.outcome.lock().get_or_insert_with(|| Err(error.duplicate()));
            }
        }
        drop(writer);
        let outcome = own.outcome.lock().take();
        outcome.unwrap_or_else(|| Err(Error::new(ErrorKind::Closed, "the write was not taken up")))
    }

    /// Commits all of them, as a rule as one group.
    fn commit_waiting(&self, writer: &mut MutexGuard<'_, Writer>, mut waiting: &[Arc<Waiting>]) {
        while !waiting.is_empty() {
            let (taken, group) = form_group(writer, waiting, generation_limit(self.options.memory_budget) / 8);
            waiting = &waiting[taken..];
            if group.is_empty() {
                continue;
            }
            let pending: Vec<Pending<'_>> =
                group.iter().map(|(waiting, derived)| Pending { batch: &waiting.batch, derived }).collect();
            let result = self.commit_group(writer, &pending, |i, last| *group[i].0.outcome.lock() = Some(Ok(last)));
            if let Err(error) = result {
                for (member, _) in group {
                    *member.outcome.lock() = Some(Err(error.duplicate()));
                }
            }
        }
    }

    /// Commits a group as a whole; `done` is told each batch's last sequence number.
    fn commit_group(
        &self,
        writer: &mut MutexGuard<'_, Writer>,
        group: &[Pending<'_>],
        mut done: impl FnMut(usize, SequenceNumber),
    ) -> Result<()> {
        self.check_writable()?;
        self.make_room(writer, group.iter().map(|pending| pending.batch.body.len() as u64).sum())?;
        // It may have waited.
        self.check_writable()?;
        let total: u64 = group.iter().map(|pending| u64::from(pending.batch.count)).sum();
        if total > mycelium_base::MAX_SEQUENCE_NUMBER - writer.last_sequence {
            return Err(Error::invalid("the sequence numbers of the database are used up"));
        }
        self.log_group(writer, group)?;
        for (i, pending) in group.iter().enumerate() {
            let first = writer.last_sequence + 1;
            let mut operations = Operations::new(&pending.batch.body, first, pending.batch.count);
            while let Some((table, entry)) = operations.next()? {
                writer.insert(&self.core, table, entry);
            }
            for (table, entry) in pending.derived.entries(first) {
                writer.insert(&self.core, table, entry);
            }
            writer.last_sequence += u64::from(pending.batch.count);
            done(i, writer.last_sequence);
        }
        self.visible.store(writer.last_sequence, Ordering::Release);
        self.commits.watches.show(|footprint| {
            group
                .iter()
                .try_for_each(|pending| pending.try_each(|table, entry| footprint.check_operation(table, entry)))
        });
        self.counters.batches.fetch_add(group.len() as u64, Ordering::Relaxed);
        self.counters.operations.fetch_add(total, Ordering::Relaxed);
        Ok(())
    }

    /// Appends the group to the log and makes it as durable as asked; on failure nothing of it stays.
    fn log_group(&self, writer: &mut Writer, group: &[Pending<'_>]) -> Result<()> {
        self.sync_removal(writer)?;
        let durability = group.iter().map(|pending| pending.batch.durability).max().unwrap_or_default();
        let mut first = writer.last_sequence + 1;
        let mut head = std::mem::take(&mut writer.head);
        let log = writer.log()?;
        let (before, had_buffered) = (log.len(), log.buffered_len() > 0);
        let mut result = self.archive.as_ref().map_or(Ok(()), |archive| writer.note_time(archive.now()));
        let log = writer.log()?;
        for ReadyBatch { body, count, .. } in group.iter().map(|pending| pending.batch).filter(|batch| batch.count > 0)
        {
            if result.is_err() {
                break;
            }
            encode_head(&mut head, first, *count);
            first += u64::from(*count);
            result = log.append(&[&head, body]);
        }
        let log_result = match (result, durability) {
            (Ok(()), Durability::Os) => log.flush(),
            (Ok(()), Durability::Sync) => self.sync_logs(writer),
            (result, _) => result,
        };
        writer.head = head;
        match log_result {
            Ok(()) => {
                let after = writer.log()?.len();
                self.counters.log_bytes.fetch_add(after - before, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(self.take_back(writer, error, (before, had_buffered), group.len() > 1)),
        }
    }

    /// Records could not be logged: what the log still holds of them must not come back at recovery. `before` is the
    /// log's length before them and whether some of that was buffered, `may_be_whole` whether one of them can have
    /// reached the disk whole.
    #[cold]
    fn take_back(
        &self,
        writer: &mut Writer,
        error: Error,
        (before, had_buffered): (u64, bool),
        may_be_whole: bool,
    ) -> Error {
        writer.noted = None;
        let Ok(log) = writer.log() else { return error };
        // A full disk leaves a log that was cut back to a record border, which may lie inside the group. If it cannot
        // be cut back to the group's start, durably, or anything else happened, what is on the disk is not what was
        // acknowledged. It cannot after a failed sync, whatever the error says: the log does nothing more then.
        let cut_back = if error.kind() == ErrorKind::NoSpace { log.cut_back(before) } else { Err(error.duplicate()) };
        writer.log_gap |= had_buffered;
        let is_gone = cut_back.and_then(|()| if may_be_whole { self.sync_logs(writer) } else { Ok(()) });
        if is_gone.is_err() {
            self.latch(&error);
        }
        error
    }

    /// Notes in the log, if it is archived, that a bulk load is about to take the next sequence number.
    pub(crate) fn note_load(&self, writer: &mut Writer, table: &TableShared) -> Result<()> {
        if self.archive.is_none() {
            return Ok(());
        }
        self.sync_removal(writer)?;
        let note = Note::Load { table: &table.name }.encode(writer.last_sequence + 1);
        let log = writer.log()?;
        let (before, had_buffered) = (log.len(), log.buffered_len() > 0);
        log.append(&[&note]).map_err(|error| self.take_back(writer, error, (before, had_buffered), false))
    }

    /// Persists the log up to its end: segments of sealed generations first, since recovery reads them in order.
    ///
    /// A segment whose sync failed refuses every other, so nothing is acknowledged on the word of a second try. What
    /// else fails in the active segment may have been undone, as an append to a full disk is: the caller sees to that.
    /// Of a sealed one everything was handed over; only its sync can fail, for want of space too, and that latches.
    fn sync_logs(&self, writer: &mut Writer) -> Result<()> {
        let sealed = self.core.lock().sealed_logs();
        sealed.iter().try_for_each(|log| log.sync()).inspect_err(|error| self.latch(error))?;
        writer.log()?.sync()
    }

    /// Persists everything written so far.
    pub(crate) fn sync_all(&self) -> Result<()> {
        self.check_writable()?;
        self.sync_locked(&mut self.commits.writer.lock())
    }

    /// As [`Inner::sync_all`], with the commit lock held already.
    pub(crate) fn sync_locked(&self, writer: &mut MutexGuard<'_, Writer>) -> Result<()> {
        if writer.log_gap {
            self.seal_when_possible(writer)?;
        }
        let log = writer.log()?;
        let (before, had_buffered) = (log.len(), log.buffered_len() > 0);
        if let Err(error) = log.flush() {
            return Err(self.take_back(writer, error, (before, had_buffered), false));
        }
        self.sync_logs(writer).inspect_err(|error| self.latch(error))
    }

    /// Waits, seals and slows as the memory budget and the levels demand, before `bytes` are written.
    #[inline]
    pub(crate) fn make_room(&self, writer: &mut MutexGuard<'_, Writer>, bytes: u64) -> Result<()> {
        if self.archive.as_ref().is_some_and(Archiver::is_over_limit) {
            self.make_archive_room()?;
        }
        if self.stalls.hold_writers_back() {
            self.hold_back(bytes)?;
        }
        let budget = self.options.memory_budget;
        let active = writer.counted_bytes();
        let taken = active + self.sealed_bytes.load(Ordering::Relaxed);
        if active >= generation_limit(budget) || taken >= budget || writer.log_gap {
            self.seal_when_possible(writer)?;
        }
        Ok(())
    }

    #[cold]
    fn seal_when_possible(&self, writer: &mut MutexGuard<'_, Writer>) -> Result<()> {
        self.wait_for_flush(writer)?;
        if writer.counted_bytes() >= generation_limit(self.options.memory_budget) || writer.log_gap {
            self.seal_generation(writer)?;
        }
        if writer.log_gap {
            self.wait_for_flush(writer)?;
            writer.log_gap = false;
        }
        Ok(())
    }

    /// Waits until no sealed generation is left.
    pub(crate) fn wait_for_flush(&self, _writer: &mut MutexGuard<'_, Writer>) -> Result<()> {
        if self.core.lock().generations.is_empty() {
            return Ok(());
        }
        let stall = self.begin_stall(StallCause::Memory, true);
        let result = self.wait_for_flushes();
        self.end_stall(stall);
        result
    }

    /// Waits until no sealed generation is left, without the commit lock.
    pub(crate) fn wait_for_flushes(&self) -> Result<()> {
        self.wait_unless(Self::check_flush_shortage, |inner| inner.core.lock().generations.is_empty())
    }

    /// Waits, if the log is archived, until no thread is at a flush: what was flushed is archived by then, unless that
    /// fails.
    pub(crate) fn wait_for_archive(&self) -> Result<()> {
        if self.archive.is_none() {
            return Ok(());
        }
        self.wait_unless(Self::check_flush_shortage, |inner| !inner.core.lock().flushing)
    }

    /// Waits for background work until `ready`; in manual mode does that work.
    pub(crate) fn wait_until(&self, ready: impl Fn(&Self) -> bool) -> Result<()> {
        self.wait_unless(Self::check_background_shortage, ready)
    }

    /// As [`Inner::wait_until`], unless the background meets this hindrance.
    fn wait_unless(&self, hindrance: impl Fn(&Self) -> Result<()>, ready: impl Fn(&Self) -> bool) -> Result<()> {
        loop {
            if ready(self) {
                return Ok(());
            }
            self.check_writable()?;
            if self.options.background == Background::Manual {
                if !self.step_or_wait()? && !ready(self) {
                    return Err(Error::new(ErrorKind::NoSpace, "no background work can make room for the write"));
                }
            } else {
                hindrance(self)?;
                self.wait_for_progress(Duration::from_millis(100));
            }
        }
    }

    /// Begins a log segment, durably named. One that could not be begun must not be found by a recovery, for which it
    /// would end the segment before it: a shortage leaves nothing behind, any other failure latches. Its number is new:
    /// if it is not there, it never was.
    fn begin_segment(&self, writer: &mut Writer, header: SegmentHeader) -> Result<SegmentWriter> {
        let (path, next) = (self.directory.join(FileKind::Wal.name(header.number)), writer.last_sequence + 1);
        let begun = begin_segment(&*self.disk, &path, header, self.archive.as_ref(), next);
        begun.inspect_err(|error| match error.kind().is_shortage().then(|| self.disk.remove(&path)) {
            Some(Ok(())) => {
                writer.has_unsynced_removal = true;
                // What is written next makes it durable, if that cannot be done now.
                drop(self.sync_removal(writer));
            }
            Some(Err(error)) if error.kind() == ErrorKind::NotFound => {}
            _ => self.latch(error),
        })
    }

    /// Makes durable, before anything is appended to the log, that a segment is gone which could not be begun. Want of
    /// a descriptor leaves that to be done; any other failure latches.
    #[inline]
    fn sync_removal(&self, writer: &mut Writer) -> Result<()> {
        if writer.has_unsynced_removal {
            self.disk.sync_directory(&self.directory).inspect_err(|error| {
                if error.kind() != ErrorKind::TooManyOpenFiles {
                    self.latch(error);
                }
            })?;
            writer.has_unsynced_removal = false;
        }
        Ok(())
    }

    /// Seals the active generation: its memtables become read-only and wait for their flush, and a new log segment
    /// begins. The commit lock is held.
    pub(crate) fn seal_generation(&self, writer: &mut Writer) -> Result<()> {
        self.check_held()?;
        self.check_unlatched()?;
        if writer.is_generation_empty() {
            return Ok(());
        }
        let log = writer.log()?;
        let (before, had_buffered) = (log.len(), log.buffered_len() > 0);
        if let Err(error) = log.flush() {
            return Err(self.take_back(writer, error, (before, had_buffered), false));
        }
        let previous = Some((log.number(), log.len()));
        if self.archive.is_some() {
            // The next one is synced when it is begun, and whatever is synced of it tells that this one was before.
            self.sync_logs(writer).inspect_err(|error| self.latch(error))?;
        }
        let number = self.core.lock().numbers.allocate();
        let header = SegmentHeader { number, previous };
        let log = self.begin_segment(writer, header)?;
        writer.noted = None;
        let full = writer.log.replace(log);
        let sealed = full.map(|log| Arc::new(SealedLog::new(log.number(), log.len(), log.seal(number))));
        {
            let mut core = self.core.lock();
            let bytes = core.seal(sealed, writer, number);
            self.sealed_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        self.emit(|| Event::LogSwitched { segment: number });
        self.wake_background();
        Ok(())
    }
}

impl Core {
    /// The commit lock is held: every memtable waits for its flush, unless it is empty, and the one that always is
    /// takes its place. The bytes that they count against the memory budget.
    pub(crate) fn seal(&mut self, log: Option<Arc<SealedLog>>, writer: &mut Writer, next_log: FileNumber) -> usize {
        let (full, bytes) = writer.end_generation();
        let mut memtables = Vec::with_capacity(full.len());
        // Derived tables first, whose states those of their tables hold: their ids are higher.
        for id in full.keys().rev() {
            let Some(table) = self.tables.get(id) else { continue };
            let state = table.state.load_full();
            let mut sealed = Vec::with_capacity(state.sealed.len() + 1);
            if !state.active.is_empty() {
                sealed.push(state.active.clone());
                memtables.push((*id, state.active.clone()));
            }
            sealed.extend_from_slice(&state.sealed);
            let active = self.empty.clone();
            let indexes = indexes_after(&state.indexes);
            let (tree, as_of) = (state.tree.clone(), state.as_of);
            table.state.store(Arc::new(TableState { active, sealed, tree, indexes, as_of }));
        }
        memtables.reverse();
        self.pace.note_seal(Instant::now());
        let last_sequence = writer.last_sequence;
        self.generations.push_back(Arc::new(Generation { log, next_log, last_sequence, memtables }));
        bytes
    }
}

/// Bytes at which the active generation is sealed: four fifths of the budget. The rest takes what is written during its
/// flush, which is much faster than the writing; so memory is used for large level-0 files, not held in reserve.
fn generation_limit(memory_budget: usize) -> usize {
    memory_budget / 5 * 4
}
