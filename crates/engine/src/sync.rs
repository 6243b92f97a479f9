//! Locks, waits and atomics: the usual ones, or shuttle's where tests explore schedules.

#[cfg(not(feature = "schedule-tests"))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
#[cfg(not(feature = "schedule-tests"))]
pub(crate) use std::sync::atomic;

#[cfg(feature = "schedule-tests")]
pub(crate) use drawn::{Condvar, Mutex, MutexGuard};
#[cfg(feature = "schedule-tests")]
pub(crate) use shuttle::sync::atomic;

/// Shuttle's locks in the shape of the usual ones.
#[cfg(feature = "schedule-tests")]
mod drawn {
    use std::ops::{Deref, DerefMut};
    use std::sync::TryLockError;
    use std::time::{Duration, Instant};

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    /// A guard that a [`Condvar`] can take the lock from and give it back to.
    #[derive(Debug)]
    pub(crate) struct MutexGuard<'a, T> {
        mutex: &'a Mutex<T>,
        held: Option<shuttle::sync::MutexGuard<'a, T>>,
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        fn held(&self) -> shuttle::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard { mutex: self, held: Some(self.held()) }
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            let held = match self.0.try_lock() {
                Ok(held) => held,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return None,
            };
            Some(MutexGuard { mutex: self, held: Some(held) })
        }

        pub(crate) fn into_inner(self) -> T {
            self.0.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.held.as_ref().expect("the lock is only away within a wait")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.held.as_mut().expect("the lock is only away within a wait")
        }
    }

    /// Every wait may end at once: what callers must expect of a condition variable anyway.
    #[derive(Debug, Default)]
    pub(crate) struct Condvar;

    pub(crate) struct TimedOut;

    impl TimedOut {
        pub(crate) fn timed_out(&self) -> bool {
            true
        }
    }

    impl Condvar {
        pub(crate) fn notify_all(&self) {}

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            guard.held = None;
            shuttle::thread::yield_now();
            guard.held = Some(guard.mutex.held());
        }

        pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> TimedOut {
            self.wait(guard);
            TimedOut
        }

        pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _: Instant) -> TimedOut {
            self.wait(guard);
            TimedOut
        }
    }
}
