//! Traces: what a table was asked for, by level and projection (LASER §6.1: `w`, `p_i`, `q_i`, `u_i`, `s_i` and the
//! projections). The input of [`crate::design`].
//!
//! A [`Trace`] is plain data: counters keyed by (level, kind of operation, projection). Inserts write whole rows that
//! pass through every level, so that they have one counter for all (the `w` of equation 9). So do range deletes, each
//! of which is an entry in every column group as a row is: they have another, and `w` is the sum ([`Trace::writes`]). A
//! [`Recorder`] counts from many threads and hands out traces. Both are bounded: at most [`MAX_PROJECTIONS`]
//! projections, [`MAX_COLUMNS`] columns and [`MAX_LEVELS`] levels.
//!
//! **When there are too many projections.** The projection of all columns is always recorded. A new projection that
//! finds [`MAX_PROJECTIONS`] others is counted as the narrowest recorded one that contains it (of equally narrow ones
//! the smallest as a set), and the operation is also counted in [`Trace::overflowed`]. What it touches is thereby
//! overstated, never understated: designs lean towards wider groups. Merging traces first adds everything up and then
//! folds the projections with the fewest operations in the same way, until few enough are left.
//!
//! An operation on no column (existence, a count of keys) says nothing about groups, and is not counted.
//! Counters stop at their largest value.

mod recorder;
mod text;

use std::collections::BTreeMap;

use mycelium_base::limits::MAX_LEVELS;
use mycelium_base::{ColumnSet, Error, Result};

pub use recorder::{ProjectionRecorder, Recorder};
pub use text::MAX_TEXT_BYTES;

/// The most projections that a trace tells apart, that of all columns included.
pub const MAX_PROJECTIONS: usize = 64;

/// The most columns of a traced table (as of a schema).
pub const MAX_COLUMNS: usize = 4_096;

/// What a level served for one projection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Access {
    /// `Π`: the columns read or updated.
    pub columns: ColumnSet,
    /// `p_i`: point reads that found at least one of their columns at this level.
    pub points: u64,
    /// `q_i`: range reads.
    pub scans: u64,
    /// `s_i`: the entries of this level that those range reads selected, all together.
    pub scanned_entries: u64,
    /// `u_i`: updates of these columns that reached this level.
    pub updates: u64,
}

impl Access {
    /// Nothing yet, of these columns.
    pub fn of(columns: ColumnSet) -> Self {
        Self { columns, ..Self::default() }
    }
}

/// The counters of one projection at one level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counts {
    points: u64,
    scans: u64,
    scanned_entries: u64,
    updates: u64,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.points = self.points.saturating_add(other.points);
        self.scans = self.scans.saturating_add(other.scans);
        self.scanned_entries = self.scanned_entries.saturating_add(other.scanned_entries);
        self.updates = self.updates.saturating_add(other.updates);
    }

    /// Adds what another level counted, as if it had been this one's: an update that passed through both counts once.
    fn fold(&mut self, other: &Counts) {
        let updates = self.updates.max(other.updates);
        self.add(other);
        self.updates = updates;
    }

    fn halve(&mut self) {
        let Self { points, scans, scanned_entries, updates } = self;
        [points, scans, scanned_entries, updates].into_iter().for_each(|count| *count /= 2);
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn operations(&self) -> u64 {
        self.points.saturating_add(self.scans).saturating_add(self.updates)
    }
}

/// What a table was asked for. See the module for its bounds.
///
/// ```
/// use mycelium_advisor::Trace;
/// use mycelium_base::ColumnSet;
///
/// let mut trace = Trace::new(30, 8)?;
/// trace.add_inserts(20_000_000);
/// trace.add_points(1, &ColumnSet::first(30), 500_000)?;
/// trace.add_scans(7, &"27-29".parse()?, 12, 1_200_000_000)?;
/// trace.add_updates(1, &"4".parse()?, 100)?;
///
/// let at_the_bottom = trace.accesses(7);
/// assert_eq!(at_the_bottom.len(), 1);
/// assert_eq!(at_the_bottom[0].columns.to_string(), "27-29");
/// assert_eq!(at_the_bottom[0].scanned_entries, 1_200_000_000);
/// assert_eq!(Trace::parse(&trace.to_string())?, trace);
/// # Ok::<(), mycelium_base::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    columns: usize,
    level_count: usize,
    inserts: u64,
    range_deletes: u64,
    overflowed: u64,
    /// `level_count` counters each; all columns are always there.
    projections: BTreeMap<ColumnSet, Vec<Counts>>,
}

impl Trace {
    /// An empty trace of a table with `columns` columns (the key apart) and `levels` levels, level 0 included. Fails
    /// beyond the bounds of the module.
    pub fn new(columns: usize, levels: usize) -> Result<Self> {
        if columns == 0 || columns > MAX_COLUMNS {
            return Err(Error::invalid(format!("a trace of {columns} columns; 1 to {MAX_COLUMNS} are possible")));
        }
        if levels == 0 || levels > MAX_LEVELS {
            return Err(Error::invalid(format!("a trace of {levels} levels; 1 to {MAX_LEVELS} are possible")));
        }
        let projections = BTreeMap::from([(ColumnSet::first(columns), vec![Counts::default(); levels])]);
        Ok(Self { columns, level_count: levels, inserts: 0, range_deletes: 0, overflowed: 0, projections })
    }

    /// The columns of the table.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The levels, level 0 included.
    pub fn level_count(&self) -> usize {
        self.level_count
    }

    /// Rows inserted or deleted by key.
    pub fn inserts(&self) -> u64 {
        self.inserts
    }

    /// Range deletes.
    pub fn range_deletes(&self) -> u64 {
        self.range_deletes
    }

    /// `w`: what is written to every column group of every level, rows and range deletes.
    pub fn writes(&self) -> u64 {
        self.inserts.saturating_add(self.range_deletes)
    }

    /// Operations that were counted under a wider projection than their own (see the module).
    pub fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// Operations counted: inserts and range deletes, and at every level the point reads, range reads and updates. An
    /// operation that several levels served counts at each.
    pub fn operations(&self) -> u64 {
        let counts = self.projections.values().flatten();
        counts.fold(self.writes(), |sum, counts| sum.saturating_add(counts.operations()))
    }

    /// Entries that range reads selected, at all levels together.
    pub fn scanned_entries(&self) -> u64 {
        let counts = self.projections.values().flatten();
        counts.fold(0, |sum: u64, counts| sum.saturating_add(counts.scanned_entries))
    }

    /// What level `level` served, by projection in the order of sets; none for a level that is not there.
    pub fn accesses(&self, level: usize) -> Vec<Access> {
        let mut accesses = Vec::new();
        for (columns, levels) in &self.projections {
            let Some(&counts) = levels.get(level) else { continue };
            if counts != Counts::default() {
                let Counts { points, scans, scanned_entries, updates } = counts;
                accesses.push(Access { columns: columns.clone(), points, scans, scanned_entries, updates });
            }
        }
        accesses
    }

    /// Counts inserted rows.
    pub fn add_inserts(&mut self, count: u64) {
        self.inserts = self.inserts.saturating_add(count);
    }

    /// Counts range deletes.
    pub fn add_range_deletes(&mut self, count: u64) {
        self.range_deletes = self.range_deletes.saturating_add(count);
    }

    /// Counts point reads of `columns` that `level` served. Fails if the level or a column is not there.
    pub fn add_points(&mut self, level: usize, columns: &ColumnSet, count: u64) -> Result<()> {
        self.add(level, columns, &Counts { points: count, ..Counts::default() })
    }

    /// Counts range reads of `columns` that selected `entries` entries of `level`, all together. Fails if the level or
    /// a column is not there.
    pub fn add_scans(&mut self, level: usize, columns: &ColumnSet, count: u64, entries: u64) -> Result<()> {
        self.add(level, columns, &Counts { scans: count, scanned_entries: entries, ..Counts::default() })
    }

    /// Counts updates of `columns` that reached `level`. Fails if the level or a column is not there.
    pub fn add_updates(&mut self, level: usize, columns: &ColumnSet, count: u64) -> Result<()> {
        self.add(level, columns, &Counts { updates: count, ..Counts::default() })
    }

    /// Adds what `other` counted. Fails, and changes nothing, if it is of other columns or levels.
    pub fn merge(&mut self, other: &Trace) -> Result<()> {
        if (self.columns, self.level_count) != (other.columns, other.level_count) {
            return Err(Error::invalid("traces of different tables cannot be merged").expected(
                format!("{} columns and {} levels", self.columns, self.level_count),
                format!("{} columns and {} levels", other.columns, other.level_count),
            ));
        }
        self.inserts = self.inserts.saturating_add(other.inserts);
        self.range_deletes = self.range_deletes.saturating_add(other.range_deletes);
        self.overflowed = self.overflowed.saturating_add(other.overflowed);
        for (columns, levels) in &other.projections {
            let own = self.projections.entry(columns.clone());
            let own = own.or_insert_with(|| vec![Counts::default(); levels.len()]);
            own.iter_mut().zip(levels).for_each(|(own, counts)| own.add(counts));
        }
        while self.projections.len() > MAX_PROJECTIONS {
            self.fold_rarest();
        }
        Ok(())
    }

    /// Halves every count, rounded down, so that what is added from now on weighs twice as much. Projections that have
    /// none left are forgotten.
    ///
    /// ```
    /// use mycelium_advisor::Trace;
    ///
    /// let mut trace = Trace::new(4, 2)?;
    /// trace.add_points(1, &"0-1".parse()?, 9)?;
    /// trace.add_points(1, &"3".parse()?, 1)?;
    /// trace.age();
    /// assert_eq!(trace.operations(), 4);
    /// assert_eq!(trace.accesses(1).len(), 1);
    /// # Ok::<(), mycelium_base::Error>(())
    /// ```
    pub fn age(&mut self) {
        self.inserts /= 2;
        self.range_deletes /= 2;
        self.overflowed /= 2;
        self.projections.values_mut().flatten().for_each(Counts::halve);
        self.forget_unused();
    }

    /// Forgets projections that nothing was counted for, but for that of all columns.
    fn forget_unused(&mut self) {
        let all = self.all_columns();
        self.projections.retain(|columns, levels| *columns == all || levels.iter().any(|level| !level.is_empty()));
    }

    /// The trace of a tree with `levels` levels, 1 or more: what deeper levels served counts at the last. Fails beyond
    /// the bounds of the module.
    pub fn with_levels(&self, levels: usize) -> Result<Self> {
        self.of_levels(&(0..levels.min(MAX_LEVELS + 1)).collect::<Vec<_>>())
    }

    /// The trace of a tree that has these levels only, ascending, one or more: what another level served counts at the
    /// next of them below, or else at the last. Reads add up; an update that passed through several counts once. Fails
    /// beyond the bounds of the module.
    ///
    /// ```
    /// use mycelium_advisor::Trace;
    ///
    /// let mut trace = Trace::new(4, 7)?;
    /// (0..7).try_for_each(|level| trace.add_updates(level, &"3".parse()?, 5))?;
    /// trace.add_points(5, &"3".parse()?, 2)?;
    /// let of_two = trace.of_levels(&[0, 6])?;
    /// assert_eq!((of_two.level_count(), of_two.accesses(1)[0].updates, of_two.accesses(1)[0].points), (2, 5, 2));
    /// # Ok::<(), mycelium_base::Error>(())
    /// ```
    pub fn of_levels(&self, levels: &[usize]) -> Result<Self> {
        let mut trace = Self::new(self.columns, levels.len())?;
        (trace.inserts, trace.range_deletes, trace.overflowed) = (self.inserts, self.range_deletes, self.overflowed);
        for (columns, old) in &self.projections {
            let mut new = vec![Counts::default(); levels.len()];
            for (level, counts) in old.iter().enumerate() {
                let at = levels.partition_point(|&known| known < level).min(levels.len() - 1);
                new[at].fold(counts);
            }
            trace.projections.insert(columns.clone(), new);
        }
        Ok(trace)
    }

    /// The trace of the same table once it has `columns` columns, further ones behind those that it had: what was of
    /// all columns is of these, too. Fails if they are fewer than before, or beyond the bounds of the module.
    ///
    /// ```
    /// use mycelium_advisor::Trace;
    ///
    /// let mut trace = Trace::new(3, 2)?;
    /// trace.add_points(1, &"0-2".parse()?, 5)?;
    /// trace.add_points(1, &"1-2".parse()?, 7)?;
    /// let wider = trace.with_columns(4)?;
    /// let of_all = wider.accesses(1).into_iter().find(|access| access.points == 5);
    /// assert_eq!(of_all.map(|access| access.columns.to_string()).as_deref(), Some("0-3"));
    /// assert_eq!(wider.operations(), 12);
    /// # Ok::<(), mycelium_base::Error>(())
    /// ```
    pub fn with_columns(&self, columns: usize) -> Result<Self> {
        if columns < self.columns {
            let message = format!("a trace of {} columns does not become one of {columns}", self.columns);
            return Err(Error::invalid(message));
        }
        let mut trace = Self::new(columns, self.level_count)?;
        (trace.inserts, trace.range_deletes, trace.overflowed) = (self.inserts, self.range_deletes, self.overflowed);
        let all = self.all_columns();
        for (known, levels) in &self.projections {
            let wide = if *known == all { trace.all_columns() } else { known.clone() };
            trace.projections.insert(wide, levels.clone());
        }
        Ok(trace)
    }

    fn add(&mut self, level: usize, columns: &ColumnSet, counts: &Counts) -> Result<()> {
        self.check(level, columns)?;
        if columns.is_empty() || *counts == Counts::default() {
            return Ok(());
        }
        let slot = if self.projections.contains_key(columns) || self.projections.len() < MAX_PROJECTIONS {
            columns.clone()
        } else {
            self.overflowed = self.overflowed.saturating_add(counts.operations());
            narrowest_above(self.projections.keys(), columns).cloned().unwrap_or_else(|| self.all_columns())
        };
        let levels = self.projections.entry(slot).or_insert_with(|| vec![Counts::default(); self.level_count]);
        if let Some(own) = levels.get_mut(level) {
            own.add(counts);
        }
        Ok(())
    }

    fn check(&self, level: usize, columns: &ColumnSet) -> Result<()> {
        if level >= self.level_count {
            return Err(Error::invalid(format!("level {level} of a trace of {} levels", self.level_count)));
        }
        if !columns.is_subset(&self.all_columns()) {
            return Err(Error::invalid(format!("columns {columns} of a trace of {} columns", self.columns)));
        }
        Ok(())
    }

    fn all_columns(&self) -> ColumnSet {
        ColumnSet::first(self.columns)
    }

    /// Counts the projection with the fewest operations (then the smallest set) as a wider one.
    fn fold_rarest(&mut self) {
        let all = self.all_columns();
        let operations =
            |levels: &[Counts]| levels.iter().fold(0u64, |sum, counts| sum.saturating_add(counts.operations()));
        let narrower = self.projections.iter().filter(|(columns, _)| **columns != all);
        let Some((rarest, _)) = narrower.min_by_key(|(columns, levels)| (operations(levels), *columns)) else { return };
        let rarest = rarest.clone();
        let levels = self.projections.remove(&rarest).unwrap_or_default();
        self.overflowed = self.overflowed.saturating_add(operations(&levels));
        let wider = narrowest_above(self.projections.keys(), &rarest).cloned().unwrap_or(all);
        if let Some(own) = self.projections.get_mut(&wider) {
            own.iter_mut().zip(&levels).for_each(|(own, counts)| own.add(counts));
        }
    }
}

/// The narrowest of `projections` that contains `columns`; of equally narrow ones the smallest set.
fn narrowest_above<'a>(projections: impl Iterator<Item = &'a ColumnSet>, columns: &ColumnSet) -> Option<&'a ColumnSet> {
    projections.filter(|wider| columns.is_subset(wider)).min_by_key(|wider| (wider.len(), *wider))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> ColumnSet {
        text.parse().unwrap()
    }

    #[test]
    fn counts_are_kept_by_level_kind_and_projection() {
        let mut trace = Trace::new(4, 3).unwrap();
        trace.add_inserts(7);
        trace.add_points(1, &set("0-3"), 2).unwrap();
        trace.add_points(1, &set("0-3"), 3).unwrap();
        trace.add_scans(2, &set("1"), 1, 100).unwrap();
        trace.add_updates(1, &set("1"), 4).unwrap();
        assert_eq!(trace.inserts(), 7);
        assert_eq!(trace.operations(), 7 + 5 + 1 + 4);
        assert!(trace.accesses(0).is_empty() && trace.accesses(99).is_empty());
        let level1 = trace.accesses(1);
        assert_eq!(level1.len(), 2);
        assert!(level1.contains(&Access { points: 5, ..Access::of(set("0-3")) }));
        assert!(level1.contains(&Access { updates: 4, ..Access::of(set("1")) }));
        assert_eq!(trace.accesses(2), [Access { scans: 1, scanned_entries: 100, ..Access::of(set("1")) }]);
    }

    #[test]
    fn what_is_not_there_is_refused_and_nothing_is_not_counted() {
        assert!(Trace::new(0, 1).is_err() && Trace::new(MAX_COLUMNS + 1, 1).is_err());
        assert!(Trace::new(1, 0).is_err() && Trace::new(1, MAX_LEVELS + 1).is_err());
        let mut trace = Trace::new(4, 3).unwrap();
        assert!(trace.add_points(3, &set("0"), 1).is_err());
        assert!(trace.add_points(0, &set("4"), 1).is_err());
        trace.add_points(0, &set("-"), 1).unwrap();
        trace.add_points(0, &set("2"), 0).unwrap();
        assert_eq!(trace, Trace::new(4, 3).unwrap());
        trace.add_points(0, &set("2"), u64::MAX).unwrap();
        trace.add_points(0, &set("2"), 9).unwrap();
        assert_eq!(trace.operations(), u64::MAX);
    }

    /// 63 narrow projections fill a trace; the next ones count as the narrowest that contains them.
    #[test]
    fn projections_beyond_the_bound_count_as_wider_ones() {
        let mut trace = Trace::new(200, 2).unwrap();
        for first in 0..MAX_PROJECTIONS - 2 {
            trace.add_points(1, &ColumnSet::from_iter([first, first + 1, first + 2]), 1).unwrap();
        }
        trace.add_points(1, &set("10-20"), 1).unwrap();
        assert_eq!((trace.projections.len(), trace.overflowed()), (MAX_PROJECTIONS, 0));
        trace.add_points(1, &set("14"), 5).unwrap();
        trace.add_points(1, &set("10,20"), 6).unwrap();
        trace.add_points(1, &set("150"), 7).unwrap();
        assert_eq!((trace.projections.len(), trace.overflowed()), (MAX_PROJECTIONS, 18));
        let points = |columns: &str| trace.projections[&set(columns)][1].points;
        assert_eq!((points("12-14"), points("10-20"), points("0-199")), (6, 7, 7));
    }

    #[test]
    fn merging_adds_up_in_any_order_and_stays_bounded() {
        let mut parts = Vec::new();
        for part in 0..2usize {
            let mut trace = Trace::new(300, 3).unwrap();
            trace.add_inserts(5);
            for first in 0..60 {
                let columns = ColumnSet::from_iter([100 * part + first, 299]);
                trace.add_scans(2, &columns, 1 + first as u64, 10).unwrap();
            }
            parts.push(trace);
        }
        let mut forwards = parts[0].clone();
        forwards.merge(&parts[1]).unwrap();
        let mut backwards = parts[1].clone();
        backwards.merge(&parts[0]).unwrap();
        assert_eq!(forwards, backwards);
        assert_eq!(forwards.projections.len(), MAX_PROJECTIONS);
        assert_eq!(forwards.operations(), parts[0].operations() + parts[1].operations());
        assert!(forwards.overflowed() > 0);
        assert!(forwards.merge(&Trace::new(300, 4).unwrap()).is_err());
        assert!(forwards.merge(&Trace::new(299, 3).unwrap()).is_err());
        assert_eq!(forwards, backwards);
    }
}
