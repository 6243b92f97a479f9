//! A disk that fails: every fsync, every read, write, open, rename and unlink, and a disk that is full.
//!
//! A workload is run once to count what it asks of the disk, and then again and again with a fault at the n-th request.
//! Whatever fails: no panic, no wrong answer, nothing acknowledged after a failed sync, and after the fault is gone a
//! database that opens with a prefix of the history that lacks nothing acknowledged as durable.
//!
//! Most tests do so with two tables of keys and values, at every request; one with tables of all configurations, at
//! drawn ones (`mycelium_testkit::failing`).
//!
//! Counts before a release: `MYCELIUM_TEST_SCALE=release`.

#![allow(clippy::unwrap_used)]

mod reliability;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mycelium_base::FileKind;
use mycelium_engine::{Durability, ErrorKind, Options};
use mycelium_testkit::CrashKind;
use mycelium_testkit::crash::{Tally, Workload};
use mycelium_testkit::failing::{FailingRun, requests};
use mycelium_vfs::{CrashDraw, Disk, Effect, Fault, FaultDisk, LocalDisk, MemoryDisk, OperationKind};
use reliability::{Failure, Journal, Session, scaled, seed, small_options};

/// Steps of the workload.
const STEPS: u64 = 120;
/// Steps that go on after something failed.
const STEPS_AFTER: u64 = 12;
/// Actions of a workload of tables of any configuration.
const ACTIONS: usize = 120;

struct Trial {
    name: String,
    disk: FaultDisk,
    memory: MemoryDisk,
    journal: Journal,
    session: Session,
    seed: u64,
}

impl Trial {
    fn new(name: String, seed: u64) -> Self {
        let memory = MemoryDisk::new();
        let disk = FaultDisk::over_memory(memory.clone());
        let session = Session::new(small_options(Arc::new(disk.clone())), seed);
        Self { name, disk, memory, journal: Journal::new(seed), session, seed }
    }

    /// One step; the error, if the disk's faults allow for one.
    fn step(&mut self, allowed: &[ErrorKind]) -> Option<ErrorKind> {
        match self.session.step(&mut self.journal) {
            Ok(()) => None,
            Err(Failure::Error(error)) if allowed.contains(&error.kind()) => Some(error.kind()),
            Err(failure) => panic!("{}: {failure:?}", self.name),
        }
    }

    fn is_latched(&self) -> bool {
        self.session.database().is_some_and(|(database, _)| {
            // An empty batch changes nothing, and a latched database refuses even that.
            let refusal = database.write(&mycelium_engine::WriteBatch::new(), Durability::Buffered);
            refusal.is_err_and(|error| error.kind() == ErrorKind::ReadOnly)
        })
    }

    fn fsyncs(&self) -> u64 {
        self.disk.count(OperationKind::Sync) + self.disk.count(OperationKind::SyncDirectory)
    }

    /// Runs until something fails and a while longer; whether anything failed.
    fn run(&mut self) -> bool {
        let mut failed_at = None;
        for step in 0..STEPS {
            if failed_at.is_some_and(|at| step > at + STEPS_AFTER) {
                break;
            }
            let (latched, fsyncs, acknowledged) = (self.is_latched(), self.fsyncs(), self.journal.committed.len());
            let outcome = self.step(&[ErrorKind::Io, ErrorKind::ReadOnly, ErrorKind::Closed]);
            if latched {
                assert_eq!(self.journal.committed.len(), acknowledged, "{}: acknowledged after a failure", self.name);
                assert_eq!(self.fsyncs(), fsyncs, "{}: a failed fsync was tried again", self.name);
            }
            if outcome.is_some() {
                failed_at.get_or_insert(step);
            }
            if latched && self.session.database().is_none() {
                break;
            }
        }
        if let Some((_, tables)) = self.session.database() {
            match self.journal.check_now(tables) {
                Ok(()) => {}
                Err(Failure::Error(error)) if error.kind() == ErrorKind::Io => {}
                Err(failure) => panic!("{}: while failing: {failure:?}", self.name),
            }
        }
        self.disk.fired() > 0
    }

    /// The fault is gone; the machine lost power or only the process ended. Opens, checks, writes, and opens once more.
    fn recover(mut self, power_loss: bool) {
        let latched = self.is_latched();
        let (memory, floor) = if power_loss {
            let draw = CrashDraw::from_seed(self.seed);
            (self.memory.crash_image(&draw), self.journal.synced)
        } else {
            self.session.drop_all();
            (self.memory.kill_image(), self.journal.handed_over)
        };
        self.session.drop_all();
        self.disk.heal();
        for again in [false, true] {
            let context = |e: &dyn std::fmt::Display| {
                format!("{} (power loss {power_loss}, latched {latched}, again {again}): {e}", self.name)
            };
            let options = small_options(Arc::new(memory.clone()));
            let (database, tables) = reliability::open(options).unwrap_or_else(|e| panic!("{}", context(&e)));
            let floor = if again { self.journal.committed.len() } else { floor };
            self.journal.check_recovered(&tables, floor).unwrap_or_else(|e| panic!("{}", context(&e)));
            self.journal.write(&database, &tables, Durability::Sync).unwrap_or_else(|e| panic!("{}", context(&e)));
            while database.step().unwrap_or_else(|e| panic!("{}", context(&e))) {}
            self.journal.check_now(&tables).unwrap_or_else(|e| panic!("{}: {e:?}", self.name));
        }
    }
}

/// How often the workload does what the fault is about.
fn count(seed: u64, kind: OperationKind) -> u64 {
    let mut trial = Trial::new("count".into(), seed);
    for _ in 0..STEPS {
        assert!(trial.step(&[]).is_none());
    }
    trial.disk.count(kind)
}

/// Runs the workload with a fault at every n-th operation of a kind, for as many seeds as it takes to do so `wanted`
/// times.
fn at_every(
    kind: OperationKind,
    effect: Effect,
    sticky: bool,
    wanted: u64,
    seed: u64,
    power_loss: impl Fn(u64) -> bool,
) {
    let (mut trials, mut failed) = (0, 0);
    for seed in seed.. {
        let count = count(seed, kind);
        for nth in 1..=count {
            let mut trial = Trial::new(format!("{kind:?} {nth} {effect:?} sticky {sticky} seed {seed}"), seed);
            let fault = Fault::new(kind, effect).nth(nth);
            trial.disk.schedule(if sticky { fault.sticky() } else { fault });
            failed += u64::from(trial.run());
            trial.recover(power_loss(trials));
            trials += 1;
            if trials >= wanted {
                println!(
                    "{kind:?} {effect:?} sticky {sticky}: {trials} trials, {failed} met the fault, seeds to {seed}"
                );
                return;
            }
        }
        assert!(count > 0, "the workload has no {kind:?}");
    }
}

#[test]
fn a_failed_fsync_is_never_retried_and_nothing_is_acknowledged_after_it() {
    let seed = seed("failed fsync");
    for kind in [OperationKind::Sync, OperationKind::SyncDirectory] {
        for effect in [Effect::Io, Effect::IoAfterwards] {
            at_every(kind, effect, false, scaled(100, 1000), seed, |trial| trial % 2 == 0);
        }
    }
}

#[test]
fn pages_dropped_by_a_failed_fsync_lose_nothing_acknowledged() {
    let seed = seed("fsyncgate");
    at_every(OperationKind::Sync, Effect::LoseUnsynced, false, scaled(300, 3000), seed, |trial| trial % 4 != 0);
}

#[test]
fn any_failed_operation_leaves_right_answers_and_a_database_that_opens() {
    let seed = seed("any failed operation");
    let kinds = [
        (OperationKind::Read, 800),
        (OperationKind::Append, 800),
        (OperationKind::Open, 250),
        (OperationKind::Create, 150),
        (OperationKind::Rename, 20),
        (OperationKind::Remove, 120),
        (OperationKind::List, 30),
        (OperationKind::Sync, 200),
        (OperationKind::SyncDirectory, 100),
        (OperationKind::Exists, 30),
    ];
    for sticky in [false, true] {
        for (kind, wanted) in kinds {
            at_every(kind, Effect::Io, sticky, scaled(wanted, 10 * wanted), seed, |trial| trial % 3 == 0);
        }
    }
    // Part of what was appended is there.
    for keep in [1, 13, 100] {
        let effect = Effect::PartialAppend { keep };
        at_every(OperationKind::Append, effect, false, scaled(50, 1000), seed, |trial| trial % 3 == 0);
    }
}

/// One trial of a table's configuration, and of what fails: both follow from its number. Whether the fault was met.
fn fail_somewhere(trial: u64, seed: u64, tally: &Tally) -> bool {
    let effects = [
        (OperationKind::Read, Effect::Io),
        (OperationKind::Append, Effect::Io),
        (OperationKind::Sync, Effect::LoseUnsynced),
        (OperationKind::Append, Effect::PartialAppend { keep: 13 }),
        (OperationKind::Open, Effect::Io),
        (OperationKind::Create, Effect::Io),
        (OperationKind::Sync, Effect::IoAfterwards),
        (OperationKind::Remove, Effect::Io),
        (OperationKind::SyncDirectory, Effect::Io),
        (OperationKind::Rename, Effect::Io),
    ];
    let (kind, effect) = effects[trial as usize % effects.len()];
    let workload = Workload::small(seed + trial / effects.len() as u64, ACTIONS);
    let count =
        requests(&workload, kind).unwrap_or_else(|e| panic!("workload {} without a fault: {e:?}", workload.seed));
    if count == 0 {
        return false;
    }
    // The multiplicative hash of the trial.
    let fault = Fault::new(kind, effect).nth(1 + (trial.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % count);
    let fault = if trial.is_multiple_of(3) { fault.sticky() } else { fault };
    let crash = if trial.is_multiple_of(4) { CrashKind::PowerLoss } else { CrashKind::ProcessKill };
    FailingRun::new(&workload, fault).run(crash, tally)
}

#[test]
fn whatever_fails_tables_of_any_configuration_keep_their_rows() {
    let seed = seed("any configuration");
    let wanted = scaled(4_000, 60_000);
    let (next, met, tally) = (AtomicU64::new(0), AtomicU64::new(0), Tally::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let trial = next.fetch_add(1, Ordering::Relaxed);
                    if trial >= wanted {
                        break;
                    }
                    met.fetch_add(u64::from(fail_somewhere(trial, seed, &tally)), Ordering::Relaxed);
                }
            });
        }
    });
    let met = met.into_inner();
    tally.finish(&format!("{wanted} trials, {met} met the fault"));
    assert!(met * 10 >= wanted * 9, "only {met} of {wanted} trials met the fault");
}

/// Steps of a database on a disk that fills up at the n-th append: reads go on, and once there is space all goes on.
fn fill_disk_at(nth: u64, sticky_fault: bool, seed: u64) {
    let mut trial = Trial::new(format!("no space from append {nth} on, fault {sticky_fault}, seed {seed}"), seed);
    let room = nth % 97;
    if sticky_fault {
        trial.disk.schedule(Fault::new(OperationKind::Append, Effect::NoSpace).nth(nth).sticky());
    }
    let mut full_since = None;
    for step in 0..STEPS {
        if !sticky_fault && full_since.is_none() && trial.disk.count(OperationKind::Append) >= nth {
            trial.memory.set_capacity(Some(trial.memory.used_space() + room));
            full_since = Some(step);
        }
        let outcome = trial.step(&[ErrorKind::NoSpace]);
        if outcome.is_some() {
            full_since.get_or_insert(step);
            if let Some((_, tables)) = trial.session.database() {
                trial.journal.check_now(tables).unwrap_or_else(|e| panic!("{}: {e:?}", trial.name));
            }
        }
        if full_since.is_some_and(|since| step == since + STEPS_AFTER) {
            trial.disk.heal();
            trial.memory.set_capacity(None);
        }
        if full_since.is_some_and(|since| step > since + STEPS_AFTER) {
            assert!(outcome.is_none(), "{}: still {outcome:?} after space was freed", trial.name);
        }
    }
    trial.disk.heal();
    trial.memory.set_capacity(None);
    trial.recover(nth.is_multiple_of(2));
}

#[test]
fn a_full_disk_refuses_writes_and_takes_them_again_when_space_is_freed() {
    let seed = seed("full disk");
    let wanted = scaled(2000, 20_000);
    let mut trials = 0;
    for seed in seed.. {
        for nth in 1..=count(seed, OperationKind::Append) {
            fill_disk_at(nth, trials % 2 == 0, seed);
            trials += 1;
            if trials >= wanted {
                println!("no space: {trials} trials, seeds to {seed}");
                return;
            }
        }
    }
}

/// A mounted tmpfs, unmounted when dropped.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn mount(bytes: u64) -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|e| e.to_string())?;
        let output = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "mycelium-test"])
            .arg(directory.path())
            .output()
            .map_err(|e| e.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_string());
        }
        Ok(Self(directory))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        std::process::Command::new("umount").arg(self.0.path()).status().ok();
    }
}

#[test]
fn a_real_file_system_that_is_full_refuses_writes_and_takes_them_again() {
    let seed = seed("full tmpfs");
    for round in 0..scaled(1, 10) {
        let tmpfs = match Tmpfs::mount(64 << 20) {
            Ok(tmpfs) => tmpfs,
            Err(reason) => {
                println!("SKIPPED: cannot mount a tmpfs: {reason}");
                return;
            }
        };
        fill_file_system(tmpfs.0.path(), seed + round);
    }
}

fn fill_file_system(mount: &Path, seed: u64) {
    use mycelium_engine::{Database, TableOptions};
    let ballast = mount.join("ballast");
    let mut file = LocalDisk.create(&ballast).unwrap();
    file.append(&vec![0; 24 << 20]).unwrap();
    drop(file);
    let options = || Options { memory_budget: 4 << 20, cache_bytes: 4 << 20, ..Options::default() };
    let directory = mount.join("db");
    let database = Database::open(&directory, options()).unwrap();
    let table = database.create_table("t", TableOptions::default()).unwrap();
    let value = |n: u64| {
        let mut value = seed.wrapping_add(n).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().to_vec();
        value.resize(1000, n as u8);
        value
    };
    let mut acknowledged = Vec::new();
    let error = loop {
        let n = acknowledged.len() as u64;
        match table.put(&n.to_be_bytes(), &value(n), Durability::Os) {
            Ok(_) => acknowledged.push(n),
            Err(error) => break error,
        }
        assert!(acknowledged.len() < 64 << 10, "the file system is not full after 64 MiB");
    };
    let before = acknowledged.len();
    println!("full after {before} rows: {error}");
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    for &n in acknowledged.iter().step_by(37) {
        assert_eq!(table.get(&n.to_be_bytes()).unwrap(), Some(value(n)), "while full");
    }
    LocalDisk.remove(&ballast).unwrap();
    let mut refused = 0;
    for n in before as u64 + 1..before as u64 + 3000 {
        // The background tries again on its own; until then a writer may be told once more.
        loop {
            match table.put(&n.to_be_bytes(), &value(n), Durability::Os) {
                Ok(_) => break acknowledged.push(n),
                Err(error) if error.kind() == ErrorKind::NoSpace && refused < 1_000_000 => {
                    refused += 1;
                    std::thread::yield_now();
                }
                Err(error) => panic!("after space was freed: {error}"),
            }
        }
    }
    println!("{} rows more after space was freed, {refused} refusals until then", acknowledged.len() - before);
    drop((table, database));
    let database = Database::open(&directory, options()).unwrap();
    let table = database.table("t").unwrap();
    for &n in &acknowledged {
        assert_eq!(table.get(&n.to_be_bytes()).unwrap(), Some(value(n)), "row {n} after reopening");
    }
    assert_eq!(reliability::scan(&table, &Default::default()).unwrap().len(), acknowledged.len());
    assert!(Path::new(&directory).join(FileKind::Current.name(0)).exists());
}

#[test]
fn the_workload_runs_without_faults() {
    let seed = seed("no faults");
    let trials = scaled(300, 10_000);
    for seed in seed..seed + trials {
        let mut trial = Trial::new(format!("no faults, seed {seed}"), seed);
        for _ in 0..STEPS {
            assert!(trial.step(&[]).is_none());
        }
        trial.recover(seed % 2 == 0);
    }
    println!("{trials} trials");
}
