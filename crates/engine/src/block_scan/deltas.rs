//! What the files above have of a block, found out once for all scans (step 7 of [`super`]).
//!
//! Files do not change, nor do blocks: so what all younger files together change in a block, as far as its last key, is
//! always the same. A scan that needs it merges the entries of these files, as it does those of any that are younger,
//! and keeps what they change as a [`PositionalDelta`] in the block cache. The next one finds it there, and neither
//! reads these files nor compares a key: it writes values over cells.
//!
//! 1. The *base* are the oldest runs, as many as have each wanted column once. Of what is younger, files and a part of
//!    a memtable are *settled*; what was written since still changes. There are deltas where there is no range delete,
//!    and the scan merges before it filters.
//! 2. When the base's first run enters a block, and the snapshot sees all of it and of what is settled, its delta is
//!    taken from the cache, or found out: what is settled is merged from the last key of the block before on, and noted
//!    as if all rows of the block were one stretch. Until the block's end the rest then is what still changes, and the
//!    runs above the base take no part.
//! 3. Of each stretch the values of the delta are written to cells before those of the rest are, its rows that are gone
//!    are left out, and its new rows put among those of the rest ([`super::inserts`]). A row whose tested columns have
//!    other values is decided by itself, and so is each new one.
//! 4. Where a delta does not do, the rest is all sources again, from the next key on, until the next block. That is so
//!    where the rest has something of a row that is new or gone in the delta, or has another value in a tested column;
//!    where it has a key before a new row in front of a stretch; where a change cannot be noted; and in blocks that the
//!    scan does not read as a whole.
//!
//! Cost: for each changed cell a copy; for each block and scan a look into the cache. Memory: about eight bytes for
//! each cell, in the block cache.

use std::ops::Range;
use std::sync::Arc;

use mycelium_base::{Cursor, ReadCounters, Result, SequenceNumber, Trailer};
use mycelium_encoding::page::{ColumnTest, PageTest};
use mycelium_encoding::{PackedLayout, RecordBatchBuilder};
use mycelium_merge::MergingCursor;
use mycelium_sst::SstFile;

use super::BlockScan;
use super::layer::{Layer, Target};
use super::layer_run::LayerRun;
use super::patches::PatchShapes;
use super::positional_delta::{Changes, PositionalDelta};
use super::touched::Touched;
use crate::settled::Settled;
use crate::sources::Source;

/// New rows that the delta of a block has at most: they are in memory together. Where they are more than half of its
/// own, runs interleave, and are merged by their keys.
const MOST_NEW: usize = 1 << 16;

/// Sources that are merged, as the rest is.
pub(super) struct MergedSources {
    merged: MergingCursor<Source>,
    kinds: Vec<usize>,
    touched: Touched,
}

impl MergedSources {
    fn new((sources, kinds): (Vec<Source>, Vec<usize>)) -> Self {
        Self { merged: MergingCursor::new(sources), kinds, touched: Touched::default() }
    }
}

/// What a scan's deltas are made of.
pub(crate) struct DeltaParts {
    /// The places among the scan's runs of the base: the oldest run of each column.
    pub(crate) base: Vec<usize>,
    /// The sources that still change, with their formats.
    pub(crate) unsettled: (Vec<Source>, Vec<usize>),
    /// Those that do not, all of them older, and younger than the base: files, and a memtable.
    pub(crate) settled: (Vec<Source>, Vec<usize>),
    /// The same files.
    pub(crate) files: Vec<Arc<SstFile>>,
    pub(crate) memtable: Option<SettledPart>,
}

/// What of a memtable is settled, and the first and the last key of all of it.
pub(crate) struct SettledPart {
    pub(crate) part: Settled,
    pub(crate) first: Vec<u8>,
    pub(crate) last: Vec<u8>,
}

/// The deltas of a scan.
pub(super) struct Deltas {
    base: Vec<usize>,
    files: Vec<Arc<SstFile>>,
    memtable: Option<SettledPart>,
    /// What sees all that is settled, and nothing else.
    snapshot: SequenceNumber,
    settled: MergedSources,
    /// The last key of the block of which what is settled was read last.
    settled_at: Option<Vec<u8>>,
    /// What is not the rest: what still changes, or all sources while a delta is in use.
    other: MergedSources,
    /// File and number of the block that the base's first run is in, and its last key.
    block: Option<(u64, usize)>,
    last: Vec<u8>,
    /// That of the block before; `None` before the first key of all.
    before: Option<Vec<u8>>,
    /// Whether the first block is read as a whole, or there was one before.
    is_whole: bool,
    in_use: Option<InUse>,
    identity: Vec<u8>,
    name_len: usize,
    /// The wanted columns, ascending: those of deltas.
    columns: Vec<usize>,
    /// The base, with all of these as targets, and what patches change of them.
    layer: Layer,
    shapes: PatchShapes,
    /// The tests of values that the filter has.
    tests: Vec<ValueTest>,
    /// Rows of the block that have other values in tested columns, and whether they pass by these.
    decided: Vec<(u32, bool)>,
}

/// The test of a column, for values as they lie in a delta.
struct ValueTest {
    column: usize,
    /// Among those of deltas.
    place: usize,
    /// Bytes of a value.
    width: usize,
    test: PageTest,
}

impl ValueTest {
    #[inline]
    fn passes(&self, layout: &PackedLayout, value: u128) -> Result<bool> {
        Ok(self.test.passes_value(layout.slot_value(self.column, &value.to_le_bytes()[..self.width])?))
    }
}

/// The delta of the current block.
struct InUse {
    delta: PositionalDelta,
    /// The next new row.
    new_at: usize,
    /// The rows of the block that are in the stretch.
    stretch: Range<usize>,
}

impl Deltas {
    /// Of a scan at a snapshot that begins with the first key of all, or with any.
    pub(super) fn new(parts: DeltaParts, snapshot: SequenceNumber, is_from_first: bool) -> Self {
        Self {
            base: parts.base,
            files: parts.files,
            snapshot: parts.memtable.as_ref().map_or(snapshot, |memtable| memtable.part.snapshot),
            memtable: parts.memtable,
            settled: MergedSources::new(parts.settled),
            settled_at: None,
            other: MergedSources::new(parts.unsettled),
            block: None,
            last: Vec::new(),
            before: None,
            is_whole: is_from_first,
            in_use: None,
            identity: Vec::new(),
            name_len: 0,
            columns: Vec::new(),
            layer: Layer::default(),
            shapes: PatchShapes::of_delta(),
            tests: Vec::new(),
            decided: Vec::new(),
        }
    }

    /// Whether a delta is in use.
    pub(super) fn is_in_use(&self) -> bool {
        self.in_use.is_some()
    }

    /// The one in use.
    pub(super) fn delta(&self) -> Option<&PositionalDelta> {
        self.in_use.as_ref().map(|in_use| &in_use.delta)
    }

    /// The place of a wanted column among those of a delta.
    pub(super) fn place_of(&self, column: usize) -> usize {
        self.columns.partition_point(|&own| own < column)
    }

    /// A key up to which no block behind the current one has anything settled; `None` if nothing settled follows, or
    /// all of it is part of the rest.
    pub(super) fn next_settled(&self) -> Option<&[u8]> {
        self.in_use.as_ref()?;
        let last = self.last.as_slice();
        let behind = self.files.iter().filter(|file| file.largest() > last).map(|file| file.smallest().max(last));
        let memtable = self.memtable.iter().filter(|memtable| memtable.last.as_slice() > last);
        behind.chain(memtable.map(|memtable| memtable.first.as_slice().max(last))).min()
    }

    /// Whether a row of the block has another value in a tested column.
    fn is_tested(&self, row: usize) -> bool {
        let Some(InUse { delta, .. }) = &self.in_use else { return false };
        self.tests.iter().any(|test| delta.has_cells(test.place, &(row..row + 1)))
    }

    /// The key of the next new row of the delta, if it comes before this row of the block or one before that.
    fn new_key_at(&self, row: usize) -> Option<&[u8]> {
        let InUse { delta, new_at, .. } = self.in_use.as_ref()?;
        let is_next = *new_at < delta.new_rows() && delta.new_row_before(*new_at) <= row;
        is_next.then(|| delta.new_key(*new_at))
    }

    /// How many new rows come before this row of the block.
    fn new_before(&self, row: usize) -> usize {
        self.in_use.as_ref().map_or(0, |InUse { delta, new_at, .. }| delta.new_before(row).saturating_sub(*new_at))
    }

    /// Whether a row of the block is gone.
    #[inline]
    pub(super) fn is_gone(&self, row: usize) -> bool {
        self.in_use.as_ref().is_some_and(|in_use| in_use.delta.is_gone(row))
    }

    /// Whether there is a new row of this key before this row of the block.
    fn is_new(&self, row: usize, key: &[u8]) -> bool {
        let Some(InUse { delta, .. }) = &self.in_use else { return false };
        (delta.new_before(row)..delta.new_before(row + 1)).any(|number| delta.new_key(number) == key)
    }

    /// Adds what sources have read that are not the rest.
    pub(super) fn add_counters(&self, counters: &mut ReadCounters) {
        [&self.settled, &self.other].into_iter().for_each(|sources| sources.merged.add_counters(counters));
    }

    /// The settled files that have keys of the current block, or between it and the one before.
    fn files_of_block(&self) -> impl Iterator<Item = &Arc<SstFile>> {
        let is_behind = |file: &SstFile| self.before.as_deref().is_none_or(|before| file.largest() > before);
        self.files.iter().filter(move |file| file.smallest() <= self.last.as_slice() && is_behind(file))
    }

    /// The settled part of a memtable, likewise.
    fn memtable_of_block(&self) -> Option<&Settled> {
        let memtable = self.memtable.as_ref()?;
        let is_behind = self.before.as_deref().is_none_or(|before| memtable.last.as_slice() > before);
        (memtable.first <= self.last && is_behind).then_some(&memtable.part)
    }

    /// Makes `identity` that of the delta of a block of this number: that and the columns, which name it, what is
    /// settled, and the last key before: the file before may be another. Another one of that name is out of date.
    fn identify(&mut self, number: usize) {
        let mut identity = std::mem::take(&mut self.identity);
        identity.clear();
        let columns = self.columns.iter().map(|&column| column as u64);
        let name = [number as u64, self.columns.len() as u64].into_iter().chain(columns);
        name.for_each(|part| identity.extend_from_slice(&part.to_le_bytes()));
        self.name_len = identity.len();
        let memtable = self.memtable_of_block().into_iter().flat_map(|memtable| [memtable.first, memtable.snapshot]);
        let settled: Vec<u64> = memtable.chain(self.files_of_block().map(|file| file.number())).collect();
        let counts = [u64::from(self.memtable_of_block().is_some()), settled.len() as u64];
        counts.into_iter().chain(settled).for_each(|part| identity.extend_from_slice(&part.to_le_bytes()));
        let before = self.before.as_deref().unwrap_or_default();
        let before_len = self.before.as_ref().map_or(u64::MAX, |before| before.len() as u64);
        identity.extend_from_slice(&before_len.to_le_bytes());
        identity.extend_from_slice(before);
        self.identity = identity;
    }

    /// The first key that may be behind the block before.
    fn behind_before(&self) -> Vec<u8> {
        self.before.as_deref().map_or_else(Vec::new, |before| [before, &[0]].concat())
    }

    /// The first part of `identity`.
    fn name(&self) -> &[u8] {
        &self.identity[..self.name_len]
    }
}

impl BlockScan {
    /// Step 2 of the module: has the delta of the block that comes next in use, if there is one.
    pub(super) fn enter_block(&mut self, builder: &RecordBatchBuilder) -> Result<()> {
        let Some(mut deltas) = self.deltas.take() else { return Ok(()) };
        let entered = self.enter_block_of(&mut deltas, builder);
        self.deltas = Some(deltas);
        entered
    }

    fn enter_block_of(&mut self, deltas: &mut Deltas, builder: &RecordBatchBuilder) -> Result<()> {
        let stands_in = self.base_run().cursor.block();
        let at = stands_in.map(|(_, _, file, number)| (file.number(), number));
        if at == deltas.block {
            return Ok(());
        }
        let (was_in_use, is_first) = (deltas.in_use.take().is_some(), deltas.block.is_none());
        deltas.block = at;
        if !is_first {
            deltas.before = Some(std::mem::take(&mut deltas.last));
        }
        let delta = if at.is_some() { self.delta_of_block(deltas, builder)? } else { None };
        deltas.is_whole = true;
        match (delta, was_in_use) {
            (Some(delta), true) => deltas.in_use = Some(InUse { delta, new_at: 0, stretch: 0..0 }),
            (Some(delta), false) => {
                // All that is before has been taken already.
                let next = self.runs.iter().filter_map(LayerRun::key).chain(self.touched.key()).min();
                let from = next.unwrap_or_default().to_vec();
                deltas.in_use = Some(InUse { new_at: delta.new_below(&from), delta, stretch: 0..0 });
                self.change_rest(deltas, &from)?;
            }
            (None, true) => {
                let from = deltas.behind_before();
                self.change_rest(deltas, &from)?;
            }
            (None, false) => {}
        }
        Ok(())
    }

    /// The first run of the base.
    fn base_run(&self) -> &LayerRun {
        &self.runs[self.base]
    }

    /// Exchanges the rest for what is not, from a key on, and has the runs above the base take no part, or take part
    /// again.
    fn change_rest(&mut self, deltas: &mut Deltas, from: &[u8]) -> Result<()> {
        for (_, run) in self.runs.iter_mut().enumerate().filter(|(at, _)| !deltas.base.contains(at)) {
            run.takes_part = deltas.in_use.is_none();
            if run.takes_part {
                run.cursor.seek(from, Trailer::NEWEST)?;
            }
        }
        self.exchange_rest(&mut deltas.other);
        self.seek_rest(from)
    }

    fn seek_rest(&mut self, from: &[u8]) -> Result<()> {
        self.rest.seek(from, Trailer::NEWEST)?;
        self.touched.restart();
        self.pass_touched()
    }

    fn exchange_rest(&mut self, other: &mut MergedSources) {
        std::mem::swap(&mut self.rest, &mut other.merged);
        std::mem::swap(&mut self.rest_kinds, &mut other.kinds);
        std::mem::swap(&mut self.touched, &mut other.touched);
    }

    /// The delta of the block that is entered, if there is one; says in `deltas` what its last key is.
    fn delta_of_block(&mut self, deltas: &mut Deltas, builder: &RecordBatchBuilder) -> Result<Option<PositionalDelta>> {
        let Some((block, row, file, number)) = self.base_run().cursor.block() else { return Ok(None) };
        block.write_key(block.rows() - 1, &mut deltas.last)?;
        let ends_within = self.upper.as_deref().is_none_or(|upper| deltas.last.as_slice() < upper);
        let is_read = row == 0 && deltas.is_whole && ends_within && block.facts().is_plain(deltas.snapshot);
        if !is_read || self.inserts.packs() {
            return Ok(None);
        }
        if deltas.files_of_block().any(|file| file.max_sequence() > deltas.snapshot) {
            return Ok(None);
        }
        if deltas.files_of_block().next().is_none() && deltas.memtable_of_block().is_none() {
            return Ok(Some(PositionalDelta::none()));
        }
        let file = file.clone();
        self.find_columns(deltas, builder);
        deltas.identify(number);
        let kept = match file.derived(deltas.name(), &deltas.identity) {
            Some(kept) => {
                self.counters.block_deltas_reused += 1;
                kept
            }
            None => {
                self.counters.block_deltas_found += 1;
                let found = self.find_delta(deltas, builder)?;
                file.keep_derived(deltas.name(), found.clone());
                found
            }
        };
        Ok(PositionalDelta::parse(kept, deltas.identity.len(), deltas.columns.len()))
    }

    /// Finds out, once, which columns deltas have.
    fn find_columns(&self, deltas: &mut Deltas, builder: &RecordBatchBuilder) {
        if !deltas.layer.runs.is_empty() {
            return;
        }
        let tests = self.filter.as_ref().map_or(&[][..], |filter| &filter.value_tests);
        let projected = builder.value_columns().map(|(column, _)| column);
        deltas.columns = projected.chain(tests.iter().map(|test| test.column)).collect();
        deltas.columns.sort_unstable();
        deltas.columns.dedup();
        let schema = self.merge.plan().layout().schema().clone();
        let value_test = |&ColumnTest { column, ref test }: &ColumnTest| {
            let ty = &schema.columns()[column].ty;
            let width = ty.fixed_width().unwrap_or_default();
            ValueTest { column, place: deltas.place_of(column), width, test: PageTest::new(test, ty, None) }
        };
        deltas.tests = tests.iter().map(value_test).collect();
        let target = |(target, &column): (usize, &usize)| {
            let (run, place) = deltas.base.iter().find_map(|&run| Some((run, self.runs[run].place_of(column)?)))?;
            Some(Target { column, target, run, place })
        };
        let targets = deltas.columns.iter().enumerate().filter_map(target).collect();
        deltas.layer = Layer { runs: deltas.base.clone(), targets };
    }

    /// Merges what is settled of the block, and encodes what that changes.
    fn find_delta(&mut self, deltas: &mut Deltas, builder: &RecordBatchBuilder) -> Result<Arc<[u8]>> {
        let first = self.base_run().key().unwrap_or_default().to_vec();
        self.key = first;
        let rows = self.base_run().block().map_or(0, |(block, _)| block.rows());
        self.begin_stretch();
        let is_base = self.find_layer(builder)? && self.layer().runs == deltas.base;
        let taken = if is_base { self.take_settled(deltas, rows, builder)? } else { 0 };
        deltas.settled_at = (taken == rows).then(|| deltas.last.clone());
        let mut bytes = deltas.identity.clone();
        match taken == rows {
            true => self.noted().encode(0..deltas.columns.len(), &mut bytes),
            false => PositionalDelta::encode_none(&mut bytes),
        }
        self.begin_stretch();
        Ok(bytes.into())
    }

    /// Notes what is settled of the block, whose rows are these, as far as it can be noted; of how many rows it was.
    fn take_settled(&mut self, deltas: &mut Deltas, rows: usize, builder: &RecordBatchBuilder) -> Result<usize> {
        let filter = self.filter.take();
        self.exchange_with_settled(deltas);
        let most = rows + (rows / 2).min(MOST_NEW);
        let taken = self.seek_settled(deltas).and_then(|()| self.takes_touched(0..rows, most, builder));
        self.exchange_with_settled(deltas);
        self.filter = filter;
        taken
    }

    /// Has what is settled be the rest, all wanted columns the targets, and the snapshot that which sees just that; or
    /// back again.
    fn exchange_with_settled(&mut self, deltas: &mut Deltas) {
        self.exchange_rest(&mut deltas.settled);
        std::mem::swap(&mut self.snapshot, &mut deltas.snapshot);
        std::mem::swap(&mut self.layers[self.at], &mut deltas.layer);
        std::mem::swap(&mut self.shapes, &mut deltas.shapes);
    }

    /// What was noted of the stretch.
    fn noted(&self) -> Changes<'_> {
        Changes {
            cells: &self.overwrites,
            gone: self.inserts.gone(),
            new: self.inserts.keys(None).collect(),
            new_values: self.inserts.values(),
        }
    }

    /// Has what is settled, which is the rest for now, stand behind the block before.
    fn seek_settled(&mut self, deltas: &Deltas) -> Result<()> {
        if deltas.before.is_some() && deltas.settled_at == deltas.before {
            return Ok(());
        }
        self.seek_rest(&deltas.behind_before())
    }

    /// Whether a delta is in use.
    pub(super) fn has_delta(&self) -> bool {
        self.deltas.as_ref().is_some_and(|deltas| deltas.is_in_use())
    }

    /// Step 4 of the module: has all sources be the rest again, from the key in `key` on, or from a new row of the
    /// delta that comes before it.
    pub(super) fn leave_delta(&mut self) -> Result<()> {
        let Some(mut deltas) = self.deltas.take() else { return Ok(()) };
        let row = self.base_run().block().map_or(usize::MAX, |(_, row)| row);
        let mut from = std::mem::take(&mut self.key);
        if let Some(key) = deltas.new_key_at(row).filter(|key| *key < from.as_slice()) {
            from.clear();
            from.extend_from_slice(key);
        }
        deltas.in_use = None;
        let changed = self.change_rest(&mut deltas, &from);
        (self.key, self.deltas) = (from, Some(deltas));
        changed
    }

    /// Whether a new row of the delta comes before the key in `key`, or is that.
    pub(super) fn is_behind_new(&self) -> bool {
        let row = self.base_run().block().map_or(0, |(_, row)| row);
        let key = self.deltas.as_ref().and_then(|deltas| deltas.new_key_at(row));
        key.is_some_and(|key| key <= self.key.as_slice())
    }

    /// The row of the block that a row of the stretch is.
    fn row_of_block(&self, offset: usize) -> usize {
        self.base_run().block().map_or(0, |(_, row)| row) + offset
    }

    /// New rows that the delta has among the first `count` rows of the stretch.
    pub(super) fn delta_new_before(&self, count: usize) -> usize {
        self.deltas.as_ref().map_or(0, |deltas| deltas.new_before(self.row_of_block(count)))
    }

    /// Up to which of these rows of the stretch there are, with the new ones of the delta, no more than `most`.
    pub(super) fn fitting_with_new(&self, Range { mut start, mut end }: Range<usize>, most: usize) -> usize {
        if end + self.delta_new_before(end) <= most {
            return end;
        }
        while start + 1 < end {
            let middle = usize::midpoint(start, end);
            if middle + self.delta_new_before(middle) <= most { start = middle } else { end = middle }
        }
        start
    }

    /// Whether the delta says of a key of the rest, whose place in the stretch is this one, that its row is new or
    /// gone, or changes what a filter asks of it.
    pub(super) fn is_in_delta(&self, key: &[u8], (place, is_there): (usize, bool)) -> bool {
        let Some(deltas) = self.deltas.as_ref().filter(|deltas| deltas.is_in_use()) else { return false };
        let row = self.row_of_block(place);
        // What of a row is tested is decided from one source alone.
        if is_there { deltas.is_gone(row) || deltas.is_tested(row) } else { deltas.is_new(row, key) }
    }

    /// Step 3 of the module for the first `count` rows of the stretch: notes what the delta has of them, and the new
    /// rows before the last one of the rest. `false` if it cannot be.
    pub(super) fn note_delta(&mut self, count: usize) -> Result<bool> {
        let Some(mut deltas) = self.deltas.take() else { return Ok(true) };
        let is_noted = self.note_delta_of(&mut deltas, count);
        self.deltas = Some(deltas);
        is_noted
    }

    fn note_delta_of(&mut self, deltas: &mut Deltas, count: usize) -> Result<bool> {
        let first = self.row_of_block(0);
        let Some(InUse { delta, new_at, .. }) = &deltas.in_use else { return Ok(true) };
        let stretch = first..first + count;
        let mut end = delta.new_before(stretch.end).max(*new_at);
        if let Some(last) = self.inserts.last_key_before(count) {
            end = end.max(delta.new_below(last));
        }
        let new = *new_at..end;
        if !self.can_take(deltas, delta, &stretch, !new.is_empty()) {
            return Ok(false);
        }
        self.overwritten += delta.most_cells(&stretch);
        self.inserts.add_gone(delta.gone(stretch.clone()).map(|row| row - first as u32));
        match &self.filter {
            None => self.inserts.add_of_delta(new, delta, first),
            Some(_) => {
                let passing = self.passing_new(deltas, delta, new)?;
                self.inserts.add_of_delta(passing.into_iter(), delta, first);
                let mut decided = std::mem::take(&mut deltas.decided);
                self.decide_by_delta((&*deltas, delta), &stretch, &mut decided)?;
                deltas.decided = decided;
            }
        }
        if let Some(in_use) = &mut deltas.in_use {
            (in_use.new_at, in_use.stretch) = (end, stretch);
        }
        Ok(true)
    }

    /// The new rows, of these, that pass the filter.
    fn passing_new(&self, deltas: &Deltas, delta: &PositionalDelta, new: Range<usize>) -> Result<Vec<usize>> {
        let (mut passing, layout) = (Vec::new(), self.merge.plan().layout());
        for number in new {
            let mut passes = true;
            for test in &deltas.tests {
                passes = passes && test.passes(layout, delta.new_value(test.place, number))?;
            }
            let filter = self.filter.as_ref().filter(|_| passes);
            if filter.map_or(Ok(false), |filter| filter.passes_key(delta.new_key(number)))? {
                passing.push(number);
            }
        }
        Ok(passing)
    }

    /// Decides whether the rows of the stretch pass that have other values in tested columns: first by these, column
    /// by column, then those that still may by what else is tested.
    fn decide_by_delta(
        &mut self,
        (deltas, delta): (&Deltas, &PositionalDelta),
        stretch: &Range<usize>,
        decided: &mut Vec<(u32, bool)>,
    ) -> Result<()> {
        decided.clear();
        for test in &deltas.tests {
            for (row, value) in delta.cells(test.place, stretch) {
                decided.push((row, test.passes(self.merge.plan().layout(), value)?));
            }
        }
        // Of a row that has several values the tests that it fails come first.
        decided.sort_unstable();
        decided.dedup_by_key(|(row, _)| *row);
        for &(row, passes) in &*decided {
            let offset = row as usize - stretch.start;
            let passes = passes && self.passes_unchanged((deltas, delta), row as usize, offset)?;
            self.decisions.push((offset, passes));
        }
        Ok(())
    }

    /// Whether a row of the block, at this place of the stretch, passes the tests of columns of which the delta has no
    /// value for it.
    fn passes_unchanged(
        &mut self,
        (deltas, delta): (&Deltas, &PositionalDelta),
        row: usize,
        offset: usize,
    ) -> Result<bool> {
        let is_changed = |column: usize| delta.has_cells(deltas.place_of(column), &(row..row + 1));
        for &run in &self.layers[self.at].runs {
            if !self.runs[run].passes_but_for(offset, is_changed)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the cells of the stretch that the delta has values for, or all if it has new rows there, are values.
    fn can_take(&self, deltas: &Deltas, delta: &PositionalDelta, stretch: &Range<usize>, has_new: bool) -> bool {
        if has_new && self.inserts.are_packed() {
            return false;
        }
        self.layer().targets.iter().all(|target| {
            let is_changed = has_new || delta.has_cells(deltas.place_of(target.column), stretch);
            !is_changed || self.has_values(target)
        })
    }

    /// Writes the delta's values to the cells of a stretch that was appended from row `first` of the batch on: as it
    /// lies, or with its new rows and without those gone.
    pub(super) fn overwrite_by_delta(
        &self,
        first: usize,
        has_new: bool,
        builder: &mut RecordBatchBuilder,
    ) -> Result<()> {
        let Some(deltas) = &self.deltas else { return Ok(()) };
        let Some(InUse { delta, stretch, .. }) = &deltas.in_use else { return Ok(()) };
        for target in &self.layer().targets {
            let column = deltas.place_of(target.column);
            if !delta.has_cells(column, stretch) {
                continue;
            }
            let cells = delta.cells(column, stretch).map(|(row, value)| (row as usize - stretch.start, value));
            if !has_new || self.inserts.shift_nothing() {
                builder.overwrite(target.target, cells.map(|(row, value)| (first + row, value)))?;
                continue;
            }
            let (mut shifts, mut gone) = (self.inserts.shifts(), self.inserts.gone().iter().peekable());
            let left = cells.filter_map(|(row, value)| {
                while gone.next_if(|gone| (**gone as usize) < row).is_some() {}
                let is_gone = gone.peek().is_some_and(|gone| **gone as usize == row);
                (!is_gone).then(|| (first + shifts.place(row), value))
            });
            builder.overwrite(target.target, left)?;
        }
        Ok(())
    }

    /// The same of rows that passed, as they lie.
    pub(super) fn overwrite_passing_by_delta(&self, first: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        let Some(deltas) = &self.deltas else { return Ok(()) };
        let Some(InUse { delta, stretch, .. }) = &deltas.in_use else { return Ok(()) };
        for target in &self.layer().targets {
            let mut passing = self.passing.iter().enumerate().peekable();
            let cells = delta.cells(deltas.place_of(target.column), stretch).filter_map(|(row, value)| {
                let row = row - stretch.start as u32;
                while passing.next_if(|(_, passing)| **passing < row).is_some() {}
                passing.next_if(|(_, passing)| **passing == row).map(|(at, _)| (first + at, value))
            });
            let mut cells = cells.peekable();
            if cells.peek().is_some() {
                builder.overwrite(target.target, cells)?;
            }
        }
        Ok(())
    }
}
