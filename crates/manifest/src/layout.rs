//! A table's layout: for each level its column groups, their formats and how runs merge (DESIGN §3; LASER §3.2,
//! Mycelium §3.3).
//!
//! Every design of the papers is a value of this one type: plain RocksDB has one row group at every level, LASER finer
//! groups level by level, Mycelium's linked transformers produce one (its "internal column families" are our groups of
//! a level), LSM-OPD has columnar groups from level 0 on.
//!
//! What [`Layout::check`] guarantees of a layout over a set of columns:
//! 1. Level 0 is one group of all columns, tiered.
//! 2. The groups of a level share no column, and together have all.
//! 3. Containment: every group of level i + 1 lies within one group of level i (LASER §3.2), so that what a compaction
//!    of one group reads is whole.
//!
//! Text form, one line per level or range of levels with the same layout, downwards from level 0; levels below the last
//! line are like it:
//!
//! ```text
//! L0 tiered: * packed
//! L1-2 leveled: 0-3 packed | 4-9 packed
//! L3 leveled: 0,2 columnar | 1,3 columnar | 4-9 columnar
//! ```
//!
//! A group is a set of columns, by position in the schema ([`ColumnSet`]; `*` is all of them), and a format: a row
//! format or `columnar`. Empty lines and lines that start with `//` are skipped.

use std::fmt;

use mycelium_base::limits::MAX_LEVELS;
use mycelium_base::{ColumnSet, Error, Group, GroupFormat, Result};

/// How the runs of a level come together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Merge {
    /// Several runs a group, merged when there are too many.
    Tiered,
    /// One run a group, merged with what arrives.
    #[default]
    Leveled,
    /// Insertion part and deletion part with a moving marker (dLSM §IV-A).
    TwoPhase,
}

impl Merge {
    const ALL: [Self; 3] = [Self::Tiered, Self::Leveled, Self::TwoPhase];

    /// The name, as in the text form.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tiered => "tiered",
            Self::Leveled => "leveled",
            Self::TwoPhase => "two-phase",
        }
    }
}

/// The layout of one level.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct LevelLayout {
    /// No column twice.
    pub groups: Vec<Group>,
    /// How runs come together.
    pub merge: Merge,
}

impl LevelLayout {
    /// The groups that share a column with `columns`.
    pub fn overlapping<'a>(&'a self, columns: &'a ColumnSet) -> impl Iterator<Item = &'a Group> {
        self.groups.iter().filter(move |group| group.columns.overlaps(columns))
    }
}

/// The layout of a table. Levels below the last one given are like it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    levels: Vec<LevelLayout>,
}

impl Layout {
    /// Plain rows: every level one group of all columns in this format, leveled below level 0.
    pub fn rows(columns: &ColumnSet, format: GroupFormat) -> Self {
        let level = |merge| LevelLayout { groups: vec![Group::new(columns.clone(), format)], merge };
        Self { levels: vec![level(Merge::Tiered), level(Merge::Leveled)] }
    }

    /// Whole rows of this format at level 0, where they are written, and one columnar group below; merged as
    /// [`Layout::rows`].
    pub fn rows_above_columns(columns: &ColumnSet, format: GroupFormat) -> Self {
        let mut layout = Self::rows(columns, format);
        let below = layout.levels.iter_mut().skip(1).flat_map(|level| &mut level.groups);
        below.for_each(|group| group.format = GroupFormat::Columnar);
        layout
    }

    /// A layout of these levels, from level 0 down, checked against the table's columns.
    ///
    /// Fails with `ErrorKind::InvalidArgument` naming level and group where a guarantee of the module does not hold.
    pub fn new(levels: Vec<LevelLayout>, columns: &ColumnSet) -> Result<Self> {
        let layout = Self { levels };
        layout.check(columns)?;
        Ok(layout)
    }

    /// Reads the text form and checks it against the table's columns.
    ///
    /// ```
    /// use mycelium_base::ColumnSet;
    /// use mycelium_manifest::Layout;
    ///
    /// let layout = Layout::parse("L0 tiered: * packed\nL1 leveled: 0-3 packed | 4-5 columnar", &ColumnSet::first(6))?;
    /// assert_eq!(layout.level(1).groups.len(), 2);
    /// assert_eq!(layout.level(7), layout.level(1));
    /// let refused = Layout::parse("L0 tiered: * packed\nL1 leveled: 0-3 packed", &ColumnSet::first(6));
    /// assert!(refused.unwrap_err().to_string().contains("4-5"));
    /// # Ok::<(), mycelium_base::Error>(())
    /// ```
    pub fn parse(text: &str, columns: &ColumnSet) -> Result<Self> {
        let mut levels: Vec<LevelLayout> = Vec::new();
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with("//") {
                continue;
            }
            parse_line(line, columns, &mut levels)?;
        }
        Self::new(levels, columns)
    }

    /// The layout of a level.
    pub fn level(&self, level: usize) -> &LevelLayout {
        &self.levels[level.min(self.levels.len() - 1)]
    }

    /// The levels given; those below are like the last.
    pub fn levels(&self) -> &[LevelLayout] {
        &self.levels
    }

    /// Whether every level is one group of all columns.
    pub fn is_rows(&self) -> bool {
        self.levels.iter().all(|level| level.groups.len() == 1)
    }

    /// The same layout but for groups that part the columns of one of `sets`: on every level they are one group, in the
    /// format of the first. What lies within one group above still does.
    ///
    /// ```
    /// use mycelium_base::ColumnSet;
    /// use mycelium_manifest::Layout;
    ///
    /// let columns = ColumnSet::first(4);
    /// let layout = Layout::parse("L0 tiered: * packed\nL1 leveled: 0 packed | 1 packed | 2-3 packed", &columns)?;
    /// let together = layout.keeping_together(&["0,2".parse()?]);
    /// assert_eq!(together.to_string(), "L0 tiered: * packed\nL1 leveled: 0,2-3 packed | 1 packed\n");
    /// # Ok::<(), mycelium_base::Error>(())
    /// ```
    #[must_use]
    pub fn keeping_together(&self, sets: &[ColumnSet]) -> Self {
        let mut layout = self.clone();
        for groups in layout.levels.iter_mut().map(|level| &mut level.groups) {
            for set in sets {
                let Some(first) = groups.iter().position(|group| group.columns.overlaps(set)) else { continue };
                let rest: Vec<Group> = groups.extract_if(first + 1.., |group| group.columns.overlaps(set)).collect();
                for group in rest {
                    groups[first].columns = groups[first].columns.union(&group.columns);
                }
            }
        }
        layout
    }

    /// The layout of a table that has got another column: on every level it is in the group of the column `beside`, or
    /// in every group if there was none outside the key. What lies within one group above still does.
    ///
    /// ```
    /// use mycelium_base::ColumnSet;
    /// use mycelium_manifest::Layout;
    ///
    /// let columns: ColumnSet = "1-3".parse()?;
    /// let layout = Layout::parse("L0 tiered: * packed\nL1 leveled: 1,3 packed | 2 columnar", &columns)?;
    /// let wider = layout.with_column(4, Some(3));
    /// assert_eq!(wider.to_string(), "L0 tiered: * packed\nL1 leveled: 1,3-4 packed | 2 columnar\n");
    /// # Ok::<(), mycelium_base::Error>(())
    /// ```
    #[must_use]
    pub fn with_column(&self, column: usize, beside: Option<usize>) -> Self {
        let mut layout = self.clone();
        for group in layout.levels.iter_mut().flat_map(|level| &mut level.groups) {
            if beside.is_none_or(|beside| group.columns.contains(beside)) {
                group.columns.insert(column);
            }
        }
        layout
    }

    /// The layout of a table that has a column no more, but others. What lies within one group above still does; a
    /// level has a group less where the column was alone in one.
    ///
    /// ```
    /// use mycelium_base::ColumnSet;
    /// use mycelium_manifest::Layout;
    ///
    /// let columns: ColumnSet = "1-3".parse()?;
    /// let layout = Layout::parse("L0 tiered: * packed\nL1 leveled: 1,3 packed | 2 columnar", &columns)?;
    /// assert_eq!(layout.without_column(3).to_string(), "L0 tiered: * packed\nL1 leveled: 1 packed | 2 columnar\n");
    /// assert_eq!(layout.without_column(2).to_string(), "L0 tiered: * packed\nL1 leveled: * packed\n");
    /// # Ok::<(), mycelium_base::Error>(())
    /// ```
    #[must_use]
    pub fn without_column(&self, column: usize) -> Self {
        let gone = ColumnSet::from_iter([column]);
        let mut layout = self.clone();
        for groups in layout.levels.iter_mut().map(|level| &mut level.groups) {
            groups.iter_mut().for_each(|group| group.columns.remove_all(&gone));
            groups.retain(|group| !group.columns.is_empty());
        }
        layout
    }

    /// The same groups, all levels below level 0 merged like this.
    #[must_use]
    pub fn merged_below(mut self, merge: Merge) -> Self {
        self.levels.iter_mut().skip(1).for_each(|level| level.merge = merge);
        self
    }

    /// Checks the guarantees of the module.
    fn check(&self, columns: &ColumnSet) -> Result<()> {
        let Some(top) = self.levels.first() else {
            return Err(Error::invalid("a layout needs a line for level 0"));
        };
        if self.levels.len() > MAX_LEVELS {
            return Err(Error::invalid(format!("a layout has at most {MAX_LEVELS} levels")));
        }
        if top.groups.len() != 1 || top.merge != Merge::Tiered {
            return Err(Error::invalid("level 0 of a layout must be one group of all columns, tiered"));
        }
        for (number, level) in self.levels.iter().enumerate() {
            check_partition(number, level, columns)?;
        }
        for (number, pair) in self.levels.windows(2).enumerate() {
            check_containment(number + 1, &pair[0], &pair[1])?;
        }
        Ok(())
    }
}

/// Guarantee 2.
fn check_partition(number: usize, level: &LevelLayout, columns: &ColumnSet) -> Result<()> {
    let mut seen = ColumnSet::new();
    for group in &level.groups {
        let refused = |what: String| Err(Error::invalid(format!("level {number}, group {}: {what}", group.columns)));
        // A table of keys alone has one group on each level, without columns.
        if group.columns.is_empty() && (!columns.is_empty() || level.groups.len() > 1) {
            return refused("it has no columns".into());
        }
        let unknown = group.columns.difference(columns);
        if !unknown.is_empty() {
            return refused(format!("the table has no columns {unknown} outside its key"));
        }
        let again = group.columns.intersection(&seen);
        if !again.is_empty() {
            return refused(format!("the columns {again} are in another group of the level already"));
        }
        seen = seen.union(&group.columns);
    }
    let missing = columns.difference(&seen);
    if level.groups.is_empty() || !missing.is_empty() {
        return Err(Error::invalid(format!("level {number}: the columns {missing} are in no group")));
    }
    Ok(())
}

/// Guarantee 3.
fn check_containment(number: usize, above: &LevelLayout, level: &LevelLayout) -> Result<()> {
    for group in &level.groups {
        if above.groups.iter().any(|wider| group.columns.is_subset(&wider.columns)) {
            continue;
        }
        let straddled: Vec<String> = above.overlapping(&group.columns).map(|wider| wider.columns.to_string()).collect();
        return Err(Error::invalid(format!(
            "level {number}, group {}: it lies within no group of level {}, but straddles the groups {}",
            group.columns,
            number - 1,
            straddled.join(" and ")
        )));
    }
    Ok(())
}

fn parse_line(line: &str, columns: &ColumnSet, levels: &mut Vec<LevelLayout>) -> Result<()> {
    let wrong = |expected: &str| Error::invalid("malformed layout").expected(expected, format_args!("`{line}`"));
    let (head, groups) = line.split_once(':').ok_or_else(|| wrong("a line `L1 leveled: groups`"))?;
    let (range, merge) = head.trim().split_once(' ').ok_or_else(|| wrong("`L1 leveled` before the colon"))?;
    let merge = Merge::ALL.into_iter().find(|known| known.name() == merge.trim());
    let merge = merge.ok_or_else(|| wrong("tiered, leveled or two-phase"))?;
    let range = range.strip_prefix('L').ok_or_else(|| wrong("`L` and the level's number"))?;
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let level = |text: &str| text.parse::<usize>().ok().filter(|&level| level < MAX_LEVELS);
    let (first, last) = level(first).zip(level(last)).ok_or_else(|| wrong("levels below 16"))?;
    if first != levels.len() || last < first {
        return Err(wrong(&format!("level {} next", levels.len())));
    }
    let groups = groups.split('|').map(|group| parse_group(group.trim(), columns)).collect::<Result<Vec<_>>>()?;
    levels.resize(last + 1, LevelLayout { groups, merge });
    Ok(())
}

fn parse_group(text: &str, columns: &ColumnSet) -> Result<Group> {
    let (set, format) = text.split_once(' ').ok_or_else(|| {
        Error::invalid("malformed column group").expected("columns and a format", format_args!("`{text}`"))
    })?;
    let columns = if set == "*" { columns.clone() } else { set.parse()? };
    Ok(Group::new(columns, format.trim().parse()?))
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = &self.levels[0].groups[0].columns;
        let mut first = 0;
        while first < self.levels.len() {
            let level = &self.levels[first];
            let same = self.levels[first..].iter().take_while(|next| *next == level).count();
            match same {
                1 => write!(f, "L{first} {}:", level.merge.name())?,
                _ => write!(f, "L{first}-{} {}:", first + same - 1, level.merge.name())?,
            }
            for (i, group) in level.groups.iter().enumerate() {
                let separator = if i == 0 { " " } else { " | " };
                match group.columns == *all {
                    true => write!(f, "{separator}* {}", group.format)?,
                    false => write!(f, "{separator}{} {}", group.columns, group.format)?,
                }
            }
            writeln!(f)?;
            first += same;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Layout::parse(text, &ColumnSet::first(6)).unwrap_err().to_string()
    }

    #[test]
    fn text_is_read_back() {
        let text = "L0 tiered: * packed\nL1-2 leveled: 0-3 json | 4-5 packed\nL3 two-phase: 0,2 columnar | 1,3 raw | 4-5 \
                    protobuf\nL4 tiered: 0,2 columnar | 1,3 raw | 4-5 protobuf\n";
        let layout = Layout::parse(text, &ColumnSet::first(6)).unwrap();
        assert_eq!(layout.to_string(), text);
        assert_eq!(layout.levels().len(), 5);
        assert_eq!(layout.level(15), &layout.levels()[4]);
        let rows = Layout::rows(&ColumnSet::first(6), GroupFormat::default());
        assert_eq!(
            rows,
            Layout::parse("L0 tiered: * packed\n\n// below\nL1 leveled: * packed", &ColumnSet::first(6)).unwrap()
        );
    }

    #[test]
    fn a_table_of_keys_alone_has_a_group_without_columns() {
        let none = ColumnSet::new();
        let rows = Layout::rows(&none, GroupFormat::default());
        assert_eq!(Layout::parse(&rows.to_string(), &none).unwrap(), rows);
    }

    #[test]
    fn what_breaks_a_guarantee_is_named() {
        let straddling =
            refused("L0 tiered: * packed\nL1 leveled: 0-2 packed | 3-5 packed\nL2 leveled: 0-1 packed | 2-5 packed");
        assert!(straddling.contains("level 2, group 2-5") && straddling.contains("0-2 and 3-5"), "{straddling}");
        let missing = refused("L0 tiered: * packed\nL1 leveled: 0-2 packed | 4-5 packed");
        assert!(missing.contains("level 1") && missing.contains("columns 3 "), "{missing}");
        let twice = refused("L0 tiered: * packed\nL1 leveled: 0-3 packed | 3-5 packed");
        assert!(twice.contains("group 3-5") && twice.contains("columns 3 "), "{twice}");
        let unknown = refused("L0 tiered: * packed\nL1 leveled: 0-6 packed");
        assert!(unknown.contains("columns 6 "), "{unknown}");
        for top in ["L0 leveled: * packed", "L0 tiered: 0-2 packed | 3-5 packed", "L1 tiered: * packed", ""] {
            assert!(refused(top).contains("level 0") || refused(top).contains("level 0 next"), "{top}");
        }
    }

    #[test]
    fn malformed_text_is_refused() {
        for line in
            ["L1", "L1 leveled", "L1: * packed", "L1 level: * packed", "L16 leveled: * packed", "L2 leveled: * packed"]
        {
            assert!(refused(&format!("L0 tiered: * packed\n{line}")).contains("malformed layout"), "{line}");
        }
        for group in ["*", "* parquet", "a-b packed", "0-5packed"] {
            assert!(Layout::parse(&format!("L0 tiered: {group}"), &ColumnSet::first(6)).is_err(), "{group}");
        }
    }
}
