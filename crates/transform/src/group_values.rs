//! The values of column groups: reading them, writing them, and taking them from one group and format to another.
//!
//! In a file of a group a packed value is one of the group's columns alone, as if the table had no others. In any other
//! format it is a value of the table in which the other columns are absent.
//!
//! [`Reshape`] is what split and convert do to a value, in one call (Mycelium §4.2.2 and §4.2.3; LASER §4.4):
//!
//! | from, to | way |
//! |---|---|
//! | same columns, same format | copy |
//! | packed, packed | [`Projection`]: slots and bytes are copied in a few pieces |
//! | another format, the same | [`RowFormat::project`]: pieces are moved undecoded |
//! | different formats | [`RowFormat::convert`]; a packed value of few columns is widened before and narrowed after |

use std::sync::Arc;

use mycelium_base::{ColumnSet, Error, ErrorKind, Group, GroupFormat, Result};
use mycelium_encoding::row_format::RowScratch;
use mycelium_encoding::{ColumnState, PackedLayout, Projection, RowFormat, RowFormatKind, Schema, join};

use crate::outputs::clear_for_reuse;

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
        let columns = (0..schema.columns().len()).filter(|&column| !schema.is_primary_key(column)).collect();
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
    /// As [`Formats::get`]; [`ErrorKind::InvalidArgument`] for a column outside [`Formats::columns`],
    /// [`ErrorKind::Unsupported`] for a columnar group, whose files are not written value by value.
    pub fn values(&self, group: &Group) -> Result<GroupValues> {
        let unknown = group.columns.difference(&self.columns);
        if !unknown.is_empty() {
            return Err(Error::invalid(format!("group {group}: the table has no columns {unknown} outside its key")));
        }
        let GroupFormat::Row(kind) = group.format else {
            let message = format!("group {group}: this version writes no columnar files");
            return Err(Error::new(ErrorKind::Unsupported, message));
        };
        let format = self.get(kind)?.clone();
        let is_whole = group.columns == self.columns;
        let layout = if is_whole || kind != RowFormatKind::Packed {
            format.layout().clone()
        } else {
            Arc::new(PackedLayout::of(self.schema.clone(), &group.columns))
        };
        Ok(GroupValues { group: group.clone(), format, layout, is_whole })
    }
}

/// How the values of a group are read and written. Cheap to clone; thread-safe.
#[derive(Clone, Debug)]
pub struct GroupValues {
    group: Group,
    format: RowFormat,
    /// The layout of packed values; that of whole rows for the other formats.
    layout: Arc<PackedLayout>,
    is_whole: bool,
}

impl GroupValues {
    /// The group.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The table's schema.
    pub fn schema(&self) -> &Arc<Schema> {
        self.layout.schema()
    }

    fn is_packed(&self) -> bool {
        self.format.kind() == RowFormatKind::Packed
    }

    /// The columns that are in a value, null or not.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] if it is malformed, [`ErrorKind::Unsupported`] if it is of another format or schema
    /// version.
    pub fn present(&self, value: &[u8], scratch: &mut RowScratch) -> Result<ColumnSet> {
        if self.is_packed() {
            return Ok(self.layout.row(value)?.present());
        }
        self.format.present(value, scratch)
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
        let unknown = columns.difference(&self.group.columns);
        if !unknown.is_empty() {
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
        if self.is_packed() {
            let row = self.layout.row(value)?;
            for column in order {
                show(column, row.get(column)?)?;
            }
            return Ok(());
        }
        let mut row = self.format.read(value, Some(columns), scratch)?;
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
        if self.is_packed() {
            return self.layout.encode_with(state, out);
        }
        let of_group = |column| if self.group.columns.contains(column) { state(column) } else { ColumnState::Absent };
        self.format.encode_with(of_group, scratch, out)
    }
}

/// Takes values of one group and format to another group within it, and its format.
#[derive(Debug)]
pub(crate) struct Reshape {
    from: GroupValues,
    to: GroupValues,
    way: Way,
    wide: Vec<u8>,
    narrow: Vec<u8>,
}

#[derive(Debug)]
enum Way {
    Copy,
    Project(Projection),
    /// Within one format that is not packed.
    Pick,
    Convert {
        widen: bool,
        narrow: Option<Projection>,
    },
}

impl Reshape {
    pub(crate) fn new(from: GroupValues, to: GroupValues) -> Result<Self> {
        let missing = to.group.columns.difference(&from.group.columns);
        if !missing.is_empty() {
            let message =
                format!("values of {} cannot become values of {}: no columns {missing}", from.group, to.group);
            return Err(Error::invalid(message));
        }
        let way = match (from.is_packed(), to.is_packed()) {
            _ if from.group == to.group => Way::Copy,
            (true, true) => Way::Project(Projection::new(from.layout.clone(), to.layout.clone())?),
            _ if from.format.kind() == to.format.kind() => Way::Pick,
            (from_packed, to_packed) => {
                let narrows = to_packed && !to.is_whole;
                let narrow = narrows.then(|| Projection::new(to.format.layout().clone(), to.layout.clone()));
                Way::Convert { widen: from_packed && !from.is_whole, narrow: narrow.transpose()? }
            }
        };
        Ok(Self { from, to, way, wide: Vec::new(), narrow: Vec::new() })
    }

    pub(crate) fn target(&self) -> &Group {
        &self.to.group
    }

    /// Appends the reshaped value, which must have a column of the target, or be a whole fragment.
    pub(crate) fn apply(&mut self, value: &[u8], scratch: &mut RowScratch, out: &mut Vec<u8>) -> Result<()> {
        let Self { from, to, way, wide, narrow } = self;
        let columns = Some(&to.group.columns).filter(|_| !to.is_whole);
        let has_columns = match way {
            Way::Copy => {
                out.extend_from_slice(value);
                true
            }
            Way::Project(projection) => projection.project(value, out)?,
            Way::Pick => {
                from.format.project(value, &to.group.columns, scratch, out)?;
                true
            }
            Way::Convert { widen, narrow: narrowing } => {
                let value = if *widen { from.widened(value, wide)? } else { value };
                match narrowing {
                    None => {
                        from.format.convert(&to.format, value, columns, scratch, out)?;
                        true
                    }
                    Some(projection) => {
                        clear_for_reuse(narrow);
                        from.format.convert(&to.format, value, columns, scratch, narrow)?;
                        projection.project(narrow, out)?
                    }
                }
            }
        };
        if has_columns {
            return Ok(());
        }
        Err(Error::corruption(format!("a patch has no columns of {}, though it was to be written there", to.group)))
    }
}

impl GroupValues {
    /// A packed value of few columns as one of the whole table, in which the others are absent.
    fn widened<'a>(&self, value: &[u8], wide: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        clear_for_reuse(wide);
        join(self.format.layout(), &[self.layout.row(value)?], wide)?;
        Ok(wide)
    }
}
