//! The prefixes of keys that filters hold: the first columns of a key, or its first bytes.
//!
//! Where the first columns of a key end depends on their types alone ([`crate::key`]). [`KeyPrefixes`] says of these
//! types what it takes to find the ends, and lies beside whatever was made of the prefixes: who reads that needs no
//! schema, and no options.
//!
//! ```text
//! of each column, at most eight:
//!   u8   1 if a byte stands before the value that says whether there is one (a column of an index that may be null)
//!   u8   bytes of the value; 0: text or binary, up to its terminator
//! ```
//!
//! A key has a prefix for each of the columns: of the first, of the first two, and so on. So many first bytes of a key
//! count as one column.
//!
//! Guarantee: where a prefix ends is told by its own bytes. All byte strings that begin with a prefix of a key have
//! that prefix, too, whether they are keys or not; others do not. Where bytes are none of a key's, there are fewer.

use std::fmt;

use mycelium_base::{Error, Result};

use crate::key::{KeyReader, prefix_successor};
use crate::{Column, ColumnType, Schema};

/// The most columns of a prefix.
const MOST_COLUMNS: usize = 8;
/// The most bytes of a prefix that is so many first bytes.
const MOST_BYTES: usize = u8::MAX as usize;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyPrefixes {
    codes: [Code; MOST_COLUMNS],
    count: u8,
}

/// What the code of a column in a key looks like.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Code {
    may_be_null: bool,
    /// 0 where a terminator ends it.
    width: u8,
}

impl Code {
    /// That of a value of this type.
    fn of(ty: &ColumnType, may_be_null: bool) -> Self {
        Self { may_be_null, width: ty.fixed_width().and_then(|width| u8::try_from(width).ok()).unwrap_or(0) }
    }

    /// Where the code ends that begins at `from`; `None` where there is none.
    #[inline]
    fn end(self, key: &[u8], from: usize) -> Option<usize> {
        let mut at = from;
        if self.may_be_null {
            at += 1;
            match key.get(from)? {
                0 => return Some(at),
                1 => {}
                _ => return None,
            }
        }
        let rest = key.get(at..)?;
        if self.width > 0 {
            let width = usize::from(self.width);
            return (rest.len() >= width).then_some(at + width);
        }
        let mut reader = KeyReader::new(rest);
        reader.pass_bytes().ok()?;
        Some(key.len() - reader.rest().len())
    }
}

impl KeyPrefixes {
    /// The most columns that there can be of them in keys of a table: eight, or all of the primary key.
    pub fn most_columns(schema: &Schema) -> usize {
        schema.primary_key().len().min(MOST_COLUMNS)
    }

    /// The most first bytes of a key.
    pub const MOST_BYTES: usize = MOST_BYTES;

    /// The first `columns` columns of the primary key, up to [`KeyPrefixes::most_columns`]; `None` of no column.
    pub fn of_key(schema: &Schema, columns: usize) -> Option<Self> {
        let columns = schema.primary_key().iter().take(columns).filter_map(|&column| schema.columns().get(column));
        Self::of_codes(columns.map(|column| Code::of(&column.ty, false)))
    }

    /// All columns of an index, or the first eight; `None` of no column.
    pub fn of_index<'c>(columns: impl IntoIterator<Item = &'c Column>) -> Option<Self> {
        Self::of_codes(columns.into_iter().map(|column| Code::of(&column.ty, column.nullable)))
    }

    /// So many first bytes; `None` of none, or of more than [`KeyPrefixes::MOST_BYTES`].
    pub fn of_bytes(bytes: usize) -> Option<Self> {
        let width = u8::try_from(bytes).ok().filter(|&width| width > 0)?;
        Self::of_codes(std::iter::once(Code { may_be_null: false, width }))
    }

    fn of_codes(codes: impl Iterator<Item = Code>) -> Option<Self> {
        let mut prefixes = Self { codes: [Code::default(); MOST_COLUMNS], count: 0 };
        for (place, code) in prefixes.codes.iter_mut().zip(codes) {
            *place = code;
            prefixes.count += 1;
        }
        (prefixes.count > 0).then_some(prefixes)
    }

    /// How many prefixes a key has: at least one.
    #[inline]
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }

    fn codes(&self) -> &[Code] {
        &self.codes[..self.count()]
    }

    /// Where the prefix of one column more ends, if that of the first `columns` ends at `from`; `None` if there is
    /// none.
    #[inline]
    pub fn end_behind(&self, key: &[u8], columns: usize, from: usize) -> Option<usize> {
        self.codes().get(columns)?.end(key, from)
    }

    /// Where the prefixes of a key end, ascending.
    pub fn ends<'k>(&'k self, key: &'k [u8]) -> impl Iterator<Item = usize> + 'k {
        self.codes().iter().scan(0, move |end, code| {
            *end = code.end(key, *end)?;
            Some(*end)
        })
    }

    /// The longest prefix that all keys of `[lower, upper)` have; `None` if they have none in common.
    pub fn of_range<'k>(&self, lower: &'k [u8], upper: Option<&[u8]>) -> Option<&'k [u8]> {
        let prefixes = self.ends(lower).map(|end| &lower[..end]);
        prefixes.take_while(|prefix| ends_within(prefix, upper)).last()
    }

    /// Appends the stored form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.codes().iter().for_each(|code| out.extend_from_slice(&[u8::from(code.may_be_null), code.width]));
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::Corruption`] for any other bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let malformed = || {
            let expected = format!("two bytes for each of 1 to {MOST_COLUMNS} columns");
            Error::corruption("malformed prefixes of keys").expected(expected, format_args!("{bytes:02x?}"))
        };
        let (columns, []) = bytes.as_chunks::<2>() else { return Err(malformed()) };
        if columns.len() > MOST_COLUMNS || columns.iter().any(|[may_be_null, _]| *may_be_null > 1) {
            return Err(malformed());
        }
        let codes = columns.iter().map(|&[may_be_null, width]| Code { may_be_null: may_be_null == 1, width });
        Self::of_codes(codes).ok_or_else(malformed)
    }
}

/// Whether all keys of a range that begins within a prefix have it: the range ends where the prefix does, or before.
fn ends_within(prefix: &[u8], upper: Option<&[u8]>) -> bool {
    match (prefix_successor(prefix), upper) {
        (None, _) => true,
        (Some(end), Some(upper)) => upper <= end.as_slice(),
        (Some(_), None) => false,
    }
}

/// For reading: `8 bytes, text or null`.
impl fmt::Display for KeyPrefixes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, code) in self.codes().iter().enumerate() {
            let separator = if at > 0 { ", " } else { "" };
            match code.width {
                0 => write!(f, "{separator}text")?,
                1 => write!(f, "{separator}1 byte")?,
                width => write!(f, "{separator}{width} bytes")?,
            }
            if code.may_be_null {
                f.write_str(" or null")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DatumRef;
    use crate::key::{encode_index_column, encode_key, encode_key_prefix};

    fn schema() -> Schema {
        Schema::parse("a utf8 not null, b int32 not null, c binary not null, primary key (a, b, c)").unwrap()
    }

    /// Values that hold NUL bytes, and bytes that escapes are made of.
    fn keys() -> Vec<[DatumRef<'static>; 3]> {
        let mut keys = Vec::new();
        for a in ["", "a", "a\0", "a\0\u{1}b", "\u{1}"] {
            for b in [i32::MIN, -1, 0, 1, i32::MAX] {
                for c in [&b""[..], b"\0", b"\x01\xff", b"\xff\xff"] {
                    keys.push([DatumRef::Utf8(a), DatumRef::Int32(b), DatumRef::Binary(c)]);
                }
            }
        }
        keys
    }

    #[test]
    fn prefixes_end_where_columns_do() {
        let schema = schema();
        let prefixes = KeyPrefixes::of_key(&schema, 3).unwrap();
        assert_eq!((prefixes.count(), KeyPrefixes::most_columns(&schema)), (3, 3));
        for values in keys() {
            let mut key = Vec::new();
            encode_key(&schema, &values, &mut key).unwrap();
            let ends: Vec<usize> = prefixes.ends(&key).collect();
            for (columns, &end) in ends.iter().enumerate() {
                let mut prefix = Vec::new();
                encode_key_prefix(&schema, &values[..=columns], &mut prefix).unwrap();
                assert_eq!(prefix, key[..end]);
                let from = columns.checked_sub(1).map_or(0, |before| ends[before]);
                assert_eq!(prefixes.end_behind(&key, columns, from), Some(end));
            }
            assert_eq!(ends.len(), 3);
            // Of a part of a key there are those that it has whole.
            for len in 0..key.len() {
                let within = ends.iter().filter(|&&end| end <= len).count();
                assert_eq!(prefixes.ends(&key[..len]).collect::<Vec<_>>(), ends[..within]);
            }
        }
    }

    #[test]
    fn a_range_has_the_prefix_that_all_of_its_keys_have() {
        let schema = schema();
        let prefixes = KeyPrefixes::of_key(&schema, 2).unwrap();
        let mut bounds = vec![Vec::new(), b"\xff".to_vec(), vec![0xff; 30]];
        for values in keys() {
            for columns in 1..=3 {
                let mut bound = Vec::new();
                encode_key_prefix(&schema, &values[..columns], &mut bound).unwrap();
                bounds.extend(prefix_successor(&bound));
                bounds.push(bound);
            }
        }
        bounds.sort();
        bounds.dedup();
        let keys: Vec<Vec<u8>> = keys()
            .iter()
            .map(|values| {
                let mut key = Vec::new();
                encode_key(&schema, values, &mut key).unwrap();
                key
            })
            .collect();
        let mut found = 0;
        for lower in bounds.iter().step_by(3) {
            for upper in bounds.iter().map(Some).chain([None]) {
                let upper = upper.map(Vec::as_slice);
                let Some(prefix) = prefixes.of_range(lower, upper) else { continue };
                found += 1;
                let within = |key: &&Vec<u8>| *key >= lower && upper.is_none_or(|upper| key.as_slice() < upper);
                assert!(keys.iter().filter(within).all(|key| key.starts_with(prefix)), "{lower:x?} {upper:x?}");
            }
        }
        assert!(found > 100, "{found} ranges within a prefix");
        let (mut lower, mut shorter) = (Vec::new(), Vec::new());
        encode_key_prefix(&schema, &[DatumRef::Utf8("a"), DatumRef::Int32(7)], &mut lower).unwrap();
        encode_key_prefix(&schema, &[DatumRef::Utf8("a")], &mut shorter).unwrap();
        let (end, later) = (prefix_successor(&lower), prefix_successor(&shorter));
        assert_eq!(prefixes.of_range(&lower, end.as_deref()), Some(&lower[..]));
        assert_eq!(prefixes.of_range(&lower, later.as_deref()), Some(&shorter[..]));
        assert_eq!(prefixes.of_range(&lower, None), None);
    }

    #[test]
    fn columns_of_an_index_may_be_null() {
        let columns = [Column::new("a", ColumnType::Int16), Column::new("b", ColumnType::Utf8).not_null()];
        let prefixes = KeyPrefixes::of_index(&columns).unwrap();
        for (value, width) in [(DatumRef::Null, 1), (DatumRef::Int16(-3), 3)] {
            let mut key = Vec::new();
            encode_index_column(&columns[0], value, &mut key).unwrap();
            encode_index_column(&columns[1], DatumRef::Utf8("xy"), &mut key).unwrap();
            key.extend_from_slice(b"the row's key");
            assert_eq!(prefixes.ends(&key).collect::<Vec<_>>(), [width, width + 4]);
        }
        assert_eq!(prefixes.ends(&[2, 0, 0]).next(), None);
    }

    #[test]
    fn prefixes_are_read_back_and_others_refused() {
        let columns = [Column::new("a", ColumnType::Int64), Column::new("b", ColumnType::Utf8).not_null()];
        for (prefixes, bytes, text) in [
            (KeyPrefixes::of_key(&schema(), 2), &b"\0\0\0\x04"[..], "text, 4 bytes"),
            (KeyPrefixes::of_index(&columns), &b"\x01\x08\0\0"[..], "8 bytes or null, text"),
            (KeyPrefixes::of_bytes(1), &b"\0\x01"[..], "1 byte"),
            (KeyPrefixes::of_bytes(255), &b"\0\xff"[..], "255 bytes"),
        ] {
            let prefixes = prefixes.unwrap();
            let mut encoded = Vec::new();
            prefixes.encode(&mut encoded);
            assert_eq!((encoded.as_slice(), prefixes.to_string().as_str()), (bytes, text));
            assert_eq!(KeyPrefixes::decode(bytes).unwrap(), prefixes);
        }
        for bytes in [&b""[..], b"\0", b"\x02\x08", b"\0\x08\0", &[0; 18]] {
            assert!(KeyPrefixes::decode(bytes).unwrap_err().is_corruption(), "{bytes:x?}");
        }
        assert_eq!(KeyPrefixes::of_key(&schema(), 0), None);
        assert_eq!((KeyPrefixes::of_bytes(0), KeyPrefixes::of_bytes(256)), (None, None));
        assert_eq!(KeyPrefixes::of_key(&schema(), 9), KeyPrefixes::of_key(&schema(), 3));
    }
}
