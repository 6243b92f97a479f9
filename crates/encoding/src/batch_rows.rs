//! The rows of Arrow record batches as keys and packed values: the reverse of [`crate::batch`].
//!
//! The columns of a batch are found by name, and their types checked, once; a row is then encoded cell by cell from the
//! arrays.

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray, PrimitiveArray, RecordBatch, StringArray};
use arrow_buffer::ScalarBuffer;
use mycelium_base::{Error, ErrorKind, Result};

use crate::{ColumnState, ColumnType, DatumRef, PackedLayout, Schema, TimeUnit};

/// The rows of a record batch as keys and packed values.
#[derive(Debug)]
pub struct BatchRows<'a> {
    layout: &'a PackedLayout,
    rows: usize,
    /// By schema column; `None` where the batch lacks it.
    columns: Vec<Option<ColumnReader<'a>>>,
}

impl<'a> BatchRows<'a> {
    /// Finds the columns of the table in `batch`, by name; the batch's types must be those of [`Schema::to_arrow`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`]: a column of another type, one that the table does not have, or no column for one
    /// of the primary key.
    pub fn new(layout: &'a PackedLayout, batch: &'a RecordBatch) -> Result<Self> {
        let schema: &Schema = layout.schema();
        let mut columns: Vec<Option<ColumnReader<'a>>> = (0..schema.columns().len()).map(|_| None).collect();
        for (field, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
            let Some(index) = schema.index_of(field.name()) else {
                return Err(Error::invalid(format!("the table has no column \"{}\"", field.name())));
            };
            let ty = &schema.columns()[index].ty;
            if *field.data_type() != ty.to_arrow() {
                return Err(Error::invalid(format!(
                    "column \"{}\" is of type {ty}, not {}",
                    field.name(),
                    field.data_type()
                )));
            }
            if columns[index].replace(ColumnReader::new(ty, array)?).is_some() {
                return Err(Error::invalid(format!("column \"{}\" appears twice", field.name())));
            }
        }
        for &index in schema.primary_key() {
            if columns[index].is_none() {
                let name = &schema.columns()[index].name;
                return Err(Error::invalid(format!("the batch lacks the primary key column \"{name}\"")));
            }
        }
        Ok(Self { layout, rows: batch.num_rows(), columns })
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Appends the key and the packed value of row `row`; columns that the batch lacks have their defaults, or null.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there is no such row or a column cannot hold its value.
    pub fn encode_row(&self, row: usize, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<()> {
        self.encode_key(row, key)?;
        self.layout.encode_with(|column| self.state(column, row).unwrap_or_else(|| self.default_of(column)), value)
    }

    /// As [`BatchRows::encode_row`], for a patch: columns that the batch lacks are absent.
    ///
    /// # Errors
    /// As [`BatchRows::encode_row`].
    pub fn encode_patch(&self, row: usize, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<()> {
        self.encode_key(row, key)?;
        self.layout.encode_with(|column| self.state(column, row).unwrap_or(ColumnState::Absent), value)
    }

    /// What the batch says of a column; `None` where it lacks it.
    fn state(&self, column: usize, row: usize) -> Option<ColumnState<'a>> {
        self.columns[column].as_ref().map(|reader| reader.get(row).into())
    }

    fn default_of(&self, column: usize) -> ColumnState<'a> {
        self.layout.schema().columns()[column].default_value().into()
    }

    /// As [`BatchRows::encode_row`], of the key alone.
    ///
    /// # Errors
    /// As [`BatchRows::encode_row`].
    pub fn encode_key(&self, row: usize, key: &mut Vec<u8>) -> Result<()> {
        if row >= self.rows {
            return Err(Error::invalid(format!("the batch has no row {row}")));
        }
        let schema = self.layout.schema();
        let start = key.len();
        for &column in schema.primary_key() {
            let datum = self.columns[column].as_ref().map_or(DatumRef::Null, |reader| reader.get(row));
            datum.check(&schema.columns()[column])?;
            crate::key::encode_datum(datum, key);
        }
        crate::key::check_len(key.len() - start)
    }
}

/// An array of one of our types.
#[derive(Debug)]
enum ColumnReader<'a> {
    Bool(&'a BooleanArray),
    Int8(&'a PrimitiveArray<Int8Type>),
    Int16(&'a PrimitiveArray<Int16Type>),
    Int32(&'a PrimitiveArray<Int32Type>),
    Int64(&'a PrimitiveArray<Int64Type>),
    UInt8(&'a PrimitiveArray<UInt8Type>),
    UInt16(&'a PrimitiveArray<UInt16Type>),
    UInt32(&'a PrimitiveArray<UInt32Type>),
    UInt64(&'a PrimitiveArray<UInt64Type>),
    Float32(&'a PrimitiveArray<Float32Type>),
    Float64(&'a PrimitiveArray<Float64Type>),
    Utf8(&'a StringArray),
    Binary(&'a BinaryArray),
    Date32(&'a PrimitiveArray<Date32Type>),
    Timestamp(&'a dyn Array, &'a ScalarBuffer<i64>),
    Decimal128(&'a PrimitiveArray<Decimal128Type>),
}

impl<'a> ColumnReader<'a> {
    fn new(ty: &ColumnType, array: &'a ArrayRef) -> Result<Self> {
        let reader = match ty {
            ColumnType::Bool => array.as_boolean_opt().map(Self::Bool),
            ColumnType::Int8 => array.as_primitive_opt().map(Self::Int8),
            ColumnType::Int16 => array.as_primitive_opt().map(Self::Int16),
            ColumnType::Int32 => array.as_primitive_opt().map(Self::Int32),
            ColumnType::Int64 => array.as_primitive_opt().map(Self::Int64),
            ColumnType::UInt8 => array.as_primitive_opt().map(Self::UInt8),
            ColumnType::UInt16 => array.as_primitive_opt().map(Self::UInt16),
            ColumnType::UInt32 => array.as_primitive_opt().map(Self::UInt32),
            ColumnType::UInt64 => array.as_primitive_opt().map(Self::UInt64),
            ColumnType::Float32 => array.as_primitive_opt().map(Self::Float32),
            ColumnType::Float64 => array.as_primitive_opt().map(Self::Float64),
            ColumnType::Utf8 => array.as_string_opt().map(Self::Utf8),
            ColumnType::Binary => array.as_binary_opt().map(Self::Binary),
            ColumnType::Date32 => array.as_primitive_opt().map(Self::Date32),
            ColumnType::Timestamp(TimeUnit::Second, _) => timestamps::<TimestampSecondType>(array),
            ColumnType::Timestamp(TimeUnit::Millisecond, _) => timestamps::<TimestampMillisecondType>(array),
            ColumnType::Timestamp(TimeUnit::Microsecond, _) => timestamps::<TimestampMicrosecondType>(array),
            ColumnType::Timestamp(TimeUnit::Nanosecond, _) => timestamps::<TimestampNanosecondType>(array),
            ColumnType::Decimal128(..) => array.as_primitive_opt().map(Self::Decimal128),
        };
        reader.ok_or_else(|| Error::new(ErrorKind::InvalidArgument, format!("an array is not of type {ty}")))
    }

    #[inline]
    fn get(&self, row: usize) -> DatumRef<'a> {
        macro_rules! read {
            ($kind:ident, $array:expr) => {
                if $array.is_null(row) { DatumRef::Null } else { DatumRef::$kind($array.value(row)) }
            };
        }
        match *self {
            Self::Bool(array) => read!(Bool, array),
            Self::Int8(array) => read!(Int8, array),
            Self::Int16(array) => read!(Int16, array),
            Self::Int32(array) => read!(Int32, array),
            Self::Int64(array) => read!(Int64, array),
            Self::UInt8(array) => read!(UInt8, array),
            Self::UInt16(array) => read!(UInt16, array),
            Self::UInt32(array) => read!(UInt32, array),
            Self::UInt64(array) => read!(UInt64, array),
            Self::Float32(array) => read!(Float32, array),
            Self::Float64(array) => read!(Float64, array),
            Self::Utf8(array) => read!(Utf8, array),
            Self::Binary(array) => read!(Binary, array),
            Self::Date32(array) => read!(Date32, array),
            Self::Timestamp(array, ticks) => {
                if array.is_null(row) {
                    DatumRef::Null
                } else {
                    DatumRef::Timestamp(ticks[row])
                }
            }
            Self::Decimal128(array) => read!(Decimal128, array),
        }
    }
}

fn timestamps<T: ArrowPrimitiveType<Native = i64>>(array: &ArrayRef) -> Option<ColumnReader<'_>> {
    array.as_primitive_opt::<T>().map(|ticks| ColumnReader::Timestamp(ticks, ticks.values()))
}
