//! Workloads that several tests share.

use mycelium_advisor::Trace;
use mycelium_base::ColumnSet;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// `count` generators from one base seed; `MYCELIUM_TEST_SEED` replaces the base. Printed.
pub(crate) fn seeds(name: &str, count: u64) -> impl Iterator<Item = (u64, SmallRng)> {
    let base: u64 = std::env::var("MYCELIUM_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("{name}: {count} workloads from seed {base}");
    (base..base + count).map(|seed| (seed, SmallRng::seed_from_u64(seed)))
}

/// A few operations of every kind on projections of every width.
pub(crate) fn random_trace(rng: &mut SmallRng, columns: usize, levels: usize, projections: usize) -> Trace {
    let mut trace = Trace::new(columns, levels).unwrap();
    trace.add_inserts(rng.random_range(0..3_000));
    for level in 1..levels {
        for _ in 0..rng.random_range(0..=projections) {
            let share = [0.15, 0.4, 0.8, 1.0][rng.random_range(0..4)];
            let projection: ColumnSet = (0..columns).filter(|_| rng.random_bool(share)).collect();
            match rng.random_range(0..3) {
                0 => trace.add_points(level, &projection, rng.random_range(0..300)).unwrap(),
                1 => trace.add_scans(level, &projection, 1, rng.random_range(0..10_000)).unwrap(),
                _ => trace.add_updates(level, &projection, rng.random_range(0..3_000)).unwrap(),
            }
        }
    }
    trace
}

/// Calls `visit` with every partition of `columns` columns into groups.
pub(crate) fn every_partition(columns: usize, visit: &mut impl FnMut(&[ColumnSet])) {
    fn extend(column: usize, columns: usize, groups: &mut Vec<ColumnSet>, visit: &mut impl FnMut(&[ColumnSet])) {
        if column == columns {
            return visit(groups);
        }
        for group in 0..groups.len() {
            let before = groups[group].clone();
            groups[group].insert(column);
            extend(column + 1, columns, groups, visit);
            groups[group] = before;
        }
        groups.push(ColumnSet::from_iter([column]));
        extend(column + 1, columns, groups, visit);
        groups.pop();
    }
    extend(0, columns, &mut Vec::new(), visit);
}
