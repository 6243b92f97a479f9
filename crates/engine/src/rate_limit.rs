//! The rate limit of background work: flushes, compactions and bulk loads together write so many bytes a second, and
//! flushes go first.
//!
//! A token bucket without a store of tokens, kept as two points in time:
//!
//! 1. Bytes written cost their number over the rate, in seconds. Who wrote them goes on at once if all that it has to
//!    wait for is paid, and owes its own bytes to those who come after it.
//! 2. A flush waits until the flushes before it are paid, and for nothing else: writers wait for flushes, so a flush
//!    must not stand behind what compactions owe.
//! 3. A compaction, or a bulk load, waits until everything before it is paid, flushes included. What a flush took ahead
//!    of its turn is thereby taken from them, and over any longer time the limit holds for all together.
//!
//! A flush therefore exceeds the limit only by what the jobs of the other priority were admitted to at that moment: one
//! report (some 256 KiB) each. Should flushes alone use up the rate, compactions stand still until level 0 stops the
//! writers, and with them the flushes.

use std::time::{Duration, Instant};

use crate::database::Inner;
use crate::options::Background;
use crate::sync::Mutex;

/// Who writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WritePriority {
    /// A flush, for which writers may be waiting.
    Flush,
    /// A compaction or a bulk load.
    Compaction,
}

/// See the module.
pub(crate) struct RateLimiter {
    bytes_per_second: Option<u64>,
    paid: Mutex<Paid>,
}

/// When bytes admitted so far will have been paid for; `None` before the first.
#[derive(Default)]
struct Paid {
    flushes_until: Option<Instant>,
    all_until: Option<Instant>,
}

impl RateLimiter {
    pub(crate) fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, paid: Mutex::new(Paid::default()) }
    }

    /// Charges `bytes` written by `now`; how long their writer has to wait before it goes on.
    pub(crate) fn admit(&self, priority: WritePriority, bytes: u64, now: Instant) -> Option<Duration> {
        let rate = self.bytes_per_second?;
        let cost = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        let mut paid = self.paid.lock();
        let begin = |until: Option<Instant>| until.map_or(now, |until| until.max(now));
        let (flushes, all) = (begin(paid.flushes_until), begin(paid.all_until));
        paid.all_until = Some(all + cost);
        let start = match priority {
            WritePriority::Flush => {
                paid.flushes_until = Some(flushes + cost);
                flushes
            }
            WritePriority::Compaction => all,
        };
        (start > now).then(|| start - now)
    }
}

impl Inner {
    /// Waits as the rate limit demands before the work that wrote `bytes` goes on; at once in manual mode.
    pub(crate) fn limit_rate(&self, priority: WritePriority, bytes: u64) {
        let now = Instant::now();
        let Some(pause) = self.limiter.admit(priority, bytes, now) else { return };
        if self.options.background != Background::Manual {
            self.signals.pause(now + pause, || self.signals.is_shutting_down());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::WritePriority::{Compaction, Flush};
    use super::*;

    /// Waits by a clock that the test turns.
    struct Turned {
        limiter: RateLimiter,
        start: Instant,
    }

    impl Turned {
        fn new(bytes_per_second: u64) -> Self {
            Self { limiter: RateLimiter::new(Some(bytes_per_second)), start: Instant::now() }
        }

        /// Whole milliseconds to wait at a time given in milliseconds.
        fn admit(&self, priority: WritePriority, bytes: u64, at: u64) -> u64 {
            let now = self.start + Duration::from_millis(at);
            self.limiter.admit(priority, bytes, now).map_or(0, |pause| pause.as_micros().div_ceil(1000) as u64)
        }
    }

    #[test]
    fn a_flush_does_not_wait_for_what_a_compaction_owes() {
        let clock = Turned::new(1000);
        assert_eq!(clock.admit(Compaction, 10_000, 0), 0);
        assert_eq!(clock.admit(Compaction, 1000, 0), 10_000);
        assert_eq!(clock.admit(Flush, 2000, 0), 0);
        // Flushes do wait for each other, and compactions for all.
        assert_eq!(clock.admit(Flush, 500, 0), 2000);
        assert_eq!(clock.admit(Flush, 500, 2000), 500);
        assert_eq!(clock.admit(Compaction, 1000, 2000), 12_000);
        // What is paid is forgotten, and nothing is saved up.
        assert_eq!(clock.admit(Flush, 500, 60_000), 0);
        assert_eq!(clock.admit(Compaction, 500, 60_000), 500);
        assert_eq!(RateLimiter::new(None).admit(Compaction, u64::MAX, Instant::now()), None);
    }

    /// Two compactions that always have work beside flushes that now and then have some, by a turned clock.
    #[test]
    fn both_priorities_together_keep_to_the_rate() {
        const RATE: u64 = 1 << 20;
        const REPORT: u64 = 64 << 10;
        const MINUTE: u64 = 60_000;
        let clock = Turned::new(RATE);
        // When each job goes on, and what it wrote: the flushes, and two compactions.
        let (mut free_at, mut written, mut slowest) = ([0_u64; 3], [0_u64; 3], 0);
        loop {
            let job = (0..free_at.len()).min_by_key(|&job| free_at[job]).unwrap_or_default();
            let at = free_at[job];
            if at >= MINUTE {
                break;
            }
            let priority = if job == 0 { Flush } else { Compaction };
            let pause = clock.admit(priority, REPORT, at);
            written[job] += REPORT;
            // A flush has 4 reports to write every second; alone it would be given 16.
            let idle = if job == 0 && (written[0] / REPORT).is_multiple_of(4) { 1000 } else { 0 };
            if job == 0 {
                slowest = slowest.max(pause);
            }
            free_at[job] = at + pause + idle;
        }
        let total: u64 = written.iter().sum();
        let allowed = RATE * MINUTE / 1000;
        println!("written {written:?} of {allowed}, longest wait of a flush {slowest} ms");
        assert!(total.abs_diff(allowed) <= 8 * REPORT, "{total} of {allowed}");
        assert!(slowest <= 1000 * REPORT / RATE + 1, "a flush waited {slowest} ms");
        assert!(written[0] >= 45 * 4 * REPORT, "flushes wrote {} bytes", written[0]);
        assert!(written[1].abs_diff(written[2]) <= 4 * REPORT);
    }
}
