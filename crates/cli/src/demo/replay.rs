//! The threads of the demo: one writes the stream, one reads points beside it, one analyses.
//!
//! 1. The writer commits the operations in order, [`BATCH_OPERATIONS`] to a batch. A batch also ends where an instant
//!    that answers are wanted for is reached: the snapshot taken there holds exactly the changes up to that instant.
//!    Such instants are the two held snapshots' and the months' beginnings; for the live view, in place of the months,
//!    whenever the analyst is idle.
//! 2. The reader gets random flights that were inserted already, a burst a millisecond, and checks what it finds.
//! 3. The analyst asks all questions in SQL at each snapshot and compares the answers with the straight computation.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mycelium::{Durability, ReadOptions, Snapshot, WriteBatch};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::answers::{Answers, Content, snapshot_times};
use super::event_time::EventTime;
use super::flight::{Flight, FlightRow};
use super::oracle::Oracle;
use super::questions::{Analyst, Times};
use super::store::Store;
use super::stream::StreamOperation;
use crate::failure::Failure;

/// Operations of a batch.
const BATCH_OPERATIONS: usize = 256;
/// Point reads of a burst, and the pause after it: reads come all the time and leave the writer its core.
const BURST_READS: usize = 16;
const BURST_PAUSE: Duration = Duration::from_millis(1);
/// The least time between two answers for the live view.
const LIVE_PAUSE: Duration = Duration::from_millis(300);

/// Locks; a thread that panicked ends the demo anyway.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Set once, when threads must end.
#[derive(Default)]
pub(super) struct Stop {
    set: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    pub(super) fn set(&self) {
        *lock(&self.set) = true;
        self.changed.notify_all();
    }

    /// Waits for as long as the time given; whether it was set.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let set = lock(&self.set);
        match self.changed.wait_timeout_while(set, time, |set| !*set) {
            Ok((set, _)) => *set,
            Err(_) => true,
        }
    }

    pub(super) fn is_set(&self) -> bool {
        *lock(&self.set)
    }
}

/// Why answers are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Occasion {
    /// A month of event time begins.
    Month,
    /// The snapshot with this name is held from now on.
    Held(&'static str),
    /// The live view.
    Live,
}

/// An instant that was reached, and the state at it.
pub(super) struct Moment {
    pub(super) occasion: Occasion,
    pub(super) at: EventTime,
    /// Operations of the stream up to it.
    pub(super) position: usize,
    pub(super) snapshot: Snapshot,
}

/// What the analyst found at a moment.
pub(super) struct Finding {
    pub(super) occasion: Occasion,
    pub(super) position: usize,
    pub(super) snapshot: Snapshot,
    pub(super) answers: Answers,
    pub(super) expected: Answers,
    pub(super) content: Content,
    /// How long each question took, if the stream was being written until after the last of them.
    pub(super) times: Option<Times>,
}

/// What the threads share.
pub(super) struct Replay<'a> {
    pub(super) store: &'a Store,
    pub(super) analyst: &'a Analyst,
    pub(super) flights: &'a [Flight],
    pub(super) operations: &'a [StreamOperation],
    pub(super) oracle: &'a Oracle,
    pub(super) durability: Durability,
    /// Whether answers are shown as they change, rather than a line a month.
    pub(super) live: bool,
    /// The least time the replay takes.
    pub(super) pace: Duration,
    pub(super) started: Instant,
    /// Operations committed.
    pub(super) written: AtomicU64,
    /// Event time reached, in minutes.
    pub(super) now: AtomicI64,
    /// Set when a thread failed, or the work is done.
    pub(super) stop: Stop,
    /// Whether the analyst waits for something to do.
    pub(super) live_wanted: AtomicBool,
    pub(super) latencies: Mutex<Histogram<u64>>,
    /// Point reads that did not find what was written.
    pub(super) wrong_reads: AtomicU64,
}

impl Replay<'_> {
    /// Writes the whole stream. Moments go to the analyst in order; the channel closes at the end.
    pub(super) fn write(&self, moments: Sender<Moment>) -> Result<(), Failure> {
        let mut fixed = self.fixed_moments();
        let mut batch = WriteBatch::new();
        let mut pending = 0;
        for (position, operation) in self.operations.iter().enumerate() {
            let now = EventTime(self.now.load(Ordering::Relaxed));
            if operation.time() > now {
                let reached = fixed.front().is_some_and(|(at, _)| operation.time() > *at);
                let live = self.live_wanted.load(Ordering::Relaxed);
                if reached || live || pending >= BATCH_OPERATIONS {
                    self.commit(&mut batch, position)?;
                    pending = 0;
                }
                while let Some((at, occasion)) = fixed.pop_front_if(|(at, _)| operation.time() > *at) {
                    self.announce(&moments, occasion, at, position);
                }
                if live && !reached && position > 0 {
                    self.live_wanted.store(false, Ordering::Relaxed);
                    self.announce(&moments, Occasion::Live, now, position);
                }
                self.now.store(operation.time().0, Ordering::Relaxed);
            }
            self.store.add(&mut batch, &self.flights[operation.flight()], operation.change())?;
            pending += 1;
            if pending >= BATCH_OPERATIONS {
                self.commit(&mut batch, position + 1)?;
                pending = 0;
                if self.stop.is_set() {
                    return Ok(());
                }
            }
        }
        self.commit(&mut batch, self.operations.len())
    }

    /// The instants that are always answered for, in order.
    fn fixed_moments(&self) -> VecDeque<(EventTime, Occasion)> {
        let (Some(first), Some(last)) = (self.operations.first(), self.operations.last()) else {
            return VecDeque::new();
        };
        let months = std::iter::successors(Some(first.time().next_month()), |month| Some(month.next_month()));
        let months =
            months.take_while(|month| !self.live && *month < last.time()).map(|month| (month, Occasion::Month));
        let held = snapshot_times().into_iter().filter(|(_, at)| *at < last.time());
        let mut moments: Vec<_> = months.chain(held.map(|(name, at)| (at, Occasion::Held(name)))).collect();
        moments.sort_by_key(|(at, _)| *at);
        moments.into()
    }

    fn announce(&self, moments: &Sender<Moment>, occasion: Occasion, at: EventTime, position: usize) {
        let moment = Moment { occasion, at, position, snapshot: self.store.database.snapshot() };
        if moments.send(moment).is_err() {
            // The analyst failed and says why.
            self.stop.set();
        }
    }

    fn commit(&self, batch: &mut WriteBatch, position: usize) -> Result<(), Failure> {
        if !batch.is_empty() {
            self.store.database.write(batch, self.durability)?;
            batch.clear();
        }
        self.written.store(position as u64, Ordering::Release);
        let due = self.pace.mul_f64(position as f64 / self.operations.len().max(1) as f64);
        if let Some(early) = due.checked_sub(self.started.elapsed()) {
            self.stop.wait(early);
        }
        Ok(())
    }

    /// Reads points until told to stop.
    pub(super) fn read_points(&self) -> Result<(), Failure> {
        let mut rng = SmallRng::seed_from_u64(1);
        let options = ReadOptions::default();
        let mut burst = Vec::with_capacity(BURST_READS);
        while !self.stop.wait(BURST_PAUSE) {
            let written = self.written.load(Ordering::Acquire) as usize;
            if written == 0 {
                continue;
            }
            for _ in 0..BURST_READS {
                let flight = &self.flights[self.operations[rng.random_range(0..written)].flight()];
                let before = Instant::now();
                let found = self.store.get(&flight.0.key, &options)?;
                burst.push(u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX));
                if !found.is_some_and(|row| is_a_state_of(&row, flight)) {
                    self.wrong_reads.fetch_add(1, Ordering::Relaxed);
                }
            }
            let mut latencies = lock(&self.latencies);
            burst.drain(..).for_each(|nanoseconds| latencies.saturating_record(nanoseconds));
        }
        Ok(())
    }

    /// Computes and compares answers, moment by moment, until the writer has ended.
    pub(super) fn analyse(&self, moments: &Receiver<Moment>, findings: &Sender<Finding>) -> Result<(), Failure> {
        while let Some(Moment { occasion, at, position, snapshot }) = self.next_moment(moments) {
            let (answers, times) = self.analyst.ask(&snapshot, at)?;
            let times = self.is_writing().then_some(times);
            let content = self.store.content(&snapshot)?;
            let expected = self.oracle.answers(at);
            if findings.send(Finding { occasion, position, snapshot, answers, expected, content, times }).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn is_writing(&self) -> bool {
        (self.written.load(Ordering::Relaxed) as usize) < self.operations.len()
    }

    /// The next moment; in the live view one is asked for when there is none for a while.
    fn next_moment(&self, moments: &Receiver<Moment>) -> Option<Moment> {
        if self.live {
            match moments.recv_timeout(LIVE_PAUSE) {
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => self.live_wanted.store(true, Ordering::Relaxed),
                other => return other.ok(),
            }
        }
        moments.recv().ok()
    }
}

/// Whether the row is what the table holds of the flight at some instant: the schedule, and each later change wholly or
/// not at all.
fn is_a_state_of(row: &FlightRow, flight: &Flight) -> bool {
    let end = &flight.0;
    let departed = (row.dep_time, row.dep_delay) == (end.dep_time, end.dep_delay);
    let arrived = (row.arr_time, row.arr_delay, row.air_time) == (end.arr_time, end.arr_delay, end.air_time);
    let schedule = FlightRow {
        dep_time: None,
        dep_delay: None,
        arr_time: None,
        arr_delay: None,
        air_time: None,
        cancelled: false,
        ..*row
    };
    schedule == flight.schedule()
        && (departed || (row.dep_time, row.dep_delay) == (None, None))
        && (arrived || (row.arr_time, row.arr_delay, row.air_time) == (None, None, None))
        && (!row.cancelled || end.cancelled)
}
