//! Recovery of chains of segments: continuity, the three modes, lost acknowledged data, crashes at random.

#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;

use common::{DIRECTORY, create, new_disk, path, payloads, replay_all};
use mycelium_base::FileKind;
use mycelium_vfs::{CrashDraw, Disk, MemoryDisk};
use mycelium_wal::{HEADER_LEN, RecoveryMode, SealedSegment, SegmentReader, SegmentWriter};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const MODES: [RecoveryMode; 3] = [RecoveryMode::Strict, RecoveryMode::TolerateTornTail, RecoveryMode::PointInTime];

/// Segments 1, 2, 3 with the records "1a", "1b", "2a", … `synced`: each record is synced.
fn three_segments(synced: bool) -> MemoryDisk {
    let disk = new_disk();
    let mut previous = None;
    for number in 1..=3 {
        let mut writer = create(&disk, number, previous);
        for letter in ["a", "b"] {
            writer.append(&[number.to_string().as_bytes(), letter.as_bytes()]).unwrap();
            if synced {
                writer.sync().unwrap();
            }
        }
        writer.flush().unwrap();
        previous = Some((number, writer.len()));
    }
    disk
}

const LEN: usize = HEADER_LEN + 2 * (12 + 2);

/// The same, each but the last sealed as the next one was begun.
fn sealed_segments() -> MemoryDisk {
    let disk = new_disk();
    let mut last: Option<SegmentWriter> = None;
    for number in 1..=3 {
        let previous = last.as_ref().map(|writer| (writer.number(), writer.len()));
        let mut writer = create(&disk, number, previous);
        if let Some(full) = last.take() {
            assert_eq!(full.seal(number).number(), number - 1);
        }
        for letter in ["a", "b"] {
            writer.append(&[number.to_string().as_bytes(), letter.as_bytes()]).unwrap();
        }
        writer.flush().unwrap();
        last = Some(writer);
    }
    disk
}

/// Bytes of the mark behind a sealed segment.
const MARK_LEN: usize = 20;

/// Replays in all modes: `expected` is what must be applied, `lost` whether the tolerant mode must see lost data.
fn check(disk: &MemoryDisk, segments: &[u64], expected: &[&str], torn: Option<(u64, u64)>, lost: bool) {
    for mode in MODES {
        let (applied, report) = replay_all(disk, segments, mode);
        let applied: Vec<String> = payloads(&applied).into_iter().map(|p| String::from_utf8(p).unwrap()).collect();
        assert_eq!(applied, expected, "{mode:?}");
        let fails = match mode {
            RecoveryMode::Strict => torn.is_some(),
            RecoveryMode::TolerateTornTail => lost,
            RecoveryMode::PointInTime => false,
        };
        match report {
            Err(error) => {
                assert!(fails && error.is_corruption(), "{mode:?}: {error}");
                let (number, offset) = torn.unwrap();
                assert_eq!((error.file(), error.offset()), (Some(path(number).as_path()), Some(offset)), "{error}");
            }
            Ok(report) => {
                assert!(!fails, "{mode:?}: {report:?}");
                assert_eq!(report.torn.map(|(file, at, _)| (file, at)), torn.map(|(n, at)| (path(n), at)));
                let dropped: Vec<u64> =
                    segments.iter().copied().filter(|&n| torn.is_some_and(|(torn, _)| n > torn)).collect();
                assert_eq!(report.dropped_segments, dropped);
            }
        }
    }
}

#[test]
fn a_whole_chain_and_one_whose_oldest_are_gone() {
    let disk = three_segments(false);
    check(&disk, &[1, 2, 3], &["1a", "1b", "2a", "2b", "3a", "3b"], None, false);
    check(&disk, &[2, 3], &["2a", "2b", "3a", "3b"], None, false);
    check(&disk, &[3], &["3a", "3b"], None, false);
}

/// It passed for a torn tail where no record of the segment behind it told that anything had been synced.
#[test]
fn a_missing_segment_is_lost_and_no_torn_tail() {
    for synced in [false, true] {
        check(&three_segments(synced), &[1, 3], &["1a", "1b"], Some((3, 0)), true);
    }
}

/// Nothing named it: what came before was recovered as if it had been all.
#[test]
fn the_newest_segment_is_missed_where_the_one_before_it_was_sealed() {
    let disk = sealed_segments();
    check(&disk, &[1, 2, 3], &["1a", "1b", "2a", "2b", "3a", "3b"], None, false);
    check(&disk, &[1, 2], &["1a", "1b", "2a", "2b"], Some((3, 0)), true);
    check(&disk, &[1], &["1a", "1b"], Some((2, 0)), true);
    // The mark is no record: what continues the log continues it before the mark.
    let end = replay_all(&disk, &[1, 2], RecoveryMode::PointInTime).1.unwrap().end;
    assert_eq!(end, Some((2, LEN as u64)));
    let mut reader = SegmentReader::open(&disk, &path(2), Some(2)).unwrap();
    while reader.next().unwrap().is_some() {}
    assert_eq!((reader.position(), reader.tear(), reader.continued_by()), (LEN as u64, None, Some(3)));
}

/// What a power loss leaves of a segment that was just begun, and of the mark that names it.
#[test]
fn a_segment_that_was_begun_and_a_mark_may_tear() {
    let disk = sealed_segments();
    disk.set_len(&path(3), 20).unwrap();
    check(&disk, &[1, 2, 3], &["1a", "1b", "2a", "2b"], Some((3, 0)), false);
    let disk = sealed_segments();
    for bit in 0..MARK_LEN as u64 * 8 {
        let bit = LEN as u64 * 8 + bit;
        disk.flip_bit(&path(2), bit).unwrap();
        check(&disk, &[1, 2, 3], &["1a", "1b", "2a", "2b", "3a", "3b"], None, false);
        check(&disk, &[1, 2], &["1a", "1b", "2a", "2b"], Some((2, LEN as u64)), false);
        disk.flip_bit(&path(2), bit).unwrap();
    }
    for len in (LEN + 1..LEN + MARK_LEN).rev() {
        disk.set_len(&path(2), len).unwrap();
        check(&disk, &[1, 2, 3], &["1a", "1b", "2a", "2b", "3a", "3b"], None, false);
        check(&disk, &[1, 2], &["1a", "1b", "2a", "2b"], Some((2, LEN as u64)), false);
    }
}

#[test]
fn a_shortened_segment_ends_the_log() {
    for synced in [false, true] {
        // Cut in a record, cut between records, and without any.
        for (len, good) in [(LEN - 1, 1), (LEN - 14, 1), (HEADER_LEN + 1, 0), (HEADER_LEN, 0)] {
            let disk = three_segments(synced);
            disk.set_len(&path(2), len).unwrap();
            let expected = &["1a", "1b", "2a"][..2 + good];
            check(&disk, &[1, 2, 3], expected, Some((2, (HEADER_LEN + 14 * good) as u64)), synced);
        }
        let disk = three_segments(synced);
        disk.set_len(&path(2), 20).unwrap();
        check(&disk, &[1, 2, 3], &["1a", "1b"], Some((2, 0)), synced);
    }
}

#[test]
fn damage_in_the_last_record_is_a_torn_tail_and_before_it_lost_data() {
    for synced in [false, true] {
        let disk = three_segments(synced);
        disk.flip_bit(&path(3), (LEN as u64 - 1) * 8).unwrap();
        check(&disk, &[1, 2, 3], &["1a", "1b", "2a", "2b", "3a"], Some((3, HEADER_LEN as u64 + 14)), false);
        let disk = three_segments(synced);
        disk.flip_bit(&path(3), (HEADER_LEN as u64 + 13) * 8).unwrap();
        check(&disk, &[1, 2, 3], &["1a", "1b", "2a", "2b"], Some((3, HEADER_LEN as u64)), synced);
        // In the last record of an older segment: only a later segment can testify.
        let disk = three_segments(synced);
        disk.flip_bit(&path(1), (LEN as u64 - 1) * 8).unwrap();
        check(&disk, &[1, 2, 3], &["1a"], Some((1, HEADER_LEN as u64 + 14)), synced);
    }
}

#[test]
fn an_unsynced_tail_after_a_sync_may_tear() {
    let disk = new_disk();
    let mut writer = create(&disk, 1, None);
    writer.append(&[b"1a"]).unwrap();
    writer.sync().unwrap();
    for record in [b"1b", b"1c", b"1d"] {
        writer.append(&[record]).unwrap();
    }
    writer.flush().unwrap();
    // 1b was never synced, and 1c and 1d do not claim it was.
    disk.flip_bit(&path(1), (HEADER_LEN as u64 + 14 + 12) * 8).unwrap();
    check(&disk, &[1], &["1a"], Some((1, HEADER_LEN as u64 + 14)), false);
    // 1a was, and both say so.
    disk.flip_bit(&path(1), (HEADER_LEN as u64 + 12) * 8).unwrap();
    check(&disk, &[1], &[], Some((1, HEADER_LEN as u64)), true);
}

#[test]
fn bytes_beyond_the_length_that_the_successor_names_do_not_count() {
    let disk = new_disk();
    let mut first = create(&disk, 1, None);
    first.append(&[b"1a"]).unwrap();
    let len = first.len();
    first.append(&[b"failed"]).unwrap();
    first.sync().unwrap();
    let mut second = create(&disk, 2, Some((1, len)));
    second.append(&[b"2a"]).unwrap();
    second.sync().unwrap();
    check(&disk, &[1, 2], &["1a", "2a"], None, false);
}

#[test]
fn a_segment_given_up_by_an_earlier_recovery_is_skipped() {
    let disk = three_segments(false);
    disk.set_len(&path(2), LEN - 1).unwrap();
    let (_, report) = replay_all(&disk, &[1, 2, 3], RecoveryMode::TolerateTornTail);
    let report = report.unwrap();
    assert_eq!((report.dropped_segments, report.end), (vec![3], Some((2, HEADER_LEN as u64 + 14))));
    let mut writer = create(&disk, 4, report.end);
    writer.append(&[b"4a"]).unwrap();
    writer.sync().unwrap();
    writer.append(&[b"4b"]).unwrap();
    writer.sync().unwrap();
    // Segment 3 was not removed before the next crash.
    for mode in MODES {
        let (applied, report) = replay_all(&disk, &[1, 2, 3, 4], mode);
        assert_eq!(payloads(&applied), [b"1a", b"1b", b"2a", b"4a", b"4b"]);
        let report = report.unwrap();
        assert_eq!((report.torn, report.superseded_segments), (None, vec![3]));
    }
}

#[test]
fn a_segment_without_predecessor_after_others_is_a_tear() {
    let disk = three_segments(true);
    let mut writer = create(&disk, 4, None);
    writer.append(&[b"4a"]).unwrap();
    writer.sync().unwrap();
    writer.append(&[b"4b"]).unwrap();
    writer.sync().unwrap();
    check(&disk, &[1, 2, 3, 4], &["1a", "1b", "2a", "2b", "3a", "3b"], Some((4, 0)), true);
}

/// Appends, flushes, syncs and starts segments at random; loses power; recovers; goes on. What was synced is always
/// recovered, what is recovered is a prefix of what was appended, and no crash is mistaken for lost data.
#[test]
fn crashes_at_random_lose_nothing_synced() {
    let (mut crashes, mut torn, mut dropped, mut superseded, mut recovered_records) = (0, 0, 0, 0, 0);
    for seed in 0..400 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut disk = new_disk();
        let mut model = Model::default();
        let (mut end, mut given_up) = (None, Vec::new());
        for _life in 0..rng.random_range(1..5) {
            disk.power_off_after(Some(rng.random_range(1..60)));
            live(&disk, &mut rng, &mut model, end, std::mem::take(&mut given_up));
            disk = disk.crash_image(&CrashDraw::from_seed(rng.random()));
            crashes += 1;
            let names = disk.list(Path::new(DIRECTORY)).unwrap();
            let segments: Vec<u64> = names.iter().map(|name| FileKind::parse(name).unwrap().1).collect();
            let (applied, report) = replay_all(&disk, &segments, RecoveryMode::TolerateTornTail);
            let report = report.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            let recovered = payloads(&applied);
            assert!(recovered.len() >= model.synced, "seed {seed}: lost synced records: {report:?}");
            assert_eq!(recovered, model.appended[..recovered.len()], "seed {seed}");
            torn += usize::from(report.torn.is_some());
            dropped += report.dropped_segments.len();
            superseded += report.superseded_segments.len();
            recovered_records += recovered.len();
            // After a power loss whatever is readable is durable.
            model.appended = recovered;
            model.synced = model.appended.len();
            model.next_number = segments.last().map_or(1, |last| last + 1);
            end = report.end;
            if end.is_none() {
                // Nothing of the log was ever durable: such an engine removes the files and starts anew.
                for &number in &segments {
                    disk.remove(&path(number)).unwrap();
                }
            } else if rng.random() {
                given_up = report.dropped_segments;
            }
            disk.sync_directory(Path::new(DIRECTORY)).unwrap();
        }
    }
    println!(
        "{crashes} crashes: {torn} torn logs, {dropped} segments dropped, {superseded} superseded, \
         {recovered_records} records recovered"
    );
    assert!(torn > 100 && dropped > 20 && superseded > 0 && recovered_records > 1_000);
}

#[derive(Default)]
struct Model {
    appended: Vec<Vec<u8>>,
    synced: usize,
    next_number: u64,
}

/// One life of a process, until the disk is off or 60 steps are done. Segments that the recovery before it gave up are
/// removed when what continues the log is durable.
fn live(
    disk: &MemoryDisk,
    rng: &mut SmallRng,
    model: &mut Model,
    mut previous: Option<(u64, u64)>,
    mut given_up: Vec<u64>,
) {
    let mut sealed: Vec<SealedSegment> = Vec::new();
    let mut open: Option<SegmentWriter> = None;
    for _ in 0..60 {
        if open.is_none() || rng.random_ratio(1, 12) {
            if let Some(current) = &mut open {
                if current.flush().is_err() {
                    return;
                }
                previous = Some((current.number(), current.len()));
            }
            model.next_number = model.next_number.max(1);
            let header = mycelium_wal::SegmentHeader { number: model.next_number, previous };
            let Ok(writer) = SegmentWriter::create(disk, &path(model.next_number), header) else { return };
            sealed.extend(open.replace(writer).map(|full| full.seal(model.next_number)));
            model.next_number += 1;
        }
        let Some(current) = &mut open else { return };
        match rng.random_range(0..10) {
            0 => {
                if current.flush().is_err() {
                    return;
                }
            }
            1 => {
                // All segments, oldest first.
                if sealed.iter_mut().any(|segment| segment.sync().is_err()) || current.sync().is_err() {
                    return;
                }
                model.synced = model.appended.len();
                if given_up.drain(..).any(|number| disk.remove(&path(number)).is_err()) {
                    return;
                }
            }
            _ => {
                let len = *[10, 100, 5_000, 70_000].get(rng.random_range(0..4)).unwrap();
                let mut payload = vec![rng.random(); len];
                payload[..8].copy_from_slice(&rng.random::<u64>().to_le_bytes());
                // A record whose append failed may be on disk all the same.
                model.appended.push(payload.clone());
                if current.append(&[&payload]).is_err() {
                    return;
                }
            }
        }
    }
}
