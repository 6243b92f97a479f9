//! The key page of a columnar block.
//!
//! ```text
//! u8       form: 0 integers, 1 bytes, 2 integers with a gap
//! varint   length of the prefix that all keys of the block share
//! bytes    the prefix
//! u8       form 0: bytes of a key behind the prefix, 0 to 8
//! u8       form 2: bytes of a key between prefix and gap
//! varint   form 2: length of the gap, bytes that all keys of the block share
//! bytes    form 2: the gap
//! u8       form 2: bytes of a key behind the gap, with those before it 0 to 8
//! page     what varies (see `mycelium_encoding::page`): in form 1 as binary, else as uint64, big-endian, without the gap
//! ```
//!
//! Keys of one length that vary in eight bytes at most are integers ([`key_shape`](super::key_shape)), as those of
//! tables with primary keys of integers are: they are compared as integers, and a dense sequence of them takes no bytes
//! at all. A key is found by binary search.

use std::ops::Range;

use mycelium_base::coding::{Reader, put_varint};
use mycelium_base::key_prefix::common_prefix;
use mycelium_base::limits::MAX_KEY_LEN;
use mycelium_base::{Error, Result};
use mycelium_encoding::page::{Cells, IntegersHead, Page};
use mycelium_encoding::{ColumnState, ColumnType, DatumRef};

use super::key_shape::{KeyEnd, KeyShape, MAX_INTEGER_LEN, integer_of};
use super::key_window::KeyWindow;

const INTEGERS: u8 = 0;
const BYTES: u8 = 1;
const INTEGERS_WITH_GAP: u8 = 2;

/// Appends the key page of the `keys`, ascending; whether they have a gap.
pub(crate) fn encode_keys<'k>(keys: impl Iterator<Item = &'k [u8]> + Clone, out: &mut Vec<u8>) -> Result<bool> {
    let (Some(first), Some(last)) = (keys.clone().next(), keys.clone().last()) else {
        return Err(Error::invalid("a block needs a key"));
    };
    // Ascending keys share what the first and the last share.
    let prefix = common_prefix(first, last);
    let are_alike = keys.clone().all(|key| key.len() == first.len());
    let end = if are_alike { KeyEnd::of(keys.clone(), first, prefix) } else { None };
    out.push(match &end {
        Some(end) if end.gap.is_empty() => INTEGERS,
        Some(_) => INTEGERS_WITH_GAP,
        None => BYTES,
    });
    put_varint(out, prefix as u64);
    let prefix = &first[..prefix];
    out.extend_from_slice(prefix);
    let count = keys.clone().count();
    let Some(end) = end else {
        let mut cells = Cells::without_dictionary(&ColumnType::Binary);
        for key in keys {
            cells.push(ColumnState::Value(DatumRef::Binary(&key[prefix.len()..])))?;
        }
        cells.encode_page(0..count, out)?;
        return Ok(false);
    };
    put_end(&end, out);
    let shape = KeyShape::new(prefix, &end);
    let mut cells = Cells::new(&ColumnType::UInt64);
    for key in keys {
        let integer = integer_of(key, prefix, &end, shape.as_ref());
        let integer = integer.ok_or_else(|| Error::invalid("a key is not of the form of the others"))?;
        cells.push(ColumnState::Value(DatumRef::UInt64(integer)))?;
    }
    cells.encode_page(0..count, out)?;
    Ok(!end.gap.is_empty())
}

fn put_end(end: &KeyEnd<'_>, out: &mut Vec<u8>) {
    if !end.gap.is_empty() {
        out.push(end.high as u8);
        put_varint(out, end.gap.len() as u64);
        out.extend_from_slice(end.gap);
    }
    out.push(if end.gap.is_empty() { end.len() } else { end.low } as u8);
}

/// As the page has it, in the same order.
#[inline]
fn ordinal(integer: u64) -> i64 {
    (integer ^ 1 << 63) as i64
}

/// The inverse of [`ordinal`].
#[inline]
pub(crate) fn integer_of_ordinal(ordinal: i64) -> u64 {
    ordinal as u64 ^ 1 << 63
}

/// A parsed key page.
#[derive(Debug)]
pub(crate) struct KeyPage<'a> {
    prefix: &'a [u8],
    /// What is behind the prefix, where keys are integers, and their shape, if they are not too long.
    end: Option<KeyEnd<'a>>,
    shape: Option<KeyShape>,
    page: Page<'a>,
    rows: usize,
}

impl<'a> KeyPage<'a> {
    pub(crate) fn parse(bytes: &'a [u8], rows: usize) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let form = reader.u8()?;
        let prefix = take_shared(&mut reader)?;
        let end = match form {
            INTEGERS => Some(KeyEnd { high: 0, gap: &[], low: usize::from(reader.u8()?) }),
            INTEGERS_WITH_GAP => {
                let (high, gap) = (usize::from(reader.u8()?), take_shared(&mut reader)?);
                Some(KeyEnd { high, gap, low: usize::from(reader.u8()?) })
            }
            BYTES => None,
            _ => return Err(Error::corruption("unknown form of a key page").expected("0 to 2", form)),
        };
        if end.is_some_and(|end| end.high + end.low > MAX_INTEGER_LEN) {
            return Err(Error::corruption("keys too long for integers"));
        }
        let rest = bytes.get(reader.position()..).unwrap_or_default();
        let kind = if end.is_some() { ColumnType::UInt64 } else { ColumnType::Binary };
        let shape = end.and_then(|end| KeyShape::new(prefix, &end));
        Ok(Self { prefix, end, shape, page: Page::parse(rest, rows, &kind, None)?, rows })
    }

    /// Makes `key` the key of a row.
    pub(crate) fn write(&self, row: usize, key: &mut Vec<u8>) -> Result<()> {
        if let (Some(shape), Some(ordinal)) = (&self.shape, self.page.integer(row)) {
            shape.write(integer_of_ordinal(ordinal), key);
            return Ok(());
        }
        key.clear();
        key.extend_from_slice(self.prefix);
        match (self.page.cell(row)?, &self.end) {
            (ColumnState::Value(DatumRef::UInt64(integer)), Some(end)) => {
                end.put(integer, key);
                Ok(())
            }
            (ColumnState::Value(DatumRef::Binary(bytes)), None) => {
                key.extend_from_slice(bytes);
                Ok(())
            }
            _ => Err(no_key(row)),
        }
    }

    /// Calls `each` with the keys of neighbouring rows, in their order, each made in `key`.
    pub(crate) fn write_each(
        &self,
        rows: Range<usize>,
        key: &mut Vec<u8>,
        mut each: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        if self.end.is_none() {
            key.clear();
            key.extend_from_slice(self.prefix);
            let end = rows.end;
            let written = self.page.each_binary(rows, |end| {
                key.truncate(self.prefix.len());
                key.extend_from_slice(end);
                each(key)
            })?;
            return written.ok_or_else(|| no_key(end));
        }
        for row in rows {
            self.write(row, key)?;
            each(key)?;
        }
        Ok(())
    }

    /// Whether a row has the key of the one before it.
    pub(crate) fn repeats(&self, row: usize) -> Result<bool> {
        Ok(row > 0 && self.page.cell(row)? == self.page.cell(row - 1)?)
    }

    /// How many rows from `row` on have the keys of those of another page from `other_row` on; at most `count`.
    pub(crate) fn same(&self, row: usize, (other, other_row): (&KeyPage<'_>, usize), count: usize) -> Result<usize> {
        if self.prefix == other.prefix && self.end.is_some() && self.end == other.end {
            let same = |at: &usize| self.page.integer(row + at) == other.page.integer(other_row + at);
            return Ok((0..count).take_while(same).count());
        }
        if let (Some(shape), Some(other_shape)) = (&self.shape, &other.shape) {
            let whole = |page: &KeyPage<'_>, shape: &KeyShape, row| {
                page.page.integer(row).map(|ordinal| shape.whole(integer_of_ordinal(ordinal)))
            };
            let same = |at: &usize| whole(self, shape, row + at) == whole(other, other_shape, other_row + at);
            return Ok(if shape.len() == other_shape.len() { (0..count).take_while(same).count() } else { 0 });
        }
        if self.end.is_none() && other.end.is_none() {
            return match self.prefix.len() <= other.prefix.len() {
                true => self.same_ends(row, (other, other_row), count),
                false => other.same_ends(other_row, (self, row), count),
            };
        }
        let (mut key, mut other_key) = (Vec::new(), Vec::new());
        for at in 0..count {
            self.write(row + at, &mut key)?;
            other.write(other_row + at, &mut other_key)?;
            if key != other_key {
                return Ok(at);
            }
        }
        Ok(count)
    }

    /// As [`KeyPage::same`] for pages of bytes, of which the other has a prefix that is at least as long.
    fn same_ends(&self, row: usize, (other, other_row): (&KeyPage<'_>, usize), count: usize) -> Result<usize> {
        let Some(between) = other.prefix.strip_prefix(self.prefix) else { return Ok(0) };
        let same = self.page.same_binaries((row, between), (&other.page, other_row), count)?;
        same.ok_or_else(|| no_key(row))
    }

    /// What is behind the prefix in the key of a row, of a page of bytes.
    #[inline]
    fn end(&self, row: usize) -> Result<&'a [u8]> {
        match self.page.cell(row)? {
            ColumnState::Value(DatumRef::Binary(bytes)) => Ok(bytes),
            _ => Err(no_key(row)),
        }
    }

    /// The first row whose key is at or after `key`; the number of rows if there is none.
    pub(crate) fn seek(&self, key: &[u8]) -> Result<usize> {
        let Some(end) = key.strip_prefix(self.prefix) else {
            return Ok(if key < self.prefix { 0 } else { self.rows });
        };
        let Some(form) = &self.end else {
            return self.partition(|cell| matches!(cell, ColumnState::Value(DatumRef::Binary(bytes)) if bytes < end));
        };
        let (wanted, is_after) = form.bound(end);
        self.page.seek_integer(ordinal(wanted), is_after).ok_or_else(|| no_key(0))
    }

    /// Appends the windows of the keys of rows ([`KeyWindow`]), in their order.
    pub(crate) fn append_windows(
        &self,
        rows: Range<usize>,
        window: KeyWindow,
        scratch: &mut Vec<u32>,
        out: &mut Vec<u128>,
    ) -> Result<()> {
        if let Some(shape) = self.shape {
            let of = |ordinal| window.of_integer(shape.whole(integer_of_ordinal(ordinal)), shape.len());
            return self.page.append_integers(rows.clone(), scratch, out, of).ok_or_else(|| no_key(rows.end));
        }
        if self.end.is_some() {
            let mut key = Vec::new();
            for row in rows {
                self.write(row, &mut key)?;
                out.push(window.of(&key));
            }
            return Ok(());
        }
        let (shared, behind) = window.within(self.prefix);
        let end = rows.end;
        let appended = self.page.each_binary(rows, |end| {
            out.push(shared | behind.of(end));
            Ok(())
        })?;
        appended.ok_or_else(|| no_key(end))
    }

    /// The length of all keys, where it is known.
    pub(crate) fn common_len(&self) -> Option<usize> {
        self.end.map(|end| self.prefix.len() + end.len())
    }

    /// As [`KeyPage::seek`], and whether the row has the key.
    pub(crate) fn find(&self, key: &[u8]) -> Result<(usize, bool)> {
        if let Some(wanted) = self.integer_of(key).map(ordinal) {
            let row = self.page.seek_integer(wanted, false).ok_or_else(|| no_key(0))?;
            return Ok((row, self.page.integer(row) == Some(wanted)));
        }
        let row = self.seek(key)?;
        let is_there = row < self.rows && self.end.is_none() && key.strip_prefix(self.prefix) == Some(self.end(row)?);
        Ok((row, is_there))
    }

    /// Asks the processor for the keys about the row where `key` would be if keys were spread evenly.
    #[inline]
    pub(crate) fn prefetch(&self, key: &[u8]) {
        if let Some(wanted) = self.integer_of(key).map(ordinal) {
            self.page.prefetch_about(wanted);
        }
    }

    /// Calls `each` with the first row from `row` on whose key is at or after each of these keys, which ascend, and
    /// whether it has the key; until `each` says that this is enough.
    pub(crate) fn seek_each<'k>(
        &self,
        row: usize,
        keys: impl Iterator<Item = &'k [u8]>,
        mut each: impl FnMut(usize, bool) -> bool,
    ) -> Result<()> {
        let mut search = self.end.and_then(|_| self.page.search_ascending(row));
        for key in keys {
            let (found, is_there) = match (self.integer_of(key), &mut search) {
                (Some(wanted), Some(search)) => search.seek(ordinal(wanted)),
                _ => self.find(key).map(|(found, is_there)| (found.max(row), is_there && found >= row))?,
            };
            if !each(found, is_there) {
                break;
            }
        }
        Ok(())
    }

    /// Calls `each` with each of these rows of another page, whose keys ascend, and with the first row whose key is not
    /// before its key, and whether it has the key.
    pub(crate) fn seek_rows(
        &self,
        (other, rows): (&KeyPage<'_>, Range<usize>),
        mut each: impl FnMut(usize, usize, bool),
    ) -> Result<()> {
        let shapes = self.shape.zip(other.shape).filter(|(own, others)| own.len() == others.len());
        let (mut search, mut integers, mut key) = (self.page.search_ascending(0), Vec::new(), Vec::new());
        if shapes.is_some() {
            let unpacked = other.page.append_integers(rows.clone(), &mut Vec::new(), &mut integers, integer_of_ordinal);
            unpacked.ok_or_else(|| no_key(rows.end))?;
        }
        for (number, other_row) in rows.enumerate() {
            let wanted = shapes.and_then(|(own, others)| own.integer_of_whole(others.whole(integers[number])));
            let (found, is_there) = match (wanted, &mut search) {
                (Some(wanted), Some(search)) => search.seek(ordinal(wanted)),
                _ => {
                    other.write(other_row, &mut key)?;
                    self.find(&key)?
                }
            };
            each(other_row, found, is_there);
        }
        Ok(())
    }

    /// What finds a key in the block that the page lies in; `None` where keys are no integers, or are too long.
    pub(crate) fn head(&self, block: &[u8]) -> Option<KeyHead> {
        Some(KeyHead { shape: self.shape?, integers: self.page.integers_head(block)? })
    }

    /// The integer of a key that might be one of these, where they are integers.
    #[inline]
    fn integer_of(&self, key: &[u8]) -> Option<u64> {
        integer_of(key, self.prefix, self.end.as_ref()?, self.shape.as_ref())
    }

    /// The first row that is not `before`.
    fn partition(&self, before: impl Fn(ColumnState<'a>) -> bool) -> Result<usize> {
        let (mut low, mut high) = (0, self.rows);
        while low < high {
            let middle = low + (high - low) / 2;
            if before(self.page.cell(middle)?) { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }
}

/// Reads what all keys share.
fn take_shared<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8]> {
    let len = usize::try_from(reader.varint()?).ok().filter(|&len| len <= MAX_KEY_LEN);
    reader.take(len.ok_or_else(|| Error::corruption("malformed prefix or gap of keys"))?)
}

/// What finds a key in a block whose keys are integers and not too long: a parsed key page that borrows nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyHead {
    shape: KeyShape,
    integers: IntegersHead,
}

impl KeyHead {
    /// As the page has it, if it has the form of the block's keys.
    #[inline]
    fn wanted(&self, key: &[u8]) -> Option<i64> {
        self.shape.integer(key).map(ordinal)
    }

    /// The first of so many rows with the key, if one has it.
    #[inline]
    pub(crate) fn row_of(&self, block: &[u8], rows: usize, key: &[u8]) -> Option<usize> {
        let (row, is_there) = self.integers.seek(block, rows, self.wanted(key)?);
        is_there.then_some(row)
    }

    /// As [`KeyPage::prefetch`].
    #[inline]
    pub(crate) fn prefetch(&self, block: &[u8], rows: usize, key: &[u8]) {
        if let Some(wanted) = self.wanted(key) {
            self.integers.prefetch_about(block, rows, wanted);
        }
    }
}

#[cold]
fn no_key(row: usize) -> Error {
    Error::corruption(format!("row {row} of the block has no key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(keys: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_keys(keys.iter().map(Vec::as_slice), &mut bytes).unwrap();
        bytes
    }

    /// Pages that begin and end at other rows, and so have other prefixes, of keys of which one may be another.
    #[test]
    fn rows_with_the_same_keys_are_counted_however_pages_are_cut() {
        let dense: Vec<Vec<u8>> = (250..310_u64).map(|key| key.to_be_bytes().to_vec()).collect();
        let texts: Vec<Vec<u8>> =
            (0..60).map(|key| format!("day {:02} {}", key / 9, "xy".repeat(key % 9)).into()).collect();
        for keys in [dense, texts] {
            for other_in in [None, Some(3), Some(31)] {
                let mut others = keys.clone();
                if let Some(row) = other_in {
                    others[row].push(0);
                }
                for (from, to, other_from, other_to) in
                    [(0, 60, 0, 60), (0, 60, 20, 40), (20, 32, 0, 60), (2, 40, 9, 50)]
                {
                    let (bytes, other_bytes) = (encoded(&keys[from..to]), encoded(&others[other_from..other_to]));
                    let page = KeyPage::parse(&bytes, to - from).unwrap();
                    let (mut expected, mut key) = (keys[from + 3..to - 1].iter(), Vec::new());
                    let each = |key: &[u8]| {
                        assert_eq!(Some(key), expected.next().map(Vec::as_slice));
                        Ok(())
                    };
                    page.write_each(3..to - from - 1, &mut key, each).unwrap();
                    assert_eq!(expected.next(), None);
                    let other = KeyPage::parse(&other_bytes, other_to - other_from).unwrap();
                    for (row, other_row) in
                        [(0, 0), (from.max(other_from) - from, from.max(other_from) - other_from), (5, 2)]
                    {
                        let most = (to - from - row).min(other_to - other_from - other_row);
                        let pairs = keys[from + row..to].iter().zip(&others[other_from + other_row..other_to]);
                        let expected = pairs.take_while(|(key, other)| key == other).count();
                        for count in [0, 1, most / 2, most] {
                            let found = page.same(row, (&other, other_row), count).unwrap();
                            assert_eq!(found, expected.min(count), "{count} of rows {from}.. and {other_from}..");
                            assert_eq!(other.same(other_row, (&page, row), count).unwrap(), found);
                        }
                    }
                }
            }
        }
    }

    /// From any row on, in pages of both forms; keys that are in none, too, and of other lengths.
    #[test]
    fn keys_are_found_from_any_row_on() {
        let dense: Vec<Vec<u8>> = (1000..1100_u64).map(|key| key.to_be_bytes().to_vec()).collect();
        let sparse: Vec<Vec<u8>> = (1..200_u64).map(|key| (key * key * 977).to_be_bytes().to_vec()).collect();
        let texts: Vec<Vec<u8>> = (0..50).map(|key| format!("key {}", "x".repeat(key)).into_bytes()).collect();
        let pairs = |number: u64| {
            [&(number / 5 * 7).to_be_bytes()[..], &(0x8000_0000 | (number % 5) as u32).to_be_bytes()].concat()
        };
        let of_two_columns: Vec<Vec<u8>> = (0..300).map(pairs).collect();
        let long = of_two_columns.iter().map(|key| [b"a long prefix", &key[..], b"and an end"].concat()).collect();
        let round: Vec<Vec<u8>> = (0..90_u64).map(|key| (key << 24).to_be_bytes().to_vec()).collect();
        for keys in [dense, sparse, texts, of_two_columns, long, round, vec![b"one".to_vec()], vec![vec![]]] {
            let bytes = encoded(&keys);
            let page = KeyPage::parse(&bytes, keys.len()).unwrap();
            let longer = keys.iter().map(|key| [key, &b"!"[..]].concat());
            let shorter = keys.iter().flat_map(|key| (0..key.len()).map(|len| key[..len].to_vec()));
            // Other bytes in each place, those of the gap among them.
            let other = keys.iter().step_by(17).flat_map(|key| {
                (0..key.len()).flat_map(|at| {
                    [1, 255].map(|add| {
                        let mut other = key.clone();
                        other[at] = other[at].wrapping_add(add);
                        other
                    })
                })
            });
            let mut wanted: Vec<Vec<u8>> = keys.iter().cloned().chain(longer).chain(shorter).chain(other).collect();
            let mut written = Vec::new();
            for (row, key) in keys.iter().enumerate() {
                page.write(row, &mut written).unwrap();
                assert_eq!(written, *key);
            }
            wanted.extend([vec![], vec![0xff; 9]]);
            wanted.sort();
            for wanted in &wanted {
                let place = keys.partition_point(|key| key < wanted);
                assert_eq!(page.find(wanted).unwrap(), (place, keys.get(place) == Some(wanted)), "{wanted:?}");
            }
            for row in (0..=keys.len()).step_by(7) {
                let mut expected = wanted.iter().map(|wanted| {
                    let place = row.max(keys.partition_point(|key| key < wanted));
                    (place, keys.get(place) == Some(wanted))
                });
                let all = wanted.iter().map(Vec::as_slice);
                let each = |row, is_there| expected.next() == Some((row, is_there));
                page.seek_each(row, all, each).unwrap();
                assert_eq!(expected.next(), None, "from row {row}");
            }
        }
    }
}
