//! Integers of columns and of fields, which may be wider, by way of `i128`; values that are written as text.

use std::fmt::{self, Write};

use crate::{ColumnType, Datum, DatumRef};

/// The value of an integer column, `None` if it is out of the column's range or the column holds no integers.
#[inline]
pub(super) fn narrow(ty: &ColumnType, value: i128) -> Option<DatumRef<'static>> {
    Some(match ty {
        ColumnType::Int8 => DatumRef::Int8(value.try_into().ok()?),
        ColumnType::Int16 => DatumRef::Int16(value.try_into().ok()?),
        ColumnType::Int32 => DatumRef::Int32(value.try_into().ok()?),
        ColumnType::Int64 => DatumRef::Int64(value.try_into().ok()?),
        ColumnType::UInt8 => DatumRef::UInt8(value.try_into().ok()?),
        ColumnType::UInt16 => DatumRef::UInt16(value.try_into().ok()?),
        ColumnType::UInt32 => DatumRef::UInt32(value.try_into().ok()?),
        ColumnType::UInt64 => DatumRef::UInt64(value.try_into().ok()?),
        ColumnType::Date32 => DatumRef::Date32(value.try_into().ok()?),
        ColumnType::Timestamp(..) => DatumRef::Timestamp(value.try_into().ok()?),
        _ => return None,
    })
}

/// The reverse of [`narrow`].
#[inline]
pub(super) fn widen(datum: DatumRef<'_>) -> Option<i128> {
    Some(match datum {
        DatumRef::Int8(v) => v.into(),
        DatumRef::Int16(v) => v.into(),
        DatumRef::Int32(v) | DatumRef::Date32(v) => v.into(),
        DatumRef::Int64(v) | DatumRef::Timestamp(v) => v.into(),
        DatumRef::UInt8(v) => v.into(),
        DatumRef::UInt16(v) => v.into(),
        DatumRef::UInt32(v) => v.into(),
        DatumRef::UInt64(v) => v.into(),
        _ => return None,
    })
}

/// Bytes and signedness of an integer column's values; `None` for other columns.
pub(super) fn integer_shape(ty: &ColumnType) -> Option<(usize, bool)> {
    let signed = match ty {
        ColumnType::Int8
        | ColumnType::Int16
        | ColumnType::Int32
        | ColumnType::Int64
        | ColumnType::Date32
        | ColumnType::Timestamp(..) => true,
        ColumnType::UInt8 | ColumnType::UInt16 | ColumnType::UInt32 | ColumnType::UInt64 => false,
        _ => return None,
    };
    Some((ty.fixed_width()?, signed))
}

/// The value that `text` spells in a column of fixed width, as [`Datum::parse`] reads it.
pub(super) fn parse_fixed(text: &str, ty: &ColumnType) -> Option<DatumRef<'static>> {
    Some(match Datum::parse(text, ty).ok()? {
        Datum::Date32(v) => DatumRef::Date32(v),
        Datum::Timestamp(v) => DatumRef::Timestamp(v),
        Datum::Decimal128(v) => DatumRef::Decimal128(v),
        _ => return None,
    })
}

struct Sink<'a>(&'a mut Vec<u8>);

impl Write for Sink<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Appends formatted text.
pub(super) fn print(out: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    let written = Sink(out).write_fmt(text);
    debug_assert!(written.is_ok(), "a vector takes all text");
}
