//! A real process, ended by `kill -9` at random times or by system calls that fail, and what its database holds then.
//!
//! The oracle is what the process printed before it died: every acknowledged batch with its durability and sequence
//! number. After each death: every writer's rows are those after one of its batches; none that was acknowledged as
//! handed to the operating system (or that precedes one that was) is missing; and what is there is a prefix in commit
//! order.
//!
//! Counts before a release: `MYCELIUM_TEST_SCALE=release`.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mycelium_engine::{Database, Durability, Options, ReadOptions, TableOptions};
use mycelium_testkit::Scale;
use mycelium_testkit::kill_script::{self, TABLE};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const TARGET: &str = env!("CARGO_BIN_EXE_kill_target");
const WRITERS: u64 = 8;

/// Held where a process is started and where a database is open. A process that is being started has, until it runs its
/// own program, what other threads of this one have open, the locks of databases that they close meanwhile included.
static STARTING: Mutex<()> = Mutex::new(());

fn start(command: &mut Command) -> std::io::Result<Child> {
    let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    command.stdout(Stdio::piped()).spawn()
}

fn seed(test: &str) -> u64 {
    let seed = std::env::var("MYCELIUM_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("{test}: seed {seed}");
    seed
}

/// What the processes acknowledged, by writer and batch number.
#[derive(Default)]
struct Oracle {
    /// Batch number to sequence number and durability.
    acknowledged: BTreeMap<(u64, u64), (u64, Durability)>,
    refused: u64,
    opened: bool,
    ended: bool,
}

impl Oracle {
    fn read(output: &str) -> Self {
        let mut oracle = Self::default();
        for line in output.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            match words[0] {
                "ack" if words.len() == 5 => {
                    let durability = [Durability::Buffered, Durability::Os, Durability::Sync][number(3) as usize];
                    oracle.acknowledged.insert((number(1), number(2)), (number(4), durability));
                }
                "ack" => {}
                "open" => oracle.opened = true,
                "end" => oracle.ended = true,
                "refused" => oracle.refused += 1,
                "error" => {}
                _ => panic!("the process reports: {line}"),
            }
        }
        oracle
    }

    /// The sequence number up to which everything must be there after the process died.
    fn handed_over(&self) -> u64 {
        let strong = self.acknowledged.values().filter(|(_, durability)| *durability >= Durability::Os);
        strong.map(|(sequence, _)| *sequence).max().unwrap_or(0)
    }

    /// Opens the database and checks it; how long opening took.
    fn check(&self, directory: &Path, writers: u64, before: &mut [u64]) -> Result<Duration, String> {
        let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let started = Instant::now();
        let database = Database::open(directory, kill_script::options()).map_err(|e| format!("opening: {e:?}"))?;
        let took = started.elapsed();
        let Ok(table) = database.table(TABLE) else {
            return if self.acknowledged.is_empty() { Ok(took) } else { Err("the table is gone".into()) };
        };
        let mut present_up_to = 0;
        let mut last = Vec::new();
        for writer in 0..writers {
            let number =
                kill_script::check_rows(&table, writer, &ReadOptions::default()).map_err(|e| e.to_string())??;
            let most = self.last_of(writer).unwrap_or(before[writer as usize]) + 1 + 5 * u64::from(self.refused > 0);
            if number < before[writer as usize] || number > most {
                return Err(format!("writer {writer}: batch {number}, not in {}..={most}", before[writer as usize]));
            }
            if let Some((sequence, _)) = self.acknowledged.get(&(writer, number)) {
                present_up_to = present_up_to.max(*sequence);
            }
            last.push(number);
        }
        let floor = self.handed_over().max(present_up_to);
        for ((writer, number), (sequence, durability)) in &self.acknowledged {
            if *sequence <= floor && last[*writer as usize] < *number {
                return Err(format!(
                    "writer {writer}: batch {number} ({durability:?}, sequence {sequence}) is lost; everything up to \
                     {floor} must be there, up to {present_up_to} is"
                ));
            }
        }
        before.copy_from_slice(&last);
        drop(table);
        database.close().map_err(|e| e.to_string())?;
        Ok(took)
    }

    fn last_of(&self, writer: u64) -> Option<u64> {
        self.acknowledged.range((writer, 0)..=(writer, u64::MAX)).next_back().map(|((_, number), _)| *number)
    }
}

#[test]
fn killed_processes_lose_nothing_acknowledged() {
    let seed = seed("kill -9");
    let scale = Scale::from_environment();
    let kills = scale.pick(200, 5000);
    let mut rng = SmallRng::seed_from_u64(seed);
    let (mut done, mut acknowledged, mut slowest) = (0_u64, 0, Duration::ZERO);
    while done < kills {
        // A new directory now and then, so that the first moments of a database are hit too.
        let directory = tempfile::tempdir().unwrap();
        let mut before = [0; WRITERS as usize];
        for _ in 0..20.min(kills - done) {
            let path = directory.path().join("db");
            let script = [WRITERS.to_string(), "2".into(), "0".into(), rng.random_range(0..1000).to_string()];
            let mut child = start(Command::new(TARGET).arg(&path).args(script)).unwrap();
            let mut reader = BufReader::new(child.stdout.take().unwrap());
            // Ends at a random number of lines and a moment more: in time enough, and it says how far it got.
            let lines = if rng.random_ratio(1, 5) { rng.random_range(0..3) } else { rng.random_range(1..700) };
            let mut output = String::new();
            for _ in 0..lines {
                if reader.read_line(&mut output).unwrap() == 0 {
                    break;
                }
            }
            for _ in 0..rng.random_range(0..20_000) {
                std::hint::spin_loop();
            }
            child.kill().unwrap();
            reader.read_to_string(&mut output).unwrap();
            child.wait().unwrap();
            let oracle = Oracle::read(&output);
            let took = oracle.check(&path, WRITERS, &mut before).unwrap_or_else(|wrong| panic!("kill {done}: {wrong}"));
            slowest = slowest.max(took);
            acknowledged += oracle.acknowledged.len();
            done += 1;
        }
    }
    println!("{done} kills, {acknowledged} batches acknowledged, slowest opening {slowest:?}");
    assert!(slowest < Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 2 }));
}

#[test]
fn reopening_with_64_mib_of_log_is_quick() {
    let directory = tempfile::tempdir().unwrap();
    let options = || Options { memory_budget: 512 << 20, ..Options::default() };
    let database = Database::open(directory.path(), options()).unwrap();
    let table = database.create_table("t", TableOptions::default()).unwrap();
    let value = vec![7; 1000];
    for n in 0..64_u64 << 10 {
        table.put(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), &value, Durability::Buffered).unwrap();
    }
    drop(table);
    database.close().unwrap();
    let started = Instant::now();
    let database = Database::open(directory.path(), options()).unwrap();
    let took = started.elapsed();
    println!("reopened with {} MiB of log in {took:?}", ((64 << 10) * (1000 + 30)) >> 20);
    assert_eq!(database.metrics().tables[0].levels[0].entries, 64 << 10);
    if !cfg!(debug_assertions) {
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
}

/// System calls that a database makes to change what is on the disk, as `strace` names them.
const CALLS: [(&str, u64); 5] =
    [("fdatasync", 100), ("fsync", 60), ("/rename(at2?)?$", 4), ("/unlink(at)?$", 40), ("pwrite64", 100)];

#[test]
fn system_calls_that_fail_lose_nothing_acknowledged() {
    let seed = seed("strace");
    if let Err(reason) = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status()
        .map_err(|e| e.to_string())
        .and_then(|status| if status.success() { Ok(()) } else { Err(status.to_string()) })
    {
        println!("SKIPPED: strace cannot be used: {reason}");
        return;
    }
    let scale = Scale::from_environment();
    let (mut runs, mut hit) = (0, 0);
    for (call, most) in CALLS {
        for (effect, injection) in [("killed", "signal=SIGKILL"), ("EIO", "error=EIO"), ("ENOSPC", "error=ENOSPC")] {
            let mut n = 1;
            while n <= most {
                hit += u64::from(
                    inject(call, injection, n, seed).unwrap_or_else(|e| panic!("{effect} at {call} {n}: {e}")),
                );
                runs += 1;
                // Every n before a release; in CI all of the first few, then ever fewer.
                n += scale.pick(1 + n / 5, 1);
            }
        }
    }
    println!("{runs} runs, {hit} of them ended early or were refused a write");
}

/// Runs the process with a system call that fails at its `n`-th time; whether that had an effect.
fn inject(call: &str, injection: &str, n: u64, seed: u64) -> Result<bool, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let mut before = [0];
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-o", "/dev/null", "-e"])
        .arg(format!("trace={call}"))
        .arg("-e")
        .arg(format!("inject={call}:{injection}:when={n}"))
        .arg(TARGET)
        .arg(&path)
        .args(["1", "0", "700", &seed.to_string()])
        .stderr(Stdio::null());
    let output = start(&mut strace).and_then(Child::wait_with_output).map_err(|e| e.to_string())?;
    let oracle = Oracle::read(&String::from_utf8_lossy(&output.stdout));
    if !path.exists() {
        return Ok(true);
    }
    oracle.check(&path, 1, &mut before)?;
    Ok(!oracle.ended || oracle.refused > 0)
}
