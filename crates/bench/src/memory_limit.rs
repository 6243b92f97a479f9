//! The memory-limited mode: the data is many times what may be cached, page cache included.
//!
//! 1. Where cgroup v2 has the memory controller and we may write to it, each child joins a cgroup with `memory.max`:
//!    its page cache counts against the limit, so buffered reads go to the disk. The same for every engine.
//! 2. Elsewhere stores are opened with direct I/O ([`crate::StoreOptions::direct_io`]): nothing is cached but what the
//!    store's own cache holds. Engines that cannot do that are left out of the run, which says so.

use std::fs;
use std::path::{Path, PathBuf};

use crate::store::Result;

const ROOT: &str = "/sys/fs/cgroup";

/// A cgroup of this run, removed when dropped.
#[derive(Debug)]
pub struct LimitedGroup(PathBuf);

impl LimitedGroup {
    /// Makes one with a limit in bytes; an error says why none can be made.
    pub fn create(limit: u64) -> Result<Self> {
        let controllers = fs::read_to_string(Path::new(ROOT).join("cgroup.subtree_control"))
            .map_err(|error| format!("no cgroup v2 at {ROOT}: {error}"))?;
        if !controllers.split_whitespace().any(|name| name == "memory") {
            return Err("cgroup v2 does not delegate the memory controller".into());
        }
        let path = Path::new(ROOT).join(format!("mycelium-bench-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("cannot make a cgroup: {error}"))?;
        let group = Self(path);
        fs::write(group.0.join("memory.max"), limit.to_string())?;
        // Where there is no swap, or no such file, the limit above is all there is to set.
        if let Err(error) = fs::write(group.0.join("memory.swap.max"), "0") {
            eprintln!("swap is not limited: {error}");
        }
        Ok(group)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for LimitedGroup {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

/// Moves this process into a cgroup.
pub fn join(cgroup: &Path) -> Result<()> {
    fs::write(cgroup.join("cgroup.procs"), std::process::id().to_string())
        .map_err(|error| format!("cannot join {}: {error}", cgroup.display()).into())
}
