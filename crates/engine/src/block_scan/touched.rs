//! The next keys that something younger than the main runs says something of.
//!
//! They are read ahead, twice as many entries each time, up to a bound of entries and one of bytes: the sources and
//! their merge then run for many keys in a row, and so does what is done with the keys. What is read ahead has been
//! fetched from memory together, entries that say nothing of the wanted columns, too.

use std::ops::Range;

use mycelium_base::{Cursor, EntryRef, Operation, Result, SequenceNumber, Trailer};
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
    /// Format of the source, trailer, and where the value lies in `bytes`.
    entries: Vec<(usize, Trailer, Range<usize>)>,
    bytes: Vec<u8>,
}

/// A key: where it lies in the bytes, which entries are its, and what they say.
struct Found {
    key: Range<usize>,
    entries: Range<usize>,
    says: Says,
}

/// What the visible entries of a key say, as far as its newest whole row or delete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Says {
    /// Values of an older row.
    Patches,
    /// All of the row: the wanted columns are in one entry, maybe with patches over it.
    Row,
    /// That there is none.
    Gone,
    /// Something else.
    Other,
}

impl Says {
    /// With an older entry of that operation, which is the first one or not.
    #[inline]
    fn and(self, operation: Operation, is_first: bool, has_all: bool) -> Self {
        match (self, operation) {
            (Self::Patches, Operation::Patch) => Self::Patches,
            (Self::Patches, Operation::Put) if has_all => Self::Row,
            (Self::Patches, Operation::Delete) if has_all && is_first => Self::Gone,
            _ => Self::Other,
        }
    }
}

/// A key of which entries are still to come: its first entry, and what those so far say. It is kept with the first.
struct Begun {
    first: usize,
    key: Range<usize>,
    says: Says,
    /// Whether its entries so far hide all older ones.
    is_settled: bool,
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
        self.found.get(self.at).map(|found| &self.bytes[found.key.clone()])
    }

    /// It and those after it that were read.
    pub(super) fn keys_ahead(&self) -> impl Iterator<Item = &[u8]> {
        let found = self.found.get(self.at..).unwrap_or_default();
        found.iter().map(|found| &self.bytes[found.key.clone()])
    }

    /// The last key that was read.
    pub(super) fn last_key(&self) -> Option<&[u8]> {
        self.found.get(self.at..)?.last().map(|found| &self.bytes[found.key.clone()])
    }

    /// Of the keys ahead the one at this place, the next being at 0.
    pub(super) fn key_ahead(&self, place: usize) -> Option<&[u8]> {
        self.found.get(self.at + place).map(|found| &self.bytes[found.key.clone()])
    }

    /// The entries of the next key, with the kinds of their sources.
    #[inline]
    pub(super) fn entries(&self) -> impl DoubleEndedIterator<Item = (usize, Trailer, &[u8])> {
        self.entries_ahead(0)
    }

    /// Those of the key at this place.
    #[inline]
    pub(super) fn entries_ahead(&self, place: usize) -> impl DoubleEndedIterator<Item = (usize, Trailer, &[u8])> {
        let entries = self.found.get(self.at + place).map_or(0..0, |found| found.entries.clone());
        self.entries[entries].iter().map(|(kind, trailer, place)| (*kind, *trailer, &self.bytes[place.clone()]))
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
        self.entries.clear();
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
        let Rest { merged, kinds, plan, snapshot, upper } = rest;
        let (kinds, plan, snapshot, upper, most) = (*kinds, *plan, *snapshot, *upper, self.ahead);
        let (mut begun, mut failure, mut seen, mut goes_on) = (None, Ok(()), 0, false);
        merged.visit_with_sources(|source, entry, same_key| {
            if begun.is_none() || !same_key {
                begun.take().into_iter().for_each(|begun| self.end_key(begun));
                goes_on = seen >= most || self.bytes.len() >= MOST_BYTES;
                if goes_on || upper.is_some_and(|upper| !is_before(entry.key, upper)) {
                    return false;
                }
                begun = Some(self.begin_key());
            }
            seen += 1;
            if let Some(begun) = begun.as_mut().filter(|begun| !begun.is_settled)
                && entry.trailer.sequence() <= snapshot
            {
                failure = self.read_entry(begun, kinds[source], &entry, plan);
            }
            failure.is_ok()
        })?;
        begun.into_iter().for_each(|begun| self.end_key(begun));
        failure.map(|()| goes_on)
    }

    #[inline]
    fn begin_key(&self) -> Begun {
        Begun { first: self.entries.len(), key: 0..0, says: Says::Patches, is_settled: false }
    }

    /// Takes a visible entry of the key, if it has something to say.
    #[inline]
    fn read_entry(&mut self, begun: &mut Begun, kind: usize, entry: &EntryRef<'_>, plan: &MergePlan) -> Result<()> {
        let is_patch = entry.trailer.operation() == Operation::Patch;
        // A patch of other columns says nothing.
        if !is_patch || plan.may_be_patched(kind, entry.value)? {
            let is_first = self.entries.len() == begun.first;
            if is_first {
                begun.key = self.keep(entry.key);
            }
            let value = self.keep(entry.value);
            self.entries.push((kind, entry.trailer, value));
            let has_all = plan.has_all(kind);
            begun.says = begun.says.and(entry.trailer.operation(), is_first, has_all);
            begun.is_settled = !is_patch && has_all;
        }
        Ok(())
    }

    /// Keeps these bytes; where they lie.
    #[inline]
    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        match bytes.first_chunk::<8>().filter(|_| bytes.len() == 8) {
            // Most keys are so long, and this is no call.
            Some(bytes) => self.bytes.extend_from_slice(bytes),
            None => self.bytes.extend_from_slice(bytes),
        }
        start..self.bytes.len()
    }

    /// Keeps the key, if one of its entries has something to say.
    #[inline]
    fn end_key(&mut self, begun: Begun) {
        let Begun { first, key, says, .. } = begun;
        if self.entries.len() > first {
            self.found.push(Found { key, entries: first..self.entries.len(), says });
        }
    }
}

/// As `<`, where most keys differ in their first eight bytes.
#[inline]
fn is_before(key: &[u8], upper: &[u8]) -> bool {
    match (key.first_chunk::<8>(), upper.first_chunk::<8>()) {
        (Some(first), Some(bound)) if first != bound => u64::from_be_bytes(*first) < u64::from_be_bytes(*bound),
        _ => key < upper,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mycelium_encoding::{ColumnState, DatumRef, FragmentFormat, Schema};
    use mycelium_memtable::{Memtable, MemtableOptions};

    use super::*;

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
