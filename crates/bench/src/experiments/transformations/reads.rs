//! Figures 7 and 8 of the paper: what transformations give to readers of a table that has come to rest.
//!
//! 1. The keys of queries are drawn by Zipf's law. Every store gets the same queries, in turns, each turn in another order of
//!    stores; the first turn warms up and does not count.
//! 2. All answers of a turn must be the same in every store.
//! 3. A ratio is of the times of one turn; the report gives the median over turns.

use std::collections::BTreeMap;
use std::time::Instant;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};

use super::TransformationSettings;
use super::stores::RowStore;
use super::variants::{Contender, PLAIN, RIVAL};
use crate::distribution::{Chooser, Skew, YCSB_THETA};
use crate::measure::Latencies;
use crate::report::Spread;
use crate::store::Result;

/// Turns of a query but [`Query::ColumnTable`].
const TURNS: u64 = 8;
/// Turns of [`Query::ColumnTable`].
const TABLE_TURNS: u64 = 3;
/// Point queries for one of a range.
const POINTS_A_RANGE: u64 = 20;

/// A query of the paper (§5.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Query {
    /// Q2: `SELECT MAX(Vi) FROM T WHERE K >= k1 AND K < k2`.
    ColumnRange,
    /// Q2 where the range is the table.
    ColumnTable,
    /// Q3: `SELECT Vi FROM T WHERE K = k`.
    ColumnPoint,
    /// Q4: `SELECT MAX(Vi) FROM T WHERE Vi >= v1 AND Vi < v2`. Asked of stores with an index on that column: without one it is a
    /// Q2 over the table.
    IndexRange,
    /// Q5: `SELECT * FROM T WHERE Vi = v`, alike.
    IndexPoint,
    /// Q6: `SELECT * FROM T WHERE K >= k1 AND K < k2`.
    RowRange,
    /// Q7: `SELECT * FROM T WHERE K = k`.
    RowPoint,
}

impl Query {
    const ALL: [Self; 7] = [
        Self::ColumnRange,
        Self::ColumnTable,
        Self::ColumnPoint,
        Self::IndexRange,
        Self::IndexPoint,
        Self::RowRange,
        Self::RowPoint,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::ColumnRange => "q2-range",
            Self::ColumnTable => "q2-table",
            Self::ColumnPoint => "q3",
            Self::IndexRange => "q4",
            Self::IndexPoint => "q5",
            Self::RowRange => "q6",
            Self::RowPoint => "q7",
        }
    }

    fn turns(self) -> u64 {
        if self == Self::ColumnTable { TABLE_TURNS } else { TURNS }
    }

    /// Queries of a turn.
    fn count(self, settings: &TransformationSettings) -> u64 {
        let points = settings.reads / TURNS;
        match self {
            Self::ColumnTable => 1,
            Self::ColumnPoint | Self::IndexPoint | Self::RowPoint => points.max(1),
            Self::ColumnRange | Self::IndexRange | Self::RowRange => (points / POINTS_A_RANGE).max(1),
        }
    }
}

/// What one query cost in one store.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ReadFigures {
    /// Mean latency in microseconds.
    pub mean_us: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// How many times as fast as RocksDB with the same parser.
    pub over_rocksdb: Option<Spread>,
    /// How many times as fast as the plain table.
    pub over_plain: Option<Spread>,
}

/// A store and its name in reports.
pub(super) type Named = (Contender, Box<dyn RowStore>);

/// What a store showed so far.
struct Cost {
    latencies: Latencies,
    /// By turn.
    seconds: Vec<f64>,
}

impl Cost {
    fn new() -> Result<Self> {
        Ok(Self { latencies: Latencies::new()?, seconds: Vec::new() })
    }
}

/// Measures all queries: figures by query and store.
pub(super) fn measure(
    stores: &mut [Named],
    records: u64,
    settings: &TransformationSettings,
) -> Result<BTreeMap<String, BTreeMap<String, ReadFigures>>> {
    let chooser = Chooser::new(Skew::Zipfian(YCSB_THETA), records.max(2));
    let mut all = BTreeMap::new();
    for query in Query::ALL {
        let mut asked: Vec<&mut Named> = stores.iter_mut().filter(|(_, store)| store.answers(query)).collect();
        if asked.is_empty() {
            continue;
        }
        let costs = run(query, &mut asked, &chooser, records, settings)?;
        let figures = figures(&asked, &costs);
        if settings.progress {
            for (name, figures) in &figures {
                eprintln!("  {:<8} {name:<13} {}", query.name(), figures.line());
            }
        }
        all.insert(query.name().to_owned(), figures);
    }
    Ok(all)
}

fn run(
    query: Query,
    stores: &mut [&mut Named],
    chooser: &Chooser,
    records: u64,
    settings: &TransformationSettings,
) -> Result<Vec<Cost>> {
    let mut rng = SmallRng::seed_from_u64(settings.seed);
    let mut costs = stores.iter().map(|_| Cost::new()).collect::<Result<Vec<_>>>()?;
    let mut warm_up = Cost::new()?;
    for turn in 0..=query.turns() {
        let indexes: Vec<u64> = (0..query.count(settings)).map(|_| chooser.draw(records, &mut rng)).collect();
        let mut answers = vec![0u64; stores.len()];
        for step in 0..stores.len() {
            let at = (turn as usize + step) % stores.len();
            let cost = if turn == 0 { &mut warm_up } else { &mut costs[at] };
            answers[at] = take_turn(query, &mut *stores[at].1, &indexes, settings, cost)?;
        }
        if let Some(at) = answers.iter().position(|answer| *answer != answers[0]) {
            let (name, expected) = (stores[at].0.name(), stores[0].0.name());
            return Err(format!("{}: {name} answers otherwise than {expected}", query.name()).into());
        }
    }
    Ok(costs)
}

/// The queries of one turn in one store; returns all answers in one.
fn take_turn(
    query: Query,
    store: &mut dyn RowStore,
    indexes: &[u64],
    settings: &TransformationSettings,
    cost: &mut Cost,
) -> Result<u64> {
    let (mut answer, mut seconds) = (0u64, 0.0);
    for &index in indexes {
        let started = Instant::now();
        answer = answer.rotate_left(1) ^ store.answer(query, index, settings.range_rows)?;
        let elapsed = started.elapsed();
        cost.latencies.record(elapsed);
        seconds += elapsed.as_secs_f64();
    }
    cost.seconds.push(seconds);
    Ok(answer)
}

fn figures(stores: &[&mut Named], costs: &[Cost]) -> BTreeMap<String, ReadFigures> {
    let names: Vec<&str> = stores.iter().map(|named| named.0.name()).collect();
    let of = |name: &str| names.iter().position(|other| *other == name).map(|at| &costs[at]);
    let over = |own: &Cost, other: Option<&Cost>| {
        let ratios = other?.seconds.iter().zip(&own.seconds).map(|(other, own)| other / own);
        Spread::of(ratios.collect())
    };
    let figures = names.iter().zip(costs).filter_map(|(&name, cost)| {
        let latency = cost.latencies.summary()?;
        let figures = ReadFigures {
            mean_us: latency.mean_us,
            p50_us: latency.p50_us,
            p99_us: latency.p99_us,
            over_rocksdb: over(cost, of(RIVAL).filter(|_| name != RIVAL)),
            over_plain: over(cost, of(PLAIN).filter(|_| ![PLAIN, RIVAL].contains(&name))),
        };
        Some((name.to_owned(), figures))
    });
    figures.collect()
}

impl ReadFigures {
    /// As a person reads it.
    pub(super) fn line(&self) -> String {
        let ratio = |spread: &Option<Spread>, of: &str| {
            spread.map_or_else(String::new, |spread| {
                format!("  {:.2}x {of} ({:.2} to {:.2})", spread.median, spread.least, spread.greatest)
            })
        };
        format!(
            "{:>12.1} us  p50 {:>10.1}  p99 {:>10.1}{}{}",
            self.mean_us,
            self.p50_us,
            self.p99_us,
            ratio(&self.over_rocksdb, RIVAL),
            ratio(&self.over_plain, PLAIN)
        )
    }
}
