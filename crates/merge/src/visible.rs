//! The rows that a snapshot sees.
//!
//! Forwards:
//! 1. Entries newer than the snapshot are passed over.
//! 2. The first visible entry of a key decides: a `Put` is the row and is handed out where it stands, without a copy; a
//!    `Delete`, or an entry below a covering range delete, means there is none; `Patch` and `Merge` entries are
//!    collected down to their base and folded.
//! 3. The key's older entries are passed over; that they have the same key is known from decoding, not by comparing.
//!
//! Backwards the versions of a key come oldest first, so the row is built up entry by entry and copied.

use std::sync::Arc;

use mycelium_base::{
    Combiner, Cursor, EntryRef, Operation, RangeDeleteSet, ReadCounters, Result, SequenceNumber, Trailer,
};

use crate::bounds::Bounds;
use crate::lookup::need;

/// Walks the rows of `C` visible at a snapshot, within bounds.
pub struct VisibleCursor<C> {
    input: C,
    snapshot: SequenceNumber,
    range_deletes: Vec<Arc<RangeDeleteSet>>,
    combiner: Option<Arc<dyn Combiner>>,
    bounds: Bounds,
    standing: Standing,
    /// The row's key and value where they are not the input's own.
    key: Vec<u8>,
    value: Vec<u8>,
    operands: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    Nowhere,
    /// On a `Put` of the input.
    OnInput,
    /// On a folded row; the input has moved on within the same key.
    OwnedWithinKey,
    /// On a folded row; the input has moved on to the next key or the end.
    OwnedPastKey,
    /// On a row built backwards; the input stands on the key before it.
    Backward,
}

/// Whether an entry is a whole row that a snapshot sees.
#[inline]
pub(crate) fn is_visible_put(entry: &EntryRef<'_>, snapshot: SequenceNumber) -> bool {
    entry.trailer.operation() == Operation::Put && entry.trailer.sequence() <= snapshot
}

enum Base {
    Row,
    Nothing { past_key: bool },
}

impl<C: Cursor> VisibleCursor<C> {
    /// Rows of `input` at `snapshot` with `lower <= key < upper`; `range_deletes` are those of all sources.
    pub fn new(
        input: C,
        snapshot: SequenceNumber,
        mut range_deletes: Vec<Arc<RangeDeleteSet>>,
        combiner: Option<Arc<dyn Combiner>>,
        lower: Option<Vec<u8>>,
        upper: Option<Vec<u8>>,
    ) -> Self {
        range_deletes.retain(|set| !set.is_empty());
        Self {
            input,
            snapshot,
            range_deletes,
            combiner,
            bounds: Bounds::new(lower, upper),
            standing: Standing::Nowhere,
            key: Vec::new(),
            value: Vec::new(),
            operands: Vec::new(),
        }
    }

    /// Whether the cursor stands on a row.
    #[inline]
    pub fn valid(&self) -> bool {
        self.standing != Standing::Nowhere
    }

    /// The row's key; the cursor must be valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.standing == Standing::OnInput { self.input.key() } else { &self.key }
    }

    /// The row's value; the cursor must be valid.
    #[inline]
    pub fn value(&self) -> &[u8] {
        if self.standing == Standing::OnInput { self.input.value() } else { &self.value }
    }

    /// What the sources read and skipped.
    pub fn add_counters(&self, counters: &mut ReadCounters) {
        self.input.add_counters(counters);
    }

    /// To the first row.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.standing = Standing::Nowhere;
        self.bounds.seek_to_first(&mut self.input)?;
        self.settle_forward()
    }

    /// To the first row at or after `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.standing = Standing::Nowhere;
        self.bounds.seek(&mut self.input, key)?;
        self.settle_forward()
    }

    /// To the last row.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.standing = Standing::Nowhere;
        self.bounds.seek_to_last(&mut self.input)?;
        self.settle_backward()
    }

    /// To the last row at or before `key`.
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.standing = Standing::Nowhere;
        self.bounds.seek_for_prev(&mut self.input, key)?;
        self.settle_backward()
    }

    /// To the next row; must be valid.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "rows are lent, which `Iterator` cannot express")]
    pub fn next(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.standing, Standing::Nowhere) {
            Standing::OnInput | Standing::OwnedWithinKey => {
                self.input.next()?;
                if self.input.valid() && self.input.same_key_as_previous() {
                    self.pass_key()?;
                }
            }
            Standing::OwnedPastKey | Standing::Nowhere => {}
            Standing::Backward => {
                self.input.seek(&self.key, Trailer::OLDEST)?;
                while self.input.valid() && self.input.key() == self.key {
                    self.input.next()?;
                }
            }
        }
        self.settle_forward()
    }

    /// Shows `visit` the key and value of the current row and of those behind it, for as long as they are handed out
    /// where they stand; to the end, or until `visit` says `false`, and the cursor stays on that row. `false` if the
    /// current row is none of these, or range deletes are to be asked. The same as to do so step by step, but the input
    /// finds out at once for many rows what it finds out at each step ([`Cursor::visit`]).
    pub fn visit(&mut self, mut visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<bool> {
        if self.standing != Standing::OnInput || !self.range_deletes.is_empty() {
            return Ok(false);
        }
        self.standing = Standing::Nowhere;
        let (snapshot, bounds) = (self.snapshot, &self.bounds);
        let (mut is_first, mut stays) = (true, false);
        self.input.visit(|entry, same_key| {
            if same_key && !is_first {
                return true;
            }
            let is_row = is_first || (is_visible_put(entry, snapshot) && !bounds.end_before(entry.key));
            is_first = false;
            stays = is_row && !visit(entry.key, entry.value);
            is_row && !stays
        })?;
        if stays {
            self.standing = Standing::OnInput;
        } else {
            self.settle_forward()?;
        }
        Ok(true)
    }

    /// To the previous row; must be valid.
    pub fn prev(&mut self) -> Result<()> {
        if self.standing == Standing::OnInput {
            self.key.clear();
            self.key.extend_from_slice(self.input.key());
        }
        if std::mem::replace(&mut self.standing, Standing::Nowhere) != Standing::Backward {
            self.input.seek_before(&self.key, Trailer::NEWEST)?;
        }
        self.settle_backward()
    }

    /// The newest range delete at the snapshot that covers the input's key is newer than the input's entry.
    #[inline]
    fn covered(&self) -> bool {
        !self.range_deletes.is_empty() && self.covered_by_range_delete()
    }

    fn covered_by_range_delete(&self) -> bool {
        let (key, sequence) = (self.input.key(), self.input.trailer().sequence());
        self.range_deletes.iter().any(|set| set.covering(key, self.snapshot).is_some_and(|s| s > sequence))
    }

    /// Passes over the rest of the input's current key.
    fn pass_key(&mut self) -> Result<()> {
        loop {
            self.input.next()?;
            if !self.input.valid() || !self.input.same_key_as_previous() {
                return Ok(());
            }
        }
    }

    /// The input stands on the first entry of a key (or the end): goes to the first row from there.
    #[inline]
    fn settle_forward(&mut self) -> Result<()> {
        while self.input.valid() {
            if self.bounds.end_before(self.input.key()) {
                return Ok(());
            }
            let trailer = self.input.trailer();
            if trailer.sequence() > self.snapshot {
                self.input.next()?;
                continue;
            }
            if !self.covered() {
                match trailer.operation() {
                    Operation::Put => {
                        self.standing = Standing::OnInput;
                        return Ok(());
                    }
                    Operation::Patch | Operation::Merge => {
                        match self.fold_forward()? {
                            Standing::Nowhere => continue,
                            standing => self.standing = standing,
                        }
                        return Ok(());
                    }
                    Operation::Delete | Operation::RangeDelete => {}
                }
            }
            self.pass_key()?;
        }
        Ok(())
    }

    /// The input stands on the newest visible entry, an operand: folds it with what lies below.
    /// `Nowhere` if the key has no row; the input then stands on the next key.
    fn fold_forward(&mut self) -> Result<Standing> {
        self.key.clear();
        self.key.extend_from_slice(self.input.key());
        self.operands.clear();
        let base = self.collect_operands()?;
        let operands: Vec<&[u8]> = self.operands.iter().rev().map(Vec::as_slice).collect();
        let base_row = matches!(base, Base::Row).then(|| self.input.value());
        let row = need(self.combiner.as_deref())?.apply(&self.key, base_row, &operands)?;
        let past_key = matches!(base, Base::Nothing { past_key: true });
        match row {
            Some(row) => {
                self.value = row;
                Ok(if past_key { Standing::OwnedPastKey } else { Standing::OwnedWithinKey })
            }
            None => {
                if !past_key {
                    self.pass_key()?;
                }
                Ok(Standing::Nowhere)
            }
        }
    }

    /// Collects operands, newest first, until the input stands on their base or there is none.
    fn collect_operands(&mut self) -> Result<Base> {
        loop {
            self.operands.push(self.input.value().to_vec());
            self.input.next()?;
            if !self.input.valid() || !self.input.same_key_as_previous() {
                return Ok(Base::Nothing { past_key: true });
            }
            if self.covered() {
                return Ok(Base::Nothing { past_key: false });
            }
            match self.input.trailer().operation() {
                Operation::Put => return Ok(Base::Row),
                Operation::Patch | Operation::Merge => {}
                Operation::Delete | Operation::RangeDelete => return Ok(Base::Nothing { past_key: false }),
            }
        }
    }

    /// The input stands on the oldest entry of a key (or before the start): goes to the last row from there backwards.
    fn settle_backward(&mut self) -> Result<()> {
        while self.input.valid() {
            if self.bounds.begin_after(self.input.key()) {
                return Ok(());
            }
            self.key.clear();
            self.key.extend_from_slice(self.input.key());
            if self.build_backward()? {
                self.standing = Standing::Backward;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Builds the row of `self.key` from its entries, oldest first; leaves the input on the key before it.
    fn build_backward(&mut self) -> Result<bool> {
        let mut has_base = false;
        self.operands.clear();
        while self.input.valid() && self.input.key() == self.key {
            let trailer = self.input.trailer();
            if trailer.sequence() <= self.snapshot {
                let covered = self.covered();
                match trailer.operation() {
                    Operation::Put if !covered => {
                        self.value.clear();
                        self.value.extend_from_slice(self.input.value());
                        has_base = true;
                        self.operands.clear();
                    }
                    Operation::Patch | Operation::Merge if !covered => {
                        self.operands.push(self.input.value().to_vec());
                    }
                    _ => {
                        has_base = false;
                        self.operands.clear();
                    }
                }
            }
            self.input.prev()?;
        }
        if self.operands.is_empty() {
            return Ok(has_base);
        }
        let operands: Vec<&[u8]> = self.operands.iter().map(Vec::as_slice).collect();
        let base = has_base.then_some(self.value.as_slice());
        match need(self.combiner.as_deref())?.apply(&self.key, base, &operands)? {
            Some(row) => {
                self.value = row;
                Ok(true)
            }
            None => Ok(false),
        }
    }
}
