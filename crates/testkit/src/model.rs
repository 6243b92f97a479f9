//! The model: every version ever written, answered by straight search.
//!
//! Semantics:
//! 1. A batch is atomic across tables; its writes get consecutive sequence numbers in their order.
//! 2. The row of a key at snapshot s: take its entries with sequence numbers at most s, newest first, and stop at the
//!    newest range delete at or below s that covers the key. Patches and merge operands are collected until a put, a
//!    delete or the end. With no put below, patches change nothing and merge operands make a row of their own.
//! 3. A bulk load is a commit whose rows share one sequence number. Dropping a table is a commit without one: whatever
//!    the snapshot, its rows are gone. So is a change of columns: whatever the snapshot, older rows have an added one
//!    with its default or null, and no row a dropped one. All are durable at return, and what is before them.
//! 4. A transaction that commits is a batch of the writes that were not rolled back. What it reads, and whether it
//!    commits where other commits come between, is said in `open_transaction.rs`.
//! 5. Recovery after a crash gives the state after some prefix of the commits that holds everything acknowledged as
//!    durable.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;

use mycelium_base::SequenceNumber;

pub use crate::prefix_violation::PrefixViolation;
use crate::tables::TableRules;

/// The rows of every table: what a full scan of each gives.
pub type State = Vec<BTreeMap<Vec<u8>, Vec<u8>>>;

/// A key and its row.
pub type Row = (Vec<u8>, Vec<u8>);

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
}

/// What the commits since some moment say of a key, or of several.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Change {
    /// Nothing.
    Nothing,
    /// Patches or merge operands that left the row as it was. They may be gone without a trace.
    Idle,
    /// Something else.
    Lasting,
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

#[derive(Clone, Debug)]
struct Version {
    sequence: SequenceNumber,
    kind: VersionKind,
}

#[derive(Clone, Debug)]
enum VersionKind {
    Put(Vec<u8>),
    Patch(Vec<u8>),
    Merge(Vec<u8>),
    Delete,
}

#[derive(Clone, Debug)]
struct RangeDelete {
    start: Vec<u8>,
    end: Vec<u8>,
    sequence: SequenceNumber,
}

#[derive(Clone)]
struct Table {
    rules: TableRules,
    /// One for each time it was created, oldest first; never empty.
    lives: Vec<Life>,
}

/// What was written to a table between its creation and its end.
#[derive(Clone, Default)]
struct Life {
    /// Commits there were when it began, that which ended the life before included.
    since: usize,
    /// For each change of its columns: commits there were then, its own included.
    changes: Vec<usize>,
    /// Oldest first.
    versions: BTreeMap<Vec<u8>, Vec<Version>>,
    range_deletes: Vec<RangeDelete>,
}

#[derive(Clone, Copy, Debug)]
struct Commit {
    last_sequence: SequenceNumber,
    durability: Durability,
    acknowledged: bool,
}

/// Everything ever written to a set of tables. See the module for the semantics.
#[derive(Clone)]
pub struct Model {
    tables: Vec<Table>,
    commits: Vec<Commit>,
    /// Commits known durable by other means than their own durability: a flush, a sync, a clean close.
    durable_commits: usize,
    /// Commits known to be handed to the operating system.
    handed_over_commits: usize,
    /// Of each backup that was begun the commits in it, oldest first.
    backups: Vec<usize>,
    /// Backups that were acknowledged.
    made_backups: usize,
}

impl Model {
    /// Empty tables with these rules.
    pub fn new(rules: impl IntoIterator<Item = TableRules>) -> Self {
        let table = |rules| Table { rules, lives: vec![Life::default()] };
        Self {
            tables: rules.into_iter().map(table).collect(),
            commits: Vec::new(),
            durable_commits: 0,
            handed_over_commits: 0,
            backups: Vec::new(),
            made_backups: 0,
        }
    }

    /// Commits a batch and acknowledges it.
    pub fn write(&mut self, batch: &[Write], durability: Durability) -> SequenceNumber {
        let sequence = self.begin(batch, durability);
        self.acknowledge();
        sequence
    }

    /// Commits a batch whose outcome is not known yet: after a crash it may be there, whole, or not.
    pub fn begin(&mut self, batch: &[Write], durability: Durability) -> SequenceNumber {
        let mut sequence = self.last_sequence();
        for write in batch {
            sequence += 1;
            self.tables[write.table].add(sequence, &write.kind);
        }
        self.commits.push(Commit { last_sequence: sequence, durability, acknowledged: false });
        sequence
    }

    /// Loads rows of distinct keys in bulk; the outcome is not known yet. Of no rows, nothing is loaded.
    pub fn begin_ingest(&mut self, table: usize, rows: &[(Vec<u8>, Vec<u8>)]) {
        if rows.is_empty() {
            return;
        }
        let sequence = self.last_sequence() + 1;
        for (key, value) in rows {
            self.tables[table].add(sequence, &WriteKind::Put(key.clone(), value.clone()));
        }
        self.commits.push(Commit { last_sequence: sequence, durability: Durability::Sync, acknowledged: false });
    }

    /// Drops a table, which may be created again; the outcome is not known yet. Until it is created it reads as empty.
    pub fn begin_drop(&mut self, table: usize) {
        let last_sequence = self.last_sequence();
        self.commits.push(Commit { last_sequence, durability: Durability::Sync, acknowledged: false });
        let since = self.commits.len();
        self.tables[table].lives.push(Life { since, ..Life::default() });
    }

    /// Begins the next change of a table's columns; the outcome is not known yet. Whether there is one.
    pub fn begin_change(&mut self, table: usize) -> bool {
        let of = &self.tables[table];
        let has_more = of.life().changes.len() < of.rules.growth.map_or(0, |growth| growth.changes);
        if has_more {
            let last_sequence = self.last_sequence();
            self.commits.push(Commit { last_sequence, durability: Durability::Sync, acknowledged: false });
            self.tables[table].life_mut().changes.push(self.commits.len());
        }
        has_more
    }

    /// The change that was begun last was refused.
    pub fn withdraw_change(&mut self, table: usize) {
        self.commits.pop();
        self.tables[table].life_mut().changes.pop();
    }

    /// Begins a backup, of all that was acknowledged; the outcome is not known yet.
    pub fn begin_backup(&mut self) {
        self.backups.push(self.acknowledged_commits());
    }

    /// The newest backup was acknowledged.
    pub fn acknowledge_backup(&mut self) {
        self.made_backups += 1;
    }

    /// Whether the backups that are there, oldest first, are some of those begun, and as many as were acknowledged.
    pub fn explains_backups(&self, found: &[State]) -> bool {
        let mut begun = self.backups.iter();
        found.len() >= self.made_backups
            && found.iter().all(|state| begun.any(|&commits| self.state_after(commits) == *state))
    }

    /// What a transaction begun now that has these writes reads of some keys, each with its table.
    pub fn read_within(&mut self, writes: &[Write], keys: &[(usize, Vec<u8>)]) -> Vec<Option<Vec<u8>>> {
        let sequence = self.begin(writes, Durability::Buffered);
        let answers = keys.iter().map(|(table, key)| self.get(*table, key, sequence)).collect();
        self.commits.pop();
        for write in writes.iter().rev() {
            self.tables[write.table].life_mut().take_back(&write.kind);
        }
        answers
    }

    /// The newest commit was acknowledged.
    pub fn acknowledge(&mut self) {
        if let Some(commit) = self.commits.last_mut() {
            commit.acknowledged = true;
        }
    }

    /// Everything committed so far is known to survive a crash of this kind: a flush, an explicit sync or a clean close
    /// was acknowledged.
    pub fn mark_durable(&mut self, crash: CrashKind) {
        self.handed_over_commits = self.commits.len();
        if crash == CrashKind::PowerLoss {
            self.durable_commits = self.commits.len();
        }
    }

    /// The sequence number of the newest write; a snapshot taken now.
    pub fn last_sequence(&self) -> SequenceNumber {
        self.commits.last().map_or(0, |commit| commit.last_sequence)
    }

    /// Number of commits.
    pub fn commit_count(&self) -> usize {
        self.commits.len()
    }

    /// The row of `key` at `snapshot`.
    pub fn get(&self, table: usize, key: &[u8], snapshot: SequenceNumber) -> Option<Vec<u8>> {
        let table = &self.tables[table];
        let row = table.get(table.life(), key, snapshot)?;
        Some(table.shown(row, table.life().changes.len()))
    }

    /// The rows of a table in a range, at `snapshot`, in the direction's order.
    pub fn scan(
        &self,
        table: usize,
        range: &ScanRange,
        snapshot: SequenceNumber,
        direction: Direction,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let table = &self.tables[table];
        let mut rows = table.shown_rows(table.life(), table.life().changes.len(), range, snapshot);
        if direction == Direction::Backward {
            rows.reverse();
        }
        rows
    }

    /// Moves an iterator over a range: the moves that are possible, each with the row it leads to.
    #[allow(clippy::type_complexity, reason = "a list of steps")]
    pub fn walk(
        &self,
        table: usize,
        range: &ScanRange,
        snapshot: SequenceNumber,
        moves: &[Move],
    ) -> Vec<(Move, Option<(Vec<u8>, Vec<u8>)>)> {
        walk_over(&self.scan(table, range, snapshot, Direction::Forward), &mut None, moves)
    }

    /// The rows of a table in a range, keys ascending, that a transaction sees which began at `snapshot` and has these
    /// writes.
    pub fn scan_within(
        &self,
        table: usize,
        range: &ScanRange,
        snapshot: SequenceNumber,
        writes: &[Write],
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (of, mut life, mut sequence) = (&self.tables[table], Life::default(), 1);
        for (key, value) in of.scan(of.life(), range, snapshot) {
            life.add(sequence, &WriteKind::Put(key, value));
        }
        for write in writes.iter().filter(|write| write.table == table) {
            sequence += 1;
            life.add(sequence, &of.written(&write.kind));
        }
        of.shown_rows(&life, of.life().changes.len(), range, sequence)
    }

    /// What the commits after `since` say of a key.
    pub fn change_of(&self, table: usize, key: &[u8], since: SequenceNumber) -> Change {
        let (of, now) = (&self.tables[table], self.last_sequence());
        let life = of.life();
        let covers = |delete: &RangeDelete| delete.start.as_slice() <= key && key < delete.end.as_slice();
        let is_deleted = life.range_deletes.iter().any(|delete| delete.sequence > since && covers(delete));
        let versions = life.versions.get(key).map_or(&[][..], Vec::as_slice);
        let mut newer = versions.iter().filter(|version| version.sequence > since).peekable();
        if newer.peek().is_none() && !is_deleted {
            return Change::Nothing;
        }
        let settles = |version: &Version| matches!(version.kind, VersionKind::Put(_) | VersionKind::Delete);
        if is_deleted || newer.any(settles) || of.get(life, key, since) != of.get(life, key, now) {
            return Change::Lasting;
        }
        Change::Idle
    }

    /// What the commits after `since` say of the keys of a range.
    pub fn change_within(&self, table: usize, range: &ScanRange, since: SequenceNumber) -> Change {
        let keys = self.tables[table].life().versions.keys().filter(|key| range.contains(key));
        keys.map(|key| self.change_of(table, key, since)).max().unwrap_or(Change::Nothing)
    }

    /// Whether a range delete after `since` has a part of `[start, end)`, be there rows or not.
    pub fn is_range_deleted(&self, table: usize, (start, end): (&[u8], &[u8]), since: SequenceNumber) -> bool {
        let overlaps = |delete: &RangeDelete| start.max(delete.start.as_slice()) < end.min(delete.end.as_slice());
        self.tables[table].life().range_deletes.iter().any(|delete| delete.sequence > since && overlaps(delete))
    }

    /// Whether a commit after `since` wrote to a table.
    pub fn is_written(&self, table: usize, since: SequenceNumber) -> bool {
        let life = self.tables[table].life();
        life.versions.values().flatten().any(|version| version.sequence > since)
            || life.range_deletes.iter().any(|delete| delete.sequence > since)
    }

    /// The rows of every table at `snapshot`.
    pub fn state(&self, snapshot: SequenceNumber) -> State {
        (0..self.tables.len())
            .map(|table| self.scan(table, &ScanRange::ALL, snapshot, Direction::Forward).into_iter().collect())
            .collect()
    }

    /// The number of commits that must survive a crash now.
    pub fn durable_floor(&self, crash: CrashKind) -> usize {
        let (needed, known) = match crash {
            CrashKind::ProcessKill => (Durability::Os, self.handed_over_commits.max(self.durable_commits)),
            CrashKind::PowerLoss => (Durability::Sync, self.durable_commits),
        };
        let acknowledged = self.commits.iter().rposition(|c| c.acknowledged && c.durability >= needed);
        known.max(acknowledged.map_or(0, |index| index + 1))
    }

    /// Checks that `recovered` is the state after some prefix of the commits that holds all that had to survive.
    /// Returns the longest such prefix; give it to [`Model::truncate`] to go on after recovery.
    ///
    /// # Errors
    /// [`PrefixViolation`] with the differences to the nearest prefix.
    pub fn check_prefix_rule(&self, recovered: &State, crash: CrashKind) -> Result<usize, PrefixViolation> {
        let floor = self.durable_floor(crash);
        for count in (floor..=self.commits.len()).rev() {
            if self.state_after(count) == *recovered {
                return Ok(count);
            }
        }
        Err(self.violation(floor, recovered))
    }

    /// Checks that `found` is the state after all commits that were acknowledged: of the newest it is not said that it
    /// failed.
    ///
    /// # Errors
    /// [`PrefixViolation`] with the differences to the nearest prefix.
    pub fn check_acknowledged(&self, found: &State) -> Result<(), PrefixViolation> {
        let acknowledged = self.acknowledged_commits();
        if self.state_after(acknowledged) == *found { Ok(()) } else { Err(self.violation(acknowledged, found)) }
    }

    fn acknowledged_commits(&self) -> usize {
        self.commits.iter().rposition(|commit| commit.acknowledged).map_or(0, |last| last + 1)
    }

    fn violation(&self, floor: usize, found: &State) -> PrefixViolation {
        let differences = |count: usize| differences(&self.state_after(count), found);
        let nearest = (0..=self.commits.len()).rev().min_by_key(|&count| differences(count).len()).unwrap_or(0);
        PrefixViolation {
            floor,
            commits: self.commits.len(),
            nearest,
            differences: differences(nearest),
            tables: self.tables.len(),
            recovered_tables: found.len(),
        }
    }

    fn state_after(&self, commits: usize) -> State {
        let snapshot = commits.checked_sub(1).map_or(0, |last| self.commits[last].last_sequence);
        let rows = |table: &Table| {
            let life = table.life_after(commits);
            let changes = life.changes.partition_point(|since| *since <= commits);
            table.shown_rows(life, changes, &ScanRange::ALL, snapshot).into_iter().collect()
        };
        self.tables.iter().map(rows).collect()
    }

    /// Forgets all but the first `commits` commits, as recovery did; those left are durable now.
    pub fn truncate(&mut self, commits: usize) {
        self.take_back(commits);
        self.durable_commits = self.commits.len();
        self.handed_over_commits = self.commits.len();
    }

    /// Forgets the commits behind the first `commits`: they were begun and refused.
    pub fn take_back(&mut self, commits: usize) {
        self.commits.truncate(commits);
        let last = self.last_sequence();
        for table in &mut self.tables {
            table.lives.retain(|life| life.since <= commits);
            let life = table.life_mut();
            life.changes.retain(|since| *since <= commits);
            life.versions.retain(|_, versions| {
                versions.retain(|version| version.sequence <= last);
                !versions.is_empty()
            });
            life.range_deletes.retain(|delete| delete.sequence <= last);
        }
    }
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

impl Life {
    fn add(&mut self, sequence: SequenceNumber, kind: &WriteKind) {
        let (key, kind) = match kind {
            WriteKind::Put(key, value) => (key, VersionKind::Put(value.clone())),
            WriteKind::Patch(key, value) => (key, VersionKind::Patch(value.clone())),
            WriteKind::Merge(key, value) => (key, VersionKind::Merge(value.clone())),
            WriteKind::Delete(key) => (key, VersionKind::Delete),
            WriteKind::DeleteRange(start, end) => {
                self.range_deletes.push(RangeDelete { start: start.clone(), end: end.clone(), sequence });
                return;
            }
        };
        self.versions.entry(key.clone()).or_default().push(Version { sequence, kind });
    }

    /// Undoes the last write.
    fn take_back(&mut self, kind: &WriteKind) {
        let (WriteKind::Put(key, _) | WriteKind::Patch(key, _) | WriteKind::Merge(key, _) | WriteKind::Delete(key)) =
            kind
        else {
            self.range_deletes.pop();
            return;
        };
        if let Some(versions) = self.versions.get_mut(key) {
            versions.pop();
            if versions.is_empty() {
                self.versions.remove(key);
            }
        }
    }
}

impl Table {
    /// The present life.
    fn life(&self) -> &Life {
        &self.lives[self.lives.len() - 1]
    }

    fn life_mut(&mut self) -> &mut Life {
        let last = self.lives.len() - 1;
        &mut self.lives[last]
    }

    fn add(&mut self, sequence: SequenceNumber, kind: &WriteKind) {
        let written = self.written(kind);
        self.life_mut().add(sequence, &written);
    }

    /// The write without what there is no column for.
    fn written<'k>(&self, kind: &'k WriteKind) -> Cow<'k, WriteKind> {
        let Some(growth) = self.rules.growth else { return Cow::Borrowed(kind) };
        let fitted = |value: &[u8]| (growth.write)(value, self.life().changes.len());
        match kind {
            WriteKind::Put(key, row) => Cow::Owned(WriteKind::Put(key.clone(), fitted(row))),
            WriteKind::Patch(key, patch) => Cow::Owned(WriteKind::Patch(key.clone(), fitted(patch))),
            other => Cow::Borrowed(other),
        }
    }

    /// A row after so many changes of the columns.
    fn shown(&self, row: Vec<u8>, changes: usize) -> Vec<u8> {
        match self.rules.growth {
            Some(growth) => (growth.read)(&row, changes),
            None => row,
        }
    }

    fn shown_rows(&self, life: &Life, changes: usize, range: &ScanRange, snapshot: SequenceNumber) -> Vec<Row> {
        let rows = self.scan(life, range, snapshot).into_iter();
        rows.map(|(key, row)| (key, self.shown(row, changes))).collect()
    }

    /// The life after so many commits.
    fn life_after(&self, commits: usize) -> &Life {
        &self.lives[self.lives.partition_point(|life| life.since <= commits) - 1]
    }

    fn scan(&self, life: &Life, range: &ScanRange, snapshot: SequenceNumber) -> Vec<(Vec<u8>, Vec<u8>)> {
        let keys = life.versions.keys().filter(|key| range.contains(key));
        keys.filter_map(|key| Some((key.clone(), self.get(life, key, snapshot)?))).collect()
    }

    fn get(&self, life: &Life, key: &[u8], snapshot: SequenceNumber) -> Option<Vec<u8>> {
        let covering = |delete: &&RangeDelete| {
            delete.sequence <= snapshot && delete.start.as_slice() <= key && key < delete.end.as_slice()
        };
        let deleted = life.range_deletes.iter().filter(covering).map(|delete| delete.sequence).max().unwrap_or(0);
        let versions = life.versions.get(key).map_or(&[][..], Vec::as_slice);
        let (mut patches, mut operands) = (Vec::new(), Vec::new());
        let mut base = None;
        for version in versions.iter().rev().filter(|v| v.sequence <= snapshot && v.sequence > deleted) {
            match &version.kind {
                VersionKind::Put(value) => {
                    base = Some(value);
                    break;
                }
                VersionKind::Delete => break,
                VersionKind::Patch(patch) => patches.insert(0, patch.as_slice()),
                VersionKind::Merge(operand) => operands.insert(0, operand.as_slice()),
            }
        }
        if !operands.is_empty() {
            return (self.rules.merge.as_ref()?)(base.map(Vec::as_slice), &operands);
        }
        match base {
            Some(base) if !patches.is_empty() => Some((self.rules.patch.as_ref()?)(base, &patches)),
            base => base.cloned(),
        }
    }
}

fn differences(expected: &State, found: &State) -> Vec<String> {
    let mut all = Vec::new();
    let empty = BTreeMap::new();
    for table in 0..expected.len().max(found.len()) {
        let expected = expected.get(table).unwrap_or(&empty);
        let found = found.get(table).unwrap_or(&empty);
        let extra = found.keys().filter(|key| !expected.contains_key(*key));
        for key in expected.keys().chain(extra) {
            let (expected, found) = (expected.get(key), found.get(key));
            if expected != found {
                let value = |value: Option<&Vec<u8>>| value.map_or("nothing".into(), |v| format!("\"{}\"", show(v)));
                all.push(format!(
                    "table {table} key \"{}\": expected {}, found {}",
                    show(key),
                    value(expected),
                    value(found)
                ));
            }
        }
    }
    all
}

/// Bytes as text, shortened.
pub(crate) fn show(bytes: &[u8]) -> String {
    const LONGEST: usize = 40;
    if bytes.len() <= LONGEST {
        return bytes.escape_ascii().to_string();
    }
    format!("{}..({} bytes)", bytes[..LONGEST].escape_ascii(), bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::TableKind;
    use rand::SeedableRng;

    fn put(key: &str, value: &str) -> Write {
        Write { table: 0, kind: WriteKind::Put(key.into(), value.into()) }
    }

    fn delete(key: &str) -> Write {
        Write { table: 0, kind: WriteKind::Delete(key.into()) }
    }

    fn merge(key: &str, operand: &str) -> Write {
        Write { table: 0, kind: WriteKind::Merge(key.into(), operand.into()) }
    }

    fn delete_range(start: &str, end: &str) -> Write {
        Write { table: 0, kind: WriteKind::DeleteRange(start.into(), end.into()) }
    }

    fn model() -> Model {
        Model::new([TableKind::Merging.rules(), TableKind::KeyValue.rules()])
    }

    fn get(model: &Model, key: &str, snapshot: u64) -> Option<String> {
        model.get(0, key.as_bytes(), snapshot).map(|value| String::from_utf8(value).unwrap())
    }

    #[test]
    fn snapshots_see_their_own_versions() {
        let mut model = model();
        let first = model.write(&[put("a", "1"), put("b", "1")], Durability::Sync);
        let second = model.write(&[delete("a"), put("b", "2")], Durability::Sync);
        let third = model.write(&[put("a", "3")], Durability::Sync);
        assert_eq!((first, second, third), (2, 4, 5));
        assert_eq!(get(&model, "a", 0), None);
        assert_eq!(get(&model, "a", first).as_deref(), Some("1"));
        assert_eq!(get(&model, "a", second), None);
        assert_eq!(get(&model, "a", third).as_deref(), Some("3"));
        assert_eq!(get(&model, "b", third).as_deref(), Some("2"));
    }

    #[test]
    fn range_deletes_hide_only_what_is_older() {
        let mut model = model();
        // Within a batch, order decides.
        model.write(&[put("a", "1"), put("b", "1"), delete_range("a", "b"), put("aa", "1")], Durability::Sync);
        assert_eq!(get(&model, "a", 9), None);
        assert_eq!(get(&model, "aa", 9).as_deref(), Some("1"));
        assert_eq!(get(&model, "b", 9).as_deref(), Some("1"));
        assert_eq!(get(&model, "a", 2).as_deref(), Some("1"));
        // A range delete is a bottom for merge operands too.
        model.write(&[put("m", "x"), delete_range("a", "z"), merge("m", "y")], Durability::Sync);
        assert_eq!(get(&model, "m", 9).as_deref(), Some("y"));
    }

    #[test]
    fn merge_operands_fold_in_order_on_any_base() {
        let mut model = model();
        model.write(&[merge("a", "1"), merge("a", "2")], Durability::Sync);
        assert_eq!(get(&model, "a", 9).as_deref(), Some("12"));
        model.write(&[put("a", "x"), merge("a", "3")], Durability::Sync);
        assert_eq!(get(&model, "a", 9).as_deref(), Some("x3"));
        model.write(&[delete("a"), merge("a", "4")], Durability::Sync);
        assert_eq!(get(&model, "a", 9).as_deref(), Some("4"));
    }

    #[test]
    fn scans_honour_bounds_prefix_and_direction() {
        let mut model = model();
        model.write(&["a", "ab", "ac", "b", "c"].map(|key| put(key, key)), Durability::Sync);
        let keys = |range: ScanRange, direction| {
            let rows = model.scan(0, &range, 9, direction);
            rows.into_iter().map(|(key, _)| String::from_utf8(key).unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(keys(ScanRange::ALL, Direction::Backward), "c b ac ab a");
        let range =
            ScanRange { lower: Bound::Excluded(b"a".to_vec()), upper: Bound::Included(b"b".to_vec()), prefix: None };
        assert_eq!(keys(range.clone(), Direction::Forward), "ab ac b");
        assert_eq!(keys(ScanRange { prefix: Some(b"a".to_vec()), ..range }, Direction::Forward), "ab ac");
    }

    #[test]
    fn walks_skip_impossible_moves() {
        let mut model = model();
        model.write(&["a", "c"].map(|key| put(key, key)), Durability::Sync);
        let moves = [
            Move::Next,
            Move::Seek(b"b".to_vec()),
            Move::Prev,
            Move::Prev,
            Move::Next,
            Move::SeekForPrev(b"b".to_vec()),
            Move::Next,
            Move::Next,
            Move::Last,
        ];
        let steps = model.walk(0, &ScanRange::ALL, 9, &moves);
        let text: Vec<String> = steps
            .iter()
            .map(|(_, row)| row.as_ref().map_or("-".into(), |(key, _)| String::from_utf8(key.clone()).unwrap()))
            .collect();
        assert_eq!(text.join(" "), "c a - a c - c");
    }

    #[test]
    fn the_prefix_rule_allows_exactly_the_prefixes_above_the_floor() {
        let mut model = model();
        model.write(&[put("a", "1")], Durability::Sync);
        model.write(&[put("a", "2"), put("b", "2")], Durability::Os);
        model.write(&[put("a", "3")], Durability::Buffered);
        model.begin(
            &[put("a", "4"), Write { table: 1, kind: WriteKind::Put(b"x".into(), b"4".into()) }],
            Durability::Sync,
        );
        let states: Vec<State> = (0..=4).map(|count| model.state_after(count)).collect();
        for (count, state) in states.iter().enumerate() {
            assert_eq!(model.check_prefix_rule(state, CrashKind::PowerLoss).ok(), (count >= 1).then_some(count));
            assert_eq!(model.check_prefix_rule(state, CrashKind::ProcessKill).ok(), (count >= 2).then_some(count));
        }
        // Half of the last batch.
        let mut half = states[4].clone();
        half[1].clear();
        let violation = model.check_prefix_rule(&half, CrashKind::PowerLoss).unwrap_err();
        assert!(violation.to_string().contains("found nothing"), "{violation}");
        assert_eq!((violation.floor(), violation.nearest()), (1, 4));

        model.truncate(2);
        assert_eq!(model.state(9), states[2]);
        assert_eq!(model.durable_floor(CrashKind::PowerLoss), 2);
        model.write(&[put("c", "5")], Durability::Buffered);
        assert_eq!(model.durable_floor(CrashKind::ProcessKill), 2);
        model.mark_durable(CrashKind::ProcessKill);
        assert_eq!(model.durable_floor(CrashKind::ProcessKill), 3);
        assert_eq!(model.durable_floor(CrashKind::PowerLoss), 2);
    }

    #[test]
    fn a_dropped_table_is_empty_at_every_snapshot_and_whole_before_the_drop() {
        let mut model = model();
        model.write(
            &[put("a", "1"), Write { table: 1, kind: WriteKind::Put(b"x".into(), b"1".into()) }],
            Durability::Os,
        );
        let before = model.state_after(1);
        model.begin_drop(0);
        assert_eq!(model.state_after(1), before);
        assert_eq!((get(&model, "a", 1), get(&model, "a", 9)), (None, None));
        let dropped = model.state_after(2);
        assert!(dropped[0].is_empty() && dropped[1] == before[1]);
        // In doubt it may be there or not; once acknowledged it must be, and all before it.
        assert_eq!(model.check_prefix_rule(&before, CrashKind::PowerLoss).unwrap(), 1);
        assert_eq!(model.check_prefix_rule(&dropped, CrashKind::PowerLoss).unwrap(), 2);
        model.acknowledge();
        assert_eq!(model.durable_floor(CrashKind::PowerLoss), 2);
        model.check_prefix_rule(&before, CrashKind::PowerLoss).unwrap_err();
        model.write(&[put("b", "2")], Durability::Buffered);
        assert_eq!((get(&model, "a", 9), get(&model, "b", 9).as_deref()), (None, Some("2")));
        model.truncate(1);
        assert_eq!(model.state(9), before);
    }

    #[test]
    fn a_column_that_comes_later_is_null_in_rows_from_before_and_once_acknowledged_it_stays() {
        let kind = TableKind::Growing;
        let mut rng = rand::rngs::SmallRng::seed_from_u64(1);
        let (row, patch) = (kind.random_row(&mut rng, 9), kind.random_increment(&mut rng, 9));
        let write = |kind| Write { table: 0, kind };
        let mut model = Model::new([kind.rules()]);
        model.write(&[write(WriteKind::Put(b"a".to_vec(), row.clone()))], Durability::Buffered);
        let before = model.state_after(1);
        assert_eq!(before[0][&b"a"[..]], kind.fitted(&row, 0));
        assert!(model.begin_change(0));
        assert_eq!(model.state_after(1), before);
        // In doubt it may be there or not; once acknowledged it must be, and all before it.
        let after = model.state_after(2);
        assert_ne!(after, before);
        assert_eq!(model.check_prefix_rule(&before, CrashKind::PowerLoss).unwrap(), 1);
        assert_eq!(model.check_prefix_rule(&after, CrashKind::PowerLoss).unwrap(), 2);
        model.acknowledge();
        model.check_prefix_rule(&before, CrashKind::PowerLoss).unwrap_err();
        assert_eq!(model.get(0, b"a", 1), Some(after[0][&b"a"[..]].clone()), "at an older snapshot, too");
        model.write(&[write(WriteKind::Put(b"b".to_vec(), row.clone()))], Durability::Os);
        assert_eq!(model.get(0, b"b", 9), Some(kind.fitted(&row, 1)));
        let within = model.scan_within(0, &ScanRange::ALL, 1, &[write(WriteKind::Patch(b"b".to_vec(), patch))]);
        assert_eq!(within, [(b"a".to_vec(), after[0][&b"a"[..]].clone())]);
        assert!((1..4).all(|_| model.begin_change(0)) && !model.begin_change(0));
        model.take_back(3);
        assert_eq!(model.get(0, b"b", 9), Some(kind.fitted(&row, 1)));
        model.begin_drop(0);
        model.write(&[write(WriteKind::Put(b"b".to_vec(), row.clone()))], Durability::Os);
        assert_eq!(model.get(0, b"b", 9), Some(kind.fitted(&row, 0)));
    }

    #[test]
    fn backups_that_are_there_are_some_of_those_begun() {
        let mut model = model();
        let mut states = Vec::new();
        for value in ["1", "2", "3"] {
            model.write(&[put("a", value)], Durability::Buffered);
            model.begin_backup();
            states.push(model.state(9));
        }
        // The second one failed, or was whole all the same.
        model.acknowledge_backup();
        model.acknowledge_backup();
        let [first, second, third] = [0, 1, 2].map(|at: usize| states[at].clone());
        assert!(model.explains_backups(&states));
        assert!(model.explains_backups(&[first.clone(), third.clone()]));
        assert!(!model.explains_backups(&[third.clone(), first]));
        assert!(!model.explains_backups(&[third]));
        assert!(!model.explains_backups(&[second.clone(), second]));
    }

    #[test]
    fn an_ingestion_is_one_commit_of_one_sequence_number() {
        let mut model = model();
        model.write(&[put("a", "1"), put("b", "1")], Durability::Buffered);
        model.begin_ingest(0, &[(b"b".to_vec(), b"2".to_vec()), (b"c".to_vec(), b"2".to_vec())]);
        model.begin_ingest(0, &[]);
        assert_eq!((model.last_sequence(), model.commit_count()), (3, 2));
        assert_eq!((get(&model, "b", 2).as_deref(), get(&model, "b", 3).as_deref()), (Some("1"), Some("2")));
        assert_eq!((get(&model, "c", 2), get(&model, "c", 3).as_deref()), (None, Some("2")));
        model.acknowledge();
        assert_eq!(model.durable_floor(CrashKind::PowerLoss), 2);
    }

    #[test]
    fn transactions_keep_what_was_not_rolled_back() {
        use TransactionStep::{Release, RollbackTo, Savepoint};
        let write = |value: &str| TransactionStep::Write(put("a", value));
        let left = |steps: &[TransactionStep]| {
            let values = surviving_writes(steps).into_iter().map(|write| match write.kind {
                WriteKind::Put(_, value) => String::from_utf8(value).unwrap(),
                other => panic!("{other:?}"),
            });
            values.collect::<String>()
        };
        assert_eq!(left(&[write("1"), Savepoint, write("2"), RollbackTo(0), write("3"), RollbackTo(0)]), "1");
        assert_eq!(left(&[Savepoint, write("1"), Savepoint, write("2"), RollbackTo(1), write("3")]), "13");
        assert_eq!(left(&[Savepoint, write("1"), Savepoint, write("2"), RollbackTo(0), RollbackTo(1)]), "");
        assert_eq!(left(&[write("1"), Savepoint, write("2"), Release(0), RollbackTo(0)]), "12");

        let mut model = model();
        model.write(&[put("a", "1"), put("b", "1")], Durability::Sync);
        let keys = ["a", "b", "c"].map(|key| (0, key.as_bytes().to_vec()));
        let seen = model.read_within(&[merge("a", "2"), delete_range("b", "c"), put("c", "3"), delete("c")], &keys);
        assert_eq!(seen, [Some(b"12".to_vec()), None, None]);
        let seen = model.read_within(&[], &keys);
        assert_eq!(seen, [Some(b"1".to_vec()), Some(b"1".to_vec()), None]);
        assert_eq!((model.last_sequence(), model.commit_count()), (2, 1));
    }
}
