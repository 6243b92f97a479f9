//! Events: what the engine tells a listener while it works.

use std::sync::Arc;

use mycelium_base::{FileNumber, TableId};
use mycelium_manifest::Layout;

/// Why writers wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StallCause {
    /// All memtable memory is taken and the flush has not caught up.
    Memory,
    /// A table has too many level-0 runs.
    Level0Runs,
    /// A table has too many bytes awaiting compaction.
    Debt,
}

/// Something that happened. New events may be added.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A generation of memtables is about to be written.
    FlushBegin {
        /// Bytes of memory it takes.
        memory_bytes: usize,
    },
    /// A generation of memtables is on disk and visible.
    FlushEnd {
        /// The files written, with their table.
        files: Vec<(TableId, FileNumber)>,
        /// Their bytes.
        bytes: u64,
        /// Seconds it took.
        seconds: f64,
    },
    /// A compaction begins. In the thread that flushes, flushes may begin and end before it does.
    CompactionBegin {
        /// The table.
        table: TableId,
        /// Levels and numbers of the input files.
        inputs: Vec<(usize, FileNumber)>,
        /// The level that the outputs go to.
        output_level: usize,
        /// Why it was picked.
        reason: String,
    },
    /// A compaction's outputs are visible and its inputs are gone.
    CompactionEnd {
        /// The table.
        table: TableId,
        /// Numbers of the output files.
        outputs: Vec<FileNumber>,
        /// The level they are on.
        output_level: usize,
        /// Bytes of the inputs.
        bytes_read: u64,
        /// Bytes of the outputs; 0 if files were moved.
        bytes_written: u64,
        /// Seconds it took.
        seconds: f64,
    },
    /// The expired rows of a table are about to be looked for and deleted.
    ExpiryBegin {
        /// The table.
        table: TableId,
    },
    /// Those that were found are deleted.
    ExpiryEnd {
        /// The table.
        table: TableId,
        /// How many they were.
        rows: u64,
        /// Seconds it took, rests included.
        seconds: f64,
    },
    /// Writers begin to be slowed or stopped.
    StallBegin {
        /// Why.
        cause: StallCause,
        /// Whether they are stopped, not only slowed.
        stopped: bool,
    },
    /// Writers run freely again.
    StallEnd {
        /// Seconds since the stall began.
        seconds: f64,
    },
    /// A new log segment receives the writes.
    LogSwitched {
        /// Its number.
        segment: FileNumber,
    },
    /// A segment of the log is in the archive, durably, and was removed from the database's directory.
    SegmentArchived {
        /// Its number.
        segment: FileNumber,
        /// Bytes of its records.
        bytes: u64,
    },
    /// A segment of the log could not be archived. It stays in the database's directory, and is tried again.
    ArchiveFailed {
        /// Its number.
        segment: FileNumber,
        /// The error's text.
        message: String,
    },
    /// A file was removed from the disk.
    FileRemoved {
        /// Its number.
        file: FileNumber,
    },
    /// A table's layout was changed because its workload shifted. Files stay as they are until they are compacted.
    LayoutChanged {
        /// The table.
        table: TableId,
        /// The layout so far.
        from: Arc<Layout>,
        /// The layout from now on.
        to: Arc<Layout>,
        /// What is saved of the cost of the operations seen, by the model: a share, from 0 to 1.
        predicted_saving: f64,
    },
    /// The database takes no more writes until it is opened again: something failed after which it cannot be known what
    /// is on the disk.
    ReadOnly {
        /// The error's text.
        message: String,
    },
    /// Background work failed. Out of space is tried again; anything else latches the database read-only, but for what
    /// a pass over expired rows is refused, which the next one tries again.
    BackgroundError {
        /// The error's text.
        message: String,
        /// Whether the database is now read-only.
        latched: bool,
    },
}

/// Receives events, from the threads in which they happen. Must be quick and must not call the database.
pub trait EventListener: Send + Sync {
    /// Called for every event.
    fn on_event(&self, event: &Event);
}
