//! Tables: what the manifest keeps of one, the state that reads take without a lock, and what a user holds. What may be
//! done with that stands where it is done: rows as bytes in key_value.rs, rows of columns in typed.rs, payloads in
//! payload.rs.

use std::sync::Arc;

use arc_swap::ArcSwap;
use mycelium_base::coding::{Reader, put_bytes, put_varint};
use mycelium_base::limits::MAX_LEVELS;
use mycelium_base::{Combiner, Error, ErrorKind, Result, RowFormatKind, SequenceNumber, TableId};
use mycelium_compaction::Buffering;
use mycelium_encoding::{KeyPrefixes, Schema};
use mycelium_manifest::{Layout, TableRecord};
use mycelium_memtable::{Memtable, MemtableOptions};
use mycelium_transform::TransformerSet;

use crate::database::Inner;
use crate::expiry::{Expiry, TableExpiry};
use crate::index::{IndexDefinition, IndexShared, IndexStatus};
use crate::options::{Options, RowFormatDefinition, TableOptions, sizes};
use crate::settled::SettledMemtable;
use crate::shape::{Shape, TableFormats, recorded_layout};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::traces::TableTraces;
use crate::tree::Tree;
use crate::view::ViewSet;

/// What the manifest keeps of a table, in bytes:
///
/// ```text
/// u8      version: 1
/// u8      whether there is a schema
/// bytes   the schema
/// ...     the options (options.rs)
/// varint  what else there is, as a sum: 1 a row format other than packed, 2 a layout that follows the workload, 4 an
///         index: the table is one's derived table, 8 transformers, 16 views, 32 a compaction buffer, 64 a prefix
///         filter, 128 rows that expire, 256 block sizes of levels below level 0, 512 row formats of column groups
/// bytes   of 1: the row format's definition (`encoding::row_format::definition`)
/// bytes   of 4: the index (`index/definition.rs`)
/// bytes   of 8: the set of transformers as text (`transform::TransformerSet`)
/// bytes   of 16: the views (`view/definition.rs`)
/// bytes   of 32: what the buffer holds, `rows` or `full`
/// varint  of 64: how many columns of the primary key, or bytes of a key-value table's keys
/// ...     of 128: when rows expire (`expiry/definition.rs`)
/// varint  of 256: how many block sizes follow, at most 15
/// varint  of each: the size, in bytes
/// varint  of 512: how many definitions of row formats follow, at most 2
/// bytes   of each: the definition, as of 1
/// ```
///
/// The layout, which may change, stands beside it in the table's record.
#[derive(Clone, PartialEq, Debug)]
pub struct TableDefinition {
    /// The schema of a typed table; `None` for a key-value table.
    pub schema: Option<Schema>,
    /// How its files are written.
    pub options: TableOptions,
    /// Of a derived table: the index that it is.
    pub index: Option<IndexDefinition>,
    /// Of a typed table: its materialised views.
    pub views: ViewSet,
}

const DEFINITION_VERSION: u8 = 1;

/// What else there is.
const ROW_FORMAT: u64 = 1;
const LAYOUT_AUTO: u64 = 2;
const INDEX: u64 = 4;
const TRANSFORMERS: u64 = 8;
const VIEWS: u64 = 16;
const BUFFER: u64 = 32;
const PREFIX_FILTER: u64 = 64;
const EXPIRY: u64 = 128;
const DEEPER_BLOCK_SIZES: u64 = 256;
const GROUP_FORMATS: u64 = 512;

const KNOWN: u64 = ROW_FORMAT
    | LAYOUT_AUTO
    | INDEX
    | TRANSFORMERS
    | VIEWS
    | BUFFER
    | PREFIX_FILTER
    | EXPIRY
    | DEEPER_BLOCK_SIZES
    | GROUP_FORMATS;

/// The most formats whose rows take a definition.
const MAX_GROUP_FORMATS: usize = 2;

impl TableDefinition {
    /// The stored form.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![DEFINITION_VERSION, self.schema.is_some().into()];
        if let Some(schema) = &self.schema {
            let mut bytes = Vec::new();
            schema.encode(&mut bytes);
            put_bytes(&mut out, &bytes);
        }
        self.options.encode(&mut out);
        let format = &self.options.row_format;
        let has_format = format.kind != RowFormatKind::Packed;
        let expiry = self.expiry();
        let rest = if has_format { ROW_FORMAT } else { 0 }
            | if self.options.layout_auto { LAYOUT_AUTO } else { 0 }
            | if self.index.is_some() { INDEX } else { 0 }
            | if self.options.transformers.is_some() { TRANSFORMERS } else { 0 }
            | if self.views.is_unused() { 0 } else { VIEWS }
            | if self.options.buffer == Buffering::Off { 0 } else { BUFFER }
            | if self.options.prefix_filter.is_some() { PREFIX_FILTER } else { 0 }
            | if expiry.is_some() { EXPIRY } else { 0 }
            | if self.options.deeper_block_sizes.is_empty() { 0 } else { DEEPER_BLOCK_SIZES }
            | if self.options.group_formats.is_empty() { 0 } else { GROUP_FORMATS };
        put_varint(&mut out, rest);
        if has_format {
            put_format(&mut out, format);
        }
        if let Some(index) = &self.index {
            let mut bytes = Vec::new();
            index.encode(&mut bytes);
            put_bytes(&mut out, &bytes);
        }
        if let Some(set) = &self.options.transformers {
            put_bytes(&mut out, set.to_string().as_bytes());
        }
        if !self.views.is_unused() {
            let mut bytes = Vec::new();
            self.views.encode(&mut bytes);
            put_bytes(&mut out, &bytes);
        }
        if self.options.buffer != Buffering::Off {
            put_bytes(&mut out, self.options.buffer.name().as_bytes());
        }
        if let Some(prefix) = self.options.prefix_filter {
            put_varint(&mut out, prefix as u64);
        }
        if let Some((column, expiry)) = expiry {
            expiry.encode(column, &mut out);
        }
        if !self.options.deeper_block_sizes.is_empty() {
            put_varint(&mut out, self.options.deeper_block_sizes.len() as u64);
            self.options.deeper_block_sizes.iter().for_each(|&size| put_varint(&mut out, size as u64));
        }
        if !self.options.group_formats.is_empty() {
            put_varint(&mut out, self.options.group_formats.len() as u64);
            self.options.group_formats.iter().for_each(|format| put_format(&mut out, format));
        }
        out
    }

    /// When rows expire, with the position of the column that says it.
    fn expiry(&self) -> Option<(usize, &Expiry)> {
        let expiry = self.options.expiry.as_ref()?;
        Some((self.schema.as_ref()?.index_of(&expiry.column)?, expiry))
    }

    /// Reads the stored form, as `inspect` does.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8()?;
        if version != DEFINITION_VERSION {
            return Err(Error::new(ErrorKind::Unsupported, format!("table definition of version {version}")));
        }
        let schema = if reader.u8()? != 0 { Some(Schema::decode(reader.bytes()?)?) } else { None };
        let mut options = TableOptions::decode(&mut reader)?;
        let rest = reader.varint()?;
        if rest & !KNOWN != 0 {
            return Err(Error::new(ErrorKind::Unsupported, "a table definition says more than this version knows"));
        }
        if rest & ROW_FORMAT != 0 {
            options.row_format = RowFormatDefinition::decode(reader.bytes()?)?;
        }
        options.layout_auto = rest & LAYOUT_AUTO != 0;
        let index = if rest & INDEX != 0 { Some(IndexDefinition::decode(reader.bytes()?)?) } else { None };
        if rest & TRANSFORMERS != 0 {
            let set = TransformerSet::parse(reader.str()?)
                .map_err(|e| Error::corruption("a table's transformers in the manifest").caused_by(e))?;
            options.transformers = Some(set);
        }
        let views = match &schema {
            _ if rest & VIEWS == 0 => ViewSet::default(),
            Some(schema) => ViewSet::decode(schema, reader.bytes()?)?,
            None => return Err(Error::corruption("a key-value table has views")),
        };
        if rest & BUFFER != 0 {
            let name = reader.str()?;
            let known = Buffering::ALL.into_iter().find(|buffer| buffer.name() == name);
            options.buffer = known.ok_or_else(|| {
                Error::new(ErrorKind::Unsupported, format!("a table's compaction buffer in the manifest: {name:?}"))
            })?;
        }
        if rest & PREFIX_FILTER != 0 {
            options.prefix_filter = Some(reader.length(usize::MAX)?);
        }
        if rest & EXPIRY != 0 {
            let schema = schema.as_ref().ok_or_else(|| Error::corruption("rows of a key-value table expire"))?;
            options.expiry = Some(Expiry::decode(schema, &mut reader)?);
        }
        if rest & DEEPER_BLOCK_SIZES != 0 {
            for _ in 0..reader.length(MAX_LEVELS)? {
                options.deeper_block_sizes.push(reader.length(usize::MAX)?);
            }
            let unfit = |e| Error::corruption("a table's block sizes in the manifest").caused_by(e);
            options.check_block_sizes().map_err(unfit)?;
        }
        if rest & GROUP_FORMATS != 0 {
            for _ in 0..reader.length(MAX_GROUP_FORMATS)? {
                options.group_formats.push(RowFormatDefinition::decode(reader.bytes()?)?);
            }
            let unfit = |e| Error::corruption("a table's row formats in the manifest").caused_by(e);
            options.check_group_formats().map_err(unfit)?;
        }
        reader.finish()?;
        let definition = Self { schema, options, index, views };
        definition
            .check_prefix_filter()
            .map_err(|e| Error::corruption("a table's prefix filter in the manifest").caused_by(e))?;
        Ok(definition)
    }

    /// Refuses a prefix filter of more than there is.
    pub(crate) fn check_prefix_filter(&self) -> Result<()> {
        let (most, of) = match &self.schema {
            Some(schema) => (KeyPrefixes::most_columns(schema), "columns of the primary key"),
            None => (KeyPrefixes::MOST_BYTES, "bytes of a key"),
        };
        match self.options.prefix_filter {
            Some(prefix) if !(1..=most).contains(&prefix) => {
                Err(Error::invalid("a prefix_filter that cannot be").expected(format_args!("1 to {most} {of}"), prefix))
            }
            _ => Ok(()),
        }
    }

    /// The prefixes of keys that filters of new files have. Those of an index follow from its columns.
    pub(crate) fn prefixes(&self) -> Option<KeyPrefixes> {
        match (&self.index, &self.schema) {
            (Some(index), _) => index.prefixes(),
            (None, Some(schema)) => KeyPrefixes::of_key(schema, self.options.prefix_filter?),
            (None, None) => KeyPrefixes::of_bytes(self.options.prefix_filter?),
        }
    }
}

fn put_format(out: &mut Vec<u8>, format: &RowFormatDefinition) {
    let mut bytes = Vec::new();
    format.encode(&mut bytes);
    put_bytes(out, &bytes);
}

/// What a read needs, replaced as a whole when memtables are sealed, flushed or compacted.
#[derive(Debug)]
pub(crate) struct TableState {
    pub(crate) active: Arc<Memtable>,
    /// Newest first.
    pub(crate) sealed: Vec<Arc<Memtable>>,
    pub(crate) tree: Arc<Tree>,
    /// The table's indexes as they were at the same moment: what left the table has left them, too.
    pub(crate) indexes: Arc<[IndexState]>,
    /// In a database opened read-only: the newest sequence number that it has all entries of, at which it is read.
    /// `None` where reads see what is visible.
    pub(crate) as_of: Option<SequenceNumber>,
}

/// An index of a table, at one moment.
#[derive(Clone, Debug)]
pub(crate) struct IndexState {
    /// The derived table.
    pub(crate) table: Arc<TableShared>,
    pub(crate) index: Arc<IndexShared>,
    pub(crate) state: Arc<TableState>,
    pub(crate) status: IndexStatus,
}

impl IndexState {
    /// The index and its derived table as they are now.
    pub(crate) fn now(table: &Arc<TableShared>, index: &Arc<IndexShared>) -> Self {
        let (table, index, state) = (table.clone(), index.clone(), table.state.load_full());
        let status = index.status();
        Self { table, index, state, status }
    }

    /// Whether that is what it says.
    pub(crate) fn is_now(&self, table: &Arc<TableShared>, index: &Arc<IndexShared>) -> bool {
        let is_same = Arc::ptr_eq(&self.table, table) && Arc::ptr_eq(&self.index, index);
        is_same && Arc::ptr_eq(&self.state, &table.state.load()) && self.status == index.status()
    }
}

impl TableState {
    /// Of a table without indexes.
    pub(crate) fn new(active: Arc<Memtable>, tree: Arc<Tree>) -> Self {
        Self { active, sealed: Vec::new(), tree, indexes: Arc::default(), as_of: None }
    }

    /// All memtables, newest first.
    #[inline]
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }

    /// Two keys between which all are that wait for their flush or are in files. O(runs).
    pub(crate) fn outermost_keys(&self) -> Option<(&[u8], &[u8])> {
        let sealed = || self.sealed.iter().filter_map(|memtable| memtable.first_key().zip(memtable.last_key()));
        let runs = || {
            self.tree.runs().filter_map(|(_, run)| {
                let (first, last) = run.files.first().zip(run.files.last())?;
                Some((first.meta.smallest.as_slice(), last.meta.largest.as_slice()))
            })
        };
        let least = sealed().chain(runs()).map(|(least, _)| least).min();
        least.zip(sealed().chain(runs()).map(|(_, greatest)| greatest).max())
    }

    /// The number up to which, of the changes up to `now`, all are in files. A crash may take back any that come later.
    pub(crate) fn in_files_upto(&self, now: SequenceNumber) -> SequenceNumber {
        let oldest = self.memtables().filter_map(|memtable| Some(memtable.sequence_range()?.0)).min();
        oldest.map_or(now, |oldest| now.min(oldest.saturating_sub(1)))
    }
}

/// A table, shared by its handles, the writer and the background.
pub(crate) struct TableShared {
    pub(crate) id: TableId,
    pub(crate) name: String,
    pub(crate) definition: TableDefinition,
    /// Of typed tables.
    pub(crate) formats: Option<Arc<TableFormats>>,
    /// Folds patches and operands of values in the table's own format.
    pub(crate) combiner: Option<Arc<dyn Combiner>>,
    /// The layout, and what compacts under it.
    pub(crate) shape: ArcSwap<Shape>,
    pub(crate) state: ArcSwap<TableState>,
    /// Of its memtables, for scans.
    pub(crate) settled: SettledMemtable,
    /// What the table is asked for, of typed tables.
    pub(crate) traces: Option<Arc<TableTraces>>,
    /// Of a derived table: the index that it is.
    pub(crate) index: Option<Arc<IndexShared>>,
    /// Its views as they are now; those of `definition` are as they were when the database was opened.
    pub(crate) views: ArcSwap<ViewSet>,
    /// When its rows expire now; `definition` says when they did when the database was opened.
    pub(crate) expiry: TableExpiry,
    /// Bulk loads that were put in place, counted before their rows are visible.
    pub(crate) loads: AtomicU64,
    pub(crate) dropped: AtomicBool,
    /// Whether another table has its place and its files, with other columns or names of them.
    pub(crate) replaced: AtomicBool,
}

impl std::fmt::Debug for TableShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TableShared({} {})", self.id, self.name)
    }
}

impl TableShared {
    /// A table as the manifest records it; `programs` has the operators and transformers that it may name.
    pub(crate) fn new(
        record: &TableRecord,
        programs: &Options,
        active: Arc<Memtable>,
        tree: impl FnOnce(Option<&TableFormats>) -> Result<Tree>,
    ) -> Result<Self> {
        let named = |error: Error| Error::new(error.kind(), format!("table {}", record.name)).caused_by(error);
        let definition = TableDefinition::decode(&record.definition).map_err(named)?;
        let formats = match &definition.schema {
            Some(schema) => Some(Arc::new(
                TableFormats::new(schema.clone(), &definition.options)
                    .and_then(|formats| formats.with_transformers(&programs.transformers, &definition.options))
                    .map_err(named)?,
            )),
            None => None,
        };
        let tree = tree(formats.as_deref())?;
        let layout = recorded_layout(&record.layout, formats.as_deref()).map_err(named)?;
        if let Some(maps) = formats.as_ref().and_then(|formats| formats.maps())
            && *maps.layout() != layout
        {
            // What lies where is told by the levels of the layout that the table was made with.
            let message =
                format!("the transformers of table {} link to another layout than they did before", record.name);
            return Err(Error::new(ErrorKind::Unsupported, message).expected(layout, maps.layout()));
        }
        let has_maps = formats.as_ref().is_some_and(|formats| formats.maps().is_some());
        let shape = Shape::new(layout, &definition.options, programs.deferral().filter(|_| !has_maps));
        let combiner: Option<Arc<dyn Combiner>> = match (&formats, &definition.options.merge_operator) {
            (Some(formats), _) => Some(formats.whole.combiner()),
            (None, Some(name)) => Some(find_operator(&programs.merge_operators, name, &record.name)?),
            (None, None) => None,
        };
        let levels = sizes(&definition.options).level_count;
        let traces = formats.as_ref().and_then(|formats| TableTraces::new(formats.whole.columns(), levels));
        let index = match &definition.index {
            Some(index) => Some(Arc::new(IndexShared::new(index, &programs.transformers)?)),
            None => None,
        };
        let views = ArcSwap::from_pointee(definition.views.clone());
        let expiry = TableExpiry::new(definition.options.expiry.clone());
        let state = TableState::new(active, Arc::new(tree));
        Ok(Self {
            id: record.id,
            name: record.name.clone(),
            definition,
            formats,
            combiner,
            shape: ArcSwap::from_pointee(shape),
            state: ArcSwap::from_pointee(state),
            settled: SettledMemtable::default(),
            traces: traces.map(Arc::new),
            index,
            views,
            expiry,
            loads: AtomicU64::new(0),
            dropped: AtomicBool::new(false),
            replaced: AtomicBool::new(false),
        })
    }

    /// The formats of a typed table; an error for a key-value table.
    pub(crate) fn typed_formats(&self) -> Result<&Arc<TableFormats>> {
        self.formats.as_ref().ok_or_else(|| Error::invalid(format!("table {} holds bytes, not typed rows", self.name)))
    }

    /// Whether compactions may take files of it. An index is left alone until it is built: what was there before it
    /// belongs below all that it holds.
    pub(crate) fn may_be_compacted(&self) -> bool {
        self.index.as_ref().is_none_or(|index| index.status().is_built)
    }

    /// Leaves a table that is gone with a state that holds nothing: its handles keep neither files nor memtables. Who
    /// takes that state finds the table gone. The state as it was.
    pub(crate) fn empty_state(&self) -> Arc<TableState> {
        debug_assert!(self.check_alive().is_err());
        self.state.swap(self.state_without_rows())
    }

    /// A state that holds nothing.
    pub(crate) fn state_without_rows(&self) -> Arc<TableState> {
        let (_, active) = Memtable::new(MemtableOptions::default());
        let tree = Arc::new(Tree::empty(self.formats.as_deref()));
        Arc::new(TableState::new(active, tree))
    }

    pub(crate) fn check_alive(&self) -> Result<()> {
        if self.dropped.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::NotFound, format!("table {} was dropped", self.name)));
        }
        if self.replaced.load(Ordering::Acquire) {
            let message = format!("the columns of table {} changed: take a handle to it anew", self.name);
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        Ok(())
    }
}

fn find_operator(operators: &[Arc<dyn Combiner>], name: &str, table: &str) -> Result<Arc<dyn Combiner>> {
    operators.iter().find(|operator| operator.name() == name).cloned().ok_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            format!("table {table} needs the merge operator {name}, which is not among Options::merge_operators"),
        )
    })
}

/// A handle to a table. Cheap to clone; all methods may be called from any thread, several at a time.
///
/// Reads take one state of the table and do not wait for writers. They go on when the database is read-only after an
/// error, and when it was closed. A write is a batch of one: [`crate::Database::write`] says when a write returns, what
/// it may wait for and how it fails.
///
/// ```
/// use mycelium_engine::{Database, Durability, Options, TableOptions};
/// # use std::sync::Arc;
/// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
/// let database = Database::open("example", options)?;
/// let table = database.create_table("kv", TableOptions::default())?;
/// table.put(b"key", b"value", Durability::Sync)?;
/// assert_eq!(table.get(b"key")?.as_deref(), Some(&b"value"[..]));
/// # Ok::<(), mycelium_engine::Error>(())
/// ```
///
/// # Errors of every call
///
/// What a call adds to these stands with the call.
///
/// - [`ErrorKind::NotFound`] if the table was dropped, or its columns changed since the handle was taken
///   ([`crate::Database::add_column`]).
/// - [`ErrorKind::InvalidArgument`] for a snapshot of another database, and for a key of more than 65,535 bytes or a
///   value of more than 256 MiB. Nothing was done.
/// - Of reads, [`ErrorKind::Corruption`] and [`ErrorKind::Io`], and errors of a merge operator or of a transformer that
///   maps values.
/// - Of writes, those of [`crate::Database::write`].
#[derive(Clone)]
pub struct Table {
    pub(crate) shared: Arc<TableShared>,
    pub(crate) database: Arc<Inner>,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({} {})", self.shared.id, self.shared.name)
    }
}

impl Table {
    /// The table's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The table's id, never reused in its database. After a change of its columns the table has another.
    pub fn id(&self) -> TableId {
        self.shared.id
    }

    /// The schema of a typed table.
    pub fn schema(&self) -> Option<&Arc<Schema>> {
        self.shared.formats.as_ref().map(|formats| formats.schema())
    }

    /// The layout under which new files are written. Files already there may have been written under others.
    pub fn layout(&self) -> Arc<Layout> {
        self.shared.shape.load().layout.clone()
    }

    /// The options it was created with.
    pub fn options(&self) -> &TableOptions {
        &self.shared.definition.options
    }

    #[inline]
    pub(crate) fn has_merge_operator(&self) -> bool {
        self.shared.definition.options.merge_operator.is_some()
    }

    #[inline]
    pub(crate) fn database_identity(&self) -> u64 {
        self.database.identity
    }
}

#[cfg(test)]
mod tests {
    use mycelium_compaction::{LeveledOptions, TieredOptions};
    use mycelium_sst::Compression;

    use super::*;
    use crate::options::Policy;

    /// The bytes of options as they lie in manifests: a change of them is a change of the format.
    #[test]
    fn options_keep_their_bytes() {
        let tiered = TableOptions {
            policy: Policy::Tiered(TieredOptions {
                runs_per_level: 4,
                level_count: 5,
                max_space_amplification_percent: 200,
                target_file_size: 1 << 20,
            }),
            compression: vec![Compression::None, Compression::Lz4, Compression::Zstd(3)],
            filter_bits: vec![10, 0],
            snapshot_filter: false,
            merge_operator: Some("sum".to_owned()),
            ..TableOptions::default()
        };
        let tiered_bytes = b"\x01\x04\x05\x80\x80\x40\xc8\x01\
            \x80\x20\x10\
            \x03\0\0\0\0\0\x01\0\0\0\0\x02\x03\0\0\0\
            \x02\x0a\0\
            \x01\0\x01\x03sum";
        let leveled_bytes = b"\x04\x08\x80\x80\x80\x80\x01\x07\x80\x80\x80\x20\
            \0\0\0\0\0\0\x24\x40\x80\x80\x80\xa0\x06\0\x01\
            \x80\x20\x10\
            \x01\0\0\0\0\0\
            \x01\x0a\
            \x01\x01\0\0";
        let two_phase = TableOptions { policy: Policy::TwoPhase(LeveledOptions::default()), ..TableOptions::default() };
        for (options, bytes) in [
            (tiered, tiered_bytes.to_vec()),
            (TableOptions::default(), [&[0], &leveled_bytes[..]].concat()),
            (two_phase, [&[2], &leveled_bytes[..]].concat()),
        ] {
            let mut encoded = Vec::new();
            options.encode(&mut encoded);
            assert_eq!(encoded, bytes, "{options:?}");
            assert_eq!(TableOptions::decode(&mut Reader::new(&bytes)).unwrap(), options);
        }
    }

    /// A table among many could not be opened, and the error did not say which.
    #[test]
    fn a_definition_that_could_not_be_read_did_not_say_of_which_table() {
        let (_, active) = Memtable::new(MemtableOptions::default());
        let record = TableRecord { id: TableId(1), name: "people".into(), definition: vec![9], layout: String::new() };
        let refused = TableShared::new(&record, &Options::default(), active, |formats| Ok(Tree::empty(formats)));
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("people"), "{error}");
    }

    #[test]
    fn definitions_are_read_back() {
        let schema = Schema::parse("id int64 not null, a utf8, primary key (id)").unwrap();
        let json = RowFormatDefinition { kind: RowFormatKind::Json, ..RowFormatDefinition::default() };
        for (layout_auto, buffer) in [(false, Buffering::Full), (true, Buffering::Off), (true, Buffering::Rows)] {
            for row_format in [RowFormatDefinition::default(), json.clone()] {
                let options = TableOptions { layout_auto, buffer, row_format, ..TableOptions::default() };
                let definition =
                    TableDefinition { schema: Some(schema.clone()), options, index: None, views: ViewSet::default() };
                assert_eq!(TableDefinition::decode(&definition.encode()).unwrap(), definition);
            }
        }
        let (options, views) = (TableOptions::default(), ViewSet::default());
        let mut newer = TableDefinition { schema: None, options, index: None, views }.encode();
        assert_eq!(newer.pop(), Some(0));
        newer.extend([0x80, 8]);
        assert_eq!(TableDefinition::decode(&newer).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn an_expiry_stands_behind_the_other_options_of_a_typed_table() {
        let schema = Schema::parse("id int64 not null, at timestamp(s), primary key (id)").unwrap();
        let definition = |expiry| {
            let options = TableOptions { expiry, ..TableOptions::default() };
            TableDefinition { schema: Some(schema.clone()), options, index: None, views: ViewSet::default() }
        };
        let with = definition(Some(Expiry::new("at", std::time::Duration::from_secs(60))));
        let (bytes, without) = (with.encode(), definition(None).encode());
        assert_eq!(bytes, [&without[..without.len() - 1], &[0x80, 1, 1, 0, 60, 0]].concat());
        assert_eq!(TableDefinition::decode(&bytes).unwrap(), with);
        let (options, views) = (TableOptions::default(), ViewSet::default());
        let mut of_bytes = TableDefinition { schema: None, options, index: None, views }.encode();
        assert_eq!(of_bytes.pop(), Some(0));
        of_bytes.extend([0x80, 1, 1, 0, 60, 0]);
        assert_eq!(TableDefinition::decode(&of_bytes).unwrap_err().kind(), ErrorKind::Corruption);
    }

    #[test]
    fn block_sizes_by_level_are_read_back_where_they_can_be() {
        let definition = |deeper_block_sizes: &[usize]| {
            let options = TableOptions { deeper_block_sizes: deeper_block_sizes.to_vec(), ..TableOptions::default() };
            TableDefinition { schema: None, options, index: None, views: ViewSet::default() }
        };
        let (without, with) = (definition(&[]).encode(), definition(&[64, 1 << 14]).encode());
        assert_eq!(with, [&without[..without.len() - 1], &[0x80, 2, 2, 64, 0x80, 0x80, 1]].concat());
        let read = TableDefinition::decode(&with).unwrap();
        assert_eq!(read, definition(&[64, 1 << 14]));
        assert_eq!(
            [0, 1, 2, 3, 15].map(|level| read.options.block_size_at(level)),
            [4096, 64, 1 << 14, 1 << 14, 1 << 14]
        );
        assert_eq!(definition(&[]).options.block_size_at(3), 4096);
        for impossible in [&[63][..], &[(16 << 20) + 1], &[64; 16]] {
            assert_eq!(definition(impossible).options.check().unwrap_err().kind(), ErrorKind::InvalidArgument);
            let error = TableDefinition::decode(&definition(impossible).encode()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption);
        }
    }

    #[test]
    fn row_formats_of_groups_are_read_back_where_they_can_be() {
        let format = |kind, definition: &[u8], root: &str| RowFormatDefinition {
            kind,
            definition: definition.to_vec(),
            root: root.into(),
        };
        let definition = |group_formats: &[RowFormatDefinition]| {
            let options = TableOptions { group_formats: group_formats.to_vec(), ..TableOptions::default() };
            TableDefinition { schema: None, options, index: None, views: ViewSet::default() }
        };
        let protobuf = format(RowFormatKind::Protobuf, &[7, 8], "a.B");
        let flat = format(RowFormatKind::FlatBuffers, &[9], "C");
        let both = definition(&[protobuf.clone(), flat]);
        let bytes = [&[0x80, 4, 2, 9, 1, 3, 3][..], b"a.B", &[2, 7, 8, 6, 1, 4, 1], b"C", &[1, 9]].concat();
        let without = definition(&[]).encode();
        assert_eq!(both.encode(), [&without[..without.len() - 1], &bytes].concat());
        assert_eq!(TableDefinition::decode(&both.encode()).unwrap(), both);
        let needless = format(RowFormatKind::Json, &[], "");
        for impossible in [&[protobuf.clone(), protobuf][..], &[needless]] {
            assert_eq!(definition(impossible).options.check().unwrap_err().kind(), ErrorKind::InvalidArgument);
            let error = TableDefinition::decode(&definition(impossible).encode()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption);
        }
    }

    #[test]
    fn a_prefix_filter_is_read_back_where_it_can_be() {
        let schema = Schema::parse("a int64 not null, b utf8 not null, primary key (a, b)").unwrap();
        for (schema, most) in [(Some(schema), 2), (None, 255)] {
            let definition = |prefix_filter| {
                let options = TableOptions { prefix_filter, ..TableOptions::default() };
                TableDefinition { schema: schema.clone(), options, index: None, views: ViewSet::default() }
            };
            let (without, with) = (definition(None).encode(), definition(Some(2)).encode());
            assert_eq!(with, [&without[..without.len() - 1], &[64, 2]].concat());
            for possible in [None, Some(1), Some(2), Some(most)] {
                assert!(definition(possible).check_prefix_filter().is_ok());
                assert_eq!(TableDefinition::decode(&definition(possible).encode()).unwrap(), definition(possible));
                assert_eq!(definition(possible).prefixes().is_some(), possible.is_some());
            }
            for impossible in [Some(0), Some(most + 1), Some(usize::MAX)] {
                let error = definition(impossible).check_prefix_filter().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                let error = TableDefinition::decode(&definition(impossible).encode()).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corruption);
            }
        }
    }
}
