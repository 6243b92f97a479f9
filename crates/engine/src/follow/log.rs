//! The log of another process, replayed part by part.
//!
//! 1. Each log segment fills a generation of memtables of its own, as it does in its writer. More of the segment goes
//!    into the same memtables, whose readers do not see it before it is published.
//! 2. Generations go when the manifest does not need their segment any more: their rows are in files.
//! 3. What entries derive for indexes is derived as in recovery. So a log is of a set of tables: if that changes, it is
//!    read from the oldest segment on that is needed, as it is after anything failed, and if what was read of it is not
//!    there any more.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use mycelium_base::{EntryRef, Error, FileKind, FileNumber, Result, SequenceNumber, TableId};
use mycelium_manifest::ManifestState;
use mycelium_memtable::{Memtable, MemtableOptions};
use mycelium_vfs::Disk;
use mycelium_wal::{RecoveryMode, SegmentPosition, replay_from};

use crate::catalog::Catalog;
use crate::index::WriteDerivers;
use crate::operations::Operations;
use crate::recover::unknown_table;
use crate::table::TableShared;
use crate::write::TableWriter;

type Tables = BTreeMap<TableId, Arc<TableShared>>;

/// What a log segment holds.
#[derive(Default)]
struct Generation {
    segment: FileNumber,
    memtables: BTreeMap<TableId, TableWriter>,
}

/// See the module.
pub(super) struct FollowedLog {
    tables: Tables,
    derivers: WriteDerivers,
    /// Of each memtable.
    filter_bytes: usize,
    /// Of tables of which the log holds nothing.
    empty: Arc<Memtable>,
    /// Those that are complete, the oldest first.
    older: Vec<Generation>,
    newest: Generation,
    position: Option<SegmentPosition>,
    last_sequence: SequenceNumber,
}

/// What a part of the log held.
#[derive(Default)]
pub(super) struct Replayed {
    pub(super) records: u64,
    /// Whether something is missing before some of it, which the manifest should have had: of all that has a sequence
    /// number only bulk loads are not in the log, and only tables made since are unknown.
    pub(super) is_ahead: bool,
    /// The error of an entry of an unknown table.
    pub(super) unknown: Option<Error>,
}

impl FollowedLog {
    /// Of these tables, nothing read yet; `filter_bytes` are for the filters of the memtables of a generation.
    pub(super) fn new(tables: Tables, filter_bytes: usize) -> Result<Self> {
        let filter_bytes = filter_bytes / tables.len().max(1);
        let catalog: Catalog = tables.values().cloned().collect();
        let derivers = WriteDerivers::new(&catalog)?;
        let (_, empty) = Memtable::new(MemtableOptions::default());
        let (older, newest, position, last_sequence) = (Vec::new(), Generation::default(), None, 0);
        Ok(Self { tables, derivers, filter_bytes, empty, older, newest, position, last_sequence })
    }

    /// Whether it is a log of exactly these tables.
    pub(super) fn is_of<'t>(&self, tables: impl Iterator<Item = &'t TableId>) -> bool {
        self.tables.keys().eq(tables)
    }

    /// The newest sequence number that was read.
    pub(super) fn last_sequence(&self) -> SequenceNumber {
        self.last_sequence
    }

    /// Replays what came to `segments` since the last time, which are those that `state` needs.
    ///
    /// # Errors
    /// As [`replay_from`]; corruption for a malformed record. What was read of the log is of no use after any.
    pub(super) fn replay(
        &mut self,
        (disk, directory): (&dyn Disk, &Path),
        segments: &[FileNumber],
        state: &ManifestState,
        mode: RecoveryMode,
    ) -> Result<Replayed> {
        self.forget_before(state.oldest_wal);
        self.last_sequence = self.last_sequence.max(state.last_sequence);
        let from = self.position;
        let start = segments.partition_point(|number| from.is_some_and(|from| *number < from.number()));
        let segments = segments.get(start..).unwrap_or_default();
        let mut replayed = Replayed::default();
        let mut apply = |segment: FileNumber, offset: u64, payload: &[u8]| {
            let locate = |error: Error| error.in_file(directory.join(FileKind::Wal.name(segment))).at(offset);
            let unknown = self.take(segment, payload, state.next_table_id, &mut replayed).map_err(locate)?;
            if let Some(table) = unknown {
                replayed.is_ahead = true;
                replayed.unknown.get_or_insert_with(|| locate(unknown_table(table, state.next_table_id)));
            }
            Ok(())
        };
        let report = replay_from(disk, directory, (segments, from.as_ref()), mode, &mut apply)?;
        self.position = report.position;
        replayed.records = report.records;
        Ok(replayed)
    }

    /// Takes a record of a segment. The unknown table that it names, if it does.
    fn take(
        &mut self,
        segment: FileNumber,
        payload: &[u8],
        next_table_id: u32,
        replayed: &mut Replayed,
    ) -> Result<Option<TableId>> {
        let (first, count, mut operations) = Operations::of_record(payload)?;
        replayed.is_ahead |= first > self.last_sequence.saturating_add(1);
        self.begin_generation(segment);
        let Self { tables, derivers, filter_bytes, newest, .. } = self;
        let options = MemtableOptions { filter_bytes: *filter_bytes };
        // Entries of tables that were dropped later go nowhere.
        let mut insert = |table: TableId, entry: EntryRef<'_>| {
            if let Some(shared) = tables.get(&table) {
                let writer = newest.memtables.entry(table);
                writer.or_insert_with(|| TableWriter::new(shared, Memtable::new(options).0)).insert(entry);
            }
        };
        let mut unknown = None;
        while let Some((table, entry)) = operations.next()? {
            if table.0 >= next_table_id {
                unknown = Some(table);
            }
            insert(table, entry);
            derivers.derive_again(table, entry, &mut insert)?;
        }
        self.last_sequence = self.last_sequence.max((first + u64::from(count)).saturating_sub(1));
        Ok(unknown)
    }

    fn begin_generation(&mut self, segment: FileNumber) {
        if self.newest.segment != segment {
            let complete = std::mem::replace(&mut self.newest, Generation { segment, ..Generation::default() });
            self.older.push(complete);
        }
    }

    /// Step 2 of the module.
    fn forget_before(&mut self, oldest: FileNumber) {
        self.older.retain(|generation| generation.segment >= oldest);
        if self.newest.segment < oldest {
            self.newest = Generation::default();
        }
        self.position = self.position.filter(|position| position.number() >= oldest);
    }

    /// The newest memtable of a table, and those before it, newest first.
    pub(super) fn memtables_of(&self, table: TableId) -> (Arc<Memtable>, Vec<Arc<Memtable>>) {
        let generations = std::iter::once(&self.newest).chain(self.older.iter().rev());
        let writers = generations.filter_map(|generation| generation.memtables.get(&table));
        let mut memtables = writers.map(|writer| writer.memtable.memtable().clone());
        let newest = memtables.next().unwrap_or_else(|| self.empty.clone());
        (newest, memtables.collect())
    }

    /// The memtables of all generations that hold something, each ascending by table; the oldest first.
    pub(super) fn generations(&self) -> Vec<Vec<(TableId, Arc<Memtable>)>> {
        let generations = self.older.iter().chain([&self.newest]).filter(|generation| !generation.memtables.is_empty());
        let memtables = |generation: &Generation| {
            let writers = generation.memtables.iter();
            writers.map(|(table, writer)| (*table, writer.memtable.memtable().clone())).collect::<Vec<_>>()
        };
        generations.map(memtables).collect()
    }
}
