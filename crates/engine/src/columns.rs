//! Reads of tables whose files hold column groups: rows are put together from fragments (LASER §4.2).
//!
//! A point read visits memtables and runs youngest first, as any does, but only those that hold a column that is not
//! settled yet, or a wanted one while it is unknown whether the row exists. A scan merges only the runs that share a
//! column with its projection; where it asks for the key alone, those that hold one column, the one whose files have
//! the fewest bytes.

use std::ops::ControlFlow;
use std::sync::Arc;

use mycelium_base::hash::hash_key;
use mycelium_base::limits::MAX_KEY_LEN;
use mycelium_base::{ColumnSet, Error, ErrorKind, Group, ReadCounters, Result, Trailer};
use mycelium_encoding::FragmentFormat;
use mycelium_merge::{ColumnMerge, MergePlan};
use mycelium_sst::{CellLookup, GetScratch, KeyBits, RowCells};

use crate::read::{PointRead, Probe};
use crate::table::{TableShared, TableState};
use crate::tree::Tree;

/// The kind of memtables and of files of whole rows.
pub(crate) const WHOLE: usize = 0;

impl TableShared {
    /// How rows of `columns` (all if `None`) are put together from the files of `tree`. Columnar files are to give
    /// fragments as [`MergePlan::layout_of`] says.
    pub(crate) fn merge_plan(&self, tree: &Tree, columns: Option<&ColumnSet>) -> Result<Arc<MergePlan>> {
        let formats = self.typed_formats()?;
        let columns = columns.unwrap_or(formats.whole.columns());
        tree.merge_plan(columns, || {
            let wanted = FragmentFormat::packed(formats.schema().clone(), columns.clone());
            if tree.formats.is_empty() {
                return MergePlan::new(&wanted, std::slice::from_ref(&formats.whole));
            }
            MergePlan::narrowing(&wanted, &tree.formats)
        })
    }
}

/// The columns whose runs a scan for `wanted` must merge: these, or one if there are none. O(files + runs²).
pub(crate) fn columns_to_merge(tree: &Tree, wanted: &ColumnSet) -> Option<ColumnSet> {
    if !wanted.is_empty() {
        return Some(wanted.clone());
    }
    let runs = tree.version.levels.iter().flat_map(|level| &level.runs);
    let groups: Vec<(u64, &Arc<Group>)> = runs.filter_map(|run| Some((run.bytes(), run.group()?))).collect();
    let bytes_with = |column: usize| -> u64 {
        groups.iter().filter(|(_, group)| group.columns.contains(column)).map(|(bytes, _)| *bytes).sum()
    };
    // Groups become narrower level by level: of the columns of each the first will do.
    let first_columns = groups.iter().filter_map(|(_, group)| group.columns.iter().next());
    first_columns.min_by_key(|&column| bytes_with(column)).map(|column| ColumnSet::from_iter([column]))
}

impl PointRead<'_> {
    /// The columns of `plan` of the row of `key`, packed.
    pub(crate) fn get_columns(
        &self,
        state: &TableState,
        key: &[u8],
        plan: Arc<MergePlan>,
        counters: &mut ReadCounters,
    ) -> Result<Option<Vec<u8>>> {
        if key.len() > MAX_KEY_LEN {
            let message = format!("a key of {} bytes: at most {MAX_KEY_LEN} are possible", key.len());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let hash = hash_key(key);
        let mut merge = ColumnMerge::new(plan);
        self.merge_memtables(state, key, hash, &mut merge, counters)?;
        self.merge_tree(state, key, hash, &mut merge, counters)?;
        let mut row = Vec::new();
        Ok(merge.finish(&mut row)?.then_some(row))
    }

    fn merge_memtables(
        &self,
        state: &TableState,
        key: &[u8],
        hash: u64,
        merge: &mut ColumnMerge,
        counters: &mut ReadCounters,
    ) -> Result<()> {
        for memtable in state.memtables() {
            if memtable.is_empty() || merge.is_settled() || merge.is_covered() {
                continue;
            }
            if memtable.sequence_range().is_some_and(|(oldest, _)| self.skips(oldest)) {
                counters.memtables_skipped_by_snapshot += 1;
                continue;
            }
            counters.memtables_searched += 1;
            if memtable.has_range_deletes()
                && let Some(sequence) = memtable.covering_range_delete(key, self.snapshot)
            {
                merge.cover(WHOLE, sequence);
            }
            for (trailer, value) in memtable.get_hashed(key, hash, self.snapshot) {
                if merge.visit(WHOLE, trailer, value)?.is_break() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn merge_tree(
        &self,
        state: &TableState,
        key: &[u8],
        hash: u64,
        merge: &mut ColumnMerge,
        counters: &mut ReadCounters,
    ) -> Result<()> {
        if merge.is_settled() || merge.is_covered() {
            return Ok(());
        }
        let plan = merge.plan().clone();
        let mut groups = GroupLookups::new(self, (key, hash), &plan);
        self.visit_files(
            state,
            key,
            hash,
            counters,
            |run| plan.concerns(run.format),
            |probe, counters| {
                if !groups.is_apart(probe.format()) {
                    groups.finish(merge, counters)?;
                }
                if merge.needs(probe.format()) {
                    groups.start(*probe, merge, counters)?;
                }
                let is_done = merge.is_settled() || merge.is_covered();
                Ok(if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            },
        )?;
        groups.finish(merge, counters)
    }
}

/// Files whose lookups go on together.
const TOGETHER: usize = 4;

/// The lookups of one key in neighbouring files of column groups that have no column in common: each step is taken in
/// all of them before the next, so that their cache misses overlap ([`CellLookup`]). They end in the order in which
/// they began, and before any other file is looked at: entries are visited in the same order as one file after the
/// other. Where they have found a whole row between them it is packed once, from where its cells lie.
struct GroupLookups<'a, 'r> {
    read: &'a PointRead<'r>,
    key: &'a [u8],
    hash: u64,
    plan: &'a MergePlan,
    scratch: GetScratch,
    started: [Option<(Probe<'a>, CellLookup<'a>)>; TOGETHER],
    count: usize,
}

impl<'a, 'r> GroupLookups<'a, 'r> {
    fn new(read: &'a PointRead<'r>, (key, hash): (&'a [u8], u64), plan: &'a MergePlan) -> Self {
        let scratch = GetScratch::new(read.table.definition.options.snapshot_filter);
        Self { read, key, hash, plan, scratch, started: [const { None }; TOGETHER], count: 0 }
    }

    /// Whether a file of this format may be looked at before the lookups that have begun end.
    fn is_apart(&self, format: usize) -> bool {
        let started = self.started[..self.count].iter().flatten();
        self.count < TOGETHER && started.into_iter().all(|(probe, _)| self.plan.are_apart(probe.format(), format))
    }

    /// Begins the lookup in a columnar file; one of rows is read at once.
    fn start(&mut self, probe: Probe<'a>, merge: &mut ColumnMerge, counters: &mut ReadCounters) -> Result<()> {
        let (file, filters, format) = (probe.file(), probe.filters, probe.format());
        let snapshot = self.read.snapshot;
        let (is_plain, has_range_deletes) = (!file.sst.is_columnar(), filters.has_range_deletes());
        if is_plain || has_range_deletes {
            self.finish(merge, counters)?;
        }
        if has_range_deletes && let Some(sequence) = file.sst.range_deletes().covering(self.key, snapshot) {
            merge.cover(format, sequence);
        }
        if has_range_deletes && !probe.may_contain(&mut KeyBits::new(self.hash)) {
            counters.files_skipped_by_bloom += 1;
            return Ok(());
        }
        counters.files_searched += 1;
        if is_plain {
            let key = self.key;
            return self.visit(probe, merge, |scratch, visit| file.sst.get(key, snapshot, scratch, counters, visit));
        }
        let wanted = Some(&**self.plan.layout_of(format));
        self.started[self.count] = Some((probe, file.sst.start_cells((self.key, snapshot), wanted)?));
        self.count += 1;
        // Whether the search may end at a range delete is known once the file's own entries are.
        if has_range_deletes { self.finish(merge, counters) } else { Ok(()) }
    }

    /// Takes all lookups to their end.
    fn finish(&mut self, merge: &mut ColumnMerge, counters: &mut ReadCounters) -> Result<()> {
        let count = std::mem::take(&mut self.count);
        for _ in 0..CellLookup::STEPS {
            for (_, lookup) in self.started[..count].iter_mut().flatten() {
                lookup.advance(&mut self.scratch, counters)?;
            }
        }
        if count > 0 && self.packs(count, merge)? {
            let served = self.started[..count].iter_mut().filter_map(Option::take);
            served.for_each(|(probe, _)| self.read.note_served(probe.level));
            return Ok(());
        }
        for at in 0..count {
            let Some((probe, lookup)) = self.started[at].take() else { continue };
            if merge.needs(probe.format()) {
                self.visit(probe, merge, |scratch, visit| lookup.visit(scratch, counters, visit))?;
            }
        }
        Ok(())
    }

    /// Packs the row from where its cells lie, if the lookups have found all of it, each its columns of a whole row.
    fn packs(&self, count: usize, merge: &mut ColumnMerge) -> Result<bool> {
        let mut groups: [Option<RowCells<'_>>; TOGETHER] = [None; TOGETHER];
        for (cells, (_, lookup)) in groups.iter_mut().zip(self.started[..count].iter().flatten()) {
            *cells = lookup.whole_row()?;
            if cells.is_none() {
                return Ok(false);
            }
        }
        let slot = |column| groups.iter().flatten().find_map(|cells| cells.slot(column));
        Ok(merge.take_packed(|layout, row| layout.encode_slots(slot, row)))
    }

    /// Lets `read` give the row's versions in a file to the merge.
    fn visit(
        &mut self,
        probe: Probe<'_>,
        merge: &mut ColumnMerge,
        read: impl FnOnce(&mut GetScratch, &mut dyn FnMut(Trailer, &[u8]) -> ControlFlow<()>) -> Result<()>,
    ) -> Result<()> {
        let (mut failure, format) = (None, probe.format());
        read(&mut self.scratch, &mut |trailer, value| {
            self.read.note_served(probe.level);
            merge.visit(format, trailer, value).unwrap_or_else(|error| {
                failure = Some(error);
                ControlFlow::Break(())
            })
        })?;
        failure.map_or(Ok(()), Err)
    }
}
