//! Copies of files, and the directories that copies of a database go to.

use std::path::Path;

use mycelium_base::hash::FileChecksum;
use mycelium_base::{Error, FileKind, Result};
use mycelium_vfs::{Disk, ReadableFile};

/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;

/// Reads a file from front to back; gives the checksum of its bytes.
pub(crate) fn read_whole(file: &dyn ReadableFile, take: impl FnMut(&[u8]) -> Result<()>) -> Result<u64> {
    read_pieces(file.len(), |at, piece| file.read_at(at, piece), take)
}

/// The checksum of the first `len` bytes of a file.
pub(crate) fn checksum_of_first(file: &dyn ReadableFile, len: u64) -> Result<u64> {
    read_pieces(len, |at, piece| file.read_at(at, piece), |_| Ok(()))
}

/// As [`read_whole`], of `len` bytes that `read` fills in, given where they are.
fn read_pieces(
    len: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<()>,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<u64> {
    let mut checksum = FileChecksum::default();
    let mut buffer = vec![0; len.min(PIECE as u64) as usize];
    let mut at = 0;
    while at < len {
        let piece = &mut buffer[..(len - at).min(PIECE as u64) as usize];
        read(at, piece)?;
        checksum.update(piece);
        take(piece)?;
        at += piece.len() as u64;
    }
    Ok(checksum.value())
}

/// Copies a file, durably but for its name; gives the checksum of its bytes. `copies` is told the bytes of each piece
/// before it is written, and may wait.
pub(crate) fn copy_file(disk: &dyn Disk, source: &dyn ReadableFile, to: &Path, copies: impl FnMut(u64)) -> Result<u64> {
    copy_pieces(disk, source.len(), |at, piece| source.read_at(at, piece), to, copies)
}

/// As [`copy_file`], of `len` bytes that `read` fills in, given where they are.
pub(crate) fn copy_pieces(
    disk: &dyn Disk,
    len: u64,
    read: impl FnMut(u64, &mut [u8]) -> Result<()>,
    to: &Path,
    mut copies: impl FnMut(u64),
) -> Result<u64> {
    let mut copy = disk.create(to)?;
    let checksum = read_pieces(len, read, |piece| {
        copies(piece.len() as u64);
        copy.append(piece)?;
        copy.start_writeback();
        Ok(())
    })?;
    copy.sync()?;
    Ok(checksum)
}

/// Fails unless a copy of a database, `what`, can be made in the directory: it does not exist, or is empty.
pub(crate) fn check_vacant(disk: &dyn Disk, directory: &Path, what: &str) -> Result<()> {
    if !disk.exists(directory)? || disk.list(directory)?.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(format!("{what} needs a directory that does not exist or is empty")).in_file(directory))
}

/// Removes what a failed copy of a database left; `CURRENT` first, so that no half of one can be opened.
pub(crate) fn remove_copy(disk: &dyn Disk, directory: &Path) {
    let current = FileKind::Current.name(0);
    let names = disk.list(directory).unwrap_or_default();
    let rest = names.iter().filter(|name| **name != current && FileKind::parse(name).is_some());
    for name in names.iter().filter(|name| **name == current).chain(rest) {
        if let Err(error) = disk.remove(&directory.join(name)) {
            tracing::warn!(%error, "cannot remove a file of a copy that was not completed");
        }
    }
}
