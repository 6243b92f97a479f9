//! The key page of a columnar block.
//!
//! ```text
//! u8       form: 0 integers, 1 bytes
//! varint   length of the prefix that all keys of the block share
//! bytes    the prefix
//! u8       form 0: bytes of a key behind the prefix, 0 to 8
//! page     what is behind the prefix (see `mycelium_encoding::page`): in form 0 as uint64, big-endian, in form 1 as binary
//! ```
//!
//! Keys of one length whose last bytes alone differ are integers, as those of tables with an integer primary key are: they
//! are compared as integers, and a dense sequence of them takes no bytes at all. A key is found by binary search.

use mycelium_base::coding::{Reader, put_varint};
use mycelium_base::limits::MAX_KEY_LEN;
use mycelium_base::{Error, Result};
use mycelium_encoding::page::{Cells, IntegersHead, Page};
use mycelium_encoding::{ColumnState, ColumnType, DatumRef};

use crate::index::common_prefix;

const INTEGERS: u8 = 0;
const BYTES: u8 = 1;

/// Bytes of the longest key end that is stored as an integer.
const MAX_INTEGER_LEN: usize = 8;

/// Appends the key page of the `keys`, ascending.
pub(crate) fn encode_keys<'k>(keys: impl Iterator<Item = &'k [u8]> + Clone, out: &mut Vec<u8>) -> Result<()> {
    let (Some(first), Some(last)) = (keys.clone().next(), keys.clone().last()) else {
        return Err(Error::invalid("a block needs a key"));
    };
    // Ascending keys share what the first and the last share.
    let prefix = common_prefix(first, last);
    let end_len = first.len() - prefix;
    let are_integers = end_len <= MAX_INTEGER_LEN && keys.clone().all(|key| key.len() == first.len());
    out.push(if are_integers { INTEGERS } else { BYTES });
    put_varint(out, prefix as u64);
    out.extend_from_slice(&first[..prefix]);
    let count = keys.clone().count();
    if are_integers {
        out.push(end_len as u8);
        let mut cells = Cells::new(&ColumnType::UInt64);
        for key in keys {
            cells.push(ColumnState::Value(DatumRef::UInt64(integer(&key[prefix..]))))?;
        }
        cells.encode_page(0..count, out)?;
    } else {
        let mut cells = Cells::without_dictionary(&ColumnType::Binary);
        for key in keys {
            cells.push(ColumnState::Value(DatumRef::Binary(&key[prefix..])))?;
        }
        cells.encode_page(0..count, out)?;
    }
    Ok(())
}

/// At most eight bytes as a big-endian integer, zeros behind them left out.
#[inline]
fn integer(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(&chunk) => u64::from_be_bytes(chunk),
        None => bytes.iter().fold(0, |integer, &byte| integer << 8 | u64::from(byte)),
    }
}

/// As the page has it, in the same order.
#[inline]
fn ordinal(integer: u64) -> i64 {
    (integer ^ 1 << 63) as i64
}

/// A parsed key page.
#[derive(Debug)]
pub(crate) struct KeyPage<'a> {
    prefix: &'a [u8],
    /// The prefix as the first bytes of a big-endian integer, if it is no longer than one.
    short_prefix: Option<u64>,
    /// Bytes behind the prefix; `None` if they vary.
    end_len: Option<usize>,
    page: Page<'a>,
    rows: usize,
}

impl<'a> KeyPage<'a> {
    pub(crate) fn parse(bytes: &'a [u8], rows: usize) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let form = reader.u8()?;
        let prefix_len = reader.varint()?;
        let prefix_len = usize::try_from(prefix_len).ok().filter(|&len| len <= MAX_KEY_LEN);
        let prefix_len = prefix_len.ok_or_else(|| Error::corruption("malformed prefix of keys"))?;
        let prefix = reader.take(prefix_len)?;
        let end_len = match form {
            INTEGERS => Some(usize::from(reader.u8()?)).filter(|&len| len <= MAX_INTEGER_LEN),
            BYTES => None,
            _ => return Err(Error::corruption("unknown form of a key page").expected("0 or 1", form)),
        };
        if form == INTEGERS && end_len.is_none() {
            return Err(Error::corruption("keys too long for integers"));
        }
        let rest = bytes.get(reader.position()..).unwrap_or_default();
        let kind = if end_len.is_some() { ColumnType::UInt64 } else { ColumnType::Binary };
        let short_prefix = (prefix.len() <= 8).then(|| integer(prefix).unbounded_shl(64 - 8 * prefix.len() as u32));
        Ok(Self { prefix, short_prefix, end_len, page: Page::parse(rest, rows, &kind, None)?, rows })
    }

    /// Makes `key` the key of a row.
    pub(crate) fn write(&self, row: usize, key: &mut Vec<u8>) -> Result<()> {
        key.clear();
        key.extend_from_slice(self.prefix);
        match (self.page.cell(row)?, self.end_len) {
            (ColumnState::Value(DatumRef::UInt64(integer)), Some(len)) => {
                key.extend_from_slice(&integer.to_be_bytes()[8 - len..]);
                Ok(())
            }
            (ColumnState::Value(DatumRef::Binary(bytes)), None) => {
                key.extend_from_slice(bytes);
                Ok(())
            }
            _ => Err(no_key(row)),
        }
    }

    /// Whether a row has the key of the one before it.
    pub(crate) fn repeats(&self, row: usize) -> Result<bool> {
        Ok(row > 0 && self.page.cell(row)? == self.page.cell(row - 1)?)
    }

    /// How many rows from `row` on have the keys of those of another page from `other_row` on; at most `count`.
    pub(crate) fn same(&self, row: usize, (other, other_row): (&KeyPage<'_>, usize), count: usize) -> Result<usize> {
        if self.prefix == other.prefix && self.end_len.is_some() && self.end_len == other.end_len {
            let same = |at: &usize| self.page.integer(row + at) == other.page.integer(other_row + at);
            return Ok((0..count).take_while(same).count());
        }
        if self.end_len.is_none() && other.end_len.is_none() {
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
        for at in 0..count {
            let other_end = other.end(other_row + at)?;
            if self.end(row + at)?.strip_prefix(between) != Some(other_end) {
                return Ok(at);
            }
        }
        Ok(count)
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
        let Some(len) = self.end_len else {
            return self.partition(|cell| matches!(cell, ColumnState::Value(DatumRef::Binary(bytes)) if bytes < end));
        };
        // A key that is longer than all of these is after those that it begins with.
        let is_longer = end.len() > len;
        let missing = len.saturating_sub(end.len());
        let wanted = integer(&end[..end.len().min(len)]).unbounded_shl(8 * missing as u32);
        self.page.seek_integer(ordinal(wanted), is_longer).ok_or_else(|| no_key(0))
    }

    /// As [`KeyPage::seek`], and whether the row has the key.
    pub(crate) fn find(&self, key: &[u8]) -> Result<(usize, bool)> {
        if let Some(wanted) = self.integer_of(key).map(ordinal) {
            let row = self.page.seek_integer(wanted, false).ok_or_else(|| no_key(0))?;
            return Ok((row, self.page.integer(row) == Some(wanted)));
        }
        let row = self.seek(key)?;
        let is_there =
            row < self.rows && self.end_len.is_none() && key.strip_prefix(self.prefix) == Some(self.end(row)?);
        Ok((row, is_there))
    }

    /// Asks the processor for the keys about the row where `key` would be if keys were spread evenly.
    #[inline]
    pub(crate) fn prefetch(&self, key: &[u8]) {
        if let Some(wanted) = self.integer_of(key).map(ordinal) {
            self.page.prefetch_about(wanted);
        }
    }

    /// Calls `each` with the first row from `row` on whose key is at or after each of these keys, which ascend, and whether it has the
    /// key; until `each` says that this is enough.
    pub(crate) fn seek_each<'k>(
        &self,
        row: usize,
        keys: impl Iterator<Item = &'k [u8]>,
        mut each: impl FnMut(usize, bool) -> bool,
    ) -> Result<()> {
        let mut search = self.end_len.and_then(|_| self.page.search_ascending(row));
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

    /// What finds a key in the block that the page lies in; `None` where keys are not of eight bytes, or are no integers.
    pub(crate) fn head(&self, block: &[u8]) -> Option<KeyHead> {
        let len = self.end_len.filter(|len| self.prefix.len() + len == size_of::<u64>())?;
        let end = u64::MAX.unbounded_shr(64 - 8 * len as u32);
        Some(KeyHead { prefix: self.short_prefix?, end, integers: self.page.integers_head(block)? })
    }

    /// What is behind the prefix in a key that might be one of these, where they are integers.
    #[inline]
    fn integer_of(&self, key: &[u8]) -> Option<u64> {
        let len = self.end_len?;
        if key.len() != self.prefix.len() + len {
            return None;
        }
        match (key.first_chunk::<8>(), self.short_prefix) {
            // Prefix and integer together are one integer.
            (Some(&key_bytes), Some(prefix)) if key.len() == 8 => {
                let (key, end) = (u64::from_be_bytes(key_bytes), u64::MAX.unbounded_shr(64 - 8 * len as u32));
                (key & !end == prefix).then_some(key & end)
            }
            _ => key.strip_prefix(self.prefix).map(integer),
        }
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

/// What finds a key in a block whose keys are of eight bytes, and integers behind their prefix: a parsed key page that borrows nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyHead {
    /// The prefix as the first bytes of a big-endian integer.
    prefix: u64,
    /// The bits of a key behind it.
    end: u64,
    integers: IntegersHead,
}

impl KeyHead {
    /// As the page has it, if it begins with the prefix.
    #[inline]
    fn wanted(&self, key: &[u8]) -> Option<i64> {
        let key = u64::from_be_bytes(key.try_into().ok()?);
        (key & !self.end == self.prefix).then_some(ordinal(key & self.end))
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

    /// From any row on, in pages of both forms; keys that are in none, too, and of other lengths.
    #[test]
    fn keys_are_found_from_any_row_on() {
        let dense: Vec<Vec<u8>> = (1000..1100_u64).map(|key| key.to_be_bytes().to_vec()).collect();
        let sparse: Vec<Vec<u8>> = (1..200_u64).map(|key| (key * key * 977).to_be_bytes().to_vec()).collect();
        let texts: Vec<Vec<u8>> = (0..50).map(|key| format!("key {}", "x".repeat(key)).into_bytes()).collect();
        for keys in [dense, sparse, texts] {
            let mut bytes = Vec::new();
            encode_keys(keys.iter().map(Vec::as_slice), &mut bytes).unwrap();
            let page = KeyPage::parse(&bytes, keys.len()).unwrap();
            let longer = keys.iter().map(|key| [key, &b"!"[..]].concat());
            let shorter = keys.iter().map(|key| key[..key.len() - 1].to_vec());
            let mut wanted: Vec<Vec<u8>> = keys.iter().cloned().chain(longer).chain(shorter).collect();
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
