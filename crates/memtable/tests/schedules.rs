//! Publishing of nodes and range deletes under thousands of drawn schedules (shuttle).
//!
//! `cargo test -p mycelium-memtable --features schedule-tests --test schedules`

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use mycelium_base::{Cursor, Operation, RangeDelete, Trailer};
use mycelium_memtable::{Memtable, MemtableOptions};
use shuttle::rand::Rng;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

const SCHEDULES: usize = 10_000;

/// Keys that land before, after and between those already there, with equal and different prefixes.
const KEYS: [&[u8]; 6] = [b"m", b"prefix--2", b"a", b"prefix--1", b"m", b"prefix--15"];
/// Where readers seek to.
const TARGETS: [&[u8]; 7] = [b"", b"b", b"m", b"n", b"prefix--11", b"prefix--2", b"z"];

fn scenario() {
    let options = MemtableOptions { filter_bytes: 64 };
    let (mut writer, memtable) = match shuttle::rand::thread_rng().gen_bool(0.5) {
        true => Memtable::for_keys_like(options, b"prefix--22222222", b"prefix--11111111"),
        false => Memtable::new(options),
    };
    let visible = Arc::new(AtomicU64::new(0));
    let readers: Vec<_> = (0..2)
        .map(|reader| {
            let (memtable, visible) = (Arc::clone(&memtable), Arc::clone(&visible));
            thread::spawn(move || {
                let mut before = 0;
                for round in 0..12 {
                    let snapshot = visible.load(Ordering::Acquire);
                    read_recent(&memtable, before, snapshot);
                    before = snapshot;
                    let draw = shuttle::rand::thread_rng().gen_range(0..TARGETS.len());
                    match (reader + round) % 6 {
                        0 => walk(&memtable, snapshot, reader == 0),
                        1 | 3 => look_up(&memtable, snapshot, KEYS[draw % KEYS.len()]),
                        _ => seek(&memtable, snapshot, TARGETS[draw]),
                    }
                    // Each even one is one.
                    let covering = match reader + round {
                        5 => memtable.range_deletes().covering(b"x", snapshot),
                        _ => memtable.covering_range_delete(b"x", snapshot),
                    };
                    assert_eq!(covering, (snapshot >= 2).then_some(snapshot / 2 * 2));
                }
            })
        })
        .collect();
    for (key, sequence) in KEYS.into_iter().zip(1_u64..) {
        if sequence.is_multiple_of(2) {
            writer.insert_range_delete(RangeDelete { start: b"x".to_vec(), end: b"y".to_vec(), sequence });
        }
        writer.insert(key, Trailer::new(sequence, Operation::Put), &[sequence as u8]);
        visible.store(sequence, Ordering::Release);
    }
    for reader in readers {
        reader.join().unwrap();
    }
}

fn look_up(memtable: &Memtable, snapshot: u64, key: &[u8]) {
    let found: Vec<u64> = memtable.get(key, snapshot).map(|(trailer, _)| trailer.sequence()).collect();
    let expected: Vec<u64> = (1..=snapshot).rev().filter(|&s| KEYS[s as usize - 1] == key).collect();
    assert_eq!(found, expected, "{key:?} at {snapshot}");
}

/// Seeks, forwards and backwards, land on the right side of the target and pass no visible entry over.
fn seek(memtable: &Arc<Memtable>, snapshot: u64, target: &[u8]) {
    let mut cursor = memtable.cursor();
    let visible = || KEYS.into_iter().take(snapshot as usize);
    cursor.seek(target, Trailer::NEWEST).unwrap();
    let bound = cursor.valid().then(|| cursor.key().to_vec());
    assert!(bound.as_deref().is_none_or(|key| key >= target), "{bound:?} for {target:?}");
    assert!(!visible().any(|key| key >= target && bound.as_deref().is_none_or(|bound| key < bound)));
    cursor.seek_before(target, Trailer::NEWEST).unwrap();
    let bound = cursor.valid().then(|| cursor.key().to_vec());
    assert!(bound.as_deref().is_none_or(|key| key < target), "{bound:?} for {target:?}");
    assert!(!visible().any(|key| key < target && bound.as_deref().is_none_or(|bound| key > bound)));
}

/// Those inserted since an older snapshot are found, or it is said that they are not.
fn read_recent(memtable: &Arc<Memtable>, before: u64, snapshot: u64) {
    assert!(memtable.count_at(snapshot).is_none_or(|count| count == snapshot));
    let Some(mut cursor) = memtable.recent(before, snapshot, (None, None)) else { return };
    let mut found = Vec::new();
    cursor.seek_to_first().unwrap();
    while cursor.valid() {
        found.push((cursor.key().to_vec(), std::cmp::Reverse(cursor.trailer().sequence())));
        cursor.next().unwrap();
    }
    assert!(found.is_sorted());
    assert_eq!(found.len() as u64, snapshot - before, "{found:?} of {before} to {snapshot}");
    assert!(found.iter().all(|(key, sequence)| sequence.0 > before && KEYS[sequence.0 as usize - 1] == *key));
}

fn walk(memtable: &Arc<Memtable>, snapshot: u64, forwards: bool) {
    let mut cursor = memtable.cursor();
    if forwards {
        cursor.seek_to_first().unwrap()
    } else {
        cursor.seek_to_last().unwrap()
    }
    let mut seen = Vec::new();
    while cursor.valid() {
        let sequence = cursor.trailer().sequence();
        assert_eq!((cursor.key(), cursor.value()), (KEYS[sequence as usize - 1], &[sequence as u8][..]));
        seen.push((cursor.key().to_vec(), std::cmp::Reverse(sequence)));
        if forwards { cursor.next().unwrap() } else { cursor.prev().unwrap() }
    }
    assert!(if forwards { seen.is_sorted_by(|a, b| a < b) } else { seen.is_sorted_by(|a, b| a > b) });
    assert_eq!(seen.iter().filter(|(_, sequence)| sequence.0 <= snapshot).count() as u64, snapshot);
}

#[test]
fn published_entries_are_found_under_random_schedules() {
    shuttle::check_random(scenario, SCHEDULES / 2);
    println!("schedules: {}, failures: 0", SCHEDULES / 2);
}

#[test]
fn published_entries_are_found_under_schedules_of_few_preemptions() {
    shuttle::check_pct(scenario, SCHEDULES / 2, 3);
    println!("schedules: {}, failures: 0", SCHEDULES / 2);
}
