//! The memtable against a `BTreeMap`.

#![allow(clippy::unwrap_used)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mycelium_base::hash::hash_key;
use mycelium_base::{Cursor, Operation, RangeDelete, RangeDeleteSet, ReadCounters, Trailer};
use mycelium_memtable::{Memtable, MemtableCursor, MemtableOptions, MemtableWriter};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

type Position = (Vec<u8>, Reverse<Trailer>);
type Model = BTreeMap<Position, Vec<u8>>;

/// Keys of all lengths that share prefixes, differ only beyond eight bytes, and contain and end in zeroes.
fn random_key(rng: &mut SmallRng) -> Vec<u8> {
    let mut key: Vec<u8> = match rng.random_range(0..4) {
        0 => Vec::new(),
        1 => b"common-prefix/".to_vec(),
        2 => vec![0; rng.random_range(0..10)],
        _ => rng.random::<[u8; 6]>().to_vec(),
    };
    for _ in 0..rng.random_range(0..4) {
        key.push([0, b'a', b'b', 255][rng.random_range(0..4)]);
    }
    key
}

fn insert(writer: &mut MemtableWriter, model: &mut Model, key: &[u8], trailer: Trailer, value: &[u8]) {
    writer.insert(key, trailer, value);
    model.insert((key.to_vec(), Reverse(trailer)), value.to_vec());
}

fn random_memtable(rng: &mut SmallRng, entries: u64, filter_bytes: usize) -> (Arc<Memtable>, Model) {
    let options = MemtableOptions { filter_bytes };
    let (mut writer, memtable) = match rng.random_ratio(1, 2) {
        true => {
            // Up to all of the first is shared.
            let likely = [random_key(rng), vec![b'x'; rng.random_range(0..9)]].concat();
            Memtable::for_keys_like(options, &likely, &likely)
        }
        false => Memtable::new(options),
    };
    let mut model = Model::new();
    // One in four memtables is filled with ascending keys, for the short way of inserts.
    let ascending = rng.random_ratio(1, 4);
    let mut sorted: BTreeSet<Vec<u8>> = BTreeSet::new();
    while ascending && (sorted.len() as u64) < entries {
        sorted.insert(rng.random::<[u8; 9]>().to_vec());
    }
    let mut sorted = sorted.into_iter();
    for sequence in 1..=entries {
        let key = sorted.next().unwrap_or_else(|| random_key(rng));
        let operation = [Operation::Put, Operation::Delete, Operation::Patch, Operation::Merge][rng.random_range(0..4)];
        let value = vec![sequence as u8; if rng.random_ratio(1, 50) { 3_000 } else { rng.random_range(0..40) }];
        insert(&mut writer, &mut model, &key, Trailer::new(sequence, operation), &value);
    }
    (memtable, model)
}

fn entry(cursor: &MemtableCursor) -> Option<(Position, Vec<u8>)> {
    cursor.valid().then(|| ((cursor.key().to_vec(), Reverse(cursor.trailer())), cursor.value().to_vec()))
}

fn owned(found: Option<(&Position, &Vec<u8>)>) -> Option<(Position, Vec<u8>)> {
    found.map(|(key, value)| (key.clone(), value.clone()))
}

fn sizes() -> (u64, u64) {
    if cfg!(miri) { (3, 60) } else { (60, 1_500) }
}

#[test]
fn cursors_agree_with_the_model() {
    let (seeds, entries) = sizes();
    for seed in 0..seeds {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (memtable, model) = random_memtable(&mut rng, entries, 0);
        let mut cursor = memtable.cursor();
        assert!(!cursor.valid());
        cursor.seek_to_first().unwrap();
        for expected in &model {
            assert_eq!(entry(&cursor), owned(Some(expected)), "seed {seed}");
            cursor.next().unwrap();
        }
        assert!(!cursor.valid());
        cursor.seek_to_last().unwrap();
        for expected in model.iter().rev() {
            assert_eq!(entry(&cursor), owned(Some(expected)), "seed {seed}");
            cursor.prev().unwrap();
        }
        assert!(!cursor.valid());
        random_walk(&mut rng, &mut cursor, &model, entries);
        let mut counters = ReadCounters::default();
        cursor.add_counters(&mut counters);
        assert_eq!(counters.memtables_searched, 1);
    }
}

fn random_walk(rng: &mut SmallRng, cursor: &mut MemtableCursor, model: &Model, steps: u64) {
    for _ in 0..steps {
        let key = random_key(rng);
        let trailer = match rng.random_range(0..3) {
            0 => Trailer::NEWEST,
            1 => Trailer::OLDEST,
            _ => Trailer::seek_at(rng.random_range(0..1_600)),
        };
        let target = (key, Reverse(trailer));
        let before = entry(cursor);
        // A hint: the cursor stays where it is.
        cursor.fetch_ahead(rng.random_range(0..300));
        let mut moved_next = false;
        let expected = match (rng.random_range(0..6), &before) {
            (0, _) => {
                cursor.seek(&target.0, trailer).unwrap();
                owned(model.range(&target..).next())
            }
            (1, _) => {
                cursor.seek_before(&target.0, trailer).unwrap();
                owned(model.range(..&target).next_back())
            }
            (2 | 3, Some((at, _))) => {
                cursor.prev().unwrap();
                owned(model.range(..at).next_back())
            }
            (_, Some((at, _))) => {
                cursor.next().unwrap();
                moved_next = true;
                owned(model.range(at..).nth(1))
            }
            (_, None) => {
                cursor.seek_to_last().unwrap();
                owned(model.iter().next_back())
            }
        };
        assert_eq!(entry(cursor), expected);
        let same = moved_next && matches!((&before, &expected), (Some(a), Some(b)) if a.0.0 == b.0.0);
        assert_eq!(cursor.same_key_as_previous(), same);
    }
}

#[test]
fn lookups_agree_with_the_model() {
    let (seeds, entries) = sizes();
    for seed in 0..seeds {
        let mut rng = SmallRng::seed_from_u64(1_000 + seed);
        let filter_bytes = [0, 64, 4_096][seed as usize % 3];
        let (memtable, model) = random_memtable(&mut rng, entries, filter_bytes);
        let keys: BTreeSet<&Vec<u8>> = model.keys().map(|(key, _)| key).collect();
        assert!(keys.iter().all(|key| memtable.may_contain(hash_key(key))));
        let others: Vec<Vec<u8>> = (0..entries / 2).map(|_| random_key(&mut rng)).collect();
        for key in keys.iter().copied().chain(&others) {
            let snapshot = rng.random_range(0..=entries + 1);
            let expected: Vec<(Trailer, &[u8])> = model
                .range((key.clone(), Reverse(Trailer::seek_at(snapshot)))..=(key.clone(), Reverse(Trailer::OLDEST)))
                .map(|((_, trailer), value)| (trailer.0, value.as_slice()))
                .collect();
            assert_eq!(memtable.get(key, snapshot).collect::<Vec<_>>(), expected, "seed {seed}");
        }
        assert_eq!(memtable.first_key(), keys.first().map(|key| key.as_slice()));
        assert_eq!(memtable.last_key(), keys.last().map(|key| key.as_slice()));
        assert_eq!((memtable.entry_count(), memtable.sequence_range()), (entries, Some((1, entries))));
        let bytes: usize = model.iter().map(|((key, _), value)| key.len() + value.len()).sum();
        assert!(memtable.memory_usage() >= bytes + filter_bytes);
    }
}

#[test]
fn range_deletes_agree_with_a_straight_search() {
    let (seeds, _) = sizes();
    for seed in 0..seeds {
        let mut rng = SmallRng::seed_from_u64(2_000 + seed);
        let (mut writer, memtable) = Memtable::new(MemtableOptions::default());
        let mut all = Vec::new();
        assert!(memtable.range_deletes().is_empty() && !memtable.has_range_deletes());
        for sequence in 1..20 {
            let delete = RangeDelete { start: random_key(&mut rng), end: random_key(&mut rng), sequence };
            writer.insert_range_delete(delete.clone());
            all.push(delete);
            if rng.random() {
                continue;
            }
            if rng.random() {
                let set = memtable.range_deletes();
                assert!(Arc::ptr_eq(&set, &memtable.range_deletes()), "not fragmented twice");
            }
            for _ in 0..20 {
                let (key, snapshot) = (random_key(&mut rng), rng.random_range(0..22));
                let expected = all
                    .iter()
                    .filter(|d| d.start <= key && key < d.end && d.sequence <= snapshot)
                    .map(|d| d.sequence)
                    .max();
                assert_eq!(memtable.covering_range_delete(&key, snapshot), expected, "seed {seed}");
                assert_eq!(memtable.range_delete_sets().covering(&key, snapshot), expected, "seed {seed}");
                if rng.random_ratio(1, 40) {
                    assert_eq!(memtable.range_deletes().covering(&key, snapshot), expected, "seed {seed}");
                }
            }
        }
        assert_eq!(memtable.range_delete_list(), all);
        assert_eq!((memtable.entry_count(), memtable.is_empty()), (0, false));
        assert_eq!(memtable.sequence_range(), Some((1, 19)));
        assert_eq!((memtable.first_key(), memtable.last_key()), (None, None));
    }
}

/// All of them were, for the first lookup after each.
#[test]
fn a_range_delete_has_few_others_cut_up_anew() {
    let count: u64 = if cfg!(miri) { 40 } else { 1_000 };
    let (mut writer, memtable) = Memtable::new(MemtableOptions::default());
    let (mut known, mut cut_up): (Vec<Arc<RangeDeleteSet>>, u64) = (Vec::new(), 0);
    for sequence in 1..=count {
        let [start, end] = [2 * sequence, 2 * sequence + 1].map(|key| key.to_be_bytes().to_vec());
        writer.insert_range_delete(RangeDelete { start: start.clone(), end, sequence });
        assert_eq!(memtable.covering_range_delete(&start, sequence), Some(sequence));
        let sets: Vec<_> = memtable.range_delete_sets().iter().cloned().collect();
        let is_known = |set: &Arc<RangeDeleteSet>| known.iter().any(|known| Arc::ptr_eq(known, set));
        cut_up += sets.iter().filter(|set| !is_known(set)).map(|set| set.fragments().len() as u64).sum::<u64>();
        known = sets;
    }
    assert!(cut_up <= 16 * count, "{cut_up} of {count}");
    assert_eq!(memtable.range_deletes().fragments().len() as u64, count);
}

#[test]
fn sampled_keys_cut_the_entries_into_pieces_of_about_as_many() {
    for entries in [0_u64, 1, 5, 200, 1_000, 20_000] {
        let (mut writer, memtable) = Memtable::new(MemtableOptions { filter_bytes: 1 << 10 });
        for sequence in 1..=entries {
            let key = (sequence * 7919 % entries).to_be_bytes();
            writer.insert(&key, Trailer::new(sequence, Operation::Put), b"value");
        }
        for count in [0, 1, 16, 64] {
            let mut numbers: Vec<u64> =
                memtable.sample_keys(count).map(|key| u64::from_be_bytes(key.try_into().unwrap())).collect();
            let most = 8 * count.max(1) as u64;
            assert!(numbers.len() as u64 <= most && numbers.is_sorted(), "{count} of {entries}: {numbers:?}");
            numbers.push(entries);
            let longest = numbers.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
            assert!(
                count < 16 || longest <= 1 + 8 * entries / count as u64,
                "{count} of {entries}: {longest} in one piece"
            );
        }
    }
}

#[test]
fn an_empty_memtable() {
    let (writer, memtable) = Memtable::new(MemtableOptions { filter_bytes: 1 });
    assert!(memtable.is_empty() && memtable.sequence_range().is_none() && memtable.first_key().is_none());
    assert_eq!(memtable.get(b"", u64::MAX >> 8).count(), 0);
    let mut cursor = memtable.cursor();
    cursor.seek(b"", Trailer::NEWEST).unwrap();
    assert!(!cursor.valid());
    cursor.seek_before(b"x", Trailer::NEWEST).unwrap();
    assert!(!cursor.valid());
    cursor.seek_to_last().unwrap();
    assert!(!cursor.valid());
    assert!(Arc::ptr_eq(writer.memtable(), &memtable));
}

/// Chunks of all sizes, and entries with a chunk of their own, outlive writer and handle through a cursor.
#[test]
fn chunks_live_as_long_as_the_last_handle() {
    let entries: u64 = if cfg!(miri) { 12 } else { 2_000 };
    let (mut writer, memtable) = Memtable::new(MemtableOptions { filter_bytes: 100 });
    let mut model = Model::new();
    let mut rng = SmallRng::seed_from_u64(4);
    for sequence in 1..=entries {
        let len = match sequence % 12 {
            3 => 60_000,
            7 => 200_000,
            11 => 5_000,
            _ => 30,
        };
        let len = if len > 100 && sequence > 100 { 3_000 } else { len };
        let value = vec![sequence as u8; len];
        insert(&mut writer, &mut model, &rng.random::<[u8; 4]>(), Trailer::new(sequence, Operation::Put), &value);
    }
    let mut cursor = memtable.cursor();
    drop(memtable);
    drop(writer);
    cursor.seek_to_first().unwrap();
    for expected in &model {
        assert_eq!(entry(&cursor), owned(Some(expected)));
        cursor.next().unwrap();
    }
}
