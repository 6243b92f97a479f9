//! Runs the fuzz targets of every decoder, for a while or a number of executions each.
//!
//! Needs a nightly toolchain and cargo-fuzz (`cargo install cargo-fuzz`). What a target finds is kept by cargo-fuzz
//! under `fuzz/artifacts`, what it learnt under `fuzz/corpus`; git ignores both.
//!
//! 1. Builds all targets, with the address sanitizer.
//! 2. Runs each for `seconds`, or `runs` executions, within 512 MiB of memory, leaks checked at its end; as many at a
//!    time as there are cores. A number of executions begins with nothing learnt and the same seed, so that it repeats.
//! 3. Prints the executions of each, and which failed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::{panic, thread};

use clap::Args;

use crate::Result;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Targets (files of fuzz/fuzz_targets without their ending); all where none is named.
    targets: Vec<String>,
    /// Seconds of each target.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Executions of each target, whatever they take, from an empty corpus and a fixed seed.
    #[arg(long, conflicts_with = "seconds")]
    runs: Option<u64>,
    /// Write `{"targets": …, "executions": …, "failed": …}` (counts) to this file.
    #[arg(long, value_name = "FILE")]
    json_file: Option<PathBuf>,
}

/// Fails if a target does, naming it.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    let known = known_targets(root)?;
    if let Some(unknown) = arguments.targets.iter().find(|target| !known.contains(target)) {
        return Err(format!("no fuzz target {unknown:?}; there are {}", known.join(", ")).into());
    }
    let targets = if arguments.targets.is_empty() { &known } else { &arguments.targets };
    if !cargo_fuzz(root, "build").status()?.success() {
        return Err("the fuzz targets do not build; a nightly toolchain and cargo-fuzz are needed".into());
    }
    let (executions, failed) = run_all(root, targets, arguments)?;
    println!("fuzz targets: {}, executions: {executions}, failed: {}", targets.len(), failed.len());
    if let Some(path) = &arguments.json_file {
        let report = serde_json::json!({ "targets": targets.len(), "executions": executions, "failed": failed.len() });
        fs::write(path, report.to_string())?;
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", ")).into()) }
}

/// How often all targets were run together, and which failed.
fn run_all(root: &Path, targets: &[String], arguments: &Arguments) -> Result<(u64, Vec<String>)> {
    let left = Mutex::new(targets.iter());
    let work = || -> Result<(u64, Vec<String>)> {
        let (mut executions, mut failed) = (0, Vec::new());
        while let Some(target) = next_of(&left) {
            let (count, is_whole) = run_target(root, target, arguments)?;
            println!("{target}: {count} executions{}", if is_whole { "" } else { ", FAILED" });
            executions += count;
            failed.extend((!is_whole).then(|| target.clone()));
        }
        Ok((executions, failed))
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let outcomes = thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(|| work().map_err(|error| error.to_string()))).collect();
        let outcomes =
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| panic::resume_unwind(panic)));
        outcomes.collect::<Vec<_>>()
    });
    let (mut executions, mut failed) = (0, Vec::new());
    for outcome in outcomes {
        let (count, of_worker) = outcome?;
        executions += count;
        failed.extend(of_worker);
    }
    failed.sort();
    Ok((executions, failed))
}

fn next_of<'t>(left: &Mutex<std::slice::Iter<'t, String>>) -> Option<&'t String> {
    left.lock().unwrap_or_else(PoisonError::into_inner).next()
}

fn known_targets(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root.join("fuzz/fuzz_targets"))? {
        let path = entry?.path();
        names.extend(path.file_stem().and_then(|name| name.to_str()).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// `cargo +nightly fuzz`, free of what this process was given by its own cargo.
fn cargo_fuzz(root: &Path, command: &str) -> Command {
    let mut fuzz = Command::new("cargo");
    fuzz.args(["+nightly", "fuzz", command]).current_dir(root);
    for variable in ["CARGO", "RUSTUP_TOOLCHAIN", "CARGO_MANIFEST_DIR"] {
        fuzz.env_remove(variable);
    }
    fuzz
}

/// How often the target was run, and whether it came to its end.
fn run_target(root: &Path, target: &str, arguments: &Arguments) -> Result<(u64, bool)> {
    let mut fuzz = cargo_fuzz(root, "run");
    fuzz.arg(target);
    let corpus = std::env::temp_dir().join(format!("mycelium-fuzz-{}-{target}", std::process::id()));
    if arguments.runs.is_some() {
        fs::create_dir_all(&corpus)?;
        fuzz.arg(&corpus);
    }
    fuzz.args(["--", "-rss_limit_mb=512", "-print_final_stats=1"]).args(limits(arguments));
    let output = fuzz.stdout(Stdio::null()).stderr(Stdio::piped()).output()?;
    if arguments.runs.is_some() {
        fs::remove_dir_all(&corpus)?;
    }
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        eprintln!("{log}");
    }
    Ok((executions_in(&log), output.status.success()))
}

/// What libFuzzer is told of when to end.
fn limits(arguments: &Arguments) -> Vec<String> {
    match arguments.runs {
        Some(runs) => vec![format!("-runs={runs}"), "-seed=1".to_owned()],
        None => vec![format!("-max_total_time={}", arguments.seconds)],
    }
}

/// The count in libFuzzer's final statistics.
fn executions_in(log: &str) -> u64 {
    let counts = log.lines().filter_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    counts.filter_map(|count| count.trim().parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_executions_takes_the_place_of_the_time() {
        let arguments = |runs| Arguments { targets: Vec::new(), seconds: 60, runs, json_file: None };
        assert_eq!(limits(&arguments(None)), ["-max_total_time=60"]);
        assert_eq!(limits(&arguments(Some(5_000))), ["-runs=5000", "-seed=1"]);
    }

    #[test]
    fn executions_are_read_from_the_final_statistics() {
        let log = "#2\tINITED\nstat::number_of_executed_units: 1234\nstat::average_exec_per_sec:     99\n";
        assert_eq!(executions_in(log), 1234);
        assert_eq!(executions_in("nothing"), 0);
    }
}
