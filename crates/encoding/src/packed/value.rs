//! A value as the bytes of its slot, or of its variable column.

#[cfg(doc)]
use mycelium_base::ErrorKind;
use mycelium_base::{Error, Result};

#[cfg(doc)]
use super::PackedRow;
use super::{PackedLayout, cut_short};
use crate::{ColumnType, DatumRef};

impl PackedLayout {
    /// The value of a column of fixed width, from the bytes that [`PackedRow::slot`] is the place of.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the column does not exist, [`ErrorKind::Corruption`] if the bytes are not such
    /// a value.
    #[inline]
    pub fn slot_value<'a>(&self, column: usize, slot: &'a [u8]) -> Result<DatumRef<'a>> {
        let known = self.schema.columns().get(column);
        decode_datum(&known.ok_or_else(|| Error::invalid(format!("there is no column {column}")))?.ty, slot)
    }
}

/// Appends the slot or the bytes of a value.
#[inline]
pub(crate) fn put_datum(datum: DatumRef<'_>, out: &mut Vec<u8>) {
    match datum {
        DatumRef::Null => {}
        DatumRef::Bool(v) => out.push(u8::from(v)),
        DatumRef::Int8(v) => out.push(v as u8),
        DatumRef::Int16(v) => out.extend_from_slice(&v.to_le_bytes()),
        DatumRef::Int32(v) | DatumRef::Date32(v) => out.extend_from_slice(&v.to_le_bytes()),
        DatumRef::Int64(v) | DatumRef::Timestamp(v) => out.extend_from_slice(&v.to_le_bytes()),
        DatumRef::UInt8(v) => out.push(v),
        DatumRef::UInt16(v) => out.extend_from_slice(&v.to_le_bytes()),
        DatumRef::UInt32(v) => out.extend_from_slice(&v.to_le_bytes()),
        DatumRef::UInt64(v) => out.extend_from_slice(&v.to_le_bytes()),
        DatumRef::Float32(v) => out.extend_from_slice(&v.to_bits().to_le_bytes()),
        DatumRef::Float64(v) => out.extend_from_slice(&v.to_bits().to_le_bytes()),
        DatumRef::Utf8(v) => out.extend_from_slice(v.as_bytes()),
        DatumRef::Binary(v) => out.extend_from_slice(v),
        DatumRef::Decimal128(v) => out.extend_from_slice(&v.to_le_bytes()),
    }
}

/// The value of a slot or of variable bytes.
#[inline]
pub(crate) fn decode_datum<'a>(ty: &ColumnType, bytes: &'a [u8]) -> Result<DatumRef<'a>> {
    Ok(match ty {
        ColumnType::Bool => match array::<1>(bytes)?[0] {
            0 => DatumRef::Bool(false),
            1 => DatumRef::Bool(true),
            other => return Err(Error::corruption("malformed bool in a packed row").expected("0 or 1", other)),
        },
        ColumnType::Int8 => DatumRef::Int8(i8::from_le_bytes(array(bytes)?)),
        ColumnType::Int16 => DatumRef::Int16(i16::from_le_bytes(array(bytes)?)),
        ColumnType::Int32 => DatumRef::Int32(i32::from_le_bytes(array(bytes)?)),
        ColumnType::Int64 => DatumRef::Int64(i64::from_le_bytes(array(bytes)?)),
        ColumnType::UInt8 => DatumRef::UInt8(array::<1>(bytes)?[0]),
        ColumnType::UInt16 => DatumRef::UInt16(u16::from_le_bytes(array(bytes)?)),
        ColumnType::UInt32 => DatumRef::UInt32(u32::from_le_bytes(array(bytes)?)),
        ColumnType::UInt64 => DatumRef::UInt64(u64::from_le_bytes(array(bytes)?)),
        ColumnType::Float32 => DatumRef::Float32(f32::from_le_bytes(array(bytes)?)),
        ColumnType::Float64 => DatumRef::Float64(f64::from_le_bytes(array(bytes)?)),
        ColumnType::Utf8 => DatumRef::Utf8(
            std::str::from_utf8(bytes)
                .map_err(|e| Error::corruption("text in a packed row is not UTF-8").caused_by(e))?,
        ),
        ColumnType::Binary => DatumRef::Binary(bytes),
        ColumnType::Date32 => DatumRef::Date32(i32::from_le_bytes(array(bytes)?)),
        ColumnType::Timestamp(..) => DatumRef::Timestamp(i64::from_le_bytes(array(bytes)?)),
        ColumnType::Decimal128(..) => DatumRef::Decimal128(i128::from_le_bytes(array(bytes)?)),
    })
}

#[inline]
pub(crate) fn array<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| cut_short(N, bytes.len()))
}
