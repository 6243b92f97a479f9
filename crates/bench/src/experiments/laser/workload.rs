//! The workload HW (§7.2, Table 3): the life of data, from inserts over point reads of the young to scans of
//! everything.
//!
//! Its proportions are the paper's, whatever the scale: to 400 million loaded rows belong 20 million inserts, an update
//! for each hundred of them, 500,000 reads of each kind, and 12 scans of each kind. "Spread uniformly" and "towards the
//! end" become [`SLICES`] slices of the inserts with as many reads each, of which the last twelve end with one scan of
//! each kind.
//!
//! A time since insertion of 1.0 is now, 0.0 the first row. Normal draws beyond now are drawn again.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use super::table::Aggregate;

/// Pieces of the workload.
pub(super) const SLICES: u64 = 120;
/// Scans of each kind.
pub(super) const SCANS: u64 = 12;
/// Of the loaded rows, inserted.
const INSERTED: f64 = 0.05;
/// Of the loaded rows, read by each kind of point read.
const READ: f64 = 0.00125;
/// Inserts for an update.
const INSERTS_AN_UPDATE: u64 = 100;
/// Of all rows, the youngest, which are updated.
const UPDATED: f64 = 0.01;
/// Standard deviation of the time since insertion of rows read.
const DEVIATION: f64 = 0.02;

/// A query of Table 3.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Query {
    /// Inserts a row.
    Q1,
    /// Reads a very young row.
    Q2a,
    /// Reads the second half of the columns of a young row.
    Q2b,
    /// The maxima of the last tenth of the columns over half of the keys.
    Q3,
    /// The sum of the last third of the columns over a twentieth of the keys.
    Q4,
    /// Updates a column of one of the youngest rows.
    Q5,
}

impl Query {
    /// In the paper's order.
    pub const ALL: [Self; 6] = [Self::Q1, Self::Q2a, Self::Q2b, Self::Q3, Self::Q4, Self::Q5];
    /// Those whose time counts: inserts and updates are paced.
    pub const READS: [Self; 4] = [Self::Q2a, Self::Q2b, Self::Q3, Self::Q4];

    /// The paper's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Q1 => "Q1",
            Self::Q2a => "Q2a",
            Self::Q2b => "Q2b",
            Self::Q3 => "Q3",
            Self::Q4 => "Q4",
            Self::Q5 => "Q5",
        }
    }

    /// The columns it reads of a table of `columns`, from 1 on: of 30 those of Table 3, of others the same shares.
    pub(super) fn projection(self, columns: usize) -> Vec<usize> {
        let skipped = match self {
            Self::Q1 | Self::Q2a | Self::Q5 => 0,
            Self::Q2b => columns / 2,
            Self::Q3 => columns * 9 / 10,
            Self::Q4 => columns * 2 / 3,
        };
        (skipped + 1..=columns).collect()
    }

    /// The mean time since insertion of the rows that a point read asks for.
    pub(super) fn mean_age(self) -> f64 {
        if self == Self::Q2b { 0.85 } else { 0.98 }
    }

    /// What a scan makes of its rows.
    pub(super) fn aggregate(self) -> Aggregate {
        if self == Self::Q3 { Aggregate::Maxima } else { Aggregate::Sums }
    }

    /// The share of the keys that a scan selects.
    fn selected(self) -> f64 {
        if self == Self::Q3 { 0.5 } else { 0.05 }
    }
}

/// One step of the workload.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Operation {
    /// Row `index`, the next one.
    Insert { index: u64 },
    /// Sets `a<column>` of row `index`.
    Update { index: u64, column: usize, value: i32 },
    /// Q2a or Q2b of row `index`.
    Point { query: Query, index: u64 },
    /// Q3 or Q4 of the keys in `[from, to)`.
    Scan { query: Query, from: u64, to: u64 },
}

impl Operation {
    /// The query that it is.
    pub(super) fn query(self) -> Query {
        match self {
            Self::Insert { .. } => Query::Q1,
            Self::Update { .. } => Query::Q5,
            Self::Point { query, .. } | Self::Scan { query, .. } => query,
        }
    }
}

/// The workload for a table of so many rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct HybridWorkload {
    /// Columns besides the key.
    pub(super) columns: usize,
    /// Rows loaded before.
    pub(super) loaded: u64,
    /// Seed of the draws.
    pub(super) seed: u64,
}

impl HybridWorkload {
    /// Rows inserted.
    pub(super) fn inserts(&self) -> u64 {
        (self.loaded as f64 * INSERTED) as u64
    }

    /// Point reads of each kind.
    pub(super) fn points(&self) -> u64 {
        ((self.loaded as f64 * READ) as u64).max(SLICES)
    }

    /// The operations of slice `slice`, in order.
    pub(super) fn slice(&self, slice: u64) -> Vec<Operation> {
        let mut rng = SmallRng::seed_from_u64(self.seed ^ (slice << 32));
        let share = |count: u64| (count * slice / SLICES)..(count * (slice + 1) / SLICES);
        let (inserts, points) = (share(self.inserts()), share(self.points()));
        let mut operations = Vec::new();
        let (mut points_left, steps) = (points.end - points.start, (inserts.end - inserts.start).max(1));
        for (step, number) in inserts.enumerate() {
            let index = self.loaded + number;
            operations.push(Operation::Insert { index });
            if number.is_multiple_of(INSERTS_AN_UPDATE) {
                operations.push(self.update(index, &mut rng));
            }
            while points_left * steps > (points.end - points.start) * (steps - 1 - step as u64) {
                points_left -= 1;
                for query in [Query::Q2a, Query::Q2b] {
                    operations.push(Operation::Point { query, index: aged(query.mean_age(), index + 1, &mut rng) });
                }
            }
        }
        if slice + SCANS >= SLICES {
            operations.extend([Query::Q3, Query::Q4].map(|query| scan(query, &mut rng)));
        }
        operations
    }

    fn update(&self, newest: u64, rng: &mut SmallRng) -> Operation {
        let young = ((newest as f64 * UPDATED) as u64).max(1);
        let index = newest - rng.random_range(0..young);
        Operation::Update { index, column: rng.random_range(1..=self.columns), value: rng.random() }
    }
}

/// A row of `rows`, by its time since insertion.
pub(super) fn aged(mean: f64, rows: u64, rng: &mut SmallRng) -> u64 {
    loop {
        // Box and Muller.
        let (radius, angle): (f64, f64) = (rng.random(), rng.random());
        let normal = (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
        let age = mean + DEVIATION * normal;
        if (0.0..1.0).contains(&age) {
            return (age * rows as f64) as u64;
        }
    }
}

/// A scan of its share of the keys, from anywhere.
pub(super) fn scan(query: Query, rng: &mut SmallRng) -> Operation {
    let keys = u64::MAX as f64;
    let from = rng.random_range(0.0..1.0 - query.selected()) * keys;
    Operation::Scan { query, from: from as u64, to: (from + query.selected() * keys) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKLOAD: HybridWorkload = HybridWorkload { columns: 30, loaded: 400_000, seed: 7 };

    #[test]
    fn projections_are_those_of_table_3() {
        let of = |query: Query, columns| {
            let projection = query.projection(columns);
            (projection[0], projection.len())
        };
        assert_eq!(Query::READS.map(|query| of(query, 30)), [(1, 30), (16, 15), (28, 3), (21, 10)]);
        assert_eq!(Query::READS.map(|query| of(query, 100)), [(1, 100), (51, 50), (91, 10), (67, 34)]);
    }

    #[test]
    fn the_proportions_are_those_of_table_3() {
        let operations: Vec<Operation> = (0..SLICES).flat_map(|slice| WORKLOAD.slice(slice)).collect();
        let count = |query: Query| operations.iter().filter(|operation| operation.query() == query).count();
        assert_eq!(Query::ALL.map(count), [20_000, 500, 500, 12, 12, 200]);
        let inserted: Vec<u64> = operations
            .iter()
            .filter_map(|operation| if let Operation::Insert { index } = operation { Some(*index) } else { None })
            .collect();
        assert!(inserted.iter().copied().eq(400_000..420_000));
        assert_eq!(WORKLOAD.slice(3), WORKLOAD.slice(3));
    }

    #[test]
    fn reads_are_of_the_rows_that_table_3_says() {
        let operations: Vec<Operation> = (0..SLICES).flat_map(|slice| WORKLOAD.slice(slice)).collect();
        let mean = |query: Query| {
            let indexes: Vec<f64> = operations
                .iter()
                .filter_map(|operation| match operation {
                    Operation::Point { query: other, index } if *other == query => Some(*index as f64 / 410_000.0),
                    _ => None,
                })
                .collect();
            indexes.iter().sum::<f64>() / indexes.len() as f64
        };
        assert!((0.93..0.99).contains(&mean(Query::Q2a)) && (0.82..0.87).contains(&mean(Query::Q2b)));
        for operation in operations {
            if let Operation::Scan { query, from, to } = operation {
                let share = (to - from) as f64 / u64::MAX as f64;
                assert!((share - query.selected()).abs() < 1e-6, "{operation:?}");
            }
        }
    }
}
