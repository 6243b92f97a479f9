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
//! 3. A filter is tested on pages: a block whose zones rule it out costs no more; otherwise each test clears bits of a
//!    bitmap of the block's rows, on codes and integers, and of a stretch only the rows that are left are decoded.
//! 4. A row of which the rest only has patches of columns of fixed width, or a younger run one, stays in its stretch,
//!    and its patched cells are overwritten in the batch. The keys of the rest are read ahead and found in the block
//!    one after the other, each from the last one on; what patches change is found out once for all that look alike
//!    ([`PatchShape`]). Where a patched column is tested, the row is decided by itself: by the patch's values, and by
//!    what the tests of other columns found of the block. Patches of columns that are not wanted touch nothing.
//! 5. Any other key is put together from its entries ([`ColumnMerge`]), and the filter decides on the row: an old
//!    version that passes never comes up because a new one does not, and a patch that makes a row pass finds the rest
//!    of the row.
//! 6. Where stretches are short, since runs interleave, they are merged by their keys alone, many rows at once
//!    ([`interleave`]).
//! 7. So far the plan is to merge keys and then to filter. Where runs interleave and few rows pass it costs less to
//!    filter first and to check what is found ([`check`]); which of the two it is, is judged again and again
//!    ([`plan`]).
//! 8. A stretch or interval ends before its texts would be more than the batch still takes, which is seen from the ends
//!    of texts and the longest of a dictionary, before anything is appended.
//!
//! Cost: O(runs) a stretch or interval and column, not a row, beside what the rows themselves take; O(log) more for
//! each key that is touched. Memory: a block of each run, and one batch.

mod check;
mod interleave;
mod layer;
mod layer_run;
mod patches;
mod plan;
mod row_filter;
mod touched;

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use mycelium_base::{
    ColumnSet, Cursor, Operation, RangeDelete, RangeDeleteSet, ReadCounters, Result, SequenceNumber, Trailer,
};
use mycelium_encoding::RecordBatchBuilder;
use mycelium_merge::{ColumnMerge, MergePlan, MergingCursor};
use mycelium_sst::ColumnBlock;

use self::interleave::Interleaving;
use self::layer::{Layer, Target};
use self::patches::{Overwrite, PatchShape};
use self::plan::Plan;
use self::touched::{Rest, Touched};
use crate::sources::Source;
use crate::traces::ScanTally;

pub use plan::FilterPlan;

pub(crate) use layer_run::LayerRun;
pub(crate) use row_filter::RowFilter;

/// Bounds of [`BlockScan`]'s reach.
const LEAST_REACH: usize = 64;
const MOST_REACH: usize = 1 << 20;

/// Where so many keys of the rest are in a stretch, there are many more in its block.
const MANY: usize = 2;

/// What comes next.
enum Next {
    End,
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
    /// That of the last patch of the stretch.
    shape: PatchShape,
    /// What changes cells of a stretch.
    overwrites: Vec<Overwrite>,
    /// Rows of which the keys of several runs are compared at once: more of them as long as stretches are as long.
    reach: usize,
    /// Where keys of the rest are in the stretch, and whether they are.
    places: Vec<(usize, bool)>,
    /// Rows of the stretch whose patches touch tested columns, and whether they pass.
    decisions: Vec<(usize, bool)>,
    /// Rows of the stretch that are changed so.
    overwritten: usize,
    /// Of all sources, by their format; and all within the bounds that the snapshot sees together.
    range_deletes: Vec<(Arc<RangeDeleteSet>, usize)>,
    all_range_deletes: RangeDeleteSet,
    merge: ColumnMerge,
    filter: Option<RowFilter>,
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
        let mut scan = Self {
            plan: Plan::new(filter_plan, runs.len(), tests_values && have_all_columns),
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
            shape: PatchShape::default(),
            overwrites: Vec::new(),
            reach: LEAST_REACH,
            places: Vec::new(),
            decisions: Vec::new(),
            overwritten: 0,
            range_deletes,
            all_range_deletes: RangeDeleteSet::new(&deletes),
            merge: ColumnMerge::new(plan),
            filter,
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
        if self.interleaving.is_due(self.sources()) {
            let rows = self.append_interleaved(most, builder)?;
            if rows > 0 {
                self.plan.work.interleaved += rows as u64;
                self.plan.work.rows += rows as u64;
                self.plan.work.candidates += (builder.len() - before) as u64;
                return Ok(true);
            }
        }
        let rows = match self.next(most, builder)? {
            Next::End => return Ok(false),
            Next::Stretch(count) => {
                self.append_stretch(count, builder)?;
                self.plan.work.touched += self.overwritten as u64;
                count
            }
            Next::Key => {
                self.append_key(builder)?;
                1
            }
        };
        self.interleaving.note_step(rows);
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
        self.runs.iter().for_each(|run| run.add_counters(&mut counters));
        counters
    }

    /// Steps 2 and 4 of the module; a stretch has at most `most` rows.
    fn next(&mut self, most: usize, builder: &RecordBatchBuilder) -> Result<Next> {
        self.overwrites.clear();
        self.decisions.clear();
        self.overwritten = 0;
        self.shape.clear();
        let Self { runs, touched, upper, key: next_key, .. } = self;
        let least = runs.iter().filter_map(LayerRun::key).min();
        let Some(key) = least.into_iter().chain(touched.key()).min() else { return Ok(Next::End) };
        if upper.as_deref().is_some_and(|upper| key >= upper) {
            return Ok(Next::End);
        }
        next_key.clear();
        next_key.extend_from_slice(key);
        let mut count = 0;
        if self.find_layer(builder)? {
            self.find_bound();
            let most = self.fitting(most, builder);
            loop {
                let plain = self.untouched(count)?.min(most - count);
                let taken = self.overwrites_touched(count..count + plain, builder)?;
                count += taken;
                if taken < plain || count == most || !self.overwrites_bound(count, builder)? {
                    break;
                }
                count += 1;
            }
        }
        self.reach = count.clamp(LEAST_REACH / 2, MOST_REACH / 2) * 2;
        Ok(if count > 0 { Next::Stretch(count) } else { Next::Key })
    }

    /// The layer of the stretch.
    fn layer(&self) -> &Layer {
        &self.layers[self.at]
    }

    /// Its runs.
    fn layer_runs(&self) -> impl Iterator<Item = &LayerRun> {
        self.layer().among(&self.runs)
    }

    /// Makes the layer that of the oldest runs that stand on the key; whether there is one.
    fn find_layer(&mut self, builder: &RecordBatchBuilder) -> Result<bool> {
        let stands = |run: &LayerRun| run.key() == Some(&self.key);
        let standing = self.runs.iter().filter(|run| stands(run)).count();
        let is_last =
            |layer: &Layer| layer.runs.len() == standing && layer.runs.iter().all(|&run| stands(&self.runs[run]));
        if self.layers.get(self.at).is_some_and(is_last) {
            return Ok(true);
        }
        let (mut missing, mut chosen) = (self.columns.clone(), Vec::with_capacity(standing));
        for (at, run) in self.runs.iter().enumerate().rev().filter(|(_, run)| stands(run)) {
            if run.share.is_subset(&missing) {
                missing.remove_all(&run.share);
                chosen.push(at);
            }
        }
        if !missing.is_empty() || chosen.is_empty() {
            return Ok(false);
        }
        chosen.reverse();
        self.at = self.layer_of(&chosen, builder)?;
        Ok(true)
    }

    /// The place of the layer of these runs.
    fn layer_of(&mut self, runs: &[usize], builder: &RecordBatchBuilder) -> Result<usize> {
        if let Some(at) = self.layers.iter().position(|layer| layer.runs == runs) {
            return Ok(at);
        }
        self.layers.push(Layer::new(runs.to_vec(), &self.runs, builder)?);
        Ok(self.layers.len() - 1)
    }

    /// How many of the next rows of the layer, `most` at most, surely have no more text than the batch still takes.
    fn fitting(&self, most: usize, builder: &RecordBatchBuilder) -> usize {
        let mut fitting = most;
        for &Target { target, run, place, .. } in &self.layer().targets {
            let Some((block, row)) = self.runs[run].block() else { continue };
            let rows = row..block.rows().min(row.saturating_add(fitting));
            let there = rows.len();
            let within = block.read(|pages| builder.fitting(target, &pages[place], rows, self.reach));
            // Of rows that are not there nothing is known.
            if within < there {
                fitting = within;
            }
        }
        fitting
    }

    /// Makes `bound` the run whose key ends the stretch.
    fn find_bound(&mut self) {
        let mut first: Option<(&[u8], usize)> = None;
        let mut is_shared = false;
        let others = self.runs.iter().enumerate().filter(|(run, _)| !self.layer().runs.contains(run));
        for (run, key) in others.filter_map(|(run, other)| Some((run, other.key()?))) {
            match first.map_or(Ordering::Less, |(first, _)| key.cmp(first)) {
                Ordering::Less => (first, is_shared) = (Some((key, run)), false),
                Ordering::Equal => is_shared = true,
                Ordering::Greater => {}
            }
        }
        self.bound = first.map(|(_, run)| run);
        self.is_bound_shared = is_shared;
    }

    /// The key of the bound.
    fn bound_key(&self) -> Option<&[u8]> {
        self.bound.and_then(|run| self.runs[run].key())
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

    /// How many rows from the `offset`th on, up to the bound, can be taken as they lie, but for what the rest has of
    /// them.
    fn untouched(&self, offset: usize) -> Result<usize> {
        let deleted = self.all_range_deletes.next_start(&self.key);
        let end_key = [self.bound_key(), deleted, self.upper.as_deref()].into_iter().flatten().min();
        let mut count = usize::MAX;
        let mut first: Option<(&ColumnBlock, usize)> = None;
        for run in self.layer_runs() {
            let Some((block, row)) = run.block() else { return Ok(0) };
            if !block.facts().is_plain(self.snapshot) {
                return Ok(0);
            }
            let row = row + offset;
            let end = end_key.map_or(Ok(block.rows()), |key| block.seek(key))?;
            count = count.min(end.saturating_sub(row));
            match first {
                None => first = Some((block, row)),
                Some((other, other_row)) => {
                    count = other.same_keys(other_row, (block, row), count.min(self.reach))?;
                }
            }
        }
        Ok(if first.is_some() { count } else { 0 })
    }

    /// Of these rows of the stretch, how many of the first can be taken with the patches that the rest has of them
    /// written over their cells; takes the patches.
    fn overwrites_touched(&mut self, rows: Range<usize>, builder: &RecordBatchBuilder) -> Result<usize> {
        let mut touched = std::mem::take(&mut self.touched);
        let taken = self.overwrites_all(&mut touched, rows, builder);
        self.touched = touched;
        taken
    }

    fn overwrites_all(
        &mut self,
        touched: &mut Touched,
        rows: Range<usize>,
        builder: &RecordBatchBuilder,
    ) -> Result<usize> {
        let mut from = rows.start;
        while from < rows.end {
            self.find_in_stretch(from..rows.end, touched)?;
            let places = std::mem::take(&mut self.places);
            let noted = self.note_found(&places, touched, builder);
            touched.read_if_used_up(self.rest())?;
            let next = places.get(noted?);
            let (found, last) = (next.map(|&(place, _)| place), places.last().map(|&(place, _)| place));
            self.places = places;
            match (found, last) {
                (Some(place), _) => return Ok(place - rows.start),
                (None, Some(last)) => from = last + 1,
                (None, None) => break,
            }
        }
        Ok(rows.len())
    }

    /// Notes the patches of the keys at these places, up to the first that has something else or is not there; how
    /// many.
    fn note_found(
        &mut self,
        places: &[(usize, bool)],
        touched: &mut Touched,
        builder: &RecordBatchBuilder,
    ) -> Result<usize> {
        for (noted, &(place, is_there)) in places.iter().enumerate() {
            if !is_there || !self.note_touched(touched, place, builder)? {
                return Ok(noted);
            }
            touched.pass(1);
        }
        Ok(places.len())
    }

    /// Makes `places` where in these rows of the stretch the keys read ahead are, or would be, and whether they are
    /// there: up to the first that is not.
    fn find_in_stretch(&mut self, rows: Range<usize>, touched: &Touched) -> Result<()> {
        let Self { layers, at, runs, places, .. } = self;
        places.clear();
        let Some((block, row)) = layers[*at].first_block(runs) else { return Ok(()) };
        block.seek_each(row + rows.start, touched.keys_ahead(), |found, is_there| {
            let is_in_stretch = found - row < rows.end;
            if is_in_stretch {
                places.push((found - row, is_there));
            }
            if places.len() == MANY {
                block.prefetch_keys();
            }
            is_in_stretch && is_there
        })
    }

    /// Notes the patches of the next key of the rest, if it has nothing else and all of them can be noted.
    fn note_touched(&mut self, touched: &Touched, offset: usize, builder: &RecordBatchBuilder) -> Result<bool> {
        let (before, decided) = (self.overwrites.len(), self.decisions.len());
        let mut is_noted = touched.has_only_patches();
        let mut decided_by = None;
        // Oldest first, so that newer values are written over older ones, and the newest decides.
        for (kind, _, patch) in touched.entries().rev() {
            is_noted = is_noted && self.note_patch((kind, patch), offset, builder)?;
            // Patches of several tested columns decide together.
            if is_noted && self.shape.is_tested() {
                let shape = self.shape.number();
                is_noted = decided_by.replace(shape).is_none_or(|before| before == shape);
            }
        }
        match is_noted {
            true => self.overwritten += 1,
            false => {
                self.overwrites.truncate(before);
                self.decisions.truncate(decided);
            }
        }
        Ok(is_noted)
    }

    /// Whether the row at this place of the stretch is the one at the bound, and all that the bound's run has of it is
    /// a patch that can be written over its cells; takes the patch then, and finds the next bound.
    fn overwrites_bound(&mut self, offset: usize, builder: &RecordBatchBuilder) -> Result<bool> {
        let Some(run) = self.bound.filter(|&run| !self.is_bound_shared && self.layer().is_older_than(run)) else {
            return Ok(false);
        };
        let is_behind_touched =
            self.touched.key().is_some_and(|key| self.bound_key().is_some_and(|bound| key <= bound));
        if is_behind_touched || !self.is_at_bound(offset)? || !self.read_lone_patch(run)? {
            return Ok(false);
        }
        let patch = std::mem::take(&mut self.patch);
        let is_noted = self.note_patch((self.runs[run].kind, &patch), offset, builder)?;
        self.patch = patch;
        if is_noted {
            self.overwritten += 1;
            self.runs[run].step()?;
            self.find_bound();
        }
        Ok(is_noted)
    }

    /// Notes what the patch changes in a row of the stretch: cells, and whether the row passes. `false` if that cannot
    /// be done in its place.
    #[inline]
    fn note_patch(
        &mut self,
        (kind, patch): (usize, &[u8]),
        offset: usize,
        builder: &RecordBatchBuilder,
    ) -> Result<bool> {
        if !self.shape.is_of(kind, patch) && !self.learn_shape((kind, patch), builder)? {
            return Ok(false);
        }
        self.shape.note(patch, offset, &mut self.overwrites);
        if self.shape.is_tested() {
            let passes = self.passes_patched((kind, patch), offset)?;
            self.decisions.push((offset, passes));
        }
        Ok(true)
    }

    /// Makes `shape` that of the patch; `false` if it cannot be written over cells of the stretch.
    fn learn_shape(&mut self, (kind, patch): (usize, &[u8]), builder: &RecordBatchBuilder) -> Result<bool> {
        let Some(layout) = self.merge.plan().given_layout(kind) else { return Ok(false) };
        let mut shape = std::mem::take(&mut self.shape);
        let tests = self.filter.as_ref().map_or(&[][..], |filter| &filter.value_tests);
        let can_overwrite = |target: &Target| builder.can_overwrite(target.target) && self.has_values(target);
        let is_known = shape.learn((kind, patch), layout, &self.layer().targets, tests, can_overwrite);
        self.shape = shape;
        is_known
    }

    /// Whether a row of the stretch passes the tests of values with this patch, which has the shape.
    fn passes_patched(&mut self, (kind, patch): (usize, &[u8]), offset: usize) -> Result<bool> {
        let Self { merge, shape, layers, at, runs, .. } = self;
        let Some(layout) = merge.plan().given_layout(kind) else { return Ok(false) };
        if !shape.passes(layout, patch)? {
            return Ok(false);
        }
        for &run in &layers[*at].runs {
            if !runs[run].passes_but_for(offset, |column| shape.tests(column))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether all runs of the layer have the bound's key at this place of the stretch, whole and visible, and neither
    /// a range delete nor the end of the scan comes before it.
    fn is_at_bound(&mut self, offset: usize) -> Result<bool> {
        let mut row_key = std::mem::take(&mut self.row);
        let mut is_there = false;
        if let Some(key) = self.bound_key() {
            is_there = self.all_range_deletes.next_start(&self.key).is_none_or(|start| start > key)
                && self.upper.as_deref().is_none_or(|upper| key < upper);
            for run in self.layer_runs() {
                let Some((block, row)) = run.block().filter(|(block, row)| row + offset < block.rows()) else {
                    is_there = false;
                    break;
                };
                block.write_key(row + offset, &mut row_key)?;
                is_there &= block.facts().is_plain(self.snapshot) && row_key == key;
            }
        }
        self.row = row_key;
        Ok(is_there)
    }

    /// Makes `patch` the patch that is all that a run has of the key that it stands on, if it has just that.
    fn read_lone_patch(&mut self, run: usize) -> Result<bool> {
        let run = &mut self.runs[run];
        let trailer = run.cursor.trailer();
        let is_alone = run.block().is_some_and(|(block, row)| block.facts().unique_keys && row + 1 < block.rows());
        if !is_alone || trailer.operation() != Operation::Patch || trailer.sequence() > self.snapshot {
            return Ok(false);
        }
        let Some(position) = run.cursor.position() else { return Ok(false) };
        self.patch.clear();
        self.patch.extend_from_slice(position.fragment()?);
        Ok(true)
    }

    /// Whether all cells of a column of the current block are values.
    fn has_values(&self, target: &Target) -> bool {
        let block = self.runs[target.run].block();
        block.is_some_and(|(block, _)| block.read(|pages| pages[target.place].has_only_values()))
    }

    /// Takes the next `count` rows of the layer.
    fn append_stretch(&mut self, count: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        let first = builder.len();
        match self.filter.is_some() {
            true => self.append_passing(count, builder)?,
            false => self.append_all(count, builder)?,
        }
        match self.filter.is_some() {
            true => self.overwrite_passing(first, builder)?,
            false => {
                for Overwrite { target, offset, value } in &self.overwrites {
                    builder.overwrite(*target, first + offset, *value)?;
                }
            }
        }
        self.counters.rows_merged += self.overwritten as u64;
        self.counters.rows_passed_through += (count - self.overwritten) as u64;
        for &run in &self.layers[self.at].runs {
            self.runs[run].pass(count, &mut self.row)?;
        }
        Ok(())
    }

    /// Changes cells of the rows that passed, the first of which is `first` in the batch. Both ascend.
    fn overwrite_passing(&self, first: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        let mut place = 0;
        for Overwrite { target, offset, value } in &self.overwrites {
            while self.passing.get(place).is_some_and(|&row| (row as usize) < *offset) {
                place += 1;
            }
            if self.passing.get(place).is_some_and(|&row| row as usize == *offset) {
                builder.overwrite(*target, first + place, *value)?;
            }
        }
        Ok(())
    }

    fn append_all(&mut self, count: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        for &Target { target, run, place, .. } in &self.layer().targets {
            let Some((block, row)) = self.runs[run].block() else { continue };
            block.read(|pages| builder.append_cells(target, &pages[place], row..row + count))?;
        }
        if builder.has_key_columns() {
            let Some((block, row)) = self.layers[self.at].first_block(&self.runs) else { return Ok(()) };
            for row in row..row + count {
                block.write_key(row, &mut self.row)?;
                builder.append_key(&self.row)?;
            }
        }
        builder.end_rows(count);
        Ok(())
    }

    /// Step 3 of the module.
    fn append_passing(&mut self, count: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        self.find_passing(count)?;
        self.append_selected(builder)
    }

    /// Appends the rows in `passing` of the layer.
    fn append_selected(&mut self, builder: &mut RecordBatchBuilder) -> Result<()> {
        if self.passing.is_empty() {
            return Ok(());
        }
        let mut shift = None;
        for &Target { target, run, place, .. } in &self.layers[self.at].targets {
            let Some((block, row)) = self.runs[run].block() else { continue };
            if shift.replace(row) != Some(row) {
                self.shifted.clear();
                self.shifted.extend(self.passing.iter().map(|&at| at + row as u32));
            }
            block.read(|pages| builder.append_selected(target, &pages[place], &self.shifted))?;
        }
        if builder.has_key_columns() {
            let Some((block, row)) = self.layers[self.at].first_block(&self.runs) else { return Ok(()) };
            for &at in &self.passing {
                block.write_key(row + at as usize, &mut self.row)?;
                builder.append_key(&self.row)?;
            }
        }
        builder.end_rows(self.passing.len());
        Ok(())
    }

    /// Makes `passing` the rows of the stretch that pass, counted from its first.
    fn find_passing(&mut self, count: usize) -> Result<()> {
        self.passing.clear();
        for &run in &self.layers[self.at].runs {
            if !self.runs[run].tests.is_empty() {
                self.runs[run].select(&mut self.counters)?;
                self.runs[run].decide(&self.decisions);
            }
        }
        let mut tested = self.layers[self.at]
            .among(&self.runs)
            .filter(|run| !run.tests.is_empty())
            .filter_map(|run| Some((&run.selected.rows, run.block()?.1)));
        match tested.next() {
            Some((rows, row)) => rows.append_rows_within(row..row + count, &mut self.passing),
            None => self.passing.extend(0..count as u32),
        }
        for (rows, row) in tested {
            self.passing.retain(|&at| rows.get(row + at as usize));
        }
        let Some(filter) = self.filter.as_ref().filter(|filter| !filter.key_tests.is_empty()) else { return Ok(()) };
        let Some((block, row)) = self.layers[self.at].first_block(&self.runs) else { return Ok(()) };
        let (mut failure, key) = (Ok(()), &mut self.row);
        self.passing.retain(|&at| {
            let passes = block.write_key(row + at as usize, key).and_then(|()| filter.passes_key(key));
            passes.unwrap_or_else(|error| {
                failure = Err(error);
                false
            })
        });
        failure
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
