//! The next key that something younger than the main runs says something of.

use std::ops::Range;

use mycelium_base::{Cursor, Operation, Result, SequenceNumber, Trailer};
use mycelium_merge::{MergePlan, MergingCursor};

use crate::sources::Source;

/// A key of the rest, with its visible entries that say something of the wanted columns, newest first.
#[derive(Default)]
pub(super) struct Touched {
    is_there: bool,
    pub(super) key: Vec<u8>,
    /// Format of the source, trailer, and where the value lies in `bytes`.
    pub(super) entries: Vec<(usize, Trailer, Range<usize>)>,
    pub(super) bytes: Vec<u8>,
}

impl Touched {
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.is_there.then_some(&self.key)
    }

    /// The patch that is all that there is.
    pub(super) fn lone_patch(&self) -> Option<(usize, &[u8])> {
        match self.entries.as_slice() {
            [(kind, trailer, place)] if self.is_there && trailer.operation() == Operation::Patch => {
                Some((*kind, &self.bytes[place.clone()]))
            }
            _ => None,
        }
    }

    /// The next key of a merge of sources of these kinds, before `upper`, that has something to say; the merge then stands behind
    /// it.
    pub(super) fn read(
        &mut self,
        (rest, kinds): (&mut MergingCursor<Source>, &[usize]),
        plan: &MergePlan,
        snapshot: SequenceNumber,
        upper: Option<&[u8]>,
    ) -> Result<()> {
        self.is_there = false;
        while !self.is_there && rest.valid() && upper.is_none_or(|upper| rest.key() < upper) {
            if says_nothing(rest, kinds, plan)? {
                rest.next()?;
                continue;
            }
            self.key.clear();
            self.key.extend_from_slice(rest.key());
            self.entries.clear();
            self.bytes.clear();
            loop {
                if rest.trailer().sequence() <= snapshot && !says_nothing(rest, kinds, plan)? {
                    self.take(kinds[rest.source()], rest.trailer(), rest.value());
                }
                rest.next()?;
                if !rest.valid() || !rest.same_key_as_previous() {
                    break;
                }
            }
            self.is_there = !self.entries.is_empty();
        }
        Ok(())
    }

    fn take(&mut self, kind: usize, trailer: Trailer, value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.entries.push((kind, trailer, start..self.bytes.len()));
    }
}

/// Whether the entry that a merge stands on is a patch that says nothing of the wanted columns.
#[inline]
fn says_nothing(rest: &MergingCursor<Source>, kinds: &[usize], plan: &MergePlan) -> Result<bool> {
    let is_patch = rest.trailer().operation() == Operation::Patch;
    Ok(is_patch && !plan.may_be_patched(kinds[rest.source()], rest.value())?)
}
