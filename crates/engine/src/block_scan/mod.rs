//! Scans of tables whose oldest runs are columnar: many rows at a time (DESIGN §5, LSM-OPD §4.2.2).
//!
//! 1. The oldest runs are read block by block, as far as they are columnar. What is younger, memtables included, is
//!    merged apart: the *rest*. Memtables and files of nothing but patches of other columns are not among it.
//! 2. The runs that stand on the next key may be a [`Layer`]: together they have all wanted columns, each of them once.
//!    A *stretch* is a number of rows of a layer's current blocks that nothing else touches: as far as its runs have
//!    the same keys, up to the next key of another run or of the rest, or the next range delete. Where its blocks hold
//!    only whole rows that the snapshot sees, each once, its columns are appended page by page, and no row is looked at
//!    by itself. So runs of neighbouring keys, as of data that come in the order of time, pass one after the other, and
//!    column groups that are compacted one by one (LASER §4.4) pass from whichever levels they are at.
//! 3. A filter is tested on pages: a block whose zones rule it out costs no more, and is not even read where a layer is
//!    one run and nothing else has a key among its own; otherwise each test clears bits of a bitmap of the block's
//!    rows, on codes and integers, and of a stretch only the rows that are left are decoded.
//! 4. A row of which the rest only has values of columns of fixed width, in patches or in a newer whole row, stays in
//!    its stretch, and its cells are overwritten in the batch; so does one of which another run has a patch. A new
//!    whole row of the rest is put among the rows of the stretch, and one that is replaced or deleted is left out of it
//!    ([`inserts`]). The keys of the rest are read ahead and found in the block one after the other, each from the last
//!    one on; what they change is found out once for all that look alike ([`patches`]). Where a changed column is
//!    tested, the row is decided by itself: by the new values, and by what the tests of other columns found of the
//!    block. Patches of columns that are not wanted touch nothing.
//!    So it is, many at once and column by column, with what younger columnar runs have of a stretch's keys and between
//!    them ([`overlays`]).
//! 5. Any other key is put together from its entries ([`ColumnMerge`]), and the filter decides on the row: an old
//!    version that passes never comes up because a new one does not, and a patch that makes a row pass finds the rest
//!    of the row.
//! 6. Where stretches are short, since runs interleave, they are merged by their keys alone, many rows at once
//!    ([`interleave`]).
//! 7. What younger files say of a block that is read as a whole never changes: it is found out once, and kept
//!    ([`deltas`]). The rest then is what still changes.
//! 8. So far the plan is to merge keys and then to filter. Where runs interleave and few rows pass it costs less to
//!    filter first and to check what is found ([`check`]); which of the two it is, is judged again and again
//!    ([`plan`]).
//! 9. Who asks for counts, minima and maxima may be told blocks by their zones ([`told`]).
//! 10. A stretch or interval ends before its texts would be more than the batch still takes, which is seen from the
//!     ends of texts and the longest of a dictionary, before anything is appended.
//!
//! Cost: O(runs) a stretch or interval and column, not a row, beside what the rows themselves take; O(log) more for
//! each key that is touched. Memory: a block of each run, and one batch.

mod append;
mod check;
mod deltas;
mod inserts;
mod interleave;
mod layer;
mod layer_run;
mod overlay_cells;
mod overlays;
mod overwrites;
mod patches;
mod plan;
mod positional_delta;
mod row_filter;
mod stretch;
mod told;
mod touched;

use std::sync::Arc;

use mycelium_base::{ColumnSet, Cursor, RangeDelete, RangeDeleteSet, ReadCounters, Result, SequenceNumber, Trailer};
use mycelium_encoding::RecordBatchBuilder;
use mycelium_merge::{ColumnMerge, MergePlan, MergingCursor};

use self::deltas::Deltas;
use self::inserts::Inserts;
use self::interleave::Interleaving;
use self::layer::Layer;
use self::overlays::Overlays;
use self::patches::{Overwrite, PatchShapes};
use self::plan::Plan;
use self::told::Told;
use self::touched::{Rest, Touched};
use crate::sources::Source;
use crate::traces::ScanTally;

pub use plan::FilterPlan;
pub use told::{ToldColumn, ToldRows};

pub(crate) use deltas::{DeltaParts, SettledPart};
pub(crate) use layer_run::LayerRun;
pub(crate) use row_filter::RowFilter;

/// Bounds of [`BlockScan`]'s reach.
const LEAST_REACH: usize = 64;
const MOST_REACH: usize = 1 << 20;

/// What comes next.
enum Next {
    End,
    /// Not before the next batch.
    Full,
    /// So many rows of the layer.
    Stretch(usize),
    /// The key in `BlockScan::key`.
    Key,
}

/// A scan in progress. Belongs to one thread at a time.
pub(crate) struct BlockScan {
    snapshot: SequenceNumber,
    /// The wanted columns.
    columns: ColumnSet,
    /// Those read block by block, youngest first.
    runs: Vec<LayerRun>,
    /// Those met so far.
    layers: Vec<Layer>,
    /// The layer of the stretch.
    at: usize,
    /// The run outside the layer that has the first key, and whether another has it, too.
    bound: Option<usize>,
    is_bound_shared: bool,
    interleaving: Interleaving,
    rest: MergingCursor<Source>,
    /// The format in the tree of each source of the rest.
    rest_kinds: Vec<usize>,
    /// The next keys of the rest; the rest stands behind them.
    touched: Touched,
    /// Those of the patches of the stretches.
    shapes: PatchShapes,
    /// What changes cells of a stretch.
    overwrites: Vec<Overwrite>,
    /// The new rows among those of a stretch.
    inserts: Inserts,
    /// The younger runs that are laid over it.
    overlays: Overlays,
    /// What files above have of its block, if anything may have been found out of it.
    deltas: Option<Box<Deltas>>,
    /// The first run of those that this is changed in.
    base: usize,
    /// Rows of which the keys of several runs are compared at once: more of them as long as stretches are as long.
    reach: usize,
    /// Where keys of the rest are in the stretch, and whether they are; and how many are looked for at once.
    places: Vec<(usize, bool)>,
    sought: usize,
    /// Rows of the stretch whose patches touch tested columns, and whether they pass.
    decisions: Vec<(usize, bool)>,
    /// Rows of the stretch that are changed so.
    overwritten: usize,
    /// Of all sources, by their format; and all within the bounds that the snapshot sees together.
    range_deletes: Vec<(Arc<RangeDeleteSet>, usize)>,
    all_range_deletes: RangeDeleteSet,
    merge: ColumnMerge,
    filter: Option<RowFilter>,
    /// What is told in place of rows, if anything may be.
    told: Option<Told>,
    plan: Plan,
    upper: Option<Vec<u8>>,
    tally: Option<Arc<ScanTally>>,
    counters: ReadCounters,
    key: Vec<u8>,
    row: Vec<u8>,
    patch: Vec<u8>,
    /// Rows of a stretch that pass.
    passing: Vec<u32>,
    shifted: Vec<u32>,
}

/// What a scan is made of; see the fields of [`BlockScan`].
pub(crate) struct BlockScanParts {
    pub(crate) snapshot: SequenceNumber,
    /// The wanted columns, or those that say which rows there are; the runs have them all.
    pub(crate) columns: ColumnSet,
    /// Youngest first, and older than all of the rest.
    pub(crate) runs: Vec<LayerRun>,
    pub(crate) rest: (Vec<Source>, Vec<usize>),
    /// The sources of the rest, parted, if some of them do not change.
    pub(crate) deltas: Option<DeltaParts>,
    pub(crate) range_deletes: Vec<(Arc<RangeDeleteSet>, usize)>,
    pub(crate) plan: Arc<MergePlan>,
    pub(crate) filter: Option<RowFilter>,
    pub(crate) filter_plan: FilterPlan,
    pub(crate) bounds: (Option<Vec<u8>>, Option<Vec<u8>>),
    pub(crate) tally: Option<Arc<ScanTally>>,
    pub(crate) counters: ReadCounters,
}

impl BlockScan {
    /// At the first key within the bounds.
    pub(crate) fn new(parts: BlockScanParts) -> Result<Self> {
        let BlockScanParts { snapshot, columns, mut runs, rest, range_deletes, plan, filter, tally, counters, .. } =
            parts;
        let (filter_plan, (lower, upper)) = (parts.filter_plan, parts.bounds);
        let mut deletes = Vec::new();
        for (set, _) in &range_deletes {
            let from_lower = set.fragments().skip_while(|f| lower.as_deref().is_some_and(|lower| f.end() <= lower));
            for fragment in from_lower.take_while(|f| upper.as_deref().is_none_or(|upper| f.start() < upper)) {
                let (start, end) = (fragment.start().to_vec(), fragment.end().to_vec());
                deletes.extend(fragment.newest(snapshot).map(|sequence| RangeDelete { start, end, sequence }));
            }
        }
        let mut rest_cursor = MergingCursor::new(rest.0);
        let start = lower.as_deref().unwrap_or_default();
        rest_cursor.seek(start, Trailer::NEWEST)?;
        for run in &mut runs {
            run.cursor.seek(start, Trailer::NEWEST)?;
        }
        let tests_values = filter.as_ref().is_some_and(|filter| !filter.value_tests.is_empty());
        let have_all_columns = runs.iter().all(|run| run.share == columns);
        let plan_of_scan = Plan::new(filter_plan, runs.len(), tests_values && have_all_columns);
        let has_fixed_plan = filter.is_none() || plan_of_scan.always_merges();
        let parted = parts.deltas.filter(|_| has_fixed_plan && deletes.is_empty());
        let mut scan = Self {
            base: parted.as_ref().and_then(|parts| parts.base.first()).copied().unwrap_or_default(),
            deltas: parted.map(|parts| Box::new(Deltas::new(parts, snapshot, lower.is_none()))),
            plan: plan_of_scan,
            snapshot,
            columns,
            runs,
            layers: Vec::new(),
            at: 0,
            bound: None,
            is_bound_shared: false,
            interleaving: Interleaving::default(),
            rest: rest_cursor,
            rest_kinds: rest.1,
            touched: Touched::default(),
            shapes: PatchShapes::default(),
            overwrites: Vec::new(),
            inserts: Inserts::default(),
            overlays: Overlays::default(),
            reach: LEAST_REACH,
            places: Vec::new(),
            sought: 0,
            decisions: Vec::new(),
            overwritten: 0,
            range_deletes,
            all_range_deletes: RangeDeleteSet::new(&deletes),
            merge: ColumnMerge::new(plan),
            filter,
            told: None,
            upper,
            tally,
            counters,
            key: Vec::new(),
            row: Vec::new(),
            patch: Vec::new(),
            passing: Vec::new(),
            shifted: Vec::new(),
        };
        scan.pass_touched()?;
        if scan.plan.is_checking() {
            scan.begin_checking()?;
        }
        Ok(scan)
    }

    /// From now on rows of these columns may be told by zones. There is no filter.
    pub(crate) fn tell_zones(&mut self, columns: &[usize]) {
        debug_assert!(self.filter.is_none(), "zones do not say which rows pass");
        // Of blocks that are told nothing is read.
        self.deltas = None;
        self.told = Told::new(self.merge.plan().layout().schema(), columns);
    }

    /// What was told.
    pub(crate) fn told(&self) -> Option<&ToldRows> {
        self.told.as_ref().map(|told| &told.rows)
    }

    /// Appends rows until the builder is full, `left` is used up, or there are no more.
    pub(crate) fn fill(&mut self, builder: &mut RecordBatchBuilder, left: &mut u64, steps: &mut u32) -> Result<()> {
        while *left > 0 && *steps > 0 && builder.room() > 0 {
            *steps -= 1;
            let most = builder.room().min(usize::try_from(*left).unwrap_or(usize::MAX));
            let before = builder.len();
            let goes_on = match self.plan.is_checking() {
                true => self.append_candidates(most, builder)?,
                false => self.append_merged(most, builder)?,
            };
            if !goes_on {
                return Ok(());
            }
            *left -= (builder.len() - before) as u64;
            if self.plan.changes() {
                match self.plan.is_checking() {
                    true => self.begin_checking()?,
                    false => self.end_checking()?,
                }
            }
        }
        Ok(())
    }

    /// Takes the next interval, stretch or key; `false` if there is none.
    fn append_merged(&mut self, most: usize, builder: &mut RecordBatchBuilder) -> Result<bool> {
        let before = builder.len();
        if !self.has_delta() && self.interleaving.is_due(self.sources()) {
            let rows = self.append_interleaved(most, builder)?;
            if rows > 0 {
                self.plan.work.interleaved += rows as u64;
                self.plan.work.rows += rows as u64;
                self.plan.work.candidates += (builder.len() - before) as u64;
                return Ok(true);
            }
        }
        let (rows, between) = match self.next(most, builder)? {
            Next::End | Next::Full => return Ok(false),
            Next::Stretch(count) => {
                let between = self.inserts.looked_at();
                self.plan.work.touched += (self.overwritten + between) as u64;
                self.append_stretch(count, builder)?;
                (count + between, between)
            }
            Next::Key => {
                self.append_key(builder)?;
                (1, 0)
            }
        };
        // A new row between those of a stretch costs about as much as a step.
        self.interleaving.note_step(rows as f64 / (1 + between) as f64);
        self.plan.work.steps += 1;
        self.plan.work.rows += rows as u64;
        self.plan.work.candidates += (builder.len() - before) as u64;
        Ok(true)
    }

    /// The runs, and the rest if it has anything left.
    fn sources(&self) -> usize {
        self.runs.len() + usize::from(self.touched.key().is_some())
    }

    /// What the scan has read and skipped so far.
    pub(crate) fn counters(&self) -> ReadCounters {
        let mut counters = self.counters;
        self.rest.add_counters(&mut counters);
        self.deltas.iter().for_each(|deltas| deltas.add_counters(&mut counters));
        self.runs.iter().for_each(|run| run.add_counters(&mut counters));
        counters
    }

    /// Steps 2, 4 and 7 of the module; a stretch has at most `most` rows, new ones among them.
    fn next(&mut self, most: usize, builder: &RecordBatchBuilder) -> Result<Next> {
        self.enter_block(builder)?;
        if let Some(next) = self.find_next(most, builder)? {
            return Ok(next);
        }
        self.leave_delta()?;
        Ok(self.find_next(most, builder)?.unwrap_or(Next::Key))
    }

    /// The same; `None` if the delta that is in use does not do.
    fn find_next(&mut self, most: usize, builder: &RecordBatchBuilder) -> Result<Option<Next>> {
        self.begin_stretch();
        let Self { runs, touched, upper, key: next_key, .. } = self;
        let least = runs.iter().filter_map(LayerRun::key).min();
        let Some(key) = least.into_iter().chain(touched.key()).min() else { return Ok(Some(Next::End)) };
        if upper.as_deref().is_some_and(|upper| key >= upper) {
            return Ok(Some(Next::End));
        }
        let is_of_run = least.is_some_and(|least| least == key);
        next_key.clear();
        next_key.extend_from_slice(key);
        let mut count = 0;
        if self.find_layer(builder)? {
            self.find_overlays(builder);
            self.find_bound();
            count = self.find_end(self.fitting(most, builder), builder)?;
            self.end_overlays(count)?;
        }
        self.reach = count.clamp(LEAST_REACH / 2, MOST_REACH / 2) * 2;
        if !self.has_delta() {
            return Ok(Some(if count > 0 { Next::Stretch(count) } else { Next::Key }));
        }
        Ok(match count {
            0 if is_of_run => (!builder.is_empty() && self.delta_new_before(1) >= most).then_some(Next::Full),
            0 => (!self.is_behind_new()).then_some(Next::Key),
            _ => self.note_delta(count)?.then_some(Next::Stretch(count)),
        })
    }

    /// Forgets what was noted of the last stretch.
    fn begin_stretch(&mut self) {
        self.overwrites.clear();
        self.inserts.clear();
        self.overlays.clear();
        self.decisions.clear();
        self.overwritten = 0;
        self.shapes.begin_stretch();
    }

    /// How many rows of the layer the stretch has; notes what there is of them, and takes that.
    fn find_end(&mut self, most: usize, builder: &RecordBatchBuilder) -> Result<usize> {
        let mut count = 0;
        loop {
            let room = most - self.inserts.more() - self.new_before(count) - count;
            let end = count + self.untouched(count)?.min(room);
            let end = self.lay_over(count..end, most - self.inserts.more())?;
            let end = self.fitting_with_new(count..end, most - self.inserts.more() - self.overlays.new_before(end));
            let most_of_rest = most - self.new_before(end);
            count = self.takes_touched(count..end, most_of_rest, builder)?;
            let is_full = count + self.inserts.more() + self.new_before(count) == most;
            if count < end || is_full || !self.overwrites_bound(count, builder)? {
                return Ok(count);
            }
            count += 1;
        }
    }

    /// New rows that overlays and the delta have before a row of the stretch.
    fn new_before(&self, row: usize) -> usize {
        self.overlays.new_before(row) + self.delta_new_before(row)
    }

    /// To the next key of the rest that has something to say.
    fn pass_touched(&mut self) -> Result<()> {
        self.plan.work.touched += 1;
        let mut touched = std::mem::take(&mut self.touched);
        touched.next(self.rest())?;
        self.touched = touched;
        Ok(())
    }

    /// What is merged apart.
    fn rest(&mut self) -> Rest<'_> {
        let Self { rest: merged, rest_kinds: kinds, upper, snapshot, merge, .. } = self;
        Rest { merged, kinds, plan: merge.plan(), snapshot: *snapshot, upper: upper.as_deref() }
    }

    /// Step 5 of the module, for the key in `key`.
    fn append_key(&mut self, builder: &mut RecordBatchBuilder) -> Result<()> {
        self.begin_key()?;
        for run in &mut self.runs {
            run.visit(&self.key, self.snapshot, &mut self.merge)?;
        }
        self.end_key(builder)
    }

    /// Gives the merge what range deletes and the rest say of the key.
    fn begin_key(&mut self) -> Result<()> {
        self.merge.reset();
        for (set, kind) in &self.range_deletes {
            if let Some(sequence) = set.covering(&self.key, self.snapshot) {
                self.merge.cover(*kind, sequence);
            }
        }
        if self.touched.key() == Some(&self.key) {
            for (kind, trailer, value) in self.touched.entries() {
                self.merge.visit(kind, trailer, value).map(drop)?;
            }
            self.pass_touched()?;
        }
        Ok(())
    }

    /// Appends the row put together, if there is one and it passes.
    fn end_key(&mut self, builder: &mut RecordBatchBuilder) -> Result<()> {
        self.row.clear();
        self.counters.rows_merged += 1;
        if !self.merge.finish(&mut self.row)? {
            return Ok(());
        }
        let passes = self.filter.as_ref().map_or(Ok(true), |filter| filter.passes(&self.key, &self.row))?;
        if passes { builder.append(&self.key, &self.row) } else { Ok(()) }
    }
}

impl Drop for BlockScan {
    fn drop(&mut self) {
        if let Some(tally) = &self.tally {
            self.runs.iter().for_each(|run| tally.note(run.level, run.kind, run.rows));
        }
    }
}
