//! What each part of the experiment fills its tables with, and what it asks of them.

use crate::distribution::Skew;

/// One of the experiments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Figures 6, 7 and 9 by the size of values.
    Sizes,
    /// Figures 8 and 9 by their number, their distribution and the selectivity of filters.
    Values,
    /// Figure 10.
    Timeline,
    /// Figure 1.
    Stages,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Sizes, Self::Values, Self::Timeline, Self::Stages];

    /// The name among the workloads of `mycelium bench`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sizes => "dictionary-sizes",
            Self::Values => "dictionary-values",
            Self::Timeline => "dictionary-timeline",
            Self::Stages => "dictionary-stages",
        }
    }

    /// Its tables.
    pub(super) fn cells(self) -> Vec<Cell> {
        match self {
            Self::Sizes => VALUE_BYTES.into_iter().map(Cell::of_size).collect(),
            Self::Values => Cell::of_values(),
            Self::Timeline => TIMELINE_BYTES.into_iter().map(Cell::of_timeline).collect(),
            Self::Stages => STAGES_BYTES.into_iter().map(Cell::of_stages).collect(),
        }
    }
}

/// Bytes of a value in figures 6, 7 and 9.
const VALUE_BYTES: [usize; 6] = [32, 64, 128, 256, 512, 1024];
/// Bytes of a value where something else varies.
const USUAL_BYTES: usize = 128;
/// Bytes of a value in figure 10. The text says "two representative value sizes" and not which.
const TIMELINE_BYTES: [usize; 2] = [128, 1024];
/// Bytes of a value in figure 1.
const STAGES_BYTES: [usize; 3] = [32, 256, 1024];
/// Distinct values, in percent of a file's pairs, where something else varies.
const USUAL_NDV: f64 = 1.0;
/// The same in figure 8; [`USUAL_NDV`] is among the cells of every part.
const NDV: [f64; 4] = [5.0, 10.0, 20.0, 50.0];
/// Exponents of Zipf's law in figure 8, besides the uniform distribution.
const EXPONENTS: [f64; 4] = [0.5, 1.0, 1.5, 2.0];
/// Rows that a filter finds, in percent, where something else varies.
const USUAL_SELECTIVITY: f64 = 1.0;
/// The same where that varies.
const SELECTIVITIES: [f64; 5] = [0.1, 0.5, 1.0, 5.0, 10.0];

/// A table: what is in it, and what is measured with it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Cell {
    /// Its name in reports.
    pub(super) name: String,
    /// Bytes of a value.
    pub(super) value_bytes: usize,
    /// Distinct values, in percent of the pairs that a file of codes holds.
    pub(super) ndv_percent: f64,
    /// Which values pairs have.
    pub(super) skew: Skew,
    /// Filters are run with each of these selectivities, in percent.
    pub(super) selectivities: Vec<f64>,
    /// Whether updates, point reads and ranges follow.
    pub(super) has_transactions: bool,
    /// Whether these run beside filters, by the clock.
    pub(super) has_timeline: bool,
    /// Whether files are read past the page cache, and the stages of compactions and filters timed.
    pub(super) by_stage: bool,
}

impl Cell {
    fn usual(name: String) -> Self {
        Self {
            name,
            value_bytes: USUAL_BYTES,
            ndv_percent: USUAL_NDV,
            skew: Skew::Uniform,
            selectivities: vec![USUAL_SELECTIVITY],
            has_transactions: false,
            has_timeline: false,
            by_stage: false,
        }
    }

    fn of_size(value_bytes: usize) -> Self {
        Self { value_bytes, has_transactions: true, ..Self::usual(format!("size-{value_bytes}")) }
    }

    fn of_timeline(value_bytes: usize) -> Self {
        let usual = Self::usual(format!("timeline-{value_bytes}"));
        Self { value_bytes, selectivities: Vec::new(), has_timeline: true, ..usual }
    }

    fn of_stages(value_bytes: usize) -> Self {
        Self { value_bytes, by_stage: true, ..Self::usual(format!("stages-{value_bytes}")) }
    }

    fn of_values() -> Vec<Self> {
        let usual = Self { selectivities: SELECTIVITIES.to_vec(), ..Self::usual(format!("ndv-{USUAL_NDV}")) };
        let ndv = NDV.map(|ndv_percent| Self { ndv_percent, ..Self::usual(format!("ndv-{ndv_percent}")) });
        let skewed =
            EXPONENTS.map(|exponent| Self { skew: Skew::Zipfian(exponent), ..Self::usual(format!("zipf-{exponent}")) });
        [usual].into_iter().chain(ndv).chain(skewed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_names_of_their_own() {
        let mut names: Vec<String> = Part::ALL.iter().flat_map(|part| part.cells()).map(|cell| cell.name).collect();
        let count = names.len();
        assert!(names.iter().all(|name| !name.contains(['/', '~'])), "they are parts of JSON pointers: {names:?}");
        names.sort();
        names.dedup();
        assert_eq!((count, names.len()), (20, 20));
    }
}
