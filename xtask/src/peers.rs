//! Builds and runs bench-peers.
//!
//! RocksDB's build gives its C++ compiler `-mavx2 -mpclmul -msse4.2` only if Rust's target features have them, and runs
//! with a software CRC otherwise: hence `target-cpu=native`. The flags would rebuild everything else too, hence a
//! target directory of its own. DuckDB is the Python package, in a virtual environment there.
//!
//! Cargo learns that RocksDB's bindings lack libclang after minutes of compiling other things, and says so in a
//! backtrace: it is looked for before.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;

/// Names another target directory, one that has RocksDB compiled already.
const TARGET_VARIABLE: &str = "MYCELIUM_PEERS_TARGET";

/// Names the Python that bench-peers runs DuckDB in.
const PYTHON_VARIABLE: &str = "MYCELIUM_PEERS_PYTHON";
const PROGRAM: &str = "mycelium-bench-peers";
const DUCKDB: &str = "duckdb==2.0.0";
/// The experiments that run it.
const WITH_DUCKDB: [&str; 4] = ["laser-hw", "htap", "tpch", "flights"];
/// The experiments that ask in SQL: DataFusion is compiled for them alone.
const WITH_SQL: [&str; 2] = ["tpch", "flights"];

/// Names the folder of libclang, for the crate that makes the bindings.
const LIBCLANG_VARIABLE: &str = "LIBCLANG_PATH";
/// Where Debian and its kin have libraries, or folders of them.
const LIBRARY_FOLDERS: [&str; 4] = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib"];

/// Runs bench-peers with `arguments`; fails if it does.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let target = std::env::var_os(TARGET_VARIABLE).map_or_else(|| root.join("target-peers"), Into::into);
    if !target.join("release").join(PROGRAM).exists() && !has_libclang() {
        eprintln!(
            "no libclang found: RocksDB's bindings need it. On Debian: apt-get install libclang-dev; elsewhere \
             {LIBCLANG_VARIABLE} names its folder"
        );
    }
    let mut command = Command::new(env!("CARGO"));
    if arguments.iter().any(|argument| WITH_DUCKDB.contains(&argument.as_str())) {
        command.env(PYTHON_VARIABLE, python_with_duckdb(&target)?);
    }
    command.args(["run", "--release", "--package", PROGRAM]);
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

/// Whether libclang is where it is usually found. One that lies elsewhere is found by its crate all the same.
fn has_libclang() -> bool {
    let is_libclang = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libclang") && !name.starts_with("libclang-cpp") && name.contains(".so")
    };
    let entries = |folder: &Path| {
        let entries = folder.read_dir().into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<PathBuf>>()
    };
    // `/usr/lib/x86_64-linux-gnu/libclang.so`, `/usr/lib/llvm-14/lib/libclang.so`
    std::env::var_os(LIBCLANG_VARIABLE).is_some()
        || LIBRARY_FOLDERS.iter().flat_map(|folder| entries(Path::new(folder))).any(|path| {
            is_libclang(&path)
                || entries(&path).iter().any(|path| is_libclang(path))
                || entries(&path.join("lib")).iter().any(|path| is_libclang(path))
        })
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
