//! Younger columnar runs that are laid over a stretch (step 4 of [`super`]; LSM-OPD §3: a flush that encodes leaves
//! level 0 columnar, too).
//!
//! 1. A run is an *overlay* of a stretch if it is younger than its layer, if its block has each key once and the
//!    snapshot sees all of it, and if what it has of tested columns is nothing, so that it does not change which rows
//!    pass.
//! 2. Where its keys are in the block of the layer is found out once for all scans ([`Placement`]). A patch or whole
//!    row of a key that is there is *laid over* its row; a patch of a key that is not there changes nothing. Of a
//!    run that has all wanted columns, a whole row of a key that is not there is *new*, and a row that is deleted is
//!    gone. What two runs say of a new or deleted row ends the stretch before it, for that row to be put together; so
//!    does any other entry, and the last row of the overlay's block, of whose key more may be in the next.
//! 3. Their cells are appended behind those of the stretch and moved to their places ([`super::overlay_cells`]). Rows
//!    that are gone are left out with those of the rest.
//!
//! Cost: a place for each key, and a copy for each cell; nothing is put together, and no key is compared again. Memory:
//! what the blocks of the runs have of one batch.

use std::cmp::Ordering;
use std::ops::Range;

use mycelium_base::{Operation, Result};
use mycelium_encoding::RecordBatchBuilder;
use mycelium_sst::{ColumnBlock, PlacedRow, Placement};

use super::BlockScan;
use super::layer::Target;
use super::layer_run::LayerRun;

/// Those of a stretch. Memory is reused.
#[derive(Default)]
pub(super) struct Overlays {
    /// Youngest first; those in use.
    pub(super) all: Vec<Overlay>,
    pub(super) used: usize,
    /// The new rows of all of them, in the order of their keys.
    pub(super) new: Vec<NewRow>,
    /// By run of the scan.
    placed: Vec<PlacedBlock>,
    pub(super) key: Vec<u8>,
    /// Rows of the batch, counted from the first of the stretch, and the rows of a block that go there.
    pub(super) places: Vec<u32>,
    pub(super) rows: Vec<u32>,
    /// The same of those that have a cell of one column.
    pub(super) places_with_cell: Vec<u32>,
    pub(super) rows_with_cell: Vec<u32>,
}

/// Where a run's block is laid over one of a layer.
#[derive(Default)]
struct PlacedBlock {
    /// File and number of the layer's block and of the run's.
    blocks: Option<[(u64, usize); 2]>,
    placement: Option<Placement>,
}

impl PlacedBlock {
    /// That of the blocks that these runs stand in.
    fn of(&mut self, layer: &LayerRun, run: &LayerRun) -> Result<Option<&Placement>> {
        let (Some((older, _, older_file, of_older)), Some((younger, _, file, number))) =
            (layer.cursor.block(), run.cursor.block())
        else {
            return Ok(None);
        };
        let blocks = Some([(older_file.number(), of_older), (file.number(), number)]);
        if self.blocks != blocks {
            self.placement = Some(Placement::of((older, older_file, of_older), (younger, file, number))?);
            self.blocks = blocks;
        }
        Ok(self.placement.as_ref())
    }
}

/// What a run has of a stretch.
#[derive(Default)]
pub(super) struct Overlay {
    pub(super) run: usize,
    /// Of each row of the run's block that was looked at, from the one that it stands on, where it is in the stretch,
    /// or would be.
    pub(super) places: Vec<u32>,
    /// Which of these rows are not laid over one of the stretch, counted from the one that the run stands on.
    pub(super) apart: Vec<u32>,
    /// Before which rows of the stretch new ones come, ascending, and each one's row of the run's block.
    new: Vec<(u32, u32)>,
    /// Rows of the stretch that are gone, ascending.
    gone: Vec<u32>,
}

/// A new row: before which row of the stretch it comes, the run that has it, and its row of that run's block.
#[derive(Clone, Copy)]
pub(super) struct NewRow {
    pub(super) before: u32,
    pub(super) run: usize,
    pub(super) row: u32,
}

/// Where pairs that ascend by their first part have this one.
fn at_place(pairs: &[(u32, u32)], place: u32) -> &[(u32, u32)] {
    let from = pairs.partition_point(|&(at, _)| at < place);
    let count = pairs[from..].iter().take_while(|&&(at, _)| at == place).count();
    &pairs[from..from + count]
}

/// Bytes of text that what is left of a run's block has of a column at most.
fn text_bound(run: &LayerRun, column: usize) -> usize {
    let there = run.block().zip(run.place_of(column));
    there.map_or(0, |((block, row), place)| block.read(|pages| pages[place].text_bound(row..block.rows())))
}

impl Overlay {
    /// Leaves what is of the first `count` rows of the stretch.
    fn truncate(&mut self, count: usize) {
        self.leave(count, 0..0);
    }

    /// The same, and these rows of the run's block, which come between these and the next one.
    fn leave(&mut self, count: usize, behind: Range<usize>) {
        let is_before = |place: u32| (place as usize) < count;
        let is_left = |place: u32, row: u32| is_before(place) || behind.contains(&(row as usize));
        let left = self.places.partition_point(|&place| is_before(place)) + behind.len();
        self.places.truncate(left);
        self.apart.truncate(self.apart.partition_point(|&at| (at as usize) < left));
        self.new.truncate(self.new.partition_point(|&(place, row)| is_left(place, row)));
        self.gone.truncate(self.gone.partition_point(|&place| is_before(place)));
    }

    /// The rows of the stretch over which others are laid, ascending, and these, counted from the one that the run
    /// stands on.
    #[inline]
    pub(super) fn laid(&self) -> impl Iterator<Item = (u32, u32)> {
        let mut apart = self.apart.iter().copied().peekable();
        let numbered = self.places.iter().copied().zip(0..);
        numbered.filter(move |&(_, at)| apart.next_if_eq(&at).is_none())
    }
}

impl Overlays {
    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.used = 0;
        self.new.clear();
    }

    /// Whether a run is one of them.
    pub(super) fn contains(&self, run: usize) -> bool {
        self.in_use().iter().any(|overlay| overlay.run == run)
    }

    fn in_use(&self) -> &[Overlay] {
        &self.all[..self.used]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// New rows of the first `count` rows of the stretch.
    pub(super) fn new_before(&self, count: usize) -> usize {
        let of = |overlay: &Overlay| overlay.new.partition_point(|&(place, _)| (place as usize) < count);
        self.in_use().iter().map(of).sum()
    }

    /// Rows laid over those of the stretch, each counted once for every overlay.
    fn laid(&self) -> usize {
        self.in_use().iter().map(|overlay| overlay.places.len() - overlay.apart.len()).sum()
    }

    /// New rows.
    pub(super) fn new_rows(&self) -> usize {
        self.new.len()
    }

    /// The rows of the stretch that are gone.
    pub(super) fn gone(&self) -> impl Iterator<Item = u32> {
        self.in_use().iter().flat_map(|overlay| &overlay.gone).copied()
    }

    /// Whether one has deleted a row of the stretch.
    #[inline]
    pub(super) fn is_gone(&self, row: usize) -> bool {
        let has = |overlay: &Overlay| !overlay.gone.is_empty() && overlay.gone.binary_search(&(row as u32)).is_ok();
        self.in_use().iter().any(has)
    }

    /// Leaves what is of the first `count` rows of the stretch.
    fn truncate(&mut self, count: usize) {
        self.all[..self.used].iter_mut().for_each(|overlay| overlay.truncate(count));
    }

    fn push(&mut self, run: usize) {
        if self.used == self.all.len() {
            self.all.push(Overlay::default());
        }
        let overlay = &mut self.all[self.used];
        overlay.run = run;
        overlay.truncate(0);
        self.used += 1;
    }
}

impl BlockScan {
    /// Step 1 of the module: finds the overlays of the layer's next rows.
    pub(super) fn find_overlays(&mut self, builder: &RecordBatchBuilder) {
        let youngest = self.layer().runs.first().copied().unwrap_or_default();
        for run in 0..youngest {
            if self.can_be_laid(&self.runs[run], builder) {
                self.overlays.push(run);
            }
        }
    }

    fn can_be_laid(&self, run: &LayerRun, builder: &RecordBatchBuilder) -> bool {
        let Some((block, row)) = run.block() else { return false };
        let rows = row..block.rows();
        rows.len() > 1
            && block.facts().is_seen_once(self.snapshot)
            && run.tests.iter().all(|(place, _)| block.read(|pages| pages[*place].lacks_all(rows.clone())))
            && self.layer().targets.iter().all(|target| self.takes_texts(target, run, builder))
    }

    /// Whether the batch surely takes the texts that a run's block has of a column, beside those of the layer's block
    /// and of the overlays found so far.
    fn takes_texts(&self, target: &Target, run: &LayerRun, builder: &RecordBatchBuilder) -> bool {
        if builder.can_overwrite(target.target) {
            return true;
        }
        let bounds = [run, &self.runs[target.run]].map(|run| text_bound(run, target.column));
        let bounds = bounds.into_iter().fold(self.overlay_text_bound(target.column), usize::saturating_add);
        bounds <= builder.text_room(target.target)
    }

    /// Bytes of text that the blocks of overlays have of a column at most.
    pub(super) fn overlay_text_bound(&self, column: usize) -> usize {
        let overlays = self.overlays.in_use().iter();
        overlays.map(|overlay| text_bound(&self.runs[overlay.run], column)).fold(0, usize::saturating_add)
    }

    /// Whether a block of an overlay has a null in a column.
    pub(super) fn have_overlays_nulls(&self, column: usize) -> bool {
        self.overlays.in_use().iter().any(|overlay| {
            let run = &self.runs[overlay.run];
            let there = run.block().zip(run.place_of(column));
            there.is_some_and(|((block, _), place)| block.read(|pages| pages[place].has_nulls()))
        })
    }

    /// Step 2 for these rows of the stretch: up to which of them it goes. With the new rows among all of the stretch
    /// they are no more than `most`.
    pub(super) fn lay_over(&mut self, Range { start, mut end }: Range<usize>, most: usize) -> Result<usize> {
        if self.overlays.is_empty() || start >= end {
            return Ok(end);
        }
        let mut overlays = std::mem::take(&mut self.overlays);
        // Oldest first, so that those are known which say something of the same rows.
        for at in (0..overlays.used).rev() {
            end = self.look_for(&mut overlays, at, start..end)?;
        }
        let more = (end + overlays.new_before(end)).saturating_sub(most);
        let end = end.saturating_sub(more).max(start);
        overlays.truncate(end);
        self.overlays = overlays;
        Ok(end)
    }

    /// Looks for the next keys of an overlay in rows of the stretch; up to which it goes.
    fn look_for(&self, overlays: &mut Overlays, at: usize, Range { start, end }: Range<usize>) -> Result<usize> {
        let Overlays { all, used, placed, .. } = overlays;
        let (younger, older) = all[..*used].split_at_mut(at + 1);
        let Overlay { run, places, apart, new, gone } = &mut younger[at];
        placed.resize_with(placed.len().max(self.runs.len()), PlacedBlock::default);
        let (placed, run) = (&mut placed[*run], &self.runs[*run]);
        let base = &self.runs[self.layer().runs[0]];
        let (Some(placement), Some((_, first)), Some((block, row))) =
            (placed.of(base, run)?, base.block(), run.block())
        else {
            return Ok(start);
        };
        let (has_all, last) = (run.share == self.columns, block.rows() - 1);
        let takes_new = has_all && self.filter.is_none();
        let next = row + places.len();
        // Of a row between the layer's blocks nothing is known here.
        if next < placement.first() {
            return Ok(start);
        }
        // Rows of keys that are there are contested by what is gone alone.
        if placement.are_all_laid() && older.iter().all(|older| older.gone.is_empty()) {
            let taken = placement.append_places(next - placement.first(), first + end, first, places);
            if next + taken > last {
                return Ok(places.pop().map_or(end, |place| place as usize));
            }
            return Ok(end);
        }
        for (of_block, placed) in (next..).zip(placement.rows().skip(next - placement.first())) {
            let PlacedRow { place, is_there, operation } = placed;
            // Keys that do not ascend, of a damaged block, may be anywhere.
            let place = place.saturating_sub(first);
            if place >= end {
                break;
            }
            let is_contested = self.is_of_older(older, (block, of_block), (place as u32, is_there))?;
            let is_laid = match (operation, is_there) {
                _ if is_contested || of_block == last => return Ok(place),
                (Operation::Patch | Operation::Put, true) => true,
                (Operation::Delete, true) if has_all => {
                    gone.push(place as u32);
                    false
                }
                (Operation::Put, false) if takes_new => {
                    new.push((place as u32, of_block as u32));
                    false
                }
                (Operation::Patch, false) => false,
                (Operation::Delete, false) if has_all => false,
                _ => return Ok(place),
            };
            apart.extend((!is_laid).then_some(places.len() as u32));
            places.push(place as u32);
        }
        Ok(end)
    }

    /// Whether one of these older overlays says that the row is new or gone whose key a row of a block has, and whose
    /// place in the stretch is this one.
    fn is_of_older(
        &self,
        older: &[Overlay],
        (block, row): (&ColumnBlock, usize),
        (place, is_there): (u32, bool),
    ) -> Result<bool> {
        if is_there {
            return Ok(older.iter().any(|older| older.gone.binary_search(&place).is_ok()));
        }
        if older.iter().all(|older| at_place(&older.new, place).is_empty()) {
            return Ok(false);
        }
        let mut key = Vec::new();
        block.write_key(row, &mut key)?;
        self.is_new_in(older, &key, place)
    }

    /// Whether one of these overlays has a new row of this key, which would be at a place of the stretch.
    fn is_new_in(&self, overlays: &[Overlay], key: &[u8], place: u32) -> Result<bool> {
        let mut new_key = Vec::new();
        for overlay in overlays {
            for &(before, row) in at_place(&overlay.new, place) {
                self.write_new_key(NewRow { before, run: overlay.run, row }, &mut new_key)?;
                if new_key == key {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Whether an overlay has a key at or before this one that was not looked for.
    pub(super) fn is_overlay_at(&self, key: &[u8]) -> Result<bool> {
        for overlay in self.overlays.in_use() {
            let Some((block, row)) = self.runs[overlay.run].block() else { continue };
            let (behind, is_there) = block.find(key)?;
            if behind + usize::from(is_there) > row + overlay.places.len() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether an overlay says of a key of the rest, whose place in the stretch is this one, that its row is new or
    /// gone.
    pub(super) fn is_contested(&self, key: &[u8], (place, is_there): (usize, bool)) -> Result<bool> {
        match is_there {
            true => Ok(self.overlays.is_gone(place)),
            false => self.is_new_in(self.overlays.in_use(), key, place as u32),
        }
    }

    /// Leaves what overlays have of the first `count` rows of the stretch, and puts their new rows in order.
    pub(super) fn end_overlays(&mut self, count: usize) -> Result<()> {
        if self.overlays.is_empty() {
            return Ok(());
        }
        let mut overlays = std::mem::take(&mut self.overlays);
        let Overlays { all, used, new, .. } = &mut overlays;
        let last_of_rest = self.inserts.last_key_before(count);
        for overlay in &mut all[..*used] {
            let behind = last_of_rest.map_or(Ok(0..0), |last| self.rows_behind(overlay, count, last))?;
            overlay.leave(count, behind);
            new.extend(overlay.new.iter().map(|&(before, row)| NewRow { before, run: overlay.run, row }));
        }
        let mut failure = Ok(());
        // Stable, and almost always told by the places.
        new.sort_by(|a, b| {
            a.before.cmp(&b.before).then_with(|| match a.run == b.run {
                true => a.row.cmp(&b.row),
                false => self.compare_new(*a, *b).unwrap_or_else(|error| {
                    failure = Err(error);
                    Ordering::Equal
                }),
            })
        });
        self.overwritten += overlays.laid();
        self.inserts.add_gone(overlays.gone());
        self.overlays = overlays;
        failure
    }

    /// The rows of an overlay's block that come behind the last of `count` rows of the stretch and before a new one of
    /// the rest, which is behind that, too.
    fn rows_behind(&self, overlay: &Overlay, count: usize, last_of_rest: &[u8]) -> Result<Range<usize>> {
        let Some((block, row)) = self.runs[overlay.run].block() else { return Ok(0..0) };
        let before = overlay.places.partition_point(|&place| (place as usize) < count);
        let at_end = overlay.places[before..].iter().take_while(|&&place| place as usize == count).count();
        let (first, mut key) = (row + before, Vec::new());
        for row in first..first + at_end {
            block.write_key(row, &mut key)?;
            if key.as_slice() >= last_of_rest {
                return Ok(first..row);
            }
        }
        Ok(first..first + at_end)
    }

    fn compare_new(&self, a: NewRow, b: NewRow) -> Result<Ordering> {
        let (mut key, mut other) = (Vec::new(), Vec::new());
        self.write_new_key(a, &mut key)?;
        self.write_new_key(b, &mut other)?;
        Ok(key.cmp(&other))
    }

    pub(super) fn write_new_key(&self, NewRow { run, row, .. }: NewRow, key: &mut Vec<u8>) -> Result<()> {
        self.runs[run].block().map_or(Ok(()), |(block, _)| block.write_key(row as usize, key))
    }

    /// The keys of the new rows, each with the row of the stretch that it comes before.
    pub(super) fn overlay_keys(&self) -> Result<Vec<(usize, Vec<u8>)>> {
        let keyed = |new: &NewRow| {
            let mut key = Vec::new();
            self.write_new_key(*new, &mut key)?;
            Ok((new.before as usize, key))
        };
        self.overlays.new.iter().map(keyed).collect()
    }

    /// Has the overlays go on behind what they have of the stretch.
    pub(super) fn pass_overlays(&mut self) -> Result<()> {
        let Self { overlays, runs, row, .. } = self;
        overlays.in_use().iter().try_for_each(|overlay| runs[overlay.run].pass(overlay.places.len(), row))
    }
}
