//! Writing and reading single segments: round trips, the golden file, failures of the disk.

#![allow(clippy::unwrap_used)]

mod common;

use common::{create, new_disk, path, payloads, read_file, replay_all, write_file};
use mycelium_base::{ErrorKind, FileKind};
use mycelium_vfs::{Effect, Fault, FaultDisk, OperationKind};
use mycelium_wal::{HEADER_LEN, RECORD_HEADER_LEN, RecoveryMode, SegmentHeader, SegmentReader, SegmentWriter};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

#[test]
fn records_of_every_size_come_back() {
    let disk = new_disk();
    let mut writer = create(&disk, 3, Some((2, 99)));
    let mut rng = SmallRng::seed_from_u64(1);
    let mut written = Vec::new();
    let edges = [1, 11, 12, 13, (64 << 10) - 13, (64 << 10) - 12, (64 << 10) - 11, 64 << 10, 65 << 10];
    let big = [(1 << 20) - 13, (1 << 20) - 12, (1 << 20) - 11, 1 << 20, 3_333_333];
    let sizes = edges.into_iter().chain(big).chain((0..200).map(|_| 1 << rng.random_range(0..14)));
    for (i, len) in sizes.collect::<Vec<usize>>().into_iter().enumerate() {
        let mut payload = vec![0; len];
        rng.fill_bytes(&mut payload);
        let cut = rng.random_range(0..=len);
        writer.append(&[&payload[..cut], b"", &payload[cut..]]).unwrap();
        match i % 7 {
            3 => writer.flush().unwrap(),
            5 => writer.sync().unwrap(),
            _ => {}
        }
        written.push(payload);
    }
    writer.sync().unwrap();
    assert_eq!(writer.synced_len(), writer.len());

    let mut reader = SegmentReader::open(&disk, &path(3), Some(3)).unwrap();
    assert_eq!(reader.header(), &SegmentHeader { number: 3, previous: Some((2, 99)) });
    let mut offset = HEADER_LEN as u64;
    for payload in &written {
        let record = reader.next().unwrap().unwrap();
        assert_eq!((record.offset, record.payload), (offset, payload.as_slice()));
        offset += (RECORD_HEADER_LEN + payload.len()) as u64;
    }
    assert!(reader.next().unwrap().is_none() && reader.tear().is_none());
    assert_eq!((reader.position(), offset), (writer.len(), writer.len()));

    let (applied, report) = replay_all(&disk, &[3], RecoveryMode::Strict);
    assert_eq!(payloads(&applied), written);
    let report = report.unwrap();
    assert_eq!((report.records, report.end), (written.len() as u64, Some((3, offset))));
    assert_eq!(report.bytes, written.iter().map(|p| p.len() as u64).sum::<u64>());
}

/// Appends the records of the golden files.
fn append_golden(writer: &mut SegmentWriter) {
    writer.append(&[b"first"]).unwrap();
    writer.append(&[b"sec", b"ond"]).unwrap();
    writer.sync().unwrap();
    writer.append(&[&[0; 40]]).unwrap();
    writer.append(&[&(0..=255).collect::<Vec<u8>>()]).unwrap();
    writer.sync().unwrap();
}

#[test]
fn a_segment_is_reproduced_byte_for_byte() {
    let disk = new_disk();
    let mut writer = create(&disk, 12, Some((9, 4_096)));
    append_golden(&mut writer);
    let bytes = read_file(&disk, &path(12));
    let golden = std::path::Path::new("tests/golden/segment.wal");
    if std::env::var_os("UPDATE_GOLDEN").is_some() && !golden.exists() {
        std::fs::write(golden, &bytes).unwrap();
    }
    assert_eq!(bytes, std::fs::read(golden).unwrap(), "the format changed: a new format version is needed");
    write_file(&disk, &path(13), &bytes);
    let mut reader = SegmentReader::open(&disk, &path(13), None).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().payload, b"first");
}

/// Version 2 differs in its number alone, and what version 1 is was not changed by it.
#[test]
fn a_segment_of_version_2_is_reproduced_byte_for_byte() {
    let disk = new_disk();
    let header = SegmentHeader { number: 12, previous: Some((9, 4_096)) };
    let mut writer = SegmentWriter::create_with_version(&disk, &path(12), header, 2).unwrap();
    append_golden(&mut writer);
    let golden = std::fs::read("tests/golden/segment-2.wal").unwrap();
    assert_eq!(read_file(&disk, &path(12)), golden, "the format changed: a new format version is needed");
    let mut reader = SegmentReader::open(&disk, &path(12), Some(12)).unwrap();
    assert_eq!(reader.header(), &header);
    assert_eq!(reader.next().unwrap().unwrap().payload, b"first");
    for version in [0, 3] {
        let error = SegmentWriter::create_with_version(&disk, &path(13), header, version).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn invalid_records_and_headers_are_refused() {
    let disk = new_disk();
    let mut writer = create(&disk, 1, None);
    assert_eq!(writer.append(&[]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(writer.append(&[b"", b""]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let large = vec![0; 1 << 26];
    assert_eq!(writer.append(&[&large[..]; 17]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(writer.is_empty());
    for header in [
        SegmentHeader { number: 0, previous: None },
        SegmentHeader { number: 5, previous: Some((5, 40)) },
        SegmentHeader { number: 5, previous: Some((0, 40)) },
    ] {
        let error = SegmentWriter::create(&disk, &path(5), header).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn a_newer_format_is_refused() {
    let disk = new_disk();
    create(&disk, 1, None).append(&[b"x"]).unwrap();
    let mut bytes = read_file(&disk, &path(1));
    bytes[8] = 3;
    let checksum = crc32c::crc32c(&bytes[..36]);
    bytes[36..40].copy_from_slice(&checksum.to_le_bytes());
    write_file(&disk, &path(1), &bytes);
    for mode in [RecoveryMode::Strict, RecoveryMode::TolerateTornTail, RecoveryMode::PointInTime] {
        let error = replay_all(&disk, &[1], mode).1.unwrap_err();
        assert_eq!((error.kind(), error.file()), (ErrorKind::Unsupported, Some(path(1).as_path())));
    }
}

/// Every append fails in turn, after part of its bytes: the file is cut back and the writer goes on.
#[test]
fn a_failed_append_is_undone() {
    for keep in [0, 1, 11, 12, 30, 70_000] {
        for nth in 1..8 {
            for effect in [Effect::PartialAppend { keep }, Effect::NoSpace] {
                let disk = FaultDisk::over_memory(new_disk());
                let mut writer = create(&disk, 1, None);
                disk.schedule(Fault::new(OperationKind::Append, effect).on(FileKind::Wal).nth(nth));
                let mut kept: Vec<Vec<u8>> = Vec::new();
                for i in 0..8_u8 {
                    // Some records pass through in several appends.
                    let payload = vec![i; if i % 3 == 2 { 150_000 } else { 20 }];
                    let before = writer.len();
                    let outcome = writer.append(&[&payload[..1], &payload[1..]]).and_then(|()| writer.flush());
                    match outcome {
                        Ok(()) => kept.push(payload),
                        Err(_) => assert_eq!((writer.len(), writer.is_broken()), (before, false)),
                    }
                }
                assert_eq!(kept.len() as u64 + disk.fired(), 8);
                assert_eq!(disk.fired(), 1);
                writer.sync().unwrap();
                let (applied, report) = replay_all(&disk, &[1], RecoveryMode::Strict);
                assert_eq!(payloads(&applied), kept);
                assert_eq!(report.unwrap().end, Some((1, writer.len())));
            }
        }
    }
}

#[test]
fn a_failed_flush_drops_all_that_was_buffered() {
    let disk = FaultDisk::over_memory(new_disk());
    let mut writer = create(&disk, 1, None);
    writer.append(&[b"kept"]).unwrap();
    writer.flush().unwrap();
    let len = writer.len();
    writer.append(&[b"dropped"]).unwrap();
    writer.append(&[b"dropped too"]).unwrap();
    disk.schedule(Fault::new(OperationKind::Append, Effect::PartialAppend { keep: 30 }));
    assert_eq!(writer.flush().unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(writer.len(), len);
    writer.append(&[b"after"]).unwrap();
    writer.sync().unwrap();
    let (applied, _) = replay_all(&disk, &[1], RecoveryMode::Strict);
    assert_eq!(payloads(&applied), [b"kept".to_vec(), b"after".to_vec()]);
}

/// Records that were handed over, but not acknowledged, leave the log; what was synced stays.
#[test]
fn records_are_taken_back_up_to_the_last_sync() {
    for is_flushed in [false, true] {
        let disk = FaultDisk::over_memory(new_disk());
        let mut writer = create(&disk, 1, None);
        writer.append(&[b"synced"]).unwrap();
        writer.sync().unwrap();
        let synced = writer.len();
        writer.append(&[b"kept"]).unwrap();
        let before = writer.len();
        writer.append(&[&[1; 100]]).unwrap();
        writer.append(&[&[2; 100_000]]).unwrap();
        if is_flushed {
            writer.flush().unwrap();
        }
        writer.cut_back(before).unwrap();
        assert_eq!(writer.len(), before);
        assert_eq!(writer.cut_back(synced - 1).unwrap_err().kind(), ErrorKind::InvalidArgument);
        writer.append(&[b"after"]).unwrap();
        writer.sync().unwrap();
        let (applied, report) = replay_all(&disk, &[1], RecoveryMode::Strict);
        assert_eq!(payloads(&applied), [b"synced".to_vec(), b"kept".to_vec(), b"after".to_vec()]);
        assert_eq!(report.unwrap().end, Some((1, writer.len())));
    }
}

#[test]
fn a_tear_that_cannot_be_undone_is_skipped_by_the_next_segment() {
    let disk = FaultDisk::over_memory(new_disk());
    let mut writer = create(&disk, 1, None);
    writer.append(&[b"kept"]).unwrap();
    writer.flush().unwrap();
    disk.schedule(Fault::new(OperationKind::Append, Effect::PartialAppend { keep: 19 }));
    disk.schedule(Fault::new(OperationKind::Truncate, Effect::Io));
    // The first of the two records reaches the file whole although the append fails: it must not come back.
    writer.append(&[b"failed"]).unwrap();
    writer.append(&[b"failed"]).unwrap();
    assert!(writer.flush().is_err() && writer.is_broken());
    for _ in 0..2 {
        assert!(writer.append(&[b"more"]).is_err() && writer.flush().is_err() && writer.sync().is_err());
    }
    let mut next = create(&disk, 2, Some((1, writer.len())));
    next.append(&[b"next"]).unwrap();
    next.flush().unwrap();
    let (applied, report) = replay_all(&disk, &[1, 2], RecoveryMode::Strict);
    assert_eq!(payloads(&applied), [b"kept".to_vec(), b"next".to_vec()]);
    assert_eq!(report.unwrap().torn, None);
}

#[test]
fn a_failed_sync_is_never_retried() {
    for effect in [Effect::Io, Effect::LoseUnsynced, Effect::IoAfterwards] {
        let disk = FaultDisk::over_memory(new_disk());
        let mut writer = create(&disk, 1, None);
        writer.append(&[b"safe"]).unwrap();
        writer.sync().unwrap();
        let synced = writer.synced_len();
        writer.append(&[b"doubtful"]).unwrap();
        disk.schedule(Fault::new(OperationKind::Sync, effect).on(FileKind::Wal));
        let first = writer.sync().unwrap_err();
        assert_eq!((first.kind(), first.file()), (ErrorKind::Io, Some(path(1).as_path())));
        let syncs = disk.count(OperationKind::Sync);
        let appends = disk.count(OperationKind::Append);
        for _ in 0..3 {
            assert_eq!(writer.sync().unwrap_err().to_string(), first.to_string());
            assert_eq!(writer.append(&[b"more"]).unwrap_err().kind(), ErrorKind::Io);
            assert_eq!(writer.flush().unwrap_err().kind(), ErrorKind::Io);
        }
        assert_eq!((disk.count(OperationKind::Sync), disk.count(OperationKind::Append)), (syncs, appends));
        assert_eq!(writer.synced_len(), synced);
    }
}

#[test]
fn a_sync_of_nothing_new_does_not_reach_the_disk() {
    let disk = FaultDisk::over_memory(new_disk());
    let mut writer = create(&disk, 1, None);
    writer.append(&[b"x"]).unwrap();
    writer.sync().unwrap();
    let syncs = disk.count(OperationKind::Sync);
    writer.sync().unwrap();
    assert_eq!(disk.count(OperationKind::Sync), syncs);
}

#[test]
fn errors_of_the_disk_and_of_apply_pass_through() {
    let disk = FaultDisk::over_memory(new_disk());
    let mut writer = create(&disk, 1, None);
    writer.append(&[b"x"]).unwrap();
    writer.sync().unwrap();
    for nth in 1..=2 {
        disk.schedule(Fault::new(OperationKind::Read, Effect::Io).nth(nth));
        let (applied, report) = replay_all(&disk, &[1], RecoveryMode::PointInTime);
        assert!(applied.is_empty());
        assert_eq!(report.unwrap_err().kind(), ErrorKind::Io);
    }
    let error = mycelium_wal::replay(
        &disk,
        std::path::Path::new(common::DIRECTORY),
        &[1],
        RecoveryMode::Strict,
        &mut |_, _, _| Err(mycelium_base::Error::new(ErrorKind::Closed, "enough")),
    );
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(replay_all(&disk, &[1, 1], RecoveryMode::Strict).1.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(replay_all(&disk, &[], RecoveryMode::Strict).1.unwrap(), Default::default());
}
