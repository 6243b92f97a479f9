//! Through the levels: the paper's selection, its mirror image, and the choice between designs (LASER §6.3).
//!
//! Algorithm of [`advise`]:
//! 1. *Level by level* ([`level_by_level`]): from level 1 down, the best groups within each group of the level above.
//! 2. *From the last level up*: the best groups of the last level, then for each level above the best way to merge the
//!    groups below it; containment holds by construction.
//! 3. Rows, columns and the fixed widths asked for.
//! 4. The cheapest of these in total is improved: each level in turn is solved again between its neighbours, within the
//!    groups of the level above and with those of the level below as atoms, and replaced if that is cheaper; at most
//!    [`MAX_SWEEPS`] times and until nothing changes.
//!
//! [`advise_formats`] does the same with groups of either format: every group has the cheaper one, but for rows,
//! columns and the fixed widths of step 3, which are of rows and stand beside columnar groups of all columns.
//!
//! Every step keeps containment and lowers the total, so that the result is never above any design of steps 1 to 3.

use std::fmt;

use mycelium_base::{ColumnSet, Result};

use super::partition::LevelCosts;
use super::{Design, DesignCost, check_inputs};
use crate::cost::formats::Formats;
use crate::cost::laser::Tree;
use crate::trace::Trace;

/// The most times that the improvement goes through all levels.
const MAX_SWEEPS: usize = 3;

/// A design, its cost and its name, for comparison.
#[derive(Clone, PartialEq, Debug)]
pub struct Candidate {
    /// `level by level`, `from the last level up`, `rows`, `columns`, `width 3`, `columnar`.
    pub name: String,
    /// The design.
    pub design: Design,
    /// What it costs by equation 9, or by [`crate::cost::formats`], in blocks.
    pub cost: DesignCost,
}

/// The advised design, and what it was compared with.
///
/// `{}` is a picture and a table of the costs.
#[derive(Clone, PartialEq, Debug)]
pub struct Advice {
    /// The cheapest design that was found.
    pub design: Design,
    /// What it costs by equation 9, or by [`crate::cost::formats`], in blocks, for the operations of the trace.
    pub cost: DesignCost,
    /// What it was compared with, the paper's design (`level by level`) first.
    pub candidates: Vec<Candidate>,
    /// Whether every set of groups was found exactly; false where some group of a level fell into more primary
    /// partitions than [`super::EXACT_PARTITIONS`].
    pub is_exact: bool,
    /// Groups and choices of groups that were looked at: what the search cost.
    pub evaluated: u64,
}

/// The paper's selection (§6.3): the cheapest groups by equation 9 for each level in turn, given the level above. See
/// [`crate::design`] for what is optimal about it. `candidates` of the result has this design alone. Fails if the tree
/// is outside the model or of other columns than the trace.
///
/// ```
/// use mycelium_advisor::{Trace, Tree, level_by_level};
///
/// let mut trace = Trace::new(4, 2)?;
/// trace.add_points(1, &"0-1".parse()?, 100)?;
/// trace.add_scans(1, &"3".parse()?, 1, 10_000)?;
/// let tree = Tree { size_ratio: 2.0, entries_per_block: 10.0, columns: 4 };
/// let advice = level_by_level(&tree, &trace)?;
/// assert!(advice.is_exact);
/// assert_eq!(advice.design.to_string(), "L0: 0-3\nL1: 0-2 | 3\n");
/// # Ok::<(), mycelium_base::Error>(())
/// ```
pub fn level_by_level(tree: &Tree, trace: &Trace) -> Result<Advice> {
    check_inputs(tree, trace)?;
    let mut search = Search::new(tree, None, trace);
    let design = search.downwards();
    let paper = search.candidate("level by level", design);
    let (design, cost) = (paper.design.clone(), paper.cost.clone());
    Ok(Advice { design, cost, candidates: vec![paper], is_exact: search.is_exact, evaluated: search.evaluated })
}

/// The cheapest design that the module's algorithm finds, compared with rows, columns and groups of `widths` columns.
/// Never dearer than any of those, nor than [`level_by_level`]. Fails as that does, and for a width of 0.
///
/// ```
/// use mycelium_advisor::{Trace, Tree, advise};
///
/// let mut trace = Trace::new(30, 8)?;
/// trace.add_inserts(20_000);
/// trace.add_points(1, &"0-29".parse()?, 5_000)?;
/// trace.add_scans(7, &"27-29".parse()?, 12, 1_000_000)?;
/// let tree = Tree { size_ratio: 2.0, entries_per_block: 32.0, columns: 30 };
/// let advice = advise(&tree, &trace, &[3, 6, 15])?;
/// assert!(advice.candidates.iter().all(|other| advice.cost.total <= other.cost.total));
/// assert!(advice.to_string().contains("L7 |0-26|27-29|"));
/// # Ok::<(), mycelium_base::Error>(())
/// ```
pub fn advise(tree: &Tree, trace: &Trace, widths: &[usize]) -> Result<Advice> {
    check_inputs(tree, trace)?;
    Search::new(tree, None, trace).advise(widths)
}

/// The same with groups of rows or columnar groups, whichever cost less by [`crate::cost::formats`]. Never dearer than
/// any candidate, of which `columnar` is one columnar group at every level below 0. Fails as [`advise`] does, and for
/// formats outside the model.
///
/// ```
/// use mycelium_advisor::{Formats, Trace, Tree, advise_formats};
///
/// let mut trace = Trace::new(4, 3)?;
/// trace.add_points(1, &"0-3".parse()?, 1_000)?;
/// trace.add_scans(2, &"3".parse()?, 1, 10_000)?;
/// let tree = Tree { size_ratio: 10.0, entries_per_block: 10.0, columns: 4 };
/// let advice = advise_formats(&tree, &Formats::default(), &trace, &[2])?;
/// assert_eq!(advice.design.to_string(), "L0: 0-3\nL1: 0-3\nL2: 0-2 | 3 columnar\n");
/// # Ok::<(), mycelium_base::Error>(())
/// ```
pub fn advise_formats(tree: &Tree, formats: &Formats, trace: &Trace, widths: &[usize]) -> Result<Advice> {
    check_inputs(tree, trace)?;
    formats.check()?;
    Search::new(tree, Some(formats), trace).advise(widths)
}

struct Search<'a> {
    tree: &'a Tree,
    formats: Option<&'a Formats>,
    trace: &'a Trace,
    /// One for each level.
    costs: Vec<LevelCosts>,
    is_exact: bool,
    evaluated: u64,
}

impl<'a> Search<'a> {
    fn new(tree: &'a Tree, formats: Option<&'a Formats>, trace: &'a Trace) -> Self {
        let at_level = |level| LevelCosts::new(tree, formats, trace.writes(), &trace.accesses(level));
        let costs = (0..trace.level_count()).map(at_level).collect();
        Self { tree, formats, trace, costs, is_exact: true, evaluated: 0 }
    }

    /// The algorithm of the module.
    fn advise(mut self, widths: &[usize]) -> Result<Advice> {
        let candidates = self.candidates(widths)?;
        let cheapest = candidates.iter().min_by(|a, b| a.cost.total.total_cmp(&b.cost.total));
        let start = cheapest.map(|candidate| candidate.design.clone()).unwrap_or_default();
        let improved = self.improved(start);
        let mut best = self.candidate("advised", self.in_cheaper_formats(improved));
        // Level costs fell one by one; their sum may still differ in the last bits.
        if let Some(cheapest) = cheapest.filter(|cheapest| cheapest.cost.total < best.cost.total) {
            best = Candidate { name: best.name, ..cheapest.clone() };
        }
        let Candidate { design, cost, .. } = best;
        Ok(Advice { design, cost, candidates, is_exact: self.is_exact, evaluated: self.evaluated })
    }

    /// Steps 1 to 3.
    fn candidates(&mut self, widths: &[usize]) -> Result<Vec<Candidate>> {
        let (columns, levels) = (self.trace.columns(), self.trace.level_count());
        let (downwards, upwards) = (self.downwards(), self.upwards());
        let rows = Design::rows(columns, levels)?;
        let mut candidates = vec![
            self.candidate("level by level", self.in_cheaper_formats(downwards)),
            self.candidate("from the last level up", self.in_cheaper_formats(upwards)),
            self.candidate("rows", rows.clone()),
            self.candidate("columns", Design::columns(columns, levels)?),
        ];
        for width in widths {
            let design = Design::fixed_width(columns, levels, *width)?;
            candidates.push(self.candidate(&format!("width {width}"), design));
        }
        if self.formats.is_some() {
            candidates.push(self.candidate("columnar", rows.with_columnar(|level, _| level > 0)));
        }
        Ok(candidates)
    }

    fn candidate(&self, name: &str, design: Design) -> Candidate {
        let cost = design.unchecked_cost(self.tree, self.formats, self.trace);
        Candidate { name: name.to_owned(), design, cost }
    }

    /// Every group in its cheaper format; level 0 as rows.
    fn in_cheaper_formats(&self, design: Design) -> Design {
        design.with_columnar(|level, group| level > 0 && self.costs[level].is_columnar(group))
    }

    /// Step 1.
    fn downwards(&mut self) -> Design {
        let mut levels = vec![self.one_group()];
        for level in 1..self.costs.len() {
            let groups = self.within(level, &levels[level - 1], None);
            levels.push(groups);
        }
        Design { levels, ..Design::default() }
    }

    /// Step 2.
    fn upwards(&mut self) -> Design {
        let all = self.one_group();
        let mut levels: Vec<Vec<ColumnSet>> = Vec::new();
        for level in (1..self.costs.len()).rev() {
            let below = levels.last().cloned();
            levels.push(self.within(level, &all, below.as_deref()));
        }
        levels.push(all);
        levels.reverse();
        Design { levels, ..Design::default() }
    }

    /// Step 4.
    fn improved(&mut self, mut design: Design) -> Design {
        for _ in 0..MAX_SWEEPS {
            let mut changed = false;
            for level in 1..design.levels.len() {
                let below = design.levels.get(level + 1).cloned();
                let groups = self.within(level, &design.levels[level - 1].clone(), below.as_deref());
                let costs = &self.costs[level];
                if costs.cost_of_groups(&groups) < costs.cost_of_groups(&design.levels[level]) * (1.0 - 1e-12) {
                    design.levels[level] = groups;
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        design
    }

    fn one_group(&self) -> Vec<ColumnSet> {
        vec![ColumnSet::first(self.trace.columns())]
    }

    /// The best groups of a level within those `above`, made of those `below`, or of primary partitions without.
    fn within(&mut self, level: usize, above: &[ColumnSet], below: Option<&[ColumnSet]>) -> Vec<ColumnSet> {
        let mut groups = Vec::new();
        for wider in above {
            let costs = &self.costs[level];
            let atoms = match below {
                Some(below) => below.iter().filter(|group| group.overlaps(wider)).cloned().collect(),
                None => costs.primary_partitions(wider),
            };
            let best = costs.best_groups(&atoms);
            self.is_exact &= best.is_exact;
            self.evaluated += best.evaluated;
            groups.extend(best.groups);
        }
        groups.sort_by_key(|group| group.iter().next());
        groups
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.design.picture(120))?;
        writeln!(f)?;
        let others = self.candidates.iter().map(|other| (other.name.as_str(), &other.cost));
        let shown: Vec<(&str, &DesignCost)> = [("advised", &self.cost)].into_iter().chain(others).collect();
        write!(f, "blocks")?;
        shown.iter().try_for_each(|(name, _)| write!(f, "  {name:>9}"))?;
        for level in 0..self.cost.levels.len() {
            write!(f, "\nL{level:<5}")?;
            for (name, cost) in &shown {
                let blocks = short(cost.levels.get(level).copied().unwrap_or_default());
                write!(f, "  {blocks:>0$}", name.len().max(9))?;
            }
        }
        write!(f, "\ntotal ")?;
        shown.iter().try_for_each(|(name, cost)| write!(f, "  {:>1$}", short(cost.total), name.len().max(9)))?;
        writeln!(f)
    }
}

/// A number in a few characters: `12.3 M`.
fn short(value: f64) -> String {
    let units = [(1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")];
    let (size, unit) = units.into_iter().find(|(size, _)| value >= *size).unwrap_or((1.0, ""));
    format!("{:.2}{unit}", value / size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_that_do_not_fit_are_refused() {
        let tree = Tree { size_ratio: 2.0, entries_per_block: 10.0, columns: 4 };
        let trace = Trace::new(4, 3).unwrap();
        assert!(advise(&tree, &trace, &[0]).is_err());
        assert!(advise(&tree, &Trace::new(5, 3).unwrap(), &[]).is_err());
        assert!(level_by_level(&Tree { entries_per_block: 0.0, ..tree }, &trace).is_err());
    }

    #[test]
    fn an_empty_trace_keeps_rows() {
        let tree = Tree { size_ratio: 2.0, entries_per_block: 10.0, columns: 4 };
        for levels in [1, 2, 5] {
            let advice = advise(&tree, &Trace::new(4, levels).unwrap(), &[2]).unwrap();
            assert_eq!(advice.design, Design::rows(4, levels).unwrap());
            assert_eq!(advice.cost.total, 0.0);
        }
    }

    /// What is best for level 1 alone forces level 2 into single columns: the paper's selection pays, the mirror image
    /// does not.
    #[test]
    fn a_small_gain_above_may_cost_much_below() {
        let tree = Tree { size_ratio: 2.0, entries_per_block: 10.0, columns: 4 };
        let mut trace = Trace::new(4, 3).unwrap();
        trace.add_scans(1, &"0-1".parse().unwrap(), 1, 1_000).unwrap();
        trace.add_points(2, &"0,2".parse().unwrap(), 1_000_000).unwrap();
        trace.add_points(2, &"1,3".parse().unwrap(), 1_000_000).unwrap();
        let paper = level_by_level(&tree, &trace).unwrap();
        assert_eq!(paper.design.levels[1].len(), 2);
        let advice = advise(&tree, &trace, &[]).unwrap();
        assert!(advice.cost.total < 0.6 * paper.cost.total, "{advice}");
        advice.design.check(4).unwrap();
    }

    #[test]
    fn the_rendering_shows_picture_and_costs() {
        let tree = Tree { size_ratio: 2.0, entries_per_block: 10.0, columns: 4 };
        let mut trace = Trace::new(4, 2).unwrap();
        trace.add_scans(1, &"3".parse().unwrap(), 1, 4_000_000).unwrap();
        let text = advise(&tree, &trace, &[2]).unwrap().to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..3], ["L0 |0-3  |", "L1 |0-2|3|", ""]);
        assert!(lines[3].starts_with("blocks") && lines[3].ends_with("    width 2"));
        assert_eq!(lines[6].split_whitespace().take(3).collect::<Vec<_>>(), ["total", "200.00", "k"]);
        assert_eq!(lines.len(), 7);
    }
}
