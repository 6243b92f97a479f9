//! Single values: [`Datum`] owns its bytes, [`DatumRef`] borrows them.
//!
//! Order: null before everything; false before true; numbers by value, where -0.0 equals 0.0, and every NaN equals
//! every other NaN and is greater than all numbers; text and binary by bytes, a prefix first. Values of different types
//! are never equal and order by type, so that the order is total. Packed rows keep the bits of a float; keys hold
//! +0.0 for both zeros and one NaN for all of them.

use std::cmp::Ordering;

use mycelium_base::{Error, Result};

use crate::{Column, ColumnType};

/// A borrowed value. `Copy`; 32 bytes.
#[derive(Clone, Copy, Debug)]
pub enum DatumRef<'a> {
    /// SQL null: the column is there and has no value.
    Null,
    /// [`ColumnType::Bool`]
    Bool(bool),
    /// [`ColumnType::Int8`]
    Int8(i8),
    /// [`ColumnType::Int16`]
    Int16(i16),
    /// [`ColumnType::Int32`]
    Int32(i32),
    /// [`ColumnType::Int64`]
    Int64(i64),
    /// [`ColumnType::UInt8`]
    UInt8(u8),
    /// [`ColumnType::UInt16`]
    UInt16(u16),
    /// [`ColumnType::UInt32`]
    UInt32(u32),
    /// [`ColumnType::UInt64`]
    UInt64(u64),
    /// [`ColumnType::Float32`]
    Float32(f32),
    /// [`ColumnType::Float64`]
    Float64(f64),
    /// [`ColumnType::Utf8`]
    Utf8(&'a str),
    /// [`ColumnType::Binary`]
    Binary(&'a [u8]),
    /// [`ColumnType::Date32`]: days since 1970-01-01
    Date32(i32),
    /// [`ColumnType::Timestamp`]: ticks of the column's unit since 1970-01-01T00:00:00
    Timestamp(i64),
    /// [`ColumnType::Decimal128`]: the value times 10^scale of the column
    Decimal128(i128),
}

/// An owned value; see [`DatumRef`], which it borrows as.
#[derive(Clone, Debug)]
pub enum Datum {
    /// See [`DatumRef::Null`].
    Null,
    /// See [`DatumRef::Bool`].
    Bool(bool),
    /// See [`DatumRef::Int8`].
    Int8(i8),
    /// See [`DatumRef::Int16`].
    Int16(i16),
    /// See [`DatumRef::Int32`].
    Int32(i32),
    /// See [`DatumRef::Int64`].
    Int64(i64),
    /// See [`DatumRef::UInt8`].
    UInt8(u8),
    /// See [`DatumRef::UInt16`].
    UInt16(u16),
    /// See [`DatumRef::UInt32`].
    UInt32(u32),
    /// See [`DatumRef::UInt64`].
    UInt64(u64),
    /// See [`DatumRef::Float32`].
    Float32(f32),
    /// See [`DatumRef::Float64`].
    Float64(f64),
    /// See [`DatumRef::Utf8`].
    Utf8(String),
    /// See [`DatumRef::Binary`].
    Binary(Vec<u8>),
    /// See [`DatumRef::Date32`].
    Date32(i32),
    /// See [`DatumRef::Timestamp`].
    Timestamp(i64),
    /// See [`DatumRef::Decimal128`].
    Decimal128(i128),
}

impl Datum {
    /// The borrowed form.
    #[inline]
    pub fn borrowed(&self) -> DatumRef<'_> {
        match self {
            Self::Null => DatumRef::Null,
            Self::Bool(v) => DatumRef::Bool(*v),
            Self::Int8(v) => DatumRef::Int8(*v),
            Self::Int16(v) => DatumRef::Int16(*v),
            Self::Int32(v) => DatumRef::Int32(*v),
            Self::Int64(v) => DatumRef::Int64(*v),
            Self::UInt8(v) => DatumRef::UInt8(*v),
            Self::UInt16(v) => DatumRef::UInt16(*v),
            Self::UInt32(v) => DatumRef::UInt32(*v),
            Self::UInt64(v) => DatumRef::UInt64(*v),
            Self::Float32(v) => DatumRef::Float32(*v),
            Self::Float64(v) => DatumRef::Float64(*v),
            Self::Utf8(v) => DatumRef::Utf8(v),
            Self::Binary(v) => DatumRef::Binary(v),
            Self::Date32(v) => DatumRef::Date32(*v),
            Self::Timestamp(v) => DatumRef::Timestamp(*v),
            Self::Decimal128(v) => DatumRef::Decimal128(*v),
        }
    }
}

impl DatumRef<'_> {
    /// The bytes of a value of fixed width, little-endian; `None` for null, text and bytes.
    #[inline]
    pub fn to_bits(self) -> Option<u128> {
        Some(match self {
            Self::Bool(v) => u128::from(v),
            Self::Int8(v) => v as u128,
            Self::Int16(v) => v as u128,
            Self::Int32(v) | Self::Date32(v) => v as u128,
            Self::Int64(v) | Self::Timestamp(v) => v as u128,
            Self::UInt8(v) => u128::from(v),
            Self::UInt16(v) => u128::from(v),
            Self::UInt32(v) => u128::from(v),
            Self::UInt64(v) => u128::from(v),
            Self::Float32(v) => u128::from(v.to_bits()),
            Self::Float64(v) => u128::from(v.to_bits()),
            Self::Decimal128(v) => v as u128,
            Self::Null | Self::Utf8(_) | Self::Binary(_) => return None,
        })
    }

    /// The owned form.
    pub fn to_datum(self) -> Datum {
        match self {
            Self::Null => Datum::Null,
            Self::Bool(v) => Datum::Bool(v),
            Self::Int8(v) => Datum::Int8(v),
            Self::Int16(v) => Datum::Int16(v),
            Self::Int32(v) => Datum::Int32(v),
            Self::Int64(v) => Datum::Int64(v),
            Self::UInt8(v) => Datum::UInt8(v),
            Self::UInt16(v) => Datum::UInt16(v),
            Self::UInt32(v) => Datum::UInt32(v),
            Self::UInt64(v) => Datum::UInt64(v),
            Self::Float32(v) => Datum::Float32(v),
            Self::Float64(v) => Datum::Float64(v),
            Self::Utf8(v) => Datum::Utf8(v.to_owned()),
            Self::Binary(v) => Datum::Binary(v.to_owned()),
            Self::Date32(v) => Datum::Date32(v),
            Self::Timestamp(v) => Datum::Timestamp(v),
            Self::Decimal128(v) => Datum::Decimal128(v),
        }
    }

    /// Whether this is null.
    #[inline]
    pub fn is_null(self) -> bool {
        matches!(self, Self::Null)
    }

    /// Whether the value is one of type `ty`; null is of every type.
    #[inline]
    pub fn is_of(self, ty: &ColumnType) -> bool {
        match (self, ty) {
            (Self::Null, _)
            | (Self::Bool(_), ColumnType::Bool)
            | (Self::Int8(_), ColumnType::Int8)
            | (Self::Int16(_), ColumnType::Int16)
            | (Self::Int32(_), ColumnType::Int32)
            | (Self::Int64(_), ColumnType::Int64)
            | (Self::UInt8(_), ColumnType::UInt8)
            | (Self::UInt16(_), ColumnType::UInt16)
            | (Self::UInt32(_), ColumnType::UInt32)
            | (Self::UInt64(_), ColumnType::UInt64)
            | (Self::Float32(_), ColumnType::Float32)
            | (Self::Float64(_), ColumnType::Float64)
            | (Self::Utf8(_), ColumnType::Utf8)
            | (Self::Binary(_), ColumnType::Binary)
            | (Self::Date32(_), ColumnType::Date32)
            | (Self::Timestamp(_), ColumnType::Timestamp(..)) => true,
            (Self::Decimal128(v), ColumnType::Decimal128(precision, _)) => decimal_fits(v, *precision),
            _ => false,
        }
    }

    /// Whether the column can hold the value.
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::InvalidArgument`] names the column: wrong type, too many decimal digits, or null
    /// where it may not be.
    #[inline]
    pub fn check(self, column: &Column) -> Result<()> {
        if self.is_of(&column.ty) && (column.nullable || !self.is_null()) { Ok(()) } else { Err(self.misfit(column)) }
    }

    #[cold]
    fn misfit(self, column: &Column) -> Error {
        if self.is_null() {
            return Error::invalid(format!("column \"{}\" may not be null", column.name));
        }
        Error::invalid(format!("column \"{}\" of type {} cannot hold {self:?}", column.name, column.ty))
    }

    fn rank(self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Bool(_) => 1,
            Self::Int8(_) => 2,
            Self::Int16(_) => 3,
            Self::Int32(_) => 4,
            Self::Int64(_) => 5,
            Self::UInt8(_) => 6,
            Self::UInt16(_) => 7,
            Self::UInt32(_) => 8,
            Self::UInt64(_) => 9,
            Self::Float32(_) => 10,
            Self::Float64(_) => 11,
            Self::Utf8(_) => 12,
            Self::Binary(_) => 13,
            Self::Date32(_) => 14,
            Self::Timestamp(_) => 15,
            Self::Decimal128(_) => 16,
        }
    }
}

/// Whether `value` has at most `precision` digits.
pub(crate) fn decimal_fits(value: i128, precision: u8) -> bool {
    match 10u128.checked_pow(u32::from(precision)) {
        Some(bound) => value.unsigned_abs() < bound,
        None => true,
    }
}

fn compare_f64(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

impl Ord for DatumRef<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (*self, *other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(&b),
            (Self::Int8(a), Self::Int8(b)) => a.cmp(&b),
            (Self::Int16(a), Self::Int16(b)) => a.cmp(&b),
            (Self::Int32(a), Self::Int32(b)) | (Self::Date32(a), Self::Date32(b)) => a.cmp(&b),
            (Self::Int64(a), Self::Int64(b)) | (Self::Timestamp(a), Self::Timestamp(b)) => a.cmp(&b),
            (Self::UInt8(a), Self::UInt8(b)) => a.cmp(&b),
            (Self::UInt16(a), Self::UInt16(b)) => a.cmp(&b),
            (Self::UInt32(a), Self::UInt32(b)) => a.cmp(&b),
            (Self::UInt64(a), Self::UInt64(b)) => a.cmp(&b),
            (Self::Float32(a), Self::Float32(b)) => compare_f64(f64::from(a), f64::from(b)),
            (Self::Float64(a), Self::Float64(b)) => compare_f64(a, b),
            (Self::Utf8(a), Self::Utf8(b)) => a.cmp(b),
            (Self::Binary(a), Self::Binary(b)) => a.cmp(b),
            (Self::Decimal128(a), Self::Decimal128(b)) => a.cmp(&b),
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }
}

impl PartialOrd for DatumRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for DatumRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for DatumRef<'_> {}

impl Ord for Datum {
    fn cmp(&self, other: &Self) -> Ordering {
        self.borrowed().cmp(&other.borrowed())
    }
}

impl PartialOrd for Datum {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Datum {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Datum {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_special_values() {
        use DatumRef::*;
        let ascending = [
            Null,
            Bool(false),
            Bool(true),
            Float64(f64::NEG_INFINITY),
            Float64(-f64::MIN_POSITIVE),
            Float64(-5e-324),
            Float64(0.0),
            Float64(5e-324),
            Float64(f64::INFINITY),
            Float64(f64::NAN),
            Utf8(""),
            Utf8("\0"),
            Utf8("a"),
            Utf8("a\0"),
            Utf8("ab"),
            Decimal128(i128::MIN),
            Decimal128(i128::MAX),
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(a.cmp(b), i.cmp(&j), "{a:?} {b:?}");
            }
        }
        assert_eq!(Float64(-0.0), Float64(0.0));
        assert_eq!(Float32(-f32::NAN), Float32(f32::NAN));
        assert_ne!(Null, Utf8(""));
        assert_ne!(Int32(1), Date32(1));
    }

    #[test]
    fn check_names_the_column() {
        let column = Column::new("price", ColumnType::Decimal128(3, 1)).not_null();
        assert!(DatumRef::Decimal128(-999).check(&column).is_ok());
        for bad in [DatumRef::Decimal128(1000), DatumRef::Null, DatumRef::Int64(1)] {
            assert!(bad.check(&column).unwrap_err().to_string().contains("\"price\""));
        }
    }
}
