//! What depends on the time of day, or on a moment of the past: rows that expire, and restores by the archived log.

use std::path::Path;
use std::time::Duration;

use mycelium_base::{Error, Result, SequenceNumber};
use mycelium_encoding::TimeUnit;
use mycelium_engine::{Backups, Expiry, RestoreOptions, RestorePoint, RestoreSummary};

use super::{BACKUPS, DIRECTORY, EngineStore, database_options};
use crate::engine_options::ARCHIVE;
use crate::model::State;

/// Where databases are restored.
const RESTORED: &str = "/restored";

impl EngineStore {
    /// How long the rows of a table stay.
    pub(crate) fn age(&self, table: usize) -> Result<Option<Duration>> {
        Ok(self.table(table)?.expiry().map(|expiry| expiry.age))
    }

    /// Rows of a table expire by the column with their times, whatever its name is now.
    pub(super) fn change_expiry(&self, index: usize, age: Option<Duration>) -> Result<()> {
        let (table, column) = (self.table(index)?, self.kinds[index].time_column());
        let column = table.schema().zip(column).and_then(|(schema, column)| schema.columns().get(column));
        let Some(column) = column else { return Err(Error::invalid("rows of the table have no time")) };
        let expiry = |age| Expiry::new(column.name.clone(), age).counting(TimeUnit::Nanosecond);
        self.database()?.set_expiry(table, age.map(expiry))
    }

    /// Makes a pass at a time of day; after it nothing has expired again.
    pub(super) fn make_pass(&self, table: usize, now: Duration) -> Result<u64> {
        let (database, table) = (self.database()?, self.table(table)?);
        self.clock.set(now);
        let deleted = database.expire_rows(table);
        self.clock.set(Duration::ZERO);
        deleted
    }

    /// The newest sequence number of the oldest backup, and that of the database: a restore may end at one between
    /// them. `None` if there is no backup.
    pub fn moments(&self) -> Result<Option<(SequenceNumber, SequenceNumber)>> {
        if !self.disk.exists(Path::new(BACKUPS))? {
            return Ok(None);
        }
        let newest = self.database()?.last_sequence();
        let oldest = Backups::open(self.disk.clone(), BACKUPS)?.list()?.into_iter().next();
        Ok(oldest.map(|backup| (backup.sequence, newest)))
    }

    /// Restores the database to a sequence number, or as far as backups and log tell, and reads every row.
    pub fn restored_to(&self, sequence: SequenceNumber) -> Result<(RestoreSummary, State)> {
        let request = RestoreOptions {
            until: RestorePoint::Sequence(sequence),
            log: Some(DIRECTORY.into()),
            as_far_as_possible: true,
            database: database_options(&self.configuration, &self.kinds, self.disk.clone()),
            ..RestoreOptions::default()
        };
        let backups = Backups::open(self.disk.clone(), BACKUPS)?;
        let summary = backups.restore_to(ARCHIVE, RESTORED, &request, |_, _| {})?;
        Ok((summary, self.state_of_copy(RESTORED)?))
    }
}
