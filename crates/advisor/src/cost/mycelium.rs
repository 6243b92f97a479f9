//! The cost model of Mycelium (Appendix B): equations 3 to 5 and the formulas for points, ranges and space.
//!
//! Symbols (Table 4): `N` bytes of data, `B` bytes of write buffer, `T` the size ratio, `R` bytes of a record, `blksz`
//! bytes of a block, `Z` files in level 0, `P_false` the filters' false positive rate, `L` levels. Ours in words: a
//! *step* is a compaction that transforms (a "cross-column family compaction"; `n` of them), a *piece* what a record
//! becomes (`s_n` pieces after the last step).
//!
//! The worked examples of the paper round on the way. [`Estimate`] carries the value with the paper's roundings beside
//! the exact one:
//!
//! - Sizes are in binary units: 100 TB is 100·2^40 bytes (with decimal units the throughputs come out as 52.91 and
//!   42.20 in place of 52.75 and 42.10).
//! - Points: `R/blksz` is rounded up to whole blocks for every piece. Without it, the 1.1 block reads of the convert
//!   example would be 0.95, and the 8.13 of the split example 1.35.
//! - Ranges: blocks are 4,000 bytes, not the 4,096 of the point examples, and the blocks per record are rounded to two
//!   decimals: 3,500/4,000 is taken as 0.88, 625/4,000 as 0.16.
//! - The range cost of the untransformed tree is printed as 138.88; the value is 138.888..., cut and not rounded.

use mycelium_transform::Warning;

/// A value with the paper's roundings, and without.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// As the paper's worked examples compute it.
    pub paper: f64,
    /// As its formula says.
    pub exact: f64,
}

/// What the write model knows of a tree.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DataSize {
    /// `N`: bytes of data.
    pub data: f64,
    /// `B`: bytes of the write buffer.
    pub buffer: f64,
    /// `T`: how many times larger each level is than the one above; above 1.
    pub size_ratio: f64,
}

impl DataSize {
    /// `L = log_T(N/B)` (B.0.2), not rounded to whole levels.
    pub fn levels(&self) -> f64 {
        (self.data / self.buffer).log(self.size_ratio)
    }

    /// `WA_CWT = 1 + T/(T-1) · log_T(N/B)`: the write amplification of a tree that transforms nothing (in eq. 3).
    pub fn write_amplification(&self) -> f64 {
        1.0 + self.size_ratio / (self.size_ratio - 1.0) * self.levels()
    }

    /// `WA_TEC = WA_CWT + n`: that of a tree with `steps` transforming compactions (after eq. 4).
    /// See [`step_bound_warning`] for the range of `n`.
    pub fn transforming_write_amplification(&self, steps: u32) -> f64 {
        self.write_amplification() + f64::from(steps)
    }
}

/// Equation 3: the largest write throughput of a tree that transforms nothing. In the unit of `disk_write`, bytes per
/// second say.
///
/// ```
/// use mycelium_advisor::cost::mycelium::{DataSize, max_throughput, max_transforming_throughput_at_disk_speed};
///
/// let size = DataSize { data: 100.0 * 2f64.powi(40), buffer: 64.0 * 2f64.powi(20), size_ratio: 10.0 };
/// assert_eq!(format!("{:.2}", max_throughput(&size, 417.0)), "52.75");
/// assert_eq!(format!("{:.2}", max_transforming_throughput_at_disk_speed(&size, 2, 417.0)), "42.10");
/// ```
pub fn max_throughput(size: &DataSize, disk_write: f64) -> f64 {
    disk_write / size.write_amplification()
}

/// Equation 4: the largest write throughput of a tree with `steps` transforming compactions, where reading (at
/// `disk_read`) and transforming (at `transform`) one after the other may be slower than writing.
pub fn max_transforming_throughput(
    size: &DataSize,
    steps: u32,
    disk_write: f64,
    disk_read: f64,
    transform: f64,
) -> f64 {
    let read_and_transform = disk_read * transform / (disk_read + transform);
    disk_write.min(read_and_transform) / size.transforming_write_amplification(steps)
}

/// Equation 5: equation 4 where writing is the slowest of the three.
pub fn max_transforming_throughput_at_disk_speed(size: &DataSize, steps: u32, disk_write: f64) -> f64 {
    disk_write / size.transforming_write_amplification(steps)
}

/// A warning if the number of transforming compactions is outside the model's bound, `1 <= n < T/2` (after eq. 4).
///
/// ```
/// use mycelium_advisor::cost::mycelium::step_bound_warning;
///
/// assert_eq!(step_bound_warning(4, 10.0), None);
/// assert!(step_bound_warning(5, 10.0).is_some());
/// ```
pub fn step_bound_warning(steps: u32, size_ratio: f64) -> Option<String> {
    if steps == 0 {
        return Some("0 transforming compactions: the cost model of transformations begins at 1".to_owned());
    }
    Warning::of_steps(steps as usize, size_ratio).map(|warning| warning.to_string())
}

/// What the point model knows of a tree.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PointQuery {
    /// `L`: levels.
    pub levels: f64,
    /// `Z`: files in level 0.
    pub level0_files: f64,
    /// `n`: transforming compactions; each leaves a destination with a level 0 of its own. 0 for none.
    pub steps: u32,
    /// `P_false`: the filters' false positive rate.
    pub false_positives: f64,
    /// `R`: bytes of a piece of a record after the last step; of the record where it is not split.
    pub piece_bytes: f64,
    /// `blksz`: bytes of a block.
    pub block_bytes: f64,
}

impl PointQuery {
    /// `C_PQRA = (L + Z(1+n)) · P_false + R/blksz · s_n`: the blocks read for a whole record, which lies in `pieces`
    /// pieces (B.0.2). The formula's false positives count one group; reading all of them would meet `pieces` times
    /// as many.
    ///
    /// ```
    /// use mycelium_advisor::cost::mycelium::PointQuery;
    ///
    /// let split = PointQuery {
    ///     levels: 5.0,
    ///     level0_files: 2.0,
    ///     steps: 3,
    ///     false_positives: 0.01,
    ///     piece_bytes: 5_000.0 / 8.0,
    ///     block_bytes: 4_096.0,
    /// };
    /// assert_eq!(format!("{:.2}", split.record_cost(8).paper), "8.13");
    /// assert_eq!(format!("{:.2}", split.field_cost().paper), "1.13");
    /// ```
    pub fn record_cost(&self, pieces: u32) -> Estimate {
        let files = self.levels + self.level0_files * (1.0 + f64::from(self.steps));
        let wasted = files * self.false_positives;
        let blocks = self.piece_bytes / self.block_bytes;
        let pieces = f64::from(pieces);
        Estimate { paper: wasted + blocks.ceil() * pieces, exact: wasted + blocks * pieces }
    }

    /// `C_PQRC = (L + Z(1+n)) · P_false + R/blksz`: the blocks read for one field (B.0.2).
    pub fn field_cost(&self) -> Estimate {
        self.record_cost(1)
    }
}

/// `m/T^(L-i)`: the entries that a range of `selected` entries meets at level `level` of a tree that transforms nothing
/// (B.0.3).
pub fn entries_at_level(selected: f64, size_ratio: f64, levels: u32, level: u32) -> f64 {
    selected * size_ratio.powf(f64::from(level) - f64::from(levels))
}

/// `m(n+T^i)/T^L`: the same in a tree with `steps` transforming compactions (B.0.3).
pub fn transforming_entries_at_level(selected: f64, size_ratio: f64, levels: u32, level: u32, steps: u32) -> f64 {
    selected * (f64::from(steps) + size_ratio.powf(f64::from(level))) / size_ratio.powf(f64::from(levels))
}

/// `m·R/blksz · Σ_i T^(i-L)`: the blocks that a range of `selected` entries reads in a tree that transforms nothing
/// (B.0.3).
///
/// ```
/// use mycelium_advisor::cost::mycelium::range_cost;
///
/// let cost = range_cost(100.0, 5_000.0, 4_000.0, 10.0, 6);
/// assert!(cost.paper > 138.88 && cost.paper < 138.89);
/// ```
pub fn range_cost(selected: f64, record_bytes: f64, block_bytes: f64, size_ratio: f64, levels: u32) -> Estimate {
    let scanned: f64 = (0..=levels).map(|level| entries_at_level(selected, size_ratio, levels, level)).sum();
    let blocks = record_bytes / block_bytes;
    Estimate { paper: scanned * two_decimals(blocks), exact: scanned * blocks }
}

/// `m/blksz · ( Σ_j R_j / T^L + R_n · Σ_i T^(i-L) )`: the same in a tree with transforming compactions (B.0.3).
/// `piece_bytes[j]` is what the range reads of a record after step `j+1`; the last is `R_n`. 0 without steps.
pub fn transforming_range_cost(
    selected: f64,
    piece_bytes: &[f64],
    block_bytes: f64,
    size_ratio: f64,
    levels: u32,
) -> Estimate {
    let Some(&last) = piece_bytes.last() else { return Estimate { paper: 0.0, exact: 0.0 } };
    let in_level0 = entries_at_level(selected, size_ratio, levels, 0);
    let of_level0: Estimate = piece_bytes.iter().fold(Estimate { paper: 0.0, exact: 0.0 }, |sum, piece| {
        let blocks = piece / block_bytes;
        Estimate { paper: sum.paper + two_decimals(blocks), exact: sum.exact + blocks }
    });
    let below = range_cost(selected, last, block_bytes, size_ratio, levels);
    Estimate { paper: in_level0 * of_level0.paper + below.paper, exact: in_level0 * of_level0.exact + below.exact }
}

/// Half a hundredth rounds up: 0.875 is 0.88.
fn two_decimals(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// `1/T`: the worst space amplification of a tree that transforms nothing, and of one that creates an index (B.0.4).
pub fn space_amplification(size_ratio: f64) -> f64 {
    1.0 / size_ratio
}

/// `K·(s_n-1)·N/(R·T)`: what splitting into `pieces` adds for repeated keys (B.0.4). As printed, it is in the unit of
/// `data`: bytes for `N` bytes of data, a share of the data for `data = 1`. With `N` the bytes of data, `N/R` are the
/// records; `key_bytes` is `K`.
///
/// ```
/// use mycelium_advisor::cost::mycelium::split_space_amplification;
///
/// // 8 pieces of records of 5,000 bytes repeat a key of 16 bytes 7 times.
/// let share = split_space_amplification(16.0, 8, 1.0, 5_000.0, 10.0);
/// assert!((share - 16.0 * 7.0 / 50_000.0).abs() < 1e-12);
/// ```
pub fn split_space_amplification(key_bytes: f64, pieces: u32, data: f64, record_bytes: f64, size_ratio: f64) -> f64 {
    key_bytes * (f64::from(pieces) - 1.0) * data / (record_bytes * size_ratio)
}

/// `N·R'/(R·T)`: the worst space amplification after conversion of records of `record_bytes` to `converted_bytes`
/// (B.0.4), in the unit of `data`.
pub fn convert_space_amplification(converted_bytes: f64, data: f64, record_bytes: f64, size_ratio: f64) -> f64 {
    data * converted_bytes / (record_bytes * size_ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: DataSize =
        DataSize { data: 100.0 * (1u64 << 40) as f64, buffer: 64.0 * (1u64 << 20) as f64, size_ratio: 10.0 };

    /// The tree that the examples compare with: L = 6, Z = 2, no step, records of 5,000 bytes.
    const UNTRANSFORMED: PointQuery = PointQuery {
        levels: 6.0,
        level0_files: 2.0,
        steps: 0,
        false_positives: 0.01,
        piece_bytes: 5_000.0,
        block_bytes: 4_096.0,
    };
    const CONVERT: PointQuery = PointQuery { steps: 1, piece_bytes: 5_000.0 * 0.7, ..UNTRANSFORMED };
    const SPLIT: PointQuery = PointQuery { levels: 5.0, steps: 3, piece_bytes: 5_000.0 / 8.0, ..UNTRANSFORMED };

    fn rounded(value: f64) -> String {
        format!("{value:.2}")
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
    }

    /// B.0.1: 52.75 MB/s, 42.10 MB/s, "an approximate 20% reduction".
    #[test]
    fn write_throughput_of_b_0_1() {
        let plain = max_throughput(&EXAMPLE, 417.0);
        let transforming = max_transforming_throughput_at_disk_speed(&EXAMPLE, 2, 417.0);
        assert_eq!((rounded(plain), rounded(transforming)), ("52.75".to_owned(), "42.10".to_owned()));
        let reduction = 1.0 - transforming / plain;
        assert_eq!(format!("{:.0}", 100.0 * reduction), "20");
        // Without the binary units it is not what the paper prints.
        let decimal = DataSize { data: 100e12, buffer: 64e6, size_ratio: 10.0 };
        assert_eq!(rounded(max_throughput(&decimal, 417.0)), "52.91");
        assert_eq!(rounded(max_transforming_throughput_at_disk_speed(&decimal, 2, 417.0)), "42.20");
    }

    #[test]
    fn a_slow_transformation_is_the_bottleneck_of_equation_4() {
        let fast = max_transforming_throughput(&EXAMPLE, 2, 417.0, 1e9, 1e9);
        assert!(near(fast, max_transforming_throughput_at_disk_speed(&EXAMPLE, 2, 417.0)));
        let slow = max_transforming_throughput(&EXAMPLE, 2, 417.0, 500.0, 500.0);
        assert!(near(slow, 250.0 / EXAMPLE.transforming_write_amplification(2)));
    }

    /// B.0.2: 1.1, 8.13, 1.13 and 2.08 block reads; the exact values beside them.
    #[test]
    fn points_of_b_0_2() {
        assert_eq!(rounded(CONVERT.record_cost(1).paper), "1.10");
        assert_eq!(rounded(CONVERT.field_cost().paper), "1.10");
        assert_eq!(rounded(SPLIT.record_cost(8).paper), "8.13");
        assert_eq!(rounded(SPLIT.field_cost().paper), "1.13");
        assert_eq!(rounded(UNTRANSFORMED.record_cost(1).paper), "2.08");

        assert_eq!(rounded(CONVERT.record_cost(1).exact), "0.95");
        assert_eq!(rounded(SPLIT.record_cost(8).exact), "1.35");
        assert_eq!(rounded(SPLIT.field_cost().exact), "0.28");
        assert_eq!(rounded(UNTRANSFORMED.record_cost(1).exact), "1.30");
    }

    /// B.0.3: 97.78, 17.78 and 138.88 block reads, improvements of 87.2% and 29.6%; m = 100, T = 10.
    #[test]
    fn ranges_of_b_0_3() {
        let block = 4_000.0;
        let convert = transforming_range_cost(100.0, &[3_500.0], block, 10.0, 6);
        let split = transforming_range_cost(100.0, &[2_500.0, 1_250.0, 625.0], block, 10.0, 5);
        let plain = range_cost(100.0, 5_000.0, block, 10.0, 6);
        assert_eq!((two_decimals(3_500.0 / block), two_decimals(625.0 / block)), (0.88, 0.16));
        assert_eq!(rounded(convert.paper), "97.78");
        assert_eq!(rounded(split.paper), "17.78");
        // 138.888875: the paper cuts it after two decimals.
        assert_eq!(rounded((plain.paper * 100.0).floor() / 100.0), "138.88");
        assert_eq!(format!("{:.1}", 100.0 * (1.0 - split.paper / plain.paper)), "87.2");
        assert_eq!(format!("{:.1}", 100.0 * (1.0 - convert.paper / plain.paper)), "29.6");

        // With the formulas' own values and the blocks of the point examples.
        assert_eq!(rounded(convert.exact), "97.22");
        assert_eq!(rounded(split.exact), "17.36");
        assert_eq!(rounded(plain.exact), "138.89");
        assert_eq!(rounded(transforming_range_cost(100.0, &[3_500.0], 4_096.0, 10.0, 6).exact), "94.94");
        assert_eq!(
            rounded(transforming_range_cost(100.0, &[2_500.0, 1_250.0, 625.0], 4_096.0, 10.0, 5).exact),
            "16.96"
        );
        assert_eq!(rounded(range_cost(100.0, 5_000.0, 4_096.0, 10.0, 6).exact), "135.63");
    }

    #[test]
    fn the_range_formulas_are_the_sums_of_their_levels() {
        let levels = 6;
        let plain: f64 = (0..=levels).map(|level| entries_at_level(100.0, 10.0, levels, level)).sum();
        assert!(near(range_cost(100.0, 4_000.0, 4_000.0, 10.0, levels).exact, plain));
        let steps = transforming_entries_at_level(100.0, 10.0, levels, 0, 3) - entries_at_level(100.0, 10.0, levels, 0);
        assert!(near(steps, 3.0 * 100.0 / 1e6));
        assert_eq!(transforming_range_cost(100.0, &[], 4_000.0, 10.0, 6).exact, 0.0);
        // A transformation that changes nothing adds one pass over its level 0.
        let idle = transforming_range_cost(100.0, &[5_000.0], 4_000.0, 10.0, 6).exact;
        let base = range_cost(100.0, 5_000.0, 4_000.0, 10.0, 6).exact;
        assert!(near(idle - base, 100.0 * 1.25 / 1e6));
    }

    /// B.0.4 prints formulas only.
    #[test]
    fn space_of_b_0_4() {
        assert_eq!(space_amplification(10.0), 0.1);
        assert_eq!(split_space_amplification(16.0, 1, 1e9, 5_000.0, 10.0), 0.0);
        assert!(near(split_space_amplification(16.0, 8, 5_000.0, 5_000.0, 10.0), 16.0 * 7.0 / 10.0));
        assert!(near(convert_space_amplification(3_500.0, 1.0, 5_000.0, 10.0), 0.07));
        assert!(near(convert_space_amplification(5_000.0, 1.0, 5_000.0, 10.0), space_amplification(10.0)));
    }

    #[test]
    fn steps_outside_the_bound_are_warned_of() {
        assert!(step_bound_warning(0, 10.0).is_some());
        for steps in 1..5 {
            assert_eq!(step_bound_warning(steps, 10.0), None);
        }
        assert!(step_bound_warning(5, 10.0).unwrap().contains("fewer than 5"));
        assert!(step_bound_warning(1, 2.0).is_some());
        assert!(step_bound_warning(1, f64::NAN).is_some());
    }
}
