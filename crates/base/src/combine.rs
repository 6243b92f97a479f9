//! How a table folds incremental entries (`Patch`, `Merge`) together.

use crate::Result;

/// Folds patches or merge operands of one key. Pure: equal inputs give equal outputs, so that scans, point reads and
/// compactions, which fold the same entries in different groupings, agree. Called from any thread, several at a time.
///
/// A merge operator is one of a user's own, given by name: operands are kept as they are until a read or a compaction
/// folds them. Its errors, for operands that it cannot read, are those of the reads that meet them; in a flush or a
/// compaction they make the database read-only, as a panic does. So what is merged is to be checked where it is
/// written.
///
/// ```
/// use mycelium_base::{Combiner, Result};
///
/// /// Values are lines, and each operand is one more.
/// struct Lines;
///
/// impl Combiner for Lines {
///     fn apply(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
///         let lines: Vec<&[u8]> = base.into_iter().chain(operands.iter().copied()).collect();
///         Ok(Some(lines.join(&b'\n')))
///     }
///
///     fn fuse(&self, _key: &[u8], operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
///         Ok(Some(operands.join(&b'\n')))
///     }
///
///     fn name(&self) -> &str {
///         "example.lines"
///     }
/// }
///
/// // However operands are grouped, what comes of them is the same.
/// let fused = Lines.fuse(b"log", &[&b"second"[..], &b"third"[..]])?.unwrap_or_default();
/// let lines = Lines.apply(b"log", Some(b"first"), &[&fused[..]])?;
/// assert_eq!(lines.as_deref(), Some(&b"first\nsecond\nthird"[..]));
/// # Ok::<(), mycelium_base::Error>(())
/// ```
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
