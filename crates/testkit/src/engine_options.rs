//! The options of the engine that a [`Configuration`] stands for.

use std::collections::BTreeMap;
use std::sync::Arc;

use mycelium_encoding::RowFormatKind;
use mycelium_engine::{
    ArchiveOptions, Background, Buffering, CompactionCaching, Layout, LeveledOptions, ManualClock, Options,
    PickPriority, Policy, RowFormatDefinition, Table, TableOptions, TieredOptions, Warm,
};
use mycelium_transform::TransformerSet;
use mycelium_vfs::Disk;

use crate::configurations::{Compression, Configuration, MergePolicy, Priority};
use crate::model::Durability;
use crate::row_definitions::definition_of;
use crate::tables::TableKind;
use crate::transformers::transformers;

/// The directory of their archived logs.
pub(crate) const ARCHIVE: &str = "/archive";

/// Options that decide how much is kept in memory and on the disk beside the tables, and when: others at each turn.
pub(crate) fn otherwise(options: Options, turn: usize) -> Options {
    let part = turn % 3;
    Options {
        memory_budget: options.memory_budget * [1, 4, 2][part],
        cache_bytes: [options.cache_bytes, 0, 1 << 20][part],
        index_and_filter_bytes: [None, Some(0), Some(64 << 10)][part],
        buffer_bytes: options.buffer_bytes * [1, 0, 4][part],
        compaction_caching: CompactionCaching {
            warm: [Warm::Successors, Warm::Everything, options.compaction_caching.warm][part],
            ..options.compaction_caching
        },
        deferral_percent: [60, 0, options.deferral_percent][part],
        compaction_memory: [4 << 10, options.compaction_memory, 32 << 10][part],
        ..options
    }
}

/// The options of a database in this configuration.
pub fn database_options(configuration: &Configuration, kinds: &[TableKind], disk: Arc<dyn Disk>) -> Options {
    let mut operators = BTreeMap::new();
    for operator in kinds.iter().filter_map(|kind| kind.merge_operator()) {
        operators.insert(operator.name().to_owned(), operator);
    }
    Options {
        disk,
        memory_budget: 2 * configuration.memtable_bytes,
        cache_bytes: configuration.cache_bytes as u64,
        buffer_bytes: configuration.buffer_bytes,
        compaction_caching: CompactionCaching { warm: configuration.warm, ..CompactionCaching::default() },
        background: Background::Manual,
        subcompactions: configuration.subcompactions,
        merge_operators: operators.into_values().collect(),
        transformers: transformers(),
        slowdown_level0_runs: configuration.slowdown_level0_runs,
        deferral_percent: configuration.deferral_percent,
        archive: configuration.archiving.then(|| ArchiveOptions::new(ARCHIVE)),
        // At the beginning of 1970 nothing has expired, however often passes are made.
        clock: Arc::new(ManualClock::default()),
        ..Options::default()
    }
}

/// The options of a table in this configuration.
pub fn table_options(configuration: &Configuration, kind: TableKind) -> TableOptions {
    let compression = |choice| match choice {
        Compression::None => mycelium_engine::Compression::None,
        Compression::Lz4 => mycelium_engine::Compression::Lz4,
        Compression::Zstd(level) => mycelium_engine::Compression::Zstd(level),
    };
    let mut per_level = vec![compression(configuration.compression); configuration.levels() - 1];
    per_level.push(compression(configuration.last_level_compression));
    TableOptions {
        policy: policy(configuration),
        block_size: configuration.block_bytes,
        deeper_block_sizes: configuration.deeper_block_bytes.into_iter().collect(),
        restart_interval: configuration.restart_interval,
        compression: per_level,
        filter_bits: vec![configuration.filter_bits],
        prefix_filter: configuration.prefix_filter.map(|most| match kind.schema() {
            Some(schema) => most.min(schema.primary_key().len()),
            None => most,
        }),
        aligned_compaction: configuration.aligned_compaction,
        snapshot_filter: configuration.snapshot_filter,
        merge_operator: kind.merge_operator().map(|operator| operator.name().to_owned()),
        row_format: match kind.schema().filter(|_| kind.is_typed()) {
            Some(schema) if kind == TableKind::Raw => definition_of(RowFormatKind::Raw, &schema),
            Some(schema) => definition_of(configuration.row_format, &schema),
            None => RowFormatDefinition::default(),
        },
        group_formats: match kind.schema().filter(|_| kind.is_typed() && kind != TableKind::Raw) {
            Some(schema) => {
                let others = configuration.defined_formats().filter(|kind| *kind != configuration.row_format);
                others.map(|kind| definition_of(kind, &schema)).collect()
            }
            None => Vec::new(),
        },
        layout: configuration.layouts.first().and_then(|text| layout_of(kind, text)),
        layout_auto: configuration.layout_auto && kind.has_columns(),
        buffer: match kind {
            kind if kind.has_columns() && configuration.transformers.is_some() => Buffering::Off,
            _ => configuration.buffer,
        },
        transformers: configuration.transformers.as_deref().filter(|_| kind.has_columns()).map(set_of),
        // Histories set it.
        expiry: None,
    }
}

fn set_of(text: &str) -> TransformerSet {
    match TransformerSet::parse(text) {
        Ok(set) => set,
        Err(error) => unreachable!("the transformers of configurations are well-formed: {error}"),
    }
}

/// A layout of a typed table as it is created, given as one of [`TableKind::Typed`].
pub(crate) fn layout_of(kind: TableKind, text: &str) -> Option<Layout> {
    let schema = kind.schema()?;
    let text = if kind.is_of_one_group() { without_columns(kind, text) } else { text.to_owned() };
    match Layout::parse(&text, &schema.value_columns()) {
        Ok(layout) => Some(layout),
        Err(error) => unreachable!("the layouts of configurations are well-formed: {error}"),
    }
}

/// The layout of a table as it was created, with the columns that it got since and still has: each beside one of the
/// first, another one at each turn.
pub(crate) fn with_later_columns(layout: Layout, kind: TableKind, table: &Table, turn: usize) -> Layout {
    let first = kind.schema().map_or(0, |schema| schema.columns().len());
    let live = table.schema().into_iter().flat_map(|schema| schema.live_columns().map(|(column, _)| column));
    let later = live.filter(|column| *column >= first);
    later.fold(layout, |layout, column| layout.with_column(column, Some(1 + (column + turn) % (first - 1))))
}

/// The layout with one group a level, in the format of the first that there was; rows that are raw are written so, and
/// are packed or columnar below where the others are.
fn without_columns(kind: TableKind, text: &str) -> String {
    let line = |(number, line): (usize, &str)| {
        let (head, groups) = line.split_once(':').unwrap_or((line, ""));
        let first = groups.split('|').next().unwrap_or_default();
        let format = first.split_whitespace().last().unwrap_or_default();
        let is_kept = kind != TableKind::Raw || number > 0 && matches!(format, "packed" | "columnar");
        format!("{head}: * {}\n", if is_kept { format } else { "raw" })
    };
    text.lines().enumerate().map(line).collect()
}

fn policy(configuration: &Configuration) -> Policy {
    match configuration.policy {
        MergePolicy::Leveled { levels, fanout, base_level_bytes, priority, dynamic_level_sizes } => {
            Policy::Leveled(LeveledOptions {
                level0_trigger: configuration.level0_trigger,
                level0_pileup: 2 * configuration.level0_trigger,
                base_level_bytes,
                fanout,
                level_count: levels,
                target_file_size: configuration.file_bytes,
                priority: match priority {
                    Priority::MinOverlap => PickPriority::MinOverlap,
                    Priority::OldestFirst => PickPriority::OldestFirst,
                    Priority::LargestFirst => PickPriority::LargestFirst,
                },
                max_compaction_bytes: 25 * configuration.file_bytes,
                dynamic_levels: dynamic_level_sizes,
            })
        }
        MergePolicy::Tiered { levels, runs_per_level, max_space_amplification_percent } => {
            Policy::Tiered(TieredOptions {
                runs_per_level,
                level_count: levels,
                max_space_amplification_percent: max_space_amplification_percent.into(),
                target_file_size: configuration.file_bytes,
            })
        }
        MergePolicy::TwoPhase { levels, fanout, base_level_bytes } => Policy::TwoPhase(LeveledOptions {
            level0_trigger: configuration.level0_trigger,
            base_level_bytes,
            fanout,
            level_count: levels,
            target_file_size: configuration.file_bytes,
            max_compaction_bytes: 25 * configuration.file_bytes,
            ..LeveledOptions::default()
        }),
    }
}

/// The engine's name of a durability.
pub fn durability(durability: Durability) -> mycelium_engine::Durability {
    match durability {
        Durability::Buffered => mycelium_engine::Durability::Buffered,
        Durability::Os => mycelium_engine::Durability::Os,
        Durability::Sync => mycelium_engine::Durability::Sync,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configurations::configurations;

    #[test]
    fn every_layout_has_one_of_keys_alone_and_one_of_raw_rows() {
        let all = (40_000..40_050).map(Configuration::random).chain(configurations());
        for text in all.flat_map(|configuration| configuration.layouts) {
            let of_keys = layout_of(TableKind::KeysAlone, &text).unwrap();
            assert!(of_keys.is_rows(), "{of_keys}");
            let raw = layout_of(TableKind::Raw, &text).unwrap();
            assert!(raw.is_rows() && raw.to_string().starts_with("L0") && raw.to_string().contains("* raw"), "{raw}");
            let typed = layout_of(TableKind::Typed, &text).unwrap();
            assert_eq!(of_keys.levels().len(), typed.levels().len());
        }
    }
}
