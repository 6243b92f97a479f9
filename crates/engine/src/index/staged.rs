//! Entries for a derived table while they are being gathered, in no order, and a cursor over them once they are sorted.

use std::sync::Arc;

use mycelium_base::{Cursor, Error, ReadCounters, Result, Trailer};

/// Entries in memory. What it holds is [`Staged::bytes`].
#[derive(Default)]
pub(crate) struct Staged {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
}

#[derive(Clone, Copy)]
struct Slot {
    start: usize,
    key_len: u32,
    value_len: u32,
    trailer: Trailer,
}

impl Slot {
    fn key(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start..self.start + self.key_len as usize]
    }

    fn value(self, bytes: &[u8]) -> &[u8] {
        let start = self.start + self.key_len as usize;
        &bytes[start..start + self.value_len as usize]
    }
}

impl Staged {
    /// Bytes of memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len() + self.slots.len() * size_of::<Slot>()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn push(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        // Keys and values are far shorter than 4 GiB.
        self.slots.push(Slot { start, key_len: key.len() as u32, value_len: value.len() as u32, trailer });
    }

    /// Takes the entries out, in order: by key, newest first. One that is there twice comes once.
    pub(crate) fn take_sorted(&mut self) -> StagedCursor {
        let Self { bytes, mut slots } = std::mem::take(self);
        slots.sort_by(|a, b| a.key(&bytes).cmp(b.key(&bytes)).then_with(|| b.trailer.cmp(&a.trailer)));
        slots.dedup_by(|b, a| a.trailer == b.trailer && a.key(&bytes) == b.key(&bytes));
        StagedCursor { bytes: bytes.into(), slots: slots.into(), at: 0 }
    }
}

/// Walks sorted entries, forwards only.
pub(crate) struct StagedCursor {
    bytes: Arc<[u8]>,
    slots: Arc<[Slot]>,
    at: usize,
}

impl StagedCursor {
    fn forwards_only<T>() -> Result<T> {
        Err(Error::invalid("staged entries are walked forwards only"))
    }
}

impl Cursor for StagedCursor {
    fn valid(&self) -> bool {
        self.at < self.slots.len()
    }

    fn key(&self) -> &[u8] {
        self.slots[self.at].key(&self.bytes)
    }

    fn trailer(&self) -> Trailer {
        self.slots[self.at].trailer
    }

    fn value(&self) -> &[u8] {
        self.slots[self.at].value(&self.bytes)
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.at = 0;
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        Self::forwards_only()
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.at = self.slots.partition_point(|slot| {
            let by_key = slot.key(&self.bytes).cmp(key);
            by_key.then_with(|| trailer.cmp(&slot.trailer)).is_lt()
        });
        Ok(())
    }

    fn seek_before(&mut self, _key: &[u8], _trailer: Trailer) -> Result<()> {
        Self::forwards_only()
    }

    fn next(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        Self::forwards_only()
    }

    fn same_key_as_previous(&self) -> bool {
        self.at > 0 && self.valid() && self.slots[self.at - 1].key(&self.bytes) == self.key()
    }

    fn add_counters(&self, _counters: &mut ReadCounters) {}
}
