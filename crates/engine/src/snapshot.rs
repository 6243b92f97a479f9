//! Snapshots: sequence numbers that compaction must honour while they live.
//!
//! Taking one registers the newest visible sequence number; dropping the last handle unregisters it. A compaction reads
//! the live numbers when it starts: a snapshot taken later sees everything the compaction's inputs hold, so nothing it
//! needs can be dropped. Memtables are flushed when all that they hold is visible; files of a bulk load, which are in
//! the tree before that, are kept from compactions until it is (ingest.rs).
//!
//! In a database opened read-only a snapshot holds what was shown when it was taken (follow/state.rs): the process that
//! writes knows nothing of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use mycelium_base::SequenceNumber;

use crate::follow::DatabaseState;
use crate::sync::Mutex;

/// The sequence numbers in use by live snapshots.
#[derive(Debug, Default)]
pub(crate) struct SnapshotRegistry {
    live: Mutex<BTreeMap<SequenceNumber, Held>>,
}

#[derive(Debug)]
struct Held {
    count: usize,
    since: Instant,
}

impl SnapshotRegistry {
    /// Registers the newest visible sequence number. The number is read under the registry's lock, so that no
    /// compaction can read the live numbers between the reading and the registering.
    pub(crate) fn take(self: &Arc<Self>, newest_visible: impl FnOnce() -> SequenceNumber) -> Snapshot {
        self.register(newest_visible, None)
    }

    /// Registers what a database opened read-only shows.
    pub(crate) fn take_shown(self: &Arc<Self>, shown: Arc<DatabaseState>) -> Snapshot {
        let sequence = shown.sequence;
        self.register(|| sequence, Some(shown))
    }

    fn register(
        self: &Arc<Self>,
        newest_visible: impl FnOnce() -> SequenceNumber,
        shown: Option<Arc<DatabaseState>>,
    ) -> Snapshot {
        let mut live = self.live.lock();
        let sequence = newest_visible();
        live.entry(sequence).or_insert_with(|| Held { count: 0, since: Instant::now() }).count += 1;
        drop(live);
        Snapshot(Arc::new(Registered { registry: self.clone(), sequence, shown }))
    }

    /// The live sequence numbers, ascending.
    pub(crate) fn live(&self) -> Vec<SequenceNumber> {
        self.live.lock().keys().copied().collect()
    }

    /// Every live sequence number, its handles, and the seconds since it was first taken; ascending.
    pub(crate) fn held(&self) -> Vec<(SequenceNumber, usize, f64)> {
        let live = self.live.lock();
        live.iter().map(|(&sequence, held)| (sequence, held.count, held.since.elapsed().as_secs_f64())).collect()
    }
}

#[derive(Debug)]
struct Registered {
    registry: Arc<SnapshotRegistry>,
    sequence: SequenceNumber,
    /// In a database opened read-only: what it is read from.
    shown: Option<Arc<DatabaseState>>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut live = self.registry.live.lock();
        if let Some(held) = live.get_mut(&self.sequence) {
            held.count -= 1;
            if held.count == 0 {
                live.remove(&self.sequence);
            }
        }
    }
}

/// A point in the database's history: every read at it gives the same answer until the last clone is dropped.
///
/// Cheap to clone and to send between threads. It pins the versions it sees: space comes back after it is dropped, with
/// the compactions that follow. It sees all tables, those created later empty. A table that is dropped cannot be read
/// at it any more. It does not outlive the process.
///
/// ```
/// # use mycelium_engine::{Database, Durability, Options, ReadOptions, TableOptions};
/// # use std::sync::Arc;
/// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
/// # let database = Database::open("example", options)?;
/// let table = database.create_table("kv", TableOptions::default())?;
/// table.put(b"key", b"old", Durability::Os)?;
/// let before = database.snapshot();
/// table.put(b"key", b"new", Durability::Os)?;
/// database.compact(&table)?;
///
/// let rows = table.multi_get(&[b"key"], &ReadOptions::at(&before))?;
/// assert_eq!(rows[0].as_deref(), Some(&b"old"[..]));
/// assert_eq!(table.get(b"key")?.as_deref(), Some(&b"new"[..]));
/// # Ok::<(), mycelium_engine::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot(Arc<Registered>);

impl Snapshot {
    /// The newest sequence number that the snapshot sees.
    pub fn sequence(&self) -> SequenceNumber {
        self.0.sequence
    }

    /// What it is read from, in a database opened read-only.
    #[inline]
    pub(crate) fn shown(&self) -> Option<&DatabaseState> {
        self.0.shown.as_deref()
    }

    pub(crate) fn belongs_to(&self, registry: &Arc<SnapshotRegistry>) -> bool {
        Arc::ptr_eq(&self.0.registry, registry)
    }
}

/// Taking snapshots beside commits and compactions, under thousands of drawn schedules (shuttle):
/// `cargo test -p mycelium-engine --features schedule-tests --lib schedules`
#[cfg(all(test, feature = "schedule-tests"))]
mod schedules {
    use std::collections::BTreeSet;

    use shuttle::sync::atomic::{AtomicU64, Ordering};
    use shuttle::sync::{Arc as SharedArc, Mutex as SharedMutex};
    use shuttle::thread;

    use super::*;

    const SCHEDULES: usize = 10_000;
    const COMMITS: u64 = 6;

    /// The versions of one key, each commit writing one. As in the engine, a compaction takes its inputs first and
    /// reads the live snapshots then; a reader takes a snapshot and must find the version it saw for as long as it
    /// holds it.
    fn scenario() {
        let registry = Arc::new(SnapshotRegistry::default());
        let visible = SharedArc::new(AtomicU64::new(0));
        let versions = SharedArc::new(SharedMutex::new(BTreeSet::from([0])));
        let mut threads = Vec::new();
        for _ in 0..2 {
            let (registry, visible, versions) = (registry.clone(), visible.clone(), versions.clone());
            threads.push(thread::spawn(move || {
                for _ in 0..3 {
                    let snapshot = registry.take(|| visible.load(Ordering::Acquire));
                    let second = snapshot.clone();
                    for _ in 0..2 {
                        let newest = versions.lock().unwrap().range(..=snapshot.sequence()).next_back().copied();
                        assert_eq!(newest, Some(snapshot.sequence()));
                    }
                    drop(snapshot);
                    assert!(registry.live().contains(&second.sequence()));
                }
            }));
        }
        let compaction = {
            let (registry, visible, versions) = (registry.clone(), visible.clone(), versions.clone());
            thread::spawn(move || {
                for _ in 0..3 {
                    // Memtables are sealed between commits, so that files hold only what is visible.
                    let sealed = visible.load(Ordering::Acquire);
                    let inputs: Vec<u64> = versions.lock().unwrap().range(..=sealed).copied().collect();
                    let live = registry.live();
                    let newest = inputs.last().copied();
                    let needed = |version: u64| {
                        let next = inputs.iter().copied().find(|&other| other > version);
                        Some(version) == newest
                            || live.iter().any(|&at| version <= at && next.is_none_or(|next| at < next))
                    };
                    for version in inputs.iter().copied().filter(|&version| !needed(version)) {
                        versions.lock().unwrap().remove(&version);
                    }
                }
            })
        };
        for commit in 1..=COMMITS {
            versions.lock().unwrap().insert(commit);
            visible.store(commit, Ordering::Release);
        }
        for thread in threads {
            thread.join().unwrap();
        }
        compaction.join().unwrap();
        assert!(registry.live().is_empty());
        assert!(registry.live().is_empty());
    }

    #[test]
    fn a_snapshot_keeps_what_it_sees_under_random_schedules() {
        shuttle::check_random(scenario, SCHEDULES / 2);
        println!("schedules: {}, failures: 0", SCHEDULES / 2);
    }

    #[test]
    fn a_snapshot_keeps_what_it_sees_under_schedules_of_few_preemptions() {
        shuttle::check_pct(scenario, SCHEDULES / 2, 3);
        println!("schedules: {}, failures: 0", SCHEDULES / 2);
    }
}
