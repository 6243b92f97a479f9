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
                let (mut rounds, mut before) = (0_u64, 0);
                loop {
                    let snapshot = visible.load(Ordering::Acquire);
                    look_up(&memtable, snapshot, rounds);
                    let forwards = (rounds + reader).is_multiple_of(2);
                    assert_eq!(count_visible(&memtable, snapshot, forwards), snapshot, "forwards: {forwards}");
                    check_range_deletes(&memtable, snapshot);
                    read_recent(&memtable, before, snapshot);
                    before = snapshot;
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

/// The entries inserted since an older snapshot, where they are known, in order, and forwards as backwards.
fn read_recent(memtable: &Arc<Memtable>, before: u64, snapshot: u64) {
    assert!(memtable.count_at(snapshot).is_none_or(|count| count == snapshot));
    let Some(mut cursor) = memtable.recent(before, snapshot, (None, None)) else { return };
    let (mut found, mut same_keys) = (Vec::new(), 0);
    cursor.seek_to_first().unwrap();
    while cursor.valid() {
        let sequence = cursor.trailer().sequence();
        assert!((cursor.key(), cursor.value()) == (&key(sequence)[..], &sequence.to_le_bytes()[..]));
        same_keys += u64::from(cursor.same_key_as_previous());
        found.push((cursor.key().to_vec(), cursor.trailer()));
        cursor.next().unwrap();
    }
    assert!(found.is_sorted_by(|a, b| compare_entries(&a.0, a.1, &b.0, b.1).is_lt()));
    let twice = (before + 1..=snapshot).filter(|sequence| sequence.is_multiple_of(5) && *sequence > before + 1).count();
    assert_eq!((found.len() as u64, same_keys), (snapshot - before, twice as u64));
    cursor.seek_to_last().unwrap();
    for (key, trailer) in found.iter().rev() {
        assert_eq!((cursor.key(), cursor.trailer()), (key.as_slice(), *trailer));
        cursor.prev().unwrap();
    }
    if let Some((key, trailer)) = found.get(found.len() / 2) {
        cursor.seek(key, *trailer).unwrap();
        assert_eq!((cursor.key(), cursor.trailer()), (key.as_slice(), *trailer));
        let bounded = memtable.recent(before, snapshot, (Some(key), None)).map(|cursor| cursor.len());
        let not_before = found.iter().filter(|(other, _)| other >= key).count();
        assert!(bounded.is_none_or(|len| len == not_before));
    }
}

/// Whose ring was written to since, and whose order is another.
#[test]
fn what_is_not_kept_any_more_is_not_given() {
    let (mut writer, memtable) = Memtable::new(MemtableOptions { filter_bytes: 0 });
    let mut known = Vec::new();
    for sequence in 1..=ENTRIES {
        writer.insert(&key(sequence), Trailer::new(sequence, Operation::Put), b"");
        if sequence.is_multiple_of(ENTRIES / 50) {
            let len = memtable.recent(sequence - 1, sequence, (None, None)).map(|cursor| cursor.len());
            known.push((sequence, len));
        }
    }
    let is_known = |from: u64| memtable.recent(from, ENTRIES, (None, None)).is_some();
    assert!(known.iter().filter(|(_, len)| len.is_some()).count() > 40, "{known:?}");
    assert!(known.iter().all(|(_, len)| len.is_none_or(|len| len == 1)));
    assert!(is_known(ENTRIES - 2) && !is_known(ENTRIES / 2) && !is_known(0));
    assert_eq!((memtable.count_at(ENTRIES), memtable.count_at(ENTRIES - 1)), (Some(ENTRIES), Some(ENTRIES - 1)));
    assert_eq!(memtable.count_at(ENTRIES / 2), None);
    writer.insert(b"late", Trailer::new(1, Operation::Put), b"");
    assert!(!is_known(ENTRIES - 2) && memtable.count_at(ENTRIES).is_none(), "sequence numbers did not ascend");
}

fn check_range_deletes(memtable: &Memtable, snapshot: u64) {
    let step = ENTRIES / 10;
    let newest = snapshot / step * step;
    assert_eq!(memtable.covering_range_delete(&[1], snapshot), (newest > 0).then_some(newest));
    if newest.is_multiple_of(2 * step) {
        assert_eq!(memtable.range_deletes().covering(&[1], snapshot), (newest > 0).then_some(newest));
    }
}
