//! The compaction buffer: what point reads find there is what the tree says, at every snapshot, and any of it may go at
//! any time.
use std::collections::BTreeMap;
use std::sync::Arc;

use mycelium_encoding::{DatumRef, Schema};
use mycelium_engine::{
    Buffering, CompactionCaching, Database, Durability, Layout, LeveledOptions, Options, Policy, ReadCounters,
    ReadOptions, Snapshot, Table, TableOptions, Warm,
};
use mycelium_vfs::MemoryDisk;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::common::{Rows, assert_verified, key, scan, scan_with, small_options};

const KEYS: u32 = 2_000;

/// Levels so small that a few thousand rows go round in them.
fn two_phase() -> TableOptions {
    TableOptions {
        policy: Policy::TwoPhase(LeveledOptions {
            base_level_bytes: 32 << 10,
            target_file_size: 8 << 10,
            fanout: 4.0,
            level_count: 4,
            level0_trigger: 2,
            ..LeveledOptions::default()
        }),
        buffer: Buffering::Full,
        block_size: 512,
        ..TableOptions::default()
    }
}

fn open(disk: &MemoryDisk) -> Database {
    Database::open("db", Options { memory_budget: 24 << 10, ..small_options(disk) }).unwrap()
}

fn get(table: &Table, key: &[u8], snapshot: Option<&Snapshot>, counters: &mut ReadCounters) -> Option<Vec<u8>> {
    let options = ReadOptions { snapshot: snapshot.cloned(), ..ReadOptions::default() };
    table.get_with(key, &options, counters).unwrap()
}

/// Lets flushes and compactions catch up now and then.
fn work(database: &Database, step: u32) {
    if step.is_multiple_of(64) {
        while database.step().unwrap() {}
    }
}

/// Puts, deletes and range deletes some rows, in the table and in the model.
fn change(rng: &mut SmallRng, table: &Table, model: &mut Rows) {
    match rng.random_range(0..100) {
        0 => {
            let from = rng.random_range(0..KEYS);
            let (start, end) = (key(from), key(from + rng.random_range(1..60)));
            table.delete_range(&start, &end, Durability::Os).unwrap();
            model.retain(|key, _| *key < start || *key >= end);
        }
        1..10 => {
            let row = key(rng.random_range(0..KEYS));
            table.delete(&row, Durability::Os).unwrap();
            model.remove(&row);
        }
        _ => {
            let row = key(rng.random_range(0..KEYS));
            let value = vec![rng.random::<u8>(); rng.random_range(20..60)];
            table.put(&row, &value, Durability::Os).unwrap();
            model.insert(row, value);
        }
    }
}

#[test]
fn the_buffer_answers_as_the_tree_does_at_every_snapshot() {
    for seed in 0..4u64 {
        let mut rng = SmallRng::seed_from_u64(seed);
        println!("seed {seed}");
        let disk = MemoryDisk::new();
        let mut database = open(&disk);
        let mut table = database.create_table("t", two_phase()).unwrap();
        let (mut model, mut snapshots) = (Rows::new(), Vec::<(Snapshot, Rows)>::new());
        let mut counters = ReadCounters::default();
        for step in 0..12_000u32 {
            change(&mut rng, &table, &mut model);
            work(&database, step);
            let row = key(rng.random_range(0..KEYS));
            for _ in 0..2 {
                assert_eq!(
                    get(&table, &row, None, &mut counters).as_ref(),
                    model.get(&row),
                    "seed {seed}, step {step}"
                );
            }
            if !snapshots.is_empty() {
                let (snapshot, then) = &snapshots[rng.random_range(0..snapshots.len())];
                let found = get(&table, &row, Some(snapshot), &mut counters);
                assert_eq!(found.as_ref(), then.get(&row), "seed {seed}, step {step}");
            }
            match rng.random_range(0..2_000) {
                0..3 => snapshots.push((database.snapshot(), model.clone())),
                3 if !snapshots.is_empty() => drop(snapshots.swap_remove(0)),
                4 => database.trim_buffer(rng.random_range(0..100_000)).unwrap(),
                5 => {
                    snapshots.clear();
                    database.close().unwrap();
                    database = open(&disk);
                    table = database.table("t").unwrap();
                }
                _ => {}
            }
        }
        assert_eq!(scan(&table), model);
        for (snapshot, then) in &snapshots {
            let options = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
            assert_eq!(scan_with(&table, &options), *then);
        }
        assert_verified(&database);
        assert!(counters.parts_read_from_buffer > 500, "seed {seed}: {counters:?}");
        let buffer = database.metrics().tables[0].buffer;
        assert!(buffer.bytes <= 1 << 30 && buffer.files > 0, "seed {seed}: {buffer:?}");
    }
}

/// A file of the buffer that held a tombstone was removed before one that held what it had killed, or after the tree
/// had dropped it: the row came back.
#[test]
fn a_removed_buffer_file_does_not_resurrect_what_its_tombstone_killed() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let table = database.create_table("t", two_phase()).unwrap();
    let (mut counters, mut trimmed) = (ReadCounters::default(), 0);
    let trim = |share: u64| {
        let before = database.metrics().tables[0].buffer.bytes;
        database.trim_buffer(before * share / 4).unwrap();
        u32::from(database.metrics().tables[0].buffer.bytes < before)
    };
    for round in 0..12u32 {
        for row in 0..KEYS {
            table.put(&key(row), &[round as u8; 40], Durability::Os).unwrap();
            work(&database, row);
        }
        for row in (0..KEYS).filter(|row| (row + round) % 2 == 0) {
            table.delete(&key(row), Durability::Os).unwrap();
            work(&database, row);
            if row % 200 < 2 {
                trimmed += trim(3);
                for deleted in (0..=row).filter(|row| (row + round) % 2 == 0) {
                    assert_eq!(get(&table, &key(deleted), None, &mut counters), None, "row {deleted}, round {round}");
                }
            }
        }
        if round % 3 == 2 {
            // The tree has no tombstone any more.
            database.compact(&table).unwrap();
        }
        for share in [4, 2, 0] {
            trimmed += trim(share);
            for row in 0..KEYS {
                let found = get(&table, &key(row), None, &mut counters).is_some();
                assert_eq!(found, (row + round) % 2 != 0, "row {row}, round {round}, {share} quarters left");
            }
        }
        assert_eq!(scan(&table).len() as u32, KEYS / 2);
    }
    assert!(trimmed > 20 && counters.parts_read_from_buffer > 1_000, "{trimmed}, {counters:?}");
}

/// What a table of the buffer costs at most: the parts that hold the key, each with its tables.
#[test]
fn lookups_ask_few_tables() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let table = database.create_table("t", two_phase()).unwrap();
    let mut rng = SmallRng::seed_from_u64(7);
    let mut deepest = 0;
    let (mut counters, mut reads) = (ReadCounters::default(), 0u64);
    for n in 0..30_000u32 {
        table.put(&key(rng.random_range(0..KEYS)), &[n as u8; 40], Durability::Os).unwrap();
        work(&database, n);
        if n.is_multiple_of(10) {
            let buffer = database.metrics().tables[0].buffer;
            deepest = deepest.max(buffer.tables);
            reads += 1;
            get(&table, &key(rng.random_range(0..KEYS)), None, &mut counters);
            // A key that is nowhere is not looked for in segments, but where the filter of a part is wrong.
            let before = counters;
            get(&table, b"key000000x", None, &mut counters);
            assert!(counters.segments_considered - before.segments_considered <= buffer.tables as u64);
        }
    }
    println!("{deepest} tables at most, {counters:?} in {reads} reads");
    assert!(counters.parts_read_from_buffer > reads / 10, "{counters:?}");
    // Two parts a level, in each up to 4 r tables that went down with their rows and what entered by itself, of which a
    // lookup stops at the newest that holds the key.
    assert!(deepest <= 2 * 2 * 16, "{deepest}");
    assert!(counters.segments_considered < 6 * counters.parts_read_from_buffer, "{counters:?}");
}

/// Nothing is written for the buffer: with it and without it flushes and compactions write the same, but for what files
/// say of their table's options.
#[test]
fn the_buffer_costs_no_writes() {
    let written = |buffer: Buffering| {
        let disk = MemoryDisk::new();
        let database = open(&disk);
        // Without filters, whose bits the buffer changes.
        let options = TableOptions { buffer, filter_bits: vec![0], ..two_phase() };
        let table = database.create_table("t", options).unwrap();
        let mut rng = SmallRng::seed_from_u64(9);
        let mut most = 0;
        for n in 0..20_000u32 {
            table.put(&key(rng.random_range(0..KEYS)), &[n as u8; 40], Durability::Os).unwrap();
            work(&database, n);
            most = most.max(database.metrics().tables[0].buffer.files);
        }
        let metrics = database.metrics();
        ([metrics.flush_bytes, metrics.compaction_written_by_level.iter().sum()], most)
    };
    let (without, with) = (written(Buffering::Off), written(Buffering::Full));
    for (without, with) in without.0.into_iter().zip(with.0) {
        assert!(without.abs_diff(with) * 20 < without, "{without} and {with} bytes");
    }
    assert!(without.1 == 0 && with.1 > 0, "{} and {} files", without.1, with.1);
}

#[test]
fn the_buffer_keeps_to_its_budget_and_what_nobody_reads_leaves() {
    let disk = MemoryDisk::new();
    let options = Options { memory_budget: 24 << 10, buffer_bytes: 40_000, ..small_options(&disk) };
    let database = Database::open("db", options).unwrap();
    let table = database.create_table("t", two_phase()).unwrap();
    let mut rng = SmallRng::seed_from_u64(11);
    let mut largest = 0;
    for n in 0..20_000u32 {
        table.put(&key(rng.random_range(0..KEYS)), &[n as u8; 40], Durability::Os).unwrap();
        work(&database, n);
        largest = largest.max(database.metrics().tables[0].buffer.bytes);
    }
    assert!(largest <= 40_000 && largest > 20_000, "{largest}");
    // On the disk lies what the version names, and nothing else.
    let metrics = database.metrics();
    let in_tree: usize = metrics.tables[0].levels.iter().map(|level| level.files).sum();
    database.trim_buffer(0).unwrap();
    while database.step().unwrap() {}
    assert_eq!(database.metrics().tables[0].buffer.files, 0);
    let ssts = disk_files(&disk).iter().filter(|name| name.ends_with(".sst")).count();
    assert!(ssts <= in_tree + 2, "{ssts} files, {in_tree} in the tree");
}

fn disk_files(disk: &MemoryDisk) -> Vec<String> {
    use mycelium_vfs::Disk;
    disk.list("db".as_ref()).unwrap()
}

fn buffer_bytes(database: &Database, table: &str) -> u64 {
    let metrics = database.metrics();
    metrics.tables.iter().find(|metrics| metrics.name == table).unwrap().buffer.bytes
}

/// Puts rows until the table's buffer takes so many bytes.
fn fill_buffer(database: &Database, name: &str, bytes: u64) {
    let table = database.table(name).unwrap();
    let mut rng = SmallRng::seed_from_u64(11);
    for n in 0..20_000u32 {
        table.put(&key(rng.random_range(0..KEYS)), &[n as u8; 40], Durability::Os).unwrap();
        work(database, n);
        if n.is_multiple_of(64) && buffer_bytes(database, name) > bytes {
            return;
        }
    }
    panic!("the buffer of {name} has {} bytes", buffer_bytes(database, name));
}

/// Only what its own compactions installed took segments out of a table: of one that was not written any more they
/// stayed, and its part of the budget with them.
#[test]
fn a_table_that_nobody_reads_leaves_the_buffer_to_others() {
    let disk = MemoryDisk::new();
    let options = Options { memory_budget: 24 << 10, buffer_bytes: 40_000, ..small_options(&disk) };
    let database = Database::open("db", options).unwrap();
    for name in ["left", "written"] {
        database.create_table(name, two_phase()).unwrap();
    }
    fill_buffer(&database, "left", 20_000);
    let (table, mut rng, mut most) = (database.table("written").unwrap(), SmallRng::seed_from_u64(23), 0);
    for n in 0..20_000u32 {
        table.put(&key(rng.random_range(0..KEYS)), &[n as u8; 40], Durability::Os).unwrap();
        work(&database, n);
        if n.is_multiple_of(64) {
            let bytes = ["left", "written"].map(|name| buffer_bytes(&database, name));
            assert!(bytes[0] + bytes[1] <= 40_000, "{bytes:?}");
            most = most.max(bytes[1]);
        }
    }
    assert_eq!(buffer_bytes(&database, "left"), 0);
    assert!(most > 20_000, "{most}");
    assert_eq!(scan(&database.table("left").unwrap()).len(), rows_of(&database, "left"));
    assert_verified(&database);
}

/// How many of all rows point reads find.
fn rows_of(database: &Database, name: &str) -> usize {
    let table = database.table(name).unwrap();
    (0..KEYS).filter(|&row| table.get(&key(row)).unwrap().is_some()).count()
}

/// It held from the first compaction on that came after the opening: at rest, never.
#[test]
fn a_budget_that_was_lowered_holds_from_the_opening_on() {
    let disk = MemoryDisk::new();
    let open = |buffer_bytes: u64| {
        let options = Options { memory_budget: 24 << 10, buffer_bytes, ..small_options(&disk) };
        Database::open("db", options).unwrap()
    };
    let database = open(1 << 20);
    database.create_table("t", two_phase()).unwrap();
    fill_buffer(&database, "t", 20_000);
    let before = scan(&database.table("t").unwrap());
    database.close().unwrap();
    for budget in [15_000, 0] {
        let database = open(budget);
        assert!(buffer_bytes(&database, "t") <= budget, "{}", buffer_bytes(&database, "t"));
        while database.step().unwrap() {}
        assert_eq!(scan(&database.table("t").unwrap()), before);
        assert_eq!(rows_of(&database, "t"), before.len());
        assert_verified(&database);
        database.close().unwrap();
    }
}

/// The hundred rows that were written first, and nobody writes again, lie in the last of up to twenty segments. A read
/// of one asked the filters of all of these, each time.
#[test]
fn rows_that_are_read_again_pass_over_the_segments_without_them() {
    let disk = MemoryDisk::new();
    let options = Options { memory_budget: 4 << 20, ..small_options(&disk) };
    let database = Database::open("db", options).unwrap();
    let Policy::TwoPhase(levels) = two_phase().policy else { panic!("two phases") };
    let policy = Policy::TwoPhase(LeveledOptions { base_level_bytes: 1 << 20, ..levels });
    let table = database.create_table("t", TableOptions { policy, ..two_phase() }).unwrap();
    let row = |n: u32| key(n * 10);
    let mut considered = [0, 0];
    for flush in 0..20u32 {
        for n in 0..100 {
            let beside = if flush == 0 { 0 } else { 1 + flush % 9 };
            table.put(&key(n * 10 + beside), &[flush as u8; 40], Durability::Os).unwrap();
        }
        database.flush().unwrap();
        while database.step().unwrap() {}
        for considered in &mut considered {
            let mut counters = ReadCounters::default();
            for n in 0..100 {
                assert_eq!(get(&table, &row(n), None, &mut counters), Some(vec![0; 40]), "{flush}");
            }
            *considered += counters.segments_considered;
        }
    }
    let [first, again] = considered;
    assert!(first > 5_000 && again * 2 < first, "{first} segments, then {again}");
    // What comes over a row is found, and a range delete is.
    table.put(&row(7), b"new", Durability::Os).unwrap();
    table.delete_range(&row(8), &row(10), Durability::Os).unwrap();
    for _ in 0..3 {
        table.put(&key(5), b"beside", Durability::Os).unwrap();
        let mut counters = ReadCounters::default();
        let found = [6, 7, 8, 9, 10].map(|n| get(&table, &row(n), None, &mut counters));
        let old = Some(vec![0; 40]);
        assert_eq!(found, [old.clone(), Some(b"new".to_vec()), None, None, old]);
        database.flush().unwrap();
        while database.step().unwrap() {}
    }
    assert_verified(&database);
}

/// Flushed rows are read while the tree below is columnar already, group by group.
#[test]
fn rows_are_read_from_the_buffer_while_the_tree_is_columnar() {
    for buffer in [Buffering::Rows, Buffering::Full] {
        let disk = MemoryDisk::new();
        let database = open(&disk);
        let schema = Arc::new(Schema::parse("id int64 not null, a int32, b utf8, c int32, primary key (id)").unwrap());
        let layout =
            "L0 tiered: * packed\nL1-2 two-phase: 1,3 columnar | 2 columnar\nL3 leveled: 1,3 columnar | 2 columnar";
        let layout = Some(Layout::parse(layout, &schema.value_columns()).unwrap());
        let options = TableOptions { layout, buffer, ..two_phase() };
        let table = database.create_typed_table("t", (*schema).clone(), options).unwrap();
        let mut rng = SmallRng::seed_from_u64(13);
        let mut model: BTreeMap<i64, (i32, String, i32)> = BTreeMap::new();
        let mut counters = ReadCounters::default();
        for n in 0..20_000i32 {
            let id = rng.random_range(0..i64::from(KEYS));
            let row = (n, format!("text {n}"), rng.random_range(0..9));
            let datums = [DatumRef::Int64(id), DatumRef::Int32(row.0), DatumRef::Utf8(&row.1), DatumRef::Int32(row.2)];
            table.insert_row(&datums, Durability::Os).unwrap();
            model.insert(id, row);
            work(&database, n as u32);
            let id = rng.random_range(0..i64::from(KEYS));
            let mut stored = Vec::new();
            mycelium_encoding::key::encode_key(&schema, &[DatumRef::Int64(id)], &mut stored).unwrap();
            let found = table.get_with(&stored, &ReadOptions::default(), &mut counters).unwrap();
            let expected = model.get(&id);
            assert_eq!(found.is_some(), expected.is_some(), "{id}");
            if let (Some(found), Some((a, b, c))) = (found, expected) {
                let layout = mycelium_encoding::PackedLayout::new(schema.clone());
                let row = layout.row(&found).unwrap();
                assert_eq!(row.datum(1).unwrap(), Some(DatumRef::Int32(*a)), "{id}");
                assert_eq!(row.datum(2).unwrap(), Some(DatumRef::Utf8(b)), "{id}");
                assert_eq!(row.datum(3).unwrap(), Some(DatumRef::Int32(*c)), "{id}");
            }
        }
        assert!(counters.parts_read_from_buffer > 1_000, "{buffer:?}: {counters:?}");
        assert_verified(&database);
    }
}

/// Rows that were written together, and are read, keep their blocks: when they go from level 1 to level 2 the segments
/// that hold them go down with them, and are not put beside what else there is of their level. So no block is read
/// anew, though the cache holds little more than these blocks. (It was a third of the reads where level 1's files took
/// the segments' place.)
#[test]
fn segments_in_use_go_down_with_their_rows() {
    let disk = MemoryDisk::new();
    let options = Options {
        memory_budget: 24 << 10,
        cache_bytes: 32 << 10,
        index_and_filter_bytes: Some(1 << 20),
        compaction_caching: CompactionCaching { warm: Warm::Successors, ..CompactionCaching::default() },
        ..small_options(&disk)
    };
    let database = Database::open("db", options).unwrap();
    let table = database.create_table("t", two_phase()).unwrap();
    let mut rng = SmallRng::seed_from_u64(17);
    let value = |row: u32| row.to_be_bytes().repeat(10);
    let mut counters = ReadCounters::default();
    for n in 0..8_000u32 {
        if n == 4_000 {
            // Every eighth row, at once; others in between before and after.
            for row in (0..KEYS).step_by(8) {
                table.put(&key(row), &value(row), Durability::Os).unwrap();
            }
        }
        let row = rng.random_range(0..KEYS / 8) * 8 + rng.random_range(1..8);
        table.put(&key(row), &[n as u8; 40], Durability::Os).unwrap();
        work(&database, n);
        if n == 5_000 {
            counters = ReadCounters::default();
        }
        for _ in 0..if n > 4_000 { 4 } else { 0 } {
            let row = rng.random_range(0..KEYS / 8) * 8;
            assert_eq!(get(&table, &key(row), None, &mut counters), Some(value(row)));
        }
    }
    println!("{counters:?}, {:?}", database.metrics().tables[0]);
    assert!(counters.blocks_read < counters.block_cache_hits / 100, "{counters:?}");
    assert!(database.metrics().tables[0].levels[2].bytes > 60_000, "{:?}", database.metrics().tables[0].levels);
    assert_verified(&database);
    // They are there at the next start.
    let before = database.metrics().tables[0].buffer;
    database.close().unwrap();
    let database = open(&disk);
    assert_eq!(database.metrics().tables[0].buffer, before);
    let table = database.table("t").unwrap();
    for row in (0..KEYS).step_by(8) {
        assert_eq!(get(&table, &key(row), None, &mut counters), Some(value(row)));
    }
}
