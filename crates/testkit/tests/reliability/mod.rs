//! What the reliability tests share: a workload drawn from a seed, and the journal of what was acknowledged.
//!
//! Every batch begins by writing its own number under one key. A recovered database so says which batch was the last it
//! holds; its rows must then be exactly those of all batches up to that one, and that one must not lie before what was
//! acknowledged as durable: a prefix, without holes, losses or resurrections.

#![allow(dead_code, unreachable_pub)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mycelium_engine::{
    Background, Buffering, Compression, Database, Durability, Error, ErrorKind, LeveledOptions, Options, Policy,
    ReadOptions, Result, Snapshot, Table, TableOptions, WriteBatch,
};
use mycelium_testkit::Scale;
use mycelium_vfs::Disk;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// `ci`, or `release` if the environment has `MYCELIUM_TEST_SCALE=release`: the counts before a release.
pub fn scaled(ci: u64, release: u64) -> u64 {
    Scale::from_environment().pick(ci, release)
}

/// The seed of a test: `MYCELIUM_TEST_SEED`, or a fixed one. Printed.
pub fn seed(test: &str) -> u64 {
    let seed = std::env::var("MYCELIUM_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("{test}: seed {seed}");
    seed
}

pub const DIRECTORY: &str = "/db";
pub const TABLES: [&str; 2] = ["a", "b"];
const COUNTER: &[u8] = b"~last batch";
pub type Rows = [BTreeMap<Vec<u8>, Vec<u8>>; 2];
/// Keys with what they had at some moment.
pub type Ever = [BTreeSet<(Vec<u8>, Vec<u8>)>; 2];

/// Options under which a few hundred writes pass through every kind of file.
pub fn small_options(disk: Arc<dyn Disk>) -> Options {
    Options {
        disk,
        memory_budget: 16 << 10,
        cache_bytes: 8 << 10,
        background: Background::Manual,
        slowdown_level0_runs: 8,
        stop_level0_runs: 12,
        ..Options::default()
    }
}

pub fn small_table() -> TableOptions {
    TableOptions {
        policy: Policy::Leveled(LeveledOptions {
            level0_trigger: 3,
            base_level_bytes: 16 << 10,
            target_file_size: 4 << 10,
            fanout: 4.0,
            ..LeveledOptions::default()
        }),
        block_size: 512,
        compression: vec![Compression::None, Compression::Lz4, Compression::Zstd(1)],
        ..TableOptions::default()
    }
}

/// The same with two-phase levels and the compaction buffer.
fn buffered_table() -> TableOptions {
    TableOptions {
        policy: Policy::TwoPhase(LeveledOptions {
            level0_trigger: 2,
            base_level_bytes: 8 << 10,
            target_file_size: 2 << 10,
            fanout: 3.0,
            level_count: 4,
            ..LeveledOptions::default()
        }),
        buffer: Buffering::Full,
        ..small_table()
    }
}

enum Change {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
}

fn key(rng: &mut SmallRng) -> Vec<u8> {
    format!("key{:03}", rng.random_range(0..300)).into_bytes()
}

/// The changes of batch `number`: the same whenever asked for.
fn changes(seed: u64, number: u64) -> Vec<(usize, Change)> {
    let mut rng = SmallRng::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut changes = vec![(0, Change::Put(COUNTER.to_vec(), number.to_le_bytes().to_vec()))];
    for _ in 0..rng.random_range(1..8) {
        let table = rng.random_range(0..2);
        let change = match rng.random_range(0..20) {
            0..4 => Change::Delete(key(&mut rng)),
            4 => {
                let from = rng.random_range(0..300);
                let range = |n: usize| format!("key{n:03}").into_bytes();
                Change::DeleteRange(range(from), range(from + rng.random_range(1..12)))
            }
            _ => {
                let length = if rng.random_ratio(1, 60) { 5000 } else { rng.random_range(0..60) };
                Change::Put(key(&mut rng), (0..length).map(|_| rng.random()).collect())
            }
        };
        changes.push((table, change));
    }
    changes
}

fn apply(rows: &mut Rows, changes: Vec<(usize, Change)>) {
    for (table, change) in changes {
        let rows = &mut rows[table];
        match change {
            Change::Put(key, value) => drop(rows.insert(key, value)),
            Change::Delete(key) => drop(rows.remove(&key)),
            Change::DeleteRange(from, to) => rows.retain(|key, _| *key < from || *key >= to),
        }
    }
}

/// What was asked of a database and what it acknowledged; lives outside of it.
pub struct Journal {
    pub seed: u64,
    /// The batches acknowledged, in order.
    pub committed: Vec<u64>,
    /// A batch whose write failed in a way that leaves its fate open.
    pub doubtful: Option<u64>,
    /// So many of `committed` survive power loss.
    pub synced: usize,
    /// So many of `committed` survive the death of the process.
    pub handed_over: usize,
    /// The rows after all of `committed`.
    pub rows: Rows,
    next: u64,
}

impl Journal {
    pub fn new(seed: u64) -> Self {
        Self { seed, committed: Vec::new(), doubtful: None, synced: 0, handed_over: 0, rows: Rows::default(), next: 1 }
    }

    /// Writes the next batch and notes the outcome.
    pub fn write(&mut self, database: &Database, tables: &[Table; 2], durability: Durability) -> Result<()> {
        let number = self.next;
        self.next += 1;
        let mut batch = WriteBatch::new();
        for (table, change) in changes(self.seed, number) {
            match change {
                Change::Put(key, value) => batch.put(&tables[table], &key, &value),
                Change::Delete(key) => batch.delete(&tables[table], &key),
                Change::DeleteRange(from, to) => batch.delete_range(&tables[table], &from, &to),
            };
        }
        match database.write(&batch, durability) {
            Ok(_) => {
                self.committed.push(number);
                self.doubtful = None;
                apply(&mut self.rows, changes(self.seed, number));
                if durability >= Durability::Os {
                    self.handed_over = self.committed.len();
                }
                if durability == Durability::Sync {
                    self.all_durable();
                }
                Ok(())
            }
            Err(error) => {
                // A full disk takes the batch back; a latched database never began it.
                if error.kind() == mycelium_engine::ErrorKind::Io {
                    self.doubtful = Some(number);
                }
                Err(error)
            }
        }
    }

    /// Every row that there was of any key, also where it was written over in its own batch.
    pub fn ever(&self) -> Ever {
        let mut ever = Ever::default();
        for (table, change) in self.committed.iter().flat_map(|&number| changes(self.seed, number)) {
            if let Change::Put(key, value) = change {
                ever[table].insert((key, value));
            }
        }
        ever
    }

    /// Everything written so far was made durable.
    pub fn all_durable(&mut self) {
        self.synced = self.committed.len();
        self.handed_over = self.committed.len();
    }

    /// Checks a recovered database: a prefix of at least `floor` batches. The journal goes on from there.
    pub fn check_recovered(&mut self, tables: &[Table; 2], floor: usize) -> Result<(), String> {
        let found = read_all(tables).map_err(|e| format!("reading after recovery: {e}"))?;
        let length = match found[0].get(COUNTER) {
            None => 0,
            Some(bytes) => {
                let number = u64::from_le_bytes(bytes.as_slice().try_into().map_err(|_| "a counter of odd length")?);
                match self.committed.iter().position(|&committed| committed == number) {
                    Some(at) => at + 1,
                    None if self.doubtful == Some(number) => {
                        self.committed.push(number);
                        self.committed.len()
                    }
                    None => return Err(format!("batch {number} came back, which was refused")),
                }
            }
        };
        if length < floor {
            return Err(format!("only {length} batches came back of {floor} acknowledged as durable"));
        }
        self.committed.truncate(length);
        self.doubtful = None;
        (self.synced, self.handed_over) = (self.synced.min(length), self.handed_over.min(length));
        self.rows = Rows::default();
        for &number in &self.committed {
            apply(&mut self.rows, changes(self.seed, number));
        }
        compare(&found, &self.rows).map_err(|e| format!("after {length} batches: {e}"))
    }

    /// Checks an open database against everything acknowledged.
    pub fn check_now(&self, tables: &[Table; 2]) -> Result<(), Failure> {
        compare(&read_all(tables)?, &self.rows).map_err(Failure::Wrong)
    }
}

/// Why a check did not pass.
#[derive(Debug)]
pub enum Failure {
    /// The database gave an error.
    Error(Error),
    /// The database gave a wrong answer.
    Wrong(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

pub fn read_all(tables: &[Table; 2]) -> Result<Rows> {
    let rows = [scan(&tables[0], &ReadOptions::default())?, scan(&tables[1], &ReadOptions::default())?];
    // Points may be read from other files than scans.
    for number in 0..300 {
        let key = format!("key{number:03}").into_bytes();
        for (table, rows) in tables.iter().zip(&rows) {
            if table.get(&key)?.as_ref() != rows.get(&key) {
                let message = format!("key {number} of table {}: scan and point read differ", table.name());
                return Err(Error::new(ErrorKind::Corruption, message));
            }
        }
    }
    Ok(rows)
}

pub fn scan(table: &Table, options: &ReadOptions) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut rows = table.iter(options)?;
    rows.seek_to_first()?;
    while rows.valid() {
        found.insert(rows.key().to_vec(), rows.value().to_vec());
        rows.next()?;
    }
    Ok(found)
}

pub fn compare(found: &Rows, expected: &Rows) -> Result<(), String> {
    for (table, (found, expected)) in TABLES.iter().zip(found.iter().zip(expected)) {
        let text = String::from_utf8_lossy;
        for (key, value) in expected {
            match found.get(key) {
                None => return Err(format!("table {table}: row {} is missing", text(key))),
                Some(other) if other != value => return Err(format!("table {table}: row {} differs", text(key))),
                Some(_) => {}
            }
        }
        if let Some(key) = found.keys().find(|key| !expected.contains_key(*key)) {
            return Err(format!("table {table}: row {} should not be there", text(key)));
        }
    }
    Ok(())
}

/// Opens the database, and its tables, which are created if they are missing.
pub fn open(options: Options) -> Result<(Database, [Table; 2])> {
    let database = Database::open(DIRECTORY, options)?;
    let names = database.table_names();
    let table = |name: &str| match names.iter().any(|known| known == name) {
        true => database.table(name),
        false if name == TABLES[0] => database.create_table(name, small_table()),
        false => database.create_table(name, buffered_table()),
    };
    let tables = [table(TABLES[0])?, table(TABLES[1])?];
    Ok((database, tables))
}

/// An open database under the workload.
pub struct Session {
    options: Options,
    rng: SmallRng,
    open: Option<(Database, [Table; 2])>,
    held: Vec<(Snapshot, Rows)>,
    /// An end of the database that failed: what was only buffered may be gone.
    unclean: bool,
}

impl Session {
    pub fn new(options: Options, seed: u64) -> Self {
        Self { options, rng: SmallRng::seed_from_u64(seed), open: None, held: Vec::new(), unclean: false }
    }

    pub fn database(&self) -> Option<&(Database, [Table; 2])> {
        self.open.as_ref()
    }

    /// Drops everything that is open, as at the end of a process.
    pub fn drop_all(&mut self) {
        self.held.clear();
        self.open = None;
    }

    /// One drawn action. Opens the database if it is not open.
    pub fn step(&mut self, journal: &mut Journal) -> Result<(), Failure> {
        let Some((database, tables)) = &self.open else {
            let (database, tables) = open(self.options.clone())?;
            if self.unclean {
                journal.check_recovered(&tables, journal.handed_over).map_err(Failure::Wrong)?;
                self.unclean = false;
            }
            self.open = Some((database, tables));
            return Ok(());
        };
        match self.rng.random_range(0..100) {
            0..64 => {
                let durability = match self.rng.random_range(0..10) {
                    0..2 => Durability::Buffered,
                    2..6 => Durability::Os,
                    _ => Durability::Sync,
                };
                journal.write(database, tables, durability)?;
            }
            64..74 => {
                let (table, key) = (self.rng.random_range(0..2), key(&mut self.rng));
                if tables[table].get(&key)?.as_ref() != journal.rows[table].get(&key) {
                    return Err(Failure::Wrong(format!("get of {} is wrong", String::from_utf8_lossy(&key))));
                }
            }
            74..78 => journal.check_now(tables)?,
            78..85 => drop(database.step()?),
            85 => database.trim_buffer(self.rng.random_range(0..20_000))?,
            86..89 => {
                database.flush()?;
                journal.all_durable();
            }
            89..91 => {
                database.compact(&tables[self.rng.random_range(0..2)])?;
                journal.all_durable();
            }
            91..93 => {
                database.sync()?;
                journal.all_durable();
            }
            93..95 => {
                self.held.clear();
                let Some((database, tables)) = self.open.take() else { return Ok(()) };
                drop(tables);
                self.unclean = true;
                database.close()?;
                self.unclean = false;
                journal.all_durable();
            }
            95..97 => self.held.push((database.snapshot(), journal.rows.clone())),
            _ => {
                for (snapshot, rows) in &self.held {
                    let options = ReadOptions::at(snapshot);
                    let found = [scan(&tables[0], &options)?, scan(&tables[1], &options)?];
                    compare(&found, rows).map_err(|e| Failure::Wrong(format!("at a snapshot: {e}")))?;
                }
                self.held.clear();
            }
        }
        Ok(())
    }
}
