//! What the log's tests share: writing segments and replaying them into a list.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use mycelium_base::{FileKind, FileNumber, Result};
use mycelium_vfs::{AccessPattern, Disk, MemoryDisk};
use mycelium_wal::{RecoveryMode, ReplayReport, SegmentHeader, SegmentWriter, replay};

pub const DIRECTORY: &str = "/db";

pub fn new_disk() -> MemoryDisk {
    let disk = MemoryDisk::new();
    disk.create_directory(Path::new(DIRECTORY)).unwrap();
    disk
}

pub fn path(number: FileNumber) -> PathBuf {
    Path::new(DIRECTORY).join(FileKind::Wal.name(number))
}

pub fn create(disk: &dyn Disk, number: FileNumber, previous: Option<(FileNumber, u64)>) -> SegmentWriter {
    SegmentWriter::create(disk, &path(number), SegmentHeader { number, previous }).unwrap()
}

pub fn read_file(disk: &dyn Disk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, AccessPattern::Sequential).unwrap();
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

pub fn write_file(disk: &dyn Disk, path: &Path, bytes: &[u8]) {
    disk.create(path).unwrap().append(bytes).unwrap();
}

/// Replays segments into (number, payload) pairs; what was applied is returned even if the replay fails.
pub fn replay_all(
    disk: &dyn Disk,
    segments: &[FileNumber],
    mode: RecoveryMode,
) -> (Vec<(FileNumber, Vec<u8>)>, Result<ReplayReport>) {
    let mut applied = Vec::new();
    let report = replay(disk, Path::new(DIRECTORY), segments, mode, &mut |number, _, payload| {
        applied.push((number, payload.to_vec()));
        Ok(())
    });
    (applied, report)
}

pub fn payloads(applied: &[(FileNumber, Vec<u8>)]) -> Vec<Vec<u8>> {
    applied.iter().map(|(_, payload)| payload.clone()).collect()
}
