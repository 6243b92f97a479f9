//! The cost model of LSM-OPD (§4.2, Table 1): what compactions and value filters cost in a tree of plain values, in one
//! with heavily compressed files, and in one whose files hold codes of an order-preserving dictionary each.
//!
//! Symbols (Table 1): `N` pairs inserted, `l_i` the level of file `i` (levels count from 1), `F` bytes of a file, `T`
//! the size ratio, `D_i` distinct values in file `i`, `S_K`, `S_V` and `S_O` bytes of a key, a value and a code, `C_K`,
//! `C_C`, `C_E`, `C_D` and `C_S` instructions a byte to merge, copy, compress, decompress and compare, `r` the
//! selectivity of a filter, `S_I` bytes that one vector instruction compares, `m` files of the tree.
//!
//! Where the paper leaves a choice, or does not hold as it stands:
//!
//! - Megabytes are 10^6 bytes and logarithms of `D_i` are binary: only so do 32 MB hold 1,600,000 pairs of 20 bytes and
//!   does "about 90,000" come out (91,050; with 2^20 bytes 95,110).
//! - The NDV ratio is of distinct values to pairs *of a file*. With a table's, the dictionaries of §5.3 at 10 % would
//!   not stay below 1 GB.
//! - `m` is not rounded: the last file counts with the part of it that is filled, so that files hold the bytes of the
//!   tree. Every file has the same `D_i`.
//! - Bytes of dictionaries are in no `F` and no `C_IO`, although each is written with its file: `S_V·D_i`, a fifth of
//!   it by Table 1. See [`Terms::dictionary_bytes`].
//! - `C_IO` of a compaction counts the bytes that are copied, once. They are read and written.
//! - How well heavy compression does is not said: [`Scheme::Compressed`] asks for it. "The least I/O" is true of ratios
//!   above `(S_K+S_V)/(S_K+S_O)`, which is 4 by Table 1.
//! - Compressing and decompressing are charged for every byte of a compressed file (`F`), where Table 1 says "of
//!   value".
//! - `I_1` takes `C_K = C_C = C_S`. With Table 1's `C_C = 0.3` a tree of codes, which has fewer bytes to copy, gains
//!   less: it loses to the plain one from 3.5 % on, not 5.7 % (see the tests). Table 1's own `D_i` is above both.
//! - `S_I` is 512 bytes in Table 1, where AVX-512 has 512 bits.
//! - The work on qualified rows "can be neglected" beside a scan of values. It is most of what is left of a scan of
//!   codes: at `r` = 1 % the filter is 158 times as cheap by the formulas and not `S_I·S_V/S_O` = 8,192 times.
//! - Figure 4's axes are not in the text. [`series`] has the number of pairs as its own.

/// What the model knows of a tree, its values and the machine (Table 1).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Terms {
    /// `N`: pairs inserted.
    pub entries: f64,
    /// `F`: bytes of a file.
    pub file_bytes: f64,
    /// `T`: how many times larger each level is than the one above; above 1.
    pub size_ratio: f64,
    /// `D_i`: distinct values in each file; at least 1.
    pub distinct_values: f64,
    /// `S_K`: bytes of a key.
    pub key_bytes: f64,
    /// `S_V`: bytes of a value.
    pub value_bytes: f64,
    /// `S_O`: bytes of a value's code.
    pub code_bytes: f64,
    /// `C_K`: instructions a byte to merge keys.
    pub merge_cost: f64,
    /// `C_C`: instructions a byte to copy.
    pub copy_cost: f64,
    /// `C_E`: instructions a byte to compress heavily.
    pub compress_cost: f64,
    /// `C_D`: instructions a byte to decompress that.
    pub decompress_cost: f64,
    /// `C_S`: instructions a byte to compare strings.
    pub compare_cost: f64,
    /// `r`: the share of rows that a filter finds, 0 to 1.
    pub selectivity: f64,
    /// `S_I`: bytes that a vector instruction compares.
    pub vector_bytes: f64,
}

/// How a tree holds its values.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scheme {
    /// As they are.
    Plain,
    /// In files that are compressed as a whole.
    Compressed {
        /// Bytes before over bytes after.
        ratio: f64,
    },
    /// As codes of a dictionary per file.
    Dictionary,
}

/// What an operation costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// `C_IO`, bytes.
    pub io: f64,
    /// `C_CPU`, instructions.
    pub cpu: f64,
}

/// What one operation costs in the three trees.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Comparison {
    /// [`Scheme::Plain`].
    pub plain: Cost,
    /// [`Scheme::Compressed`].
    pub compressed: Cost,
    /// [`Scheme::Dictionary`].
    pub dictionary: Cost,
}

/// A point of [`series`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SeriesPoint {
    /// Pairs inserted.
    pub entries: f64,
    /// All compactions until they have gone down.
    pub compaction: Comparison,
    /// One filter.
    pub filter: Comparison,
}

impl Terms {
    /// The reference values of Table 1, with the largest of its size ratios.
    pub const TABLE_1: Self = Self {
        entries: 16_777_216.0,
        file_bytes: 32e6,
        size_ratio: 10.0,
        distinct_values: 1e5,
        key_bytes: 16.0,
        value_bytes: 64.0,
        code_bytes: 4.0,
        merge_cost: 1.0,
        copy_cost: 0.3,
        compress_cost: 50.0,
        decompress_cost: 20.0,
        compare_cost: 1.0,
        selectivity: 0.01,
        vector_bytes: 512.0,
    };

    /// Bytes of a pair in a file: `S_K+S_V`, that over the ratio, or `S_K+S_O` (§4.2.1).
    pub fn stored_pair_bytes(&self, scheme: Scheme) -> f64 {
        match scheme {
            Scheme::Plain => self.key_bytes + self.value_bytes,
            Scheme::Compressed { ratio } => (self.key_bytes + self.value_bytes) / ratio,
            Scheme::Dictionary => self.key_bytes + self.code_bytes,
        }
    }

    /// `m`, `m'` or `m''`: the files of the tree, the last as the part of it that is filled.
    ///
    /// ```
    /// use mycelium_advisor::cost::lsm_opd::{Scheme, Terms};
    ///
    /// let terms = Terms { entries: 16e6, ..Terms::TABLE_1 };
    /// assert_eq!((terms.files(Scheme::Plain), terms.files(Scheme::Dictionary)), (40.0, 10.0));
    /// ```
    pub fn files(&self, scheme: Scheme) -> f64 {
        self.entries * self.stored_pair_bytes(scheme) / self.file_bytes
    }

    /// `F/(S_K+S_O)`: the pairs that a file of codes holds.
    pub fn entries_per_file(&self) -> f64 {
        self.file_bytes / self.stored_pair_bytes(Scheme::Dictionary)
    }

    /// `S_V·D_i·m''`: the bytes of all dictionaries. Not in the paper's formulas.
    pub fn dictionary_bytes(&self) -> f64 {
        self.value_bytes * self.distinct_values * self.files(Scheme::Dictionary)
    }

    /// `D_i log D_i`.
    fn dictionary_order(&self) -> f64 {
        self.distinct_values * self.distinct_values.log2()
    }

    /// `r·N·[S_K·C_K + (S_K+S_V)·C_C]`: what a filter does with the rows that it finds, the same in every tree.
    fn cost_of_found(&self) -> f64 {
        let merge = self.key_bytes * self.merge_cost;
        let copy = (self.key_bytes + self.value_bytes) * self.copy_cost;
        self.selectivity * self.entries * (merge + copy)
    }
}

/// `l_i = ⌈log_T(i(T-1)+1)⌉`: the level of the `file`-th file, from 1 on, in a tree whose level 1 is one file (§4.2.1).
///
/// ```
/// use mycelium_advisor::cost::lsm_opd::level_of_file;
///
/// assert_eq!([1.0, 2.0, 11.0, 12.0, 111.0, 112.0].map(|file| level_of_file(file, 10.0)), [1.0, 2.0, 2.0, 3.0, 3.0, 4.0]);
/// ```
pub fn level_of_file(file: f64, size_ratio: f64) -> f64 {
    let level = (file * (size_ratio - 1.0) + 1.0).log(size_ratio);
    // A logarithm that is an integer but for the last bits is that integer.
    let nearest = level.round();
    if (level - nearest).abs() < 1e-9 { nearest } else { level.ceil() }
}

/// `Σ_i l_i` over so many files; of a last file that is not whole, its part. In closed form: O(1).
///
/// ```
/// use mycelium_advisor::cost::lsm_opd::sum_of_levels;
///
/// assert_eq!(sum_of_levels(40.0, 10.0), 1.0 + 10.0 * 2.0 + 29.0 * 3.0);
/// assert_eq!(sum_of_levels(0.5, 10.0), 0.5);
/// ```
pub fn sum_of_levels(files: f64, size_ratio: f64) -> f64 {
    let t = size_ratio;
    let last = level_of_file(files, t);
    let above = t.powf(last - 1.0);
    // Level j holds T^(j-1) files: those of the levels above the last are (T^(last-1) - 1)/(T-1), and their levels add
    // up to the derivative of a geometric sum.
    let files_above = (above - 1.0) / (t - 1.0);
    let levels_above = ((last - 1.0) * above * t - last * above + 1.0) / ((t - 1.0) * (t - 1.0));
    levels_above + last * (files - files_above)
}

/// All compactions of a tree, until what was inserted has gone down (§4.2.1):
/// `C_IO = Σ_i F·l_i·T`, and `C_CPU = Σ_i (N/m·S_K·C_K + F·C_C + recoding)·l_i·T`, where recoding is nothing for plain
/// values, `F·(C_D+C_E)` for compressed ones and `S_V·C_S·D_i log D_i` for dictionaries.
pub fn compaction_cost(terms: &Terms, scheme: Scheme) -> Cost {
    let copies = sum_of_levels(terms.files(scheme), terms.size_ratio) * terms.size_ratio;
    let file = terms.file_bytes;
    let keys = file / terms.stored_pair_bytes(scheme) * terms.key_bytes;
    let recoding = match scheme {
        Scheme::Plain => 0.0,
        Scheme::Compressed { .. } => file * (terms.decompress_cost + terms.compress_cost),
        Scheme::Dictionary => terms.value_bytes * terms.compare_cost * terms.dictionary_order(),
    };
    Cost { io: file * copies, cpu: (keys * terms.merge_cost + file * terms.copy_cost + recoding) * copies }
}

/// One filter on values over the whole tree (§4.2.2): `C_IO = m·F`, and for `C_CPU` what is done with the rows found,
/// besides `N·S_V·C_S` for plain values, that and `m'·F·C_D` for compressed ones, and `Σ_i log D_i·S_V·C_S +
/// N·S_O·C_S/S_I` for dictionaries.
pub fn filter_cost(terms: &Terms, scheme: Scheme) -> Cost {
    let files = terms.files(scheme);
    let io = files * terms.file_bytes;
    let compare = terms.entries * terms.value_bytes * terms.compare_cost;
    let search = match scheme {
        Scheme::Plain => compare,
        Scheme::Compressed { .. } => io * terms.decompress_cost + compare,
        Scheme::Dictionary => {
            let look_up = files * terms.distinct_values.log2() * terms.value_bytes * terms.compare_cost;
            look_up + terms.entries * terms.code_bytes * terms.compare_cost / terms.vector_bytes
        }
    };
    Cost { io, cpu: search + terms.cost_of_found() }
}

/// `parallelism / compress_ratio = S_I·S_V/S_O`: how many times as cheap it is to filter codes as to filter values,
/// where neither look-ups in dictionaries nor the rows found count (§4.2.2).
///
/// ```
/// use mycelium_advisor::cost::lsm_opd::{Terms, ideal_filter_gain};
///
/// assert_eq!(ideal_filter_gain(&Terms::TABLE_1), 8_192.0);
/// ```
pub fn ideal_filter_gain(terms: &Terms) -> f64 {
    terms.vector_bytes * terms.value_bytes / terms.code_bytes
}

/// `A = S_V·D_i log D_i / (F·(1 + S_K/(S_K+S_O))) + 1`: how many times the work of merging and copying a compaction of
/// dictionaries does, where all costs a byte are alike (§4.2.1).
pub fn dictionary_factor(terms: &Terms) -> f64 {
    let keys = terms.key_bytes / terms.stored_pair_bytes(Scheme::Dictionary);
    terms.value_bytes * terms.dictionary_order() / (terms.file_bytes * (1.0 + keys)) + 1.0
}

/// `Σ_{i≤d·m''} l_i / (d·Σ_{i≤m''} l_i)`: how much deeper files of values lie on average than files of codes. At least
/// 1, and 1 where all lie in one level; the paper writes "> 1".
pub fn depth_factor(terms: &Terms) -> f64 {
    let (values, codes) = (terms.files(Scheme::Plain), terms.files(Scheme::Dictionary));
    let mean_level = |files: f64| sum_of_levels(files, terms.size_ratio) / files;
    mean_level(values) / mean_level(codes)
}

/// `C_CPU/C''_CPU` of compactions where all costs a byte are alike:
/// `(2S_K+S_V)/(A·(2S_K+S_O))` times [`depth_factor`] (§4.2.1).
pub fn compaction_gain(terms: &Terms) -> f64 {
    let per_pair = |bytes: f64| 2.0 * terms.key_bytes + bytes;
    per_pair(terms.value_bytes) / (dictionary_factor(terms) * per_pair(terms.code_bytes)) * depth_factor(terms)
}

/// The right side of `I_1`, `F/S_V · (S_V-S_O)/(S_K+S_O)`, below which `D_i log D_i` must stay.
pub fn dictionary_bound(terms: &Terms) -> f64 {
    let saved = terms.value_bytes - terms.code_bytes;
    terms.file_bytes / terms.value_bytes * saved / terms.stored_pair_bytes(Scheme::Dictionary)
}

/// `I_1`: whether compactions of dictionaries take less work than those of plain values by this model, even in trees of
/// the same depth.
///
/// ```
/// use mycelium_advisor::cost::lsm_opd::{Terms, dictionary_pays};
///
/// let one_percent = Terms { distinct_values: 16_000.0, ..Terms::TABLE_1 };
/// assert!(dictionary_pays(&one_percent));
/// assert!(!dictionary_pays(&Terms::TABLE_1)); // 100,000 of 1,600,000
/// ```
pub fn dictionary_pays(terms: &Terms) -> bool {
    terms.dictionary_order() < dictionary_bound(terms)
}

/// The border of `I_1`: the `D_i` at which both sides are equal. 1 where a code is as long as a value.
///
/// ```
/// use mycelium_advisor::cost::lsm_opd::{Terms, most_distinct_values};
///
/// assert_eq!(most_distinct_values(&Terms::TABLE_1).round(), 91_050.0); // "about 90,000"
/// ```
pub fn most_distinct_values(terms: &Terms) -> f64 {
    let bound = dictionary_bound(terms);
    if !bound.is_finite() {
        return bound;
    }
    // From 2 on D is at most D log D.
    let (mut low, mut high) = (1.0, bound.max(2.0));
    for _ in 0..f64::MANTISSA_DIGITS {
        let middle = f64::midpoint(low, high);
        if middle * middle.log2() < bound { low = middle } else { high = middle }
    }
    low
}

/// The border of `I_1` as the share of a file's pairs that have a value of their own, `D_i/(F/(S_K+S_O))`.
pub fn most_distinct_share(terms: &Terms) -> f64 {
    most_distinct_values(terms) / terms.entries_per_file()
}

/// Figure 4: compactions and a filter in the three trees, by the number of pairs. `ratio` is that of the heavy
/// compression.
pub fn series(terms: &Terms, ratio: f64, entries: &[f64]) -> Vec<SeriesPoint> {
    let compare = |of: &dyn Fn(Scheme) -> Cost| Comparison {
        plain: of(Scheme::Plain),
        compressed: of(Scheme::Compressed { ratio }),
        dictionary: of(Scheme::Dictionary),
    };
    let point = |&entries: &f64| {
        let terms = Terms { entries, ..*terms };
        SeriesPoint {
            entries,
            compaction: compare(&|scheme| compaction_cost(&terms, scheme)),
            filter: compare(&|scheme| filter_cost(&terms, scheme)),
        }
    };
    entries.iter().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compresses a little better than codes of 4 bytes do.
    const HEAVY: Scheme = Scheme::Compressed { ratio: 5.0 };

    /// Table 1 with the NDV of "real datasets": 1 % of a file's pairs.
    const ONE_PERCENT: Terms = Terms { distinct_values: 16_000.0, ..Terms::TABLE_1 };

    const VALUE_SIZES: [f64; 6] = [32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
    }

    fn percent(share: f64) -> String {
        format!("{:.1}", 100.0 * share)
    }

    /// §4.2.1: 32 MB hold 1,600,000 pairs; "about 90,000"; the ratio is above 5 % whatever the sizes of values and
    /// files are.
    #[test]
    fn the_border_of_section_4_2_1() {
        let terms = Terms::TABLE_1;
        assert_eq!(terms.entries_per_file(), 1_600_000.0);
        assert_eq!(most_distinct_values(&terms).round(), 91_050.0);
        assert_eq!(percent(most_distinct_share(&terms)), "5.7");
        let binary = Terms { file_bytes: 32.0 * 1_048_576.0, ..terms };
        assert_eq!(most_distinct_values(&binary).round(), 95_110.0);
        for file_bytes in [16e6, 32e6, 64e6] {
            for value_bytes in VALUE_SIZES {
                let share = most_distinct_share(&Terms { file_bytes, value_bytes, ..terms });
                assert!((0.05..0.065).contains(&share), "{file_bytes} {value_bytes}: {share}");
            }
        }
    }

    /// The border is where both sides of I_1 meet and where the ratio of costs without depth is 1.
    #[test]
    fn the_border_is_where_the_costs_meet() {
        let border = most_distinct_values(&Terms::TABLE_1);
        let at = |distinct_values| Terms { distinct_values, ..Terms::TABLE_1 };
        assert!(dictionary_pays(&at(border * 0.999)) && !dictionary_pays(&at(border * 1.001)));
        assert!(near(at(border).dictionary_order(), dictionary_bound(&at(border))));
        assert!(near(compaction_gain(&at(border)), depth_factor(&at(border))));
    }

    /// [`compaction_gain`] is the quotient of the two sums where all costs are 1.
    #[test]
    fn the_gain_is_the_quotient_of_the_costs() {
        for distinct_values in [1.0, 16_000.0, 1e5, 8e5] {
            for value_bytes in VALUE_SIZES {
                let terms = Terms { distinct_values, value_bytes, copy_cost: 1.0, ..Terms::TABLE_1 };
                let costs = [Scheme::Plain, Scheme::Dictionary].map(|scheme| compaction_cost(&terms, scheme).cpu);
                assert!(near(compaction_gain(&terms), costs[0] / costs[1]), "{distinct_values} {value_bytes}");
            }
        }
    }

    /// With Table 1's own costs a byte, codes lose to plain values earlier than I_1 says.
    #[test]
    fn the_border_with_the_costs_of_table_1() {
        let costs_less = |share: f64| {
            let terms = Terms { distinct_values: share * Terms::TABLE_1.entries_per_file(), ..Terms::TABLE_1 };
            compaction_cost(&terms, Scheme::Dictionary).cpu < compaction_cost(&terms, Scheme::Plain).cpu
        };
        let border = (1..=1_000).map(|step| f64::from(step) / 10_000.0).find(|share| !costs_less(*share));
        assert_eq!(border.map(percent), Some("3.5".to_owned()));
    }

    /// §4.2.1 and Figure 4: heavy compression has the least I/O and the most work, codes follow closely in the one and
    /// have the least in the other.
    #[test]
    fn the_orderings_of_compaction() {
        for value_bytes in VALUE_SIZES {
            let terms = Terms { value_bytes, ..ONE_PERCENT };
            let ratio = 1.25 * terms.stored_pair_bytes(Scheme::Plain) / terms.stored_pair_bytes(Scheme::Dictionary);
            let point = series(&terms, ratio, &[terms.entries])[0].compaction;
            assert!(point.compressed.io < point.dictionary.io && point.dictionary.io < point.plain.io);
            assert!(point.dictionary.cpu < point.plain.cpu && point.plain.cpu < point.compressed.cpu, "{point:?}");
        }
        // Compression below the ratio of the codes has more I/O than these.
        let poor = compaction_cost(&ONE_PERCENT, Scheme::Compressed { ratio: 3.9 });
        assert!(poor.io > compaction_cost(&ONE_PERCENT, Scheme::Dictionary).io);
        // "Hundreds of times greater than the overheads of normal data copying."
        let recompression = (ONE_PERCENT.compress_cost + ONE_PERCENT.decompress_cost) / ONE_PERCENT.copy_cost;
        assert_eq!(recompression.round(), 233.0);
    }

    /// §4.2.2: codes are second in I/O and first in work; the look-up "is negligibly small compared to O(N)".
    #[test]
    fn the_orderings_of_filters() {
        let point = series(&Terms::TABLE_1, 5.0, &[Terms::TABLE_1.entries])[0].filter;
        assert!(point.compressed.io < point.dictionary.io && point.dictionary.io < point.plain.io);
        assert!(point.dictionary.cpu < point.plain.cpu && point.plain.cpu < point.compressed.cpu);
        assert_eq!((point.plain.cpu / point.dictionary.cpu).round(), 158.0);
        let nothing_found = Terms { selectivity: 0.0, ..Terms::TABLE_1 };
        let look_up = Terms { vector_bytes: f64::INFINITY, ..nothing_found };
        let plain = filter_cost(&nothing_found, Scheme::Plain).cpu;
        assert!(filter_cost(&look_up, Scheme::Dictionary).cpu < 1e-4 * plain);
        let without_look_up = Terms { distinct_values: 1.0, ..nothing_found };
        let gain = plain / filter_cost(&without_look_up, Scheme::Dictionary).cpu;
        assert!(near(gain, ideal_filter_gain(&Terms::TABLE_1)));
    }

    /// §5.1: 6.4 x 10^7 pairs with values of 32 to 1,024 bytes are 2.86 to 62.0 GB (binary). §5.3: their dictionaries,
    /// with files of 64 MB and values of 128 bytes, stay below 1 GB up to an NDV of 10 %.
    #[test]
    fn the_sizes_of_section_5() {
        let bytes = |value_bytes| 6.4e7 * Terms { value_bytes, ..Terms::TABLE_1 }.stored_pair_bytes(Scheme::Plain);
        assert_eq!(format!("{:.2}", bytes(32.0) / 2f64.powi(30)), "2.86");
        assert_eq!(format!("{:.1}", bytes(1024.0) / 2f64.powi(30)), "62.0");
        let terms = Terms { entries: 6.4e7, file_bytes: 64e6, value_bytes: 128.0, ..Terms::TABLE_1 };
        let ten_percent = Terms { distinct_values: 0.1 * terms.entries_per_file(), ..terms };
        assert_eq!((ten_percent.dictionary_bytes() / 1e6).round(), 819.0);
        // 10 % of the table are more than a file holds: nearly every value of a file is another.
        let of_table = Terms { distinct_values: 0.7 * terms.entries_per_file(), ..terms };
        assert!(of_table.dictionary_bytes() > 5e9);
    }

    #[test]
    fn the_closed_form_is_the_sum_over_files() {
        for size_ratio in [2.0, 3.0, 4.0, 10.0] {
            let mut sum = 0.0;
            for file in 1..2_000 {
                let level = level_of_file(f64::from(file), size_ratio);
                assert!(near(sum_of_levels(f64::from(file) - 0.5, size_ratio), sum + 0.5 * level));
                sum += level;
                assert!(near(sum_of_levels(f64::from(file), size_ratio), sum), "{file} {size_ratio}");
            }
        }
        // Table 1: no file below level 5.
        assert!(level_of_file(Terms::TABLE_1.files(Scheme::Plain), 10.0) <= 5.0);
    }

    #[test]
    fn costs_grow_with_what_they_are_made_of() {
        type Change = fn(Terms, f64) -> Terms;
        let grows: [(Scheme, Change); 8] = [
            (Scheme::Plain, |terms, by| Terms { entries: terms.entries * by, ..terms }),
            (Scheme::Plain, |terms, by| Terms { value_bytes: terms.value_bytes * by, ..terms }),
            (Scheme::Plain, |terms, by| Terms { copy_cost: terms.copy_cost * by, ..terms }),
            (HEAVY, |terms, by| Terms { decompress_cost: terms.decompress_cost * by, ..terms }),
            (HEAVY, |terms, by| Terms { entries: terms.entries * by, ..terms }),
            (Scheme::Dictionary, |terms, by| Terms { distinct_values: terms.distinct_values * by, ..terms }),
            (Scheme::Dictionary, |terms, by| Terms { code_bytes: terms.code_bytes * by, ..terms }),
            (Scheme::Dictionary, |terms, by| Terms { value_bytes: terms.value_bytes * by, ..terms }),
        ];
        for (at, (scheme, change)) in grows.into_iter().enumerate() {
            for cost in [compaction_cost, filter_cost] {
                let series: Vec<f64> =
                    [1.0, 2.0, 8.0, 64.0].map(|by| cost(&change(ONE_PERCENT, by), scheme).cpu).to_vec();
                assert!(series.is_sorted_by(|a, b| a < b), "{at}: {series:?}");
            }
        }
        let gains: Vec<f64> = [1e3, 1e4, 1e5, 1e6]
            .map(|distinct_values| compaction_gain(&Terms { distinct_values, ..Terms::TABLE_1 }))
            .to_vec();
        assert!(gains.is_sorted_by(|a, b| a > b));
    }

    #[test]
    fn borders_and_what_lies_outside_the_model() {
        // Nothing inserted costs nothing; one distinct value makes a dictionary free.
        let empty = Terms { entries: 0.0, ..Terms::TABLE_1 };
        for scheme in [Scheme::Plain, HEAVY, Scheme::Dictionary] {
            assert_eq!(compaction_cost(&empty, scheme), Cost { io: 0.0, cpu: 0.0 });
            assert_eq!(filter_cost(&empty, scheme), Cost { io: 0.0, cpu: 0.0 });
        }
        let single = Terms { distinct_values: 1.0, ..Terms::TABLE_1 };
        assert_eq!(dictionary_factor(&single), 1.0);
        assert!(dictionary_pays(&single));
        // A code as long as the value never pays.
        let no_gain = Terms { value_bytes: 4.0, distinct_values: 1.0, ..Terms::TABLE_1 };
        assert_eq!((dictionary_pays(&no_gain), most_distinct_values(&no_gain)), (false, 1.0));
        // One level: no depth to gain.
        assert_eq!(depth_factor(&Terms { entries: 100.0, ..Terms::TABLE_1 }), 1.0);
        assert!(most_distinct_values(&Terms { value_bytes: 0.0, ..Terms::TABLE_1 }).is_infinite());
        assert!(most_distinct_values(&Terms { file_bytes: f64::NAN, ..Terms::TABLE_1 }).is_nan());
        for size_ratio in [1.0, 0.0, f64::NAN] {
            let cost = compaction_cost(&Terms { size_ratio, ..Terms::TABLE_1 }, Scheme::Plain);
            assert!(!cost.io.is_finite(), "{size_ratio}: {cost:?}");
        }
    }
}
