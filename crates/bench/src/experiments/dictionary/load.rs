//! Insertion and the compactions that it asks for (figures 6, 7 and 8).
//!
//! 1. Every pair is inserted once, in random key order, its value drawn.
//! 2. The rate counts to the last insertion; the settled rate until no compaction is left that would be due.
//! 3. Where stages are timed, those of the compactions stand beside their time, and the share that waits for the disk.
//! 4. Compactions are counted by the store itself; what the process wrote and read holds logs and flushes too.

use std::time::Instant;

use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::DictionarySettings;
use super::figures::Figures;
use super::stores::{Compactions, Stages, Store};
use super::values::Values;
use crate::measure::{Counters, Latencies};
use crate::store::Result;

/// Fills an empty store.
pub(super) fn measure(
    store: &dyn Store,
    values: &Values,
    settings: &DictionarySettings,
    by_stage: bool,
    figures: &mut Figures,
) -> Result<()> {
    let (pairs, seed) = (settings.pairs(), settings.seed);
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut latencies = Latencies::new()?;
    let (before, started) = (Counters::now(), Instant::now());
    for index in 0..pairs {
        let value = values.draw(&mut rng);
        let begun = Instant::now();
        store.put(index, value)?;
        latencies.record(begun.elapsed());
    }
    let inserted = started.elapsed().as_secs_f64();
    store.settle()?;
    let settled = started.elapsed().as_secs_f64();
    let (usage, compactions) = (Counters::now().since(&before), store.compactions());
    let mega = |bytes: u64| bytes as f64 / 1e6;
    figures.put("insert.rate", pairs as f64 / inserted);
    figures.put("insert.settled_rate", pairs as f64 / settled);
    if let Some(latency) = latencies.summary() {
        figures.put("insert.p99_us", latency.p99_us);
    }
    figures.put("insert.cpu_us", usage.cpu_seconds * 1e6 / pairs as f64);
    figures.put("insert.written_mb", mega(usage.bytes_written));
    figures.put("insert.read_mb", mega(usage.bytes_read));
    figures.put("insert.files_mb", mega(store.file_bytes()));
    if let Some(bytes) = store.dictionary_bytes() {
        figures.put("insert.dictionaries_mb", mega(bytes));
    }
    figures.put("compaction.seconds", compactions.seconds);
    figures.put("compaction.cpu_seconds", compactions.cpu_seconds);
    figures.put("compaction.read_mb", mega(compactions.bytes_read));
    figures.put("compaction.written_mb", mega(compactions.bytes_written));
    if by_stage {
        put_stages(&compactions, figures);
    }
    Ok(())
}

fn put_stages(compactions: &Compactions, figures: &mut Figures) {
    let Stages { read, decode, compress, write } = compactions.stages;
    for (stage, seconds) in [("read", read), ("decode", decode), ("compress", compress), ("write", write)] {
        figures.put(&format!("compaction.{stage}_seconds"), seconds);
    }
    let other = compactions.seconds - (read + decode + compress + write);
    figures.put("compaction.merge_seconds", other.max(0.0));
    figures.put("compaction.disk_percent", 100.0 * (read + write) / compactions.seconds);
}
