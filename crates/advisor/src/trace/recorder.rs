//! Counting from many threads.
//!
//! 1. A *window* has a slot for each projection that was met since the last [`Recorder::take`], that of all columns
//!    first. A slot, once filled, never moves: finding one takes no lock and allocates nothing.
//! 2. An operation looks its projection up ([`Recorder::projection`]) and counts with single relaxed additions;
//!    counters of different projections or levels share no cache line. Only a projection that is met for the first time
//!    takes a lock.
//! 3. [`Recorder::take`] puts an empty window in place of the full one.
//!
//! Columns may be given by their positions in a schema whose key is not traced ([`Recorder::over`]): the recorder keeps
//! them as they come and numbers them only where it makes a trace.
//!
//! Counts are statistics: [`Recorder::take`] may miss what is being counted while it runs, and operations that began
//! before it are lost if they count through a handle that they took before.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};
use mycelium_base::{ColumnSet, Error, Result};
use parking_lot::Mutex;

use super::{Counts, MAX_PROJECTIONS, Trace, narrowest_above};
use crate::numbering::Numbering;

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
    /// A trace with nothing in it: what every window begins with.
    empty: Trace,
    numbering: Numbering,
    window: ArcSwap<Window>,
}

/// What is counted between two calls of [`Recorder::take`].
#[derive(Debug)]
struct Window {
    inserts: AtomicU64,
    range_deletes: AtomicU64,
    overflowed: AtomicU64,
    /// Filled from the first on; that of all columns is the first.
    slots: [OnceLock<Slot>; MAX_PROJECTIONS],
    /// Held while a slot is being filled.
    filling: Mutex<()>,
}

/// The counters of one projection.
#[derive(Debug)]
struct Slot {
    columns: ColumnSet,
    /// One for each level.
    levels: Box<[LevelCounters]>,
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

/// A handle that counts operations on one projection: to be used at once, not to be kept. Levels that are not there are
/// not counted.
#[derive(Debug)]
pub struct ProjectionRecorder {
    window: Guard<Arc<Window>>,
    /// `None` of no columns, which says nothing about groups.
    slot: Option<usize>,
    /// Whether operations are counted as a wider projection than their own.
    overflows: bool,
}

impl Recorder {
    /// Nothing counted yet, for a table with `columns` columns and `levels` levels. Fails as [`Trace::new`] does.
    pub fn new(columns: usize, levels: usize) -> Result<Self> {
        Trace::new(columns, levels)?;
        Self::over(&ColumnSet::first(columns), levels)
    }

    /// As [`Recorder::new`], for columns that are given by their positions in a schema. Traces number them in this
    /// order, from 0.
    ///
    /// ```
    /// use mycelium_advisor::Recorder;
    ///
    /// // Column 1 is the key.
    /// let recorder = Recorder::over(&"0,2-4".parse()?, 2)?;
    /// recorder.projection(&"2,4".parse()?)?.add_points(1, 1);
    /// assert_eq!(recorder.snapshot().accesses(1)[0].columns.to_string(), "1,3");
    /// # Ok::<(), mycelium_base::Error>(())
    /// ```
    pub fn over(columns: &ColumnSet, levels: usize) -> Result<Self> {
        let empty = Trace::new(columns.len(), levels)?;
        let window = ArcSwap::from_pointee(Window::new(columns, levels));
        Ok(Self { empty, numbering: Numbering::new(columns), window })
    }

    /// How traces number the columns.
    pub fn numbering(&self) -> &Numbering {
        &self.numbering
    }

    /// A handle for operations on `columns`. Fails if a column is not there. Takes no lock and allocates nothing where
    /// the projection was met before.
    pub fn projection(&self, columns: &ColumnSet) -> Result<ProjectionRecorder> {
        if !columns.is_subset(self.numbering.columns()) {
            let known = self.numbering.columns();
            return Err(Error::invalid(format!("columns {columns} of a trace of the columns {known}")));
        }
        let window = self.window.load();
        if columns.is_empty() {
            return Ok(ProjectionRecorder { window, slot: None, overflows: false });
        }
        let (slot, overflows) = window.slot_of(columns, self.empty.level_count);
        Ok(ProjectionRecorder { window, slot: Some(slot), overflows })
    }

    /// Counts inserted rows.
    pub fn add_inserts(&self, count: u64) {
        self.window.load().inserts.fetch_add(count, Relaxed);
    }

    /// Counts range deletes.
    pub fn add_range_deletes(&self, count: u64) {
        self.window.load().range_deletes.fetch_add(count, Relaxed);
    }

    /// What was counted since the last call. Begins a new window, in which all projections but that of all columns are
    /// to be met anew.
    pub fn take(&self) -> Trace {
        let empty = Arc::new(Window::new(self.numbering.columns(), self.empty.level_count));
        self.window.swap(empty).trace(&self.empty, &self.numbering)
    }

    /// What was counted so far in this window.
    pub fn snapshot(&self) -> Trace {
        self.window.load().trace(&self.empty, &self.numbering)
    }

    /// Operations, and entries read by scans, in this window so far: what [`Trace::operations`] and
    /// [`Trace::scanned_entries`] of a snapshot would say. Allocates nothing.
    pub fn work(&self) -> (u64, u64) {
        let window = self.window.load();
        let counted = window.filled().flat_map(|slot| slot.levels.iter()).map(LevelCounters::counts);
        let writes = window.inserts.load(Relaxed).saturating_add(window.range_deletes.load(Relaxed));
        counted.fold((writes, 0), |(operations, entries), counts| {
            (operations.saturating_add(counts.operations()), u64::saturating_add(entries, counts.scanned_entries))
        })
    }
}

impl ProjectionRecorder {
    /// Counts point reads that `level` served; gives what was counted before.
    #[inline]
    pub fn add_points(&self, level: usize, count: u64) -> u64 {
        self.add(level, count, |counters| &counters.points)
    }

    /// Counts range reads that selected `entries` entries of `level`, all together.
    #[inline]
    pub fn add_scans(&self, level: usize, count: u64, entries: u64) {
        self.add(level, count, |counters| &counters.scans);
        if let Some(counters) = self.counters(level) {
            counters.scanned_entries.fetch_add(entries, Relaxed);
        }
    }

    /// Counts updates that reached `level`.
    #[inline]
    pub fn add_updates(&self, level: usize, count: u64) {
        self.add(level, count, |counters| &counters.updates);
    }

    #[inline]
    fn add(&self, level: usize, count: u64, counter: impl Fn(&LevelCounters) -> &AtomicU64) -> u64 {
        let Some(counters) = self.counters(level) else { return 0 };
        if self.overflows {
            self.window.overflowed.fetch_add(count, Relaxed);
        }
        counter(counters).fetch_add(count, Relaxed)
    }

    #[inline]
    fn counters(&self, level: usize) -> Option<&LevelCounters> {
        self.window.slots.get(self.slot?)?.get()?.levels.get(level)
    }
}

impl Window {
    fn new(columns: &ColumnSet, levels: usize) -> Self {
        let slots = [const { OnceLock::new() }; MAX_PROJECTIONS];
        slots[0].get_or_init(|| Slot::new(columns, levels));
        let [inserts, range_deletes, overflowed] = [const { AtomicU64::new(0) }; 3];
        Self { inserts, range_deletes, overflowed, slots, filling: Mutex::new(()) }
    }

    fn filled(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().map_while(OnceLock::get)
    }

    #[inline]
    fn find(&self, columns: &ColumnSet) -> Option<usize> {
        self.filled().position(|slot| slot.columns == *columns)
    }

    /// The slot for `columns`, and whether it is that of a wider projection.
    #[inline]
    fn slot_of(&self, columns: &ColumnSet, levels: usize) -> (usize, bool) {
        match self.find(columns) {
            Some(found) => (found, false),
            None => self.new_slot(columns, levels),
        }
    }

    #[cold]
    fn new_slot(&self, columns: &ColumnSet, levels: usize) -> (usize, bool) {
        let is_full = self.slots.last().is_some_and(|last| last.get().is_some());
        if !is_full {
            let _alone = self.filling.lock();
            if let Some(found) = self.find(columns) {
                return (found, false);
            }
            let free = self.filled().count();
            if let Some(slot) = self.slots.get(free) {
                slot.get_or_init(|| Slot::new(columns, levels));
                return (free, false);
            }
        }
        let wider = narrowest_above(self.filled().map(|slot| &slot.columns), columns);
        (wider.and_then(|wider| self.find(wider)).unwrap_or(0), true)
    }

    fn trace(&self, empty: &Trace, numbering: &Numbering) -> Trace {
        let mut trace = empty.clone();
        trace.inserts = self.inserts.load(Relaxed);
        trace.range_deletes = self.range_deletes.load(Relaxed);
        trace.overflowed = self.overflowed.load(Relaxed);
        for slot in self.filled() {
            let levels: Vec<Counts> = slot.levels.iter().map(LevelCounters::counts).collect();
            // A slot that was filled and not used leaves no trace.
            if levels.iter().any(|counts| *counts != Counts::default()) {
                trace.projections.insert(numbering.numbers(&slot.columns), levels);
            }
        }
        trace
    }
}

impl Slot {
    fn new(columns: &ColumnSet, levels: usize) -> Self {
        Self { columns: columns.clone(), levels: (0..levels).map(|_| LevelCounters::default()).collect() }
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
        recorder.add_range_deletes(3);
        trace.add_range_deletes(3);
        assert_eq!(recorder.snapshot(), trace);
        assert_eq!(recorder.work(), (trace.operations(), trace.scanned_entries()));
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
    fn columns_are_numbered_in_traces() {
        let positions: ColumnSet = "2-3,7".parse().unwrap();
        let recorder = Recorder::over(&positions, 2).unwrap();
        assert!(recorder.projection(&ColumnSet::first(1)).is_err());
        recorder.projection(&positions).unwrap().add_updates(0, 1);
        recorder.projection(&"7".parse().unwrap()).unwrap().add_points(1, 2);
        let trace = recorder.take();
        assert_eq!(trace.columns(), 3);
        assert_eq!(trace.accesses(0)[0].columns, ColumnSet::first(3));
        assert_eq!(trace.accesses(1)[0].columns.to_string(), "2");
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
