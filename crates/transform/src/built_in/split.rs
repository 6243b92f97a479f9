//! Column groups into narrower ones (Mycelium §4.2.2).
//!
//! Text form, one of
//!
//! ```text
//! split by 2                        each round divides every group in two, until each has one column
//! split by 2 rounds 3               at most three rounds
//! split by 2 down to 4              groups of at most four columns are not divided
//! split into 0-3 | 4-8              one round, these groups
//! split into 0-3 | 4-8 then 0-1 | 2-3 | 4-8
//! ```
//!
//! By a fan-out f: a group of n columns becomes f groups of n/f columns in schema order, the last n mod f of them with
//! one more; a group of fewer than f columns becomes single columns. `split by 2 rounds 3` of nine columns is Figure 4.
//!
//! A table has one gradual transformer (rule 2 of §4.2.5), and this is one, also with a single round: so that a split
//! and a convert have one order only.

use mycelium_base::{ColumnSet, Error, Group, GroupFormat, Result};
use mycelium_manifest::{Layout, LevelLayout, Merge};

use crate::{JobContext, Place, TransformState, Transformer};

/// Splits groups, round by round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Split(Rounds);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Rounds {
    By { fan_out: usize, at_most: usize, down_to: usize },
    Into(Vec<Vec<ColumnSet>>),
}

impl Split {
    /// Divides every group into `fan_out`, in at most `rounds` rounds, but no group of at most `down_to` columns.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind) if `fan_out` is below 2, or one of the others 0.
    pub fn by(fan_out: usize, rounds: usize, down_to: usize) -> Result<Self> {
        if fan_out < 2 || rounds == 0 || down_to == 0 {
            return Err(Error::invalid(format!(
                "split by {fan_out} rounds {rounds} down to {down_to}: the first must be at least 2, the others at least 1"
            )));
        }
        Ok(Self(Rounds::By { fan_out, at_most: rounds, down_to }))
    }

    /// The groups after each round. `columns` are those of the table outside its primary key.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind) if the groups of a round are not all columns, each
    /// once, or one lies within no group of the round before. The message counts rounds as levels, from 1.
    fn into_groups(rounds: Vec<Vec<ColumnSet>>, columns: &ColumnSet) -> Result<Self> {
        let level = |groups: &[ColumnSet]| LevelLayout {
            groups: groups.iter().map(|set| Group::new(set.clone(), GroupFormat::default())).collect(),
            merge: Merge::Tiered,
        };
        let mut levels = vec![level(std::slice::from_ref(columns))];
        levels.extend(rounds.iter().map(|groups| level(groups)));
        Layout::new(levels, columns)?;
        Ok(Self(Rounds::Into(rounds)))
    }

    pub(crate) fn parse(arguments: &str, columns: &ColumnSet) -> Result<Self> {
        match arguments.split_once(char::is_whitespace) {
            Some(("by", rest)) => Self::parse_by(rest).unwrap_or_else(|| Err(malformed(arguments))),
            Some(("into", rest)) => {
                let groups = |round: &str| round.split('|').map(|set| set.trim().parse()).collect();
                let rounds = rest.split(" then ").map(groups).collect::<Result<Vec<_>>>()?;
                Self::into_groups(rounds, columns)
            }
            _ => Err(malformed(arguments)),
        }
    }

    /// `None` if the text is malformed.
    fn parse_by(text: &str) -> Option<Result<Self>> {
        let mut words = text.split_whitespace();
        let fan_out = words.next()?.parse().ok()?;
        let (mut rounds, mut down_to) = (None, None);
        while let Some(word) = words.next() {
            let option = match word {
                "rounds" => &mut rounds,
                "down" if words.next() == Some("to") => &mut down_to,
                _ => return None,
            };
            let number = words.next()?.parse::<usize>().ok()?;
            if option.replace(number).is_some() {
                return None;
            }
        }
        Some(Self::by(fan_out, rounds.unwrap_or(usize::MAX), down_to.unwrap_or(1)))
    }
}

fn malformed(arguments: &str) -> Error {
    Error::invalid("malformed split").expected(
        "`by 2`, `by 2 rounds 3`, `by 2 down to 4`, or groups such as `into 0-3 | 4-8`",
        format_args!("`{arguments}`"),
    )
}

/// `fan_out` parts of columns in schema order, the last ones larger by one; single columns if there are fewer.
fn divide(columns: &ColumnSet, fan_out: usize) -> Vec<ColumnSet> {
    let columns: Vec<usize> = columns.iter().collect();
    let parts = fan_out.min(columns.len()).max(1);
    let (size, larger) = (columns.len() / parts, columns.len() % parts);
    let mut rest = columns.as_slice();
    let mut divided = Vec::with_capacity(parts);
    for part in 0..parts {
        let (taken, left) = rest.split_at(size + usize::from(part >= parts - larger));
        divided.push(taken.iter().copied().collect());
        rest = left;
    }
    divided
}

impl Transformer for Split {
    fn place(&self) -> Place {
        Place::Gradual
    }

    /// By a fan-out, only the number of columns counts, and the largest part takes the most rounds.
    fn rounds(&self, source: &Group) -> usize {
        match &self.0 {
            Rounds::Into(rounds) => rounds.len(),
            Rounds::By { fan_out, at_most, down_to } => {
                let (mut rounds, mut largest) = (0, source.columns.len());
                while largest > *down_to && rounds < *at_most {
                    largest = largest.div_ceil(*fan_out);
                    rounds += 1;
                }
                rounds
            }
        }
    }

    fn destinations(&self, source: &Group, round: usize) -> Result<Vec<Group>> {
        let sets = match &self.0 {
            Rounds::By { down_to, .. } if source.columns.len() <= *down_to => vec![source.columns.clone()],
            Rounds::By { fan_out, .. } => divide(&source.columns, *fan_out),
            Rounds::Into(rounds) => {
                let groups = rounds.get(round).ok_or_else(|| Error::invalid(format!("split has no round {round}")))?;
                groups.iter().filter(|set| set.overlaps(&source.columns)).cloned().collect()
            }
        };
        Ok(sets.into_iter().map(|columns| Group::new(columns, source.format)).collect())
    }

    fn is_said_by_layout(&self) -> bool {
        true
    }

    fn prepare(&self, job: &JobContext<'_>) -> Result<Box<dyn TransformState>> {
        super::reshaping(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(split: &Split, columns: usize, rounds: usize) -> String {
        let mut groups = vec![Group::new(ColumnSet::first(columns), GroupFormat::default())];
        for round in 0..rounds {
            groups = groups.iter().flat_map(|group| split.destinations(group, round).unwrap()).collect();
        }
        groups.iter().map(|group| group.columns.to_string()).collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn nine_columns_are_split_as_in_figure_4() {
        let split = Split::parse("by 2 rounds 3", &ColumnSet::first(9)).unwrap();
        assert_eq!(after(&split, 9, 1), "0-3 | 4-8");
        assert_eq!(after(&split, 9, 2), "0-1 | 2-3 | 4-5 | 6-8");
        assert_eq!(after(&split, 9, 3), "0 | 1 | 2 | 3 | 4 | 5 | 6 | 7-8");
    }

    #[test]
    fn rounds_end_where_groups_are_narrow_enough() {
        for (text, columns, rounds) in [
            ("by 2", 9, 4),
            ("by 2 rounds 3", 9, 3),
            ("by 2 down to 4", 32, 3),
            ("by 3", 1, 0),
            ("by 9", 4, 1),
            ("by 2", 0, 0),
        ] {
            let split = Split::parse(text, &ColumnSet::first(columns)).unwrap();
            let group = Group::new(ColumnSet::first(columns), GroupFormat::default());
            assert_eq!(split.rounds(&group), rounds, "{text} of {columns}");
        }
        let split = Split::parse("by 2 down to 4", &ColumnSet::first(32)).unwrap();
        assert_eq!(after(&split, 32, 3).matches('|').count(), 7);
    }

    #[test]
    fn wrong_splits_are_refused() {
        let columns = ColumnSet::first(4);
        for text in [
            "",
            "by",
            "by 1",
            "by 2 rounds",
            "by 2 rounds 0",
            "by 2 down 4",
            "by 2 rounds 2 rounds 2",
            "by x",
            "into",
            "into 0-1",
            "into 0-1 | 1-3",
            "into 0-1 | 2-4",
            "into 0-1 | 2-3 then 0 | 1-2 | 3",
            "at 2",
        ] {
            assert!(Split::parse(text, &columns).is_err(), "{text}");
        }
        assert!(Split::parse("into 0-1 | 2-3 then 0 | 1 | 2-3", &columns).is_ok());
    }
}
