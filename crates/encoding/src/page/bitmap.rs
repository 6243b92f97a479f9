//! Bitmaps of rows.

use std::ops::Range;

/// One bit per row, in words of 64. Bits past the last row are zero.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Bitmap {
    words: Vec<u64>,
    len: usize,
}

impl Bitmap {
    /// So many rows, all set or none.
    pub fn new(len: usize, set: bool) -> Self {
        let mut bitmap = Self::default();
        bitmap.reset(len, set);
        bitmap
    }

    /// As [`Bitmap::new`], in the same memory.
    pub fn reset(&mut self, len: usize, set: bool) {
        self.words.clear();
        self.words.resize(len.div_ceil(64), if set { u64::MAX } else { 0 });
        self.len = len;
        self.clear_padding();
    }

    fn clear_padding(&mut self) {
        if let Some(last) = self.words.last_mut().filter(|_| !self.len.is_multiple_of(64)) {
            *last &= (1 << (self.len % 64)) - 1;
        }
    }

    /// Rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a row is set; `false` past the last.
    #[inline]
    pub fn get(&self, row: usize) -> bool {
        self.words.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// Clears a row.
    #[inline]
    pub fn clear(&mut self, row: usize) {
        if let Some(word) = self.words.get_mut(row / 64) {
            *word &= !(1 << (row % 64));
        }
    }

    /// Sets a row, or clears it.
    #[inline]
    pub fn put(&mut self, row: usize, set: bool) {
        match self.words.get_mut(row / 64).filter(|_| row < self.len) {
            Some(word) if set => *word |= 1 << (row % 64),
            _ => self.clear(row),
        }
    }

    /// Rows that are set.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no row is set.
    pub fn is_none(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Whether all rows are.
    pub fn is_all(&self) -> bool {
        self.count() == self.len
    }

    /// The rows that are set, ascending.
    pub fn rows(&self) -> impl Iterator<Item = usize> + '_ {
        self.rows_within(0..self.len)
    }

    /// The rows of a range that are set, ascending.
    fn rows_within(&self, range: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        let words = range.start / 64..range.end.div_ceil(64).min(self.words.len());
        words.flat_map(move |at| {
            let base = at * 64;
            let mut word = self.words[at] & within(base, &range);
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
                word &= word - 1;
                Some(base + bit)
            })
        })
    }

    /// Appends the rows of a range that are set, ascending, each counted from the first of the range.
    pub fn append_rows_within(&self, range: Range<usize>, out: &mut Vec<u32>) {
        let words = range.start / 64..range.end.div_ceil(64).min(self.words.len());
        for at in words {
            let mut word = self.words[at] & within(at * 64, &range);
            out.reserve(64);
            while word != 0 {
                let row = at * 64 + word.trailing_zeros() as usize;
                out.push((row - range.start) as u32);
                word &= word - 1;
            }
        }
    }

    /// The first row from `row` on that is set.
    #[inline]
    pub fn next(&self, row: usize) -> Option<usize> {
        let mut at = row / 64;
        let mut word = self.words.get(at)? & (u64::MAX << (row % 64));
        while word == 0 {
            at += 1;
            word = *self.words.get(at)?;
        }
        Some(at * 64 + word.trailing_zeros() as usize)
    }

    /// Clears the rows that are not set in `other`, which has as many.
    pub fn keep(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word &= other);
    }

    /// The words.
    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    /// Clears the rows that are set in `bits`, or those that are not; a bit per row, lowest first.
    pub(crate) fn remove(&mut self, bits: &[u8], set: bool) {
        for (word, chunk) in self.words.iter_mut().zip(bits.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            let bits = u64::from_le_bytes(bytes);
            *word &= if set { !bits } else { bits };
        }
    }
}

/// The bits of a range in a word whose first bit is `base`; some of the range lies in it.
fn within(base: usize, range: &Range<usize>) -> u64 {
    let after = if base < range.start { u64::MAX << (range.start - base) } else { u64::MAX };
    let before = if base + 64 > range.end { !(u64::MAX << (range.end - base)) } else { u64::MAX };
    after & before
}

/// A bit of a page's bitmap, lowest first; `false` past its end.
#[inline]
pub(crate) fn bit(bits: &[u8], row: usize) -> bool {
    bits.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_those_that_are_set() {
        for len in [0, 1, 63, 64, 65, 200] {
            let mut bitmap = Bitmap::new(len, true);
            assert!(bitmap.is_all() && bitmap.count() == len);
            (0..len).filter(|row| row % 3 != 0).for_each(|row| bitmap.clear(row));
            let mut other = Bitmap::new(len, false);
            (0..len + 3).for_each(|row| other.put(row, row % 2 == 0));
            (0..len).for_each(|row| other.put(row, row % 3 == 0));
            assert_eq!(other, bitmap);
            let expected: Vec<usize> = (0..len).filter(|row| row % 3 == 0).collect();
            assert_eq!(bitmap.rows().collect::<Vec<_>>(), expected);
            for row in 0..len + 2 {
                assert_eq!(bitmap.next(row), expected.iter().copied().find(|&next| next >= row), "from {row} of {len}");
            }
            let within: Vec<usize> = bitmap.rows_within(len / 3..len / 2).collect();
            assert!(within.iter().all(|row| (len / 3..len / 2).contains(row) && row % 3 == 0));
            assert_eq!(within.len(), (len / 3..len / 2).filter(|row| row % 3 == 0).count());
            let mut appended = vec![7];
            bitmap.append_rows_within(len / 3..len / 2, &mut appended);
            assert!(appended[0] == 7 && appended[1..].iter().map(|&row| row as usize + len / 3).eq(within));
        }
    }
}
