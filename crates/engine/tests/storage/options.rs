//! Options at their extremes: they are refused with an error that says so, or the database works with them.

use mycelium_engine::{
    Background, Compression, Database, Durability, ErrorKind, LeveledOptions, Options, Policy, ReadOptions,
    TableOptions, TieredOptions,
};
use mycelium_vfs::MemoryDisk;

use crate::common::{key, scan, scan_with, small_options};

const ROWS: u32 = 100;

/// Sets an option.
type Change = fn(&mut Options);

/// Writes rows, makes files of them, merges these, and opens the database anew.
fn assert_works(what: &str, change: Change, table_options: TableOptions) {
    let disk = MemoryDisk::new();
    let open = || {
        let mut options = small_options(&disk);
        change(&mut options);
        Database::open("/db", options).unwrap_or_else(|e| panic!("{what}: {e}"))
    };
    let database = open();
    let table = database.create_table("t", table_options).unwrap_or_else(|e| panic!("{what}: {e}"));
    for n in 0..ROWS {
        table.put(&key(n), &[7; 100], Durability::Os).unwrap_or_else(|e| panic!("{what}: {e}"));
        if n % 16 == 15 {
            database.flush().unwrap();
        }
    }
    database.wait_idle().unwrap();
    database.compact(&table).unwrap();
    assert_eq!(scan(&table).len(), ROWS as usize, "{what}");
    drop(table);
    database.close().unwrap();
    assert_eq!(scan(&open().table("t").unwrap()).len(), ROWS as usize, "{what}");
}

#[test]
fn options_of_a_database_that_cannot_be_are_refused() {
    let refused: [(&str, Change); 14] = [
        ("memory_budget 0", |options| options.memory_budget = 0),
        ("memory_budget 4095", |options| options.memory_budget = 4095),
        ("rate_limit 0", |options| options.rate_limit_bytes_per_second = Some(0)),
        ("slowdown_level0_runs 0", |options| options.slowdown_level0_runs = 0),
        ("slowdown_level0_runs without end", |options| options.slowdown_level0_runs = usize::MAX),
        ("stop_level0_runs 0", |options| options.stop_level0_runs = 0),
        ("slowdown_debt_bytes 0", |options| options.slowdown_debt_bytes = 0),
        ("deferral_percent 101", |options| options.deferral_percent = 101),
        ("deferral_percent 255", |options| options.deferral_percent = u8::MAX),
        ("slowed_bytes_per_second 0", |options| options.slowed_bytes_per_second = 0),
        ("no thread", |options| options.background = Background::Threads(0)),
        ("threads without end", |options| options.background = Background::Threads(usize::MAX)),
        ("subcompactions 0", |options| options.subcompactions = 0),
        ("subcompactions without end", |options| options.subcompactions = usize::MAX),
    ];
    let disk = MemoryDisk::new();
    for (what, change) in refused {
        let mut options = small_options(&disk);
        change(&mut options);
        let error = Database::open("/db", options).err().unwrap_or_else(|| panic!("{what} was taken"));
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{what}: {error}");
        assert!(error.to_string().contains("found"), "the limit and what was met: {what}: {error}");
    }
    assert!(disk.paths().is_empty());
}

#[test]
fn options_of_a_database_at_their_extremes_work() {
    let taken: [(&str, Change); 20] = [
        ("memory_budget 4096", |options| options.memory_budget = 4096),
        ("memory_budget without end", |options| options.memory_budget = usize::MAX),
        ("cache_bytes 0", |options| options.cache_bytes = 0),
        ("cache_bytes 1", |options| options.cache_bytes = 1),
        ("cache_bytes without end", |options| options.cache_bytes = u64::MAX),
        ("index_and_filter_bytes 0", |options| options.index_and_filter_bytes = Some(0)),
        ("index_and_filter_bytes without end", |options| options.index_and_filter_bytes = Some(u64::MAX)),
        ("buffer_bytes 0", |options| options.buffer_bytes = 0),
        ("buffer_bytes without end", |options| options.buffer_bytes = u64::MAX),
        ("rate_limit 1", |options| options.rate_limit_bytes_per_second = Some(1)),
        ("rate_limit without end", |options| options.rate_limit_bytes_per_second = Some(u64::MAX)),
        ("level-0 limits of 1", |options| (options.slowdown_level0_runs, options.stop_level0_runs) = (1, 1)),
        ("level-0 limits without end", |options| {
            (options.slowdown_level0_runs, options.stop_level0_runs) = (usize::MAX, usize::MAX);
        }),
        ("slowdown_debt_bytes 1", |options| options.slowdown_debt_bytes = 1),
        ("slowdown_debt_bytes without end", |options| options.slowdown_debt_bytes = u64::MAX),
        ("slowed_bytes_per_second 1", |options| options.slowed_bytes_per_second = 1),
        ("slowed_bytes_per_second without end", |options| options.slowed_bytes_per_second = u64::MAX),
        ("deferral_percent 0", |options| options.deferral_percent = 0),
        ("deferral_percent 100", |options| options.deferral_percent = 100),
        ("subcompactions 1024", |options| options.subcompactions = 1024),
    ];
    for (what, change) in taken {
        assert_works(what, change, TableOptions::default());
    }
}

fn leveled(change: impl FnOnce(&mut LeveledOptions)) -> TableOptions {
    let mut levels = LeveledOptions::default();
    change(&mut levels);
    TableOptions { policy: Policy::Leveled(levels), ..TableOptions::default() }
}

fn tiered(change: impl FnOnce(&mut TieredOptions)) -> TableOptions {
    let mut levels = TieredOptions::default();
    change(&mut levels);
    TableOptions { policy: Policy::Tiered(levels), ..TableOptions::default() }
}

/// A number of runs too large for the manifest was a corruption of what nobody had written yet.
#[test]
fn options_of_a_table_that_cannot_be_are_refused() {
    let refused = [
        TableOptions { block_size: 0, ..TableOptions::default() },
        TableOptions { block_size: usize::MAX, ..TableOptions::default() },
        TableOptions { restart_interval: 0, ..TableOptions::default() },
        TableOptions { restart_interval: usize::MAX, ..TableOptions::default() },
        TableOptions { filter_bits: vec![u32::MAX], ..TableOptions::default() },
        TableOptions { compression: vec![Compression::None; 17], ..TableOptions::default() },
        leveled(|levels| levels.level_count = 0),
        leveled(|levels| levels.level_count = 1),
        leveled(|levels| levels.level_count = usize::MAX),
        leveled(|levels| levels.target_file_size = 0),
        leveled(|levels| levels.level0_trigger = 0),
        leveled(|levels| levels.level0_trigger = usize::MAX),
        leveled(|levels| levels.level0_pileup = usize::MAX),
        leveled(|levels| levels.base_level_bytes = 0),
        leveled(|levels| levels.fanout = 0.0),
        leveled(|levels| levels.fanout = 1.0),
        leveled(|levels| levels.fanout = f64::INFINITY),
        leveled(|levels| levels.fanout = f64::NAN),
        tiered(|levels| levels.runs_per_level = 0),
        tiered(|levels| levels.runs_per_level = 1),
        tiered(|levels| levels.runs_per_level = usize::MAX),
    ];
    let disk = MemoryDisk::new();
    let database = Database::open("/db", small_options(&disk)).unwrap();
    for options in refused {
        let what = format!("{options:?}");
        let error = database.create_table("t", options).err().unwrap_or_else(|| panic!("taken: {what}"));
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}: {what}");
        assert!(error.to_string().contains("found"), "the limit and what was met: {error}: {what}");
    }
    assert!(database.table_names().is_empty());
}

#[test]
fn options_of_a_table_at_their_extremes_work() {
    let taken = [
        TableOptions { block_size: 64, restart_interval: 1, ..TableOptions::default() },
        TableOptions { block_size: 16 << 20, restart_interval: 1024, ..TableOptions::default() },
        TableOptions { compression: Vec::new(), filter_bits: Vec::new(), ..TableOptions::default() },
        TableOptions { filter_bits: vec![64; 16], ..TableOptions::default() },
        leveled(|levels| levels.level_count = 2),
        leveled(|levels| levels.level_count = 16),
        leveled(|levels| levels.target_file_size = 1024),
        leveled(|levels| levels.target_file_size = u64::MAX),
        leveled(|levels| (levels.level0_trigger, levels.level0_pileup) = (1, 0)),
        leveled(|levels| (levels.level0_trigger, levels.level0_pileup) = (1 << 20, 1 << 20)),
        leveled(|levels| levels.base_level_bytes = 1),
        leveled(|levels| levels.base_level_bytes = u64::MAX),
        leveled(|levels| levels.fanout = 1.0 + f64::EPSILON),
        leveled(|levels| levels.fanout = 1e6),
        leveled(|levels| levels.max_compaction_bytes = 0),
        leveled(|levels| levels.max_compaction_bytes = u64::MAX),
        tiered(|levels| levels.runs_per_level = 2),
        tiered(|levels| levels.runs_per_level = 1 << 20),
        tiered(|levels| levels.max_space_amplification_percent = u64::MAX),
        tiered(|levels| levels.target_file_size = u64::MAX),
    ];
    for options in taken {
        assert_works(&format!("{options:?}"), |_| (), options);
    }
}

/// The next window was to be half as long again as no window is.
#[test]
fn a_scan_reads_ahead_as_far_as_it_is_told() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", Options { memory_budget: 4 << 20, ..small_options(&disk) }).unwrap();
    let table = database.create_table("t", TableOptions::default()).unwrap();
    for n in 0..3_000 {
        table.put(&key(n), &[7; 100], Durability::Os).unwrap();
    }
    database.flush().unwrap();
    for read_ahead in [0, 1, usize::MAX] {
        let options = ReadOptions { read_ahead, fill_cache: false, ..ReadOptions::default() };
        assert_eq!(scan_with(&table, &options).len(), 3_000);
    }
}
