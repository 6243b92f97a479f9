//! Disks that fail under tables of every configuration: layouts, row formats, transformers, indexes, views, the
//! compaction buffer, columns that come later, backups.
//!
//! 1. The workload of [`crate::crash`] is run once without a fault, to count what it asks of the disk.
//! 2. It is run again with a fault at the n-th of these requests. An action may then fail with an error that says so,
//!    and nothing else. A few more actions are tried after the first one that failed.
//! 3. After each that failed, all rows, and with them indexes and views, are those of the model: a commit that was
//!    refused is not there, the others are. Or reading fails because the disk does.
//! 4. The fault goes away, and with it the process, or the power. What is found then is checked as after any crash
//!    ([`Tally`]): a commit that was refused by a database that goes on writing never comes back; one that made the
//!    database read-only may, whole.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use mycelium_base::{ErrorKind, Result};
use mycelium_engine::Snapshot;
use mycelium_vfs::{CrashDraw, Disk, Fault, FaultDisk, MemoryDisk, OperationKind};
use parking_lot::Mutex;

use crate::crash::{Tally, Workload, apply};
use crate::engine_store::EngineStore;
use crate::model::{CrashKind, Model};
use crate::operations::SnapshotId;

/// Actions that are tried after the first one that failed.
const ACTIONS_AFTER: usize = 12;

/// A workload on a disk that fails.
pub struct FailingRun<'a> {
    workload: &'a Workload,
    fault: Fault,
    disk: FaultDisk,
    memory: MemoryDisk,
    model: Mutex<Model>,
    snapshots: BTreeMap<SnapshotId, Snapshot>,
}

impl fmt::Display for FailingRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seed, name) = (self.workload.seed, &self.workload.setup.configuration.name);
        write!(f, "seed {seed}, {name}, {:?}", self.fault)
    }
}

/// How often the workload asks the disk for something, if nothing fails.
///
/// # Errors
/// The first error of the database.
pub fn requests(workload: &Workload, kind: OperationKind) -> Result<u64> {
    let disk = FaultDisk::over_memory(MemoryDisk::new());
    workload.run_on(Arc::new(disk.clone()), &Mutex::new(workload.model()))?;
    Ok(disk.count(kind))
}

impl<'a> FailingRun<'a> {
    /// A run with this fault, yet to begin.
    pub fn new(workload: &'a Workload, fault: Fault) -> Self {
        let memory = MemoryDisk::new();
        let disk = FaultDisk::over_memory(memory.clone());
        disk.schedule(fault);
        let model = Mutex::new(workload.model());
        Self { workload, fault, disk, memory, model, snapshots: BTreeMap::new() }
    }

    fn create(&self) -> Result<EngineStore> {
        let setup = &self.workload.setup;
        EngineStore::create(Arc::new(self.disk.clone()) as Arc<dyn Disk>, &setup.configuration, &setup.tables)
    }

    /// Runs the workload until some actions after the fault, and checks what a crash of this kind leaves of it. Whether
    /// the fault was met.
    pub fn run(mut self, crash: CrashKind, tally: &Tally) -> bool {
        // A database that cannot be created has promised nothing.
        if let Err(what) = self.actions() {
            tally.fail(&tally.lost, format!("{self}: {what}"));
        }
        self.snapshots.clear();
        let draw = CrashDraw::from_seed(self.workload.seed);
        let image = match crash {
            CrashKind::PowerLoss => self.memory.crash_image(&draw),
            CrashKind::ProcessKill => self.memory.kill_image(),
        };
        let model = self.model.lock();
        tally.check_image(&self, (&model, &self.workload.setup), &image, crash, &draw);
        self.disk.fired() > 0
    }

    fn actions(&mut self) -> std::result::Result<(), String> {
        let mut store = match self.create() {
            Ok(store) => store,
            Err(error) => return allowed(error.kind()).then_some(()).ok_or_else(|| format!("creation: {error:?}")),
        };
        let mut left = usize::MAX;
        for (number, action) in self.workload.actions.iter().enumerate() {
            let (was_latched, commits) = (is_latched(&store), self.model.lock().commit_count());
            if let Err(error) = apply(&mut store, &self.model, &mut self.snapshots, action) {
                // A table whose creation failed is not there.
                let is_missing = error.kind() == ErrorKind::NotFound && left != usize::MAX;
                if !allowed(error.kind()) && !is_missing {
                    return Err(format!("action {number}, {action:?}: {error:?}"));
                }
                if was_latched || !is_latched(&store) {
                    self.model.lock().take_back(commits);
                }
                left = left.min(ACTIONS_AFTER);
            }
            if left != usize::MAX {
                self.check_now(&store).map_err(|what| format!("after action {number}, {action:?}: {what}"))?;
                left -= 1;
            }
            if left == 0 || store.database().is_err() {
                break;
            }
        }
        Ok(())
    }

    /// All that was acknowledged is there and nothing else, or cannot be read.
    fn check_now(&self, store: &EngineStore) -> std::result::Result<(), String> {
        if store.database().is_err() {
            return Ok(());
        }
        match store.state() {
            Ok(state) => self.model.lock().check_acknowledged(&state).map_err(|violation| violation.to_string()),
            Err(error) if error.kind() == ErrorKind::Io => Ok(()),
            Err(error) => Err(format!("reading: {error:?}")),
        }
    }
}

/// Errors of a disk that fails, and of a database that for this takes no more writes.
fn allowed(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Io | ErrorKind::ReadOnly | ErrorKind::Closed)
}

/// Whether an error made the database read-only.
fn is_latched(store: &EngineStore) -> bool {
    store.database().is_ok_and(|database| database.failure().is_some())
}
