//! `mycelium bench` without the rest of the command line, and without SQL unless that feature is asked for: what to
//! build while the engine's speed is worked on.
//!
//! ```text
//! cargo run --release --package mycelium-bench --example bench -- transformations --scale 0.1
//! ```

use clap::Parser;
use mycelium_bench::BenchArgs;

/// Runs workloads and experiments.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: BenchArgs,
}

fn main() -> mycelium_bench::Result<()> {
    let report = mycelium_bench::run(&Line::parse().args)?;
    println!("{}", report.table());
    Ok(())
}
