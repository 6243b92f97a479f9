//! `mycelium salvage`: what can be read of a damaged database, in a new one, and what is lost.

use indicatif::{ProgressBar, ProgressStyle};
use mycelium::{ErrorKind, OlderVersions, SalvageOptions, SalvageReport, salvage};
use serde_json::json;

use super::no_database;
use crate::args::{OlderArg, SalvageArgs};
use crate::failure::{Failure, FailureKind};
use crate::output::{Output, escape_bytes};
use crate::render::units;

/// Saves what it can; fails if something is lost.
pub(crate) fn run(args: &SalvageArgs, out: &mut Output) -> Result<(), Failure> {
    let bar = ProgressBar::new(0);
    let bar = match ProgressStyle::with_template("{bar:40} {bytes} of {total_bytes}  {bytes_per_sec}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    };
    let older = match args.older {
        OlderArg::LeaveOut => OlderVersions::LeaveOut,
        OlderArg::Keep => OlderVersions::Keep,
    };
    let options = SalvageOptions { older, ..SalvageOptions::default() };
    let saved = salvage(&args.database, &args.target, &options, |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = saved.map_err(|error| match error.kind() {
        ErrorKind::NotFound => no_database(&args.database),
        // What `verify` finds is known already.
        ErrorKind::Corruption => Failure::new(FailureKind::Corruption, error.to_string()).hint("restore a backup"),
        _ => error.into(),
    })?;
    print(args, &report, out)?;
    verdict(&report, older)
}

fn verdict(report: &SalvageReport, older: OlderVersions) -> Result<(), Failure> {
    if report.is_complete() {
        return Ok(());
    }
    if report.is_empty() && report.left_out == 0 {
        return Err(Failure::new(FailureKind::Corruption, "nothing could be saved but the tables' definitions"));
    }
    let failure = Failure::negative("not everything could be saved");
    if older == OlderVersions::LeaveOut && report.left_out > 0 {
        let left_out = units::count(report.left_out);
        return Err(failure.hint(format!(
            "{left_out} entries were left out, since what is lost may have replaced or deleted them; `--older keep` keeps them"
        )));
    }
    Err(failure)
}

fn print(args: &SalvageArgs, report: &SalvageReport, out: &mut Output) -> Result<(), Failure> {
    if out.is_json() {
        return print_json(args, report, out);
    }
    out.line(format_args!(
        "{}: {} tables, {} files copied and {} written anew of {}, {}, {} entries, {} range deletes, {} log records, up to \
         sequence number {}",
        args.target.display(),
        report.tables,
        units::count(report.copied_files),
        units::count(report.rewritten_files),
        units::count(report.files),
        units::bytes(report.bytes),
        units::count(report.entries),
        units::count(report.range_deletes),
        units::count(report.log_records),
        report.sequence
    ))?;
    if let Some(tail) = &report.torn_tail {
        out.line(format_args!("the log ends in a record that was never acknowledged: {tail}"))?;
    }
    for problem in &report.damage {
        out.line(format_args!("WRONG  {problem}"))?;
    }
    for lost in &report.lost {
        out.line(format_args!("LOST  {lost}"))?;
    }
    if report.lost_log {
        out.line("LOST  the writes that the log held behind its damage")?;
    }
    if report.lost_edits {
        out.line("LOST  what the manifest held behind its damage: the new database may be older than this one was")?;
    }
    for name in &report.unplaced_files {
        out.line(format_args!("{name} may hold rows, but nothing tells of which table"))?;
    }
    for name in &report.foreign_files {
        out.line(format_args!("{name} is of another database, and was left alone"))?;
    }
    for name in &report.emptied_indexes {
        out.line(format_args!("index {name} is built again when the new database is opened"))?;
    }
    for name in &report.dropped_indexes {
        out.line(format_args!("unique index {name} is gone: create it again"))?;
    }
    if report.left_out > 0 {
        out.line(format_args!("{} entries left out: older than what is lost", units::count(report.left_out)))?;
    }
    if report.is_complete() { out.line("nothing is lost") } else { Ok(()) }
}

fn print_json(args: &SalvageArgs, report: &SalvageReport, out: &mut Output) -> Result<(), Failure> {
    let damage: Vec<String> = report.damage.iter().map(ToString::to_string).collect();
    let lost = report.lost.iter().map(|lost| {
        json!({
            "table": lost.table,
            "columns": lost.columns,
            "first_key": lost.keys.0,
            "last_key": lost.keys.1,
            "from": escape_bytes(&lost.range.smallest),
            "to": (!lost.may_be_any_key()).then(|| escape_bytes(&lost.range.largest)),
            "to_is_lost": !lost.range.largest_exclusive,
            "up_to_sequence": lost.up_to,
            "entries": lost.entries,
            "older_may_have_returned": lost.older == OlderVersions::Keep,
            "error": lost.error.to_string(),
        })
    });
    let lost: Vec<_> = lost.collect();
    out.object(&json!({
        "directory": args.target.display().to_string(),
        "complete": report.is_complete(),
        "tables": report.tables,
        "files": report.files,
        "copied_files": report.copied_files,
        "rewritten_files": report.rewritten_files,
        "bytes": report.bytes,
        "entries": report.entries,
        "range_deletes": report.range_deletes,
        "left_out": report.left_out,
        "log_records": report.log_records,
        "sequence": report.sequence,
        "lost": lost,
        "lost_log": report.lost_log,
        "lost_edits": report.lost_edits,
        "unplaced_files": report.unplaced_files,
        "foreign_files": report.foreign_files,
        "emptied_indexes": report.emptied_indexes,
        "dropped_indexes": report.dropped_indexes,
        "torn_tail": report.torn_tail,
        "damage": damage,
    }))
}
