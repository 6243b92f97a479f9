//! The best groups of one level within one group of the level above (LASER §6.3); why this is enough says the header
//! of [`super`].
//!
//! [`LevelCosts::best_groups`] is given *atoms*, sets of columns that stay together, and merges them into groups:
//!
//! 1. *Up to [`EXACT_PARTITIONS`] atoms*: dynamic programming over sets of atoms. The cost is a sum over groups, so the
//!    cheapest partition of a set is the cheapest choice of a group that holds the set's first atom, and the cheapest
//!    partition of the rest. No rest holds the first atom of all, so that of `n` atoms `(3^(n-1) + 2^n)/2` choices at
//!    most are looked at; all `B(n)` set partitions are among what they make up. Exact.
//! 2. *More atoms*: from each of two starts, at most [`MAX_ROUNDS`] times and while it helps,
//!    - merge the pair of groups that saves most, over and over until one group is left, and keep the cheapest step of
//!      that way;
//!    - move each atom to where it costs least, a group of its own included.
//!
//!    One start is a group for each atom (beyond [`MAX_GROUPS`] atoms, each in turn joins the group that it costs least
//!    to join, or opens one while there may be more). The other leaves the light accesses aside: atoms that the
//!    heaviest ones do not tell apart are taken together, as many accesses as leave no more than [`EXACT_PARTITIONS`]
//!    such classes, which are then merged exactly. The cheaper end is taken, or one group for all atoms, or a group for
//!    each, should that be cheaper still.
//!
//! The cost of a group follows from its number of columns, the cells that scans would take from it, and the set of
//! accesses that touch it, 64 bits, in a constant number of additions: eight tables hold the sums over each byte of
//! that set. Where a group may be columnar, it costs what the cheaper format does.

use std::collections::BTreeMap;

use mycelium_base::ColumnSet;

use crate::cost::formats::{Formats, cell_reads, group_reads};
use crate::cost::laser::{Tree, cost_per_column, insert_share};
use crate::trace::{Access, MAX_PROJECTIONS};

/// The most primary partitions, within one group of the level above, for which the best groups are found exactly.
pub const EXACT_PARTITIONS: usize = 13;

/// The most groups that merging begins with.
const MAX_GROUPS: usize = 256;

/// The most rounds of merging and moving.
const MAX_ROUNDS: usize = 8;

// A set of accesses is a word.
const _: () = assert!(MAX_PROJECTIONS <= 64);

/// Splits `columns` by every projection until each subset is wholly inside or wholly outside each of them (§6.3, first
/// step). In the order of their smallest columns.
///
/// ```
/// use mycelium_advisor::design::primary_partitions;
/// use mycelium_base::ColumnSet;
///
/// let projections = [ColumnSet::from_iter([2, 3, 4]), ColumnSet::from_iter([1, 2]), (1..=4).collect()];
/// let partitions = primary_partitions(&(1..=4).collect(), &projections);
/// assert_eq!(partitions, [ColumnSet::from_iter([1]), ColumnSet::from_iter([2]), ColumnSet::from_iter([3, 4])]);
/// ```
pub fn primary_partitions(columns: &ColumnSet, projections: &[ColumnSet]) -> Vec<ColumnSet> {
    let mut partitions: Vec<ColumnSet> = std::iter::once(columns.clone()).filter(|part| !part.is_empty()).collect();
    for projection in projections {
        let mut outside = Vec::new();
        for part in partitions.iter_mut().filter(|part| part.overlaps(projection) && !part.is_subset(projection)) {
            outside.push(part.difference(projection));
            *part = part.intersection(projection);
        }
        partitions.append(&mut outside);
    }
    partitions.sort_by_key(|part| part.iter().next());
    partitions
}

/// Equation 9 of one level, or what [`crate::cost::formats`] makes of it, ready to be evaluated for many groups.
pub(super) struct LevelCosts {
    projections: Vec<ColumnSet>,
    /// What inserts cost a group for its key, and for each of its columns.
    key: f64,
    column: f64,
    /// The bytes of a columnar group over those of rows; `None` where all groups are of rows.
    encoded: Option<f64>,
    /// For each access what a cell that it takes from a columnar group costs.
    cells: Vec<f64>,
    /// For each byte of a set of accesses and each value of it: what its accesses cost.
    tables: Vec<[Weights; 256]>,
}

/// What accesses cost for a group that they touch: as rows and as columns, apart from bytes, and for each column's
/// bytes.
#[derive(Clone, Copy, Default)]
struct Weights {
    rows: f64,
    columns: f64,
    bytes: f64,
}

impl Weights {
    fn plus(self, other: Self) -> Self {
        let Self { rows, columns, bytes } = other;
        Self { rows: self.rows + rows, columns: self.columns + columns, bytes: self.bytes + bytes }
    }
}

/// The chosen groups and how they were found.
pub(super) struct BestGroups {
    pub(super) groups: Vec<ColumnSet>,
    pub(super) is_exact: bool,
    /// Groups whose cost was looked at.
    pub(super) evaluated: u64,
}

/// Columns that stay together, or atoms merged into a group.
#[derive(Clone)]
struct Part {
    /// Atoms, by index.
    atoms: Vec<usize>,
    /// Number of columns.
    size: usize,
    /// Bit `k`: access `k` touches one of the columns.
    touched: u64,
    /// What the cells cost that scans take from these columns where they are columnar.
    cells: f64,
    /// `f` of equation 9 for these columns as a group; 0 for none.
    cost: f64,
}

impl LevelCosts {
    /// The costs of a level that serves `accesses`, at most [`MAX_PROJECTIONS`] of them (as many as a trace has); of
    /// groups of rows by equation 9, or of either format.
    pub(super) fn new(tree: &Tree, formats: Option<&Formats>, inserts: u64, accesses: &[Access]) -> Self {
        let weights = |access: &Access| {
            let reads = |is_columnar| formats.map(|formats| group_reads(formats, access, is_columnar));
            Weights {
                rows: reads(false).unwrap_or(access.points as f64),
                columns: reads(true).unwrap_or_default(),
                bytes: cost_per_column(tree, access),
            }
        };
        let weights: Vec<Weights> = accesses.iter().map(weights).collect();
        let table = |weights: &[Weights]| {
            let mut sums = [Weights::default(); 256];
            for value in 1..256usize {
                let last = weights.get(value.trailing_zeros() as usize).copied().unwrap_or_default();
                sums[value] = sums[value & (value - 1)].plus(last);
            }
            sums
        };
        let key = insert_share(tree, inserts);
        let cell = |access: &Access| formats.map_or(0.0, |formats| cell_reads(formats, access));
        Self {
            projections: accesses.iter().map(|access| access.columns.clone()).collect(),
            key,
            column: if formats.is_some() { key } else { 0.0 },
            encoded: formats.map(|formats| formats.encoded),
            cells: accesses.iter().map(cell).collect(),
            tables: weights.chunks(8).map(table).collect(),
        }
    }

    /// The primary partitions of `columns` at this level.
    pub(super) fn primary_partitions(&self, columns: &ColumnSet) -> Vec<ColumnSet> {
        primary_partitions(columns, &self.projections)
    }

    /// The groups that cost least, made of `atoms`, which share no column. See the module.
    pub(super) fn best_groups(&self, atoms: &[ColumnSet]) -> BestGroups {
        let parts: Vec<Part> = atoms.iter().enumerate().map(|(index, columns)| self.part(index, columns)).collect();
        let mut evaluated = 0;
        let is_exact = parts.len() <= EXACT_PARTITIONS;
        let chosen = match is_exact {
            true => self.merge_exactly(&parts, &mut evaluated),
            false => self.merge_greedily(&parts, &mut evaluated),
        };
        let columns_of = |part: &Part| part.atoms.iter().fold(ColumnSet::new(), |set, &atom| set.union(&atoms[atom]));
        let mut groups: Vec<ColumnSet> = chosen.iter().map(columns_of).collect();
        groups.sort_by_key(|group| group.iter().next());
        BestGroups { groups, is_exact, evaluated }
    }

    /// Whether the group of these columns is cheaper columnar than as rows.
    pub(super) fn is_columnar(&self, columns: &ColumnSet) -> bool {
        let part = self.part(0, columns);
        self.columnar_cost(&part).is_some_and(|cost| cost < self.row_cost(&part))
    }

    /// What groups cost, each in its cheaper format.
    pub(super) fn cost_of_groups(&self, groups: &[ColumnSet]) -> f64 {
        groups.iter().map(|group| self.part(0, group).cost).sum()
    }

    fn part(&self, index: usize, columns: &ColumnSet) -> Part {
        let mut part = Part { atoms: vec![index], size: columns.len(), touched: 0, cells: 0.0, cost: 0.0 };
        for (access, projection) in self.projections.iter().enumerate() {
            if projection.overlaps(columns) {
                part.touched |= 1 << access;
                part.cells += self.cells[access] * projection.intersection(columns).len() as f64;
            }
        }
        part.cost = self.cost(&part);
        part
    }

    fn join(&self, part: &mut Part, other: &Part) {
        part.atoms.extend_from_slice(&other.atoms);
        part.add(other);
        part.cost = self.cost(part);
    }

    fn joined<'a>(&self, parts: impl Iterator<Item = &'a Part>) -> Part {
        let mut sum = Part::empty();
        for part in parts {
            sum.atoms.extend_from_slice(&part.atoms);
            sum.add(part);
        }
        if !sum.atoms.is_empty() {
            sum.cost = self.cost(&sum);
        }
        sum
    }

    /// `f(G)` of equation 9 ([`crate::cost::laser::group_cost`]), or the less of that of both formats
    /// ([`crate::cost::formats::group_cost`]).
    #[inline]
    fn cost(&self, part: &Part) -> f64 {
        let rows = self.row_cost(part);
        self.columnar_cost(part).map_or(rows, |columns| rows.min(columns))
    }

    #[inline]
    fn row_cost(&self, part: &Part) -> f64 {
        let weights = self.weights(part.touched);
        weights.rows + self.bytes_cost(part.size, weights)
    }

    #[inline]
    fn columnar_cost(&self, part: &Part) -> Option<f64> {
        let encoded = self.encoded?;
        let weights = self.weights(part.touched);
        Some(weights.columns + part.cells + encoded * self.bytes_cost(part.size, weights))
    }

    /// What is read and written of a group, in bytes of rows.
    #[inline]
    fn bytes_cost(&self, size: usize, weights: Weights) -> f64 {
        self.key + self.column * size as f64 + (1 + size) as f64 * weights.bytes
    }

    #[inline]
    fn weights(&self, touched: u64) -> Weights {
        let bytes = self.tables.iter().zip(touched.to_le_bytes());
        bytes.fold(Weights::default(), |sum, (table, byte)| sum.plus(table[byte as usize]))
    }

    fn merge_exactly(&self, parts: &[Part], evaluated: &mut u64) -> Vec<Part> {
        if parts.is_empty() {
            return Vec::new();
        }
        let all = (1usize << parts.len()) - 1;
        let mut merged = vec![Part::empty(); all + 1];
        for set in 1..=all {
            let mut part = merged[set & (set - 1)].clone();
            part.add(&parts[set.trailing_zeros() as usize]);
            part.cost = self.cost(&part);
            merged[set] = part;
        }
        let group_cost: Vec<f64> = merged.iter().map(|part| part.cost).collect();
        // The cheapest partition of each set: its cost, and the group with the set's first atom.
        let mut best = vec![(0.0, 0usize); all + 1];
        for set in (2..all).step_by(2).chain([all]) {
            let first = set & set.wrapping_neg();
            let others = set ^ first;
            let mut cheapest = (f64::INFINITY, set);
            let mut companions = others;
            loop {
                let group = companions | first;
                let cost = group_cost[group] + best[set ^ group].0;
                if cost < cheapest.0 {
                    cheapest = (cost, group);
                }
                if companions == 0 {
                    break;
                }
                companions = (companions - 1) & others;
            }
            *evaluated += 1 << others.count_ones();
            best[set] = cheapest;
        }
        let mut groups = Vec::new();
        let mut rest = all;
        while rest != 0 {
            let group = best[rest].1;
            groups.push(self.joined((0..parts.len()).filter(|atom| group >> atom & 1 == 1).map(|atom| &parts[atom])));
            rest ^= group;
        }
        groups
    }

    fn merge_greedily(&self, parts: &[Part], evaluated: &mut u64) -> Vec<Part> {
        let starts = [self.starting_groups(parts, evaluated), self.merge_exactly(&self.classes(parts), evaluated)];
        let [first, second] = starts.map(|start| self.descend(parts, start, evaluated));
        let rivals = [first, second, vec![self.joined(parts.iter())], parts.to_vec()];
        let cheapest = rivals.into_iter().min_by(|a, b| cost_of(a).total_cmp(&cost_of(b)));
        cheapest.unwrap_or_default()
    }

    /// Rounds of merging and moving, while they help.
    fn descend(&self, parts: &[Part], mut groups: Vec<Part>, evaluated: &mut u64) -> Vec<Part> {
        let mut cost = cost_of(&groups);
        for _ in 0..MAX_ROUNDS {
            let mut next = self.merge_down(&groups, evaluated);
            self.move_atoms(parts, &mut next, evaluated);
            let next_cost = cost_of(&next);
            // Not for the last bits of a sum.
            if next_cost >= cost * (1.0 - 1e-12) {
                break;
            }
            (groups, cost) = (next, next_cost);
        }
        groups
    }

    /// At most [`EXACT_PARTITIONS`] classes of parts that the heaviest accesses do not tell apart.
    fn classes(&self, parts: &[Part]) -> Vec<Part> {
        let mut heaviest: Vec<usize> = (0..self.projections.len()).collect();
        let weight = |access: usize| {
            let size = self.projections[access].len();
            let cells = self.cells[access] * size as f64;
            self.cost(&Part { size, touched: 1 << access, cells, ..Part::empty() })
        };
        heaviest.sort_by(|a, b| weight(*b).total_cmp(&weight(*a)));
        let mut classes = vec![self.joined(parts.iter())];
        let mut told_apart = 0u64;
        for access in heaviest {
            let mut finer: BTreeMap<u64, Vec<&Part>> = BTreeMap::new();
            for part in parts {
                let class = part.touched & (told_apart | 1 << access);
                finer.entry(class).or_default().push(part);
            }
            if finer.len() <= EXACT_PARTITIONS {
                told_apart |= 1 << access;
                classes = finer.into_values().map(|class| self.joined(class.into_iter())).collect();
            }
        }
        classes
    }

    /// A group for each part, or [`MAX_GROUPS`] groups that each part joins as cheaply as it can.
    fn starting_groups(&self, parts: &[Part], evaluated: &mut u64) -> Vec<Part> {
        if parts.len() <= MAX_GROUPS {
            return parts.to_vec();
        }
        let mut groups: Vec<Part> = Vec::new();
        for part in parts {
            let joining = groups.iter().map(|group| self.cost_of_joining(group, part)).enumerate();
            let cheapest = joining.min_by(|a, b| a.1.total_cmp(&b.1));
            *evaluated += groups.len() as u64;
            match cheapest {
                Some((group, added)) if added <= part.cost || groups.len() == MAX_GROUPS => {
                    self.join(&mut groups[group], part);
                }
                _ => groups.push(part.clone()),
            }
        }
        groups
    }

    /// What a group costs more with a part than without.
    fn cost_of_joining(&self, group: &Part, part: &Part) -> f64 {
        let (size, touched) = (group.size + part.size, group.touched | part.touched);
        self.cost(&Part { size, touched, cells: group.cells + part.cells, ..Part::empty() }) - group.cost
    }

    /// Merges the pair that saves most until one group is left; the cheapest state on the way.
    fn merge_down(&self, start: &[Part], evaluated: &mut u64) -> Vec<Part> {
        let mut pairs = Pairs::new(self, start);
        let (mut merges, mut saved) = (Vec::new(), 0.0);
        let (mut best_saved, mut best_merges) = (0.0, 0);
        while let Some((i, j, saving)) = pairs.merge_best() {
            merges.push((i, j));
            saved += saving;
            if saved > best_saved {
                (best_saved, best_merges) = (saved, merges.len());
            }
        }
        *evaluated += pairs.evaluated;
        let mut groups: Vec<Option<Part>> = start.iter().cloned().map(Some).collect();
        for &(i, j) in &merges[..best_merges] {
            if let (Some(gone), Some(group)) = (groups[j].take(), &mut groups[i]) {
                self.join(group, &gone);
            }
        }
        groups.into_iter().flatten().collect()
    }

    /// Moves each atom once to the group, or into a new one, where the whole costs least.
    fn move_atoms(&self, parts: &[Part], groups: &mut Vec<Part>, evaluated: &mut u64) {
        let mut homes = vec![0; parts.len()];
        let mut touching = Vec::new();
        for (index, group) in groups.iter().enumerate() {
            group.atoms.iter().for_each(|&atom| homes[atom] = index);
            touching.push(touch_counts(group.atoms.iter().map(|&atom| &parts[atom])));
        }
        for (atom, part) in parts.iter().enumerate() {
            let home = homes[atom];
            let stay = self.without(&groups[home], part, &touching[home]);
            let gained = groups[home].cost - stay.cost;
            // A new group, if there may be one more.
            let may_open = groups.len() < MAX_GROUPS;
            let (mut target, mut least) = (groups.len(), if may_open { part.cost } else { f64::INFINITY });
            for (index, group) in groups.iter().enumerate().filter(|(index, group)| *index != home && group.size > 0) {
                let added = self.cost_of_joining(group, part);
                if added < least {
                    (target, least) = (index, added);
                }
            }
            *evaluated += groups.len() as u64;
            // Not for the last bits of a sum: that could go on for ever.
            if gained - least <= 1e-12 * gained.abs() {
                continue;
            }
            if target == groups.len() {
                groups.push(self.joined(std::iter::empty()));
                touching.push([0; 64]);
            }
            groups[home] = stay;
            self.join(&mut groups[target], part);
            homes[atom] = target;
            for access in bits(part.touched) {
                touching[home][access] -= 1;
                touching[target][access] += 1;
            }
        }
        let mut members: Vec<Vec<&Part>> = vec![Vec::new(); groups.len()];
        parts.iter().zip(&homes).for_each(|(part, &home)| members[home].push(part));
        *groups = members.into_iter().map(|members| self.joined(members.into_iter())).collect();
        groups.retain(|group| group.size > 0);
    }

    /// A group without one of its parts, atoms aside; `touching` counts its parts that each access touches.
    fn without(&self, group: &Part, part: &Part, touching: &[u32; 64]) -> Part {
        let gone =
            bits(part.touched).filter(|&access| touching[access] == 1).fold(0, |gone, access| gone | 1 << access);
        let (touched, size) = (group.touched & !gone, group.size - part.size);
        let mut rest = Part { size, touched, cells: (group.cells - part.cells).max(0.0), ..Part::empty() };
        rest.cost = if size == 0 { 0.0 } else { self.cost(&rest) };
        rest
    }
}

impl Part {
    fn empty() -> Self {
        Self { atoms: Vec::new(), size: 0, touched: 0, cells: 0.0, cost: 0.0 }
    }

    /// Adds another's columns, but for its atoms; its own cost is then to be found.
    fn add(&mut self, other: &Part) {
        self.size += other.size;
        self.touched |= other.touched;
        self.cells += other.cells;
    }
}

/// How many of the parts each access touches.
fn touch_counts<'a>(parts: impl Iterator<Item = &'a Part>) -> [u32; 64] {
    let mut counts = [0; 64];
    parts.for_each(|part| bits(part.touched).for_each(|access| counts[access] += 1));
    counts
}

/// The positions of the bits that are set.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(bit)
    })
}

fn cost_of(parts: &[Part]) -> f64 {
    parts.iter().map(|part| part.cost).sum()
}

/// Groups, and what merging any two of them saves.
struct Pairs<'a> {
    costs: &'a LevelCosts,
    groups: Vec<Option<Part>>,
    /// What merging `i` and `j > i` saves, at `i * n + j`; minus infinity where one is gone.
    savings: Vec<f64>,
    /// For each `i` the `j > i` that saves most.
    partners: Vec<Option<usize>>,
    evaluated: u64,
}

impl<'a> Pairs<'a> {
    fn new(costs: &'a LevelCosts, start: &[Part]) -> Self {
        let n = start.len();
        let groups = start.iter().cloned().map(Some).collect();
        let mut pairs =
            Self { costs, groups, savings: vec![f64::NEG_INFINITY; n * n], partners: vec![None; n], evaluated: 0 };
        for i in 0..n {
            (i + 1..n).for_each(|j| pairs.refresh(i, j));
            pairs.find_partner(i);
        }
        pairs
    }

    /// Merges the pair that saves most: what stays, what is gone, what it saved (less than nothing, perhaps).
    fn merge_best(&mut self) -> Option<(usize, usize, f64)> {
        let n = self.groups.len();
        let saving_of = |i: usize, j: usize| self.savings[i * n + j];
        let best = self.partners.iter().enumerate().filter_map(|(i, j)| j.map(|j| (i, j, saving_of(i, j))));
        let (i, j, saving) = best.reduce(|best, pair| if pair.2 > best.2 { pair } else { best })?;
        let gone = self.groups[j].take()?;
        if let Some(group) = &mut self.groups[i] {
            self.costs.join(group, &gone);
        }
        for other in (0..n).filter(|other| *other != i) {
            self.refresh(i.min(other), i.max(other));
            self.savings[j.min(other) * n + j.max(other)] = f64::NEG_INFINITY;
        }
        self.partners[j] = None;
        for row in 0..n {
            let partner = self.partners[row];
            if row == i || partner == Some(i) || partner == Some(j) {
                self.find_partner(row);
            } else if row < i
                && partner.is_some_and(|partner| self.savings[row * n + i] > self.savings[row * n + partner])
            {
                self.partners[row] = Some(i);
            }
        }
        Some((i, j, saving))
    }

    fn refresh(&mut self, i: usize, j: usize) {
        let saving = match (&self.groups[i], &self.groups[j]) {
            (Some(a), Some(b)) => b.cost - self.costs.cost_of_joining(a, b),
            _ => f64::NEG_INFINITY,
        };
        self.evaluated += 1;
        self.savings[i * self.groups.len() + j] = saving;
    }

    fn find_partner(&mut self, row: usize) {
        let n = self.groups.len();
        let mut best: Option<usize> = None;
        for j in row + 1..n {
            let saving = self.savings[row * n + j];
            let is_better = best.is_none_or(|best| saving > self.savings[row * n + best]);
            if saving > f64::NEG_INFINITY && is_better {
                best = Some(j);
            }
        }
        self.partners[row] = best;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::laser::{group_cost, level_cost};
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    const TREE: Tree = Tree { size_ratio: 4.0, entries_per_block: 20.0, columns: 60 };

    fn random_accesses(rng: &mut SmallRng, columns: usize, count: usize) -> Vec<Access> {
        (0..count)
            .map(|_| {
                let share = [0.1, 0.3, 0.7][rng.random_range(0..3)];
                Access {
                    points: rng.random_range(0..200),
                    scanned_entries: rng.random_range(0..20_000),
                    updates: rng.random_range(0..50),
                    ..Access::of((0..columns).filter(|_| rng.random_bool(share)).collect())
                }
            })
            .collect()
    }

    /// What the header says of exact merging.
    fn exact_bound(atoms: usize) -> u64 {
        (3u64.pow(atoms as u32 - 1) + 2u64.pow(atoms as u32)) / 2
    }

    #[test]
    fn tables_give_the_cost_of_a_group() {
        let mut rng = SmallRng::seed_from_u64(1);
        for count in [0, 1, 8, 9, 40, 64] {
            let accesses = random_accesses(&mut rng, 60, count);
            let costs = LevelCosts::new(&TREE, None, 77, &accesses);
            for _ in 0..20 {
                let group: ColumnSet = (0..60).filter(|_| rng.random_bool(0.1)).collect();
                let part = costs.part(0, &group);
                let expected = group_cost(&TREE, 77, &accesses, &group);
                assert!((part.cost - expected).abs() <= 1e-9 * expected.max(1.0));
            }
        }
    }

    #[test]
    fn primary_partitions_do_not_depend_on_the_order_of_projections() {
        let mut rng = SmallRng::seed_from_u64(2);
        for _ in 0..50 {
            let count = rng.random_range(0..6);
            let mut projections: Vec<ColumnSet> =
                random_accesses(&mut rng, 20, count).into_iter().map(|access| access.columns).collect();
            let partitions = primary_partitions(&ColumnSet::first(20), &projections);
            projections.reverse();
            assert_eq!(primary_partitions(&ColumnSet::first(20), &projections), partitions);
            for projection in &projections {
                assert!(partitions.iter().all(|part| part.is_subset(projection) || !part.overlaps(projection)));
            }
        }
        assert!(primary_partitions(&ColumnSet::new(), &[ColumnSet::first(3)]).is_empty());
    }

    /// Beyond [`EXACT_PARTITIONS`], against the exact answer, which is merely slow there: never below it, and near.
    /// Also what the first start alone comes to, since the second is itself exact for few heavy accesses.
    #[test]
    fn greedy_merging_is_near_the_optimum() {
        let (mut worst, mut worst_alone, mut equal, count) = (1.0f64, 1.0f64, 0, 60);
        for seed in 0..count {
            let mut rng = SmallRng::seed_from_u64(seed);
            let columns = rng.random_range(14..=15);
            let accesses = random_accesses(&mut rng, columns, 4 + seed as usize % 20);
            let costs = LevelCosts::new(&TREE, None, rng.random_range(0..20_000), &accesses);
            let parts: Vec<Part> =
                (0..columns).map(|column| costs.part(column, &ColumnSet::from_iter([column]))).collect();
            let exact = cost_of(&costs.merge_exactly(&parts, &mut 0));
            let alone = cost_of(&costs.descend(&parts, costs.starting_groups(&parts, &mut 0), &mut 0));
            let greedy = cost_of(&costs.merge_greedily(&parts, &mut 0));
            assert!(greedy >= exact * (1.0 - 1e-9) && alone >= greedy * (1.0 - 1e-9), "seed {seed}");
            worst = worst.max(greedy / exact);
            worst_alone = worst_alone.max(alone / exact);
            equal += usize::from(greedy <= exact * (1.0 + 1e-9));
        }
        println!("greedy: {equal} of {count} at the optimum, at worst {worst:.4}; one start alone {worst_alone:.4}");
        assert!(worst < 1.1, "at worst {worst}");
    }

    #[test]
    fn the_groups_cover_what_was_given_and_cost_what_the_model_says() {
        for (seed, columns) in [(1, 5), (2, 13), (3, 30), (4, 60)] {
            let mut rng = SmallRng::seed_from_u64(seed);
            let accesses = random_accesses(&mut rng, columns, 20);
            let costs = LevelCosts::new(&TREE, None, 100, &accesses);
            let atoms = costs.primary_partitions(&ColumnSet::first(columns));
            let best = costs.best_groups(&atoms);
            assert_eq!(best.is_exact, atoms.len() <= EXACT_PARTITIONS);
            assert_eq!(best.groups.iter().map(ColumnSet::len).sum::<usize>(), columns);
            let cost = level_cost(&TREE, 100, &accesses, &best.groups);
            assert!(cost <= level_cost(&TREE, 100, &accesses, &[ColumnSet::first(columns)]) * (1.0 + 1e-9));
            assert!(cost <= level_cost(&TREE, 100, &accesses, &atoms) * (1.0 + 1e-9));
        }
    }

    /// More atoms than merging begins with.
    #[test]
    fn thousands_of_atoms_stay_bounded() {
        let tree = Tree { columns: 4_096, ..TREE };
        let mut rng = SmallRng::seed_from_u64(5);
        let accesses = random_accesses(&mut rng, 4_096, 20);
        let costs = LevelCosts::new(&tree, None, 100, &accesses);
        let atoms = costs.primary_partitions(&ColumnSet::first(4_096));
        assert!(atoms.len() > 1_000, "{}", atoms.len());
        let best = costs.best_groups(&atoms);
        assert_eq!(best.groups.iter().map(ColumnSet::len).sum::<usize>(), 4_096);
        // Starting, and from both starts in every round merging and moving.
        let (n, m) = (MAX_GROUPS as u64, atoms.len() as u64);
        let bound = m * n + exact_bound(EXACT_PARTITIONS) + 2 * MAX_ROUNDS as u64 * (2 * n * n + m * n);
        assert!(best.evaluated <= bound, "{} above {bound}", best.evaluated);
        assert!(!best.is_exact);
    }

    #[test]
    fn exact_merging_looks_at_no_more_than_it_says() {
        let mut rng = SmallRng::seed_from_u64(6);
        let accesses = random_accesses(&mut rng, EXACT_PARTITIONS, 30);
        let costs = LevelCosts::new(&TREE, None, 100, &accesses);
        let atoms: Vec<ColumnSet> = (0..EXACT_PARTITIONS).map(|column| ColumnSet::from_iter([column])).collect();
        let best = costs.best_groups(&atoms);
        assert!(best.is_exact);
        assert!(best.evaluated <= exact_bound(EXACT_PARTITIONS), "{}", best.evaluated);
        assert!(costs.best_groups(&[]).groups.is_empty());
    }
}
