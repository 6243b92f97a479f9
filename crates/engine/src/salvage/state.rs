//! The state that a salvage starts from.
//!
//! 1. The manifest that `CURRENT` names, if all of it can be read.
//! 2. Else, of all manifests that can be read up to some edit, the one with the most edits. A manifest begins with the
//!    state at which it was started; without all of that it is none.
//! 3. What files say of themselves (`statements`), where they know of more than the manifest, or there is none. A
//!    manifest that was cut off between two edits may look whole: files know that there were more. Files of another
//!    database are told and left alone; without a manifest that says which one it is, files of several are refused.
//!
//! Files written by versions that let them say nothing of where they belong are listed by newer ones. Where there is no
//! newer one, without a manifest there is nothing to save, rather than something guessed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use mycelium_base::{Error, ErrorKind, FileKind, FileNumber, Result, TableId};
use mycelium_manifest::{Manifest, ManifestRemains, ManifestState};
use mycelium_vfs::Disk;

use super::SalvageReport;
use super::statements::{GoneFile, Statements};
use crate::recover::numbered;

/// Where a salvage starts.
pub(super) struct Start {
    pub(super) state: ManifestState,
    /// Files whose checksum is not known.
    pub(super) unchecked: BTreeSet<FileNumber>,
    /// Files that are missed and of which nothing is known but their places.
    pub(super) gone: BTreeMap<TableId, Vec<GoneFile>>,
    /// Files that say where they belong: those that the state does not name were replaced, or are of no table.
    pub(super) placed: BTreeSet<FileNumber>,
}

/// Finds the state and notes what of the manifest is damaged.
pub(super) fn find(disk: &dyn Disk, from: &Path, report: &mut SalvageReport) -> Result<Start> {
    if numbered(disk, from)?.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, "there is no database").in_file(from));
    }
    let Remembered { state, fault } = read_manifests(disk, from, report)?;
    let statements = Statements::read(disk, from, state.as_ref().map_or(0, |state| state.identity))?;
    report.foreign_files.extend(statements.foreign_names());
    let is_sound = state.is_some() && !report.lost_edits;
    let edits = state.as_ref().map(|state| state.edit_count);
    let Some(pieced) = statements.complete(state, is_sound)? else { return Err(nothing_known(from, fault)) };
    if pieced.has_more && is_sound {
        let error = Error::corruption("the manifest has lost edits: there are files that it does not know of");
        let path = Manifest::live_path(disk, from).unwrap_or_else(|_| from.to_path_buf());
        let found = format!("{} edits", edits.unwrap_or(0));
        report.note(None, error.in_file(path).at(0).expected("the edits that install them", found));
    }
    report.lost_edits |= pieced.has_more;
    if pieced.unknown_tables > 0 {
        let message = format!(
            "{} tables or indexes had no file that says what they are: they and what the log holds of them are lost, \
             and tables that were dropped may be back",
            pieced.unknown_tables
        );
        report.note(None, Error::corruption(message).in_file(from));
    }
    report.dropped_indexes.extend(pieced.dropped_indexes);
    Ok(Start { state: pieced.state, unchecked: pieced.unchecked, gone: pieced.gone, placed: statements.placed() })
}

/// What manifests say.
struct Remembered {
    /// The newest state, if there is one.
    state: Option<ManifestState>,
    /// Why there is no state, or a newer one.
    fault: Option<Error>,
}

/// Steps 1 and 2. Notes what is damaged.
fn read_manifests(disk: &dyn Disk, from: &Path, report: &mut SalvageReport) -> Result<Remembered> {
    let files = numbered(disk, from)?;
    let manifests = files.iter().filter(|(kind, _)| *kind == FileKind::Manifest).map(|(_, number)| *number);
    let mut manifests: Vec<FileNumber> = manifests.collect();
    let named = Manifest::named(disk, from);
    let live = named.as_ref().ok().copied();
    manifests.sort_unstable_by_key(|number| Some(*number) != live);
    let mut found: Vec<(FileNumber, ManifestRemains)> = Vec::new();
    let mut faults: Vec<(FileNumber, Error)> = Vec::new();
    for number in manifests {
        match ManifestRemains::read(disk, &from.join(FileKind::Manifest.name(number))) {
            Ok(whole) if whole.fault.is_none() && Some(number) == live => {
                return Ok(Remembered { state: Some(whole.state), fault: None });
            }
            Ok(remains) => found.push((number, remains)),
            Err(error) if error.kind() == ErrorKind::Unsupported => return Err(error),
            Err(error) => faults.push((number, error)),
        }
    }
    let current = named.err().or_else(|| Manifest::live_path(disk, from).err());
    let rank = |(number, remains): &(FileNumber, ManifestRemains)| (remains.state.edit_count, *number);
    let chosen = (0..found.len()).max_by_key(|&at| rank(&found[at])).map(|at| found.swap_remove(at));
    faults.extend(found.into_iter().filter_map(|(number, other)| other.fault.map(|fault| (number, fault))));
    let (number, state, torn) = match chosen {
        Some((number, remains)) => (number, Some(remains.state), remains.fault),
        None => (0, None, None),
    };
    // What CURRENT names is newer than all others.
    let is_older = live.is_some_and(|live| live > number) || faults.iter().any(|(other, _)| *other > number);
    report.lost_edits = is_older || torn.is_some() || state.is_none();
    let damaged = faults.into_iter().map(|(_, error)| error);
    let all: Vec<Error> = current.into_iter().chain(damaged).chain(torn).collect();
    let fault = all.first().map(Error::duplicate);
    all.into_iter().for_each(|error| report.note(None, error));
    Ok(Remembered { state, fault })
}

fn nothing_known(from: &Path, cause: Option<Error>) -> Error {
    let message = "no manifest can be read, and no file says of which table and level it is";
    let error = Error::corruption(message).in_file(from);
    match cause {
        Some(cause) => error.caused_by(cause),
        None => error,
    }
}
