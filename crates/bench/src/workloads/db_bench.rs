//! The workloads that go by db_bench's names.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{Pace, Phase, Plan, State, Step, Worker, Workload};
use crate::keys::{KEY_LEN, KeyOrder, key, mix, stamp};
use crate::store::{KeyValueStore, Pair, Result};

const BATCH: usize = 1000;

/// Indexes from here on were never put.
const NEVER_PUT: u64 = 1 << 48;

pub(super) fn plan<'a>(
    store: &'a dyn KeyValueStore,
    state: &'a State,
    phase: Phase,
    pace: &Pace,
    seed: u64,
) -> Result<Plan<'a>> {
    let threads = u64::from(phase.threads.max(1));
    let entries = state.inserted.load(Ordering::Acquire);
    if !phase.workload.fills() && entries == 0 {
        return Err(format!("{phase} needs data: put a fill before it").into());
    }
    let worker = |thread: u64| -> Box<dyn Worker + 'a> {
        let rng = SmallRng::seed_from_u64(seed ^ mix(thread));
        match phase.workload {
            Workload::FillBatch => Box::new(FillBatch { store, state, next: thread, stride: threads }),
            Workload::FillSeq | Workload::FillRandom => {
                Box::new(Fill { store, state, next: thread, stride: threads, value: Vec::new() })
            }
            Workload::Overwrite => {
                let left = entries / threads;
                Box::new(Overwrite { store, state, rng, left: Some(left), version: 1, value: Vec::new() })
            }
            Workload::DeleteRandom => Box::new(Delete { store, state, rng, left: entries / threads }),
            Workload::ReadMissing => Box::new(ReadMissing { store, state, rng, value: Vec::new() }),
            Workload::SeekRandom => Box::new(Range { store, state, rng, count: 1 }),
            Workload::Range100 => Box::new(Range { store, state, rng, count: 100 }),
            Workload::Scan => Box::new(Scan { store, state }),
            _ => Box::new(Read { store, state, rng, value: Vec::new() }),
        }
    };
    let background = (phase.workload == Workload::ReadWhileWriting).then(|| -> Box<dyn Worker + 'a> {
        let rng = SmallRng::seed_from_u64(seed ^ mix(u64::MAX));
        let writer = Overwrite { store, state, rng, left: None, version: 2, value: Vec::new() };
        Box::new(Paced::new(writer, pace.writer_bytes_per_second))
    });
    let reads_points = matches!(phase.workload, Workload::ReadRandom | Workload::ReadMissing | Workload::SeekRandom);
    Ok(Plan {
        workers: (0..threads).map(worker).collect(),
        background,
        sample_every: if reads_points { 8 } else { 1 },
        check_every: if phase.workload == Workload::Scan { 1 } else { 32 },
    })
}

struct Fill<'a> {
    store: &'a dyn KeyValueStore,
    state: &'a State,
    next: u64,
    stride: u64,
    value: Vec<u8>,
}

impl Worker for Fill<'_> {
    fn step(&mut self) -> Result<Option<Step>> {
        let index = self.next;
        if index >= self.state.dataset.entries {
            return Ok(None);
        }
        self.next += self.stride;
        self.state.values.fill(index, 0, &mut self.value);
        self.store.put(&key(index, self.state.order), &self.value)?;
        Ok(Some(Step { units: 1, bytes_written: self.state.pair_bytes(), bytes_read: 0 }))
    }
}

struct FillBatch<'a> {
    store: &'a dyn KeyValueStore,
    state: &'a State,
    next: u64,
    stride: u64,
}

impl Worker for FillBatch<'_> {
    fn step(&mut self) -> Result<Option<Step>> {
        let mut owned: Vec<([u8; KEY_LEN], Vec<u8>)> = Vec::with_capacity(BATCH);
        while owned.len() < BATCH && self.next < self.state.dataset.entries {
            let mut value = Vec::with_capacity(self.state.dataset.value_bytes);
            self.state.values.fill(self.next, 0, &mut value);
            owned.push((key(self.next, self.state.order), value));
            self.next += self.stride;
        }
        if owned.is_empty() {
            return Ok(None);
        }
        let pairs: Vec<Pair<'_>> = owned.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
        self.store.put_batch(&pairs)?;
        let units = pairs.len() as u64;
        Ok(Some(Step { units, bytes_written: units * self.state.pair_bytes(), bytes_read: 0 }))
    }
}

struct Overwrite<'a> {
    store: &'a dyn KeyValueStore,
    state: &'a State,
    rng: SmallRng,
    left: Option<u64>,
    version: u64,
    value: Vec<u8>,
}

impl Worker for Overwrite<'_> {
    fn step(&mut self) -> Result<Option<Step>> {
        if let Some(left) = &mut self.left {
            if *left == 0 {
                return Ok(None);
            }
            *left -= 1;
        }
        let index = self.rng.random_range(0..self.state.dataset.entries);
        self.version += 1;
        self.state.values.fill(index, self.version, &mut self.value);
        self.store.put(&key(index, self.state.order), &self.value)?;
        Ok(Some(Step { units: 1, bytes_written: self.state.pair_bytes(), bytes_read: 0 }))
    }
}

/// Holds another worker to a rate of bytes written, in steps of a millisecond.
struct Paced<W> {
    inner: W,
    bytes_per_second: u64,
    started: Option<Instant>,
    written: u64,
}

impl<W> Paced<W> {
    fn new(inner: W, bytes_per_second: u64) -> Self {
        Self { inner, bytes_per_second, started: None, written: 0 }
    }
}

impl<W: Worker> Worker for Paced<W> {
    fn step(&mut self) -> Result<Option<Step>> {
        let started = *self.started.get_or_insert_with(Instant::now);
        if self.bytes_per_second > 0
            && self.written as f64 > started.elapsed().as_secs_f64() * self.bytes_per_second as f64
        {
            std::thread::park_timeout(Duration::from_millis(1));
            return Ok(Some(Step::default()));
        }
        let step = self.inner.step()?;
        self.written += step.map_or(0, |step| step.bytes_written);
        Ok(step)
    }
}

struct Delete<'a> {
    store: &'a dyn KeyValueStore,
    state: &'a State,
    rng: SmallRng,
    left: u64,
}

impl Worker for Delete<'_> {
    fn step(&mut self) -> Result<Option<Step>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let index = self.rng.random_range(0..self.state.dataset.entries);
        self.store.delete(&key(index, self.state.order))?;
        Ok(Some(Step { units: 1, bytes_written: KEY_LEN as u64, bytes_read: 0 }))
    }
}

struct Read<'a> {
    store: &'a dyn KeyValueStore,
    state: &'a State,
    rng: SmallRng,
    value: Vec<u8>,
}

impl Worker for Read<'_> {
    fn step(&mut self) -> Result<Option<Step>> {
        let index = self.rng.random_range(0..self.state.dataset.entries);
        let bytes_read = read_checked(self.store, self.state, index, &mut self.value)?;
        Ok(Some(Step { units: 1, bytes_written: 0, bytes_read }))
    }
}

/// Gets an index and checks the answer; returns the key and value bytes.
pub(super) fn read_checked(store: &dyn KeyValueStore, state: &State, index: u64, value: &mut Vec<u8>) -> Result<u64> {
    if store.get(&key(index, state.order), value)? {
        if stamp(value) != Some(index) || value.len() != state.dataset.value_bytes {
            return Err(
                format!("wrong value for index {index}: {} bytes, stamp {:?}", value.len(), stamp(value)).into()
            );
        }
        return Ok(state.pair_bytes());
    }
    if state.holes.load(Ordering::Relaxed) || index >= state.dataset.entries {
        return Ok(0);
    }
    Err(format!("index {index} was put and is missing").into())
}

struct ReadMissing<'a> {
    store: &'a dyn KeyValueStore,
    state: &'a State,
    rng: SmallRng,
    value: Vec<u8>,
}

impl Worker for ReadMissing<'_> {
    fn step(&mut self) -> Result<Option<Step>> {
        let index = self.rng.random_range(0..self.state.dataset.entries);
        let missing = match self.state.order {
            KeyOrder::Hashed => key(NEVER_PUT + index, KeyOrder::Hashed),
            KeyOrder::Ordered => {
                let mut key = key(index, KeyOrder::Ordered);
                key[KEY_LEN - 1] ^= 1;
                key
            }
        };
        if self.store.get(&missing, &mut self.value)? {
            return Err(format!("a key beside index {index} was never put and is there").into());
        }
        Ok(Some(Step { units: 1, bytes_written: 0, bytes_read: 0 }))
    }
}

struct Range<'a> {
    store: &'a dyn KeyValueStore,
    state: &'a State,
    rng: SmallRng,
    count: usize,
}

impl Worker for Range<'_> {
    fn step(&mut self) -> Result<Option<Step>> {
        let index = self.rng.random_range(0..self.state.dataset.entries);
        let start = key(index, self.state.order);
        let mut bytes_read = 0;
        let mut first = None;
        let found = self.store.scan_from(&start, self.count, &mut |key, value| {
            bytes_read += (key.len() + value.len()) as u64;
            if first.is_none() {
                first = Some(key == start && stamp(value) == Some(index));
            }
        })?;
        if found == 0 || (first != Some(true) && !self.state.holes.load(Ordering::Relaxed)) {
            return Err(format!("a range from index {index} gave {found} entries, first right: {first:?}").into());
        }
        Ok(Some(Step { units: 1, bytes_written: 0, bytes_read }))
    }
}

struct Scan<'a> {
    store: &'a dyn KeyValueStore,
    state: &'a State,
}

impl Worker for Scan<'_> {
    fn step(&mut self) -> Result<Option<Step>> {
        let (mut bytes_read, mut stamps) = (0, 0);
        let found = self.store.scan_all(&mut |key, value| {
            bytes_read += (key.len() + value.len()) as u64;
            stamps ^= stamp(value).unwrap_or(0);
        })?;
        let inserted = self.state.inserted.load(Ordering::Acquire);
        let expected = xor_below(inserted);
        if !self.state.holes.load(Ordering::Relaxed) && (found, stamps) != (inserted, expected) {
            return Err(
                format!("a scan gave {found} entries of {inserted}, stamps {stamps:#x} for {expected:#x}").into()
            );
        }
        Ok(Some(Step { units: found, bytes_written: 0, bytes_read }))
    }
}

/// 0 ^ 1 ^ … ^ (n - 1).
fn xor_below(n: u64) -> u64 {
    match n % 4 {
        0 => 0,
        1 => n - 1,
        2 => 1,
        _ => n,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn xor_below_agrees_with_the_sum() {
        for n in 0..70 {
            assert_eq!(super::xor_below(n), (0..n).fold(0, |all, index| all ^ index), "{n}");
        }
    }
}
