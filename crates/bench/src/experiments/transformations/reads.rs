//! Figures 7 and 8 of the paper: what transformations give to readers of a table that has come to rest.
//!
//! As the paper measures (§5.3): "Each query is executed 100,000 times in a batch, and the batch is repeated multiple
//! times to warm up the cache."
//!
//! 1. The keys of a query's batch are drawn once, by Zipf's law. Every store gets the same batch, again and again, in
//!    turns, each turn in another order of stores. The cache holds a 200th of the data, as the paper's does, so that
//!    whole rows of a batch of ranges do not all fit.
//! 2. The first turns warm up the cache and do not count.
//! 3. All answers of a turn must be the same in every store.
//! 4. A ratio is of two stores in one turn, of their whole times or of their median latencies; the report gives the
//!    median over turns. The other figures are of the latencies of all turns that count.

use std::collections::BTreeMap;
use std::time::Instant;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};

use super::TransformationSettings;
use super::queries::Query;
use super::stores::RowStore;
use super::variants::{Contender, PLAIN, RIVAL, RIVAL_INDEX};
use crate::distribution::{Chooser, Skew, YCSB_THETA};
use crate::measure::Latencies;
use crate::statistics::Spread;
use crate::store::Result;

/// Turns of a query that count, but of [`Query::ColumnTable`].
const TURNS: u64 = 8;
/// Those of [`Query::ColumnTable`].
const TABLE_TURNS: u64 = 3;
/// Turns before them, which warm up the cache.
const WARM_UP_TURNS: u64 = 2;
/// Point queries for one of a range. At the size of the claims a batch of ranges then has the share of all rows that
/// the paper's has, a twentieth where no key came twice; the cache holds a tenth of that.
const POINTS_A_RANGE: u64 = 5;

impl Query {
    fn turns(self) -> u64 {
        if self == Self::ColumnTable { TABLE_TURNS } else { TURNS }
    }

    /// Queries of a batch.
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
    /// 25th percentile of the latencies.
    pub p25_us: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 75th percentile.
    pub p75_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// How many times as fast as RocksDB with the same parser, by the time of a batch. Of a query by an index, as
    /// RocksDB whose client keeps one.
    pub over_rocksdb: Option<Spread>,
    /// The same by the median latency in a batch.
    pub over_rocksdb_median: Option<Spread>,
    /// How many times as fast as the plain table, by the time of a batch.
    pub over_plain: Option<Spread>,
    /// The same by the median latency in a batch.
    pub over_plain_median: Option<Spread>,
}

/// A store and its name in reports.
pub(super) type Named = (Contender, Box<dyn RowStore>);

/// What a store showed so far.
struct Cost {
    latencies: Latencies,
    /// Whole times by turn.
    seconds: Vec<f64>,
    /// Median latencies by turn.
    medians: Vec<f64>,
}

impl Cost {
    fn new() -> Result<Self> {
        Ok(Self { latencies: Latencies::new()?, seconds: Vec::new(), medians: Vec::new() })
    }

    /// Adds one turn.
    fn add(&mut self, latencies: &Latencies, seconds: f64) -> Result<()> {
        self.latencies.merge(latencies)?;
        self.seconds.push(seconds);
        self.medians.extend(latencies.micros(0.5));
        Ok(())
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
    let batch: Vec<u64> = (0..query.count(settings)).map(|_| chooser.draw(records, &mut rng)).collect();
    let mut costs = stores.iter().map(|_| Cost::new()).collect::<Result<Vec<_>>>()?;
    for turn in 0..WARM_UP_TURNS + query.turns() {
        let mut answers = vec![0u64; stores.len()];
        for step in 0..stores.len() {
            let at = (turn as usize + step) % stores.len();
            let (answer, latencies, seconds) = take_turn(query, &mut *stores[at].1, &batch, settings)?;
            answers[at] = answer;
            if turn >= WARM_UP_TURNS {
                costs[at].add(&latencies, seconds)?;
            }
        }
        if let Some(at) = answers.iter().position(|answer| *answer != answers[0]) {
            let (name, expected) = (stores[at].0.name(), stores[0].0.name());
            return Err(format!("{}: {name} answers otherwise than {expected}", query.name()).into());
        }
    }
    Ok(costs)
}

/// The batch once in one store: all answers in one, the latencies, and the whole time in seconds.
fn take_turn(
    query: Query,
    store: &mut dyn RowStore,
    batch: &[u64],
    settings: &TransformationSettings,
) -> Result<(u64, Latencies, f64)> {
    let (mut answer, mut latencies, mut seconds) = (0u64, Latencies::new()?, 0.0);
    for &index in batch {
        let started = Instant::now();
        answer = answer.rotate_left(1) ^ store.answer(query, index, settings.range_rows)?;
        let elapsed = started.elapsed();
        latencies.record(elapsed);
        seconds += elapsed.as_secs_f64();
    }
    Ok((answer, latencies, seconds))
}

fn figures(stores: &[&mut Named], costs: &[Cost]) -> BTreeMap<String, ReadFigures> {
    let names: Vec<&str> = stores.iter().map(|named| named.0.name()).collect();
    let of = |name: &str| names.iter().position(|other| *other == name).map(|at| &costs[at]);
    let over = |own: &Cost, other: Option<&Cost>, of: fn(&Cost) -> &[f64]| {
        let ratios = of(other?).iter().zip(of(own)).map(|(other, own)| other / own);
        Spread::of(ratios.collect())
    };
    let seconds: fn(&Cost) -> &[f64] = |cost| &cost.seconds;
    let medians: fn(&Cost) -> &[f64] = |cost| &cost.medians;
    let figures = names.iter().zip(costs).filter_map(|(&name, cost)| {
        let latency = cost.latencies.summary()?;
        let is_rival = [RIVAL, RIVAL_INDEX].contains(&name);
        let rival = of(RIVAL).or(of(RIVAL_INDEX)).filter(|_| !is_rival);
        let plain = of(PLAIN).filter(|_| name != PLAIN && !is_rival);
        let figures = ReadFigures {
            mean_us: latency.mean_us,
            p25_us: cost.latencies.micros(0.25)?,
            p50_us: latency.p50_us,
            p75_us: cost.latencies.micros(0.75)?,
            p99_us: latency.p99_us,
            over_rocksdb: over(cost, rival, seconds),
            over_rocksdb_median: over(cost, rival, medians),
            over_plain: over(cost, plain, seconds),
            over_plain_median: over(cost, plain, medians),
        };
        Some((name.to_owned(), figures))
    });
    figures.collect()
}

impl ReadFigures {
    /// As a person reads it.
    pub(super) fn line(&self) -> String {
        let ratio = |whole: &Option<Spread>, median: &Option<Spread>, of: &str| {
            whole.zip(*median).map_or_else(String::new, |(whole, median)| {
                let (least, greatest) = (whole.least, whole.greatest);
                format!("  {:.2}x {of} ({least:.2} to {greatest:.2}), median {:.2}x", whole.median, median.median)
            })
        };
        format!(
            "{:>12.1} us  p25 {:>8.1}  p50 {:>8.1}  p75 {:>8.1}  p99 {:>8.1}{}{}",
            self.mean_us,
            self.p25_us,
            self.p50_us,
            self.p75_us,
            self.p99_us,
            ratio(&self.over_rocksdb, &self.over_rocksdb_median, RIVAL),
            ratio(&self.over_plain, &self.over_plain_median, PLAIN)
        )
    }
}
