//! Column groups of a level that are compacted one by one stay aligned (invariant 7, decision 0039).

use std::path::Path;

use mycelium_base::{ColumnSet, TableId};
use mycelium_encoding::{DatumRef, Schema};
use mycelium_engine::{Database, Durability, Layout, LeveledOptions, Options, Policy, Table, TableOptions};
use mycelium_manifest::{FileMeta, Manifest, Run, Version};
use mycelium_vfs::MemoryDisk;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::common::{assert_verified, scan, small_options};

const TARGET: u64 = 4 << 10;
const LAYOUT: &str = "L0 tiered: * packed\nL1 leveled: 1 packed | 2 packed | 3 packed";

/// One wide column and two narrow ones, each a group of its own.
fn open(disk: &MemoryDisk, aligned_compaction: bool) -> (Database, Table) {
    let database = Database::open("db", crate::common::small_options(disk)).unwrap();
    let schema = Schema::parse("id int64 not null, a utf8, b float64, c int32, primary key (id)").unwrap();
    let policy = LeveledOptions {
        level0_trigger: 2,
        level_count: 4,
        base_level_bytes: 24 << 10,
        fanout: 3.0,
        target_file_size: TARGET,
        ..LeveledOptions::default()
    };
    let options = TableOptions {
        layout: Some(Layout::parse(LAYOUT, &ColumnSet::from_iter([1, 2, 3])).unwrap()),
        policy: Policy::Leveled(policy),
        compression: vec![],
        aligned_compaction,
        ..crate::common::small_table()
    };
    let table = database.create_typed_table("t", schema, options).unwrap();
    (database, table)
}

fn version(disk: &MemoryDisk, table: TableId) -> Version {
    Manifest::read(disk, Path::new("db")).unwrap().tables[&table].version.as_ref().clone()
}

/// The borders of a run's files: between the end of one and the begin of the next.
fn borders(run: &Run) -> impl Iterator<Item = (&FileMeta, &FileMeta)> {
    run.files.windows(2).map(|pair| (&*pair[0], &*pair[1]))
}

/// Whether a key lies within both borders.
fn share_a_key(one: (&FileMeta, &FileMeta), other: (&FileMeta, &FileMeta)) -> bool {
    one.0.is_before(other.1) && other.0.is_before(one.1)
}

/// Whether a border is where a file ends that may be the last of its run.
fn lies_at_end(border: (&FileMeta, &FileMeta), file: &FileMeta) -> bool {
    border.0.largest <= file.largest && file.is_before(border.1)
}

/// Borders between new files lie where files of the level or of the one below do, or follow a file of the target size,
/// in their own group or in one that was written with it. Returns whether one group alone was written where others lie
/// beside it.
fn check_new_borders(before: &Version, after: &Version) -> bool {
    let is_new = |file: &FileMeta| before.find(file.number).is_none();
    let mut is_local = false;
    for (number, level) in after.levels.iter().enumerate().skip(1) {
        let new_borders =
            || level.runs.iter().flat_map(|run| borders(run)).filter(|pair| is_new(pair.0) && is_new(pair.1));
        let known = || {
            [number, number + 1].into_iter().flat_map(|number| &before.level(number).runs).flat_map(|run| borders(run))
        };
        let ends = || [number, number + 1].into_iter().flat_map(|number| before.level(number).files());
        for border in new_borders() {
            let is_known =
                known().any(|other| share_a_key(border, other)) || ends().any(|end| lies_at_end(border, end));
            let is_forced = new_borders().any(|other| share_a_key(border, other) && other.0.size >= TARGET);
            assert!(
                is_known || is_forced,
                "level {number}: {} before {}\n{before}\n{after}",
                border.0.number,
                border.1.number
            );
        }
        let written = level.runs.iter().filter(|run| run.files.iter().any(|file| is_new(file))).count();
        is_local |= written == 1 && level.runs.len() > 1;
    }
    is_local
}

/// (borders of the group that has most, cut keys of all groups) of the last level.
fn cut_keys(version: &Version) -> (usize, usize) {
    let level = version.last_level().unwrap();
    let range = mycelium_manifest::KeyRange::hull(version.level(level).files().map(|file| &**file)).unwrap();
    let finest = version.level(level).runs.iter().map(|run| borders(run).count()).max().unwrap();
    (finest, version.cut_keys(level, &range).len())
}

/// Inserts, and patches of one column each, so that most compactions are of one group. Returns what [`cut_keys`] says
/// in the end, and how many compactions were of one group.
fn run(seed: u64, aligned: bool) -> ((usize, usize), usize) {
    let disk = MemoryDisk::new();
    let (database, table) = open(&disk, aligned);
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut known = version(&disk, table.id());
    let mut local = 0;
    for round in 0..60 {
        let column = rng.random_range(0..3);
        for _ in 0..200 {
            let id = rng.random_range(0..4_000);
            let text = format!("{:060}", rng.random_range(0..u64::MAX));
            let cells = [
                ("a", DatumRef::Utf8(&text)),
                ("b", DatumRef::Float64(rng.random())),
                ("c", DatumRef::Int32(rng.random())),
            ];
            if round < 20 {
                let row = [DatumRef::Int64(id), cells[0].1, cells[1].1, cells[2].1];
                table.insert_row(&row, Durability::Buffered).unwrap();
            } else {
                table.patch_row(&[DatumRef::Int64(id)], &cells[column..=column], Durability::Buffered).unwrap();
            }
        }
        database.flush().unwrap();
        while database.step().unwrap() {
            let now = version(&disk, table.id());
            if aligned {
                local += usize::from(check_new_borders(&known, &now));
            }
            known = now;
        }
    }
    crate::common::assert_verified(&database);
    (cut_keys(&known), local)
}

#[test]
fn sibling_groups_share_their_cut_keys_across_group_local_jobs() {
    let (mut finest, mut keys, mut unaligned, mut unaligned_finest) = (0, 0, 0, 0);
    for seed in 0..2 {
        let (aligned, local) = run(seed, true);
        assert!(local >= 10, "seed {seed}: {local} compactions of one group");
        let by_size = run(seed, false).0;
        println!("seed {seed}: {aligned:?} aligned, {by_size:?} by size, {local} of one group");
        (finest, keys) = (finest + aligned.0, keys + aligned.1);
        (unaligned_finest, unaligned) = (unaligned_finest + by_size.0, unaligned + by_size.1);
    }
    // What lies apart is what growth and group-local cuts cannot avoid.
    assert!(
        2 * (keys - finest) <= unaligned - unaligned_finest,
        "{keys} of {finest}, {unaligned} of {unaligned_finest}"
    );
    println!("{keys} cut keys where one group has {finest}; by size {unaligned} where one has {unaligned_finest}");
}

/// All columns of all groups waited in memory for the ends of their files, however many they were.
#[test]
fn files_end_where_a_compaction_holds_as_much_as_it_may() {
    const LIMIT: usize = 512 << 10;
    let rows_of = |compaction_memory: usize| {
        let disk = MemoryDisk::new();
        let options = Options { compaction_memory, memory_budget: 1 << 20, ..small_options(&disk) };
        let database = Database::open("db", options).unwrap();
        let schema = Schema::parse("id int64 not null, a utf8, b utf8, c int64, primary key (id)").unwrap();
        let text = "L0 tiered: * packed\nL1 leveled: 1 columnar | 2-3 columnar";
        let layout = Some(Layout::parse(text, &"1-3".parse().unwrap()).unwrap());
        let policy = Policy::Leveled(LeveledOptions::default());
        let table = TableOptions { layout, policy, ..TableOptions::default() };
        let table = database.create_typed_table("t", schema, table).unwrap();
        for id in 0..30_000_i64 {
            // One kind repeats, the other does not.
            let (a, b) = (format!("{:x} of it", id.wrapping_mul(0x1E37_79B9_7F4A_7C15)), format!("kind {}", id % 100));
            let row = [DatumRef::Int64(id), DatumRef::Utf8(&a), DatumRef::Utf8(&b), DatumRef::Int64(id * 3)];
            table.insert_row(&row, Durability::Buffered).unwrap();
        }
        database.compact(&table).unwrap();
        // Again, from columns alone.
        table.patch_row(&[DatumRef::Int64(7)], &[("c", DatumRef::Int64(0))], Durability::Buffered).unwrap();
        database.compact(&table).unwrap();
        assert_verified(&database);
        let metrics = database.metrics();
        let files: usize = metrics.tables[0].levels.iter().map(|level| level.files).sum();
        (scan(&table), files, metrics.most_compaction_memory)
    };
    let (free, few, most) = rows_of(Options::default().compaction_memory);
    assert_eq!(few, 2, "a file of each group");
    assert!(most > 2 * LIMIT as u64, "{most}");
    let (bounded, many, most) = rows_of(LIMIT);
    assert!(many > few && bounded == free, "{many} files");
    // It is counted once a block, and what grows doubles.
    assert!(most > 0 && most <= 2 * LIMIT as u64, "{most} bytes were held");
}
