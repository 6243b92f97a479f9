//! What is committed while a transaction validates without the commit lock.
//!
//! 1. A transaction that touched much adds a [`Watch`] of its footprint. Then it takes the newest sequence number that
//!    reads may see, and looks for entries up to that, however long it takes.
//! 2. Whoever commits publishes the sequence number and then, the commit lock still held, shows what was committed to
//!    all watches. So everything above the number that was taken after a watch was added is shown to it.
//! 3. Under the commit lock the transaction asks its watch. That takes O(1), whatever was committed.
//!
//! A bulk load shows no keys. A watch that met one says so, and entries are looked for again.
//!
//! Cost: of who commits, one uncontended lock a group where there is no watch; else O(log n) an operation and watch.

use std::sync::{Arc, Weak};

use mycelium_base::{Error, Result};

use super::footprint::Footprint;
use crate::sync::Mutex;

/// A footprint that is compared with what is committed.
pub(super) struct Watch {
    footprint: Arc<Footprint>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    conflict: Option<Error>,
    met_load: bool,
    is_decided: bool,
}

impl Watch {
    /// Whether there was a bulk load.
    pub(super) fn met_load(&self) -> bool {
        self.seen.lock().met_load
    }

    /// Whether everything that was committed since it was added was shown to it, and conflicts with nothing. Nothing is
    /// shown to it any more.
    ///
    /// # Errors
    /// `ErrorKind::Conflict` if something was shown to it that conflicts.
    pub(super) fn decide(&self) -> Result<bool> {
        let mut seen = self.seen.lock();
        seen.is_decided = true;
        match &seen.conflict {
            Some(conflict) => Err(conflict.duplicate()),
            None => Ok(!seen.met_load),
        }
    }

    /// Whether it need not be shown anything.
    fn is_settled(&self) -> bool {
        let seen = self.seen.lock();
        seen.is_decided || seen.conflict.is_some()
    }
}

/// The watches of the transactions that are being committed.
#[derive(Default)]
pub(crate) struct Watches(Mutex<Vec<Weak<Watch>>>);

impl Watches {
    /// Adds one, which is shown what is committed as long as it is kept.
    pub(super) fn add(&self, footprint: &Arc<Footprint>) -> Arc<Watch> {
        let watch = Arc::new(Watch { footprint: footprint.clone(), seen: Mutex::new(Seen::default()) });
        let mut all = self.0.lock();
        all.retain(|watch| watch.strong_count() > 0);
        all.push(Arc::downgrade(&watch));
        watch
    }

    /// Shows what was committed: `check` compares it with a footprint. The commit lock is held, and reads see it.
    pub(crate) fn show(&self, check: impl Fn(&Footprint) -> Result<()>) {
        self.each(|watch| {
            if let Err(conflict) = check(&watch.footprint) {
                watch.seen.lock().conflict = Some(conflict);
            }
        });
    }

    /// Tells of a bulk load. The commit lock is held, and reads see it.
    pub(crate) fn show_load(&self) {
        self.each(|watch| watch.seen.lock().met_load = true);
    }

    fn each(&self, show: impl Fn(&Watch)) {
        self.0.lock().retain(|watch| match watch.upgrade().filter(|watch| !watch.is_settled()) {
            Some(watch) => {
                show(&watch);
                true
            }
            None => false,
        });
    }
}
