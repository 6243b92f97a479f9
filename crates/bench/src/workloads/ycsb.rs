//! YCSB's core workloads A to F (Cooper et al., SoCC 2010), with its constants: Zipfian exponent 0.99, scattered; scans
//! of 1 to 100 entries; inserts at hashed positions.
//!
//! | workload | read | update | insert | scan | read-modify-write | keys |
//! |---|--:|--:|--:|--:|--:|---|
//! | A | 50 | 50 | | | | Zipfian |
//! | B | 95 | 5 | | | | Zipfian |
//! | C | 100 | | | | | Zipfian |
//! | D | 95 | | 5 | | | latest |
//! | E | | | 5 | 95 | | Zipfian |
//! | F | 50 | | | | 50 | Zipfian |

use std::sync::atomic::Ordering;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::db_bench::read_checked;
use super::{Phase, Plan, State, Step, Worker, Workload};
use crate::distribution::{Chooser, Skew, YCSB_THETA};
use crate::keys::{key, mix};
use crate::store::{KeyValueStore, Result};

const LONGEST_SCAN: usize = 100;

pub(super) fn plan<'a>(store: &'a dyn KeyValueStore, state: &'a State, phase: Phase, seed: u64) -> Result<Plan<'a>> {
    let entries = state.inserted.load(Ordering::Acquire);
    if entries < 2 {
        return Err(format!("{phase} needs data: put a fill before it").into());
    }
    let skew = if phase.workload == Workload::YcsbD { Skew::Latest(YCSB_THETA) } else { Skew::Zipfian(YCSB_THETA) };
    let chooser = Chooser::new(skew, entries);
    let worker = |thread: u64| -> Box<dyn Worker + 'a> {
        Box::new(Ycsb {
            store,
            state,
            workload: phase.workload,
            chooser: chooser.clone(),
            rng: SmallRng::seed_from_u64(seed ^ mix(thread)),
            version: thread << 40,
            value: Vec::new(),
        })
    };
    Ok(Plan {
        workers: (0..u64::from(phase.threads.max(1))).map(worker).collect(),
        background: None,
        sample_every: 1,
        check_every: 32,
    })
}

struct Ycsb<'a> {
    store: &'a dyn KeyValueStore,
    state: &'a State,
    workload: Workload,
    chooser: Chooser,
    rng: SmallRng,
    version: u64,
    value: Vec<u8>,
}

impl Ycsb<'_> {
    fn choose(&mut self) -> u64 {
        self.chooser.draw(self.state.inserted.load(Ordering::Acquire), &mut self.rng)
    }

    fn read(&mut self) -> Result<Step> {
        let index = self.choose();
        let bytes_read = read_checked(self.store, self.state, index, &mut self.value)?;
        Ok(Step { units: 1, bytes_written: 0, bytes_read })
    }

    fn put(&mut self, index: u64) -> Result<Step> {
        self.version += 1;
        self.state.values.fill(index, self.version, &mut self.value);
        self.store.put(&key(index, self.state.order), &self.value)?;
        Ok(Step { units: 1, bytes_written: self.state.pair_bytes(), bytes_read: 0 })
    }

    fn update(&mut self) -> Result<Step> {
        let index = self.choose();
        self.put(index)
    }

    /// The new index is visible to other threads' draws before the put returns; a read that comes too early misses,
    /// which `read_checked` allows for indexes beyond the data set.
    fn insert(&mut self) -> Result<Step> {
        let index = self.state.inserted.fetch_add(1, Ordering::AcqRel);
        self.put(index)
    }

    fn scan(&mut self) -> Result<Step> {
        let index = self.choose();
        let count = self.rng.random_range(1..=LONGEST_SCAN);
        let mut bytes_read = 0;
        self.store.scan_from(&key(index, self.state.order), count, &mut |key, value| {
            bytes_read += (key.len() + value.len()) as u64;
        })?;
        Ok(Step { units: 1, bytes_written: 0, bytes_read })
    }

    fn read_modify_write(&mut self) -> Result<Step> {
        let index = self.choose();
        let bytes_read = read_checked(self.store, self.state, index, &mut self.value)?;
        let step = self.put(index)?;
        Ok(Step { bytes_read, ..step })
    }
}

impl Worker for Ycsb<'_> {
    fn step(&mut self) -> Result<Option<Step>> {
        let percent = self.rng.random_range(0..100);
        let step = match self.workload {
            Workload::YcsbA if percent >= 50 => self.update(),
            Workload::YcsbB if percent >= 95 => self.update(),
            Workload::YcsbD if percent >= 95 => self.insert(),
            Workload::YcsbE if percent >= 95 => self.insert(),
            Workload::YcsbE => self.scan(),
            Workload::YcsbF if percent >= 50 => self.read_modify_write(),
            _ => self.read(),
        };
        step.map(Some)
    }
}
