//! What a transaction has touched: whether anything that is committed, or about to be, conflicts with it.
//!
//! That is asked of a [`Footprint`] when the transaction is committed, and before that of its parts, when its snapshot
//! is to move ([`validate`]).

use std::collections::BTreeMap;

use mycelium_base::{EntryRef, Error, ErrorKind, Operation, Result, SequenceNumber, TableId};

use super::overlay::Overlay;
use super::reads::ReadSet;
use super::validate::{Check, conflict};
use crate::table::{Table, TableShared};

/// Keys that are looked up under the commit lock at most.
const FEW_KEYS: usize = 64;

/// What a transaction wrote to one table.
pub(super) struct TableWrites {
    pub(super) table: Table,
    pub(super) overlay: Overlay,
}

/// The writes of a transaction.
pub(super) type Writes = BTreeMap<TableId, TableWrites>;

/// The writes and noted reads of a transaction that is about to be committed.
pub(crate) struct Footprint {
    writes: Writes,
    reads: ReadSet,
}

impl Footprint {
    pub(super) fn new(writes: Writes, reads: ReadSet) -> Self {
        Self { writes, reads }
    }

    /// Whether it takes long to look for newer entries: through all of an interval, or for many keys.
    pub(super) fn is_wide(&self) -> bool {
        let has_ranges = self.writes.values().any(|own| own.overlay.ranges().next().is_some())
            || self.reads.tables().any(|noted| noted.ranges().next().is_some());
        let own_keys: usize = self.writes.values().map(|own| own.overlay.keys().count()).sum();
        let noted_keys: usize = self.reads.tables().map(|noted| noted.keys().count()).sum();
        has_ranges || own_keys + noted_keys > FEW_KEYS
    }

    /// Fails if anything written, or noted as read, has an entry above `since`; `newest` is the newest there is.
    pub(super) fn validate(&self, since: SequenceNumber, newest: SequenceNumber) -> Result<()> {
        validate(&self.writes, &self.reads, since, newest)
    }

    /// Fails if a table was dropped, or what was read of one is not known to be unchanged, though no newer entry says
    /// so.
    pub(super) fn check_tables(&self) -> Result<()> {
        check_tables(&self.writes, &self.reads)
    }

    /// Fails if an operation, or an entry of a derived table that comes of one, is of something that was touched.
    pub(crate) fn check_operation(&self, table: TableId, entry: EntryRef<'_>) -> Result<()> {
        let range = (entry.trailer.operation() == Operation::RangeDelete).then_some((entry.key, entry.value));
        if let Some(own) = self.writes.get(&table) {
            let touched = match range {
                Some((start, end)) => own.overlay.touches_range(start, end),
                None => own.overlay.touches(entry.key),
            };
            if touched {
                return Err(conflict(&own.table.shared, entry.key));
            }
        }
        let Some(noted) = self.reads.of_table(table) else { return Ok(()) };
        let touched = match range {
            Some((start, end)) => noted.touches_range(start, end),
            None => noted.touches(entry.key),
        };
        if touched { Err(conflict(&noted.table().shared, entry.key)) } else { Ok(()) }
    }
}

/// As [`Footprint::validate`], of these writes and reads.
pub(super) fn validate(writes: &Writes, reads: &ReadSet, since: SequenceNumber, newest: SequenceNumber) -> Result<()> {
    if newest <= since {
        return Ok(());
    }
    for own in writes.values() {
        let check = Check::new(&own.table.shared, since)?;
        for key in own.overlay.keys() {
            check.key(key)?;
        }
        for (start, end) in own.overlay.ranges() {
            check.range(start, Some(end))?;
        }
    }
    for noted in reads.tables() {
        let check = Check::new(&noted.table().shared, since)?;
        for key in noted.keys() {
            check.key(key)?;
        }
        for (start, end) in noted.ranges() {
            check.range(start, end)?;
        }
    }
    Ok(())
}

/// As [`Footprint::check_tables`], of these writes and reads.
pub(super) fn check_tables(writes: &Writes, reads: &ReadSet) -> Result<()> {
    writes.values().try_for_each(|own| own.table.shared.check_alive())?;
    reads.tables().try_for_each(|noted| check_tells(&noted.table().shared))
}

/// Fails if what was read of a table is not known to be unchanged. A table is dropped without an entry. An index that
/// failed is about to be, and rows that it cannot hold come into the table without an entry in it.
fn check_tells(table: &TableShared) -> Result<()> {
    table.check_alive()?;
    match table.index.as_ref().and_then(|index| index.failure()) {
        None => Ok(()),
        Some(failure) => {
            let message = format!("the index {} is being dropped: {failure}", table.name);
            Err(Error::new(ErrorKind::NotFound, message).caused_by(failure))
        }
    }
}
