//! Every entry of one key, newest first, and where each lies: in the log, or in which file of which run.

use mycelium::disk::LocalDisk;
use mycelium::read_log_record;
use mycelium_base::{Cursor, FileKind, MAX_SEQUENCE_NUMBER, Operation, SequenceNumber, TableId, Trailer};
use mycelium_manifest::FileMeta;
use mycelium_sst::{CursorOptions, RunCursor};
use mycelium_wal::SegmentReader;
use serde_json::json;

use super::{Files, RowText};
use crate::commands::key;
use crate::failure::Failure;
use crate::output::Output;

/// One entry that bears on the key.
struct Found {
    sequence: SequenceNumber,
    operation: Operation,
    place: String,
    value: String,
}

/// Lists the entries of the key and the range deletes that cover it.
pub(super) fn show(files: &Files, table: &str, key_texts: &[String], out: &mut Output) -> Result<(), Failure> {
    let table = files.table(table)?;
    let rows = RowText::of(&table.record)?;
    let key = key(rows.schema(), key_texts)?;
    let mut found = Vec::new();
    for (level, run, meta) in table.version.files() {
        if meta.contains(&key) {
            in_file(files, &rows, meta, (level, run), &key, &mut found)?;
        }
    }
    in_log(files, &rows, table.record.id, &key, &mut found)?;
    found.sort_by_key(|entry| std::cmp::Reverse(entry.sequence));
    for Found { sequence, operation, place, value } in &found {
        let operation = operation.name();
        if out.is_json() {
            out.object(&json!({ "sequence": sequence, "operation": operation, "place": place, "value": value }))?;
        } else {
            out.line(format_args!("{sequence:>10}  {operation:<12}  {place:<28}  {value}"))?;
        }
    }
    if found.is_empty() { Err(Failure::negative("no file and no log record holds this key")) } else { Ok(()) }
}

fn in_file(
    files: &Files,
    rows: &RowText,
    meta: &FileMeta,
    (level, run): (usize, usize),
    key: &[u8],
    found: &mut Vec<Found>,
) -> Result<(), Failure> {
    let file = files.open(meta)?;
    let place = format!("L{level} run {run} {}", FileKind::Sst.name(meta.number));
    let mut cursor = RunCursor::new([file.clone()], CursorOptions::default());
    cursor.seek(key, Trailer::seek_at(MAX_SEQUENCE_NUMBER))?;
    while cursor.valid() && cursor.key() == key {
        let trailer = cursor.trailer();
        found.push(Found {
            sequence: trailer.sequence(),
            operation: trailer.operation(),
            place: place.clone(),
            value: rows.value(trailer.operation(), cursor.value(), meta.group.as_deref())?,
        });
        cursor.next()?;
    }
    for fragment in file.range_deletes().fragments() {
        let (start, end) = (fragment.start(), fragment.end());
        if start <= key && key < end {
            found.extend(fragment.sequences().into_iter().map(|sequence| Found {
                sequence,
                operation: Operation::RangeDelete,
                place: place.clone(),
                value: format!("from {} up to {}", rows.key(start), rows.key(end)),
            }));
        }
    }
    Ok(())
}

fn in_log(files: &Files, rows: &RowText, id: TableId, key: &[u8], found: &mut Vec<Found>) -> Result<(), Failure> {
    for number in files.segments()? {
        let path = files.directory.join(FileKind::Wal.name(number));
        let mut reader = SegmentReader::open(&LocalDisk, &path, Some(number))?;
        while let Some(record) = reader.next()? {
            let mut matches = Vec::new();
            read_log_record(record.payload, |table, entry| {
                let operation = entry.trailer.operation();
                let covers = operation == Operation::RangeDelete && entry.key <= key && key < entry.value;
                if table == id && (entry.key == key || covers) {
                    matches.push((entry.trailer, entry.value.to_vec()));
                }
                Ok(())
            })
            .map_err(|error| error.in_file(&path).at(record.offset))?;
            for (trailer, value) in matches {
                found.push(Found {
                    sequence: trailer.sequence(),
                    operation: trailer.operation(),
                    place: format!("log {} at {}", FileKind::Wal.name(number), record.offset),
                    value: rows.value(trailer.operation(), &value, None)?,
                });
            }
        }
    }
    Ok(())
}
