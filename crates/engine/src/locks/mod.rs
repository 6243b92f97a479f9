//! Locks on keys of tables, for transactions that ask for them (decision 0090).
//!
//! 1. The lock table has shards, by the hash of what is locked. An entry says who holds the lock, and whether somebody
//!    may be waiting for it. A lock that is free is taken, and one that nobody waits for is let go, under the mutex of
//!    its shard alone.
//! 2. Who finds a lock taken joins its queue, under the one mutex of all queues (see `waits`), unless its waiting would
//!    close a circle: that is a deadlock, and it is told so at once.
//! 3. Who lets go of a lock that is awaited gives it to the first in its queue. It was never free in between: nobody
//!    gets past those who came before.
//! 4. A wait ends with the lock, at its deadline, or when what is locked is gone or the database closed. Who changes
//!    that wakes all who wait ([`LockTable::wake_all`]); they look for themselves.
//!
//! What is counted ([`LockCounters`]) is counted where somebody waits; how many locks are held is asked of the shards.
//!
//! An entry is removed with the lock, a queue with its last waiter: memory is that of the locks that are held. The
//! mutex of the queues may be held when that of a shard is taken, never the other way round. While either is held, no
//! other lock of the engine is taken but the one behind the error of a database that failed.

mod held;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mycelium_base::hash::hash_key;
use mycelium_base::{Error, Result, TableId};

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
pub(crate) use held::{HeldLocks, LockLimits};
use waits::{Waits, wait_for_turn};

const SHARDS: usize = 16;
/// Entries for which a shard keeps room when they are gone.
const KEPT_CAPACITY: usize = 64;

/// What is locked.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(crate) struct LockName {
    pub(crate) table: TableId,
    pub(crate) key: Vec<u8>,
}

/// A transaction that has asked for locks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Owner(u64);

/// Why a lock was not given.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The transaction holds as many as it may.
    TooMany,
    /// It was held for longer than was to be waited for.
    TimedOut,
    /// The locks of the circle that the wait would have closed. The first is the one that was asked for; the holder of
    /// each waits for the next, and the transaction itself holds the last.
    Deadlock(Vec<Arc<LockName>>),
    /// What is locked is gone, or nothing can be written any more.
    Failed(Error),
}

struct Holding {
    owner: Owner,
    /// Whether there is a queue, or was one since the lock became awaited.
    is_awaited: bool,
}

type Shard = HashMap<Arc<LockName>, Holding>;

/// Whose a lock is after it was claimed.
enum Claim {
    /// The claimant's from now on.
    Taken,
    /// The claimant's already.
    Own,
    HeldBy(Owner),
}

/// What became of those who found their lock taken, since the database was opened.
#[derive(Default)]
pub(crate) struct LockCounters {
    pub(crate) waits: AtomicU64,
    pub(crate) wait_nanoseconds: AtomicU64,
    pub(crate) deadlocks: AtomicU64,
    pub(crate) timeouts: AtomicU64,
}

impl LockCounters {
    /// Counts a wait that is over.
    fn add_wait(&self, took: Duration, outcome: &Result<(), Refusal>) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.wait_nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        let has_timed_out = matches!(outcome, Err(Refusal::TimedOut));
        self.timeouts.fetch_add(u64::from(has_timed_out), Ordering::Relaxed);
    }
}

/// All locks of a database.
#[derive(Default)]
pub(crate) struct LockTable {
    shards: [Mutex<Shard>; SHARDS],
    waits: Mutex<Waits>,
    owners: AtomicU64,
    pub(crate) counters: LockCounters,
}

impl LockTable {
    /// The number of locks that are held.
    pub(crate) fn held_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Has all who wait look whether there is still something to wait for. Called after that changed.
    pub(crate) fn wake_all(&self) {
        self.waits.lock().wake_all();
    }

    /// Whether a transaction holds the lock.
    pub(crate) fn is_held(&self, name: &LockName) -> bool {
        self.shard(name).lock().contains_key(name)
    }

    /// The number of transactions that wait.
    pub(crate) fn waiting_count(&self) -> usize {
        self.waits.lock().count()
    }

    fn new_owner(&self) -> Owner {
        Owner(self.owners.fetch_add(1, Ordering::Relaxed))
    }

    fn shard(&self, name: &LockName) -> &Mutex<Shard> {
        let hash = hash_key(&name.key).wrapping_add(u64::from(name.table.0));
        &self.shards[hash as usize % SHARDS]
    }

    /// Takes the lock if it is free. If it is not, its holder will look for a queue when it lets go, if `will_wait`.
    fn claim(&self, owner: Owner, name: &Arc<LockName>, will_wait: bool) -> Claim {
        let mut shard = self.shard(name).lock();
        match shard.entry(name.clone()) {
            Entry::Vacant(free) => {
                free.insert(Holding { owner, is_awaited: false });
                Claim::Taken
            }
            Entry::Occupied(mut held) => {
                let held = held.get_mut();
                if held.owner == owner {
                    return Claim::Own;
                }
                held.is_awaited |= will_wait;
                Claim::HeldBy(held.owner)
            }
        }
    }

    /// Takes a lock, or waits for it until `check` fails or the time is over; at once if it is zero. Whether the owner
    /// has it only now.
    fn take(
        &self,
        owner: Owner,
        name: &Arc<LockName>,
        timeout: Duration,
        check: impl Fn() -> Result<()>,
    ) -> Result<bool, Refusal> {
        match self.claim(owner, name, false) {
            Claim::Taken => return Ok(true),
            Claim::Own => return Ok(false),
            Claim::HeldBy(_) => {}
        }
        let began = Instant::now();
        let deadline = began.checked_add(timeout);
        let mut waits = self.waits.lock();
        match self.claim(owner, name, true) {
            Claim::Taken => Ok(true),
            Claim::Own => Ok(false),
            Claim::HeldBy(holder) => {
                let bell = waits.enqueue(owner, name, holder).inspect_err(|_| {
                    self.counters.deadlocks.fetch_add(1, Ordering::Relaxed);
                })?;
                let outcome = wait_for_turn(waits, owner, &bell, deadline, check);
                self.counters.add_wait(began.elapsed(), &outcome);
                outcome.map(|()| true)
            }
        }
    }

    /// Lets go of a lock that the caller holds: the first who waits for it has it from now on.
    fn release(&self, name: &Arc<LockName>) {
        if self.release_unawaited(name) {
            return;
        }
        let mut waits = self.waits.lock();
        let next = waits.grant(name);
        let mut shard = self.shard(name).lock();
        match next {
            Some((next, bell)) => {
                if let Some(held) = shard.get_mut(name) {
                    held.owner = next;
                }
                bell.notify_all();
            }
            None => remove(&mut shard, name),
        }
    }

    /// Lets go of a lock if nobody waits for it.
    fn release_unawaited(&self, name: &Arc<LockName>) -> bool {
        let mut shard = self.shard(name).lock();
        if shard.get(name).is_some_and(|held| held.is_awaited) {
            return false;
        }
        remove(&mut shard, name);
        true
    }
}

/// Removes an entry, and gives memory back when most of it is unused: in all O(1) for each entry that ever was.
fn remove(shard: &mut Shard, name: &Arc<LockName>) {
    shard.remove(name);
    let capacity = shard.capacity();
    if capacity > KEPT_CAPACITY && shard.len() < capacity / 8 {
        shard.shrink_to(capacity / 4);
    }
}
