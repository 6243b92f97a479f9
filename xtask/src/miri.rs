//! Runs the tests of `unsafe` code under Miri, which finds undefined behaviour that a processor forgives.
//!
//! Needs a nightly toolchain with `miri` and `rust-src` (`rustup component add --toolchain nightly miri rust-src`).
//! Tests take smaller sizes there (`cfg!(miri)`).
//!
//! | run | what it covers |
//! |---|---|
//! | `memtable` | arena, nodes, skiplist and cursors, read while they are written to |
//! | `kernels` | pages with the AVX2 kernels, which Miri carries out intrinsic by intrinsic |
//! | `kernels-portable` | the same on a processor without AVX2 |
//!
//! What calls the system (`vfs::local`, and in `memtable::arena` the mapping of its largest chunks, for which there
//! Miri gets the general allocator's) or is a hint to the processor (`base::prefetch`) is nothing that Miri can run.

use std::path::Path;
use std::process::Command;

use clap::Args;

use crate::Result;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Runs: memtable, kernels, kernels-portable; all where none is named.
    runs: Vec<String>,
}

struct Run {
    name: &'static str,
    /// Arguments behind `cargo miri test`.
    arguments: &'static [&'static str],
    features: &'static str,
}

const RUNS: [Run; 3] = [
    Run {
        name: "memtable",
        arguments: &["--package", "mycelium-memtable", "--lib", "--test", "model", "--test", "concurrent"],
        features: "",
    },
    Run {
        name: "kernels",
        arguments: &["--package", "mycelium-encoding", "--lib", "page::"],
        features: "-Ctarget-feature=+avx2",
    },
    Run { name: "kernels-portable", arguments: &["--package", "mycelium-encoding", "--lib", "page::"], features: "" },
];

/// Fails if a run does, naming it.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    if let Some(unknown) = arguments.runs.iter().find(|name| !RUNS.iter().any(|run| run.name == **name)) {
        let known: Vec<&str> = RUNS.iter().map(|run| run.name).collect();
        return Err(format!("no run {unknown:?}; there are {}", known.join(", ")).into());
    }
    let wanted = |run: &&Run| arguments.runs.is_empty() || arguments.runs.iter().any(|name| name == run.name);
    let mut failed = Vec::new();
    for run in RUNS.iter().filter(wanted) {
        println!("== miri: {}", run.name);
        if !miri(root, run).status()?.success() {
            failed.push(run.name);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("failed under Miri: {}", failed.join(", ")).into()) }
}

/// `cargo +nightly miri test`, free of what this process was given by its own cargo.
fn miri(root: &Path, run: &Run) -> Command {
    let mut miri = Command::new("cargo");
    miri.args(["+nightly", "miri", "test"]).args(run.arguments).current_dir(root);
    for variable in ["CARGO", "RUSTUP_TOOLCHAIN", "CARGO_MANIFEST_DIR"] {
        miri.env_remove(variable);
    }
    miri.env("RUSTFLAGS", run.features);
    miri
}
