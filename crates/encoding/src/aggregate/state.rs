//! The state of one aggregate of one group: what is kept of its rows, and its bytes.
//!
//! A sum is kept in 192 bits, two's complement: 2^56 rows of 128 bits do not exceed them, so that only the end result
//! can be too large, whatever the order. A sum of floats is as exact ([`super::float_sum`]). An extreme is kept as its
//! key code, whose order is that of the values and of which there is one for all equal values.
//!
//! ```text
//! count     varint
//! sum       bytes: little-endian two's complement, as short as can be; none at all: no value
//! of floats bytes: see `float_sum`; none at all: no value
//! extreme   bytes: the code of `key`; none at all: no value
//! ```

use mycelium_base::coding::{Reader, put_bytes, put_varint};
use mycelium_base::{Error, Result};

use crate::datum::decimal_fits;
use crate::key::{KeyReader, encode_datum};
use crate::{Column, ColumnType, Datum, DatumRef, Schema};

use super::Aggregate;
use super::float_sum::FloatSum;

/// Bytes of a sum at most.
const SUM_LEN: usize = 24;
/// Digits of a sum at most.
const SUM_DIGITS: u8 = 38;

/// An integer of 192 bits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct WideSum {
    low: u128,
    high: i64,
}

impl WideSum {
    fn of(value: i128) -> Self {
        Self { low: value as u128, high: if value < 0 { -1 } else { 0 } }
    }

    fn add(&mut self, other: Self) {
        let (low, carry) = self.low.overflowing_add(other.low);
        self.low = low;
        self.high = self.high.wrapping_add(other.high).wrapping_add(i64::from(carry));
    }

    fn to_i128(self) -> Option<i128> {
        let value = self.low as i128;
        (Self::of(value) == self).then_some(value)
    }

    fn to_bytes(self) -> [u8; SUM_LEN] {
        let mut bytes = [0; SUM_LEN];
        bytes[..16].copy_from_slice(&self.low.to_le_bytes());
        bytes[16..].copy_from_slice(&self.high.to_le_bytes());
        bytes
    }

    fn encode(self, out: &mut Vec<u8>) {
        let bytes = self.to_bytes();
        put_bytes(out, &bytes[..shortest(&bytes)]);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (&last, fits) = (bytes.last()?, bytes.len() <= SUM_LEN);
        if !fits || shortest(bytes) != bytes.len() {
            return None;
        }
        let mut whole = [if last & 0x80 == 0 { 0 } else { 0xff }; SUM_LEN];
        whole[..bytes.len()].copy_from_slice(bytes);
        let (low, high) = whole.split_at(16);
        Some(Self { low: u128::from_le_bytes(low.try_into().ok()?), high: i64::from_le_bytes(high.try_into().ok()?) })
    }
}

/// The length, at least 1, of the shortest two's complement of the same number.
pub(super) fn shortest(bytes: &[u8]) -> usize {
    let mut len = bytes.len();
    while len > 1 {
        let (last, sign) = (bytes[len - 1], bytes[len - 2] & 0x80);
        if !(last == 0 && sign == 0 || last == 0xff && sign != 0) {
            break;
        }
        len -= 1;
    }
    len
}

/// What is kept of a group's rows for one aggregate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    Count(u64),
    Sum(Option<WideSum>),
    FloatSum(Option<Box<FloatSum>>),
    /// The code; none if empty.
    Least(Vec<u8>),
    Greatest(Vec<u8>),
}

impl State {
    pub(super) fn new(aggregate: Aggregate, schema: &Schema) -> Self {
        match aggregate {
            Aggregate::CountRows | Aggregate::Count(_) => Self::Count(0),
            Aggregate::Sum(column) if is_float(&schema.columns()[column].ty) => Self::FloatSum(None),
            Aggregate::Sum(_) => Self::Sum(None),
            Aggregate::Min(_) => Self::Least(Vec::new()),
            Aggregate::Max(_) => Self::Greatest(Vec::new()),
        }
    }

    /// Takes a value that is not null (or a row); `scratch` is for its code.
    pub(super) fn add(&mut self, value: DatumRef<'_>, scratch: &mut Vec<u8>) {
        match self {
            Self::Count(count) => *count = count.saturating_add(1),
            Self::Sum(sum) => sum.get_or_insert_default().add(WideSum::of(number(value))),
            Self::FloatSum(sum) => sum.get_or_insert_default().add(float(value)),
            Self::Least(code) => {
                scratch.clear();
                encode_datum(value, scratch);
                if code.is_empty() || scratch.as_slice() < code.as_slice() {
                    code.clone_from(scratch);
                }
            }
            Self::Greatest(code) => {
                scratch.clear();
                encode_datum(value, scratch);
                if scratch.as_slice() > code.as_slice() {
                    code.clone_from(scratch);
                }
            }
        }
    }

    /// Takes what another part of the group's rows amounts to.
    pub(super) fn merge(&mut self, other: &Self) {
        match (self, other) {
            (Self::Count(count), Self::Count(more)) => *count = count.saturating_add(*more),
            (Self::Sum(sum), Self::Sum(Some(more))) => sum.get_or_insert_default().add(*more),
            (Self::FloatSum(sum), Self::FloatSum(Some(more))) => sum.get_or_insert_default().merge(more),
            (Self::Least(code), Self::Least(other)) if !other.is_empty() && (code.is_empty() || other < code) => {
                code.clone_from(other);
            }
            (Self::Greatest(code), Self::Greatest(other)) if other > code => code.clone_from(other),
            _ => {}
        }
    }

    /// Bytes that it takes beyond a fixed size.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Least(code) | Self::Greatest(code) => code.len(),
            Self::FloatSum(Some(_)) => size_of::<FloatSum>(),
            Self::Count(_) | Self::Sum(_) | Self::FloatSum(None) => 0,
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Count(count) => put_varint(out, *count),
            Self::Sum(None) | Self::FloatSum(None) => put_bytes(out, &[]),
            Self::FloatSum(Some(sum)) => {
                let mut bytes = Vec::new();
                sum.encode(&mut bytes);
                put_bytes(out, &bytes);
            }
            Self::Sum(Some(sum)) => sum.encode(out),
            Self::Least(code) | Self::Greatest(code) => put_bytes(out, code),
        }
    }

    pub(super) fn decode(aggregate: Aggregate, schema: &Schema, reader: &mut Reader<'_>) -> Result<Self> {
        let at = reader.position() as u64;
        Ok(match aggregate {
            Aggregate::CountRows | Aggregate::Count(_) => Self::Count(reader.varint()?),
            Aggregate::Sum(column) if is_float(&schema.columns()[column].ty) => match reader.bytes()? {
                [] => Self::FloatSum(None),
                bytes => Self::FloatSum(Some(Box::new(FloatSum::decode(bytes).map_err(|error| error.at(at))?))),
            },
            Aggregate::Sum(_) => match reader.bytes()? {
                [] => Self::Sum(None),
                bytes => Self::Sum(Some(
                    WideSum::decode(bytes).ok_or_else(|| Error::corruption("malformed sum of a summary").at(at))?,
                )),
            },
            Aggregate::Min(column) => Self::Least(decode_code(&schema.columns()[column], reader)?),
            Aggregate::Max(column) => Self::Greatest(decode_code(&schema.columns()[column], reader)?),
        })
    }

    /// The end result.
    pub(super) fn finish(&self, aggregate: Aggregate, schema: &Schema) -> Result<Datum> {
        let too_large = || Error::invalid(format!("{} is too large for its type", aggregate.to_text(schema)));
        Ok(match self {
            Self::Count(count) => Datum::Int64(i64::try_from(*count).map_err(|_| too_large())?),
            Self::Sum(None) | Self::FloatSum(None) => Datum::Null,
            Self::FloatSum(Some(sum)) => Datum::Float64(sum.round()),
            Self::Sum(Some(sum)) => {
                let value = sum.to_i128().filter(|&value| decimal_fits(value, SUM_DIGITS));
                Datum::Decimal128(value.ok_or_else(too_large)?)
            }
            Self::Least(code) | Self::Greatest(code) if code.is_empty() => Datum::Null,
            Self::Least(code) | Self::Greatest(code) => {
                let ty = &schema.columns()[aggregate.column().unwrap_or_default()].ty;
                KeyReader::new(code).next(ty, &mut Vec::new())?.to_datum()
            }
        })
    }
}

fn decode_code(column: &Column, reader: &mut Reader<'_>) -> Result<Vec<u8>> {
    let at = reader.position() as u64;
    let code = reader.bytes()?;
    if !code.is_empty() {
        let mut value = KeyReader::new(code);
        value.next(&column.ty, &mut Vec::new()).map_err(|error| error.at(at))?;
        value.finish().map_err(|error| error.at(at))?;
    }
    Ok(code.to_vec())
}

fn is_float(ty: &ColumnType) -> bool {
    matches!(ty, ColumnType::Float32 | ColumnType::Float64)
}

fn float(value: DatumRef<'_>) -> f64 {
    match value {
        DatumRef::Float32(v) => v.into(),
        DatumRef::Float64(v) => v,
        other => unreachable!("an aggregation checks what it sums, and {other:?} is no float"),
    }
}

fn number(value: DatumRef<'_>) -> i128 {
    match value {
        DatumRef::Int8(v) => v.into(),
        DatumRef::Int16(v) => v.into(),
        DatumRef::Int32(v) => v.into(),
        DatumRef::Int64(v) => v.into(),
        DatumRef::UInt8(v) => v.into(),
        DatumRef::UInt16(v) => v.into(),
        DatumRef::UInt32(v) => v.into(),
        DatumRef::UInt64(v) => v.into(),
        DatumRef::Decimal128(v) => v,
        other => unreachable!("an aggregation checks what it sums, and {other:?} is no number"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact_in_any_order_and_their_bytes_are_the_shortest() {
        let values = [i128::MAX, i128::MAX, i128::MIN, 0, -1, 1, 127, 128, -128, -129, 255, 256, i128::MIN, i128::MIN];
        let mut forwards = WideSum::default();
        for (at, &value) in values.iter().enumerate() {
            forwards.add(WideSum::of(value));
            let mut backwards = WideSum::default();
            values[..=at].iter().rev().for_each(|&value| backwards.add(WideSum::of(value)));
            assert_eq!(forwards, backwards);
            let mut bytes = Vec::new();
            forwards.encode(&mut bytes);
            assert_eq!(WideSum::decode(&bytes[1..]), Some(forwards), "{bytes:?}");
        }
        for (value, len) in [(0, 1), (127, 1), (128, 2), (-128, 1), (-129, 2), (i128::MAX, 16), (i128::MIN, 16)] {
            let mut bytes = Vec::new();
            WideSum::of(value).encode(&mut bytes);
            assert_eq!(bytes.len(), 1 + len, "{value}");
            assert_eq!(WideSum::of(value).to_i128(), Some(value));
        }
        let mut wide = WideSum::of(i128::MAX);
        wide.add(WideSum::of(1));
        assert_eq!(wide.to_i128(), None);
        wide.add(WideSum::of(-1));
        assert_eq!(wide.to_i128(), Some(i128::MAX));
        for malformed in [&[0, 0][..], &[0xff, 0xff], &[1; 25]] {
            assert_eq!(WideSum::decode(malformed), None);
        }
    }
}
