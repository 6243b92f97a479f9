//! What is kept in memory of expiry: of a table what its rows expire by now, and when they were last gone through; of
//! the database which passes are being made.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;

use super::definition::Expiry;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Of one table.
pub(crate) struct TableExpiry {
    present: ArcSwapOption<Expiry>,
    /// When the last pass began, by the database's clock; none since the database was opened or this was changed.
    last_pass: Mutex<Option<Duration>>,
}

impl TableExpiry {
    pub(crate) fn new(expiry: Option<Expiry>) -> Self {
        Self { present: ArcSwapOption::from_pointee(expiry), last_pass: Mutex::new(None) }
    }

    /// What rows expire by now.
    pub(crate) fn present(&self) -> Option<Arc<Expiry>> {
        self.present.load_full()
    }

    /// From now on rows expire by this; a pass is due.
    pub(crate) fn set(&self, expiry: Option<Expiry>) {
        self.present.store(expiry.map(Arc::new));
        self.forget_pass();
    }

    /// How long it is until a pass is due; `None` if rows do not expire. A clock that was set back has passes made at
    /// once.
    pub(crate) fn due_in(&self, now: Duration, interval: Duration) -> Option<Duration> {
        self.present.load().as_ref()?;
        Some(until_due(*self.last_pass.lock(), now, interval))
    }

    /// A pass begins now.
    pub(crate) fn begin(&self, now: Duration) {
        *self.last_pass.lock() = Some(now);
    }

    /// If a pass is due it begins now, and nobody else begins it.
    pub(crate) fn begin_if_due(&self, now: Duration, interval: Duration) -> bool {
        let mut last_pass = self.last_pass.lock();
        let is_due = self.present.load().is_some() && until_due(*last_pass, now, interval).is_zero();
        if is_due {
            *last_pass = Some(now);
        }
        is_due
    }

    /// The last pass was in vain: another one is due.
    pub(crate) fn forget_pass(&self) {
        *self.last_pass.lock() = None;
    }
}

fn until_due(last_pass: Option<Duration>, now: Duration, interval: Duration) -> Duration {
    match last_pass.filter(|last| *last <= now) {
        Some(last) => last.saturating_add(interval).saturating_sub(now),
        None => Duration::ZERO,
    }
}

/// Of the database.
#[derive(Default)]
pub(crate) struct Passes {
    running: AtomicUsize,
    /// Whether the thread that makes them is to end.
    is_ending: AtomicBool,
    /// Held while rows are deleted that a pass judged, and while what they are judged by changes: once it has changed
    /// nothing is deleted by what it was. Taken before all other locks.
    pub(crate) deleting: Mutex<()>,
}

impl Passes {
    /// Counts a pass for as long as the result lives.
    pub(crate) fn begin(&self) -> RunningPass<'_> {
        self.running.fetch_add(1, Ordering::AcqRel);
        RunningPass(&self.running)
    }

    /// Whether a pass is being made.
    pub(crate) fn are_running(&self) -> bool {
        self.running.load(Ordering::Acquire) > 0
    }

    /// The thread that makes them is to end.
    pub(crate) fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
    }

    pub(crate) fn are_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }
}

/// See [`Passes::begin`].
pub(crate) struct RunningPass<'a>(&'a AtomicUsize);

impl Drop for RunningPass<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_due_an_interval_after_the_last_one_began_and_begun_once() {
        let seconds = Duration::from_secs;
        let interval = seconds(60);
        let table = TableExpiry::new(None);
        assert_eq!(table.due_in(seconds(5), interval), None);
        assert!(!table.begin_if_due(seconds(5), interval));
        table.set(Some(Expiry::new("at", seconds(1))));
        assert_eq!(table.due_in(seconds(5), interval), Some(Duration::ZERO));
        assert!(table.begin_if_due(seconds(5), interval));
        assert!(!table.begin_if_due(seconds(5), interval), "somebody else has begun it");
        assert_eq!(table.due_in(seconds(25), interval), Some(seconds(40)));
        assert!(!table.begin_if_due(seconds(64), interval));
        assert!(table.begin_if_due(seconds(65), interval));
        assert!(table.begin_if_due(seconds(3), interval), "the clock was set back");
        table.forget_pass();
        assert!(table.begin_if_due(seconds(4), interval));
        table.set(None);
        assert_eq!(table.due_in(seconds(1000), interval), None);
    }
}
