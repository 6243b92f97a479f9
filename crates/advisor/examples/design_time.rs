//! How long the design of wide, deep tables takes: `cargo run --release -p mycelium-advisor --example design_time`.
//!
//! LASER (§6.3) reports 3 seconds for 100 columns and 8 levels. The last line has our longest time for these, that of
//! comparing with fixed designs included.

use std::time::Instant;

use mycelium_advisor::{Formats, Trace, Tree, advise_formats, level_by_level};
use mycelium_base::{ColumnSet, Result};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn main() -> Result<()> {
    println!("columns levels projections  level by level       advised  groups looked at  exact  seed");
    let mut slowest: f64 = 0.0;
    for (columns, projections) in [(100, 4), (100, 8), (100, 16), (100, 60), (1_000, 60), (4_096, 60)] {
        for seed in 1..=3 {
            let trace = random_trace(columns, 8, projections, seed)?;
            let tree = Tree { size_ratio: 2.0, entries_per_block: 10.0, columns };
            let start = Instant::now();
            level_by_level(&tree, &trace)?;
            let paper = start.elapsed();
            let start = Instant::now();
            let advice = advise_formats(&tree, &Formats::default(), &trace, &[4, 10])?;
            let all = start.elapsed();
            if columns == 100 {
                slowest = slowest.max(all.as_secs_f64());
            }
            println!(
                "{columns:>7} {:>6} {projections:>11}  {:>11.1} ms  {:>8.1} ms  {:>16}  {:>5}  {seed:>4}",
                8,
                paper.as_secs_f64() * 1e3,
                all.as_secs_f64() * 1e3,
                advice.evaluated,
                advice.is_exact
            );
        }
    }
    println!("slowest design of 100 columns and 8 levels, in milliseconds: {:.1}", slowest * 1e3);
    Ok(())
}

/// Wide points above, narrow scans below; the same projections at every level.
fn random_trace(columns: usize, levels: usize, projections: usize, seed: u64) -> Result<Trace> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut trace = Trace::new(columns, levels)?;
    trace.add_inserts(1_000_000);
    for _ in 0..projections {
        let share = [0.03, 0.1, 0.5, 0.9][rng.random_range(0..4)];
        let projection: ColumnSet = (0..columns).filter(|_| rng.random_bool(share)).collect();
        for level in 1..levels {
            let depth = level as u32;
            trace.add_points(level, &projection, rng.random_range(0..100_000u64) >> depth)?;
            trace.add_scans(level, &projection, 1, rng.random_range(0..10_000u64) << depth)?;
            trace.add_updates(level, &projection, rng.random_range(0..1_000))?;
        }
    }
    Ok(trace)
}
