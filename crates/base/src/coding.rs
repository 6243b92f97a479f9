//! Byte coding shared by every format: little-endian fixed integers and LEB128 varints.

use crate::{Error, Result};

/// The longest varint of a `u64`.
pub const MAX_VARINT_LEN: usize = 10;

/// Appends `value` as a varint: seven bits a byte, least significant first.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a varint length and the bytes.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The number of bytes `put_varint` appends for `value`.
#[inline]
pub fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Reads a varint at the start of `input`: the value and its length, or `None` if it is cut short or over 64 bits.
#[inline]
pub fn get_varint(input: &[u8]) -> Option<(u64, usize)> {
    let first = match *input {
        [first @ 0..0x80, ..] => return Some((u64::from(first), 1)),
        [first, second @ 0..0x80, ..] => return Some((u64::from(first & 0x7f) | u64::from(second) << 7, 2)),
        [first, ..] => first,
        [] => return None,
    };
    let mut value = u64::from(first & 0x7f);
    for (i, &byte) in input.iter().enumerate().take(MAX_VARINT_LEN).skip(1) {
        if i == 9 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return Some((value, i + 1));
        }
    }
    None
}

/// Reads fields off the front of a byte string; every method fails with a corruption error instead of panicking.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    len: usize,
}

impl<'a> Reader<'a> {
    /// A reader of `input`.
    #[inline]
    pub fn new(input: &'a [u8]) -> Self {
        Self { rest: input, len: input.len() }
    }

    /// Bytes consumed so far.
    pub fn position(&self) -> usize {
        self.len - self.rest.len()
    }

    /// What is left.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `n` bytes.
    #[inline]
    pub fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        if n > self.rest.len() {
            return Err(self.cut_short(n));
        }
        let (head, tail) = self.rest.split_at(n);
        self.rest = tail;
        Ok(head)
    }

    /// A byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    /// A little-endian `u16`.
    #[inline]
    pub fn u16(&mut self) -> Result<u16> {
        let mut bytes = [0; 2];
        bytes.copy_from_slice(self.take(2)?);
        Ok(u16::from_le_bytes(bytes))
    }

    /// A little-endian `u32`.
    #[inline]
    pub fn u32(&mut self) -> Result<u32> {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(self.take(4)?);
        Ok(u32::from_le_bytes(bytes))
    }

    /// A little-endian `u64`.
    #[inline]
    pub fn u64(&mut self) -> Result<u64> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(self.take(8)?);
        Ok(u64::from_le_bytes(bytes))
    }

    /// A varint.
    pub fn varint(&mut self) -> Result<u64> {
        match get_varint(self.rest) {
            Some((value, n)) => {
                self.rest = &self.rest[n..];
                Ok(value)
            }
            None => Err(Error::corruption("malformed varint").at(self.position() as u64)),
        }
    }

    /// A varint that must fit a `usize` and be at most `limit`.
    pub fn length(&mut self, limit: usize) -> Result<usize> {
        let at = self.position() as u64;
        let value = self.varint()?;
        match usize::try_from(value) {
            Ok(value) if value <= limit => Ok(value),
            _ => Err(Error::corruption("length out of range").at(at).expected(format_args!("at most {limit}"), value)),
        }
    }

    /// A byte string written by [`put_bytes`].
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        self.bytes_up_to(usize::MAX)
    }

    /// A byte string written by [`put_bytes`] of at most `limit` bytes.
    pub fn bytes_up_to(&mut self, limit: usize) -> Result<&'a [u8]> {
        let n = self.length(limit.min(self.rest.len()))?;
        self.take(n)
    }

    /// A UTF-8 string written by [`put_bytes`].
    pub fn str(&mut self) -> Result<&'a str> {
        let at = self.position() as u64;
        std::str::from_utf8(self.bytes()?).map_err(|e| Error::corruption("text is not UTF-8").at(at).caused_by(e))
    }

    /// Fails unless everything was consumed.
    #[inline]
    pub fn finish(&self) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        Err(Error::corruption("trailing bytes").at(self.position() as u64).expected(0, self.rest.len()))
    }

    #[cold]
    fn cut_short(&self, wanted: usize) -> Error {
        Error::corruption("cut short")
            .at(self.position() as u64)
            .expected(format_args!("{wanted} bytes"), self.rest.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_every_length() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value));
                assert_eq!(get_varint(&out), Some((value, out.len())));
                assert_eq!(get_varint(&out[..out.len() - 1]), None);
            }
        }
        assert_eq!(get_varint(&[0xff; 10]), None);
        assert_eq!(get_varint(&[]), None);
    }
}
