//! The files of one run.

use serde_json::json;

use super::{Files, RowText};
use crate::failure::Failure;
use crate::output::Output;
use crate::render::units;

/// Lists the files, in key order.
pub(super) fn show(files: &Files, table: &str, level: usize, run: usize, out: &mut Output) -> Result<(), Failure> {
    let table = files.table(table)?;
    let rows = RowText::of(&table.record)?;
    let runs = &table.version.level(level).runs;
    let Some(run) = runs.get(run) else {
        return Err(Failure::negative(format!("level {level} has {} runs", runs.len()))
            .hint("runs are counted from 0, the newest; `mycelium inspect levels` shows how many there are"));
    };
    for file in &run.files {
        let (smallest, largest) = (rows.key(&file.smallest), rows.key(&file.largest));
        if out.is_json() {
            out.object(&json!({
                "file": file.number,
                "bytes": file.size,
                "entries": file.entry_count,
                "deletes": file.delete_count,
                "range_deletes": file.range_delete_count,
                "min_sequence": file.min_sequence,
                "max_sequence": file.max_sequence,
                "ingested_as": file.sequence_override,
                "smallest": smallest,
                "largest": largest,
                "largest_exclusive": file.largest_exclusive,
                "checksum": format!("{:016x}", file.checksum),
            }))?;
        } else {
            let end = if file.largest_exclusive { ")" } else { "]" };
            out.line(format_args!(
                "{:06}.sst  {:>9}  {:>9} entries  sequence {} to {}  [{smallest} .. {largest}{end}",
                file.number,
                units::bytes(file.size),
                units::count(file.entry_count),
                file.min_sequence,
                file.max_sequence
            ))?;
        }
    }
    Ok(())
}
