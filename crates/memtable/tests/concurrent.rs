//! One writer and two readers at the same time.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mycelium_base::{Cursor, Operation, RangeDelete, Trailer, compare_entries};
use mycelium_memtable::{Memtable, MemtableOptions};

const ENTRIES: u64 = if cfg!(miri) { 150 } else { 60_000 };

/// The key of a sequence number: scattered, and every fifth the same as the one before.
fn key(sequence: u64) -> [u8; 12] {
    let base = if sequence.is_multiple_of(5) { sequence - 1 } else { sequence };
    let mixed = (base ^ (base >> 7)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut key = [b'k'; 12];
    key[..3].copy_from_slice(&mixed.to_be_bytes()[..3]);
    key[4..].copy_from_slice(&mixed.to_be_bytes());
    key
}

#[test]
fn readers_see_all_that_was_published() {
    let (mut writer, memtable) = Memtable::new(MemtableOptions { filter_bytes: 4_096 });
    let visible = Arc::new(AtomicU64::new(0));
    let readers: Vec<_> = (0..2)
        .map(|reader| {
            let (memtable, visible) = (Arc::clone(&memtable), Arc::clone(&visible));
            std::thread::spawn(move || {
                let mut rounds = 0_u64;
                loop {
                    let snapshot = visible.load(Ordering::Acquire);
                    look_up(&memtable, snapshot, rounds);
                    let forwards = (rounds + reader).is_multiple_of(2);
                    assert_eq!(count_visible(&memtable, snapshot, forwards), snapshot, "forwards: {forwards}");
                    check_range_deletes(&memtable, snapshot);
                    rounds += 1;
                    if snapshot == ENTRIES {
                        return rounds;
                    }
                }
            })
        })
        .collect();
    for sequence in 1..=ENTRIES {
        if sequence.is_multiple_of(ENTRIES / 10) {
            writer.insert_range_delete(RangeDelete { start: vec![1], end: vec![2], sequence });
        }
        writer.insert(&key(sequence), Trailer::new(sequence, Operation::Put), &sequence.to_le_bytes());
        visible.store(sequence, Ordering::Release);
    }
    for reader in readers {
        println!("{} rounds", reader.join().unwrap());
    }
}

fn look_up(memtable: &Memtable, snapshot: u64, rounds: u64) {
    for i in 0..snapshot.min(200) {
        let sequence = 1 + (rounds.wrapping_mul(7_919) + i * 31) % snapshot;
        let versions: Vec<u64> = memtable.get(&key(sequence), snapshot).map(|(t, _)| t.sequence()).collect();
        assert!(versions.contains(&sequence), "{sequence} at {snapshot}: {versions:?}");
        assert!(versions.is_sorted_by(|a, b| a > b) && versions[0] <= snapshot);
    }
    if let Some((min, max)) = memtable.sequence_range() {
        assert!(snapshot == 0 || (min == 1 && max >= snapshot));
    }
}

/// Walks over everything and counts the entries at or below the snapshot.
fn count_visible(memtable: &Arc<Memtable>, snapshot: u64, forwards: bool) -> u64 {
    let mut cursor = memtable.cursor();
    if forwards {
        cursor.seek_to_first().unwrap()
    } else {
        cursor.seek_to_last().unwrap()
    }
    let mut count = 0;
    let mut last: Option<(Vec<u8>, Trailer)> = None;
    while cursor.valid() {
        if let Some((key, trailer)) = &last {
            let order = compare_entries(key, *trailer, cursor.key(), cursor.trailer());
            assert_eq!(order.is_lt(), forwards);
        }
        assert_eq!(cursor.value(), cursor.trailer().sequence().to_le_bytes());
        assert_eq!(cursor.key(), key(cursor.trailer().sequence()));
        last = Some((cursor.key().to_vec(), cursor.trailer()));
        count += u64::from(cursor.trailer().sequence() <= snapshot);
        if forwards && count.is_multiple_of(256) {
            cursor.fetch_ahead(512);
        }
        if forwards { cursor.next().unwrap() } else { cursor.prev().unwrap() }
    }
    count
}

fn check_range_deletes(memtable: &Memtable, snapshot: u64) {
    let step = ENTRIES / 10;
    let newest = snapshot / step * step;
    assert_eq!(memtable.covering_range_delete(&[1], snapshot), (newest > 0).then_some(newest));
    if newest.is_multiple_of(2 * step) {
        assert_eq!(memtable.range_deletes().covering(&[1], snapshot), (newest > 0).then_some(newest));
    }
}
