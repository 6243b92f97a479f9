//! What is said of a recovered state that is not one that the model allows.

use std::fmt;

/// A recovered state that no allowed prefix of the commits explains.
#[derive(Debug)]
pub struct PrefixViolation {
    /// Commits that had to survive.
    pub(crate) floor: usize,
    /// All commits.
    pub(crate) commits: usize,
    /// The prefix that comes nearest.
    pub(crate) nearest: usize,
    /// What differs from it.
    pub(crate) differences: Vec<String>,
    pub(crate) tables: usize,
    pub(crate) recovered_tables: usize,
}

impl PrefixViolation {
    /// The number of commits that had to survive.
    pub fn floor(&self) -> usize {
        self.floor
    }

    /// The prefix that comes nearest: fewer commits than [`PrefixViolation::floor`] means durable writes were lost.
    pub fn nearest(&self) -> usize {
        self.nearest
    }
}

impl fmt::Display for PrefixViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no prefix of {} to {} commits gives the recovered state ({} tables, recovered {}); nearest is {} with {} differences:",
            self.floor,
            self.commits,
            self.tables,
            self.recovered_tables,
            self.nearest,
            self.differences.len()
        )?;
        self.differences.iter().take(10).try_for_each(|difference| write!(f, "\n  {difference}"))
    }
}

impl std::error::Error for PrefixViolation {}
