//! Builds and runs bench-peers.
//!
//! RocksDB's build gives its C++ compiler `-mavx2 -mpclmul -msse4.2` only if Rust's target features have them, and runs with a
//! software CRC otherwise: hence `target-cpu=native`. The flags would rebuild everything else too, hence a target directory
//! of its own.

use std::path::Path;
use std::process::Command;

use crate::Result;

/// Names another target directory, one that has RocksDB compiled already.
const TARGET_VARIABLE: &str = "MYCELIUM_PEERS_TARGET";

/// Runs bench-peers with `arguments`; fails if it does.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let target = std::env::var_os(TARGET_VARIABLE).map_or_else(|| root.join("target-peers"), Into::into);
    let status = Command::new(env!("CARGO"))
        .args(["run", "--release", "--package", "mycelium-bench-peers", "--"])
        .args(arguments)
        .env("RUSTFLAGS", "-C target-cpu=native")
        .env("CARGO_TARGET_DIR", &target)
        .current_dir(root)
        .status()?;
    if status.success() { Ok(()) } else { Err(format!("bench-peers ended with {status}").into()) }
}
