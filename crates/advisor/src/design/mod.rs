//! Designs: the column groups of every level, and their selection from a trace (LASER §6).
//!
//! Modules: this one is what a design is, `partition` the best groups for one level within one group of the level
//! above, `search` goes through the levels and compares designs, `picture` draws.
//!
//! **What is optimal.** [`level_by_level`] solves equation 10 as the paper does (§6.3): from level 1 down, for every
//! group of the level above by itself,
//!
//! 1. *Split*: the group's columns are split by every projection of the level until each subset is wholly inside or
//!    wholly outside each of them: the primary partitions ([`primary_partitions`]).
//! 2. *Merge*: of all ways to merge primary partitions into groups the cheapest by equation 9 is taken.
//!
//! The result of a level is, *given the level above*, the cheapest partition of all columns that respects containment:
//! no other has a lower equation 9. It is so because equation 9 is a sum over groups
//! ([`crate::cost::laser::group_cost`]), so that the groups of the level above do not influence each other; and because
//! no primary partition needs to be split. Proof of the latter: let `f(G) = a + p(G) + (1+|G|)·r(G)`, where `p` and `r`
//! add up over the operations that touch `G`. Suppose that groups `G` and `H` both hold columns of primary partition
//! `C`. Moving `C`'s columns from `G` to `H` leaves the operations that touch `H` as they are, and can only remove some
//! from `G`; so it adds at most `x·(r(H) - r(G))`, where `x` columns move. Moving them the other way adds at most
//! `y·(r(G) - r(H))`. One of the two is not above 0, and fewer groups share `C`. Repeat.
//!
//! This holds exactly while a group of the level above has at most [`EXACT_PARTITIONS`] primary partitions: the best
//! merge is found by dynamic programming over their subsets, which is equal to trying all set partitions. Beyond,
//! groups are merged greedily and improved by moves ([`Advice::is_exact`] says whether that happened): containment
//! holds all the same, and the level is never worse than one group for all columns or a group for each primary
//! partition, within each group of the level above.
//!
//! **Formats.** [`advise_formats`] also says which groups are columnar, by [`crate::cost::formats`]. A group's format
//! bears on no other group, so that its cost is the less of two sums, and all of the above holds of it: in either
//! format, moving `x` columns of a primary partition to another group adds at most `x` times a constant of the two
//! groups and their formats, and moving `y` the other way at most `-y` times the same. It needs the encoding to save
//! the same share of every column. Level 0 is what flushes write: its format stays, and every design is charged for it
//! as rows.
//!
//! Level by level is not jointly optimal: what is best for level 1 may force level 5 into small groups. [`advise`]
//! therefore compares the paper's design with one made from the last level up and with the usual fixed designs, takes
//! the cheapest in total and improves it level by level between its neighbours. Its total is never above any of
//! theirs; that it is the least of all designs is not proven (nor always so).

mod partition;
mod picture;
mod search;

use std::fmt;

use mycelium_base::limits::MAX_LEVELS;
use mycelium_base::{ColumnSet, Error, Result};

use crate::cost::formats::{self, Formats};
use crate::cost::laser::{Tree, level_cost};
use crate::trace::{MAX_COLUMNS, Trace};

pub use partition::{EXACT_PARTITIONS, primary_partitions};
pub use search::{Advice, Candidate, advise, advise_formats, level_by_level};

/// The column groups of every level.
///
/// ```
/// use mycelium_advisor::Design;
///
/// let mut design = Design::fixed_width(4, 3, 2)?;
/// assert_eq!(design.to_string(), "L0: 0-3\nL1: 0-1 | 2-3\nL2: 0-1 | 2-3\n");
/// design.levels[2] = vec!["0".parse()?, "1-2".parse()?, "3".parse()?];
/// let error = design.check(4).unwrap_err();
/// assert!(error.to_string().contains("level 2: group 1-2 lies in no single group of level 1"));
/// # Ok::<(), mycelium_base::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Design {
    /// For every level its groups, level 0 first.
    pub levels: Vec<Vec<ColumnSet>>,
    /// For every level the columns of its columnar groups; levels at the end that have none may be left out.
    pub columnar: Vec<ColumnSet>,
}

/// What a design costs by equation 9, in blocks, for the operations of a trace.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DesignCost {
    /// By level, level 0 first.
    pub levels: Vec<f64>,
    /// All levels together.
    pub total: f64,
}

impl Design {
    /// Rows: one group at every level. Fails beyond the bounds of a [`Trace`].
    pub fn rows(columns: usize, levels: usize) -> Result<Self> {
        Self::fixed_width(columns, levels, columns)
    }

    /// Columns: a group for each column from level 1 on. Fails beyond the bounds of a [`Trace`].
    pub fn columns(columns: usize, levels: usize) -> Result<Self> {
        Self::fixed_width(columns, levels, 1)
    }

    /// Groups of `width` neighbouring columns from level 1 on (§7.1: `cg_size`); the last group has what remains.
    /// Fails for a width of 0, and beyond the bounds of a [`Trace`].
    pub fn fixed_width(columns: usize, levels: usize, width: usize) -> Result<Self> {
        Trace::new(columns, levels)?;
        if width == 0 {
            return Err(Error::invalid("groups of no columns"));
        }
        let starts = (0..columns).step_by(width);
        let groups: Vec<ColumnSet> = starts.map(|first| (first..columns.min(first + width)).collect()).collect();
        let mut design = Self { levels: vec![groups; levels], ..Self::default() };
        design.levels[0] = vec![ColumnSet::first(columns)];
        Ok(design)
    }

    /// Whether a group of a level is columnar.
    pub fn is_columnar(&self, level: usize, group: &ColumnSet) -> bool {
        self.columnar.get(level).is_some_and(|columnar| columnar.overlaps(group))
    }

    /// The same groups; those are columnar of which `is_columnar` says so.
    #[must_use]
    pub fn with_columnar(mut self, is_columnar: impl Fn(usize, &ColumnSet) -> bool) -> Self {
        let columnar = |(level, groups): (usize, &Vec<ColumnSet>)| {
            let groups = groups.iter().filter(|group| is_columnar(level, group));
            groups.fold(ColumnSet::new(), |columns, group| columns.union(group))
        };
        self.columnar = self.levels.iter().enumerate().map(columnar).collect();
        while self.columnar.last().is_some_and(ColumnSet::is_empty) {
            self.columnar.pop();
        }
        self
    }

    /// Fails unless level 0 is one group, every level holds each of the first `columns` columns in exactly one group,
    /// every group lies within one group of the level above (§3.2), and what is columnar are whole groups. The error
    /// names level and group.
    pub fn check(&self, columns: usize) -> Result<()> {
        if columns == 0 || columns > MAX_COLUMNS || self.levels.is_empty() || self.levels.len() > MAX_LEVELS {
            let what = format!("a design of {columns} columns and {} levels", self.levels.len());
            return Err(Error::invalid(what));
        }
        for (level, groups) in self.levels.iter().enumerate() {
            check_level(level, groups, columns)?;
        }
        if self.levels[0].len() != 1 {
            let group = self.levels[0].last().map(ToString::to_string).unwrap_or_default();
            return Err(Error::invalid(format!("level 0: group {group} beside others; level 0 has one group")));
        }
        for (above, pair) in self.levels.windows(2).enumerate() {
            let stray = pair[1].iter().find(|group| !pair[0].iter().any(|wider| group.is_subset(wider)));
            if let Some(group) = stray {
                let level = above + 1;
                return Err(Error::invalid(format!(
                    "level {level}: group {group} lies in no single group of level {above}"
                )));
            }
        }
        self.check_formats()
    }

    /// What is columnar are whole groups.
    fn check_formats(&self) -> Result<()> {
        for (level, columnar) in self.columnar.iter().enumerate() {
            let groups = self.levels.get(level).map_or(&[][..], Vec::as_slice);
            let whole = groups.iter().filter(|group| group.is_subset(columnar));
            let whole = whole.fold(ColumnSet::new(), |columns, group| columns.union(group));
            if whole != *columnar {
                let part = columnar.difference(&whole);
                return Err(Error::invalid(format!("level {level}: of columnar {part} there is no whole group")));
            }
        }
        Ok(())
    }

    /// What the operations of `trace` cost under this design by equation 9. Fails if tree, trace and design do not
    /// belong together.
    ///
    /// ```
    /// use mycelium_advisor::{Design, Trace, Tree};
    ///
    /// let tree = Tree { size_ratio: 2.0, entries_per_block: 10.0, columns: 4 };
    /// let mut trace = Trace::new(4, 2)?;
    /// trace.add_scans(1, &"3".parse()?, 1, 400)?;
    /// assert_eq!(Design::rows(4, 2)?.cost(&tree, &trace)?.levels, [0.0, 400.0 * 5.0 / 40.0]);
    /// assert_eq!(Design::columns(4, 2)?.cost(&tree, &trace)?.levels, [0.0, 400.0 * 2.0 / 40.0]);
    /// # Ok::<(), mycelium_base::Error>(())
    /// ```
    pub fn cost(&self, tree: &Tree, trace: &Trace) -> Result<DesignCost> {
        self.check_fits(tree, trace)?;
        Ok(self.unchecked_cost(tree, None, trace))
    }

    /// The same by [`crate::cost::formats`], which knows columnar groups.
    pub fn cost_of_formats(&self, tree: &Tree, formats: &Formats, trace: &Trace) -> Result<DesignCost> {
        formats.check()?;
        self.check_fits(tree, trace)?;
        Ok(self.unchecked_cost(tree, Some(formats), trace))
    }

    /// Tree, trace and design belong together.
    fn check_fits(&self, tree: &Tree, trace: &Trace) -> Result<()> {
        check_inputs(tree, trace)?;
        self.check(tree.columns)?;
        if self.levels.len() != trace.level_count() {
            return Err(Error::invalid("design and trace have different levels")
                .expected(trace.level_count(), self.levels.len()));
        }
        Ok(())
    }

    /// The cost of a design that is known to fit.
    fn unchecked_cost(&self, tree: &Tree, formats: Option<&Formats>, trace: &Trace) -> DesignCost {
        let at_level = |(level, groups): (usize, &Vec<ColumnSet>)| {
            let (inserts, accesses) = (trace.writes(), trace.accesses(level));
            let Some(formats) = formats else { return level_cost(tree, inserts, &accesses, groups) };
            let groups = groups.iter().map(|group| (group, level > 0 && self.is_columnar(level, group)));
            formats::level_cost(tree, formats, inserts, &accesses, groups)
        };
        let levels: Vec<f64> = self.levels.iter().enumerate().map(at_level).collect();
        DesignCost { total: levels.iter().sum(), levels }
    }
}

/// One line per level: `L1: 0-14 | 15-29 columnar`.
impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (level, groups) in self.levels.iter().enumerate() {
            let format = |group| if self.is_columnar(level, group) { " columnar" } else { "" };
            let groups: Vec<String> = groups.iter().map(|group| format!("{group}{}", format(group))).collect();
            writeln!(f, "L{level}: {}", groups.join(" | "))?;
        }
        Ok(())
    }
}

/// Every column in exactly one group, no group empty.
fn check_level(level: usize, groups: &[ColumnSet], columns: usize) -> Result<()> {
    let wrong = |problem: String| Err(Error::invalid(format!("level {level}: {problem}")));
    let all = ColumnSet::first(columns);
    let mut seen = ColumnSet::new();
    for group in groups {
        if group.is_empty() {
            return wrong("a group without columns".to_owned());
        }
        if !group.is_subset(&all) {
            return wrong(format!("group {group} of a table of {columns} columns"));
        }
        if group.overlaps(&seen) {
            return wrong(format!("group {group} shares columns {} with another", group.intersection(&seen)));
        }
        seen = seen.union(group);
    }
    match seen == all {
        true => Ok(()),
        false => wrong(format!("columns {} are in no group", all.difference(&seen))),
    }
}

/// Tree and trace are within the model and of the same table.
fn check_inputs(tree: &Tree, trace: &Trace) -> Result<()> {
    tree.check()?;
    if tree.columns != trace.columns() {
        return Err(Error::invalid("tree and trace have different columns").expected(tree.columns, trace.columns()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn design(text: &str) -> Design {
        let level = |line: &str| line.split(' ').map(|group| group.parse().unwrap()).collect();
        Design { levels: text.split('\n').map(level).collect(), ..Design::default() }
    }

    #[test]
    fn fixed_designs_are_the_papers() {
        for (width, groups) in [(1, 30), (3, 10), (6, 5), (15, 2), (30, 1), (7, 5), (99, 1)] {
            let design = Design::fixed_width(30, 8, width).unwrap();
            design.check(30).unwrap();
            assert_eq!(design.levels.iter().map(Vec::len).collect::<Vec<_>>(), [&[1][..], &[groups; 7]].concat());
        }
        assert_eq!(Design::rows(30, 8).unwrap(), Design::fixed_width(30, 8, 30).unwrap());
        assert_eq!(Design::columns(30, 8).unwrap(), Design::fixed_width(30, 8, 1).unwrap());
        assert!(Design::fixed_width(30, 8, 0).is_err() && Design::rows(0, 8).is_err() && Design::rows(3, 0).is_err());
    }

    #[test]
    fn checks_name_level_and_group() {
        for good in ["0-3", "0-3\n0-1 2-3\n2-3 0 1", "0-3\n0,2 1,3\n0,2 1 3"] {
            design(good).check(4).unwrap();
        }
        let cases = [
            ("0-1 2-3", "level 0: group 2-3 beside others"),
            ("0-3\n0-1 2", "level 1: columns 3 are in no group"),
            ("0-3\n0-1 1-3", "level 1: group 1-3 shares columns 1 with another"),
            ("0-3\n0-4", "level 1: group 0-4 of a table of 4 columns"),
            ("0-3\n0-3 -", "level 1: a group without columns"),
            ("0-3\n0-1 2-3\n0-2 3", "level 2: group 0-2 lies in no single group of level 1"),
        ];
        for (text, complaint) in cases {
            let error = design(text).check(4).unwrap_err().to_string();
            assert!(error.contains(complaint), "{text:?}: {error}");
        }
        assert!(Design::default().check(4).is_err() && design("0-3").check(0).is_err());
        assert!(design("0-3").check(usize::MAX).is_err());
        let mut halves = design("0-3\n0-1 2-3").with_columnar(|level, group| level == 1 && group.contains(2));
        halves.check(4).unwrap();
        assert_eq!(halves.to_string(), "L0: 0-3\nL1: 0-1 | 2-3 columnar\n");
        halves.columnar[1].insert(0);
        assert!(halves.check(4).unwrap_err().to_string().contains("level 1: of columnar 0 there is no whole group"));
    }

    #[test]
    fn costs_of_things_that_do_not_belong_together_are_refused() {
        let tree = Tree { size_ratio: 2.0, entries_per_block: 10.0, columns: 4 };
        let rows = Design::rows(4, 2).unwrap();
        assert!(rows.cost(&tree, &Trace::new(4, 2).unwrap()).is_ok());
        assert!(rows.cost(&tree, &Trace::new(4, 3).unwrap()).is_err());
        assert!(rows.cost(&tree, &Trace::new(5, 2).unwrap()).is_err());
        assert!(rows.cost(&Tree { size_ratio: 1.0, ..tree }, &Trace::new(4, 2).unwrap()).is_err());
    }
}
