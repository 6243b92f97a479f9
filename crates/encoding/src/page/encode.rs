//! Encodes the cells of a page; the form is that of `page`.

use super::cells::State;
use super::dictionary::Dictionary;
use super::ordinal::datum;
use super::symbols::Symbols;
use super::zone::Zone;
use super::{CODES, DECIMALS, INTEGERS, PLAIN, SOME_ABSENT, SOME_NULL, WIDE, decimal, integers};
use crate::{ColumnType, DatumRef};

/// The cells of a page.
pub(super) struct PageCells<'c> {
    pub(super) kind: &'c ColumnType,
    pub(super) rows: usize,
    pub(super) values: PageValues<'c>,
    /// Of every row, if one is no value.
    pub(super) states: Option<&'c [State]>,
}

/// Their values; where a cell is none, anything.
#[derive(Clone, Copy)]
pub(super) enum PageValues<'c> {
    Ordinals(&'c [i64]),
    Wide(&'c [i128]),
    Codes(&'c Dictionary, &'c [u32]),
    /// From this row on.
    Texts(&'c Symbols, usize),
}

impl PageCells<'_> {
    /// Appends the page, and says what its values lie between.
    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Zone {
        let count_of =
            |wanted: State| self.states.map_or(0, |states| states.iter().filter(|&&state| state == wanted).count());
        let (nulls, absent) = (count_of(State::Null), count_of(State::Absent));
        let encoding_at = out.len();
        out.push(0);
        out.push(if nulls > 0 { SOME_NULL } else { 0 } | if absent > 0 { SOME_ABSENT } else { 0 });
        if let Some(states) = self.states {
            for (state, count) in [(State::Null, nulls), (State::Absent, absent)] {
                if count > 0 {
                    put_bits(states.iter().map(|&found| found == state), out);
                }
            }
        }
        let (encoding, zone) = match self.values {
            PageValues::Ordinals(values) => self.put_ordinals(values, nulls, out),
            PageValues::Wide(values) => self.put_wide(values, nulls, out),
            PageValues::Codes(dictionary, codes) => self.put_codes(dictionary, codes, nulls, out),
            PageValues::Texts(symbols, first) => self.put_texts(symbols, first, nulls, out),
        };
        out[encoding_at] = encoding;
        zone
    }

    #[inline]
    fn has_value(&self, at: usize) -> bool {
        self.states.is_none_or(|states| states[at] == State::Value)
    }

    /// The smallest and the largest of the cells that are values.
    #[inline]
    fn bounds<T: Ord + Copy>(&self, value: impl Fn(usize) -> T) -> Option<(T, T)> {
        let mut some = (0..self.rows).filter(|&at| self.has_value(at)).map(value);
        let first = some.next()?;
        Some(some.fold((first, first), |(least, greatest), value| (least.min(value), greatest.max(value))))
    }

    fn put_ordinals(&self, values: &[i64], nulls: usize, out: &mut Vec<u8>) -> (u8, Zone) {
        let bounds = self.bounds(|at| values[at]);
        let bounds = bounds.map(|(least, greatest)| (datum(self.kind, least), datum(self.kind, greatest)));
        let zone = Zone::new(bounds, nulls as u32);
        if matches!(self.kind, ColumnType::Float32 | ColumnType::Float64)
            && let Some((decimals, exponent)) = decimal::integers(self.kind, values)
        {
            out.push(exponent);
            integers::encode(&decimals, out);
            return (DECIMALS, zone);
        }
        integers::encode(values, out);
        (INTEGERS, zone)
    }

    fn put_wide(&self, values: &[i128], nulls: usize, out: &mut Vec<u8>) -> (u8, Zone) {
        let bounds = self.bounds(|at| values[at]);
        let bounds = bounds.map(|(least, greatest)| (DatumRef::Decimal128(least), DatumRef::Decimal128(greatest)));
        let zone = Zone::new(bounds, nulls as u32);
        let narrow: Option<Vec<i64>> = values.iter().map(|&value| i64::try_from(value).ok()).collect();
        match narrow {
            Some(values) => {
                integers::encode(&values, out);
                (INTEGERS, zone)
            }
            None => {
                values.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
                (WIDE, zone)
            }
        }
    }

    fn put_codes(&self, dictionary: &Dictionary, codes: &[u32], nulls: usize, out: &mut Vec<u8>) -> (u8, Zone) {
        let text = |code: u32| dictionary.value(code).and_then(|text| text_datum(self.kind, text));
        let bounds = self.bounds(|at| codes[at]);
        let bounds = bounds.and_then(|(least, greatest)| text(least).zip(text(greatest)));
        let ordinals: Vec<i64> = codes.iter().map(|&code| i64::from(code)).collect();
        integers::encode(&ordinals, out);
        (CODES, Zone::new(bounds, nulls as u32))
    }

    fn put_texts(&self, symbols: &Symbols, first: usize, nulls: usize, out: &mut Vec<u8>) -> (u8, Zone) {
        let rows = first..first + self.rows;
        let text = |text| text_datum(self.kind, text);
        let bounds = self.bounds(|at| symbols.of_row(first + at));
        let bounds = bounds.and_then(|(least, greatest)| text(least).zip(text(greatest)));
        let texts = || rows.clone().enumerate().map(|(at, row)| self.has_value(at).then(|| symbols.of_row(row)));
        let mut end = 0;
        let ends: Vec<i64> = texts()
            .map(|text| {
                end += text.map_or(0, <[u8]>::len) as i64;
                end
            })
            .collect();
        integers::encode(&ends, out);
        texts().flatten().for_each(|text| out.extend_from_slice(text));
        (PLAIN, Zone::new(bounds, nulls as u32))
    }
}

fn text_datum<'t>(kind: &ColumnType, text: &'t [u8]) -> Option<DatumRef<'t>> {
    match kind {
        ColumnType::Utf8 => std::str::from_utf8(text).ok().map(DatumRef::Utf8),
        _ => Some(DatumRef::Binary(text)),
    }
}

fn put_bits(bits: impl Iterator<Item = bool>, out: &mut Vec<u8>) {
    let (mut byte, mut filled) = (0, 0);
    for bit in bits {
        byte |= u8::from(bit) << filled;
        filled += 1;
        if filled == 8 {
            out.push(byte);
            (byte, filled) = (0, 0);
        }
    }
    if filled > 0 {
        out.push(byte);
    }
}
