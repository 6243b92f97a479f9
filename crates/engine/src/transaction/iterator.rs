//! Rows of the snapshot merged with a transaction's own writes.
//!
//! 1. Two sources move side by side: the table's iterator at the snapshot, and the own keys in their map. The one whose
//!    key comes first in the direction of travel decides.
//! 2. A row of the snapshot that no own write touches is handed out where it stands; one below an own range delete is
//!    passed over. For an own key its entries are folded over the snapshot's row, if it has one; if nothing is left,
//!    both move on.
//! 3. Turning round repositions both sources beside the current key.
//!
//! Under serializable isolation the walk from a seek on is noted as one interval: from where it began to wherever it
//! came, whether there were rows or not.

use std::cmp::Ordering;
use std::ops::Bound;

use mycelium_base::{ReadCounters, Result};
use mycelium_encoding::key::key_successor;
use mycelium_merge::Lookup;

use super::{Transaction, lay_under};
use crate::iterator::TableIterator;
use crate::read_options::ReadOptions;
use crate::table::Table;

/// Where the iterator stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    Nowhere,
    /// On the base's row.
    Base,
    /// On a row of `key` and `value`; the base may stand on the same key.
    Own,
}

/// How far a walk came.
#[derive(Debug, Default)]
struct Walk {
    began: bool,
    /// The first key looked at; empty is the first of all.
    low: Option<Vec<u8>>,
    /// The key after the last one looked at.
    high: Option<High>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum High {
    Before(Vec<u8>),
    End,
}

/// Walks the rows that a transaction sees, forwards and backwards. The transaction cannot be written to meanwhile.
///
/// As with [`TableIterator`], a fresh iterator stands nowhere until it seeks.
pub struct TransactionIterator<'t> {
    transaction: &'t Transaction,
    table: Table,
    base: TableIterator,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    /// The own key that is next in the direction of travel, or the current one.
    own: Option<&'t [u8]>,
    forward: bool,
    standing: Standing,
    key: Vec<u8>,
    value: Vec<u8>,
    walk: Walk,
}

impl<'t> TransactionIterator<'t> {
    pub(super) fn new(transaction: &'t Transaction, table: &Table, options: &ReadOptions) -> Result<Self> {
        let (lower, upper) = options.bounds();
        Ok(Self {
            transaction,
            table: table.clone(),
            base: table.iter(options)?,
            lower,
            upper,
            own: None,
            forward: true,
            standing: Standing::Nowhere,
            key: Vec::new(),
            value: Vec::new(),
            walk: Walk::default(),
        })
    }

    /// Whether the iterator stands on a row.
    #[inline]
    pub fn valid(&self) -> bool {
        self.standing != Standing::Nowhere
    }

    /// The row's key, until the next move. The iterator must be valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.standing == Standing::Base { self.base.key() } else { &self.key }
    }

    /// The row's value, until the next move. The iterator must be valid.
    #[inline]
    pub fn value(&self) -> &[u8] {
        if self.standing == Standing::Base { self.base.value() } else { &self.value }
    }

    /// What was read of the snapshot and skipped so far.
    pub fn counters(&self) -> ReadCounters {
        self.base.counters()
    }

    /// To the first row within the bounds.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.begin_forward(self.lower.clone());
        self.base.seek_to_first()?;
        self.own = self.first_own(Bound::Unbounded);
        self.settle_forward()
    }

    /// To the first row at or after `key`, within the bounds.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        let from = self.lower.as_deref().map_or(key, |lower| lower.max(key)).to_vec();
        self.begin_forward(Some(from.clone()));
        self.base.seek(&from)?;
        self.own = self.first_own(Bound::Included(&from));
        self.settle_forward()
    }

    /// To the last row within the bounds.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.begin_backward(High::End);
        self.base.seek_to_last()?;
        self.own = self.last_own(Bound::Unbounded);
        self.settle_backward()
    }

    /// To the last row at or before `key`, within the bounds.
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        let beyond = self.upper.as_deref().is_some_and(|upper| upper <= key);
        self.begin_backward(if beyond { High::End } else { High::Before(key_successor(key)) });
        self.base.seek_for_prev(key)?;
        self.own = self.last_own(if beyond { Bound::Unbounded } else { Bound::Included(key) });
        self.settle_backward()
    }

    /// To the next row; does nothing on an invalid iterator.
    #[expect(clippy::should_implement_trait, reason = "rows are lent, which `Iterator` cannot express")]
    pub fn next(&mut self) -> Result<()> {
        if !self.valid() {
            return Ok(());
        }
        if !self.forward {
            self.turn(true)?;
        } else if std::mem::replace(&mut self.standing, Standing::Nowhere) == Standing::Base {
            self.base.next()?;
        } else {
            self.own = self.first_own(Bound::Excluded(&self.key));
            if self.base.valid() && self.base.key() == self.key {
                self.base.next()?;
            }
        }
        self.settle_forward()
    }

    /// To the previous row; does nothing on an invalid iterator.
    pub fn prev(&mut self) -> Result<()> {
        if !self.valid() {
            return Ok(());
        }
        if self.forward {
            self.turn(false)?;
        } else if std::mem::replace(&mut self.standing, Standing::Nowhere) == Standing::Base {
            self.base.prev()?;
        } else {
            self.own = self.last_own(Bound::Excluded(&self.key));
            if self.base.valid() && self.base.key() == self.key {
                self.base.prev()?;
            }
        }
        self.settle_backward()
    }

    /// Puts both sources beside the current row, in the other direction.
    fn turn(&mut self, forward: bool) -> Result<()> {
        self.note_position();
        let key = self.key().to_vec();
        self.standing = Standing::Nowhere;
        self.forward = forward;
        if forward {
            self.base.seek(&key)?;
            if self.base.valid() && self.base.key() == key {
                self.base.next()?;
            }
            self.own = self.first_own(Bound::Excluded(&key));
        } else {
            self.base.seek_for_prev(&key)?;
            if self.base.valid() && self.base.key() == key {
                self.base.prev()?;
            }
            self.own = self.last_own(Bound::Excluded(&key));
        }
        Ok(())
    }

    /// The first own key at or after `from`, within the bounds.
    fn first_own(&self, from: Bound<&[u8]>) -> Option<&'t [u8]> {
        let own = self.transaction.writes.get(&self.table.id())?;
        let lower = match from {
            Bound::Unbounded => self.lower.as_deref().map_or(Bound::Unbounded, Bound::Included),
            from => from,
        };
        own.overlay.first_within(lower, self.upper.as_deref().map_or(Bound::Unbounded, Bound::Excluded))
    }

    /// The last own key at or before `to`, within the bounds.
    fn last_own(&self, to: Bound<&[u8]>) -> Option<&'t [u8]> {
        let own = self.transaction.writes.get(&self.table.id())?;
        let upper = match to {
            Bound::Unbounded => self.upper.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
            to => to,
        };
        own.overlay.last_within(self.lower.as_deref().map_or(Bound::Unbounded, Bound::Included), upper)
    }

    fn settle_forward(&mut self) -> Result<()> {
        loop {
            match self.nearest(Ordering::Less) {
                None => return Ok(()),
                Some(Nearest::Base) if self.is_base_covered() => self.base.next()?,
                Some(Nearest::Base) => {
                    self.standing = Standing::Base;
                    return Ok(());
                }
                Some(Nearest::Own { key, over_base }) => {
                    if self.fold(key, over_base)? {
                        return Ok(());
                    }
                    self.own = self.first_own(Bound::Excluded(key));
                    if over_base {
                        self.base.next()?;
                    }
                }
            }
        }
    }

    fn settle_backward(&mut self) -> Result<()> {
        loop {
            match self.nearest(Ordering::Greater) {
                None => return Ok(()),
                Some(Nearest::Base) if self.is_base_covered() => self.base.prev()?,
                Some(Nearest::Base) => {
                    self.standing = Standing::Base;
                    return Ok(());
                }
                Some(Nearest::Own { key, over_base }) => {
                    if self.fold(key, over_base)? {
                        return Ok(());
                    }
                    self.own = self.last_own(Bound::Excluded(key));
                    if over_base {
                        self.base.prev()?;
                    }
                }
            }
        }
    }

    /// Which source comes first, `first` being how its key compares with the other's.
    fn nearest(&self, first: Ordering) -> Option<Nearest<'t>> {
        let base = self.base.valid().then(|| self.base.key());
        match (base, self.own) {
            (None, None) => None,
            (Some(_), None) => Some(Nearest::Base),
            (None, Some(key)) => Some(Nearest::Own { key, over_base: false }),
            (Some(base), Some(key)) => match base.cmp(key) {
                Ordering::Equal => Some(Nearest::Own { key, over_base: true }),
                order if order == first => Some(Nearest::Base),
                _ => Some(Nearest::Own { key, over_base: false }),
            },
        }
    }

    fn is_base_covered(&self) -> bool {
        let own = self.transaction.writes.get(&self.table.id());
        own.is_some_and(|own| own.overlay.covers(self.base.key()))
    }

    /// Builds the row of an own key; `false` if there is none.
    fn fold(&mut self, key: &[u8], over_base: bool) -> Result<bool> {
        let Some(own) = self.transaction.writes.get(&self.table.id()) else { return Ok(false) };
        let mut lookup = Lookup::new();
        own.overlay.look_up(self.transaction.batch.body(), key, &mut lookup);
        if !lookup.is_settled() && !lookup.is_covered() {
            lay_under(&mut lookup, over_base.then(|| self.base.value()));
        }
        let Some(row) = lookup.finish(key, self.table.shared.combiner.as_deref())? else { return Ok(false) };
        self.key.clear();
        self.key.extend_from_slice(key);
        self.value = row;
        self.standing = Standing::Own;
        Ok(true)
    }

    fn begin_forward(&mut self, from: Option<Vec<u8>>) {
        self.note_walk();
        (self.standing, self.forward) = (Standing::Nowhere, true);
        self.walk = Walk { began: true, low: Some(from.unwrap_or_default()), high: None };
    }

    fn begin_backward(&mut self, from: High) {
        self.note_walk();
        (self.standing, self.forward) = (Standing::Nowhere, false);
        self.walk = Walk { began: true, low: None, high: Some(from) };
    }

    /// Takes the present position into the walk.
    fn note_position(&mut self) {
        if !self.transaction.notes_reads() {
            return;
        }
        if self.forward {
            let high = if self.valid() { High::Before(key_successor(self.key())) } else { High::End };
            self.walk.high = self.walk.high.take().max(Some(high));
        } else {
            let low = if self.valid() { self.key().to_vec() } else { self.lower.clone().unwrap_or_default() };
            self.walk.low = Some(self.walk.low.take().map_or(low.clone(), |walked| walked.min(low)));
        }
    }

    /// Tells the transaction of the walk that ends here.
    fn note_walk(&mut self) {
        if !self.walk.began || !self.transaction.notes_reads() {
            return;
        }
        self.note_position();
        let walk = std::mem::take(&mut self.walk);
        let end = match walk.high {
            Some(High::Before(key)) => Some(self.upper.clone().map_or(key.clone(), |upper| upper.min(key))),
            Some(High::End) | None => self.upper.clone(),
        };
        self.transaction.reads.lock().add_range(&self.table, walk.low.unwrap_or_default(), end);
    }
}

impl Drop for TransactionIterator<'_> {
    fn drop(&mut self) {
        self.note_walk();
    }
}

enum Nearest<'t> {
    Base,
    Own { key: &'t [u8], over_base: bool },
}
