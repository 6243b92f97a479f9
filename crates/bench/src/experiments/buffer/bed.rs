//! One database, loaded, and what is done to it.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::report::{BufferRun, Second, percent};
use super::subject::{Blocks, Opener, Sizes, Subject};
use super::workload::{Recent, Workload};
use super::{BufferSettings, ROW_BYTES, UPDATES_PER_SECOND};
use crate::keys::{KEY_LEN, KeyOrder, ValueKind, Values, key};
use crate::store::Result;

/// Reads of each hot row by which the cache is warmed.
const WARMING_READS: u64 = 4;

/// Bursts of updates that end the load, with rest after each: too little to go down stays above level 2 at rest, until
/// more comes.
const BURSTS: u64 = 2;

pub(super) struct Bed {
    seed: u64,
    seconds: u64,
    /// Whether rows are updated after they were loaded.
    writes: bool,
    sizes: Sizes,
    workload: Workload,
    directory: PathBuf,
    subject: Box<dyn Subject>,
    values: Values,
    recent: RwLock<Recent>,
    versions: AtomicU64,
}

fn read(recent: &RwLock<Recent>) -> RwLockReadGuard<'_, Recent> {
    recent.read().unwrap_or_else(PoisonError::into_inner)
}

fn write(recent: &RwLock<Recent>) -> RwLockWriteGuard<'_, Recent> {
    recent.write().unwrap_or_else(PoisonError::into_inner)
}

/// When updates are due.
struct Pace {
    started: Instant,
    updates: u64,
}

impl Pace {
    fn start() -> Self {
        Self { started: Instant::now(), updates: 0 }
    }

    /// How many have become due since it was asked last.
    fn due(&mut self) -> u64 {
        let all = (self.started.elapsed().as_secs_f64() * UPDATES_PER_SECOND as f64) as u64;
        all - std::mem::replace(&mut self.updates, all)
    }
}

/// What the reader has done so far.
#[derive(Default)]
struct Progress {
    reads: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    segments: AtomicU64,
    /// The second of the measurement, from 0; not yet measured at its greatest.
    second: AtomicU64,
}

impl Progress {
    fn take(&self) -> [u64; 4] {
        [&self.reads, &self.hits, &self.misses, &self.segments].map(|counter| counter.load(Ordering::Relaxed))
    }
}

impl Bed {
    pub(super) fn create(
        settings: &BufferSettings,
        (name, writes): (&str, bool),
        open: &Opener<'_>,
        workload: Workload,
    ) -> Result<Self> {
        let directory = settings.directory.join(format!("buffer-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let sizes = settings.sizes();
        let bed = Self {
            seed: settings.seed,
            seconds: settings.seconds(),
            writes,
            sizes,
            workload,
            subject: open(&directory, sizes, false)?,
            directory,
            values: Values::new(ValueKind::Random, ROW_BYTES as usize - KEY_LEN),
            recent: RwLock::new(Recent::new(sizes)),
            versions: AtomicU64::new(1),
        };
        bed.load()?;
        bed.subject.close()?;
        Ok(Self { subject: open(&bed.directory, sizes, true)?, ..bed })
    }

    pub(super) fn remove(self) -> Result<()> {
        self.subject.close()?;
        Ok(fs::remove_dir_all(&self.directory)?)
    }

    /// Step 1 of the experiment.
    fn load(&self) -> Result<()> {
        let mut value = Vec::new();
        for row in 0..self.sizes.rows {
            self.put(row, &mut value)?;
        }
        self.subject.flush()?;
        self.subject.compact()?;
        let mut rng = SmallRng::seed_from_u64(self.seed);
        let settling = Recent::settling_updates(self.sizes);
        self.update_fast(Recent::needed_updates(self.sizes).saturating_sub((1 + BURSTS) * settling), &mut rng)?;
        self.subject.rest()?;
        for _ in 0..BURSTS {
            self.update_fast(settling, &mut rng)?;
            self.subject.rest()?;
        }
        if !self.writes {
            self.update_fast(settling, &mut rng)?;
            self.subject.flush()?;
        }
        Ok(())
    }

    /// Updates that are noted, as fast as they go.
    fn update_fast(&self, count: u64, rng: &mut SmallRng) -> Result<()> {
        let (mut recent, mut value) = (write(&self.recent), Vec::new());
        for _ in 0..count {
            recent.note(self.update(rng, &mut value)?);
        }
        Ok(())
    }

    fn put(&self, row: u64, value: &mut Vec<u8>) -> Result<()> {
        value.clear();
        self.values.fill(row, self.versions.fetch_add(1, Ordering::Relaxed), value);
        self.subject.put(&key(row, KeyOrder::Ordered), value)
    }

    fn update(&self, rng: &mut SmallRng, value: &mut Vec<u8>) -> Result<u64> {
        let row = rng.random_range(0..self.sizes.rows);
        self.put(row, value)?;
        Ok(row)
    }

    /// Steps 2 to 4; `begin` is called when the cache is warm. If the rows are not updated, those of another database
    /// may be meanwhile.
    pub(super) fn measure(&self, beside: Option<&Self>, begin: impl FnOnce()) -> Result<BufferRun> {
        let updated = if self.writes { Some(self) } else { beside };
        updated.map_or(Ok(()), |bed| bed.subject.rest())?;
        let (done, progress) = (AtomicBool::new(false), Progress::default());
        progress.second.store(u64::MAX, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| updated.map_or(Ok(()), |bed| bed.write(&done, &progress)));
            let reader = scope.spawn(|| self.read(&done, &progress));
            let enough = if self.workload.range_bytes().is_some() { 1 } else { WARMING_READS * self.sizes.hot_rows() };
            let settling = if updated.is_some() { Recent::settling_updates(self.sizes) } else { 0 };
            let settled = Instant::now() + Duration::from_secs_f64(settling as f64 / UPDATES_PER_SECOND as f64);
            let is_ready = || Instant::now() >= settled && progress.reads.load(Ordering::Relaxed) >= enough;
            while !is_ready() && !reader.is_finished() {
                std::thread::park_timeout(Duration::from_millis(10));
            }
            begin();
            let run = self.watch(&progress);
            done.store(true, Ordering::Relaxed);
            writer.join().map_err(|_| "the writer panicked")??;
            let mut latencies = reader.join().map_err(|_| "the reader panicked")??;
            latencies.sort_unstable();
            let at =
                |share: f64| latencies.get((latencies.len() as f64 * share) as usize).map_or(0.0, |&n| n as f64 / 1e3);
            Ok(BufferRun { p50_micros: at(0.5), p99_micros: at(0.99), ..run? })
        })
    }

    fn write(&self, done: &AtomicBool, progress: &Progress) -> Result<()> {
        let mut rng = SmallRng::seed_from_u64(self.seed ^ 0x77);
        let (mut pace, mut value) = (Pace::start(), Vec::new());
        while !done.load(Ordering::Relaxed) {
            let second = progress.second.load(Ordering::Relaxed);
            if second < self.seconds && !self.workload.updates_in(second, self.seconds) {
                // What is left out is not made up for.
                pace = Pace::start();
            }
            for _ in 0..pace.due() {
                let row = self.update(&mut rng, &mut value)?;
                if second == u64::MAX {
                    write(&self.recent).note(row);
                }
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Reads until `done`; nanoseconds of reads of the measurement, of points every sixteenth.
    fn read(&self, done: &AtomicBool, progress: &Progress) -> Result<Vec<u64>> {
        let mut rng = SmallRng::seed_from_u64(self.seed ^ 0x99);
        let mut latencies = Vec::new();
        for count in 0u64.. {
            if done.load(Ordering::Relaxed) {
                break;
            }
            let key = key(read(&self.recent).draw(self.workload, &mut rng), KeyOrder::Ordered);
            let mut blocks = Blocks::default();
            let is_measured = progress.second.load(Ordering::Relaxed) < self.seconds;
            let is_timed = is_measured && (count % 16 == 0 || self.workload.range_bytes().is_some());
            let started = is_timed.then(Instant::now);
            match self.workload.range_bytes() {
                Some(bytes) => {
                    self.subject.scan(&key, bytes)?;
                }
                None if self.subject.get(&key, &mut blocks)? => {}
                None => return Err("a row is not there".into()),
            }
            latencies.extend(started.map(|started| started.elapsed().as_nanos() as u64));
            progress.hits.fetch_add(blocks.hits, Ordering::Relaxed);
            progress.misses.fetch_add(blocks.misses, Ordering::Relaxed);
            progress.segments.fetch_add(blocks.segments, Ordering::Relaxed);
            progress.reads.fetch_add(1, Ordering::Relaxed);
        }
        Ok(latencies)
    }

    /// Takes stock every second.
    fn watch(&self, progress: &Progress) -> Result<BufferRun> {
        let (first, before) = (progress.take(), self.subject.figures());
        let (mut last, mut invalidated) = (first, before.invalidated_by_level.clone());
        let (mut seconds, started) = (Vec::new(), Instant::now());
        for second in 0..self.seconds {
            progress.second.store(second, Ordering::Relaxed);
            let until = started + Duration::from_secs(second + 1);
            while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                std::thread::park_timeout(left);
            }
            let (now, figures) = (progress.take(), self.subject.figures());
            let (hits, misses) = (now[1] - last[1], now[2] - last[2]);
            let levels = figures.invalidated_by_level.iter().zip(&invalidated);
            seconds.push(Second {
                reads: now[0] - last[0],
                misses,
                hit_percent: percent(hits, hits + misses),
                invalidated: levels.map(|(now, before)| now - before).collect(),
                buffer_bytes: figures.buffer_bytes,
            });
            (last, invalidated) = (now, figures.invalidated_by_level);
        }
        progress.second.store(u64::MAX, Ordering::Relaxed);
        let counts = [0, 2, 3].map(|i| last[i] - first[i]);
        Ok(BufferRun::new(seconds, counts, started.elapsed().as_secs_f64(), (&before, &self.subject.figures())))
    }
}
