//! The scenarios of the comparison: (5 M x 100 B, 1 M x 1,024 B) x (cache a tenth of the data, all of it) x (none,
//! lz4).

use mycelium_bench::keys::ValueKind;
use mycelium_bench::workloads::{Dataset, Pace, Phase, Workload};
use mycelium_bench::{Compression, Scenario, StoreOptions};

/// Room beyond the data's own bytes so that "all of it" holds all blocks with their indexes and filters.
const ALL_OF_IT: f64 = 1.3;

/// The scenarios at a fraction of their entries that match `only` (all if that is empty).
pub(crate) fn scenarios(scale: f64, seconds: f64, only: &[String]) -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for (family, entries, value_bytes) in [("100b", 5_000_000.0, 100), ("1kb", 1_000_000.0, 1024)] {
        let entries = ((entries * scale) as u64).max(1000);
        let dataset = Dataset { entries, value_bytes, values: ValueKind::Half };
        for (cache, share) in [("cache-tenth", 0.1), ("cache-all", ALL_OF_IT)] {
            for compression in [Compression::None, Compression::Lz4] {
                let name = format!("{family}.{cache}.{}", compression.name());
                let matches = |wanted: &String| wanted.split('+').all(|part| name.contains(part));
                if !only.is_empty() && !only.iter().any(matches) {
                    continue;
                }
                let cache_bytes = ((dataset.bytes() as f64 * share) as u64).max(1 << 20);
                let write_buffer_bytes = ((64 << 20) as f64 * scale.min(1.0)) as u64;
                scenarios.push(Scenario {
                    name,
                    dataset: dataset.clone(),
                    options: StoreOptions {
                        cache_bytes,
                        compression,
                        write_buffer_bytes: write_buffer_bytes.max(1 << 20),
                        ..StoreOptions::default()
                    },
                    groups: groups(),
                    pace: Pace { seconds, warmup_seconds: seconds.min(2.0), ..Pace::default() },
                });
            }
        }
    }
    scenarios
}

fn groups() -> Vec<Vec<Phase>> {
    let one = |workload| Phase { workload, threads: 1 };
    let two = |workload| Phase { workload, threads: 2 };
    let points = [Workload::ReadRandom, Workload::ReadMissing];
    let ranges = [Workload::Range100, Workload::Scan];
    let reads = [points, ranges].concat().into_iter().flat_map(|workload| [one(workload), two(workload)]);
    vec![vec![one(Workload::FillRandom)], reads.collect(), vec![one(Workload::ReadWhileWriting)]]
}
