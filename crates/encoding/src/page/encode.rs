//! Encodes the cells of a page; the form is that of `page`.

use super::cell_state::State;
use super::dictionary::Dictionary;
use super::distinct::{DistinctSketch, ROWS_A_NOTE};
use super::ordinal::datum;
use super::symbol_table::TextCompressor;
use super::symbols::Symbols;
use super::zone::Zone;
use super::{CODES, COMPRESSED, DECIMALS, INTEGERS, PLAIN, SOME_ABSENT, SOME_NULL, WIDE, decimal, integers};
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
    /// From this row on; compressed, if there is what does it.
    Texts(&'c Symbols, usize, Option<&'c TextCompressor>),
}

impl PageCells<'_> {
    /// Appends the page.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let (nulls, absent) = (self.count_of(State::Null), self.count_of(State::Absent));
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
        out[encoding_at] = match self.values {
            PageValues::Ordinals(values) => self.put_ordinals(values, out),
            PageValues::Wide(values) => self.put_wide(values, out),
            PageValues::Codes(_, codes) => put_codes(codes, out),
            PageValues::Texts(symbols, first, compressor) => {
                let compressed = compressor.and_then(|compressor| self.compress_texts(symbols, first, compressor));
                match compressed {
                    Some(codes) => {
                        put_texts(codes.iter().map(|codes| codes.as_deref()), out);
                        COMPRESSED
                    }
                    None => {
                        put_texts((0..self.rows).map(|at| self.text(symbols, first, at)), out);
                        PLAIN
                    }
                }
            }
        };
    }

    /// What the values lie between.
    pub(super) fn zone(&self) -> Zone {
        let bounds = match self.values {
            PageValues::Ordinals(values) => {
                let bounds = self.bounds(|at| values[at]);
                bounds.map(|(least, greatest)| (datum(self.kind, least), datum(self.kind, greatest)))
            }
            PageValues::Wide(values) => {
                let bounds = self.bounds(|at| values[at]);
                bounds.map(|(least, greatest)| (DatumRef::Decimal128(least), DatumRef::Decimal128(greatest)))
            }
            PageValues::Codes(dictionary, codes) => {
                let text = |code: u32| dictionary.value(code).and_then(|text| text_datum(self.kind, text));
                self.bounds(|at| codes[at]).and_then(|(least, greatest)| text(least).zip(text(greatest)))
            }
            PageValues::Texts(symbols, first, _) => {
                let text = |text| text_datum(self.kind, text);
                let bounds = self.bounds(|at| symbols.of_row(first + at));
                bounds.and_then(|(least, greatest)| text(least).zip(text(greatest)))
            }
        };
        Zone::new(bounds, self.count_of(State::Null) as u32, self.count_of(State::Absent) as u32)
    }

    /// Notes which values some of the rows have. One that is the same as the one before costs next to nothing.
    pub(super) fn note_distinct(&self, sketch: &mut DistinctSketch) {
        let noted = match self.values {
            PageValues::Ordinals(values) => self.each_noted(|at| values[at], |value| sketch.note_ordinal(value)),
            PageValues::Wide(values) => self.each_noted(|at| values[at], |value| sketch.note_wide(value)),
            PageValues::Codes(dictionary, codes) => {
                let note = |code| dictionary.value(code).into_iter().for_each(|text| sketch.note_text(text));
                self.each_noted(|at| codes[at], note)
            }
            PageValues::Texts(symbols, first, _) => {
                self.each_noted(|at| symbols.of_row(first + at), |text| sketch.note_text(text))
            }
        };
        sketch.add_noted(noted);
    }

    /// Tells `note` of those cells to be noted that are values, but for those that are what the one before them is. How
    /// many rows they are.
    #[inline]
    fn each_noted<T: PartialEq + Copy>(&self, value: impl Fn(usize) -> T, mut note: impl FnMut(T)) -> u64 {
        let (mut last, mut noted) = (None, 0);
        for value in (0..self.rows).step_by(ROWS_A_NOTE).filter(|&at| self.has_value(at)).map(value) {
            noted += 1;
            if last.replace(value) != Some(value) {
                note(value);
            }
        }
        noted
    }

    fn count_of(&self, wanted: State) -> usize {
        self.states.map_or(0, |states| states.iter().filter(|&&state| state == wanted).count())
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

    fn put_ordinals(&self, values: &[i64], out: &mut Vec<u8>) -> u8 {
        if matches!(self.kind, ColumnType::Float32 | ColumnType::Float64)
            && let Some((decimals, exponent)) = decimal::integers(self.kind, values)
        {
            out.push(exponent);
            integers::encode(&decimals, out);
            return DECIMALS;
        }
        integers::encode(values, out);
        INTEGERS
    }

    /// As integers, if all that are values fit. What stands where there is none need not: the last that fits takes its
    /// place.
    fn put_wide(&self, values: &[i128], out: &mut Vec<u8>) -> u8 {
        let mut last = 0;
        let integer = |(at, &value): (usize, &i128)| {
            last = i64::try_from(value).ok().or_else(|| (!self.has_value(at)).then_some(last))?;
            Some(last)
        };
        match values.iter().enumerate().map(integer).collect::<Option<Vec<i64>>>() {
            Some(values) => {
                integers::encode(&values, out);
                INTEGERS
            }
            None => {
                values.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
                WIDE
            }
        }
    }

    /// The text of a row, if it has one.
    fn text<'s>(&self, symbols: &'s Symbols, first: usize, at: usize) -> Option<&'s [u8]> {
        self.has_value(at).then(|| symbols.of_row(first + at))
    }

    /// The codes of each text. Expanded again, they were compared with the text: `None` if one differs, or if the codes
    /// are no shorter, and the page is to hold texts as they are.
    fn compress_texts(
        &self,
        symbols: &Symbols,
        first: usize,
        compressor: &TextCompressor,
    ) -> Option<Vec<Option<Vec<u8>>>> {
        let mut expanded = Vec::new();
        let mut compress = |text: &[u8]| {
            let codes = compressor.compress(text);
            expanded.clear();
            compressor.table().expand(&codes, &mut expanded).ok()?;
            (expanded == text).then_some(codes)
        };
        let codes = (0..self.rows).map(|at| match self.text(symbols, first, at) {
            Some(text) => compress(text).map(Some),
            None => Some(None),
        });
        let codes: Vec<Option<Vec<u8>>> = codes.collect::<Option<_>>()?;
        let texts = (0..self.rows).filter_map(|at| self.text(symbols, first, at));
        let (before, after) =
            (texts.map(<[u8]>::len).sum::<usize>(), codes.iter().flatten().map(Vec::len).sum::<usize>());
        (after < before).then_some(codes)
    }
}

/// Where each of them ends, and their bytes.
fn put_texts<'t>(texts: impl Iterator<Item = Option<&'t [u8]>> + Clone, out: &mut Vec<u8>) {
    let mut end = 0;
    let ends: Vec<i64> = texts
        .clone()
        .map(|text| {
            end += text.map_or(0, <[u8]>::len) as i64;
            end
        })
        .collect();
    integers::encode(&ends, out);
    texts.flatten().for_each(|text| out.extend_from_slice(text));
}

fn put_codes(codes: &[u32], out: &mut Vec<u8>) -> u8 {
    let ordinals: Vec<i64> = codes.iter().map(|&code| i64::from(code)).collect();
    integers::encode(&ordinals, out);
    CODES
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
