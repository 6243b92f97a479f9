//! The next keys that something younger than the main runs says something of.
//!
//! They are read ahead, twice as many entries each time, up to a bound of entries and one of bytes: the sources and
//! their merge then run for many keys in a row, and so does what is done with the keys. What is read ahead has been
//! fetched from memory together, entries that say nothing of the wanted columns, too.

use std::ops::Range;

use mycelium_base::key_prefix::head;
use mycelium_base::{Cursor, EntryRef, Error, Operation, Result, SequenceNumber, Trailer};
use mycelium_merge::{MergePlan, MergingCursor};

use crate::sources::Source;

/// Entries that are read ahead first, and at most.
const FIRST_AHEAD: usize = 4;
const MOST_AHEAD: usize = 512;

/// From so many bytes on no further key is read ahead.
const MOST_BYTES: usize = 256 << 10;

/// From so many on it is worth while to have them fetched from memory together.
const LEAST_FETCHED: usize = 64;

/// Keys of the rest, with their visible entries that say something of the wanted columns, newest first, down to the
/// first whole row or delete of one: it hides all that is older.
#[derive(Default)]
pub(super) struct Touched {
    found: Vec<Found>,
    /// Of `found`, the next.
    at: usize,
    ahead: usize,
    /// The entries of all keys but for the newest of each.
    older: Vec<Kept>,
    bytes: Bytes,
    alike: Alike,
}

/// Patches of one source that say something, since they begin as one that did.
#[derive(Default)]
struct Alike {
    /// The source, and its kind; none where no byte is looked at.
    source: usize,
    kind: usize,
    /// What they begin with, and which of its bits count.
    head: u64,
    mask: u64,
}

impl Alike {
    /// Those that begin as a patch does, as far as `plan` looks at it; none if that is further than here.
    fn of((source, kind): (usize, usize), patch: &[u8], plan: &MergePlan) -> Self {
        let len = plan.patch_head_len(kind).filter(|len| (1..=8).contains(len));
        let Some((len, &head)) = len.zip(patch.first_chunk()) else { return Self::default() };
        Self { source, kind, head: u64::from_le_bytes(head), mask: u64::MAX >> (64 - 8 * len) }
    }

    /// Whether an entry of a source is one of them.
    #[inline(always)]
    fn has(&self, source: usize, entry: &EntryRef<'_>) -> bool {
        let head = entry.value.first_chunk().map_or(!self.head, |&head| u64::from_le_bytes(head));
        let is_alike = (head ^ self.head) & self.mask == 0 && self.mask != 0;
        is_alike && source == self.source && entry.trailer.operation() == Operation::Patch
    }
}

/// A key and what its entries say.
struct Found {
    /// Where it lies in the bytes.
    key: Range<usize>,
    newest: Kept,
    /// The first of its older entries, which are followed by those of the next key.
    older: usize,
    says: Says,
}

/// An entry: the format of its source, its trailer, and where its value lies in the bytes.
struct Kept {
    kind: usize,
    trailer: Trailer,
    value: Range<usize>,
}

/// Bytes that are kept, one after the other.
#[derive(Default)]
struct Bytes {
    /// More than are used, so that short ones are written without a call.
    room: Vec<u8>,
    used: usize,
}

impl Bytes {
    fn clear(&mut self) {
        self.used = 0;
    }

    #[inline]
    fn get(&self, place: &Range<usize>) -> &[u8] {
        &self.room[place.clone()]
    }

    /// Keeps these; where they lie.
    #[inline]
    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let (start, len) = (self.used, bytes.len());
        let room = self.room.get_mut(start..).and_then(|room| room.first_chunk_mut::<SHORT>());
        match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>(), room) {
            // Most keys and patches are so long. What is in both chunks is written twice.
            (Some(first), Some(last), Some(room)) if len <= SHORT => {
                room[..8].copy_from_slice(first);
                room[(len - 8).min(8)..][..8].copy_from_slice(last);
            }
            _ => self.keep_any(bytes),
        }
        self.used = start + len;
        start..start + len
    }

    #[inline(never)]
    fn keep_any(&mut self, bytes: &[u8]) {
        let end = self.used + bytes.len();
        if self.room.len() < end + SHORT {
            self.room.resize((end + SHORT).next_power_of_two(), 0);
        }
        self.room[self.used..end].copy_from_slice(bytes);
    }
}

/// Bytes of two chunks.
const SHORT: usize = 16;

/// What the visible entries of a key say, as far as its newest whole row or delete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Says {
    /// Values of an older row, in one patch.
    Patch,
    /// The same in several.
    Patches,
    /// All of the row: the wanted columns are in one entry, maybe with patches over it.
    Row,
    /// That there is none.
    Gone,
    /// Something else.
    Other,
}

impl Says {
    /// What the newest entry says, of this operation and of a source that has all wanted columns or not.
    #[inline]
    fn first(operation: Operation, has_all: bool) -> Self {
        match operation {
            Operation::Patch => Self::Patch,
            Operation::Put if has_all => Self::Row,
            Operation::Delete if has_all => Self::Gone,
            _ => Self::Other,
        }
    }

    /// With an older entry, likewise.
    fn and(self, operation: Operation, has_all: bool) -> Self {
        match (self, operation) {
            (Self::Patch | Self::Patches, Operation::Patch) => Self::Patches,
            (Self::Patch | Self::Patches, Operation::Put) if has_all => Self::Row,
            // Patches of no row.
            (Self::Patch | Self::Patches, Operation::Delete) if has_all => Self::Gone,
            _ => Self::Other,
        }
    }
}

/// What keys are read from: a merge of sources of these kinds, as far as `upper`.
pub(super) struct Rest<'a> {
    pub(super) merged: &'a mut MergingCursor<Source>,
    pub(super) kinds: &'a [usize],
    pub(super) plan: &'a MergePlan,
    pub(super) snapshot: SequenceNumber,
    pub(super) upper: Option<&'a [u8]>,
}

impl Touched {
    /// The next key; `None` at the end.
    #[inline]
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.key_ahead(0)
    }

    /// It and those after it that were read.
    pub(super) fn keys_ahead(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let found = self.found.get(self.at..).unwrap_or_default();
        found.iter().map(|found| self.bytes.get(&found.key))
    }

    /// The last key that was read.
    pub(super) fn last_key(&self) -> Option<&[u8]> {
        self.found.get(self.at..)?.last().map(|found| self.bytes.get(&found.key))
    }

    /// Of the keys ahead the one at this place, the next being at 0.
    #[inline]
    pub(super) fn key_ahead(&self, place: usize) -> Option<&[u8]> {
        self.found.get(self.at + place).map(|found| self.bytes.get(&found.key))
    }

    /// The entries of the next key, with the kinds of their sources.
    #[inline]
    pub(super) fn entries(&self) -> impl DoubleEndedIterator<Item = (usize, Trailer, &[u8])> {
        self.entries_ahead(0)
    }

    /// Those of the key at this place.
    #[inline]
    pub(super) fn entries_ahead(&self, place: usize) -> impl DoubleEndedIterator<Item = (usize, Trailer, &[u8])> {
        let older_of = |place: usize| self.found.get(place).map_or(self.older.len(), |found| found.older);
        let older = &self.older[older_of(self.at + place)..older_of(self.at + place + 1)];
        let newest = self.found.get(self.at + place).map(|found| &found.newest);
        newest.into_iter().chain(older).map(|kept| (kept.kind, kept.trailer, self.bytes.get(&kept.value)))
    }

    /// The one entry of the key at this place, with the kind of its source, if all that there is of it is a patch.
    #[inline(always)]
    pub(super) fn lone_patch_ahead(&self, place: usize) -> Option<(usize, &[u8])> {
        let Found { newest, says, .. } = self.found.get(self.at + place)?;
        (*says == Says::Patch).then(|| (newest.kind, self.bytes.get(&newest.value)))
    }

    /// Whether all that there is of the key at this place are several patches.
    pub(super) fn has_patches_ahead(&self, place: usize) -> bool {
        self.found.get(self.at + place).is_some_and(|found| found.says == Says::Patches)
    }

    /// What they say.
    #[inline]
    pub(super) fn says(&self) -> Says {
        self.found.get(self.at).map_or(Says::Other, |found| found.says)
    }

    /// To the next key.
    #[inline]
    pub(super) fn next(&mut self, rest: Rest<'_>) -> Result<()> {
        self.pass(1);
        self.read_if_used_up(rest)
    }

    /// Forgets what was read: the merge stands somewhere else, or is another.
    pub(super) fn restart(&mut self) {
        self.found.clear();
        self.at = 0;
        self.alike = Alike::default();
    }

    /// Passes keys that were read.
    #[inline]
    pub(super) fn pass(&mut self, keys: usize) {
        self.at += keys;
    }

    /// Has a next key again, if there is one.
    pub(super) fn read_if_used_up(&mut self, rest: Rest<'_>) -> Result<()> {
        if self.at < self.found.len() { Ok(()) } else { self.read(rest) }
    }

    /// Reads keys ahead; the merge then stands behind them.
    fn read(&mut self, mut rest: Rest<'_>) -> Result<()> {
        self.found.clear();
        self.older.clear();
        self.bytes.clear();
        self.at = 0;
        self.ahead = (2 * self.ahead).clamp(FIRST_AHEAD, MOST_AHEAD);
        while self.found.is_empty() {
            if self.ahead >= LEAST_FETCHED {
                rest.merged.fetch_ahead(self.ahead);
            }
            if !self.read_some(&mut rest)? {
                break;
            }
        }
        Ok(())
    }

    /// Reads entries ahead, up to a key behind so many or so many bytes of them; `false` if there are no more.
    fn read_some(&mut self, rest: &mut Rest<'_>) -> Result<bool> {
        let upper = rest.upper.map(|upper| (head(upper), upper));
        let Rest { merged, kinds, plan, snapshot, .. } = rest;
        let (kinds, plan, snapshot, left) = (*kinds, *plan, *snapshot, self.ahead);
        let mut reading = Reading {
            touched: self,
            kinds,
            plan,
            snapshot,
            upper,
            left,
            is_first: true,
            goes_on: false,
            is_found: false,
            is_settled: false,
            failure: None,
        };
        merged.visit_with_sources(|source, entry, same_key| reading.take(source, entry, same_key))?;
        reading.failure.map_or(Ok(reading.goes_on), Err)
    }

    /// Keeps the first entry of its key that has something to say, of a source that has all wanted columns or not.
    #[inline(always)]
    fn keep_newest(&mut self, kind: usize, entry: &EntryRef<'_>, has_all: bool) {
        let key = self.bytes.keep(entry.key);
        let newest = Kept { kind, trailer: entry.trailer, value: self.bytes.keep(entry.value) };
        let says = Says::first(entry.trailer.operation(), has_all);
        self.found.push(Found { key, newest, older: self.older.len(), says });
    }

    /// Keeps another one.
    fn keep_older(&mut self, kind: usize, entry: &EntryRef<'_>, has_all: bool) {
        let value = self.bytes.keep(entry.value);
        self.older.push(Kept { kind, trailer: entry.trailer, value });
        if let Some(found) = self.found.last_mut() {
            found.says = found.says.and(entry.trailer.operation(), has_all);
        }
    }
}

/// What is read ahead, and how far. (One thing to look at for who is shown each entry.)
struct Reading<'a> {
    touched: &'a mut Touched,
    kinds: &'a [usize],
    plan: &'a MergePlan,
    snapshot: SequenceNumber,
    /// With its head.
    upper: Option<(u64, &'a [u8])>,
    /// Entries.
    left: usize,
    /// Whether none was shown so far.
    is_first: bool,
    /// Whether another key follows that is not read ahead.
    goes_on: bool,
    /// Of the key: whether some entry says something, and whether those so far hide all older ones.
    is_found: bool,
    is_settled: bool,
    failure: Option<Error>,
}

impl Reading<'_> {
    /// Keeps an entry, if it is visible and says something; `false` if no more are to be read, and this one neither.
    #[inline(always)]
    fn take(&mut self, source: usize, entry: &EntryRef<'_>, same_key: bool) -> bool {
        // Most are patches like the one before.
        let is_alike = !same_key && self.touched.alike.has(source, entry);
        if is_alike && self.has_room() && self.is_seen(entry) && self.is_far_within(entry.key) {
            self.left -= 1;
            (self.is_first, self.is_found, self.is_settled) = (false, true, false);
            self.touched.keep_newest(self.touched.alike.kind, entry, false);
            return true;
        }
        self.take_any(source, entry, same_key)
    }

    #[inline(never)]
    fn take_any(&mut self, source: usize, entry: &EntryRef<'_>, same_key: bool) -> bool {
        if self.is_first || !same_key {
            self.goes_on = !self.has_room();
            if self.goes_on || !self.is_within(entry.key) {
                return false;
            }
            (self.is_first, self.is_found, self.is_settled) = (false, false, false);
        }
        self.left = self.left.saturating_sub(1);
        if self.is_settled || !self.is_seen(entry) {
            return true;
        }
        let kind = self.kinds[source];
        // A patch of other columns says nothing.
        let is_patch = entry.trailer.operation() == Operation::Patch;
        match if is_patch { self.plan.may_be_patched(kind, entry.value) } else { Ok(true) } {
            Ok(true) => {
                let has_all = self.plan.has_all(kind);
                match self.is_found {
                    false => self.touched.keep_newest(kind, entry, has_all),
                    true => self.touched.keep_older(kind, entry, has_all),
                }
                (self.is_found, self.is_settled) = (true, !is_patch && has_all);
                if is_patch {
                    self.touched.alike = Alike::of((source, kind), entry.value, self.plan);
                }
            }
            Ok(false) => {}
            Err(error) => self.failure = Some(error),
        }
        self.failure.is_none()
    }

    /// Whether another key is read ahead.
    #[inline(always)]
    fn has_room(&self) -> bool {
        self.left > 0 && self.touched.bytes.used < MOST_BYTES
    }

    /// Whether the snapshot sees an entry.
    #[inline(always)]
    fn is_seen(&self, entry: &EntryRef<'_>) -> bool {
        entry.trailer.sequence() <= self.snapshot
    }

    /// Whether a key is within the bounds of the scan by its head alone.
    #[inline(always)]
    fn is_far_within(&self, key: &[u8]) -> bool {
        self.upper.is_none_or(|(upper_head, _)| head(key) < upper_head)
    }

    /// Whether it is within the bounds.
    fn is_within(&self, key: &[u8]) -> bool {
        self.is_far_within(key) || self.upper.is_none_or(|(_, upper)| key < upper)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mycelium_encoding::{ColumnState, DatumRef, FragmentFormat, Schema};
    use mycelium_memtable::{Memtable, MemtableOptions};

    use super::*;

    #[test]
    fn what_is_kept_is_there_again_however_long_it_is() {
        let mut bytes = Bytes::default();
        for round in 0..3 {
            bytes.clear();
            let of_len = |len: usize| (0..len).map(|at| (at * 7 + len + round) as u8).collect::<Vec<u8>>();
            let values: Vec<Vec<u8>> = (0..60).chain([5_000, 0, 3, 16, 17]).map(of_len).collect();
            let places: Vec<Range<usize>> = values.iter().map(|value| bytes.keep(value)).collect();
            for (value, place) in values.iter().zip(&places) {
                assert_eq!(bytes.get(place), value);
            }
            assert_eq!(bytes.used, values.iter().map(Vec::len).sum::<usize>());
        }
    }

    /// All versions were copied of a key that is written again and again, a whole memtable of them for each scan.
    #[test]
    fn what_a_whole_row_hides_is_not_read_ahead() {
        let schema = Arc::new(Schema::parse("id int64 not null, value binary, primary key (id)").unwrap());
        let format = FragmentFormat::packed(schema.clone(), schema.value_columns());
        let layout = format.packed_layout().unwrap();
        let plan = MergePlan::new(&format, std::slice::from_ref(&format)).unwrap();
        let (mut row, mut patch) = (Vec::new(), Vec::new());
        layout.encode_row(&[DatumRef::Int64(1), DatumRef::Binary(&[7; 100])], &mut row).unwrap();
        layout.encode_patch(&[ColumnState::Absent, ColumnState::Null], &mut patch).unwrap();
        let (mut writer, memtable) = Memtable::new(MemtableOptions { filter_bytes: 1 << 10 });
        for sequence in 1..=100 {
            writer.insert(b"hot", Trailer::new(sequence, Operation::Put), &row);
        }
        writer.insert(b"hot", Trailer::new(150, Operation::Patch), &patch);
        writer.insert(b"hot", Trailer::new(160, Operation::Delete), &[]);
        for (snapshot, expected) in [(1000, &[160][..]), (155, &[150, 100][..]), (50, &[50][..])] {
            let mut merged = MergingCursor::new(vec![Source::Memtable(memtable.cursor())]);
            merged.seek_to_first().unwrap();
            let mut touched = Touched::default();
            touched.next(Rest { merged: &mut merged, kinds: &[0], plan: &plan, snapshot, upper: None }).unwrap();
            let found: Vec<SequenceNumber> = touched.entries().map(|(_, trailer, _)| trailer.sequence()).collect();
            assert_eq!((touched.key(), found.as_slice()), (Some(&b"hot"[..]), expected));
        }
    }
}
