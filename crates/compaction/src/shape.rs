//! What the levels of a table with a layout are to be: how they are merged, which column groups they have, and how
//! large they may get.

use std::sync::Arc;

use mycelium_base::{Group, GroupFormat, RowFormatKind};
use mycelium_manifest::{Layout, Merge, Version};

use crate::options::LeveledOptions;
use crate::targets::level_count;
use crate::units::overlapping_run;

/// A layout, and the sizes of its levels.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) layout: Arc<Layout>,
    pub(crate) options: LeveledOptions,
    /// What files that name no group hold.
    pub(crate) whole_rows: Group,
}

impl Shape {
    /// That of tables of this layout.
    pub(crate) fn new(layout: Arc<Layout>, options: LeveledOptions) -> Self {
        let mut whole_rows = layout.level(0).groups[0].clone();
        if whole_rows.format == GroupFormat::Columnar {
            // Flushes encode rows, which are packed then.
            whole_rows.format = GroupFormat::Row(RowFormatKind::Packed);
        }
        Self { layout, options, whole_rows }
    }

    /// Whether the layout has this column group in a level.
    pub(crate) fn is_of_level(&self, level: usize, group: Option<&Arc<Group>>) -> bool {
        let group = group.map_or(&self.whole_rows, |group| &**group);
        self.layout.level(level).groups.contains(group)
    }

    pub(crate) fn is_tiered(&self, level: usize) -> bool {
        self.layout.level(level).merge == Merge::Tiered
    }

    pub(crate) fn is_two_phase(&self, version: &Version, level: usize) -> bool {
        self.layout.level(level).merge == Merge::TwoPhase && level < self.last_level(version)
    }

    pub(crate) fn last_level(&self, version: &Version) -> usize {
        level_count(self.options.level_count, version) - 1
    }

    /// Whether a column group has one run in a level, for good.
    pub(crate) fn is_one_run(&self, version: &Version, level: usize) -> bool {
        !self.is_tiered(level) && !self.is_two_phase(version, level) && overlapping_run(version, level).is_none()
    }

    /// The runs with which a tiered level is due.
    pub(crate) fn batch(&self) -> usize {
        self.options.level0_trigger.max(2)
    }

    pub(crate) fn trigger(&self) -> f64 {
        self.batch() as f64
    }

    /// Target bytes of a leveled level; none for the last.
    pub(crate) fn target(&self, version: &Version, level: usize) -> Option<f64> {
        let growth = self.options.fanout.max(1.1).powi(level as i32 - 1);
        (level < self.last_level(version)).then(|| (self.options.base_level_bytes as f64 * growth).max(1.0))
    }
}
