//! The values of a table: few distinct strings, drawn again and again.
//!
//! 1. There are `n` values, the letters of their ids spread over six places in front and drawn letters behind: their
//!    order is that of the ids, two of them differ within the first places, and LZ77 finds nothing inside one.
//! 2. An id is drawn uniformly, or is a rank drawn by Zipf's law times a step that is coprime to `n`: frequent values
//!    lie anywhere, and none is drawn for two ranks.
//! 3. A filter takes a range of ids that starts anywhere and ends where it has the wanted share of the rows by that
//!    law. A start from which a frequent value makes it twice as much is drawn anew; if none is found (a law of which
//!    one value has most rows), the range is what the last start gives.
//!
//! `n` is a share of the pairs of a *file* (§5.3 has "the NDV ratio in each SCT file"): it follows the size of files,
//! not that of tables, when the experiment is scaled.

use rand::Rng;

use crate::distribution::{Chooser, Skew};
use crate::keys::mix;
use crate::store::Result;

/// Places in front of a value that tell its id, in letters.
const PLACES: usize = 6;
const LETTERS: u64 = 26;
/// Starts of a range that are tried.
const TRIES: usize = 100;

/// The values of a table, in order.
pub(super) struct Values {
    /// All of them, one behind the other.
    text: String,
    value_bytes: usize,
    skew: Skew,
    chooser: Chooser,
    /// Coprime to the number of values.
    step: u64,
    /// Of each value, the share of rows with it or one before it by the law.
    shares: Vec<f64>,
}

/// Values from `low` on and below `high`; all from `low` on if that is `None`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ValueRange {
    low: String,
    high: Option<String>,
}

impl ValueRange {
    /// The first value of the range, and the first one above it if there is one.
    pub(super) fn bounds(&self) -> (&str, Option<&str>) {
        (&self.low, self.high.as_deref())
    }

    /// Whether a value, in bytes, lies in the range.
    #[inline]
    pub(super) fn contains(&self, value: &[u8]) -> bool {
        value >= self.low.as_bytes() && self.high.as_ref().is_none_or(|high| value < high.as_bytes())
    }
}

impl Values {
    /// So many distinct values of so many bytes (ASCII).
    pub(super) fn new(count: u64, value_bytes: usize, skew: Skew) -> Result<Self> {
        let most = LETTERS.pow(PLACES as u32);
        if !(2..=most).contains(&count) || value_bytes < PLACES {
            return Err(
                format!("{count} values of {value_bytes} bytes; 2 to {most} of {PLACES} or more are possible").into()
            );
        }
        let mut text = String::with_capacity(usize::try_from(count)? * value_bytes);
        for id in 0..count {
            push_value(&mut text, id, most / count, value_bytes);
        }
        let step = (count * 5 / 8..).find(|step| gcd(*step, count) == 1).unwrap_or(1);
        let shares = shares(count, step, skew);
        Ok(Self { text, value_bytes, skew, chooser: Chooser::new(skew, count), step, shares })
    }

    fn count(&self) -> u64 {
        self.shares.len() as u64
    }

    /// Draws the value of a pair.
    #[inline]
    pub(super) fn draw(&self, rng: &mut impl Rng) -> &str {
        let id = match self.skew {
            Skew::Uniform => rng.random_range(0..self.count()),
            Skew::Zipfian(_) | Skew::Latest(_) => self.chooser.rank(rng) * self.step % self.count(),
        };
        self.value(id as usize)
    }

    #[inline]
    fn value(&self, id: usize) -> &str {
        &self.text[id * self.value_bytes..][..self.value_bytes]
    }

    /// Draws a range that this share of the rows lies in, more or less.
    pub(super) fn range(&self, share: f64, rng: &mut impl Rng) -> ValueRange {
        let mut drawn = (0, 0);
        for _ in 0..TRIES {
            let start = rng.random_range(0..self.shares.len());
            let before = if start == 0 { 0.0 } else { self.shares[start - 1] };
            // The shares add up from small errors: half a millionth less is as much.
            let wanted = before + share * (1.0 - 5e-7);
            let end = self.shares.partition_point(|upto| *upto < wanted) + 1;
            drawn = (start, end);
            if end <= self.shares.len() && self.shares[end - 1] - before <= 2.0 * share {
                break;
            }
        }
        let high = (drawn.1 < self.shares.len()).then(|| self.value(drawn.1).to_owned());
        ValueRange { low: self.value(drawn.0).to_owned(), high }
    }
}

fn push_value(text: &mut String, id: u64, spacing: u64, value_bytes: usize) {
    let spread = id * spacing;
    let letter = |number: u64| char::from(b'a' + (number % LETTERS) as u8);
    text.extend((0..PLACES as u32).rev().map(|place| letter(spread / LETTERS.pow(place))));
    text.extend((PLACES..value_bytes).map(|place| letter(mix(id << 16 | place as u64))));
}

fn shares(count: u64, step: u64, skew: Skew) -> Vec<f64> {
    let weight = |rank: u64| match skew {
        Skew::Uniform => 1.0,
        Skew::Zipfian(theta) | Skew::Latest(theta) => ((rank + 1) as f64).powf(-theta),
    };
    let mut shares = vec![0.0; count as usize];
    for rank in 0..count {
        shares[(rank * step % count) as usize] = weight(rank);
    }
    let all: f64 = shares.iter().sum();
    let mut upto = 0.0;
    for share in &mut shares {
        upto += *share / all;
        *share = upto;
    }
    shares
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    const DRAWS: usize = 200_000;

    fn drawn(values: &Values, rng: &mut SmallRng) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for _ in 0..DRAWS {
            *counts.entry(values.draw(rng).to_owned()).or_default() += 1;
        }
        counts
    }

    #[test]
    fn values_are_in_the_order_of_their_ids() {
        for count in [2, 3, 1_000, 50_000] {
            let values = Values::new(count, 32, Skew::Uniform).expect("values");
            let all: Vec<&str> = (0..count as usize).map(|id| values.value(id)).collect();
            assert!(all.is_sorted_by(|a, b| a < b) && all.iter().all(|value| value.len() == 32), "{count}");
        }
        assert!(Values::new(1, 32, Skew::Uniform).is_err() && Values::new(10, 2, Skew::Uniform).is_err());
    }

    #[test]
    fn draws_follow_the_law_and_leave_no_value_out() {
        let mut rng = SmallRng::seed_from_u64(3);
        for skew in [Skew::Uniform, Skew::Zipfian(0.5), Skew::Zipfian(1.0)] {
            let values = Values::new(1_000, 40, skew).expect("values");
            let counts = drawn(&values, &mut rng);
            assert_eq!(counts.len(), 1_000, "{skew:?}");
            let most = counts.values().max().expect("draws");
            let law: f64 = match skew {
                Skew::Zipfian(theta) => 1.0 / (1..=1_000).map(|rank| f64::from(rank).powf(-theta)).sum::<f64>(),
                _ => 1e-3,
            };
            let found = *most as f64 / DRAWS as f64;
            assert!((found / law - 1.0).abs() < 0.35, "{skew:?}: {found} for {law}");
        }
    }

    #[test]
    fn ranges_hold_the_wanted_share_of_the_rows() {
        let mut rng = SmallRng::seed_from_u64(5);
        for skew in [Skew::Uniform, Skew::Zipfian(0.5), Skew::Zipfian(1.0)] {
            let values = Values::new(2_000, 32, skew).expect("values");
            let counts = drawn(&values, &mut rng);
            for share in [0.001, 0.01, 0.1] {
                for _ in 0..10 {
                    let range = values.range(share, &mut rng);
                    let inside = counts.iter().filter(|(value, _)| range.contains(value.as_bytes()));
                    let found = inside.map(|(_, count)| count).sum::<usize>() as f64 / DRAWS as f64;
                    assert!((0.7 * share..2.5 * share).contains(&found), "{skew:?}: {found} for {share}");
                }
            }
        }
    }

    #[test]
    fn a_law_with_one_value_still_gives_ranges() {
        let mut rng = SmallRng::seed_from_u64(7);
        let values = Values::new(2, 32, Skew::Zipfian(2.0)).expect("values");
        for _ in 0..100 {
            let range = values.range(0.01, &mut rng);
            assert!(values.shares.len() == 2 && (0..2).any(|id| range.contains(values.value(id).as_bytes())));
        }
    }
}
