//! Project chores.
//!
//! ```text
//! cargo xtask claims [ID or AREA...] [--list] [--update]   measure what the project claims, figure against bar
//! cargo xtask peers -- ARGS                                build and run bench-peers with RocksDB's fast paths
//! cargo xtask check-dependencies                           crates depend only on earlier ones
//! cargo xtask tidy                                         rules about the tree that no compiler checks
//! cargo xtask fresh-clone                                  the README's commands on a clone of this commit
//! cargo xtask fuzz [TARGET...] [--seconds N | --runs N]    the fuzz targets, as many at a time as there are cores
//! cargo xtask miri [RUN...]                                the tests of unsafe code under Miri
//! ```

mod claims;
mod decisions;
mod dependencies;
mod fresh_clone;
mod fuzz;
mod miri;
mod modules;
mod peers;
mod registry;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

type Error = Box<dyn std::error::Error>;
type Result<T> = std::result::Result<T, Error>;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Project chores")]
struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure claims again and print figure against bar; fails where one falls short.
    Claims(claims::Arguments),
    /// Build bench-peers (RocksDB takes 20 minutes the first time) and run it with these arguments.
    Peers {
        /// Arguments of bench-peers.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Check that crates depend only on earlier ones.
    CheckDependencies,
    /// Check file lengths, module headers, leftovers, references to decisions and circles of modules.
    Tidy,
    /// Clone this commit and run the README's first two commands there, in that order and alone.
    FreshClone {
        /// Write `{"failed": …}` to this file.
        #[arg(long, value_name = "FILE")]
        json_file: Option<PathBuf>,
    },
    /// Run the fuzz targets of all decoders (needs nightly and cargo-fuzz): `cargo xtask fuzz sst_block --seconds 60`.
    Fuzz(fuzz::Arguments),
    /// Run the tests of unsafe code under Miri (needs nightly with miri and rust-src): `cargo xtask miri kernels`.
    Miri(miri::Arguments),
}

/// The workspace's root: as cargo says now, for clones that share a target directory share this binary too.
fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let manifest = Path::new(&manifest);
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

fn main() -> ExitCode {
    let outcome = match Line::parse().command {
        Command::Claims(arguments) => claims::run(&root(), &arguments),
        Command::Peers { arguments } => peers::run(&root(), &arguments),
        Command::CheckDependencies => dependencies::run(&root()),
        Command::Tidy => tidy::run(&root()),
        Command::FreshClone { json_file } => fresh_clone::run(&root(), json_file.as_deref()),
        Command::Fuzz(arguments) => fuzz::run(&root(), &arguments),
        Command::Miri(arguments) => miri::run(&root(), &arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
