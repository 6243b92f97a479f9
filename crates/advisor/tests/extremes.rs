//! Advice on traces and tables at the ends of what can be counted: a design that a table can have, and that is kept.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use mycelium_advisor::{Hysteresis, LayoutAdvice, TableFacts, Trace, advise_layout};
use mycelium_base::{ColumnSet, Group, GroupFormat};
use mycelium_manifest::{FileMeta, Layout, Level, Run, Version};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// Columns 1 and on; 0 is the key.
fn columns(count: usize) -> ColumnSet {
    (1..=count).collect()
}

fn rows(count: usize) -> Layout {
    Layout::parse("L0 tiered: * packed\nL1 leveled: * packed", &columns(count)).unwrap()
}

/// Level 0 and the last level, with two files of whole rows each; nothing lies between.
fn version(levels: usize, bytes: u64, entries: u64) -> Version {
    let file = Arc::new(FileMeta { number: 1, size: bytes, entry_count: entries, ..FileMeta::default() });
    let run = Arc::new(Run { files: vec![file.clone(), file] });
    let level =
        |level: usize| Level { runs: if level == 0 || level + 1 == levels { vec![run.clone()] } else { vec![] } };
    let mut version = Version::new();
    version.levels = (0..levels).map(level).collect();
    version
}

/// Of so many columns and levels; counters are drawn by `count`.
fn draw(rng: &mut SmallRng, columns: usize, levels: usize, count: impl Fn(&mut SmallRng) -> u64) -> Trace {
    let mut trace = Trace::new(columns, levels).unwrap();
    trace.add_inserts(count(rng));
    trace.add_range_deletes(count(rng));
    for _ in 0..rng.random_range(0..10) {
        let share = *[0.05, 0.4, 0.9].choose(rng).unwrap();
        let projection: ColumnSet = (0..columns).filter(|_| rng.random_bool(share)).collect();
        let level = rng.random_range(0..levels);
        trace.add_points(level, &projection, count(rng)).unwrap();
        trace.add_scans(level, &projection, count(rng), count(rng).saturating_mul(1000)).unwrap();
        trace.add_updates(level, &projection, count(rng)).unwrap();
    }
    trace
}

/// The layout is one that tables can have, level by level within the one above, and the design fits its model.
fn assert_valid(advice: &LayoutAdvice, count: usize) {
    advice.advice.design.check(count).unwrap();
    let text = advice.layout.to_string();
    assert_eq!(Layout::parse(&text, &columns(count)).unwrap(), advice.layout, "{text}");
}

/// Nothing was read or written, or as much as can be counted, of tables of no bytes or of as many as there can be.
#[test]
fn designs_are_valid_at_the_ends_of_what_can_be_counted() {
    for seed in 0..100 {
        let rng = &mut SmallRng::seed_from_u64(seed);
        let count = *[1, 2, 5, 9, 20].choose(rng).unwrap();
        let levels = rng.random_range(2..6);
        let trace = draw(rng, count, levels, |rng| *[0, 0, 1, 1 << 40, u64::MAX].choose(rng).unwrap());
        let (bytes, entries) = *[(0, 0), (1, 1 << 63), (1 << 62, 1), (1 << 62, 1 << 62)].choose(rng).unwrap();
        let (layout, version, all) = (rows(count), version(levels, bytes, entries), [columns(count)]);
        let size_ratio = *[1.0 + f64::EPSILON, 2.0, 1e300].choose(rng).unwrap();
        let block_bytes = *[0, 4096, u64::MAX].choose(rng).unwrap();
        for together in [&[][..], &all] {
            let facts = TableFacts { layout: &layout, version: &version, size_ratio, block_bytes, together };
            let advice = advise_layout(&facts, &trace, &[1, 3], &Hysteresis::default());
            let advice = advice.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert_valid(&advice, count);
            assert!(together.is_empty() || is_one_group(&advice.layout), "seed {seed}: {}", advice.layout);
        }
    }
}

fn is_one_group(layout: &Layout) -> bool {
    layout.levels().iter().all(|level| level.groups.len() == 1)
}

/// The same again, the table having the layout that was advised: whatever its files say of encoding by then.
#[test]
fn a_layout_that_was_advised_is_kept() {
    let mut switches = 0;
    for seed in 0..60 {
        let rng = &mut SmallRng::seed_from_u64(seed);
        let count = rng.random_range(2..12);
        let levels = rng.random_range(2..6);
        let trace = draw(rng, count, levels, |rng| rng.random_range(0..1_000_000));
        let version = version(levels, 100_000, 1_000);
        let layout = rows(count);
        let facts =
            TableFacts { layout: &layout, version: &version, size_ratio: 10.0, block_bytes: 4096, together: &[] };
        let advice = advise_layout(&facts, &trace, &[], &Hysteresis::default()).unwrap();
        assert_valid(&advice, count);
        if !advice.verdict.switch {
            continue;
        }
        switches += 1;
        let again = TableFacts { layout: &advice.layout, ..facts };
        let again = advise_layout(&again, &trace, &[], &Hysteresis::default()).unwrap();
        assert!(!again.verdict.switch, "seed {seed}: {:?}, then {:?}", advice.verdict, again.verdict);
        assert_eq!(again.layout, advice.layout, "seed {seed}");
    }
    assert!(switches > 10, "{switches}");
}

/// Files of an encoding that saves less than was guessed, or nothing: the table does not go back to rows for that, and
/// to columns again once they are gone.
#[test]
fn what_encoding_saves_is_learnt_once() {
    let layout = rows(4);
    let mut trace = Trace::new(4, 2).unwrap();
    trace.add_points(1, &ColumnSet::first(4), 20_000).unwrap();
    trace.add_scans(1, &"2".parse().unwrap(), 8, 8_000_000).unwrap();
    let plain = version(2, 5_000_000, 100_000);
    for share in [5, 50, 100, 200] {
        let facts = TableFacts { layout: &layout, version: &plain, size_ratio: 10.0, block_bytes: 4096, together: &[] };
        let advice = advise_layout(&facts, &trace, &[], &Hysteresis::default()).unwrap();
        assert!(advice.verdict.switch, "{:?}", advice.verdict);
        let columns = Group::new(columns(4), GroupFormat::Columnar);
        let columnar = FileMeta {
            number: 9,
            size: 50_000 * share,
            entry_count: 100_000,
            group: Some(Arc::new(columns)),
            ..FileMeta::default()
        };
        let mut version = plain.clone();
        version.levels[1].runs = vec![Arc::new(Run { files: vec![Arc::new(columnar)] })];
        let mut layout = advice.layout;
        let mut seen = vec![rows(4), layout.clone()];
        for _ in 0..4 {
            let facts = TableFacts { layout: &layout, version: &version, ..facts };
            let advice = advise_layout(&facts, &trace, &[], &Hysteresis::default()).unwrap();
            if advice.verdict.switch {
                assert!(!seen.contains(&advice.layout), "{share}%: {}", advice.layout);
                seen.push(advice.layout.clone());
                layout = advice.layout;
            }
        }
    }
}
