//! How writers are held back: not at all, slowed to a rate, or stopped.
//!
//! 1. Whenever versions change, the load of their tables is looked at: how many runs of level 0 lie over each other,
//!    and the compaction debt. Each has a limit at which writers are slowed and one at which they stop; the worst table
//!    of all decides, for which only those over a limit need be known. *Pressure* says how far the load is on its way
//!    from the one limit (0) to the other (1). A table that is compacted only when level 0 has many runs may have twice
//!    as many as that before its writers are slowed: they would wait for nothing.
//! 2. Slowed writers together may write so many bytes a second. The rate begins at
//!    [`crate::Options::slowed_bytes_per_second`], its upper bound. With every change of versions it falls by a fifth
//!    if the pressure has grown since the last change, and rises by a quarter if the pressure has fallen: so it finds
//!    what compaction sustains. In the last quarter before the stop it falls by two fifths, and does not rise.
//! 3. A group of batches costs its bytes over the rate, and waits until the groups before it are paid for. A pause of
//!    less than 1 ms is not made but owed; one lasts at most 1 s, after which the rate of that time counts. It ends
//!    early when no table is over its limit any more; the next slowdown then begins at 1.4 times the rate at which this
//!    one ended.
//! 4. A stopped writer waits until the load is below the limit again.
//!
//! Steps 2 and 3 are RocksDB's delayed write rate. In [`Background::Manual`] nothing waits: a slowed writer runs one
//! job, a stopped one as many as it takes.

use std::time::{Duration, Instant};

use mycelium_base::Result;

use crate::core::Core;
use crate::database::Inner;
use crate::events::{Event, StallCause};
use crate::options::{Background, Options, sizes};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::table::TableShared;

/// The rate is never less than this part of the one it begins with.
const LEAST_PART: f64 = 1.0 / 64.0;
const GROWN: f64 = 0.8;
const GROWN_NEAR_STOP: f64 = 0.6;
const FALLEN: f64 = 1.25;
const RELIEVED: f64 = 1.4;
/// The pressure from which on a stop is near.
const NEAR_STOP: f64 = 0.75;

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How writers are held back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
enum Throttle {
    None = 0,
    SlowedByLevel0 = 1,
    SlowedByDebt = 2,
    StoppedByLevel0 = 3,
    StoppedByDebt = 4,
}

impl Throttle {
    fn from_u8(code: u8) -> Self {
        match code {
            1 => Self::SlowedByLevel0,
            2 => Self::SlowedByDebt,
            3 => Self::StoppedByLevel0,
            4 => Self::StoppedByDebt,
            _ => Self::None,
        }
    }

    fn cause(self) -> StallCause {
        match self {
            Self::SlowedByDebt | Self::StoppedByDebt => StallCause::Debt,
            _ => StallCause::Level0Runs,
        }
    }

    fn is_stop(self) -> bool {
        self >= Self::StoppedByLevel0
    }
}

/// What of a table bears on its writers.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Runs that lie over each other.
    level0_runs: usize,
    /// With so many, level 0 is compacted.
    level0_trigger: usize,
    debt_bytes: u64,
}

impl Load {
    fn of(table: &TableShared) -> Self {
        let state = table.state.load();
        let version = &state.tree.version;
        Self {
            level0_runs: version.level(0).depth(),
            level0_trigger: sizes(&table.definition.options).level0_trigger,
            debt_bytes: table.shape.load().policy(version).debt_bytes(version),
        }
    }

    /// Runs of level 0, as they are held against limits that begin at `slowdown`.
    fn counted_runs(self, slowdown: usize) -> usize {
        let spared = self.level0_trigger.saturating_mul(2).saturating_sub(slowdown);
        self.level0_runs.saturating_sub(spared)
    }
}

/// The limits of all tables and what follows from their loads.
pub(crate) struct WriteStalls {
    slowdown_level0_runs: usize,
    stop_level0_runs: usize,
    slowdown_debt_bytes: u64,
    /// A [`Throttle`].
    throttle: AtomicU8,
    rate: Mutex<Rate>,
}

impl WriteStalls {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            slowdown_level0_runs: options.slowdown_level0_runs,
            stop_level0_runs: options.stop_level0_runs,
            slowdown_debt_bytes: options.slowdown_debt_bytes,
            throttle: AtomicU8::new(Throttle::None as u8),
            rate: Mutex::new(Rate::new(options.slowed_bytes_per_second)),
        }
    }

    /// Decides how writers are held back; told of the loads of all tables that are over a limit after every change of
    /// versions.
    fn update(&self, loads: impl Iterator<Item = Load>) {
        let (mut throttle, mut pressure) = (Throttle::None, 0.0_f64);
        for load in loads {
            throttle = throttle.max(self.throttle_of(load));
            pressure = pressure.max(self.pressure_of(load));
        }
        self.rate.lock().adapt((throttle != Throttle::None).then_some(pressure));
        self.throttle.store(throttle as u8, Ordering::Release);
    }

    fn throttle_of(&self, load: Load) -> Throttle {
        let runs = load.counted_runs(self.slowdown_level0_runs);
        if runs >= self.stop_level0_runs {
            Throttle::StoppedByLevel0
        } else if load.debt_bytes >= self.stop_debt_bytes() {
            Throttle::StoppedByDebt
        } else if runs >= self.slowdown_level0_runs {
            Throttle::SlowedByLevel0
        } else if load.debt_bytes >= self.slowdown_debt_bytes {
            Throttle::SlowedByDebt
        } else {
            Throttle::None
        }
    }

    fn stop_debt_bytes(&self) -> u64 {
        self.slowdown_debt_bytes.saturating_mul(4)
    }

    fn pressure_of(&self, load: Load) -> f64 {
        let part = |load: u64, slowdown: u64, stop: u64| {
            (load as f64 - slowdown as f64) / stop.saturating_sub(slowdown).max(1) as f64
        };
        let counted = load.counted_runs(self.slowdown_level0_runs) as u64;
        let runs = part(counted, self.slowdown_level0_runs as u64, self.stop_level0_runs as u64);
        runs.max(part(load.debt_bytes, self.slowdown_debt_bytes, self.stop_debt_bytes()))
    }

    /// Whether writers are slowed or stopped.
    #[inline]
    pub(crate) fn hold_writers_back(&self) -> bool {
        self.throttle.load(Ordering::Relaxed) != Throttle::None as u8
    }

    fn throttle(&self) -> Throttle {
        Throttle::from_u8(self.throttle.load(Ordering::Acquire))
    }

    /// Bytes a second that writers may write at present; `None` if they are not held back.
    pub(crate) fn bytes_per_second(&self) -> Option<u64> {
        match self.throttle() {
            Throttle::None => None,
            throttle if throttle.is_stop() => Some(0),
            _ => Some(self.rate.lock().bytes_per_second as u64),
        }
    }
}

/// The rate of slowed writers, and what they owe.
struct Rate {
    first: f64,
    bytes_per_second: f64,
    /// The pressure after the last change of versions; `None` if no table was over a limit.
    pressure: Option<f64>,
    /// When what was written will have been paid for; `None` before the first slowdown.
    paid_until: Option<Instant>,
}

impl Rate {
    fn new(bytes_per_second: u64) -> Self {
        let first = bytes_per_second as f64;
        Self { first, bytes_per_second: first, pressure: None, paid_until: None }
    }

    fn adapt(&mut self, pressure: Option<f64>) {
        let factor = match (self.pressure, pressure) {
            (Some(_), None) => RELIEVED,
            (Some(before), Some(now)) if now > before && now >= NEAR_STOP => GROWN_NEAR_STOP,
            (Some(before), Some(now)) if now > before => GROWN,
            (Some(before), Some(now)) if now < before && now < NEAR_STOP => FALLEN,
            _ => 1.0,
        };
        self.bytes_per_second = (self.bytes_per_second * factor).clamp(self.first * LEAST_PART, self.first);
        self.pressure = pressure;
    }

    /// Charges `bytes` about to be written; how long to wait before.
    fn admit(&mut self, bytes: u64, now: Instant) -> Option<Duration> {
        let start = self.paid_until.map_or(now, |until| until.clamp(now, now + LONGEST_PAUSE));
        self.paid_until = Some(start + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second));
        Some(start - now).filter(|pause| *pause >= SHORTEST_PAUSE)
    }
}

/// A stall that has begun.
pub(crate) struct Stall {
    since: Instant,
    stopped: bool,
}

impl Inner {
    /// Decides how writers are held back. The load is looked at of tables that have changed, and of those that bore on
    /// writers before.
    pub(crate) fn update_throttle(&self, core: &mut Core) {
        for id in core.tables.take_unweighed() {
            // What waits for the building of an index is not late.
            let table = core.tables.get(&id).filter(|table| table.may_be_compacted());
            if table.is_some_and(|table| self.stalls.throttle_of(Load::of(table)) > Throttle::None) {
                core.loaded.insert(id);
            } else {
                core.loaded.remove(&id);
            }
        }
        let loaded = core.loaded.iter().filter_map(|id| core.tables.get(id));
        self.stalls.update(loaded.map(|table| Load::of(table)));
    }

    /// Slows or stops a writer that is about to write `bytes`, until compaction has caught up.
    #[cold]
    pub(crate) fn hold_back(&self, bytes: u64) -> Result<()> {
        let throttle = self.stalls.throttle();
        if throttle.is_stop() {
            let stall = self.begin_stall(throttle.cause(), true);
            let result = self.wait_until(|inner| !inner.stalls.throttle().is_stop());
            self.end_stall(stall);
            return result;
        }
        if throttle == Throttle::None {
            return Ok(());
        }
        if self.options.background == Background::Manual {
            let stall = self.begin_stall(throttle.cause(), false);
            let result = self.step();
            self.end_stall(stall);
            return result.map(drop);
        }
        let now = Instant::now();
        let pause = self.stalls.rate.lock().admit(bytes, now);
        if let Some(pause) = pause {
            let stall = self.begin_stall(throttle.cause(), false);
            self.signals.pause(now + pause, || !self.stalls.hold_writers_back() || self.is_latched());
            self.end_stall(stall);
        }
        Ok(())
    }

    pub(crate) fn begin_stall(&self, cause: StallCause, stopped: bool) -> Stall {
        if stopped {
            self.emit(|| Event::StallBegin { cause, stopped });
        }
        Stall { since: Instant::now(), stopped }
    }

    pub(crate) fn end_stall(&self, stall: Stall) {
        let elapsed = stall.since.elapsed();
        let (count, nanoseconds) = if stall.stopped {
            (&self.counters.stops, &self.counters.stop_nanoseconds)
        } else {
            (&self.counters.slowdowns, &self.counters.slowdown_nanoseconds)
        };
        count.fetch_add(1, Ordering::Relaxed);
        nanoseconds.fetch_add(elapsed.as_nanos() as u64, Ordering::Relaxed);
        if stall.stopped {
            self.emit(|| Event::StallEnd { seconds: elapsed.as_secs_f64() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: u64 = 1 << 20;

    fn stalls() -> WriteStalls {
        WriteStalls::new(&Options {
            slowdown_level0_runs: 20,
            stop_level0_runs: 36,
            slowdown_debt_bytes: 100 * MEBIBYTE,
            slowed_bytes_per_second: 16 * MEBIBYTE,
            ..Options::default()
        })
    }

    fn update(stalls: &WriteStalls, level0_runs: usize, debt_bytes: u64) -> (Throttle, f64) {
        let idle = Load { level0_runs: 0, level0_trigger: 4, debt_bytes: 0 };
        stalls.update([idle, Load { level0_runs, debt_bytes, ..idle }, idle].into_iter());
        (stalls.throttle(), stalls.rate.lock().bytes_per_second / MEBIBYTE as f64)
    }

    #[test]
    fn the_rate_follows_the_load() {
        let stalls = stalls();
        assert_eq!(update(&stalls, 19, 99 * MEBIBYTE), (Throttle::None, 16.0));
        assert_eq!(stalls.bytes_per_second(), None);
        assert_eq!(update(&stalls, 20, 0), (Throttle::SlowedByLevel0, 16.0));
        assert_eq!(update(&stalls, 20, 0), (Throttle::SlowedByLevel0, 16.0));
        assert_eq!(update(&stalls, 21, 0), (Throttle::SlowedByLevel0, 12.8));
        assert_eq!(stalls.bytes_per_second(), Some((12.8 * MEBIBYTE as f64) as u64));
        // The other load of the table is the greater part of its limits now.
        assert_eq!(update(&stalls, 21, 160 * MEBIBYTE).0, Throttle::SlowedByLevel0);
        let (throttle, rate) = update(&stalls, 19, 160 * MEBIBYTE);
        assert_eq!((throttle, (rate * 100.0).round()), (Throttle::SlowedByDebt, 1024.0));
        let (_, rate) = update(&stalls, 19, 150 * MEBIBYTE);
        assert_eq!((rate * 100.0).round(), 1280.0);
        // Near the stop the rate falls faster, and does not rise.
        let (_, rate) = update(&stalls, 35, 0);
        assert_eq!((rate * 100.0).round(), 768.0);
        assert_eq!(update(&stalls, 34, 0).1, rate);
        assert_eq!(update(&stalls, 36, 0).0, Throttle::StoppedByLevel0);
        assert_eq!(stalls.bytes_per_second(), Some(0));
        assert_eq!(update(&stalls, 0, 400 * MEBIBYTE).0, Throttle::StoppedByDebt);
        // Relieved, it begins a little above where it ended; it never leaves its bounds.
        let (_, ended) = update(&stalls, 25, 0);
        let (throttle, rate) = update(&stalls, 5, 0);
        assert_eq!((throttle, (rate / ended * 100.0).round()), (Throttle::None, 140.0));
        for _ in 0..100 {
            update(&stalls, 20, 0);
            assert!(update(&stalls, 35, 0).1 >= 0.25);
        }
        for _ in 0..100 {
            update(&stalls, 21, 0);
            update(&stalls, 20, 0);
            assert!(update(&stalls, 0, 0).1 <= 16.0);
        }
    }

    /// At 36 runs writers stopped for good where nothing is compacted before 40.
    #[test]
    fn nobody_waits_for_a_level_0_that_is_not_due() {
        let stalls = stalls();
        let throttle = |level0_runs| {
            stalls.update(std::iter::once(Load { level0_runs, level0_trigger: 40, debt_bytes: 0 }));
            stalls.throttle()
        };
        assert_eq!(
            [79, 80, 95, 96].map(throttle),
            [Throttle::None, Throttle::SlowedByLevel0, Throttle::SlowedByLevel0, Throttle::StoppedByLevel0]
        );
    }

    /// Of the tables that are over no limit nothing is kept, so those that are must be known at every time.
    #[test]
    fn a_table_over_a_limit_is_known_from_the_opening_until_it_is_dropped() {
        let disk = mycelium_vfs::MemoryDisk::new();
        let open = || {
            let (disk, background) = (std::sync::Arc::new(disk.clone()), Background::Manual);
            let options = Options { disk, background, slowdown_level0_runs: 4, ..Options::default() };
            crate::Database::open("db", options).unwrap()
        };
        let database = open();
        let [table, other] = ["table", "other"].map(|name| database.create_table(name, Default::default()).unwrap());
        // Level 0 is compacted with four files, so that writers are spared until there are eight.
        for n in 0..8_u8 {
            assert!(!database.inner.stalls.hold_writers_back(), "at {n} files");
            for key in [b"a", b"z"] {
                table.put(key, &[n], crate::Durability::Os).unwrap();
            }
            database.inner.seal_generation(&mut database.inner.commits.writer.lock()).unwrap();
            assert!(database.inner.flush_oldest().unwrap());
        }
        assert!(database.inner.stalls.hold_writers_back());
        drop((table, other));
        database.close().unwrap();
        let database = open();
        assert!(database.inner.stalls.hold_writers_back());
        database.drop_table("other").unwrap();
        assert!(database.inner.stalls.hold_writers_back());
        database.drop_table("table").unwrap();
        assert!(!database.inner.stalls.hold_writers_back());
    }

    #[test]
    fn slowed_bytes_take_their_time_whatever_the_size_of_batches() {
        let start = Instant::now();
        for batch in [50, 1000, 16 << 10, MEBIBYTE] {
            let mut rate = Rate::new(MEBIBYTE);
            let (mut now, mut written, mut pauses) = (start, 0, 0);
            while now < start + Duration::from_secs(10) {
                let pause = rate.admit(batch, now);
                assert!(pause.is_none_or(|pause| (SHORTEST_PAUSE..=LONGEST_PAUSE).contains(&pause)));
                now += pause.unwrap_or_default();
                written += batch;
                pauses += u64::from(pause.is_some());
            }
            // Within what is owed at the end: a pause that was not made, and the last batch.
            let expected = 10 * MEBIBYTE;
            assert!(written.abs_diff(expected) <= 2 * batch + MEBIBYTE / 500, "{written} by {batch}");
            assert!(pauses <= 10_000 && pauses <= written / batch, "{pauses} pauses by {batch}");
        }
        // A batch that owes more than the longest pause holds the next one back for that long only.
        let mut rate = Rate::new(MEBIBYTE);
        assert_eq!(rate.admit(100 * MEBIBYTE, start), None);
        assert_eq!(rate.admit(1, start), Some(LONGEST_PAUSE));
    }

    /// Writers that always have more to write, beside a compaction of a fixed speed.
    #[test]
    fn the_rate_settles_at_what_compaction_sustains() {
        const STEPS_A_SECOND: u64 = 4;
        const SUSTAINED: u64 = 4 * MEBIBYTE;
        const UNLIMITED: u64 = 100 * MEBIBYTE;
        let stalls = stalls();
        let (mut debt, mut written, mut slowest) = (0, 0, u64::MAX);
        for second in 0..600 {
            for _ in 0..STEPS_A_SECOND {
                let rate = stalls.bytes_per_second().unwrap_or(UNLIMITED);
                debt = (debt + rate / STEPS_A_SECOND).saturating_sub(SUSTAINED / STEPS_A_SECOND);
                let (throttle, _) = update(&stalls, 0, debt);
                assert!(!throttle.is_stop(), "stopped in second {second}");
                if second >= 60 {
                    written += rate / STEPS_A_SECOND;
                    slowest = slowest.min(rate);
                }
            }
        }
        let mean = written / 540;
        println!("written at {mean} bytes a second of {SUSTAINED}, at least at {slowest}");
        assert!(mean.abs_diff(SUSTAINED) <= SUSTAINED / 10, "{mean} bytes a second");
        assert!(slowest >= SUSTAINED / 4, "as slow as {slowest} bytes a second");
    }
}
