//! Who waits for which lock, and for whom.
//!
//! 1. A transaction waits for one lock at a time, and a lock has one holder. So from whoever is waited for there is one
//!    way on through the graph of waits, and looking for a circle is walking it: from lock to holder to the lock that
//!    this waits for, until one waits for nothing, or is the one who asks.
//! 2. It is walked before a waiter is added. A circle comes of an added wait alone: who is given a lock waits for
//!    nothing then, and the others in the queue wait for it instead of for the one before.
//! 3. Who stands before others in a queue needs no edge of its own: it waits for the same holder as they do, and for
//!    nothing else.
//!
//! All of it is under one mutex, so that the graph that is walked is that of one moment. It is taken only where a lock
//! is awaited.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use mycelium_base::Result;

use super::{LockName, Owner, Refusal};
use crate::sync::{Condvar, MutexGuard};

/// Those who wait for a lock, the first come first; never empty.
struct Queue {
    holder: Owner,
    waiters: VecDeque<Owner>,
}

struct Waiter {
    name: Arc<LockName>,
    /// Rung when the waiter is one no more, and when it is to look again.
    bell: Arc<Condvar>,
}

/// The graph of waits.
#[derive(Default)]
pub(super) struct Waits {
    queues: HashMap<Arc<LockName>, Queue>,
    waiters: HashMap<Owner, Waiter>,
}

impl Waits {
    /// Adds `owner` to those who wait for a lock that `holder` has.
    pub(super) fn enqueue(
        &mut self,
        owner: Owner,
        name: &Arc<LockName>,
        holder: Owner,
    ) -> Result<Arc<Condvar>, Refusal> {
        if let Some(circle) = self.circle(owner, name, holder) {
            return Err(Refusal::Deadlock(circle));
        }
        let queue = self.queues.entry(name.clone());
        queue.or_insert_with(|| Queue { holder, waiters: VecDeque::new() }).waiters.push_back(owner);
        let bell = Arc::<Condvar>::default();
        self.waiters.insert(owner, Waiter { name: name.clone(), bell: bell.clone() });
        Ok(bell)
    }

    /// The locks on the way from `name` back to `owner`, if there is one.
    fn circle(&self, owner: Owner, name: &Arc<LockName>, mut holder: Owner) -> Option<Vec<Arc<LockName>>> {
        let mut circle = vec![name.clone()];
        while holder != owner {
            let next = &self.waiters.get(&holder)?.name;
            circle.push(next.clone());
            holder = self.queues.get(next)?.holder;
        }
        Some(circle)
    }

    /// Gives a lock to the first who waits for it. The caller rings the bell.
    pub(super) fn grant(&mut self, name: &Arc<LockName>) -> Option<(Owner, Arc<Condvar>)> {
        let queue = self.queues.get_mut(name)?;
        let next = queue.waiters.pop_front()?;
        queue.holder = next;
        if queue.waiters.is_empty() {
            self.queues.remove(name);
        }
        self.waiters.remove(&next).map(|waiter| (next, waiter.bell))
    }

    /// Takes a waiter out of its queue.
    fn give_up(&mut self, owner: Owner) {
        let Some(waiter) = self.waiters.remove(&owner) else { return };
        let Some(queue) = self.queues.get_mut(&waiter.name) else { return };
        queue.waiters.retain(|other| *other != owner);
        if queue.waiters.is_empty() {
            self.queues.remove(&waiter.name);
        }
    }

    pub(super) fn wake_all(&self) {
        for waiter in self.waiters.values() {
            waiter.bell.notify_all();
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.waiters.is_empty()
    }

    /// How many wait.
    pub(super) fn count(&self) -> usize {
        self.waiters.len()
    }
}

/// Waits until `owner` has the lock for which it waits, the deadline is over or `check` fails. Who was given the lock
/// has it, however late it looks.
pub(super) fn wait_for_turn(
    mut waits: MutexGuard<'_, Waits>,
    owner: Owner,
    bell: &Condvar,
    deadline: Option<Instant>,
    check: impl Fn() -> Result<()>,
) -> Result<(), Refusal> {
    while waits.waiters.contains_key(&owner) {
        let refusal = match check() {
            Err(error) => Some(Refusal::Failed(error)),
            Ok(()) if deadline.is_some_and(|deadline| deadline <= Instant::now()) => Some(Refusal::TimedOut),
            Ok(()) => None,
        };
        if let Some(refusal) = refusal {
            waits.give_up(owner);
            return Err(refusal);
        }
        match deadline {
            Some(deadline) => drop(bell.wait_until(&mut waits, deadline)),
            None => bell.wait(&mut waits),
        }
    }
    Ok(())
}
