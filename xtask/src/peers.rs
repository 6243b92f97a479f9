//! Builds and runs bench-peers.
//!
//! RocksDB's build gives its C++ compiler `-mavx2 -mpclmul -msse4.2` only if Rust's target features have them, and runs with a
//! software CRC otherwise: hence `target-cpu=native`. The flags would rebuild everything else too, hence a target directory
//! of its own. DuckDB is the Python package, in a virtual environment there.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;

/// Names another target directory, one that has RocksDB compiled already.
const TARGET_VARIABLE: &str = "MYCELIUM_PEERS_TARGET";

/// Names the Python that bench-peers runs DuckDB in.
const PYTHON_VARIABLE: &str = "MYCELIUM_PEERS_PYTHON";
const DUCKDB: &str = "duckdb==2.0.0";
/// The experiments that run it.
const WITH_DUCKDB: [&str; 4] = ["laser-hw", "htap", "tpch", "flights"];
/// The experiments that ask in SQL: DataFusion is compiled for them alone.
const WITH_SQL: [&str; 2] = ["tpch", "flights"];

/// Runs bench-peers with `arguments`; fails if it does.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let target = std::env::var_os(TARGET_VARIABLE).map_or_else(|| root.join("target-peers"), Into::into);
    let mut command = Command::new(env!("CARGO"));
    if arguments.iter().any(|argument| WITH_DUCKDB.contains(&argument.as_str())) {
        command.env(PYTHON_VARIABLE, python_with_duckdb(&target)?);
    }
    command.args(["run", "--release", "--package", "mycelium-bench-peers"]);
    if arguments.iter().any(|argument| WITH_SQL.contains(&argument.as_str())) {
        command.args(["--features", "sql"]);
    }
    let status = command
        .arg("--")
        .args(arguments)
        .env("RUSTFLAGS", "-C target-cpu=native")
        .env("CARGO_TARGET_DIR", &target)
        .current_dir(root)
        .status()?;
    if status.success() { Ok(()) } else { Err(format!("bench-peers ended with {status}").into()) }
}

/// Makes a virtual environment with the package, if there is none yet; its Python.
fn python_with_duckdb(target: &Path) -> Result<PathBuf> {
    let environment = target.join("python");
    let python = environment.join("bin/python");
    if !python.exists() {
        done(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    }
    done(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", DUCKDB]))?;
    Ok(python)
}

fn done(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} ended with {status}").into()) }
}
