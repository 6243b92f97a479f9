//! What is read (dLSM §VII-A): the "latest" workloads of YCSB.

use std::sync::atomic::{AtomicU64, Ordering};

use rand::Rng;
use rand::rngs::SmallRng;

use super::subject::Sizes;
use super::{HOT_PERCENT, Regime};
use crate::distribution::{Chooser, Skew, YCSB_THETA};

/// Bytes of a range query (§VII-B2).
const RANGE_BYTES: u64 = 10 << 20;

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Workload {
    /// The rows of a tenth of the keys, in the middle, that were updated last, all alike.
    RangeHot,
    /// All rows by how lately they were updated, Zipfian.
    Zipfian,
    /// The rows updated last, all alike.
    Uniform,
    /// Range queries of 10 MB (§VII-B2).
    Ranges,
    /// As range-hot; updates pause in the middle third of the time (§VII-B3).
    Dynamic,
}

impl Workload {
    pub(super) const ALL: [Self; 5] = [Self::RangeHot, Self::Zipfian, Self::Uniform, Self::Ranges, Self::Dynamic];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::RangeHot => "range-hot",
            Self::Zipfian => "zipfian",
            Self::Uniform => "uniform",
            Self::Ranges => "ranges",
            Self::Dynamic => "dynamic",
        }
    }

    /// Ranges are read ahead, which is not slowed.
    pub(super) fn runs_in(self, regime: Regime) -> bool {
        self != Self::Ranges || regime == Regime::Disk
    }

    /// Whether rows are updated in this second of so many.
    pub(super) fn updates_in(self, second: u64, seconds: u64) -> bool {
        self != Self::Dynamic || second < seconds / 3 || second >= seconds * 2 / 3
    }

    /// Bytes of a range, if it reads ranges.
    pub(super) fn range_bytes(self) -> Option<u64> {
        (self == Self::Ranges).then_some(RANGE_BYTES)
    }
}

/// The rows updated last, and what is drawn of them.
pub(super) struct Recent {
    sizes: Sizes,
    all: Ring,
    in_range: Ring,
    chooser: Chooser,
}

impl Recent {
    pub(super) fn new(sizes: Sizes) -> Self {
        let chooser = Chooser::new(Skew::Zipfian(YCSB_THETA), sizes.rows);
        Self { sizes, all: Ring::new(sizes.rows), in_range: Ring::new(sizes.hot_rows()), chooser }
    }

    /// How many updates it takes until there is enough to draw from: of a tenth of the keys the hot bytes.
    pub(super) fn needed_updates(sizes: Sizes) -> u64 {
        10 * sizes.cache_bytes * HOT_PERCENT / 100 / super::ROW_BYTES
    }

    pub(super) fn note(&self, row: u64) {
        self.all.note(row);
        let rows = self.sizes.rows;
        if (rows * 45 / 100..rows * 55 / 100).contains(&row) {
            self.in_range.note(row);
        }
    }

    pub(super) fn draw(&self, workload: Workload, rng: &mut SmallRng) -> u64 {
        let hot = self.sizes.hot_rows();
        match workload {
            Workload::RangeHot | Workload::Dynamic => self.in_range.nth_newest(rng.random_range(0..hot)),
            Workload::Zipfian => self.all.nth_newest(self.chooser.rank(rng)),
            Workload::Uniform => self.all.nth_newest(rng.random_range(0..hot)),
            Workload::Ranges => rng.random_range(0..self.sizes.rows),
        }
    }
}

/// Rows in the order of their updates. One thread writes.
struct Ring {
    rows: Vec<AtomicU64>,
    updates: AtomicU64,
}

impl Ring {
    fn new(capacity: u64) -> Self {
        Self { rows: (0..capacity).map(|_| AtomicU64::new(0)).collect(), updates: AtomicU64::new(0) }
    }

    fn note(&self, row: u64) {
        let at = self.updates.load(Ordering::Relaxed);
        self.rows[(at % self.rows.len() as u64) as usize].store(row, Ordering::Relaxed);
        self.updates.store(at + 1, Ordering::Release);
    }

    /// The row updated before `rank` others, as far as the ring reaches.
    fn nth_newest(&self, rank: u64) -> u64 {
        let updates = self.updates.load(Ordering::Acquire);
        let rank = rank % updates.min(self.rows.len() as u64).max(1);
        let at = updates.saturating_sub(1 + rank) % self.rows.len() as u64;
        self.rows[at as usize].load(Ordering::Relaxed)
    }
}
