//! New rows among those of a stretch, and rows of it that are gone (step 4 of [`super`]).
//!
//! 1. A key of the rest that has a whole row, and whose place is between two rows of the stretch, is noted: before
//!    which row it comes, its key, and the values of the wanted columns. The filter decides on it by these values.
//!    Where all of these are of fixed width they are found as those of patches are, otherwise the row is packed.
//! 2. A row of the stretch that such a packed row replaces, or that is deleted, is noted as gone.
//! 3. Where those new and gone are few, the rows of the stretch are appended in *pieces*, up to the next of them, and
//!    the new ones between these ([`Inserts::find_pieces`]).
//! 4. Where they are many, pieces would be short and each cost a call for every column. Then all rows are appended as
//!    if none were gone or new, those gone are cut out, and the new ones are put between the others: room is made for
//!    them, from the last one on, so that each cell is moved once ([`RecordBatchBuilder::make_room`]); packed ones are
//!    appended and moved there ([`RecordBatchBuilder::weave`]). So they are, too, where a filter selects rows, of which
//!    those gone are left out.
//! 5. Last the noted values are written to their cells.
//!
//! Cost: O(log) to find the place, as for a patch, and a call for each column, or a copy of the rows up to the next new
//! one; a step of its own for each would cost what a stretch costs.

use std::ops::Range;

use mycelium_base::Result;
use mycelium_encoding::RecordBatchBuilder;

use super::BlockScan;
use super::layer::Target;
use super::patches::Overwrite;
use super::positional_delta::PositionalDelta;
use super::touched::Touched;

/// The new rows of a stretch.
#[derive(Default)]
pub(super) struct Inserts {
    rows: Vec<Insert>,
    keys: Vec<u8>,
    /// Their values; the offset counts new rows.
    values: Vec<Overwrite>,
    /// Or the rows as a whole, in the layout of the batch.
    packed: Vec<u8>,
    /// How many bytes these may have, so that the batch surely takes their texts; `None` if values are noted.
    packed_room: Option<usize>,
    /// Whether a row had to be packed among others whose values were noted: then all are, from the next stretch on.
    packs: bool,
    /// Rows of the stretch that are not to be appended, ascending.
    gone: Vec<u32>,
    /// Of the new rows, those of a delta.
    of_delta: usize,
    /// Keys that have no row, or none that passes.
    without_row: usize,
    /// Before which of the rows appended each one comes.
    places: Vec<u32>,
    pieces: Vec<Piece>,
}

/// What comes next of a stretch with its new rows.
enum Piece {
    /// Rows of the stretch.
    Rows(Range<usize>),
    /// The new row of this number.
    New(usize),
}

/// Rows of a stretch for each one that is new or gone, from which on the stretch is appended in pieces.
const LONG_PIECE: usize = 1024;

/// A row that comes before a row of the stretch.
struct Insert {
    before: usize,
    content: Content,
}

/// What there is of a new row.
enum Content {
    /// Its key, and the row as a whole; that is empty if its values are noted.
    OfRest { key: Range<usize>, packed: Range<usize> },
    /// The number that it has in a delta, which has its key and values.
    OfDelta(usize),
}

impl Inserts {
    /// New rows.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether no row is new or gone.
    #[inline]
    pub(super) fn shift_nothing(&self) -> bool {
        self.rows.is_empty() && self.gone.is_empty()
    }

    /// How many more rows there are with these, less those that are gone; none if there are fewer.
    #[inline]
    pub(super) fn more(&self) -> usize {
        self.rows.len().saturating_sub(self.gone.len())
    }

    /// Keys of the rest that were looked at, but for those of rows of which cells are overwritten.
    pub(super) fn looked_at(&self) -> usize {
        self.rows.len() + self.without_row
    }

    /// Rows of the stretch that are not to be appended, ascending.
    #[inline]
    pub(super) fn gone(&self) -> &[u32] {
        &self.gone
    }

    /// Whether all rows are to be packed.
    pub(super) fn packs(&self) -> bool {
        self.packs
    }

    /// Whether those of this stretch are packed.
    pub(super) fn are_packed(&self) -> bool {
        self.packed_room.is_some()
    }

    /// The values noted, each with the number of its new row.
    pub(super) fn values(&self) -> &[Overwrite] {
        &self.values
    }

    /// Puts these new rows of a delta among those noted, none of which is packed. The stretch begins with this row of
    /// the delta's block.
    pub(super) fn add_of_delta(&mut self, numbers: impl Iterator<Item = usize>, delta: &PositionalDelta, first: usize) {
        let insert =
            |number| Insert { before: delta.new_row_before(number) - first, content: Content::OfDelta(number) };
        if self.rows.is_empty() {
            self.rows.extend(numbers.map(insert));
            self.of_delta = self.rows.len();
            return;
        }
        let (mut noted, mut renumbered) = (std::mem::take(&mut self.rows).into_iter().peekable(), Vec::new());
        for number in numbers {
            let (before, key) = (delta.new_row_before(number) - first, delta.new_key(number));
            while let Some(of_rest) =
                noted.next_if(|of_rest| (of_rest.before, self.key_of(of_rest, None)) < (before, key))
            {
                renumbered.push(self.rows.len() as u32);
                self.rows.push(of_rest);
            }
            self.rows.push(insert(number));
            self.of_delta += 1;
        }
        for of_rest in noted {
            renumbered.push(self.rows.len() as u32);
            self.rows.push(of_rest);
        }
        self.values.iter_mut().for_each(|value| value.offset = renumbered[value.offset as usize]);
    }

    /// Adds rows of the stretch that are gone, none of which is known.
    pub(super) fn add_gone(&mut self, gone: impl Iterator<Item = u32>) {
        let known = self.gone.len();
        self.gone.extend(gone);
        if self.gone.len() > known {
            self.gone.sort_unstable();
        }
    }

    /// Forgets the rows.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.keys.clear();
        self.values.clear();
        self.packed.clear();
        self.packed_room = None;
        self.gone.clear();
        self.without_row = 0;
        self.of_delta = 0;
    }

    /// Notes a deleted key: that of a row of the stretch, or one between rows, of which nothing is to be done, as of a
    /// patch that finds no row.
    /// Can always be done.
    pub(super) fn note_deleted(&mut self, place: usize, is_there: bool) -> bool {
        self.without_row += 1;
        self.gone.extend(is_there.then_some(place as u32));
        true
    }

    /// The keys of the new rows, some of which may be of this delta, each with the row of the stretch that it comes
    /// before.
    pub(super) fn keys<'a>(
        &'a self,
        delta: Option<&'a PositionalDelta>,
    ) -> impl Iterator<Item = (usize, &'a [u8])> + Clone {
        self.rows.iter().map(move |insert| (insert.before, self.key_of(insert, delta)))
    }

    fn key_of<'a>(&'a self, insert: &Insert, delta: Option<&'a PositionalDelta>) -> &'a [u8] {
        match &insert.content {
            Content::OfRest { key, .. } => &self.keys[key.clone()],
            Content::OfDelta(number) => delta.map_or(&[], |delta| delta.new_key(*number)),
        }
    }

    /// The key of the last new row, if it comes before this row of the stretch.
    pub(super) fn last_key_before(&self, row: usize) -> Option<&[u8]> {
        let last = self.rows.last().filter(|insert| insert.before == row)?;
        Some(self.key_of(last, None))
    }

    /// The packed row of this number.
    fn packed_row(&self, number: usize) -> &[u8] {
        match &self.rows[number].content {
            Content::OfRest { packed, .. } => &self.packed[packed.clone()],
            Content::OfDelta(_) => &[],
        }
    }

    fn push(&mut self, before: usize, key: &[u8], packed: Range<usize>) {
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        self.rows.push(Insert { before, content: Content::OfRest { key: start..self.keys.len(), packed } });
    }

    /// Makes `pieces` those of a stretch of so many rows: with the new rows and without those gone where these are few,
    /// else the stretch as it lies. Whether it is the former.
    pub(super) fn find_pieces(&mut self, count: usize) -> bool {
        self.pieces.clear();
        if LONG_PIECE * (self.rows.len() + self.gone.len()) > count {
            self.pieces.push(Piece::Rows(0..count));
            return false;
        }
        self.find_places(None);
        let (mut from, mut gone) = (0, self.gone.iter().map(|&row| row as usize).peekable());
        for (number, before) in self.rows.iter().map(|insert| insert.before).chain([count]).enumerate() {
            while let Some(gone) = gone.next_if(|&gone| gone < before) {
                self.pieces.push(Piece::Rows(from..gone));
                from = gone + 1;
            }
            self.pieces.push(Piece::Rows(from..before));
            self.pieces.extend((number < self.rows.len()).then_some(Piece::New(number)));
            from = before;
        }
        self.pieces.retain(|piece| !matches!(piece, Piece::Rows(rows) if rows.is_empty()));
        true
    }

    /// How far rows of the stretch are moved by the new ones and those gone before them, for rows that ascend.
    #[inline]
    pub(super) fn shifts(&self) -> Shifts<'_> {
        Shifts { new: &self.rows, gone: &self.gone, shift: 0 }
    }

    /// Makes `places` where the new rows come, of rows that were appended but for those gone, or of these alone.
    fn find_places(&mut self, appended: Option<&[u32]>) {
        let listed = appended.unwrap_or(&self.gone);
        let mut before = 0;
        self.places.clear();
        self.places.extend(self.rows.iter().map(|insert| {
            before += listed[before..].iter().take_while(|&&row| (row as usize) < insert.before).count();
            if appended.is_some() { before as u32 } else { (insert.before - before) as u32 }
        }));
    }
}

/// Made by [`Inserts::shifts`].
pub(super) struct Shifts<'a> {
    /// Those that are not before the last row asked for.
    new: &'a [Insert],
    gone: &'a [u32],
    shift: isize,
}

impl Shifts<'_> {
    /// Where a row of the stretch is among those appended, with the new ones.
    #[inline]
    pub(super) fn place(&mut self, row: usize) -> usize {
        while let [insert, behind @ ..] = self.new
            && insert.before <= row
        {
            (self.new, self.shift) = (behind, self.shift + 1);
        }
        while let [gone, behind @ ..] = self.gone
            && (*gone as usize) < row
        {
            (self.gone, self.shift) = (behind, self.shift - 1);
        }
        row.saturating_add_signed(self.shift)
    }
}

impl BlockScan {
    /// Notes the values of the row that is all that the rest has of its next key, which comes before this row of the
    /// stretch, if all of them can be noted.
    pub(super) fn note_new(&mut self, touched: &Touched, before: usize, builder: &RecordBatchBuilder) -> Result<bool> {
        if self.inserts.packs || self.inserts.packed_room.is_some() {
            return Ok(false);
        }
        let (values, row) = (self.inserts.values.len(), self.inserts.len());
        let (mut is_noted, mut passes, mut decided_by) = (true, true, None);
        // Oldest first: the whole row.
        for (kind, _, value) in touched.entries().rev() {
            let shape = if is_noted { self.shape_of((kind, value), builder)? } else { None };
            let (Some(shape), Some(layout)) = (shape, self.merge.plan().given_layout(kind)) else {
                is_noted = false;
                break;
            };
            let shape = self.shapes.get(shape);
            shape.note(value, row, &mut self.inserts.values);
            // A row that lacks a column is malformed, which putting it together by itself says.
            is_noted = self.inserts.values.len() - values >= self.layer().targets.len();
            if shape.is_tested() {
                passes = shape.passes(layout, value)?;
                is_noted &= decided_by.replace(shape.number()).is_none_or(|before| before == shape.number());
            }
        }
        let key = touched.key().unwrap_or_default();
        passes = passes && is_noted && self.filter.as_ref().map_or(Ok(true), |filter| filter.passes_key(key))?;
        match passes {
            true => self.inserts.push(before, key, 0..0),
            false => {
                self.inserts.values.truncate(values);
                self.inserts.without_row += usize::from(is_noted);
            }
        }
        Ok(is_noted)
    }

    /// Packs the row that is all that the rest has of its next key, which comes before this row of the stretch, or is
    /// there in its place. `false` if values of others were noted, or if the batch may not take it beside `most` rows
    /// of the stretch.
    pub(super) fn note_packed(
        &mut self,
        touched: &Touched,
        (place, is_there): (usize, bool),
        most: usize,
        builder: &RecordBatchBuilder,
    ) -> Result<bool> {
        if self.shapes.are_of_delta() {
            return Ok(false);
        }
        if self.inserts.packed_room.is_none() {
            if self.inserts.len() > 0 {
                self.inserts.packs = true;
                return Ok(false);
            }
            self.inserts.packed_room = Some(self.text_room_beside(most, builder));
        }
        let Self { merge, inserts, filter, .. } = self;
        merge.reset();
        for (kind, trailer, value) in touched.entries() {
            if merge.visit(kind, trailer, value)?.is_break() {
                break;
            }
        }
        let start = inserts.packed.len();
        let exists = merge.is_settled() && merge.finish(&mut inserts.packed)?;
        if !exists || inserts.packed_room.is_none_or(|room| inserts.packed.len() > room) {
            inserts.packed.truncate(start);
            return Ok(false);
        }
        let (key, row) = (touched.key().unwrap_or_default(), &inserts.packed[start..]);
        let passes = filter.as_ref().map_or(Ok(true), |filter| filter.passes(key, row))?;
        inserts.gone.extend(is_there.then_some(place as u32));
        match passes {
            true => inserts.push(place, key, start..inserts.packed.len()),
            false => {
                inserts.packed.truncate(start);
                inserts.without_row += 1;
            }
        }
        Ok(true)
    }

    /// Bytes of text that each column of the batch surely takes beside those of the next `most` rows of the layer and
    /// of what is laid over them.
    fn text_room_beside(&self, most: usize, builder: &RecordBatchBuilder) -> usize {
        let room = |&Target { column, target, run, place }: &Target| {
            let (block, row) = self.runs[run].block()?;
            let rows = row..block.rows().min(row.saturating_add(most));
            let bound = block.read(|pages| pages[place].text_bound(rows));
            Some(builder.text_room(target).saturating_sub(bound).saturating_sub(self.overlay_text_bound(column)))
        };
        self.layer().targets.iter().map(|target| room(target).unwrap_or(0)).min().unwrap_or(usize::MAX)
    }

    /// Step 3 of the module: appends the pieces of the next `count` rows of the layer.
    pub(super) fn append_pieces(&mut self, count: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        let first = builder.len();
        let inserts = &self.inserts;
        for &Target { target, run, place, .. } in &self.layer().targets {
            let Some((block, row)) = self.runs[run].block() else { continue };
            block.read(|pages| {
                let mut end = first;
                inserts.pieces.iter().try_for_each(|piece| match piece {
                    Piece::Rows(rows) => {
                        end += rows.len();
                        builder.append_cells(target, &pages[place], row + rows.start..row + rows.end)
                    }
                    Piece::New(number) => {
                        end += 1;
                        match inserts.packed_room {
                            None => builder.make_room(target, end - 1, &[0]),
                            Some(_) => {
                                builder.append_cells_of_rows(target, std::iter::once(inserts.packed_row(*number)))
                            }
                        }
                    }
                })
            })?;
        }
        if builder.has_key_columns() {
            self.append_all_keys(count, builder)?;
        }
        builder.end_rows(count - self.inserts.gone().len());
        Ok(())
    }

    /// Step 4 of the module: puts the new rows among those that were appended of the stretch, the first of which is
    /// `first` in the batch. Key columns were appended with those of the others.
    pub(super) fn weave_inserts(&mut self, first: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        let Self { inserts, passing, filter, layers, at, .. } = self;
        if inserts.len() == 0 {
            return Ok(());
        }
        inserts.find_places(filter.is_some().then_some(passing));
        for &Target { target, .. } in &layers[*at].targets {
            match inserts.packed_room {
                None => builder.make_room(target, first, &inserts.places)?,
                Some(_) => {
                    builder
                        .append_cells_of_rows(target, (0..inserts.len()).map(|number| inserts.packed_row(number)))?;
                    builder.weave(target, first, &inserts.places)?;
                }
            }
        }
        Ok(())
    }

    /// Step 5 of the module, of a stretch the first row of which is `first` in the batch; forgets the new rows.
    pub(super) fn end_inserts(&mut self, first: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        let Self { inserts, deltas, layers, at, .. } = self;
        let place = |number: usize| first + inserts.places[number] as usize + number;
        for &Overwrite { target, offset, value } in &inserts.values {
            builder.overwrite(target as usize, [(place(offset as usize), value)])?;
        }
        if let Some((deltas, delta)) = deltas.as_ref().and_then(|deltas| Some((deltas, deltas.delta()?)))
            && inserts.of_delta > 0
        {
            for target in &layers[*at].targets {
                let column = deltas.place_of(target.column);
                let cells = inserts.rows.iter().enumerate().filter_map(|(number, insert)| match insert.content {
                    Content::OfDelta(of_delta) => Some((place(number), delta.new_value(column, of_delta))),
                    Content::OfRest { .. } => None,
                });
                builder.overwrite(target.target, cells)?;
            }
        }
        builder.end_rows(inserts.len());
        inserts.clear();
        Ok(())
    }
}
