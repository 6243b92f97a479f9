//! The demo's directory: made anew each time, and never anybody else's.
//!
//! A file marks a directory that the demo made. Without the mark, only an empty (or missing) directory is used. With
//! it, the files of the last run are removed one by one, by their names, under the database's lock; nothing else is
//! touched.

use std::path::Path;

use mycelium::disk::{Disk, LocalDisk};
use mycelium_base::FileKind;

use crate::failure::Failure;

const MARK: &str = "MYCELIUM-DEMO";
const MARK_TEXT: &[u8] = b"This directory was made by `mycelium demo`, which empties it when it is run again.\n";

/// Leaves an empty directory with the mark.
pub(super) fn prepare(directory: &Path) -> Result<(), Failure> {
    let disk = LocalDisk;
    disk.create_directory(directory)?;
    let names = disk.list(directory)?;
    let mark = directory.join(MARK);
    if !disk.exists(&mark)? {
        if !names.is_empty() {
            return Err(Failure::usage(format!("{} is not empty, and the demo did not make it", directory.display()))
                .hint("--directory names another place"));
        }
        let mut file = disk.create(&mark)?;
        file.append(MARK_TEXT)?;
        file.sync()?;
        return Ok(disk.sync_directory(directory)?);
    }
    let lock = disk.lock(&directory.join(FileKind::Lock.name(0)))?;
    // CURRENT first: what is left of an interrupted removal is no database.
    let current = FileKind::Current.name(0);
    let rest = names
        .iter()
        .filter(|name| **name != current && FileKind::parse(name).is_some_and(|(kind, _)| kind != FileKind::Lock));
    for name in names.iter().filter(|name| **name == current).chain(rest) {
        disk.remove(&directory.join(name))?;
    }
    drop(lock);
    Ok(disk.sync_directory(directory)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path) {
        LocalDisk.create(path).unwrap().append(b"x").unwrap();
    }

    #[test]
    fn only_what_the_demo_made_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let fresh = home.path().join("fresh");
        prepare(&fresh).unwrap();
        for name in ["CURRENT", "000007.sst", "000008.wal", "notes.txt"] {
            write(&fresh.join(name));
        }
        prepare(&fresh).unwrap();
        assert_eq!(LocalDisk.list(&fresh).unwrap(), ["LOCK", MARK, "notes.txt"]);

        let foreign = home.path().join("foreign");
        LocalDisk.create_directory(&foreign).unwrap();
        write(&foreign.join("000007.sst"));
        assert!(prepare(&foreign).unwrap_err().to_string().contains("did not make it"));
        assert_eq!(LocalDisk.list(&foreign).unwrap(), ["000007.sst"]);

        let _held = LocalDisk.lock(&fresh.join("LOCK")).unwrap();
        write(&fresh.join("000009.sst"));
        assert_eq!(prepare(&fresh).unwrap_err().exit_status(), 5);
        assert!(LocalDisk.exists(&fresh.join("000009.sst")).unwrap());
    }
}
