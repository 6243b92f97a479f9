//! Views as users hold them: created, dropped, listed, found by name.

use std::sync::Arc;

use mycelium_base::{Error, ErrorKind, Result};
use mycelium_encoding::{Aggregate, Aggregation, Schema};
use mycelium_manifest::{TableRecord, VersionEdit};

use super::definition::{LONGEST_NAME, MAX_VIEWS, ViewDefinition, ViewSet};
use super::read::ViewRows;
use crate::database::{Database, Inner};
use crate::read_options::ReadOptions;
use crate::table::{Table, TableDefinition};
use crate::transformers::refuse_with_maps;

/// What a view is to be.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ViewOptions {
    /// Its name, unique among the table's views: 1 to 200 bytes without white space, slashes and NUL.
    pub name: String,
    /// The columns that rows are grouped by, most significant first; none: all rows are one group.
    pub group_by: Vec<String>,
    /// What is computed of each group: `count(*)`, `count(c)`, `sum(c)`, `min(c)`, `max(c)`
    /// (see [`mycelium_encoding::aggregate`]).
    pub aggregates: Vec<String>,
}

impl ViewOptions {
    fn aggregation(&self, schema: &Arc<Schema>) -> Result<Aggregation> {
        let is_bad = |c: char| c.is_whitespace() || "/\0".contains(c);
        if self.name.is_empty() || self.name.len() > LONGEST_NAME || self.name.contains(is_bad) {
            return Err(Error::invalid(format!(
                "a view's name has 1 to {LONGEST_NAME} bytes and no white space, slash or NUL"
            )));
        }
        let position = |column: &String| {
            schema.index_of(column).ok_or_else(|| Error::invalid(format!("there is no column {column}")))
        };
        let group_by = self.group_by.iter().map(position).collect::<Result<_>>()?;
        let aggregates = self.aggregates.iter().map(|text| Aggregate::parse(text, schema)).collect::<Result<_>>()?;
        Aggregation::new(schema.clone(), group_by, aggregates)
    }
}

/// A handle to a materialised view. Cheap to clone; all methods may be called from any thread.
///
/// ```
/// use std::sync::Arc;
/// use mycelium_encoding::{Datum, DatumRef, Schema};
/// use mycelium_engine::{Database, Durability, Options, ReadOptions, TableOptions, ViewOptions};
/// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
/// # let database = Database::open("example", options)?;
/// let schema = Schema::parse("id int64 not null, city utf8, amount decimal(10, 2), primary key (id)")?;
/// let sales = database.create_typed_table("sales", schema, TableOptions::default())?;
/// let options = ViewOptions {
///     name: "by_city".into(),
///     group_by: vec!["city".into()],
///     aggregates: vec!["count(*)".into(), "sum(amount)".into()],
/// };
/// let by_city = database.create_view(&sales, &options)?;
/// for (id, city, cents) in [(1, "Graz", 150), (2, "Linz", 999), (3, "Graz", 250)] {
///     sales.insert_row(&[DatumRef::Int64(id), DatumRef::Utf8(city), DatumRef::Decimal128(cents)], Durability::Os)?;
/// }
/// let found = by_city.read(&ReadOptions::default())?;
/// assert_eq!(found.rows[0].group, [Datum::Utf8("Graz".into())]);
/// assert_eq!(found.rows[0].aggregates, [Datum::Int64(2), Datum::Decimal128(400)]);
/// # Ok::<(), mycelium_engine::Error>(())
/// ```
#[derive(Clone)]
pub struct View {
    table: Table,
    definition: Arc<ViewDefinition>,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View({} of {})", self.name(), self.table.name())
    }
}

impl View {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// The table that it is a view of.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// What is grouped and computed.
    pub fn aggregation(&self) -> &Aggregation {
        &self.definition.aggregation
    }

    /// The groups of the rows within the options' bounds at their snapshot, ascending by group (nulls first), with what
    /// was computed of each. Exact, whatever is in memory or being compacted.
    ///
    /// Costs what must be read: of a file in whose key range nothing else lies, one partial aggregate; of a file into
    /// which others reach, those of the pages and blocks that they miss, and the rows of the blocks that they meet; the
    /// rows of files from before the view, of blocks with several versions or deletes, and of places where column
    /// groups part the view's columns. At worst a scan. A range costs its part of it, and the rows of two blocks more.
    /// Memory: the groups.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the view was dropped; [`ErrorKind::InvalidArgument`] for a sum of more than 38
    /// digits, or for more groups than `memory_budget` holds (16 MiB at least): ask for a range.
    pub fn read(&self, options: &ReadOptions) -> Result<ViewRows> {
        let is_there = self.table.shared.views.load().iter().any(|view| view.id == self.definition.id);
        if !is_there {
            return Err(Error::new(ErrorKind::NotFound, format!("the view {} was dropped", self.name())));
        }
        self.table.database.read_view(&self.table.shared, &self.definition, options)
    }
}

impl Table {
    /// Its views, in order of creation.
    pub fn views(&self) -> Vec<View> {
        let views = self.shared.views.load();
        views.iter().map(|definition| View { table: self.clone(), definition: definition.clone() }).collect()
    }

    /// The view with this name; [`ErrorKind::NotFound`] if there is none.
    pub fn view(&self, name: &str) -> Result<View> {
        match self.shared.views.load().named(name) {
            Some(definition) => Ok(View { table: self.clone(), definition: definition.clone() }),
            None => Err(Error::new(ErrorKind::NotFound, format!("table {} has no view {name}", self.name()))),
        }
    }
}

impl Database {
    /// Creates a materialised view of a typed table. Durable when it returns, and exact from the first moment: rows
    /// that are there already are read until compactions have rewritten their files ([`Database::compact`] does so at
    /// once).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`]: a table of bytes, a name that is taken or none, unknown columns, a sum of what
    /// is no number; [`ErrorKind::Unsupported`]: a table whose transformers map values.
    pub fn create_view(&self, table: &Table, options: &ViewOptions) -> Result<View> {
        self.inner.create_view(table, options)
    }

    /// Drops a view. Durable when it returns. Its partial aggregates go with the files that they are in.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the table has no such view.
    pub fn drop_view(&self, table: &Table, name: &str) -> Result<()> {
        self.inner.change_views(table, |views| match views.remove(name) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::NotFound, format!("table {} has no view {name}", table.name()))),
        })
    }
}

impl Inner {
    fn create_view(&self, table: &Table, options: &ViewOptions) -> Result<View> {
        let formats = table.shared.typed_formats()?;
        if formats.maps().is_some() {
            return Err(refuse_with_maps("no view", table.name()));
        }
        let aggregation = Arc::new(options.aggregation(formats.schema())?);
        aggregation.input(&formats.whole)?;
        let definition = self.change_views(table, |views| {
            if views.named(&options.name).is_some() {
                return Err(Error::invalid(format!("table {} has a view {} already", table.name(), options.name)));
            }
            if views.iter().count() == MAX_VIEWS {
                return Err(Error::invalid(format!("a table has at most {MAX_VIEWS} views")));
            }
            Ok(views.add(&options.name, aggregation))
        })?;
        Ok(View { table: table.clone(), definition })
    }

    /// Changes the views of a table, in the manifest first. Files that are being written keep those they began with.
    fn change_views<T>(&self, table: &Table, change: impl FnOnce(&mut ViewSet) -> Result<T>) -> Result<T> {
        self.check_writable()?;
        self.check_own(table)?;
        let mut manifest = self.manifest()?;
        table.shared.check_alive()?;
        let Some(state) = manifest.state().tables.get(&table.id()) else {
            return Err(Error::new(ErrorKind::NotFound, format!("table {} was dropped", table.name())));
        };
        let mut definition = TableDefinition::decode(&state.record.definition)?;
        let changed = change(&mut definition.views)?;
        let record = TableRecord { definition: definition.encode(), ..TableRecord::clone(&state.record) };
        let edit = VersionEdit { changed_tables: vec![record], ..VersionEdit::default() };
        let views = Arc::new(definition.views);
        self.apply_edit(&mut manifest, edit, &[], &[], |_| table.shared.views.store(views))?;
        Ok(changed)
    }
}
