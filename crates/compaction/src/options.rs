//! What a user can set of the two policies. Sizes are bytes of SSTs.

/// Which file a leveled level gives to the next one first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PickPriority {
    /// The file with the fewest overlapping bytes below per byte of its own: the least write amplification.
    #[default]
    MinOverlap,
    /// The file whose oldest entry is the oldest, so that no data wait long: goes round the key space.
    OldestFirst,
    /// The largest file (files with many deletes count as larger).
    LargestFirst,
}

/// Options of [`crate::LeveledPolicy`]; the defaults are RocksDB's.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LeveledOptions {
    /// Level-0 files at which level 0 is compacted into the base level; at least 1. Default: 4.
    pub level0_trigger: usize,
    /// Level-0 files at which level 0 is compacted within itself while the way into the base level is busy. Default: 8.
    pub level0_pileup: usize,
    /// Target size of the base level. Default: 256 MiB.
    pub base_level_bytes: u64,
    /// How many times larger each level is than the one above; above 1. While writers are busy a level below the base
    /// level may have up to twice its size. Default: 10.
    pub fanout: f64,
    /// Levels, level 0 included; 2 to [`mycelium_base::limits::MAX_LEVELS`]. Default: 7.
    pub level_count: usize,
    /// Size at which an output file is closed. Default: 64 MiB.
    pub target_file_size: u64,
    /// Which file is picked first. Default: that of the least write amplification.
    pub priority: PickPriority,
    /// A compaction does not take files beyond what it must once it is this large, and no output file may overlap more
    /// than this much of the level below the output level. Default: 1,600 MiB.
    pub max_compaction_bytes: u64,
    /// Whether the levels' targets follow from the size of the last level (then the base level is the first one
    /// needed), instead of growing from level 1 down. Default: true.
    pub dynamic_levels: bool,
}

impl Default for LeveledOptions {
    fn default() -> Self {
        Self {
            level0_trigger: 4,
            level0_pileup: 8,
            base_level_bytes: 256 << 20,
            fanout: 10.0,
            level_count: 7,
            target_file_size: 64 << 20,
            priority: PickPriority::MinOverlap,
            max_compaction_bytes: 25 * (64 << 20),
            dynamic_levels: true,
        }
    }
}

impl LeveledOptions {
    /// Tables that the segments of a part may form: eight times as many as where no key is written again within a round
    /// and each flush fills the write buffer (r). Those that go down with their rows make up half at most.
    pub fn most_segment_tables(&self) -> usize {
        (self.fanout.ceil() as usize).max(1).saturating_mul(8)
    }
}

/// Options of [`crate::TieredPolicy`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TieredOptions {
    /// Runs of one level that are merged into one run of the next; at least 2. Default: 4.
    pub runs_per_level: usize,
    /// Levels, level 0 included; 2 to [`mycelium_base::limits::MAX_LEVELS`]. The last level merges with itself.
    /// Default: 7.
    pub level_count: usize,
    /// Everything is merged into one run when all younger runs together exceed this percentage of the oldest run.
    /// Default: 200.
    pub max_space_amplification_percent: u64,
    /// Size at which an output file is closed. Default: 64 MiB.
    pub target_file_size: u64,
}

impl Default for TieredOptions {
    fn default() -> Self {
        Self { runs_per_level: 4, level_count: 7, max_space_amplification_percent: 200, target_file_size: 64 << 20 }
    }
}

/// What of a table's two-phase levels goes into the compaction buffer (dLSM §IV-B).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Buffering {
    /// Nothing.
    #[default]
    Off,
    /// Files of rows: flushed ones, and those of deeper levels as far as these are kept in rows. What lies in columns
    /// is read from the tree, where a point read finds it no less together. Where a round lasts so long that the
    /// segments of a part form too many tables, the part's own files take their place, in whatever format they are:
    /// without them nothing that comes in the rest of the round could be read from the buffer.
    Rows,
    /// All files that leave a level for a two-phase one, as in the paper.
    Full,
}

impl Buffering {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Off, Self::Rows, Self::Full];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Rows => "rows",
            Self::Full => "full",
        }
    }
}

/// How far the transformations of a layout may lag behind where compaction does: see
/// [`crate::ShapedPolicy::deferring`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Deferral {
    /// Level-0 files from which on compaction counts as behind.
    pub level0_files: usize,
    /// Bytes to be rewritten from which on it does.
    pub debt_bytes: u64,
    /// The most that may wait, in percent of the table's bytes.
    pub limit_percent: u64,
}
