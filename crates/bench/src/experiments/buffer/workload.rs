//! What is read (dLSM §VII-A): the "latest" workloads of YCSB. What was updated last is as it was when the measurement
//! began: these rows are read from then on, while updates move all rows alike (§VII-B1: updates do not affect the hit
//! ratio "unless they are for frequently requested data").

use rand::Rng;
use rand::rngs::SmallRng;

use super::subject::Sizes;
use super::{ROW_BYTES, Regime};
use crate::distribution::{Chooser, Skew, YCSB_THETA};

/// Bytes of a range query (§VII-B2).
const RANGE_BYTES: u64 = 10 << 20;

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Workload {
    /// The rows of a tenth of the keys, in the middle, that were updated last, all alike.
    RangeHot,
    /// The rows updated last, the later the more often, Zipfian.
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

/// The rows that were updated last when the measurement began, and what is drawn of them.
pub(super) struct Recent {
    sizes: Sizes,
    /// All that were updated, oldest first.
    all: Vec<u64>,
    in_range: Vec<u64>,
    chooser: Chooser,
}

impl Recent {
    pub(super) fn new(sizes: Sizes) -> Self {
        let chooser = Chooser::new(Skew::Zipfian(YCSB_THETA), sizes.hot_rows());
        Self { sizes, all: Vec::new(), in_range: Vec::new(), chooser }
    }

    /// How many updates it takes until there is enough to draw from: of a tenth of the keys the hot bytes.
    pub(super) fn needed_updates(sizes: Sizes) -> u64 {
        10 * sizes.hot_rows()
    }

    /// Of these the last ones, half of level 1, are made as fast as in the measurement, on levels at rest. The hot rows
    /// of all keys are among them.
    pub(super) fn settling_updates(sizes: Sizes) -> u64 {
        sizes.base_level_bytes() / 2 / ROW_BYTES
    }

    pub(super) fn note(&mut self, row: u64) {
        self.all.push(row);
        let rows = self.sizes.rows;
        if (rows * 45 / 100..rows * 55 / 100).contains(&row) {
            self.in_range.push(row);
        }
    }

    pub(super) fn draw(&self, workload: Workload, rng: &mut SmallRng) -> u64 {
        let hot = self.sizes.hot_rows();
        match workload {
            Workload::RangeHot | Workload::Dynamic => nth_newest(&self.in_range, rng.random_range(0..hot)),
            Workload::Zipfian => nth_newest(&self.all, self.chooser.rank(rng)),
            Workload::Uniform => nth_newest(&self.all, rng.random_range(0..hot)),
            Workload::Ranges => rng.random_range(0..self.sizes.rows),
        }
    }
}

/// The row updated before `rank` others, as far as they reach back.
fn nth_newest(rows: &[u64], rank: u64) -> u64 {
    let rank = rank as usize % rows.len().max(1);
    rows.get(rows.len() - 1 - rank).copied().unwrap_or_default()
}
