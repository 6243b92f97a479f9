//! What histories are made of: writes, steps and reads of transactions, ranges, and moves of iterators.

use std::ops::Bound;

/// One write of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// Index of the table.
    pub table: usize,
    /// What is written.
    pub kind: WriteKind,
}

/// What a write does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WriteKind {
    /// Sets the whole row (key, value).
    Put(Vec<u8>, Vec<u8>),
    /// Sets some columns (key, patch).
    Patch(Vec<u8>, Vec<u8>),
    /// Removes the row.
    Delete(Vec<u8>),
    /// Adds a merge operand (key, operand).
    Merge(Vec<u8>, Vec<u8>),
    /// Removes every row of `[start, end)`.
    DeleteRange(Vec<u8>, Vec<u8>),
}

impl WriteKind {
    /// The key; of a range delete, its start.
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Put(key, _) | Self::Patch(key, _) | Self::Delete(key) | Self::Merge(key, _) => key,
            Self::DeleteRange(start, _) => start,
        }
    }
}

/// One step of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TransactionStep {
    /// Writes.
    Write(Write),
    /// Marks the place.
    Savepoint,
    /// Undoes all writes since a savepoint, which stays; later ones are gone. Savepoints that stand are counted from 0,
    /// oldest first; a step that names none is to be left out.
    RollbackTo(usize),
    /// Forgets a savepoint and those after it.
    Release(usize),
}

/// The writes of a transaction that are left at its end.
pub fn surviving_writes(steps: &[TransactionStep]) -> Vec<Write> {
    let (mut writes, mut savepoints) = (Vec::new(), Vec::new());
    for step in steps {
        match step {
            TransactionStep::Write(write) => writes.push(write.clone()),
            TransactionStep::Savepoint => savepoints.push(writes.len()),
            TransactionStep::RollbackTo(index) => {
                if let Some(&len) = savepoints.get(*index) {
                    writes.truncate(len);
                    savepoints.truncate(index + 1);
                }
            }
            TransactionStep::Release(index) => savepoints.truncate(*index),
        }
    }
    writes
}

/// What is read in a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TransactionRead {
    /// The row of a key of a table.
    Get(usize, Vec<u8>),
    /// All rows of a range of a table.
    Scan(usize, ScanRange, Direction),
    /// Where an iterator over a range of a table comes; moves that are not possible are left out.
    Walk(usize, ScanRange, Vec<Move>),
    /// The row of a key of a table, once that is locked.
    GetForUpdate(usize, Vec<u8>),
}

/// How durable a write asks to be before it is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Durability {
    /// In the process.
    Buffered,
    /// Handed to the operating system: survives a kill of the process.
    Os,
    /// Survives power loss.
    Sync,
}

/// What was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashKind {
    /// The process's memory.
    ProcessKill,
    /// Everything not synced.
    PowerLoss,
}

/// Which keys a scan covers; all three conditions hold at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanRange {
    /// The lower bound.
    pub lower: Bound<Vec<u8>>,
    /// The upper bound.
    pub upper: Bound<Vec<u8>>,
    /// Only keys that start with this.
    pub prefix: Option<Vec<u8>>,
}

impl ScanRange {
    /// All keys.
    pub const ALL: Self = Self { lower: Bound::Unbounded, upper: Bound::Unbounded, prefix: None };

    /// One key.
    pub fn of_key(key: &[u8]) -> Self {
        Self { lower: Bound::Included(key.to_vec()), upper: Bound::Included(key.to_vec()), prefix: None }
    }

    /// The keys of `[start, end)`.
    pub fn between(start: &[u8], end: &[u8]) -> Self {
        Self { lower: Bound::Included(start.to_vec()), upper: Bound::Excluded(end.to_vec()), prefix: None }
    }

    /// Whether the range covers `key`.
    pub fn contains(&self, key: &[u8]) -> bool {
        let above = match &self.lower {
            Bound::Included(lower) => key >= lower.as_slice(),
            Bound::Excluded(lower) => key > lower.as_slice(),
            Bound::Unbounded => true,
        };
        let below = match &self.upper {
            Bound::Included(upper) => key <= upper.as_slice(),
            Bound::Excluded(upper) => key < upper.as_slice(),
            Bound::Unbounded => true,
        };
        above && below && self.prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix))
    }
}

/// The direction of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Keys ascending.
    Forward,
    /// Keys descending.
    Backward,
}

/// A move of an iterator. Positions outside the iterator's range do not exist for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Move {
    /// To the first row.
    First,
    /// To the last row.
    Last,
    /// To the first row at or after the key.
    Seek(Vec<u8>),
    /// To the last row at or before the key.
    SeekForPrev(Vec<u8>),
    /// To the next row; only where the iterator stands on a row.
    Next,
    /// To the previous row; only where the iterator stands on a row.
    Prev,
}

/// Moves over rows, keys ascending, from a place among them: the moves that are possible, each with the row it leads
/// to.
#[allow(clippy::type_complexity, reason = "a list of steps")]
pub(crate) fn walk_over(
    rows: &[(Vec<u8>, Vec<u8>)],
    position: &mut Option<usize>,
    moves: &[Move],
) -> Vec<(Move, Option<(Vec<u8>, Vec<u8>)>)> {
    let mut steps = Vec::new();
    for step in moves {
        *position = match (step, *position) {
            (Move::Next | Move::Prev, None) => continue,
            (Move::Next, Some(at)) => Some(at + 1),
            (Move::Prev, Some(at)) => at.checked_sub(1),
            (Move::First, _) => Some(0),
            (Move::Last, _) => rows.len().checked_sub(1),
            (Move::Seek(key), _) => Some(rows.partition_point(|(row, _)| row < key)),
            (Move::SeekForPrev(key), _) => rows.partition_point(|(row, _)| row <= key).checked_sub(1),
        }
        .filter(|&at| at < rows.len());
        steps.push((step.clone(), position.map(|at| rows[at].clone())));
    }
    steps
}
