//! Public data that the repository does not hold.
//!
//! 1. A file that an earlier run has left in the directory is taken if its bytes are those that are expected.
//! 2. Else the archive is downloaded (`curl`), the member is taken out of it (`tar`), and its SHA-256 is compared.
//! 3. It gets its name when all of that is done: an interrupted run leaves nothing that a later one would take.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::store::Result;

/// A file in a gzipped tar archive on the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Archived {
    /// Its name in the directory.
    pub(crate) name: &'static str,
    /// Where the archive is.
    pub(crate) url: &'static str,
    /// Its path there.
    pub(crate) member: &'static str,
    /// Of the file, not the archive; in hexadecimal.
    pub(crate) sha256: &'static str,
}

impl Archived {
    /// Its path below `directory`, where it is fetched to if it is not there yet.
    pub(crate) fn fetch(&self, directory: &Path) -> Result<PathBuf> {
        let path = directory.join(self.name);
        if path.exists() {
            self.check(&path)?;
            return Ok(path);
        }
        fs::create_dir_all(directory)?;
        let unpacked = directory.join(format!("{}.{}", self.name, std::process::id()));
        let archive = unpacked.with_extension("archive");
        let fetched = self.download(&archive, &unpacked).and_then(|()| self.check(&unpacked));
        drop(fs::remove_file(&archive));
        match fetched {
            Ok(()) => fs::rename(&unpacked, &path)?,
            Err(error) => {
                drop(fs::remove_file(&unpacked));
                return Err(error);
            }
        }
        Ok(path)
    }

    #[expect(clippy::disallowed_methods, reason = "a file of input, which the engine never touches")]
    fn download(&self, archive: &Path, unpacked: &Path) -> Result<()> {
        if !done(Command::new("curl").args(["-fsSL", "--retry", "3", "-o"]).arg(archive).arg(self.url))? {
            return Err(format!("{} cannot be downloaded", self.url).into());
        }
        let unpacked = fs::File::create(unpacked)?;
        if !done(Command::new("tar").arg("-xzOf").arg(archive).arg(self.member).stdout(unpacked))? {
            return Err(format!("{} has no {}", self.url, self.member).into());
        }
        Ok(())
    }

    fn check(&self, path: &Path) -> Result<()> {
        let found: String = Sha256::digest(fs::read(path)?).iter().map(|byte| format!("{byte:02x}")).collect();
        if found == self.sha256 {
            return Ok(());
        }
        Err(format!("{}: SHA-256 {found}, expected {}; remove it to fetch it again", path.display(), self.sha256)
            .into())
    }
}

/// Whether it ended well.
fn done(command: &mut Command) -> Result<bool> {
    let status = command.status().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: Archived = Archived {
        name: "abc",
        url: "file:///there/is/no/such/archive",
        member: "abc",
        sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    };

    #[test]
    fn a_file_with_other_bytes_is_not_taken_and_nothing_is_left_of_a_failed_fetch() {
        let directory = tempfile::tempdir().expect("temporary directory");
        ABC.fetch(directory.path()).expect_err("there is no such archive");
        assert_eq!(fs::read_dir(directory.path()).expect("directory").count(), 0);
        fs::write(directory.path().join("abc"), "abc").expect("write");
        assert_eq!(ABC.fetch(directory.path()).expect("the file"), directory.path().join("abc"));
        fs::write(directory.path().join("abc"), "abd").expect("write");
        let error = ABC.fetch(directory.path()).expect_err("other bytes").to_string();
        assert!(error.contains("abc: SHA-256") && error.contains(ABC.sha256), "{error}");
    }
}
