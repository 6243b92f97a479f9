//! Histories: random sequences of actions, drawn from a seed.
//!
//! Keys come from a fixed set per table, so that they are written again and again; a skew makes some hot. Reads also
//! ask for keys that were never written but lie next to written ones. Snapshots are numbered in the order they are
//! taken; reopening releases them all. A table that is dropped is created again at once, so that every action can name
//! any table. What is held open (iterators and scans) outlives both; transactions are rolled back by both.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Bound, RangeInclusive};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::model::{Direction, Durability, Move, ScanRange, TransactionRead, TransactionStep, Write, WriteKind, show};
use crate::tables::{TableKind, pick};

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

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(batch, durability) => {
                write!(f, "write {durability:?}:")?;
                batch.iter().try_for_each(|write| write!(f, " {write}"))
            }
            Self::Get { table, keys, snapshot } => {
                write!(f, "get table {table}{}:", At(*snapshot))?;
                keys.iter().try_for_each(|key| write!(f, " \"{}\"", show(key)))
            }
            Self::Scan { table, range, direction, limit, snapshot } => {
                write!(f, "scan table {table}{} {direction:?} {range} limit {limit:?}", At(*snapshot))
            }
            Self::Walk { table, range, moves, snapshot } => {
                write!(f, "walk table {table}{} {range}:", At(*snapshot))?;
                moves.iter().try_for_each(|step| write!(f, " {step}"))
            }
            Self::Transact { steps, commit } => {
                f.write_str("transact:")?;
                steps.iter().try_for_each(|step| write!(f, " {step}"))?;
                match commit {
                    Some(durability) => write!(f, " commit {durability:?}"),
                    None => f.write_str(" rollback"),
                }
            }
            Self::Hold { id, table, range, snapshot } => {
                write!(f, "hold {id}: table {table}{}", At(*snapshot))?;
                match range {
                    Some(range) => write!(f, " {range}"),
                    None => f.write_str(" columns"),
                }
            }
            Self::GoOn { id, moves } => {
                write!(f, "go-on {id}:")?;
                moves.iter().try_for_each(|step| write!(f, " {step}"))
            }
            Self::LetGo(id) => write!(f, "let-go {id}"),
            Self::Begin { id, is_serializable } => write!(f, "begin {id} serializable {is_serializable}"),
            Self::Within { id, steps, reads } => {
                write!(f, "within {id}:")?;
                steps.iter().try_for_each(|step| write!(f, " {step}"))?;
                reads.iter().try_for_each(|read| write!(f, " {read}"))
            }
            Self::End { id, commit: Some(durability) } => write!(f, "end {id}: commit {durability:?}"),
            Self::End { id, commit: None } => write!(f, "end {id}: rollback"),
            Self::Ingest { table, rows } => {
                write!(f, "ingest table {table}:")?;
                rows.iter().try_for_each(|(key, value)| write!(f, " \"{}\" \"{}\"", show(key), show(value)))
            }
            Self::Recreate(table) => write!(f, "recreate table {table}"),
            Self::ChangeColumns(table) => write!(f, "change-columns table {table}"),
            Self::RenameColumn(table, column) => write!(f, "rename-column table {table} column {column}"),
            Self::TakeSnapshot(id) => write!(f, "take snapshot {id}"),
            Self::ReleaseSnapshot(id) => write!(f, "release snapshot {id}"),
            Self::Compact(table) => write!(f, "compact table {table}"),
            Self::CompactPart { table, lower, upper } => {
                let bound =
                    |key: &Option<Vec<u8>>| key.as_ref().map_or(String::new(), |key| format!("\"{}\"", show(key)));
                write!(f, "compact-part table {table} [{}..{})", bound(lower), bound(upper))
            }
            other => write!(f, "{}", format!("{other:?}").to_lowercase()),
        }
    }
}

struct At(Option<SnapshotId>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |id| write!(f, " at snapshot {id}"))
    }
}

impl fmt::Display for TransactionStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(write) => write!(f, "{write}"),
            Self::Savepoint => f.write_str("savepoint"),
            Self::RollbackTo(index) => write!(f, "rollback-to {index}"),
            Self::Release(index) => write!(f, "release {index}"),
        }
    }
}

impl fmt::Display for TransactionRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Get(table, key) => write!(f, "[get {table} \"{}\"]", show(key)),
            Self::Scan(table, range, direction) => write!(f, "[scan {table} {direction:?} {range}]"),
            Self::Walk(table, range, moves) => {
                write!(f, "[walk {table} {range}:")?;
                moves.iter().try_for_each(|step| write!(f, " {step}"))?;
                f.write_str("]")
            }
        }
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, key, value) = match &self.kind {
            WriteKind::Put(key, value) => ("put", key, Some(value)),
            WriteKind::Patch(key, value) => ("patch", key, Some(value)),
            WriteKind::Merge(key, value) => ("merge", key, Some(value)),
            WriteKind::Delete(key) => ("delete", key, None),
            WriteKind::DeleteRange(start, end) => ("delete-range", start, Some(end)),
        };
        write!(f, "[{word} {} \"{}\"", self.table, show(key))?;
        value.map_or(Ok(()), |value| write!(f, " \"{}\"", show(value)))?;
        f.write_str("]")
    }
}

impl fmt::Display for ScanRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.lower {
            Bound::Included(key) => write!(f, "[\"{}\"", show(key))?,
            Bound::Excluded(key) => write!(f, "(\"{}\"", show(key))?,
            Bound::Unbounded => f.write_str("(")?,
        }
        f.write_str("..")?;
        match &self.upper {
            Bound::Included(key) => write!(f, "\"{}\"]", show(key))?,
            Bound::Excluded(key) => write!(f, "\"{}\")", show(key))?,
            Bound::Unbounded => f.write_str(")")?,
        }
        self.prefix.as_ref().map_or(Ok(()), |prefix| write!(f, " prefix \"{}\"", show(prefix)))
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seek(key) => write!(f, "seek(\"{}\")", show(key)),
            Self::SeekForPrev(key) => write!(f, "seek-for-prev(\"{}\")", show(key)),
            other => write!(f, "{}", format!("{other:?}").to_lowercase()),
        }
    }
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
    /// 0 by default, as are the eight below: what is drawn without them stays as it was.
    pub compact_part: u32,
    pub hold: u32,
    pub go_on: u32,
    pub begin: u32,
    pub within: u32,
    pub end: u32,
    pub look: u32,
    /// Of a table of [`TableKind::Growing`].
    pub change_columns: u32,
    pub salvage: u32,
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
            change_columns: 0,
            salvage: 0,
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

struct Generator<'a> {
    options: &'a HistoryOptions,
    rng: SmallRng,
    /// By table; shuffled, so that hot keys lie anywhere.
    keys: Vec<Vec<Vec<u8>>>,
    live: Vec<SnapshotId>,
    next_snapshot: SnapshotId,
    /// With the table that each reads.
    held: Vec<(HeldId, usize)>,
    next_held: HeldId,
    /// With the savepoints that stand in each.
    open: Vec<(TransactionId, usize)>,
    next_open: TransactionId,
}

/// What is held open at once, at most.
const MAX_HELD: usize = 5;
/// Transactions open at once, at most.
const MAX_OPEN: usize = 3;

impl<'a> Generator<'a> {
    fn new(options: &'a HistoryOptions) -> Self {
        let mut rng = SmallRng::seed_from_u64(options.seed);
        let mut keys = Vec::with_capacity(options.tables.len());
        for table in &options.tables {
            let mut set = Vec::new();
            // Shapes with few keys run out: stop after as many draws as would fill the others many times.
            for _ in 0..options.keys * 8 {
                let shape = *pick(&mut rng, &options.shapes);
                let key = table.key(&random_key(&mut rng, shape));
                if set.len() < options.keys && !set.contains(&key) {
                    set.push(key);
                }
            }
            keys.push(set);
        }
        Self {
            options,
            rng,
            keys,
            live: Vec::new(),
            next_snapshot: 0,
            held: Vec::new(),
            next_held: 0,
            open: Vec::new(),
            next_open: 0,
        }
    }

    fn action(&mut self) -> Action {
        let w = self.options.weights;
        let kinds = [
            w.write,
            w.get,
            w.scan,
            w.walk,
            w.take_snapshot,
            w.release_snapshot,
            w.flush,
            w.compact,
            w.step,
            w.reopen,
            w.checkpoint,
            w.verify,
            w.transact,
            w.ingest,
            w.recreate,
            w.compact_part,
            w.hold,
            w.go_on,
            w.begin,
            w.within,
            w.end,
            w.look,
            w.change_columns,
            w.salvage,
        ];
        match weighted(&mut self.rng, &kinds) {
            0 => self.write(),
            1 => self.get(),
            2 => self.scan(),
            3 => self.walk(),
            4 | 5 if self.live.len() >= self.options.max_snapshots => self.release_snapshot(),
            4 => self.take_snapshot(),
            5 if self.live.is_empty() => self.take_snapshot(),
            5 => self.release_snapshot(),
            6 => Action::Flush,
            7 => Action::Compact(self.table()),
            8 => Action::Step,
            9 => {
                self.live.clear();
                self.open.clear();
                Action::Reopen
            }
            10 => Action::Checkpoint,
            11 => Action::Verify,
            12 => self.transact(),
            13 => self.ingest(),
            14 => {
                self.open.clear();
                Action::Recreate(self.table())
            }
            15 => self.compact_part(),
            16 | 17 if self.held.is_empty() => self.hold(),
            16 if self.held.len() >= MAX_HELD => {
                let index = self.rng.random_range(0..self.held.len());
                Action::LetGo(self.held.remove(index).0)
            }
            16 => self.hold(),
            17 => self.go_on(),
            18..=20 if self.open.is_empty() => self.begin(),
            18 if self.open.len() < MAX_OPEN => self.begin(),
            18 | 20 => self.end(),
            19 => self.within(),
            21 => Action::Look,
            22 => self.change_columns(),
            _ => {
                self.live.clear();
                self.open.clear();
                Action::Salvage
            }
        }
    }

    /// Two in three add a column or drop one.
    fn change_columns(&mut self) -> Action {
        let Some(table) = self.options.tables.iter().position(|kind| *kind == TableKind::Growing) else {
            return Action::Step;
        };
        self.open.clear();
        if self.rng.random_ratio(2, 3) {
            return Action::ChangeColumns(table);
        }
        let columns = self.options.tables[table].schema().map_or(1, |schema| schema.columns().len());
        Action::RenameColumn(table, self.rng.random_range(0..columns))
    }

    /// An iterator, or one time in three a scan, if the table has columns.
    fn hold(&mut self) -> Action {
        let table = self.table();
        let is_scan = self.options.tables[table].is_typed() && self.rng.random_ratio(1, 3);
        let range = if is_scan { None } else { Some(self.range(table)) };
        let id = self.next_held;
        self.next_held += 1;
        self.held.push((id, table));
        Action::Hold { id, table, range, snapshot: self.snapshot() }
    }

    fn go_on(&mut self) -> Action {
        let (id, table) = *pick(&mut self.rng, &self.held);
        Action::GoOn { id, moves: self.moves(table) }
    }

    fn begin(&mut self) -> Action {
        let id = self.next_open;
        self.next_open += 1;
        self.open.push((id, 0));
        Action::Begin { id, is_serializable: self.rng.random() }
    }

    /// A few steps, or none, and a few reads.
    fn within(&mut self) -> Action {
        let at = self.rng.random_range(0..self.open.len());
        let (id, mut savepoints) = self.open[at];
        let steps = (0..self.rng.random_range(0..5)).map(|_| self.transaction_step(&mut savepoints)).collect();
        self.open[at] = (id, savepoints);
        let reads = (0..self.rng.random_range(0..4)).map(|_| self.transaction_read()).collect();
        Action::Within { id, steps, reads }
    }

    /// Three in four commit.
    fn end(&mut self) -> Action {
        let at = self.rng.random_range(0..self.open.len());
        let (id, _) = self.open.remove(at);
        let durability = *pick(&mut self.rng, &[Durability::Buffered, Durability::Os, Durability::Sync]);
        Action::End { id, commit: self.rng.random_bool(0.75).then_some(durability) }
    }

    fn transaction_read(&mut self) -> TransactionRead {
        let table = self.table();
        match self.rng.random_range(0..6) {
            0 => {
                let direction = *pick(&mut self.rng, &[Direction::Forward, Direction::Backward]);
                TransactionRead::Scan(table, self.range(table), direction)
            }
            1 | 2 => TransactionRead::Walk(table, self.range(table), self.moves(table)),
            _ => TransactionRead::Get(table, self.key_or_neighbour(table)),
        }
    }

    fn table(&mut self) -> usize {
        self.rng.random_range(0..self.options.tables.len())
    }

    fn take_snapshot(&mut self) -> Action {
        let id = self.next_snapshot;
        self.next_snapshot += 1;
        self.live.push(id);
        Action::TakeSnapshot(id)
    }

    fn release_snapshot(&mut self) -> Action {
        let index = self.rng.random_range(0..self.live.len().max(1));
        if index < self.live.len() { Action::ReleaseSnapshot(self.live.remove(index)) } else { Action::Step }
    }

    fn snapshot(&mut self) -> Option<SnapshotId> {
        let wanted = !self.live.is_empty() && self.rng.random_bool(0.5);
        wanted.then(|| *pick(&mut self.rng, &self.live))
    }

    /// A key of the table's set, hot ones first.
    fn key(&mut self, table: usize) -> Vec<u8> {
        let share = self.rng.random::<f64>().powf(self.options.skew);
        let keys = &self.keys[table];
        keys[((share * keys.len() as f64) as usize).min(keys.len() - 1)].clone()
    }

    /// A key of the set or one beside it.
    fn key_or_neighbour(&mut self, table: usize) -> Vec<u8> {
        let mut key = self.key(table);
        match self.rng.random_range(0..8) {
            0 => key.push(0),
            1 => {
                key.pop();
            }
            2 => {
                if let Some(last) = key.last_mut() {
                    *last = last.wrapping_add(1);
                }
            }
            _ => {}
        }
        key
    }

    fn value_len(&mut self) -> usize {
        if self.rng.random_bool(0.005) {
            return self.options.large_value_len;
        }
        self.rng.random_range(self.options.value_len.clone())
    }

    /// A whole row of about `len` bytes.
    fn row(&mut self, kind: TableKind, len: usize) -> Vec<u8> {
        let row = kind.random_row(&mut self.rng, len);
        self.at_edges(kind, row)
    }

    /// A patch or operand of about `len` bytes.
    fn increment(&mut self, kind: TableKind, len: usize) -> Vec<u8> {
        let increment = kind.random_increment(&mut self.rng, len);
        self.at_edges(kind, increment)
    }

    /// Draws nothing more unless it is asked for, so that other histories stay what they were.
    fn at_edges(&mut self, kind: TableKind, value: Vec<u8>) -> Vec<u8> {
        if self.options.edge_cells { kind.at_edges(&mut self.rng, value) } else { value }
    }

    fn write(&mut self) -> Action {
        let len = self.rng.random_range(self.options.batch_len.clone());
        let batch = (0..len).map(|_| self.one_write()).collect();
        Action::Write(batch, *pick(&mut self.rng, &[Durability::Buffered, Durability::Os, Durability::Sync]))
    }

    /// Mostly writes, with savepoints among them; three in four commit.
    fn transact(&mut self) -> Action {
        let (mut steps, mut savepoints) = (Vec::new(), 0);
        for _ in 0..self.rng.random_range(self.options.batch_len.clone()) {
            steps.push(self.transaction_step(&mut savepoints));
        }
        let durability = *pick(&mut self.rng, &[Durability::Buffered, Durability::Os, Durability::Sync]);
        Action::Transact { steps, commit: self.rng.random_bool(0.75).then_some(durability) }
    }

    /// A step of a transaction in which so many savepoints stand.
    fn transaction_step(&mut self, savepoints: &mut usize) -> TransactionStep {
        match self.rng.random_range(0..10) {
            0 | 1 => {
                *savepoints += 1;
                TransactionStep::Savepoint
            }
            2 if *savepoints > 0 => {
                let index = self.rng.random_range(0..*savepoints);
                *savepoints = index + 1;
                TransactionStep::RollbackTo(index)
            }
            3 if *savepoints > 0 => {
                *savepoints = self.rng.random_range(0..*savepoints);
                TransactionStep::Release(*savepoints)
            }
            _ => TransactionStep::Write(self.one_write()),
        }
    }

    /// A few rows or a few dozen, of keys that other actions use too.
    fn ingest(&mut self) -> Action {
        let table = self.table();
        let kind = self.options.tables[table];
        let mut rows = BTreeMap::new();
        for _ in 0..*pick(&mut self.rng, &[1, 3, 40]) {
            let (key, len) = (self.key(table), self.value_len());
            rows.insert(key, self.row(kind, len));
        }
        Action::Ingest { table, rows: rows.into_iter().collect() }
    }

    /// Any part of a table, open at an end now and then.
    fn compact_part(&mut self) -> Action {
        let table = self.table();
        let (one, other) = (self.key_or_neighbour(table), self.key_or_neighbour(table));
        let (from, to) = if one <= other { (one, other) } else { (other, one) };
        let lower = self.rng.random_bool(0.8).then_some(from);
        let upper = self.rng.random_bool(0.8).then_some(to);
        Action::CompactPart { table, lower, upper }
    }

    fn one_write(&mut self) -> Write {
        let w = self.options.weights;
        let table = self.table();
        let kind = self.options.tables[table];
        let key = self.key(table);
        let len = self.value_len();
        let kind = match weighted(&mut self.rng, &[w.put, w.increment, w.delete, w.delete_range]) {
            1 if kind.is_typed() => WriteKind::Patch(key, self.increment(kind, len)),
            1 if kind != TableKind::KeyValue => WriteKind::Merge(key, self.increment(kind, len.min(40))),
            2 => WriteKind::Delete(key),
            3 => self.delete_range(table, key),
            _ => WriteKind::Put(key, self.row(kind, len)),
        };
        Write { table, kind }
    }

    /// Mostly a few keys wide, seldom as it falls.
    fn delete_range(&mut self, table: usize, start: Vec<u8>) -> WriteKind {
        let mut other = self.key_or_neighbour(table);
        if self.rng.random_bool(0.8) {
            let mut above: Vec<&Vec<u8>> = self.keys[table].iter().filter(|key| **key > start).collect();
            above.sort_unstable();
            if let Some(near) = above.get(self.rng.random_range(0..8)) {
                other = (*near).clone();
            }
        }
        match start.cmp(&other) {
            std::cmp::Ordering::Less => WriteKind::DeleteRange(start, other),
            std::cmp::Ordering::Greater => WriteKind::DeleteRange(other, start),
            std::cmp::Ordering::Equal => {
                let mut end = start.clone();
                end.push(0);
                WriteKind::DeleteRange(start, end)
            }
        }
    }

    fn get(&mut self) -> Action {
        let table = self.table();
        let keys = (0..self.rng.random_range(1..8)).map(|_| self.key_or_neighbour(table)).collect();
        Action::Get { table, keys, snapshot: self.snapshot() }
    }

    fn range(&mut self, table: usize) -> ScanRange {
        let bound = |generator: &mut Self| match generator.rng.random_range(0..5) {
            0 | 1 => Bound::Included(generator.key_or_neighbour(table)),
            2 => Bound::Excluded(generator.key_or_neighbour(table)),
            _ => Bound::Unbounded,
        };
        let (lower, upper) = (bound(self), bound(self));
        let prefix = self.rng.random_bool(0.25).then(|| {
            let mut key = self.key(table);
            key.truncate(self.rng.random_range(0..=key.len()));
            key
        });
        ScanRange { lower, upper, prefix }
    }

    fn scan(&mut self) -> Action {
        let table = self.table();
        let range = self.range(table);
        let direction = *pick(&mut self.rng, &[Direction::Forward, Direction::Backward]);
        let limit = self.rng.random_bool(0.4).then(|| self.rng.random_range(0..20));
        Action::Scan { table, range, direction, limit, snapshot: self.snapshot() }
    }

    fn walk(&mut self) -> Action {
        let table = self.table();
        let range = self.range(table);
        let moves = self.moves(table);
        Action::Walk { table, range, moves, snapshot: self.snapshot() }
    }

    fn moves(&mut self, table: usize) -> Vec<Move> {
        let mut moves = Vec::new();
        for _ in 0..self.rng.random_range(1..25) {
            moves.push(match self.rng.random_range(0..16) {
                0 => Move::First,
                1 => Move::Last,
                2 | 3 => Move::Seek(self.key_or_neighbour(table)),
                4 | 5 => Move::SeekForPrev(self.key_or_neighbour(table)),
                6..11 => Move::Next,
                _ => Move::Prev,
            });
        }
        moves
    }
}

/// An index drawn by weight.
fn weighted(rng: &mut SmallRng, weights: &[u32]) -> usize {
    let mut draw = rng.random_range(0..weights.iter().sum());
    for (index, &weight) in weights.iter().enumerate() {
        if draw < weight {
            return index;
        }
        draw -= weight;
    }
    weights.len()
}

fn random_key(rng: &mut SmallRng, shape: KeyShape) -> Vec<u8> {
    match shape {
        KeyShape::Short => (0..rng.random_range(0..=3)).map(|_| *pick(rng, b"abcd")).collect(),
        KeyShape::SharedPrefix => {
            format!("tenant/00000001/orders/{:06}", rng.random_range(0..100_000) * 7).into_bytes()
        }
        KeyShape::Nuls => (0..rng.random_range(1..=6)).map(|_| *pick(rng, &[0x00, 0x01, 0xff])).collect(),
        KeyShape::Long => {
            let mut key = vec![b'L'; *pick(rng, &[300, 1_000, 2_000])];
            key.extend_from_slice(&rng.random_range(0..1_000u32).to_be_bytes());
            key
        }
        KeyShape::Random => rng.random::<u64>().to_be_bytes().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn histories_are_functions_of_their_options() {
        let options = HistoryOptions { seed: 3, ..HistoryOptions::default() };
        assert_eq!(generate(&options), generate(&options));
        assert_ne!(generate(&options), generate(&HistoryOptions { seed: 4, ..options }));
    }

    #[test]
    fn every_kind_of_action_and_write_appears() {
        let weights = Weights {
            compact_part: 3,
            hold: 20,
            go_on: 20,
            begin: 10,
            within: 20,
            end: 10,
            look: 3,
            change_columns: 9,
            salvage: 3,
            recreate: 4,
            checkpoint: 4,
            verify: 4,
            ..Weights::default()
        };
        let tables = vec![TableKind::KeyValue, TableKind::Merging, TableKind::Growing];
        let options = HistoryOptions { seed: 1, actions: 4_000, tables, weights, ..HistoryOptions::default() };
        let history = generate(&options);
        let first_words = |text: String| text.split([' ', ':']).take(1).collect::<String>();
        let actions: HashSet<String> = history.iter().map(|action| first_words(action.to_string())).collect();
        assert_eq!(actions.len(), 26, "{actions:?}");
        let writes: HashSet<String> = history
            .iter()
            .filter_map(|action| if let Action::Write(batch, _) = action { Some(batch) } else { None })
            .flatten()
            .map(|write| first_words(write.to_string()))
            .collect();
        assert_eq!(writes.len(), 5, "{writes:?}");
    }

    #[test]
    fn snapshots_named_are_live() {
        let history = generate(&HistoryOptions { seed: 2, actions: 5_000, ..HistoryOptions::default() });
        let mut live = HashSet::new();
        for action in &history {
            match action {
                Action::TakeSnapshot(id) => assert!(live.insert(*id)),
                Action::ReleaseSnapshot(id) => assert!(live.remove(id)),
                Action::Reopen => live.clear(),
                Action::Get { snapshot, .. } | Action::Scan { snapshot, .. } | Action::Walk { snapshot, .. } => {
                    assert!(snapshot.is_none_or(|id| live.contains(&id)));
                }
                _ => {}
            }
            assert!(live.len() <= 6);
        }
    }

    #[test]
    fn what_is_held_and_what_is_open_is_live() {
        let weights = Weights {
            hold: 40,
            go_on: 60,
            begin: 30,
            within: 60,
            end: 20,
            recreate: 5,
            reopen: 5,
            ..Weights::default()
        };
        let history = generate(&HistoryOptions { seed: 6, actions: 5_000, weights, ..HistoryOptions::default() });
        let (mut held, mut open, mut went_on, mut went_within) = (HashSet::new(), HashSet::new(), 0, 0);
        for action in &history {
            match action {
                Action::Hold { id, .. } => assert!(held.insert(*id)),
                Action::GoOn { id, .. } => {
                    assert!(held.contains(id));
                    went_on += 1;
                }
                Action::LetGo(id) => assert!(held.remove(id)),
                Action::Begin { id, .. } => assert!(open.insert(*id)),
                Action::Within { id, .. } => {
                    assert!(open.contains(id));
                    went_within += 1;
                }
                Action::End { id, .. } => assert!(open.remove(id)),
                Action::Reopen | Action::Recreate(_) => open.clear(),
                _ => {}
            }
            assert!(held.len() <= MAX_HELD && open.len() <= MAX_OPEN);
        }
        assert!(went_on > 100 && went_within > 100, "{went_on}, {went_within}");
    }

    #[test]
    fn skew_concentrates_draws() {
        let options = HistoryOptions { seed: 5, skew: 6.0, ..HistoryOptions::default() };
        let mut generator = Generator::new(&options);
        let hot: HashSet<Vec<u8>> = generator.keys[0][..4].iter().cloned().collect();
        let hits = (0..10_000).filter(|_| hot.contains(&generator.key(0))).count();
        assert!((4_000..6_500).contains(&hits), "{hits}");
    }
}
