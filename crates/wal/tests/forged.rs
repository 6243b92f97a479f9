//! Damaged and forged segments: reading stops at the last good record and no length is believed before it is verified.

#![allow(clippy::unwrap_used)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;

use common::{create, new_disk, path, payloads, read_file, replay_all, write_file};
use mycelium_vfs::{Disk, MemoryDisk};
use mycelium_wal::{HEADER_LEN, RECORD_HEADER_LEN, RecoveryMode, SegmentReader};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

/// Remembers the largest allocation that this thread asked for.
struct Watching;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

fn note(size: usize) {
    LARGEST.with(|largest| largest.set(largest.get().max(size)));
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note(new_size);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(old, layout, new_size) }
    }
    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(old, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

const NUMBER: u64 = 7;

/// An intact segment: its bytes, payloads, and where each record starts (and the last ends).
struct Segment {
    bytes: Vec<u8>,
    payloads: Vec<Vec<u8>>,
    borders: Vec<usize>,
}

fn segment(number: u64, sync_every_record: bool) -> Segment {
    let disk = new_disk();
    let mut writer = create(&disk, number, None);
    let mut rng = SmallRng::seed_from_u64(3);
    let mut payloads = Vec::new();
    let mut borders = vec![HEADER_LEN];
    for len in [1, 5, 100, 13, 300, 64, 2, 90, 150, 40] {
        let mut payload = vec![0; len];
        rng.fill_bytes(&mut payload);
        writer.append(&[&payload[..len / 2], &payload[len / 2..]]).unwrap();
        if sync_every_record {
            writer.sync().unwrap();
        }
        borders.push(writer.len() as usize);
        payloads.push(payload);
    }
    writer.flush().unwrap();
    Segment { bytes: read_file(&disk, &path(number)), payloads, borders }
}

/// A record framed by hand, with a checksum that verifies.
fn frame(number: u64, offset: usize, length: u32, unsynced: u32, payload: &[u8]) -> Vec<u8> {
    let mut covered = Vec::new();
    covered.extend_from_slice(&number.to_le_bytes());
    covered.extend_from_slice(&(offset as u64).to_le_bytes());
    covered.extend_from_slice(&length.to_le_bytes());
    covered.extend_from_slice(&unsynced.to_le_bytes());
    covered.extend_from_slice(payload);
    let mut out = crc32c::crc32c(&covered).to_le_bytes().to_vec();
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&unsynced.to_le_bytes());
    out.extend_from_slice(payload);
    out
}

/// Checks damaged segments and counts them by kind.
struct Checker {
    disk: MemoryDisk,
    counts: BTreeMap<&'static str, usize>,
}

impl Checker {
    /// `good`: records that must survive. `proof`: whether a later record testifies that the damaged ones were synced.
    fn check(&mut self, kind: &'static str, original: &Segment, damaged: &[u8], good: usize, proof: bool) {
        *self.counts.entry(kind).or_default() += 1;
        let expected = &original.payloads[..good];
        write_file(&self.disk, &path(NUMBER), damaged);
        LARGEST.set(0);
        let (applied, report) = replay_all(&self.disk, &[NUMBER], RecoveryMode::PointInTime);
        assert_eq!(payloads(&applied), expected, "{kind}: point in time");
        let report = report.unwrap();
        let clean_end = damaged.len() == original.borders[good] || (good == 0 && damaged.len() == HEADER_LEN);
        assert_eq!(report.torn.is_none(), clean_end, "{kind}: {report:?}");
        if let Some((file, offset, reason)) = &report.torn {
            assert_eq!((file, *offset as usize), (&path(NUMBER), original.borders[good]), "{kind}: {reason}");
        }
        assert_eq!(report.end, Some((NUMBER, original.borders[good] as u64)));

        let (applied, strict) = replay_all(&self.disk, &[NUMBER], RecoveryMode::Strict);
        assert_eq!(payloads(&applied), expected, "{kind}: strict");
        assert_eq!(strict.is_ok(), clean_end, "{kind}: strict");

        let (applied, tolerant) = replay_all(&self.disk, &[NUMBER], RecoveryMode::TolerateTornTail);
        assert_eq!(payloads(&applied), expected, "{kind}: tolerant");
        match tolerant {
            Ok(tolerant) => assert!(!proof && tolerant == report, "{kind}: lost data went unnoticed"),
            Err(error) => {
                assert!(proof && error.is_corruption(), "{kind}: {error}");
                assert_eq!(error.offset(), Some(original.borders[good] as u64));
            }
        }
        assert!(LARGEST.get() <= 1 << 20, "{kind}: {} bytes", LARGEST.get());
    }
}

#[test]
fn damage_never_gets_past_the_last_good_record() {
    let mut checker = Checker { disk: new_disk(), counts: BTreeMap::new() };
    for synced in [false, true] {
        let intact = segment(NUMBER, synced);
        let records = intact.payloads.len();
        checker.check("intact", &intact, &intact.bytes, records, false);
        truncations(&mut checker, &intact);
        forged_lengths(&mut checker, &intact, synced);
        flipped_bits(&mut checker, &intact, synced);
        stale_and_moved_records(&mut checker, &intact, synced);
        tails(&mut checker, &intact);
    }
    let total: usize = checker.counts.values().sum();
    println!("{total} damaged segments: {:?}", checker.counts);
    assert!(total >= 2_000);
}

/// The segment ends at every byte of its records.
fn truncations(checker: &mut Checker, intact: &Segment) {
    for len in HEADER_LEN..intact.bytes.len() {
        let good = intact.borders.iter().rposition(|&border| border <= len).unwrap();
        let kind = if len - intact.borders[good] < RECORD_HEADER_LEN { "split header" } else { "truncated" };
        checker.check(kind, intact, &intact.bytes[..len], good, false);
    }
}

fn forged_lengths(checker: &mut Checker, intact: &Segment, synced: bool) {
    let records = intact.payloads.len();
    for record in 0..records {
        let at = intact.borders[record];
        let real = intact.payloads[record].len() as u32;
        let left = (intact.bytes.len() - at - RECORD_HEADER_LEN) as u32;
        let lengths = [
            ("zero length", 0),
            ("short length", real / 2),
            ("short length", real - 1),
            ("long length", real + 1),
            ("long length", left),
            ("long length", left + 1),
            ("huge length", 1 << 20),
            ("huge length", 1 << 30),
            ("huge length", (1 << 30) + 1),
            ("huge length", 1 << 31),
            ("huge length", u32::MAX),
        ];
        for (kind, length) in lengths {
            if length == real {
                continue;
            }
            let mut damaged = intact.bytes.clone();
            damaged[at + 4..at + 8].copy_from_slice(&length.to_le_bytes());
            checker.check(kind, intact, &damaged, record, synced && record + 1 < records);
        }
    }
    let end = intact.bytes.len();
    for length in [0, 1 << 31, u32::MAX] {
        // The checksum verifies for what is there, but such a length is never written.
        let mut damaged = intact.bytes.clone();
        damaged.extend(frame(NUMBER, end, length, 0, b""));
        checker.check("invalid length, checksum right", intact, &damaged, records, false);
    }
}

fn flipped_bits(checker: &mut Checker, intact: &Segment, synced: bool) {
    let mut rng = SmallRng::seed_from_u64(5);
    let records = intact.payloads.len();
    for record in 0..records {
        for at in intact.borders[record]..intact.borders[record + 1] {
            let mut damaged = intact.bytes.clone();
            damaged[at] ^= 1 << rng.random_range(0..8);
            checker.check("bad checksum", intact, &damaged, record, synced && record + 1 < records);
        }
    }
}

fn stale_and_moved_records(checker: &mut Checker, intact: &Segment, synced: bool) {
    let records = intact.payloads.len();
    let other = segment(NUMBER - 1, synced);
    for record in 0..records {
        let (from, to) = (intact.borders[record], intact.borders[record + 1]);
        let proof = synced && record + 1 < records;
        let mut damaged = intact.bytes.clone();
        damaged[from..to].copy_from_slice(&other.bytes[from..to]);
        checker.check("stale segment number", intact, &damaged, record, proof);
        let mut damaged = intact.bytes[..from].to_vec();
        damaged.extend_from_slice(&other.bytes[from..]);
        checker.check("stale tail", intact, &damaged, record, false);

        let mut replayed = intact.bytes.clone();
        replayed.extend_from_slice(&intact.bytes[from..to]);
        checker.check("record replayed at the end", intact, &replayed, records, false);
        let mut removed = intact.bytes[..from].to_vec();
        removed.extend_from_slice(&intact.bytes[to..]);
        checker.check("record cut out", intact, &removed, record, false);
        for second in record + 1..records {
            let mut swapped = intact.bytes[..from].to_vec();
            swapped.extend_from_slice(&intact.bytes[intact.borders[second]..intact.borders[second + 1]]);
            swapped.extend_from_slice(&intact.bytes[from..]);
            checker.check("record moved forward", intact, &swapped, record, false);
        }
    }
}

fn tails(checker: &mut Checker, intact: &Segment) {
    let mut rng = SmallRng::seed_from_u64(9);
    let records = intact.payloads.len();
    for len in (1..64).chain([4096, 70_000]) {
        let mut damaged = intact.bytes.clone();
        damaged.resize(intact.bytes.len() + len, 0);
        checker.check("tail of zeroes", intact, &damaged, records, false);
        rng.fill_bytes(&mut damaged[intact.bytes.len()..]);
        checker.check("tail of noise", intact, &damaged, records, false);
    }
}

#[test]
fn a_forged_length_over_a_long_file_allocates_nothing() {
    let disk = new_disk();
    let mut intact = segment(NUMBER, false);
    let at = intact.bytes.len();
    // Eight MiB really follow the forged header, so that its length alone is plausible.
    let mut header = frame(NUMBER, at, 6 << 20, 0, b"");
    header[0] ^= 1;
    intact.bytes.extend_from_slice(&header);
    intact.bytes.resize(at + (8 << 20), 0x20);
    write_file(&disk, &path(NUMBER), &intact.bytes);
    drop(std::mem::take(&mut intact.bytes));
    for mode in [RecoveryMode::PointInTime, RecoveryMode::TolerateTornTail] {
        LARGEST.set(0);
        let (applied, report) = replay_all(&disk, &[NUMBER], mode);
        assert_eq!(payloads(&applied), intact.payloads);
        assert_eq!(report.unwrap().torn.unwrap().1, at as u64);
        assert!(LARGEST.get() <= 1 << 20, "{mode:?}: {}", LARGEST.get());
    }
}

#[test]
fn a_copied_segment_is_refused() {
    let disk = new_disk();
    let intact = segment(NUMBER, true);
    write_file(&disk, &path(NUMBER + 1), &intact.bytes);
    for mode in [RecoveryMode::Strict, RecoveryMode::TolerateTornTail] {
        let (applied, report) = replay_all(&disk, &[NUMBER + 1], mode);
        assert!(applied.is_empty() && report.unwrap_err().is_corruption());
    }
    let (applied, report) = replay_all(&disk, &[NUMBER + 1], RecoveryMode::PointInTime);
    assert!(applied.is_empty());
    assert_eq!(report.unwrap().torn.unwrap().1, 0);
    assert!(SegmentReader::open(&disk, &path(NUMBER + 1), Some(NUMBER + 1)).unwrap_err().is_corruption());
    assert_eq!(SegmentReader::open(&disk, &path(NUMBER + 1), None).unwrap().header().number, NUMBER);

    // The header forged as well: no record verifies under the new number.
    let mut forged = segment(NUMBER + 1, true).bytes;
    forged[HEADER_LEN..].copy_from_slice(&intact.bytes[HEADER_LEN..]);
    write_file(&disk, &path(NUMBER + 1), &forged);
    let (applied, report) = replay_all(&disk, &[NUMBER + 1], RecoveryMode::TolerateTornTail);
    assert!(applied.is_empty());
    assert_eq!(report.unwrap().torn.unwrap().1, HEADER_LEN as u64);
}

#[test]
fn damaged_headers_are_torn_and_random_files_never_panic() {
    let disk = new_disk();
    let intact = segment(NUMBER, false);
    let synced = segment(NUMBER, true);
    for at in 0..HEADER_LEN {
        for (base, lost) in [(&intact, false), (&synced, true)] {
            let mut damaged = base.bytes.clone();
            damaged[at] ^= 0x10;
            write_file(&disk, &path(NUMBER), &damaged);
            let (applied, report) = replay_all(&disk, &[NUMBER], RecoveryMode::TolerateTornTail);
            assert!(applied.is_empty());
            assert_eq!(report.is_err(), lost, "byte {at}: {report:?}");
        }
        disk.set_len(&path(NUMBER), at).unwrap();
        let (_, report) = replay_all(&disk, &[NUMBER], RecoveryMode::TolerateTornTail);
        assert_eq!(report.unwrap().torn.unwrap().1, 0);
    }
    let mut rng = SmallRng::seed_from_u64(11);
    for _ in 0..300 {
        let mut noise = vec![0; rng.random_range(0..3_000)];
        rng.fill_bytes(&mut noise);
        if rng.random() && noise.len() > HEADER_LEN {
            noise[..HEADER_LEN].copy_from_slice(&intact.bytes[..HEADER_LEN]);
        }
        write_file(&disk, &path(NUMBER), &noise);
        let (applied, _) = replay_all(&disk, &[NUMBER], RecoveryMode::TolerateTornTail);
        assert!(applied.is_empty());
    }
    assert!(disk.exists(&path(NUMBER)).unwrap());
}
