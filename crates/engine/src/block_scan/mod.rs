//! Scans of tables whose oldest runs are columnar: many rows at a time (DESIGN §5, LSM-OPD §4.2.2).
//!
//! 1. The *main runs* hold the oldest data of the wanted columns: of every column the oldest run that has it, all columnar. What
//!    is younger, memtables included, is merged apart: the *rest*.
//! 2. A *stretch* is a number of rows of the main runs' current blocks that nothing younger touches: from a key that all main
//!    runs stand on, as far as they have the same keys, up to the next key of the rest or the next range delete. Where its
//!    blocks hold only whole rows that the snapshot sees, each once, its columns are appended page by page, and no row is
//!    looked at by itself.
//! 3. A filter is tested on pages: a block whose zones rule it out costs no more; otherwise each test clears bits of a bitmap of
//!    the block's rows, on codes and integers, and of a stretch only the rows that are left are decoded.
//! 4. A row of which the rest only has one patch, of columns of fixed width, stays in its stretch, and its patched cells are
//!    overwritten in the batch. Patches of columns that are not wanted touch nothing.
//! 5. Any other key is put together from its entries ([`ColumnMerge`]), and the filter decides on the row: an old version that
//!    passes never comes up because a new one does not, and a patch that makes a row pass finds the rest of the row.
//!
//! Cost: O(1) a stretch and column, not a row, beside what the rows themselves take; O(log) more for each key that is touched.
//! Memory: a block of each main run, and one batch.

mod main_run;
mod row_filter;
mod touched;

use std::sync::Arc;

use mycelium_base::{Cursor, Error, RangeDelete, RangeDeleteSet, ReadCounters, Result, SequenceNumber, Trailer};
use mycelium_encoding::page::Bitmap;
use mycelium_encoding::{ColumnState, RecordBatchBuilder};
use mycelium_merge::{ColumnMerge, MergePlan, MergingCursor};
use mycelium_sst::ColumnBlock;

use self::touched::Touched;
use crate::sources::Source;
use crate::traces::ScanTally;

pub(crate) use main_run::MainRun;
pub(crate) use row_filter::RowFilter;

/// A value of a patch, and the cell that it goes to: the row counted from the first of the stretch.
struct Overwrite {
    target: usize,
    offset: usize,
    value: u128,
}

/// A projected column: its place in the projection, and where its pages are.
struct Target {
    column: usize,
    target: usize,
    main: usize,
    place: usize,
}

/// What comes next.
enum Next {
    End,
    /// So many rows of the main runs.
    Stretch(usize),
    /// The key in `BlockScan::key`.
    Key,
}

/// A scan in progress. Belongs to one thread at a time.
pub(crate) struct BlockScan {
    snapshot: SequenceNumber,
    mains: Vec<MainRun>,
    rest: MergingCursor<Source>,
    /// The format in the tree of each source of the rest.
    rest_kinds: Vec<usize>,
    /// The next key of the rest; the rest stands behind it.
    touched: Touched,
    /// What changes cells of a stretch.
    overwrites: Vec<Overwrite>,
    /// Rows of the stretch that are changed so.
    overwritten: usize,
    /// Of all sources, by their format; and all that the snapshot sees together.
    range_deletes: Vec<(Arc<RangeDeleteSet>, usize)>,
    all_range_deletes: RangeDeleteSet,
    merge: ColumnMerge,
    filter: Option<RowFilter>,
    /// The projected columns outside the primary key.
    targets: Vec<Target>,
    upper: Option<Vec<u8>>,
    tally: Option<Arc<ScanTally>>,
    counters: ReadCounters,
    key: Vec<u8>,
    row: Vec<u8>,
    /// Rows of a stretch that pass.
    passing: Vec<u32>,
    shifted: Vec<u32>,
}

/// What a scan is made of; see the fields of [`BlockScan`].
pub(crate) struct BlockScanParts {
    pub(crate) snapshot: SequenceNumber,
    pub(crate) mains: Vec<MainRun>,
    pub(crate) rest: (Vec<Source>, Vec<usize>),
    pub(crate) range_deletes: Vec<(Arc<RangeDeleteSet>, usize)>,
    pub(crate) plan: Arc<MergePlan>,
    pub(crate) filter: Option<RowFilter>,
    pub(crate) bounds: (Option<Vec<u8>>, Option<Vec<u8>>),
    pub(crate) tally: Option<Arc<ScanTally>>,
    pub(crate) counters: ReadCounters,
}

impl BlockScan {
    /// At the first key within the bounds. `builder` says what is projected.
    pub(crate) fn new(parts: BlockScanParts, builder: &RecordBatchBuilder) -> Result<Self> {
        let BlockScanParts { snapshot, mut mains, rest, range_deletes, plan, filter, bounds, tally, counters } = parts;
        let (lower, upper) = bounds;
        let mut deletes = Vec::new();
        for (set, _) in &range_deletes {
            for (start, end, sequences) in set.fragments() {
                let seen = sequences.iter().find(|&&sequence| sequence <= snapshot);
                deletes.extend(seen.map(|&sequence| RangeDelete {
                    start: start.to_vec(),
                    end: end.to_vec(),
                    sequence,
                }));
            }
        }
        let mut targets = Vec::new();
        for (column, target) in builder.value_columns() {
            let of = |main: &MainRun| main.columns.iter().position(|&own| own == column);
            let found = mains.iter().enumerate().find_map(|(at, main)| Some((at, of(main)?)));
            let (main, place) = found.ok_or_else(|| Error::invalid(format!("no main run has column {column}")))?;
            targets.push(Target { column, target, main, place });
        }
        let mut rest_cursor = MergingCursor::new(rest.0);
        let start = lower.as_deref().unwrap_or_default();
        rest_cursor.seek(start, Trailer::NEWEST)?;
        for main in &mut mains {
            main.cursor.seek(start, Trailer::NEWEST)?;
        }
        let mut scan = Self {
            snapshot,
            mains,
            rest: rest_cursor,
            rest_kinds: rest.1,
            touched: Touched::default(),
            overwrites: Vec::new(),
            overwritten: 0,
            range_deletes,
            all_range_deletes: RangeDeleteSet::new(&deletes),
            merge: ColumnMerge::new(plan),
            filter,
            targets,
            upper,
            tally,
            counters,
            key: Vec::new(),
            row: Vec::new(),
            passing: Vec::new(),
            shifted: Vec::new(),
        };
        scan.read_touched()?;
        Ok(scan)
    }

    /// Appends rows until the builder is full, `left` is used up, or there are no more.
    pub(crate) fn fill(&mut self, builder: &mut RecordBatchBuilder, left: &mut u64) -> Result<()> {
        while *left > 0 && builder.room() > 0 {
            let most = builder.room().min(usize::try_from(*left).unwrap_or(usize::MAX));
            let before = builder.len();
            match self.next(most, builder)? {
                Next::End => return Ok(()),
                Next::Stretch(count) => self.append_stretch(count, builder)?,
                Next::Key => self.append_key(builder)?,
            }
            *left -= (builder.len() - before) as u64;
        }
        Ok(())
    }

    /// What the scan has read and skipped so far.
    pub(crate) fn counters(&self) -> ReadCounters {
        let mut counters = self.counters;
        self.rest.add_counters(&mut counters);
        self.mains.iter().for_each(|main| main.cursor.add_counters(&mut counters));
        counters
    }

    /// Steps 2 and 4 of the module; a stretch has at most `most` rows.
    fn next(&mut self, most: usize, builder: &RecordBatchBuilder) -> Result<Next> {
        self.overwrites.clear();
        self.overwritten = 0;
        let least = self.mains.iter().filter_map(MainRun::key).min();
        let Some(key) = least.into_iter().chain(self.touched.key()).min() else { return Ok(Next::End) };
        if self.upper.as_deref().is_some_and(|upper| key >= upper) {
            return Ok(Next::End);
        }
        let are_together = !self.mains.is_empty() && self.mains.iter().all(|main| main.key() == Some(key));
        let key = key.to_vec();
        self.key = key;
        let mut count = 0;
        if are_together {
            count = self.untouched(0)?;
            while count < most && self.overwrites_at(count, builder)? {
                self.read_touched()?;
                count += 1;
                count += self.untouched(count)?;
            }
        }
        Ok(if count > 0 { Next::Stretch(count.min(most)) } else { Next::Key })
    }

    /// Makes `touched` the next key of the rest that has something to say.
    fn read_touched(&mut self) -> Result<()> {
        let Self { rest, rest_kinds, touched, upper, snapshot, merge, .. } = self;
        touched.read((rest, rest_kinds), merge.plan(), *snapshot, upper.as_deref())
    }

    /// How many rows from the `offset`th on, up to the next key that is touched, can be taken as they lie.
    fn untouched(&self, offset: usize) -> Result<usize> {
        let mut count = usize::MAX;
        let mut first: Option<(&ColumnBlock, usize)> = None;
        for main in &self.mains {
            let Some((block, row)) = main.block() else { return Ok(0) };
            let facts = block.facts();
            if !facts.all_puts || !facts.unique_keys || facts.max_sequence > self.snapshot {
                return Ok(0);
            }
            let row = row + offset;
            let mut end = block.rows();
            let deleted = self.all_range_deletes.next_start(&self.key);
            for bound in [self.touched.key(), deleted, self.upper.as_deref()].into_iter().flatten() {
                end = end.min(block.seek(bound)?);
            }
            count = count.min(end.saturating_sub(row));
            match first {
                None => first = Some((block, row)),
                Some((other, other_row)) => count = other.same_keys(other_row, (block, row), count)?,
            }
        }
        Ok(if first.is_some() { count } else { 0 })
    }

    /// Whether the row at this place of the stretch is the touched one, and only a patch that can be written over its cells;
    /// notes the patch then.
    fn overwrites_at(&mut self, offset: usize, builder: &RecordBatchBuilder) -> Result<bool> {
        let Some((kind, patch)) = self.touched.lone_patch().filter(|_| self.filter.is_none()) else {
            return Ok(false);
        };
        let key = &self.touched.key;
        if self.all_range_deletes.next_start(&self.key).is_some_and(|start| start <= key.as_slice()) {
            return Ok(false);
        }
        for main in &self.mains {
            let Some((block, row)) = main.block().filter(|(block, row)| row + offset < block.rows()) else {
                return Ok(false);
            };
            let facts = block.facts();
            block.write_key(row + offset, &mut self.row)?;
            let is_plain = facts.all_puts && facts.unique_keys && facts.max_sequence <= self.snapshot;
            if !is_plain || self.row != *key {
                return Ok(false);
            }
        }
        let Some(layout) = self.merge.plan().given_layout(kind) else { return Ok(false) };
        let (patch, before) = (layout.row(patch)?, self.overwrites.len());
        for column in patch.columns() {
            let Some(target) = self.targets.iter().find(|target| target.column == column) else { continue };
            let value = match patch.get(column)? {
                ColumnState::Value(value) if builder.can_overwrite(target.target) => value.to_bits(),
                _ => None,
            };
            let Some(value) = value.filter(|_| self.has_values(target)) else {
                self.overwrites.truncate(before);
                return Ok(false);
            };
            self.overwrites.push(Overwrite { target: target.target, offset, value });
        }
        self.overwritten += 1;
        Ok(true)
    }

    /// Whether all cells of a column of the current block are values.
    fn has_values(&self, target: &Target) -> bool {
        let block = self.mains[target.main].block();
        block.is_some_and(|(block, _)| block.read(|pages| pages[target.place].has_only_values()))
    }

    /// Takes the next `count` rows of the main runs.
    fn append_stretch(&mut self, count: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        let first = builder.len();
        match self.filter.is_some() {
            true => self.append_passing(count, builder)?,
            false => self.append_all(count, builder)?,
        }
        for Overwrite { target, offset, value } in &self.overwrites {
            builder.overwrite(*target, first + offset, *value)?;
        }
        self.counters.rows_merged += self.overwritten as u64;
        self.counters.rows_passed_through += (count - self.overwritten) as u64;
        for main in &mut self.mains {
            let Some((block, row)) = main.block() else { continue };
            let ends_block = row + count >= block.rows();
            if ends_block {
                block.write_key(row + count - 1, &mut self.row)?;
            }
            main.rows += count as u64;
            main.cursor.go_to(row + count)?;
            // Older versions of a block's last key may go on in the next block.
            while ends_block && main.key() == Some(&self.row) {
                main.cursor.next()?;
            }
        }
        Ok(())
    }

    fn append_all(&mut self, count: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        for &Target { target, main, place, .. } in &self.targets {
            let Some((block, row)) = self.mains[main].block() else { continue };
            block.read(|pages| builder.append_cells(target, &pages[place], row..row + count))?;
        }
        if builder.has_key_columns() {
            let Some((block, row)) = self.mains.first().and_then(MainRun::block) else { return Ok(()) };
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
        if self.passing.is_empty() {
            return Ok(());
        }
        for &Target { target, main, place, .. } in &self.targets {
            let Some((block, row)) = self.mains[main].block() else { continue };
            self.shifted.clear();
            self.shifted.extend(self.passing.iter().map(|&at| at + row as u32));
            block.read(|pages| builder.append_selected(target, &pages[place], &self.shifted))?;
        }
        if builder.has_key_columns() {
            let Some((block, row)) = self.mains.first().and_then(MainRun::block) else { return Ok(()) };
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
        for main in self.mains.iter_mut().filter(|main| !main.tests.is_empty()) {
            main.select(&mut self.counters)?;
        }
        let tested: Vec<(&Bitmap, usize)> = self
            .mains
            .iter()
            .filter(|main| !main.tests.is_empty())
            .filter_map(|main| Some((&main.selected.rows, main.block()?.1)))
            .collect();
        match tested.split_first() {
            Some(((first, row), others)) => {
                let passes = |at: &usize| others.iter().all(|(rows, row)| rows.get(row + at));
                let within = first.rows_within(*row..row + count).map(|found| found - row);
                self.passing.extend(within.filter(passes).map(|at| at as u32));
            }
            None => self.passing.extend(0..count as u32),
        }
        let Some(filter) = self.filter.as_ref().filter(|filter| !filter.key_tests.is_empty()) else { return Ok(()) };
        let Some((block, row)) = self.mains.first().and_then(MainRun::block) else { return Ok(()) };
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
        self.merge.reset();
        for (set, kind) in &self.range_deletes {
            if let Some(sequence) = set.covering(&self.key, self.snapshot) {
                self.merge.cover(*kind, sequence);
            }
        }
        if self.touched.key() == Some(&self.key) {
            let Touched { entries, bytes, .. } = &self.touched;
            for (kind, trailer, place) in entries {
                self.merge.visit(*kind, *trailer, &bytes[place.clone()]).map(drop)?;
            }
            self.read_touched()?;
        }
        for main in &mut self.mains {
            while main.key() == Some(&self.key) {
                let trailer = main.cursor.trailer();
                if trailer.sequence() <= self.snapshot
                    && self.merge.needs(main.kind)
                    && let Some(position) = main.cursor.position()
                {
                    self.merge.visit(main.kind, trailer, position.fragment()?).map(drop)?;
                }
                main.rows += 1;
                main.cursor.next()?;
            }
        }
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
            self.mains.iter().for_each(|main| tally.note(main.level, main.kind, main.rows));
        }
    }
}
