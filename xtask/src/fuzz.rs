//! Runs the fuzz targets of every decoder for a while each.
//!
//! Needs a nightly toolchain and cargo-fuzz (`cargo install cargo-fuzz`). What a target finds is kept by cargo-fuzz
//! under `fuzz/artifacts`, what it learnt under `fuzz/corpus`; git ignores both.
//!
//! 1. Builds all targets, with the address sanitizer.
//! 2. Runs each for `seconds` within 512 MiB of memory, leaks checked at its end.
//! 3. Prints the executions of each, and which failed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

use crate::Result;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Targets (files of fuzz/fuzz_targets without their ending); all where none is named.
    targets: Vec<String>,
    /// Seconds of each target.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
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
    let (mut executions, mut failed) = (0, Vec::new());
    for target in targets {
        let (count, is_whole) = run_target(root, target, arguments.seconds)?;
        println!("{target}: {count} executions{}", if is_whole { "" } else { ", FAILED" });
        executions += count;
        if !is_whole {
            failed.push(target.as_str());
        }
    }
    println!("fuzz targets: {}, executions: {executions}, failed: {}", targets.len(), failed.len());
    if let Some(path) = &arguments.json_file {
        let report = serde_json::json!({ "targets": targets.len(), "executions": executions, "failed": failed.len() });
        fs::write(path, report.to_string())?;
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", ")).into()) }
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
fn run_target(root: &Path, target: &str, seconds: u32) -> Result<(u64, bool)> {
    let mut fuzz = cargo_fuzz(root, "run");
    fuzz.args([target, "--", "-rss_limit_mb=512", "-print_final_stats=1", &format!("-max_total_time={seconds}")]);
    let output = fuzz.stderr(Stdio::piped()).output()?;
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        eprintln!("{log}");
    }
    Ok((executions_in(&log), output.status.success()))
}

/// The count in libFuzzer's final statistics.
fn executions_in(log: &str) -> u64 {
    let counts = log.lines().filter_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    counts.filter_map(|count| count.trim().parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    #[test]
    fn executions_are_read_from_the_final_statistics() {
        let log = "#2\tINITED\nstat::number_of_executed_units: 1234\nstat::average_exec_per_sec:     99\n";
        assert_eq!(super::executions_in(log), 1234);
        assert_eq!(super::executions_in("nothing"), 0);
    }
}
