//! The order-preserving dictionary of one column of text or bytes in one file (LSM-OPD §3; DESIGN invariant 5).
//!
//! ```text
//! u32            values
//! u32 per value  where its bytes end, counted from the first byte of the first value
//! bytes          of the values, in ascending order of their bytes, each once
//! ```
//!
//! The code of a value is its place: codes compare as values do, and a range of values is a range of codes, found by
//! binary search. Null is no value. Finding the value of a code is O(1), the code of a value O(log values).

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Bound, Range};
use std::sync::Arc;

use mycelium_base::{Error, Result};

const ENTRY_LEN: usize = 4;

/// A dictionary. Cheap to clone; immutable; thread-safe.
#[derive(Clone)]
pub struct Dictionary {
    bytes: Arc<[u8]>,
    payload: Range<usize>,
    len: u32,
    /// Bytes of the longest value.
    longest: usize,
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary").field("len", &self.len).finish()
    }
}

fn malformed(what: &str) -> Error {
    Error::corruption(format!("malformed dictionary: {what}"))
}

impl Dictionary {
    /// Parses `bytes[payload]` and checks all of it. O(bytes).
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where it is malformed: not ascending, or cut short.
    pub fn parse(bytes: Arc<[u8]>, payload: Range<usize>) -> Result<Self> {
        let mut dictionary = Self::parse_checked(bytes, payload, 0)?;
        let len = dictionary.len;
        let values_len = dictionary.body().len() - ENTRY_LEN * (1 + dictionary.len());
        let mut before: Option<&[u8]> = None;
        let (mut end_before, mut longest) = (0, 0);
        for code in 0..len {
            let end = dictionary.end(code);
            if end < end_before || end > values_len {
                return Err(malformed("ends of values"));
            }
            let value = dictionary.value(code).ok_or_else(|| malformed("ends of values"))?;
            if before.is_some_and(|before| before >= value) {
                return Err(malformed("order of values"));
            }
            longest = longest.max(value.len());
            (before, end_before) = (Some(value), end);
        }
        if end_before != values_len {
            return Err(malformed("bytes behind the values").expected(values_len, end_before));
        }
        dictionary.longest = longest;
        Ok(dictionary)
    }

    /// As [`Dictionary::parse`] of bytes that it accepted before, and whose [`Dictionary::longest`] is known: the ends
    /// and the order of values are not looked at again. Of others codes may be wrong, and values missing. O(1).
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where it is cut short before its values.
    pub fn parse_checked(bytes: Arc<[u8]>, payload: Range<usize>, longest: usize) -> Result<Self> {
        let body = bytes.get(payload.clone()).ok_or_else(|| malformed("length"))?;
        let len = body.first_chunk::<4>().map(|&chunk| u32::from_le_bytes(chunk)).ok_or_else(|| malformed("length"))?;
        let values_at = (len as usize).checked_mul(ENTRY_LEN).and_then(|ends| ends.checked_add(ENTRY_LEN));
        if values_at.is_none_or(|at| at > body.len()) {
            return Err(malformed("length"));
        }
        Ok(Self { bytes, payload, len, longest })
    }

    /// The bytes of a dictionary of these values.
    pub(crate) fn len_of<'v>(values: impl Iterator<Item = &'v [u8]>) -> usize {
        values.fold(ENTRY_LEN, |len, value| len.saturating_add(ENTRY_LEN + value.len()))
    }

    /// A dictionary of these values, ascending, each once, of less than 4 GiB.
    pub(crate) fn of<'v>(values: impl Iterator<Item = &'v [u8]> + Clone) -> Self {
        let count = values.clone().count();
        let mut out = Vec::with_capacity(Self::len_of(values.clone()));
        out.extend_from_slice(&(count as u32).to_le_bytes());
        let mut end = 0_u32;
        for value in values.clone() {
            end += value.len() as u32;
            out.extend_from_slice(&end.to_le_bytes());
        }
        values.clone().for_each(|value| out.extend_from_slice(value));
        let payload = 0..out.len();
        let longest = values.map(<[u8]>::len).max().unwrap_or_default();
        Self { bytes: out.into(), payload, len: count as u32, longest }
    }

    /// Appends the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.body());
    }

    fn body(&self) -> &[u8] {
        self.bytes.get(self.payload.clone()).unwrap_or_default()
    }

    /// Where the bytes of a value end.
    #[inline]
    fn end(&self, code: u32) -> usize {
        let at = ENTRY_LEN * (1 + code as usize);
        let chunk = self.body().get(at..).and_then(|rest| rest.first_chunk::<4>());
        chunk.map_or(0, |&chunk| u32::from_le_bytes(chunk) as usize)
    }

    /// Whether both are the same one in memory.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.bytes, &other.bytes) && self.payload == other.payload
    }

    /// Values.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the longest value, 0 if there is none.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Bytes in memory.
    pub fn memory_usage(&self) -> usize {
        self.bytes.len()
    }

    /// The value of a code; `None` if there is no such code.
    #[inline]
    pub fn value(&self, code: u32) -> Option<&[u8]> {
        if code >= self.len {
            return None;
        }
        let start = if code == 0 { 0 } else { self.end(code - 1) };
        let values = ENTRY_LEN * (1 + self.len());
        self.body().get(values + start..values + self.end(code))
    }

    /// All values, ascending.
    pub(crate) fn values(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len).map(|code| self.value(code).unwrap_or_default())
    }

    /// The code of a value; if it is not there, the code that it would have.
    pub fn code(&self, value: &[u8]) -> std::result::Result<u32, u32> {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.value(middle).unwrap_or_default().cmp(value) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// The codes of the values within bounds: what a range of values becomes (LSM-OPD §4.2.2).
    pub fn codes_within(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Range<u32> {
        let place = |value: &[u8], after: bool| match self.code(value) {
            Ok(code) => code + u32::from(after),
            Err(code) => code,
        };
        let from = match lower {
            Bound::Unbounded => 0,
            Bound::Included(value) => place(value, false),
            Bound::Excluded(value) => place(value, true),
        };
        let to = match upper {
            Bound::Unbounded => self.len,
            Bound::Included(value) => place(value, true),
            Bound::Excluded(value) => place(value, false),
        };
        from..to.max(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: Vec<u8>) -> Result<Dictionary> {
        let len = bytes.len();
        Dictionary::parse(bytes.into(), 0..len)
    }

    #[test]
    fn codes_are_in_the_order_of_values() {
        let values: [&[u8]; 6] = [b"", b"\0", b"\0a", b"a", "é".as_bytes(), b"\xff\xff"];
        let dictionary = Dictionary::of(values.iter().copied());
        let mut bytes = Vec::new();
        dictionary.encode(&mut bytes);
        let read = parse(bytes.clone()).unwrap();
        for (code, value) in values.iter().enumerate() {
            assert_eq!(read.value(code as u32), Some(*value));
            assert_eq!(read.code(value), Ok(code as u32));
        }
        let again = Dictionary::parse_checked(bytes.clone().into(), 0..bytes.len(), read.longest()).unwrap();
        assert!(again.values().eq(values.iter().copied()));
        assert_eq!((dictionary.longest(), read.longest(), again.longest()), (2, 2, 2));
        assert_eq!((read.value(6), read.code(b"b"), read.len()), (None, Err(4), 6));
        assert_eq!(read.codes_within(Bound::Excluded(b""), Bound::Included(b"a")), 1..4);
        assert_eq!(read.codes_within(Bound::Included(b"b"), Bound::Excluded(b"c")), 4..4);
        assert_eq!(read.codes_within(Bound::Unbounded, Bound::Unbounded), 0..6);
        assert!(Dictionary::of(std::iter::empty()).is_empty());
        for len in 0..bytes.len() {
            assert!(parse(bytes[..len].to_vec()).is_err(), "{len}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x41;
            if let Ok(read) = parse(damaged.clone()) {
                assert!((0..read.len() as u32).all(|code| read.value(code).is_some()));
            }
            // Wrong, perhaps, but nothing worse.
            let len = damaged.len();
            if let Ok(read) = Dictionary::parse_checked(damaged.into(), 0..len, 2) {
                assert_eq!(read.values().count(), read.len());
                assert!(read.code(b"a").unwrap_or_else(|code| code) <= read.len() as u32);
            }
        }
    }
}
