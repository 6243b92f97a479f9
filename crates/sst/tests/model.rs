//! Files against a sorted vector: whatever was added is what every way of reading finds.

#![allow(clippy::unwrap_used)]

mod common;

use std::ops::ControlFlow;
use std::sync::Arc;

use common::*;
use mycelium_base::hash::hash_key;
use mycelium_base::{
    Cursor, ErrorKind, MAX_SEQUENCE_NUMBER, Operation, RangeDelete, RangeDeleteSet, ReadCounters, SequenceNumber,
    Trailer, compare_entries,
};
use mycelium_sst::{
    Compression, CursorOptions, GetScratch, KeyBits, LevelCursor, OpenOptions, SstCursor, SstFile, SstWriter,
    SstWriterOptions,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const SEED: u64 = 20_240_607;

fn configurations() -> Vec<SstWriterOptions> {
    let plain = writer_options();
    vec![
        plain,
        SstWriterOptions { block_size: 1, restart_interval: 1, filter_bits_per_key: 0, ..plain },
        SstWriterOptions { block_size: 200, restart_interval: 3, filter_bits_per_key: 4, ..plain },
        SstWriterOptions { block_size: 1 << 20, compression: Compression::Lz4, ..plain },
        SstWriterOptions { block_size: 1000, compression: Compression::Lz4, ..plain },
        SstWriterOptions { block_size: 700, restart_interval: 1000, compression: Compression::Zstd(1), ..plain },
    ]
}

/// Calls `check` with every data set under every configuration.
fn for_each_file(check: impl Fn(&str, &[Entry], &Arc<SstFile>)) {
    for (name, entries) in data_sets(SEED) {
        for (i, options) in configurations().into_iter().enumerate() {
            // Without a cache index and filter are read anew again and again.
            for cache_bytes in if i < 2 { &[8 << 20, 0][..] } else { &[8 << 20] } {
                let (bytes, summary) = write(&entries, &[], options);
                let open_options = OpenOptions {
                    expected_checksum: Some(summary.checksum),
                    expected_size: Some(summary.size),
                    ..OpenOptions::default()
                };
                let file = open_with(bytes, *cache_bytes, open_options).unwrap();
                check(&format!("{name}, {options:?}, cache {cache_bytes}"), &entries, &file);
            }
        }
    }
}

fn cursor_options(random: &mut SmallRng) -> CursorOptions {
    CursorOptions {
        snapshot: MAX_SEQUENCE_NUMBER,
        fill_cache: random.random(),
        read_ahead: [0, 1, 5_000, 1 << 20][random.random_range(0..4)],
        expected: [0, 100, 5_000, 1 << 20][random.random_range(0..4)],
    }
}

#[test]
fn scans_in_both_directions_give_what_was_added() {
    for_each_file(|name, entries, file| {
        for read_ahead in [0, 1, 10_000, 1 << 20] {
            for fill_cache in [false, true] {
                let options = CursorOptions { read_ahead, fill_cache, ..CursorOptions::default() };
                assert!(scan(&mut file.cursor(options)).unwrap() == entries, "{name}");
                assert!(scan_backward(&mut file.cursor(options)).unwrap() == entries, "{name}");
            }
        }
    });
}

#[test]
fn files_verify_and_describe_themselves() {
    for_each_file(|name, entries, file| {
        let mut progress = 0;
        let summary = file.verify(|bytes| progress = bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!((summary.entries, summary.bytes, progress), (entries.len() as u64, file.size(), file.size()));
        let properties = file.properties();
        assert_eq!(properties.smallest, entries[0].0);
        assert_eq!(properties.largest, entries[entries.len() - 1].0);
        let sequences = || entries.iter().map(|(_, trailer, _)| trailer.sequence());
        assert_eq!(file.min_sequence(), sequences().min().unwrap());
        assert_eq!(file.max_sequence(), sequences().max().unwrap());
        assert_eq!(properties.raw_value_bytes, entries.iter().map(|(_, _, value)| value.len() as u64).sum::<u64>());
        let filters = file.filters();
        assert_eq!(filters.oldest(), file.min_sequence());
        for (key, ..) in entries {
            assert!(file.may_contain(hash_key(key)), "{name}");
            filters.prefetch(hash_key(key));
            assert!(filters.may_contain(&mut KeyBits::new(hash_key(key)), |hash| file.may_contain(hash)), "{name}");
        }
        let samples = file.key_samples(7).unwrap();
        assert!(samples.len() <= 7 && samples.windows(2).all(|pair| pair[0] < pair[1]), "{name}");
    });
}

/// Keys that are in the data, next to it, and far away.
fn probes(entries: &[Entry], random: &mut SmallRng) -> Vec<Vec<u8>> {
    let mut keys = vec![vec![], vec![0], vec![255; 20]];
    for _ in 0..25 {
        let key = &entries[random.random_range(0..entries.len())].0;
        keys.push(key.clone());
        keys.push([&key[..], &[0]].concat());
        keys.push(key[..random.random_range(0..=key.len())].to_vec());
        if let Some((last, front)) = key.split_last() {
            keys.push([front, &[last.wrapping_add(1)]].concat());
            keys.push([front, &[last.wrapping_sub(1), 255]].concat());
        }
    }
    keys
}

fn snapshots(entries: &[Entry], random: &mut SmallRng) -> Vec<SequenceNumber> {
    let mut snapshots = vec![0, 1, MAX_SEQUENCE_NUMBER];
    for _ in 0..4 {
        let sequence = entries[random.random_range(0..entries.len())].1.sequence();
        snapshots.extend([sequence, sequence.saturating_sub(1)]);
    }
    snapshots
}

#[test]
fn gets_find_exactly_the_visible_versions() {
    for_each_file(|name, entries, file| {
        let mut random = SmallRng::seed_from_u64(SEED);
        for key in probes(entries, &mut random) {
            for snapshot in snapshots(entries, &mut random) {
                let first = entries.partition_point(|(k, ..)| *k < key);
                let expected: Vec<(Trailer, Vec<u8>)> = entries[first..]
                    .iter()
                    .take_while(|(k, ..)| *k == key)
                    .filter(|(_, trailer, _)| trailer.sequence() <= snapshot)
                    .map(|(_, trailer, value)| (*trailer, value.clone()))
                    .collect();
                assert!(get_all(file, &key, snapshot).unwrap() == expected, "{name}: {key:?} at {snapshot}");
            }
        }
    });
}

#[test]
fn a_get_stops_when_told_to() {
    let entries: Vec<Entry> = (0..100).rev().map(|s| put(b"key", s, &[0; 100])).collect();
    let (bytes, _) = write(&entries, &[], writer_options());
    let file = open(bytes).unwrap();
    let (mut seen, mut counters) = (0, ReadCounters::default());
    file.get(b"key", 50, &mut GetScratch::default(), &mut counters, &mut |trailer, _: &[u8]| {
        seen += 1;
        assert_eq!(trailer.sequence(), 51 - seen);
        if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    assert_eq!(seen, 3);
    assert_eq!((counters.blocks_read, counters.blocks_skipped_by_snapshot), (1, 1));
}

/// Seeks to every probe and then wanders; compares with an index into the vector.
fn wander<C: Cursor>(name: &str, cursor: &mut C, entries: &[Entry], random: &mut SmallRng) {
    let mut at;
    for key in probes(entries, random) {
        let sequence = entries[random.random_range(0..entries.len())].1.sequence();
        let exact = entries[random.random_range(0..entries.len())].1;
        let trailer = [Trailer::NEWEST, Trailer::OLDEST, Trailer::seek_at(sequence), exact][random.random_range(0..4)];
        let first_at = entries.partition_point(|(k, t, _)| compare_entries(k, *t, &key, trailer).is_lt());
        match random.random_range(0..10) {
            0 => {
                cursor.seek_to_first().unwrap();
                at = Some(0);
            }
            1 => {
                cursor.seek_to_last().unwrap();
                at = Some(entries.len() - 1);
            }
            2..=5 => {
                cursor.seek(&key, trailer).unwrap();
                at = Some(first_at).filter(|&i| i < entries.len());
            }
            _ => {
                cursor.seek_before(&key, trailer).unwrap();
                at = first_at.checked_sub(1);
            }
        }
        for _ in 0..random.random_range(0..30) {
            assert!(current(cursor) == at.map(|i| entries[i].clone()), "{name}: at {at:?}");
            let Some(i) = at else { break };
            if random.random() {
                cursor.next().unwrap();
                at = Some(i + 1).filter(|&i| i < entries.len());
                let same = at.is_some_and(|next| entries[next].0 == entries[i].0);
                assert!(!cursor.valid() || cursor.same_key_as_previous() == same, "{name}");
            } else {
                cursor.prev().unwrap();
                at = i.checked_sub(1);
                assert!(!cursor.same_key_as_previous());
            }
        }
        assert!(current(cursor) == at.map(|i| entries[i].clone()), "{name}: at {at:?}");
    }
}

#[test]
fn cursors_move_like_an_index_into_the_vector() {
    for_each_file(|name, entries, file| {
        let mut random = SmallRng::seed_from_u64(SEED);
        for _ in 0..3 {
            let mut cursor = file.cursor(cursor_options(&mut random));
            wander(name, &mut cursor, entries, &mut random);
        }
    });
}

/// The answers visible at `snapshot` by forward scan, backward scan and seeks.
fn visible(
    cursor: &mut SstCursor,
    snapshot: SequenceNumber,
    probes: &[Vec<u8>],
) -> (Vec<Entry>, Vec<Entry>, Vec<Option<Entry>>) {
    let at_snapshot = |found: Vec<Entry>| found.into_iter().filter(|e| e.1.sequence() <= snapshot).collect();
    let forward = at_snapshot(scan(cursor).unwrap());
    let backward = at_snapshot(scan_backward(cursor).unwrap());
    let mut sought = Vec::new();
    for key in probes {
        cursor.seek(key, Trailer::seek_at(snapshot)).unwrap();
        while cursor.valid() && cursor.trailer().sequence() > snapshot {
            cursor.next().unwrap();
        }
        sought.push(current(cursor));
        cursor.seek_before(key, Trailer::seek_at(snapshot)).unwrap();
        while cursor.valid() && cursor.trailer().sequence() > snapshot {
            cursor.prev().unwrap();
        }
        sought.push(current(cursor));
    }
    (forward, backward, sought)
}

#[test]
fn the_snapshot_filter_changes_no_visible_answer() {
    for_each_file(|name, entries, file| {
        let mut random = SmallRng::seed_from_u64(SEED);
        let probes = probes(entries, &mut random);
        for snapshot in snapshots(entries, &mut random) {
            let options = CursorOptions { snapshot, ..cursor_options(&mut random) };
            let mut filtered = file.cursor(options);
            let with = visible(&mut filtered, snapshot, &probes);
            let without = visible(&mut file.cursor(CursorOptions::default()), snapshot, &probes);
            assert!(with == without, "{name}: at {snapshot}");
            let model: Vec<Entry> = entries.iter().filter(|e| e.1.sequence() <= snapshot).cloned().collect();
            assert!(with.0 == model && with.1 == model, "{name}: at {snapshot}");
        }
    });
}

#[test]
fn the_snapshot_filter_skips_blocks_unread() {
    let entries: Vec<Entry> = (0..1000_u64).map(|i| put(&i.to_be_bytes(), i, &[0; 100])).collect();
    let (bytes, _) = write(&entries, &[], writer_options());
    let file = open(bytes).unwrap();
    let mut cursor = file.cursor(CursorOptions { snapshot: 99, ..CursorOptions::default() });
    scan(&mut cursor).unwrap();
    let mut counters = ReadCounters::default();
    cursor.add_counters(&mut counters);
    assert!(counters.blocks_read <= 4, "{counters:?}");
    assert_eq!(counters.blocks_read + counters.blocks_skipped_by_snapshot, file.block_count() as u64);
}

#[test]
fn a_level_is_one_sorted_sequence() {
    for (name, entries) in data_sets(SEED) {
        let mut random = SmallRng::seed_from_u64(SEED);
        for pieces in [1, 3, 9] {
            let mut files = Vec::new();
            let mut rest = &entries[..];
            for piece in (1..=pieces).rev() {
                let mut cut = rest.len() / piece;
                while 0 < cut && cut < rest.len() && rest[cut].0 == rest[cut - 1].0 {
                    cut += 1;
                }
                let (head, tail) = rest.split_at(cut);
                rest = tail;
                if !head.is_empty() {
                    let options = SstWriterOptions { block_size: 300, ..writer_options() };
                    files.push(open(write(head, &[], options).0).unwrap());
                }
            }
            let mut cursor = LevelCursor::new(files.clone(), cursor_options(&mut random));
            assert!(scan(&mut cursor).unwrap() == entries && scan_backward(&mut cursor).unwrap() == entries, "{name}");
            wander(name, &mut cursor, &entries, &mut random);
            for snapshot in snapshots(&entries, &mut random) {
                let mut cursor =
                    LevelCursor::new(files.clone(), CursorOptions { snapshot, ..CursorOptions::default() });
                let model: Vec<Entry> = entries.iter().filter(|e| e.1.sequence() <= snapshot).cloned().collect();
                for found in [scan(&mut cursor).unwrap(), scan_backward(&mut cursor).unwrap()] {
                    let found: Vec<Entry> = found.into_iter().filter(|e| e.1.sequence() <= snapshot).collect();
                    assert!(found == model, "{name}: at {snapshot}");
                }
            }
        }
    }
}

fn range(start: &str, end: &str, sequence: u64) -> RangeDelete {
    RangeDelete { start: start.into(), end: end.into(), sequence }
}

#[test]
fn range_deletes_extend_the_fences() {
    let deletes = [range("m", "p", 7), range("b", "d", 90), range("m", "p", 7), range("z", "z", 1000)];
    for (entries, smallest, largest, exclusive, sequences) in [
        (vec![], "b", "p", true, (7, 90)),
        (vec![put(b"a", 3, b""), put(b"q", 50, b"")], "a", "q", false, (3, 90)),
        (vec![put(b"c", 95, b""), put(b"p", 50, b"")], "b", "p", false, (7, 95)),
        (vec![put(b"c", 8, b""), put(b"o", 50, b"")], "b", "p", true, (7, 90)),
    ] {
        let (bytes, summary) = write(&entries, &deletes, writer_options());
        assert_eq!((&summary.smallest[..], &summary.largest[..]), (smallest.as_bytes(), largest.as_bytes()));
        assert_eq!(summary.largest_exclusive, exclusive);
        assert_eq!((summary.min_sequence, summary.max_sequence), sequences);
        assert_eq!(summary.range_delete_count, 2);
        let file = open(bytes).unwrap();
        assert_eq!(**file.range_deletes(), RangeDeleteSet::new(&deletes));
        assert_eq!(file.properties().largest_exclusive, exclusive);
        assert_eq!(scan(&mut file.cursor(CursorOptions::default())).unwrap(), entries);
        assert_eq!(scan_backward(&mut file.cursor(CursorOptions::default())).unwrap(), entries);
        assert!(get_all(&file, b"nothing", MAX_SEQUENCE_NUMBER).unwrap().is_empty());
        file.verify(|_| {}).unwrap();
        let mut level = LevelCursor::new([file.clone()], CursorOptions::default());
        assert_eq!(scan(&mut level).unwrap(), entries);
    }
}

#[test]
fn an_override_gives_every_entry_its_sequence_number() {
    let entries: Vec<Entry> = (0..500_u32).map(|i| put(&i.to_be_bytes(), 0, b"row")).collect();
    let (bytes, _) = write(&entries, &[range("a", "b", 0)], writer_options());
    let options = OpenOptions { sequence_override: Some(77), ..OpenOptions::default() };
    let file = open_with(bytes, 1 << 20, options.clone()).unwrap();
    assert_eq!((file.min_sequence(), file.max_sequence()), (77, 77));
    let expected: Vec<Entry> = (0..500_u32).map(|i| put(&i.to_be_bytes(), 77, b"row")).collect();
    assert_eq!(scan(&mut file.cursor(CursorOptions::default())).unwrap(), expected);
    assert!(scan(&mut file.cursor(CursorOptions { snapshot: 76, ..CursorOptions::default() })).unwrap().is_empty());
    let key = 9_u32.to_be_bytes();
    assert!(get_all(&file, &key, 76).unwrap().is_empty());
    assert_eq!(get_all(&file, &key, 77).unwrap(), [(Trailer::new(77, Operation::Put), b"row".to_vec())]);
    assert_eq!(file.range_deletes().covering(b"a", 77), Some(77));
    assert_eq!(file.range_deletes().covering(b"a", 76), None);
    file.verify(|_| {}).unwrap();

    let (bytes, _) = write(&[put(b"k", 1, b"")], &[], writer_options());
    assert_eq!(open_with(bytes, 1 << 20, options).unwrap_err().kind(), ErrorKind::Corruption);
}

#[test]
fn the_writer_refuses_what_it_cannot_keep() {
    let new = || SstWriter::new(Box::new(MemoryFile::default()), writer_options()).unwrap();
    let trailer = |sequence| Trailer::new(sequence, Operation::Put);
    assert_eq!(new().finish().unwrap_err().kind(), ErrorKind::InvalidArgument);
    for (key, sequence) in [("b", 5), ("b", 6), ("a", 9), ("", 9)] {
        let mut writer = new();
        writer.add(b"b", trailer(5), b"").unwrap();
        let error = writer.add(key.as_bytes(), trailer(sequence), b"").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        writer.add(b"b", trailer(4), b"").unwrap();
        writer.add(b"b\0", trailer(9), b"").unwrap();
        assert_eq!(writer.finish().unwrap().entry_count, 3);
    }
    assert!(new().add(&[0; 65_536], trailer(1), b"").is_err());
    assert!(new().add(b"k", Trailer::NEWEST, b"").is_err());
    assert!(new().add(b"k", Trailer::new(1, Operation::RangeDelete), b"").is_err());
    assert!(new().add_range_delete(&range("a", &"b".repeat(70_000), 1)).is_err());
    for options in [
        SstWriterOptions { block_size: 0, ..writer_options() },
        SstWriterOptions { restart_interval: 0, ..writer_options() },
        SstWriterOptions { compression: Compression::Zstd(99), ..writer_options() },
    ] {
        assert!(SstWriter::new(Box::new(MemoryFile::default()), options).is_err());
    }
}

#[test]
fn the_estimate_is_near_the_size() {
    let mut writer = SstWriter::new(Box::new(MemoryFile::default()), writer_options()).unwrap();
    for i in 0..20_000_u64 {
        writer.add(&i.to_be_bytes(), Trailer::new(i, Operation::Put), &[1; 100]).unwrap();
    }
    let estimate = writer.estimated_size();
    let size = writer.finish().unwrap().size;
    assert!(estimate.abs_diff(size) < size / 100, "{estimate} for {size}");
}

#[test]
fn memory_of_index_and_filter_is_reserved_or_cached() {
    let entries: Vec<Entry> = (0..2000_u64).map(|i| put(&i.to_be_bytes(), i, &[0; 50])).collect();
    let (bytes, summary) = write(&entries, &[], writer_options());
    let resident = open_with(bytes.clone(), 8 << 20, OpenOptions::default()).unwrap();
    assert_eq!(resident.resident_bytes(), summary.index_bytes + summary.filter_bytes);
    // Just what they need: but an eighth of a cache is left to blocks.
    let evictable = open_with(bytes, resident.resident_bytes(), OpenOptions::default()).unwrap();
    assert_eq!(evictable.resident_bytes(), 0);
    for file in [&resident, &evictable] {
        assert_eq!(scan(&mut file.cursor(CursorOptions::default())).unwrap(), entries);
        assert!(entries.iter().all(|entry| file.may_contain(hash_key(&entry.0))));
    }
}
