//! Floats that are decimals: an integer divided by a power of ten, bit by bit what was stored (in the manner of ALP).
//!
//! Prices and measurements are mostly of this kind, and their integers take a fraction of their bits. A page is encoded
//! so only if every value of it is: no NaN, infinity or -0.0, and no integer over 2^53, or 2^24 of a float32, up to
//! where every integer is a float. A float is multiplied and rounded to its integer, which never makes a smaller one of
//! a larger float, and its integer divided gives it again. So integers compare as the floats do.

use super::ordinal::ordinal as ordinal_of;
use crate::{ColumnType, DatumRef};

pub(super) const MAX_EXPONENT: u8 = 15;
/// Of a float32: its integers must stay apart, too.
const MAX_EXPONENT_SINGLE: u8 = 6;
const MAX_INTEGER: i64 = 1 << 53;
const MAX_INTEGER_SINGLE: i64 = 1 << 24;

/// 10^e, for all exponents that there are; where a function computes a power, its last bit is the platform's affair.
const POWERS: [f64; MAX_EXPONENT as usize + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// The power of an exponent, which is at most [`MAX_EXPONENT`].
#[inline]
fn power(exponent: u8) -> f64 {
    POWERS[usize::from(exponent.min(MAX_EXPONENT))]
}

fn limits(kind: &ColumnType) -> (i64, u8) {
    if *kind == ColumnType::Float32 { (MAX_INTEGER_SINGLE, MAX_EXPONENT_SINGLE) } else { (MAX_INTEGER, MAX_EXPONENT) }
}

/// The ordinal of the float that an integer stands for.
#[inline]
pub(super) fn ordinal(kind: &ColumnType, integer: i64, exponent: u8) -> i64 {
    let value = integer as f64 / power(exponent);
    let datum = if *kind == ColumnType::Float32 { DatumRef::Float32(value as f32) } else { DatumRef::Float64(value) };
    ordinal_of(datum).unwrap_or_default()
}

/// The integers of float ordinals and their exponent, if all are decimals of the same one.
pub(super) fn integers(kind: &ColumnType, ordinals: &[i64]) -> Option<(Vec<i64>, u8)> {
    let (most, max_exponent) = limits(kind);
    let mut exponent = 0;
    let integer = |of: i64, exponent: u8| {
        let value = match super::ordinal::datum(kind, of) {
            DatumRef::Float32(value) => f64::from(value),
            DatumRef::Float64(value) => value,
            _ => return None,
        };
        let scaled = (value * power(exponent)).round();
        let fits = scaled.abs() <= most as f64;
        fits.then_some(scaled as i64).filter(|&integer| ordinal(kind, integer, exponent) == of)
    };
    // The largest exponent that any value needs; most pages without one show it by their first values.
    for &of in ordinals {
        exponent = (exponent..=max_exponent).find(|&exponent| integer(of, exponent).is_some())?;
    }
    let integers = ordinals.iter().map(|&of| integer(of, exponent)).collect::<Option<_>>()?;
    Some((integers, exponent))
}

/// The range of integers whose floats lie within a range of ordinals.
pub(super) fn range(kind: &ColumnType, (least, greatest): (i64, i64), exponent: u8) -> Option<(i64, i64)> {
    let first = |not_before: &dyn Fn(i64) -> bool| {
        let (most, _) = limits(kind);
        let (mut low, mut high) = (-most, most + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            if not_before(middle) { high = middle } else { low = middle + 1 }
        }
        low
    };
    let from = first(&|integer| ordinal(kind, integer, exponent) >= least);
    let to = first(&|integer| ordinal(kind, integer, exponent) > greatest) - 1;
    (from <= to).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordinals(values: &[f64]) -> Vec<i64> {
        values.iter().map(|&value| ordinal_of(DatumRef::Float64(value)).unwrap()).collect()
    }

    #[test]
    fn powers_are_those_of_ten() {
        for exponent in 0..=MAX_EXPONENT {
            assert_eq!(power(exponent), 10_u64.pow(u32::from(exponent)) as f64);
        }
    }

    #[test]
    fn only_exact_decimals_are_taken() {
        let kind = ColumnType::Float64;
        assert_eq!(integers(&kind, &ordinals(&[1.25, -3.5, 0.0, 100.0])), Some((vec![125, -350, 0, 10_000], 2)));
        for other in [f64::NAN, -0.0, f64::INFINITY, 1.0 / 3.0, 1e300] {
            assert_eq!(integers(&kind, &ordinals(&[1.25, other])), None, "{other}");
        }
        let single = ordinal_of(DatumRef::Float32(0.1)).unwrap();
        assert_eq!(integers(&ColumnType::Float32, &[single]), Some((vec![1], 1)));
    }

    /// Of the largest integers two may make the same float when they are divided.
    #[test]
    fn integers_compare_as_their_floats_do_up_to_the_largest() {
        let kind = ColumnType::Float64;
        let mut floats: Vec<f64> = (0..200).rev().map(|below| (MAX_INTEGER - below) as f64 / 10.0).collect();
        floats.dedup();
        assert!(floats.len() < 200);
        let (integers, exponent) = integers(&kind, &ordinals(&floats)).unwrap();
        assert!(integers.windows(2).all(|pair| pair[0] < pair[1]));
        for (&integer, of) in integers.iter().zip(ordinals(&floats)) {
            assert_eq!(ordinal(&kind, integer, exponent), of);
            let (from, to) = range(&kind, (of, of), exponent).unwrap();
            assert!((from..=to).contains(&integer));
        }
    }

    #[test]
    fn ranges_of_floats_are_ranges_of_integers() {
        let kind = ColumnType::Float64;
        let of = |low: f64, high: f64| range(&kind, (ordinals(&[low])[0], ordinals(&[high])[0]), 2);
        assert_eq!(of(1.0, 2.0), Some((100, 200)));
        assert_eq!(of(0.999, 2.001), Some((100, 200)));
        assert_eq!(of(1.001, 1.009), None);
        assert_eq!(of(-1.5, -0.01), Some((-150, -1)));
        assert_eq!(range(&kind, (i64::MIN, i64::MAX), 2), Some((-MAX_INTEGER, MAX_INTEGER)));
    }
}
