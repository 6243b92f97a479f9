//! The cells of one column of a file that is being written: gathered row by row, encoded block by block.
//!
//! Whether a column of text gets a dictionary is decided for the file, when all of its texts are known ([`FinishedCells`]); how
//! the integers of a page are encoded, codes included, for each page by what takes the fewest bytes.

use std::ops::Range;
use std::sync::Arc;

use mycelium_base::{Error, Result};

use super::dictionary::Dictionary;
use super::gather::Unpacked;
use super::ordinal::{datum, ordinal};
use super::symbols::Symbols;
use super::zone::Zone;
use super::{CODES, DECIMALS, INTEGERS, PLAIN, Page, SOME_ABSENT, SOME_NULL, WIDE, decimal, integers};
use crate::{ColumnState, ColumnType, DatumRef, PackedShape};

/// A dictionary has at most one text for so many rows (LSM-OPD §5.3: up to an NDV ratio of 20 % it saves more input and output
/// than it costs).
const ROWS_PER_TEXT: usize = 5;

/// Bytes of the largest dictionary: readers hold all of it. A file with more texts has them plain.
const LARGEST_DICTIONARY: usize = 16 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Value,
    Null,
    Absent,
}

#[derive(Debug)]
pub(super) enum Values {
    Ordinals(Vec<i64>),
    Wide(Vec<i128>),
    Texts(Symbols),
}

/// Gathers cells. Not shared between threads.
#[derive(Debug)]
pub struct Cells {
    pub(super) kind: ColumnType,
    pub(super) values: Values,
    /// Of every row, once one is no value.
    pub(super) states: Option<Vec<State>>,
    takes_dictionary: bool,
}

impl Cells {
    /// For a column of this type.
    pub fn new(kind: &ColumnType) -> Self {
        Self::gathering(kind, true)
    }

    /// The same, without a dictionary: keys and zones have none.
    pub fn without_dictionary(kind: &ColumnType) -> Self {
        Self::gathering(kind, false)
    }

    fn gathering(kind: &ColumnType, takes_dictionary: bool) -> Self {
        let values = match kind {
            ColumnType::Utf8 | ColumnType::Binary => Values::Texts(Symbols::new(takes_dictionary)),
            ColumnType::Decimal128(..) => Values::Wide(Vec::new()),
            _ => Values::Ordinals(Vec::new()),
        };
        Self { kind: kind.clone(), values, states: None, takes_dictionary }
    }

    /// Cells gathered.
    pub fn len(&self) -> usize {
        match &self.values {
            Values::Ordinals(values) => values.len(),
            Values::Wide(values) => values.len(),
            Values::Texts(symbols) => symbols.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About the bytes that pages and dictionary will have: what a row takes before bits are packed, texts once each where they
    /// repeat.
    pub fn estimated_bytes(&self) -> usize {
        match &self.values {
            Values::Ordinals(values) => values.len() * self.kind.fixed_width().unwrap_or(8) / 2,
            Values::Wide(values) => values.len() * 8,
            Values::Texts(symbols) if symbols.interns() => symbols.distinct_bytes() + 2 * symbols.len(),
            Values::Texts(symbols) => symbols.text_bytes() + symbols.len(),
        }
    }

    /// Bytes in memory.
    pub fn memory_usage(&self) -> usize {
        let values = match &self.values {
            Values::Ordinals(values) => 8 * values.capacity(),
            Values::Wide(values) => 16 * values.capacity(),
            Values::Texts(symbols) => symbols.memory_usage(),
        };
        values + self.states.as_ref().map_or(0, Vec::capacity)
    }

    /// Adds the next row's cell.
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` for a value of another type.
    #[inline]
    pub fn push(&mut self, cell: ColumnState<'_>) -> Result<()> {
        match cell {
            ColumnState::Value(value) if !value.is_null() => self.push_value(value),
            ColumnState::Absent => {
                self.push_without_value(State::Absent);
                Ok(())
            }
            _ => {
                self.push_without_value(State::Null);
                Ok(())
            }
        }
    }

    #[inline]
    fn push_value(&mut self, value: DatumRef<'_>) -> Result<()> {
        match (&mut self.values, value) {
            (Values::Texts(symbols), DatumRef::Utf8(text)) => symbols.push(text.as_bytes()),
            (Values::Texts(symbols), DatumRef::Binary(bytes)) => symbols.push(bytes),
            (Values::Wide(values), DatumRef::Decimal128(value)) => values.push(value),
            (Values::Ordinals(values), value) => match ordinal(value) {
                Some(ordinal) => values.push(ordinal),
                None => return Err(Error::invalid(format!("a page of {:?} takes no {value:?}", self.kind))),
            },
            (_, value) => return Err(Error::invalid(format!("a page of {:?} takes no {value:?}", self.kind))),
        }
        if let Some(states) = &mut self.states {
            states.push(State::Value);
        }
        Ok(())
    }

    #[cold]
    fn first_without_value(&mut self) {
        self.states = Some(vec![State::Value; self.len()]);
    }

    pub(super) fn push_without_value(&mut self, state: State) {
        if self.states.is_none() {
            self.first_without_value();
        }
        match &mut self.values {
            Values::Ordinals(values) => values.push(values.last().copied().unwrap_or_default()),
            Values::Wide(values) => values.push(values.last().copied().unwrap_or_default()),
            Values::Texts(symbols) => symbols.push_nothing(),
        }
        if let Some(states) = &mut self.states {
            states.push(state);
        }
    }

    /// Adds cells of a page of the same type. Integers are unpacked in bulk, codes stay codes: no text is touched.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where the page is malformed.
    pub fn append(&mut self, page: &Page<'_>, rows: Range<usize>) -> Result<()> {
        let mut unpacked = Unpacked::default();
        self.unpack(page, rows.clone(), &mut unpacked)?;
        let places: Vec<u32> = (0..rows.len() as u32).collect();
        self.pick(&unpacked, &places, &mut vec![PackedShape::default(); places.len()])
    }

    /// All cells are there.
    pub fn finish(self) -> FinishedCells {
        let Self { kind, values, states, takes_dictionary } = self;
        let values = match values {
            Values::Ordinals(values) => Finished::Ordinals(values),
            Values::Wide(values) => Finished::Wide(values),
            Values::Texts(symbols) => match Some(&symbols).filter(|_| takes_dictionary).and_then(dictionary_of) {
                Some((dictionary, codes)) => Finished::Codes(dictionary, codes),
                None => Finished::Texts(symbols),
            },
        };
        FinishedCells { kind, values, states }
    }
}

/// The dictionary of a file's texts and their codes, if it is worth it. Texts that are surely too many are not ordered.
fn dictionary_of(symbols: &Symbols) -> Option<(Dictionary, Arc<[u32]>)> {
    if symbols.has_more_than(symbols.len() / ROWS_PER_TEXT) {
        return None;
    }
    let (dictionary, codes) = symbols.ordered();
    pays(symbols.len(), symbols.text_bytes(), &dictionary).then_some((dictionary, codes))
}

/// Whether a dictionary is worth it for so many rows with so many bytes of text: it has few texts (the NDV ratio), and with the
/// codes it takes clearly fewer bytes than the texts.
fn pays(rows: usize, text_bytes: usize, dictionary: &Dictionary) -> bool {
    let code_bits = usize::BITS - dictionary.len().leading_zeros();
    let encoded = dictionary.memory_usage() + rows * code_bits as usize / 8;
    let is_small = dictionary.memory_usage() <= LARGEST_DICTIONARY;
    is_small && dictionary.len() * ROWS_PER_TEXT <= rows && encoded * 4 < (text_bytes + rows) * 3
}

#[derive(Debug)]
enum Finished {
    Ordinals(Vec<i64>),
    Wide(Vec<i128>),
    Codes(Dictionary, Arc<[u32]>),
    Texts(Symbols),
}

/// The cells of a column of a file, to be encoded block by block.
#[derive(Debug)]
pub struct FinishedCells {
    kind: ColumnType,
    values: Finished,
    states: Option<Vec<State>>,
}

impl FinishedCells {
    /// The dictionary of the file, if the column has one.
    pub fn dictionary(&self) -> Option<&Dictionary> {
        match &self.values {
            Finished::Codes(dictionary, _) => Some(dictionary),
            _ => None,
        }
    }

    /// Appends the page of some rows, and says what its values lie between.
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` if there are no such rows.
    pub fn encode(&self, rows: Range<usize>, out: &mut Vec<u8>) -> Result<Zone> {
        let states = self.states.as_ref().map(|states| &states[rows.clone()]);
        let count_of =
            |wanted: State| states.map_or(0, |states| states.iter().filter(|&&state| state == wanted).count());
        let (nulls, absent) = (count_of(State::Null), count_of(State::Absent));
        let encoding_at = out.len();
        out.push(0);
        out.push(if nulls > 0 { SOME_NULL } else { 0 } | if absent > 0 { SOME_ABSENT } else { 0 });
        if let Some(states) = states {
            for (state, count) in [(State::Null, nulls), (State::Absent, absent)] {
                if count > 0 {
                    put_bits(states.iter().map(|&found| found == state), out);
                }
            }
        }
        let has_value = |at: usize| states.is_none_or(|states| states[at] == State::Value);
        let (encoding, zone) = match &self.values {
            Finished::Ordinals(values) => self.put_ordinals(&values[rows], has_value, nulls, out),
            Finished::Wide(values) => self.put_wide(&values[rows], has_value, nulls, out),
            Finished::Codes(dictionary, codes) => self.put_codes(dictionary, &codes[rows], has_value, nulls, out),
            Finished::Texts(symbols) => self.put_texts(symbols, rows, has_value, nulls, out),
        };
        out[encoding_at] = encoding;
        Ok(zone)
    }

    fn put_ordinals(
        &self,
        values: &[i64],
        has_value: impl Fn(usize) -> bool,
        nulls: usize,
        out: &mut Vec<u8>,
    ) -> (u8, Zone) {
        let some = || values.iter().enumerate().filter(|(at, _)| has_value(*at)).map(|(_, &value)| value);
        let bounds = some().min().zip(some().max());
        let bounds = bounds.map(|(least, greatest)| (datum(&self.kind, least), datum(&self.kind, greatest)));
        let zone = Zone::new(bounds, nulls as u32);
        if matches!(self.kind, ColumnType::Float32 | ColumnType::Float64)
            && let Some((decimals, exponent)) = decimal::integers(&self.kind, values)
        {
            out.push(exponent);
            integers::encode(&decimals, out);
            return (DECIMALS, zone);
        }
        integers::encode(values, out);
        (INTEGERS, zone)
    }

    fn put_wide(
        &self,
        values: &[i128],
        has_value: impl Fn(usize) -> bool,
        nulls: usize,
        out: &mut Vec<u8>,
    ) -> (u8, Zone) {
        let some = || values.iter().enumerate().filter(|(at, _)| has_value(*at)).map(|(_, &value)| value);
        let bounds = some().min().zip(some().max());
        let zone = Zone::new(
            bounds.map(|(least, greatest)| (DatumRef::Decimal128(least), DatumRef::Decimal128(greatest))),
            nulls as u32,
        );
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

    fn put_codes(
        &self,
        dictionary: &Dictionary,
        codes: &[u32],
        has_value: impl Fn(usize) -> bool,
        nulls: usize,
        out: &mut Vec<u8>,
    ) -> (u8, Zone) {
        let some = || codes.iter().enumerate().filter(|(at, _)| has_value(*at)).map(|(_, &code)| code);
        let text = |code: u32| dictionary.value(code).and_then(|text| text_datum(&self.kind, text));
        let bounds = some().min().and_then(text).zip(some().max().and_then(text));
        let ordinals: Vec<i64> = codes.iter().map(|&code| i64::from(code)).collect();
        integers::encode(&ordinals, out);
        (CODES, Zone::new(bounds, nulls as u32))
    }

    fn put_texts(
        &self,
        symbols: &Symbols,
        rows: Range<usize>,
        has_value: impl Fn(usize) -> bool,
        nulls: usize,
        out: &mut Vec<u8>,
    ) -> (u8, Zone) {
        let texts = || rows.clone().enumerate().filter(|(at, _)| has_value(*at)).map(|(_, row)| symbols.of_row(row));
        let bounds = texts().min().zip(texts().max());
        let text = |text| text_datum(&self.kind, text);
        let bounds = bounds.and_then(|(least, greatest)| text(least).zip(text(greatest)));
        let mut end = 0;
        let ends: Vec<i64> = rows
            .clone()
            .enumerate()
            .map(|(at, row)| {
                end += if has_value(at) { symbols.of_row(row).len() as i64 } else { 0 };
                end
            })
            .collect();
        integers::encode(&ends, out);
        texts().for_each(|text| out.extend_from_slice(text));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dictionary_that_is_too_large_to_hold_gives_way() {
        for (len, is_held) in [(LARGEST_DICTIONARY / 200, true), (LARGEST_DICTIONARY / 90, false)] {
            let mut cells = Cells::new(&ColumnType::Binary);
            for row in 0..600_u32 {
                let mut text = vec![0; len];
                text[..4].copy_from_slice(&(row % 100).to_be_bytes());
                cells.push(ColumnState::Value(DatumRef::Binary(&text))).unwrap();
            }
            assert_eq!(cells.finish().dictionary().map(Dictionary::len), is_held.then_some(100));
        }
    }
}
