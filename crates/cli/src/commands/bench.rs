//! `mycelium bench`: workloads against this engine.

use mycelium_bench::BenchArgs;

use crate::failure::{Failure, FailureKind};
use crate::output::Output;

/// Runs the workloads and prints the report.
pub(crate) fn run(args: &BenchArgs, out: &mut Output) -> Result<(), Failure> {
    let report = mycelium_bench::run(args).map_err(|error| Failure::new(FailureKind::Disk, error.to_string()))?;
    if out.is_json() { out.object(&report) } else { out.line(report.table()) }
}
