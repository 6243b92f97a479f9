//! `mycelium bench`: workloads against this engine.

use mycelium::Error;
use mycelium_bench::BenchArgs;

use crate::failure::{Failure, FailureKind};
use crate::output::Output;

/// Runs the workloads and prints the report.
pub(crate) fn run(args: &BenchArgs, out: &mut Output) -> Result<(), Failure> {
    let report = mycelium_bench::run(args).map_err(|error| match error.downcast_ref::<Error>() {
        Some(error) => Failure::from(error.duplicate()),
        None if error.is::<std::io::Error>() => Failure::new(FailureKind::Disk, error.to_string()),
        None => Failure::usage(error.to_string()),
    })?;
    if out.is_json() {
        out.object(&report)?
    } else {
        out.line(report.table())?
    }
    match report.failures() {
        0 => Ok(()),
        runs => Err(Failure::negative(format!("{runs} runs failed"))),
    }
}
