//! How a table folds incremental entries (`Patch`, `Merge`) together.

use crate::Result;

/// Folds patches or merge operands of one key. Pure: equal inputs give equal outputs, so that scans, point reads and
/// compactions, which fold the same entries in different groupings, agree.
pub trait Combiner: Send + Sync {
    /// The row after applying `operands` (oldest first, never empty) to `base`.
    ///
    /// `base` is `None` where no `Put` lies below. Returns `None` if the key then has no row: patches change nothing
    /// without a base, while a merge operator may create a row.
    fn apply(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Option<Vec<u8>>>;

    /// One operand equal in effect to `operands` (oldest first, at least two), or `None` if they must be kept apart.
    fn fuse(&self, key: &[u8], operands: &[&[u8]]) -> Result<Option<Vec<u8>>>;

    /// The registered name: a table that needs a merge operator records it in the manifest.
    fn name(&self) -> &str;
}
