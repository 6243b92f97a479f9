//! New rows among those of a stretch (step 4 of [`super`]).
//!
//! 1. A key of the rest that has a whole row, and whose place is between two rows of the stretch, is noted: before
//!    which row it comes, its key, and the values of the wanted columns, which all are of fixed width. The filter
//!    decides on it by these values.
//! 2. The rows of the stretch are appended and changed as if there were no new ones between them.
//! 3. Then room is made for the new ones, column by column and from the last one on, so that each cell is moved once,
//!    and their values are written there.
//!
//! Cost: O(log) to find the place, as for a patch, and a copy of the rows between two new ones; a step of its own for
//! each would cost what a stretch costs.

use std::ops::Range;

use mycelium_base::Result;
use mycelium_encoding::RecordBatchBuilder;

use super::BlockScan;
use super::patches::Overwrite;
use super::touched::Touched;

/// The new rows of a stretch.
#[derive(Default)]
pub(super) struct Inserts {
    rows: Vec<Insert>,
    keys: Vec<u8>,
    /// Their values; the offset counts new rows.
    values: Vec<Overwrite>,
    /// Keys that have no row, or none that passes.
    without_row: usize,
    /// Before which of the rows appended each one comes.
    places: Vec<u32>,
}

/// A row that comes before a row of the stretch.
struct Insert {
    before: usize,
    key: Range<usize>,
}

impl Inserts {
    /// New rows.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Keys that were found between the rows of the stretch.
    pub(super) fn looked_at(&self) -> usize {
        self.rows.len() + self.without_row
    }

    /// Forgets them.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.keys.clear();
        self.values.clear();
        self.without_row = 0;
    }

    /// Notes a key that has no row, which is all that is to be done about it.
    pub(super) fn note_gone(&mut self) -> bool {
        self.without_row += 1;
        true
    }

    /// The keys of the new rows, each with the row of the stretch that it comes before.
    pub(super) fn keys(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.rows.iter().map(|Insert { before, key }| (*before, &self.keys[key.clone()]))
    }

    fn push(&mut self, before: usize, key: &[u8]) {
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        self.rows.push(Insert { before, key: start..self.keys.len() });
    }
}

impl BlockScan {
    /// Notes the row that is all that the rest has of its next key, which comes before this row of the stretch, if all
    /// of it can be noted.
    pub(super) fn note_new(&mut self, touched: &Touched, before: usize, builder: &RecordBatchBuilder) -> Result<bool> {
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
            true => self.inserts.push(before, key),
            false => {
                self.inserts.values.truncate(values);
                self.inserts.without_row += usize::from(is_noted);
            }
        }
        Ok(is_noted)
    }

    /// Step 3 of the module: puts the new rows among those that were appended of the stretch, the first of which is
    /// `first` in the batch, and forgets them. Key columns were appended with those of the others.
    pub(super) fn append_inserts(&mut self, first: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        let Self { inserts, passing, filter, layers, at, .. } = self;
        if inserts.len() > 0 {
            let befores = inserts.rows.iter().map(|insert| insert.before);
            inserts.places.clear();
            match filter {
                None => inserts.places.extend(befores.map(|before| before as u32)),
                Some(_) => {
                    let mut place = 0;
                    inserts.places.extend(befores.map(|before| {
                        place += passing[place..].iter().take_while(|&&row| (row as usize) < before).count();
                        place as u32
                    }));
                }
            }
            for target in &layers[*at].targets {
                builder.make_room(target.target, first, &inserts.places)?;
            }
            for &Overwrite { target, offset, value } in &inserts.values {
                builder.overwrite(target, first + inserts.places[offset] as usize + offset, value)?;
            }
            builder.end_rows(inserts.len());
        }
        inserts.clear();
        Ok(())
    }
}
