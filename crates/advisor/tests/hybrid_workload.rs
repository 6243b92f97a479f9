//! The workload HW of LASER (§7.2, Table 3) and the five fixed designs that the paper compares with.
//!
//! The narrow table: 30 columns of 4 bytes and a key of 8, so that a block of 4 KiB holds 32 rows; 400 million entries;
//! T = 2; 8 levels. While 20 million rows are inserted (at 10,000 a second, so in 2,000 seconds), 200,000 updates of
//! one column each arrive, and 500,000 Q2a, 500,000 Q2b, 12 Q3 and 12 Q4. Columns 1 to 30 of the paper are 0 to 29
//! here.
//!
//! At which level a point read finds its key follows from when the key was inserted. The paper says that Q2a (mean
//! 0.98, deviation 0.02) typically finds it in memory or at levels 0 and 1, and Q2b (0.85, 0.02) at levels 2 and 3
//! ([`as_printed`]). With levels that hold 2^i/255 of the data each, the same distributions lie at levels 0 to 5
//! ([`by_capacity`]). The advice must hold for both.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use mycelium_advisor::{Design, Trace, Tree, advise};
use mycelium_base::ColumnSet;

const LEVELS: usize = 8;
const ENTRIES: f64 = 400e6;
const TREE: Tree = Tree { size_ratio: 2.0, entries_per_block: 32.0, columns: 30 };

/// How the point reads around a time since insertion spread over the levels.
type LevelsOf = fn(f64) -> [f64; LEVELS];

const MAPPINGS: [(&str, LevelsOf); 2] = [("as printed", as_printed), ("by capacity", by_capacity)];

/// The share of the data that a level holds.
fn share(level: usize) -> f64 {
    2f64.powi(level as i32) / (2f64.powi(LEVELS as i32) - 1.0)
}

/// Half of the reads at each of the two levels that the paper names.
fn as_printed(mean: f64) -> [f64; LEVELS] {
    if mean > 0.9 { [0.5, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0] } else { [0.0, 0.0, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0] }
}

/// The mass of the normal distribution over the times that lie at each level, the newest (1.0) at level 0.
fn by_capacity(mean: f64) -> [f64; LEVELS] {
    let mut shares = [0.0; LEVELS];
    let mut total = 0.0;
    for step in 0..10_000 {
        let time = (f64::from(step) + 0.5) / 10_000.0;
        let density = (-((time - mean) / 0.02).powi(2) / 2.0).exp();
        let mut newer = 0.0;
        let level = (0..LEVELS).find(|&level| {
            newer += share(level);
            1.0 - time < newer
        });
        shares[level.unwrap_or(LEVELS - 1)] += density;
        total += density;
    }
    shares.map(|mass| mass / total)
}

fn hybrid_workload(levels_of: LevelsOf, with_updates: bool) -> Trace {
    let mut trace = Trace::new(30, LEVELS).unwrap();
    trace.add_inserts(20_000_000);
    let [q2a, q2b, q3, q4] = ["0-29", "15-29", "27-29", "20-29"].map(|text| text.parse::<ColumnSet>().unwrap());
    for level in 0..LEVELS {
        trace.add_points(level, &q2a, (500_000.0 * levels_of(0.98)[level]) as u64).unwrap();
        trace.add_points(level, &q2b, (500_000.0 * levels_of(0.85)[level]) as u64).unwrap();
        trace.add_scans(level, &q3, 12, (12.0 * 0.5 * ENTRIES * share(level)) as u64).unwrap();
        trace.add_scans(level, &q4, 12, (12.0 * 0.05 * ENTRIES * share(level)) as u64).unwrap();
        if with_updates {
            for column in 0..30 {
                trace.add_updates(level, &ColumnSet::from_iter([column]), 200_000 / 30).unwrap();
            }
        }
    }
    trace
}

#[test]
fn the_advice_is_at_least_as_good_as_the_five_fixed_designs() {
    for (name, levels_of) in MAPPINGS {
        let trace = hybrid_workload(levels_of, true);
        let advice = advise(&TREE, &trace, &[3, 6, 15]).unwrap();
        println!("HW, levels of point reads {name}; exact: {}\n{advice}", advice.is_exact);
        advice.design.check(30).unwrap();
        for width in [1, 3, 6, 15, 30] {
            let fixed = Design::fixed_width(30, LEVELS, width).unwrap().cost(&TREE, &trace).unwrap();
            assert!(advice.cost.total <= fixed.total, "{name}: width {width} costs {}", fixed.total);
            // The paper's own selection too.
            let paper = &advice.candidates[0].cost;
            assert!(paper.total <= fixed.total, "{name}: width {width} costs {}", fixed.total);
        }
    }
}

/// Updates of single columns tell all columns apart, so that the merge is no longer exact. What it finds is no dearer
/// than the exact answer for the columns that reads tell apart.
#[test]
fn updates_of_single_columns_do_not_mislead() {
    for (name, levels_of) in MAPPINGS {
        let reads = advise(&TREE, &hybrid_workload(levels_of, false), &[]).unwrap();
        assert!(reads.is_exact);
        let trace = hybrid_workload(levels_of, true);
        let found = advise(&TREE, &trace, &[]).unwrap();
        let by_reads = reads.design.cost(&TREE, &trace).unwrap();
        assert!(
            found.cost.total <= by_reads.total * (1.0 + 1e-9),
            "{name}: {} above {}",
            found.cost.total,
            by_reads.total
        );
    }
}

/// §7.3: columns 14-16 of the paper span groups <1-15> and <16-20> at levels 6 and 7.
#[test]
fn the_last_levels_have_the_groups_that_the_paper_names() {
    let trace = hybrid_workload(as_printed, true);
    let design = advise(&TREE, &trace, &[3, 6, 15]).unwrap().candidates.remove(0).design;
    for level in [6, 7] {
        let groups: Vec<String> = design.levels[level].iter().map(ToString::to_string).collect();
        assert_eq!(groups[..2], ["0-14", "15-19"], "level {level}");
    }
}
