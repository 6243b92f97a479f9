//! The locks of one transaction, in the order in which it took them.
//!
//! They are let go when this is dropped, the newest first, however the transaction ends: committed, rolled back,
//! dropped, or dropped by a panic. One that asked for none knows of no lock table.

use std::sync::Arc;
use std::time::Duration;

use mycelium_base::Result;

use super::{LockName, LockTable, Owner, Refusal};

/// How many locks a transaction may hold, and how long it waits for one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockLimits {
    pub(crate) count: usize,
    pub(crate) timeout: Duration,
}

/// The locks that a transaction holds.
#[derive(Default)]
pub(crate) struct HeldLocks(Option<Held>);

struct Held {
    locks: Arc<LockTable>,
    owner: Owner,
    /// Each once, in the order in which they were taken.
    names: Vec<Arc<LockName>>,
}

impl HeldLocks {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.as_ref().map_or(0, |held| held.names.len())
    }

    /// Takes a lock, or waits for it as long as it may and `check` does not fail. Whether it is held only now.
    pub(crate) fn take(
        &mut self,
        locks: &Arc<LockTable>,
        name: LockName,
        limits: LockLimits,
        check: impl Fn() -> Result<()>,
    ) -> Result<bool, Refusal> {
        let new = || Held { locks: locks.clone(), owner: locks.new_owner(), names: Vec::new() };
        let held = self.0.get_or_insert_with(new);
        if held.names.len() >= limits.count {
            return if held.names.iter().any(|own| **own == name) { Ok(false) } else { Err(Refusal::TooMany) };
        }
        let name = Arc::new(name);
        let is_new = held.locks.take(held.owner, &name, limits.timeout, check)?;
        if is_new {
            held.names.push(name);
        }
        Ok(is_new)
    }

    /// Lets go of all but the first `count`.
    pub(crate) fn truncate(&mut self, count: usize) {
        let Some(held) = &mut self.0 else { return };
        let kept = count.min(held.names.len());
        for name in held.names.drain(kept..).rev() {
            held.locks.release(&name);
        }
    }
}

impl Drop for HeldLocks {
    fn drop(&mut self) {
        self.truncate(0);
    }
}
