//! What draws a history: actions by weight, keys from a fixed set per table, and what is live.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{Action, HeldId, HistoryOptions, KeyShape, LEAST_AGE, SnapshotId, TransactionId};
use crate::model::{Direction, Durability, Move, ScanRange, TransactionRead, TransactionStep, Write, WriteKind};
use crate::tables::{TableKind, pick, time_of_key};

/// Draws one action after the other.
pub(super) struct Generator<'a> {
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
    /// The key that was locked last, with its table.
    last_locked: Option<(usize, Vec<u8>)>,
    /// By table: how long rows stay.
    ages: Vec<Option<Duration>>,
}

/// What is held open at once, at most.
const MAX_HELD: usize = 5;
/// Transactions open at once, at most.
const MAX_OPEN: usize = 3;

impl<'a> Generator<'a> {
    pub(super) fn new(options: &'a HistoryOptions) -> Self {
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
            last_locked: None,
            ages: vec![None; options.tables.len()],
        }
    }

    pub(super) fn action(&mut self) -> Action {
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
            w.set_expiry,
            w.expire,
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
            14 => self.recreate(),
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
            23 => {
                self.live.clear();
                self.open.clear();
                Action::Salvage
            }
            24 => self.set_expiry(),
            _ => self.expire(),
        }
    }

    fn recreate(&mut self) -> Action {
        self.open.clear();
        let table = self.table();
        self.ages[table] = None;
        Action::Recreate(table)
    }

    /// A table whose rows have a time.
    fn timed_table(&mut self) -> Option<usize> {
        let kinds = self.options.tables.iter().enumerate();
        let timed: Vec<usize> =
            kinds.filter(|(_, kind)| kind.time_column().is_some()).map(|(table, _)| table).collect();
        (!timed.is_empty()).then(|| *pick(&mut self.rng, &timed))
    }

    /// Now and then rows expire no more.
    fn set_expiry(&mut self) -> Action {
        let Some(table) = self.timed_table() else { return Action::Step };
        let later = *pick(&mut self.rng, &[Duration::ZERO, Duration::from_nanos(999), Duration::from_secs(1 << 40)]);
        let age = self.rng.random_bool(0.9).then(|| LEAST_AGE + later);
        self.ages[table] = age;
        Action::SetExpiry { table, age }
    }

    /// At a moment at which about a quarter of the rows have expired. Of a table whose rows do not they do from now on.
    fn expire(&mut self) -> Action {
        let Some(table) = self.timed_table() else { return Action::Step };
        let Some(age) = self.ages[table] else { return self.set_expiry() };
        let latest = self.time_of_row(table).min(self.time_of_row(table)).min(self.time_of_row(table));
        let now = match u64::try_from(latest) {
            Ok(after) => age + Duration::from_nanos(after),
            Err(_) => age - Duration::from_nanos(latest.unsigned_abs()),
        };
        Action::Expire { table, now }
    }

    /// A time that a row may have.
    fn time_of_row(&mut self, table: usize) -> i64 {
        if self.options.tables[table].time_column() == Some(0) {
            return time_of_key(&self.key(table));
        }
        match self.rng.random_ratio(1, 4) {
            true => *pick(&mut self.rng, &[i64::MIN, -1, 0, 255, 256, i64::MAX]),
            false => self.rng.random(),
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
        match self.rng.random_range(0..6 + self.options.weights.get_for_update) {
            0 => {
                let direction = *pick(&mut self.rng, &[Direction::Forward, Direction::Backward]);
                TransactionRead::Scan(table, self.range(table), direction)
            }
            1 | 2 => TransactionRead::Walk(table, self.range(table), self.moves(table)),
            3..6 => TransactionRead::Get(table, self.key_or_neighbour(table)),
            _ => self.get_for_update(table),
        }
    }

    /// One in three of the key that was locked last: by the same transaction, or by another one.
    fn get_for_update(&mut self, table: usize) -> TransactionRead {
        let again = self.last_locked.clone().filter(|_| self.rng.random_ratio(1, 3));
        let (table, key) = again.unwrap_or_else(|| (table, self.key(table)));
        self.last_locked = Some((table, key.clone()));
        TransactionRead::GetForUpdate(table, key)
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
            1 if kind.takes_patches() => WriteKind::Patch(key, self.increment(kind, len)),
            1 if kind.merge_operator().is_some() => WriteKind::Merge(key, self.increment(kind, len.min(40))),
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
    use std::collections::HashSet;

    use super::*;
    use crate::model::Model;
    use crate::operations::{Weights, generate};

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
            set_expiry: 9,
            expire: 9,
            get_for_update: 6,
            ..Weights::default()
        };
        let tables = vec![TableKind::KeyValue, TableKind::Merging, TableKind::Growing];
        let options = HistoryOptions { seed: 1, actions: 4_000, tables, weights, ..HistoryOptions::default() };
        let history = generate(&options);
        let first_words = |text: String| text.split([' ', ':']).take(1).collect::<String>();
        let actions: HashSet<String> = history.iter().map(|action| first_words(action.to_string())).collect();
        assert_eq!(actions.len(), 28, "{actions:?}");
        let writes: HashSet<String> = history
            .iter()
            .filter_map(|action| if let Action::Write(batch, _) = action { Some(batch) } else { None })
            .flatten()
            .map(|write| first_words(write.to_string()))
            .collect();
        assert_eq!(writes.len(), 5, "{writes:?}");
        let locks = |action: &&Action| {
            matches!(action, Action::Within { reads, .. }
                if reads.iter().any(|read| matches!(read, TransactionRead::GetForUpdate(..))))
        };
        assert!(history.iter().filter(locks).count() > 10);
    }

    #[test]
    fn passes_are_made_at_moments_at_which_some_rows_have_expired() {
        let weights = Weights { set_expiry: 50, expire: 500, ..Weights::default() };
        for kind in [TableKind::Typed, TableKind::Numbered, TableKind::Paired] {
            let tables = vec![TableKind::KeyValue, kind];
            let options = HistoryOptions { seed: 8, actions: 1_000, tables, weights, ..HistoryOptions::default() };
            let (mut model, mut rows, mut passes) = (Model::new(options.tables.iter().map(|k| k.rules())), 0, 0);
            for action in generate(&options) {
                match action {
                    Action::Write(batch, durability) => {
                        model.write(&batch, durability);
                    }
                    Action::SetExpiry { table, age } => {
                        assert!(table == 1 && age.is_none_or(|age| age >= LEAST_AGE));
                        model.set_age(table, age);
                        assert!(
                            model.pass(table, Duration::ZERO, |_| false).is_none_or(|pass| pass.rows == 0),
                            "in 1970"
                        );
                    }
                    Action::Recreate(table) => model.begin_drop(table),
                    Action::Expire { table, now } => {
                        let pass = model.pass(table, now, |_| false).unwrap();
                        rows += pass.rows;
                        passes += 1;
                        model.write(&pass.writes, Durability::Os);
                    }
                    _ => {}
                }
            }
            assert!(passes > 150 && rows > 50, "{kind:?}: {rows} rows in {passes} passes");
        }
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
