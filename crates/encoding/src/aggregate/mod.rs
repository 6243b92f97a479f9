//! Grouping and aggregating rows, in parts that can be put together: what materialised views are made of.
//!
//! An [`Aggregation`] says which columns group and what is computed of each group; [`Groups`] holds the aggregates of
//! some rows. The aggregates of a table are those of its parts, merged, in whatever parts and order they come: every
//! state is exact, none depends on an order.
//!
//! | aggregate | of | result |
//! |---|---|---|
//! | `count(*)` | rows | `int64` |
//! | `count(c)` | values that are not null | `int64` |
//! | `sum(c)` | integers, decimals | `decimal(38, scale of c)`: exact; more than 38 digits are an error; null if there is no value |
//! | `sum(c)` | floats | `float64`: the exact sum, rounded once; null if there is no value |
//! | `min(c)`, `max(c)` | any type, in the order of [`DatumRef`] | the type of c; null if there is no value |
//!
//! Nulls are values of their own for grouping, and none for all aggregates but `count(*)`. Floats group and compare by
//! the one order that all values have: -0.0 is 0.0, all NaNs are one and greater than all numbers. Sums of floats are
//! not rounded on the way, so that the answer does not depend on where compactions stand (`float_sum`).
//!
//! Without grouping columns all rows are one group, which is there even where there are no rows.

mod float_sum;
mod groups;
mod state;

use std::fmt;
use std::sync::Arc;

use mycelium_base::coding::{Reader, put_varint};
use mycelium_base::{ColumnSet, Error, ErrorKind, Result};

use crate::row_format::RowScratch;
use crate::{Column, ColumnType, DatumRef, FragmentFormat, PackedLayout, PackedRow, Reshape, Schema};

pub use groups::{GroupRow, Groups};

/// The most grouping columns.
pub const MAX_GROUP_COLUMNS: usize = 16;
/// The most aggregates.
pub const MAX_AGGREGATES: usize = 64;

/// One aggregate; columns by position in the schema.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Aggregate {
    /// `count(*)`: rows.
    CountRows,
    /// `count(c)`: rows whose column is not null.
    Count(usize),
    /// `sum(c)`.
    Sum(usize),
    /// `min(c)`.
    Min(usize),
    /// `max(c)`.
    Max(usize),
}

impl Aggregate {
    /// Reads `count(*)`, `count(c)`, `sum(c)`, `min(c)` or `max(c)`, `c` being a column of the schema.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for anything else.
    pub fn parse(text: &str, schema: &Schema) -> Result<Self> {
        let malformed = || Error::invalid(format!("{text:?} is none of count(*), count(c), sum(c), min(c), max(c)"));
        let (function, argument) = text.trim().split_once('(').ok_or_else(malformed)?;
        let argument = argument.strip_suffix(')').ok_or_else(malformed)?.trim();
        if (function, argument) == ("count", "*") {
            return Ok(Self::CountRows);
        }
        let make = match function {
            "count" => Self::Count,
            "sum" => Self::Sum,
            "min" => Self::Min,
            "max" => Self::Max,
            _ => return Err(malformed()),
        };
        let column = schema.index_of(argument);
        Ok(make(column.ok_or_else(|| Error::invalid(format!("there is no column {argument}")))?))
    }

    /// As [`Aggregate::parse`] reads it.
    pub fn to_text(self, schema: &Schema) -> String {
        match self.column().and_then(|column| schema.columns().get(column)) {
            Some(column) => format!("{}({})", self.function(), column.name),
            None => "count(*)".to_owned(),
        }
    }

    /// The column that is read, if one is.
    pub fn column(self) -> Option<usize> {
        match self {
            Self::CountRows => None,
            Self::Count(column) | Self::Sum(column) | Self::Min(column) | Self::Max(column) => Some(column),
        }
    }

    /// The type of the result.
    pub fn result_type(self, schema: &Schema) -> ColumnType {
        match (self, self.column().map(|column| &schema.columns()[column].ty)) {
            (Self::Sum(_), Some(ColumnType::Decimal128(_, scale))) => ColumnType::Decimal128(38, *scale),
            (Self::Sum(_), Some(ColumnType::Float32 | ColumnType::Float64)) => ColumnType::Float64,
            (Self::Sum(_), _) => ColumnType::Decimal128(38, 0),
            (Self::Min(_) | Self::Max(_), Some(ty)) => ty.clone(),
            _ => ColumnType::Int64,
        }
    }

    fn function(self) -> &'static str {
        match self {
            Self::CountRows | Self::Count(_) => "count",
            Self::Sum(_) => "sum",
            Self::Min(_) => "min",
            Self::Max(_) => "max",
        }
    }

    fn tag(self) -> u8 {
        match self {
            Self::CountRows => 0,
            Self::Count(_) => 1,
            Self::Sum(_) => 2,
            Self::Min(_) => 3,
            Self::Max(_) => 4,
        }
    }

    fn of_tag(tag: u8, column: usize) -> Result<Self> {
        Ok(match tag {
            0 => Self::CountRows,
            1 => Self::Count(column),
            2 => Self::Sum(column),
            3 => Self::Min(column),
            4 => Self::Max(column),
            _ => return Err(Error::new(ErrorKind::Unsupported, format!("unknown aggregate {tag}"))),
        })
    }

    fn check(self, schema: &Schema) -> Result<()> {
        let Some(column) = self.column() else { return Ok(()) };
        let Some(column) = schema.columns().get(column).filter(|column| !column.is_dropped()) else {
            return Err(Error::invalid(format!("there is no column {column}")));
        };
        match (self, &column.ty) {
            (Self::Sum(_), ty) if !is_summed(ty) => {
                Err(Error::invalid(format!("column {} of type {ty} has no sum", column.name)))
            }
            _ => Ok(()),
        }
    }
}

fn is_summed(ty: &ColumnType) -> bool {
    use ColumnType::{Decimal128, Float32, Float64, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    matches!(ty, Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 | Float32 | Float64 | Decimal128(..))
}

/// What rows are grouped by, and what is computed of each group. Thread-safe.
///
/// ```
/// use std::sync::Arc;
/// use mycelium_encoding::aggregate::{Aggregate, Aggregation, Groups};
/// use mycelium_encoding::{Datum, DatumRef, FragmentFormat, PackedLayout, Schema, key};
///
/// let schema = Arc::new(Schema::parse("id int64 not null, city utf8, age int32, primary key (id)")?);
/// let aggregates = vec![Aggregate::CountRows, Aggregate::parse("sum(age)", &schema)?];
/// let aggregation = Arc::new(Aggregation::new(schema.clone(), vec![1], aggregates)?);
///
/// let format = FragmentFormat::packed(schema.clone(), schema.value_columns());
/// let mut input = aggregation.input(&format)?;
/// let mut groups = Groups::new(aggregation.clone());
/// for (id, city, age) in [(1, "Graz", 30), (2, "Linz", 40), (3, "Graz", 50)] {
///     let row = [DatumRef::Int64(id), DatumRef::Utf8(city), DatumRef::Int32(age)];
///     let (mut key, mut value) = (Vec::new(), Vec::new());
///     key::encode_row_key(&schema, &row, &mut key)?;
///     PackedLayout::new(schema.clone()).encode_row(&row, &mut value)?;
///     input.add(&key, &value, &mut groups)?;
/// }
/// let rows = groups.rows()?;
/// assert_eq!(rows[0].group, [Datum::Utf8("Graz".into())]);
/// assert_eq!(rows[0].aggregates, [Datum::Int64(2), Datum::Decimal128(80)]);
/// assert_eq!(rows.len(), 2);
/// # Ok::<(), mycelium_base::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Aggregation {
    schema: Arc<Schema>,
    group_by: Vec<usize>,
    aggregates: Vec<Aggregate>,
    columns: ColumnSet,
    reads_key: bool,
}

impl PartialEq for Aggregation {
    fn eq(&self, other: &Self) -> bool {
        (&self.schema, &self.group_by, &self.aggregates) == (&other.schema, &other.group_by, &other.aggregates)
    }
}

impl Aggregation {
    /// Checks the columns.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`]: a column that does not exist or groups twice, no aggregate or one twice, too
    /// many of either, a sum of what is no number.
    pub fn new(schema: Arc<Schema>, group_by: Vec<usize>, aggregates: Vec<Aggregate>) -> Result<Self> {
        if group_by.len() > MAX_GROUP_COLUMNS || aggregates.len() > MAX_AGGREGATES || aggregates.is_empty() {
            return Err(Error::invalid(format!(
                "a view has at most {MAX_GROUP_COLUMNS} grouping columns and 1 to {MAX_AGGREGATES} aggregates"
            )));
        }
        for (at, &column) in group_by.iter().enumerate() {
            let Some(Column { name, .. }) = schema.columns().get(column).filter(|column| !column.is_dropped()) else {
                return Err(Error::invalid(format!("there is no column {column}")));
            };
            if group_by[..at].contains(&column) {
                return Err(Error::invalid(format!("column {name} groups twice")));
            }
        }
        for (at, aggregate) in aggregates.iter().enumerate() {
            aggregate.check(&schema)?;
            if aggregates[..at].contains(aggregate) {
                return Err(Error::invalid(format!("{} is asked for twice", aggregate.to_text(&schema))));
            }
        }
        let read = || group_by.iter().copied().chain(aggregates.iter().filter_map(|aggregate| aggregate.column()));
        let columns = read().filter(|&column| !schema.is_primary_key(column)).collect();
        let reads_key = read().any(|column| schema.is_primary_key(column));
        Ok(Self { schema, group_by, aggregates, columns, reads_key })
    }

    /// The schema of the rows.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The grouping columns, most significant first.
    pub fn group_by(&self) -> &[usize] {
        &self.group_by
    }

    /// The aggregates.
    pub fn aggregates(&self) -> &[Aggregate] {
        &self.aggregates
    }

    /// The columns outside of the primary key that are read.
    pub fn columns_read(&self) -> &ColumnSet {
        &self.columns
    }

    /// The rows of a result as a record batch: the grouping columns, then the aggregates, which are named `sum(c)`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if they are no rows of this aggregation.
    pub fn to_batch(&self, rows: &[GroupRow]) -> Result<arrow_array::RecordBatch> {
        let groups = self.group_by.iter().map(|&column| self.schema.columns()[column].clone());
        let aggregates = self.aggregates.iter().map(|aggregate| {
            let column = Column::new(aggregate.to_text(&self.schema), aggregate.result_type(&self.schema));
            if matches!(aggregate, Aggregate::CountRows | Aggregate::Count(_)) { column.not_null() } else { column }
        });
        let columns: Vec<Column> = groups.chain(aggregates).collect();
        let values = rows.iter().map(|row| row.group.iter().chain(&row.aggregates).map(crate::Datum::borrowed));
        crate::batch::batch_of(&columns, crate::TextArrays::Plain, values)
    }

    /// Appends the stored form: count and positions of grouping columns, then count, kind (u8) and position (0 for
    /// `count(*)`) of aggregates, all others varints.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.group_by.len() as u64);
        self.group_by.iter().for_each(|&column| put_varint(out, column as u64));
        put_varint(out, self.aggregates.len() as u64);
        for aggregate in &self.aggregates {
            out.push(aggregate.tag());
            put_varint(out, aggregate.column().unwrap_or_default() as u64);
        }
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] for malformed bytes, [`ErrorKind::Unsupported`] for aggregates of a later version.
    pub fn decode(schema: Arc<Schema>, reader: &mut Reader<'_>) -> Result<Self> {
        let last = schema.columns().len().saturating_sub(1);
        let group_count = reader.length(MAX_GROUP_COLUMNS)?;
        let group_by = (0..group_count).map(|_| reader.length(last)).collect::<Result<Vec<_>>>()?;
        let aggregate_count = reader.length(MAX_AGGREGATES)?;
        let mut aggregates = Vec::with_capacity(aggregate_count);
        for _ in 0..aggregate_count {
            let tag = reader.u8()?;
            aggregates.push(Aggregate::of_tag(tag, reader.length(last)?)?);
        }
        let malformed = |error| Error::corruption("the columns of an aggregation").caused_by(error);
        Self::new(schema, group_by, aggregates).map_err(malformed)
    }

    /// What reads the rows of a fragment format, which must have all columns that are read.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if it lacks one.
    pub fn input(&self, format: &FragmentFormat) -> Result<AggregationInput> {
        if let Some(layout) = format.packed_layout().filter(|_| self.columns.is_subset(&format.held())) {
            return Ok(self.packed_input(layout));
        }
        let packed = FragmentFormat::packed(self.schema.clone(), self.columns.clone());
        let layout = packed.rows().layout().clone();
        let reshape = format.reshape(&packed)?;
        let reshaped = Reshaped { reshape, layout, scratch: RowScratch::default(), row: Vec::new() };
        Ok(self.input_of(Values::Reshaped(Box::new(reshaped))))
    }

    /// What reads packed rows of this layout, which must have all columns that are read.
    pub fn packed_input(&self, layout: &Arc<PackedLayout>) -> AggregationInput {
        self.input_of(Values::Packed(layout.clone()))
    }

    fn input_of(&self, values: Values) -> AggregationInput {
        let values = if self.columns.is_empty() { Values::Unread } else { values };
        AggregationInput { values, reads_key: self.reads_key, schema: self.schema.clone(), texts: Vec::new() }
    }
}

impl fmt::Display for Aggregation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let aggregates: Vec<String> = self.aggregates.iter().map(|a| a.to_text(&self.schema)).collect();
        write!(f, "{}", aggregates.join(", "))?;
        let groups: Vec<&str> = self.group_by.iter().map(|&column| &*self.schema.columns()[column].name).collect();
        if groups.is_empty() { Ok(()) } else { write!(f, " by {}", groups.join(", ")) }
    }
}

/// Feeds stored rows to [`Groups`]. One thread at a time.
#[derive(Debug)]
pub struct AggregationInput {
    values: Values,
    reads_key: bool,
    schema: Arc<Schema>,
    /// Text and binary columns of a key that hold NUL bytes.
    texts: Vec<Vec<u8>>,
}

#[derive(Debug)]
enum Values {
    /// Nothing but the key is read.
    Unread,
    /// The wanted columns are read where they stand.
    Packed(Arc<PackedLayout>),
    Reshaped(Box<Reshaped>),
}

/// Rows of another format, made packed ones.
#[derive(Debug)]
struct Reshaped {
    reshape: Reshape,
    layout: Arc<PackedLayout>,
    scratch: RowScratch,
    row: Vec<u8>,
}

impl AggregationInput {
    /// Adds a row to the groups of the same aggregation.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] for a malformed row. The groups are then as before.
    pub fn add(&mut self, key: &[u8], value: &[u8], groups: &mut Groups) -> Result<()> {
        let row = match &mut self.values {
            Values::Unread => None,
            Values::Packed(layout) => Some(layout.row(value)?),
            Values::Reshaped(reshaped) => {
                let Reshaped { reshape, layout, scratch, row } = &mut **reshaped;
                row.clear();
                reshape.apply(value, scratch, row)?;
                Some(layout.row(row)?)
            }
        };
        if !self.reads_key {
            return groups.add(|column| of_row(row.as_ref(), column));
        }
        let primary = self.schema.primary_key();
        self.texts.resize_with(primary.len(), Vec::new);
        let mut reader = crate::key::KeyReader::new(key);
        let mut parts: Vec<DatumRef<'_>> = Vec::with_capacity(primary.len());
        for (&column, text) in primary.iter().zip(&mut self.texts) {
            parts.push(reader.next(&self.schema.columns()[column].ty, text)?);
        }
        groups.add(|column| match primary.iter().position(|&part| part == column) {
            Some(at) => Ok(parts[at]),
            None => of_row(row.as_ref(), column),
        })
    }
}

fn of_row<'a>(row: Option<&PackedRow<'a>>, column: usize) -> Result<DatumRef<'a>> {
    match row {
        Some(row) => Ok(row.datum(column)?.unwrap_or(DatumRef::Null)),
        None => Ok(DatumRef::Null),
    }
}
