//! Changes of a typed table's columns: one more, one less, or another name of one. No row is rewritten for it.
//!
//! 1. With the commit lock held, flush: no memtable and no record of the log that is still needed was written before
//!    the change. What was is in files.
//! 2. One edit puts another table in the place of this one, with its name and its files, and others in the places of
//!    its indexes' derived tables. Whoever holds the former, a handle, a batch, a transaction or a running compaction,
//!    finds a table that is gone, as if it had been dropped; iterators and scans go on with the state that they hold.
//!    As of a dropped table handles are left with a state that holds nothing. What the table was asked for is carried
//!    on.
//! 3. In the same edit the new column joins a group on every level of the layout, that of the last column outside the
//!    key, and a group of every file, by the same rule: so groups share no column, and lie within each other, as
//!    before. A file *lacks* the column ([`mycelium_base::Group::lacking`]): for reads, compactions, deletes and range
//!    deletes it is one of the file's, which says of it that every whole row has its default, or null, and a patch
//!    nothing. The default stands in the schema and stays what it is, so that what old rows have in them does.
//! 4. A column that is dropped leaves every group likewise. Files that hold it say so
//!    ([`mycelium_base::Group::dropped`]), for their rows can only be read by a layout that has it; nobody reads it. In
//!    the schema its position stays taken, without a name: no other column is ever at it. A group of the layout that
//!    had no other column goes. Files of such a group cannot be without it, nor go: then it is refused, as for columns
//!    of the key, of indexes and of views.
//! 5. Compactions write what the layout says, so that a file's rows get or lose the column when they are next
//!    rewritten, and nothing that lacks a column, or has one that was dropped, is written again.
//!
//! Columns are known by their positions, in rows as in files, and a new one is the last: packed values of the columns
//! that were there lie as they did. Other row formats say in every value how many columns there are, or how they are
//! called; with them columns cannot change.
//!
//! A scan that asks for a column that some file lacks puts rows together one by one; others read blocks as before.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use mycelium_base::{ColumnSet, Error, ErrorKind, FileNumber, Group, GroupFormat, Result, RowFormatKind, TableId};
use mycelium_encoding::{Column, Schema};
use mycelium_manifest::{
    AddedColumn, DroppedColumn, FileMeta, Layout, LevelLayout, ManifestState, ReplacedTable, TableRecord, Version,
    VersionEdit,
};

use crate::database::{Database, Inner};
use crate::index::IndexDefinition;
use crate::shape::{PLAIN, TableFormats};
use crate::sync::atomic::Ordering;
use crate::table::{Table, TableDefinition, TableShared};
use crate::tree::{OpenFile, Tree};

impl Database {
    /// Adds a column to a typed table, behind the others; rows that are there have its default in it, null if it has
    /// none, at older snapshots too. With a default it may be one that is never null. The default never changes; whole
    /// rows that are written later say themselves what they have in the column.
    ///
    /// On every level of the layout the column joins the column group of the last one outside the primary key;
    /// [`Database::set_layout`] may place it elsewhere. Durable when it returns, as is everything committed before. No
    /// row is rewritten: compactions take the column along.
    ///
    /// Returns the table with its new column, under a new id. What was taken before, handles of the table, of its
    /// indexes and of its views, batches and transactions, is refused with [`ErrorKind::NotFound`] from now on, as if
    /// the table had been dropped: take it anew. Iterators and scans already open go on, without the column. Take
    /// [`Table::packed_layout`] anew, too: rows that are packed by the former one may pass for other rows.
    ///
    /// It flushes all tables, and writers wait meanwhile. Until compactions have rewritten the files that were there,
    /// scans that ask for the column put rows together one by one.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use mycelium_engine::{Database, Durability, Options, ReadOptions, TableOptions};
    /// use mycelium_encoding::{Column, ColumnType, Datum, DatumRef, Schema};
    /// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
    /// # let database = Database::open("example", options)?;
    /// let schema = Schema::parse("id int64 not null, name utf8, primary key (id)")?;
    /// let people = database.create_typed_table("people", schema, TableOptions::default())?;
    /// people.insert_row(&[DatumRef::Int64(1), DatumRef::Utf8("Ada")], Durability::Os)?;
    ///
    /// let people = database.add_column(&people, Column::new("visits", ColumnType::Int32))?;
    /// let row = people.get_row(&[DatumRef::Int64(1)], None, &ReadOptions::default())?;
    /// assert_eq!(row.unwrap()[2], Datum::Null);
    /// people.patch_row(&[DatumRef::Int64(1)], &[("visits", DatumRef::Int32(1))], Durability::Os)?;
    ///
    /// let active = Column::new("active", ColumnType::Bool).not_null().with_default(Datum::Bool(true));
    /// let people = database.add_column(&people, active)?;
    /// let row = people.get_row(&[DatumRef::Int64(1)], None, &ReadOptions::default())?;
    /// assert_eq!(row.unwrap()[2..], [Datum::Int32(1), Datum::Bool(true)]);
    /// # Ok::<(), mycelium_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a column that may not be null and has no default, a default that it cannot
    /// hold, a name that there is or that cannot be, a column too many, a table of bytes, and while an index of the
    /// table is being built;
    /// [`ErrorKind::Unsupported`] if its rows are not packed, its layout or a file has groups of another format than
    /// packed and columnar, it has `group_formats` or transformers, or a flat-map that feeds an index would read other
    /// columns. See [`Database`] for the others.
    pub fn add_column(&self, table: &Table, column: Column) -> Result<Table> {
        self.inner.change_columns(table, |schema| schema.with_column(column))
    }

    /// Drops a column of a typed table: from now on nobody reads what is in it, at older snapshots either. What files
    /// have of it leaves them when compactions next rewrite them; [`Database::compact`] rewrites them all.
    ///
    /// The other columns keep their positions. That of the dropped one stays taken: whole rows are written and read
    /// with a value there, which is passed over, and null. Scans without a projection, Arrow schemas and SQL are
    /// without it. A column that is added later under the same name is another column. Otherwise as
    /// [`Database::add_column`].
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no column of this name; [`ErrorKind::InvalidArgument`] for one of the
    /// primary key, the last outside of it, one that an index or a view reads (an index of key columns alone goes with
    /// the first column outside the key), and one that is alone in a column group of the table's files, or by which
    /// alone two groups of files differ: give the table another layout where need be, and compact it; else as
    /// [`Database::add_column`]. The message says what is in the way and what to do.
    pub fn drop_column(&self, table: &Table, name: &str) -> Result<Table> {
        self.inner.change_columns(table, |schema| schema.without_column(name))
    }

    /// Gives a column of a typed table another name. Otherwise as [`Database::add_column`].
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no column `from`; else as [`Database::add_column`].
    pub fn rename_column(&self, table: &Table, from: &str, to: &str) -> Result<Table> {
        self.inner.change_columns(table, |schema| schema.with_name(from, to))
    }
}

/// A table and the one that takes its place.
struct Succession {
    before: Arc<TableShared>,
    after: Arc<TableShared>,
}

impl Inner {
    /// Steps 1 to 3 of the module.
    fn change_columns(
        self: &Arc<Self>,
        table: &Table,
        change: impl FnOnce(&Schema) -> Result<Schema>,
    ) -> Result<Table> {
        self.check_writable()?;
        self.check_own(table)?;
        let schema = change(table.shared.typed_formats()?.schema())?;
        let mut writer = self.commits.writer.lock();
        table.shared.check_alive()?;
        self.empty_memtables(&mut writer)?;
        self.sync_locked(&mut writer)?;
        let mut manifest = self.manifest()?;
        check_may_change(&table.shared)?;
        let replaced_tables = replacements(manifest.state(), &table.shared, &schema)?;
        let edit = VersionEdit { last_sequence: Some(writer.last_sequence), replaced_tables, ..VersionEdit::default() };
        let next = manifest.state().apply(&edit)?;
        let replaced = edit.replaced_tables.iter();
        let made = replaced.map(|replaced| self.succession_of(replaced, &next)).collect::<Result<Vec<_>>>()?;
        self.apply_edit(&mut manifest, edit, &[], &[], |core| {
            for Succession { before, after } in &made {
                core.tables.remove(before.id);
                core.tables.insert(after.clone());
                before.replaced.store(true, Ordering::Release);
            }
        })?;
        let renewed: Vec<TableId> = made.iter().flat_map(|made| [made.before.id, made.after.id]).collect();
        let mut shared = None;
        for Succession { before, after } in made {
            writer.forget_table(before.id);
            writer.tables.insert(after.id);
            // Its files are those of the other: none has become obsolete.
            drop(before.empty_state());
            self.hand_trace_on(&before, &after);
            shared.get_or_insert(after);
        }
        self.locks.wake_all();
        self.renew_derivers(&mut writer, &renewed)?;
        drop(manifest);
        self.wake_background();
        let shared = shared.ok_or_else(|| Error::invalid("nothing takes the table's place"))?;
        Ok(Table { shared, database: self.clone() })
    }

    /// The table that takes another's place, with the same files, as they are open.
    fn succession_of(&self, replaced: &ReplacedTable, next: &ManifestState) -> Result<Succession> {
        let gone = || Error::new(ErrorKind::NotFound, format!("table {} was dropped", replaced.record.name));
        let core = self.core.lock();
        let before = core.tables.get(&replaced.from).cloned().ok_or_else(gone)?;
        let active = core.empty.clone();
        drop(core);
        let version = next.tables.get(&replaced.record.id).ok_or_else(gone)?.version.clone();
        let state = before.state.load_full();
        let held: HashMap<FileNumber, &Arc<OpenFile>> =
            state.tree.all_files().map(|file| (file.meta.number, file)).collect();
        let mut opened: HashMap<FileNumber, Arc<OpenFile>> = HashMap::new();
        let open = |meta: &Arc<FileMeta>| -> Result<Arc<OpenFile>> {
            if let Some(file) = opened.get(&meta.number) {
                return Ok(file.clone());
            }
            let file =
                held.get(&meta.number).ok_or_else(|| Error::invalid(format!("file {} is not open", meta.number)))?;
            let file = file.with_meta(meta.clone());
            opened.insert(meta.number, file.clone());
            Ok(file)
        };
        let tree = |formats: Option<&TableFormats>| Tree::new(version, formats, open);
        let after = Arc::new(TableShared::new(&replaced.record, &self.options, active, tree)?);
        check_reads(&before, &after)?;
        Ok(Succession { before, after })
    }
}

/// Refuses tables whose columns cannot change. The commit lock and the manifest are held, so that nothing of this
/// changes.
fn check_may_change(table: &TableShared) -> Result<()> {
    let refused = |why: &str| {
        Err(Error::new(ErrorKind::Unsupported, format!("the columns of table {} cannot change: {why}", table.name)))
    };
    if table.definition.options.transformers.is_some() {
        return refused("it has transformers. Write its rows into a table that has the columns from the beginning");
    }
    if !table.definition.options.group_formats.is_empty() {
        return refused("its group_formats know its columns as they are. Write its rows into a table that has others");
    }
    let (layout, state) = (table.shape.load().layout.clone(), table.state.load_full());
    let knows_positions =
        |group: &Group| matches!(group.format, GroupFormat::Columnar | GroupFormat::Row(RowFormatKind::Packed));
    let mut in_layout = layout.levels().iter().flat_map(|level| &level.groups);
    let version: &Version = &state.tree.version;
    let files = version.files().map(|(_, _, file)| file).chain(version.buffered_files());
    let mut in_files = files.filter_map(|file| file.group.as_deref());
    if !table.typed_formats()?.is_packed() {
        return refused("its rows are not packed. Write them into a table of packed rows");
    }
    if !in_layout.all(knows_positions) {
        return refused(
            "its layout has groups that are neither packed nor columnar: set another, and compact it first",
        );
    }
    if !in_files.all(knows_positions) {
        return refused("there are still files of rows that are not packed: compact it first");
    }
    match state.indexes.iter().find(|index| !index.status.is_built || index.status.is_unchecked) {
        Some(index) => {
            let name = index.index.name();
            Err(Error::invalid(format!("index {name} of table {} is still being built: wait for it", table.name)))
        }
        None => Ok(()),
    }
}

/// Refuses a flat-map that reads other columns of the changed table, as one does that reads all there are: the entries
/// that it derives would be others than those that its index has, and those of patches that lack the column none.
fn check_reads(before: &TableShared, after: &TableShared) -> Result<()> {
    let reads = |table: &TableShared| table.index.as_ref().map(|index| index.source.columns_read().clone());
    if reads(before) == reads(after) {
        return Ok(());
    }
    let name = before.index.as_ref().map_or(before.name.as_str(), |index| index.name());
    let message = format!("what feeds the index {name} would read other columns then: drop it, and create it after");
    Err(Error::new(ErrorKind::Unsupported, message))
}

/// Refuses to drop a column that something of the table stands on. The commit lock and the manifest are held.
fn check_may_drop(table: &TableShared, dropped: &DroppedColumn) -> Result<()> {
    let column = dropped.column;
    let (state, views, layout) = (table.state.load(), table.views.load(), table.shape.load().layout.clone());
    let formats = table.typed_formats()?;
    let name = &formats.schema().columns()[column].name;
    let refused = |why: String| Err(Error::invalid(format!("column {name:?} of table {}: {why}", table.name)));
    let mut indexes = state.indexes.iter().map(|index| &index.index);
    if let Some(index) = indexes.clone().find(|index| index.source.columns_read().contains(column)) {
        return refused(format!("index {} reads it: drop that first", index.name()));
    }
    // An index of key columns alone knows rows by their numbers in the group of the first column.
    let others = formats.whole.columns();
    if let Some(index) = indexes.find(|index| index.source.fed_by(others).contains(column)) {
        let why = "is of key columns alone, and goes with the first column outside the key";
        return refused(format!("index {} {why}: drop it, and create it after", index.name()));
    }
    if let Some(view) = views.iter().find(|view| view.aggregation.columns_read().contains(column)) {
        return refused(format!("view {} reads it: drop that first", view.name));
    }
    if let Some(expiry) = table.expiry.present().filter(|expiry| expiry.column == *name) {
        return refused(format!("rows expire by {:?}: set another expiry, or none", expiry.column));
    }
    let version: &Version = &state.tree.version;
    let files = version.files().map(|(_, _, file)| file).chain(version.buffered_files());
    let in_files: HashSet<Option<&Group>> = files.map(|file| file.group.as_deref()).collect();
    if in_files.iter().flatten().any(|group| is_alone(column, group)) {
        return refused(match sharing(&layout, column) {
            Some(other) => format!(
                "files have it alone in a column group: set a layout where it shares one, and compact the table first. \
                 Such a layout is\n{}",
                other.to_string().trim_end()
            ),
            None => "files have it alone in a column group, as of an older layout: compact the table first".into(),
        });
    }
    // Runs of a group, and what stands for them in the compaction buffer, are told apart by it.
    let after: HashSet<Option<Group>> = in_files.iter().map(|group| dropped.narrow(*group)).collect();
    if after.len() < in_files.len() {
        return refused("two column groups of files are told apart by it alone: compact the table first".into());
    }
    Ok(())
}

fn is_alone(column: usize, group: &Group) -> bool {
    group.columns.contains(column) && group.columns.len() == 1
}

/// A layout like this one where a column that is alone in groups of it is together with one beside which it lies above
/// them; `None` if it is alone in none.
fn sharing(layout: &Layout, column: usize) -> Option<Layout> {
    let has_alone = |level: &LevelLayout| level.groups.iter().any(|group| is_alone(column, group));
    let at = layout.levels().iter().position(has_alone)?;
    let mut above = layout.level(at.checked_sub(1)?).groups.iter();
    let beside = above.find(|group| group.columns.contains(column))?.columns.iter().find(|other| *other != column)?;
    Some(layout.keeping_together(&[ColumnSet::from_iter([column, beside])]))
}

/// The table that is to have these columns, first, and the derived tables of its indexes.
fn replacements(state: &ManifestState, table: &TableShared, schema: &Schema) -> Result<Vec<ReplacedTable>> {
    let record_of = |table: &TableShared| match state.tables.get(&table.id) {
        Some(state) => Ok(&*state.record),
        None => Err(Error::new(ErrorKind::NotFound, format!("table {} was dropped", table.name))),
    };
    let (formats, record) = (table.typed_formats()?, record_of(table)?);
    let id = TableId(state.next_table_id);
    let added = (schema.columns().len() > formats.schema().columns().len()).then(|| AddedColumn {
        column: formats.schema().columns().len(),
        whole: formats.whole_group(),
        beside: formats.whole.columns().iter().last(),
    });
    let is_dropped = |column: &usize| schema.columns()[*column].is_dropped() && formats.schema().has_column(*column);
    let dropped = (0..formats.schema().columns().len()).find(is_dropped);
    let dropped = dropped.map(|column| DroppedColumn { column, whole: formats.whole_group() });
    if let Some(dropped) = &dropped {
        check_may_drop(table, dropped)?;
    }
    let parsed = |text: &str| Layout::parse(text, formats.whole.columns());
    let layout = match (&added, &dropped, record.layout.as_str()) {
        (None, None, text) | (_, _, text @ PLAIN) => text.to_owned(),
        (Some(added), _, text) => parsed(text)?.with_column(added.column, added.beside).to_string(),
        (None, Some(dropped), text) => parsed(text)?.without_column(dropped.column).to_string(),
    };
    let mut definition = TableDefinition::decode(&record.definition)?;
    if let Some(expiry) = &mut definition.options.expiry {
        expiry.follow_column(formats.schema(), schema);
    }
    definition.schema = Some(schema.clone());
    let record = TableRecord { id, definition: definition.encode(), layout, ..record.clone() };
    let mut replaced = vec![ReplacedTable { from: table.id, record, added, dropped }];
    for (index, derived_id) in table.state.load().indexes.iter().zip(id.0.saturating_add(1)..) {
        let record = record_of(&index.table)?;
        let mut definition = TableDefinition::decode(&record.definition)?;
        let known = index.index.definition(index.index.status());
        definition.index = Some(IndexDefinition { table: id, schema: schema.clone(), ..known });
        let record = TableRecord { id: TableId(derived_id), definition: definition.encode(), ..record.clone() };
        replaced.push(ReplacedTable { from: index.table.id, record, added: None, dropped: None });
    }
    Ok(replaced)
}
