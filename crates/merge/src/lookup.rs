//! One key's row, from its versions fed newest first.
//!
//! 1. The caller visits the places that may hold the key, youngest first, and before each gives the newest range delete
//!    there that covers the key at the snapshot.
//! 2. Each visible version goes to [`Lookup::visit`] until it breaks: at a `Put`, a `Delete`, or an entry that is older
//!    than a covering range delete. Patches and operands are kept and the search goes on to their base.
//! 3. [`Lookup::finish`] folds what was kept over the base.

use std::ops::ControlFlow;

use mycelium_base::{Combiner, Error, ErrorKind, Operation, Result, SequenceNumber, Trailer};

/// Accumulates the versions of one key at one snapshot.
#[derive(Debug, Default)]
pub struct Lookup {
    base: Option<Vec<u8>>,
    /// Newest first.
    operands: Vec<Vec<u8>>,
    range_delete: SequenceNumber,
    settled: bool,
}

impl Lookup {
    /// An empty lookup.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells of a range delete, visible at the snapshot, that covers the key.
    #[inline]
    pub fn cover(&mut self, sequence: SequenceNumber) {
        self.range_delete = self.range_delete.max(sequence);
    }

    /// Takes the next older visible version. Breaks when older versions cannot matter.
    #[inline]
    pub fn visit(&mut self, trailer: Trailer, value: &[u8]) -> ControlFlow<()> {
        debug_assert!(!self.settled);
        if trailer.sequence() < self.range_delete {
            self.settled = true;
            return ControlFlow::Break(());
        }
        match trailer.operation() {
            Operation::Put => self.base = Some(value.to_vec()),
            Operation::Patch | Operation::Merge => {
                self.operands.push(value.to_vec());
                return ControlFlow::Continue(());
            }
            Operation::Delete | Operation::RangeDelete => {}
        }
        self.settled = true;
        ControlFlow::Break(())
    }

    /// Whether older versions cannot matter any more.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// Whether a range delete covers everything in older places.
    #[inline]
    pub fn is_covered(&self) -> bool {
        self.range_delete > 0
    }

    /// The row, or `None` if the key has none at the snapshot.
    pub fn finish(self, key: &[u8], combiner: Option<&dyn Combiner>) -> Result<Option<Vec<u8>>> {
        if self.operands.is_empty() {
            return Ok(self.base);
        }
        let operands: Vec<&[u8]> = self.operands.iter().rev().map(Vec::as_slice).collect();
        need(combiner)?.apply(key, self.base.as_deref(), &operands)
    }
}

/// The combiner, or the error of a table whose entries need one that is not there.
pub(crate) fn need(combiner: Option<&dyn Combiner>) -> Result<&dyn Combiner> {
    combiner.ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "the table holds patches or merge operands but has no combiner registered")
    })
}
