//! The exact sum of floats: in fixed point, so wide that no float is rounded, whatever comes in whatever order.
//!
//! 1. The lowest bit is 2^-1074, the least that a float has; 2,176 bits in two's complement hold 2^77 of the greatest.
//!    A float is its 53 bits of mantissa, shifted to where its exponent says, and added.
//! 2. What is no number is remembered beside: NaN, and infinities of either sign.
//! 3. The sum is rounded once, at its end, to the nearest float, of two to the even one; beyond the greatest it is
//!    infinite. Infinities of both signs give NaN, as NaN does; a sum of zeros is 0.0 whatever their signs.
//!
//! So parts are added up in any order and give the same, which running sums of floats do not.
//!
//! ```text
//! u8        1 NaN, 2 infinity, 4 minus infinity, added up
//! u8        words of 64 bits that are 0, below those that follow
//! bytes     the rest, little-endian two's complement, as short as can be; of 0 one byte
//! ```

use mycelium_base::{Error, Result};

use super::state::shortest;

const WORDS: usize = 34;
/// Bits of a mantissa, the one that is not stored included.
const MANTISSA: usize = 53;

const NAN: u8 = 1;
const INFINITY: u8 = 2;
const MINUS_INFINITY: u8 = 4;

/// A sum of floats; see the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FloatSum {
    words: [u64; WORDS],
    no_numbers: u8,
}

impl Default for FloatSum {
    fn default() -> Self {
        Self { words: [0; WORDS], no_numbers: 0 }
    }
}

impl FloatSum {
    /// Adds a float. O(1), and O(width) where the sum changes its sign.
    pub(super) fn add(&mut self, value: f64) {
        if !value.is_finite() {
            self.no_numbers |= match (value.is_nan(), value.is_sign_positive()) {
                (true, _) => NAN,
                (false, true) => INFINITY,
                (false, false) => MINUS_INFINITY,
            };
            return;
        }
        let bits = value.to_bits();
        let (exponent, fraction) = ((bits >> 52 & 0x7ff) as usize, bits & ((1 << 52) - 1));
        let mantissa = if exponent == 0 { fraction } else { fraction | 1 << 52 };
        let place = exponent.max(1) - 1;
        let shifted = u128::from(mantissa) << (place % 64);
        let (low, high) = (shifted as u64, (shifted >> 64) as u64);
        match value.is_sign_positive() {
            true => self.change(place / 64, (low, high), u64::overflowing_add),
            false => self.change(place / 64, (low, high), u64::overflowing_sub),
        }
    }

    /// Adds two words to, or subtracts them from, those from a place on.
    fn change(&mut self, place: usize, (low, high): (u64, u64), change: fn(u64, u64) -> (u64, bool)) {
        let mut carry = false;
        for (at, word) in self.words[place..].iter_mut().enumerate() {
            let part = [low, high].get(at).copied().unwrap_or_default();
            let (changed, first) = change(*word, part);
            let (changed, second) = change(changed, carry.into());
            (*word, carry) = (changed, first || second);
            if at > 0 && !carry {
                break;
            }
        }
    }

    /// Adds another sum.
    pub(super) fn merge(&mut self, other: &Self) {
        let mut carry = false;
        for (word, more) in self.words.iter_mut().zip(other.words) {
            let (sum, first) = word.overflowing_add(more);
            let (sum, second) = sum.overflowing_add(carry.into());
            (*word, carry) = (sum, first || second);
        }
        self.no_numbers |= other.no_numbers;
    }

    /// The sum, rounded.
    pub(super) fn round(&self) -> f64 {
        match self.no_numbers {
            0 => {}
            INFINITY => return f64::INFINITY,
            MINUS_INFINITY => return f64::NEG_INFINITY,
            _ => return f64::NAN,
        }
        let is_negative = self.words[WORDS - 1] >> 63 == 1;
        let mut words = self.words;
        if is_negative {
            let mut carry = true;
            for word in &mut words {
                (*word, carry) = (!*word).overflowing_add(carry.into());
            }
        }
        let magnitude = rounded(&words);
        if is_negative { -magnitude } else { magnitude }
    }

    /// Appends the stored form.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let skipped = self.words.iter().position(|&word| word != 0).unwrap_or(0);
        let mut bytes = [0; 8 * WORDS];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(self.words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let rest = &bytes[8 * skipped..];
        out.extend_from_slice(&[self.no_numbers, skipped as u8]);
        out.extend_from_slice(&rest[..shortest(rest)]);
    }

    /// Reads it, if it is as [`FloatSum::encode`] writes it.
    pub(super) fn decode(stored: &[u8]) -> Result<Self> {
        let malformed = || Error::corruption("malformed sum of floats in a summary");
        let [no_numbers, skipped, number @ ..] = stored else { return Err(malformed()) };
        let (start, last) = (8 * usize::from(*skipped), number.last().ok_or_else(malformed)?);
        let mut bytes = [if last & 0x80 == 0 { 0 } else { 0xff }; 8 * WORDS];
        let room = bytes.get_mut(start..start + number.len()).ok_or_else(malformed)?;
        room.copy_from_slice(number);
        bytes[..start].fill(0);
        let mut sum = Self { words: [0; WORDS], no_numbers: *no_numbers };
        for (word, bytes) in sum.words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        let mut again = Vec::with_capacity(stored.len());
        sum.encode(&mut again);
        let is_known = no_numbers & !(NAN | INFINITY | MINUS_INFINITY) == 0;
        if is_known && again == stored { Ok(sum) } else { Err(malformed()) }
    }
}

/// The nearest float to a number that is not negative, of two the even one.
fn rounded(words: &[u64; WORDS]) -> f64 {
    let Some(top) = words.iter().rposition(|&word| word != 0) else { return 0.0 };
    let highest = 64 * top + 63 - words[top].leading_zeros() as usize;
    let Some(shift) = (highest + 1).checked_sub(MANTISSA) else {
        // A float's least bits: below 2^52 one without the leading bit, else the first with it.
        return f64::from_bits(words[0]);
    };
    let (place, within) = (shift / 64, shift % 64);
    let high = words.get(place + 1).copied().unwrap_or_default();
    let mantissa = ((u128::from(high) << 64 | u128::from(words[place])) >> within) as u64;
    let goes_up = shift.checked_sub(1).is_some_and(|half| {
        let (place, bit) = (half / 64, 1 << (half % 64));
        let is_more = words[place] & (bit - 1) != 0 || words[..place].iter().any(|&word| word != 0);
        words[place] & bit != 0 && (is_more || mantissa & 1 == 1)
    });
    // What is rounded up to the next power of two carries into the exponent, and beyond the greatest into infinity's.
    let bits = ((shift as u64 + 1) << 52) + (mantissa - (1 << 52)) + u64::from(goes_up);
    f64::from_bits(bits.min(f64::INFINITY.to_bits()))
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn sum(values: &[f64]) -> FloatSum {
        let mut sum = FloatSum::default();
        values.iter().for_each(|&value| sum.add(value));
        let mut bytes = Vec::new();
        sum.encode(&mut bytes);
        assert_eq!(FloatSum::decode(&bytes).unwrap(), sum, "{bytes:?}");
        sum
    }

    /// Any bits, or such as are near each other.
    fn drawn(rng: &mut SmallRng) -> f64 {
        loop {
            let value = match rng.random_range(0..4) {
                0 => f64::from_bits(rng.random()),
                1 => f64::from(rng.random_range(-1000_i32..1000)) / 8.0,
                2 => f64::from_bits(rng.random_range(0..1 << 54)),
                _ => rng.random_range(-1e300..1e300),
            };
            if value.is_finite() {
                return value;
            }
        }
    }

    #[test]
    fn a_float_is_its_own_sum() {
        let mut rng = SmallRng::seed_from_u64(1);
        let edges = [f64::MAX, f64::MIN, f64::MIN_POSITIVE, 5e-324, -5e-324, 1.0, -1.0, 4503599627370496.0];
        for value in edges.into_iter().chain((0..2000).map(|_| drawn(&mut rng))) {
            assert_eq!(sum(&[value]).round(), value);
            assert_eq!(sum(&[value, -value]).round().to_bits(), 0, "{value}");
        }
        assert_eq!(sum(&[-0.0, -0.0]).round().to_bits(), 0);
    }

    /// Of two floats the processor rounds the exact sum, as we do.
    #[test]
    fn two_floats_give_what_the_processor_gives() {
        let mut rng = SmallRng::seed_from_u64(2);
        for _ in 0..20_000 {
            let (a, b) = (drawn(&mut rng), drawn(&mut rng));
            if a + b != 0.0 {
                assert_eq!(sum(&[a, b]).round().to_bits(), (a + b).to_bits(), "{a} + {b}");
            }
        }
        assert_eq!(sum(&[f64::MAX, f64::MAX]).round(), f64::INFINITY);
        assert_eq!(sum(&[f64::MAX, f64::MAX, f64::MIN]).round(), f64::MAX);
    }

    #[test]
    fn order_and_parts_do_not_matter() {
        let mut rng = SmallRng::seed_from_u64(3);
        for _ in 0..200 {
            let mut values: Vec<f64> = (0..rng.random_range(1..40)).map(|_| drawn(&mut rng)).collect();
            let whole = sum(&values);
            for at in (1..values.len()).rev() {
                values.swap(at, rng.random_range(0..=at));
            }
            let (left, right) = values.split_at(rng.random_range(0..=values.len()));
            let mut parts = sum(right);
            parts.merge(&sum(left));
            assert_eq!(parts, whole, "{values:?}");
        }
        // What a running sum loses.
        assert_eq!(sum(&[1e16, 1.0, -1e16]).round(), 1.0);
        assert_eq!(sum(&[0.1; 10]).round(), 1.0);
    }

    #[test]
    fn what_is_no_number_stays() {
        let (nan, infinity) = (f64::NAN, f64::INFINITY);
        assert!(sum(&[nan, 1.0, infinity]).round().is_nan());
        assert_eq!(sum(&[1.0, infinity, infinity]).round(), infinity);
        assert_eq!(sum(&[-infinity, f64::MAX]).round(), -infinity);
        assert!(sum(&[-infinity, infinity]).round().is_nan());
    }

    #[test]
    fn stored_sums_have_one_form() {
        let bytes = |values: &[f64]| {
            let mut bytes = Vec::new();
            sum(values).encode(&mut bytes);
            bytes
        };
        assert_eq!(bytes(&[]), [0, 0, 0]);
        // 2^0 is bit 1,074: that of number 50 of word 16.
        assert_eq!(bytes(&[1.0]), [0, 16, 0, 0, 0, 0, 0, 0, 4]);
        assert_eq!(bytes(&[-1.0, f64::INFINITY]), [2, 16, 0, 0, 0, 0, 0, 0, 0xfc]);
        for malformed in [&[][..], &[0, 0], &[0, 1, 0], &[0, 34, 1], &[8, 0, 1], &[0, 0, 1, 0], &[0; 300]] {
            assert!(FloatSum::decode(malformed).is_err(), "{malformed:?}");
        }
    }
}
