//! Rows or columns: equation 9 of LASER for column groups of either format, in blocks (ours; LASER's groups are of
//! rows).
//!
//! Symbols are those of [`super::laser`]; `e`, `f`, `a`, `b` and `d` are [`Formats`]' fields from first to last. What a
//! group `G` costs at a level, `[G∩Π]` being 1 where it holds a column of `Π` and 0 elsewhere:
//!
//! ```text
//! rows      (1+|G|)·w·T/(c·B)  +  Σ [G∩Π]·(   p + a·s                + (1+|G|)·(s + T·u)/(c·B) )
//! columns e·(1+|G|)·w·T/(c·B)  +  Σ [G∩Π]·( f·p + b·s + d·s·|G∩Π|  + e·(1+|G|)·(s + T·u)/(c·B) )
//! ```
//!
//! - *What is counted of I/O* is bytes of data blocks, in blocks of rows. A columnar block is read from the disk as a
//!   whole, so that a scan reads the bytes of all columns of the groups it needs; of columns it does not want no page
//!   is looked at. What a format saves of I/O is therefore the encoding alone (`e`); the rest is saved by groups.
//! - *A point read* fetches one block of each group. A columnar one is eight times as large, and its cells are gathered
//!   one by one: `f`.
//! - *CPU.* Whoever scans passes every entry of every group that it needs and puts rows together from them: `a` for a
//!   group of rows, `b` for a columnar one, where many pass at a time, and `d` for each cell taken from a page. So each
//!   further group costs a scan something where all blocks are cached, which equation 9 does not see.
//! - *Inserts* are charged with their values, which equation 9 leaves out, since they are written encoded or not.
//!
//! Each is a sum over groups as equation 9 is, and all of it is linear in the columns of a group. So the designs of
//! [`crate::design`] stay as exact as they are for rows: see there.

use mycelium_base::{ColumnSet, Error, Result};

use super::laser::{Tree, cost_per_column, insert_share};
use crate::trace::Access;

/// What is known of columnar groups beside those of rows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Formats {
    /// `e`: the bytes of encoded keys and values over those of the same in rows; above 0.
    pub encoded: f64,
    /// `f`: what a point read of a columnar group costs over one of a group of rows.
    pub point: f64,
    /// `a`: the CPU time of passing one entry of a group of rows in a scan, in blocks.
    pub row_entry: f64,
    /// `b`: the same of a columnar group.
    pub columnar_entry: f64,
    /// `d`: the CPU time of taking one cell from a page in a scan, in blocks.
    pub cell: f64,
}

impl Default for Formats {
    /// Encoded values take 0.7 of their bytes. A point read of a columnar group costs 2.2 of one of rows. A block takes
    /// 2 us: an entry of rows 50 ns, of columns 1 ns, and a cell 1 ns. Point reads and cells are of the order that
    /// `bench htap` shows; the others are chosen, not measured.
    fn default() -> Self {
        Self { encoded: 0.7, point: 2.2, row_entry: 0.025, columnar_entry: 0.000_5, cell: 0.000_5 }
    }
}

impl Formats {
    /// Fails if a field is outside the model.
    pub fn check(&self) -> Result<()> {
        let Self { encoded, point, row_entry, columnar_entry, cell } = *self;
        let costs = [encoded, point, row_entry, columnar_entry, cell];
        match encoded > 0.0 && costs.iter().all(|cost| cost.is_finite() && *cost >= 0.0) {
            true => Ok(()),
            false => Err(Error::invalid(format!("costs of formats outside the model: {self:?}"))),
        }
    }
}

/// What one group costs at a level, in blocks, by the formula of the module.
///
/// ```
/// use mycelium_advisor::cost::formats::{Formats, group_cost};
/// use mycelium_advisor::{Access, Tree};
/// use mycelium_base::ColumnSet;
///
/// // A scan takes one of four columns of 1,000 entries; 40 columns lie in a block.
/// let tree = Tree { size_ratio: 2.0, entries_per_block: 10.0, columns: 4 };
/// let formats = Formats { encoded: 0.5, point: 2.0, row_entry: 0.02, columnar_entry: 0.001, cell: 0.001 };
/// let scan = [Access { scans: 1, scanned_entries: 1_000, ..Access::of(ColumnSet::from_iter([3])) }];
/// let cost = |is_columnar| group_cost(&tree, &formats, 0, &scan, &ColumnSet::first(4), is_columnar);
/// // Rows: 5,000 values and keys are 125 blocks, and 1,000 entries pass.
/// assert!((cost(false) - (125.0 + 20.0)).abs() < 1e-9);
/// // Columns: half the bytes, 1,000 entries, and a cell of each.
/// assert!((cost(true) - (62.5 + 1.0 + 1.0)).abs() < 1e-9);
/// ```
pub fn group_cost(
    tree: &Tree,
    formats: &Formats,
    inserts: u64,
    accesses: &[Access],
    group: &ColumnSet,
    is_columnar: bool,
) -> f64 {
    let width = (1 + group.len()) as f64;
    let bytes = if is_columnar { formats.encoded } else { 1.0 };
    let mut cost = bytes * width * insert_share(tree, inserts);
    for access in accesses.iter().filter(|access| access.columns.overlaps(group)) {
        cost += bytes * width * cost_per_column(tree, access) + group_reads(formats, access, is_columnar);
        if is_columnar {
            cost += cell_reads(formats, access) * access.columns.intersection(group).len() as f64;
        }
    }
    cost
}

/// What a level costs, in blocks: the sum of [`group_cost`] over its groups, each with whether it is columnar.
pub fn level_cost<'a>(
    tree: &Tree,
    formats: &Formats,
    inserts: u64,
    accesses: &[Access],
    groups: impl Iterator<Item = (&'a ColumnSet, bool)>,
) -> f64 {
    groups.map(|(group, is_columnar)| group_cost(tree, formats, inserts, accesses, group, is_columnar)).sum()
}

/// What reads of an access cost for each group that they need, bytes of scans apart.
pub(crate) fn group_reads(formats: &Formats, access: &Access, is_columnar: bool) -> f64 {
    let (point, entry) = if is_columnar { (formats.point, formats.columnar_entry) } else { (1.0, formats.row_entry) };
    point * access.points as f64 + entry * access.scanned_entries as f64
}

/// What scans of an access cost for each column that they take from a columnar group.
pub(crate) fn cell_reads(formats: &Formats, access: &Access) -> f64 {
    formats.cell * access.scanned_entries as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::laser;

    const TREE: Tree = Tree { size_ratio: 4.0, entries_per_block: 20.0, columns: 6 };

    /// Without CPU time, rows cost what equation 9 says and the values of inserts.
    #[test]
    fn rows_without_cpu_time_are_equation_9() {
        let formats = Formats { row_entry: 0.0, ..Formats::default() };
        let group = ColumnSet::from_iter([1, 3]);
        let access =
            [Access { points: 7, scanned_entries: 900, updates: 3, ..Access::of(ColumnSet::from_iter([3, 4])) }];
        let ours = group_cost(&TREE, &formats, 50, &access, &group, false);
        let values = 2.0 * laser::insert_share(&TREE, 50);
        let expected = laser::group_cost(&TREE, 50, &access, &group) + values;
        assert!((ours - expected).abs() < 1e-9);
    }

    /// Scans of few columns want columns, points rows.
    #[test]
    fn scans_want_columns_and_points_rows() {
        let (formats, all) = (Formats::default(), ColumnSet::first(6));
        let cheaper = |access: Access| {
            let cost = |is_columnar| group_cost(&TREE, &formats, 0, std::slice::from_ref(&access), &all, is_columnar);
            cost(true) < cost(false)
        };
        assert!(cheaper(Access { scanned_entries: 1_000, ..Access::of(ColumnSet::from_iter([2])) }));
        assert!(!cheaper(Access { points: 1_000, ..Access::of(all.clone()) }));
    }

    #[test]
    fn formats_outside_the_model_are_refused() {
        let good = Formats::default();
        assert!(good.check().is_ok());
        for bad in [
            Formats { encoded: 0.0, ..good },
            Formats { point: -1.0, ..good },
            Formats { cell: f64::NAN, ..good },
            Formats { row_entry: f64::INFINITY, ..good },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
