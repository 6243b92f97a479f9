//! Whether anything newer than a sequence number was committed to a key or an interval.
//!
//! The snapshot filter turned round: a memtable or file whose largest sequence number is not above the mark cannot hold
//! a conflict and is not looked at. What is left, for a transaction of ordinary length, is the active memtable and
//! perhaps a file or two flushed meanwhile; there the Bloom filter rules out most keys. Only the newest version of a
//! key counts.

use std::ops::ControlFlow;
use std::sync::Arc;

use mycelium_base::hash::hash_key;
use mycelium_base::{
    Cursor, Error, ErrorKind, MAX_SEQUENCE_NUMBER, RangeDeleteSet, ReadCounters, Result, SequenceNumber, Trailer,
};
use mycelium_sst::{CursorOptions, GetScratch, KeyBits, RunCursor};

use crate::table::{TableShared, TableState};
use crate::tree::OpenFile;

/// Bytes read ahead in files whose entries are looked through.
const READ_AHEAD: usize = 64 << 10;

/// A table's state, to be searched for entries above a sequence number.
pub(crate) struct Check<'a> {
    table: &'a TableShared,
    state: Arc<TableState>,
    since: SequenceNumber,
}

impl<'a> Check<'a> {
    /// Takes the table's present state.
    pub(crate) fn new(table: &'a TableShared, since: SequenceNumber) -> Result<Self> {
        let state = table.state.load_full();
        table.check_alive()?;
        Ok(Self { table, state, since })
    }

    /// Fails with a conflict if `key` has an entry, or is covered by a range delete, above the mark.
    pub(crate) fn key(&self, key: &[u8]) -> Result<()> {
        if self.has_newer(key)? { Err(conflict(self.table, key)) } else { Ok(()) }
    }

    /// Fails with a conflict if any key of `[start, end)` does.
    pub(crate) fn range(&self, start: &[u8], end: Option<&[u8]>) -> Result<()> {
        if end.is_some_and(|end| end <= start) {
            return Ok(());
        }
        match self.newer_within(start, end)? {
            Some(key) => Err(conflict(self.table, &key)),
            None => Ok(()),
        }
    }

    /// Whether `key` has an entry, or is covered by a range delete, above the mark.
    pub(crate) fn has_newer(&self, key: &[u8]) -> Result<bool> {
        let hash = hash_key(key);
        for memtable in self.state.memtables() {
            if memtable.sequence_range().is_none_or(|(_, newest)| newest <= self.since) {
                continue;
            }
            if memtable.has_range_deletes() && self.is_above(memtable.covering_range_delete(key, MAX_SEQUENCE_NUMBER)) {
                return Ok(true);
            }
            let newest = memtable.get_hashed(key, hash, MAX_SEQUENCE_NUMBER).next();
            if newest.is_some_and(|(trailer, _)| trailer.sequence() > self.since) {
                return Ok(true);
            }
        }
        let (mut scratch, mut bits) = (GetScratch::default(), KeyBits::new(hash));
        for ((_, run), fences) in self.state.tree.fenced_runs() {
            let Some((at, filters)) = run.find(&fences, key) else { continue };
            let file = &run.files[at];
            if !self.is_newer(file) {
                continue;
            }
            if filters.has_range_deletes() && self.is_above(file.sst.range_deletes().covering(key, MAX_SEQUENCE_NUMBER))
            {
                return Ok(true);
            }
            if !filters.may_contain(&mut bits, |hash| file.sst.may_contain(hash)) {
                continue;
            }
            let mut found = false;
            let counters = &mut ReadCounters::default();
            file.sst.get(key, MAX_SEQUENCE_NUMBER, &mut scratch, counters, &mut |trailer: Trailer, _: &[u8]| {
                found = trailer.sequence() > self.since;
                ControlFlow::Break(())
            })?;
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    #[inline]
    fn is_newer(&self, file: &OpenFile) -> bool {
        file.meta.max_sequence > self.since
    }

    fn is_above(&self, newest: Option<SequenceNumber>) -> bool {
        newest.is_some_and(|sequence| sequence > self.since)
    }

    fn newer_within(&self, start: &[u8], end: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
        for memtable in self.state.memtables() {
            if memtable.sequence_range().is_none_or(|(_, newest)| newest <= self.since) {
                continue;
            }
            let deletes = memtable.range_delete_sets();
            if let Some(key) = deletes.iter().find_map(|deletes| self.newer_range_delete(deletes, start, end)) {
                return Ok(Some(key));
            }
            if let Some(key) = self.newer_entry(&mut memtable.cursor(), start, end)? {
                return Ok(Some(key));
            }
        }
        let options = CursorOptions { fill_cache: false, read_ahead: READ_AHEAD, ..CursorOptions::default() };
        for run in self.state.tree.levels.iter().flatten() {
            let from = run.files.partition_point(|file| file.meta.ends_before(start));
            let within = run.files[from..].iter();
            let within = within.take_while(|file| end.is_none_or(|end| file.meta.smallest.as_slice() < end));
            for file in within.filter(|file| self.is_newer(file)) {
                let key = self.newer_range_delete(file.sst.range_deletes(), start, end);
                let key = match key {
                    None if file.sst.block_count() > 0 => {
                        self.newer_entry(&mut RunCursor::new([file.sst.clone()], options), start, end)?
                    }
                    key => key,
                };
                if key.is_some() {
                    return Ok(key);
                }
            }
        }
        Ok(None)
    }

    fn newer_range_delete(&self, deletes: &RangeDeleteSet, start: &[u8], end: Option<&[u8]>) -> Option<Vec<u8>> {
        let found = deletes
            .fragments_within(start, end)
            .find(|fragment| fragment.newest(MAX_SEQUENCE_NUMBER).is_some_and(|newest| newest > self.since));
        found.map(|fragment| fragment.start().max(start).to_vec())
    }

    fn newer_entry(&self, cursor: &mut impl Cursor, start: &[u8], end: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
        cursor.seek(start, Trailer::NEWEST)?;
        while cursor.valid() && end.is_none_or(|end| cursor.key() < end) {
            if cursor.trailer().sequence() > self.since {
                return Ok(Some(cursor.key().to_vec()));
            }
            cursor.next()?;
        }
        Ok(None)
    }
}

/// The error of a transaction that lost to an earlier commit.
#[cold]
pub(crate) fn conflict(table: &TableShared, key: &[u8]) -> Error {
    let message = format!("a newer commit wrote {:?} in table {}", shown(key), table.name);
    Error::new(ErrorKind::Conflict, message)
}

/// A key as an error shows it.
pub(crate) fn shown(key: &[u8]) -> String {
    String::from_utf8_lossy(&key[..key.len().min(64)]).into_owned()
}
