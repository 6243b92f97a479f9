//! Indexes as users hold them: created, dropped, listed, found by name.

use std::ops::Bound;
use std::sync::Arc;

use mycelium_base::{ColumnSet, Error, ErrorKind, Result, RowFormatKind, SequenceNumber, TableId};
use mycelium_compaction::{Buffering, TieredOptions};
use mycelium_encoding::{Datum, DatumRef, Schema, key};
use mycelium_manifest::{Manifest, TableRecord, VersionEdit};
use mycelium_transform::{Augment, Deriver, TransformerDefinition};

use super::definition::{IndexDefinition, IndexShared, IndexStatus};
use super::read::{IndexRow, IndexRows, derived_entry};
use super::source::{IndexSource, IndexedBy, refuse_unique};
use crate::database::{Database, Inner};
use crate::options::{Policy, RowFormatDefinition, TableOptions};
use crate::snapshot::Snapshot;
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering;
use crate::table::{Table, TableDefinition, TableShared};
use crate::transformers::refuse_with_maps;
use crate::tree::Tree;
use crate::view::ViewSet;
use crate::write::Writer;

/// What an index is to be.
///
/// An index of the words of a text, which a transformer of one's own finds (columns are [`Index`]'s example):
///
/// ```
/// use std::sync::Arc;
/// use mycelium_base::{ColumnSet, Operation, Result};
/// use mycelium_encoding::row_format::RowScratch;
/// use mycelium_encoding::{ColumnState, DatumRef, Schema};
/// use mycelium_engine::{Database, Durability, IndexOptions, Options, TableOptions};
/// use mycelium_transform::{
///     GroupValues, InputEntry, JobContext, Outputs, Place, Registry, TransformState, Transformer,
/// };
///
/// #[derive(Debug)]
/// struct Words;
///
/// impl Transformer for Words {
///     fn place(&self) -> Place {
///         Place::Beside
///     }
///     fn derived_tables(&self) -> Vec<String> {
///         vec!["words".into()]
///     }
///     fn reads(&self) -> ColumnSet {
///         [1].into_iter().collect()
///     }
///     fn prepare(&self, job: &JobContext<'_>) -> Result<Box<dyn TransformState>> {
///         Ok(Box::new(Splitting(job.formats.values(job.source)?, RowScratch::default())))
///     }
/// }
///
/// struct Splitting(GroupValues, RowScratch);
///
/// impl TransformState for Splitting {
///     fn transform(&mut self, entry: &InputEntry<'_>, outputs: &mut Outputs<'_>) -> Result<()> {
///         self.0.visit(entry.value, entry.columns, &mut self.1, &mut |_, state| {
///             let ColumnState::Value(DatumRef::Utf8(text)) = state else { return Ok(()) };
///             text.split(' ').try_for_each(|word| outputs.derive(0, word.as_bytes(), Operation::Put, &[]).map(drop))
///         })
///     }
/// }
///
/// let mut transformers = Registry::built_in();
/// transformers.register("example.words", |_, _| Ok(Arc::new(Words)))?;
/// let options = Options { transformers, ..Options::default() };
/// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..options };
/// let database = Database::open("example", options)?;
/// let schema = Schema::parse("id int64 not null, text utf8, primary key (id)")?;
/// let notes = database.create_typed_table("notes", schema, TableOptions::default())?;
/// let flat_map = Some("example.words".parse()?);
/// let words = IndexOptions { name: "words".into(), flat_map, ..IndexOptions::default() };
/// let words = database.create_index(&notes, &words)?;
/// notes.insert_row(&[DatumRef::Int64(1), DatumRef::Utf8("spores and moss")], Durability::Os)?;
/// notes.insert_row(&[DatumRef::Int64(2), DatumRef::Utf8("moss")], Durability::Os)?;
/// assert_eq!(words.get(&[DatumRef::Binary(b"moss")], None, None)?.count(), 2);
/// # Ok::<(), mycelium_engine::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct IndexOptions {
    /// Its name, unique among the table's indexes: 1 to 200 bytes without white space, slashes and NUL.
    pub name: String,
    /// The indexed columns, most significant first.
    pub on: Vec<String>,
    /// Columns that the index holds beside them and the primary key: lookups that ask for no others need not read the
    /// table.
    pub cover: Vec<String>,
    /// Whether no two rows may have the same values in the indexed columns. Rows with a null among them may.
    pub unique: bool,
    /// Instead of columns: a transformer of `Options::transformers` that stands beside the order and derives any number
    /// of entries from a row (Mycelium §4.2.1, flat-map). Lookups then take its keys, as one binary value. It must be
    /// pure: a row's entries follow from its key and the columns that the transformer reads. A write that it fails on
    /// is refused.
    pub flat_map: Option<TransformerDefinition>,
}

const LONGEST_NAME: usize = 200;

impl IndexOptions {
    fn indexed_by(&self, schema: &Schema) -> Result<IndexedBy> {
        let name = &self.name;
        if name.is_empty()
            || name.len() > LONGEST_NAME
            || name.contains(|c: char| c.is_whitespace() || "/\0".contains(c))
        {
            return Err(Error::invalid(format!(
                "an index's name has 1 to {LONGEST_NAME} bytes and no white space, slash or NUL"
            )));
        }
        if let Some(definition) = &self.flat_map {
            return self.by_flat_map(definition);
        }
        let position = |column: &String| {
            schema.index_of(column).ok_or_else(|| Error::invalid(format!("there is no column {column}")))
        };
        let on = self.on.iter().map(position).collect::<Result<Vec<_>>>()?;
        // What every entry of the index has anyway need not be covered.
        let given = self.cover.iter().map(position).collect::<Result<Vec<_>>>()?;
        let cover: ColumnSet = given.into_iter().filter(|&column| !schema.is_primary_key(column)).collect();
        Augment::index(name, &on, &cover, schema).map(IndexedBy::Columns)
    }

    fn by_flat_map(&self, definition: &TransformerDefinition) -> Result<IndexedBy> {
        if self.unique {
            return Err(refuse_unique());
        }
        if !self.on.is_empty() || !self.cover.is_empty() {
            return Err(Error::invalid("an index is on columns or fed by a flat-map, not both"));
        }
        Ok(IndexedBy::FlatMap(self.name.clone(), definition.clone()))
    }
}

/// A handle to an index. Cheap to clone; all methods may be called from any thread.
///
/// ```
/// use std::sync::Arc;
/// use mycelium_encoding::{Datum, DatumRef, Schema};
/// use mycelium_engine::{Database, Durability, IndexOptions, Options, TableOptions};
/// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
/// # let database = Database::open("example", options)?;
/// let schema = Schema::parse("id int64 not null, city utf8, name utf8, primary key (id)")?;
/// let people = database.create_typed_table("people", schema, TableOptions::default())?;
/// let by_city = IndexOptions { name: "by_city".into(), on: vec!["city".into()], ..IndexOptions::default() };
/// let by_city = database.create_index(&people, &by_city)?;
/// people.insert_row(&[DatumRef::Int64(1), DatumRef::Utf8("Graz"), DatumRef::Utf8("Ada")], Durability::Os)?;
/// people.insert_row(&[DatumRef::Int64(2), DatumRef::Utf8("Linz"), DatumRef::Utf8("Max")], Durability::Os)?;
///
/// let found = by_city.get(&[DatumRef::Utf8("Graz")], Some(&[2]), None)?;
/// let names: Vec<_> = found.map(|row| row.unwrap().values).collect();
/// assert_eq!(names, [[Datum::Utf8("Ada".into())]]);
/// # Ok::<(), mycelium_engine::Error>(())
/// ```
#[derive(Clone)]
pub struct Index {
    pub(super) table: Table,
    /// The derived table.
    pub(super) derived: Arc<TableShared>,
    pub(super) shared: Arc<IndexShared>,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Index({} of {})", self.name(), self.table.name())
    }
}

impl Index {
    /// Its name.
    pub fn name(&self) -> &str {
        self.shared.name()
    }

    /// The table that it is an index of.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// What its entries are made of.
    pub fn by(&self) -> IndexedBy {
        self.shared.source.definition()
    }

    /// The indexed columns by position in the table's schema, most significant first; none if a flat-map feeds it.
    pub fn on(&self) -> &[usize] {
        self.shared.source.on()
    }

    /// The columns that it holds beside those and the primary key.
    pub fn cover(&self) -> &ColumnSet {
        &self.shared.cover
    }

    /// Whether no two rows may have the same values in the indexed columns.
    pub fn is_unique(&self) -> bool {
        self.shared.status().unique
    }

    /// Whether it holds what was in the table when it was created. Until then reads scan the table, and are exact.
    pub fn is_built(&self) -> bool {
        self.shared.status().is_built
    }

    /// How much of what was in the table when it was created has been read for it: 0 to 1.
    pub fn fraction_built(&self) -> f64 {
        self.shared.fraction_built()
    }

    /// Why it could not be made, if it could not: a row that was in the table when it was created would have too long a
    /// key in it, or its flat-map fails on one. Such an index is dropped in the background, and its table goes on
    /// without it. The reason is known as long as the database is open, to those who hold the index.
    ///
    /// [`ErrorKind::InvalidArgument`], with the row's primary key, the index, the length and the limit.
    pub fn failure(&self) -> Option<Error> {
        self.shared.failure()
    }

    /// Waits until it is built; with [`crate::Background::Manual`] does the work. Durable then.
    ///
    /// # Errors
    /// [`Index::failure`] if it cannot be; [`ErrorKind::NotFound`] if it was dropped meanwhile; the error that made the
    /// database read-only, if one did.
    pub fn wait_built(&self) -> Result<()> {
        let is_gone = || self.derived.check_alive().is_err();
        let inner = &self.table.database;
        inner.wait_until(|_| self.is_built() || self.failure().is_some() || is_gone())?;
        match self.failure() {
            Some(failure) => Err(failure),
            None => self.derived.check_alive(),
        }
    }

    /// The rows with these values in the first indexed columns, in the order of the index: their columns of
    /// `projection` (all if `None`), by position. `snapshot`: the state to read; `None` is the newest. Of a flat-map,
    /// the rows from which it derives this key ([`DatumRef::Binary`]); in a range, a row comes once for every key
    /// within.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for more values than indexed columns, values that the columns cannot hold, or a
    /// projection of columns that do not exist; [`ErrorKind::NotFound`] if the index was dropped.
    pub fn get(
        &self,
        values: &[DatumRef<'_>],
        projection: Option<&[usize]>,
        snapshot: Option<&Snapshot>,
    ) -> Result<IndexRows> {
        self.range((Bound::Included(values), Bound::Included(values)), projection, snapshot)
    }

    /// As [`Index::get`], for the rows whose values in the first indexed columns lie within bounds.
    pub fn range(
        &self,
        bounds: (Bound<&[DatumRef<'_>]>, Bound<&[DatumRef<'_>]>),
        projection: Option<&[usize]>,
        snapshot: Option<&Snapshot>,
    ) -> Result<IndexRows> {
        let (from, to) = self.encode_bounds(bounds)?;
        IndexRows::open(self, from, to, projection, snapshot)
    }

    /// The derived keys within bounds: those of `[from, to)`.
    pub(crate) fn encode_bounds(
        &self,
        (lower, upper): (Bound<&[DatumRef<'_>]>, Bound<&[DatumRef<'_>]>),
    ) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
        let prefix = |values| {
            let mut prefix = Vec::new();
            self.shared.encode_prefix(values, &mut prefix)?;
            Ok::<_, Error>(prefix)
        };
        // Below nothing there is nothing.
        let nothing = Some(Vec::new());
        let mut to = match upper {
            Bound::Unbounded => None,
            Bound::Included(values) => key::prefix_successor(&prefix(values)?),
            Bound::Excluded(values) => Some(prefix(values)?),
        };
        let from = match lower {
            Bound::Unbounded => Vec::new(),
            Bound::Included(values) => prefix(values)?,
            Bound::Excluded(values) => match key::prefix_successor(&prefix(values)?) {
                Some(after) => after,
                None => {
                    to = nothing;
                    Vec::new()
                }
            },
        };
        Ok((from, to))
    }

    /// Derives the index's entries from rows as the table stores them.
    pub(crate) fn deriver(&self) -> Result<Deriver> {
        let formats = self.table.shared.typed_formats()?;
        self.shared.source.deriver(formats.for_transformers(), &formats.whole_group())
    }

    /// A row as lookups give it, found under a derived key.
    pub(crate) fn row(&self, key: &[u8], values: Vec<Datum>, derived: &[u8], value: &[u8]) -> Result<IndexRow> {
        let derived = derived_entry(&self.shared, &self.shared.decode_key(derived)?.0, value);
        Ok(IndexRow { key: key.to_vec(), values, derived })
    }

    /// What is newer than this derives when it is written.
    pub(crate) fn created_at(&self) -> SequenceNumber {
        self.shared.created_at
    }

    /// Its derived table.
    pub(crate) fn derived_table(&self) -> Table {
        Table { shared: self.derived.clone(), database: self.table.database.clone() }
    }
}

impl Table {
    /// Its indexes, in order of creation.
    pub fn indexes(&self) -> Vec<Index> {
        let state = self.shared.state.load();
        let handle = |index: &crate::table::IndexState| Index {
            table: self.clone(),
            derived: index.table.clone(),
            shared: index.index.clone(),
        };
        state.indexes.iter().map(handle).collect()
    }

    /// The index with this name; [`ErrorKind::NotFound`] if there is none.
    pub fn index(&self, name: &str) -> Result<Index> {
        let found = self.indexes().into_iter().find(|index| index.name() == name);
        // A table that is gone has none, and more to say.
        self.shared.check_alive()?;
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("table {} has no index {name}", self.name())))
    }
}

impl Database {
    /// Creates an index of a typed table. Durable when it returns. Rows that are there already are indexed in the
    /// background ([`Index::wait_built`]); until that is done reads through the index scan the table, and are exact
    /// from the first moment. An index that cannot hold one of the rows is dropped again ([`Index::failure`]). A unique
    /// index is built before the call returns; after a crash meanwhile there is none.
    ///
    /// While there is the index, writes whose row would have too long a key in it are refused as
    /// [`ErrorKind::InvalidArgument`] (transactions at their commit), with nothing written.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`]: a table of bytes, a name that is taken or none, unknown columns, or a column
    /// twice; a row that a unique index cannot hold. [`ErrorKind::Duplicate`]: two rows have the same values in a
    /// unique index; there is no such index then.
    pub fn create_index(&self, table: &Table, options: &IndexOptions) -> Result<Index> {
        self.inner.create_index(table, options)
    }

    /// Drops an index. Durable when it returns; lookups already begun go on.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the table has no such index.
    pub fn drop_index(&self, table: &Table, name: &str) -> Result<()> {
        self.inner.drop_index(table, name)
    }
}

/// The manifest's record of an index with another status; `None` if it was dropped.
pub(crate) fn changed_index(manifest: &Manifest, table: &TableShared, status: IndexStatus) -> Option<TableRecord> {
    let index = table.index.as_ref()?;
    let record = &*manifest.state().tables.get(&table.id)?.record;
    let definition = TableDefinition { index: Some(index.definition(status)), ..table.definition.clone() };
    Some(TableRecord { definition: definition.encode(), ..record.clone() })
}

/// How the files of a derived table are written: as those of its table, but always whole, packed and with filters of
/// its columns alone, and tiered (docs/decisions/0100-indexes-are-tiered.md).
fn derived_options(options: &TableOptions) -> TableOptions {
    TableOptions {
        policy: Policy::Tiered(derived_tiers(&options.policy)),
        row_format: RowFormatDefinition { kind: RowFormatKind::Packed, ..RowFormatDefinition::default() },
        group_formats: Vec::new(),
        layout: None,
        layout_auto: false,
        transformers: None,
        buffer: Buffering::Off,
        merge_operator: None,
        // Its entries leave with the rows of its table.
        expiry: None,
        // It is searched by ranges only, whose prefixes follow from the index (`TableDefinition::prefixes`).
        filter_bits: vec![0],
        prefix_filter: None,
        ..options.clone()
    }
}

/// The tiers of a derived table: as many runs in each as level 0 of its table has files.
fn derived_tiers(policy: &Policy) -> TieredOptions {
    match policy {
        Policy::Tiered(tiers) => *tiers,
        Policy::Leveled(levels) | Policy::TwoPhase(levels) => TieredOptions {
            runs_per_level: levels.level0_trigger.max(2),
            level_count: levels.level_count,
            target_file_size: levels.target_file_size,
            ..TieredOptions::default()
        },
    }
}

impl Inner {
    /// 1. With the commit lock held, flush: what is older than the index is in files, what is newer derives.
    /// 2. One edit creates the derived table, built already if there are no files.
    /// 3. Note which compactions are running: they tell the index nothing of what they drop, so its building waits for
    ///    them.
    fn create_index(self: &Arc<Self>, table: &Table, options: &IndexOptions) -> Result<Index> {
        self.check_writable()?;
        self.check_own(table)?;
        let index = self.create_locked(&mut self.commits.writer.lock(), table, options)?;
        self.wake_background();
        if options.unique && !index.is_unique() {
            self.make_unique(&index)?;
        }
        Ok(index)
    }

    /// Steps 1 to 3; the index is unique only if the table has no rows.
    pub(super) fn create_locked(
        &self,
        writer: &mut MutexGuard<'_, Writer>,
        table: &Table,
        options: &IndexOptions,
    ) -> Result<Index> {
        let formats = table.shared.typed_formats()?;
        if formats.maps().is_some() {
            return Err(refuse_with_maps("no index", table.name()));
        }
        let by = options.indexed_by(formats.schema())?;
        let source = IndexSource::new(&by, formats.schema(), &self.options.transformers)?;
        source.deriver(formats.for_transformers(), &formats.whole_group())?;
        table.shared.check_alive()?;
        if table.index(&options.name).is_ok() {
            return Err(Error::invalid(format!("table {} has an index {} already", table.name(), options.name)));
        }
        self.empty_memtables(writer)?;
        self.sync_locked(writer)?;
        let is_built = table.shared.state.load().tree.files().next().is_none();
        let definition = IndexDefinition {
            table: table.id(),
            schema: (**formats.schema()).clone(),
            by,
            created_at: writer.last_sequence,
            status: IndexStatus {
                // Where there are rows, that has to be found out.
                unique: options.unique && is_built,
                is_unchecked: options.unique && !is_built,
                is_built,
                trusted_from: 0,
            },
        };
        let derived = self.install_index(writer, &table.shared, definition)?;
        let index = table.index(&options.name)?;
        debug_assert!(Arc::ptr_eq(&index.derived, &derived));
        Ok(index)
    }

    fn install_index(
        &self,
        writer: &mut MutexGuard<'_, Writer>,
        base: &TableShared,
        index: IndexDefinition,
    ) -> Result<Arc<TableShared>> {
        let mut manifest = self.manifest()?;
        let id = TableId(manifest.state().next_table_id);
        let name = format!("{}/{}", base.name, index.by.name());
        let created_at: SequenceNumber = index.created_at;
        let options = derived_options(&base.definition.options);
        let definition = TableDefinition { schema: None, options, index: Some(index), views: ViewSet::default() };
        let layout = TableRecord::DERIVED.to_owned();
        let record = TableRecord { id, name, definition: definition.encode(), layout };
        let active = self.core.lock().empty.clone();
        let shared = Arc::new(TableShared::new(&record, &self.options, active, |formats| Ok(Tree::empty(formats)))?);
        // A crash must not give numbers up to this one again: replay would take what has them for older than the index.
        let mut edit = VersionEdit { last_sequence: Some(created_at), ..VersionEdit::default() };
        edit.created_tables.push(record);
        self.apply_edit(&mut manifest, edit, &[], &[], |core| {
            if let Some(index) = &shared.index {
                index.unaware_jobs.lock().extend(core.busy.jobs_of(base.id));
            }
            core.tables.insert(shared.clone());
        })?;
        writer.tables.insert(id);
        self.renew_derivers(writer, &[base.id])?;
        Ok(shared)
    }

    pub(super) fn drop_index(&self, table: &Table, name: &str) -> Result<()> {
        self.check_writable()?;
        self.check_own(table)?;
        self.drop_locked(&mut self.commits.writer.lock(), table, name)?;
        self.wake_background();
        Ok(())
    }

    pub(super) fn drop_locked(&self, writer: &mut MutexGuard<'_, Writer>, table: &Table, name: &str) -> Result<()> {
        table.shared.check_alive()?;
        self.drop_derived(writer, &table.index(name)?.derived)
    }

    pub(super) fn drop_derived(&self, writer: &mut MutexGuard<'_, Writer>, derived: &TableShared) -> Result<()> {
        let mut manifest = self.manifest()?;
        let mut edit = VersionEdit::default();
        edit.dropped_tables.push(derived.id);
        self.apply_edit(&mut manifest, edit, &[], &[], |core| {
            core.tables.remove(derived.id);
        })?;
        // Before another job has the manifest, which would find the table alive and its record gone.
        self.forget_table(writer, derived);
        drop(manifest);
        let base = derived.index.as_ref().map(|index| index.base);
        self.renew_derivers(writer, base.as_slice())
    }

    /// Brings what writers know of the indexes of these tables up to date, after an edit changed which there are. The
    /// commit lock has been held since before the edit.
    pub(crate) fn renew_derivers(&self, writer: &mut Writer, tables: &[TableId]) -> Result<()> {
        // What cannot be derived must not be written any more: the edit stands.
        let renewed = writer.derivers.renew(&self.core.lock().tables, tables);
        renewed.inspect_err(|error| self.latch(error))?;
        self.indexed.store(Arc::clone(writer.derivers.indexed()));
        Ok(())
    }

    /// A table was dropped: its memtable and files go when nobody reads them any more. Its handles are left with a
    /// state that holds nothing: who takes that finds the table dropped.
    pub(crate) fn forget_table(&self, writer: &mut MutexGuard<'_, Writer>, table: &TableShared) {
        writer.forget_table(table.id);
        table.dropped.store(true, Ordering::Release);
        self.locks.wake_all();
        for file in table.empty_state().tree.all_files() {
            file.mark_obsolete();
        }
    }
}
