//! What depends on when: which rows a pass deletes (see the model, 5), and what a restore to a moment gives.
//!
//! A restore begins with a backup, and goes on with what the store's log says of the tables that the backup has. It
//! knows neither that one of them was dropped later nor that its columns changed, and ends before anything that the
//! store wrote to what came in its place.

use std::ops::Bound;
use std::time::Duration;

use mycelium_base::SequenceNumber;

use super::{Model, ScanRange, State, Table, Write, WriteKind};
use crate::tables::RowTime;

/// What a pass over a table does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pass {
    /// Rows that it deletes.
    pub rows: u64,
    /// How: none if there are no such rows.
    pub writes: Vec<Write>,
}

impl Model {
    /// From now on rows of a table expire once they are so old; `None`: they do not.
    pub fn set_age(&mut self, table: usize, age: Option<Duration>) {
        self.ages[table] = age;
    }

    /// A pass over a table at a time of day, which is yet to be committed; `None` if its rows do not expire. Of rows
    /// that are locked it deletes none, and then the others one by one.
    pub fn pass(&self, table: usize, now: Duration, is_locked: impl Fn(&[u8]) -> bool) -> Option<Pass> {
        let (of, age) = (&self.tables[table], nanoseconds(self.ages[table]?));
        let time = of.rules.time?;
        let mut expired = of.scan(of.life(), &ScanRange::ALL, self.last_sequence());
        expired.retain(|(key, row)| {
            let time = match time {
                RowTime::OfKey(time) => time(key),
                RowTime::OfValue(time) => time(row),
            };
            i128::from(time) + age <= nanoseconds(now)
        });
        let found = expired.len();
        expired.retain(|(key, _)| !is_locked(key));
        let kinds = match (time, expired.as_slice()) {
            (RowTime::OfKey(_), [(first, _), .., (last, _)]) if expired.len() == found => {
                vec![WriteKind::DeleteRange(first.clone(), [last.as_slice(), &[0]].concat())]
            }
            (_, all) => all.iter().map(|(key, _)| WriteKind::Delete(key.clone())).collect(),
        };
        let writes = kinds.into_iter().map(|kind| Write { table, kind }).collect();
        Some(Pass { rows: expired.len() as u64, writes })
    }

    /// All commits so far were acknowledged, and this is the newest sequence number of the store.
    pub fn note_moment(&mut self, sequence: SequenceNumber) {
        self.moments.insert(sequence, self.commits.len());
    }

    /// Whether a sequence number that was the newest of the store once lies behind `after` and not behind `until`.
    pub fn has_moment_within(&self, after: SequenceNumber, until: SequenceNumber) -> bool {
        after < until && self.moments.range((Bound::Excluded(after), Bound::Included(until))).next().is_some()
    }

    /// Whether these are the rows of a restore that begins with one of the backups and has everything up to this
    /// sequence number of the store. One that is not known is that of a commit whose outcome is not.
    pub fn explains_restore(&self, sequence: SequenceNumber, found: &State) -> bool {
        let candidates = match self.moments.range(..=sequence).next_back() {
            Some((&known, &commits)) if known == sequence => commits..=commits,
            Some((_, &commits)) => commits..=self.commits.len(),
            None => 0..=self.commits.len(),
        };
        self.backups.iter().any(|&backup| candidates.clone().any(|commits| self.restored(backup, commits) == *found))
    }

    /// What the commits, up to so many, made of the tables of a backup, which has the first `backup` of them.
    fn restored(&self, backup: usize, commits: usize) -> State {
        let snapshot = commits.checked_sub(1).map_or(0, |last| self.commits[last].last_sequence);
        let rows = |table: &Table| {
            let life = table.life_after(backup);
            let changes = life.changes.partition_point(|since| *since <= backup);
            table.shown_rows(life, changes, &ScanRange::ALL, snapshot).into_iter().collect()
        };
        self.tables.iter().map(rows).collect()
    }
}

fn nanoseconds(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;
    use crate::model::Durability;
    use crate::tables::TableKind;

    fn put(table: usize, kind: TableKind, key: &[u8], row: &[u8]) -> Write {
        Write { table, kind: WriteKind::Put(kind.key(key), row.to_vec()) }
    }

    fn row(kind: TableKind) -> Vec<u8> {
        kind.random_row(&mut SmallRng::seed_from_u64(1), 9)
    }

    #[test]
    fn a_pass_deletes_what_is_as_old_as_the_age_and_nothing_younger() {
        let mut model = Model::new([TableKind::Numbered.rules(), TableKind::KeyValue.rules()]);
        let numbers = [-5_i64, 0, 3, 4];
        let puts = numbers.map(|number| put(0, TableKind::Numbered, &number.to_be_bytes(), &row(TableKind::Numbered)));
        model.write(&puts, Durability::Os);
        let at = Duration::from_nanos;
        let pass = |model: &Model, table, now| model.pass(table, at(now), |_| false);
        assert_eq!(pass(&model, 0, 100), None, "nothing was said of an age");
        for table in [0, 1] {
            model.set_age(table, Some(at(10)));
        }
        assert_eq!(pass(&model, 1, 100), None, "rows without a time");
        let rows = |now| pass(&model, 0, now).unwrap().rows;
        assert_eq!([rows(4), rows(5), rows(10), rows(13), rows(99)], [0, 1, 2, 3, 4]);
        let one = pass(&model, 0, 5).unwrap().writes;
        assert!(matches!(&one[..], [Write { kind: WriteKind::Delete(_), .. }]), "{one:?}");
        let two = model.pass(0, at(13), |key| key == [0x80, 0, 0, 0, 0, 0, 0, 0]).unwrap().writes;
        assert!(matches!(&two[..], [Write { kind: WriteKind::Delete(_), .. }, _]), "{two:?}");
        let three = pass(&model, 0, 13).unwrap().writes;
        assert!(matches!(&three[..], [Write { kind: WriteKind::DeleteRange(..), .. }]), "{three:?}");
        model.write(&three, Durability::Os);
        assert_eq!(model.state(model.last_sequence())[0].len(), 1);
        model.begin_drop(0);
        assert_eq!(pass(&model, 0, 100), None, "the next table of this name");
    }

    #[test]
    fn a_restore_has_the_tables_of_its_backup() {
        let kinds = [TableKind::KeyValue, TableKind::KeyValue];
        let mut model = Model::new(kinds.map(TableKind::rules));
        let commit = |model: &mut Model, table, key: &[u8], at| {
            model.write(&[put(table, TableKind::KeyValue, key, b"")], Durability::Os);
            model.note_moment(at);
        };
        commit(&mut model, 0, b"a", 11);
        model.begin_backup();
        commit(&mut model, 0, b"b", 12);
        model.begin_drop(0);
        model.acknowledge();
        commit(&mut model, 1, b"c", 13);
        let rows = |keys: &[&[u8]]| -> BTreeMap<Vec<u8>, Vec<u8>> {
            keys.iter().map(|key| (key.to_vec(), Vec::new())).collect()
        };
        let restored = |first: &[&[u8]], second: &[&[u8]]| vec![rows(first), rows(second)];
        assert!(model.explains_restore(11, &restored(&[b"a"], &[])));
        assert!(model.explains_restore(12, &restored(&[b"a", b"b"], &[])));
        assert!(model.explains_restore(13, &restored(&[b"a", b"b"], &[b"c"])), "what was dropped since is there");
        assert!(!model.explains_restore(13, &restored(&[], &[b"c"])));
        assert!(!model.explains_restore(12, &restored(&[b"a"], &[])));
        assert!(model.has_moment_within(11, 12));
        assert!(!model.has_moment_within(13, 13) && !model.has_moment_within(13, 20));
    }
}
