//! Order-preserving keys: the primary key columns of a row as one byte string.
//!
//! Bytewise order of keys is the order of [`DatumRef`], column by column. Each column is coded so that no code is a
//! prefix of another of the same type, and the codes stand back to back:
//!
//! ```text
//! bool                1 byte, 0 or 1
//! uintN               N/8 bytes, big-endian
//! intN, date32,       N/8 bytes, big-endian, sign bit flipped (timestamp: 64 bits, decimal: 128 bits)
//! timestamp, decimal
//! floatN              N/8 bytes, big-endian: sign bit flipped if positive, all bits flipped if negative;
//!                     -0.0 is written as 0.0, every NaN as the positive quiet NaN (so it sorts last)
//! utf8, binary        the bytes with 00 written as 00 FF, then 00 01
//! ```
//!
//! A primary key column is never null. Because codes are prefix-free, the code of the first k columns is a prefix of
//! exactly the keys that have these k values: they are `[prefix, prefix_successor(prefix))`.
//!
//! A column of an index may be null: see [`encode_index_column`].

use mycelium_base::limits::MAX_KEY_LEN;
use mycelium_base::{Error, Result};

use crate::{Column, ColumnType, Datum, DatumRef, Schema};

const ESCAPE: u8 = 0x00;
const ESCAPED_NUL: u8 = 0xff;
const TERMINATOR: u8 = 0x01;

/// Appends the key of `row`, which has one value per column of the schema; only the primary key columns are read.
/// Allocates nothing if `out` has room.
///
/// # Errors
/// [`mycelium_base::ErrorKind::InvalidArgument`]: wrong number of values, wrong type, null, or a key over
/// [`MAX_KEY_LEN`]. `out` may then hold a part.
pub fn encode_row_key(schema: &Schema, row: &[DatumRef<'_>], out: &mut Vec<u8>) -> Result<()> {
    if row.len() != schema.columns().len() {
        return Err(Error::invalid(format!("a row has {} values, not {}", schema.columns().len(), row.len())));
    }
    let start = out.len();
    for &index in schema.primary_key() {
        row[index].check(&schema.columns()[index])?;
        encode_datum(row[index], out);
    }
    check_len(out.len() - start)
}

/// Appends the key of the primary key values `values`, most significant first. See [`encode_row_key`].
///
/// # Errors
/// As [`encode_row_key`].
pub fn encode_key(schema: &Schema, values: &[DatumRef<'_>], out: &mut Vec<u8>) -> Result<()> {
    if values.len() != schema.primary_key().len() {
        return Err(Error::invalid(format!(
            "the primary key has {} columns, not {}",
            schema.primary_key().len(),
            values.len()
        )));
    }
    let start = out.len();
    encode_key_prefix(schema, values, out)?;
    check_len(out.len() - start)
}

/// Appends the prefix that the keys with these values in the first `values.len()` primary key columns share. It may be
/// longer than a key can be: it is a bound all the same, and no key begins with it.
///
/// # Errors
/// [`mycelium_base::ErrorKind::InvalidArgument`]: too many values, wrong type or null. `out` may then hold a part.
pub fn encode_key_prefix(schema: &Schema, values: &[DatumRef<'_>], out: &mut Vec<u8>) -> Result<()> {
    if values.len() > schema.primary_key().len() {
        return Err(Error::invalid(format!(
            "the primary key has only {} columns, not {}",
            schema.primary_key().len(),
            values.len()
        )));
    }
    for (&index, value) in schema.primary_key().iter().zip(values) {
        value.check(&schema.columns()[index])?;
        encode_datum(*value, out);
    }
    Ok(())
}

pub(crate) fn check_len(len: usize) -> Result<()> {
    if len <= MAX_KEY_LEN {
        return Ok(());
    }
    Err(Error::invalid(format!("the key has {len} bytes; at most {MAX_KEY_LEN} are possible")))
}

/// The smallest key after `key`: `key` and a zero byte.
pub fn key_successor(key: &[u8]) -> Vec<u8> {
    let mut successor = Vec::with_capacity(key.len() + 1);
    successor.extend_from_slice(key);
    successor.push(0);
    successor
}

/// The smallest key after every key that starts with `prefix`, or `None` if there is none (`prefix` is empty or all
/// `FF`).
pub fn prefix_successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut successor = prefix[..=last].to_vec();
    successor[last] += 1;
    Some(successor)
}

/// Appends the code of a column of an index. If the column may be null, one byte stands before the value's code: 0 for
/// null, which has no code, and 1 otherwise, so that nulls come first. No code is a prefix of another of the same
/// column.
///
/// # Errors
/// [`mycelium_base::ErrorKind::InvalidArgument`] if the column cannot hold the value.
pub fn encode_index_column(column: &Column, value: DatumRef<'_>, out: &mut Vec<u8>) -> Result<()> {
    value.check(column)?;
    if column.nullable {
        out.push(u8::from(!value.is_null()));
    }
    encode_datum(value, out);
    Ok(())
}

/// Appends the code of one value; null, which no key holds, has none.
#[inline]
pub(crate) fn encode_datum(datum: DatumRef<'_>, out: &mut Vec<u8>) {
    match datum {
        DatumRef::Null => {}
        DatumRef::Bool(v) => out.push(u8::from(v)),
        DatumRef::Int8(v) => out.push(v as u8 ^ 0x80),
        DatumRef::Int16(v) => out.extend_from_slice(&(v as u16 ^ 1 << 15).to_be_bytes()),
        DatumRef::Int32(v) | DatumRef::Date32(v) => out.extend_from_slice(&(v as u32 ^ 1 << 31).to_be_bytes()),
        DatumRef::Int64(v) | DatumRef::Timestamp(v) => out.extend_from_slice(&(v as u64 ^ 1 << 63).to_be_bytes()),
        DatumRef::UInt8(v) => out.push(v),
        DatumRef::UInt16(v) => out.extend_from_slice(&v.to_be_bytes()),
        DatumRef::UInt32(v) => out.extend_from_slice(&v.to_be_bytes()),
        DatumRef::UInt64(v) => out.extend_from_slice(&v.to_be_bytes()),
        DatumRef::Float32(v) => {
            let bits = if v.is_nan() { 0x7fc0_0000 } else { (v + 0.0).to_bits() };
            let flip = if bits >> 31 == 1 { u32::MAX } else { 1 << 31 };
            out.extend_from_slice(&(bits ^ flip).to_be_bytes());
        }
        DatumRef::Float64(v) => {
            let bits = if v.is_nan() { 0x7ff8_0000_0000_0000 } else { (v + 0.0).to_bits() };
            let flip = if bits >> 63 == 1 { u64::MAX } else { 1 << 63 };
            out.extend_from_slice(&(bits ^ flip).to_be_bytes());
        }
        DatumRef::Utf8(v) => encode_bytes(v.as_bytes(), out),
        DatumRef::Binary(v) => encode_bytes(v, out),
        DatumRef::Decimal128(v) => out.extend_from_slice(&(v as u128 ^ 1 << 127).to_be_bytes()),
    }
}

#[inline]
fn encode_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    let mut rest = bytes;
    while let Some(nul) = rest.iter().position(|&byte| byte == ESCAPE) {
        out.extend_from_slice(&rest[..=nul]);
        out.push(ESCAPED_NUL);
        rest = &rest[nul + 1..];
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&[ESCAPE, TERMINATOR]);
}

/// The primary key values of a key, most significant first. Allocates; [`KeyReader`] does not.
///
/// # Errors
/// [`mycelium_base::ErrorKind::Corruption`] unless `key` is exactly what [`encode_key`] writes for some values.
pub fn decode_key(schema: &Schema, key: &[u8]) -> Result<Vec<Datum>> {
    let mut reader = KeyReader::new(key);
    let mut scratch = Vec::new();
    let mut values = Vec::with_capacity(schema.primary_key().len());
    for &index in schema.primary_key() {
        values.push(reader.next(&schema.columns()[index].ty, &mut scratch)?.to_datum());
    }
    reader.finish()?;
    Ok(values)
}

/// The primary key values of a key as text, with commas between: for reading, as a value may have commas of its own.
///
/// # Errors
/// As [`decode_key`].
pub fn key_text(schema: &Schema, key: &[u8]) -> Result<String> {
    let values = decode_key(schema, key)?;
    let types = schema.primary_key().iter().map(|&column| &schema.columns()[column].ty);
    let texts = values.iter().zip(types).map(|(value, ty)| value.borrowed().display_as(ty).to_string());
    Ok(texts.collect::<Vec<_>>().join(","))
}

/// Reads a key column by column.
#[derive(Clone, Copy, Debug)]
pub struct KeyReader<'k> {
    rest: &'k [u8],
    len: usize,
}

impl<'k> KeyReader<'k> {
    /// A reader before the first column of `key`.
    pub fn new(key: &'k [u8]) -> Self {
        Self { rest: key, len: key.len() }
    }

    /// The value of the next column, which is of type `ty`. Text and binary borrow from the key, or from `scratch` if
    /// they hold NUL bytes.
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::Corruption`] if the bytes are no code of such a value.
    #[inline]
    pub fn next<'s>(&mut self, ty: &ColumnType, scratch: &'s mut Vec<u8>) -> Result<DatumRef<'s>>
    where
        'k: 's,
    {
        Ok(match ty {
            ColumnType::Bool => match self.take::<1>()?[0] {
                0 => DatumRef::Bool(false),
                1 => DatumRef::Bool(true),
                other => return Err(self.malformed("a bool", other)),
            },
            ColumnType::Int8 => DatumRef::Int8((self.take::<1>()?[0] ^ 0x80) as i8),
            ColumnType::Int16 => DatumRef::Int16((u16::from_be_bytes(self.take()?) ^ 1 << 15) as i16),
            ColumnType::Int32 => DatumRef::Int32((u32::from_be_bytes(self.take()?) ^ 1 << 31) as i32),
            ColumnType::Int64 => DatumRef::Int64((u64::from_be_bytes(self.take()?) ^ 1 << 63) as i64),
            ColumnType::UInt8 => DatumRef::UInt8(self.take::<1>()?[0]),
            ColumnType::UInt16 => DatumRef::UInt16(u16::from_be_bytes(self.take()?)),
            ColumnType::UInt32 => DatumRef::UInt32(u32::from_be_bytes(self.take()?)),
            ColumnType::UInt64 => DatumRef::UInt64(u64::from_be_bytes(self.take()?)),
            ColumnType::Float32 => DatumRef::Float32(self.float32()?),
            ColumnType::Float64 => DatumRef::Float64(self.float64()?),
            ColumnType::Utf8 => {
                let bytes = self.bytes(scratch)?;
                let text = std::str::from_utf8(bytes);
                DatumRef::Utf8(text.map_err(|e| Error::corruption("text in a key is not UTF-8").caused_by(e))?)
            }
            ColumnType::Binary => DatumRef::Binary(self.bytes(scratch)?),
            ColumnType::Date32 => DatumRef::Date32((u32::from_be_bytes(self.take()?) ^ 1 << 31) as i32),
            ColumnType::Timestamp(..) => DatumRef::Timestamp((u64::from_be_bytes(self.take()?) ^ 1 << 63) as i64),
            ColumnType::Decimal128(..) => {
                let datum = DatumRef::Decimal128((u128::from_be_bytes(self.take()?) ^ 1 << 127) as i128);
                if !datum.is_of(ty) {
                    return Err(self.malformed("a decimal within its precision", datum));
                }
                datum
            }
        })
    }

    /// Passes over so many bytes: of columns of fixed width, whose codes are as wide as their values.
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::Corruption`] if there are not so many.
    #[inline]
    pub(crate) fn pass(&mut self, len: usize) -> Result<()> {
        match self.rest.get(len..) {
            Some(rest) => self.rest = rest,
            None => return Err(self.malformed(format_args!("{len} bytes"), self.rest.len())),
        }
        Ok(())
    }

    /// Passes over a text or binary.
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::Corruption`] if the bytes are no code of one.
    #[inline]
    pub(crate) fn pass_bytes(&mut self) -> Result<()> {
        while self.run()?.1 != TERMINATOR {}
        Ok(())
    }

    /// The value of the next column, which [`encode_index_column`] wrote.
    ///
    /// # Errors
    /// As [`KeyReader::next`].
    pub fn next_index_column<'s>(&mut self, column: &Column, scratch: &'s mut Vec<u8>) -> Result<DatumRef<'s>>
    where
        'k: 's,
    {
        if column.nullable {
            match self.take::<1>()?[0] {
                0 => return Ok(DatumRef::Null),
                1 => {}
                other => return Err(self.malformed("0 or 1 before a column that may be null", other)),
            }
        }
        self.next(&column.ty, scratch)
    }

    /// What was not read yet.
    pub fn rest(&self) -> &'k [u8] {
        self.rest
    }

    /// Fails unless every byte was read.
    pub fn finish(&self) -> Result<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(self.malformed("the end of the key", format_args!("{} more bytes", self.rest.len())))
    }

    #[cold]
    fn malformed(&self, expected: impl std::fmt::Display, found: impl std::fmt::Display) -> Error {
        Error::corruption(format!("malformed key near byte {}", self.len - self.rest.len())).expected(expected, found)
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.rest.split_first_chunk::<N>() {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(*head)
            }
            None => Err(self.malformed(format_args!("{N} bytes"), self.rest.len())),
        }
    }

    /// Only canonical codes are accepted, so that a value has one key.
    fn float32(&mut self) -> Result<f32> {
        let code = u32::from_be_bytes(self.take()?);
        let bits = if code >> 31 == 1 { code ^ 1 << 31 } else { !code };
        let value = f32::from_bits(bits);
        if bits == 1 << 31 || (value.is_nan() && bits != 0x7fc0_0000) {
            return Err(self.malformed("a canonical float", format_args!("{bits:#x}")));
        }
        Ok(value)
    }

    fn float64(&mut self) -> Result<f64> {
        let code = u64::from_be_bytes(self.take()?);
        let bits = if code >> 63 == 1 { code ^ 1 << 63 } else { !code };
        let value = f64::from_bits(bits);
        if bits == 1 << 63 || (value.is_nan() && bits != 0x7ff8_0000_0000_0000) {
            return Err(self.malformed("a canonical float", format_args!("{bits:#x}")));
        }
        Ok(value)
    }

    #[inline]
    fn bytes<'s>(&mut self, scratch: &'s mut Vec<u8>) -> Result<&'s [u8]>
    where
        'k: 's,
    {
        let whole = self.rest;
        let (run, next) = self.run()?;
        if next == TERMINATOR {
            return Ok(&whole[..run]);
        }
        scratch.clear();
        scratch.extend_from_slice(&whole[..=run]);
        loop {
            let part = self.rest;
            let (run, next) = self.run()?;
            scratch.extend_from_slice(&part[..run]);
            if next == TERMINATOR {
                return Ok(scratch);
            }
            scratch.push(0);
        }
    }

    /// Passes the bytes before the next escape and the escape: their number, and the byte after the escape byte.
    #[inline]
    fn run(&mut self) -> Result<(usize, u8)> {
        let Some(nul) = self.rest.iter().position(|&byte| byte == ESCAPE) else {
            return Err(self.malformed("00 01 after text or binary", "the end of the key"));
        };
        match self.rest.get(nul + 1) {
            Some(&next @ (TERMINATOR | ESCAPED_NUL)) => {
                self.rest = &self.rest[nul + 2..];
                Ok((nul, next))
            }
            Some(other) => Err(self.malformed("01 or FF after 00", format_args!("{other:02X}"))),
            None => Err(self.malformed("01 or FF after 00", "the end of the key")),
        }
    }
}
