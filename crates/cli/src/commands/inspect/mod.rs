//! `mycelium inspect`: the inside of a database that need not be open, file by file. Nothing is written and no lock is
//! taken.
//!
//! [`Files`] reads the manifest and opens single files; each submodule shows one thing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mycelium::disk::{AccessPattern, Disk, LocalDisk};
use mycelium::rows::{ColumnState, RowScratch, key_text};
use mycelium::transform::Formats;
use mycelium::{Group, GroupFormat, RowFormatKind};
use mycelium::{TableDefinition, TableId};
use mycelium_base::{FileKind, FileNumber, Operation};
use mycelium_cache::BlockCache;
use mycelium_manifest::{FileMeta, Manifest, ManifestState, TableRecord};
use mycelium_sst::{OpenOptions, SstFile};

use crate::args::InspectCommand;
use crate::failure::Failure;
use crate::output::{Output, escape_bytes};

mod columns;
mod history;
mod levels;
mod log;
mod manifest;
mod run;
mod sst;

/// The cache of files opened here: each is read once.
const CACHE_BYTES: u64 = 16 << 20;

/// Shows what is asked for.
pub(crate) fn run(command: &InspectCommand, out: &mut Output) -> Result<(), Failure> {
    match command {
        InspectCommand::Levels { database, table } => levels::show(&Files::of(database)?, table.as_deref(), out),
        InspectCommand::Run { at, level, run } => run::show(&Files::of(&at.database)?, &at.table, *level, *run, out),
        InspectCommand::Sst { file, entries } => sst::show(file, *entries, out),
        InspectCommand::Wal { path, limit } => log::show(path, *limit, out),
        InspectCommand::Manifest(args) => manifest::show(&Files::of(&args.database)?, out),
        InspectCommand::Key { at, key } => history::show(&Files::of(&at.database)?, &at.table, key, out),
    }
}

/// The files of a database, as its manifest names them.
struct Files {
    directory: PathBuf,
    state: ManifestState,
    cache: Arc<BlockCache>,
}

impl Files {
    /// Reads the manifest.
    fn of(directory: &Path) -> Result<Self, Failure> {
        if !super::is_database(directory)? {
            return Err(super::no_database(directory));
        }
        let state = Manifest::read(&LocalDisk, directory)?;
        Ok(Self { directory: directory.to_path_buf(), state, cache: Arc::new(BlockCache::new(CACHE_BYTES)) })
    }

    /// The table with this name.
    fn table(&self, name: &str) -> Result<&mycelium_manifest::TableState, Failure> {
        self.state.table_named(name).ok_or_else(|| {
            let names: Vec<_> = self.state.tables.values().map(|table| table.record.name.as_str()).collect();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Failure::negative(format!("there is no table {name}")).hint(format!("tables: {known}"))
        })
    }

    /// The rows of a table, as text.
    fn rows_of(&self, id: TableId) -> Result<RowText, Failure> {
        self.state.tables.get(&id).map_or(Ok(RowText { typed: None }), |table| RowText::of(&table.record))
    }

    /// The name of a table, also of one that was dropped.
    fn name_of(&self, id: TableId) -> String {
        self.state.tables.get(&id).map_or_else(|| format!("(dropped table {id})"), |table| table.record.name.clone())
    }

    fn open(&self, meta: &FileMeta) -> Result<Arc<SstFile>, Failure> {
        let path = self.directory.join(FileKind::Sst.name(meta.number));
        open_sst(&path, meta.number, &self.cache, meta.sequence_override)
    }

    /// The log segments that are not in files yet, ascending.
    fn segments(&self) -> Result<Vec<FileNumber>, Failure> {
        let mut segments: Vec<FileNumber> =
            segments_in(&self.directory)?.into_iter().filter(|&number| number >= self.state.oldest_wal).collect();
        segments.sort_unstable();
        Ok(segments)
    }
}

/// The numbers of all log segments in a directory.
fn segments_in(directory: &Path) -> Result<Vec<FileNumber>, Failure> {
    let names = LocalDisk.list(directory)?;
    let kinds = names.iter().filter_map(|name| FileKind::parse(name));
    Ok(kinds.filter(|(kind, _)| *kind == FileKind::Wal).map(|(_, number)| number).collect())
}

fn open_sst(
    path: &Path,
    number: FileNumber,
    cache: &Arc<BlockCache>,
    sequence_override: Option<u64>,
) -> Result<Arc<SstFile>, Failure> {
    let file = LocalDisk.open(path, AccessPattern::Random)?;
    let options = OpenOptions { sequence_override, ..OpenOptions::default() };
    Ok(SstFile::open(file, path, number, cache.clone(), options)?)
}

/// Keys and values of one table as text: by its schema if it has one, else as escaped bytes.
struct RowText {
    /// Of a typed table: its row formats, and its whole rows.
    typed: Option<(Formats, Group)>,
}

impl RowText {
    fn of(record: &TableRecord) -> Result<Self, Failure> {
        let definition = TableDefinition::decode(&record.definition)?;
        let Some(schema) = definition.schema.map(Arc::new) else { return Ok(Self { typed: None }) };
        let whole = Group::new(schema.value_columns(), GroupFormat::Row(definition.options.row_format.kind));
        Ok(Self { typed: Some((definition.options.formats(schema)?, whole)) })
    }

    fn schema(&self) -> Option<&mycelium::Schema> {
        self.typed.as_ref().map(|(formats, _)| &**formats.schema())
    }

    /// A key. Fences and range deletes may be prefixes or cut keys: those show as bytes.
    fn key(&self, key: &[u8]) -> String {
        let Some(schema) = self.schema() else { return escape_bytes(key) };
        key_text(schema, key).unwrap_or_else(|_| escape_bytes(key))
    }

    /// What an entry sets, in words; `group` is the column group of the file it lies in, if it does not hold whole
    /// rows.
    fn value(&self, operation: Operation, value: &[u8], group: Option<&Group>) -> Result<String, Failure> {
        match (operation, &self.typed) {
            (Operation::Delete, _) => Ok(String::new()),
            (Operation::RangeDelete, _) => Ok(format!("up to {}", self.key(value))),
            (Operation::Put | Operation::Patch, Some((formats, whole))) => {
                columns(formats, value, group.unwrap_or(whole))
            }
            _ => Ok(escape_bytes(value)),
        }
    }
}

/// `column=value` of every column that a row, patch or fragment sets.
fn columns(formats: &Formats, value: &[u8], group: &Group) -> Result<String, Failure> {
    // The entries of a columnar file come put together as packed fragments.
    let packed = Group { format: GroupFormat::Row(RowFormatKind::Packed), ..group.clone() };
    let group = if group.format == GroupFormat::Columnar { &packed } else { group };
    let mut parts = Vec::new();
    formats.values(group)?.visit(value, &group.held(), &mut RowScratch::default(), &mut |column, state| {
        let definition = &formats.schema().columns()[column];
        match state {
            ColumnState::Absent => {}
            ColumnState::Null => parts.push(format!("{}=null", definition.name)),
            ColumnState::Value(datum) => {
                parts.push(format!("{}={}", definition.name, datum.display_as(&definition.ty)))
            }
        }
        Ok(())
    })?;
    Ok(parts.join(" "))
}
