//! Changed rows of a stretch, which stay in it and have their cells written over (step 4 of [`super`]).

use std::ops::Range;

use mycelium_base::{Cursor, Operation, Result};
use mycelium_encoding::{ColumnType, PackedLayout, RecordBatchBuilder};

use super::BlockScan;
use super::layer::Target;
use super::patches::{Overwrite, PatchShape};
use super::touched::{Says, Touched};

/// Where so many keys of the rest are in a stretch, there are many more in its block.
const MANY: usize = 2;

/// Keys of the rest that are sought at once: twice as many as long as all of them can be noted.
const LEAST_SOUGHT: usize = 4;
const MOST_SOUGHT: usize = 512;

/// Keys of the rest that were sought in a stretch.
struct Sought {
    /// How many of them were noted.
    alike: usize,
    /// The row behind the last of these.
    behind: usize,
    /// Whether the next one of all keys is behind the rows, or there is none.
    is_all: bool,
}

/// Notes what the key at a place ahead has of a row of the stretch, if all of that is patches of this shape.
#[inline(always)]
fn note_alike(
    shape: &PatchShape,
    touched: &Touched,
    place: usize,
    row: usize,
    overwrites: &mut Vec<Overwrite>,
) -> bool {
    let Some((kind, patch)) = touched.lone_patch_ahead(place) else {
        return note_several_alike(shape, touched, place, row, overwrites);
    };
    let is_alike = shape.is_of(kind, patch);
    if is_alike {
        shape.note(patch, row, overwrites);
    }
    is_alike
}

#[inline(never)]
fn note_several_alike(
    shape: &PatchShape,
    touched: &Touched,
    place: usize,
    row: usize,
    overwrites: &mut Vec<Overwrite>,
) -> bool {
    let are_alike = touched.has_patches_ahead(place)
        && touched.entries_ahead(place).all(|(kind, _, patch)| shape.is_of(kind, patch));
    if are_alike {
        // Newer values are written over older ones.
        touched.entries_ahead(place).rev().for_each(|(_, _, patch)| shape.note(patch, row, overwrites));
    }
    are_alike
}

/// Whether values of a column have a fixed width, of whole bytes.
fn has_slot(layout: &PackedLayout, target: &Target) -> bool {
    let ty = &layout.schema().columns()[target.column].ty;
    ty.fixed_width().is_some() && !matches!(ty, ColumnType::Bool)
}

impl BlockScan {
    /// Of these rows of the stretch, up to where they can be taken with what the rest has of them and between them;
    /// takes that. With the new rows among them they are `most` at most.
    pub(super) fn takes_touched(
        &mut self,
        rows: Range<usize>,
        most: usize,
        builder: &RecordBatchBuilder,
    ) -> Result<usize> {
        let mut touched = std::mem::take(&mut self.touched);
        let taken = self.takes_all(&mut touched, rows, most, builder);
        self.touched = touched;
        taken
    }

    fn takes_all(
        &mut self,
        touched: &mut Touched,
        Range { mut start, mut end }: Range<usize>,
        most: usize,
        builder: &RecordBatchBuilder,
    ) -> Result<usize> {
        while start < end {
            let Sought { alike, behind, is_all } = self.seek_in_stretch(start..end, touched)?;
            touched.pass(alike);
            self.overwritten += alike;
            let places = std::mem::take(&mut self.places);
            let noted = self.note_found(&places, most, touched, builder);
            touched.read_if_used_up(self.rest())?;
            end = end.min(most - self.inserts.more());
            let noted = noted?;
            let (next, last) = (places.get(noted).copied(), places.last().copied());
            self.places = places;
            if let Some((place, _)) = next {
                self.sought = (2 * (alike + noted)).clamp(LEAST_SOUGHT, MOST_SOUGHT);
                return Ok(end.min(place));
            }
            if is_all {
                break;
            }
            self.sought = (2 * self.sought).clamp(LEAST_SOUGHT, MOST_SOUGHT);
            start = last.map_or(behind, |(place, is_there)| place + usize::from(is_there));
        }
        Ok(end)
    }

    /// Notes what the keys at these places have, up to the first of which that cannot be; how many.
    fn note_found(
        &mut self,
        places: &[(usize, bool)],
        most: usize,
        touched: &mut Touched,
        builder: &RecordBatchBuilder,
    ) -> Result<usize> {
        for (noted, &(place, is_there)) in places.iter().enumerate() {
            let (key, at) = (touched.key().unwrap_or_default(), (place, is_there));
            if self.is_in_delta(key, at) || self.is_contested(key, at)? {
                return Ok(noted);
            }
            // Behind the last row of the stretch overlays may have others.
            let row_behind = usize::from(!is_there && !self.overlays.is_empty());
            let fits = place + row_behind + self.inserts.more() < most;
            let is_noted = match (touched.says(), is_there) {
                (Says::Patch | Says::Patches, true) => {
                    fits && (self.note_alike(touched, place) || self.note_touched(touched, place, builder)?)
                }
                (Says::Row, true) => {
                    fits && (self.note_touched(touched, place, builder)?
                        || self.note_packed(touched, (place, true), most, builder)?)
                }
                (Says::Row, false) => {
                    fits && (self.note_new(touched, place, builder)?
                        || self.note_packed(touched, (place, false), most, builder)?)
                }
                // Of a row that is not there.
                (Says::Patch | Says::Patches, false) => self.inserts.note_deleted(place, false),
                (Says::Gone, _) => (fits || !is_there) && self.inserts.note_deleted(place, is_there),
                _ => false,
            };
            if !is_noted {
                return Ok(noted);
            }
            touched.pass(1);
        }
        Ok(places.len())
    }

    /// Seeks the next keys that were read ahead in these rows of the stretch. The first of them, as far as each is that
    /// of a row and all there is of it are patches of the shape found last, are noted at once. Of the others `places`
    /// becomes where they are, or would be, and whether they are there.
    fn seek_in_stretch(&mut self, rows: Range<usize>, touched: &Touched) -> Result<Sought> {
        if touched.key().is_none() {
            self.places.clear();
            return Ok(Sought { alike: 0, behind: rows.start, is_all: true });
        }
        if !self.shapes.are_of_stretch() {
            self.keep_shapes();
        }
        let Self { layers, at, runs, places, sought, shapes, overwrites, overlays, deltas, .. } = self;
        places.clear();
        let mut found = Sought { alike: 0, behind: rows.start, is_all: true };
        let Some((block, first)) = layers[*at].first_block(runs) else { return Ok(found) };
        let most = touched.keys_ahead().len().min((*sought).max(LEAST_SOUGHT));
        let (mut shape, mut count) = (shapes.last_plain(), 0);
        let is_gone =
            |row: usize| overlays.is_gone(row) || deltas.as_ref().is_some_and(|deltas| deltas.is_gone(first + row));
        block.seek_each(first + rows.start, touched.keys_ahead().take(most), |row, is_there| {
            let row = row - first;
            if row >= rows.end {
                return false;
            }
            let shape_there = shape.filter(|_| is_there && !is_gone(row));
            let is_noted = shape_there.is_some_and(|shape| note_alike(shape, touched, count, row, overwrites));
            count += 1;
            if is_noted {
                (found.alike, found.behind) = (count, row + 1);
            } else {
                shape = None;
                places.push((row, is_there));
            }
            if count == MANY {
                block.prefetch_keys();
            }
            true
        })?;
        found.is_all = count == 0 || count < most;
        Ok(found)
    }

    /// Notes what the next key of the rest, that of a row of the stretch, has of it, if that is patches of the shape
    /// found last.
    #[inline]
    fn note_alike(&mut self, touched: &Touched, row: usize) -> bool {
        let shape = self.shapes.last_plain();
        let is_noted = shape.is_some_and(|shape| note_alike(shape, touched, 0, row, &mut self.overwrites));
        self.overwritten += usize::from(is_noted);
        is_noted
    }

    /// Notes what the next key of the rest, that of a row of the stretch, has of it, if all of it can be noted.
    fn note_touched(&mut self, touched: &Touched, offset: usize, builder: &RecordBatchBuilder) -> Result<bool> {
        let (before, decided) = (self.overwrites.len(), self.decisions.len());
        let (mut is_noted, mut decided_by) = (true, None);
        // Oldest first, so that newer values are written over older ones, and the newest decides.
        for (kind, _, patch) in touched.entries().rev() {
            is_noted = is_noted && self.note_patch((kind, patch), offset, &mut decided_by, builder)?;
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
        let is_overlaid = self.bound_key().map_or(Ok(false), |bound| self.is_overlay_at(bound))?;
        if is_behind_touched || is_overlaid || !self.is_at_bound(offset)? || !self.read_lone_patch(run)? {
            return Ok(false);
        }
        let patch = std::mem::take(&mut self.patch);
        let is_noted = self.note_patch((self.runs[run].kind, &patch), offset, &mut None, builder)?;
        self.patch = patch;
        if is_noted {
            self.overwritten += 1;
            self.runs[run].step()?;
            self.find_bound();
        }
        Ok(is_noted)
    }

    /// Notes what the patch changes in a row of the stretch: cells, and whether the row passes, which patches of
    /// several shapes would decide together. `false` if that cannot be done in its place.
    #[inline]
    fn note_patch(
        &mut self,
        (kind, patch): (usize, &[u8]),
        offset: usize,
        decided_by: &mut Option<u64>,
        builder: &RecordBatchBuilder,
    ) -> Result<bool> {
        let Some(place) = self.shape_of((kind, patch), builder)? else { return Ok(false) };
        let shape = self.shapes.get(place);
        shape.note(patch, offset, &mut self.overwrites);
        if shape.is_tested() { self.decide(place, (kind, patch), offset, decided_by) } else { Ok(true) }
    }

    /// Decides whether a row of the stretch with a patch, whose shape is at a place, passes, unless a patch of another
    /// shape did.
    fn decide(
        &mut self,
        place: usize,
        (kind, patch): (usize, &[u8]),
        offset: usize,
        decided_by: &mut Option<u64>,
    ) -> Result<bool> {
        let number = self.shapes.get(place).number();
        let is_alone = decided_by.replace(number).is_none_or(|before| before == number);
        if is_alone {
            let passes = self.passes_patched(place, (kind, patch), offset)?;
            self.decisions.push((offset, passes));
        }
        Ok(is_alone)
    }

    /// The place of the shape of a patch; `None` if what it changes cannot be noted.
    #[inline]
    pub(super) fn shape_of(
        &mut self,
        (kind, patch): (usize, &[u8]),
        builder: &RecordBatchBuilder,
    ) -> Result<Option<usize>> {
        if !self.shapes.are_of_stretch() {
            self.keep_shapes();
        }
        let place = match self.shapes.find(kind, patch) {
            Some(place) => place,
            None => match self.learn_shape((kind, patch), builder)? {
                Some(place) => place,
                None => return Ok(None),
            },
        };
        Ok(self.shapes.get(place).is_notable().then_some(place))
    }

    #[cold]
    fn learn_shape(&mut self, (kind, patch): (usize, &[u8]), builder: &RecordBatchBuilder) -> Result<Option<usize>> {
        let Some(layout) = self.merge.plan().given_layout(kind) else { return Ok(None) };
        let mut shapes = std::mem::take(&mut self.shapes);
        let tests = self.filter.as_ref().map_or(&[][..], |filter| &filter.value_tests);
        let of_delta = shapes.are_of_delta();
        let can_overwrite = |target: &Target| {
            let can_be = if of_delta { has_slot(layout, target) } else { builder.can_overwrite(target.target) };
            can_be && self.has_values(target)
        };
        let learn =
            |shape: &mut PatchShape| shape.learn((kind, patch), layout, &self.layer().targets, tests, can_overwrite);
        let place = shapes.learn(learn);
        self.shapes = shapes;
        place.map(Some)
    }

    /// Whether a row of the stretch passes the tests of values with this patch, whose shape is at a place.
    fn passes_patched(&mut self, shape: usize, (kind, patch): (usize, &[u8]), offset: usize) -> Result<bool> {
        let Self { merge, shapes, layers, at, runs, .. } = self;
        let Some(layout) = merge.plan().given_layout(kind) else { return Ok(false) };
        let shape = shapes.get(shape);
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

    /// Keeps the shapes of patches for another stretch, if they are what they were.
    fn keep_shapes(&mut self) {
        let has_only_values = self.layer().targets.iter().all(|target| self.has_values(target));
        self.shapes.keep_for(has_only_values);
    }

    /// Whether all cells of a column of the current block, and those laid over them, are values.
    pub(super) fn has_values(&self, target: &Target) -> bool {
        let block = self.runs[target.run].block();
        block.is_some_and(|(block, _)| block.read(|pages| pages[target.place].has_only_values()))
            && !self.have_overlays_nulls(target.column)
    }
}
