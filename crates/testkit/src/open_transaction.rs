//! What an open transaction reads, and whether it commits: the model of it.
//!
//! 1. It sees the rows that there were when it began, and over them its own writes that were not rolled back.
//! 2. Under snapshot isolation it is refused if a commit since it began wrote a key that it wrote or deleted with a
//!    range, or deleted a range that has a part of what it wrote; else it commits.
//! 3. Serializable, it is also refused if a commit changed a row that it read, or came into a range that it read. What
//!    a store notes of reads may be more than was read: it may refuse for anything written to a table that was read.
//! 4. Patches and merge operands that change nothing may leave no trace: a store may refuse for them, and need not.
//! 5. One that wrote nothing is never refused.

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
        }
    }

    /// It takes more steps.
    pub fn take_steps(&mut self, steps: &[TransactionStep]) {
        self.steps.extend_from_slice(steps);
    }

    /// Its writes that were not rolled back.
    pub fn writes(&self) -> Vec<Write> {
        surviving_writes(&self.steps)
    }

    /// The row of a key, which it reads.
    pub fn get(&mut self, model: &Model, table: usize, key: &[u8]) -> Option<Vec<u8>> {
        self.tables_read.insert(table);
        let writes = self.writes();
        if !writes.iter().any(|write| write.table == table && touches(&write.kind, key)) {
            self.keys_read.insert((table, key.to_vec()));
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
        model.scan_within(table, range, self.began, &self.writes())
    }

    /// What becomes of it if it is to commit now.
    pub fn fate(&self, model: &Model) -> Fate {
        let writes = self.writes();
        if writes.is_empty() {
            return Fate::Commits;
        }
        let written = writes.iter().map(|write| self.change_under(model, write));
        let mut change = written.max().unwrap_or(Change::Nothing);
        if self.is_serializable {
            let keys = self.keys_read.iter().map(|(table, key)| model.change_of(*table, key, self.began));
            let ranges = self.ranges_read.iter().map(|(table, range)| model.change_within(*table, range, self.began));
            let is_written =
                |table: &usize| if model.is_written(*table, self.began) { Change::Idle } else { Change::Nothing };
            let tables = self.tables_read.iter().map(is_written);
            change = keys.chain(ranges).chain(tables).max().map_or(change, |read| read.max(change));
        }
        match change {
            Change::Nothing => Fate::Commits,
            Change::Idle => Fate::Either,
            Change::Lasting => Fate::Conflicts,
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
