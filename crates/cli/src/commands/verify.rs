//! `mycelium verify`: every checksum, order and invariant of every file; then indexes and views beside the rows of
//! their tables.

use mycelium::{ErrorKind, Options, VerifyReport, verify_directory};
use serde_json::json;

use super::{bytes_bar, missing, open_to_read};
use crate::args::DatabaseArgs;
use crate::failure::{Failure, FailureKind};
use crate::output::Output;
use crate::render::units;

/// Verifies files without opening the database, then indexes and views in one opened to read only; fails if anything is
/// wrong.
pub(crate) fn run(args: &DatabaseArgs, out: &mut Output) -> Result<(), Failure> {
    let bar = bytes_bar();
    let disk = Options::default().disk;
    let mut report = verify_directory(&*disk, &args.database, |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })
    .map_err(|error| missing(&args.database, error))?;
    bar.finish_and_clear();
    let compared = if report.is_ok() { compare(args, &mut report) } else { Ok(None) };
    print(&report, compared.as_ref().map_or_else(Some, Option::as_ref), out)?;
    compared?;
    if report.is_ok() {
        return Ok(());
    }
    if let Err(error) = disk.lock(&args.database.join("LOCK"))
        && error.kind() == ErrorKind::Locked
    {
        let message = "another process writes to it, so files may have come and gone while they were looked for";
        return Err(Failure::new(FailureKind::Busy, message).hint("verify it at rest, or a checkpoint of it"));
    }
    let count = units::count(report.problem_count);
    // What cannot be read may be as it was written.
    let is_unread = |kind| matches!(kind, ErrorKind::Io | ErrorKind::TooManyOpenFiles);
    if report.problems.iter().all(|problem| is_unread(problem.error.kind())) {
        return Err(Failure::new(FailureKind::Disk, format!("{count} files could not be read"))
            .hint("look at their permissions, and at the disk"));
    }
    Err(Failure::new(FailureKind::Corruption, format!("{count} faults found")))
}

/// Compares indexes and views with their tables; why not, if the database needs a transformer of its user's. Any other
/// failure to open it is one of the verification.
fn compare(args: &DatabaseArgs, report: &mut VerifyReport) -> Result<Option<Failure>, Failure> {
    match open_to_read(&args.database) {
        Ok(database) => database.verify_derived(report),
        Err(failure) if failure.kind() == FailureKind::Usage => return Ok(Some(failure)),
        Err(failure) => return Err(failure),
    }
    Ok(None)
}

fn print(report: &VerifyReport, not_compared: Option<&Failure>, out: &mut Output) -> Result<(), Failure> {
    if out.is_json() {
        let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
        return out.object(&json!({
            "ok": report.is_ok(),
            "tables": report.tables,
            "files": report.files,
            "bytes": report.bytes,
            "blocks": report.blocks,
            "entries": report.entries,
            "range_deletes": report.range_deletes,
            "log_segments": report.log_segments,
            "log_records": report.log_records,
            "log_bytes": report.log_bytes,
            "derived": report.derived,
            "not_compared": not_compared.map(ToString::to_string),
            "torn_tail": report.torn_tail,
            "problem_count": report.problem_count,
            "problems": problems,
        }));
    }
    out.line(format_args!(
        "{} tables, {} files, {}, {} blocks, {} entries, {} range deletes",
        report.tables,
        units::count(report.files),
        units::bytes(report.bytes),
        units::count(report.blocks),
        units::count(report.entries),
        units::count(report.range_deletes)
    ))?;
    out.line(format_args!(
        "{} log segments, {} records, {}",
        report.log_segments,
        units::count(report.log_records),
        units::bytes(report.log_bytes)
    ))?;
    match not_compared {
        Some(failure) => out.line(format_args!("indexes and views were not compared with their tables: {failure}"))?,
        None => out.line(format_args!("{} indexes and views compared with their tables", report.derived))?,
    }
    if let Some(tail) = &report.torn_tail {
        out.line(format_args!("the log ends in a record that was never acknowledged: {tail}"))?;
    }
    for problem in &report.problems {
        out.line(format_args!("WRONG  {problem}"))?;
    }
    if report.is_ok() { out.line("all ok") } else { Ok(()) }
}
