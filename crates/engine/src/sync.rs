//! The lock of the snapshot registry: the usual one, or shuttle's where tests explore schedules.

#[cfg(not(feature = "schedule-tests"))]
pub(crate) use parking_lot::Mutex;

/// Shuttle's mutex in the shape of the usual one.
#[cfg(feature = "schedule-tests")]
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

#[cfg(feature = "schedule-tests")]
impl<T> Mutex<T> {
    pub(crate) fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
