//! Sets of columns.
//!
//! A column is named by its position in the table's schema. Text form: positions and ranges of positions, ascending,
//! separated by commas (`0-3,7`); the empty set is `-`.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// A set of column positions.
///
/// ```
/// use mycelium_base::ColumnSet;
///
/// let set: ColumnSet = "0-3,7".parse()?;
/// assert_eq!(set.len(), 5);
/// assert!(ColumnSet::from_iter([1, 7]).is_subset(&set));
/// assert_eq!(set.difference(&ColumnSet::from_iter([2])).to_string(), "0-1,3,7");
/// # Ok::<(), mycelium_base::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ColumnSet {
    /// Bit `c % 64` of word `c / 64` says whether column `c` is in; the last word is not 0.
    words: Vec<u64>,
}

impl ColumnSet {
    /// The largest position that text may name: what bounds the memory of a parsed set.
    pub const MAX_POSITION: usize = (1 << 16) - 1;

    /// The set without columns.
    pub fn new() -> Self {
        Self::default()
    }

    /// The first `count` columns.
    pub fn first(count: usize) -> Self {
        (0..count).collect()
    }

    /// Whether there is no column in it.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The number of columns.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether `column` is in it. O(1).
    #[inline]
    pub fn contains(&self, column: usize) -> bool {
        self.words.get(column / 64).is_some_and(|word| word >> (column % 64) & 1 == 1)
    }

    /// Adds a column; whether it was not in it. O(1).
    pub fn insert(&mut self, column: usize) -> bool {
        let is_new = !self.contains(column);
        if self.words.len() <= column / 64 {
            self.words.resize(column / 64 + 1, 0);
        }
        self.words[column / 64] |= 1 << (column % 64);
        is_new
    }

    /// Takes all columns out; keeps the memory.
    pub fn clear(&mut self) {
        self.words.clear();
    }

    /// Whether all columns are in `other` too.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.words.len() <= other.words.len() && self.words.iter().zip(&other.words).all(|(a, b)| a & !b == 0)
    }

    /// Whether some column is in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Whether entries of column groups with these columns may be versions of each other: some column is in both, or
    /// one of the groups has none, as those of a table of keys alone.
    ///
    /// ```
    /// use mycelium_base::ColumnSet;
    ///
    /// let (name, score) = (ColumnSet::from_iter([1]), ColumnSet::from_iter([2]));
    /// assert!(name.shares_entries(&name) && !name.shares_entries(&score));
    /// let keys_alone = ColumnSet::new();
    /// assert!(keys_alone.shares_entries(&keys_alone) && !keys_alone.overlaps(&keys_alone));
    /// ```
    pub fn shares_entries(&self, other: &Self) -> bool {
        self.is_empty() || other.is_empty() || self.overlaps(other)
    }

    /// The columns that are in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self::trimmed(self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect())
    }

    /// The columns that are in one of both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (longer, shorter) = if self.words.len() < other.words.len() { (other, self) } else { (self, other) };
        let mut words = longer.words.clone();
        words.iter_mut().zip(&shorter.words).for_each(|(a, b)| *a |= b);
        Self { words }
    }

    /// The columns that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut words = self.words.clone();
        words.iter_mut().zip(&other.words).for_each(|(a, b)| *a &= !b);
        Self::trimmed(words)
    }

    /// Takes out the columns that are in `other`. Allocates nothing.
    pub fn remove_all(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a &= !b);
        self.trim();
    }

    /// The columns, ascending.
    pub fn iter(&self) -> Columns<'_> {
        Columns { words: &self.words, word: 0, rest: self.words.first().copied().unwrap_or(0) }
    }

    fn trimmed(words: Vec<u64>) -> Self {
        let mut set = Self { words };
        set.trim();
        set
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

/// The columns of a set, ascending; made by [`ColumnSet::iter`].
#[derive(Clone, Debug)]
pub struct Columns<'a> {
    words: &'a [u64],
    word: usize,
    /// What is left of that word.
    rest: u64,
}

impl Iterator for Columns<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.rest == 0 {
            self.rest = *self.words.get(self.word + 1)?;
            self.word += 1;
        }
        let bit = self.rest.trailing_zeros() as usize;
        self.rest &= self.rest - 1;
        Some(64 * self.word + bit)
    }
}

impl FromIterator<usize> for ColumnSet {
    fn from_iter<I: IntoIterator<Item = usize>>(columns: I) -> Self {
        let mut set = Self::new();
        for column in columns {
            set.insert(column);
        }
        set
    }
}

impl fmt::Display for ColumnSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("-");
        }
        let mut columns = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = columns.next() {
            let mut last = first;
            while let Some(next) = columns.next_if_eq(&(last + 1)) {
                last = next;
            }
            match last == first {
                true => write!(f, "{separator}{first}")?,
                false => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for ColumnSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

impl FromStr for ColumnSet {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "-" {
            return Ok(Self::new());
        }
        let mut set = Self::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (position(first, text)?, position(last, text)?);
            if last < first {
                return Err(Error::invalid(format!("`{text}`: `{part}` begins after it ends")));
            }
            for column in first..=last {
                set.insert(column);
            }
        }
        Ok(set)
    }
}

fn position(number: &str, text: &str) -> Result<usize> {
    let parsed = number.trim().parse().ok().filter(|&position| position <= ColumnSet::MAX_POSITION);
    parsed.ok_or_else(|| {
        Error::invalid(format!("`{text}`: `{number}` is not a column position up to {}", ColumnSet::MAX_POSITION))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_what_their_columns_say() {
        let a = ColumnSet::from_iter([0, 5, 63, 64, 200]);
        let b = ColumnSet::from_iter([5, 64, 65]);
        assert_eq!(a.iter().collect::<Vec<_>>(), [0, 5, 63, 64, 200]);
        assert_eq!(a.intersection(&b), ColumnSet::from_iter([5, 64]));
        assert_eq!(a.union(&b), ColumnSet::from_iter([0, 5, 63, 64, 65, 200]));
        assert_eq!(b.union(&a), a.union(&b));
        assert_eq!(a.difference(&b), ColumnSet::from_iter([0, 63, 200]));
        assert!(a.overlaps(&b) && !a.is_subset(&b) && a.intersection(&b).is_subset(&b));
        assert!(!a.contains(1) && a.contains(200) && !a.contains(100_000));
        assert!(a.difference(&a).is_empty() && ColumnSet::new().is_subset(&b));
    }

    #[test]
    fn text_is_read_back() {
        for text in ["-", "0", "0-3,7", "1,3,5", "0-99", "63-64,65535"] {
            assert_eq!(text.parse::<ColumnSet>().unwrap().to_string(), text);
        }
        for text in ["", "a", "1-", "1,,2", "65536", "-1", "0-99999999999", "3-1", "0,3-2"] {
            assert!(text.parse::<ColumnSet>().is_err(), "{text}");
        }
    }
}
