//! A log that is replayed in parts while it is being written.

#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;

use common::{DIRECTORY, create, new_disk, path, read_file, write_file};
use mycelium_base::{ErrorKind, FileNumber, Result};
use mycelium_vfs::{Disk, MemoryDisk};
use mycelium_wal::{RecoveryMode, SegmentPosition, replay_from};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

/// The records behind `position` in those of the segments that are not read yet; it moves behind them.
fn go_on(disk: &dyn Disk, segments: &[FileNumber], position: &mut Option<SegmentPosition>) -> Result<Vec<Vec<u8>>> {
    let first = position.map_or(0, |position| position.number());
    let rest: Vec<FileNumber> = segments.iter().copied().filter(|number| *number >= first).collect();
    let mut found = Vec::new();
    let source = (rest.as_slice(), position.as_ref());
    let report =
        replay_from(disk, Path::new(DIRECTORY), source, RecoveryMode::default(), &mut |_, _, payload: &[u8]| {
            found.push(payload.to_vec());
            Ok(())
        })?;
    assert_eq!(report.records, found.len() as u64);
    *position = report.position;
    Ok(found)
}

/// A segment with the records `first`, which is synced, and `second`; its bytes, and the position between the two.
fn with_two_records(disk: &MemoryDisk) -> (Vec<u8>, Option<SegmentPosition>) {
    let mut writer = create(disk, 1, None);
    writer.append(&[b"first"]).unwrap();
    writer.sync().unwrap();
    let mut position = None;
    assert_eq!(go_on(disk, &[1], &mut position).unwrap(), [b"first"]);
    writer.append(&[b"second"]).unwrap();
    writer.flush().unwrap();
    (read_file(disk, &path(1)), position)
}

#[test]
fn parts_of_a_growing_log_add_up_to_it() {
    for seed in 0..20 {
        let (disk, mut rng) = (new_disk(), SmallRng::seed_from_u64(seed));
        let (mut writer, mut segments) = (create(&disk, 1, None), vec![1]);
        let (mut written, mut handed_over) = (Vec::new(), 0);
        let (mut seen, mut position) = (Vec::new(), None);
        for _ in 0..300 {
            match rng.random_range(0..9) {
                0..=3 => {
                    let mut payload = vec![0; 1 << rng.random_range(0..14)];
                    rng.fill_bytes(&mut payload);
                    writer.append(&[&payload]).unwrap();
                    written.push(payload);
                }
                4 => {
                    writer.flush().unwrap();
                    handed_over = written.len();
                }
                5 => {
                    writer.sync().unwrap();
                    handed_over = written.len();
                }
                6 => {
                    writer.flush().unwrap();
                    handed_over = written.len();
                    let number = segments.len() as u64 + 1;
                    let next = create(&disk, number, Some((number - 1, writer.len())));
                    drop(std::mem::replace(&mut writer, next).seal(number));
                    segments.push(number);
                }
                _ => {
                    seen.extend(go_on(&disk, &segments, &mut position).unwrap());
                    assert!(seen.len() >= handed_over, "seed {seed}: {} of {handed_over}", seen.len());
                    assert!(written.starts_with(&seen), "seed {seed}");
                }
            }
        }
    }
}

#[test]
fn a_record_that_is_half_written_is_read_when_it_is_whole() {
    let disk = new_disk();
    let (bytes, position) = with_two_records(&disk);
    let between = position.unwrap().offset() as usize;
    for end in between..bytes.len() {
        let mut position = position;
        write_file(&disk, &path(1), &bytes[..end]);
        assert!(go_on(&disk, &[1], &mut position).unwrap().is_empty(), "{end} bytes");
        write_file(&disk, &path(1), &bytes);
        assert_eq!(go_on(&disk, &[1], &mut position).unwrap(), [b"second"], "{end} bytes");
    }
}

#[test]
fn damage_before_what_was_synced_is_no_tail_that_is_still_being_written() {
    let disk = new_disk();
    let (bytes, position) = with_two_records(&disk);
    let mut writer = create(&disk, 1, None);
    for record in [&b"first"[..], b"second", b"third"] {
        writer.append(&[record]).unwrap();
        writer.sync().unwrap();
    }
    disk.flip_bit(&path(1), (bytes.len() as u64 - 1) * 8).unwrap();
    let mut again = position;
    let error = go_on(&disk, &[1], &mut again).unwrap_err();
    assert!(error.is_corruption(), "{error}");
    assert_eq!(error.offset(), position.map(|position| position.offset()));
}

/// The place was behind a record that its writer took back, and in the middle of another.
#[test]
fn what_a_writer_took_back_is_not_gone_on_from() {
    let disk = new_disk();
    let mut writer = create(&disk, 1, None);
    writer.append(&[b"first"]).unwrap();
    let before = writer.len();
    writer.append(&[b"taken back"]).unwrap();
    writer.flush().unwrap();
    let mut position = None;
    assert_eq!(go_on(&disk, &[1], &mut position).unwrap().len(), 2);
    writer.cut_back(before).unwrap();
    for instead in [&b""[..], b"other text", b"more"] {
        if !instead.is_empty() {
            writer.append(&[instead]).unwrap();
            writer.flush().unwrap();
        }
        let error = go_on(&disk, &[1], &mut position).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{instead:?}: {error}");
    }
    let anew = go_on(&disk, &[1], &mut None).unwrap();
    assert_eq!(anew, [&b"first"[..], b"other text", b"more"]);
}

#[test]
fn a_segment_that_was_given_up_is_not_gone_on_from() {
    let disk = new_disk();
    let mut first = create(&disk, 1, None);
    first.append(&[b"first"]).unwrap();
    first.sync().unwrap();
    let mut second = create(&disk, 2, Some((1, first.len())));
    second.append(&[b"given up"]).unwrap();
    second.flush().unwrap();
    let mut position = None;
    assert_eq!(go_on(&disk, &[1, 2], &mut position).unwrap().len(), 2);
    let mut third = create(&disk, 3, Some((1, first.len())));
    third.append(&[b"third"]).unwrap();
    third.flush().unwrap();
    assert_eq!(go_on(&disk, &[1, 2, 3], &mut position).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(go_on(&disk, &[1, 2, 3], &mut None).unwrap(), [&b"first"[..], b"third"]);
}
