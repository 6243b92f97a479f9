//! Updates, point reads and short ranges in one stream: 50 %, 40 % and 10 % (figure 6).
//!
//! Keys are drawn uniformly from those inserted. A range has 500 rows on average, 1 to 999.

use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::figures::Figures;
use super::stores::Store;
use super::values::Values;
use crate::measure::Latencies;
use crate::store::Result;

const UPDATES_PERCENT: u32 = 50;
const POINTS_PERCENT: u32 = 40;
const MOST_RANGE_ROWS: u64 = 999;

/// One kind of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Update,
    Point,
    Range,
}

/// The stream of one client.
pub(super) struct Stream<'a> {
    values: &'a Values,
    pairs: u64,
    rng: SmallRng,
    value: Vec<u8>,
}

impl<'a> Stream<'a> {
    /// Of a store that was filled with so many pairs.
    pub(super) fn new(values: &'a Values, pairs: u64, seed: u64) -> Self {
        Self { values, pairs, rng: SmallRng::seed_from_u64(seed), value: Vec::new() }
    }

    /// Does the next operation; tells its kind and how long the store took.
    pub(super) fn next(&mut self, store: &dyn Store) -> Result<(Kind, Duration)> {
        let index = self.rng.random_range(0..self.pairs);
        let draw = self.rng.random_range(0..100);
        if draw < UPDATES_PERCENT {
            let value = self.values.draw(&mut self.rng);
            let started = Instant::now();
            store.put(index, value)?;
            return Ok((Kind::Update, started.elapsed()));
        }
        if draw < UPDATES_PERCENT + POINTS_PERCENT {
            let started = Instant::now();
            let is_there = store.point(index, &mut self.value)?;
            let elapsed = started.elapsed();
            return if is_there {
                Ok((Kind::Point, elapsed))
            } else {
                Err(format!("pair {index} is not there").into())
            };
        }
        let rows = self.rng.random_range(1..=MOST_RANGE_ROWS);
        let started = Instant::now();
        let found = store.range(index, rows)?;
        let elapsed = started.elapsed();
        if found == 0 || found > rows {
            return Err(format!("{found} rows of {rows} from pair {index} on").into());
        }
        Ok((Kind::Range, elapsed))
    }
}

/// Runs so many operations in one thread.
pub(super) fn measure(store: &dyn Store, mut stream: Stream<'_>, operations: u64, figures: &mut Figures) -> Result<()> {
    let kinds = [(Kind::Update, "update"), (Kind::Point, "point"), (Kind::Range, "range")];
    let mut latencies = [Latencies::new()?, Latencies::new()?, Latencies::new()?];
    let started = Instant::now();
    for _ in 0..operations {
        let (kind, latency) = stream.next(store)?;
        latencies[kind as usize].record(latency);
    }
    figures.put("hybrid.rate", operations as f64 / started.elapsed().as_secs_f64());
    for (kind, name) in kinds {
        if let Some(latency) = latencies[kind as usize].summary() {
            figures.put(&format!("hybrid.{name}_p99_us"), latency.p99_us);
        }
    }
    Ok(())
}
