//! The cells of overlays (step 3 of [`super::overlays`]).
//!
//! 1. When a stretch was appended, the cells that overlays have of its rows are appended, too, column by column, and
//!    moved to their rows ([`RecordBatchBuilder::lay`]): those of the youngest overlay last, and before those of the
//!    rest, which is younger still.
//! 2. When all of that is in its place, the new rows' cells are appended, and moved between the others
//!    ([`RecordBatchBuilder::weave`]).

use mycelium_base::Result;
use mycelium_encoding::RecordBatchBuilder;

use super::BlockScan;
use super::layer::Target;
use super::overlays::{Overlay, Overlays};

impl BlockScan {
    /// Step 1 of the module, of a stretch the first row of which is `first` in the batch, of which rows that do not
    /// pass were left out.
    pub(super) fn lay_over_passing(&mut self, first: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        self.lay_each(first, builder, |scan, overlay, places, rows| {
            let mut passing = scan.passing.iter().enumerate().peekable();
            for (place, row) in overlay.laid() {
                while passing.next_if(|(_, passing)| **passing < place).is_some() {}
                if let Some((at, _)) = passing.next_if(|(_, passing)| **passing == place) {
                    places.push(at as u32);
                    rows.push(row);
                }
            }
        })
    }

    /// The same, of a stretch of which no row was left out but those gone, and which has the new rows of the rest
    /// already.
    pub(super) fn lay_over_all(&mut self, first: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        self.lay_each(first, builder, |scan, overlay, places, rows| {
            if overlay.apart.is_empty() && scan.inserts.shift_nothing() {
                places.extend_from_slice(&overlay.places);
                rows.extend(0..overlay.places.len() as u32);
                return;
            }
            let mut shifts = scan.inserts.shifts();
            let mut gone = scan.inserts.gone().iter().peekable();
            for (place, row) in overlay.laid() {
                while gone.next_if(|gone| **gone < place).is_some() {}
                if gone.peek() != Some(&&place) {
                    places.push(shifts.place(place as usize) as u32);
                    rows.push(row);
                }
            }
        })
    }

    /// Lays the cells of each overlay, oldest first, over those at the places that `place` appends, with the rows that
    /// go there, counted from the one that the overlay's run stands on.
    fn lay_each(
        &mut self,
        first: usize,
        builder: &mut RecordBatchBuilder,
        place: impl Fn(&Self, &Overlay, &mut Vec<u32>, &mut Vec<u32>),
    ) -> Result<()> {
        if self.overlays.is_empty() {
            return Ok(());
        }
        let mut overlays = std::mem::take(&mut self.overlays);
        let laid = (0..overlays.used).rev().try_for_each(|at| {
            let Overlays { all, places, rows, .. } = &mut overlays;
            places.clear();
            rows.clear();
            place(self, &all[at], places, rows);
            self.lay_cells(&mut overlays, at, first, builder)
        });
        self.overlays = overlays;
        laid
    }

    /// Lays the cells of an overlay's `rows`, counted from the one that its run stands on, over those at its `places`.
    fn lay_cells(
        &self,
        overlays: &mut Overlays,
        at: usize,
        first: usize,
        builder: &mut RecordBatchBuilder,
    ) -> Result<()> {
        let Overlays { all, places, rows, places_with_cell, rows_with_cell, .. } = overlays;
        let run = &self.runs[all[at].run];
        let (Some((block, row)), Some((&least, &greatest))) = (run.block(), rows.first().zip(rows.last())) else {
            return Ok(());
        };
        rows.iter_mut().for_each(|of_block| *of_block += row as u32);
        let range = row + least as usize..row + greatest as usize + 1;
        for &Target { column, target, .. } in &self.layer().targets {
            let Some(place) = run.place_of(column) else { continue };
            block.read(|pages| {
                let page = &pages[place];
                if page.lacks_all(range.clone()) {
                    return Ok(());
                }
                if !page.has_absent() {
                    match range.len() == rows.len() {
                        true => builder.append_cells(target, page, range.clone())?,
                        false => builder.append_selected(target, page, rows)?,
                    }
                    return builder.lay(target, first, places);
                }
                rows_with_cell.clear();
                places_with_cell.clear();
                let with_cell = rows.iter().zip(&*places).filter(|(row, _)| !page.is_absent(**row as usize));
                with_cell.for_each(|(&row, &place)| {
                    rows_with_cell.push(row);
                    places_with_cell.push(place);
                });
                builder.append_selected(target, page, rows_with_cell)?;
                builder.lay(target, first, places_with_cell)
            })?;
        }
        Ok(())
    }

    /// Makes `places` before which rows of the stretch, as it is in the batch with the new rows of the rest and without
    /// those gone, the new rows of overlays come.
    pub(super) fn find_new_places(&mut self) -> Result<()> {
        if self.overlays.new.is_empty() {
            return Ok(());
        }
        let mut overlays = std::mem::take(&mut self.overlays);
        let Overlays { new, places, key, .. } = &mut overlays;
        places.clear();
        let (mut shifts, mut of_rest) = (self.inserts.shifts(), self.inserts.keys(None).peekable());
        for row in &*new {
            let before = row.before as usize;
            self.write_new_key(*row, key)?;
            while of_rest.next_if(|(place, of_rest)| (*place, *of_rest) < (before, key.as_slice())).is_some() {}
            // New rows of the rest before the same row were counted.
            let behind = of_rest.clone().take_while(|(place, _)| *place == before).count();
            places.push((shifts.place(before) - behind) as u32);
        }
        self.overlays = overlays;
        Ok(())
    }

    /// Step 2 of the module, of a stretch whose first row is `first` in the batch.
    pub(super) fn weave_overlays(&mut self, first: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        if self.overlays.new.is_empty() {
            return Ok(());
        }
        let mut overlays = std::mem::take(&mut self.overlays);
        let Overlays { new, places, rows, .. } = &mut overlays;
        for &Target { column, target, .. } in &self.layer().targets {
            for of_run in new.chunk_by(|a, b| a.run == b.run && a.row < b.row) {
                let run = &self.runs[of_run[0].run];
                let Some(((block, _), place)) = run.block().zip(run.place_of(column)) else { continue };
                rows.clear();
                rows.extend(of_run.iter().map(|new| new.row));
                block.read(|pages| builder.append_selected(target, &pages[place], rows))?;
            }
            builder.weave(target, first, places)?;
        }
        builder.end_rows(new.len());
        self.overlays = overlays;
        Ok(())
    }
}
