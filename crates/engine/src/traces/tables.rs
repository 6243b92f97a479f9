//! The traces of a database's tables: counted into, asked for, and kept in files beside the tables.
//!
//! 1. The trace of a table is a text file `TRACE-` and the table's id, written when the database is closed and when a
//!    redesign was decided on (redesign.rs), to a temporary name and renamed into place. It is advice and no data: it
//!    is not synced, and one that is damaged, or of other columns, is ignored when the database is opened.
//! 2. A table that takes the place of another, with another column or name of one (schema_change.rs), goes on with the
//!    trace of that, which is written at once under the new id. What asked for all columns is taken to ask for the new
//!    one. With a column less it begins anew.

use std::path::Path;
use std::sync::Arc;

use mycelium_advisor::Trace;
use mycelium_advisor::trace::MAX_TEXT_BYTES;
use mycelium_base::{ColumnSet, Error, FileKind, Result, TableId};
use mycelium_vfs::{AccessPattern, Disk};

use super::TableTraces;
use crate::database::Inner;
use crate::read::PointRead;
use crate::table::{Table, TableShared};

impl TableShared {
    /// The counters; an error for a table that has none.
    pub(crate) fn traces(&self) -> Result<&Arc<TableTraces>> {
        self.typed_formats()?;
        let none = || Error::invalid(format!("table {} has no columns outside its key to be traced", self.name));
        self.traces.as_ref().ok_or_else(none)
    }

    /// Goes on from the trace that lies beside the database, if there is one that can be used.
    pub(crate) fn restore_trace(&self, disk: &dyn Disk, directory: &Path) {
        let Some(traces) = &self.traces else { return };
        let path = directory.join(trace_name(self.id));
        if !disk.exists(&path).unwrap_or(false) {
            return;
        }
        if let Err(error) = read_trace(disk, &path).and_then(|trace| traces.restore(trace)) {
            tracing::warn!(%error, path = %path.display(), "a trace is ignored");
        }
    }
}

/// The name of the file of a table's trace.
fn trace_name(table: TableId) -> String {
    FileKind::Trace.name(table.0.into())
}

fn read_trace(disk: &dyn Disk, path: &Path) -> Result<Trace> {
    let file = disk.open(path, AccessPattern::Sequential)?;
    if file.len() > MAX_TEXT_BYTES {
        return Err(Error::invalid(format!("a trace of {} bytes", file.len())));
    }
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(0, &mut bytes)?;
    Trace::read_from(&bytes[..])
}

impl Inner {
    /// Counts a point read of `columns`, all if `None`.
    #[inline]
    pub(crate) fn trace_point(&self, read: &PointRead<'_>, columns: Option<&ColumnSet>) {
        let Some(traces) = &read.table.traces else { return };
        if traces.add_point(columns, read.take_served()) && read.table.definition.options.layout_auto {
            self.wake_background();
        }
    }

    /// Asks the background to decide on a redesign, if what was counted so far calls for it: scans are few, and each
    /// may read much.
    #[inline]
    pub(crate) fn look_before_scan(&self, table: &TableShared) {
        if table.definition.options.layout_auto && table.is_redesign_due() {
            self.wake_background();
        }
    }

    /// Writes the traces of all tables that were asked for anything. A failure is told and changes nothing else.
    pub(crate) fn save_traces(&self) {
        let tables: Vec<Arc<TableShared>> = self.core.lock().tables.values().cloned().collect();
        for table in tables {
            if let Some(traces) = &table.traces {
                self.save_trace(table.id, &traces.trace());
            }
        }
    }

    /// Gives the trace of a table to the one that takes its place, and writes it, unless that has a column less: the
    /// trace numbers columns one after the other.
    pub(crate) fn hand_trace_on(&self, before: &TableShared, after: &TableShared) {
        if let (Some(from), Some(to)) = (&before.traces, &after.traces) {
            let columns = to.recorder.numbering().columns();
            if from.recorder.numbering().columns().is_subset(columns) {
                match from.trace().with_columns(columns.len()).and_then(|trace| to.restore(trace)) {
                    Ok(()) => self.save_trace(after.id, &to.trace()),
                    Err(error) => tracing::warn!(%error, table = after.name, "a trace is not carried on"),
                }
            }
        }
        self.remove_trace(before);
    }

    /// Removes the trace of a table that was dropped, if one was written. What stays goes at the next open.
    pub(crate) fn remove_trace(&self, table: &TableShared) {
        if table.traces.is_some() {
            drop(self.disk.remove(&self.directory.join(trace_name(table.id))));
        }
    }

    /// Writes one table's trace, if there is anything in it.
    pub(crate) fn save_trace(&self, table: TableId, trace: &Trace) {
        // Whoever opens the directory next writes files of the same numbers.
        let Some(_held) = self.held_lock() else { return };
        if trace.operations() == 0 {
            return;
        }
        let path = self.directory.join(trace_name(table));
        let number = self.core.lock().numbers.allocate();
        let temporary = self.directory.join(FileKind::Temporary.name(number));
        let write = || {
            self.disk.create(&temporary)?.append(trace.to_string().as_bytes())?;
            self.disk.rename(&temporary, &path)
        };
        if let Err(error) = write() {
            drop(self.disk.remove(&temporary));
            tracing::warn!(%error, path = %path.display(), "a trace could not be written");
        }
    }
}

impl Table {
    /// What the table was asked for, by level and projection, since it was created; in a table of
    /// [`crate::TableOptions::layout_auto`] what is older weighs less. Writes are counted when they are flushed.
    /// Columns are numbered from 0 without those of the key.
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::InvalidArgument`] for a key-value table.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use mycelium_engine::{Database, Durability, Options, ReadOptions, TableOptions};
    /// use mycelium_encoding::{DatumRef, Schema};
    /// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
    /// # let database = Database::open("example", options)?;
    /// let schema = Schema::parse("id int64 not null, name utf8, age int32, primary key (id)")?;
    /// let table = database.create_typed_table("people", schema, TableOptions::default())?;
    /// table.insert_row(&[DatumRef::Int64(1), DatumRef::Utf8("Ada"), DatumRef::Int32(36)], Durability::Os)?;
    /// database.flush()?;
    /// table.get_row(&[DatumRef::Int64(1)], Some(&[2]), &ReadOptions::default())?;
    /// let trace = table.trace()?;
    /// assert_eq!((trace.inserts(), trace.operations()), (1, 2));
    /// # Ok::<(), mycelium_engine::Error>(())
    /// ```
    pub fn trace(&self) -> Result<Trace> {
        Ok(self.shared.traces()?.trace())
    }
}
