//! The commands, one module each, and what they share: opening a database, and keys as text.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};
use mycelium::rows::{encode_key, encode_key_prefix, prefix_successor};
use mycelium::transform::{LinkOptions, Registry, TransformerSet};
use mycelium::{
    ArchiveOptions, Buffering, Compression, Database, Datum, DatumRef, Durability, ErrorKind, GroupFormat, Layout,
    LeveledOptions, Options, Policy, ReadCounters, RowFormatDefinition, RowFormatKind, Schema, Table, TableOptions,
    TieredOptions,
};
use mycelium_base::FileKind;
use serde_json::{Value, json};

use crate::args::{BufferArg, CompressionArg, DurabilityArg, PolicyArg, RangeArgs, TableOptionArgs};
use crate::failure::{Failure, FailureKind};
use crate::output::unescape_bytes;
use crate::render::units;

pub(crate) mod advise;
pub(crate) mod backup;
pub(crate) mod bench;
pub(crate) mod checkpoint;
pub(crate) mod column;
pub(crate) mod compact;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod drop;
pub(crate) mod expire;
pub(crate) mod get;
pub(crate) mod index;
pub(crate) mod inspect;
pub(crate) mod layout;
pub(crate) mod load;
pub(crate) mod put;
pub(crate) mod salvage;
pub(crate) mod scan;
pub(crate) mod sql;
pub(crate) mod tables;
pub(crate) mod verify;
pub(crate) mod view;

/// Opens a database to read it: nothing is written and no lock is taken, so another process may have it open.
pub(crate) fn open_to_read(directory: &Path) -> Result<Database, Failure> {
    let options = Options { read_only: true, create_if_missing: false, ..Options::default() };
    Database::open(directory, options).map_err(|error| missing(directory, error))
}

/// Opens a database to write to it; `create` makes one where there is none.
pub(crate) fn open_to_write(directory: &Path, create: bool) -> Result<Database, Failure> {
    let options = Options { create_if_missing: create, ..Options::default() };
    Database::open(directory, options).map_err(|error| missing(directory, error))
}

/// Opens a database to write to it, and its log to this archive.
pub(crate) fn open_archived(directory: &Path, archive: &Path) -> Result<Database, Failure> {
    let archive = Some(ArchiveOptions::new(archive));
    let options = Options { create_if_missing: false, archive, ..Options::default() };
    Database::open(directory, options).map_err(|error| missing(directory, error))
}

/// Whether the directory holds a database.
pub(crate) fn is_database(directory: &Path) -> Result<bool, Failure> {
    Ok(!is_other_file(directory) && Options::default().disk.exists(&directory.join("CURRENT"))?)
}

fn is_other_file(path: &Path) -> bool {
    path.exists() && !path.is_dir()
}

/// What there is where no database is.
pub(crate) fn no_database(directory: &Path) -> Failure {
    let shown = directory.display();
    if is_other_file(directory) {
        return Failure::negative(format!("{shown} is not a database: it is a file"))
            .hint("a database is a directory; give its path");
    }
    let names = Options::default().disk.list(directory).unwrap_or_default();
    if names.iter().any(|name| matches!(FileKind::parse(name), Some((FileKind::Sst | FileKind::Wal, _)))) {
        return Failure::new(
            FailureKind::Corruption,
            format!("files of a database are in {shown}, but CURRENT is missing"),
        )
        .hint("`mycelium salvage` saves what can be read, if the manifest is there; or restore a backup");
    }
    Failure::negative(format!("there is no database in {shown}")).hint("`mycelium create` and `mycelium load` make one")
}

fn missing(directory: &Path, error: mycelium::Error) -> Failure {
    if is_other_file(directory) {
        return no_database(directory);
    }
    if error.kind() != ErrorKind::NotFound {
        return error.into();
    }
    match is_database(directory) {
        Ok(true) => Failure::new(FailureKind::Corruption, error.to_string())
            .hint("a file that the database needs is not there; `mycelium verify` lists all that is wrong"),
        _ => no_database(directory),
    }
}

/// The table, or a failure that names the tables there are.
pub(crate) fn table(database: &Database, name: &str) -> Result<Table, Failure> {
    database.table(name).map_err(|error| {
        let names = database.table_names();
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Failure::from(error).hint(format!("tables: {known}"))
    })
}

/// What a table takes, its indexes apart.
pub(crate) struct Held {
    pub(crate) files: usize,
    pub(crate) bytes: u64,
    /// Entries that lie in no file yet.
    pub(crate) in_log: u64,
}

/// What the table of this name takes.
pub(crate) fn held(database: &Database, name: &str) -> Held {
    let metrics = database.metrics();
    let found = metrics.tables.iter().find(|metrics| metrics.name == name);
    let levels = || found.iter().flat_map(|found| &found.levels);
    Held {
        files: levels().map(|level| level.files).sum(),
        bytes: levels().map(|level| level.bytes).sum(),
        in_log: found.map_or(0, |found| found.memtable_entries),
    }
}

impl std::fmt::Display for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (bytes, in_log) = (units::bytes(self.bytes), units::count(self.in_log));
        write!(f, "{} files, {bytes}, {in_log} entries in the log", self.files)
    }
}

/// A bar of bytes that are read or copied.
pub(crate) fn bytes_bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    match ProgressStyle::with_template("{bar:40} {bytes} of {total_bytes}  {bytes_per_sec}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// The engine's word for a durability.
pub(crate) fn durability(arg: DurabilityArg) -> Durability {
    match arg {
        DurabilityArg::Buffered => Durability::Buffered,
        DurabilityArg::Os => Durability::Os,
        DurabilityArg::Sync => Durability::Sync,
    }
}

/// The options of a new table; warnings go to standard error.
pub(crate) fn table_options(args: &TableOptionArgs, schema: Option<&Schema>) -> Result<TableOptions, Failure> {
    let shaped = args.row_format != RowFormatKind::Packed
        || args.layout.is_some()
        || args.layout_auto
        || !args.group_format.is_empty()
        || !args.transform.is_empty();
    let row_format = RowFormatDefinition {
        kind: args.row_format,
        definition: args.definition.as_ref().map(read_file).transpose()?.unwrap_or_default(),
        root: args.message.clone().unwrap_or_default(),
    };
    let of_groups = args.group_format.iter().map(|of| {
        let definition = read_file(&of.definition)?;
        Ok(RowFormatDefinition { kind: of.kind, definition, root: of.message.clone() })
    });
    let group_formats = of_groups.collect::<Result<Vec<_>, Failure>>()?;
    let formats = TableOptions { row_format, group_formats, ..TableOptions::default() };
    let layout = match schema {
        Some(schema) => layout_option(args, schema, &formats)?,
        None if shaped => {
            return Err(Failure::usage("layouts and row formats are for typed tables").hint("give --schema"));
        }
        None => None,
    };
    Ok(TableOptions {
        layout,
        transformers: augments(args)?,
        layout_auto: args.layout_auto,
        policy: match args.policy {
            PolicyArg::Leveled => Policy::Leveled(LeveledOptions::default()),
            PolicyArg::Tiered => Policy::Tiered(TieredOptions::default()),
            PolicyArg::TwoPhase => Policy::TwoPhase(LeveledOptions::default()),
        },
        buffer: match args.buffer {
            BufferArg::Off => Buffering::Off,
            BufferArg::Rows => Buffering::Rows,
            BufferArg::Full => Buffering::Full,
        },
        compression: vec![match args.compression {
            CompressionArg::None => Compression::None,
            CompressionArg::Lz4 => Compression::Lz4,
            CompressionArg::Zstd => Compression::Zstd(3),
        }],
        block_size: args.block_size.first().copied().unwrap_or_default(),
        deeper_block_sizes: args.block_size.iter().skip(1).copied().collect(),
        filter_bits: vec![args.filter_bits],
        prefix_filter: args.prefix_filter,
        ..formats
    })
}

/// The layout that is given, or that the transformers given link to; `options` have the row formats.
fn layout_option(args: &TableOptionArgs, schema: &Schema, options: &TableOptions) -> Result<Option<Layout>, Failure> {
    if let Some(text) = &args.layout {
        return layout(text, schema).map(Some);
    }
    if args.transform.is_empty() {
        return Ok(None);
    }
    let formats = Arc::new(options.formats(Arc::new(schema.clone()))?);
    let set = TransformerSet::parse(&args.transform.join("\n"))?;
    let source = GroupFormat::Row(options.row_format.kind);
    let linked = Registry::built_in().link(&set, &formats, source, &LinkOptions::default())?;
    for warning in linked.warnings() {
        eprintln!("warning: {warning}");
    }
    Ok(Some(linked.layout().clone()))
}

/// Those of the transformers that a layout does not say: the indexes.
fn augments(args: &TableOptionArgs) -> Result<Option<TransformerSet>, Failure> {
    let set = TransformerSet::parse(&args.transform.join("\n"))?;
    let augments: TransformerSet = set.iter().filter(|it| it.is_augment()).cloned().collect();
    Ok((!augments.is_empty()).then_some(augments))
}

/// A layout given as text or as @FILE.
pub(crate) fn layout(text: &str, schema: &Schema) -> Result<Layout, Failure> {
    let text = match text.strip_prefix('@') {
        Some(file) => String::from_utf8(read_file(&file.into())?)
            .map_err(|_| Failure::usage(format!("{file} is not UTF-8 text")))?,
        None => text.to_owned(),
    };
    Ok(Layout::parse(&text, &schema.value_columns())?)
}

fn read_file(path: &PathBuf) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))
}

/// A value of a column: `null`, `"null"` for the text, else as the column's type reads.
pub(crate) fn value(schema: &Schema, column: usize, text: &str) -> Result<Datum, Failure> {
    let definition = &schema.columns()[column];
    let read = |text| Datum::parse(text, &definition.ty);
    let value = match text {
        "null" => Ok(Datum::Null),
        "\"null\"" => read("null"),
        _ => read(text),
    };
    value.map_err(|error| Failure::usage(format!("column {}: {error}", definition.name)))
}

/// Values of the first key columns.
fn key_values<T: AsRef<str>>(schema: &Schema, texts: &[T]) -> Result<Vec<Datum>, Failure> {
    let key = schema.primary_key();
    if texts.len() > key.len() {
        return Err(key_length(schema, texts.len()));
    }
    texts.iter().zip(key).map(|(text, &column)| value(schema, column, text.as_ref())).collect()
}

fn key_length(schema: &Schema, given: usize) -> Failure {
    let names: Vec<_> = schema.primary_key().iter().map(|&column| schema.columns()[column].name.as_str()).collect();
    Failure::usage(format!("the key has {} columns, and {given} values were given", names.len()))
        .hint(format!("the key is ({})", names.join(", ")))
}

pub(crate) fn borrowed(values: &[Datum]) -> Vec<DatumRef<'_>> {
    values.iter().map(Datum::borrowed).collect()
}

/// The bytes of a whole key: one value per key column, or one text of bytes.
pub(crate) fn key(schema: Option<&Schema>, texts: &[String]) -> Result<Vec<u8>, Failure> {
    let Some(schema) = schema else {
        return match texts {
            [text] => unescape_bytes(text),
            _ => Err(Failure::usage("keys of this table are bytes: give one")),
        };
    };
    if texts.len() != schema.primary_key().len() {
        return Err(key_length(schema, texts.len()));
    }
    let mut out = Vec::new();
    encode_key(schema, &borrowed(&key_values(schema, texts)?), &mut out)?;
    Ok(out)
}

/// The bytes that all keys with these first values begin with. Values are separated as in CSV.
fn key_prefix(schema: Option<&Schema>, text: &str) -> Result<Vec<u8>, Failure> {
    let Some(schema) = schema else { return unescape_bytes(text) };
    let mut out = Vec::new();
    encode_key_prefix(schema, &borrowed(&key_values(schema, &separated(text)?)?), &mut out)?;
    Ok(out)
}

/// Texts separated as in CSV: one record, and no line break that it would end at. A `null` in quotes keeps them, as
/// [`value`] takes it.
fn separated(text: &str) -> Result<Vec<String>, Failure> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
    let records = reader.records().collect::<Result<Vec<_>, _>>();
    let records = records.map_err(|error| Failure::usage(error.to_string()))?;
    let ends = ['\n', '\r'];
    if records.len() > 1 || text.starts_with(ends) || text.ends_with(ends) {
        return Err(Failure::usage(format!("{text:?} has a line break, which ends the values of a key"))
            .hint("a value with a line break stands in double quotes"));
    }
    let fields = records.iter().flatten().zip(are_quoted(text));
    Ok(fields.map(|(field, quoted)| if quoted && field == "null" { "\"null\"".into() } else { field.into() }).collect())
}

/// Of each text of a record whether it begins with a quote.
fn are_quoted(record: &str) -> Vec<bool> {
    let (mut quoted, mut is_start, mut is_inside) = (Vec::new(), true, false);
    for character in record.chars() {
        if is_start {
            is_inside = character == '"';
            quoted.push(is_inside);
        } else if character == '"' && quoted.last() == Some(&true) {
            is_inside = !is_inside;
        }
        is_start = character == ',' && !is_inside;
    }
    if is_start {
        quoted.push(false);
    }
    quoted
}

/// A key interval `[from, to)`; `None` is unbounded.
pub(crate) struct Interval {
    pub(crate) from: Option<Vec<u8>>,
    pub(crate) to: Option<Vec<u8>>,
}

/// The keys that the arguments select.
pub(crate) fn interval(schema: Option<&Schema>, range: &RangeArgs) -> Result<Interval, Failure> {
    let encode = |text: &Option<String>| text.as_deref().map(|text| key_prefix(schema, text)).transpose();
    if let Some(prefix) = encode(&range.prefix)? {
        let to = prefix_successor(&prefix);
        return Ok(Interval { from: Some(prefix), to });
    }
    Ok(Interval { from: encode(&range.from)?, to: encode(&range.to)? })
}

/// Positions of the named columns; all where none is named.
pub(crate) fn projection(schema: &Schema, names: &[String]) -> Result<Vec<usize>, Failure> {
    if names.is_empty() {
        return Ok(schema.live_columns().map(|(position, _)| position).collect());
    }
    names.iter().map(|name| column(schema, name)).collect()
}

/// The position of a column.
pub(crate) fn column(schema: &Schema, name: &str) -> Result<usize, Failure> {
    schema.index_of(name).ok_or_else(|| {
        let names: Vec<_> = schema.live_columns().map(|(_, column)| column.name.as_str()).collect();
        Failure::usage(format!("there is no column {name:?}")).hint(format!("columns: {}", names.join(", ")))
    })
}

/// Read counters, by name.
pub(crate) fn counters(counters: &ReadCounters) -> Value {
    json!({
        "memtables_searched": counters.memtables_searched,
        "memtables_skipped_by_snapshot": counters.memtables_skipped_by_snapshot,
        "files_considered": counters.files_considered,
        "files_skipped_by_fence": counters.files_skipped_by_fence,
        "files_skipped_by_snapshot": counters.files_skipped_by_snapshot,
        "files_skipped_by_bloom": counters.files_skipped_by_bloom,
        "files_skipped_by_prefix": counters.files_skipped_by_prefix,
        "files_searched": counters.files_searched,
        "parts_read_from_buffer": counters.parts_read_from_buffer,
        "segments_considered": counters.segments_considered,
        "blocks_skipped_by_snapshot": counters.blocks_skipped_by_snapshot,
        "block_cache_hits": counters.block_cache_hits,
        "blocks_read": counters.blocks_read,
        "bytes_read": counters.bytes_read,
    })
}

/// Prints read counters: one JSON object, or one line.
pub(crate) fn print_counters(found: &ReadCounters, out: &mut crate::output::Output) -> Result<(), Failure> {
    let found = counters(found);
    if out.is_json() {
        return out.object(&json!({ "counters": found }));
    }
    let nonzero = found.as_object().into_iter().flatten().filter(|(_, count)| **count != 0);
    let parts: Vec<_> = nonzero.map(|(name, count)| format!("{} {count}", name.replace('_', " "))).collect();
    out.line(parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        Schema::parse("id int64 not null, name utf8 not null, score float64, primary key (id, name)").expect("valid")
    }

    #[test]
    fn keys_are_read_by_the_schema() {
        let schema = schema();
        let whole = key(Some(&schema), &["-2".into(), "a,b".into()]).expect("valid");
        let range = RangeArgs { from: None, to: None, prefix: Some("-2,\"a,b\"".into()) };
        assert_eq!(interval(Some(&schema), &range).expect("valid").from, Some(whole));
        assert_eq!(key(None, &["a\\x00".into()]).expect("valid"), b"a\0");
        let wrong = key(Some(&schema), &["1".into()]).expect_err("too short").to_string();
        assert!(wrong.contains("2 columns") && wrong.contains("(id, name)"), "{wrong}");
        assert!(key(Some(&schema), &["x".into(), "a".into()]).is_err());
    }

    #[test]
    fn null_and_the_text_null_are_told_apart() {
        let schema = schema();
        assert_eq!(value(&schema, 1, "null").expect("valid"), Datum::Null);
        assert_eq!(value(&schema, 1, "\"null\"").expect("valid").borrowed(), DatumRef::Utf8("null"));
        for (text, values) in [
            ("null,\"null\",", ["null", "\"null\"", ""]),
            ("\"null\",\"a,\"\"null\",null", ["\"null\"", "a,\"null", "null"]),
            (",null,\"\"", ["", "null", ""]),
        ] {
            assert_eq!(separated(text).expect("valid"), values, "{text}");
        }
        assert_eq!(value(&schema, 2, "1.5").expect("valid").borrowed(), DatumRef::Float64(1.5));
        assert!(column(&schema, "nme").expect_err("unknown").to_string().contains("columns: id, name, score"));
    }
}
