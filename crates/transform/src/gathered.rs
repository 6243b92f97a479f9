//! What transformers make of the entry in hand: its values by destination ([`Mapped`]), and what it derives outside of
//! a job ([`DerivedEntries`]).
//!
//! Both lie in memory that is used again for the next entry; what one large entry made it take is given back
//! ([`clear_for_reuse`]).

use std::ops::Range;

use mycelium_base::limits::MAX_VALUE_LEN;
use mycelium_base::{Error, Result};

/// What reused buffers keep at most from one entry to the next.
const KEPT_BYTES: usize = 1 << 20;

/// Empties a reused buffer, and gives back what one large entry made it take.
pub(crate) fn clear_for_reuse(bytes: &mut Vec<u8>) {
    bytes.clear();
    if bytes.capacity() > KEPT_BYTES {
        bytes.shrink_to(KEPT_BYTES);
    }
}

/// The values of one entry, by destination.
#[derive(Debug, Default)]
pub(crate) struct Mapped {
    bytes: Vec<u8>,
    values: Vec<(usize, Range<usize>)>,
}

impl Mapped {
    pub(crate) fn clear(&mut self) {
        clear_for_reuse(&mut self.bytes);
        self.values.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.values.iter().map(|(destination, range)| (*destination, &self.bytes[range.clone()]))
    }

    pub(crate) fn push(&mut self, destination: usize, write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
        let start = self.bytes.len();
        write(&mut self.bytes)?;
        let len = self.bytes.len().checked_sub(start);
        match len {
            Some(len) if len <= MAX_VALUE_LEN => self.values.push((destination, start..start + len)),
            Some(len) => {
                let message = format!("a transformed value has {len} bytes; at most {MAX_VALUE_LEN} are possible");
                return Err(Error::invalid(message));
            }
            None => return Err(Error::invalid("a transformer took away from outputs that it should have added to")),
        }
        Ok(())
    }
}

/// The most bytes of keys and values that one row may derive.
pub const MAX_DERIVED_BYTES: usize = 16 << 20;

/// What a row derives, as far as it is held in memory.
#[derive(Clone, Default, Debug)]
pub struct DerivedEntries {
    bytes: Vec<u8>,
    /// Where each key starts, and its value starts and ends.
    entries: Vec<(usize, Range<usize>)>,
}

impl DerivedEntries {
    /// Keys and values, in the order in which they were derived.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.entries.iter().map(|(start, value)| (&self.bytes[*start..value.start], &self.bytes[value.clone()]))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        clear_for_reuse(&mut self.bytes);
        self.entries.clear();
    }

    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let start = self.bytes.len();
        let end = start + key.len() + value.len();
        if end > MAX_DERIVED_BYTES {
            let message = format!("a row derives {end} bytes or more: at most {MAX_DERIVED_BYTES} are possible");
            return Err(Error::invalid(message));
        }
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.entries.push((start, middle..self.bytes.len()));
        Ok(())
    }
}
