//! Histories: random sequences of actions, drawn from a seed.
//!
//! Keys come from a fixed set per table, so that they are written again and again; a skew makes some hot. Reads also
//! ask for keys that were never written but lie next to written ones. Snapshots are numbered in the order they are
//! taken; reopening releases them all. A table that is dropped is created again at once, so that every action can name
//! any table. What is held open (iterators and scans) outlives both; transactions are rolled back by both.

mod generator;
mod text;

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::model::{Direction, Durability, Move, ScanRange, TransactionRead, TransactionStep, Write};
use crate::tables::TableKind;
use generator::Generator;

/// At the beginning of 1970 no row is so old, whatever its time: a clock that stands there expires nothing.
pub const LEAST_AGE: Duration = Duration::from_nanos((1 << 63) + 1);

/// Names a snapshot within a history.
pub type SnapshotId = usize;
/// Names what is held open within a history.
pub type HeldId = usize;
/// Names a transaction within a history.
pub type TransactionId = usize;

/// One step of a history. An action that names something not live (any more) is to be left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Commits a batch.
    Write(Vec<Write>, Durability),
    /// Reads keys of a table, each alone and all at once.
    Get {
        /// Index of the table.
        table: usize,
        /// The keys, which may repeat.
        keys: Vec<Vec<u8>>,
        /// `None`: the newest state.
        snapshot: Option<SnapshotId>,
    },
    /// Scans a range, up to a number of rows.
    Scan {
        /// Index of the table.
        table: usize,
        /// The keys.
        range: ScanRange,
        /// The order.
        direction: Direction,
        /// Rows to stop after.
        limit: Option<usize>,
        /// `None`: the newest state.
        snapshot: Option<SnapshotId>,
    },
    /// Moves an iterator about.
    Walk {
        /// Index of the table.
        table: usize,
        /// The keys.
        range: ScanRange,
        /// Where to go; moves that are not possible are left out.
        moves: Vec<Move>,
        /// `None`: the newest state.
        snapshot: Option<SnapshotId>,
    },
    /// Begins a transaction, takes its steps, reads what it wrote, and ends it.
    Transact {
        /// What it does.
        steps: Vec<TransactionStep>,
        /// `None`: it is rolled back.
        commit: Option<Durability>,
    },
    /// Opens an iterator, or a scan of columns, and leaves it open.
    Hold {
        /// Its name.
        id: HeldId,
        /// Index of the table.
        table: usize,
        /// The keys of an iterator; `None`: a scan.
        range: Option<ScanRange>,
        /// `None`: the newest state.
        snapshot: Option<SnapshotId>,
    },
    /// Goes on with what was left open.
    GoOn {
        /// Its name.
        id: HeldId,
        /// Where an iterator goes; moves that are not possible are left out. A scan gives as many batches.
        moves: Vec<Move>,
    },
    /// Closes what was left open.
    LetGo(HeldId),
    /// Begins a transaction and leaves it open.
    Begin {
        /// Its name.
        id: TransactionId,
        /// Whether it is serializable, not only isolated by its snapshot.
        is_serializable: bool,
    },
    /// Goes on with a transaction: takes steps and reads.
    Within {
        /// Its name.
        id: TransactionId,
        /// Savepoints are counted from the transaction's beginning.
        steps: Vec<TransactionStep>,
        /// What is read then.
        reads: Vec<TransactionRead>,
    },
    /// Ends a transaction.
    End {
        /// Its name.
        id: TransactionId,
        /// `None`: it is rolled back.
        commit: Option<Durability>,
    },
    /// Loads rows in bulk.
    Ingest {
        /// Index of the table.
        table: usize,
        /// The rows, keys ascending.
        rows: Vec<(Vec<u8>, Vec<u8>)>,
    },
    /// Drops a table and creates it again.
    Recreate(usize),
    /// Makes the next change of a table's columns, if there is one.
    ChangeColumns(usize),
    /// Gives a column of a table another name.
    RenameColumn(usize, usize),
    /// Says how long the rows of a table stay.
    SetExpiry {
        /// Index of the table, whose rows have a time.
        table: usize,
        /// [`LEAST_AGE`] at least; `None`: they do not expire.
        age: Option<Duration>,
    },
    /// Makes a pass over a table whose rows expire.
    Expire {
        /// Index of the table.
        table: usize,
        /// The time of day, from 1970 on.
        now: Duration,
    },
    /// Takes a snapshot.
    TakeSnapshot(SnapshotId),
    /// Releases a snapshot.
    ReleaseSnapshot(SnapshotId),
    /// Flushes all memtables.
    Flush,
    /// Compacts a table completely.
    Compact(usize),
    /// Compacts what a table has of some keys.
    CompactPart {
        /// Index of the table.
        table: usize,
        /// The first key; `None`: the first there is.
        lower: Option<Vec<u8>>,
        /// The key before which it ends; `None`: it does not.
        upper: Option<Vec<u8>>,
    },
    /// Runs one job of background work.
    Step,
    /// Closes and opens the database.
    Reopen,
    /// Closes the database, salvages it, reads what was saved, and opens it again.
    Salvage,
    /// Makes a checkpoint and reads it back.
    Checkpoint,
    /// Opens the database once more, for reading only, and reads it.
    Look,
    /// Verifies every file.
    Verify,
}

/// What keys look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyShape {
    /// 0 to 3 letters of a small alphabet: many are prefixes of each other.
    Short,
    /// A long common prefix, then digits.
    SharedPrefix,
    /// Bytes 00, 01 and FF.
    Nuls,
    /// 300 to 2,000 bytes that differ at the end.
    Long,
    /// 8 random bytes.
    Random,
}

/// How often each action is drawn, relative to the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each is the weight of the action or write of its name")]
pub struct Weights {
    pub write: u32,
    pub transact: u32,
    pub ingest: u32,
    pub recreate: u32,
    pub get: u32,
    pub scan: u32,
    pub walk: u32,
    pub take_snapshot: u32,
    pub release_snapshot: u32,
    pub flush: u32,
    pub compact: u32,
    /// 0 by default, as are the eleven below: what is drawn without them stays as it was.
    pub compact_part: u32,
    pub hold: u32,
    pub go_on: u32,
    pub begin: u32,
    pub within: u32,
    pub end: u32,
    pub look: u32,
    /// Among the reads of open transactions, beside six others.
    pub get_for_update: u32,
    /// Of a table of [`TableKind::Growing`].
    pub change_columns: u32,
    pub salvage: u32,
    /// Of tables whose rows have a time.
    pub set_expiry: u32,
    pub expire: u32,
    pub step: u32,
    pub reopen: u32,
    pub checkpoint: u32,
    pub verify: u32,
    /// Among the writes of a batch; patches and merge operands share `increment`, where the table takes them.
    pub put: u32,
    pub increment: u32,
    pub delete: u32,
    pub delete_range: u32,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            write: 470,
            transact: 30,
            ingest: 4,
            recreate: 1,
            get: 150,
            scan: 80,
            walk: 40,
            take_snapshot: 25,
            release_snapshot: 20,
            flush: 12,
            compact: 3,
            compact_part: 0,
            hold: 0,
            go_on: 0,
            begin: 0,
            within: 0,
            end: 0,
            look: 0,
            get_for_update: 0,
            change_columns: 0,
            salvage: 0,
            set_expiry: 0,
            expire: 0,
            step: 60,
            reopen: 4,
            checkpoint: 1,
            verify: 1,
            put: 60,
            increment: 40,
            delete: 20,
            delete_range: 2,
        }
    }
}

/// What a history is drawn from.
#[derive(Clone, Debug)]
pub struct HistoryOptions {
    /// Equal options give equal histories.
    pub seed: u64,
    /// Number of actions.
    pub actions: usize,
    /// The tables.
    pub tables: Vec<TableKind>,
    /// Distinct keys per table (fewer where a shape has fewer).
    pub keys: usize,
    /// The shapes, drawn evenly.
    pub shapes: Vec<KeyShape>,
    /// 1 draws keys evenly; k concentrates half of the draws on a share of 2^-k of the keys.
    pub skew: f64,
    /// Value sizes in bytes, drawn evenly.
    pub value_len: RangeInclusive<usize>,
    /// One value in 200 has this many bytes instead.
    pub large_value_len: usize,
    /// Writes per batch.
    pub batch_len: RangeInclusive<usize>,
    /// Live snapshots are kept below this.
    pub max_snapshots: usize,
    /// Whether half of the cells of typed tables are at the edges of their types, of zones and of widths of integers.
    pub edge_cells: bool,
    /// How often each action is drawn.
    pub weights: Weights,
}

impl Default for HistoryOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            actions: 1_000,
            tables: vec![TableKind::KeyValue, TableKind::Merging, TableKind::Typed],
            keys: 200,
            shapes: vec![KeyShape::Short, KeyShape::SharedPrefix, KeyShape::Nuls, KeyShape::Long, KeyShape::Random],
            skew: 1.5,
            value_len: 0..=120,
            large_value_len: 10_000,
            batch_len: 1..=12,
            max_snapshots: 6,
            edge_cells: false,
            weights: Weights::default(),
        }
    }
}

/// Draws a history. Deterministic in `options`.
///
/// # Panics
/// If there are no tables, shapes or keys, or all weights are 0.
pub fn generate(options: &HistoryOptions) -> Vec<Action> {
    let mut generator = Generator::new(options);
    (0..options.actions).map(|_| generator.action()).collect()
}
