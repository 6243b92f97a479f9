//! The key interval that a walk over rows keeps to, and where an input is placed to begin within it.

use mycelium_base::{Cursor, Result, Trailer};

/// `lower <= key < upper`, each open where it is `None`.
#[derive(Debug)]
pub(crate) struct Bounds {
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
}

impl Bounds {
    pub(crate) fn new(lower: Option<Vec<u8>>, upper: Option<Vec<u8>>) -> Self {
        Self { lower, upper }
    }

    /// Whether `key` lies at or after the upper bound.
    #[inline]
    pub(crate) fn end_before(&self, key: &[u8]) -> bool {
        self.upper.as_ref().is_some_and(|upper| key >= upper.as_slice())
    }

    /// Whether `key` lies before the lower bound.
    #[inline]
    pub(crate) fn begin_after(&self, key: &[u8]) -> bool {
        self.lower.as_ref().is_some_and(|lower| key < lower.as_slice())
    }

    /// To the first entry within the bounds.
    pub(crate) fn seek_to_first(&self, input: &mut impl Cursor) -> Result<()> {
        match &self.lower {
            Some(lower) => input.seek(lower, Trailer::NEWEST),
            None => input.seek_to_first(),
        }
    }

    /// To the first entry of the first key at or after `key`.
    pub(crate) fn seek(&self, input: &mut impl Cursor, key: &[u8]) -> Result<()> {
        let from = match &self.lower {
            Some(lower) if key < lower.as_slice() => lower,
            _ => key,
        };
        input.seek(from, Trailer::NEWEST)
    }

    /// To the last entry within the bounds.
    pub(crate) fn seek_to_last(&self, input: &mut impl Cursor) -> Result<()> {
        match &self.upper {
            Some(upper) => input.seek_before(upper, Trailer::NEWEST),
            None => input.seek_to_last(),
        }
    }

    /// To the last entry of the last key at or before `key`.
    pub(crate) fn seek_for_prev(&self, input: &mut impl Cursor, key: &[u8]) -> Result<()> {
        match &self.upper {
            Some(upper) if upper.as_slice() <= key => input.seek_before(upper, Trailer::NEWEST),
            _ => {
                // The successor of `key` in byte order is `key` with a NUL appended.
                let mut after = Vec::with_capacity(key.len() + 1);
                after.extend_from_slice(key);
                after.push(0);
                input.seek_before(&after, Trailer::NEWEST)
            }
        }
    }
}
