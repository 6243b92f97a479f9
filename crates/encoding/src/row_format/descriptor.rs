//! The fields of one message of a descriptor set (an encoded `google.protobuf.FileDescriptorSet`), as far as rows need
//! it.
//!
//! 1. In each file, take the package off the front of the message's full name.
//! 2. Follow what is left, dot by dot, through messages and nested messages.
//! 3. Read the fields of the last one.
//!
//! Field numbers are those of `google/protobuf/descriptor.proto`. Read by hand, for crates that link whole descriptor
//! sets panic on damaged ones; types of other messages are not resolved, since no column holds a message. `syntax` may
//! be proto2 (or left out) and proto3, editions are refused.
//!
//! Guarantees: no panic on any bytes, and depth bounded by the dots in the name.

use super::protobuf_wire::{piece_at, varint};
use super::span::Fault;

const MAX_FIELD_NUMBER: u64 = (1 << 29) - 1;

/// The kinds of field that a column may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FieldKind {
    Double,
    Float,
    Int64,
    UInt64,
    Int32,
    Fixed64,
    Fixed32,
    Bool,
    String,
    Bytes,
    UInt32,
    SFixed32,
    SFixed64,
    SInt32,
    SInt64,
    /// A message, a group, an enum, or a kind from the future.
    Other,
}

/// A field of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FieldDescriptor {
    pub(super) name: String,
    pub(super) number: u32,
    pub(super) kind: FieldKind,
    pub(super) is_repeated: bool,
    pub(super) is_required: bool,
    /// Whether it is in a `oneof` that stands in the definition.
    pub(super) in_oneof: bool,
    pub(super) has_presence: bool,
}

/// Walks over the fields of an encoded message.
struct Fields<'a> {
    bytes: &'a [u8],
    /// Position of the first of `bytes` in the descriptor set.
    base: usize,
    at: usize,
}

/// A field of an encoded message.
#[derive(Clone, Copy)]
struct Encoded<'a> {
    number: u64,
    /// Of a varint; else 0.
    value: u64,
    /// Of a length-delimited field; else empty.
    bytes: &'a [u8],
    /// Position of the piece in the descriptor set.
    start: usize,
}

impl<'a> Fields<'a> {
    fn new(bytes: &'a [u8], base: usize) -> Self {
        Self { bytes, base, at: 0 }
    }

    fn of(field: Encoded<'a>) -> Self {
        Self::new(field.bytes, field.start)
    }

    fn next(&mut self) -> Result<Option<Encoded<'a>>, Fault> {
        if self.at >= self.bytes.len() {
            return Ok(None);
        }
        let shifted = |fault: Fault| fault.shifted(self.base);
        let (tag, piece) = varint(self.bytes, self.at).map_err(shifted)?;
        let wire_type = (tag & 7) as u32;
        if !matches!(wire_type, 0 | 1 | 2 | 5) || tag >> 3 == 0 || tag >> 3 > MAX_FIELD_NUMBER {
            return Err(Fault::new(self.base + self.at, format!("malformed Protobuf: tag {tag}")));
        }
        let (start, end) = piece_at(self.bytes, wire_type, piece).map_err(shifted)?;
        let value = if wire_type == 0 { varint(self.bytes, start).map_err(shifted)?.0 } else { 0 };
        let bytes = if wire_type == 2 { self.bytes.get(start..end).unwrap_or_default() } else { &[] };
        self.at = end;
        Ok(Some(Encoded { number: tag >> 3, value, bytes, start: self.base + start }))
    }

    /// The last field of this number.
    fn last(mut self, number: u64) -> Result<Option<Encoded<'a>>, Fault> {
        let mut last = None;
        while let Some(field) = self.next()? {
            if field.number == number {
                last = Some(field);
            }
        }
        Ok(last)
    }
}

fn text<'a>(field: Option<Encoded<'a>>) -> Result<&'a str, Fault> {
    let Some(field) = field else { return Ok("") };
    std::str::from_utf8(field.bytes).map_err(|e| Fault::new(field.start + e.valid_up_to(), "a name is not UTF-8"))
}

/// The fields of the message of this full name, `None` if there is no such message.
pub(super) fn fields_of(descriptor_set: &[u8], message: &str) -> Result<Option<Vec<FieldDescriptor>>, Fault> {
    let message = message.strip_prefix('.').unwrap_or(message);
    let mut found = None;
    let mut files = Fields::new(descriptor_set, 0);
    while let Some(file) = files.next()? {
        if file.number != 1 {
            continue;
        }
        let package = text(Fields::of(file).last(2)?)?;
        let syntax = Fields::of(file).last(12)?;
        let path = match message.strip_prefix(package) {
            Some(rest) if package.is_empty() => Some(rest),
            Some(rest) => rest.strip_prefix('.'),
            None => None,
        };
        // Every file is walked to its end, so that a set that is cut short is noticed wherever the message stands.
        if let Some(descriptor) = path.map(|path| message_at(file, path)).transpose()?.flatten() {
            let is_proto3 = match text(syntax)? {
                "" | "proto2" => false,
                "proto3" => true,
                other => return Err(Fault::new(file.start, format!("the syntax `{other}` is not supported"))),
            };
            found = Some(fields_in(descriptor, is_proto3)?);
        }
    }
    Ok(found)
}

/// The descriptor at the end of a path of message names, the first of which is in `file`.
fn message_at<'a>(file: Encoded<'a>, path: &str) -> Result<Option<Encoded<'a>>, Fault> {
    let (mut scope, mut member) = (file, 4);
    for name in path.split('.') {
        let mut fields = Fields::of(scope);
        let mut found = None;
        while let Some(field) = fields.next()? {
            if field.number == member && text(Fields::of(field).last(1)?)? == name {
                found = Some(field);
            }
        }
        let Some(message) = found else { return Ok(None) };
        (scope, member) = (message, 3);
    }
    Ok(Some(scope))
}

fn fields_in(descriptor: Encoded<'_>, is_proto3: bool) -> Result<Vec<FieldDescriptor>, Fault> {
    let mut fields = Vec::new();
    let mut encoded = Fields::of(descriptor);
    while let Some(field) = encoded.next()? {
        if field.number == 2 {
            fields.push(field_in(field, is_proto3)?);
        }
    }
    Ok(fields)
}

fn field_in(descriptor: Encoded<'_>, is_proto3: bool) -> Result<FieldDescriptor, Fault> {
    let name = text(Fields::of(descriptor).last(1)?)?.to_owned();
    let (mut number, mut label, mut kind, mut oneof, mut proto3_optional) = (0, 0, FieldKind::Other, false, false);
    let mut fields = Fields::of(descriptor);
    while let Some(field) = fields.next()? {
        match field.number {
            3 => number = field.value,
            4 => label = field.value,
            5 => kind = kind_of(field.value),
            9 => oneof = true,
            17 => proto3_optional = field.value != 0,
            _ => {}
        }
    }
    let number = match u32::try_from(number) {
        Ok(small @ 1..) if number <= MAX_FIELD_NUMBER => small,
        _ => return Err(Fault::new(descriptor.start, format!("field \"{name}\" has number {number}"))),
    };
    Ok(FieldDescriptor {
        name,
        number,
        kind,
        is_repeated: label == 3,
        is_required: label == 2,
        in_oneof: oneof && !proto3_optional,
        has_presence: !is_proto3 || oneof || proto3_optional,
    })
}

fn kind_of(value: u64) -> FieldKind {
    match value {
        1 => FieldKind::Double,
        2 => FieldKind::Float,
        3 => FieldKind::Int64,
        4 => FieldKind::UInt64,
        5 => FieldKind::Int32,
        6 => FieldKind::Fixed64,
        7 => FieldKind::Fixed32,
        8 => FieldKind::Bool,
        9 => FieldKind::String,
        12 => FieldKind::Bytes,
        13 => FieldKind::UInt32,
        15 => FieldKind::SFixed32,
        16 => FieldKind::SFixed64,
        17 => FieldKind::SInt32,
        18 => FieldKind::SInt64,
        _ => FieldKind::Other,
    }
}
