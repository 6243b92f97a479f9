//! What tells the time of day. Nothing that a read answers depends on it: only when rows expire does, and what an
//! archived log and backups have for the time of a commit.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::sync::Mutex;

/// Tells the time of day. May be asked from any thread.
pub trait Clock: Send + Sync {
    /// What has passed since 1970-01-01T00:00:00 UTC.
    fn now(&self) -> Duration;
}

/// The clock of the machine. One that stands before 1970 is taken for 1970.
#[derive(Clone, Copy, Default, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// A clock that stands still until it is set: for tests.
#[derive(Default, Debug)]
pub struct ManualClock(Mutex<Duration>);

impl ManualClock {
    /// One that stands at this time.
    pub fn at(now: Duration) -> Self {
        Self(Mutex::new(now))
    }

    /// Sets it, forwards or back.
    pub fn set(&self, now: Duration) {
        *self.0.lock() = now;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        *self.0.lock()
    }
}
