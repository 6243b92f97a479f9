//! Value filters (figure 9): how long it takes to count, and to fetch, the rows whose value lies in a range.
//!
//! 1. Every store gets the same ranges. The first one of a selectivity warms up and does not count.
//! 2. Counting reads values alone where the store can do that; fetching hands over keys and values, in key order.
//! 3. Where stages are timed, the share of both that waits for the disk stands beside them.
//! 4. All stores must find the same rows.

use std::time::Instant;

use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::figures::Figures;
use super::stores::Store;
use super::values::Values;
use crate::measure::Counters;
use crate::store::Result;

/// Runs so many filters of a selectivity, in percent; returns what they found, in one number.
pub(super) fn measure(
    store: &dyn Store,
    values: &Values,
    percent: f64,
    filters: u32,
    seed: u64,
    figures: &mut Figures,
) -> Result<u64> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let (mut answer, mut rows, mut found) = (0u64, 0, Vec::new());
    let (mut counting, mut fetching, mut before) = (0.0, 0.0, Counters::now());
    let mut read_before = store.read_seconds();
    for filter in 0..=filters {
        if filter == 1 {
            (rows, counting, fetching, before) = (0, 0.0, 0.0, Counters::now());
            read_before = store.read_seconds();
        }
        let range = values.range(percent / 100.0, &mut rng);
        let started = Instant::now();
        let count = store.count(&range)?;
        counting += started.elapsed().as_secs_f64();
        found.clear();
        let started = Instant::now();
        let fetched = store.fetch(&range, &mut found)?;
        fetching += started.elapsed().as_secs_f64();
        if count != fetched {
            return Err(format!("{count} rows counted and {fetched} fetched of a filter of {percent} %").into());
        }
        rows += count;
        answer = found.iter().fold(answer.rotate_left(1) ^ count, |sum, byte| sum.rotate_left(5) ^ u64::from(*byte));
    }
    let (usage, each) = (Counters::now().since(&before), 1.0 / f64::from(filters.max(1)));
    let name = |figure: &str| format!("filter-{percent}.{figure}");
    figures.put(&name("count_ms"), counting * each * 1e3);
    figures.put(&name("fetch_ms"), fetching * each * 1e3);
    figures.put(&name("rows"), rows as f64 * each);
    figures.put(&name("cpu_ms"), usage.cpu_seconds * each * 1e3);
    let reading = store.read_seconds() - read_before;
    if reading > 0.0 {
        figures.put(&name("disk_percent"), 100.0 * reading / (counting + fetching));
    }
    figures.put(&name("read_mb"), usage.bytes_read as f64 * each / 1e6);
    Ok(answer)
}
