//! Which key an operation touches: the request distributions of YCSB.
//!
//! The Zipfian draw is the one of Gray et al., "Quickly Generating Billion-Record Synthetic Databases" (SIGMOD 1994),
//! as YCSB uses it:
//!
//! 1. zeta(n, theta) = sum of 1 / i^theta for i in 1..=n, computed once;
//! 2. a uniform u in [0, 1) becomes rank 0 if u * zeta < 1, rank 1 if u * zeta < 1 + 0.5^theta, else
//!    n * (eta * u - eta + 1)^alpha with alpha = 1 / (1 - theta).
//!
//! That closed form needs theta < 1. For theta >= 1 (Kim et al. use 1.1) ranks are drawn by rejection-inversion of
//! Hörmann and Derflinger (1996), which is exact for every theta > 0.

use rand::Rng;
use serde::{Deserialize, Serialize};

use crate::keys::mix;

/// A request distribution over the indexes `0..n`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Skew {
    /// Every index alike.
    Uniform,
    /// Zipfian ranks with this exponent, scattered over the indexes by a hash.
    Zipfian(f64),
    /// Zipfian distance from the newest index.
    Latest(f64),
}

/// YCSB's exponent.
pub const YCSB_THETA: f64 = 0.99;

/// Draws indexes. Cheap to clone; not shared.
#[derive(Clone, Debug)]
pub struct Chooser {
    skew: Skew,
    ranks: Ranks,
}

#[derive(Clone, Debug)]
enum Ranks {
    None,
    Gray { n: f64, zeta: f64, eta: f64, alpha: f64, second: f64 },
    Rejection { n: f64, theta: f64, low: f64, high: f64, shift: f64 },
}

impl Chooser {
    /// A chooser over `n` indexes (at least 2). O(n) for a Zipfian with an exponent under 1.
    pub fn new(skew: Skew, n: u64) -> Self {
        let ranks = match skew {
            Skew::Uniform => Ranks::None,
            Skew::Zipfian(theta) | Skew::Latest(theta) if theta < 1.0 => {
                let zeta: f64 = (1..=n).map(|i| (i as f64).powf(-theta)).sum();
                let second = 1.0 + 0.5f64.powf(theta);
                let eta = (1.0 - (2.0 / n as f64).powf(1.0 - theta)) / (1.0 - second / zeta);
                Ranks::Gray { n: n as f64, zeta, eta, alpha: 1.0 / (1.0 - theta), second }
            }
            Skew::Zipfian(theta) | Skew::Latest(theta) => {
                let theta = if theta == 1.0 { 1.0 + 1e-9 } else { theta };
                let high = integral(n as f64 + 0.5, theta);
                let low = integral(1.5, theta) - 1.0;
                let shift = 2.0 - inverse_integral(integral(2.5, theta) - 2f64.powf(-theta), theta);
                Ranks::Rejection { n: n as f64, theta, low, high, shift }
            }
        };
        Self { skew, ranks }
    }

    /// An index below `n`, which may have grown since `new`.
    #[inline]
    pub fn draw(&self, n: u64, rng: &mut impl Rng) -> u64 {
        match self.skew {
            Skew::Uniform => rng.random_range(0..n),
            Skew::Zipfian(_) => mix(self.rank(rng)) % n,
            Skew::Latest(_) => n - 1 - self.rank(rng) % n,
        }
    }

    /// A rank by the law of the skew, 0 the most frequent; always 0 without one.
    #[inline]
    pub(crate) fn rank(&self, rng: &mut impl Rng) -> u64 {
        match self.ranks {
            Ranks::None => 0,
            Ranks::Gray { n, zeta, eta, alpha, second } => {
                let u: f64 = rng.random();
                let scaled = u * zeta;
                if scaled < 1.0 {
                    0
                } else if scaled < second {
                    1
                } else {
                    ((n * (eta * u - eta + 1.0).powf(alpha)) as u64).min(n as u64 - 1)
                }
            }
            Ranks::Rejection { n, theta, low, high, shift } => loop {
                let u = high + rng.random::<f64>() * (low - high);
                let x = inverse_integral(u, theta);
                let k = x.round().clamp(1.0, n);
                if k - x <= shift || u >= integral(k + 0.5, theta) - k.powf(-theta) {
                    break k as u64 - 1;
                }
            },
        }
    }
}

/// The integral of x^-theta, up to a constant (theta is not 1).
fn integral(x: f64, theta: f64) -> f64 {
    (x.powf(1.0 - theta) - 1.0) / (1.0 - theta)
}

fn inverse_integral(y: f64, theta: f64) -> f64 {
    (1.0 + y * (1.0 - theta)).powf(1.0 / (1.0 - theta))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{SeedableRng, rngs::SmallRng};

    #[test]
    fn zipfian_ranks_have_the_frequencies_of_the_law() {
        let n = 1000u64;
        for theta in [0.5, 0.99, 1.0, 1.1, 2.0] {
            let chooser = Chooser::new(Skew::Zipfian(theta), n);
            let mut rng = SmallRng::seed_from_u64(7);
            let draws = 400_000;
            let mut seen = vec![0u64; n as usize];
            for _ in 0..draws {
                seen[chooser.rank(&mut rng) as usize] += 1;
            }
            let zeta: f64 = (1..=n).map(|i| (i as f64).powf(-theta)).sum();
            for rank in [0usize, 1] {
                let expected = draws as f64 * ((rank + 1) as f64).powf(-theta) / zeta;
                let found = seen[rank] as f64;
                assert!((found / expected - 1.0).abs() < 0.1, "theta {theta} rank {rank}: {found} for {expected}");
            }
            let tail: u64 = seen[100..].iter().sum();
            let expected: f64 = (101..=n).map(|i| (i as f64).powf(-theta)).sum::<f64>() / zeta * draws as f64;
            assert!((tail as f64 / expected - 1.0).abs() < 0.1, "theta {theta} tail: {tail} for {expected}");
        }
    }

    #[test]
    fn every_skew_stays_in_range_while_the_table_grows() {
        let mut rng = SmallRng::seed_from_u64(1);
        for skew in [Skew::Uniform, Skew::Zipfian(YCSB_THETA), Skew::Latest(YCSB_THETA), Skew::Zipfian(1.1)] {
            let chooser = Chooser::new(skew, 100);
            for n in [100, 150] {
                assert!((0..1000).all(|_| chooser.draw(n, &mut rng) < n));
            }
        }
    }
}
