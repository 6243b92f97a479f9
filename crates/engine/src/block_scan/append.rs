//! Rows of a stretch into the batch: all of them, or those that pass the filter (step 3 of [`super`]), and then the new
//! ones among them ([`super::inserts`]).

use mycelium_base::Result;
use mycelium_encoding::RecordBatchBuilder;

use super::BlockScan;
use super::layer::Target;
use super::patches::Overwrite;

impl BlockScan {
    /// Takes the next `count` rows of the layer.
    pub(super) fn append_stretch(&mut self, count: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        let first = builder.len();
        if self.filter.is_some() {
            self.append_passing(count, builder)?;
            self.lay_over_passing(first, builder)?;
            self.overwrite_passing_by_delta(first, builder)?;
            self.overwrite_passing(first, builder)?;
            self.weave_inserts(first, builder)?;
        } else {
            let has_all = self.inserts.find_pieces(count);
            self.append_pieces(count, builder)?;
            self.overwrite_by_delta(first, has_all, builder)?;
            if !has_all {
                self.remove_gone(first, builder)?;
                self.weave_inserts(first, builder)?;
            }
            self.lay_over_all(first, builder)?;
            self.overwrite_all(first, builder)?;
        }
        let of_overlays = self.overlays.new_rows() + self.overlays.gone().count();
        self.counters.rows_merged += (self.overwritten + self.inserts.looked_at() + of_overlays) as u64;
        self.counters.rows_passed_through += count.saturating_sub(self.overwritten + self.inserts.gone().len()) as u64;
        self.find_new_places()?;
        self.end_inserts(first, builder)?;
        self.weave_overlays(first, builder)?;
        self.pass_overlays()?;
        self.pass_rows(count)
    }

    /// Leaves the next `count` rows of the layer. Of a layer of one run, blocks behind them that the filter rules out
    /// by their zones, or that are told by them, are left, too, and not read, if nothing else has a key among theirs.
    fn pass_rows(&mut self, count: usize) -> Result<()> {
        let Self { runs, layers, at, told, row, .. } = self;
        let of_layer = &layers[*at].runs;
        let alone = if let [run] = of_layer[..] { Some(run).filter(|&run| runs[run].ends_block(count)) } else { None };
        match alone {
            Some(run) if told.is_some() || !runs[run].tests.is_empty() => {
                let bound = self.next_beside(run);
                let Self { runs, told, row, counters, snapshot, key, .. } = self;
                let bound = bound.then_some(key.as_slice());
                match told {
                    Some(told) => runs[run].tell_blocks(bound, row, (told, *snapshot), counters),
                    None => runs[run].pass_block(bound, row, counters),
                }
            }
            _ => of_layer.iter().try_for_each(|&run| runs[run].pass(count, row)),
        }
    }

    /// Makes `key` that before which nothing has a say but this run; whether there is one.
    fn next_beside(&mut self, run: usize) -> bool {
        let Self { runs, touched, all_range_deletes, upper, deltas, key: bound, .. } = self;
        let others = runs.iter().enumerate().filter(|(other, _)| *other != run).filter_map(|(_, other)| other.key());
        let deleted = all_range_deletes.next_start(bound);
        let settled = deltas.as_ref().and_then(|deltas| deltas.next_settled());
        let next = others.chain(touched.key()).chain(deleted).chain(upper.as_deref()).chain(settled).min();
        let is_bounded = next.is_some();
        bound.clear();
        bound.extend_from_slice(next.unwrap_or_default());
        is_bounded
    }

    /// Changes cells of the rows that passed, the first of which is `first` in the batch. Both ascend.
    fn overwrite_passing(&self, first: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        let mut place = 0;
        for &Overwrite { target, offset, value } in &self.overwrites {
            while self.passing.get(place).is_some_and(|&row| row < offset) {
                place += 1;
            }
            if self.passing.get(place) == Some(&offset) {
                builder.overwrite(target as usize, [(first + place, value)])?;
            }
        }
        Ok(())
    }

    /// Changes cells of a stretch of which no row was left out but those gone.
    fn overwrite_all(&self, first: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        let mut shifts = self.inserts.shifts();
        for column in self.overwrites.chunk_by(|a, b| a.target == b.target) {
            let cells = column.iter().map(|cell| (first + shifts.place(cell.offset as usize), cell.value));
            builder.overwrite(column[0].target as usize, cells)?;
        }
        Ok(())
    }

    /// Removes the cells of rows that are gone, of a stretch that was appended as it lies from row `first` of the batch
    /// on.
    fn remove_gone(&self, first: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        let gone = self.inserts.gone();
        match gone.is_empty() {
            true => Ok(()),
            false => self.layer().targets.iter().try_for_each(|to| builder.remove(to.target, first, gone)),
        }
    }

    /// Step 3 of the module.
    fn append_passing(&mut self, count: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        self.find_passing(count)?;
        self.leave_out_gone();
        self.append_selected(builder)
    }

    /// Leaves out what is gone of `passing`; both ascend.
    fn leave_out_gone(&mut self) {
        let mut gone = self.inserts.gone().iter().peekable();
        if gone.peek().is_some() {
            self.passing.retain(|row| {
                while gone.next_if(|gone| *gone < row).is_some() {}
                gone.peek() != Some(&row)
            });
        }
    }

    /// Appends the rows in `passing` of the layer.
    pub(super) fn append_selected(&mut self, builder: &mut RecordBatchBuilder) -> Result<()> {
        if self.passing.is_empty() && self.inserts.len() == 0 {
            return Ok(());
        }
        let mut shift = None;
        for &Target { target, run, place, .. } in &self.layers[self.at].targets {
            let Some((block, row)) = self.runs[run].block() else { continue };
            if shift.replace(row) != Some(row) {
                self.shifted.clear();
                self.shifted.extend(self.passing.iter().map(|&at| at + row as u32));
            }
            block.read(|pages| builder.append_selected(target, &pages[place], &self.shifted))?;
        }
        if builder.has_key_columns() {
            let passing = std::mem::take(&mut self.passing);
            let appended = self.append_keys(passing.iter().map(|&at| at as usize), builder);
            self.passing = passing;
            appended?;
        }
        builder.end_rows(self.passing.len());
        Ok(())
    }

    /// Appends the key columns of the first `count` rows of the stretch, as [`BlockScan::append_keys`] does.
    pub(super) fn append_all_keys(&mut self, count: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        if !self.inserts.shift_nothing() || self.overlays.new_rows() > 0 {
            return self.append_keys(0..count, builder);
        }
        let Self { layers, at, runs, row: key, .. } = self;
        let Some((block, first)) = layers[*at].first_block(runs) else { return Ok(()) };
        block.write_keys(first..first + count, key, |key| builder.append_key(key))
    }

    /// Appends the key columns of these rows of the stretch, ascending, but for those gone, and of the new ones between
    /// them.
    pub(super) fn append_keys(
        &mut self,
        rows: impl Iterator<Item = usize>,
        builder: &mut RecordBatchBuilder,
    ) -> Result<()> {
        let of_overlays = self.overlay_keys()?;
        let Self { layers, at, runs, inserts, deltas, row: key, .. } = self;
        let delta = deltas.as_ref().and_then(|deltas| deltas.delta());
        let Some((block, first)) = layers[*at].first_block(runs) else { return Ok(()) };
        let of_overlays = of_overlays.iter().map(|(before, key)| (*before, key.as_slice()));
        let mut inserted: Vec<_> = inserts.keys(delta).chain(of_overlays).collect();
        inserted.sort_unstable();
        let mut inserted = inserted.into_iter().peekable();
        let mut gone = inserts.gone().iter().map(|&row| row as usize).peekable();
        for row in rows {
            while let Some((_, key)) = inserted.next_if(|(before, _)| *before <= row) {
                builder.append_key(key)?;
            }
            while gone.next_if(|gone| *gone < row).is_some() {}
            if gone.peek() != Some(&row) {
                block.write_key(first + row, key)?;
                builder.append_key(key)?;
            }
        }
        inserted.try_for_each(|(_, key)| builder.append_key(key))
    }

    /// Makes `passing` the rows of the stretch that pass, counted from its first.
    fn find_passing(&mut self, count: usize) -> Result<()> {
        self.passing.clear();
        for &run in &self.layers[self.at].runs {
            if !self.runs[run].tests.is_empty() {
                self.runs[run].select(&mut self.counters)?;
                self.runs[run].decide(&self.decisions);
            }
        }
        let mut tested = self.layers[self.at]
            .among(&self.runs)
            .filter(|run| !run.tests.is_empty())
            .filter_map(|run| Some((&run.selected.rows, run.block()?.1)));
        match tested.next() {
            Some((rows, row)) => rows.append_rows_within(row..row + count, &mut self.passing),
            None => self.passing.extend(0..count as u32),
        }
        for (rows, row) in tested {
            self.passing.retain(|&at| rows.get(row + at as usize));
        }
        let Some(filter) = self.filter.as_ref().filter(|filter| !filter.key_tests.is_empty()) else { return Ok(()) };
        let Some((block, row)) = self.layers[self.at].first_block(&self.runs) else { return Ok(()) };
        let (mut failure, key) = (Ok(()), &mut self.row);
        self.passing.retain(|&at| {
            let passes = block.write_key(row + at as usize, key).and_then(|()| filter.passes_key(key));
            passes.unwrap_or_else(|error| {
                failure = Err(error);
                false
            })
        });
        failure
    }
}
