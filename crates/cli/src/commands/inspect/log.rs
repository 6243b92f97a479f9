//! The records of the write-ahead log.

use std::collections::BTreeMap;
use std::path::Path;

use mycelium::disk::LocalDisk;
use mycelium::read_log_record;
use mycelium_base::{FileKind, FileNumber};
use mycelium_wal::SegmentReader;
use serde_json::json;

use super::{Files, segments_in};
use crate::failure::Failure;
use crate::output::Output;

/// Lists the records of all segments of a directory, or of one segment.
pub(super) fn show(path: &Path, limit: u64, out: &mut Output) -> Result<(), Failure> {
    let mut left = limit;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if let Some((FileKind::Wal, number)) = FileKind::parse(name) {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        return show_segment(path, number, &names(directory)?, &mut left, out);
    }
    let names = names(path)?;
    let mut segments = segments_in(path)?;
    segments.sort_unstable();
    for number in segments {
        if left == 0 {
            break;
        }
        show_segment(&path.join(FileKind::Wal.name(number)), number, &names, &mut left, out)?;
    }
    Ok(())
}

/// The tables' names, where a manifest tells them.
fn names(directory: &Path) -> Result<Option<Files>, Failure> {
    if crate::commands::is_database(directory)? { Files::of(directory).map(Some) } else { Ok(None) }
}

fn show_segment(
    path: &Path,
    number: FileNumber,
    files: &Option<Files>,
    left: &mut u64,
    out: &mut Output,
) -> Result<(), Failure> {
    let mut reader = SegmentReader::open(&LocalDisk, path, Some(number))?;
    let needed = files.as_ref().is_none_or(|files| number >= files.state.oldest_wal);
    if !out.is_json() {
        let follows = reader.header().previous.map_or_else(
            || "the first".to_owned(),
            |(previous, length)| format!("follows {previous:06}.wal of {length} bytes"),
        );
        let state = if needed { "" } else { ", no longer needed" };
        out.line(format_args!("{number:06}.wal  {follows}{state}"))?;
    }
    while *left > 0 {
        let Some(record) = reader.next()? else { break };
        *left -= 1;
        let mut operations = BTreeMap::<String, u64>::new();
        let (first, count) = read_log_record(record.payload, |table, entry| {
            let table = files.as_ref().map_or_else(|| table.to_string(), |files| files.name_of(table));
            *operations.entry(format!("{} {table}", entry.trailer.operation().name())).or_default() += 1;
            Ok(())
        })
        .map_err(|error| error.in_file(path).at(record.offset))?;
        if out.is_json() {
            out.object(&json!({
                "segment": number, "offset": record.offset, "bytes": record.payload.len(), "first_sequence": first,
                "operations": count, "by_kind": operations,
            }))?;
        } else {
            let parts: Vec<_> = operations.iter().map(|(kind, count)| format!("{count} x {kind}")).collect();
            out.line(format_args!(
                "  at {:>9}  {:>7} bytes  sequence {first}+{count}  {}",
                record.offset,
                record.payload.len(),
                parts.join(", ")
            ))?;
        }
    }
    match reader.tear() {
        Some(tear) if out.is_json() => {
            out.object(&json!({ "segment": number, "torn_at": tear.offset, "reason": tear.reason }))
        }
        Some(tear) => out.line(format_args!("  torn at {}: {}", tear.offset, tear.reason)),
        None => Ok(()),
    }
}
