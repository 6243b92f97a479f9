//! Patches of rows of a stretch, which stay in it and have their cells written over (step 4 of [`super`]).

use std::ops::Range;

use mycelium_base::{Cursor, Operation, Result};
use mycelium_encoding::RecordBatchBuilder;

use super::BlockScan;
use super::layer::Target;
use super::touched::Touched;

/// Where so many keys of the rest are in a stretch, there are many more in its block.
const MANY: usize = 2;

impl BlockScan {
    /// Of these rows of the stretch, how many of the first can be taken with the patches that the rest has of them
    /// written over their cells; takes the patches.
    pub(super) fn overwrites_touched(&mut self, rows: Range<usize>, builder: &RecordBatchBuilder) -> Result<usize> {
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
    pub(super) fn overwrites_bound(&mut self, offset: usize, builder: &RecordBatchBuilder) -> Result<bool> {
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
}
