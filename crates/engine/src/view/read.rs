//! A view is read: partial aggregates where they say all there is to say, rows everywhere else.
//!
//! At one state of the table and one sequence number `s`, from the lower bound on; `at` is the key up to which
//! everything is accounted for:
//!
//! 1. The *sources* are the memtables, and the runs that share a column with the view; each has the complete history of
//!    some of its columns, and all of them together that of each.
//! 2. Choose the *main* run: of those whose next file with partial aggregates begins first, or holds `at`, the largest.
//!    If files of its own without partial aggregates lie before that one, read what lies there by rows.
//! 3. The interval from `at` is *free* up to the first key of any other source and the first range delete that `s`
//!    sees. Others are asked by moving cursors that stand before `at`, and no others: where they have little, little is
//!    read.
//! 4. While the next file, page or block of the main run begins at `at` or later, ends within the free interval and
//!    within the bounds, has no entry newer than `s`, and has partial aggregates: merge these, and go on behind it.
//!    They are of rows, each the only version of its key in the file; nothing else lies there, above or below: so they
//!    are what the rows that `s` sees there add up to.
//! 5. A block of which this is not so is read by rows, from `at` to its end: from the merged sources, as any scan does.
//!    Where block after block is, up to 16 are read at once, and the others are asked but once.
//! 6. Where no run has partial aggregates any more, the rest is read by rows.

use std::ops::Range;
use std::sync::Arc;

use arc_swap::Guard;
use mycelium_base::{
    ColumnSet, Cursor, Error, MAX_SEQUENCE_NUMBER, RangeDelete, RangeDeleteSet, ReadCounters, Result, SequenceNumber,
    Trailer,
};
use mycelium_encoding::aggregate::AggregationInput;
use mycelium_encoding::key::key_successor;
use mycelium_encoding::{GroupRow, Groups};
use mycelium_sst::{CursorOptions, FileSummary, PAGE_BLOCKS, RunCursor, ScanPrefix, SummaryPart, WantedColumns};

use super::definition::ViewDefinition;
use crate::database::Inner;
use crate::iterator::TableIterator;
use crate::read_options::ReadOptions;
use crate::sources::Source;
use crate::table::{TableShared, TableState};
use crate::traces::TableTraces;
use crate::tree::OpenRun;

/// Groups may always take so many bytes.
const LEAST_BUDGET: usize = 16 << 20;
/// After so many blocks read by rows one after the other, twice as many are read at once each time.
const PATIENCE: usize = 4;
/// Blocks read by rows at once, at most.
const LONGEST_STRETCH: usize = 16;

/// How a view was read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ViewCounters {
    /// Files of which one partial aggregate was taken.
    pub files: u64,
    /// Pages of blocks, likewise.
    pub pages: u64,
    /// Blocks, likewise.
    pub blocks: u64,
    /// Rows that were read.
    pub rows: u64,
    /// What was read and skipped for them, and to find out where other runs have entries.
    pub reads: ReadCounters,
}

/// What a view holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ViewRows {
    /// The groups, ascending.
    pub rows: Vec<GroupRow>,
    /// How they were come by.
    pub counters: ViewCounters,
}

/// A state of a table, and up to which number it is read.
pub(super) type Moment = (Arc<TableState>, SequenceNumber);

impl Inner {
    /// Reads a view.
    pub(crate) fn read_view(
        &self,
        table: &TableShared,
        view: &ViewDefinition,
        options: &ReadOptions,
    ) -> Result<ViewRows> {
        let (state, snapshot) = self.read_moment(table, options.snapshot.as_ref())?;
        let moment = (Guard::into_inner(state), snapshot);
        self.look_before_scan(table);
        let (groups, counters) = read_groups(table, view, moment, options, self.groups_budget())?;
        Ok(ViewRows { rows: groups.rows()?, counters })
    }

    /// The most that the groups of a view may take.
    pub(super) fn groups_budget(&self) -> usize {
        self.options.memory_budget.max(LEAST_BUDGET)
    }
}

/// The groups of the rows within the bounds of `options`, and how they were come by.
pub(super) fn read_groups(
    table: &TableShared,
    view: &ViewDefinition,
    (state, snapshot): Moment,
    options: &ReadOptions,
    budget: usize,
) -> Result<(Groups, ViewCounters)> {
    let mut rows = RowScan::new(table, table.traces.as_ref(), (state.clone(), snapshot), options, view, budget)?;
    let (lower, upper) = options.bounds();
    let sources = Sources::new(table, &state, snapshot, options, &table.history_columns(view)?);
    let counters = ViewCounters { reads: sources.counters, ..ViewCounters::default() };
    let at = lower.unwrap_or_default();
    let mut walk = Walk { id: view.id, snapshot, at, upper, sources, in_a_row: 0, counters };
    walk.run(&mut rows)?;
    let mut counters = walk.counters;
    walk.sources.places.iter().for_each(|place| place.cursor.add_counters(&mut counters.reads));
    rows.add_counters(&mut counters);
    Ok((rows.groups, counters))
}

/// Reads rows of ascending intervals into the groups.
pub(super) struct RowScan {
    rows: TableIterator,
    input: AggregationInput,
    pub(super) groups: Groups,
    /// The most that the groups may take.
    budget: usize,
    is_placed: bool,
    count: u64,
}

impl RowScan {
    /// What is read is counted in `traces`.
    pub(super) fn new(
        table: &TableShared,
        traces: Option<&Arc<TableTraces>>,
        moment: Moment,
        options: &ReadOptions,
        view: &ViewDefinition,
        budget: usize,
    ) -> Result<Self> {
        let columns = view.aggregation.columns_read();
        let (rows, layout) = TableIterator::packed_at(table, traces, moment, options, columns)?;
        let input = view.aggregation.packed_input(&layout);
        let groups = Groups::new(view.aggregation.clone());
        Ok(Self { rows, input, groups, budget, is_placed: false, count: 0 })
    }

    /// Adds the rows from `from` to before `to`. Intervals must be asked for in ascending order.
    fn add(&mut self, from: &[u8], to: Option<&[u8]>) -> Result<()> {
        self.stand_at(from)?;
        while self.rows.valid() && to.is_none_or(|to| self.rows.key() < to) {
            self.add_row()?;
            self.check_budget()?;
        }
        Ok(())
    }

    /// Adds the rows from `from` on, until their groups take more than the budget: the key of the row that comes next,
    /// if there is one.
    pub(super) fn add_part(&mut self, from: &[u8]) -> Result<Option<Vec<u8>>> {
        self.stand_at(from)?;
        while self.rows.valid() {
            if !self.is_within_budget() {
                return Ok(Some(self.rows.key().to_vec()));
            }
            self.add_row()?;
        }
        Ok(None)
    }

    /// Moves to the first row at or after `from`. Where it stands there is the first row after the last interval.
    fn stand_at(&mut self, from: &[u8]) -> Result<()> {
        if !self.is_placed || self.rows.valid() && self.rows.key() < from {
            self.rows.seek(from)?;
            self.is_placed = true;
        }
        Ok(())
    }

    fn add_row(&mut self) -> Result<()> {
        self.input.add(self.rows.key(), self.rows.value(), &mut self.groups)?;
        self.count += 1;
        self.rows.next()
    }

    #[inline]
    fn is_within_budget(&self) -> bool {
        self.groups.weight() <= self.budget
    }

    #[inline]
    fn check_budget(&self) -> Result<()> {
        if self.is_within_budget() {
            return Ok(());
        }
        Err(Error::invalid(format!("the groups of the view take more than {} bytes: ask for a range", self.budget)))
    }

    fn add_counters(&self, counters: &mut ViewCounters) {
        counters.rows += self.count;
        counters.reads += self.rows.counters();
    }
}

/// A memtable or run that may hold entries that matter.
struct Place<'s> {
    cursor: Source,
    /// Whether the cursor stands on the first entry at or after some key that it was asked for.
    is_placed: bool,
    /// Of a run that has all columns of the view.
    run: Option<MainRun<'s>>,
}

impl Place<'_> {
    /// The first key at or after `at`, which must not decrease.
    fn next(&mut self, at: &[u8]) -> Result<Option<&[u8]>> {
        if !self.is_placed || self.cursor.valid() && self.cursor.key() < at {
            self.cursor.seek(at, Trailer::NEWEST)?;
            self.is_placed = true;
        }
        Ok(self.cursor.valid().then(|| self.cursor.key()))
    }
}

/// A run whose files may have partial aggregates.
struct MainRun<'s> {
    run: &'s OpenRun,
    bytes: u64,
    /// The files left.
    files: Range<usize>,
    /// The last file before them that the snapshot sees and that has no partial aggregates.
    passed_over: Option<usize>,
    /// The partial aggregates of the first of them, once they were asked for.
    summary: Option<FileSummary>,
}

impl MainRun<'_> {
    /// The lower fence of the next file at or after `at` that has partial aggregates of the view; `None` if there is
    /// none.
    fn next_file(&mut self, at: &[u8], id: u64, snapshot: SequenceNumber) -> Result<Option<&[u8]>> {
        while let Some(file) = self.run.files[self.files.clone()].first() {
            if !file.meta.ends_before(at) && file.sst.min_sequence() <= snapshot {
                if self.summary.is_none() {
                    self.summary = file.sst.summary(id)?;
                }
                if self.summary.is_some() {
                    return Ok(Some(&file.meta.smallest));
                }
                self.passed_over = Some(self.files.start);
            }
            self.files.start += 1;
            self.summary = None;
        }
        Ok(None)
    }

    /// Where the next file begins, if files that were passed over before it have keys at or after `at`.
    fn end_of_passed_over(&self, at: &[u8]) -> Option<&[u8]> {
        let last = &self.run.files[self.passed_over?];
        let next = self.run.files[self.files.clone()].first()?;
        (!last.meta.ends_before(at)).then_some(&next.meta.smallest)
    }
}

/// What may hold entries of the view's rows.
struct Sources<'s> {
    places: Vec<Place<'s>>,
    /// Those that the snapshot sees, of all sources.
    range_deletes: RangeDeleteSet,
    /// Files that were passed over unread.
    counters: ReadCounters,
}

impl<'s> Sources<'s> {
    /// The memtables, and the runs that share a column with `columns` (or all, if there are no columns), but for files
    /// at their ends whose prefix filters rule out that they have keys within the bounds.
    fn new(
        table: &TableShared,
        state: &'s TableState,
        snapshot: SequenceNumber,
        options: &ReadOptions,
        columns: &ColumnSet,
    ) -> Self {
        let (lower, upper) = options.bounds();
        let (mut places, mut deletes, mut counters) = (Vec::new(), Vec::new(), ReadCounters::default());
        let mut prefix = ScanPrefix::new(lower.as_deref(), upper.as_deref());
        for memtable in state.memtables().filter(|memtable| !memtable.is_empty()) {
            memtable.range_delete_sets().iter().for_each(|set| collect(set, snapshot, &mut deletes));
            places.push(Place { cursor: Source::Memtable(memtable.cursor()), is_placed: false, run: None });
        }
        let filter = if table.definition.options.snapshot_filter { snapshot } else { MAX_SEQUENCE_NUMBER };
        let cursor_options =
            CursorOptions { snapshot: filter, fill_cache: options.fill_cache, ..CursorOptions::default() };
        for (_, run) in state.tree.runs() {
            let files = run.within(lower.as_deref(), upper.as_deref());
            let Some(first) = run.files[files.clone()].first() else { continue };
            if !columns.is_empty() && !first.meta.overlaps_columns(columns) {
                continue;
            }
            for file in &run.files[files.clone()] {
                collect(file.sst.range_deletes(), snapshot, &mut deletes);
            }
            let files = run.without_other_prefixes(files, &mut prefix, &mut counters);
            if files.is_empty() {
                continue;
            }
            let has_all = state.tree.formats.get(run.format).is_some_and(|format| columns.is_subset(&format.held()));
            let bytes = run.files[files.clone()].iter().map(|file| file.meta.size).sum();
            places.push(Place {
                cursor: RunCursor::over_part(run.ssts.clone(), files.clone(), cursor_options, || WantedColumns::All)
                    .into(),
                is_placed: false,
                run: has_all.then_some(MainRun { run, bytes, files, passed_over: None, summary: None }),
            });
        }
        Self { places, range_deletes: RangeDeleteSet::new(&deletes), counters }
    }

    /// The place of the main run from `at` on; `None` if no run has partial aggregates any more.
    fn choose(&mut self, at: &[u8], id: u64, snapshot: SequenceNumber) -> Result<Option<usize>> {
        let mut best: Option<(Vec<u8>, u64, usize)> = None;
        for (place, source) in self.places.iter_mut().enumerate() {
            let Some(run) = &mut source.run else { continue };
            let bytes = run.bytes;
            let Some(start) = run.next_file(at, id, snapshot)? else { continue };
            let start = start.max(at);
            let is_better = best
                .as_ref()
                .is_none_or(|(first, most, _)| start < first.as_slice() || start == first.as_slice() && bytes > *most);
            if is_better {
                best = Some((start.to_vec(), bytes, place));
            }
        }
        Ok(best.map(|(_, _, place)| place))
    }

    /// The key before which nothing but `main` has an entry or range delete at or after `at`; `None`: nothing has.
    fn free_end(&mut self, main: usize, at: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut end: Option<Vec<u8>> = None;
        let mut lower = |key: &[u8]| {
            if end.as_deref().is_none_or(|end| key < end) {
                end = Some(key.to_vec());
            }
        };
        for (place, source) in self.places.iter_mut().enumerate() {
            if place != main
                && let Some(key) = source.next(at)?
            {
                lower(key);
            }
        }
        if let Some(start) = self.range_deletes.next_start(at) {
            lower(start.max(at));
        }
        Ok(end)
    }
}

/// Adds the range deletes of a set that the snapshot sees.
fn collect(set: &RangeDeleteSet, snapshot: SequenceNumber, out: &mut Vec<RangeDelete>) {
    for fragment in set.fragments() {
        if let Some(sequence) = fragment.newest(snapshot) {
            out.push(RangeDelete { start: fragment.start().to_vec(), end: fragment.end().to_vec(), sequence });
        }
    }
}

/// The way through the key space.
struct Walk<'s> {
    id: u64,
    snapshot: SequenceNumber,
    at: Vec<u8>,
    upper: Option<Vec<u8>>,
    sources: Sources<'s>,
    /// Blocks read by rows one after the other.
    in_a_row: usize,
    counters: ViewCounters,
}

impl Walk<'_> {
    fn run(&mut self, rows: &mut RowScan) -> Result<()> {
        while self.upper.as_ref().is_none_or(|upper| self.at < *upper) {
            let Some(main) = self.sources.choose(&self.at, self.id, self.snapshot)? else {
                return rows.add(&self.at, self.upper.as_deref());
            };
            let passed_over = self.sources.places[main].run.as_ref().and_then(|run| run.end_of_passed_over(&self.at));
            if let Some(end) = passed_over.map(<[u8]>::to_vec) {
                let end = self.upper.clone().map_or(end.clone(), |upper| upper.min(end));
                rows.add(&self.at, Some(&end))?;
                self.at = end;
                continue;
            }
            let free_end = self.sources.free_end(main, &self.at)?;
            let end = match (free_end, self.upper.clone()) {
                (Some(free), Some(upper)) => Some(free.min(upper)),
                (free, upper) => free.or(upper),
            };
            self.walk_file(main, end.as_deref(), rows)?;
        }
        Ok(())
    }

    /// Steps 4 and 5 within the next file of the main run; `end`: where the free interval or the bounds end.
    fn walk_file(&mut self, main: usize, end: Option<&[u8]>, rows: &mut RowScan) -> Result<()> {
        let Some(main) = &mut self.sources.places[main].run else { return Ok(()) };
        let (Some(file), Some(summary)) = (main.run.files.get(main.files.start), &mut main.summary) else {
            return Ok(());
        };
        let blocks = summary.block_count();
        let mut block = summary.seek(&self.at);
        // Entries of the block before `at` are accounted for: it cannot be taken whole.
        let begins = match block.checked_sub(1) {
            None => self.at <= file.meta.smallest,
            Some(before) => block < blocks && self.at == key_successor(&summary.separator(before)),
        };
        while begins && block < blocks {
            let Some((after, part)) = take(summary, block, end, self.snapshot, &mut rows.groups)? else { break };
            rows.check_budget()?;
            *match part {
                SummaryPart::Block => &mut self.counters.blocks,
                SummaryPart::Page => &mut self.counters.pages,
                SummaryPart::File => &mut self.counters.files,
            } += 1;
            (block, self.in_a_row) = (after, 0);
            self.at = key_successor(&summary.separator(after - 1));
        }
        if block >= blocks {
            // Of range deletes alone, or behind its last key.
            main.files.start += 1;
            main.summary = None;
            return Ok(());
        }
        let stretch = 1 << self.in_a_row.saturating_sub(PATIENCE).min(LONGEST_STRETCH.ilog2() as usize);
        let last = (block + stretch).min(blocks) - 1;
        let mut to = key_successor(&summary.separator(last));
        if let Some(upper) = self.upper.as_ref().filter(|upper| **upper < to) {
            to.clone_from(upper);
        }
        rows.add(&self.at, Some(&to))?;
        (self.at, self.in_a_row) = (to, self.in_a_row + 1);
        Ok(())
    }
}

/// Merges the partial aggregates of the largest part that begins with `block` and lies before `end`, if there is one:
/// the block behind it, and what it was.
fn take(
    summary: &mut FileSummary,
    block: usize,
    end: Option<&[u8]>,
    snapshot: SequenceNumber,
    groups: &mut Groups,
) -> Result<Option<(usize, SummaryPart)>> {
    let blocks = summary.block_count();
    let is_within = |summary: &FileSummary, after: usize| {
        let newest =
            if after - block == blocks { summary.file().max_sequence() } else { summary.max_sequence(block, after) };
        newest <= snapshot && end.is_none_or(|end| summary.separator(after - 1).as_slice() < end)
    };
    let (part, after) = if block == 0 && summary.of_file().is_some() && is_within(summary, blocks) {
        (SummaryPart::File, blocks)
    } else {
        let page_end = (block + PAGE_BLOCKS).min(blocks);
        let begins_page = block.is_multiple_of(PAGE_BLOCKS);
        if begins_page && summary.of_page(block / PAGE_BLOCKS).is_some() && is_within(summary, page_end) {
            (SummaryPart::Page, page_end)
        } else if is_within(summary, block + 1) {
            (SummaryPart::Block, block + 1)
        } else {
            return Ok(None);
        }
    };
    let bytes = match part {
        SummaryPart::File => summary.of_file(),
        SummaryPart::Page => summary.of_page(block / PAGE_BLOCKS),
        SummaryPart::Block => summary.of_block(block)?,
    };
    let Some(merged) = bytes.map(|bytes| groups.merge_encoded(bytes)) else { return Ok(None) };
    merged.map_err(|error| summary.malformed(part, error))?;
    Ok(Some((after, part)))
}
