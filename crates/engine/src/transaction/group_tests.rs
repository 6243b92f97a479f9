//! Commits that meet at the commit lock: the log is synced once for all of them, and each is decided as if the others
//! had come before or after it, never beside it.

use std::sync::Arc;

use mycelium_encoding::Schema;
use mycelium_vfs::{CrashDraw, CrashMode, FaultDisk, MemoryDisk, OperationKind};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::index::IndexGeneration;
use crate::{Background, ErrorKind, Index, IndexOptions, Options, TableOptions};

struct Setup {
    memory: MemoryDisk,
    disk: FaultDisk,
    database: Database,
    table: Table,
}

type Outcome = Result<SequenceNumber>;
type Commit<'a> = Box<dyn FnOnce() -> Outcome + Send + 'a>;

fn options(disk: Arc<dyn mycelium_vfs::Disk>) -> Options {
    Options { disk, background: Background::Manual, ..Options::default() }
}

fn key(n: u32) -> Vec<u8> {
    format!("{n:04}").into_bytes()
}

impl Setup {
    /// Keys 0 to 99, each with the value 0.
    fn new() -> Self {
        let memory = MemoryDisk::new();
        let disk = FaultDisk::over_memory(memory.clone());
        let database = Database::open("db", options(Arc::new(disk.clone()))).unwrap();
        let table = database.create_table("t", TableOptions::default()).unwrap();
        let mut batch = WriteBatch::new();
        for n in 0..100 {
            batch.put(&table, &key(n), b"0");
        }
        database.write(&batch, Durability::Sync).unwrap();
        Self { memory, disk, database, table }
    }

    /// Commits that all find the commit lock taken, queued in their order. How they ended, and how often a file was
    /// synced.
    fn together(&self, commits: Vec<Commit<'_>>) -> (Vec<Outcome>, u64) {
        let before = self.disk.count(OperationKind::Sync);
        let queue = &self.database.inner.commits;
        let outcomes = std::thread::scope(|scope| {
            let held = queue.writer.lock();
            let mut threads = Vec::new();
            for commit in commits {
                let queued = queue.waiting_count();
                let thread = scope.spawn(commit);
                // One that is refused before it gets there never queues.
                while queue.waiting_count() == queued && !thread.is_finished() {
                    std::thread::yield_now();
                }
                threads.push(thread);
            }
            drop(held);
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        (outcomes, self.disk.count(OperationKind::Sync) - before)
    }

    fn begin(&self, isolation: IsolationLevel) -> Transaction {
        self.database.begin(isolation)
    }

    fn commit(transaction: Transaction) -> Commit<'static> {
        Box::new(move || transaction.commit(Durability::Sync))
    }

    fn rows(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        rows(&self.table)
    }
}

fn rows(table: &Table) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = table.iter(&ReadOptions::default()).unwrap();
    let mut found = Vec::new();
    rows.seek_to_first().unwrap();
    while rows.valid() {
        found.push((rows.key().to_vec(), rows.value().to_vec()));
        rows.next().unwrap();
    }
    found
}

fn is_conflict(outcome: &Outcome) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Conflict)
}

#[test]
fn transactions_that_commit_at_once_share_one_sync() {
    const THREADS: u32 = 8;
    let setup = Setup::new();
    let first = setup.database.last_sequence() + 1;
    let mut commits: Vec<Commit<'_>> = Vec::new();
    for n in 0..THREADS {
        let mut transaction = setup.begin(IsolationLevel::Serializable);
        assert_eq!(transaction.get(&setup.table, &key(n)).unwrap().unwrap(), b"0");
        transaction.put(&setup.table, &key(n), b"1").unwrap();
        commits.push(Setup::commit(transaction));
    }
    // Plain writes of any durability go with them.
    for (n, durability) in [(98, Durability::Sync), (99, Durability::Buffered)] {
        let table = &setup.table;
        commits.push(Box::new(move || table.put(&key(n), b"1", durability)));
    }
    let (outcomes, syncs) = setup.together(commits);
    let sequences: Vec<u64> = outcomes.into_iter().map(Result::unwrap).collect();
    assert!(sequences.iter().copied().eq(first..first + u64::from(THREADS) + 2), "{sequences:?}");
    assert_eq!(syncs, 1);
    // All of them are on the disk.
    let image = setup.memory.crash_image(&CrashDraw { mode: CrashMode::SyncedOnly, seed: 0 });
    let copy = Database::open("db", options(Arc::new(image))).unwrap();
    assert_eq!(rows(&copy.table("t").unwrap()), setup.rows());
    // One after the other they cannot share.
    let before = setup.disk.count(OperationKind::Sync);
    for n in 0..THREADS {
        let mut transaction = setup.begin(IsolationLevel::Serializable);
        transaction.put(&setup.table, &key(n), b"2").unwrap();
        transaction.commit(Durability::Sync).unwrap();
    }
    assert_eq!(setup.disk.count(OperationKind::Sync) - before, u64::from(THREADS));
}

/// Room was made once for a group, however large: memtables went beyond their budget by all batches that had queued.
#[test]
fn large_batches_that_queue_up_do_not_go_into_one_generation() {
    const BYTES: usize = 1 << 20;
    let memory = MemoryDisk::new();
    let disk = FaultDisk::over_memory(memory.clone());
    let options = Options { memory_budget: BYTES, ..options(Arc::new(disk.clone())) };
    let database = Database::open("db", options).unwrap();
    let table = database.create_table("t", TableOptions::default()).unwrap();
    let setup = Setup { memory, disk, database, table };
    let value = vec![7; BYTES];
    let commits = (0..8)
        .map(|n| -> Commit<'_> {
            let (table, value) = (&setup.table, &value);
            Box::new(move || table.put(&key(n), value, Durability::Sync))
        })
        .collect();
    let (outcomes, _) = setup.together(commits);
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    let bytes = setup.database.metrics().memtable_bytes;
    assert!(bytes <= 3 * BYTES as u64, "{bytes}");
    assert_eq!(setup.rows().len(), 8);
}

/// Panics when it is asked, as a transformer or a merge operator of the user's may.
struct Panicking;

impl Precondition for Panicking {
    fn check(&self, _: SequenceNumber) -> Result<()> {
        panic!("the user's code");
    }

    fn check_operation(&self, _: TableId, _: EntryRef<'_>) -> Result<()> {
        Ok(())
    }
}

/// Whoever was in the group was told that the database had been closed, and it took further writes.
#[test]
fn a_panic_in_a_group_is_the_error_of_all_of_it() {
    let setup = Setup::new();
    let before = setup.rows();
    let put = |n| -> Commit<'_> {
        let table = &setup.table;
        Box::new(move || table.put(&key(n), b"1", Durability::Sync))
    };
    let mut batch = WriteBatch::new();
    batch.put(&setup.table, &key(5), b"1");
    let inner = &setup.database.inner;
    let panicking: Commit<'_> = Box::new(|| {
        let (body, prepared_for) = (batch.body().into(), IndexGeneration::default());
        let ready = ReadyBatch { body, count: 1, durability: Durability::Sync, prepared_for, derived: None };
        inner.commit(ready, Some(Arc::new(Panicking)))
    });
    let (outcomes, _) = setup.together(vec![put(4), panicking, put(6)]);
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("the user's code"), "{error}: {cause}");
    }
    assert_eq!(setup.rows(), before);
    assert!(setup.database.failure().unwrap().to_string().contains("panicked"));
    assert_eq!(setup.table.put(&key(7), b"1", Durability::Sync).unwrap_err().kind(), ErrorKind::ReadOnly);
    // Alone, too.
    let alone = Setup::new();
    let mut batch = WriteBatch::new();
    batch.put(&alone.table, &key(5), b"1");
    let (body, prepared_for) = (batch.body().into(), IndexGeneration::default());
    let ready = ReadyBatch { body, count: 1, durability: Durability::Sync, prepared_for, derived: None };
    let error = alone.database.inner.commit(ready, Some(Arc::new(Panicking))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(alone.database.failure().is_some());
}

#[test]
fn of_those_that_wrote_the_same_key_the_first_in_the_group_commits() {
    for isolation in [IsolationLevel::Snapshot, IsolationLevel::Serializable] {
        let setup = Setup::new();
        let commits = (0..6)
            .map(|n: u8| {
                let mut transaction = setup.begin(isolation);
                transaction.put(&setup.table, &key(n.into()), b"own").unwrap();
                match n {
                    5 => transaction.delete_range(&setup.table, &key(7), &key(9)).unwrap(),
                    _ => transaction.put(&setup.table, &key(8), &[n]).unwrap(),
                }
                Setup::commit(transaction)
            })
            .collect();
        let (outcomes, syncs) = setup.together(commits);
        assert!(outcomes[0].is_ok() && outcomes[1..].iter().all(is_conflict), "{outcomes:?}");
        assert_eq!(syncs, 1);
        assert_eq!(setup.table.get(&key(8)).unwrap().unwrap(), [0]);
        // Nothing of the losers is there.
        assert!((1..6).all(|n| setup.table.get(&key(n)).unwrap().unwrap() == b"0"));
    }
}

#[test]
fn write_skew_within_a_group_is_allowed_under_snapshot_only() {
    for (isolation, both) in [(IsolationLevel::Snapshot, true), (IsolationLevel::Serializable, false)] {
        let setup = Setup::new();
        let commits = [(1, 2), (2, 1)].map(|(read, written)| {
            let mut transaction = setup.begin(isolation);
            transaction.get(&setup.table, &key(read)).unwrap();
            transaction.put(&setup.table, &key(written), b"1").unwrap();
            Setup::commit(transaction)
        });
        let (outcomes, _) = setup.together(commits.into());
        assert!(outcomes[0].is_ok());
        assert_eq!(outcomes[1].is_ok(), both, "{outcomes:?}");
    }
}

#[test]
fn a_plain_write_in_the_group_conflicts_only_with_what_stands_behind_it() {
    let setup = Setup::new();
    let commit = |value: &[u8]| {
        let mut transaction = setup.begin(IsolationLevel::Snapshot);
        transaction.put(&setup.table, &key(3), value).unwrap();
        Setup::commit(transaction)
    };
    let (before, behind) = (commit(b"before"), commit(b"behind"));
    let table = &setup.table;
    let write: Commit<'_> = Box::new(move || table.put(&key(3), b"plain", Durability::Buffered));
    let (outcomes, _) = setup.together(vec![before, write, behind]);
    assert!(outcomes[0].is_ok() && outcomes[1].is_ok() && is_conflict(&outcomes[2]), "{outcomes:?}");
    assert_eq!(setup.table.get(&key(3)).unwrap().unwrap(), b"plain");
}

#[test]
fn transactions_behind_a_long_batch_make_a_group_of_their_own() {
    let setup = Setup::new();
    let mut batch = WriteBatch::new();
    for n in 0..5000 {
        batch.put(&setup.table, &key(n + 1000), b"loaded");
    }
    let mut commits: Vec<Commit<'_>> = vec![Box::new(|| setup.database.write(&batch, Durability::Sync))];
    for n in [5999, 500, 1000, 501] {
        let mut transaction = setup.begin(IsolationLevel::Serializable);
        transaction.put(&setup.table, &key(n), b"own").unwrap();
        commits.push(Setup::commit(transaction));
    }
    let (outcomes, syncs) = setup.together(commits);
    let committed: Vec<bool> = outcomes.iter().map(|outcome| !is_conflict(outcome)).collect();
    assert_eq!(committed, [true, false, true, false, true]);
    assert!(outcomes[4].is_ok());
    assert_eq!(syncs, 2);
}

#[test]
fn a_failed_sync_fails_all_of_the_group_and_nothing_of_it_is_seen() {
    use mycelium_vfs::{Effect, Fault};
    let setup = Setup::new();
    let before = setup.rows();
    let commits = (0..4)
        .map(|n| {
            let mut transaction = setup.begin(IsolationLevel::Serializable);
            transaction.put(&setup.table, &key(n), b"1").unwrap();
            Setup::commit(transaction)
        })
        .collect();
    setup.disk.schedule(Fault::new(OperationKind::Sync, Effect::Io));
    let (outcomes, _) = setup.together(commits);
    assert!(outcomes.iter().all(|outcome| outcome.as_ref().is_err_and(|e| e.kind() == ErrorKind::Io)), "{outcomes:?}");
    assert_eq!(setup.rows(), before);
    assert_eq!(setup.table.put(b"k", b"v", Durability::Buffered).unwrap_err().kind(), ErrorKind::ReadOnly);
}

/// One step of a transaction.
#[derive(Clone, Debug)]
enum Step {
    Put(u32),
    Delete(u32),
    DeleteRange(u32, u32),
    Get(u32),
    Scan(u32, u32),
}

#[derive(Clone, Debug)]
struct Script {
    /// `None`: a plain batch, whose reads are left out.
    isolation: Option<IsolationLevel>,
    steps: Vec<Step>,
}

fn random_script(rng: &mut SmallRng) -> Script {
    let isolation = [None, Some(IsolationLevel::Snapshot), Some(IsolationLevel::Serializable)][rng.random_range(0..3)];
    let step = |rng: &mut SmallRng| {
        let from = rng.random_range(0..40);
        let to = from + rng.random_range(0..4);
        match rng.random_range(0..9) {
            0..3 => Step::Put(from),
            3 => Step::Delete(from),
            4 => Step::DeleteRange(from, to),
            5..7 => Step::Get(from),
            _ => Step::Scan(from, to),
        }
    };
    Script { isolation, steps: (0..rng.random_range(1..6)).map(|_| step(rng)).collect() }
}

/// A table of people with an index by city.
fn people(setup: &Setup, unique: bool) -> (Table, Index) {
    let schema = Schema::parse("id int64 not null, city utf8, primary key (id)").unwrap();
    let table = setup.database.create_typed_table("people", schema, TableOptions::default()).unwrap();
    let on = vec!["city".into()];
    let options = IndexOptions { name: "by_city".into(), on, unique, ..IndexOptions::default() };
    let index = setup.database.create_index(&table, &options).unwrap();
    (table, index)
}

fn insert<'a>(people: &'a Table, id: i64, city: &'a str) -> Commit<'a> {
    Box::new(move || people.insert_row(&[DatumRef::Int64(id), DatumRef::Utf8(city)], Durability::Sync))
}

/// The entry that the row puts into the index is in no memtable yet when the transaction is decided.
#[test]
fn a_row_of_the_same_group_that_comes_into_a_lookup_conflicts() {
    let setup = Setup::new();
    let (people, index) = people(&setup, false);
    let look_up = |n| {
        let mut transaction = setup.begin(IsolationLevel::Serializable);
        assert_eq!(transaction.index_get(&index, &[DatumRef::Utf8("Graz")], None).unwrap().count(), 0);
        transaction.put(&setup.table, &key(n), b"1").unwrap();
        Setup::commit(transaction)
    };
    let commits = vec![insert(&people, 1, "Linz"), look_up(1), insert(&people, 2, "Graz"), look_up(2)];
    let (outcomes, _) = setup.together(commits);
    assert!(outcomes[..3].iter().all(Result::is_ok), "{outcomes:?}");
    assert!(is_conflict(&outcomes[3]), "{outcomes:?}");
}

#[test]
fn rows_of_one_group_do_not_share_a_unique_value() {
    let setup = Setup::new();
    let (people, index) = people(&setup, true);
    let (outcomes, _) =
        setup.together(vec![insert(&people, 1, "Graz"), insert(&people, 2, "Graz"), insert(&people, 3, "Graz am See")]);
    assert_eq!(outcomes[1].as_ref().unwrap_err().kind(), ErrorKind::Duplicate);
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    assert_eq!(index.get(&[DatumRef::Utf8("Graz")], None, None).unwrap().count(), 1);
}

/// Begins everything at the present state; what is left to do is to commit.
fn prepare<'a>(setup: &'a Setup, script: &Script, tag: u8) -> Commit<'a> {
    let table = &setup.table;
    let Some(isolation) = script.isolation else {
        let mut batch = WriteBatch::new();
        for step in &script.steps {
            match step {
                Step::Put(n) => batch.put(table, &key(*n), &[tag]),
                Step::Delete(n) => batch.delete(table, &key(*n)),
                Step::DeleteRange(from, to) => batch.delete_range(table, &key(*from), &key(*to)),
                Step::Get(_) | Step::Scan(..) => continue,
            };
        }
        return Box::new(move || setup.database.write(&batch, Durability::Sync));
    };
    Setup::commit(begin(setup, isolation, &script.steps, tag))
}

/// A transaction that has done this.
fn begin(setup: &Setup, isolation: IsolationLevel, steps: &[Step], tag: u8) -> Transaction {
    let table = &setup.table;
    let mut transaction = setup.begin(isolation);
    for step in steps {
        match step {
            Step::Put(n) => transaction.put(table, &key(*n), &[tag]).unwrap(),
            Step::Delete(n) => transaction.delete(table, &key(*n)).unwrap(),
            Step::DeleteRange(from, to) => transaction.delete_range(table, &key(*from), &key(*to)).unwrap(),
            Step::Get(n) => drop(transaction.get(table, &key(*n)).unwrap()),
            Step::Scan(from, to) => scan(&transaction, table, *from, *to),
        }
    }
    transaction
}

fn scan(transaction: &Transaction, table: &Table, from: u32, to: u32) {
    let options = ReadOptions { lower: Some(key(from)), upper: Some(key(to)), ..ReadOptions::default() };
    let mut rows = transaction.iter(table, &options).unwrap();
    rows.seek_to_first().unwrap();
    while rows.valid() {
        rows.next().unwrap();
    }
}

#[test]
fn a_group_decides_like_one_commit_after_the_other() {
    let (mut committed, mut conflicts) = (0, 0);
    for seed in 0..200 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let scripts: Vec<Script> = (0..rng.random_range(2..10)).map(|_| random_script(&mut rng)).collect();
        let (grouped, apart) = (Setup::new(), Setup::new());
        let prepared =
            |setup| scripts.iter().zip(1..).map(|(script, tag)| prepare(setup, script, tag)).collect::<Vec<_>>();
        let (found, _) = grouped.together(prepared(&grouped));
        let expected: Vec<Outcome> = prepared(&apart).into_iter().map(|commit| commit()).collect();
        for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let same = match (found, expected) {
                (Ok(found), Ok(expected)) => found == expected,
                (found, expected) => is_conflict(found) && is_conflict(expected),
            };
            assert!(same, "seed {seed}, commit {i}: found {found:?}, expected {expected:?}: {scripts:#?}");
        }
        assert_eq!(grouped.rows(), apart.rows(), "seed {seed}");
        committed += found.iter().filter(|outcome| outcome.is_ok()).count();
        conflicts += found.iter().filter(|outcome| is_conflict(outcome)).count();
    }
    println!("{committed} commits, {conflicts} conflicts");
    assert!(committed > 300 && conflicts > 100, "{committed} commits, {conflicts} conflicts");
}

/// What is left to do of a transaction when it is committed, beyond what is validated without the commit lock.
fn validate_ahead(setup: &Setup, transaction: Transaction) -> Validation {
    let Transaction { snapshot, writes, reads, .. } = transaction;
    let footprint = Arc::new(Footprint::new(writes, reads.into_inner()));
    let mut validation = Validation { footprint, validated: snapshot.sequence(), snapshot, watch: None, guard: None };
    validation.validate_ahead(&setup.database.inner).unwrap();
    validation
}

/// A transaction that had read an interval went through all of it in the memtable, and in files that had been flushed
/// meanwhile, with the commit lock held.
#[test]
fn what_was_flushed_beside_a_validation_is_not_read_under_the_commit_lock() {
    let setup = Setup::new();
    setup.database.flush().unwrap();
    let transaction = setup.begin(IsolationLevel::Serializable);
    scan(&transaction, &setup.table, 10, 90);
    let validation = validate_ahead(&setup, transaction);
    for n in [0, 95] {
        setup.table.put(&key(n), b"1", Durability::Buffered).unwrap();
    }
    setup.database.flush().unwrap();
    let before = setup.disk.count(OperationKind::Read);
    validation.check(setup.database.last_sequence()).unwrap();
    assert_eq!(setup.disk.count(OperationKind::Read), before);
}

/// Whatever is committed between the two validations is found by those who commit it, or by looking for it.
#[test]
fn what_is_committed_beside_a_validation_conflicts_as_what_was_before_it() {
    let (mut valid, mut conflicts) = (0, 0);
    for seed in 0..300 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let setup = Setup::new();
        let steps = random_script(&mut rng).steps;
        let isolation = [IsolationLevel::Snapshot, IsolationLevel::Serializable][rng.random_range(0..2)];
        let validation = validate_ahead(&setup, begin(&setup, isolation, &steps, 0));
        for tag in 1..rng.random_range(2..5) {
            if rng.random_ratio(1, 6) {
                let from = rng.random_range(0..40);
                setup.table.ingest((from..from + 3).map(|n| Ok((key(n), [tag])))).unwrap();
            }
            let script = Script { isolation: None, ..random_script(&mut rng) };
            prepare(&setup, &script, tag)().unwrap();
            if rng.random_bool(0.2) {
                setup.database.flush().unwrap();
            }
        }
        let last = setup.database.last_sequence();
        let expected = validation.footprint.validate(validation.snapshot.sequence(), last);
        let found = validation.check(last);
        assert_eq!(found.is_err(), expected.is_err(), "seed {seed}: {found:?}, {expected:?}, {steps:?}");
        assert!(found.is_ok() || found.is_err_and(|error| error.kind() == ErrorKind::Conflict));
        *if expected.is_ok() { &mut valid } else { &mut conflicts } += 1;
    }
    assert!(valid > 30 && conflicts > 30, "{valid} valid, {conflicts} conflicts");
}

/// The entry that a row puts into the index is shown to who validates, as the row is.
#[test]
fn a_row_that_comes_into_a_lookup_beside_its_validation_conflicts() {
    let setup = Setup::new();
    let (people, index) = people(&setup, false);
    let look_up = || {
        let transaction = setup.begin(IsolationLevel::Serializable);
        transaction.index_get(&index, &[DatumRef::Utf8("Graz")], None).unwrap().for_each(|row| drop(row.unwrap()));
        validate_ahead(&setup, transaction)
    };
    let (first, second) = (look_up(), look_up());
    insert(&people, 1, "Linz")().unwrap();
    first.check(setup.database.last_sequence()).unwrap();
    insert(&people, 2, "Graz")().unwrap();
    let refused = second.check(setup.database.last_sequence()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    look_up().check(setup.database.last_sequence()).unwrap();
}
