//! Runs a history against a store and the model at once.
//!
//! 1. Every read is answered by both, at the same snapshot, and compared whole.
//! 2. After every structural action (flush, compaction, reopening) each live snapshot and the newest state are read
//!    completely and compared: nothing may move.
//! 3. What is held open, iterators and scans of columns, must show the rows of its beginning to the end, whatever
//!    happens meanwhile. A transaction must do so too, under its own writes, and commit or be refused as
//!    [`OpenTransaction`] says.
//! 4. Of rows that expire a pass deletes those that the model says, as many as it tells, and then all others are there.
//! 5. A lock on a key is granted to one transaction, and refused to others that are open, which do not wait.
//! 6. The first difference or error stops the run and names the action.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use mycelium_base::{Error, ErrorKind, SequenceNumber};

use crate::model::{
    CrashKind, Direction, Durability, Model, Move, Row, ScanRange, State, TransactionRead, TransactionStep, show,
    surviving_writes, walk_over,
};
use crate::open_transaction::{Fate, OpenTransaction};
use crate::operations::{Action, HeldId, SnapshotId, TransactionId};
use crate::store::Store;
use crate::tables::TableKind;

/// Where store and model disagree.
#[derive(Debug)]
pub struct Mismatch {
    /// The index of the action in the history.
    pub index: usize,
    /// The action as text.
    pub action: String,
    /// What was expected and what was found, or the store's error.
    pub what: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "action {}: {}\n  {}", self.index, self.action, self.what)
    }
}

impl std::error::Error for Mismatch {}

/// Runs `history` on an empty `store` with these tables.
///
/// # Errors
/// The first [`Mismatch`].
pub fn check_history<S: Store>(store: &mut S, tables: &[TableKind], history: &[Action]) -> Result<(), Mismatch> {
    let mut driver = Driver {
        store,
        model: Model::new(tables.iter().map(|kind| kind.rules())),
        tables: tables.len(),
        snapshots: BTreeMap::new(),
        held: BTreeMap::new(),
        open: BTreeMap::new(),
    };
    let checked = |result: Result<(), String>, index: usize, action: &dyn fmt::Display| {
        result.map_err(|what| Mismatch { index, action: action.to_string(), what })
    };
    for (index, action) in history.iter().enumerate() {
        checked(driver.run(action), index, action)?;
    }
    checked(driver.everything().and_then(|()| driver.finish()), history.len(), &"the end")
}

struct Driver<'s, S: Store> {
    store: &'s mut S,
    model: Model,
    tables: usize,
    snapshots: BTreeMap<SnapshotId, (SequenceNumber, S::Snapshot)>,
    held: BTreeMap<HeldId, Held<S>>,
    open: BTreeMap<TransactionId, (OpenTransaction, S::Transaction)>,
}

/// What is held open.
enum Held<S: Store> {
    /// An iterator, the rows that it must show, and where it stands among them.
    Walk { walk: S::Walk, rows: Vec<Row>, position: Option<usize> },
    /// A scan of columns.
    Scan(S::Scan),
}

fn failed(error: Error) -> String {
    format!("error: {error}")
}

impl<S: Store> Driver<'_, S> {
    fn run(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::Write(batch, durability) => {
                self.store.write(batch, *durability).map_err(failed)?;
                self.model.write(batch, *durability);
                Ok(())
            }
            Action::Transact { steps, commit } => self.transact(steps, *commit),
            Action::Hold { id, table, range, snapshot } => self.hold(*id, *table, range.as_ref(), *snapshot),
            Action::GoOn { id, moves } => match self.held.get_mut(id) {
                Some(held) => go_on(self.store, held, moves),
                None => Ok(()),
            },
            Action::LetGo(id) => {
                self.held.remove(id);
                Ok(())
            }
            Action::Begin { id, is_serializable } => {
                let open = OpenTransaction::new(&self.model, *is_serializable);
                self.open.insert(*id, (open, self.store.begin(*is_serializable).map_err(failed)?));
                Ok(())
            }
            Action::Within { id, steps, reads } => self.within(*id, steps, reads),
            Action::End { id, commit } => self.end(*id, *commit),
            Action::Ingest { table, rows } => {
                self.store.ingest(*table, rows).map_err(failed)?;
                self.model.begin_ingest(*table, rows);
                self.model.acknowledge();
                Ok(())
            }
            Action::Recreate(table) => self.recreate(*table),
            Action::ChangeColumns(table) => self.change_columns(*table),
            Action::RenameColumn(table, column) => self.rename_column(*table, *column),
            Action::SetExpiry { table, age } => {
                self.store.set_expiry(*table, *age).map_err(failed)?;
                self.model.set_age(*table, *age);
                Ok(())
            }
            Action::Expire { table, now } => self.expire(*table, *now),
            Action::Get { table, keys, snapshot } => self.get(*table, keys, *snapshot),
            Action::Scan { table, range, direction, limit, snapshot } => {
                let limit = limit.unwrap_or(usize::MAX);
                self.scan(*table, range, *direction, limit, *snapshot)
            }
            Action::Walk { table, range, moves, snapshot } => self.walk(*table, range, moves, *snapshot),
            Action::TakeSnapshot(id) => {
                let handle = self.store.snapshot();
                self.snapshots.insert(*id, (self.model.last_sequence(), handle));
                Ok(())
            }
            Action::ReleaseSnapshot(id) => {
                self.snapshots.remove(id);
                Ok(())
            }
            Action::Step => self.store.step().map_err(failed),
            Action::Verify => self.store.verify().map_err(failed),
            Action::Checkpoint => {
                let found = self.store.checkpoint().map_err(failed)?;
                self.has_all(found)
            }
            Action::Salvage => self.salvage(),
            Action::Look => self.look(),
            Action::Flush => {
                self.store.flush().map_err(failed)?;
                self.model.mark_durable(CrashKind::PowerLoss);
                self.everything()
            }
            Action::Compact(table) => {
                self.store.compact(*table).map_err(failed)?;
                self.everything()
            }
            Action::CompactPart { table, lower, upper } => {
                self.store.compact_part(*table, lower.as_deref(), upper.as_deref()).map_err(failed)?;
                self.everything()
            }
            Action::Reopen => self.reopen(),
        }
    }

    fn recreate(&mut self, table: usize) -> Result<(), String> {
        self.open.clear();
        self.store.drop_table(table).map_err(failed)?;
        self.model.begin_drop(table);
        self.model.acknowledge();
        self.store.create_table(table).map_err(failed)?;
        self.everything()
    }

    fn change_columns(&mut self, table: usize) -> Result<(), String> {
        self.open.clear();
        if !self.model.begin_change(table) {
            return Ok(());
        }
        match self.store.change_columns(table).map_err(failed)? {
            true => self.model.acknowledge(),
            false => self.model.withdraw_change(table),
        }
        self.everything()
    }

    fn rename_column(&mut self, table: usize, column: usize) -> Result<(), String> {
        self.open.clear();
        self.store.rename_column(table, column).map_err(failed)?;
        self.model.mark_durable(CrashKind::PowerLoss);
        self.everything()
    }

    /// What has expired and no transaction has locked goes, whole and at once, and nothing else.
    fn expire(&mut self, table: usize, now: Duration) -> Result<(), String> {
        let is_locked = |key: &[u8]| self.open.values().any(|(open, _)| open.has_locked(table, key));
        let Some(pass) = self.model.pass(table, now, is_locked) else { return Ok(()) };
        let deleted = self.store.expire(table, now).map_err(failed)?;
        if deleted != pass.rows {
            return Err(format!("{} rows have expired, and {deleted} were deleted", pass.rows));
        }
        if !pass.writes.is_empty() {
            self.model.write(&pass.writes, Durability::Os);
        }
        self.scan(table, &ScanRange::ALL, Direction::Forward, usize::MAX, None)
    }

    fn walk(
        &mut self,
        table: usize,
        range: &ScanRange,
        moves: &[Move],
        snapshot: Option<SnapshotId>,
    ) -> Result<(), String> {
        let Some((at, handle)) = find(&self.snapshots, &self.model, snapshot) else { return Ok(()) };
        let (moves, expected): (Vec<_>, Vec<_>) = self.model.walk(table, range, at, moves).into_iter().unzip();
        let found = self.store.walk(table, range, &moves, handle).map_err(failed)?;
        same_answers("step", &expected, &found)
    }

    fn salvage(&mut self) -> Result<(), String> {
        self.snapshots.clear();
        self.open.clear();
        let found = self.store.salvage().map_err(failed)?;
        self.model.mark_durable(CrashKind::PowerLoss);
        self.has_all(found)?;
        self.everything()
    }

    /// Somebody beside reads a state that a kill of the process could leave.
    fn look(&mut self) -> Result<(), String> {
        let found = self.store.look().map_err(failed)?;
        let allowed = self.model.check_prefix_rule(&found, CrashKind::ProcessKill);
        allowed.map(drop).map_err(|violation| violation.to_string())
    }

    fn reopen(&mut self) -> Result<(), String> {
        self.snapshots.clear();
        self.open.clear();
        self.store.reopen().map_err(failed)?;
        self.model.mark_durable(CrashKind::PowerLoss);
        self.everything()
    }

    /// A copy must have all rows of the newest state.
    fn has_all(&self, copy: State) -> Result<(), String> {
        let expected = self.model.state(self.model.last_sequence());
        if copy.len() != expected.len() {
            return Err(format!("the copy has {} tables, not {}", copy.len(), expected.len()));
        }
        for (expected, found) in expected.into_iter().zip(copy) {
            same_rows(&expected.into_iter().collect::<Vec<_>>(), &found.into_iter().collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// The transaction must see its own writes, those rolled back apart, over the newest state.
    fn transact(&mut self, steps: &[TransactionStep], commit: Option<Durability>) -> Result<(), String> {
        let written = steps.iter().filter_map(|step| match step {
            TransactionStep::Write(write) => Some((write.table, write.kind.key().to_vec())),
            _ => None,
        });
        let keys: Vec<(usize, Vec<u8>)> = written.collect();
        let writes = surviving_writes(steps);
        let row = |(key, value): (&(usize, Vec<u8>), Option<Vec<u8>>)| value.map(|value| (key.1.clone(), value));
        let expected = self.model.read_within(&writes, &keys);
        let expected: Vec<Option<Row>> = keys.iter().zip(expected).map(row).collect();
        let found = self.store.transact(steps, &keys, commit).map_err(failed)?;
        let found: Vec<Option<Row>> = keys.iter().zip(found).map(row).collect();
        same_answers("transaction's get of key", &expected, &found)?;
        if let Some(durability) = commit.filter(|_| !writes.is_empty()) {
            self.model.write(&writes, durability);
        }
        Ok(())
    }

    fn hold(
        &mut self,
        id: HeldId,
        table: usize,
        range: Option<&ScanRange>,
        snapshot: Option<SnapshotId>,
    ) -> Result<(), String> {
        let Some((at, handle)) = find(&self.snapshots, &self.model, snapshot) else { return Ok(()) };
        let held = match range {
            Some(range) => {
                let rows = self.model.scan(table, range, at, Direction::Forward);
                let walk = self.store.open_walk(table, range, handle).map_err(failed)?;
                Held::Walk { walk, rows, position: None }
            }
            None => {
                let rows = self.model.scan(table, &ScanRange::ALL, at, Direction::Forward);
                Held::Scan(self.store.open_scan(table, &rows, handle).map_err(failed)?)
            }
        };
        self.held.insert(id, held);
        Ok(())
    }

    fn within(
        &mut self,
        id: TransactionId,
        steps: &[TransactionStep],
        reads: &[TransactionRead],
    ) -> Result<(), String> {
        let Some((open, handle)) = self.open.get_mut(&id) else { return Ok(()) };
        open.take_steps(steps);
        self.store.take_steps(handle, steps).map_err(failed)?;
        for read in reads {
            self.read_within(id, read).map_err(|what| format!("{read}: {what}"))?;
        }
        Ok(())
    }

    fn read_within(&mut self, id: TransactionId, read: &TransactionRead) -> Result<(), String> {
        let Some((open, handle)) = self.open.get_mut(&id) else { return Ok(()) };
        match read {
            TransactionRead::Get(table, key) => {
                let row = |value: Option<Vec<u8>>| value.map(|value| (key.clone(), value));
                let expected = row(open.get(&self.model, *table, key));
                let found = row(self.store.get_within(handle, *table, key).map_err(failed)?);
                same_answers("transaction's get of key", &[expected], &[found])
            }
            TransactionRead::GetForUpdate(table, key) => self.get_for_update(id, *table, key),
            TransactionRead::Scan(table, range, direction) => {
                let mut expected = open.scan(&self.model, *table, range);
                if *direction == Direction::Backward {
                    expected.reverse();
                }
                let found = self.store.scan_within(handle, *table, range, *direction).map_err(failed)?;
                same_rows(&expected, &found)
            }
            TransactionRead::Walk(table, range, moves) => {
                let rows = open.look(&self.model, *table, range);
                let (moves, expected): (Vec<_>, Vec<_>) = walk_over(&rows, &mut None, moves).into_iter().unzip();
                let found = self.store.walk_within(handle, *table, range, &moves).map_err(failed)?;
                same_answers("transaction's step", &expected, &found)
            }
        }
    }

    /// A lock is there for one transaction at a time, who then sees the newest row.
    fn get_for_update(&mut self, id: TransactionId, table: usize, key: &[u8]) -> Result<(), String> {
        let is_held = self.open.iter().any(|(other, (open, _))| *other != id && open.has_locked(table, key));
        let Some((open, handle)) = self.open.get_mut(&id) else { return Ok(()) };
        let fate = open.lock_fate(&self.model, table, key);
        match self.store.get_for_update(handle, table, key) {
            Err(error) if is_held && error.kind() == ErrorKind::LockTimeout => Ok(()),
            Err(error) if !is_held && error.kind() == ErrorKind::Conflict && fate.may_conflict => Ok(()),
            Err(error) => Err(failed(error)),
            Ok(_) if is_held => Err("it locked what another transaction has locked".into()),
            Ok((false, _)) if !fate.may_stay => Err("the row is newer than what the transaction sees".into()),
            Ok((true, _)) if !fate.may_move => Err("the transaction sees newer rows than it may".into()),
            Ok((has_moved, found)) => {
                open.lock(&self.model, table, key, has_moved);
                let row = |value: Option<Vec<u8>>| value.map(|value| (key.to_vec(), value));
                let expected = row(open.get(&self.model, table, key));
                same_answers("get for update of key", &[expected], &[row(found)])
            }
        }
    }

    fn end(&mut self, id: TransactionId, commit: Option<Durability>) -> Result<(), String> {
        let Some((open, handle)) = self.open.remove(&id) else { return Ok(()) };
        let fate = open.fate(&self.model);
        let result = self.store.end(handle, commit);
        let Some(durability) = commit else { return result.map_err(failed) };
        match result {
            Ok(()) if fate == Fate::Conflicts => {
                Err("it committed, though a newer commit changed what it wrote or read".into())
            }
            Ok(()) => {
                let writes = open.writes();
                if !writes.is_empty() {
                    self.model.write(&writes, durability);
                }
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Conflict && fate != Fate::Commits => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    /// Reads all that is left, and all once more, of what is held open.
    fn finish(&mut self) -> Result<(), String> {
        for (id, held) in &mut self.held {
            let finished = match held {
                Held::Scan(scan) => self.store.take_batches(scan, usize::MAX).map_err(failed),
                Held::Walk { rows, .. } => {
                    let mut moves = vec![Move::First];
                    moves.resize(rows.len() + 1, Move::Next);
                    go_on(self.store, held, &moves)
                }
            };
            finished.map_err(|what| format!("held {id}: {what}"))?;
        }
        Ok(())
    }

    fn get(&mut self, table: usize, keys: &[Vec<u8>], snapshot: Option<SnapshotId>) -> Result<(), String> {
        let Some((at, handle)) = find(&self.snapshots, &self.model, snapshot) else { return Ok(()) };
        let row = |key: &Vec<u8>, value: Option<Vec<u8>>| value.map(|value| (key.clone(), value));
        let expected: Vec<Option<Row>> = keys.iter().map(|key| row(key, self.model.get(table, key, at))).collect();
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            found.push(row(key, self.store.get(table, key, handle).map_err(failed)?));
        }
        same_answers("get of key", &expected, &found)?;
        let answers = self.store.multi_get(table, keys, handle).map_err(failed)?;
        if answers.len() != keys.len() {
            return Err(format!("multi-get of {} keys gave {} answers", keys.len(), answers.len()));
        }
        let found: Vec<Option<Row>> = keys.iter().zip(answers).map(|(key, value)| row(key, value)).collect();
        same_answers("multi-get of key", &expected, &found)
    }

    fn scan(
        &mut self,
        table: usize,
        range: &ScanRange,
        direction: Direction,
        limit: usize,
        snapshot: Option<SnapshotId>,
    ) -> Result<(), String> {
        let Some((at, handle)) = find(&self.snapshots, &self.model, snapshot) else { return Ok(()) };
        let mut expected = self.model.scan(table, range, at, direction);
        expected.truncate(limit);
        let found = self.store.scan(table, range, direction, limit, handle).map_err(failed)?;
        same_rows(&expected, &found)
    }

    /// Reads every table at the newest state and at every live snapshot.
    fn everything(&mut self) -> Result<(), String> {
        let ids: Vec<Option<SnapshotId>> = self.snapshots.keys().copied().map(Some).chain([None]).collect();
        for snapshot in ids {
            for table in 0..self.tables {
                let direction = if table % 2 == 0 { Direction::Forward } else { Direction::Backward };
                self.scan(table, &ScanRange::ALL, direction, usize::MAX, snapshot).map_err(|what| {
                    let at = snapshot.map_or("the newest state".into(), |id| format!("snapshot {id}"));
                    format!("afterwards, table {table} at {at}: {what}")
                })?;
            }
        }
        Ok(())
    }
}

/// Moves what is held open.
fn go_on<S: Store>(store: &mut S, held: &mut Held<S>, moves: &[Move]) -> Result<(), String> {
    match held {
        Held::Walk { walk, rows, position } => {
            let (moves, expected): (Vec<_>, Vec<_>) = walk_over(rows, position, moves).into_iter().unzip();
            let found = store.go_on(walk, &moves).map_err(failed)?;
            same_answers("step", &expected, &found)
        }
        Held::Scan(scan) => store.take_batches(scan, moves.len()).map_err(failed),
    }
}

/// Where a read stands in the model and in the store; `None` if its snapshot is not live.
#[allow(clippy::type_complexity, reason = "a pair of the same place")]
fn find<'a, H>(
    snapshots: &'a BTreeMap<SnapshotId, (SequenceNumber, H)>,
    model: &Model,
    snapshot: Option<SnapshotId>,
) -> Option<(SequenceNumber, Option<&'a H>)> {
    match snapshot {
        None => Some((model.last_sequence(), None)),
        Some(id) => snapshots.get(&id).map(|(at, handle)| (*at, Some(handle))),
    }
}

fn show_row(row: Option<&Row>) -> String {
    row.map_or("nothing".into(), |(key, value)| format!("\"{}\" = \"{}\"", show(key), show(value)))
}

fn same_answers(what: &str, expected: &[Option<Row>], found: &[Option<Row>]) -> Result<(), String> {
    if expected.len() != found.len() {
        return Err(format!("expected {} answers, found {}", expected.len(), found.len()));
    }
    for (index, (expected, found)) in expected.iter().zip(found).enumerate() {
        if expected != found {
            let (expected, found) = (show_row(expected.as_ref()), show_row(found.as_ref()));
            return Err(format!("{what} {index}: expected {expected}, found {found}"));
        }
    }
    Ok(())
}

fn same_rows(expected: &[Row], found: &[Row]) -> Result<(), String> {
    let equal = expected.iter().zip(found).take_while(|(a, b)| a == b).count();
    if equal == expected.len() && equal == found.len() {
        return Ok(());
    }
    Err(format!(
        "row {equal}: expected {}, found {} ({} rows expected, {} found)",
        show_row(expected.get(equal)),
        show_row(found.get(equal)),
        expected.len(),
        found.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Write, WriteKind};
    use crate::operations::{HistoryOptions, Weights, generate};
    use crate::shrink::shrink;
    use crate::store::{ModelStore, ModelTransaction, ModelWalk};
    use mycelium_base::Result;

    /// A store with a mistake of a known kind.
    struct Faulty {
        inner: ModelStore,
        fault: Fault,
    }

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Fault {
        None,
        LosesRangeDeletes,
        IgnoresSnapshots,
        IgnoresUpperBounds,
        LosesLastWriteOfLongBatches,
        PrevStandsStill,
        CommitsWhatWasRolledBack,
        LosesLastRowOfIngestions,
        KeepsRowsOfDroppedTables,
        ShowsNewRowsToOpenIterators,
        CommitsWhatConflicts,
        ForgetsNewColumns,
        LocksWhatIsLocked,
        LocksAndSeesOldRows,
        ExpiresTooEarly,
        ForgetsWhenRowsExpire,
    }

    impl Store for Faulty {
        type Snapshot = SequenceNumber;
        type Walk = ModelWalk;
        type Scan = ();
        type Transaction = ModelTransaction;

        fn write(&mut self, batch: &[Write], durability: Durability) -> Result<()> {
            let mut batch = batch.to_vec();
            if self.fault == Fault::LosesRangeDeletes {
                batch.retain(|write| !matches!(write.kind, WriteKind::DeleteRange(..)));
            }
            if self.fault == Fault::LosesLastWriteOfLongBatches && batch.len() == 12 {
                batch.pop();
            }
            self.inner.write(&batch, durability)
        }
        fn transact(
            &mut self,
            steps: &[TransactionStep],
            keys: &[(usize, Vec<u8>)],
            commit: Option<Durability>,
        ) -> Result<Vec<Option<Vec<u8>>>> {
            let answers = self.inner.transact(steps, keys, None)?;
            let mut steps = steps.to_vec();
            if self.fault == Fault::CommitsWhatWasRolledBack {
                steps.retain(|step| !matches!(step, TransactionStep::RollbackTo(_)));
            }
            self.inner.transact(&steps, &[], commit)?;
            Ok(answers)
        }
        fn ingest(&mut self, table: usize, rows: &[Row]) -> Result<()> {
            let lost = usize::from(self.fault == Fault::LosesLastRowOfIngestions);
            self.inner.ingest(table, &rows[..rows.len().saturating_sub(lost)])
        }
        fn drop_table(&mut self, table: usize) -> Result<()> {
            if self.fault == Fault::KeepsRowsOfDroppedTables { Ok(()) } else { self.inner.drop_table(table) }
        }
        fn create_table(&mut self, table: usize) -> Result<()> {
            self.inner.create_table(table)
        }
        fn change_columns(&mut self, table: usize) -> Result<bool> {
            if self.fault == Fault::ForgetsNewColumns { Ok(true) } else { self.inner.change_columns(table) }
        }
        fn rename_column(&mut self, table: usize, column: usize) -> Result<()> {
            self.inner.rename_column(table, column)
        }
        fn set_expiry(&mut self, table: usize, age: Option<Duration>) -> Result<()> {
            if self.fault == Fault::ForgetsWhenRowsExpire { Ok(()) } else { self.inner.set_expiry(table, age) }
        }
        fn expire(&mut self, table: usize, now: Duration) -> Result<u64> {
            let early = if self.fault == Fault::ExpiresTooEarly { 1 << 31 } else { 0 };
            self.inner.expire(table, now + Duration::from_secs(early))
        }
        fn get(&mut self, table: usize, key: &[u8], snapshot: Option<&u64>) -> Result<Option<Vec<u8>>> {
            let snapshot = snapshot.filter(|_| self.fault != Fault::IgnoresSnapshots);
            self.inner.get(table, key, snapshot)
        }
        fn multi_get(&mut self, t: usize, keys: &[Vec<u8>], s: Option<&u64>) -> Result<Vec<Option<Vec<u8>>>> {
            self.inner.multi_get(t, keys, s)
        }
        fn scan(
            &mut self,
            table: usize,
            range: &ScanRange,
            direction: Direction,
            limit: usize,
            snapshot: Option<&u64>,
        ) -> Result<Vec<Row>> {
            let mut range = range.clone();
            if self.fault == Fault::IgnoresUpperBounds {
                range.upper = std::ops::Bound::Unbounded;
            }
            self.inner.scan(table, &range, direction, limit, snapshot)
        }
        fn walk(&mut self, t: usize, range: &ScanRange, moves: &[Move], s: Option<&u64>) -> Result<Vec<Option<Row>>> {
            let mut rows = self.inner.walk(t, range, moves, s)?;
            if self.fault == Fault::PrevStandsStill {
                for index in 1..rows.len() {
                    if moves[index] == Move::Prev {
                        rows[index] = rows[index - 1].clone();
                    }
                }
            }
            Ok(rows)
        }
        fn open_walk(&mut self, t: usize, range: &ScanRange, s: Option<&u64>) -> Result<ModelWalk> {
            self.inner.open_walk(t, range, s)
        }
        fn go_on(&mut self, walk: &mut ModelWalk, moves: &[Move]) -> Result<Vec<Option<Row>>> {
            if self.fault == Fault::ShowsNewRowsToOpenIterators {
                walk.rows = self.inner.scan(walk.table, &walk.range, Direction::Forward, usize::MAX, None)?;
            }
            self.inner.go_on(walk, moves)
        }
        fn open_scan(&mut self, t: usize, rows: &[Row], s: Option<&u64>) -> Result<()> {
            self.inner.open_scan(t, rows, s)
        }
        fn take_batches(&mut self, scan: &mut (), count: usize) -> Result<()> {
            self.inner.take_batches(scan, count)
        }
        fn begin(&mut self, is_serializable: bool) -> Result<ModelTransaction> {
            self.inner.begin(is_serializable)
        }
        fn take_steps(&mut self, open: &mut ModelTransaction, steps: &[TransactionStep]) -> Result<()> {
            self.inner.take_steps(open, steps)
        }
        fn get_within(&mut self, open: &mut ModelTransaction, t: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
            self.inner.get_within(open, t, key)
        }
        fn scan_within(
            &mut self,
            open: &mut ModelTransaction,
            table: usize,
            range: &ScanRange,
            direction: Direction,
        ) -> Result<Vec<Row>> {
            self.inner.scan_within(open, table, range, direction)
        }
        fn walk_within(
            &mut self,
            open: &mut ModelTransaction,
            table: usize,
            range: &ScanRange,
            moves: &[Move],
        ) -> Result<Vec<Option<Row>>> {
            self.inner.walk_within(open, table, range, moves)
        }
        fn get_for_update(
            &mut self,
            open: &mut ModelTransaction,
            table: usize,
            key: &[u8],
        ) -> Result<(bool, Option<Vec<u8>>)> {
            match self.inner.get_for_update(open, table, key) {
                Err(error) if error.kind() == ErrorKind::LockTimeout && self.fault == Fault::LocksWhatIsLocked => {
                    Ok((false, self.inner.get_within(open, table, key)?))
                }
                Ok((true, row)) if self.fault == Fault::LocksAndSeesOldRows => Ok((false, row)),
                result => result,
            }
        }
        fn end(&mut self, open: ModelTransaction, commit: Option<Durability>) -> Result<()> {
            let writes = open.open.writes();
            match (self.inner.end(open, commit), commit) {
                (Err(_), Some(durability)) if self.fault == Fault::CommitsWhatConflicts => {
                    self.inner.write(&writes, durability)
                }
                (result, _) => result,
            }
        }
        fn snapshot(&mut self) -> u64 {
            self.inner.snapshot()
        }
        fn flush(&mut self) -> Result<()> {
            self.inner.flush()
        }
        fn compact(&mut self, table: usize) -> Result<()> {
            self.inner.compact(table)
        }
        fn compact_part(&mut self, table: usize, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<()> {
            self.inner.compact_part(table, lower, upper)
        }
        fn step(&mut self) -> Result<()> {
            self.inner.step()
        }
        fn reopen(&mut self) -> Result<()> {
            self.inner.reopen()
        }
        fn checkpoint(&mut self) -> Result<State> {
            self.inner.checkpoint()
        }
        fn salvage(&mut self) -> Result<State> {
            self.inner.salvage()
        }
        fn look(&mut self) -> Result<State> {
            self.inner.look()
        }
        fn verify(&mut self) -> Result<()> {
            self.inner.verify()
        }
    }

    #[test]
    fn faults_are_found_and_shrink_to_a_few_actions() {
        let weights = Weights { transact: 60, ingest: 20, recreate: 10, ..Weights::default() };
        let options = HistoryOptions { seed: 11, actions: 400, keys: 40, weights, ..HistoryOptions::default() };
        let history = generate(&options);
        let run = |fault, history: &[Action]| {
            let mut store = Faulty { inner: ModelStore::new(&options.tables), fault };
            check_history(&mut store, &options.tables, history)
        };
        run(Fault::None, &history).unwrap();
        for fault in [
            Fault::LosesRangeDeletes,
            Fault::IgnoresSnapshots,
            Fault::IgnoresUpperBounds,
            Fault::LosesLastWriteOfLongBatches,
            Fault::PrevStandsStill,
            Fault::CommitsWhatWasRolledBack,
            Fault::LosesLastRowOfIngestions,
            Fault::KeepsRowsOfDroppedTables,
        ] {
            assert!(run(fault, &history).is_err(), "{fault:?} was not found");
            let short = shrink(&history, |part| run(fault, part).is_err());
            assert!(short.len() <= 4, "{fault:?}: {} actions left", short.len());
            assert!(run(fault, &short).is_err());
        }
    }

    #[test]
    fn faults_of_what_is_held_open_are_found_and_shrink_to_a_few_actions() {
        let weights =
            Weights { hold: 40, go_on: 80, begin: 30, within: 60, end: 30, look: 5, reopen: 10, ..Weights::default() };
        let tables = vec![TableKind::Removing, TableKind::Typed, TableKind::KeysAlone];
        let options = HistoryOptions { seed: 12, actions: 400, keys: 40, tables, weights, ..HistoryOptions::default() };
        let history = generate(&options);
        let run = |fault, history: &[Action]| {
            let mut store = Faulty { inner: ModelStore::new(&options.tables), fault };
            check_history(&mut store, &options.tables, history)
        };
        run(Fault::None, &history).unwrap();
        for fault in [Fault::ShowsNewRowsToOpenIterators, Fault::CommitsWhatConflicts] {
            assert!(run(fault, &history).is_err(), "{fault:?} was not found");
            let short = shrink(&history, |part| run(fault, part).is_err());
            assert!(short.len() <= 8, "{fault:?}: {} actions left", short.len());
            assert!(run(fault, &short).is_err());
        }
    }

    #[test]
    fn faults_of_locks_and_of_expiry_are_found_and_shrink_to_a_few_actions() {
        let weights = Weights { begin: 60, within: 200, end: 60, get_for_update: 12, ..Weights::default() };
        let weights = Weights { set_expiry: 10, expire: 40, ..weights };
        let tables = vec![TableKind::Merging, TableKind::Typed, TableKind::Numbered];
        let options = HistoryOptions { seed: 14, actions: 600, keys: 40, tables, weights, ..HistoryOptions::default() };
        let history = generate(&options);
        let run = |fault, history: &[Action]| {
            let mut store = Faulty { inner: ModelStore::new(&options.tables), fault };
            check_history(&mut store, &options.tables, history)
        };
        run(Fault::None, &history).unwrap();
        for fault in
            [Fault::LocksWhatIsLocked, Fault::LocksAndSeesOldRows, Fault::ExpiresTooEarly, Fault::ForgetsWhenRowsExpire]
        {
            assert!(run(fault, &history).is_err(), "{fault:?} was not found");
            let short = shrink(&history, |part| run(fault, part).is_err());
            assert!(short.len() <= 8, "{fault:?}: {} actions left", short.len());
            assert!(run(fault, &short).is_err());
        }
    }

    #[test]
    fn columns_that_are_forgotten_are_noticed() {
        let weights = Weights { change_columns: 30, hold: 40, go_on: 80, recreate: 5, ..Weights::default() };
        let tables = vec![TableKind::Growing, TableKind::Merging];
        let options = HistoryOptions { seed: 13, actions: 400, keys: 40, tables, weights, ..HistoryOptions::default() };
        let history = generate(&options);
        let run = |fault, history: &[Action]| {
            let mut store = Faulty { inner: ModelStore::new(&options.tables), fault };
            check_history(&mut store, &options.tables, history)
        };
        run(Fault::None, &history).unwrap();
        assert!(run(Fault::ForgetsNewColumns, &history).is_err());
        let short = shrink(&history, |part| run(Fault::ForgetsNewColumns, part).is_err());
        assert!(short.len() <= 3, "{} actions left", short.len());
    }
}
