//! Designs as pictures in text: a line for each level, a box for each group, columns from left to right.
//!
//! ```text
//! L0 |0-4      |
//! L1 |0,2,4|1,3|
//! L2 |0|2,4|1|3|
//! ```
//!
//! 1. Columns are ordered so that the groups of every level are neighbours: by their group at level 1, then at level 2
//!    and so on. Containment makes that possible; groups stand in the order of their smallest column.
//! 2. The groups of the last level take the width of their names; those above the width of what lies below them.
//! 3. Where that is wider than asked for, boxes carry no names: a dot stands for each column.

use mycelium_base::ColumnSet;

use super::Design;

impl Design {
    /// A picture of at most `width` characters a line; without names, and then as wide as it needs, if it has to be.
    ///
    /// ```
    /// use mycelium_advisor::Design;
    ///
    /// let mut design = Design::fixed_width(6, 3, 3)?;
    /// design.levels[2] = vec!["0-1".parse()?, "2".parse()?, "3-5".parse()?];
    /// let picture = "L0 |0-5      |\nL1 |0-2  |3-5|\nL2 |0-1|2|3-5|\n";
    /// assert_eq!(design.picture(80), picture);
    /// let dots = "L0 |........|\nL1 |....|...|\nL2 |..|.|...|\n";
    /// assert_eq!(design.picture(10), dots);
    /// # Ok::<(), mycelium_base::Error>(())
    /// ```
    pub fn picture(&self, width: usize) -> String {
        let ordered = self.ordered_levels();
        let Some(leaves) = ordered.last() else { return String::new() };
        let named: usize = leaves.iter().map(|leaf| leaf.to_string().len() + 1).sum();
        let names = named + "L0 |".len() <= width;
        let leaf_width = |leaf: &ColumnSet| if names { leaf.to_string().len() } else { leaf.len() };
        let mut picture = String::new();
        for (level, groups) in ordered.iter().enumerate() {
            picture.push_str(&format!("L{level:<2}|"));
            for group in groups {
                let below: Vec<usize> = leaves.iter().filter(|leaf| leaf.overlaps(group)).map(leaf_width).collect();
                // The bars between the boxes below are width too.
                let inner = below.iter().sum::<usize>() + below.len().saturating_sub(1);
                let name = if names { group.to_string() } else { ".".repeat(inner) };
                picture.push_str(&format!("{name:<inner$}|"));
            }
            picture.push('\n');
        }
        picture
    }

    /// The groups of every level, those within one group of the level above next to each other.
    fn ordered_levels(&self) -> Vec<Vec<ColumnSet>> {
        let mut ordered: Vec<Vec<ColumnSet>> = Vec::new();
        for groups in &self.levels {
            let mut groups = groups.clone();
            groups.sort_by_key(|group| group.iter().next());
            let above = ordered.last();
            let position =
                |group: &ColumnSet| above.and_then(|above| above.iter().position(|wider| group.overlaps(wider)));
            groups.sort_by_key(position);
            ordered.push(groups);
        }
        ordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn design(text: &str) -> Design {
        let level = |line: &str| line.split(' ').map(|group| group.parse().unwrap()).collect();
        Design { levels: text.split('\n').map(level).collect(), ..Design::default() }
    }

    #[test]
    fn groups_stand_under_the_group_that_holds_them() {
        let design = design("0-4\n1,3 0,2,4\n3 0 2,4 1");
        let lines = ["L0 |0-4      |", "L1 |0,2,4|1,3|", "L2 |0|2,4|1|3|"];
        assert_eq!(design.picture(80).lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn wide_designs_lose_their_names() {
        let design = Design::columns(20, 2).unwrap();
        let dots = format!("L0 |{}|\nL1 |{}\n", ".".repeat(39), ".|".repeat(20));
        assert_eq!(design.picture(40), dots);
        assert!(design.picture(80).contains("|19|"));
        assert_eq!(Design::default().picture(80), "");
    }
}
