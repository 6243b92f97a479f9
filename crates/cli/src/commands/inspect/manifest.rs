//! The edits of the live manifest, and the state they add up to.

use mycelium::disk::LocalDisk;
use mycelium::{Expiry, TableDefinition};
use mycelium_manifest::{Manifest, TableState, VersionEdit, read_edits};
use serde_json::{Value, json};

use super::Files;
use crate::commands::expire;
use crate::failure::Failure;
use crate::output::Output;

/// Lists the edits, then the state.
pub(super) fn show(files: &Files, out: &mut Output) -> Result<(), Failure> {
    let path = Manifest::live_path(&LocalDisk, &files.directory)?;
    if !out.is_json() {
        out.line(path.display())?;
    }
    let mut failure = None;
    read_edits(&LocalDisk, &path, &mut |offset, edit| {
        // The first failure to print ends the printing; the reading goes on to its end, which is near.
        if failure.is_none() {
            failure = show_edit(files, offset, &edit, out).err();
        }
        Ok(())
    })?;
    match failure {
        Some(failure) => Err(failure),
        None => show_state(files, out),
    }
}

fn show_edit(files: &Files, offset: u64, edit: &VersionEdit, out: &mut Output) -> Result<(), Failure> {
    let created: Vec<&str> = edit.created_tables.iter().map(|table| table.name.as_str()).collect();
    let changed: Vec<&str> = edit.changed_tables.iter().map(|table| table.name.as_str()).collect();
    let replaced: Vec<&str> = edit.replaced_tables.iter().map(|table| table.record.name.as_str()).collect();
    let dropped: Vec<String> = edit.dropped_tables.iter().map(|&id| files.name_of(id)).collect();
    if out.is_json() {
        let added = edit.added_files.iter().map(|added| {
            json!({
                "table": files.name_of(added.table), "level": added.level, "file": added.file.number,
                "bytes": added.file.size, "entries": added.file.entry_count,
            })
        });
        let removed = edit.removed_files.iter().map(
            |removed| json!({ "table": files.name_of(removed.table), "level": removed.level, "file": removed.number }),
        );
        return out.object(&json!({
            "offset": offset, "created_tables": created, "changed_tables": changed, "dropped_tables": dropped,
            "replaced_tables": replaced,
            "added_files": added.collect::<Vec<Value>>(), "removed_files": removed.collect::<Vec<Value>>(),
            "next_file_number": edit.next_file_number, "last_sequence": edit.last_sequence,
            "oldest_wal": edit.oldest_wal,
        }));
    }
    let mut parts: Vec<String> = Vec::new();
    parts.extend(created.iter().map(|name| format!("create {name}")));
    parts.extend(changed.iter().map(|name| format!("change {name}")));
    parts.extend(replaced.iter().map(|name| format!("replace {name}")));
    parts.extend(dropped.iter().map(|name| format!("drop {name}")));
    parts.extend(edit.removed_files.iter().map(|removed| format!("-L{}:{:06}", removed.level, removed.number)));
    parts.extend(edit.added_files.iter().map(|added| format!("+L{}:{:06}", added.level, added.file.number)));
    parts.extend(edit.oldest_wal.map(|number| format!("log from {number:06}")));
    parts.extend(edit.last_sequence.map(|sequence| format!("sequence {sequence}")));
    out.line(format_args!("  at {offset:>7}  {}", parts.join("  ")))
}

fn show_state(files: &Files, out: &mut Output) -> Result<(), Failure> {
    let state = &files.state;
    if out.is_json() {
        let table = |table: &TableState| -> Result<Value, Failure> {
            Ok(json!({
                "id": table.record.id.0, "name": table.record.name, "layout": table.record.layout,
                "files": table.version.file_count(), "bytes": table.version.total_bytes(),
                "expiry": expire::as_json(expiry(table)?.as_ref()),
            }))
        };
        let tables = state.tables.values().map(table).collect::<Result<Vec<Value>, Failure>>()?;
        return out.object(&json!({
            "state": {
                "format_version": state.format_version, "edits": state.edit_count,
                "next_file_number": state.next_file_number, "last_sequence": state.last_sequence,
                "oldest_wal": state.oldest_wal, "identity": format!("{:016x}", state.identity),
                "tables": tables,
            }
        }));
    }
    out.line(format_args!(
        "after {} edits: format {}, next file {:06}, last sequence {}, log from {:06}, identity {:016x}",
        state.edit_count,
        state.format_version,
        state.next_file_number,
        state.last_sequence,
        state.oldest_wal,
        state.identity
    ))?;
    for table in state.tables.values() {
        let (id, name, layout) = (table.record.id, &table.record.name, &table.record.layout);
        let files = table.version.file_count();
        let expiry =
            expiry(table)?.map_or_else(String::new, |expiry| format!(", {}", expire::described(Some(&expiry))));
        out.line(format_args!("table {id} {name}, layout {layout}, {files} files{expiry}"))?;
    }
    Ok(())
}

/// When rows of a table expire.
fn expiry(table: &TableState) -> Result<Option<Expiry>, Failure> {
    Ok(TableDefinition::decode(&table.record.definition)?.options.expiry)
}
