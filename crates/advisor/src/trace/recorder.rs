//! Counting from many threads.
//!
//! A reader asks [`Recorder::projection`] once for its projection (a lock that is shared but for the first time) and
//! then counts with single relaxed additions; counters of different projections or levels share no cache line.
//! Counts are statistics: [`Recorder::take`] may miss what is being counted while it runs, and operations that began
//! before it are lost if they count through a handle that they took before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mycelium_base::{ColumnSet, Result};
use parking_lot::RwLock;

use super::{Counts, MAX_PROJECTIONS, Trace, narrowest_above};

/// Counts operations from many threads, as a [`Trace`] would; the same bounds and the same rule when there are too
/// many projections.
///
/// ```
/// use mycelium_advisor::Recorder;
///
/// let recorder = Recorder::new(4, 3)?;
/// let projection = recorder.projection(&"1,3".parse()?)?;
/// projection.add_points(1, 1);
/// projection.add_scans(2, 1, 500);
/// recorder.add_inserts(10);
///
/// let trace = recorder.take();
/// assert_eq!((trace.inserts(), trace.accesses(2)[0].scanned_entries), (10, 500));
/// assert_eq!(recorder.take().operations(), 0);
/// # Ok::<(), mycelium_base::Error>(())
/// ```
#[derive(Debug)]
pub struct Recorder {
    /// A trace with nothing in it: checks, and what every window begins with.
    empty: Trace,
    window: RwLock<Arc<Window>>,
}

/// What is counted between two calls of [`Recorder::take`].
#[derive(Debug)]
struct Window {
    inserts: AtomicU64,
    overflowed: AtomicU64,
    projections: RwLock<BTreeMap<ColumnSet, Arc<Counters>>>,
}

/// The counters of one projection, one for each level.
#[derive(Debug)]
struct Counters {
    levels: Vec<LevelCounters>,
}

/// Aligned, so that neither two levels nor two projections share a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct LevelCounters {
    points: AtomicU64,
    scans: AtomicU64,
    scanned_entries: AtomicU64,
    updates: AtomicU64,
}

/// A handle that counts operations on one projection. Levels that are not there are not counted.
#[derive(Debug)]
pub struct ProjectionRecorder {
    counters: Arc<Counters>,
    /// Where operations are counted too if they are counted as a wider projection.
    overflow: Option<Arc<Window>>,
}

impl Recorder {
    /// Nothing counted yet, for a table with `columns` columns and `levels` levels. Fails as [`Trace::new`] does.
    pub fn new(columns: usize, levels: usize) -> Result<Self> {
        let empty = Trace::new(columns, levels)?;
        let window = RwLock::new(Arc::new(Window::new(&empty)));
        Ok(Self { empty, window })
    }

    /// A handle for operations on `columns`; good until the next [`Recorder::take`]. Fails if a column is not there.
    pub fn projection(&self, columns: &ColumnSet) -> Result<ProjectionRecorder> {
        self.empty.check(0, columns)?;
        let window = self.window.read().clone();
        if columns.is_empty() {
            // Says nothing about groups: counters that nobody reads.
            let counters = Arc::new(Counters::new(self.empty.level_count));
            return Ok(ProjectionRecorder { counters, overflow: None });
        }
        if let Some(counters) = window.projections.read().get(columns) {
            return Ok(ProjectionRecorder { counters: counters.clone(), overflow: None });
        }
        let mut projections = window.projections.write();
        if projections.len() < MAX_PROJECTIONS || projections.contains_key(columns) {
            let counters = projections.entry(columns.clone());
            let counters = counters.or_insert_with(|| Arc::new(Counters::new(self.empty.level_count))).clone();
            return Ok(ProjectionRecorder { counters, overflow: None });
        }
        let wider = narrowest_above(projections.keys(), columns).and_then(|wider| projections.get(wider)).cloned();
        drop(projections);
        let counters = wider.unwrap_or_else(|| Arc::new(Counters::new(self.empty.level_count)));
        Ok(ProjectionRecorder { counters, overflow: Some(window) })
    }

    /// Counts inserted rows.
    pub fn add_inserts(&self, count: u64) {
        self.window.read().inserts.fetch_add(count, Relaxed);
    }

    /// What was counted since the last call. Begins a new window, in which all projections but that of all columns are
    /// to be met anew.
    pub fn take(&self) -> Trace {
        let window = std::mem::replace(&mut *self.window.write(), Arc::new(Window::new(&self.empty)));
        window.trace(&self.empty)
    }

    /// What was counted so far in this window.
    pub fn snapshot(&self) -> Trace {
        let window = self.window.read().clone();
        window.trace(&self.empty)
    }
}

impl ProjectionRecorder {
    /// Counts point reads that `level` served.
    #[inline]
    pub fn add_points(&self, level: usize, count: u64) {
        self.add(level, count, |counters| &counters.points);
    }

    /// Counts range reads that selected `entries` entries of `level`, all together.
    #[inline]
    pub fn add_scans(&self, level: usize, count: u64, entries: u64) {
        self.add(level, count, |counters| &counters.scans);
        if let Some(counters) = self.counters.levels.get(level) {
            counters.scanned_entries.fetch_add(entries, Relaxed);
        }
    }

    /// Counts updates that reached `level`.
    #[inline]
    pub fn add_updates(&self, level: usize, count: u64) {
        self.add(level, count, |counters| &counters.updates);
    }

    #[inline]
    fn add(&self, level: usize, count: u64, counter: impl Fn(&LevelCounters) -> &AtomicU64) {
        let Some(counters) = self.counters.levels.get(level) else { return };
        counter(counters).fetch_add(count, Relaxed);
        if let Some(window) = &self.overflow {
            window.overflowed.fetch_add(count, Relaxed);
        }
    }
}

impl Window {
    fn new(empty: &Trace) -> Self {
        let all = (empty.all_columns(), Arc::new(Counters::new(empty.level_count)));
        Self {
            inserts: AtomicU64::new(0),
            overflowed: AtomicU64::new(0),
            projections: RwLock::new(BTreeMap::from([all])),
        }
    }

    fn trace(&self, empty: &Trace) -> Trace {
        let mut trace = empty.clone();
        trace.inserts = self.inserts.load(Relaxed);
        trace.overflowed = self.overflowed.load(Relaxed);
        for (columns, counters) in &*self.projections.read() {
            let levels: Vec<Counts> = counters.levels.iter().map(LevelCounters::counts).collect();
            // A handle that was asked for and not used leaves no trace.
            if levels.iter().any(|counts| *counts != Counts::default()) {
                trace.projections.insert(columns.clone(), levels);
            }
        }
        trace
    }
}

impl Counters {
    fn new(level_count: usize) -> Self {
        Self { levels: (0..level_count).map(|_| LevelCounters::default()).collect() }
    }
}

impl LevelCounters {
    fn counts(&self) -> Counts {
        Counts {
            points: self.points.load(Relaxed),
            scans: self.scans.load(Relaxed),
            scanned_entries: self.scanned_entries.load(Relaxed),
            updates: self.updates.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorder_counts_as_a_trace_does() {
        let recorder = Recorder::new(200, 2).unwrap();
        let mut trace = Trace::new(200, 2).unwrap();
        for first in 0..100 {
            for columns in [ColumnSet::from_iter([first, first + 1]), ColumnSet::first(200)] {
                recorder.projection(&columns).unwrap().add_scans(1, 2, 30);
                trace.add_scans(1, &columns, 2, 30).unwrap();
            }
        }
        recorder.add_inserts(4);
        trace.add_inserts(4);
        assert_eq!(recorder.snapshot(), trace);
        assert!(trace.overflowed() > 0);
        assert_eq!(recorder.take(), trace);
        assert_eq!(recorder.take(), Trace::new(200, 2).unwrap());
    }

    #[test]
    fn what_is_not_there_is_not_counted() {
        let recorder = Recorder::new(4, 2).unwrap();
        assert!(recorder.projection(&ColumnSet::from_iter([4])).is_err());
        recorder.projection(&ColumnSet::new()).unwrap().add_points(1, 5);
        recorder.projection(&ColumnSet::first(2)).unwrap().add_points(2, 5);
        assert_eq!(recorder.take(), Trace::new(4, 2).unwrap());
    }

    #[test]
    fn threads_add_up() {
        let recorder = Recorder::new(8, 2).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                let recorder = &recorder;
                scope.spawn(move || {
                    for count in 0..1_000usize {
                        let columns = ColumnSet::from_iter([(thread + count) % 8]);
                        let projection = recorder.projection(&columns).unwrap();
                        projection.add_points(1, 1);
                        projection.add_updates(0, 1);
                        recorder.add_inserts(1);
                    }
                });
            }
        });
        let trace = recorder.take();
        assert_eq!((trace.inserts(), trace.operations()), (4_000, 12_000));
        assert_eq!((trace.accesses(0).len(), trace.accesses(1).len()), (8, 8));
    }
}
