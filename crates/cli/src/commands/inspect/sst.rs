//! One SST: properties, columns and blocks, or its first entries.

use std::path::Path;
use std::sync::Arc;

use mycelium::disk::{AccessPattern, Disk, LocalDisk};
use mycelium_base::{Cursor, FileKind, Group};
use mycelium_cache::BlockCache;
use mycelium_manifest::FileMeta;
use mycelium_sst::{CursorOptions, FOOTER_LEN, Footer, Index, RunCursor, SstFile, open_block};
use serde_json::json;

use super::{CACHE_BYTES, Files, RowText, columns, open_sst};
use crate::failure::Failure;
use crate::output::Output;
use crate::render::units;

/// Shows the file. The manifest beside it, if it names the file, gives the table's schema.
pub(super) fn show(path: &Path, entries: u64, out: &mut Output) -> Result<(), Failure> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some((FileKind::Sst, number)) = FileKind::parse(name) else {
        return Err(Failure::usage(format!("{} is not named like an SST", path.display()))
            .hint("its checksums are salted with the number in its name, 000012.sst"));
    };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (rows, meta) = owner(directory, number)?;
    let sequence_override = meta.as_ref().and_then(|meta| meta.sequence_override);
    let file = open_sst(path, number, &Arc::new(BlockCache::new(CACHE_BYTES)), sequence_override)?;
    if entries > 0 {
        // What the manifest says knows of columns that its table got later.
        let group = meta.and_then(|meta| meta.group.clone()).or_else(|| file.properties().group.clone());
        return show_entries(&file, (&rows, group.as_deref()), entries, out);
    }
    show_properties(&file, &rows, meta.is_some(), out)?;
    columns::show(&file, &rows, out)?;
    show_blocks(path, number, &rows, out)
}

/// The table that the file belongs to, as far as the manifest beside it says.
fn owner(directory: &Path, number: u64) -> Result<(RowText, Option<Arc<FileMeta>>), Failure> {
    if !crate::commands::is_database(directory)? {
        return Ok((RowText { typed: None }, None));
    }
    let files = Files::of(directory)?;
    for (id, table) in &files.state.tables {
        if let Some((_, _, meta)) = table.version.find(number) {
            return Ok((files.rows_of(*id)?, Some(meta.clone())));
        }
    }
    Ok((RowText { typed: None }, None))
}

fn show_properties(file: &SstFile, rows: &RowText, live: bool, out: &mut Output) -> Result<(), Failure> {
    let found = file.properties();
    let (smallest, largest) = (rows.key(&found.smallest), rows.key(&found.largest));
    if out.is_json() {
        return out.object(&json!({
            "file": file.number(),
            "bytes": file.size(),
            "in_manifest": live,
            "entries": found.entry_count,
            "distinct_keys": found.distinct_keys,
            "group": found.group.as_ref().map(|group| group.to_string()),
            "deletes": found.delete_count,
            "range_deletes": found.range_delete_count,
            "blocks": found.block_count,
            "raw_key_bytes": found.raw_key_bytes,
            "raw_value_bytes": found.raw_value_bytes,
            "min_sequence": found.min_sequence,
            "max_sequence": found.max_sequence,
            "smallest": smallest,
            "largest": largest,
            "largest_exclusive": found.largest_exclusive,
            "filter_bits_per_key": found.filter_bits_per_key,
            "filter_prefixes": found.prefixes.map(|prefixes| prefixes.to_string()),
            "block_size": found.block_size,
            "restart_interval": found.restart_interval,
            "compression": found.compression,
            "summary_bytes": file.summary_bytes(),
        }));
    }
    let raw = found.raw_key_bytes + found.raw_value_bytes;
    out.line(format_args!("{}  {}", file.path().display(), units::bytes(file.size())))?;
    if !live {
        out.line("not named by a manifest beside it")?;
    }
    out.line(format_args!(
        "{} entries ({} deletes), {} range deletes, {} blocks of {}",
        units::count(found.entry_count),
        units::count(found.delete_count),
        units::count(found.range_delete_count),
        units::count(found.block_count),
        units::bytes(found.block_size)
    ))?;
    if found.distinct_keys {
        out.line("one entry of each key")?;
    }
    out.line(format_args!(
        "{} of keys and {} of values: {:.2} times the file",
        units::bytes(found.raw_key_bytes),
        units::bytes(found.raw_value_bytes),
        raw as f64 / file.size().max(1) as f64
    ))?;
    out.line(format_args!(
        "compression {}, {} filter bits a key, restart every {} entries",
        found.compression, found.filter_bits_per_key, found.restart_interval
    ))?;
    if let Some(prefixes) = &found.prefixes {
        out.line(format_args!("filter of prefixes of keys: {prefixes}"))?;
    }
    if file.has_summaries() {
        out.line(format_args!("{} of summaries, for views", units::bytes(file.summary_bytes())))?;
    }
    if let Some(group) = &found.group {
        out.line(format_args!("column group {group}"))?;
    }
    let end = if found.largest_exclusive { ")" } else { "]" };
    out.line(format_args!("sequence {} to {}", found.min_sequence, found.max_sequence))?;
    out.line(format_args!("keys [{smallest} .. {largest}{end}"))
}

/// The data blocks, from the index.
fn show_blocks(path: &Path, number: u64, rows: &RowText, out: &mut Output) -> Result<(), Failure> {
    let file = LocalDisk.open(path, AccessPattern::Random)?;
    let footer_at = file.len().saturating_sub(FOOTER_LEN as u64);
    let mut footer = [0; FOOTER_LEN];
    file.read_at(footer_at, &mut footer)?;
    let footer = Footer::parse(&footer, number, footer_at).map_err(|error| error.in_file(path))?;
    // The file was opened before, which checked that its parts lie within it.
    let mut framed = vec![0; usize::try_from(footer.index.len.min(file.len())).unwrap_or(0)];
    file.read_at(footer.index.offset, &mut framed)?;
    let (payload, _) = open_block(&framed, number, footer.index.offset).map_err(|error| error.in_file(path))?;
    let index = Index::parse(payload, footer.data_end()).map_err(|error| error.in_file(path))?;
    for block in 0..index.block_count() {
        let entry = index.entry(block);
        let separator = rows.key(&index.separator(block));
        if out.is_json() {
            out.object(&json!({
                "block": block,
                "offset": entry.offset,
                "bytes": entry.len,
                "entries": entry.entry_count,
                "min_sequence": entry.min_sequence,
                "max_sequence": entry.max_sequence,
                "up_to": separator,
            }))?;
        } else {
            out.line(format_args!(
                "block {block:>5}  at {:>9}  {:>6} bytes  {:>4} entries  sequence {} to {}  up to {separator}",
                entry.offset, entry.len, entry.entry_count, entry.min_sequence, entry.max_sequence
            ))?;
        }
    }
    Ok(())
}

fn show_entries(
    file: &Arc<SstFile>,
    (rows, group): (&RowText, Option<&Group>),
    entries: u64,
    out: &mut Output,
) -> Result<(), Failure> {
    let options = CursorOptions { read_ahead: 64 << 10, ..CursorOptions::default() };
    let mut cursor = RunCursor::new([file.clone()], options);
    cursor.seek_to_first()?;
    for _ in 0..entries {
        if !cursor.valid() {
            break;
        }
        let (key, trailer) = (rows.key(cursor.key()), cursor.trailer());
        let value = rows.value(trailer.operation(), cursor.value(), group)?;
        if out.is_json() {
            out.object(&json!({
                "key": key, "sequence": trailer.sequence(), "operation": trailer.operation().name(), "value": value,
            }))?;
        } else {
            out.line(format_args!("{key}  {} {}  {value}", trailer.operation().name(), trailer.sequence()))?;
        }
        cursor.next()?;
    }
    Ok(())
}
