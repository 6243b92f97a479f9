//! How large each level of a leveled tree should be.
//!
//! With dynamic levels (the base level and the targets follow from the data, as RocksDB's
//! `level_compaction_dynamic_level_bytes`):
//! 1. Start from the size of the largest level and divide by the fanout once per level up to the first level with data.
//! 2. If that is at most `base_level_bytes / fanout`, the first level with data is the base level, at that minimum.
//! 3. Else go further up, a level at a time, until level 1 is reached, or the size is at most `base_level_bytes`, or it
//!    is at most twice that and one more level would write more than it saves: bytes enter the base level in batches of
//!    level 0 and are merged with all of it each time, so with batches of `b` bytes a base level of `s` bytes costs
//!    `s / b` per byte, and a level of `t` bytes put before it `t / b + 1 + s / t`.
//! 4. From the base level down, each target is `fanout` times the one above, never below `base_level_bytes`.
//!
//! Then the last level holds about `fanout / (fanout + 1)` of all data, whatever there is: obsolete versions above it
//! take little space. Without dynamic levels the base level is 1 and targets grow from `base_level_bytes`.

use mycelium_base::limits::MAX_LEVELS;
use mycelium_manifest::Version;

use crate::options::LeveledOptions;

/// The base level and the target size of every level.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LevelTargets {
    /// The level that level 0 is compacted into. The levels between are empty.
    pub base_level: usize,
    /// Target bytes by level; `u64::MAX` for levels that have none (0, those above the base level, and the last).
    pub bytes: Vec<u64>,
}

impl LevelTargets {
    /// The targets for a version. O(files).
    pub fn new(options: &LeveledOptions, version: &Version) -> Self {
        let count = level_count(options.level_count, version);
        let mut bytes = vec![u64::MAX; count];
        let sizes: Vec<u64> = (0..count).map(|level| version.level_bytes(level)).collect();
        let first = (1..count).find(|&level| sizes[level] > 0);
        let (base_level, base_bytes) = match (options.dynamic_levels, first) {
            (false, _) => (1, options.base_level_bytes),
            (true, None) => (count - 1, options.base_level_bytes),
            (true, Some(first)) => dynamic_base(options, &sizes, first, level0_batch(options, version)),
        };
        let floor = if options.dynamic_levels { options.base_level_bytes } else { 0 };
        let mut target = base_bytes as f64;
        for level_target in &mut bytes[base_level..count - 1] {
            // Float to integer casts saturate.
            *level_target = (target as u64).max(floor).max(1);
            target *= fanout(options);
        }
        Self { base_level, bytes }
    }
}

/// The number of levels: the option's, unless the version has more already.
pub(crate) fn level_count(option: usize, version: &Version) -> usize {
    option.clamp(2, MAX_LEVELS).max(version.levels.len())
}

fn fanout(options: &LeveledOptions) -> f64 {
    options.fanout.max(1.1)
}

/// The bytes that level 0 gives to the base level at a time, as far as its present files tell.
fn level0_batch(options: &LeveledOptions, version: &Version) -> f64 {
    let level0 = version.level(0);
    match level0.file_count() {
        0 => options.base_level_bytes as f64,
        files => (level0.bytes() as f64 / files as f64 * options.level0_trigger as f64).max(1.0),
    }
}

fn dynamic_base(options: &LeveledOptions, sizes: &[u64], first: usize, batch: f64) -> (usize, u64) {
    let fanout = fanout(options);
    let largest = sizes[1..].iter().copied().max().unwrap_or(0);
    let base_max = options.base_level_bytes as f64;
    let base_min = base_max / fanout;
    let mut size = largest as f64;
    for _ in first..sizes.len() - 1 {
        size /= fanout;
    }
    if size <= base_min {
        return (first, base_min as u64 + 1);
    }
    let mut base = first;
    while base > 1 && size > base_max {
        let above = (size / fanout).max(base_max);
        if size <= 2.0 * base_max && size / batch <= above / batch + 1.0 + size / above {
            return (base, size as u64);
        }
        base -= 1;
        size /= fanout;
    }
    (base, size.min(base_max).max(1.0) as u64)
}
