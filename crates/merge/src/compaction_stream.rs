//! What survives a compaction.
//!
//! Live snapshots cut a key's history into *stripes*: two entries lie in one stripe if every live snapshot (and the
//! present) sees both or neither. Within a stripe only the row that the stripe ends with matters. Per key, newest
//! first:
//!
//! 1. An entry of a stripe that is already decided is dropped.
//! 2. An entry below a range delete of the same stripe is dropped and decides its stripe.
//! 3. A `Put` is kept and decides its stripe.
//! 4. A `Delete` is kept and decides its stripe; in the oldest stripe it is dropped where no older place can hold the
//!    key.
//! 5. `Patch` and `Merge` entries are folded: with their base in the same stripe into a `Put`; at the end of the key's
//!    history, where no older place can hold it, over nothing; otherwise with each other. The result carries the
//!    sequence number of the newest.
//! 6. Where the inputs are the oldest data of their key range, a row that every live snapshot sees gets sequence number
//!    0: nothing is left that it could be newer than, and zeros cost no bytes in a block. Not so below a range delete,
//!    which may be kept and is older than the row.
//!
//! The stream knows no file, no lock and no clock: it is a function of its inputs.

use std::sync::Arc;

use mycelium_base::{
    Combiner, Cursor, ErrorKind, MAX_SEQUENCE_NUMBER, Operation, RangeDelete, RangeDeleteSet, Result, SequenceNumber,
    Trailer,
};

use crate::KeyHistory;
use crate::lookup::need;

/// How many entries came in and what became of them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct StreamCounters {
    /// Entries read from the inputs.
    pub entries_in: u64,
    /// Entries handed out.
    pub entries_out: u64,
    /// Versions that no snapshot sees.
    pub dropped_obsolete: u64,
    /// Deletes with nothing left to delete.
    pub dropped_tombstones: u64,
    /// Patches and operands folded into another entry.
    pub folded: u64,
}

impl std::ops::AddAssign for StreamCounters {
    fn add_assign(&mut self, other: Self) {
        self.entries_in += other.entries_in;
        self.entries_out += other.entries_out;
        self.dropped_obsolete += other.dropped_obsolete;
        self.dropped_tombstones += other.dropped_tombstones;
        self.folded += other.folded;
    }
}

/// Is told what a compaction drops and what it makes, key by key in ascending order: what feeds derived tables.
pub trait Watch {
    /// An entry that does not survive as it is: superseded, removed, or folded into another.
    fn dropped(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()>;
    /// An entry that was folded from several and survives.
    fn made(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()>;
}

/// The surviving entries of `C`, in order. `B` says whether no place older than the inputs can hold a key; it is asked
/// with ascending keys.
pub struct CompactionStream<'w, C, B> {
    input: C,
    watch: Option<&'w mut dyn Watch>,
    /// Live snapshots, ascending.
    snapshots: Vec<SequenceNumber>,
    range_deletes: Arc<RangeDeleteSet>,
    combiner: Option<Arc<dyn Combiner>>,
    is_base: B,
    /// Whether no older place can hold any key of the inputs.
    are_oldest: bool,
    /// The stripe of the current key that is decided.
    decided: Option<usize>,
    /// Whether the entry handed out last is the one that the input stands on; it has `trailer`.
    on_input: bool,
    trailer: Trailer,
    /// Folded entries of `key` waiting to be handed out, oldest first; the last is the current one while not
    /// `on_input`.
    queue: Vec<(Trailer, Vec<u8>)>,
    key: Vec<u8>,
    counters: StreamCounters,
}

enum End {
    Base,
    Nothing,
    Unknown,
}

impl<'w, C: Cursor, B: FnMut(&[u8]) -> bool> CompactionStream<'w, C, B> {
    /// Streams `input`, which stands on its first entry (or is invalid). `snapshots` ascending; `range_deletes` are
    /// those of all inputs; `are_oldest`: `is_base` would hold for every key between the inputs' first and last.
    pub fn new(
        input: C,
        snapshots: Vec<SequenceNumber>,
        range_deletes: Arc<RangeDeleteSet>,
        combiner: Option<Arc<dyn Combiner>>,
        is_base: B,
        are_oldest: bool,
    ) -> Self {
        debug_assert!(snapshots.is_sorted());
        Self {
            input,
            watch: None,
            snapshots,
            range_deletes,
            combiner,
            is_base,
            are_oldest,
            decided: None,
            on_input: false,
            trailer: Trailer::OLDEST,
            queue: Vec::new(),
            key: Vec::new(),
            counters: StreamCounters::default(),
        }
    }

    /// Tells `watch` of everything that is dropped or made. Rows then keep their sequence numbers (step 6 of the
    /// module), by which derived tables name them.
    pub fn watched_by(mut self, watch: Option<&'w mut dyn Watch>) -> Self {
        self.are_oldest &= watch.is_none();
        self.watch = watch;
        self
    }

    /// Goes to the next surviving entry; `false` at the end.
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        if self.on_input {
            self.on_input = false;
            self.step()?;
        } else if self.queue.pop().is_some() && !self.queue.is_empty() {
            self.counters.entries_out += 1;
            return Ok(true);
        }
        let found = self.settle()?;
        self.counters.entries_out += u64::from(found);
        Ok(found)
    }

    /// The current entry's key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.on_input { self.input.key() } else { &self.key }
    }

    /// The current entry's sequence number and operation.
    #[inline]
    pub fn trailer(&self) -> Trailer {
        match self.queue.last() {
            Some((trailer, _)) if !self.on_input => *trailer,
            _ => self.trailer,
        }
    }

    /// The current entry's value.
    #[inline]
    pub fn value(&self) -> &[u8] {
        match self.queue.last() {
            Some((_, value)) if !self.on_input => value,
            _ => self.input.value(),
        }
    }

    /// The input, if the current entry is the one that it stands on: kept as it is, but for its sequence number.
    #[inline]
    pub fn kept(&self) -> Option<&C> {
        self.on_input.then_some(&self.input)
    }

    /// What happened so far.
    pub fn counters(&self) -> StreamCounters {
        self.counters
    }

    /// The input, to be filled with the entries of another key once the stream is at its end; call
    /// [`CompactionStream::restart`] before it goes on.
    pub fn input_mut(&mut self) -> &mut C {
        &mut self.input
    }

    /// Goes on where the input, refilled, now stands: the first entry of a key.
    pub fn restart(&mut self) {
        debug_assert!(!self.on_input && self.queue.is_empty());
        self.decided = None;
    }

    /// The inputs, for their counters.
    pub fn input(&self) -> &C {
        &self.input
    }

    /// Moves the input one entry on.
    #[inline]
    fn step(&mut self) -> Result<()> {
        self.counters.entries_in += 1;
        self.input.next()?;
        if self.input.valid() && !self.input.same_key_as_previous() {
            self.decided = None;
        }
        Ok(())
    }

    /// The number of live snapshots that do not see `sequence`.
    #[inline]
    fn stripe(&self, sequence: SequenceNumber) -> usize {
        if self.snapshots.is_empty() { 0 } else { self.snapshots.partition_point(|&s| s < sequence) }
    }

    /// Whether a range delete of the same stripe covers the input's entry.
    #[inline]
    fn covered(&self, stripe: usize) -> bool {
        if self.range_deletes.is_empty() {
            return false;
        }
        let stripe_end = self.snapshots.get(stripe).copied().unwrap_or(MAX_SEQUENCE_NUMBER);
        let newest = self.range_deletes.covering(self.input.key(), stripe_end);
        newest.is_some_and(|sequence| sequence > self.input.trailer().sequence())
    }

    /// Finds the next entry to hand out, from where the input stands.
    fn settle(&mut self) -> Result<bool> {
        while self.input.valid() {
            let trailer = self.input.trailer();
            let stripe = self.stripe(trailer.sequence());
            if self.decided == Some(stripe) || self.covered(stripe) {
                self.decided = Some(stripe);
                self.counters.dropped_obsolete += 1;
                if let Some(watch) = &mut self.watch {
                    watch.dropped(self.input.key(), trailer, self.input.value())?;
                }
                self.step()?;
                continue;
            }
            match trailer.operation() {
                Operation::Patch | Operation::Merge => {
                    self.fold(stripe)?;
                    if !self.queue.is_empty() {
                        return Ok(true);
                    }
                }
                Operation::Delete if stripe == 0 && (self.is_base)(self.input.key()) => {
                    self.decided = Some(stripe);
                    self.counters.dropped_tombstones += 1;
                    self.step()?;
                }
                Operation::Put => {
                    let kept_as = self.row_trailer(trailer.sequence(), stripe, self.input.key());
                    return Ok(self.keep(stripe, kept_as));
                }
                Operation::Delete | Operation::RangeDelete => return Ok(self.keep(stripe, trailer)),
            }
        }
        Ok(false)
    }

    /// Hands out the input's entry where it stands.
    #[inline]
    fn keep(&mut self, stripe: usize, trailer: Trailer) -> bool {
        self.decided = Some(stripe);
        self.trailer = trailer;
        self.on_input = true;
        true
    }

    /// The trailer under which a row is kept; see step 6 of the module.
    #[inline]
    fn row_trailer(&self, sequence: SequenceNumber, stripe: usize, key: &[u8]) -> Trailer {
        let orders_nothing =
            self.are_oldest && stripe == 0 && self.range_deletes.covering(key, MAX_SEQUENCE_NUMBER).is_none();
        Trailer::new(if orders_nothing { 0 } else { sequence }, Operation::Put)
    }

    /// The input stands on the newest operand of a stripe: folds the stripe and leaves the input behind its operands.
    fn fold(&mut self, stripe: usize) -> Result<()> {
        self.key.clear();
        self.key.extend_from_slice(self.input.key());
        let mut operands: Vec<(Trailer, Vec<u8>)> = Vec::new();
        let end = self.collect_operands(stripe, &mut operands)?;
        let newest = operands[0].0;
        let oldest_first: Vec<&[u8]> = operands.iter().rev().map(|(_, value)| value.as_slice()).collect();
        let combiner = need(self.combiner.as_deref())?;
        self.counters.folded += operands.len() as u64 - 1;
        if !matches!(end, End::Unknown) {
            let base = matches!(end, End::Base).then(|| self.input.value());
            let hides_older = base.is_some();
            let applied = match combiner.apply(&self.key, base, &oldest_first) {
                // The base follows from the input.
                Err(error) if error.kind() == ErrorKind::InvalidArgument => return self.leave_unfolded(operands),
                applied => applied?,
            };
            if let Some(watch) = &mut self.watch {
                operands.iter().try_for_each(|(trailer, value)| watch.dropped(&self.key, *trailer, value))?;
            }
            if let Some(row) = applied {
                let trailer = self.row_trailer(newest.sequence(), stripe, &self.key);
                if let Some(watch) = &mut self.watch {
                    watch.made(&self.key, trailer, &row)?;
                }
                self.queue.push((trailer, row));
            } else if !hides_older {
                return Ok(());
            } else if stripe > 0 || !(self.is_base)(&self.key) {
                // The operator removed the row: neither its base nor what lies in older places may come back.
                self.queue.push((Trailer::new(newest.sequence(), Operation::Delete), Vec::new()));
            }
            self.decided = self.still_on_key().then_some(stripe).or(self.decided);
            return Ok(());
        }
        let fused = if operands.len() > 1 { combiner.fuse(&self.key, &oldest_first) } else { Ok(None) };
        match fused {
            Ok(Some(operand)) => {
                if let Some(watch) = &mut self.watch {
                    operands.iter().try_for_each(|(trailer, value)| watch.dropped(&self.key, *trailer, value))?;
                    watch.made(&self.key, newest, &operand)?;
                }
                self.queue.push((newest, operand));
            }
            Ok(None) => return self.leave_unfolded(operands),
            Err(error) if error.kind() == ErrorKind::InvalidArgument => return self.leave_unfolded(operands),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The operands stay as they are: their combiner does not fuse them, or what they come to would be longer than a
    /// value can be. A compaction that failed for that would fail for ever; reads of the row do.
    fn leave_unfolded(&mut self, mut operands: Vec<(Trailer, Vec<u8>)>) -> Result<()> {
        self.counters.folded -= operands.len() as u64 - 1;
        operands.reverse();
        self.queue = operands;
        Ok(())
    }

    fn still_on_key(&self) -> bool {
        self.input.valid() && self.input.key() == self.key
    }

    /// Takes the stripe's operands, newest first, and says what lies below the last of them.
    fn collect_operands(&mut self, stripe: usize, operands: &mut Vec<(Trailer, Vec<u8>)>) -> Result<End> {
        loop {
            operands.push((self.input.trailer(), self.input.value().to_vec()));
            self.step()?;
            if !self.input.valid() || !self.input.same_key_as_previous() {
                return Ok(if (self.is_base)(&self.key) { End::Nothing } else { End::Unknown });
            }
            if self.stripe(self.input.trailer().sequence()) != stripe {
                return Ok(End::Unknown);
            }
            if self.covered(stripe) {
                return Ok(End::Nothing);
            }
            match self.input.trailer().operation() {
                Operation::Put => return Ok(End::Base),
                Operation::Delete | Operation::RangeDelete => return Ok(End::Nothing),
                Operation::Patch | Operation::Merge => {}
            }
        }
    }
}

impl<B: FnMut(&[u8]) -> bool> CompactionStream<'_, KeyHistory, B> {
    /// What survives of the input's key where that needs no look at it: a single `Put` where nothing is deleted in
    /// ranges. `None` for all others, which go through [`CompactionStream::restart`] and [`CompactionStream::advance`].
    #[inline]
    pub fn only_row(&mut self) -> Option<(&[u8], Trailer, &[u8])> {
        let (trailer, value) = self.input.only()?;
        if trailer.operation() != Operation::Put || !self.range_deletes.is_empty() {
            return None;
        }
        self.counters.entries_in += 1;
        self.counters.entries_out += 1;
        let orders_nothing = self.are_oldest && self.stripe(trailer.sequence()) == 0;
        let kept_as = if orders_nothing { Trailer::new(0, Operation::Put) } else { trailer };
        Some((self.input.key(), kept_as, value))
    }

    /// Drops the next older entry of the input's key, which is not pushed then, if the one pushed before it has decided
    /// its stripe and nobody is told: its value is not asked for.
    #[inline]
    pub fn drops(&mut self, older: Trailer) -> bool {
        let decides = |newer: Trailer| {
            matches!(newer.operation(), Operation::Put | Operation::Delete)
                && self.stripe(newer.sequence()) == self.stripe(older.sequence())
        };
        let is_dropped = self.watch.is_none() && self.input.last().is_some_and(decides);
        self.counters.entries_in += u64::from(is_dropped);
        self.counters.dropped_obsolete += u64::from(is_dropped);
        is_dropped
    }
}

/// The range deletes that a compaction must write again: per fragment the newest of each stripe, without those of the
/// oldest stripe where `is_base(start, end)` says that no older place holds a key of the interval. Only the part within
/// `[lower, upper)` is kept.
pub fn retain_range_deletes(
    set: &RangeDeleteSet,
    snapshots: &[SequenceNumber],
    lower: Option<&[u8]>,
    upper: Option<&[u8]>,
    mut is_base: impl FnMut(&[u8], &[u8]) -> bool,
) -> Vec<RangeDelete> {
    let mut kept = Vec::new();
    for fragment in set.fragments() {
        let start = lower.map_or(fragment.start(), |lower| fragment.start().max(lower));
        let end = upper.map_or(fragment.end(), |upper| fragment.end().min(upper));
        if start >= end {
            continue;
        }
        let mut stripe_end = MAX_SEQUENCE_NUMBER;
        while let Some(sequence) = fragment.newest(stripe_end) {
            let stripe = snapshots.partition_point(|&s| s < sequence);
            if stripe > 0 || !is_base(start, end) {
                kept.push(RangeDelete { start: start.to_vec(), end: end.to_vec(), sequence });
            }
            let Some(below) = stripe.checked_sub(1) else { break };
            stripe_end = snapshots[below];
        }
    }
    kept
}
