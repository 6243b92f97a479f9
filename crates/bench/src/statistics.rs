//! What is made of measured values: their spread over repetitions, geometric means, and how far two measures put things
//! in the same order.

use serde::{Deserialize, Serialize};

/// A figure over repetitions.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spread {
    /// The middle one (the mean of the middle two).
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
    /// How many there were.
    pub count: usize,
}

impl Spread {
    /// Of some values; `None` of none.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let (&least, &greatest) = (values.first()?, values.last()?);
        let count = values.len();
        let median = f64::midpoint(values[(count - 1) / 2], values[count / 2]);
        Some(Self { median, least, greatest, count })
    }
}

/// How far two values may be apart and still count as equal: a tenth of the smaller.
pub const TOLERANCE: f64 = 0.1;

/// Of the pairs of things whose `first` values are more than [`TOLERANCE`] apart: those that `second` puts in the same
/// order less those that it puts in the other, over all of them (Kendall's correlation, with pairs that the first
/// measure does not tell apart ignored; a pair that only the second does not tell apart counts as neither, and so
/// against it). 1 is the same order throughout, -1 the opposite. `None` if no pair is left. O(n²).
///
/// ```
/// use mycelium_bench::statistics::pair_correlation;
///
/// assert_eq!(pair_correlation(&[1.0, 2.0, 3.0], &[10.0, 30.0, 20.0]), Some(1.0 / 3.0));
/// // The second and the third are within a tenth of each other.
/// assert_eq!(pair_correlation(&[1.0, 3.0, 3.2], &[10.0, 30.0, 20.0]), Some(1.0));
/// assert_eq!(pair_correlation(&[1.0, 1.05], &[10.0, 30.0]), None);
/// ```
pub fn pair_correlation(first: &[f64], second: &[f64]) -> Option<f64> {
    let (mut pairs, mut agreement) = (0u64, 0.0);
    for (at, (a, b)) in first.iter().zip(second).enumerate() {
        for (other_a, other_b) in first.iter().zip(second).skip(at + 1) {
            if a.max(*other_a) <= a.min(*other_a) * (1.0 + TOLERANCE) {
                continue;
            }
            pairs += 1;
            agreement += match (a - other_a) * (b - other_b) {
                product if product > 0.0 => 1.0,
                product if product < 0.0 => -1.0,
                _ => 0.0,
            };
        }
    }
    (pairs > 0).then(|| agreement / pairs as f64)
}

/// Spearman's rank correlation, where values within [`TOLERANCE`] of the smallest of their kind share the mean of their
/// ranks. `None` of fewer than two values, or where one measure gives all the same rank.
///
/// ```
/// use mycelium_bench::statistics::rank_correlation;
///
/// assert_eq!(rank_correlation(&[1.0, 2.0, 4.0], &[10.0, 200.0, 300.0]), Some(1.0));
/// assert_eq!(rank_correlation(&[1.0, 1.01], &[3.0, 4.0]), None);
/// ```
pub fn rank_correlation(first: &[f64], second: &[f64]) -> Option<f64> {
    let (first, second) = (ranks(first), ranks(second));
    let mean = |ranks: &[f64]| ranks.iter().sum::<f64>() / ranks.len() as f64;
    let (mean_a, mean_b) = (mean(&first), mean(&second));
    let sum =
        |f: &dyn Fn(f64, f64) -> f64| first.iter().zip(&second).map(|(a, b)| f(a - mean_a, b - mean_b)).sum::<f64>();
    let (together, of_a, of_b) = (sum(&|a, b| a * b), sum(&|a, _| a * a), sum(&|_, b| b * b));
    (of_a > 0.0 && of_b > 0.0).then(|| together / (of_a * of_b).sqrt())
}

/// Ranks from 1 on, in the order of the values.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut from = 0;
    while from < order.len() {
        let most = values[order[from]] * (1.0 + TOLERANCE);
        let equal = order[from..].iter().take_while(|at| values[**at] <= most).count().max(1);
        let shared = from as f64 + f64::midpoint(1.0, equal as f64);
        order[from..from + equal].iter().for_each(|at| ranks[*at] = shared);
        from += equal;
    }
    ranks
}

/// The geometric mean of positive values; `None` of none.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut count, mut logarithms) = (0u32, 0.0);
    for value in values {
        (count, logarithms) = (count + 1, logarithms + value.ln());
    }
    (count > 0).then(|| (logarithms / f64::from(count)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_take_the_middle() {
        let spread = Spread::of(vec![3.0, 1.0, f64::NAN, 10.0, 2.0]).expect("values");
        assert_eq!((spread.median, spread.least, spread.greatest, spread.count), (2.5, 1.0, 10.0, 4));
        assert_eq!(Spread::of(vec![f64::INFINITY]), None);
    }

    #[test]
    fn near_values_share_ranks() {
        assert_eq!(ranks(&[5.0, 1.0, 1.05, 9.0, 1.1]), [4.0, 2.0, 2.0, 5.0, 2.0]);
        assert_eq!(ranks(&[0.0, 0.0]), [1.5, 1.5]);
    }

    #[test]
    fn the_opposite_order_is_minus_one() {
        let (up, down) = ([1.0, 2.0, 3.0, 4.0], [8.0, 6.0, 4.0, 2.0]);
        assert_eq!(pair_correlation(&up, &down), Some(-1.0));
        assert!(rank_correlation(&up, &down).is_some_and(|value| (value + 1.0).abs() < 1e-12));
    }

    #[test]
    fn what_only_the_second_does_not_tell_apart_counts_against_it() {
        assert_eq!(pair_correlation(&[1.0, 2.0, 3.0], &[1.0, 1.0, 2.0]), Some(2.0 / 3.0));
    }

    #[test]
    fn the_geometric_mean_is_of_ratios() {
        assert!(geometric_mean([0.5, 2.0]).is_some_and(|mean| (mean - 1.0).abs() < 1e-12));
        assert_eq!(geometric_mean([]), None);
    }
}
