//! The merge kernel, shared by scans, point reads and compactions.
//!
//! - [`MergingCursor`]: many sorted sources into one sorted sequence of entries (all versions).
//! - [`VisibleCursor`]: the rows that a snapshot sees, forwards and backwards.
//! - [`CompactionStream`]: the entries that must survive a compaction.
//! - [`ExactCursor`] and [`ExactStream`]: the same two for derived tables, whose entries are removed one by one.
//! - [`Lookup`]: the row of one key, fed version by version.
//! - [`ColumnMerge`] and [`ColumnMergingCursor`]: the same two for tables with several column groups.
//!
//! All fold `Patch` and `Merge` entries through the table's [`mycelium_base::Combiner`] and treat an entry below a
//! range delete as below a `Delete`, so that they agree on every row at every snapshot.

mod bounds;
mod column_merge;
mod column_merging;
mod compaction_stream;
mod exact;
mod history;
mod lookup;
mod merging;
mod siblings;
mod visible;

pub use column_merge::{ColumnMerge, MergePlan};
pub use column_merging::ColumnMergingCursor;
pub use compaction_stream::{CompactionStream, StreamCounters, Watch, retain_range_deletes};
pub use exact::{ExactCursor, ExactStream, Purge};
pub use history::{FragmentHistory, KeyHistory};
pub use lookup::Lookup;
pub use merging::MergingCursor;
pub use visible::VisibleCursor;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
