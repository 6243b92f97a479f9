//! The values of column groups: reading them, writing them, and taking them from one group and format to another.
//!
//! In a file of a group a packed value is one of the group's columns alone, as if the table had no others. In any other
//! row format it is a value of the table in which the other columns are absent. What goes into a columnar file and
//! comes out of it is packed.
//!
//! How a value becomes one of another group and format is [`mycelium_encoding::Reshape`]'s.

use std::sync::Arc;

use mycelium_base::{ColumnSet, Error, ErrorKind, Group, GroupFormat, Result};
use mycelium_encoding::row_format::RowScratch;
use mycelium_encoding::{ColumnState, FragmentFormat, RowFormat, RowFormatKind, Schema};

/// The columns of a table and its row formats, with the definitions that some of them need. Cheap to share; immutable.
///
/// ```
/// use std::sync::Arc;
/// use mycelium_encoding::{RowFormatKind, Schema};
/// use mycelium_transform::Formats;
///
/// let formats = Formats::new(Arc::new(Schema::parse("id int64 not null, a int32, b utf8, primary key (id)")?));
/// assert_eq!(formats.columns().to_string(), "1-2");
/// assert!(formats.get(RowFormatKind::Json).is_ok());
/// let refused = formats.get(RowFormatKind::Protobuf).unwrap_err();
/// assert!(refused.to_string().contains("protobuf"));
/// # Ok::<(), mycelium_base::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Formats {
    schema: Arc<Schema>,
    columns: ColumnSet,
    formats: Vec<RowFormat>,
}

impl Formats {
    /// The formats that need no definition: packed, JSON and, if the schema allows it, raw.
    pub fn new(schema: Arc<Schema>) -> Self {
        let columns = schema.value_columns();
        let mut formats = vec![RowFormat::packed(schema.clone()), RowFormat::json(schema.clone())];
        formats.extend(RowFormat::raw(schema.clone()));
        Self { schema, columns, formats }
    }

    /// These and one more; one of the same kind is replaced.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if it is a format of another schema.
    pub fn with(mut self, format: RowFormat) -> Result<Self> {
        if format.schema() != &self.schema {
            return Err(Error::invalid(format!("the {} format is one of another schema", format.kind())));
        }
        self.formats.retain(|known| known.kind() != format.kind());
        self.formats.push(format);
        Ok(self)
    }

    /// The schema.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The columns outside the primary key: what groups are made of.
    pub fn columns(&self) -> &ColumnSet {
        &self.columns
    }

    /// The format of a kind.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the table has no definition for it, or its columns cannot be written so.
    pub fn get(&self, kind: RowFormatKind) -> Result<&RowFormat> {
        self.formats.iter().find(|format| format.kind() == kind).ok_or_else(|| {
            Error::invalid(match kind {
                RowFormatKind::Raw => "raw rows need exactly one column outside the primary key, and binary".to_owned(),
                _ => format!("the table has no definition of its rows in {kind}"),
            })
        })
    }

    /// The values of a group.
    ///
    /// # Errors
    /// As [`Formats::get`]; [`ErrorKind::InvalidArgument`] for a column outside [`Formats::columns`], or one that is
    /// said to be dropped and was not; [`ErrorKind::Unsupported`] for a group that lacks columns, or has some that were
    /// dropped, and is not packed.
    pub fn values(&self, group: &Group) -> Result<GroupValues> {
        let unknown = group.columns.difference(&self.columns);
        if !unknown.is_empty() {
            return Err(Error::invalid(format!("group {group}: the table has no columns {unknown} outside its key")));
        }
        let was_dropped = |column: usize| self.schema.columns().get(column).is_some_and(|known| known.is_dropped());
        if let Some(column) = group.dropped.iter().find(|&column| !was_dropped(column)) {
            return Err(Error::invalid(format!("group {group}: column {column} was not dropped")));
        }
        let fragment = match group.format {
            GroupFormat::Row(kind) if kind != RowFormatKind::Packed && !group.is_as_written() => {
                let message =
                    format!("group {group}: {kind} rows from before the table's columns changed cannot be read");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            GroupFormat::Row(kind) => FragmentFormat::new(group.as_written().columns, self.get(kind)?),
            GroupFormat::Columnar => FragmentFormat::columnar(self.schema.clone(), group.as_written().columns),
        };
        let fragment = fragment.with_dropped(&group.dropped).lacking(&group.lacking);
        Ok(GroupValues { group: group.clone(), fragment })
    }
}

/// How the values of a group are read and written. Cheap to clone; thread-safe.
#[derive(Clone, Debug)]
pub struct GroupValues {
    group: Group,
    fragment: FragmentFormat,
}

impl GroupValues {
    /// The group.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// How its values are written.
    pub fn fragment(&self) -> &FragmentFormat {
        &self.fragment
    }

    /// The table's schema.
    pub fn schema(&self) -> &Arc<Schema> {
        self.fragment.rows().schema()
    }

    /// The columns that are in a value, null or not.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] if it is malformed, [`ErrorKind::Unsupported`] if it is of another format or schema
    /// version.
    pub fn present(&self, value: &[u8], scratch: &mut RowScratch) -> Result<ColumnSet> {
        self.fragment.rows().present(value, scratch)
    }

    /// Shows some columns of a value, ascending; one that the value does not have is absent.
    ///
    /// # Errors
    /// As [`GroupValues::present`]; [`ErrorKind::InvalidArgument`] for a column outside the group; those of `show`.
    pub fn visit(
        &self,
        value: &[u8],
        columns: &ColumnSet,
        scratch: &mut RowScratch,
        show: &mut dyn FnMut(usize, ColumnState<'_>) -> Result<()>,
    ) -> Result<()> {
        if !columns.is_subset(&self.group.columns) || columns.overlaps(&self.group.lacking) {
            let unknown = columns.difference(&self.group.held());
            return Err(Error::invalid(format!("a value of group {} has no columns {unknown}", self.group)));
        }
        self.visit_in_order(value, columns, &mut columns.iter(), scratch, show)
    }

    /// As [`GroupValues::visit`], in an order; `columns` are the same as a set.
    pub(crate) fn visit_in_order(
        &self,
        value: &[u8],
        columns: &ColumnSet,
        order: &mut dyn Iterator<Item = usize>,
        scratch: &mut RowScratch,
        show: &mut dyn FnMut(usize, ColumnState<'_>) -> Result<()>,
    ) -> Result<()> {
        let rows = self.fragment.rows();
        // A column alone is found and read in one pass.
        if columns.len() == 1 {
            for column in order {
                show(column, rows.read_column(value, column, scratch)?)?;
            }
            return Ok(());
        }
        let mut row = rows.read(value, Some(columns), scratch)?;
        for column in order {
            show(column, row.get(column)?)?;
        }
        Ok(())
    }

    /// Appends the value of typed columns; `state` is asked for each column of the group, more than once.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if a column cannot hold its value or the value is too long.
    pub fn encode<'d>(
        &self,
        state: impl Fn(usize) -> ColumnState<'d>,
        scratch: &mut RowScratch,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let Group { columns, lacking, .. } = &self.group;
        let is_held = |column| columns.contains(column) && !lacking.contains(column);
        let of_group = |column| if is_held(column) { state(column) } else { ColumnState::Absent };
        self.fragment.rows().encode_with(of_group, scratch, out)
    }
}
