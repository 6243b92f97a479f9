//! Publishing of nodes and range deletes under thousands of drawn schedules (shuttle).
//!
//! `cargo test -p mycelium-memtable --features schedule-tests --test schedules`

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use mycelium_base::{Cursor, Operation, RangeDelete, Trailer};
use mycelium_memtable::{Memtable, MemtableOptions};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

const SCHEDULES: usize = 10_000;

/// Keys that land before, after and between those already there, with equal and different prefixes.
const KEYS: [&[u8]; 6] = [b"m", b"prefix--2", b"a", b"prefix--1", b"m", b"prefix--15"];

fn scenario() {
    let (mut writer, memtable) = Memtable::new(MemtableOptions { filter_bytes: 64 });
    let visible = Arc::new(AtomicU64::new(0));
    let readers: Vec<_> = (0..2)
        .map(|reader| {
            let (memtable, visible) = (Arc::clone(&memtable), Arc::clone(&visible));
            thread::spawn(move || {
                for round in 0..2 {
                    let snapshot = visible.load(Ordering::Acquire);
                    if (reader + round) % 2 == 0 {
                        look_up(&memtable, snapshot);
                    } else {
                        walk(&memtable, snapshot, reader == 0);
                    }
                    let covering = memtable.range_deletes().covering(b"x", snapshot);
                    assert_eq!(covering, (snapshot >= 4).then_some(4));
                }
            })
        })
        .collect();
    for (key, sequence) in KEYS.into_iter().zip(1..) {
        if sequence == 4 {
            writer.insert_range_delete(RangeDelete { start: b"x".to_vec(), end: b"y".to_vec(), sequence });
        }
        writer.insert(key, Trailer::new(sequence, Operation::Put), &[sequence as u8]);
        visible.store(sequence, Ordering::Release);
    }
    for reader in readers {
        reader.join().unwrap();
    }
}

fn look_up(memtable: &Memtable, snapshot: u64) {
    for (key, sequence) in KEYS.into_iter().zip(1..=snapshot) {
        let found: Vec<u64> = memtable.get(key, snapshot).map(|(trailer, _)| trailer.sequence()).collect();
        assert!(found.contains(&sequence), "{sequence} at {snapshot}: {found:?}");
        assert!(found.iter().all(|&s| s <= snapshot && KEYS[s as usize - 1] == key));
    }
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
    println!("{} random schedules", SCHEDULES / 2);
}

#[test]
fn published_entries_are_found_under_schedules_of_few_preemptions() {
    shuttle::check_pct(scenario, SCHEDULES / 2, 3);
    println!("{} schedules of at most 3 preemptions", SCHEDULES / 2);
}
