//! What younger sources change in a block, by the places of its rows: the cells that have other values, the rows that
//! are gone, and those that are new (Héman et al., Positional Update Handling in Column Stores, SIGMOD 2010).
//!
//! ```text
//! identity of what it is of, see [`super::deltas`]
//! u32      1; 0 if the changes cannot be said so, and nothing follows
//! u32      rows that are gone
//! u32      new rows
//! u32      bytes of their keys
//! u32 ...  the rows that are gone, ascending
//! u32 ...  of each new row, before which row of the block it comes, ascending
//! u32 ...  of each, where its key ends among the bytes of the keys
//! u8 ...   the keys
//!          of each column:
//! u32      cells that have another value
//! u32      bytes of a value: 4, 8 or 16
//! u32 ...  their rows, ascending
//! u8 ...   their values
//! u8 ...   the values of the new rows
//! ```
//!
//! Integers are little-endian. It is never written to disk.

use std::ops::Range;
use std::sync::Arc;

use super::patches::Overwrite;

/// Made by [`Changes::encode`].
pub(super) struct PositionalDelta {
    bytes: Arc<[u8]>,
    gone: Range<usize>,
    new_before: Range<usize>,
    new_ends: Range<usize>,
    new_keys: Range<usize>,
    columns: Vec<Column>,
}

/// Where what there is of a column lies.
struct Column {
    width: usize,
    rows: Range<usize>,
    values: Range<usize>,
    new_values: Range<usize>,
}

/// Reads one part after the other.
struct Parts<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Parts<'_> {
    fn take(&mut self, len: usize) -> Option<Range<usize>> {
        let part = self.at..self.at.checked_add(len)?;
        self.at = part.end;
        (part.end <= self.bytes.len()).then_some(part)
    }

    fn number(&mut self) -> Option<usize> {
        let part = self.take(4)?;
        Some(number_at(&self.bytes[part], 0))
    }
}

#[inline]
fn number_at(bytes: &[u8], number: usize) -> usize {
    let (numbers, _) = bytes.as_chunks();
    numbers.get(number).map_or(0, |&number| u32::from_le_bytes(number) as usize)
}

/// The numbers that lie in these bytes.
#[inline]
fn numbers(bytes: &[u8]) -> impl ExactSizeIterator<Item = u32> {
    let (numbers, _) = bytes.as_chunks();
    numbers.iter().map(|&number| u32::from_le_bytes(number))
}

/// Of numbers that ascend in these bytes, how many are below one.
fn count_below(bytes: &[u8], end: usize) -> usize {
    let (numbers, _) = bytes.as_chunks();
    numbers.partition_point(|&number| (u32::from_le_bytes(number) as usize) < end)
}

/// What there is to encode.
pub(super) struct Changes<'a> {
    /// Those of a cell come one after the other, the last is the one that counts; rows ascend.
    pub(super) cells: &'a [Overwrite],
    pub(super) gone: &'a [u32],
    /// Before which row of the block each comes, and its key; both ascend.
    pub(super) new: Vec<(usize, &'a [u8])>,
    /// The offset is the number of the new row; likewise.
    pub(super) new_values: &'a [Overwrite],
}

fn put(number: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&(number as u32).to_le_bytes());
}

impl Changes<'_> {
    /// Writes what follows the identity, of the columns at these places of a projection.
    pub(super) fn encode(&self, targets: impl Iterator<Item = usize>, out: &mut Vec<u8>) {
        let keys = self.new.iter().map(|(_, key)| key.len());
        for number in [1, self.gone.len(), self.new.len(), keys.clone().sum()] {
            put(number, out);
        }
        self.gone.iter().for_each(|&row| put(row as usize, out));
        self.new.iter().for_each(|&(before, _)| put(before, out));
        let ends = keys.scan(0, |end, len| {
            *end += len;
            Some(*end)
        });
        ends.for_each(|end| put(end, out));
        self.new.iter().for_each(|(_, key)| out.extend_from_slice(key));
        targets.for_each(|target| self.encode_column(target, out));
    }

    fn encode_column(&self, target: usize, out: &mut Vec<u8>) {
        let mut cells: Vec<(u32, u128)> = Vec::new();
        for cell in self.cells.iter().filter(|cell| cell.target as usize == target) {
            match cells.last_mut().filter(|last| last.0 == cell.offset) {
                Some(last) => last.1 = cell.value,
                None => cells.push((cell.offset, cell.value)),
            }
        }
        let mut new = vec![0; self.new.len()];
        for cell in self.new_values.iter().filter(|cell| cell.target as usize == target) {
            new[cell.offset as usize] = cell.value;
        }
        let values = || cells.iter().map(|(_, value)| value).chain(&new);
        let width = match u128::BITS - values().fold(0, |all, value| all | value).leading_zeros() {
            0..=32 => 4,
            33..=64 => 8,
            _ => 16,
        };
        put(cells.len(), out);
        put(width, out);
        cells.iter().for_each(|(row, _)| put(*row as usize, out));
        values().for_each(|value| out.extend_from_slice(&value.to_le_bytes()[..width]));
    }
}

impl PositionalDelta {
    /// Writes that the changes cannot be said so.
    pub(super) fn encode_none(out: &mut Vec<u8>) {
        put(0, out);
    }

    /// What was encoded behind an identity of so many bytes, of so many columns.
    pub(super) fn parse(bytes: Arc<[u8]>, identity_len: usize, columns: usize) -> Option<Self> {
        let mut parts = Parts { bytes: &bytes, at: identity_len };
        if parts.number()? == 0 {
            return None;
        }
        let (gone, new, key_bytes) = (parts.number()?, parts.number()?, parts.number()?);
        let (gone, new_before) = (parts.take(4 * gone)?, parts.take(4 * new)?);
        let (new_ends, new_keys) = (parts.take(4 * new)?, parts.take(key_bytes)?);
        let column = |_| {
            let (cells, width) = (parts.number()?, parts.number()?);
            let (rows, values) = (parts.take(4 * cells)?, parts.take(width * cells)?);
            Some(Column { width, rows, values, new_values: parts.take(width * new)? })
        };
        let columns = (0..columns).map(column).collect::<Option<_>>()?;
        Some(Self { gone, new_before, new_ends, new_keys, columns, bytes })
    }

    /// One that changes nothing.
    pub(super) fn none() -> Self {
        let [gone, new_before, new_ends, new_keys] = [const { 0..0 }; 4];
        Self { bytes: Arc::from([]), gone, new_before, new_ends, new_keys, columns: Vec::new() }
    }

    fn part(&self, part: &Range<usize>) -> &[u8] {
        &self.bytes[part.clone()]
    }

    /// The rows of the block that are gone, of these.
    pub(super) fn gone(&self, rows: Range<usize>) -> impl Iterator<Item = u32> {
        let gone = self.part(&self.gone);
        numbers(&gone[4 * count_below(gone, rows.start)..4 * count_below(gone, rows.end)])
    }

    /// Whether a row of the block is gone.
    #[inline]
    pub(super) fn is_gone(&self, row: usize) -> bool {
        !self.gone.is_empty() && self.gone(row..row + 1).next().is_some()
    }

    /// How many new rows come before rows of the block that are before this one.
    pub(super) fn new_before(&self, row: usize) -> usize {
        if self.new_before.is_empty() { 0 } else { count_below(self.part(&self.new_before), row) }
    }

    /// New rows.
    pub(super) fn new_rows(&self) -> usize {
        self.new_before.len() / 4
    }

    /// Before which row of the block a new row comes.
    #[inline]
    pub(super) fn new_row_before(&self, number: usize) -> usize {
        number_at(self.part(&self.new_before), number)
    }

    /// The key of a new row.
    pub(super) fn new_key(&self, number: usize) -> &[u8] {
        let ends = self.part(&self.new_ends);
        let start = if number == 0 { 0 } else { number_at(ends, number - 1) };
        &self.part(&self.new_keys)[start..number_at(ends, number)]
    }

    /// How many new rows have a key before this one.
    pub(super) fn new_below(&self, key: &[u8]) -> usize {
        let (mut least, mut most) = (0, self.new_rows());
        while least < most {
            let middle = usize::midpoint(least, most);
            if self.new_key(middle) < key { least = middle + 1 } else { most = middle }
        }
        least
    }

    /// The value of a new row in the column of this number.
    #[inline]
    pub(super) fn new_value(&self, column: usize, number: usize) -> u128 {
        let of_column = self.columns.get(column);
        of_column.map_or(0, |column| value_at(self.part(&column.new_values), column.width, number))
    }

    /// Whether cells of these rows of the block have other values in the column of this number.
    pub(super) fn has_cells(&self, column: usize, rows: &Range<usize>) -> bool {
        !self.cells_of(column, rows).is_empty()
    }

    /// Of the cells of a column those of these rows of the block.
    fn cells_of(&self, column: usize, rows: &Range<usize>) -> Range<usize> {
        let Some(Column { rows: of_column, .. }) = self.columns.get(column) else { return 0..0 };
        let of_column = self.part(of_column);
        count_below(of_column, rows.start)..count_below(of_column, rows.end)
    }

    /// The most cells that these rows of the block have in a column.
    pub(super) fn most_cells(&self, rows: &Range<usize>) -> usize {
        (0..self.columns.len()).map(|column| self.cells_of(column, rows).len()).max().unwrap_or(0)
    }

    /// The cells of a column that these rows of the block have, by row.
    pub(super) fn cells(&self, column: usize, rows: &Range<usize>) -> impl Iterator<Item = (u32, u128)> {
        let cells = self.cells_of(column, rows);
        let (rows, values, width) = match self.columns.get(column) {
            Some(Column { width, rows, values, .. }) => (self.part(rows), self.part(values), *width),
            None => (&[][..], &[][..], 4),
        };
        let rows = numbers(&rows[4 * cells.start..4 * cells.end]);
        rows.zip(cells).map(move |(row, cell)| (row, value_at(values, width, cell)))
    }
}

/// The value of this number, of values that take `width` bytes each.
#[inline]
fn value_at(values: &[u8], width: usize, number: usize) -> u128 {
    match width {
        4 => number_at(values, number) as u128,
        8 => values.as_chunks().0.get(number).map_or(0, |&value| u128::from(u64::from_le_bytes(value))),
        _ => values.as_chunks().0.get(number).map_or(0, |&value| u128::from_le_bytes(value)),
    }
}
