//! The cells of one column of a file that is being written: gathered row by row, encoded block by block. Cells of fixed
//! width can be encoded and forgotten as soon as their block is complete.
//!
//! Whether a column of text gets a dictionary, or else a symbol table, is decided for the file, when all of its texts
//! are known ([`FinishedCells`]); how the integers of a page are encoded, codes included, for each page by what takes
//! the fewest bytes.

use std::ops::Range;
use std::sync::Arc;

use mycelium_base::{Error, Result};

use super::cell_state::State;
use super::coding::TextCoding;
use super::dictionary::Dictionary;
use super::distinct::DistinctSketch;
use super::encode::{PageCells, PageValues};
use super::ordinal::ordinal;
use super::symbol_table::TextCompressor;
use super::symbols::{LARGEST_DICTIONARY, Symbols};
use super::zone::Zone;
use crate::{ColumnState, ColumnType, DatumRef};

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
    /// Cells that were encoded already and are not here any more.
    forgotten: usize,
    /// The value of the last of them.
    filler: i128,
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
        Self { kind: kind.clone(), values, states: None, takes_dictionary, forgotten: 0, filler: 0 }
    }

    /// Cells gathered and not forgotten.
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

    /// About the bytes that pages will have, those of forgotten cells included: what a row takes before bits are
    /// packed. Of texts that may get a dictionary it is their codes that count, as in LSM-OPD, whose files hold codes:
    /// the dictionary, of [`LARGEST_DICTIONARY`] at most, comes on top, and the more rows share it the less each of
    /// them takes.
    pub fn estimated_bytes(&self) -> usize {
        match &self.values {
            Values::Ordinals(values) => (self.forgotten + values.len()) * self.kind.fixed_width().unwrap_or(8) / 2,
            Values::Wide(values) => (self.forgotten + values.len()) * 8,
            Values::Texts(symbols) if symbols.interns() => {
                symbols.distinct_bytes().saturating_sub(LARGEST_DICTIONARY) + 2 * symbols.len()
            }
            Values::Texts(symbols) => symbols.text_bytes() + symbols.len(),
        }
    }

    /// Bytes in memory, the dictionaries of inputs included ([`Cells::let_inputs_go`]). O(inputs).
    pub fn memory_usage(&self) -> usize {
        let values = match &self.values {
            Values::Ordinals(values) => 8 * values.capacity(),
            Values::Wide(values) => 16 * values.capacity(),
            Values::Texts(symbols) => symbols.memory_usage(),
        };
        values + self.states.as_ref().map_or(0, Vec::capacity)
    }

    /// Of these, the bytes of the dictionaries of inputs. O(inputs).
    pub fn input_bytes(&self) -> usize {
        match &self.values {
            Values::Texts(symbols) => symbols.held_bytes(),
            _ => 0,
        }
    }

    /// Lets the dictionaries of inputs go that it has taken codes of: of their texts only those are kept that rows
    /// have. O(rows + texts of the inputs).
    pub fn let_inputs_go(&mut self) {
        if let Values::Texts(symbols) = &mut self.values {
            symbols.let_go();
        }
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
                None => return Err(self.takes_no(value)),
            },
            (_, value) => return Err(self.takes_no(value)),
        }
        if let Some(states) = &mut self.states {
            states.push(State::Value);
        }
        Ok(())
    }

    /// The number that stands for a value of a type that has one.
    pub(super) fn ordinal(&self, value: DatumRef<'_>) -> Result<i64> {
        ordinal(value).ok_or_else(|| self.takes_no(value))
    }

    #[cold]
    pub(super) fn takes_no(&self, value: DatumRef<'_>) -> Error {
        Error::invalid(format!("a page of {:?} takes no {value:?}", self.kind))
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
            Values::Ordinals(values) => values.push(values.last().copied().unwrap_or(self.filler as i64)),
            Values::Wide(values) => values.push(values.last().copied().unwrap_or(self.filler)),
            Values::Texts(symbols) => symbols.push_nothing(),
        }
        if let Some(states) = &mut self.states {
            states.push(state);
        }
    }

    /// Whether pages can only be encoded once all cells of the file are there: those of texts, which may get a
    /// dictionary.
    pub fn waits_for_all(&self) -> bool {
        matches!(self.values, Values::Texts(_)) && self.takes_dictionary
    }

    /// As [`FinishedCells::encode`], of cells that need not wait for others ([`Cells::waits_for_all`]). Rows are
    /// counted from the first that is not forgotten.
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` if there are no such rows, or they must wait.
    pub fn encode(&self, rows: Range<usize>, out: &mut Vec<u8>) -> Result<Zone> {
        let cells = self.page_cells(rows)?;
        cells.encode(out);
        Ok(cells.zone())
    }

    /// The same for who asks for no zone.
    ///
    /// # Errors
    /// As [`Cells::encode`].
    pub fn encode_page(&self, rows: Range<usize>, out: &mut Vec<u8>) -> Result<()> {
        self.page_cells(rows)?.encode(out);
        Ok(())
    }

    /// Notes which values some of these rows have, as [`Cells::encode`] takes them.
    ///
    /// # Errors
    /// As [`Cells::encode`].
    pub fn note_distinct(&self, rows: Range<usize>, sketch: &mut DistinctSketch) -> Result<()> {
        self.page_cells(rows)?.note_distinct(sketch);
        Ok(())
    }

    fn page_cells(&self, rows: Range<usize>) -> Result<PageCells<'_>> {
        let values = match &self.values {
            Values::Ordinals(values) => PageValues::Ordinals(some_of(values, &rows)?),
            Values::Wide(values) => PageValues::Wide(some_of(values, &rows)?),
            Values::Texts(symbols) if !self.takes_dictionary && rows.end <= symbols.len() => {
                PageValues::Texts(symbols, rows.start, None)
            }
            Values::Texts(_) => return Err(no_rows()),
        };
        let states = self.states.as_ref().map(|states| some_of(states, &rows)).transpose()?;
        Ok(PageCells { kind: &self.kind, rows: rows.len(), values, states })
    }

    /// Forgets the first cells, so many at most, which were encoded; nothing where texts wait for all cells.
    pub fn forget(&mut self, count: usize) {
        let count = count.min(self.len());
        match &mut self.values {
            Values::Ordinals(values) => {
                self.filler = values[..count].last().map_or(self.filler, |&last| i128::from(last));
                values.drain(..count);
            }
            Values::Wide(values) => {
                self.filler = values[..count].last().copied().unwrap_or(self.filler);
                values.drain(..count);
            }
            Values::Texts(_) => return,
        }
        if let Some(states) = &mut self.states {
            states.drain(..count);
        }
        self.forgotten += count;
    }

    /// All cells are there.
    pub fn finish(self) -> FinishedCells {
        let Self { kind, values, states, takes_dictionary, .. } = self;
        let values = match values {
            Values::Ordinals(values) => Finished::Ordinals(values),
            Values::Wide(values) => Finished::Wide(values),
            Values::Texts(symbols) => match Some(&symbols).filter(|_| takes_dictionary).and_then(dictionary_of) {
                Some((dictionary, codes)) => Finished::Codes(dictionary, codes),
                None => {
                    let compressor = Some(&symbols).filter(|_| takes_dictionary).and_then(compressor_of);
                    Finished::Texts(symbols, compressor)
                }
            },
        };
        FinishedCells { kind, values, states }
    }
}

/// The dictionary of a file's texts and their codes, if it is worth it. Texts that are surely too many are not ordered.
fn dictionary_of(symbols: &Symbols) -> Option<(Dictionary, Arc<[u32]>)> {
    if symbols.has_more_than(symbols.len() * 3 / 4) {
        return None;
    }
    let (dictionary, codes) = symbols.ordered()?;
    pays(symbols.len(), symbols.text_bytes(), &dictionary).then_some((dictionary, codes))
}

/// The symbol table of a file's texts, if it is worth it.
fn compressor_of(symbols: &Symbols) -> Option<Box<TextCompressor>> {
    TextCompressor::train(symbols.len(), symbols.text_bytes(), |row| symbols.of_row(row)).map(Box::new)
}

/// Whether a dictionary is worth it for so many rows with so many bytes of text: with the codes it takes at most three
/// quarters of the bytes that the texts take. What it costs to make it is less than reading, writing and filtering the
/// rest ([decision 0044](../../../../docs/decisions/0044-dictionaries-by-bytes.md)).
fn pays(rows: usize, text_bytes: usize, dictionary: &Dictionary) -> bool {
    let code_bits = usize::BITS - dictionary.len().leading_zeros();
    let encoded = dictionary.memory_usage() + rows * code_bits as usize / 8;
    encoded * 4 < (text_bytes + rows) * 3
}

#[derive(Debug)]
enum Finished {
    Ordinals(Vec<i64>),
    Wide(Vec<i128>),
    Codes(Dictionary, Arc<[u32]>),
    Texts(Symbols, Option<Box<TextCompressor>>),
}

impl Finished {
    fn len(&self) -> usize {
        match self {
            Self::Ordinals(values) => values.len(),
            Self::Wide(values) => values.len(),
            Self::Codes(_, codes) => codes.len(),
            Self::Texts(symbols, _) => symbols.len(),
        }
    }
}

/// The cells of a column of a file, to be encoded block by block.
#[derive(Debug)]
pub struct FinishedCells {
    kind: ColumnType,
    values: Finished,
    states: Option<Vec<State>>,
}

impl FinishedCells {
    /// What the column's texts are coded with in the file, if they are.
    pub fn coding(&self) -> Option<TextCoding> {
        match &self.values {
            Finished::Codes(dictionary, _) => Some(TextCoding::Dictionary(dictionary.clone())),
            Finished::Texts(_, Some(compressor)) => Some(TextCoding::SymbolTable(compressor.table().clone())),
            _ => None,
        }
    }

    /// Appends the page of some rows, and says what its values lie between.
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` if there are no such rows.
    pub fn encode(&self, rows: Range<usize>, out: &mut Vec<u8>) -> Result<Zone> {
        let cells = self.page_cells(rows)?;
        cells.encode(out);
        Ok(cells.zone())
    }

    /// Notes which values some rows have; those of a dictionary once, however many rows have them.
    pub fn note_distinct(&self, sketch: &mut DistinctSketch) {
        match &self.values {
            Finished::Codes(dictionary, codes) => {
                dictionary.values().for_each(|text| sketch.note_text(text));
                sketch.add_noted(codes.len() as u64);
            }
            values => {
                let all = self.page_cells(0..values.len());
                all.into_iter().for_each(|cells| cells.note_distinct(sketch));
            }
        }
    }

    fn page_cells(&self, rows: Range<usize>) -> Result<PageCells<'_>> {
        let values = match &self.values {
            Finished::Ordinals(values) => PageValues::Ordinals(some_of(values, &rows)?),
            Finished::Wide(values) => PageValues::Wide(some_of(values, &rows)?),
            Finished::Codes(dictionary, codes) => PageValues::Codes(dictionary, some_of(codes, &rows)?),
            Finished::Texts(symbols, compressor) if rows.end <= symbols.len() => {
                PageValues::Texts(symbols, rows.start, compressor.as_deref())
            }
            Finished::Texts(..) => return Err(no_rows()),
        };
        let states = self.states.as_ref().map(|states| some_of(states, &rows)).transpose()?;
        Ok(PageCells { kind: &self.kind, rows: rows.len(), values, states })
    }
}

fn no_rows() -> Error {
    Error::invalid("a page of rows that are not there")
}

fn some_of<'v, T>(values: &'v [T], rows: &Range<usize>) -> Result<&'v [T]> {
    values.get(rows.clone()).ok_or_else(no_rows)
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
            assert_eq!(
                cells.finish().coding().as_ref().and_then(TextCoding::dictionary).map(Dictionary::len),
                is_held.then_some(100)
            );
        }
    }
}
