//! What an open transaction reads, and whether it commits: the model of it.
//!
//! 1. It sees the rows that there were when it began, and over them its own writes that were not rolled back.
//! 2. Under snapshot isolation it is refused if a commit since it began wrote a key that it wrote or deleted with a
//!    range, or deleted a range that has a part of what it wrote; else it commits.
//! 3. Serializable, it is also refused if a commit changed a row that it read, or came into a range that it read. What
//!    a store notes of reads may be more than was read: it may refuse for anything written to a table that was read.
//! 4. Patches and merge operands that change nothing may leave no trace: a store may refuse for them, and need not.
//! 5. One that wrote nothing is never refused.
//! 6. A lock on a key is refused while another transaction holds it, which is until that ends or rolls back to a
//!    savepoint before it. A key that was locked counts as read, under either isolation, and for good.
//! 7. If the row of a key that is locked has changed since the transaction began, it begins anew, at the present state,
//!    with what it has done: it sees the rows that there are now. Or it is refused the lock: if a commit changed what
//!    it wrote, or what counts as read, or if under snapshot isolation it has read anything else.

use std::collections::BTreeSet;

use mycelium_base::SequenceNumber;

use crate::model::{Change, Model, Row, ScanRange, TransactionStep, Write, WriteKind, surviving_writes};

/// What the model says of a transaction that is to commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It commits.
    Commits,
    /// It may be refused.
    Either,
    /// It is refused.
    Conflicts,
}

/// What may come of asking for a lock that no other transaction holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockFate {
    /// The transaction has it, and sees what it saw.
    pub may_stay: bool,
    /// It has it, and sees the present state.
    pub may_move: bool,
    /// It is refused.
    pub may_conflict: bool,
}

/// A transaction that began and did not end yet.
#[derive(Clone, Debug)]
pub struct OpenTransaction {
    began: SequenceNumber,
    is_serializable: bool,
    steps: Vec<TransactionStep>,
    /// Rows that were read, and not written before.
    keys_read: BTreeSet<(usize, Vec<u8>)>,
    /// Ranges of which all was read.
    ranges_read: Vec<(usize, ScanRange)>,
    /// Tables of which anything was read.
    tables_read: BTreeSet<usize>,
    /// What it holds, in the order in which it was locked.
    locks: Vec<(usize, Vec<u8>)>,
    /// For each savepoint that stands: locks there were then.
    locks_before: Vec<usize>,
    /// Whatever it has locked.
    keys_locked: BTreeSet<(usize, Vec<u8>)>,
    /// Whether it read what does not count as read: [`Change::Idle`] if a store may say so or not.
    read_beside: Change,
}

impl OpenTransaction {
    /// One that begins now.
    pub fn new(model: &Model, is_serializable: bool) -> Self {
        Self {
            began: model.last_sequence(),
            is_serializable,
            steps: Vec::new(),
            keys_read: BTreeSet::new(),
            ranges_read: Vec::new(),
            tables_read: BTreeSet::new(),
            locks: Vec::new(),
            locks_before: Vec::new(),
            keys_locked: BTreeSet::new(),
            read_beside: Change::Nothing,
        }
    }

    /// It takes more steps.
    pub fn take_steps(&mut self, steps: &[TransactionStep]) {
        self.steps.extend_from_slice(steps);
        for step in steps {
            match step {
                TransactionStep::Write(_) => {}
                TransactionStep::Savepoint => self.locks_before.push(self.locks.len()),
                TransactionStep::RollbackTo(index) => {
                    if let Some(&locks) = self.locks_before.get(*index) {
                        self.locks.truncate(locks);
                        self.locks_before.truncate(index + 1);
                    }
                }
                TransactionStep::Release(index) => self.locks_before.truncate(*index),
            }
        }
    }

    /// The keys that it holds locks on, each with its table.
    pub fn locks(&self) -> &[(usize, Vec<u8>)] {
        &self.locks
    }

    /// Whether it holds the lock on a key.
    pub fn has_locked(&self, table: usize, key: &[u8]) -> bool {
        self.locks.iter().any(|(of, locked)| *of == table && locked.as_slice() == key)
    }

    /// What comes of asking for a lock, which no other transaction holds.
    pub fn lock_fate(&self, model: &Model, table: usize, key: &[u8]) -> LockFate {
        let newer = match self.has_locked(table, key) {
            true => Change::Nothing,
            false => model.change_of(table, key, self.began),
        };
        let obstacle = self.touched(model).max(self.read_beside);
        LockFate {
            may_stay: newer != Change::Lasting,
            may_move: newer != Change::Nothing && obstacle != Change::Lasting,
            may_conflict: newer != Change::Nothing && obstacle != Change::Nothing,
        }
    }

    /// It has the lock on a key, and sees the present state if that made it move.
    pub fn lock(&mut self, model: &Model, table: usize, key: &[u8], has_moved: bool) {
        if has_moved {
            self.began = model.last_sequence();
        }
        if !self.has_locked(table, key) {
            self.locks.push((table, key.to_vec()));
            self.keys_locked.insert((table, key.to_vec()));
        }
    }

    /// Its writes that were not rolled back.
    pub fn writes(&self) -> Vec<Write> {
        surviving_writes(&self.steps)
    }

    /// The row of a key, which it reads.
    pub fn get(&mut self, model: &Model, table: usize, key: &[u8]) -> Option<Vec<u8>> {
        self.tables_read.insert(table);
        let writes = self.writes();
        let mut own = writes.iter().filter(|write| write.table == table && touches(&write.kind, key)).peekable();
        let is_own = own.peek().is_some();
        let is_settled = own.any(|write| !matches!(write.kind, WriteKind::Patch(..) | WriteKind::Merge(..)));
        if !is_own {
            self.keys_read.insert((table, key.to_vec()));
        }
        if !is_settled {
            self.read_beside = self.read_beside.max(self.beside(table, key, is_own));
        }
        let rows = model.scan_within(table, &ScanRange::of_key(key), self.began, &writes);
        rows.into_iter().next().map(|(_, value)| value)
    }

    /// The rows of a range, which it reads all.
    pub fn scan(&mut self, model: &Model, table: usize, range: &ScanRange) -> Vec<Row> {
        self.ranges_read.push((table, range.clone()));
        self.look(model, table, range)
    }

    /// The rows of a range, of which it reads some.
    pub fn look(&mut self, model: &Model, table: usize, range: &ScanRange) -> Vec<Row> {
        self.tables_read.insert(table);
        if !self.is_serializable {
            self.read_beside = Change::Lasting;
        }
        model.scan_within(table, range, self.began, &self.writes())
    }

    /// What becomes of it if it is to commit now.
    pub fn fate(&self, model: &Model) -> Fate {
        if self.writes().is_empty() {
            return Fate::Commits;
        }
        match self.touched(model) {
            Change::Nothing => Fate::Commits,
            Change::Idle => Fate::Either,
            Change::Lasting => Fate::Conflicts,
        }
    }

    /// What others committed since it began where this wrote, or to what counts as read.
    fn touched(&self, model: &Model) -> Change {
        let change_of = |(table, key): &(usize, Vec<u8>)| model.change_of(*table, key, self.began);
        // A store may take whole tables for read.
        let change_of_table =
            |table: usize| if model.is_written(table, self.began) { Change::Idle } else { Change::Nothing };
        let written = self.writes().iter().map(|write| self.change_under(model, write)).max();
        let locked = self.keys_locked.iter().map(|name| change_of(name).max(change_of_table(name.0))).max();
        let mut changes = vec![written, locked];
        if self.is_serializable {
            let ranges = self.ranges_read.iter().map(|(table, range)| model.change_within(*table, range, self.began));
            changes.push(self.keys_read.iter().map(change_of).max());
            changes.push(ranges.max());
            changes.push(self.tables_read.iter().copied().map(change_of_table).max());
        }
        changes.into_iter().flatten().max().unwrap_or(Change::Nothing)
    }

    /// Whether a key that is read counts as read, under snapshot isolation: one does that was locked, as long as any
    /// lock is held. A store may take others of its table for locked, and what was changed in part for written.
    fn beside(&self, table: usize, key: &[u8], is_own: bool) -> Change {
        if self.is_serializable {
            return Change::Nothing;
        }
        if self.locks.is_empty() {
            return if is_own { Change::Idle } else { Change::Lasting };
        }
        let mut names = self.keys_locked.iter().filter(|(of, _)| *of == table).peekable();
        let is_of_table = names.peek().is_some();
        match names.any(|(_, locked)| locked.as_slice() == key) {
            true => Change::Nothing,
            false if is_own || is_of_table => Change::Idle,
            false => Change::Lasting,
        }
    }

    /// What others committed where this was written.
    fn change_under(&self, model: &Model, write: &Write) -> Change {
        match &write.kind {
            WriteKind::DeleteRange(start, end) if model.is_range_deleted(write.table, (start, end), self.began) => {
                Change::Lasting
            }
            WriteKind::DeleteRange(start, end) => {
                model.change_within(write.table, &ScanRange::between(start, end), self.began)
            }
            kind => model.change_of(write.table, kind.key(), self.began),
        }
    }
}

/// Whether a write is one of this key.
fn touches(kind: &WriteKind, key: &[u8]) -> bool {
    match kind {
        WriteKind::DeleteRange(start, end) => start.as_slice() <= key && key < end.as_slice(),
        kind => kind.key() == key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Durability;
    use crate::tables::TableKind;

    fn put(key: &str, value: &str) -> Write {
        Write { table: 0, kind: WriteKind::Put(key.into(), value.into()) }
    }

    fn delete_range(start: &str, end: &str) -> Write {
        Write { table: 0, kind: WriteKind::DeleteRange(start.into(), end.into()) }
    }

    fn merge(key: &str, operand: &[u8]) -> Write {
        Write { table: 0, kind: WriteKind::Merge(key.into(), operand.to_vec()) }
    }

    fn model() -> Model {
        let mut model = Model::new([TableKind::Removing.rules()]);
        model.write(&[put("a", "1"), put("c", "1")], Durability::Os);
        model
    }

    fn begin(model: &Model, is_serializable: bool, writes: &[Write]) -> OpenTransaction {
        let mut open = OpenTransaction::new(model, is_serializable);
        open.take_steps(&writes.iter().cloned().map(TransactionStep::Write).collect::<Vec<_>>());
        open
    }

    #[test]
    fn it_reads_the_rows_of_its_beginning_under_its_own_writes() {
        let mut model = model();
        let mut open = begin(&model, false, &[merge("a", b"\x002"), delete_range("b", "d"), put("e", "3")]);
        model.write(&[put("a", "9"), put("b", "9"), put("f", "9")], Durability::Os);
        let rows = open.scan(&model, 0, &ScanRange::ALL);
        assert_eq!(rows, [(b"a".to_vec(), b"12".to_vec()), (b"e".to_vec(), b"3".to_vec())]);
        assert_eq!(open.get(&model, 0, b"a").as_deref(), Some(&b"12"[..]));
        assert_eq!(open.get(&model, 0, b"c"), None);
    }

    #[test]
    fn who_wrote_the_same_comes_too_late() {
        let fate = |own: &[Write], others: &[Write]| {
            let mut model = model();
            let open = begin(&model, false, own);
            model.write(others, Durability::Os);
            open.fate(&model)
        };
        assert_eq!(fate(&[put("a", "2")], &[put("a", "1")]), Fate::Conflicts);
        assert_eq!(fate(&[put("a", "2")], &[put("b", "1"), delete_range("b", "c")]), Fate::Commits);
        assert_eq!(fate(&[put("a", "2")], &[delete_range("a", "b")]), Fate::Conflicts);
        assert_eq!(fate(&[delete_range("a", "c")], &[delete_range("b", "d")]), Fate::Conflicts);
        assert_eq!(fate(&[delete_range("a", "c")], &[put("b", "1")]), Fate::Conflicts);
        assert_eq!(fate(&[delete_range("a", "c")], &[put("c", "2")]), Fate::Commits);
        assert_eq!(fate(&[], &[put("a", "2")]), Fate::Commits);
        // What removes a row that is not there may leave nothing behind.
        assert_eq!(fate(&[put("b", "2")], &[merge("b", &[2])]), Fate::Either);
        assert_eq!(fate(&[put("a", "2")], &[merge("a", &[2])]), Fate::Conflicts);
    }

    #[test]
    fn who_locks_a_row_that_changed_sees_it_or_is_refused() {
        for is_serializable in [false, true] {
            let fate = |before: &dyn Fn(&mut OpenTransaction, &Model), others: &[Write]| {
                let mut model = model();
                let mut open = begin(&model, is_serializable, &[put("z", "1")]);
                before(&mut open, &model);
                model.write(others, Durability::Os);
                let LockFate { may_stay, may_move, may_conflict } = open.lock_fate(&model, 0, b"a");
                (may_stay, may_move, may_conflict)
            };
            let (stays, moves, refused) = ((true, false, false), (false, true, false), (false, false, true));
            assert_eq!(fate(&|_, _| {}, &[put("b", "2")]), stays);
            assert_eq!(fate(&|_, _| {}, &[put("a", "2")]), moves);
            assert_eq!(fate(&|_, _| {}, &[put("a", "2"), put("z", "2")]), refused);
            assert_eq!(fate(&|open, model| open.lock(model, 0, b"a", false), &[put("a", "2")]), stays, "it has it");
            // What was read before is noted by a serializable transaction alone.
            let unnoted = if is_serializable { (false, true, true) } else { refused };
            assert_eq!(fate(&|open, model| drop(open.get(model, 0, b"c")), &[put("a", "2")]), unnoted);
            let own = if is_serializable { (false, true, true) } else { moves };
            assert_eq!(fate(&|open, model| drop(open.get(model, 0, b"z")), &[put("a", "2")]), own);
            let locked = |open: &mut OpenTransaction, model: &Model| {
                open.lock(model, 0, b"c", false);
                drop(open.get(model, 0, b"c"));
            };
            assert_eq!(fate(&locked, &[put("a", "2")]), (false, true, true), "the table may count as read");
            assert_eq!(fate(&locked, &[put("a", "2"), put("c", "2")]), refused);
        }
    }

    #[test]
    fn a_lock_is_held_until_a_rollback_to_before_it() {
        let model = model();
        let mut open = begin(&model, true, &[]);
        open.lock(&model, 0, b"a", false);
        open.take_steps(&[TransactionStep::Savepoint]);
        open.lock(&model, 0, b"b", false);
        open.take_steps(&[TransactionStep::RollbackTo(0)]);
        assert!(open.has_locked(0, b"a") && !open.has_locked(0, b"b") && !open.has_locked(1, b"a"));
        open.lock(&model, 0, b"b", false);
        open.take_steps(&[TransactionStep::Release(0), TransactionStep::RollbackTo(0)]);
        assert_eq!(open.locks().len(), 2);
    }

    #[test]
    fn a_transaction_that_moved_reads_and_commits_by_the_present_state() {
        let mut model = model();
        let mut open = begin(&model, false, &[put("z", "1")]);
        model.write(&[put("a", "2"), put("c", "2")], Durability::Os);
        open.lock(&model, 0, b"a", true);
        assert_eq!(open.get(&model, 0, b"c").as_deref(), Some(&b"2"[..]));
        assert_eq!(open.fate(&model), Fate::Commits);
        model.write(&[put("a", "3")], Durability::Os);
        assert_eq!(open.fate(&model), Fate::Conflicts, "a locked row was written without a lock");
    }

    #[test]
    fn who_read_what_changed_comes_too_late_only_if_serializable() {
        for is_serializable in [false, true] {
            let fate = |read: &dyn Fn(&mut OpenTransaction, &Model), others: &[Write]| {
                let mut model = model();
                let mut open = begin(&model, is_serializable, &[put("z", "1")]);
                read(&mut open, &model);
                model.write(others, Durability::Os);
                open.fate(&model)
            };
            let refused = if is_serializable { Fate::Conflicts } else { Fate::Commits };
            let uncertain = if is_serializable { Fate::Either } else { Fate::Commits };
            let range = ScanRange::between(b"a", b"c");
            assert_eq!(fate(&|open, model| drop(open.get(model, 0, b"a")), &[put("a", "2")]), refused);
            assert_eq!(fate(&|open, model| drop(open.get(model, 0, b"a")), &[put("b", "2")]), uncertain);
            assert_eq!(fate(&|open, model| drop(open.scan(model, 0, &range)), &[put("b", "2")]), refused);
            assert_eq!(fate(&|open, model| drop(open.look(model, 0, &range)), &[put("b", "2")]), uncertain);
            assert_eq!(fate(&|_, _| {}, &[put("b", "2")]), Fate::Commits);
        }
    }
}
