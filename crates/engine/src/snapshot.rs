//! Snapshots: sequence numbers that compaction must honour while they live.
//!
//! Taking one registers the newest visible sequence number; dropping the last handle unregisters it. A compaction reads
//! the live numbers when it starts: a snapshot taken later sees everything the compaction's inputs hold, so nothing it
//! needs can be dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use mycelium_base::SequenceNumber;
use parking_lot::Mutex;

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
    /// Registers the newest visible sequence number. The number is read under the registry's lock, so that no compaction
    /// can read the live numbers between the reading and the registering.
    pub(crate) fn take(self: &Arc<Self>, visible: &AtomicU64) -> Snapshot {
        let mut live = self.live.lock();
        let sequence = visible.load(Ordering::Acquire);
        live.entry(sequence).or_insert_with(|| Held { count: 0, since: Instant::now() }).count += 1;
        drop(live);
        Snapshot(Arc::new(Registered { registry: self.clone(), sequence }))
    }

    /// The live sequence numbers, ascending.
    pub(crate) fn live(&self) -> Vec<SequenceNumber> {
        self.live.lock().keys().copied().collect()
    }

    /// The oldest live snapshot and the seconds since its number was first taken.
    pub(crate) fn oldest(&self) -> Option<(SequenceNumber, f64)> {
        self.live.lock().first_key_value().map(|(&sequence, held)| (sequence, held.since.elapsed().as_secs_f64()))
    }

    /// Every live sequence number, its handles, and the seconds since it was first taken; ascending.
    pub(crate) fn held(&self) -> Vec<(SequenceNumber, usize, f64)> {
        let live = self.live.lock();
        live.iter().map(|(&sequence, held)| (sequence, held.count, held.since.elapsed().as_secs_f64())).collect()
    }

    /// How many handles are live.
    pub(crate) fn count(&self) -> usize {
        self.live.lock().values().map(|held| held.count).sum()
    }
}

#[derive(Debug)]
struct Registered {
    registry: Arc<SnapshotRegistry>,
    sequence: SequenceNumber,
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
/// the compactions that follow.
#[derive(Clone, Debug)]
pub struct Snapshot(Arc<Registered>);

impl Snapshot {
    /// The newest sequence number that the snapshot sees.
    pub fn sequence(&self) -> SequenceNumber {
        self.0.sequence
    }

    pub(crate) fn belongs_to(&self, registry: &Arc<SnapshotRegistry>) -> bool {
        Arc::ptr_eq(&self.0.registry, registry)
    }
}
