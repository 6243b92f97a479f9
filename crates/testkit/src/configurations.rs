//! Engine configurations that must all give the same answers, as plain data.
//!
//! Sizes are tiny, so that short histories reach every level: a few dozen rows fill a memtable, a few files a level.

use mycelium_base::RowFormatKind;
use mycelium_engine::{Buffering, Warm};

/// How levels are kept.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum MergePolicy {
    /// One run per level.
    Leveled {
        /// Levels, level 0 included.
        levels: usize,
        /// The size of a level over that of the one above.
        fanout: f64,
        /// Bytes of the first level below level 0.
        base_level_bytes: u64,
        /// Which file goes next.
        priority: Priority,
        /// Whether level sizes follow the last level's.
        dynamic_level_sizes: bool,
    },
    /// Several runs per level.
    Tiered {
        /// Levels, level 0 included.
        levels: usize,
        /// Runs that fill a level.
        runs_per_level: usize,
        /// Bytes of all runs over those of the oldest, in percent, beyond which everything is merged.
        max_space_amplification_percent: u32,
    },
    /// An insertion part and a deletion part per level between the first and the last.
    TwoPhase {
        /// Levels, level 0 included.
        levels: usize,
        /// The size of a level over that of the one above.
        fanout: f64,
        /// Bytes of the first level below level 0.
        base_level_bytes: u64,
    },
}

/// Which file of a level is compacted next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Priority {
    /// The one with the least overlap below.
    MinOverlap,
    /// The one written first.
    OldestFirst,
    /// The largest.
    LargestFirst,
}

/// How blocks are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Not at all.
    None,
    /// LZ4.
    Lz4,
    /// Zstandard at a level.
    Zstd(i32),
}

/// One way to set up the engine.
#[derive(Clone, PartialEq, Debug)]
pub struct Configuration {
    /// Unique, for messages.
    pub name: String,
    /// Bytes of a memtable.
    pub memtable_bytes: usize,
    /// Bytes of the block cache.
    pub cache_bytes: usize,
    /// Bytes of a data block.
    pub block_bytes: usize,
    /// The same below level 0, if it is another.
    pub deeper_block_bytes: Option<usize>,
    /// Entries between restarts of a block.
    pub restart_interval: usize,
    /// How levels are kept.
    pub policy: MergePolicy,
    /// Files of level 0 that start a compaction.
    pub level0_trigger: usize,
    /// Bytes of a file.
    pub file_bytes: u64,
    /// Compression above the last level.
    pub compression: Compression,
    /// Compression of the last level.
    pub last_level_compression: Compression,
    /// Bits per key of Bloom filters; 0 is none.
    pub filter_bits: u32,
    /// How much of keys the filters hold beside them: columns of typed tables, as far as the primary key has so many,
    /// or bytes.
    pub prefix_filter: Option<usize>,
    /// Whether outputs are cut where files of the next level start.
    pub aligned_compaction: bool,
    /// Whether files and blocks newer than a snapshot are skipped.
    pub snapshot_filter: bool,
    /// Bytes a scan reads ahead; 0 reads single blocks.
    pub read_ahead_bytes: usize,
    /// What scans are told of the rows that they will read.
    pub expected_rows: Option<u64>,
    /// Whether scans leave blocks in the cache.
    pub fill_cache: bool,
    /// The row format of typed tables.
    pub row_format: RowFormatKind,
    /// The layouts of typed tables, in text form: the first from the beginning, the next after every flush that is
    /// asked for, round and round. Empty: rows as they come at every level.
    pub layouts: Vec<String>,
    /// Whether the layout follows the workload instead.
    pub layout_auto: bool,
    /// The transformers of typed tables, in text form; those of [`crate::transformers()`] may be among them. A table
    /// whose rows are mapped takes no writes in transactions.
    pub transformers: Option<String>,
    /// Indexes of typed tables, as augments in text form, or as flat-maps (`letters by test.letters`): all from the
    /// beginning. With `changing_indexes` every flush that is asked for drops one of them or creates it again, turn by
    /// turn; with `changing_columns` too, some of later columns as well.
    pub indexes: Vec<String>,
    /// Whether indexes come and go.
    pub changing_indexes: bool,
    /// Materialised views of typed tables: name, grouping columns and aggregates, between colons. All from the
    /// beginning. With `changing_views` every flush that is asked for drops one of them or creates it again, turn by
    /// turn; with `changing_columns` too, some of later columns as well.
    pub views: Vec<String>,
    /// Whether views come and go.
    pub changing_views: bool,
    /// What of two-phase levels goes into the compaction buffer.
    pub buffer: Buffering,
    /// Bytes that it may take. Every flush that is asked for trims it to a part of them, another each time.
    pub buffer_bytes: u64,
    /// What compactions cache of what they write.
    pub warm: Warm,
    /// Level-0 files at which writers are slowed.
    pub slowdown_level0_runs: usize,
    /// How much of a table may wait for its transformation, in percent.
    pub deferral_percent: u8,
    /// Whether the database is opened with other options each time, and for reading only in between.
    pub changing_options: bool,
    /// Parts into which large compactions are cut, at most.
    pub subcompactions: usize,
    /// Whether columns of typed tables are added and renamed, where histories draw that. Rows must be packed at every
    /// level, or columnar, and nobody may map them.
    pub changing_columns: bool,
    /// Whether rows expire, where histories draw that, of tables that have a time. Nobody may map them.
    pub expiring: bool,
    /// Whether the log is archived.
    pub archiving: bool,
}

/// Indexes of every kind: on few values, on text with NULs, on several columns, covering, on the key, of a flat-map.
pub(crate) const INDEXES: &[&str] = &[
    "small on 2",
    "name on 5,1 cover 2",
    "count on 3 cover 1,4-6",
    "key on 0,2",
    "wide on 2,4,1",
    "letters by test.letters",
];

/// Views of every kind: of few groups and many, of the key alone, of all rows, of every type.
pub(crate) const VIEWS: &[&str] = &[
    "flags: flag: count(*), sum(small), min(name)",
    "numbers: small,flag: sum(count), count(amount), max(amount), min(count)",
    "names: name: count(*), max(blob)",
    "all: : count(*), sum(amount), min(k), max(k), max(flag)",
    "keys: : count(*), max(k)",
];

/// Indexes of columns that come later, beside others: where indexes come and go.
pub(crate) const LATER_INDEXES: &[&str] = &["later on 7,2 cover 1", "latest on 2,8"];

/// Views of columns that come later: where views come and go.
pub(crate) const LATER_VIEWS: &[&str] =
    &["later: small: count(score), sum(score), max(note)", "latest: seen: count(*), sum(count)"];

/// LASER's kind of layout: ever finer groups, all leveled.
const FINER: &str =
    "L0 tiered: * packed\nL1 leveled: 1-3 packed | 4-6 packed\nL2 leveled: 1 packed | 2-3 packed | 4-6 packed
    L3 leveled: 1 packed | 2 packed | 3 packed | 4-5 packed | 6 packed";
/// Mycelium's kind: tiered where a split leaves or enters.
const TIERED_SPLIT: &str =
    "L0-1 tiered: * packed\nL2 tiered: 1,3,5 packed | 2,4,6 packed\nL3 leveled: 1,3,5 packed | 2,4,6 packed";
/// Columns one by one at once.
const COLUMNS: &str =
    "L0 tiered: * packed\nL1 leveled: 1 packed | 2 packed | 3 packed | 4 packed | 5 packed | 6 packed";
const ROWS: &str = "L0 tiered: * packed\nL1 leveled: * packed";
/// Split in one format, then converted.
const SPLIT_CONVERT: &str = "L0 tiered: * json\nL1 tiered: 1-2,6 json | 3-5 json\nL2 leveled: 1-2,6 packed | 3-5 json\nL3 leveled: 1-2,6 packed | 3 packed | 4-5 packed";
/// Packed rows that become those of every other format.
const ANY_FORMAT: &str =
    "L0 tiered: * packed\nL1 leveled: 1-3 protobuf | 4-6 packed\nL2-3 leveled: 1-3 protobuf | 4-5 flatbuffers | 6 json";
const ANY_OTHER_FORMAT: &str =
    "L0 tiered: * packed\nL1 tiered: * flatbuffers\nL2-3 leveled: 1-2 json | 3-4 flatbuffers | 5-6 columnar";
const CONVERT: &str = "L0-1 tiered: * json\nL2 leveled: * packed";
const JSON_ROWS: &str = "L0 tiered: * json\nL1 leveled: * json";

/// dLSM's kind, over groups that become finer.
const TWO_PHASE_GROUPS: &str = "L0 tiered: * packed\nL1 two-phase: 1-3 packed | 4-6 packed\nL2 two-phase: 1 packed | 2-3 packed | 4-6 packed\nL3 leveled: 1 packed | 2-3 packed | 4-6 packed";
/// Rows that turn into columns at once.
const TWO_PHASE_COLUMNAR: &str =
    "L0 tiered: * packed\nL1-2 two-phase: 1-3 columnar | 4-6 columnar\nL3 leveled: 1-3 columnar | 4-6 columnar";

/// Encoded from the flush on (LSM-OPD).
const COLUMNAR: &str = "L0 tiered: * columnar\nL1 leveled: * columnar";
/// Rows above, columns below.
const ROWS_TO_COLUMNAR: &str = "L0-1 tiered: * packed\nL2 tiered: 1,3,5 columnar | 2,4,6 packed\nL3 leveled: 1,3,5 columnar | 2,4 columnar | 6 columnar";
const JSON_TO_COLUMNAR: &str =
    "L0 tiered: * json\nL1 leveled: 1-2,6 columnar | 3-5 json\nL2 leveled: 1-2,6 columnar | 3 columnar | 4-5 packed";

/// Leveled with tiny sizes; the others differ from it.
const BASE: Configuration = Configuration {
    name: String::new(),
    memtable_bytes: 16 << 10,
    cache_bytes: 256 << 10,
    block_bytes: 1 << 10,
    deeper_block_bytes: None,
    restart_interval: 16,
    policy: leveled(4),
    level0_trigger: 2,
    file_bytes: 8 << 10,
    compression: Compression::None,
    last_level_compression: Compression::None,
    filter_bits: 10,
    prefix_filter: None,
    aligned_compaction: true,
    snapshot_filter: true,
    read_ahead_bytes: 0,
    expected_rows: None,
    fill_cache: true,
    row_format: RowFormatKind::Packed,
    layouts: Vec::new(),
    layout_auto: false,
    transformers: None,
    indexes: Vec::new(),
    changing_indexes: false,
    views: Vec::new(),
    changing_views: false,
    buffer: Buffering::Off,
    buffer_bytes: 1 << 20,
    warm: Warm::Nothing,
    slowdown_level0_runs: 20,
    deferral_percent: 10,
    changing_options: false,
    subcompactions: 1,
    changing_columns: false,
    expiring: false,
    archiving: false,
};

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.into()).collect()
}

const fn leveled(levels: usize) -> MergePolicy {
    MergePolicy::Leveled {
        levels,
        fanout: 3.0,
        base_level_bytes: 24 << 10,
        priority: Priority::MinOverlap,
        dynamic_level_sizes: true,
    }
}

const fn leveled_by(priority: Priority) -> MergePolicy {
    MergePolicy::Leveled { levels: 4, fanout: 3.0, base_level_bytes: 24 << 10, priority, dynamic_level_sizes: false }
}

const fn tiered(levels: usize, runs_per_level: usize, max_space_amplification_percent: u32) -> MergePolicy {
    MergePolicy::Tiered { levels, runs_per_level, max_space_amplification_percent }
}

const fn two_phase(levels: usize) -> MergePolicy {
    MergePolicy::TwoPhase { levels, fanout: 3.0, base_level_bytes: 12 << 10 }
}

/// All configurations. Names are unique.
pub fn configurations() -> Vec<Configuration> {
    let all = [
        of_policies(),
        of_two_phase_levels(),
        of_the_buffer(),
        of_files_and_reads(),
        of_column_groups(),
        of_row_formats(),
        of_defined_formats(),
        of_columnar_files(),
        of_indexes(),
        of_views(),
    ];
    all.into_iter().flatten().collect()
}

/// Memtables, and policies of one run a level or several.
fn of_policies() -> Vec<Configuration> {
    vec![
        Configuration { name: "base".into(), ..BASE },
        Configuration { name: "tiny-memtable".into(), memtable_bytes: 2 << 10, expiring: true, ..BASE },
        Configuration {
            name: "changing-options".into(),
            layouts: texts(&[FINER, ROWS_TO_COLUMNAR, COLUMNAR]),
            indexes: texts(INDEXES),
            views: texts(VIEWS),
            memtable_bytes: 4 << 10,
            changing_options: true,
            changing_columns: true,
            expiring: true,
            ..BASE
        },
        Configuration {
            name: "buffer-changing-options".into(),
            policy: two_phase(4),
            buffer: Buffering::Full,
            buffer_bytes: 32 << 10,
            memtable_bytes: 4 << 10,
            file_bytes: 2 << 10,
            changing_options: true,
            ..BASE
        },
        Configuration { name: "large-memtable".into(), memtable_bytes: 64 << 20, ..BASE },
        Configuration { name: "two-levels".into(), policy: leveled(2), ..BASE },
        Configuration { name: "three-levels".into(), policy: leveled(3), ..BASE },
        Configuration { name: "seven-levels".into(), policy: leveled(7), memtable_bytes: 4 << 10, ..BASE },
        Configuration { name: "oldest-first".into(), policy: leveled_by(Priority::OldestFirst), ..BASE },
        Configuration { name: "largest-first".into(), policy: leveled_by(Priority::LargestFirst), ..BASE },
        Configuration {
            name: "static-sizes".into(),
            policy: leveled_by(Priority::MinOverlap),
            level0_trigger: 4,
            ..BASE
        },
        Configuration { name: "tiered".into(), policy: tiered(4, 3, 200), ..BASE },
        Configuration {
            name: "tiered-eager".into(),
            policy: tiered(3, 2, 25),
            memtable_bytes: 4 << 10,
            expiring: true,
            ..BASE
        },
        Configuration {
            name: "tiered-wide".into(),
            policy: tiered(5, 8, 1_000),
            memtable_bytes: 2 << 10,
            changing_columns: true,
            ..BASE
        },
    ]
}

/// Two-phase levels without the compaction buffer.
fn of_two_phase_levels() -> Vec<Configuration> {
    vec![
        Configuration { name: "two-phase".into(), policy: two_phase(4), memtable_bytes: 4 << 10, ..BASE },
        Configuration {
            name: "two-phase-indexes-views".into(),
            policy: two_phase(4),
            indexes: texts(INDEXES),
            views: texts(VIEWS),
            memtable_bytes: 4 << 10,
            file_bytes: 2 << 10,
            expiring: true,
            ..BASE
        },
        Configuration {
            name: "two-phase-groups".into(),
            policy: two_phase(4),
            layouts: texts(&[TWO_PHASE_GROUPS]),
            memtable_bytes: 4 << 10,
            file_bytes: 4 << 10,
            ..BASE
        },
        Configuration {
            name: "two-phase-changing-layouts".into(),
            policy: two_phase(4),
            layouts: texts(&[TWO_PHASE_GROUPS, ROWS, TWO_PHASE_COLUMNAR, FINER]),
            memtable_bytes: 4 << 10,
            file_bytes: 2 << 10,
            changing_columns: true,
            ..BASE
        },
    ]
}

/// Two-phase levels with the compaction buffer.
fn of_the_buffer() -> Vec<Configuration> {
    vec![
        Configuration {
            name: "buffer".into(),
            policy: two_phase(4),
            buffer: Buffering::Full,
            memtable_bytes: 4 << 10,
            file_bytes: 4 << 10,
            ..BASE
        },
        Configuration {
            name: "buffer-small".into(),
            policy: two_phase(5),
            buffer: Buffering::Full,
            buffer_bytes: 24 << 10,
            memtable_bytes: 2 << 10,
            file_bytes: 2 << 10,
            cache_bytes: 0,
            filter_bits: 1,
            snapshot_filter: false,
            ..BASE
        },
        Configuration {
            name: "buffer-groups".into(),
            policy: two_phase(4),
            buffer: Buffering::Full,
            layouts: texts(&[TWO_PHASE_GROUPS]),
            memtable_bytes: 4 << 10,
            file_bytes: 2 << 10,
            cache_bytes: 4 << 10,
            warm: Warm::Everything,
            ..BASE
        },
        Configuration {
            name: "buffer-rows-over-columns".into(),
            policy: two_phase(4),
            buffer: Buffering::Rows,
            layouts: texts(&[TWO_PHASE_COLUMNAR]),
            memtable_bytes: 4 << 10,
            file_bytes: 4 << 10,
            cache_bytes: 0,
            ..BASE
        },
        Configuration {
            name: "buffer-changing-layouts".into(),
            policy: two_phase(4),
            buffer: Buffering::Full,
            layouts: texts(&[TWO_PHASE_COLUMNAR, ROWS, TWO_PHASE_GROUPS, FINER, TWO_PHASE_COLUMNAR]),
            indexes: texts(INDEXES),
            views: texts(VIEWS),
            memtable_bytes: 4 << 10,
            file_bytes: 2 << 10,
            filter_bits: 0,
            changing_columns: true,
            expiring: true,
            ..BASE
        },
    ]
}

/// Blocks, files, caches, compression and filters.
fn of_files_and_reads() -> Vec<Configuration> {
    vec![
        Configuration { name: "unaligned".into(), aligned_compaction: false, ..BASE },
        Configuration { name: "tiny-blocks".into(), block_bytes: 64, restart_interval: 1, ..BASE },
        Configuration {
            name: "large-blocks".into(),
            block_bytes: 64 << 10,
            restart_interval: 64,
            file_bytes: 1 << 20,
            ..BASE
        },
        Configuration {
            name: "tiny-files".into(),
            subcompactions: 3,
            file_bytes: 1 << 10,
            block_bytes: 128,
            deeper_block_bytes: Some(512),
            memtable_bytes: 4 << 10,
            changing_columns: true,
            expiring: true,
            ..BASE
        },
        Configuration { name: "no-cache".into(), cache_bytes: 0, fill_cache: false, ..BASE },
        Configuration { name: "tiny-cache".into(), cache_bytes: 4 << 10, ..BASE },
        Configuration {
            name: "lz4".into(),
            compression: Compression::Lz4,
            last_level_compression: Compression::Lz4,
            ..BASE
        },
        Configuration {
            name: "lz4-then-zstd".into(),
            compression: Compression::Lz4,
            last_level_compression: Compression::Zstd(3),
            ..BASE
        },
        Configuration {
            name: "zstd".into(),
            compression: Compression::Zstd(1),
            last_level_compression: Compression::Zstd(9),
            ..BASE
        },
        Configuration { name: "no-filters".into(), filter_bits: 0, ..BASE },
        Configuration { name: "weak-filters".into(), filter_bits: 1, ..BASE },
        Configuration { name: "prefix-filters".into(), prefix_filter: Some(2), expiring: true, ..BASE },
        Configuration {
            name: "prefix-filters-alone".into(),
            prefix_filter: Some(1),
            filter_bits: 0,
            layouts: texts(&[FINER]),
            memtable_bytes: 4 << 10,
            ..BASE
        },
        Configuration { name: "no-snapshot-filter".into(), snapshot_filter: false, ..BASE },
        Configuration { name: "read-ahead".into(), read_ahead_bytes: 64 << 10, fill_cache: false, ..BASE },
        Configuration { name: "expected-rows".into(), expected_rows: Some(20), ..BASE },
    ]
}

/// Column groups of rows.
fn of_column_groups() -> Vec<Configuration> {
    vec![
        Configuration {
            name: "finer-groups".into(),
            layouts: texts(&[FINER]),
            memtable_bytes: 4 << 10,
            expiring: true,
            ..BASE
        },
        Configuration {
            name: "finer-groups-oldest".into(),
            subcompactions: 2,
            layouts: texts(&[FINER]),
            policy: leveled_by(Priority::OldestFirst),
            ..BASE
        },
        Configuration { name: "tiered-split".into(), layouts: texts(&[TIERED_SPLIT]), memtable_bytes: 4 << 10, ..BASE },
        Configuration {
            name: "columns".into(),
            layouts: texts(&[COLUMNS]),
            memtable_bytes: 2 << 10,
            file_bytes: 2 << 10,
            changing_columns: true,
            ..BASE
        },
        Configuration {
            name: "changing-layouts".into(),
            layouts: texts(&[ROWS, FINER, COLUMNS, TIERED_SPLIT, ROWS, COLUMNS]),
            memtable_bytes: 4 << 10,
            ..BASE
        },
        Configuration {
            name: "changing-layouts-tiered".into(),
            layouts: texts(&[ROWS, FINER, TIERED_SPLIT]),
            policy: tiered(4, 3, 200),
            changing_columns: true,
            ..BASE
        },
    ]
}

/// The same for rows in another format than JSON.
pub(crate) fn in_format<'t>(layouts: impl IntoIterator<Item = &'t str>, kind: RowFormatKind) -> Vec<String> {
    let own = kind.to_string();
    layouts.into_iter().map(|text| text.replace("json", &own)).collect()
}

/// Row formats that are defined at run time.
fn of_defined_formats() -> Vec<Configuration> {
    let of_kind = |kind: RowFormatKind| {
        let changing = Configuration {
            name: kind.to_string(),
            row_format: kind,
            layouts: in_format([JSON_ROWS, SPLIT_CONVERT, JSON_TO_COLUMNAR, CONVERT], kind),
            memtable_bytes: 8 << 10,
            expiring: true,
            ..BASE
        };
        let transformed = Configuration {
            name: format!("{kind}-split-converted"),
            row_format: kind,
            transformers: Some(format!("convert {kind} to packed\nsplit by 2 down to 2")),
            memtable_bytes: 4 << 10,
            ..BASE
        };
        [changing, transformed]
    };
    let of_each = [RowFormatKind::Protobuf, RowFormatKind::FlatBuffers].into_iter().flat_map(of_kind);
    of_each.chain(from_format_to_format()).collect()
}

/// Rows of one format that become rows of another on their way down (Mycelium §5.4.2, table 1).
fn from_format_to_format() -> [Configuration; 3] {
    [
        Configuration {
            name: "json-to-flatbuffers".into(),
            row_format: RowFormatKind::Json,
            transformers: Some("convert json to flatbuffers".into()),
            memtable_bytes: 4 << 10,
            ..BASE
        },
        Configuration {
            name: "protobuf-to-flatbuffers-split".into(),
            row_format: RowFormatKind::Protobuf,
            transformers: Some("convert protobuf to flatbuffers\nsplit by 2 down to 2".into()),
            memtable_bytes: 4 << 10,
            ..BASE
        },
        Configuration {
            name: "any-format".into(),
            layouts: texts(&[ANY_FORMAT, ANY_OTHER_FORMAT, ROWS]),
            memtable_bytes: 4 << 10,
            expiring: true,
            ..BASE
        },
    ]
}

/// Row formats.
fn of_row_formats() -> Vec<Configuration> {
    vec![
        Configuration { name: "json".into(), row_format: RowFormatKind::Json, expiring: true, ..BASE },
        Configuration {
            name: "convert".into(),
            row_format: RowFormatKind::Json,
            layouts: texts(&[CONVERT]),
            memtable_bytes: 4 << 10,
            ..BASE
        },
        Configuration {
            name: "split-convert".into(),
            row_format: RowFormatKind::Json,
            layouts: texts(&[SPLIT_CONVERT]),
            memtable_bytes: 8 << 10,
            ..BASE
        },
        Configuration {
            name: "split-converted".into(),
            row_format: RowFormatKind::Json,
            transformers: Some("convert json to packed\nsplit by 2 down to 2".into()),
            memtable_bytes: 4 << 10,
            ..BASE
        },
        Configuration {
            name: "auto".into(),
            layout_auto: true,
            indexes: texts(&INDEXES[..2]),
            memtable_bytes: 4 << 10,
            ..BASE
        },
        Configuration {
            name: "changing-formats".into(),
            row_format: RowFormatKind::Json,
            layouts: texts(&[JSON_ROWS, SPLIT_CONVERT, CONVERT]),
            memtable_bytes: 8 << 10,
            ..BASE
        },
    ]
}

/// Columnar files, and values that a transformer maps.
fn of_columnar_files() -> Vec<Configuration> {
    vec![
        Configuration {
            name: "columnar".into(),
            layouts: texts(&[COLUMNAR]),
            memtable_bytes: 4 << 10,
            expiring: true,
            ..BASE
        },
        Configuration {
            name: "columnar-tiny-blocks".into(),
            subcompactions: 3,
            layouts: texts(&[COLUMNAR]),
            block_bytes: 64,
            last_level_compression: Compression::Lz4,
            snapshot_filter: false,
            cache_bytes: 4 << 10,
            ..BASE
        },
        Configuration {
            name: "rows-to-columnar".into(),
            layouts: texts(&[ROWS_TO_COLUMNAR]),
            memtable_bytes: 4 << 10,
            changing_columns: true,
            expiring: true,
            ..BASE
        },
        Configuration {
            name: "json-to-columnar".into(),
            subcompactions: 2,
            row_format: RowFormatKind::Json,
            layouts: texts(&[JSON_TO_COLUMNAR, JSON_ROWS]),
            memtable_bytes: 8 << 10,
            ..BASE
        },
        Configuration {
            name: "indexes-views-columnar".into(),
            indexes: texts(INDEXES),
            changing_indexes: true,
            views: texts(VIEWS),
            layouts: texts(&[COLUMNAR, ROWS_TO_COLUMNAR, FINER]),
            memtable_bytes: 4 << 10,
            changing_columns: true,
            expiring: true,
            ..BASE
        },
        Configuration {
            name: "mapped".into(),
            transformers: Some("test.count packed".into()),
            memtable_bytes: 4 << 10,
            ..BASE
        },
        Configuration {
            name: "mapped-converted".into(),
            row_format: RowFormatKind::Json,
            transformers: Some("convert json to packed\ntest.count json".into()),
            memtable_bytes: 4 << 10,
            policy: leveled(5),
            ..BASE
        },
    ]
}

/// Indexes.
fn of_indexes() -> Vec<Configuration> {
    vec![
        Configuration { name: "indexes".into(), indexes: texts(INDEXES), ..BASE },
        Configuration {
            name: "indexes-split-converted".into(),
            row_format: RowFormatKind::Json,
            transformers: Some("convert json to packed\nsplit by 2 down to 2".into()),
            indexes: texts(INDEXES),
            views: texts(VIEWS),
            expiring: true,
            memtable_bytes: 4 << 10,
            ..BASE
        },
        Configuration {
            name: "indexes-tiny-memtable".into(),
            indexes: texts(INDEXES),
            memtable_bytes: 2 << 10,
            ..BASE
        },
        Configuration {
            name: "indexes-tiered".into(),
            indexes: texts(INDEXES),
            policy: tiered(4, 3, 200),
            expiring: true,
            ..BASE
        },
        Configuration {
            name: "changing-indexes".into(),
            indexes: texts(INDEXES),
            changing_indexes: true,
            memtable_bytes: 4 << 10,
            ..BASE
        },
        Configuration {
            name: "changing-indexes-no-filters".into(),
            indexes: texts(INDEXES),
            changing_indexes: true,
            policy: tiered(3, 2, 25),
            filter_bits: 0,
            snapshot_filter: false,
            ..BASE
        },
        Configuration {
            name: "indexes-columns".into(),
            subcompactions: 3,
            indexes: texts(INDEXES),
            layouts: texts(&[COLUMNS]),
            memtable_bytes: 2 << 10,
            ..BASE
        },
        Configuration {
            name: "indexes-changing-layouts".into(),
            indexes: texts(INDEXES),
            changing_indexes: true,
            layouts: texts(&[ROWS, FINER, COLUMNS, TIERED_SPLIT, ROWS, COLUMNS]),
            memtable_bytes: 4 << 10,
            ..BASE
        },
    ]
}

/// Views, alone and with indexes.
fn of_views() -> Vec<Configuration> {
    vec![
        Configuration { name: "views".into(), views: texts(VIEWS), ..BASE },
        Configuration {
            name: "views-tiny-files".into(),
            views: texts(VIEWS),
            memtable_bytes: 2 << 10,
            file_bytes: 2 << 10,
            expiring: true,
            ..BASE
        },
        Configuration { name: "views-tiered".into(), views: texts(VIEWS), policy: tiered(4, 3, 200), ..BASE },
        Configuration {
            name: "views-small-blocks".into(),
            views: texts(VIEWS),
            block_bytes: 256,
            file_bytes: 1 << 20,
            cache_bytes: 4 << 10,
            snapshot_filter: false,
            ..BASE
        },
        Configuration {
            name: "changing-views".into(),
            views: texts(VIEWS),
            changing_views: true,
            last_level_compression: Compression::Lz4,
            memtable_bytes: 4 << 10,
            ..BASE
        },
        Configuration {
            name: "views-finer-groups".into(),
            views: texts(VIEWS),
            layouts: texts(&[FINER]),
            memtable_bytes: 4 << 10,
            ..BASE
        },
        Configuration {
            name: "views-indexes-changing-layouts".into(),
            views: texts(VIEWS),
            changing_views: true,
            indexes: texts(INDEXES),
            layouts: texts(&[ROWS, FINER, COLUMNS, TIERED_SPLIT, ROWS, COLUMNS]),
            memtable_bytes: 4 << 10,
            changing_columns: true,
            expiring: true,
            ..BASE
        },
        Configuration {
            name: "views-changing-formats".into(),
            views: texts(VIEWS),
            changing_views: true,
            row_format: RowFormatKind::Json,
            layouts: texts(&[JSON_ROWS, SPLIT_CONVERT, CONVERT]),
            memtable_bytes: 8 << 10,
            ..BASE
        },
        Configuration {
            name: "indexes-changing-formats".into(),
            indexes: texts(INDEXES),
            changing_indexes: true,
            row_format: RowFormatKind::Json,
            layouts: texts(&[JSON_ROWS, SPLIT_CONVERT, CONVERT]),
            memtable_bytes: 8 << 10,
            ..BASE
        },
    ]
}

fn in_turn<'t>(texts: &'t [String], later: &'t [&'t str], has_later: bool) -> Vec<&'t str> {
    let later = if has_later { later } else { &[] };
    texts.iter().map(String::as_str).chain(later.iter().copied()).collect()
}

impl Configuration {
    /// Levels, level 0 included.
    pub fn levels(&self) -> usize {
        match self.policy {
            MergePolicy::Leveled { levels, .. }
            | MergePolicy::Tiered { levels, .. }
            | MergePolicy::TwoPhase { levels, .. } => levels,
        }
    }

    /// Whether transactions may write to all tables: not where a user's map changes rows.
    pub fn takes_transactions(&self) -> bool {
        self.transformers.as_ref().is_none_or(|set| !set.contains("test.count"))
    }

    /// The row formats that groups of a layout have, or rows are converted to, and that are defined at run time.
    pub(crate) fn defined_formats(&self) -> impl Iterator<Item = RowFormatKind> {
        let texts = self.layouts.iter().chain(&self.transformers);
        let kinds = RowFormatKind::ALL.into_iter().filter(|kind| kind.takes_definition());
        kinds.filter(move |kind| texts.clone().any(|text| text.contains(kind.name())))
    }

    /// The indexes that come and go.
    pub(crate) fn indexes_in_turn(&self) -> Vec<&str> {
        in_turn(&self.indexes, LATER_INDEXES, self.changing_columns)
    }

    /// The views that come and go.
    pub(crate) fn views_in_turn(&self) -> Vec<&str> {
        in_turn(&self.views, LATER_VIEWS, self.changing_columns)
    }

    /// Whether compactions change column groups or formats: not where a map is all that there is.
    pub fn reshapes(&self) -> bool {
        self.layouts.len() > 1 || self.transformers.as_ref().is_some_and(|set| set.contains("convert"))
    }

    /// The configuration with this name.
    pub fn named(name: &str) -> Option<Self> {
        configurations().into_iter().find(|configuration| configuration.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn configurations_differ() {
        let all = configurations();
        let names: HashSet<&str> = all.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        let bodies: HashSet<String> =
            all.iter().map(|c| format!("{:?}", Configuration { name: String::new(), ..c.clone() })).collect();
        assert_eq!(bodies.len(), all.len());
        assert_eq!(Configuration::named("tiered").unwrap().policy, tiered(4, 3, 200));
    }

    #[test]
    fn columns_change_where_their_positions_are_known() {
        let drawn: Vec<Configuration> = (40_000..40_048).map(Configuration::random).collect();
        for all in [configurations(), drawn] {
            let changing: Vec<&Configuration> = all.iter().filter(|c| c.changing_columns).collect();
            assert!((all.len() / 10..all.len() / 2).contains(&changing.len()), "{} of {}", changing.len(), all.len());
            for configuration in changing {
                assert!(configuration.row_format == RowFormatKind::Packed && configuration.transformers.is_none());
                assert!(configuration.layouts.iter().all(|layout| !layout.contains("json")), "{}", configuration.name);
            }
        }
    }

    #[test]
    fn rows_expire_in_some_of_all_kinds_and_nowhere_where_they_are_mapped() {
        let drawn: Vec<Configuration> = (40_000..40_048).map(Configuration::random).collect();
        for all in [configurations(), drawn] {
            let expiring: Vec<&Configuration> = all.iter().filter(|c| c.expiring).collect();
            assert!(
                (all.len() / 6..all.len() * 2 / 3).contains(&expiring.len()),
                "{} of {}",
                expiring.len(),
                all.len()
            );
            assert!(expiring.iter().all(|configuration| configuration.takes_transactions()));
            let has = |what: &dyn Fn(&Configuration) -> bool| expiring.iter().any(|c| what(c));
            assert!(has(&|c| c.changing_columns) && has(&|c| c.changing_indexes) && has(&|c| !c.views.is_empty()));
            assert!(has(&|c| c.layouts.iter().any(|layout| layout.contains("columnar"))));
            assert!(has(&|c| c.row_format == RowFormatKind::Json) && has(&|c| c.buffer != Buffering::Off));
        }
    }
}
