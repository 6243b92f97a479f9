//! What a typed table is asked for: counted while the engine works, kept beside the database (LASER §6.1; tables.rs).
//!
//! 1. *Point reads* count at every level where they found an entry of their row: one relaxed addition for each, no lock
//!    and no allocation once their projection was met. What memtables alone answered costs no I/O and is not counted.
//! 2. *Scans* count what they read of each level when they end. Every run counts for itself. Runs that hold a wanted
//!    column add up, for they hold it of other keys, also where they are of several layouts; of the columns, that of
//!    which most was read counts. So the column groups of a level, which hold the same keys, count once.
//! 3. *Writes* are counted at the flush, off the path of writers: a `Put` or `Delete` is what the model calls an insert
//!    (an entry in every column group), and so is a range delete, which is counted apart; a patch is an update of its
//!    columns at every level that it has to pass.
//! 4. What the engine reads for itself, to find rows that have expired or to verify indexes and views, is not counted:
//!    no layout should follow it.
//!
//! Key-value tables have nothing to count, and pay one branch for it.

mod tables;

use std::collections::BTreeMap;
use std::sync::Arc;

use mycelium_advisor::{Recorder, Trace};
use mycelium_base::{ColumnSet, Cursor, EntryRef, Operation, ReadCounters, Result, RowFormatKind, Trailer};
use mycelium_encoding::RowFormat;
use mycelium_encoding::row_format::RowScratch;
use mycelium_memtable::MemtableCursor;
use mycelium_sst::RunCursor;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::tree::Tree;

/// Each so many point reads that one counter counted, the background is asked to look whether a redesign is due.
const LOOK_EVERY: u64 = 1024;

/// Sets of patched columns that one flush tells apart; others count as patches of all columns.
const MAX_PATCHES: usize = 1024;

/// The counters of one table.
pub(crate) struct TableTraces {
    recorder: Recorder,
    levels: usize,
    /// What was counted before the recorder's window.
    earlier: Mutex<Trace>,
    /// Whether a thread is deciding on a redesign.
    deciding: AtomicBool,
}

/// Held by the one thread that decides on a redesign of a table.
pub(crate) struct Deciding<'a>(&'a AtomicBool);

impl Drop for Deciding<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl TableTraces {
    /// `None` for a table without columns outside its key, or with more than a trace can have.
    pub(crate) fn new(columns: &ColumnSet, levels: usize) -> Option<Self> {
        let recorder = Recorder::over(columns, levels).ok()?;
        let earlier = Mutex::new(recorder.snapshot());
        Some(Self { recorder, levels, earlier, deciding: AtomicBool::new(false) })
    }

    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// `None` if another thread is deciding.
    pub(crate) fn begin_deciding(&self) -> Option<Deciding<'_>> {
        (!self.deciding.swap(true, Ordering::AcqRel)).then(|| Deciding(&self.deciding))
    }

    pub(crate) fn is_deciding(&self) -> bool {
        self.deciding.load(Ordering::Acquire)
    }

    /// Counts a point read of `columns` (all if `None`) that was served by the levels whose bits are set. Whether it is
    /// time to look at what was counted.
    #[inline]
    fn add_point(&self, columns: Option<&ColumnSet>, mut served: u32) -> bool {
        let columns = columns.unwrap_or_else(|| self.recorder.numbering().columns());
        let Ok(projection) = self.recorder.projection(columns) else { return false };
        let mut look = false;
        while served != 0 {
            let level = served.trailing_zeros() as usize;
            let before = projection.add_points(level.min(self.levels - 1), 1);
            look |= before % LOOK_EVERY == LOOK_EVERY - 1;
            served &= served - 1;
        }
        look
    }

    /// Counts rows that were loaded in bulk.
    pub(crate) fn add_inserts(&self, rows: u64) {
        self.recorder.add_inserts(rows);
    }

    /// Counts what a flush wrote into a tree whose last level is `last`.
    pub(crate) fn add_writes(&self, writes: &WriteTally, last: usize) {
        self.recorder.add_inserts(writes.entries);
        self.recorder.add_range_deletes(writes.range_deletes);
        for (columns, count) in writes.patches() {
            let Ok(projection) = self.recorder.projection(columns) else { continue };
            (0..=last.clamp(1, self.levels - 1)).for_each(|level| projection.add_updates(level, count));
        }
    }

    /// What was counted so far.
    pub(crate) fn trace(&self) -> Trace {
        let mut trace = self.earlier.lock().clone();
        // They are of the same columns and levels.
        drop(trace.merge(&self.recorder.snapshot()));
        trace
    }

    /// What was counted so far. From now on it weighs half.
    pub(crate) fn take_and_age(&self) -> Trace {
        let mut earlier = self.earlier.lock();
        drop(earlier.merge(&self.recorder.take()));
        let trace = earlier.clone();
        earlier.age();
        trace
    }

    /// Goes on from what a file says.
    fn restore(&self, trace: Trace) -> Result<()> {
        self.earlier.lock().merge(&trace)
    }
}

/// What one flush writes of a typed table.
#[derive(Default)]
pub(crate) struct WriteTally {
    /// Puts and deletes.
    entries: u64,
    pub(crate) range_deletes: u64,
    patches: BTreeMap<ColumnSet, u64>,
    /// The last ones, which are not among these yet.
    latest: LatestPatches,
}

/// Patches one after the other that begin alike, and therefore are of the same columns.
#[derive(Default)]
struct LatestPatches {
    /// How they begin; empty if that does not tell their columns.
    head: Vec<u8>,
    columns: ColumnSet,
    count: u64,
}

impl WriteTally {
    fn add(&mut self, operation: Operation, value: &[u8], rows: &RowFormat, scratch: &mut RowScratch) {
        if operation != Operation::Patch {
            self.entries += 1;
            return;
        }
        let head_len = if rows.kind() == RowFormatKind::Packed { rows.layout().patch_head_len() } else { 0 };
        let head = value.get(..head_len).unwrap_or_default();
        if !head.is_empty() && head == self.latest.head {
            self.latest.count += 1;
            return;
        }
        // A patch that cannot be read is for the flush to complain of.
        let Ok(mut columns) = rows.present(value, scratch) else { return };
        let LatestPatches { columns: before, count, .. } = std::mem::take(&mut self.latest);
        if count > 0 {
            *self.patches.entry(before).or_default() += count;
        }
        if self.patches.len() >= MAX_PATCHES && !self.patches.contains_key(&columns) {
            columns = rows.schema().value_columns();
        }
        self.latest = LatestPatches { head: head.to_vec(), columns, count: 1 };
    }

    /// Sets of columns, and patches of just these; a set may come twice.
    fn patches(&self) -> impl Iterator<Item = (&ColumnSet, u64)> {
        let latest = (&self.latest.columns, &self.latest.count);
        let all = self.patches.iter().chain([latest]).map(|(columns, &count)| (columns, count));
        all.filter(|(_, count)| *count > 0)
    }
}

/// The entries of a memtable, tallied as they are passed on the way forwards.
pub(crate) struct TalliedEntries<'a> {
    pub(crate) entries: MemtableCursor,
    pub(crate) rows: &'a RowFormat,
    pub(crate) tally: &'a mut WriteTally,
    pub(crate) scratch: RowScratch,
}

impl Cursor for TalliedEntries<'_> {
    fn valid(&self) -> bool {
        self.entries.valid()
    }
    fn key(&self) -> &[u8] {
        self.entries.key()
    }
    fn trailer(&self) -> Trailer {
        self.entries.trailer()
    }
    fn value(&self) -> &[u8] {
        self.entries.value()
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.entries.seek_to_first()
    }
    fn seek_to_last(&mut self) -> Result<()> {
        self.entries.seek_to_last()
    }
    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.entries.seek(key, trailer)
    }
    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.entries.seek_before(key, trailer)
    }
    fn next(&mut self) -> Result<()> {
        let operation = self.entries.trailer().operation();
        self.tally.add(operation, self.entries.value(), self.rows, &mut self.scratch);
        self.entries.next()
    }
    fn prev(&mut self) -> Result<()> {
        self.entries.prev()
    }
    fn same_key_as_previous(&self) -> bool {
        self.entries.same_key_as_previous()
    }
    fn add_counters(&self, counters: &mut ReadCounters) {
        self.entries.add_counters(counters);
    }
}

/// What a scan reads, by level and column group. Counts as one scan when the last of its runs is let go.
pub(crate) struct ScanTally {
    traces: Arc<TableTraces>,
    columns: ColumnSet,
    /// Whose formats the runs have.
    tree: Arc<Tree>,
    runs: Mutex<Vec<TalliedRun>>,
}

/// What a scan read of a run.
struct TalliedRun {
    level: usize,
    /// Of the run in its tree.
    format: usize,
    entries: u64,
}

impl ScanTally {
    /// For a scan of `columns` of a tree, all if `None`; nothing to tally where there are none.
    pub(crate) fn new(
        traces: Option<&Arc<TableTraces>>,
        tree: &Arc<Tree>,
        columns: Option<&ColumnSet>,
    ) -> Option<Arc<Self>> {
        let traces = traces?;
        let columns = columns.unwrap_or_else(|| traces.recorder.numbering().columns());
        if columns.is_empty() {
            return None;
        }
        let (traces, columns, tree) = (traces.clone(), columns.clone(), tree.clone());
        Some(Arc::new(Self { traces, columns, tree, runs: Mutex::default() }))
    }

    /// So many entries of a run at this level, of this format of the tree, were read.
    pub(crate) fn note(&self, level: usize, format: usize, entries: u64) {
        self.runs.lock().push(TalliedRun { level, format, entries });
    }
}

/// Entries read of each level by a scan of `wanted`: of the column of which most was read. `columns_of` says what a
/// format holds. By level.
fn entries_by_level<'f>(
    mut runs: Vec<TalliedRun>,
    wanted: &ColumnSet,
    columns_of: impl Fn(usize) -> &'f ColumnSet,
) -> Vec<(usize, u64)> {
    runs.sort_unstable_by_key(|run| (run.level, run.format));
    runs.dedup_by(|run, same| {
        let is_same = (run.level, run.format) == (same.level, same.format);
        same.entries += if is_same { run.entries } else { 0 };
        is_same
    });
    let of_level = |formats: &[TalliedRun]| {
        if let [only] = formats {
            return (only.level, only.entries);
        }
        let of_column = |column: usize| -> u64 {
            let holding = formats.iter().filter(|run| columns_of(run.format).contains(column));
            holding.map(|run| run.entries).sum()
        };
        (formats[0].level, wanted.iter().map(of_column).max().unwrap_or_default())
    };
    runs.chunk_by(|a, b| a.level == b.level).map(of_level).collect()
}

impl Drop for ScanTally {
    fn drop(&mut self) {
        let Ok(projection) = self.traces.recorder.projection(&self.columns) else { return };
        let runs = std::mem::take(&mut *self.runs.lock());
        for (level, entries) in entries_by_level(runs, &self.columns, |format| self.tree.formats[format].columns()) {
            if entries > 0 {
                projection.add_scans(level.min(self.traces.levels - 1), 1, entries);
            }
        }
    }
}

/// A run of a scan that is tallied.
pub(crate) struct TracedRun {
    cursor: RunCursor,
    /// Entries it has stood on.
    entries: u64,
    level: usize,
    format: usize,
    tally: Arc<ScanTally>,
}

impl TracedRun {
    /// `format` is that of the run in its tree.
    pub(crate) fn new(cursor: RunCursor, level: usize, format: usize, tally: Arc<ScanTally>) -> Self {
        Self { cursor, entries: 0, level, format, tally }
    }

    #[inline]
    fn note(&mut self) {
        self.entries += u64::from(self.cursor.valid());
    }
}

impl Drop for TracedRun {
    fn drop(&mut self) {
        self.tally.note(self.level, self.format, self.entries);
    }
}

impl Cursor for TracedRun {
    #[inline]
    fn valid(&self) -> bool {
        self.cursor.valid()
    }
    #[inline]
    fn key(&self) -> &[u8] {
        self.cursor.key()
    }
    #[inline]
    fn trailer(&self) -> Trailer {
        self.cursor.trailer()
    }
    #[inline]
    fn value(&self) -> &[u8] {
        self.cursor.value()
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.cursor.seek_to_first()?;
        self.note();
        Ok(())
    }
    fn seek_to_last(&mut self) -> Result<()> {
        self.cursor.seek_to_last()?;
        self.note();
        Ok(())
    }
    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.cursor.seek(key, trailer)?;
        self.note();
        Ok(())
    }
    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.cursor.seek_before(key, trailer)?;
        self.note();
        Ok(())
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        self.cursor.next()?;
        self.note();
        Ok(())
    }
    fn visit(&mut self, mut visit: impl FnMut(&EntryRef<'_>, bool) -> bool) -> Result<()> {
        let mut passed = 0;
        let result = self.cursor.visit(|entry, same_key| {
            let goes_on = visit(entry, same_key);
            passed += u64::from(goes_on);
            goes_on
        });
        // It stood on the first before.
        self.entries += passed - u64::from(passed > 0 && !self.cursor.valid());
        result
    }
    fn prev(&mut self) -> Result<()> {
        self.cursor.prev()?;
        self.note();
        Ok(())
    }
    #[inline]
    fn same_key_as_previous(&self) -> bool {
        self.cursor.same_key_as_previous()
    }
    fn add_counters(&self, counters: &mut ReadCounters) {
        self.cursor.add_counters(counters);
    }
}

#[cfg(test)]
mod tests {
    use mycelium_encoding::{ColumnState, DatumRef, Schema};
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Patches of the same columns come in a row, or not; what they hold differs.
    #[test]
    fn patches_count_for_their_columns_whether_they_begin_alike_or_not() {
        let schema = "id int64 not null, a int32, b utf8, c int64, d bool, e utf8, primary key (id)";
        let schema = Arc::new(Schema::parse(schema).unwrap());
        for rows in [RowFormat::packed(schema.clone()), RowFormat::json(schema.clone())] {
            for seed in 0..50 {
                let rng = &mut SmallRng::seed_from_u64(seed);
                let (mut tally, mut expected) = (WriteTally::default(), BTreeMap::<ColumnSet, u64>::new());
                let (mut scratch, mut patch, mut set) = (RowScratch::default(), Vec::new(), 1);
                for number in 0..rng.random_range(1..200) {
                    set = if rng.random_ratio(1, 3) { rng.random_range(1..32) } else { set };
                    let columns: ColumnSet = (1..=5).filter(|column| set >> (column - 1) & 1 == 1).collect();
                    let text = number.to_string();
                    let is_null = rng.random_ratio(1, 5);
                    let state = |column: usize| match column {
                        _ if !columns.contains(column) => ColumnState::Absent,
                        _ if is_null => ColumnState::Null,
                        1 => ColumnState::Value(DatumRef::Int32(number)),
                        3 => ColumnState::Value(DatumRef::Int64(number.into())),
                        4 => ColumnState::Value(DatumRef::Bool(true)),
                        _ => ColumnState::Value(DatumRef::Utf8(&text)),
                    };
                    patch.clear();
                    rows.encode_with(state, &mut scratch, &mut patch).unwrap();
                    tally.add(Operation::Patch, &patch, &rows, &mut scratch);
                    *expected.entry(columns).or_default() += 1;
                }
                let mut counted = BTreeMap::<ColumnSet, u64>::new();
                tally.patches().for_each(|(columns, count)| *counted.entry(columns.clone()).or_default() += count);
                assert_eq!(counted, expected, "seed {seed}, {}", rows.kind());
            }
        }
    }

    /// What is read of runs of some columns, by level, by a scan of `wanted`.
    fn counted(wanted: &str, runs: &[(usize, &str, u64)]) -> Vec<(usize, u64)> {
        let formats: Vec<ColumnSet> = runs.iter().map(|(_, columns, _)| columns.parse().unwrap()).collect();
        let same = |columns: &ColumnSet| formats.iter().position(|known| known == columns).unwrap();
        let run = |(at, &(level, _, entries)): (usize, &(usize, &str, u64))| TalliedRun {
            level,
            format: same(&formats[at]),
            entries,
        };
        let runs: Vec<TalliedRun> = runs.iter().enumerate().map(run).collect();
        entries_by_level(runs, &wanted.parse().unwrap(), |format| &formats[format])
    }

    #[test]
    fn groups_of_a_level_hold_the_same_keys() {
        let runs = [(0, "0-3", 5), (0, "0-3", 7), (2, "0-1", 90), (2, "2-3", 100), (2, "0-1", 20), (3, "0-3", 0)];
        assert_eq!(counted("0-3", &runs), [(0, 12), (2, 110), (3, 0)]);
        assert_eq!(counted("3", &[(1, "2-3", 9)]), [(1, 9)]);
    }

    /// Whole rows and column groups of a level whose layout changed are of other keys: the larger number alone was
    /// told.
    #[test]
    fn runs_of_several_layouts_hold_other_keys() {
        let changed = [(4, "0-3", 1_000), (4, "0-1", 300), (4, "2", 310), (4, "3", 300)];
        assert_eq!(counted("0-3", &changed), [(4, 1_310)]);
        assert_eq!(counted("0,3", &changed), [(4, 1_300)]);
        // Three layouts: column 3 is in all of them, and not the first of any two.
        let twice = [(4, "1-3", 100), (4, "1,3", 10), (4, "2-3", 1)];
        assert_eq!(counted("1-3", &twice), [(4, 111)]);
    }
}
