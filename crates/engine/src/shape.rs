//! A table's shape: its layout, the policy that follows from it, and the formats of its column groups.
//!
//! The layout may change while the database runs ([`crate::Database::set_layout`]). Files say themselves which column
//! group they hold and how, so that reads never ask the layout; compactions write what it says at the time.

use std::sync::Arc;

use mycelium_base::{ColumnSet, Error, ErrorKind, Group, GroupFormat, Result, RowFormatKind};
use mycelium_compaction::{CompactionPolicy, Deferral, LeveledPolicy, ShapedPolicy, TieredPolicy};
use mycelium_encoding::key::KeyReader;
use mycelium_encoding::row_format::RowScratch;
use mycelium_encoding::{FragmentFormat, PackedLayout, Reshape, RowFormat, Schema};
use mycelium_manifest::{Layout, Merge, Version};
use mycelium_transform::{Formats, Registry};

use crate::options::{Policy, TableOptions, sizes};
use crate::sync::Mutex;
use crate::transformers::TableTransformers;

/// What the manifest says of a key-value table, and said of every table before there were layouts.
pub(crate) const PLAIN: &str = "row(packed)";

/// A layout and what compacts under it.
pub(crate) struct Shape {
    pub(crate) layout: Arc<Layout>,
    /// Where all levels hold whole rows as they came.
    plain: Option<Box<dyn CompactionPolicy>>,
    shaped: ShapedPolicy,
}

impl Shape {
    /// `deferral`: of transformations; not of users' maps, which are made where levels say.
    pub(crate) fn new(layout: Layout, options: &TableOptions, deferral: Option<Deferral>) -> Self {
        let is_plain = is_plain(&layout);
        let plain: Option<Box<dyn CompactionPolicy>> = match &options.policy {
            Policy::Leveled(leveled) if is_plain => Some(Box::new(LeveledPolicy::new(*leveled))),
            Policy::Tiered(tiered) if is_plain => Some(Box::new(TieredPolicy::new(*tiered))),
            _ => None,
        };
        let layout = Arc::new(match options.policy {
            Policy::TwoPhase(_) if is_plain => layout.merged_below(Merge::TwoPhase),
            _ => layout,
        });
        let shaped = ShapedPolicy::new(layout.clone(), sizes(options));
        let shaped = match deferral {
            Some(deferral) => shaped.deferring(deferral),
            None => shaped,
        };
        Self { layout, plain, shaped: shaped.buffering_as(options.buffer) }
    }

    /// The policy for a version: while it holds column groups, one that knows them.
    pub(crate) fn policy(&self, version: &Version) -> &dyn CompactionPolicy {
        match &self.plain {
            Some(plain) if !version.has_groups() => &**plain,
            _ => &self.shaped,
        }
    }

    /// Whether new files may go straight to deep levels.
    pub(crate) fn is_plain(&self) -> bool {
        self.plain.is_some()
    }
}

/// Whether every level holds whole rows as they came, merged as the table's options say.
fn is_plain(layout: &Layout) -> bool {
    let top = &layout.level(0).groups;
    let mut below = layout.levels().iter().skip(1);
    let is_of_rows = top.iter().all(|group| group.format != GroupFormat::Columnar);
    is_of_rows && below.all(|level| level.groups == *top && level.merge == Merge::Leveled)
}

/// The formats of a typed table's rows and column groups.
#[derive(Debug)]
pub(crate) struct TableFormats {
    /// The table's own: of memtables, and of files of whole rows.
    pub(crate) whole: FragmentFormat,
    /// Rows as they are put together for reads.
    pub(crate) packed: FragmentFormat,
    own: RowFormat,
    /// All formats that its column groups may have.
    formats: Formats,
    /// From packed rows to the table's own format, and back.
    to_own: Reshape,
    to_packed: Reshape,
    known: Mutex<Vec<(Arc<Group>, FragmentFormat)>>,
    transformers: Option<TableTransformers>,
}

impl TableFormats {
    pub(crate) fn new(schema: Schema, options: &TableOptions) -> Result<Self> {
        let schema = Arc::new(schema);
        let columns = schema.value_columns();
        let formats = options.formats(schema.clone())?;
        let own = formats.get(options.row_format.kind)?.clone();
        let whole = FragmentFormat::new(columns.clone(), &own);
        let packed = FragmentFormat::packed(schema, columns);
        let (to_own, to_packed) = (packed.reshape(&whole)?, whole.reshape(&packed)?);
        let known = Mutex::new(Vec::new());
        Ok(Self { whole, packed, own, formats, to_own, to_packed, known, transformers: None })
    }

    /// The same with the table's transformers, if it has some.
    ///
    /// # Errors
    /// Those of [`TableTransformers::link`].
    pub(crate) fn with_transformers(mut self, registry: &Registry, options: &TableOptions) -> Result<Self> {
        if let Some(set) = &options.transformers {
            let linked = TableTransformers::link(registry, set, &self.formats, self.whole_group(), options)?;
            self.transformers = Some(linked);
        }
        Ok(self)
    }

    /// The table's transformers, if one of them maps values.
    pub(crate) fn maps(&self) -> Option<&TableTransformers> {
        self.transformers.as_ref().filter(|transformers| transformers.has_maps())
    }

    /// How whole rows that are stored at a level, or in memtables (level 0), are read.
    pub(crate) fn whole_at(&self, level: usize) -> FragmentFormat {
        match self.maps() {
            Some(maps) => maps.format_at(level, &self.whole),
            None => self.whole.clone(),
        }
    }

    /// The table's row format.
    pub(crate) fn rows(&self) -> &RowFormat {
        &self.own
    }

    /// A packed whole row in the table's own format.
    pub(crate) fn stored(&self, packed: Vec<u8>) -> Result<Vec<u8>> {
        convert(&self.to_own, packed)
    }

    /// Appends a packed whole row in the table's own format.
    pub(crate) fn append_stored(&self, packed: &[u8], scratch: &mut RowScratch, out: &mut Vec<u8>) -> Result<()> {
        self.to_own.apply(packed, scratch, out).map(drop)
    }

    /// A whole row of the table's own format, packed.
    pub(crate) fn packed_row(&self, stored: Vec<u8>) -> Result<Vec<u8>> {
        convert(&self.to_packed, stored)
    }

    /// Whether rows are stored packed.
    pub(crate) fn is_packed(&self) -> bool {
        self.own.kind() == RowFormatKind::Packed
    }

    pub(crate) fn schema(&self) -> &Arc<Schema> {
        self.own.schema()
    }

    /// The formats as transformers take them.
    pub(crate) fn for_transformers(&self) -> &Formats {
        &self.formats
    }

    /// The group of whole rows as they come.
    pub(crate) fn whole_group(&self) -> Group {
        Group::new(self.whole.columns().clone(), GroupFormat::Row(self.own.kind()))
    }

    /// Positions of columns in packed whole rows.
    pub(crate) fn packed_layout(&self) -> &Arc<PackedLayout> {
        self.packed.rows().layout()
    }

    /// Refuses a layout by which packed rows are others than the table's.
    pub(crate) fn check_layout(&self, layout: &PackedLayout) -> Result<()> {
        let own = &**self.packed_layout();
        if std::ptr::eq(own, layout) || own == layout {
            return Ok(());
        }
        Err(Error::invalid(
            "rows are packed by a layout of other columns than the table has; take the layout of the table anew",
        ))
    }

    /// Refuses a key that no row of the table can have.
    pub(crate) fn check_key(&self, key: &[u8]) -> Result<()> {
        let (schema, mut reader, mut scratch) = (self.schema(), KeyReader::new(key), Vec::new());
        let columns = schema.primary_key().iter().map(|&column| &schema.columns()[column].ty);
        let mut values = columns.map(|ty| reader.next(ty, &mut scratch).map(drop));
        let read = values.try_for_each(|value| value);
        drop(values);
        read.and_then(|()| reader.finish()).map_err(|e| Error::invalid("a key that no row can have").caused_by(e))
    }

    /// Refuses a value that is no whole row of the table.
    pub(crate) fn check_row(&self, value: &[u8]) -> Result<()> {
        self.own.validate(value)?;
        let lacking = self.whole.columns().difference(&self.own.present(value, &mut RowScratch::default())?);
        if lacking.is_empty() {
            Ok(())
        } else {
            Err(Error::invalid(format!("a whole row lacks the columns {lacking}")))
        }
    }

    /// Refuses a value that is no patch of the table's rows.
    pub(crate) fn check_patch(&self, value: &[u8]) -> Result<()> {
        self.check_takes_patches()?;
        self.own.validate(value)
    }

    /// Refuses patches where rows are raw or mapped as a whole.
    pub(crate) fn check_takes_patches(&self) -> Result<()> {
        if !self.own.takes_patches() {
            return Err(Error::invalid("a table of raw rows takes no patches"));
        }
        if self.maps().is_some_and(|maps| !maps.takes_patches()) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "a transformer of the table maps whole rows only: no patches",
            ));
        }
        Ok(())
    }

    /// The format of a column group; `None` is whole rows.
    pub(crate) fn of(&self, group: Option<&Arc<Group>>) -> Result<FragmentFormat> {
        let Some(group) = group else { return Ok(self.whole.clone()) };
        let mut known = self.known.lock();
        if let Some((_, format)) = known.iter().find(|(known, _)| known == group) {
            return Ok(format.clone());
        }
        let format = self.formats.values(group)?.fragment().clone();
        known.push((group.clone(), format.clone()));
        Ok(format)
    }

    /// The table's row format of this kind.
    pub(crate) fn rows_of_kind(&self, kind: RowFormatKind) -> Result<&RowFormat> {
        self.formats.get(kind)
    }

    /// Refuses a layout that the table's files cannot have.
    pub(crate) fn check(&self, layout: &Layout) -> Result<()> {
        let top = &layout.level(0).groups[0];
        let is_encoded = top.format == GroupFormat::Columnar && self.is_packed();
        if top.columns != *self.whole.columns() || top.format != GroupFormat::Row(self.own.kind()) && !is_encoded {
            return Err(Error::invalid(format!(
                "level 0 of the layout must be the table's own rows: columns {}, {}; or columnar, if these are packed",
                self.whole.columns(),
                self.own.kind()
            )));
        }
        let mapped_from = self.maps().map_or(0, |maps| maps.mapped_from());
        for (number, level) in layout.levels().iter().enumerate() {
            if number < mapped_from && level.groups.iter().any(|group| group.format == GroupFormat::Columnar) {
                let message = format!("level {number} is above a transformer of values, and cannot be columnar");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            for group in &level.groups {
                if group.format == GroupFormat::Row(RowFormatKind::Raw) && self.own.kind() != RowFormatKind::Raw {
                    return Err(Error::invalid(format!(
                        "group {group}: raw rows take no patches, which the table has"
                    )));
                }
                self.of(Some(&Arc::new(group.clone())))?;
            }
        }
        Ok(())
    }

    /// The layout that a table begins with that was given none (decision 0041): that of its transformers; columns below
    /// rows where rows are packed and levels leveled; else whole rows at every level. It is recorded, so that another
    /// default one day leaves the table as it is.
    pub(crate) fn first_layout(&self, policy: &Policy) -> Layout {
        let takes_columns = self.transformers.is_none() && self.is_packed() && !self.whole.columns().is_empty();
        match policy {
            Policy::Leveled(_) if takes_columns => {
                Layout::rows_above_columns(self.whole.columns(), GroupFormat::Row(self.own.kind()))
            }
            _ => self.plain_layout(),
        }
    }

    /// The layout of a table whose record names none: that of its transformers, or whole rows at every level.
    pub(crate) fn plain_layout(&self) -> Layout {
        if let Some(transformers) = &self.transformers {
            return transformers.layout().clone();
        }
        Layout::rows(self.whole.columns(), GroupFormat::Row(self.own.kind()))
    }
}

fn convert(reshape: &Reshape, row: Vec<u8>) -> Result<Vec<u8>> {
    if reshape.is_copy() {
        return Ok(row);
    }
    let mut out = Vec::with_capacity(row.len());
    reshape.apply(&row, &mut RowScratch::default(), &mut out)?;
    Ok(out)
}

/// The layout that a table's record in the manifest gives; `formats` of a typed table.
pub(crate) fn recorded_layout(text: &str, formats: Option<&TableFormats>) -> Result<Layout> {
    match formats {
        None => Ok(Layout::rows(&ColumnSet::first(1), GroupFormat::Row(RowFormatKind::Raw))),
        Some(formats) if text == PLAIN => Ok(formats.plain_layout()),
        Some(formats) => {
            let layout = Layout::parse(text, formats.whole.columns())
                .map_err(|error| Error::corruption("a table's layout in the manifest").caused_by(error))?;
            formats.check(&layout)?;
            Ok(layout)
        }
    }
}
