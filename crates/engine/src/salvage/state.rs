//! The state that a salvage starts from.
//!
//! 1. The manifest that `CURRENT` names, if all of it can be read.
//! 2. Else, of all manifests that can be read up to some edit, the one with the most edits. A manifest begins with the
//!    state at which it was started; without all of that it is none.
//!
//! What an SST says of itself does not tell its table, its level or its age among others. So without a manifest there
//! is nothing to save, rather than something guessed.

use std::path::Path;

use mycelium_base::{Error, ErrorKind, FileKind, FileNumber, Result};
use mycelium_manifest::{Manifest, ManifestRemains, ManifestState};
use mycelium_vfs::Disk;

use super::SalvageReport;
use crate::recover::numbered;

/// Finds the state and notes what of the manifest is damaged.
pub(super) fn find(disk: &dyn Disk, from: &Path, report: &mut SalvageReport) -> Result<ManifestState> {
    let files = numbered(disk, from)?;
    if files.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, "there is no database").in_file(from));
    }
    let manifests = files.iter().filter(|(kind, _)| *kind == FileKind::Manifest).map(|(_, number)| *number);
    let mut manifests: Vec<FileNumber> = manifests.collect();
    let named = Manifest::named(disk, from);
    let live = named.as_ref().ok().copied();
    manifests.sort_unstable_by_key(|number| Some(*number) != live);
    let mut found: Vec<(FileNumber, ManifestRemains)> = Vec::new();
    let mut faults: Vec<(FileNumber, Error)> = Vec::new();
    for number in manifests {
        match ManifestRemains::read(disk, &from.join(FileKind::Manifest.name(number))) {
            Ok(whole) if whole.fault.is_none() && Some(number) == live => return Ok(whole.state),
            Ok(remains) => found.push((number, remains)),
            Err(error) if error.kind() == ErrorKind::Unsupported => return Err(error),
            Err(error) => faults.push((number, error)),
        }
    }
    let current = named.err().or_else(|| Manifest::live_path(disk, from).err());
    let rank = |(number, remains): &(FileNumber, ManifestRemains)| (remains.state.edit_count, *number);
    let Some(best) = (0..found.len()).max_by_key(|&at| rank(&found[at])) else {
        return Err(nothing_known(from, faults.into_iter().map(|(_, error)| error).next().or(current)));
    };
    let (chosen, remains) = found.swap_remove(best);
    faults.extend(found.into_iter().filter_map(|(number, other)| other.fault.map(|fault| (number, fault))));
    // What CURRENT names is newer than all others.
    let is_older = live.is_some_and(|live| live > chosen) || faults.iter().any(|(number, _)| *number > chosen);
    report.lost_edits = is_older || remains.fault.is_some();
    let damaged = faults.into_iter().map(|(_, error)| error);
    for error in current.into_iter().chain(damaged).chain(remains.fault) {
        report.note(None, error);
    }
    Ok(remains.state)
}

fn nothing_known(from: &Path, cause: Option<Error>) -> Error {
    let message = "no manifest can be read, and files do not say of which table and level they are";
    let error = Error::corruption(message).in_file(from);
    match cause {
        Some(cause) => error.caused_by(cause),
        None => error,
    }
}
