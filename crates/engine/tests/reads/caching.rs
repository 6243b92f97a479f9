//! What compactions do to the block cache, as the options say.
use std::sync::Arc;

use mycelium_encoding::{DatumRef, Schema};
use mycelium_engine::{
    Buffering, CompactionCaching, Database, Durability, LeveledOptions, Options, Policy, ReadCounters, ReadOptions,
    ScanOptions, Table, TableOptions, Warm,
};
use mycelium_vfs::{FaultDisk, MemoryDisk, OperationKind};

use crate::common::{key, rows_at_every_level, scan, small_options, small_table};

const ROWS: u32 = 2_000;

fn open(compaction_caching: CompactionCaching) -> (Database, Table) {
    let options = Options { cache_bytes: 4 << 20, compaction_caching, ..small_options(&MemoryDisk::new()) };
    let database = Database::open("db", options).unwrap();
    let table = database.create_table("t", TableOptions { compression: vec![], ..small_table() }).unwrap();
    for round in 0..2u32 {
        for n in 0..ROWS {
            table.put(&key(n), &[round as u8; 60], Durability::Os).unwrap();
        }
        database.flush().unwrap();
    }
    (database, table)
}

/// Blocks that reading some rows takes from the disk.
fn misses(table: &Table, rows: std::ops::Range<u32>) -> u64 {
    let mut counters = ReadCounters::default();
    for n in rows {
        assert!(table.get_with(&key(n), &ReadOptions::default(), &mut counters).unwrap().is_some());
    }
    counters.blocks_read
}

/// Reads a range, so that it is cached, rewrites everything, and counts what the range and the rest need from the disk
/// then.
fn misses_after_compaction(caching: CompactionCaching) -> (u64, u64) {
    let (database, table) = open(caching);
    database.compact(&table).unwrap();
    misses(&table, 500..700);
    assert_eq!(misses(&table, 500..700), 0);
    table.put(&key(3), b"new", Durability::Os).unwrap();
    table.put(&key(ROWS - 3), b"new", Durability::Os).unwrap();
    database.flush().unwrap();
    database.compact(&table).unwrap();
    let found = (misses(&table, 500..700), misses(&table, 1_000..1_500));
    assert_eq!(scan(&table).len(), ROWS as usize);
    found
}

#[test]
fn successors_of_cached_blocks_are_cached_and_nothing_else() {
    let warm = |warm| CompactionCaching { warm, ..CompactionCaching::default() };
    let (hot, cold) = misses_after_compaction(warm(Warm::Nothing));
    assert!(hot > 20 && cold > 50, "{hot} and {cold}");
    let (hot, cold) = misses_after_compaction(warm(Warm::Successors));
    assert!(hot == 0 && cold > 50, "{hot} and {cold}");
    assert_eq!(misses_after_compaction(warm(Warm::Everything)), (0, 0));
}

#[test]
fn what_compactions_read_is_cached_where_it_is_asked_for() {
    let cached = |admit_inputs| {
        let (database, table) = open(CompactionCaching { admit_inputs, ..CompactionCaching::default() });
        let before = database.metrics().cache.data_bytes;
        database.compact(&table).unwrap();
        database.metrics().cache.data_bytes.saturating_sub(before)
    };
    let (without, with) = (cached(false), cached(true));
    assert!(with > without + 50_000, "{without} and {with}");
}

#[test]
fn blocks_of_removed_files_leave_the_cache() {
    let (database, table) = open(CompactionCaching::default());
    misses(&table, 0..ROWS);
    assert!(database.metrics().cache.data_bytes > 100_000);
    table.put(&key(3), b"new", Durability::Os).unwrap();
    table.put(&key(ROWS - 3), b"new", Durability::Os).unwrap();
    database.flush().unwrap();
    database.compact(&table).unwrap();
    while database.step().unwrap() {}
    assert_eq!(database.metrics().cache.data_bytes, 0);
}

/// Where the index of a file was not in memory but cached, like the blocks, nothing of it left the cache with the file.
#[test]
fn what_is_cached_of_removed_files_leaves_where_indexes_are_cached_too() {
    let disk = MemoryDisk::new();
    let open = || {
        let options = Options { cache_bytes: 4 << 20, index_and_filter_bytes: Some(0), ..small_options(&disk) };
        Database::open("db", options).unwrap()
    };
    let database = open();
    let table = database.create_table("t", TableOptions { compression: vec![], ..small_table() }).unwrap();
    for round in 0..3u8 {
        for n in 0..ROWS {
            table.put(&key(n), &[round; 60], Durability::Os).unwrap();
        }
        database.flush().unwrap();
        misses(&table, 0..ROWS);
        database.compact(&table).unwrap();
        while database.step().unwrap() {}
    }
    let left = database.metrics().cache;
    drop(table);
    database.close().unwrap();
    // What there is when nothing was read yet.
    let fresh = open().metrics().cache;
    assert!(fresh.index_bytes > 0 && fresh.filter_bytes > 0, "{fresh:?}");
    assert_eq!(
        (left.data_bytes, left.index_bytes, left.filter_bytes),
        (0, fresh.index_bytes, fresh.filter_bytes),
        "{left:?}"
    );
}

/// Blocks that a few rows take from the disk while updates of others push them down through all levels, with the
/// buffer.
fn misses_on_the_way_down(warm: Warm) -> u64 {
    let compaction_caching = CompactionCaching { warm, ..CompactionCaching::default() };
    let options = Options {
        cache_bytes: 4 << 20,
        memory_budget: 24 << 10,
        compaction_caching,
        ..small_options(&MemoryDisk::new())
    };
    let database = Database::open("db", options).unwrap();
    let leveled = LeveledOptions {
        base_level_bytes: 32 << 10,
        target_file_size: 8 << 10,
        fanout: 4.0,
        level_count: 4,
        level0_trigger: 2,
        ..LeveledOptions::default()
    };
    let table = TableOptions {
        policy: Policy::TwoPhase(leveled),
        buffer: Buffering::Full,
        block_size: 512,
        compression: vec![],
        ..TableOptions::default()
    };
    let table = database.create_table("t", table).unwrap();
    let put = |n: u32| {
        table.put(&key(n), &[n as u8; 60], Durability::Os).unwrap();
        if n.is_multiple_of(16) {
            while database.step().unwrap() {}
        }
    };
    (0..ROWS).chain(900..1_100).for_each(put);
    misses(&table, 900..1_100);
    let mut missed = 0;
    for n in 0..10_000u32 {
        let row = n.wrapping_mul(2_654_435_761) % ROWS;
        put(if (900..1_100).contains(&row) { row % 900 } else { row });
        if n.is_multiple_of(100) {
            missed += misses(&table, 900..1_100);
        }
    }
    assert!(database.metrics().tables[0].buffer.files > 0);
    missed
}

#[test]
fn rows_that_go_down_through_the_buffer_stay_cached() {
    let (without, with) = (misses_on_the_way_down(Warm::Nothing), misses_on_the_way_down(Warm::Successors));
    assert!(without > 100 && with < without / 4, "{without} and {with}");
}

/// Reads from the disk, and blocks in them.
type Taken = (u64, u64);

/// What ranges of so many rows take from each of these rows of a compacted table on, of which a row takes about 80 of a
/// block's 512 bytes. Before each its first row is looked up, if that is to be cached.
fn reads_of_ranges(starts: impl Iterator<Item = u32>, rows: u32, how: &ReadOptions, is_cached: bool) -> Vec<Taken> {
    let disk = Arc::new(FaultDisk::new(Arc::new(MemoryDisk::new())));
    let options = Options { disk: disk.clone(), ..small_options(&MemoryDisk::new()) };
    let database = Database::open("db", options).unwrap();
    let policy = Policy::Leveled(LeveledOptions::default());
    let table = database.create_table("t", TableOptions { policy, compression: vec![], ..small_table() }).unwrap();
    for n in 0..ROWS {
        table.put(&key(n), &[7; 60], Durability::Os).unwrap();
    }
    database.compact(&table).unwrap();
    assert!(table.get(&key(ROWS - 1)).unwrap().is_some(), "the index is in memory");
    let taken = |start: u32| {
        if is_cached {
            table.get(&key(start)).unwrap();
        }
        let before = disk.count(OperationKind::Read);
        let options = ReadOptions { lower: Some(key(start)), fill_cache: false, ..how.clone() };
        let mut cursor = table.iter(&options).unwrap();
        cursor.seek_to_first().unwrap();
        for n in start..start + rows {
            assert_eq!(cursor.key(), key(n));
            if n + 1 < start + rows {
                cursor.next().unwrap();
            }
        }
        (disk.count(OperationKind::Read) - before, cursor.counters().blocks_read)
    };
    starts.map(taken).collect()
}

fn expecting(rows: u64) -> ReadOptions {
    ReadOptions { expected_rows: Some(rows), ..ReadOptions::default() }
}

/// Blocks with rows of a range of twenty rows, on average: whole ones, and a part of one at each end.
const BLOCKS_OF_TWENTY: f64 = 20.0 * 80.0 / 512.0 + 1.0;

#[test]
fn a_range_of_known_length_is_read_in_one_piece() {
    let (reads, blocks) = reads_of_ranges(std::iter::once(ROWS / 2), 100, &ReadOptions::default(), false)[0];
    assert!(reads > 1, "{reads} reads, {blocks} blocks");
    let (reads, blocks_at_once) = reads_of_ranges(std::iter::once(ROWS / 2), 100, &expecting(100), false)[0];
    assert!(reads == 1 && (15..=20).contains(&blocks_at_once), "{reads} reads, {blocks_at_once} blocks");
    assert!(blocks_at_once < blocks, "{blocks} blocks");
}

/// Half of them were read to the end of a window of 16 KiB: a second read of up to 32 blocks, for the last one.
#[test]
fn a_range_of_known_length_reads_little_in_vain() {
    let ranges = 200;
    let starts = || (0..ranges).map(|n| n * 3);
    let mean = |taken: &[Taken], of: fn(&Taken) -> u64| taken.iter().map(of).sum::<u64>() as f64 / f64::from(ranges);
    let taken = reads_of_ranges(starts(), 20, &expecting(20), false);
    let (reads, blocks) = (mean(&taken, |taken| taken.0), mean(&taken, |taken| taken.1));
    assert!(reads < 1.5 && blocks < BLOCKS_OF_TWENTY + 1.0, "{reads} reads of {blocks} blocks");
    // The block with the first row is in the cache, as it is of keys that are asked for again and again.
    let taken = reads_of_ranges(starts(), 20, &expecting(20), true);
    let (reads, blocks) = (mean(&taken, |taken| taken.0), mean(&taken, |taken| taken.1));
    assert!(reads < 1.5 && blocks < BLOCKS_OF_TWENTY, "{reads} reads of {blocks} blocks");
    // Half as many rows again as were expected.
    let blocks = mean(&reads_of_ranges(starts(), 30, &expecting(20), false), |taken| taken.1);
    assert!(blocks < BLOCKS_OF_TWENTY + 10.0 * 80.0 / 512.0 + 1.0, "{blocks} blocks");
}

#[test]
fn who_reads_more_than_was_expected_reads_ever_more_at_once() {
    let (reads, blocks) = reads_of_ranges(std::iter::once(100), 1_000, &expecting(10), false)[0];
    assert!(blocks > 140 && reads < 20, "{reads} reads of {blocks} blocks");
}

#[test]
fn who_asks_for_read_ahead_gets_it_whatever_is_expected() {
    let reads_with = |expected_rows| {
        let how = ReadOptions { read_ahead: 4 << 10, expected_rows, ..ReadOptions::default() };
        reads_of_ranges(std::iter::once(100), 1_000, &how, false)[0]
    };
    assert_eq!(reads_with(Some(10)), reads_with(None));
}

/// Reads of the disk for a scan of so many rows of a table whose one run has two files of 100 rows.
fn reads_of_a_limit(limit: u64) -> u64 {
    let disk = Arc::new(FaultDisk::new(Arc::new(MemoryDisk::new())));
    let options = Options { disk: disk.clone(), ..small_options(&MemoryDisk::new()) };
    let database = Database::open("db", options).unwrap();
    let schema = Schema::parse("id uint32 not null, n uint32 not null, primary key (id)").unwrap();
    let policy = Policy::Leveled(LeveledOptions { level0_trigger: 1, ..LeveledOptions::default() });
    let options = TableOptions { policy, layout: rows_at_every_level("1"), compression: vec![], ..small_table() };
    let table = database.create_typed_table("t", schema, options).unwrap();
    for half in 0..2 {
        for n in 100 * half..100 * (half + 1) {
            table.insert_row(&[DatumRef::UInt32(n), DatumRef::UInt32(n)], Durability::Os).unwrap();
        }
        database.flush().unwrap();
        database.wait_idle().unwrap();
    }
    let levels = &database.metrics().tables[0].levels;
    assert!(levels.iter().any(|level| level.level > 0 && (level.runs, level.files) == (1, 2)), "{levels:?}");
    let before = disk.count(OperationKind::Read);
    let batches = table.scan_batches(ScanOptions { limit: Some(limit), ..ScanOptions::default() }).unwrap();
    let rows: usize = batches.map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(rows as u64, limit);
    disk.count(OperationKind::Read) - before
}

#[test]
fn a_limit_at_the_end_of_a_file_does_not_read_the_next() {
    assert!(reads_of_a_limit(100) < reads_of_a_limit(101));
}
