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

/// A key: where it lies in the bytes, its first entry, which is followed by its others up to those of the next key, and
/// what they say.
struct Found {
    key: Range<usize>,
    first: usize,
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
    pub(super) fn keys_ahead(&self) -> impl ExactSizeIterator<Item = &[u8]> {
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
        let of = |place: usize| self.found.get(place).map_or(self.entries.len(), |found| found.first);
        let entries = of(self.at + place)..of(self.at + place + 1);
        self.entries[entries].iter().map(|(kind, trailer, place)| (*kind, *trailer, &self.bytes[place.clone()]))
    }

    /// The one entry of the key at this place, with the kind of its source, if all that there is of it is a patch.
    #[inline]
    pub(super) fn lone_patch_ahead(&self, place: usize) -> Option<(usize, &[u8])> {
        let found = self.found.get(self.at + place).filter(|found| found.says == Says::Patches)?;
        let is_alone =
            self.found.get(self.at + place + 1).map_or(self.entries.len(), |next| next.first) == found.first + 1;
        let (kind, _, value) = self.entries.get(found.first).filter(|_| is_alone)?;
        Some((*kind, &self.bytes[value.clone()]))
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
        let (mut failure, mut seen, mut goes_on) = (Ok(()), 0, false);
        // Of the key: whether some entry says something, and whether those so far hide all older ones.
        let (mut is_found, mut is_settled) = (false, false);
        merged.visit_with_sources(|source, entry, same_key| {
            if seen == 0 || !same_key {
                goes_on = seen >= most || self.bytes.len() >= MOST_BYTES;
                if goes_on || upper.is_some_and(|upper| !is_before(entry.key, upper)) {
                    return false;
                }
                (is_found, is_settled) = (false, false);
            }
            seen += 1;
            if is_settled || entry.trailer.sequence() > snapshot {
                return true;
            }
            let kind = kinds[source];
            let is_patch = entry.trailer.operation() == Operation::Patch;
            // A patch of other columns says nothing.
            match if is_patch { plan.may_be_patched(kind, entry.value) } else { Ok(true) } {
                Ok(true) => {
                    let has_all = plan.has_all(kind);
                    self.keep_entry(kind, &entry, has_all, !is_found);
                    (is_found, is_settled) = (true, !is_patch && has_all);
                }
                Ok(false) => {}
                Err(error) => failure = Err(error),
            }
            failure.is_ok()
        })?;
        failure.map(|()| goes_on)
    }

    /// Keeps an entry that has something to say, of a source that has all wanted columns or not; the first one of its
    /// key or another.
    #[inline]
    fn keep_entry(&mut self, kind: usize, entry: &EntryRef<'_>, has_all: bool, is_first: bool) {
        if is_first {
            let key = self.keep(entry.key);
            self.found.push(Found { key, first: self.entries.len(), says: Says::Patches });
        }
        let value = self.keep(entry.value);
        self.entries.push((kind, entry.trailer, value));
        if let Some(found) = self.found.last_mut() {
            found.says = found.says.and(entry.trailer.operation(), is_first, has_all);
        }
    }

    /// Keeps these bytes; where they lie.
    #[inline]
    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
            // Most keys and patches are so long, and this is no call: what is in both chunks is written twice, and
            // something behind them.
            (Some(first), Some(last)) if bytes.len() <= 16 => {
                let mut kept = [0; 16];
                kept[..8].copy_from_slice(first);
                kept[(bytes.len() - 8) % 16..][..8].copy_from_slice(last);
                self.bytes.extend_from_slice(&kept);
            }
            _ => self.bytes.extend_from_slice(bytes),
        }
        start..start + bytes.len()
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
