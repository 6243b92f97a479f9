//! A run that a scan reads block by block, and which rows of the current block pass the tests of its columns.

use mycelium_base::{ColumnSet, Cursor, Error, ReadCounters, Result, SequenceNumber, Trailer};
use mycelium_encoding::PackedLayout;
use mycelium_encoding::page::{Bitmap, ColumnTest, PageTest};
use mycelium_merge::ColumnMerge;
use mycelium_sst::{ColumnBlock, ColumnPosition, ColumnZones, LevelCursor, SstFile};

use super::row_filter::RowFilter;
use super::told::Told;

/// A run that may be part of a layer, and where the scan is in it.
pub(crate) struct LayerRun {
    pub(super) cursor: LevelCursor<ColumnPosition>,
    /// `false` while what the run has is known otherwise, and it stands anywhere.
    pub(super) takes_part: bool,
    pub(super) level: usize,
    /// Which of the tree's formats it has.
    pub(super) kind: usize,
    /// What it has of the columns of a layer.
    pub(super) share: ColumnSet,
    /// The wanted columns that its blocks have pages of, in their order.
    pub(super) columns: Vec<usize>,
    /// The tests of these columns, each with the place of its column.
    pub(super) tests: Vec<(usize, ColumnTest)>,
    compiled: Compiled,
    pub(super) selected: Selected,
    apart: Apart,
    pub(super) rows: u64,
    /// For look-ups of single keys.
    lookup: Option<Box<LevelCursor<ColumnPosition>>>,
}

/// A run's tests, for the file of this number.
#[derive(Default)]
struct Compiled {
    file: Option<u64>,
    tests: Vec<PageTest>,
    /// Of the columns of the tests.
    zones: Vec<ColumnZones>,
}

/// Which rows of a block pass the tests of its columns.
#[derive(Default)]
pub(super) struct Selected {
    /// File and number of the block.
    block: Option<(u64, usize)>,
    pub(super) rows: Bitmap,
}

/// Which rows of a block pass each of the tests by itself, as far as that was asked.
#[derive(Default)]
struct Apart {
    /// File and number of the block.
    block: Option<(u64, usize)>,
    /// By test, whether it is known.
    rows: Vec<(bool, Bitmap)>,
}

impl Apart {
    /// What is known of this block.
    fn of(&mut self, block: (u64, usize), tests: usize) -> &mut [(bool, Bitmap)] {
        if self.block.replace(block) != Some(block) {
            self.rows.resize_with(tests, Default::default);
            self.rows.iter_mut().for_each(|(is_known, _)| *is_known = false);
        }
        &mut self.rows
    }
}

impl Compiled {
    /// Is made for the file.
    fn compile(&mut self, tests: &[(usize, ColumnTest)], file: &SstFile) -> Result<()> {
        if self.file.replace(file.number()) != Some(file.number()) {
            let compile = |(_, test): &(usize, ColumnTest)| file.page_test(test.column, &test.test);
            self.tests = tests.iter().map(compile).collect::<Result<_>>()?;
            self.zones = tests.iter().map(|(_, test)| file.zones(test.column)).collect::<Result<_>>()?;
        }
        Ok(())
    }

    /// The first test that no row of a block can pass, by its zones.
    fn ruling_out(&self, tests: &[(usize, ColumnTest)], block: usize) -> Result<Option<usize>> {
        for test in 0..tests.len() {
            if self.is_ruled_out(tests, test, block)? {
                return Ok(Some(test));
            }
        }
        Ok(None)
    }

    /// Whether no row of a block can pass one of the tests, by its zones.
    fn is_ruled_out(&self, tests: &[(usize, ColumnTest)], test: usize, block: usize) -> Result<bool> {
        Ok(!self.zones[test].may_pass(block, &tests[test].1.test, &self.tests[test])?)
    }
}

impl LayerRun {
    /// A run whose cursor gives blocks with the pages of `layout`, of which a layer takes `share` from it.
    pub(crate) fn new(
        cursor: LevelCursor<ColumnPosition>,
        (level, kind): (usize, usize),
        share: ColumnSet,
        layout: &PackedLayout,
        filter: Option<&RowFilter>,
    ) -> Self {
        let columns: Vec<usize> = layout.columns().collect();
        let place = |test: &ColumnTest| columns.iter().position(|&column| column == test.column);
        let tests = filter.map_or(&[][..], |filter| &filter.value_tests).iter();
        let tests = tests.filter_map(|test| Some((place(test)?, test.clone()))).collect();
        let (compiled, selected, apart) = Default::default();
        let (takes_part, rows, lookup) = (true, 0, None);
        Self { cursor, takes_part, level, kind, share, columns, tests, compiled, selected, apart, rows, lookup }
    }

    /// The place of a column among those that its blocks have pages of.
    pub(super) fn place_of(&self, column: usize) -> Option<usize> {
        self.columns.iter().position(|&own| own == column)
    }

    /// The key that the run stands on.
    pub(super) fn key(&self) -> Option<&[u8]> {
        (self.takes_part && self.cursor.valid()).then(|| self.cursor.key())
    }

    /// The current block and the row in it; `None` at the end.
    pub(super) fn block(&self) -> Option<(&ColumnBlock, usize)> {
        let standing = self.cursor.block().filter(|_| self.takes_part);
        standing.map(|(block, row, _, _)| (block, row))
    }

    /// Leaves an entry.
    pub(super) fn step(&mut self) -> Result<()> {
        self.rows += 1;
        self.cursor.next()
    }

    /// Leaves `count` rows of the current block, and all versions of the last of them. `last` is for its key.
    pub(super) fn pass(&mut self, count: usize, last: &mut Vec<u8>) -> Result<()> {
        let Some((block, row)) = self.block() else { return Ok(()) };
        let ends_block = row + count >= block.rows();
        if ends_block {
            block.write_key(row + count - 1, last)?;
        }
        self.rows += count as u64;
        self.cursor.go_to(row + count)?;
        if ends_block { self.pass_older(last) } else { Ok(()) }
    }

    /// Whether `count` rows of the current block are all that are left of it.
    pub(super) fn ends_block(&self, count: usize) -> bool {
        self.block().is_some_and(|(block, row)| row + count >= block.rows())
    }

    /// Leaves the rest of the current block, as [`LayerRun::pass`] does, and blocks behind it that are ruled out, if
    /// all of their keys are before `bound`: these are not read. One and the same test rules them out: a row whose
    /// columns are in several of them fails it, too, wherever its tested column is. Of two blocks, each ruled out by
    /// another test, a row may pass both.
    pub(super) fn pass_block(
        &mut self,
        bound: Option<&[u8]>,
        last: &mut Vec<u8>,
        counters: &mut ReadCounters,
    ) -> Result<()> {
        self.count_to_block_end(last)?;
        let Self { cursor, tests, compiled, .. } = self;
        let mut ruling = None;
        counters.blocks_skipped_by_zone += cursor.pass_blocks(bound, |file, number, _| {
            compiled.compile(tests, file)?;
            let is_ruled_out = match ruling {
                Some(test) => compiled.is_ruled_out(tests, test, number),
                None => compiled.ruling_out(tests, number).map(|test| {
                    ruling = test;
                    test.is_some()
                }),
            };
            is_ruled_out.map_err(|error| in_file(error, file))
        })?;
        self.pass_older(last)
    }

    /// Leaves the rest of the current block, as [`LayerRun::pass`] does, and blocks behind it that are told by their
    /// zones, if all of their keys are before `bound`: these are not read.
    pub(super) fn tell_blocks(
        &mut self,
        bound: Option<&[u8]>,
        last: &mut Vec<u8>,
        (told, snapshot): (&mut Told, SequenceNumber),
        counters: &mut ReadCounters,
    ) -> Result<()> {
        self.count_to_block_end(last)?;
        counters.blocks_skipped_by_zone += self.cursor.pass_blocks(bound, |file, number, entry| {
            told.tell((file, number, entry), snapshot).map_err(|error| in_file(error, file))
        })?;
        self.pass_older(last)
    }

    /// Counts what is left of the current block, and writes its last key.
    fn count_to_block_end(&mut self, last: &mut Vec<u8>) -> Result<()> {
        let Some((block, row)) = self.block() else { return Ok(()) };
        let rows = block.rows();
        block.write_key(rows - 1, last)?;
        self.rows += (rows - row) as u64;
        Ok(())
    }

    /// Leaves older versions of a block's last key, which may go on in the next block.
    fn pass_older(&mut self, last: &[u8]) -> Result<()> {
        while self.key() == Some(last) {
            self.cursor.next()?;
        }
        Ok(())
    }

    /// Goes on by so many rows of the current block.
    pub(super) fn go_on(&mut self, count: usize) -> Result<()> {
        let Some((_, row)) = self.block() else { return Ok(()) };
        self.rows += count as u64;
        self.cursor.go_to(row + count)
    }

    /// Goes on to a row that the filter has to be asked of: of blocks of whole rows that the snapshot sees, each key
    /// once, one that passes the tests of values. Stops behind `upper`. How many rows it passed.
    pub(super) fn go_to_candidate(
        &mut self,
        snapshot: SequenceNumber,
        upper: Option<&[u8]>,
        counters: &mut ReadCounters,
    ) -> Result<u64> {
        let before = self.rows;
        while let Some((block, row)) = self.block().filter(|(block, _)| block.facts().is_plain(snapshot)) {
            let rows = block.rows();
            self.select(counters)?;
            let found = self.selected.rows.next(row);
            if found != Some(row) {
                self.go_on(found.unwrap_or(rows) - row)?;
            }
            if found.is_some() || upper.is_some_and(|upper| self.key().is_some_and(|key| key >= upper)) {
                break;
            }
        }
        counters.rows_passed_through += self.rows - before;
        Ok(self.rows - before)
    }

    /// Gives a merge the entries of a key, if the run stands on it, and leaves them.
    pub(super) fn visit(&mut self, key: &[u8], snapshot: SequenceNumber, merge: &mut ColumnMerge) -> Result<()> {
        if self.takes_part {
            self.rows += visit(&mut self.cursor, self.kind, (key, snapshot), merge)?;
        }
        Ok(())
    }

    /// Gives a merge the entries of a key, wherever in the run they are.
    pub(super) fn look_up(&mut self, key: &[u8], snapshot: SequenceNumber, merge: &mut ColumnMerge) -> Result<()> {
        if !merge.needs(self.kind) {
            return Ok(());
        }
        // Of a block's first row newer versions may be in the block before.
        if self.key() == Some(key) && self.block().is_some_and(|(_, row)| row > 0) {
            return self.visit(key, snapshot, merge);
        }
        let Self { cursor, lookup, kind, .. } = self;
        let lookup = lookup.get_or_insert_with(|| Box::new(cursor.for_single_keys()));
        lookup.seek(key, Trailer::NEWEST)?;
        visit(lookup, *kind, (key, snapshot), merge).map(drop)
    }

    /// Leaves the entries of a key, if the run stands on it.
    pub(super) fn leave_key(&mut self, key: &[u8]) -> Result<()> {
        while self.key() == Some(key) {
            self.step()?;
        }
        Ok(())
    }

    /// Adds what the run's cursors have read.
    pub(super) fn add_counters(&self, counters: &mut ReadCounters) {
        self.cursor.add_counters(counters);
        if let Some(lookup) = &self.lookup {
            lookup.add_counters(counters);
        }
    }

    /// Says of rows of a stretch, counted from the one that the run stands on, that they are decided already. Those
    /// pass or fail in every run of a layer; no other stretch has them.
    pub(super) fn decide(&mut self, decisions: &[(usize, bool)]) {
        let Some((_, row)) = self.block() else { return };
        for &(offset, passes) in decisions {
            self.selected.rows.put(row + offset, passes);
        }
    }

    /// Whether a row of a stretch, counted from the one that the run stands on, passes the tests of columns that are
    /// not `patched`. Of a block that is asked about, all rows are tested, column by column.
    pub(super) fn passes_but_for(&mut self, offset: usize, patched: impl Fn(usize) -> bool) -> Result<bool> {
        let Self { cursor, tests, compiled, apart, .. } = self;
        let Some((block, row, file, number)) = cursor.block().filter(|_| !tests.is_empty()) else { return Ok(true) };
        let apart = apart.of((file.number(), number), tests.len());
        for (at, (place, ColumnTest { column, .. })) in tests.iter().enumerate() {
            if patched(*column) {
                continue;
            }
            let (is_known, rows) = &mut apart[at];
            if !std::mem::replace(is_known, true) {
                compiled.compile(tests, file)?;
                let is_ruled_out = compiled.is_ruled_out(tests, at, number).map_err(|error| in_file(error, file))?;
                rows.reset(block.rows(), !is_ruled_out);
                if !is_ruled_out {
                    let filtered = block.read(|pages| pages[*place].filter(&compiled.tests[at], rows));
                    filtered.map_err(|error| in_file(error, file))?;
                }
            }
            if !rows.get(row + offset) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes `selected` that of the current block.
    pub(super) fn select(&mut self, counters: &mut ReadCounters) -> Result<()> {
        let Self { cursor, tests, compiled, selected, apart, .. } = self;
        let Some((block, _, file, number)) = cursor.block() else { return Ok(()) };
        if selected.block.replace((file.number(), number)) == Some((file.number(), number)) {
            return Ok(());
        }
        compiled.compile(tests, file)?;
        if compiled.ruling_out(tests, number).map_err(|error| in_file(error, file))?.is_some() {
            counters.blocks_skipped_by_zone += 1;
            selected.rows.reset(block.rows(), false);
            return Ok(());
        }
        selected.rows.reset(block.rows(), true);
        let apart = apart.of((file.number(), number), tests.len());
        block
            .read(|pages| {
                for (((place, _), test), (is_known, rows)) in tests.iter().zip(&compiled.tests).zip(apart) {
                    match (*is_known, selected.rows.is_none()) {
                        (_, true) => break,
                        (true, _) => selected.rows.keep(rows),
                        (false, _) => pages[*place].filter(test, &mut selected.rows)?,
                    }
                }
                Ok(())
            })
            .map_err(|error: Error| in_file(error, file))
    }
}

/// Gives a merge the entries of a key that the cursor stands on, and leaves them; how many they are.
fn visit(
    cursor: &mut LevelCursor<ColumnPosition>,
    kind: usize,
    (key, snapshot): (&[u8], SequenceNumber),
    merge: &mut ColumnMerge,
) -> Result<u64> {
    let mut entries = 0;
    while cursor.valid() && cursor.key() == key {
        let trailer = cursor.trailer();
        if trailer.sequence() <= snapshot
            && merge.needs(kind)
            && let Some(position) = cursor.position()
        {
            merge.visit(kind, trailer, position.fragment()?).map(drop)?;
        }
        entries += 1;
        cursor.next()?;
    }
    Ok(entries)
}

fn in_file(error: Error, file: &SstFile) -> Error {
    if error.file().is_some() { error } else { error.in_file(file.path()) }
}
