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
//! 4. Any other key is put together from its entries ([`ColumnMerge`]), and the filter decides on the row: an old version that
//!    passes never comes up because a new one does not, and a patch that makes a row pass finds the rest of the row.
//!
//! Cost: O(1) a stretch and column, not a row, beside what the rows themselves take; O(log) more for each key that is touched.
//! Memory: a block of each main run, and one batch.

use std::sync::Arc;

use mycelium_base::{Cursor, Error, RangeDelete, RangeDeleteSet, ReadCounters, Result, SequenceNumber};
use mycelium_encoding::key::decode_key;
use mycelium_encoding::page::{Bitmap, ColumnTest, Filter, PageTest};
use mycelium_encoding::{ColumnState, PackedLayout, RecordBatchBuilder};
use mycelium_merge::{ColumnMerge, MergePlan, MergingCursor};
use mycelium_sst::{ColumnBlock, ColumnPosition, LevelCursor, SstFile};

use crate::sources::Source;
use crate::traces::ScanTally;

/// What a filter asks of rows that are put together.
#[derive(Debug)]
pub(crate) struct RowFilter {
    layout: Arc<PackedLayout>,
    /// Of columns outside the primary key.
    value_tests: Vec<ColumnTest>,
    /// Of columns of it, by their place in the key.
    key_tests: Vec<ColumnTest>,
}

impl RowFilter {
    /// `layout` is that of the rows, which must have the tested columns.
    pub(crate) fn new(layout: Arc<PackedLayout>, filter: &Filter) -> Self {
        let schema = layout.schema().clone();
        let (mut value_tests, mut key_tests) = (Vec::new(), Vec::new());
        for test in &filter.conjuncts {
            match schema.primary_key().iter().position(|&column| column == test.column) {
                Some(place) => key_tests.push(ColumnTest { column: place, test: test.test.clone() }),
                None => value_tests.push(test.clone()),
            }
        }
        Self { layout, value_tests, key_tests }
    }

    /// Whether a row passes.
    pub(crate) fn passes(&self, key: &[u8], row: &[u8]) -> Result<bool> {
        if !self.value_tests.is_empty() {
            let row = self.layout.row(row)?;
            for ColumnTest { column, test } in &self.value_tests {
                if !test.passes(row.get(*column)?) {
                    return Ok(false);
                }
            }
        }
        self.passes_key(key)
    }

    fn passes_key(&self, key: &[u8]) -> Result<bool> {
        if self.key_tests.is_empty() {
            return Ok(true);
        }
        let values = decode_key(self.layout.schema(), key)?;
        let cell = |place: usize| values.get(place).map_or(ColumnState::Absent, |value| value.borrowed().into());
        Ok(self.key_tests.iter().all(|ColumnTest { column, test }| test.passes(cell(*column))))
    }
}

/// A main run, and where the scan is in it.
pub(crate) struct MainRun {
    cursor: LevelCursor<ColumnPosition>,
    level: usize,
    /// Which of the tree's formats it has.
    kind: usize,
    /// The wanted columns that the scan takes from it, in the order of its blocks' pages.
    columns: Vec<usize>,
    /// The tests of these columns, each with the place of its column.
    tests: Vec<(usize, ColumnTest)>,
    compiled: Compiled,
    selected: Selected,
    rows: u64,
}

/// A run's tests, for the file of this number.
#[derive(Default)]
struct Compiled {
    file: Option<u64>,
    tests: Vec<PageTest>,
}

/// Which rows of a block pass the tests of its columns.
#[derive(Default)]
struct Selected {
    /// File and number of the block.
    block: Option<(u64, usize)>,
    rows: Bitmap,
}

impl MainRun {
    /// A run whose cursor gives blocks with the pages of `layout`, of which the scan takes `columns` from it.
    pub(crate) fn new(
        cursor: LevelCursor<ColumnPosition>,
        (level, kind): (usize, usize),
        layout: &PackedLayout,
        filter: Option<&RowFilter>,
    ) -> Self {
        let columns: Vec<usize> = layout.columns().collect();
        let place = |test: &ColumnTest| columns.iter().position(|&column| column == test.column);
        let tests = filter.map_or(&[][..], |filter| &filter.value_tests).iter();
        let tests = tests.filter_map(|test| Some((place(test)?, test.clone()))).collect();
        let (compiled, selected) = (Compiled::default(), Selected::default());
        Self { cursor, level, kind, columns, tests, compiled, selected, rows: 0 }
    }

    /// The key that the run stands on.
    fn key(&self) -> Option<&[u8]> {
        self.cursor.valid().then(|| self.cursor.key())
    }

    /// The current block and the row in it; `None` at the end.
    fn block(&self) -> Option<(&ColumnBlock, usize)> {
        self.cursor.block().map(|(block, row, _, _)| (block, row))
    }

    /// Makes `selected` that of the current block.
    fn select(&mut self, counters: &mut ReadCounters) -> Result<()> {
        let Self { cursor, tests, compiled, selected, .. } = self;
        let Some((block, _, file, number)) = cursor.block() else { return Ok(()) };
        if selected.block.replace((file.number(), number)) == Some((file.number(), number)) {
            return Ok(());
        }
        if compiled.file.replace(file.number()) != Some(file.number()) {
            let compile = |(_, test): &(usize, ColumnTest)| file.page_test(test.column, &test.test);
            compiled.tests = tests.iter().map(compile).collect::<Result<_>>()?;
        }
        for (_, test) in tests.iter() {
            if !file.zone_may_pass(number, test.column, &test.test)? {
                counters.blocks_skipped_by_zone += 1;
                selected.rows.reset(block.rows(), false);
                return Ok(());
            }
        }
        selected.rows.reset(block.rows(), true);
        block
            .read(|pages| {
                for ((place, _), test) in tests.iter().zip(&compiled.tests) {
                    if !selected.rows.is_none() {
                        pages[*place].filter(test, &mut selected.rows)?;
                    }
                }
                Ok(())
            })
            .map_err(|error: Error| in_file(error, file))
    }
}

fn in_file(error: Error, file: &SstFile) -> Error {
    if error.file().is_some() { error } else { error.in_file(file.path()) }
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
    /// Of all sources, by their format; and all that the snapshot sees together.
    range_deletes: Vec<(Arc<RangeDeleteSet>, usize)>,
    all_range_deletes: RangeDeleteSet,
    merge: ColumnMerge,
    filter: Option<RowFilter>,
    /// Of every projected column outside the primary key: its place in the projection, the main run and the place in its pages.
    targets: Vec<(usize, usize, usize)>,
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
            targets.push((target, main, place));
        }
        let mut rest_cursor = MergingCursor::new(rest.0);
        let start = lower.as_deref().unwrap_or_default();
        rest_cursor.seek(start, mycelium_base::Trailer::NEWEST)?;
        for main in &mut mains {
            main.cursor.seek(start, mycelium_base::Trailer::NEWEST)?;
        }
        Ok(Self {
            snapshot,
            mains,
            rest: rest_cursor,
            rest_kinds: rest.1,
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
        })
    }

    /// Appends rows until the builder is full, `left` is used up, or there are no more.
    pub(crate) fn fill(&mut self, builder: &mut RecordBatchBuilder, left: &mut u64) -> Result<()> {
        while *left > 0 && builder.room() > 0 {
            let most = builder.room().min(usize::try_from(*left).unwrap_or(usize::MAX));
            let before = builder.len();
            match self.next()? {
                Next::End => return Ok(()),
                Next::Stretch(count) => self.append_stretch(count.min(most), builder)?,
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

    /// Step 2 of the module.
    fn next(&mut self) -> Result<Next> {
        let least = self.mains.iter().filter_map(MainRun::key).min();
        let rest = self.rest.valid().then(|| self.rest.key());
        let Some(key) = least.into_iter().chain(rest).min() else { return Ok(Next::End) };
        if self.upper.as_deref().is_some_and(|upper| key >= upper) {
            return Ok(Next::End);
        }
        let touched = self.all_range_deletes.next_start(key);
        let bound = [rest, touched, self.upper.as_deref()].into_iter().flatten().min();
        let count = match bound {
            Some(bound) if bound <= key => 0,
            bound => self.stretch(key, bound)?,
        };
        if count > 0 {
            return Ok(Next::Stretch(count));
        }
        let key = key.to_vec();
        self.key = key;
        Ok(Next::Key)
    }

    /// How many rows from `key` on, and before `bound`, can be taken as they lie.
    fn stretch(&self, key: &[u8], bound: Option<&[u8]>) -> Result<usize> {
        let mut count = usize::MAX;
        let mut first: Option<(&ColumnBlock, usize)> = None;
        for main in &self.mains {
            let Some((block, row)) = main.block().filter(|_| main.key() == Some(key)) else { return Ok(0) };
            let facts = block.facts();
            if !facts.all_puts || !facts.unique_keys || facts.max_sequence > self.snapshot {
                return Ok(0);
            }
            let end = match bound {
                Some(bound) => block.seek(bound)?,
                None => block.rows(),
            };
            count = count.min(end.saturating_sub(row));
            match first {
                None => first = Some((block, row)),
                Some((other, other_row)) => count = other.same_keys(other_row, (block, row), count)?,
            }
        }
        Ok(if first.is_some() { count } else { 0 })
    }

    /// Takes the next `count` rows of the main runs.
    fn append_stretch(&mut self, count: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        match self.filter.is_some() {
            true => self.append_passing(count, builder)?,
            false => self.append_all(count, builder)?,
        }
        self.counters.rows_passed_through += count as u64;
        for main in &mut self.mains {
            let Some((_, row)) = main.block() else { continue };
            main.rows += count as u64;
            main.cursor.go_to(row + count)?;
        }
        Ok(())
    }

    fn append_all(&mut self, count: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        for &(target, main, place) in &self.targets {
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
        for &(target, main, place) in &self.targets {
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

    /// Step 4 of the module, for the key in `key`.
    fn append_key(&mut self, builder: &mut RecordBatchBuilder) -> Result<()> {
        self.merge.reset();
        for (set, kind) in &self.range_deletes {
            if let Some(sequence) = set.covering(&self.key, self.snapshot) {
                self.merge.cover(*kind, sequence);
            }
        }
        while self.rest.valid() && self.rest.key() == self.key {
            let trailer = self.rest.trailer();
            if trailer.sequence() <= self.snapshot {
                let kind = self.rest_kinds[self.rest.source()];
                self.visit(kind, trailer, None)?;
            }
            self.rest.next()?;
        }
        for at in 0..self.mains.len() {
            while self.mains[at].key() == Some(&self.key) {
                let trailer = self.mains[at].cursor.trailer();
                if trailer.sequence() <= self.snapshot {
                    self.visit(self.mains[at].kind, trailer, Some(at))?;
                }
                self.mains[at].rows += 1;
                self.mains[at].cursor.next()?;
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

    /// Shows the merge the entry of a main run, or of the rest.
    fn visit(&mut self, kind: usize, trailer: mycelium_base::Trailer, main: Option<usize>) -> Result<()> {
        let value = match main {
            None => self.rest.value(),
            Some(at) => match self.mains[at].cursor.position() {
                Some(position) if self.merge.needs(kind) => position.fragment()?,
                _ => return Ok(()),
            },
        };
        self.merge.visit(kind, trailer, value).map(drop)
    }
}

impl Drop for BlockScan {
    fn drop(&mut self) {
        if let Some(tally) = &self.tally {
            self.mains.iter().for_each(|main| tally.note(main.level, main.kind, main.rows));
        }
    }
}
