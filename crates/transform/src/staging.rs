//! The staging area of a job: derived entries, unsorted while they come, sorted when they are retrieved.
//!
//! 1. An entry is copied to the end of the last chunk, or to a new one; a slot remembers where it is.
//! 2. Before that, the memory held with it is counted (chunks and slots by capacity, and both arrays of slots while
//!    they grow). If it were over the budget, the entry is not taken, and the job must retrieve first.
//! 3. Retrieving takes chunks and slots out, sorts the slots by table, key and trailer (newest first) where they lie,
//!    and drops an entry that is there twice.
//!
//! Guarantees: never more than the budget is held, or one entry where that entry alone is larger. An entry whose own
//! outputs do not fit is taken in pieces: [`Resume`] counts what was taken of it, and the job passes over so many when
//! it transforms it again, which a pure transformer allows.

use std::mem;
use std::ops::Range;

use mycelium_base::{Error, Operation, Result, SequenceNumber, Trailer};

/// Bytes of a chunk, with a budget that has room for several.
const CHUNK_BYTES: usize = 64 << 10;

const FIRST_SLOTS: usize = 16;

/// Where a staged entry lies.
#[derive(Clone, Copy, Debug)]
struct Slot {
    table: u32,
    chunk: u32,
    start: u32,
    key_len: u32,
    value_len: u32,
    trailer: Trailer,
}

impl Slot {
    fn key(self, chunks: &[Vec<u8>]) -> &[u8] {
        bytes_at(chunks, self.chunk, self.start as usize..(self.start + self.key_len) as usize)
    }

    fn value(self, chunks: &[Vec<u8>]) -> &[u8] {
        let start = (self.start + self.key_len) as usize;
        bytes_at(chunks, self.chunk, start..start + self.value_len as usize)
    }
}

fn bytes_at(chunks: &[Vec<u8>], chunk: u32, range: Range<usize>) -> &[u8] {
    chunks.get(chunk as usize).and_then(|chunk| chunk.get(range)).unwrap_or_default()
}

#[derive(Debug)]
pub(crate) struct Staging {
    budget: usize,
    chunks: Vec<Vec<u8>>,
    chunk_bytes: usize,
    slots: Vec<Slot>,
}

impl Staging {
    pub(crate) fn new(budget: usize) -> Self {
        Self { budget, chunks: Vec::new(), chunk_bytes: 0, slots: Vec::new() }
    }

    /// Bytes of memory held.
    pub(crate) fn held(&self) -> usize {
        self.chunk_bytes + self.slots.capacity() * size_of::<Slot>() + self.chunks.capacity() * size_of::<Vec<u8>>()
    }

    /// Copies an entry, unless there is no room for it. There is always room for the first one.
    fn take(&mut self, table: u32, key: &[u8], trailer: Trailer, value: &[u8]) -> bool {
        let len = key.len() + value.len();
        let new_chunk = match self.chunks.last() {
            Some(chunk) if chunk.capacity() - chunk.len() >= len => None,
            _ => Some(len.max((self.budget / 8).min(CHUNK_BYTES))),
        };
        let new_slots = (self.slots.len() == self.slots.capacity()).then(|| FIRST_SLOTS.max(2 * self.slots.len()));
        let list_growth = if self.chunks.len() == self.chunks.capacity() { 8 + 2 * self.chunks.len() } else { 0 };
        let growth = new_chunk.unwrap_or(0)
            + new_slots.unwrap_or(0) * size_of::<Slot>()
            + new_chunk.map_or(0, |_| list_growth * size_of::<Vec<u8>>());
        if !self.slots.is_empty() && self.held() + growth > self.budget {
            return false;
        }
        if let Some(slots) = new_slots {
            self.slots.reserve_exact(slots - self.slots.len());
        }
        if let Some(bytes) = new_chunk {
            self.chunks.push(Vec::with_capacity(bytes));
            self.chunk_bytes += bytes;
        }
        let chunk_number = self.chunks.len().saturating_sub(1);
        if let Some(chunk) = self.chunks.last_mut() {
            // Lengths and starts fit: a chunk is no longer than one key and one value of the largest.
            let start = chunk.len() as u32;
            chunk.extend_from_slice(key);
            chunk.extend_from_slice(value);
            let (key_len, value_len) = (key.len() as u32, value.len() as u32);
            self.slots.push(Slot { table, chunk: chunk_number as u32, start, key_len, value_len, trailer });
        }
        true
    }

    /// Takes everything out, sorted.
    pub(crate) fn retrieve(&mut self) -> Result<Staged> {
        let (chunks, mut slots) = (mem::take(&mut self.chunks), mem::take(&mut self.slots));
        self.chunk_bytes = 0;
        slots.sort_unstable_by(|a, b| {
            let by_key = || a.key(&chunks).cmp(b.key(&chunks)).then_with(|| b.trailer.cmp(&a.trailer));
            a.table.cmp(&b.table).then_with(by_key)
        });
        let mut contradiction = None;
        slots.dedup_by(|next, slot| {
            let same_version =
                (next.table, next.trailer) == (slot.table, slot.trailer) && next.key(&chunks) == slot.key(&chunks);
            if same_version && next.value(&chunks) != slot.value(&chunks) {
                contradiction = Some(slot.trailer);
            }
            same_version
        });
        match contradiction {
            None => Ok(Staged { chunks, slots }),
            Some(trailer) => Err(Error::invalid(format!(
                "a transformer derived the same key twice from entry {trailer:?}, with different values"
            ))),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

/// How far the outputs of the entry in hand were taken.
#[derive(Debug, Default)]
pub(crate) struct Resume {
    /// Outputs offered in this call.
    offered: usize,
    /// Outputs taken, in this call and in those before it with the same entry.
    taken: usize,
    is_full: bool,
    /// The entry that must come again.
    pending: Option<(Vec<u8>, SequenceNumber)>,
}

impl Resume {
    /// Begins with an entry, for the first time or again.
    pub(crate) fn begin(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.offered = 0;
        self.is_full = false;
        match self.pending.take() {
            None => self.taken = 0,
            Some((pending, number)) if pending == key && number == sequence => {}
            Some(pending) => {
                let number = pending.1;
                self.pending = Some(pending);
                return Err(Error::invalid(format!(
                    "entry {sequence} was given, but entry {number} was not taken whole and must come again"
                )));
            }
        }
        Ok(())
    }

    /// Offers one output to the staging area.
    fn offer(&mut self, take: impl FnOnce() -> bool) -> bool {
        if self.is_full {
            return false;
        }
        self.offered += 1;
        if self.offered <= self.taken {
            return true;
        }
        self.is_full = !take();
        if !self.is_full {
            self.taken += 1;
        }
        !self.is_full
    }

    pub(crate) fn stage(
        &mut self,
        staging: &mut Staging,
        table: u32,
        key: &[u8],
        trailer: Trailer,
        value: &[u8],
    ) -> bool {
        self.offer(|| staging.take(table, key, trailer, value))
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Ends a call in which the area became full.
    pub(crate) fn suspend(&mut self, key: &[u8], sequence: SequenceNumber) {
        self.pending = Some((key.to_vec(), sequence));
    }
}

/// One entry of a derived table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DerivedEntry<'a> {
    /// Which of [`Linked::derived_tables`](crate::Linked::derived_tables).
    pub table: usize,
    /// The derived key.
    pub key: &'a [u8],
    /// The sequence number of the entry that it was derived from.
    pub sequence: SequenceNumber,
    /// `Put` or `Patch`.
    pub operation: Operation,
    /// The value.
    pub value: &'a [u8],
}

impl DerivedEntry<'_> {
    /// Sequence number and operation packed.
    pub fn trailer(&self) -> Trailer {
        Trailer::new(self.sequence, self.operation)
    }
}

/// Derived entries taken out of a job. Drop it before the job goes on, if memory is to stay within the job's budget.
#[derive(Debug, Default)]
pub struct Staged {
    chunks: Vec<Vec<u8>>,
    slots: Vec<Slot>,
}

impl Staged {
    /// The entries: by table, then by key, newest first. No version of a key is there twice.
    pub fn iter(&self) -> impl Iterator<Item = DerivedEntry<'_>> {
        self.slots.iter().map(|slot| DerivedEntry {
            table: slot.table as usize,
            key: slot.key(&self.chunks),
            sequence: slot.trailer.sequence(),
            operation: slot.trailer.operation(),
            value: slot.value(&self.chunks),
        })
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(sequence: u64) -> Trailer {
        Trailer::new(sequence, Operation::Put)
    }

    #[test]
    fn retrieved_entries_are_sorted_and_there_once() {
        let mut staging = Staging::new(1 << 20);
        for (table, key, sequence) in [(1, "b", 3), (0, "z", 4), (1, "b", 9), (0, "z", 4), (1, "1", 5), (1, "10", 5)] {
            assert!(staging.take(table, key.as_bytes(), put(sequence), b"v"));
        }
        let staged = staging.retrieve().unwrap();
        let order: Vec<_> = staged.iter().map(|e| (e.table, e.key, e.sequence)).collect();
        assert_eq!(order, [(0, &b"z"[..], 4), (1, b"1", 5), (1, b"10", 5), (1, b"b", 9), (1, b"b", 3)]);
        assert!(staging.is_empty() && staging.held() == 0);
    }

    #[test]
    fn one_version_with_two_values_is_an_error() {
        let mut staging = Staging::new(1 << 20);
        assert!(staging.take(0, b"k", put(1), b"a") && staging.take(0, b"k", put(1), b"b"));
        assert!(staging.retrieve().unwrap_err().to_string().contains("twice"));
    }

    #[test]
    fn the_budget_is_kept_but_for_one_large_entry() {
        let mut staging = Staging::new(10_000);
        assert!(staging.take(0, b"large", put(1), &[0; 20_000]));
        assert!(!staging.take(0, b"small", put(1), b""));
        assert_eq!(staging.retrieve().unwrap().len(), 1);
    }

    #[test]
    fn no_budget_is_exceeded_by_a_byte() {
        for budget in (1_500..12_000).step_by(11) {
            let (mut staging, mut count) = (Staging::new(budget), 0);
            while staging.take(0, b"key", put(count), &[0; 50][..(count as usize * 7) % 50]) {
                count += 1;
                assert!(staging.held() <= budget, "{} of {budget}", staging.held());
            }
            assert!(count as usize > budget / 200, "{count} entries in {budget} bytes");
        }
    }

    #[test]
    fn an_entry_that_was_not_taken_whole_must_come_again() {
        let (mut staging, mut resume) = (Staging::new(0), Resume::default());
        resume.begin(b"k", 1).unwrap();
        assert!(resume.stage(&mut staging, 0, b"a", put(1), b"") && !resume.stage(&mut staging, 0, b"b", put(1), b""));
        assert!(resume.is_full());
        resume.suspend(b"k", 1);
        assert!(resume.begin(b"other", 2).is_err());
        staging.retrieve().unwrap();
        resume.begin(b"k", 1).unwrap();
        assert!(resume.stage(&mut staging, 0, b"a", put(1), b"") && resume.stage(&mut staging, 0, b"b", put(1), b""));
        assert_eq!(staging.retrieve().unwrap().iter().next().unwrap().key, b"b");
    }
}
