//! The row format `json`: one object, a member per column outside the primary key.
//!
//! What a member's value may be, by the type of its column (`null` wherever the column may be null):
//!
//! ```text
//! bool               true, false
//! int*, uint*        a number without fraction and exponent
//! float32, float64   a number, or one of the strings "NaN", "inf", "-inf", or "NaN:7fc00001": a NaN by its bits
//! decimal(p, s)      a number without exponent, or a string that holds one
//! utf8               a string
//! binary             a string: \x and hexadecimal digits, in JSON "\\x00ff"
//! date32, timestamp  a string: 2024-02-29, 2024-02-29T12:00:00.5, with Z where the column has a time zone
//! ```
//!
//! Text of binary, dates, timestamps and decimals is what `datum_text` reads and prints everywhere else.
//!
//! Rules, so that nothing is lost silently:
//!
//! - *Unknown members* are refused, members of the primary key among them: the key is given beside the row.
//! - *Duplicate members* are refused, however they are escaped.
//! - *Integers* must be in the range of their column; `1.0` and `1e3` are not integers.
//! - *Floats* are rounded to the nearest one, as every reader does; but a number that overflows is refused, so is one
//!   that is not zero and would become zero, and so is an integer (no fraction, no exponent) that is not exactly the
//!   float it becomes. Infinities and NaN are strings, for JSON has no numbers for them; a NaN other than the usual one
//!   is written by its bits, since filters order them all. -0.0 stays -0.0.
//! - *Decimals* must be exact in the column's precision and scale.
//! - *Text* must be UTF-8; a surrogate escape without its other half is refused; NUL and all other characters are kept.
//! - *Nesting*: no column holds an object or an array, so one is refused where it starts, and depth is bounded by 1.
//! - *Trailing bytes* other than space are refused, a byte order mark too.
//! - *Absent, null, default*: a member that is missing from a patch is absent, from a whole row it is null (refused
//!   where the column may not be null); JSON knows no defaults.
//!
//! A user's text is kept as written: spelling of numbers, order and space. Splitting and merging rows writes members
//! in schema order without space and keeps the spelling of values; converting from another format writes numbers in
//! the shortest form that reads back as the same value.

use super::codec::Codec;
use super::json_members::Members;
use super::json_text::{JsonReader, put_string, unescape};
use super::number::{integer_shape, narrow, parse_fixed, print};
use super::span::{Fault, Piece, Pieces, Scan, Span};
use crate::{ColumnType, DatumRef, Schema};

/// The members of a table's rows.
#[derive(Debug)]
pub(super) struct Json {
    members: Members,
    types: Vec<ColumnType>,
    /// Schema positions of the columns outside the primary key, in order.
    columns: Vec<usize>,
}

impl Json {
    pub(super) fn new(schema: &Schema) -> Self {
        let types = schema.columns().iter().map(|column| column.ty.clone()).collect();
        Self { members: Members::new(schema), types, columns: schema.value_columns().iter().collect() }
    }
}

impl Codec for Json {
    /// 1. Per member: find the column of its name, then step over its value.
    /// 2. Stop at the last wanted column if the payload is trusted, else check what follows.
    fn scan(&self, payload: &[u8], scan: Scan<'_>, spans: &mut [Span]) -> Result<bool, Fault> {
        if scan.is_strict() {
            std::str::from_utf8(payload).map_err(|e| Fault::new(e.valid_up_to(), "malformed JSON: not UTF-8"))?;
        }
        let mut missing = match scan {
            Scan::Trusted(Some(wanted)) => wanted.len(),
            _ => usize::MAX,
        };
        let mut reader = JsonReader::new(payload);
        reader.skip_space();
        reader.expect(b'{')?;
        reader.skip_space();
        if reader.accept(b'}') {
            return reader.finish().map(|()| false);
        }
        let mut after = self.members.start();
        // One that stops early has not seen a whole row.
        let mut noted = if scan.wanted().is_none() { self.members.to_note() } else { None };
        while missing > 0 {
            let name_at = reader.position();
            let column = self.members.next(&mut reader, &mut after)?;
            let start = reader.position();
            let value = if scan.is_strict() { reader.value() } else { reader.trusted_value() };
            value.map_err(|fault| fault.in_column(self.members.name(column)))?;
            let end = reader.position();
            if scan.wants(column) {
                if spans[column] != Span::Absent {
                    return Err(Fault::new(name_at, "appears twice").in_column(self.members.name(column)));
                }
                // A strict scan leaves a null where it stands, so that a refusal can say where.
                let is_null = !scan.is_strict() && &payload[start..end] == b"null";
                spans[column] = if is_null { Span::Null } else { Span::at(start, end) };
                missing -= 1;
                noted.iter_mut().for_each(|noted| noted.push(column));
            }
            reader.skip_space();
            if !reader.accept(b',') {
                reader.expect(b'}')?;
                noted.iter().for_each(|noted| self.members.note(noted));
                return reader.finish().map(|()| false);
            }
            reader.skip_space();
        }
        Ok(true)
    }

    fn decode<'a>(&self, column: usize, piece: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<DatumRef<'a>, Fault> {
        let ty = &self.types[column];
        let misfit = || Fault::new(0, format!("not a value of type {ty}"));
        match (piece.first(), ty) {
            (Some(b't'), ColumnType::Bool) => Ok(DatumRef::Bool(true)),
            (Some(b'f'), ColumnType::Bool) => Ok(DatumRef::Bool(false)),
            (Some(b'"'), ColumnType::Utf8) => Ok(DatumRef::Utf8(unescape(piece, scratch)?)),
            (Some(b'"'), ColumnType::Binary) => decode_binary(piece, scratch),
            (Some(b'"'), ColumnType::Float32 | ColumnType::Float64) => special_float(piece, ty).ok_or_else(misfit),
            (Some(b'"'), ColumnType::Date32 | ColumnType::Timestamp(..) | ColumnType::Decimal128(..)) => {
                let text = unescape(piece, scratch)?;
                parse_fixed(text, ty).ok_or_else(misfit)
            }
            (Some(b'-' | b'0'..=b'9'), _) => number(piece, ty).ok_or_else(misfit)?.ok_or_else(|| {
                let text = String::from_utf8_lossy(piece);
                Fault::new(0, format!("{text} cannot be kept in a value of type {ty} without loss"))
            }),
            _ => Err(misfit()),
        }
    }

    fn encode(&self, column: usize, datum: DatumRef<'_>, out: &mut Vec<u8>) {
        match datum {
            DatumRef::Utf8(text) => put_string(out, text),
            DatumRef::Binary(bytes) => {
                out.extend_from_slice(b"\"\\\\x");
                for &byte in bytes {
                    out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 0xf)]]);
                }
                out.push(b'"');
            }
            DatumRef::Date32(_) | DatumRef::Timestamp(_) => {
                print(out, format_args!("\"{}\"", datum.display_as(&self.types[column])));
            }
            DatumRef::Float32(v) if v.is_nan() && v.to_bits() != f32::NAN.to_bits() => {
                print(out, format_args!("\"NaN:{:08x}\"", v.to_bits()));
            }
            DatumRef::Float64(v) if v.is_nan() && v.to_bits() != f64::NAN.to_bits() => {
                print(out, format_args!("\"NaN:{:016x}\"", v.to_bits()));
            }
            DatumRef::Float32(v) if !v.is_finite() => print(out, format_args!("\"{v}\"")),
            DatumRef::Float64(v) if !v.is_finite() => print(out, format_args!("\"{v}\"")),
            // The debug form has a fraction or an exponent: a float never looks like an integer.
            DatumRef::Float32(v) => print(out, format_args!("{v:?}")),
            DatumRef::Float64(v) => print(out, format_args!("{v:?}")),
            other => print(out, format_args!("{}", other.display_as(&self.types[column]))),
        }
    }

    fn default_piece(&self, _column: usize) -> Option<&[u8]> {
        None
    }

    fn emit(&self, pieces: &Pieces<'_>, out: &mut Vec<u8>) {
        let mut separator = b'{';
        for &column in &self.columns {
            let value = match pieces.get(column) {
                Piece::Absent => continue,
                Piece::Null | Piece::Default => &b"null"[..],
                Piece::Bytes(bytes) => bytes,
            };
            out.push(separator);
            out.extend_from_slice(self.members.prefix(column));
            out.extend_from_slice(value);
            separator = b',';
        }
        if separator == b'{' {
            out.push(b'{');
        }
        out.push(b'}');
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The bytes of `"\\x00ff"`: unescaped in `scratch`, then decoded in its place.
fn decode_binary<'a>(piece: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<DatumRef<'a>, Fault> {
    let malformed = || Fault::new(0, "binary is written as \\x and pairs of hexadecimal digits");
    scratch.clear();
    // `\` can only be escaped, so this is the one spelling but for `\u005c`.
    match piece.strip_prefix(b"\"\\\\x").and_then(|rest| rest.strip_suffix(b"\"")) {
        Some(digits) => scratch.extend_from_slice(digits),
        None => {
            let mut text = Vec::new();
            let text = unescape(piece, &mut text)?;
            scratch.extend_from_slice(text.strip_prefix("\\x").ok_or_else(malformed)?.as_bytes());
        }
    }
    if !scratch.len().is_multiple_of(2) {
        return Err(malformed());
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).ok_or_else(malformed);
    let len = scratch.len() / 2;
    for i in 0..len {
        scratch[i] = (digit(scratch[2 * i])? << 4 | digit(scratch[2 * i + 1])?) as u8;
    }
    scratch.truncate(len);
    Ok(DatumRef::Binary(&scratch[..]))
}

fn special_float(piece: &[u8], ty: &ColumnType) -> Option<DatumRef<'static>> {
    let value = match piece {
        b"\"NaN\"" => f64::NAN,
        b"\"inf\"" => f64::INFINITY,
        b"\"-inf\"" => f64::NEG_INFINITY,
        _ => return other_nan(piece, ty),
    };
    Some(if *ty == ColumnType::Float32 { DatumRef::Float32(value as f32) } else { DatumRef::Float64(value) })
}

/// A NaN that is not the usual one, by its bits: filters order them all, so none may become another.
fn other_nan(piece: &[u8], ty: &ColumnType) -> Option<DatumRef<'static>> {
    let digits = std::str::from_utf8(piece.strip_prefix(b"\"NaN:")?.strip_suffix(b"\"")?).ok()?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let bits = u64::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
    match (ty, digits.len()) {
        (ColumnType::Float32, 8) => Some(f32::from_bits(bits as u32)).filter(|v| v.is_nan()).map(DatumRef::Float32),
        (ColumnType::Float64, 16) => Some(f64::from_bits(bits)).filter(|v| v.is_nan()).map(DatumRef::Float64),
        _ => None,
    }
}

/// The value of a number: `None` if the column holds no numbers, `Some(None)` if the column cannot hold this one.
fn number(piece: &[u8], ty: &ColumnType) -> Option<Option<DatumRef<'static>>> {
    if let ColumnType::Date32 | ColumnType::Timestamp(..) = ty {
        return None;
    }
    if let Some(value) = short_integer(piece)
        && integer_shape(ty).is_some()
    {
        return Some(narrow(ty, value.into()));
    }
    let text = std::str::from_utf8(piece).ok()?;
    Some(match ty {
        ColumnType::Float32 => float32(text).map(DatumRef::Float32),
        ColumnType::Float64 => float64(text).map(DatumRef::Float64),
        ColumnType::Decimal128(..) => parse_fixed(text, ty),
        _ => {
            integer_shape(ty)?;
            // Those over 24 characters are out of every range.
            let value: Option<i128> = if text.len() > 24 { None } else { text.parse().ok() };
            value.and_then(|value| narrow(ty, value))
        }
    })
}

/// An integer of up to 18 digits, as most are.
#[inline]
fn short_integer(piece: &[u8]) -> Option<i64> {
    let (digits, is_negative) = match piece {
        [b'-', digits @ ..] => (digits, true),
        digits => (digits, false),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut value = 0;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(if is_negative { -value } else { value })
}

fn float64(text: &str) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    // Up to 15 digits every integer is exact.
    let exact = text.len() <= 15 || !is_integer(text) || format!("{value:.0}") == text;
    (exact && value.is_finite() && (value != 0.0 || is_zero(text))).then_some(value)
}

fn float32(text: &str) -> Option<f32> {
    let value: f32 = text.parse().ok()?;
    // Up to 7 digits every integer is exact.
    let exact = text.len() <= 7 || !is_integer(text) || format!("{value:.0}") == text;
    (exact && value.is_finite() && (value != 0.0 || is_zero(text))).then_some(value)
}

fn is_integer(text: &str) -> bool {
    !text.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E'))
}

/// Whether all digits before the exponent are 0.
fn is_zero(text: &str) -> bool {
    let digits = text.split(['e', 'E']).next().unwrap_or_default();
    !digits.bytes().any(|byte| matches!(byte, b'1'..=b'9'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_rounded_but_never_lost() {
        for (text, value) in [
            ("0", 0.0),
            ("0.1", 0.1),
            ("9007199254740992", 9_007_199_254_740_992.0),
            ("9007199254740993.0", 9_007_199_254_740_992.0),
            ("-1e-300", -1e-300),
            ("0e5", 0.0),
            ("1e16", 1e16),
        ] {
            assert_eq!(float64(text), Some(value), "{text}");
        }
        assert!(float64("-0").is_some_and(|zero| zero.is_sign_negative()));
        for text in ["9007199254740993", "1e309", "-1e999", "1e-400", "123456789012345678901234567890"] {
            assert_eq!(float64(text), None, "{text}");
        }
        assert_eq!(float32("16777216"), Some(16_777_216.0));
        assert_eq!(float32("16777217"), None);
        assert_eq!(float32("1e39"), None);
    }
}
