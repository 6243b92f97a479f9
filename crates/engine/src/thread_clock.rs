//! The CPU time of the current thread: what work costs, whatever else runs on the machine.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of CPU that the current thread has had. Differences count, and only within one thread.
pub(crate) fn thread_cpu_nanoseconds() -> u64 {
    let clock = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(clock.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(clock.tv_nsec).unwrap_or(0)
}
