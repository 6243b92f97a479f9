//! The row format `protobuf`: one message of a type that a descriptor set gives at run time ([`super::descriptor`]).
//!
//! A column outside the primary key is the singular field of its name. What kind of field it may be, by its type; an
//! integer field may be wider than its column, never narrower:
//!
//! ```text
//! bool                bool
//! int8, int16, int32  int32 sint32 sfixed32, int64 sint64 sfixed64
//! uint8 ... uint32    uint32 fixed32, uint64 fixed64
//! int64 / uint64      int64 sint64 sfixed64 / uint64 fixed64
//! float32 / float64   float / double
//! utf8 / binary       string / bytes
//! date32              as int32: days since 1970-01-01
//! timestamp           as int64: ticks of the column's unit
//! decimal             string: what `datum_text` prints and reads, 123.45
//! ```
//!
//! Members of a `oneof` are refused when the table is made (setting one would unset a column of another patch), so are
//! required fields of columns that may be null and required fields that are no columns.
//!
//! What a message is on the wire: [`super::protobuf_wire`].
//!
//! Rules, so that nothing is lost silently:
//!
//! - *Unknown fields* are refused, fields of the message that are no columns among them (the key is given beside the
//!   row).
//! - *Duplicate fields* are refused. Protobuf's readers let the last one win; that would lose the others.
//! - *Numbers* must be in the range of their field and of their column: an `int32` on the wire is not cut to 32 bits, a
//!   `bool` is 0 or 1. Varints may be longer than needed, up to ten bytes and 64 bits. Floats keep their bits.
//! - *Decimals* must be exact in the column's precision and scale. *Text* must be UTF-8.
//! - *Nesting*: no column holds a message or a group, so nothing recurses.
//! - *Trailing bytes*: there are none, the message goes to the end of the payload.
//! - *Absent, null, default*: the field's default is what a field without presence (proto3 without `optional`) has
//!   where it is not on the wire. Where a field with presence is not on the wire, the column is null in a whole row,
//!   absent in a patch. What is null or absent though its field has no presence is said beside the payload, by the
//!   caller ([`super::Covers`]) and by the frame ([`super::frame`]). A proto2 default is no value: it is never filled
//!   in. Neither is the empty string that a decimal without presence would have, for it is no decimal: it is null, or
//!   refused.
//!
//! A user's bytes are kept as written. Splitting and merging rows writes fields by number, and each field's bytes as
//! they were; converting from another format writes the shortest varints and leaves out defaults without presence.

use std::ops::Range;

use mycelium_base::coding::{get_varint, put_varint};
use mycelium_base::{Error, Result};

use super::codec::{Codec, Plain};
use super::descriptor::{FieldDescriptor, FieldKind, fields_of};
use super::number::{integer_shape, narrow, parse_fixed, print, widen};
use super::protobuf_wire::{piece_at, short_varint, varint};
use super::span::{Fault, Piece, Pieces, Scan, Span};
use super::split::{Cuts, NO_PART, PartNumber};
use crate::{Column, ColumnType, DatumRef, Schema};

/// How a field is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wire {
    Bool,
    /// `int32`, `int64`: a varint of the two's complement in 64 bits.
    Signed {
        width: usize,
    },
    /// `uint32`, `uint64`
    Unsigned {
        width: usize,
    },
    /// `sint32`, `sint64`
    ZigZag {
        width: usize,
    },
    /// `fixed32`, `fixed64`, `sfixed32`, `sfixed64`
    Fixed {
        width: usize,
        signed: bool,
    },
    Float,
    Double,
    Text,
    Bytes,
    /// A decimal as text.
    DecimalText,
}

impl Wire {
    fn wire_type(self) -> u32 {
        match self {
            Self::Bool | Self::Signed { .. } | Self::Unsigned { .. } | Self::ZigZag { .. } => 0,
            Self::Double | Self::Fixed { width: 8, .. } => 1,
            Self::Text | Self::Bytes | Self::DecimalText => 2,
            Self::Float | Self::Fixed { .. } => 5,
        }
    }

    /// What a field without presence has where it is not on the wire.
    fn zero(self) -> &'static [u8] {
        match self.wire_type() {
            0 => &[0],
            1 => &[0; 8],
            2 => &[],
            _ => &[0; 4],
        }
    }

    fn of(kind: FieldKind, ty: &ColumnType) -> Option<Self> {
        let wire = match kind {
            FieldKind::Bool => Self::Bool,
            FieldKind::Int32 => Self::Signed { width: 4 },
            FieldKind::Int64 => Self::Signed { width: 8 },
            FieldKind::UInt32 => Self::Unsigned { width: 4 },
            FieldKind::UInt64 => Self::Unsigned { width: 8 },
            FieldKind::SInt32 => Self::ZigZag { width: 4 },
            FieldKind::SInt64 => Self::ZigZag { width: 8 },
            FieldKind::Fixed32 => Self::Fixed { width: 4, signed: false },
            FieldKind::Fixed64 => Self::Fixed { width: 8, signed: false },
            FieldKind::SFixed32 => Self::Fixed { width: 4, signed: true },
            FieldKind::SFixed64 => Self::Fixed { width: 8, signed: true },
            FieldKind::Float => Self::Float,
            FieldKind::Double => Self::Double,
            FieldKind::String if matches!(ty, ColumnType::Decimal128(..)) => Self::DecimalText,
            FieldKind::String => Self::Text,
            FieldKind::Bytes => Self::Bytes,
            FieldKind::Other => return None,
        };
        wire.fits(ty).then_some(wire)
    }

    /// Whether what is written is, bit by bit, what a column of this type holds, whatever it is.
    fn is_plain(self, ty: &ColumnType) -> bool {
        match self {
            Self::Text | Self::Bytes | Self::Float | Self::Double => true,
            Self::Fixed { width, .. } => ty.fixed_width() == Some(width),
            Self::Signed { .. } | Self::Unsigned { .. } => ty.fixed_width() == Some(8),
            Self::Bool | Self::ZigZag { .. } | Self::DecimalText => false,
        }
    }

    fn fits(self, ty: &ColumnType) -> bool {
        let (width, signed) = match self {
            Self::Bool => return *ty == ColumnType::Bool,
            Self::Float => return *ty == ColumnType::Float32,
            Self::Double => return *ty == ColumnType::Float64,
            Self::Text => return *ty == ColumnType::Utf8,
            Self::Bytes => return *ty == ColumnType::Binary,
            Self::DecimalText => return true,
            Self::Signed { width } | Self::ZigZag { width } => (width, true),
            Self::Unsigned { width } => (width, false),
            Self::Fixed { width, signed } => (width, signed),
        };
        integer_shape(ty).is_some_and(|(needed, of_column)| width >= needed && signed == of_column)
    }
}

/// The message type of a table's rows.
#[derive(Debug)]
pub(super) struct Protobuf {
    /// By schema position; `None` for the primary key.
    fields: Vec<Option<Field>>,
    /// Tag and column, ascending by field number.
    by_number: Vec<(u32, usize)>,
    /// By field number, as far as they are below [`MOST_LISTED`]: its place in `by_number`, or [`NO_PLACE`].
    places: Vec<u32>,
}

/// Field numbers below it are looked up, others searched. Most messages have none above.
const MOST_LISTED: u32 = 1024;
const NO_PLACE: u32 = u32::MAX;

#[derive(Debug)]
struct Field {
    name: Box<str>,
    ty: ColumnType,
    wire: Wire,
    has_presence: bool,
    /// Whether its values are, bit by bit, what the column holds.
    is_plain: bool,
    tag: u32,
}

impl Protobuf {
    /// Reads the descriptor set and finds a field for each column of `schema`.
    pub(super) fn new(schema: &Schema, descriptor_set: &[u8], message: &str) -> Result<Self> {
        let declared = fields_of(descriptor_set, message)
            .map_err(|fault| Error::invalid("the descriptor set is malformed").caused_by(fault.refused()))?
            .ok_or_else(|| Error::invalid(format!("the descriptor set has no message \"{message}\"")))?;
        let mut fields: Vec<Option<Field>> = (0..schema.columns().len()).map(|_| None).collect();
        let mut by_number = Vec::new();
        for (position, column) in schema.columns().iter().enumerate() {
            if schema.is_primary_key(position) {
                continue;
            }
            let descriptor = declared.iter().find(|field| field.name == column.name).ok_or_else(|| {
                Error::invalid(format!("message {message} has no field for column \"{}\"", column.name))
            })?;
            let field = Field::new(column, descriptor, message)?;
            by_number.push((field.tag, position));
            fields[position] = Some(field);
        }
        by_number.sort_unstable();
        if let Some(pair) = by_number.windows(2).find(|pair| pair[0].0 >> 3 == pair[1].0 >> 3) {
            return Err(Error::invalid(format!("two fields of message {message} have number {}", pair[0].0 >> 3)));
        }
        for field in declared.iter().filter(|field| field.is_required) {
            if by_number.binary_search_by_key(&field.number, |entry| entry.0 >> 3).is_err() {
                return Err(Error::invalid(format!("the required field {message}.{} is no column", field.name)));
            }
        }
        let places = listed_places(&by_number);
        Ok(Self { fields, by_number, places })
    }

    fn field(&self, column: usize) -> Option<&Field> {
        self.fields.get(column).and_then(Option::as_ref)
    }

    /// The column of a field number and its place in `by_number`. `guess` is tried first: fields mostly ascend.
    #[inline]
    fn column_of(&self, number: u32, guess: usize) -> Option<(usize, usize)> {
        if let Some(&(expected, column)) = self.by_number.get(guess)
            && expected >> 3 == number
        {
            return Some((column, guess));
        }
        let place = match self.places.get(number as usize) {
            Some(&place) => place as usize,
            None => self.by_number.binary_search_by_key(&number, |entry| entry.0 >> 3).ok()?,
        };
        Some((self.by_number.get(place)?.1, place))
    }
}

/// See [`Protobuf::places`].
fn listed_places(by_number: &[(u32, usize)]) -> Vec<u32> {
    let numbers = by_number.iter().map(|(tag, _)| tag >> 3);
    let mut places = Vec::new();
    for (place, number) in (0..).zip(numbers.take_while(|number| *number < MOST_LISTED)) {
        places.resize(number as usize, NO_PLACE);
        places.push(place);
    }
    places
}

impl Protobuf {
    /// The place in `by_number`, from place `from` on, and the piece of the field at `at`, if it has its column's wire
    /// type, and varints as short as they can be but for the value's own: as `emit` writes it.
    #[inline(always)]
    fn plain_field(&self, payload: &[u8], at: usize, from: usize) -> Option<(usize, Range<usize>)> {
        let (tag, start) = short_varint(payload, at)?;
        let tag = u32::try_from(tag).ok()?;
        let place = match self.by_number.get(from) {
            Some(&(expected, _)) if expected == tag => from,
            _ => self.column_of(tag >> 3, from)?.1,
        };
        if place < from || self.by_number[place].0 != tag {
            return None;
        }
        let (start, end) = match tag & 7 {
            0 => (start, varint(payload, start).ok()?.1),
            1 => (start, start + 8),
            2 => {
                let (len, start) = short_varint(payload, start)?;
                (start, start.checked_add(usize::try_from(len).ok()?)?)
            }
            _ => (start, start + 4),
        };
        (end <= payload.len()).then_some((place, start..end))
    }

    /// Takes the plain fields from `at` on, the first of them guessed to be at place `from` of `by_number`, up to one
    /// that is not plain, or was found before, or until `missing` wanted ones are found. Returns where the next field
    /// is, and its place.
    #[inline]
    fn scan_plain(
        &self,
        payload: &[u8],
        (mut at, mut from): (usize, usize),
        finding: &mut Finding<'_>,
    ) -> (usize, usize) {
        while finding.missing > 0
            && let Some((place, piece)) = self.plain_field(payload, at, from)
            && finding.take(self.by_number[place].1, &piece)
        {
            (at, from) = (piece.end, place + 1);
        }
        (at, from)
    }

    /// Finds the field at `at`, whatever it is like: where the next one is, and its place.
    fn scan_field(
        &self,
        payload: &[u8],
        (at, guess): (usize, usize),
        finding: &mut Finding<'_>,
    ) -> Result<(usize, usize), Fault> {
        let (tag, piece) = varint(payload, at)?;
        let tag =
            u32::try_from(tag).map_err(|_| Fault::new(at, "malformed Protobuf: a field number is over 29 bits"))?;
        let Some((column, place)) = self.column_of(tag >> 3, guess) else {
            return Err(Fault::new(at, format!("field {} is no column outside the primary key", tag >> 3)));
        };
        let Some(field) = self.field(column) else { return Err(Fault::new(at, "no such field")) };
        if tag != field.tag {
            let message = format!("wire type {} instead of {}", tag & 7, field.tag & 7);
            return Err(Fault::new(at, message).in_column(&field.name));
        }
        let (start, end) = piece_at(payload, tag & 7, piece).map_err(|fault| fault.in_column(&field.name))?;
        match finding.take(column, &(start..end)) {
            true => Ok((end, place + 1)),
            false => Err(Fault::new(at, "the field appears twice").in_column(&field.name)),
        }
    }
}

/// What a scan looks for, and what it has found.
struct Finding<'a> {
    scan: Scan<'a>,
    /// Wanted columns that are not found yet; more than there are if the payload is read to its end.
    missing: usize,
    spans: &'a mut [Span],
}

impl Finding<'_> {
    /// Takes the piece of a column, if it is wanted. `false` if there was one before.
    #[inline]
    fn take(&mut self, column: usize, piece: &Range<usize>) -> bool {
        if self.scan.wants(column) {
            if self.spans[column] != Span::Absent {
                return false;
            }
            self.spans[column] = Span::at(piece.start, piece.end);
            self.missing -= 1;
        }
        true
    }
}

impl Field {
    fn new(column: &Column, descriptor: &FieldDescriptor, message: &str) -> Result<Self> {
        let refuse = |why: String| {
            Error::invalid(format!("column \"{}\" cannot be field {message}.{}: {why}", column.name, descriptor.name))
        };
        if descriptor.is_repeated {
            return Err(refuse("the field is repeated".into()));
        }
        if descriptor.in_oneof {
            return Err(refuse("the field belongs to a oneof".into()));
        }
        if descriptor.is_required && column.nullable {
            return Err(refuse("the field is required, but the column may be null".into()));
        }
        let kind = descriptor.kind;
        let wire = Wire::of(kind, &column.ty)
            .ok_or_else(|| refuse(format!("a field of kind {kind:?} does not hold values of type {}", column.ty)))?;
        Ok(Self {
            name: column.name.as_str().into(),
            ty: column.ty.clone(),
            wire,
            has_presence: descriptor.has_presence,
            is_plain: wire.is_plain(&column.ty),
            tag: descriptor.number << 3 | wire.wire_type(),
        })
    }
}

impl Codec for Protobuf {
    /// Per field: read its tag, find its column, step over its piece. Ends with the payload, or with the last wanted
    /// column if the payload is trusted.
    fn scan(&self, payload: &[u8], scan: Scan<'_>, spans: &mut [Span]) -> Result<bool, Fault> {
        let missing = match scan {
            Scan::Trusted(Some(wanted)) => wanted.len(),
            _ => usize::MAX,
        };
        let (mut finding, mut next) = (Finding { scan, missing, spans }, (0, 0));
        loop {
            next = self.scan_plain(payload, next, &mut finding);
            if next.0 == payload.len() || finding.missing == 0 {
                return Ok(finding.missing == 0);
            }
            next = self.scan_field(payload, next, &mut finding)?;
        }
    }

    fn decode<'a>(&self, column: usize, piece: &'a [u8], _: &'a mut Vec<u8>) -> Result<DatumRef<'a>, Fault> {
        let Some(field) = self.field(column) else { return Err(Fault::new(0, "no such field")) };
        let misfit = || Fault::new(0, format!("not a value of type {}", field.ty));
        let text = || std::str::from_utf8(piece).map_err(|e| Fault::new(e.valid_up_to(), "text is not UTF-8"));
        let value = match field.wire {
            Wire::Text => return Ok(DatumRef::Utf8(text()?)),
            Wire::Bytes => return Ok(DatumRef::Binary(piece)),
            Wire::DecimalText => return parse_fixed(text()?, &field.ty).ok_or_else(misfit),
            Wire::Float => return Ok(DatumRef::Float32(f32::from_le_bytes(array(piece)?))),
            Wire::Double => return Ok(DatumRef::Float64(f64::from_le_bytes(array(piece)?))),
            Wire::Fixed { width: 8, signed: true } => i64::from_le_bytes(array(piece)?).into(),
            Wire::Fixed { width: 8, .. } => u64::from_le_bytes(array(piece)?).into(),
            Wire::Fixed { signed: true, .. } => i32::from_le_bytes(array(piece)?).into(),
            Wire::Fixed { .. } => u32::from_le_bytes(array(piece)?).into(),
            Wire::Bool => match varint(piece, 0)?.0 {
                bit @ (0 | 1) => return Ok(DatumRef::Bool(bit == 1)),
                other => return Err(Fault::new(0, format!("{other} is no bool"))),
            },
            Wire::Signed { width } => within(width, i128::from(varint(piece, 0)?.0 as i64))?,
            Wire::Unsigned { width: 4 } => u32::try_from(varint(piece, 0)?.0).map_err(|_| misfit())?.into(),
            Wire::Unsigned { .. } => varint(piece, 0)?.0.into(),
            Wire::ZigZag { width } => {
                let coded = varint(piece, 0)?.0;
                within(width, i128::from((coded >> 1) as i64 ^ -((coded & 1) as i64)))?
            }
        };
        narrow(&field.ty, value).ok_or_else(|| Fault::new(0, format!("{value} is out of the range of {}", field.ty)))
    }

    #[inline]
    fn plain<'a>(&self, column: usize, piece: &'a [u8]) -> Option<Plain<'a>> {
        let field = self.field(column).filter(|field| field.is_plain)?;
        Some(match field.wire {
            Wire::Text | Wire::Bytes => Plain::Bytes(piece),
            Wire::Double | Wire::Fixed { width: 8, .. } => Plain::Number(u64::from_le_bytes(piece.try_into().ok()?)),
            Wire::Float | Wire::Fixed { .. } => Plain::Number(u32::from_le_bytes(piece.try_into().ok()?).into()),
            _ => Plain::Number(get_varint(piece)?.0),
        })
    }

    #[inline]
    fn find_plain<'a>(&self, payload: &'a [u8], column: usize) -> Option<Plain<'a>> {
        let (mut at, mut from) = (0, 0);
        loop {
            let (place, piece) = self.plain_field(payload, at, from)?;
            if self.by_number[place].1 == column {
                return self.plain(column, &payload[piece]);
            }
            (at, from) = (piece.end, place + 1);
        }
    }

    fn visit_plain(&self, payload: &[u8], visit: &mut dyn FnMut(usize, Plain<'_>) -> Result<()>) -> Result<()> {
        let (mut at, mut from) = (0, 0);
        while let Some((place, piece)) = self.plain_field(payload, at, from) {
            (at, from) = (piece.end, place + 1);
            let column = self.by_number[place].1;
            if let Some(plain) = self.plain(column, &payload[piece]) {
                visit(column, plain)?;
            }
        }
        Ok(())
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
                // The low 64 bits are the two's complement of a signed value and the value of an unsigned one.
                let value = widen(integer).unwrap_or_default();
                match field.wire {
                    Wire::ZigZag { .. } => put_varint(out, (value << 1 ^ value >> 127) as u64),
                    Wire::Fixed { width, .. } => out.extend_from_slice(&value.to_le_bytes()[..width]),
                    _ => put_varint(out, value as u64),
                }
            }
        }
    }

    fn default_piece(&self, column: usize) -> Option<&[u8]> {
        let field = self.field(column)?;
        // The empty string is no decimal: a decimal that is left out has no value.
        (!field.has_presence && field.wire != Wire::DecimalText).then(|| field.wire.zero())
    }

    fn emit(&self, pieces: &Pieces<'_>, out: &mut Vec<u8>) {
        for &(_, column) in &self.by_number {
            let (Piece::Bytes(bytes), Some(field)) = (pieces.get(column), self.field(column)) else { continue };
            put_varint(out, field.tag.into());
            if field.tag & 7 == 2 {
                put_varint(out, bytes.len() as u64);
            }
            out.extend_from_slice(bytes);
        }
    }

    fn can_cut(&self) -> bool {
        true
    }

    /// Fields that stand side by side and are of one part are one piece. Gives up at a field that `emit` would write
    /// otherwise: one out of order, or with a longer tag or length than it needs.
    fn cut(&self, payload: &[u8], part_of: &[PartNumber], cuts: &mut Cuts) -> bool {
        let (mut at, mut from) = (0, 0);
        let (mut part, mut start) = (NO_PART, 0);
        while at < payload.len() {
            let Some((place, Range { end, .. })) = self.plain_field(payload, at, from) else { return false };
            let next = part_of.get(self.by_number[place].1).copied().unwrap_or(NO_PART);
            if next != part {
                cuts.add(part, start, at);
                (part, start) = (next, at);
            }
            (at, from) = (end, place + 1);
        }
        cuts.add(part, start, at);
        true
    }
}

fn within(width: usize, value: i128) -> Result<i128, Fault> {
    if width == 4 && i32::try_from(value).is_err() {
        return Err(Fault::new(0, format!("{value} is out of the range of its field of 32 bits")));
    }
    Ok(value)
}

#[inline]
fn array<const N: usize>(piece: &[u8]) -> Result<[u8; N], Fault> {
    piece.try_into().map_err(|_| Fault::new(0, "a field is cut short"))
}
