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
//! 5. A row whose time is so old as its table's age, or older, is deleted by a pass, and by nothing else: a pass is a
//!    commit that deletes those that there are, one by one, or, where keys begin with the time, by the range of them.
//! 6. Recovery after a crash gives the state after some prefix of the commits that holds everything acknowledged as
//!    durable.

mod moments;
mod steps;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use mycelium_base::SequenceNumber;

pub use crate::prefix_violation::PrefixViolation;
use crate::tables::TableRules;
pub use moments::Pass;
pub(crate) use steps::walk_over;
pub use steps::{
    CrashKind, Direction, Durability, Move, ScanRange, TransactionRead, TransactionStep, Write, WriteKind,
    surviving_writes,
};
use table::{Life, RangeDelete, Table, Version, VersionKind};

/// The rows of every table: what a full scan of each gives.
pub type State = Vec<BTreeMap<Vec<u8>, Vec<u8>>>;

/// A key and its row.
pub type Row = (Vec<u8>, Vec<u8>);

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
    /// How long rows of each table stay; `None`: they do not expire.
    ages: Vec<Option<Duration>>,
    /// By sequence number of the store: commits there were when it was the newest.
    moments: BTreeMap<SequenceNumber, usize>,
}

impl Model {
    /// Empty tables with these rules.
    pub fn new(rules: impl IntoIterator<Item = TableRules>) -> Self {
        let table = |rules| Table { rules, lives: vec![Life::default()] };
        let tables: Vec<Table> = rules.into_iter().map(table).collect();
        Self {
            ages: vec![None; tables.len()],
            tables,
            commits: Vec::new(),
            durable_commits: 0,
            handed_over_commits: 0,
            backups: Vec::new(),
            made_backups: 0,
            moments: BTreeMap::new(),
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

    /// Drops a table, which may be created again; the outcome is not known yet. Until it is created it reads as empty,
    /// and then its rows do not expire.
    pub fn begin_drop(&mut self, table: usize) {
        let last_sequence = self.last_sequence();
        self.commits.push(Commit { last_sequence, durability: Durability::Sync, acknowledged: false });
        let since = self.commits.len();
        self.tables[table].lives.push(Life { since, ..Life::default() });
        self.ages[table] = None;
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
