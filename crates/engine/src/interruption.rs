//! Interruption: the thread that flushes may be at another job, which makes way for a flush.
//!
//! Flushes come first, since writers wait for them, and they come in bursts: a thread that is kept for them alone is
//! idle for most of the time, while compactions queue for the others. So it takes jobs that it can interrupt:
//!
//! 1. Such a job asks at known points whether a flush waits, or files are to be removed ([`Inner::give_way`]): a
//!    compaction with every 256 KiB that it has written, the building of an index also with every 1,024 keys that it
//!    has read. A wait that the rate limit demands of it is such a point throughout ([`Inner::limit_job`]).
//! 2. If so it is done there and then, in the same thread, as by any other: one flush, or one removal of all that is to
//!    be removed. Neither begins another job, so that there are never more than two in one thread; and since each point
//!    makes way for one at most, the interrupted job goes on however many there are.
//! 3. A flush that fails is told of, and latches, before the interrupted job hears of it, whatever becomes of that. It
//!    ends that job too: outputs that are removed may be the space that the flush lacks, which is tried again.
//! 4. A job that fails leaves the flush to be picked next, as one that ends does. The pause after one that met a
//!    shortage ends for a flush, unless flushes meet it themselves.
//!
//! At these points a job holds no lock, so that the flush takes its own in the usual order; to the manifest it is like
//! one of another thread. While the database is being closed nothing is interrupted: the log holds what waits.
//!
//! A flush waits for an interruptible job as long as this takes from one point to the next: for 256 KiB of outputs, and
//! the reading of what is dropped between them; for the sync of a compaction's last outputs, and its edit; for the
//! sorting and writing of one chunk of an index that is built, a quarter of the memory budget and at most 64 MiB.

use std::time::Instant;

use mycelium_base::{Error, Result};

use crate::database::Inner;
use crate::options::Background;
use crate::rate_limit::WritePriority;

/// Whether a job makes way for flushes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Interruption {
    /// Others see to flushes, or a caller waits for the job.
    Never,
    /// The thread is the one that flushes.
    ByFlushes,
}

impl Inner {
    /// A point at which a job can be interrupted: does what is urgent. Its failure is to end the job.
    pub(crate) fn give_way(&self, interruption: Interruption) -> Result<()> {
        if interruption == Interruption::Never || self.signals.is_shutting_down() || !self.has_urgent_work() {
            return Ok(());
        }
        let outcome = self.caught(|| self.run_urgent());
        outcome.map(drop).map_err(|error| {
            Error::new(error.kind(), "a job ended with the flush that it made way for").caused_by(error)
        })
    }

    /// As [`Inner::limit_rate`] of a compaction, for a job that can be interrupted at this point, and while it waits.
    pub(crate) fn limit_job(&self, interruption: Interruption, bytes: u64) -> Result<()> {
        if interruption == Interruption::Never {
            self.limit_rate(WritePriority::Compaction, bytes);
            return Ok(());
        }
        let now = Instant::now();
        let until = self.limiter.admit(WritePriority::Compaction, bytes, now).map(|pause| now + pause);
        loop {
            let seen = self.signals.count();
            self.give_way(interruption)?;
            let Some(until) = until.filter(|until| *until > Instant::now()) else { return Ok(()) };
            if self.options.background == Background::Manual || self.signals.is_shutting_down() {
                return Ok(());
            }
            self.signals.pause_after(seen, until);
        }
    }
}
