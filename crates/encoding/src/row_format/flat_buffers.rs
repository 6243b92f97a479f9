//! The row format `flatbuffers`: one table of a type that a binary schema (`.bfbs`) gives at run time.
//!
//! A column outside the primary key is the field of its name. What type of field it may be, by its type; an integer
//! field may be wider than its column, never narrower:
//!
//! ```text
//! bool                bool
//! int8 ... int64      byte, short, int, long
//! uint8 ... uint64    ubyte, ushort, uint, ulong
//! float32 / float64   float / double
//! utf8 / binary       string / [ubyte] or [byte]
//! date32              int, long: days since 1970-01-01
//! timestamp           long: ticks of the column's unit
//! decimal             string: what `datum_text` prints and reads, 123.45
//! ```
//!
//! Deprecated fields are refused when the table is made, so are required fields of columns that may be null and
//! required fields that are no columns.
//!
//! The bytes, as far as they are used (<https://flatbuffers.dev/internals>), all little-endian; positions count from
//! the first byte of the payload:
//!
//! ```text
//! 0        u32   position of the table
//! 4        4 bytes, the file identifier, if the schema declares one: written, not asked for
//! vtable   u16 bytes of the vtable, u16 bytes of the table, u16 per field: where it stands in the table, 0 if nowhere
//! table    i32   the table's position minus the vtable's
//!          ...   numbers, and u32 distances from themselves to strings and vectors
//! vector   u32   bytes, then the bytes; a string has a NUL behind
//! ```
//!
//! Written canonically: the vtable first, fields by descending width and then ascending id, strings and vectors in that
//! order behind, everything aligned to its width.
//!
//! Rules, so that nothing is lost silently:
//!
//! - *Unknown fields* (entries of the vtable that are no columns; the key is given beside the row) are refused.
//! - *Duplicate fields* cannot be said.
//! - *Numbers* must be in the range of their column, a bool is 0 or 1, floats keep their bits, decimals must be exact.
//! - *Text* must be UTF-8, and a string must have its NUL behind; NUL may also stand inside.
//! - *Nesting*: no column holds a table, a struct or a union, so nothing recurses.
//! - *Trailing bytes*: up to 15 zero bytes may stand behind the last byte that is reached. Gaps elsewhere are not
//!   looked at: FlatBuffers cannot tell padding from garbage.
//! - *Absent, null, default*: the field's default is what a number that is not declared `= null` has where it is not in
//!   the table. Where another field is not in the table, the column is null in a whole row, absent in a patch. What is
//!   null or absent though its field has a default is said beside the payload, by the caller ([`super::Covers`]) and by
//!   the frame ([`super::frame`]).
//!
//! A user's bytes are kept as written, and read where they stand: a column of a whole row is two loads away.

use flatbuffers_reflection::reflection::{self, BaseType};
use mycelium_base::{Error, Result};

use super::codec::Codec;
use super::number::{integer_shape, narrow, parse_fixed, print, widen};
use super::span::{Fault, Piece, Pieces, Scan, Span};
use crate::{Column, ColumnType, DatumRef, Schema};

const OFFSET_LEN: usize = 4;
const VTABLE_HEADER_LEN: usize = 4;
/// The last entry of a vtable whose length fits its 16 bits.
const MAX_SLOT: usize = 65_532;
/// The most padding behind the last vector.
const MAX_TAIL: usize = 15;

/// How a field is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    Bool,
    Integer { width: usize, signed: bool },
    Float,
    Double,
    Text,
    Bytes,
    DecimalText,
}

impl Shape {
    fn of(base: BaseType, element: BaseType, ty: &ColumnType) -> Option<Self> {
        let integer = |width, signed| Self::Integer { width, signed };
        let shape = match base {
            BaseType::Bool => Self::Bool,
            BaseType::Byte => integer(1, true),
            BaseType::UByte => integer(1, false),
            BaseType::Short => integer(2, true),
            BaseType::UShort => integer(2, false),
            BaseType::Int => integer(4, true),
            BaseType::UInt => integer(4, false),
            BaseType::Long => integer(8, true),
            BaseType::ULong => integer(8, false),
            BaseType::Float => Self::Float,
            BaseType::Double => Self::Double,
            BaseType::String if matches!(ty, ColumnType::Decimal128(..)) => Self::DecimalText,
            BaseType::String => Self::Text,
            BaseType::Vector if matches!(element, BaseType::UByte | BaseType::Byte) => Self::Bytes,
            _ => return None,
        };
        let fits = match shape {
            Self::Bool => *ty == ColumnType::Bool,
            Self::Float => *ty == ColumnType::Float32,
            Self::Double => *ty == ColumnType::Float64,
            Self::Text => *ty == ColumnType::Utf8,
            Self::Bytes => *ty == ColumnType::Binary,
            Self::DecimalText => true,
            Self::Integer { width, signed } => {
                integer_shape(ty).is_some_and(|(needed, of_column)| width >= needed && signed == of_column)
            }
        };
        fits.then_some(shape)
    }

    /// Bytes in the table.
    fn width(self) -> usize {
        match self {
            Self::Bool => 1,
            Self::Integer { width, .. } => width,
            Self::Float => 4,
            Self::Double => 8,
            Self::Text | Self::Bytes | Self::DecimalText => OFFSET_LEN,
        }
    }

    fn is_variable(self) -> bool {
        matches!(self, Self::Text | Self::Bytes | Self::DecimalText)
    }

    /// Whether a NUL stands behind.
    fn is_string(self) -> bool {
        matches!(self, Self::Text | Self::DecimalText)
    }
}

/// The table type of a table's rows.
#[derive(Debug)]
pub(super) struct FlatBuffers {
    /// By schema position; `None` for the primary key.
    fields: Vec<Option<Field>>,
    /// Columns by descending width, then by slot.
    order: Vec<usize>,
    /// By `slot / 2`: whether that entry of a vtable is a column.
    is_column: Vec<bool>,
    file_identifier: Option<[u8; 4]>,
}

#[derive(Debug)]
struct Field {
    name: Box<str>,
    ty: ColumnType,
    shape: Shape,
    /// Where the field's entry stands in a vtable.
    slot: usize,
    /// Of a number that is not optional.
    default: Option<Box<[u8]>>,
}

impl FlatBuffers {
    /// Reads the binary schema and finds a field for each column of `schema`.
    pub(super) fn new(schema: &Schema, binary_schema: &[u8], table: &str) -> Result<Self> {
        let definition = reflection::root_as_schema(binary_schema)
            .map_err(|e| Error::invalid("the binary FlatBuffers schema is malformed").caused_by(e))?;
        let object = definition
            .objects()
            .iter()
            .find(|object| object.name() == table && !object.is_struct())
            .ok_or_else(|| Error::invalid(format!("the binary FlatBuffers schema has no table \"{table}\"")))?;
        let mut fields: Vec<Option<Field>> = (0..schema.columns().len()).map(|_| None).collect();
        let mut is_column = Vec::new();
        for (position, column) in schema.columns().iter().enumerate() {
            if schema.is_primary_key(position) {
                continue;
            }
            let found =
                object.fields().iter().find(|field| field.name() == column.name).ok_or_else(|| {
                    Error::invalid(format!("table {table} has no field for column \"{}\"", column.name))
                })?;
            let field = Field::new(column, &found)?;
            let entry = field.slot / 2;
            if is_column.len() <= entry {
                is_column.resize(entry + 1, false);
            }
            if std::mem::replace(&mut is_column[entry], true) {
                return Err(Error::invalid(format!("column \"{}\" shares its field's place", column.name)));
            }
            fields[position] = Some(field);
        }
        let is_known = |field: &reflection::Field<'_>| is_column.get(usize::from(field.offset()) / 2) == Some(&true);
        if let Some(field) = object.fields().iter().find(|field| field.required() && !is_known(field)) {
            return Err(Error::invalid(format!("the required field \"{}\" is no column", field.name())));
        }
        let mut order: Vec<usize> = (0..fields.len()).filter(|&column| fields[column].is_some()).collect();
        order.sort_by_key(|&column| fields[column].as_ref().map(|f| (usize::MAX - f.shape.width(), f.slot)));
        let file_identifier = definition.file_ident().and_then(|text| text.as_bytes().try_into().ok());
        let made = Self { fields, order, is_column, file_identifier };
        made.check_defaults()?;
        Ok(made)
    }

    /// A default must be a value of its column: a wider field may have one that is not.
    fn check_defaults(&self) -> Result<()> {
        for &column in &self.order {
            let (Some(field), Some(default)) = (self.field(column), self.default_piece(column)) else { continue };
            if self.decode(column, default, &mut Vec::new()).is_err() {
                let message = format!("the default of field \"{}\" is not a value of type {}", field.name, field.ty);
                return Err(Error::invalid(message));
            }
        }
        Ok(())
    }

    fn field(&self, column: usize) -> Option<&Field> {
        self.fields.get(column).and_then(Option::as_ref)
    }
}

impl Field {
    fn new(column: &Column, found: &reflection::Field<'_>) -> Result<Self> {
        let refuse =
            |why: String| Error::invalid(format!("column \"{}\" cannot be the field of that name: {why}", column.name));
        if found.deprecated() {
            return Err(refuse("the field is deprecated".into()));
        }
        if found.required() && column.nullable {
            return Err(refuse("the field is required, but the column may be null".into()));
        }
        if found.offset64() {
            return Err(refuse("64-bit offsets are not supported".into()));
        }
        let base = found.type_().base_type();
        let shape = Shape::of(base, found.type_().element(), &column.ty)
            .ok_or_else(|| refuse(format!("a field of type {base:?} does not hold values of type {}", column.ty)))?;
        let slot = usize::from(found.offset());
        if !(VTABLE_HEADER_LEN..=MAX_SLOT).contains(&slot) || !slot.is_multiple_of(2) {
            return Err(refuse(format!("its place in the vtable cannot be {slot}")));
        }
        let default: Option<Box<[u8]>> = match shape {
            _ if found.optional() || shape.is_variable() => None,
            Shape::Float => Some((found.default_real() as f32).to_le_bytes().into()),
            Shape::Double => Some(found.default_real().to_le_bytes().into()),
            _ => Some(found.default_integer().to_le_bytes()[..shape.width()].into()),
        };
        let name = column.name.as_str().into();
        Ok(Self { name, ty: column.ty.clone(), shape, slot, default })
    }
}

/// A payload whose table and vtable were found.
#[derive(Clone, Copy, Debug)]
struct Table<'a> {
    payload: &'a [u8],
    at: usize,
    len: usize,
    vtable: &'a [u8],
    vtable_at: usize,
}

#[inline]
fn read_u16(bytes: &[u8], at: usize) -> Result<usize, Fault> {
    match bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(&bytes) => Ok(usize::from(u16::from_le_bytes(bytes))),
        None => Err(cut_short(bytes.len())),
    }
}

#[inline]
fn read_u32(bytes: &[u8], at: usize) -> Result<usize, Fault> {
    match bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(&bytes) => Ok(u32::from_le_bytes(bytes) as usize),
        None => Err(cut_short(bytes.len())),
    }
}

#[cold]
fn cut_short(at: usize) -> Fault {
    Fault::new(at, "malformed FlatBuffers table: cut short")
}

#[cold]
fn malformed(at: usize, what: &str) -> Fault {
    Fault::new(at, format!("malformed FlatBuffers table: {what}"))
}

impl<'a> Table<'a> {
    fn open(payload: &'a [u8]) -> Result<Self, Fault> {
        let at = read_u32(payload, 0)?;
        let distance = i64::from(read_u32(payload, at)? as u32 as i32);
        let vtable_at = usize::try_from(at as i64 - distance)
            .map_err(|_| malformed(at, "its vtable would stand before the payload"))?;
        let vtable_len = read_u16(payload, vtable_at)?;
        let len = read_u16(payload, vtable_at + 2)?;
        if vtable_len < VTABLE_HEADER_LEN || !vtable_len.is_multiple_of(2) {
            return Err(malformed(vtable_at, "the vtable's length is odd or too small"));
        }
        let Some(vtable) = payload.get(vtable_at..vtable_at + vtable_len) else {
            return Err(malformed(vtable_at, "the vtable is cut short"));
        };
        if len < OFFSET_LEN || payload.len() - at < len {
            return Err(malformed(vtable_at + 2, "the table's length is too small or beyond the payload"));
        }
        Ok(Self { payload, at, len, vtable, vtable_at })
    }

    /// Where the field whose entry is at `slot` stands in the payload; `None` if it is not in the table.
    #[inline]
    fn field_at(&self, slot: usize, width: usize) -> Result<Option<usize>, Fault> {
        let Some(&entry) = self.vtable.get(slot..).and_then(|rest| rest.first_chunk()) else { return Ok(None) };
        match usize::from(u16::from_le_bytes(entry)) {
            0 => Ok(None),
            offset if offset < OFFSET_LEN || offset + width > self.len => {
                Err(malformed(self.vtable_at + slot, "a field stands outside the table"))
            }
            offset => Ok(Some(self.at + offset)),
        }
    }

    /// Where the bytes of the string or vector whose distance stands at `at` start and end.
    #[inline]
    fn vector_at(&self, at: usize, is_string: bool) -> Result<(usize, usize), Fault> {
        let distance = read_u32(self.payload, at)?;
        let start = at.checked_add(distance).and_then(|vector| vector.checked_add(OFFSET_LEN));
        let Some(start) = start.filter(|&start| distance > 0 && start <= self.payload.len()) else {
            return Err(malformed(at, "a vector stands outside the payload"));
        };
        let len = read_u32(self.payload, start - OFFSET_LEN)?;
        let behind = self.payload.len() - start;
        if len > behind || (is_string && self.payload.get(start + len) != Some(&0)) {
            return Err(malformed(start - OFFSET_LEN, "a vector is cut short or a string has no NUL behind"));
        }
        Ok((start, start + len))
    }
}

impl FlatBuffers {
    /// What other readers rely on: alignment, no unknown fields, nothing behind the last byte reached.
    fn check_table(&self, table: &Table<'_>, spans: &[Span]) -> Result<(), Fault> {
        if !table.at.is_multiple_of(4) || !table.vtable_at.is_multiple_of(2) {
            return Err(malformed(table.at, "the table or its vtable is not aligned"));
        }
        for slot in (VTABLE_HEADER_LEN..table.vtable.len()).step_by(2) {
            if read_u16(table.vtable, slot)? != 0 && self.is_column.get(slot / 2) != Some(&true) {
                let message = format!("field {} is no column outside the primary key", (slot - VTABLE_HEADER_LEN) / 2);
                return Err(Fault::new(table.vtable_at + slot, message));
            }
        }
        let mut end = (table.at + table.len).max(table.vtable_at + table.vtable.len());
        for (column, span) in spans.iter().enumerate() {
            let (Span::At { start, end: stop }, Some(field)) = (*span, self.field(column)) else { continue };
            let aligned_to = if field.shape.is_variable() { OFFSET_LEN } else { field.shape.width() };
            if !(start as usize).is_multiple_of(aligned_to) {
                return Err(malformed(start as usize, "it is not aligned").in_column(&field.name));
            }
            end = end.max(stop as usize + usize::from(field.shape.is_string()));
        }
        let tail = table.payload.get(end..).unwrap_or_default();
        match tail.iter().position(|&byte| byte != 0) {
            Some(position) => Err(Fault::new(end + position, "trailing bytes")),
            None if tail.len() > MAX_TAIL => Err(Fault::new(end + MAX_TAIL, "trailing bytes")),
            None => Ok(()),
        }
    }
}

impl Codec for FlatBuffers {
    /// Per wanted column: its entry in the vtable, and for text the vector it points to. O(wanted columns).
    fn scan(&self, payload: &[u8], scan: Scan<'_>, spans: &mut [Span]) -> Result<bool, Fault> {
        let table = Table::open(payload)?;
        let mut find = |column: usize| -> Result<(), Fault> {
            let Some(field) = self.field(column) else { return Ok(()) };
            let width = field.shape.width();
            let Some(at) = table.field_at(field.slot, width)? else { return Ok(()) };
            let (start, end) = match field.shape.is_variable() {
                true => table.vector_at(at, field.shape.is_string()).map_err(|fault| fault.in_column(&field.name))?,
                false => (at, at + width),
            };
            spans[column] = Span::at(start, end);
            Ok(())
        };
        let found = match scan {
            Scan::Trusted(Some(wanted)) => wanted.iter().try_for_each(find),
            Scan::Trusted(None) => self.order.iter().try_for_each(|&column| find(column)),
            Scan::Strict => {
                self.order.iter().try_for_each(|&column| find(column))?;
                self.check_table(&table, spans)
            }
        };
        found.map(|()| false)
    }

    fn decode<'a>(&self, column: usize, piece: &'a [u8], _: &'a mut Vec<u8>) -> Result<DatumRef<'a>, Fault> {
        let Some(field) = self.field(column) else { return Err(Fault::new(0, "no such field")) };
        let text = || std::str::from_utf8(piece).map_err(|e| Fault::new(e.valid_up_to(), "text is not UTF-8"));
        let (width, signed) = match field.shape {
            Shape::Text => return Ok(DatumRef::Utf8(text()?)),
            Shape::Bytes => return Ok(DatumRef::Binary(piece)),
            Shape::DecimalText => {
                return parse_fixed(text()?, &field.ty)
                    .ok_or_else(|| Fault::new(0, format!("not a value of type {}", field.ty)));
            }
            Shape::Bool => {
                return match piece {
                    [bit @ (0 | 1)] => Ok(DatumRef::Bool(*bit == 1)),
                    _ => Err(Fault::new(0, "a bool is 0 or 1")),
                };
            }
            Shape::Float => return Ok(DatumRef::Float32(f32::from_bits(little_endian(piece, 4, false)? as u32))),
            Shape::Double => return Ok(DatumRef::Float64(f64::from_bits(little_endian(piece, 8, false)? as u64))),
            Shape::Integer { width, signed } => (width, signed),
        };
        let value = little_endian(piece, width, signed)?;
        narrow(&field.ty, value).ok_or_else(|| Fault::new(0, format!("{value} is out of the range of {}", field.ty)))
    }

    fn encode(&self, column: usize, datum: DatumRef<'_>, out: &mut Vec<u8>) {
        let Some(field) = self.field(column) else { return };
        match datum {
            DatumRef::Utf8(text) => out.extend_from_slice(text.as_bytes()),
            DatumRef::Binary(bytes) => out.extend_from_slice(bytes),
            DatumRef::Bool(v) => out.push(u8::from(v)),
            DatumRef::Float32(v) => out.extend_from_slice(&v.to_le_bytes()),
            DatumRef::Float64(v) => out.extend_from_slice(&v.to_le_bytes()),
            DatumRef::Decimal128(_) => print(out, format_args!("{}", datum.display_as(&field.ty))),
            integer => {
                let value = widen(integer).unwrap_or_default();
                out.extend_from_slice(&value.to_le_bytes()[..field.shape.width()]);
            }
        }
    }

    fn default_piece(&self, column: usize) -> Option<&[u8]> {
        self.field(column).and_then(|field| field.default.as_deref())
    }

    /// 1. Leave room for the vtable, up to the last field that is there, and pad so that the first field is aligned.
    /// 2. Write the fields in order and their entries; a distance stays 0.
    /// 3. Write strings and vectors in order, each distance when its end is known.
    fn emit(&self, pieces: &Pieces<'_>, out: &mut Vec<u8>) {
        let present = |column: usize| match (pieces.get(column), self.field(column)) {
            (Piece::Bytes(bytes), Some(field)) => Some((field, bytes)),
            _ => None,
        };
        let start = out.len();
        let fields = || self.order.iter().filter_map(|&column| present(column));
        let (mut vtable_len, mut widest) = (VTABLE_HEADER_LEN, OFFSET_LEN);
        for (field, _) in fields() {
            vtable_len = vtable_len.max(field.slot + 2);
            widest = widest.max(field.shape.width());
        }
        out.resize(start + OFFSET_LEN, 0);
        out.extend_from_slice(self.file_identifier.as_ref().map_or(&[], |identifier| &identifier[..]));
        let vtable = out.len();
        out.resize(vtable + vtable_len, 0);
        while !(out.len() - start).is_multiple_of(4) || (widest == 8 && (out.len() - start) % 8 != 4) {
            out.push(0);
        }
        let table = out.len();
        out.extend_from_slice(&((table - vtable) as u32).to_le_bytes());
        for (field, bytes) in fields() {
            let entry = (out.len() - table) as u16;
            out[vtable + field.slot..vtable + field.slot + 2].copy_from_slice(&entry.to_le_bytes());
            match field.shape.is_variable() {
                true => out.extend_from_slice(&[0; OFFSET_LEN]),
                false => out.extend_from_slice(bytes),
            }
        }
        let table_len = (out.len() - table) as u16;
        out[vtable..vtable + 2].copy_from_slice(&(vtable_len as u16).to_le_bytes());
        out[vtable + 2..vtable + 4].copy_from_slice(&table_len.to_le_bytes());
        out[start..start + OFFSET_LEN].copy_from_slice(&((table - start) as u32).to_le_bytes());
        for (field, bytes) in fields().filter(|(field, _)| field.shape.is_variable()) {
            while !(out.len() - start).is_multiple_of(OFFSET_LEN) {
                out.push(0);
            }
            let entry = vtable + field.slot;
            let at = table + usize::from(u16::from_le_bytes([out[entry], out[entry + 1]]));
            let distance = (out.len() - at) as u32;
            out[at..at + OFFSET_LEN].copy_from_slice(&distance.to_le_bytes());
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
            if field.shape.is_string() {
                out.push(0);
            }
        }
    }
}

/// The integer of `width` bytes.
fn little_endian(piece: &[u8], width: usize, signed: bool) -> Result<i128, Fault> {
    if piece.len() != width {
        return Err(Fault::new(0, "a field is cut short"));
    }
    let fill = if signed && piece.last().is_some_and(|&byte| byte >= 0x80) { 0xff } else { 0 };
    let mut bytes = [fill; 16];
    bytes[..width].copy_from_slice(piece);
    Ok(i128::from_le_bytes(bytes))
}
