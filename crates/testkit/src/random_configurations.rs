//! Configurations drawn from a seed: layouts of any groups and formats that follow each other, indexes, views, and
//! every size and switch of the engine.
//!
//! A layout is drawn level by level:
//! 1. Level 0 is the table's rows. Each group of a level parts in two with a probability of a third, anywhere, so that
//!    every group lies within one above.
//! 2. Each group has the table's format, the packed one or is columnar, each level is tiered, leveled or two-phase.
//!    In some tables packed groups below level 0 have another format of rows instead.
//!
//! One table in eight has transformers instead, a user's map among them. Its layout follows from these and stays, and
//! it has neither indexes nor views nor a compaction buffer: all of them are refused where rows are mapped. Of the
//! others half of those whose rows are packed get columns later, and of half of all of them rows expire.
//!
//! Levels are few and small, so that a history of thousands of actions fills all of them. Whether it did, and whether
//! what was drawn came to pass, is for [`crate::Mechanisms`] to say.

use mycelium_base::{GroupFormat, RowFormatKind};
use mycelium_engine::{Buffering, Warm};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::configurations::{Compression, Configuration, INDEXES, MergePolicy, Priority, VIEWS, in_format};
use crate::tables::pick;

/// Columns outside the primary key of [`crate::tables::TYPED_SCHEMA`].
const COLUMNS: std::ops::RangeInclusive<usize> = 1..=6;

impl Configuration {
    /// The configuration of a seed, with two layouts at least, or with a user's map.
    pub fn random(seed: u64) -> Self {
        let drawn = Self::random_with_layouts(seed);
        let rng = &mut SmallRng::seed_from_u64(!seed);
        if rng.random_ratio(1, 8) { drawn.mapped(rng) } else { drawn }
    }

    /// As [`Configuration::random`], always with a user's map.
    pub fn random_mapped(seed: u64) -> Self {
        Self::random_with_layouts(seed).mapped(&mut SmallRng::seed_from_u64(!seed))
    }

    /// The same with a map, alone or before what converts the rows. A split would come before it, and it maps whole
    /// rows only; how levels are merged follows from the transformers, and no other policy than the leveled one is
    /// taken. There are as few levels as the set may have.
    fn mapped(self, rng: &mut SmallRng) -> Self {
        let own = self.row_format;
        let mut set = vec![format!("test.count {own}")];
        if own != RowFormatKind::Packed && rng.random() {
            set.push(format!("convert {own} to packed"));
        }
        Self {
            policy: leveled(rng, 2 + set.len()),
            layouts: Vec::new(),
            transformers: Some(set.join("\n")),
            indexes: Vec::new(),
            changing_indexes: false,
            views: Vec::new(),
            changing_views: false,
            buffer: Buffering::Off,
            changing_columns: false,
            expiring: false,
            ..self
        }
    }

    fn random_with_layouts(seed: u64) -> Self {
        let rng = &mut SmallRng::seed_from_u64(seed);
        let levels = rng.random_range(3..=4);
        let row_format = *pick(rng, &[RowFormatKind::Packed, RowFormatKind::Packed, RowFormatKind::Json]);
        let layouts = (0..rng.random_range(2..=4)).map(|_| layout(rng, levels, row_format)).collect();
        let (indexes, views) = (some_of(rng, INDEXES), some_of(rng, VIEWS));
        let compressions = [Compression::None, Compression::Lz4, Compression::Zstd(1)];
        let drawn = Self {
            name: format!("random {seed}"),
            memtable_bytes: *pick(rng, &[2 << 10, 4 << 10, 8 << 10]),
            cache_bytes: *pick(rng, &[0, 4 << 10, 256 << 10]),
            block_bytes: *pick(rng, &[64, 256, 1 << 10, 4 << 10]),
            restart_interval: *pick(rng, &[1, 4, 16]),
            policy: policy(rng, levels),
            level0_trigger: rng.random_range(1..=4),
            file_bytes: *pick(rng, &[1 << 10, 2 << 10, 8 << 10]),
            compression: *pick(rng, &compressions),
            last_level_compression: *pick(rng, &compressions),
            filter_bits: *pick(rng, &[0, 1, 10]),
            aligned_compaction: rng.random(),
            snapshot_filter: rng.random(),
            read_ahead_bytes: *pick(rng, &[0, 16 << 10]),
            expected_rows: *pick(rng, &[None, Some(3), Some(1_000)]),
            fill_cache: rng.random(),
            row_format,
            layouts,
            layout_auto: false,
            transformers: None,
            changing_indexes: !indexes.is_empty() && rng.random(),
            indexes,
            changing_views: !views.is_empty() && rng.random(),
            views,
            buffer: *pick(rng, &[Buffering::Off, Buffering::Rows, Buffering::Full, Buffering::Full]),
            buffer_bytes: *pick(rng, &[8 << 10, 64 << 10, 1 << 20]),
            warm: *pick(rng, &[Warm::Nothing, Warm::Successors, Warm::Everything]),
            slowdown_level0_runs: *pick(rng, &[4, 20]),
            deferral_percent: *pick(rng, &[0, 10, 60]),
            changing_options: rng.random(),
            // Drawn last: the others of a seed stay as they were.
            subcompactions: *pick(rng, &[1, 2, 4]),
            changing_columns: row_format == RowFormatKind::Packed && rng.random(),
            prefix_filter: *pick(rng, &[None, Some(1), Some(3)]),
            expiring: rng.random(),
            archiving: false,
            deeper_block_bytes: *pick(rng, &[None, None, Some(128), Some(2 << 10)]),
        };
        drawn.in_some_format(rng)
    }

    /// Rows in JSON, or in a format that is defined at run time instead.
    fn in_some_format(self, rng: &mut SmallRng) -> Self {
        if self.row_format != RowFormatKind::Json {
            return self.with_groups_in_any_format(rng);
        }
        let row_format = *pick(rng, &[RowFormatKind::Json, RowFormatKind::Protobuf, RowFormatKind::FlatBuffers]);
        let layouts = in_format(self.layouts.iter().map(String::as_str), row_format);
        Self { row_format, layouts, ..self }.with_groups_in_any_format(rng)
    }

    /// Some of the packed groups below level 0 in other formats of rows; not where columns change, which leaves no
    /// others than packed ones.
    fn with_groups_in_any_format(mut self, rng: &mut SmallRng) -> Self {
        if self.changing_columns || rng.random() {
            return self;
        }
        let formats = [RowFormatKind::Json, RowFormatKind::Protobuf, RowFormatKind::FlatBuffers, RowFormatKind::Packed];
        for layout in &mut self.layouts {
            let (top, below) = layout.split_once('\n').unwrap_or((layout, ""));
            let words = below.split_inclusive([' ', '\n']).map(|word| match word.trim_end() {
                "packed" => word.replace("packed", pick(rng, &formats).name()),
                _ => word.to_owned(),
            });
            *layout = format!("{top}\n{}", words.collect::<String>());
        }
        self
    }
}

fn policy(rng: &mut SmallRng, levels: usize) -> MergePolicy {
    if rng.random_ratio(1, 4) {
        return MergePolicy::Tiered { levels, runs_per_level: 2, max_space_amplification_percent: 200 };
    }
    if rng.random_ratio(1, 3) {
        return MergePolicy::TwoPhase { levels, fanout: 2.0, base_level_bytes: *pick(rng, &[4 << 10, 8 << 10]) };
    }
    leveled(rng, levels)
}

fn leveled(rng: &mut SmallRng, levels: usize) -> MergePolicy {
    MergePolicy::Leveled {
        levels,
        fanout: 2.0,
        base_level_bytes: *pick(rng, &[4 << 10, 8 << 10]),
        priority: *pick(rng, &[Priority::MinOverlap, Priority::OldestFirst, Priority::LargestFirst]),
        dynamic_level_sizes: rng.random_ratio(1, 4),
    }
}

/// Each with a probability of a third.
fn some_of(rng: &mut SmallRng, texts: &[&str]) -> Vec<String> {
    texts.iter().filter(|_| rng.random_ratio(1, 3)).map(|&text| text.to_owned()).collect()
}

fn layout(rng: &mut SmallRng, levels: usize, row_format: RowFormatKind) -> String {
    let (own, packed) = (GroupFormat::Row(row_format), GroupFormat::Row(RowFormatKind::Packed));
    let top = if own == packed && rng.random_bool(0.25) { GroupFormat::Columnar } else { own };
    let mut text = format!("L0 tiered: * {top}");
    let mut groups = vec![COLUMNS.collect::<Vec<usize>>()];
    for level in 1..levels {
        groups = groups.into_iter().flat_map(|group| part(rng, group)).collect();
        // The last level is where rows come to rest.
        let merge =
            if level + 1 < levels { *pick(rng, &["tiered", "leveled", "two-phase", "two-phase"]) } else { "leveled" };
        let group = |columns: &Vec<usize>| {
            let columns: Vec<String> = columns.iter().map(usize::to_string).collect();
            format!("{} {}", columns.join(","), pick(rng, &[own, packed, GroupFormat::Columnar]))
        };
        let groups: Vec<String> = groups.iter().map(group).collect();
        text += &format!("\nL{level} {merge}: {}", groups.join(" | "));
    }
    text
}

/// The group, or with a probability of a third two that share its columns.
fn part(rng: &mut SmallRng, columns: Vec<usize>) -> Vec<Vec<usize>> {
    if columns.len() < 2 || !rng.random_ratio(1, 3) {
        return vec![columns];
    }
    let (mut left, mut right): (Vec<_>, Vec<_>) = columns.into_iter().partition(|_| rng.random());
    if left.is_empty() {
        left.extend(right.pop());
    } else if right.is_empty() {
        right.extend(left.pop());
    }
    vec![left, right]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Among the first that the test of the model draws.
    #[test]
    fn some_tables_have_maps_and_most_have_not() {
        let drawn: Vec<Configuration> = (40_000..40_024).map(Configuration::random).collect();
        let mapped = drawn.iter().filter(|configuration| configuration.transformers.is_some()).count();
        assert!((1..=8).contains(&mapped), "{mapped} of {}", drawn.len());
        assert!(drawn.iter().all(|drawn| drawn.transformers.is_some() != (drawn.layouts.len() >= 2)));
    }

    #[test]
    fn every_format_of_columns_is_drawn() {
        let drawn: Vec<Configuration> = (40_000..40_060).map(Configuration::random).collect();
        for kind in [RowFormatKind::Packed, RowFormatKind::Json, RowFormatKind::Protobuf, RowFormatKind::FlatBuffers] {
            let of_kind: Vec<_> = drawn.iter().filter(|drawn| drawn.row_format == kind).collect();
            let is_above = |layout: &String| layout.starts_with(&format!("L0 tiered: * {kind}"));
            assert!(!of_kind.is_empty(), "{kind}");
            assert!(kind == RowFormatKind::Packed || of_kind.iter().all(|drawn| drawn.layouts.iter().all(is_above)));
            let is_below = |layout: &String| layout.lines().skip(1).any(|level| level.contains(kind.name()));
            let others = drawn.iter().filter(|drawn| drawn.row_format != kind);
            assert!(others.flat_map(|drawn| &drawn.layouts).any(is_below), "{kind}");
        }
    }
}
