//! How many different values a column has, about: the registers of a HyperLogLog (Flajolet et al. 2007), which join, so
//! that those of a table's files say how many values the table has, whichever of them are in several files.
//!
//! 1. A value has a hash of 64 bits: an integer its mixed bits, a text the hash that filters use.
//! 2. The lowest eight bits choose one of [`REGISTERS`]; it keeps the greatest number of zeros that the rest of a hash
//!    begins with, and one more.
//! 3. The estimate is the harmonic mean of what each register alone would say; where registers are still empty, and it
//!    is small, what the number of these says (linear counting).
//! 4. A hash is not cheap beside the encoding of a value, so that one row of [`ROWS_A_NOTE`] is noted, but for texts
//!    with a dictionary, of which each is noted once. What was not seen is reckoned as if every value were in as many
//!    rows as any other: of `D` values in `n` rows, of which a share `s` is noted, `D (1 - (1 - s)^(n / D))` are
//!    seen.
//!
//! The standard error of what was seen is 1.04 / sqrt(256), thus 6.5 %; of few values it is less than one of them.
//! Where nearly every noted row has a value of its own the rest is a guess: by half or twice. 256 bytes.

use mycelium_base::hash::{hash_key, mix};

/// Registers of a sketch.
pub const REGISTERS: usize = 256;
const INDEX_BITS: u32 = REGISTERS.trailing_zeros();
/// The greatest number that a register can have.
const MAX_REGISTER: u8 = (u64::BITS - INDEX_BITS + 1) as u8;

/// One row of so many is noted.
pub(super) const ROWS_A_NOTE: usize = 4;

/// Registers that say about how many different values there were.
///
/// ```
/// use mycelium_encoding::page::DistinctSketch;
///
/// let (mut of_file, mut of_other) = (DistinctSketch::default(), DistinctSketch::default());
/// (0..30_000).for_each(|value| of_file.note_ordinal(value % 3000));
/// (2000..5000).for_each(|value| of_other.note_ordinal(value));
/// of_file.add_noted(30_000);
/// of_other.add_noted(3000);
/// assert!((2500..3500).contains(&of_file.estimate(30_000)));
/// of_file.join(&of_other);
/// assert!((4000..6000).contains(&of_file.estimate(33_000)));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DistinctSketch {
    registers: [u8; REGISTERS],
    /// Rows whose values were noted.
    noted: u64,
    /// No hash above it can change a register: all of them have as many zeros.
    limit: u64,
    /// Registers with the smallest number that there is.
    at_least: usize,
}

impl Default for DistinctSketch {
    fn default() -> Self {
        Self { registers: [0; REGISTERS], noted: 0, limit: u64::MAX, at_least: REGISTERS }
    }
}

impl DistinctSketch {
    /// A sketch of these registers, from so many rows; `None` if one is greater than any can be.
    pub fn of_registers(registers: [u8; REGISTERS], noted: u64) -> Option<Self> {
        let mut sketch = Self { registers, noted, ..Self::default() };
        sketch.find_limit();
        registers.iter().all(|&register| register <= MAX_REGISTER).then_some(sketch)
    }

    /// The registers.
    pub fn registers(&self) -> &[u8; REGISTERS] {
        &self.registers
    }

    /// Rows whose values were noted.
    pub fn noted(&self) -> u64 {
        self.noted
    }

    /// So many more rows have values that were noted.
    pub fn add_noted(&mut self, rows: u64) {
        self.noted = self.noted.saturating_add(rows);
    }

    /// There is this integer, or a value that this integer stands for.
    #[inline]
    pub fn note_ordinal(&mut self, ordinal: i64) {
        // Zero, too, has a hash that looks random.
        self.note(mix((ordinal as u64).wrapping_add(0x9e37_79b9_7f4a_7c15)));
    }

    /// There is this integer.
    #[inline]
    pub fn note_wide(&mut self, value: i128) {
        let high = mix(((value >> 64) as u64).wrapping_add(0x9e37_79b9_7f4a_7c15));
        self.note_ordinal((value as u64 ^ high) as i64);
    }

    /// There is this text.
    pub fn note_text(&mut self, text: &[u8]) {
        self.note(hash_key(text));
    }

    #[inline]
    fn note(&mut self, hash: u64) {
        if hash <= self.limit {
            self.note_low(hash);
        }
    }

    fn note_low(&mut self, hash: u64) {
        let register = &mut self.registers[hash as usize % REGISTERS];
        // The bits that chose it do not count.
        let zeros = (hash | (REGISTERS as u64 - 1)).leading_zeros() as u8 + 1;
        if zeros > *register {
            let was_least = self.limit == limit_of(*register);
            *register = zeros;
            self.at_least -= usize::from(was_least);
            if self.at_least == 0 {
                self.find_limit();
            }
        }
    }

    fn find_limit(&mut self) {
        let least = self.registers.iter().copied().min().unwrap_or_default();
        self.limit = limit_of(least);
        self.at_least = self.registers.iter().filter(|&&register| register == least).count();
    }

    /// There are the values of another sketch, too.
    pub fn join(&mut self, other: &Self) {
        for (own, &other) in self.registers.iter_mut().zip(&other.registers) {
            *own = other.max(*own);
        }
        self.add_noted(other.noted);
        self.find_limit();
    }

    /// About how many different values so many rows have, of which some were noted.
    pub fn estimate(&self, rows: u64) -> u64 {
        let seen = self.seen();
        if self.noted >= rows || seen == 0 {
            return seen;
        }
        if seen >= self.noted {
            return rows;
        }
        let (rows, share) = (rows as f64, self.noted as f64 / rows as f64);
        let seen_of = |values: f64| values * (1.0 - (1.0 - share).powf(rows / values));
        // It grows with the values.
        let (mut low, mut high) = (seen as f64, rows);
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            if seen_of(middle) < seen as f64 { low = middle } else { high = middle }
        }
        high.round() as u64
    }

    /// About how many different values were noted.
    fn seen(&self) -> u64 {
        const COUNT: f64 = REGISTERS as f64;
        // The constant of so many registers.
        const BIAS: f64 = 0.7213 / (1.0 + 1.079 / COUNT);
        let sum: f64 = self.registers.iter().map(|&register| 0.5_f64.powi(register.into())).sum();
        let estimate = BIAS * COUNT * COUNT / sum;
        let empty = self.registers.iter().filter(|&&register| register == 0).count();
        if empty > 0 && estimate <= 2.5 * COUNT {
            return (COUNT * (COUNT / empty as f64).ln()).round() as u64;
        }
        estimate.round() as u64
    }
}

/// The greatest hash that can change a register of this number.
fn limit_of(register: u8) -> u64 {
    u64::MAX.checked_shr(register.into()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_near_and_of_few_values_nearer() {
        for (of, error) in [(0, 0), (1, 0), (2, 0), (7, 1), (40, 6), (300, 60), (10_000, 2000), (1_000_000, 200_000)] {
            for stride in [1, 1000, -(1 << 40)] {
                let mut sketch = DistinctSketch::default();
                for value in 0..of {
                    (0..1 + of % 3).for_each(|_| sketch.note_ordinal(value * stride));
                }
                let estimate = sketch.seen() as i64;
                assert!((estimate - of).abs() <= error, "{estimate} of {of} by {stride}");
            }
        }
    }

    #[test]
    fn what_was_not_noted_is_reckoned() {
        const ROWS: i64 = 80_000;
        for (of, least, most) in [(5, 5, 5), (400, 320, 480), (9000, 6500, 12_000), (ROWS, ROWS / 3, ROWS)] {
            let mut sketch = DistinctSketch::default();
            for row in (0..ROWS).step_by(ROWS_A_NOTE) {
                sketch.note_ordinal(mix(row as u64) as i64 % of);
            }
            sketch.add_noted(ROWS as u64 / ROWS_A_NOTE as u64);
            let estimate = sketch.estimate(ROWS as u64) as i64;
            // Both signs.
            assert!((least..=2 * most).contains(&estimate), "{estimate} of {of}");
        }
        assert_eq!(DistinctSketch::default().estimate(100), 0);
    }

    #[test]
    fn texts_and_wide_integers_count_as_integers_do() {
        let (mut texts, mut wide) = (DistinctSketch::default(), DistinctSketch::default());
        for value in 0..20_000_i128 {
            texts.note_text(value.to_string().as_bytes());
            wide.note_wide(((value % 100) << 64) | (value / 100));
        }
        for estimate in [texts.seen(), wide.seen()] {
            assert!((16_000..24_000).contains(&estimate), "{estimate}");
        }
    }

    #[test]
    fn it_is_the_same_whatever_was_left_out_by_its_limit_and_whoever_read_it_back() {
        let (mut whole, mut plain) = (DistinctSketch::default(), [0; REGISTERS]);
        let mut halves = [DistinctSketch::default(), DistinctSketch::default()];
        for value in 0..50_000_i64 {
            whole.note_ordinal(value);
            halves[value as usize % 2].note_ordinal(value);
            let hash = mix((value as u64).wrapping_add(0x9e37_79b9_7f4a_7c15));
            let register = &mut plain[hash as usize % REGISTERS];
            *register = (*register).max((hash | 255).leading_zeros() as u8 + 1);
        }
        assert_eq!(whole.registers(), &plain);
        let [mut joined, other] = halves;
        joined.join(&other);
        assert_eq!(joined, whole);
        assert_eq!(DistinctSketch::of_registers(plain, 0), Some(whole));
        plain[7] = MAX_REGISTER + 1;
        assert_eq!(DistinctSketch::of_registers(plain, 0), None);
    }
}
