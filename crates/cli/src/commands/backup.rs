//! `mycelium backup`: backups of a database, made, listed, verified, restored and deleted, and the archive of its log,
//! used and pruned. All but the making of backups needs no database.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow_array::{ArrayRef, RecordBatch, StringArray, TimestampSecondArray, UInt64Array};
use indicatif::ProgressBar;
use mycelium::{
    BackupInfo, Backups, DeletedBackups, Error, ErrorKind, Options, RestoreOptions, RestoreSummary, VerifyReport,
};
use serde_json::json;

use super::{bytes_bar, open_archived, open_to_read};
use crate::args::{BackupArgs, BackupCommand, RestoreArgs};
use crate::failure::{Failure, FailureKind};
use crate::output::{Output, print_failure};
use crate::render::units;

/// Does what the command says.
pub(crate) fn run(command: &BackupCommand, out: &mut Output) -> Result<(), Failure> {
    match command {
        BackupCommand::Create { database, backups, archive } => create(database, backups, archive.as_deref(), out),
        BackupCommand::List { backups } => list(backups, out),
        BackupCommand::Verify(args) => verify(args, out),
        BackupCommand::Restore { from, target, log } => match &log.archive {
            Some(archive) => restore_to(from, target, (archive.as_path(), log), out),
            None => restore(from, target, out),
        },
        BackupCommand::Prune { backups, archive } => prune(backups, archive, out),
        BackupCommand::Delete { backups, numbers, keep } => {
            let backups = open(backups)?;
            let deleted = match keep {
                Some(count) => backups.keep(*count),
                None => backups.delete(numbers),
            };
            print_deleted(&deleted.map_err(failed)?, out)
        }
    }
}

fn open(directory: &Path) -> Result<Backups, Failure> {
    let backups = Backups::open(Options::default().disk, directory).map_err(failed);
    backups.map_err(|failure| failure.hint("`mycelium backup create` makes one"))
}

/// What failed has to do with backups, not with a database.
fn failed(error: Error) -> Failure {
    let (kind, text) = (error.kind(), error.to_string());
    match kind {
        ErrorKind::Locked => busy(text),
        ErrorKind::Corruption => Failure::new(FailureKind::Corruption, text)
            .hint("`mycelium backup verify` checks every file; other backups of the directory may be whole"),
        _ => error.into(),
    }
}

fn busy(text: String) -> Failure {
    Failure::new(FailureKind::Busy, text).hint("another process changes the directory of backups; try again")
}

/// Shows how far something is.
fn moved(bar: &ProgressBar) -> impl FnMut(u64, u64) {
    move |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    }
}

fn create(database: &Path, directory: &Path, archive: Option<&Path>, out: &mut Output) -> Result<(), Failure> {
    let database = match archive {
        Some(archive) => open_archived(database, archive)?,
        None => open_to_read(database)?,
    };
    let bar = bytes_bar();
    let summary = database.backup_with_progress(directory, moved(&bar)).map_err(|error| match error.kind() {
        ErrorKind::Locked => busy(error.to_string()),
        _ => error.into(),
    })?;
    bar.finish_and_clear();
    if out.is_json() {
        return out.object(&json!({
            "directory": directory.display().to_string(), "backup": summary.number, "sequence": summary.sequence,
            "files": summary.files, "bytes": summary.bytes, "copied": summary.copied,
            "copied_bytes": summary.copied_bytes,
        }));
    }
    out.line(format_args!(
        "backup {} in {}: {} files, {}, of which {} files, {}, were copied, up to sequence number {}",
        summary.number,
        directory.display(),
        units::count(summary.files),
        units::bytes(summary.bytes),
        units::count(summary.copied),
        units::bytes(summary.copied_bytes),
        summary.sequence
    ))
}

fn list(directory: &Path, out: &mut Output) -> Result<(), Failure> {
    let backups = open(directory)?.list().map_err(failed)?;
    out.rows(&table_of(&backups, out.is_json())?)
}

/// A row of each backup; bytes are text where people read them.
fn table_of(backups: &[BackupInfo], as_numbers: bool) -> Result<RecordBatch, Failure> {
    let numbers =
        |of: fn(&BackupInfo) -> u64| -> ArrayRef { Arc::new(UInt64Array::from_iter_values(backups.iter().map(of))) };
    let bytes = |of: fn(&BackupInfo) -> u64| -> ArrayRef {
        match as_numbers {
            true => numbers(of),
            false => Arc::new(StringArray::from_iter_values(backups.iter().map(|backup| units::bytes(of(backup))))),
        }
    };
    let times: ArrayRef = Arc::new(times_of(backups.iter().map(|backup| backup.time)));
    let mut columns: Vec<(&str, ArrayRef)> = vec![
        ("backup", numbers(|backup| backup.number)),
        ("time", times),
        ("sequence", numbers(|backup| backup.sequence)),
        ("files", numbers(|backup| backup.files)),
        ("bytes", bytes(|backup| backup.bytes)),
        ("own_bytes", bytes(|backup| backup.own_bytes)),
    ];
    if as_numbers || backups.iter().any(|backup| backup.damage.is_some()) {
        let damage = backups.iter().map(|backup| backup.damage.as_ref().map(ToString::to_string));
        let damage: ArrayRef = Arc::new(StringArray::from_iter(damage));
        columns.push(("damage", damage));
    }
    RecordBatch::try_from_iter(columns).map_err(print_failure)
}

/// Times to the second, as they are printed.
fn times_of(times: impl Iterator<Item = SystemTime>) -> TimestampSecondArray {
    let seconds = |time: SystemTime| {
        let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX)
    };
    TimestampSecondArray::from_iter_values(times.map(seconds)).with_timezone("+00:00")
}

fn verify(args: &BackupArgs, out: &mut Output) -> Result<(), Failure> {
    let bar = bytes_bar();
    let report = open(&args.backups)?.verify(args.number, moved(&bar)).map_err(failed)?;
    bar.finish_and_clear();
    print_verified(&report, out)?;
    if report.is_ok() {
        return Ok(());
    }
    Err(Failure::new(FailureKind::Corruption, format!("{} faults found", units::count(report.problem_count)))
        .hint("a new backup brings back files that are missing; a damaged one goes when no backup needs it"))
}

fn print_verified(report: &VerifyReport, out: &mut Output) -> Result<(), Failure> {
    if out.is_json() {
        let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
        return out.object(&json!({
            "ok": report.is_ok(), "files": report.files, "bytes": report.bytes, "problem_count": report.problem_count,
            "problems": problems,
        }));
    }
    out.line(format_args!("{} files, {}", units::count(report.files), units::bytes(report.bytes)))?;
    for problem in &report.problems {
        out.line(format_args!("WRONG  {problem}"))?;
    }
    if report.is_ok() { out.line("all ok") } else { Ok(()) }
}

/// The number of the newest backup, whatever it is like: an older one is restored only where it is asked for.
fn newest(backups: &Backups, directory: &Path) -> Result<u64, Failure> {
    let all = backups.list().map_err(failed)?;
    all.last().map(|backup| backup.number).ok_or_else(|| {
        Failure::negative(format!("there are no backups in {}", directory.display()))
            .hint("`mycelium backup create` makes one")
    })
}

fn restore(from: &BackupArgs, target: &Path, out: &mut Output) -> Result<(), Failure> {
    let backups = open(&from.backups)?;
    let number = match from.number {
        Some(number) => number,
        None => newest(&backups, &from.backups)?,
    };
    let bar = bytes_bar();
    let summary = backups.restore(number, target, moved(&bar)).map_err(failed)?;
    bar.finish_and_clear();
    if out.is_json() {
        return out.object(&json!({
            "directory": target.display().to_string(), "backup": number, "sequence": summary.sequence,
            "files": summary.files, "bytes": summary.bytes,
        }));
    }
    out.line(format_args!(
        "{}: backup {number}, {} files, {}, up to sequence number {}",
        target.display(),
        units::count(summary.files),
        units::bytes(summary.bytes),
        summary.sequence
    ))
}

/// Restores to a moment after the backup, with the archive of the log.
fn restore_to(
    from: &BackupArgs,
    target: &Path,
    (archive, args): (&Path, &RestoreArgs),
    out: &mut Output,
) -> Result<(), Failure> {
    let backups = open(&from.backups)?;
    let request = RestoreOptions {
        until: args.until.unwrap_or_default(),
        backup: from.number,
        log: args.log.clone(),
        as_far_as_possible: args.as_far_as_possible,
        database: Options::default(),
    };
    let bar = bytes_bar();
    let summary = backups.restore_to(archive, target, &request, moved(&bar)).map_err(failed)?;
    bar.finish_and_clear();
    print_restored(target, &summary, out)?;
    match &summary.ended_by {
        Some(error) => Err(Failure::negative(format!("it ends there: {error}"))),
        None => Ok(()),
    }
}

fn print_restored(target: &Path, summary: &RestoreSummary, out: &mut Output) -> Result<(), Failure> {
    let times = times_of(std::iter::once(summary.time));
    let time = arrow_cast::display::array_value_to_string(&times, 0).map_err(print_failure)?;
    let ended_by = summary.ended_by.as_ref().map(ToString::to_string);
    if out.is_json() {
        return out.object(&json!({
            "directory": target.display().to_string(), "backup": summary.backup, "sequence": summary.sequence,
            "time": time, "segments": summary.segments, "batches": summary.batches, "ended_by": ended_by,
            "torn_tail": summary.torn_tail,
        }));
    }
    out.line(format_args!(
        "{}: backup {}, then {} batches of {} log segments, up to sequence number {}, of {time}",
        target.display(),
        summary.backup,
        units::count(summary.batches),
        units::count(summary.segments),
        summary.sequence
    ))?;
    match &summary.torn_tail {
        Some(torn) => out.line(format_args!("the log ends in a record that was never acknowledged: {torn}")),
        None => Ok(()),
    }
}

fn prune(backups: &Path, archive: &Path, out: &mut Output) -> Result<(), Failure> {
    let pruned = open(backups)?.prune_archive(archive).map_err(failed)?;
    if out.is_json() {
        return out.object(&json!({ "segments": pruned.segments, "bytes": pruned.bytes }));
    }
    let (segments, bytes) = (units::count(pruned.segments), units::bytes(pruned.bytes));
    out.line(format_args!("removed {segments} log segments, {bytes}"))
}

fn print_deleted(deleted: &DeletedBackups, out: &mut Output) -> Result<(), Failure> {
    if out.is_json() {
        return out.object(&json!({
            "backups": deleted.numbers, "files": deleted.files, "bytes": deleted.bytes,
        }));
    }
    let numbers: Vec<String> = deleted.numbers.iter().map(ToString::to_string).collect();
    let what = if numbers.is_empty() { "no backup".to_owned() } else { format!("backups {}", numbers.join(", ")) };
    let (files, bytes) = (units::count(deleted.files), units::bytes(deleted.bytes));
    out.line(format_args!("deleted {what}: {files} files, {bytes}"))
}
