//! What every compaction policy answers.

use mycelium_base::{Result, TableId};
use mycelium_manifest::{KeyRange, Version, VersionEdit};

use crate::busy::BusyFiles;
use crate::plan::CompactionPlan;

/// Decides what to compact. Pure: equal arguments give equal plans. Safe to share between threads.
///
/// A plan's inputs are never busy, and no plan writes into a range of a level that a running job writes to.
pub trait CompactionPolicy: Send + Sync + std::fmt::Debug {
    /// The most urgent compaction that can start now, or `None`. O(files log files).
    fn pick(&self, table: TableId, version: &Version, busy: &BusyFiles) -> Option<CompactionPlan>;

    /// A compaction that is not due, but that readers gain by, for when nothing is due and nobody writes; each entry
    /// takes part in as many as the logarithm of what is written meanwhile. `None` where the policy has none.
    fn pick_at_rest(&self, _table: TableId, _version: &Version, _busy: &BusyFiles) -> Option<CompactionPlan> {
        None
    }

    /// Completes the edit that installs a plan's outputs in `version`, which may be a later one than the plan was made
    /// for: what the policy keeps of the levels besides their files. Call it for every plan, with the manifest locked.
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` if the edit does not fit the version.
    fn complete(&self, _version: &Version, _plan: &CompactionPlan, _edit: &mut VersionEdit) -> Result<()> {
        Ok(())
    }

    /// How urgent each level is, busy files included; 1.0 and above is due.
    fn scores(&self, version: &Version) -> Vec<f64>;

    /// An estimate of the bytes that have to be rewritten until nothing is due: 0 if nothing is.
    fn debt_bytes(&self, version: &Version) -> u64;

    /// Bytes of files that are not in the column groups of their level: transformations that wait, be it that they were
    /// deferred or that the layout was changed.
    fn deferred_bytes(&self, _version: &Version) -> u64 {
        0
    }

    /// Merges all files of all levels that overlap `range` (all files if `None`) into one run at the deepest level that
    /// has any (leveled: at least the base level). `None` if there is nothing to do (one run without deletes already,
    /// unless `force`) or if some of the files are busy: [`BusyFiles`] tells which.
    fn pick_range(
        &self,
        table: TableId,
        version: &Version,
        busy: &BusyFiles,
        range: Option<&KeyRange>,
        force: bool,
    ) -> Option<CompactionPlan>;

    /// Moves what one level holds of `range` (of all keys if `None`) into the next one. `None` as for `pick_range`.
    fn pick_level(
        &self,
        table: TableId,
        version: &Version,
        busy: &BusyFiles,
        level: usize,
        range: Option<&KeyRange>,
    ) -> Option<CompactionPlan>;
}
