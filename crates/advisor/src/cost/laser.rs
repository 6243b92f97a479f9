//! The cost model of LASER (§2.2, §5, §6.2): equations 1 to 9.
//!
//! Symbols (Table 1): `N` entries, `L` the last level (levels count from 0), `T` the size ratio, `B` entries of a whole
//! row in a block, `pg` blocks in level 0, `c` columns, `g_i` groups at level `i`, `Π` the projected columns, `s` the
//! entries that a range selects. A key counts as one column; every column has the same size.
//!
//! Three places where the printed equations round, which we keep so that the figures are the paper's:
//!
//! - Equations 4, 6, 7 and 9 divide by `c·B` where equation 3 gives `(1+c)·B`: they overstate what they charge by
//!   `(1+c)/c`, the same factor for every layout.
//! - Equation 4 counts `L` levels of values but `L+1` levels of keys. [`summed_write_amplification`] is the sum it was
//!   made from.
//! - Equation 5 charges one block per group; with `O(1)` for rows the false positives of filters are left out.
//!
//! What equation 9 charges is a sum over groups: see [`group_cost`].

use mycelium_base::{ColumnSet, Error, Result};

use crate::trace::{Access, MAX_COLUMNS};

/// What the model knows of a tree besides its layout.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tree {
    /// `T`: how many times larger each level is than the one above; above 1.
    pub size_ratio: f64,
    /// `B`: entries of a whole row, key included, in a block; above 0.
    pub entries_per_block: f64,
    /// `c`: columns besides the key; 1 to [`MAX_COLUMNS`].
    pub columns: usize,
}

impl Tree {
    /// Fails if a parameter is outside the model.
    pub fn check(&self) -> Result<()> {
        let complain = |what: String| Err(Error::invalid(what));
        if !(self.size_ratio.is_finite() && self.size_ratio > 1.0) {
            return complain(format!("a size ratio of {}; it must be above 1", self.size_ratio));
        }
        if !(self.entries_per_block.is_finite() && self.entries_per_block > 0.0) {
            return complain(format!("{} entries in a block; there must be more than 0", self.entries_per_block));
        }
        if self.columns == 0 || self.columns > MAX_COLUMNS {
            return complain(format!("{} columns; 1 to {MAX_COLUMNS} are possible", self.columns));
        }
        Ok(())
    }

    /// `c·B`, by which equations 4, 6, 7 and 9 divide.
    fn values_per_block(&self) -> f64 {
        self.columns as f64 * self.entries_per_block
    }
}

/// The entries that level `level` holds when full: `T^i · B · pg` (§2.2).
///
/// ```
/// use mycelium_advisor::cost::laser::{Tree, level_capacity};
///
/// // Blocks of 4 kB, entries of 100 bytes, a level 0 of 64 MB.
/// let tree = Tree { size_ratio: 2.0, entries_per_block: 40.0, columns: 24 };
/// assert_eq!(level_capacity(&tree, 16_000.0, 0), 640_000.0);
/// assert_eq!(level_capacity(&tree, 16_000.0, 3), 5_120_000.0);
/// ```
pub fn level_capacity(tree: &Tree, level0_blocks: f64, level: usize) -> f64 {
    tree.size_ratio.powf(level as f64) * tree.entries_per_block * level0_blocks
}

/// Equation 1: the last level `L` of a tree with `entries` entries, `⌈log_T(N/(B·pg) · (T-1)/T)⌉`. Levels count from
/// 0, so that the tree has one level more. 0 if everything fits into level 0.
///
/// ```
/// use mycelium_advisor::cost::laser::{Tree, last_level};
///
/// let tree = Tree { size_ratio: 10.0, entries_per_block: 40.0, columns: 24 };
/// assert_eq!(last_level(&tree, 1e9, 16_000.0), 4);
/// ```
pub fn last_level(tree: &Tree, entries: f64, level0_blocks: f64) -> u32 {
    let t = tree.size_ratio;
    let level = (entries / (tree.entries_per_block * level0_blocks) * (t - 1.0) / t).log(t);
    // A logarithm that is an integer but for the last bits is that integer.
    let nearest = level.round();
    let level = if (level - nearest).abs() < 1e-9 { nearest } else { level.ceil() };
    level.max(0.0) as u32
}

/// Equation 2: the columns of all groups of a level, `Σ_j cg_size_j`, which is `c` for a partition of the columns.
pub fn columns_in_groups(groups: &[ColumnSet]) -> usize {
    groups.iter().map(ColumnSet::len).sum()
}

/// Equation 3: the entries of a group of `group_size` columns in a block, `B · (1+c) / (1+cg_size)`.
///
/// ```
/// use mycelium_advisor::cost::laser::{Tree, entries_in_block};
///
/// let tree = Tree { size_ratio: 2.0, entries_per_block: 12.0, columns: 4 };
/// assert_eq!(entries_in_block(&tree, 4), 12.0);
/// assert_eq!(entries_in_block(&tree, 2), 20.0); // 5B/3
/// assert_eq!(entries_in_block(&tree, 1), 30.0); // 5B/2
/// ```
pub fn entries_in_block(tree: &Tree, group_size: usize) -> f64 {
    tree.entries_per_block * (1 + tree.columns) as f64 / (1 + group_size) as f64
}

/// The write amplification of an insert in a tree of rows, in blocks: `T·L/B` (§2.2).
pub fn row_write_amplification(tree: &Tree, last_level: usize) -> f64 {
    tree.size_ratio * last_level as f64 / tree.entries_per_block
}

/// Equation 4: the write amplification of an insert, in blocks, `T·L/B + T/(B·c) · Σ_i g_i`.
/// `groups[i]` is `g_i`; the last is that of level `L`.
///
/// ```
/// use mycelium_advisor::cost::laser::{Tree, write_amplification};
///
/// let tree = Tree { size_ratio: 2.0, entries_per_block: 40.0, columns: 4 };
/// assert_eq!(write_amplification(&tree, &[1, 2, 3, 4]), 2.0 * 3.0 / 40.0 + 2.0 / 160.0 * 10.0);
/// ```
pub fn write_amplification(tree: &Tree, groups: &[usize]) -> f64 {
    let all_groups: usize = groups.iter().sum();
    let keys = tree.size_ratio / tree.values_per_block() * all_groups as f64;
    row_write_amplification(tree, groups.len().saturating_sub(1)) + keys
}

/// The sum that equation 4 simplifies, `Σ_i Σ_j T/B_ji`, without its roundings.
pub fn summed_write_amplification(tree: &Tree, levels: &[Vec<ColumnSet>]) -> f64 {
    levels.iter().flatten().map(|group| tree.size_ratio / entries_in_block(tree, group.len())).sum()
}

/// `E^g`: the groups that a projection needs.
///
/// ```
/// use mycelium_advisor::cost::laser::{required_columns, required_groups};
/// use mycelium_base::ColumnSet;
///
/// let groups = [ColumnSet::from_iter([0, 1]), ColumnSet::from_iter([2, 3])];
/// let (a_c, a_b) = (ColumnSet::from_iter([0, 2]), ColumnSet::from_iter([0, 1]));
/// assert_eq!((required_groups(&groups, &a_c), required_columns(&groups, &a_c)), (2, 6));
/// assert_eq!((required_groups(&groups, &a_b), required_columns(&groups, &a_b)), (1, 3));
/// ```
pub fn required_groups(groups: &[ColumnSet], projection: &ColumnSet) -> usize {
    groups.iter().filter(|group| group.overlaps(projection)).count()
}

/// `E^G`: the sizes of the groups that a projection needs, each with its key, `Σ (1+cg_size)`. In columns.
pub fn required_columns(groups: &[ColumnSet], projection: &ColumnSet) -> usize {
    groups.iter().filter(|group| group.overlaps(projection)).map(|group| 1 + group.len()).sum()
}

/// Equation 5: the blocks that a point read of an existing key fetches at most, `Σ_i E_i^g`.
pub fn point_cost(levels: &[Vec<ColumnSet>], projection: &ColumnSet) -> usize {
    levels.iter().map(|groups| required_groups(groups, projection)).sum()
}

/// The entries that a range of `selected` entries meets at `level`, `s / T^(L-i)` (§2.2: keys are spread evenly).
pub fn selected_at_level(tree: &Tree, selected: f64, last_level: usize, level: usize) -> f64 {
    selected / tree.size_ratio.powf(last_level as f64 - level as f64)
}

/// The blocks that a range of `selected` entries reads in a tree of rows, `s/B · Σ_i 1/T^(L-i)` (§2.2, before it is
/// simplified to `s/B`).
pub fn row_range_cost(tree: &Tree, selected: f64, last_level: usize) -> f64 {
    (0..=last_level).map(|level| selected_at_level(tree, selected, last_level, level) / tree.entries_per_block).sum()
}

/// Equation 6: the blocks that a range read fetches, `Σ_i s_i·E_i^G / (c·B)`. `selected[i]` is `s_i`; a level without
/// one counts as 0.
pub fn range_cost(tree: &Tree, levels: &[Vec<ColumnSet>], projection: &ColumnSet, selected: &[f64]) -> f64 {
    let at_level = |(groups, s): (&Vec<ColumnSet>, &f64)| s * required_columns(groups, projection) as f64;
    levels.iter().zip(selected).map(at_level).sum::<f64>() / tree.values_per_block()
}

/// Equation 7: the write amplification of an update of some columns, in blocks, `Σ_i T·E_i^G / (c·B)`.
pub fn update_amplification(tree: &Tree, levels: &[Vec<ColumnSet>], projection: &ColumnSet) -> f64 {
    let columns: usize = levels.iter().map(|groups| required_columns(groups, projection)).sum();
    tree.size_ratio * columns as f64 / tree.values_per_block()
}

/// The worst space amplification, `1/T`: obsolete entries per live one (§2.2; the same for every layout, §5).
pub fn space_amplification(tree: &Tree) -> f64 {
    1.0 / tree.size_ratio
}

/// What one group adds to equation 9, in blocks.
///
/// With `[G∩Π]` for 1 where group `G` holds a column of `Π`, and 0 elsewhere, the terms of equation 9 are
/// `g_i = Σ_G 1`, `E^g = Σ_G [G∩Π]` and `E^G = Σ_G [G∩Π]·(1+|G|)`. Each is a sum over groups, and the rest of each
/// term does not depend on the groups. So equation 9 is the sum over its groups of
///
/// ```text
/// f(G) = w·T/(B·c) + Σ_points [G∩Π] + (1+|G|) · ( Σ_scans s·[G∩Π] + Σ_updates T·[G∩Π] ) / (c·B)
/// ```
///
/// which does not depend on the other groups. That is what lets [`crate::design`] find optimal partitions by dynamic
/// programming, and solve each group of the level above by itself.
pub fn group_cost(tree: &Tree, inserts: u64, accesses: &[Access], group: &ColumnSet) -> f64 {
    let mut cost = insert_share(tree, inserts);
    for access in accesses.iter().filter(|access| access.columns.overlaps(group)) {
        cost += access.points as f64 + (1 + group.len()) as f64 * cost_per_column(tree, access);
    }
    cost
}

/// What every group costs for being there: `w·T/(B·c)`.
pub(crate) fn insert_share(tree: &Tree, inserts: u64) -> f64 {
    inserts as f64 * tree.size_ratio / tree.values_per_block()
}

/// What scans and updates of an access cost for every column, or key, of a group that they need.
pub(crate) fn cost_per_column(tree: &Tree, access: &Access) -> f64 {
    (access.scanned_entries as f64 + tree.size_ratio * access.updates as f64) / tree.values_per_block()
}

/// Equation 9: what a level's operations cost under its groups, in blocks:
/// `w·T·g_i/(B·c) + Σ_points E^g + Σ_scans s·E^G/(c·B) + Σ_updates T·E^G/(c·B)`.
///
/// ```
/// use mycelium_advisor::cost::laser::{Tree, level_cost};
/// use mycelium_advisor::Access;
/// use mycelium_base::ColumnSet;
///
/// let tree = Tree { size_ratio: 2.0, entries_per_block: 10.0, columns: 4 };
/// let groups = [ColumnSet::from_iter([0, 1]), ColumnSet::from_iter([2, 3])];
/// let rows = Access { points: 5, ..Access::of(ColumnSet::first(4)) };
/// let column = Access { scans: 1, scanned_entries: 1_000, updates: 2, ..Access::of(ColumnSet::from_iter([3])) };
/// // 20 inserts: 20*2*2/40; 5 points of both groups; 1,000 entries of 3 columns; 2 updates of 3 columns.
/// let expected = 2.0 + 10.0 + 1_000.0 * 3.0 / 40.0 + 2.0 * 2.0 * 3.0 / 40.0;
/// assert!((level_cost(&tree, 20, &[rows, column], &groups) - expected).abs() < 1e-9);
/// ```
pub fn level_cost(tree: &Tree, inserts: u64, accesses: &[Access], groups: &[ColumnSet]) -> f64 {
    groups.iter().map(|group| group_cost(tree, inserts, accesses, group)).sum()
}

/// Equation 8: what a workload costs under a layout, in blocks, every operation charged at the level that served it:
/// `w·T·L/B`, which no layout changes, and equation 9 at every level. `accesses[i]` and `levels[i]` are level `i`'s.
pub fn workload_cost(tree: &Tree, inserts: u64, accesses: &[Vec<Access>], levels: &[Vec<ColumnSet>]) -> f64 {
    let values = inserts as f64 * row_write_amplification(tree, levels.len().saturating_sub(1));
    let at_level = |(accesses, groups): (&Vec<Access>, &Vec<ColumnSet>)| level_cost(tree, inserts, accesses, groups);
    values + accesses.iter().zip(levels).map(at_level).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: Tree = Tree { size_ratio: 2.0, entries_per_block: 40.0, columns: 4 };

    fn groups(text: &str) -> Vec<ColumnSet> {
        text.split(' ').map(|group| group.parse().unwrap()).collect()
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
    }

    /// §2.2: a page of 4 kB and records of 100 bytes give B = 40; a level 0 of 64 MB gives pg = 16,000. Decimal units.
    #[test]
    fn the_example_of_section_2_2() {
        let (page, record, level0) = (4_000.0, 100.0, 64e6);
        assert_eq!(page / record, 40.0);
        assert_eq!(level0 / page, 16_000.0);
        assert_eq!(level_capacity(&TREE, level0 / page, 0), level0 / record);
    }

    /// Equation 1 for the two tables of §7.1, whose rows have an 8-byte key and columns of 4 bytes, with blocks of 4
    /// KiB and RocksDB's level 0 of 64 MiB. The paper says 8 levels (L = 7) for the narrow table, for which the
    /// equation gives L = 9; and 5 levels (L = 4) for the wide one, which the equation gives too.
    #[test]
    fn levels_of_the_evaluation() {
        let blocks = 64.0 * 1024.0 / 4.0;
        let narrow = Tree { size_ratio: 2.0, entries_per_block: 4_096.0 / (8.0 + 30.0 * 4.0), columns: 30 };
        assert_eq!(narrow.entries_per_block, 32.0);
        assert_eq!(last_level(&narrow, 400e6, blocks), 9);
        let wide = Tree { size_ratio: 10.0, entries_per_block: 4_096.0 / (8.0 + 100.0 * 4.0), columns: 100 };
        assert_eq!(last_level(&wide, 200e6, blocks), 4);
    }

    #[test]
    fn levels_of_exact_powers() {
        for exponent in 0..9 {
            let tree = Tree { size_ratio: 10.0, entries_per_block: 1.0, columns: 1 };
            let entries = 10f64.powi(exponent) * 10.0 / 9.0;
            assert_eq!(last_level(&tree, entries, 1.0), exponent as u32);
            assert_eq!(last_level(&tree, entries * 1.01, 1.0), exponent as u32 + 1);
        }
        assert_eq!(last_level(&TREE, 0.0, 100.0), 0);
        assert_eq!(last_level(&TREE, f64::NAN, 100.0), 0);
    }

    /// §5: `D = B_<A,B>·(1+2)·dt = B_<C>·(1+1)·dt`, so that `B_<A,B> = 2·B_<C>/3`; `B_02 = 5B/3` and `B_12 = 5B/2` in
    /// Figure 6; `B·(1+c)/2` in a tree of columns.
    #[test]
    fn entries_in_a_block_of_section_5() {
        let b = TREE.entries_per_block;
        assert!(near(entries_in_block(&TREE, 2), 2.0 * entries_in_block(&TREE, 1) / 3.0));
        assert!(near(entries_in_block(&TREE, 2), 5.0 * b / 3.0));
        assert!(near(entries_in_block(&TREE, 1), 5.0 * b / 2.0));
        assert!(near(entries_in_block(&TREE, 1), b * (1.0 + 4.0) / 2.0));
        assert!(near(entries_in_block(&TREE, 4), b));
        assert_eq!(columns_in_groups(&groups("0-1 2 3")), 4);
    }

    /// §5: the key overhead of equation 4 is at most `T·L/B`, that of a tree of columns (level 0 apart, which the
    /// paper's sum counts and its bound does not). The sum behind equation 4 is below it by `c/(1+c)` in the keys.
    #[test]
    fn write_amplification_of_section_5() {
        let rows = write_amplification(&TREE, &[1, 1, 1, 1]);
        let columns = write_amplification(&TREE, &[1, 4, 4, 4]);
        let row_style = row_write_amplification(&TREE, 3);
        assert_eq!(row_style, 2.0 * 3.0 / 40.0);
        assert!(near(rows, row_style + 2.0 / (40.0 * 4.0) * 4.0));
        let overhead_below_level0 = columns - row_style - 2.0 / (40.0 * 4.0);
        assert!(near(overhead_below_level0, row_style));

        // Level 2 of Figure 6 merges T/B_ji for each of <A,B>, <C> and <D>.
        let level = [groups("0-1 2 3")];
        let summed = summed_write_amplification(&TREE, &level);
        assert!(near(summed, 2.0 / (5.0 * 40.0 / 3.0) + 2.0 * 2.0 / (5.0 * 40.0 / 2.0)));
        assert!(near(summed, 2.0 / (40.0 * 5.0) * (4.0 + 3.0)));
    }

    /// §5: with `<A,B>; <C,D>`, `E^g` is 2 for {A,C} and 1 for {A,B}; `E^G` is 6 and 3.
    #[test]
    fn required_groups_of_section_5() {
        let layout = groups("0-1 2-3");
        let (wide, narrow) = (ColumnSet::from_iter([0, 2]), ColumnSet::from_iter([0, 1]));
        assert_eq!((required_groups(&layout, &wide), required_groups(&layout, &narrow)), (2, 1));
        assert_eq!((required_columns(&layout, &wide), required_columns(&layout, &narrow)), (6, 3));
        let levels = [groups("0-3"), layout.clone(), groups("0 1 2 3")];
        assert_eq!(point_cost(&levels, &wide), 1 + 2 + 2);
        assert_eq!(point_cost(&levels, &narrow), 1 + 1 + 2);
    }

    /// Table 2: a tree of columns fetches `|Π|` blocks per level for a point; ranges and updates cost `|Π|` columns
    /// with their keys, so twice `|Π|·s/(c·B)` and `T·L·|Π|/(c·B)`, within which the table's O() lies.
    #[test]
    fn the_columns_of_table_2() {
        let row = vec![groups("0-3"); 4];
        let column = vec![groups("0 1 2 3"); 4];
        let projection = ColumnSet::from_iter([1, 3]);
        assert_eq!(point_cost(&column, &projection), 4 * projection.len());
        let selected: Vec<f64> = (0..4).map(|level| selected_at_level(&TREE, 8_000.0, 3, level)).collect();
        assert_eq!(selected, [1_000.0, 2_000.0, 4_000.0, 8_000.0]);
        let scanned: f64 = selected.iter().sum();
        assert!(near(range_cost(&TREE, &column, &projection, &selected), 2.0 * 2.0 * scanned / 160.0));
        assert!(near(range_cost(&TREE, &row, &projection, &selected), 5.0 / 4.0 * row_range_cost(&TREE, 8_000.0, 3)));
        assert!(near(update_amplification(&TREE, &column, &projection), 2.0 * 4.0 * (2.0 * 2.0) / 160.0));
        assert_eq!(space_amplification(&TREE), 0.5);
    }

    /// Equation 9 as printed, term by term, is the sum of [`group_cost`]; equation 8 is equations 4 to 7 summed over
    /// the operations.
    #[test]
    fn equation_9_is_a_sum_over_groups_and_equation_8_a_sum_over_levels() {
        let accesses = [
            Access { points: 7, updates: 3, ..Access::of(ColumnSet::from_iter([0, 2])) },
            Access { points: 2, scans: 4, scanned_entries: 900, ..Access::of(ColumnSet::from_iter([3])) },
        ];
        let (inserts, cb) = (50, 160.0);
        for layout in ["0-3", "0-1 2-3", "0,3 1-2", "0 1 2 3"] {
            let layout = groups(layout);
            let mut printed = 50.0 * 2.0 * layout.len() as f64 / cb;
            for access in &accesses {
                let columns = required_columns(&layout, &access.columns) as f64;
                printed += access.points as f64 * required_groups(&layout, &access.columns) as f64;
                printed += access.scanned_entries as f64 * columns / cb;
                printed += access.updates as f64 * 2.0 * columns / cb;
            }
            assert!(near(level_cost(&TREE, inserts, &accesses, &layout), printed));
        }
        // The same operations at every level: equation 8 by whole operations.
        let levels = [groups("0-3"), groups("0-1 2-3"), groups("0-1 2 3")];
        let mut by_operation = 50.0 * write_amplification(&TREE, &[1, 2, 3]);
        for access in &accesses {
            by_operation += (access.points as usize * point_cost(&levels, &access.columns)) as f64;
            by_operation += range_cost(&TREE, &levels, &access.columns, &[access.scanned_entries as f64; 3]);
            by_operation += access.updates as f64 * update_amplification(&TREE, &levels, &access.columns);
        }
        let per_level = vec![accesses.to_vec(); 3];
        assert!(near(workload_cost(&TREE, inserts, &per_level, &levels), by_operation));
    }

    #[test]
    fn trees_outside_the_model_are_refused() {
        assert!(TREE.check().is_ok());
        for size_ratio in [1.0, 0.0, -2.0, f64::NAN, f64::INFINITY] {
            assert!(Tree { size_ratio, ..TREE }.check().is_err());
        }
        for entries_per_block in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Tree { entries_per_block, ..TREE }.check().is_err());
        }
        for columns in [0, MAX_COLUMNS + 1] {
            assert!(Tree { columns, ..TREE }.check().is_err());
        }
    }
}
