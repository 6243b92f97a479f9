//! Stale entries that no removal names leave when their derived table is compacted.
//!
//! Where columns of an index lie in several column groups, or patches are older than the index, a removal cannot be
//! made when a version is dropped (watch.rs). The entries that this may have left behind are those below
//! [`super::IndexStatus::trusted_from`]. When a compaction puts one of them into the last level:
//!
//! 1. Its row is read at a snapshot of now, at every live snapshot that sees the entry, and as files have it, without
//!    memtables; from the newest of these moments on, and not where it is what it was at the one before.
//! 2. If the row derives the entry's key at none of them, the entry is dropped.
//!
//! That is exact. A reader at a later snapshot finds the row either as it was found here, or changed since, and then by
//! the entry of that change, if it derives the key again. So does a reader after a crash that took some of the last
//! changes back, for whatever it took, the row is as files had it or changed since. An older entry of the same key that
//! shows in its place is older than `trusted_from` too, so that nobody takes it without its row.
//!
//! A check is a point read for an entry that is otherwise only copied, and one more for each version of its row that a
//! snapshot sees. Compactions in the background therefore check one entry in [`SHARE`], drawn by key and job, so that
//! what stays is looked at by another; those by hand check all.

use std::cmp::Reverse;
use std::sync::Arc;

use mycelium_base::hash::hash_key;
use mycelium_base::{Result, SequenceNumber};
use mycelium_compaction::JobId;
use mycelium_merge::Purge;

use super::read::RowCheck;
use crate::database::Inner;
use crate::snapshot::Snapshot;
use crate::table::TableShared;

/// Of so many entries one is checked in the background.
const SHARE: u64 = 4;

/// Finds stale entries for one compaction of a derived table, or one part of it.
pub(crate) struct StaleEntries {
    trusted_from: SequenceNumber,
    /// Up to here all changes of the table are in files. A crash may take back any that come later.
    in_files: SequenceNumber,
    /// What the draw is mixed with; `None` checks every entry.
    draw: Option<u64>,
    /// The moments at which an entry may be needed, the newest first.
    moments: Vec<RowCheck>,
    _now: Snapshot,
}

impl StaleEntries {
    /// Whether a derived table may hold stale entries.
    pub(crate) fn may_be_in(table: &TableShared) -> bool {
        table.index.as_ref().is_some_and(|index| index.status().trusted_from > 0)
    }

    /// `None` where there is nothing to be found.
    pub(crate) fn new(
        database: &Inner,
        derived: &Arc<TableShared>,
        job: JobId,
        is_by_hand: bool,
    ) -> Result<Option<Self>> {
        let Some(index) = derived.index.as_ref().filter(|_| Self::may_be_in(derived)) else { return Ok(None) };
        let Some(base) = database.core.lock().tables.get(&index.base).cloned() else { return Ok(None) };
        // From here on whatever is not newer than `now` can be read.
        let now = database.take_snapshot();
        let state = base.state.load_full();
        let Some(found) = state.indexes.iter().find(|found| Arc::ptr_eq(&found.table, derived)).cloned() else {
            return Ok(None);
        };
        let in_files = state.in_files_upto(now.sequence());
        let live = database.snapshots.live().into_iter().filter(|&sequence| sequence <= now.sequence());
        let mut sequences: Vec<SequenceNumber> = live.chain([in_files]).collect();
        sequences.sort_unstable_by_key(|&sequence| Reverse(sequence));
        sequences.dedup();
        let moments = sequences.into_iter().map(|sequence| RowCheck::new(&base, &state, &found, sequence)).collect();
        let draw = (!is_by_hand).then(|| hash_key(&job.number().to_le_bytes()));
        Ok(Some(Self { trusted_from: index.status().trusted_from, in_files, draw, moments, _now: now }))
    }
}

impl Purge for StaleEntries {
    fn is_stale(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<bool> {
        let is_drawn = self.draw.is_none_or(|draw| (hash_key(key) ^ draw).is_multiple_of(SHARE));
        if sequence >= self.trusted_from || sequence > self.in_files || !is_drawn {
            return Ok(false);
        }
        let mut newer: Option<&mut RowCheck> = None;
        for moment in self.moments.iter_mut().take_while(|moment| moment.sequence() >= sequence) {
            let is_as_before = match newer {
                Some(newer) => !newer.has_changed_since(moment.sequence(), key)?,
                None => false,
            };
            if !is_as_before && moment.derives(key)? {
                return Ok(false);
            }
            newer = Some(moment);
        }
        Ok(true)
    }
}
