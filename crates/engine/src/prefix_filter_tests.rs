//! Prefix filters that come, change and go while a table lives: each file is asked for the prefixes that it has.

use std::collections::BTreeMap;
use std::sync::Arc;

use mycelium_compaction::LeveledOptions;
use mycelium_manifest::{TableRecord, VersionEdit};
use mycelium_vfs::MemoryDisk;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::{
    Background, Database, Durability, Options, Policy, ReadOptions, Table, TableDefinition, TableIterator, TableOptions,
};

/// What the table's options say, from one opening to the next.
const LIVES: [Option<usize>; 7] = [None, Some(1), Some(3), None, Some(2), Some(3), Some(1)];

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(disk: &MemoryDisk) -> Database {
    let disk = Arc::new(disk.clone());
    let options = Options { disk, memory_budget: 64 << 10, background: Background::Manual, ..Options::default() };
    Database::open("db", options).unwrap()
}

/// A table of bytes whose files are small.
fn create(database: &Database) -> Table {
    let policy = Policy::Leveled(LeveledOptions {
        base_level_bytes: 4 << 10,
        target_file_size: 1 << 10,
        fanout: 3.0,
        ..LeveledOptions::default()
    });
    let options = TableOptions { policy, block_size: 128, ..TableOptions::default() };
    database.create_table("t", options).unwrap()
}

/// The options in the manifest: those of the table when it is opened the next time.
fn set_prefix_filter(database: &Database, prefix_filter: Option<usize>) {
    let table = database.table("t").unwrap();
    let mut manifest = database.inner.manifest().unwrap();
    let record = TableRecord::clone(&manifest.state().tables.get(&table.shared.id).unwrap().record);
    let mut definition = TableDefinition::decode(&record.definition).unwrap();
    definition.options.prefix_filter = prefix_filter;
    let mut edit = VersionEdit::default();
    edit.changed_tables.push(TableRecord { definition: definition.encode(), ..record });
    database.inner.apply_edit(&mut manifest, edit, &[], &[], |_| {}).unwrap();
}

/// Up to five letters, few of which there are.
fn key(rng: &mut SmallRng) -> Vec<u8> {
    (0..rng.random_range(1..=5)).map(|_| b"abcd\xff"[rng.random_range(0..5_usize)]).collect()
}

fn write(rng: &mut SmallRng, table: &Table, rows: &mut Rows) {
    match rng.random_range(0..20) {
        0 => {
            let (start, end) = (key(rng), key(rng));
            table.delete_range(&start, &end, Durability::Buffered).unwrap();
            rows.retain(|key, _| *key < start || *key >= end);
        }
        1..=4 => {
            let key = key(rng);
            table.delete(&key, Durability::Buffered).unwrap();
            rows.remove(&key);
        }
        _ => {
            let (key, value) = (key(rng), rng.random::<u64>().to_be_bytes().to_vec());
            table.put(&key, &value, Durability::Buffered).unwrap();
            rows.insert(key, value);
        }
    }
}

/// Bounds within a prefix, mostly.
fn bounds(rng: &mut SmallRng) -> ReadOptions {
    let mut some = |odds: u32| rng.random_ratio(1, odds).then(|| key(rng));
    let (lower, upper) = (some(4), some(4));
    let prefix = rng.random_ratio(4, 5).then(|| key(rng));
    ReadOptions { lower, upper, prefix, ..ReadOptions::default() }
}

fn is_within(key: &[u8], options: &ReadOptions) -> bool {
    options.lower.as_ref().is_none_or(|lower| key >= lower.as_slice())
        && options.upper.as_ref().is_none_or(|upper| key < upper.as_slice())
        && options.prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix))
}

fn standing(rows: &TableIterator) -> Option<(&[u8], &[u8])> {
    rows.valid().then(|| (rows.key(), rows.value()))
}

/// Walks the rows within bounds in both directions, turns round, and seeks beyond the bounds. How many files were
/// passed by their prefixes.
fn check(rng: &mut SmallRng, table: &Table, options: &ReadOptions, rows: &Rows) -> u64 {
    let expected: Vec<(&[u8], &[u8])> = rows
        .iter()
        .filter(|(key, _)| is_within(key, options))
        .map(|(key, value)| (key.as_slice(), value.as_slice()))
        .collect();
    let at = |place: Option<usize>| place.and_then(|place| expected.get(place).copied());
    let mut found = table.iter(options).unwrap();
    found.seek_to_first().unwrap();
    for place in 0..=expected.len() {
        assert_eq!(standing(&found), at(Some(place)), "{options:?}");
        found.next().unwrap();
    }
    found.seek_to_last().unwrap();
    for place in (0..expected.len()).rev() {
        assert_eq!(standing(&found), at(Some(place)), "{options:?}");
        found.prev().unwrap();
    }
    assert!(!found.valid(), "{options:?}");
    for _ in 0..4 {
        let sought = key(rng);
        let mut place = if rng.random() {
            found.seek(&sought).unwrap();
            Some(expected.partition_point(|(key, _)| *key < sought.as_slice()))
        } else {
            found.seek_for_prev(&sought).unwrap();
            expected.partition_point(|(key, _)| *key <= sought.as_slice()).checked_sub(1)
        };
        for _ in 0..6 {
            assert_eq!(standing(&found), at(place), "{options:?} {sought:x?}");
            if at(place).is_none() {
                break;
            }
            if rng.random() {
                found.next().unwrap();
                place = place.map(|place| place + 1);
            } else {
                found.prev().unwrap();
                place = place.and_then(|place| place.checked_sub(1));
            }
        }
    }
    found.counters().files_skipped_by_prefix
}

/// Files from before the option, and with other prefixes than it says by now, would be asked for what they do not have.
#[test]
fn files_are_asked_for_the_prefixes_that_they_have() {
    for seed in 0..4 {
        let rng = &mut SmallRng::seed_from_u64(seed);
        let disk = MemoryDisk::new();
        let database = open(&disk);
        create(&database);
        database.close().unwrap();
        let (mut rows, mut skipped) = (Rows::new(), 0);
        for prefix_filter in LIVES {
            let database = open(&disk);
            set_prefix_filter(&database, prefix_filter);
            database.close().unwrap();
            let database = open(&disk);
            let table = database.table("t").unwrap();
            assert_eq!(table.options().prefix_filter, prefix_filter);
            let (before, snapshot) = (rows.clone(), database.snapshot());
            for count in 1..=400 {
                write(rng, &table, &mut rows);
                if count % 80 == 0 {
                    database.flush().unwrap();
                }
                while count % 100 == 0 && rng.random() && database.step().unwrap() {}
            }
            for _ in 0..60 {
                let options = bounds(rng);
                skipped += check(rng, &table, &options, &rows);
                let options = ReadOptions { snapshot: Some(snapshot.clone()), ..bounds(rng) };
                skipped += check(rng, &table, &options, &before);
            }
            let report = database.verify(|_, _| {}).unwrap();
            assert!(report.is_ok(), "{:#?}", report.problems);
            drop((snapshot, table));
            database.close().unwrap();
        }
        assert!(skipped > 20, "seed {seed}: {skipped} files");
    }
}
