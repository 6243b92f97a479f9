//! Transactions and filters at once, by the clock.(figure 10).
//!
//! 1. Some threads run the stream of `transactions` without a pause, as many run filters of 1 % selectivity one after
//!    the other.
//! 2. The time is cut into slices; a slice has the operations that ended in it. A filter has the moment at which it
//!    began and how long it took; one that runs when the time is over is finished and counts.
//!
//! Filters count: answers cannot be compared between stores, since updates come in between as they may.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};

use super::DictionarySettings;
use super::figures::Figures;
use super::stores::Store;
use super::transactions::Stream;
use super::values::Values;
use crate::keys::mix;
use crate::store::Result;

const SELECTIVITY: f64 = 0.01;
const SLICES: usize = 60;
/// A slice with less than this share of the mean rate is one in which writers stalled.
const STALLED: f64 = 0.1;

/// What happened when.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Timeline {
    /// Seconds of a slice.
    pub slice_seconds: f64,
    /// Operations a second by slice.
    pub rates: Vec<f64>,
    /// The filters, in the order in which they began.
    pub filters: Vec<FilterMoment>,
}

/// One filter.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct FilterMoment {
    /// When it began, in seconds from the start.
    pub at_seconds: f64,
    /// How long it took.
    pub seconds: f64,
}

/// The clock that all threads look at.
struct Clock {
    started: Instant,
    lasts: Duration,
    slices: Vec<AtomicU64>,
}

impl Clock {
    fn count(&self) {
        let slice = self.started.elapsed().as_secs_f64() / self.lasts.as_secs_f64() * SLICES as f64;
        if let Some(count) = self.slices.get(slice as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_over(&self) -> bool {
        self.started.elapsed() >= self.lasts
    }
}

/// Runs both on a filled store.
pub(super) fn measure(
    store: &dyn Store,
    values: &Values,
    settings: &DictionarySettings,
    figures: &mut Figures,
) -> Result<Timeline> {
    let lasts = Duration::from_secs_f64(settings.timeline_seconds);
    let slices = (0..SLICES).map(|_| AtomicU64::new(0)).collect();
    let clock = Clock { started: Instant::now(), lasts, slices };
    let filters = thread::scope(|scope| {
        let seed = |thread: u32| mix(settings.seed + u64::from(thread));
        let transactions: Vec<_> = (0..settings.timeline_threads)
            .map(|thread| {
                let stream = Stream::new(values, settings.pairs(), seed(thread));
                scope.spawn(|| transact(store, stream, &clock))
            })
            .collect();
        let filters: Vec<_> = (0..settings.timeline_threads)
            .map(|thread| {
                let (seed, clock) = (seed(thread), &clock);
                scope.spawn(move || filter(store, values, seed, clock))
            })
            .collect();
        let mut moments = Vec::new();
        for thread in transactions {
            thread.join().map_err(|_| "a thread of transactions panicked")??;
        }
        for thread in filters {
            moments.extend(thread.join().map_err(|_| "a thread of filters panicked")??);
        }
        Result::Ok(moments)
    })?;
    let timeline = Timeline::new(&clock, filters);
    timeline.put_figures(figures);
    Ok(timeline)
}

fn transact(store: &dyn Store, mut stream: Stream<'_>, clock: &Clock) -> Result<()> {
    while !clock.is_over() {
        stream.next(store)?;
        clock.count();
    }
    Ok(())
}

fn filter(store: &dyn Store, values: &Values, seed: u64, clock: &Clock) -> Result<Vec<FilterMoment>> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut moments = Vec::new();
    while !clock.is_over() {
        let range = values.range(SELECTIVITY, &mut rng);
        let begun = clock.started.elapsed();
        store.count(&range)?;
        let seconds = (clock.started.elapsed() - begun).as_secs_f64();
        moments.push(FilterMoment { at_seconds: begun.as_secs_f64(), seconds });
    }
    Ok(moments)
}

impl Timeline {
    fn new(clock: &Clock, mut filters: Vec<FilterMoment>) -> Self {
        let slice_seconds = clock.lasts.as_secs_f64() / SLICES as f64;
        let rates = clock.slices.iter().map(|count| count.load(Ordering::Relaxed) as f64 / slice_seconds).collect();
        filters.sort_by(|a, b| a.at_seconds.total_cmp(&b.at_seconds));
        Self { slice_seconds, rates, filters }
    }

    fn put_figures(&self, figures: &mut Figures) {
        let mean = |sum: f64, count: usize| sum / count.max(1) as f64;
        let mean_rate = mean(self.rates.iter().sum(), self.rates.len());
        figures.put("timeline.rate", mean_rate);
        let stalled = self.rates.iter().filter(|rate| **rate < STALLED * mean_rate).count();
        figures.put("timeline.stalled_percent", 100.0 * mean(stalled as f64, self.rates.len()));
        figures.put("timeline.least_rate", self.rates.iter().copied().fold(f64::INFINITY, f64::min));
        let seconds: f64 = self.filters.iter().map(|filter| filter.seconds).sum();
        figures.put("timeline.filter_ms", mean(seconds, self.filters.len()) * 1e3);
        figures.put("timeline.filters", self.filters.len() as f64);
    }
}
