//! What compactions do to the block cache, as the options say.
#![allow(clippy::unwrap_used)]

mod common;

use common::{key, scan, small_options, small_table};
use mycelium_engine::{
    CompactionCaching, Database, Durability, Options, ReadCounters, ReadOptions, Table, TableOptions, Warm,
};
use mycelium_vfs::MemoryDisk;

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

/// Reads a range, so that it is cached, rewrites everything, and counts what the range and the rest need from the disk then.
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
