//! Row 22: the threads of the memtable and the engine under drawn schedules (shuttle).
//!
//! Those tests replace locks and atomics in the whole crate, which no other test could bear: they are programs of their
//! own, built with the feature `schedule-tests`, and run from here so that the test command runs everything.

#![allow(clippy::unwrap_used)]

use std::process::Command;

/// Runs one program of schedule tests and returns what it printed.
fn run(package: &str, target: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(["test", "--quiet", "--package", package, "--features", "schedule-tests"])
        .args(target)
        .args(["--", "--nocapture"])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    printed
}

/// The sum of the schedules that a program says it ran. The runner's marks may stand before its lines.
fn schedules(printed: &str) -> u64 {
    let count = |line: &str| line.split_once("schedules: ")?.1.split(',').next()?.parse::<u64>().ok();
    printed.lines().filter_map(count).sum()
}

#[test]
fn threads_agree_under_every_drawn_schedule() {
    let mut all = 0;
    for (package, target, least) in [
        ("mycelium-memtable", &["--test", "schedules"][..], 10_000),
        ("mycelium-engine", &["--lib", "schedules"], 10_000),
        ("mycelium-engine", &["--test", "schedules"], 100_000),
    ] {
        let ran = schedules(&run(package, target));
        assert!(ran >= least, "{package} {target:?} ran {ran} schedules of {least}");
        all += ran;
    }
    println!("schedules: {all}, failures: 0, deadlocks: 0");
}
