//! Cells taken out of pages to be picked from in any order: what a file's column is gathered from when files are merged
//! (LSM-OPD §4.2.1, algorithm 1). No value is decoded, compared or encoded on the way.
//!
//! 1. [`Cells::unpack`] unpacks rows of a page, many at a time: integers to 64 bits, codes to the symbols that the
//!    output knows them by, texts without a dictionary to slices of their bytes. Pages of several blocks stand one
//!    after the other.
//! 2. [`Cells::pick`] appends those at the given places, a load and a store for each.
//!
//! [`Cells::append`] does both for rows that stay in their order. Cells that come by themselves, as those of rows do,
//! stand among those of pages ([`Cells::unpack_cell`]).
//!
//! Limit: 8 bytes a row are written by step 1 and read by step 2, which writes 8 again (4 and 4 for codes), all in the
//! first level of cache; that is about a nanosecond for a cell and column, of which the table of codes adds one load.

use std::ops::Range;

use mycelium_base::{Error, Result};

use super::cell_state::State;
use super::cells::{Cells, Values};
use super::ordinal::ordinal;
use super::symbols::{Symbol, Symbols};
use super::{Page, PageRows, malformed};
use crate::{ColumnState, ColumnType, DatumRef, PackedShape};

/// Rows of pages of one column. Memory of [`Cells::unpack`], reused.
#[derive(Default, Debug)]
pub struct Unpacked {
    ordinals: Vec<i64>,
    wides: Vec<i128>,
    symbols: Vec<Symbol>,
    /// Of rows whose text has no symbol: where it lies in `bytes`. Empty if there is none.
    slices: Vec<Range<usize>>,
    bytes: Vec<u8>,
    /// Of all rows, once one is no value.
    states: Vec<State>,
    rows: usize,
    scratch: Vec<u32>,
}

/// In place of the slice of a row that has a symbol.
const NO_SLICE: Range<usize> = usize::MAX..usize::MAX;

impl Unpacked {
    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.ordinals.clear();
        self.wides.clear();
        self.symbols.clear();
        self.slices.clear();
        self.bytes.clear();
        self.states.clear();
        self.rows = 0;
    }

    /// Which of these rows are values, if not all that there are.
    fn put_states(&mut self, page: &Page<'_>, rows: Range<usize>) {
        if page.has_only_values() && self.states.is_empty() {
            return;
        }
        self.states.resize(self.rows, State::Value);
        self.states.extend(rows.map(|row| page.state(row)));
    }

    fn put_ordinals(&mut self, page: &Page<'_>, rows: Range<usize>) -> Result<()> {
        let rows = PageRows::Range(rows);
        let done = page.append_ordinals(&rows, &mut self.scratch, &mut self.ordinals, |ordinal| ordinal);
        done.ok_or_else(of_another_type)
    }

    fn put_wides(&mut self, page: &Page<'_>, rows: Range<usize>) -> Result<()> {
        let done = page.append_wides(rows, &mut self.scratch, &mut self.wides);
        done.ok_or_else(of_another_type)
    }

    /// Codes become symbols; a code that the dictionary lacks becomes none, since it may stand where there is no value.
    fn put_codes(&mut self, page: &Page<'_>, rows: Range<usize>, symbols: &mut Symbols, is_text: bool) -> Result<()> {
        let Some((codes, dictionary)) = page.codes() else { return Err(of_another_type()) };
        let first = symbols.input(dictionary, |text| !is_text || std::str::from_utf8(text).is_ok());
        let first = first.ok_or_else(|| malformed("text that is not UTF-8"))?;
        let len = dictionary.len() as u32;
        codes.append(rows, &mut self.scratch, &mut self.symbols, |code| Symbols::symbol(first, len, code));
        if !self.slices.is_empty() {
            self.slices.resize(self.symbols.len(), NO_SLICE);
        }
        Ok(())
    }

    fn put_slices(&mut self, page: &Page<'_>, rows: Range<usize>) -> Result<()> {
        self.slices.resize(self.symbols.len(), NO_SLICE);
        self.symbols.resize(self.symbols.len() + rows.len(), Symbol::NONE);
        let (bytes, slices) = (&mut self.bytes, &mut self.slices);
        let done = page.each_text(&PageRows::Range(rows), |text| {
            let start = bytes.len();
            bytes.extend_from_slice(text);
            slices.push(start..bytes.len());
            Ok(())
        })?;
        done.ok_or_else(of_another_type)
    }

    fn put_text(&mut self, text: &[u8]) {
        self.slices.resize(self.symbols.len(), NO_SLICE);
        self.symbols.push(Symbol::NONE);
        self.slices.push(self.bytes.len()..self.bytes.len() + text.len());
        self.bytes.extend_from_slice(text);
    }

    fn slice(&self, place: usize) -> Result<&[u8]> {
        let slice = self.slices.get(place).and_then(|slice| self.bytes.get(slice.clone()));
        slice.ok_or_else(|| malformed("a code that its dictionary lacks"))
    }
}

fn of_another_type() -> Error {
    malformed("cells of another type")
}

impl Cells {
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

    /// Takes rows of a page of the same type out of it, behind those that are there.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where the page is malformed or has no such rows.
    pub fn unpack(&mut self, page: &Page<'_>, rows: Range<usize>, into: &mut Unpacked) -> Result<()> {
        if rows.start > rows.end || rows.end > page.rows() {
            return Err(malformed("row").expected(format_args!("up to {}", page.rows()), rows.end));
        }
        into.put_states(page, rows.clone());
        let count = rows.len();
        match &mut self.values {
            Values::Ordinals(_) => into.put_ordinals(page, rows)?,
            Values::Wide(_) => into.put_wides(page, rows)?,
            Values::Texts(symbols) if page.codes().is_some() => {
                into.put_codes(page, rows, symbols, self.kind == ColumnType::Utf8)?;
            }
            Values::Texts(_) => into.put_slices(page, rows)?,
        }
        into.rows += count;
        Ok(())
    }

    /// Takes one cell as if it were a row of a page, behind those that are there.
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` for a value of another type.
    pub fn unpack_cell(&self, cell: ColumnState<'_>, into: &mut Unpacked) -> Result<()> {
        let (state, value) = match cell {
            ColumnState::Value(value) if !value.is_null() => (State::Value, Some(value)),
            ColumnState::Absent => (State::Absent, None),
            _ => (State::Null, None),
        };
        match (&self.values, value) {
            (Values::Ordinals(_), value) => into.ordinals.push(value.map_or(Ok(0), |value| self.ordinal(value))?),
            (Values::Wide(_), None) => into.wides.push(0),
            (Values::Wide(_), Some(DatumRef::Decimal128(value))) => into.wides.push(value),
            (Values::Texts(_), None) => into.put_text(&[]),
            (Values::Texts(_), Some(DatumRef::Utf8(text))) => into.put_text(text.as_bytes()),
            (Values::Texts(_), Some(DatumRef::Binary(bytes))) => into.put_text(bytes),
            (_, Some(value)) => return Err(self.takes_no(value)),
        }
        if state != State::Value || !into.states.is_empty() {
            into.states.resize(into.rows, State::Value);
            into.states.push(state);
        }
        into.rows += 1;
        Ok(())
    }

    /// Takes values of fixed width as packed rows have them, as if they were rows of a page, behind those that are
    /// there. What takes a look at its type for each cell in [`Cells::unpack_cell`] takes one for all here.
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` where a slot is not of the type, or the type's values are not looked at so:
    /// [`Cells::takes_slots`].
    pub fn unpack_slots<'s>(&self, slots: impl ExactSizeIterator<Item = &'s [u8]>, into: &mut Unpacked) -> Result<()> {
        let (rows, ordinals) = (slots.len(), &mut into.ordinals);
        let done = match &self.kind {
            ColumnType::Int8 => put_slots(slots, ordinals, |slot| i64::from(i8::from_le_bytes(slot))),
            ColumnType::Int16 => put_slots(slots, ordinals, |slot| i64::from(i16::from_le_bytes(slot))),
            ColumnType::Int32 | ColumnType::Date32 => {
                put_slots(slots, ordinals, |slot| i64::from(i32::from_le_bytes(slot)))
            }
            ColumnType::Int64 | ColumnType::Timestamp(..) => put_slots(slots, ordinals, i64::from_le_bytes),
            ColumnType::UInt8 => put_slots(slots, ordinals, |slot| i64::from(u8::from_le_bytes(slot))),
            ColumnType::UInt16 => put_slots(slots, ordinals, |slot| i64::from(u16::from_le_bytes(slot))),
            ColumnType::UInt32 => put_slots(slots, ordinals, |slot| i64::from(u32::from_le_bytes(slot))),
            ColumnType::UInt64 => {
                put_slots(slots, ordinals, |slot| ordinal_of(DatumRef::UInt64(u64::from_le_bytes(slot))))
            }
            ColumnType::Float32 => {
                put_slots(slots, ordinals, |slot| ordinal_of(DatumRef::Float32(f32::from_le_bytes(slot))))
            }
            ColumnType::Float64 => {
                put_slots(slots, ordinals, |slot| ordinal_of(DatumRef::Float64(f64::from_le_bytes(slot))))
            }
            ColumnType::Bool | ColumnType::Decimal128(..) | ColumnType::Utf8 | ColumnType::Binary => None,
        };
        done.ok_or_else(|| Error::invalid(format!("slots that are none of {:?}", self.kind)))?;
        into.rows += rows;
        if !into.states.is_empty() {
            into.states.resize(into.rows, State::Value);
        }
        Ok(())
    }

    /// Whether [`Cells::unpack_slots`] takes values of the type: all of fixed width of which all bytes are values.
    pub fn takes_slots(&self) -> bool {
        !matches!(self.kind, ColumnType::Bool | ColumnType::Decimal128(..) | ColumnType::Utf8 | ColumnType::Binary)
    }

    /// Appends the cells that were unpacked at these places, and adds to each row's shape what it takes packed.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where a value is malformed or there is no such place.
    pub fn pick(&mut self, unpacked: &Unpacked, places: &[u32], shapes: &mut [PackedShape]) -> Result<()> {
        debug_assert_eq!(places.len(), shapes.len());
        if unpacked.states.is_empty() {
            self.pick_values(unpacked, places, shapes)?;
        } else {
            self.pick_cells(unpacked, places, shapes)?;
        }
        if let Values::Texts(symbols) = &mut self.values {
            symbols.bound_memory();
        }
        Ok(())
    }

    /// Where all cells are values.
    fn pick_values(&mut self, unpacked: &Unpacked, places: &[u32], shapes: &mut [PackedShape]) -> Result<()> {
        let Unpacked { ordinals, wides, symbols: unpacked_symbols, slices, .. } = unpacked;
        match &mut self.values {
            Values::Ordinals(values) => pick_integers(ordinals, places, values)?,
            Values::Wide(values) => pick_integers(wides, places, values)?,
            Values::Texts(symbols) if slices.is_empty() => {
                for (&place, shape) in places.iter().zip(shapes) {
                    let symbol = unpacked_symbols.get(place as usize).copied().unwrap_or(Symbol::NONE);
                    shape.variable_len += symbols.push_symbol(symbol).ok_or_else(no_text)?;
                }
            }
            Values::Texts(symbols) => {
                for (&place, shape) in places.iter().zip(shapes) {
                    shape.variable_len += pick_text(symbols, unpacked, place as usize, &self.kind)?;
                }
            }
        }
        if let Some(states) = &mut self.states {
            states.resize(states.len() + places.len(), State::Value);
        }
        Ok(())
    }

    /// Where some cells are null or absent.
    fn pick_cells(&mut self, unpacked: &Unpacked, places: &[u32], shapes: &mut [PackedShape]) -> Result<()> {
        for (&place, shape) in places.iter().zip(shapes) {
            let at = place as usize;
            match unpacked.states.get(at).copied().ok_or_else(no_place)? {
                State::Value => {
                    match &mut self.values {
                        Values::Ordinals(values) => values.push(*unpacked.ordinals.get(at).ok_or_else(no_place)?),
                        Values::Wide(values) => values.push(*unpacked.wides.get(at).ok_or_else(no_place)?),
                        Values::Texts(symbols) => shape.variable_len += pick_text(symbols, unpacked, at, &self.kind)?,
                    }
                    if let Some(states) = &mut self.states {
                        states.push(State::Value);
                    }
                }
                State::Null => {
                    shape.has_nulls = true;
                    self.push_without_value(State::Null);
                }
                State::Absent => {
                    shape.lack(self.kind.fixed_width());
                    self.push_without_value(State::Absent);
                }
            }
        }
        Ok(())
    }
}

/// Appends what `of` makes of each slot; `None` if one has another length.
#[inline]
fn put_slots<'s, const N: usize>(
    slots: impl Iterator<Item = &'s [u8]>,
    ordinals: &mut Vec<i64>,
    of: impl Fn([u8; N]) -> i64,
) -> Option<()> {
    for slot in slots {
        ordinals.push(of(<[u8; N]>::try_from(slot).ok()?));
    }
    Some(())
}

/// Of a value whose type has one for each.
#[inline]
fn ordinal_of(value: DatumRef<'_>) -> i64 {
    ordinal(value).unwrap_or_default()
}

fn pick_integers<T: Copy>(unpacked: &[T], places: &[u32], values: &mut Vec<T>) -> Result<()> {
    let Some(&first) = places.first() else { return Ok(()) };
    let is_dense = places.iter().zip(first..).all(|(&place, expected)| place == expected);
    if is_dense {
        let dense = unpacked.get(first as usize..first as usize + places.len()).ok_or_else(no_place)?;
        values.extend_from_slice(dense);
        return Ok(());
    }
    let most = places.iter().max().map_or(0, |&most| most as usize);
    let unpacked = unpacked.get(..=most).ok_or_else(no_place)?;
    values.extend(places.iter().map(|&place| unpacked[place as usize]));
    Ok(())
}

/// The text at a place, whether it has a symbol or not; its length.
fn pick_text(symbols: &mut Symbols, unpacked: &Unpacked, place: usize, kind: &ColumnType) -> Result<u32> {
    let symbol = unpacked.symbols.get(place).copied().ok_or_else(no_place)?;
    if symbol != Symbol::NONE {
        return symbols.push_symbol(symbol).ok_or_else(no_text);
    }
    let text = unpacked.slice(place)?;
    if *kind == ColumnType::Utf8 && std::str::from_utf8(text).is_err() {
        return Err(malformed("text that is not UTF-8"));
    }
    symbols.push(text);
    Ok(text.len() as u32)
}

#[cold]
fn no_text() -> Error {
    malformed("a code that its dictionary lacks")
}

#[cold]
fn no_place() -> Error {
    malformed("a row that was not unpacked")
}
